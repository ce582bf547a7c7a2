#!/usr/bin/env python3
"""The doors every command shares: help, version, names that are not there, exit status, the configuration file."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from check import WEIR, equal, has, run, tests  # noqa: E402

HELP = run("--help").stdout
COMMANDS = re.findall(r"^  ([a-z]+) {2,}\S", HELP, re.M)
os.chdir(tempfile.mkdtemp())  # no weir.yaml here


def test_help_lists_commands():
    assert {"pull", "models", "config"} <= set(COMMANDS), COMMANDS
    equal(run("help").stdout, HELP)
    equal(run("-h").stdout, HELP)
    r = run()
    equal((r.returncode, r.stdout, r.stderr), (2, "", HELP))


def test_every_command_has_help():
    for c in COMMANDS:
        r = run(c, "--help")
        equal((r.returncode, r.stderr), (0, ""), c)
        has(r.stdout, f"usage: weir {c} [options]")
        equal(run("help", c).stdout, r.stdout, c)
        equal(run(c, "--nonsense", "--help").stdout, r.stdout, c + ": help wins over faults")
        for line in r.stdout.splitlines():
            assert len(line) <= 100 or " " not in line.strip(), line


def test_version():
    for form in ("--version", "version"):
        r = run(form)
        equal(r.returncode, 0)
        assert re.fullmatch(r"weir \d+\.\d+\.\d+\n", r.stdout), r.stdout


def test_unknown_command():
    r = run("modles")
    equal((r.returncode, r.stdout), (2, ""))
    has(r.stderr, "no command 'modles': did you mean `weir models`?")
    r = run("xyzzy")
    equal(r.returncode, 2)
    assert "did you mean" not in r.stderr
    equal(run("help", "xyzzy").returncode, 2)


def test_unknown_option():
    for c in COMMANDS:
        r = run(c, "--nonsense-option")
        equal((r.returncode, r.stdout), (2, ""), c)
        has(r.stderr, "--nonsense-option")
        has(r.stderr, f"weir {c} --help tells more")


def test_help_is_quick():
    for args in (["--help"], ["pull", "--help"], ["--version"]):
        best = min(timed(args) for _ in range(30))
        assert best < 5, f"{args}: {best:.2f} ms at best"


def timed(args):
    t = time.perf_counter()
    subprocess.run([WEIR, *args], stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - t) * 1000


def test_lost_output_is_a_failure():
    with open("/dev/full", "w") as full:
        p = subprocess.run([WEIR, "--help"], stdout=full, stderr=subprocess.PIPE)
    equal(p.returncode, 1)
    has(p.stderr.decode(), "cannot write the result")


def test_reader_that_leaves():
    p = subprocess.Popen([WEIR, "config", "sample"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.close()
    err = p.stderr.read()
    equal((p.wait(), err), (0, b""))


def test_sample_is_good():
    sample = run("config", "sample").stdout
    open("weir.yaml", "w").write(sample)
    r = run("config", "check")
    equal((r.returncode, r.stdout), (0, "weir.yaml: good\n"), r.stderr)
    live = re.sub(r"(?m)^( *)#(?! )", r"\1", sample)
    assert live.count("\n") == sample.count("\n") and live != sample
    open("live.yaml", "w").write(live)
    r = run("config", "check", "live.yaml")
    equal(r.returncode, 0, r.stderr)
    os.unlink("weir.yaml")


def test_check_names_every_fault():
    open("bad.yaml", "w").write("nonsense: 1\nother:\n  x: 2\n")
    r = run("config", "check", "bad.yaml")
    equal(r.returncode, 3)
    has(r.stderr, "bad.yaml: unknown key nonsense")
    has(r.stderr, "unknown key other")
    rows = [json.loads(line) for line in run("config", "check", "bad.yaml", "--json").stdout.splitlines()]
    equal([row["key"] for row in rows], ["nonsense", "other"])
    open("bad.yaml", "w").write("a: [1\n")
    r = run("config", "check", "bad.yaml")
    equal(r.returncode, 3)
    has(r.stderr, "bad.yaml:2:1")


def test_check_without_a_file():
    r = run("config", "check")
    equal(r.returncode, 3)
    has(r.stderr, "weir config sample > weir.yaml")
    r = run("config", "check", "no/such.yaml")
    equal(r.returncode, 3)
    has(r.stderr, "no/such.yaml")
    equal(run("config", "frobnicate").returncode, 2)
    equal(run("config").returncode, 2)


def test_models_table():
    r = run("models", XDG_CACHE_HOME=os.getcwd())
    equal(r.returncode, 0)
    has(r.stdout, "smollm2-135m")
    equal(len(json.loads(run("models", "--json", XDG_CACHE_HOME=os.getcwd()).stdout)), 7)
    r = run("models", HOME=None, XDG_CACHE_HOME=None)
    equal(r.returncode, 1)
    has(r.stderr, "neither XDG_CACHE_HOME nor HOME is set")


tests(globals())
