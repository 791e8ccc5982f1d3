#!/usr/bin/env python3
"""tests/bench/start.py [BUILD] [--before BUILD] [-n 200]: what it costs to start a program of ours.

For each command: shared libraries, and of N starts in turn with the others' the CPU time (user and system) and the time on the
clock, median (least). An empty C program is the floor: what the system takes for any start. BUILD default build/release; with --before the same
commands of another build run in the same rounds. A supervisor is also started as an LCM does it, with a run directory and no broker, and watched until
the command of its learner has run; that takes as long again as bash does. A process that is killed while it runs is looked at for shared memory left behind.
Prints the table; nothing is judged. RESULTS.md has it between <!-- start --> and <!-- /start -->."""
import argparse, json, os, shutil, signal, statistics, subprocess, sys, tempfile, time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("build", nargs="?", default="build/release")
parser.add_argument("--before")
parser.add_argument("-n", type=int, default=200)
args = parser.parse_args()
work = Path(tempfile.mkdtemp(prefix="penstock-start-"))
os.environ["PENSTOCK_STATE_DIR"] = str(work)


def start(argv):
    """CPU seconds, seconds on the clock."""
    quiet = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_WRONLY, 0) for fd in (1, 2)]
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=quiet)
    _, status, used = os.wait4(pid, 0)
    if status:
        sys.exit(f"{' '.join(argv)} ended with status {status}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - began


def libraries(path):
    lines = subprocess.check_output(["ldd", path], text=True).splitlines()
    return sum("=>" in line for line in lines)


def left_behind(program):
    """Files in /dev/shm that a killed `penstock registry` leaves."""
    before = set(os.listdir("/dev/shm"))
    child = subprocess.Popen([program, "registry", "-b", "127.0.0.1:1", "--port", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)
    child.kill()
    child.wait()
    return sum(str(child.pid) in name for name in set(os.listdir("/dev/shm")) - before)


def until_command(own, number):
    """Seconds on the clock from the supervisor's start to the end of its learner's command, by the file that the command makes."""
    state, done = work / f"state-{number}", work / f"done-{number}"
    run = state / "jobs/training-bench/gen-1/learner-1"
    run.mkdir(parents=True)
    manifest = f"name: b\ncpus: 1\nmemory: 64 MiB\nframework: {{name: custom, version: '1', command: ': >{done}'}}\npenstock: {{isolation: none}}\n"
    spec = {"training_id": "training-bench", "generation": 1, "process": "learner-1", "learner_id": 1, "learners": 1, "parameter_servers": 0, "cpus": 1.0, "gpus": 0,
            "memory_bytes": 1 << 26, "grace_ms": 1000, "site": "local", "node": "n", "state_dir": str(state), "name": "b", "user": "u", "manifest": manifest, "gpu_ids": ""}
    (run / "spec.json").write_text(json.dumps(spec))
    began = time.perf_counter()
    child = subprocess.Popen([own, "--run-dir", run, "-b", "127.0.0.1:1", "--registry", "http://127.0.0.1:1", "--state-dir", state], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while not done.exists():
        if child.poll() is not None or time.perf_counter() - began > 60:
            sys.exit(f"{own} has run no command: {child.poll()}; {run}: {sorted(f.name for f in run.iterdir())}")
        time.sleep(0.0002)
    took = time.perf_counter() - began
    child.kill()  # the keeper, with which the supervisor dies: without a broker it would wait to publish
    child.wait()
    return took


floor = work / "empty"
(work / "empty.c").write_text("int main(void) { return 0; }\n")
subprocess.check_call(["cc", "-O2", "-o", floor, work / "empty.c"])
rows = [("an empty C program", [str(floor)])]
for name, build in (("before: ", args.before), ("", args.build)):
    if build:
        build = Path(build).resolve()
        own = build / "penstock-supervise"
        rows += [(f"{name}`penstock --version`", [str(build / "penstock"), "--version"]),
                 (f"{name}`penstock list --help`", [str(build / "penstock"), "list", "--help"]),
                 (f"{name}the supervisor (`--help`)", [str(own), "--help"] if own.exists() else [str(build / "penstock"), "supervise", "--help"])]
found = {label: [] for label, _ in rows}
for label, argv in rows:
    start(argv)  # into the page cache
for _ in range(args.n):
    for label, argv in rows:
        found[label].append(start(argv))

print(f"{args.n} starts each, in turn; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
print("| program | shared libraries | CPU ms, median (least) | clock ms, median (least) |\n|---|---|---|---|")
for label, argv in rows:
    cpu, clock = zip(*found[label])
    print(f"| {label} | {libraries(argv[0])} | {statistics.median(cpu) * 1e3:.1f} ({min(cpu) * 1e3:.1f}) "
          f"| {statistics.median(clock) * 1e3:.1f} ({min(clock) * 1e3:.1f}) |")
own = Path(args.build).resolve() / "penstock-supervise"
if own.exists():
    took = [until_command(own, i) for i in range(min(args.n, 40))]
    print(f"\nFrom a supervisor's start to the end of its learner's command `: >FILE`, without a broker: {statistics.median(took) * 1e3:.1f} ms ({min(took) * 1e3:.1f}).")
for name, build in (("Before, a", args.before), ("A", args.build)):
    if build:
        n = left_behind(str(Path(build).resolve() / "penstock"))
        print(f"\n{name} service that is killed leaves {n or 'no'} file{'s' * (n != 1)} of shared memory.")
shutil.rmtree(work)
