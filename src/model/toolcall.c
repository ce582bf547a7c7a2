/* A machine over single bytes, so that no cut of the text can matter. Before a call's name is known every byte of it lies in `held` and can still
 * come out as text; from then on the call is committed, and whatever is wrong with it stays inside it. */
#include "model/toolcall.h"
#include "base/buf.h"
#include "model/toolvalue.h"
#include <stdlib.h>

/* What follows a mark. */
typedef enum body { BODY_JSON, BODY_FENCE, BODY_ARRAY, BODY_GEMMA, BODY_PYTHON } body;
typedef struct mark {
  const char *text;
  body body;
  const char *close; /* the text that ends a call, or a group of them; it may be missing in what a model writes */
} mark;

/* SLIP: no template says so, but small models forget the marks, or put the object between ``` as they do with any code. */
typedef enum bare { BARE_NO, BARE_SLIP, BARE_OWN } bare;

typedef struct form_row {
  tool_form form;
  const char *name;
  const char *has[4], *lacks[4]; /* literals of its chat templates: any of these, none of those */
  mark marks[3];
  const char *seen[8]; /* all texts of marks, for tool_form_marks */
  bool newline;        /* templates put one in front of a call */
  bare bare;           /* an answer may also begin with the object itself */
} form_row;

/* The first row that fits counts. Other families write <tool_call> too, with something else than JSON in it. */
static const form_row forms[] = {
    {.form = TOOL_FORM_MISTRAL,
        .name = "mistral",
        .has = {"[TOOL_CALLS]"},
        .marks = {{"[TOOL_CALLS]", BODY_ARRAY, NULL}},
        .seen = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}},
    {.form = TOOL_FORM_GEMMA,
        .name = "gemma",
        .has = {"<start_function_call>", "<|tool_call>call:", "```tool_code"},
        .marks = {{"<start_function_call>", BODY_GEMMA, "<end_function_call>"}, {"<|tool_call>", BODY_GEMMA, "<tool_call|>"},
            {"```tool_code", BODY_PYTHON, "```"}},
        .seen = {"<start_function_call>", "<end_function_call>", "<|tool_call>", "<tool_call|>", "<escape>", "<|\"|>"}},
    {.form = TOOL_FORM_HERMES,
        .name = "hermes",
        .has = {"<tool_call>"},
        .lacks = {"<function=", "<arg_key>", "<parameter=", "<invoke"},
        .marks = {{"<tool_call>", BODY_JSON, "</tool_call>"}, {"```json", BODY_FENCE, "```"}},
        .seen = {"<tool_call>", "</tool_call>"},
        .newline = true,
        .bare = BARE_SLIP},
    {.form = TOOL_FORM_LLAMA3,
        .name = "llama3",
        .has = {"<|python_tag|>", "\"parameters\": "},
        .lacks = {"tool_name", "<function="},
        .marks = {{"<|python_tag|>", BODY_JSON, NULL}},
        .seen = {"<|python_tag|>"},
        .bare = BARE_OWN},
};

static const form_row *row_of(tool_form f) {
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (forms[i].form == f) return &forms[i];
  return NULL;
}

static bool any_in(str t, const char *const words[4]) {
  for (int i = 0; i < 4 && words[i]; i++)
    if (str_find(t, str_c(words[i])) >= 0) return true;
  return false;
}

tool_form tool_form_of(str t) {
  if (str_find(t, STR("tools")) < 0) return TOOL_FORM_NONE;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (any_in(t, forms[i].has)) return any_in(t, forms[i].lacks) ? TOOL_FORM_NONE : forms[i].form;
  return TOOL_FORM_NONE;
}

const char *tool_form_name(tool_form f) {
  const form_row *r = row_of(f);
  return r ? r->name : "none";
}

const char *const *tool_form_marks(tool_form f) {
  static const char *const none[] = {NULL};
  const form_row *r = row_of(f);
  return r ? r->seen : none;
}

/* ---- the parser ---- */

typedef enum state {
  S_TEXT,  /* looking for a mark */
  S_BODY,  /* behind a mark: the object, the array or the name */
  S_FIRST, /* behind {: a key or } */
  S_KEY,
  S_COLON,
  S_VALUE,
  S_NAME,  /* a name in quotes */
  S_ARGS,  /* a JSON value that is passed on */
  S_SKIP,  /* a JSON value that is not */
  S_NEXT,  /* behind a value: , or } */
  S_WORD,  /* a name without quotes */
  S_TAG,   /* Mistral: [ARGS] or [CALL_ID] behind the name */
  S_ID,    /* Mistral: the id, up to the next [ */
  S_VARGS, /* arguments that are not JSON, translated */
  S_RAW,   /* such arguments when they could not be read: as they are, up to the close */
  S_CLOSE  /* behind the arguments */
} state;
enum { KEY_OTHER, KEY_NAME, KEY_ARGS };

