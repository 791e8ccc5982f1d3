"""The built-in learner as a gang on a real Kafka: three ranks share a topic's partitions, and train one model; one of them killed at a random step, another
stopped so that it is silent, a halt: the weights are those of an undisturbed run to the last byte. Files; parameter servers, one of them killed; what cannot
be had is refused."""
from kit import *


def native(name, learner, learners=3, more="", store="{id: s, type: topic, topic: ring, from: beginning, to: end}"):
    return (f"name: {name}\ncpus: 0.3\nmemory: 64 MiB\nlearners: {learners}\ndata_stores:\n  - {store}\nframework: {{name: native}}\n"
            f"penstock:\n  model: {{name: {name}}}\n  retries: {{max: 3, on: ['exit:75', 'signal:9']}}\n  learner: {learner}\n{more}")


def ranks(tid):
    """Its learners' process ids, by process."""
    mark = f"/{tid}/gen-"
    found = [(c.rsplit("/", 1)[-1].strip(), pid) for pid, c in p.processes("learn --run-dir") if mark in c and " learn --run-dir" in c]
    return dict(found)


def weights(tid):
    """Everything behind the header of its last checkpoint: statistics, parameters, moments."""
    files = sorted((p.dir / "state/jobs" / tid / "checkpoints").glob("learner-*.ckpt"))
    check(files, f"no checkpoint of {tid}")
    raw = files[-1].read_bytes()
    n = struct.unpack("<I", raw[12:16])[0]
    head = json.loads(raw[16:16 + n])
    return head, raw[16 + n:-4]


def lines(tid):
    return [(l["process"], l["text"]) for l in p.events("logs") if l["training_id"] == tid]


def begun(tid, generation=1, epochs=5):
    p.events("metrics", lambda ms: any(m["training_id"] == tid and m["generation"] == generation and (m["epoch"] or 0) >= epochs for m in ms), 60)
    return until(lambda: len(ranks(tid)) == 3 and ranks(tid), 20, lambda: f"ranks {ranks(tid)}")


SETTINGS = "{features: [x, y, z], hidden: [24, 8, 24], epochs: 150, batch: 8, validation: 0.2, seed: 3, patience: 150, peer_timeout: 5}"

