#!/usr/bin/env python3
"""Makes tests/golden/refs/NAME.ref.gz: what a model file says at every position of real text, evaluated by an independent framework.

transformers reads the same GGUF file, dequantizes it and runs it in F32 on the CPU; nothing is rounded but the weights that the file itself rounds. The
texts lie beside the result (tests/golden/refs/text, written for this purpose, the code from our own tree); each is one window that starts at position 0.

    python3 -m venv V && V/bin/pip install torch==2.13.0 transformers==5.24.0 accelerate==1.15.0 tokenizers==0.23.3 gguf==0.19.0 numpy
    V/bin/python tools/make_logit_refs.py make smollm2-135m SmolLM2-135M-Instruct.Q4_1.gguf
    V/bin/python tools/make_logit_refs.py make qwen2.5-coder-0.5b qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
    V/bin/python tools/make_logit_refs.py make gemma3-270m gemma-3-270m-q4_k_m.gguf       (sentencepiece too)
    V/bin/python tools/make_logit_refs.py ids NAME FOLDER        writes each window's ids as i32, for another engine
    V/bin/python tools/make_logit_refs.py compare NAME FOLDER    KL and same-top-1 of f32 logits [n][vocab] in FOLDER/0.f32, 1.f32 ...

Format, gzip over little-endian: "WREF", u32 version 1, u32 n_windows, u32 vocab, u32 top (32); then per window u32 n, i32 id[n], f32 rest[n] (mass outside
the top), and per position u32 id[top] and u16 step[top] as planes over the whole window: u16 low half of the ids, u16 high half, u16 steps. Best first. A
log-probability is -step / 2048. That rounds masses by up to 0.024 %; the reader divides by their sum with `rest`, so what is left of it in a KL of 0.002
is below 1e-6 (`make` prints the difference against unrounded masses).

KL is KL(reference || tested) over the 32 and one bucket for everything else, natural log, averaged over all positions of all windows.
"""
import argparse
import gzip
import os
import struct
import sys

import numpy as np

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "refs")
TEXTS = ["river.txt", "kitchen.txt", "code.txt"]
TOP, STEP = 32, 2048


def encoder(path):
    """str -> ids, by the file's vocabulary with its family's pre-tokenizer set explicitly (transformers' own reading of GGUF tokenizers splits digits
    wrongly). Gemma was never trained without its first token, so it stands before each text."""
    from gguf import GGUFReader
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    f = GGUFReader(path).fields
    if f["tokenizer.ggml.model"].contents() == "llama":
        from make_tok_kinds import spm_gemma
        spm, first = spm_gemma(argparse.Namespace(models=os.path.dirname(path))).load(), f["tokenizer.ggml.bos_token_id"].contents()
        return lambda text: [first] + spm.plain(text)
    tokens, merges = f["tokenizer.ggml.tokens"].contents(), f["tokenizer.ggml.merges"].contents()
    tok = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[tuple(m.split(" ", 1)) for m in merges]))
    pre = f["tokenizer.ggml.pre"].contents()
    if pre == "smollm":
        tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    elif pre == "qwen2":
        words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(words), "isolated"),
                                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        raise SystemExit(f"no pre-tokenizer known for {pre!r}")
    return lambda text: tok.encode(text).ids


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def kl(p, rest, ids, logq):
    """Per position. p [n, top] and rest [n] sum to 1; logq [n, vocab] is the tested distribution."""
    q = np.take_along_axis(logq, ids.astype(np.int64), 1)
    q_rest = np.maximum(1 - np.exp(q).sum(1), 1e-12)
    with np.errstate(divide="ignore", invalid="ignore"):
        tail = np.where(rest > 0, rest * (np.log(rest) - np.log(q_rest)), 0)
        return np.where(p > 0, p * (np.log(p) - q), 0).sum(1) + tail


def save(name, windows, vocab):
    out = b"WREF" + struct.pack("<4I", 1, len(windows), vocab, TOP)
    for ids, top, lp, rest in windows:
        step = np.minimum(np.rint(-lp * STEP), 65535).astype("<u2")
        out += struct.pack("<I", len(ids)) + ids.astype("<i4").tobytes() + rest.astype("<f4").tobytes()
        out += (top & 0xffff).astype("<u2").tobytes() + (top >> 16).astype("<u2").tobytes() + step.tobytes()
    path = os.path.join(HERE, name + ".ref.gz")
    with open(path, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=9, mtime=0) as f:
        f.write(out)
    print(f"{path}: {os.path.getsize(path):,} bytes")


