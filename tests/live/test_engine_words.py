"""Words in the features of a pipeline against the libraries themselves: one-hot columns (pandas' get_dummies, scikit-learn's OneHotEncoder), and categories
that XGBoost and LightGBM know by name. Every score of every row is compared, also of unknown and of missing words (oracle/words.py makes the cases), by
`penstock score dry-run`. Needs no broker. test_engine_words.py [WORD…]: only cases with these words in their names; ROWS=…: of how many rows."""
import json, os, subprocess, sys, tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
got = subprocess.run([ROOT / "tests/live/venv-models"], capture_output=True, text=True)
if got.returncode:
    print(f"skipped: engine_words: {got.stderr.strip()[-200:]}")
    sys.exit(77)
BIN = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build")) / "penstock"
ROWS = int(os.environ.get("ROWS", 50000))
words = sys.argv[1:]
failed = passed = compared = 0


def close(a, b):
    """float32 of the same arithmetic, or of the same sums in another order; doubles keep their digits in what LightGBM gives."""
    return a == b or abs(a - b) <= 2e-6 * (1 + abs(b)) or (a != a and b != b)


def pipeline(case, folder, name="words"):
    features = "" if case["features"] is None else "features:\n" + "".join(f"  - {f}\n" for f in case["features"])
    return f"name: {name}\ninput: {{topics: [{name}], format: json}}\nmodel: {{file: {json.dumps(str(folder / case['model']))}}}\nscore: {{type: {case['score']}}}\n{features}"


with tempfile.TemporaryDirectory(prefix="words-") as tmp:
    tmp = Path(tmp)
    made = subprocess.run([got.stdout.strip(), ROOT / "tests/live/oracle/words.py", tmp, str(ROWS)], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if made.returncode:
        print(f"FAILED: oracle/words.py: {made.stderr[-1500:]}")
        sys.exit(1)
    for path in sorted(tmp.glob("*.want")):
        name = path.stem
        if not all(w in name for w in words):
            continue
        case = json.loads((tmp / f"{name}.json").read_text())
        (tmp / "p.yml").write_text(pipeline(case, tmp))
        run = subprocess.run([BIN, "score", "dry-run", "-c", tmp / "p.yml", "--in", tmp / "rows.jsonl", "--out", tmp / "out"], capture_output=True, text=True,
                             env={**os.environ, "PENSTOCK_STATE_DIR": str(tmp / "state")})
        want = path.read_text().splitlines()
        dead = want.count("dead")
        bad = []
        if run.returncode != (3 if dead else 0):
            bad.append(f"exit {run.returncode}: {run.stderr[-300:]}")
        lines = (tmp / "out").read_text().splitlines() if (tmp / "out").exists() else []
        if len(lines) != len(want):
            bad.append(f"{len(lines)} results of {len(want)} rows")
        for i, (line, w) in enumerate(zip(lines, want)):
            o = json.loads(line)
            compared += 1
            if w == "dead":
                right = "error" in o and ("none of its" in str(o["error"]) or "null or absent" in str(o["error"]))
            else:
                w = [float(v) for v in w.split()]
                s = [float(v) for v in o.get("score") or []]
                right = len(s) == len(w) and all(map(close, s, w))
            if not right and len(bad) < 3:
                bad.append(f"row {i}: {line[:300]}, the library says {w}")
        failed, passed = failed + bool(bad), passed + (not bad)
        if bad:
            print(f"not ok {name}", *bad, sep="\n    ")
        elif "-v" in os.environ.get("PENSTOCK_TEST", ""):
            print(f"ok {name}: {len(want) - dead} scores, {dead} dead letters")
print(f"{compared} rows compared")
print(f"engine_words: {passed} passed, {failed} failed")
sys.exit(bool(failed or not passed))
