/* safetensors.h - opens a model's folder as transformers saves it (safetensors, config.json, tokenizer.json ...) as an mfile with GGUF's names.
 * Not a converter: weights stay where they lie in the mapped shards; only vectors that a config describes by numbers are computed.
 * Ownership: as mfile.h says; mf_close ends it.
 * Threads: any.
 * Failure: everything in the folder is untrusted; every error names file, tensor or field, the value and what was expected. */
#ifndef MODEL_SAFETENSORS_H
#define MODEL_SAFETENSORS_H
#include "model/mfile.h"

bool safetensors_open(const char *folder, mfile **ret, err *e);
/* The two files that decide everything, for tests and fuzzing; borrows both. */
bool safetensors_open_mem(str config, str shard, mfile **ret, err *e);
#endif
