#include "serve/split.h"
#include "api/tools.h"
#include "base/hash.h"
#include "model/reason.h"
#include <stdlib.h>

struct split {
  split_plan plan;
  split_fn fn;
  void *ctx;
  reason reason;
  tool_parser *tools; /* NULL: calls are text */
  int calls;
  bool spelt, full, failed;
};

static void on_piece(void *ctx, const tool_piece *p) {
  split *s = ctx;
  char id[TOOLS_ID];
  api_event ev = {.kind = API_TOOL, .tool = {.index = p->call}};
  if (s->full) return;
  switch (p->kind) {
  case TOOL_PIECE_TEXT: ev = (api_event){.kind = API_TEXT, .text = p->text}; break;
  case TOOL_PIECE_ARGS: ev.tool.args = p->text; break;
  case TOOL_PIECE_CALL:
    if (p->call && !s->plan.parallel) {
      s->full = true;
      return;
    }
    s->calls++;
    tools_new_id(id, hash64(&p->call, sizeof p->call, s->plan.random), s->plan.form == TOOL_FORM_MISTRAL,
        p->loose   ? TOOLS_FOREIGN
        : s->spelt ? TOOLS_SPELT
                   : TOOLS_OWN);
    ev.tool.id = str_c(id);
    ev.tool.name = p->text;
    break;
  }
  s->fn(s->ctx, &ev);
}

static void on_kind(void *ctx, bool thought, str text) {
  split *s = ctx;
  if (!thought && s->tools) {
    s->failed |= !tool_parser_push(s->tools, text);
    return;
  }
  api_event ev = {.kind = thought ? API_REASONING : API_TEXT, .text = text};
  s->fn(s->ctx, &ev);
}

bool split_new(const split_plan *p, split_fn fn, void *ctx, split **ret, err *e) {
  split *s = calloc(1, sizeof *s);
  if (!s) return err_set(e, ERR_NOMEM, "out of memory for an answer");
  *s = (split){.plan = *p, .fn = fn, .ctx = ctx};
  if (p->form != TOOL_FORM_NONE && !tool_parser_new(p->form, on_piece, s, &s->tools, e)) {
    free(s);
    return false;
  }
  if (s->tools) tool_parser_names(s->tools, p->names, p->n_names);
  reason_init(&s->reason, p->opened, on_kind, s);
  *ret = s;
  return true;
}

void split_spelt(split *s, bool spelt) { s->spelt = spelt; }

bool split_push(split *s, str text) {
  if (s->plan.think) reason_push(&s->reason, text);
  else on_kind(s, false, text);
  return !s->failed;
}

bool split_end(split *s, bool cut) {
  if (s->plan.think) reason_end(&s->reason);
  if (s->tools) s->failed |= !(cut ? tool_parser_cut(s->tools) : tool_parser_end(s->tools));
  return !s->failed;
}

bool split_thinks(const split *s) { return s->plan.think && reason_thinks(&s->reason); }
int split_calls(const split *s) { return s->calls; }
bool split_full(const split *s) { return s->full; }

void split_free(split *s) {
  if (s) tool_parser_free(s->tools);
  free(s);
}
