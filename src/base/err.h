/* err.h - what went wrong: one code, the parameter it concerns, one sentence for a person.
 * Not a stack trace, not a log, not an exception: it is filled once, where the cause is known.
 * Ownership: the caller owns the struct; it holds no pointers.
 * Threads: a plain value; no shared state.
 * Failure: err_set always returns false so that `return err_set(e, ...)` reads as the failure itself. A NULL err is allowed. */
#ifndef BASE_ERR_H
#define BASE_ERR_H
#include <stdbool.h>
#include <stdarg.h>

typedef enum err_code {
  ERR_NONE = 0,
  ERR_USAGE,       /* a command line that cannot be understood */
  ERR_INPUT,       /* a value that was refused: bad file, bad field, bad type */
  ERR_CONTEXT,     /* a prompt that does not fit the context */
  ERR_UNSUPPORTED, /* understood, and named, but not offered */
  ERR_AUTH,        /* no key, or a wrong one */
  ERR_NOT_FOUND,   /* no such model, path, file */
  ERR_METHOD,      /* no such method on that path */
  ERR_TOO_LARGE,   /* over a stated bound */
  ERR_LIMIT,       /* a rate or budget is used up */
  ERR_BUSY,        /* a queue is full or the server is not ready: try again */
  ERR_TIMEOUT,
  ERR_CANCELLED, /* the client left, or a signal came */
  ERR_IO,        /* the machine: disk, permissions */
  ERR_NET,       /* the network */
  ERR_NOMEM,
  ERR_INTERNAL, /* a fault of ours */
  ERR_COUNT
} err_code;

typedef struct err {
  err_code code;
  char param[96]; /* request field, option, metadata key or tensor concerned; "" when none */
  char msg[600];  /* what failed, on which object, what to do. UTF-8, no newline */
} err;

/* The one table: code -> everything each face needs. */
typedef struct err_info {
  const char *name;        /* "input" */
  int http;                /* HTTP status */
  const char *openai;      /* OpenAI error.type */
  const char *openai_code; /* OpenAI error.code, or NULL */
  const char *anthropic;   /* Anthropic error.type */
  int exit;                /* process exit status: 1 failed, 2 usage, 3 input refused, 4 network, 130 interrupted */
} err_info;

const err_info *err_lookup(err_code code);

/* Fills *e (when not NULL) and returns false. Control characters and bytes that are no UTF-8 become '?'. */
bool err_set(err *e, err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same, naming the parameter. */
bool err_param(err *e, err_code code, const char *param, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Puts "prefix: " before the message that is there; keeps code and parameter. Returns false. */
bool err_prefix(err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* errno as an err: "cannot open X: No such file or directory". ENOENT is NOT_FOUND, ENOMEM is NOMEM, the rest IO. */
bool err_errno(err *e, int errnum, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void err_clear(err *e);
#endif
