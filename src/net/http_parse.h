/* http_parse.h - a strict, bounded, incremental parser of one HTTP/1.1 request (RFC 9112) in a buffer that grows at its end.
 * Not lenient: what two parsers could read in two ways (request smuggling) is refused, never repaired. Not an answer writer.
 * Ownership: borrows the buffer for each call; keeps offsets only, so the buffer may move between calls. Chunked bodies are decoded in place.
 * Threads: one owner.
 * Failure: HTTP_PARSE_BAD with the status to answer, the err code of the body's type and one sentence. */
#ifndef NET_HTTP_PARSE_H
#define NET_HTTP_PARSE_H
#include "base/err.h"
#include "base/str.h"

enum {
  HTTP_MAX_FIELDS = 128,         /* header fields a request; more: 431 */
  HTTP_MAX_HEAD = 64 * 1024,     /* request line and header fields; more: 431 */
  HTTP_MAX_LINE = 8 * 1024,      /* request line; more: 414 */
  HTTP_MAX_CHUNK_LINE = 256,     /* one chunk-size line with its extensions */
  HTTP_MAX_CHUNK_EXT = 16 * 1024 /* all extensions of a body together */
};

typedef enum http_parse_state { HTTP_PARSE_MORE, HTTP_PARSE_DONE, HTTP_PARSE_BAD } http_parse_state;

typedef struct http_field {
  uint32_t name, name_n, value, value_n;
} http_field; /* offsets into the buffer */

typedef struct http_parse {
  /* Results. Valid from head_done on; the body from HTTP_PARSE_DONE on. */
  bool head_done, http10, keep_alive, expect_100, chunked;
  uint32_t method, method_n, path, path_n, query, query_n; /* path is decoded in place */
  int n_field;
  uint64_t body_want;  /* Content-Length; for chunked what has been announced so far */
  size_t body, body_n; /* decoded body so far */
  size_t pos;          /* first byte not consumed; after DONE the start of the next request */
  /* Why it failed. */
  int status;
  err_code code;
  const char *why;
  /* Inside. */
  int step;
  size_t start, scan; /* where the request begins; how far the current line was searched for its end */
  uint64_t max_body, chunk_left;
  size_t ext_n, trailer_n;
  bool has_length, has_te, has_host;
  http_field field[HTTP_MAX_FIELDS]; /* result; last, so that the rest clears in one go */
} http_parse;

void http_parse_init(http_parse *h, uint64_t max_body); /* the next request begins at offset 0 */
/* Reads what is new in p[0..*n). Decoding chunks removes bytes from the middle, which lowers *n. */
http_parse_state http_parse_run(http_parse *h, char *p, size_t *n);
str http_parse_field(const http_parse *h, const char *p, const char *name); /* first of that name, any case; {NULL, 0} when absent */
bool http_parse_idle(const http_parse *h, size_t n);                        /* nothing of a request has come yet */
#endif
