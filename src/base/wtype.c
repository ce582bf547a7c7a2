#include "base/wtype.h"
#include <stddef.h>

static const wtype_info table[] = {
    {WT_F32, "F32", 1, 4},
    {WT_F16, "F16", 1, 2},
    {WT_Q4_0, "Q4_0", 32, 18},
    {WT_Q4_1, "Q4_1", 32, 20},
    {WT_Q5_0, "Q5_0", 32, 22},
    {WT_Q5_1, "Q5_1", 32, 24},
    {WT_Q8_0, "Q8_0", 32, 34},
    {WT_Q8_1, "Q8_1", 32, 36},
    {WT_Q2_K, "Q2_K", 256, 84},
    {WT_Q3_K, "Q3_K", 256, 110},
    {WT_Q4_K, "Q4_K", 256, 144},
    {WT_Q5_K, "Q5_K", 256, 176},
    {WT_Q6_K, "Q6_K", 256, 210},
    {WT_Q8_K, "Q8_K", 256, 292},
    {WT_IQ2_XXS, "IQ2_XXS", 256, 66},
    {WT_IQ2_XS, "IQ2_XS", 256, 74},
    {WT_IQ3_XXS, "IQ3_XXS", 256, 98},
    {WT_IQ1_S, "IQ1_S", 256, 50},
    {WT_IQ4_NL, "IQ4_NL", 32, 18},
    {WT_IQ3_S, "IQ3_S", 256, 110},
    {WT_IQ2_S, "IQ2_S", 256, 82},
    {WT_IQ4_XS, "IQ4_XS", 256, 136},
    {WT_I8, "I8", 1, 1},
    {WT_I16, "I16", 1, 2},
    {WT_I32, "I32", 1, 4},
    {WT_I64, "I64", 1, 8},
    {WT_F64, "F64", 1, 8},
    {WT_IQ1_M, "IQ1_M", 256, 56},
    {WT_BF16, "BF16", 1, 2},
    {WT_TQ1_0, "TQ1_0", 256, 54},
    {WT_TQ2_0, "TQ2_0", 256, 66},
    {WT_MXFP4, "MXFP4", 32, 17},
};

const wtype_info *wtype_lookup(uint32_t id) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if ((uint32_t)table[i].id == id) return &table[i];
  return NULL;
}
