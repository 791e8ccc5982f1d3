"""What is said of jobs that wait, on a real Kafka, by verbs and by the gateway: held by its manifest and by a user, released, given another priority, waiting
for other jobs, all of it across a Trainer that is killed; what is refused, and how it is said."""
import signal
from kit import *


def manifest(name, own, command="echo hi"):
    return f"name: {name}\ncpus: 0.1\nframework: {{name: custom, version: 1, command: {command}}}\npenstock: {own}\n"


def ask(p, *args, status=0, says=""):
    r = p.cli(*args, ok=False)
    check(r.returncode == status and says in r.stderr, f"penstock {' '.join(map(str, args))}: exit status {r.returncode}, {r.stderr}")


def holding(p):
    held = p.submit(manifest("held", "{hold: true}"))
    free = p.submit(manifest("free", "{}"))
    p.wait_state(free, "COMPLETED")
    check(p.show(held)["state"] == "QUEUED", f"held: {p.show(held)}")
    why = p.cli("why", held).stdout
    check("holds it" in why and f"penstock release {held}" in why, f"why: {why}")
    ask(p, "reprioritise", held, "-5")
    check(p.show(held)["priority"] == -5, f"priority: {p.show(held)}")
    for n in ("high", "1000001", "", "1.5"):
        ask(p, "reprioritise", held, n, status=2, says="whole number")
    for pid in p.pids("trainer"):
        os.kill(pid, signal.SIGKILL)
    ask(p, "hold", held, status=1, says="held already")
    ask(p, "hold", free, status=1, says="COMPLETED")
    ask(p, "release", "training-nobody", status=4, says="no job")
    ask(p, "release", held, "--user", "mallory", status=6, says="not yours")
    check(p.show(held)["state"] == "QUEUED", f"after the Trainer was killed: {p.show(held)}")
    ask(p, "release", held, "--reason", "it is time")
    p.wait_state(held, "COMPLETED")
    said = [(e["type"], e["reason"]) for e in map(json.loads, p.cli("events", held, "--json").stdout.splitlines()) if e["type"] in ("RELEASED", "REPRIORITISED")]
    check([t for t, _ in said] == ["REPRIORITISED", "RELEASED"] and "it is time" in said[1][1], f"events: {said}")
    print("held by its manifest, across a killed Trainer; released")


def by_the_gateway(p):
    tid = p.submit(manifest("web", "{hold: true}"))
    code, body, _ = p.http(f"/v1/jobs/{tid}/reprioritise?priority=7", data=b"")
    check(code == 202, f"reprioritise: {code} {body}")
    until(lambda: p.show(tid)["priority"] == 7, 30, "its priority is 7")
    waits = p.submit(manifest("unheld", "{site: nowhere}"))
    for action, held in (("hold", True), ("release", False)):
        code, body, _ = p.http(f"/v1/jobs/{waits}/{action}", data=b"")
        check(code == 202, f"{action}: {code} {body}")
        until(lambda: bool(p.show(waits)["held_by"]) == held, 30, lambda: f"{action}: {p.show(waits)}")
    code, body, _ = p.http(f"/v1/jobs/{tid}/release", data=b"")
    check(code == 202, f"release: {code} {body}")
    p.wait_state(tid, "COMPLETED")
    p.cli("terminate", waits)
    print("the same by the gateway's routes")


def one_after_another(p):
    first = p.submit(manifest("first", "{hold: true}"))
    second = p.submit(manifest("second", f"{{after: [{first}]}}"))
    third = p.submit(manifest("third", f"{{after: {second}}}"))
    why = p.cli("why", second).stdout
    check(f"waits until {first} is COMPLETED" in why, f"why: {why}")
    for pid in p.pids("trainer"):
        os.kill(pid, signal.SIGKILL)
    ask(p, "release", first)
    ends = [p.wait_state(tid, "COMPLETED") for tid in (first, second, third)]
    check(all(a["ended_at"] <= b["started_at"] for a, b in zip(ends, ends[1:])), f"not one after another: {ends}")
    bad = p.submit(manifest("bad", "{}", "'exit 3'"))
    never = p.submit(manifest("never", f"{{after: [{first}, {bad}]}}"))
    end = p.wait_state(never, "FAILED")
    check(bad in end["reason"] and end["reason_code"] == "AFTER" and end["generation"] == 0, f"after a failure: {end}")
    path = p.dir / "nobody.yml"
    path.write_text(manifest("orphan", "{after: [training-nobody]}"))
    ask(p, "submit", path, status=10, says="no job has the id training-nobody")
    print("one after another, across a killed Trainer; one that waits for a failed job fails")


def refused(p):
    for value in ('"yes"', "1", "[true]", "ann"):
        path = p.dir / "bad.yml"
        path.write_text(manifest("bad", f"{{hold: {value}}}"))
        ask(p, "submit", path, "--dry-run", status=2, says="penstock.hold: must be true or false")
    for value in ("{a: b}", "[1]", "[[x]]", "''", "[" + "x" * 65 + "]", "[" + ", ".join(f"j{i}" for i in range(1001)) + "]"):
        path.write_text(manifest("bad", f"{{after: {value}}}"))
        ask(p, "submit", path, "--dry-run", status=2, says="penstock.after: must be")
    print("hold that is neither true nor false is refused")


with Platform() as p:
    for test in (holding, by_the_gateway, one_after_another, refused):
        if len(sys.argv) < 2 or test.__name__ in sys.argv[1:]:
            test(p)
print("ok: jobs that wait")
