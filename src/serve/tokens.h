/* tokens.h - /tokenize and /detokenize as vLLM has them, /apply-template as llama.cpp has it, /v1/messages/count_tokens as Anthropic has it.
 * Not generation: nothing here reaches the engine.
 * Ownership: a job frees itself when it was answered or the client has gone.
 * Threads: started on the loop's thread; the tokenizer runs on a worker.
 * Failure: answered to the client, naming the field; 503 when the workers' queue is full. */
#ifndef SERVE_TOKENS_H
#define SERVE_TOKENS_H
#include "serve/server.h"

typedef enum tokens_what { TOKENS_ENCODE, TOKENS_DECODE, TOKENS_TEMPLATE, TOKENS_COUNT } tokens_what;
void tokens_start(server *s, http_req *r, const char *route, tokens_what what);
#endif
