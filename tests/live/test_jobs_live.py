"""Jobs over time: archives of code that are swept and those that are still needed, folders that are swept beside a resume, a request before its
submission, a HALT while a model is registered; the Trainer is killed in the middle of each. Two thousand ended jobs and a restart."""
import base64, hashlib, pwd, random, signal, uuid
from kit import *

TRAINER = ("trainer", "--keep-code", "6s")
LCM = ("lcm", "--keep-ended", "3s")


USER = os.environ.get("USER") or pwd.getpwuid(os.geteuid()).pw_name


def training_id(request_id):
    digest = hashlib.sha256(USER.encode() + b"\0" + request_id.encode()).digest()[:15]
    return "training-" + base64.b32encode(digest).decode().lower()


def service(p, args):
    return p.spawn(*args, log=f"{args[0]}.log")


class Services:
    def __init__(self, p):
        self.p, self.trainer, self.lcm = p, service(p, TRAINER), service(p, LCM)

    def kill_trainer(self):
        self.trainer.send_signal(signal.SIGKILL)
        self.trainer.wait()
        self.trainer = service(self.p, TRAINER)


def archives(p):
    d = p.dir / "state/objects/code"
    return {f.name for f in d.iterdir()} if d.exists() else set()


def code(p, name, size=0):
    d = p.dir / f"code-{name}"
    d.mkdir(exist_ok=True)
    (d / "say.sh").write_text(f"echo {name}\n")
    if size:
        (d / "big").write_bytes(random.Random(name).randbytes(size))
    return d


def request(p, producer, **what):
    what = {"request_id": uuid.uuid4().hex, "user": USER, **what}
    producer.produce(PREFIX + "jobs.requests", json.dumps(what), key=what.get("training_id") or what["request_id"])
    producer.flush(20)
    return what


def sweep(p, s):
    big = code(p, "big", 2 << 20)
    done = p.submit(manifest("done", "sh say.sh"), big)
    had = archives(p)
    check(len(had) == 1, f"archives: {had}")
    halted = p.submit(manifest("halted", "[ $PENSTOCK_GENERATION -gt 1 ] && exec sh say.sh; sleep 300"), code(p, "small"))
    p.wait_state(done, "COMPLETED")
    p.wait_state(halted, "PROCESSING")
    p.cli("halt", halted)
    p.wait_state(halted, "HALTED")
    needed = p.show(halted)["code"]["sha256"]
    check(needed not in had and needed in archives(p), f"archives: {had}, then {archives(p)}, of which {needed} is needed")
    until(lambda: archives(p) == {needed}, 40, lambda: f"swept down to {archives(p)}, needed is {needed}")
    s.kill_trainer()
    time.sleep(12)
    check(archives(p) == {needed}, "the archive of a job that can be resumed is gone")
    p.cli("resume", halted)
    p.wait_state(halted, "COMPLETED")
    for n in range(4):  # uploaded again around the moments of sweeps: what was submitted runs
        tid = p.submit(manifest(f"again{n}", "sh say.sh"), big)
        p.wait_state(tid, "COMPLETED")
        time.sleep(random.uniform(2, 5))
    missing = request(p, p.producer(), action="SUBMIT", manifest=manifest("missing", "true"),
                      code={"media_type": "application/zip", "uri": f"code/{'0' * 64}", "sha256": "0" * 64})
    answer = p.events("jobs.events", lambda es: any(e["request_id"] == missing["request_id"] for e in es))
    end = [e for e in answer if e["request_id"] == missing["request_id"]]
    check(end[0]["type"] == "REJECTED" and "code.uri" in end[0]["details"], f"code that is not there: {end}")
    print("archives: swept when nobody needs them, kept for a halted job, there when uploaded again; one that is not there is told at once")


