/* defaults.h - the sampling a model is served with when a request does not say: its file's word first, then the catalogue's, then the API's.
 * Not a request's own values (local.c puts those on top) and not where the words are kept (model.h, catalog.h).
 * Ownership: none; changes the model it is given, before anything else uses it.
 * Threads: the one that opened the model.
 * Failure: none; a broken catalogue of the user's own recommends nothing here and is reported where a name is looked up. */
#ifndef SERVE_DEFAULTS_H
#define SERVE_DEFAULTS_H
#include "model/model.h"

enum { DEFAULTS_TEXT = 200 };

/* Fills what the model's file leaves open from the catalogue's entry for this path. text: "temperature 0.2 (catalogue), top_p 0.9 (file)", or that
 * they are the API's. */
void defaults_apply(model *m, const char *path, char text[DEFAULTS_TEXT]);
#endif
