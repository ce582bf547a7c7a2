#!/usr/bin/env python3
"""The manual page and the completions: every option of every command is in each of them, and the shells take them."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from check import Skip, Server, equal, has, run, tests  # noqa: E402

os.chdir(tempfile.mkdtemp())
SHELLS = ("bash", "zsh", "fish")
COMMANDS = re.findall(r"^  ([a-z]+) {2,}\S", run("--help").stdout, re.M)


def options(command):
    """From --help: [(flag, is on by default)]."""
    return [(f, bool(no)) for no, f in re.findall(r"^  (?:-\w, |    )--(\[no-\])?([a-z][\w-]*)", run(command, "--help").stdout, re.M) if f != "help"]


def man_section(text, command):
    m = re.search(rf'^\.SH "WEIR {command.upper()}"\n(.*?)(?=^\.SH )', text, re.M | re.S)
    return m.group(1) if m else ""


def in_man(text, command, flag):
    plain = man_section(text, command).replace("\\fR[\\fBno\\-\\fR]\\fB", "").replace("\\-", "-")
    return re.search(rf"--{flag}\\fR", plain) is not None


def block(shell, text, command):
    if shell == "fish":
        return "\n".join(line for line in text.splitlines() if f"__fish_seen_subcommand_from {command}'" in line)
    m = re.search(rf"^  {command}\)\n(.*?)^    ;;$", text, re.M | re.S)
    return m.group(1) if m else ""


def in_completion(shell, text, command, flag):
    form = {"bash": rf"['\s]--{flag}['\s]", "zsh": rf"'--{flag}\[", "fish": rf" -l {flag}\b(?!-)"}[shell]
    return re.search(form, block(shell, text, command)) is not None


def missing(texts):
    out = []
    for c in COMMANDS:
        for flag, no in options(c):
            if not in_man(texts["man"], c, flag):
                out.append(f"man: {c} --{flag}")
            for s in SHELLS:
                out += [f"{s}: {c} --{f}" for f in [flag] + (["no-" + flag] if no else []) if not in_completion(s, texts[s], c, f)]
    return out


def printed():
    return dict({s: run("help", "--completion", s).stdout for s in SHELLS}, man=run("help", "--man").stdout)


def test_every_option_is_everywhere():
    texts = printed()
    assert len(COMMANDS) >= 11 and sum(len(options(c)) for c in COMMANDS) > 60, COMMANDS
    equal(missing(texts), [])
    # The control: one option taken out of one command in one text is seen, though other commands keep theirs.
    for name, cut in (("man", "\\fB\\-\\-max\\-seqs\\fR"), ("bash", " --max-seqs"), ("zsh", "'--max-seqs["), ("fish", " -l max-seqs")):
        i = texts[name].rindex(cut)
        bad = dict(texts, **{name: texts[name][:i] + texts[name][i + len(cut):]})
        equal(missing(bad), [f"{name}: serve --max-seqs"])


def test_man_page_is_clean():
    text = run("help", "--man").stdout
    has(text, f'"{run("--version").stdout.strip()}"')
    for want in ("NAME", "SYNOPSIS", "FILES", "ENVIRONMENT", "EXIT STATUS"):
        has(text, f'.SH "{want}"')
    linter = shutil.which("mandoc")
    if linter:
        r = subprocess.run([linter, "-Tlint", "-Wwarning"], input=text.encode(), stdout=subprocess.PIPE)
        faults = [line for line in r.stdout.decode().splitlines() if "missing date" not in line]  # the page is the same for the same source
        equal(faults, [])
    elif not shutil.which("groff"):
        raise Skip("neither mandoc nor groff is installed")
    if shutil.which("groff"):
        r = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        equal(r.stderr.decode(), "")


def test_shells_parse():
    seen = 0
    for s in SHELLS:
        if shutil.which(s):
            seen += 1
            r = subprocess.run([s, "-n"], input=run("help", "--completion", s).stdout.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            equal((s, r.returncode, r.stderr.decode()), (s, 0, ""))
    if not seen:
        raise Skip("no shell is installed")


def bash(line):
    """What bash offers at the end of the line."""
    words = line.split(" ")
    code = run("help", "--completion", "bash").stdout + f"COMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; _weir; " \
        'printf "%s\\n" "${COMPREPLY[@]}"'
    r = subprocess.run(["bash", "--norc", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       env=dict(os.environ, PATH=os.path.dirname(os.environ.get("WEIR", "")) + ":" + os.environ["PATH"]))
    equal(r.stderr.decode(), "")
    return r.stdout.decode().split()


def test_bash_completes():
    if not shutil.which("bash"):
        raise Skip("no bash")
    equal(bash("weir ser"), ["serve"])
    equal(bash("weir serve --max-s"), ["--max-seqs"])
    equal(bash("weir serve --no-"), ["--no-prefix-cache"])
    equal(bash("weir serve --kv-type "), ["f16", "f32"])
    equal(bash("weir serve --port "), [])
    equal(bash("weir pull --max-s"), [])
    has(bash("weir serve smol"), "smollm2-135m")


def test_health():
    tiny = os.path.join(os.environ["WEIR_SRC"], "tests/golden/tiny/tiny-llama-q.gguf")
    with Server("serve", tiny, "--port", "0") as s:
        for args, word in (((), "ok"), (("--ready",), "ready")):
            r = run("health", s.url + "/", *args)
            equal((r.returncode, r.stdout, r.stderr), (0, word + "\n", ""))
    r = run("health", s.url)
    equal((r.returncode, r.stdout), (4, ""))
    has(r.stderr, s.url)
    equal(run("health", "not a url").returncode != 0, True)


tests(globals())
