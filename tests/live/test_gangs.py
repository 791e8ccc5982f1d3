"""Gangs on a real Kafka: ranks that add up over MASTER_ADDR, roles that call each other over TF_CONFIG, FfDL's names, two gangs at once, a learner killed and
one that fails; MPI and PyTorch where Debian's packages of them are installed (a line says what was left out)."""
from kit import *

PY = "/usr/bin/python3"
HEAD = r'''
import json, os, socket, sys, threading, time
E = os.environ
def until(f):
    for _ in range(3000):
        try: return f()
        except (OSError, ValueError): time.sleep(.1)
    return f()
def serve(s, n, line):
    s.listen(99)
    for _ in range(n):
        with s.accept()[0] as c: c.sendall(line.encode())
'''
SUM = HEAD + r'''
rank, n, at = int(E["RANK"]), int(E["WORLD_SIZE"]), (E["MASTER_ADDR"], int(E["MASTER_PORT"]))
mine = 7 ** (rank + 1)
if rank == 0:
    with socket.create_server(at) as s: total = mine + sum(int(s.accept()[0].makefile().readline()) for _ in range(n - 1))
    open(E["JOB_DIR"] + "/.t", "w").write(str(total)); os.rename(E["JOB_DIR"] + "/.t", E["JOB_DIR"] + "/total")
else:
    until(lambda: socket.create_connection(at)).sendall(b"%d\n" % mine)
    total = int(until(lambda: open(E["JOB_DIR"] + "/total").read()))
prefix = E["LEARNER_NAME_PREFIX"]
try: found = [socket.getaddrinfo(f"{prefix}-{k}.{prefix}", 2222, socket.AF_INET)[0][4][0] for k in range(n)]
except OSError: found = []
s = socket.socket()
if found: s.bind((found[rank], 2222))
print(json.dumps({"rank": rank, "total": total, "names": len(set(found)), "first": found[:1] == [E["MASTER_ADDR"]], "port": E["PENSTOCK_PORT"], "id": E["LEARNER_ID"],
                  "pet": [E["PET_NNODES"], E["PET_NODE_RANK"], E["PET_MASTER_PORT"] == E["MASTER_PORT"]], "slots": open(E["PENSTOCK_HOSTFILE"]).read()}))
'''
CALL = HEAD + r'''
tf = json.loads(E["TF_CONFIG"]); me = [tf["task"]["type"], tf["task"]["index"]]
everyone = [[r, i, a] for r, l in tf["cluster"].items() for i, a in enumerate(l)]
host, port = tf["cluster"][me[0]][me[1]].rsplit(":", 1)
s = socket.create_server((host, int(port))); w = threading.Thread(target=serve, args=(s, len(everyone) - 1, "%s-%d\n" % tuple(me))); w.start()
heard = []
for r, i, a in everyone:
    if [r, i] != me:
        h, q = a.rsplit(":", 1)
        heard.append(until(lambda: socket.create_connection((h, int(q)))).makefile().readline().strip())
w.join()
print(json.dumps({"me": "%s-%d" % tuple(me), "heard": sorted(heard), "own": E.get("OWN"), "said": sys.argv[1], "rank": E.get("RANK"), "world": E["WORLD_SIZE"]}))
'''
MPI = 'from mpi4py import MPI; import json, os; c = MPI.COMM_WORLD; print(json.dumps({"rank": c.rank, "same": os.environ["RANK"] == str(c.rank) and "PYTHONUNBUFFERED" not in os.environ, "sum": c.allreduce(11 ** (c.rank + 1))}))\n'
DDP = r'''
import json, torch, torch.distributed as dist
dist.init_process_group("gloo"); r = dist.get_rank(); t = torch.tensor([11. ** (r + 1)]); dist.all_reduce(t)
print(json.dumps({"rank": r, "sum": int(t.item())}), flush=True); dist.barrier()
'''


def code(**files):
    d = Path(tempfile.mkdtemp(dir=p.dir))
    for name, text in files.items():
        (d / f"{name}.py").write_text(text)
    return d


def said(tid):
    return [(l["process"], json.loads(l["text"])) for l in p.events("logs") if l["training_id"] == tid and l["stream"] == "STDOUT" and l["text"].startswith("{")]


def framework(name, command, learners, memory="512 MiB"):
    return manifest("f-" + name, command, learners).replace("name: custom", f"name: {name}").replace("64 MiB", memory)


