/* Pre-tokenizers. Text is cut into pieces that merges never cross; how it is cut is part of what the model was trained on.
 *
 * A row is a regular expression for PCRE2 with JIT (46 ns a piece measured on English, 50 times less than what merging costs; its compilation takes
 * 0.2 ms). A hand-made scanner would be faster still, but then every later family is code instead of a row.
 *
 * White space is spelled out: PCRE2's \s under UCP also takes U+180E, which is not White_Space since Unicode 6.3; the reference tokenizers do not.
 * Letters and digits are those of the Unicode version PCRE2 was built with: a code point assigned later than that counts as "other". */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/tok_impl.h"
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>

#define WS TOK_WS
#define TAIL "|[" WS "]+(?![^" WS "])|[" WS "]+"
#define GPT4_LIKE(digits)                                                                                                                            \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+" TAIL

/* A word begins with at most one run of capitals; letters without case go with either. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define GPT4O_LIKE(suffix, digits)                                                                                                                   \
  "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" suffix "|" digits "| ?[^" WS                     \
  "\\p{L}\\p{N}]+[\\r\\n/]*|[" WS "]*[\\r\\n]+" TAIL

static const tok_pre rows[] = {
    {.names = "gpt2 gpt-2 default olmo mpt phi-2 jais", .regex = "'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+" TAIL},
    /* Digits(individual), then gpt2 on what lies between them. Folded into one expression: a digit stands alone, and white space before a digit ends
     * where a stretch ended in the two-stage form, so it does not leave its last blank behind ("x  12" is x, two blanks, 1, 2). */
    {.names = "smollm refact starcoder command-r codeshell",
        .regex = "'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS "\\p{N}])|[" WS "]+"},
    {.names = "qwen2 deepseek-r1-qwen", .regex = GPT4_LIKE("\\p{N}"), .nfc = true},
    {.names = "llama-bpe llama3 llama-v3", .regex = GPT4_LIKE("\\p{N}{1,3}"), .whole_first = true, .bos_default = true},
    {.names = "dbrx smaug-bpe", .regex = GPT4_LIKE("\\p{N}{1,3}")},
    {.names = "tekken", .regex = GPT4O_LIKE("", "\\p{N}"), .whole_first = true, .bos_default = true},
    {.names = "gpt-4o llama4", .regex = GPT4O_LIKE("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "\\p{N}{1,3}")},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

const tok_pre *tok_pre_find(str name) {
  for (int i = 0; i < N_ROWS; i++) {
    str rest = str_c(rows[i].names), head;
    while (str_cut(rest, ' ', &head, &rest))
      if (str_eq(head, name)) return &rows[i];
    if (str_eq(rest, name)) return &rows[i];
  }
  return NULL;
}

void tok_pre_names(char *out, size_t cap) {
  size_t n = 0;
  out[0] = 0;
  for (int i = 0; i < N_ROWS && n < cap; i++) n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? " " : "", rows[i].names);
}

/* --- regular expressions --- */

struct tok_re {
  pcre2_code *code;
  pcre2_match_context *match; /* ours have no limit on steps (the interpreter's default would stop at a run of 10 MB), a file's have one */
  bool jit;
};
enum { FOREIGN_STEPS = 10000000 };

bool tok_re_new(const char *regex, bool bounded, tok_re **ret, err *e) {
  int code = 0;
  PCRE2_SIZE at = 0;
  tok_re *re = calloc(1, sizeof *re);
  if (!re) return err_set(e, ERR_NOMEM, "out of memory for the pre-tokenizer");
  re->code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &code, &at, NULL);
  re->match = pcre2_match_context_create(NULL);
  if (!re->code || !re->match) {
    bool nomem = !re->match || code == PCRE2_ERROR_HEAP_FAILED; /* its compiler's own number */
    PCRE2_UCHAR why[120] = "";
    pcre2_get_error_message(code, why, sizeof why);
    tok_re_free(re);
    if (nomem) return err_set(e, ERR_NOMEM, "out of memory for the pre-tokenizer");
    return err_set(e, bounded ? ERR_INPUT : ERR_INTERNAL, "the pre-tokenizer's regular expression %.200s does not compile: %s at %zu", regex,
        (const char *)why, (size_t)at);
  }
  pcre2_set_match_limit(re->match, bounded ? FOREIGN_STEPS : UINT32_MAX);
  pcre2_set_depth_limit(re->match, bounded ? FOREIGN_STEPS : UINT32_MAX);
  pcre2_set_heap_limit(re->match, bounded ? 1 << 20 : UINT32_MAX);
  re->jit = pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) == 0; /* hardened kernels refuse executable memory: then interpreted */
  *ret = re;
  return true;
}

