#!/usr/bin/env python3
"""Submissions per second through the Trainer, and the time from a submission's publishing until its command runs.

    PENSTOCK_BUILD=build $(tests/live/venv) tests/bench/control_plane.py [N]

A real Kafka (one node) and the platform on this computer. (1) N job requests are published at once while no LCM runs, so that the Trainer alone is
measured: until the last is QUEUED. (2) 40 jobs of one learner each, one after another: from the client's publishing until the supervisor's report that
the command runs (PROCESS_READY, its time). Times come from the events; both clients and services share the computer."""
import os, statistics, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../live"))
from kit import *

N = int(sys.argv[1]) if len(sys.argv) > 1 else 5000


def cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def request(i, text):
    return json.dumps({"request_id": f"r{i}", "action": "SUBMIT", "user": "bench", "manifest": text}).encode()


with Platform(without="lcm") as p:
    trainer = p.pids("trainer")[0]
    before, producer, begin = cpu(trainer), p.producer(), time.time()
    for i in range(N):
        producer.produce(PREFIX + "jobs.requests", request(i, manifest(f"job-{i}", "true")), key=f"r{i}")
        producer.poll(0)
    producer.flush(60)
    published = time.time() - begin
    events = p.events("jobs.events", lambda es: sum(e["type"] == "QUEUED" for e in es) >= N, 180)
    last = max(e["time"] for e in events if e["type"] == "QUEUED").timestamp()
    check(len({e["training_id"] for e in events if e["type"] == "QUEUED"}) == N, "not every submission was queued")
    print(f"submissions: {N} published in {published:.2f} s, all admitted and queued {last - begin:.2f} s after the first: {N / (last - begin):,.0f} per second, "
          f"{(cpu(trainer) - before) * 1e6 / N:.0f} CPU-seconds per million in the Trainer")

with Platform() as p:
    producer, took = p.producer(**{"linger.ms": 0}), []
    for i in range(42):
        begin = time.time()
        producer.produce(PREFIX + "jobs.requests", request(i, manifest(f"job-{i}", "true")), key=f"r{i}")
        producer.flush(30)
        p.events("jobs.events", lambda es, i=i: any(e["request_id"] == f"r{i}" and e["type"] == "COMPLETED" for e in es), 60)
        took.append(begin)
    ready = {e["request_id"]: e["time"].timestamp() for e in p.events("jobs.events") if e["type"] == "PROCESS_READY"}
    spans = sorted((ready[f"r{i}"] - begin) * 1e3 for i, begin in enumerate(took) if i >= 2)
    print(f"submit → command runs: median {statistics.median(spans):.0f} ms, p90 {spans[int(len(spans) * .9)]:.0f} ms, worst {spans[-1]:.0f} ms over {len(spans)} jobs")
