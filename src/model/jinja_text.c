/* Unicode as Python's str sees it: white space, classes, case. utf8proc knows the simple case mappings; the one-to-many ones are tabled here
 * (Unicode SpecialCasing.txt, the unconditional rows). */
#include "model/jinja.h"
#include <utf8proc.h>

uint32_t jj_cp(const char *p, const char *end, int *ret_n) {
  uint32_t cp = 0xFFFD;
  int n = p < end ? utf8_decode(p, (size_t)(end - p), &cp) : 0;
  *ret_n = n > 0 ? n : 1;
  return cp;
}

uint32_t jj_cp_back(const char *start, const char *p, int *ret_n) {
  const char *q = p - 1;
  while (q > start && p - q < 4 && ((unsigned char)*q & 0xC0) == 0x80) q--;
  uint32_t cp = jj_cp(q, p, ret_n);
  *ret_n = (int)(p - q);
  return cp;
}

void jj_clean(char *msg) {
  size_t n = strlen(msg);
  for (size_t i = 0; i < n;) {
    uint32_t cp;
    int l = utf8_decode(msg + i, n - i, &cp);
    if (l <= 0) msg[i] = '?';
    i += l > 0 ? (size_t)l : 1;
  }
}

static utf8proc_category_t category(uint32_t cp) { return utf8proc_category((utf8proc_int32_t)cp); }

bool jj_is_line_end(uint32_t cp) { return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 || cp == 0x2029; }

bool jj_is_space(uint32_t cp) {
  if (cp < 0x80) return cp == ' ' || (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1F);
  return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F ||
         cp == 0x3000;
}

