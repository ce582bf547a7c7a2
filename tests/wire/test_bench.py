#!/usr/bin/env python3
"""weir bench against a scripted server: its figures against the server's own, what it counts as a failure, how it ends."""
import json
import os
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import check
from check import equal, has, run, tests
from scripted import Scripted

SLACK = 40.0  # ms between a server that has written and a client that has read, on a machine that is busy with other things
TMP = os.environ.get("TMPDIR", "/tmp")
PREP = 3      # two probes and one warm-up request come first


def bench(server, *args, **kw):
    """(finished process, JSON it wrote or None)."""
    path = os.path.join(TMP, f"bench-{os.getpid()}.json")
    if os.path.exists(path):
        os.unlink(path)
    p = run("bench", "--url", server if isinstance(server, str) else server.url, "--json", path, *args, **dict({"OPENAI_API_KEY": None}, **kw))
    return p, json.load(open(path)) if os.path.exists(path) else None


def mean(v):
    return sum(v) / len(v)


def near(seen, want, below, above, what):
    assert want - below <= seen <= want + above, f"{what}: expected {want:.2f} (-{below}, +{above}), saw {seen:.2f}"


def agree(j, requests):
    """The client's means are the server's own plus what the way takes. A client cannot have seen a chunk before it was written."""
    ttft = mean([1e3 * (r.first - r.accepted) for r in requests])
    itl = mean([1e3 * (r.last - r.first) / (r.sent - 1) for r in requests])
    e2e = mean([1e3 * (r.last - r.accepted) for r in requests])
    near(j["mean_ttft_ms"], ttft, 0, SLACK, "TTFT")
    near(j["mean_e2el_ms"], e2e, 0, SLACK, "e2e")
    near(j["mean_tpot_ms"], itl, SLACK / 4, SLACK / 4, "ITL")
    near(j["mean_itl_ms"], itl, SLACK / 4, SLACK / 4, "ICL")


def test_figures_are_the_servers_own():
    with Scripted() as s:
        p, j = bench(s, "-n", 24, "-c", 2, "-o", 8, "-i", 64)
        equal(p.returncode, 0, p.stderr)
        measured = s.posts()[PREP:]
        equal(len(measured), 24)
        agree(j, measured)
        assert j["mean_ttft_ms"] >= 50 and j["mean_itl_ms"] >= 9.9, f"faster than the server sleeps: {j}"
        n = {k: v["n"] for k, v in j["weir"]["samples"].items()}
        equal(n, {"ttft": 24, "tpot": 24, "itl": 24 * 7, "e2el": 24})
        span = max(r.last for r in measured) - min(r.accepted for r in measured)
        near(1e3 * j["duration"], 1e3 * span, SLACK, 2 * SLACK, "duration")
        near(j["request_throughput"], 24 / j["duration"], 1e-6, 1e-6, "RPS")
        near(j["output_throughput"], 24 * 8 / j["duration"], 1e-6, 1e-6, "TPS")
        near(j["total_token_throughput"], 24 * (8 + 64) / j["duration"], 1e-6, 1e-6, "total TPS")
        equal(s.most_running, 2, "users at once")


def test_json_has_vllms_names():
    with Scripted(ttft=0.002, gap=0.001) as s:
        p, j = bench(s, "-n", 12, "-i", 64, "-o", 8, "--seed", 7)
        flat = {"date", "backend", "model_id", "tokenizer_id", "num_prompts", "request_rate", "burstiness", "max_concurrency", "duration", "completed", "failed",
                "total_input_tokens", "total_output_tokens", "request_throughput", "request_goodput", "output_throughput", "total_token_throughput", "seed", "weir"}
        equal(set(j), flat | {f"{a}_{m}_ms" for m in ("ttft", "tpot", "itl", "e2el") for a in ("mean", "median", "std", "p50", "p90", "p95", "p99")})
        equal((j["backend"], j["model_id"], j["num_prompts"], j["max_concurrency"], j["seed"]), ("openai-chat", "scripted", 12, 1, 7))
        equal((j["completed"], j["failed"], j["total_input_tokens"], j["total_output_tokens"]), (12, 0, 12 * 64, 12 * 8))
        equal(j["weir"]["cached_input_tokens"], 12 * 16)
        equal(j["p90_ttft_ms"] is not None, True)
        equal((j["p95_ttft_ms"], j["p99_ttft_ms"]), (None, None), "12 samples say nothing of P95")
        lo, hi = j["weir"]["samples"]["ttft"]["p50_ci95_ms"]
        assert lo <= j["median_ttft_ms"] <= hi, j


