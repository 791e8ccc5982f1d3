"""The scorer on a real Kafka, watched by clients that share no code with it: bad records, JSON, slim, pass-through, nested nullable fields, an alias
that moves under load, exact offsets, a registry and a broker that go away, kill -9 in a loop with a ledger, two workers."""
import datetime, sys, os, json, random, shutil, struct, threading, time, signal, subprocess, urllib.request
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from kit import *
import numpy as np, onnx, fastavro
from onnx import helper, TensorProto, numpy_helper

SEED = int(os.environ.get("SEED", random.randrange(10**6)))
rng = random.Random(SEED)
print("seed", SEED, flush=True)
# Of another time than now, and not so long ago that topics which are not made here (dead letters) are emptied by their retention, 30 s after the broker's start.
HOUR_AGO = int(time.time() * 1000) - 3600_000
READING = {"type": "record", "name": "Reading", "namespace": "mill", "fields": [
    {"name": "id", "type": "long"}, {"name": "host", "type": "string"},
    {"name": "cpu", "type": ["null", {"type": "record", "name": "Cpu", "fields": [{"name": "user", "type": ["null", "double"], "default": None}]}], "default": None},
    {"name": "mem", "type": "float"}]}


def linear(path, weights, meta={}):
    w = np.array(weights, dtype=np.float32).reshape(-1, 1)
    g = helper.make_graph([helper.make_node("MatMul", ["in", "w"], ["out"])], "g", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", len(w)])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 1])], [numpy_helper.from_array(w, "w")])
    m = helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for k, v in meta.items():
        p = m.metadata_props.add()
        p.key, p.value = k, v
    onnx.save(m, path)


STUMP = """tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=1
objective=regression
feature_names=cpu mem
feature_infos=[0:100] [0:10]
tree_sizes=300

Tree=0
num_leaves=2
num_cat=0
split_feature=0
split_gain=1
threshold=3.25
decision_type=2
left_child=-1
right_child=-2
leaf_value=1.5 -2.5
leaf_weight=1 1
leaf_count=1 1
internal_value=0
internal_weight=0
internal_count=2
is_linear=0
shrinkage=1


end of trees
"""


class Bench(Platform):
    """A broker and a registry, and nothing else of the platform."""

    def __init__(self):
        super().__init__(up=False)
        self.registry_process = self.start_registry()
        self.sid = self.register("readings-value", READING)
        self.schema(self.sid)
        for i, w in enumerate(([1, 10], [2, 20], [3, 30]), 1):
            linear(self.dir / f"m{i}.onnx", w)

    def pipeline(self, name, topic, text=""):
        for t in (topic, f"{topic}.scores"):
            self.create(t, 3)
        path = self.dir / f"{name}.yml"
        path.write_text(f"name: {name}\ninput: {{topics: [{topic}], group: g-{name}}}\n"
                        + (text or f"model: {{name: line, alias: champion}}\nfeatures: [{{field: cpu.user, missing: value, value: 7}}, {{field: mem}}]\n"
                                   f"output: {{topic: {topic}.scores, passthrough: [id, host]}}\nguarantee: exactly_once\n").replace("TOPIC", topic))
        return path

    def send(self, topic, values, keys=None, sid=None):
        producer = self.producer()
        for i, v in enumerate(values):
            raw = v if v is None or isinstance(v, bytes) else self.encode(sid or self.sid, v)
            producer.produce(topic, raw, key=str(i) if keys is None else keys[i], headers=[("h", b"1")], timestamp=HOUR_AGO + i)
            producer.poll(0)
        check(producer.flush(60) == 0, "records produced")

    def scores(self, topic, **kw):
        return [(m, self.decode(m.value())) for m in self.read(topic, **kw)]


def reading(i, user="x", mem=None):
    return {"id": i, "host": f"h{i % 3}", "cpu": None if user is None else {"user": i * 0.5 if user == "x" else user}, "mem": float(i % 11) if mem is None else mem}


def want(r, k=1):
    user = None if r["cpu"] is None else r["cpu"]["user"]
    return k * ((7 if user is None else user) + 10 * r["mem"])


def test_records_of_all_kinds(p):
    path = p.pipeline("kinds", "kinds")
    good = [reading(i) for i in range(50)] + [reading(50, None), {"id": 51, "host": "h", "cpu": {"user": None}, "mem": 2.0}]
    raw = p.encode(p.sid, reading(1))
    other = p.register("other-value", {"type": "record", "name": "Other", "fields": [{"name": "mem", "type": "string"}]})
    bad = {"not-avro": (b"hello, is this avro?", "bad-envelope"), "short": (b"\0\0", "bad-envelope"), "unknown": (b"\0" + struct.pack(">I", 999999) + b"xx", "unknown-schema"),
           "truncated": (raw[:-2], "bad-input"), "shape": (p.encode(other, {"mem": "a"}), "schema-mismatch"), "long": (raw + b"tail", "bad-input")}
    values, keys = list(good), [f"k{i}" for i in range(len(good))]
    for name, (value, _) in bad.items():
        at = rng.randrange(len(values))
        values.insert(at, value), keys.insert(at, name)
    values.append(None), keys.append("tombstone")
    p.send("kinds", values, keys)
    r = p.cli("score", "run", "-c", path, "--exit-on-eof", ok=False)
    check(r.returncode == 3, f"exit status {r.returncode}, not 3: {r.stderr[-500:]}")
    out = p.scores("kinds.scores")
    check(len(out) == len(good) + 1, f"{len(out)} scores for {len(good)} good records and a tombstone")
    by_key = {m.key().decode(): (m, s) for m, s in out}
    source = {m.key().decode(): m for m in p.read("kinds")}
    check(by_key["tombstone"][1] is None and by_key["tombstone"][0].headers() == [("h", b"1")], "a tombstone is passed through")
    for i, g in enumerate(good):
        m, s = by_key[f"k{i}"]
        src = source[f"k{i}"]
        check(abs(s["score"][0] - want(g)) < 1e-4, f"score of {g}: {s['score']}, not {want(g)}")
        check(s["record"] == {"id": g["id"], "host": g["host"]}, f"pass-through {s['record']}")
        check(s["missing"] == ([] if g["cpu"] and g["cpu"]["user"] is not None else ["cpu.user"]), f"missing {s['missing']}")
        check((s["source"]["topic"], s["source"]["partition"], s["source"]["offset"]) == ("kinds", src.partition(), src.offset()), "source")
        check(m.timestamp()[1] == src.timestamp()[1] and m.partition() == src.partition(), "timestamp and partition are the input's")
        check(s["model"]["name"] == "line" and s["model"]["version"] == 1 and len(s["model"]["digest"]) == 64 and s["variant"] == "PRIMARY", "model")
        check(m.headers() == [("h", b"1")], f"headers {m.headers()}")
    letters = {m.key().decode(): m for m in p.read("kinds.dlq")}
    check(set(letters) == set(bad), f"dead letters {sorted(letters)}")
    for name, (value, reason) in bad.items():
        h = dict(letters[name].headers())
        check(letters[name].value() == value, f"{name}: original bytes")
        check(h["__connect.errors.exception.class.name"].decode() == reason, f"{name}: {h['__connect.errors.exception.class.name']}, not {reason}")
        check(h["__connect.errors.topic"] == b"kinds" and h["__connect.errors.connector.name"] == b"kinds" and h["h"] == b"1", f"{name}: headers {h}")
        check(int(h["__connect.errors.offset"]) == source[name].offset(), f"{name}: offset")
    r = p.cli("score", "run", "-c", path, "--exit-on-eof", ok=False)
    check(r.returncode == 0 and len(p.read("kinds.scores")) == len(out), "a second run has nothing to do")


def test_json_slim_and_tolerance(p):
    path = p.pipeline("jason", "jason", "input_format: x\n")
    text = path.read_text()
    r = p.cli("score", "check", "-c", path, ok=False)
    check(r.returncode == 2 and f"{path}:3: unknown key" in r.stderr, f"unknown key: {r.returncode} {r.stderr}")
    path.write_text("name: jason\ninput: {topics: [jason], format: json}\nmodel: {file: m2.onnx}\nfeatures: [{field: cpu.user}, {field: mem, scale: 0.5, offset: 1}]\n"
                    "output: {topic: jason.scores, format: slim}\nguarantee: at_least_once\nerrors: {tolerance: all, dead_letter: {topic: jason.bad}}\n")
    p.send("jason", [json.dumps({"cpu": {"user": i}, "mem": i % 5}).encode() for i in range(40)] + [b'{"cpu": {}}', b"{", b"[]"])
    r = p.cli("score", "run", "-c", path, "--exit-on-eof", ok=False)
    check(r.returncode == 3, f"exit status {r.returncode}: {r.stderr[-500:]}")
    out = p.scores("jason.scores")
    got = sorted(s["score"][0] for _, s in out)
    check(all(set(s) == {"score"} for _, s in out), "slim is the score alone")
    check(len({dict(m.headers())["x-src"] for m, _ in out}) == 40, "slim has its identity in a header, where records may come twice")
    check(np.allclose(got, sorted(2 * i + 20 * (0.5 * (i % 5) + 1) for i in range(40))), "scores of JSON records")
    check(len(p.read("jason.bad")) == 3, "three dead letters")
    p.create("strict", 1)
    path.write_text(path.read_text().replace("[jason]", "[strict]").replace("jason", "strict").replace("tolerance: all", "tolerance: none"))
    p.send("strict", [b'{"cpu": {"user": 1}, "mem": 1}', b"{", b'{"cpu": {"user": 2}, "mem": 1}'])
    r = p.cli("score", "run", "-c", path, "--exit-on-eof", ok=False)
    check(r.returncode == 1 and "strict[0]@1" in r.stderr, f"tolerance none: {r.returncode} {r.stderr[-300:]}")
    check(len(p.read("strict.scores")) == 1, "what came before the bad record is committed")


def test_dry_run_needs_no_broker(p):
    (p.dir / "dry.yml").write_text("name: dry\nmodel: {file: m1.onnx}\nfeatures: [{field: cpu.user, missing: value, value: 7}, {field: mem}]\n")
    rows = [reading(i, None if i % 4 == 0 else "x") for i in range(1000)]
    (p.dir / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows) + "{]\n")
    for codec in ("null", "deflate"):
        with open(p.dir / f"{codec}.avro", "wb") as f:
            fastavro.writer(f, fastavro.parse_schema(READING), rows, codec=codec, sync_interval=3000)
    env, p.env = p.env, {**p.env, "PENSTOCK_BOOTSTRAP_SERVERS": "127.0.0.1:1", "PENSTOCK_REGISTRY": "http://127.0.0.1:1"}
    for name, status in (("null.avro", 0), ("deflate.avro", 0), ("rows.jsonl", 3)):
        r = p.cli("score", "dry-run", "-c", p.dir / "dry.yml", "--in", p.dir / name, "--out", p.dir / "out.jsonl", ok=False)
        check(r.returncode == status, f"{name}: exit status {r.returncode}: {r.stderr}")
        lines = [json.loads(x) for x in (p.dir / "out.jsonl").read_text().splitlines()]
        for row, line in zip(rows, lines):
            check(abs(line["score"][0] - want(row)) < 1e-4 and line["label"] is None and line["missing"] == ([] if row["cpu"] else ["cpu.user"]), f"{name}: {line}")
        check(len(lines) == len(rows) + (status == 3) and ("error" in lines[-1]) == (status == 3), f"{name}: {len(lines)} lines")
    for name, data, says in (("x.csv", b"cpu.user,mem\n1,2\n3,4\n", "looks like CSV"), ("list.json", b'[{"mem": 1}]\n', "is a JSON array"), ("pretty.json", b'{\n "mem": 1\n}\n', "over several lines"),
                             ("x.gz", b"\x1f\x8b\x08\x00abc\n", "gzip"), ("x.parquet", b"PAR1abc", "is Parquet")):
        (p.dir / name).write_bytes(data)
        r = p.cli("score", "dry-run", "-c", p.dir / "dry.yml", "--in", p.dir / name, ok=False)
        check(r.returncode == 2 and says in r.stderr and not r.stdout, f"{name}: exit status {r.returncode}: {r.stdout} {r.stderr}")
    (p.dir / "late.jsonl").write_text('mem\n{"mem": 1}\n')
    check(p.cli("score", "dry-run", "-c", p.dir / "dry.yml", "--in", p.dir / "late.jsonl", ok=False).returncode == 3, "one good line makes it JSON lines")
    p.env = env


