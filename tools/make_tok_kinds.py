#!/usr/bin/env python3
"""Makes the golden vectors of the kinds of tokenizer that came after byte-level BPE, tests/golden/tok/, with `sentencepiece` and `tokenizers`.

    python3 tools/make_tok_kinds.py --models FOLDER [--out tests/golden/tok] [KIND ...]
    python3 tools/make_tok_kinds.py ... --show N KIND      what the reference makes of string N

Needs sentencepiece 0.2.3, tokenizers 0.23 and, for gemma, gguf 0.19 and the model file. All strings come from the generators of make_tok_golden.py; all
kinds share them. The same versions give the same strings and the same SentencePiece kinds; the tokenizers library's trainers break ties as their threads
happen to, so each hf-* run makes another vocabulary, written together with its hashes.

kinds.text.gz, after gunzip (varint as in make_tok_golden.py):
    "WTXT1\\n"  varint count, then per string: varint bytes, UTF-8
KIND.ids.gz:
    "WIDS1\\n"  varint count, then per string two little-endian u32: the hash of its ids with control tokens parsed and not parsed. 0 in the second: the
    same. 0 in the first: left out, because a code point in it is of another class, case or form in the reference's Unicode than in Unicode 14 (or is
    named in docs/tokenizers.md as treated otherwise).
    The hash is FNV-1a over the ids as little-endian u32, and 1 where that would be 0.
KIND.vocab.gz (llama2, llama2bare, t5, t5bytes; bert, with the hashes of hf-bert), what a GGUF file has:
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


# ---- tokenizer.json -----------------------------------------------------------------------------------------------------------------------------

def added(content, special=True, **how):
    return AddedToken(content, special=special, normalized=False, **how)


BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def bert(cps, lower):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(corpus(cps, f"bert {lower}", 15000), trainers.WordPieceTrainer(vocab_size=2500, special_tokens=BERT_SPECIAL, limit_alphabet=600, show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", t.token_to_id("[CLS]")), ("[SEP]", t.token_to_id("[SEP]"))])
    t.decoder = decoders.WordPiece(cleanup=False)
    return t


def trained_bpe(cps, name, size, pre, normalizer=None, alphabet=(), special=(), limit=None):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre
    if normalizer: t.normalizer = normalizer
    how = {"limit_alphabet": limit} if limit else {}
    t.train_from_iterator(corpus(cps, name, 15000), trainers.BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False, initial_alphabet=sorted(alphabet), special_tokens=list(special), **how))
    m = json.loads(t.to_str())["model"]
    return m["vocab"], [tuple(x) for x in m["merges"]]


def spm_like(cps, prefix):
    """What transformers makes of a SentencePiece BPE: Llama 2 (prefix) and Gemma."""
    vocab, merges = trained_bpe(cps, "spm like", 2200, pre_tokenizers.Metaspace(prepend_scheme="always"), limit=400,
        special=["<unk>", "<s>", "</s>", "<pad>"] + [f"<0x{i:02X}>" for i in range(256)])
    for w in META * 2, META * 4:
        vocab[w] = len(vocab)
        merges.append((w[:len(w) // 2],) * 2)
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    replace = normalizers.Replace(" ", META)
    t.normalizer = normalizers.Sequence([normalizers.Prepend(META), replace]) if prefix else replace
    if not prefix: t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    undo = [decoders.Replace(META, " "), decoders.ByteFallback(), decoders.Fuse()]
    t.decoder = decoders.Sequence(undo + ([decoders.Strip(" ", 1, 0)] if prefix else []))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", vocab["<s>"])])
    t.add_special_tokens([added(s) for s in ("<unk>", "<s>", "</s>", "<pad>")])
    if not prefix: t.add_tokens([added(s, False) for s in ("<table>", "</h1>", "\n\n", META * 2)] + [added("<start_of_turn>")])
    return t


def byte_level(cps, name, split, normalizer=None, template=None, ignore=False, prefix=False, user=(), special=("<|im_start|>", "<|im_end|>", "<|endoftext|>")):
    level = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=split in (None, "digits"))
    pre = level if split is None else pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True) if split == "digits" else pre_tokenizers.Split(Regex(split), "isolated"), level])
    vocab, merges = trained_bpe(cps, name, 2500, pre, normalizer, byte_alphabet().values())
    if ignore:
        for w in dict.fromkeys(corpus_gen(cps, name).words):
            if len(vocab) < 2700: vocab.setdefault("\u0120" + w, len(vocab))
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore))
    t.pre_tokenizer = pre
    if normalizer: t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([s if isinstance(s, AddedToken) else added(s) for s in special])
    t.add_tokens(list(user))
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    if template: t.post_processor = processors.Sequence([t.post_processor, processors.TemplateProcessing(single=template + " $A", pair=template + " $A $B", special_tokens=[(template, t.token_to_id(template))])])
    return t


def unigram(cps, name, normalizer, pre, decoder):
    t = Tokenizer(models.Unigram())
    t.normalizer, t.pre_tokenizer = normalizer, pre
    t.train_from_iterator(corpus(cps, name, 12000, False), trainers.UnigramTrainer(vocab_size=2500, show_progress=False, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>"))
    t.decoder = decoder
    t.add_special_tokens([added("<mask>", lstrip=True), added("<extra_id_0>", rstrip=True)])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", t.token_to_id("</s>"))])
    return t


def xlmr(cps):
    table = spm_train(cps, "t5", False, 3000, True, True, rules(cps), ["<extra_id_0>"], ["<table>", "[[ref]]"], byte_fallback=False).charsmap
    meta = dict(replacement=META, prepend_scheme="always")
    return unigram(cps, "xlmr", normalizers.Precompiled(table), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(**meta)]), decoders.Metaspace(**meta))


def albert(cps):
    meta = dict(replacement=META, prepend_scheme="first")
    norm = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                 normalizers.Replace(Regex(" {2,}"), " ")])
    return unigram(cps, "albert", norm, pre_tokenizers.Metaspace(**meta), decoders.Metaspace(**meta))


def pieces(cps):
    """Cuts that no family has together: every behaviour once."""
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"[,;]\s?"), "merged_with_next"), pre_tokenizers.Split("-", "merged_with_previous"),
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex(r"\S+"), "removed", invert=True),
        pre_tokenizers.CharDelimiterSplit("_"), pre_tokenizers.Metaspace(prepend_scheme="never", split=False)])
    norm = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Lowercase()])
    vocab, merges = trained_bpe(cps, "pieces", 2000, pre, norm, special=["<unk>", "<s>"], limit=300)
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True))
    t.normalizer, t.pre_tokenizer, t.decoder = norm, pre, decoders.Metaspace(prepend_scheme="never")
    t.add_special_tokens([added("<unk>"), added("<s>")])
    return t


def words(cps):
    pre = pre_tokenizers.Whitespace()
    vocab, merges = trained_bpe(cps, "words", 2000, pre, normalizers.NFD(), special=["<unk>", "</s>"], limit=300)
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>"))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.NFD(), pre, decoders.Metaspace(prepend_scheme="never")
    t.add_special_tokens([added("<unk>"), added("</s>")])
    return t


UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
GPT4O = "|".join([r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+%s", r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*%s", "%s", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
SUFFIXES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

HF = {
    "hf-bert": lambda cps: bert(cps, True),
    "hf-bertcased": lambda cps: bert(cps, False),
    "hf-llama2": lambda cps: spm_like(cps, True),
    "hf-gemma": lambda cps: spm_like(cps, False),
    "hf-qwen": lambda cps: byte_level(cps, "hf qwen", GPT4 % r"\p{N}", normalizers.NFC(), user=[added("[[ref]]", False), AddedToken("<table>", special=False, normalized=True)]),
    "hf-llama3": lambda cps: byte_level(cps, "hf llama3", GPT4 % r"\p{N}{1,3}", template="<s>", ignore=True, special=("<s>", added("</s>", lstrip=True), added("<|im_end|>", rstrip=True))),
    "hf-gpt2": lambda cps: byte_level(cps, "hf gpt2", None, prefix=True),
    "hf-smol": lambda cps: byte_level(cps, "hf smol", "digits"),
    "hf-dbrx": lambda cps: byte_level(cps, "hf dbrx", GPT4 % r"\p{N}{1,3}"),
    "hf-tekken": lambda cps: byte_level(cps, "hf tekken", GPT4O % ("", "", r"\p{N}"), ignore=True),
    "hf-gpt4o": lambda cps: byte_level(cps, "hf gpt4o", GPT4O % (SUFFIXES, SUFFIXES, r"\p{N}{1,3}")),
    "hf-xlmr": xlmr, "hf-albert": albert, "hf-pieces": pieces, "hf-words": words,
}


def without_control(doc):
    """The same tokenizer to which control tokens are text: with user-defined ones where blanks are written U+2581, without any elsewhere."""
    doc = json.loads(json.dumps(doc))
    meta = META in json.dumps(doc["decoder"], ensure_ascii=False)
    special = {a["content"] for a in doc["added_tokens"] if a["special"]}
    doc["added_tokens"] = [a for a in doc["added_tokens"] if meta and not a["special"]]
    if doc["model"]["type"] == "Unigram":  # there they would be words
        doc["model"]["vocab"] = [["\U0010fffd" + s if s in special else s, x] for s, x in doc["model"]["vocab"]]
        doc["added_tokens"] = []
    doc["post_processor"] = None
    return Tokenizer.from_str(json.dumps(doc))


HAN = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


def other_unicode(doc):
    """Code points that the library's normalizer takes for something else than Unicode 14 does."""
    kinds = json.dumps(doc["normalizer"])
    t = Tokenizer.from_str(json.dumps(doc))
    bert, memo = "BertNormalizer" in kinds, {}
    if not bert and not any(x in kinds for x in ("NF", "StripAccents", "Lowercase")): return lambda c: False

    punct, digits = pre_tokenizers.Punctuation(), pre_tokenizers.Digits()

    def expect(c):
        cat = unicodedata.category(c)
        if bert:
            if cat in ("Cc", "Cf", "Co", "Cs") and c not in "\t\n\r" or c == "\ufffd": return ""
            if c.isspace(): return " "
            if unicodedata.category(c) == "Lo" and any(a <= ord(c) <= b for a, b in HAN): return f" {unicodedata.normalize('NFD', c) if doc['normalizer']['lowercase'] else c} "
            if not doc["normalizer"]["lowercase"]: return c
            return "".join(x for x in unicodedata.normalize("NFD", c) if unicodedata.category(x) != "Mn").lower()
        for form in "NFKD", "NFKC", "NFD", "NFC":
            if form in kinds: c = unicodedata.normalize(form, c)
        if "StripAccents" in kinds: c = "".join(x for x in c if unicodedata.category(x) != "Mn")
        return "".join(x.lower() for x in c) if "Lowercase" in kinds else c

    def bad(c):
        if c not in memo:
            memo[c] = t.normalizer.normalize_str("x" + c + "x") != "x" + expect(c) + "x"
            if "Digits" in json.dumps(doc["pre_tokenizer"]): memo[c] |= (len(digits.pre_tokenize_str("x" + c)) > 1) != (unicodedata.category(c)[0] == "N")
            if "StripAccents" in kinds:  # docs/tokenizers.md, what differs: the mark goes, but not the place where it stood
                d = unicodedata.normalize("NFKD", c)
                memo[c] |= unicodedata.category(d[0]) == "Mn" and any(unicodedata.category(x) != "Mn" for x in d)
            if (bert or "Punctuation" in json.dumps(doc["pre_tokenizer"])) and unicodedata.category(c)[0] in "PSC" and ord(c) > 127:
                memo[c] |= (len(punct.pre_tokenize_str("x" + c + "x")) > 1) != (unicodedata.category(c)[0] == "P")
        return memo[c]
    return bad


