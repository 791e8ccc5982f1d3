"""The engine beside the libraries models come from: ML operators that have no node tests, pipelines of scikit-learn, boosted trees of XGBoost and LightGBM, small nets.

    $(tests/live/venv-models) tests/live/test_engine_oracle.py [FOLDER]        keeps the cases in FOLDER if one is given

Models are made here from a fixed seed; ONNX Runtime says what comes out, and for trained models the library's own prediction does too (folders ...@library).
Nothing that the engine claims may fail. What it does not claim must stand in NOT_CLAIMED with the operator; an entry that has come to pass must be taken off.
"""
import os, re, subprocess, sys, tempfile, time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build")) / "penstock"
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # small models: threads that wait for each other cost more than they bring
sys.path.insert(0, str(Path(__file__).parent / "oracle"))
try:
    import numpy as np
    import case, contrib, images, nets, ops, optimised, text, trained, trees
except ImportError as e:
    print(f"skipped: {e} (run it by the Python of tests/live/venv-models, which PyPI must be reachable for)")
    sys.exit(77)

NOT_CLAIMED = {}  # name: the operator that is missing
LEAST = {"tree": 95, "linear": 70, "svm": 45, "scaler": 8, "normalizer": 12, "imputer": 6, "one_hot": 14, "label": 26, "zipmap": 2, "tfidf": 28, "text_": 4, "token": 280, "ms_cdist": 12, "ms_lstm": 190, "ms_attention_": 180, "ms_qattention": 240, "ms_": 1100, "opt_": 9, "quant_": 45, "optquant_": 45, "skl": 135, "mixed": 13, "xgb": 9, "lgb": 8, "net": 45, "image_": 60}


def verdicts(folder, names):
    """name → (verdict, reason) by `penstock models test`; after a crash each one that has no verdict is run by itself."""
    def run(where):
        done = subprocess.run([BIN, "models", "test", where], capture_output=True, text=True, timeout=300)
        return done.returncode, {m[2]: (m[1], m[3].strip()) for m in re.finditer(r"^(PASS|FAIL|UNSUPPORTED)  (\S+)(.*)$", done.stdout, re.M)}

    code, got = run(folder)
    for name in (n for n in names if code not in (0, 1) and n not in got):
        alone, one = run(os.path.join(folder, name))
        got.update(one or {name: ("FAIL", f"penstock ended with {alone}")})
    return got


def main(folder):
    started = time.monotonic()
    cases = case.Cases(folder)
    for part in (trees, ops, nets, images, text, contrib, optimised):
        part.generate(cases, np.random.default_rng(11))
    made = trained.generate(cases, np.random.default_rng(7))
    print(f"{len(cases.names)} cases made in {time.monotonic() - started:.0f} s")
    for name, why in cases.no_converter:
        print(f"no converter: {name}: {why}")
    for name, why in cases.by_reference:
        print(f"by ONNX's reference evaluator: {name}: ONNX Runtime: {why}")
    for name, why in cases.no_oracle:
        print(f"nothing to compare with: {name}: {why}")
    for name, difference, near in made.library:
        if not near:
            print(f"conversion changes the numbers: {name}: ONNX Runtime differs from the library by {difference:.2g}")
    got = verdicts(folder, cases.names)
    failed = [f"not run: {n}" for n in cases.names if n not in got]
    for name, (verdict, why) in sorted(got.items()):
        listed = name.removesuffix("@library") in NOT_CLAIMED
        if verdict == "FAIL" or (verdict == "UNSUPPORTED" and not listed):
            failed.append(f"{verdict} {name}: {why}")
        elif verdict == "PASS" and listed:
            failed.append(f"{name} passes: take it off NOT_CLAIMED")
        elif listed and NOT_CLAIMED[name] not in why:
            failed.append(f"{name}: not {NOT_CLAIMED[name]} is missing but: {why}")
        elif listed:
            print(f"not claimed: {name}: {NOT_CLAIMED[name]}")
    for family, least in LEAST.items():
        n = sum(v == "PASS" and name.startswith(family) and "@" not in name for name, (v, _) in got.items())
        if n < least:
            failed.append(f"only {n} cases of {family} pass, {least} are wanted: did the generators lose some?")
    for line in failed:
        print("FAILED:", line)
    passed = sum(v == "PASS" for v, _ in got.values())
    print(f"{sum('@' in n for n in cases.names)} of the cases compare with the library that trained the model; {time.monotonic() - started:.0f} s")
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.makedirs(sys.argv[1])
        sys.exit(main(sys.argv[1]))
    with tempfile.TemporaryDirectory(prefix="penstock-oracle-") as folder:
        sys.exit(main(folder))
