"""Queues as objects, on a real Kafka: defined by the verb and by JSON text on the topic, refused where they are wrong or unknown, held to their quota and their limit
for each user, shared by weight, across a Trainer that is killed; deleted when nobody is in them."""
import signal
from kit import *


def manifest(name, queue, cpus=1, command="sleep 1", more=""):
    return f"name: {name}\ncpus: {cpus}\nmemory: 16 MiB\nframework: {{name: custom, version: 1, command: {json.dumps(command)}}}\npenstock: {{queue: {queue}{more}}}\n"


def ask(p, *args, status=0, says="", **more):
    r = p.cli(*args, ok=False, **more)
    check(r.returncode == status and says in r.stderr, f"penstock {' '.join(map(str, args))}: exit status {r.returncode}, {r.stderr}")
    return r


def queues(p):
    return {q["name"]: q for q in map(json.loads, p.cli("queues", "list", "--json").stdout.splitlines())}


def trainer(p):
    return p.spawn("trainer", "--cpus", "2", "--half-life", "10m", log="trainer.log")


def the_noun(p):
    check(list(queues(p)) == ["default"], f"only `default` at first: {queues(p)}")
    file = p.dir / "q.yml"
    file.write_text("name: nightly\nwieght: 3\n")
    ask(p, "queues", "apply", file, status=2, says=f"{file}:2: unknown key `wieght`; did you mean weight")
    file.write_text("name: nightly\n---\nname: two\nquota: {cpus: many}\n")
    ask(p, "queues", "apply", file, status=2, says=f"{file}:4: quota.cpus")
    check(list(queues(p)) == ["default"], "nothing of a wrong file is published")
    file.write_text("name: nightly\nweight: 3\nquota: {cpus: 1, memory: 2GiB}\n---\nname: each\nmax_running_per_user: 1\n")
    check(p.cli("queues", "apply", file).stdout == "nightly\neach\n", "apply prints the names")
    q = queues(p)["nightly"]
    check(q["weight"] == 3 and q["quota"] == {"cpus": 1, "memory": 2 << 30, "gpus": None} and q["preempts"] is False, f"list: {q}")
    shown = p.cli("queues", "show", "nightly").stdout
    check(p.cli("queues", "apply", "-", input=shown).stdout == "nightly\n", "what show prints can be applied")
    check("nightly" in p.cli("queues", "list").stdout, "the table has it")
    ask(p, "queues", "show", "nightyl", status=4, says="did you mean nightly?")
    k = p.producer()
    k.produce("penstock.queues", key="by-hand", value='{"name": "by-hand", "quota": {"cpus": 2, "memory": "1GiB"}, "max_running_per_user": 3}')
    for key, value in (("bad", "{"), ("bad", '{"name": "bad", "wieght": 1}'), ("bad", '{"name": "other"}'), ("bad", "text"), ("default", '{"name": "default", "weight": -1}')):
        k.produce("penstock.queues", key=key, value=value)
    k.flush(30)
    check(queues(p)["by-hand"]["quota"]["memory"] == 1 << 30 and "bad" not in queues(p) and queues(p)["default"]["weight"] == 1, f"by hand: {queues(p)}")
    print("defined by the verb and by hand; what is wrong is named, and changes nothing")


def refused(p):
    path = p.dir / "m.yml"
    path.write_text(manifest("lost", "nightyl"))
    ask(p, "submit", path, "--dry-run", status=2, says="m.yml:5: penstock.queue: there is no queue nightyl; did you mean nightly?")
    ask(p, "submit", path, status=10, says="there is no queue nightyl; did you mean nightly?")
    path.write_text(manifest("wide", "nightly", cpus=1.5))
    ask(p, "submit", path, status=10, says="queue nightly has 0 of its quota of 1 CPUs in use and the job needs 1.5")
    for i in range(3):  # a queue that was defined a moment ago is known to whoever submits next
        p.cli("queues", "apply", "-", input=f"name: fresh-{i}\n")
        p.wait_state(p.submit(manifest("fresh", f"fresh-{i}", 0.1, "true")), "COMPLETED")
        p.cli("queues", "delete", f"fresh-{i}")
    print("a queue that is not there is refused, one that is new is there at once")


def limits(p):
    first, second = p.submit(manifest("first", "nightly", command="sleep 100")), p.submit(manifest("second", "nightly", 0.5))
    p.wait_state(first, "PROCESSING")
    check("queue nightly has 1 of its quota of 1 CPUs in use and the job needs 0.5" in p.cli("why", second).stdout, p.cli("why", second).stdout)
    q = queues(p)["nightly"]
    check(q["running"] == 1 and q["waiting"] == 1 and q["used"]["cpus"] == 1, f"in use: {q}")
    ask(p, "queues", "delete", "nightly", status=1, says="queue nightly has 2 jobs that wait or run")
    ask(p, "queues", "delete", "default", status=1, says="default is always there")
    ask(p, "queues", "delete", "nobody", status=4, says="there is no queue nobody")
    mine, more = p.submit(manifest("mine", "each", 0.1, "sleep 100")), p.submit(manifest("more", "each", 0.1))
    theirs = p.submit(manifest("theirs", "each", 0.1, "true"), "--user", "bob")
    p.wait_state(theirs, "COMPLETED")
    check("lets 1 job of one user run" in p.show(more)["reason"], p.show(more)["reason"])
    for pid in [p.trainer.pid]:
        os.kill(pid, signal.SIGKILL)
    p.trainer = trainer(p)
    free = p.submit(manifest("free", "default", 0.1, "true"))
    p.wait_state(free, "COMPLETED")
    check(p.show(second)["state"] == p.show(more)["state"] == "QUEUED", "limits hold after the Trainer was killed")
    p.cli("queues", "apply", "-", input="name: nightly\nquota: {cpus: 2}\n")  # room without any other event
    p.wait_state(second, "COMPLETED")
    p.cli("terminate", first, "--wait")
    p.cli("terminate", mine, "--wait")
    p.wait_state(more, "COMPLETED")
    print("quota and limit for each user, across a Trainer that was killed; widened while jobs wait")


