"""penstock's engine beside ONNX Runtime, XGBoost, LightGBM, and trees compiled by tl2cgen and lleaves: one thread each, in one process, on one clock.

    tests/bench/engine/run                   everything, writes the section of tests/bench/RESULTS.md and BUILD/bench-engine.json
    tests/bench/engine/run --quick           fewer models, shorter turns; prints only
    tests/bench/engine/run --render FILE     the section again from an earlier FILE, nothing measured
    tests/bench/engine/run --compare FILE    afterwards: what became faster or slower than the figures in FILE
"""
import argparse, json, os, platform, subprocess, tempfile
from importlib.metadata import version
from pathlib import Path
import lightgbm, numpy as np, onnxruntime, xgboost
import models

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build"))
BENCH, RESULTS = BUILD / "tests/bench_engine", ROOT / "tests/bench/RESULTS.md"
TOLERANCE = 2e-4  # greatest difference of a result in float32; tree models agree far closer unless a leaf is wrong


def libraries():
    ort = next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"))
    return {"ONNX Runtime": ort, "XGBoost": Path(xgboost.__file__).parent / "lib/libxgboost.so", "LightGBM": next(Path(lightgbm.__file__).parent.rglob("lib_lightgbm.so"))}


def cpu():
    info = dict(line.split(":", 1) for line in open("/proc/cpuinfo").read().split("\n\n")[0].splitlines() if ":" in line)
    info = {k.strip(): v.strip() for k, v in info.items()}
    flags = [f for f in ("avx2", "fma", "avx512f", "avx512_vnni", "amx_tile") if f in info.get("flags", "").split()]
    return f"{info.get('model name', platform.machine())} (family {info.get('cpu family')}, model {info.get('model')}), {' '.join(flags)}"


def measure(m, seconds, repeats, python):
    """Lines of JSON of one model, by side."""
    libs = libraries()
    sides = [("penstock", "best", m.path), ("ONNX Runtime", libs["ONNX Runtime"], m.path)] + [(s, libs[s], f) for s, f in m.sides] + [("penstock native", "best", f) for _, f in m.sides]
    extra = models.compiled(m, python) if m.sides and m.visits < 1500 else None  # the great ones take a compiler an hour
    if extra:
        sides.append((extra[0], "-", extra[1]))
    rng = np.random.default_rng(9)
    with tempfile.NamedTemporaryFile(prefix="penstock-bench-") as f:
        x = models.table(rng, m.rows)[0] if m.visits else rng.normal(size=(m.rows, *m.dims)).astype(np.float32)
        x.tofile(f.name)
        command = [BENCH, f.name, m.rows, "x".join(map(str, m.dims)), m.values, ",".join(map(str, m.batches)), seconds, repeats] + [w for s in sides for w in s]
        run = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{m.name}: {run.stderr.strip()[-500:] or run.returncode}")
    found = {}
    for line in map(json.loads, run.stdout.splitlines()):
        side = found.setdefault(line.pop("side"), {"ns": {}})
        if "batch" in line:
            side["ns"][str(line["batch"])] = line["ns_per_row"]
            side.setdefault("first_to_this", {})[str(line["batch"])] = line["first_to_this"]
        else:
            side.update(line)
    for name, side in found.items():
        if not side.get("max_abs_difference", 0) <= TOLERANCE:
            raise SystemExit(f"{m.name}: {name} differs from {side['with']} by {side['max_abs_difference']}: nothing is timed that is wrong")
    return found


def share(m, ns, machine):
    """Of the machine's limit: float32 operations a second for dense models, cycles for each node on a row's way for trees."""
    if m["flops"]:
        return f"{m['flops'] / ns / machine['fp32_gflops']:.0%}"
    return f"{ns * machine['gigahertz'] / m['visits']:.2f} cycles/node"


def number(ns):
    return f"{ns:,.0f}" if ns >= 100 else f"{ns:.1f}"


