#!/usr/bin/env python3
"""First inputs of a fuzz target, for a corpus that is empty or young: seeds.py NAME FOLDER. What the format looks like when it is right, and the ways in which
each part may be there; mutation does the rest. A target without a row begins with nothing."""
import gzip
import io
import json
import os
import struct
import sys
import zipfile
import zlib

TOP = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
GOLDEN = os.path.join(TOP, "tests", "golden")


# ---- GGUF ----

def g_str(s):
    b = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(b)) + b


def g_val(v):
    """(kind, bytes)"""
    if isinstance(v, bool):
        return 7, struct.pack("<B", v)
    if isinstance(v, int):
        return (4, struct.pack("<I", v)) if 0 <= v < 1 << 32 else (11, struct.pack("<q", v))
    if isinstance(v, float):
        return 6, struct.pack("<f", v)
    if isinstance(v, (str, bytes)):
        return 8, g_str(v)
    if isinstance(v, tuple):  # (kind, format, value)
        return v[0], struct.pack("<" + v[1], v[2])
    kind = g_val(v[0])[0] if v else 4
    return 9, struct.pack("<IQ", kind, len(v)) + b"".join(g_val(x)[1] for x in v)


def gguf(vals, tensors=(), version=3):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(vals))
    for k, v in vals:
        kind, raw = g_val(v)
        out += g_str(k) + struct.pack("<I", kind) + raw
    data = b""
    for name, dims, kind, size in tensors:
        out += g_str(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, len(data))
        data += b"\0" * ((size + 31) // 32 * 32)
    return out + b"\0" * (-len(out) % 32) + data


TOKENS = ["<unk>", "<s>", "</s>", "a", "b", "ab", "\u0120", "\u0120a", "c"]
TOKENIZER = [("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "gpt2"), ("tokenizer.ggml.tokens", TOKENS),
             ("tokenizer.ggml.token_type", [3, 3, 3, 1, 1, 1, 1, 1, 1]), ("tokenizer.ggml.merges", ["a b", "\u0120 a"]),
             ("tokenizer.ggml.bos_token_id", 1), ("tokenizer.ggml.eos_token_id", 2), ("tokenizer.ggml.add_bos_token", True),
             ("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}")]


BYTES = [f"<0x{i:02X}>" for i in range(256)]


def spm(kind, extra=()):
    """SentencePiece's two kinds, and WordPiece, with byte tokens where the kind has them."""
    tokens = ["<unk>", "<s>", "</s>"] + (BYTES if kind == "llama" else []) + ["\u2581", "a", "b", "ab", "\u2581a", "##b", "hello"]
    types = [2, 3, 3] + [6] * (256 if kind == "llama" else 0) + [1, 1, 1, 1, 1, 4, 1]
    return [("tokenizer.ggml.model", kind), ("tokenizer.ggml.tokens", tokens), ("tokenizer.ggml.token_type", types),
            ("tokenizer.ggml.scores", [-float(i) for i in range(len(tokens))]), ("tokenizer.ggml.bos_token_id", 1), ("tokenizer.ggml.eos_token_id", 2),
            ("tokenizer.ggml.unknown_token_id", 0), ("tokenizer.ggml.add_space_prefix", True), *extra]


def shape(family):
    return [("general.architecture", family), (f"{family}.block_count", 1), (f"{family}.embedding_length", 8), (f"{family}.attention.head_count", 2),
            (f"{family}.attention.head_count_kv", 1), (f"{family}.feed_forward_length", 16), (f"{family}.context_length", 64),
            (f"{family}.rope.freq_base", 10000.0), (f"{family}.attention.layer_norm_rms_epsilon", 1e-5), (f"{family}.vocab_size", 9)]


def layer(bias):
    rows = [("token_embd.weight", (8, 9), 0, 288), ("output_norm.weight", (8,), 0, 32), ("blk.0.attn_norm.weight", (8,), 0, 32),
            ("blk.0.attn_q.weight", (8, 8), 0, 256), ("blk.0.attn_k.weight", (8, 4), 0, 128), ("blk.0.attn_v.weight", (8, 4), 0, 128),
            ("blk.0.attn_output.weight", (8, 8), 0, 256), ("blk.0.ffn_norm.weight", (8,), 0, 32), ("blk.0.ffn_gate.weight", (8, 16), 0, 512),
            ("blk.0.ffn_up.weight", (8, 16), 0, 512), ("blk.0.ffn_down.weight", (16, 8), 0, 512)]
    if bias:
        rows += [("blk.0.attn_q.bias", (8,), 0, 32), ("blk.0.attn_k.bias", (4,), 0, 16), ("blk.0.attn_v.bias", (4,), 0, 16)]
    return rows


def head_of(path):
    """A tiny model's file with its tensors' bytes cut off, and whole where it is small."""
    with open(path, "rb") as f:
        return f.read(12000)


def seeds_gguf():
    kinds = [("a", (0, "B", 1)), ("b", (1, "b", -1)), ("c", (2, "H", 7)), ("d", (3, "h", -7)), ("e", (10, "Q", 1 << 40)), ("f", (12, "d", 1.5)), ("g", True)]
    yield gguf([])
    yield gguf([("general.alignment", 64)] + kinds)
    yield gguf([("x", [1, 2, 3]), ("y", ["p", "", "q"]), ("z", [1.5, 2.5]), ("n", [[1], [2, 3]]), ("t", [True, False])])
    yield gguf([("x", [(10, "Q", 5)])])
    yield gguf(TOKENIZER)
    charsmap = struct.pack("<I", 16) + struct.pack("<4I", 0x400, 0x161, 0, 0) + b"b\0c\0"
    yield gguf(spm("llama"))
    yield gguf(spm("bert"))
    yield gguf(spm("t5", [("tokenizer.ggml.remove_extra_whitespaces", True), ("tokenizer.ggml.precompiled_charsmap", [(0, "B", b) for b in charsmap])]))
    for family, bias in (("llama", False), ("qwen2", True), ("qwen3", False), ("gemma3", False)):
        yield gguf(shape(family) + TOKENIZER, layer(bias))
    yield gguf([("q", 1)], [("t", (32, 2), 8, 68), ("u", (256,), 12, 144), ("v", (2, 2, 2, 2), 1, 32)], 2)
    yield gguf([("split.no", (2, "H", 0)), ("split.count", (2, "H", 2)), ("split.tensors.count", 1)])
    for n in sorted(os.listdir(os.path.join(GOLDEN, "tiny"))):
        if n.endswith(".gguf"):
            yield head_of(os.path.join(GOLDEN, "tiny", n))


# ---- HTTP ----

HTTP = [
    b"GET /a%20b?x=%41 HTTP/1.1\r\nHost: a\r\nX-Test: v\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:8080\r\nContent-Length: 13\r\n\r\n{\"a\":\"b c d\"}GET /n HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;a=b\r\n!\r\n0\r\nT: v\r\n\r\n",
    b"POST /l HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: close, x\r\n\r\nab",
    b"GET http://h:1/l HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /s HTTP/1.0\r\n\r\n",
    b"\r\n\r\nOPTIONS * HTTP/1.1\r\nhost:\r\n\r\nHEAD /s HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"x%d: y\r\n" % i for i in range(140)) + b"\r\n",
    b"GET / HTTP/2.0\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /\n\n",
]


def seeds_http():
    for text in HTTP:
        for tail in (b"\0", b"\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\0", b"\3\x90\0\5\1"):
            yield text + tail


# ---- requests ----

TOOL = {"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
CALLS = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [
    {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Bern\"}"}}]}, {"role": "tool", "tool_call_id": "c1", "content": "7"}]
