#!/usr/bin/env python3
"""What one gateway bears: submissions, live pages, clients that do not read.

    PENSTOCK_BUILD=build $(tests/live/venv) tests/bench/gateway/gateway.py [--seconds 60] [--only submit,streams,slow]

A real Kafka (one node) and the gateway on this computer, nothing else of the platform: no Trainer takes the processors from what is measured. The clients are
load.c. Each line tells the load of the machine, the gateway's own CPU time and its memory.

submit: N connections, one submission after another on each; every id that was answered 202 is looked for on the topic.
streams: event streams beside a writer of 10 events a second; each must get each. Their memory is given back when they have gone.
slow: submissions alone, then beside streams that are opened and never read while events come: what the good ones' 99th percentile becomes."""
import argparse, os, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../live"))
from kit import *

MARKS = {"per_s": 10000, "p99_ms": 25}
a = argparse.ArgumentParser()
a.add_argument("--seconds", type=int, default=60)
a.add_argument("--connections", type=int, default=64)
a.add_argument("--streams", type=int, default=500)
a.add_argument("--stalled", type=int, default=1000)
a.add_argument("--only", default="submit,streams,slow")
a.add_argument("--profile", help="perf's output of the submissions")
a.add_argument("-X", action="append", default=[], help="a property of the gateway's Kafka clients, K=V")
a = a.parse_args()
LOAD = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build")) / "tests/bench_gateway_load"


def cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid):
    return next(int(line.split()[1]) / 1024 for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))


def tell(what, figures, pid, before):
    print(f"{what}: {json.dumps(figures)}; gateway {cpu(pid) - before:.1f} CPU-s, {memory(pid):.0f} MiB; load {os.getloadavg()[0]:.1f}", flush=True)


with Platform(up=False) as p:
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    p.start_registry()
    p.cli("topics", "create")
    port = free_ports(1)
    p.gateway = f"http://127.0.0.1:{port}"
    gateway = p.spawn("gateway", "--port", port, "-q", *[x for v in a.X for x in ("-X", v)], log="gateway.log")
    until(lambda: (p.dir / "state/token").exists() and not socket.socket().connect_ex(("127.0.0.1", port)), 30, "the gateway listens")
    text, load, pid = p.dir / "m.yml", [LOAD, str(port), p.token], gateway.pid
    text.write_text(manifest("load", "true"))

    sid = p.register(PREFIX + "metrics-value", json.loads((ROOT / "schemas/MetricPoint.avsc").read_text()))

    def point(i, n):
        return p.encode(sid, {"training_id": "training-x", "process": "learner-1", "rindex": i, "time": int(time.time() * 1e6), "values": {f"v{k}": 1.0 for k in range(n)}})

    def submit(tag, seconds):
        out, before = p.dir / f"accepted.{tag}", cpu(pid)
        perf = a.profile and subprocess.Popen(["perf", "record", "-F", "499", "--call-graph", "dwarf,16384", "-o", a.profile, "-p", str(pid), "--", "sleep", str(seconds)], stderr=subprocess.DEVNULL)
        r = subprocess.run([*load, "submit", str(a.connections), str(seconds), text, tag, out], capture_output=True, text=True, timeout=seconds + 60)
        check(r.returncode == 0, r.stderr)
        perf and perf.wait()
        sys.stderr.write(r.stderr)
        figures = json.loads(r.stdout)
        tell(f"submit {tag}", figures, pid, before)
        return figures, set(out.read_text().split())

    def wait_ready():
        return p.http("/v1/jobs", data=text.read_bytes(), headers={"Content-Type": "application/yaml"})[0] == 202
    until(wait_ready, 30, "the first submission is taken")
    submit("warm", 3)
    if "submit" in a.only:
        figures, ids = submit("main", a.seconds)
        from confluent_kafka import Consumer, TopicPartition
        c, there, end = Consumer({"bootstrap.servers": p.bootstrap, "group.id": "count", "enable.partition.eof": True}), [], 0
        topic = PREFIX + "jobs.requests"
        parts = c.list_topics(topic, 10).topics[topic].partitions
        c.assign([TopicPartition(topic, i, 0) for i in parts])
        while end < len(parts):
            for m in c.consume(10000, 1):
                if m.error():
                    end += 1
                else:
                    there += [t.decode() for t in __import__("re").findall(rb"main-\d+-\d+", m.value())[:1]]
        c.close()
        print(f"of {len(ids)} accepted {len(ids - set(there))} are not on the topic; {len(there) - len(set(there))} stand there twice")
        check(not ids - set(there), "an accepted submission is lost")
    if "streams" in a.only:
        empty, before = memory(pid), cpu(pid)
        s = subprocess.Popen([*load, "listen", str(a.streams), "20", "metrics"], stdout=subprocess.PIPE, text=True)
        s.stdout.readline()
        time.sleep(2)
        made = p.producer(**{"linger.ms": 0})
        for i in range(150):
            made.produce(PREFIX + "metrics", point(i, 1), key="training-x")
            made.poll(0)
            time.sleep(0.1)
        made.flush(10)
        full = memory(pid)
        figures = json.loads(s.stdout.readline())
        s.wait()
        tell(f"streams, 10 events/s; {empty:.0f} MiB before, {full:.0f} MiB with them", figures, pid, before)
        check(figures["events_least"] >= 150 and not figures["closed"], "a stream did not get each event")
        until(lambda: "penstock_gateway_streams 0" in p.http("/metrics")[1].decode(), 30, lambda: p.http("/metrics")[1].decode())
        time.sleep(3)
        print(f"  afterwards {memory(pid):.0f} MiB")
    if "slow" in a.only:
        alone, _ = submit("alone", 15)
        empty = memory(pid)
        s = subprocess.Popen([*load, "stall", str(a.stalled), "40", "metrics"], stdout=subprocess.PIPE, text=True)
        s.stdout.readline()
        made, stop = p.producer(**{"linger.ms": 0}), threading.Event()

        def write():
            i = 0
            while not stop.is_set():
                made.produce(PREFIX + "metrics", point(i, 100), key="training-x")
                made.poll(0)
                i += 1
                time.sleep(0.1)
        w = threading.Thread(target=write)
        w.start()
        beside, _ = submit("beside", 15)
        most = memory(pid)
        stop.set(), w.join()
        s.terminate(), s.wait()
        time.sleep(3)
        print(f"slow clients {a.stalled}: p99 {alone['p99_ms']} ms alone, {beside['p99_ms']} ms beside them; {empty:.0f} MiB, {most:.0f} MiB with them, {memory(pid):.0f} MiB afterwards")
