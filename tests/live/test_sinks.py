"""Sinks carry records out of Kafka once each: JSON lines and Avro containers by hour, TensorBoard's event files, a page for Prometheus, OpenSearch's documents. Killed at random moments
they go on without a record lost or doubled; what does not decode is there too; fastavro and a reader of event files written here, after the format's description,
read what they wrote."""
import base64, datetime, random, re, struct
from kit import *
from bulk_kit import BulkServer

SCHEMA = {"type": "record", "name": "Reading", "fields": [{"name": "n", "type": "long"}, {"name": "x", "type": ["null", "double"]}]}
N = 3000


def crc32c(data):
    crc = 0xFFFFFFFF
    for b in data:
        crc ^= b
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    c = crc32c(data)
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(b):
    """(number, value) of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        v = shift = 0
        while True:
            v |= (b[at] & 127) << shift
            shift += 7
            at += 1
            if b[at - 1] < 128:
                return v
    while at < len(b):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        n = {1: 8, 5: 4}.get(kind) or varint()
        yield key >> 3, b[at:at + n]
        at += n


def events_of(path):
    """Event files: [(wall time, step, tag, value)], each checksum checked."""
    b, at, out = path.read_bytes(), 0, []
    while at < len(b):
        n, c = struct.unpack("<QI", b[at:at + 12])
        body = b[at + 12:at + 12 + n]
        check(c == masked(b[at:at + 8]) and struct.unpack("<I", b[at + 12 + n:at + 16 + n])[0] == masked(body), f"{path}: a checksum at {at} is wrong")
        at += 16 + n
        e = dict(fields(body))
        if 3 in e:
            check(not out and e[3] == b"brain.Event:2", f"{path}: a version in the middle, or {e[3]}")
            continue
        value = dict(fields(dict(fields(e[5]))[1]))
        out.append((struct.unpack("<d", e[1])[0], e.get(2, 0), value[1].decode(), struct.unpack("<f", value[2])[0]))
    return out


def killed_now_and_then(p, times, *args):
    """A sink that is killed so often goes on where it was."""
    for _ in range(times):
        w = p.spawn("sink", *args, log="sink.log")
        time.sleep(random.uniform(0.1, 1.2))
        w.kill()
        w.wait()
    p.cli("sink", *args, "--exit-on-eof")


def produce(p, topic, sid):
    producer = p.producer()
    for i in range(N):
        at = 1_700_000_000_000 + i * 2_000  # of two hours
        producer.produce(topic, p.encode(sid, {"n": i, "x": None if i % 7 else i / 2}), key=str(i), timestamp=at)
    for value in (b"\0\0\0\xff\xffgarbage", b"plain text", None):
        producer.produce(topic, value, key=b"\xff\xfe", timestamp=1_700_000_000_000)
    check(producer.flush(30) == 0, "not acknowledged")


def lines_of(folder, pattern):
    return [json.loads(l) for f in sorted(folder.glob(pattern)) for l in f.read_text().splitlines()]


def as_json_lines(p):
    killed_now_and_then(p, 4, "files", "--dir", p.dir / "json", "--topics", "readings")
    got = lines_of(p.dir / "json/readings", "*/*.jsonl")
    good = [l for l in got if "n" in l]
    check(sorted(l["n"] for l in good) == list(range(N)), f"{len(good)} of {N} readings in the files, {len({l['n'] for l in good})} of them different")
    check(all(l["x"] == (None if l["n"] % 7 else l["n"] / 2) and l["@kafka"]["key"] == str(l["n"]) for l in good), "a value or a key is another")
    places = [(l["@kafka"]["partition"], l["@kafka"]["offset"]) for l in got]
    check(len(set(places)) == len(places) == N + 3, f"{len(places)} lines of {len(set(places))} records, wanted {N + 3}")
    for f in (p.dir / "json/readings").glob("*/*.jsonl"):
        for l in f.read_text().splitlines():
            at = datetime.datetime.fromtimestamp(json.loads(l)["@kafka"]["timestamp"] / 1000, datetime.timezone.utc)
            check(f.parent.name + "/" + f.stem == at.strftime("%Y-%m-%d/%H"), f"a record of {at} is in {f}")
    odd = [l for l in got if "n" not in l]
    check(sorted(base64.b64decode(l["value_base64"]) for l in odd if "value_base64" in l) == [b"\0\0\0\xff\xffgarbage", b"plain text"], f"what does not decode: {odd}")
    check(any(l["@kafka"].get("tombstone") for l in odd), f"no tombstone: {odd}")
    r = p.cli("sink", "files", "--dir", p.dir / "json", "--topics", "readings", "--format", "avro", ok=False)
    check(r.returncode == 2 and "take another folder" in r.stderr, f"a folder of lines for containers: {r}")
    w = p.spawn("sink", "files", "--dir", p.dir / "json", "--topics", "readings", log="second.log")
    until(lambda: "reading" in (p.dir / "second.log").read_text(), 30, "the sink reads")
    r = p.cli("sink", "files", "--dir", p.dir / "json", ok=False, timeout=20)
    check(r.returncode != 0 and "another sink writes" in r.stderr, f"two sinks in one folder: {r}")
    w.terminate()
    check(w.wait(20) == 0, f"SIGTERM: exit {w.returncode}")
    print(f"JSON lines: {N} readings under four kills, once each")


def a_settle_that_fails(p):
    """What could not be written is not noted as written, however often the sink is started; once it can be, everything is there once."""
    d = p.dir / "broken"
    args = ("files", "--dir", d, "--topics", "readings", "--exit-on-eof")
    day = d / "readings" / datetime.datetime.fromtimestamp(1_700_000_000, datetime.timezone.utc).strftime("%Y-%m-%d")
    day.mkdir(parents=True)
    wall = day / (datetime.datetime.fromtimestamp(1_700_003_600, datetime.timezone.utc).strftime("%H") + ".jsonl")
    wall.mkdir()  # where the second hour's file should be
    for _ in range(3):
        r = p.cli("sink", *args, ok=False)
        check(r.returncode == 1 and "no regular file" in r.stderr, f"a file that cannot be written: {r}")
    wall.rmdir()
    p.cli("sink", *args)
    got = [l["n"] for l in lines_of(d / "readings", "*/*.jsonl") if "n" in l]
    check(sorted(got) == list(range(N)), f"{len(got)} lines of {len(set(got))} readings after failures")
    print("a settle that fails loses and doubles nothing")


def made_anew(p):
    """A topic that was deleted and made again is read from its beginning."""
    from confluent_kafka.admin import AdminClient
    admin, producer = AdminClient({"bootstrap.servers": p.bootstrap}), p.producer()
    args = ("files", "--dir", p.dir / "anew", "--topics", "anew", "--exit-on-eof")
    for turn, n in ((1, 20), (2, 5)):
        p.create("anew")
        for i in range(n):
            producer.produce("anew", json.dumps({"turn": turn, "i": i}))
        check(producer.flush(30) == 0, "not acknowledged")
        r = p.cli("sink", *args)
        check(turn == 1 or "was made anew" in r.stderr, f"nothing is said: {r.stderr}")
        admin.delete_topics(["anew"], operation_timeout=30)["anew"].result(30)
        until(lambda: "anew" not in admin.list_topics(timeout=10).topics, 30, "the topic is gone")
    got = sorted((l["turn"], l["i"]) for l in lines_of(p.dir / "anew/anew", "*/*.jsonl"))
    check(got == [(1, i) for i in range(20)] + [(2, i) for i in range(5)], f"{got}")
    print("a topic made anew: read from its beginning")


def as_containers(p):
    import fastavro
    killed_now_and_then(p, 3, "files", "--dir", p.dir / "avro", "--topics", "readings", "--format", "avro", "--roll", "100ms")
    got = [r for f in sorted((p.dir / "avro/readings").glob("*/*.avro")) for r in fastavro.reader(open(f, "rb"))]
    check(sorted(r["n"] for r in got) == list(range(N)), f"{len(got)} of {N} readings in the containers, {len({r['n'] for r in got})} of them different")
    check(len(lines_of(p.dir / "avro/readings", "*/*.other.jsonl")) == 3, "what is no Avro is not beside them")
    check(not list((p.dir / "avro").glob(".tmp-*")), "unfinished files are left")
    print(f"Avro containers: {N} readings under three kills, once each, read by fastavro")


def as_event_files(p, tid):
    killed_now_and_then(p, 3, "tensorboard", "--dir", p.dir / "tb")
    files = list((p.dir / "tb" / tid).glob("*/events.out.tfevents.*"))
    got = {f.parent.name: events_of(f) for f in files}
    check(sorted(got) == ["train", "validation"], f"runs of the job: {sorted(got)}")
    check([(s, t) for _, s, t, _ in got["train"]] == [(i, "loss") for i in range(1, 41)] and all(abs(v * 2**s - 1) < 1e-4 for _, s, _, v in got["train"]), f"the curve: {got['train']}")
    check([(s, t) for _, s, t, _ in got["validation"]] == [(40, "accuracy")] and abs(got["validation"][0][0] - time.time()) < 600, f"validation: {got['validation']}")
    print("TensorBoard: both runs of a job, each point once")


def as_page(p, tid):
    port = p.ports[2] if len(p.ports) > 2 else free_ports()
    w = p.spawn("sink", "prometheus", "--listen", f"127.0.0.1:{port}", "--series", "50", log="prom.log")
    base = f"http://127.0.0.1:{port}"

    def page():
        try:
            status, body, headers = p.http("/metrics", base, headers={"Accept": "application/openmetrics-text;version=1.0.0"})
        except OSError:
            return ""
        check(status == 200 and headers["Content-Type"].startswith("application/openmetrics-text"), f"/metrics: {status} {headers}")
        return body.decode()
    line = rf'^penstock_job_value{{training_id="{tid}",job_name="curve \\"x\\"",user="[^"]*",process="learner-1",group="validation",name="accuracy"}} 0.75$'
    text = until(lambda: re.search(line, t := page(), re.M) and t, 40, lambda: f"the job's value is on the page: {page()[-1500:]}")
    check(text.endswith("# EOF\n") and 'penstock_jobs{state="COMPLETED"} ' in text, f"the page: {text[-300:]}")
    number = r"(?:[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|Inf)|NaN)"
    bad = [l for l in text.splitlines() if not re.fullmatch(r'# (TYPE|HELP) \w+ .+|# EOF|\w+({(\w+="([^"\\]|\\[\\"n])*",?)*})? ' + number, l)]
    check(not bad, f"lines that are no OpenMetrics: {bad[:3]}")
    # A job that invents names takes no more than its share.
    p.wait_state(p.submit(manifest("flood", 'for i in $(seq 300); do echo "{\\"penstock\\":\\"metrics\\",\\"step\\":$i,\\"v$i\\":1}"; done')), "COMPLETED")
    until(lambda: int(re.search(r"dropped_total (\d+)", page())[1]) == 295, 40, lambda: f"5 of 300 values of the job that floods: {page()[-400:]}")
    check(re.search(line, page(), re.M), "a job that floods has pushed out another's value")
    w.terminate()
    check(w.wait(20) == 0, f"SIGTERM: exit {w.returncode}")
    print("Prometheus: latest values, bounded series")


def committed(p, group, topic, partitions):
    from confluent_kafka import Consumer, TopicPartition
    c = Consumer({"bootstrap.servers": p.bootstrap, "group.id": group})
    try:
        return [t.offset for t in c.committed([TopicPartition(topic, i) for i in range(partitions)], 30)]
    finally:
        c.close()


def as_documents(p):
    """Every fault there is, and two kills: each record is one document or one dead letter, and the offsets are behind it."""
    b = BulkServer(credentials="penstock:s3cret:word")
    b.bad = lambda doc: "For input string" if doc.get("n") in (13, 2900) else None
    b.faults = ["503", "cut", "some", "429", "late", "page", "block", "some", "cut"]
    secret = p.dir / "credentials"
    secret.write_text("penstock:s3cret:word\n")
    args = ("opensearch", "--url", b.url, "--topics", "readings", "--credentials", secret, "--timeout", "1500ms", "--bulk-bytes", "40KiB", "--group", "documents", "-X",
            "session.timeout.ms=6000")
    for stored in (200, 1200):
        w = p.spawn("sink", *args, log="sink.log")
        until(lambda: len(b.docs) >= stored, 60, lambda: f"{stored} documents; there are {len(b.docs)}: {(p.dir / 'sink.log').read_text()[-600:]}")
        check("s3cret" not in Path(f"/proc/{w.pid}/cmdline").read_text(), "a password in the list of processes")
        w.kill()
        w.wait()
    r = p.cli("sink", *args, "--exit-on-eof", ok=False, timeout=60)
    check(r.returncode == 3 and "mapper_parsing_exception" in r.stderr, f"with refused documents: exit {r.returncode} {r.stderr[-600:]}")
    ends = [0, 0, 0]
    records = {(m.partition(), m.offset()): m for m in p.read("readings")}
    for partition, offset in records:
        ends[partition] = max(ends[partition], offset + 1)
    refused_at = {at for at, m in records.items() if m.key() in (b"13", b"2900")}
    want = {("readings", f"readings-{partition}-{offset}") for partition, offset in records.keys() - refused_at}
    check(set(b.docs) == want and len(want) == N + 1, f"{len(b.docs)} documents of {len(want)}: {sorted(want ^ set(b.docs))[:5]}")
    check(max(b.writes.values()) > 1, "no answer was lost, so nothing is proved")
    for (_, name), doc in b.docs.items():
        at = tuple(map(int, name.split("-")[1:]))
        check((doc["@kafka"]["partition"], doc["@kafka"]["offset"]) == at, f"{name}: {doc}")
        if "n" in doc:
            check(str(doc["n"]).encode() == records[at].key() and doc["x"] == (None if doc["n"] % 7 else doc["n"] / 2) and doc["@timestamp"].startswith("2023-11-"), f"{name}: {doc}")
    check(committed(p, "documents", "readings", 3) == ends, f"offsets {committed(p, 'documents', 'readings', 3)}, ends {ends}")
    letters = {(int(h["__connect.errors.partition"]), int(h["__connect.errors.offset"])): m for m in p.read("readings.dlq") for h in [dict(m.headers())]}
    check(set(letters) == refused_at, f"dead letters of {sorted(letters)}, wanted {sorted(refused_at)}")
    check(all(m.value() == records[at].value() and dict(m.headers())["x-dlq-reason"] == b"mapper_parsing_exception" for at, m in letters.items()), "a dead letter is another")
    template = b.templates["penstock-sink-readings"]
    check(len(template) == 1 and template[0]["index_patterns"] == ["readings"], f"templates: {b.templates}")
    n = b.requests
    p.cli("sink", *args, "--exit-on-eof", timeout=60)
    check(b.requests == n, "a sink without news sends something")
    b.close()
    print(f"documents: {len(b.docs)} of {N + 3} records and {len(letters)} dead letters in {b.requests} requests under nine faults and two kills, {sum(b.writes.values()) - len(b.docs)} sent again")


def documents_of_jobs(p, tid):
    """The platform's own topics in one index; a server that takes small requests only; NaN."""
    nan = p.submit(manifest("nan", 'echo \'{"penstock":"metrics","step":1,"loss":"NaN","accuracy":1}\''))
    p.wait_state(nan, "COMPLETED")
    b = BulkServer(bytes_max=3000)
    env = {**p.env, "PENSTOCK_OPENSEARCH_CREDENTIALS": "ApiKey abc=="}
    w = p.spawn("sink", "opensearch", "--url", b.url + "/", "--index", "jobs", log="jobs.log", env=env)
    until(lambda: any(d.get("training_id") == nan and "values" in d for d in b.docs.values()) and any(d.get("type") == "COMPLETED" for d in b.docs.values()), 60,
          lambda: f"a metric and an event: {(p.dir / 'jobs.log').read_text()[-500:]}")
    w.terminate()
    check(w.wait(20) == 0, f"SIGTERM: exit {w.returncode}")
    check(b.seen_auth == {"ApiKey abc=="}, f"{b.seen_auth}")
    curve = [d for d in b.docs.values() if d.get("training_id") == tid and "loss" in d.get("values", {})]
    check(len(curve) == 40 and all(d["@timestamp"][:4] >= "2020" for d in curve), f"{len(curve)} of 40 points of a curve")
    odd = [d for d in b.docs.values() if d.get("training_id") == nan and "accuracy" in d.get("values", {})]
    check(odd and all(isinstance(v, (int, float)) for d in b.docs.values() for v in d.get("values", {}).values()), f"a value that is no number: {odd}")
    check({i for i, _ in b.docs} == {"jobs"} and list(b.templates) == ["penstock-sink-jobs"], f"indices {set(i for i, _ in b.docs)}, templates {list(b.templates)}")
    b.close()
    print(f"documents: {len(b.docs)} of the platform's topics in one index")


