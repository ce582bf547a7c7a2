/* From sampled tokens to events. Text is held back only while it could still turn out to be the head of a stop string; a token is reported with the
 * text that completes it. */
#include "engine/seq.h"
#include <math.h>
#include <string.h>

/* Earliest stop string in pend that ends in what was added last: offset, or -1. */
static ptrdiff_t stop_in(const seq *s, size_t from, int *ret_which) {
  ptrdiff_t best = -1;
  for (int i = 0; i < s->req.n_stop; i++) {
    str st = s->req.stop[i];
    size_t at = from >= st.n ? from - st.n + 1 : 0;
    ptrdiff_t k = at <= s->pend.n ? str_find((str){s->pend.p + at, s->pend.n - at}, st) : -1;
    if (k >= 0 && (best < 0 || (ptrdiff_t)at + k < best)) best = (ptrdiff_t)at + k, *ret_which = i;
  }
  return best;
}

/* Length of the longest tail of pend that is a proper head of some stop string. */
static size_t held_back(const seq *s) {
  size_t held = 0;
  for (int i = 0; i < s->req.n_stop; i++) {
    str st = s->req.stop[i];
    size_t k = st.n - 1 < s->pend.n ? st.n - 1 : s->pend.n;
    while (k > held && memcmp(s->pend.p + s->pend.n - k, st.p, k) != 0) k--;
    if (k > held) held = k;
  }
  return held;
}

/* Gives the first n bytes of pend out, with the tokens whose text ends there (all of them at the end). */
static void give(seq *s, size_t n, bool all) {
  int k = 0, lp = 0;
  while (k < s->n_outq && (all || s->outq[k].end <= s->given + n)) {
    s->report[k] = s->outq[k].t;
    lp += s->outq[k].t.n_top;
    k++;
  }
  if (n || k) {
    eng_event ev = {.kind = ENG_TEXT, .text = {s->pend.p, n}, .tokens = s->report, .n_tokens = k, .stats = &s->st};
    s->req.on_event(s->req.ctx, &ev);
  }
  if (k) {
    memmove(s->outq, s->outq + k, (size_t)(s->n_outq - k) * sizeof *s->outq);
    s->n_outq -= k;
    if (lp) memmove(s->lp, s->lp + lp, (size_t)(s->n_lp - lp) * sizeof *s->lp);
    s->n_lp -= lp;
    for (int i = 0; i < s->n_outq; i++)
      if (s->outq[i].t.n_top) s->outq[i].t.top -= lp;
  }
  buf_drop(&s->pend, n);
  s->given += n;
}

/* Room in the queue is bounded by the longest stop string; a stop string of empty tokens cannot overrun it because the queue is then given out. */
static void queue_token(seq *s, int32_t token, const out_lp *lp) {
  if (s->n_outq == s->cap_outq) give(s, 0, true);
  eng_token t = {.token = token, .logprob = lp ? lp->logprob : NAN};
  if (lp && lp->n_top && s->n_lp + lp->n_top <= s->cap_lp) {
    memcpy(s->lp + s->n_lp, lp->top, (size_t)lp->n_top * sizeof *s->lp);
    t.top = s->lp + s->n_lp;
    t.n_top = lp->n_top;
    s->n_lp += lp->n_top;
  }
  s->outq[s->n_outq++] = (struct out_tok){t, s->given + s->pend.n};
}

static bool listed(const int32_t *v, int n, int32_t t) {
  for (int i = 0; i < n; i++)
    if (v[i] == t) return true;
  return false;
}

bool out_token(seq *s, const model *m, int32_t token, const out_lp *lp, eng_finish *ret_finish) {
  int n_out = s->n_tok - s->n_prompt; /* this token included */
  bool may_stop = n_out >= s->req.min_tokens;
  if (may_stop && ((!s->req.ignore_eos && tok_is_end(m->tok, token)) || listed(s->req.stop_ids, s->req.n_stop_ids, token))) {
    queue_token(s, token, lp); /* it has no text, but was drawn and counts: as many tokens are reported as output_tokens says */
    *ret_finish = ENG_STOP;
    return true;
  }
  size_t before = s->pend.n;
  s->det.special = s->req.keep_special || listed(s->req.show, s->req.n_show, token);
  tok_stream_push(m->tok, &s->det, token, &s->pend);
  queue_token(s, token, lp);
  if (may_stop && s->req.n_stop) {
    int which = 0;
    ptrdiff_t at = stop_in(s, before, &which);
    if (at >= 0) {
      size_t keep = (size_t)at + (s->req.include_stop ? s->req.stop[which].n : 0);
      s->st.stop_text = s->req.stop[which].p;
      s->st.stop = which + 1;
      buf_drop(&s->pend, 0);
      s->pend.n = keep; /* the rest never leaves */
      s->det.n = 0;
      *ret_finish = ENG_STOP;
      return true;
    }
  }
  size_t held = s->req.n_stop ? held_back(s) : 0;
  give(s, s->pend.n - held, false);
  if (s->n_tok >= s->max_tok) {
    *ret_finish = ENG_LENGTH;
    return true;
  }
  return false;
}

void out_prompt(seq *s) {
  eng_event ev = {.kind = ENG_PROMPT, .tokens = s->prompt_lp, .n_tokens = s->n_prompt, .stats = &s->st};
  s->prompt_given = true;
  s->req.on_event(s->req.ctx, &ev);
}

void out_done(seq *s, eng_finish f, const err *e) {
  if (f == ENG_LENGTH || f == ENG_STOP) {
    tok_stream_end(&s->det, &s->pend); /* an unfinished code point becomes U+FFFD */
    give(s, s->pend.n, true);
  }
  eng_event ev = {.kind = ENG_DONE, .finish = f, .stats = &s->st, .error = e};
  s->req.on_event(s->req.ctx, &ev);
  s->done = true;
}