def wait_until_scored_by(p, topic, version):
    """Of what comes from now on, each partition has had a score of that version."""
    from confluent_kafka import Consumer, TopicPartition, OFFSET_END
    c = Consumer({"bootstrap.servers": p.bootstrap, "group.id": f"tail-{rng.random()}", "isolation.level": "read_committed", "enable.auto.commit": False, "log_level": 2})
    c.assign([TopicPartition(topic, n, OFFSET_END) for n in range(3)])
    seen = set()

    def look():
        seen.update(m.partition() for m in c.consume(500, 0.2) if not m.error() and p.decode(m.value())["model"]["version"] == version)
        return len(seen) == 3
    until(look, 60, lambda: f"only partitions {seen} are scored by version {version}", step=0)
    c.close()


def test_alias_moves_under_load(p):
    path = p.pipeline("swap", "swap")
    w = p.spawn("score", "run", "-c", path, "--metrics-listen", p.metrics_port, log="swap.log")
    sent, stop = [0], threading.Event()

    def stream():
        producer = p.producer()
        while not stop.is_set():
            producer.produce("swap", p.encode(p.sid, reading(sent[0])), key=str(sent[0]))
            sent[0] += 1
            producer.poll(0)
            if sent[0] % 20 == 0:
                time.sleep(0.01)
        check(producer.flush(60) == 0, "flushed")
    t = threading.Thread(target=stream)
    t.start()
    versions = [1]
    try:
        p.read("swap.scores", lambda out: len(out) > 500, timeout=60)
        for v in (2, 3, 1, 3):
            p.cli("models", "alias", "line", "champion", v)
            versions.append(v)
            wait_until_scored_by(p, "swap.scores", v)
    finally:
        stop.set()
        t.join()
    until(lambda: len(p.read("swap.scores")) >= sent[0], 60, lambda: f"all {sent[0]} are scored")
    text = urllib.request.urlopen(f"http://127.0.0.1:{p.metrics_port}/metrics").read().decode()
    check('penstock_scorer_model_loaded{pipeline="swap",name="line",version="3"' in text and "penstock_scorer_e2e_seconds_bucket" in text, "metrics")
    w.send_signal(signal.SIGTERM)
    check(w.wait(30) == 0, f"SIGTERM drains: exit status {w.returncode}")
    out = p.scores("swap.scores")
    check(sorted(s["record"]["id"] for _, s in out) == list(range(sent[0])), "every record once")
    seen = {}
    for m, s in sorted(out, key=lambda ms: (ms[0].partition(), ms[0].offset())):
        v = s["model"]["version"]
        check(abs(s["score"][0] - want(reading(s["record"]["id"]), v)) < 1e-2, "the score is that of the version it names")
        if seen.setdefault(m.partition(), [v])[-1] != v:
            seen[m.partition()].append(v)
    check(all(x == versions for x in seen.values()), f"versions in order per partition: {seen}")
    points = [e for e in p.events("metrics") if e["training_id"] == "pipeline:swap"]
    check(points and {"records_per_s", "lag", "latency_p99_ms", "records_total"} <= set().union(*(e["values"] for e in points)), "metric points")
    check(any(e["kind"] == "scorer" and e["details"].get("pipeline") == "swap" for e in p.events("workers")), "heartbeat")


