#!/usr/bin/env python3
"""Makes tests/golden/hf: small random models in folders as transformers saves them, the logits it gives for them, and a GGUF file cut into parts.

Every weight is a number that F16 and BF16 both hold, so one model saved in three types, whole or in shards, has one set of logits. Config files are
those of transformers 5; config.v4.json beside one is the same written as transformers 4 did (rope_theta and rope_scaling). Logits are F32, eager
attention, on the CPU. The parts are written by the `gguf` package out of a file of tests/golden/tiny.

    python3 -m venv V && V/bin/pip install torch==2.13.0 transformers==5.24.0 tokenizers==0.23.3 gguf==0.19.0 numpy
    V/bin/python tools/make_tiny_hf.py [FOLDER]

NAME.logits is of the form that tools/make_tiny_models.py describes.
"""
import json
import os
import shutil
import struct
import sys

import numpy as np
import torch
import transformers as tf
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
TINY = os.path.join(HERE, "..", "tests", "golden", "tiny")
COMMON = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
              rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=None, eos_token_id=258, pad_token_id=256, attn_implementation="eager")
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
N_TOKENS, POSITIONS = 48, list(range(0, 8)) + list(range(20, 48, 3)) + [47]

# family, what differs from COMMON, type, bytes of a shard (None: whole)
FORMS = {
    "llama-bf16": ("Llama", dict(tie_word_embeddings=False, rope_parameters=LLAMA3), torch.bfloat16, None),
    "llama-f16": ("Llama", dict(tie_word_embeddings=False, rope_parameters=LLAMA3), torch.float16, None),
    "llama-f32-shards": ("Llama", dict(tie_word_embeddings=False, rope_parameters=LLAMA3), torch.float32, 60000),
    "llama-biases": ("Llama", dict(attention_bias=True, mlp_bias=True, head_dim=16), torch.bfloat16, None),
    "mistral": ("Mistral", dict(sliding_window=12, head_dim=8), torch.bfloat16, None),
    "qwen2": ("Qwen2", dict(rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0)), torch.bfloat16, None),
    "qwen3": ("Qwen3", dict(head_dim=16), torch.bfloat16, None),
    "gemma3": ("Gemma3", dict(head_dim=8, num_hidden_layers=4, sliding_window=10, query_pre_attn_scalar=12, rms_norm_eps=1e-6,
                              layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]), torch.bfloat16, None),
    "phi3": ("Phi3", dict(tie_word_embeddings=False, sliding_window=None), torch.bfloat16, None),
    # longer than 32 tokens, so that the long factors hold
    "phi3-longrope": ("Phi3", dict(num_hidden_layers=1, sliding_window=None, original_max_position_embeddings=32, rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0, long_factor=[1.0, 1.5, 2.5, 4.0], short_factor=[1.0, 1.0, 1.25, 1.5],
        original_max_position_embeddings=32)), torch.bfloat16, None),
    "qwen2-yarn": ("Qwen2", dict(num_hidden_layers=1, rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                                                           original_max_position_embeddings=64)), torch.bfloat16, None),
    "granite": ("Granite", dict(embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.25, logits_scaling=2.0), torch.bfloat16, None),
    "olmo2": ("Olmo2", dict(), torch.bfloat16, None),
    "smollm3": ("SmolLM3", dict(num_hidden_layers=4), torch.bfloat16, None),
}
CLASSES = {"Gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM")}

