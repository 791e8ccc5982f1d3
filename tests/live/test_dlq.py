"""`penstock dlq` on a real Kafka: dead letters of a scorer and of other clients (hostile headers, no headers, aborted, a schema that is gone) counted, shown and
put back, each once: across filters, kill -9 in the middle, two at a time, a topic made anew."""
from kit import *

CONNECT = "__connect.errors."


def connect(topic, partition, offset, reason="bad-envelope", stage="DECODE", message="no", component="pipe"):
    return [(CONNECT + "topic", topic), (CONNECT + "partition", str(partition)), (CONNECT + "offset", str(offset)), (CONNECT + "connector.name", component),
            (CONNECT + "stage", stage), (CONNECT + "exception.class.name", reason), (CONNECT + "exception.message", message), ("x-dlq-reason", reason)]


def rows(r):
    return [json.loads(l) for l in r.stdout.splitlines()]


with Platform(up=False) as p:
    p.start_registry()
    p.cli("topics", "create")
    for topic, n in (("in", 4), ("in.dlq", 2), ("many", 3), ("many.dlq", 2), ("elsewhere", 1), ("plain", 1), ("small", 1)):
        p.create(topic, n, **({"max.message.bytes": "2000"} if topic == "small" else {}))
    sid = p.register("in-value", {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "t", "type": "string"}]})
    avro, T = p.encode(sid, {"a": 7, "t": "seven"}), 1700000000000
    q = p.producer()

    def put(topic, value, key, headers, partition, ts):
        q.produce(topic, value, key=key, headers=headers, partition=partition, timestamp=ts)
    # in.dlq [0]: 0 avro, 1 tombstone, 2 a schema that is gone, 3 a JSON text, 4 bytes with controls, 5 of a partition that `in` has not; [1]: strangers
    put("in.dlq", avro, b"k0", [("trace", b"t1"), ("bin", b"\x00\xff"), ("trace", b"t2")] + connect("in", 3, 11, "bad-input", "MAP", "line\nwith \x1b[31mcontrol"), 0, T)
    put("in.dlq", None, b"k1", connect("in", 1, 5, "null-value"), 0, T + 1000)
    put("in.dlq", b"\x00\x00\x00\x27\x0f" + b"x" * 20, b"k2", connect("in", 2, 6, "unknown-schema"), 0, T + 2000)
    put("in.dlq", b'{"x": [1, 2]}', None, connect("in", 0, 7), 0, T + 3000)
    put("in.dlq", b"\x80\x01\x1b" * 3000, b"k4", connect("in", 0, 8), 0, T + 4000)
    put("in.dlq", b"{", b"k5", connect("in", 77, 9) + [("x-dlq-replays", "2")], 0, T + 5000)
    for name in ("penstock.jobs.requests", "__consumer_offsets", "gone", "in.dlq", "../etc", "n" * 300, "", "a b"):
        put("in.dlq", b'{"action":"SUBMIT"}', b"h", connect(name, "x1", "-4", "evil"), 1, T + 6000)
    put("in.dlq", b"no letter", None, [], 1, T)
    check(q.flush(60) == 0, "written")
    aborted = p.producer(**{"transactional.id": "aborted", "message.timeout.ms": 30000})
    aborted.init_transactions(60)
    aborted.begin_transaction()
    aborted.produce("in.dlq", b"aborted", headers=connect("in", 0, 99, "aborted"), partition=1)
    aborted.flush(60)
    aborted.abort_transaction(60)

    # --- ls ---
    got = rows(p.cli("dlq", "ls", "in.dlq", "--json"))
    kinds = {(g["source"], g["stage"], g["reason"]): g["count"] for g in got}
    check(kinds == {("in", "MAP", "bad-input"): 1, ("in", "DECODE", "null-value"): 1, ("in", "DECODE", "unknown-schema"): 1, ("in", "DECODE", "bad-envelope"): 3,
                    **{(n, "DECODE", "evil"): 1 for n in ("penstock.jobs.requests", "__consumer_offsets", "gone", "in.dlq")}}, f"ls: {kinds}")
    loose = ("-X", "isolation.level=read_uncommitted")  # of a client.properties, say: what was aborted is no dead letter for that
    check({(g["source"], g["stage"], g["reason"]): g["count"] for g in rows(p.cli("dlq", "ls", "in.dlq", "--json", *loose))} == kinds, "ls counts what was aborted")
    for args, n in (((), 0), (loose, 1), (("--uncommitted",), 1), (("--uncommitted", "-X", "isolation.level=read_committed"), 1)):
        check(p.cli("cat", "in.dlq", "-e", "--raw", *args).stdout.count("aborted") == n, f"cat {args} of what was aborted")
    newest = next(g for g in got if g["count"] == 3)
    check(newest["newest"] == {"partition": 0, "offset": 5, "message": "no"} and newest["first"].startswith("2023-11-14T22:13:23") and newest["replayed"] == 0, f"newest: {newest}")
    r = p.cli("dlq", "ls", "in.dlq", "--reason", "bad-input", "--color", "never")
    check("\x1b" not in r.stdout and "bad-input" in r.stdout and len(r.stdout.splitlines()) == 2, f"ls shows controls: {r.stdout!r}")
    got = rows(p.cli("dlq", "ls", "in.dlq", "--json", "--by", "partition,hour", "--source", "in"))
    check({(g["partition"], g["hour"], g["count"]) for g in got} == {(n, "2023-11-14T22", 2 if n == 0 else 1) for n in (0, 1, 2, 3, 77)}, f"ls --by: {got}")
    check([g["count"] for g in rows(p.cli("dlq", "ls", "in.dlq", "--json", "-p", "0:1-3", "--by", "source"))] == [3], "ls of a part")
    check([g["count"] for g in rows(p.cli("dlq", "ls", "in.dlq", "--json", "--source", "in", "--since", "2023-11-14T22:13:22Z", "--until", str(T + 4000), "--by", "source"))] == [2], "ls of a time")
    put("plain", b"v", None, [("a", "b")], 0, T)
    check(q.flush(60) == 0, "written")
    for args, status, word in ((("ls", "plain"), 4, "holds no dead letters"), (("ls", "nowhere"), 4, "nowhere"), (("ls", "in.dlq", "--by", "color"), 2, "--by"), (("ls",), 2, "whose"),
                               (("ls", "in.dlq", "-p", "9"), 4, "partitions"), (("ls", "in.dlq", "-p", "0:9-2"), 2, "PARTITION"), (("ls", "in.dlq", "--since", "soon"), 2, "--since"),
                               (("show", "in.dlq", "0:99"), 4, "no record"), (("show", "in.dlq", "x"), 2, "PARTITION"), (("show", "in.dlq", "0:1-2"), 2, "PARTITION:OFFSET"),
                               (("show", "in.dlq", "1:8"), 4, "no dead letter"), (("show", "in.dlq", "1:9"), 4, "no record"), (("replay", "plain", "--yes"), 4, "no dead letters"),
                               (("replay", "in.dlq", "--source", "in"), 2, "--yes"), (("replay", "in.dlq", "--to", "a b", "--yes"), 2, "--to"), (("list",), 2, "unknown verb"),
                               (("ls", "in.dlq", "-b", "127.0.0.1:1"), 5, "127.0.0.1:1")):
        r = p.cli("dlq", *args, ok=False)
        check(r.returncode == status and word in r.stderr, f"dlq {args}: {r}")
    check(p.cli("dlq", "ls", "elsewhere").stdout == "", "an empty topic has rows")

    # --- show ---
    s = rows(p.cli("dlq", "show", "in.dlq", "0:0", "--json"))[0]
    check(s["source"] == {"topic": "in", "partition": 3, "offset": 11} and s["value"] == {"format": "avro", "bytes": len(avro), "schema_id": sid, "data": {"a": 7, "t": "seven"}}
          and s["key"]["data"] == "k0" and s["stage"] == "MAP" and s["replayed"] is False and s["time"] == "2023-11-14T22:13:20.000000Z", f"show: {s}")
    check([h for h in s["headers"] if h["name"] == "trace"] == [{"name": "trace", "value": "t1"}, {"name": "trace", "value": "t2"}] and {"name": "bin", "hex": "00ff"} in s["headers"], f"headers: {s}")
    text = p.cli("dlq", "show", "in.dlq", "0:0").stdout
    check('"seven"' in text and "\x1b" not in text and "in [3] offset 11" in text, f"show: {text!r}")
    s = rows(p.cli("dlq", "show", "in.dlq", "0:2", "--json"))[0]
    check(s["value"]["format"] == "bytes" and s["value"]["schema_id"] == 9999 and s["value"]["why"] and s["value"]["hex"].startswith("000000270f78"), f"a schema that is gone: {s}")
    check(rows(p.cli("dlq", "show", "in.dlq", "0:1", "--json"))[0]["value"]["format"] == "null", "tombstone")
    check(rows(p.cli("dlq", "show", "in.dlq", "0:3", "--json"))[0]["value"]["data"] == {"x": [1, 2]}, "JSON")
    text = p.cli("dlq", "show", "in.dlq", "0:4").stdout
    check("6952 more bytes" in text and "80 01 1b" in text and "\x1b" not in text, f"dump: {text[-400:]!r}")
    check("more bytes" not in p.cli("dlq", "show", "in.dlq", "0:4", "--full").stdout, "--full")

    # --- replay ---
    r = p.cli("dlq", "replay", "in.dlq", "--dry-run", "--json", ok=False)
    plan = rows(r)[0]
    refused = {t["topic"] for t in plan["targets"] if "refused" in t}
    check(r.returncode == 3 and plan["matching"] == 10 and plan["left"] == 4 and refused == {"penstock.jobs.requests", "__consumer_offsets", "gone", "in.dlq"}, f"plan: {plan}")
    check(p.read("in") == [] and "in.dlq.replays" not in p.producer().list_topics(timeout=30).topics, "a dry run did something")
    r = p.cli("dlq", "replay", "in.dlq", "--reason", "bad-input", "--yes", "--json")
    check(rows(r)[0]["replayed"] == 1 and "partition kept" not in r.stdout, f"by reason: {r}")
    back = p.read("in", lambda ms: len(ms) >= 1)
    check(back[0].value() == avro and back[0].key() == b"k0" and back[0].partition() == 3 and back[0].timestamp()[1] == T
          and back[0].headers() == [("trace", b"t1"), ("bin", b"\x00\xff"), ("trace", b"t2"), ("x-dlq-replays", b"1"), ("x-dlq-replayed-from", b"in.dlq:0:0")], f"as it was: {back[0].headers()}")
    r = p.cli("dlq", "replay", "in.dlq", "--yes", ok=False)
    check(r.returncode == 3 and "5 dead letters put back" in r.stderr and "1 stay: they were replayed before" in r.stderr and "topic of the platform" in r.stderr, f"the rest: {r}")
    back = p.read("in", lambda ms: len(ms) >= 6)
    check(len(back) == 6 and sorted(m.key() or b"" for m in back) == [b"", b"k0", b"k1", b"k2", b"k4", b"k5"], f"{len(back)} back")
    five = next(m for m in back if m.key() == b"k5")
    check(dict(five.headers())["x-dlq-replays"] == b"3" and next(m for m in back if m.key() == b"k1").value() is None, "count and tombstone")
    r = p.cli("dlq", "replay", "in.dlq", "--source", "in", "--yes", "--to", "elsewhere")
    check("nothing" in r.stderr or " to put back" in r.stderr, f"again: {r}")
    check(p.read("elsewhere") == [] and sum(g["replayed"] for g in rows(p.cli("dlq", "ls", "in.dlq", "--json"))) == 6, "ls counts what was replayed")
    check(rows(p.cli("dlq", "show", "in.dlq", "0:0", "--json"))[0]["replayed"] is True, "show says replayed")

    # --- many: kill -9 in the middle, two at a time, one topic that refuses the size ---
    N = 6000
    for i in range(N):
        put("many.dlq", b"%d" % i + b"." * 400, b"%d" % i, connect("many", i % 3, i), i % 2, T + i)
        q.poll(0)
    put("many.dlq", os.urandom(5000), b"l", connect("small", 0, 1), 0, T)
    put("many.dlq", b"little", b"m", connect("small", 0, 2), 0, T)
    check(q.flush(60) == 0, "written")
    from confluent_kafka import Consumer, TopicPartition
    asker = Consumer({"bootstrap.servers": p.bootstrap, "group.id": "none", "log_level": 2})

    def written():
        return sum(p.watermarks(asker, TopicPartition("many", n), time.monotonic() + 60)[1] for n in range(3))
    killed = []
    for attempt in range(3):
        before = written()
        w = p.spawn("dlq", "replay", "many.dlq", "--source", "many", "--yes", log="killed.log")
        until(lambda: w.poll() is not None or written() > before, 60, "a replay writes", step=0.01)
        w.kill()
        killed.append(w.wait(10))
    check(-9 in killed, f"none was killed in the middle: {killed}")
    check(len(p.read("many")) < N, "nothing is left for two at a time")
    two = [p.spawn("dlq", "replay", "many.dlq", "--source", "many", "--yes", log=f"two{i}.log") for i in (0, 1)]
    for w in two:
        until(lambda: w.poll() is not None, 90, "two at a time end")
    p.cli("dlq", "replay", "many.dlq", "--source", "many", "--yes")
    got = sorted(int(m.key()) for m in p.read("many"))
    check(got == list(range(N)), f"{len(got)} records, {len(set(got))} of them different, for {N} dead letters")
    check(all(m.partition() == int(m.key()) % 3 for m in p.read("many")), "partitions")
    print(f"killed in the middle: {killed}; two at a time ended {[w.returncode for w in two]}")
    r = p.cli("dlq", "replay", "many.dlq", "--source", "small", "--yes", ok=False)
    check(r.returncode == 3 and [m.value() for m in p.read("small")] == [b"little"] and "stays" in r.stderr, f"too large: {r}")

    # --- topics that refuse a record for what it is: those stay, and hold up nobody ---
    p.create("taken", 1)
    p.create("dated", 1, **{"message.timestamp.before.max.ms": "3600000"})
    p.create("keyed", 1, **{"cleanup.policy": "compact"})
    p.create("refused.dlq", 1)
    now, bad = int(time.time() * 1000), 0
    for i in range(16):
        to, key, ts = ("dated", b"k", T if i % 14 == 3 else now) if i % 7 == 3 else ("keyed", b"k%d" % i if i == 11 else None, T) if i in (11, 12) else ("taken", b"t", T)
        bad += ts == T if to == "dated" else not key
        put("refused.dlq", b"%d" % i, key, connect(to, 0, i), 0, ts)
    check(q.flush(60) == 0 and bad == 2, "written")
    begun = time.monotonic()
    r = p.cli("dlq", "replay", "refused.dlq", "--yes", "--json", ok=False)
    print(f"2 of 16 that are refused are found in {time.monotonic() - begun:.1f} s")
    check(r.returncode == 3 and rows(r)[0]["replayed"] == 14 and rows(r)[0]["left"] == 2 and r.stderr.count(" stays: ") == 2 and "keyed" in r.stderr and "dated" in r.stderr,
          f"refused by their topics: {r}")
    got = [[m.value() for m in p.read(t)] for t in ("taken", "dated", "keyed")]
    check([(len(vs), len(set(vs))) for vs in got] == [(12, 12), (1, 1), (1, 1)], f"the others, each once: {got}")
    check(sum(g["replayed"] for g in rows(p.cli("dlq", "ls", "refused.dlq", "--json"))) == 14, "ls of those that were refused")

    # --- letters that aim at other pipelines' letters and ledgers ---
    p.create("hostile.dlq", 1)
    entry = b'{"partition":0,"runs":[[0,100000]],"last":{"offset":0,"crc32c":1}}'
    for source in ("many.dlq.replays", "many.dlq", "hostile.dlq.replays"):
        put("hostile.dlq", entry, b"h", connect(source, 0, 1), 0, T)
    check(q.flush(60) == 0, "written")
    before = [p.watermarks(asker, TopicPartition(t, 0), time.monotonic() + 60)[1] for t in ("many.dlq", "many.dlq.replays")]
    for more in ((), ("--to", "many.dlq.replays"), ("--to", "many.dlq")):
        r = p.cli("dlq", "replay", "hostile.dlq", "--yes", "--json", *more, ok=False)
        check(r.returncode == 3 and rows(r)[0]["replayed"] == 0 and rows(r)[0]["left"] == 3, f"hostile letters {more}: {r}")
    check([p.watermarks(asker, TopicPartition(t, 0), time.monotonic() + 60)[1] for t in ("many.dlq", "many.dlq.replays")] == before, "hostile letters came through")
    check(sum(g["replayed"] for g in rows(p.cli("dlq", "ls", "many.dlq", "--json"))) == N + 1, "many.dlq is said to be replayed")
    again = p.dir / "again.yml"  # a pipeline that reads another's dead letters vouches for its own input
    again.write_text("name: again\ninput: {topics: [many.dlq], format: json}\nmodel: {name: m, alias: champion}\noutput: {topic: out}\nerrors: {dead_letter: {topic: hostile.dlq}}\n")
    plan = rows(p.cli("dlq", "replay", "-c", again, "--dry-run", "--json", ok=False))[0]
    check({t["topic"] for t in plan["targets"] if "refused" not in t} == {"many.dlq"}, f"a pipeline of dead letters: {plan}")

    # --- a pipeline's ---
    pipe = p.dir / "pipe.yml"
    pipe.write_text("name: pipe\ninput: {topics: [many], format: json}\nmodel: {name: m, alias: champion}\noutput: {topic: out}\n")
    check(sum(g["count"] for g in rows(p.cli("dlq", "ls", "-c", pipe, "--json"))) == N + 2, "ls of a pipeline")
    for verb in ("ls", "replay"):
        r = p.cli("dlq", verb, "-c", pipe, "-p", "99", ok=False)
        check(r.returncode == 4 and "partitions" in r.stderr, f"{verb} of a partition that is not there: {r}")
    r = p.cli("dlq", "replay", "-c", pipe, "--dry-run", "--json", "-p", "0:%d" % (N // 2), ok=False)
    check("no input of pipeline pipe" in r.stdout, f"a topic that is no input: {r}")

    # --- the topic made anew: its ledger speaks of others ---
    from confluent_kafka.admin import AdminClient
    admin = AdminClient({"bootstrap.servers": p.bootstrap})
    admin.delete_topics(["in.dlq"])["in.dlq"].result(30)
    until(lambda: "in.dlq" not in admin.list_topics(timeout=30).topics, 30, "in.dlq is gone")
    p.create("in.dlq", 2)
    until(lambda: "in.dlq" in admin.list_topics(timeout=30).topics, 30, "in.dlq is there again")
    q = p.producer()  # the first may still be told that it is gone
    for i in range(8):
        put("in.dlq", b"new%d" % i, b"n", connect("in", 0, 50 + i), 0, T)
    check(q.flush(60) == 0, "written")
    until(lambda: p.cli("cat", "in.dlq", "-e", ok=False).returncode == 0, 30, "the topic is there")
    r = p.cli("dlq", "replay", "in.dlq", "--yes", ok=False)
    check(r.returncode == 1 and "made anew" in r.stderr, f"made anew: {r}")
    put("in.dlq", b"beyond", b"n", connect("in", 0, 60), 1, T)
    check(q.flush(60) == 0, "written")
    r = p.cli("dlq", "ls", "in.dlq", "--json")
    check("made anew" in r.stderr and all(g["replayed"] is None for g in rows(r)), f"ls of it: {r}")
    admin.delete_topics(["in.dlq.replays"])["in.dlq.replays"].result(30)
    until(lambda: "in.dlq.replays" not in admin.list_topics(timeout=30).topics, 30, "its ledger is gone")
    p.cli("dlq", "replay", "in.dlq", "--yes", "--to", "elsewhere")
    check(len(p.read("elsewhere", lambda ms: len(ms) >= 9)) == 9, "after its ledger was deleted")
print("ok: dead letters counted, shown, put back once")