def test_alias_counts_from_exact_offsets(p):
    p.cli("models", "alias", "line", "champion", 1)
    path = p.pipeline("exact", "exact")
    p.send("exact", [reading(i) for i in range(300)])
    p.cli("models", "alias", "line", "champion", 2, "--from-end", "exact")
    p.send("exact", [reading(i) for i in range(300, 600)])
    r = p.cli("score", "run", "-c", path, "--exit-on-eof", ok=False)
    check(r.returncode == 0, f"exit status {r.returncode}: {r.stderr[-500:]}")
    for _, s in p.scores("exact.scores"):
        v = 1 if s["record"]["id"] < 300 else 2
        check(s["model"]["version"] == v and abs(s["score"][0] - want(reading(s["record"]["id"]), v)) < 1e-2, f"{s}")
    p.cli("models", "alias", "line", "champion", 1)


def test_every_swap_is_recorded(p):
    """Plain moves under load, three partitions, two workers that are killed in between: of all recorded offsets the last one at or below a score's
    names its version; and a replay by them gives the same scores."""
    path = p.pipeline("told", "told")
    sent, stop, events = [0], threading.Event(), p.producer()

    def stream():
        producer = p.producer()
        while not stop.is_set():
            producer.produce("told", p.encode(p.sid, reading(sent[0])), key=str(sent[0]))
            sent[0] += 1
            producer.poll(0)
            if sent[0] % 20 == 0:
                time.sleep(0.02)
        check(producer.flush(60) == 0, "flushed")
    workers = [p.spawn("score", "run", "-c", path, log="told.log") for _ in range(2)]
    t = threading.Thread(target=stream)
    t.start()
    try:
        p.read("told.scores", lambda out: len(out) > 300, timeout=60)
        for k in range(40):
            events.produce(PREFIX + "models", json.dumps({"name": "line", "version": 1 + k % 3, "type": "ALIAS_SET", "alias": "champion", "actor": "test"}), key="line")
            check(events.flush(20) == 0, "moved")
            time.sleep(rng.uniform(0.05, 0.6))
            if k % 8 == 7:
                i = rng.randrange(2)
                workers[i].kill(), workers[i].wait()
                workers[i] = p.spawn("score", "run", "-c", path, log="told.log")
    finally:
        stop.set()
        t.join()
    until(lambda: len(p.read("told.scores")) >= sent[0], 90, lambda: f"all {sent[0]} are scored", step=1)
    for w in workers:
        w.send_signal(signal.SIGTERM)
    check([w.wait(40) for w in workers] == [0, 0], "both drain")
    out = p.scores("told.scores")
    check(sorted(s["record"]["id"] for _, s in out) == list(range(sent[0])), "every record once")
    told = {}
    for k, e in enumerate(p.events("models")):
        for x in e.get("effective", ()) if e["name"] == "line" and e["type"] == "ALIAS_SET" and e["alias"] == "champion" else ():
            if x["topic"] == "told":
                told.setdefault(x["partition"], []).append((x["offset"], k, e["version"]))
    wrong = []
    for _, s in out:
        src, v = s["source"], s["model"]["version"]
        says = [x for x in sorted(told.get(src["partition"], [])) if x[0] <= src["offset"]]
        if not says or says[-1][2] != v or abs(s["score"][0] - want(reading(s["record"]["id"]), v)) > 1e-2:
            wrong.append((src["partition"], src["offset"], v, says[-1:]))
    used = {s["model"]["version"] for _, s in out}
    check(not wrong and used == {1, 2, 3}, f"{len(wrong)} of {len(out)} contradict the record: {wrong[:5]}; versions {used}")
    r = p.cli("score", "replay", "-c", path, "--from", "0", "--to", "1000000", "--out", p.dir / "replay.jsonl", ok=False)
    check(r.returncode == 0, f"replay: exit status {r.returncode}: {r.stderr[-400:]}")
    lines = {(l["source"]["partition"], l["source"]["offset"]): l for l in map(json.loads, (p.dir / "replay.jsonl").read_text().splitlines())}
    check(len(lines) == len(out), f"{len(lines)} lines of {len(out)} scores")
    differ = [s["source"] for _, s in out if (lambda l: (l["score"], l["model"]) != (s["score"], s["model"]))(lines[s["source"]["partition"], s["source"]["offset"]])]
    check(not differ, f"{len(differ)} scores differ from their replay: {differ[:3]}")
    p.cli("models", "alias", "line", "champion", 1)


def topics(p):
    from confluent_kafka.admin import AdminClient
    return AdminClient({"bootstrap.servers": p.bootstrap}).list_topics(timeout=20).topics


def letters(p, topic):
    return p.read(topic) if topic in topics(p) else []


