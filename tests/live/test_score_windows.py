"""Windows over a key's records, with scorers that come, go and are killed: every record is scored once, and every window of it has the very bits of a
recomputation over the same stream, as the broker keeps it. Then what must be refused: another definition over the same changelog, and a group set back."""
import sys, os, collections, itertools, json, math, random, threading, time
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from kit import *

SCHEMA = {"type": "record", "name": "Payment", "fields": [
    {"name": "amount", "type": ["null", "double"]}, {"name": "other", "type": ["null", "double"], "default": None}]}
PARTS, KEYS, SECONDS, SESSION = 4, 40, 45, 6
FEATURES = """
  - {field: amount}
  - {field: amount, window: {last: 20, of: mean}}
  - {field: amount, window: {last: 10, of: deviation, self: false}, missing: value, value: -1}
  - {field: amount, window: {seconds: 2, of: count}}
  - {field: amount, window: {seconds: 3, of: sum, self: false}}
  - {field: amount, window: {last: 2, of: lag}, missing: value, value: -1}
  - {field: amount, window: {of: since}, missing: value, value: -1}
  - {field: other, window: {seconds: 4, of: max}, missing: value, value: -1}
  - {field: other, window: {last: 5, of: min}, missing: value, value: -1}
"""
WIDTH = FEATURES.count("field:")


class Key:
    """What a key has brought, in the plainest way: all of it."""
    def __init__(self):
        self.time, self.series = -1, {"amount": [], "other": []}

    def record(self, ms, value):
        now = max(ms, self.time)
        def young(of, s):
            return [x for t, x in itertools.takewhile(lambda v: v[0] > now - s * 1000, reversed(self.series[of]))][::-1]  # a key's time never goes back
        own = {of: [] if value[of] is None else [value[of]] for of in self.series}
        amounts, others = ([x for _, x in self.series[of][-40:]] for of in ("amount", "other"))
        def total(xs):
            sum = 0.0
            for x in xs:
                sum += x
            return sum
        def deviation(xs):
            mean = total(xs) / len(xs)
            return math.sqrt(total((x - mean) * (x - mean) for x in xs) / len(xs))
        last = (amounts + own["amount"])[-20:]
        top, low = young("other", 4) + own["other"], (others + own["other"])[-5:]
        row = [value["amount"], total(last) / len(last), deviation(amounts[-10:]) if amounts else -1.0, float(len(young("amount", 2)) + 1),
               total(young("amount", 3)), amounts[-2] if len(amounts) > 1 else -1.0, (now - self.series["amount"][-1][0]) / 1000 if amounts else -1.0,
               max(top) if top else -1.0, min(low) if low else -1.0]
        self.time = now
        for of, xs in own.items():
            self.series[of] += [(now, x) for x in xs]
        return row


