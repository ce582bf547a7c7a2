"""litellm as a client: chat, stream, text completion and the Anthropic face."""
import asyncio
import json
import os

import check
import litellm

URL, KEY = os.environ["WEIR_URL"], os.environ["WEIR_KEY"]
ASK = [{"role": "user", "content": "Name a river."}]
SET = {"max_tokens": 16, "temperature": 0.5, "seed": 7}


def chat(**kw):
    return litellm.completion(model="openai/smol", api_base=URL + "/v1", api_key=KEY, messages=ASK, **{**SET, **kw})


def test_whole_and_stream():
    whole = chat()
    assert whole.choices[0].message.content and whole.usage.completion_tokens > 0
    text = "".join(c.choices[0].delta.content or "" for c in chat(stream=True) if c.choices)
    check.equal(text, whole.choices[0].message.content)


def test_async():
    async def go():
        return await asyncio.gather(*(litellm.acompletion(model="openai/smol", api_base=URL + "/v1", api_key=KEY, messages=ASK, **SET) for _ in range(3)))
    check.equal(len({r.choices[0].message.content for r in asyncio.run(go())}), 1)


def test_text_completion():
    r = litellm.text_completion(model="text-completion-openai/smol", api_base=URL + "/v1", api_key=KEY, prompt="The river", max_tokens=8, temperature=0)
    assert r.choices[0].text


def test_error_is_typed():
    try:
        chat(temperature=9)
    except litellm.BadRequestError as e:
        check.has(str(e), "temperature")
    else:
        raise AssertionError("temperature 9 was taken")


def test_anthropic_face():
    r = litellm.completion(model="anthropic/smol", api_base=URL, api_key=KEY, messages=ASK, max_tokens=16, temperature=0)
    assert r.choices[0].message.content and r.usage.completion_tokens > 0
    pieces = litellm.completion(model="anthropic/smol", api_base=URL, api_key=KEY, messages=ASK, max_tokens=16, temperature=0, stream=True)
    check.equal("".join(c.choices[0].delta.content or "" for c in pieces), r.choices[0].message.content)


def test_tools():
    url = os.environ.get("WEIR_TOOLS_URL")
    if not url:
        raise check.Skip(os.environ["WEIR_TOOLS_WHY"])
    tool = {"type": "function", "function": {"name": "weather", "description": "Tells the weather of a city right now.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
    for stream in (False, True):
        r = litellm.completion(model="openai/qwen", api_base=url + "/v1", api_key=KEY, tools=[tool], temperature=0, max_tokens=128, stream=stream,
                               messages=[{"role": "user", "content": "Use the tool: what is the weather in Oslo?"}])
        m = (litellm.stream_chunk_builder(list(r)) if stream else r).choices[0]
        check.equal(m.finish_reason, "tool_calls")
        check.equal([(c.function.name, json.loads(c.function.arguments)) for c in m.message.tool_calls], [("weather", {"city": "Oslo"})])


check.tests(globals())
