"""Data in and results out by an S3 server that checks signatures: odd keys, large files, two learners, FfDL's layout; after a failure, a halt and a resume;
a server that answers 503 or breaks off; a supervisor that is killed while it stores; a wrong secret. The secret is in no topic and in no answer."""
import hashlib, json, os, signal, socket, time
from s3_kit import *

IN, OUT = "tf_Training_Data", "tf_trained_model"
ODD = {"plain.csv": b"1,2,3\n", "with blank.csv": b"blank", "a+b=c%41.txt": b"plus", "d\u00e9j\u00e0/vu &<>'.txt": "\u00e9".encode(), "deep/er/x.bin": bytes(range(256)) * 4096, "empty": b""}


def stores(url, secret=SECRET, kind="s3_datastore"):
    where = f"connection: {{auth_url: '{url}', user_name: {KEY}, password: '{secret}', region: us-east-1}}"
    return f"data_stores:\n  - {{id: s, type: {kind}, training_data: {{container: {IN}}}, training_results: {{container: {OUT}}}, {where}}}\n"


with Platform() as p:
    s3 = S3(p.dir)
    try:
        door = Door(s3)
        direct, through = f"http://127.0.0.1:{s3.port}", f"http://127.0.0.1:{door.port}"
        s3.make(IN), s3.make(OUT)
        for key, body in ODD.items():
            s3.put(IN, key, body)

        # two learners see all of it, byte for byte; what they write is in the bucket, a large file in parts
        command = ("cd $DATA_DIR; find . -type f -print0 | sort -z | xargs -0 sha256sum > $RESULT_DIR/seen-$LEARNER_ID; "
                   "if [ $LEARNER_ID = 1 ]; then head -c 40000000 /dev/zero | tr '\\0' x > $RESULT_DIR/large.bin; fi; "
                   "mkdir -p \"$RESULT_DIR/sub dir\"; echo $LEARNER_ID > \"$RESULT_DIR/sub dir/n+$LEARNER_ID\"; echo c > $CHECKPOINT_DIR/step-7.ckpt; ln -s /etc/passwd $RESULT_DIR/link; echo done")
        code = p.dir / "code"
        code.mkdir()
        (code / "train.py").write_text("print(1)\n")
        good = p.submit(manifest("two", command, learners=2, extra=stores(direct)), code)
        failing = p.submit(manifest("fails", "echo before > $RESULT_DIR/half; echo seen; exit 3", extra=stores(direct, kind="mount_cos")))
        waits = "trap 'echo asked > $RESULT_DIR/asked; echo 5 > $CHECKPOINT_DIR/at; exit 0' TERM; if [ -f $CHECKPOINT_DIR/at ]; then cp $CHECKPOINT_DIR/at $RESULT_DIR/resumed; exit 0; fi; echo ready; while true; do sleep 0.1; done"
        halted = p.submit(manifest("halts", waits, extra=stores(direct)))
        p.wait_state(good, "COMPLETED", timeout=90)
        keys = set(s3.keys(OUT, good + "/"))
        want = {f"{good}/{k}" for k in ("seen-1", "seen-2", "large.bin", "sub dir/n+1", "sub dir/n+2", "_wml_checkpoints/step-7.ckpt", "_submitted_code/model.zip",
                                        "learner-1/training-log.txt", "learner-2/training-log.txt", "learner-1/load-data.log", "learner-1/load-model.log")}
        check(want <= keys, f"missing in the results: {want - keys}; there: {keys}")
        check(f"{good}/link" not in keys, "a link of the learner was followed")
        seen = s3.get(OUT, f"{good}/seen-1").decode()
        for key, body in ODD.items():
            check(f"{hashlib.sha256(body).hexdigest()}  ./{key}\n" in seen, f"{key} is not what the bucket has: {seen}")
        check(seen.count("\n") == len(ODD), f"other files in $DATA_DIR: {seen}")
        check(hashlib.sha256(s3.get(OUT, f"{good}/large.bin")).digest() == hashlib.sha256(b"x" * 40000000).digest(), "large.bin differs")

        check(p.wait_state(failing, "FAILED")["reason_code"] == "C201", "the failure's own reason is lost")
        check(s3.get(OUT, f"{failing}/half") == b"before\n" and b"seen" in (s3.get(OUT, f"{failing}/learner-1/training-log.txt") or b""), "results of a job that failed are not there")

        until(lambda: "ready" in p.cli("logs", halted, ok=False).stdout, 60, "the job that waits is ready")
        p.cli("halt", halted)
        p.wait_state(halted, "HALTED")
        check(s3.get(OUT, f"{halted}/asked") == b"asked\n" and s3.get(OUT, f"{halted}/_wml_checkpoints/at") == b"5\n", "results of a job that was halted are not there")
        for f in (p.dir / "state/jobs" / halted / "checkpoints").iterdir():
            f.unlink()  # as on another node
        p.cli("resume", halted)
        p.wait_state(halted, "COMPLETED")
        check(s3.get(OUT, f"{halted}/resumed") == b"5\n", "the checkpoint did not come back")

        # the server answers 503, breaks off in the middle of bodies, is away for some requests; nothing is lost
        door.fails = lambda method, path, n: "503" if n % 5 == 2 else "away" if n % 7 == 3 else "cut" if method == "GET" and "x.bin" in path and n % 2 else None
        shaky = p.submit(manifest("shaky", "sha256sum $DATA_DIR/deep/er/x.bin > $RESULT_DIR/sum", extra=stores(through)))
        p.wait_state(shaky, "COMPLETED", timeout=90)
        check(s3.get(OUT, f"{shaky}/sum").decode().startswith(hashlib.sha256(ODD["deep/er/x.bin"]).hexdigest()), "a body that broke off was mended wrongly")
        check(not any(SECRET in text for request in door.seen for text in request), "the secret went over the wire")

        # a supervisor that is killed while it stores is followed by one that stores the rest
        door.fails, door.delay = lambda *_: None, 0.1
        killed = p.submit(manifest("killed", "for i in $(seq 30); do echo $i > $RESULT_DIR/f$i; done", extra=stores(through)))
        until(lambda: len(s3.keys(OUT, killed + "/")) > 3, 60, "some of the results are stored")
        for pid, command in p.processes("supervise"):
            if killed in command:
                os.kill(pid, signal.SIGKILL)
        p.wait_state(killed, "COMPLETED", timeout=90)
        check(sum(1 for k in s3.keys(OUT, killed + "/f")) == 30, f"results of a killed supervisor: {s3.keys(OUT, killed + '/f')}")
        door.delay = 0

        # a wrong secret, no such bucket, nobody there: rejected with FfDL's code; others are admitted meanwhile, and what is asked meanwhile is done
        silent = socket.create_server(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{silent.getsockname()[1]}"
        request = {"request_id": "s-away", "action": "SUBMIT", "user": "test", "manifest": manifest("away", "true", extra=stores(nowhere))}
        producer = p.producer()
        producer.produce(PREFIX + "jobs.requests", json.dumps(request), key="s-away")
        producer.produce(PREFIX + "jobs.requests", json.dumps({**request, "request_id": "s-ended"}), key="s-ended")
        producer.flush(30)
        begin = time.monotonic()
        p.submit(manifest("meanwhile", "true"))
        check(time.monotonic() - begin < 4 * PATIENCE, "a job without stores waited for another one's server")
        listed = lambda: {j["training_id"]: j for j in map(json.loads, p.cli("list", "--json").stdout.splitlines()) if j["name"] == "away"}
        until(lambda: len(listed()) == 2, 20, "both are received")
        for name, text, why in (("wrong", stores(direct, secret="another-SECRET-guess"), "SignatureDoesNotMatch"), ("none", stores(direct).replace(IN, "no_such_bucket"), "NoSuchBucket"),
                                ("closed", stores("http://127.0.0.1:1"), "127.0.0.1:1")):
            path = p.dir / f"{name}.yml"
            path.write_text(manifest(name, "true", extra=text))
            dry, wet = p.cli("submit", path, "--dry-run", ok=False), p.cli("submit", path, ok=False)
            check(dry.returncode == 2 and why in dry.stderr, f"dry run of {name}: {dry.returncode} {dry.stderr}")
            check(wet.returncode == 10 and why in wet.stderr and "bad data store credentials/bucket" in wet.stderr, f"submit of {name}: {wet.returncode} {wet.stderr}")
            last = p.wait_state(wet.stdout.strip(), "REJECTED")
            check(last["reason_code"] == "C103", f"{name}: {last}")
        wrong = wet.stdout.strip()
        until(lambda: all(j["state"] == "REJECTED" for j in listed().values()), 20, lambda: f"a server that says nothing: {listed()}")
        mine = [e["type"] for e in p.events("jobs.events") if e["request_id"] == "s-away"]
        check(mine == ["RECEIVED", "REJECTED"], f"events of a store that says nothing: {mine}")
        for topic in ("jobs.events", "jobs.state", "jobs.commands", "jobs.reports", "logs", "metrics"):
            for r in p.read(PREFIX + topic):
                check(not any(s.encode() in (r.value() or b"") for s in (SECRET, "another-SECRET-guess")), f"a secret is in {topic}")
        for path in (f"/v1/jobs/{good}", f"/v1/jobs/{wrong}", f"/v1/models/{good}", f"/v1/jobs/{wrong}/events"):
            check(SECRET.encode() not in p.http(path)[1] and b"another-SECRET" not in p.http(path)[1], f"a secret is in {path}")
    finally:
        s3.end()
