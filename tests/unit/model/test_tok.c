/* The tokenizer's rules one by one: merges against a naive implementation, trust, special tokens, BOS, invalid UTF-8, long input, the stream, bad
 * vocabularies. */
#include "test_tok_util.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/rng.h"
#include <pthread.h>

/* --- a small vocabulary by hand --- */

enum { N_BYTES = 256, MAX_EXTRA = 64 };
typedef struct small {
  char text[N_BYTES][3];
  str tokens[N_BYTES + MAX_EXTRA], merges[MAX_EXTRA];
  uint8_t types[N_BYTES + MAX_EXTRA];
  tok_src src;
} small;

static void small_add(small *s, const char *text, int type) {
  s->tokens[s->src.n_tokens] = str_c(text);
  s->types[s->src.n_tokens++] = (uint8_t)type;
}

/* 256 bytes, a few merges (ids from 256 on), then control and user-defined tokens. */
static small *small_new(void) {
  small *s = calloc(1, sizeof *s);
  assert_non_null(s);
  s->src = (tok_src){.model = "gpt2",
      .pre = "gpt2",
      .tokens = s->tokens,
      .types = s->types,
      .merges = s->merges,
      .bos = -1,
      .eos = -1,
      .eot = -1,
      .unk = -1,
      .pad = -1};
  for (int b = 0, next = 256; b < 256; b++) {
    int cp = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? b : next++;
    int n = utf8_encode((uint32_t)cp, s->text[b]);
    s->text[b][n] = 0;
    small_add(s, s->text[b], TOK_NORMAL);
  }
  static const char *const merges[] = {"a b", "ab c", "b c", "c d", "< |", "\xc4\xa0 a", "o s", "b os"};
  static const char *const made[] = {"ab", "abc", "bc", "cd", "<|", "\xc4\xa0\x61", "os", "bos"};
  for (int i = 0; i < 8; i++) {
    small_add(s, made[i], TOK_NORMAL);
    s->merges[s->src.n_merges++] = str_c(merges[i]);
  }
  small_add(s, "<|bos|>", TOK_CONTROL);       /* 264 */
  small_add(s, "<|end|>", TOK_CONTROL);       /* 265 */
  small_add(s, "<|end|>x", TOK_USER);         /* 266 */
  small_add(s, "[[", TOK_USER);               /* 267 */
  small_add(s, "<|endoftext|>", TOK_CONTROL); /* 268 */
  small_add(s, "<unk>", TOK_UNKNOWN);         /* 269 */
  s->src.bos = 264;
  s->src.eos = 265;
  return s;
}

static void expect_ids(const tok *t, str text, const char *trust_map, bool parse, bool add, const int32_t *want, int n) {
  uint8_t trust[256];
  tok_ids got = {0};
  err e = {0};
  for (size_t i = 0; trust_map && i < text.n; i++) trust[i] = trust_map[i] == 'T';
  assert_true(tok_encode(t, text, trust_map ? trust : NULL, parse, add, &got, &e));
  bool same = got.n == n && !memcmp(got.v ? got.v : want, want, (size_t)n * sizeof *want);
  if (!same) {
    printf("\"%.*s\" gave", (int)text.n, text.p);
    for (int i = 0; i < got.n; i++) printf(" %d", got.v[i]);
    printf("\n");
  }
  assert_true(same);
  free(got.v);
}
#define IDS(...) (const int32_t[]){__VA_ARGS__}, (int)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void test_merges(void **state) {
  (void)state;
  small *s = small_new();
  tok *t = tok_must(&s->src);
  expect_ids(t, STR("abc"), NULL, false, false, IDS(257));
  expect_ids(t, STR("abcd"), NULL, false, false, IDS(257, 'd')); /* a b first, then ab c; c d comes too late */
  expect_ids(t, STR("bcd"), NULL, false, false, IDS(258, 'd'));
  expect_ids(t, STR("xcd"), NULL, false, false, IDS('x', 259));
  expect_ids(t, STR("a a"), NULL, false, false, IDS('a', 261));
  assert_int_equal(tok_count(t), s->src.n_tokens);
  tok_free(t);
  free(s);
}

