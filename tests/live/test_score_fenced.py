"""A scorer whose place in the group is taken by another member of the same name, while connections to the broker drop: it opens anew, says on /readyz that it
waits and for what, and goes on; nothing is lost or doubled. Once it is fenced while it sits in a wait for offsets that a foreign transaction holds back."""
import sys, os, random, select, subprocess, threading, time
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from kit import *
from collections import Counter

# A member under a given name, as a process of its own that is ended by kill -9: confluent-kafka's close() was seen to wait for ever in the rebalance callback
# of a member that is fenced itself, and holds the interpreter meanwhile. A line on its standard input asks it for something.
THIEF = """
import sys, threading
from confluent_kafka import Consumer, Producer, KafkaException, TopicPartition
bootstrap, name, patience = sys.argv[1], sys.argv[2], float(sys.argv[3])
c = Consumer({"bootstrap.servers": bootstrap, "group.id": "grp", "group.instance.id": name, "session.timeout.ms": 6000, "enable.auto.commit": False,
              "auto.offset.reset": "earliest", "log_level": 0})
c.subscribe(["in"])
print("subscribed", flush=True)
asked = []
threading.Thread(target=lambda: [asked.append(l.strip()) for l in sys.stdin], daemon=True).start()
polls = told = False
while True:
    word = asked.pop(0) if asked else None
    polls = polls or word == "poll"
    if word == "hold":  # its offsets, in a transaction that stays open
        holder = Producer({"bootstrap.servers": bootstrap, "transactional.id": "foreign", "transaction.timeout.ms": 800000, "log_level": 0})
        holder.init_transactions(30 * patience)
        holder.begin_transaction()
        try:
            holder.send_offsets_to_transaction(c.committed([TopicPartition("in", i) for i in range(2)], 20 * patience), c.consumer_group_metadata(), 30 * patience)
            print("held", flush=True)
        except KafkaException:  # the scorer was quicker, and is the member again
            print("not held", flush=True)
    if polls:
        c.poll(0.05)
        if c.assignment() and not told:
            told = True
            print("assigned", flush=True)
    else:
        threading.Event().wait(0.02)
"""

SCHEMA = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "double"}]}
SEED = int(os.environ.get("SEED", time.time()))
rnd = random.Random(SEED)

