#!/usr/bin/env python3
"""`penstock lcm --launcher kubernetes` against a server of the Kubernetes API's semantics whose pods are real processes (kube_kit.py): a job from end to end
in a container of another image, halts, a killed LCM, watches that are cut and forgotten, quotas and nodes that are full, a gang that is all or nothing, an
API server that is away, and no pod left behind by any of it."""
import contextlib, json, os, signal, sys, time
sys.path.insert(0, os.path.dirname(__file__))
from kit import BIN, Platform, check, free_ports, manifest, until
from kube_kit import Cluster

START = time.monotonic()


def step(text):
    print(f"{time.monotonic() - START:6.1f} s  {text}", flush=True)


def start_lcm(p, k, *more):
    return p.spawn("lcm", "--launcher", "kubernetes", "--kubeconfig", k.kubeconfig, "--image", "registry.local/penstock:1",
                   *more, log="lcm.log")


def pods(k):
    with k.lock:
        return {n: json.loads(json.dumps(o)) for n, o in k.objects["pods"].items()}


def running(k, n):
    until(lambda: sum(o["status"]["phase"] == "Running" for o in pods(k).values()) == n, 30, lambda: f"{n} pods run: { {a: b['status'] for a, b in pods(k).items()} }")


def why(p, tid):
    return p.cli("why", tid, ok=False).stdout + json.dumps(p.show(tid))


def events(p, tid):
    return p.cli("events", tid, "--json").stdout