# ---- files ------------------------------------------------------------------------------------------------------------------------------------

def fnv(ids):
    h = 0x811C9DC5
    for b in struct.pack(f"<{len(ids)}I", *ids): h = (h ^ b) * 0x01000193 & 0xFFFFFFFF
    return h or 1


def write_ids(kind, args, strings, parsed, plain, bad=lambda c: False, skip=()):
    f = io.BytesIO()
    f.write(b"WIDS1\n")
    varint(f, len(strings))
    left, differ = 0, 0
    for s in strings:
        if any(bad(c) for c in s) or any(x in s for x in skip):
            f.write(bytes(8))
            left += 1
            continue
        a, b = parsed(s), plain(s)
        differ += a != b
        f.write(struct.pack("<II", fnv(a), 0 if a == b else fnv(b)))
    print(f"  {len(strings)} strings, {left} left out, {differ} with other ids when control tokens are not parsed", file=sys.stderr)
    store(os.path.join(args.out, kind + ".ids.gz"), f.getvalue())


def show(s, parsed, plain, text):
    print(repr(s), parsed(s), [text(i) for i in parsed(s)], plain(s), sep="\n")


def make_hf(kind, args, cps, strings):
    doc = json.loads(HF[kind](cps).to_str())
    t, bare = Tokenizer.from_str(json.dumps(doc)), without_control(doc)
    parsed, plain = (lambda s: t.encode(s, add_special_tokens=False).ids), (lambda s: bare.encode(s, add_special_tokens=False).ids)
    if args.show is not None: return show(strings[args.show], parsed, plain, t.id_to_token)
    # The library lets a text that is lowered to a control token's name become that token. Here text never does (docs/tokenizers.md).
    capitals = [a["content"].upper() for a in doc["added_tokens"]] if doc["model"]["type"] == "Unigram" and "Lowercase" in json.dumps(doc) else ()
    write_ids(kind, args, strings, parsed, plain, other_unicode(doc), capitals)
    store(os.path.join(args.out, kind + ".json.gz"), json.dumps(doc, ensure_ascii=False, separators=(",", ":")).encode())
    if kind == "hf-bert":  # the same as a GGUF file has it
        write_ids("bert", args, strings, parsed, plain, other_unicode(doc))
        vocab = sorted(doc["model"]["vocab"].items(), key=lambda x: x[1])
        as_gguf = lambda s: s if s in BERT_SPECIAL else s[2:] if s.startswith("##") else META + s
        Spm([(as_gguf(s), 0.0, 3 if s in BERT_SPECIAL else 1) for s, _ in vocab], False, False, False, unk=doc["model"]["vocab"]["[UNK]"]).save(os.path.join(args.out, "bert.vocab.gz"))


def make(kind, args, cps, strings):
    print(kind, file=sys.stderr)
    if kind in HF: return make_hf(kind, args, cps, strings)
    spm = SPM[kind](cps, args).load()
    if args.show is not None: return show(strings[args.show], spm.parsed, spm.plain, lambda i: spm.pieces[i][0])
    write_ids(kind, args, strings, spm.parsed, spm.plain)
    if kind != "gemma": spm.save(os.path.join(args.out, kind + ".vocab.gz"))


def main():
    p = argparse.ArgumentParser(description="golden vectors of the tokenizers' kinds")
    p.add_argument("--models", default=os.environ.get("WEIR_TEST_MODELS", "."), help="folder of the model files (gemma)")
    p.add_argument("--out", default="tests/golden/tok")
    p.add_argument("--show", type=int)
    p.add_argument("kind", nargs="*", default=[*SPM, *HF])
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
