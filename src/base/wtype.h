/* wtype.h - the weight types a model file can hold, as GGUF numbers them: name, block length, block bytes.
 * Not how they are computed with: layouts and arithmetic are kern's.
 * Ownership: a constant table. Threads: any.
 * Failure: wtype_lookup returns NULL for a number that has never been given out or was withdrawn. */
#ifndef BASE_WTYPE_H
#define BASE_WTYPE_H
#include <stdint.h>

/* Numbers are the file format's (GGUF specification, enum ggml_type). */
typedef enum wtype {
  WT_F32 = 0,
  WT_F16 = 1,
  WT_Q4_0 = 2,
  WT_Q4_1 = 3,
  WT_Q5_0 = 6,
  WT_Q5_1 = 7,
  WT_Q8_0 = 8,
  WT_Q8_1 = 9,
  WT_Q2_K = 10,
  WT_Q3_K = 11,
  WT_Q4_K = 12,
  WT_Q5_K = 13,
  WT_Q6_K = 14,
  WT_Q8_K = 15,
  WT_IQ2_XXS = 16,
  WT_IQ2_XS = 17,
  WT_IQ3_XXS = 18,
  WT_IQ1_S = 19,
  WT_IQ4_NL = 20,
  WT_IQ3_S = 21,
  WT_IQ2_S = 22,
  WT_IQ4_XS = 23,
  WT_I8 = 24,
  WT_I16 = 25,
  WT_I32 = 26,
  WT_I64 = 27,
  WT_F64 = 28,
  WT_IQ1_M = 29,
  WT_BF16 = 30,
  WT_TQ1_0 = 34,
  WT_TQ2_0 = 35,
  WT_MXFP4 = 39
} wtype;

typedef struct wtype_info {
  int id;
  const char *name;
  int block; /* elements */
  int bytes; /* per block */
} wtype_info;
const wtype_info *wtype_lookup(uint32_t id);
#endif
