/* mfile.h - a model's file or folder opened read-only: metadata, tensor table, mapped bytes; the same whatever format it came in.
 * Not a loader: nothing is copied or converted; it knows types by number and size, not by meaning. The formats' readers are gguf.h and safetensors.h;
 *   metadata keys and tensor names are GGUF's in both.
 * Ownership: the reader that opened it owns map and tables until mf_close; everything handed out is borrowed from it.
 * Threads: immutable after opening; any thread may read.
 * Failure: everything in a file is untrusted; every error is ERR_INPUT naming the key or tensor, the value and what was expected. */
#ifndef MODEL_MFILE_H
#define MODEL_MFILE_H
#include "base/err.h"
#include "base/str.h"
#include "base/wtype.h"

typedef enum mf_kind {
  MF_U8,
  MF_I8,
  MF_U16,
  MF_I16,
  MF_U32,
  MF_I32,
  MF_F32,
  MF_BOOL,
  MF_STR,
  MF_ARR,
  MF_U64,
  MF_I64,
  MF_F64
} mf_kind; /* the file's own numbers */

typedef struct mf_val {
  str key;
  mf_kind kind;
  mf_kind elem;   /* ARR: kind of the elements (nested arrays are kept as raw bytes and can only be skipped) */
  uint64_t count; /* ARR: number of elements */
  str raw;        /* the value's bytes in the file: of a string without its length, of an array the elements alone */
  str *strs;      /* ARR of STR: the elements, [count]; else NULL */
} mf_val;

enum { MF_NAME = 256 }; /* bytes of a name, at most; GGUF says 64 */
typedef struct mf_tensor {
  str name;
  const wtype_info *type;
  int n_dims;
  int64_t ne[4];    /* ne[0] is the contiguous one (K); unused are 1 */
  const void *data; /* in the map */
  uint64_t bytes;
} mf_tensor;

/* One file of a model: a whole one, a part of one, a shard, or a text beside the weights. */
typedef struct mf_map {
  const uint8_t *p;
  uint64_t n;
  uint64_t head; /* its first bytes, which are no tensor's: header and tables; all of a text */
  bool lent;     /* not ours to unmap */
} mf_map;

typedef struct mfile {
  bool hf_layout; /* a folder of safetensors. Tensors lie as transformers saves them: Q and K rows unpermuted (rotation in halves whatever the
                   * family), Gemma's norms without their one */
  uint32_t version, align; /* GGUF's; 0 in a folder */
  mf_map *maps;
  int n_maps;
  uint64_t size; /* of all files together */
  mf_val *vals;
  uint64_t n_vals;
  mf_tensor *tensors;
  uint64_t n_tensors;
  struct mf_house *house; /* arena and hash tables */
} mfile;

void mf_close(mfile *g);
const mf_val *mf_get(const mfile *g, const char *key);      /* NULL when absent */
const mf_tensor *mf_find(const mfile *g, const char *name); /* NULL when absent */
/* Typed reads. Absent: *ret untouched, true. Present with another kind (any integer kind is fine where it fits): ERR_INPUT. */
bool mf_u64(const mfile *g, const char *key, uint64_t *ret, err *e);
bool mf_i64(const mfile *g, const char *key, int64_t *ret, err *e);
bool mf_f64(const mfile *g, const char *key, double *ret, err *e);
bool mf_bool(const mfile *g, const char *key, bool *ret, err *e);
bool mf_str(const mfile *g, const char *key, str *ret, err *e);
/* Element i of an ARR of numbers, converted (out of range: clamped); 0 when v is no such array or i is beyond it. */
double mf_elem_f64(const mf_val *v, uint64_t i);
int64_t mf_elem_i64(const mf_val *v, uint64_t i);
const char *mf_kind_name(mf_kind k);                           /* "u32", "string", "array" ... */
void mf_drop_pages(const mfile *g, const void *p, uint64_t n); /* tells the kernel that these mapped bytes are not needed soon */
#endif
