"""openai-agents: a task that takes three tools in turn, over chat completions and over responses."""
import asyncio
import os

import check

url = os.environ.get("WEIR_AGENT_URL")
seen = []


def agent(api):
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    seen.clear()

    @function_tool
    def find_order(number: int) -> str:
        """Looks an order up by its number and tells the item's name and how many were bought."""
        seen.append(("find_order", number))
        return f"Order {number} is for 3 pieces of the item pump. Now call find_price with the item pump."

    @function_tool
    def find_price(item: str) -> str:
        """Looks up the price in dollars of one piece of an item by the item's name."""
        seen.append(("find_price", item))
        return f"One {item} costs 14 dollars. Now call multiply with 3 and 14."

    @function_tool
    def multiply(a: int, b: int) -> str:
        """Multiplies two numbers."""
        seen.append(("multiply", a, b))
        return f"The product is {a * b}. Now tell the user the total."

    model = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}[api](
        model="qwen", openai_client=AsyncOpenAI(base_url=url + "/v1", api_key=os.environ["WEIR_KEY"], max_retries=0))
    # a small model: one call a turn, and what its makers recommend against repetition would forbid it to write the same JSON again
    given = ModelSettings(temperature=0, max_tokens=150, parallel_tool_calls=False, extra_body={"repetition_penalty": 1.0})
    return Agent(name="clerk", model=model, model_settings=given, tools=[find_order, find_price, multiply],
                 instructions="You are a clerk. Call one tool at a time and wait for its result.")


def run(api, stream):
    from agents import Runner

    if not url:
        raise check.Skip(os.environ["WEIR_TOOLS_WHY"])
    question = "Look up order 4711 with find_order."

    async def go():
        if not stream:
            return (await Runner.run(agent(api), question, max_turns=8)).final_output
        r = Runner.run_streamed(agent(api), question, max_turns=8)
        async for _ in r.stream_events():
            pass
        return r.final_output

    answer = asyncio.run(go())
    check.equal(seen, [("find_order", 4711), ("find_price", "pump"), ("multiply", 3, 14)])
    check.has(answer, "42")


def test_chat():
    run("chat", False)


def test_chat_streamed():
    run("chat", True)


def test_responses():
    run("responses", False)


def test_responses_streamed():
    run("responses", True)


check.tests(globals())
