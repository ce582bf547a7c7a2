#!/usr/bin/env python3
"""lm-evaluation-harness runs against the server, and its numbers are the server's.

Three runs of the `lm_eval` program on small tasks of our own (lm_eval_tasks/): `local-completions` with token ids, four prompts a request; the same with
prompts as text, three requests at once; `local-chat-completions`. What they report is then computed again here from plain requests, one prompt each, with
the server's own tokenizer. The server's output depends on nothing but the request, so sums agree to the last digit that is sent.

The harness is installed once (0.6 GB, without torch) and runs offline. Its tokenizer is made from the model file."""
import functools
import glob
import json
import math
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("lib", "wire"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import api_client  # noqa: E402
import check  # noqa: E402
import pyenv  # noqa: E402

TASKS = os.path.join(HERE, "lm_eval_tasks")
TMP = os.environ.get("TMPDIR", "/tmp")
MODEL, KEY = "smol", "lm-eval-key"
LONGEST = 64  # tokens the harness believes the model can take: the longest text needs windows then
TOLERANCE = 1e-9


# ---- the harness ----

class Harness:
    def __init__(self, model):
        self.python = pyenv.python("lm-eval-0.4.13", "--no-deps", "-r", os.path.join(TASKS, "requirements.txt"))
        self.drop_tasks()
        self.tokenizer = os.path.join(TMP, "tokenizer")
        why = pyenv.quiet([self.python, os.path.join(TASKS, "make_tokenizer.py"), model, self.tokenizer], env=self.env())
        assert why is True, f"make_tokenizer.py: {why}"

    def drop_tasks(self):
        """The harness reads its thousands of own tasks at every start, which takes 7 s; here only ours are run."""
        for folder in glob.glob(os.path.join(os.path.dirname(self.python), "..", "lib", "python*", "site-packages", "lm_eval", "tasks", "*", "")):
            shutil.rmtree(folder)

    def env(self):
        e = dict(os.environ, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=os.path.join(TMP, "hf"), OPENAI_API_KEY=KEY, NO_PROXY="127.0.0.1")
        e.pop("PYTHONPATH", None)
        return e

    def run(self, name, kind, path, tasks, args, *more):
        """{task: its metrics}, {task: its samples}"""
        out = os.path.join(TMP, name)
        given = ",".join([f"base_url={server.url}{path}", f"model={MODEL}", *args])
        p = subprocess.run([os.path.join(os.path.dirname(self.python), "lm_eval"), "run", "--model", kind, "--model_args", given, "--tasks", ",".join(tasks),
                            "--include_path", TASKS, "--log_samples", "--output_path", out, *more],
                           cwd=check.SRC, env=self.env(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)
        text = p.stdout.decode("utf-8", "replace")
        if p.returncode != 0:
            print(text)
        assert p.returncode == 0, f"lm_eval ended with status {p.returncode}: {text.strip().splitlines()[-1:]}"
        read = lambda pattern: open(glob.glob(os.path.join(out, "*", pattern))[0], encoding="utf-8")
        samples = {t: [json.loads(line) for line in read(f"samples_{t}_*.jsonl")] for t in tasks}
        return json.load(read("results_*.json"))["results"], samples


@functools.cache
def with_ids():
    return harness.run("ids", "local-completions", "/v1/completions", ["weir_choice", "weir_rolling", "weir_generate"],
                       ["tokenizer_backend=huggingface", f"tokenizer={harness.tokenizer}", f"max_length={LONGEST}"], "--batch_size", "4")


@functools.cache
def with_text():
    return harness.run("text", "local-completions", "/v1/completions", ["weir_choice", "weir_generate"],
                       ["tokenizer_backend=huggingface", f"tokenizer={harness.tokenizer}", "tokenized_requests=False", "num_concurrent=3"], "--batch_size", "2")


@functools.cache
def with_chat():
    return harness.run("chat", "local-chat-completions", "/v1/chat/completions", ["weir_generate"], [], "--apply_chat_template")


def arguments(sample):
    """[(context, continuation or options)...] in order"""
    return [[a[k] for k in sorted(a)] for _, a in sorted(sample["arguments"].items(), key=lambda kv: int(kv[0].rsplit("_", 1)[1]))]


# ---- the same by plain requests ----

def post(path, doc):
    a = api_client.Client(server.url).post(path, dict(doc, model=MODEL), Authorization=f"Bearer {KEY}")
    assert a.status == 200, a.body
    return a.json


@functools.cache
def ids_of(text):
    return post("/tokenize", {"prompt": text, "add_special_tokens": False, "parse_special": True})["tokens"]


def score(ids, n_context):
    """(sum of the log-probabilities after the context, whether each was the best, the sum from one token earlier on)"""
    lp = post("/v1/completions", {"prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 0})["choices"][0]["logprobs"]
    check.equal(len(lp["token_logprobs"]), len(ids), "log-probabilities of the echo")
    of, top = lp["token_logprobs"][n_context:], lp["top_logprobs"][n_context:]
    return sum(of), all(p == max(t.values()) for p, t in zip(of, top)), sum(p or 0 for p in lp["token_logprobs"][n_context - 1:])


def windows(ids, prefix):
    """As the harness cuts a text: (ids, tokens of context), each token scored once, with as much before it as fits."""
    longest = LONGEST - 2
    yield [prefix] + ids[:longest], 1
    for start in range(longest, len(ids), longest):
        end = min(start + longest, len(ids))
        yield ids[end - longest - 1:end], longest + 1 - (end - start)


def cut(text, stops):
    at = [text.find(s) for s in stops if s in text]
    return text[:min(at)] if at else text


# ---- tests ----

@functools.cache
def own_choice_scores():
    """For each sample, for each choice: (sum, greedy, the sum from one token earlier on)"""
    return [[score(ids_of(c + a), len(ids_of(c))) for c, a in arguments(s)] for s in with_ids()[1]["weir_choice"]]


def check_choices(samples):
    for s, own in zip(samples, own_choice_scores()):
        for (value, greedy), (sum_, best, _) in zip([r[0] for r in s["resps"]], own):
            assert abs(float(value) - sum_) <= TOLERANCE, f"question {s['doc_id']}: lm_eval has {value}, the same ids scored alone give {sum_}"
            check.equal(greedy, str(best), f"is greedy, question {s['doc_id']}")


def test_choices_scored_by_token_ids():
    check_choices(with_ids()[1]["weir_choice"])


def test_choices_scored_by_text():
    check_choices(with_text()[1]["weir_choice"])


def test_choices_control():
    """Sums that take in one token too many must not pass for the same."""
    reported = [float(r[0][0]) for s in with_ids()[1]["weir_choice"] for r in s["resps"]]
    off = [o[2] for own in own_choice_scores() for o in own]
    assert all(abs(a - b) > 1e-3 for a, b in zip(reported, off)), list(zip(reported, off))


def test_accuracy():
    own = own_choice_scores()
    docs = [s["doc"] for s in with_ids()[1]["weir_choice"]]
    right = sum(max(range(len(o)), key=lambda i: o[i][0]) == d["answer"] for o, d in zip(own, docs)) / len(docs)
    for results, _ in (with_ids(), with_text()):
        check.equal(results["weir_choice"]["acc,none"], right, "accuracy")
    assert right >= 0.7, f"{right:.2f} of the easy questions are right: the scores mean nothing"


def test_rolling():
    results, samples = with_ids()
    total, n_bytes, n_windows = 0.0, 0, 0
    prefix = ids_of("<|im_start|>")
    check.equal(len(prefix), 1, "tokens of the first window's context")
    for s in samples["weir_rolling"]:
        text = s["doc"]["text"]
        parts = list(windows(ids_of(text), prefix[0]))
        own = sum(score(*w)[0] for w in parts)
        value = float(s["resps"][0][0])
        assert abs(value - own) <= TOLERANCE, f"text {s['doc_id']}: lm_eval has {value}, the windows scored alone give {own}"
        total, n_bytes, n_windows = total + own, n_bytes + len(text.encode()), n_windows + len(parts)
    assert n_windows > len(samples["weir_rolling"]), "no text needed a second window"
    seen = results["weir_rolling"]["byte_perplexity,none"]
    assert math.isclose(seen, math.exp(-total / n_bytes), rel_tol=1e-9), f"byte perplexity {seen}, expected {math.exp(-total / n_bytes)}"


def check_answers(samples, generate):
    n_cut = 0
    for s in samples:
        context, options = arguments(s)[0]
        whole = generate(context)
        check.equal(s["resps"][0][0], cut(whole, options["until"]), f"the answer to {s['doc']['prompt']!r}")
        n_cut += cut(whole, options["until"]) != whole
    assert n_cut >= len(samples) // 2, f"only {n_cut} of {len(samples)} answers were ended by a stop string"


def complete(context):
    return post("/v1/completions", {"prompt": context, "temperature": 0, "max_tokens": 24})["choices"][0]["text"]


def chat(context):
    doc = {"messages": json.loads(context[0]), "temperature": 0, "max_tokens": 24}
    return post("/v1/chat/completions", doc)["choices"][0]["message"]["content"]


def test_generate_by_token_ids():
    check_answers(with_ids()[1]["weir_generate"], complete)


def test_generate_by_text():
    check_answers(with_text()[1]["weir_generate"], complete)


def test_generate_by_chat():
    check_answers(with_chat()[1]["weir_generate"], chat)


try:
    path = check.model()
    harness = Harness(path)
except check.Skip as s:
    check.skip("lm-eval 0.4.13", s)
    sys.exit(0)
keys = os.path.join(TMP, f"lm-eval-{os.getpid()}.keys")
with open(keys, "w") as f:
    f.write(KEY + "\n")
with check.Server("serve", path, "--port", "0", "--served-name", MODEL, "--api-key-file", keys, "--ctx", "1024") as server:
    check.tests(globals())
