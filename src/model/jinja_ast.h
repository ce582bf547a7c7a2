/* jinja_ast.h - tokens and the parse tree of a chat template, and the three passes that make it: lex, parse, scope.
 * Not evaluation (jinja.h) and not a tree that is rewritten: after jj_scope it never changes.
 * Ownership: all of it lives in the template's arena; strings point into its copy of the source or into the arena.
 * Threads: built by one; read by any.
 * Failure: false with "chat template, line N: ...": what was found, what was expected. */
#ifndef MODEL_JINJA_AST_H
#define MODEL_JINJA_AST_H
#include "model/jinja.h"

typedef enum jj_tk {
  T_EOF,
  T_DATA,
  T_VAR_BEGIN,
  T_VAR_END,
  T_BLOCK_BEGIN,
  T_BLOCK_END,
  T_NAME,
  T_STR,
  T_INT,
  T_FLOAT,
  T_ADD,
  T_SUB,
  T_DIV,
  T_FLOORDIV,
  T_MUL,
  T_MOD,
  T_POW,
  T_TILDE,
  T_LBRACKET,
  T_RBRACKET,
  T_LPAREN,
  T_RPAREN,
  T_LBRACE,
  T_RBRACE,
  T_EQ,
  T_NE,
  T_GT,
  T_GE,
  T_LT,
  T_LE,
  T_ASSIGN,
  T_DOT,
  T_COLON,
  T_PIPE,
  T_COMMA,
  T_SEMICOLON
} jj_tk;
typedef struct jj_tok {
  jj_tk kind;
  int line;
  str s;
  union {
    int64_t i;
    double f;
  };
} jj_tok;

typedef enum jj_kind {
  N_CONST,
  N_NAME,
  N_NSREF,
  N_LIST,
  N_TUPLE,
  N_DICT,
  N_CONCAT,
  N_UNARY,
  N_BINARY,
  N_AND,
  N_OR,
  N_COMPARE,
  N_COND,
  N_ATTR,
  N_ITEM,
  N_SLICE,
  N_CALL,
  N_FILTER,
  N_TEST,
  N_DATA,
  N_PRINT,
  N_IF,
  N_FOR,
  N_SET,
  N_SETBLOCK,
  N_MACRO,
  N_CALLBLOCK,
  N_FILTERBLOCK,
  N_WITH,
  N_BREAK,
  N_CONTINUE,
  N_GENERATION
} jj_kind;

typedef struct jj_node jj_node;
typedef struct jj_list {
  jj_node **v;
  int n;
} jj_list;
/* A variable: `up` functions outward, then a slot there. */
typedef struct jj_ref {
  int up, slot;
} jj_ref;

typedef struct jj_kw {
  str name;
  jj_node *val;
} jj_kw;
typedef struct jj_args {
  jj_list pos;
  jj_kw *kw;
  int n_kw;
  jj_node *star, *star2;
} jj_args;

/* What entering a scope does to each of its variables. */
enum { LOAD_PARAM, LOAD_UNSET, LOAD_RESOLVE, LOAD_ALIAS };
typedef struct jj_load {
  uint8_t how;
  int slot;
  jj_ref from;
  str name;
} jj_load;
typedef struct jj_frame {
  jj_load *v;
  int n;
} jj_frame;

/* A macro or the body of a call block: parameters, defaults of the last n_defaults of them, variables of its own. */
typedef struct jj_fn {
  str name;
  jj_list params, defaults, body;
  jj_frame frame;
  int n_slots, caller_slot, kwargs_slot, varargs_slot; /* -1: the body does not use it */
  bool caller_is_param;
} jj_fn;

typedef struct jj_for {
  jj_node *target, *iter, *test;
  jj_list body, other;
  jj_frame frame, test_frame, other_frame;
  jj_node *test_target; /* the target again, in the test's own scope */
  int loop_slot;        /* -1: the body does not use `loop` */
} jj_for;

struct jj_node {
  uint8_t kind, op; /* op: jj_op of UNARY and BINARY */
  bool store;       /* NAME: assigned to, not read */
  int line;
  union {
    jj_val val; /* CONST, DATA */
    struct {
      str id, attr;
      jj_ref ref;
    } name;      /* NAME; NSREF id.attr */
    jj_list seq; /* LIST, TUPLE, CONCAT, PRINT; DICT: key, value, ... */
    struct {
      jj_node *a, *b, *c;
    } sub; /* UNARY a; BINARY, AND, OR a b; COND b if a else c; ITEM a[b]; SLICE a:b:c */
    struct {
      jj_node *base;
      str id;
    } attr; /* ATTR */
    struct {
      jj_node *first;
      jj_node **rhs;
      uint8_t *ops;
      int n;
    } cmp; /* COMPARE: a chain */
    struct {
      jj_node *base;
      str id;
      const jj_func *def;
      jj_args *args;
    } call; /* CALL, FILTER, TEST; a FILTER with base NULL reads the captured block */
    struct {
      jj_node **test;
      jj_list *body;
      int n;
      jj_list other;
    } cond;       /* IF */
    jj_for *loop; /* FOR */
    struct {
      jj_node *target, *value;
      jj_list body;
      jj_frame frame;
    } set; /* SET; SETBLOCK and FILTERBLOCK: value is the filter or NULL */
    struct {
      jj_fn *fn;
      jj_ref ref;
      jj_node *call;
    } fn; /* MACRO, CALLBLOCK, GENERATION */
    struct {
      jj_list targets, values, body;
      jj_frame frame;
    } with; /* WITH */
  };
};

/* A template being compiled. */
typedef struct jj_src {
  arena *mem;
  err *e;
  str text; /* newlines normalized */
  jj_tok *tok;
  int n_tok, cap_tok;
  jj_list body;
  jj_frame frame; /* of the whole template */
  int n_slots;
} jj_src;

bool jj_lex(jj_src *s);
bool jj_parse(jj_src *s);
bool jj_scope(jj_src *s);
bool jj_src_fail(jj_src *s, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool jj_src_refuse(jj_src *s, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void *jj_src_alloc(jj_src *s, size_t count, size_t size);
/* Calls fn on each direct child in source order; stops at false. */
bool jj_children(const jj_node *n, bool (*fn)(jj_node *child, void *arg), void *arg);

/* A macro with the scope it was defined in. */
typedef struct jj_scope_act {
  struct jj_scope_act *up;
  jj_val *v;
} jj_act;
struct jj_macro {
  const jj_fn *fn;
  jj_act *up;
};

/* Runs a compiled template's statements into rt->out. */
bool jj_run(jj_rt *rt, const jj_list *body, const jj_frame *frame, int n_slots);
#endif
