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

typedef struct model {
  char path[4096];
  char name[128]; /* file stem, or general.name's slug when that is empty */
  mfile *file;
  arch arch;
  tok *tok;
  chat_tmpl *chat; /* NULL: none, or it did not parse */
  err chat_err;    /* why chat is NULL */
  str chat_source;
  float temperature, top_p, min_p;
  int top_k;
  float repetition; /* generation defaults from the file (general.sampling.*); NAN / -1: not stated */
  uint8_t
      fingerprint[32]; /* SHA-256 over metadata, tensor table, size and sampled bytes of every tensor (not the whole file: that would cost a read) */
} model;

bool model_open(const char *path, bool (*type_ok)(uint32_t wtype), model **ret, err *e);
void model_close(model *m);
#endif
