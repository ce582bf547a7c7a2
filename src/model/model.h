/* model.h - an opened model: file, description, tokenizer, chat template, generation defaults, fingerprint.
 * Not weights in memory (the engine packs those) and not a catalogue (fetch).
 * Ownership: model_open owns all parts until model_close.
 * Threads: immutable after opening.
 * Failure: as its parts; a chat template that does not parse is kept as a message and reported when a chat is asked for. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H
#include "model/arch.h"
#include "model/chat.h"
#include "model/tok.h"

enum { MODEL_NAME = 128 };

typedef struct model {
  char path[4096];       /* of a file or a folder */
  char name[MODEL_NAME]; /* stem of the file, name of the folder; general.name's slug when that is empty */
  mfile *file;
  arch arch;
  tok *tok;
  chat_tmpl *chat; /* NULL: none, or it did not parse */
  err chat_err;    /* why chat is NULL */
  str chat_source;
  float temperature, top_p, min_p;
  int top_k;
  float repetition;        /* generation defaults from the file (general.sampling.*); NAN / -1: not stated */
  uint8_t fingerprint[32]; /* SHA-256 over metadata (all texts of a folder), tensor tables, sizes and sampled bytes of every tensor (not all bytes:
                            * that would cost a read) */
} model;

bool model_open(const char *path, bool (*type_ok)(uint32_t wtype), model **ret, err *e);
void model_close(model *m);
/* A GGUF file (any part of one in parts) or a folder of safetensors (or a file of its weights), opened as what it is. */
bool model_file(const char *path, mfile **ret, err *e);
bool model_defaults(model *m, err *e);                   /* m->file is there; fills the generation defaults from it */
bool model_tok(const mfile *g, tok **ret, err *e);       /* its tokenizer, wherever that is written */
void model_stem(const char *path, char out[MODEL_NAME]); /* what a model at this path is called: its file or folder without what all are called */
#endif
