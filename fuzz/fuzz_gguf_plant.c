/* The GGUF target with a planted fault, to show that fuzzing finds one: the reader believes that every number takes one byte, so an array at the end
 * of a file passes the check of its size and is then read beyond the file. The reader itself is untouched: it is compiled here a second time, under
 * another mf_kind_size; what hands out the elements (mfile.c) is the real one. */
#include "model/mfile_build.h"
static int planted_kind_size(mf_kind k) { return (mf_kind_size)(k) ? 1 : 0; }
#define mf_kind_size(k) planted_kind_size(k)
#include "../src/model/gguf.c"
#undef mf_kind_size
#include "fuzz_gguf.c"
