#!/usr/bin/env python3
"""script/package: the tarball is the same bytes twice and runs from where it is unpacked; the .deb installs what it says, and runs."""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402

SRC, TMP = check.SRC, tempfile.mkdtemp()
VERSION = check.run("--version").stdout.split()[1]
TINY = os.path.join(SRC, "tests/golden/tiny/tiny-llama-q.gguf")
ENV = dict(os.environ, WEIR_PACKAGE_BUILD=os.path.join(os.environ.get("WEIR_BUILD", TMP), "package"), SOURCE_DATE_EPOCH="1700000000")
_made = {}


def make(kind, folder="out", **env):
    key = (kind, folder)
    if key not in _made:
        p = subprocess.run([os.path.join(SRC, "script/package"), kind, os.path.join(TMP, folder)], env=dict(ENV, **env), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
        check.equal(p.returncode, 0, p.stderr.decode()[-800:])
        _made[key] = p.stdout.decode().strip()
    return _made[key]


def deb():
    for tool in ("dpkg-deb", "dpkg-shlibdeps"):
        if not shutil.which(tool):
            raise check.Skip(f"{tool} is not installed")
    return make("deb")


def sha(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def serves(weir):
    """The program at this path is whole: it answers a request and its own health check."""
    was, check.WEIR = check.WEIR, weir
    try:
        check.equal(check.run("--version").stdout, f"weir {VERSION}\n")
        with check.Server("serve", TINY, "--port", "0") as s:
            check.equal(check.run("health", s.url, "--ready").stdout, "ready\n")
    finally:
        check.WEIR = was


def test_usage():
    p = subprocess.run([os.path.join(SRC, "script/package"), "rpm"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check.equal((p.returncode, p.stdout), (2, b""))
    check.has(p.stderr.decode(), "usage: script/package")


def test_tarball():
    path = make("tarball")
    check.equal(os.path.basename(path), f"weir-{VERSION}-linux-{os.uname().machine}.tar.gz")
    with tarfile.open(path) as t:
        names = t.getnames()
        for m in t.getmembers():
            check.equal((m.uid, m.gid, m.mtime), (0, 0, 1700000000), m.name)
        top = names[0]
        for want in ("bin/weir", "share/man/man1/weir.1", "share/bash-completion/completions/weir", "share/zsh/site-functions/_weir",
                     "share/fish/vendor_completions.d/weir.fish", "lib/systemd/system/weir.service", "README.md", "LICENSE", "share/doc/weir/CHANGELOG.md"):
            assert f"{top}/{want}" in names, (want, names)
        t.extractall(os.path.join(TMP, "tar"))
    weir = os.path.join(TMP, "tar", top, "bin/weir")
    serves(weir)
    assert SRC.encode() not in open(weir, "rb").read(), "the program knows where it was built"


def test_tarball_is_reproducible():
    check.equal(sha(make("tarball", "again")), sha(make("tarball")))
    assert sha(make("tarball", "later", SOURCE_DATE_EPOCH="1700000001")) != sha(make("tarball")), "the comparison sees nothing"


def test_install_honours_destdir_and_prefix():
    build, root = ENV["WEIR_PACKAGE_BUILD"], os.path.join(TMP, "dest")
    make("tarball")
    subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet"], env=dict(ENV, DESTDIR=root), check=True, stdout=subprocess.PIPE)
    check.equal(os.listdir(root), ["usr"])
    check.has(open(os.path.join(root, "usr/lib/systemd/system/weir.service")).read(), "ExecStart=/usr/bin/weir up\n")


def test_deb():
    path, root = deb(), os.path.join(TMP, "deb")
    info = subprocess.run(["dpkg-deb", "-f", path], stdout=subprocess.PIPE, check=True).stdout.decode()
    check.has(info, "Package: weir\n")
    check.has(info, f"Version: {VERSION}\n")
    needs = re.search(r"^Depends: (.*)$", info, re.M).group(1)
    names = [re.match(r"[\w.+-]+", d.strip()).group(0) for d in needs.split(",")]
    assert "libc6" in names and "libjansson4" in names and len(names) >= 8, needs
    # The program runs here, so what it needs is here: a name that is no installed package would be one made up.
    state = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Status}\n", *names], stdout=subprocess.PIPE).stdout.decode().splitlines()
    check.equal({line.split()[0] for line in state if line.endswith(" installed")}, set(names))
    subprocess.run(["dpkg-deb", "-x", path, root], check=True)
    for f in ("usr/share/man/man1/weir.1.gz", "usr/share/doc/weir/copyright", "usr/share/doc/weir/changelog.Debian.gz", "usr/lib/systemd/system/weir.service"):
        assert os.path.exists(os.path.join(root, f)), f
    serves(os.path.join(root, "usr/bin/weir"))
    check.equal(sha(make("deb", "again")), sha(path), "twice")


def test_deb_installs():
    """Through dpkg itself, into a root of its own; its scripts are for a system that runs and are looked at by lintian."""
    path, root = deb(), os.path.join(TMP, "root")
    if os.getuid() != 0:
        raise check.Skip("dpkg --root wants to be root")
    os.makedirs(os.path.join(root, "var/lib/dpkg/updates"))
    os.makedirs(os.path.join(root, "var/lib/dpkg/info"))
    open(os.path.join(root, "var/lib/dpkg/status"), "w").close()
    os.makedirs(os.path.join(root, "var/log"))
    p = subprocess.run(["dpkg", f"--root={root}", "--force-depends", "--unpack", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check.equal(p.returncode, 0, p.stdout.decode())
    listed = subprocess.run(["dpkg", f"--root={root}", "-L", "weir"], stdout=subprocess.PIPE, check=True).stdout.decode().split()
    assert "/usr/bin/weir" in listed, listed
    serves(os.path.join(root, "usr/bin/weir"))
    broken = [f for f in listed if not os.path.lexists(root + f)]
    check.equal(broken, [])


def test_lintian():
    path = deb()
    if not shutil.which("lintian"):
        raise check.Skip("lintian is not installed")
    p = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check.equal((p.returncode, p.stdout.decode()), (0, ""))


try:
    check.tests(globals())
finally:
    shutil.rmtree(TMP, ignore_errors=True)