with Platform(without="trainer,lcm,scorers") as p:
    import numpy as np, onnx
    from confluent_kafka import Consumer, TopicPartition
    from onnx import helper, TensorProto, numpy_helper
    io = lambda name: helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["N", WIDTH])
    g = helper.make_graph([helper.make_node("Mul", ["in", "one"], ["out"])], "g", [io("in")], [io("out")], [numpy_helper.from_array(np.ones((1, WIDTH)), "one")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), p.dir / "m.onnx")
    p.create("in", PARTS)
    sid = p.register("in-value", SCHEMA)
    pipe = p.dir / "pipe.yml"
    def write_pipe(features=FEATURES, state="topic: pay.state", more=""):
        pipe.write_text(f"name: pay\ninput: {{topics: [in], group: pay}}\nmodel: {{file: {p.dir}/m.onnx}}\nfeatures:{features}output: {{topic: out}}\n"
                        f"guarantee: exactly_once\nstate: {{{state}}}\nkafka: {{session.timeout.ms: {SESSION * 1000}, transaction.timeout.ms: 10000}}\n{more}")
    write_pipe()
    log = lambda: "\n".join((p.dir / "score.log").read_text(errors="replace").splitlines()[-12:])
    seed = int(os.environ.get("PENSTOCK_TEST_SEED") or time.time())
    print(f"seed {seed}")
    dice, over, sent = random.Random(seed), threading.Event(), [0]

    def write():
        producer, dice, begun = p.producer(), random.Random(seed + 1), int(time.time() * 1000)
        while not over.is_set():
            for _ in range(20):
                key = f"card-{dice.randrange(KEYS)}"
                late = dice.randrange(4000) if dice.random() < 0.05 else 0
                value = {"amount": None if dice.random() < 0.02 else dice.uniform(-1e3, 1e6), "other": None if dice.random() < 0.5 else dice.gauss(0, 1)}
                body = b"garbage" if dice.random() < 0.01 else p.encode(sid, value)
                producer.produce("in", body, key=None if dice.random() < 0.005 else key, timestamp=int(time.time() * 1000) - late)
                sent[0] += 1
            producer.poll(0)
            time.sleep(0.03)
        check(producer.flush(60) == 0, "flushed")

    start = lambda: p.spawn("score", "run", "-c", pipe, log="score.log")
    workers, killed, stopped = [start(), start()], 0, 0
    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    until(lambda: "event=running" in log(), 60, lambda: "nothing runs: " + log(), 1)
    begun = time.monotonic()
    while time.monotonic() < begun + SECONDS:
        time.sleep(dice.uniform(0.5, 6))
        at = dice.randrange(len(workers))
        if dice.random() < 0.7:
            workers[at].kill()
            killed += 1
        else:
            workers[at].terminate()
            stopped += 1
        workers[at].wait()
        workers[at] = start()
        if len(workers) < 3 and dice.random() < 0.3:
            workers.append(start())
    over.set()
    writer.join()
    n = sent[0]
    scores = lambda: len(p.read("out", timeout=30)) + len(p.read("in.dlq", timeout=30))
    until(lambda: scores() >= n, 120, lambda: f"{scores()} of {n} came out: {log()}", 2)
    for w in workers:
        w.terminate()
    for w in workers:
        check(w.wait(60) == 0, "a scorer did not end well: " + log())

    def plain():
        keys, rows = collections.defaultdict(Key), {}
        for m in sorted(p.read("in", timeout=30), key=lambda m: (m.partition(), m.offset())):
            value = None if m.value() == b"garbage" else p.decode(m.value())
            if m.key() is None or value is None or value["amount"] is None:
                continue
            rows[m.partition(), m.offset()] = keys[m.partition(), m.key()].record(m.timestamp()[1], value)
        return rows
    wanted = plain()

    def compare(got, what):
        check(len(got) == len(wanted), f"{what}: {len(got)} scores, {len(wanted)} are wanted")
        wrong = [at for at, row in got.items() if row != wanted.get(at)]
        check(not wrong, f"{what}: {len(wrong)} of {len(got)} rows differ, first at {min(wrong, default=None)}:\n{got.get(min(wrong, default=None))}\n"
                         f"{wanted.get(min(wrong, default=None))}")

    out = [p.decode(m.value()) for m in p.read("out", timeout=30)]
    got = {(x["source"]["partition"], x["source"]["offset"]): x["score"] for x in out}
    check(len(got) == len(out), f"{len(out) - len(got)} records were scored twice")
    compare(got, "stream")
    check(len(out) + len(p.read("in.dlq", timeout=30)) == n, "records were lost")
    log_of = (p.dir / "score.log").read_text(errors="replace")
    restored = log_of.count("event=state_restored")
    check(restored > PARTS and killed > 3, f"{restored} restores, {killed} kills")

    # a replay makes all of it again, from the input alone
    done = p.cli("score", "replay", "-c", pipe, "--from", "0", "--to", str(10 ** 9), "--out", p.dir / "again.jsonl", ok=False, timeout=120)
    check(done.returncode == 3, f"score replay: {done.returncode} {done.stderr[-400:]}")  # 3: there are dead letters
    again = [json.loads(line) for line in (p.dir / "again.jsonl").read_text().splitlines()]
    compare({(x["source"]["partition"], x["source"]["offset"]): x["score"] for x in again if "score" in x}, "replay")
    said = p.cli("score", "replay", "-c", pipe, "--from", "5", "--to", "9", ok=False).stderr
    check("use --from 0" in said, f"a replay from the middle: {said}")

    def refused(what):
        r = p.cli("score", "run", "-c", pipe, "--exit-on-eof", ok=False, timeout=90)
        said = r.stdout + r.stderr
        check(r.returncode and what in said and "state.topic another name" in said, f"{what} is not in: {r.returncode} {said}")
    from confluent_kafka.admin import AdminClient, NewPartitions
    producer = p.producer()
    for part in range(PARTS):
        producer.produce("in", p.encode(sid, {"amount": 1.0, "other": None}), key="x", partition=part)
    producer.flush(30)
    write_pipe(FEATURES.replace("last: 20", "last: 30"))
    refused("other windows")
    write_pipe()
    group = Consumer({"bootstrap.servers": p.bootstrap, "group.id": "pay"})
    group.commit(offsets=[TopicPartition("in", i, 0) for i in range(PARTS)], asynchronous=False)
    group.close()
    refused("in the windows already")
    admin = AdminClient({"bootstrap.servers": p.bootstrap})
    admin.create_partitions([NewPartitions("in", PARTS + 1)])["in"].result(60)
    refused("keys have moved")
print(f"ok: {n} records, {len(wanted)} scored once with the windows of a plain recomputation, {n - len(wanted)} dead letters; {killed} scorers killed, "
      f"{stopped} stopped, {restored} partitions restored")
