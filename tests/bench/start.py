#!/usr/bin/env python3
"""tests/bench/start.py [BUILD] [--before BUILD] [--disk DIR] [-n 200]: what it costs to start a program of ours.

For each command: shared libraries, and of N starts in turn with the others' the CPU time (user and system) and the time on the
clock, median (least). An empty C program is the floor: what the system takes for any start. BUILD default build/release; with --before the same
commands of another build run in the same rounds. A supervisor is also started as an LCM does it, with a run directory (on a tmpfs and below DIR) and no broker, and
watched until the command of its learner has run; beside it the same command without one, since a shell takes as long again. On a busy machine the clock says
little, and `nice -n -20` (as root) more. A process that is killed while it runs is looked at for shared memory left behind.
Prints the table; nothing is judged. RESULTS.md has it between <!-- start --> and <!-- /start -->."""
import argparse, json, os, shutil, signal, statistics, subprocess, sys, tempfile, time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("build", nargs="?", default="build/release")
parser.add_argument("--before")
parser.add_argument("--disk", default=tempfile.gettempdir())
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


def seconds_run(pid):
    """On a processor, of a process's first thread."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def wait_for(path, child):
    began = time.perf_counter()
    while not path.exists():
        if child.poll() not in (None, 0) or time.perf_counter() - began > 60:
            sys.exit(f"no command has made {path}: {child.poll()}")
        time.sleep(0.0002)


def until_command(own, home):
    """A supervisor's start to the end of its learner's command, by the file that the command makes: seconds on the clock; seconds that the keeper and the
    supervisor's own thread were on a processor for it (the outlet's thread goes on beside the command)."""
    state, done = home / "state", home / "done"
    run = state / "jobs/training-bench/gen-1/learner-1"
    run.mkdir(parents=True)
    manifest = f"name: b\ncpus: 1\nmemory: 64 MiB\nframework: {{name: custom, version: '1', command: ': >{done}'}}\npenstock: {{isolation: none}}\n"
    spec = {"training_id": "training-bench", "generation": 1, "process": "learner-1", "learner_id": 1, "learners": 1, "parameter_servers": 0, "cpus": 1.0, "gpus": 0,
            "memory_bytes": 1 << 26, "grace_ms": 1000, "site": "local", "node": "n", "state_dir": str(state), "name": "b", "user": "u", "manifest": manifest, "gpu_ids": ""}
    (run / "spec.json").write_text(json.dumps(spec))
    began = time.perf_counter()
    child = subprocess.Popen([own, "--run-dir", run, "-b", "127.0.0.1:1", "--registry", "http://127.0.0.1:1", "--state-dir", state], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    wait_for(done, child)
    took = time.perf_counter() - began
    supervisor = json.loads((run / "supervisor.json").read_text())["pid"]
    used = seconds_run(child.pid) + seconds_run(supervisor)
    child.kill()  # the keeper, with which the supervisor dies: without a broker it would wait to publish
    child.wait()
    shutil.rmtree(home)
    return took, used


def bare_command(home):
    """The same command without a supervisor, as a supervisor starts it."""
    home.mkdir(parents=True)
    done = home / "done"
    began = time.perf_counter()
    child = subprocess.Popen(["/bin/sh", "-c", f": >{done}"], cwd=home)
    wait_for(done, child)
    took = time.perf_counter() - began
    child.wait()
    shutil.rmtree(home)
    return took, 0


def supervisors(builds, places, n):
    """In turn: the bare command, then each build's supervisor, in each place."""
    print(f"\nFrom a supervisor's start to the end of its learner's command `: >FILE`, without a broker; {n} each, in turn, load {os.getloadavg()[0]:.1f}:\n")
    print("| run directory on | | its own CPU ms, median (least) | clock ms, median (least) |\n|---|---|---|---|")
    ways = {"the command alone": bare_command}
    for name, build in builds:
        ways[f"{name}with a supervisor"] = lambda home, own=build / "penstock-supervise": until_command(own, home)
    for place in places:
        base = Path(tempfile.mkdtemp(prefix="penstock-start-", dir=place))
        kind = subprocess.check_output(["stat", "-f", "-c", "%T", base], text=True).strip()
        found = {name: [way(base / f"run-{i}") for i in (0,)] and [] for name, way in ways.items()}  # one each into the page cache
        for i in range(n):
            for name, way in ways.items():
                found[name].append(way(base / f"run-{i}"))
        for name, runs in found.items():
            clock, cpu = zip(*runs)
            own = f"{statistics.median(cpu) * 1e3:.1f} ({min(cpu) * 1e3:.1f})" if any(cpu) else "–"
            print(f"| {kind} | {name} | {own} | {statistics.median(clock) * 1e3:.1f} ({min(clock) * 1e3:.1f}) |")
        shutil.rmtree(base)


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
builds = [(name, Path(build).resolve()) for name, build in (("before: ", args.before), ("", args.build)) if build]
supervisors([(name, build) for name, build in builds if (build / "penstock-supervise").exists()], [p for p in ("/dev/shm", args.disk) if Path(p).is_dir()], min(args.n, 60))
for name, build in (("Before, a", args.before), ("A", args.build)):
    if build:
        n = left_behind(str(Path(build).resolve() / "penstock"))
        print(f"\n{name} service that is killed leaves {n or 'no'} file{'s' * (n != 1)} of shared memory.")
shutil.rmtree(work)
