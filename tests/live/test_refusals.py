"""What is refused is said at once, with its exit status, and found afterwards: submissions that cannot run, request ids used twice, other people's jobs, what
verbs are asked for and is not there. A registry that refuses a running scorer (401, 403) ends nothing. What is not known is no number. Requests that are
read a second time, because the broker has forgotten where their readers were, do nothing."""
from kit import *

SCHEMA = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "double"}]}


def give(p, text, *args):
    path = p.dir / "refused.yml"
    path.write_text(text)
    return p.cli("submit", path, *args, ok=False)


def rejected(p):
    """A submission that the Trainer refuses: exit 10 and the reason, and every verb knows it, also after a restart; its request id stays its own."""
    wide = manifest("wide", "true").replace("gpus: 0", "gpus: 64")
    r = give(p, wide, "--request-id", "refused-1")
    tid = r.stdout.strip()
    check(r.returncode == 10 and tid.startswith("training-") and "64 GPUs" in r.stderr, f"submit of 64 GPUs: {r}")
    for turn in ("at once", "after the Trainer was killed"):
        check(p.show(tid)["state"] == "REJECTED", f"{turn}, show: {p.show(tid)}")
        check(tid in p.cli("list", "--state", "REJECTED", "--json").stdout, f"{turn}, list --state REJECTED does not have it")
        check("64 GPUs" in p.cli("why", tid).stdout and '"REJECTED"' in p.cli("events", tid, "--json").stdout, f"{turn}, why or events do not tell")
        r = give(p, manifest("mended", "true"), "--request-id", "refused-1")
        check(r.returncode == 2 and "refused-1 was used before" in r.stderr and not r.stdout, f"{turn}, its id with another manifest: {r}")
        check(give(p, wide, "--request-id", "refused-1").returncode == 10, f"{turn}, the same request again is not answered as before")
        trainer = p.pids("trainer")[0]
        os.kill(trainer, signal.SIGKILL)
        until(lambda: p.pids("trainer") and p.pids("trainer") != [trainer], 30, "the Trainer was not started again")
    r = give(p, manifest("mended", "true"), "--request-id", "refused-2")
    check(r.returncode == 0, f"mended and under an id of its own: {r}")
    again = give(p, manifest("mended", "true"), "--request-id", "refused-2")
    check(again.returncode == 0 and again.stdout == r.stdout, f"the same submission twice: {again}")
    r = give(p, manifest("mended", "echo other"), "--request-id", "refused-2")
    check(r.returncode == 2 and "refused-2 was used before" in r.stderr, f"a job's request id with another manifest: {r}")
    for text, said in ((manifest("q", "true", extra="penstock: {queue: nosuch}\n"), "there is no queue nosuch"), (manifest("c", "true").replace("cpus: 0.1", "cpus: 0"), "cpus"),
                       (manifest("k", "true", extra="penstock:\n  model:\n    name: m\n    alais: x\n"), ':12: penstock.model.alais: is not a known key; did you mean "alias"?'),
                       (manifest("s", "true", extra="data_stores: [{id: s, type: ftp_store, connection: {auth_url: 'ftp://h'}}]\n"), "ftp_store")):
        r = give(p, text)
        check(r.returncode in (2, 10) and said in r.stderr, f"not refused, or not with “{said}”: {r}")
    print("rejected submissions: exit 10 or 2, the reason, found by every verb, over kills of the Trainer")


def no_text(p):
    """A client whose strings are bytes: what is not UTF-8 is refused under its request id, and stands in no event, which others could not read then."""
    first = p.read(PREFIX + "jobs.requests")[-1].value()
    sid = struct.unpack(">I", first[1:5])[0]
    q = p.producer()
    for field, request in (("user", {"request_id": "bytes-user", "user": "@@@@"}), ("manifest", {"request_id": "bytes-manifest", "user": "ann", "manifest": manifest("@@@@", "true")}), ("options", {"request_id": "bytes-options", "user": "ann", "options": {"reason": "@@@@"}})):
        whole = p.encode(sid, {"action": "SUBMIT", "training_id": None, "time": int(time.time() * 1e6), "manifest": manifest("b", "true"), "code": None, "options": {}, **request})
        check(whole.count(b"@@@@") == 1, f"{field}: the place of the bytes")
        q.produce(PREFIX + "jobs.requests", whole.replace(b"@@@@", b"\xff\xfe\xc3("), key=request["request_id"])
    check(q.flush(30) == 0, "published")
    said = lambda: {e["request_id"]: e for e in p.events("jobs.events") if e["type"] == "REJECTED" and (e["request_id"] or "").startswith("bytes-")}
    until(lambda: len(said()) == 3, 30, lambda: f"three requests that are no text are refused: {said()}")
    for field in ("user", "manifest", "options"):
        e = said()["bytes-" + field]
        check(f"JobRequest.{field} is not UTF-8" in (e["reason"] or "") + str(e["details"]), f"{e}")
    p.events("jobs.state")  # read to its end by a client that insists on text
    print("bytes in place of text: refused under their request id, in no event")


