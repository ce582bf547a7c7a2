/* Tokens to text: random tokens, code points cut between tokens, stop strings of every kind, against a search over the whole text. What is given out
 * never holds a byte that the answer does not have, and never lags by more than a stop string could need. */
#include "eng_fixture.h"
#include "base/rng.h"
#include "engine/seq.h"
#include <math.h>

enum { OUT_MAX = 60, TOPS = 3 };

static model *m;
static kv_pool pages;
static rng dice;
static int below(int n) { return (int)rng_below(&dice, (uint64_t)n); }

typedef struct heard {
  buf text;
  int32_t token[OUT_MAX];
  float logprob[OUT_MAX];
  int n_tok, n_done;
  eng_finish finish;
  char stop[64];
  bool tops_ok;
} heard;

static float logprob_of(int i) { return -0.5f * (float)(i + 1); }

static void on_event(void *ctx, const eng_event *ev) {
  heard *h = ctx;
  assert_int_equal(h->n_done, 0);
  if (ev->kind == ENG_TEXT) {
    assert_true(ev->text.n || ev->n_tokens);
    assert_true(utf8_valid(ev->text));
    buf_str(&h->text, ev->text);
    for (int i = 0; i < ev->n_tokens; i++) {
      const eng_token *t = &ev->tokens[i];
      h->token[h->n_tok] = t->token;
      h->logprob[h->n_tok] = t->logprob;
      for (int k = 0; k < t->n_top; k++) h->tops_ok &= t->top[k].token == h->n_tok * TOPS + k;
      h->tops_ok &= t->n_top == TOPS;
      h->n_tok++;
    }
  } else {
    h->n_done++;
    h->finish = ev->finish;
    snprintf(h->stop, sizeof h->stop, "%s", ev->stats->stop_text ? ev->stats->stop_text : "");
  }
}

/* What the answer must be, from the tokens that were drawn. */
typedef struct answer {
  char text[4096];
  size_t n;
  bool stopped;
  const char *which;
  int drawn;
} answer;

static ptrdiff_t last_start(const buf *b, size_t from, str st) { /* first occurrence that ends after `from` */
  for (size_t at = 0; at + st.n <= b->n; at++)
    if (at + st.n > from && !memcmp(b->p + at, st.p, st.n)) return (ptrdiff_t)at;
  return -1;
}

static answer want_of(const eng_req *q, const int32_t *token, int n) {
  answer a = {.drawn = n};
  buf all;
  tok_stream det;
  buf_init(&all, sizeof a.text);
  tok_stream_init(&det, q->keep_special);
  for (int i = 0; i < n && !a.stopped; i++) {
    size_t before = all.n, cut = 0;
    ptrdiff_t best = -1;
    tok_stream_push(m->tok, &det, token[i], &all);
    for (int k = 0; i + 1 >= q->min_tokens && k < q->n_stop; k++) {
      ptrdiff_t at = last_start(&all, before, q->stop[k]);
      if (at < 0 || (best >= 0 && at >= best)) continue;
      best = at;
      a.which = q->stop[k].p;
      cut = (size_t)at + (q->include_stop ? q->stop[k].n : 0);
    }
    if (best < 0) continue;
    a.stopped = true;
    a.drawn = i + 1;
    all.n = cut;
    det.n = 0;
  }
  if (!a.stopped) tok_stream_end(&det, &all);
  memcpy(a.text, all.p ? all.p : "", all.n);
  a.n = all.n;
  buf_fini(&all);
  return a;
}

