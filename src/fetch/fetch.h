/* fetch.h - from what a person calls a model (catalogue name, path, hf:owner/repo, URL) to a file on this disk, verified.
 * Not a package manager: it brings model files and never runs or imports what came with them.
 * Ownership: everything goes into the caller's buffers; the catalogue is read anew by each call.
 * Threads: any; blocking. Two processes (or threads) that want the same file take turns on a lock file.
 * Failure: ERR_NOT_FOUND (no such name, with the nearest one), ERR_NET (no source could give it), ERR_INPUT (hash differs, licence not accepted,
 *   bad archive), ERR_IO (disk), ERR_CANCELLED (opts.stop). What arrived is kept as FILE.part and used by the next try. */
#ifndef FETCH_FETCH_H
#define FETCH_FETCH_H
#include "base/err.h"
#include "base/os.h"
#include "base/json.h"
#include "fetch/catalog.h"
#include <signal.h>

enum { FETCH_NAME = 128 };

typedef struct fetch_progress {
  const char *what;     /* file name */
  uint64_t done, total; /* bytes; total 0: not known */
  int part, parts;      /* 1-based; parts 0: not in parts */
  bool finished;        /* the last call for this file */
} fetch_progress;

typedef struct fetch_opts {
  bool offline; /* never use the network (HF_HUB_OFFLINE sets it too) */
  bool no_pull; /* resolve only: what is not here fails with "run: weir pull NAME" */
  bool accept_licence;
  bool to_run;                                          /* refuse a catalogue model that this version cannot run before any of it is fetched */
  bool force;                                           /* fetch again although a verified copy is here */
  void (*progress)(void *arg, const fetch_progress *p); /* may be NULL; at most every 100 ms */
  void (*note)(void *arg, const char *line);            /* may be NULL: a source fell through, a file was chosen, a lock is waited for */
  void *arg;
  const volatile sig_atomic_t *stop; /* may be NULL: non-zero ends the call with ERR_CANCELLED */
} fetch_opts;

/* The file (or folder, for a model of several files) `what` stands for, brought here when it is not here yet and that is allowed.
 * path: absolute for fetched files, as given for a local path. name: what the model is served as: catalogue name or the file's stem. `o` may be NULL.
 */
bool fetch_model(const char *what, const fetch_opts *o, char path[OS_PATH], char name[FETCH_NAME], err *e);
const char *fetch_default(void); /* the model used when none is named: "smollm2-135m" */

/* The sampling the catalogue recommends for the model at this path. False: no entry has this file, or it recommends nothing. */
bool fetch_sampling(const char *path, cat_sampling *ret);

/* [{name, title, what, file, path, bytes, sha256, architecture, weights, licence, state: "verified"|"partial"|"absent"|"unverified", have_bytes,
 * catalogue, runs (false: fetched, but not run by this version; absent: not known), context,
 * sampling: {temperature, top_p, top_k, min_p, repetition}, what is recommended of them}] */
bool fetch_list(json_t **ret, err *e);
#endif