def test_a_stream_that_changes_its_types(p):
    """A pass-through field of another type: dead letters, the others go on, also after a restart. A shadow whose subject refuses: left out. Whole
    dead letters of any size, with all headers; a topic of letters that is too small is waited for."""
    sid_text = p.register("types-value", READING)
    body = json.dumps({"compatibility": "NONE"}).encode()
    urllib.request.urlopen(urllib.request.Request(p.registry + "/config/types-value", body, {"Content-Type": "application/json"}, method="PUT"), timeout=10).read()
    other = {**READING, "fields": [{"name": "id", "type": "long"}, {"name": "host", "type": "long"}, *READING["fields"][2:]]}
    sid_long = p.register("types-value", other)
    p.schema(sid_long)
    p.register("types.shadow-value", {"type": "record", "name": "Other", "fields": [{"name": "zzz", "type": "int"}]})
    p.cli("models", "alias", "line", "rival", 2)
    path = p.pipeline("types", "types", "model: {name: line, alias: champion}\nfeatures: [{field: cpu.user, missing: value, value: 7}, {field: mem}]\n"
                                        "output: {topic: TOPIC.scores, passthrough: [id, host]}\nguarantee: exactly_once\n"
                                        "rollout: {shadow: {alias: rival, topic: types.shadow}}\nerrors: {dead_letter: {topic: types.dlq}}\n")
    p.create("types.dlq")
    p.set_config("types.dlq", "max.message.bytes", "100000")
    p.set_config("types", "max.message.bytes", "5000000")
    p.send("types", [reading(i) for i in range(20)], sid=sid_text)
    w = p.spawn("score", "run", "-c", path, "--metrics-listen", p.metrics_port, log="types.log")
    p.read("types.scores", lambda out: len(out) >= 20, timeout=60)
    for i in range(20, 40):
        p.send("types", [{**reading(i), "host": i}] if i % 2 else [reading(i)], keys=[str(i)], sid=sid_long if i % 2 else sid_text)
    p.read("types.scores", lambda out: len(out) >= 30, timeout=60)
    w.kill(), w.wait()
    w = p.spawn("score", "run", "-c", path, "--metrics-listen", p.metrics_port, log="types.log")
    p.send("types", [{**reading(40), "host": 1}], keys=["40"], sid=sid_long)
    p.send("types", [reading(41)], keys=["41"], sid=sid_text)
    p.read("types.scores", lambda out: len(out) >= 31, timeout=60)
    until(lambda: len(p.read("types.dlq")) >= 11, 30, lambda: f"{len(p.read('types.dlq'))} of 11 dead letters")
    got = p.read("types.dlq")
    check(sorted(int(m.key()) for m in got) == [*range(21, 40, 2), 40], f"letters {[m.key() for m in got]}")
    check({dict(m.headers())["__connect.errors.stage"] for m in got} == {b"ENCODE"}, "the stage")
    check("types.shadow" not in topics(p) or not p.read("types.shadow"), "no shadow scores under a subject that refuses them")
    text = urllib.request.urlopen(f"http://127.0.0.1:{p.metrics_port}/metrics").read().decode()
    check("penstock_scorer_shadow_skipped_total" in text and (p.dir / "types.log").read_text().count("event=shadow_skipped") <= 2, "told once a start, and counted")

    big, producer = b"\x07" + rng.randbytes(1_500_000), p.producer(**{"message.max.bytes": 5000000})
    producer.produce("types", big, key="big", partition=0, headers=[(f"h{i}", str(i).encode()) for i in range(150)])
    check(producer.flush(30) == 0, "sent")

    def ready():
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{p.metrics_port}/readyz", timeout=30).read().decode()
        except urllib.error.HTTPError as e:
            return f"{e.code} {e.read().decode()}"
    until(lambda: ready().startswith("503") and "types.dlq" in ready(), 30, lambda: f"it says that the letters' topic is too small: {ready()}")
    check(not [m for m in p.read("types.dlq") if m.key() == b"big"], "nothing is cut")
    p.set_config("types.dlq", "max.message.bytes", "5000000")
    until(lambda: [m for m in p.read("types.dlq") if m.key() == b"big"], 60, lambda: f"the letter comes once its topic takes it: {ready()}")
    m = next(m for m in p.read("types.dlq") if m.key() == b"big")
    check(m.value() == big and [h for h in m.headers() if h[0].startswith("h")] == [(f"h{i}", str(i).encode()) for i in range(150)], "whole, with every header")
    until(lambda: ready() == "ready\n", 30, lambda: f"ready again: {ready()}")
    w.send_signal(signal.SIGTERM)
    check(w.wait(30) == 0, "ends")


def test_a_model_that_does_not_fit_is_kept_out_and_rubbish_pauses(p):
    linear(p.dir / "wide.onnx", [1, 2, 3, 4, 5])
    linear(p.dir / "right.onnx", [1, 10])
    for f in ("right", "wide"):
        p.cli("models", "register", p.dir / f"{f}.onnx", "--name", "fit")
    p.cli("models", "alias", "fit", "champion", 1)
    path = p.pipeline("fit", "fit", "model: {name: fit, alias: champion}\nfeatures: [{field: cpu.user, missing: value, value: 7}, {field: mem}]\n"
                                    "output: {topic: TOPIC.scores, passthrough: [id]}\nguarantee: exactly_once\nerrors: {pause_after: 50}\n")
    p.register("fit-value", READING)
    p.send("fit", [reading(i) for i in range(20)])
    w = p.spawn("score", "run", "-c", path, "--metrics-listen", p.metrics_port, log="fit.log")
    p.read("fit.scores", lambda out: len(out) >= 20, timeout=60)
    p.cli("models", "alias", "fit", "champion", 2)
    until(lambda: "event=model_refused" in (p.dir / "fit.log").read_text(), 30, "it says that version 2 is refused")
    beat = until(lambda: [e for e in p.events("workers") if "fit version 2 is not used" in e["details"].get("model_refused", "")], 30, "no heartbeat says so")[0]
    told = next(l for l in (p.dir / "fit.log").read_text().splitlines() if "event=model_refused" in l).split()[0]
    late = (beat["time"] - datetime.datetime.fromisoformat(told.replace("Z", "+00:00"))).total_seconds()
    check(late < 8, f"the heartbeat that says so comes {late:.1f} s after it is known, not at once")
    p.send("fit", [reading(i) for i in range(20, 40)])
    p.read("fit.scores", lambda out: len(out) >= 40, timeout=60)
    w.kill(), w.wait()
    w = p.spawn("score", "run", "-c", path, "--metrics-listen", p.metrics_port, log="fit.log")  # the alias still names the one that does not fit
    p.send("fit", [reading(i) for i in range(40, 60)])
    p.read("fit.scores", lambda out: len(out) >= 60, timeout=60)
    check({s["model"]["version"] for _, s in p.scores("fit.scores")} == {1} and not letters(p, "fit.dlq"), "version 1 scored all of them")

    rubbish, producer = 300, p.producer()
    for i in range(rubbish):
        producer.produce("fit", b"rubbish", key=str(i), partition=0)
    check(producer.flush(30) == 0, "sent")
    until(lambda: len(letters(p, "fit.dlq")) >= 50, 30, "letters")
    time.sleep(3)
    check(len(letters(p, "fit.dlq")) == 50, f"{len(letters(p, 'fit.dlq'))} letters, not 50")

    def ready():
        status, text, _ = p.http("/readyz", f"http://127.0.0.1:{p.metrics_port}")
        return f"{status} {text.decode()}"
    until(lambda: all(w in ready() for w in ("503", "paused", "bad-envelope")), 20, lambda: f"/readyz of a paused pipeline says {ready()}")
    beat = until(lambda: [e for e in p.events("workers") if e["details"].get("pipeline") == "fit" and e["state"] == "paused"], 30, "a heartbeat says so")[-1]
    check("50 records in a row" in beat["details"]["why"], f"{beat}")
    w.send_signal(signal.SIGTERM)
    check(w.wait(30) == 0, "a paused pipeline ends when it is told to")
    r = p.cli("score", "run", "-c", path, "--exit-on-eof", ok=False, timeout=90)
    check(r.returncode == 1 and "paused by dead letters" in r.stderr and len(letters(p, "fit.dlq")) == 100, f"a run to the end does not wait for anybody: {r.returncode} {r.stderr[-300:]}")
    path.write_text(path.read_text().replace("pause_after: 50", "pause_after: 0"))
    check(p.cli("score", "run", "-c", path, "--exit-on-eof", ok=False).returncode == 3 and len(letters(p, "fit.dlq")) == rubbish, "0 = never")


