#!/usr/bin/env python3
"""/v1/messages against a running server with a tiny model: shapes, streams, stop sequences, counting, errors in Anthropic's form everywhere."""
import json
import tempfile

from api_client import TINY, Client, check
import rawhttp

keys = tempfile.NamedTemporaryFile("w", suffix=".keys")
keys.write("key-number-one\n")
keys.flush()
server = check.Server("serve", TINY, "--port", "0", "--threads", "1", "--api-key-file", keys.name, "--max-body", "1M")
c = Client(server.url)
KEY = {"x-api-key": "key-number-one", "anthropic-version": "2023-06-01"}
PATH = "/v1/messages"


def ask(content="Hello", path=PATH, **fields):
    return c.post(path, dict({"max_tokens": 8, "seed": 5, "temperature": 0.7, "messages": [{"role": "user", "content": content}]}, **fields), **KEY)


def good(a):
    check.equal(a.status, 200, a.body[:300])
    return a.json


def refused(a, status, kind, *words):
    check.equal(a.status, status, a.body[:300])
    d = a.json
    check.equal((sorted(d), d["type"], sorted(d["error"])), (["error", "type"], "error", ["message", "type"]))
    check.equal(d["error"]["type"], kind)
    for w in words:
        check.has(d["error"]["message"], w)


def text(doc):
    return "".join(b["text"] for b in doc["content"] if b["type"] == "text")


def events(a):
    out = []
    for block in a.body.decode().split("\n\n"):
        if block:
            name, data = block.split("\n")
            out.append(json.loads(data[len("data: "):]))
            check.equal(name, "event: " + out[-1]["type"])
    return out


def chat(**fields):
    return c.post("/v1/chat/completions", dict({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "seed": 5, "temperature": 0.7}, **fields), **KEY).json


def test_whole():
    a = ask(system="Be brief.")
    d = good(a)
    check.equal(sorted(d), ["content", "id", "model", "role", "stop_reason", "stop_sequence", "type", "usage"])
    check.equal((d["type"], d["role"], d["model"]), ("message", "assistant", "tiny-llama-q"))
    check.equal(d["stop_reason"] in ("end_turn", "max_tokens"), True)
    check.equal(a.headers["request-id"], a.headers["x-request-id"])
    plain = chat(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}])
    check.equal(text(d), plain["choices"][0]["message"]["content"], "the same request as a chat gives the same text")
    u = d["usage"]
    check.equal(u["input_tokens"] + u["cache_read_input_tokens"], plain["usage"]["prompt_tokens"])
    check.equal(u["output_tokens"], plain["usage"]["completion_tokens"])


def test_cached_tokens_are_counted_once():
    long = "word " * 100
    first, second = good(ask(long))["usage"], good(ask(long))["usage"]
    check.equal(second["cache_read_input_tokens"] > 0, True)
    check.equal(first["input_tokens"] + first["cache_read_input_tokens"], second["input_tokens"] + second["cache_read_input_tokens"])


def test_stream_adds_up():
    whole = good(ask())
    ev = events(ask(stream=True))
    check.equal([e["type"] for e in ev[:2]], ["message_start", "content_block_start"])
    check.equal([e["type"] for e in ev[-3:]], ["content_block_stop", "message_delta", "message_stop"])
    check.equal("".join(e["delta"]["text"] for e in ev if e["type"] == "content_block_delta"), text(whole))
    check.equal(ev[-2]["delta"], {"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]})
    check.equal(ev[-2]["usage"]["output_tokens"], whole["usage"]["output_tokens"])
    check.equal(ev[0]["message"]["content"], [])


def test_stop_sequence_is_told():
    whole = text(good(ask(max_tokens=24)))
    stop = whole[6:8]
    d = good(ask(max_tokens=24, stop_sequences=["never there", stop]))
    check.equal((d["stop_reason"], d["stop_sequence"]), ("stop_sequence", stop))
    check.equal(text(d), whole[:whole.index(stop)])
    last = events(ask(max_tokens=24, stop_sequences=["never there", stop], stream=True))[-2]
    check.equal(last["delta"], {"stop_reason": "stop_sequence", "stop_sequence": stop})
    other = good(ask(max_tokens=24, stop_sequences=["never there"]))
    check.equal(other["stop_sequence"], None, "control: one that does not come is not told")


def test_count_is_what_a_run_uses():
    for fields in ({}, {"system": "Be brief."}, {"system": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]},
                   {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                                 {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}]}):
        n = good(ask(path=PATH + "/count_tokens", **fields))
        u = good(ask(**fields))["usage"]
        check.equal(n, {"input_tokens": u["input_tokens"] + u["cache_read_input_tokens"]})
    body = {"messages": [{"role": "user", "content": "Hello"}]}
    check.equal(good(c.post(PATH + "/count_tokens", body, **KEY))["input_tokens"] > 0, True, "max_tokens is not needed to count")


def test_errors_in_its_own_form():
    refused(c.post(PATH, {"messages": [{"role": "user", "content": "x"}]}, **KEY), 400, "invalid_request_error", "max_tokens")
    refused(ask([{"type": "image", "source": {}}]), 400, "invalid_request_error", "messages[0].content[0].type", "image")
    refused(ask([{"type": "document", "source": {}}], path=PATH + "/count_tokens"), 400, "invalid_request_error", "document")
    refused(ask(tools=[{"type": "bash_20250124", "name": "bash"}]), 400, "invalid_request_error", "tools[0].type", "bash_20250124")
    refused(ask(tool_choice={"type": "any"}), 400, "invalid_request_error", "any")
    refused(ask(model="claude"), 404, "not_found_error", "claude", "tiny-llama-q")
    refused(c.post(PATH, b"{", **KEY), 400, "invalid_request_error")
    refused(c.post(PATH, {}), 401, "authentication_error", "x-api-key")
    refused(c.post(PATH, {}, **{"x-api-key": "wrong-key"}), 401, "authentication_error")
    refused(c.get(PATH, **KEY), 405, "invalid_request_error", "POST")
    refused(c.get(PATH + "/batches", **KEY), 404, "not_found_error")
    refused(ask("word " * 20_000), 400, "invalid_request_error", "context")


def test_body_too_large_is_told_in_its_form():
    for path, form in ((PATH, lambda d: d["error"]["type"] == "request_too_large" and d["type"] == "error"),
                       ("/v1/chat/completions", lambda d: d["error"]["code"] == "too_large")):
        a = rawhttp.exchange(server.url, f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n".encode())
        check.equal(a.status, 413)
        check.equal(form(a.json()), True, str(a.body))


check.tests(globals())
