"""Records per second and CPU-seconds per million through the scorer, beside the same pipeline in Python (peer.py): same broker, same topic, same run,
interleaved, outputs compared score by score.

    tests/bench/scorer/run [--records 1000000] [--peer-records 200000] [--runs 3]

Writes its table into tests/bench/RESULTS.md between its markers."""
import sys, os, argparse, hashlib, platform, resource, statistics
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../live"))
from kit import *
import numpy as np, onnx, fastavro, onnxruntime, confluent_kafka
from onnx import helper, TensorProto, numpy_helper

WIDTH, DISTINCT, PARTITIONS = 10, 50000, 4
HERE = Path(__file__).resolve().parent
RESULTS = ROOT / "tests/bench/RESULTS.md"
SCHEMA = {"type": "record", "name": "Reading", "namespace": "bench", "fields": [{"name": "id", "type": "long"}, {"name": "host", "type": "string"}] +
          [{"name": f"f{i}", "type": ["null", "double"] if i < 2 else "double", **({"default": None} if i < 2 else {})} for i in range(WIDTH)]}
FEATURES = [{"field": f"f{i}", "scale": 0.5, "offset": 0.1, "missing": "value", "value": 0.25} for i in range(WIDTH)]


def autoencoder(path):
    rng = np.random.default_rng(1)
    sizes, nodes, inits, name = [WIDTH, 32, 8, 32, WIDTH], [], [], "in"
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        inits += [numpy_helper.from_array((rng.standard_normal((a, b)) / np.sqrt(a)).astype(np.float32), f"w{i}"),
                  numpy_helper.from_array((rng.standard_normal(b) * 0.1).astype(np.float32), f"b{i}")]
        last = i == len(sizes) - 2
        nodes.append(helper.make_node("Gemm", [name, f"w{i}", f"b{i}"], ["out" if last else f"g{i}"]))
        if not last:
            nodes.append(helper.make_node("Relu", [f"g{i}"], [f"h{i}"]))
            name = f"h{i}"
    g = helper.make_graph(nodes, "autoencoder", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", WIDTH])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", WIDTH])], inits)
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def fill(p, topic, sid, records):
    rng = np.random.default_rng(2)
    values = rng.standard_normal((DISTINCT, WIDTH))
    nulls = rng.random((DISTINCT, 2)) < 0.03
    rows = []
    for i in range(DISTINCT):
        r = {"id": i, "host": f"host-{i % 20}", **{f"f{k}": float(values[i, k]) for k in range(WIDTH)}}
        for k in range(2):
            if nulls[i, k]:
                r[f"f{k}"] = None
        rows.append(p.encode(sid, r))
    producer = p.producer(**{"linger.ms": 20, "queue.buffering.max.messages": 1000000, "compression.type": "lz4"})
    for i in range(records):
        while True:
            try:
                producer.produce(topic, rows[i % DISTINCT], key=f"host-{i % 20}", partition=i % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    check(producer.flush(120) == 0, "input produced")
    return sum(map(len, rows)) / DISTINCT


def measure(command, env):
    before, t = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    r = subprocess.run(list(map(str, command)), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=1800)
    wall, after = time.monotonic() - t, resource.getrusage(resource.RUSAGE_CHILDREN)
    check(r.returncode == 0, f"{command[:3]} exited {r.returncode}: {r.stderr.decode()[-800:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def scores(p, topic, count):
    """(partition, offset) of the input → score."""
    schema, out = None, {}
    for m in p.read(topic, timeout=300):
        s = p.decode(m.value())
        key = (s["source"]["partition"], s["source"]["offset"])
        check(key not in out, f"{topic}: {key} was scored twice")
        out[key] = (s["score"][0], tuple(s["missing"]))
    check(len(out) == count, f"{topic}: {len(out)} scores, not {count}")
    return out


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--records", type=int, default=1000000)
    a.add_argument("--peer-records", type=int, default=200000)
    a.add_argument("--runs", type=int, default=3)
    a.add_argument("--print", action="store_true", help="do not write RESULTS.md")
    o = a.parse_args()
    results, starts, byte_count = {}, {}, 0
    with Platform(up=False) as p:
        p.start_registry()
        model = p.dir / "autoencoder.onnx"
        autoencoder(model)
        sid = p.register("bench-value", SCHEMA)
        for topic, records in (("in", o.records), ("in.peer", o.peer_records)):
            p.create(topic, PARTITIONS)
            byte_count = fill(p, topic, sid, records)
        compared = 0
        for run in range(o.runs + 1):  # the first is for warming up
            for guarantee in ("exactly_once", "at_least_once"):
                for who in ("penstock", "penstock slim", "penstock wire", "penstock wire slim", "python"):
                    topic = "in.peer" if who == "python" else "in"
                    all_records = o.peer_records if who == "python" else o.records
                    for records in (all_records, 512) if not run else (all_records,):  # 512: what starting, joining and ending cost; subtracted
                        tag = f"{who.replace(' ', '-')}-{guarantee}-{run}" + ("-start" if records == 512 else "")
                        p.create(f"out-{tag}", PARTITIONS)
                        if who == "python":
                            subject = json.loads(p.http(f"/subjects/out-penstock-{guarantee}-{run}-value/versions/latest", p.registry)[1])
                            conf = {"bootstrap": p.bootstrap, "topic": topic, "output": f"out-{tag}", "group": tag, "guarantee": guarantee, "records": records,
                                    "batch": 512, "model": str(model), "model_name": "autoencoder", "digest": hashlib.sha256(model.read_bytes()).hexdigest(),
                                    "features": FEATURES, "input_schema": SCHEMA, "output_schema": json.loads(subject["schema"]),
                                    "output_schema_id": subject["id"]}
                            wall, cpu = measure([sys.executable, HERE / "peer.py", json.dumps(conf)], p.env)
                        else:
                            text = (f"name: {tag}\ninput: {{topics: [{topic}], group: {tag}}}\nmodel: {{file: {model}}}\nguarantee: {guarantee}\n"
                                    f"output: {{topic: out-{tag}, format: {'slim' if 'slim' in who else 'full'}}}\nscore: {{type: reconstruction_error}}\n"
                                    f"bus: {'wire' if 'wire' in who else 'rdkafka'}\nbatching: {{count: 512}}\nfeatures: {json.dumps(FEATURES)}\n")
                            (p.dir / "bench.yml").write_text(text)
                            limit = ["--max-records", records] if records == 512 else ["--exit-on-eof"]
                            wall, cpu = measure([BIN, "score", "run", "-c", p.dir / "bench.yml", *limit], p.env)
                        if records == 512:
                            starts[(who, guarantee)] = (wall, cpu)
                            print(f"{tag}: {wall:.2f} s, {cpu:.2f} CPU-s", flush=True)
                        elif run:
                            wall, cpu = wall - starts[(who, guarantee)][0], cpu - starts[(who, guarantee)][1]
                            print(f"{tag}: {records / wall:,.0f} records/s, {cpu / records * 1e6:.2f} CPU-s per million", flush=True)
                            results.setdefault((who, guarantee), []).append((records / wall, cpu / records * 1e6))
            if run == 1:  # the same rows of both inputs have the same scores
                for guarantee in ("exactly_once", "at_least_once"):
                    ours = scores(p, f"out-penstock-{guarantee}-1", o.records)
                    theirs = scores(p, f"out-python-{guarantee}-1", o.peer_records)
                    for key, (score, gone) in theirs.items():
                        check(abs(ours[key][0] - score) <= 1e-5 * max(1, abs(score)) and ours[key][1] == gone, f"{key}: {ours[key]}, Python says {score} {gone}")
                    compared += len(theirs)
                    check(scores(p, f"out-penstock-wire-{guarantee}-1", o.records) == ours, f"{guarantee}: both clients' scores are the same")
    cpu_name = next((x.split(":")[1].strip() for x in open("/proc/cpuinfo") if x.startswith("model name")), platform.machine())
    lines = [f"Autoencoder 10-32-8-32-10, reconstruction error; Avro in ({byte_count:.0f} bytes, 10 doubles, two of them nullable, a string, a long), {DISTINCT:,} "
             f"distinct rows, {PARTITIONS} partitions; Avro out (full: the whole Score; slim: the score alone); batches of 512; one worker; one Apache Kafka on the "
             f"same {os.cpu_count()} cores ({cpu_name}), preloaded topic, read to its end; a run over 512 records is subtracted, so that starting and joining do not count. {o.records:,} records a run (Python: "
             f"{o.peer_records:,}), {o.runs} runs interleaved after one for warming up: median (least to most). {compared:,} scores compared, all equal within 1e-5.", "",
             f"Peer: Python {platform.python_version()}, confluent-kafka {confluent_kafka.__version__}, fastavro {fastavro.__version__}, onnxruntime "
             f"{onnxruntime.__version__} (one thread), batches of 512, full output without headers: [peer.py](scorer/peer.py). Command: `tests/bench/scorer/run`", "",
             "| pipeline | guarantee | records/s | CPU-seconds per million |", "|---|---|---|---|"]
    for (who, guarantee), values in results.items():
        rate, cpu = zip(*values)
        lines.append(f"| {who} | {guarantee.replace('_', ' ')} | {statistics.median(rate):,.0f} ({min(rate):,.0f} to {max(rate):,.0f}) | "
                     f"{statistics.median(cpu):.2f} ({min(cpu):.2f} to {max(cpu):.2f}) |")
    for name, one, over in (("Penstock to Python", "penstock", "python"), ("Penstock's own client (`bus: wire`) to librdkafka under it", "penstock wire", "penstock")):
        for guarantee in ("exactly_once", "at_least_once"):
            ratio = [statistics.median(v[i] for v in results[(one, guarantee)]) / statistics.median(v[i] for v in results[(over, guarantee)]) for i in (0, 1)]
            lines.append(f"\n{name}, {guarantee.replace('_', ' ')}, full output: {ratio[0]:.1f} times the rate, 1/{1 / ratio[1]:.1f} of the CPU time.")
    core = BIN.parent / "tests/bench_scorer_core"
    if core.exists():  # without Kafka: decode, map, score, encode
        alone = [subprocess.run([core, *a], capture_output=True, text=True).stdout.split() for a in (("512", "full"), ("512", "slim"), ("1", "full"))]
        lines += ["", "The core alone on one core (decode, features, model, encode; no Kafka; [core.c](scorer/core.c)): " +
                  ", ".join(f"{a[2]} ns a record in batches of {a[0]}, {a[1]}" for a in alone if len(a) > 4) + "."]
    text = "\n".join(lines)
    print(text, flush=True)
    if not o.print:
        begin, end = "<!-- scorer -->", "<!-- /scorer -->"
        old = RESULTS.read_text() if RESULTS.exists() else "# Figures\n\nMeasured by the commands named, on the computer named; recorded, not promised.\n"
        section = f"{begin}\n## Scorer beside the same pipeline in Python\n\n{text}\n{end}\n"
        i, j = old.find(begin), old.find(end)
        RESULTS.write_text(old[:i] + section + old[j + len(end) + 1:] if i >= 0 else old.rstrip("\n") + "\n\n" + section)


main()
