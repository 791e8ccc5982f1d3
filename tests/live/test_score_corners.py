"""The scorer in its corners, on a real Kafka, with a ledger: a model slower than its transaction's time-out and than max.poll.interval.ms; a start at a time, of a
topic that grows, over a kill before the first commit; a pause by dead letters with two scorers, until the cure; an alias moved from the end while two
scorers work, and its replay; Avro and JSON mixed in one input."""
import os, sys
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from kit import *
import numpy as np, onnx, threading
from onnx import helper, TensorProto, numpy_helper

SEED = int(os.environ.get("SEED", random.randrange(10**6)))
rng = random.Random(SEED)
print("seed", SEED, flush=True)
READING = {"type": "record", "name": "Reading", "namespace": "mill", "fields": [{"name": "id", "type": "long"}, {"name": "a", "type": "double"}, {"name": "b", "type": "double"}]}
FLOAT, WIDE = TensorProto.FLOAT, 256


def save(path, nodes, inits, width=2, meta={}):
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("in", FLOAT, ["N", width])], [helper.make_tensor_value_info("out", FLOAT, ["N", 1])],
                          [numpy_helper.from_array(v, k) for k, v in inits.items()])
    m = helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for k, v in meta.items():
        p = m.metadata_props.add()
        p.key, p.value = k, v
    onnx.save(m, path)


def linear(path, weights, **kw):
    save(path, [helper.make_node("MatMul", ["in", "w"], ["out"])], {"w": np.array(weights, dtype=np.float32).reshape(-1, 1)}, len(weights), **kw)


def slow(path, trips):
    """a + 10 b, by way of as many products with a wide identity."""
    body = helper.make_graph([helper.make_node("Identity", ["go"], ["on"]), helper.make_node("MatMul", ["s", "one"], ["t"])], "body",
                             [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, []), helper.make_tensor_value_info("s", FLOAT, ["N", WIDE])],
                             [helper.make_tensor_value_info("on", TensorProto.BOOL, []), helper.make_tensor_value_info("t", FLOAT, ["N", WIDE])],
                             [numpy_helper.from_array(np.eye(WIDE, dtype=np.float32), "one")])
    first, last = np.zeros((2, WIDE), dtype=np.float32), np.zeros((WIDE, 1), dtype=np.float32)
    first[0, 3] = first[1, 200] = 1
    last[3, 0], last[200, 0] = 1, 10
    save(path, [helper.make_node("MatMul", ["in", "first"], ["x"]), helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body), helper.make_node("MatMul", ["y", "last"], ["out"])],
         {"first": first, "last": last, "trips": np.array(trips, dtype=np.int64)})


class Bench(Platform):
    def __init__(self):
        super().__init__(up=False)
        self.start_registry()
        self.sid = self.register("readings-value", READING)

    def pipeline(self, name, text, parts=2, head="", **topic):
        self.create(name, parts, **topic)
        self.create(name + ".scores", parts)
        path = self.dir / f"{name}.yml"
        path.write_text(f"name: {name}\ninput: {{topics: [{name}], group: g-{name}{head}}}\noutput: {{topic: {name}.scores, passthrough: [id]}}\nguarantee: exactly_once\n{text}")
        return path

    def send(self, topic, ids, partition=None, stamp=None, value=None):
        producer = self.producer()
        for i in ids:
            raw = value(i) if value else self.encode(self.sid, {"id": i, "a": float(i % 100), "b": float(i % 7)})
            producer.produce(topic, raw, key=str(i), partition=i % 2 if partition is None else partition, **({"timestamp": stamp(i)} if stamp else {}))
            producer.poll(0)
        check(producer.flush(60) == 0, "records produced")

    def ids(self, topic):
        return [self.decode(m.value())["record"]["id"] for m in self.read(topic)]

    def letters(self, topic):
        from confluent_kafka.admin import AdminClient
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        there = admin.list_topics(timeout=60).topics
        return self.read(topic) if topic in there else []

    def scorer(self, path, *args, log=None):
        return self.spawn("score", "run", "-c", path, *args, log=log or path.stem + ".log")

    def ready(self, port):
        try:
            status, text, _ = self.http("/readyz", f"http://127.0.0.1:{port}")
            return f"{status} {text.decode()}"
        except OSError as e:
            return str(e)

    def end(self, *workers):
        for w in workers:
            w.send_signal(signal.SIGTERM)
        check([w.wait(60) for w in workers] == [0] * len(workers), f"drained: {[w.returncode for w in workers]}")


