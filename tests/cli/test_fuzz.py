#!/usr/bin/env python3
"""script/fuzz itself: a planted out-of-bounds read is found within a minute, the same target without it is quiet, and every target has inputs that are kept.
Needs clang with libFuzzer; the first run builds build-fuzz."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402

FUZZ = os.path.join(check.SRC, "script", "fuzz")


def fuzz(*args, timeout=590):
    p = subprocess.run([FUZZ, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=timeout)
    return p.returncode, p.stdout.decode("utf-8", "replace")


def need_libfuzzer():
    cc = os.environ.get("CC", "clang")
    if not shutil.which(cc):
        raise check.Skip(f"{cc} is not here")
    with tempfile.TemporaryDirectory() as d:
        src = os.path.join(d, "t.c")
        with open(src, "w") as f:
            f.write("int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n);\n"
                    "int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n) { return n && *p ? 0 : 0; }\n")
        if subprocess.run([cc, "-fsanitize=fuzzer,address", src, "-o", os.path.join(d, "t")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            raise check.Skip(f"{cc} has no libFuzzer")


def test_every_target_keeps_inputs():
    status, text = fuzz("--list")
    check.equal(status, 0, text)
    rows = [line.split() for line in text.splitlines()]
    assert len(rows) > 10, text
    for name, inputs, *_ in rows:
        assert name.endswith("_plant") or int(inputs) > 0, f"{name} has no corpus"
        if not name.endswith("_plant"):
            size = os.path.getsize(os.path.join(check.SRC, "fuzz", "corpus", f"{name}.pack.gz"))
            assert size < 300_000, f"the corpus of {name} is {size} bytes"


def test_wrong_usage():
    for args in ((), ("no-such-target", 1), ("gguf", "soon")):
        status, text = fuzz(*args)
        assert status not in (0, -6) and "script/fuzz" in text, text


def test_a_planted_fault_is_found():
    need_libfuzzer()
    fuzz("gguf_plant", 0)  # builds it; 0 seconds find nothing
    start = time.monotonic()
    status, text = fuzz("gguf_plant", 60)
    took = time.monotonic() - start
    check.equal(status, 1, text)
    check.has(text, "heap-buffer-overflow")
    assert took < 75, f"found after {took:.0f} s"
    found = re.search(r"input (\S+)", text).group(1)
    assert os.path.exists(found)
    status, text = fuzz("gguf", found)  # the same bytes, the reader without the fault
    check.equal(status, 0, text[-2000:])
    shutil.rmtree(os.path.dirname(found))


def test_the_target_without_it_is_quiet():
    need_libfuzzer()
    status, text = fuzz("gguf", 5)
    check.equal(status, 0, text)
    check.has(text, "executions")


check.tests(globals())