def test_waits_for_its_model_and_for_the_registry(p):
    path = p.pipeline("late", "late", "model: {name: later, alias: champion}\nfeatures: [{field: cpu.user, missing: value, value: 7}, {field: mem}]\n"
                                      "output: {topic: TOPIC.scores}\n")
    w = p.spawn("score", "run", "-c", path, log="late.log")
    p.send("late", [reading(i) for i in range(20)])
    until(lambda: "later has no alias champion yet" in (p.dir / "late.log").read_text(), 30, "it says what it waits for")
    check(w.poll() is None, "it waits")
    p.cli("models", "register", p.dir / "m1.onnx", "--name", "later", "--alias", "champion")
    until(lambda: len(p.read("late.scores")) == 20, 60, "scored once the model is there")
    newer = dict(READING, name="Newer", fields=READING["fields"] + [{"name": "extra", "type": "int", "default": 0}])
    sid = p.register("late2-value", newer)
    p.schema(sid)
    p.registry_process.kill(), p.registry_process.wait()
    p.send("late", [{**reading(i), "extra": 1} for i in range(20, 30)], sid=sid)
    time.sleep(4)
    check(w.poll() is None and len(p.read("late.scores")) == 20, "a schema that cannot be looked up is waited for")
    p.start_registry()
    until(lambda: len(p.read("late.scores")) == 30, 60, "scored once the registry is back")
    check("late.dlq" not in p.cli("lag", ok=False).stdout and not p.read("late.dlq"), "an outage dead-letters nothing")
    w.send_signal(signal.SIGTERM)
    check(w.wait(30) == 0, "ends")


def test_killed_in_a_loop_nothing_is_lost_or_doubled(p):
    path = p.pipeline("ledger", "ledger")
    total, kills, stop = 30000, 10, threading.Event()

    def stream():
        producer = p.producer(**{"enable.idempotence": True})
        for i in range(total):
            producer.produce("ledger", b"rubbish" if i % 500 == 499 else p.encode(p.sid, reading(i)), key=str(i))
            producer.poll(0)
            if i % 200 == 199:
                time.sleep(0.1)
        check(producer.flush(60) == 0, "flushed")
        stop.set()
    t = threading.Thread(target=stream)
    t.start()
    clients = ["wire", "rdkafka"]  # both share the group and take over from each other; a slot's transactional id goes from one to the other
    start = lambda: p.spawn("score", "run", "-c", path, log="ledger.log", env={**p.env, "PENSTOCK_BUS": clients[len(p.children) % 2]})
    workers = [start(), start()]
    for _ in range(kills):
        time.sleep(rng.uniform(0.3, 2.0))
        i = rng.randrange(2)
        workers[i].kill(), workers[i].wait()
        workers[i] = start()
    p.kafka("kill", "1")
    time.sleep(5)
    p.kafka("start", "1")
    t.join()
    bad = total // 500

    def all_there():
        return len(p.read("ledger.scores")) >= total - bad and len(p.read("ledger.dlq")) >= bad
    until(all_there, 50, lambda: f"{len(p.read('ledger.scores'))} of {total - bad} scores, {len(p.read('ledger.dlq'))} of {bad} letters", step=1)
    check(all(w.poll() is None for w in workers), "nobody exited")
    for w in workers:
        w.send_signal(signal.SIGTERM)
    check([w.wait(40) for w in workers] == [0, 0], "both drain")
    log = (p.dir / "ledger.log").read_text(errors="replace")
    check("bus=wire" in log and "bus=librdkafka" in log, "both clients were at work")
    ids = sorted(s["record"]["id"] for _, s in p.scores("ledger.scores"))
    check(ids == [i for i in range(total) if i % 500 != 499], f"{len(ids)} scores, {len(set(ids))} different, of {total - bad}")
    letters = sorted(int(m.key()) for m in p.read("ledger.dlq"))
    check(letters == [i for i in range(total) if i % 500 == 499], f"{len(letters)} dead letters")


def test_the_wrong_format_is_refused_before_the_first_record(p):
    """Every record would be a dead letter: what lies in the topic tells, or what is registered for it while it is empty."""
    linear(p.dir / "pair.onnx", [1, 10])
    path = p.dir / "form.yml"

    def checked(form, topic, status, *says):
        path.write_text(f"name: form\n\ninput: {{topics: [{topic}], format: {form}}}\nmodel: {{file: pair.onnx}}\nfeatures: [cpu.user, mem]\noutput: {{topic: {topic}.scores}}\n")
        r = p.cli("score", "check", "-c", path, ok=False)
        check(r.returncode == status and all(s in r.stderr + r.stdout for s in says), f"{form} on {topic}: exit {r.returncode}: {r.stdout} {r.stderr}")
    for t in ("form.avro", "form.json", "form.both", "form.none"):
        p.create(t, 2)
    texts = [json.dumps({"cpu": {"user": i}, "mem": i}).encode() for i in range(10)]
    p.register("form.none-value", READING)
    p.register("form.both-value", READING)
    checked("json", "form.none", 7, f"{path}:3: input.format: json", "form.none-value", "input.format: avro reads")
    checked("avro", "form.none", 0)
    p.register("form.absent-value", READING)
    checked("json", "form.absent", 7, "form.absent-value", "input.format: avro reads")
    checked("avro", "form.absent", 0, "form.absent does not exist")
    checked("json", "form.unknown", 0, "form.unknown does not exist")
    p.send("form.avro", [reading(i, 1.0, 2.0) for i in range(10)] + [None])
    checked("json", "form.avro", 7, f"{path}:3: input.format: json: each of the 10 newest records", "input.format: avro reads them")
    checked("avro", "form.avro", 0)
    p.send("form.json", texts)
    checked("avro", "form.json", 7, f"{path}:3: input.format: avro: none of the 10 newest records", "which input.format: json reads")
    checked("json", "form.json", 0)
    p.send("form.both", texts)  # whatever is registered: what lies there are texts
    checked("json", "form.both", 0)
    checked("avro", "form.both", 7, "input.format: json reads")
    p.send("form.both", [reading(1, 1.0, 2.0)])
    checked("json", "form.both", 0)
    checked("avro", "form.both", 0)


