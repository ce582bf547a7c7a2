#!/usr/bin/env python3
"""GET / in Chromium: phone and desktop, streaming, stop, reload in mid-answer, hostile text, keys, keyboard only, and what it asks of whom."""
import contextlib
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
from api_client import TINY, Client, check  # noqa: E402
from chromium import Browser  # noqa: E402
from face import Face  # noqa: E402

LAST = "[...document.querySelectorAll('article.assistant')].at(-1)"
TIMES = f"({LAST}.querySelector('.times') || {{}}).textContent"
_page = None


def page():
    global _page
    if not _page:
        with check.Server("serve", TINY, "--port", "0") as s:
            _page = Client(s.url).get("/")
    return _page


@contextlib.contextmanager
def facing(answer, plain=False, key=None, **size):
    with Face(page(), answer, plain, key) as f, Browser(**size) as b:
        b.open(f.url)
        yield f, b


def ask(b, text):
    b.until("!document.getElementById('send').hidden")
    b.js("document.getElementById('text').focus()")
    b.type(text)
    b.enter()


def ended(b, seconds=30):
    b.until(f"document.getElementById('stop').hidden && {LAST} && {TIMES}", seconds)
    return b.js(TIMES)


# ---- the answer to GET / ----

def test_headers():
    p = page()
    check.equal(p.status, 200)
    check.equal(p.headers["content-type"], "text/html; charset=utf-8")
    assert len(p.body) < 40_000, len(p.body)
    check.equal(p.headers["x-content-type-options"], "nosniff")
    check.equal(p.headers["cache-control"], "no-cache")
    policy = p.headers["content-security-policy"]
    check.has(policy, "default-src 'none'")
    check.has(policy, "connect-src 'self'")
    assert "unsafe" not in policy and not re.search(r"https?:", policy), policy
    assert not re.search(rb"(src|href)\s*=\s*[\"']?\s*(https?:|//)|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", p.body)
    with check.Server("serve", TINY, "--port", "0") as s:
        c = Client(s.url)
        head = c.call("HEAD", "/")
        check.equal((head.status, head.body, head.headers["content-length"]), (200, b"", str(len(p.body))))
        tag = p.headers["etag"]
        for value, status in ((tag, 304), ("W/" + tag, 304), (f'"a", {tag}', 304), ("*", 304), ('"other"', 200), (tag[:-2] + '"', 200)):
            r = c.get("/", **{"If-None-Match": value})
            check.equal(r.status, status, value)
            check.equal(r.headers["etag"], tag)
            check.equal(len(r.body), 0 if status == 304 else len(p.body))
        check.equal(c.post("/", {}).status, 405)


# ---- talking ----

def test_streams_and_shows_times():
    with facing(lambda d: ["Hel", 0.3, "lo", 0.3, " there"]) as (f, b):
        ask(b, "Good day")
        b.until(f"{LAST} && {LAST}.querySelector('.body').textContent === 'Hello'")  # before the end: it streams
        check.equal(b.js("document.getElementById('log').getAttribute('aria-busy')"), "true")
        line = ended(b)
        m = re.match(r"first token (\d+) ms \| ([\d.]+) tok/s \| 7 in \(3 cached\) \| 3 out", line)
        assert m, line
        assert 2 < float(m[2]) < 3.5, line  # two tokens after the first in 0.6 s
        check.equal(b.js("document.getElementById('log').getAttribute('aria-busy')"), None)
        path, doc = f.requests[0]
        check.equal(path, "/v1/chat/completions")
        check.equal(doc["messages"], [{"role": "user", "content": "Good day"}])
        assert "temperature" not in doc and "max_tokens" not in doc, doc
        ask(b, "More")
        ended(b)
        check.equal([m["content"] for m in f.requests[1][1]["messages"]], ["Good day", "Hello there", "More"])


def test_settings_travel_and_stay():
    with facing(lambda d: ["ok"]) as (f, b):
        b.js("document.getElementById('tune').click()")
        for field, text in (("system", "Be brief"), ("temperature", "0.25"), ("top_p", "0.5"), ("max_tokens", "17"), ("seed", "4")):
            b.js(f"document.getElementById('{field}').focus()")
            b.type(text)
        b.reload()
        ask(b, "Hi")
        ended(b)
        doc = f.requests[0][1]
        check.equal((doc["temperature"], doc["top_p"], doc["max_tokens"], doc["seed"]), (0.25, 0.5, 17, 4))
        check.equal(doc["messages"][0], {"role": "system", "content": "Be brief"})
        b.js("document.getElementById('new').click()")
        check.equal(b.js("document.querySelectorAll('article').length"), 0)


