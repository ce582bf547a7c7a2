"""langchain-openai: ChatOpenAI whole, streamed, batched, and with tools."""
import os

import check
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

URL, KEY = os.environ["WEIR_URL"] + "/v1", os.environ["WEIR_KEY"]
ASK = [SystemMessage("Be brief."), HumanMessage("Name a river.")]


def llm(model="smol", url=URL, **kw):
    return ChatOpenAI(model=model, base_url=url, api_key=KEY, max_retries=0, seed=7, **{"max_tokens": 16, "temperature": 0.5, **kw})


def test_whole_and_stream():
    whole = llm().invoke(ASK)
    assert whole.content and whole.usage_metadata["output_tokens"] > 0 and whole.response_metadata["finish_reason"] in ("stop", "length")
    pieces = list(llm(stream_usage=True).stream(ASK))
    check.equal("".join(p.content for p in pieces), whole.content)
    check.equal(sum(p.usage_metadata["output_tokens"] for p in pieces if p.usage_metadata), whole.usage_metadata["output_tokens"])


def test_batch():
    answers = llm().batch([ASK] * 4)
    check.equal(len({a.content for a in answers}), 1)


def test_logprobs():
    lp = llm().bind(logprobs=True, top_logprobs=2).invoke(ASK).response_metadata["logprobs"]["content"]
    assert lp and all(len(t["top_logprobs"]) == 2 for t in lp)


@tool
def weather(city: str) -> str:
    """Tells the weather of a city right now."""
    return f"{city}: hail, 3 degrees"


def test_tools():
    url = os.environ.get("WEIR_TOOLS_URL")
    if not url:
        raise check.Skip(os.environ["WEIR_TOOLS_WHY"])
    model = llm("qwen", url + "/v1", temperature=0, max_tokens=128).bind_tools([weather])
    talk = [HumanMessage("Use the tool: what is the weather in Oslo?")]
    call = model.invoke(talk)
    check.equal([(c["name"], c["args"]) for c in call.tool_calls], [("weather", {"city": "Oslo"})])
    streamed = None
    for piece in model.stream(talk):
        streamed = piece if streamed is None else streamed + piece
    check.equal([(c["name"], c["args"]) for c in streamed.tool_calls], [("weather", {"city": "Oslo"})])
    talk += [call, ToolMessage(weather.invoke(call.tool_calls[0]["args"]), tool_call_id=call.tool_calls[0]["id"])]
    last = llm("qwen", url + "/v1", temperature=0, max_tokens=128).invoke(talk)  # without tools: a small model would call again, and what it says is its own
    assert last.content and not last.tool_calls


check.tests(globals())
