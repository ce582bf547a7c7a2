/* jinja.h - values of the chat template language and the state of one render: what the files jinja_*.c share.
 * Not for users of the room (they see chat.h) and not Python: the values, operators and methods that templates use, printed as Python prints them.
 * Ownership: everything made while rendering lives in the render's arena; constants live in the template's. Nothing is freed alone.
 * Threads: a jj_rt belongs to one thread; template constants are shared and never written.
 * Failure: false (or -1 from an iterator) with the err filled by jj_fail: ERR_INPUT, "chat template, line N: ...". Outputs are then unspecified. */
#ifndef MODEL_JINJA_H
#define MODEL_JINJA_H
#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

/* Bounds of one render. A template is as untrusted as the model file it came in. */
enum { JJ_MAX_DEPTH = 1200, JJ_MAX_AST = 300, JJ_MAX_RANGE = 100000, JJ_MAX_DATA_DEPTH = 200, JJ_MAX_ARGS = 6 };
#define JJ_MAX_SOURCE ((size_t)1 << 20)
#define JJ_MAX_OUTPUT ((size_t)32 << 20)
#define JJ_MAX_MEMORY ((size_t)256 << 20)
#define JJ_MAX_STEPS ((int64_t)20000000)

typedef enum jj_tag {
  J_MISSING, /* no value: an unset slot or an argument that was not given; templates never see it */
  J_UNDEF,
  J_NONE,
  J_BOOL,
  J_INT,
  J_FLOAT,
  J_STR,
  J_LIST,
  J_TUPLE,
  J_DICT,
  J_RANGE,
  J_VIEW, /* dict.keys(), .values(), .items() */
  J_ITER, /* a generator: map, select, reverse ...; used up by reading it once */
  J_NS,
  J_MACRO,
  J_FUNC,
  J_METHOD,
  J_LOOP,
  J_CYCLER,
  J_JOINER
} jj_tag;

typedef struct jj_val jj_val;
typedef struct jj_rt jj_rt;
typedef struct jj_iter jj_iter;
typedef struct jj_func jj_func;

/* Which bytes came from the template itself. */
enum { JT_NO = 0, JT_YES = 1, JT_MIX = 2 };

/* A block of bytes with room behind it: a string that ends where the block's used part ends can be appended to in place. */
typedef struct jj_grow {
  char *p;
  uint8_t *t;
  size_t used, cap;
} jj_grow;

typedef struct jj_str {
  const char *p;    /* valid UTF-8 */
  const uint8_t *t; /* [n] 1 = trusted; only when trust == JT_MIX */
  size_t n;
  size_t len; /* code points; JJ_LEN_UNKNOWN until asked for */
  uint8_t trust;
  bool json;     /* JSON, or meant to be, as a model wrote it: tojson leaves it as it is */
  bool html;     /* Markup: came from `safe` or `escape`; joining it with + escapes the other side */
  jj_grow *grow; /* NULL: exact */
} jj_str;
#define JJ_LEN_UNKNOWN SIZE_MAX

/* A TUPLE that groupby made: its parts are also called grouper and list. */
enum { J_GROUP = 1 };
/* Why a value is undefined: decides the message when it is used. */
enum { JU_TEXT, JU_NAME, JU_ATTR, JU_UNSAFE };

struct jj_val {
  uint8_t tag;
  uint8_t sub;   /* UNDEF: JU_*; VIEW: 0 keys, 1 values, 2 items; TUPLE: J_GROUP */
  uint8_t owner; /* UNDEF by attribute: tag of the object asked */
  union {
    bool b;
    int64_t i;
    double f;
    jj_str *s;
    struct jj_seq *q;  /* LIST, TUPLE */
    struct jj_dict *d; /* DICT, VIEW, NS */
    struct jj_range *r;
    jj_iter *it;
    struct jj_macro *m;
    const jj_func *fn;
    struct jj_method *me;
    struct jj_loop *lo;
    struct jj_cycler *cy;
    const str *name;  /* UNDEF by name or attribute */
    const char *text; /* UNDEF otherwise */
    const void *p;
  };
};

