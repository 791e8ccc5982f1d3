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


def many_at_once(p):
    mine = [p.submit(manifest(f"night-{i}", "{hold: true}")) for i in range(5)]
    day = p.submit(manifest("day", "{hold: true}"))
    theirs = p.submit(manifest("night-x", "{hold: true}"), "--user", "somebody")
    states = lambda: {tid: p.show(tid)["state"] for tid in mine + [day, theirs]}
    ask(p, "terminate", status=2, says="which job?")
    ask(p, "terminate", "--queue", "", status=2, says="--queue is empty")
    ask(p, "terminate", day, "--name", "night-*", status=2, says="not both")
    ask(p, "terminate", "--name", "nothing-*", status=4, says="no job is like that")
    ask(p, "terminate", "--name", "night-*", "--dry-run", says="left out: 1 of other users")
    check(set(states().values()) == {"QUEUED"}, f"nothing was to be done yet: {states()}")
    r = p.cli("terminate", "--name", "night-*", "--queue", "default", "--json", "--reason", "the night is over")
    answers = [json.loads(line) for line in r.stdout.splitlines()]
    check(sorted(a["training_id"] for a in answers) == sorted(mine), f"one answer a job: {answers}")
    check(all(a["answer"] == "accepted" and a["state"] == "TERMINATED" and "night is over" in a["reason"] for a in answers), f"answers: {answers}")
    check("terminate 5 jobs: 5 QUEUED" in r.stderr and "5 of 5 done, 0 refused" in r.stderr, f"said: {r.stderr}")
    check({s for t, s in states().items() if t in mine} == {"TERMINATED"} and p.show(day)["state"] == p.show(theirs)["state"] == "QUEUED", f"{states()}")
    ask(p, "terminate", "--user", "*", "--name", "*", "--state", "TERMINATED,QUEUED", "--as", "mallory", status=1, says="0 of ")
    ask(p, "terminate", "--name", "*", "--state", "TERMINATED,QUEUED", status=3, says="refused")
    check(p.show(day)["state"] == "TERMINATED", f"some are done: {p.show(day)}")
    ask(p, "delete", "--user", "*", "--name", "night-*", "--wait", says="6 of 6 done")
    check(all(p.cli("show", tid, ok=False).returncode == 4 for tid in mine + [theirs]), "deleted")
    print("one request a job of many: chosen, said, answered; some refused, none like that")


def many_that_nobody_answers(p):
    tids = [p.submit(manifest(f"silent-{i}", "{hold: true}")) for i in range(3)]
    for pid in p.pids("trainer"):
        os.kill(pid, signal.SIGSTOP)
    stopped = p.pids("trainer")
    r = p.cli("terminate", "--name", "silent-*", ok=False)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    check(r.returncode == 124 and r.stdout.count("unanswered") == 3 and "no Trainer has answered" in r.stderr, f"{r.returncode} {r.stdout} {r.stderr}")
    for tid in tids:
        p.wait_state(tid, "TERMINATED")
    print("a Trainer that does not answer is told, and answers later")


def why_it_waits(p):
    runs = p.submit("name: runs\ncpus: 0.1\nframework: {name: custom, version: 1, command: sleep 120}\n")
    p.wait_state(runs, "PROCESSING")
    free = [json.loads(line) for line in p.cli("nodes", "--json").stdout.splitlines()][0]["free"]["cpus"]
    big = "cpus: {}\nframework: {{name: custom, version: 1, command: echo hi}}\n".format(round(free + 0.05, 3))
    first, second = p.submit("name: first\n" + big), p.submit("name: second\n" + big)
    told = json.loads(p.cli("why", second, "--json").stdout)
    check(told["position"] == 2 and told["waiting"] == 2 and [a["training_id"] for a in told["ahead"]] == [first], f"place: {told}")
    check(0 < told["missing"][0]["cpus"] <= 0.06 and told["missing"][0]["state"] == "ready", f"missing: {told}")
    code, body, _ = p.http(f"/v1/jobs/{second}/why")
    own = lambda text: [line.split(" (")[0] for line in text.splitlines() if line.startswith("  ")]
    check(code == 200 and own(json.loads(body)["text"]) == own(p.cli("why", second).stdout), f"gateway: {code} {body}")
    check(p.http("/v1/jobs/training-nobody/why")[0] == 404, "an unknown id is 404")
    p.cli("terminate", first)
    check(json.loads(p.cli("why", second[:20], "--json").stdout)["position"] == 1, "computed anew, by a shortened id")
    check("which is ready" in p.cli("why", runs).stdout, p.cli("why", runs).stdout)
    p.cli("terminate", "--name", "*", "--yes")
    print("why one waits: its place, who is ahead, what is missing where; the gateway says the same")


