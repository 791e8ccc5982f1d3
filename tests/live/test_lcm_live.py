"""The LCM and its supervisors on a real Kafka: kill -9 of each, adoption, a standby, force where a supervisor hangs, lost run directories, a stop of
the platform while the broker is away and what is told afterwards, topic data, models, floods."""
import contextlib, hashlib, random, signal
from kit import *


def reports(p, tid):
    return [r for r in p.events("jobs.reports") if r["training_id"] == tid]


def supervisor_of(p, tid):
    return [pid for pid, command in p.processes(" supervise ") if tid in command]


def lines(p, tid):
    return [l for l in p.events("logs") if l["training_id"] == tid]


def kill_supervisor(p):
    """The learner dies with it, what it left is ended, the job is tried again and completes."""
    marks = p.dir / "lost"
    tid = p.submit(manifest("lost", f"echo start $PENSTOCK_GENERATION $$ >> {marks}; setsid sleep 300 & echo child $! >> {marks}; "
                            "[ $PENSTOCK_GENERATION -gt 1 ] && { kill $!; exit 0; }; sleep 300"))
    p.wait_state(tid, "PROCESSING")
    until(lambda: marks.exists() and "child" in marks.read_text(), 20, "the learner did not start")
    pids = [int(l.split()[-1]) for l in marks.read_text().splitlines()]
    os.kill(supervisor_of(p, tid)[-1], signal.SIGKILL)
    until(lambda: not any(alive(x) for x in pids), 10, f"of {pids} some live on without a supervisor")
    p.wait_state(tid, "COMPLETED")
    check(any(r["type"] == "LOST" and r["process"] == "learner-1" and r["generation"] == 1 for r in reports(p, tid)), "no LOST report")
    print("supervisor killed: swept, told, tried again")


def killed_above_a_daemon(p):
    """What left its session, its environment and its folder ends with the generation: whether the supervisor was killed, or it and its keeper."""
    for victims in (slice(-1, None), slice(0, 1), slice(0, None)):
        a, b = (f"88{i}{random.randrange(10**6):06d}" for i in (1, 2))
        mine = lambda n: [pid for pid, c in p.everything() if c.endswith(f"sleep {n}") and len(c.split()) == 2 and alive(pid)]
        tid = p.submit(manifest("daemon", f"(cd /; setsid env -i $(command -v sleep) {a} &); sleep {b}"))
        p.wait_state(tid, "PROCESSING")
        until(lambda: mine(a) and mine(b), 20, "the learner and its daemon did not start")
        old = mine(a) + mine(b)
        for pid in supervisor_of(p, tid)[victims]:
            with contextlib.suppress(ProcessLookupError):  # a supervisor ends with its keeper
                os.kill(pid, signal.SIGKILL)
        until(lambda: p.show(tid).get("generation") == 2 and set(mine(b)) - set(old), 45, lambda: f"no second generation: {p.show(tid)}")
        check(not [x for x in old if alive(x)], f"of the first generation {old} some live beside the second")
        p.cli("terminate", tid)
        p.wait_state(tid, "TERMINATED")
        until(lambda: not mine(a) and not mine(b), 5, "something is left after terminate")
    print("a killed supervisor, keeper, both: nothing is left beside the next generation")


def kill_lcm(p):
    """Learners go on and are adopted within 5 s; a job whose start was interrupted starts once."""
    marks = p.dir / "adopt"
    tid = p.submit(manifest("adopt", f"echo $$ >> {marks}; sleep 300"))
    p.wait_state(tid, "PROCESSING")
    until(marks.exists, 10, "the learner did not start")
    learner, lcm = int(marks.read_text()), p.pids("lcm")[0]
    os.kill(lcm, signal.SIGKILL)
    since = time.monotonic()
    until(lambda: [x for x in p.pids("lcm") if x != lcm], 10, "the LCM was not started again")
    p.cli("halt", tid)
    p.wait_state(tid, "HALTED", timeout=20)
    check(time.monotonic() - since < 15 * PATIENCE, f"it took {time.monotonic() - since:.1f} s until the adopted learner was halted")
    check(not alive(learner) and len(marks.read_text().split()) == 1, f"started twice, or not ended: {marks.read_text()}")
    print(f"LCM killed: adopted and halted within {time.monotonic() - since:.1f} s")