CHAT = [
    {"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
     "temperature": 0.5, "top_p": 0.9, "n": 2, "stop": ["a", "b"], "seed": 7, "stream": True, "stream_options": {"include_usage": True}},
    {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "top_logprobs": 2, "max_completion_tokens": 5, "logit_bias": {"5": 1, "6": -100}},
    {"messages": CALLS, "tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False},
    {"messages": CALLS, "tools": [TOOL], "tool_choice": "none", "stream": True},
    {"messages": [{"role": "developer", "content": "x", "name": "n"}], "top_k": 5, "min_p": 0.1, "typical_p": 0.9, "repetition_penalty": 1.1, "min_tokens": 2,
     "stop_token_ids": [1, 2], "ignore_eos": True, "skip_special_tokens": False, "include_stop_str_in_output": True, "chat_template_kwargs": {"a": 1}},
    {"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "text"}, "user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto"},
]
TEXT = [
    {"prompt": "Hello", "max_tokens": 5, "n": 2, "best_of": 3, "echo": True, "logprobs": 2},
    {"prompt": ["a", "b"], "stream": True, "frequency_penalty": 1, "presence_penalty": -1, "dry_multiplier": 0.8},
    {"prompt": [1, 2, 3], "suffix": None}, {"prompt": [[1, 2], [3]], "echo": True, "stream": True, "logprobs": 0},
]
RESPONSES = [
    {"model": "m", "input": "hello", "instructions": "be brief", "max_output_tokens": 5, "stream": True, "temperature": 0},
    {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}, {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
               {"type": "function_call_output", "call_id": "c1", "output": "7"}],
     "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}], "tool_choice": "auto", "parallel_tool_calls": True,
     "previous_response_id": "resp_1", "store": True, "text": {"format": {"type": "text"}}},
    {"input": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "y", "annotations": []}]}], "metadata": {"a": "b"},
     "reasoning": {"effort": "low"}, "truncation": "disabled", "include": []},
]
ANTHROPIC = [
    {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "system": "s", "stream": True, "stop_sequences": ["a"], "top_k": 5},
    {"max_tokens": 9, "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}], "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "assistant", "content": [{"type": "text", "text": "t"}, {"type": "tool_use", "id": "t1",
         "name": "f", "input": {"a": 1}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "7"}]}]}],
     "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
]


