"""The gateway's own API on a real Kafka: jobs by pages, models and their aliases, topics, nodes; and what a request is told that does not fit."""
import base64, hashlib, http.client, urllib.parse
from kit import *

JSON = {"Content-Type": "application/json"}


def call(path, status=200, method=None, data=None, headers=None):
    """The answer as JSON (None: none); every refusal is a problem."""
    got, body, head = p.http(path, data=json.dumps(data).encode() if isinstance(data, dict) else data, headers={**(JSON if isinstance(data, dict) else {}), **(headers or {})}, method=method)
    check(got == status, f"{method or 'GET'} {path}: {got} {body[:300]}, not {status}")
    if status >= 400:
        check(head["Content-Type"] == "application/problem+json", f"{path}: {status} as {head['Content-Type']}")
        problem = json.loads(body)
        check(problem["status"] == status and problem["title"] and problem.get("code"), f"{path}: {problem}")
        return problem
    return json.loads(body) if body and head["Content-Type"] == "application/json" else body


def lists():
    ids = []
    for i in range(5):
        at = call("/v1/jobs", 202, data=manifest(f"list-{i}", "true", extra="penstock: {hold: true}\n").encode())
        check(at["topic"] == PREFIX + "jobs.requests" and at["offset"] >= 0 and at["partition"] >= 0, at)
        ids.append(at["training_id"])
    until(lambda: len(call("/v1/jobs?name=list-*")["jobs"]) == 5, 30, "five jobs are listed")
    for query in ("name=list-*", "name=list-*&queue=default&state=QUEUED", ""):
        seen, token, pages = [], "", 0
        while token is not None:
            page = call(f"/v1/jobs?limit=2&{query}" + (f"&page_token={urllib.parse.quote(token)}" if token else ""))
            check(len(page["jobs"]) <= 2, page)
            seen += [j["training_id"] for j in page["jobs"]]
            token, pages = page["next_page_token"], pages + 1
            check(pages < 10, "pages without an end")
        check(sorted(seen) == sorted(ids) and len(set(seen)) == 5, f"pages by 2 with {query or 'no filter'}: {seen}, not {ids}")
    check(call("/v1/jobs?queue=other")["jobs"] == [] and call("/v1/jobs?name=list-3")["jobs"][0]["name"] == "list-3", "filters")
    token = call("/v1/jobs?limit=2")["next_page_token"]
    check(call(f"/v1/jobs?name=x&page_token={token}", 400)["code"] == "foreign-page-token", "a token of another list is taken")
    check(call(f"/v1/jobs?page_token={token[:-1]}", 400)["code"] == "foreign-page-token", "a cut token is taken")
    check(call("/v1/jobs/training-nothing", 404)["code"] == "unknown-job", "an unknown job")
    gone = [call("/v1/jobs", 202, data=manifest(f"gone-{i}", "true", extra="penstock: {hold: true}\n").encode())["training_id"] for i in range(4)]
    until(lambda: len(call("/v1/jobs?name=gone-*")["jobs"]) == 4, 30, "four jobs are listed")
    page = call("/v1/jobs?limit=2")  # the last job of a page is deleted: the next page is there all the same
    check([j["training_id"] for j in page["jobs"]] == gone[:1:-1], page)
    call(f"/v1/jobs/{gone[2]}", 202, method="DELETE")
    until(lambda: len(call("/v1/jobs?name=gone-*")["jobs"]) == 3, 30, "one of them is deleted")
    page = call(f"/v1/jobs?limit=2&page_token={page['next_page_token']}")
    check([j["training_id"] for j in page["jobs"]] == gone[1::-1] and page["next_page_token"], page)
    return ids