def a_server_that_is_away(p):
    """It is waited for, a stop is heard meanwhile, and nothing is committed; one that refuses everything ends the sink, and no record becomes a dead letter."""
    args = ("--topics", "readings", "--group", "away")
    w = p.spawn("sink", "opensearch", "--url", f"http://127.0.0.1:{free_ports(1)}", *args, log="away.log")
    until(lambda: "does not answer" in (p.dir / "away.log").read_text(), 60, "it says that nobody answers")
    w.terminate()
    check(w.wait(20) == 0 and committed(p, "away", "readings", 3) == [-1001] * 3, f"exit {w.returncode}, {committed(p, 'away', 'readings', 3)}")
    b = BulkServer()
    b.refuses_whole = True
    before = len(p.read("readings.dlq"))
    r = p.cli("sink", "opensearch", "--url", b.url, *args, "--exit-on-eof", ok=False, timeout=60)
    check(r.returncode == 2 and "refuses every request" in r.stderr and len(p.read("readings.dlq")) == before, f"exit {r.returncode} {r.stderr[-400:]}")
    b.close()
    locked = BulkServer(credentials="a:b")
    r = p.cli("sink", "opensearch", "--url", locked.url, *args, "--exit-on-eof", ok=False, timeout=60)
    check(r.returncode == 6 and "--credentials" in r.stderr, f"without credentials: exit {r.returncode} {r.stderr[-400:]}")
    r = p.cli("sink", "opensearch", "--url", p.registry, *args, "--exit-on-eof", ok=False, timeout=60)
    check(r.returncode == 2 and "is that the address of OpenSearch" in r.stderr, f"another server: exit {r.returncode} {r.stderr[-400:]}")
    locked.close()
    print("a server that is away, locked or another one")


