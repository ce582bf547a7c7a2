#!/usr/bin/env python3
"""The golden bill: usage examples and what they cost, to the nano-dollar, by decimal arithmetic on prices as the providers' pages print them.

    tools/make_bill_golden.py tests/golden/bill

writes prices.yaml (the same prices under LiteLLM's field names, dollars a token) and bill.tsv (one example a line with the cost of each part). Nothing of weir
is used: a unit price is text, "2.50" dollars per million tokens, and every part is rounded once, half to even, with Python's decimal module."""
import sys
from decimal import ROUND_HALF_EVEN, Decimal as D

M = D(1_000_000)
NANO = D("0.000000001")
# model: provider, (input, cached, cache write 5 m, cache write 1 h, output) in dollars per million tokens as printed; "-": the page names none.
PAGES = {
    "gpt-4o": ("openai", "2.50", "1.25", "-", "-", "10.00"),
    "gpt-4o-mini": ("openai", "0.15", "0.075", "-", "-", "0.60"),
    "gpt-4.1": ("openai", "2.00", "0.50", "-", "-", "8.00"),
    "gpt-4.1-nano": ("openai", "0.10", "0.025", "-", "-", "0.40"),
    "gpt-5": ("openai", "1.25", "0.125", "-", "-", "10.00"),
    "gpt-5-mini": ("openai", "0.25", "0.025", "-", "-", "2.00"),
    "o3": ("openai", "2.00", "0.50", "-", "-", "8.00"),
    "o4-mini": ("openai", "1.10", "0.275", "-", "-", "4.40"),
    "claude-sonnet-4": ("anthropic", "3.00", "0.30", "3.75", "6.00", "15.00"),
    "claude-opus-4": ("anthropic", "15.00", "1.50", "18.75", "30.00", "75.00"),
    "claude-haiku-3.5": ("anthropic", "0.80", "0.08", "1.00", "1.60", "4.00"),
    "gemini-2.5-pro": ("google", "1.25", "0.31", "-", "-", "10.00"),
    "gemini-2.5-flash": ("google", "0.30", "0.075", "-", "-", "2.50"),
    "deepseek-chat": ("deepseek", "0.27", "0.07", "-", "-", "1.10"),
    "mistral-small": ("mistral", "0.10", "-", "-", "-", "0.30"),
    "llama-3.3-70b": ("groq", "0.59", "-", "-", "-", "0.79"),
}
# Over this many input tokens the whole request is priced by the second line.
ABOVE = {"claude-sonnet-4": (200, ("6.00", "0.60", "7.50", "12.00", "22.50")), "gemini-2.5-pro": (200, ("2.50", "0.625", "-", "-", "15.00"))}
BATCH = {"gpt-4o": ("1.25", "0.625", "-", "-", "5.00"), "claude-sonnet-4": ("1.50", "0.15", "1.875", "3.00", "7.50"), "gpt-5": ("0.625", "0.0625", "-", "-", "5.00")}
FLEX = {"gpt-5": ("0.625", "0.0625", "-", "-", "5.00"), "o3": ("1.00", "0.25", "-", "-", "4.00")}
PRIORITY = {"gpt-4o": ("4.25", "2.125", "-", "-", "17.00"), "gpt-5": ("2.50", "0.25", "-", "-", "20.00")}
# A price that changed: (model, until this day the first line, from it on the second).
CHANGED = ("o3", "2025-06-10", ("10.00", "2.50", "-", "-", "40.00"))

FIELDS = ["input_cost_per_token", "cache_read_input_token_cost", "cache_creation_input_token_cost", "cache_creation_input_token_cost_above_1hr",
          "output_cost_per_token"]
# model, date, tier, fresh, cached, write 5 m, write 1 h, output (with reasoning), reasoning
USES = []


def use(model, fresh=0, cached=0, w5=0, w1=0, out=0, reasoning=0, tier="", date="2025-11-01"):
    USES.append((model, date, tier, fresh, cached, w5, w1, out, reasoning))


