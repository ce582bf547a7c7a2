/* gguf.h - a GGUF v2/v3 file opened read-only: metadata, tensor table, mapped bytes.
 * Not a loader: nothing is copied or converted; it knows types by number and size, not by meaning.
 * Ownership: gguf_open owns map and tables until gguf_close; everything handed out is borrowed from it.
 * Threads: immutable after opening; any thread may read.
 * Failure: everything in the file is untrusted; every error is ERR_INPUT naming the key or tensor, the value and what was expected. */
#ifndef MODEL_GGUF_H
#define MODEL_GGUF_H
#include "base/err.h"
#include "base/str.h"
#include "base/wtype.h"

typedef enum gguf_kind {
  GGUF_U8,
  GGUF_I8,
  GGUF_U16,
  GGUF_I16,
  GGUF_U32,
  GGUF_I32,
  GGUF_F32,
  GGUF_BOOL,
  GGUF_STR,
  GGUF_ARR,
  GGUF_U64,
  GGUF_I64,
  GGUF_F64
} gguf_kind; /* the file's own numbers */

typedef struct gguf_val {
  str key;
  gguf_kind kind;
  gguf_kind elem; /* ARR: kind of the elements (nested arrays are kept as raw bytes and can only be skipped) */
  uint64_t count; /* ARR: number of elements */
  str raw;        /* the value's bytes in the file: of a string without its length, of an array the elements alone */
  str *strs;      /* ARR of STR: the elements, [count]; else NULL */
} gguf_val;

typedef struct gguf_tensor {
  str name;
  const wtype_info *type;
  int n_dims;
  int64_t ne[4];    /* ne[0] is the contiguous one (K); unused are 1 */
  const void *data; /* in the map */
  uint64_t bytes;
} gguf_tensor;

typedef struct gguf {
  int fd;
  const uint8_t *map;
  uint64_t size, data_off;
  uint32_t version, align;
  gguf_val *vals;
  uint64_t n_vals;
  gguf_tensor *tensors;
  uint64_t n_tensors;
  void *priv; /* arena and hash tables */
} gguf;

bool gguf_open(const char *path, gguf **ret, err *e);
bool gguf_open_mem(const void *p, size_t n, gguf **ret, err *e); /* borrows p, 8-byte aligned; for tests and fuzzing */
void gguf_close(gguf *g);
const gguf_val *gguf_get(const gguf *g, const char *key);      /* NULL when absent */
const gguf_tensor *gguf_find(const gguf *g, const char *name); /* NULL when absent */
/* Typed reads. Absent: *ret untouched, true. Present with another kind (any integer kind is fine where it fits): ERR_INPUT. */
bool gguf_u64(const gguf *g, const char *key, uint64_t *ret, err *e);
bool gguf_i64(const gguf *g, const char *key, int64_t *ret, err *e);
bool gguf_f64(const gguf *g, const char *key, double *ret, err *e);
bool gguf_bool(const gguf *g, const char *key, bool *ret, err *e);
bool gguf_str(const gguf *g, const char *key, str *ret, err *e);
/* Element i of an ARR of numbers, converted (out of range: clamped); 0 when v is no such array or i is beyond it. */
double gguf_elem_f64(const gguf_val *v, uint64_t i);
int64_t gguf_elem_i64(const gguf_val *v, uint64_t i);
const char *gguf_kind_name(gguf_kind k);                        /* "u32", "string", "array" ... */
void gguf_drop_pages(const gguf *g, const void *p, uint64_t n); /* tells the kernel that these mapped bytes are not needed soon */
#endif