def by_tls(p):
    cert, key = p.dir / "search.pem", p.dir / "search.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=127.0.0.1",
                    "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    b = BulkServer(tls=(cert, key))
    args = ("opensearch", "--url", b.url, "--topics", "anew.tls", "--exit-on-eof")
    p.create("anew.tls")
    producer = p.producer()
    producer.produce("anew.tls", json.dumps({"hello": "there"}))
    check(producer.flush(30) == 0, "not acknowledged")
    r = p.cli("sink", *args, ok=False, timeout=60)
    check(r.returncode == 6 and "--ca-file" in r.stderr and not b.docs, f"a certificate of nobody: exit {r.returncode} {r.stderr[-300:]}")
    p.cli("sink", *args, "--ca-file", cert, timeout=60)
    check([d["hello"] for d in b.docs.values()] == ["there"], f"{b.docs}")
    # The topic is made while the sink runs already, with nothing to read.
    w = p.spawn("sink", "opensearch", "--url", b.url, "--ca-file", cert, "--topics", "made.later", log="later.log")
    until(lambda: "reading 0 partitions" in (p.dir / "later.log").read_text(), 30, "the sink runs")
    time.sleep(0.5)  # some rounds without a consumer
    check(w.poll() is None, f"a sink without a topic: exit {w.poll()}")
    w.terminate()
    check(w.wait(20) == 0, f"SIGTERM: exit {w.returncode}")
    # A dead letter that its topic does not take ends the sink, and its record is not behind the offsets.
    b.bad = lambda doc: "no" if "large" in doc else None
    p.create("large")
    p.create("large.dlq", **{"max.message.bytes": "1000"})
    producer.produce("large", json.dumps({"large": base64.b64encode(os.urandom(5000)).decode()}))
    check(producer.flush(30) == 0, "not acknowledged")
    r = p.cli("sink", "opensearch", "--url", b.url, "--ca-file", cert, "--topics", "large", "--group", "large", "--exit-on-eof", ok=False, timeout=60)
    check(r.returncode == 1 and "--dead-letters none" in r.stderr and committed(p, "large", "large", 1) == [-1001], f"a letter too large: exit {r.returncode} {r.stderr[-400:]}")
    b.close()
    print("documents by TLS, a topic that is not there yet, a letter that does not fit")


