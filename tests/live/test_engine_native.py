"""Native model files against the libraries that wrote them: XGBoost's JSON and UBJSON, LightGBM's text, leaf for leaf.

Each configuration is trained here, saved, predicted by its library on distinct rows (missing values, zeros, values at and beside thresholds,
infinities, categories never seen) and by the engine (native_eval, which checks that every instruction set, every batch size and the
reference walk give the same bits). Leaves are compared through a second file whose leaf values are leaf numbers and whose trees each feed
an output of their own. Needs no broker. test_engine_native.py [WORD…]: only configurations with these words in their names."""
import json, os, re, subprocess, sys, tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if "PENSTOCK_MODEL_PYTHON" not in os.environ:
    got = subprocess.run([ROOT / "tests/live/venv-models"], capture_output=True, text=True)
    if got.returncode:
        print(f"skipped: engine_native: {got.stderr.strip()[-200:]}")
        sys.exit(77)
    os.environ["PENSTOCK_MODEL_PYTHON"] = got.stdout.strip()
    os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", PYTHONUNBUFFERED="1")
    os.execv(got.stdout.strip(), [got.stdout.strip(), *sys.argv])

import warnings
warnings.simplefilter("ignore")
import lightgbm as lgb, numpy as np, xgboost as xgb

xgb.set_config(verbosity=0)
build = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build"))
tool = next((p for p in (build / "tests/native_eval", build / "dev/tests/native_eval") if p.exists()), None)
if not tool:
    print("skipped: engine_native: native_eval is not built (ninja native_eval; PENSTOCK_BUILD names the build folder)")
    sys.exit(77)
tmp = Path(tempfile.mkdtemp(prefix="native-"))
N, F, EVAL = 2000, 8, 500
failures, checked, worst = [], 0, {}


def engine(path, rows):
    rows.astype("<f8").tofile(tmp / "rows")
    r = subprocess.run([tool, path, tmp / "rows", str(len(rows)), tmp / "out"], capture_output=True, text=True, timeout=300)
    if r.returncode:
        raise AssertionError(r.stderr.strip())
    return np.fromfile(tmp / "out", "<f8").reshape(len(rows), -1), r.stdout


def ulps(a, b):
    """Largest distance of two float32 arrays, counted in floats between them."""
    ia, ib = (x.astype("f4").view("i4").astype("i8") for x in (a, b))
    ia, ib = (np.where(i < 0, -(i & 0x7FFFFFFF), i) for i in (ia, ib))
    return int(np.abs(ia - ib).max()) if a.size else 0


def compare(name, kind, want, got, ulps_max):
    global checked
    checked += 1
    want = np.asarray(want, "f8").reshape(len(got), -1)
    assert want.shape == got.shape, f"shapes {want.shape} and {got.shape}"
    both_nan = np.isnan(want) & np.isnan(got)
    w, g = np.where(both_nan, 0, want), np.where(both_nan, 0, got)
    assert np.array_equal(np.isnan(w), np.isnan(g)), "NaN in other places"
    with np.errstate(all="ignore"):
        d, u = np.abs(np.where(w == g, 0, w - g)).max(), ulps(w, g)
    old = worst.get(kind, (0, 0))
    worst[kind] = (max(old[0], d), max(old[1], u))
    assert u <= ulps_max, f"{kind}: {u} floats apart (difference {d:.3g}), row {np.argmax(np.abs(w - g).max(1))}"


# ---- data ----

rng = np.random.default_rng(7)
CATS = 40


def table(n, cats=CATS, missing=True):
    x = rng.normal(size=(n, F))
    x[:, 1] = np.round(x[:, 1], 1)               # many equal values
    x[:, 2] = np.where(rng.random(n) < .5, 0, x[:, 2])  # many zeros
    x[:, 3] = rng.integers(0, cats, n)
    x[:, 4] = rng.integers(0, 5, n)
    if missing:
        x[rng.random(x.shape) < .08] = np.nan
    return x


def strange(x, inf):
    """Rows to predict: those of the table's kind, then edges."""
    x = x.copy()
    edges = [0, -0.0, 1e-36, -1e-36, 1e-35, -1e-35, np.float64(np.float32(1e-35)), 1e-20, -1e-20, np.nan, 1e30, -1e30, 2.5, -0.5, -1, 1000, 3.7, 4294967296.0, 16777216]
    if inf:
        edges += [np.inf, -np.inf]
    at = rng.random(x.shape) < .15
    x[at] = rng.choice(edges, at.sum())
    return x