def by_the_gateway(p):
    code, body, _ = p.http("/v1/queues/web", data=b'{"weight": 2, "quota": {"memory": "1GiB"}}', method="PUT", headers={"Content-Type": "application/json"})
    check(code == 200 and json.loads(body)["quota"]["memory"] == 1 << 30, f"PUT: {code} {body}")
    code, body, _ = p.http("/v1/queues/yaml", data=b"name: yaml\npreempts: true\n", method="PUT", headers={"Content-Type": "application/yaml"})
    check(code == 200 and json.loads(body)["preempts"] is True, f"PUT of YAML: {code} {body}")
    for bad in (b'{"wieght": 2}', b'{"name": "other"}', b"- a", b"", b"name: web\n---\nname: two\n", b'{"weight": -1}'):
        code, body, _ = p.http("/v1/queues/web", data=bad, method="PUT", headers={"Content-Type": "application/yaml"})
        check(code == 400, f"PUT {bad}: {code} {body}")
    code, body, _ = p.http("/v1/queues")
    there = {q["name"]: q for q in json.loads(body)["queues"]}
    check(code == 200 and there["web"]["weight"] == 2 and "default" in there and there["web"]["running"] == 0, f"GET: {code} {body}")
    check(p.http("/v1/queues/web")[0] == 200 and p.http("/v1/queues/nobody")[0] == 404, "GET of one")
    tid = p.submit(manifest("web", "web", 0.1, "sleep 100"))
    p.wait_state(tid, "PROCESSING")
    code, body, _ = p.http("/v1/queues/web", method="DELETE")
    check(code == 409 and tid.encode() in (body if isinstance(body, bytes) else body.encode()), f"DELETE while a job runs: {code} {body}")
    p.cli("terminate", tid, "--wait")
    check(p.http("/v1/queues/web", method="DELETE")[0] == 204 and p.http("/v1/queues/web")[0] == 404, "DELETE")
    check(p.http("/v1/queues/web", method="DELETE")[0] == 404 and p.http("/v1/queues/default", method="DELETE")[0] == 409, "DELETE of none, of default")
    print("the same by the gateway's routes")


def preempts(p):
    p.cli("queues", "apply", "-", input="name: urgent\npreempts: true\n")
    command = 'trap "echo saved > $CHECKPOINT_DIR/at; exit 0" TERM; [ -f $CHECKPOINT_DIR/at ] && exit 0; echo began; while :; do sleep 0.1; done'
    moved = p.submit(manifest("moved", "default", 2, command))
    until(lambda: "began" in p.cli("logs", moved).stdout, 60, "its trap is set")
    urgent = p.submit(manifest("urgent", "urgent", 2, "sleep 2"))
    for pid in [p.trainer.pid]:  # in the middle
        os.kill(pid, signal.SIGKILL)
    p.trainer = trainer(p)
    end = p.wait_state(urgent, "COMPLETED")
    back = p.wait_state(moved, "COMPLETED")
    types = [json.loads(line)["type"] for line in p.cli("events", moved, "--json").stdout.splitlines()]
    check(types.count("PREEMPTED") == 1 and back["generation"] == 2 and back["attempts"] == back["platform_attempts"] == 0, f"moved: {types} {back}")
    check(end["ended_at"] <= back["started_at"], "it went on once the other had ended")
    print("moved for a queue that preempts, across a Trainer that was killed; went on from its checkpoint, at no cost of a retry")


def shares(p):
    """Two places; jobs of half a second: a has three times what b has."""
    p.cli("queues", "apply", "-", input="name: a\nweight: 3\n---\nname: b\nweight: 1\n")
    tids = {p.submit(manifest(f"{q}{i}", q, 1, "sleep 0.5"), None, "--no-wait"): q for i in range(16) for q in "ab"}
    until(lambda: sum(p.show(t)["state"] == "COMPLETED" for t, q in tids.items() if q == "a") >= 12, 120, "a's are done", step=1)
    done = {q: [p.show(t) for t, of in tids.items() if of == q] for q in "ab"}
    begun = sorted((s["started_at"], q) for q, all in done.items() for s in all if s["started_at"])[:16]
    had = sum(q == "a" for _, q in begun)
    check(10 <= had <= 14, f"of the first 16, 12 were to be a's: {had}, {begun}")
    p.cli("terminate", "--name", "*", "--queue", "a", "--yes", ok=False)
    p.cli("terminate", "--name", "*", "--queue", "b", "--yes", ok=False)
    print(f"shared by weight: {had} of 16")


with Platform(without="trainer") as p:
    p.trainer = trainer(p)
    for test in (the_noun, refused, limits, by_the_gateway, preempts, shares):
        if len(sys.argv) < 2 or test.__name__ in sys.argv[1:]:
            began = time.monotonic()
            test(p)
            print(f"  {time.monotonic() - began:.1f} s", flush=True)
print("ok: queues")