def test_a_json_topic_that_cannot_fill_the_model_is_refused(p):
    """No schema tells what a JSON topic holds: its newest records do."""
    p.create("narrow", 2)
    path = p.dir / "narrow.yml"
    text = "name: narrow\ninput: {topics: [narrow], format: json}\nmodel: {file: NAME.onnx}\nfeatures: [a, b]\noutput: {topic: narrow.scores}\n"
    linear(p.dir / "five.onnx", [1, 2, 3, 4, 5])
    verbs = [("score", "check", "-c", path), ("score", "dry-run", "-c", path, "--in", p.dir / "none.jsonl")]
    (p.dir / "none.jsonl").write_text("")
    path.write_text(text.replace("NAME", "five"))
    for v in verbs:
        r = p.cli(*v, ok=False)
        check(r.returncode == 0 and "holds no records yet" in r.stdout + r.stderr, f"{v[1]} on an empty topic: {r.returncode} {r.stdout} {r.stderr}")
    p.send("narrow", [b"rubbish", None] + [json.dumps({"a": i, "b": 1}).encode() for i in range(20)])
    for v in verbs:
        r = p.cli(*v, ok=False)
        check(r.returncode == 7 and f"{path}:4" in r.stderr and "fill 2 slots, the model's input has 5" in r.stderr and "slots: N" in r.stderr, f"{v[1]}: {r.returncode} {r.stderr}")
    p.send("narrow", [json.dumps({"a": [1, 2, 3, 4], "b": 1}).encode()])
    for v in verbs:
        r = p.cli(*v, ok=False)
        check(r.returncode == 0, f"{v[1]}, one record fits: {r.returncode} {r.stderr}")


def test_too_large_for_the_output(p):
    path = p.pipeline("large", "large", "model: {name: line, version: 1}\nfeatures: [{field: cpu.user, missing: value, value: 7}, {field: mem}]\n"
                                        "output: {topic: TOPIC.scores, passthrough: [host]}\nguarantee: exactly_once\nkafka: {message.max.bytes: 3000}\n")
    p.send("large", [reading(0), {**reading(1), "host": "x" * 2900}, {**reading(2), "host": "y" * 9000}, reading(3)])
    r = p.cli("score", "run", "-c", path, "--exit-on-eof", ok=False)
    check(r.returncode == 3, f"exit status {r.returncode}: {r.stderr[-500:]}")
    check(sorted(s["record"]["host"] for _, s in p.scores("large.scores")) == ["h0", "h0"], "the others are scored")
    letters = p.read("large.dlq")
    check(len(letters) == 2 and all(dict(m.headers())["x-dlq-reason"] == b"too-large" for m in letters), f"{[m.headers() for m in letters]}")
    check(all(len(m.value() or b"") > 2900 for m in letters), "a dead letter keeps its bytes, whatever the limit of scores")


def test_verbs_of_models_and_pipelines(p):
    digest = json.loads(p.cli("models", "show", "line:1", "--json").stdout)["digest"]
    p.cli("models", "fetch", "line:1", p.dir / "back.onnx")
    check((p.dir / "back.onnx").read_bytes() == (p.dir / "m1.onnx").read_bytes() and len(digest) == 64, "fetched")
    check(json.loads(p.cli("models", "show", "line:champion", "--json").stdout)["version"] == 1, "by alias")
    linear(p.dir / "gone.onnx", [1, 2, 3])
    p.cli("models", "register", p.dir / "gone.onnx", "--name", "gone", "--alias", "a")
    check(p.cli("models", "rm", "gone:1", ok=False).returncode == 1, "a version that an alias names stays")
    p.cli("models", "rm", "gone:a"), p.cli("models", "rm", "gone:1")
    check(p.cli("models", "show", "gone", ok=False).returncode == 4, "gone")
    p.cli("models", "register", p.dir / "m1.onnx", "--name", "gone")
    check(json.loads(p.cli("models", "show", "gone", "--json").stdout)["version"] == 2, "its number is not given out again")
    check(p.cli("models", "alias", "line", "champion", 99, ok=False).returncode == 4, "no such version")
    (p.dir / "junk.onnx").write_bytes(b"junk" * 100)
    check(p.cli("models", "register", p.dir / "junk.onnx", "--name", "junk", ok=False).returncode != 0, "junk is no model")
    path = p.pipeline("desired", "desired")
    p.cli("pipelines", "apply", path)
    shown = json.loads(p.cli("pipelines", "show", "desired", "--json").stdout)
    check(shown["spec"] == path.read_text() and shown["name"] == "desired", "published as it is")
    check([json.loads(x)["name"] for x in p.cli("pipelines", "list", "--json").stdout.splitlines()] == ["desired"], "listed")
    good = path.read_text()  # what a stranger must not have the scorer do for him
    for said, text in (("model.file", good.replace("model: {name: line, alias: champion}", "model: {file: /etc/passwd}")),
                       ("input.topics", good.replace("topics: [desired]", "topics: [penstock.jobs.requests]")),
                       ("output.topic", good.replace("topic: desired.scores", "topic: _schemas")),
                       ("kafka.fetch.max.bytes", good + "kafka: {fetch.max.bytes: 2000000000}\n")):
        check(text != good, said)
        path.write_text(text)
        r = p.cli("pipelines", "apply", path, ok=False)
        check(r.returncode == 2 and f"{path}:" in r.stderr and said in r.stderr, f"{said}: {r.returncode} {r.stderr}")
    path.write_text(good)
    check(json.loads(p.cli("pipelines", "show", "desired", "--json").stdout)["spec"] == good, "what was published stays")
    second = p.dir / "second.yml"
    second.write_text(good.replace("name: desired", "name: second").replace("topic: desired.scores", "topic: second.scores"))
    r = p.cli("pipelines", "apply", second, ok=False)
    check(r.returncode == 2 and f"{second}:2: input.group: pipeline desired reads topic desired in the group g-desired, too" in r.stderr, f"one group, two pipelines: {r.returncode} {r.stderr}")
    p.cli("pipelines", "apply", path)  # itself is no other
    p.cli("pipelines", "delete", "desired")
    check(p.cli("pipelines", "show", "desired", ok=False).returncode == 4 and not p.cli("pipelines", "list", "--json").stdout, "deleted")
    path.write_text(path.read_text().replace("guarantee", "guarante"))
    r = p.cli("pipelines", "apply", path, ok=False)
    check(r.returncode == 2 and 'did you mean "guarantee"?' in r.stderr, f"refused: {r.stderr}")
    p.send("desired", [reading(i) for i in range(3)])
    path.write_text(path.read_text().replace("guarante:", "guarantee:"))
    for verb in ("check", "explain"):
        r = p.cli("score", verb, "-c", path)
        check("schema not checked" in r.stdout and "ok" in r.stdout, f"{verb}: {r.stdout}")
    p.register("desired-value", READING)
    r = p.cli("score", "explain", "-c", path)
    check("cpu.user" in r.stdout and "fits" in r.stdout, f"explain: {r.stdout}")