with Platform() as p:
    rng = random.Random(4)
    p.create("ring", 4)
    pr = p.producer()
    for i in range(900):
        x, y = rng.gauss(0, 1), rng.gauss(0, 1)
        pr.produce("ring", json.dumps({"x": 20 + 5 * x, "y": None if x > 2.5 else 1000 + y, "z": x * y}).encode(), partition=i % 7 % 4)
    check(pr.flush(30) == 0, "written")

    # --- undisturbed ---------------------------------------------------------------------------------------------------------------
    whole = p.submit(native("whole", SETTINGS))
    end = p.wait_state(whole, *ENDED, timeout=120)
    check(end["state"] == "COMPLETED", f"whole: {end['state']}: {end['reason']}: {lines(whole)[-12:]}")
    head, wanted = weights(whole)
    check(head["world"] == 3 and head["rows"] == 900 and sorted({r["rank"] for r in head["ranges"]}) == [0, 1, 2] and sum(r["to"] - r["from"] for r in head["ranges"]) == 900, f"checkpoint {head}")
    check({m["process"] for m in p.events("metrics") if m["training_id"] == whole and m["group"] in ("train", "validation")} == {"learner-1"}, "metrics of other ranks than 0")
    row = [r for r in map(json.loads, p.cli("models", "list", "--json").stdout.splitlines()) if r["name"] == "whole"]
    check(len(row) == 1 and row[0]["metrics"]["records"] == 900, f"models {row}")

    # --- while new records come: a rank killed at a random step, one silent for longer than the time-out, then a halt and a resume ---------------------
    cut = p.submit(native("cut", SETTINGS.replace("to: end", "to: 900")))
    who = begun(cut)
    pr.produce("ring", b'{"x":1,"y":1,"z":1e9}', partition=0)
    check(pr.flush(30) == 0, "written")
    victim = random.choice(sorted(who))
    time.sleep(random.random() / 2)
    os.kill(who[victim], signal.SIGKILL)
    who = begun(cut, 2, 1)
    check(p.show(cut)["generation"] == 2, f"after kill -9 of {victim}: {p.show(cut)}")
    os.kill(who["learner-2"], signal.SIGSTOP)
    begun(cut, 3, 1)
    p.cli("halt", cut)
    check(p.wait_state(cut, *ENDED)["state"] == "HALTED", f"halt: {p.show(cut)}")
    p.cli("resume", cut)
    end = p.wait_state(cut, *ENDED, timeout=120)
    said = [t for _, t in lines(cut)]
    check(end["state"] == "COMPLETED" and end["generation"] == 4, f"cut: {end['state']} in generation {end['generation']}: {end['reason']}")
    check(sum("resuming from the checkpoint of generation" in t for t in said) == 9, f"resumed: {[t for t in said if 'resum' in t]}")
    check(any("has said nothing for 5" in t or "has taken nothing for 5" in t for t in said), f"silence is not said: {[t for t in said if 'rank' in t]}")
    check(weights(cut)[1] == wanted, f"other weights after kill -9 of {victim}, a silent rank, and a halt")
    epochs = [m["epoch"] for m in p.events("metrics") if m["training_id"] == cut and m["group"] == "train"]
    check(set(epochs) == set(map(float, range(1, 151))), f"{len(set(epochs))} epochs")

    # --- files: rows by their number; one rank whose share is no data -----------------------------------------------------------------
    with open(p.dir / "d.csv", "w") as f:
        f.write("temp,load,state\n" + "".join(f"{x:.4f},{y:.4f},{'hot' if x > y else 'cold'}\n" for x, y in ((rng.gauss(0, 1), rng.gauss(0, 1)) for _ in range(600))))
    files = f"{{id: d, type: files, connection: {{path: {p.dir / 'd.csv'}}}}}"
    csv = p.submit(native("csv", "{target: state, classes: [cold, hot], hidden: [16], epochs: 40, learning_rate: 0.01}", 2, store=files))
    few = p.submit(native("few", "{target: state, classes: [cold, warm], epochs: 2}", 2, store=files))
    servers = p.submit(native("servers", SETTINGS, 2, "  roles: {ps: 2}\n", store="{id: s, type: topic, topic: ring, from: beginning, to: 100}"))
    p.events("metrics", lambda ms: any(m["training_id"] == servers and (m["epoch"] or 0) >= 3 for m in ms), 60)
    os.kill(ranks(servers)["ps-2"], signal.SIGKILL)
    end = p.wait_state(csv, *ENDED)
    check(end["state"] == "COMPLETED", f"csv: {end['state']}: {end['reason']}")
    row = [r for r in map(json.loads, p.cli("models", "list", "--json").stdout.splitlines()) if r["name"] == "csv"][0]
    check(row["metrics"]["records"] == 600 and row["metrics"]["validation_accuracy"] > 0.9 and 0.9 < row["metrics"]["validation_auc"] <= 1, f"csv: {row}")
    points = [m for m in p.events("metrics") if m["training_id"] == csv and m["group"] == "confusion"]
    check(len(points) == 1 and sum(points[0]["values"].values()) == 60 and set(points[0]["values"]) == {"cold/cold", "cold/hot", "hot/cold", "hot/hot"}, f"confusion: {points}")
    end = p.wait_state(few, *ENDED)
    check(end["state"] == "FAILED" and any("none of the 2 classes" in t for _, t in lines(few)), f"few: {end['state']} {lines(few)[-6:]}")

    end = p.wait_state(servers, *ENDED, timeout=120)
    said = lines(servers)
    check(end["state"] == "COMPLETED" and end["generation"] == 2, f"servers: {end['state']} in generation {end['generation']}: {end['reason']}: {said[-8:]}")
    check(any(q == "ps-1" and "parameter server 0 of 2: parameters 0 to" in t for q, t in said) and weights(servers)[0]["progress"]["finished"], f"servers: {said}")

    # --- what cannot be had -------------------------------------------------------------------------------------------------------------
    for text, words in ((native("bad", SETTINGS, more="  roles: {evaluator: {count: 1}}\n"), ("penstock.roles.evaluator", "is no role of framework.name native")),
                        (native("bad", SETTINGS.replace("seed: 3", "staleness: 2")), ("penstock.learner.staleness", "needs parameter servers"))):
        (p.dir / "bad.yml").write_text(text)
        r = p.cli("submit", p.dir / "bad.yml", ok=False)
        check(r.returncode != 0 and all(w in r.stderr for w in words), f"{words}: {r.returncode} {r.stderr}")
print(f"ok: three ranks, {victim} killed, one silent, a halt: the same weights; files; parameter servers; refusals")