struct tool_parser {
  const form_row *form;
  tool_piece_fn fn;
  void *ctx;
  const str *names;
  int n_names;
  state state;
  const mark *mark;   /* the one this call began with; NULL: a bare object */
  bool begun;         /* something else than white space was seen: a bare object is none any more */
  bool after;         /* a call has ended and no text has come since */
  bool committed;     /* of the current call: its name was told */
  bool named, argued; /* of the current object: name and arguments were seen */
  bool doubled;       /* it began with {{ */
  bool array;         /* Mistral: inside [...] */
  bool kept;          /* the byte under way lies in `held` already */
  bool failed;        /* out of memory */
  int calls, key;
  buf text, args;       /* to be told at the end of this push */
  buf held, gap, early; /* of a call that is none yet; white space behind a call; arguments that came before the name */
  buf name;
  char word[16]; /* a key */
  int n_word, matched;
  int depth; /* of a JSON value */
  bool quoted, escaped;
  toolvalue value;
};

bool tool_parser_new(tool_form f, tool_piece_fn fn, void *ctx, tool_parser **ret, err *e) {
  tool_parser *p = calloc(1, sizeof *p);
  if (!p) return err_set(e, ERR_NOMEM, "out of memory for reading tool calls");
  *p = (tool_parser){.form = row_of(f), .fn = fn, .ctx = ctx};
  buf *all[] = {&p->text, &p->args, &p->held, &p->gap, &p->early, &p->name};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_init(all[i], SIZE_MAX / 4);
  *ret = p;
  return true;
}

void tool_parser_free(tool_parser *p) {
  if (!p) return;
  buf *all[] = {&p->text, &p->args, &p->held, &p->gap, &p->early, &p->name};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_fini(all[i]);
  free(p);
}

void tool_parser_names(tool_parser *p, const str *names, int n) {
  p->names = names;
  p->n_names = n;
}

int tool_parser_calls(const tool_parser *p) { return p->calls; }

static bool space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
static bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool in_name(char c) { return letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == ':'; }

/* Nothing but its keys and name tells this object from any other. */
static bool is_loose(const tool_parser *p) { return !p->mark || p->mark->body == BODY_FENCE; }

/* ---- what goes out ---- */

static void tell(tool_parser *p, int kind, buf *b) {
  if (b->failed) p->failed = true;
  else if (b->n) {
    tool_piece t = {.kind = (__typeof__(((tool_piece *)0)->kind))kind, .call = p->calls - 1, .text = buf_view(b)};
    t.loose = kind == TOOL_PIECE_CALL && is_loose(p) && p->form->bare != BARE_OWN;
    p->fn(p->ctx, &t);
  }
  buf_clear(b);
}

static void flush_args(tool_parser *p) { tell(p, TOOL_PIECE_ARGS, &p->args); }
static void flush_text(tool_parser *p) { tell(p, TOOL_PIECE_TEXT, &p->text); }

static void put_text(tool_parser *p, const char *s, size_t n) {
  if (!n) return;
  flush_args(p);
  buf_str(&p->text, buf_view(&p->gap));
  buf_clear(&p->gap);
  buf_put(&p->text, s, n);
  p->after = false;
  p->begun = true;
}

static void release(tool_parser *p, size_t n) {
  put_text(p, p->held.p, n);
  buf_drop(&p->held, n);
}

/* The name is known: from here on this is a call. */
static void commit(tool_parser *p) {
  flush_args(p);
  flush_text(p);
  p->calls++;
  p->committed = true;
  buf_clear(&p->held);
  buf_clear(&p->gap);
  tell(p, TOOL_PIECE_CALL, &p->name);
  buf_str(&p->args, buf_view(&p->early));
  buf_clear(&p->early);
}

static void to_text(tool_parser *p) {
  p->state = S_TEXT;
  p->matched = 0;
  p->committed = p->array = false;
  buf_clear(&p->early);
}

static void step(tool_parser *p, char c);

/* Not a call: what was held back is text, and c is looked at again. */
static void refuse(tool_parser *p, char c) {
  release(p, p->held.n);
  to_text(p);
  step(p, c);
}

/* A byte that does not belong where it is. Inside a committed call its end is looked for. */
static void wrong(tool_parser *p, char c) {
  if (!p->committed) {
    refuse(p, c);
    return;
  }
  p->state = S_CLOSE;
  p->matched = 0;
  step(p, c);
}

