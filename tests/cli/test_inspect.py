#!/usr/bin/env python3
"""weir inspect, tokenize, template: on the tiny models of the tree, on bad input, and once on the real model."""
import json
import os
import struct

import check
from check import equal, has, run

TINY = os.path.join(check.SRC, "tests", "golden", "tiny")
LLAMA, HALF = os.path.join(TINY, "tiny-llama-q.gguf"), os.path.join(TINY, "tiny-llama-f16.gguf")
TMP = os.environ.get("TMPDIR", "/tmp")


def write(name, data):
    path = os.path.join(TMP, name)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else json.dumps(data).encode())
    return path


def refused(p, status, *parts):
    equal(p.returncode, status, "exit status")
    equal(p.stdout, "", "stdout")
    for part in parts:
        has(p.stderr, part)


def test_inspect_text():
    p = run("inspect", LLAMA)
    equal(p.returncode, 0)
    for part in ("tiny-llama-q", "GGUF version 3", "llama: 2 layers, 96 wide, 6 heads over 2 of 16", "KV per token       256 bytes",
                 "at 512 tokens", "tokenizer.ggml.tokens = 295 x string", "general.architecture = \"llama\""):
        has(p.stdout, part)
    assert "blk.0" not in p.stdout, "tensors were listed without --tensors"
    has(run("inspect", "--tensors", LLAMA).stdout, "blk.1.ffn_down.weight")