def seeds_request():
    how = 0
    for letter, bodies in ((b"c", CHAT), (b"p", TEXT), (b"r", RESPONSES), (b"a", ANTHROPIC)):
        for body in bodies:
            for k in (how, 7):
                yield letter + bytes([k]) + json.dumps(body).encode()
            how += 1


# ---- the others ----

def seeds_template():
    with gzip.open(os.path.join(GOLDEN, "chat", "cases.jsonl.gz")) as f:
        lines = [json.loads(line) for line in f]
    seen = set()
    for row in lines[1:]:
        source = row.get("template") or ""
        if source and len(source) < 4000 and source not in seen:
            seen.add(source)
            yield source.encode()
    for name in sorted(os.listdir(os.path.join(GOLDEN, "chat"))):
        if name.endswith(".jinja"):
            with open(os.path.join(GOLDEN, "chat", name), "rb") as f:
                yield f.read()
    yield b"{{ messages }}{{ x }}\0" + json.dumps({"messages": [{"role": "user", "content": "\u00e4"}], "extra": {"x": [1.5, None, "s"]}}).encode()


def seeds_tok_text():
    texts = ["Hello, world! It's 12345 o'clock.\n\n  def f(x):\n\treturn x  ", "\u4f60\u597d \U0001f600\u0301 e\u0301 \u1e9b\u0323", "<|im_start|>user\n<|endoftext|><|eot_id|>", ""]
    for i, t in enumerate(texts):
        for k in range(12):
            yield t.encode() + bytes([(i + j) % 2 for j in range(16)]) + bytes([k | 0x40])
    yield bytes(range(256)) + b"\1" * 16 + b"\2"
    yield b"\xe2\x82" * 8 + b"\0" * 16 + b"\0"


def seeds_sse():
    for text in (b"data: a\n\n", b"event: x\r\ndata: a\r\ndata: b\r\n\r\n", b"\xef\xbb\xbf: c\ndata\n\nid: 1\nretry: 5\n\n", b"event: halt\ndata: a\n\ndata: b\n\n",
                 b"data: " + b"x" * 300 + b"\n\n"):
        yield text + b"\xff"
        yield text + b"\1\2\1\1\1\5\xff"


def seeds_zip():
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as z:
            for name in ("a", "m.gguf", "dir/x.txt"):
                z.writestr(zipfile.ZipInfo(name), b"some text, some text, " * 5)
        yield out.getvalue()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        with z.open(zipfile.ZipInfo("a"), "w", force_zip64=True) as f:
            f.write(b"x" * 40)
        z.comment = b"a comment"
    yield out.getvalue()


def seeds_json():
    for v in ([1, -2.5e300, "\u00e4\0\U0001f600", None, True, {}], {"a": {"b": [[]]}}, "x", 0, [1 << 62]):
        yield json.dumps(v).encode()
    yield b"[" * 130 + b"]" * 130
    yield b'{"a":1,"a":2,"\\ud800":1}'


def seeds_yaml():
    yield b"a: 1\nb: [x, 'y', \"z\\u00e4\", 0x1f, 0o17, 1.5, ~, true]\nc:\n  - d: |\n      text\n    e: >\n      folded\n"
    yield b"--- \n? k\n: v\n...\n"
    yield b"a: &x 1\nb: *x\n"
    yield b"!!str a: !t b\n%YAML 1.2\n"
    yield b"{a: {b: {c: [[], {}]}}}\n"
    with open(os.path.join(TOP, "models.yaml"), "rb") as f:
        yield f.read(3000)


