"""llama-index: OpenAILike chat, stream, completion and a function call."""
import os

import check
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

URL, KEY = os.environ["WEIR_URL"] + "/v1", os.environ["WEIR_KEY"]
ASK = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="Name a river.")]


def llm(model="smol", url=URL, **kw):
    given = {"is_chat_model": True, "max_tokens": 16, "temperature": 0, "max_retries": 0, "context_window": 8192, **kw}
    return OpenAILike(model=model, api_base=url, api_key=KEY, **given)


def test_chat_and_stream():
    whole = llm().chat(ASK).message.content
    assert whole
    check.equal([r.message.content for r in llm().stream_chat(ASK)][-1], whole)


def test_complete():
    plain = llm(is_chat_model=False)
    whole = plain.complete("The river").text
    assert whole
    check.equal([r.text for r in plain.stream_complete("The river")][-1], whole)


def test_tools():
    url = os.environ.get("WEIR_TOOLS_URL")
    if not url:
        raise check.Skip(os.environ["WEIR_TOOLS_WHY"])

    def weather(city: str) -> str:
        """Tells the weather of a city right now."""
        return f"{city}: hail, 3 degrees"

    r = llm("qwen", url + "/v1", is_function_calling_model=True, max_tokens=128).predict_and_call(
        [FunctionTool.from_defaults(weather)], user_msg="Use the tool: what is the weather in Oslo?")
    check.equal(str(r), "Oslo: hail, 3 degrees")


check.tests(globals())
