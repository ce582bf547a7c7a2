#include "engine/schedule.h"
#include "base/clock.h"
#include <stdlib.h>
#include <string.h>

bool sched_init(sched *s, kv_pool *kv, int max_seqs, int chunk) {
  *s = (sched){.kv = kv, .max_seqs = max_seqs, .chunk = chunk, .mixed_chunk = chunk};
  s->run = calloc((size_t)max_seqs, sizeof *s->run);
  s->plan = calloc((size_t)max_seqs, sizeof *s->plan);
  s->order = calloc((size_t)max_seqs, sizeof *s->order);
  return s->run && s->plan && s->order;
}

void sched_fini(sched *s) {
  free(s->run);
  free(s->plan);
  free(s->order);
}

void sched_add(sched *s, seq *q) {
  q->next = NULL;
  if (s->wait_tail) s->wait_tail->next = q;
  else s->wait_head = q;
  s->wait_tail = q;
  s->n_wait++;
}

static void wait_pop(sched *s) {
  s->wait_head = s->wait_head->next;
  if (!s->wait_head) s->wait_tail = NULL;
  s->n_wait--;
}

static bool run_remove(sched *s, seq *q) {
  for (int i = 0; i < s->n_run; i++)
    if (s->run[i] == q) {
      memmove(s->run + i, s->run + i + 1, (size_t)(s->n_run - i - 1) * sizeof *s->run);
      s->n_run--;
      return true;
    }
  return false;
}

void sched_drop(sched *s, seq *q) {
  if (!run_remove(s, q)) {
    seq **at = &s->wait_head, *prev = NULL;
    while (*at && *at != q) prev = *at, at = &(*at)->next;
    if (*at) {
      *at = q->next;
      if (s->wait_tail == q) s->wait_tail = prev;
      s->n_wait--;
    }
  }
  kv_release(s->kv, &q->kv);
}

/* The latest arrival goes back to the head of the queue with all it has generated; its prefix is likely still cached when its turn comes. */
static void preempt(sched *s, seq *q) {
  run_remove(s, q);
  kv_release(s->kv, &q->kv);
  q->n_comp = 0;
  q->next = s->wait_head;
  s->wait_head = q;
  if (!s->wait_tail) s->wait_tail = q;
  s->n_wait++;
  s->preemptions++;
  for (int i = 0; i < s->n_plan; i++)
    if (s->plan[i].s == q) {
      memmove(s->plan + i, s->plan + i + 1, (size_t)(s->n_plan - i - 1) * sizeof *s->plan);
      s->n_plan--;
      break;
    }
}

static seq *latest(const sched *s) {
  seq *v = NULL;
  for (int i = 0; i < s->n_run; i++)
    if (!v || s->run[i]->order > v->order) v = s->run[i];
  return v;
}

static bool decoding(const seq *q) { return q->n_comp == q->n_tok - 1 && q->n_tok > q->n_prompt; }

/* Pages it has yet to take for the tokens it has. */
static int pages_to_take(const sched *s, const seq *q) {
  int page = s->kv->kern.page;
  return (q->n_tok + page - 1) / page - q->kv.n;
}

/* Admits from the queue while there is a seat and pages for the whole of what is to be computed now: the prefix found is counted off, and so is what
 * those who run have yet to take, or prompts would be begun only to be thrown out again. */
static void admit(sched *s) {
  int owed = 0;
  for (int i = 0; i < s->n_run; i++) owed += pages_to_take(s, s->run[i]);
  while (s->wait_head && s->n_run < s->max_seqs) {
    seq *q = s->wait_head;
    int hit = seq_wants_all_rows(q) ? 0 : kv_match(s->kv, &q->kv, q->tok, q->logits ? q->logits_from + 1 : q->n_tok);
    owed += pages_to_take(s, q);
    if (s->kv->n_free < owed + (s->n_run > 0)) {
      kv_release(s->kv, &q->kv);
      return;
    }
    wait_pop(s);
    q->n_comp = hit;
    if (!q->admitted_once) {
      q->admitted_once = true;
      q->st.cached_tokens = hit;
      q->st.t_scheduled = clock_now();
      s->queries += (uint64_t)q->n_prompt;
      s->hits += (uint64_t)hit;
    }
    int i = s->n_run++;
    while (i > 0 && s->run[i - 1]->order > q->order) s->run[i] = s->run[i - 1], i--;
    s->run[i] = q;
  }
}

static bool grow(sched *s, seq *q, int n) {
  while (!kv_grow(s->kv, &q->kv, n)) {
    seq *v = latest(s);
    preempt(s, v);
    if (v == q) return false;
  }
  return true;
}

static bool running(const sched *s, const seq *q) {
  for (int i = 0; i < s->n_run; i++)
    if (s->run[i] == q) return true;
  return false;
}

int sched_plan(sched *s) {
  s->n_plan = 0;
  admit(s);
  int rows = 0, decodes = 0;
  seq **order = s->order;
  int n = s->n_run;
  memcpy(order, s->run, (size_t)n * sizeof *order);
  for (int i = 0; i < n; i++)
    if (running(s, order[i]) && decoding(order[i]) && grow(s, order[i], order[i]->n_tok)) s->plan[s->n_plan++] = (sched_row){order[i], 1};
  decodes = s->n_plan;
  int budget = decodes ? (s->mixed_chunk < s->chunk - decodes ? s->mixed_chunk : s->chunk - decodes) : s->chunk;
  s->turn = n ? (s->turn + 1) % n : 0;
  for (int k = 0; k < n && budget > 0; k++) {
    seq *q = order[(s->turn + k) % n];
    if (!running(s, q) || decoding(q)) continue;
    int want = q->n_tok - q->n_comp, cap = q->chunk > 0 && q->chunk < budget ? q->chunk : budget;
    if (want > cap) want = cap;
    if (!grow(s, q, q->n_comp + want)) continue;
    s->plan[s->n_plan++] = (sched_row){q, want};
    budget -= want;
  }
  for (int i = 0; i < s->n_plan; i++) rows += s->plan[i].n;
  return rows;
}
