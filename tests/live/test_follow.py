"""Following one job: an id and a trace that came with an HTTP request are found in the log of every service and in the headers of every topic on the way,
up to the score of a record by the model that the job made; another job that only waited in the queue does not get them; a restart forgets neither."""
import re
from kit import *

TRACE = "%032x" % random.getrandbits(128)
CALLER = "%016x" % random.getrandbits(64)
OTHER = "%032x" % random.getrandbits(128)
PARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def native(name, topic):
    return (f"name: {name}\ncpus: 0.3\nmemory: 128 MiB\nlearners: 1\ndata_stores:\n  - {{id: d, type: topic, training_data: {{container: {topic}}}}}\n"
            f"framework: {{name: native}}\npenstock:\n  model: {{name: {name}}}\n  learner: {{model: autoencoder, features: [x, y], hidden: [2], epochs: 1, seed: 1}}\n")


def parents(p, topic, of, timeout=60):
    """The traceparent of every record of a topic that `of` accepts (value, decoded, and key), in order."""
    found = []
    for m in p.read(topic, timeout=timeout):
        if of(p.decode(m.value()) or {}, (m.key() or b"").decode()):
            found.append(next((v.decode() for k, v in m.headers() or [] if k == "traceparent"), None))
    return found


def check_trace(what, found, trace):
    """All of this trace, each a step of its own, none the caller's."""
    got = [PARENT.fullmatch(f or "") for f in found]
    check(found and all(got) and {g[1] for g in got} == {trace}, f"{what}: {found} instead of {trace}")
    check(all(g[2] != CALLER and g[3] == "01" for g in got), f"{what}: {found}")


def lines(p, path, word):
    return [l for l in path.read_text(errors="replace").splitlines() if word in l]


