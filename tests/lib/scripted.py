"""An OpenAI-compatible server that does as it is told: known delays, known faults, and its own record of when it did what.

Its times and the client's come from one clock (CLOCK_MONOTONIC), so a client's figure can be held against the server's own instead of against the
delay that was asked for, and a busy machine that oversleeps does not fail a test.

What it does with a request is the name that behave(request) returns:
  ok            role chunk, `tokens` chunks of text, finish chunk, usage chunk, [DONE]; a whole body when not streamed
  no-usage      the same without usage
  reasoning     the first half of the tokens is reasoning_content
  hang          first chunk, then nothing until the client leaves; hang-first: nothing at all
  cut           the connection breaks amid the chunked body; cut-clean: the body ends properly, but early
  malformed     one chunk is not JSON; error-event: one chunk is an error; empty: a stream without output
  NNN           that status with an error in OpenAI's shape; NNN-bare: without a body
"""
import asyncio
import json
import threading
import time


class Request:
    """What came, and when what went out: times are set before the client can know of it."""

    def __init__(self, n, method, path, headers, body):
        self.n, self.method, self.path, self.headers, self.raw = n, method, path, headers, body
        self.json = json.loads(body) if body else {}
        self.accepted = time.monotonic()
        self.first = self.last = 0.0
        self.how = ""
        self.left = False  # the client closed before the answer was whole
        self.sent = 0      # chunks of output

    def text(self):
        """What the user said last, or the prompt."""
        return self.json["prompt"] if "prompt" in self.json else self.json["messages"][-1]["content"]


