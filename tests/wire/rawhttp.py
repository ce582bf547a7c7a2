"""A raw HTTP/1.1 client for the wire tests: bytes out as they are given, answers read strictly (a framing fault is an error, never repaired).
Standard library only. Not executable, so the runner does not take it for a test."""
import json
import select
import socket
import time
from urllib.parse import urlsplit


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def header(self, name):
        """The one header of that name, None when absent. Two of them are an error."""
        v = [value for n, value in self.headers if n.lower() == name.lower()]
        assert len(v) <= 1, f"{name} comes {len(v)} times"
        return v[0] if v else None

    def json(self):
        return json.loads(self.body)

    def error(self):
        """The OpenAI-shaped error object; anything else fails."""
        e = self.json()["error"]
        assert set(e) == {"message", "type", "param", "code"}, f"not an OpenAI error object: {e}"
        return e


class Conn:
    """One TCP connection. Everything waits at most `limit` seconds."""

    def __init__(self, url, limit=10.0):
        u = urlsplit(url)
        self.host, self.port, self.limit = u.hostname, u.port, limit
        self.s = socket.create_connection((u.hostname, u.port), timeout=limit)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buf = b""
        self.ended = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.s.close()

    def send(self, data, step=0):
        """step > 0: in pieces of so many bytes. A peer that has closed is no error: what it said is what counts."""
        try:
            for i in range(0, len(data), step or len(data) or 1):
                self.s.sendall(data[i:i + (step or len(data))])
        except (BrokenPipeError, ConnectionResetError):
            pass

    def request(self, method, path, body=None, headers=(), close=False):
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}:{self.port}", *headers]
        if data is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
        if close:
            lines.append("Connection: close")
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + (data or b""))

    def half_close(self):
        self.s.shutdown(socket.SHUT_WR)

    def _more(self, deadline):
        left = deadline - time.monotonic()
        assert left > 0 and select.select([self.s], [], [], left)[0], f"nothing came in {self.limit} s; so far {self.buf[:300]!r}"
        try:
            data = self.s.recv(65536)
        except ConnectionResetError:
            data = b""
        self.buf += data
        self.ended = not data
        return bool(data)

    def _until(self, mark, deadline):
        while mark not in self.buf:
            assert self._more(deadline), f"the connection ended before {mark!r}; so far {self.buf[:300]!r}"
        head, self.buf = self.buf.split(mark, 1)
        return head

    def _exactly(self, n, deadline):
        while len(self.buf) < n:
            assert self._more(deadline), f"the connection ended {n - len(self.buf)} bytes early"
        data, self.buf = self.buf[:n], self.buf[n:]
        return data

    def _chunks(self, deadline):
        while True:
            size = self._until(b"\r\n", deadline)
            assert size and all(c in b"0123456789abcdefABCDEF" for c in size), f"not a chunk size: {size!r}"
            data = self._exactly(int(size, 16), deadline)
            assert self._exactly(2, deadline) == b"\r\n", "a chunk does not end in CR LF"
            if not data:
                return
            yield data

    def head(self, deadline=None):
        lines = self._until(b"\r\n\r\n", deadline or time.monotonic() + self.limit).decode("latin-1").split("\r\n")
        version, status, _ = lines[0].split(" ", 2)
        assert version == "HTTP/1.1", lines[0]
        headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines[1:]]
        return Answer(int(status), headers, b"")

    def answer(self, head_only=False):
        """The next whole answer, interim ones included."""
        deadline = time.monotonic() + self.limit
        a = self.head(deadline)
        if head_only or a.status < 200 or a.status in (204, 304):
            return a
        if a.header("transfer-encoding") == "chunked":
            a.body = b"".join(self._chunks(deadline))
        elif a.header("content-length") is not None:
            a.body = self._exactly(int(a.header("content-length")), deadline)
        else:
            while self._more(deadline):
                pass
            a.body, self.buf = self.buf, b""
        return a

    def events(self):
        """The `data:` payloads of a streamed answer whose head has been read, as they come."""
        text = b""
        for chunk in self._chunks(time.monotonic() + self.limit):
            text += chunk
            while b"\n\n" in text:
                event, text = text.split(b"\n\n", 1)
                data = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
                if data:
                    yield b"\n".join(data)
        assert not text, f"the stream ended within an event: {text!r}"

    def closed(self, within=2.0):
        """True when the server closes this connection in that time without saying more."""
        end = time.monotonic() + within
        while not self.ended:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.s], [], [], left)[0]:
                return False
            self._more(time.monotonic() + 1)
        return not self.buf


def exchange(url, data, **kw):
    """Raw bytes on a connection of their own, and the answer."""
    with Conn(url, **kw) as c:
        c.send(data)
        return c.answer()


def ask(url, method, path, body=None, headers=()):
    """One well-formed request on a connection of its own."""
    with Conn(url, limit=60) as c:
        c.request(method, path, body, headers, close=True)
        return c.answer(head_only=method == "HEAD")
