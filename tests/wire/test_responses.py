#!/usr/bin/env python3
"""/v1/responses against a running server with a tiny model: shapes, streams, the store and its bounds of sight, bad input."""
import json
import tempfile

from api_client import TINY, Client, check, refused

keys = tempfile.NamedTemporaryFile("w", suffix=".keys")
keys.write("key-number-one\nkey-number-two\n")
keys.flush()
server = check.Server("serve", TINY, "--port", "0", "--threads", "1", "--api-key-file", keys.name)
c = Client(server.url)
ONE, TWO = {"Authorization": "Bearer key-number-one"}, {"x-api-key": "key-number-two"}
PATH = "/v1/responses"
FIELDS = dict(max_output_tokens=8, seed=5, temperature=0.7, ignore_eos=True)


def ask(input="Hello", auth=ONE, **fields):
    return c.post(PATH, dict(FIELDS, input=input, **fields), **auth)


def good(a):
    check.equal(a.status, 200, a.body[:300])
    return a.json


def text(doc):
    return "".join(p["text"] for i in doc["output"] if i["type"] == "message" for p in i["content"])


def events(a):
    """(name, data) of each event; names and types agree, numbers count up from 0."""
    out = []
    for block in a.body.decode().split("\n\n"):
        if not block:
            continue
        name, data = block.split("\n")
        d = json.loads(data[len("data: "):])
        check.equal(name, "event: " + d["type"])
        check.equal(d["sequence_number"], len(out), "sequence_number")
        out.append(d)
    return out