def others(p):
    """Another user's control requests end with 6 and change nothing; what a job does not have is 4."""
    tid = p.submit(manifest("mine", "sleep 300"))
    p.wait_state(tid, "PROCESSING")
    mine, p.env = p.env, {**p.env, "PENSTOCK_USER": "mallory"}
    for verb in ("halt", "terminate", "delete"):
        r = p.cli(verb, tid, ok=False)
        check(r.returncode == 6 and "not yours" in r.stderr, f"{verb} of somebody else's job: {r}")
    p.env = mine
    check(p.show(tid)["state"] == "PROCESSING", f"somebody else's requests: {p.show(tid)}")
    for verb in ("logs", "metrics"):
        r = p.cli(verb, tid, "--process", "ps-9", ok=False)
        check(r.returncode == 4 and "no process ps-9" in r.stderr, f"{verb} of a process that is not there: {r}")
    p.cli("terminate", tid, "--wait", ok=False)
    r = p.cli("list", "--limit", "-5", ok=False)
    check(r.returncode == 2 and "--limit" in r.stderr, f"list --limit -5: {r}")
    r = p.cli("lag", "no-such-group", ok=False)
    check(r.returncode == 4 and "no-such-group" in r.stderr, f"lag of a group that is not there: {r}")
    print("other people's jobs, processes and groups that are not there: 6, 4, 2")


def unknown_lag(p):
    """The lag of a group whose topic has been deleted: null, and no negative number that would be added up."""
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient
    for t in ("behind", "gone"):
        p.create(t)
    producer = p.producer()
    producer.produce("behind", b"x")
    check(producer.flush(20) == 0, "not acknowledged")
    c = Consumer({"bootstrap.servers": p.bootstrap, "group.id": "half"})
    c.commit(offsets=[TopicPartition("behind", 0, 0), TopicPartition("gone", 0, 7)], asynchronous=False)
    c.close()

    def rows():
        return {r["topic"]: r for r in map(json.loads, p.cli("lag", "half", "--all", "--json").stdout.splitlines())}
    check(rows()["behind"]["lag"] == 1 and rows()["behind"]["committed"] == 0 and rows()["gone"]["committed"] == 7, f"lag: {rows()}")
    admin = AdminClient({"bootstrap.servers": p.bootstrap})
    admin.delete_topics(["gone"], operation_timeout=60)["gone"].result(60)
    for _ in range(5):  # the broker forgets its groups' offsets on the topic a moment later; until then, the end alone is unknown
        odd = [r for r in rows().values() if any(isinstance(v, int) and v < 0 for v in r.values())]
        check(not odd, f"what is not known is a number: {odd}")
    check(json.loads(p.http("/state")[1])["feed"]["lag"] != -1, "the gateway's lag is -1")
    print("lag that is not known is null")