def after():
    """What was published is seen by who says where it stands, at once and without asking twice."""
    import requests
    me, text = {"Authorization": "Bearer " + p.token}, lambda i: manifest(f"after-{i}", "true", extra="penstock: {hold: true}\n")
    for i in range(4):
        at = call("/v1/jobs", 202, data=text(i).encode(), headers={"Idempotency-Key": f"after-{i}"})
        tid, place = at["training_id"], f"{at['topic']}:{at['partition']}:{at['offset']}"
        if i % 2:
            check(call(f"/v1/jobs/{tid}?after={place}")["name"] == f"after-{i}", place)
        else:
            check([j["training_id"] for j in call(f"/v1/jobs?name=after-{i}&after={place}")["jobs"]] == [tid], place)
        if i > 1:  # Kafka is asked how far the Trainer is: that takes a second
            continue
        at = call(f"/v1/jobs/{tid}/terminate", 202, method="POST")
        place = f"jobs.requests:{at['partition']}:{at['offset']}"
        check(call(f"/v1/jobs/{tid}?after={place}")["state"] == "TERMINATED", place)
        check(call(f"/v1/jobs/{tid}/events?after={place}")["records"][-1]["type"] == "TERMINATED", place)
    again = call("/v1/jobs", 202, data=text(0).encode(), headers={"Idempotency-Key": "after-0"})
    check(again["training_id"] == call(f"/v1/jobs?name=after-0&after=jobs.requests:{again['partition']}:{again['offset']}")["jobs"][0]["training_id"], "an idempotency key")
    check(len(call("/v1/jobs?name=after-0")["jobs"]) == 1, "a second job of one idempotency key")
    check(call("/v1/jobs", 409, data=text(9).encode(), headers={"Idempotency-Key": "after-0"})["code"] == "request-id-reused", "another manifest under one key")
    # What the Trainer could only refuse as nobody's is refused at once, and is not published.
    plain = {"manifest": text(8)}
    for path, data, head in (("/v1/jobs", text(8).encode(), {"Idempotency-Key": "k" * 257}), ("/v1/jobs", text(8).encode(), {"Idempotency-Key": b"\xff\xfe"}),
                             ("/v1/jobs?user=" + "u" * 257, text(8).encode(), {}), ("/v1/jobs?user=%ff", text(8).encode(), {}), ("/v1/jobs?user=a%0ab", text(8).encode(), {}),
                             ("/v1/jobs", {**plain, "user": "u" * 257}, {}), ("/v1/jobs", {**plain, "request_id": "a\nb"}, {}), ("/v1/jobs", {**plain, "training_id": "training-mine"}, {}),
                             (f"/v1/jobs/{tid}/halt", b"", {"Idempotency-Key": "k" * 257})):
        check(call(path, 400, data=data, headers=head, method="POST")["code"] == "bad-request", path)
    call(f"/v1/jobs/{tid}?after=jobs.state:{p.read(PREFIX + 'jobs.state')[-1].partition()}:0")
    for bad in ("x", "jobs.requests:0", "jobs.requests:0:", ":0:0", "jobs.requests:-1:0", "jobs.requests:0:-1", "jobs.requests:0:99999", "jobs.requests:99:0", "logs:0:0", "jobs.requests:0:0:0", "jobs.requests::0",
                "jobs.requests:0:99999999999999999999"):
        call("/v1/jobs?after=" + bad, 400)
    # With the code beside it.
    import zipfile
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as z:
        z.writestr("run.sh", "echo from the upload; exit 7\n")
    files = {"manifest": ("m.yml", manifest("upload", "sh run.sh"), "text/yaml"), "code": ("c.zip", code.getvalue(), "application/octet-stream")}
    r = requests.post(p.gateway + "/v1/jobs", files=files, headers={**me, "Idempotency-Key": "upload"}, timeout=60)
    check(r.status_code == 202 and r.headers["Location"] == "/v1/jobs/" + r.json()["training_id"], r.text)
    until(lambda: p.http("/v1/jobs/" + r.json()["training_id"])[0] == 200, 30, "the upload is known")
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as z:
        z.writestr("run.sh", "exit 8\n")
    for archive, status in ((code.getvalue(), 202), (other.getvalue(), 409)):
        twice = requests.post(p.gateway + "/v1/jobs", files={**files, "code": ("c.zip", archive, "application/zip")}, headers={**me, "Idempotency-Key": "upload"}, timeout=60)
        check(twice.status_code == status, f"the same key, {status} is due: {twice.status_code} {twice.text}")
    check(p.wait_state(r.json()["training_id"], "FAILED")["reason"].count("7") > 0, "the upload's code did not run")
    alone = requests.post(p.gateway + "/v1/jobs", files={"manifest": manifest("alone", "true")}, headers=me, timeout=60)
    check(alone.status_code == 202, alone.text)
    for files in ({"code": b"PK"}, {"manifest": ""}, {"manifest": "x: ["}, {"manifest": manifest("m", "true"), "code": b"no archive"}, {"manifest": manifest("m", "true"), "code": b"PK\3\4 cut"},
                  {"manifest": manifest("m", "true"), "cod": b"PK\3\4"}, {"manifest": manifest("m", "true") + "\0"}):
        r = requests.post(p.gateway + "/v1/jobs", files=files, headers=me, timeout=60)
        check(r.status_code == 400 and r.headers["Content-Type"] == "application/problem+json", f"{files}: {r.status_code} {r.text}")
    call("/v1/jobs", 400, data=b"--x\r\n", headers={"Content-Type": "multipart/form-data; boundary=x"})
    call("/v1/jobs", 413, data=b"#" * ((16 << 20) + 1))
    call(f"/v1/jobs/{tid}/halt", 415, data=b"--x", headers={"Content-Type": "multipart/form-data; boundary=x"})


