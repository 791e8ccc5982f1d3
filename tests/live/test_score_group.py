"""What one scorer's trouble means for the others and for the rest of its input: a record that must wait holds its own partition alone; a scorer that is told to
stop gives its partitions back at once, although its membership is static; input and output that grow are read and written to their last partition; and a record that waited is
scored once, whoever is killed meanwhile."""
import sys, os, struct, time
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from kit import *
from collections import Counter

SCHEMA = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "double"}]}
WIDER = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "double"}, {"name": "y", "type": "int", "default": 0}]}

with Platform(without="trainer,lcm,scorers") as p:
    import numpy as np, onnx
    from onnx import helper, TensorProto, numpy_helper
    from confluent_kafka.admin import AdminClient, NewPartitions
    g = helper.make_graph([helper.make_node("MatMul", ["in", "w"], ["out"])], "g", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", 1])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 1])], [numpy_helper.from_array(np.array([[2.0]], dtype=np.float32), "w")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), p.dir / "m.onnx")
    for t in ("in", "out", "dead"):
        p.create(t, 2, **{"message.timestamp.type": "LogAppendTime"})  # what came first is seen by its time, however long the looking takes
    sid = p.register("in-value", SCHEMA)
    (p.dir / "pipe.yml").write_text(
        f"name: grp\ninput: {{topics: [in], group: grp, start: earliest, format: avro}}\nmodel: {{file: {p.dir}/m.onnx}}\nfeatures: [{{field: x}}]\n"
        "output: {topic: out, format: full}\nguarantee: exactly_once\nerrors: {tolerance: all, dead_letter: {topic: dead}}\n"
        "kafka: {session.timeout.ms: 280000, topic.metadata.refresh.interval.ms: 2000}\n")
    good = p.encode(sid, {"x": 1.0})
    unknown = b"\0" + struct.pack(">I", 999983) + good[5:]
    producer, sent = p.producer(), set()

    def put(key, partition, value=good):
        producer.produce("in", value, key=key, partition=partition)
        producer.flush(20)
        if value == good:
            sent.add(key)

    def scored(topic="out"):
        return Counter(m.key().decode() for m in p.read(topic, timeout=20))

    def all_scored(within, what):
        until(lambda: set(scored()) >= sent, within, lambda: f"{what}: missing {sorted(sent - set(scored()))}: " + log(), 0.3)

    def log():
        return "\n".join((p.dir / "score.log").read_text(errors="replace").splitlines()[-6:])

    start = lambda: p.spawn("score", "run", "-c", p.dir / "pipe.yml", log="score.log")
    a = start()
    for i in range(5):
        put(f"a{i}", i % 2)
    all_scored(40, "the first records")

    # One partition waits for its record, the other goes on, and a kill meanwhile doubles nothing.
    for i in range(5):
        put(f"before{i}", 0)
    put("bad", 0, unknown)
    for i in range(5):
        put(f"behind{i}", 0)
    for i in range(5):
        put(f"beside{i}", 1)
    until(lambda: {f"beside{i}" for i in range(5)} <= set(scored()), 15, lambda: "the other partition waits, too: " + log(), 0.2)
    a.kill(), a.wait()
    a = start()
    until(lambda: "bad" in scored("dead"), 40, lambda: "the record of an unknown schema id is not dead-lettered: " + log(), 0.5)
    all_scored(20, "the records behind it")
    at = {m.key().decode(): m.timestamp()[1] for t in ("out", "dead") for m in p.read(t)}
    check(max(at[f"beside{i}"] for i in range(5)) < at["bad"], f"the other partition waited for the first: {at}")
    # Both may go out in one transaction, to two topics, and then the broker appends them in any order; the wait was of seconds.
    check(at["behind0"] > at["bad"] - 1000, f"a record overtook the one before it in its partition: {at}")
    check(max(scored().values()) == 1 and scored("dead") == {"bad": 1}, f"something came twice: {[k for k, n in (scored() + scored('dead')).items() if n > 1]}")

    # A static member that is told to stop leaves: its partition goes on long before its session is over.
    b = start()
    until(lambda: (p.dir / "score.log").read_text().count("event=running") == 3, 40, "the second scorer does not run")
    time.sleep(4)
    for i in range(6):
        put(f"two{i}", i % 2)
    all_scored(40, "two scorers")
    b.terminate()
    check(b.wait(20) == 0, f"told to stop, it exits {b.returncode}: {log()}")
    for i in range(6):
        put(f"one{i}", i % 2)
    all_scored(15, "after one of two scorers was told to stop (its session is 280 s)")

    # The input grows; the output does not.
    admin = AdminClient({"bootstrap.servers": p.bootstrap})
    for f in admin.create_partitions([NewPartitions("in", 4)]).values():
        f.result(30 * PATIENCE)
    until(lambda: len(producer.list_topics("in", 20).topics["in"].partitions) == 4, 30, "the producer does not hear that the input grew")
    for i in range(12):
        put(f"grown{i}", i % 4)
    all_scored(30, "after the input grew from 2 to 4 partitions")

    # The output grows alone, then both at once: nothing is lost, and where they match again a record keeps its partition.
    def grow(**topics):
        for f in admin.create_partitions([NewPartitions(t, n) for t, n in topics.items()]).values():
            f.result(30 * PATIENCE)
        for t, n in topics.items():
            until(lambda: len(producer.list_topics(t, 20).topics[t].partitions) == n, 30, f"the producer does not hear that {t} grew")
    grow(out=3)
    for i in range(12):
        put(f"out{i}", i % 4)
    all_scored(30, "after the output grew from 2 to 3 partitions (the input has 4)")
    grow(**{"in": 6, "out": 6})
    for i in range(12):
        put(f"new{i}", i % 6)
    all_scored(30, "after both grew to 6 partitions")  # that both did is seen by the first record of a new partition
    for i in range(24):
        put(f"both{i}", i % 6)
    all_scored(30, "behind it")
    where = {m.key().decode(): m.partition() for m in p.read("out")}
    moved = {f"both{i}": where[f"both{i}"] for i in range(24) if where[f"both{i}"] != i % 6}
    check(not moved, f"input and output have 6 partitions, and scores are not in their records' partitions: {moved}")
    check(a.poll() is None, f"the scorer left by itself: {log()}")
    check(max(scored().values()) == 1, "something came twice")
    a.terminate()
    check(a.wait(20) == 0, f"told to stop, it exits {a.returncode}: {log()}")
print(f"ok: {len(sent)} records scored once; one waited alone, one scorer left, input and output grew")
