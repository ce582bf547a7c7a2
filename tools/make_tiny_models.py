#!/usr/bin/env python3
"""Makes tests/golden/tiny: small random models as GGUF files, and the logits an independent framework gives for them.

The weights are drawn here, written with the `gguf` package and loaded into transformers' own model class of the family (F32, eager attention, CPU). For a quantized file the framework gets the weights as the `gguf` package dequantizes them, so the logits are those of the file's own
numbers with unrounded activations. The package cannot quantize K types; there every bit pattern is a valid block, so the blocks themselves are drawn.

    python3 -m venv V && V/bin/pip install torch==2.13.0 transformers==5.24.0 gguf==0.19.0 numpy
    V/bin/python tools/make_tiny_models.py [FOLDER [NAME...]]

Golden file NAME.logits, all little-endian: "WLOG", u32 version 1, u32 n_tokens, u32 n_pos, u32 vocab, i32 token[n_tokens], i32 pos[n_pos],
f32 logit[n_pos][vocab]. Positions cross 256, where attention is split, and the ends of windows.
"""
import os
import struct
import sys

import numpy as np
import torch
from gguf import GGMLQuantizationType as T, GGUFWriter, TokenType
from gguf.quants import dequantize, quantize
import transformers

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
    # The families, small: heads whose width is not dim / heads, so that no size can be taken for another; 16-bit weights. `keys` are GGUF's numbers
    # and `config` transformers' for the same things.
    "tiny-qwen3-f16": dict(family="qwen3", layers=2, dim=48, heads=4, kv=2, head=20, ffn=64, ctx=512, pre="qwen2", tied=True, few=True,
                           types=dict(all=T.F16)),
    # Five layers of a narrow window for one that sees all; RoPE of the wide ones stretched, of the narrow ones not and with the base that files leave out
    "tiny-gemma3-f16": dict(family="gemma3", layers=7, dim=32, heads=4, kv=1, head=16, ffn=48, ctx=512, pre="gpt-2", tied=True, few=True, base=1e6,
                            types=dict(all=T.F16), keys={"attention.sliding_window": 20, "rope.scaling.type": "linear", "rope.scaling.factor": 2.0},
                            config=dict(sliding_window=20, query_pre_attn_scalar=16, hidden_activation="gelu_pytorch_tanh", rope_parameters=dict(
                                full_attention=dict(rope_type="linear", factor=2.0, rope_theta=1e6),
                                sliding_attention=dict(rope_type="default", rope_theta=1e4)))),
    # Mistral: every layer has the window; biases in 16 bits
    "tiny-mistral-f16": dict(family="llama", hf="Mistral", layers=2, dim=48, heads=4, kv=2, head=16, ffn=64, ctx=512, pre="llama-bpe", tied=True, few=True,
                             types=dict(all=T.F16), keys={"attention.sliding_window": 30}, config=dict(sliding_window=30)),
    # Every bias that a llama can have
    "tiny-llama-b": dict(family="llama", layers=2, dim=48, heads=4, kv=2, head=16, ffn=64, ctx=512, pre="llama-bpe", tied=True, few=True,
                         types=dict(all=T.F16, bias=T.F16), biases=["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"],
                         config=dict(attention_bias=True, mlp_bias=True)),
    # QKV in one, gate and up in one, half of each head turned, factors for long and for short contexts, a window; a second set of logits is of a run
    # that stays short
    "tiny-phi3-f16": dict(family="phi3", layers=2, dim=64, heads=4, kv=2, head=16, rot=8, ffn=64, ctx=512, pre="llama-bpe", tied=False, few=True, fused=True,
                          types=dict(all=T.F16), long=[1.5, 2.0, 4.0, 7.0], short=[1.0, 1.1, 1.3, 1.6], short_run=100,
                          keys={"attention.sliding_window": 90, "rope.scaling.type": "longrope", "rope.scaling.original_context_length": 128,
                                "rope.scaling.attn_factor": 1.19},
                          config=dict(sliding_window=90, original_max_position_embeddings=128, pad_token_id=0, eos_token_id=0, rope_parameters=dict(
                              rope_type="longrope", rope_theta=1e4, partial_rotary_factor=0.5, original_max_position_embeddings=128, attention_factor=1.19,
                              long_factor=[1.5, 2.0, 4.0, 7.0], short_factor=[1.0, 1.1, 1.3, 1.6]))),
    "tiny-granite-f16": dict(family="granite", layers=2, dim=48, heads=3, kv=1, head=16, ffn=64, ctx=512, pre="gpt-2", tied=True, few=True,
                             types=dict(all=T.F16),
                             keys={"embedding_scale": 1.7, "residual_scale": 0.6, "attention.scale": 0.11, "logit_scale": 0.7},
                             config=dict(embedding_multiplier=1.7, residual_multiplier=0.6, attention_multiplier=0.11, logits_scaling=0.7)),
    "tiny-olmo2-f16": dict(family="olmo2", layers=2, dim=48, heads=3, kv=1, head=16, ffn=64, ctx=512, pre="gpt-2", tied=False, few=True, types=dict(all=T.F16)),
    # OLMo 3: the same with windows in the layers that a list names, and YaRN in the others
    "tiny-olmo3-f16": dict(family="olmo2", hf="Olmo3", layers=4, dim=32, heads=2, kv=2, head=16, ffn=48, ctx=512, pre="gpt-2", tied=False, few=True,
                           types=dict(all=T.F16),
                           keys={"attention.sliding_window": 40, "attention.sliding_window_pattern": [True, True, False, True], "rope.scaling.type": "yarn",
                                 "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 128},
                           config=dict(sliding_window=40, layer_types=["sliding_attention"] * 2 + ["full_attention", "sliding_attention"],
                                       pad_token_id=0, rope_parameters=dict(
                                           full_attention=dict(rope_type="yarn", factor=4.0, rope_theta=1e4, original_max_position_embeddings=128),
                                           sliding_attention=dict(rope_type="default", rope_theta=1e4)))),
    # The fourth layer is not turned
    "tiny-smollm3-f16": dict(family="smollm3", layers=5, dim=32, heads=4, kv=2, head=8, ffn=48, ctx=512, pre="smollm", tied=True, few=True, types=dict(all=T.F16),
                             config=dict(pad_token_id=0)),
}