def secrets_in_commands(p, s):
    """A node that has the Trainer's key gets them sealed, another one as they were submitted; the learner sees them either way."""
    for far in (False, True):
        secret = f"geheim{random.randrange(10**12)}"
        if far:
            p.env, env = {**p.env, "PENSTOCK_REGISTRY": p.registry, "PENSTOCK_OBJECTS": f"file:{p.dir}/state/objects"}, p.env
            p.spawn("lcm", "--site", "far", "--state-dir", str(p.dir / "far"), log="far.log")
            p.env = env
        tid = p.submit(manifest("secret", f"[ \"$(echo $PASS | rev)\" = {secret[::-1]} ] && echo right",
                                extra=f"penstock: {{{'site: far, ' if far else ''}env: {{PASS: {secret}}}}}\n"))
        p.wait_state(tid, "COMPLETED")
        check(any(l["text"] == "right" for l in p.events("logs") if l["training_id"] == tid), "the learner did not get its secret")
        seen = {t for t in ("jobs.commands", "jobs.state", "jobs.events") if any(secret.encode() in (m.value() or b"") for m in p.read(PREFIX + t))}
        check(seen == ({"jobs.commands"} if far else set()), f"{'another' if far else 'the same'} key: the secret stands in {seen}")
        shown = {what: p.cli(*what, "--json").stdout for what in (("show", tid), ("list",))} | {path: str(p.http(path)[1]) for path in (f"/v1/jobs/{tid}", "/v1/jobs")}
        check(all(tid in text for text in shown.values()) and "PASS" in shown[("show", tid)], f"what is shown: {shown}")
        odd = [what for what, text in shown.items() if secret in text or "sealed:" in text]
        check(not odd, f"the secret, or its seal, is shown by {odd}")
    print("secrets: sealed in commands for a node with the Trainer's key")


def retention_beside_resume(p, s):
    tid = p.submit(manifest("kept", "echo g$PENSTOCK_GENERATION >> $CHECKPOINT_DIR/seen; [ $PENSTOCK_GENERATION -gt 3 ] && exit 0; sleep 300"))
    for g in range(1, 4):
        p.wait_state(tid, "PROCESSING")
        until(lambda: p.show(tid)["generation"] == g, 20, "generation")
        p.cli("halt", tid)
        p.wait_state(tid, "HALTED")
        if g == 2:
            s.kill_trainer()
        time.sleep(random.uniform(2.5, 4))  # about when the folder of the generation goes
        p.cli("resume", tid)
    p.wait_state(tid, "COMPLETED")
    seen = (p.dir / "state/jobs" / tid / "checkpoints/seen").read_text().split()
    check(seen == ["g1", "g2", "g3", "g4"], f"checkpoints over swept generations: {seen}")
    print("resumed while its folders were swept: checkpoints stayed")


def before_its_submission(p, s):
    producer, marks = p.producer(), p.dir / "early"
    for n in range(6):
        rid = uuid.uuid4().hex
        tid = training_id(rid)
        request(p, producer, action="TERMINATE", training_id=tid)
        time.sleep(random.uniform(0, 1.5))
        s.kill_trainer()
        request(p, producer, action="SUBMIT", request_id=rid, manifest=manifest("early", f"echo ran >> {marks}; sleep 60"))
        end = p.wait_state(tid, *ENDED, timeout=90)
        check(end["state"] == "TERMINATED", f"a job that was ended before it was submitted: {end}")
    print(f"ended before they were submitted, over {n + 1} kills of the Trainer: none lives, {len(marks.read_text().split()) if marks.exists() else 0} ran")


def model_code(p):
    import numpy as np, onnx
    from onnx import helper, TensorProto, numpy_helper
    g = helper.make_graph([helper.make_node("MatMul", ["in", "w"], ["out"])], "g", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", 1])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 1])], [numpy_helper.from_array(np.array([[2.0]], dtype=np.float32), "w")])
    d = code(p, "model")
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), d / "m.onnx")
    return d


def versions(p, tid):
    return [m for m in p.events("models") if m.get("training_id") == tid and m["type"] == "VERSION_REGISTERED"]


