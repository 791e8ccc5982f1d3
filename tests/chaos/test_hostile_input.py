"""Records that are not Avro, of unknown schema id, truncated, of the wrong shape, or null: dead-lettered with their original bytes and a reason (null: passed
through), and the good records of the same batch are scored."""
import sys, os, json, struct, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../live"))
from kit import *

SCHEMA = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "double"}, {"name": "y", "type": "double"}]}
OTHER = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": {"type": "array", "items": "string"}}]}

with Platform() as p:
    import numpy as np, onnx
    from onnx import helper, TensorProto, numpy_helper
    g = helper.make_graph([helper.make_node("MatMul", ["in", "w"], ["out"])], "g", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", 2])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 1])], [numpy_helper.from_array(np.array([[1.0], [1.0]], dtype=np.float32), "w")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), p.dir / "m.onnx")
    for t in ("in", "out", "dead"):
        p.create(t)
    sid, other = p.register("in-value", SCHEMA), p.register("other-value", OTHER)
    p.schema(sid), p.schema(other)
    good = p.encode(sid, {"x": 1.0, "y": 2.0})
    bad = {"not-avro": b"hello there", "empty": b"", "unknown-id": b"\0" + struct.pack(">I", 999999) + b"\x01\x02", "truncated": good[:-3], "trailing": good + b"junk",
           "wrong-shape": p.encode(other, {"x": ["a"]}), "short": b"\0\0", "all-ff": b"\xff" * 300}
    producer, sent = p.producer(), {}
    for i, (name, value) in enumerate(bad.items()):
        for k in range(5):
            producer.produce("in", good, key=f"good-{i}-{k}")
        producer.produce("in", value, key=name, headers=[("trace", b"t-1")])
    producer.produce("in", None, key="tombstone")
    producer.produce("in", good, key="last")
    producer.flush(30)
    (p.dir / "pipe.yml").write_text(f"name: hostile\ninput: {{topics: [in], group: hostile, start: earliest, format: avro}}\nmodel: {{file: {p.dir}/m.onnx}}\nfeatures: [{{field: x}}, {{field: y}}]\n"
                                    "output: {topic: out, format: full}\nguarantee: exactly_once\nerrors: {tolerance: all, dead_letter: {topic: dead}}\n")
    r = p.cli("score", "run", "-c", p.dir / "pipe.yml", "--exit-on-eof", ok=False, timeout=120)
    check(r.returncode == 3, f"score run with dead letters exits {r.returncode}, not 3: {r.stderr[-300:]}")
    out = p.read("out")
    scored = [m for m in out if m.value()]
    check(len(scored) == 5 * len(bad) + 1, f"{len(scored)} good records scored, wanted {5 * len(bad) + 1}")
    check(all(p.decode(m.value())["score"] == [3.0] for m in scored), "wrong scores")
    check([m.key() for m in out if m.value() is None] == [b"tombstone"], "the null record was not passed through as a tombstone")
    check([m.key() for m in out][-1] == b"last", "order of the partition is broken")
    dead = {m.key().decode(): m for m in p.read("dead")}
    check(set(dead) == set(bad), f"dead letters {sorted(dead)}, wanted {sorted(bad)}")
    for name, m in dead.items():
        h = dict(m.headers())
        check((m.value() or b"") == bad[name], f"{name}: bytes changed in the dead letter")
        check(h.get("trace") == b"t-1", f"{name}: the original headers are gone")
        check(h.get("__connect.errors.topic") == b"in" and h.get("__connect.errors.partition") == b"0" and h.get("__connect.errors.offset", b"").isdigit(), f"{name}: {h}")
        check(len(h.get("__connect.errors.exception.message", b"")) > 5, f"{name}: no reason: {h}")
    # the platform's own topics take hostile input too, and go on
    for topic in ("jobs.requests", "jobs.reports", "jobs.commands", "models", "pipelines"):
        for value in list(bad.values()) + [b"{", b"{}", b'{"name":1}', b"[1,2]", b'{"request_id":"x","action":"DANCE"}']:
            producer.produce(PREFIX + topic, value, key="training-hostile")
    producer.flush(30)
    tid = p.submit(manifest("after", "echo survived"))
    p.wait_state(tid, "COMPLETED")
    services = p.status()["services"]
    check(all(s["restarts"] == 0 for s in services), f"something fell over hostile input: {[(s['name'], s['restarts']) for s in services]}")
print(f"ok: {len(bad)} kinds of bad records, their neighbours unharmed")
