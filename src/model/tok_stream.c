/* Ids back to text: the bytes of one token, and the stream that hands out whole code points only.
 * A token may end in the middle of a code point; what has come so far waits in `pend` (at most three bytes) for the rest. Bytes that cannot become
 * one turn into U+FFFD, one for each maximal part of a well-formed sequence (Unicode Standard 3.9, the practice of the web and of Python's
 * "replace"). */
#include "model/tok_impl.h"

#define FFFD "\xef\xbf\xbd"

str tok_piece(const tok *t, int32_t id, bool special, char *scratch) {
  (void)scratch;
  if (id < 0 || id >= t->n) return (str){"", 0};
  if (!special && (t->types[id] == TOK_CONTROL || t->types[id] == TOK_UNKNOWN)) return (str){"", 0};
  return tok_text(t, id);
}

void tok_stream_init(tok_stream *s, bool special) { *s = (tok_stream){.special = special}; }
void tok_stream_init_whole(tok_stream *s, bool special) { *s = (tok_stream){.special = special, .opening = true}; }

static void push_byte(tok_stream *s, char c, buf *out) {
  int need = 0;
  s->pend[s->n++] = c;
  if (utf8_valid_prefix((str){s->pend, (size_t)s->n}, &need) == (size_t)s->n) {
    buf_put(out, s->pend, (size_t)s->n);
    s->n = 0;
  } else if (!need) {
    /* c broke the sequence: what stood before it is lost, c itself may begin anew or be lost alone. */
    bool alone = s->n == 1;
    buf_puts(out, FFFD);
    s->n = 0;
    if (!alone) push_byte(s, c, out);
  }
}

bool tok_stream_push(const tok *t, tok_stream *s, int32_t id, buf *out) {
  char scratch[8];
  str p = tok_piece(t, id, s->special, scratch);
  if (s->opening && p.n && tok_type(t, id) != TOK_CONTROL) {
    if (t->strip && p.p[0] == ' ') p = (str){p.p + 1, p.n - 1};
    s->opening = false;
  }
  while (p.n) {
    size_t whole = s->n ? 0 : utf8_valid_prefix(p, NULL);
    if (whole) buf_put(out, p.p, whole);
    else push_byte(s, p.p[0], out);
    size_t k = whole ? whole : 1;
    p.p += k;
    p.n -= k;
  }
  return !out->failed;
}

bool tok_stream_end(tok_stream *s, buf *out) {
  if (s->n) buf_puts(out, FFFD);
  s->n = 0;
  return !out->failed;
}