with Platform(without="trainer,lcm,scorers") as p:
    import numpy as np, onnx
    from confluent_kafka import Consumer, Producer, TopicPartition
    from onnx import helper, TensorProto, numpy_helper
    g = helper.make_graph([helper.make_node("MatMul", ["in", "w"], ["out"])], "g", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", 1])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 1])], [numpy_helper.from_array(np.array([[2.0]], dtype=np.float32), "w")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), p.dir / "m.onnx")
    for t in ("in", "out"):
        p.create(t, 2)
    good = p.encode(p.register("in-value", SCHEMA), {"x": 1.0})
    (p.dir / "pipe.yml").write_text(
        f"name: grp\ninput: {{topics: [in], group: grp, start: earliest, format: avro}}\nmodel: {{file: {p.dir}/m.onnx}}\nfeatures: [{{field: x}}]\n"
        "output: {topic: out, format: full}\nguarantee: exactly_once\nerrors: {tolerance: all}\n")
    port, over, sent, seen, said = free_ports(1), threading.Event(), [], Counter(), []
    log = lambda: "\n".join((p.dir / "score.log").read_text(errors="replace").splitlines()[-12:])

    def write():
        producer = p.producer(**{"enable.idempotence": True, "acks": "all"})
        i = 0
        while not over.is_set():
            producer.produce("in", good, key=f"k{i}", partition=i % 2, on_delivery=lambda e, m: e or sent.append(m.key()))
            producer.poll(0.02)
            i += 1
        check(producer.flush(60) == 0, "flushed")

    def read():
        c = Consumer({"bootstrap.servers": p.bootstrap, "group.id": "reader", "isolation.level": "read_committed", "log_level": 0})
        c.assign([TopicPartition("out", i, 0) for i in range(2)])
        while not over.is_set() or time.monotonic() < ended[0] + 5:
            m = c.poll(0.2)
            if m and not m.error():
                seen[m.key()] += 1
        c.close()

    def ask_ready():
        while not over.is_set():
            try:
                status, text, _ = p.http("/readyz", f"http://127.0.0.1:{port}")
            except OSError:
                status, text = 0, b"no answer"
            if not said or said[-1][1:] != (status, text.decode().strip()):
                said.append((time.monotonic(), status, text.decode().strip()))
            time.sleep(0.03)

    def flows(what, within=45):
        """What was sent so far is scored, and the scorer says that it is ready."""
        mark = set(sent)
        until(lambda: mark <= set(seen), within, lambda: f"seed {SEED}: {what}: {len(mark - set(seen))} of {len(mark)} not scored; /readyz: {said[-3:]}: {log()}", 0.2)
        until(lambda: said[-1][1] == 200, 20, lambda: f"seed {SEED}: {what}: it scores, and /readyz says {said[-1]}: {log()}")
        check(w.poll() is None, f"seed {SEED}: {what}: the scorer left with {w.returncode}: {log()}")

    def instance():
        """What the scorer is called now: fenced twice in a short time, it leaves its name to the other."""
        lines = (p.dir / "score.log").read_text(errors="replace").splitlines()
        name = [l for l in lines if "event=running" in l or "event=rejoined" in l][-1].split(" id=")[1].split()[0].removeprefix(PREFIX)
        check(name.startswith("score.grp."), f"it is called {name}")
        return name

    def steal(until_assigned=True):
        """Another member under the scorer's name, and whether it was given partitions."""
        thief = subprocess.Popen([sys.executable, "-c", THIEF, p.bootstrap, instance(), str(PATIENCE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        p.children.append(thief)
        check(thief.stdout.readline() == "subscribed\n", "the other member does not start")
        return thief, until_assigned and ask(thief, "poll", 20) == "assigned"

    def ask(thief, word, within):
        thief.stdin.write(word + "\n")
        ready, _, _ = select.select([thief.stdout], [], [], within * PATIENCE)
        return thief.stdout.readline().strip() if ready else None

    def end(thief):
        thief.kill()
        thief.wait()

    ended = [0]
    threads = [threading.Thread(target=f, daemon=True) for f in (write, read, ask_ready)]
    w = p.spawn("score", "run", "-c", p.dir / "pipe.yml", "--metrics-listen", port, log="score.log")
    for t in threads:
        t.start()
    until(lambda: len(seen) > 50 and said and said[-1][1] == 200, 60, lambda: "the scorer does not score: " + log())

    # Fenced, and then again while it waits for its offsets, which a foreign transaction holds back; the broker restarts on top.
    mark = len(said)
    thief, got = steal()
    check(got, "the other member got no partitions")
    held = ask(thief, "hold", 90) == "held"
    if held:
        until(lambda: any(s == 503 and "open transaction" in t for _, s, t in said[mark:]), 60, lambda: f"seed {SEED}: it does not say that offsets are pending: {said[mark:]}: {log()}")
    away = [text for _, status, text in said[mark:] if status == 503]
    check(any("fenced" in text for text in away), f"seed {SEED}: /readyz did not say why it waited: {said[mark:]}")
    end(thief)
    thief, _ = steal(until_assigned=False)
    time.sleep(rnd.uniform(0, 0.3))
    p.kafka("kill", "1")
    time.sleep(1)
    p.kafka("start", "1")
    ask(thief, "poll", 3)
    end(thief)
    if held:  # it joins anew, and after some seconds of waiting it says so again
        until(lambda: said[-1][1] == 503, 20, lambda: f"seed {SEED}: ready while its offsets are held back: {said[mark:]}")
    Producer({"bootstrap.servers": p.bootstrap, "transactional.id": "foreign", "log_level": 0}).init_transactions(60 * PATIENCE)  # ends it
    flows("fenced while it waited for its offsets", 60)

    # Fenced while the broker goes away and comes back, at random moments of what follows.
    for turn in range(4):
        mark = len(said)
        order = rnd.random() < 0.5
        if order:
            thief, _ = steal()
            time.sleep(rnd.uniform(0, 0.6))
            p.kafka("kill", "1")
        else:
            thief, _ = steal(until_assigned=False)
            time.sleep(rnd.uniform(0, 0.5))
            p.kafka("kill", "1")
        time.sleep(rnd.uniform(0, 5))
        p.kafka("start", "1")
        if rnd.random() < 0.5:
            if not order:
                thief.stdin.write("poll\n")
            time.sleep(4)
        end(thief)
        flows(f"turn {turn}: fenced and the broker restarted")

    over.set()
    ended[0] = time.monotonic()
    threads[0].join()
    until(lambda: set(sent) <= set(m.key() for m in p.read("out", timeout=20)), 60, "the last records", 1)
    for t in threads:
        t.join()
    twice = [k for k, n in Counter(m.key() for m in p.read("out", timeout=30)).items() if n > 1]
    check(not twice, f"seed {SEED}: {len(twice)} scored twice: {twice[:5]}")
    w.terminate()
    check(w.wait(20) == 0, f"told to stop, it exits {w.returncode}: {log()}")
print(f"ok: seed {SEED}: {len(sent)} records scored once, by a scorer that was fenced six times and more")
