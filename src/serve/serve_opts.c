#include "serve/serve_opts.h"

#define AT(field) offsetof(serve_opts, field)
#define ROWS                                                                                                                                         \
  {"offline", 0, "models.offline", OPT_FLAG, AT(offline), 0, 0, NULL, NULL, false, "Model", NULL, "never fetch: the model must be here already"},    \
      {"accept-licence", 0, NULL, OPT_FLAG, AT(accept_licence), 0, 0, NULL, NULL, false, "Model", NULL,                                              \
          "agree to the model's licence where one must be accepted"},                                                                                \
      {"config", 'c', NULL, OPT_STR, AT(config), 0, 0, NULL, NULL, false, "General", "FILE", "read options from this YAML file"},                    \
      {"log-level", 0, "log.level", OPT_ENUM, AT(log_level), 0, 0, "debug,info,warn,error,off", "info", true, "General", "LEVEL",                    \
          "what goes to stderr"},                                                                                                                    \
      {"log-format", 0, "log.format", OPT_ENUM, AT(log_format), 0, 0, "text,json", "text", false, "General", "FORMAT",                               \
          "how a line of the log looks"},                                                                                                            \
      {"host", 0, "server.host", OPT_STR, AT(host), 0, 0, NULL, "127.0.0.1", false, "Server", "ADDRESS",                                             \
          "listen here; beyond loopback only with keys or --insecure"},                                                                              \
      {"port", 'p', "server.port", OPT_INT, AT(port), 0, 65535, NULL, "8080", false, "Server", "N", "listen on this port; 0 takes a free one"},      \
      {"served-name", 0, "server.served_name", OPT_STR, AT(served_name), 0, 0, NULL, NULL, false, "Server", "NAME",                                  \
          "the model's name for clients, instead of its catalogue name or the file's stem"},                                                         \
      {"api-key-file", 0, "server.api_key_file", OPT_STR, AT(key_file), 0, 0, NULL, NULL, false, "Server", "FILE",                                   \
          "ask clients for one of these keys, one per line"},                                                                                        \
      {"insecure", 0, "server.insecure", OPT_FLAG, AT(insecure), 0, 0, NULL, NULL, false, "Server", NULL,                                            \
          "allow listening beyond loopback without keys"},                                                                                           \
      {"max-body", 0, "server.max_body", OPT_BYTES, AT(max_body), 1024, 1073741824, NULL, "16M", false, "Server", "BYTES",                           \
          "largest request body (413 above)"},                                                                                                       \
      {"max-conns", 0, "server.max_conns", OPT_INT, AT(max_conns), 1, 1000000, NULL, "4096", false, "Server", "N",                                   \
          "connections open at once (503 above)"},                                                                                                   \
      {"max-n", 0, "server.max_n", OPT_INT, AT(max_n), 1, 16, NULL, "16", false, "Server", "N", "choices one request may ask for"},                  \
      {"threads", 't', "engine.threads", OPT_INT, AT(threads), 0, 256, NULL, "0", false, "Engine", "N",                                              \
          "threads that compute; 0: the cores this process may use"},                                                                                \
      {"isa", 0, "engine.isa", OPT_STR, AT(isa), 0, 0, NULL, "auto", false, "Engine", "NAME", "instruction set of the kernels: auto or a name"},     \
      {"ctx", 0, "engine.ctx", OPT_INT, AT(ctx), 0, 16777216, NULL, "0", false, "Engine", "N", "context in tokens; 0: the model's, at most 8192"},   \
      {"kv-budget", 0, "engine.kv_budget", OPT_BYTES, AT(kv_budget), 0, 0, NULL, "0", false, "Engine", "BYTES",                                      \
          "memory for keys and values; 0: four contexts, at most a quarter of what this process may use"},                                           \
      {"page", 0, "engine.page", OPT_INT, AT(page), 16, 4096, NULL, "16", false, "Engine", "N", "tokens a KV page holds, a multiple of 16"},         \
      {"max-seqs", 0, "engine.max_seqs", OPT_INT, AT(max_seqs), 1, 4096, NULL, "16", false, "Engine", "N", "sequences in a batch"},                  \
      {"chunk", 0, "engine.chunk", OPT_INT, AT(chunk), 1, 65536, NULL, "256", false, "Engine", "N", "tokens computed in one step"},                  \
      {"queue", 0, "engine.queue", OPT_INT, AT(queue), 0, 1000000, NULL, "256", false, "Engine", "N", "sequences that may wait (503 above)"},        \
      {"prefix-cache", 0, "engine.prefix_cache", OPT_FLAG, AT(prefix_cache), 0, 0, NULL, "true", false, "Engine", NULL,                              \
          "keep computed prompt prefixes for later requests"},                                                                                       \
      {"act", 0, "engine.act", OPT_ENUM, AT(act), 0, 0, "auto,f32", "auto", false, "Engine", "TYPE",                                                 \
          "f32: unrounded activations everywhere, for checking"},                                                                                    \
  {                                                                                                                                                  \
    "kv-type", 0, "engine.kv_type", OPT_ENUM, AT(kv_type), 0, 0, "f16,f32", "f16", false, "Engine", "TYPE",                                          \
        "type of keys and values; f32 is for checking"                                                                                               \
  }

const opt_row serve_rows[] = {ROWS, {0}};
const opt_row up_rows[] = {{"model", 'm', "model", OPT_STR, AT(model), 0, 0, NULL, NULL, false, "Model", "MODEL",
                               "catalogue name, file, or hf:owner/repo; default: the catalogue's first"},
    ROWS, {0}};
