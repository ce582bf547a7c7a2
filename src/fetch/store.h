/* store.h - model files on this disk: what is verified, FILE.part while one grows, the lock that makes two pulls take turns.
 * Not the network and not the catalogue: it is told what to expect.
 * Ownership: a part owns its descriptor, hash and note until part_close or part_commit.
 * Threads: one owner per part; processes and threads exclude each other through store_lock.
 * Failure: ERR_IO with what is missing ("disk full: ..."), ERR_INPUT when the bytes are not the expected ones.
 *
 * Beside FILE: `.FILE.json` (the sidecar: size, time stamp and hash of a file that was verified, so that it is not read again),
 * `FILE.part` with `.FILE.part.json` (what it is a part of, and how far a source in parts had come), `.FILE.lock`. */
#ifndef FETCH_STORE_H
#define FETCH_STORE_H
#include "base/hash.h"
#include "base/json.h"
#include "base/os.h"

typedef enum store_state { STORE_ABSENT, STORE_PARTIAL, STORE_UNVERIFIED, STORE_VERIFIED } store_state;

/* Looks at stat and sidecar only. sha256 may be "" (then any hash in the sidecar will do). *ret_bytes: of the file, or of its part. */
store_state store_look(const char *path, uint64_t bytes, const char *sha256, uint64_t *ret_bytes);
/* The same, but a file without a valid sidecar is read and hashed; when it is the expected one the sidecar is written. False: not that file. */
bool store_verify(const char *path, uint64_t bytes, const char *sha256, err *e);

/* flock on a file beside `path`. busy(arg) is called once when another holds it; stop() polled while waiting. */
typedef struct store_wait {
  void (*busy)(void *arg);
  bool (*stop)(void *arg);
  void *arg;
} store_wait;
bool store_lock(const char *path, const store_wait *w, int *ret_fd, err *e);
void store_unlock(const char *path, int fd);

typedef struct part {
  char path[OS_PATH], tmp[OS_PATH], note_path[OS_PATH];
  int fd;
  uint64_t n;      /* bytes in the file, all of them hashed */
  uint64_t expect; /* 0: not known */
  char sha256[65]; /* "": not known */
  bool resumed;    /* holds bytes of an earlier try */
  sha256 *hash;
  json_t *note; /* {key, etag, pypi: {of, parts, at}} */
} part;

/* `key` says what this is a part of; bytes kept under another key are dropped. */
bool part_open(part *p, const char *path, uint64_t expect, const char *sha256, const char *key, err *e);
bool part_write(part *p, const void *data, size_t n, err *e);
bool part_cut(part *p, uint64_t n, err *e);                       /* back to the first n bytes */
bool part_note(part *p, const char *name, json_t *value, err *e); /* takes the reference; written through at once */
bool part_commit(part *p, const char *source, err *e); /* checks size and hash, renames, writes the sidecar; the part is closed on success */
void part_close(part *p);                              /* what arrived stays for the next try */
bool part_room(const part *p, err *e);                 /* false when the disk cannot hold the rest */

void store_sidecar_path(const char *path, char out[OS_PATH]);
void store_remove_tree(const char *path);
#endif
