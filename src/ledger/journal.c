/* File: a page of header, then a ring of `bytes`. Positions only grow; the place of position p is p % bytes. The ring is mapped twice, one copy
 * behind the other, so that a record that runs over the end is still one run of memory.
 *
 * A record is written first and `head` stored after it (release): a process that dies in between leaves a record that is not there. Each record also
 * says its own position and carries a checksum, so that after a power cut, when pages reached the disk in any order, reading stops at the first that
 * is not whole.
 *
 * Room: begin takes its own record and keeps RESERVE for the row, so that end cannot fail. An old request that is still open holds the tail; when
 * half the ring is used it is copied to the head, so that one long stream does not fill the journal. */
#include "ledger/journal.h"
#include "base/clock.h"
#include "base/hash.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 4096, REC_MAGIC = 0x6a52ea11, VERSION = 1, SLOTS = 1 << 16 };

typedef struct header {
  char magic[8]; /* "WEIRJNL" */
  uint32_t version, pad;
  uint64_t bytes;
  _Atomic uint64_t head, tail, seq;
} header;

typedef struct record {
  uint32_t magic, len, kind, slot;
  uint64_t seq, pos, sum; /* sum: xxHash64 of the fields above and of the payload */
} record;
enum { REC = sizeof(record), RESERVE = REC + JOURNAL_RECORD_MAX };
_Static_assert(REC % 8 == 0, "records stay aligned");

/* A request that is open: where its beginning lies. seq 0: free. */
typedef struct slot {
  uint64_t seq, pos;
  uint32_t next; /* of the free ones */
} slot;

struct journal {
  pthread_mutex_t mu;
  int fd;
  header *h;
  uint8_t *ring;
  uint64_t bytes, rows, n_open, damaged, stored; /* stored: the reader's position that is done */
  slot *slots;
  uint32_t free;
};

static uint64_t whole(uint64_t payload) { return (REC + payload + 7) & ~(uint64_t)7; }
static record *rec_at(const journal *j, uint64_t pos) { return (record *)(j->ring + pos % j->bytes); }

static uint64_t sum_of(const record *r) { return hash64(r + 1, r->len, hash64(r, offsetof(record, sum), REC_MAGIC)); }

static bool is_whole(const journal *j, uint64_t pos, uint64_t end) {
  const record *r = rec_at(j, pos);
  if (end - pos < REC || r->magic != REC_MAGIC || r->pos != pos || r->len > JOURNAL_RECORD_MAX || r->slot >= SLOTS) return false;
  return whole(r->len) <= end - pos && r->sum == sum_of(r);
}

/* ---- file ---- */