def test_inspect_json():
    p = run("inspect", "--json", "--tensors", "--ctx", "100", LLAMA)
    d = json.loads(p.stdout)
    equal(d["architecture"]["family"], "llama")
    equal(d["file_bytes"], os.path.getsize(LLAMA))
    equal(d["memory"], {"ctx": 100, "kv_bytes": 25600, "total_bytes": d["weight_bytes"] + 25600})
    equal(sum(t["bytes"] for t in d["tensors"]), d["weight_bytes"])
    equal(sum(t["tensors"] for t in d["types"].values()), d["tensor_count"])
    equal(d["metadata"]["tokenizer.ggml.tokens"], {"array_of": "string", "count": 295})
    equal(d["metadata"]["tokenizer.ggml.add_bos_token"], False)
    # A tied output is read whole, and one row of it again.
    equal(d["read_bytes_per_token"], d["weight_bytes"] + next(t["bytes"] for t in d["tensors"] if t["name"] == "token_embd.weight") // 295)


def test_inspect_unknown_architecture():
    with open(LLAMA, "rb") as f:
        data = f.read().replace(struct.pack("<Q", 5) + b"llama", struct.pack("<Q", 5) + b"mamba", 1)
    path = write("mamba.gguf", data)
    p = run("inspect", path)
    equal(p.returncode, 0)
    has(p.stdout, 'architecture is "mamba"; supported are: llama, qwen2')
    has(p.stdout, "general.name")
    equal(json.loads(run("inspect", "--json", path).stdout)["runs"], False)


def test_inspect_bad_files():
    with open(LLAMA, "rb") as f:
        whole = f.read()
    refused(run("inspect", write("half.gguf", whole[:60000])), 3, "half.gguf", "the file ends at byte 60000")
    refused(run("inspect", write("empty.gguf", b"")), 3, "the file is empty")
    refused(run("inspect", write("zip.gguf", b"PK\x03\x04" + whole)), 3, "not \"GGUF\"")
    refused(run("inspect", write("v1.gguf", whole[:4] + struct.pack("<I", 1) + whole[8:])), 3, "version 1")
    refused(run("inspect", TMP), 3, "is a folder")
    refused(run("inspect", os.path.join(TMP, "none.gguf")), 3, "none.gguf")
    refused(run("inspect", "--ctx", "0", LLAMA), 2, "--ctx")


def test_tokenize():
    p = run("tokenize", "--json", LLAMA, "on the")
    d = json.loads(p.stdout)
    equal("".join(d["pieces"]), "on the")
    equal(d["count"], len(d["tokens"]))
    equal(run("tokenize", "--ids", LLAMA, "on the").stdout.split(), [str(t) for t in d["tokens"]])
    equal(run("tokenize", "--ids", LLAMA, stdin=b"on the").stdout.split(), [str(t) for t in d["tokens"]])
    equal(run("tokenize", "--ids", LLAMA, "-", stdin=b"on the").stdout.split(), [str(t) for t in d["tokens"]])
    equal(len(run("tokenize", LLAMA, "on the").stdout.splitlines()), d["count"])
    equal(run("tokenize", "--ids", LLAMA, "").stdout, "\n")


def test_tokenize_special():
    text = "a<|im_end|>"
    plain, parsed = (run("tokenize", "--ids", *flag, LLAMA, text).stdout.split() for flag in ([], ["--parse-special"]))
    assert len(plain) > 3 and "293" not in plain, plain
    equal(parsed, [plain[0], "293"])
    with_bos, without = (run("tokenize", "--ids", *flag, HALF, "a").stdout.split() for flag in ([], ["--no-special"]))
    equal(with_bos, ["291"] + without)


def test_tokenize_bytes():
    p = run("tokenize", "--json", LLAMA, stdin=b"\xff\xfe\x00\x80")
    equal(p.returncode, 0)
    equal(json.loads(p.stdout)["count"], 4)


def test_template():
    m = write("m.json", [{"role": "user", "content": "x <|im_end|>"}])
    want = "<|im_start|>user\nx <|im_end|><|im_end|>\n"
    equal(run("template", LLAMA, m).stdout, want + "<|im_start|>assistant\n")
    equal(run("template", "--no-generation-prompt", LLAMA, m).stdout, want)
    o = write("o.json", {"messages": [{"role": "user", "content": "x <|im_end|>"}], "add_generation_prompt": False})
    equal(run("template", LLAMA, o).stdout, want)
    # What the user wrote is text; only the template's own is a control token.
    equal(run("template", "--ids", "--no-generation-prompt", LLAMA, m).stdout.split().count("293"), 1)


def test_template_file():
    t = write("t.jinja", b"{{ bos_token }}{% for m in messages %}{{ m.role }}{% endfor %} {{ strftime_now('%Y-%m') }} {{ extra }}")
    o = write("k.json", {"messages": [{"role": "user"}], "chat_template_kwargs": {"extra": 7}})
    equal(run("template", "--bos", "<s>", "--now", "86400", t, o, TZ="UTC").stdout, "<s>user 1970-01 7")


def test_template_bad():
    good = write("g.json", [{"role": "user", "content": "x"}])
    refused(run("template", LLAMA, write("n.json", b"[")), 3, "n.json", "line 1")
    refused(run("template", LLAMA, write("t.json", b"7")), 3, "expected an array of messages")
    refused(run("template", LLAMA, write("e.json", b"{}")), 3, "'messages' is missing")
    refused(run("template", LLAMA, write("i.json", [3])), 3, "messages[0]")
    refused(run("template", LLAMA, write("c.json", [{"role": "user", "content": 3}])), 3, "content must be a string")
    refused(run("template", write("b.jinja", b"x\n{% for %}"), good), 3, "b.jinja", "line 2")
    refused(run("template", write("l.jinja", b"{% for i in range(10**9) %}{% for j in range(10**9) %}x{% endfor %}{% endfor %}"), good), 3, "l.jinja")
    refused(run("template", "--ids", write("s.jinja", b"x"), good), 2, "--ids wants a model")
    refused(run("template", LLAMA), 2, "template")


def test_real_model():
    path = check.model()
    d = json.loads(run("inspect", "--json", path).stdout)
    equal((d["parameters"], d["read_bytes_per_token"], d["kv_bytes_per_token"], d["memory"]["ctx"]), (134515008, 96577380, 23040, 8192))
    m = write("r.json", [{"role": "user", "content": "Hi"}])
    has(run("template", path, m).stdout, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


check.tests(globals())
