#!/usr/bin/env python3
"""Bad input over the wire: always a 4xx that names the field, never a 5xx, and the server goes on."""
import json

from api_client import TINY, Client, check, refused

server = check.Server("serve", TINY, "--port", "0", "--threads", "1")
c = Client(server.url)
MSG = [{"role": "user", "content": "x"}]


def raw(body, path="/v1/chat/completions"):
    return c.post(path, body if isinstance(body, bytes) else body.encode())


def test_bodies_that_are_not_json():
    refused(raw(b""), 400, None, "empty")
    refused(raw(b"   "), 400, None, "empty")
    refused(raw(b"{"), 400, None, "JSON")
    refused(raw(b"{} x"), 400, None, "JSON")
    refused(raw(b"[]"), 400, None, "object", "an array")
    refused(raw(b"null"), 400, None, "object")
    refused(raw(b'{"messages": "\xff\xfe"}'), 400, None, "UTF-8")
    refused(raw(b'{"messages": [{"role": "user", "content": "\\ud800"}]}'), 400, None, "JSON")
    refused(raw(b'{"messages": "\xed\xa0\x80"}'), 400, None, "UTF-8")
    refused(raw(b'{"temperature": NaN}'), 400, None, "JSON")
    refused(raw(b'{"temperature": Infinity}'), 400, None, "JSON")
    refused(raw(b'{"temperature": 1e999}'), 400, None, "JSON")
    refused(raw(b'{"seed": 99999999999999999999999}'), 400, None, "JSON")


def test_nesting():
    refused(raw("[" * 200), 400, None, "nested", "128")
    refused(raw("[" * 1000000), 400, None, "nested")
    deep = '{"messages":[{"role":"user","content":"x"}],"max_tokens":1,"metadata":' + '{"a":' * 100 + "1" + "}" * 100 + "}"
    check.equal(raw(deep).status, 200)


def test_ten_megabytes():
    body = json.dumps({"messages": [{"role": "user", "content": "a" * 10_000_000}]})
    refused(raw(body), 400, "messages", "512", code="context_length_exceeded")
    body = json.dumps({"prompt": [1] * 3_000_000})
    refused(raw(body, "/v1/completions"), 400, "prompt", "512", "3000000", code="context_length_exceeded")
    body = json.dumps({"messages": MSG, "max_tokens": 1, "metadata": {str(i): "x" * 100 for i in range(80000)}})
    check.equal(raw(body).status, 200)
    check.equal(c.post("/v1/chat/completions", b"x" * (17 << 20)).status, 413)


