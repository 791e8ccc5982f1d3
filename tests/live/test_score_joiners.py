"""Scorers that join one after another, a second apart, and leave together: nothing is scored twice, and nobody waits for the session of one that left in the
middle of a rebalance, nor when the broker is slow to say who is a member. Arrivals are what a reader sees, not the records' times."""
import sys, os, signal, threading, time
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from kit import *
from collections import Counter

SESSION = 90  # seconds: who waits for one is told from who is slow
SLOW = 3.5  # seconds in which the broker answers nothing
SCHEMA = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "double"}]}

with Platform(without="trainer,lcm,scorers") as p:
    import numpy as np, onnx
    from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition
    from confluent_kafka.admin import AdminClient
    from onnx import helper, TensorProto, numpy_helper
    g = helper.make_graph([helper.make_node("MatMul", ["in", "w"], ["out"])], "g", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", 1])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 1])], [numpy_helper.from_array(np.array([[2.0]], dtype=np.float32), "w")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), p.dir / "m.onnx")
    for t in ("in", "out"):
        p.create(t, 4)
    good = p.encode(p.register("in-value", SCHEMA), {"x": 1.0})
    (p.dir / "pipe.yml").write_text(
        f"name: grp\ninput: {{topics: [in], group: grp, start: earliest, format: avro}}\nmodel: {{file: {p.dir}/m.onnx}}\nfeatures: [{{field: x}}]\n"
        f"output: {{topic: out, format: full}}\nguarantee: exactly_once\nerrors: {{tolerance: all}}\nkafka: {{session.timeout.ms: {SESSION * 1000}}}\n")
    start = lambda n: p.spawn("score", "run", "-c", p.dir / "pipe.yml", log=f"score-{n}.log")
    over, sent, seen = threading.Event(), [0], []

    def write():
        producer = p.producer()
        while not over.is_set():
            for part in range(4):
                producer.produce("in", good, key=f"k{sent[0]}", partition=part)
                sent[0] += 1
            producer.poll(0.05)
        check(producer.flush(60) == 0, "flushed")

    def read():
        c = Consumer({"bootstrap.servers": p.bootstrap, "group.id": "reader", "isolation.level": "read_committed"})
        c.assign([TopicPartition("out", i, 0) for i in range(4)])
        while not over.is_set():
            m = c.poll(0.2)
            if m and not m.error():
                seen.append((m.partition(), time.monotonic()))
        c.close()

    threads = [threading.Thread(target=f, daemon=True) for f in (write, read)]
    a = start("a")
    for t in threads:
        t.start()
    until(lambda: len({part for part, _ in seen}) == 4, 60, "the first scorer does not score")
    begun, joiners = time.monotonic(), []
    for i in range(20):
        joiners.append(start(i))
        time.sleep(1)
    # Those who leave first leave the others in the middle of a rebalance, and what is sent behind a JoinGroup is not heard; but all have come. (One that
    # is told to stop before its first place in the group has been given to it cannot give it back.)
    admin = AdminClient({"bootstrap.servers": p.bootstrap})
    group = lambda: admin.describe_consumer_groups(["grp"])["grp"].result(60)
    until(lambda: group().state == ConsumerGroupState.STABLE and len(group().members) == 21, 60, lambda: f"the group is {group().state} with {len(group().members)} members", 0.5)
    come = time.monotonic()
    for j in joiners[:3]:
        j.terminate()
    time.sleep(1)  # the others hear of it by a heartbeat and join anew
    broker = json.loads(p.kafka("status", "--json"))["pids"][0]
    os.kill(broker, signal.SIGSTOP)
    for j in joiners[3:]:
        j.terminate()
    time.sleep(SLOW)
    os.kill(broker, signal.SIGCONT)
    for j in joiners:
        check(j.wait(60) == 0, f"told to stop, a scorer exits {j.returncode}")
    left = time.monotonic()
    until(lambda: len({part for part, t in seen if t > left + 2}) == 4, 60, lambda: f"a partition is not scored any more: {Counter(part for part, t in seen if t > left + 2)}", 0.5)
    over.set()
    for t in threads:
        t.join()
    until(lambda: len(p.read("out", timeout=20)) >= sent[0], 60, lambda: f"{len(p.read('out', timeout=20))} of {sent[0]} scored", 1)
    check(max(Counter(m.key() for m in p.read("out", timeout=20)).values()) == 1, "something was scored twice")

    def longest(until_when):  # of the times in which a partition gave nothing
        times = [[t for q, t in seen if q == part and begun <= t < until_when] for part in range(4)]
        return max(y - x for ts in times for x, y in zip(ts, ts[1:]))
    coming, gap = longest(come), longest(float("inf"))
    check(coming < 5 * PATIENCE, f"a partition waited for {coming:.1f} s while scorers came")
    check(gap < SESSION / 2, f"a partition waited for {gap:.1f} s while scorers came and went")
    check(a.poll() is None, "the first scorer left")
print(f"ok: {sent[0]} records scored once; 20 scorers came and went, the longest gap was {gap:.1f} s, {coming:.1f} s while they came")
