/* test_tok_kinds.h - the comparison of a tokenizer with a kind's golden hashes, on the strings that all kinds share.
 * Not the files' format (tools/make_tok_kinds.py has it) and no vocabulary.
 * Ownership: nothing is kept.
 * Threads: one.
 * Failure: a broken golden file fails the test; a difference is counted, and shown where asked. */
#ifndef TEST_TOK_KINDS_H
#define TEST_TOK_KINDS_H
#include "test_tok_util.h"

static inline uint32_t ids_hash(const tok_ids *ids) {
  uint32_t h = 0x811c9dc5u;
  for (int i = 0; i < ids->n; i++)
    for (int b = 0; b < 32; b += 8) h = (h ^ ((uint32_t)ids->v[i] >> b & 255)) * 0x01000193u;
  return h ? h : 1;
}

static inline uint32_t get_u32(bytes *b) {
  assert_true(b->n - b->at >= 4);
  uint32_t v = (uint32_t)b->p[b->at] | (uint32_t)b->p[b->at + 1] << 8 | (uint32_t)b->p[b->at + 2] << 16 | (uint32_t)b->p[b->at + 3] << 24;
  b->at += 4;
  return v;
}

static inline bytes open_golden(const char *name, const char *what, const char *magic) {
  char path[4096];
  golden_path(path, sizeof path, name, what);
  bytes b = load_gz(path);
  expect_magic(&b, magic);
  return b;
}

static inline void show(const tok *t, const char *what, int i, str s, const tok_ids *got) {
  char scratch[8];
  printf("  string %d, %s: \"", i, what);
  for (size_t k = 0; k < s.n && k < 120; k++) printf((uint8_t)s.p[k] < 32 || (uint8_t)s.p[k] > 126 ? "\\x%02x" : "%c", (uint8_t)s.p[k]);
  printf("\"\n   got");
  for (int k = 0; k < got->n && k < 24; k++) {
    str p = tok_piece(t, got->v[k], true, scratch);
    printf(" %d\"%.*s\"", got->v[k], (int)p.n, p.p);
  }
  printf("\n");
}

typedef struct score {
  int strings, left_out, wrong;
} score;

/* parsed: also with control tokens parsed. */
static inline score compare_mode(const tok *t, const char *name, bool loud, bool with_parsed) {
  bytes text = open_golden("kinds", "text", "WTXT1\n"), want = open_golden(name, "ids", "WIDS1\n");
  score sc = {.strings = (int)get_varint(&text)};
  tok_ids got = {0};
  err e = {0};
  assert_int_equal(get_varint(&want), sc.strings);
  for (int i = 0; i < sc.strings; i++) {
    str s = get_blob(&text);
    uint32_t parsed = get_u32(&want), plain = get_u32(&want);
    sc.left_out += !parsed;
    for (int parse = with_parsed; parsed && parse >= 0; parse--) {
      got.n = 0;
      if (!tok_encode(t, s, NULL, parse, false, &got, &e)) fail_msg("%s", e.msg);
      if (ids_hash(&got) == (parse || !plain ? parsed : plain)) continue;
      if (loud && sc.wrong < 10) show(t, parse ? "control tokens parsed" : "not parsed", i, s, &got);
      sc.wrong++;
    }
  }
  assert_int_equal(text.at, text.n);
  assert_int_equal(want.at, want.n);
  free(text.p);
  free(want.p);
  free(got.v);
  return sc;
}

static inline score compare(const tok *t, const char *name, bool loud) { return compare_mode(t, name, loud, true); }
#endif
