"""Models that were trained on words, made by their own libraries, with what these predict: PYTHON words.py FOLDER [ROWS].

For each case FOLDER has NAME.json (features of a pipeline as YAML's flow, the model's file, score type), the model, NAME.jsonl (one record a line: what
a stream would hold, words and all) and NAME.want (a line a record: the numbers of the library, or "dead" where the pipeline says so). Among the words
are ones that training has not seen, missing ones, the empty one, and letters beyond ASCII. Needs pandas, scikit-learn, XGBoost, LightGBM."""
import json, sys, warnings
from pathlib import Path
import lightgbm as lgb, numpy as np, pandas as pd, xgboost as xgb
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import OneHotEncoder

warnings.simplefilter("ignore")
xgb.set_config(verbosity=0)
to, ROWS = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50000
rng = np.random.default_rng(5)
TRAIN = 4000
KINDS = ["truck", "car", "van", "küche", "", "a \"b\" \\c", "bus"]
ZONES = [10, 20, 30, 1000]


def table(n, strange):
    """Rows as a stream has them: kind text, zone a whole number, flag a boolean, x and y numbers; strange: with missing and unknown words."""
    kind = rng.choice(np.array(KINDS, object), n)
    zone = rng.choice(np.array(ZONES, object), n)
    flag = rng.choice(np.array([True, False], object), n)
    if strange:
        odd = rng.random(n)
        kind = np.where(odd < .05, None, np.where(odd < .12, rng.choice(np.array(["tram", "Truck", "ca", "carr", "küch"], object), n), kind))
        odd = rng.random(n)
        zone = np.where(odd < .05, None, np.where(odd < .1, rng.choice(np.array([0, -10, 40], object), n), zone))
        flag = np.where(rng.random(n) < .05, None, flag)
    return pd.DataFrame({"kind": kind, "zone": zone, "flag": flag, "x": rng.normal(size=n).round(6), "y": rng.normal(size=n).round(6)})


def truth(t):
    """What the models learn: words count."""
    s = t.kind.map({k: i for i, k in enumerate(KINDS)}) * .5 + (t.zone == 20) * 1.5 - (t.zone == 30) * 1. + t.flag.astype(float) + t.x
    return s + (t.kind == "car") * t.y


train, rows = table(TRAIN, False), table(ROWS, True)
real = truth(train).to_numpy("f8")
label = (real > np.median(real)).astype(int)


def plain(word):
    """XGBoost 3.2 cuts names beyond ASCII (it counts characters where it stores bytes), and then maps words to other codes than in training."""
    return word.replace("ü", "ue")


def listed(v):
    return json.dumps(list(v), ensure_ascii=False)


def case(name, features, model, want, dead=None, score="raw"):
    """want: (rows, outputs) as the library has them; dead: rows that become dead letters."""
    want = np.asarray(want, "f8").reshape(len(rows), -1)
    dead = np.zeros(len(rows), bool) if dead is None else np.asarray(dead)
    (to / f"{name}.json").write_text(json.dumps({"features": features, "model": model, "score": score}))
    (to / f"{name}.want").write_text("".join("dead\n" if d else " ".join(f"{v:.17g}" for v in w) + "\n" for w, d in zip(want, dead)))


with open(to / "rows.jsonl", "w") as f:
    for k, z, b, x, y in rows.itertuples(index=False):
        f.write(json.dumps({"kind": None if pd.isna(k) else k, "zone": None if pd.isna(z) else int(z), "flag": None if pd.isna(b) else bool(b), "x": float(x), "y": float(y),
                            "plain": None if pd.isna(k) else plain(k)}) + "\n")

unknown_kind, unknown_zone = ~rows.kind.isin([*KINDS, None]).to_numpy(), ~rows.zone.isin([*ZONES, None]).to_numpy()
no_kind, no_zone, no_flag = rows.kind.isna().to_numpy(), rows.zone.isna().to_numpy(), rows.flag.isna().to_numpy()
assert min(m.sum() for m in (unknown_kind, unknown_zone, no_kind, no_zone, no_flag)) > ROWS // 100

# ---- one-hot: get_dummies, XGBoost and LightGBM of its columns ----


def dummies(t, columns, **kw):
    """The trained columns of a table whose words may be others."""
    d = pd.get_dummies(t[["kind", "zone", "flag", "x", "y"]].astype({"kind": object, "zone": object, "flag": object}), columns=["kind", "zone", "flag"], **kw)
    return d.reindex(columns=columns, fill_value=0).astype("f8")


