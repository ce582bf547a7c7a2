/* WordPiece (BERT): a word is the longest token that begins it, then the longest that goes on, and so forth; a word that cannot be spelled so is
 * unknown as a whole. Tokens that begin a word stand with a blank before them in the vocabulary, those that go on without. */
#include "model/tok_impl.h"

enum { LONGEST = 400 }; /* bytes of a word of max_chars code points, and the blank */

bool tok_wordpiece_build(tok *t, const tok_src *s, err *e) {
  (void)s;
  if (t->unk < 0) { /* files of this kind do not always name it */
    t->unk = tok_lookup(t, STR("[UNK]"), TOK_CLASS_SPECIAL);
    if (t->unk < 0)
      return err_param(e, ERR_INPUT, "tokenizer.ggml.unknown_token_id", "WordPiece needs an unknown token and the vocabulary names none");
  }
  return true;
}

static bool char_starts(char c) { return ((uint8_t)c & 0xc0) != 0x80; }

bool tok_wordpiece(tok_work *w, str piece) {
  const tok *t = w->t;
  char word[LONGEST + 8];
  size_t n = piece.n + 1, from = 0;
  int chars = 0, before = w->out->n;
  for (size_t i = 0; i < piece.n && chars <= t->max_chars; i++) chars += char_starts(piece.p[i]);
  if (chars > t->max_chars || n > sizeof word) return tok_put(w, t->unk);
  word[0] = ' ';
  memcpy(word + 1, piece.p, piece.n);
  while (from < n) {
    size_t to = n;
    int32_t id = -1;
    for (; to > from + (from == 0); to--) {
      if (to < n && !char_starts(word[to])) continue;
      if ((id = tok_lookup(t, (str){word + from, to - from}, TOK_CLASS_NORMAL)) >= 0) break;
    }
    if (id < 0) {
      w->out->n = before;
      return tok_put(w, t->unk);
    }
    if (!tok_put(w, id)) return false;
    from = to;
  }
  return true;
}