def test_a_model_slower_than_its_transaction_and_its_poll_interval(p):
    path = p.pipeline("slow", f"model: {{file: {p.dir}/slow.onnx}}\nfeatures: [a, b]\nbatching: {{count: 512}}\n"
                              "kafka: {transaction.timeout.ms: 4000, session.timeout.ms: 6000, max.poll.interval.ms: 6000}\n")
    (p.dir / "some.jsonl").write_text("".join(json.dumps({"id": i, "a": i, "b": 1}) + "\n" for i in range(32)))
    trips = 1000
    while True:  # until 32 records at once take longer than both
        slow(p.dir / "slow.onnx", trips)
        start = time.monotonic()
        p.cli("score", "dry-run", "-c", path, "--in", p.dir / "some.jsonl", "--out", p.dir / "some.out", timeout=600)
        took = time.monotonic() - start
        if took > 9:
            break
        trips = int(trips * min(8, max(1.3, 11 / max(took, 0.5))))
    p.send("slow", range(120))
    w = p.scorer(path)
    until(lambda: len(p.read("slow.scores")) >= 120, 300, lambda: f"scored: {len(p.read('slow.scores'))} of 120: " + (p.dir / "slow.log").read_text()[-1500:], 2)
    p.end(w)
    out = [p.decode(m.value()) for m in p.read("slow.scores")]
    check(sorted(s["record"]["id"] for s in out) == list(range(120)), f"each once: {len(out)}")
    check(all(abs(s["score"][0] - (s["record"]["id"] % 100 + 10 * (s["record"]["id"] % 7))) < 1e-3 for s in out), "the right scores")
    log = (p.dir / "slow.log").read_text()
    check(not any(f"event={e}" in log for e in ("fenced", "reopened", "nothing_comes")), f"it kept its place, and each partition had its turn: {log[-1500:]}")
    print(f"  32 records took {took:.1f} s", flush=True)


def test_a_start_at_a_time_outlasts_a_kill_and_growth(p):
    at = 1_700_000_000_000
    path = p.pipeline("timed", f"model: {{file: {p.dir}/line.onnx}}\nfeatures: [a, b]\n", head=f", start: timestamp, timestamp: {at // 1000}", **{"retention.ms": "-1"})
    p.create("timed.dlq", 2)  # dead letters keep their time, too
    linear(p.dir / "line.onnx", [1, 10])
    p.send("timed", range(200), stamp=lambda i: at - 100_000 + 1000 * i)  # 100 and later
    p.send("timed", [1000, 1001], stamp=lambda i: at + 200_000, value=lambda i: b"\0" + struct.pack(">I", 77_000) + b"x")  # nobody knows that schema
    for _ in range(3):  # killed before, at or a moment after its first commit
        w = p.scorer(path)
        time.sleep(rng.uniform(0.3, 3))
        w.kill(), w.wait()
    from confluent_kafka.admin import AdminClient, NewPartitions
    w = p.scorer(path)
    until(lambda: len(p.read("timed.scores")) >= 100, 60, lambda: (p.dir / "timed.log").read_text()[-1500:])
    w.kill(), w.wait()
    admin = AdminClient({"bootstrap.servers": p.bootstrap})
    admin.create_partitions([NewPartitions("timed", 4)])["timed"].result(60)
    p.send("timed", range(300, 340), partition=2, stamp=lambda i: at + 300_000)
    p.send("timed", range(340, 380), partition=3, stamp=lambda i: at + 300_000)
    w = p.scorer(path)
    p.send("timed", range(400, 440), stamp=lambda i: at + 400_000)
    until(lambda: len(p.read("timed.scores")) >= 220, 120, lambda: f"{len(p.read('timed.scores'))} of 220: " + (p.dir / "timed.log").read_text()[-1500:], 1)
    time.sleep(2)
    p.end(w)
    expected = [*range(100, 200), *range(300, 380), *range(400, 440)]
    got = sorted(p.ids("timed.scores"))
    check(got == expected, f"missing {sorted(set(expected) - set(got))[:10]}, not asked for {sorted(set(got) - set(expected))[:10]}, {len(got) - len(set(got))} doubled")
    letters = sorted(int(m.key()) for m in p.letters("timed.dlq"))
    check(letters == [1000, 1001], f"two letters, found {letters}: " + (p.dir / "timed.log").read_text()[-1500:])


