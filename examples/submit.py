#!/usr/bin/env python3
"""Publish a job request with a Kafka client that knows nothing of penstock, then follow its status, log lines and metrics.

    pip install confluent-kafka fastavro
    examples/submit.py examples/shell-learner/manifest.yml
    examples/submit.py -b broker:9092 --registry http://registry:8081 --json examples/python-learner/manifest.yml

The request goes to <prefix>jobs.requests as Avro of the registered schema, or with --json as plain JSON text, which is accepted too. The
code is the manifest's folder, sent as a zip archive inside the event. Exit status: 0 completed, 10 failed, 11 halted or terminated,
1 rejected, 124 timed out.
"""
import argparse, base64, getpass, io, json, os, struct, sys, time, urllib.error, urllib.request, uuid, zipfile
from pathlib import Path

try:
    import fastavro
    from confluent_kafka import Consumer, Producer, TopicPartition, KafkaException
except ImportError as e:
    sys.exit(f"{e}; pip install confluent-kafka fastavro")

ENDED = {"COMPLETED": 0, "FAILED": 10, "HALTED": 11, "TERMINATED": 11}
CODE_MAX = 900_000  # an event is a Kafka record, 1 MB at most by default


class Registry:
    """The few calls of a Confluent-compatible registry that are needed: the latest schema of a subject, a schema by id."""

    def __init__(self, url):
        self.url, self.by_id = url.rstrip("/"), {}

    def get(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as r:
                return json.load(r)
        except urllib.error.HTTPError as e:
            sys.exit(f"{self.url}{path}: {e.code} {e.read().decode(errors='replace')[:200]}")
        except OSError as e:
            sys.exit(f"no schema registry at {self.url}: {e}; give --registry")

    def latest(self, subject):
        found = self.get(f"/subjects/{subject}/versions/latest")
        return found["id"], fastavro.parse_schema(json.loads(found["schema"]))

    def decode(self, value):
        """A record's value: 0x00, the schema's id (4 bytes, big-endian), Avro."""
        if not value or value[0] != 0:
            return None
        schema_id = struct.unpack(">I", value[1:5])[0]
        if schema_id not in self.by_id:
            self.by_id[schema_id] = fastavro.parse_schema(json.loads(self.get(f"/schemas/ids/{schema_id}")["schema"]))
        return fastavro.schemaless_reader(io.BytesIO(value[5:]), self.by_id[schema_id])


def profile(state_dir):
    """Addresses that a running `penstock up` left for clients like this one."""
    try:
        return json.loads((Path(state_dir) / "profile.json").read_text())
    except (OSError, ValueError):
        return {}


def arguments():
    state = os.environ.get("PENSTOCK_STATE_DIR") or Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "penstock"
    known = profile(state)
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("manifest", type=Path, help="the job's manifest.yml")
    p.add_argument("-b", "--bootstrap-server", default=os.environ.get("PENSTOCK_BOOTSTRAP_SERVERS") or known.get("bootstrap") or "localhost:9092",
                   help="Kafka brokers (%(default)s)")
    p.add_argument("--registry", default=os.environ.get("PENSTOCK_REGISTRY") or known.get("registry") or "http://localhost:8081",
                   help="schema registry (%(default)s)")
    p.add_argument("--prefix", default=os.environ.get("PENSTOCK_TOPIC_PREFIX", "penstock."), help="of the platform's topics (%(default)s)")
    p.add_argument("-X", action="append", default=[], metavar="K=V", help="any librdkafka property, such as security.protocol=SASL_SSL")
    p.add_argument("--code", type=Path, help="folder or zip file sent with the request (default: the manifest's folder)")
    p.add_argument("--no-code", action="store_true", help="send the manifest alone")
    p.add_argument("--user", default=os.environ.get("USER") or getpass.getuser(), help="who asks (%(default)s)")
    p.add_argument("--request-id", default=str(uuid.uuid4()), help="the same user and request id is the same job, however often it is published")
    p.add_argument("--json", action="store_true", help="publish plain JSON text in place of Avro")
    p.add_argument("--no-follow", action="store_true", help="publish and leave")
    p.add_argument("--timeout", type=float, default=600, metavar="S", help="stop following after so many seconds (%(default)s)")
    return p.parse_args()


def code_of(a):
    if a.no_code:
        return None
    source = a.code or a.manifest.resolve().parent
    if source.is_file():
        data = source.read_bytes()
    else:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
            for path in sorted(source.rglob("*")):
                if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts:
                    z.write(path, path.relative_to(source))
        data = out.getvalue()
    if len(data) > CODE_MAX:
        sys.exit(f"{source} makes {len(data)} bytes, more than an event holds ({CODE_MAX}); put it into an object store and name its uri")
    return {"media_type": "application/zip", "content": data}


def request_of(a):
    return {"request_id": a.request_id, "action": "SUBMIT", "user": a.user, "time": int(time.time() * 1e6), "manifest": a.manifest.read_text(),
            "code": code_of(a)}


def encode(a, registry, request):
    if a.json:
        text = dict(request, code=request["code"] and dict(request["code"], content=base64.b64encode(request["code"]["content"]).decode()))
        return json.dumps({k: v for k, v in text.items() if v is not None}).encode()
    schema_id, schema = registry.latest(a.prefix + "jobs.requests-value")
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, schema_id))
    fastavro.schemaless_writer(out, schema, request)
    return out.getvalue()


