"""A plain client for the API tests: one request a call, nothing hidden. Not a test itself."""
import http.client
import json
import os
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import check  # noqa: E402

TINY = os.path.join(check.SRC, "tests", "golden", "tiny", "tiny-llama-q.gguf")


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, {k.lower(): v for k, v in headers}, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    @property
    def events(self):
        """The data of an SSE stream, parsed; [DONE] stays a string."""
        out = []
        for block in self.body.decode().split("\n\n"):
            if block.startswith("data: "):
                out.append("[DONE]" if block == "data: [DONE]" else json.loads(block[6:]))
        return out


class Client:
    def __init__(self, url):
        u = urllib.parse.urlsplit(url)
        self.host, self.port = u.hostname, u.port

    def call(self, method, path, body=None, headers=None, timeout=120):
        c = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            c.request(method, path, body=body, headers=headers or {})
            r = c.getresponse()
            return Answer(r.status, r.getheaders(), r.read())
        finally:
            c.close()

    def get(self, path, **h):
        return self.call("GET", path, headers=h)

    def post(self, path, doc, **h):
        body = doc if isinstance(doc, bytes) else json.dumps(doc).encode()
        return self.call("POST", path, body, dict({"Content-Type": "application/json"}, **h))

    def chat(self, content="Hello", **fields):
        return self.post("/v1/chat/completions", dict({"messages": [{"role": "user", "content": content}]}, **fields))

    def complete(self, prompt="Hello", **fields):
        return self.post("/v1/completions", dict({"prompt": prompt}, **fields))

    def metric(self, name):
        """The sum over all label sets of one metric."""
        total = None
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith((name + "{", name + " ")):
                total = (total or 0) + float(line.rsplit(" ", 1)[1])
        assert total is not None, f"/metrics lacks {name}"
        return total


def refused(answer, status, param, *words, code=None):
    """An OpenAI-shaped error with this status that names the field and says these words."""
    check.equal(answer.status, status, f"status ({answer.body[:300]!r})")
    e = answer.error
    check.equal(sorted(e), ["code", "message", "param", "type"], "error fields")
    check.equal(e["param"], param, "param")
    for w in words:
        check.has(e["message"], w)
    if code:
        check.equal(e["code"], code, "code")
