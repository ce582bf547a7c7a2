#!/usr/bin/env python3
"""Tools through /v1/responses and /v1/messages with a real model: called, answered, replayed, streamed, the same as through a chat."""
import json

from api_client import Client, check

SYSTEM = "You are a helpful assistant. To call a function, write <tool_call>, the JSON object, and </tool_call>. Never use ``` fences."
TOOLS = [("get_weather", "Current weather of a city", {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"type": "string"}}, "required": ["city"]}),
         ("add", "Adds two numbers", {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]})]
FOR_CHAT = [{"type": "function", "function": {"name": n, "description": d, "parameters": s}} for n, d, s in TOOLS]
FOR_RESPONSES = [{"type": "function", "name": n, "description": d, "parameters": s} for n, d, s in TOOLS]
FOR_MESSAGES = [{"name": n, "description": d, "input_schema": s} for n, d, s in TOOLS]
ASK = "What is the weather in Paris right now?"
RESULT = '{"temperature": 18, "sky": "clear"}'
_up = []


def client():
    if not _up:
        _up.append(check.Server("serve", check.model("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"), "--port", "0", "--ctx", "4096", wait=120))
    return Client(_up[0].url)


def good(a):
    check.equal(a.status, 200, a.body[:300])
    return a


def data(a):
    return [json.loads(b.split("\n")[1][len("data: "):]) for b in a.body.decode().split("\n\n") if b]


def chat(c, *turns):
    """The conversation as a chat: its message, in (text, [(name, arguments)]), and its usage."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ASK}, *turns]
    d = good(c.post("/v1/chat/completions", {"messages": messages, "tools": FOR_CHAT, "temperature": 0, "max_tokens": 60})).json
    m = d["choices"][0]["message"]
    return m, said(m["content"], [(k["function"]["name"], k["function"]["arguments"]) for k in m.get("tool_calls") or []]), d["usage"]


def said(text, calls):
    return text or "", [(name, json.loads(args) if isinstance(args, str) else args) for name, args in calls]


def of_response(d):
    return said("".join(p["text"] for i in d["output"] if i["type"] == "message" for p in i["content"]),
                [(i["name"], i["arguments"]) for i in d["output"] if i["type"] == "function_call"])


def of_message(d):
    return said("".join(b["text"] for b in d["content"] if b["type"] == "text"), [(b["name"], b["input"]) for b in d["content"] if b["type"] == "tool_use"])


def result_turn(call_id):
    return {"role": "tool", "tool_call_id": call_id, "content": RESULT}


def test_responses():
    c = client()
    fields = {"instructions": SYSTEM, "tools": FOR_RESPONSES, "temperature": 0, "max_output_tokens": 60}
    first = good(c.post("/v1/responses", dict(fields, input=ASK))).json
    calls = [i for i in first["output"] if i["type"] == "function_call"]
    check.equal([(i["name"], json.loads(i["arguments"])["city"]) for i in calls], [("get_weather", "Paris")])
    check.equal((first["status"], first["tools"]), ("completed", FOR_RESPONSES))
    result = {"type": "function_call_output", "call_id": calls[0]["call_id"], "output": RESULT}
    second = good(c.post("/v1/responses", dict(fields, input=[result], previous_response_id=first["id"]))).json
    m, first_said, _ = chat(c)
    _, second_said, used = chat(c, m, result_turn(m["tool_calls"][0]["id"]))
    check.equal((of_response(first), of_response(second)), (first_said, second_said), "what is said is what a chat says")
    check.equal(second["usage"]["input_tokens"], used["prompt_tokens"])
    spelled = good(c.post("/v1/responses", dict(fields, input=[{"role": "user", "content": ASK}, *first["output"], result]))).json
    check.equal(spelled["usage"]["input_tokens"], second["usage"]["input_tokens"], "kept or sent again, it is the same conversation")
    ev = data(good(c.post("/v1/responses", dict(fields, input=ASK, stream=True))))
    deltas = "".join(e["delta"] for e in ev if e["type"] == "response.function_call_arguments.delta")
    check.equal(deltas, calls[0]["arguments"])
    check.equal([e["arguments"] for e in ev if e["type"] == "response.function_call_arguments.done"], [deltas])
    check.equal(ev[-1]["type"], "response.completed")


def test_messages():
    c = client()
    fields = {"system": SYSTEM, "tools": FOR_MESSAGES, "temperature": 0, "max_tokens": 60}
    user = {"role": "user", "content": ASK}
    first = good(c.post("/v1/messages", dict(fields, messages=[user]))).json
    use = [b for b in first["content"] if b["type"] == "tool_use"]
    check.equal(([(b["name"], b["input"]["city"]) for b in use], first["stop_reason"]), ([("get_weather", "Paris")], "tool_use"))
    answer = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use[0]["id"], "content": [{"type": "text", "text": RESULT}]}]}
    turns = [user, {"role": "assistant", "content": first["content"]}, answer]
    second = good(c.post("/v1/messages", dict(fields, messages=turns))).json
    check.equal(of_message(first), chat(c)[1], "what is said is what a chat says")
    call = {"id": use[0]["id"], "type": "function", "function": {"name": use[0]["name"], "arguments": json.dumps(use[0]["input"], separators=(",", ":"))}}
    _, want, used = chat(c, {"role": "assistant", "content": None, "tool_calls": [call]}, result_turn(use[0]["id"]))
    check.equal(of_message(second), want)
    check.equal(second["usage"]["input_tokens"] + second["usage"]["cache_read_input_tokens"], used["prompt_tokens"])
    n = good(c.post("/v1/messages/count_tokens", {k: v for k, v in dict(fields, messages=turns).items() if k != "max_tokens"})).json["input_tokens"]
    check.equal(n, second["usage"]["input_tokens"] + second["usage"]["cache_read_input_tokens"])
    ev = data(good(c.post("/v1/messages", dict(fields, messages=[user], stream=True))))
    pieces = [e["delta"]["partial_json"] for e in ev if e["type"] == "content_block_delta" and e["delta"]["type"] == "input_json_delta"]
    check.equal(json.loads("".join(pieces)), use[0]["input"])
    check.equal(len(pieces) > 3, True, "arguments are streamed as they are written")
    check.equal(ev[-2]["delta"]["stop_reason"], "tool_use")


def test_the_same_tokens_as_a_chat():
    c = client()
    _, want, usage = chat(c)
    r = good(c.post("/v1/responses", {"instructions": SYSTEM, "input": ASK, "tools": FOR_RESPONSES, "temperature": 0, "max_output_tokens": 60})).json
    m = good(c.post("/v1/messages", {"system": SYSTEM, "messages": [{"role": "user", "content": ASK}], "tools": FOR_MESSAGES, "temperature": 0,
                                     "max_tokens": 60})).json
    check.equal((of_response(r), of_message(m)), (want, want))
    used = usage["prompt_tokens"], usage["completion_tokens"]
    check.equal((r["usage"]["input_tokens"], r["usage"]["output_tokens"]), used)
    check.equal((m["usage"]["input_tokens"] + m["usage"]["cache_read_input_tokens"], m["usage"]["output_tokens"]), used)


try:
    check.tests(globals())
finally:
    for s in _up:
        s.stop()
