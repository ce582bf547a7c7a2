/* SentencePiece: its normalizer, its compiled table of replacements, and BPE by scores.
 *
 * A blank is written U+2581 in its vocabularies; here both are a blank, so that text need not be rewritten when it holds neither.
 * Merging is tok_bpe.c's. That library looks at a whole text at once; here it is cut before each blank that no token of the vocabulary could have
 * behind the byte that stands before it, which changes nothing and makes most pieces a word that is a token. */
#include "model/tok_impl.h"
#include <math.h>
#include <stdlib.h>
#include <utf8proc.h>

/* --- the table: uint32 bytes of a trie, the trie (a double array of 32-bit units), strings that end in NUL. Everything little endian. --- */

static uint32_t get32(const char *p) {
  const uint8_t *u = (const uint8_t *)p;
  return (uint32_t)u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
}

bool tok_charsmap_check(str table, const char *where, err *e) {
  size_t trie = table.n >= 4 ? get32(table.p) : 0;
  if (!trie || trie % 4 || trie > table.n - 4 || trie == table.n - 4 || table.p[table.n - 1] != 0)
    return err_param(e, ERR_INPUT, where, "%s: %zu bytes that are no table of replacements: its trie would have %zu bytes", where, table.n, trie);
  return true;
}

/* The replacement of a prefix of s, the longest or the first one met; false: there is none. Units that point outside the table end the search. */
static bool charsmap_find(str table, str s, bool longest, str *ret, size_t *ret_len) {
  const char *units = table.p + 4;
  uint32_t n_units = get32(table.p) / 4;
  str texts = {units + (size_t)n_units * 4, table.n - 4 - (size_t)n_units * 4};
  bool found = false;
#define UNIT(i) get32(units + (size_t)(i)*4)
#define OFFSET(u) (((u) >> 10) << (((u)&1u << 9) >> 6))
  uint32_t at = 0, unit = UNIT(0);
  at ^= OFFSET(unit);
  for (size_t i = 0; i < s.n; i++) {
    at ^= (uint8_t)s.p[i];
    if (at >= n_units) break;
    unit = UNIT(at);
    if ((unit & (1u << 31 | 0xff)) != (uint8_t)s.p[i]) break;
    at ^= OFFSET(unit);
    if (at >= n_units) break;
    if (!(unit >> 8 & 1)) continue;
    uint32_t text = UNIT(at) & 0x7fffffff;
    if (text >= texts.n) break;
    *ret = (str){texts.p + text, strlen(texts.p + text)}; /* the table ends in NUL */
    *ret_len = i + 1;
    found = true;
    if (!longest) break;
  }
#undef UNIT
#undef OFFSET
  return found;
}

static size_t char_len(str s) {
  uint32_t cp;
  int n = utf8_decode(s.p, s.n, &cp);
  return n ? (size_t)n : 1;
}

/* As the tokenizers library does it: a cluster of characters below 6 bytes is looked up first, and its shortest prefix that has a replacement stands
 * for all of it. */
bool tok_step_charsmap(tok_work *w, const tok_step *s, str in, buf *out, str *ret) {
  (void)w;
  buf_clear(out);
  for (size_t i = 0, len; i < in.n; i += len) {
    utf8proc_int32_t state = 0;
    uint32_t a = 0, b = 0;
    len = (size_t)utf8_decode(in.p + i, in.n - i, &a);
    for (size_t k; i + len < in.n; len += k, a = b) {
      k = (size_t)utf8_decode(in.p + i + len, in.n - i - len, &b);
      if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)a, (utf8proc_int32_t)b, &state)) break;
    }
    str cluster = {in.p + i, len}, to;
    size_t used;
    if (len < 6 && charsmap_find(s->a, cluster, false, &to, &used)) {
      buf_str(out, to);
      continue;
    }
    for (size_t k = 0, n; k < len; k += n) {
      n = char_len((str){cluster.p + k, len - k});
      str one = {cluster.p + k, n};
      buf_str(out, charsmap_find(s->a, one, false, &to, &used) ? to : one);
    }
  }
  *ret = buf_view(out);
  return !out->failed;
}

/* --- the normalizer --- */