/* Runs the tokens through a seq. `lag`: the longest stop string less one. */
static void check(eng_req q, const int32_t *token, int n) {
  heard h = {.tops_ok = true};
  buf_init(&h.text, 1 << 16);
  answer a = want_of(&q, token, n);
  size_t lag = 0;
  for (int i = 0; i < q.n_stop; i++) lag = q.stop[i].n - 1 > lag ? q.stop[i].n - 1 : lag;
  static const int32_t prompt[] = {1, 2};
  q.tokens = prompt, q.n_tokens = 2, q.max_tokens = n, q.on_event = on_event, q.ctx = &h, q.top_logprobs = TOPS;
  seq *s;
  err e;
  if (!seq_new(&q, m, &pages, 100, &s, &e)) fail_msg("%s", e.msg);
  buf all;
  tok_stream det;
  buf_init(&all, 1 << 16);
  tok_stream_init(&det, q.keep_special);
  bool done = false;
  int i = 0;
  for (; i < n && !done; i++) {
    eng_lp top[TOPS];
    for (int k = 0; k < TOPS; k++) top[k] = (eng_lp){i * TOPS + k, 0};
    eng_finish f;
    s->tok[s->n_tok++] = token[i];
    done = out_token(s, m, token[i], &(out_lp){logprob_of(i), top, TOPS}, &f);
    tok_stream_push(m->tok, &det, token[i], &all);
    assert_true(h.text.n <= a.n && !memcmp(h.text.p ? h.text.p : "", a.text, h.text.n)); /* nothing leaked */
    if (!done) assert_true(h.text.n + lag >= all.n);                                     /* nothing held for long */
    if (done) out_done(s, f, NULL);
  }
  assert_true(done);
  assert_int_equal(i, a.drawn);
  assert_int_equal(h.finish, a.stopped ? ENG_STOP : ENG_LENGTH);
  assert_string_equal(h.stop, a.which ? a.which : "");
  assert_int_equal(h.text.n, a.n);
  assert_memory_equal(h.text.p ? h.text.p : "", a.text, a.n);
  assert_int_equal(h.n_tok, a.drawn); /* every token reported, once, in order, with its own alternatives */
  for (int k = 0; k < h.n_tok; k++) {
    assert_int_equal(h.token[k], token[k]);
    assert_true(h.logprob[k] == logprob_of(k));
  }
  assert_true(h.tops_ok);
  assert_int_equal(h.n_done, 1);
  buf_fini(&all);
  buf_fini(&h.text);
  eng_ticket_free(s->ticket);
  seq_free(s);
}

static int32_t id(const char *text) {
  int32_t t = tok_find(m->tok, str_c(text));
  if (t < 0) fail_msg("no token for '%s'", text);
  return t;
}

static int32_t byte_id(unsigned char c) {
  char scratch[8];
  for (int32_t t = 0; t < tok_count(m->tok); t++) {
    str p = tok_piece(m->tok, t, true, scratch);
    if (p.n == 1 && (unsigned char)p.p[0] == c) return t;
  }
  fail_msg("no token for byte %d", c);
  return -1;
}

static eng_req plain(void) {
  eng_req q = {.prompt_logprobs = -1, .ignore_eos = true, .keep_special = true};
  eng_sampling_default(&q.s, NULL);
  return q;
}

static void check_text(const char *text, const str *stop, int n_stop, bool include) {
  int32_t v[OUT_MAX];
  int n = 0;
  for (const char *p = text; *p; p++) v[n++] = byte_id((unsigned char)*p);
  eng_req q = plain();
  q.stop = stop, q.n_stop = n_stop, q.include_stop = include;
  check(q, v, n);
}

static void test_named(void **st) {
  (void)st;
  for (int include = 0; include < 2; include++) {
    check_text("nothing to stop at", (str[]){STR("xyz")}, 1, include);
    check_text("one END two", (str[]){STR("END")}, 1, include);
    check_text("END", (str[]){STR("END")}, 1, include);
    check_text("EN", (str[]){STR("END")}, 1, include);                 /* held to the last, then given */
    check_text("aabaabaac", (str[]){STR("aabaac")}, 1, include);       /* its head overlaps itself */
    check_text("abcabd", (str[]){STR("abd"), STR("cab")}, 2, include); /* the earlier in the text wins */
    check_text("xabcd", (str[]){STR("bcd"), STR("abc")}, 2, include);
    check_text("xabcd", (str[]){STR("abcd"), STR("bc")}, 2, include); /* the one that is complete first */
    check_text("h\xc3\xa9 \xe2\x82\xac!", (str[]){STR("\xe2\x82\xac")}, 1, include);
    check_text("ab\xf0\x9f\x98\x80"
               "cd",
        (str[]){STR("c"), STR("zz")}, 2, include);
    check_text("bad \xc3( bytes \xff", (str[]){STR("(")}, 1, include);
    check_text("bad \xe2\x82", (str[]){STR("zz")}, 1, include); /* never finished */
  }
}

/* One token that holds a whole stop string and more on both sides. */
static void test_inside_a_token(void **st) {
  (void)st;
  eng_req q = plain();
  q.stop = (str[]){STR("ell")}, q.n_stop = 1;
  check(q, (int32_t[]){id("a"), id("hello"), id("b")}, 3);
  q.stop = (str[]){STR("lob")}, q.n_stop = 1;
  check(q, (int32_t[]){id("hello"), id("b"), id("b")}, 3);
  q.stop = (str[]){STR("<|im"), STR("zzzzzz")}, q.n_stop = 2; /* control tokens are text here */
  check(q, (int32_t[]){id("a"), id("<|im_end|>"), id("b")}, 3);
  q.keep_special = false; /* and here they are not, while text is held back around them */
  q.stop = (str[]){STR("abc")}, q.n_stop = 1;
  check(q, (int32_t[]){id("a"), id("<|im_end|>"), id("b"), id("<|tool|>"), id("c"), id("a")}, 6);
  check(q, (int32_t[]){id("a"), id("<|im_end|>"), id("b"), id("<|tool|>"), id("d"), id("a")}, 6);
}

