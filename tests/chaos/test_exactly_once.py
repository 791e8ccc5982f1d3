"""Poison of every class among good records, while scorers are killed and frozen, others join and leave, the registry is away and the input grows: the ledger.
Each good record is scored once and each bad one dead-lettered once with its bytes, nothing is missing, nothing doubled, the order within a partition is kept,
and no scorer leaves by itself. One broker here; test_exactly_once_brokers.py is the long leg, on three of which some are killed:
    LEDGER=100000 [SEED=7]   100,000 records, about 750 a transaction, two scorers; two and a half minutes"""
import sys, os, json, random, struct, threading, time
from collections import Counter
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../live"))
from kit import *

LONG = int(os.environ.get("LEDGER", "0"))
SEED = int(os.environ.get("SEED", time.time()))
RECORDS, BROKERS = LONG or 12000, 3 if LONG else 1
FAULTS = ["kill"] * (8 if LONG else 2) + ["freeze", "registry", "join", "grow", "stop"] + ["broker"] * (4 if LONG else 0)
POINT = {"type": "record", "name": "Point", "fields": [{"name": "id", "type": "long"}, {"name": "x", "type": "double"}, {"name": "host", "type": "string"}]}
WIDER = {**POINT, "fields": POINT["fields"] + [{"name": "y", "type": "int", "default": 0}]}
OTHER = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": {"type": "array", "items": "string"}}]}
rnd = random.Random(SEED)
rnd.shuffle(FAULTS)


