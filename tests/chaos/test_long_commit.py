"""Commits that take long while the group goes on: the coordinator of transactions is frozen (or the leader of what is written, too), and in the middle of
the scorers' commits others join, leave, are killed, or the input grows. The group's own coordinator lives on another broker, so that partitions are
moved while the commits hang: a rebalance waits for them. The ledger: every record is scored once, in order, and nobody leaves by itself.
    [SEED=7] [TURNS=4] [LONGEST=20]"""
import sys, os, json, random, signal, threading, time
from collections import Counter
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../live"))
from kit import *

SEED = int(os.environ.get("SEED", time.time()))
TURNS = int(os.environ.get("TURNS", "4"))
os.environ["PENSTOCK_KAFKA_BROKER_SESSION_MS"] = "120000"  # a broker that fences itself loses transaction markers (KAFKA-20734): not ours to test
PARTS, GROUP, TXN, DATA = 6, 1, 2, 3  # brokers: of the group, of transactions, of records
rnd = random.Random(SEED)
START = rnd.choice(["earliest", "latest"])
SPREAD = rnd.random() < 0.4  # the frozen broker leads some of the output as well
INTERVAL = rnd.choice([7000, 300000])  # of polls: shorter than what the commits take, or not
FAULTS = ["join", "stop", "kill", "grow", "swap", "kill+join", "join+grow", "grow+grow"]
plan = rnd.sample(FAULTS * (1 + TURNS // len(FAULTS)), TURNS)
print(f"seed {SEED}: start {START}, polls within {INTERVAL} ms, output {'spread' if SPREAD else 'apart'}, {plan}", flush=True)

with Platform(brokers=3, up=False) as p:
    import numpy as np, onnx
    from confluent_kafka import Consumer, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
    from onnx import helper, TensorProto, numpy_helper
    g = helper.make_graph([helper.make_node("MatMul", ["in", "w"], ["out"])], "g", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", 1])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 1])], [numpy_helper.from_array(np.array([[2.0]], dtype=np.float32), "w")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), p.dir / "m.onnx")
    admin = AdminClient({"bootstrap.servers": p.bootstrap})
    one = {"min.insync.replicas": "1", "retention.ms": "-1"}
    inner = {"cleanup.policy": "compact", "min.insync.replicas": "1"}
    topic = lambda name, n, config, *brokers: NewTopic(name, n, replica_assignment=[[brokers[i % len(brokers)]] for i in range(n)], config=config)
    for f in admin.create_topics([topic("__consumer_offsets", 3, inner, GROUP), topic("__transaction_state", 3, inner, TXN), topic("in", PARTS, one, DATA, GROUP),
                                  topic("out", 12, one, *((GROUP, TXN, DATA) if SPREAD else (DATA, GROUP))), topic("dead", 1, one, DATA)]).values():
        f.result(30 * PATIENCE)
    p.start_registry()
    pid = {b["id"]: b["pid"] for b in json.loads(p.kafka("status", "--json"))["brokers"]}
    (p.dir / "pipe.yml").write_text(
        f"name: longc\ninput: {{topics: [in], group: longc, start: {START}, format: json}}\nmodel: {{file: {p.dir}/m.onnx}}\nfeatures: [{{field: x}}]\n"
        "output: {topic: out, format: full, passthrough: [id]}\nguarantee: exactly_once\nerrors: {tolerance: all, dead_letter: {topic: dead}}\n"
        f"batching: {{count: 100, age: 5ms}}\nkafka: {{session.timeout.ms: 6000, max.poll.interval.ms: {INTERVAL}, topic.metadata.refresh.interval.ms: 2000}}\n")
    tail = lambda n=12: "\n".join(f"{k.name}: {line}" for k in sorted(p.dir.glob("score-*.log")) for line in k.read_text(errors="replace").splitlines()[-n:])
    count, partitions, acked, errors, over, frozen = [0], [PARTS], {}, [], threading.Event(), [0.0]
    workers = []

    def start():
        count[0] += 1
        f = p.dir / f"pipe-{count[0]}.yml"  # who hears of new partitions before the group's leader does joins again in the same generation
        f.write_text((p.dir / "pipe.yml").read_text().replace("interval.ms: 2000", f"interval.ms: {15000 if count[0] % 2 else 700}"))
        return p.spawn("score", "run", "-c", f, log=f"score-{count[0]:02}.log", env={**p.env, "PENSTOCK_DEBUG": "bus,score"})

    def spawn():
        workers.append(start())

    def delivered(e, m):
        if e:
            errors.append(str(e))
        else:
            acked[int(m.key())] = (m.partition(), m.offset())

    def stream():
        producer, i = p.producer(**{"topic.metadata.refresh.interval.ms": 2000}), 0
        while not over.is_set():
            for part in range(partitions[0]):
                with contextlib.suppress(KafkaException):  # the input grew, and it has not heard of it
                    producer.produce("in", json.dumps({"id": i, "x": float(i % 1000)}), key=str(i), partition=part, on_delivery=delivered)
                    i += 1
            producer.poll(0)
            time.sleep(0.03)
        check(producer.flush(120) == 0, "the stream was not written")
        frozen[0] = i

    def drained(w, what):
        begun = time.monotonic()
        check(w.wait(60) == 0, f"seed {SEED}: {what}: a scorer that was told to stop exits {w.returncode}: {tail()}")
        return time.monotonic() - begun

    spawn(), spawn()
    c = Consumer({"bootstrap.servers": p.bootstrap, "group.id": "longc", "enable.auto.commit": False})
    running = lambda: (p.dir / "score-02.log").read_text().count("event=running") and (p.dir / "score-01.log").read_text().count("event=running")
    until(running, 60, lambda: f"the scorers do not run: {tail()}")
    if START == "latest":
        until(lambda: all(t.offset >= 0 for t in c.committed([TopicPartition("in", i) for i in range(PARTS)], 30)), 60, lambda: f"the group has not begun: {tail()}", 0.5)
    c.close()
    feeder = threading.Thread(target=stream)
    feeder.start()
    until(lambda: len(p.read("out", lambda ms: True, timeout=30)) > 50, 60, lambda: f"nothing is scored: {tail()}", 1)
    for turn, fault in enumerate(plan):
        time.sleep(rnd.uniform(1, 3))
        gone = [w for w in workers if w.poll() is not None]
        check(not gone, f"seed {SEED}: a scorer left by itself with {[w.returncode for w in gone]} before turn {turn} of {plan}: {tail()}")
        while len(workers) < 2:
            spawn()
            time.sleep(3)
        seconds, leaving = rnd.uniform(4, float(os.environ.get("LONGEST", "20"))), []
        os.kill(pid[TXN], signal.SIGSTOP)
        begun = time.monotonic()
        try:
            time.sleep(rnd.uniform(0.2, 0.6 * seconds))
            k = rnd.randrange(len(workers))
            if fault in ("stop", "swap"):
                w = workers.pop(k)
                w.terminate()
                leaving.append(w)
            if fault in ("kill", "kill+join"):
                w = workers.pop(k)
                w.kill(), w.wait()
            if fault in ("join", "swap", "kill+join", "join+grow"):
                spawn()
            there = partitions[0]
            for _ in range(fault.count("grow")):
                time.sleep(rnd.uniform(2, 4) if "+" in fault else 0)  # heard while the first rebalance waits for the commit
                with contextlib.suppress(KafkaException):  # the frozen one may be the controller
                    admin.create_partitions([NewPartitions("in", there + 1, replica_assignment=[[DATA]])], request_timeout=3)["in"].result(30 * PATIENCE)
                    there += 1
            time.sleep(max(0.0, seconds - (time.monotonic() - begun)))
        finally:
            os.kill(pid[TXN], signal.SIGCONT)
        with contextlib.suppress(KafkaException):
            partitions[0] = max(partitions[0], len(admin.list_topics("in", 30).topics["in"].partitions))
        took = [f"{drained(w, f'turn {turn}, {fault}'):.1f}" for w in leaving]
        mark = len(acked)
        print(f"turn {turn}: {fault} in {seconds:.1f} s without the coordinator of transactions{', left after ' + took[0] if took else ''}; {len(workers)} scorers, {mark} records", flush=True)
        before = time.monotonic()
        if rnd.random() < 0.6:  # else the next one comes upon what this one left
            ids = list(acked)[:mark]
            until(lambda: {int(m.key()) for m in p.read("out", timeout=60)} >= set(ids), 60, lambda: f"seed {SEED}: turn {turn}, {fault}: not scored: {sorted(set(ids) - {int(m.key()) for m in p.read('out', timeout=60)})[:9]}: {tail()}", 1)
            print(f"  all scored {time.monotonic() - before:.1f} s after", flush=True)
        while len(workers) > 3:
            w = workers.pop(rnd.randrange(len(workers)))
            w.terminate()
            drained(w, f"after turn {turn}")
    over.set()
    feeder.join()
    check(len(acked) == frozen[0] and not errors, f"{len(acked)} of {frozen[0]} acknowledged {errors[:2]}")
    until(lambda: len({int(m.key()) for m in p.read("out", timeout=60)}) >= len(acked), 120,
          lambda: f"seed {SEED}: not scored: {[(i, acked[i]) for i in sorted(set(acked) - {int(m.key()) for m in p.read('out', timeout=60)})[:9]]}: {tail()}", 1)
    for w in workers:
        check(w.poll() is None, f"seed {SEED}: a scorer left by itself with {w.returncode}: {tail()}")
        w.terminate()
    for w in workers:
        drained(w, "at the end")
    out, dead = p.read("out", timeout=60), p.read("dead", timeout=60)
    n = Counter(int(m.key()) for m in out)
    twice = sorted(k for k, v in n.items() if v > 1)
    check(not dead and set(n) == set(acked) and not twice, f"seed {SEED}: {len(dead)} dead letters; missing {sorted(set(acked) - set(n))[:6]}, doubled {len(twice)} {[(k, acked[k]) for k in twice[:6]]}: {tail()}")
    last = {}
    for m in out:
        v, i = p.decode(m.value()), int(m.key())
        check(v["score"] == [2.0 * (i % 1000)] and v["record"]["id"] == i and (v["source"]["partition"], v["source"]["offset"]) == acked[i], f"seed {SEED}: record {i}, at {acked[i]}: {v}")
        k = m.partition(), v["source"]["partition"]
        check(last.get(k, -1) < v["source"]["offset"], f"seed {SEED}: order broken in partition {k}: {v['source']['offset']} after {last.get(k)}")
        last[k] = v["source"]["offset"]
    logs = "\n".join(k.read_text(errors="replace") for k in sorted(p.dir.glob("score-*.log")))
    words = Counter(w for w in ("event=round_again", "event=waiting_for", "event=producer_abandoned", "event=txn_settled", "event=txn_fate_unknown", "level=error", "event=reopen", "event=rebalance_waits", "kind=revoke", "kind=lost", "fenced", "astray", "event=standby") for _ in range(logs.count(w)))
print(f"ok: seed {SEED}: {len(acked)} records scored once, in {count[0]} scorers' lives; {dict(words)}")