def test_many_samples_show_p999():
    with Scripted(ttft=0, gap=0, tokens=60) as s:
        p, j = bench(s, "-n", 20, "-c", 4, "-o", 60)
        has(p.stdout, "P99.9")
        assert j["p99.9_itl_ms"] >= j["p99_itl_ms"] and "p99.9_ttft_ms" not in j


def test_table_says_what_it_shows():
    with Scripted(ttft=0.002, gap=0.001) as s:
        p = run("bench", "--url", s.url, "-n", 12, "-o", 8)
        equal((p.returncode, p.stderr), (0, ""), "no progress line without a terminal")
        for part in ("latency, ms", "mean", "P50", "P99", "TTFT", "ITL", "ICL", "e2e", "95 % interval", "n/a: too few samples", "tok/s", "RPS", "12 completed, 0 failed",
                     f"{s.url}/v1, model scripted", "1 user in a closed loop, 128 tokens in, 8 out, streamed, seed "):
            has(p.stdout, part)
        widest = max(map(len, p.stdout.splitlines()[3:]))
        assert widest <= 120, f"a line of {widest} columns"


def test_prompts_are_as_long_as_asked_and_all_different():
    with Scripted(ttft=0, gap=0) as s:
        bench(s, "-n", 20, "-c", 3, "-i", 200, "-o", 4)
        posts = s.posts()
        equal([30 + len(r.text().split()) for r in posts[PREP:]], [200] * 20)
        equal(len({r.text() for r in posts}), len(posts))
        b = posts[-1].json
        equal((b["max_tokens"], b["ignore_eos"], b["stream"], b["stream_options"], b["temperature"]), (4, True, True, {"include_usage": True}, 0))


def test_seed_repeats_the_prompts():
    texts = []
    with Scripted(ttft=0, gap=0) as s:
        for seed in (5, 5, 6):
            del s.requests[:]
            bench(s, "-n", 3, "--seed", seed)
            texts.append([r.text() for r in s.posts()])
    assert texts[0] == texts[1] and texts[0] != texts[2]


FAULTS = {"500": "HTTP 500: the scripted fault", "429": "HTTP 429: slow down", "502-bare": "HTTP 502 without a message", "cut": "broke before the answer was complete",
          "cut-clean": "the stream ended before it was complete", "malformed": "a chunk that is not JSON", "error-event": "the engine fell over",
          "empty": "the answer has no output"}


def test_failed_requests_are_counted_and_never_timed():
    kinds = ["ok", *FAULTS] * 2
    with Scripted(behave=lambda r: "ok" if r.n <= PREP else kinds[(r.n - PREP - 1) % len(kinds)]) as s:
        p, j = bench(s, "-n", len(kinds), "-o", 8)
        equal(p.returncode, 1)
        equal((j["completed"], j["failed"]), (2, 2 * len(FAULTS)))
        equal(j["total_output_tokens"], 2 * 8)
        equal({k: v["n"] for k, v in j["weir"]["samples"].items()}, {"ttft": 2, "tpot": 2, "itl": 14, "e2el": 2})
        agree(j, [r for r in s.posts()[PREP:] if r.how == "ok"])
        equal(sum(e["count"] for e in j["weir"]["errors"]), 2 * len(FAULTS))
        seen = " | ".join(f"{e['count']} {e['error']}" for e in j["weir"]["errors"])
        for kind, words in list(FAULTS.items())[:7]:
            has(seen, words)
        has(seen, "2 other reasons")  # eight kinds are kept: seven by name
        has(p.stdout, "2 completed, 16 failed")
        has(p.stdout, "2 x HTTP 429: slow down")


def test_each_fault_alone():
    for kind, words in FAULTS.items():
        with Scripted(behave=lambda r: "ok" if r.n <= PREP else kind, ttft=0.001, gap=0.001) as s:
            p, j = bench(s, "-n", 3, "-o", 8)
            equal((p.returncode, j["completed"], j["failed"]), (1, 0, 3), kind)
            has(j["weir"]["errors"][0]["error"], words)
            has(p.stdout, "0 completed, 3 failed")
            has(p.stdout, words)
            assert "TTFT" not in p.stdout and j["mean_ttft_ms"] is None, "a table of nothing"