with Platform(brokers=BROKERS, without="trainer,lcm,scorers") as p:
    import numpy as np, onnx
    from onnx import helper, TensorProto, numpy_helper
    from confluent_kafka.admin import AdminClient, NewPartitions
    g = helper.make_graph([helper.make_node("MatMul", ["in", "w"], ["out"])], "g", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", 1])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 1])], [numpy_helper.from_array(np.array([[2.0]], dtype=np.float32), "w")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), p.dir / "m.onnx")
    for t in ("in", "out", "dead"):
        p.create(t, 3, min(BROKERS, 3))
    sid, wide, other = p.register("in-value", POINT), p.register("in-value", WIDER), p.register("other-value", OTHER)
    (p.dir / "pipe.yml").write_text(
        f"name: ledger\ninput: {{topics: [in], group: ledger, start: earliest, format: avro}}\nmodel: {{file: {p.dir}/m.onnx}}\nfeatures: [{{field: x}}]\n"
        "output: {topic: out, format: full, passthrough: [id, host]}\nguarantee: exactly_once\nscore: {non_finite: dead_letter}\nerrors: {tolerance: all, dead_letter: {topic: dead}}\n"
        f"batching: {{count: {750 if LONG else 128}, age: 5ms}}\nkafka: {{message.max.bytes: 200000, session.timeout.ms: 6000, topic.metadata.refresh.interval.ms: 2000}}\n")
    registry = RefusingRegistry(p.registry)
    p.env["PENSTOCK_REGISTRY"] = registry.url

    def good(i, x=None, host="h"):
        later = i > RECORDS // 2  # a writer schema that no scorer knows at its start
        return p.encode(wide if later else sid, {"id": i, "x": float(i) if x is None else x, "host": host, **({"y": 1} if later else {})})

    CLASSES = {
        "no frame": lambda i: b"\x05junk",
        "empty": lambda i: b"",
        "truncated": lambda i: good(i)[:-3],
        "more than the record": lambda i: good(i) + b"junk",
        "rubbish in a frame": lambda i: good(i)[:5] + b"\xff" * 40,
        "unknown schema id": lambda i: b"\0" + struct.pack(">I", 999000 + i % 3) + good(i)[5:],
        "another schema": lambda i: p.encode(other, {"x": ["a"]}),
        "NaN": lambda i: good(i, float("nan")),
        "infinite": lambda i: good(i, float("-inf")),
        "beyond the model's numbers": lambda i: good(i, 1e300),
        "no text": lambda i: good(i, None, "\x01\x01\x01\x01").replace(b"\x01\x01\x01\x01", b"\xff\xfe\xc0\x80"),
        "score too large": lambda i: good(i, None, "h" * 300000)}
    EVERY = 320 if not LONG else 500
    names = list(CLASSES)
    kinds = {i: names[i // EVERY % len(names)] for i in range(137, RECORDS, EVERY)}
    poison = {i: CLASSES[k](i) for i, k in kinds.items()}
    check(set(kinds.values()) == set(names), "a class of poison is not among the records")
    acked, errors, partitions = {}, [], 3
    producer = p.producer(**{"enable.idempotence": True, "acks": "all"})

    def delivered(e, m):
        if e:
            errors.append(str(e))
        else:
            acked[int(m.key())] = (m.partition(), m.offset())

    def feed(a, b, seconds):
        begin = time.monotonic()
        for k, i in enumerate(range(a, b)):
            producer.produce("in", poison.get(i, None) if i in poison else good(i), key=str(i), partition=i % partitions, on_delivery=delivered)
            if k % 50 == 0:
                producer.poll(0)
                time.sleep(max(0.0, begin + seconds * k / (b - a) - time.monotonic()))

    start = lambda: p.spawn("score", "run", "-c", p.dir / "pipe.yml", log="score.log")
    tail = lambda: "\n".join((p.dir / "score.log").read_text(errors="replace").splitlines()[-8:])
    workers = [start(), start()]
    cut = [RECORDS * k // (len(FAULTS) + 1) for k in range(len(FAULTS) + 2)]
    for j, fault in enumerate(FAULTS):
        feeder = threading.Thread(target=feed, args=(cut[j], cut[j + 1], 4))
        feeder.start()
        time.sleep(rnd.uniform(0.5, 2.5))
        k = rnd.randrange(2)
        check(workers[k].poll() is None, f"seed {SEED}: a scorer left by itself with {workers[k].returncode} after {FAULTS[:j]}: {tail()}")
        if fault == "kill":
            workers[k].kill(), workers[k].wait()
            workers[k] = start()
        elif fault == "stop":
            workers[k].terminate()
            check(workers[k].wait(30) == 0, f"seed {SEED}: a scorer that was told to stop exits {workers[k].returncode}: {tail()}")
            workers[k] = start()
        elif fault == "freeze":
            workers[k].send_signal(signal.SIGSTOP)
            time.sleep(9)
            workers[k].send_signal(signal.SIGCONT)
        elif fault == "registry":
            registry.code = 503
            workers[k].kill(), workers[k].wait()
            workers[k] = start()  # it knows no schema yet
            refused = registry.refused
            until(lambda: registry.refused > refused, 60, lambda: f"seed {SEED}: nobody asks the registry while it is away: {tail()}")
            time.sleep(4)
            registry.code = None
        elif fault == "join":
            third = start()
            time.sleep(5)
            third.terminate(), third.wait(30)
        elif fault == "grow":
            admin = AdminClient({"bootstrap.servers": p.bootstrap})
            for f in admin.create_partitions([NewPartitions("in", 5)]).values():
                f.result(30 * PATIENCE)
            feeder.join()
            until(lambda: len(producer.list_topics("in", 30).topics["in"].partitions) == 5, 30, "the producer does not hear that the input grew")
            partitions = 5
        elif fault == "broker":
            b = rnd.randint(1, BROKERS)
            p.kafka("kill", str(b))
            time.sleep(rnd.uniform(1, 4))
            p.kafka("start", str(b))
        feeder.join()
    feed(cut[-2], RECORDS, 1)
    check(producer.flush(120) == 0 and not errors and len(acked) == RECORDS, f"seed {SEED}: {len(acked)} of {RECORDS} acknowledged {errors[:2]}")
    check(registry.refused, f"seed {SEED}: nobody asked the registry while it was away")
    want, dead = set(range(RECORDS)) - set(poison), set(poison)
    here = lambda topic: {int(m.key()) for m in p.read(topic, timeout=60)}
    until(lambda: len(here("out")) >= len(want), 180, lambda: f"seed {SEED}: {sorted(want - here('out'))[:6]} are not scored: {tail()}", 1)
    until(lambda: len(here("dead")) >= len(dead), 60, lambda: f"seed {SEED}: not dead-lettered: {Counter(kinds[k] for k in dead - here('dead'))}, some of them scored: {Counter(kinds[k] for k in dead & here('out'))}: {tail()}", 1)
    for w in workers:
        check(w.poll() is None, f"seed {SEED}: a scorer left by itself with {w.returncode} after {FAULTS}: {tail()}")
        w.terminate()
    for w in workers:
        check(w.wait(30) == 0, f"seed {SEED}: a scorer that was told to stop exits {w.returncode}: {tail()}")
    out, letters = p.read("out", timeout=120), p.read("dead", timeout=60)
    some = lambda ks: f"{len(ks)} {sorted(ks)[:6]}"
    for what, ms, wanted in (("scores", out, want), ("dead letters", letters, dead)):
        n = Counter(int(m.key()) for m in ms)
        twice = [k for k, c in n.items() if c > 1]
        check(set(n) == wanted and not twice, f"seed {SEED}: {what} after {FAULTS}: missing {some(wanted - set(n))} {sorted({kinds[k] for k in wanted - set(n) if k in kinds})}, doubled {some(twice)}, unwanted {some(set(n) - wanted)} {sorted({kinds[k] for k in set(n) - wanted if k in kinds})}: {tail()}")
    check(all((m.value() or b"") == poison[int(m.key())] for m in letters), f"seed {SEED}: a dead letter's bytes changed")
    last = {}
    for m in out:
        v, i = p.decode(m.value()), int(m.key())
        check(v["score"] == [2.0 * i] and v["record"]["id"] == i and v["record"]["host"] == "h", f"seed {SEED}: record {i} has the score of another: {v}")
        check((v["source"]["partition"], v["source"]["offset"]) == acked[i], f"seed {SEED}: record {i} was at {acked[i]}, its score says {v['source']}")
        k = m.partition(), v["source"]["partition"]
        check(last.get(k, -1) < v["source"]["offset"], f"seed {SEED}: order broken in partition {k}: {v['source']['offset']} after {last.get(k)}")
        last[k] = v["source"]["offset"]
print(f"ok: seed {SEED}: {len(want)} scored once, {len(dead)} of {len(names)} classes dead-lettered, under {', '.join(FAULTS)} ({registry.refused} times no registry)")
