/* How fast the tokenizer is: opening a vocabulary, English-like text, code, other scripts, and the worst cases at two sizes (a ratio near 1 per byte
 * is linear). One thread. Best of several runs: the machine may be shared.
 *
 *   bench_tok MODEL.gguf [FILE]     FILE: text of your own, measured too */
#include "base/clock.h"
#include "base/rng.h"
#include "model/gguf.h"
#include "model/tok.h"
#include <stdio.h>
#include <stdlib.h>

enum { RUNS = 5 };

/* Words by falling frequency, as English has them; drawn by Zipf's law. */
static const char english[] = "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one "
                              "you were her all she there would their we him been has "
                              "when who will more no if out so said what up its about into than them can only other new some could time these two "
                              "may then do first any my now such like our over man me even most "
                              "made after also did many before must through back years where much your way well down should because each just those "
                              "people how too little state good very make world still own see men "
                              "work long get here between both life being under never day same another know while last might us great old year off "
                              "come since against go came right used take three house government "
                              "machine learning inference latency throughput engineering measurement accountability configuration token model "
                              "request scheduler bandwidth Monday London Elizabeth unfortunately "
                              "independent organisation characteristic misunderstanding photosynthesis bureaucratic unprecedented rhythm quotient";

typedef struct text {
  char *p;
  size_t n;
} text;

static text make_english(size_t n) {
  const char *words[512];
  int n_words = 0;
  char *list = strdup(english);
  for (char *save, *w = strtok_r(list, " ", &save); w && n_words < 512; w = strtok_r(NULL, " ", &save)) words[n_words++] = w;
  text t = {malloc(n + 64), 0};
  rng r = rng_new(3);
  bool start = true;
  while (t.n < n) {
    int k = (int)((double)n_words * rng_f64(&r) * rng_f64(&r)); /* denser towards the frequent words */
    size_t at = t.n;
    t.n += (size_t)snprintf(t.p + t.n, 64, "%s%s", words[k], rng_below(&r, 60) == 0 ? "'s" : "");
    if (start && t.p[at] >= 'a') t.p[at] = (char)(t.p[at] - 32);
    uint64_t end = rng_below(&r, 100);
    start = end < 7;
    const char *sep = end < 1 ? ".\n\n" : end < 6 ? ". " : end < 7 ? "? " : end < 14 ? ", " : end < 15 ? " 1984 " : end < 16 ? " (see 4.2) " : " ";
    t.n += (size_t)snprintf(t.p + t.n, 64, "%s", sep);
  }
  free(list);
  return t;
}

static text repeat(const char *unit, size_t n) {
  text t = {malloc(n), n};
  size_t len = strlen(unit);
  for (size_t i = 0; i < n; i++) t.p[i] = unit[i % len];
  return t;
}

static double best_ms(const tok *t, text in, int *ret_ids) {
  double best = 1e18;
  for (int i = 0; i < RUNS; i++) {
    tok_ids ids = {0};
    err e = {0};
    int64_t start = clock_now();
    if (!tok_encode(t, (str){in.p, in.n}, NULL, true, false, &ids, &e)) {
      fprintf(stderr, "%s\n", e.msg);
      exit(1);
    }
    double ms = clock_ms(clock_now() - start);
    if (ms < best) best = ms;
    *ret_ids = ids.n;
    free(ids.v);
  }
  return best;
}

static void row(const tok *t, const char *name, text in) {
  int ids = 0;
  double ms = best_ms(t, in, &ids);
  printf("%-28s %9zu bytes %9.2f ms %8.1f MB/s %6.2f bytes/token\n", name, in.n, ms, (double)in.n / 1e3 / ms, ids ? (double)in.n / ids : 0.0);
  free(in.p);
}

static void worst(const tok *t, const char *name, const char *unit) {
  int ids = 0;
  text small = repeat(unit, 250000), large = repeat(unit, 1000000);
  double a = best_ms(t, small, &ids), b = best_ms(t, large, &ids);
  printf("%-28s %9zu bytes %9.2f ms %8.1f MB/s   per byte %.2f x that of 250 kB\n", name, large.n, b, (double)large.n / 1e3 / b, b / a / 4);
  free(small.p);
  free(large.p);
}

static text read_file(const char *path) {
  text t = {malloc(64 << 20), 0};
  FILE *f = fopen(path, "rb");
  if (!f || !t.p) {
    fprintf(stderr, "bench_tok: cannot read %s\n", path);
    exit(1);
  }
  t.n = fread(t.p, 1, 64 << 20, f);
  fclose(f);
  return t;
}

int main(int argc, char **argv) {
  mfile *g = NULL;
  tok *t = NULL;
  err e = {0};
  double first = 0, best = 1e18;
  if (argc < 2 || !gguf_open(argv[1], &g, &e)) {
    fprintf(stderr, "%s\n", argc < 2 ? "usage: bench_tok MODEL.gguf [FILE]" : e.msg);
    return argc < 2 ? 2 : 1;
  }
  for (int i = 0; i < RUNS; i++) {
    tok_free(t);
    int64_t start = clock_now();
    if (!tok_from_gguf(g, &t, &e)) {
      fprintf(stderr, "%s\n", e.msg);
      return 1;
    }
    double ms = clock_ms(clock_now() - start);
    if (!i) first = ms;
    if (ms < best) best = ms;
  }
  printf("opening %d tokens: %.1f ms the first time, %.1f ms at best\n", tok_count(t), first, best);
  row(t, "English-like", make_english(4000000));
  row(t, "English-like, one message", make_english(400));
  row(t, "code-like",
      repeat("static int find_node(struct tree *t, const char *key) {\n  if (!t->root) return -1;\n  for (int i = 0; i < t->n; i++)\n    t->sum[i] "
             "+= 0x1F;\n}\n\n",
          1000000));
  row(t, "Chinese-like",
      repeat("\xe6\xa8\xa1\xe5\x9e\x8b\xe5\xbe\x88\xe5\xbf\xab\xef\xbc\x8c\xe4\xbd\x86\xe6\x98\xaf\xe5\xbe\x88\xe8\xb4\xb5\xe3\x80\x82", 1000000));
  row(t, "Russian-like",
      repeat("\xd0\xbc\xd0\xbe\xd0\xb4\xd0\xb5\xd0\xbb\xd1\x8c \xd0\xbe\xd1\x87\xd0\xb5\xd0\xbd\xd1\x8c "
             "\xd0\xb1\xd1\x8b\xd1\x81\xd1\x82\xd1\x80\xd0\xb0\xd1\x8f, ",
          1000000));
  if (argc > 2) row(t, argv[2], read_file(argv[2]));
  worst(t, "one letter", "a");
  worst(t, "blanks", " ");
  worst(t, "newlines", "\n");
  worst(t, "one digit", "1");
  worst(t, "dashes", "-");
  worst(t, "control-token look-alike", "<|im_star");
  worst(t, "control-token prefix", "<|endoftext|");
  worst(t, "marks in falling order", "\xcc\x81\xcc\xa3");
  worst(t, "bytes that are no UTF-8", "\xff");
  tok_free(t);
  mf_close(g);
  return 0;
}