def models():
    import onnx
    from onnx import TensorProto as T, helper as h
    check(call("/v1/registry/models") == {"models": [], "next_page_token": None}, "models before there are any")
    for value in (1.0, 2.0):
        graph = h.make_graph([h.make_node("Mul", ["x", "k"], ["y"])], "g", [h.make_tensor_value_info("x", T.FLOAT, ["N", 2])],
                             [h.make_tensor_value_info("y", T.FLOAT, ["N", 2])], [h.make_tensor("k", T.FLOAT, [1], [value])])
        path = p.dir / f"m{value}.onnx"
        onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)
        for name in ("fraud", "spam"):
            p.cli("models", "register", path, "--name", name)
    base = "/v1/registry/models/fraud"
    check(call(base + "/aliases/champion", 404), "no alias yet")
    for version in (1, 2, 1):  # seen at once: the topic is read, not a view of it
        moved = call(base + "/aliases/champion", method="PUT", data={"version": version, "reason": "it is better"})
        check(moved["version"] == version and moved["aliases"] == ["champion"], moved)
        check(call(base + "/aliases")["aliases"] == {"champion": version} and call(base + "/aliases/champion")["version"] == version, "the alias has not moved")
    check(json.loads(p.cli("models", "show", "fraud:champion", "--json").stdout)["version"] == 1, "the CLI sees another version")
    model = call(base)
    check([v["version"] for v in model["versions"]] == [1, 2] and model["versions"][1]["outputs"][0]["name"] == "y", model)
    check(call(base + "/versions")["versions"] == model["versions"] and call(base + "/versions/2") == model["versions"][1], "versions differ")
    raw = call(base + "/versions/2/download")
    check(hashlib.sha256(raw).hexdigest() == model["versions"][1]["digest"] == hashlib.sha256((p.dir / "m2.0.onnx").read_bytes()).hexdigest(), "another artefact")
    check(call(base + "/aliases/champion/download") == (p.dir / "m1.0.onnx").read_bytes(), "another artefact by its alias")
    page = call("/v1/registry/models?limit=1")
    check([m["name"] for m in page["models"]] == ["fraud"] and page["models"][0]["latest"]["version"] == 2 and page["models"][0]["aliases"] == {"champion": 1}, page)
    check([m["name"] for m in call(f"/v1/registry/models?limit=1&page_token={page['next_page_token']}")["models"]] == ["spam"], "the second page")
    call(base + "/versions/1", 409, method="DELETE")
    call(base + "/aliases/champion", 204, method="DELETE")
    call(base + "/versions/1", 204, method="DELETE")
    call(base + "/versions/1", 404)
    call(base + "/versions/1/download", 404)
    call(base + "/aliases/champion", 404, method="DELETE")
    for data, status in (({"version": 1}, 404), ({"version": 0}, 400), ({"version": "2"}, 400), ({}, 400), ({"version": 2, "reason": 3}, 400), (b"{", 400), (b"[]", 400)):
        call(base + "/aliases/champion", status, method="PUT", data=data, headers=JSON)
    call(base + "/aliases/latest", 400, method="PUT", data={"version": 2})
    call(base + "/aliases/" + urllib.parse.quote("no such"), 400, method="PUT", data={"version": 2})
    call(base + "/aliases/champion", 415, method="PUT", data=b'{"version": 2}', headers={"Content-Type": "text/plain"})
    call(base + "/aliases/champion", 413, method="PUT", data={"version": 2, "reason": "x" * 70000})


