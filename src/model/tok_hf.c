/* tokenizer.json, the form in which the tokenizers library writes a whole pipeline: added tokens, normalizer, pre-tokenizer, model, post-processor,
 * decoder. */
#include "model/tok_impl.h"

bool tok_from_hf(str tokenizer_json, str tokenizer_config, const int32_t *ends, int n_ends, int bos, tok **ret, err *e) {
  (void)tokenizer_json, (void)tokenizer_config, (void)ends, (void)n_ends, (void)bos, (void)ret;
  return err_param(e, ERR_UNSUPPORTED, "tokenizer.json", "a tokenizer.json is not read by this version; use a GGUF file of this model");
}
