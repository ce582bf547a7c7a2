/* vec_avx512.c - the element-wise kernels and attention over v16_avx512.h. The algorithms are in the bodies, shared by every table. */
#include "kern/kern_vec.h"
#include "kern/v16_avx512.h"
#include <math.h>
#include <string.h>

#define VEC(name) name##_avx512
#include "kern/vec_body.inc"
#include "kern/attn_body.inc"
