"""halt with a checkpoint, resume as a new generation, terminate, delete; several learners; a failing gang; adoption of learners over `down --keep-jobs`."""
from kit import *

with Platform(up_args=("--log-mib", "1", "--isolation", "user")) as p:
    # the operator's floor, which `up` hands to the LCM
    told = p.cli("up", "--isolation", "walls", ok=False)
    check(told.returncode == 2 and "'walls'" in told.stderr, f"a level that there is not: {told}")
    (p.dir / "weak.yml").write_text(manifest("weak", "true", extra="penstock: {isolation: none}\n"))
    p.wait_state(p.submit(manifest("first", "true")), "COMPLETED")  # the Trainer has heard what the node allows: before that a job waits for it
    told = p.cli("submit", p.dir / "weak.yml", ok=False)
    check(told.returncode != 0 and "penstock.isolation" in told.stderr, f"less than the operator allows is not refused: {told}")
    floors = [c["found"] for c in json.loads(p.cli("doctor", "--json", ok=False).stdout) if c["check"] == "jobs have"]
    check(len(floors) == 1 and floors[0].startswith("user or more on node "), f"doctor says of the floor: {floors}")
    marks = p.dir / "marks"
    marks.mkdir()
    code = p.dir / "code"
    code.mkdir()
    (code / "run.sh").write_text(f"""trap 'echo $n > $CHECKPOINT_DIR/n; echo saved >> {marks}/m; exit 0' TERM
n=$(cat $CHECKPOINT_DIR/n 2>/dev/null || echo 0); echo "start $n $PENSTOCK_GENERATION" >> {marks}/m
while :; do n=$((n + 1)); echo "step $n"; sleep 0.1; done
""")
    text = lambda: (marks / "m").read_text() if (marks / "m").exists() else ""
    tid = p.submit(manifest("steps", "sh run.sh"), code)
    p.wait_state(tid, "PROCESSING")
    until(lambda: "start 0 1" in text(), 20, "the learner did not start")
    time.sleep(1)
    p.cli("halt", tid)
    state = p.wait_state(tid, "HALTED")
    check("saved" in text(), f"no SIGTERM work: {text()}")
    check(p.cli("halt", tid, ok=False).returncode != 0, "halting a halted job is not refused")
    p.cli("resume", tid)
    state2 = p.wait_state(tid, "PROCESSING")
    check(state2["generation"] == state["generation"] + 1, f"generations {state['generation']} -> {state2['generation']}")
    starts = until(lambda: [l for l in text().splitlines() if l.startswith("start")][1:], 20, "no second start")
    check(int(starts[0].split()[1]) > 0, f"the checkpoint was not seen: {starts}")
    # a log that is full is put aside by the service that writes it; what it writes from then on is in the new one
    full = p.dir / "state/log/trainer.log"
    p.cli("down", "--keep-jobs")
    full.write_text("an old line\n" * (2 << 17))
    p.up()
    aside = Path(f"{full}.1")  # between the two names there is a moment without the first
    until(lambda: aside.exists() and full.exists() and full.stat().st_size < 1 << 20 and "event=active" in full.read_text() + aside.read_text()[-4000:], 30, "a full log is not put aside")
    check(aside.stat().st_size >= 12 * (2 << 17), "the lines of a log that was put aside are gone")
    # learners live through down --keep-jobs and are adopted
    p.cli("down", "--keep-jobs", timeout=120)
    size = len(list(marks.iterdir()))
    p.up()
    time.sleep(1)
    check(p.show(tid)["state"] == "PROCESSING" and p.show(tid)["generation"] == state2["generation"], f"not adopted: {p.show(tid)}")
    check(len([l for l in text().splitlines() if l.startswith("start")]) == 2, f"started again instead of adopted: {text()}")
    p.cli("terminate", tid, "--reason", "enough")
    end = p.wait_state(tid, "TERMINATED")
    check(end["reason"], "no reason")
    p.cli("delete", tid)
    until(lambda: p.cli("show", tid, ok=False).returncode == 4, 20, "the deleted job is still shown")
    # two learners; one fails, the other is ended, the job fails once
    two = p.submit(manifest("gang", 'if [ "$LEARNER_ID" = 2 ]; then sleep 1; exit 7; fi; sleep 600', learners=2))
    end = p.wait_state(two, *ENDED, timeout=60)
    check(end["state"] == "FAILED" and "7" in end["reason"], f"the gang ended {end['state']}: {end['reason']}")
    three = p.submit(manifest("trio", 'echo "$LEARNER_ID of $NUM_LEARNERS"', learners=3))
    p.wait_state(three, "COMPLETED")
    lines = {l["text"] for l in p.events("logs") if l["training_id"] == three and l["stream"] == "STDOUT"}
    check(lines == {"1 of 3", "2 of 3", "3 of 3"}, f"lines {lines}")
    retry = p.submit(manifest("retry", '[ -e $CHECKPOINT_DIR/once ] || { touch $CHECKPOINT_DIR/once; exit 1; }', extra="penstock: {retries: 2}\n"))
    end = p.wait_state(retry, *ENDED)
    check(end["state"] == "COMPLETED" and end["generation"] == 2, f"retry ended {end['state']} in generation {end['generation']}")
    p.cli("down", timeout=120)
    left = p.processes()
    check(not left, f"down left {left}")
print("ok: halt, resume, adopt, terminate, delete, gangs, retries")