typedef struct jj_seq {
  jj_val *v;
  size_t n, cap;
} jj_seq;
typedef struct jj_pair {
  jj_val k, v;
  uint64_t h;
} jj_pair;
/* Insertion-ordered. idx is an open-addressing table of positions + 1, built from 8 entries on. */
typedef struct jj_dict {
  jj_pair *v;
  size_t n, cap;
  uint32_t *idx;
  size_t idx_cap;
  str written; /* the JSON text it was read from, where tojson is to print that; else empty */
} jj_dict;
typedef struct jj_range {
  int64_t start, stop, step, n;
} jj_range;
typedef struct jj_cycler {
  jj_val *v;
  size_t n, pos;
  bool used;
} jj_cycler; /* JOINER: v[0] is the separator */

struct jj_iter {
  int (*next)(jj_rt *rt, jj_iter *it, jj_val *ret); /* 1 an item; 0 the end, -1 failed: *ret is then anything */
  jj_val src;
  size_t i;
  jj_iter *in; /* what this one reads from */
  void *st;
};

/* Arguments of a call as written. */
typedef struct jj_kwarg {
  str name;
  jj_val val;
} jj_kwarg;
typedef struct jj_argv {
  jj_val *v;
  size_t n;
  jj_kwarg *kw;
  size_t n_kw;
} jj_argv;

/* A call that a built-in sees: the receiver, and its arguments bound to the names of the table row (J_MISSING: not given). */
typedef struct jj_call {
  jj_val self;
  jj_val a[JJ_MAX_ARGS];
  const jj_argv *raw;
  const jj_func *fn;
} jj_call;
/* A row of a table of filters, tests, functions or methods. params: "a,b,c"; a leading '/' means by position only; NULL: the function reads raw
 * itself. */
struct jj_func {
  const char *name;
  bool (*fn)(jj_rt *rt, jj_call *c, jj_val *ret);
  const char *params;
  int need;
};
typedef struct jj_method {
  jj_val self;
  const jj_func *fn;
} jj_method;

/* Output under construction, and the builder of every string that is not a slice of another. */
typedef struct jj_out {
  char *p;
  uint8_t *t;
  size_t n, cap;
  bool seen[2], failed;
} jj_out;

struct jj_rt {
  arena mem;
  err *e;
  int line; /* of the node being evaluated, for messages */
  int depth;
  int64_t steps; /* left */
  jj_dict *vars; /* what names resolve to that the template does not set itself */
  int64_t now;
  jj_out *out;                        /* where printing goes: the prompt, or a capture */
  const struct chat_written *written; /* [n_written] chat.h's, those that are still to come */
  int n_written;
};