/* A call without arguments has empty ones. */
static void end_call(tool_parser *p) {
  if (!p->argued) buf_puts(&p->args, "{}");
  flush_args(p);
  to_text(p);
  p->after = true;
}

/* ---- text ---- */

/* Where `held` is a whole mark (1), the head of one (0) or neither (-1). */
static int match_mark(tool_parser *p) {
  str h = buf_view(&p->held);
  int best = -1;
  for (int i = 0; i < 3 && p->form->marks[i].text; i++) {
    str m = str_c(p->form->marks[i].text), s = h;
    if (p->form->newline && s.n && s.p[0] == '\n') s = (str){s.p + 1, s.n - 1};
    if (str_eq(s, m)) {
      p->mark = &p->form->marks[i];
      return 1;
    }
    if (str_starts(m, s)) best = 0;
  }
  return best;
}

static void begin_body(tool_parser *p, const mark *m) {
  p->mark = m;
  p->begun = true;
  p->named = p->argued = p->doubled = p->committed = p->array = false;
  p->n_word = p->matched = 0;
  buf_clear(&p->name);
  buf_clear(&p->early);
  p->state = m ? S_BODY : S_FIRST;
}

static void on_text(tool_parser *p, char c) {
  if (p->after && !p->held.n && (space(c) || (p->form->bare && c == ';'))) {
    buf_putc(&p->gap, c);
    return;
  }
  buf_putc(&p->held, c);
  p->kept = true;
  if (p->form->bare && c == '{' && p->held.n == 1 && (!p->begun || p->after)) {
    begin_body(p, NULL);
    return;
  }
  if (p->form->bare && !p->begun && space(c)) {
    release(p, p->held.n);
    p->begun = false;
    return;
  }
  int m;
  while (p->held.n && (m = match_mark(p)) < 0) release(p, 1);
  if (p->held.n && m > 0) begin_body(p, p->mark);
}

/* ---- a call as a JSON object ---- */

static void begin_json(tool_parser *p, state s, char c) {
  p->state = s;
  p->depth = 0;
  p->quoted = p->escaped = false;
  step(p, c);
}

static void on_body(tool_parser *p, char c) {
  if (space(c)) return;
  switch (p->mark->body) {
  case BODY_ARRAY:
    if (c == '[' && !p->array) {
      p->array = true;
      return;
    }
    if (!p->array && in_name(c)) break;
    if (!p->array) {
      wrong(p, c);
      return;
    } /* fall through */
  case BODY_JSON:
  case BODY_FENCE:
    if (c != '{') wrong(p, c);
    else p->state = S_FIRST;
    return;
  case BODY_GEMMA:
  case BODY_PYTHON:
    if (in_name(c)) break;
    if (p->mark->body == BODY_GEMMA || (c != '[' && c != '(')) wrong(p, c);
    return;
  }
  buf_clear(&p->name);
  p->state = S_WORD;
  buf_putc(&p->name, c);
}

/* A bare object is a call only if nothing in it speaks against it: anybody may write an object with a name. */
static bool allowed_bare(const tool_parser *p) {
  str w = {p->word, (size_t)p->n_word};
  return !is_loose(p) || p->key != KEY_OTHER || str_is(w, "type") || str_is(w, "id");
}

static void end_key(tool_parser *p) {
  str w = {p->word, (size_t)p->n_word};
  p->key = KEY_OTHER;
  if (str_is(w, "name") && !p->named) p->key = KEY_NAME;
  if ((str_is(w, "arguments") || str_is(w, "parameters")) && !p->argued) p->key = KEY_ARGS;
  p->state = S_COLON;
}

static void on_key(tool_parser *p, char c) {
  if (c == '"') end_key(p);
  else if (c == '\\' || (unsigned char)c < 0x20) wrong(p, c);
  else if (p->n_word < (int)sizeof p->word) p->word[p->n_word++] = c;
}

static void on_value(tool_parser *p, char c) {
  if (space(c)) return;
  if (!allowed_bare(p) || (is_loose(p) && p->key == KEY_ARGS && c != '{')) {
    wrong(p, c);
    return;
  }
  if (p->key == KEY_NAME) {
    if (c == '"') p->state = S_NAME;
    else wrong(p, c);
    return;
  }
  if (p->key == KEY_ARGS) {
    p->argued = true;
    if (p->named && !p->committed) commit(p);
  }
  begin_json(p, p->key == KEY_ARGS ? S_ARGS : S_SKIP, c);
}