def topics():
    p.create("readings", 2)
    sid = p.register("readings-value", {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}, {"name": "s", "type": "string"}]})
    values = [p.encode(sid, {"n": i, "s": "ä"}) for i in range(5)] + [b'{"n": 5}', "wörd".encode(), b"\xff\x00", None, b"\0\0\0\xff\xff?", b"{nothing", b""]
    made = p.producer()
    for i, v in enumerate(values):
        made.produce("readings", v, key=f"k{i}", partition=i % 2, timestamp=1_700_000_000_000 + i, headers=[("h", b"1"), ("raw", b"\xfe")])
    made.flush()
    got = call("/v1/topics/readings/records?limit=100")["records"]
    check([r["timestamp"] - 1_700_000_000_000 for r in got] == list(range(len(values))), f"not in the order of their times: {got}")
    kinds = [(r["value"]["format"], r["value"].get("data", r["value"].get("hex"))) for r in got]
    check(kinds == [("avro", {"n": i, "s": "ä"}) for i in range(5)] + [("json", {"n": 5}), ("text", "wörd"), ("bytes", "ff00"), ("null", None), ("bytes", "000000ffff3f"), ("text", "{nothing"), ("text", "")], kinds)
    check(got[0]["key"]["data"] == "k0" and got[0]["value"]["schema_id"] == sid and "schema" in got[9]["value"]["why"], got[9])
    check(got[0]["headers"] == [{"name": "h", "value": "1"}, {"name": "raw", "hex": "fe"}], got[0]["headers"])
    check([r["timestamp"] - 1_700_000_000_000 for r in call("/v1/topics/readings/records?limit=3")["records"]] == [9, 10, 11], "not the newest")
    check([r["offset"] for r in call("/v1/topics/readings/records?limit=2&partition=1")["records"]] == [4, 5], "of one partition")
    call("/v1/topics/readings/records?partition=2", 404)
    from confluent_kafka import Consumer, TopicPartition
    c = Consumer({"bootstrap.servers": p.bootstrap, "group.id": "readers", "log_level": 2})
    c.commit(offsets=[TopicPartition("readings", 0, 2), TopicPartition("readings", 1, 6)], asynchronous=False)
    c.close()
    one = call("/v1/topics/readings")
    check(one["kind"] == "user" and one["partitions"] == [{"partition": 0, "low": 0, "high": 6}, {"partition": 1, "low": 0, "high": 6}] and one["offsets"] == 12, one)
    check([(g["group"], g["lag"], [q["lag"] for q in g["partitions"]]) for g in one["groups"]] == [("readers", 4, [4, 0])], one["groups"])
    names = {t["name"]: t for t in call("/v1/topics")["topics"]}
    check(names["readings"]["partitions"] == 2 and names[PREFIX + "jobs.events"]["event"] == "JobEvent" and not any(n.startswith("__") for n in names), names)
    check(any(t["kind"] == "internal" for t in call("/v1/topics?internal=true")["topics"]), "internal ones")
    check(call("/v1/topics/jobs.events")["name"] == PREFIX + "jobs.events" and call("/v1/topics/jobs.events/records?limit=1")["records"][0]["value"]["data"]["type"], "by the short name")
    for secret in ("jobs.requests", PREFIX + "jobs.commands", "jobs.reports"):
        call(f"/v1/topics/{secret}/records", 403)
    before = set(names)
    for path in ("nothing-here", "a%20b", "x" * 249, "..%2e"):
        call(f"/v1/topics/{path}", 404)
        call(f"/v1/topics/{path}/records", 404)
    check({t["name"] for t in call("/v1/topics")["topics"]} == before, "a topic was made by asking for it")