def test_a_model_in_the_file_of_its_library(p):
    (p.dir / "stump.txt").write_text(STUMP)
    p.cli("models", "register", p.dir / "stump.txt", "--name", "stump", "--alias", "champion")
    check(json.loads(p.cli("models", "show", "stump", "--json").stdout)["format"] == "lightgbm-text", "its format is told")
    for name in ("stump", "stump:1", "stump:champion"):
        text = p.cli("models", "explain", name).stdout
        check("1 tree as ranked bytes" in text and "float64 (N, 2)" in text, f"explain {name}: {text}")
    check(p.cli("models", "explain", "stump:9", ok=False).returncode == 4, "there is no version 9")
    path = p.pipeline("stumps", "stumps")
    path.write_text(path.read_text().replace("name: line", "name: stump"))
    rows = [reading(i) for i in range(40)]
    p.send("stumps", rows)
    p.cli("score", "run", "-c", path, "--exit-on-eof")
    got = {s["record"]["id"]: s["score"][0] for _, s in p.scores("stumps.scores")}
    check(got == {r["id"]: 1.5 if r["cpu"]["user"] <= 3.25 else -2.5 for r in rows}, f"scores of a tree of two leaves: {got}")


def test_numbers_that_are_none(p):
    """NaN, infinite and too large numbers in: with dead_letter none is scored, letters and counters agree on why; without it each is counted alike."""
    rows = [reading(0), reading(1, mem=float("nan")), reading(2, mem=float("inf")), reading(3, user=1e300), reading(4)]
    for policy, letters in (("dead_letter", {"1": b"MAP", "2": b"INFER", "3": b"MAP"}), ("pass", {"1": b"MAP"})):
        name = policy.replace("_", "-")
        path = p.pipeline(name, f"none-{name}", "model: {name: line, alias: champion}\nfeatures: [{field: cpu.user, missing: value, value: 7}, {field: mem}]\n"
                                               f"output: {{topic: TOPIC.scores, passthrough: [id]}}\nguarantee: exactly_once\nscore: {{non_finite: {policy}}}\n"
                                               "errors: {dead_letter: {topic: TOPIC.dlq}}\n")
        p.create(f"none-{name}.dlq")
        p.send(f"none-{name}", rows)
        w = p.spawn("score", "run", "-c", path, "--metrics-listen", p.metrics_port, log=f"{name}.log")
        p.read(f"none-{name}.scores", lambda out: len(out) >= 5 - len(letters), timeout=60)
        got = p.read(f"none-{name}.dlq", lambda out: len(out) >= len(letters), timeout=60)
        check({m.key().decode(): dict(m.headers())["__connect.errors.stage"] for m in got} == letters, f"{policy}: {[(m.key(), m.headers()) for m in got]}")
        check({dict(m.headers())["x-dlq-reason"] for m in got} == {b"non-finite"}, f"{policy}: the reason")

        def metrics():
            text = urllib.request.urlopen(f"http://127.0.0.1:{p.metrics_port}/metrics").read().decode()
            return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("penstock_scorer") and "_bucket" not in line}
        of = f'{{pipeline="{name}"'
        until(lambda: metrics().get(f"penstock_scorer_records_consumed_total{of}}}") == 5, 30, lambda: f"all committed: {metrics()}")
        m = metrics()
        check(m[f"penstock_scorer_non_finite_total{of}}}"] == 3, f"{policy}: three are counted: {m}")
        check(m[f"penstock_scorer_score_count{of}}}"] == 5 - len(letters), f"{policy}: every score is in the spread: {m}")
        check(m[f'penstock_scorer_lag_seconds{of}}}'] == 0, f"{policy}: nothing is behind: {m}")
        for stage in ("MAP", "INFER"):
            have = m.get(f'penstock_scorer_dead_letters_total{of},stage="{stage}",reason="non-finite"}}', 0)
            check(have == [*letters.values()].count(stage.encode()), f"{policy}: letters of {stage}: {m}")
        w.send_signal(signal.SIGTERM)
        check(w.wait(30) == 0, "it drains")


def test_lag_of_partitions_of_which_nothing_is_committed(p):
    """They are rows like the others. Whether the group reads them all is known of our own, also where it began at the end; of others it is not."""
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewPartitions
    for start in ("earliest", "latest"):
        p.pipeline(f"lag-{start}", f"lag-{start}", f"model: {{name: line, alias: champion}}\nfeatures: [cpu.user, mem]\noutput: {{topic: TOPIC.scores}}\nguarantee: exactly_once\n")
    path = p.dir / "lag-latest.yml"
    path.write_text(path.read_text().replace("group: g-lag-latest", "group: g-lag-latest, start: latest"))
    workers = [p.spawn("score", "run", "-c", p.dir / f"lag-{start}.yml", log="lag.log") for start in ("earliest", "latest")]
    until(lambda: (p.dir / "lag.log").read_text().count("event=running") == 2, 30, "two scorers")

    def rows(group):
        return {r["partition"]: (r["committed"], r["lag"]) for r in map(json.loads, p.cli("lag", group, "--json", ok=False).stdout.splitlines())}
    until(lambda: rows("g-lag-earliest") == {i: (None, 0) for i in range(3)}, 30, lambda: f"what its members have is listed: {rows('g-lag-earliest')}")
    for start in ("earliest", "latest"):
        until(lambda: "g-lag-latest" in p.cli("lag", "g-lag-latest", "--all", ok=False).stdout, 30, "the group has begun")
        p.send(f"lag-{start}", [reading(i) for i in range(30)])
        p.read(f"lag-{start}.scores", lambda out: len(out) >= 30, timeout=60)
    for w in workers:
        w.send_signal(signal.SIGTERM)
    check([w.wait(40) for w in workers] == [0, 0], "both end")
    c = Consumer({"bootstrap.servers": p.bootstrap, "group.id": "stranger"})
    c.commit(offsets=[TopicPartition("lag-latest", 0, 0)], asynchronous=False)
    c.close()
    admin, producer = AdminClient({"bootstrap.servers": p.bootstrap}), p.producer()
    for start in ("earliest", "latest"):
        admin.create_partitions([NewPartitions(f"lag-{start}", 5)])[f"lag-{start}"].result(30)
    time.sleep(1)
    for start in ("earliest", "latest"):
        for i in range(4):
            producer.produce(f"lag-{start}", p.encode(p.sid, reading(i)), partition=3)
    check(producer.flush(30) == 0, "sent")
    for start in ("earliest", "latest"):
        got = rows(f"g-lag-{start}")
        check(len(got) == 5 and got[3] == (None, 4) and got[4] == (None, 0) and all(committed >= 0 for committed, _ in list(got.values())[:3]), f"{start}: {got}")
    got = rows("stranger")
    check(got[0][0] == 0 and got[0][1] > 0 and got[3] == (None, None) and got[4] == (None, 0), f"a stranger's: {got}")
    r = p.cli("lag", "stranger")
    check("none yet" in r.stdout and "unknown" in r.stdout and "only the group's members know" in r.stderr, f"said: {r.stdout} {r.stderr}")