# What stands before and behind attention and feed-forward, and in which class of transformers.
PRE = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
POST = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
QK = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
FAMILIES = {
    "llama": dict(hf="Llama", norms=PRE, pairs=True),
    "qwen2": dict(hf="Qwen2", norms=PRE, biases=["attn_q", "attn_k", "attn_v"]),
    "qwen3": dict(hf="Qwen3", norms=PRE | QK),
    "gemma3": dict(hf="Gemma3Text", model="Gemma3ForCausalLM", norms=PRE | POST | {"ffn_norm": "pre_feedforward_layernorm"} | QK, less_one=True),
    "phi3": dict(hf="Phi3", norms=PRE),
    "granite": dict(hf="Granite", norms=PRE, pairs=True),
    "olmo2": dict(hf="Olmo2", norms=POST | QK, whole_row=True),
    "smollm3": dict(hf="SmolLM3", norms=PRE, pairs=True),
}
N_TOKENS = 300
POSITIONS = list(range(0, 24)) + [63, 64, 127, 128] + list(range(250, 266)) + [290, 299]
FEW_POSITIONS = [0, 1, 2, 5, 9, 18, 19, 20, 21, 29, 30, 31, 40, 64, 90, 99, 128, 255, 256, 257, 299]

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

    def norm(name, size=d):
        w[name + ".weight"] = (1 + 0.2 * rng.standard_normal(size)).astype(np.float32)

    mat("token_embd", vocab, d, 0.5)
    if not spec["tied"]:
        mat("output", vocab, d, 0.5)
    family = FAMILIES[spec["family"]]
    norm("output_norm")
    for i in range(spec["layers"]):
        b = f"blk.{i}."
        for n in family["norms"]:
            whole = family.get("whole_row")
            norm(b + n, {"attn_q_norm": q if whole else spec["head"], "attn_k_norm": kv if whole else spec["head"]}.get(n, d))
        mat(b + "attn_q", q, d, 1.5), mat(b + "attn_k", kv, d, 1.5), mat(b + "attn_v", kv, d, 1.0), mat(b + "attn_output", d, q, 0.06)
        mat(b + "ffn_gate", f, d, 1.0), mat(b + "ffn_up", f, d, 1.0), mat(b + "ffn_down", d, f, 0.06)
        for n in spec.get("biases", family.get("biases", [])):
            size = w[b + n + ".weight"].shape[0]
            w[b + n + ".bias"] = (rng.standard_normal(size) * 0.5).astype(np.float32)
        if spec.get("fused"):
            w[b + "attn_qkv.weight"] = np.concatenate([w.pop(b + n + ".weight") for n in ("attn_q", "attn_k", "attn_v")])
            w[b + "ffn_up.weight"] = np.concatenate([w.pop(b + n + ".weight") for n in ("ffn_gate", "ffn_up")])
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
        part, last = name.split(".")[-2:]
        if x.ndim == 2:
            kind = spec["types"].get(part, spec["types"]["all"])
        elif last == "bias":
            kind = spec["types"].get("bias", T.F32)
        heads = {"attn_q": spec["heads"], "attn_k": spec["kv"]}.get(part) if FAMILIES[spec["family"]].get("pairs") else None
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
    g.add_rope_dimension_count(spec.get("rot", spec["head"])), g.add_rope_freq_base(spec.get("base", BASE)), g.add_layer_norm_rms_eps(EPS)
    g.add_vocab_size(len(tokens))
    for key, v in spec.get("keys", {}).items():
        add = {int: g.add_uint32, float: g.add_float32, str: g.add_string, list: g.add_array}[type(v)]
        add(f"{spec['family']}.{key}", v)
    g.add_tokenizer_model("gpt2"), g.add_tokenizer_pre(spec["pre"])
    g.add_token_list(tokens), g.add_token_types([int(k) for k in kinds]), g.add_token_merges(MERGES)
    g.add_bos_token_id(tokens.index("<|im_start|>" if spec["pre"] == "smollm" else "<|endoftext|>"))
    g.add_eos_token_id(tokens.index("<|im_end|>")), g.add_pad_token_id(tokens.index("<|endoftext|>")), g.add_add_bos_token(spec["pre"] == "llama-bpe")
    g.add_chat_template(TEMPLATE)
    if spec.get("stretch"):
        g.add_tensor("rope_freqs.weight", stretch_factors(spec["head"], BASE))
    for kind in ("long", "short"):
        if kind in spec:
            g.add_tensor(f"rope_factors_{kind}.weight", np.array(spec[kind], np.float32))
    for key, (data, kind) in stored.items():
        g.add_tensor(key, data if kind != T.F16 else data.astype(np.float16), raw_dtype=None if kind in (T.F32, T.F16) else kind)
    g.write_header_to_file(), g.write_kv_data_to_file(), g.write_tensors_to_file(), g.close()


