"""Writes a Hugging Face tokenizer folder for a model file: make_tokenizer.py FILE.gguf FOLDER

Made of the file's own vocabulary, merges, special tokens and chat template with the `tokenizers` library, so that a harness which wants a tokenizer gets
one that is not ours. Only the pre-tokenizer of SmolLM2 is written here. Needs tokenizers and gguf."""
import json
import os
import sys

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

NORMAL, CONTROL, USER = 1, 3, 4


def read(path):
    fields = GGUFReader(path).fields
    text = lambda f, i: bytes(f.parts[i]).decode()
    return {k: f.contents() if len(f.data) <= 1 else [text(f, i) if f.types[-1].name == "STRING" else f.parts[i][0].item() for i in f.data]
            for k, f in fields.items() if k.startswith("tokenizer.")}


def main(path, folder):
    meta = read(path)
    pre = meta["tokenizer.ggml.pre"]
    if pre != "smollm":
        sys.exit(f"{path}: pre-tokenizer {pre!r}, only smollm is known here")
    tokens, kinds, merges = (meta["tokenizer.ggml." + k] for k in ("tokens", "token_type", "merges"))
    tok = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in merges]))
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(s, normalized=False, special=True) for s, k in zip(tokens, kinds) if k == CONTROL])
    tok.add_tokens([AddedToken(s, normalized=False, special=False) for s, k in zip(tokens, kinds) if k == USER])
    os.makedirs(folder, exist_ok=True)
    tok.save(os.path.join(folder, "tokenizer.json"))
    named = {n: tokens[meta[f"tokenizer.ggml.{k}_token_id"]] for n, k in (("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding"))
             if f"tokenizer.ggml.{k}_token_id" in meta}
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, "chat_template": meta["tokenizer.chat_template"], **named}, f)


main(*sys.argv[1:])
