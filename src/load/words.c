#include "load/words.h"
#include "base/rng.h"
#include <math.h>

/* Common English words: one token each in nearly every vocabulary, and no two prompts share more than chance does. */
static const char *const words[] = {"the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not", "he",
    "his", "but", "at", "are", "this", "have", "from", "or", "had", "an", "they", "which", "one", "you", "were", "all", "her", "she", "there",
    "would", "their", "we", "him", "been", "has", "when", "who", "will", "no", "more", "if", "out", "so", "up", "said", "what", "its", "about",
    "than", "into", "them", "can", "only", "other", "time", "new", "some", "could", "these", "two", "may", "first", "then", "do", "any", "like", "my",
    "now", "over", "such", "our", "man", "me", "even", "most", "made", "after", "also", "well", "many", "must", "before", "years", "where", "much",
    "your", "way", "down", "should", "because", "long", "each", "just", "state", "people", "those", "too", "world", "good", "very", "life", "still",
    "own", "work", "here", "between", "both", "under", "last", "never", "day", "same", "another", "know", "while", "might", "us", "great", "old",
    "year", "off", "come", "since", "against", "go", "came", "right", "used", "take", "three", "house", "use", "again", "place", "high", "water",
    "part", "small", "large", "hand", "city", "line", "name", "group", "number", "point", "room"};

void words_prompt(buf *b, uint64_t seed, uint64_t number, int n_words) {
  rng r = rng_new(seed ^ number * 0x9E3779B97F4A7C15u);
  for (int i = 0; i < n_words; i++) {
    if (i) buf_putc(b, ' ');
    buf_puts(b, words[rng_below(&r, sizeof words / sizeof *words)]);
  }
}

words_fit words_calibrate(int words_a, int64_t tokens_a, int words_b, int64_t tokens_b) {
  double per = words_b != words_a ? (double)(tokens_b - tokens_a) / (words_b - words_a) : 1;
  if (!(per > 0.2)) per = 1;
  return (words_fit){(double)tokens_a - per * words_a, per};
}

int words_for(words_fit f, int64_t tokens) {
  double w = round(((double)tokens - f.fixed) / f.per_word);
  return w < 1 ? 1 : w > 1e7 ? 10000000 : (int)w;
}