static void test_trust(void **state) {
  (void)state;
  small *s = small_new();
  tok *t = tok_must(&s->src);
  expect_ids(t, STR("a<|bos|>b"), NULL, true, false, IDS('a', 264, 'b'));
  expect_ids(t, STR("a<|bos|>b"), NULL, false, false, IDS('a', 260, 263, '|', '>', 'b'));
  expect_ids(t, STR("<|bos|>"), "TTTTTTT", true, false, IDS(264));
  expect_ids(t, STR("<|bos|>"), "TTTTTTT", false, false, IDS(260, 263, '|', '>'));
  /* One byte that is not trusted, wherever it lies, makes it ordinary text; and ordinary merges run across the boundary. */
  static const char *const maps[] = {"UTTTTTT", "TTTUTTT", "TTTTTTU", "UUUUUUU", "TUUUUUU"};
  for (int i = 0; i < 5; i++) expect_ids(t, STR("<|bos|>"), maps[i], true, false, IDS(260, 263, '|', '>'));
  expect_ids(t, STR("<|bos|><|bos|>"), "UUUUUUUTTTTTTT", true, false, IDS(260, 263, '|', '>', 264));
  /* The longest, but only as far as trust reaches; user-defined tokens are no exception. */
  expect_ids(t, STR("<|end|>x"), NULL, true, false, IDS(266));
  expect_ids(t, STR("<|end|>x"), "TTTTTTTU", true, false, IDS(265, 'x'));
  expect_ids(t, STR("<|end|><|endoftext|>"), NULL, true, false, IDS(265, 268));
  expect_ids(t, STR("[["), "TT", true, false, IDS(267));
  expect_ids(t, STR("[["), "TU", true, false, IDS('[', '['));
  expect_ids(t, STR("[[["), NULL, true, false, IDS(267, '['));
  expect_ids(t, STR("<unk>"), NULL, true, false, IDS('<', 'u', 'n', 'k', '>'));
  tok_free(t);
  free(s);
}

static void test_bos(void **state) {
  (void)state;
  small *s = small_new();
  s->src.add_bos = true;
  tok *t = tok_must(&s->src);
  expect_ids(t, STR("x"), NULL, true, true, IDS(264, 'x'));
  expect_ids(t, STR(""), NULL, true, true, IDS(264));
  expect_ids(t, STR("x"), NULL, true, false, IDS('x'));
  expect_ids(t, STR("<|bos|>x"), NULL, true, true, IDS(264, 'x'));                           /* never doubled */
  expect_ids(t, STR("<|bos|>x"), "UUUUUUUU", true, true, IDS(264, 260, 263, '|', '>', 'x')); /* that one was no BOS */
  tok_ids ids = {0};
  err e = {0};
  assert_true(tok_encode(t, STR("x"), NULL, true, true, &ids, &e) && tok_encode(t, STR("y"), NULL, true, true, &ids, &e));
  assert_true(ids.n == 3 && ids.v[0] == 264 && ids.v[1] == 'x' && ids.v[2] == 'y'); /* appending puts none in the middle */
  free(ids.v);
  tok_free(t);
  s->src.add_eos = true;
  t = tok_must(&s->src);
  expect_ids(t, STR("x"), NULL, true, true, IDS(264, 'x', 265));
  expect_ids(t, STR("x<|end|>"), NULL, true, true, IDS(264, 'x', 265));
  assert_true(tok_adds_bos(t));
  tok_free(t);
  free(s);
}

static void test_pieces(void **state) {
  (void)state;
  char scratch[8];
  small *s = small_new();
  tok *t = tok_must(&s->src);
  int n = 0;
  const int32_t *ends = tok_ends(t, &n);
  assert_true(n == 2 && ends[0] == 265 && ends[1] == 268); /* the file's eos, and the name that ends texts everywhere */
  assert_true(tok_is_end(t, 268) && !tok_is_end(t, 264) && !tok_is_end(t, -1));
  assert_true(str_is(tok_piece(t, 261, false, scratch), " a"));
  assert_true(str_is(tok_piece(t, 264, true, scratch), "<|bos|>"));
  assert_int_equal(tok_piece(t, 264, false, scratch).n, 0);
  assert_true(str_is(tok_piece(t, 267, false, scratch), "[[")); /* user-defined tokens are text */
  assert_int_equal(tok_piece(t, -1, true, scratch).n, 0);
  assert_int_equal(tok_piece(t, 1 << 30, true, scratch).n, 0);
  assert_int_equal(tok_type(t, 264), TOK_CONTROL);
  assert_int_equal(tok_find(t, STR("<|bos|>")), 264);
  assert_int_equal(tok_find(t, STR(" a")), 261);
  assert_int_equal(tok_find(t, STR("\xff")), 255);
  assert_int_equal(tok_find(t, STR("nothing")), -1);
  assert_int_equal(tok_find(t, STR("")), -1);
  tok_free(t);
  free(s);
}

