#!/usr/bin/env python3
"""Makes the tokenizers' golden vectors, tests/golden/tok/, with the `tokenizers` library as the reference.

    python3 tools/make_tok_golden.py --models FOLDER [--out tests/golden/tok] [FAMILY ...]

Families: smollm, qwen2 (vocabulary taken from the model files in FOLDER, see MODELS), gpt2, llama3 (no real vocabulary is to be had: one is trained
here, on text from the generators below, with that family's pre-tokenizer, and stored beside the vectors). Needs tokenizers 0.23 and gguf 0.19.
The same versions give the same bytes. No string is taken from anywhere: all come from the generators, seeded by the family's name.

FAMILY.gold.gz, after gunzip (varint: 7 bits a byte, lowest first, top bit = more follow):
    "WTOK1\\n"  varint count, then per string:
        varint bytes, UTF-8
        varint n, n * varint id                 control and user-defined tokens parsed
        varint m: 0 = the same ids; else m - 1 ids follow, m - 1 * varint id    not parsed
FAMILY.vocab.gz (gpt2, llama3), in the form a GGUF file has them:
    "WVOC1\\n"  varint tokens, per token: byte type (1 normal, 3 control, 4 user-defined), varint bytes, UTF-8;  varint merges, per merge: varint bytes, UTF-8

Unicode versions: Python's tables are 14.0, PCRE2's 14 to 16, the reference's 16. Code points on whose class Python and the reference do not agree (those
assigned since) are left out; unassigned ones are kept where both call them unassigned. The reference's normal form C (qwen2) knows an older Unicode
still: marks it takes for starters, and letters it does not compose, are left out too. On those our normal form is the current one.
"""
import argparse, gzip, io, os, random, sys, unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

MODELS = {"smollm": "SmolLM2-135M-Instruct.Q4_1.gguf", "qwen2": "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"}
GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def pre_tokenizer(family):
    byte_level = lambda rx: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rx)
    if family == "gpt2":
        return byte_level(True)
    if family == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)])
    rx = GPT4 % {"qwen2": r"\p{N}", "llama3": r"\p{N}{1,3}"}[family]
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(rx), "isolated"), byte_level(False)])


# ---- code points both sides agree on ----------------------------------------------------------------------------------------------------------

def agreed():
    cps = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    text = "".join(map(chr, cps))
    def is_cls(i, cls):
        cat = unicodedata.category(text[i])
        return cat == "Cn" if cls == "Cn" else cat[0] == cls
    exact = {}
    for cls in "L", "M", "N", "Z", "Cn":
        marked = pre_tokenizers.Split(Regex(r"\p{%s}+" % cls), "removed").pre_tokenize_str(text)
        left = bytearray(len(text))
        for _, (a, b) in marked:
            left[a:b] = b"\x01" * (b - a)
        exact[cls] = left
    ok = {cps[i] for i in range(len(cps)) if all((not exact[c][i]) == is_cls(i, c) for c in exact)}
    nfc = normalizers.NFC().normalize_str
    stale = {c for c in ok if unicodedata.category(chr(c))[0] in "LMN" and not normal_form_agreed(chr(c), nfc)}
    print(f"  code points: {len(cps)}; {len(cps) - len(ok)} left out for their class, {len(stale)} for their normal form", file=sys.stderr)
    return ok - stale


def normal_form_agreed(c, nfc):
    """Does the reference order c among marks of low and high class, compose and decompose it as Unicode 14 does?"""
    return all(nfc(s) == unicodedata.normalize("NFC", s) for s in ("a" + c + "\u0334", "a\u0345" + c, unicodedata.normalize("NFD", c), c))


