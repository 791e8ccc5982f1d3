"""The examples do what they say: the shell learner, the Python learner whose model is registered, submit.py by Avro and by JSON, plain kcat."""
import datetime, subprocess, json, shutil, sys
from kit import *

EX = ROOT / "examples"


def made_data(shape, known, model, live, out, n, judge, *more):
    """One of the shapes from end to end: what is known into a topic, a job that learns from it, a pipeline over what is new, and its scores judged."""
    for seed, count, topic, flags in ((7, 3000, known, ()), (8, n, live, more)):
        text = subprocess.run([sys.executable, EX / "data.py", shape, "--seed", str(seed), "-n", str(count), *flags], capture_output=True, text=True, check=True, timeout=60 * PATIENCE).stdout
        again = subprocess.run([sys.executable, EX / "data.py", shape, "--seed", str(seed), "-n", str(count), *flags], capture_output=True, text=True, check=True, timeout=60 * PATIENCE).stdout
        check(text == again and len(text.splitlines()) == count + 1, f"{shape}: a seed does not make the same data")
        p.cli("source", "file", "-", "--format", "csv", "--topic", topic, input=text)
    r = p.cli("submit", EX / shape / "manifest.yml", "--wait", timeout=120)
    check(p.show(r.stdout.strip())["model"]["name"] == model, f"{shape}: {p.show(r.stdout.strip())}")
    p.cli("pipelines", "apply", EX / shape / "pipeline.yml")
    scores = [p.decode(m.value()) for m in p.read(out, lambda ms: len(ms) >= n, 60)]
    check(len(scores) == n, f"{shape}: {len(scores)} scores of {n} records")
    judge(scores, text.splitlines())


def right(column):
    """A judge: nine of ten are read as what they are. One partition in and one out: the scores stand in the order of the lines."""
    def judge(scores, lines):
        at = lines[0].split(",").index(column)
        good = sum(s["label"] == line.split(",")[at] for s, line in zip(scores, lines[1:]))
        check(good >= 0.9 * len(scores), f"{good} of {len(scores)} are right, the first is {scores[0]}")
        check(len({s["label"] for s in scores}) > 1, f"all have one label: {scores[0]}")
    return judge


