/* fuzz_tok.h - what targets do with a tokenizer: make one from a vocabulary of tests/golden/tok, and use one, whoever it is from.
 * Not a reader of strangers' files: what is stored is trusted, a damaged one ends the process.
 * Ownership: the tokenizer is the caller's.
 * Threads: one.
 * Failure: as FUZZ_CHECK. */
#ifndef FUZZ_TOK_H
#define FUZZ_TOK_H
#include "model/tok.h"

tok *vocab_tok(const char *name, const char *pre); /* byte-level BPE: gpt2, llama3; pre: the pre-tokenizer */
tok *json_tok(const char *name);                   /* a tokenizer.json: hf-llama2, hf-xlmr, hf-bert ... */
/* Encodes text of our own and `text` with trust and without, and turns the ids back. Ids are in the vocabulary, two encodings agree, the stream is
 * UTF-8, nothing untrusted becomes a control token. */
void use_tok(const tok *t, str text);
/* The token that stands for text the vocabulary has no word for, which may be a control token; -1: none does. */
int32_t tok_unknown(const tok *t);
#endif