def report(result):
    machine, out = result["machine"], []
    peers = ["ONNX Runtime", "XGBoost", "LightGBM", "tl2cgen", "lleaves"]
    out += [f"{result['cpu']}, {os.cpu_count()} cores; one thread each. Kernels: {machine['isa']}. Measured on this core: {machine['fp32_gflops']:.1f} GFLOP/s of float32 multiply-adds in registers, "
            f"{machine['fp32_gflops_l1']:.1f} fed from L1, {machine['gigahertz']:.2f} GHz. Built by {'gcc ' * machine['compiler'][0].isdigit()}{machine['compiler']}, {result['build']}. Load average when it began {machine['load_average']:.2f}, when it "
            f"ended {result['load_after']:.2f} (2 or more: other programs shared the caches).", "",
            "Peers: " + ", ".join(f"{k} {v}" for k, v in result["versions"].items()) + ": their C interfaces in the same process, tensors made beforehand, LightGBM's prepared call for single rows. "
            "The results of all rows were compared with ONNX Runtime's before anything was timed. CPU time of the process; sides take turns, the best of "
            f"{result['repeats']} turns of {result['seconds']:g} s counts; {models.ROWS:,} distinct rows gone through in order (encoder: 4,096). Command: `tests/bench/engine/run`", "",
            "Nanoseconds a row; in brackets: how many times penstock's (of the ONNX model). Of the limit: dense nets, share of the multiply-adds that the core can do in registers; trees, cycles for each inner node on a row's way through the "
            "model (a walk of row after row needs two loads for each: not below 1).", "",
            "| model | batch | penstock | of the limit | from the library's own file | " + " | ".join(peers) + " |", "|---|---|---|---|---|" + "---|" * len(peers)]
    for m in result["models"]:
        ours = m["sides"]["penstock"]["ns"]
        for batch, ns in ours.items():
            own = m["sides"].get("penstock native", {}).get("ns", {}).get(batch)
            cells = [(lambda t: f"{number(t)} ({t / ns:.1f})" if t else "–")(m["sides"].get(p, {}).get("ns", {}).get(batch)) for p in peers]
            out.append(f"| {m['name']} | {int(batch):,} | **{number(ns)}** | {share(m, ns, machine)} | {number(own) if own else '–'} | " + " | ".join(cells) + " |")
    out += ["", "Loading the model, the library being there already (milliseconds), and resident memory that library, model and a first batch of 512 add to a process (MB; penstock's own code is in the program):", "",
            "| model | size | penstock | penstock, from the library's own file | " + " | ".join(peers) + " |", "|---|---|---|---|" + "---|" * len(peers)]
    for m in result["models"]:
        cell = lambda s: f"{s['load_ms']:.1f} ms, {s['memory_kb'] / 1024:.1f} MB" if s and "load_ms" in s else "–"
        out.append(f"| {m['name']} | {m['size'] or format(m['flops'], ',') + ' operations a row'} | {cell(m['sides']['penstock'])} | {cell(m['sides'].get('penstock native'))} | " + " | ".join(cell(m["sides"].get(p)) for p in peers) + " |")
    worst = max((s["max_abs_difference"], m["name"], n) for m in result["models"] for n, s in m["sides"].items() if "max_abs_difference" in s)
    out += ["", f"Greatest difference of any result to ONNX Runtime's: {worst[0]:.1g} ({worst[2]}, {worst[1]}).", ""] + targets(result)
    return "\n".join(out)


def targets(result):
    """What was set out to be reached, and what was."""
    by = {m["name"]: m for m in result["models"]}
    lines = ["| target | reached |", "|---|---|"]
    ratios = [(m["sides"]["ONNX Runtime"]["ns"][b] / m["sides"]["penstock"]["ns"][b], m["name"], b) for m in result["models"] if m["visits"] for b in ("64", "512", "4096")]
    low, high = min(ratios), max(ratios)
    lines.append(f"| trees at least 8 times as fast as ONNX Runtime at batches of 64 and more | {low[0]:.1f} ({low[1]}, batch {low[2]}) to {high[0]:.1f} ({high[1]}, batch {high[2]}) |")
    ae = by["autoencoder 30-64-32-64-30"]
    share_of = {b: ae["flops"] / ns / result["machine"]["fp32_gflops"] for b, ns in ae["sides"]["penstock"]["ns"].items()}
    lines.append(f"| autoencoder at 85 % of the core's float32 peak at large batches | {max(share_of.values()):.0%} |")
    lines.append(f"| autoencoder in 0.3 µs at batch 1 | {ae['sides']['penstock']['ns']['1'] / 1000:.2f} µs |")
    return lines


