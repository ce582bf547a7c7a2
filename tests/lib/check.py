"""What the Python tests share: the three lines of the protocol (tests/README.md), running the binary, a server that is ended for sure."""
import itertools
import os
import re
import subprocess
import sys
import time
import traceback

WEIR = os.environ.get("WEIR") or os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "build", "weir"))
SRC = os.environ.get("WEIR_SRC") or os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
DEFAULT_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
_failed = 0
_server_number = itertools.count()


def ok(name):
    print(f"ok {name}", flush=True)


def fail(name, why):
    global _failed
    _failed += 1
    print(f"not ok {name}: {' '.join(str(why).split())[:1000]}", flush=True)


def skip(name, why):
    print(f"skip {name}: {why}", flush=True)


class Skip(Exception):
    pass


def tests(namespace):
    """Runs every test_* of the module in order of writing; an AssertionError is a failure, Skip a skip. Ends the program."""
    only = sys.argv[1:]
    for name, fn in list(namespace.items()):
        if not name.startswith("test_") or not callable(fn) or (only and name not in only):
            continue
        try:
            fn()
        except Skip as s:
            skip(name, s)
        except Exception as e:
            if not isinstance(e, AssertionError):
                traceback.print_exc()
            at = traceback.extract_tb(e.__traceback__)[-1]
            fail(name, f"{e or type(e).__name__} ({os.path.basename(at.filename)}:{at.lineno}: {at.line})")
        else:
            ok(name)
    sys.exit(1 if _failed else 0)


def equal(seen, want, what=""):
    assert seen == want, f"{what + ': ' if what else ''}expected {want!r}, saw {seen!r}"


def has(text, part):
    assert part in text, f"expected {part!r} in {text!r}"


def run(*args, stdin=b"", timeout=60, **env):
    """The binary with these arguments: .returncode, .stdout, .stderr as text. A variable given as None is taken out of the environment."""
    e = {k: v for k, v in dict(os.environ, **env).items() if v is not None}
    p = subprocess.run([WEIR, *map(str, args)], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, env=e)
    p.stdout, p.stderr = p.stdout.decode("utf-8", "replace"), p.stderr.decode("utf-8", "replace")
    return p


def model(file=DEFAULT_MODEL):
    """Path of a real model, or Skip."""
    folder = os.environ.get("WEIR_TEST_MODELS")
    path = os.path.join(folder, file) if folder else ""
    if not os.path.exists(path):
        raise Skip(f"{file} is not in WEIR_TEST_MODELS")
    return path


def not_under(kind, why):
    """Skips where script/sanitize runs this sanitizer ("address,undefined", "thread") and what is measured would be the sanitizer's."""
    if os.environ.get("WEIR_SANITIZED") == kind:
        raise Skip(f"under the {kind} sanitizer {why}")


class Server:
    """`weir ARGS` in the background until the `with` ends. url: the first http:// address it prints on stdout."""

    def __init__(self, *args, wait=30, **env):
        self.log = open(os.path.join(os.environ.get("TMPDIR", "/tmp"), f"server-{os.getpid()}-{next(_server_number)}.log"), "w+")
        self.p = subprocess.Popen([WEIR, *map(str, args)], stdout=subprocess.PIPE, stderr=self.log, stdin=subprocess.DEVNULL, env=dict(os.environ, **env))
        os.set_blocking(self.p.stdout.fileno(), False)
        self.url = self._find_url(time.monotonic() + wait)

    def _find_url(self, deadline):
        text = ""
        while time.monotonic() < deadline:
            text += (self.p.stdout.read() or b"").decode()
            m = re.search(r"https?://[^\s]+", text)
            if m:
                return m.group(0).rstrip("/")
            if self.p.poll() is not None:
                break
            time.sleep(0.01)
        self.stop()
        raise AssertionError(f"the server did not say where it listens: {text!r} {self.stderr()[-500:]!r}")

    def stderr(self):
        self.log.seek(0)
        return self.log.read()

    def stop(self):
        if self.p.poll() is None:
            self.p.terminate()
            try:
                self.p.wait(10)
            except subprocess.TimeoutExpired:
                self.p.kill()
                self.p.wait()
        return self.p.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