bool jj_is_alpha(uint32_t cp) {
  utf8proc_category_t c = category(cp);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool jj_is_decimal(uint32_t cp) { return category(cp) == UTF8PROC_CATEGORY_ND; }

/* Numeric_Type=Digit beside the decimals. */
bool jj_is_digit(uint32_t cp) {
  static const uint32_t r[][2] = {{0xB2, 0xB3}, {0xB9, 0xB9}, {0x1369, 0x1371}, {0x19DA, 0x19DA}, {0x2070, 0x2070}, {0x2074, 0x2079},
      {0x2080, 0x2089}, {0x2460, 0x2468}, {0x2474, 0x247C}, {0x2488, 0x2490}, {0x24EA, 0x24EA}, {0x24F5, 0x24FD}, {0x24FF, 0x24FF}, {0x2776, 0x277E},
      {0x2780, 0x2788}, {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  if (jj_is_decimal(cp)) return true;
  for (size_t i = 0; i < sizeof r / sizeof *r; i++)
    if (cp >= r[i][0] && cp <= r[i][1]) return true;
  return false;
}

/* Other_Lowercase and Other_Uppercase: letters and signs that count as cased although their category is another. */
static bool other_lower(uint32_t cp) {
  return cp == 0xAA || cp == 0xBA || (cp >= 0x2B0 && cp <= 0x2B8) || (cp >= 0x2C0 && cp <= 0x2C1) || (cp >= 0x2E0 && cp <= 0x2E4) || cp == 0x345 ||
         cp == 0x37A || (cp >= 0x1D2C && cp <= 0x1D6A) || cp == 0x1D78 || (cp >= 0x1D9B && cp <= 0x1DBF) || cp == 0x2071 || cp == 0x207F ||
         (cp >= 0x2090 && cp <= 0x209C) || (cp >= 0x2170 && cp <= 0x217F) || (cp >= 0x24D0 && cp <= 0x24E9) || (cp >= 0x2C7C && cp <= 0x2C7D) ||
         (cp >= 0xA69C && cp <= 0xA69D) || cp == 0xA770 || (cp >= 0xA7F8 && cp <= 0xA7F9) || (cp >= 0xAB5C && cp <= 0xAB5F);
}

static bool other_upper(uint32_t cp) {
  return (cp >= 0x2160 && cp <= 0x216F) || (cp >= 0x24B6 && cp <= 0x24CF) || (cp >= 0x1F130 && cp <= 0x1F149) || (cp >= 0x1F150 && cp <= 0x1F169) ||
         (cp >= 0x1F170 && cp <= 0x1F189);
}

bool jj_is_lower(uint32_t cp) { return category(cp) == UTF8PROC_CATEGORY_LL || other_lower(cp); }
bool jj_is_upper(uint32_t cp) { return category(cp) == UTF8PROC_CATEGORY_LU || other_upper(cp); }
bool jj_is_cased(uint32_t cp) { return jj_is_lower(cp) || jj_is_upper(cp) || category(cp) == UTF8PROC_CATEGORY_LT; }

bool jj_is_word(uint32_t cp) {
  if (cp < 0x80) return cp == '_' || (cp >= '0' && cp <= '9') || ((cp | 32) >= 'a' && (cp | 32) <= 'z');
  utf8proc_category_t c = category(cp);
  return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) || (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO);
}

bool jj_is_printable(uint32_t cp) {
  if (cp < 0x7F) return cp >= 0x20;
  utf8proc_category_t c = category(cp);
  return c != UTF8PROC_CATEGORY_CN && !(c >= UTF8PROC_CATEGORY_ZS && c <= UTF8PROC_CATEGORY_CO);
}

/* ---- case ---- */

typedef struct special {
  uint16_t cp, upper[3], title[3];
} special;
static const special specials[] = {{0xDF, {0x53, 0x53}, {0x53, 0x73}}, {0x149, {0x2BC, 0x4E}, {0x2BC, 0x4E}}, {0x1F0, {0x4A, 0x30C}, {0x4A, 0x30C}},
    {0x390, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}}, {0x3B0, {0x3A5, 0x308, 0x301}, {0x3A5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}, {0x535, 0x582}}, {0x1E96, {0x48, 0x331}, {0x48, 0x331}}, {0x1E97, {0x54, 0x308}, {0x54, 0x308}},
    {0x1E98, {0x57, 0x30A}, {0x57, 0x30A}}, {0x1E99, {0x59, 0x30A}, {0x59, 0x30A}}, {0x1E9A, {0x41, 0x2BE}, {0x41, 0x2BE}},
    {0x1F50, {0x3A5, 0x313}, {0x3A5, 0x313}}, {0x1F52, {0x3A5, 0x313, 0x300}, {0x3A5, 0x313, 0x300}},
    {0x1F54, {0x3A5, 0x313, 0x301}, {0x3A5, 0x313, 0x301}}, {0x1F56, {0x3A5, 0x313, 0x342}, {0x3A5, 0x313, 0x342}},
    {0x1F80, {0x1F08, 0x399}, {0x1F88}}, {0x1F81, {0x1F09, 0x399}, {0x1F89}}, {0x1F82, {0x1F0A, 0x399}, {0x1F8A}},
    {0x1F83, {0x1F0B, 0x399}, {0x1F8B}}, {0x1F84, {0x1F0C, 0x399}, {0x1F8C}}, {0x1F85, {0x1F0D, 0x399}, {0x1F8D}},
    {0x1F86, {0x1F0E, 0x399}, {0x1F8E}}, {0x1F87, {0x1F0F, 0x399}, {0x1F8F}}, {0x1F88, {0x1F08, 0x399}, {0x1F88}},
    {0x1F89, {0x1F09, 0x399}, {0x1F89}}, {0x1F8A, {0x1F0A, 0x399}, {0x1F8A}}, {0x1F8B, {0x1F0B, 0x399}, {0x1F8B}},
    {0x1F8C, {0x1F0C, 0x399}, {0x1F8C}}, {0x1F8D, {0x1F0D, 0x399}, {0x1F8D}}, {0x1F8E, {0x1F0E, 0x399}, {0x1F8E}},
    {0x1F8F, {0x1F0F, 0x399}, {0x1F8F}}, {0x1F90, {0x1F28, 0x399}, {0x1F98}}, {0x1F91, {0x1F29, 0x399}, {0x1F99}},
    {0x1F92, {0x1F2A, 0x399}, {0x1F9A}}, {0x1F93, {0x1F2B, 0x399}, {0x1F9B}}, {0x1F94, {0x1F2C, 0x399}, {0x1F9C}},
    {0x1F95, {0x1F2D, 0x399}, {0x1F9D}}, {0x1F96, {0x1F2E, 0x399}, {0x1F9E}}, {0x1F97, {0x1F2F, 0x399}, {0x1F9F}},
    {0x1F98, {0x1F28, 0x399}, {0x1F98}}, {0x1F99, {0x1F29, 0x399}, {0x1F99}}, {0x1F9A, {0x1F2A, 0x399}, {0x1F9A}},
    {0x1F9B, {0x1F2B, 0x399}, {0x1F9B}}, {0x1F9C, {0x1F2C, 0x399}, {0x1F9C}}, {0x1F9D, {0x1F2D, 0x399}, {0x1F9D}},
    {0x1F9E, {0x1F2E, 0x399}, {0x1F9E}}, {0x1F9F, {0x1F2F, 0x399}, {0x1F9F}}, {0x1FA0, {0x1F68, 0x399}, {0x1FA8}},
    {0x1FA1, {0x1F69, 0x399}, {0x1FA9}}, {0x1FA2, {0x1F6A, 0x399}, {0x1FAA}}, {0x1FA3, {0x1F6B, 0x399}, {0x1FAB}},
    {0x1FA4, {0x1F6C, 0x399}, {0x1FAC}}, {0x1FA5, {0x1F6D, 0x399}, {0x1FAD}}, {0x1FA6, {0x1F6E, 0x399}, {0x1FAE}},
    {0x1FA7, {0x1F6F, 0x399}, {0x1FAF}}, {0x1FA8, {0x1F68, 0x399}, {0x1FA8}}, {0x1FA9, {0x1F69, 0x399}, {0x1FA9}},
    {0x1FAA, {0x1F6A, 0x399}, {0x1FAA}}, {0x1FAB, {0x1F6B, 0x399}, {0x1FAB}}, {0x1FAC, {0x1F6C, 0x399}, {0x1FAC}},
    {0x1FAD, {0x1F6D, 0x399}, {0x1FAD}}, {0x1FAE, {0x1F6E, 0x399}, {0x1FAE}}, {0x1FAF, {0x1F6F, 0x399}, {0x1FAF}},
    {0x1FB2, {0x1FBA, 0x399}, {0x1FBA, 0x345}}, {0x1FB3, {0x391, 0x399}, {0x1FBC}}, {0x1FB4, {0x386, 0x399}, {0x386, 0x345}},
    {0x1FB6, {0x391, 0x342}, {0x391, 0x342}}, {0x1FB7, {0x391, 0x342, 0x399}, {0x391, 0x342, 0x345}}, {0x1FBC, {0x391, 0x399}, {0x1FBC}},
    {0x1FC2, {0x1FCA, 0x399}, {0x1FCA, 0x345}}, {0x1FC3, {0x397, 0x399}, {0x1FCC}}, {0x1FC4, {0x389, 0x399}, {0x389, 0x345}},
    {0x1FC6, {0x397, 0x342}, {0x397, 0x342}}, {0x1FC7, {0x397, 0x342, 0x399}, {0x397, 0x342, 0x345}}, {0x1FCC, {0x397, 0x399}, {0x1FCC}},
    {0x1FD2, {0x399, 0x308, 0x300}, {0x399, 0x308, 0x300}}, {0x1FD3, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x1FD6, {0x399, 0x342}, {0x399, 0x342}}, {0x1FD7, {0x399, 0x308, 0x342}, {0x399, 0x308, 0x342}},
    {0x1FE2, {0x3A5, 0x308, 0x300}, {0x3A5, 0x308, 0x300}}, {0x1FE3, {0x3A5, 0x308, 0x301}, {0x3A5, 0x308, 0x301}},
    {0x1FE4, {0x3A1, 0x313}, {0x3A1, 0x313}}, {0x1FE6, {0x3A5, 0x342}, {0x3A5, 0x342}}, {0x1FE7, {0x3A5, 0x308, 0x342}, {0x3A5, 0x308, 0x342}},
    {0x1FF2, {0x1FFA, 0x399}, {0x1FFA, 0x345}}, {0x1FF3, {0x3A9, 0x399}, {0x1FFC}}, {0x1FF4, {0x38F, 0x399}, {0x38F, 0x345}},
    {0x1FF6, {0x3A9, 0x342}, {0x3A9, 0x342}}, {0x1FF7, {0x3A9, 0x342, 0x399}, {0x3A9, 0x342, 0x345}}, {0x1FFC, {0x3A9, 0x399}, {0x1FFC}},
    {0xFB00, {0x46, 0x46}, {0x46, 0x66}}, {0xFB01, {0x46, 0x49}, {0x46, 0x69}}, {0xFB02, {0x46, 0x4C}, {0x46, 0x6C}},
    {0xFB03, {0x46, 0x46, 0x49}, {0x46, 0x66, 0x69}}, {0xFB04, {0x46, 0x46, 0x4C}, {0x46, 0x66, 0x6C}}, {0xFB05, {0x53, 0x54}, {0x53, 0x74}},
    {0xFB06, {0x53, 0x54}, {0x53, 0x74}}, {0xFB13, {0x544, 0x546}, {0x544, 0x576}}, {0xFB14, {0x544, 0x535}, {0x544, 0x565}},
    {0xFB15, {0x544, 0x53B}, {0x544, 0x56B}}, {0xFB16, {0x54E, 0x546}, {0x54E, 0x576}}, {0xFB17, {0x544, 0x53D}, {0x544, 0x56D}}};

static const special *find_special(uint32_t cp) {
  if (cp < 0xDF || cp > 0xFB17) return NULL;
  size_t lo = 0, hi = sizeof specials / sizeof *specials;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (specials[mid].cp < cp) lo = mid + 1;
    else hi = mid;
  }
  return lo < sizeof specials / sizeof *specials && specials[lo].cp == cp ? &specials[lo] : NULL;
}