/* --- merges against a naive implementation --- */

/* Rescans the whole list for the lowest merge each time, on strings: slow, and shares nothing with the code under test. */
static int naive_merge(const vocab *v, str piece, str *sym) {
  int n = 0;
  static char letters[512][4];
  assert_true(piece.n <= 512);
  for (size_t i = 0; i < piece.n; i++) {
    int b = (uint8_t)piece.p[i], cp = 256;
    if ((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174) cp = b;
    else
      for (int k = 0; k < b; k++) cp += !((k >= 33 && k <= 126) || (k >= 161 && k <= 172) || k >= 174);
    int len = utf8_encode((uint32_t)cp, letters[i]);
    sym[n++] = (str){letters[i], (size_t)len};
  }
  static char joined[1 << 16];
  size_t used = 0;
  for (bool again = true; again;) {
    again = false;
    for (int m = 0; m < v->src.n_merges && !again; m++) {
      str a, b;
      str_cut(v->merges[m], ' ', &a, &b);
      for (int i = 0; i + 1 < n; i++) {
        if (!str_eq(sym[i], a) || !str_eq(sym[i + 1], b)) continue;
        assert_true(used + a.n + b.n < sizeof joined);
        memcpy(joined + used, a.p, a.n);
        memcpy(joined + used + a.n, b.p, b.n);
        sym[i] = (str){joined + used, a.n + b.n};
        used += a.n + b.n;
        memmove(sym + i + 1, sym + i + 2, (size_t)(n - i - 2) * sizeof *sym);
        n--;
        again = true;
        break;
      }
    }
  }
  return n;
}

static void test_naive(void **state) {
  (void)state;
  vocab v = vocab_stored("gpt2");
  tok *t = tok_must(&v.src);
  rng r = rng_new(7);
  str sym[512];
  char text[512];
  const char *alphabet[] = {"abcdefghijklmnopqrstuvwxyz", "aeinorst", "aab", "e"};
  for (int round = 0; round < 120; round++) {
    size_t n = 2 + rng_below(&r, round % 4 ? 100 : 200); /* both sides of the short path's 64 */
    const char *from = alphabet[round / 4 % 4];
    for (size_t i = 0; i < n; i++) text[i] = from[rng_below(&r, strlen(from))];
    tok_ids ids = {0};
    err e = {0};
    assert_true(tok_encode(t, (str){text, n}, NULL, false, false, &ids, &e));
    int want = naive_merge(&v, (str){text, n}, sym);
    assert_int_equal(ids.n, want);
    for (int i = 0; i < want; i++) assert_true(str_eq(v.tokens[ids.v[i]], sym[i]));
    free(ids.v);
  }
  tok_free(t);
  vocab_fini(&v);
}

/* --- any bytes, any length --- */

static void expect_round_trip(const tok *t, str s) {
  char scratch[8];
  tok_ids ids = {0};
  err e = {0};
  buf b;
  buf_init(&b, s.n * 4 + 64);
  assert_true(tok_encode(t, s, NULL, true, false, &ids, &e));
  for (int i = 0; i < ids.n; i++) buf_str(&b, tok_piece(t, ids.v[i], true, scratch));
  assert_true(str_eq(buf_view(&b), s));
  buf_fini(&b);
  free(ids.v);
}

static void test_invalid_utf8(void **state) {
  (void)state;
  static const char *const pres[] = {"gpt2", "smollm", "llama3"};
  vocab v = vocab_stored("gpt2");
  char text[200];
  rng r = rng_new(11);
  for (int k = 0; k < 3; k++) {
    v.src.pre = pres[k];
    tok *t = tok_must(&v.src);
    static const char *const bad[] = {"\xff", "a\xc3", "\xc3(", "x \x80\x80 y", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "  \xfe  ",
        "\xc0\xaf\xc0\xaf", "ok\xe2\x82zz\xf0\x9f\x98"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) expect_round_trip(t, str_c(bad[i]));
    expect_round_trip(t, (str){"\0a\0\0", 4});
    for (int i = 0; i < 2000; i++) {
      size_t n = rng_below(&r, sizeof text);
      for (size_t j = 0; j < n; j++) text[j] = i % 2 ? (char)rng_u64(&r) : "\xe2\x82\xac\xf0\x9f\x98 \n1a'"[rng_below(&r, 11)];
      expect_round_trip(t, (str){text, n});
    }
    tok_free(t);
  }
  vocab_fini(&v);
}

/* A megabyte of anything takes a fraction of a second; what is quadratic in it would take minutes. The bound is loose enough for a sanitizer. */
static void test_long(void **state) {
  (void)state;
  static const char *const units[] = {
      "a", " ", "1", "\n", "-", "<|endoftex", "\xcc\x81\xcc\xa3", "\xff", "ab", "\xe4\xb8\xad", " \n", "'s", "\xcc\x81"};
  static const char *const pres[] = {"gpt2", "smollm", "llama3", "qwen2"};
  size_t big = 10000000;
  char *text = malloc(big);
  vocab v = vocab_stored("gpt2");
  for (int k = 0; k < 4; k++) {
    v.src.pre = pres[k];
    tok *t = tok_must(&v.src);
    size_t n = k == 0 ? 1000000 : 200000;
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
      size_t len = strlen(units[u]);
      for (size_t i = 0; i < n; i++) text[i] = units[u][i % len];
      int64_t start = clock_now();
      if (k < 3) expect_round_trip(t, (str){text, n});
      else {
        tok_ids ids = {0};
        err e = {0};
        assert_true(tok_encode(t, (str){text, n}, NULL, true, false, &ids, &e));
        free(ids.v);
      }
      assert_true(clock_ms(clock_now() - start) < 20000);
    }
    /* 10 MB in one piece: beyond the interpreter's default limits and any stack. */
    memset(text, ' ', big);
    text[big - 1] = 'x';
    if (k == 0) expect_round_trip(t, (str){text, big});
    tok_free(t);
  }
  vocab_fini(&v);
  free(text);
}

