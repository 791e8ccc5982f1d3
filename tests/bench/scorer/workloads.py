"""W1 to W4: penstock (librdkafka and its own client under it) beside the same pipeline in C from parts (peer.c: librdkafka's batches, avro-c, and this very engine
or ONNX Runtime): same broker, same topic, same run, interleaved, scores compared row by row.

    PENSTOCK_BUILD=build $(tests/live/venv) tests/bench/scorer/workloads.py [--records 500000] [--runs 3] [--only W1]

CPU-seconds a million records by getrusage, the whole process, and its peak memory; a run over 512 records is subtracted, so that starting and ending do not count.
Prints the table for RESULTS.md."""
import sys, os, argparse, hashlib, statistics
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../live"))
from kit import *
import io, re
import numpy as np

DISTINCT, PARTITIONS, FEW = 50000, 4, 512
PEER = BIN.parent / "tests/bench_scorer_peer"


def models(folder):
    """Trained or made by the libraries that models come from, in their own environment: name → file."""
    python = subprocess.run([ROOT / "tests/live/venv-models"], capture_output=True, text=True, check=True).stdout.strip()
    code = ("import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import models, nets, numpy as np; f = Path(sys.argv[2]); f.mkdir(parents=True, exist_ok=True)\n"
            "print('gbdt', models.boosted(f, 100, 6, 'xgboost').path)\nprint('big', models.boosted(f, 500, 8, 'xgboost').path)\n"
            "for n, m in (('auto', nets.mlp(np.random.default_rng(3), [30, 64, 32, 64, 30])), ('crayfish', nets.mlp(np.random.default_rng(3), [784, 32, 32, 32, 32, 10])), ('cnn', nets.lenet(np.random.default_rng(3)))):\n"
            "    (f / (n + '.onnx')).write_bytes(m.SerializeToString()); print(n, f / (n + '.onnx'))")
    out = subprocess.run([python, "-c", code, ROOT / "tests/bench/engine", folder], capture_output=True, text=True)
    check(out.returncode == 0, out.stderr[-600:])
    return dict(line.split() for line in out.stdout.splitlines() if len(line.split()) == 2)


#            name, model, numbers in a row, nullable, shape, records (share of --records)
WORKLOADS = [("W1 GBDT 100x6, 30 floats", "gbdt", 30, False, "30", 1), ("W1 GBDT 100x6, 30 nullable floats", "gbdt", 30, True, "30", 1),
             ("W1 GBDT 500x8, 30 floats", "big", 30, False, "30", .4), ("W2 autoencoder 30-64-32-64-30, raw output", "auto", 30, False, "30", 1),
             ("W3 Crayfish FFNN, Avro", "crayfish", 784, False, "784", .2), ("W4 CNN 28x28, Avro", "cnn", 784, False, "1x28x28", .1)]


def schema_of(width, nullable):
    kind = ["null", "float"] if nullable else "float"
    fields = [{"name": f"f{i}", "type": kind} for i in range(width)] if width <= 30 else [{"name": "x", "type": {"type": "array", "items": "float"}}]
    return {"type": "record", "name": "Row", "namespace": "bench", "fields": [{"name": "id", "type": "long"}, *fields]}