SCRIPTS = {
    "latin": [(0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x1E00, 0x1EFF)], "greek": [(0x370, 0x3FF), (0x1F00, 0x1FFF)],
    "cyrillic": [(0x400, 0x52F)], "armenian": [(0x531, 0x586)], "hebrew": [(0x591, 0x5F4)], "arabic": [(0x600, 0x6FF)],
    "syriac": [(0x700, 0x74F)], "devanagari": [(0x900, 0x97F)], "bengali": [(0x980, 0x9FE)], "gurmukhi": [(0xA01, 0xA76)],
    "tamil": [(0xB82, 0xBFA)], "telugu": [(0xC00, 0xC7F)], "malayalam": [(0xD00, 0xD7F)], "sinhala": [(0xD81, 0xDF4)],
    "thai": [(0xE01, 0xE5B)], "lao": [(0xE81, 0xEDF)], "tibetan": [(0xF00, 0xFDA)], "burmese": [(0x1000, 0x109F)],
    "georgian": [(0x10A0, 0x10FF)], "hangul": [(0xAC00, 0xD7A3)], "jamo": [(0x1100, 0x11FF)], "ethiopic": [(0x1200, 0x137C)],
    "cherokee": [(0x13A0, 0x13FD)], "khmer": [(0x1780, 0x17F9)], "mongolian": [(0x1800, 0x18AA)], "hiragana": [(0x3041, 0x309F)],
    "katakana": [(0x30A0, 0x30FF), (0xFF66, 0xFF9D)], "han": [(0x4E00, 0x9FFF)], "han-b": [(0x20000, 0x2A6DF)], "han-compat": [(0xF900, 0xFAD9)],
    "gothic": [(0x10330, 0x1034A)], "cuneiform": [(0x12000, 0x12399)], "math": [(0x1D400, 0x1D7FF)], "fullwidth": [(0xFF01, 0xFF5E)],
    "symbols": [(0x2000, 0x2BFF)], "musical": [(0x1D100, 0x1D1E8)],
}
WHITE = [" ", " ", " ", "  ", "    ", "\t", "\n", "\r", "\r\n", "\n\n", "\v", "\f", "\x85", "\xa0", "\u2003", "\u2028", "\u2029", "\u202f", "\u3000", "\u1680",
         "\u180e", "\u200b", "\ufeff", "\x1c", "\x1f"]
EMOJI = [chr(c) for c in (*range(0x1F600, 0x1F650), *range(0x1F300, 0x1F380), 0x2764, 0x2600, 0x1F468, 0x1F469, 0x1F467, 0x1F466, 0x1F3F3, 0x1F308)]
SUFFIX = ["s", "t", "re", "ve", "m", "ll", "d", "S", "T", "RE", "VE", "M", "LL", "D", "Re", "vE", "Ll", "lL", "\u017f", "x", "all", "der", "em", "r", "l", "v"]
PUNCT = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\u2018\u2019\u201c\u201d\u2013\u2014\u2026\u00b7\u00a7\u20ac\u00bf\u3001\u3002"
KEYWORDS = "if else for while return def class import from function const let var int void struct static public private new try except None null true false self print".split()