def scraped(p):
    """One scrape configuration reaches every service: the file that Prometheus follows names each, and each serves metrics of its own; a port that is taken costs one restart."""
    def targets():
        return {t["labels"]["service"]: t["targets"][0] for t in json.loads((p.dir / "state/metrics-targets.json").read_text())}
    want = {"registry": "penstock_registry_requests_total", "gateway": "penstock_gateway_streams", "trainer": 'penstock_trainer_job_events_total{type="COMPLETED",code=""}', "lcm": "penstock_lcm_epoch 1",
            "sink:prometheus": 'penstock_jobs{state="COMPLETED"}'}
    check(set(targets()) == set(want), f"targets: {targets()}")

    def page(name):
        try:
            return p.http("/metrics", "http://" + targets()[name])[1].decode()
        except OSError:
            return ""
    for name, line in want.items():
        until(lambda: line in page(name), 30, lambda: f"{line} of {name} at {targets()[name]}: {page(name)[:600]}")
    host, port = targets()["lcm"].split(":")
    pid, = p.pids("lcm")
    with socket.socket() as taken:  # between an end and the next start somebody else has the port
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid), 20, "the LCM is gone")
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((host, int(port)))
            taken.listen()
        except OSError:
            pass  # it runs again already
        until(lambda: "penstock_lcm_epoch 2" in page("lcm"), 60, lambda: f"an LCM with another port: {targets()} {p.status()}")