static bool is_offered(const tool_parser *p) {
  for (int i = 0; i < p->n_names; i++)
    if (str_eq(p->names[i], buf_view(&p->name))) return true;
  return !p->n_names;
}

static void on_name(tool_parser *p, char c) {
  if (c == '"') {
    if (!p->name.n || (is_loose(p) && !is_offered(p))) {
      wrong(p, c);
      return;
    }
    p->named = true;
    p->state = S_NEXT;
    if (!is_loose(p) || p->argued) commit(p);
  } else if (c == '\\' || (unsigned char)c < 0x20 || p->name.n == TOOL_NAME) wrong(p, c);
  else buf_putc(&p->name, c);
}

static void on_next(tool_parser *p, char c) {
  if (space(c)) return;
  p->n_word = 0;
  if (c == ',') p->state = S_FIRST;
  else if (c != '}' || !p->committed) wrong(p, c);
  else if (p->array || p->form->bare == BARE_SLIP || (p->mark && p->mark->close)) p->state = S_CLOSE, p->matched = 0;
  else end_call(p);
}

static void on_first(tool_parser *p, char c) {
  if (space(c)) return;
  p->n_word = 0;
  if (c == '{' && p->form->bare == BARE_SLIP && !p->doubled && !p->named && !p->argued) {
    p->doubled = true; /* Qwen's prompt shows the object in {{ }}, and some of its models copy that */
    return;
  }
  if (c == '"') p->state = S_KEY;
  else if (c == '}') on_next(p, c);
  else wrong(p, c);
}

static void put_arg(tool_parser *p, const char *s, size_t n) {
  if (p->state == S_ARGS) buf_put(p->committed ? &p->args : &p->early, s, n);
}

static void end_json(tool_parser *p) {
  p->state = S_NEXT;
  if (p->mark && p->mark->body == BODY_ARRAY && !p->array) end_call(p);
}

/* One byte of a value: brackets are counted, strings looked over. The text that closes the call ends it even where brackets are still open. */
static void on_json(tool_parser *p, char c) {
  const char *close = p->mark && !p->quoted ? p->mark->close : NULL;
  if (close && p->matched && c != close[p->matched]) {
    put_arg(p, close, (size_t)p->matched);
    p->matched = 0;
  }
  if (close && c == close[p->matched]) {
    if (close[p->matched + 1]) p->matched++;
    else if (p->committed) end_call(p);
    else refuse(p, c);
    return;
  }
  if (p->quoted) {
    put_arg(p, &c, 1);
    if (p->escaped) p->escaped = false;
    else if (c == '\\') p->escaped = true;
    else if (c == '"') p->quoted = false;
    if (!p->quoted && !p->depth) end_json(p);
    return;
  }
  bool ends = space(c) || c == ',' || c == '}' || c == ']';
  if (!p->depth && ends) { /* behind a number or a word */
    end_json(p);
    step(p, c);
    return;
  }
  put_arg(p, &c, 1);
  if (c == '"') p->quoted = true;
  else if (c == '{' || c == '[') p->depth++;
  else if ((c == '}' || c == ']') && !--p->depth) end_json(p);
}

/* ---- names without quotes: Mistral's second form, Gemma's, Python ---- */

static void on_word(tool_parser *p, char c) {
  str name = buf_view(&p->name);
  if (in_name(c) && p->name.n < TOOL_NAME) {
    buf_putc(&p->name, c);
    return;
  }
  p->n_word = p->matched = 0;
  if (p->mark->body == BODY_ARRAY) {
    if (c != '[') wrong(p, c);
    else p->state = S_TAG, p->matched = 1;
    return;
  }
  bool gemma = p->mark->body == BODY_GEMMA;
  if (!gemma && str_is(name, "print") && c == '(') {
    p->state = S_BODY;
    return;
  }
  if (c != (gemma ? '{' : '(') || (gemma && (!str_starts(name, STR("call:")) || name.n == 5))) {
    wrong(p, c);
    return;
  }
  if (gemma) buf_drop(&p->name, 5);
  commit(p);
  p->argued = true;
  toolvalue_init(&p->value);
  p->state = S_VARGS;
  step(p, c);
}

static void on_tag(tool_parser *p, char c) {
  static const char args[] = "[ARGS]", id[] = "[CALL_ID]";
  const char *tag = p->matched == 1 ? (c == 'C' ? id : args) : p->n_word ? id : args;
  p->n_word = tag == id;
  if (c != tag[p->matched]) {
    wrong(p, c);
    return;
  }
  if (tag[++p->matched]) return;
  p->matched = 0;
  if (tag == id) {
    p->state = S_ID;
    return;
  }
  commit(p);
  p->argued = true;
  p->key = KEY_ARGS;
  p->state = S_VALUE;
}