def caught_registering(p, manifest_text, folder):
    """A job whose supervisor is frozen between publishing its model and reading back that this version counts: (training id, pid)."""
    from confluent_kafka import Consumer, TopicPartition
    c = Consumer({"bootstrap.servers": p.bootstrap, "group.id": f"test-{random.random()}", "enable.auto.commit": False, "fetch.wait.max.ms": 10})
    c.assign([TopicPartition(PREFIX + "models", 0, c.get_watermark_offsets(TopicPartition(PREFIX + "models", 0), 30)[1])])
    tid = p.submit(manifest_text, folder)
    owner = p.dir / "state/jobs" / tid / "gen-1/learner-1/supervisor.json"
    until(owner.exists, 60, "a supervisor", step=0.01)
    while (m := c.poll(60 * PATIENCE)) is None or m.error():
        check(m is None, f"reading models: {m and m.error()}")
    pid = json.loads(owner.read_text())["pid"]
    os.kill(pid, signal.SIGSTOP)
    c.close()
    check(not (owner.parent / "exit.json").exists(), "the supervisor was done before it could be frozen")
    return tid, pid


def asked_to_end(p, tid, how):
    p.cli(how, tid)
    until((p.dir / "state/jobs" / tid / "gen-1/learner-1/stop.json").exists, 60, "the stop reaches the run", step=0.02)
    time.sleep(0.5)  # its signal follows at once


def halted_in_the_middle(p, s):
    """What happened wins: its model is registered, so the job is complete, whatever was asked for and whoever is killed meanwhile."""
    d, producer = model_code(p), p.producer()
    maker = "mkdir -p $RESULT_DIR/model && cp m.onnx $RESULT_DIR/model/model.onnx"
    p.wait_state(p.submit(manifest("first", maker, extra="penstock: {model: {name: first}}\n"), d), "COMPLETED")  # there is a topic
    for n in range(30000):  # reading back takes a while
        producer.produce(PREFIX + "models", json.dumps({"name": "first", "version": 1, "type": "ALIAS_SET", "alias": f"a{n % 50}", "actor": "test", "time": n}), key="first")
    check(producer.flush(60) == 0, "the models' topic is filled")
    for how in ("halt", "terminate", "halt, killed", "killed"):
        tid, pid = caught_registering(p, manifest("caught", maker, extra="penstock: {model: {name: caught}}\n"), d)
        if how != "killed":
            asked_to_end(p, tid, how.split(",")[0])
        os.kill(pid, signal.SIGKILL if "killed" in how else signal.SIGCONT)
        end = p.wait_state(tid, *ENDED, timeout=90)
        has = versions(p, tid)
        check(len(has) == 1 and end["state"] == "COMPLETED" and end["generation"] == 1, f"{how}: {len(has)} versions; the job is {end['state']}: {end['reason']}")
        check(end["model"] and end["model"]["version"] == has[0]["version"], f"{how}: the job names {end['model']}")
    print("asked to end, and killed, between publishing a model and reading it back: complete each time, with one version")


def halted_while_it_registers(p, s):
    d, ends = model_code(p), {}
    for n in range(8):
        tid = p.submit(manifest("maker", "sleep 0.7; mkdir -p $RESULT_DIR/model && cp m.onnx $RESULT_DIR/model/model.onnx", extra=f"penstock: {{model: {{name: m{n}}}}}\n"), d)
        until(lambda: p.show(tid)["state"] in ("PROCESSING", "STORING", *ENDED), 40, "start", step=0.02)
        time.sleep(random.uniform(0, 1.2))
        p.cli("halt", tid, ok=False)
        if n % 2:
            s.kill_trainer()
        ends[tid] = p.wait_state(tid, *ENDED, timeout=90)
    time.sleep(2)
    events, models = p.events("jobs.events"), p.events("models")
    for tid, end in ends.items():
        said = [e["type"] for e in events if e["training_id"] == tid and e["type"] in ENDED]
        check(len(said) == 1 and said[0] == end["state"], f"{tid} ended as {said}, its state is {end['state']}")
        check([e["seq"] for e in events if e["training_id"] == tid] == list(range(1, 1 + sum(e["training_id"] == tid for e in events))), "gaps in the numbers")
        has = [m for m in models if m.get("training_id") == tid and m["type"] == "VERSION_REGISTERED"]
        check(len(has) == (end["state"] == "COMPLETED"), f"{tid} is {end['state']} with {len(has)} versions")
    print("halted while they registered:", sorted(e["state"] for e in ends.values()))


