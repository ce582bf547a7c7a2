/* fuzz_vocab.h - the vocabularies of tests/golden/tok as tokenizers.
 * Not a reader of strangers' files: what is stored is trusted, a damaged one ends the process.
 * Ownership: the tokenizer is the caller's.
 * Threads: one.
 * Failure: as FUZZ_CHECK. */
#ifndef FUZZ_VOCAB_H
#define FUZZ_VOCAB_H
#include "model/tok.h"

tok *vocab_tok(const char *name, const char *pre);
#endif
