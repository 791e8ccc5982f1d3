"""Words through the whole pipeline, on a real Kafka: one-hot columns and the categories of XGBoost and LightGBM by name, from Avro records through `score check`,
`pipelines apply` and `score run` into scores that are the library's own, record by record (oracle/words.py makes models, rows and what the libraries predict).
The writer's schema becomes another one meanwhile: text becomes an enum with symbols that no model knows, then a number that can be none of the words."""
from kit import *

ROWS = int(os.environ.get("ROWS", 5000))
CASES = {"get_dummies, xgboost, drop_first True": "dummies", "OneHotEncoder, error": "encoder", "categories, lightgbm, nan": "light", "categories, xgboost, 1, reject": "boost"}
got = subprocess.run([ROOT / "tests/live/venv-models"], capture_output=True, text=True)
if got.returncode:
    skip(f"score_words: {got.stderr.strip()[-200:]}")


def schema(kind):
    return {"type": "record", "name": "Row", "namespace": "words", "fields": [{"name": "id", "type": "long"}, {"name": "kind", "type": kind}, {"name": "plain", "type": ["null", "string"]},
            {"name": "zone", "type": ["null", "int"]}, {"name": "flag", "type": ["null", "boolean"]}, {"name": "x", "type": "double"}, {"name": "y", "type": "double"}]}