class Gen:
    """All strings. One method a kind; every method returns one string."""

    def __init__(self, family, cps, specials, vocab_text):
        self.r = random.Random("weir " + family)
        self.cps, self.specials, self.vocab_text = cps, specials, vocab_text
        self.assigned = sorted(c for c in cps if unicodedata.category(chr(c)) not in ("Cn", "Co"))
        self.loose = sorted(c for c in cps if unicodedata.category(chr(c)) == "Cn" and c < 0x30000)
        self.marks = [c for c in self.assigned if unicodedata.category(chr(c))[0] == "M"]
        self.numbers = [c for c in self.assigned if unicodedata.category(chr(c))[0] == "N"]
        self.composed = [c for c in self.assigned if unicodedata.decomposition(chr(c)) and not unicodedata.decomposition(chr(c)).startswith("<")]
        self.scripts = {k: [c for a, b in v for c in range(a, b + 1) if c in cps] for k, v in SCRIPTS.items()}
        self.words = [self.new_word() for _ in range(3000)]

    def new_word(self):
        on = "b c d f g h j k l m n p r s t v w y br ch cl dr fl gr pl pr sh sl sp st str th tr wh".split()
        nu = "a e i o u ai ea ee ou oo".split()
        co = ["", "", "n", "r", "s", "t", "l", "d", "nd", "st", "ng", "ck", "ss", "tion", "ing", "ed", "er", "ly"]
        return "".join(self.r.choice(on) + self.r.choice(nu) + self.r.choice(co) for _ in range(self.r.choice((1, 1, 2, 2, 3))))

    def word(self):
        w = self.words[min(int(self.r.paretovariate(0.6)) - 1, len(self.words) - 1)]
        k = self.r.random()
        return w.capitalize() if k < 0.1 else w.upper() if k < 0.13 else w

    def prose(self):
        out = []
        for _ in range(self.r.randint(2, 12)):
            w = self.word()
            if self.r.random() < 0.08: w += self.r.choice("'\u2019") + self.r.choice(SUFFIX)
            if self.r.random() < 0.15: w += self.r.choice(",.;:!?")
            if self.r.random() < 0.06: w = self.r.choice(["(%s)", '"%s"', "*%s*", "_%s_", "\u201c%s\u201d"]) % w
            out.append(w)
        return " ".join(out)

    def script(self):
        a = self.scripts[self.r.choice(sorted(self.scripts))]
        ws = ["".join(chr(self.r.choice(a)) for _ in range(self.r.randint(1, 6))) for _ in range(self.r.randint(1, 4))]
        return self.r.choice([" ", " ", "", ", ", "\u3001", "\n"]).join(ws)

    def ident(self):
        w = [self.word().lower() for _ in range(self.r.randint(1, 3))]
        return self.r.choice(["_".join(w), "".join(x.capitalize() for x in w), w[0] + "".join(x.capitalize() for x in w[1:]), "_".join(w).upper(), w[0] + str(self.r.randint(0, 99))])

    def code(self):
        i, n, q = self.ident, lambda: str(self.r.randint(0, 10 ** self.r.randint(1, 6))), self.r.choice
        ind = q(["    ", "  ", "\t", "        "])
        eol = q(["\n", "\n", "\r\n"])
        line = [
            lambda: f"def {i()}({i()}, {i()}={n()}):{eol}{ind}return {i()}[{n()}] + '{i()}'", lambda: f"for (int {i()} = 0; {i()} < {n()}; ++{i()}) {{{eol}{ind}{i()}->{i()} += {n()};{eol}}}",
            lambda: f"const {i()} = ({i()}) => {{ return `${{{i()}}}` ?? {n()}; }};", lambda: '{"%s": [%s, %s.5e-3, null], "%s": {"%s": true}}' % (i(), n(), n(), i(), i()),
            lambda: f"<div class=\"{i()}\" id='{i()}'>{eol}{ind}<!-- {i()} -->&nbsp;</div>", lambda: f"SELECT {i()}, COUNT(*) FROM {i()} WHERE {i()} >= {n()} AND {i()} LIKE '%{i()}%';",
            lambda: f"#include <{i()}.h>{eol}#define {i()} 0x{self.r.getrandbits(32):08X}UL", lambda: f"$ {i()} --{i()}={n()} | grep -v '^#' > /tmp/{i()}.log 2>&1",
            lambda: f"fn {i()}<'a>(x: &'a mut {i()}) -> Result<(), {i()}> {{ Ok(()) }}", lambda: f"{ind}{ind}{q(KEYWORDS)} {i()}:{eol}{ind}{ind}{ind}{q(KEYWORDS)}{eol}{eol}{ind}# {i()}",
            lambda: f"| {i()} | {n()} |{eol}|---|---:|{eol}* **{i()}**: [{i()}](https://{i()}.example/{i()}?{i()}={n()}#{i()})", lambda: f"let x='{i()}';//don't{eol}\\frac{{{i()}}}{{{n()}}}^2_\\alpha",
        ]
        return q(line)()

    def emoji(self):
        r, out = self.r, []
        for _ in range(r.randint(1, 4)):
            k = r.randrange(6)
            if k == 0: out.append("\u200d".join(r.choice(EMOJI) for _ in range(r.randint(2, 4))))
            elif k == 1: out.append(r.choice(EMOJI) + chr(r.randint(0x1F3FB, 0x1F3FF)))
            elif k == 2: out.append(chr(r.randint(0x1F1E6, 0x1F1FF)) + chr(r.randint(0x1F1E6, 0x1F1FF)))
            elif k == 3: out.append(r.choice("0123456789#*") + "\ufe0f\u20e3")
            elif k == 4: out.append(r.choice("\u2764\u2600\u260e\u270c") + "\ufe0f" + ("\u200d\U0001F525" if r.random() < 0.4 else ""))
            else: out.append(r.choice(EMOJI))
        return r.choice(["", " ", self.word(), " " + self.word() + " "]).join(out)

    def marks_(self):
        r, out = self.r, []
        for _ in range(r.randint(1, 6)):
            k = r.randrange(5)
            if k == 0: out.append(r.choice("aeiouncAEIOUszyk") + "".join(chr(r.randint(0x300, 0x345)) for _ in range(r.randint(1, 4))))
            elif k == 1: out.append(chr(r.choice(self.composed)) + (chr(r.choice(self.marks)) if r.random() < 0.5 else ""))
            elif k == 2: out.append(unicodedata.normalize("NFD", chr(r.choice(self.composed))))
            elif k == 3: out.append(chr(r.randint(0x1100, 0x1112)) + chr(r.randint(0x1161, 0x1175)) + (chr(r.randint(0x11A8, 0x11C2)) if r.random() < 0.6 else ""))
            else: out.append(r.choice(" x1\u0928") + "".join(chr(r.choice(self.marks)) for _ in range(r.randint(1, 20 if r.random() < 0.1 else 3))))
        return r.choice(["", " "]).join(out)

    def white(self):
        r, out = self.r, []
        for _ in range(r.randint(1, 5)):
            if r.random() < 0.6: out.append(r.choice(["", self.word(), r.choice(PUNCT), str(r.randint(0, 999))]))
            if r.random() < 0.3: out.append(r.choice([" ", "\n", "\t"]) * r.randint(1, 90))
            else: out.append("".join(r.choice(WHITE) for _ in range(r.randint(1, 12))))
        if r.random() < 0.5: out.append(self.word())
        return "".join(out)

    def number(self):
        r, out = self.r, []
        for _ in range(r.randint(1, 5)):
            n = r.randrange(10 ** r.randint(1, 14))
            out.append(r.choice([str(n), f"{n:,}", f"{n / 1000:.3f}", f"-{n}", f"{n:x}", f"${n}.99", f"{n}%", f"{n}th", f"{r.randint(1900, 2100)}-{r.randint(1, 12):02}-{r.randint(1, 31):02}", f"1e-{n % 300}",
                                 "".join(chr(r.choice(self.numbers)) for _ in range(r.randint(1, 5))), "0" * r.randint(1, 30), f"v{n % 9}.{n % 7}", f"{n}{self.word()}{n}"]))
        return r.choice([" ", "  ", "", ", ", "\n", " \t"]).join(out)

    def contraction(self):
        r, out = self.r, []
        for _ in range(r.randint(1, 6)):
            out.append(r.choice(["", self.word(), "I", "1", "\u00e9", "'"]) + r.choice(["'", "'", "'", "\u2019", "''", " '"]) + r.choice(SUFFIX) + r.choice(["", "", self.word(), "1", "'"]))
        return r.choice([" ", " ", "", "  "]).join(out)

    def control(self):
        r, out = self.r, []
        for _ in range(r.randint(1, 6)):
            s, k = r.choice(self.specials), r.randrange(9)
            if k < 3: out.append(s)
            elif k == 3: out.append(s[:r.randint(1, len(s) - 1)])
            elif k == 4: out.append(s[r.randint(1, len(s) - 1):])
            elif k == 5: out.append(s[:r.randint(1, len(s) - 1)] + s)
            elif k == 6: out.append(s.replace("|", r.choice(["||", " | ", "\uff5c", ""])))
            elif k == 7: out.append(r.choice([s.upper(), s[:-1] + " " + s[-1], s[0] + s, s + s[-1]]))
            else: out.append(self.word())
            if r.random() < 0.4: out.append(r.choice([" ", "\n", "  ", self.word(), " " + self.word(), "\u0301", "7"]))
        return "".join(out)

    def chaos(self):
        r, out = self.r, []
        for _ in range(r.randint(1, 10)):
            k = r.random()
            if k < 0.5: c = r.choice(self.assigned)
            elif k < 0.65: c = r.choice(self.loose)
            elif k < 0.8: c = r.choice((r.randint(0xE000, 0xF8FF), r.randint(0xF0000, 0xFFFFD), r.randint(0x100000, 0x10FFFD), r.randint(0x40000, 0xDFFFF), 0xFFFE, 0xFFFF, 0xFFFD))
            elif k < 0.9: c = r.randint(0, 0x2FF)
            else: c = r.choice((0x20, 0x0A, 0x31, 0x61))
            out.append(chr(c) if c in self.cps else "?")
        return "".join(out)

    def run(self):
        c = self.r.choice(["a", "e", " ", "-", "=", "\n", "0", "9", "\u00e9", "\u4e2d", "ab", "ha", "<", "\t", ".", "\u0301", "\U0001F600", "\r\n", " a", "A", "'"])
        return c * self.r.choice((self.r.randint(1, 40), self.r.randint(40, 200)))

    def punct(self):
        r = self.r
        return r.choice(["", " "]).join("".join(r.choice(PUNCT) for _ in range(r.randint(1, 8))) + r.choice(["", "\n", "\r\n", self.word(), "1"]) for _ in range(r.randint(1, 4)))

    def vocab(self):
        return "".join(self.r.choice(self.vocab_text) for _ in range(self.r.randint(1, 8)))

    def mix(self):
        k = [self.prose, self.script, self.code, self.emoji, self.marks_, self.white, self.number, self.contraction, self.control, self.chaos, self.punct]
        s = self.r.choice(["", " "]).join(self.r.choice(k)()[:40] for _ in range(self.r.randint(2, 3)))
        return self.r.choice(["", " ", "  ", "\n"]) + s + self.r.choice(["", " ", "  ", "\n\n"])

    def strings(self):
        out = ["", " ", "  ", "a", "x  12", "\r\n", "'", "1234567890", "\u0301", "\u1e9b\u0323", "\u212b\u2126", "I'LL he'\u017f"] + self.specials
        for kind, n in ((self.prose, 600), (self.script, 900), (self.code, 600), (self.emoji, 300), (self.marks_, 450), (self.white, 500), (self.number, 400),
                        (self.contraction, 350), (self.control, 500), (self.chaos, 450), (self.run, 120), (self.punct, 250), (self.vocab, 500), (self.mix, 500)):
            out += [kind() for _ in range(n)]
        return [s if all(ord(c) in self.cps for c in s) else "".join(c for c in s if ord(c) in self.cps) for s in out]