/* More tokens without text than a stop string could be long, behind text that is held back. */
static void test_many_silent(void **st) {
  (void)st;
  int32_t v[OUT_MAX];
  for (int i = 0; i < OUT_MAX; i++) v[i] = id("<|im_end|>");
  v[0] = id("a"), v[OUT_MAX - 1] = id("b");
  eng_req q = plain();
  q.keep_special = false, q.stop = (str[]){STR("ab")}, q.n_stop = 1;
  check(q, v, OUT_MAX);
}

static void test_random(void **st) {
  (void)st;
  static const char *const parts[] = {"a", "b", "a", "b", "c", "he", "hello", "lo", "el", "<|tool|>"};
  static const unsigned char bytes[] = {0xc3, 0xa9, 0xe2, 0x82, 0xac, 0xff, 'a', 'b'};
  static const char letters[] = "aabbchelo";
  int stopped = 0;
  for (int i = 0; i < 20000; i++) {
    int32_t v[OUT_MAX];
    char stops[4][8];
    str stop[4];
    int n = 1 + below(OUT_MAX);
    for (int k = 0; k < n; k++) v[k] = below(5) ? id(parts[below(10)]) : byte_id(bytes[below(8)]);
    eng_req q = plain();
    q.n_stop = below(4), q.include_stop = below(2), q.keep_special = below(2), q.min_tokens = below(3) ? 0 : below(n);
    for (int k = 0; k < q.n_stop; k++) {
      int len = 1 + below(6);
      for (int j = 0; j < len; j++) stops[k][j] = letters[below(9)];
      stops[k][len] = 0;
      if (below(6) == 0) strcpy(stops[k], "\xe2\x82\xac");
      stop[k] = str_c(stops[k]);
    }
    q.stop = stop;
    stopped += want_of(&q, v, n).stopped;
    check(q, v, n);
  }
  assert_true(stopped > 3000 && stopped < 17000);
}

/* An end token ends the answer and is no part of its text, yet reported; before min_tokens, and when ends are ignored, it is a token like any other.
 */
static void test_ends(void **st) {
  (void)st;
  int32_t end = tok_eos(m->tok);
  for (int kind = 0; kind < 4; kind++) {
    heard h = {.tops_ok = true};
    buf_init(&h.text, 1 << 10);
    eng_req q = plain();
    q.tokens = (int32_t[]){1}, q.n_tokens = 1, q.max_tokens = 10, q.on_event = on_event, q.ctx = &h, q.top_logprobs = -1;
    q.ignore_eos = kind == 1 || kind == 3, q.min_tokens = kind == 2 ? 2 : 0;
    int32_t stop_id = id("b");
    if (kind == 3) q.stop_ids = &stop_id, q.n_stop_ids = 1;
    seq *s;
    err e;
    assert_true(seq_new(&q, m, &pages, 100, &s, &e));
    eng_finish f;
    int32_t seen[] = {kind == 2 ? end : id("a"), kind == 3 ? stop_id : end, id("c")};
    int n = 0;
    for (bool done = false; n < 3 && !done; n++) {
      s->tok[s->n_tok++] = seen[n];
      done = out_token(s, m, seen[n], NULL, &f);
    }
    assert_int_equal(n, kind == 1 ? 3 : 2);
    if (n == 2) {
      assert_int_equal(f, ENG_STOP);
      out_done(s, f, NULL);
      assert_int_equal(h.n_tok, 2);
      assert_int_equal(h.token[1], seen[1]);
      assert_string_equal(h.text.p, kind == 2 ? "<|im_end|>" : "a");
    } else assert_int_equal(h.n_tok, 3);
    buf_fini(&h.text);
    eng_ticket_free(s->ticket);
    seq_free(s);
  }
}

static int setup(void **st) {
  (void)st;
  static const uint8_t root[32] = {1};
  static const kern_kv shape = {.type = KERN_KV_F16, .n_layer = 1, .n_kv = 1, .head_dim = 2, .page = 16};
  dice = rng_new(4);
  m = fix_model(TINY("tiny-llama-f32"));
  return kv_init(&pages, &shape, 1 << 16, root, false, NULL) ? 0 : -1;
}
static int teardown(void **st) {
  (void)st;
  kv_fini(&pages);
  model_close(m);
  return 0;
}

int main(void) {
  const struct CMUnitTest t[] = {cmocka_unit_test(test_named), cmocka_unit_test(test_inside_a_token), cmocka_unit_test(test_many_silent),
      cmocka_unit_test(test_random), cmocka_unit_test(test_ends)};
  return cmocka_run_group_tests(t, setup, teardown);
}
