/* os.h - what the machine allows and where our files lie: usable cores, memory the cgroup grants, XDG folders.
 * Not a portability layer.
 * Ownership: paths are written to the caller's buffer.
 * Threads: any (reads the environment: not while another thread sets it).
 * Failure: false with ERR_IO. */
#ifndef BASE_OS_H
#define BASE_OS_H
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

enum { OS_PATH = 4096 };
int os_cores(void);                            /* affinity mask capped by the cgroup's CPU quota, >= 1 */
uint64_t os_memory(void);                      /* bytes: the smaller of RAM and the cgroup's limit */
uint64_t os_rss_peak(void);                    /* VmHWM of this process, bytes */
bool os_dir_models(char out[OS_PATH], err *e); /* $XDG_CACHE_HOME/weir/models (or ~/.cache/...); made if missing */
bool os_dir_data(char out[OS_PATH], err *e);   /* $XDG_DATA_HOME/weir (or ~/.local/share/...); made if missing */
bool os_dir_config(char out[OS_PATH], err *e); /* $XDG_CONFIG_HOME/weir (or ~/.config/...); not made */
bool os_mkdirs(const char *path, err *e);
#endif