def a_job(p, k):
    tid = p.submit(manifest("one", 'echo "hello from $(pwd)"; echo \'{"penstock":"metrics","step":1,"loss":0.5}\'; echo r > $RESULT_DIR/r; env; sleep 1'))
    until(lambda: pods(k), 30, "a pod")
    pod = next(iter(pods(k).values()))
    p.wait_state(tid, "COMPLETED")
    logs = p.cli("logs", tid).stdout
    check("hello from" in logs, f"the log has the output: {logs[-500:]}")
    check("PENSTOCK_RUN_NONCE" not in logs and "PENSTOCK_HANDOVER" not in logs and "BOOTSTRAP" not in logs, "the learner's environment has nothing of the platform's")
    check('"loss":0.5' in p.cli("metrics", tid, "--json").stdout.replace(" ", ""), "the metric arrived")
    spec, c = pod["spec"], pod["spec"]["containers"][0]
    check(spec["restartPolicy"] == "Never" and not spec["automountServiceAccountToken"], "the pod is no service of the cluster's")
    check(c["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}, f"security: {c['securityContext']}")
    check(spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", "seccomp")
    check({"key": "dedicated", "operator": "Equal", "value": "gpu-task", "effect": "NoSchedule"} in spec["tolerations"], "FfDL's toleration")
    check(c["resources"]["requests"]["cpu"] == "100m" and c["resources"]["limits"]["memory"] == str((64 + 128) << 20), f"resources: {c['resources']}")
    check(not any("secret" in m["name"] for m in c["volumeMounts"]), "the learner's container does not mount the secret")
    until(lambda: not pods(k) and not k.objects["secrets"], 15, "the pod that has ended is deleted, its secret with it")
    check(k.created.count(pod["metadata"]["name"]) == 1, f"one pod: {k.created}")
    return tid


def halt_and_adopt(p, k, lcm):
    tid = p.submit(manifest("long", "trap 'echo asked; exit 0' TERM; echo up; for i in $(seq 1000); do sleep 0.1; done"))
    p.wait_state(tid, "PROCESSING")
    name, before = next(iter(pods(k))), next(iter(k.running.values())).pid
    lcm.kill()
    lcm.wait(10)
    k.cut()
    lcm = start_lcm(p, k)
    until(lambda: "event=adopted" in (p.dir / "lcm.log").read_text(), 30, "the pod is adopted")
    check(next(iter(k.running.values())).pid == before and k.created.count(name) == 1, "it is the same process")
    step("adopted after kill -9")
    k.compact()
    k.cut()
    p.cli("halt", tid)
    p.wait_state(tid, "HALTED")
    until(lambda: not pods(k), 15, "the pod of a halted job is deleted")
    check("asked" in p.cli("logs", tid).stdout, "the learner had its grace time")
    step("halted, after a watch that was cut and forgotten (410)")
    return lcm


def not_created_yet(p, k):
    k.quota = 0
    tid = p.submit(manifest("poor", "echo rich"))
    until(lambda: "exceeded quota" in why(p, tid), 30, lambda: f"why tells of the quota: {why(p, tid)}")
    k.quota, k.schedulable = None, False
    until(lambda: "Insufficient nvidia.com/gpu" in events(p, tid), 30, lambda: f"the events tell why it is not scheduled: {events(p, tid)}")
    check("Insufficient" in why(p, tid), why(p, tid))
    k.schedulable, k.image_error = True, "Back-off pulling image \"1\": not found"
    until(lambda: "ImagePullBackOff" in why(p, tid), 30, lambda: f"why tells of the image: {why(p, tid)}")
    k.image_error = None
    p.wait_state(tid, "COMPLETED")
    step("quota, no node, no image: told, and over")
    k.quota = 0
    tid = p.submit(manifest("stopped", "echo never"))
    until(lambda: "exceeded quota" in why(p, tid), 30, lambda: why(p, tid))
    p.cli("terminate", tid)
    p.wait_state(tid, "TERMINATED")
    k.quota = None
    check("never" not in p.cli("logs", tid).stdout, "it never began")
    step("terminated before it had a pod")


def gang(p, k):
    k.quota, k.created = 1, []
    tid = p.submit(manifest("two", 'echo "I am $RANK of $WORLD_SIZE at $MASTER_ADDR local $LOCAL_RANK"; test "$WORLD_SIZE" = 2', learners=2))
    until(lambda: "exceeded quota" in why(p, tid), 30, lambda: why(p, tid))
    until(lambda: not pods(k), 15, "all or nothing: the first pod goes when the second is refused")
    check("I am" not in p.cli("logs", tid).stdout, "none of a gang begins before all are there")
    k.quota = None
    p.wait_state(tid, "COMPLETED")
    logs = p.cli("logs", tid).stdout
    check("I am 0 of 2 at 127.9.0." in logs and "I am 1 of 2 at 127.9.0." in logs, f"both met by the pods' addresses: {logs[-600:]}")
    step("a gang of two: all or nothing, then done")


def server_away(p, k):
    tid = p.submit(manifest("through", "echo up; sleep 4; echo down"))
    p.wait_state(tid, "PROCESSING")
    k.away(2)
    other = p.submit(manifest("meanwhile", "exit 3"))
    p.wait_state(tid, "COMPLETED")
    s = p.wait_state(other, "FAILED")
    check("3" in str(s.get("reason")), f"its own exit code is the reason: {s}")
    step("the API server was away, nothing was lost")


def pod_deleted(p, k):
    tid = p.submit(manifest("robbed", "echo up; sleep 100"))
    p.wait_state(tid, "PROCESSING")
    name, process = next(iter(k.running.items()))
    k.kill(process)  # the node takes it without a word
    s = p.wait_state(tid, "FAILED", "PROCESSING", "QUEUED")
    until(lambda: "exit code 137" in events(p, tid), 30, lambda: f"the events tell how the pod ended: {events(p, tid)}")
    p.cli("terminate", tid, ok=False)
    p.wait_state(tid, "FAILED", "TERMINATED")
    step("a pod that was killed is told as that")


def invalid(p, k):
    k.invalid = "spec.containers[0].image: Invalid value"
    tid = p.submit(manifest("bad", "echo no"))
    s = p.wait_state(tid, "FAILED")
    check("Invalid value" in s["reason"], s["reason"])
    k.invalid = None
    step("what the API server calls invalid ends the job with its words")


def main():
    port = free_ports(1)
    r = None
    with Platform(without="lcm") as p, Cluster(port, p.dir / "kube", BIN.parent) as k:
        r = p.cli("lcm", "--launcher", "kubernets", ok=False)
        check(r.returncode == 2 and "local, kubernetes" in r.stderr, f"a wrong launcher is answered with all: {r.stderr}")
        r = p.cli("lcm", "--launcher", "kubernetes", ok=False)
        check(r.returncode != 0 and "--kubeconfig" in r.stderr, f"no API server: what to do is said: {r.stderr}")
        lcm = start_lcm(p, k)
        until(lambda: p.cli("nodes", "--json", ok=False).stdout.strip(), 30, "the node is there")
        node = json.loads(p.cli("nodes", "--json").stdout.splitlines()[0])
        check(node["cpus"] == 8 and node["gpus"] == 2, f"it offers what the cluster's nodes have: {node}")
        step("ready")
        a_job(p, k)
        step("a job ran in a pod")
        lcm = halt_and_adopt(p, k, lcm)
        not_created_yet(p, k)
        gang(p, k)
        server_away(p, k)
        pod_deleted(p, k)
        invalid(p, k)
        until(lambda: not pods(k) and not k.objects["secrets"], 20, lambda: f"nothing is left: {list(pods(k))}")
        check(k.verbs == {("list", "pods"), ("watch", "pods"), ("create", "pods"), ("get", "pods"), ("delete", "pods"), ("create", "secrets"), ("list", "nodes")} or
              k.verbs == {("list", "pods"), ("watch", "pods"), ("create", "pods"), ("delete", "pods"), ("create", "secrets"), ("list", "nodes")},
              f"no more is asked for than deploy/kubernetes allows: {k.verbs}")
        lcm.terminate()
        check(lcm.wait(10) == 0, "the LCM ends well")
    print("ok")


main()
