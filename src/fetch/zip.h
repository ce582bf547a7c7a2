/* zip.h - reads one member out of a zip archive (a wheel is one): stored or deflated, zip64 included.
 * Not a writer and not an extractor: nothing is created on the disk and no name inside the archive is used as a path.
 * Ownership: owns the file descriptor and the directory it read.
 * Threads: one owner.
 * Failure: ERR_INPUT for anything that lies (offsets, sizes, CRC), ERR_NOT_FOUND for a member that is not there, ERR_UNSUPPORTED for other
 *   compression or encryption. Every offset and length is checked against the file before it is used. */
#ifndef FETCH_ZIP_H
#define FETCH_ZIP_H
#include "base/err.h"
#include "base/str.h"

typedef struct zip zip;
typedef struct zip_member {
  str name;
  uint64_t size, packed, at;
  uint32_t crc;
  int method;
} zip_member; /* name: borrowed from the zip */
typedef bool (*zip_sink)(void *arg, const void *p, size_t n, err *e);

bool zip_open(const char *path, zip **ret, err *e);
void zip_close(zip *z);
bool zip_find(const zip *z, const char *name, zip_member *ret, err *e);
/* The member's bytes in order. Ends with an error when the data does not have exactly the stated size and CRC; what was given before is then void. */
bool zip_read(zip *z, const zip_member *m, zip_sink sink, void *arg, err *e);
#endif