def fill(p, topic, sid, width, nullable, records):
    rng = np.random.default_rng(9)
    x = rng.normal(size=(DISTINCT if width <= 30 else min(DISTINCT, records), width)).astype(np.float32)
    gone = rng.random(x.shape) < .03
    rows, head = [], b"\0" + struct.pack(">I", sid)
    for i in range(len(x)):
        out = io.BytesIO()
        out.write(long_of(i))
        if width > 30:
            out.write(long_of(width) + x[i].tobytes() + b"\0")
        elif nullable:
            out.write(b"".join(b"\0" if gone[i, k] else b"\2" + x[i, k].tobytes() for k in range(width)))
        else:
            out.write(x[i].tobytes())
        rows.append(head + out.getvalue())
    producer = p.producer(**{"linger.ms": 20, "queue.buffering.max.messages": 1000000, "batch.num.messages": 2000, "message.max.bytes": 10000000})
    for i in range(records):
        while True:
            try:
                producer.produce(topic, rows[i % len(rows)], partition=i // 500 % PARTITIONS)
                break
            except BufferError:
                producer.poll(.1)
    check(producer.flush(300) == 0, "input produced")
    return sum(map(len, rows)) / len(rows)


def long_of(v):
    z, out = v << 1, bytearray()
    while z > 127:
        out.append(z & 127 | 128)
        z >>= 7
    return bytes(out + bytes([z]))


def measure(command, env, cwd):
    """CPU-seconds and peak MiB of one process. The peak that wait4 tells would be that of this program, whose memory the child had until its exec."""
    with open(cwd / "bench.err", "w+") as err:
        child, peak = subprocess.Popen(list(map(str, command)), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err), 0
        while True:
            found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{child.pid}/status").read_text())
            peak = max(peak, int(found[1]) if found else 0)
            pid, status, use = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            time.sleep(.05)
        child.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        check(child.returncode == 0, f"{command[:3]} exited {child.returncode}: {err.read()[-800:]}")
    return use.ru_utime + use.ru_stime, peak / 1024


def scores(p, topic, count):
    out = {}
    for m in p.read(topic, timeout=300):
        s = p.decode(m.value())
        out[(s["source"]["partition"], s["source"]["offset"])] = s["score"]
    check(len(out) == count, f"{topic}: {len(out)} scores, not {count}")
    return out


def sides(ort):
    yield "penstock, librdkafka", "rdkafka exactly_once"
    yield "penstock, wire", "wire exactly_once"
    yield "penstock, wire, at least once", "wire at_least_once"
    yield "C: librdkafka, avro-c, this engine", "own"
    yield "C: librdkafka, avro-c, ONNX Runtime", ort


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--records", type=int, default=500000)
    a.add_argument("--runs", type=int, default=3)
    a.add_argument("--only", default="")
    o = a.parse_args()
    lines = [f"Load when it began: {os.getloadavg()[0]:.0f}.", "", "| workload | pipeline | CPU-s a million (least to most) | beside penstock on wire, exactly once | peak MiB |", "|---|---|---|---|---|"]
    with Platform(up=False) as p:
        p.start_registry()
        files = models(p.dir / "models")
        ort = next(Path(subprocess.run([ROOT / "tests/live/venv-models"], capture_output=True, text=True).stdout.strip()).parents[1].glob("lib/python*/site-packages/onnxruntime/capi/libonnxruntime.so.*"))
        for w, (name, model, width, nullable, dims, share) in enumerate(WORKLOADS):
            if o.only not in name:
                continue
            records, topic, found, schema = int(o.records * share), f"in{w}", {}, schema_of(width, nullable)
            sid = p.register(f"{topic}-value", schema)
            p.create(topic, PARTITIONS)
            size = fill(p, topic, sid, width, nullable, records)
            (p.dir / "in.avsc").write_text(json.dumps(schema))
            features = [{"field": f"f{i}", "missing": "value", "value": 0} for i in range(width)] if width <= 30 else [{"field": "x", "slots": width}]
            starts, compare = {}, {}
            for run in range(o.runs + 1):
                for who, how in sides(str(ort)):
                    for count in (FEW, records) if not run else (records,):
                        tag = f"o{w}-{hashlib.sha256(who.encode()).hexdigest()[:6]}-{run}-{count}"
                        p.create(tag, PARTITIONS)
                        if who.startswith("penstock"):
                            bus, guarantee = how.split()
                            (p.dir / "bench.yml").write_text(f"name: {tag}\ninput: {{topics: [{topic}], group: {tag}}}\nmodel: {{file: {files[model]}}}\nguarantee: {guarantee}\noutput: {{topic: {tag}}}\n"
                                                             f"score: {{type: raw}}\nbus: {bus}\nbatching: {{count: 512}}\nfeatures: {json.dumps(features)}\n")
                            command = [BIN, "score", "run", "-c", p.dir / "bench.yml", *(["--max-records", count] if count == FEW else ["--exit-on-eof"])]
                        else:
                            command = [PEER, p.bootstrap, topic, tag, p.dir / "in.avsc", p.dir / "out.avsc", out_id, files[model], how, count, width, 512, dims]
                        cpu, mib = measure(command, p.env, p.dir)
                        if who == "penstock, librdkafka" and count == FEW:
                            subject = json.loads(p.http(f"/subjects/{tag}-value/versions/latest", p.registry)[1])
                            out_id = subject["id"]
                            (p.dir / "out.avsc").write_text(subject["schema"])
                        if count == FEW:
                            starts[who] = cpu
                        elif run:
                            found.setdefault(who, []).append((max(cpu - starts[who], 0) / records * 1e6, mib))
                        else:
                            compare[who] = tag
                        print(f"{name}: {who}, {count}: {cpu:.2f} CPU-s, {mib:.0f} MiB", flush=True)
            theirs = {who: scores(p, tag, records) for who, tag in compare.items() if width <= 30 or "wire" in who or "own" in who or "this" in who}
            first = theirs.pop("penstock, wire")
            for who, other in theirs.items():
                worst = max(abs(x - y) / max(1, abs(y)) for key, ys in first.items() for x, y in zip(other[key], ys))
                check(worst < 1e-4 and all(len(other[key]) == len(ys) for key, ys in first.items()), f"{name}: {who} differs by {worst}")
            base = statistics.median(c for c, _ in found["penstock, wire"])
            for who, values in found.items():
                cpu, mib = zip(*values)
                lines.append(f"| {name} ({size:.0f} bytes) | {who} | {statistics.median(cpu):.2f} ({min(cpu):.2f} to {max(cpu):.2f}) | {statistics.median(cpu) / base:.1f} | {max(mib):.0f} |")
                print(lines[-1], flush=True)
    print("\n".join(lines + [f"\nLoad when it ended: {os.getloadavg()[0]:.0f}."]), flush=True)


main()
