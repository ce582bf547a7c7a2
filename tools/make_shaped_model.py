#!/usr/bin/env python3
"""Writes a model of random weights in the shape of a released one, to measure speed where the real file cannot be had: weights do not change how long a step
takes. The vocabulary is another GGUF file's.

    V/bin/python tools/make_shaped_model.py qwen3-0.6b VOCAB.gguf OUT.gguf       (numpy, gguf 0.19)
    llama-quantize OUT.gguf OUT-q4_k_m.gguf Q4_K_M                               (it is written in F16)
"""
import sys

import numpy as np
from gguf import GGUFReader, GGUFWriter

SHAPES = {
    "qwen3-0.6b": dict(family="qwen3", layers=28, dim=1024, heads=16, kv=8, head=128, ffn=3072, vocab=151936, ctx=40960, base=1e6, qk_norm=True),
}
CARRIED = ("model", "pre", "tokens", "token_type", "merges", "bos_token_id", "eos_token_id", "padding_token_id", "add_bos_token")


def carry_tokenizer(g, path, vocab):
    fields = GGUFReader(path).fields
    for name in CARRIED:
        key = "tokenizer.ggml." + name
        if key not in fields:
            continue
        f = fields[key]
        v = f.contents()
        if name == "tokens" and len(v) != vocab:
            raise SystemExit(f"{path} has {len(v)} tokens, the shape has {vocab}")
        g.add_key_value(key, v, f.types[0], f.types[1] if len(f.types) > 1 else None)


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in SHAPES:
        raise SystemExit(__doc__)
    s, rng = SHAPES[sys.argv[1]], np.random.default_rng(1)
    g = GGUFWriter(sys.argv[3], s["family"])
    g.add_name(sys.argv[1] + ", random weights"), g.add_block_count(s["layers"]), g.add_context_length(s["ctx"]), g.add_embedding_length(s["dim"])
    g.add_feed_forward_length(s["ffn"]), g.add_head_count(s["heads"]), g.add_head_count_kv(s["kv"]), g.add_key_length(s["head"])
    g.add_value_length(s["head"]), g.add_rope_freq_base(s["base"]), g.add_layer_norm_rms_eps(1e-6), g.add_file_type(1)
    carry_tokenizer(g, sys.argv[2], s["vocab"])
    q, kv = s["heads"] * s["head"], s["kv"] * s["head"]

    def mat(name, rows, cols):
        g.add_tensor(name + ".weight", (rng.standard_normal((rows, cols), dtype=np.float32) * cols ** -0.5).astype(np.float16))

    def norm(name, n):
        g.add_tensor(name + ".weight", np.ones(n, np.float32))

    mat("token_embd", s["vocab"], s["dim"]), norm("output_norm", s["dim"])
    for i in range(s["layers"]):
        b = f"blk.{i}."
        norm(b + "attn_norm", s["dim"]), norm(b + "ffn_norm", s["dim"])
        if s["qk_norm"]:
            norm(b + "attn_q_norm", s["head"]), norm(b + "attn_k_norm", s["head"])
        mat(b + "attn_q", q, s["dim"]), mat(b + "attn_k", kv, s["dim"]), mat(b + "attn_v", kv, s["dim"]), mat(b + "attn_output", s["dim"], q)
        mat(b + "ffn_gate", s["ffn"], s["dim"]), mat(b + "ffn_up", s["ffn"], s["dim"]), mat(b + "ffn_down", s["dim"], s["ffn"])
    g.write_header_to_file(), g.write_kv_data_to_file(), g.write_tensors_to_file(), g.close()


if __name__ == "__main__":
    main()
