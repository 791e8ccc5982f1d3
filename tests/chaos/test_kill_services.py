"""kill -9 of trainer, lcm, supervisor and scorer, one at a time at random moments, during ten jobs and a running exactly-once stream. The ledger:
every job reaches its right end once, no learner runs twice, every acknowledged input record is scored exactly once (read committed), and the
view equals a clean replay."""
import sys, os, json, random, time, threading, signal
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../live"))
from kit import *

SEED = int(os.environ.get("SEED", random.randrange(10**6)))
rng = random.Random(SEED)
print("seed", SEED, flush=True)
JOBS, RECORDS, KILLS = 10, 20000, 14
SCHEMA = {"type": "record", "name": "Point", "fields": [{"name": "id", "type": "long"}, {"name": "x", "type": "double"}, {"name": "y", "type": ["null", "float"], "default": None}]}


def model(path):
    import numpy as np, onnx
    from onnx import helper, TensorProto, numpy_helper
    w = np.array([[2.0], [3.0]], dtype=np.float32)
    g = helper.make_graph([helper.make_node("MatMul", ["in", "w"], ["out"])], "g", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", 2])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 1])], [numpy_helper.from_array(w, "w")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


with Platform() as p:
    model(p.dir / "m.onnx")
    p.cli("models", "register", p.dir / "m.onnx", "--name", "line", "--alias", "champion")
    p.create("points", 3), p.create("points.scores", 3)
    sid = p.register("points-value", SCHEMA)
    p.schema(sid)
    (p.dir / "pipe.yml").write_text("name: chaos\ninput: {topics: [points], group: chaos, start: earliest, format: avro}\nmodel: {name: line, alias: champion}\n"
                                    "features: [{field: x}, {field: y, missing: value, value: 1}]\noutput: {topic: points.scores, format: full, passthrough: [id]}\n"
                                    "guarantee: exactly_once\nerrors: {tolerance: all, dead_letter: {topic: points.dlq}}\n")
    p.create("points.dlq")
    p.cli("pipelines", "apply", p.dir / "pipe.yml")
    acked, stop = {}, threading.Event()

    def stream():
        producer = p.producer(**{"enable.idempotence": True})
        for i in range(RECORDS):
            x, y = rng.random(), None if i % 7 == 0 else i % 13

            def done(err, m, i=i, x=x, y=y):
                if not err:
                    acked[i] = (m.partition(), m.offset(), 2 * x + 3 * (1 if y is None else y))
            producer.produce("points", p.encode(sid, {"id": i, "x": x, "y": y}), key=str(i), on_delivery=done)
            producer.poll(0)
            if i % 100 == 99:
                time.sleep(0.15)
        producer.flush(120)
        stop.set()
    feeder = threading.Thread(target=stream)
    feeder.start()
    marks = p.dir / "marks"
    marks.mkdir()
    # Each learner proves that it is alone: it makes a lock folder, which a second one would find there, and removes it at its end.
    command = (f'm={marks}/$TRAINING_ID; echo start $PENSTOCK_GENERATION $$ >> $m; for i in $(seq 1 40); do flock -n $m.lock sleep 0.1 || echo TWICE >> $m; echo "line $i"; done; '
               'echo "end $PENSTOCK_GENERATION" >> $m; exit ${WANT:-0}')
    jobs = {}
    for i in range(JOBS):
        want = "FAILED" if i % 5 == 4 else "COMPLETED"
        jobs[p.submit(manifest(f"job-{i}", f"WANT={3 if want == 'FAILED' else 0}; {command}"))] = want
    killed = []
    for k in range(KILLS):
        time.sleep(rng.uniform(0.4, 1.8))
        what = ["trainer", "lcm", "supervisor", "score"][k % 4]
        pids = [pid for pid, _ in p.processes(" supervise ")] if what == "supervisor" else p.pids(what)
        if pids:
            os.kill(rng.choice(pids), signal.SIGKILL)
            killed.append(what)
    print("killed", killed, flush=True)
    for tid, want in jobs.items():
        p.wait_state(tid, *ENDED, timeout=150)
    events = p.events("jobs.events")
    for tid, want in jobs.items():
        mine = [e for e in events if e["training_id"] == tid]
        check([e["seq"] for e in mine] == list(range(1, len(mine) + 1)), f"{tid}: sequence {[e['seq'] for e in mine]}")
        ends = [e for e in mine if e["type"] in ("COMPLETED", "FAILED", "TERMINATED", "HALTED")]
        check(len(ends) == 1 and ends[0]["type"] == want, f"{tid}: wanted one {want}, got {[(e['type'], e['reason']) for e in ends]}")
        text = (marks / tid).read_text()
        check("TWICE" not in text, f"{tid}: two learners at once: {text}")
        starts = [l.split()[1] for l in text.splitlines() if l.startswith("start")]
        check(len(starts) == len(set(starts)), f"{tid}: a generation was started twice: {starts}")
    feeder.join()
    check(len(acked) == RECORDS, f"{len(acked)} of {RECORDS} inputs acknowledged")
    wanted = {(part, off): score for part, off, score in acked.values()}
    out = p.read("points.scores", lambda ms: len(ms) >= RECORDS, 120)
    time.sleep(2)
    out = p.read("points.scores")
    seen = {}
    for m in out:
        s = p.decode(m.value())
        key = (s["source"]["partition"], s["source"]["offset"])
        check(key not in seen, f"scored twice (read committed): {key}")
        seen[key] = s["score"][0]
    missing = [k for k in wanted if k not in seen]
    check(not missing and len(seen) == RECORDS, f"{len(missing)} of {RECORDS} never scored, as {missing[:3]}")
    wrong = [k for k in wanted if abs(seen[k] - wanted[k]) > 1e-3]
    check(not wrong, f"wrong scores: {[(k, seen[k], wanted[k]) for k in wrong[:3]]}")
    check(not p.read("points.dlq"), "good records were dead-lettered")
    # the view equals a replay: the store's documents against the compacted topic
    state = {}
    for m in p.read(PREFIX + "jobs.state"):
        state[m.key().decode()] = p.decode(m.value())
    view = lambda: {j["training_id"]: (j["state"], j["seq"], j["generation"]) for j in json.loads(p.http("/v1/jobs?limit=1000")[1])["jobs"]}
    until(lambda: view() == {k: (v["state"], v["seq"], v["generation"]) for k, v in state.items() if v}, 20, "the view is not what the topic says")
print(f"ok: {JOBS} jobs, {RECORDS} records, kills {killed}")