def test_no_usage():
    with Scripted(behave=lambda r: "no-usage", ttft=0.001, gap=0.001) as s:
        p, j = bench(s, "-n", 4, "-o", 8, "-i", 50)
        equal((p.returncode, j["completed"], j["total_output_tokens"], j["total_input_tokens"], j["weir"]["without_usage"]), (0, 4, 32, 0, 4))
        has(p.stdout, "4 answers came without usage: their output is counted in chunks")
        has(p.stdout, "prompts have 50 words")
        equal(len(s.posts()[-1].text().split()), 50)


def test_whole_answers():
    with Scripted() as s:
        p, j = bench(s, "-n", 4, "-o", 8, "--no-stream")
        equal((p.returncode, j["completed"], j["total_output_tokens"]), (0, 4, 32))
        assert not any("ttft" in k or "itl" in k or "tpot" in k for k in j), sorted(j)
        assert all("stream" not in r.json for r in s.posts())
        near(j["mean_e2el_ms"], mean([1e3 * (r.last - r.accepted) for r in s.posts()[PREP:]]), 0, SLACK, "e2e")
        assert "TTFT" not in p.stdout and "e2e" in p.stdout
    for kind, words in {"malformed": "the answer is not JSON", "empty": "the answer has no output", "500": "the scripted fault"}.items():
        with Scripted(behave=lambda r: "ok" if r.n <= PREP else kind, ttft=0, gap=0) as s:
            p, j = bench(s, "-n", 2, "-o", 8, "--no-stream")
            equal((p.returncode, j["failed"]), (1, 2), kind)
            has(p.stdout, words)


def test_reasoning_is_output():
    with Scripted(behave=lambda r: "reasoning") as s:
        p, j = bench(s, "-n", 3, "-o", 8)
        agree(j, s.posts()[PREP:])
        equal(j["weir"]["samples"]["itl"]["n"], 21)


def test_completions():
    with Scripted(ttft=0, gap=0) as s:
        p, j = bench(s, "-n", 3, "-o", 8, "--completions", "--allow-eos")
        equal((p.returncode, j["completed"], j["backend"]), (0, 3, "openai"))
        equal({r.path for r in s.posts()}, {"/v1/completions"})
        assert all("ignore_eos" not in r.json for r in s.posts())


def test_url_as_people_paste_it():
    with Scripted(ttft=0, gap=0) as s:
        for tail, base in (("", "/v1"), ("/", "/v1"), ("/v1/", "/v1"), ("/v1/chat/completions", "/v1"), ("/v1beta/openai", "/v1beta/openai")):
            del s.requests[:]
            p, _ = bench(s.url + tail, "-n", 1)
            equal(p.returncode, 0, tail + p.stderr)
            equal({r.path for r in s.requests}, {base + "/models", base + "/chat/completions"})