def has(module):
    return subprocess.run([PY, "-c", f"import {module}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


with Platform() as p:
    sums = code(sum=SUM)
    roles = "penstock: {roles: {chief: {}, worker: {count: 2}, ps: {count: 1, command: 'python3 call.py served', env: {OWN: of-ps}}}}\n"
    gangs = [p.submit(manifest(f"gang{k}", "[[ -x sum.py ]] && python3 sum.py", 3), sums) for k in range(2)]  # at once, on one host
    cast = p.submit(manifest("cast", "python3 call.py trained", extra=roles), code(call=CALL))
    names = "gangs" not in [c["check"] for c in json.loads(p.cli("doctor", "--json", ok=False).stdout)]
    ports = set()
    for tid in gangs:
        p.wait_state(tid, "COMPLETED")
        got = sorted((o["rank"], who, o) for who, o in said(tid))
        check([(r, w) for r, w, _ in got] == [(k, f"learner-{k + 1}") for k in range(3)], f"ranks {got}")
        for r, _, o in got:
            check(o["total"] == 7 + 49 + 343 and o["pet"] == ["3", str(r), True] and o["id"] == str(r + 1), f"rank {r}: {o}")
            check(o["names"] == (3 if names else 0) and o["first"] == names, f"FfDL's names in rank {r}, names={names}: {o}")
            check(o["slots"] == "localhost slots=3\n", f"host file {o['slots']!r}")
            ports.add(o["port"])
    check(len(ports) == 6, f"PENSTOCK_PORT of six learners: {ports}")
    p.wait_state(cast, "COMPLETED")
    got = {who: o for who, o in said(cast)}
    check(sorted(got) == ["chief-1", "ps-1", "worker-1", "worker-2"], f"processes {sorted(got)}")
    everyone = {"chief-0", "ps-0", "worker-0", "worker-1"}
    check(all(set(o["heard"]) == everyone - {o["me"]} and o["world"] == "3" for o in got.values()), f"calls over TF_CONFIG: {got}")
    check([(got[w]["own"], got[w]["said"], got[w]["rank"]) for w in ("ps-1", "worker-2")] == [("of-ps", "served", None), (None, "trained", "2")], f"roles: {got}")

    # a member killed takes all into the next generation; nothing of the first is left
    again = p.submit(manifest("again", '[ $PENSTOCK_GENERATION = 2 ] || { [ $RANK = 1 ] && { sleep 1; kill -9 $$; }; sleep 600; }', 3, extra="penstock: {retries: 1, grace: 2s}\n"))
    end = p.wait_state(again, *ENDED)
    check(end["state"] == "COMPLETED" and end["generation"] == 2, f"a killed member: {end['state']} in generation {end['generation']}: {end['reason']}")
    left = [c for _, c in p.processes("sleep 600")]
    check(not left, f"left of generation 1: {left}")

    told = []
    if shutil.which("mpirun") and has("mpi4py"):
        for name in ("horovod", "pytorchmpi"):
            tid = p.submit(framework(name, f"{PY} mpi.py", 2), code(mpi=MPI))
            p.wait_state(tid, "COMPLETED")
            got = sorted((who, o["rank"], o["sum"], o["same"]) for who, o in said(tid))
            check(got == [("learner-1", r, 132, True) for r in range(2)], f"{name}: {got}")
        bad = p.submit(framework("horovod", f"{PY} -c 'import sys; sys.exit(3)'", 2), code(mpi=MPI))
        end = p.wait_state(bad, *ENDED)
        check(end["state"] == "FAILED" and "learner-1" in end["reason"], f"ranks that fail: {end['state']}: {end['reason']}")
        told.append("MPI")
    else:
        print("left out: MPI (apt install openmpi-bin python3-mpi4py)")
        tid = p.submit(framework("horovod", "true", 2))
        end = p.wait_state(tid, *ENDED)
        check(end["state"] == "FAILED" and ("openmpi-bin" in end["reason"] or shutil.which("mpirun")), f"no mpirun: {end['state']}: {end['reason']}")
    if has("torch.distributed"):
        tid = p.submit(framework("pytorch", f"{PY} ddp.py", 2, "1536 MiB"), code(ddp=DDP))
        p.wait_state(tid, "COMPLETED", timeout=90)
        check(sorted((o["rank"], o["sum"]) for _, o in said(tid)) == [(0, 132), (1, 132)], f"gloo: {said(tid)}")
        told.append("PyTorch")
    else:
        print("left out: PyTorch (apt install python3-torch)")
    p.cli("down", timeout=120)
    check(not p.processes(), f"down left {p.processes()}")
print("ok: ranks, roles, names, two gangs at once, a killed member" + "".join(f", {t}" for t in told))