def forgotten_offsets(p):
    """After a week without anybody the broker forgets where the groups were, and the requests are read again from the first: nothing runs again."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    marks, admin = p.dir / "marks", AdminClient({"bootstrap.servers": p.bootstrap})
    marks.mkdir()

    def job(name, rest):
        return p.submit(manifest(name, f"echo x >> {marks}/{name}; {rest}"))
    ids = {n: job(n, c) for n, c in {"done": "true", "failed": "exit 3", "deleted": "true", "halted": "sleep 300", "terminated": "sleep 300"}.items()}
    for n, state in {"done": "COMPLETED", "failed": "FAILED", "deleted": "COMPLETED", "halted": "PROCESSING", "terminated": "PROCESSING"}.items():
        p.wait_state(ids[n], state)
    p.cli("halt", ids["halted"]), p.cli("terminate", ids["terminated"]), p.cli("delete", ids["deleted"])
    p.wait_state(ids["halted"], "HALTED"), p.wait_state(ids["terminated"], "TERMINATED")
    until(lambda: p.show(ids["deleted"])["state"].startswith("exit"), 20, "delete does not delete")
    before, began = {n: p.show(t) for n, t in ids.items()}, {f.name: f.read_text() for f in marks.iterdir()}

    def told():  # seq 0 = an answer to a request that changed nothing
        return sorted((e["training_id"], e["seq"], e["type"]) for e in p.events("jobs.events") if e["training_id"] in ids.values() and e["seq"])
    already = told()
    p.cli("down", timeout=120)
    groups = {g.group_id for g in admin.list_consumer_groups().result().valid}
    check({"penstock.trainer"} < groups, f"groups: {groups}")

    def forgotten():  # members that are static leave when their session is over
        for g, f in admin.delete_consumer_groups(sorted(groups)).items() if groups else ():
            with contextlib.suppress(KafkaException):
                f.result(60)
                groups.discard(g)
        return not groups
    until(forgotten, 90, lambda: f"the broker does not forget {groups}", 1)
    p.up()
    p.wait_state(job("new", "true"), "COMPLETED", timeout=90)
    check({n: p.show(t) for n, t in ids.items()} == before, f"after its offsets were forgotten: { {n: p.show(t)['state'] for n, t in ids.items()} }")
    check({f.name: f.read_text() for f in marks.iterdir() if f.name != "new"} == began, f"something ran again: { {f.name: f.read_text() for f in marks.iterdir()} }")
    check(told() == already, f"events of what was over: {[e for e in told() if e not in already]}")
    print("offsets that the broker has forgotten: nothing ran again")


def times(p, path, width, factor):
    """A model that multiplies `width` numbers by a factor and adds them up."""
    import numpy as np, onnx
    from onnx import helper, TensorProto, numpy_helper
    g = helper.make_graph([helper.make_node("MatMul", ["in", "w"], ["out"])], "g", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", width])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 1])],
                          [numpy_helper.from_array(np.full((width, 1), factor, dtype=np.float32), "w")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), p.dir / path)
    return p.dir / path


def shadow_held_up(p):
    """The shadow's subject is answered by 503 for a while, and the scorer killed meanwhile: each primary is there once, no shadow twice. A spec of another
    width is not published in place of the one that runs."""
    for factor, alias in ((2, "champion"), (3, "rival")):
        p.cli("models", "register", times(p, f"sh{factor}.onnx", 1, factor), "--name", "sh", "--alias", alias)
    p.create("sh"), p.create("sh.out"), p.create("sh.rival")
    sid, registry, producer = p.register("sh-value", SCHEMA), RefusingRegistry(p.registry, "sh.rival-value"), p.producer()
    path = p.dir / "sh.yml"
    path.write_text("name: sh\ninput: {topics: [sh], group: sh}\nmodel: {name: sh, alias: champion}\nfeatures: [{field: x}]\noutput: {topic: sh.out}\n"
                    "rollout: {shadow: {alias: rival, topic: sh.rival}}\nguarantee: exactly_once\n")
    p.cli("pipelines", "apply", path)
    registry.code = 503
    run = lambda: p.spawn("score", "run", "-c", path, log="sh.log", env={**p.env, "PENSTOCK_REGISTRY": registry.url})
    sent, w = 0, run()

    def put(n):
        nonlocal sent
        for sent in range(sent + 1, sent + n + 1):
            producer.produce("sh", p.encode(sid, {"x": float(sent)}), key=str(sent))
        check(producer.flush(20) == 0, "not acknowledged")
    log = lambda: "\n".join((p.dir / "sh.log").read_text().splitlines()[-5:])
    put(50)
    until(lambda: registry.refused >= 2, 60, lambda: f"the shadow's subject is not asked for: {log()}")
    put(50)
    w.kill(), w.wait()
    w, before = run(), registry.refused
    put(50)
    until(lambda: registry.refused > before, 60, lambda: f"the next one does not ask for the shadow's subject: {log()}")
    registry.code = None
    put(50)
    keys = lambda topic: sorted(int(m.key()) for m in p.read(topic))
    until(lambda: len(keys("sh.out")) >= sent, 60, lambda: f"{len(keys('sh.out'))} of {sent} scored: {log()}", 0.5)
    check(keys("sh.out") == list(range(1, sent + 1)), f"a primary is missing or doubled: {keys('sh.out')}")
    check(len(set(keys("sh.rival"))) == len(keys("sh.rival")), f"a shadow is doubled: {keys('sh.rival')}")
    good = path.read_text()
    p.cli("models", "register", times(p, "wide.onnx", 2, 1), "--name", "wide", "--alias", "champion")
    p.cli("models", "alias", "wide", "rival", 1)
    path.write_text(good.replace("{name: sh, alias: champion}", "{name: wide, alias: champion}"))
    r = p.cli("pipelines", "apply", path, ok=False)
    check(r.returncode == 7 and f"{path}:4: the features fill 1 slots, the model's input has 2" in r.stderr, f"apply of a model of another width: {r}")
    check(json.loads(p.cli("pipelines", "show", "sh", "--json").stdout)["spec"] == good, "what was published is replaced by what check refuses")
    put(10)
    until(lambda: len(keys("sh.out")) >= sent, 60, lambda: f"after it, {len(keys('sh.out'))} of {sent} scored: {log()}", 0.5)
    w.terminate()
    check(w.wait(30) == 0, f"told to stop, it exits {w.returncode}")
    print("a shadow whose subject has to wait: every primary once; another width is not published")


def refused_while_running(p):
    """A right that the registry takes away while a scorer runs is waited for, said on /readyz; the record is scored once it is given back."""
    times(p, "m.onnx", 1, 2)
    for t in ("asked", "asked.out"):
        p.create(t, 2)
    (p.dir / "asked.yml").write_text(f"name: asked\ninput: {{topics: [asked], group: asked}}\nmodel: {{file: {p.dir}/m.onnx}}\nfeatures: [{{field: x}}]\noutput: {{topic: asked.out}}\nguarantee: exactly_once\n")
    registry, port, producer = RefusingRegistry(p.registry), free_ports(1), p.producer()
    w = p.spawn("score", "run", "-c", p.dir / "asked.yml", "--metrics-listen", f"127.0.0.1:{port}", log="asked.log", env={**p.env, "PENSTOCK_REGISTRY": registry.url})
    log = lambda: "\n".join((p.dir / "asked.log").read_text().splitlines()[-5:])

    def ready():
        try:
            return p.http("/readyz", f"http://127.0.0.1:{port}")[:2]
        except OSError as e:
            return 0, str(e).encode()

    def put(key, partition, sid, **more):
        producer.produce("asked", p.encode(sid, {"x": 1.0, **more}), key=key, partition=partition)
        check(producer.flush(20) == 0, "not acknowledged")
    scored = lambda: sorted(m.key().decode() for m in p.read("asked.out"))
    first = p.register("asked-value", SCHEMA)
    put("0", 0, first)
    until(lambda: scored() == ["0"], 40, lambda: f"the first record is not scored: {log()}", 0.3)
    want = ["0"]
    for code in (401, 403):
        sid = p.register("asked-value", {**SCHEMA, "fields": SCHEMA["fields"] + [{"name": f"of{code}", "type": "int", "default": 0}]})
        p.schema(sid)
        registry.code, before = code, registry.refused
        put(f"new{code}", 0, sid, **{f"of{code}": 1})
        until(lambda: registry.refused >= before + 2, 40, lambda: f"the registry is not asked again after {code}: {log()}")
        until(lambda: ready()[0] == 503 and str(code) in ready()[1].decode(), 20, lambda: f"after {code}, /readyz says {ready()}: {log()}")
        put(f"beside{code}", 1, first)
        want += [f"beside{code}"]
        until(lambda: scored() == sorted(want), 40, lambda: f"the other partition waits, too: {scored()}: {log()}", 0.3)
        check(w.poll() is None, f"a registry's {code} ends the scorer with {w.returncode}: {log()}")
        registry.code, want = None, want + [f"new{code}"]
        until(lambda: scored() == sorted(want), 40, lambda: f"what waited is not scored: {scored()}: {log()}", 0.3)
        until(lambda: ready()[0] == 200, 20, lambda: f"/readyz stays {ready()}")
    w.terminate()
    check(w.wait(30) == 0, f"told to stop, it exits {w.returncode}")
    print("a registry that refuses a running scorer is waited for")


with Platform(without="scorers") as p:
    for test in (unknown_lag, rejected, no_text, others, refused_while_running, shadow_held_up, forgotten_offsets):
        if len(sys.argv) < 2 or test.__name__ in sys.argv[1:]:
            test(p)
print("ok: refusals")
