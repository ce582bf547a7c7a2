#include "engine/seq.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool copy_req(seq *s, const eng_req *r) {
  eng_req *q = &s->req;
  *q = *r;
  q->tokens = NULL, q->salt = NULL; /* in tok and in the table's chain */
  if (r->n_stop) {
    str *v = ARENA_ARRAY(&s->mem, str, (size_t)r->n_stop);
    if (!v) return false;
    for (int i = 0; i < r->n_stop; i++) {
      char *p = arena_str(&s->mem, r->stop[i]);
      if (!p) return false;
      v[i] = (str){p, r->stop[i].n};
    }
    q->stop = v;
  }
  if (r->n_stop_ids) {
    int32_t *v = ARENA_ARRAY(&s->mem, int32_t, (size_t)r->n_stop_ids);
    if (!v) return false;
    memcpy(v, r->stop_ids, (size_t)r->n_stop_ids * sizeof *v);
    q->stop_ids = v;
  }
  if (r->n_show) {
    int32_t *v = ARENA_ARRAY(&s->mem, int32_t, (size_t)r->n_show);
    if (!v) return false;
    memcpy(v, r->show, (size_t)r->n_show * sizeof *v);
    q->show = v;
  }
  if (r->s.n_bias) {
    eng_bias *v = ARENA_ARRAY(&s->mem, eng_bias, (size_t)r->s.n_bias);
    if (!v) return false;
    memcpy(v, r->s.bias, (size_t)r->s.n_bias * sizeof *v);
    q->s.bias = v;
  }
  return true;
}

static size_t longest_stop(const eng_req *r) {
  size_t n = 0;
  for (int i = 0; i < r->n_stop; i++) n = r->stop[i].n > n ? r->stop[i].n : n;
  return n;
}

/* Everything that decoding will touch is taken here, so that the step path allocates nothing: a stop string holds back at most its own length of
 * text, hence at most that many tokens. */
static bool take_room(seq *s, const eng_req *r, const kv_pool *kv) {
  size_t held = longest_stop(r);
  s->tok = ARENA_ARRAY(&s->mem, int32_t, (size_t)s->max_tok);
  s->cap_outq = (int)(held < 4096 ? held : 4096) + 16;
  s->outq = ARENA_ARRAY(&s->mem, struct out_tok, (size_t)s->cap_outq);
  s->report = ARENA_ARRAY(&s->mem, eng_token, (size_t)s->cap_outq);
  if (!s->tok || !s->outq || !s->report) return false;
  if (r->top_logprobs > 0) {
    s->cap_lp = s->cap_outq * r->top_logprobs;
    s->lp = ARENA_ARRAY(&s->mem, eng_lp, (size_t)s->cap_lp);
    if (!s->lp) return false;
  }
  if (r->s.dry_multiplier > 0) {
    s->breaker = ARENA_ARRAY(&s->mem, uint8_t, (size_t)s->max_tok);
    if (!s->breaker) return false;
  }
  if (r->prompt_logprobs >= 0) {
    s->prompt_lp = ARENA_ARRAY(&s->mem, eng_token, (size_t)s->n_prompt);
    if (!s->prompt_lp) return false;
    s->prompt_lp[0] = (eng_token){.token = r->tokens[0], .logprob = NAN}; /* nothing comes before it */
    if (r->prompt_logprobs > 0) {
      s->prompt_top = arena_try_array(&s->mem, (size_t)s->n_prompt * (size_t)r->prompt_logprobs, sizeof(eng_lp));
      if (!s->prompt_top) return false;
    }
  }
  buf_init(&s->pend, SIZE_MAX / 2); /* never more than what is held and one token's text, which a model's file may make long */
  return buf_reserve(&s->pend, held + 512) && kv_table_init(&s->kv, s->max_tok, kv, r->salt);
}

bool seq_new(const eng_req *r, const model *m, const kv_pool *kv, int ctx, seq **ret, err *e) {
  seq *s = calloc(1, sizeof *s);
  if (!s) return err_set(e, ERR_NOMEM, "out of memory for a request");
  arena_init(&s->mem, (size_t)1 << 31);
  s->n_prompt = s->n_tok = r->n_tokens;
  int room = ctx - r->n_tokens;
  s->max_tok = r->n_tokens + (r->max_tokens < 0 || r->max_tokens > room ? room : r->max_tokens);
  s->ticket = calloc(1, sizeof *s->ticket);
  if (!s->ticket || !copy_req(s, r) || !take_room(s, r, kv)) {
    seq_free(s);
    return err_set(e, ERR_NOMEM, "out of memory for a request of %d tokens", r->n_tokens);
  }
  atomic_init(&s->ticket->refs, 2);
  memcpy(s->tok, r->tokens, (size_t)r->n_tokens * sizeof *s->tok);
  if (s->breaker) {
    char scratch[16];
    for (int i = 0; i < s->n_tok; i++) {
      str p = tok_piece(m->tok, s->tok[i], true, scratch);
      s->breaker[i] = memchr(p.p, '\n', p.n) || memchr(p.p, ':', p.n) || memchr(p.p, '"', p.n) || memchr(p.p, '*', p.n);
    }
  }
  tok_stream_init(&s->det, r->keep_special);
  s->st.prompt_tokens = r->n_tokens;
  *ret = s;
  return true;
}

void seq_free(seq *s) {
  if (!s) return;
  kv_table_fini(&s->kv);
  buf_fini(&s->pend);
  if (s->ticket) eng_ticket_free(s->ticket);
  arena_fini(&s->mem);
  free(s);
}

bool seq_wants_all_rows(const seq *s) { return s->req.prompt_logprobs >= 0 && !s->prompt_given; }

void eng_ticket_free(eng_ticket *t) {
  if (t && atomic_fetch_sub(&t->refs, 1) <= 1) free(t);
}
void engine_cancel(eng_ticket *t) { atomic_store(&t->cancel, true); }
