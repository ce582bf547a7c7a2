#!/usr/bin/env python3
"""Makes tests/golden/tiny: small random models as GGUF files, and the logits an independent framework gives for them.

The weights are drawn here, written with the `gguf` package and loaded into transformers' own LlamaForCausalLM and Qwen2ForCausalLM (F32, eager
attention, CPU). For a quantized file the framework gets the weights as the `gguf` package dequantizes them, so the logits are those of the file's own
numbers with unrounded activations. The package cannot quantize K types; there every bit pattern is a valid block, so the blocks themselves are drawn.

    python3 -m venv V && V/bin/pip install torch==2.13.0 transformers==5.24.0 gguf==0.19.0 numpy
    V/bin/python tools/make_tiny_models.py [FOLDER]

Golden file NAME.logits, all little-endian: "WLOG", u32 version 1, u32 n_tokens, u32 n_pos, u32 vocab, i32 token[n_tokens], i32 pos[n_pos],
f32 logit[n_pos][vocab]. Positions cross 256, where attention is split.
"""
import os
import struct
import sys

import numpy as np
import torch
from gguf import GGMLQuantizationType as T, GGUFWriter, TokenType
from gguf.quants import dequantize, quantize
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

# What each file is there for:
MODELS = {
    # query width (96) is not the width of the model (72); K of 72 and 112; tied head; a vocabulary that fills no last panel
    "tiny-llama-f32": dict(family="llama", layers=2, dim=72, heads=6, kv=2, head=16, ffn=112, ctx=1024, pre="smollm", tied=True, types=dict(all=T.F32)),
    # biases, halves instead of pairs in RoPE, a head of its own, three layers
    "tiny-qwen2-f32": dict(family="qwen2", layers=3, dim=64, heads=4, kv=2, head=16, ffn=96, ctx=512, pre="qwen2", tied=False, types=dict(all=T.F32)),
    # heads of 64 over a single K/V head, Llama 3's stretched RoPE, 16-bit weights of both kinds
    "tiny-llama-f16": dict(family="llama", layers=2, dim=96, heads=3, kv=1, head=64, ffn=128, ctx=512, pre="llama-bpe", tied=False, stretch=True,
                           types=dict(all=T.F16, ffn_gate=T.BF16, ffn_up=T.BF16, ffn_down=T.BF16, output=T.BF16)),
    # every type in blocks of 32, 96 and 160 wide
    "tiny-llama-q": dict(family="llama", layers=2, dim=96, heads=6, kv=2, head=16, ffn=160, ctx=512, pre="gpt-2", tied=True,
                         types=dict(all=T.Q4_0, attn_q=T.Q4_1, attn_k=T.Q5_0, attn_v=T.Q8_0, ffn_gate=T.Q4_1, ffn_up=T.Q5_0, token_embd=T.Q8_0)),
    # every K type beside the types that mixed files use where a row is no multiple of 256
    "tiny-qwen2-k": dict(family="qwen2", layers=2, dim=256, heads=8, kv=2, head=32, ffn=256, ctx=512, pre="qwen2", tied=False,
                         types=dict(all=T.Q4_K, attn_v=T.Q6_K, attn_output=T.Q5_0, ffn_up=T.Q5_K, ffn_down=T.Q6_K, token_embd=T.Q4_K, output=T.Q6_K)),
}
N_TOKENS = 300
POSITIONS = list(range(0, 24)) + [63, 64, 127, 128] + list(range(250, 266)) + [290, 299]

