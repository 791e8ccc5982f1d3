#!/usr/bin/env python3
"""`penstock lcm --launcher kubernetes` against a server of the Kubernetes API's semantics whose pods are real processes (kube_kit.py): a job from end to end
in a container of another image, halts, a killed LCM, watches that are cut and forgotten, quotas and nodes that are full, a gang that is all or nothing, an
API server that is away, and no pod left behind by any of it."""
import contextlib, json, os, signal, sys, time
sys.path.insert(0, os.path.dirname(__file__))
from kit import BIN, ROOT, Platform, check, free_ports, manifest, until
from kube_kit import Cluster

START = time.monotonic()


def step(text):
    print(f"{time.monotonic() - START:6.1f} s  {text}", flush=True)


def start_lcm(p, k, *more):
    return p.spawn("lcm", "--launcher", "kubernetes", "--kubeconfig", k.kubeconfig, "--image", "registry.local/penstock:1", "--port", k.lcm_port,
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
    code = p.dir / "code"
    code.mkdir()
    (code / "hello.sh").write_text('echo "hello from $(pwd)"\n')
    tid = p.submit(manifest("one", './hello.sh; echo \'{"penstock":"metrics","step":1,"loss":0.5}\'; echo r > $RESULT_DIR/r; env; sleep 1'), code)
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
    mounted = {m["mountPath"] for m in c["volumeMounts"] if m["name"] == "state"}
    check(mounted == {f"{p.dir}/state/jobs/{tid}", "/job", f"{p.dir}/state/objects"}, f"its job's folder, and where its code is, are mounted and no more: {mounted}")
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
    k.schedulable, k.answer_late_s, k.quota = False, 0.5, None
    until(lambda: "Insufficient nvidia.com/gpu" in events(p, tid), 30, lambda: f"the events tell why it is not scheduled: {events(p, tid)}")
    check("Insufficient" in why(p, tid), why(p, tid))
    k.answer_late_s, k.image_error, k.schedulable = 0, "Back-off pulling image \"1\": not found", True
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


def gang_and_crash(p, k, lcm):
    """Killed while only one of two was there: its successor takes that one back as well when the other is refused again."""
    k.quota, k.created = 1, []
    k.before_create = lambda name: len(k.created) == 1 and lcm.poll() is None and lcm.kill()
    tid = p.submit(manifest("half", 'test "$WORLD_SIZE" = 2 && echo both', learners=2))
    until(lambda: lcm.poll() is not None, 30, "the LCM is killed at the second pod of the gang")
    k.before_create = None
    check(len(pods(k)) == 1, f"one pod: {list(pods(k))}")
    k.cut()
    lcm = start_lcm(p, k)
    until(lambda: not pods(k), 30, "the first pod goes when the second is refused")
    k.quota = None
    p.wait_state(tid, "COMPLETED")
    check(p.cli("logs", tid).stdout.count("both") == 2, "both ran, once")
    step("an LCM killed in the middle of a gang: all or nothing")
    return lcm


def evicted(p, k):
    """Somebody else deletes the pod: the learner has its grace time, and the job says how it ended."""
    tid = p.submit(manifest("evicted", "trap 'echo asked; exit 7' TERM; echo up; for i in $(seq 1000); do sleep 0.1; done"))
    p.wait_state(tid, "PROCESSING")
    name = next(iter(pods(k)))
    k.delete("pods", name, {"gracePeriodSeconds": 20})
    until(lambda: '"PROCESS_EXITED"' in events(p, tid).replace(" ", "").replace('"type":', ""), 30, lambda: f"its end is told: {events(p, tid)}")
    check("asked" in p.cli("logs", tid).stdout, "SIGTERM reached the learner")
    check("deleted or evicted" in events(p, tid), f"the events say that it was not the command's doing: {events(p, tid)}")
    until(lambda: len([n for n in k.created if n.startswith(tid)]) == 2, 60, lambda: f"it is tried again, which costs no retry of its own: {p.show(tid)}")
    p.cli("terminate", tid)
    p.wait_state(tid, "TERMINATED")
    step("a pod that somebody deleted: the learner had its grace time, the job goes on")


def server_away(p, k):
    tid = p.submit(manifest("through", "echo up; sleep 4; echo down"))
    p.wait_state(tid, "PROCESSING")
    k.away(2)
    other = p.submit(manifest("meanwhile", "exit 3"))
    p.wait_state(tid, "COMPLETED")
    s = p.wait_state(other, "FAILED")
    check("3" in str(s.get("reason")), f"its own exit code is the reason: {s}")
    step("the API server was away, nothing was lost")


def watch_lies(p, k):
    """A quota that is being counted when the secret comes; a pod that only lost its label; a watch that ends with an error."""
    k.counting = 2
    tid = p.submit(manifest("unlabelled", "echo up; sleep 100"))
    p.wait_state(tid, "PROCESSING")
    check(k.counting == 0, "the secret was refused, and came all the same")
    name = next(n for n in pods(k) if n.startswith(tid))
    lists = k.calls.count(("list", "pods", None))
    k.changed("pods", "DELETED", k.objects["pods"][name])
    until(lambda: ("get", "pods", name) in k.calls, 10, "what is told as deleted, and was not being deleted, is asked for")
    k.stumble = True
    until(lambda: k.calls.count(("list", "pods", None)) > lists, 10, "after an error of the watch all is listed")
    time.sleep(2)
    check([n for n in k.created if n.startswith(tid)] == [name] and p.show(tid)["state"] == "PROCESSING", f"it goes on, and no second one: {p.show(tid)}")
    p.cli("terminate", tid)
    p.wait_state(tid, "TERMINATED")
    step("a watch that lies ends nothing that lives")


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


def manifests(p, k):
    """deploy/kubernetes against the program: what it says of options, variables, rights and probes is so."""
    import re, subprocess, yaml
    folder = ROOT / "deploy/kubernetes"
    docs = {f.name: list(yaml.safe_load_all(f.read_text())) for f in folder.glob("*.yaml")}
    everything = [d for f, ds in docs.items() for d in ds]
    check(set(docs["kustomization.yaml"][0]["resources"]) | {"kustomization.yaml"} == set(docs), f"every file is a resource: {sorted(docs)}")
    known = " ".join(p.cli("trainer", "--help").stdout.split())
    variables = next(d for d in everything if d["kind"] == "ConfigMap" and d["metadata"]["name"] == "penstock")["data"]
    check(all(f"[{name}]" in known for name in variables), f"variables that a service reads: {list(variables)}")
    names = {(d["kind"], d["metadata"]["name"]) for d in everything if d["kind"] != "Kustomization"}
    probes = 0
    for d in (d for d in everything if d["kind"] == "Deployment"):
        pod, name = d["spec"]["template"]["spec"], d["metadata"]["name"]
        c = pod["containers"][0]
        n = next(i for i, a in enumerate(c["args"]) if a.startswith("-"))
        text = p.cli(*c["args"][:n], "--help").stdout
        options = [a for a in c["args"][n:] if a.startswith("-")]
        check(all(re.search(rf"(^|\s){re.escape(o)}\b", text) for o in options), f"{name}: {options} are options of penstock {c['args'][:n]}")
        check(all(("ConfigMap", e["configMapRef"]["name"]) in names for e in c["envFrom"] if "configMapRef" in e), f"{name}: its ConfigMap")
        for v in pod["volumes"]:
            claim, config = v.get("persistentVolumeClaim", {}).get("claimName"), v.get("configMap", {}).get("name")
            check((not claim or ("PersistentVolumeClaim", claim) in names) and (not config or ("ConfigMap", config) in names), f"{name}: volume {v}")
        check(pod["securityContext"]["runAsNonRoot"] and c["securityContext"]["capabilities"] == {"drop": ["ALL"]}, f"{name}: it fits `restricted`")
        check((pod.get("serviceAccountName") == "penstock-lcm") == (name == "penstock-lcm") and (name == "penstock-lcm" or pod["automountServiceAccountToken"] is False), f"{name}: rights")
        check("livenessProbe" in c, f"{name}: a probe")
        if "exec" in c["livenessProbe"]:  # run as it stands, but for the port of the LCM that there is
            command = [a.replace("127.0.0.1/9101", f"127.0.0.1/{k.lcm_port}").replace("127.0.0.1/9102", f"127.0.0.1/{k.lcm_port}") for a in c["livenessProbe"]["exec"]["command"]]
            check(subprocess.run(command, timeout=20).returncode == 0, f"{name}: its probe finds a healthy service: {command}")
            check(subprocess.run([a.replace(str(k.lcm_port), "1") for a in command], timeout=20, stderr=subprocess.DEVNULL).returncode, f"{name}: and none where there is none")
            probes += 1
    check(probes == 2, "trainer and LCM are probed from inside")
    rules = [r for d in everything if d["kind"] in ("Role", "ClusterRole") for r in d["rules"]]
    check(all(r["apiGroups"] == [""] for r in rules), "the core API alone")
    allowed = {(verb, kind) for r in rules for kind in r["resources"] for verb in r["verbs"]}
    check(k.verbs == allowed, f"the launcher asks for what deploy/kubernetes allows, all of it and nothing else: {k.verbs ^ allowed}")
    step("deploy/kubernetes fits the program")


def foreign_pod(p, k):
    """A pod that somebody else made under the name that ours will have is neither taken for ours nor touched."""
    with k.lock:
        k.schedulable = False
    k.before_create = lambda name: k.objects["pods"].setdefault(name, {"metadata": {"name": name, "uid": "foreign", "resourceVersion": "1"}, "spec": {}, "status": {"phase": "Running"}})
    tid = p.submit(manifest("squatted", "echo no"))
    s = p.wait_state(tid, "FAILED")
    k.before_create, k.schedulable = None, True
    left = {n for n, o in pods(k).items() if o["metadata"]["uid"] == "foreign"}
    check("somebody else made it" in s["reason"] and left, f"{s['reason']}; left: {left}")
    with k.lock:
        for n in left:
            del k.objects["pods"][n]
    step("a stranger's pod of the same name is left alone, and the job says so")


def main():
    port = free_ports(1)
    r = None
    with Platform(without="lcm") as p, Cluster(port, p.dir / "kube", BIN.parent) as k:
        r = p.cli("lcm", "--launcher", "kubernets", ok=False)
        check(r.returncode == 2 and "local, kubernetes" in r.stderr, f"a wrong launcher is answered with all: {r.stderr}")
        r = p.cli("lcm", "--launcher", "kubernetes", ok=False)
        check(r.returncode != 0 and "--kubeconfig" in r.stderr, f"no API server: what to do is said: {r.stderr}")
        k.lcm_port = free_ports(1)
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
        lcm = gang_and_crash(p, k, lcm)
        evicted(p, k)
        server_away(p, k)
        watch_lies(p, k)
        pod_deleted(p, k)
        invalid(p, k)
        foreign_pod(p, k)
        until(lambda: not pods(k) and not k.objects["secrets"], 20, lambda: f"nothing is left: {list(pods(k))}")
        manifests(p, k)
        lcm.terminate()
        check(lcm.wait(10) == 0, "the LCM ends well")
    print("ok")


main()
