/* gguf.h - opens a GGUF v2/v3 file as an mfile.
 * Not a converter: nothing is copied.
 * Ownership: as mfile.h says; mf_close ends it.
 * Threads: any.
 * Failure: everything in the file is untrusted; every error is ERR_INPUT naming the key or tensor, the value and what was expected. */
#ifndef MODEL_GGUF_H
#define MODEL_GGUF_H
#include "model/mfile.h"

bool gguf_open(const char *path, mfile **ret, err *e);
bool gguf_open_mem(const void *p, size_t n, mfile **ret, err *e); /* borrows p, 8-byte aligned; for tests and fuzzing */
#endif
