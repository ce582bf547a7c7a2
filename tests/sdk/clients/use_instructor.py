"""instructor: a typed answer out of a Markdown block, and out of tool calls that the model chooses itself."""
import os

import check
import instructor
import openai
from pydantic import BaseModel

url = os.environ.get("WEIR_TOOLS_URL")
OSLO = {"city": "Oslo", "country": "Norway"}


class City(BaseModel):
    city: str
    country: str


def client(mode):
    if not url:
        raise check.Skip(os.environ["WEIR_TOOLS_WHY"])
    return instructor.from_openai(openai.OpenAI(base_url=url + "/v1", api_key=os.environ["WEIR_KEY"], max_retries=0), mode=mode)


def ask(mode, model):
    return client(mode).chat.completions.create(model="qwen", response_model=model, temperature=0, max_tokens=200, max_retries=1,
                                                messages=[{"role": "user", "content": "Oslo is the capital of Norway. Extract the city and its country."}])


def test_markdown_json():
    check.equal(ask(instructor.Mode.MD_JSON, City).model_dump(), OSLO)


def test_tools():
    from typing import Iterable

    check.equal([c.model_dump() for c in ask(instructor.Mode.PARALLEL_TOOLS, Iterable[City])], [OSLO])


def test_forced_tool_is_refused_by_name():
    """What is not enforced must not look as if it were."""
    try:
        ask(instructor.Mode.TOOLS, City)
    except Exception as e:
        check.has(str(e), "tool_choice")
    else:
        raise AssertionError("a forced tool was taken")


check.tests(globals())