TEMPLATE = ("{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}"
            "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def tokenizer():
    """All bytes, a few merges, three control tokens."""
    chars = [c for c in sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocab = {c: i for i, c in enumerate(chars)}
    for i, name in enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]):
        vocab[name] = 256 + i
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("e", "r"), ("a", "n"), ("Ġ", "a"), ("o", "n")]
    for a, b in merges:
        vocab[a + b] = len(vocab)
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.add_special_tokens([AddedToken(n, special=True, normalized=False) for n in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    return tf.PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE), len(vocab)


def draw(model, rng):
    """Numbers of seven bits, scaled so that attention picks and a wrong rotation shows. Norms near one (Gemma's near zero)."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = rng.standard_normal(tuple(p.shape))
            if p.ndim == 2:
                gain = 1.5 if any(k in name for k in ("q_proj", "k_proj", "qkv_proj")) else 0.3 if any(k in name for k in ("o_proj", "down_proj")) else 0.8
                x = x * gain / np.sqrt(p.shape[1])
            elif name.endswith("bias"):
                x = x * 0.4
            else:
                x = 0.2 * x + (0 if "Gemma3" in type(model).__name__ else 1)
            x = torch.from_numpy(np.float32(np.round(x * 128) / 128 if p.ndim == 1 else x)).to(torch.bfloat16).float()
            p.copy_(torch.where(x.abs() < 2**-14, 0, x))  # what F16 holds with all of BF16's bits


def v4(config):
    """The same config as transformers 4 wrote it."""
    c = json.loads(json.dumps(config))
    rope = c.pop("rope_parameters")
    c["rope_theta"] = rope.pop("rope_theta")
    c["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    c["torch_dtype"] = c.pop("dtype")
    return c


def save_logits(path, tokens, logits):
    with open(path, "wb") as f:
        f.write(b"WLOG" + struct.pack("<4I", 1, N_TOKENS, len(POSITIONS), logits.shape[1]))
        f.write(np.array(tokens, "<i4").tobytes() + np.array(POSITIONS, "<i4").tobytes() + logits[POSITIONS].astype("<f4").tobytes())


def make(folder, name, seed, tok, vocab):
    family, more, dtype, shard = FORMS[name]
    config_class, model_class = CLASSES.get(family, (family + "Config", family + "ForCausalLM"))
    config = getattr(tf, config_class)(**{**COMMON, **more, "vocab_size": vocab})
    model = getattr(tf, model_class)(config).float().eval()
    rng = np.random.default_rng(seed)
    draw(model, rng)
    tokens = rng.integers(0, 256, N_TOKENS).tolist()
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0].float().numpy()
    out = os.path.join(folder, name)
    shutil.rmtree(out, ignore_errors=True)
    model.generation_config = tf.GenerationConfig(do_sample=True, temperature=0.7, top_p=0.9, top_k=40, eos_token_id=[258, 256], pad_token_id=256)
    exact = {k: v.clone() for k, v in model.state_dict().items()}
    model = model.to(dtype)
    if any(not torch.equal(model.state_dict()[k].float(), v) for k, v in exact.items()):
        raise SystemExit(f"{name}: {dtype} does not hold these weights")
    model.save_pretrained(out, max_shard_size=shard or "1GB")
    tok.save_pretrained(out)
    if not name.startswith("llama-f"):
        save_logits(os.path.join(folder, name + ".logits"), tokens, logits)
    if name == "llama-bf16":
        with open(os.path.join(out, "config.json"), encoding="utf-8") as f:
            old = v4(json.load(f))
        with open(os.path.join(out, "config.v4.json"), "w", encoding="utf-8") as f:
            json.dump(old, f, indent=2)
    size = sum(os.path.getsize(os.path.join(out, n)) for n in os.listdir(out))
    print(f"{name}: {size:,} bytes in {len(os.listdir(out))} files, logits sd {logits.std():.3f}")


def split(folder, source, n_tensors):
    """The same file in parts of at most n tensors."""
    r = GGUFReader(os.path.join(TINY, source + ".gguf"))
    w = GGUFWriter(os.path.join(folder, source + ".gguf"), r.fields["general.architecture"].contents(), split_max_tensors=n_tensors)
    for f in r.fields.values():
        if f.name.startswith("GGUF.") or f.name == "general.architecture":
            continue
        kind = f.types[0]
        w.add_key_value(f.name, f.contents(), kind, f.types[-1] if kind == GGUFValueType.ARRAY else None)
    for t in r.tensors:
        w.add_tensor(t.name, t.data, raw_shape=t.data.shape, raw_dtype=t.tensor_type)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", "tests", "golden", "hf")
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(0), torch.set_num_threads(1)
    tok, vocab = tokenizer()
    for name in FORMS:
        make(folder, name, 7, tok, vocab)
    split(folder, "tiny-llama-q", 8)


if __name__ == "__main__":
    main()
