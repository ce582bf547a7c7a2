"""Anthropic's official Python client against the server at WEIR_URL. Started by `run`."""
import os
import sys

import anthropic

client = anthropic.Anthropic(base_url=os.environ["WEIR_URL"], api_key=os.environ["WEIR_KEY"], max_retries=0)
MODEL = "tiny-llama-q"
MESSAGES = [{"role": "user", "content": "Hello"}]
failed = 0


def ask(**kw):
    return client.messages.create(**dict({"model": MODEL, "messages": MESSAGES, "max_tokens": 8, "extra_body": {"seed": 7}}, **kw))


def text(m):
    return "".join(b.text for b in m.content if b.type == "text")


def whole():
    m = ask(system="Be brief.", extra_body={"seed": 7, "temperature": 0.5})
    assert m.id.startswith("msg_") and m.role == "assistant" and m.type == "message" and m.model == MODEL
    assert m.stop_reason in ("end_turn", "max_tokens") and m.usage.input_tokens > 0 and m.usage.output_tokens > 0
    assert m._request_id


def stream():
    want = ask()
    seen, kinds = "", []
    for ev in ask(stream=True):
        kinds.append(ev.type)
        if ev.type == "content_block_delta":
            seen += ev.delta.text
    assert seen == text(want), (seen, text(want))
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"


def stream_helper():
    want = ask()
    with client.messages.stream(model=MODEL, messages=MESSAGES, max_tokens=8, extra_body={"seed": 7}) as s:
        seen = "".join(s.text_stream)
        final = s.get_final_message()
    assert seen == text(want) == text(final) and final.stop_reason == want.stop_reason and final.usage.output_tokens == want.usage.output_tokens


def stop_sequence():
    every = text(ask(max_tokens=24))
    m = ask(max_tokens=24, stop_sequences=[every[4:6]])
    assert m.stop_reason == "stop_sequence" and m.stop_sequence == every[4:6]


def count():
    n = client.messages.count_tokens(model=MODEL, messages=MESSAGES, system="Be brief.").input_tokens
    u = ask(system="Be brief.").usage
    assert n == u.input_tokens + u.cache_read_input_tokens


def conversation():
    m = ask()
    more = ask(messages=MESSAGES + [m.to_param() if hasattr(m, "to_param") else {"role": "assistant", "content": m.content}, {"role": "user", "content": "More"}])
    assert more.usage.input_tokens + more.usage.cache_read_input_tokens > m.usage.input_tokens


def errors():
    for kw, kind, word in (({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}]}, anthropic.BadRequestError, "image"),
                           ({"model": "claude"}, anthropic.NotFoundError, "claude"), ({"tool_choice": {"type": "any"}}, anthropic.BadRequestError, "any")):
        try:
            ask(**kw)
            raise AssertionError(f"accepted: {kw}")
        except kind as e:
            assert word in e.body["error"]["message"] and e.body["type"] == "error", e.body
    try:
        anthropic.Anthropic(base_url=client.base_url, api_key="wrong-key-here", max_retries=0).messages.create(model=MODEL, messages=MESSAGES, max_tokens=1)
        raise AssertionError("a wrong key was accepted")
    except anthropic.AuthenticationError as e:
        assert e.body["error"]["type"] == "authentication_error"


for test in (whole, stream, stream_helper, stop_sequence, count, conversation, errors):
    try:
        test()
        print(f"ok {test.__name__}", flush=True)
    except Exception as e:  # noqa: BLE001
        failed += 1
        print(f"not ok {test.__name__}: {type(e).__name__} {' '.join(str(e).split())[:500]}", flush=True)
sys.exit(1 if failed else 0)