static void *encode_much(void *arg) {
  const tok *t = arg;
  uint64_t sum = 0;
  for (int i = 0; i < 300; i++) {
    tok_ids ids = {0};
    char text[200];
    int n = snprintf(text, sizeof text, "the %d things that were to come, and %d of them didn't: print(x%d)", i, i * 7, i % 3);
    if (!tok_encode(t, (str){text, (size_t)n}, NULL, true, true, &ids, NULL)) return NULL;
    for (int k = 0; k < ids.n; k++) sum = sum * 31 + (uint64_t)ids.v[k];
    free(ids.v);
  }
  return (void *)(uintptr_t)sum;
}

static void test_threads(void **state) {
  (void)state;
  vocab v = vocab_stored("llama3");
  v.src.pre = "gpt2";
  tok *t = tok_must(&v.src);
  pthread_t th[4];
  void *sum[4];
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&th[i], NULL, encode_much, t), 0);
  for (int i = 0; i < 4; i++) pthread_join(th[i], &sum[i]);
  assert_non_null(sum[0]);
  for (int i = 1; i < 4; i++) assert_ptr_equal(sum[i], sum[0]);
  tok_free(t);
  vocab_fini(&v);
}

/* --- the stream --- */

static void expect_stream(const tok *t, str in, const char *want) {
  tok_stream s;
  buf b;
  buf_init(&b, 4096);
  tok_stream_init(&s, false);
  for (size_t i = 0; i < in.n; i++) { /* ids 0..255 are the bytes */
    assert_true(tok_stream_push(t, &s, (uint8_t)in.p[i], &b));
    assert_true(utf8_valid(buf_view(&b)));
  }
  assert_true(tok_stream_end(&s, &b));
  if (!str_is(buf_view(&b), want)) fail_msg("stream gave \"%s\", expected \"%s\"", b.p, want);
  buf_fini(&b);
}

#define RC "\xef\xbf\xbd"
static void test_stream(void **state) {
  (void)state;
  small *s = small_new();
  tok *t = tok_must(&s->src);
  expect_stream(t, STR("h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80!"), "h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80!");
  /* One replacement for each maximal part (Unicode Standard, table 3-8 and Python's errors="replace"). */
  expect_stream(t,
      STR("a\xf1\x80\x80\xe1\x80\xc2"
          "b\x80"
          "c\x80\xbf"
          "d"),
      "a" RC RC RC "b" RC "c" RC RC "d");
  expect_stream(t, STR("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82"), RC RC RC RC RC RC RC RC);
  expect_stream(t,
      STR("\xed\xa0\x80"
          "A"),
      RC RC RC "A");
  expect_stream(t, STR("\xe2\x82"), RC);
  expect_stream(t, STR("\xe2\x82\xff"), RC RC);
  expect_stream(t, STR("\xf0\x9f\xe2\x82\xac"), RC "\xe2\x82\xac");
  buf b;
  buf_init(&b, 64);
  tok_stream st;
  tok_stream_init(&st, false);
  tok_stream_push(t, &st, 0xe2, &b);
  tok_stream_push(t, &st, 264, &b); /* a control token gives nothing and breaks nothing */
  assert_int_equal(b.n, 0);
  tok_stream_push(t, &st, 0x82, &b);
  tok_stream_push(t, &st, 0xac, &b);
  assert_true(str_is(buf_view(&b), "\xe2\x82\xac"));
  buf_fini(&b);
  tok_free(t);
  free(s);
}