class Scripted:
    def __init__(self, behave=lambda r: "ok", ttft=0.05, gap=0.01, tokens=8, models=("scripted",), key=None, words=None):
        self.behave, self.ttft, self.gap, self.tokens, self.models, self.key, self.words = behave, ttft, gap, tokens, models, key, words
        self.requests, self.running, self.most_running = [], 0, 0
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    # ---- for the test's thread ----

    def __enter__(self):
        up = threading.Event()
        self._up = up
        self._thread.start()
        up.wait(10)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def wait(self, what, seconds=20):
        """Blocks until what(self) is true."""
        with self._changed:
            assert self._changed.wait_for(lambda: what(self), seconds), f"waited {seconds} s for nothing; requests: {[(r.path, r.how) for r in self.requests]}"

    def posts(self):
        return [r for r in self.requests if r.method == "POST"]

    # ---- the loop's thread ----

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self):
        self._stop = asyncio.Event()
        self._tasks = set()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._up.set()
        await self._stop.wait()
        server.close()
        for t in list(self._tasks):
            t.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _tell(self):
        with self._changed:
            self._changed.notify_all()

    async def _connection(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(asyncio.current_task())
            writer.close()

    async def _one(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        method, path, _ = lines[0].split(" ")
        headers = {k.lower(): v.strip() for k, v in (x.split(":", 1) for x in lines[1:] if x)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        r = Request(len(self.requests), method, path, headers, body)
        self.requests.append(r)
        self._tell()
        if self.key and headers.get("authorization") != f"Bearer {self.key}":
            self._error(writer, 401, f"Incorrect API key provided: {headers.get('authorization', '')[7:]}")
            return True
        if method == "GET":
            self._plain(writer, 200, {"object": "list", "data": [{"id": m, "object": "model"} for m in self.models]})
            return True
        if r.json.get("model") not in self.models:
            r.how = "404"
            self._error(writer, 404, f"The model '{r.json.get('model')}' does not exist")
            return True
        return await self._answer(r, reader, writer)

    async def _answer(self, r, reader, writer):
        r.how = self.behave(r)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        work = asyncio.ensure_future(self._speak(r, writer))
        gone = asyncio.ensure_future(reader.read(1))  # a client that says more before it was answered can only be leaving
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            r.left = gone.done() and not work.done() or isinstance(work.done() and work.exception(), ConnectionError)
            return work.done() and work.result()
        finally:
            for t in (work, gone):
                t.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
            self.running -= 1
            self._tell()

    # ---- answers ----

    def _plain(self, writer, status, doc):
        b = b"" if doc is None else json.dumps(doc).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(b)}\r\n\r\n".encode() + b)

    def _error(self, writer, status, message):
        self._plain(writer, status, {"error": {"message": message, "type": "scripted", "code": None}})

    def _chunk(self, writer, data):
        b = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        writer.write(b"%x\r\n%s\r\n" % (len(b), b))

    def _count(self, r):
        """Tokens in, as this server's tokenizer and template would have it: a token a word and 30 more."""
        return 30 + sum(len(m["content"].split()) for m in r.json.get("messages", [])) + len(str(r.json.get("prompt", "")).split())

    def _usage(self, r, n):
        return {"prompt_tokens": self._count(r), "completion_tokens": n, "total_tokens": self._count(r) + n, "prompt_tokens_details": {"cached_tokens": 16}}

    async def _speak(self, r, writer):
        if r.how[:3].isdigit():
            await asyncio.sleep(self.ttft)
            if r.how.endswith("-bare"):
                self._plain(writer, int(r.how[:3]), None)
            else:
                self._error(writer, int(r.how), {500: "the scripted fault", 429: "slow down"}.get(int(r.how), "no"))
            return True
        n = min(self.tokens, r.json.get("max_tokens", self.tokens))
        words = self.words or [f"w{i} " for i in range(n)]
        if r.json.get("stream"):
            return await self._stream(r, writer, words)
        await asyncio.sleep(self.ttft + self.gap * (len(words) - 1))
        choice = {"index": 0, "finish_reason": "length"}
        choice.update({"text": "".join(words)} if "prompt" in r.json else {"message": {"role": "assistant", "content": "".join(words)}})
        if r.how == "empty":
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ""}}
        doc = {"object": "chat.completion", "choices": [choice]}
        if r.how != "no-usage":
            doc["usage"] = self._usage(r, len(words))
        if r.how == "malformed":
            writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{\"choices")
        else:
            r.last = time.monotonic()
            self._plain(writer, 200, doc)
        return True

    def _delta(self, r, text, i, n):
        if "prompt" in r.json:
            return {"choices": [{"index": 0, "text": text}]}
        return {"choices": [{"index": 0, "delta": {"reasoning_content" if r.how == "reasoning" and i < n // 2 else "content": text}}]}

    async def _stream(self, r, writer, words):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        if "prompt" not in r.json:
            self._chunk(writer, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        await writer.drain()
        if r.how == "hang-first":
            await asyncio.sleep(3600)
        await asyncio.sleep(self.ttft)
        for i, w in enumerate(words if r.how != "empty" else []):
            if i:
                await asyncio.sleep(self.gap)
            r.last = time.monotonic()
            r.first = r.first or r.last
            r.sent += 1
            self._chunk(writer, self._delta(r, w, i, len(words)))
            await writer.drain()
            self._tell()
            if i == 0 and r.how == "hang":
                await asyncio.sleep(3600)
            if i == 1 and r.how == "malformed":
                self._chunk(writer, '{"choices": [')
            if i == 1 and r.how == "error-event":
                self._chunk(writer, {"error": {"message": "the engine fell over"}})
            if i == 1 and r.how == "cut":
                return False
            if i == 1 and r.how == "cut-clean":
                writer.write(b"0\r\n\r\n")
                return True
        last = {"index": 0, "finish_reason": "length"}
        last.update({"text": ""} if "prompt" in r.json else {"delta": {}})
        self._chunk(writer, {"choices": [last]})
        if r.how != "no-usage" and r.json.get("stream_options", {}).get("include_usage"):
            self._chunk(writer, {"choices": [], "usage": self._usage(r, len(words))})
        self._chunk(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True
