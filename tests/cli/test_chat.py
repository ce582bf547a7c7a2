#!/usr/bin/env python3
"""weir chat: piped and on a terminal, against a scripted server, and with a server of its own."""
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import check
from check import Skip, equal, has, model, run, tests
from scripted import Scripted
from terminal import Terminal

TMP = os.environ.get("TMPDIR", "/tmp")
TINY = os.path.join(check.SRC, "tests/golden/tiny/tiny-llama-f32.gguf")
ANSWER = "w0 w1 w2 w3 w4 w5 w6 w7 "
PROMPT, DIM_END = "> ", "]\n"


def quick(**kw):
    return Scripted(**dict({"ttft": 0.005, "gap": 0.001}, **kw))


def chat(server, *args, stdin="hi", **env):
    return run("chat", server if isinstance(server, str) else server.url, *args, stdin=stdin.encode() if isinstance(stdin, str) else stdin, **dict({"OPENAI_API_KEY": None}, **env))


def said(server):
    """The messages of the last question, as (role, text)."""
    return [(m["role"], m["content"]) for m in server.posts()[-1].json["messages"]]


# ---- piped ----

def test_piped_answer_alone_on_stdout():
    with quick(tokens=5) as s:
        p = chat(s, stdin="hi\n")
        equal((p.returncode, p.stdout), (0, "w0 w1 w2 w3 w4 \n"))
        equal(said(s), [("user", "hi")])
        for part in ("TTFT ", " tok/s", "31 in (16 cached)", "5 out", "cut at the length limit"):
            has(p.stderr, part)
        equal(p.stderr.count("\n"), 1)
        body = s.posts()[0].json
        equal(body["model"], "scripted")
        assert not {"temperature", "top_p", "max_tokens", "seed"} & set(body), "the server's own defaults are not overridden"
        p = chat(s, "--no-stats")
        equal((p.stdout, p.stderr), ("w0 w1 w2 w3 w4 \n", ""))


def test_piped_text_passes_unchanged():
    words = ["a\n", "  b\t", "\x1b[1mé", "中\u200b", "😀\n"]
    with quick(words=words) as s:
        p = run("chat", s.url, "--no-stats", stdin="  zwei\n\nZeilen \"ä\" \\n\x01 \n".encode())
        equal(p.stdout, "".join(words))
        equal(said(s), [("user", "zwei\n\nZeilen \"ä\" \\n\x01")])


def test_options_reach_the_server():
    with quick(models=("a", "b")) as s:
        p = chat(s, "-m", "b", "-s", "be brief", "--temperature", "0.5", "--top-p", "0.9", "-n", 3, "--seed", 7)
        equal(p.returncode, 0, p.stderr)
        body = s.posts()[0].json
        equal([body[k] for k in ("model", "temperature", "top_p", "max_tokens", "seed", "stream")], ["b", 0.5, 0.9, 3, 7, True])
        equal(said(s), [("system", "be brief"), ("user", "hi")])
        equal(len(s.requests), 1, "no list of models is asked for when one is named")


def test_messages_that_are_refused():
    with quick() as s:
        for stdin, part in ((b"", "no message on stdin"), (b" \n\t", "no message on stdin"), (b"a\xffb", "not valid UTF-8"), (b"x" * (9 << 20), "over 8388608 bytes")):
            p = chat(s, stdin=stdin)
            equal((p.returncode, p.stdout), (3, ""), part)
            has(p.stderr, part)
        equal(s.posts(), [])


