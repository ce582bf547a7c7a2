#include "base/os.h"
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool read_line(const char *path, char *b, size_t n) {
  FILE *f = fopen(path, "r");
  if (!f) return false;
  bool ok = fgets(b, (int)n, f) != NULL;
  fclose(f);
  return ok;
}

int os_cores(void) {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
  char b[128];
  long long quota, period;
  if (read_line("/sys/fs/cgroup/cpu.max", b, sizeof b) && sscanf(b, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
    int q = (int)((quota + period - 1) / period);
    if (q < n) n = q;
  }
  return n < 1 ? 1 : n;
}

uint64_t os_memory(void) {
  uint64_t m = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  static const char *const files[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
  for (int i = 0; i < 2; i++) {
    char b[64];
    unsigned long long v;
    if (read_line(files[i], b, sizeof b) && sscanf(b, "%llu", &v) == 1 && v > 0 && v < m) m = v;
  }
  return m;
}

uint64_t os_rss_peak(void) {
  FILE *f = fopen("/proc/self/status", "r");
  if (!f) return 0;
  char b[256];
  unsigned long long kb = 0;
  while (fgets(b, sizeof b, f))
    if (sscanf(b, "VmHWM: %llu", &kb) == 1) break;
  fclose(f);
  return kb * 1024;
}

bool os_mkdirs(const char *path, err *e) {
  char p[OS_PATH];
  if ((size_t)snprintf(p, sizeof p, "%s", path) >= sizeof p) return err_set(e, ERR_IO, "path too long: %.80s...", path);
  for (char *q = p + 1;; q++) {
    if (*q && *q != '/') continue;
    char c = *q;
    *q = 0;
    if (mkdir(p, 0777) && errno != EEXIST) return err_errno(e, errno, "cannot create folder %s", p);
    if (!c) return true;
    *q = c;
  }
}

static bool xdg(const char *var, const char *home_sub, const char *sub, char out[OS_PATH], err *e) {
  const char *v = getenv(var), *h = getenv("HOME");
  int n;
  if (v && v[0] == '/') n = snprintf(out, OS_PATH, "%s/%s", v, sub);
  else if (h && h[0]) n = snprintf(out, OS_PATH, "%s/%s/%s", h, home_sub, sub);
  else return err_set(e, ERR_IO, "neither %s nor HOME is set: set one of them", var);
  return n < OS_PATH ? true : err_set(e, ERR_IO, "%s is too long", var);
}

bool os_dir_models(char out[OS_PATH], err *e) { return xdg("XDG_CACHE_HOME", ".cache", "weir/models", out, e) && os_mkdirs(out, e); }
bool os_dir_data(char out[OS_PATH], err *e) { return xdg("XDG_DATA_HOME", ".local/share", "weir", out, e) && os_mkdirs(out, e); }
bool os_dir_config(char out[OS_PATH], err *e) { return xdg("XDG_CONFIG_HOME", ".config", "weir", out, e); }