HF_NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_qkv": "self_attn.qkv_proj",
            "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
HF_GLOBAL = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight", "output_norm.weight": "model.norm.weight"}


def hf_name(spec, name):
    if name in HF_GLOBAL:
        return HF_GLOBAL[name]
    _, layer, part, last = name.split(".")
    names = HF_NAMES | FAMILIES[spec["family"]]["norms"]
    if spec.get("fused"):
        names["ffn_up"] = "mlp.gate_up_proj"
    return f"model.layers.{layer}.{names[part]}.{last}"


def hf_weights(spec, exact):
    """Under transformers' names. Gemma's norms are stored there without their one."""
    less = 1 if FAMILIES[spec["family"]].get("less_one") else 0
    return {hf_name(spec, k): torch.from_numpy(v - less if k.endswith("norm.weight") else v.copy()) for k, v in exact.items()}


def framework(spec, vocab):
    common = dict(vocab_size=vocab, hidden_size=spec["dim"], intermediate_size=spec["ffn"], num_hidden_layers=spec["layers"], num_attention_heads=spec["heads"],
                  num_key_value_heads=spec["kv"], head_dim=spec["head"], max_position_embeddings=spec["ctx"], rms_norm_eps=EPS,
                  tie_word_embeddings=spec["tied"], attn_implementation="eager",
                  rope_parameters=dict(rope_theta=BASE, **(STRETCH if spec.get("stretch") else dict(rope_type="default"))))
    family = FAMILIES[spec["family"]]
    hf = spec.get("hf", family["hf"])
    cls, cfg = getattr(transformers, family.get("model", hf + "ForCausalLM")), getattr(transformers, hf + "Config")
    return cls(cfg(**(common | spec.get("config", {})))).float().eval()


def reference(spec, exact, vocab, runs):
    """Logits of each run of tokens."""
    model = framework(spec, vocab)
    missing, unexpected = model.load_state_dict(hf_weights(spec, exact), strict=False)
    if unexpected or [m for m in missing if not (spec["tied"] and m == "lm_head.weight")]:
        raise SystemExit(f"weights do not fit the framework's model: missing {missing}, unexpected {unexpected}")
    with torch.no_grad():
        return [model(torch.tensor([tokens])).logits[0].float().numpy() for tokens in runs]


def write_logits(path, tokens, at, logits):
    with open(path, "wb") as f:
        f.write(b"WLOG" + struct.pack("<4I", 1, len(tokens), len(at), logits.shape[1]))
        f.write(np.array(tokens, "<i4").tobytes() + np.array(at, "<i4").tobytes() + logits[at].astype("<f4").tobytes())


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "tiny")
    torch.manual_seed(0), torch.set_num_threads(1)
    vocab = len(vocabulary()[0])
    for seed, (name, spec) in enumerate(MODELS.items()):
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        rng = np.random.default_rng(1000 + seed)
        stored, exact = pack(spec, draw(spec, vocab, rng), rng)
        path = os.path.join(folder, name + ".gguf")
        write(path, name, spec, stored)
        tokens = rng.integers(0, vocab, N_TOKENS).tolist()
        short = spec.get("short_run")
        logits = reference(spec, exact, vocab, [tokens] + ([tokens[:short]] if short else []))
        at = FEW_POSITIONS if spec.get("few") else POSITIONS
        write_logits(os.path.join(folder, name + ".logits"), tokens, at, logits[0])
        if short:
            write_logits(os.path.join(folder, name + "-short.logits"), tokens[:short], [p for p in at if p < short], logits[1])
        print(f"{name}: vocab {vocab}, {os.path.getsize(path):,} bytes, logits sd {logits[0].std():.3f}, max {np.abs(logits[0]).max():.2f}")


if __name__ == "__main__":
    main()
