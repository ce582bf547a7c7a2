/* tok.h - text to token ids and back, equal to the reference tokenizer on every string.
 * Not chat templates and not model files: it is built from plain arrays (tok_src).
 * Ownership: tok owns its tables; strings in tok_src are borrowed and must outlive it (they lie in the mapped model file).
 * Threads: immutable after tok_new; any thread may encode and decode (each call has its own scratch).
 * Failure: ERR_INPUT naming what the vocabulary lacks (merges, byte tokens, an unknown pre-tokenizer with the known ones). Encoding text never
 *   fails on content: invalid UTF-8 becomes byte tokens and survives the round trip; it fails only on memory or the bound on ids. */
#ifndef MODEL_TOK_H
#define MODEL_TOK_H
#include "base/err.h"
#include "base/str.h"

enum { TOK_NORMAL = 1, TOK_UNKNOWN = 2, TOK_CONTROL = 3, TOK_USER = 4, TOK_UNUSED = 5, TOK_BYTE = 6 };  /* GGUF's tokenizer.ggml.token_type */

typedef struct tok_src {
  const char *model;        /* tokenizer.ggml.model: "gpt2" = byte-level BPE */
  const char *pre;          /* tokenizer.ggml.pre: "smollm", "qwen2", "gpt2" (also "default"), "llama-bpe" (llama3); NULL = "gpt2" */
  const str *tokens; int n_tokens;
  const uint8_t *types;     /* [n_tokens] TOK_*; NULL: all normal */
  const float *scores;      /* may be NULL */
  const str *merges; int n_merges;
  int bos, eos, eot, unk, pad;    /* -1: none */
  bool add_bos, add_eos;
} tok_src;

typedef struct tok tok;
bool tok_new(const tok_src *src, tok **ret, err *e);
void tok_free(tok *t);

typedef struct tok_ids { int32_t *v; int n, cap; } tok_ids;   /* owned by the caller: free(ids.v) */

/* Appends the ids of text. trust: one byte per byte of text, non-zero = trusted, NULL with parse_special: all trusted, NULL without: none. A control or
 * user-defined token is recognised only wholly inside trusted bytes (control: trusted only; user-defined tokens too); ordinary pre-tokenization and
 * merges ignore the boundary. add_bos: puts BOS first when the model asks for it and the text does not already begin with it. */
bool tok_encode(const tok *t, str text, const uint8_t *trust, bool parse_special, bool add_special, tok_ids *ids, err *e);
/* Bytes of one token as they appear in text. special = false: control tokens give nothing. Returned str is borrowed from tok or from `scratch` (>= 8 bytes). */
str tok_piece(const tok *t, int32_t id, bool special, char *scratch);
int tok_count(const tok *t);
int tok_type(const tok *t, int32_t id);
int tok_find(const tok *t, str text);          /* id of the token whose text is exactly this (as seen in text), or -1 */
int tok_bos(const tok *t);
int tok_eos(const tok *t);
bool tok_is_end(const tok *t, int32_t id);     /* the end-of-generation SET: eos, eot, <|im_end|>, <|endoftext|>, <|eot_id|>, ... */
const int32_t *tok_ends(const tok *t, int *ret_n);
bool tok_adds_bos(const tok *t);

/* Incremental detokenizer: never emits half a code point. Bytes that can never become one are emitted as U+FFFD when `lossy` output is wanted. */
typedef struct tok_stream { char pend[8]; int n; bool special; } tok_stream;
void tok_stream_init(tok_stream *s, bool special);
/* Appends to out (struct buf) the text that became certain with this id. */
struct buf;
bool tok_stream_push(const tok *t, tok_stream *s, int32_t id, struct buf *out);
bool tok_stream_end(tok_stream *s, struct buf *out);   /* what is left, as U+FFFD */
#endif
