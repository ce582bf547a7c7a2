/* select.c - which kernel tables were built, what this CPU and kernel allow, and the choice between them. Compiled for the baseline CPU. */
#include "kern/kern.h"
#include "kern/kern_gemm.h"
#include "kern/kern_vec.h"
#include <stdio.h>
#include <string.h>

enum { ARITH = 1 }; /* raise when any table's bits change: it is part of the fingerprint that caches and logs carry */

static bool always(void) { return true; }

static const kern_ops ops_ref = {
    .name = "ref", .units = "plain C", .arith = ARITH, .usable = always, .act_quant = act_quant_ref, .gemm = gemm_ref, VEC_OPS(ref)};

#if defined(__x86_64__)
#include <cpuid.h>

/* What the operating system saves on a context switch (XCR0); a CPU may have registers that the kernel does not. 0 without XSAVE. */
static uint64_t saved_state(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
  __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return (uint64_t)d << 32 | a;
}

enum { XCR0_YMM = 0x6, XCR0_ZMM = 0xe6 }; /* SSE and AVX; and the mask registers and both halves of the zmm file */

static bool has_avx2(void) {
  const unsigned leaf1 = bit_FMA | bit_F16C | bit_AVX;
  unsigned a, b, c, d;
  if ((saved_state() & XCR0_YMM) != XCR0_YMM) return false;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & leaf1) != leaf1) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2) && (b & bit_BMI2);
}

static bool has_avx512(void) {
  const unsigned leaf7 = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
  unsigned a, b, c, d;
  if (!has_avx2() || (saved_state() & XCR0_ZMM) != XCR0_ZMM) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & leaf7) == leaf7 && (c & bit_AVX512VNNI);
}

static const kern_ops ops_avx2 = {
    .name = "avx2", .units = "AVX2 FMA", .arith = ARITH, .usable = has_avx2, .act_quant = act_quant_avx2, .gemm = gemm_avx2, VEC_OPS(avx2)};
static const kern_ops ops_avx512 = {.name = "avx512",
    .units = "AVX-512 VNNI",
    .arith = ARITH,
    .usable = has_avx512,
    .act_quant = act_quant_avx512,
    .gemm = gemm_avx512,
    VEC_OPS(avx512)};
#endif

#if defined(__aarch64__)
#include <sys/auxv.h>

/* The kernel's word for what its programs may use. 1 << 20: HWCAP_ASIMDDP of <asm/hwcap.h>, which old headers lack. */
static bool has_dotprod(void) { return getauxval(AT_HWCAP) & 1ul << 20; }

static const kern_ops ops_neon = {.name = "neon",
    .units = "NEON dot product",
    .arith = ARITH,
    .usable = has_dotprod,
    .act_quant = act_quant_neon,
    .gemm = gemm_neon,
    VEC_OPS(neon)};
#endif

const kern_ops *const *kern_tables(void) {
  static const kern_ops *const tables[] = {
#if defined(__x86_64__)
    &ops_avx512,
    &ops_avx2,
#endif
#if defined(__aarch64__)
    &ops_neon,
#endif
    &ops_ref,
    NULL
  };
  return tables;
}

/* "auto, avx2, ref": what may be asked for here. */
static void names_usable(char *to, size_t cap) {
  size_t n = (size_t)snprintf(to, cap, "auto");
  for (const kern_ops *const *t = kern_tables(); *t; t++)
    if ((*t)->usable() && n < cap) n += (size_t)snprintf(to + n, cap - n, ", %s", (*t)->name);
}

bool kern_select(const char *name, const kern_ops **ret, err *e) {
  bool automatic = !name || !strcmp(name, "auto"), built = false;
  for (const kern_ops *const *t = kern_tables(); *t; t++) {
    if (!automatic && strcmp(name, (*t)->name)) continue;
    built = true;
    if (!(*t)->usable()) continue;
    *ret = *t;
    return true;
  }
  char names[128];
  names_usable(names, sizeof names);
  if (built)
    return err_param(e, ERR_USAGE, "isa", "instruction set \"%s\": this CPU or its operating system does not offer it; use one of: %s", name, names);
  return err_param(e, ERR_USAGE, "isa", "instruction set \"%s\" is not known; use one of: %s", name, names);
}
