#include "serve/prompt.h"
#include "api/tools.h"
#include "model/reason.h"
#include "model/toolcall.h"
#include <stdio.h>
#include <stdlib.h>

static const char *special_text(const model *m, int id, char out[256]) {
  char scratch[8];
  out[0] = 0;
  if (id < 0) return out;
  str s = tok_piece(m->tok, id, true, scratch);
  if (s.n < 256) {
    memcpy(out, s.p, s.n);
    out[s.n] = 0;
  }
  return out;
}

prompt_chat prompt_chat_of(const api_request *r) {
  return (prompt_chat){.messages = r->messages,
      .tools = r->tools,
      .kwargs = r->template_kwargs,
      .add_generation_prompt = r->add_generation_prompt,
      .now = r->now,
      .written = r->written,
      .n_written = r->n_written,
      .origins = r->calls,
      .n_origins = r->n_calls,
      .calls = r->tools && r->tool_choice == API_TOOLS_AUTO};
}

static bool check_tools(const model *m, err *e) {
  if (tool_form_of(m->chat_source) != TOOL_FORM_NONE) return true;
  if (str_find(m->chat_source, STR("tools")) < 0)
    return err_param(e, ERR_UNSUPPORTED, "tools", "this model's chat template has no place for tools: use a model that was trained with them");
  return err_param(e, ERR_UNSUPPORTED, "tools",
      "this model writes tool calls in a form that is not read here (hermes, llama3, mistral and gemma are): use another model, or 'tool_choice' "
      "'none' to get them as text");
}

static bool render(const model *m, chat_vars *v, const prompt_chat *c, chat_text *ret, err *e) {
  chat_written *w = c->n_written ? malloc(sizeof *w * (size_t)c->n_written) : NULL;
  if (c->n_written && !w) return err_set(e, ERR_NOMEM, "out of memory for a chat of %d past calls", c->n_written);
  for (int i = 0; i < c->n_written; i++) w[i] = (chat_written){c->written[i].value, c->written[i].text};
  v->written = w;
  v->n_written = c->n_written;
  bool ok = chat_render(m->chat, v, ret, e);
  free(w);
  return ok;
}

bool prompt_render(const model *m, const prompt_chat *c, chat_text *ret, err *e) {
  char bos[256], eos[256];
  if (!m->chat) {
    if (m->chat_source.n) return err_param(e, ERR_UNSUPPORTED, "messages", "this model's chat template cannot be used: %.400s", m->chat_err.msg);
    return err_param(e, ERR_UNSUPPORTED, "messages", "this model has no chat template: use /v1/completions with the exact prompt");
  }
  if (c->calls && !check_tools(m, e)) return false;
  chat_vars v = {.messages = c->messages,
      .tools = c->tools,
      .extra = c->kwargs,
      .bos = special_text(m, tok_bos(m->tok), bos),
      .eos = special_text(m, tok_eos(m->tok), eos),
      .add_generation_prompt = c->add_generation_prompt,
      .now = c->now};
  return render(m, &v, c, ret, e);
}

/* ---- past calls whose marks the model spelt out in ordinary tokens ---- */

/* The next place at or behind `from` where all of a mark is the template's own text; -1: none. */
static ptrdiff_t find_mark(const chat_text *t, str mark, size_t from) {
  for (;;) {
    ptrdiff_t k = str_find((str){t->text.p + from, t->text.n - from}, mark);
    if (k < 0) return -1;
    size_t at = from + (size_t)k;
    if (!memchr(t->trust + at, 0, mark.n)) return (ptrdiff_t)at;
    from = at + 1;
  }
}

/* A call stands between two marks of the template and has values between them; examples in a system prompt have none. Calls appear in the order of
 * the messages; where the template left some out, all are left as they are. dry: only counts. */
static int spell_marks(const prompt_chat *c, chat_text *t, str open, str close, bool dry) {
  int n = 0;
  size_t from = 0;
  ptrdiff_t a, b;
  while ((a = find_mark(t, open, from)) >= 0 && (b = find_mark(t, close, (size_t)a + open.n)) >= 0) {
    from = (size_t)b + close.n;
    if (!memchr(t->trust + a, 0, (size_t)(b - a))) continue;
    if (!dry && c->origins[n] == TOOLS_SPELT) {
      memset(t->trust + a, 0, open.n);
      memset(t->trust + b, 0, close.n);
    }
    n++;
  }
  return n;
}