static int spread(const uint16_t from[3], uint32_t out[3]) {
  int n = 0;
  for (; n < 3 && from[n]; n++) out[n] = from[n];
  return n;
}

static int upper_cp(uint32_t cp, uint32_t out[3]) {
  const special *s = find_special(cp);
  if (s) return spread(s->upper, out);
  out[0] = (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp);
  return 1;
}

static int title_cp(uint32_t cp, uint32_t out[3]) {
  const special *s = find_special(cp);
  if (s) return spread(s->title, out);
  out[0] = (uint32_t)utf8proc_totitle((utf8proc_int32_t)cp);
  return 1;
}

static bool case_ignorable(uint32_t cp) {
  utf8proc_category_t c = category(cp);
  if (c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK)
    return true;
  return cp == '\'' || cp == '.' || cp == ':' || cp == 0xB7 || cp == 0x387 || cp == 0x55F || cp == 0x5F4 || cp == 0x2018 || cp == 0x2019 ||
         cp == 0x2024 || cp == 0x2027 || cp == 0xFE13 || cp == 0xFE52 || cp == 0xFE55 || cp == 0xFF07 || cp == 0xFF0E || cp == 0xFF1A;
}

/* Capital sigma becomes the final form at the end of a word. from: where the text that counts begins. */
static bool final_sigma(str s, size_t from, size_t at, int n) {
  const char *end = s.p + s.n, *p = s.p + at;
  int l;
  bool before = false;
  while (p > s.p + from) {
    uint32_t cp = jj_cp_back(s.p + from, p, &l);
    p -= l;
    if (case_ignorable(cp)) continue;
    before = jj_is_cased(cp);
    break;
  }
  for (p = s.p + at + n; before && p < end; p += l) {
    uint32_t cp = jj_cp(p, end, &l);
    if (!case_ignorable(cp)) return !jj_is_cased(cp);
  }
  return before;
}

