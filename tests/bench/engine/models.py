"""The models of the engine's benchmark: trained or made at random once, kept in the cache; rows that differ, and what a row costs."""
import hashlib, json, subprocess, sys
from pathlib import Path
import numpy as np
import onnx
from onnx import helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "live/oracle"))
import nets

ROWS, FEATURES = 50000, 30


class Model:
    """name, ONNX file, other sides' files, shape of a row, numbers in a result, what a row costs (flops or visits of nodes)."""

    def __init__(self, name, path, dims=(FEATURES,), values=1, rows=ROWS, batches=(1, 8, 64, 512, 4096), flops=0, visits=0.0, sides=(), size=""):
        self.name, self.path, self.dims, self.values, self.rows, self.batches = name, path, dims, values, rows, batches
        self.flops, self.visits, self.sides, self.size = flops, visits, list(sides), size


def table(rng, n):
    x = rng.normal(size=(n, FEATURES)).astype(np.float32)
    z = x @ np.random.default_rng(5).normal(size=FEATURES) * .3 + np.sin(x[:, 0] * 2) + x[:, 1] * x[:, 2] + rng.normal(size=n) * .5
    return x, (z > np.quantile(z, .97)).astype(int)


def mean_visits(model, x):
    """Inner nodes that a row goes through, all trees together: the mean over x."""
    a = {t.name: helper.get_attribute_value(t) for n in model.graph.node if n.op_type.startswith("TreeEnsemble") for t in n.attribute}
    trees, ids = np.array(a["nodes_treeids"]), np.array(a["nodes_nodeids"])
    leaf = np.array([m == b"LEAF" for m in a["nodes_modes"]])
    strict = np.array([m == b"BRANCH_LT" for m in a["nodes_modes"]])
    feature, split = np.array(a["nodes_featureids"]), np.array(a["nodes_values"], np.float32)
    row_of = {(t, i): r for r, (t, i) in enumerate(zip(trees.tolist(), ids.tolist()))}
    yes = np.array([0 if leaf[r] else row_of[(t, i)] for r, (t, i) in enumerate(zip(trees.tolist(), a["nodes_truenodeids"]))])
    no = np.array([0 if leaf[r] else row_of[(t, i)] for r, (t, i) in enumerate(zip(trees.tolist(), a["nodes_falsenodeids"]))])
    roots = np.array([row_of[(t, 0)] for t in sorted(set(trees.tolist()))])
    at, visits, rows = np.tile(roots, (len(x), 1)), 0, np.arange(len(x))[:, None]
    while not leaf[at].all():
        inner = ~leaf[at]
        visits += inner.sum()
        v, s = x[rows, feature[at]], split[at]
        at = np.where(inner, np.where(np.where(strict[at], v < s, v <= s), yes[at], no[at]), at)
    return visits / len(x), int((~leaf).sum())


def boosted(folder, trees, depth, library):
    """Trained on 60,000 rows with 3 % positives; ONNX by onnxmltools, scores without the list of maps."""
    stem = folder / f"{library}-{trees}x{depth}"
    path, native, about = stem.with_suffix(".onnx"), stem.with_suffix(".ubj" if library == "xgboost" else ".txt"), stem.with_suffix(".json")
    if not about.exists():
        from onnxmltools import convert_lightgbm, convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType
        x, y = table(np.random.default_rng(3), 60000)
        types = [("x", FloatTensorType([None, FEATURES]))]
        if library == "xgboost":
            import xgboost
            m = xgboost.XGBClassifier(n_estimators=trees, max_depth=depth, tree_method="hist", min_child_weight=.01, reg_lambda=0, learning_rate=.1, n_jobs=1).fit(x, y)
            m.get_booster().save_model(native)
            onnx_model = convert_xgboost(m, initial_types=types)
        else:
            import lightgbm
            m = lightgbm.LGBMClassifier(n_estimators=trees, max_depth=depth, num_leaves=2 ** depth, min_child_samples=1, min_child_weight=1e-4, learning_rate=.05, n_jobs=1, verbose=-1).fit(x, y)
            m.booster_.save_model(native)
            onnx_model = convert_lightgbm(m, initial_types=types, zipmap=False)
        visits, nodes = mean_visits(onnx_model, table(np.random.default_rng(9), 2000)[0])
        path.write_bytes(onnx_model.SerializeToString())
        about.write_text(json.dumps({"visits": float(visits), "nodes": nodes}))
    facts = json.loads(about.read_text())
    word = {"xgboost": "XGBoost", "lightgbm": "LightGBM"}[library]
    return Model(f"GBDT {trees}×{depth} of {word}", path, visits=facts["visits"], sides=[(word, native)], size=f"{facts['nodes']:,} inner nodes, {facts['visits']:,.0f} on a row's way")