def test_whole():
    a = ask(metadata={"k": "v"}, instructions="Be brief.", user="u")
    d = good(a)
    check.equal(d["object"], "response")
    check.equal((d["status"], d["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))
    check.equal((d["metadata"], d["instructions"], d["user"], d["store"]), ({"k": "v"}, "Be brief.", "u", True))
    check.equal(d["usage"]["output_tokens"], 8)
    check.equal(d["usage"]["total_tokens"], d["usage"]["input_tokens"] + 8)
    check.equal(a.headers["x-weir-seed"], "5")
    plain = c.post("/v1/chat/completions", {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
                                            "max_tokens": 8, "seed": 5, "temperature": 0.7, "ignore_eos": True}, **ONE).json
    check.equal(text(d), plain["choices"][0]["message"]["content"], "the same request as a chat gives the same text")
    check.equal(d["usage"]["input_tokens"], plain["usage"]["prompt_tokens"])


def test_stream_adds_up():
    whole = good(ask())
    a = ask(stream=True)
    check.has(a.headers["content-type"], "text/event-stream")
    ev = events(a)
    check.equal([e["type"] for e in ev[:4]],
                ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"])
    check.equal([e["type"] for e in ev[-4:]],
                ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete"])
    deltas = "".join(e["delta"] for e in ev if e["type"] == "response.output_text.delta")
    check.equal(deltas, text(whole), "deltas")
    check.equal(ev[-4]["text"], deltas, "done")
    last = ev[-1]["response"]
    check.equal(text(last), deltas, "the response itself")
    check.equal(last["usage"]["output_tokens"], whole["usage"]["output_tokens"])
    check.equal(last["id"], ev[0]["response"]["id"])


def test_going_on():
    first = good(ask("My name is Ada."))
    second = good(ask("Who am I?", previous_response_id=first["id"]))
    check.equal(second["previous_response_id"], first["id"])
    third = good(ask("And now?", previous_response_id=second["id"]))
    spelled = [{"role": "user", "content": "My name is Ada."}, *first["output"], {"role": "user", "content": "Who am I?"}, *second["output"],
               {"role": "user", "content": "And now?"}]
    same = good(ask(spelled))
    check.equal(third["usage"]["input_tokens"], same["usage"]["input_tokens"], "the conversation as it was")
    check.equal(text(third), text(same))
    other = good(ask(spelled[2:]))
    check.equal(other["usage"]["input_tokens"] < same["usage"]["input_tokens"], True, "control: without the first turn there is less to read")
    check.equal(third["usage"]["input_tokens_details"]["cached_tokens"] > 0, True, "what was read before is taken from the cache")
    streamed = events(ask("And now?", previous_response_id=second["id"], stream=True))[-1]["response"]
    check.equal(text(streamed), text(third))


def test_instructions_hold_once():
    first = good(ask("a", instructions="Speak like a pirate, always and at length."))
    second = good(ask("b", previous_response_id=first["id"]))
    spelled = good(ask([{"role": "user", "content": "a"}, *first["output"], {"role": "user", "content": "b"}]))
    check.equal(second["usage"]["input_tokens"], spelled["usage"]["input_tokens"])


def test_get_items_delete():
    d = good(ask([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]))
    path = f"{PATH}/{d['id']}"
    check.equal(good(c.get(path, **ONE)), d)
    items = good(c.get(path + "/input_items?order=asc", **ONE))
    check.equal([i["content"][0]["text"] for i in items["data"]], ["a", "b", "c"])
    check.equal([i["content"][0]["type"] for i in items["data"]], ["input_text", "output_text", "input_text"])
    page = good(c.get(path + "/input_items?limit=2", **ONE))
    check.equal(([i["content"][0]["text"] for i in page["data"]], page["has_more"]), (["c", "b"], True))
    rest = good(c.get(path + "/input_items?limit=2&after=" + page["last_id"], **ONE))
    check.equal(([i["content"][0]["text"] for i in rest["data"]], rest["has_more"]), (["a"], False))
    refused(c.get(path + "/input_items?limit=0", **ONE), 400, "limit")
    refused(c.get(path + "/input_items?order=up", **ONE), 400, "order")
    refused(c.get(path + "/input_items?after=nobody", **ONE), 400, "after")
    refused(c.get(path + "?stream=true", **ONE), 400, "stream")
    gone = c.call("DELETE", path, headers=ONE)
    check.equal(good(gone), {"object": "response.deleted", "deleted": True, "id": d["id"]})
    for again in (c.get(path, **ONE), c.get(path + "/input_items", **ONE), c.call("DELETE", path, headers=ONE)):
        refused(again, 404, "response_id", d["id"], code="not_found")
    refused(ask("x", previous_response_id=d["id"]), 404, "previous_response_id", d["id"])


def test_store_false_is_not_kept():
    d = good(ask(store=False))
    check.equal(d["store"], False)
    refused(c.get(f"{PATH}/{d['id']}", **ONE), 404, "response_id")
    kept = good(ask(store=True))
    check.equal(c.get(f"{PATH}/{kept['id']}", **ONE).status, 200, "control: kept otherwise")


def test_keys_do_not_see_each_other():
    d = good(ask())
    check.equal(c.get(f"{PATH}/{d['id']}", **ONE).status, 200)
    refused(c.get(f"{PATH}/{d['id']}", **TWO), 404, "response_id")
    check.equal(c.call("DELETE", f"{PATH}/{d['id']}", headers=TWO).status, 404)
    refused(ask("x", auth=TWO, previous_response_id=d["id"]), 404, "previous_response_id")
    check.equal(c.get(f"{PATH}/{d['id']}", **ONE).status, 200)
    check.equal(c.get(f"{PATH}/{d['id']}").status, 401)


def test_own_request_id_names_no_response():
    a, b = (ask(auth=dict(ONE, **{"X-Request-Id": "same"})) for _ in range(2))
    check.equal(a.headers["x-request-id"], "same")
    check.equal(good(a)["id"] != good(b)["id"], True)


def test_bad_input():
    for fields, param in (
            ({"input": None}, "input"), ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0].type"),
            ({"input": [{"type": "computer_call"}]}, "input[0].type"), ({"tools": [{"type": "file_search"}]}, "tools[0].type"),
            ({"previous_response_id": "resp_nobody"}, "previous_response_id"), ({"background": True}, "background"), ({"truncation": "auto"}, "truncation"),
            ({"text": {"format": {"type": "json_object"}}}, "text.format.type"), ({"tool_choice": "required"}, "tool_choice")):
        a = c.post(PATH, dict({"input": "x"}, **fields), **ONE)
        refused(a, 404 if param == "previous_response_id" else 400, param, param)
    a = c.post(PATH, b"{\"input\": ", **ONE)
    check.equal(a.status, 400)
    check.equal(c.call("PUT", PATH + "/x", headers=ONE).headers["allow"], "GET, DELETE")
    check.equal(c.get(PATH, **ONE).status, 405)


def test_big_body_is_parsed_elsewhere():
    """Over 256 KiB: the same answers, good and bad, streamed or not."""
    odd = {"metadata": {"pad": "x" * 400_000}}
    check.equal(text(good(ask(**odd))), text(good(ask())))
    check.equal(events(ask(stream=True, **odd))[-1]["type"], "response.incomplete")
    refused(ask([{"type": "nonsense"}], **odd), 400, "input[0].type")
    refused(ask("word " * 200_000), 400, "messages", code="context_length_exceeded")


def test_many_are_bounded():
    """More than the store's count: the oldest make room, the newest are there."""
    first = good(ask(max_output_tokens=1))["id"]
    check.equal(c.get(f"{PATH}/{first}", **ONE).status, 200)
    last = None
    for _ in range(30):
        last = good(c.post(PATH, {"input": [{"role": "user", "content": "x"}], "max_output_tokens": 1, "metadata": {"pad": "y" * 3_000_000}}, **ONE))["id"]
    check.equal(c.get(f"{PATH}/{first}", **ONE).status, 404, "30 × 3 MB are more than 64 MiB")
    check.equal(c.get(f"{PATH}/{last}", **ONE).status, 200)


check.tests(globals())