def test_failures_have_words_and_a_status():
    for how, status, part in (("500", 4, "the scripted fault"), ("429", 1, "slow down"), ("503-bare", 1, "HTTP 503"), ("error-event", 4, "the engine fell over"),
                              ("cut", 4, "broke"), ("cut-clean", 4, "broke off"), ("malformed", 4, "not JSON")):
        with quick(behave=lambda r: how) as s:
            p = chat(s)
            equal(p.returncode, status, how + p.stderr)
            has(p.stderr, part)
            equal(p.stdout, "" if how[0].isdigit() else "w0 w1 \n", "what had come is there, and its line is ended")
            equal(p.stderr.count("\n"), 1, p.stderr)
    with quick() as s:
        p = chat(s, "-m", "nobody")
        equal(p.returncode, 3)
        has(p.stderr, "The model 'nobody' does not exist")
    with quick(models=()) as s:
        p = chat(s)
        equal(p.returncode, 3)
        has(p.stderr, "--model")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        p = chat(f"http://127.0.0.1:{free.getsockname()[1]}")
        equal(p.returncode, 4)
        has(p.stderr, "is the server running?")
    for url, part in (("http://", "not a base URL"), ("http://127.0.0.1/?a", "base URL")):
        p = chat(url)
        equal(p.returncode, 2, p.stderr)
        has(p.stderr, part)


def test_key_is_sent_and_never_shown():
    with quick(key="sk-secret-one") as s:
        p = chat(s, OPENAI_API_KEY="sk-secret-one")
        equal(p.returncode, 0, p.stderr)
        p = chat(s, "--key-env", "MINE", MINE="sk-secret-two")
        equal(p.returncode, 1)
        has(p.stderr, "Incorrect API key provided: ***")
        assert "secret" not in p.stdout + p.stderr
        p = chat(s, "--key-env", "NOT_THERE")
        equal(p.returncode, 2)
        has(p.stderr, "NOT_THERE")


def test_no_usage_counts_chunks():
    with quick(behave=lambda r: "no-usage") as s:
        has(chat(s).stderr, " tok/s | 8 out")