for drop in (False, True):
    made = pd.get_dummies(train, columns=["kind", "zone", "flag"], drop_first=drop).astype("f8")
    names = list(made.columns)  # x, y, then a column a word
    asked = dummies(rows, names)
    words = [listed(sorted(KINDS)), listed(sorted(ZONES)), "[false, true]"]
    features = ["x", "y"] + ["{field: %s, one_hot: %s, missing: zeros%s}" % (f, w, ", drop_first: true" if drop else "") for f, w in zip(["kind", "zone", "flag"], words)]
    b = xgb.train({"objective": "binary:logistic", "max_depth": 5, "nthread": 1}, xgb.DMatrix(made.to_numpy(), label), 30)
    b.save_model(to / f"dummies-{drop}.ubj")
    case(f"get_dummies, xgboost, drop_first {drop}", features, f"dummies-{drop}.ubj", b.predict(xgb.DMatrix(asked.to_numpy())))
b = lgb.train({"objective": "regression", "verbose": -1, "num_threads": 1}, lgb.Dataset(made.to_numpy(), real), 30)
b.save_model(to / "dummies.txt")
case("get_dummies, lightgbm", features, "dummies.txt", b.predict(asked.to_numpy()))
made = pd.get_dummies(pd.concat([train, rows[:500]])[["x", "kind"]].astype({"kind": object}), columns=["kind"], dummy_na=True).astype("f8")
names = list(made.columns)
b = xgb.train({"objective": "reg:squarederror", "nthread": 1}, xgb.DMatrix(made.to_numpy(), rng.normal(size=len(made))), 30)
b.save_model(to / "na.json")
seen = sorted({n[5:] for n in names[1:-1]})
assert names[-1] == "kind_nan" and names[1:-1] == ["kind_" + s for s in seen], names
case("get_dummies, dummy_na", ["x", "{field: kind, one_hot: %s, unknown: zeros}" % listed([*seen, None])], "na.json",
     b.predict(xgb.DMatrix(pd.get_dummies(rows[["x", "kind"]].astype({"kind": object}), columns=["kind"], dummy_na=True).reindex(columns=names, fill_value=0).to_numpy("f8"))))

# ---- one-hot: OneHotEncoder in front of scikit-learn's models, exported without it ----


def encoded(encoder, t):
    return np.hstack([encoder.transform(t[["kind", "zone"]].astype(object)), t[["x", "y"]].to_numpy("f8")]).astype("f4")


def from_encoder(name, encoder, model, one_hot, dead=None):
    encoder.fit(train[["kind", "zone"]].astype(object))
    model.fit(encoded(encoder, train), label)
    made = encoded(encoder, train)
    (to / f"{name}.onnx").write_bytes(to_onnx(model, made[:1], options={"zipmap": False}).SerializeToString())
    good = np.ones(len(rows), bool) if dead is None else ~dead
    asked = rows.copy()
    asked.loc[~good, ["kind", "zone"]] = [KINDS[0], ZONES[0]]
    want = model.predict_proba(encoded(encoder, asked))
    features = ["{field: %s, one_hot: %s%s}" % (f, listed(c), one_hot) for f, c in zip(["kind", "zone"], encoder.categories_)] + ["x", "y"]
    case(name, features, f"{name}.onnx", want, dead, "class")


