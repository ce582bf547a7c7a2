/* weir serve MODEL and weir up: one model server; up is the same without an argument, and grows into the whole house. */
#include "cmd/cmd.h"
#include "serve/run.h"

#define SERVES                                                                                                                                       \
  "Serves the OpenAI API (/v1/chat/completions, /v1/completions, /v1/models), /tokenize, /detokenize, /apply-template, /health, /ready and "         \
  "/metrics. The URL is printed on stdout when the model is loaded. SIGTERM or Ctrl-C lets running requests end; a second one stops at once."

const opt_cmd cmd_serve_opts = {"serve", "MODEL", "serve one model over the OpenAI API",
    SERVES " MODEL is a name of `weir models`, a GGUF file, a folder of safetensors, hf:owner/repo[/file][@rev] or a URL; what is not "
           "here yet is fetched first.",
    serve_rows, sizeof(serve_opts), 1, 1};
const opt_cmd cmd_up_opts = {"up", "", "serve the default model, or what weir.yaml says", SERVES, up_rows, sizeof(serve_opts), 0, 0};

static int serve(const opt_cmd *face, int argc, char **argv) {
  serve_opts o;
  opt_set *set = NULL;
  char **pos;
  int n_pos, status = 0;
  bool helped = false;
  err e = {0};
  if (!opt_parse(face, argc, argv, &o, &set, &pos, &n_pos, &helped, &e)) return cmd_fail(face->name, &e);
  if (!helped) {
    if (n_pos) o.model = pos[0];
    if (!serve_run(&o, &status, &e)) status = cmd_fail(face->name, &e);
  }
  opt_set_free(set);
  return status;
}

int cmd_serve(int argc, char **argv) { return serve(&cmd_serve_opts, argc, argv); }
int cmd_up(int argc, char **argv) { return serve(&cmd_up_opts, argc, argv); }
