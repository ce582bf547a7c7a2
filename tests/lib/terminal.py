"""A program on a terminal of its own: types keys, waits for what appears. Escape sequences that libedit draws with are taken out of what is compared."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import check

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[=>]|\x1b\][^\x07]*\x07")


class Terminal:
    def __init__(self, *args, cols=100, **env):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, cols, 0, 0))
        e = {k: v for k, v in dict(os.environ, TERM="xterm", **env).items() if v is not None}
        self.p = subprocess.Popen([check.WEIR, *map(str, args)], stdin=slave, stdout=slave, stderr=slave, env=e, start_new_session=True,
                                  preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.raw, self.mark = b"", 0

    def _read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            b = os.read(self.master, 65536)
        except OSError:  # the last holder of the other side has gone
            return False
        self.raw += b
        return bool(b)

    def text(self):
        """All that appeared, without escape sequences and carriage returns."""
        return ESCAPES.sub("", self.raw.decode("utf-8", "replace")).replace("\r", "")

    def expect(self, part, seconds=20):
        """Waits until part appears behind what the last expect found; returns what came before it."""
        deadline = time.monotonic() + seconds
        while True:
            t = self.text()
            at = t.find(part, self.mark)
            if at >= 0:
                before, self.mark = t[self.mark:at], at + len(part)
                return before
            left = deadline - time.monotonic()
            assert left > 0, f"expected {part!r} to appear behind {t[max(0, self.mark - 200):self.mark]!r}, saw {t[self.mark:]!r}"
            if not self._read(min(left, 0.1)) and self.p.poll() is not None:
                assert part in self.text()[self.mark:], f"the program ended ({self.p.returncode}) before {part!r} appeared: {self.text()[self.mark:]!r}"

    def type(self, keys):
        os.write(self.master, keys.encode())

    def line(self, text):
        self.type(text + "\r")

    def ends(self, seconds=20):
        """Reads on until the program ends; its exit status."""
        deadline = time.monotonic() + seconds
        while self.p.poll() is None:
            assert time.monotonic() < deadline, f"still running: {self.text()[-300:]!r}"
            self._read(0.05)
        while self._read(0):
            pass
        return self.p.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGKILL)
            self.p.wait()
        os.close(self.master)
