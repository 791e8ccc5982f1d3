#!/usr/bin/env python3
"""What the control plane does in a second, and how long it takes to do one thing.

    PENSTOCK_BUILD=build $(tests/live/venv) tests/bench/control_plane.py [PART…] [--jobs N]      all parts, or some of them:

    submit     N (20,000) job requests published at once while no LCM runs, so that the Trainer alone is measured: until the last is QUEUED
    latency    100 jobs of one process, one after another: from the client's publishing until the supervisor's report that the command runs
    trivial    200 jobs `true` published at once, 64 of which may run at a time: until the last is COMPLETED, with every event of its trail
    restart    N queued jobs; the Trainer is ended and started again: until it has read them and has admitted one more

A real Kafka (one node) and the platform on this computer: clients, broker and services share it. Times come from the events."""
import argparse, collections, os, re, statistics, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../live"))
from kit import *


def cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def request(i, text):
    return json.dumps({"request_id": f"r{i}", "action": "SUBMIT", "user": "bench", "manifest": text}).encode()


def publish(p, n, first=0, cpus=None):
    producer = p.producer(**{"queue.buffering.max.messages": 1000000, "batch.size": 1000000})
    for i in range(first, first + n):
        text = manifest(f"job-{i}", "true")
        producer.produce(PREFIX + "jobs.requests", request(i, text.replace("cpus: 0.1", f"cpus: {cpus}") if cpus else text), key=f"r{i}")
        producer.poll(0)
    producer.flush(60)


def queued(p, n):
    """The events of n jobs, once each of them is QUEUED. Their number is known by the records' number; they are decoded once all are there."""
    ms = p.read(PREFIX + "jobs.events", lambda ms: len(ms) >= 3 * n, 180)
    events = [p.decode(m.value()) for m in ms]
    said = {e["training_id"] for e in events if e["type"] == "QUEUED"}
    check(len(said) == n, f"{len(said)} of {n} submissions are queued")
    return events


def submit(n):
    with Platform(without="lcm") as p:
        trainer = p.pids("trainer")[0]
        before, begin = cpu(trainer), time.time()
        publish(p, n)
        published = time.time() - begin
        last = max(e["time"] for e in queued(p, n) if e["type"] == "QUEUED").timestamp()
        # The time of an event is that of what it is about; the commit of the last one is told by the broker's time of its record.
        ms = p.read(PREFIX + "jobs.events")
        stamps = [m.timestamp()[1] / 1000 for m in ms]
        took = max(max(stamps), last) - begin
        used = cpu(trainer) - before
        print(f"submit: {n:,} published in {published:.2f} s, all admitted and queued {took:.2f} s after the first: {n / took:,.0f} per second; "
              f"the Trainer took {used:.2f} CPU-seconds (view and all), {used * 1e6 / n:.0f} us each", flush=True)


def latency(n=100):
    with Platform() as p:
        producer, took = p.producer(**{"linger.ms": 0}), []
        for i in range(n + 2):
            begin = time.time()
            producer.produce(PREFIX + "jobs.requests", request(i, manifest(f"job-{i}", "true")), key=f"r{i}")
            producer.flush(30)
            p.events("jobs.events", lambda es, i=i: any(e["request_id"] == f"r{i}" and e["type"] == "COMPLETED" for e in es), 60)
            took.append(begin)
        ready = {e["request_id"]: e["time"].timestamp() for e in p.events("jobs.events") if e["type"] == "PROCESS_READY"}
        spans = sorted((ready[f"r{i}"] - begin) * 1e3 for i, begin in enumerate(took) if i >= 2)
        print(f"latency: published → the command runs: p50 {statistics.median(spans):.0f} ms, p90 {spans[int(len(spans) * .9)]:.0f} ms, "
              f"p99 {spans[int(len(spans) * .99)]:.0f} ms over {len(spans)} jobs, one after another", flush=True)


def completed(p, ms, n):
    return sum(p.decode(m.value())["type"] == "COMPLETED" for m in ms) >= n


def trivial(n=200):
    with Platform() as p:
        trainer, lcm = p.pids("trainer")[0], p.pids("lcm")[0]
        before, begin = (cpu(trainer), cpu(lcm)), time.time()
        publish(p, n, cpus=f"{os.cpu_count() / 64:.4f}")
        ms = p.read(PREFIX + "jobs.events", lambda ms: completed(p, ms, n), 300)
        events = [p.decode(m.value()) for m in ms]
        trails = collections.defaultdict(list)
        for e in events:
            trails[e["training_id"]].append(e)
        for tid, es in trails.items():
            check([e["seq"] for e in sorted(es, key=lambda e: e["seq"])] == list(range(1, len(es) + 1)), f"{tid}: its events are not numbered without gaps")
            check({"RECEIVED", "ADMITTED", "DEPLOYING", "PROCESS_STARTED", "PROCESS_READY", "PROCESS_EXITED", "COMPLETED"} <= {e["type"] for e in es}, f"{tid}: {es}")
        took = max(e["time"].timestamp() for e in events) - begin
        print(f"trivial: {n} jobs `true` in {took:.2f} s: {n / took:.1f} per second to completion, {len(events) / n:.1f} events each; "
              f"CPU-seconds: Trainer {cpu(trainer) - before[0]:.2f}, LCM {cpu(lcm) - before[1]:.2f}", flush=True)


def restart(n):
    n = min(n, 99990)  # a site's queue has room for 100,000
    with Platform(without="lcm") as p:
        publish(p, n)
        queued(p, n)
        pid = p.pids("trainer")[0]
        log = p.dir / "state/log/trainer.log"
        begin = time.time()
        os.kill(pid, signal.SIGKILL)
        publish(p, 1, n)  # `up` starts the Trainer again
        p.read(PREFIX + "jobs.events", lambda ms: len(ms) >= 3 * (n + 1), 180)
        ms = p.read(PREFIX + "jobs.events")
        took = max(m.timestamp()[1] for m in ms) / 1000 - begin
        said = re.findall(r"event=state_read jobs=(\d+) ms=(\d+)", log.read_text(errors="replace"))
        print(f"restart: with {n:,} queued jobs, killed → one more is queued {took:.2f} s (of that the pause before it is started again); "
              f"state read: {said[-1][0]} jobs in {said[-1][1]} ms", flush=True)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARTS = ("submit", "latency", "trivial", "restart")
parser.add_argument("parts", nargs="*", metavar="PART")
parser.add_argument("--jobs", type=int, default=20000, help="of submit and restart")
args = parser.parse_args()
check(set(args.parts) <= set(PARTS), f"parts are {', '.join(PARTS)}")
for part in args.parts or PARTS:
    {"submit": lambda: submit(args.jobs), "latency": latency, "trivial": trivial, "restart": lambda: restart(args.jobs)}[part]()
