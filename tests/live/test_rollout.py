"""Canary and shadow on a real Kafka: a hundred alias moves under load, whose replay agrees in every record; a canary beyond its budget, with two workers and kills."""
import os, sys
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from kit import *
import hashlib, math, threading
import numpy as np, onnx
from onnx import helper, TensorProto, numpy_helper

SEED = int(os.environ.get("SEED", random.randrange(10**6)))
rng = random.Random(SEED)
print("seed", SEED, flush=True)
READING = {"type": "record", "name": "Reading", "namespace": "mill", "fields": [{"name": "id", "type": "long"}, {"name": "a", "type": "double"}, {"name": "b", "type": "double"}]}
FLOAT = TensorProto.FLOAT


def save(path, nodes, inits):
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("in", FLOAT, ["N", 2])], [helper.make_tensor_value_info("out", FLOAT, ["N", 1])],
                          [numpy_helper.from_array(v, k) for k, v in inits.items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def linear(path, weights):
    save(path, [helper.make_node("MatMul", ["in", "w"], ["out"])], {"w": np.array(weights, dtype=np.float32).reshape(-1, 1)})


def fails(path):
    """On every record: a row that is not there is gathered."""
    save(path, [helper.make_node("ReduceSum", ["in", "axes"], ["s"]), helper.make_node("Cast", ["s"], ["i"], to=TensorProto.INT64), helper.make_node("Add", ["i", "far"], ["j"]),
                helper.make_node("Gather", ["table", "j"], ["g"], axis=0), helper.make_node("Reshape", ["g", "column"], ["out"])],
         {"axes": np.array([1], dtype=np.int64), "far": np.array(1 << 20, dtype=np.int64), "table": np.zeros((4, 1), dtype=np.float32), "column": np.array([-1, 1], dtype=np.int64)})


class Bench(Platform):
    def __init__(self):
        super().__init__(up=False)
        self.start_registry()
        self.sid = self.register("readings-value", READING)

    def pipeline(self, name, text, parts=2):
        for topic in (name, name + ".scores", name + ".shadow"):
            self.create(topic, parts)
        path = self.dir / f"{name}.yml"
        path.write_text(f"name: {name}\ninput: {{topics: [{name}], group: g-{name}}}\noutput: {{topic: {name}.scores, passthrough: [id]}}\nguarantee: exactly_once\nfeatures: [a, b]\n{text}")
        return path

    def models(self, name, **made):
        """Versions in the order given, aliases named like them."""
        for n, (alias, make) in enumerate(made.items(), 1):
            path = self.dir / f"{name}-{alias}.onnx"
            make(path) if callable(make) else linear(path, make)
            self.cli("models", "register", path, "--name", name)
            self.cli("models", "alias", name, alias, n)

    def scorer(self, path, *args):
        return self.spawn("score", "run", "-c", path, *args, log=path.stem + ".log")

    def scores(self, topic):
        return [self.decode(m.value()) for m in self.read(topic)]

    def send(self, topic, n):
        producer = self.producer()
        for i in range(n):
            producer.produce(topic, self.encode(self.sid, {"id": i, "a": float(i % 100), "b": float(i % 7)}), key=str(i))
        check(producer.flush(60) == 0, "records produced")

    def stops(self, name):
        return [e for e in (self.decode(m.value()) for m in self.read("penstock.models")) if e.get("pipeline") == name and e["version"] == 0 and e["digest"]]

    def end(self, *workers):
        for w in workers:
            w.send_signal(signal.SIGTERM)
        check([w.wait(60) for w in workers] == [0] * len(workers), f"drained: {[w.returncode for w in workers]}")


class Stream:
    """Records in a thread, until it is left."""
    def __init__(self, p, topic):
        self.p, self.topic, self.sent, self.over = p, topic, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        producer = self.p.producer()
        while not self.over.is_set():
            i, self.sent = self.sent, self.sent + 1
            producer.produce(self.topic, self.p.encode(self.p.sid, {"id": i, "a": float(i % 100), "b": float(i % 7)}), key=str(i))
            producer.poll(0)
            if i % 20 == 0:
                time.sleep(0.02)
        check(producer.flush(60) == 0, "flushed")

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def all_once(p, name, sent):
    until(lambda: len(p.read(f"{name}.scores")) >= sent, 120, lambda: f"{len(p.read(f'{name}.scores'))} of {sent}: {(p.dir / f'{name}.log').read_text()[-1500:]}", 1)
    out = p.scores(f"{name}.scores")
    check(sorted(s["record"]["id"] for s in out) == list(range(sent)), f"every record once: {len(out)} scores of {sent} records")
    return out


def same(a, b):
    return len(a) == len(b) and all(x == y or not math.isfinite(float(x)) and not math.isfinite(float(y)) for x, y in zip(a, b))


def replay_agrees(p, path, out):
    """In score, version and variant, of every record."""
    r = p.cli("score", "replay", "-c", path, "--from", "0", "--to", "100000000", "--out", p.dir / "replay.jsonl", ok=False)
    check(r.returncode == 0, f"replay: exit status {r.returncode}: {r.stderr[-400:]}")
    lines = {(l["source"]["partition"], l["source"]["offset"]): l for l in map(json.loads, (p.dir / "replay.jsonl").read_text().splitlines())}
    of = lambda s: lines[s["source"]["partition"], s["source"]["offset"]]
    differ = [(s["source"], s["variant"], s["model"]["version"], of(s).get("variant"), of(s).get("model")) for s in out
              if not same(of(s).get("score", []), s["score"]) or of(s)["model"] != s["model"] or of(s)["variant"] != s["variant"]]
    told = [(e["actor"], e["alias"], e["version"], e["metrics"], [(x["partition"], x["offset"]) for x in e["effective"]]) for e in (p.decode(m.value()) for m in p.read("penstock.models"))
            if e["type"] == "ALIAS_SET"] if differ else ""
    check(len(lines) == len(out) and not differ, f"{len(differ)} of {len(out)} differ from their replay ({len(lines)} lines): {differ[:3]} {told}")


def test_a_hundred_moves_with_a_canary_are_replayed_alike(p):
    p.models("moved", champion=[1, 10], rival=[2, 20], third=[3, 30])
    path = p.pipeline("moved", "model: {name: moved, alias: champion}\nrollout: {canary: {alias: rival, percent: 30}}\n", parts=3)
    workers = [p.scorer(path) for _ in range(2)]
    with Stream(p, "moved") as s:
        p.read("moved.scores", lambda out: len(out) > 300, timeout=60)
        for k in range(100):
            p.cli("models", "alias", "moved", rng.choice(["champion", "rival"]), rng.choice([1, 2, 3]), *(["--from-end", "moved"] if rng.random() < 0.5 else []))
            time.sleep(rng.uniform(0, 0.3))
            if k % 17 == 16:
                i = rng.randrange(2)
                workers[i].kill(), workers[i].wait()
                workers[i] = p.scorer(path)
    out = all_once(p, "moved", s.sent)
    p.end(*workers)
    replay_agrees(p, path, out)
    kinds = {(x["variant"], x["model"]["version"]) for x in out}
    check(len(kinds) == 6, f"both variants with each version: {kinds}")
    # A file that has another canary, or none, by now: what was recorded decides.
    path.write_text(path.read_text().replace("rollout: {canary: {alias: rival, percent: 30}}\n", ""))
    replay_agrees(p, path, out)
    print(f"  {len(out)} scores by {sorted(kinds)}", flush=True)


def test_a_canary_beyond_its_budget_rests_under_kills(p):
    p.models("costly", champion=[1, 10], rival=[float("nan"), 1])
    text = "model: {name: costly, alias: champion}\nrollout: {canary: {alias: rival, percent: 30, budget: {errors: 1%, over: 100}}}\n"
    path = p.pipeline("costly", text, parts=3)
    workers = [p.scorer(path) for _ in range(2)]
    with Stream(p, "costly") as s:
        until(lambda: p.read("costly.scores"), 60, "scores")
        for _ in range(6):  # somewhere around the decision
            time.sleep(rng.uniform(0, 0.5))
            i = rng.randrange(2)
            workers[i].kill(), workers[i].wait()
            workers[i] = p.scorer(path)
        until(lambda: p.stops("costly"), 60, lambda: f"nobody stops the canary: {(p.dir / 'costly.log').read_text()[-1500:]}", 0.5)
        until(lambda: all(f"event=canary_stopped" in l for l in [(p.dir / "costly.log").read_text()]), 60, "and says so")
        time.sleep(8)  # a partition may change hands yet
        for k in (0, 1):  # who starts later knows
            workers[k].kill(), workers[k].wait()
            workers[k] = p.scorer(path)
        quiet = s.sent
        time.sleep(4)
    out = all_once(p, "costly", s.sent)
    late = [x for x in out if x["record"]["id"] >= quiet and x["variant"] != "PRIMARY"]
    check(not late, f"after it was stopped the canary scored {len(late)} records")
    check(any(x["variant"] == "CANARY" for x in out), "before it had its part")
    stop = p.stops("costly")[0]
    check(stop["digest"] == hashlib.sha256(path.read_bytes()).hexdigest() and "errors: " in stop["reason"] and stop["effective"], f"{stop}")
    replay_agrees(p, path, out)
    p.end(*workers)
    # Another spec is another attempt.
    path.write_text(path.read_text().replace("percent: 30", "percent: 40"))
    worker = p.scorer(path)
    more = Stream(p, "costly")
    more.sent = s.sent
    with more:
        until(lambda: any(x["variant"] == "CANARY" and x["record"]["id"] >= s.sent for x in p.scores("costly.scores")), 60, "the canary is on again under a new spec", 0.5)
    out = all_once(p, "costly", more.sent)
    p.end(worker)
    replay_agrees(p, path, out)


def test_a_canary_that_fails_on_everything_holds_nobody(p):
    p.models("broken", champion=[1, 10], rival=fails)
    path = p.pipeline("broken", "model: {name: broken, alias: champion}\nrollout: {canary: {alias: rival, percent: 50, budget: {errors: 1%, over: 100000}}}\n")
    port = free_ports(1)
    worker = p.scorer(path, "--metrics-listen", str(port))
    until(lambda: "variant=CANARY" in (p.dir / "broken.log").read_text(), 60, "the canary's model is there")
    with Stream(p, "broken") as s:
        until(lambda: p.stops("broken"), 60, lambda: (p.dir / "broken.log").read_text()[-1500:], 0.5)
    until(lambda: len(p.read("broken.scores")) >= s.sent - 40, 60, lambda: f"{len(p.read('broken.scores'))} of {s.sent}", 0.5)
    check(p.http("/readyz", f"http://127.0.0.1:{port}")[0] == 200, "it is ready all the while")
    check('penstock_scorer_canary_stopped{pipeline="broken"} 1' in p.http("/metrics", f"http://127.0.0.1:{port}")[1].decode(), "and says that the canary rests")
    p.end(worker)


def test_a_shadow_that_disagrees_stops_the_canary(p):
    p.models("apart", champion=[1, 10], rival=[1, 11])
    path = p.pipeline("apart", "model: {name: apart, alias: champion}\nrollout:\n  canary: {alias: rival, percent: 10, budget: {disagreement: 50%, over: 200}}\n"
                               "  shadow: {alias: rival, topic: apart.shadow, tolerance: 2.5}\n")
    port = free_ports(1)
    worker = p.scorer(path, "--metrics-listen", str(port))
    with Stream(p, "apart") as s:  # |difference| is b: 0 to 6, of which 3 to 6 are beyond the tolerance
        until(lambda: p.stops("apart"), 60, lambda: (p.dir / "apart.log").read_text()[-1500:], 0.5)
    out = all_once(p, "apart", s.sent)
    text = p.http("/metrics", f"http://127.0.0.1:{port}")[1].decode()
    p.end(worker)
    value = lambda name: float(next(l for l in text.splitlines() if l.startswith(name)).split()[-1])
    of = 'pipeline="apart",variant="SHADOW",version="2"'
    equal, different = (value(f'penstock_scorer_compared_total{{{of},result="{r}"}}') for r in ("equal", "different"))
    mean = value(f"penstock_scorer_score_difference_total{{{of}}}") / (equal + different)
    primaries = [x["record"]["id"] for x in out if x["variant"] == "PRIMARY"]
    check(equal + different == len(primaries), f"{equal} + {different} compared of {len(primaries)}")
    check(different == sum(i % 7 > 2 for i in primaries) and abs(mean - np.mean([i % 7 for i in primaries])) < 1e-4, f"{different} differ, by {mean}")
    check("disagreement: " in p.stops("apart")[0]["reason"], f"{p.stops('apart')[0]}")
    replay_agrees(p, path, out)


def test_verbs_publish_once_and_are_refused_where_check_refuses(p):
    p.models("verbs", champion=[1, 10], rival=[2, 20])
    path = p.pipeline("verbs", "model: {name: verbs, alias: champion} # ours\n")
    p.cli("pipelines", "apply", path)
    spec = lambda: p.cli("pipelines", "show", "verbs", "-q").stdout
    specs = lambda: len(p.read("penstock.pipelines"))
    moves = lambda: [e for e in (p.decode(m.value()) for m in p.read("penstock.models")) if e["name"] == "verbs" and e["type"] == "ALIAS_SET" and not e["pipeline"]]
    first, n = spec(), specs()
    dry = p.cli("pipelines", "canary", "verbs", "--alias", "rival", "--percent", "20", "--errors", "1%", "--dry-run")
    check(dry.stdout.startswith(first) and '"percent": 20' in dry.stdout and spec() == first and specs() == n, f"a dry run publishes nothing: {dry.stdout}")
    for _ in (1, 2):
        p.cli("pipelines", "canary", "verbs", "--alias", "rival", "--percent", "20", "--errors", "1%", "--over", "500")
    check(specs() == n + 1 and spec().startswith(first), f"published once: {spec()}")
    for bad, word in ((["--alias", "nobody"], "nobody"), (["--percent", "101"], "percent"), (["--disagreement", "1%"], "rollout.shadow"), (["--alias", "a", "--model-version", "1"], "not both")):
        r = p.cli("pipelines", "canary", "verbs", *bad, ok=False)
        check(r.returncode and word in r.stderr and specs() == n + 1, f"{bad}: exit {r.returncode}: {r.stderr}")
    r = p.cli("pipelines", "promote", "nobody", ok=False)
    check(r.returncode and "no pipeline nobody" in r.stderr, r.stderr)
    p.cli("pipelines", "shadow", "verbs", "--alias", "rival", "--topic", "verbs.shadow", "--tolerance", "0.5")
    r = p.cli("pipelines", "show", "verbs")
    check("canary: verbs:rival, version 2, 20% of the records" in r.stderr and "shadow: verbs:rival, version 2, into verbs.shadow" in r.stderr, r.stderr)
    before = len(moves())
    p.send("verbs", 30)
    p.cli("pipelines", "promote", "verbs", "--dry-run")
    check(len(moves()) == before and "canary" in spec(), "a dry run promotes nothing")
    p.cli("pipelines", "promote", "verbs", "--reason", "as good")
    last = moves()[-1]
    check(len(moves()) == before + 1 and last["version"] == 2 and last["alias"] == "champion" and last["actor"] and last["reason"].endswith("pipeline verbs: as good"), f"{last}")
    check(sum(x["offset"] for x in last["effective"]) == 30 and len(last["effective"]) == 2, f"from the ends on: {last}")
    check("canary" not in spec() and "shadow" in spec(), spec())
    check(p.cli("pipelines", "promote", "verbs", ok=False).returncode == 2, "there is nothing left to promote")
    for _ in (1, 2):
        p.cli("pipelines", "rollback", "verbs", "--promotion")
    check(len(moves()) == before + 2 and moves()[-1]["version"] == 1, f"undone once: {moves()[-2:]}")
    p.cli("pipelines", "canary", "verbs", "--alias", "rival", "--percent", "1")
    n = specs()
    for _ in (1, 2):
        p.cli("pipelines", "rollback", "verbs")
    check(specs() == n + 1 and "canary" not in spec(), f"taken back once: {spec()}")


def test_drift_is_seen(p):
    """A model of the built-in form carries its bins; one without says so."""
    linear(p.dir / "plain.onnx", [1, 10])
    m = onnx.load(p.dir / "plain.onnx")
    tenths = lambda lo, step: {"edges": [lo + step * k for k in range(1, 10)], "shares": [0.1] * 10}
    for key, value in (("penstock.statistics", [{"field": "a", **tenths(-0.5, 10)}, {"field": "b", "edges": [2.5], "shares": [3 / 7, 4 / 7]}]),):
        prop = m.metadata_props.add()
        prop.key, prop.value = key, json.dumps(value)
    onnx.save(m, p.dir / "told.onnx")
    for name in ("told", "plain"):
        p.cli("models", "register", p.dir / f"{name}.onnx", "--name", "drift")
    p.cli("models", "alias", "drift", "champion", 1)
    path = p.pipeline("drift", "model: {name: drift, alias: champion}\ndrift: {psi: 0.2, over: 700}\n", parts=1)
    p.cli("pipelines", "apply", path)
    port = free_ports(1)
    worker = p.scorer(path, "--metrics-listen", str(port))

    def psi():
        text = p.http("/metrics", f"http://127.0.0.1:{port}")[1].decode()
        return {l.split('feature="')[1].split('"')[0]: float(l.split()[-1]) for l in text.splitlines() if l.startswith("penstock_scorer_drift_psi{")}
    p.send("drift", 700)
    until(lambda: len(psi()) == 2, 60, lambda: f"{psi()} {(p.dir / 'drift.log').read_text()[-800:]}")
    check(psi()["a"] < 1e-9 and psi()["b"] < 1e-9, f"as trained: {psi()}")
    check("event=drift" not in (p.dir / "drift.log").read_text(), "and nothing is said")
    producer = p.producer()
    for i in range(700):  # a in its upper half alone
        producer.produce("drift", p.encode(p.sid, {"id": i, "a": 50.0 + i % 50, "b": float(i % 7)}), key=str(i))
    check(producer.flush(60) == 0, "records produced")
    seen = np.maximum(np.array([0] * 5 + [0.2] * 5), 1e-4)
    want = float(np.sum((seen - 0.1) * np.log(seen / 0.1)))
    until(lambda: abs(psi()["a"] - want) < 1e-9, 60, lambda: f"{psi()}, not {want}")
    until(lambda: "event=drift pipeline=drift" in (p.dir / "drift.log").read_text(), 10, "it is said")
    points = p.events("metrics", lambda es: any(e.get("group") == "drift" and e["values"].get("a", 0) > 1 for e in es))
    check(len([e for e in points if e.get("group") == "drift"]) <= 2, "one point a window")
    until(lambda: "drift, scorer-" in (r := p.cli("pipelines", "show", "drift").stderr) and f"a {want:.3f}, b 0.000" in r, 60, lambda: p.cli("pipelines", "show", "drift").stderr, 1)
    p.cli("models", "alias", "drift", "champion", 2)
    until(lambda: "variant=PRIMARY model=drift version=2" in (p.dir / "drift.log").read_text(), 60, "the plain one")
    p.send("drift", 10)
    until(lambda: "event=no_training_statistics pipeline=drift" in (p.dir / "drift.log").read_text(), 60, "which has no statistics, and says so")
    check(all(math.isnan(x) for x in psi().values()), f"and the old figures are gone: {psi()}")
    p.end(worker)


def test_a_stopped_canary_is_not_promoted_and_said_to_rest(p):
    p.models("again", champion=[1, 10], rival=[float("nan"), 1])
    path = p.pipeline("again", "model: {name: again, alias: champion}\n")
    p.cli("pipelines", "apply", path)
    begin = lambda percent=50: p.cli("pipelines", "canary", "again", "--alias", "rival", "--percent", percent, "--errors", "1%", "--over", "50").stderr
    spec = lambda: p.cli("pipelines", "show", "again", "-q").stdout
    check("rests" not in begin(), "the first time it is on")
    first = spec()
    path.write_text(first)
    worker = p.scorer(path)
    with Stream(p, "again") as s:
        until(lambda: p.stops("again"), 60, lambda: (p.dir / "again.log").read_text()[-1500:], 0.5)
    p.end(worker)
    for how in ([], ["--dry-run"]):
        r = p.cli("pipelines", "promote", "again", *how, ok=False)
        check(r.returncode == 2 and "was stopped: errors: " in r.stderr and spec() == first, f"promote {how}: exit {r.returncode}: {r.stderr}")
    check("rests" in begin(), "begun once more")
    p.cli("pipelines", "rollback", "again")
    check("rests all the same" in begin() and spec() == first, "taken back, and begun again as it was")
    check("rests" not in begin(40), "another text is another attempt")


def test_a_version_pays_for_itself_alone(p):
    """What the version before had cost stood in the window that its successor was judged by."""
    p.models("heir", champion=[1, 10], rival=[float("nan"), 1], third=[3, 30])
    path = p.pipeline("heir", "model: {name: heir, alias: champion}\nrollout: {canary: {alias: rival, percent: 50, budget: {errors: 1%, over: 400}}}\n")
    worker = p.scorer(path)
    log = lambda: (p.dir / "heir.log").read_text()
    until(lambda: "variant=CANARY" in log(), 60, "the canary's model is there")
    p.send("heir", 500)  # half of it fails: not enough to be judged
    until(lambda: len(p.read("heir.scores")) >= 500, 60, lambda: log()[-1500:], 0.5)
    p.cli("models", "alias", "heir", "rival", 3)
    until(lambda: "variant=CANARY model=heir version=3" in log(), 60, "its successor is there")
    p.send("heir", 2000)
    until(lambda: len(p.read("heir.scores")) >= 2500, 60, lambda: log()[-1500:], 0.5)
    check(not p.stops("heir"), f"a version that never failed is stopped: {p.stops('heir')[:1]}")
    p.cli("models", "alias", "heir", "rival", 2)
    until(lambda: "variant=CANARY model=heir version=2" in log().split("version=3")[-1], 60, "and the one before once more")
    p.send("heir", 2000)
    until(lambda: p.stops("heir"), 60, lambda: f"one that fails always goes on: {log()[-1500:]}", 0.5)
    p.end(worker)


def test_a_pinned_primary_says_that_its_canary_has_ended(p):
    p.models("pinned", champion=[1, 10], rival=[2, 20])
    path = p.pipeline("pinned", "model: {name: pinned, version: 1}\nrollout: {canary: {alias: rival, percent: 50}}\n")
    for n in (200, 400):
        worker = p.scorer(path)
        if n == 200:
            until(lambda: "variant=CANARY" in (p.dir / "pinned.log").read_text(), 60, "the canary's model is there")
        p.send("pinned", 200)
        until(lambda: len(p.read("pinned.scores")) >= n, 60, lambda: (p.dir / "pinned.log").read_text()[-1500:], 0.5)
        p.end(worker)
        path.write_text(path.read_text().replace("rollout: {canary: {alias: rival, percent: 50}}\n", ""))
    out = p.scores("pinned.scores")
    check({x["variant"] for x in out} == {"PRIMARY", "CANARY"}, "it had its part before")
    replay_agrees(p, path, out)


TESTS = [test_a_version_pays_for_itself_alone, test_a_stopped_canary_is_not_promoted_and_said_to_rest, test_a_pinned_primary_says_that_its_canary_has_ended, test_drift_is_seen, test_verbs_publish_once_and_are_refused_where_check_refuses, test_a_shadow_that_disagrees_stops_the_canary, test_a_canary_that_fails_on_everything_holds_nobody, test_a_canary_beyond_its_budget_rests_under_kills,
         test_a_hundred_moves_with_a_canary_are_replayed_alike]
with Bench() as p:
    for test in TESTS:
        if len(sys.argv) < 2 or any(a in test.__name__ for a in sys.argv[1:]):
            start = time.monotonic()
            test(p)
            print(f"ok {test.__name__} {time.monotonic() - start:.1f} s", flush=True)
