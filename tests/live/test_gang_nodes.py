"""Gangs over several nodes on a real Kafka: two LCMs of a site, neither of which holds the gang. Its processes meet over the nodes' advertised addresses (own
sockets, and PyTorch's gloo where it is installed); an LCM killed, a member killed, a halt, a node given up; what can never be spread is refused."""
import signal
from kit import *

PY = "/usr/bin/python3"
SUM = r'''
import json, os, socket, time
E = os.environ
def until(f):
    for _ in range(600):
        try: return f()
        except OSError: time.sleep(.1)
    return f()
rank, n, at = int(E["RANK"]), int(E["WORLD_SIZE"]), (E["MASTER_ADDR"], int(E["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(at) as s: total = 7 + sum(int(s.accept()[0].makefile().readline()) for _ in range(n - 1))
else:
    until(lambda: socket.create_connection(at)).sendall(b"%d\n" % 7 ** (rank + 1))
    total = 0
tf = json.loads(E["TF_CONFIG"])
print(json.dumps({"rank": rank, "world": n, "total": total, "local": [E["LOCAL_RANK"], E["LOCAL_WORLD_SIZE"]], "master": at[0], "tf": tf["cluster"]["worker"], "task": tf["task"],
                  "hosts": open(E["PENSTOCK_HOSTFILE"]).read().splitlines(), "id": E["LEARNER_ID"]}), flush=True)
'''
DDP = r'''
import json, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0)
m = DistributedDataParallel(torch.nn.Linear(4, 1)); o = torch.optim.SGD(m.parameters(), .1)
for i in range(5):
    o.zero_grad(); m(torch.full((8, 4), float(r + i))).pow(2).mean().backward(); o.step()
print(json.dumps({"rank": r, "weights": [round(x, 6) for x in m.module.weight.flatten().tolist()]}), flush=True); dist.barrier()
'''


def nodes():
    return {n["node"]: n for n in map(json.loads, p.cli("nodes", "--json").stdout.splitlines())}


def lcm(k):
    """Node pair-<k>: a state folder, an address, and two processors of its own."""
    env = dict(p.env, PENSTOCK_STATE_DIR=str(p.dir / f"pair-{k}"), PENSTOCK_REGISTRY=p.registry, PENSTOCK_OBJECTS=f"file:{p.dir}/state/objects")
    return p.spawn("lcm", "--site", "pair", "--node", f"pair-{k}", "--advertise", f"127.0.{k}.1", "--overcommit", 2 / CPUS, log=f"pair-{k}.log", env=env)


def ready(*names):
    until(lambda: all(nodes().get(n, {}).get("state") == "ready" for n in names), 30, lambda: f"{names} ready: {nodes()}")


def gang(name, command, learners=2, cpus=1.5, memory="64 MiB", extra=""):
    return manifest(name, command, learners, f"penstock: {{site: pair, grace: 2s{extra}}}\n").replace("cpus: 0.1", f"cpus: {cpus}").replace("64 MiB", memory)


def said(tid):
    return [(l["process"], json.loads(l["text"])) for l in p.events("logs") if l["training_id"] == tid and l["stream"] == "STDOUT" and l["text"].startswith("{")]


def where(tid):
    return [q["node"] for q in p.show(tid)["processes"]]


def begun(tid, generation):
    """Its commands' own process ids, rank by rank."""
    return [int(f.read_text()) if f.exists() and f.read_text() else 0 for f in (p.dir / f"{tag[tid]}-{generation}-{r}" for r in (0, 1))]


def sleeper(name, retries=1):
    """Two that wait for a word, one a node."""
    t = p.submit(gang(name, f"echo $$ > {p.dir}/{name}-$PENSTOCK_GENERATION-$RANK; while [ ! -e {p.dir}/{name}-go ]; do sleep 0.1; done", extra=f", retries: {retries}, isolation: none"))
    tag[t] = name
    p.wait_state(t, "PROCESSING")
    until(lambda: all(begun(t, 1)), 20, lambda: f"{name} did not begin: {begun(t, 1)}")
    check(sorted(where(t)) == ["pair-1", "pair-2"], f"{name} runs on {where(t)}")
    return t


