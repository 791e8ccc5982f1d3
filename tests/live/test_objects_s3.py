"""--objects s3://: a Trainer, two nodes, a client and a scorer's host that share no folder, over a bucket of a server that checks signatures and fails now and then.
Code too large for a record, code in a record, a model registered on one node and fetched elsewhere, an outage, a wrong bucket. The secret is in no topic, no environment and no command line of what runs for a job."""
import hashlib, os, signal, time
from s3_kit import *

TREE = ("tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\nmax_feature_idx=1\nobjective=regression\nfeature_names=cpu mem\nfeature_infos=[0:100] [0:10]\n"
        "tree_sizes=300\n\nTree=0\nnum_leaves=2\nnum_cat=0\nsplit_feature=0\nsplit_gain=1\nthreshold=3.25\ndecision_type=2\nleft_child=-1\nright_child=-2\nleaf_value=1.5 -2.5\n"
        "leaf_weight=1 1\nleaf_count=1 1\ninternal_value=0\ninternal_weight=0\ninternal_count=2\nis_linear=0\nshrinkage=1\n\n\nend of trees\n")

with Platform(up=False, without="trainer,lcm,scorers") as p:
    s3 = S3(p.dir)
    try:
        door = Door(s3)
        p.env |= {"PENSTOCK_OBJECTS": "s3://platform/at/home", "PENSTOCK_OBJECTS_ENDPOINT": f"http://127.0.0.1:{door.port}", "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

        def doctor():
            lines = p.cli("doctor", ok=False).stdout
            return next((l for l in lines.splitlines() if "objects" in l), lines) + lines

        # what is wrong with the store is said, with the cure
        p.up()
        p.env |= {"PENSTOCK_REGISTRY": p.registry, "PENSTOCK_GATEWAY": p.gateway}
        check("make the bucket" in doctor(), "doctor does not say that the bucket is missing")
        s3.make("platform")
        right = p.env["AWS_SECRET_ACCESS_KEY"]
        p.env["AWS_SECRET_ACCESS_KEY"] = "another"
        check("AWS_SECRET_ACCESS_KEY" in doctor(), "doctor does not say that the secret is wrong")
        p.env["AWS_SECRET_ACCESS_KEY"] = right
        check("make the bucket" not in doctor() and "does not answer" not in doctor(), "doctor complains of a store that works")

        def at(name):
            return {**p.env, "PENSTOCK_STATE_DIR": str(p.dir / name)}

        p.spawn("trainer", log="trainer.log", env=at("state-trainer"))
        for node in "ab":
            p.spawn("lcm", "--node", f"node-{node}", "--site", f"site-{node}", "--overcommit", 4, log=f"lcm-{node}.log", env=at(f"state-{node}"))

        # every third request is answered 503, every fourth breaks off: nothing of it is seen
        door.fails = lambda method, path, n: "503" if n % 3 == 0 else "cut" if n % 4 == 0 and method == "GET" else None
        large, small = p.dir / "large", p.dir / "small"
        for folder, size in ((large, 900_000), (small, 10)):
            folder.mkdir()
            (folder / "noise").write_bytes(os.urandom(size))
        say = "sha256sum < noise; env > env.txt; ! grep -E '^(AWS_|PENSTOCK_OBJECTS)' env.txt"
        jobs = {folder: p.submit(manifest("code", say, extra=f"penstock: {{site: site-{site}}}\n"), folder) for folder, site in ((large, "a"), (small, "b"))}
        for folder, tid in jobs.items():
            check(p.wait_state(tid, "COMPLETED", "FAILED", timeout=90)["state"] == "COMPLETED", f"{p.show(tid)}: {p.cli('logs', tid, ok=False).stdout}")
            digest = hashlib.sha256((folder / "noise").read_bytes()).hexdigest()
            until(lambda: digest in p.cli("logs", tid, ok=False).stdout, 30, "the learner saw the code that was submitted")
        check(len(s3.keys("platform", "at/home/code/")) == 2, f"the two archives are not in the bucket: {s3.keys('platform')}")

        # a model of node a, whose supervisor is killed while its artefact is on the way; then the store is away
        state = {"puts": 0, "away": True}

        def fails(method, path, n):
            if method == "PUT" and "/models/" in path:
                state["puts"] += 1
            return "away" if state["away"] and "/models/" in path else None
        door.fails = fails
        (small / "model.txt").write_text(TREE)
        tid = p.submit(manifest("trains", "mkdir -p $RESULT_DIR/model && cp model.txt $RESULT_DIR/model/", extra="penstock: {site: site-a, model: {name: tree, alias: live}}\n"), small)
        until(lambda: any("/models/" in path for _, path, _ in door.seen), 60, "the model is on its way")
        supervisors = [pid for pid, command in p.everything() if tid in command and "supervise" in command]
        for pid in supervisors:
            words = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
            check(right.encode() not in words and KEY.encode() not in words, "a supervisor's environment or command line has the credentials")
        check(supervisors, "no supervisor is seen")
        time.sleep(2)  # an outage of some pauses
        check(p.show(tid)["state"] not in ("FAILED", "COMPLETED"), "the outage ended the job")
        state["away"] = False
        check(p.wait_state(tid, "COMPLETED", "FAILED", timeout=90)["state"] == "COMPLETED", f"{p.show(tid)}")
        here, p.env = p.env, at("state-elsewhere")
        fetched = p.dir / "fetched.txt"
        p.cli("models", "fetch", "tree:1", fetched)
        check(fetched.read_text() == TREE, "the model that another host fetches differs")

        # who has another store than the one that wrote is told so
        p.env["PENSTOCK_OBJECTS"] = f"file:{p.dir}/own"
        said = p.cli("models", "fetch", "tree:1", fetched, ok=False)
        check(said.returncode != 0 and "another --objects" in said.stderr, f"a host with file: is not told: {said.stderr}")
        p.env = here

        logs = b"".join(f.read_bytes() for f in p.dir.glob("*.log")) + b"".join(f.read_bytes() for f in p.dir.glob("state-*/jobs/**/*.log"))
        check(right.encode() not in logs, "the secret is in a log")
        dumped = b"".join(f.read_bytes() for f in (p.dir / "kafka").rglob("*.log") if "penstock." in f.parent.name)
        check(len(dumped) > 1000 and right.encode() not in dumped and KEY.encode() not in dumped, "credentials are in a topic")
    finally:
        s3.end()
print("ok")