def test_a_pause_ends_with_its_cure_for_two_scorers(p):
    """The first version asks for a field that no record has: all are dead letters, 20 in a row and worker, then both pause. A kill and a new start cost at most 20 more;
    the second version cures it, and everything else is scored once."""
    linear(p.dir / "bad.onnx", [1, 1], meta={"penstock.features": json.dumps([{"field": "a"}, {"field": "nowhere"}])})
    linear(p.dir / "good.onnx", [1, 10], meta={"penstock.features": json.dumps([{"field": "a"}, {"field": "b"}])})
    p.cli("models", "register", p.dir / "bad.onnx", "--name", "cure", "--alias", "champion")
    path = p.pipeline("cured", "model: {name: cure, alias: champion}\nerrors: {pause_after: 20}\n")
    ports = [free_ports(1), free_ports(1)]
    workers = [p.scorer(path, "--metrics-listen", port) for port in ports]
    p.send("cured", range(600))

    def both_paused():
        return all("503" in p.ready(port) and "paused" in p.ready(port) and "20 records in a row" in p.ready(port) for port in ports)
    until(both_paused, 60, lambda: f"both pause: {[p.ready(port) for port in ports]} {(p.dir / 'cured.log').read_text()[-1500:]}")
    before = len(p.letters("cured.dlq"))
    check(20 <= before <= 60, f"{before} letters before the pause")  # the first of the two had both partitions at first
    time.sleep(5)
    check(len(p.letters("cured.dlq")) == before, "it keeps its place")
    workers[0].kill(), workers[0].wait()
    workers[0] = p.scorer(path, "--metrics-listen", ports[0])
    until(both_paused, 120, lambda: f"both pause again: {[p.ready(port) for port in ports]} {(p.dir / 'cured.log').read_text()[-1500:]}")
    p.cli("models", "register", p.dir / "good.onnx", "--name", "cure", "--alias", "champion")
    until(lambda: len(p.read("cured.scores")) + len(p.letters("cured.dlq")) >= 600, 120, lambda: f"it goes on: {[p.ready(port) for port in ports]}", 1)
    until(lambda: all(p.ready(port) == "200 ready\n" for port in ports), 60, lambda: f"ready: {[p.ready(port) for port in ports]}")
    p.end(*workers)
    scored, dead = p.ids("cured.scores"), [int(m.key()) for m in p.letters("cured.dlq")]
    check(sorted(scored + dead) == list(range(600)), f"each has one fate: {len(scored)} scores, {len(dead)} letters, {len(set(scored) & set(dead))} both")
    check(len(dead) <= before + 40, f"{len(dead)} letters, {before} before the kill")
    print(f"  {before} letters, {len(dead) - before} more by the new start, {len(scored)} scores", flush=True)


