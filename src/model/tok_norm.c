/* Normal forms (Unicode Standard Annex 15); C is what Qwen's tokenizer applies before anything else.
 * utf8proc gives the data and the composition. Its own reordering of combining marks is an insertion sort over the whole text: a megabyte of marks in
 * falling order would take minutes, so runs of marks are sorted here, long ones by counting. */
#include "model/tok_impl.h"
#include <stdlib.h>
#include <utf8proc.h>

/* Below U+0300 every code point is a starter that composes with nothing before it: text of such is in form C. U+0300 is encoded CC 80. */
static bool plain(str s) {
  size_t i = 0;
  for (; i + 8 <= s.n; i += 8) {
    uint64_t v;
    memcpy(&v, s.p + i, 8);
    if (v & 0x8080808080808080u)
      for (size_t k = i; k < i + 8; k++)
        if ((uint8_t)s.p[k] >= 0xcc) return false;
  }
  for (; i < s.n; i++)
    if ((uint8_t)s.p[i] >= 0xcc) return false;
  return true;
}

static bool ascii(str s) {
  for (size_t i = 0; i < s.n; i++)
    if ((uint8_t)s.p[i] >= 0x80) return false;
  return true;
}

static inline unsigned mark_class(int32_t cp) { return (unsigned)utf8proc_get_property(cp)->combining_class & 255u; }

/* Stable sort by combining class of a run of marks. */
static bool sort_marks(int32_t *v, size_t n) {
  if (n <= 16) {
    for (size_t i = 1; i < n; i++) {
      int32_t x = v[i];
      unsigned c = mark_class(x);
      size_t j = i;
      for (; j && mark_class(v[j - 1]) > c; j--) v[j] = v[j - 1];
      v[j] = x;
    }
    return true;
  }
  size_t start[257] = {0};
  int32_t *tmp = malloc(n * sizeof *tmp);
  if (!tmp) return false;
  memcpy(tmp, v, n * sizeof *v);
  for (size_t i = 0; i < n; i++) start[mark_class(tmp[i]) + 1]++;
  for (int c = 0; c < 256; c++) start[c + 1] += start[c];
  for (size_t i = 0; i < n; i++) v[start[mark_class(tmp[i])]++] = tmp[i];
  free(tmp);
  return true;
}

static bool sort_all_marks(int32_t *v, size_t n) {
  for (size_t i = 0; i < n;) {
    if (!mark_class(v[i])) {
      i++;
      continue;
    }
    size_t j = i + 1;
    while (j < n && mark_class(v[j])) j++;
    if (j - i > 1 && !sort_marks(v + i, j - i)) return false;
    i = j;
  }
  return true;
}

/* Decomposition of every code point, in the order of the text. */
static int32_t *decompose(str s, bool compat, size_t *ret_n) {
  size_t cap = s.n + 8, n = 0;
  int32_t *v = malloc(cap * sizeof *v);
  for (size_t i = 0; v && i < s.n;) {
    uint32_t cp = 0;
    int len = utf8_decode(s.p + i, s.n - i, &cp), bound = 0;
    utf8proc_ssize_t k = utf8proc_decompose_char(
        (utf8proc_int32_t)cp, v + n, (utf8proc_ssize_t)(cap - n), UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0), &bound);
    if (k >= 0 && (size_t)k > cap - n) { /* did not fit: room, and once more */
      int32_t *q = realloc(v, (cap = cap + cap / 2 + (size_t)k) * sizeof *v);
      if (!q) {
        free(v);
        return NULL;
      }
      v = q;
      continue;
    }
    if (k > 0) n += (size_t)k;
    i += len ? (size_t)len : 1;
  }
  *ret_n = n;
  return v;
}

bool tok_step_form(tok_work *w, const tok_step *s, str in, buf *out, str *ret) {
  (void)w;
  if (s->flags == TOK_NF_COMPOSE ? plain(in) : ascii(in)) {
    *ret = in;
    return true;
  }
  size_t n = 0;
  int32_t *v = decompose(in, s->flags & TOK_NF_COMPAT, &n);
  bool ok = v && sort_all_marks(v, n);
  if (ok) {
    utf8proc_ssize_t m = (utf8proc_ssize_t)n;
    if (s->flags & TOK_NF_COMPOSE) m = utf8proc_normalize_utf32(v, m, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    buf_clear(out);
    ok = m >= 0 && buf_reserve(out, (size_t)m * 4);
    for (utf8proc_ssize_t i = 0; ok && i < m; i++) out->n += (size_t)utf8_encode((uint32_t)v[i], out->p + out->n);
  }
  free(v);
  if (ok) *ret = buf_view(out);
  return ok;
}
