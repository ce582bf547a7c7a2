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

#define WS "\\t-\\r\\x{85}\\p{Z}" /* inside a class */
#define TAIL "|[" WS "]+(?![^" WS "])|[" WS "]+"
#define GPT4_LIKE(digits)                                                                                                                            \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+" TAIL

static const tok_pre rows[] = {
    {.names = "gpt2 gpt-2 default", .regex = "'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+" TAIL},
    /* Digits(individual), then gpt2 on what lies between them. Folded into one expression: a digit stands alone, and white space before a digit ends
     * where a stretch ended in the two-stage form, so it does not leave its last blank behind ("x  12" is x, two blanks, 1, 2). */
    {.names = "smollm", .regex = "'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS "\\p{N}])|[" WS "]+"},
    {.names = "qwen2 deepseek-r1-qwen", .regex = GPT4_LIKE("\\p{N}"), .nfc = true},
    {.names = "llama-bpe llama3 llama-v3", .regex = GPT4_LIKE("\\p{N}{1,3}"), .whole_first = true, .bos_default = true},
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

struct tok_re {
  pcre2_code *code;
  pcre2_match_context *patient; /* no limit on steps: for the interpreter, whose default limit a run of 10 MB would meet */
  bool jit;
};

bool tok_re_new(const tok_pre *row, tok_re **ret, err *e) {
  int code = 0;
  PCRE2_SIZE at = 0;
  tok_re *re = calloc(1, sizeof *re);
  if (!re) return err_set(e, ERR_NOMEM, "out of memory for the pre-tokenizer");
  re->code = pcre2_compile((PCRE2_SPTR)row->regex, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &code, &at, NULL);
  re->patient = pcre2_match_context_create(NULL);
  if (!re->code || !re->patient) {
    tok_re_free(re);
    return err_set(e, ERR_INTERNAL, "the pre-tokenizer \"%s\" does not compile: PCRE2 error %d at %zu (PCRE2 must be built with Unicode)", row->names,
        code, (size_t)at);
  }
  pcre2_set_match_limit(re->patient, UINT32_MAX);
  pcre2_set_depth_limit(re->patient, UINT32_MAX);
  pcre2_set_heap_limit(re->patient, UINT32_MAX);
  re->jit = pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) == 0; /* hardened kernels refuse executable memory: then interpreted */
  *ret = re;
  return true;
}

void tok_re_free(tok_re *re) {
  if (!re) return;
  pcre2_match_context_free(re->patient);
  pcre2_code_free(re->code);
  free(re);
}

bool tok_work_init(tok_work *w, const tok *t, tok_ids *out, err *e) {
  *w = (tok_work){.t = t, .out = out, .e = e, .match = pcre2_match_data_create(1, NULL)};
  buf_init(&w->norm, SIZE_MAX / 4);
  return w->match || err_set(e, ERR_NOMEM, "out of memory for a tokenizer's scratch");
}

void tok_work_fini(tok_work *w) {
  pcre2_match_data_free(w->match);
  buf_fini(&w->norm);
  free(w->sym);
  free(w->link);
  free(w->heap);
}

/* The next match at or after `at`; false with *failed on trouble, false alone when nothing more matches. The text was checked to be UTF-8 once by the
 * caller: checking at every match would make the whole quadratic. What the JIT cannot do (its stack) the interpreter does; it uses the heap. */
static bool next_match(const tok_work *w, str text, size_t at, size_t *ret_from, size_t *ret_to, int *failed) {
  const tok_re *re = w->t->re;
  int rc = PCRE2_ERROR_JIT_STACKLIMIT;
  if (re->jit) rc = pcre2_jit_match(re->code, (PCRE2_SPTR)text.p, text.n, at, PCRE2_NOTEMPTY, w->match, NULL);
  if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
    rc = pcre2_match(re->code, (PCRE2_SPTR)text.p, text.n, at, PCRE2_NOTEMPTY | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w->match, re->patient);
  *failed = rc < 0 && rc != PCRE2_ERROR_NOMATCH ? rc : 0;
  if (rc < 0) return false;
  const PCRE2_SIZE *o = pcre2_get_ovector_pointer(w->match);
  *ret_from = o[0];
  *ret_to = o[1];
  return true;
}

bool tok_cut(tok_work *w, str text) {
  if (w->t->pre->nfc && !tok_nfc(text, &w->norm, &text)) return err_set(w->e, ERR_NOMEM, "out of memory while normalizing %zu bytes of text", text.n);
  size_t at = 0, from = 0, to = 0;
  int failed = 0;
  while (at < text.n && next_match(w, text, at, &from, &to, &failed)) {
    if (from > at && !tok_bpe(w, (str){text.p + at, from - at})) return false;
    if (!tok_bpe(w, (str){text.p + from, to - from})) return false;
    at = to;
  }
  if (failed)
    return err_set(w->e, ERR_INTERNAL, "the pre-tokenizer failed at byte %zu of %zu (PCRE2 error %d); please report this text", at, text.n, failed);
  return at == text.n || tok_bpe(w, (str){text.p + at, text.n - at});
}
