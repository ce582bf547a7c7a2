#include "base/json.h"
#include "cmd/cmd.h"
#include "engine/weights.h"
#include "fetch/fetch.h"
#include "model/model.h"
#include "serve/defaults.h"
#include "term/progress.h"
#include <stdlib.h>

/* What a model file holds, and what running it will cost: the file's own words first, then figures computed from them. A file whose architecture is
 * not supported is shown all the same, with the reason: looking inside is how one finds out. */

enum {
  KV_ELEM = 2,   /* bytes of a K or V element, F16 */
  LIST_MAX = 16, /* array elements shown whole */
  TEXT_MAX = 100,
  JSON_TEXT_MAX = 256 << 10 /* a whole tokenizer.json is no answer to a question about a model */
};

typedef struct inspect_opts {
  bool json, tensors;
  int64_t ctx;
} inspect_opts;

static const opt_row rows[] = {
    {"ctx", 'c', NULL, OPT_INT, offsetof(inspect_opts, ctx), 1, 1 << 24, NULL, NULL, false, "Options", "N",
        "context length to compute the memory for; the model's own, at most 8192, if not given"},
    {"tensors", 0, NULL, OPT_FLAG, offsetof(inspect_opts, tensors), 0, 0, NULL, NULL, false, "Options", NULL, "list every tensor"},
    {"json", 0, NULL, OPT_FLAG, offsetof(inspect_opts, json), 0, 0, NULL, NULL, false, "Options", NULL, "one JSON object instead of text"},
    {0},
};

const opt_cmd cmd_inspect_opts = {"inspect", "FILE | NAME", "look inside a model file: metadata, tensors, what running it costs",
    "Bytes read per token are the weights one decoded token has to pull through memory, which bounds decode speed; with the KV bytes of every token "
    "before it they are all that is read. Memory is weights and KV for one sequence of --ctx tokens. These figures are computed from the file, not "
    "measured.",
    rows, sizeof(inspect_opts), 1, 1};

/* ---- figures ---------------------------------------------------------------------------------------------------------------- */

typedef struct figures {
  const mfile *g;
  const char *path, *name;
  bool runs; /* arch is filled */
  err why;   /* why not */
  arch arch;
  char sampling[DEFAULTS_TEXT]; /* what a request gets that does not say */
  uint64_t params, weight_bytes, read_bytes, kv_bytes, ctx;
} figures;

static void compute_sampling(figures *f) {
  model m = {.file = (mfile *)f->g}; /* only read; a model's own pointer is not to a constant */
  err e = {0};
  if (model_defaults(&m, &e)) defaults_apply(&m, f->path, f->sampling);
  else snprintf(f->sampling, sizeof f->sampling, "refused: %.180s", e.msg);
}

static void compute(figures *f, int64_t ctx) {
  compute_sampling(f);
  f->params = arch_params(f->g);
  for (uint64_t i = 0; i < f->g->n_tensors; i++) f->weight_bytes += f->g->tensors[i].bytes;
  f->runs = arch_read(f->g, weights_type_ok, &f->arch, &f->why);
  if (!f->runs) return;
  f->read_bytes = arch_read_bytes(f->g, &f->arch);
  f->kv_bytes = arch_kv_bytes(&f->arch, KV_ELEM);
  f->ctx = ctx ? (uint64_t)ctx : f->arch.ctx < 8192 ? (uint64_t)f->arch.ctx : 8192;
}

typedef struct use {
  const wtype_info *type;
  uint64_t n, bytes;
} use;

static int by_bytes(const void *a, const void *b) {
  uint64_t x = ((const use *)a)->bytes, y = ((const use *)b)->bytes;
  return x < y ? 1 : x > y ? -1 : 0;
}

/* Which types hold how much, largest first. There are fewer types than rows. */
static int histogram(const mfile *g, use out[64]) {
  int n = 0;
  for (uint64_t i = 0; i < g->n_tensors; i++) {
    int k = 0;
    while (k < n && out[k].type != g->tensors[i].type) k++;
    if (k == 64) continue;
    if (k == n) out[n++] = (use){g->tensors[i].type, 0, 0};
    out[k].n++;
    out[k].bytes += g->tensors[i].bytes;
  }
  qsort(out, (size_t)n, sizeof *out, by_bytes);
  return n;
}

