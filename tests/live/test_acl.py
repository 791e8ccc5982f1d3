"""On a Kafka with an authorizer every component runs under a user of its own that has what `penstock topics acls` prints and nothing else: a job runs,
its model scores a stream, people look. Who lacks a right says so: a verb ends with 6, a service waits."""
import json, subprocess, time
import base64
from kit import *
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType, ResourceType

COMPONENTS = ("up", "registry", "trainer", "lcm", "gateway", "scorer", "user", "viewer", "auditor")
KIND = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "transactional-id": ResourceType.TRANSACTIONAL_ID}
OPERATION = {"Read": AclOperation.READ, "Write": AclOperation.WRITE, "Create": AclOperation.CREATE, "Describe": AclOperation.DESCRIBE,
             "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS}


class Secured(Platform):
    """A Kafka with users; services start one by one."""

    def __init__(self):
        super().__init__(up=False)
        self.kafka("stop")
        shutil.rmtree(self.dir / "kafka")
        self.kafka("start", "--sasl", "--port", str(free_ports()))
        self.kafka("stop")
        with open(self.dir / "kafka/conf/users", "a") as f:
            f.writelines(f"penstock-{c} {c}-secret\n" for c in COMPONENTS + ("nobody", "looker"))
        self.kafka("start")
        status = json.loads(self.kafka("status", "--json"))
        self.bootstrap, self.sasl = status["bootstrap"], next(v for k, v in status["listeners"].items() if "sasl" in k.lower())
        self.env["PENSTOCK_BOOTSTRAP_SERVERS"] = self.sasl
        self.registry = self.env["PENSTOCK_REGISTRY"] = f"http://127.0.0.1:{self.ports[0]}"

    def file_of(self, who):
        f = self.dir / f"{who}.properties"
        f.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=penstock-{who}\nsasl.password={who}-secret\n")
        return f

    def service(self, who, *args):
        return self.spawn(*args, "-F", self.file_of(who), log=f"{who}.log")

    def verb(self, who, *args, **kw):
        return self.cli(*args, "-F", self.file_of(who), **kw)

    def log_of(self, who):
        f = self.dir / f"{who}.log"
        return f.read_text(errors="replace") if f.exists() else ""

    def allow(self, pipeline):
        rows = [json.loads(l) for l in self.cli("topics", "acls", "--json", "--pipeline", pipeline).stdout.splitlines()]
        check({r["component"] for r in rows} == set(COMPONENTS), f"components of the table: {sorted({r['component'] for r in rows})}")
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        acls = [AclBinding(KIND[r["resource"]], r["name"], ResourcePatternType.PREFIXED if r["pattern"] == "prefixed" else ResourcePatternType.LITERAL, r["principal"], "*",
                           OPERATION[r["operation"]], AclPermissionType.ALLOW) for r in rows]
        for f in admin.create_acls(acls).values():
            f.result(30)
        return rows


def lacks_nothing(p):
    """No component was refused anything."""
    refused = {c: [l for l in p.log_of(c).splitlines() if "uthoriz" in l][:2] for c in COMPONENTS}
    check(not any(refused.values()), f"refused under the table's rights: { {c: l for c, l in refused.items() if l} }")


def an_unreadable_topic_spoils_no_other(p):
    """Behind a marker there is nothing to read: where that may be looked at the lag is 0, beside a topic where it may not."""
    from confluent_kafka import Consumer, TopicPartition
    for topic in ("lag.open", "lag.shut"):
        p.create(topic, 1)
    admin = AdminClient({"bootstrap.servers": p.bootstrap})
    may = lambda kind, name, operation: AclBinding(kind, name, ResourcePatternType.LITERAL, "User:penstock-looker", "*", operation, AclPermissionType.ALLOW)
    for f in admin.create_acls([may(ResourceType.TOPIC, "lag.open", AclOperation.READ), may(ResourceType.TOPIC, "lag.shut", AclOperation.DESCRIBE),
                                may(ResourceType.GROUP, "lag-g", AclOperation.DESCRIBE)]).values():
        f.result(30)
    producer = p.producer(**{"transactional.id": "lag-t", "transaction.timeout.ms": 300000})
    producer.init_transactions(30)
    producer.begin_transaction()
    for topic in ("lag.open", "lag.shut"):
        producer.produce(topic, b"x", partition=0)
    producer.commit_transaction(30)
    c = Consumer({"bootstrap.servers": p.bootstrap, "group.id": "lag-g", "enable.auto.commit": False})
    c.commit(offsets=[TopicPartition(t, 0, 1) for t in ("lag.open", "lag.shut")], asynchronous=False)
    c.close()
    for args in (("lag", "lag-g"), ("lag",)):
        r = p.verb("looker", *args, "--all", "--json", ok=False)
        lags = {x["topic"]: x["lag"] for x in map(json.loads, r.stdout.splitlines())}
        check(lags == {"lag.open": 0, "lag.shut": 1}, f"`{' '.join(args)}` of who may read one topic only: {lags} {r.stderr[-300:]}")


with Secured() as p:
    pipeline = p.dir / "pipe.yml"
    pipeline.write_text("name: acl\ninput: {topics: [acl.in], group: acl-g, start: earliest, format: json}\nmodel: {name: aclm, alias: champion}\n"
                        "features: [{field: a}]\noutput: {topic: acl.out, format: full}\nguarantee: exactly_once\n")
    p.allow(pipeline)
    p.create("acl.in")
    r = p.verb("nobody", "topics", "create", ok=False)
    check(r.returncode == 6 and "uthoriz" in r.stderr, f"`topics create` of a user without rights exits {r.returncode}: {r.stderr[-300:]}")
    p.service("registry", "registry", "--port", p.ports[0])
    until(lambda: subprocess.run(["curl", "-fs", p.registry + "/subjects"], capture_output=True).returncode == 0, 30, lambda: "the registry answers: " + p.log_of("registry")[-400:])
    p.verb("up", "topics", "create")
    p.service("trainer", "trainer")
    p.service("lcm", "lcm")
    hashed = subprocess.run([BIN, "user", "hash"], input="a word\n", text=True, capture_output=True, check=True).stdout.strip()
    (p.dir / "users").write_text(f"olga:{hashed}:operator\n")
    (p.dir / "users").chmod(0o600)
    p.service("gateway", "gateway", "--port", p.ports[1], "--users", p.dir / "users")
    m = p.dir / "job.yml"
    # A model of one input and y = x, made by hand: ONNX is protobuf, and the learner has no Python.
    import onnx
    from onnx import TensorProto as T, helper as h
    g = h.make_graph([h.make_node("Identity", ["x"], ["y"])], "same", [h.make_tensor_value_info("x", T.FLOAT, ["N", 1])], [h.make_tensor_value_info("y", T.FLOAT, ["N", 1])])
    model = h.make_model(g, opset_imports=[h.make_opsetid("", 17)])
    model.ir_version = 8
    (p.dir / "code").mkdir()
    onnx.save(model, p.dir / "code/model.onnx")
    m.write_text(manifest("acl", 'echo "{\\"penstock\\":\\"metrics\\",\\"step\\":1,\\"loss\\":0.5}"; mkdir -p $RESULT_DIR/model; cp model.onnx $RESULT_DIR/model/model.onnx',
                          extra="penstock: {model: {name: aclm, alias: champion}}\n"))
    r = p.verb("user", "submit", m, p.dir / "code", "--wait", ok=False, timeout=80)
    check(r.returncode == 0, f"submit --wait exits {r.returncode}: {r.stderr[-400:]}; trainer: {p.log_of('trainer')[-500:]}; lcm: {p.log_of('lcm')[-500:]}")
    tid = r.stdout.strip()
    for verb in (("list",), ("show", tid), ("logs", tid), ("metrics", tid), ("models", "list"), ("cat", "-t", PREFIX + "jobs.events", "-e")):
        r = p.verb("viewer", *verb, ok=False)
        check(r.returncode == 0 and r.stdout.strip(), f"`{' '.join(verb)}` of a viewer exits {r.returncode}: {r.stderr[-300:]}")
    r = p.verb("viewer", "submit", m, ok=False, timeout=60)
    check(r.returncode == 6 and "uthoriz" in r.stderr, f"`submit` of a viewer exits {r.returncode}: {r.stderr[-300:]}")
    r = p.verb("viewer", "terminate", tid, ok=False, timeout=60)
    check(r.returncode == 6, f"`terminate` of a viewer exits {r.returncode}: {r.stderr[-300:]}")
    p.service("scorer", "score", "run", "-c", pipeline)
    producer = p.producer()
    for i in range(50):
        producer.produce("acl.in", json.dumps({"a": i}) if i % 10 else b"poison", key=str(i))
    check(producer.flush(30) == 0, "the input was not acknowledged")
    until(lambda: "acl.out" in AdminClient({"bootstrap.servers": p.bootstrap}).list_topics(timeout=20).topics, 40, lambda: "the scorer makes its output: " + p.log_of("scorer")[-500:])
    scored = p.read("acl.out", lambda ms: len(ms) >= 45, 40)
    dead = p.read("acl.in.dlq", lambda ms: len(ms) >= 5, 20)
    check(sorted(int(x.key()) for x in scored) == [i for i in range(50) if i % 10], f"{len(scored)} scores")
    check(len(dead) == 5, f"{len(dead)} dead letters")
    check(all(p.decode(x.value())["score"] == [float(x.key())] for x in scored), "the scores are not the model's")
    # Dead letters: a viewer counts them, a user puts them back, and they die again; nobody else may.
    r = p.verb("viewer", "dlq", "ls", "acl.in.dlq", "--json")
    check(sum(json.loads(l)["count"] for l in r.stdout.splitlines()) == 5, f"`dlq ls` of a viewer: {r}")
    for who in ("nobody", "viewer"):
        r = p.verb(who, "dlq", "replay", "acl.in.dlq", "--yes", ok=False, timeout=60)
        check(r.returncode == (6 if who == "viewer" else 4) or "uthoriz" in r.stderr, f"`dlq replay` of {who}: {r}")
    r = p.verb("user", "dlq", "replay", "acl.in.dlq", "--yes", "-p", "0:0-4")
    check("5 dead letters put back" in r.stderr, f"`dlq replay` of a user: {r}")
    again = p.read("acl.in.dlq", lambda ms: len(ms) >= 10, 40)
    check(len(again) == 10 and sum(("x-dlq-replays", b"1") in x.headers() for x in again) == 5, f"replayed, they die again and say so: {len(again)}")
    gateway, olga = f"http://127.0.0.1:{p.ports[1]}", {"Authorization": "Basic " + base64.b64encode(b"olga:a word").decode()}
    status, body, _ = p.http(f"/v1/jobs/{tid}", gateway, headers=olga)
    check(status == 200 and json.loads(body)["state"] == "COMPLETED", f"GET of the job: {status} {body[:200]}")
    # What users did stands on a topic that the gateway writes and an auditor alone reads.
    check(p.http("/v1/queues/nowhere", gateway, headers=olga, method="DELETE")[0] == 404, "a queue that there is not is removed")
    until(lambda: '"deleteQueue"' in p.verb("auditor", "cat", "-t", PREFIX + "audit", "-e", ok=False).stdout, 30, lambda: f"an auditor reads {p.verb('auditor', 'cat', '-t', PREFIX + 'audit', '-e', ok=False)}")
    r = p.verb("viewer", "cat", "-t", PREFIX + "audit", "-e", ok=False, timeout=60)
    check(r.returncode == 6 and not r.stdout, f"a viewer reads the audit: {r}")
    lacks_nothing(p)
    # What has no right says which right is missing and waits for it, ready to stop: the right may be granted any moment.
    stranger = p.service("nobody", "score", "run", "-c", pipeline)
    until(lambda: "event=waiting" in p.log_of("nobody") and "uthoriz" in p.log_of("nobody"), 40, lambda: "a scorer without rights says so: " + p.log_of("nobody")[-400:])
    check(PREFIX + "models" in p.log_of("nobody"), f"it does not name the topic: {p.log_of('nobody')[-400:]}")
    stranger.terminate()
    until(lambda: stranger.poll() is not None, 15, "a scorer that waits for a right ends on SIGTERM")
    check(len(p.read("acl.out", timeout=20)) == 45, "a scorer without rights scored")
    an_unreadable_topic_spoils_no_other(p)
print("ok: every component under its own user, with the table's rights and no more")
