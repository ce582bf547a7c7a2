"""The page as weir serves it, over an API that does as the test says: slow, hostile, cut short. Not a test itself.

answer(request document) gives what to send: a list of steps: a text (one chunk of it), a number (seconds to wait), "!cut" (the connection breaks),
"!error" (an error event). `plain`: there is no chat template. `key`: asked for."""
import http.server
import json
import threading
import time


class Face:
    def __init__(self, page, answer, plain=False, key=None):
        self.page, self.answer, self.plain, self.key = page, answer, plain, key
        self.requests, self.left = [], threading.Event()
        face = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                if self.path == "/":
                    self.send_response(200)
                    for k, v in face.page.headers.items():
                        if k not in ("content-length", "connection", "date", "x-request-id"):
                            self.send_header(k, v)
                    self.end_headers()
                    self.wfile.write(face.page.body)
                elif self.path == "/v1/models":
                    if face.may(self):
                        face.json(self, 200, {"data": [{"id": "scripted"}]})
                else:
                    face.json(self, 200, {"status": "ok"})

            def do_POST(self):
                doc = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not face.may(self):
                    return
                if self.path == "/apply-template":
                    face.json(self, *((400, {"error": {"message": "no template", "param": "messages"}}) if face.plain else (200, {"prompt": "x"})))
                else:
                    face.requests.append((self.path, doc))
                    face.stream(self, doc)

        self.httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.httpd.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.httpd.server_port}"

    def may(self, h):
        if not self.key or h.headers.get("Authorization") == f"Bearer {self.key}":
            return True
        self.json(h, 401, {"error": {"message": "an API key is needed"}})
        return False

    @staticmethod
    def json(h, status, doc):
        h.send_response(status)
        h.send_header("Content-Type", "application/json")
        h.end_headers()
        h.wfile.write(json.dumps(doc).encode())

    def stream(self, h, doc):
        steps = self.answer(doc)
        if isinstance(steps, tuple):
            self.json(h, *steps)
            return
        h.send_response(200)
        h.send_header("Content-Type", "text/event-stream")
        h.end_headers()
        chat, n = "messages" in doc, 0

        def event(d):
            h.wfile.write(b"data: " + (d if isinstance(d, bytes) else json.dumps(d).encode()) + b"\n\n")

        try:
            for s in steps:
                if s == "!cut":
                    return
                if s == "!error":
                    event({"error": {"message": "the engine is gone"}})
                    return
                if isinstance(s, (int, float)):
                    time.sleep(s)
                    continue
                n += 1
                event({"choices": [{"index": 0, "delta": {"content": s}} if chat else {"index": 0, "text": s}]})
            event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": n, "prompt_tokens_details": {"cached_tokens": 3}}})
            event(b"[DONE]")
        except OSError:
            self.left.set()

    def __enter__(self):
        threading.Thread(target=self.httpd.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.httpd.shutdown()
        self.httpd.server_close()