# ---- vocabularies -----------------------------------------------------------------------------------------------------------------------------

def byte_alphabet():
    same = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in same]
    return {**{b: chr(b) for b in same}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def from_gguf(path):
    from gguf import GGUFReader
    f = GGUFReader(path).fields
    strings = lambda k: [bytes(f[k].parts[i]).decode() for i in f[k].data]
    types = [int(f["tokenizer.ggml.token_type"].parts[i][0]) for i in f["tokenizer.ggml.token_type"].data]
    return strings("tokenizer.ggml.tokens"), types, strings("tokenizer.ggml.merges")


TRAINED = {  # family: (size, control tokens, user-defined tokens)
    "gpt2": (6000, ["<|endoftext|>"], ["<tool>", "<tool>s", "\t\t\t\t"]),
    "llama3": (7000, ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"], ["<|eot", "[[ref]]"]),
}


def train(family, cps):
    size, control, user = TRAINED[family]
    gen = Gen(family + " corpus", cps, control + user, [" the"])
    kinds = [gen.prose] * 6 + [gen.script] * 2 + [gen.code] * 4 + [gen.number, gen.contraction, gen.white, gen.marks_, gen.run, gen.punct]
    corpus = [gen.r.choice(kinds)() for _ in range(40000)]
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizer(family)
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False, initial_alphabet=sorted(byte_alphabet().values())))
    import json
    model = json.loads(t.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
    if family == "llama3":  # words no merge makes: they show whether a whole piece is looked up first
        tokens += list(dict.fromkeys("\u0120" + w for w in gen.words if "\u0120" + w not in model["vocab"]))[:200]
    types = [1] * len(tokens) + [3] * len(control) + [4] * len(user)
    return tokens + control + user, types, merges


def references(family, tokens, types, merges):
    """(special tokens parsed, not parsed)"""
    def make(parse):
        t = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in merges], ignore_merges=family == "llama3"))
        t.pre_tokenizer = pre_tokenizer(family)
        if family == "qwen2":
            t.normalizer = normalizers.NFC()
        if parse:
            t.add_special_tokens([AddedToken(s, normalized=False, special=True) for s, k in zip(tokens, types) if k == 3])
            t.add_tokens([AddedToken(s, normalized=False, special=False) for s, k in zip(tokens, types) if k == 4])
        return t
    return make(True), make(False)


