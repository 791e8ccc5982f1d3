"""The broker is killed for 30 s and started again while jobs run and a stream flows: no service exits, nothing acknowledged is lost, jobs end right."""
import sys, os, json, time, threading
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../live"))
from kit import *
OUTAGE, RECORDS = 30, 6000
SCHEMA = {"type": "record", "name": "Point", "fields": [{"name": "id", "type": "long"}, {"name": "x", "type": "double"}]}

with Platform() as p:
    import numpy as np, onnx
    from onnx import helper, TensorProto, numpy_helper
    g = helper.make_graph([helper.make_node("MatMul", ["in", "w"], ["out"])], "g", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", 1])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 1])], [numpy_helper.from_array(np.array([[2.0]], dtype=np.float32), "w")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), p.dir / "m.onnx")
    p.cli("models", "register", p.dir / "m.onnx", "--name", "double", "--alias", "champion")
    for t in ("points", "points.scores", "points.dlq"):
        p.create(t)
    sid = p.register("points-value", SCHEMA)
    p.schema(sid)
    (p.dir / "pipe.yml").write_text("name: outage\ninput: {topics: [points], group: outage, start: earliest, format: avro}\nmodel: {name: double, alias: champion}\n"
                                    "features: [{field: x}]\noutput: {topic: points.scores, format: full}\nguarantee: exactly_once\nerrors: {tolerance: all, dead_letter: {topic: points.dlq}}\n")
    p.cli("pipelines", "apply", p.dir / "pipe.yml")
    until(lambda: p.pids("score"), 20, "the scorer was not started")
    acked = []

    def stream():
        producer = p.producer(**{"enable.idempotence": True})
        for i in range(RECORDS):
            producer.produce("points", p.encode(sid, {"id": i, "x": float(i)}), key=str(i), on_delivery=lambda e, m: e or acked.append(m.offset()))
            producer.poll(0)
            time.sleep(0.008)
        producer.flush(120)
    feeder = threading.Thread(target=stream)
    feeder.start()
    tid = p.submit(manifest("through-the-outage", 'for i in $(seq 1 450); do echo "line $i"; sleep 0.1; done'))
    p.wait_state(tid, "PROCESSING")
    before = {s["name"]: (s["pid"], s["restarts"]) for s in p.status()["services"]}
    p.kafka("kill", "1")
    time.sleep(OUTAGE)
    during = {s["name"]: (s["pid"], s["restarts"]) for s in p.status()["services"]}
    check(before == during, f"services changed while the broker was away: {before} -> {during}")
    p.kafka("start", "1")
    p.wait_state(tid, "COMPLETED", timeout=120)
    after = {s["name"]: (s["pid"], s["restarts"]) for s in p.status()["services"]}
    check(before == after, f"services changed after the broker came back: {before} -> {after}")
    lines = [l for l in p.events("logs") if l["training_id"] == tid]
    check([l["text"] for l in lines if l["text"].startswith("line")] == [f"line {i}" for i in range(1, 451)], f"log lines were lost: {len(lines)}")
    check([l["rindex"] for l in lines] == list(range(len(lines))), "rindex has gaps")
    feeder.join()
    out = p.read("points.scores", lambda ms: len(ms) >= len(acked), 90)
    time.sleep(2)
    out = [p.decode(m.value()) for m in p.read("points.scores")]
    offsets = [s["source"]["offset"] for s in out]
    check(len(offsets) == len(set(offsets)), f"{len(offsets) - len(set(offsets))} records were scored twice")
    check(set(offsets) >= set(acked), f"{len(set(acked) - set(offsets))} acknowledged records were never scored")
    events = [e for e in p.events("jobs.events") if e["training_id"] == tid]
    check(sum(e["type"] == "COMPLETED" for e in events) == 1 and all(e["generation"] <= 1 for e in events), f"the job was not run once: {[e['type'] for e in events]}")
print(f"ok: {OUTAGE} s without a broker, {len(acked)} records, one job")