def running():
    """What runs, as its scorers' heartbeats and points tell it: all of it is in the topics, so one that somebody writes is as good as one of a scorer."""
    made, base = p.producer(), "/v1/pipelines/fraud"
    ids = {topic: p.register(f"{PREFIX}{topic}-value", json.loads((ROOT / f"schemas/{name}.avsc").read_text())) for topic, name in (("workers", "WorkerState"), ("metrics", "MetricPoint"))}

    def tell(topic, key, event, ago_s=0):
        at = time.time() - ago_s
        made.produce(PREFIX + topic, p.encode(ids[topic], {"time": int(at * 1e6), **event}), key=key, timestamp=int(at * 1e3))
        check(made.flush(30) == 0, "no heartbeat was written")

    def beat(i, state="running", ago_s=0, pipeline="fraud", **details):
        tell("workers", f"s{i}", {"worker_id": f"s{i}", "kind": "scorer", "host": "h", "state": state, "details": {"pipeline": pipeline, "model_version": "1", **details}}, ago_s)

    def point(i, ago_s=0, pipeline="fraud", **values):
        tell("metrics", "pipeline:" + pipeline, {"training_id": "pipeline:" + pipeline, "process": f"s{i}", "rindex": 0, "values": values}, ago_s)

    def now():
        one = call(base)
        check([x for x in call("/v1/pipelines")["pipelines"] if x["name"] == "fraud"] == [one], "the list tells it differently")
        return one["running"]
    none = now()
    check(none["state"] == "absent" and none["why"] and none["scorers"] == [] and none["lag"] is None and none["records_per_s"] is None, none)
    beat(1, ago_s=100)
    check((now()["state"], now()["records_per_s"]) == ("silent", None), now())
    beat(1)
    point(1, records_per_s=100.5, lag=5, lag_seconds=1, latency_p99_ms=4, scored_total=10)
    point(9, records_per_s=1e9)  # of a scorer that nobody has heard of
    point(1, pipeline="other", records_per_s=1e9)
    got = now()
    check((got["state"], got["records_per_s"], got["lag"], got["lag_seconds"], got["latency_p99_ms"], got["model_version"]) == ("running", 100.5, 5, 1, 4, 1) and got["scorers"][0]["scorer"] == "s1", got)
    beat(2, "waiting", waits_for="registry", why="the registry is away")
    got = now()
    check((got["state"], got["waits_for"], got["why"]) == ("waiting", "registry", "the registry is away") and len(got["scorers"]) == 2, got)
    check(got["lag"] is None and got["lag_seconds"] == 1, f"a lag that one of two told is none: {got}")
    point(2, records_per_s=1, lag=7, lag_seconds=9)
    check((now()["lag"], now()["lag_seconds"], now()["records_per_s"]) == (12, 9, 101.5), now())
    beat(2, "paused", waits_for="paused", why="too many dead letters")
    check(now()["state"] == "paused", now())
    beat(2, "stopped")
    made.produce(PREFIX + "workers", b"no heartbeat", key="s3")
    made.flush(30)
    check(now()["state"] == "running" and [s["scorer"] for s in now()["scorers"]] == ["s1"], now())
    text = call(base)["spec"] + "rollout: {canary: {version: 2, percent: 5}, shadow: {version: 2, topic: orders.shadow}}\n"
    call("/v1/pipelines", data=text.encode(), headers={"Content-Type": "application/yaml"})
    check([(s["role"], s["share"], s["version"]) for s in call(base)["serving"]] == [("primary", 95, 1), ("canary", 5, 2), ("shadow", 100, 2)], call(base)["serving"])
    beat(1, "stopped")


