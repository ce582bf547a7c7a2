#!/usr/bin/env python3
"""The HTTP face of `weir serve` with a tiny model behind it: framing, bounds, slow and leaving clients. The table of single requests is the unit
test's (tests/unit/net); here it is that the server as it is started behaves so."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from check import SRC, Server, equal, has, run, tests
from rawhttp import Conn, ask, exchange

MODEL = os.path.join(SRC, "tests", "golden", "tiny", "tiny-llama-f32.gguf")
server = Server("serve", MODEL, "--port", "0", "--served-name", "tiny")
URL = server.url
HOST = b"Host: localhost\r\n"
LONG = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 200, "ignore_eos": True, "temperature": 0}


def wait_ready():
    end = time.monotonic() + 30
    while ask(URL, "GET", "/ready").status != 200:
        assert time.monotonic() < end, "the server did not become ready"
        time.sleep(0.02)


def test_health_and_head():
    wait_ready()
    a = ask(URL, "GET", "/health")
    equal(a.status, 200)
    assert a.header("date") and a.header("content-length") == str(len(a.body))
    equal(ask(URL, "HEAD", "/health").body, b"")


def test_malformed():
    for data in (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\n\n", b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n" + HOST + b"A : b\r\n\r\n",
                 b"GET /%zz HTTP/1.1\r\n" + HOST + b"\r\n", b"\x16\x03\x01\x00\xa5"):
        a = exchange(URL, data)
        equal(a.status, 400, repr(data))
        equal(a.error()["type"], "invalid_request_error")
        equal(a.header("connection"), "close")


def test_smuggling():
    """What two parsers could cut in two ways is refused, and what follows it is not taken for a request."""
    for fields in (b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"Content-Length: 4\r\nContent-Length: 5\r\n", b"Content-Length: +4\r\n",
                   b"Transfer-Encoding:\tchunked\r\nTransfer-Encoding: identity\r\n", b"Transfer-Encoding : chunked\r\n"):
        with Conn(URL) as c:
            c.send(b"POST /v1/completions HTTP/1.1\r\n" + HOST + fields + b"\r\n0\r\n\r\nGET /health HTTP/1.1\r\n" + HOST + b"\r\n")
            equal(c.answer().status, 400, repr(fields))
            assert c.closed(), f"{fields!r}: something came behind the refusal"


def test_bounds():
    a = exchange(URL, b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: 17000000\r\n\r\n")
    equal(a.status, 413)
    has(a.error()["message"], "--max-body")
    equal(exchange(URL, b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 70000 + b"\r\n\r\n").status, 431)
    equal(exchange(URL, b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 200 + b"\r\n").status, 431)
    equal(exchange(URL, b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n").status, 414)
    equal(exchange(URL, b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n").status, 501)


def test_413_reaches_a_client_that_keeps_sending():
    with Conn(URL) as c:
        c.send(b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: 900000000\r\n\r\n" + b"x" * 4000000)
        equal(c.answer().status, 413)


def test_continue():
    body = b'{"model": "tiny", "prompt": [5, 6], "max_tokens": 1}'
    with Conn(URL) as c:
        c.send(b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        equal(c.answer().status, 100)
        c.send(body)
        equal(c.answer().status, 200)
    equal(exchange(URL, b"POST / HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 17000000\r\n\r\n").status, 413)


def test_chunked_body_byte_by_byte():
    with Conn(URL) as c:
        body = b'{"model": "tiny", "prompt": [5, 6], "max_tokens": 1}'
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7]) for i in range(0, len(body), 7)) + b"0\r\n\r\n"
        c.send(b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks, step=1)
        a = c.answer()
        equal(a.status, 200, a.body[:200])


def test_keep_alive_and_pipelining():
    with Conn(URL) as c:
        c.request("GET", "/health")
        equal(c.answer().status, 200)
        c.request("POST", "/v1/completions", {**LONG, "max_tokens": 3})
        c.request("GET", "/nowhere")
        c.request("GET", "/health", close=True)
        equal([c.answer().status for _ in range(3)], [200, 404, 200])
        assert c.closed()


def test_half_closed_client_gets_its_answer():
    for stream in (False, True):
        with Conn(URL) as c:
            c.request("POST", "/v1/completions", {**LONG, "stream": stream})
            c.half_close()
            if not stream:
                equal(c.answer().json()["usage"]["completion_tokens"], 200)
            else:
                equal(c.head().status, 200)
                equal(list(c.events())[-1], b"[DONE]")


def metric(name):
    for line in ask(URL, "GET", "/metrics").body.decode().splitlines():
        if line.startswith(name):
            return float(line.split()[-1])
    raise AssertionError(f"/metrics lacks {name}")


def test_leaving_stops_the_work():
    """Clients that leave, while they wait and in the middle of a stream: their work ends at once, most of it undone."""
    before, clients, each = metric("vllm:generation_tokens_total"), 6, 8 * LONG["max_tokens"]
    for stream in (False, True):
        for _ in range(clients // 2):
            with Conn(URL) as c:
                c.request("POST", "/v1/completions", {**LONG, "n": 8, "stream": stream})
                if stream:
                    c.head()
                    next(c.events())
                else:
                    end = time.monotonic() + 5
                    while metric("vllm:num_requests_running") == 0:
                        assert time.monotonic() < end, "the request never ran"
            end = time.monotonic() + 0.5
            while metric("vllm:num_requests_running") > 0:
                assert time.monotonic() < end, "work goes on for a client that has left"
    done = metric("vllm:generation_tokens_total") - before
    assert done < clients * each / 2, f"{done} of {clients * each} tokens were made for clients that had left"


def test_slow_header():
    """A header that drips for longer than 10 s is refused, however steadily it drips; others are served meanwhile."""
    with Conn(URL, limit=15) as c:
        start = time.monotonic()
        c.send(b"GET /health HTTP/1.1\r\n")
        while not c.closed(0.5) and not c.buf and time.monotonic() - start < 14:
            c.send(b"X-Drip: y\r\n")
        a = c.answer()
        equal(a.status, 408)
        equal(a.error()["code"], "timeout")
        assert 9 < time.monotonic() - start < 13
    equal(ask(URL, "GET", "/health").status, 200)


def test_port_in_use():
    port = URL.rsplit(":", 1)[1]
    p = run("serve", MODEL, "--port", port)
    equal(p.returncode, 1, p.stderr)
    has(p.stderr, f"port {port} on 127.0.0.1 is in use: stop what listens there or choose another with --port")
    equal(p.stdout, "")


try:
    tests(globals())
finally:
    server.stop()