static int lower_cp(str s, size_t from, size_t at, int n, uint32_t cp, uint32_t out[3]) {
  if (cp == 0x130) {
    out[0] = 'i';
    out[1] = 0x307;
    return 2;
  }
  if (cp == 0x3A3) out[0] = final_sigma(s, from, at, n) ? 0x3C2 : 0x3C3;
  else out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
  return 1;
}

static int fold_cp(uint32_t cp, uint32_t out[3]) {
  utf8proc_int32_t buf[8];
  utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, buf, 8, UTF8PROC_CASEFOLD, NULL);
  if (n < 1 || n > 3) {
    out[0] = cp;
    return 1;
  }
  for (int i = 0; i < n; i++) out[i] = (uint32_t)buf[i];
  return (int)n;
}

/* What jinja's title filter takes for the gap between two words. */
static bool word_gap(uint32_t cp) { return jj_is_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<'; }

bool jj_recase(jj_rt *rt, const jj_str *s, jj_case how, jj_val *ret) {
  jj_out o = {0};
  str v = jj_view(s);
  bool ok = jj_spend(rt, s->n / 8), start = true, cased = false;
  size_t from = 0; /* the title filter lowers each word without its first letter, as a text of its own */
  for (size_t i = 0; ok && i < v.n;) {
    int l;
    uint32_t cp = jj_cp(v.p + i, v.p + v.n, &l), out[3];
    uint8_t trust = s->trust == JT_MIX ? s->t[i] : s->trust;
    bool title = how == CASE_CAPITALIZE ? i == 0 : how == CASE_TITLE ? !cased : false;
    int n;
    if (how == CASE_UPPER || (how == CASE_SWAP && jj_is_lower(cp)) || (how == CASE_WORDS && start)) n = upper_cp(cp, out);
    else if (how == CASE_FOLD) n = fold_cp(cp, out);
    else if (how == CASE_SWAP && !jj_is_upper(cp)) {
      out[0] = cp;
      n = 1;
    } else n = title ? title_cp(cp, out) : lower_cp(v, from, i, l, cp, out);
    for (int k = 0; ok && k < n; k++) ok = jj_put_cp(rt, &o, out[k], trust);
    if (how == CASE_WORDS && start) from = i + (size_t)l;
    start = word_gap(cp);
    cased = jj_is_cased(cp);
    i += (size_t)l;
  }
  ok = ok && jj_take(rt, &o, ret);
  if (ok) ret->s->html = s->html;
  jj_out_fini(&o);
  return ok;
}

static bool in_set(const jj_str *chars, uint32_t cp) {
  if (!chars) return jj_is_space(cp);
  for (size_t i = 0; i < chars->n;) {
    int l;
    if (jj_cp(chars->p + i, chars->p + chars->n, &l) == cp) return true;
    i += (size_t)l;
  }
  return false;
}

bool jj_strip(jj_rt *rt, jj_str *s, const jj_str *chars, bool left, bool right, jj_val *ret) {
  const char *a = s->p, *b = s->p + s->n;
  int l;
  size_t cost = chars ? chars->n / 8 + 1 : 1;
  while (left && a < b && in_set(chars, jj_cp(a, b, &l))) {
    a += l;
    if (!jj_spend(rt, cost)) return false;
  }
  while (right && b > a && in_set(chars, jj_cp_back(a, b, &l))) {
    b -= l;
    if (!jj_spend(rt, cost)) return false;
  }
  return jj_str_sub(rt, s, (size_t)(a - s->p), (size_t)(b - a), ret);
}