def pipelines():
    p.create("orders", 1)
    sid = p.register("orders-value", {"type": "record", "name": "O", "fields": [{"name": "a", "type": "double"}, {"name": "b", "type": "double"}]})
    p.register("other-value", {"type": "record", "name": "O", "fields": [{"name": "a", "type": "double"}]})
    p.create("other", 1)
    text = ("name: fraud\ninput: {topics: [orders], format: avro}\nmodel: {name: spam, version: 1}\nfeatures: [{field: a}, {field: b}]\n"
            "output: {topic: orders.scores}\nscore: {type: raw}\n")
    yaml, path = {"Content-Type": "application/yaml"}, p.dir / "pipeline.yml"
    check(call("/v1/pipelines")["pipelines"] == [], "pipelines before there are any")
    dry = call("/v1/pipelines?dry_run=true", data=text.encode(), headers=yaml)
    check(dry["action"] == "create" and dry["dry_run"] is True and {d["path"] for d in dry["difference"]} == {"name", "input", "model", "features", "output", "score"} and "offset" not in dry, dry)
    check(call("/v1/pipelines")["pipelines"] == [] and not p.read(PREFIX + "pipelines"), "a dry run published something")
    done = call("/v1/pipelines", data=text.encode(), headers=yaml)
    check(done["topic"] == PREFIX + "pipelines" and done["offset"] == 0 and done["action"] == "create", done)
    one = call("/v1/pipelines/fraud")
    check(one["spec"] == text and one["inputs"] == ["orders"] and one["output"] == "orders.scores" and one["model"] == {"name": "spam", "alias": None, "version": 1} and one["dead_letters"] == ["orders.dlq"]
          and "refused" not in one, one)
    check(call("/v1/pipelines")["pipelines"] == [one] and p.cli("pipelines", "show", "fraud").stdout == text, "the list, and the CLI's")
    check(call("/v1/pipelines/fraud?dry_run=true", method="PUT", data=("# words\n" + text).encode(), headers=yaml)["action"] == "none", "a comment is a difference")
    changed = call("/v1/pipelines/fraud?dry_run=true", method="PUT", data=text.replace("version: 1", "version: 2").replace("score: {type: raw}\n", "device: cpu\n").encode(), headers=yaml)
    check(changed["action"] == "change" and sorted(changed["difference"], key=lambda d: d["path"]) == [{"path": "device", "after": "cpu"}, {"path": "model.version", "before": 1, "after": 2}, {"path": "score", "before": {"type": "raw"}}],
          changed)
    # What the verb refuses is refused, in its words but for the file's name.
    bad = [text.replace("orders]", "other]"), text.replace("version: 1", "version: 9"), text.replace("version: 1", "alias: nobody"), text.replace("topics:", "topcis:"), text + "kafka: {bootstrap.servers: x}\n",
           text.replace(", {field: b}", ""), text.replace("output:", "x:"), "name: [", "", "[]", text.replace("[orders]", "[penstock.jobs.requests]"), text.replace("field: b", "field: c"),
           text.replace("name: fraud", "name: second").replace("format: avro", "format: avro, group: penstock.score.fraud")]
    for t in bad:
        path.write_text(t)
        verb = p.cli("pipelines", "apply", path, ok=False)
        for query in ("", "?dry_run=true")[:1 + (t == bad[0])]:
            problem = call("/v1/pipelines" + query, 400, data=t.encode(), headers=yaml)
            said = problem["violations"][0]["detail"].replace("pipeline:", f"{path}:")
            check(verb.returncode != 0 and (said in verb.stderr or not t), f"{t!r}: the verb says {verb.stderr!r}, the gateway {problem}")
    check(len(p.read(PREFIX + "pipelines")) == 1, "a refused pipeline is published")
    problem = call("/v1/pipelines", 400, data=text.replace("topics:", "topcis:").encode(), headers=yaml)
    check(problem["violations"][0]["line"] == 2, problem)
    call("/v1/pipelines/other", 400, method="PUT", data=text.encode(), headers=yaml)
    call("/v1/pipelines", 415, data=text.encode(), headers={"Content-Type": "text/plain"})
    call("/v1/pipelines", 413, data=b"#" * (1 << 20) + text.encode(), headers=yaml)
    call("/v1/pipelines?dryrun=true", 400, data=text.encode(), headers=yaml)
    for path, method in (("/v1/pipelines/nobody", "GET"), ("/v1/pipelines/nobody", "DELETE"), ("/v1/pipelines/nobody/dead-letters", "GET"), ("/v1/pipelines/nobody/dead-letters/replay", "POST")):
        call(path, 404, method=method)
    letters(sid)
    running()
    gone = call("/v1/pipelines/fraud", method="DELETE")
    check(gone["offset"] == 2 and call("/v1/pipelines")["pipelines"] == [], gone)