def finds_no_node(p):
    tid = p.submit(manifest("canary", "true"))
    state = p.wait_state(tid, "QUEUED", "PENDING", "DEPLOYING", "PROCESSING", *ENDED)
    p.cli("terminate", tid)
    return state["state"] == "QUEUED" and not state["node"]


def left(p, ids):
    rows = {r["training_id"]: r for r in map(json.loads, p.cli("list", "--limit", "9000", "--json").stdout.splitlines())}
    return [(t, rows[t]["state"], rows[t].get("reason")) if t in rows else t for t in ids if t not in rows or rows[t]["state"] != "TERMINATED"]


def many_ended(p, s):
    producer, ids = p.producer(), []
    s.lcm.terminate()
    s.lcm.wait(30)
    # A job that is deployed to a node that is gone waits for it. The Trainer hears of the end later than we do: it knows when a job finds no node.
    until(lambda: finds_no_node(p), 60, "the Trainer does not hear that the LCM has ended", step=1)
    begin = time.monotonic()
    for n in range(2000):
        rid = f"many{n}"
        producer.produce(PREFIX + "jobs.requests", json.dumps({"request_id": rid, "action": "SUBMIT", "user": USER, "manifest": manifest("many", "true")}), key=rid)
        ids.append(training_id(rid))
    check(producer.flush(30) == 0, "2,000 submissions are acknowledged")
    for tid in ids:
        producer.produce(PREFIX + "jobs.requests", json.dumps({"request_id": "t" + tid, "action": "TERMINATE", "user": USER, "training_id": tid}), key=tid)
    check(producer.flush(30) == 0, "2,000 terminations are acknowledged")
    until(lambda: not left(p, ids), 180, lambda: f"of 2,000 jobs these do not end: {left(p, ids)[:5]}", step=2)
    took = time.monotonic() - begin
    s.kill_trainer()
    s.lcm = service(p, LCM)
    begin = time.monotonic()
    tid = p.submit(manifest("after", "echo hi"))
    p.wait_state(tid, "COMPLETED", timeout=90)
    back = time.monotonic() - begin
    cpu = lambda w: sum(map(int, Path(f"/proc/{w.pid}/stat").read_text().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    rss = lambda w: int(next(l for l in Path(f"/proc/{w.pid}/status").read_text().splitlines() if l.startswith("VmRSS")).split()[1]) // 1024
    a = [cpu(s.trainer), cpu(s.lcm)]
    time.sleep(10)
    b = [cpu(s.trainer), cpu(s.lcm)]
    share = [(y - x) * 10 for x, y in zip(a, b)]
    print(f"2,000 ended jobs in {took:.0f} s; restart of both until a new job has run {back:.1f} s; idle {share[0]:.1f} % and {share[1]:.1f} % of a core, "
          f"{rss(s.trainer)} and {rss(s.lcm)} MiB")
    check(back < 60 * PATIENCE and max(share) < 15 and max(rss(s.trainer), rss(s.lcm)) < 300, "too slow or too large")


with Platform(without="trainer,lcm") as p:
    s = Services(p)
    for test in (secrets_in_commands, sweep, retention_beside_resume, before_its_submission, halted_in_the_middle, halted_while_it_registers, many_ended):
        if len(sys.argv) < 2 or test.__name__ in sys.argv[1:]:
            test(p, s)
print("ok: jobs over time")