def examples():
    for model in PAGES:  # an ordinary answer, a tiny one, a large one
        use(model, 1200, 0, out=350)
        use(model, 1, 0, out=1)
        use(model, 98_765, 0, out=4_321)
    for model in ("gpt-4o", "gpt-4o-mini", "gpt-5", "claude-sonnet-4", "gemini-2.5-flash", "deepseek-chat"):
        use(model, 333, 6_144, out=77)
    use("mistral-small", 333, 6_144, out=77)  # no discount named: cached input is input
    for w5, w1 in ((2_048, 0), (0, 2_048), (1_025, 4_097)):
        use("claude-sonnet-4", 21, 0, w5, w1, 503)
        use("claude-opus-4", 21, 188_086, w5, w1, 393)
        use("claude-haiku-3.5", 7, 0, w5, w1, 11)
    for model in ("gpt-5", "o3", "o4-mini"):
        use(model, 640, 0, out=2_300, reasoning=1_920)
    for model in ABOVE:  # at the threshold, just over it, cached tokens count
        use(model, 200_000, out=10)
        use(model, 200_001, out=10)
        use(model, 1, 200_000, out=1_000)
    use("claude-sonnet-4", 150_000, 40_000, 10_001, 0, 1_000)
    for model in BATCH:
        use(model, 12_345, 1_000, out=678, tier="batch")
    for model in FLEX:
        use(model, 12_345, 1_000, out=678, reasoning=600, tier="flex")
    for model in PRIORITY:
        use(model, 12_345, 1_000, out=678, tier="priority")
    for date in ("2025-06-09", "2025-06-10"):
        use("o3", 1_000, out=1_000, date=date)
    use("gpt-4.1-nano", 3, 7, out=0)  # halves of a nano-dollar
    use("gpt-5", 0, 3, out=0, tier="batch")


def line_of(model, date, tier, total):
    if model in ABOVE and total > ABOVE[model][0] * 1000:
        return ABOVE[model][1]
    if tier:
        return {"batch": BATCH, "flex": FLEX, "priority": PRIORITY}[tier][model]
    if model == CHANGED[0] and date < CHANGED[1]:
        return CHANGED[2]
    return PAGES[model][1:]


def nano(dollars):
    return int((dollars / NANO).quantize(D(1), rounding=ROUND_HALF_EVEN))


def cost(model, date, tier, fresh, cached, w5, w1, out, reasoning):
    price = [D(p) / M if p != "-" else None for p in line_of(model, date, tier, fresh + cached + w5 + w1)]
    p_cached = price[0] if price[1] is None else price[1]
    parts = [nano(fresh * price[0]), nano(cached * p_cached), nano(w5 * (price[2] or 0) + w1 * (price[3] or 0)), nano(out * price[4])]
    return parts + [sum(parts)]


def fields(prices, suffix=""):
    for name, p in zip(FIELDS, prices):
        if p != "-":
            yield f"    {name}{suffix}: {(D(p) / M).normalize():E}"


def yaml():
    yield "# Made by tools/make_bill_golden.py from prices as the providers' pages print them; not a price list to use: prices change."
    yield "prices:"
    for model, (provider, *prices) in PAGES.items():
        if model == CHANGED[0]:
            yield f"  - provider: {provider}\n    model: {model}\n    until: \"{CHANGED[1]}\""
            yield from fields(CHANGED[2])
        yield f"  - provider: {provider}\n    model: {model}"
        if model == CHANGED[0]:
            yield f"    from: \"{CHANGED[1]}\""
        yield from fields(prices)
        if model in ABOVE:
            yield from fields(ABOVE[model][1], f"_above_{ABOVE[model][0]}k_tokens")
        for table, suffix in ((BATCH, "_batches"), (FLEX, "_flex"), (PRIORITY, "_priority")):
            if model in table:
                yield from fields(table[model], suffix)


def main(folder):
    examples()
    with open(f"{folder}/prices.yaml", "w") as f:
        f.write("\n".join(yaml()) + "\n")
    with open(f"{folder}/bill.tsv", "w") as f:
        f.write("#model\tdate\ttier\tfresh\tcached\twrite_5m\twrite_1h\toutput\treasoning\tcost_input\tcost_cached\tcost_write\tcost_output\tcost_total\n")
        for u in USES:
            f.write("\t".join(str(x) if x != "" else "-" for x in (*u, *cost(*u))) + "\n")
    print(f"{len(USES)} examples, {sum(cost(*u)[-1] for u in USES) / 1e9:.9f} dollars")


main(sys.argv[1])
