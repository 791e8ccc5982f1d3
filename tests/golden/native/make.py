"""Makes the native model files of this folder with what their libraries predict: PYTHON make.py FOLDER.

Run once with each version of the libraries that is to be kept (tests/live/venv-models has the newest); the version is part of the names.
NAME.rows: "rows features outputs", then a row a line: features, what the library predicts."""
import re, sys, warnings
from pathlib import Path
import numpy as np

warnings.simplefilter("ignore")
to = Path(sys.argv[1])
rng = np.random.default_rng(11)
N, F = 400, 4
X = rng.normal(size=(N, F))
X[:, 2] = rng.integers(0, 40, N)
X[:, 3] = np.where(rng.random(N) < .5, 0, X[:, 3])
X[rng.random(X.shape) < .1] = np.nan
s = np.nan_to_num(X[:, 0]) + (X[:, 2] % 5 == 2) * 1.5 + np.nan_to_num(X[:, 3]) + rng.normal(size=N) * .1
Y = {"real": s, "binary": (s > .5).astype(int), "positive": np.abs(s) + .1, "three": np.digitize(s, [0, .8]), "pair": np.stack([s, -s * s], 1)}
E = X[:24].copy()
edges = np.array([0, -0.0, 1e-36, -1e-36, 1e-35, np.nan, 1e30, -1e30, -1, -.5, 3.7, 39, 40, 1000])
at = rng.random(E.shape) < .3
E[at] = rng.choice(edges, at.sum())


def rows(name, x, y):
    y = np.asarray(y, "f8").reshape(len(x), -1)
    lines = [f"{len(x)} {F} {y.shape[1]}"] + [" ".join([f"{v:.17g}" for v in a] + [f"{v:.9g}" for v in b]) for a, b in zip(x, y)]
    (to / f"{name}.rows").write_text("\n".join(lines) + "\n")


def xgboost_files(xgb):
    version = tuple(int(i) for i in xgb.__version__.split(".")[:2])
    cases = [("binary", "binary", "binary:logistic", {}, False), ("dart", "three", "multi:softprob", {"num_class": 3, "booster": "dart", "rate_drop": .5, "max_depth": 2}, False)]
    if version >= (3, 0):
        cases += [("gamma", "positive", "reg:gamma", {"base_score": 2}, False), ("linear", "real", "reg:squarederror", {"booster": "gblinear"}, False),
                  ("classes", "three", "multi:softmax", {"num_class": 3, "max_depth": 2}, False),
                  ("vectors", "pair", "reg:squarederror", {"multi_strategy": "multi_output_tree", "tree_method": "hist"}, False)]
    if version >= (1, 7):
        cases += [("categories", "real", "reg:squarederror", {"max_cat_to_onehot": 1, "tree_method": "hist"}, True)]
    for case, y, objective, params, cat in cases:
        kw = {"feature_types": ["q", "q", "c", "q"], "enable_categorical": True, "feature_names": ["cpu.user", "cpu.system", "kind", "load"]} if cat else {}
        e = E if cat else np.where(np.isin(E, [40, 1000]), 5, E)
        b = xgb.train({"objective": objective, "max_depth": 3, "nthread": 1, "verbosity": 0, **params}, xgb.DMatrix(X, Y[y], **kw), 3)
        for ext in ["json"] + (["ubj"] if version >= (3, 0) and case in ("binary", "categories", "vectors") else []):
            name = f"xgb-{xgb.__version__}-{case}"
            b.save_model(str(to / f"{name}.{ext}"))
        rows(name, e, b.predict(xgb.DMatrix(e, **kw)))


def lightgbm_files(lgb):
    cases = [("binary", "binary", "binary", {"sigmoid": 2}, True)]
    if lgb.__version__ >= "4":
        cases += [("classes", "three", "multiclass", {"num_class": 3, "num_leaves": 4}, True), ("zero", "real", "regression", {"zero_as_missing": True}, False),
                  ("linear", "real", "regression", {"linear_tree": True}, False), ("forest", "positive", "poisson", {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": .5}, False),
                  ("sqrt", "real", "regression", {"reg_sqrt": True, "use_missing": False}, False)]
    for case, y, objective, params, cat in cases:
        data = {k: params[k] for k in ("zero_as_missing", "linear_tree", "use_missing") if k in params}
        d = lgb.Dataset(X, Y[y], categorical_feature=[2] if cat else [], feature_name=["cpu.user", "cpu.system", "kind", "load"], params={"verbose": -1, **data})
        b = lgb.train({"objective": objective, "num_leaves": 7, "verbose": -1, "num_threads": 1, "max_cat_to_onehot": 1, "cat_smooth": 1, "min_data_per_group": 5, **params}, d, 3)
        name = f"lgb-{lgb.__version__}-{case}"
        text = re.sub(r"(?m)^\[.*\]\n", "", b.model_to_string())  # the training's parameters say nothing of predictions
        (to / f"{name}.txt").write_text(text)
        rows(name, E, lgb.Booster(model_file=str(to / f"{name}.txt")).predict(E))


for library, make in (("xgboost", xgboost_files), ("lightgbm", lightgbm_files)):
    try:
        make(__import__(library))
    except ImportError as why:
        print(f"{library}: left out: {why}")
