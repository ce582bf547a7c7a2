#!/usr/bin/env python3
"""Makes the golden vectors of the kinds of tokenizer that came after byte-level BPE, tests/golden/tok/, with `sentencepiece` and `tokenizers`.

    python3 tools/make_tok_kinds.py --models FOLDER [--out tests/golden/tok] [KIND ...]
    python3 tools/make_tok_kinds.py ... --show N KIND      what the reference makes of string N

Needs sentencepiece 0.2.3, tokenizers 0.23 and, for gemma, gguf 0.19 and the model file. The same versions give the same bytes. All strings come from the
generators of make_tok_golden.py; all kinds share them.

kinds.text.gz, after gunzip (varint as in make_tok_golden.py):
    "WTXT1\\n"  varint count, then per string: varint bytes, UTF-8
KIND.ids.gz:
    "WIDS1\\n"  varint count, then per string two little-endian u32: the hash of its ids with control tokens parsed and not parsed. 0 in the second: the
    same. 0 in the first: left out, because a code point in it is of another class, case or form in the reference's Unicode than in Unicode 14.
    The hash is FNV-1a over the ids as little-endian u32, and 1 where that would be 0.
KIND.vocab.gz (llama2, llama2bare, t5, t5bytes, bert), what a GGUF file has:
    "WVOC2\\n"  varint flags (1 add_space_prefix, 2 remove_extra_whitespaces), varint unk + 1, blob charsmap, varint tokens, per token: byte type,
    little-endian f32 score, blob text
KIND.json.gz (hf-*): a tokenizer.json as the library saves it.
"""
import argparse, gzip, io, json, os, re, struct, sys, tempfile, unicodedata
from make_tok_golden import Gen, agreed, byte_alphabet, varint, blob, store, GPT4
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
import sentencepiece

META = "\u2581"
SPECIALS = ["<s>", "</s>", "<unk>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<unused7>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<0x0A>",
            "[CLS]", "[SEP]", "[UNK]", "[MASK]", "[INST]", "<table>", "</h1>", "\n\n\n", "\t\t", "  ", "    ", "[[ref]]", "<extra_id_0>", META * 3]
TURNS = ["<s>", "</s>", "<pad>"]


def corpus_gen(cps, name):
    return Gen(name, cps, SPECIALS, [" the"])


def corpus(cps, name, n, many_scripts=True):
    g = corpus_gen(cps, name)
    kinds = [g.prose] * 6 + ([g.script] * 2 if many_scripts else []) + [g.code] * 3 + [g.number, g.contraction, g.white, g.punct]
    return [g.r.choice(kinds)() for _ in range(n)]


def texts(cps):
    g = Gen("kinds", cps, SPECIALS, [" the", "the", " re", "ing", "tion", "tr", " str", "\u00e9", "\u4e2d", " \u0434\u0430", "1", " 19", "\n", "(", META, "ch", "ou"])
    out = g.strings()
    r = g.r
    for _ in range(300):  # what SentencePiece and BERT look at: blanks of all sorts, blanks that are written out, words of one script in another, long words
        k = r.randrange(5)
        w = [g.word() for _ in range(r.randint(1, 4))]
        if k == 0: s = r.choice([" ", "  ", META, "\n", "\t"]).join(w)
        elif k == 1: s = r.choice(["", " ", "   ", META]) + (" " * r.randint(1, 40)).join(w) + r.choice(["", " ", "    "])
        elif k == 2: s = "".join(w) * r.randint(1, 12)
        elif k == 3: s = "".join(r.choice([x.upper(), x, x.capitalize()]) + r.choice("-._/\u4e2d\u00e9\u0130\u00df\ufb01\u2126\u00bd\uff21\u3000 ") for x in w)
        else: s = "".join(r.choice(["<h1>", "<table>", "\n" * r.randint(1, 40), "\t" * r.randint(1, 9), " " * r.randint(1, 35), x]) for x in w)
        out.append(s)
    return ["".join(c for c in s if ord(c) in cps) for s in out]


# ---- SentencePiece ----------------------------------------------------------------------------------------------------------------------------

def field(n, v):
    """One field of a protocol buffer: int -> varint, float -> 32 bits, bytes -> length-delimited."""
    f = io.BytesIO()
    varint(f, n << 3 | (0 if isinstance(v, int) else 5 if isinstance(v, float) else 2))
    if isinstance(v, int): varint(f, v & (1 << 64) - 1)
    elif isinstance(v, float): f.write(struct.pack("<f", v))
    else: varint(f, len(v)), f.write(v)
    return f.getvalue()


