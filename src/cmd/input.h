/* input.h - what a person hands to a command as a file or on stdin, read whole.
 * Not for model files (they are mapped) and not for configuration (base/yaml.h).
 * Ownership: the caller's buf takes the bytes.
 * Threads: the main thread.
 * Failure: ERR_IO or ERR_NOT_FOUND naming the file, ERR_TOO_LARGE over INPUT_MAX. */
#ifndef CMD_INPUT_H
#define CMD_INPUT_H
#include "base/buf.h"
#include "base/err.h"

enum { INPUT_MAX = 256 << 20 };
bool input_read(const char *path, buf *b, err *e); /* "-": stdin; b was set up with INPUT_MAX */
#endif