def write(text):
    begin, end = "<!-- engine -->", "<!-- /engine -->"
    old = RESULTS.read_text() if RESULTS.exists() else "# Figures\n\nMeasured by the commands named, on the computer named; recorded, not promised.\n"
    section = f"{begin}\n## Engine\n\n{text}\n{end}\n"
    i, j = old.find(begin), old.find(end)
    RESULTS.write_text(old[:i] + section + old[j + len(end) + 1:] if i >= 0 else old.rstrip("\n") + "\n\n" + section)


def compare(result, path):
    old = {m["name"]: m for m in json.loads(Path(path).read_text())["models"]}
    for m in result["models"]:
        for batch, ns in m["sides"]["penstock"]["ns"].items():
            before = old.get(m["name"], {}).get("sides", {}).get("penstock", {}).get("ns", {}).get(batch)
            if before and not 0.95 < ns / before < 1.05:
                print(f"{m['name']}, batch {batch}: {number(before)} → {number(ns)} ns a row ({before / ns:.2f} times as fast)")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--quick", action="store_true", help="fewer models, shorter turns; RESULTS.md is left alone")
    a.add_argument("--only", default="", help="models whose name contains this; RESULTS.md is left alone")
    a.add_argument("--seconds", type=float, help="of a turn (0.3; quick 0.05)")
    a.add_argument("--repeats", type=int, help="turns of each side (7; quick 3)")
    a.add_argument("--json", type=Path, default=BUILD / "bench-engine.json")
    a.add_argument("--compare", metavar="FILE", help="an earlier --json file")
    a.add_argument("--render", metavar="FILE", help="writes RESULTS.md from an earlier --json file")
    o = a.parse_args()
    if o.render:
        write(report(json.loads(Path(o.render).read_text())))
        return
    if not BENCH.exists():
        raise SystemExit(f"{BENCH} is missing: cmake -B DIR -DCMAKE_BUILD_TYPE=Release && ninja -C DIR bench_engine, then PENSTOCK_BUILD=DIR {__file__}")
    names = {"ONNX Runtime": "onnxruntime", "XGBoost": "xgboost-cpu", "LightGBM": "lightgbm"}
    versions = {k: version(v) for k, v in names.items()} | {"tl2cgen": "1.0.0", "lleaves": "1.3.0"}
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "penstock" / ("bench-models-" + "-".join(versions.values()))
    build = next((line.split("=")[1].strip() for line in open(BUILD / "CMakeCache.txt") if line.startswith("CMAKE_BUILD_TYPE")), "?")
    seconds, repeats = o.seconds or (0.05 if o.quick else 0.3), o.repeats or (3 if o.quick else 7)
    result = {"cpu": cpu(), "machine": json.loads(subprocess.check_output([BENCH, "--machine"])), "build": build, "seconds": seconds, "repeats": repeats, "versions": versions, "models": []}
    for make in models.all_models(cache, o.quick and not o.only):
        m = make()
        if o.only not in m.name:
            continue
        sides = measure(m, seconds, repeats, os.environ.get("PENSTOCK_BENCH_TREES", ""))
        result["models"].append({"name": m.name, "flops": m.flops, "visits": m.visits, "size": m.size, "sides": sides})
        print(f"{m.name}: " + "; ".join(f"{n} {'/'.join(number(v) for v in s['ns'].values()) or s.get('left_out')}" for n, s in sides.items()), flush=True)
    result["load_after"] = os.getloadavg()[0]
    o.json.write_text(json.dumps(result, indent=1))
    if not o.only:
        text = report(result)
        print(text)
    if not o.only and not o.quick:
        write(text)
    if o.compare:
        compare(result, o.compare)


if __name__ == "__main__":
    main()
