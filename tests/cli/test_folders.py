#!/usr/bin/env python3
"""A folder of safetensors, a shard of it, a GGUF model in parts: what inspect, tokenize and serve make of their paths."""
import json
import os
import shutil
import tempfile
import urllib.request

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


def test_tokenize_folder():
    # By the tokenizers library: "on", " the", " ", "in", "n".
    equal(run("tokenize", "--ids", os.path.join(HF, "llama-bf16"), "on the inn").stdout.split(), ["266", "261", "220", "262", "77"])


def test_template_folder():
    with tempfile.TemporaryDirectory() as t:
        m = os.path.join(t, "m.json")
        with open(m, "w") as f:
            json.dump([{"role": "user", "content": "on the inn"}], f)
        want = "<|im_start|>user\non the inn<|im_end|>\n<|im_start|>assistant\n"
        equal(run("template", os.path.join(HF, "llama-bf16"), m).stdout, want)
        equal(run("template", "--ids", os.path.join(HF, "llama-bf16"), m).stdout.split().count("258"), 1)


def ask(url, path, body=None):
    data = json.dumps(body).encode() if body else None
    with urllib.request.urlopen(urllib.request.Request(url + path, data, {"Content-Type": "application/json"}), timeout=60) as r:
        return json.load(r)


def test_serve_folder():
    """One model in three forms gives one answer; what generation_config.json says is the default."""
    answers, body = [], {"model": "x", "prompt": "on the inn", "temperature": 0, "max_tokens": 12, "logprobs": 1}
    for name in ("llama-bf16", "llama-f16", "llama-f32-shards/model-00001-of-00003.safetensors"):
        with check.Server("serve", "--port", "0", "--threads", "1", os.path.join(HF, name)) as s:
            body["model"] = name.split("/")[0]
            equal([m["id"] for m in ask(s.url, "/v1/models")["data"]], [body["model"]])
            answers.append(ask(s.url, "/v1/completions", body)["choices"])
            chat = ask(s.url, "/v1/chat/completions", {"model": body["model"], "max_tokens": 3, "messages": [{"role": "user", "content": "a"}]})
            equal(chat["usage"]["completion_tokens"] <= 3, True)
    equal(answers[1], answers[0])
    equal(answers[2], answers[0])


def test_chat_folder():
    p = run("chat", "--no-stats", "--max-tokens", "4", "--temperature", "0", "--threads", "1", os.path.join(HF, "qwen3"), stdin=b"on the")
    equal(p.returncode, 0, p.stderr)


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
