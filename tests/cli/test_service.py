#!/usr/bin/env python3
"""As a service: what the manager is told and when, the unit, and the container's file (its image is not built here)."""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402

TMP = tempfile.mkdtemp()
TINY = os.path.join(check.SRC, "tests/golden/tiny/tiny-llama-q.gguf")
os.chdir(TMP)


def text(*path):
    return open(os.path.join(check.SRC, *path), encoding="utf-8").read()


def manager(name):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.settimeout(20)
    s.bind("\0" + name[1:] if name[0] == "@" else name)
    return s


def test_the_manager_is_told():
    for name in (os.path.join(TMP, "notify"), f"@weir-test-{os.getpid()}"):
        with manager(name) as m, check.Server("serve", TINY, "--port", "0", NOTIFY_SOCKET=name) as s:
            check.equal(m.recv(100), b"READY=1")
            s.p.send_signal(signal.SIGTERM)
            check.equal(m.recv(100), b"STOPPING=1")
            check.equal(s.p.wait(20), 0)


def test_no_manager_is_no_fault():
    for name in ("/nonexistent/socket", "relative", "@", "/" + "x" * 200):
        with check.Server("serve", TINY, "--port", "0", NOTIFY_SOCKET=name) as s:
            check.equal(check.run("health", s.url).returncode, 0)
    p = subprocess.run([check.WEIR, "serve", "/nonexistent.gguf", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       env=dict(os.environ, NOTIFY_SOCKET="/nonexistent/socket"))
    assert p.returncode in (1, 3), p.returncode


def test_unit():
    unit = text("deploy/weir.service")
    for line in ("Type=notify", "DynamicUser=yes", "CacheDirectory=weir", "StateDirectory=weir", "NoNewPrivileges=yes", "Restart=on-failure"):
        check.has(unit, line + "\n")
    tool = shutil.which("systemd-analyze")
    if not tool:
        raise check.Skip("systemd-analyze is not installed")
    folder = tempfile.mkdtemp(dir=TMP)

    def verify(body):
        path = os.path.join(folder, "weir.service")
        with open(path, "w") as f:
            f.write(body)
        r = subprocess.run([tool, "verify", "--man=no", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return [line for line in r.stdout.decode().splitlines() if "weir.service" in line]
    body = unit.replace("@bindir@/weir", check.WEIR)
    check.equal(verify(body), [])
    assert verify(body.replace("Restart=on-failure", "Restart=maybe")), "the control: a fault is seen"


def instructions(dockerfile):
    joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", dockerfile, flags=re.M))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def test_dockerfile():
    steps = instructions(text("Dockerfile"))
    words = dict(steps)
    final = max(i for i, s in enumerate(steps) if s[0] == "FROM")
    assert final > 0, "the tools of the build would be shipped"
    last = steps[final:]
    users = [a for w, a in last if w == "USER"]
    assert users and users[-1] not in ("0", "root"), users
    check.has(words["HEALTHCHECK"], '"weir", "health"')
    entry = re.findall(r'"([^"]+)"', words["ENTRYPOINT"])
    check.equal(entry[:2], ["weir", "up"])
    # As it stands it refuses to be open to all; with a key it listens, as the image would be run.
    r = check.run(*entry[1:], "--port", "0", "--model", TINY)
    check.equal(r.returncode, 2)
    check.has(r.stderr, "--api-key-file")
    keys = os.path.join(TMP, "keys")
    with open(keys, "w") as f:
        f.write("a-key-of-this-test\n")
    with check.Server(*entry[1:], "--port", "0", "--model", TINY, "--api-key-file", keys) as s:
        check.equal(check.run("health", s.url.replace("0.0.0.0", "127.0.0.1")).returncode, 0)
    # What it installs to run with is what the program is linked to.
    run = next(a for w, a in last if w == "RUN")
    objdump = subprocess.run(["objdump", "-p", check.WEIR], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for lib in re.findall(r"NEEDED\s+lib([a-z0-9_]+?)[-.]", objdump.stdout.decode()):
        if lib in ("c", "m", "asan", "ubsan", "tsan", "gcc_s"):
            continue
        stem = {"crypto": "ssl", "ssl": "ssl", "z": "zlib", "event_core": "event-core", "event_extra": "event-extra", "event_pthreads": "event-pthreads"}
        assert re.search(rf"\b(lib)?{stem.get(lib, lib)}", run.replace("lib" + lib, lib)), (lib, run)


try:
    check.tests(globals())
finally:
    shutil.rmtree(TMP, ignore_errors=True)