def fields(raw):
    def num(i):
        v = s = 0
        while True:
            v |= (raw[i] & 127) << s
            s += 7
            i += 1
            if raw[i - 1] < 128: return v, i
    i = 0
    while i < len(raw):
        k, i = num(i)
        if k & 7 == 0: v, i = num(i)
        elif k & 7 == 5: v, i = struct.unpack("<f", raw[i:i + 4])[0], i + 4
        elif k & 7 == 2:
            n, i = num(i)
            v, i = raw[i:i + n], i + n
        else: raise ValueError(k)
        yield k >> 3, v


class Spm:
    """A vocabulary in GGUF's terms: (text, score, type) and what the normalizer does."""
    def __init__(self, pieces, bpe, prefix, squeeze, charsmap=b"", unk=0, byte_fallback=True):
        self.pieces, self.bpe, self.prefix, self.squeeze, self.charsmap, self.unk, self.byte_fallback = pieces, bpe, prefix, squeeze, charsmap, unk, byte_fallback
        self.control = sorted((s for s, _, k in pieces if k == 3), key=lambda s: (-len(s), s))
        self.ids = {s: i for i, (s, _, k) in enumerate(pieces) if k == 3}

    def proto(self):
        out = b"".join(field(1, field(1, s.encode()) + field(2, float(x)) + field(3, k)) for s, x, k in self.pieces)
        trainer = field(3, 2 if self.bpe else 1) + field(35, int(self.byte_fallback)) + field(40, self.unk) + field(41, -1) + field(42, -1) + field(43, -1)
        trainer += field(45, self.pieces[self.unk][0].encode())
        norm = field(1, b"identity") + field(2, self.charsmap) + field(3, int(self.prefix)) + field(4, int(self.squeeze)) + field(5, 1)
        return out + field(2, trainer) + field(3, norm)

    def load(self):
        self.sp = sentencepiece.SentencePieceProcessor()
        self.sp.LoadFromSerializedProto(self.proto())
        self.cut = re.compile("|".join(map(re.escape, self.control))) if self.control else None
        return self

    def plain(self, s):
        return self.sp.encode(s)

    def parsed(self, s):
        out, at = [], 0
        for m in self.cut.finditer(s) if self.cut else ():
            out += self.plain(s[at:m.start()]) + [self.ids[m.group()]]
            at = m.end()
        return out + self.plain(s[at:])

    def save(self, path):
        f = io.BytesIO()
        f.write(b"WVOC2\n")
        varint(f, self.prefix | self.squeeze << 1)
        varint(f, self.unk + 1)
        varint(f, len(self.charsmap)), f.write(self.charsmap)
        varint(f, len(self.pieces))
        for s, x, k in self.pieces:
            f.write(bytes([k]) + struct.pack("<f", x))
            blob(f, s)
        store(path, f.getvalue())


def rules(cps):
    """A small table of replacements for the trainer: compatibility forms of a few blocks, letters with marks, blanks, what is dropped."""
    out = {"\t": " ", "\n": " ", "\r": " ", "\u200b": "", "\ufeff": "", "\x85": " ", "\u2581": " ", "...": "\u2026", "\u00bd": "1/2"}
    for c in map(chr, sorted(cps)):
        if any(a <= ord(c) <= b for a, b in ((0xA0, 0x17F), (0x2000, 0x22FF), (0xFB00, 0xFB06), (0xFF01, 0xFF5E))):
            to = unicodedata.normalize("NFKC", c)
            if to != c: out.setdefault(c, to)
            d = unicodedata.normalize("NFD", c)
            if len(d) > 1: out[d] = unicodedata.normalize("NFC", c)
    return out


def spm_train(cps, name, bpe, size, prefix, squeeze, rule, control, user, byte_fallback=True):
    with tempfile.TemporaryDirectory() as d:
        model = io.BytesIO()
        how = {"normalization_rule_name": "identity"}
        if rule:
            how = {"normalization_rule_tsv": os.path.join(d, "rules.tsv")}
            with open(how["normalization_rule_tsv"], "w") as f:
                for a, b in rule.items(): f.write(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n")
        lines = [x for s in corpus(cps, name, 30000) for x in s.split("\n") if x and "\0" not in x]
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, vocab_size=size, model_type="bpe" if bpe else "unigram",
            byte_fallback=byte_fallback, add_dummy_prefix=prefix, remove_extra_whitespaces=squeeze, character_coverage=0.99,
            control_symbols=control, user_defined_symbols=user, num_threads=1, minloglevel=2, max_sentence_length=100000, split_digits=bpe, **how)
    pieces, charsmap = [], b""
    for n, v in fields(model.getvalue()):
        if n == 1:
            p = {1: b"", 2: 0.0, 3: 1, **dict(fields(v))}
            pieces.append((p[1].decode(), p[2], p[3]))
        if n == 3: charsmap = dict(fields(v)).get(2, b"") if rule else b""
    return Spm(pieces, bpe, prefix, squeeze, charsmap, byte_fallback=byte_fallback)


