"""Services are frozen (SIGSTOP) past their session and transaction timeouts and thawed again, one after the other, and the broker too, while jobs run
and an exactly-once stream flows through two workers: a thawed one finds itself fenced and joins anew. The ledger: nobody exits, every job reaches its
right end once, no learner runs twice, every acknowledged record is scored exactly once."""
import sys, os, json, time, threading, signal
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../live"))
from kit import *
FREEZE, RECORDS = 17, 8000  # seconds: beyond the session (10 s) and the scorer's transactions (15 s)
os.environ["PENSTOCK_KAFKA_BROKER_SESSION_MS"] = "60000"  # a broker that fences itself loses transaction markers (KAFKA-20734): not ours to test
SCHEMA = {"type": "record", "name": "Point", "fields": [{"name": "id", "type": "long"}, {"name": "x", "type": "double"}]}

with Platform() as p:
    import numpy as np, onnx
    from onnx import helper, TensorProto, numpy_helper
    g = helper.make_graph([helper.make_node("MatMul", ["in", "w"], ["out"])], "g", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", 1])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 1])], [numpy_helper.from_array(np.array([[2.0]], dtype=np.float32), "w")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), p.dir / "m.onnx")
    p.cli("models", "register", p.dir / "m.onnx", "--name", "double", "--alias", "champion")
    p.create("points", 3), p.create("points.scores", 3)
    sid = p.register("points-value", SCHEMA)
    p.schema(sid)
    (p.dir / "pipe.yml").write_text("name: frozen\ninput: {topics: [points], group: frozen, start: earliest, format: avro}\nmodel: {name: double, alias: champion}\n"
                                    "features: [{field: x}]\noutput: {topic: points.scores, format: full, passthrough: [id]}\nguarantee: exactly_once\n")
    p.cli("pipelines", "apply", p.dir / "pipe.yml")
    until(lambda: p.pids("score"), 20, "the scorer was not started")
    second = p.spawn("score", "run", "-c", p.dir / "pipe.yml", log="second.log")
    acked, stop = [], threading.Event()

    def stream():
        producer = p.producer(**{"enable.idempotence": True})
        for i in range(RECORDS):
            producer.produce("points", p.encode(sid, {"id": i, "x": float(i)}), key=str(i), on_delivery=lambda e, m, i=i: e or acked.append(i))
            producer.poll(0)
            time.sleep(0.012)
        producer.flush(180)
    feeder = threading.Thread(target=stream)
    feeder.start()
    marks = p.dir / "marks"
    marks.mkdir()
    command = (f'm={marks}/$TRAINING_ID; echo start $PENSTOCK_GENERATION >> $m; for i in $(seq 1 60); do flock -n $m.lock sleep 0.1 || echo TWICE >> $m; echo "line $i"; done; '
               'exit ${WANT:-0}')
    jobs = {}

    def job(want, *extra):
        jobs[p.submit(manifest(f"job-{len(jobs)}", f"WANT={3 if want == 'FAILED' else 0}; {command}"), None, *extra)] = want

    job("COMPLETED")
    before = {s["name"]: (s["pid"], s["restarts"]) for s in p.status()["services"]}
    for what in ("score", "trainer", "lcm", "broker"):
        pids = json.loads(p.kafka("status", "--json"))["pids"] if what == "broker" else p.pids(what)
        check(pids, f"no process of {what}")
        if what != "broker":
            job("FAILED" if what == "lcm" else "COMPLETED")
            time.sleep(0.3)
        started = time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            if what != "broker":
                job("COMPLETED", "--no-wait")  # admitted by a trainer that is frozen and cannot answer, or run by an LCM that is
            time.sleep(max(0.0, FREEZE - (time.monotonic() - started)))
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        print(f"{what} was frozen for {time.monotonic() - started:.0f} s", flush=True)
        time.sleep(2)
    for tid, want in jobs.items():
        p.wait_state(tid, *ENDED, timeout=150)
    after = {s["name"]: (s["pid"], s["restarts"]) for s in p.status()["services"]}
    check(before == after, f"services changed: {before} -> {after}")
    check(second.poll() is None, "the second worker exited")
    events = p.events("jobs.events")
    for tid, want in jobs.items():
        mine = [e for e in events if e["training_id"] == tid]
        check([e["seq"] for e in mine] == list(range(1, len(mine) + 1)), f"{tid}: sequence {[e['seq'] for e in mine]}")
        ends = [e["type"] for e in mine if e["type"] in ENDED]
        check(ends == [want], f"{tid}: wanted one {want}, got {ends}")
        text = (marks / tid).read_text()
        check("TWICE" not in text, f"{tid}: two learners at once: {text}")
        check(text.count("start") == 1, f"{tid}: started {text.count('start')} times; a freeze is no death")
    feeder.join()
    check(len(acked) == RECORDS, f"{len(acked)} of {RECORDS} inputs acknowledged")
    p.read("points.scores", lambda ms: len(ms) >= RECORDS, 120)
    time.sleep(2)
    scores = [p.decode(m.value()) for m in p.read("points.scores")]
    ids = [s["record"]["id"] for s in scores]
    check(len(ids) == len(set(ids)), f"{len(ids) - len(set(ids))} records were scored twice")
    check(set(ids) == set(range(RECORDS)), f"{RECORDS - len(set(ids))} records were never scored")
    check(all(s["score"][0] == 2.0 * s["record"]["id"] for s in scores), "wrong scores")
print(f"ok: four freezes of {FREEZE} s, {len(jobs)} jobs, {RECORDS} records")