X, XE = table(N), strange(table(EVAL), False)
XI = strange(table(EVAL), True)
signal = np.nan_to_num(X[:, 0]) + .7 * np.nan_to_num(X[:, 2]) + np.where(X[:, 3] % 3 == 1, 1.5, -.5) + np.where(X[:, 4] == 2, 1, 0)
noise = signal + rng.normal(size=N) * .3
Y = {"real": noise, "binary": (noise > 0).astype(int), "positive": np.abs(noise) + .05, "count": np.floor(np.abs(noise) * 2), "share": 1 / (1 + np.exp(-noise)),
     "three": np.digitize(noise, [-.3, .8]), "five": np.digitize(noise, [-1, -.3, .5, 1.2]), "grade": np.digitize(noise, [-.5, .5, 1.5]),
     "pair": np.stack([noise, noise ** 2 - np.nan_to_num(X[:, 5])], 1)}

# ---- XGBoost ----

XGB = []


def x(name, y, rounds=20, cat=False, **params):
    XGB.append((name, y, rounds, cat, params))


for objective, y in [("reg:squarederror", "real"), ("reg:squaredlogerror", "positive"), ("reg:logistic", "share"), ("reg:pseudohubererror", "real"),
                     ("reg:absoluteerror", "real"), ("reg:gamma", "positive"), ("reg:tweedie", "count"), ("count:poisson", "count"),
                     ("binary:logistic", "binary"), ("binary:logitraw", "binary"), ("binary:hinge", "binary"), ("survival:cox", "positive")]:
    x(objective, y, objective=objective)
x("reg:quantileerror", "real", objective="reg:quantileerror", quantile_alpha=.3)
x("reg:quantileerror, three", "real", objective="reg:quantileerror", quantile_alpha=[.1, .5, .9])
x("survival:aft", "positive", objective="survival:aft")
x("multi:softprob", "three", objective="multi:softprob", num_class=3)
x("multi:softprob, two", "binary", objective="multi:softprob", num_class=2)
x("multi:softmax", "five", objective="multi:softmax", num_class=5)
for objective in ("rank:pairwise", "rank:ndcg", "rank:map"):
    x(objective, "binary" if objective == "rank:map" else "grade", objective=objective, lambdarank_pair_method="topk")
x("exact", "binary", objective="binary:logistic", tree_method="exact")
x("approx", "binary", objective="binary:logistic", tree_method="approx")
x("many thresholds", "real", 60, objective="reg:squarederror", tree_method="hist", max_bin=2000)
x("deep", "real", 20, objective="reg:squarederror", max_depth=12, min_child_weight=0)
x("deep and many", "real", 60, objective="reg:squarederror", max_depth=9, max_bin=1000, min_child_weight=0)
x("lossguide", "binary", 30, objective="binary:logistic", grow_policy="lossguide", max_leaves=300, max_depth=0)
x("stumps", "binary", 200, objective="binary:logistic", max_depth=1)
x("one leaf", "real", 3, objective="reg:squarederror", min_child_weight=1e9)
x("pruned", "real", 20, objective="reg:squarederror", gamma=20, tree_method="exact")
x("base score", "binary", objective="binary:logistic", base_score=.3)
x("base score, poisson", "count", objective="count:poisson", base_score=2)
x("500 trees", "binary", 500, objective="binary:logistic", max_depth=8)
x("forest", "real", 1, objective="reg:squarederror", num_parallel_tree=30, subsample=.7, colsample_bynode=.6, learning_rate=1)
x("boosted forest", "three", 6, objective="multi:softprob", num_class=3, num_parallel_tree=4, subsample=.7)
x("dart", "binary", 30, booster="dart", objective="binary:logistic", rate_drop=.3)
x("dart, classes", "three", 15, booster="dart", objective="multi:softprob", num_class=3, rate_drop=.2, normalize_type="forest")
x("dart, categories", "real", 15, True, booster="dart", objective="reg:squarederror", rate_drop=.4)
x("gblinear", "real", 20, booster="gblinear", objective="reg:squarederror")
x("gblinear, binary", "binary", 20, booster="gblinear", objective="binary:logistic")
x("gblinear, classes", "three", 20, booster="gblinear", objective="multi:softprob", num_class=3)
x("two targets", "pair", objective="reg:squarederror")
x("vector leaves", "pair", objective="reg:squarederror", multi_strategy="multi_output_tree", tree_method="hist")
x("vector leaves, deep", "pair", objective="reg:squarederror", multi_strategy="multi_output_tree", tree_method="hist", max_depth=11, min_child_weight=0)
x("categories, one hot", "binary", 20, True, objective="binary:logistic", max_cat_to_onehot=1000)
x("categories, sets", "binary", 20, True, objective="binary:logistic", max_cat_to_onehot=1)
x("categories, sets, deep", "real", 40, True, objective="reg:squarederror", max_cat_to_onehot=1, max_depth=10, min_child_weight=0)
x("categories, classes", "three", 10, True, objective="multi:softprob", num_class=3, max_cat_to_onehot=4, tree_method="approx")