def test_without_template():
    with facing(lambda d: [" upon", " a time"], plain=True) as (f, b):
        b.until("document.getElementById('status').textContent.includes('no chat template')")
        ask(b, "Once")
        ended(b)
        ask(b, " there")
        ended(b)
        check.equal([(p, d["prompt"]) for p, d in f.requests], [("/v1/completions", "Once"), ("/v1/completions", "Once upon a time there")])


def test_code_blocks():
    text = "Look:\n\n```c\nint a;\n\n<b>\n```\nand `x<y` and **so**.\n```\nopen"
    with facing(lambda d: [c for c in text]) as (f, b):
        ask(b, "code")
        ended(b)
        check.equal(b.js(f"[...{LAST}.querySelectorAll('pre code')].map(e => e.textContent)"), ["int a;\n\n<b>", "open"])
        check.equal(b.js(f"[...{LAST}.querySelectorAll('p code, strong')].map(e => e.textContent)"), ["x<y", "so"])


# ---- breaking off ----

def test_stop_cancels_on_the_server():
    model = check.model()
    with check.Server("serve", model, "--port", "0") as s, Browser() as b:
        c = Client(s.url)

        def count(name):
            return sum(float(v) for v in re.findall(rf"^{name}(?:{{[^}}]*}})? ([\d.e+]+)$", c.get("/metrics").body.decode(), re.M))
        b.open(s.url)
        b.until("document.getElementById('model').value === 'SmolLM2-135M-Instruct.Q4_1'")
        ask(b, "Write a long story about a river, a mill and the people who live there, in many chapters.")
        b.until(f"{LAST} && {LAST}.querySelector('.body').textContent.length > 20")
        check.equal(count("vllm:num_requests_running"), 1)
        b.escape()
        check.has(ended(b), "stopped by you")
        b.until("true")
        for _ in range(200):
            if count("vllm:num_requests_running") == 0:
                break
            b.js("new Promise(r => setTimeout(r, 20))")
        check.equal(count("vllm:num_requests_running"), 0)
        b.js("document.querySelector('.again').click()")  # and the page goes on
        b.until(f"{LAST}.querySelector('.body').textContent.length > 20")
        b.js("document.getElementById('stop').click()")
        check.has(ended(b), "stopped by you")


def test_reload_in_mid_answer():
    answers = iter([["Half an", " answer", 1.0] + ["."] + [0.2, "."] * 100, ["Whole"]])
    with facing(lambda d: next(answers)) as (f, b):
        ask(b, "Well?")
        b.until(f"{LAST} && {LAST}.querySelector('.body').textContent.startsWith('Half an answer.')")
        b.reload()
        check.has(b.until(TIMES), "interrupted")
        check.has(b.js(f"{LAST}.querySelector('.body').textContent"), "Half an answer")
        assert f.left.wait(20), "the server was not told that the client left"
        b.js("document.querySelector('.again').click()")
        b.until(f"{LAST}.querySelector('.body').textContent === 'Whole' && document.getElementById('stop').hidden")
        check.equal(f.requests[1][1]["messages"], [{"role": "user", "content": "Well?"}])
        assert "interrupted" not in b.js(TIMES)


def test_a_lost_connection():
    answers = iter([["Half", 0.1, "!cut"], ["Half", 0.1, "!error"], (400, {"error": {"message": "the prompt is too long"}}), ["Whole"]])
    with facing(lambda d: next(answers)) as (f, b):
        ask(b, "Well?")
        check.has(ended(b), "interrupted: the rest did not arrive")
        for words in ("the engine is gone", "the prompt is too long"):
            b.js("document.querySelector('.again').click()")
            check.has(ended(b), words)
        b.js("document.querySelector('.again').click()")
        assert "3 cached" in ended(b)
        check.equal(b.js(f"{LAST}.querySelector('.body').textContent"), "Whole")


def test_key():
    with facing(lambda d: ["secret"], key="first-secret-key") as (f, b):
        b.until("!document.getElementById('keyform').hidden && document.activeElement.id === 'key'")
        b.type("first-secret-key")
        b.enter()
        b.until("document.getElementById('model').value === 'scripted'")
        ask(b, "Hi")
        ended(b)
        check.equal(b.js("JSON.stringify(localStorage).includes('first-secret-key')"), False)
        check.equal(b.js("JSON.stringify(sessionStorage).includes('first-secret-key')"), True)


# ---- hostile text, other hosts ----