def test_two_workers_under_one_slot(p):
    """A mistake of whoever starts them; they fence each other, and still every record is scored once and nobody exits."""
    path = p.pipeline("twins", "twins")
    workers = [p.spawn("score", "run", "-c", path, "--slot", 7, log="twins.log") for _ in range(2)]
    for i in range(10):
        p.send("twins", [reading(k) for k in range(i * 100, i * 100 + 100)])
        time.sleep(1)
    until(lambda: len(p.read("twins.scores")) >= 1000, 90, lambda: f"{len(p.read('twins.scores'))} of 1000 scores")
    check(all(w.poll() is None for w in workers), "nobody exited")
    for w in workers:
        w.send_signal(signal.SIGTERM)
    check([w.wait(40) for w in workers] == [0, 0], "both end")
    check(sorted(s["record"]["id"] for _, s in p.scores("twins.scores")) == list(range(1000)), "every record once")


def test_on_a_device_that_is_simulated(p):
    """Scores say that the device computed them; what its driver tells is in log and heartbeat. No device is needed: driver and kernels are those of the unit tests."""
    tests = BIN.parent / "tests"
    driver, plugin = tests / "cuda_sim/libcuda.so.1", tests / "cuda_plugins/cuda_plugin_ours.so"
    if not driver.exists() or not plugin.exists() or b"libasan" in BIN.read_bytes() or b"libtsan" in BIN.read_bytes():
        return print("   left out: the simulated driver is not built, or sanitizers are", flush=True)
    folder = p.dir / "on-device"
    folder.mkdir()
    shutil.copy(BIN, folder / "penstock")
    shutil.copy(plugin, folder / "libpenstock-cuda.so")
    path = p.pipeline("device", "device", f"model: {{file: {p.dir / 'm1.onnx'}}}\nfeatures: [{{field: cpu.user, missing: value, value: 7}}, {{field: mem}}]\n"
                                          "output: {topic: TOPIC.scores, passthrough: [id]}\nguarantee: exactly_once\ndevice: cuda\n")
    p.send("device", [reading(i) for i in range(200)])
    env = {**p.env, "LD_LIBRARY_PATH": str(driver.parent), "PENSTOCK_SIM_CUDA": "13000 9.0", "PENSTOCK_SIM_XID": "79"}
    log = p.dir / "device.log"
    with open(log, "a") as f:
        w = Child([folder / "penstock", "score", "run", "-c", path], env=env, stdin=subprocess.DEVNULL, stdout=f, stderr=f, start_new_session=True)
    p.children.append(w)
    out = [p.decode(m.value()) for m in p.read("device.scores", lambda ms: len(ms) >= 200)]
    check({s["model"]["backend"] for s in out} == {"cuda:0"}, f"who computed them: { {s['model'].get('backend') for s in out} }")
    check(all(abs(s["score"][0] - want(reading(s["record"]["id"]))) < 1e-3 for s in out), "the scores are right")
    until(lambda: "event=device_event" in log.read_text(), 30, lambda: f"an Xid in the log: {log.read_text()[-500:]}")
    check("kind=xid code=79" in log.read_text(), "which it was")
    told = lambda e: dict(e["details"]).get("device_event", "") if e.get("kind") == "scorer" else ""
    beats = p.events("workers", lambda seen: any(told(e) for e in seen))
    check(any(told(e) == "cuda:0: xid 79: the device has fallen off the bus" for e in beats), f"in a heartbeat: {[told(e) for e in beats]}")
    w.send_signal(signal.SIGTERM)
    check(w.wait(30) == 0, "it ends when it is told to")


TESTS = [test_dry_run_needs_no_broker, test_the_wrong_format_is_refused_before_the_first_record, test_a_json_topic_that_cannot_fill_the_model_is_refused, test_verbs_of_models_and_pipelines, test_a_model_in_the_file_of_its_library, test_too_large_for_the_output, test_records_of_all_kinds, test_json_slim_and_tolerance, test_alias_counts_from_exact_offsets, test_alias_moves_under_load, test_every_swap_is_recorded, test_a_stream_that_changes_its_types, test_a_model_that_does_not_fit_is_kept_out_and_rubbish_pauses,
         test_waits_for_its_model_and_for_the_registry, test_numbers_that_are_none, test_lag_of_partitions_of_which_nothing_is_committed, test_two_workers_under_one_slot, test_killed_in_a_loop_nothing_is_lost_or_doubled, test_on_a_device_that_is_simulated]
with Bench() as p:
    p.metrics_port = free_ports(1)
    for i in (1, 2, 3):
        out = p.cli("models", "register", p.dir / f"m{i}.onnx", "--name", "line", *(["--alias", "champion"] if i == 1 else [])).stdout
        check(out.startswith(f"line:{i} sha256 "), f"registered: {out}")
    check(p.cli("models", "register", p.dir / "m2.onnx", "--name", "line").stdout.startswith("line:2 "), "the same file is the same version")
    check([json.loads(x)["version"] for x in p.cli("models", "list", "--json").stdout.splitlines()] == [1, 2, 3], "models list")
    wanted = [t for t in TESTS if not sys.argv[1:] or any(w in t.__name__ for w in sys.argv[1:])]
    for t in wanted:
        started = time.monotonic()
        t(p)
        print(f"ok {t.__name__} {time.monotonic() - started:.1f} s", flush=True)
    print(f"{len(wanted)} passed, 0 failed", flush=True)