# ---- files ------------------------------------------------------------------------------------------------------------------------------------

def varint(f, n):
    while n >= 0x80:
        f.write(bytes([n & 0x7F | 0x80]))
        n >>= 7
    f.write(bytes([n]))


def blob(f, s):
    b = s.encode()
    varint(f, len(b))
    f.write(b)


def store(path, raw):
    with open(path, "wb") as out, gzip.GzipFile("", "wb", 9, out, mtime=0) as z:
        z.write(raw)
    print(f"  {path}: {os.path.getsize(path)} bytes", file=sys.stderr)


def make(family, args, cps):
    print(family, file=sys.stderr)
    tokens, types, merges = train(family, cps) if family in TRAINED else from_gguf(os.path.join(args.models, MODELS[family]))
    back = {c: b for b, c in byte_alphabet().items()}
    text = []
    for s, k in zip(tokens, types):
        if k == 1 and all(c in back for c in s):
            try: text.append(bytes(back[c] for c in s).decode())
            except UnicodeDecodeError: pass
    specials = [s for s, k in zip(tokens, types) if k in (3, 4)]
    strings = Gen(family, cps, specials, text).strings()
    parsed, plain = references(family, tokens, types, merges)
    f = io.BytesIO()
    f.write(b"WTOK1\n")
    varint(f, len(strings))
    differ = 0
    for s in strings:
        a, b = parsed.encode(s, add_special_tokens=False).ids, plain.encode(s, add_special_tokens=False).ids
        blob(f, s)
        varint(f, len(a))
        for i in a: varint(f, i)
        differ += a != b
        varint(f, 0 if a == b else len(b) + 1)
        if a != b:
            for i in b: varint(f, i)
    print(f"  {len(strings)} strings, {differ} with other ids when special tokens are not parsed", file=sys.stderr)
    store(os.path.join(args.out, family + ".gold.gz"), f.getvalue())
    if family in TRAINED:
        f = io.BytesIO()
        f.write(b"WVOC1\n")
        varint(f, len(tokens))
        for s, k in zip(tokens, types):
            f.write(bytes([k]))
            blob(f, s)
        varint(f, len(merges))
        for m in merges: blob(f, m)
        store(os.path.join(args.out, family + ".vocab.gz"), f.getvalue())


def main():
    p = argparse.ArgumentParser(description="golden vectors of the tokenizers")
    p.add_argument("--models", default=os.environ.get("WEIR_TEST_MODELS", "."), help="folder of the model files (smollm, qwen2)")
    p.add_argument("--out", default="tests/golden/tok")
    p.add_argument("family", nargs="*", default=["smollm", "qwen2", "gpt2", "llama3"])
    args = p.parse_args()
    cps = agreed()
    for family in args.family:
        make(family, args, cps)


if __name__ == "__main__":
    main()
