#!/usr/bin/env python3
"""Makes tests/golden/dequant.bin: raw blocks of every weight type that is read, and their values as the `gguf` package computes them.

    python3 -m venv V && V/bin/pip install gguf==0.19.0 numpy
    V/bin/python tools/make_dequant_golden.py

Every bit pattern of quants and small scales is a valid block, so the blocks are random. Half-precision scales are drawn from normal, negative, subnormal,
zero, negative zero and largest values; infinities and NaN are left out, for their product with zero has no defined bits. MXFP4's exponents are drawn
from all 256: the largest give infinite values, never NaN.

Format, little-endian: "WDEQ", u32 version 1, u32 n; then n times u32 type (GGUF's number), u32 n_values, u32 n_bytes, the blocks, f32 value[n_values].
"""
import os
import struct

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "dequant.bin")
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
          T.Q2_K: [80, 82], T.Q3_K: [108], T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: []}  # where the halves are
EDGES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00, 0xBC00, 0x2E66]
EXPONENTS = [127, 130, 0, 1, 2, 3, 254, 255, 252]


def halves(rng, n):
    """n f16 bit patterns, every edge among them as far as there is room; exponent 31 never."""
    v = rng.integers(0, 1 << 16, n, dtype=np.uint16)
    v = np.where(v & 0x7C00 == 0x7C00, v ^ 0x4000, v).astype(np.uint16)
    v[: len(EDGES)] = EDGES[:n]
    return rng.permutation(v)


def blocks(rng, t):
    size, n_bytes = GGML_QUANT_SIZES[t]
    if t == T.F32:
        raw = rng.standard_normal(256).astype(np.float32)
        raw[:4] = [0.0, -0.0, 1e-42, -3.4e38]
        return raw.view(np.uint8)
    if t in (T.F16, T.BF16):
        v = halves(rng, 512)
        return np.where(v & 0x7F80 == 0x7F80, v ^ 0x4000, v).astype(np.uint16).view(np.uint8)
    n = 24 if size == 32 else 8
    raw = rng.integers(0, 256, (n, n_bytes), dtype=np.uint8)
    for at in SCALES[t]:
        raw[:, at : at + 2] = halves(rng, n).view(np.uint8).reshape(n, 2)
    first = {T.Q2_K: 0, T.Q3_K: 0, T.Q6_K: 0, T.MXFP4: 1}.get(t, max(SCALES[t], default=0) + 2)
    raw[0, first:][:32] = 0      # all quants (or scales) at their least
    raw[1, {T.Q6_K: 0, T.Q2_K: 0, T.Q3_K: 96, T.MXFP4: 1}.get(t, 2 if t in (T.IQ4_NL, T.IQ4_XS) else 4) :][: 12 if t == T.Q3_K else 16] = 255
    if t == T.MXFP4:
        raw[: len(EXPONENTS), 0] = EXPONENTS
    return raw.reshape(-1)


def main():
    rng = np.random.default_rng(2024)
    types = [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K,
             T.Q2_K, T.Q3_K, T.IQ4_NL, T.IQ4_XS, T.MXFP4]
    out = [b"WDEQ", struct.pack("<II", 1, len(types))]
    for t in types:
        raw = blocks(rng, t)
        with np.errstate(over="ignore"):
            y = np.ascontiguousarray(dequantize(raw.reshape(1, -1), t), dtype=np.float32).reshape(-1)
        assert not np.isnan(y).any() and (t == T.MXFP4 or np.isfinite(y).all()), t
        out += [struct.pack("<III", int(t), y.size, raw.size), raw.tobytes(), y.tobytes()]
    with open(OUT, "wb") as f:
        f.write(b"".join(out))
    print(OUT, os.path.getsize(OUT), "bytes")


if __name__ == "__main__":
    main()
