/* tok.h - text to token ids and back, equal to the reference tokenizer on every string.
 * Not chat templates, and no reader of files: it is built from plain arrays (tok_src), which tok_from_gguf takes from an opened file.
 * Ownership: tok owns its tables and copies what it needs: nothing of tok_src is kept after tok_new.
 * Threads: immutable after tok_new (a memo inside is written with atomics); any thread may encode and decode, each call has its own scratch.
 * Failure: tok_new names what is wrong with the vocabulary (ERR_INPUT), or the unknown model or pre-tokenizer and the known ones (ERR_UNSUPPORTED).
 *
 * Encoding never fails on content, only on memory or over 1 GiB of text. Invalid UTF-8 becomes byte tokens and survives the round trip. A byte that
 * a byte-level vocabulary has no token for is left out, as the reference does: SmolLM2 lacks the control characters 04 06 13 14 16 1D and bytes rare
 * in UTF-8. A vocabulary without byte tokens has its unknown token for what it cannot spell. docs/tokenizers.md says what round trips and what
 * cannot.
 */
#ifndef MODEL_TOK_H
#define MODEL_TOK_H
#include "base/err.h"
#include "base/str.h"

enum { TOK_NORMAL = 1, TOK_UNKNOWN = 2, TOK_CONTROL = 3, TOK_USER = 4, TOK_UNUSED = 5, TOK_BYTE = 6 }; /* GGUF's tokenizer.ggml.token_type */

typedef struct tok_src {
  const char *model; /* tokenizer.ggml.model: "gpt2" byte-level BPE, "llama" SentencePiece BPE, "t5" unigram, "bert" WordPiece */
  const char *pre;   /* of "gpt2": tokenizer.ggml.pre, a row of tok_pre.c; NULL = "gpt2" */
  const str *tokens;
  int n_tokens;
  const uint8_t *types; /* [n_tokens] TOK_*; NULL: all normal */
  const float *scores;  /* [n_tokens]: "llama" and "t5" */
  const str *merges;    /* "left right": "gpt2" */
  int n_merges;
  int bos, eos, eot, unk, pad; /* -1: none */
  bool add_bos, add_eos;
  bool add_space_prefix;         /* "llama", "t5": a blank before each stretch of text between control tokens */
  bool remove_extra_whitespaces; /* "t5": runs of blanks become one, none at the ends */
  str charsmap;                  /* "t5": SentencePiece's compiled normalizer; empty: none */
} tok_src;

typedef struct tok tok;
bool tok_new(const tok_src *src, tok **ret, err *e);
void tok_free(tok *t);

typedef struct tok_ids {
  int32_t *v;
  int n, cap;
} tok_ids; /* owned by the caller: free(ids.v) */

/* The tokenizer of a model file; errors name the metadata key. */
struct mfile;
bool tok_from_gguf(const struct mfile *g, tok **ret, err *e);
/* The tokenizer of a folder: the text of tokenizer.json, and of tokenizer_config.json where there is one (else empty). ends, bos: what config.json
 * and generation_config.json name (-1: none). What is not read is refused by its own name; docs/tokenizers.md lists what is. */
bool tok_from_hf(str tokenizer_json, str tokenizer_config, const int32_t *ends, int n_ends, int bos, tok **ret, err *e);

/* Appends the ids of text. parse_special false: every byte is ordinary text, whatever trust says. True: control and user-defined tokens are
 * recognised, the leftmost first and of those the longest, but only wholly inside trusted bytes (trust: one byte per byte of text, non-zero =
 * trusted; NULL: all are). SentencePiece vocabularies ("llama", "t5", and their kind in tokenizer.json) are an exception for user-defined tokens:
 * there they are words of ordinary text (runs of blanks and newlines, <table>), found whatever trust and parse_special say, as that library does.
 * Text is split only at tokens so recognised: ordinary pre-tokenization and merges ignore the boundary of trust. Families
 * that ask for it (qwen2) bring text between recognised tokens to Unicode normal form C, so there a round trip gives the normal form.
 * add_special: BOS first when the model asks for it, ids is empty and the text does not itself begin with it; EOS last likewise. On failure ids is as
 * it was. */
bool tok_encode(const tok *t, str text, const uint8_t *trust, bool parse_special, bool add_special, tok_ids *ids, err *e);
/* Bytes of one token as they appear in text. special = false: control and unknown tokens give nothing; so does an id outside the vocabulary. The str
 * is borrowed from tok or from `scratch` (>= 8 bytes). */
str tok_piece(const tok *t, int32_t id, bool special, char *scratch);
int tok_count(const tok *t);
int tok_type(const tok *t, int32_t id);
int tok_find(const tok *t, str text); /* id of the token whose text is exactly this (as seen in text), or -1 */
int tok_bos(const tok *t);
int tok_eos(const tok *t);
bool tok_is_end(const tok *t, int32_t id); /* the end-of-generation SET: eos, eot, <|im_end|>, <|endoftext|>, <|eot_id|>, ... */
const int32_t *tok_ends(const tok *t, int *ret_n);
bool tok_adds_bos(const tok *t);

/* Incremental detokenizer: never emits half a code point. Bytes that can never become one are emitted as U+FFFD, one for each maximal part of a
 * well-formed sequence; who wants the bytes themselves joins tok_piece. */
typedef struct tok_stream {
  char pend[8];
  int n;
  bool special, opening;
} tok_stream;
void tok_stream_init(tok_stream *s, bool special);
/* The same for a whole text instead of its continuation: the blank that encoding put before the first word is not given back. */
void tok_stream_init_whole(tok_stream *s, bool special);
/* Appends to out (struct buf) the text that became certain with this id. */
struct buf;
bool tok_stream_push(const tok *t, tok_stream *s, int32_t id, struct buf *out);
bool tok_stream_end(tok_stream *s, struct buf *out); /* what is left, as U+FFFD */
#endif