def go(t):
    (p.dir / f"{tag[t]}-go").touch()
    return p.wait_state(t, *ENDED, timeout=90)


tag = {}
CPUS = len(os.sched_getaffinity(0))
with Platform() as p:
    (p.dir / "code").mkdir()
    (p.dir / "ring.csv").write_text("a,b\n" + "".join(f"{i % 17},{i % 5}\n" for i in range(200)))
    (p.dir / "code/sum.py").write_text(SUM)
    (p.dir / "code/ddp.py").write_text(DDP)
    lcms = {k: lcm(k) for k in (1, 2)}
    ready("pair-1", "pair-2")
    whole = p.submit(gang("whole", "true", 4, 0.5))
    spread = p.submit(gang("sum", f"{PY} sum.py", 4, 0.9), p.dir / "code")
    end = p.wait_state(whole, *ENDED)
    check(end["state"] == "COMPLETED" and set(where(whole)) == {""}, f"a gang that one node holds: {end['state']} on {where(whole)}")
    end = p.wait_state(spread, *ENDED)
    check(end["state"] == "COMPLETED", f"a gang over two nodes: {end['state']}: {end['reason']}")
    at = where(spread)
    check(at[:2] == [at[0]] * 2 and at[2:] == [at[2]] * 2 and at[0] != at[2], f"placed on {at}")
    own = {f"pair-{k}": f"127.0.{k}.1" for k in (1, 2)}
    got = sorted((o["rank"], who, o) for who, o in said(spread))
    check([(r, w) for r, w, _ in got] == [(k, f"learner-{k + 1}") for k in range(4)], f"ranks {got}")
    for r, who, o in got:
        check(o["world"] == 4 and o["total"] == (0 if r else 7 + 49 + 343 + 2401) and o["local"] == [str(r % 2), "2"] and o["id"] == str(r + 1), f"rank {r}: {o}")
        check(o["master"] == own[at[0]] and [a.split(":")[0] for a in o["tf"]] == [own[n] for n in at] and o["task"] == {"type": "worker", "index": r}, f"addresses of rank {r}: {o}")
        mine, others = ("localhost slots=2", f"{own[at[0 if r > 1 else 2]]} slots=2")
        check(o["hosts"] == ([mine, others] if r < 2 else [others, mine]), f"host file of rank {r}: {o['hosts']}")
    check(len({a for _, _, o in got for a in o["tf"]}) == 4, f"ports that two have: {got}")
    told = [l["text"] for l in p.events("logs") if l["training_id"] == spread and l["stream"] == "SYSTEM" and "JOB_DIR" in l["text"]]
    check(len(told) == 4, f"what is shared is said {len(told)} times")
    members = [e["reason"] for e in p.events("jobs.events") if e["training_id"] == spread and "members" in (e["reason"] or "")]
    check(len(members) == 1, f"the membership is concluded {len(members)} times: {members}")

    # refused, or waiting with its reason
    r = p.cli("submit", p.dir / "wide.yml" if (p.dir / "wide.yml").write_text(gang("wide", "true", 5, 1.5)) else "", ok=False)
    check(r.returncode == 10 and "2 of its 5" in r.stderr, f"too wide for both: {r.returncode} {r.stderr}")
    (p.dir / "mpi.yml").write_text(gang("mpi", "true").replace("name: custom", "name: horovod"))
    r = p.cli("submit", p.dir / "mpi.yml", ok=False)
    check(r.returncode == 10 and "mpirun" in r.stderr, f"mpirun over nodes: {r.returncode} {r.stderr}")

    # the built-in learner: its ring goes over both nodes, and rank 0's checkpoint is everybody's
    native = p.submit("name: native\ncpus: 1.5\nmemory: 64 MiB\nlearners: 2\ndata_stores: [{id: d, type: files, connection: {path: %s}}]\nframework: {name: native}\n"
                      "penstock: {site: pair, model: {name: native}, learner: {features: [a, b], epochs: 20}}\n" % (p.dir / "ring.csv"))
    end = p.wait_state(native, *ENDED)
    check(end["state"] == "COMPLETED" and sorted(where(native)) == ["pair-1", "pair-2"], f"native: {end['state']} on {where(native)}: {end['reason']}")

    # an LCM dies: what runs goes on, and is adopted; a member dies: all go into the next generation
    a = sleeper("lcm")
    lcms[2].kill()
    lcms[2].wait()
    lcms[2] = lcm(2)
    end = go(a)
    check(end["state"] == "COMPLETED" and end["generation"] == 1, f"an LCM killed: {end['state']} in generation {end['generation']}: {end['reason']}")
    b = sleeper("member")
    first = begun(b, 1)
    os.kill(first[1], signal.SIGKILL)
    until(lambda: all(begun(b, 2)), 40, lambda: f"no second generation: {p.show(b)}")
    check(not any(map(alive, first)), f"of generation 1 lives: {first}")
    end = go(b)
    check(end["state"] == "COMPLETED" and end["generation"] == 2, f"a member killed: {end['state']} in generation {end['generation']}: {end['reason']}")

    # halt reaches both, and is told when both are over; resumed, it is a gang again
    c = sleeper("halt")
    p.cli("halt", c)
    p.wait_state(c, "HALTED")
    check(not any(map(alive, begun(c, 1))), "HALTED while a part of it lives")
    p.cli("resume", c)
    end = go(c)
    check(end["state"] == "COMPLETED" and end["generation"] == 2, f"resumed: {end['state']} in generation {end['generation']}: {end['reason']}")

    # a node is given up: its part counts as lost, the other is ended, all of it waits for two nodes; what comes back is fenced
    d = sleeper("lost")
    first = begun(d, 1)
    lcms[2].kill()
    lcms[2].wait()
    p.cli("nodes", "lost", "pair-2")
    until(lambda: p.show(d)["state"] == "QUEUED", 30, lambda: f"after the loss: {p.show(d)}")
    on = where(d)
    check(not alive(first[on.index("pair-1")]), "the part on the other node lives")
    check(alive(first[on.index("pair-2")]), "what is given up has ended by itself: the test shows nothing")
    until(lambda: "needs 3 CPUs" in p.cli("why", d).stdout, 10, lambda: f"why: {p.cli('why', d).stdout}")
    lcms[2] = lcm(2)
    until(lambda: all(begun(d, 2)), 60, lambda: f"no second generation: {p.show(d)}")
    check(not any(map(alive, first)), f"of generation 1 lives: {first}")
    end = go(d)
    check(end["state"] == "COMPLETED" and end["generation"] == 2, f"a node lost: {end['state']} in generation {end['generation']}: {end['reason']}")
    done = "ranks, addresses, host file over two nodes; an LCM killed, a member killed, a halt, a node lost"

    if subprocess.run([PY, "-c", "import torch.distributed"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
        t = p.submit(gang("ddp", f"{PY} ddp.py", memory="1536 MiB"), p.dir / "code")
        end = p.wait_state(t, *ENDED, timeout=120)
        weights = [o["weights"] for _, o in said(t)]
        check(end["state"] == "COMPLETED" and sorted(where(t)) == ["pair-1", "pair-2"] and len(weights) == 2 and weights[0] == weights[1], f"DDP: {end['state']} {end['reason']} {weights}")
        done += ", PyTorch DDP"
    else:
        print("left out: PyTorch (apt install python3-torch)")
    for w in lcms.values():
        w.terminate()
        check(w.wait(15) == 0, f"an LCM ended with {w.returncode}")
print(f"ok: {done}")