void tok_re_free(tok_re *re) {
  if (!re) return;
  pcre2_match_context_free(re->match);
  pcre2_code_free(re->code);
  free(re);
}

bool tok_work_init(tok_work *w, const tok *t, tok_ids *out, err *e) {
  *w = (tok_work){.t = t, .out = out, .e = e, .unk_end = -1, .match = pcre2_match_data_create(1, NULL)};
  buf_init(&w->norm[0], SIZE_MAX / 4);
  buf_init(&w->norm[1], SIZE_MAX / 4);
  buf_init(&w->meta, SIZE_MAX / 4);
  return w->match || err_set(e, ERR_NOMEM, "out of memory for a tokenizer's scratch");
}

void tok_work_fini(tok_work *w) {
  pcre2_match_data_free(w->match);
  buf_fini(&w->norm[0]);
  buf_fini(&w->norm[1]);
  buf_fini(&w->meta);
  free(w->sym);
  free(w->link);
  free(w->heap);
  free(w->node);
}

bool tok_grow(tok_work *w, void **p, size_t count, size_t size) {
  void *q = count <= SIZE_MAX / size ? realloc(*p, count * size) : NULL;
  if (!q) return err_set(w->e, ERR_NOMEM, "out of memory while tokenizing one piece of %zu symbols", count);
  *p = q;
  return true;
}

/* The next match at or after `at`; false with *failed on trouble, false alone when nothing more matches. The text was checked to be UTF-8 once by the
 * caller: checking at every match would make the whole quadratic. What the JIT cannot do (its stack) the interpreter does; it uses the heap. */
static bool next_match(const tok_work *w, const tok_re *re, str text, size_t at, size_t *ret_from, size_t *ret_to, int *failed) {
  int rc = PCRE2_ERROR_JIT_STACKLIMIT;
  if (re->jit) rc = pcre2_jit_match(re->code, (PCRE2_SPTR)text.p, text.n, at, PCRE2_NOTEMPTY, w->match, re->match);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
    rc = pcre2_match(re->code, (PCRE2_SPTR)text.p, text.n, at, PCRE2_NOTEMPTY | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w->match, re->match);
  *failed = rc < 0 && rc != PCRE2_ERROR_NOMATCH ? rc : 0;
  if (rc < 0) return false;
  const PCRE2_SIZE *o = pcre2_get_ovector_pointer(w->match);
  *ret_from = o[0];
  *ret_to = o[1];
  return true;
}

/* --- cuts --- */

static bool cut_from(tok_work *w, int k, str s);

/* Where the pieces of a step end is known one stretch (match, or what lies between matches) late: what is held back joins what comes, or does not. */
typedef struct cutter {
  int next; /* the step that gets the pieces */
  str s;
  size_t held; /* the piece that is not given away yet begins here... */
  size_t end;  /* ...and ends here; equal: none */
  bool held_match;
  tok_cut_how how;
} cutter;

static bool cut_flush(tok_work *w, cutter *c) {
  str piece = {c->s.p + c->held, c->end - c->held};
  c->held = c->end;
  return !piece.n || cut_from(w, c->next, piece);
}

static bool cut_stretch(tok_work *w, cutter *c, size_t from, size_t to, bool match) {
  if (from == to) return true;
  if (match && c->how == TOK_CUT_REMOVED) {
    bool ok = cut_flush(w, c);
    c->held = c->end = to;
    return ok;
  }
  bool some = c->end > c->held;
  bool joins = some && ((c->how == TOK_CUT_CONTIGUOUS && match == c->held_match) || (c->how == TOK_CUT_WITH_PREVIOUS && match && !c->held_match) ||
                           (c->how == TOK_CUT_WITH_NEXT && !match && c->held_match));
  if (!joins && !cut_flush(w, c)) return false;
  c->end = to;
  /* What was joined to is whole: nothing more joins it. */
  c->held_match = joins && c->how != TOK_CUT_CONTIGUOUS ? c->how == TOK_CUT_WITH_PREVIOUS : match;
  return true;
}

static bool cut_fail(tok_work *w, str s, size_t at, int code) {
  if (code == PCRE2_ERROR_NOMEMORY) return err_set(w->e, ERR_NOMEM, "out of memory in the pre-tokenizer at byte %zu of %zu", at, s.n);
  return err_set(w->e, ERR_INTERNAL, "the pre-tokenizer failed at byte %zu of %zu (PCRE2 error %d); please report this text", at, s.n, code);
}

