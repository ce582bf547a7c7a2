"""Tiny models made for a test: the GGUF of tests/golden/tiny with another chat template in it."""
import os
import struct

import check

TINY = os.path.join(check.SRC, "tests", "golden", "tiny", "tiny-llama-q.gguf")
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
# Hermes' form of tools, as Qwen's template has it, in few tokens.
TOOLS = ("{% if tools %}<tool_call>{% for t in tools %}{{ t|tojson }}{% endfor %}{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
         "{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>{{ c.function|tojson }}</tool_call>{% endfor %}{% endif %}{% endfor %}")


def _skip(raw, at, kind):
    if kind == STRING:
        return at + 8 + struct.unpack_from("<Q", raw, at)[0]
    if kind == ARRAY:
        elem, n = struct.unpack_from("<IQ", raw, at)
        at += 12
        if elem in SIZES:
            return at + n * SIZES[elem]
        for _ in range(n):
            at = _skip(raw, at, elem)
        return at
    return at + SIZES[kind]


def with_template(path, template, source=TINY):
    """Writes `source` with this template to `path`; returns the path."""
    with open(source, "rb") as f:
        raw = f.read()
    n_tensors, n_vals = struct.unpack_from("<QQ", raw, 8)
    at, head, count = 24, b"", 0
    for _ in range(n_vals):
        start = at
        n = struct.unpack_from("<Q", raw, at)[0]
        key = raw[at + 8:at + 8 + n].decode()
        kind = struct.unpack_from("<I", raw, at + 8 + n)[0]
        at = _skip(raw, at + 12 + n, kind)
        if key != "tokenizer.chat_template":
            head += raw[start:at]
            count += 1
    key, text = b"tokenizer.chat_template", template.encode()
    head += struct.pack("<Q", len(key)) + key + struct.pack("<IQ", STRING, len(text)) + text
    start = at
    for _ in range(n_tensors):
        at += 8 + struct.unpack_from("<Q", raw, at)[0]
        at += 4 + 8 * struct.unpack_from("<I", raw, at)[0] + 12
    out = raw[:8] + struct.pack("<QQ", n_tensors, count + 1) + head + raw[start:at]
    data = (at + 31) // 32 * 32
    with open(path, "wb") as f:
        f.write(out + b"\0" * (-len(out) % 32) + raw[data:])
    return path
