#!/usr/bin/env python3
"""A folder of safetensors, a shard of it, a GGUF model in parts: what inspect, tokenize and serve make of their paths."""
import json
import os
import shutil
import tempfile

import check
from check import equal, has, run

HF = os.path.join(check.SRC, "tests", "golden", "hf")
TINY = os.path.join(check.SRC, "tests", "golden", "tiny")
PARTS = [os.path.join(HF, f"tiny-llama-q-0000{i}-of-00003.gguf") for i in (1, 2, 3)]


def look(path, *args):
    p = run("inspect", "--json", *args, path)
    equal(p.returncode, 0, p.stderr)
    return json.loads(p.stdout)


def test_inspect_folder():
    folder = os.path.join(HF, "llama-f32-shards")
    d = look(folder)
    equal((d["name"], d["format"], d["files"]), ("llama-f32-shards", "safetensors", 9))
    equal(d["file_bytes"], sum(os.path.getsize(os.path.join(folder, n)) for n in os.listdir(folder)))
    equal(d["metadata"]["general.sampling.top_k"], 40)
    for same in (folder + "/", folder + "/.", folder + "/model-00002-of-00003.safetensors", folder + "/model.safetensors.index.json"):
        e = look(same)
        equal((e["name"], e["tensor_count"], e["weight_bytes"]), (d["name"], d["tensor_count"], d["weight_bytes"]), same)
    text = run("inspect", folder).stdout
    has(text, "safetensors, 9 files")
    # Half the bytes, but for the factors that are computed, in one form of the same model.
    half = look(os.path.join(HF, "llama-f16"))
    equal(half["weight_bytes"] - 16, (d["weight_bytes"] - 16) // 2)


def test_inspect_parts():
    whole = look(os.path.join(TINY, "tiny-llama-q.gguf"), "--tensors")
    for path in PARTS:
        d = look(path, "--tensors")
        equal((d["name"], d["files"], d["format"]), ("tiny-llama-q", 3, "gguf"))
        for key in ("metadata", "types", "parameters", "read_bytes_per_token"):
            equal(d[key], whole[key], key)
        equal(sorted(t["name"] for t in d["tensors"]), sorted(t["name"] for t in whole["tensors"]))


def test_tokenize_parts():
    equal(run("tokenize", "--ids", PARTS[2], "on the").stdout, run("tokenize", "--ids", os.path.join(TINY, "tiny-llama-q.gguf"), "on the").stdout)


def test_folder_refusals():
    with tempfile.TemporaryDirectory() as t:
        p = run("inspect", t)
        equal(p.returncode, 3)
        has(p.stderr, "without config.json")
        shutil.copy(os.path.join(HF, "qwen3", "config.json"), t)
        p = run("inspect", t)
        equal(p.returncode, 3)
        has(p.stderr, "neither model.safetensors nor model.safetensors.index.json")
        shutil.copy(PARTS[1], t)
        p = run("inspect", os.path.join(t, os.path.basename(PARTS[1])))
        equal(p.returncode, 3)
        has(p.stderr, "part 1 is missing")


check.tests(globals())