from_encoder("OneHotEncoder, ignore, logistic", OneHotEncoder(handle_unknown="ignore", sparse_output=False), LogisticRegression(max_iter=500), ", missing: zeros")
from_encoder("OneHotEncoder, ignore, mlp", OneHotEncoder(handle_unknown="ignore", sparse_output=False), MLPClassifier((16,), max_iter=30, random_state=1), ", missing: zeros")
from_encoder("OneHotEncoder, drop first", OneHotEncoder(handle_unknown="ignore", sparse_output=False, drop="first"), LogisticRegression(max_iter=500), ", missing: zeros, drop_first: true")
from_encoder("OneHotEncoder, error", OneHotEncoder(handle_unknown="error", sparse_output=False), LogisticRegression(max_iter=500), "", unknown_kind | unknown_zone | no_kind | no_zone)
rare = OneHotEncoder(handle_unknown="infrequent_if_exist", sparse_output=False, min_frequency=TRAIN // 8)  # what is rare shares a slot with what is unknown
some = train.copy()
some.loc[some.index % 10 == 0, "kind"] = "rare"
rare.fit(some[["kind"]].astype(object))
often = [k for k in rare.categories_[0] if k not in rare.infrequent_categories_[0]]
made = np.hstack([rare.transform(some[["kind"]].astype(object)), some[["x"]].to_numpy("f8")]).astype("f4")
model = LogisticRegression(max_iter=500).fit(made, label)
(to / "rare.onnx").write_bytes(to_onnx(model, made[:1], options={"zipmap": False}).SerializeToString())
asked = np.hstack([rare.transform(rows[["kind"]].astype(object)), rows[["x"]].to_numpy("f8")]).astype("f4")
case("OneHotEncoder, infrequent", ["{field: kind, one_hot: %s, unknown: other}" % listed(often), "x"], "rare.onnx", model.predict_proba(asked), no_kind, "class")

# ---- categories by name ----


def categories(t, **orders):
    d = t[["x", "kind", "zone", "flag"]].copy()
    for name, known in {"kind": KINDS, "zone": ZONES, "flag": [False, True]}.items():
        known = orders.get(name, known)
        d[name] = pd.Categorical(t[name], categories=known) if known else pd.Categorical(t[name])
    return d


order = {"kind": ["unused", *KINDS[::-1]], "zone": [30, 10, 1000, 20]}
made, asked = categories(train, **order), categories(rows, **order)
assert not (made.isna().any().any())
b = lgb.train({"objective": "binary", "verbose": -1, "num_threads": 1, "min_data_per_group": 5, "max_cat_to_onehot": 2}, lgb.Dataset(made, label), 40)
b.save_model(to / "names.txt")
known = b.predict(categories(rows, kind=None, zone=None, flag=None))  # a table with the unknown words: the library maps them itself
assert np.array_equal(known, b.predict(asked))
case("categories, lightgbm, nan", ["x"] + ["{field: %s, missing: nan}" % f for f in ("kind", "zone", "flag")], "names.txt", known)
case("categories, lightgbm, reject", ["x", "kind", "zone", "flag"], "names.txt", known, unknown_kind | unknown_zone | no_kind | no_zone | no_flag)
case("categories, lightgbm, vocabulary", ["x", "{field: kind, vocabulary: %s, missing: nan}" % listed(order["kind"]), "{field: zone, missing: nan}", "{field: flag, missing: nan}"], "names.txt", known)
case("categories, lightgbm, own mapping", None, "names.txt", known, unknown_kind | unknown_zone | no_kind | no_zone | no_flag)

made, asked = (t.rename(columns={"kind": "plain"})[["x", "plain", "zone"]] for t in (made, asked))  # XGBoost takes no categories that are booleans or have a fraction
for t in (made, asked):
    t["plain"] = t.plain.cat.rename_categories(plain)
unknown, no = unknown_kind | unknown_zone, no_kind | no_zone
for sets in (1, 1000):
    b = xgb.train({"objective": "binary:logistic", "nthread": 1, "max_cat_to_onehot": sets, "tree_method": "hist"}, xgb.DMatrix(made, label, enable_categorical=True), 40)
    # Unknown words are missing here. A table that has them is refused by the library, or (3.2) they are taken for the next name in order.
    none = b.predict(xgb.DMatrix(asked, enable_categorical=True))
    for ext in ("json", "ubj"):
        b.save_model(to / f"names-{sets}.{ext}")
        case(f"categories, xgboost, {sets}, {ext}, nan", ["x", "{field: plain, missing: nan}", "{field: zone, missing: nan}"], f"names-{sets}.{ext}", none)
    case(f"categories, xgboost, {sets}, reject", None, f"names-{sets}.ubj", none, unknown | no)
b = xgb.train({"booster": "dart", "rate_drop": .3, "objective": "reg:squarederror", "nthread": 1}, xgb.DMatrix(made, real, enable_categorical=True), 15)
b.save_model(to / "names-dart.json")
case("categories, xgboost, dart", ["x", "{field: plain, missing: nan}", "{field: zone, missing: nan}"], "names-dart.json", b.predict(xgb.DMatrix(asked, enable_categorical=True)))
b = xgb.train({"objective": "binary:logistic", "nthread": 1}, xgb.DMatrix(categories(train, **order)[["x", "kind"]], label, enable_categorical=True), 20)
b.save_model(to / "cut.json")  # the names of this file are no use; the codes are, in the order of training
codes = pd.DataFrame({"x": rows.x, "kind": categories(rows, **order).kind.cat.codes.replace(-1, np.nan)})
case("categories, xgboost, beyond ASCII", ["x", "{field: kind, vocabulary: %s, missing: nan}" % listed(order["kind"])], "cut.json",
     b.inplace_predict(codes.to_numpy("f4"), validate_features=False))
print(len(list(to.glob("*.want"))), "cases of", ROWS, "rows")