def told_of(p, out, first):
    """What was scored around the first difference, and every word that the topic of models has on it."""
    runs = []
    for s in sorted((s for s in out if s["source"]["partition"] == first["partition"]), key=lambda s: s["source"]["offset"]):
        if not runs or runs[-1][1] != s["model"]["version"]:
            runs.append((s["source"]["offset"], s["model"]["version"]))
    moves = [(("scorer " + e["actor"]) if e["pipeline"] else "mover", e["version"], [(x["partition"], x["offset"]) for x in e["effective"] if x["partition"] == first["partition"]])
             for e in (p.decode(m.value()) for m in p.read("penstock.models")) if e["type"] == "ALIAS_SET"]
    return f": first {first}; scored, from (offset, version): {runs}; on the topic: {moves}"


def test_an_alias_moved_from_the_end_is_replayed_alike(p):
    for i in (1, 2, 3):
        linear(p.dir / f"v{i}.onnx", [i, 10 * i])
        p.cli("models", "register", p.dir / f"v{i}.onnx", "--name", "ends")
    p.cli("models", "alias", "ends", "champion", 1)
    path = p.pipeline("ends", "model: {name: ends, alias: champion}\nfeatures: [a, b]\n", parts=3)
    sent, stop = [0], threading.Event()

    def stream():
        producer = p.producer()
        while not stop.is_set():
            producer.produce("ends", p.encode(p.sid, {"id": sent[0], "a": float(sent[0] % 100), "b": float(sent[0] % 7)}), key=str(sent[0]))
            sent[0] += 1
            producer.poll(0)
            if sent[0] % 20 == 0:
                time.sleep(0.02)
        check(producer.flush(60) == 0, "flushed")
    workers = [p.scorer(path) for _ in range(2)]
    t = threading.Thread(target=stream)
    t.start()
    try:
        p.read("ends.scores", lambda out: len(out) > 300, timeout=60)
        for k in range(8):
            p.cli("models", "alias", "ends", "champion", 1 + (k + 1) % 3, "--from-end", "ends")
            time.sleep(rng.uniform(0.2, 1.5))
            if k % 3 == 2:
                i = rng.randrange(2)
                workers[i].kill(), workers[i].wait()
                workers[i] = p.scorer(path)
    finally:
        stop.set()
        t.join()
    until(lambda: len(p.read("ends.scores")) >= sent[0], 120, lambda: f"{len(p.read('ends.scores'))} of {sent[0]}: {(p.dir / 'ends.log').read_text()[-1500:]}", 1)
    p.end(*workers)
    out = [p.decode(m.value()) for m in p.read("ends.scores")]
    check(sorted(s["record"]["id"] for s in out) == list(range(sent[0])), "every record once")
    r = p.cli("score", "replay", "-c", path, "--from", "0", "--to", "100000000", "--out", p.dir / "replay.jsonl", ok=False)
    check(r.returncode == 0, f"replay: exit status {r.returncode}: {r.stderr[-400:]}")
    lines = {(l["source"]["partition"], l["source"]["offset"]): l for l in map(json.loads, (p.dir / "replay.jsonl").read_text().splitlines())}
    differ = [s["source"] for s in out if (lambda l: (l["score"], l["model"]) != (s["score"], s["model"]))(lines[s["source"]["partition"], s["source"]["offset"]])]
    check(len(lines) == len(out) and not differ, f"{len(differ)} of {len(out)} differ from their replay ({len(lines)} lines){told_of(p, out, differ[0]) if differ else ''}")
    print(f"  {len(out)} scores of versions {sorted({s['model']['version'] for s in out})}", flush=True)


