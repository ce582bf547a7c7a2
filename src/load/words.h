/* words.h - synthetic prompts of a wanted length in tokens, unique by seed and number.
 * Not a tokenizer: length is calibrated against the server's own count (usage) of two probe prompts, so it holds for whatever model is behind the
 * URL. Ownership: text is written to the caller's buffer. Threads: pure functions. Failure: none. */
#ifndef LOAD_WORDS_H
#define LOAD_WORDS_H
#include "base/buf.h"
#include <stdint.h>

/* tokens(words) = fixed + per_word * words */
typedef struct words_fit {
  double fixed, per_word;
} words_fit;

void words_prompt(buf *b, uint64_t seed, uint64_t number, int n_words);
words_fit words_calibrate(int words_a, int64_t tokens_a, int words_b, int64_t tokens_b);
int words_for(words_fit f, int64_t tokens); /* words for that many tokens, >= 1 */
#endif