def beside_the_services(p, b, folder):
    """`up --with`: rows in status, restarted when they end, the credentials in nobody else's environment, ended by down."""
    rows = {s["name"]: s for s in p.status()["services"]}
    check({"sink:opensearch", "sink:files", "sink:prometheus"} <= set(rows), f"services: {list(rows)}")
    os.kill(rows["sink:files"]["pid"], signal.SIGKILL)
    until(lambda: any(s["name"] == "sink:files" and s["restarts"] == 1 and s["pid"] for s in p.status()["services"]), 30, "a killed sink runs again")
    until(lambda: list(folder.glob("penstock.jobs.events/*/*.jsonl")) and any(i == "up" for i, _ in b.docs), 60, lambda: f"files in {folder} and documents: {len(b.docs)}")
    check(b.seen_auth == {"Bearer t0psecret"}, f"{b.seen_auth}")
    for s in p.status()["services"]:
        environment = Path(f"/proc/{s['pid']}/environ").read_bytes()
        check((b"t0psecret" in environment) == (s["name"] == "sink:opensearch"), f"credentials in the environment of {s['name']}")
    for word, said in (("nosuch=1", "there is opensearch=URL"), ("files", "files=DIR"), ("files=a,files=b", "twice"), ("files=a;format", ";OPTION=VALUE")):
        r = p.cli("up", "--with", word, "--state-dir", p.dir / "other", ok=False, timeout=20)
        check(r.returncode == 2 and said in r.stderr, f"up --with {word}: {r}")
    scraped(p)
    pids = [s["pid"] for s in p.status()["services"]]
    p.cli("down", timeout=120)
    check(not (p.dir / "state/metrics-targets.json").exists(), "targets of services that are gone")
    check(not any(alive(pid) for pid in pids), "down left a sink")
    print("up --with: sinks as services")


