#!/usr/bin/env python3
"""The server around the API: keys, listening, readiness, metrics, clients that leave, full queues, signals."""
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from api_client import TINY, Client, check, refused


@contextlib.contextmanager
def serving(*args, model=TINY, **env):
    with check.Server("serve", model, "--port", "0", *args, **env) as s:
        yield s, Client(s.url)


def key_file(text):
    f = tempfile.NamedTemporaryFile("w", suffix=".keys", delete=False)
    f.write(text)
    f.close()
    return f.name


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(what, seconds=30.0):
    """Polls; returns how long it took, or fails."""
    start = time.monotonic()
    while time.monotonic() < start + seconds:
        if what():
            return time.monotonic() - start
        time.sleep(0.005)
    raise AssertionError(f"did not become true within {seconds} s")


def open_request(c, doc, path="/v1/completions"):
    """Sends a request and leaves the connection open."""
    h = http.client.HTTPConnection(c.host, c.port, timeout=60)
    h.request("POST", path, json.dumps(doc), {"Content-Type": "application/json"})
    return h


# ---- keys and listening ----

def test_keys():
    with serving("--api-key-file", key_file("# ours\n\nfirst-secret-key\nsecond-secret-key\n")) as (_, c):
        check.equal(c.get("/health").status, 200)
        check.equal(c.get("/ready").status, 200)
        for path in ("/metrics", "/v1/models"):
            refused(c.get(path), 401, None, "API key", code="invalid_api_key")
            check.equal(c.get(path).headers["www-authenticate"], "Bearer")
        refused(c.chat(), 401, None, "Authorization")
        for h in ({"Authorization": "Bearer wrong-secret-key"}, {"Authorization": "Bearer first-secret-ke"}, {"Authorization": "first-secret-key"},
                  {"Authorization": "Bearer "}, {"x-api-key": "nope"}, {"Authorization": "Basic Zmlyc3Q6eA=="}):
            check.equal(c.get("/v1/models", **h).status, 401, str(h))
        for h in ({"Authorization": "Bearer first-secret-key"}, {"authorization": "bearer second-secret-key"}, {"x-api-key": "second-secret-key"}):
            check.equal(c.get("/v1/models", **h).status, 200, str(h))


def test_key_files_that_are_refused():
    for text, word in (("", "no key"), ("# only a comment\n", "no key"), ("short\n", "line 1"), ("good-enough-key\nwith blank inside\n", "line 2")):
        r = check.run("serve", TINY, "--port", "0", "--api-key-file", key_file(text))
        check.equal(r.returncode, 3)
        check.has(r.stderr, word)
    r = check.run("serve", TINY, "--port", "0", "--api-key-file", "/nonexistent/keys")
    check.has(r.stderr, "/nonexistent/keys")


def test_beyond_loopback_only_on_purpose():
    r = check.run("serve", TINY, "--port", "0", "--host", "0.0.0.0")
    check.equal(r.returncode, 2)
    check.has(r.stderr, "--api-key-file")
    check.has(r.stderr, "--insecure")
    with serving("--host", "0.0.0.0", "--insecure") as (s, _):
        check.equal(Client(s.url.replace("0.0.0.0", "127.0.0.1")).get("/health").status, 200)


def test_port_in_use():
    with serving() as (s, c):
        r = check.run("serve", TINY, "--port", c.port)
        check.equal(r.returncode in (1, 2), True)
        check.has(r.stderr, str(c.port))
        check.has(r.stderr, "in use")
        check.equal(c.get("/health").status, 200, "the first goes on")


def test_models_that_do_not_load():
    r = check.run("serve", "/nonexistent/model.gguf", "--port", "0")
    check.equal(r.returncode != 0, True)
    check.has(r.stderr, "/nonexistent/model.gguf")
    r = check.run("serve", os.path.join(check.SRC, "meson.build"), "--port", "0")
    check.equal(r.returncode, 3)
    check.has(r.stderr, "GGUF")
    r = check.run("serve")
    check.equal(r.returncode, 2)


def test_a_model_file_cut_short_under_the_server():
    """Nothing can be computed from pages that are gone; the server must say so rather than fall over without a word."""
    check.not_under("thread", "signals are its own")
    path = os.path.join(tempfile.mkdtemp(), "cut.gguf")
    shutil.copy(TINY, path)
    with serving(model=path) as (s, c):
        check.equal(c.complete(max_tokens=1).status, 200)
        os.truncate(path, 0)
        with contextlib.suppress(OSError, http.client.HTTPException):
            c.complete("something else", max_tokens=1)
        check.equal(s.p.wait(30), 1)
        check.has(s.stderr(), path)
        check.has(s.stderr(), "cut short")
    shutil.rmtree(os.path.dirname(path))


def test_settings_that_cannot_be():
    for option, value, word in (("--page", "24", "--page"), ("--threads", "257", "256"), ("--kv-budget", "900T", "memory"), ("--ctx", "100000", "512")):
        r = check.run("serve", TINY, "--port", "0", option, value)
        check.equal(r.returncode in (2, 3), True, f"{option} {value}: exit {r.returncode}")
        check.has(r.stderr, word)


