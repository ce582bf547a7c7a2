/* The tokenizer's keys of a GGUF file as a tok_src. Everything is borrowed from the file but the token types, which are wider there. */
#include "model/tok_impl.h"
#include "model/mfile.h"
#include <stdio.h>
#include <stdlib.h>

#define KEY(name) "tokenizer.ggml." name

/* An array of strings; absent: *ret_n = 0. */
static bool get_strs(const mfile *g, const char *key, const str **ret, int *ret_n, err *e) {
  const mf_val *v = mf_get(g, key);
  *ret_n = 0;
  if (!v) return true;
  if (v->kind != MF_ARR || v->elem != MF_STR || (v->count && !v->strs)) return err_param(e, ERR_INPUT, key, "%s: expected an array of strings", key);
  if (v->count > INT32_MAX) return err_param(e, ERR_INPUT, key, "%s: %llu elements are too many", key, (unsigned long long)v->count);
  *ret = v->strs;
  *ret_n = (int)v->count;
  return true;
}

static bool is_number(mf_kind k) { return k <= MF_F32 || k == MF_U64 || k == MF_I64 || k == MF_F64; }

static bool get_types(const mfile *g, int n_tokens, uint8_t **ret, err *e) {
  const char *key = KEY("token_type");
  const mf_val *v = mf_get(g, key);
  if (!v) return true;
  if (v->kind != MF_ARR || !is_number(v->elem) || v->elem == MF_F32 || v->elem == MF_F64)
    return err_param(e, ERR_INPUT, key, "%s: expected an array of integers", key);
  if (v->count != (uint64_t)n_tokens)
    return err_param(e, ERR_INPUT, key, "%s has %llu elements but there are %d tokens", key, (unsigned long long)v->count, n_tokens);
  uint8_t *types = malloc((size_t)n_tokens + 1);
  if (!types) return err_set(e, ERR_NOMEM, "out of memory for %d token types", n_tokens);
  for (int i = 0; i < n_tokens; i++) {
    int64_t k = mf_elem_i64(v, (uint64_t)i);
    types[i] = k >= TOK_NORMAL && k <= TOK_BYTE ? (uint8_t)k : 0; /* 0 is refused by tok_new, which names the token */
  }
  *ret = types;
  return true;
}

/* Copied: in the file they lie on any boundary. */
static bool get_scores(const mfile *g, int n_tokens, float **ret, err *e) {
  const char *key = KEY("scores");
  const mf_val *v = mf_get(g, key);
  if (!v) return true;
  if (v->kind != MF_ARR || v->elem != MF_F32) return err_param(e, ERR_INPUT, key, "%s: expected an array of f32", key);
  if (v->count != (uint64_t)n_tokens)
    return err_param(e, ERR_INPUT, key, "%s has %llu elements but there are %d tokens", key, (unsigned long long)v->count, n_tokens);
  float *x = malloc(((size_t)n_tokens + 1) * sizeof *x);
  if (!x) return err_set(e, ERR_NOMEM, "out of memory for %d scores", n_tokens);
  memcpy(x, v->raw.p, (size_t)n_tokens * sizeof *x);
  *ret = x;
  return true;
}

/* A table of bytes; some files say they are signed. */
static bool get_bytes(const mfile *g, const char *key, str *ret, err *e) {
  const mf_val *v = mf_get(g, key);
  if (!v) return true;
  if (v->kind != MF_ARR || (v->elem != MF_U8 && v->elem != MF_I8)) return err_param(e, ERR_INPUT, key, "%s: expected an array of bytes", key);
  *ret = (str){v->raw.p, v->count};
  return true;
}

static bool get_id(const mfile *g, const char *key, int *ret, err *e) {
  int64_t v = -1;
  if (!mf_i64(g, key, &v, e)) return false;
  if (v == UINT32_MAX) v = -1; /* how some files write "none" */
  if (v < -1 || v > INT32_MAX) return err_param(e, ERR_INPUT, key, "%s: %lld is not a token id", key, (long long)v);
  *ret = (int)v;
  return true;
}

