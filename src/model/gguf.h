/* gguf.h - opens a GGUF v2/v3 file, or all files of a model in parts, as an mfile.
 * Not a converter: nothing is copied.
 * Ownership: as mfile.h says; mf_close ends it.
 * Threads: any.
 * Failure: everything in the file is untrusted; every error is ERR_INPUT naming the key or tensor, the value and what was expected. */
#ifndef MODEL_GGUF_H
#define MODEL_GGUF_H
#include "model/mfile.h"

/* Of a model in parts (NAME-00001-of-00003.gguf ...) any part may be named; all of them are opened. */
bool gguf_open(const char *path, mfile **ret, err *e);
bool gguf_open_mem(const void *p, size_t n, mfile **ret, err *e); /* borrows p, 8-byte aligned; for tests and fuzzing */
/* Which part a file is by its name, from 1, and of how many; 0: the name is not that of a part. */
int gguf_part_of(str name, int *ret_count);
bool gguf_part_path(const char *path, int no, char *out, size_t n); /* the path of another part; false when `path` is no part's or n is too small */
#endif