static void on_id(tool_parser *p, char c) {
  if (c == '[') p->state = S_TAG, p->matched = 1;
  else if (!in_name(c)) wrong(p, c);
}

static void on_vargs(tool_parser *p, char c) {
  toolvalue_ret r = toolvalue_push(&p->value, c, &p->args);
  p->matched = 0;
  if (r == TOOLVALUE_DONE) p->state = S_CLOSE;
  if (r != TOOLVALUE_BAD) return;
  p->state = S_RAW;
  step(p, c);
}

static void on_raw(tool_parser *p, char c) {
  const char *close = p->mark->close;
  if (c != close[p->matched]) {
    buf_put(&p->args, close, (size_t)p->matched);
    p->matched = 0;
    if (c != close[0]) {
      buf_putc(&p->args, c);
      return;
    }
  }
  if (!close[++p->matched]) end_call(p);
}

/* ---- behind the arguments ---- */

static void on_close(tool_parser *p, char c) {
  const char *close = p->mark ? p->mark->close : NULL;
  if (close && (p->matched || c == close[0])) {
    if (c == close[p->matched]) {
      if (close[++p->matched]) return;
      buf_clear(&p->gap);
      end_call(p);
      return;
    }
    int n = p->matched; /* another text than the close begins alike: it may be the next call's mark */
    end_call(p);
    for (int i = 0; i < n; i++) step(p, close[i]);
    step(p, c);
    return;
  }
  if (space(c)) {
    buf_putc(&p->gap, c); /* it is text after all where the close is missing and text follows */
    return;
  }
  if (c == '}') return; /* one bracket too many is the most frequent slip of small models */
  if (p->array && c == ',') {
    begin_body(p, p->mark);
    p->array = true;
    return;
  }
  if (p->array && c == ']') {
    buf_clear(&p->gap);
    end_call(p);
    return;
  }
  if (c == '{' && p->mark && p->mark->body == BODY_FENCE) {
    flush_args(p);
    begin_body(p, p->mark);
    step(p, c);
    return;
  }
  if (p->mark && p->mark->body == BODY_PYTHON) {
    if (c == ')' || c == ',' || c == ']') return;
    if (letter(c)) {
      flush_args(p);
      begin_body(p, p->mark);
      step(p, c);
      return;
    }
  }
  end_call(p);
  step(p, c);
}

static void step(tool_parser *p, char c) {
  if (p->state != S_TEXT && !p->committed && p->held.n >= TOOL_HELD) {
    refuse(p, c);
    return;
  }
  switch (p->state) {
  case S_TEXT: on_text(p, c); break;
  case S_BODY: on_body(p, c); break;
  case S_FIRST: on_first(p, c); break;
  case S_KEY: on_key(p, c); break;
  case S_COLON:
    if (c == ':') p->state = S_VALUE;
    else if (!space(c)) wrong(p, c);
    break;
  case S_VALUE: on_value(p, c); break;
  case S_NAME: on_name(p, c); break;
  case S_ARGS:
  case S_SKIP: on_json(p, c); break;
  case S_NEXT: on_next(p, c); break;
  case S_WORD: on_word(p, c); break;
  case S_TAG: on_tag(p, c); break;
  case S_ID: on_id(p, c); break;
  case S_VARGS: on_vargs(p, c); break;
  case S_RAW: on_raw(p, c); break;
  case S_CLOSE: on_close(p, c); break;
  }
}

bool tool_parser_push(tool_parser *p, str text) {
  if (!p->form) buf_str(&p->text, text);
  for (size_t i = 0; p->form && i < text.n; i++) {
    char c = text.p[i];
    p->kept = false;
    step(p, c);
    if (p->state != S_TEXT && !p->committed && !p->kept) buf_putc(&p->held, c);
    p->failed |= p->held.failed | p->gap.failed | p->early.failed | p->name.failed;
  }
  flush_args(p);
  flush_text(p);
  return !p->failed;
}

static bool finish(tool_parser *p, bool cut) {
  bool head = p->state != S_TEXT && !p->committed;
  if (head && cut && p->mark) buf_clear(&p->held);
  if (!p->committed) release(p, p->held.n);
  if (p->committed && !cut) end_call(p);
  flush_args(p);
  flush_text(p);
  to_text(p);
  return !p->failed;
}

bool tool_parser_end(tool_parser *p) { return finish(p, false); }
bool tool_parser_cut(tool_parser *p) { return finish(p, true); }
