/* The walk of a text: from control token to control token, from one valid stretch of UTF-8 to the next, and what is put around the whole. */
#include "model/tok_impl.h"
#include <stdlib.h>

static const size_t MAX_TEXT = (size_t)1 << 30;

bool tok_put(tok_work *w, int32_t id) {
  tok_ids *o = w->out;
  if (o->n == o->cap) {
    int cap = o->cap < 1 << 29 ? o->cap * 2 + 64 : INT32_MAX;
    int32_t *v = o->n < cap ? realloc(o->v, (size_t)cap * sizeof *v) : NULL;
    if (!v) return err_set(w->e, ERR_NOMEM, "out of memory for %d token ids", cap);
    o->v = v;
    o->cap = cap;
  }
  o->v[o->n++] = id;
  return true;
}

/* All of the bytes or none: half a character as bytes would be worse than an unknown. */
bool tok_put_unknown(tok_work *w, str text) {
  const tok *t = w->t;
  bool bytes = true;
  for (size_t i = 0; i < text.n; i++) bytes = bytes && t->byte_id[(uint8_t)text.p[i]] >= 0;
  for (size_t i = 0; bytes && i < text.n; i++)
    if (!tok_put(w, t->byte_id[(uint8_t)text.p[i]])) return false;
  if (bytes || t->unk < 0 || (t->fuse_unk && w->unk_end == w->out->n)) return true;
  if (!tok_put(w, t->unk)) return false;
  w->unk_end = w->out->n;
  return true;
}

/* Bytes that are no UTF-8. Byte-level merges take them as they take all bytes. */
static bool encode_bad(tok_work *w, str s) {
  if (w->t->form == TOK_FORM_BYTES) return w->t->model->piece(w, s);
  for (size_t i = 0; i < s.n; i++)
    if (!tok_put_unknown(w, (str){s.p + i, 1})) return false;
  return true;
}

/* Text without control tokens. Only valid UTF-8 goes through normal forms and cuts: a stretch of other bytes ends what stands before it and is a
 * piece itself. */
static bool encode_plain(tok_work *w, str s, bool opening) {
  w->unk_end = -1;
  w->opening = opening;
  w->lead = true;
  while (s.n) {
    uint32_t cp;
    size_t n = utf8_valid_prefix(s, NULL);
    if (n && !tok_cut(w, (str){s.p, n})) return false;
    w->lead = w->opening = false;
    size_t bad = n;
    while (bad < s.n && !utf8_decode(s.p + bad, s.n - bad, &cp)) bad++;
    if (bad > n && !encode_bad(w, (str){s.p + n, bad - n})) return false;
    s = (str){s.p + bad, s.n - bad};
  }
  return true;
}

static size_t white_behind(str s, size_t at) {
  uint32_t cp;
  for (int n; at < s.n && (n = utf8_decode(s.p + at, s.n - at, &cp)) && tok_is_white(cp); at += (size_t)n) {}
  return at;
}

static size_t white_before(str s, size_t from, size_t at) {
  while (at > from) {
    size_t k = at - 1;
    uint32_t cp;
    while (k > from && at - k < 4 && ((uint8_t)s.p[k] & 0xc0) == 0x80) k--;
    if (utf8_decode(s.p + k, at - k, &cp) != (int)(at - k) || !tok_is_white(cp)) break;
    at = k;
  }
  return at;
}

static bool encode_all(tok_work *w, str text, const uint8_t *trust, bool parse_special) {
  const tok *t = w->t;
  size_t from = 0, len = 0;
  /* Where user-defined tokens are words of a text they are looked for in any; a trust of nothing leaves those alone. */
  for (size_t i = 0; (parse_special || (t->words && !t->late_user)) && i < text.n;) {
    int32_t id = t->special.first[(uint8_t)text.p[i]] ? tok_set_at(t, &t->special, text, i, trust, parse_special, &len) : -1;
    if (id < 0) {
      i++;
      continue;
    }
    int eats = t->eats ? t->eats[id] : 0;
    size_t to = eats & TOK_EATS_LEFT ? white_before(text, from, i) : i;
    if (!encode_plain(w, (str){text.p + from, to - from}, from == 0) || !tok_put(w, id)) return false;
    i += len;
    if (eats & TOK_EATS_RIGHT) i = white_behind(text, i);
    from = i;
  }
  return encode_plain(w, (str){text.p + from, text.n - from}, from == 0);
}

/* BOS goes to the very front, unless it stands there already: a template that writes it itself must not double it. */
static bool put_first(tok_work *w) {
  tok_ids *o = w->out;
  int first = w->t->first;
  if (first < 0 || (o->n && o->v[0] == first)) return true;
  if (!tok_put(w, 0)) return false;
  memmove(o->v + 1, o->v, (size_t)(o->n - 1) * sizeof *o->v);
  o->v[0] = first;
  return true;
}

bool tok_encode(const tok *t, str text, const uint8_t *trust, bool parse_special, bool add_special, tok_ids *ids, err *e) {
  if (text.n > MAX_TEXT) return err_set(e, ERR_TOO_LARGE, "a text of %zu bytes is over the tokenizer's bound of %zu", text.n, MAX_TEXT);
  tok_work w;
  int before = ids->n;
  bool ok = tok_work_init(&w, t, ids, e) && encode_all(&w, text, trust, parse_special);
  if (ok && add_special && before == 0) ok = put_first(&w);
  if (ok && add_special && t->last >= 0 && (!ids->n || ids->v[ids->n - 1] != t->last)) ok = tok_put(&w, t->last);
  if (!ok) ids->n = before;
  tok_work_fini(&w);
  return ok;
}
