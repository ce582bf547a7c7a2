/* Runs a target over stored inputs, without libFuzzer: `replay_NAME corpus/NAME.pack.gz findings/NAME`. This is how the normal tests, under any
 * compiler and any sanitizer, keep what fuzzing has found. A pack is a gzip of records: four bytes of length (little-endian), then the input. */
#include "fuzz.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { INPUT_MAX = 1 << 22, SECONDS = 60 /* of one input, also under a sanitizer */, PATH = 4096 };
static char where[PATH + 64];

static void on_death(int sig) {
  static const char head[] = "\nwhile replaying ";
  ssize_t n = write(2, head, sizeof head - 1);
  n = write(2, where, strlen(where));
  n = write(2, "\n", 1);
  (void)n;
  signal(sig, SIG_DFL);
  raise(sig);
}

static void one(const uint8_t *p, size_t n) {
  uint8_t *copy = fuzz_copy(p, n); /* of its exact size, as libFuzzer gives it */
  alarm(SECONDS);
  LLVMFuzzerTestOneInput(copy, n);
  alarm(0);
  free(copy);
}

static int fail(const char *path, const char *why) {
  printf("not ok %s: %s\n", path, why);
  return -1;
}

/* Number of inputs, or -1. */
static int replay_pack(const char *path) {
  gzFile f = gzopen(path, "rb");
  uint8_t len[4], *p = malloc(INPUT_MAX);
  int n = 0, k;
  if (!f || !p) return fail(path, "cannot be opened");
  while ((k = gzread(f, len, 4)) == 4) {
    uint32_t size = len[0] | (uint32_t)len[1] << 8 | (uint32_t)len[2] << 16 | (uint32_t)len[3] << 24;
    if (size > INPUT_MAX || gzread(f, p, size) != (int)size) return fail(path, "is damaged");
    snprintf(where, sizeof where, "input %d of %.4000s (script/fuzz --unpack)", n, path);
    one(p, size);
    n++;
  }
  gzclose(f);
  free(p);
  return k ? fail(path, "is damaged") : n;
}

static int replay_file(const char *path) {
  FILE *f = fopen(path, "rb");
  uint8_t *p = malloc(INPUT_MAX);
  if (!f || !p) return fail(path, "cannot be opened");
  size_t n = fread(p, 1, INPUT_MAX, f);
  fclose(f);
  snprintf(where, sizeof where, "%.4000s", path);
  one(p, n);
  free(p);
  return 1;
}

static int replay_folder(const char *path) {
  DIR *d = opendir(path);
  int n = 0;
  if (!d) return fail(path, "cannot be read");
  for (struct dirent *e; (e = readdir(d));) {
    char full[PATH];
    if (*e->d_name == '.') continue;
    if (snprintf(full, sizeof full, "%s/%s", path, e->d_name) >= PATH) return fail(path, "has too long a name in it");
    if (replay_file(full) < 0) return -1;
    n++;
  }
  closedir(d);
  return n;
}

static int replay(const char *path) {
  struct stat st;
  size_t n = strlen(path);
  if (stat(path, &st) != 0) return fail(path, "is not there");
  if (S_ISDIR(st.st_mode)) return replay_folder(path);
  return n > 8 && strcmp(path + n - 8, ".pack.gz") == 0 ? replay_pack(path) : replay_file(path);
}

int main(int argc, char **argv) {
  static const int deadly[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
  for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++) signal(deadly[i], on_death);
  setvbuf(stdout, NULL, _IOLBF, 0);
  int bad = argc < 2;
  for (int i = 1; i < argc; i++) {
    int n = replay(argv[i]);
    const char *name = strrchr(argv[i], '/');
    if (n == 0) n = fail(argv[i], "holds no input"); /* a replay of nothing would always pass */
    bad |= n < 0;
    if (n > 0) printf("ok %s, %d inputs\n", name ? name + 1 : argv[i], n);
  }
  return bad;
}