/* What the next bytes become, and how many they are. */
static str next_normal(const tok *t, const tok_step *s, str in, size_t *ret_len) {
  str to;
  if (!s->a.n) { /* no table: as long a stretch as needs no look */
    size_t n = 0;
    while (n < in.n && in.p[n] != ' ' && in.p[n] != TOK_META_CHAR[0]) n++;
    if (n) return (*ret_len = n, (str){in.p, n});
    bool meta = str_starts(in, STR(TOK_META_CHAR));
    *ret_len = meta ? 3 : in.p[0] == ' ' ? 1 : char_len(in);
    return meta || in.p[0] == ' ' ? STR(" ") : (str){in.p, *ret_len};
  }
  if (t->user.first[(uint8_t)in.p[0]] && in.p[0] != ' ' && tok_set_at(t, &t->user, in, 0, NULL, true, ret_len) >= 0) return (str){in.p, *ret_len};
  if (charsmap_find(s->a, in, true, &to, ret_len)) return to;
  *ret_len = char_len(in);
  return str_starts(in, STR(TOK_META_CHAR)) ? STR(" ") : (str){in.p, *ret_len};
}

bool tok_step_spm(tok_work *w, const tok_step *s, str in, buf *out, str *ret) {
  bool squeeze = s->flags & TOK_SPM_SQUEEZE, blank = squeeze, any = false;
  buf_clear(out);
  if (!buf_reserve(out, in.n + 1)) return false;
  for (size_t len; in.n; in = (str){in.p + len, in.n - len}) {
    str to = next_normal(w->t, s, in, &len);
    while (blank && to.n && to.p[0] == ' ') to = (str){to.p + 1, to.n - 1};
    if (!to.n) continue;
    if (!any && w->lead && s->flags & TOK_SPM_PREFIX) buf_putc(out, ' ');
    any = true;
    buf_str(out, to);
    blank = squeeze && to.p[to.n - 1] == ' ';
  }
  while (squeeze && out->n && out->p[out->n - 1] == ' ') out->n--;
  *ret = buf_view(out);
  return !out->failed;
}

/* --- the model --- */

/* Floats in falling order are numbers in rising order, equal ones equal: no sorting. */
static uint32_t rank_of(float score) {
  uint32_t u;
  score += 0.0f; /* -0 is 0 */
  memcpy(&u, &score, 4);
  u = u >> 31 ? ~u : u | 1u << 31;
  return ~u;
}

bool tok_spm_build(tok *t, const tok_src *s, err *e) {
  if (!(t->order = malloc((size_t)t->n * sizeof *t->order))) return err_set(e, ERR_NOMEM, "out of memory for the scores of %d tokens", t->n);
  for (int i = 0; i < t->n; i++) {
    if (isnan(s->scores[i])) return err_param(e, ERR_INPUT, "tokenizer.ggml.scores", "the score of token %d is no number", i);
    t->order[i] = t->types[i] == TOK_NORMAL && !isinf(s->scores[i]) ? rank_of(s->scores[i]) : UINT32_MAX;
  }
  return true;
}

static bool spm_words(tok_work *w, str s) {
  size_t from = 0;
  for (size_t i = 1; i < s.n; i++) {
    if (s.p[i] != ' ' || s.p[i - 1] == ' ' || !w->t->splits[(uint8_t)s.p[i - 1]]) continue;
    if (!tok_bpe(w, (str){s.p + from, i - from})) return false;
    from = i;
  }
  return from == s.n || tok_bpe(w, (str){s.p + from, s.n - from});
}

/* User-defined symbols are found first, from left to right, the longest at each place; nothing merges with them. */
bool tok_spm(tok_work *w, str piece) {
  const tok *t = w->t;
  size_t from = 0, len;
  for (size_t i = 0; i < piece.n;) {
    int32_t id = t->user.first[(uint8_t)piece.p[i]] ? tok_set_at(t, &t->user, piece, i, NULL, true, &len) : -1;
    if (id < 0) {
      i++;
      continue;
    }
    if (i > from && !spm_words(w, (str){piece.p + from, i - from})) return false;
    if (!tok_put(w, id)) return false;
    from = i += len;
  }
  return from == piece.n || spm_words(w, (str){piece.p + from, piece.n - from});
}