def xgb_leaf_file(path, to):
    """The same trees; the value of each leaf is its number, each tree an output."""
    doc = json.loads(path.read_text())
    booster = doc["learner"]["gradient_booster"]
    model = booster.get("gbtree", booster)["model"]
    for tree in model["trees"]:
        tree["split_conditions"] = [c if l >= 0 else float(i) for i, (c, l) in enumerate(zip(tree["split_conditions"], tree["left_children"]))]
        tree["tree_param"]["size_leaf_vector"] = "1"
    n = len(model["trees"])
    model["tree_info"] = list(range(n))
    if "weight_drop" in booster:
        booster["weight_drop"] = [1.0] * n
    doc["learner"]["learner_model_param"].update(base_score="0E0", num_class="0", num_target=str(n))
    doc["learner"]["objective"] = {"name": "reg:squarederror"}
    to.write_text(json.dumps(doc))


def run_xgb(name, y, rounds, cat, params):
    types = ["q", "q", "q", "c", "c", "q", "q", "q"] if cat else None
    kw = dict(feature_types=types, enable_categorical=cat, feature_names=["a", "cpu.user", "b", "kind", "zone", "f.x", "g_1", "h"])
    d = xgb.DMatrix(X, Y[y], **kw)
    if name.startswith("rank"):
        d.set_group([100] * (N // 100))
    if name == "survival:aft":
        d.set_float_info("label_lower_bound", Y[y])
        d.set_float_info("label_upper_bound", Y[y] + .5)
    b = xgb.train({"max_depth": 6, "nthread": 1, "seed": 3, **params}, d, rounds)
    rows = XE.copy()
    if cat:
        rows[:, 3:5] = XI[:, 3:5]
        rows[np.isinf(rows)] = 77
    e = xgb.DMatrix(rows, **kw)
    for ext in ("json", "ubj"):
        b.save_model(tmp / f"m.{ext}")
        got, text = engine(tmp / f"m.{ext}", rows)
        compare(name, f"XGBoost {params.get('booster', 'gbtree')}, {params['objective']}", b.predict(e, output_margin=False), got, 2)
    linear = params.get("booster") == "gblinear"
    try: # data with infinities is refused by DMatrix, not by the trees
        if not cat and params.get("booster", "gbtree") == "gbtree": # dart's inplace_predict rounds otherwise than its predict
            want = b.inplace_predict(XI.astype("f4"), missing=np.nan, validate_features=False)
            compare(name, f"XGBoost {params.get('booster', 'gbtree')}, {params['objective']}", want, engine(tmp / "m.json", XI)[0], 2)
    except xgb.core.XGBoostError as why:
        if "inf" not in str(why):
            raise
    if linear:
        return text
    xgb_leaf_file(tmp / "m.json", tmp / "leaf.json")
    leaves = np.asarray(b.predict(e, pred_leaf=True)).reshape(len(rows), -1)
    compare(name, "XGBoost leaves", leaves, engine(tmp / "leaf.json", rows)[0], 0)
    return text


# ---- LightGBM ----

LGB = []


def l(name, y, rounds=20, cat=False, **params):
    LGB.append((name, y, rounds, cat, params))


for objective, y in [("regression", "real"), ("regression_l1", "real"), ("huber", "real"), ("fair", "real"), ("poisson", "count"), ("quantile", "real"),
                     ("mape", "positive"), ("gamma", "positive"), ("tweedie", "count"), ("binary", "binary"), ("cross_entropy", "share"),
                     ("cross_entropy_lambda", "share"), ("lambdarank", "grade"), ("rank_xendcg", "grade")]:
    l(objective, y, objective=objective)
l("sqrt", "real", objective="regression", reg_sqrt=True)
l("sigmoid", "binary", objective="binary", sigmoid=2.5)
l("multiclass", "three", objective="multiclass", num_class=3)
l("multiclassova", "five", objective="multiclassova", num_class=5, sigmoid=1.5)
l("rf", "binary", 25, objective="binary", boosting="rf", bagging_freq=1, bagging_fraction=.6, feature_fraction=.7)
l("rf, classes", "three", 10, objective="multiclass", num_class=3, boosting="rf", bagging_freq=1, bagging_fraction=.6)
l("dart", "binary", 30, objective="binary", boosting="dart", drop_rate=.4)
l("goss", "real", 30, objective="regression", data_sample_strategy="goss")
l("linear trees", "real", 20, objective="regression", linear_tree=True)
l("linear trees, binary", "binary", 20, objective="binary", linear_tree=True, num_leaves=63)
l("linear trees, categories", "real", 20, True, objective="regression", linear_tree=True)
l("linear trees, many leaves", "real", 10, objective="regression", linear_tree=True, num_leaves=600, min_data_in_leaf=2)
l("zero is missing", "binary", 30, objective="binary", zero_as_missing=True)
l("zero is missing, deep", "real", 20, objective="regression", zero_as_missing=True, num_leaves=800, min_data_in_leaf=1)
l("nothing is missing", "binary", 30, objective="binary", use_missing=False)
l("categories", "binary", 30, True, objective="binary")
l("categories, sets", "real", 30, True, objective="regression", max_cat_to_onehot=1, cat_smooth=1, min_data_per_group=5)
l("categories, many sets", "real", 100, True, objective="regression", max_cat_to_onehot=1, cat_smooth=1, min_data_per_group=2, min_data_in_leaf=2, num_leaves=200)
l("categories, zero is missing", "three", 10, True, objective="multiclass", num_class=3, zero_as_missing=True)
l("255 leaves", "real", 30, objective="regression", num_leaves=255, min_data_in_leaf=1)
l("1000 leaves", "real", 10, objective="regression", num_leaves=1000, min_data_in_leaf=1)
l("many thresholds", "real", 60, objective="regression", max_bin=3000, min_data_in_bin=1)
l("one leaf", "binary", 3, objective="binary", min_data_in_leaf=100000)
l("extra trees", "real", 30, objective="regression", extra_trees=True)
l("500 trees", "binary", 500, objective="binary", num_leaves=63)
l("monotone", "real", 30, objective="regression", monotone_constraints=[1, 0, 0, 0, 0, 0, 0, -1])
l("own objective", "real", 10, objective="own")


def lgb_leaf_file(text, trees):
    head, sep, rest = text.partition("\nTree=0")
    head = re.sub(r"(?m)^(objective|tree_sizes)=.*\n|^average_output\n", "", head + "\n")
    head = re.sub(r"(?m)^(num_class|num_tree_per_iteration)=.*$", rf"\1={trees}", head)
    rest = re.sub(r"(?m)^leaf_value=(.*)$", lambda m: "leaf_value=" + " ".join(map(str, range(len(m[1].split())))), rest)
    return head.rstrip("\n") + "\n" + sep + re.sub(r"(?m)^is_linear=1$", "is_linear=0", rest)


def run_lgb(name, y, rounds, cat, params):
    linear = params.get("linear_tree", False)
    own = params["objective"] == "own"
    if own:
        params = {**params, "objective": lambda p, d: (p - d.get_label(), np.ones_like(p))}
    keep = {k: params[k] for k in ("linear_tree", "max_bin", "min_data_in_bin", "zero_as_missing", "use_missing", "monotone_constraints") if k in params}
    d = lgb.Dataset(X, Y[y], categorical_feature=[3, 4] if cat else [], params={"verbose": -1, **keep}, group=[100] * (N // 100) if "rank" in name else None)
    b = lgb.train({"verbose": -1, "num_threads": 1, "seed": 3, "deterministic": True, **params}, d, rounds)
    text = b.model_to_string()
    (tmp / "m.txt").write_text(text)
    b = lgb.Booster(model_str=text)
    got, says = engine(tmp / "m.txt", XI)
    kind = f"LightGBM {'linear trees' if linear else params.get('boosting', 'gbdt')}, {'own objective' if own else params['objective']}"
    compare(name, kind, b.predict(XI), got, 1)
    exact = np.asarray(b.predict(XI), "f8").reshape(len(got), -1)
    assert np.allclose(got, exact, rtol=1e-13, atol=1e-300, equal_nan=True), f"{kind}: digits of double are lost: {np.nanmax(np.abs(got - exact)):.3g}"
    (tmp / "leaf.txt").write_text(lgb_leaf_file(text, b.num_trees()))
    compare(name, "LightGBM leaves", b.predict(XI, pred_leaf=True), engine(tmp / "leaf.txt", XI)[0], 0)
    return says


words = sys.argv[1:]
ran = 0
for group, run, prefix in ((XGB, run_xgb, "xgboost"), (LGB, run_lgb, "lightgbm")):
    for c in group:
        name = f"{prefix} {c[0]}"
        if not all(w in name for w in words):
            continue
        ran += 1
        try:
            says = run(*c)
            if "-v" in os.environ.get("PENSTOCK_TEST", ""):
                print(name, "|", says.splitlines()[-1][50:])
        except Exception as why:
            failures.append(name)
            print(f"not ok {name}: {type(why).__name__}: {why}")
for kind, (d, u) in sorted(worst.items()):
    print(f"  {kind:44} largest difference {d:.3g}, {u} floats")
for f in tmp.iterdir():
    f.unlink()
tmp.rmdir()
print(f"engine_native: {ran - len(failures)} passed, {len(failures)} failed")
print(f"{checked} comparisons of {EVAL} rows")
sys.exit(bool(failures))