def refused(p):
    for args, said in ((("files",), "--dir"), (("tensorboard",), "--dir"), (("files", "--dir", p.dir / "n", "--format", "csv"), "json and avro"), (("nosuch",), "files, tensorboard"), (("opensearch",), "--url"),
                       (("opensearch", "--url", "http://u:pw@127.0.0.1:9"), "no credentials in the address"), (("opensearch", "--url", "127.0.0.1:9"), "http://HOST"),
                       (("opensearch", "--url", "http://127.0.0.1:9", "--index", "Jobs"), "`jobs` would do"), (("opensearch", "--url", "http://127.0.0.1:9", "--template", "x"), "once, replace"),
                       (("prometheus", "--listen", "x:y"), "ADDRESS:PORT"), (("files", "--dir", p.dir / "n", "--topics", "logs,penstock.logs"), "twice")):
        r = p.cli("sink", *args, ok=False, timeout=20)
        check(r.returncode == 2 and said in r.stderr, f"sink {args}: {r}")
    r = p.cli("sink", "tensorboard", "--dir", p.dir / "odd", "--topics", "readings", "--exit-on-eof", ok=False)
    check(r.returncode == 3 and "it is no MetricPoint" in r.stderr, f"readings for TensorBoard: {r.returncode} {r.stderr[-300:]}")
    r = p.cli("sink", "files", "--dir", p.dir / "late", "--topics", "not.made.yet", "--exit-on-eof", ok=False)
    check(r.returncode == 0 and "not there yet" in r.stderr, f"a topic that is not there: {r}")
    print("what cannot be done is said")