with Platform(without="trainer,lcm") as p:
    made = subprocess.run([got.stdout.strip(), ROOT / "tests/live/oracle/words.py", p.dir, str(ROWS)], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    check(made.returncode == 0, f"oracle/words.py: {made.stderr[-800:]}")
    rows = [json.loads(line) for line in (p.dir / "rows.jsonl").read_text().splitlines()]
    want, files = {}, {}
    p.create("rows", 3)
    sid = p.register("rows-value", schema(["null", "string"]))
    for case, name in CASES.items():
        spec = json.loads((p.dir / f"{case}.json").read_text())
        want[name] = [None if line == "dead" else [float(v) for v in line.split()] for line in (p.dir / f"{case}.want").read_text().splitlines()]
        p.cli("models", "register", p.dir / spec["model"], "--name", name, "--alias", "champion")
        p.create(f"{name}.scores", 3)
        features = "" if spec["features"] is None else "features:\n" + "".join(f"  - {f}\n" for f in spec["features"])
        files[name] = p.dir / f"{name}.yml"
        files[name].write_text(f"name: {name}\ninput: {{topics: [rows], group: {name}}}\nmodel: {{name: {name}, alias: champion}}\nscore: {{type: {spec['score']}}}\n"
                               f"output: {{topic: {name}.scores, passthrough: [id]}}\nguarantee: exactly_once\nerrors: {{pause_after: 0, dead_letter: {{topic: {name}.dlq}}}}\n{features}")
        said = p.cli("score", "check", "-c", files[name])
        check("fits" in said.stdout + said.stderr, f"score check of {name}: {said.stdout}{said.stderr}")
        told = {"dummies": "field kind: 7 words in 6 slots, unknown: missing, missing: zeros", "boost": "field plain: 8 words (the model's categories) in 1 slot, unknown: missing, missing: reject"}
        check(told.get(name, "") in said.stdout + said.stderr, f"score check of {name} does not tell the slots of words: {said.stdout}{said.stderr}")
    said = p.cli("score", "explain", "-c", files["dummies"])
    check("kind, one-hot: 7 words in 6 slots" in said.stdout + said.stderr, f"explain does not tell the slots of words: {said.stdout}{said.stderr}")
    said = p.cli("score", "explain", "-c", files["boost"])
    check("plain, the model's categories of 8 words" in said.stdout + said.stderr, f"explain does not tell the model's categories: {said.stdout}{said.stderr}")

    def refused(name, old, new, says, status=2):
        bad = p.dir / "bad.yml"
        text = files[name].read_text()
        check(old in text, f"{old} is not in {text}")
        bad.write_text(text.replace(old, new))
        for verb in (("score", "check", "-c"), ("pipelines", "apply")):
            r = p.cli(*verb, bad, ok=False)
            check(r.returncode == status and says in r.stderr, f"{' '.join(verb)} of {new}: {r}")
    refused("light", "{field: kind, missing: nan}", "{field: kind, vocabulary: [bus, car], missing: nan}", "the vocabulary of feature kind")
    refused("light", "{field: kind, missing: nan}", "{field: kind, one_hot: [bus], missing: nan}", "holds the code of a category")
    refused("dummies", "  - {field: flag, one_hot: [false, true]", "  - {field: flag, one_hot: [false, true, maybe]", "input has 12 slots, the features fill 13")
    refused("dummies", "  - {field: zone, one_hot: [10, 20, 30, 1000]", "  - {field: zone, one_hot: [a, b, c, d]", "field zone can hold none of its 4 words", 7)

    p.cli("pipelines", "apply", files["dummies"])
    p.cli("pipelines", "apply", files["light"])
    runs = [p.spawn("score", "run", "-c", files[name], log=f"{name}.log") for name in ("encoder", "boost")]
    producer = p.producer()

    def send(sid, records):
        for i, r in records:
            producer.produce("rows", p.encode(sid, {"id": i, **r}), key=str(i), partition=i % 3)
            producer.poll(0)
        check(producer.flush(60) == 0, "records produced")
    send(sid, enumerate(rows))
    n = len(rows)
    status, _, _ = p.http("/config/rows-value", p.registry, json.dumps({"compatibility": "NONE"}).encode(), {"Content-Type": "application/vnd.schemaregistry.v1+json"}, "PUT")
    check(status == 200, f"compatibility NONE: HTTP {status}")
    # An enum: its symbols are words like others, "tram" and "Truck" among them that no model has seen.
    symbols = ["truck", "car", "van", "bus", "tram", "Truck"]
    as_enum = p.register("rows-value", schema({"type": "enum", "name": "Kind", "symbols": symbols}))
    later = [(i, r) for i, r in enumerate(rows) if r["kind"] in symbols]
    send(as_enum, [(n + i, r) for i, r in later])
    # And a number, which is none of the words: for those who ask for kind, no record of this schema can be scored.
    as_number = p.register("rows-value", schema("int"))
    send(as_number, [(2 * n + i, {**rows[i], "kind": 1}) for i in range(30)])
    total = n + len(later) + 30

    def count(name):
        return len(p.read(f"{name}.scores")) + len(p.read(f"{name}.dlq"))
    for name in CASES.values():
        until(lambda: count(name) >= total, 120, lambda: f"{name}: {count(name)} of {total}", 1)
        scores, letters = {}, {int(m.key()): {k: v.decode() for k, v in m.headers()} for m in p.read(f"{name}.dlq")}
        for m in p.read(f"{name}.scores"):
            s = p.decode(m.value())
            check(s["record"]["id"] not in scores, f"{name}: record {s['record']['id']} is there twice")
            scores[s["record"]["id"]] = s
        check(len(scores) + len(letters) == total and not scores.keys() & letters.keys(), f"{name}: {len(scores)} scores and {len(letters)} letters of {total}")
        for i in [*range(n), *(n + i for i, _ in later)]:
            w = want[name][i % n]
            if w is None:
                check(i in letters and any(t in letters[i]["__connect.errors.exception.message"] for t in ("none of its", "null or absent")), f"{name}: record {i} {rows[i % n]}: {letters.get(i)}")
            else:
                s = scores[i]["score"]
                check(len(s) == len(w) and all(abs(a - b) <= 2e-6 * (1 + abs(b)) for a, b in zip(s, w)), f"{name}: record {i} {rows[i % n]}: {s}, the library gives {w}")
        for i in range(2 * n, 2 * n + 30):
            if name == "boost":  # asks for another field
                check((i in letters) == (want[name][i - 2 * n] is None), f"{name}: record {i}")
            elif name == "light":  # a number is a code, as of a model without names
                check((i in scores), f"{name}: record {i}: {letters.get(i)}")
            else:
                check("field kind can hold none of its 7 words" in letters[i]["__connect.errors.exception.message"], f"{name}: record {i}: {letters.get(i)}")
        print(f"{name}: {len(scores)} scores, {len(letters)} dead letters", flush=True)
    for w in runs:
        w.send_signal(signal.SIGTERM)
        check(w.wait(60) == 0, "a scorer told to stop exits 0")
print("score_words: passed")
