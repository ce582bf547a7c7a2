#include "serve/defaults.h"
#include "fetch/fetch.h"
#include <math.h>
#include <stdio.h>

typedef struct out {
  char *text;
  size_t n;
} out;

static void say(out *o, const char *name, double v, const char *from) {
  int k = snprintf(o->text + o->n, DEFAULTS_TEXT - o->n, "%s%s %g (%s)", o->n ? ", " : "", name, v, from);
  if (k > 0 && o->n + (size_t)k < DEFAULTS_TEXT) o->n += (size_t)k;
}

static void settle(out *o, const char *name, float *own, double advised) {
  bool file = !isnan(*own);
  if (!file) *own = (float)advised;
  if (!isnan(*own)) say(o, name, file ? (double)*own : advised, file ? "file" : "catalogue");
}

void defaults_apply(model *m, const char *path, char text[DEFAULTS_TEXT]) {
  cat_sampling c = {NAN, NAN, NAN, NAN, -1};
  out o = {text, 0};
  fetch_sampling(path, &c);
  text[0] = 0;
  settle(&o, "temperature", &m->temperature, c.temperature);
  settle(&o, "top_p", &m->top_p, c.top_p);
  bool file = m->top_k >= 0;
  if (!file) m->top_k = (int)c.top_k;
  if (m->top_k >= 0) say(&o, "top_k", m->top_k, file ? "file" : "catalogue");
  settle(&o, "min_p", &m->min_p, c.min_p);
  settle(&o, "repetition", &m->repetition, c.repetition);
  if (!o.n) snprintf(text, DEFAULTS_TEXT, "temperature 1, top_p 1 (API)");
}