static bool number_kind(mf_kind k) { return k != MF_STR && k != MF_ARR; }
static bool float_kind(mf_kind k) { return k == MF_F32 || k == MF_F64; }

/* Element i of an array; a scalar is read as the array of one that it is in the file. */
static mf_val as_array(const mf_val *v) {
  mf_val a = *v;
  if (v->kind != MF_ARR) {
    a.kind = MF_ARR;
    a.elem = v->kind;
    a.count = 1;
  }
  return a;
}

/* ---- text ------------------------------------------------------------------------------------------------------------------- */

static void put_string(buf *b, str s) {
  size_t n = s.n <= TEXT_MAX ? s.n : utf8_valid_prefix((str){s.p, TEXT_MAX}, NULL);
  buf_putc(b, '"');
  buf_json(b, (str){s.p, n});
  buf_putc(b, '"');
  if (n < s.n) buf_printf(b, "... (%zu bytes)", s.n);
}

static void put_number(buf *b, const mf_val *a, uint64_t i) {
  if (a->elem == MF_BOOL) buf_puts(b, mf_elem_i64(a, i) ? "true" : "false");
  else if (float_kind(a->elem)) buf_printf(b, "%g", mf_elem_f64(a, i));
  else if (a->elem == MF_U64) buf_printf(b, "%.0f", mf_elem_f64(a, i));
  else buf_printf(b, "%lld", (long long)mf_elem_i64(a, i));
}

static void put_val(buf *b, const mf_val *v) {
  if (v->kind == MF_STR) {
    put_string(b, v->raw);
    return;
  }
  mf_val a = as_array(v);
  if (v->kind != MF_ARR) {
    put_number(b, &a, 0);
    return;
  }
  uint64_t shown = a.count <= LIST_MAX ? a.count : 4;
  if (!number_kind(a.elem) && !a.strs) shown = 0;
  buf_printf(b, "%llu x %s [", (unsigned long long)a.count, mf_kind_name(a.elem));
  for (uint64_t i = 0; i < shown; i++) {
    if (i) buf_puts(b, ", ");
    if (a.strs) put_string(b, a.strs[i]);
    else put_number(b, &a, i);
  }
  buf_puts(b, shown < a.count ? ", ...]" : "]");
}

static void size_line(const char *label, uint64_t bytes, const char *what) {
  char size[16];
  progress_bytes(bytes, size);
  printf("  %-18s %s %s\n", label, size, what);
}

static void print_cost(const figures *f) {
  const arch *a = &f->arch;
  char total[16], held[16], kv[16];
  printf("  %-18s %s: %d layers, %d wide, %d heads over %d of %d, feed-forward %d, %s output\n", "architecture", a->family, a->n_layer, a->dim,
      a->n_head, a->n_kv, a->head_dim, a->ffn, a->tied ? "tied" : "own");
  printf("  %-18s %d tokens\n", "vocabulary", a->vocab);
  printf("  %-18s %d tokens\n", "context", a->ctx);
  size_line("read per token", f->read_bytes, "of weights");
  printf("  %-18s %llu bytes (F16)\n", "KV per token", (unsigned long long)f->kv_bytes);
  progress_bytes(f->weight_bytes, held);
  progress_bytes(f->kv_bytes * f->ctx, kv);
  progress_bytes(f->weight_bytes + f->kv_bytes * f->ctx, total);
  printf("  %-18s %s at %llu tokens: weights %s, KV %s\n", "memory", total, (unsigned long long)f->ctx, held, kv);
}