def an_array(p):
    out = p.dir / "indices"
    out.mkdir()
    text = ("name: many\ncpus: 0.1\nmemory: 64 MiB\nframework: {name: custom, version: 1, "
            f"command: 'test $PENSTOCK_ARRAY_INDEX -ne {{bad}} && test $API_TOKEN = hush && touch {out}/$PENSTOCK_ARRAY_INDEX'}}\npenstock: {{array: '{{array}}', isolation: none, env: {{API_TOKEN: hush}}}}\n")
    path = p.dir / "array.yml"
    path.write_text(text.replace("{array}", "0-9:3%2").replace("{bad}", "-1"))
    r = p.cli("submit", path, "--wait")
    tid = r.stdout.strip()
    check(sorted(f.name for f in out.iterdir()) == ["0", "3", "6", "9"], f"each index ran: {list(out.iterdir())}")
    check(p.show(tid)["state"] == "COMPLETED" and p.show(tid)["array"]["completed"] == 4, f"array: {p.show(tid)}")
    tasks = [json.loads(line) for line in p.cli("list", "--array", tid, "--json").stdout.splitlines()]
    check([t["training_id"] for t in tasks] == [f"{tid}-{i}" for i in (0, 3, 6, 9)], f"tasks: {tasks}")
    check(f"{tid}-3" not in p.cli("list").stdout and tid in p.cli("list").stdout and f"{tid}-3" in p.cli("list", "--all").stdout, "an array is one line")
    check("4 tasks" in p.cli("show", tid).stdout and "4 COMPLETED" in p.cli("why", tid).stdout, "its counts")
    path.write_text(text.replace("{array}", "0-5").replace("{bad}", "4"))
    failed = p.submit(path.read_text())
    end = p.wait_state(failed, "FAILED")
    check(end["reason_code"] == "TASKS_FAILED" and "index 4" in end["reason"] and end["array"]["completed"] == 5, f"one failed: {end}")
    many = p.submit("name: many\ncpus: 0.1\nmemory: 64 MiB\nframework: {name: custom, version: 1, command: sleep 300}\npenstock: {array: '0-499'}\n")
    until(lambda: p.show(many)["array"]["running"] > 0, 30, "tasks run")
    for pid in p.pids("trainer"):
        os.kill(pid, signal.SIGKILL)
    p.cli("terminate", many, "--wait")
    end = p.show(many)
    check(end["state"] == "TERMINATED" and end["array"]["running"] == end["array"]["waiting"] == 0 and end["array"]["admitted"] < 500, f"terminated: {end}")
    p.cli("delete", many)
    check(p.cli("list", "--array", many, ok=False).returncode == 4 and many not in p.cli("list", "--all").stdout, "deleted with its tasks")
    path.write_text(manifest("bad", "{array: 0-10000}"))
    ask(p, "submit", path, "--dry-run", status=2, says="10001 tasks, at most 10000")
    print("an array: each index once, one that failed, terminated in the middle under a killed Trainer")


with Platform() as p:
    for test in (holding, by_the_gateway, one_after_another, refused, many_at_once, many_that_nobody_answers, why_it_waits, an_array):
        if len(sys.argv) < 2 or test.__name__ in sys.argv[1:]:
            test(p)
print("ok: jobs that wait")