/* jinja_value.c: making and comparing values. */
bool jj_fail(jj_rt *rt, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool jj_refuse(jj_rt *rt, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* ERR_UNSUPPORTED: Python has it, we do not */
bool jj_spend(jj_rt *rt, size_t n);                                                    /* n steps of the budget */
void *jj_alloc(jj_rt *rt, size_t count, size_t size);                                  /* NULL with the err set */
bool jj_undef_fail(jj_rt *rt, jj_val v);                                               /* used an undefined value: says which; always false */
const char *jj_type_name(jj_val v);                                                    /* as Python names it */

static inline jj_val jj_none(void) { return (jj_val){.tag = J_NONE}; }
static inline jj_val jj_bool(bool b) { return (jj_val){.tag = J_BOOL, .b = b}; }
static inline jj_val jj_int(int64_t i) { return (jj_val){.tag = J_INT, .i = i}; }
static inline jj_val jj_float(double f) { return (jj_val){.tag = J_FLOAT, .f = f}; }
static inline jj_val jj_undef(const char *text) { return (jj_val){.tag = J_UNDEF, .sub = JU_TEXT, .text = text}; }
static inline bool jj_is_none(jj_val v) { return v.tag == J_NONE || v.tag == J_MISSING; } /* for optional arguments */
static inline bool jj_is_intlike(jj_val v) { return v.tag == J_INT || v.tag == J_BOOL; }
static inline int64_t jj_as_int(jj_val v) { return v.tag == J_BOOL ? v.b : v.i; }

bool jj_str_new(jj_rt *rt, str s, uint8_t trust, jj_val *ret);                  /* borrows the bytes; trust: JT_NO or JT_YES */
bool jj_str_sub(jj_rt *rt, const jj_str *s, size_t off, size_t n, jj_val *ret); /* shares the bytes */
bool jj_concat(jj_rt *rt, const jj_str *a, const jj_str *b, jj_val *ret);
size_t jj_str_len(jj_str *s);           /* code points */
size_t jj_str_at(jj_str *s, size_t cp); /* byte offset of a code point, cp <= len */
static inline str jj_view(const jj_str *s) { return (str){s->p, s->n}; }

bool jj_seq_new(jj_rt *rt, jj_tag tag, size_t cap, jj_val *ret);
bool jj_seq_add(jj_rt *rt, jj_seq *q, jj_val v);
bool jj_pair_new(jj_rt *rt, jj_val a, jj_val b, jj_val *ret); /* a tuple of two */
bool jj_dict_new(jj_rt *rt, jj_tag tag, jj_val *ret);
bool jj_dict_set(jj_rt *rt, jj_dict *d, jj_val k, jj_val v);          /* fails on an unhashable key */
bool jj_dict_get(jj_rt *rt, const jj_dict *d, jj_val k, jj_val *ret); /* false: absent (or unhashable) */
bool jj_dict_gets(jj_rt *rt, const jj_dict *d, str k, jj_val *ret);
bool jj_hash(jj_rt *rt, jj_val v, uint64_t *ret); /* false: unhashable */

bool jj_truth(jj_val v);
bool jj_equal(jj_rt *rt, jj_val a, jj_val b, bool *ret);
bool jj_order(jj_rt *rt, jj_val a, jj_val b, const char *op, int *ret);         /* ret < 0, 0, > 0, or 2 for NaN; fails on types without an order */
bool jj_sort(jj_rt *rt, jj_val *v, const jj_val *keys, size_t n, bool reverse); /* stable, by keys */

/* jinja_print.c: text of values. */
bool jj_put(jj_rt *rt, jj_out *o, const void *p, size_t n, uint8_t trust);
bool jj_puts(jj_rt *rt, jj_out *o, const char *s); /* invented text: untrusted */
bool jj_put_part(jj_rt *rt, jj_out *o, const jj_str *s, size_t off, size_t n);
bool jj_put_val(jj_rt *rt, jj_out *o, jj_val v); /* as str(v) */
bool jj_put_repr(jj_rt *rt, jj_out *o, jj_val v);
bool jj_put_cp(jj_rt *rt, jj_out *o, uint32_t cp, uint8_t trust);
bool jj_take(jj_rt *rt, jj_out *o, jj_val *ret); /* the text as a string value; empties o */
void jj_out_fini(jj_out *o);
bool jj_to_str(jj_rt *rt, jj_val v, jj_str **ret); /* str(v) */
int jj_float_repr(double f, char out[40]);
bool jj_to_json(jj_rt *rt, jj_call *c, jj_val *ret); /* the tojson filter */

/* jinja_ops.c: operators and lookups. */
typedef enum jj_op {
  OP_ADD,
  OP_SUB,
  OP_MUL,
  OP_DIV,
  OP_FLOORDIV,
  OP_MOD,
  OP_POW,
  OP_NOT,
  OP_NEG,
  OP_POS,
  OP_EQ,
  OP_NE,
  OP_LT,
  OP_LE,
  OP_GT,
  OP_GE,
  OP_IN,
  OP_NOTIN
} jj_op;
bool jj_binary(jj_rt *rt, jj_op op, jj_val a, jj_val b, jj_val *ret);
bool jj_unary(jj_rt *rt, jj_op op, jj_val a, jj_val *ret);
bool jj_compare(jj_rt *rt, jj_op op, jj_val a, jj_val b, bool *ret);
bool jj_contains(jj_rt *rt, jj_val box, jj_val x, bool *ret);
bool jj_attr(jj_rt *rt, jj_val o, const str *name, jj_val *ret); /* o.name */
bool jj_item(jj_rt *rt, jj_val o, jj_val key, jj_val *ret);      /* o[key] */
bool jj_slice(jj_rt *rt, jj_val o, jj_val start, jj_val stop, jj_val step, jj_val *ret);
bool jj_len(jj_rt *rt, jj_val v, size_t *ret);
int64_t jj_range_at(const jj_range *r, int64_t i);

/* jinja_iter.c: iteration. */
jj_iter *jj_iter_of(jj_rt *rt, jj_val v); /* NULL with the err set: not iterable */
jj_iter *jj_iter_new(jj_rt *rt, int (*next)(jj_rt *, jj_iter *, jj_val *), void *st);
jj_iter *jj_iter_rev(jj_rt *rt, jj_val v);         /* reversed(v); NULL: no reverse, err untouched when v is an iterator */
int jj_next(jj_rt *rt, jj_iter *it, jj_val *ret);  /* 1, 0, -1; bounds the depth of iterators that read iterators */
bool jj_to_list(jj_rt *rt, jj_val v, jj_val *ret); /* list(v), always a new list */

/* jinja_eval.c: calls and loops. */
typedef struct jj_loop {
  jj_iter *it;
  jj_val over;             /* what is iterated, for length */
  int64_t index0, length;  /* length -1: not known yet */
  jj_val cur, prev, after; /* after: read ahead, or J_MISSING */
  jj_val changed;          /* last arguments of loop.changed() */
} jj_loop;
bool jj_call_value(jj_rt *rt, jj_val f, const jj_argv *args, jj_val *ret);
bool jj_func_call(jj_rt *rt, const jj_func *f, const char *kind, jj_val self, const jj_argv *args, jj_val *ret);
bool jj_loop_attr(jj_rt *rt, jj_loop *lo, str name, jj_val *ret, bool *ret_found);
bool jj_loop_length(jj_rt *rt, jj_loop *lo, int64_t *ret);
str jj_macro_name(const struct jj_macro *m);

/* Tables. *_known: a name the reference has and we refuse. */
const jj_func *jj_filter_find(str name);
extern const jj_func jj_seq_filters[]; /* those over sequences; ends with a row without a name */
bool jj_filter_known(str name);
const jj_func *jj_test_find(str name);
const jj_func *jj_global_find(int i); /* the i-th built-in function, NULL behind the last */
const jj_func *jj_method_find(jj_val self, str name);
bool jj_method_known(jj_val self, str name);
bool jj_method_unsafe(jj_val self, str name); /* would change the object: the immutable sandbox refuses it */
bool jj_filter_apply(jj_rt *rt, jj_val name, jj_val v, const jj_argv *args, jj_val *ret); /* by name at run time, for map */
bool jj_test_apply(jj_rt *rt, jj_val name, jj_val v, const jj_argv *args, bool *ret);     /* for select */
bool jj_global_call(jj_rt *rt, const jj_func *f, const jj_argv *args, jj_val *ret);

/* jinja_format.c */
bool jj_percent(jj_rt *rt, const jj_str *fmt, jj_val args, jj_val *ret);            /* fmt % args */
bool jj_str_format(jj_rt *rt, const jj_str *fmt, const jj_argv *args, jj_val *ret); /* fmt.format(...) */

/* jinja_text.c: Unicode as Python's str sees it. */
void jj_clean(char *msg); /* bytes that are not UTF-8 (a cut code point) become '?' */
bool jj_is_space(uint32_t cp);
bool jj_is_line_end(uint32_t cp);
bool jj_is_alpha(uint32_t cp);
bool jj_is_decimal(uint32_t cp);
bool jj_is_digit(uint32_t cp);
bool jj_is_cased(uint32_t cp);
bool jj_is_upper(uint32_t cp);
bool jj_is_lower(uint32_t cp);
bool jj_is_printable(uint32_t cp);
bool jj_is_word(uint32_t cp);                                      /* \w */
uint32_t jj_cp(const char *p, const char *end, int *ret_n);        /* decodes valid UTF-8 */
uint32_t jj_cp_back(const char *start, const char *p, int *ret_n); /* the code point that ends at p */
typedef enum jj_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE, CASE_SWAP, CASE_FOLD, CASE_WORDS /* jinja's title filter */ } jj_case;
bool jj_recase(jj_rt *rt, const jj_str *s, jj_case how, jj_val *ret);
bool jj_strip(jj_rt *rt, jj_str *s, const jj_str *chars, bool left, bool right, jj_val *ret); /* chars NULL: white space */
#endif