static bool cut_step(tok_work *w, int k, str s) {
  const tok_cut_step *step = &w->t->cut[k];
  cutter c = {.next = k + 1, .s = s, .how = step->how};
  size_t at = 0, from = 0, to = 0;
  int failed = 0;
  while (at < s.n && next_match(w, step->re, s, at, &from, &to, &failed)) {
    if (!cut_stretch(w, &c, at, from, step->invert) || !cut_stretch(w, &c, from, to, !step->invert)) return false;
    at = to;
  }
  if (failed) return cut_fail(w, s, at, failed);
  return cut_stretch(w, &c, at, s.n, step->invert) && cut_flush(w, &c);
}

/* Most families have one cut, and isolate: the loop without the waiting. */
static bool cut_isolated(tok_work *w, int k, str s) {
  const tok_re *re = w->t->cut[k].re;
  size_t at = 0, from = 0, to = 0;
  int failed = 0;
  while (at < s.n && next_match(w, re, s, at, &from, &to, &failed)) {
    if (from > at && !cut_from(w, k + 1, (str){s.p + at, from - at})) return false;
    if (!cut_from(w, k + 1, (str){s.p + from, to - from})) return false;
    at = to;
  }
  if (failed) return cut_fail(w, s, at, failed);
  return at == s.n || cut_from(w, k + 1, (str){s.p + at, s.n - at});
}

/* U+2581 is a blank from here on; one is put in front where the step says so and none is there. Only the last step does this: `meta` is one buffer.
 */
static bool cut_meta(tok_work *w, int k, str s) {
  const tok_cut_step *step = &w->t->cut[k];
  buf *b = &w->meta;
  bool first = w->opening && s.p == w->lead_at;
  buf_clear(b);
  if (!buf_reserve(b, s.n + 1)) return err_set(w->e, ERR_NOMEM, "out of memory for a piece of %zu bytes", s.n);
  if (step->meta == TOK_META_BLANK) {
    if (s.p[0] != ' ') {
      buf_putc(b, ' ');
      buf_str(b, s);
      s = buf_view(b);
    }
  } else {
    bool blank = s.p[0] == ' ' || str_starts(s, STR(TOK_META_CHAR));
    if (!blank && (step->meta == TOK_META_ALWAYS || (step->meta == TOK_META_FIRST && first))) b->p[b->n++] = ' ';
    b->n += tok_form_bytes(TOK_FORM_META, s, b->p + b->n);
    s = buf_view(b);
  }
  return step->re ? cut_step(w, k, s) : cut_from(w, k + 1, s);
}

bool tok_step_replace_re(tok_work *w, const tok_step *s, str in, buf *out, str *ret) {
  size_t at = 0, from = 0, to = 0;
  int failed = 0;
  *ret = in;
  buf_clear(out);
  while (at < in.n && next_match(w, s->re, in, at, &from, &to, &failed)) {
    if (!from) w->opening = false; /* what begins the text is not in it any more */
    buf_put(out, in.p + at, from - at);
    buf_str(out, s->b);
    at = to;
  }
  if (failed) return cut_fail(w, in, at, failed);
  if (!at) return true;
  buf_put(out, in.p + at, in.n - at);
  *ret = buf_view(out);
  return !out->failed;
}

static bool cut_from(tok_work *w, int k, str s) {
  const tok *t = w->t;
  if (k == t->n_cut) {
    if (k) w->unk_end = -1; /* unknowns of two pieces are two */
    return t->model->piece(w, s);
  }
  if (t->cut[k].meta) return cut_meta(w, k, s);
  return t->cut[k].how == TOK_CUT_ISOLATED ? cut_isolated(w, k, s) : cut_step(w, k, s);
}

bool tok_cut(tok_work *w, str text) {
  const tok *t = w->t;
  for (int i = 0; i < t->n_norm; i++) {
    buf *out = &w->norm[text.p == w->norm[0].p]; /* a step that changed nothing left the text where it was */
    if (!t->norm[i].run(w, &t->norm[i], text, out, &text) || out->failed)
      return t->norm[i].re && !out->failed ? false /* it said why */
                                           : err_set(w->e, ERR_NOMEM, "out of memory while normalizing %zu bytes of text", text.n);
  }
  w->lead_at = w->lead ? text.p : NULL;
  return !text.n || cut_from(w, 0, text);
}
