"""The official Python client against the server at WEIR_URL. Started by `run`."""
import asyncio
import os
import sys

import openai

client = openai.OpenAI(base_url=os.environ["WEIR_URL"] + "/v1", api_key=os.environ["WEIR_KEY"], max_retries=0)
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
MODEL = "tiny-llama-q"
failed = 0


def chat(**kw):
    return client.chat.completions.create(model=MODEL, messages=MESSAGES, **kw)


def models():
    assert [m.id for m in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def chat_whole():
    r = chat(max_tokens=8, seed=1)
    assert r.choices[0].message.role == "assistant" and isinstance(r.choices[0].message.content, str)
    assert r.choices[0].finish_reason in ("stop", "length")
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens
    assert r.usage.prompt_tokens_details.cached_tokens >= 0
    assert r.system_fingerprint.startswith("fp_") and r.id.startswith("chatcmpl-")


def chat_stream():
    whole = chat(max_tokens=12, seed=2).choices[0].message.content
    text, usage, reason = "", None, None
    for chunk in chat(max_tokens=12, seed=2, stream=True, stream_options={"include_usage": True}):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
            reason = chunk.choices[0].finish_reason or reason
        usage = chunk.usage or usage
    assert text == whole, (text, whole)
    assert usage.completion_tokens > 0 and reason in ("stop", "length")


def chat_stream_helper():
    # the helper takes an answer cut at its length for an error, so this one is made to stop
    more = {"stop_token_ids": [40], "min_tokens": 3}
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, max_tokens=8, logit_bias={"40": 100}, extra_body=more) as s:
        for _ in s:
            pass
        assert s.get_final_completion().choices[0].message.content is not None


def chat_logprobs():
    r = chat(max_tokens=3, temperature=0, logprobs=True, top_logprobs=2, extra_body={"ignore_eos": True})
    content = r.choices[0].logprobs.content
    assert len(content) == 3 and all(len(t.top_logprobs) == 2 and t.logprob <= 0 and t.bytes for t in content)


def chat_choices():
    r = chat(max_tokens=8, n=3, seed=3, temperature=1.5)
    assert [c.index for c in r.choices] == [0, 1, 2]


def completions():
    r = client.completions.create(model=MODEL, prompt=["Hello", "World"], max_tokens=4, logprobs=2, echo=True)
    assert [c.index for c in r.choices] == [0, 1] and r.choices[0].text.startswith("Hello")
    assert r.choices[0].logprobs.token_logprobs[0] is None and r.choices[0].logprobs.text_offset[0] == 0


def completions_stream():
    whole = client.completions.create(model=MODEL, prompt="Hello", max_tokens=9, seed=4).choices[0].text
    parts = [c.choices[0].text for c in client.completions.create(model=MODEL, prompt="Hello", max_tokens=9, seed=4, stream=True)]
    assert "".join(parts) == whole


def respond(**kw):
    return client.responses.create(**dict({"model": MODEL, "input": "Hello", "max_output_tokens": 8, "extra_body": {"seed": 7}}, **kw))


def responses_whole():
    r = respond(instructions="Be brief.", metadata={"k": "v"})
    assert r.id.startswith("resp_") and r.status in ("completed", "incomplete") and isinstance(r.output_text, str)
    assert r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens and r.metadata == {"k": "v"}
    assert client.responses.retrieve(r.id).output_text == r.output_text
    assert [i.type for i in client.responses.input_items.list(r.id)] == ["message"]
    client.responses.delete(r.id)
    try:
        client.responses.retrieve(r.id)
        raise AssertionError("a deleted response is there")
    except openai.NotFoundError:
        pass


def responses_stream():
    whole = respond()
    text, types = "", []
    for ev in respond(stream=True):
        assert type(ev).__name__ != "BaseModel" and ev.sequence_number == len(types)
        types.append(ev.type)
        if ev.type == "response.output_text.delta":
            text += ev.delta
    assert text == whole.output_text, (text, whole.output_text)
    assert types[0] == "response.created" and types[-1] == "response." + whole.status


def responses_stream_helper():
    # made to stop: the helper has a final response only where it was completed
    more = {"stop_token_ids": [40], "min_tokens": 3, "logit_bias": {"40": 100}}
    with client.responses.stream(model=MODEL, input="Hello", max_output_tokens=8, extra_body=more) as s:
        events = [e.type for e in s]
        final = s.get_final_response()
    assert events[-1] == "response.completed" and final.status == "completed" and isinstance(final.output_text, str)


def responses_go_on():
    first = respond(input="My name is Ada.")
    second = respond(input="Who am I?", previous_response_id=first.id)
    spelled = [{"role": "user", "content": "My name is Ada."}] + [o.model_dump(exclude_none=True) for o in first.output] + [{"role": "user", "content": "Who am I?"}]
    same = respond(input=spelled)
    assert second.output_text == same.output_text and second.usage.input_tokens == same.usage.input_tokens


def raw_headers():
    r = client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES, max_tokens=1, extra_headers={"X-Request-Id": "sdk-1"}, extra_body={"odd": 1})
    assert r.headers["x-request-id"] == "sdk-1" and r.headers["x-weir-ignored"] == "odd" and int(r.headers["x-weir-seed"]) >= 0
    assert r.parse()._request_id == "sdk-1"


def expect(error, call, param=None, code=None):
    try:
        call()
    except error as e:
        assert e.param == param and e.code == code, (e.param, e.code)
        return e
    raise AssertionError(f"no {error.__name__}")


def errors():
    expect(openai.BadRequestError, lambda: chat(temperature=5), "temperature")
    expect(openai.BadRequestError, lambda: chat(tools=[{"type": "function", "function": {"name": "f"}}]), "tools", "unsupported_value")
    expect(openai.NotFoundError, lambda: client.chat.completions.create(model="other", messages=MESSAGES), "model", "model_not_found")
    expect(openai.BadRequestError, lambda: client.completions.create(model=MODEL, prompt=[65] * 600), "prompt", "context_length_exceeded")
    stranger = openai.OpenAI(base_url=client.base_url, api_key="wrong-key-here", max_retries=0)
    expect(openai.AuthenticationError, lambda: stranger.models.list(), None, "invalid_api_key")
    expect(openai.BadRequestError, lambda: list(chat(max_tokens=0, stream=True)), "max_tokens")


def closing_a_stream():
    s = chat(max_tokens=200, stream=True)
    next(iter(s))
    s.close()
    assert chat(max_tokens=1).choices


def several_at_once():
    async def main():
        a = openai.AsyncOpenAI(base_url=client.base_url, api_key=client.api_key, max_retries=0)
        async with a:
            return await asyncio.gather(*[a.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=8, seed=9) for _ in range(8)])
    assert len({r.choices[0].message.content for r in asyncio.run(main())}) == 1


for test in (models, chat_whole, chat_stream, chat_stream_helper, chat_logprobs, chat_choices, completions, completions_stream, responses_whole, responses_stream,
             responses_stream_helper, responses_go_on, raw_headers, errors,
             closing_a_stream, several_at_once):
    try:
        test()
        print(f"ok {test.__name__}", flush=True)
    except Exception as e:  # noqa: BLE001
        failed += 1
        print(f"not ok {test.__name__}: {type(e).__name__} {' '.join(str(e).split())[:500]}", flush=True)
sys.exit(1 if failed else 0)
