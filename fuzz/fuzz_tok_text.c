/* Text to token ids and back, with masks of trust, for each kind of tokenizer (kinds[] below). The last byte of the input chooses kind and options,
 * the sixteen before it the trust of sixteen parts; the rest is the text. Holds: two encodings agree; ids are in the vocabulary; their bytes joined
 * are the text again; no control token comes from untrusted bytes; what the stream gives is valid UTF-8, and the text itself where that was valid. */
#include "base/buf.h"
#include "fuzz.h"
#include "fuzz_tok.h"
#include "model/tok.h"
#include <stdlib.h>

static const struct {
  const char *vocab, *pre; /* the stored vocabulary; its pre-tokenizer, NULL: it is a tokenizer.json */
  bool exact;              /* the round trip gives the bytes again */
} kinds[] = {
    {"gpt2", "gpt2", true},
    {"gpt2", "qwen2", false}, /* normal form C */
    {"llama3", "llama3", true},
    {"gpt2", "smollm", true},
    {"hf-llama2", NULL, false}, /* SentencePiece BPE with byte fallback */
    {"hf-gemma", NULL, false},
    {"hf-xlmr", NULL, false}, /* unigram, with SentencePiece's normalizer */
    {"hf-albert", NULL, false},
    {"hf-bert", NULL, false}, /* WordPiece */
    {"hf-qwen", NULL, false},
    {"hf-tekken", NULL, false},
    {"hf-pieces", NULL, false},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, PARTS = 16 };

static tok *tok_of(int k) {
  static tok *made[N_KINDS];
  if (!made[k]) made[k] = kinds[k].pre ? vocab_tok(kinds[k].vocab, kinds[k].pre) : json_tok(kinds[k].vocab);
  return made[k];
}

static void pieces(const tok *t, const tok_ids *ids, buf *out) {
  char scratch[8];
  for (int i = 0; i < ids->n; i++) {
    FUZZ_CHECK(ids->v[i] >= 0 && ids->v[i] < tok_count(t), "id %d of %d", ids->v[i], tok_count(t));
    buf_str(out, tok_piece(t, ids->v[i], true, scratch));
  }
}

static void stream(const tok *t, const tok_ids *ids, buf *out) {
  tok_stream s;
  size_t shown = 0;
  tok_stream_init(&s, true);
  for (int i = 0; i < ids->n; i++) {
    FUZZ_CHECK(tok_stream_push(t, &s, ids->v[i], out), "no memory");
    str all = buf_view(out);
    FUZZ_CHECK(utf8_valid((str){all.p + shown, all.n - shown}), "the stream gives half a code point");
    shown = all.n;
  }
  FUZZ_CHECK(tok_stream_end(&s, out) && utf8_valid(buf_view(out)), "the stream is not valid UTF-8");
}

static void check_ids(const tok *t, str text, const tok_ids *ids, bool exact, bool any_trust) {
  buf bytes, shown;
  buf_init(&bytes, SIZE_MAX / 2);
  buf_init(&shown, SIZE_MAX / 2);
  pieces(t, ids, &bytes);
  stream(t, ids, &shown);
  if (exact) FUZZ_CHECK(str_eq(text, buf_view(&bytes)), "%zu bytes became %zu", text.n, bytes.n);
  if (exact && utf8_valid(text)) FUZZ_CHECK(str_eq(text, buf_view(&shown)), "the stream gives another text");
  int32_t unk = any_trust ? -1 : tok_unknown(t);
  for (int i = 0; !any_trust && i < ids->n; i++)
    FUZZ_CHECK(ids->v[i] == unk || tok_type(t, ids->v[i]) != TOK_CONTROL, "a control token, %d, out of untrusted text", ids->v[i]);
  buf_fini(&bytes);
  buf_fini(&shown);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  fuzz_bytes in = {p, n};
  uint8_t how = fuzz_last(&in), part[PARTS];
  int k = (how & 0x3f) % N_KINDS;
  bool parse = how & 0x40, any = false;
  for (int i = 0; i < PARTS; i++) any |= part[i] = fuzz_last(&in) & 1;
  tok *t = tok_of(k);
  char *copy = fuzz_copy(in.p, in.n);
  uint8_t *trust = malloc(in.n + 1);
  FUZZ_CHECK(trust, "no memory");
  for (size_t i = 0; i < in.n; i++) trust[i] = part[i * PARTS / in.n];
  tok_ids a = {0}, b = {0};
  err e = {0};
  str text = {copy, in.n};
  FUZZ_CHECK(tok_encode(t, text, trust, parse, false, &a, &e) && tok_encode(t, text, trust, parse, false, &b, &e), "%s", e.msg);
  FUZZ_CHECK(a.n == b.n && (!a.n || memcmp(a.v, b.v, sizeof *a.v * (size_t)a.n) == 0), "two encodings differ");
  check_ids(t, text, &a, kinds[k].exact, any && parse);
  free(a.v);
  free(b.v);
  free(trust);
  free(copy);
  return 0;
}
