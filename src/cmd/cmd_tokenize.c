#include "base/buf.h"
#include "base/json.h"
#include "cmd/cmd.h"
#include "cmd/input.h"
#include "fetch/fetch.h"
#include "model/model.h"
#include <stdlib.h>

/* Only the tokenizer is read: this works for models whose architecture is not supported. */

typedef struct tokenize_opts {
  bool ids, special, parse_special, json;
} tokenize_opts;

static const opt_row rows[] = {
    {"ids", 0, NULL, OPT_FLAG, offsetof(tokenize_opts, ids), 0, 0, NULL, NULL, false, "Output", NULL, "the ids alone, on one line"},
    {"json", 0, NULL, OPT_FLAG, offsetof(tokenize_opts, json), 0, 0, NULL, NULL, false, "Output", NULL, "one JSON object: count, tokens, pieces"},
    {"special", 0, NULL, OPT_FLAG, offsetof(tokenize_opts, special), 0, 0, NULL, "true", false, "Tokens", NULL,
        "put the tokens before and behind that the model asks for (BOS, EOS)"},
    {"parse-special", 0, NULL, OPT_FLAG, offsetof(tokenize_opts, parse_special), 0, 0, NULL, NULL, false, "Tokens", NULL,
        "read control tokens in the text as such, as in a prompt that a template made"},
    {0},
};

const opt_cmd cmd_tokenize_opts = {"tokenize", "MODEL [TEXT|-]", "show the tokens that a text becomes",
    "MODEL is a file or a name of `weir models`. Without TEXT, or with -, the text is read from stdin, to its last byte. Each line of output is an "
    "id and the "
    "token's text as a JSON string; bytes that are not UTF-8 by themselves are shown as U+FFFD.",
    rows, sizeof(tokenize_opts), 1, 2};

static void print_pieces(const tok *t, const tok_ids *ids) {
  buf b;
  buf_init(&b, 1 << 20);
  for (int i = 0; i < ids->n; i++) {
    char scratch[8];
    buf_clear(&b);
    buf_json(&b, tok_piece(t, ids->v[i], true, scratch));
    printf("%7d  \"%.*s\"\n", ids->v[i], (int)b.n, b.n ? b.p : "");
  }
  buf_fini(&b);
}

static void print_ids(const tok_ids *ids) {
  for (int i = 0; i < ids->n; i++) printf("%s%d", i ? " " : "", ids->v[i]);
  putchar('\n');
}

static void print_json(const tok *t, const tok_ids *ids) {
  buf b;
  buf_init(&b, SIZE_MAX / 2);
  printf("{\"count\": %d, \"tokens\": [", ids->n);
  for (int i = 0; i < ids->n; i++) printf("%s%d", i ? ", " : "", ids->v[i]);
  printf("], \"pieces\": [");
  for (int i = 0; i < ids->n; i++) {
    char scratch[8];
    buf_clear(&b);
    buf_json(&b, tok_piece(t, ids->v[i], true, scratch));
    printf("%s\"%.*s\"", i ? ", " : "", (int)b.n, b.n ? b.p : "");
  }
  puts("]}");
  buf_fini(&b);
}

int cmd_tokenize(int argc, char **argv) {
  tokenize_opts o;
  err e = {0};
  char **pos, path[OS_PATH], name[FETCH_NAME];
  int n_pos;
  bool helped;
  mfile *g = NULL;
  tok *t = NULL;
  tok_ids ids = {0};
  buf text;
  if (!opt_parse(&cmd_tokenize_opts, argc, argv, &o, NULL, &pos, &n_pos, &helped, &e)) return cmd_fail("tokenize", &e);
  if (helped) return 0;
  fetch_opts fo = {.no_pull = true};
  buf_init(&text, INPUT_MAX);
  bool ok = fetch_model(pos[0], &fo, path, name, &e) && model_file(path, &g, &e) && model_tok(g, &t, &e);
  if (ok && n_pos > 1 && strcmp(pos[1], "-") != 0) ok = buf_puts(&text, pos[1]) || err_set(&e, ERR_NOMEM, "out of memory for the text");
  else if (ok) ok = input_read("-", &text, &e);
  ok = ok && tok_encode(t, buf_view(&text), NULL, o.parse_special, o.special, &ids, &e);
  if (ok && o.json) print_json(t, &ids);
  else if (ok && o.ids) print_ids(&ids);
  else if (ok) print_pieces(t, &ids);
  free(ids.v);
  buf_fini(&text);
  tok_free(t);
  mf_close(g);
  return ok ? 0 : cmd_fail("tokenize", &e);
}