static bool map_ring(journal *j, err *e) {
  j->h = mmap(NULL, HEADER, PROT_READ | PROT_WRITE, MAP_SHARED, j->fd, 0);
  if (j->h == MAP_FAILED) {
    j->h = NULL;
    return err_errno(e, errno, "cannot map the journal");
  }
  uint8_t *p = mmap(NULL, 2 * j->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return err_errno(e, errno, "cannot map the journal");
  j->ring = p;
  for (int i = 0; i < 2; i++)
    if (mmap(p + (size_t)i * j->bytes, j->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, j->fd, HEADER) == MAP_FAILED)
      return err_errno(e, errno, "cannot map the journal");
  return true;
}

static bool make(journal *j, uint64_t bytes, err *e) {
  j->bytes = (bytes + HEADER - 1) / HEADER * HEADER;
  if (j->bytes < JOURNAL_MIN) j->bytes = JOURNAL_MIN;
  int r = posix_fallocate(j->fd, 0, (off_t)(HEADER + j->bytes));
  if (r) return err_errno(e, r, "cannot make a journal of %llu bytes", (unsigned long long)j->bytes);
  if (!map_ring(j, e)) return false;
  j->h->version = VERSION;
  j->h->bytes = j->bytes;
  atomic_store(&j->h->seq, (uint64_t)clock_unix_ns()); /* a journal made anew must not give numbers that an older one gave */
  memcpy(j->h->magic, "WEIRJNL", 8);
  return true;
}

static bool take_old(journal *j, uint64_t size, err *e) {
  header h;
  if (size < HEADER + JOURNAL_MIN || pread(j->fd, &h, sizeof h, 0) != (ssize_t)sizeof h || memcmp(h.magic, "WEIRJNL", 8) != 0)
    return err_set(e, ERR_INPUT, "the file is no journal of weir's");
  if (h.version != VERSION) return err_set(e, ERR_UNSUPPORTED, "the journal is of version %u, this weir reads %d", h.version, VERSION);
  if (h.bytes != size - HEADER || h.bytes % HEADER || h.tail > h.head || h.head - h.tail > h.bytes)
    return err_set(e, ERR_INPUT, "the journal's header is damaged");
  j->bytes = h.bytes;
  return map_ring(j, e);
}

/* Walks what the last process left: what is open, how many rows wait; stops at damage. */
static void recover(journal *j) {
  uint64_t head = atomic_load(&j->h->head), pos = atomic_load(&j->h->tail), seq = atomic_load(&j->h->seq);
  for (; pos < head && is_whole(j, pos, head); pos += whole(rec_at(j, pos)->len)) {
    const record *r = rec_at(j, pos);
    slot *s = &j->slots[r->slot];
    if (r->kind == JOURNAL_OPEN) {
      j->n_open += s->seq == 0;
      *s = (slot){r->seq, pos, 0};
    } else {
      if (s->seq == r->seq) {
        *s = (slot){0};
        j->n_open--;
      }
      j->rows++;
    }
    if (r->seq >= seq) seq = r->seq + 1;
  }
  j->damaged = head - pos;
  atomic_store(&j->h->head, pos);
  atomic_store(&j->h->seq, seq);
  j->stored = atomic_load(&j->h->tail);
}

/* Slots 1 .. SLOTS-1 are for requests that begin; slot 0 is everything that has no beginning. */
static void free_slots(journal *j) {
  j->free = 0;
  for (uint32_t i = SLOTS - 1; i > 0; i--)
    if (!j->slots[i].seq) {
      j->slots[i].next = j->free;
      j->free = i;
    }
}

bool journal_open(const char *path, uint64_t bytes, journal **ret, err *e) {
  journal *j = calloc(1, sizeof *j);
  struct stat st;
  if (!j) return err_set(e, ERR_NOMEM, "out of memory for the journal");
  pthread_mutex_init(&j->mu, NULL);
  j->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  bool ok = j->fd >= 0 || err_errno(e, errno, "cannot open it");
  ok = ok && (flock(j->fd, LOCK_EX | LOCK_NB) == 0 || err_set(e, ERR_BUSY, "another process writes it"));
  ok = ok && (fstat(j->fd, &st) == 0 || err_errno(e, errno, "cannot look at it"));
  ok = ok && ((j->slots = calloc(SLOTS, sizeof *j->slots)) || err_set(e, ERR_NOMEM, "out of memory for the journal"));
  ok = ok && (st.st_size ? take_old(j, (uint64_t)st.st_size, e) : make(j, bytes, e));
  if (!ok) {
    journal_close(j);
    return err_prefix(e, "journal %s", path);
  }
  recover(j);
  free_slots(j);
  *ret = j;
  return true;
}

void journal_close(journal *j) {
  if (!j) return;
  if (j->ring) munmap(j->ring, 2 * j->bytes);
  if (j->h) munmap(j->h, HEADER);
  if (j->fd >= 0) close(j->fd);
  pthread_mutex_destroy(&j->mu);
  free(j->slots);
  free(j);
}

bool journal_sync(journal *j, err *e) {
  if (msync(j->ring, j->bytes, MS_SYNC) == 0 && msync(j->h, HEADER, MS_SYNC) == 0) return true;
  return err_errno(e, errno, "cannot bring the journal to the disk");
}

/* ---- writing: with the mutex held ---- */

static uint64_t used(const journal *j) { return j->h->head - j->h->tail; }

static uint64_t append(journal *j, journal_kind kind, uint32_t slot_no, uint64_t seq, str payload) {
  uint64_t pos = j->h->head;
  record *r = rec_at(j, pos);
  *r = (record){.magic = REC_MAGIC, .len = (uint32_t)payload.n, .kind = kind, .slot = slot_no, .seq = seq, .pos = pos};
  if (payload.n) memcpy(r + 1, payload.p, payload.n);
  r->sum = sum_of(r);
  atomic_store_explicit(&j->h->head, pos + whole(payload.n), memory_order_release);
  return pos;
}

/* Gives back what is stored, and moves what is open out of the way when the ring is half full. */
static void reclaim(journal *j) {
  while (j->h->tail < j->stored) {
    const record *r = rec_at(j, j->h->tail);
    uint64_t size = whole(r->len);
    slot *s = &j->slots[r->slot];
    if (r->kind == JOURNAL_OPEN && s->seq == r->seq && s->pos == j->h->tail) {
      if (used(j) < j->bytes / 2 || j->bytes - used(j) < size) return;
      s->pos = append(j, JOURNAL_OPEN, r->slot, r->seq, (str){(const char *)(r + 1), r->len});
    }
    atomic_store_explicit(&j->h->tail, j->h->tail + size, memory_order_release);
  }
}

/* One RESERVE is always kept back for moving. */
static bool has_room(journal *j, uint64_t more) {
  uint64_t kept = (j->n_open + 1) * RESERVE;
  if (used(j) + kept + more <= j->bytes) return true;
  reclaim(j);
  return used(j) + kept + more <= j->bytes;
}

static bool full(const journal *j, err *e) {
  return err_set(e, ERR_BUSY, "the ledger's journal is full (%llu bytes): its store does not take rows", (unsigned long long)j->bytes);
}

static str bounded(str p) { return p.n <= JOURNAL_RECORD_MAX ? p : (str){p.p, JOURNAL_RECORD_MAX}; }

bool journal_begin(journal *j, str payload, uint64_t *ret, err *e) {
  payload = bounded(payload);
  pthread_mutex_lock(&j->mu);
  bool ok = j->free && has_room(j, whole(payload.n) + RESERVE);
  if (ok) {
    uint32_t i = j->free;
    uint64_t seq = atomic_fetch_add(&j->h->seq, 1);
    j->free = j->slots[i].next;
    j->slots[i] = (slot){seq, append(j, JOURNAL_OPEN, i, seq, payload), 0};
    j->n_open++;
    *ret = i;
  } else full(j, e);
  pthread_mutex_unlock(&j->mu);
  return ok;
}

void journal_end(journal *j, uint64_t handle, str payload) {
  pthread_mutex_lock(&j->mu);
  slot *s = &j->slots[handle];
  append(j, JOURNAL_ROW, (uint32_t)handle, s->seq, bounded(payload));
  *s = (slot){.next = j->free};
  j->free = (uint32_t)handle;
  j->n_open--;
  j->rows++;
  pthread_mutex_unlock(&j->mu);
}

bool journal_add(journal *j, str payload, err *e) {
  payload = bounded(payload);
  pthread_mutex_lock(&j->mu);
  bool ok = has_room(j, whole(payload.n));
  if (ok) {
    append(j, JOURNAL_ROW, 0, atomic_fetch_add(&j->h->seq, 1), payload);
    j->rows++;
  } else full(j, e);
  pthread_mutex_unlock(&j->mu);
  return ok;
}

/* ---- reading ---- */

bool journal_next(journal *j, uint64_t *pos, journal_rec *ret) {
  uint64_t head = atomic_load_explicit(&j->h->head, memory_order_acquire), at = *pos > j->stored ? *pos : j->stored;
  for (; at < head; at += whole(rec_at(j, at)->len)) {
    const record *r = rec_at(j, at);
    if (r->kind != JOURNAL_ROW) continue;
    *ret = (journal_rec){JOURNAL_ROW, r->seq, {(const char *)(r + 1), r->len}};
    *pos = at + whole(r->len);
    return true;
  }
  *pos = at;
  return false;
}

void journal_done(journal *j, uint64_t pos) {
  pthread_mutex_lock(&j->mu);
  for (; j->stored < pos; j->stored += whole(rec_at(j, j->stored)->len))
    if (rec_at(j, j->stored)->kind == JOURNAL_ROW) j->rows--;
  reclaim(j);
  pthread_mutex_unlock(&j->mu);
}

static int by_seq(const void *a, const void *b) {
  const slot *x = a, *y = b;
  return x->seq < y->seq ? -1 : x->seq > y->seq;
}

void journal_lost(journal *j, journal_lost_fn fn, void *ctx) {
  slot *left = calloc(j->n_open ? j->n_open : 1, sizeof *left);
  uint64_t n = 0;
  if (!left) return; /* they stay open, and are told at the next opening */
  for (uint32_t i = 0; i < SLOTS; i++)
    if (j->slots[i].seq) {
      left[n] = j->slots[i];
      left[n++].next = i;
    }
  qsort(left, n, sizeof *left, by_seq);
  for (uint64_t i = 0; i < n; i++) {
    const record *r = rec_at(j, left[i].pos);
    char copy[JOURNAL_RECORD_MAX];
    uint32_t len = r->len;
    memcpy(copy, r + 1, len);
    fn(ctx, left[i].next, (str){copy, len});
  }
  free(left);
}

void journal_stats(journal *j, journal_stat *ret) {
  pthread_mutex_lock(&j->mu);
  *ret = (journal_stat){j->bytes, used(j), (j->n_open + 1) * RESERVE, j->rows, j->n_open, j->damaged};
  pthread_mutex_unlock(&j->mu);
}
