/* libcurl, loaded when the first request goes out.
 *
 * Linked in the ordinary way it brings some thirty libraries (LDAP, Kerberos, SSH, RTMP...) into every process before main runs: 4 ms, more than
 * all that `weir --help` does. So the functions of it that the program calls are defined here under their own names, and each passes its arguments
 * on to the library. Callers include <curl/curl.h> and notice nothing; a new function used somewhere fails to link until it has its line here. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#define CURL_NAMES(X)                                                                                                                                \
  X(curl_global_init)                                                                                                                                \
  X(curl_free)                                                                                                                                       \
  X(curl_easy_init)                                                                                                                                  \
  X(curl_easy_setopt)                                                                                                                                \
  X(curl_easy_getinfo)                                                                                                                               \
  X(curl_easy_perform)                                                                                                                               \
  X(curl_easy_pause)                                                                                                                                 \
  X(curl_easy_reset)                                                                                                                                 \
  X(curl_easy_cleanup)                                                                                                                               \
  X(curl_easy_strerror)                                                                                                                              \
  X(curl_slist_append)                                                                                                                               \
  X(curl_slist_free_all)                                                                                                                             \
  X(curl_multi_init)                                                                                                                                 \
  X(curl_multi_setopt)                                                                                                                               \
  X(curl_multi_add_handle)                                                                                                                           \
  X(curl_multi_remove_handle)                                                                                                                        \
  X(curl_multi_assign)                                                                                                                               \
  X(curl_multi_socket_action)                                                                                                                        \
  X(curl_multi_info_read)                                                                                                                            \
  X(curl_multi_cleanup)                                                                                                                              \
  X(curl_url)                                                                                                                                        \
  X(curl_url_cleanup)                                                                                                                                \
  X(curl_url_get)                                                                                                                                    \
  X(curl_url_set)

#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

#define FIELD(name) __typeof__(&name) name;
static struct { CURL_NAMES(FIELD) } lib;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int loaded;

static int take(void *so, const char *name, void *slot) {
  void *p = dlsym(so, name);
  __builtin_memcpy(slot, &p, sizeof p);
  return p != NULL;
}

static void load(void) {
  void *so = dlopen("libcurl.so.4", RTLD_LAZY | RTLD_LOCAL);
  if (!so) {
    fprintf(stderr, "weir: %s: install libcurl 4 (Debian: libcurl4)\n", dlerror());
    return;
  }
  int ok = 1;
#define TAKE(name) ok &= take(so, #name, &lib.name);
  CURL_NAMES(TAKE)
  if (!ok) fprintf(stderr, "weir: libcurl.so.4 is too old: version 7.85 or later is needed\n");
  loaded = ok;
}

static int ready(void) {
  pthread_once(&once, load);
  return loaded;
}

CURLcode curl_global_init(long flags) { return ready() ? lib.curl_global_init(flags) : CURLE_FAILED_INIT; }
CURL *curl_easy_init(void) { return ready() ? lib.curl_easy_init() : NULL; }
CURLM *curl_multi_init(void) { return ready() ? lib.curl_multi_init() : NULL; }
CURLU *curl_url(void) { return ready() ? lib.curl_url() : NULL; }
const char *curl_easy_strerror(CURLcode c) { return ready() ? lib.curl_easy_strerror(c) : "libcurl cannot be loaded"; }
struct curl_slist *curl_slist_append(struct curl_slist *l, const char *s) {
  return ready() ? lib.curl_slist_append(l, s) : NULL;
}

/* From here on a handle exists, so the library is there; only the two frees may be reached without one. */
void curl_free(void *p) {
  if (p) lib.curl_free(p);
}
void curl_slist_free_all(struct curl_slist *l) {
  if (l) lib.curl_slist_free_all(l);
}

/* Every option is one argument of one word: a long, a curl_off_t or a pointer, passed alike on the 64-bit targets this builds for. */
_Static_assert(sizeof(long) == sizeof(void *) && sizeof(curl_off_t) == sizeof(void *), "options are passed on as one word");
#define PASS_WORD(fn, handle, option)                                                                                                                \
  va_list ap;                                                                                                                                        \
  va_start(ap, option);                                                                                                                              \
  void *word = va_arg(ap, void *);                                                                                                                   \
  va_end(ap);                                                                                                                                        \
  return lib.fn(handle, option, word)
CURLcode curl_easy_setopt(CURL *h, CURLoption o, ...) { PASS_WORD(curl_easy_setopt, h, o); }
CURLcode curl_easy_getinfo(CURL *h, CURLINFO i, ...) { PASS_WORD(curl_easy_getinfo, h, i); }
CURLMcode curl_multi_setopt(CURLM *m, CURLMoption o, ...) { PASS_WORD(curl_multi_setopt, m, o); }

CURLcode curl_easy_perform(CURL *h) { return lib.curl_easy_perform(h); }
CURLcode curl_easy_pause(CURL *h, int mask) { return lib.curl_easy_pause(h, mask); }
void curl_easy_reset(CURL *h) { lib.curl_easy_reset(h); }
void curl_easy_cleanup(CURL *h) {
  if (h) lib.curl_easy_cleanup(h);
}
CURLMcode curl_multi_add_handle(CURLM *m, CURL *h) { return lib.curl_multi_add_handle(m, h); }
CURLMcode curl_multi_remove_handle(CURLM *m, CURL *h) { return lib.curl_multi_remove_handle(m, h); }
CURLMcode curl_multi_assign(CURLM *m, curl_socket_t s, void *p) { return lib.curl_multi_assign(m, s, p); }
CURLMcode curl_multi_socket_action(CURLM *m, curl_socket_t s, int ev, int *n) { return lib.curl_multi_socket_action(m, s, ev, n); }
CURLMsg *curl_multi_info_read(CURLM *m, int *left) { return lib.curl_multi_info_read(m, left); }
CURLMcode curl_multi_cleanup(CURLM *m) { return m ? lib.curl_multi_cleanup(m) : CURLM_OK; }
void curl_url_cleanup(CURLU *u) {
  if (u) lib.curl_url_cleanup(u);
}
/* Later versions of the header have a const here: whichever the header at hand has. */
typedef __typeof__(__builtin_choose_expr(
    __builtin_types_compatible_p(__typeof__(&curl_url_get), CURLUcode (*)(CURLU *, CURLUPart, char **, unsigned)), (CURLU *)0,
    (const CURLU *)0)) url_arg;
CURLUcode curl_url_get(url_arg u, CURLUPart what, char **part, unsigned flags) { return lib.curl_url_get(u, what, part, flags); }
CURLUcode curl_url_set(CURLU *u, CURLUPart what, const char *part, unsigned flags) { return lib.curl_url_set(u, what, part, flags); }
