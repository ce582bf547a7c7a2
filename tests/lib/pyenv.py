"""Environments for tests that need other people's Python or Node packages: made once, kept under the build folder."""
import os
import shutil
import subprocess
import sys

import check

ROOT = os.path.join(os.environ.get("WEIR_BUILD") or os.path.join(check.SRC, "build"), "sdk")


def quiet(args, timeout=400, **kw):
    """True, or the last line of what went wrong."""
    try:
        p = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, **kw)
    except (OSError, subprocess.TimeoutExpired) as e:
        return str(e)
    lines = p.stdout.decode("utf-8", "replace").strip().splitlines()
    return True if p.returncode == 0 else (lines[-1] if lines else f"exit status {p.returncode}")


def python(name, *pip):
    """The interpreter of the environment `name`, in which `pip install PIP` was run. Skip when the packages cannot be had.

    An environment is taken as it is only when it was made with the same arguments and by the same Python."""
    env = os.path.join(ROOT, name)
    exe, done = os.path.join(env, "bin", "python"), os.path.join(env, "done")
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}  # the tests' own helpers are not for pip
    want = "\n".join([sys.version, *pip, *(open(p).read() for p in pip if os.path.isfile(p))])
    if not os.path.exists(done) or open(done).read() != want:
        shutil.rmtree(env, ignore_errors=True)
        for step in ([sys.executable, "-m", "venv", env], [exe, "-m", "pip", "install", "-q", "--disable-pip-version-check", *pip]):
            why = quiet(step, env=clean)
            if why is not True:
                raise check.Skip(f"cannot install it: {why}")
        with open(done, "w") as f:
            f.write(want)
    return exe


def node(name, *npm):
    """The folder into which `npm install NPM` was run. Skip when node or the packages cannot be had."""
    folder = os.path.join(ROOT, name)
    done, want = os.path.join(folder, "done"), "\n".join(npm)
    if not shutil.which("node") or not shutil.which("npm"):
        raise check.Skip("node and npm are not installed")
    if not os.path.exists(done) or open(done).read() != want:
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        why = quiet(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, *npm], timeout=600)
        if why is not True:
            raise check.Skip(f"cannot install it: {why}")
        with open(done, "w") as f:
            f.write(want)
    return folder
