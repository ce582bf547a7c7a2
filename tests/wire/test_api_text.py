#!/usr/bin/env python3
"""Chat and completions against a running server with a tiny model: shapes, streams, scoring, choices, seeds."""
import json
import math

from api_client import TINY, Client, check, refused

server = check.Server("serve", TINY, "--port", "0", "--threads", "1")
c = Client(server.url)


def joined(events, key="chat"):
    text = {}
    for e in events:
        if e == "[DONE]":
            continue
        for ch in e["choices"]:
            piece = ch["delta"].get("content", "") if key == "chat" else ch["text"]
            text[ch["index"]] = text.get(ch["index"], "") + piece
    return text


def test_chat_whole():
    a = c.chat(max_tokens=6, seed=11)
    check.equal(a.status, 200)
    d = a.json
    check.equal(sorted(d), ["choices", "created", "id", "model", "object", "system_fingerprint", "usage"])
    check.equal(d["object"], "chat.completion")
    check.equal(d["choices"][0]["message"]["role"], "assistant")
    check.equal(d["choices"][0]["finish_reason"] in ("stop", "length"), True)
    check.equal(d["usage"]["total_tokens"], d["usage"]["prompt_tokens"] + d["usage"]["completion_tokens"])
    check.equal(d["usage"]["prompt_tokens_details"]["cached_tokens"] >= 0, True)
    check.equal(a.headers["x-weir-seed"], "11")
    check.equal(a.headers["x-weir-model"], "tiny-llama-q")
    check.equal(d["id"], "chatcmpl-" + a.headers["x-request-id"])
    for part in ("queue;dur=", "prefill;dur=", "decode;dur=", "overhead;dur="):
        check.has(a.headers["server-timing"], part)


def test_chat_stream_equals_whole():
    fields = dict(max_tokens=12, seed=3, temperature=0.8)
    whole = c.chat(**fields).json
    s = c.chat(stream=True, stream_options={"include_usage": True}, **fields)
    check.has(s.headers["content-type"], "text/event-stream")
    ev = s.events
    check.equal(ev[-1], "[DONE]")
    check.equal(ev[0]["choices"][0]["delta"], {"role": "assistant", "content": ""}, "the role comes first")
    check.equal(joined(ev)[0], whole["choices"][0]["message"]["content"], "streamed text")
    check.equal(ev[-3]["choices"][0]["finish_reason"], whole["choices"][0]["finish_reason"])
    check.equal(ev[-2]["choices"], [])
    check.equal(ev[-2]["usage"]["completion_tokens"], whole["usage"]["completion_tokens"])
    check.equal(all(e["usage"] is None for e in ev[:-2]), True, "usage is null before the last chunk")
    check.equal("prefill;dur=" in s.headers["server-timing"], True)


def test_stream_without_usage_has_none():
    ev = c.chat(stream=True, max_tokens=3).events
    check.equal(any("usage" in e for e in ev[:-1]), False)


def test_continuous_usage():
    ev = c.chat(stream=True, max_tokens=5, ignore_eos=True, stream_options={"include_usage": True, "continuous_usage_stats": True}).events
    counts = [e["usage"]["completion_tokens"] for e in ev[:-1]]
    check.equal(counts, sorted(counts))
    check.equal(counts[-1], 5)


def test_same_seed_same_text_other_seed_other_text():
    one = [c.complete(max_tokens=16, seed=5, temperature=1.5, ignore_eos=True).json["choices"][0]["text"] for _ in range(2)]
    check.equal(one[0], one[1])
    other = c.complete(max_tokens=16, seed=6, temperature=1.5, ignore_eos=True).json["choices"][0]["text"]
    check.equal(other != one[0], True, "control: another seed must give another text")


def test_drawn_seed_replays():
    a = c.complete(max_tokens=16, temperature=1.5, ignore_eos=True)
    b = c.complete(max_tokens=16, temperature=1.5, ignore_eos=True, seed=int(a.headers["x-weir-seed"]))
    check.equal(b.json["choices"][0]["text"], a.json["choices"][0]["text"])


