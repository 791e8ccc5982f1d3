"""Sinks carry records out of Kafka once each: JSON lines and Avro containers by hour, TensorBoard's event files, a page for Prometheus. Killed at random moments
they go on without a record lost or doubled; what does not decode is there too; fastavro and a reader of event files written here, after the format's description,
read what they wrote."""
import base64, datetime, random, re, struct
from kit import *

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


def refused(p):
    for args, said in ((("files",), "--dir"), (("tensorboard",), "--dir"), (("files", "--dir", p.dir / "n", "--format", "csv"), "json and avro"), (("nosuch",), "files, tensorboard"),
                       (("prometheus", "--listen", "x:y"), "ADDRESS:PORT"), (("files", "--dir", p.dir / "n", "--topics", "logs,penstock.logs"), "twice")):
        r = p.cli("sink", *args, ok=False, timeout=20)
        check(r.returncode == 2 and said in r.stderr, f"sink {args}: {r}")
    r = p.cli("sink", "tensorboard", "--dir", p.dir / "odd", "--topics", "readings", "--exit-on-eof", ok=False)
    check(r.returncode == 3 and "it is no MetricPoint" in r.stderr, f"readings for TensorBoard: {r.returncode} {r.stderr[-300:]}")
    r = p.cli("sink", "files", "--dir", p.dir / "late", "--topics", "not.made.yet", "--exit-on-eof", ok=False)
    check(r.returncode == 0 and "not there yet" in r.stderr, f"a topic that is not there: {r}")
    print("what cannot be done is said")


with Platform() as p:
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
    refused(p)
print("ok: sinks")