/* --- vocabularies that are refused --- */

static void expect_refused(const tok_src *s, err_code code, const char *param, const char *says) {
  err e = {0};
  tok *t = (tok *)-1;
  assert_false(tok_new(s, &t, &e));
  assert_ptr_equal(t, (tok *)-1);
  assert_int_equal(e.code, code);
  assert_string_equal(e.param, param);
  if (!strstr(e.msg, says)) fail_msg("\"%s\" does not say \"%s\"", e.msg, says);
}

static void test_refused(void **state) {
  (void)state;
  small *s = small_new();
  tok_src c = s->src;
  c.n_merges = 0;
  expect_refused(&c, ERR_INPUT, "tokenizer.ggml.merges", "needs merges");
  c = s->src, c.pre = "martian";
  expect_refused(&c, ERR_UNSUPPORTED, "tokenizer.ggml.pre", "smollm refact");
  c = s->src, c.model = "rwkv";
  expect_refused(&c, ERR_UNSUPPORTED, "tokenizer.ggml.model", "\"rwkv\" is not supported");
  c = s->src, c.model = "llama";
  expect_refused(&c, ERR_INPUT, "tokenizer.ggml.scores", "needs a score");
  c = s->src, c.n_tokens = 0;
  expect_refused(&c, ERR_INPUT, "tokenizer.ggml.tokens", "no tokens");
  c = s->src, c.bos = c.n_tokens;
  expect_refused(&c, ERR_INPUT, "tokenizer.ggml.bos_token_id", "outside the vocabulary");
  c = s->src, c.eot = -7;
  expect_refused(&c, ERR_INPUT, "tokenizer.ggml.eot_token_id", "outside the vocabulary");
  str kept = s->tokens['q'];
  s->tokens['q'] = STR("qq");
  expect_refused(&s->src, ERR_INPUT, "tokenizer.ggml.tokens", "no token for the byte 0x71 ('q')");
  s->tokens['q'] = kept;
  static const struct {
    const char *merge, *says;
  } bad[] = {{"ab", "merge 2 is not two tokens"}, {"a ", "not two tokens"}, {" a", "not two tokens"}, {"", "not two tokens"}, {"zz b", "first half"},
      {"a zz", "second half"}, {"z z", "result"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    kept = s->merges[2];
    s->merges[2] = str_c(bad[i].merge);
    expect_refused(&s->src, ERR_INPUT, "tokenizer.ggml.merges", bad[i].says);
    s->merges[2] = kept;
  }
  s->types[5] = 9;
  expect_refused(&s->src, ERR_INPUT, "tokenizer.ggml.token_type", "token 5 has type 9");
  s->types[5] = TOK_NORMAL;
  char *huge = malloc(2000);
  memset(huge, '<', 2000);
  s->tokens[264] = (str){huge, 2000};
  expect_refused(&s->src, ERR_INPUT, "tokenizer.ggml.tokens", "token 264");
  free(huge);
  free(s);
}

/* As in the reference: a rare byte without a token is left out, and of two tokens with one text the last counts. */
static void test_odd_vocabulary(void **state) {
  (void)state;
  small *s = small_new();
  s->tokens[4] = STR("");
  s->tokens[260] = STR("ab");
  s->merges[4] = STR("a b");
  s->src.n_merges = 5;
  tok *t = tok_must(&s->src);
  expect_ids(t, STR("x\x04y"), NULL, false, false, IDS('x', 'y'));
  expect_ids(t, STR("\x04"), NULL, false, false, (const int32_t[]){0}, 0);
  assert_int_equal(tok_find(t, STR("ab")), 260);
  expect_ids(t, STR("ab"), NULL, false, false, IDS(260));
  tok_free(t);
  free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_merges),
      cmocka_unit_test(test_trust),
      cmocka_unit_test(test_bos),
      cmocka_unit_test(test_pieces),
      cmocka_unit_test(test_naive),
      cmocka_unit_test(test_invalid_utf8),
      cmocka_unit_test(test_long),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_stream),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_odd_vocabulary),
  };
  return cmocka_run_group_tests_name("test_tok", tests, NULL, NULL);
}