static bool get_name(const mfile *g, const char *key, char *out, size_t cap, err *e) {
  str s = {"", 0};
  if (!mf_str(g, key, &s, e)) return false;
  if (s.n >= cap || memchr(s.p, 0, s.n)) return err_param(e, ERR_INPUT, key, "%s: a name of %zu bytes is no name that is known", key, s.n);
  memcpy(out, s.p, s.n);
  out[s.n] = 0;
  return true;
}

/* What SentencePiece's kinds have beside the rest. */
static bool get_sentencepiece(const mfile *g, const tok_model *m, tok_src *s, float **scores, err *e) {
  bool suffix = false, escape = true;
  s->add_space_prefix = m && m->prefix_default;
  s->remove_extra_whitespaces = m && m->eos_default && m->prefix_default;
  if (!mf_bool(g, KEY("add_space_prefix"), &s->add_space_prefix, e) ||
      !mf_bool(g, KEY("remove_extra_whitespaces"), &s->remove_extra_whitespaces, e) || !mf_bool(g, KEY("treat_whitespace_as_suffix"), &suffix, e) ||
      !mf_bool(g, KEY("escape_whitespaces"), &escape, e))
    return false;
  if (suffix || !escape)
    return err_param(e, ERR_UNSUPPORTED, suffix ? KEY("treat_whitespace_as_suffix") : KEY("escape_whitespaces"),
        "a vocabulary with %s is not supported", suffix ? "blanks behind words" : "blanks that are not escaped");
  return get_bytes(g, KEY("precompiled_charsmap"), &s->charsmap, e) && get_scores(g, s->n_tokens, scores, e);
}

static bool get_special(const mfile *g, tok_src *s, err *e) {
  return get_id(g, KEY("bos_token_id"), &s->bos, e) && get_id(g, KEY("eos_token_id"), &s->eos, e) && get_id(g, KEY("eot_token_id"), &s->eot, e) &&
         get_id(g, KEY("unknown_token_id"), &s->unk, e) && get_id(g, KEY("padding_token_id"), &s->pad, e) &&
         mf_bool(g, KEY("add_bos_token"), &s->add_bos, e) && mf_bool(g, KEY("add_eos_token"), &s->add_eos, e);
}

/* BERT's files name its two by other names, and one of them misspelled. */
static bool get_bert(const mfile *g, tok_src *s, err *e) {
  int cls = -1, sep = -1;
  if (!get_id(g, KEY("cls_token_id"), &cls, e) || !get_id(g, KEY("seperator_token_id"), &sep, e) || !get_id(g, KEY("separator_token_id"), &sep, e))
    return false;
  if (s->bos < 0) s->bos = cls;
  if (s->eos < 0 || sep >= 0) s->eos = sep >= 0 ? sep : s->eos;
  return mf_bool(g, KEY("add_sep_token"), &s->add_eos, e);
}

bool tok_from_gguf(const mfile *g, tok **ret, err *e) {
  char model[64], pre[64];
  uint8_t *types = NULL;
  float *scores = NULL;
  tok_src s = {.model = model, .bos = -1, .eos = -1, .eot = -1, .unk = -1, .pad = -1};
  if (!get_name(g, KEY("model"), model, sizeof model, e) || !get_name(g, KEY("pre"), pre, sizeof pre, e)) return false;
  if (!model[0]) return err_param(e, ERR_INPUT, KEY("model"), "the file has no tokenizer (%s is missing)", KEY("model"));
  if (pre[0]) s.pre = pre;
  const tok_pre *row = tok_pre_find(str_c(pre));
  const tok_model *m = tok_model_find(model);
  bool bytes = m && m->form == TOK_FORM_BYTES, bert = m && m->form == TOK_FORM_LEAD;
  s.add_bos = bytes ? row && row->bos_default : m && m->bos_default;
  s.add_eos = m && m->eos_default;
  bool ok = get_strs(g, KEY("tokens"), &s.tokens, &s.n_tokens, e) && get_strs(g, KEY("merges"), &s.merges, &s.n_merges, e) && get_special(g, &s, e) &&
            (!bert || get_bert(g, &s, e)) && get_types(g, s.n_tokens, &types, e) && (bytes || bert || get_sentencepiece(g, m, &s, &scores, e));
  s.types = types;
  s.scores = scores;
  ok = ok && tok_new(&s, ret, e);
  free(types);
  free(scores);
  return ok;
}
