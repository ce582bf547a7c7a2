/* What kinds of vocabulary there are, a tokenizer from plain arrays, and what can be asked of one. */
#include "model/tok_impl.h"
#include <stdio.h>

static const tok_model models[] = {
    {.name = "gpt2",
        .form = TOK_FORM_BYTES,
        .key = "tokenizer.ggml.merges",
        .lacks = "byte-level BPE needs merges and the vocabulary has none; the file is incomplete, get it again or convert it again",
        .build = tok_bpe_build,
        .piece = tok_bpe},
    {.name = "llama",
        .form = TOK_FORM_META,
        .key = "tokenizer.ggml.scores",
        .lacks =
            "SentencePiece BPE needs a score for every token and the vocabulary has none; the file is incomplete, get it again or convert it again",
        .bos_default = true,
        .prefix_default = true,
        .build = tok_spm_build,
        .piece = tok_spm},
    {.name = "t5",
        .form = TOK_FORM_META,
        .key = "tokenizer.ggml.scores",
        .lacks =
            "a unigram model needs a score for every token and the vocabulary has none; the file is incomplete, get it again or convert it again",
        .eos_default = true,
        .prefix_default = true,
        .build = tok_unigram_build,
        .piece = tok_unigram},
    {.name = "bert", .form = TOK_FORM_LEAD, .bos_default = true, .eos_default = true, .build = tok_wordpiece_build, .piece = tok_wordpiece},
};
enum { N_MODELS = sizeof models / sizeof *models };

const tok_model *tok_model_find(const char *name) {
  for (int i = 0; name && i < N_MODELS; i++)
    if (!strcmp(models[i].name, name)) return &models[i];
  return NULL;
}

static bool unknown_model(const char *name, err *e) {
  char known[200];
  size_t n = 0;
  for (int i = 0; i < N_MODELS && n < sizeof known; i++)
    n += (size_t)snprintf(known + n, sizeof known - n, "%s\"%s\"", i ? ", " : "", models[i].name);
  return err_param(
      e, ERR_UNSUPPORTED, "tokenizer.ggml.model", "tokenizer model \"%.60s\" is not supported: supported are %s", name ? name : "", known);
}

/* --- the steps of a file's tokenizer --- */

static bool add_cut(tok *t, const char *regex, tok_cut_how how, bool invert, err *e) {
  tok_cut_step *c = &t->cut[t->n_cut];
  *c = (tok_cut_step){.how = how, .invert = invert};
  if (!tok_re_new(regex, false, &c->re, e)) return false;
  t->n_cut++;
  return true;
}

static bool plan_bpe(tok *t, const tok_src *s, err *e) {
  char known[1000];
  const tok_pre *pre = tok_pre_find(s->pre ? str_c(s->pre) : STR("gpt2"));
  if (!pre) {
    tok_pre_names(known, sizeof known);
    return err_param(e, ERR_UNSUPPORTED, "tokenizer.ggml.pre", "pre-tokenizer \"%.60s\" is not known; known are: %.400s", s->pre, known);
  }
  t->whole_first = pre->whole_first;
  if (pre->nfc) t->norm[t->n_norm++] = (tok_step){.run = tok_step_form, .flags = TOK_NF_COMPOSE};
  return add_cut(t, pre->regex, TOK_CUT_ISOLATED, false, e);
}

static bool plan_sentencepiece(tok *t, const tok_src *s, err *e) {
  t->words = t->late_user = t->chars = t->fuse_unk = true;
  t->strip = s->add_space_prefix;
  tok_step *step = &t->norm[t->n_norm++];
  *step = (tok_step){.run = tok_step_spm, .flags = (s->add_space_prefix ? TOK_SPM_PREFIX : 0) | (s->remove_extra_whitespaces ? TOK_SPM_SQUEEZE : 0)};
  if (!s->charsmap.n) return true;
  const char *copy = arena_str(&t->own, s->charsmap);
  step->a = (str){copy, s->charsmap.n};
  if (!copy) return err_set(e, ERR_NOMEM, "out of memory for a normalizer of %zu bytes", s->charsmap.n);
  return tok_charsmap_check(step->a, "tokenizer.ggml.precompiled_charsmap", e);
}

/* A GGUF file of this kind does not say whether text is brought to lower case; vocabularies of that kind have no token with a capital. */
static bool plan_bert(tok *t, const tok_src *s, err *e) {
  bool upper = false;
  for (int i = 0; i < s->n_tokens && !upper; i++)
    for (size_t k = 0; (!s->types || s->types[i] == TOK_NORMAL) && k < s->tokens[i].n && s->tokens[i].p[0] != '['; k++)
      upper |= s->tokens[i].p[k] >= 'A' && s->tokens[i].p[k] <= 'Z';
  t->max_chars = 100;
  t->strip = true;
  t->norm[t->n_norm++] = (tok_step){.run = tok_step_clean};
  t->norm[t->n_norm++] = (tok_step){.run = tok_step_han};
  if (!upper) {
    t->norm[t->n_norm++] = (tok_step){.run = tok_step_form};
    t->norm[t->n_norm++] = (tok_step){.run = tok_step_accents};
    t->norm[t->n_norm++] = (tok_step){.run = tok_step_lower};
  }
  return add_cut(t, TOK_RE_WHITE, TOK_CUT_REMOVED, false, e) && add_cut(t, TOK_RE_PUNCT, TOK_CUT_ISOLATED, false, e);
}

bool tok_new(const tok_src *src, tok **ret, err *e) {
  const tok_model *m = tok_model_find(src->model);
  if (!m) return unknown_model(src->model, e);
  if (m->key && (m->form == TOK_FORM_BYTES ? src->n_merges <= 0 || !src->merges : !src->scores) && src->n_tokens > 0)
    return err_param(e, ERR_INPUT, m->key, "%s", m->lacks);
  tok *t = tok_begin(e);
  if (!t) return false;
  t->model = m;
  t->form = m->form;
  bool planned = m->form == TOK_FORM_BYTES ? plan_bpe(t, src, e) : m->form == TOK_FORM_META ? plan_sentencepiece(t, src, e) : plan_bert(t, src, e);
  if (!planned) {
    tok_free(t);
    return false;
  }
  t->first = src->add_bos ? src->bos : -1;
  t->last = src->add_eos ? src->eos : -1;
  return tok_finish(t, src, NULL, 0, ret, e);
}

/* --- asking --- */

int tok_count(const tok *t) { return t->n; }
int tok_type(const tok *t, int32_t id) { return id >= 0 && id < t->n ? t->types[id] : 0; }
int tok_bos(const tok *t) { return t->bos; }
int tok_eos(const tok *t) { return t->eos; }
bool tok_adds_bos(const tok *t) { return t->first >= 0 && t->first == t->bos; }

int tok_find(const tok *t, str text) {
  int32_t id = tok_lookup(t, text, TOK_CLASS_SPECIAL);
  return id >= 0 ? id : tok_lookup(t, text, TOK_CLASS_NORMAL);
}

bool tok_is_end(const tok *t, int32_t id) {
  for (int i = 0; i < t->n_ends; i++)
    if (t->ends[i] == id) return true;
  return false;
}

const int32_t *tok_ends(const tok *t, int *ret_n) {
  *ret_n = t->n_ends;
  return t->ends;
}