def open_topics(consumer, topics):
    """Every partition from its present end on: what follows is about what we publish now."""
    parts = []
    for topic in topics:
        found = consumer.list_topics(topic, timeout=15).topics[topic]
        if found.error:
            sys.exit(f"{topic}: {found.error}; is this the broker that `penstock up` uses?")
        for p in found.partitions:
            end = consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=15)[1]
            parts.append(TopicPartition(topic, p, end))
    consumer.assign(parts)


def clock(t):
    return t.strftime("%H:%M:%S") if hasattr(t, "strftime") else time.strftime("%H:%M:%S", time.gmtime(t / 1e6))


def show(kind, e):
    if kind == "events":
        why = f": {e['reason']}" if e["reason"] else ""
        where = f" ({e['process']})" if e["process"] else ""
        print(f"{clock(e['time'])} {e['type']}{where} → {e['state']}{why}")
        for key, text in sorted((e["details"] or {}).items()) if e["type"] == "REJECTED" else ():
            print(f"         {key}: {text}")
    elif kind == "logs":
        print(f"{clock(e['time'])}   {e['process']} | {e['text']}")
    elif e["group"] != "system":
        at = f"epoch {e['epoch']:g}" if e["epoch"] is not None else f"step {e['step']}"
        print(f"{clock(e['time'])}   {e['process']} {e['group']} {at}  " + "  ".join(f"{k} {v:g}" for k, v in sorted(e["values"].items())))
    sys.stdout.flush()


def follow(a, registry, consumer):
    """Prints what concerns the request until its job has ended; records of other jobs are passed over."""
    training_id, status, end, held = None, None, time.monotonic() + a.timeout, []
    while time.monotonic() < end:
        m = consumer.poll(0.2)
        if m is None:
            if status is not None:
                return status
            continue
        if m.error():
            print(f"kafka: {m.error()}", file=sys.stderr)
            continue
        kind, e = m.topic()[len(a.prefix):].rpartition(".")[2], registry.decode(m.value())
        if e is None:
            continue
        if kind == "events" and e["request_id"] == a.request_id and e["training_id"] and not training_id:
            training_id = e["training_id"]
            print(f"the job is {training_id}")
            for k, h in held:  # logs and metrics may come before the first event: they are other topics
                if h["training_id"] == training_id:
                    show(k, h)
            held = []
        mine = e["training_id"] == training_id if training_id else kind == "events" and e["request_id"] == a.request_id
        if not mine:
            if not training_id and kind != "events":
                held = (held + [(kind, e)])[-1000:]
            continue
        show(kind, e)
        if kind == "events":
            if e["type"] == "REJECTED":
                return 1
            if e["state"] in ENDED and status is None:
                status = ENDED[e["state"]]
                end = min(end, time.monotonic() + 5)  # the last log lines are on their way
    if status is None:
        print(f"not ended after {a.timeout:g} s; penstock show {training_id or ''} tells more", file=sys.stderr)
        return 124
    return status


def main():
    a = arguments()
    properties = {"bootstrap.servers": a.bootstrap_server, **dict(x.split("=", 1) for x in a.X)}
    registry = Registry(a.registry)
    topic = a.prefix + "jobs.requests"
    try:
        consumer = Consumer({**properties, "group.id": f"submit-py-{a.request_id}", "enable.auto.commit": False, "isolation.level": "read_committed"})
        if not a.no_follow:
            open_topics(consumer, [a.prefix + t for t in ("jobs.events", "logs", "metrics")])
        failed = []
        producer = Producer({**properties, "enable.idempotence": True})
        producer.produce(topic, encode(a, registry, request_of(a)), key=a.request_id, on_delivery=lambda err, m: failed.append(err) if err else None)
        if producer.flush(30) or failed:
            sys.exit(f"the request was not acknowledged: {failed[0] if failed else 'no answer within 30 s'}")
    except KafkaException as e:
        sys.exit(f"{a.bootstrap_server}: {e.args[0]}")
    print(f"published request {a.request_id} to {topic}")
    status = 0 if a.no_follow else follow(a, registry, consumer)
    consumer.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