def test_ctrl_c_on_a_piped_answer():
    with quick(behave=lambda r: "hang") as s:
        p = subprocess.Popen([check.WEIR, "chat", s.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            p.stdin.write("hi")
            p.stdin.close()
            equal(p.stdout.read(3), "w0 ")
            p.send_signal(signal.SIGINT)
            equal((p.wait(20), p.stdout.read()), (130, "\n"))
            s.wait(lambda s: s.posts()[0].left)
        finally:
            p.kill()
            p.wait()


# ---- on a terminal ----

def session(server, *args, **env):
    t = Terminal("chat", server.url, *args, **dict({"XDG_DATA_HOME": os.path.join(TMP, f"data-{time.monotonic_ns()}")}, **env))
    try:
        t.expect("Ctrl-D leaves")
        t.expect(PROMPT)
    except BaseException:
        t.__exit__()
        raise
    return t


def ask(t, text, answer=ANSWER):
    t.line(text)
    t.expect(answer)
    t.expect(DIM_END)
    t.expect(PROMPT)


def test_conversation_and_its_end():
    with quick() as s, session(s, "-s", "be kind") as t:
        ask(t, "one")
        ask(t, "two")
        equal(said(s), [("system", "be kind"), ("user", "one"), ("assistant", ANSWER), ("user", "two")])
        t.line("")  # an empty line asks nothing
        t.expect(PROMPT)
        t.line("   ")
        t.expect(PROMPT)
        equal(len(s.posts()), 2)
        for part in ("TTFT ", " tok/s | ", "in (16 cached) | 8 out"):
            has(t.text(), part)
        t.type("\x04")
        equal(t.ends(), 0)
        flags = termios.tcgetattr(t.master)[3]
        equal(bool(flags & termios.ECHO and flags & termios.ICANON), True, "the terminal is as it was")


def test_no_stats_on_a_terminal():
    with quick() as s, session(s, "--no-stats") as t:
        t.line("one")
        t.expect(ANSWER)
        t.expect(PROMPT)
        assert "TTFT" not in t.text()


def test_line_editing():
    with quick() as s, session(s) as t:
        for keys, line in (("hellp\bo", "hello"), ("ello\x01h", "hello"), ("wrong\x15right", "right"), ("bc\x1b[D\x1b[Da", "abc"), ("one two\x17three", "one three"),
                           ("grün\x7f\x7fau", "grau"), ("a中b\x1b[D\x7fo", "aob"), ("keep rest\x1b[D\x1b[D\x1b[D\x1b[D\x0b", "keep ")):
            ask(t, keys)
            equal(said(s)[-1], ("user", line.strip()), repr(keys))


def test_history():
    data = os.path.join(TMP, "history-data")
    with quick() as s:
        with session(s, XDG_DATA_HOME=data) as t:
            ask(t, "first")
            ask(t, "second")
            ask(t, "\x1b[A\x1b[A")
            equal(said(s)[-1], ("user", "first"), "up, up")
            ask(t, "\x1b[A\x1b[A\x1b[B!")
            equal(said(s)[-1], ("user", "first!"), "up, up, down")
            t.type("\x04")
            t.ends()
        path = os.path.join(data, "weir", "chat_history")
        equal(stat.S_IMODE(os.stat(path).st_mode), 0o600, "what people ask is theirs")
        with session(s, XDG_DATA_HOME=data) as t:
            ask(t, "\x1b[A")
            equal(said(s), [("user", "first!")], "of the session before")
            ask(t, "\x12seco")
            equal(said(s)[-1], ("user", "second"), "searched for")


def test_several_lines():
    with quick() as s, session(s) as t:
        t.line("one\\")
        t.expect("... ")
        t.line("two\\")
        t.expect("... ")
        ask(t, "three")
        equal(said(s)[-1], ("user", "one\ntwo\nthree"))
        t.line('"""def f():')
        t.expect("... ")
        t.line("  return 1\\")
        t.expect("... ")
        t.line("")
        t.expect("... ")
        ask(t, 'end"""')
        equal(said(s)[-1], ("user", "def f():\n  return 1\\\n\nend"))
        ask(t, '"""one line"""')
        equal(said(s)[-1], ("user", "one line"))
        ask(t, "\x1b[A\x1b[A")  # a message of several lines comes back whole
        equal(said(s)[-1], ("user", "def f():\n  return 1\\\n\nend"))
        n = len(s.posts())
        t.line('"""dropped')
        t.expect("... ")
        t.type("\x03")
        t.expect(PROMPT)
        t.line("half\\")
        t.expect("... ")
        t.type("\x04")
        t.expect("not finished")
        t.expect(PROMPT)
        ask(t, "after")
        equal((said(s)[-1], len(s.posts())), (("user", "after"), n + 1))


def test_commands():
    path = os.path.join(TMP, "saved.json")
    with quick() as s, session(s, HOME=TMP) as t:
        ask(t, "one")
        t.line("/system be brief")
        t.expect("system message set")
        ask(t, "two")
        equal(said(s), [("system", "be brief"), ("user", "one"), ("assistant", ANSWER), ("user", "two")])
        t.line("/save ~/saved.json")
        t.expect(f"saved to {path}: 2 turns")
        t.line("/reset")
        t.expect("conversation cleared")
        ask(t, "three")
        equal(said(s), [("system", "be brief"), ("user", "three")], "the system message stays")
        t.line("/system")
        t.expect("system message removed")
        ask(t, "four")
        equal(said(s)[0], ("user", "three"))
        t.line("/load " + path)
        t.expect("loaded")
        t.expect("2 turns")
        ask(t, "five")
        equal(said(s), [("system", "be brief"), ("user", "one"), ("assistant", ANSWER), ("user", "two"), ("assistant", ANSWER), ("user", "five")])
        t.line("/stats")
        t.expect("scripted: 5 answers, ")
        t.expect("40 out, mean TTFT ")
        t.line("/help")
        for part in ("/system", "/reset", "/save", "/load", "/stats", "/help", "/quit", "Ctrl-C"):
            t.expect(part)
        t.line("/quit")
        equal(t.ends(), 0)
    doc = json.load(open(path))
    equal((doc["model"], [m["role"] for m in doc["messages"]]), ("scripted", ["system", "user", "assistant", "user", "assistant"]))


def test_commands_that_cannot_be_done():
    bad = os.path.join(TMP, "bad.json")
    with quick() as s, session(s) as t:
        for line, part in (("/nonsense now", "no command '/nonsense'"), ("/save", "/save takes a file name"), ("/load", "/load takes a file name"),
                           ("/load /no/such/file", "/no/such/file"), ("/save /no/such/file", "/no/such/file")):
            t.line(line)
            t.expect("\n")  # past the echo of what was typed
            t.expect(part)
            t.expect(PROMPT)
        for text in ("not json", '{"messages": 1}', '{"messages": [{"role": "user"}]}', '[{"content": "x"}]', "[1]"):
            open(bad, "w").write(text)
            t.line("/load " + bad)
            t.expect("\n")
            t.expect("bad.json")
            t.expect(PROMPT)
        ask(t, "still here")
        equal(said(s), [("user", "still here")])


def test_ctrl_c_stops_the_answer_only():
    how = ["hang"]
    with quick(behave=lambda r: how[0]) as s, session(s) as t:
        t.line("long one")
        t.expect("w0 ")
        t.type("\x03")
        t.expect("stopped]")
        t.expect(PROMPT)
        s.wait(lambda s: s.posts()[0].left)
        how[0] = "ok"
        ask(t, "next")
        equal(said(s), [("user", "long one"), ("assistant", "w0 "), ("user", "next")], "what had come is part of the conversation")
        how[0] = "hang-first"
        t.line("never answered")
        s.wait(lambda s: len(s.posts()) == 3)
        t.type("\x03")
        t.expect("stopped]")
        t.expect(PROMPT)
        s.wait(lambda s: s.posts()[2].left)
        how[0] = "ok"
        ask(t, "last")
        equal([m for m in said(s) if m[0] == "user"], [("user", "long one"), ("user", "next"), ("user", "last")], "a question without any answer is taken back")


def test_ctrl_c_at_the_prompt():
    with quick() as s, session(s) as t:
        for _ in range(3):
            t.type("half a line")
            t.expect("half a line")
            t.type("\x03")
            t.expect(PROMPT)
        ask(t, "whole")  # and the signals from before do not stop this answer
        equal(said(s), [("user", "whole")])
        assert "stopped" not in t.text()


def test_failed_answer_is_told_and_the_question_taken_back():
    how = ["500"]
    with quick(behave=lambda r: how[0]) as s, session(s) as t:
        t.line("one")
        t.expect("the scripted fault")
        t.expect(PROMPT)
        how[0] = "cut"
        t.line("two")
        t.expect("w0 w1 \n")
        t.expect("broke")
        t.expect(PROMPT)
        how[0] = "ok"
        ask(t, "three")
        equal(said(s), [("user", "three")])


def test_server_that_goes_away():
    with quick() as s, session(s) as t:
        ask(t, "one")
        s.__exit__()
        t.line("two")
        t.expect("is the server running?")
        t.expect(PROMPT)
        t.type("\x04")
        equal(t.ends(), 0)


def test_answers_do_not_control_the_terminal():
    with quick(words=["a\x1b]0;title\x07", "b\x1b[2J", "c\x9b31m", "d\x00\r", "e\tf\n", "é中"]) as s, session(s) as t:
        at = len(t.raw)
        t.line("x")
        t.expect(DIM_END)
        answer = t.raw[at:].split(b"\r\n\x1b[2m")[0]
        has(answer.decode(), "a]0;titleb[2Jc31mde\tf\r\né中")
        assert not set(answer.split(b"\n", 1)[1]) & {0x1B, 0x07, 0}, answer
        equal(s.posts()[0].how, "ok")
        t.expect(PROMPT)
        t.line("y")
        t.expect(DIM_END)
        equal(said(s)[1][1], "a\x1b]0;title\x07b\x1b[2Jc\x9b31md\x00\re\tf\né中", "the conversation itself is unchanged")


# ---- a server of its own ----

def children(pid):
    found = []
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{p}/stat") as f:
                if int(f.read().rsplit(")", 1)[1].split()[1]) == pid:
                    found.append(int(p))
        except OSError:
            pass
    return found


def gone(pid, seconds=10):
    """Ended; who reaps it, now that its parent has gone, is not its business."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as f:
                if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_child_serves_a_piped_question():
    p = run("chat", TINY, "-n", 4, stdin=b"hi")
    equal(p.returncode, 0, p.stderr)
    has(p.stderr, " 4 out")
    equal(p.stderr.count("\n"), 1, p.stderr)
    again = run("chat", TINY, "-n", 12, "--seed", 5, stdin=b"hi").stdout, run("chat", TINY, "-n", 12, "--seed", 5, stdin=b"hi").stdout
    equal(*again, "the same seed gives the same answer")
    assert run("chat", TINY, "-n", 12, "--seed", 6, stdin=b"hi").stdout != again[0], "another seed gave the same answer"


def own(how_it_ends):
    """A chat with a server of its own; how_it_ends gets the terminal and the server's pid. No server may be left."""
    with Terminal("chat", TINY, "-n", 40, XDG_DATA_HOME=os.path.join(TMP, "own")) as t:
        t.expect("Ctrl-D leaves")
        t.expect(PROMPT)
        kids = children(t.p.pid)
        equal(len(kids), 1, "one server")
        with open(f"/proc/{kids[0]}/cmdline") as f:
            has(f.read(), "serve")
        t.line("hi")
        t.expect(" out")
        t.expect(PROMPT)
        how_it_ends(t, kids[0])
        assert gone(kids[0]), "the server outlives the chat"


def test_child_ends_with_the_chat():
    def leave(t, kid):
        t.type("\x04")
        equal(t.ends(), 0)
    own(leave)


def test_child_ends_when_the_chat_is_killed():
    for signo in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
        def kill(t, kid):
            t.p.send_signal(signo)
            equal(t.ends(), -signo)
        own(kill)


def test_ctrl_c_does_not_reach_the_child():
    def interrupt(t, kid):
        for _ in range(2):
            t.type("\x03")
            t.expect(PROMPT)
        t.line("again")
        t.expect(" out")
        t.expect(PROMPT)
        equal(children(t.p.pid), [kid])
        t.type("\x04")
        equal(t.ends(), 0)
    own(interrupt)


def test_child_that_dies_is_an_error_of_one_question():
    def die(t, kid):
        os.kill(kid, signal.SIGKILL)
        t.line("anyone?")
        t.expect("/v1/chat/completions")  # cannot connect, or the connection broke: it depends on how far the kernel is with ending it
        t.expect(PROMPT)
        t.type("\x04")
        equal(t.ends(), 0)
    own(die)


def test_child_that_cannot_start():
    for what, status, part in ((os.path.join(check.SRC, "README.md"), 3, "no GGUF"), ("/no/such.gguf", 3, "/no/such.gguf"), ("no-such-model-name", 3, "no-such-model-name")):
        p = run("chat", what, stdin=b"hi")
        equal((p.returncode, p.stdout), (status, ""), p.stderr)
        has(p.stderr, part)
        said = p.stderr.replace(what, "")  # the clone's folder may be called weir
        equal(said.count("weir"), said.count("weir chat: ") + said.count("`weir"), "said once, in the chat's name")


def test_default_model_answers():
    path = model()
    p = run("chat", path, "--temperature", 0, "-n", 40, stdin=b"What is the capital of France? Answer in one word.", timeout=120)
    equal(p.returncode, 0, p.stderr)
    has(p.stdout, "Paris")
    has(p.stderr, "TTFT")


tests(globals())
