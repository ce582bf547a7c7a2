/* log.h - one line an event on stderr, logfmt or JSON: time, level, event text, typed key-values.
 * Not for results (they go to stdout) and not for secrets: a value put here is printed.
 * Ownership: borrows everything for the length of the call.
 * Threads: any; a line is written with one write(2), so lines never mix.
 * Failure: silent; a log that cannot be written stops nothing. */
#ifndef BASE_LOG_H
#define BASE_LOG_H
#include "base/str.h"

typedef enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_OFF } log_level;
typedef struct log_kv {
  const char *k; /* NULL: nothing to say, the pair is left out */
  char t;
  union {
    int64_t i;
    double f;
    str s;
  } v;
} log_kv;

static inline log_kv kv_i(const char *k, int64_t v) { return (log_kv){k, 'i', {.i = v}}; }
static inline log_kv kv_f(const char *k, double v) { return (log_kv){k, 'f', {.f = v}}; }
static inline log_kv kv_s(const char *k, const char *v) { return (log_kv){k, 's', {.s = str_c(v ? v : "")}}; }
static inline log_kv kv_str(const char *k, str v) { return (log_kv){k, 's', {.s = v}}; }

void log_setup(log_level min, bool json);
bool log_on(log_level l);
void log_write(log_level l, const char *event, const log_kv *kv, int n_kv);
#define LOG_KVS(...) (const log_kv[]){(log_kv){0}, ##__VA_ARGS__} + 1, (int)(sizeof((log_kv[]){(log_kv){0}, ##__VA_ARGS__}) / sizeof(log_kv)) - 1
#define log_debug(ev, ...) log_write(LOG_DEBUG, ev, LOG_KVS(__VA_ARGS__))
#define log_info(ev, ...) log_write(LOG_INFO, ev, LOG_KVS(__VA_ARGS__))
#define log_warn(ev, ...) log_write(LOG_WARN, ev, LOG_KVS(__VA_ARGS__))
#define log_error(ev, ...) log_write(LOG_ERROR, ev, LOG_KVS(__VA_ARGS__))
#endif
