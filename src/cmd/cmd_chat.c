/* weir chat: talk to a model here or to a server anywhere; a model here is served by a process of our own, so that both are the same path. */
#include "api/openai_target.h"
#include "base/os.h"
#include "chat/child.h"
#include "chat/repl.h"
#include "cmd/cmd.h"
#include "cmd/cmd_fetch.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct chat_cmd {
  const char *model, *system, *key_env;
  double temperature, top_p;
  int64_t max_tokens, seed, threads, ctx;
  bool no_stats, accept_licence;
} chat_cmd;

#define AT(f) offsetof(chat_cmd, f)
static const opt_row rows[] = {
    {"system", 's', NULL, OPT_STR, AT(system), 0, 0, NULL, NULL, false, "Conversation", "TEXT", "system message"},
    {"temperature", 0, NULL, OPT_FLOAT, AT(temperature), -1, 2, NULL, "-1", false, "Conversation", "T", "sampling temperature; -1: the model's own"},
    {"top-p", 0, NULL, OPT_FLOAT, AT(top_p), -1, 1, NULL, "-1", false, "Conversation", "P", "nucleus sampling; -1: the model's own"},
    {"max-tokens", 'n', NULL, OPT_INT, AT(max_tokens), -1, 1e7, NULL, "-1", false, "Conversation", "N", "longest answer; -1: to the context's end"},
    {"seed", 0, NULL, OPT_INT, AT(seed), -1, 9e15, NULL, "-1", false, "Conversation", "N", "the same seed gives the same answer; -1: a fresh one"},
    {"no-stats", 0, NULL, OPT_FLAG, AT(no_stats), 0, 0, NULL, NULL, false, "Conversation", NULL, "no line of timings after an answer"},
    {"model", 'm', NULL, OPT_STR, AT(model), 0, 0, NULL, NULL, false, "Server", "NAME",
        "with a URL: the model to ask for (default: the first it lists)"},
    {"key-env", 0, NULL, OPT_STR, AT(key_env), 0, 0, NULL, NULL, false, "Server", "VAR",
        "with a URL: environment variable that holds the API key (default OPENAI_API_KEY, if set)"},
    {"threads", 't', NULL, OPT_INT, AT(threads), 0, 256, NULL, "0", false, "Engine", "N", "threads that compute; 0: the cores this process may use"},
    {"ctx", 0, NULL, OPT_INT, AT(ctx), 0, 16777216, NULL, "0", false, "Engine", "N", "context in tokens; 0: the model's, at most 8192"},
    {"accept-licence", 0, NULL, OPT_FLAG, AT(accept_licence), 0, 0, NULL, NULL, false, "Engine", NULL,
        "agree to the model's licence where one must be accepted"},
    {0},
};

const opt_cmd cmd_chat_opts = {"chat", "[MODEL|URL]", "talk to a model in the terminal",
    "MODEL is a catalogue name, a file or hf:owner/repo, by default the catalogue's first; URL is any OpenAI-compatible server. With a pipe on stdin "
    "the whole of it is "
    "one message, and the answer alone goes to stdout: echo hi | weir chat",
    rows, sizeof(chat_cmd), 0, 1};

static bool is_url(const char *s) { return s && (strncmp(s, "http://", 7) == 0 || strncmp(s, "https://", 8) == 0); }

static bool start_server(const chat_cmd *o, const char *model, child *c, err *e) {
  char path[OS_PATH], threads[24], ctx[24], name[FETCH_NAME];
  fetch_opts f = {.to_run = true, .accept_licence = o->accept_licence};
  if (!cmd_fetch(model ? model : fetch_default(), &f, false, path, name, e)) return false;
  snprintf(threads, sizeof threads, "%lld", (long long)o->threads);
  snprintf(ctx, sizeof ctx, "%lld", (long long)o->ctx);
  const char *args[] = {"--threads", threads, "--ctx", ctx, "--served-name", name, NULL};
  return child_start(path, args, c, e);
}

static bool talk(const chat_cmd *o, const char *url, bool ours, err *e) {
  const char *key = NULL;
  if (!ours && !openai_target_key(o->key_env, &key, e)) return false;
  chat_opts co = {.url = url,
      .model = ours ? NULL : o->model,
      .key = key,
      .temperature = o->temperature,
      .top_p = o->top_p,
      .max_tokens = o->max_tokens,
      .seed = o->seed};
  chat_session *s;
  char history[OS_PATH + 32];
  if (!chat_session_new(&co, &s, e)) return false;
  if (o->system) chat_system(s, str_c(o->system));
  bool ok;
  if (!isatty(0)) ok = repl_piped(s, !o->no_stats, e);
  else {
    err ignored;
    char dir[OS_PATH];
    bool have = os_dir_data(dir, &ignored);
    snprintf(history, sizeof history, "%s/chat_history", have ? dir : "");
    ok = repl_run(s, have ? history : NULL, !o->no_stats, e);
  }
  chat_session_free(s);
  return ok;
}

int cmd_chat(int argc, char **argv) {
  chat_cmd o;
  char **pos;
  int n_pos;
  bool helped = false;
  err e = {0};
  child c = {0};
  if (!opt_parse(&cmd_chat_opts, argc, argv, &o, NULL, &pos, &n_pos, &helped, &e)) return cmd_fail("chat", &e);
  if (helped) return 0;
  const char *what = n_pos ? pos[0] : NULL;
  bool ours = !is_url(what), ok = !ours || start_server(&o, what, &c, &e);
  if (ok) ok = talk(&o, ours ? c.url : what, ours, &e);
  child_stop(&c);
  return ok ? 0 : cmd_fail("chat", &e);
}
