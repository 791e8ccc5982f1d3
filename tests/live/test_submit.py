"""A client in another language submits, by Avro and by JSON text; status, logs and metrics come back; the same request twice is one job; what cannot
run is rejected once, with every violation."""
import json, time
from kit import *

COLLECTED = """evaluation_metrics:
  type: regex_extractor
  groups:
    mine:
      regex: step %{INT:s} loss %{FLOAT:l}
      etimes: {iteration: {type: INT, value: $s}}
      scalars: {loss: {type: FLOAT, value: $l}}
penstock: {system_metrics: 1s}
"""

with Platform() as p:
    command = 'for i in 1 2 3; do echo "line $i"; echo "{\\"penstock\\":\\"metrics\\",\\"step\\":$i,\\"loss\\":0.$i}"; done'
    status, body, _ = p.http(f"/subjects/{PREFIX}jobs.requests-value/versions/latest", p.registry)
    sid, producer = json.loads(body)["id"], p.producer()
    p.schema(sid)
    request = {"request_id": "r-1", "action": "SUBMIT", "training_id": None, "user": "test", "time": int(time.time() * 1e6), "manifest": manifest("one", command), "code": None, "options": {}}
    for _ in range(2):
        producer.produce(PREFIX + "jobs.requests", p.encode(sid, request), key="r-1")
    producer.produce(PREFIX + "jobs.requests", json.dumps({"request_id": "r-2", "action": "SUBMIT", "user": "test", "manifest": manifest("two", "true")}), key="r-2")
    producer.produce(PREFIX + "jobs.requests", json.dumps({"request_id": "r-bad", "action": "SUBMIT", "user": "test", "manifest": "name: x\nlearners: 0\nmemory: much\nframework: {name: a, version: '1'}\n"}), key="b")
    producer.produce(PREFIX + "jobs.requests", json.dumps({"request_id": "r-halt", "action": "HALT", "user": "test", "training_id": "training-nobody"}), key="h")
    producer.produce(PREFIX + "jobs.requests", b"\x00\x00\x00\x27\x0fjunk", key="j")
    producer.produce(PREFIX + "jobs.requests", b"not an event at all", key="j")
    producer.produce(PREFIX + "jobs.requests", None, key="tombstone")
    check(producer.flush(30) == 0, "the requests were not acknowledged")
    ends = lambda es: {e["request_id"] for e in es if e["type"] == "COMPLETED"} >= {"r-1", "r-2"} and sum(e["type"] == "REJECTED" for e in es) >= 4
    p.events("jobs.events", ends, 60)
    time.sleep(2)
    events = p.events("jobs.events")
    ids = {e["training_id"] for e in events if e["request_id"] == "r-1"}
    check(len(ids) == 1, f"one request twice made jobs {ids}")
    tid = ids.pop()
    mine = [e for e in events if e["training_id"] == tid]
    check([e["seq"] for e in mine] == list(range(1, len(mine) + 1)), f"sequence numbers {[e['seq'] for e in mine]}")
    check(sum(e["type"] == "COMPLETED" for e in mine) == 1, "not exactly one COMPLETED")
    rejected = [e for e in events if e["type"] == "REJECTED"]
    check(len(rejected) == 4 and all(e["reason_code"] for e in rejected), f"rejections: {[(e['request_id'], e['reason_code'], e['reason']) for e in rejected]}")
    bad = next(e for e in rejected if e["request_id"] == "r-bad")
    check(all(any(w in k for k in bad["details"]) for w in ("learners", "memory", "command")), f"violations named: {bad['details']}")
    lines = [l for l in p.events("logs", lambda ls: sum(l["training_id"] == tid and l["text"].startswith("line") for l in ls) >= 3) if l["training_id"] == tid]
    check([l["text"] for l in lines if l["text"].startswith("line")] == ["line 1", "line 2", "line 3"], f"log: {[l['text'] for l in lines]}")
    check([l["rindex"] for l in lines] == list(range(len(lines))), f"rindex: {[l['rindex'] for l in lines]}")
    points = [m for m in p.events("metrics") if m["training_id"] == tid and "loss" in m["values"]]
    check([(m["step"], m["values"]["loss"]) for m in points] == [(1, 0.1), (2, 0.2), (3, 0.3)], f"metrics: {points}")
    # the view and the HTTP API say the same
    status, body, _ = p.http("/v1/jobs/" + tid)
    check(status == 200 and json.loads(body)["state"] == "COMPLETED", f"GET /v1/jobs/{tid}: {status} {body[:200]}")
    status, body, headers = p.http("/v1/jobs", data=manifest("three", "echo step 7 loss 0.5; sleep 1.6", extra=COLLECTED).encode(), headers={"Idempotency-Key": "r-3"})
    answer = json.loads(body)
    check(status == 202 and {"training_id", "topic", "partition", "offset"} <= answer.keys(), f"POST /v1/jobs: {status} {body[:200]}")
    p.wait_state(answer["training_id"], "COMPLETED")
    # what a regex finds is an evaluation; what the platform measures is shown when asked for
    shown = p.cli("metrics", answer["training_id"]).stdout.splitlines()
    check(len(shown) == 1 and shown[0].endswith("mine       step=7 loss=0.5"), f"metrics: {shown}")
    measured = [json.loads(l) for l in p.cli("metrics", answer["training_id"], "--group", "system", "--json").stdout.splitlines()]
    check(measured and all(m["group"] == "system" and m["values"]["threads"] >= 1 for m in measured), f"metrics --group system: {measured}")
    # FfDL's words for the same jobs
    status, body, _ = p.http("/v1/models?version=2017-02-13")
    models = json.loads(body)["models"]
    mine = next(m for m in models if m["model_id"] == tid)
    check(status == 200 and mine["location"] == "/v1/models/" + tid and mine["framework"]["name"] and
          mine["training"]["training_status"]["status"] == "COMPLETED" and mine["training"]["learners"] == 1, f"GET /v1/models: {mine}")
    check([m["model_id"] for m in models].index(answer["training_id"]) < models.index(mine), "FfDL's list is not newest first")
    check(json.loads(p.http("/v1/models/" + tid)[1]) == mine, "one model differs from the list's")
    status, body, _ = p.http("/v1/models/training-none")
    check(status == 404 and json.loads(body)["code"] == 404, f"an unknown model: {status} {body}")
    status, body, _ = p.http("/v1/jobs", data=b"name: x\nlearners: 0\n")
    check(status == 400 and len(json.loads(body)["violations"]) >= 2, f"POST of a bad manifest: {status} {body[:200]}")
    check(p.http("/v1/jobs/training-none")[0] == 404, "an unknown job is not 404")
    # what is asked of a job that nobody submitted is kept for a while and then answered; the Trainer goes on
    check(p.http("/v1/jobs/training-none/terminate", data=b"")[0] == 404, "an unknown job is not 404")
    asks = p.producer()
    asks.produce(PREFIX + "jobs.requests", json.dumps({"request_id": "of-none", "action": "TERMINATE", "training_id": "training-none", "user": "me"}), key="training-none")
    asks.flush()
    until(lambda: any(e["reason_code"] == "UNKNOWN_JOB" for e in p.events("jobs.events")), 40, "a request of an unknown job is not answered", 1)
    check(p.show(tid)["state"] == "COMPLETED" and not [s for s in p.status()["services"] if s["restarts"]], "a service ended of a request of an unknown job")
    r = p.cli("submit", "-", "--dry-run", input="name: x\nlearners: -2\n", ok=False)
    check(r.returncode == 2 and "learners" in r.stderr and "framework" in r.stderr, f"dry-run of a bad manifest: {r.returncode} {r.stderr}")
    store = "data_stores: [{id: s, type: mount_cos, training_data: {container: a}, training_results: {container: b}, connection: {auth_url: 'http://127.0.0.1:1', user_name: u, password: w}}]\n"
    r = p.cli("submit", "-", "--dry-run", input=manifest("store", "true", extra=store), ok=False)
    check(r.returncode == 2 and "bad data store credentials/bucket: data store s, bucket a" in r.stderr, f"dry-run with a store that nobody can reach: {r.returncode} {r.stderr}")
    store = store.replace("mount_cos", "swift_datastore")
    r = p.cli("submit", "-", "--dry-run", input=manifest("store", "true", extra=store), ok=False)
    check(r.returncode == 2 and "swift_datastore" in r.stderr, f"dry-run with a store that the Trainer would refuse: {r.returncode} {r.stderr}")
    # whoever finds it, dry run, submission, HTTP and the Trainer name the same violations
    wrong = manifest("wrong", "true", learners=0, extra=store + "penstock: {queue: fast}\n")
    said = {}
    for args in ((), ("--dry-run",)):
        r = p.cli("submit", "-", p.dir / "no-such-code", *args, input=wrong, ok=False)
        check(r.returncode == 2 and "cannot run: 4 violations" in r.stderr, f"submit {args} of 4 violations: {r.returncode} {r.stderr}")
        said[args] = r.stderr
    check(said[()] == said[("--dry-run",)] and all(w in said[()] for w in ("learners", "swift_datastore", "penstock.queue", "no-such-code")), f"the same is said: {said}")
    status, body, _ = p.http("/v1/jobs", data=wrong.encode())
    check(status == 400 and {v["field"] for v in json.loads(body)["violations"]} == {"learners", "data_stores[0].type"}, f"POST: {status} {body}")  # which queues there are the Trainer knows
    r = p.cli("submit", "-", "--wait", input=manifest("four", "exit 3"), ok=False)
    check(r.returncode == 10, f"submit --wait of a failing job exits {r.returncode}: {r.stderr[-300:]}")
    check(p.show(r.stdout.strip())["reason_code"] == "C201", "a learner's exit status is not C201")
    # whoever may write beside the platform cannot end what others read
    w = p.producer()
    for topic in ("jobs.state", "jobs.events", "logs"):
        for value in (b"", b"{", b"\0\0\0\0\x01", b"\0\xff\xff\xff\xffx"):
            w.produce(PREFIX + topic, key=tid, value=value)
    w.flush(30)
    check(tid in p.cli("list", "--json").stdout and p.show(tid)["state"] == "COMPLETED", "list or show ends at a record that is no state")
    check("line 1" in p.cli("logs", tid).stdout and p.http(f"/v1/jobs/{tid}/logs")[0] == 200, "logs end at a record that is none")
print("ok: Avro and JSON submissions, dedupe, logs, metrics, rejections, HTTP")
