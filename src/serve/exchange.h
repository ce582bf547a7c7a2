/* exchange.h - the life of one request for text: parsed, started, its events turned into an answer, ended, cancelled when the client leaves.
 * Not a dialect and not a backend: it joins the two to an http_req, and writes the log line and the metrics.
 * Ownership: an exchange frees itself when the answer has ended or the client has gone.
 * Threads: the loop's thread.
 * Failure: answered to the client in its dialect. */
#ifndef SERVE_EXCHANGE_H
#define SERVE_EXCHANGE_H
#include "api/dialect.h"
#include "serve/server.h"

void exchange_start(server *s, http_req *r, const char *route, const api_dialect *d);
#endif