def standby(p):
    w = p.spawn("lcm", log="standby.log")
    until(lambda: "standby" in (p.dir / "standby.log").read_text(), 10, "a second LCM does not say that it waits")
    w.terminate()
    check(w.wait(10) == 0, f"the standby ended with {w.returncode}")
    print("a second LCM waits and says so")


def hanging_supervisor(p):
    tid = p.submit(manifest("hang", "sleep 300", extra="penstock: {grace: 1s}\n"))
    p.wait_state(tid, "PROCESSING")
    keeper, pid = supervisor_of(p, tid)
    log = next((p.dir / "state/jobs" / tid).glob("gen-1/learner-1/supervisor.log"))
    for asked in (pid, keeper):  # who asks the process above it is answered as well
        before = log.read_text().count("event=state at=/")
        os.kill(asked, signal.SIGUSR1)
        until(lambda: log.read_text().count("event=state at=/") > before, 20, f"SIGUSR1 to {asked} leaves nothing in {log}")
        told, _ = json.JSONDecoder().raw_decode([l for l in log.read_text().splitlines() if "event=state at=/" in l][-1].partition(" json=")[2])
        check((told["training_id"], told["pid"], told["phase"], alive(told["learner"]["pid"])) == (tid, pid, "RUNNING", True), f"told at SIGUSR1: {told}")
    os.kill(pid, signal.SIGSTOP)
    p.cli("terminate", tid)
    end = p.wait_state(tid, "TERMINATED", timeout=40)
    check(not alive(pid) and not [x for x, c in p.processes() if tid in c], "something of it lives")
    print("a supervisor that hangs is ended by force:", end["reason"])


def lost_run_dir(p):
    """A job of this site without its folders (a wiped disk) is told lost and tried again, not left standing."""
    tid = p.submit(manifest("wiped", "[ $PENSTOCK_GENERATION -gt 1 ] || sleep 300"))
    p.wait_state(tid, "PROCESSING")
    supervisor, lcm = supervisor_of(p, tid)[-1], p.pids("lcm")[0]
    os.kill(lcm, signal.SIGSTOP)
    shutil.rmtree(p.dir / "state/jobs" / tid)
    for pid in [supervisor, *(x for x, c in p.processes("sleep 300"))]:
        with contextlib.suppress(ProcessLookupError):  # a PID namespace ends with its supervisor
            os.kill(pid, signal.SIGKILL)
    os.kill(lcm, signal.SIGKILL)
    p.wait_state(tid, "COMPLETED", timeout=40)
    print("lost run directories: told, tried again")


def flood(p):
    tid = p.submit(manifest("flood", "i=0; while [ $i -lt 300000 ]; do echo $i; i=$((i+1)); done; sleep 0.5; echo the end"))
    p.wait_state(tid, "COMPLETED", timeout=90)
    got = lines(p, tid)
    check([l["rindex"] for l in got] == list(range(len(got))), "numbers of log lines have gaps")
    told, lost = sum(l["stream"] == "STDOUT" for l in got), sum(l["gap"]["lines"] for l in got if l["gap"])
    check(told + lost == 300001 and got[-1]["text"] == "the end", f"{told} told + {lost} left out is not 300001; last {got[-1]['text']!r}")
    print(f"flood: {told} lines told, {lost} left out and counted")


