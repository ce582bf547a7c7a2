#include "base/clock.h"
#include "base/json.h"
#include "cmd/cmd.h"
#include "cmd/input.h"
#include "engine/weights.h"
#include "fetch/fetch.h"
#include "serve/prompt.h"
#include <stdlib.h>

/* The prompt is made by the very functions the server uses, so what is printed is what a chat runs on. A .jinja file stands alone: no tokenizer, so
 * the texts of BOS and EOS have to be given. */

typedef struct template_opts {
  bool prompt, ids;
  const char *bos, *eos;
  int64_t now;
} template_opts;

static const opt_row rows[] = {
    {"generation-prompt", 0, NULL, OPT_FLAG, offsetof(template_opts, prompt), 0, 0, NULL, "true", false, "Options", NULL,
        "end with the opening of the assistant's answer, unless the object says otherwise"},
    {"ids", 0, NULL, OPT_FLAG, offsetof(template_opts, ids), 0, 0, NULL, NULL, false, "Options", NULL,
        "the prompt's token ids, on one line (not for a .jinja file)"},
    {"bos", 0, NULL, OPT_STR, offsetof(template_opts, bos), 0, 0, NULL, "", false, "Options", "TEXT", "bos_token for a .jinja file"},
    {"eos", 0, NULL, OPT_STR, offsetof(template_opts, eos), 0, 0, NULL, "", false, "Options", "TEXT", "eos_token for a .jinja file"},
    {"now", 0, NULL, OPT_INT, offsetof(template_opts, now), -1, 253402300799.0, NULL, "-1", false, "Options", "SECONDS",
        "the time that strftime_now sees, as Unix time; -1: the clock's"},
    {0},
};

const opt_cmd cmd_template_opts = {"template", "MODEL|FILE.jinja MESSAGES.json|-", "show the exact prompt that a chat becomes",
    "MESSAGES.json holds an array of messages, or an object with `messages` and, if wanted, `tools`, `chat_template_kwargs` and "
    "`add_generation_prompt`, as a "
    "request to /v1/chat/completions has them. The prompt goes to stdout byte for byte, with no newline added.",
    rows, sizeof(template_opts), 2, 2};

/* The document becomes what a chat is made of; `c` borrows from it. */
static bool read_chat(json_t *doc, prompt_chat *c, err *e) {
  if (json_is_array(doc)) {
    c->messages = doc;
    return true;
  }
  if (!json_is_object(doc)) return err_set(e, ERR_INPUT, "expected an array of messages or an object with `messages`, found %s", json_type_name(doc));
  if (!json_get_array(doc, "", "messages", &c->messages, e) || !json_get_array(doc, "", "tools", &c->tools, e) ||
      !json_get_object(doc, "", "chat_template_kwargs", &c->kwargs, e) ||
      !json_get_bool(doc, "", "add_generation_prompt", &c->add_generation_prompt, e))
    return false;
  return c->messages || err_param(e, ERR_INPUT, "messages", "'messages' is missing");
}

static bool check_messages(const json_t *messages, err *e) {
  size_t i;
  json_t *m;
  json_array_foreach(messages, i, m) {
    char at[96];
    snprintf(at, sizeof at, "messages[%zu]", i);
    if (!json_is_object(m)) return err_param(e, ERR_INPUT, at, "'%s' is %s, expected an object", at, json_type_name(m));
  }
  return true;
}

static void print_ids(const tok_ids *ids) {
  for (int i = 0; i < ids->n; i++) printf("%s%d", i ? " " : "", ids->v[i]);
  putchar('\n');
}

static bool print_text(chat_text *t) {
  fwrite(t->text.n ? t->text.p : "", 1, t->text.n, stdout);
  chat_text_fini(t);
  return true;
}

static bool from_model(const char *what, const template_opts *o, const prompt_chat *c, err *e) {
  char path[OS_PATH], name[FETCH_NAME];
  fetch_opts fo = {.no_pull = true};
  model *m = NULL;
  chat_text text = {0};
  tok_ids ids = {0};
  if (!fetch_model(what, &fo, path, name, e) || !model_open(path, weights_type_ok, &m, e)) return false;
  bool ok;
  if (o->ids) {
    ok = prompt_chat_ids(m, c, &ids, e);
    if (ok) print_ids(&ids);
    free(ids.v);
  } else ok = prompt_render(m, c, &text, e) && print_text(&text);
  model_close(m);
  return ok;
}

static bool from_file(const char *path, const template_opts *o, const prompt_chat *c, err *e) {
  buf source;
  chat_tmpl *t = NULL;
  chat_text text = {0};
  if (o->ids) return err_set(e, ERR_USAGE, "--ids wants a model: %s is a template alone", path);
  chat_vars v = {.messages = c->messages,
      .tools = c->tools,
      .extra = c->kwargs,
      .bos = o->bos,
      .eos = o->eos,
      .add_generation_prompt = c->add_generation_prompt,
      .now = c->now};
  buf_init(&source, INPUT_MAX);
  bool ok = input_read(path, &source, e);
  if (ok && !(chat_compile(buf_view(&source), &t, e) && chat_render(t, &v, &text, e))) ok = err_prefix(e, "%s", path);
  ok = ok && print_text(&text);
  chat_free(t);
  buf_fini(&source);
  return ok;
}

int cmd_template(int argc, char **argv) {
  template_opts o;
  err e = {0};
  char **pos;
  int n_pos;
  bool helped;
  buf text;
  json_t *doc = NULL;
  if (!opt_parse(&cmd_template_opts, argc, argv, &o, NULL, &pos, &n_pos, &helped, &e)) return cmd_fail("template", &e);
  if (helped) return 0;
  prompt_chat c = {.add_generation_prompt = o.prompt, .now = o.now < 0 ? clock_unix() : o.now};
  buf_init(&text, INPUT_MAX);
  bool ok = input_read(pos[1], &text, &e);
  if (ok && !(json_parse(buf_view(&text), &doc, &e) && read_chat(doc, &c, &e) && check_messages(c.messages, &e)))
    ok = err_prefix(&e, "%s", strcmp(pos[1], "-") == 0 ? "stdin" : pos[1]);
  if (ok) ok = (str_ends(str_c(pos[0]), STR(".jinja")) ? from_file : from_model)(pos[0], &o, &c, &e);
  json_decref(doc);
  buf_fini(&text);
  return ok ? 0 : cmd_fail("template", &e);
}