static void print_tensors(const mfile *g) {
  puts("\ntensors");
  for (uint64_t i = 0; i < g->n_tensors; i++) {
    const mf_tensor *t = &g->tensors[i];
    printf("  %-32.*s %-5s %lld", (int)t->name.n, t->name.p, t->type->name, (long long)t->ne[0]);
    for (int d = 1; d < t->n_dims; d++) printf(" x %lld", (long long)t->ne[d]);
    printf("  (%llu bytes)\n", (unsigned long long)t->bytes);
  }
}

static void print_text(const figures *f, bool tensors) {
  const mfile *g = f->g;
  use types[64];
  int n = histogram(g, types);
  buf b;
  char size[16];
  printf("%s  %s\n\n", f->name, f->path);
  progress_bytes(g->size, size);
  printf("  %-18s %s, ", g->n_maps > 1 ? "files" : "file", size);
  if (g->hf_layout) printf("safetensors, ");
  else printf("GGUF version %u, ", g->version);
  if (g->n_maps > 1) printf("%d files, ", g->n_maps);
  printf("%llu tensors\n", (unsigned long long)g->n_tensors);
  printf("  %-18s %.1f M\n", "parameters", (double)f->params / 1e6);
  printf("  %-18s ", "weights");
  for (int i = 0; i < n; i++) {
    progress_bytes(types[i].bytes, size);
    printf("%s%s %s in %llu", i ? ", " : "", types[i].type->name, size, (unsigned long long)types[i].n);
  }
  putchar('\n');
  if (f->runs) print_cost(f);
  else printf("  %-18s no: %s\n", "runs here", f->why.msg);
  printf("  %-18s %s\n", "sampling", f->sampling);
  puts("\nmetadata");
  buf_init(&b, 1 << 20);
  for (uint64_t i = 0; i < g->n_vals; i++) {
    buf_clear(&b);
    put_val(&b, &g->vals[i]);
    printf("  %.*s = %.*s\n", (int)g->vals[i].key.n, g->vals[i].key.p, (int)b.n, b.n ? b.p : "");
  }
  buf_fini(&b);
  if (tensors) print_tensors(g);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------------- */

/* Text that is not UTF-8 cannot stand in JSON as it is: what is wrong with it becomes U+FFFD, as everywhere else. */
static json_t *json_text(str s) {
  json_t *v = json_stringn(s.p, s.n);
  if (v) return v;
  buf b;
  buf_init(&b, s.n * 3 + 16);
  for (size_t at = 0; at < s.n;) {
    size_t good = utf8_valid_prefix((str){s.p + at, s.n - at}, NULL);
    buf_put(&b, s.p + at, good);
    at += good;
    if (at < s.n) {
      buf_puts(&b, "\xef\xbf\xbd");
      at++;
    }
  }
  v = json_stringn(b.n ? b.p : "", b.n);
  buf_fini(&b);
  return v;
}

static json_t *json_number(const mf_val *a, uint64_t i) {
  if (a->elem == MF_BOOL) return json_boolean(mf_elem_i64(a, i));
  if (float_kind(a->elem) || (a->elem == MF_U64 && mf_elem_f64(a, i) > 9e18)) {
    json_t *v = json_real(mf_elem_f64(a, i));
    return v ? v : json_null(); /* not a number: JSON has no word for it */
  }
  return json_integer((json_int_t)mf_elem_i64(a, i));
}

static json_t *json_val(const mf_val *v) {
  if (v->kind == MF_STR && v->raw.n > JSON_TEXT_MAX) return json_pack("{s:I}", "text_bytes", (json_int_t)v->raw.n);
  if (v->kind == MF_STR) return json_text(v->raw);
  mf_val a = as_array(v);
  if (v->kind != MF_ARR) return json_number(&a, 0);
  if (a.count > LIST_MAX || a.elem == MF_ARR) return json_pack("{s:s, s:I}", "array_of", mf_kind_name(a.elem), "count", (json_int_t)a.count);
  json_t *list = json_array();
  for (uint64_t i = 0; i < a.count; i++) json_array_append_new(list, a.strs ? json_text(a.strs[i]) : json_number(&a, i));
  return list;
}

static json_t *json_tensor(const mf_tensor *t) {
  json_t *shape = json_array();
  for (int d = 0; d < t->n_dims; d++) json_array_append_new(shape, json_integer(t->ne[d]));
  return json_pack("{s:s%, s:s, s:o, s:I}", "name", t->name.p, t->name.n, "type", t->type->name, "shape", shape, "bytes", (json_int_t)t->bytes);
}

static json_t *json_arch(const figures *f) {
  const arch *a = &f->arch;
  return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "family", a->family, "layers", a->n_layer, "width", a->dim, "heads",
      a->n_head, "kv_heads", a->n_kv, "head_dim", a->head_dim, "feed_forward", a->ffn, "vocabulary", a->vocab, "context", a->ctx, "tied_output",
      a->tied);
}

