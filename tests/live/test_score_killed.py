"""Half of a group of scorers is killed at once, in the middle of their transactions: what they left open is ended by those who are left as soon as the group
has given them up, so that the gap is the session and no time-out of a transaction beyond it; nothing is lost or doubled. The time-out is five minutes here: who waits for one is told from who is slow."""
import sys, os, threading, time
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from kit import *
from collections import Counter

SCHEMA = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "double"}]}
PARTS, SESSION, OPEN = 6, 6, 300  # seconds

with Platform(without="trainer,lcm,scorers") as p:
    import numpy as np, onnx
    from confluent_kafka import Consumer, TopicPartition
    from onnx import helper, TensorProto, numpy_helper
    g = helper.make_graph([helper.make_node("MatMul", ["in", "w"], ["out"])], "g", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", 1])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 1])], [numpy_helper.from_array(np.array([[2.0]], dtype=np.float32), "w")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), p.dir / "m.onnx")
    for t in ("in", "out"):
        p.create(t, PARTS)
    good = p.encode(p.register("in-value", SCHEMA), {"x": 1.0})
    (p.dir / "pipe.yml").write_text(
        f"name: grp\ninput: {{topics: [in], group: grp, start: earliest, format: avro}}\nmodel: {{file: {p.dir}/m.onnx}}\nfeatures: [{{field: x}}]\n"
        "output: {topic: out, format: full}\nguarantee: exactly_once\nerrors: {tolerance: all}\n"
        f"kafka: {{session.timeout.ms: {SESSION * 1000}, transaction.timeout.ms: {OPEN * 1000}}}\n")
    over, sent, seen = threading.Event(), [0], []
    log = lambda: "\n".join((p.dir / "score.log").read_text(errors="replace").splitlines()[-12:])

    def write():
        producer = p.producer()
        while not over.is_set():
            for part in range(PARTS):
                producer.produce("in", good, key=f"k{sent[0]}", partition=part)
                sent[0] += 1
            producer.poll(0.01)
        check(producer.flush(60) == 0, "flushed")

    def read():
        c = Consumer({"bootstrap.servers": p.bootstrap, "group.id": "reader", "isolation.level": "read_committed"})
        c.assign([TopicPartition("out", i, 0) for i in range(PARTS)])
        while not over.is_set():
            m = c.poll(0.2)
            if m and not m.error():
                seen.append((m.partition(), time.monotonic()))
        c.close()

    start = lambda: p.spawn("score", "run", "-c", p.dir / "pipe.yml", log="score.log")
    workers = [start() for _ in range(6)]
    threads = [threading.Thread(target=f, daemon=True) for f in (write, read)]
    for t in threads:
        t.start()
    until(lambda: len({part for part, at in seen if at > time.monotonic() - 5}) == PARTS, 90, lambda: "the scorers do not score: " + log())
    time.sleep(8)  # all have come, and committed
    killed, gaps = 0, []
    for turn in range(2):
        begun = time.monotonic()
        for w in workers[:3]:
            w.kill()
        for w in workers[:3]:
            w.wait()
        killed += 3
        until(lambda: time.monotonic() > begun + 7 and len({part for part, at in seen if at > time.monotonic() - 4}) == PARTS, 150, lambda: f"{killed} killed: a partition is not scored any more: {log()}")
        gaps.append(max(min(at for q, at in seen if q == part and at > begun + 3) - max((at for q, at in seen if q == part and at <= begun + 3), default=begun) for part in range(PARTS)))
        workers = workers[3:] + [start() for _ in range(3)]
        time.sleep(8)
    check(all(w.poll() is None for w in workers), f"a scorer left by itself: {log()}")
    over.set()
    for t in threads:
        t.join()
    until(lambda: len(p.read("out", timeout=30)) >= sent[0], 60, lambda: f"{len(p.read('out', timeout=30))} of {sent[0]} scored", 1)
    check(max(Counter(m.key() for m in p.read("out", timeout=30)).values()) == 1, "something was scored twice")
    check(max(gaps) < OPEN / 3, f"a partition waited for {max(gaps):.1f} s after the kill; the session is {SESSION} s: {log()}")
print(f"ok: {sent[0]} records scored once; {killed} of 6 scorers were killed, the longest gaps were {', '.join(f'{g:.1f}' for g in gaps)} s")