def letters(sid):
    check(call("/v1/pipelines/fraud/dead-letters")["kinds"] == [], "letters of a topic that is not there yet")
    p.create("orders.dlq", 1)
    made = p.producer()
    at = lambda topic, offset, reason: [("__connect.errors." + k, v) for k, v in (("topic", topic), ("partition", "0"), ("offset", str(offset)), ("stage", "MAP"), ("exception.class.name", reason), ("exception.message", "no"))] + [("x-dlq-reason", reason)]
    for i in range(3):
        made.produce("orders.dlq", p.encode(sid, {"a": 1.0, "b": float(i)}), key=f"k{i}", headers=at("orders", i, "bad-input"))
    made.produce("orders.dlq", b"{", headers=at(PREFIX + "jobs.requests", 0, "evil"))
    made.flush()
    for base in ("/v1/pipelines/fraud/dead-letters", "/v1/topics/orders.dlq/dead-letters"):
        check([(k["reason"], k["source"], k["count"], k["replayed"]) for k in call(base)["kinds"]] == [("bad-input", "orders", 3, 0), ("evil", PREFIX + "jobs.requests", 1, 0)], call(base))
    check([k["count"] for k in call("/v1/topics/orders.dlq/dead-letters?reason=bad-input&partition=0:1-2&by=source")["kinds"]] == [2], "filters")
    letter = call("/v1/topics/orders.dlq/dead-letters/0/1")
    check(letter["value"]["data"] == {"a": 1.0, "b": 1.0} and letter["source"] == {"topic": "orders", "partition": 0, "offset": 1} and letter["key"]["data"] == "k1", letter)
    dry = call("/v1/pipelines/fraud/dead-letters/replay?dry_run=true", method="POST")["topics"]
    check(len(dry) == 1 and dry[0]["matching"] == 4 and dry[0]["replayed"] == 0 and dry[0]["left"] == 1 and not p.read("orders"), dry)
    done = call("/v1/pipelines/fraud/dead-letters/replay?reason=bad-input", method="POST")["topics"][0]
    check(done["replayed"] == 3 and len(p.read("orders")) == 3, done)
    again = call("/v1/topics/orders.dlq/dead-letters/replay", method="POST")["topics"][0]
    check(again["replayed"] == 0 and again["replayed_before"] == 3 and again["left"] == 1 and len(p.read("orders")) == 3, again)
    for path, status in (("/v1/topics/orders/dead-letters", 404), ("/v1/topics/nowhere/dead-letters", 404), ("/v1/topics/orders.dlq/dead-letters/0/99", 404), ("/v1/topics/orders.dlq/dead-letters/7/0", 404),
                         ("/v1/topics/orders.dlq/dead-letters/0/-1", 400), ("/v1/topics/orders.dlq/dead-letters?by=color", 400), ("/v1/topics/orders.dlq/dead-letters?since=soon", 400),
                         ("/v1/topics/orders.dlq/dead-letters?stage=X", 400)):
        call(path, status)


