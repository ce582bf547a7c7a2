/* vec_neon.c - the element-wise kernels and attention over v16_neon.h. The algorithms are in the bodies, shared by every table. */
#include "kern/kern_vec.h"
#include "kern/v16_neon.h"
#include <math.h>
#include <string.h>

#define VEC(name) name##_neon
#include "kern/vec_body.inc"
#include "kern/attn_body.inc"