def test_values_that_would_fill_the_memory():
    """15 MB of empty lists are 1 GB as a document: refused before there is one."""
    check.not_under("thread", "every byte takes several")
    for piece in ("[],", "{},", '"",'):
        body = '{"messages":[{"role":"user","content":"x"}],"max_tokens":1,"metadata":[' + piece * (15_000_000 // len(piece)) + "1]}"
        for path in ("/v1/chat/completions", "/tokenize"):
            refused(raw(body, path), 413, None, "256 MiB")
    with open(f"/proc/{server.p.pid}/status") as f:
        peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
    assert peak < 600_000, f"{peak} kB at most"


def test_content_type_does_not_matter():
    body = json.dumps({"messages": MSG, "max_tokens": 1}).encode()
    for ct in ("text/plain", "application/x-www-form-urlencoded", "nonsense"):
        check.equal(c.post("/v1/chat/completions", body, **{"Content-Type": ct}).status, 200)


RANGES = [
    ("temperature", [-0.1, 2.1, 1e300, -1e300]), ("top_p", [-0.1, 1.1]), ("min_p", [-1, 2]), ("typical_p", [2]), ("top_k", [-2, 1e30]),
    ("presence_penalty", [-3, 3]), ("frequency_penalty", [-2.5, 2.5]), ("repetition_penalty", [0, -1, 11]), ("n", [0, -1, 17, 1e18]),
    ("best_of", [0, 17]), ("max_tokens", [-1, 1e18]), ("max_completion_tokens", [-1]), ("min_tokens", [-1]), ("dry_multiplier", [-1]),
    ("dry_base", [0.5]), ("dry_allowed_length", [-1]), ("dry_penalty_last_n", [-2]),
]


def test_ranges():
    for field, values in RANGES:
        for v in values:
            refused(c.chat(**{field: v}), 400, field, field)
    refused(c.chat(max_tokens=0), 400, "max_tokens", "max_tokens")
    refused(c.chat(max_completion_tokens=0), 400, "max_completion_tokens")
    check.equal(c.complete(max_tokens=0).status, 200, "0 is allowed on completions")
    refused(c.chat(logprobs=True, top_logprobs=21), 400, "top_logprobs", "20")
    refused(c.complete(logprobs=21), 400, "logprobs", "20")
    refused(c.complete(logprobs=-1), 400, "logprobs")


def test_types():
    for field in ("temperature", "top_p", "n", "max_tokens", "seed", "top_k"):
        for v in ("1", [], {}, True):
            refused(c.chat(**{field: v}), 400, field, field)
    refused(c.chat(n=1.5), 400, "n", "integer")
    for field in ("stream", "logprobs", "ignore_eos", "skip_special_tokens"):
        refused(c.chat(**{field: "yes"}), 400, field, "boolean")
    refused(c.chat(stream_options=[]), 400, "stream_options", "object")
    refused(c.chat(stream_options={"include_usage": 1}), 400, "stream_options.include_usage")
    refused(c.chat(logit_bias=[1]), 400, "logit_bias")
    refused(c.chat(chat_template_kwargs="x"), 400, "chat_template_kwargs")
    refused(c.chat(model=5), 400, "model", "string")
    check.equal(c.chat(n=1.0, max_tokens=1, temperature=None, stop=None, logit_bias=None, stream_options=None).status, 200)


def test_combinations():
    refused(c.chat(top_logprobs=2), 400, "top_logprobs", "logprobs")
    refused(c.chat(n=3, best_of=2), 400, "best_of", "'n'")
    refused(c.chat(best_of=2, stream=True), 400, "best_of", "stream")
    refused(c.chat(min_tokens=5, max_tokens=2), 400, "min_tokens", "max_tokens")


def test_stops():
    refused(c.chat(stop=""), 400, "stop", "empty")
    refused(c.chat(stop=["a", ""]), 400, "stop[1]", "empty")
    refused(c.chat(stop=["a", 1]), 400, "stop[1]", "string")
    refused(c.chat(stop=5), 400, "stop", "string")
    refused(c.chat(stop=["x"] * 17), 400, "stop", "16")
    refused(c.chat(stop=["x", "é" * 2049]), 400, "stop[1]", "4098", "4096")
    check.equal(c.chat(stop="x" * 4096, max_tokens=1).status, 200)
    check.equal(c.chat(stop=["x"] * 16, max_tokens=1).status, 200)
    refused(c.chat(stop_token_ids=["a"]), 400, "stop_token_ids[0]")
    refused(c.chat(stop_token_ids=[1, 10**9]), 400, "stop_token_ids[1]")


def test_bias():
    refused(c.chat(logit_bias={"a": 1}), 400, "logit_bias", "'a'")
    refused(c.chat(logit_bias={"-1": 1}), 400, "logit_bias")
    refused(c.chat(logit_bias={"5": 101}), 400, "logit_bias.5", "100")
    refused(c.chat(logit_bias={"5": "x"}), 400, "logit_bias.5")
    refused(c.chat(logit_bias={"999999": 1}), 400, "logit_bias", "999999")


def test_messages():
    post = lambda m: c.post("/v1/chat/completions", {"messages": m})  # noqa: E731
    refused(c.post("/v1/chat/completions", {}), 400, "messages", "missing")
    refused(post([]), 400, "messages", "empty")
    refused(post("hi"), 400, "messages", "array")
    refused(post(["hi"]), 400, "messages[0]", "object")
    refused(post([{"content": "x"}]), 400, "messages[0].role", "missing")
    refused(post([{"role": "robot", "content": "x"}]), 400, "messages[0].role", "robot", "assistant")
    refused(post([{"role": 1, "content": "x"}]), 400, "messages[0].role")
    refused(post(MSG + [{"role": "user"}]), 400, "messages[1].content", "missing")
    refused(post([{"role": "user", "content": 5}]), 400, "messages[0].content", "an integer")
    refused(post([{"role": "user", "content": []}]), 400, "messages[0].content", "empty")
    refused(post([{"role": "user", "content": ["x"]}]), 400, "messages[0].content[0]", "object")
    refused(post([{"role": "user", "content": [{"type": "text"}]}]), 400, "messages[0].content[0].text", "missing")
    refused(post([{"role": "user", "content": [{"text": "x"}]}]), 400, "messages[0].content[0].type", "missing")
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    refused(post(MSG + [{"role": "user", "content": [{"type": "text", "text": "a"}, image]}]), 400, "messages[1].content[1].type", "image_url")


def test_unsupported_fields_are_refused_by_name():
    for field, v in {
        "response_format": {"type": "json_object"}, "tool_choice": "required", "functions": [{"name": "f"}],
        "function_call": {"name": "f"}, "audio": {"voice": "x"}, "modalities": ["text", "audio"], "guided_json": {"type": "object"},
        "guided_regex": "a+", "structured_outputs": {"json": {}}, "logits_processors": ["x"], "use_beam_search": True, "prompt_logprobs": 1,
        "echo": True, "chat_template": "x", "continue_final_message": True, "bad_words": ["x"], "repeat_penalty": 1.1, "grammar": "root ::= x",
    }.items():
        a = c.chat(**{field: v})
        refused(a, 400, field, f"'{field}' is not supported", code="unsupported_value")
        check.equal(c.chat(max_tokens=1, **{field: None}).status, 200, f"{field}: null changes nothing")
    refused(c.complete(suffix="x"), 400, "suffix", "suffix")
    refused(c.complete(response_format={"type": "json_schema"}), 400, "response_format")


def test_prompts():
    post = lambda p: c.post("/v1/completions", {"prompt": p, "max_tokens": 1})  # noqa: E731
    refused(c.post("/v1/completions", {}), 400, "prompt", "missing")
    refused(post([]), 400, "prompt", "empty")
    refused(post(5), 400, "prompt", "an integer")
    refused(post(["a", 5]), 400, "prompt[1]", "an integer")
    refused(post([1, "a"]), 400, "prompt[1]", "token id")
    refused(post([1, -1]), 400, "prompt[1]", "-1")
    refused(post([1, 1.5]), 400, "prompt[1]")
    refused(post([[1], []]), 400, "prompt[1]", "empty")
    refused(post([[1], [2, 10**8]]), 400, "prompt[1][1]", "100000000")
    refused(post([1, 2**40]), 400, "prompt[1]")
    refused(post([["a"]]), 400, "prompt[0][0]")
    refused(post(["x"] * 2049), 400, "prompt", "2048")
    refused(post({"a": 1}), 400, "prompt", "an object")


def test_models_and_paths():
    refused(c.chat(model="gpt-4"), 404, "model", "gpt-4", "tiny-llama-q", code="model_not_found")
    refused(c.get("/v1/models/gpt-4"), 404, "model", "tiny-llama-q", code="model_not_found")
    refused(c.get("/v1/nothing"), 404, None, "/v1/nothing")
    refused(c.get("/nothing"), 404, None)
    a = c.get("/v1/chat/completions")
    refused(a, 405, None, "GET", "POST")
    check.equal(a.headers["allow"], "POST")
    refused(c.post("/health", {}), 405, None, "GET")
    check.equal(c.chat(model="tiny-llama-q", max_tokens=1).status, 200)
    check.equal(c.chat(model="", max_tokens=1).status, 200)


def test_tokenizer_endpoints():
    refused(c.post("/tokenize", {}), 400, "prompt", "missing")
    refused(c.post("/tokenize", {"prompt": 5}), 400, "prompt", "string")
    refused(c.post("/tokenize", b"x"), 400, None, "JSON")
    refused(c.post("/tokenize", {"messages": []}), 400, "messages")
    refused(c.post("/detokenize", {}), 400, "tokens", "missing")
    refused(c.post("/detokenize", {"tokens": "x"}), 400, "tokens", "array")
    refused(c.post("/detokenize", {"tokens": [1, 10**7]}), 400, "tokens[1]")
    refused(c.post("/detokenize", {"tokens": [1, "x"]}), 400, "tokens[1]")
    refused(c.post("/apply-template", {}), 400, "messages", "missing")
    refused(c.post("/tokenize", {"prompt": "x", "model": "other"}), 404, "model")
    check.equal(c.post("/detokenize", {"tokens": []}).json, {"prompt": ""})
    check.equal(c.post("/tokenize", {"prompt": ""}).status, 200)
    big = c.post("/tokenize", {"prompt": "word " * 1_000_000})
    check.equal(big.status, 200)
    check.equal(big.json["count"] > 1_000_000, True)


def test_request_ids():
    check.equal(c.get("/health", **{"X-Request-Id": "my-id_1.2:3"}).headers["x-request-id"], "my-id_1.2:3")
    for bad in ("a b", "x" * 200, "", "a\"b", "é".encode().decode("latin1")):
        seen = c.get("/health", **{"X-Request-Id": bad}).headers["x-request-id"]
        check.equal(seen != bad and len(seen) >= 16, True, f"{bad!r} is replaced")
    check.equal(c.chat(max_tokens=-1).headers.get("x-request-id") is not None, True, "errors carry one too")


def test_ignored_names_cannot_break_a_header():
    a = c.chat(max_tokens=1, **{"a\r\nx-evil: 1": 1, "é": 1, "x" * 100: 1, "good": 1})
    check.equal(a.status, 200)
    check.equal(a.headers["x-weir-ignored"], "good")
    check.equal("x-evil" in a.headers, False)
    a = c.chat(max_tokens=1, **{f"field_{i}": 1 for i in range(1000)})
    check.equal(a.status, 200)
    check.equal(len(a.headers["x-weir-ignored"]) < 1024, True)


def test_the_server_still_answers():
    check.equal(c.chat(max_tokens=2).status, 200)
    check.equal(server.p.poll(), None)
    codes = [line for line in c.get("/metrics").body.decode().splitlines() if line.startswith("weir_requests_total{")]
    check.equal([x for x in codes if 'code="5' in x], [], "no 5xx was given")


try:
    check.tests(globals())
finally:
    server.stop()