def nodes(held):
    node = until(lambda: call("/v1/nodes")["nodes"], 30, "a node has reported")[0]
    check(call("/v1/nodes/" + node["node"])["site"] == "local" and node["free"]["cpus"] <= node["cpus"], node)
    said = call(f"/v1/nodes/{node['node']}/drain?reason=by+hand", method="POST")
    check("by hand" in said["answer"] and said["topic"] == PREFIX + "jobs.requests" and said["offset"] >= 0, said)
    until(lambda: call("/v1/nodes/" + node["node"])["state"] == "draining", 30, "the node is drained")
    call(f"/v1/nodes/{node['node']}/resume", method="POST")
    until(lambda: call("/v1/nodes/" + node["node"])["state"] == "ready", 30, "the node takes jobs again")
    for word in ("drain", "resume", "lost"):
        call("/v1/nodes/nowhere/" + word, 404, method="POST")
    call("/v1/nodes/nowhere", 404)
    call(f"/v1/nodes/{node['node']}/explode", 404, method="POST")
    check(json.loads(p.cli("nodes", "--json").stdout)["node"] == node["node"], "the CLI has other nodes")


def refusals():
    rows = (("/v1/jobs?limit=-1", "limit"), ("/v1/jobs?user=a&user=b", "user"), ("/v1/topics?limit=1", "limit"), ("/v1/registry/models?limit=0", "limit"), ("/v1/registry/models/m/versions/x", "version"),
            ("/v1/nodes?site=a", "site"), ("/v1/jobs/x/events?limit=5001", "limit"))
    for path, field in rows:
        problem = call(path, 400)
        check(problem["code"] == "invalid-parameter" and [v["field"] for v in problem["violations"]] == [field], problem)
    for query in ("topics=logs,nothing", "topics=", "topics=logs&kinds=log"):
        check([v["field"] for v in call("/events/stream?" + query, 400)["violations"]] == ["topics"], query)
    for path in ("events", "logs", "metrics", "why"):
        call("/v1/jobs/training-nothing/" + path, 404)
    for path in ("halt", "resume", "terminate", "hold", "release", "reprioritise?priority=1"):
        call("/v1/jobs/training-nothing/" + path, 404, method="POST")
    call("/v1/jobs/training-nothing", 404, method="DELETE")


def resumes():
    """A stream that goes on with Last-Event-ID, through a gateway that is killed while jobs run, has each event of them once."""
    topic, seen, last, gaps, over = PREFIX + "jobs.events", [], "", [], time.monotonic() + 90
    address = urllib.parse.urlsplit(p.gateway)

    def listen(enough):
        nonlocal last
        while not enough() and time.monotonic() < over:
            try:
                conn = http.client.HTTPConnection(address.hostname, address.port, timeout=2)
                conn.request("GET", "/events/stream?topics=jobs.events", headers={"Authorization": "Bearer " + p.token, **({"Last-Event-ID": last} if last else {})})
                answer, block = conn.getresponse(), {}
                while not enough() and time.monotonic() < over:
                    line = answer.readline().decode()
                    if not line:
                        break
                    name, _, value = line.rstrip("\n").partition(": ")
                    if name:
                        block[name] = value
                        continue
                    if "id" in block:
                        last = block["id"]
                        seen.append(last.partition(";")[0])
                    gaps.extend([block] if block.get("event") in ("gap", "missed") else [])
                    block = {}
            except (OSError, http.client.HTTPException):
                time.sleep(0.2)
            finally:
                conn.close()

    def written():
        return {f"{topic}/{m.partition()}/{m.offset()}" for m in p.read(topic)}
    jobs = [p.submit(manifest("resumes", "sleep 1")) for _ in range(2)]
    before = written()
    listen(lambda: set(seen) >= before)
    os.kill(p.pids("gateway")[0], signal.SIGKILL)
    jobs.append(p.submit(manifest("resumes", "sleep 1")))
    for job in jobs:
        p.wait_state(job, "COMPLETED")
    all_ = written()
    listen(lambda: set(seen) >= all_)
    check(set(seen) == all_ and len(seen) == len(all_) and not gaps, f"{len(seen)} events, {len(set(seen))} different, {len(all_)} are there; {gaps}")


with Platform(without="scorers") as p:
    held = lists()
    after()
    models()
    topics()
    pipelines()
    nodes(held)
    refusals()
    resumes()
print("ok")
