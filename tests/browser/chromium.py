"""A headless Chromium driven over its debugging pipe: no driver program, no package. Not a test itself.

Messages are JSON ended by a zero byte, ours on its descriptor 3, its own on 4. One page at a time; events are kept until they are asked for."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

import check


def program():
    for name in (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"):
        path = name and shutil.which(name)
        if path:
            return path
    raise check.Skip("no chromium is installed (CHROMIUM names another)")


class Browser:
    def __init__(self, width=1280, height=800, phone=False, dark=False):
        self.home = tempfile.mkdtemp(prefix="weir-browser-")
        to_read, self.to = os.pipe()
        self.back, from_write = os.pipe()
        plumb = f'exec "$@" 3<&{to_read} 4>&{from_write}'
        # --no-sandbox: tests run as root in containers, and every page here is our own.
        self.p = subprocess.Popen(
            ["/bin/sh", "-c", plumb, "sh", program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe", f"--user-data-dir={self.home}",
             f"--window-size={width},{height}", "about:blank"],
            pass_fds=(to_read, from_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.n, self.bytes, self.events = 0, b"", []
        self.session = None
        target = next(t for t in self._targets() if t["type"] == "page")
        self.session = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        if dark:
            self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def _targets(self):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            found = self.send("Target.getTargets")["targetInfos"]
            if any(t["type"] == "page" for t in found):
                return found
            time.sleep(0.05)
        raise AssertionError("chromium opened no page")

    # ---- the pipe ----

    def _read(self, deadline):
        while b"\0" not in self.bytes:
            ready, _, _ = select.select([self.back], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError("chromium did not answer in time")
            more = os.read(self.back, 1 << 16)
            if not more:
                raise AssertionError("chromium ended")
            self.bytes += more
        one, self.bytes = self.bytes.split(b"\0", 1)
        return json.loads(one)

    def send(self, method, wait=30, **params):
        self.n += 1
        doc = {"id": self.n, "method": method, "params": params}
        if self.session:
            doc["sessionId"] = self.session
        os.write(self.to, json.dumps(doc).encode() + b"\0")
        deadline = time.monotonic() + wait
        while True:
            m = self._read(deadline)
            if m.get("id") == self.n:
                assert "error" not in m, f"{method}: {m['error']}"
                return m["result"]
            if "method" in m:
                self.events.append(m)

    # ---- the page ----

    def js(self, code, gesture=False):
        r = self.send("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True, userGesture=gesture)
        assert "exceptionDetails" not in r, r["exceptionDetails"]
        return r["result"].get("value")

    def until(self, code, seconds=30):
        """Polls until the expression is truthy; returns its value."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                v = self.js(code)
            except AssertionError as e:  # the page is between two documents
                v, why = None, e
            else:
                why = v
            if v:
                return v
            time.sleep(0.02)
        raise AssertionError(f"did not become true in {seconds} s: {code} ({why!r}); page: {self.js('document.body.innerText')[:300]!r}")

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.protocol !== 'about:'")

    def reload(self):
        self.js("window.before = true")
        self.send("Page.reload")
        self.until("window.before === undefined && document.readyState === 'complete'")

    def key(self, key, code=None, text=None, shift=False, vk=0):
        common = dict(key=key, code=code or key, windowsVirtualKeyCode=vk, modifiers=8 if shift else 0)
        self.send("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def enter(self, shift=False):
        self.key("Enter", text="\r", vk=13, shift=shift)

    def tab(self, shift=False):
        self.key("Tab", vk=9, shift=shift)

    def escape(self):
        self.key("Escape", vk=27)

    def space(self):
        self.key(" ", code="Space", text=" ", vk=32)

    def type(self, text):
        self.send("Input.insertText", text=text)

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def named(self, method):
        self.js("1")  # what is on its way has arrived
        return [e["params"] for e in self.events if e["method"] == method]

    def close(self):
        try:
            self.session = None
            self.send("Browser.close", wait=5)
            self.p.wait(10)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.p.kill()
            self.p.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