HOSTILE = ["<img src=x onerror='window.hit=1'>", "<script>window.hit=2</script>", "```html\n<svg onload='window.hit=3'>\n```\n",
           "[a](javascript:window.hit=4)", "`<iframe srcdoc='<script>parent.hit=5</script>'>`", "**<b onmouseover=window.hit=6>**", "</script><script>window.hit=7</script>"]


def test_hostile_text_is_text():
    with facing(lambda d: [h + "\n\n" for h in HOSTILE]) as (f, b):
        ask(b, HOSTILE[0])
        ended(b)
        b.reload()
        b.until(TIMES)
        check.equal(b.js("window.hit"), None)
        check.equal(b.js("document.querySelectorAll('#log img, #log script, #log svg, #log iframe, #log b:not(.bad), #log a').length"), 0)
        text = b.js(f"{LAST}.querySelector('.body').textContent")
        for h in HOSTILE:
            check.has(text, re.sub(r"[`*]|html\n|\n$", "", h).strip())
        # The control: the same text does act where it is taken for HTML, so the looks above could have seen it; the policy still holds it back.
        b.js("document.getElementById('log').innerHTML = " + json.dumps(HOSTILE[0]))
        check.equal(b.js("document.querySelectorAll('#log img').length"), 1)
        b.until("document.querySelector('#log img').complete")
        check.equal(b.js("window.hit"), None)


def test_no_request_leaves():
    with facing(lambda d: ["![x](http://example.invalid/x.png) <img src='http://example.invalid/y.png'>"]) as (f, b):
        ask(b, "Hi")
        ended(b)
        urls = [e["request"]["url"] for e in b.named("Network.requestWillBeSent")]
        assert len(urls) >= 4, urls
        for u in urls:
            assert u.startswith(f.url) or u.startswith("data:"), u
        b.js("fetch('http://example.invalid/').catch(() => 0)")  # the control: the policy refuses, and this look sees a refusal
        blocked = [e for e in b.named("Log.entryAdded") if "example.invalid" in json.dumps(e)] + \
            [e for e in b.named("Network.loadingFailed") if e.get("blockedReason") == "csp"]
        assert blocked, "the policy let a request out"


# ---- size, keyboard, names ----

def test_phone():
    with facing(lambda d: ["word " * 60 + "\n\n```\n" + "x" * 300 + "\n```\n"], width=320, height=568, phone=True, dark=True) as (f, b):
        ask(b, "a" * 200)
        ended(b)
        b.js("document.getElementById('tune').click()")
        check.equal(b.js("document.documentElement.scrollWidth"), 320)
        check.equal(b.js("document.body.scrollWidth <= 320"), True)
        for el in ("text", "send", "new", "tune"):
            box = b.js(f"(({{left, right, height}}) => [left, right, height])(document.getElementById('{el}').getBoundingClientRect())")
            assert 0 <= box[0] and box[1] <= 320 and box[2] >= 36, (el, box)
        check.equal(b.js("getComputedStyle(document.body).backgroundColor"), "rgb(20, 24, 28)")


def test_light():
    with facing(lambda d: ["x"]) as (f, b):
        check.equal(b.js("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)")


def test_keyboard_only():
    with facing(lambda d: ["word ", 0.05] * 200) as (f, b):
        b.until("document.getElementById('model').value === 'scripted' && document.activeElement.id === 'text'")
        b.type("one")
        b.enter(shift=True)
        b.type("two")
        check.equal(b.js("document.getElementById('text').value"), "one\ntwo")
        b.enter()
        b.until(f"{LAST} && {LAST}.querySelector('.body').textContent.length > 5")
        b.escape()
        check.has(ended(b), "stopped")
        seen = []
        for _ in range(12):
            seen.append(b.js("document.activeElement.id || document.activeElement.className"))
            b.tab(shift=True)
        for want in ("text", "again", "log", "tune", "new"):
            assert want in seen, (want, seen)
        b.js("document.getElementById('new').focus()")
        b.space()
        check.equal(b.js("document.querySelectorAll('article').length"), 0)
        check.equal(b.js("document.activeElement.id"), "text")


def test_everything_has_a_name():
    with facing(lambda d: ["x"]) as (f, b):
        b.js("document.getElementById('settings').hidden = document.getElementById('keyform').hidden = false")
        b.send("Accessibility.enable")
        nodes = b.send("Accessibility.getFullAXTree")["nodes"]
        asked = [n for n in nodes if n.get("role", {}).get("value") in ("button", "textbox", "spinbutton", "combobox", "log") and not n["ignored"]]
        assert len(asked) >= 10, len(asked)
        for n in asked:
            assert n.get("name", {}).get("value"), n
        check.equal(b.js("document.documentElement.lang"), "en")


check.tests(globals())
