/* mfile_build.h - what a format's reader fills an mfile with: maps, metadata, tensors.
 * Not for users of a model: they have mfile.h, and an mfile does not change once its reader has handed it out.
 * Ownership: the mfile owns what is added; rows are copied, what they point at must lie in a map or come from mf_mem.
 * Threads: the reader's alone.
 * Failure: ERR_INPUT for names that are there twice and bytes that are shared, ERR_NOMEM; after a failure the reader calls mf_close. */
#ifndef MODEL_MFILE_BUILD_H
#define MODEL_MFILE_BUILD_H
#include "model/mfile.h"

mfile *mf_new(err *e);
/* One more file, mapped whole; *ret_i is its place in g->maps. A folder, a device or an empty file is refused. */
bool mf_map_path(mfile *g, const char *path, int *ret_i, err *e);
bool mf_map_lent(mfile *g, const void *p, size_t n, int *ret_i, err *e); /* borrows p until mf_close */
/* Zeroed memory that lives as long as the mfile. All of it together is bounded by eight times the bytes mapped. */
void *mf_mem(mfile *g, size_t count, size_t size, err *e);

bool mf_add_val(mfile *g, const mf_val *v, err *e);
bool mf_add_tensor(mfile *g, const mf_tensor *t, err *e);
/* n_dims, ne and type are there: fills `bytes`. Refuses rows that are no whole blocks and sizes that cannot be counted. */
bool mf_tensor_size(mf_tensor *t, const char *what, err *e);
bool mf_check_overlaps(const mfile *g, err *e); /* once, after the last tensor */

/* Metadata that no file spells out as GGUF does; the value is copied, the key too. */
bool mf_add_u64(mfile *g, const char *key, uint64_t v, err *e);
bool mf_add_f64(mfile *g, const char *key, double v, err *e);
bool mf_add_bool(mfile *g, const char *key, bool v, err *e);
bool mf_add_str(mfile *g, const char *key, str v, err *e);
bool mf_add_text(mfile *g, const char *key, str v, err *e); /* v lies in a map: not copied */
bool mf_add_i32s(mfile *g, const char *key, const int32_t *v, size_t n, err *e);
bool mf_add_bools(mfile *g, const char *key, const uint8_t *v, size_t n, err *e);

bool mf_val_u64(const mf_val *v, uint64_t *ret, err *e); /* as mf_u64, of a value in hand */
int mf_kind_size(mf_kind k);                             /* bytes; 0 for strings and arrays */
enum { MF_KINDS = MF_F64 + 1 };
#endif