def test_closed_standard_streams():
    """Log lines and the URL must not end up in whatever file took the number of a closed stream."""
    for closed in (["0"], ["1"], ["2"], ["0", "1", "2"]):
        port = free_port()
        redirect = " ".join(f"{n}>&-" for n in closed)
        p = subprocess.Popen(["sh", "-c", f'exec "$0" "$@" {redirect}', check.WEIR, "serve", TINY, "--port", str(port)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        c = Client(f"http://127.0.0.1:{port}")

        def ready():
            with contextlib.suppress(OSError):
                return c.get("/ready").status == 200

        try:
            until(ready)
            for n in closed:
                check.equal(os.readlink(f"/proc/{p.pid}/fd/{n}"), "/dev/null")
            check.equal(c.complete(max_tokens=1).status, 200)
        finally:
            p.terminate()
            p.wait(30)


def test_names():
    with serving("--served-name", "my model") as (_, c):
        check.equal(c.get("/v1/models").json["data"][0]["id"], "my model")
        check.equal(c.chat(model="my model", max_tokens=1).json["model"], "my model")
        refused(c.chat(model="tiny-llama-q"), 404, "model", "my model")


def test_listens_while_loading():
    model, port = check.model(), free_port()
    c, seen = Client(f"http://127.0.0.1:{port}"), []
    s = check.Server.__new__(check.Server)
    s.log = open(os.path.join(os.environ.get("TMPDIR", "/tmp"), f"loading-{os.getpid()}.log"), "w+")
    s.p = subprocess.Popen([check.WEIR, "serve", model, "--port", str(port)], stdout=subprocess.PIPE, stderr=s.log)
    try:
        def probe():
            try:
                a = c.get("/ready")
            except OSError:
                return False
            if a.status == 503 and not seen:
                seen.append(a.json["status"])
                b = c.chat(max_tokens=1)
                if b.status == 503:
                    seen.append(b.error["code"])
                    check.equal(b.headers["retry-after"], "1")
                check.equal(c.get("/health").status, 200, "alive while loading")
                check.has(c.get("/metrics").body.decode(), "weir_backend_healthy")
            return a.status == 200
        until(probe, 60)
        check.equal(seen[:1], ["loading"])
    finally:
        s.stop()


# ---- metrics ----

NAMES = """vllm:num_requests_running vllm:num_requests_waiting vllm:kv_cache_usage_perc vllm:prompt_tokens_total vllm:generation_tokens_total
vllm:num_preemptions_total vllm:prefix_cache_queries_total vllm:prefix_cache_hits_total vllm:request_success_total
vllm:time_to_first_token_seconds_count vllm:inter_token_latency_seconds_count vllm:request_time_per_output_token_seconds_count
vllm:e2e_request_latency_seconds_count vllm:request_queue_time_seconds_count vllm:request_prefill_time_seconds_count
vllm:request_decode_time_seconds_count vllm:request_inference_time_seconds_count vllm:request_prompt_tokens_count
vllm:request_generation_tokens_count vllm:iteration_tokens_total_count weir_overhead_seconds_count""".split()


def test_metrics():
    with serving() as (_, c):
        for n in NAMES:
            check.equal(c.metric(n), 0, f"{n} when idle")
        c.chat(max_tokens=7, ignore_eos=True)
        c.chat(max_tokens=7, ignore_eos=True, stream=True)
        c.chat(max_tokens=-1)
        check.equal(c.metric("vllm:generation_tokens_total"), 14)
        check.equal(c.metric("vllm:request_success_total"), 2)
        check.equal(c.metric("vllm:time_to_first_token_seconds_count"), 2)
        check.equal(c.metric("vllm:inter_token_latency_seconds_count"), 12)
        check.equal(c.metric("vllm:request_generation_tokens_sum"), 14)
        check.equal(c.metric("weir_overhead_seconds_count"), 2)
        text = c.get("/metrics").body.decode()
        check.has(text, 'weir_requests_total{route="/v1/chat/completions",model="tiny-llama-q",backend="local",code="200"} 2')
        check.has(text, 'route="/v1/chat/completions",model="tiny-llama-q",backend="local",code="400"} 1')
        check.has(text, 'le="2560"')
        steps = c.metric("vllm:iteration_tokens_total_count")
        check.equal(steps >= 14, True)
        buckets = [float(x) for x in re.findall(r'vllm:iteration_tokens_total_bucket\{.*\} (\d+)', text)]
        check.equal(buckets, sorted(buckets), "buckets are cumulative")
        check.equal(buckets[-1], steps)
        for line in text.splitlines():
            check.equal(bool(re.fullmatch(r'# (HELP|TYPE) .*|[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^{}]*\})? [-+0-9.eE]+', line)), True, line)


# ---- clients that leave ----

LONG = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True}


def idle(c):
    return c.metric("vllm:num_requests_running") == 0 and c.metric("vllm:num_requests_waiting") == 0


def test_leaving_stops_the_work():
    with serving(model=check.model()) as (_, c):
        for doc in (dict(LONG, stream=True), LONG, dict(LONG, n=4), dict(LONG, prompt=["a b"] * 40)):
            aborted = c.metric('vllm:request_success_total')
            h = open_request(c, doc)
            until(lambda: c.metric("vllm:num_requests_running") > 0)
            if doc.get("stream"):
                h.getresponse().read(300)
            h.close()
            until(lambda: idle(c))
            check.equal(c.metric("vllm:request_success_total") > aborted, True, "counted as ended")
        check.equal('finished_reason="abort"} 0' in c.get("/metrics").body.decode(), False)
        check.equal(c.metric("vllm:generation_tokens_total") < 4000, True, "less in all than one of them wanted")


def test_leaving_during_prefill():
    with serving("--threads", "1", model=check.model()) as (_, c):
        h = open_request(c, dict(LONG, prompt=list(range(100, 7100)), max_tokens=10))
        until(lambda: c.metric("vllm:num_requests_running") > 0)
        h.close()
        until(lambda: idle(c))
        check.equal(c.metric("vllm:prompt_tokens_total") < 7000, True, "it stopped while reading the prompt")
        check.equal(c.metric("vllm:generation_tokens_total"), 0)


def test_leaving_while_queued_harms_nobody():
    with serving("--max-seqs", "1", model=check.model()) as (_, c):
        first = open_request(c, dict(LONG, max_tokens=120, stream=True, temperature=0))
        until(lambda: c.metric("vllm:num_requests_running") == 1)
        second = open_request(c, LONG)
        until(lambda: c.metric("vllm:num_requests_waiting") == 1)
        second.close()
        until(lambda: c.metric("vllm:num_requests_waiting") == 0)
        check.equal(c.metric("vllm:num_requests_running"), 1)
        body = first.getresponse().read().decode()
        check.has(body, '"finish_reason":"length"')
        check.has(body, "data: [DONE]")


def test_full_queue():
    with serving("--max-seqs", "1", "--queue", "1", model=check.model()) as (_, c):
        running = open_request(c, LONG)
        until(lambda: c.metric("vllm:num_requests_running") == 1)
        waiting = open_request(c, LONG)
        until(lambda: c.metric("vllm:num_requests_waiting") == 1)
        a = c.complete(max_tokens=1)
        refused(a, 503, None, "queue", code="overloaded")
        check.equal(a.headers["retry-after"], "1")
        a = c.complete(max_tokens=1, stream=True)
        check.equal(a.status, 503, "no 200 before the first good event")
        running.close()
        waiting.close()
        until(lambda: idle(c))
        check.equal(c.complete(max_tokens=1).status, 200)


# ---- signals ----

def test_idle_server_ends_at_once():
    for sig in (signal.SIGTERM, signal.SIGINT):
        with serving() as (s, _):
            s.p.send_signal(sig)
            check.equal(s.p.wait(30), 0)


def test_drain():
    with serving(model=check.model()) as (s, c):
        h = open_request(c, dict(LONG, max_tokens=150, stream=True))
        r = h.getresponse()
        r.read(100)
        keep = http.client.HTTPConnection(c.host, c.port, timeout=5)
        s.p.send_signal(signal.SIGTERM)
        until(lambda: "draining" in s.stderr())

        def refuses():
            try:
                socket.create_connection((c.host, c.port), 1).close()
                return False
            except OSError:
                return True
        until(refuses)
        check.has(r.read().decode(), "data: [DONE]")
        check.equal(s.p.wait(30), 0)
        keep.close()


def test_second_signal_stops():
    with serving(model=check.model()) as (s, c):
        held = open_request(c, LONG)
        until(lambda: c.metric("vllm:num_requests_running") == 1)
        s.p.send_signal(signal.SIGTERM)
        until(lambda: "draining" in s.stderr())
        s.p.send_signal(signal.SIGTERM)
        check.equal(s.p.wait(30), 130)
        held.close()


def test_log_has_a_line_and_no_contents():
    with serving() as (s, c):
        c.chat("a very private sentence", max_tokens=3)
        until(lambda: "route=/v1/chat/completions" in s.stderr())
        text = s.stderr()
        check.has(text, "status=200")
        check.equal("private" in text, False)


def test_several_at_once():
    """Answers beside others are the answers alone."""
    with serving() as (_, c):
        want = [c.complete(f"story {i}", max_tokens=40, seed=i).json["choices"][0]["text"] for i in range(24)]
        seen = [None] * 24

        def one(i):
            seen[i] = c.complete(f"story {i}", max_tokens=40, seed=i).json["choices"][0]["text"]
        threads = [threading.Thread(target=one, args=(i,)) for i in range(24)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        check.equal(seen, want)


check.tests(globals())