static void print_json(const figures *f, bool tensors) {
  const mfile *g = f->g;
  use types[64];
  int n = histogram(g, types);
  json_t *o = json_pack("{s:o, s:o, s:s, s:i, s:I, s:i, s:I, s:I, s:I}", "name", json_text(str_c(f->name)), "path", json_text(str_c(f->path)),
      "format", g->hf_layout ? "safetensors" : "gguf", "files", g->n_maps, "file_bytes", (json_int_t)g->size, "gguf_version", (int)g->version,
      "tensor_count", (json_int_t)g->n_tensors, "parameters", (json_int_t)f->params, "weight_bytes", (json_int_t)f->weight_bytes);
  json_t *hist = json_object(), *meta = json_object(), *list = json_array();
  for (int i = 0; i < n; i++)
    json_object_set_new(hist, types[i].type->name, json_pack("{s:I, s:I}", "tensors", (json_int_t)types[i].n, "bytes", (json_int_t)types[i].bytes));
  json_object_set_new(o, "sampling", json_text(str_c(f->sampling)));
  json_object_set_new(o, "types", hist);
  json_object_set_new(o, "runs", json_boolean(f->runs));
  if (f->runs) {
    json_object_set_new(o, "architecture", json_arch(f));
    json_object_set_new(o, "read_bytes_per_token", json_integer((json_int_t)f->read_bytes));
    json_object_set_new(o, "kv_bytes_per_token", json_integer((json_int_t)f->kv_bytes));
    json_object_set_new(o, "memory",
        json_pack("{s:I, s:I, s:I}", "ctx", (json_int_t)f->ctx, "kv_bytes", (json_int_t)(f->kv_bytes * f->ctx), "total_bytes",
            (json_int_t)(f->weight_bytes + f->kv_bytes * f->ctx)));
  } else json_object_set_new(o, "why_not", json_text(str_c(f->why.msg)));
  for (uint64_t i = 0; i < g->n_vals; i++) json_object_setn_new(meta, g->vals[i].key.p, g->vals[i].key.n, json_val(&g->vals[i]));
  json_object_set_new(o, "metadata", meta);
  for (uint64_t i = 0; tensors && i < g->n_tensors; i++) json_array_append_new(list, json_tensor(&g->tensors[i]));
  if (tensors) json_object_set(o, "tensors", list);
  json_decref(list);
  json_dumpf(o, stdout, JSON_INDENT(2));
  putchar('\n');
  json_decref(o);
}

int cmd_inspect(int argc, char **argv) {
  inspect_opts o;
  err e = {0};
  char **pos, path[OS_PATH], name[FETCH_NAME];
  int n_pos;
  bool helped;
  mfile *g = NULL;
  if (!opt_parse(&cmd_inspect_opts, argc, argv, &o, NULL, &pos, &n_pos, &helped, &e)) return cmd_fail("inspect", &e);
  if (helped) return 0;
  fetch_opts fo = {.no_pull = true};
  if (!fetch_model(pos[0], &fo, path, name, &e) || !model_file(path, &g, &e)) return cmd_fail("inspect", &e);
  figures f = {.g = g, .path = path, .name = name};
  compute(&f, o.ctx);
  if (o.json) print_json(&f, o.tensors);
  else print_text(&f, o.tensors);
  mf_close(g);
  return 0;
}