def test_n_choices():
    d = c.chat(n=3, max_tokens=8, seed=1, temperature=1.5, ignore_eos=True).json
    check.equal([x["index"] for x in d["choices"]], [0, 1, 2])
    check.equal(len({x["message"]["content"] for x in d["choices"]}), 3, "choices of one seed differ")
    check.equal(d["usage"]["completion_tokens"], 24)
    ev = c.chat(n=3, max_tokens=8, seed=1, temperature=1.5, ignore_eos=True, stream=True).events
    check.equal(joined(ev), {x["index"]: x["message"]["content"] for x in d["choices"]})


def test_best_of_keeps_the_likeliest():
    every = c.complete(n=4, max_tokens=8, seed=2, temperature=1.5, ignore_eos=True, logprobs=0).json["choices"]
    mean = {x["text"]: sum(x["logprobs"]["token_logprobs"]) / 8 for x in every}
    want = sorted(mean, key=mean.get, reverse=True)[:2]
    d = c.complete(n=2, best_of=4, max_tokens=8, seed=2, temperature=1.5, ignore_eos=True).json
    check.equal([x["text"] for x in d["choices"]], want)
    check.equal([x["index"] for x in d["choices"]], [0, 1])
    check.equal(d["usage"]["completion_tokens"], 32, "all that was generated is counted")


def test_prompt_forms_agree():
    ids = c.post("/tokenize", {"prompt": "Hello"}).json["tokens"]
    want = c.complete("Hello", max_tokens=6, temperature=0).json["choices"][0]["text"]
    check.equal(c.complete(ids, max_tokens=6, temperature=0).json["choices"][0]["text"], want)
    d = c.complete(["Hello", "World"], max_tokens=6, temperature=0).json
    check.equal([x["index"] for x in d["choices"]], [0, 1])
    check.equal(d["choices"][0]["text"], want)
    d = c.complete([ids, ids], max_tokens=6, temperature=0).json
    check.equal([x["text"] for x in d["choices"]], [want, want])


def test_many_prompts():
    """More prompts than the window of lanes: each is answered, in its place, as if alone."""
    prompts = [f"number {i}" for i in range(100)]
    d = c.complete(prompts, max_tokens=3, temperature=0, ignore_eos=True).json
    check.equal([x["index"] for x in d["choices"]], list(range(100)))
    for i in (0, 50, 99):
        check.equal(d["choices"][i]["text"], c.complete(prompts[i], max_tokens=3, temperature=0, ignore_eos=True).json["choices"][0]["text"])
    check.equal(d["usage"]["completion_tokens"], 300)


def test_scoring():
    """What lm-evaluation-harness sends: ids, echo, logprobs, one token or none."""
    ids = c.post("/tokenize", {"prompt": "some words to score"}).json["tokens"]
    one = c.complete([ids], echo=True, logprobs=1, max_tokens=1, temperature=0, seed=1234).json["choices"][0]["logprobs"]
    none = c.complete([ids], echo=True, logprobs=1, max_tokens=0, temperature=0, seed=1234).json["choices"][0]
    check.equal(len(one["tokens"]), len(ids) + 1)
    check.equal(len(none["logprobs"]["tokens"]), len(ids))
    check.equal(one["token_logprobs"][0], None, "nothing comes before the first token")
    check.equal(one["top_logprobs"][0], None)
    check.equal(one["token_logprobs"][:-1], none["logprobs"]["token_logprobs"], "scores do not depend on what follows")
    check.equal(none["text"], "some words to score")
    check.equal(none["finish_reason"], "length")
    for lp, top in zip(one["token_logprobs"][1:], one["top_logprobs"][1:]):
        check.equal(lp in top.values(), True, "the token itself is among the alternatives")
        check.equal(max(top.values()) >= lp and lp < 0, True)
    offsets = one["text_offset"]
    check.equal(offsets, [sum(map(len, one["tokens"][:i])) for i in range(len(offsets))])


def test_scoring_agrees_with_generation():
    a = c.complete("abc", max_tokens=6, temperature=0, logprobs=1, ignore_eos=True).json["choices"][0]
    ids = c.post("/tokenize", {"prompt": "abc"}).json["tokens"]
    text = a["text"]
    again = c.complete("abc" + text, echo=True, logprobs=0, max_tokens=0).json["choices"][0]["logprobs"]
    if again["tokens"][len(ids):] == a["logprobs"]["tokens"]:  # else the text tokenizes otherwise, which is no fault
        for x, y in zip(again["token_logprobs"][len(ids):], a["logprobs"]["token_logprobs"]):
            check.equal(math.isclose(x, y, abs_tol=0), True, "a token's log-probability is the same scored and generated")