def topic_data(p):
    p.create("numbers", 2)
    sid = p.register("numbers-value", {"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}]})
    p.schema(sid)
    producer = p.producer()
    for n in range(500):
        producer.produce("numbers", p.encode(sid, {"n": n}), key=str(n))
    producer.produce("numbers", b"\x00\x00\x00\x00\x63bad")
    producer.flush(20)
    tid = p.submit(manifest("data", "wc -l < $DATA_DIR/numbers.jsonl; sort $DATA_DIR/numbers.jsonl | head -1",
                            extra="data_stores:\n  - {id: n, type: topic, topic: numbers}\n"))
    p.wait_state(tid, "COMPLETED")
    texts = [l["text"].strip() for l in lines(p, tid)]
    check("500" in texts and '{"n":0}' in texts, f"topic data: {texts}")
    check(any("left out: 1 record" in t for t in texts), f"the bad record is not mentioned: {texts}")
    print("topic data: 500 records as JSON lines, the bad one mentioned")


def models(p):
    import numpy as np, onnx
    from onnx import helper, TensorProto, numpy_helper
    g = helper.make_graph([helper.make_node("MatMul", ["in", "w"], ["out"])], "g", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", 1])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 1])], [numpy_helper.from_array(np.array([[2.0]], dtype=np.float32), "w")])
    code = p.dir / "model-code"
    code.mkdir()
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), code / "m.onnx")
    (code / "m.json").write_text(json.dumps({"features": ["x"], "metrics": {"loss": 0.25}, "own": 1}))
    tid = p.submit(manifest("maker", "mkdir -p $RESULT_DIR/model && cp m.onnx $RESULT_DIR/model/model.onnx && cp m.json $RESULT_DIR/model/model.json",
                            extra="penstock: {model: {name: doubler, alias: champion}}\n"), code)
    end = p.wait_state(tid, "COMPLETED")
    digest = hashlib.sha256((code / "m.onnx").read_bytes()).hexdigest()
    versions = [m for m in p.events("models") if m["name"] == "doubler"]
    new = [m for m in versions if m["type"] == "VERSION_REGISTERED"]
    check(len(new) == 1 and new[0]["digest"] == digest and new[0]["training_id"] == tid and new[0]["features"] == ["x"] and new[0]["metrics"] == {"loss": 0.25},
          f"model events: {versions}")
    check(any(m["type"] == "ALIAS_SET" and m["alias"] == "champion" and m["version"] == 1 for m in versions), f"no alias: {versions}")
    check(end["model"]["name"] == "doubler" and end["model"]["version"] == 1, f"the job's state names {end['model']}")
    (code / "m.onnx").write_bytes(b"not a model")
    bad = p.submit(manifest("broken", "mkdir -p $RESULT_DIR/model && cp m.onnx $RESULT_DIR/model/model.onnx"), code)
    end = p.wait_state(bad, *ENDED)
    check(end["state"] == "FAILED" and end["reason_code"] == "S303", f"a broken model: {end['state']} {end['reason_code']} {end['reason']}")
    print("models: registered with digest, features, alias; a broken one fails the job:", end["reason"][:100])


def down_while_the_broker_is_away(p):
    """Everything that runs ends; what could not be told is on disk, and the next start tells it: log lines without a gap, then the end."""
    tid = p.submit(manifest("offline", 'i=0; while :; do i=$((i+1)); echo "n $i"; sleep 0.02; done', extra="penstock: {grace: 1s}\n"))
    p.wait_state(tid, "PROCESSING")
    time.sleep(1)
    p.kafka("kill", "1")
    time.sleep(4)
    p.cli("down", ok=False, timeout=120)
    left = p.processes()
    check(not left, f"down left {left}")
    p.kafka("start", "1")
    p.up()
    until(lambda: p.show(tid).get("generation") == 2 and p.show(tid)["state"] == "PROCESSING", 60, lambda: f"the job does not go on: {p.show(tid)}")
    end = [r for r in reports(p, tid) if r["type"] == "EXITED" and r["generation"] == 1]
    check(len(end) == 1 and end[0]["reason_code"] == "PLATFORM_DOWN", f"its end was told as {end}")
    got = [l for l in lines(p, tid) if l["generation"] == 1]
    check([l["rindex"] for l in got] == list(range(len(got))), f"numbers of log lines have gaps: {[l['rindex'] for l in got][-5:]}")
    numbers = [int(l["text"][2:]) for l in got if l["text"].startswith("n ")]
    check(numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 20, f"{len(numbers)} lines, last {numbers[-3:]}")
    p.cli("terminate", tid)
    p.wait_state(tid, "TERMINATED")
    print(f"down without a broker: {len(numbers)} lines and the end were told at the next start; {end[0]['reason']}")


with Platform() as p:
    for test in (standby, kill_supervisor, killed_above_a_daemon, kill_lcm, hanging_supervisor, lost_run_dir, flood, topic_data, models, down_while_the_broker_is_away):
        if len(sys.argv) < 2 or test.__name__ in sys.argv[1:]:
            test(p)
    p.cli("down", timeout=120)
    left = p.processes()
    check(not left, f"down left {left}")
print("ok: the LCM and its supervisors")
