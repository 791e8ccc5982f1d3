"""The built-in learner and the sources on a real Kafka: transactions and several partitions, halt and resume with the same data range, kill -9, a CSV file,
settings that are wrong; telemetry through a broker's outage; files as JSON and Avro."""
from kit import *


def native(name, store, learner, extra=""):
    return (f"name: {name}\ncpus: 0.3\nmemory: 128 MiB\nlearners: 1\ndata_stores:\n  - {store}\nframework: {{name: native}}\n"
            f"penstock:\n  model: {{name: {name}}}\n  learner: {learner}\n{extra}")


def made(p, name):
    rows = [json.loads(l) for l in p.cli("models", "list", "--json").stdout.splitlines()]
    found = [r for r in rows if r["name"] == name]
    check(len(found) == 1, f"model {name}: {rows}")
    return found[0]


def learner_pid(p):
    return until(lambda: [pid for pid, c in p.processes("learn --run-dir") if " learn --run-dir" in c], 30, "no learner runs")[0]


with Platform() as p:
    # --- telemetry: shares, keys, order -------------------------------------------------------------------------------------------
    p.cli("source", "telemetry", "-t", "tele", "--interval", "5ms", "--window", "50ms", "--count", "300", "-q")
    rows = [(m.key().decode(), p.decode(m.value())) for m in p.read("tele")]
    check(len(rows) == 300 and {k for k, _ in rows} == {socket.gethostname()}, f"{len(rows)} records, keys { {k for k, _ in rows} }")
    odd = [r for _, r in rows if abs(sum(r["cpu"].values()) - 1) > 1e-6]
    check(not odd, f"shares do not add up: {odd[:3]}")
    times = [r["time"].timestamp() for _, r in rows]
    check(times == sorted(times), "records out of order")

    # --- telemetry through an outage: it goes on, nothing is lost -----------------------------------------------------------------
    source = p.spawn("source", "telemetry", "-t", "outage", "--interval", "20ms", log="source.log")
    when = lambda m: p.decode(m.value())["time"].timestamp()
    p.read("outage", lambda ms: len(ms) > 100)
    p.kafka("kill", "1")
    away = time.time()
    time.sleep(6)
    p.kafka("start", "1")
    back = time.time()
    p.read("outage", lambda ms: ms and when(ms[-1]) > back + 3)
    check(source.poll() is None, f"the source ended in the outage with {source.poll()}")
    source.terminate()
    check(source.wait(20) == 0, f"the source ended with {source.returncode}: {(p.dir / 'source.log').read_text()[-300:]}")
    times = sorted(map(when, p.read("outage")))
    gap = max(b - a for a, b in zip(times, times[1:]))
    check(len(times) > 100 and len(set(times)) == len(times) and gap < (back - away) / 2, f"{len(times)} records, {len(set(times))} different, longest gap {gap:.1f} s in an outage of {back - away:.1f} s: {(p.dir / 'source.log').read_text()[-1500:]}")

    # --- a topic written by transactions: markers and aborted records are no data ---------------------------------------------------
    rng = random.Random(4)
    p.create("tx", 3)
    pr = p.producer(**{"transactional.id": "writer", "message.timeout.ms": 30000})  # within the transaction's
    pr.init_transactions(30 * PATIENCE)

    def write(n, commit=True):
        pr.begin_transaction()
        for _ in range(n):
            x, y = rng.gauss(0, 1), rng.gauss(0, 1)
            pr.produce("tx", json.dumps({"m": {"x": 20 + 5 * x, "y": None if x > 2.5 else 1000 + y}, "z": x * y if commit else 1e9, "ok": True}).encode(), key=str(rng.random()))
        check(pr.flush(30) == 0, "written")  # what has not left is no aborted record: an abort would forget it
        (pr.commit_transaction if commit else pr.abort_transaction)(30 * PATIENCE)

    write(200), write(50, commit=False), write(200), write(30, commit=False)
    store = "{id: s, type: topic, topic: tx, from: beginning, to: end}"
    settings = "{features: [m.x, m.y, {field: z, scale: 2}], hidden: [48, 48], epochs: 400, batch: 2, validation: 0.25, seed: 3}"
    whole = p.submit(native("whole", store, settings))
    p.wait_state(whole, "COMPLETED", timeout=120)
    a = made(p, "whole")
    check(sum(r["to"] - r["from"] for r in a["trained_on"]) >= 400 and a["metrics"]["records"] == 400, f"trained on {a['trained_on']}: {a['metrics']}")
    check(a["features"] == ["m.x", "m.y", "z"], f"features {a['features']}")

    # --- halted and resumed while new records come: the same range, the same result to the last bit -----------------------------------
    halted = p.submit(native("halted", store, settings))
    p.events("metrics", lambda ms: any(m["training_id"] == halted and (m["epoch"] or 0) >= 5 for m in ms), 60)
    p.cli("halt", halted)
    check(p.wait_state(halted, *ENDED)["state"] == "HALTED", f"not halted in time: {p.show(halted)}")
    write(300)
    p.cli("resume", halted)
    check(p.wait_state(halted, "COMPLETED", "FAILED", timeout=120)["generation"] == 2, f"resumed: {p.show(halted)}")
    b = made(p, "halted")
    check((a["trained_on"], a["metrics"]) == (b["trained_on"], b["metrics"]), f"uninterrupted {a['trained_on']} {a['metrics']}, resumed {b['trained_on']} {b['metrics']}")
    epochs = [m["epoch"] for m in p.events("metrics") if m["training_id"] == halted and m["group"] == "train"]
    check(epochs == [float(e) for e in range(1, 401)], f"epochs repeated or left out: {len(epochs)}")

    # --- kill -9 of the learner: the retry goes on from the checkpoint ----------------------------------------------------------------
    killed = p.submit(native("killed", "{id: s, type: topic, topic: tx, from: beginning, to: 100}", settings.replace("400", "1500"), "  retries: 1\n"))
    p.events("metrics", lambda ms: any(m["training_id"] == killed and (m["epoch"] or 0) >= 5 for m in ms), 60)
    os.kill(learner_pid(p), signal.SIGKILL)
    end = p.wait_state(killed, *ENDED, timeout=120)
    check(end["state"] == "COMPLETED" and end["generation"] == 2, f"after kill -9: {end['state']} generation {end['generation']}: {end['reason']}")
    logs = [l["text"] for l in p.events("logs") if l["training_id"] == killed]
    check(any("resuming from the checkpoint of generation 1" in l for l in logs), f"no resume in the log: {logs[-5:]}")
    check(all(r["to"] <= 100 for r in made(p, "killed")["trained_on"]), f"range: {made(p, 'killed')['trained_on']}")

    # --- a CSV file; the exported model against onnxruntime ---------------------------------------------------------------------------
    with open(p.dir / "d.csv", "w") as f:
        f.write("time,temp,load,state\n")
        for i in range(900):
            x, y = rng.gauss(0, 1), rng.gauss(0, 1)
            f.write(f"{i},{20 + 5 * x:.4f},{'' if i % 100 == 0 else f'{100 + 9 * y:.4f}'},{'hot' if x > y else 'cold'}\n")
    job = p.submit(native("csv", f"{{id: d, type: files, connection: {{path: {p.dir / 'd.csv'}}}}}",
                          "{target: state, classes: [cold, hot], hidden: [16], epochs: 40, learning_rate: 0.01}"))
    check(p.wait_state(job, *ENDED)["state"] == "COMPLETED", f"csv: {p.show(job)}")
    check(made(p, "csv")["features"] == ["temp", "load"] and made(p, "csv")["metrics"]["validation_accuracy"] > 0.9, f"csv: {made(p, 'csv')}")
    p.cli("models", "fetch", "csv:1", p.dir / "csv.onnx")
    try:
        import numpy, onnxruntime
        s = onnxruntime.InferenceSession(str(p.dir / "csv.onnx"))
        prob = s.run(None, {"input": numpy.array([[30, 91], [10, 109]], numpy.float32)})[0]
        check(prob[0][1] > 0.9 and prob[1][0] > 0.9, f"onnxruntime says {prob}")
    except ImportError:
        print("skipped: onnxruntime (pip install onnxruntime numpy)")

    # --- settings that are wrong: refused, with every one of them named; data that cannot be learned from: failed, with the reason -------
    bad = native("bad", store, "{epohcs: 3, hidden: none, batch: 0}")
    (p.dir / "bad.yml").write_text(bad)
    r = p.cli("submit", p.dir / "bad.yml", ok=False)
    check(r.returncode != 0 and all(w in r.stderr for w in ("did you mean epochs?", "penstock.learner.hidden", "penstock.learner.batch")), f"submit says {r.returncode}: {r.stderr}")
    asker = p.producer()
    asker.produce(PREFIX + "jobs.requests", json.dumps({"request_id": "bad", "action": "SUBMIT", "user": "u", "manifest": bad}).encode(), key="bad")
    check(asker.flush(20) == 0, "the request was not acknowledged")
    evs = p.events("jobs.events", lambda es: any(e["request_id"] == "bad" for e in es), 30)
    check(any(e["type"] == "REJECTED" and "epohcs" in json.dumps(e["details"]) for e in evs if e["request_id"] == "bad"), f"not rejected: {evs[-1]}")
    for more, words in (("", ("700 records have a target", "none of the 2 classes", "other_classes: leave_out")), (", other_classes: leave_out", ("none of the 700 records can be trained on", "none of the 2 classes"))):
        none = p.submit(native("none", store, "{features: [nowhere], target: ok, classes: [a, b]" + more + "}"))
        check(p.wait_state(none, *ENDED)["state"] == "FAILED", f"no usable record: {p.show(none)}")
        text = " ".join(l["text"] for l in p.events("logs") if l["training_id"] == none)
        check(all(w in text for w in words), f"no usable record{more}, but the log says: {text[-600:]}")

    # --- files ---------------------------------------------------------------------------------------------------------------------
    r = p.cli("source", "file", p.dir / "d.csv", "-t", "f.json", "--key", "state", "--partitions", "2", "-q")
    rows = [(m.key(), json.loads(m.value())) for m in p.read("f.json")]
    check(len(rows) == 900 and all(k.decode() == v["state"] for k, v in rows) and sum(v["load"] is None for _, v in rows) == 9, f"{len(rows)} JSON records")
    (p.dir / "d.avsc").write_text(json.dumps({"type": "record", "name": "Row", "fields": [{"name": "time", "type": "long"}, {"name": "temp", "type": "double"},
                                                                                          {"name": "load", "type": ["null", "double"]}, {"name": "state", "type": "string"}]}))
    p.cli("source", "file", p.dir / "d.csv", "-t", "f.avro", "--schema", p.dir / "d.avsc", "-q")
    rows = [p.decode(m.value()) for m in p.read("f.avro")]
    check(len(rows) == 900 and rows[0]["load"] is None and isinstance(rows[1]["temp"], float), f"{len(rows)} Avro records: {rows[:1]}")
    for args, words in ((("--key", "stat"), "did you mean state?"), (("--plain-names", "--format", "jsonl"), "are for CSV"), (("--schema", p.dir / "nosuch.avsc"), "nosuch.avsc")):
        r = p.cli("source", "file", p.dir / "d.csv", "-t", "f.none", *args, ok=False)
        check(r.returncode in (1, 2) and words in r.stderr, f"{args}: exit {r.returncode}: {r.stderr}")
    r = p.cli("source", "file", "-", "-t", "f.keyless", "--key", "id", ok=False, input='{"id":1}\n{"ib":2}\n{"id":null}\n')
    check(r.returncode == 3 and "-:2:" in r.stderr and [m.key() for m in p.read("f.keyless")] == [b"1", None], f"exit {r.returncode}: {r.stderr}")
    r = p.cli("source", "file", "-", "-t", "f.lines", ok=False, input='{"a":1}\nnot json\n\n[1]\n{"a":2}\n')
    check(r.returncode == 3 and "-:2:" in r.stderr and "-:4:" in r.stderr and len(p.read("f.lines")) == 2, f"exit {r.returncode}: {r.stderr}")
print("ok: the learner from topics and files, resume, kill -9; telemetry and files as sources")