TEMPLATE = (
    "{%- for message in messages %}\n"
    "{%- if message.content is not string %}{{ raise_exception('content must be a string') }}{% endif %}\n"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")

# In order of rank; each joins two tokens that are there before it.
MERGES = """Ġ t|h e|i n|Ġ a|o n|r e|e r|a t|o u|e n|Ġt he|e s|o r|i s|i t|Ġ s|Ġ w|a n|in g|Ġ o|Ġo f|a l|Ġ c|an d|Ġ and|l l|Ġ i|Ġi n|Ġ b|l o|e l|el lo|h ello
Ġ Ġ|ĠĠ ĠĠ""".replace("\n", "|").split("|")


def byte_chars():
    """The character that stands for each byte in a byte-level vocabulary: itself where it prints, else the next unused one from U+0100."""
    keep = set(range(0x21, 0x7f)) | set(range(0xa1, 0xad)) | set(range(0xae, 0x100))
    spare = iter(range(0x100, 0x200))
    return [chr(b) if b in keep else chr(next(spare)) for b in range(256)]


def vocabulary():
    tokens = byte_chars()
    for m in MERGES:
        left, right = m.split(" ")
        joined = left + right
        if left not in tokens or right not in tokens:
            raise SystemExit(f"merge {m!r} joins a token that is not there yet")
        if joined not in tokens:
            tokens.append(joined)
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|tool|>"]
    return tokens + control, [TokenType.NORMAL] * len(tokens) + [TokenType.CONTROL] * len(control)


def draw(spec, vocab, rng):
    """Weights by GGUF name, K last, in transformers' own order of rows. Scaled so that attention picks and choices matter: at the usual 0.02 a wrong
    rotation would hide below the tolerance."""
    d, q, kv, f = spec["dim"], spec["heads"] * spec["head"], spec["kv"] * spec["head"], spec["ffn"]
    w = {}

    def mat(name, rows, cols, gain):
        w[name + ".weight"] = (rng.standard_normal((rows, cols)) * gain / np.sqrt(cols)).astype(np.float32)

    def norm(name):
        w[name + ".weight"] = (1 + 0.2 * rng.standard_normal(d)).astype(np.float32)

    mat("token_embd", vocab, d, 0.5)
    if not spec["tied"]:
        mat("output", vocab, d, 0.5)
    norm("output_norm")
    for i in range(spec["layers"]):
        b = f"blk.{i}."
        norm(b + "attn_norm"), norm(b + "ffn_norm")
        mat(b + "attn_q", q, d, 1.5), mat(b + "attn_k", kv, d, 1.5), mat(b + "attn_v", kv, d, 1.0), mat(b + "attn_output", d, q, 0.06)
        mat(b + "ffn_gate", f, d, 1.0), mat(b + "ffn_up", f, d, 1.0), mat(b + "ffn_down", d, f, 0.06)
        if spec["family"] == "qwen2":
            for n, size in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
                w[b + n + ".bias"] = (rng.standard_normal(size) * 0.5).astype(np.float32)
    return w


def pairs(w, heads):
    """Rows of q or k from halves (i, i + n/2), as transformers turns them, to pairs (2i, 2i + 1), as llama files hold them."""
    head = w.shape[0] // heads
    return w.reshape(heads, 2, head // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpairs(w, heads):
    head = w.shape[0] // heads
    return w.reshape(heads, head // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


# K types: bytes of a block, where its F16 scales lie and how large they are made so that the weights come out near 1/16.
K_BLOCKS = {T.Q4_K: (144, {0: 1 / 3600, 2: 1 / 480}), T.Q5_K: (176, {0: 1 / 7200, 2: 1 / 480}), T.Q6_K: (210, {208: 1 / 18000})}


def draw_blocks(kind, shape, rng):
    size, scales = K_BLOCKS[kind]
    raw = rng.integers(0, 256, (shape[0], shape[1] // 256, size), dtype=np.uint8)
    for at, scale in scales.items():
        v = (scale * rng.uniform(0.5, 1.5, raw.shape[:2])).astype("<f2")
        raw[:, :, at:at + 2] = v[..., None].view(np.uint8)
    return raw.reshape(shape[0], -1)


def pack(spec, w, rng):
    """(what the file holds, its type) by name, and the F32 weights that stand for them, again in transformers' order."""
    stored, exact = {}, {}
    for name, x in w.items():
        kind = T.F32
        if x.ndim == 2:
            part = name.split(".")[-2]
            kind = spec["types"].get(part, spec["types"]["all"])
        heads = {"attn_q": spec["heads"], "attn_k": spec["kv"]}.get(name.split(".")[-2]) if spec["family"] == "llama" else None
        y = pairs(x, heads) if heads else x
        data = draw_blocks(kind, y.shape, rng) if kind in K_BLOCKS else y if kind == T.F32 else quantize(y, kind)
        back = data if kind == T.F32 else dequantize(data, kind).reshape(x.shape).astype(np.float32)
        stored[name] = (data, kind)
        exact[name] = unpairs(back, heads) if heads else back
    return stored, exact


STRETCH = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)


def stretch_factors(head, base):
    """Llama 3's rule (its model card's reference code): long waves are slowed by `factor`, short ones not, those between are blended."""
    wave = 2 * np.pi * base ** (np.arange(0, head, 2, dtype=np.float64) / head)
    old, f, lo, hi = STRETCH["original_max_position_embeddings"], STRETCH["factor"], STRETCH["low_freq_factor"], STRETCH["high_freq_factor"]
    smooth = (old / wave - lo) / (hi - lo)
    between = 1 / ((1 - smooth) / f + smooth)
    return np.where(wave < old / hi, 1.0, np.where(wave > old / lo, f, between)).astype(np.float32)


EPS, BASE = 1e-5, 10000.0


def write(path, name, spec, stored):
    tokens, kinds = vocabulary()
    g = GGUFWriter(path, spec["family"])
    g.add_name(name)
    g.add_block_count(spec["layers"]), g.add_context_length(spec["ctx"]), g.add_embedding_length(spec["dim"]), g.add_feed_forward_length(spec["ffn"])
    g.add_head_count(spec["heads"]), g.add_head_count_kv(spec["kv"]), g.add_key_length(spec["head"]), g.add_value_length(spec["head"])
    g.add_rope_dimension_count(spec["head"]), g.add_rope_freq_base(BASE), g.add_layer_norm_rms_eps(EPS), g.add_vocab_size(len(tokens))
    g.add_tokenizer_model("gpt2"), g.add_tokenizer_pre(spec["pre"])
    g.add_token_list(tokens), g.add_token_types([int(k) for k in kinds]), g.add_token_merges(MERGES)
    g.add_bos_token_id(tokens.index("<|im_start|>" if spec["pre"] == "smollm" else "<|endoftext|>"))
    g.add_eos_token_id(tokens.index("<|im_end|>")), g.add_pad_token_id(tokens.index("<|endoftext|>")), g.add_add_bos_token(spec["pre"] == "llama-bpe")
    g.add_chat_template(TEMPLATE)
    if spec.get("stretch"):
        g.add_tensor("rope_freqs.weight", stretch_factors(spec["head"], BASE))
    for key, (data, kind) in stored.items():
        g.add_tensor(key, data if kind != T.F16 else data.astype(np.float16), raw_dtype=None if kind in (T.F32, T.F16) else kind)
    g.write_header_to_file(), g.write_kv_data_to_file(), g.write_tensors_to_file(), g.close()


HF_NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
HF_GLOBAL = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight", "output_norm.weight": "model.norm.weight"}


def hf_name(name):
    if name in HF_GLOBAL:
        return HF_GLOBAL[name]
    _, layer, part, last = name.split(".")
    return f"model.layers.{layer}.{HF_NAMES[part]}.{last}"


def reference(spec, exact, vocab, tokens):
    common = dict(vocab_size=vocab, hidden_size=spec["dim"], intermediate_size=spec["ffn"], num_hidden_layers=spec["layers"], num_attention_heads=spec["heads"],
                  num_key_value_heads=spec["kv"], head_dim=spec["head"], max_position_embeddings=spec["ctx"], rms_norm_eps=EPS,
                  tie_word_embeddings=spec["tied"], attn_implementation="eager",
                  rope_parameters=dict(rope_theta=BASE, **(STRETCH if spec.get("stretch") else dict(rope_type="default"))))
    cls, cfg = (LlamaForCausalLM, LlamaConfig) if spec["family"] == "llama" else (Qwen2ForCausalLM, Qwen2Config)
    model = cls(cfg(**common)).float().eval()
    missing, unexpected = model.load_state_dict({hf_name(k): torch.from_numpy(v.copy()) for k, v in exact.items()}, strict=False)
    if unexpected or [m for m in missing if not (spec["tied"] and m == "lm_head.weight")]:
        raise SystemExit(f"weights do not fit the framework's model: missing {missing}, unexpected {unexpected}")
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float().numpy()


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "tiny")
    torch.manual_seed(0), torch.set_num_threads(1)
    vocab = len(vocabulary()[0])
    for seed, (name, spec) in enumerate(MODELS.items()):
        rng = np.random.default_rng(1000 + seed)
        stored, exact = pack(spec, draw(spec, vocab, rng), rng)
        path = os.path.join(folder, name + ".gguf")
        write(path, name, spec, stored)
        tokens = rng.integers(0, vocab, N_TOKENS).tolist()
        logits = reference(spec, exact, vocab, tokens)
        with open(os.path.join(folder, name + ".logits"), "wb") as f:
            f.write(b"WLOG" + struct.pack("<4I", 1, N_TOKENS, len(POSITIONS), vocab))
            f.write(np.array(tokens, "<i4").tobytes() + np.array(POSITIONS, "<i4").tobytes() + logits[POSITIONS].astype("<f4").tobytes())
        print(f"{name}: vocab {vocab}, {os.path.getsize(path):,} bytes, logits sd {logits.std():.3f}, max {np.abs(logits).max():.2f}")


if __name__ == "__main__":
    main()