/* What a model wrote in ordinary tokens is shown to it in ordinary tokens, so that a replayed turn is the same tokens again. */
static void spell_calls(const model *m, const prompt_chat *c, chat_text *t) {
  tool_form form = tool_form_of(m->chat_source); /* the one whose calls stand between two marks */
  const char *const *marks = tool_form_marks(form);
  if (!c->origins || form != TOOL_FORM_HERMES || !memchr(c->origins, TOOLS_SPELT, (size_t)c->n_origins)) return;
  str open = str_c(marks[0]), close = str_c(marks[1]);
  if (spell_marks(c, t, open, close, true) == c->n_origins) spell_marks(c, t, open, close, false);
}

/* Whether a prompt ends with the mark of a thought, written by the template itself. */
static bool thinks(const model *m, const chat_text *t) {
  str s = buf_view(&t->text), mark = str_c(reason_marks[0]);
  if (!reason_in_template(m->chat_source)) return false;
  while (s.n && (s.p[s.n - 1] == '\n' || s.p[s.n - 1] == ' ')) s.n--;
  return str_ends(s, mark) && !memchr(t->trust + s.n - mark.n, 0, mark.n);
}

static bool chat_ids(const model *m, const prompt_chat *c, tok_ids *ret, bool *ret_thinks, err *e) {
  chat_text t = {0};
  if (!prompt_render(m, c, &t, e)) return false;
  spell_calls(m, c, &t);
  bool ok = tok_encode(m->tok, buf_view(&t.text), t.trust, true, true, ret, e);
  *ret_thinks = c->add_generation_prompt && thinks(m, &t);
  chat_text_fini(&t);
  return ok;
}

bool prompt_chat_ids(const model *m, const prompt_chat *c, tok_ids *ret, err *e) {
  bool opened;
  return chat_ids(m, c, ret, &opened, e);
}

bool prompt_check_ids(const model *m, const int32_t *ids, int n, const char *path, err *e) {
  int vocab = tok_count(m->tok);
  for (int i = 0; i < n; i++) {
    if (ids[i] >= 0 && ids[i] < vocab) continue;
    char at[96];
    snprintf(at, sizeof at, "%.64s[%d]", path, i);
    return err_param(e, ERR_INPUT, at, "'%s' is %d: this model's token ids end at %d", at, ids[i], vocab - 1);
  }
  return true;
}

static bool copy_ids(const model *m, const api_prompt *p, const char *path, tok_ids *ret, err *e) {
  if (!prompt_check_ids(m, p->ids, p->n_ids, path, e)) return false;
  int32_t *v = malloc(sizeof *v * (size_t)p->n_ids);
  if (!v) return err_set(e, ERR_NOMEM, "out of memory for a prompt of %d tokens", p->n_ids);
  memcpy(v, p->ids, sizeof *v * (size_t)p->n_ids);
  *ret = (tok_ids){v, p->n_ids, p->n_ids};
  return true;
}

bool prompt_ids(const model *m, const api_request *r, int i, tok_ids *ret, bool *ret_thinks, err *e) {
  *ret_thinks = false;
  if (r->messages) {
    prompt_chat c = prompt_chat_of(r);
    return chat_ids(m, &c, ret, ret_thinks, e);
  }
  const api_prompt *p = &r->prompts[i];
  char path[48];
  snprintf(path, sizeof path, r->n_prompts > 1 ? "prompt[%d]" : "prompt", i);
  if (p->ids) return copy_ids(m, p, path, ret, e);
  if (!tok_encode(m->tok, p->text, NULL, r->parse_special, r->add_special, ret, e)) return err_prefix(e, "'%s'", path);
  if (ret->n) return true;
  free(ret->v);
  *ret = (tok_ids){0};
  return err_param(e, ERR_INPUT, path, "'%s' is empty: at least one token is needed", path);
}