began = time.time()
with Platform() as p:
    # A replay takes records in the order of their timestamps; so that the Trainer does as well, its first job comes when it has long heard the node.
    until(lambda: any(json.loads(l)["state"] == "ready" for l in p.cli("nodes", "--json", ok=False).stdout.splitlines()), 60, "a node is ready")
    time.sleep(2)
    p.create("points")
    pr = p.producer()
    for i in range(64):
        pr.produce("points", json.dumps({"x": i % 7, "y": (i * 3) % 5}).encode())
    check(pr.flush(30) == 0, "written")

    # --- from the request to the model ---------------------------------------------------------------------------------------------
    given = f"00-{TRACE}-{CALLER}-01"
    code, body, headers = p.http("/v1/jobs", data=native("followed", "points").encode(), headers={"traceparent": given})
    check(code == 202, f"submitted: {code} {body}")
    tid = json.loads(body)["training_id"]
    answer = next((v for k, v in headers.items() if k.lower() == "traceresponse"), "")
    check_trace("the answer", [answer], TRACE)
    job = p.wait_state(tid, *ENDED)
    check(job["state"] == "COMPLETED", f"{tid}: {job}")

    mine = lambda e, key: key == tid
    check_trace("jobs.requests", parents(p, PREFIX + "jobs.requests", mine), TRACE)
    check_trace("jobs.events", parents(p, PREFIX + "jobs.events", mine), TRACE)
    check_trace("jobs.state", parents(p, PREFIX + "jobs.state", mine), TRACE)
    check_trace("jobs.commands", parents(p, PREFIX + "jobs.commands", mine), TRACE)
    reports = until(lambda: (r := parents(p, PREFIX + "jobs.reports", mine)) and len(r) >= 4 and r, 30, "reports of LCM and supervisor")
    check_trace("jobs.reports", reports, TRACE)
    check_trace("models", parents(p, PREFIX + "models", lambda e, key: key == "followed"), TRACE)

    # --- one id in every log ---------------------------------------------------------------------------------------------------------
    log = p.dir / "state/log"
    run = p.dir / f"state/jobs/{tid}/gen-1/learner-1"
    for name in ("gateway", "trainer", "lcm"):
        check(any(f"training_id={tid}" in l for l in lines(p, log / f"{name}.log", tid)), f"{name}.log says nothing of {tid}")
    check(any(TRACE in l for l in lines(p, log / "gateway.log", tid)), "the gateway's line names the trace")
    said = (run / "supervisor.log").read_text().splitlines()
    check(said and all(f"training_id={tid}" in l for l in said), f"supervisor.log: {said}")
    output = [json.loads(l) for l in p.cli("logs", tid, "--json").stdout.splitlines()]
    check(output and {l["training_id"] for l in output} == {tid}, f"the learner's lines: {output[:3]}")
    for l in lines(p, log / "trainer.log", "event=job"):
        check("training_id=training-" in l, l)

    # --- threads have names ------------------------------------------------------------------------------------------------------------
    for name, one in (("trainer", "view"), ("gateway", "gateway-feed"), ("registry", "schemas-reader"), ("lcm", "rdk:main")):
        pid = p.pids(name)[0]
        names = {t.name: (t / "comm").read_text().strip() for t in Path(f"/proc/{pid}/task").iterdir()}
        check(one in names.values() and [n for t, n in names.items() if n == names[str(pid)]] == [names[str(pid)]], f"threads of {name}: {names}")

    # --- a user's command goes on with it; one that waits for its turn keeps its own; a halt has one, too --------------------------------
    sees = p.dir / "sees"
    code, body, _ = p.http("/v1/jobs", data=manifest("own", f"echo $TRACEPARENT > {sees}; sleep 600").encode(), headers={"traceparent": given})
    own = json.loads(body)["training_id"]
    p.wait_state(own, "PROCESSING")
    until(lambda: sees.exists() and sees.read_text().strip(), 20, "the command has written")
    check_trace("TRACEPARENT of a command", [sees.read_text().strip()], TRACE)
    code, body, _ = p.http(f"/v1/jobs/{own}/halt", data=b"", headers={"traceparent": f"00-{OTHER}-{CALLER}-01"})
    check(code == 202, f"halt: {code} {body}")
    p.wait_state(own, "HALTED")
    asked = [PARENT.fullmatch(t)[1] for t in parents(p, PREFIX + "jobs.events", lambda e, key: key == own and e["type"] in ("HALTING", "HALTED"))]
    check(asked and asked[0] == OTHER, f"the answer to the halt: {asked}")
    check_trace("state of the halted job", parents(p, PREFIX + "jobs.state", lambda e, key: key == own), TRACE)

    # --- what the caller may not say is not passed on; nothing said is a new one ----------------------------------------------------------
    for wrong in ("00-" + "0" * 32 + f"-{CALLER}-01", "nonsense", f"00-{TRACE.upper()}-{CALLER}-01" if TRACE.upper() != TRACE else "x", None):
        code, body, headers = p.http("/v1/jobs", data=manifest("fresh", "true").encode(), headers={"traceparent": wrong} if wrong else {})
        fresh = next((v for k, v in headers.items() if k.lower() == "traceresponse"), "")
        check(code == 202 and PARENT.fullmatch(fresh) and TRACE not in fresh, f"{wrong}: {code} {fresh}")
        p.wait_state(json.loads(body)["training_id"], "COMPLETED")
    by_cli = p.cli("submit", "-", "--wait", input=manifest("by-cli", "true")).stdout.strip()
    mine = lambda e, key: key == by_cli
    first = parents(p, PREFIX + "jobs.requests", mine)
    check_trace("submit makes one", first + parents(p, PREFIX + "jobs.events", mine), PARENT.fullmatch(first[0])[1])
    p.env["TRACEPARENT"] = given
    by_env = p.cli("submit", "-", "--wait", input=manifest("by-env", "true")).stdout.strip()
    del p.env["TRACEPARENT"]
    check_trace("submit takes that of its environment", parents(p, PREFIX + "jobs.events", lambda e, key: key == by_env), TRACE)

    # --- a Trainer that starts anew knows whose trace is whose ---------------------------------------------------------------------------
    before = p.pids("trainer")
    os.kill(before[0], signal.SIGKILL)
    until(lambda: p.pids("trainer") not in ([], before), 30, "the Trainer is back")
    check(not [f for f in os.listdir("/dev/shm") if str(before[0]) in f and (Path("/dev/shm") / f).stat().st_mtime > began], "a killed Trainer leaves shared memory")
    p.cli("resume", own)
    p.wait_state(own, "PROCESSING", timeout=120)
    check_trace("state after a restart", parents(p, PREFIX + "jobs.state", lambda e, key: key == own), TRACE)
    deploys = parents(p, PREFIX + "jobs.commands", lambda e, key: key == own and e["command"] == "DEPLOY")
    check(len(deploys) == 2 and all(PARENT.fullmatch(d or "") for d in deploys), f"DEPLOYs: {deploys}")
    p.cli("terminate", "--wait", own)

    # --- all of it once more, at a desk: the same decisions, from the topics and from lines of them, and nothing is written -------------------
    said = ("jobs.requests", "jobs.reports", "jobs.commands", "jobs.events", "jobs.state")
    ends = lambda: {t: len(p.read(PREFIX + t)) for t in said}
    before = ends()
    r = p.cli("trainer", "replay", ok=False)
    last = r.stdout.strip().splitlines()[-1]
    check(r.returncode == 0 and f"{before['jobs.events']} events as recorded, 0 different" in last,
          f"trainer replay: exit {r.returncode}, {before['jobs.events']} events: {r.stdout[-3000:]} {r.stderr[-300:]}")
    then = p.dir / "then.jsonl"
    then.write_text("".join(p.cli("cat", "-t", PREFIX + t, "-e", "-J").stdout for t in (*said[:4], "workers")))
    r = p.cli("trainer", "replay", then, "--job", own)
    mine = parents(p, PREFIX + "jobs.events", lambda e, key: key == own)
    check(f" {len(mine)} events as recorded, 0 different" in r.stdout and r.stdout.count(f"= {own} ") == len(mine) and tid not in r.stdout, f"of a file: {r.stdout}")
    check(ends() == before, f"replay has written: {before} {ends()}")

    # --- and to the score --------------------------------------------------------------------------------------------------------------
    p.create("live")
    p.create("live.scores")
    pipeline = p.dir / "pipeline.yml"
    pipeline.write_text("name: followed\ninput: {topics: [live], group: followed, start: earliest, format: json}\nmodel: {name: followed, version: 1}\n"
                        "output: {topic: live.scores}\nscore: {type: reconstruction_error, threshold: 0.5}\nguarantee: exactly_once\n"
                        "errors: {tolerance: all, dead_letter: {topic: live.dlq}}\n")
    span = f"00-{TRACE}-{'%016x' % random.getrandbits(64)}-01"
    pr.produce("live", json.dumps({"x": 1, "y": 2}).encode(), headers={"traceparent": span})
    pr.produce("live", b"no json", headers={"traceparent": span})
    pr.produce("live", json.dumps({"x": 1, "y": 2}).encode())
    check(pr.flush(30) == 0, "written")
    r = p.cli("score", "run", "-c", pipeline, "--exit-on-eof", "--max-records", 3, ok=False)
    check(any("event=model_ready" in l and l.endswith(f" training_id={tid}") for l in r.stderr.splitlines()), f"the scorer names the job of its model: {r.stderr}")
    trace_of = lambda m: next((v.decode() for k, v in m.headers() or [] if k == "traceparent"), None)
    scores = p.read("live.scores", lambda ms: len(ms) == 2)
    check([trace_of(m) for m in scores] == [span, None], f"headers of the scores: {[m.headers() for m in scores]}")
    check(p.decode(scores[0].value())["model"]["digest"] == job["model"]["digest"], "scored by the model of the job")
    dead = p.read("live.dlq", lambda ms: len(ms) == 1)
    check(trace_of(dead[0]) == span, f"headers of the dead letter: {dead[0].headers()}")
print("ok: one job is followed")