def compiled(model, python):
    """Machine code of the model by tl2cgen (XGBoost) or lleaves (LightGBM); None where they cannot be had."""
    word, native = model.sides[0]
    how = "tl2cgen" if word == "XGBoost" else "lleaves"
    out = native.with_suffix(".so")
    if not out.exists():
        run = subprocess.run([python, Path(__file__).with_name("compile.py"), how, native, out], capture_output=True, text=True)
        if run.returncode or not out.exists():
            print(f"{how} is left out of {model.name}: {(run.stderr.strip().splitlines() or ['no reason given'])[-1][:150]}", flush=True)
            return None
    return how, out


def dense(folder, name, made, **facts):
    path = folder / (hashlib.sha256(name.encode()).hexdigest()[:12] + ".onnx")
    path.write_bytes(made.SerializeToString())
    return Model(name, path, **facts)


def mlp_flops(widths):
    return sum(2 * a * b for a, b in zip(widths, widths[1:]))


def all_models(folder, quick):
    folder.mkdir(parents=True, exist_ok=True)
    rng = lambda: np.random.default_rng(3)
    autoencoder, crayfish = [30, 64, 32, 64, 30], [784, 32, 32, 32, 32, 10]
    lstm_flops = 32 * 2 * (16 + 64) * 4 * 64 + 2 * 64
    d, steps = 128, 64
    encoder_flops = steps * 2 * 16 * d + 2 * (steps * 2 * d * d * 12 + 2 * 2 * steps * steps * d) + 2 * d
    lenet_flops = 2 * 9 * 8 * 28 * 28 + 2 * 9 * 8 * 16 * 14 * 14 + 2 * 784 * 10
    makers = [
        lambda: boosted(folder, 100, 6, "xgboost"), lambda: boosted(folder, 500, 8, "xgboost"), lambda: boosted(folder, 1000, 10, "xgboost"),
        lambda: boosted(folder, 100, 6, "lightgbm"), lambda: boosted(folder, 500, 8, "lightgbm"),
        lambda: dense(folder, "autoencoder 30-64-32-64-30", nets.mlp(rng(), autoencoder), dims=(30,), values=30, flops=mlp_flops(autoencoder)),
        lambda: dense(folder, "Crayfish FFNN 784-32-32-32-32-10", nets.mlp(rng(), crayfish), dims=(784,), values=10, flops=mlp_flops(crayfish)),
        lambda: dense(folder, "CNN 1×28×28, two convolutions", nets.lenet(rng()), dims=(1, 28, 28), values=10, flops=lenet_flops),
        lambda: dense(folder, "LSTM 32 steps of 16, hidden 64", nets.recurrent(rng()), dims=(32, 16), flops=lstm_flops),
        lambda: dense(folder, "encoder, 2 layers, d 128, 4 heads, 64 steps", nets.encoder(rng()), dims=(64, 16), flops=encoder_flops, rows=4096, batches=(1, 8, 64, 512)),
    ]
    return [m for i, m in enumerate(makers) if not quick or i not in (2, 4)]