beside = BulkServer()
os.environ.pop("PENSTOCK_OPENSEARCH_CREDENTIALS", None)
with tempfile.TemporaryDirectory() as outside, Platform(up=False) as p:
    p.env["PENSTOCK_OPENSEARCH_CREDENTIALS"] = "Bearer t0psecret"
    p.up_args = ["--with", f"opensearch={beside.url};index=up,files={outside}/sink;topics=jobs.events,logs", "--with", f"prometheus=127.0.0.1:{free_ports(1)}"]
    p.up()
    del p.env["PENSTOCK_OPENSEARCH_CREDENTIALS"]
    curve = p.submit(manifest('"curve \\"x\\""', 'for i in $(seq 40); do echo "{\\"penstock\\":\\"metrics\\",\\"group\\":\\"train\\",\\"step\\":$i,\\"loss\\":$(awk "BEGIN{print 1/2^$i}")}"; done; '
                              'echo "{\\"penstock\\":\\"metrics\\",\\"group\\":\\"validation\\",\\"step\\":40,\\"accuracy\\":0.75}"'))
    p.create("readings", 3)
    produce(p, "readings", p.register("readings-value", SCHEMA))
    p.wait_state(curve, "COMPLETED")
    as_json_lines(p)
    a_settle_that_fails(p)
    made_anew(p)
    as_containers(p)
    as_event_files(p, curve)
    as_page(p, curve)
    as_documents(p)
    documents_of_jobs(p, curve)
    a_server_that_is_away(p)
    by_tls(p)
    refused(p)
    beside_the_services(p, beside, Path(outside) / "sink")
print("ok: sinks")