def test_echo_stream():
    ev = c.complete("Hello", echo=True, max_tokens=4, temperature=0, stream=True).events
    whole = c.complete("Hello", echo=True, max_tokens=4, temperature=0).json["choices"][0]["text"]
    check.equal(joined(ev, "text")[0], whole)
    check.equal(whole.startswith("Hello"), True)


def test_chat_logprobs():
    d = c.chat(max_tokens=4, temperature=0, logprobs=True, top_logprobs=3, ignore_eos=True).json["choices"][0]
    content = d["logprobs"]["content"]
    check.equal(len(content), 4)
    for t in content:
        check.equal(sorted(t), ["bytes", "logprob", "token", "top_logprobs"])
        check.equal(len(t["top_logprobs"]), 3)
        check.equal(t["top_logprobs"][0]["logprob"], t["logprob"], "greedy takes the best")
    text = b"".join(bytes(t["bytes"]) for t in content).decode("utf-8", "replace")
    check.equal(text, d["message"]["content"])
    check.equal(c.chat(max_tokens=1, logprobs=True).json["choices"][0]["logprobs"]["content"][0]["top_logprobs"], [])


def test_stop_string_never_leaks():
    text = c.complete(max_tokens=40, temperature=0, ignore_eos=True, min_p=0).json["choices"][0]["text"]
    stop = text[5:8]
    cut = text[: text.index(stop)]
    for stream in (False, True):
        a = c.complete(max_tokens=40, temperature=0, ignore_eos=True, stop=[stop], stream=stream)
        seen = joined(a.events, "text").get(0, "") if stream else a.json["choices"][0]["text"]
        check.equal(seen, cut)
    kept = c.complete(max_tokens=40, temperature=0, ignore_eos=True, stop=stop, include_stop_str_in_output=True).json["choices"][0]
    check.equal(kept["text"], cut + stop)
    check.equal(kept["finish_reason"], "stop")


def test_stop_token_ids_and_bias():
    a = c.complete(max_tokens=3, temperature=0, logit_bias={"40": 100}, ignore_eos=True, logprobs=0).json["choices"][0]
    piece = c.post("/detokenize", {"tokens": [40]}).json["prompt"]
    check.equal(a["text"], piece * 3, "a bias of 100 decides")
    b = c.complete(max_tokens=3, temperature=0, logit_bias={"40": 100}, stop_token_ids=[40]).json["choices"][0]
    check.equal((b["text"], b["finish_reason"]), ("", "stop"))
    m = c.complete(max_tokens=5, temperature=0, logit_bias={"40": 100}, stop_token_ids=[40], min_tokens=3).json
    check.equal(m["choices"][0]["finish_reason"], "stop")
    check.equal(m["usage"]["completion_tokens"] >= 3, True)


def test_the_end_has_a_log_probability_and_no_text():
    """Whoever scores a prompt with max_tokens 1 takes the last entry off; it must be there when the model would end."""
    end = {"logit_bias": {"40": 100}, "stop_token_ids": [40], "temperature": 0}
    ids = c.post("/tokenize", {"prompt": "some words to score"}).json["tokens"]
    for stream in (False, True):
        a = c.complete([ids], echo=True, logprobs=1, max_tokens=1, stream=stream, **end)
        parts = [x["choices"][0] for x in a.events[:-1]] if stream else [a.json["choices"][0]]
        check.equal("".join(x["text"] for x in parts), "some words to score")
        check.equal(parts[-1]["finish_reason"], "stop")
        check.equal(sum(len(x["logprobs"]["token_logprobs"]) for x in parts if x["logprobs"]), len(ids) + 1)
    d = c.chat(max_tokens=5, logprobs=True, **end).json
    check.equal(len(d["choices"][0]["logprobs"]["content"]), d["usage"]["completion_tokens"])
    check.equal(d["choices"][0]["message"]["content"], "")


def test_no_max_tokens_means_to_the_contexts_end():
    d = c.complete("Hello", ignore_eos=True, temperature=0).json
    check.equal(d["usage"]["total_tokens"], 512)
    check.equal(d["choices"][0]["finish_reason"], "length")