def broken_machine(scores, _):
    """The last tenth is of a broken one: its scores are far above those of what is sound."""
    errors = [s["score"][0] for s in scores]
    late, early = sorted(errors[-len(errors) // 10:]), sorted(errors[:-len(errors) // 10])
    check(late[len(late) // 10] > 3 * early[len(early) * 9 // 10], f"broken from {late[0]} to {late[-1]}, sound from {early[0]} to {early[-1]}")


with Platform() as p:
    made_data("fraud", "payments.known", "payments-fraud", "payments", "payments.scores", 1000, right("Class"))
    made_data("sensors", "machines.sound", "machines-ae", "machines", "machines.scores", 500, broken_machine, "--broken")
    made_data("digits", "digits.known", "digits", "digits", "digits.read", 300, right("digit"))
    made_data("messages", "messages.known", "messages-spam", "messages", "messages.read", 300, right("label"))
    r = p.cli("submit", EX / "shell-learner/manifest.yml", EX / "shell-learner", "--wait", timeout=120)
    check(p.show(r.stdout.strip())["state"] == "COMPLETED", "the shell learner did not complete")
    r = p.cli("submit", EX / "python-learner/manifest.yml", EX / "python-learner", "--wait", timeout=120)
    made = p.show(r.stdout.strip())["model"]
    check(made and made["version"] == 1 and len(made["digest"]) == 64, f"the Python learner's model: {made}")
    models = [json.loads(l) for l in p.cli("models", "list", "--json").stdout.splitlines()]
    check(any(m["name"] == made["name"] and m["digest"] == made["digest"] for m in models), f"models list: {models}")
    p.cli("models", "fetch", f"{made['name']}:1", p.dir / "fetched.onnx")
    import onnx
    onnx.checker.check_model(onnx.load(p.dir / "fetched.onnx"))
    for extra in ([], ["--json"]):
        r = subprocess.run([sys.executable, EX / "submit.py", "-b", p.bootstrap, "--registry", p.registry, *extra, EX / "shell-learner/manifest.yml"], capture_output=True, text=True, timeout=120 * PATIENCE)
        check(r.returncode == 0 and "COMPLETED" in r.stdout, f"submit.py {extra}: exit {r.returncode}: {r.stdout[-300:]} {r.stderr[-300:]}")
    if shutil.which("kcat"):
        text = json.dumps({"request_id": "kcat-1", "action": "SUBMIT", "user": "kcat", "manifest": manifest("by-kcat", "echo hello from kcat")})
        subprocess.run(["kcat", "-P", "-b", p.bootstrap, "-t", PREFIX + "jobs.requests", "-k", "kcat-1"], input=text, text=True, check=True, timeout=30 * PATIENCE)
        p.events("jobs.events", lambda es: any(e["request_id"] == "kcat-1" and e["type"] == "COMPLETED" for e in es), 60)
    else:
        print("skipped: kcat: not installed (apt install kcat)")
    lines = p.cli("cat", "-t", PREFIX + "jobs.events", "-e", "-J").stdout.splitlines()
    rows = [json.loads(l) for l in lines]
    check(rows and all({"topic", "partition", "offset", "ts", "key", "payload", "value_schema_id"} <= r.keys() for r in rows), f"penstock cat -J: {lines[:1]}")
    newest = max(rows, key=lambda r: (r["ts"], r["offset"]))  # a marker follows it: events are written in transactions
    last = p.cli("cat", "-t", PREFIX + "jobs.events", "-p", newest["partition"], "-o", "-1", "-c", "1", "-J")
    check([json.loads(l)["offset"] for l in last.stdout.splitlines()] == [max(r["offset"] for r in rows if r["partition"] == newest["partition"])], f"cat -o -1 -c 1: {last.stdout}")
    import fastavro
    p.cli("cat", "-t", PREFIX + "jobs.events", "-e", "--avro-file", p.dir / "events.avro")
    with open(p.dir / "events.avro", "rb") as f:
        told = list(fastavro.reader(f))
    check(len(told) >= len(rows) and all(isinstance(e["time"], datetime.datetime) and e["training_id"] for e in told if e["type"] == "COMPLETED"),
          f"cat --avro-file: {len(told)} of {len(rows)}: {told[:1]}")
    for verb in (("list",), ("topics", "list")):
        away = p.cli(*verb, "-b", "127.0.0.1:1", ok=False)
        check(away.returncode == 5 and not away.stdout and "127.0.0.1:1 is from: flag; -b HOST:PORT" in away.stderr, f"{verb} without a broker: {away.returncode} {away.stdout} {away.stderr}")
    waits = p.spawn("list", "-b", "127.0.0.1:1", log="waits.log")
    until(lambda: (Path(f"/proc/{waits.pid}/status").read_text().split("SigCgt:")[1].split()[0][-1:] or "0") in "2367abef", 20, "it does not hear signals")
    waits.send_signal(signal.SIGINT)
    check(waits.wait(10) == 130 and not (p.dir / "waits.log").read_text().strip(), f"interrupted: {waits.returncode} {(p.dir / 'waits.log').read_text()}")
    wrong = {("list", "-b", "host:99999"): "HOST:PORT", ("list", "-b", "http://x:1"): "HOST:PORT", ("down", "extra"): "one argument too many", ("halt", ""): "ID is empty",
             ("cat", "-t", "x", "-f", "%z"): "there is no %z", ("submit", "m.yml", "--request-id", ""): "--request-id is empty"}
    for verb, said in wrong.items():
        r = p.cli(*verb, ok=False)
        check(r.returncode == 2 and said in r.stderr, f"{verb}: {r.returncode} {r.stderr}")
    p.status()  # nothing went down by that
    alone = p.cli("show", ok=False)
    check(alone.returncode == 2 and "ID is missing; usage: penstock show ID" in alone.stderr, f"show: {alone.stderr}")
    away = p.cli("cat", "--registry", "http://127.0.0.1:1", "-t", PREFIX + "jobs.events", "-e", ok=False)
    check(away.returncode == 5 and not away.stdout and len(away.stderr.splitlines()) == 2 and "--raw" in away.stderr and "is from: flag; --registry URL" in away.stderr,
          f"penstock cat without its registry: exit {away.returncode}: {away.stdout[:200]} {away.stderr[:300]}")
print("ok: examples")