def test_a_worker_that_comes_back_after_a_move_is_replayed_alike(p):
    """Its successor has the version before at once and the one that counts, a large file, later: neither does it score with the former, nor say a word of what was before it."""
    linear(p.dir / "light.onnx", [1, 10])
    save(p.dir / "heavy.onnx", [helper.make_node("MatMul", ["in", "w"], ["out"])], {"w": np.array([[2], [20]], dtype=np.float32), "ballast": np.zeros(1 << 25, dtype=np.float32)})
    for name in ("light", "heavy"):
        p.cli("models", "register", p.dir / f"{name}.onnx", "--name", "back")
    p.cli("models", "alias", "back", "champion", 1)
    path = p.pipeline("back", "model: {name: back, alias: champion}\nfeatures: [a, b]\n", parts=1)
    worker = p.scorer(path)
    p.send("back", range(100), partition=0)
    p.read("back.scores", lambda out: len(out) == 100, timeout=60)
    p.cli("models", "alias", "back", "champion", 2, "--from-end", "back")
    until(lambda: "event=model_swap pipeline=back variant=PRIMARY model=back version=2" in (p.dir / "back.log").read_text(), 60, "the worker has heard of the move")
    p.send("back", range(100, 200), partition=0)
    p.read("back.scores", lambda out: len(out) == 200, timeout=60)
    worker.kill(), worker.wait()
    p.send("back", range(200, 300), partition=0)
    worker = p.scorer(path)
    p.read("back.scores", lambda out: len(out) == 300, timeout=60)
    p.end(worker)
    out = sorted(((s["source"]["offset"], s["model"]["version"]) for s in (p.decode(m.value()) for m in p.read("back.scores"))))
    check(out == [(i, 1 if i < 100 else 2) for i in range(300)], f"the offset alone decides between the versions: {[x for x in out if x[1] != (1 if x[0] < 100 else 2)][:5]}")
    r = p.cli("score", "replay", "-c", path, "--from", "0", "--to", "300", "--out", p.dir / "back.jsonl")
    lines = [(l["source"]["offset"], l["model"]["version"]) for l in map(json.loads, (p.dir / "back.jsonl").read_text().splitlines())]
    check(sorted(lines) == out, f"a replay says the same: {[x for x in sorted(lines) if x not in out][:5]}")


def test_avro_and_json_in_one_input(p):
    def mixed(i):
        value = {"id": i, "a": float(i % 100), "b": float(i % 7)}
        return p.encode(p.sid, value) if i % 3 else json.dumps(value).encode()
    for form in ("avro", "json"):
        path = p.pipeline("mixed" + form, f"model: {{file: {p.dir}/line.onnx}}\nfeatures: [a, b]\n", head=f", format: {form}")
        p.send("mixed" + form, range(300), value=mixed)
        r = p.cli("score", "run", "-c", path, "--exit-on-eof", ok=False)
        check(r.returncode == 3, f"{form}: exit status {r.returncode}: {r.stderr[-400:]}")
        good = [i for i in range(300) if bool(i % 3) == (form == "avro")]
        check(sorted(p.ids(f"mixed{form}.scores")) == good, f"{form}: those of its format are scored")
        letters = p.read(f"mixed{form}.dlq")
        check(sorted(int(m.key()) for m in letters) == sorted(set(range(300)) - set(good)), f"{form}: all others are letters")
        check(all(m.value() == mixed(int(m.key())) for m in letters), "with their own bytes")
        heads = {tuple(dict(m.headers())[h].decode() for h in ("__connect.errors.stage", "x-dlq-reason")) for m in letters}
        check(heads == {("DECODE", "bad-envelope")}, f"{form}: {heads}")


TESTS = [test_avro_and_json_in_one_input, test_a_start_at_a_time_outlasts_a_kill_and_growth, test_a_pause_ends_with_its_cure_for_two_scorers,
         test_an_alias_moved_from_the_end_is_replayed_alike, test_a_worker_that_comes_back_after_a_move_is_replayed_alike, test_a_model_slower_than_its_transaction_and_its_poll_interval]
with Bench() as p:
    linear(p.dir / "line.onnx", [1, 10])
    for test in TESTS:
        if len(sys.argv) < 2 or any(a in test.__name__ for a in sys.argv[1:]):
            start = time.monotonic()
            test(p)
            print(f"ok {test.__name__} {time.monotonic() - start:.1f} s", flush=True)