def test_faults_of_the_command_line():
    for url in ("127.0.0.1:8080", "ftp://127.0.0.1", "http://", "http://127.0.0.1/v1?x=y"):
        p, _ = bench(url)
        equal((p.returncode, p.stdout), (2, ""), url)
        has(p.stderr, "URL")
    for args, part in ((("-c", 0), "concurrency"), (("-n", "x"), "requests"), (("--no-such",), "no-such"), (("--key-env", "NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE"), (("extra",), "extra")):
        p, _ = bench("http://127.0.0.1:9", *args)
        equal(p.returncode, 2, p.stderr)
        has(p.stderr, part)


def test_nobody_there():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        for args in ((), ("-m", "x")):
            p, j = bench(url, *args)
            equal((p.returncode, p.stdout, j), (4, "", None))
            has(p.stderr, f"cannot connect to {url}/v1/")
            has(p.stderr, "is the server running?")


def test_unknown_model():
    with Scripted() as s:
        p, j = bench(s, "-m", "nobody")
        equal((p.returncode, j), (3, None), p.stderr)
        has(p.stderr, "HTTP 404: The model 'nobody' does not exist")
    with Scripted(models=()) as s:
        p, _ = bench(s)
        equal(p.returncode, 3)
        has(p.stderr, "names no model")
        has(p.stderr, "--model")


def test_probe_that_fails_ends_the_run():
    for how, status in (("500", 4), ("429", 1), ("400", 3), ("503", 1)):
        with Scripted(behave=lambda r: how, ttft=0) as s:
            p, j = bench(s)
            equal((p.returncode, j, len(s.posts())), (status, None, 1), p.stderr)
            has(p.stderr, f"the first probe request to {s.url}/v1 failed: HTTP {how}")


def test_key_is_sent_and_never_shown():
    secret = "sk-do-not-print-me"
    with Scripted(key=secret, ttft=0, gap=0, behave=lambda r: "ok") as s:
        p, j = bench(s, "-n", 2, OPENAI_API_KEY=secret)
        equal(p.returncode, 0, p.stderr)
        assert all(r.headers["authorization"] == f"Bearer {secret}" for r in s.requests)
        p2, _ = bench(s, "-n", 2, "--key-env", "MY_KEY", MY_KEY=secret, OPENAI_API_KEY="other")
        equal(p2.returncode, 0, p2.stderr)
        assert secret not in p.stdout + p.stderr + p2.stdout + p2.stderr + json.dumps(j)
        wrong = "sk-wrong-but-still-secret"  # the server quotes what it refuses
        for args in ((), ("-m", "scripted")):
            p, _ = bench(s, *args, OPENAI_API_KEY=wrong)
            equal(p.returncode, 1, p.stderr)
            has(p.stderr, "HTTP 401: Incorrect API key provided: ***")
            assert wrong not in p.stdout + p.stderr
        p, _ = bench(s.url.replace("http://", "http://me:pass@"), "-n", 1, OPENAI_API_KEY=secret)
        assert "pass" not in p.stdout + p.stderr and "me:" not in p.stdout


def interrupt(server, when, *args):
    path = os.path.join(TMP, "interrupted.json")
    p = subprocess.Popen([check.WEIR, "bench", "--url", server.url, "--json", path, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        server.wait(when)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=20)
    finally:
        p.kill()
    return p.returncode, out, err, path


def test_ctrl_c_keeps_what_was_measured():
    with Scripted(behave=lambda r: "ok" if r.n < 9 else "hang", ttft=0.001, gap=0.001) as s:
        status, out, err, path = interrupt(s, lambda s: sum(r.how == "hang" and r.sent for r in s.requests) == 3, "-c", 3, "-n", 100, "-o", 8)
        j = json.load(open(path))
        equal((status, j["completed"], j["failed"], j["weir"]["interrupted"], j["weir"]["sent"]), (130, 9 - 1 - PREP, 0, 3, 9 - 1 - PREP + 3))
        equal(j["weir"]["samples"]["ttft"]["n"], j["completed"])
        has(out, "5 completed, 0 failed, 3 interrupted")
        s.wait(lambda s: sum(r.left for r in s.requests) == 3)


def test_ctrl_c_before_there_is_anything():
    with Scripted(behave=lambda r: "hang-first") as s:
        status, out, err, path = interrupt(s, lambda s: s.running == 1)
        equal((status, out), (130, ""))
        has(err, "interrupted before the first measured request")


def test_json_that_cannot_be_written():
    with Scripted(ttft=0, gap=0) as s:
        p = run("bench", "--url", s.url, "-n", 1, "--json", os.path.join(TMP, "no", "such", "folder.json"))
        equal(p.returncode, 3)
        has(p.stderr, "folder.json: No such file")
        equal(s.requests, [], "told before the run")
        p = run("bench", "--url", s.url, "-n", 1, "--json", "/dev/full")
        equal(p.returncode, 1)
        has(p.stderr, "cannot write /dev/full: No space left")
        has(p.stdout, "1 completed")
        p = run("bench", "--url", s.url, "-n", 1, "--json", "-")
        equal(json.loads(p.stdout)["completed"], 1, "JSON alone on stdout")


def test_first_request_within_100_ms():
    with Scripted(ttft=0, gap=0) as s:
        best = 1e9
        for _ in range(5):
            del s.requests[:]
            began = time.monotonic()
            bench(s, "-n", 1)
            best = min(best, s.requests[0].accepted - began)
        print(f"process start to first request: {1e3 * best:.1f} ms (best of 5)")
        assert best < 0.1, f"{1e3 * best:.1f} ms"


tests(globals())
