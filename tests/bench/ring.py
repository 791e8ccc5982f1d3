#!/usr/bin/env python3
"""The learner's ring beside Gloo (PyTorch's, over TCP) and Open MPI (over TCP alone, and as it comes, over shared memory): one all-reduce of a float32 vector.

    PENSTOCK_BUILD=build/release python3 tests/bench/ring.py [WORLD [ROUNDS]]

Ranks are processes of this computer. The sides take turns, round by round, so that a busy machine is busy for all; of each the median over rounds of the medians is told,
the best sum of all, and rank 0's CPU time a sum. Ours also checks every message (CRC32C) and gives the same bits every time. What is not installed is left out by a line."""
import json, os, random, statistics, subprocess, sys, tempfile
from pathlib import Path

BIN = Path(os.environ.get("PENSTOCK_BUILD", "build")) / "tests/bench_ring"
PY = "/usr/bin/python3"
WORLD, ROUNDS = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((1, 2), (2, 5)))
SIZES = ((1000, 300), (65536, 100), (1 << 20, 15), (1 << 22, 5))
LOOP = r'''
def measure(one, times, rank):
    import json, time
    for _ in range(3): one()
    took, cpu = [], time.process_time()
    for _ in range(times):
        t = time.perf_counter(); one(); took.append(time.perf_counter() - t)
    cpu, took = time.process_time() - cpu, sorted(took)
    if rank == 0: print(json.dumps({"median_us": took[times // 2] * 1e6, "best_us": took[0] * 1e6, "cpu_us": cpu / times * 1e6}))
'''
GLOO = LOOP + r'''
import os, sys, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo"); x = torch.zeros(int(sys.argv[1]))
measure(lambda: dist.all_reduce(x), int(sys.argv[2]), dist.get_rank())
'''
MPI = LOOP + r'''
import sys, numpy
from mpi4py import MPI
c, x = MPI.COMM_WORLD, numpy.zeros(int(sys.argv[1]), numpy.float32); y = x.copy()
measure(lambda: c.Allreduce(x, y), int(sys.argv[2]), c.rank)
'''


def ranks(commands, envs):
    kids = [subprocess.Popen(c, env=dict(os.environ, **e), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for c, e in zip(commands, envs)]
    out = [k.communicate(timeout=600) for k in kids]
    if any(k.returncode for k in kids):
        sys.exit(f"{commands[0]}: {[o[1][-400:] for o in out]}")
    return json.loads(out[0][0])


def port():
    return random.randrange(20000, 30000)


def ours(n, times):
    at = port()
    return ranks([[BIN, str(k), str(WORLD), str(at), str(n), str(times)] for k in range(WORLD)], [{}] * WORLD)


def gloo(n, times):
    at = str(port())
    return ranks([[PY, "-c", GLOO, str(n), str(times)]] * WORLD, [{"RANK": str(k), "WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": at, "GLOO_SOCKET_IFNAME": "lo"} for k in range(WORLD)])


def mpi(n, times, *how):
    r = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl_vader_single_copy_mechanism", "none", *how, "-n", str(WORLD), PY, "-c", MPI, str(n), str(times)], capture_output=True, text=True, timeout=600)
    if r.returncode:
        sys.exit(f"mpirun: {r.stderr[-400:]}")
    return json.loads(r.stdout)


def there(name):
    good = subprocess.run([PY, "-c", f"import {name}"], capture_output=True).returncode == 0
    if not good:
        print(f"left out: {name}")
    return good


sides = {"ring": ours}
if there("torch.distributed"):
    sides["Gloo"] = gloo
if there("mpi4py.MPI"):
    sides["Open MPI, TCP"] = lambda n, t: mpi(n, t, "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo", "--mca", "pml", "ob1")
    sides["Open MPI, shared memory"] = mpi
print(f"{WORLD} ranks, {ROUNDS} rounds; median | best | CPU of rank 0, µs a sum; load {os.getloadavg()[0]:.1f}")
for n, times in SIZES:
    got = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, run in sides.items():
            got[name].append(run(n, times))
    print(f"{n * 4:>10} bytes  " + "  ".join(f"{name}: {statistics.median(g['median_us'] for g in v):.0f} | {min(g['best_us'] for g in v):.0f} | {statistics.median(g['cpu_us'] for g in v):.0f}" for name, v in got.items()), flush=True)