def test_ignored_fields_are_named():
    a = c.chat(max_tokens=1, foo=1, bar={"x": 2}, user="me", metadata={"a": "b"}, seed=1)
    check.equal(a.status, 200)
    check.equal(sorted(a.headers["x-weir-ignored"].split(", ")), ["bar", "foo"])
    check.equal("x-weir-ignored" in c.chat(max_tokens=1).headers, False)


def test_harmless_values_of_refused_fields():
    a = c.chat(max_tokens=1, response_format={"type": "text"}, tools=[], tool_choice="auto", modalities=["text"], functions=None, echo=False)
    check.equal(a.status, 200)
    check.equal("x-weir-ignored" in a.headers, False)


def test_text_parts():
    one = c.chat([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], max_tokens=8, temperature=0).json
    two = c.chat("a\nb", max_tokens=8, temperature=0).json
    check.equal(one["choices"][0]["message"]["content"], two["choices"][0]["message"]["content"])
    check.equal(one["usage"]["prompt_tokens"], two["usage"]["prompt_tokens"])


def test_tokenize_and_back():
    a = c.post("/tokenize", {"prompt": "Hello you", "return_token_strs": True}).json
    check.equal(a["count"], len(a["tokens"]))
    check.equal(a["max_model_len"], 512)
    check.equal("".join(a["token_strs"]), "Hello you")
    check.equal(c.post("/v1/detokenize", {"tokens": a["tokens"]}).json, {"prompt": "Hello you"})
    check.equal(c.post("/v1/tokenize", {"prompt": "Hello you"}).json["token_strs"], None)


def test_chat_tokenizes_as_it_runs():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    count = c.post("/tokenize", {"messages": messages}).json["count"]
    used = c.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1}).json["usage"]["prompt_tokens"]
    check.equal(count, used)
    text = c.post("/apply-template", {"messages": messages}).json["prompt"]
    check.has(text, "Be brief.")
    check.equal(c.post("/tokenize", {"prompt": text, "parse_special": True, "add_special_tokens": False}).json["count"], count)


def test_control_tokens_in_a_message_are_text():
    """A user cannot write a control token: what looks like one is tokenized as ordinary text. In a prompt of one's own it is one."""
    ids = c.post("/tokenize", {"messages": [{"role": "user", "content": "A"}]}).json["tokens"]
    special = next(s for s in (c.post("/detokenize", {"tokens": [i]}).json["prompt"] for i in ids) if s.startswith("<") and len(s) > 3)
    alone = c.post("/tokenize", {"prompt": special, "parse_special": True, "add_special_tokens": False}).json["count"]
    as_text = c.post("/tokenize", {"prompt": special, "parse_special": False, "add_special_tokens": False}).json["count"]
    check.equal((alone, as_text > 1), (1, True))
    plain = c.post("/tokenize", {"messages": [{"role": "user", "content": "A" + special}]}).json["tokens"]
    check.equal(sum(i in plain for i in set(ids)), len(set(ids)))
    one = c.post("/tokenize", {"prompt": special, "parse_special": True, "add_special_tokens": False}).json["tokens"][0]
    check.equal(plain.count(one), ids.count(one), "the message's look-alike added no control token")


def test_unicode_survives():
    text = "żółć 漢字 👩‍👩‍👧 \u0000 \U0001F600"
    d = c.complete(text, echo=True, max_tokens=0).json
    check.equal(d["choices"][0]["text"], text)


def test_context_is_the_limit():
    ids = [65] * 512
    refused(c.complete(ids, max_tokens=1), 400, "prompt", "512", code="context_length_exceeded")
    check.equal(c.complete(ids, max_tokens=0).status, 200)
    check.equal(c.complete([65] * 511, max_tokens=50).json["usage"]["completion_tokens"], 1)
    refused(c.chat("word " * 600), 400, "messages", "512", code="context_length_exceeded")


def test_idle_answers_of_one_server_are_valid_json():
    for path in ("/health", "/ready", "/v1/models", "/v1/models/tiny-llama-q"):
        check.equal(c.get(path).status, 200)
        json.loads(c.get(path).body)


try:
    check.tests(globals())
finally:
    server.stop()