def spm_gemma(args):
    from gguf import GGUFReader
    f = GGUFReader(os.path.join(args.models, "gemma-3-270m-q4_k_m.gguf")).fields
    get = lambda k: f["tokenizer.ggml." + k].contents()
    unk = get("unknown_token_id")
    # The converter wrote the blanks of user-defined symbols out; the library wants its own mark. The unknown token has to be one there.
    pieces = [(s.replace(" ", META) if k == 4 else s, x, k) for s, x, k in zip(get("tokens"), get("scores"), get("token_type"))]
    gemma = Spm(pieces, True, get("add_space_prefix"), False, unk=unk)
    pieces[unk] = (*pieces[unk][:2], 2)
    return gemma


SPM = {
    "gemma": lambda cps, a: spm_gemma(a),
    "llama2": lambda cps, a: spm_train(cps, "llama2", True, 4000, True, False, None, ["<pad>"], ["\n\n", "<table>", "[[ref]]", META * 2, META * 4, "</h1>"]),
    "llama2bare": lambda cps, a: spm_train(cps, "llama2bare", True, 2500, False, False, None, [], [], byte_fallback=False),
    "t5": lambda cps, a: spm_train(cps, "t5", False, 3000, True, True, rules(cps), ["<extra_id_0>"], ["<table>", "[[ref]]"], byte_fallback=False),
    "t5bytes": lambda cps, a: spm_train(cps, "t5bytes", False, 3500, True, False, None, [], ["<table>"]),
}


# ---- files ------------------------------------------------------------------------------------------------------------------------------------

def fnv(ids):
    h = 0x811C9DC5
    for b in struct.pack(f"<{len(ids)}I", *ids): h = (h ^ b) * 0x01000193 & 0xFFFFFFFF
    return h or 1


def write_ids(kind, args, strings, parsed, plain, bad=lambda c: False):
    f = io.BytesIO()
    f.write(b"WIDS1\n")
    varint(f, len(strings))
    left, differ = 0, 0
    for s in strings:
        if any(bad(c) for c in s):
            f.write(bytes(8))
            left += 1
            continue
        a, b = parsed(s), plain(s)
        differ += a != b
        f.write(struct.pack("<II", fnv(a), 0 if a == b else fnv(b)))
    print(f"  {len(strings)} strings, {left} left out, {differ} with other ids when control tokens are not parsed", file=sys.stderr)
    store(os.path.join(args.out, kind + ".ids.gz"), f.getvalue())


def make(kind, args, cps, strings):
    print(kind, file=sys.stderr)
    spm = SPM[kind](cps, args).load()
    if args.show is not None:
        s = strings[args.show]
        print(repr(s), spm.parsed(s), [spm.pieces[i][0] for i in spm.parsed(s)], spm.plain(s), sep="\n")
        return
    write_ids(kind, args, strings, spm.parsed, spm.plain)
    if kind != "gemma": spm.save(os.path.join(args.out, kind + ".vocab.gz"))


def main():
    p = argparse.ArgumentParser(description="golden vectors of the tokenizers' kinds")
    p.add_argument("--models", default=os.environ.get("WEIR_TEST_MODELS", "."), help="folder of the model files (gemma)")
    p.add_argument("--out", default="tests/golden/tok")
    p.add_argument("--show", type=int)
    p.add_argument("kind", nargs="*", default=[*SPM])
    args = p.parse_args()
    cps = agreed()
    strings = texts(cps)
    if args.show is None:
        f = io.BytesIO()
        f.write(b"WTXT1\n")
        varint(f, len(strings))
        for s in strings: blob(f, s)
        store(os.path.join(args.out, "kinds.text.gz"), f.getvalue())
    for kind in args.kind: make(kind, args, cps, strings)


if __name__ == "__main__":
    main()