def load(name):
    b = gzip.open(os.path.join(HERE, name + ".ref.gz")).read()
    magic, version, n_windows, vocab, top = struct.unpack_from("<4s4I", b)
    if magic != b"WREF" or version != 1 or top != TOP:
        raise SystemExit(f"{name}: not a reference of version 1")
    at, windows = 20, []

    def plane(kind, count):
        nonlocal at
        x = np.frombuffer(b, kind, count, at)
        at += x.nbytes
        return x

    for _ in range(n_windows):
        n = int(plane("<u4", 1)[0])
        ids, rest = plane("<i4", n), plane("<f4", n).astype(np.float64)
        low, high, step = (plane("<u2", n * TOP).reshape(n, TOP).astype(np.int64) for _ in range(3))
        p = np.exp(-step / STEP)
        total = p.sum(1) + rest
        windows.append((ids, low | high << 16, p / total[:, None], rest / total))
    return windows, vocab


def best_of(logits, rows=64):
    """Ids, log-probabilities and remaining mass of the likeliest at each position; ties go to the lowest id, as in a greedy choice. A few rows at a time: all of
    Gemma's in double would be gigabytes."""
    top, best, rest = [], [], []
    for at in range(0, len(logits), rows):
        lp = log_softmax(logits[at:at + rows])
        near = np.sort(np.argpartition(-lp, 4 * TOP, axis=1)[:, :4 * TOP], axis=1)
        order = np.argsort(-np.take_along_axis(lp, near, 1), axis=1, kind="stable")[:, :TOP]
        top.append(np.take_along_axis(near, order, 1))
        best.append(np.take_along_axis(lp, top[-1], 1))
        rest.append(np.maximum(1 - np.exp(best[-1]).sum(1), 0))
    return np.concatenate(top), np.concatenate(best), np.concatenate(rest)


def make(name, path):
    import torch
    from transformers import AutoModelForCausalLM
    folder, file = os.path.split(os.path.abspath(path))
    encode = encoder(os.path.abspath(path))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32, attn_implementation="eager").eval()
    windows, checks, vocab = [], [], 0
    for text in TEXTS:
        ids = np.array(encode(open(os.path.join(HERE, "text", text), encoding="utf-8").read()), np.int64)
        with torch.no_grad():
            logits = model(torch.from_numpy(ids)[None]).logits[0].numpy()
        vocab = logits.shape[1]
        top, best, rest = best_of(logits)
        windows.append((ids, top, best, rest))
        said = np.concatenate([log_softmax(logits[i:i + 64])[np.arange(len(ids[i + 1:i + 65])), ids[i + 1:i + 65]] for i in range(0, len(ids) - 1, 64)])
        checks.append((best, rest, logits[:200].copy()))
        print(f"{text}: {len(ids)} tokens, perplexity {np.exp(-said.mean()):.2f}")
    save(name, windows, vocab)
    rng = np.random.default_rng(0)
    for (ids, top, p, rest), (best, exact_rest, logits) in zip(load(name)[0], checks):
        n, lp = len(logits), log_softmax(logits)
        other = log_softmax(lp + 0.07 * rng.standard_normal(lp.shape))   # a stand-in for another engine, about 0.002 away
        print(f"stored against unrounded masses: KL {kl(p[:n], rest[:n], top[:n], other).mean():.7f} and "
              f"{kl(np.exp(best[:n]), exact_rest[:n], top[:n], other).mean():.7f}, to itself {kl(p[:n], rest[:n], top[:n], lp).mean():.2e}")


def compare(name, folder):
    windows, vocab = load(name)
    kls, same = [], []
    for i, (_, top, p, rest) in enumerate(windows):
        logits = np.memmap(os.path.join(folder, f"{i}.f32"), "<f4", "r").reshape(-1, vocab)
        for at in range(0, len(logits), 64):
            part, lq = slice(at, at + 64), log_softmax(logits[at:at + 64])
            kls.append(kl(p[part], rest[part], top[part], lq))
            same.append(lq.argmax(1) == top[part, 0])
        mine = slice(-len(logits) // 64, None)
        print(f"{TEXTS[i]}: n {len(top)}, mean KL {np.concatenate(kls[mine]).mean():.6f}, same top-1 {100 * np.concatenate(same[mine]).mean():.2f} %")
    k, s = np.concatenate(kls), np.concatenate(same)
    print(f"all: n {len(k)}, mean KL {k.mean():.6f} (standard error {k.std() / np.sqrt(len(k)):.6f}), max {k.max():.4f}, same top-1 {100 * s.mean():.2f} %")


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ("make", "ids", "compare"):
        raise SystemExit(__doc__)
    command, name, where = sys.argv[1:]
    if command == "make":
        make(name, where)
    elif command == "compare":
        compare(name, where)
    else:
        for i, w in enumerate(load(name)[0]):
            w[0].astype("<i4").tofile(os.path.join(where, f"{i}.i32"))


if __name__ == "__main__":
    main()