def st_file(header, data):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def hf_folders():
    top = os.path.join(GOLDEN, "hf")
    for name in sorted(os.listdir(top)) if os.path.isdir(top) else []:
        if os.path.exists(os.path.join(top, name, "config.json")):
            yield os.path.join(top, name)


def read(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def seeds_safetensors():
    """config.json, a NUL, the file."""
    two = {"__metadata__": {"format": "pt"}, "model.embed_tokens.weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
           "model.norm.weight": {"dtype": "BF16", "shape": [4], "data_offsets": [16, 24]}}
    llama = json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2, "num_hidden_layers": 1, "num_attention_heads": 1,
                        "intermediate_size": 4, "vocab_size": 2, "rms_norm_eps": 1e-5}).encode()
    for file in (st_file({}, b""), st_file(two, b"\0" * 24), st_file({"a": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}}, b"\0" * 8),
                 st_file(b'{"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}   ', b"\0\0")):
        yield llama + b"\0" + file
    for folder in hf_folders():
        for shard in sorted(n for n in os.listdir(folder) if n.endswith(".safetensors"))[:1]:
            raw = read(folder, shard)
            head = 8 + struct.unpack("<Q", raw[:8])[0]
            yield read(folder, "config.json") + b"\0" + raw[:head + 2000]


def seeds_tokenizer_json():
    """tokenizer.json, a NUL, tokenizer_config.json, a NUL, some text."""
    for folder in hf_folders():
        text = read(folder, "tokenizer.json")
        if len(text) < 20000 and os.path.exists(os.path.join(folder, "tokenizer_config.json")):
            yield text + b"\0" + read(folder, "tokenizer_config.json") + b"\0some text"
    vocab = {"<unk>": 0, "a": 1, "b": 2, "ab": 3, "\u0120": 4, "\u0120a": 5, "##b": 6, "\u2581": 7, "<0x41>": 8, "[UNK]": 9}
    added = [{"id": 0, "content": "<unk>", "special": True, "single_word": False, "lstrip": False, "rstrip": True, "normalized": False}]
    pieces = [[k, -float(v)] for k, v in vocab.items()]
    models = [{"type": "BPE", "vocab": vocab, "merges": ["a b", ["\u0120", "a"]], "byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True, "ignore_merges": True},
              {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False},
              {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab}]
    norms = [None, {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "StripAccents"}, {"type": "Strip", "strip_left":
             True, "strip_right": True}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, {"type": "Prepend", "prepend": "\u2581"}]},
             {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
             {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]
    pres = [None, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme":
            "first", "split": True}, {"type": "BertPreTokenizer"}, {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "\\\\p{N}{1,3}|a+"}, "behavior":
            "Isolated", "invert": False}, {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Whitespace"}]}]
    decs = [None, {"type": "ByteLevel"}, {"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "Sequence", "decoders": [{"type": "Replace", "pattern":
            {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}]
    for m, model in enumerate(models):
        for i in range(5):
            doc = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": norms[(i + m) % 4], "pre_tokenizer": pres[i],
                   "post_processor": None, "decoder": decs[(i + m) % 4], "model": model}
            yield json.dumps(doc).encode() + b"\0" + b'{"bos_token": "<unk>", "add_bos_token": true}' + b"\0ab Ab 12\xc3\xa9"


def seeds_tool():
    texts = ["Sure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
             "{\"name\": \"f\", \"parameters\": {\"q\": \"x\"}}", "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
             "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]", "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g{}",
             "```tool_code\nf(a=1, b=\"x\")\n```", "```json\n{\"name\": \"f\", \"arguments\": {}}\n```", "[f(a=1), g(b=[2])]", "text <tool_cal {\"name\": 5} <tool_call>{\"name",
             "<tool_call>{\"arguments\": {}, \"name\": \"f\"}</tool_call> after"]
    for i, t in enumerate(texts):
        for form in range(5):
            yield t.encode() + bytes([1 + (i + form) % 3] * 8) + bytes([form | (i % 2) << 7])


ROWS = {"gguf": seeds_gguf, "http": seeds_http, "http_conn": seeds_http, "request": seeds_request, "template": seeds_template, "tok_text": seeds_tok_text,
        "sse": seeds_sse, "zip": seeds_zip, "json": seeds_json, "yaml": seeds_yaml, "safetensors": seeds_safetensors, "tokenizer_json": seeds_tokenizer_json,
        "tool": seeds_tool}


def main():
    name, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    for i, data in enumerate(ROWS.get(name, lambda: ())()):
        with open(os.path.join(folder, f"seed-{i}-{zlib.crc32(data):08x}"), "wb") as f:
            f.write(data)


main()
