#!/usr/bin/env python3
"""weir beside llama.cpp on this machine, in one run: prefill, decode, cold start, memory, idle CPU.

    bench/against.py --build build --llama DIR MODEL.gguf [MODEL.gguf ...] [--rounds 3] [--threads 2]

DIR holds llama-bench and llama-server of a native build (its own business; nothing of it is part of this tree); without --llama only weir is measured.
Speeds are taken in turns, A B A B, and the ratio is the median of the rounds' ratios, so that a machine whose speed drifts does not decide it. The
read bandwidth and the peak of the int8 dot product are measured between the rounds by bench_gemm (--type none).
"""
import argparse, json, os, re, signal, socket, statistics, subprocess, sys, tempfile, time, urllib.request


def run(cmd):
    return subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout


def weir_speed(build, model, threads, pp, tg):
    out = run([f"{build}/bench/bench_engine", model, "-t", str(threads), "-p", str(pp), "-n", str(tg), "-r", "1"])
    get = lambda what: float(re.search(what + r"\d+.*median ([\d.]+)", out).group(1))
    return get("pp"), get("tg")


def llama_speed(dir_, model, threads, pp, tg):
    out = run([f"{dir_}/llama-bench", "-m", model, "-t", str(threads), "-p", str(pp), "-n", str(tg), "-r", "1", "-o", "json"])
    rows = json.loads(out[out.index("["):out.rindex("]") + 1])
    return next(r["avg_ts"] for r in rows if r["n_prompt"]), next(r["avg_ts"] for r in rows if r["n_gen"])


def limits(build, threads):
    out = run([f"{build}/bench/bench_gemm", "--type", "none", "--threads", str(threads)])
    return tuple(float(x) for x in re.findall(r"([\d.]+) (?:GB/s|GOP/s)", out)[:2])


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def first_token(port, model, started, deadline=60):
    """Seconds from `started` to the first streamed text of a 20-token prompt; polls until the server listens and is ready."""
    body = json.dumps({"model": model, "prompt": "The river runs past the mill and over the weir, and the miller counts every turn of the", "max_tokens": 4,
                       "temperature": 0, "stream": True}).encode()
    while time.monotonic() - started < deadline:
        try:
            with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"})) as r:
                for line in r:
                    if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0].get("text"):
                        return time.monotonic() - started
        except (OSError, urllib.error.HTTPError):
            time.sleep(0.002)
    raise SystemExit("no first token within the deadline")


def status(pid, key):
    return int(re.search(key + r":\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1)) * 1024


def cpu_ticks(pid):
    f = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return int(f[11]) + int(f[12])


def cold(cmd, port, model, idle_s):
    t0 = time.monotonic()
    p = subprocess.Popen(cmd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        first = first_token(port, model, t0)
        peak = status(p.pid, "VmHWM")
        idle = None
        if idle_s:
            time.sleep(0.5)
            a = cpu_ticks(p.pid)
            time.sleep(idle_s)
            idle = (cpu_ticks(p.pid) - a) / os.sysconf("SC_CLK_TCK") / idle_s
        return first, peak, idle
    finally:
        p.send_signal(signal.SIGTERM)
        p.wait()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("models", nargs="+")
    ap.add_argument("--build", default="build")
    ap.add_argument("--llama")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--pp", type=int, default=512)
    ap.add_argument("--tg", type=int, default=128)
    ap.add_argument("--no-cold", action="store_true")
    a = ap.parse_args()
    med = statistics.median
    for model in a.models:
        name = os.path.basename(model)
        size = json.loads(run([f"{a.build}/weir", "inspect", model, "--json"]))
        rows = []
        for _ in range(a.rounds):
            bw, ops = limits(a.build, a.threads)
            w = weir_speed(a.build, model, a.threads, a.pp, a.tg)
            bw2, ops2 = limits(a.build, a.threads)
            l = llama_speed(a.llama, model, a.threads, a.pp, a.tg) if a.llama else (float("nan"),) * 2
            rows.append((w, l, (bw + bw2) / 2, max(ops, ops2)))
        print(f"\n{name}, {a.threads} threads, {a.rounds} rounds")
        for i, what in enumerate((f"prefill {a.pp}", f"decode {a.tg}")):
            print(f"  {what:12} weir {med(r[0][i] for r in rows):9.1f} tok/s   llama.cpp {med(r[1][i] for r in rows):9.1f} tok/s"
                  f"   ratio {med(r[0][i] / r[1][i] for r in rows):5.2f}  ({', '.join(f'{r[0][i] / r[1][i]:.2f}' for r in rows)})")
        read, params = size["read_bytes_per_token"], size["parameters"]
        print(f"  decode reads {read / 1e6:.0f} MB a token: {med(r[0][1] * read / 1e9 / r[2] for r in rows):.0%} of the read bandwidth ({med(r[2] for r in rows):.1f} GB/s)")
        print(f"  prefill: {med(r[0][0] * 2 * params / 1e9 / r[3] for r in rows):.0%} of the int8 peak ({med(r[3] for r in rows):.0f} GOP/s), counting 2 operations a parameter")
        if a.no_cold:
            continue
        ours, theirs = [], []
        for i in range(a.rounds):
            port = free_port()
            ours.append(cold([f"{a.build}/weir", "serve", model, "--port", str(port), "--threads", str(a.threads), "--log-level", "error"], port,
                             os.path.splitext(name)[0], 5 if i == 0 else 0))
            if a.llama:
                port = free_port()
                theirs.append(cold([f"{a.llama}/llama-server", "-m", model, "--port", str(port), "-t", str(a.threads), "-c", "8192"], port, name, 5 if i == 0 else 0))
        show = lambda t: f"first token after {med(x[0] for x in t):.2f} s, peak {med(x[1] for x in t) / 1e6:.0f} MB, idle {t[0][2]:.2%} of a core"
        print(f"  cold start   weir: {show(ours)}; file {os.path.getsize(model) / 1e6:.0f} MB")
        if theirs:
            print(f"  cold start   llama.cpp: {show(theirs)}")


main()
