"""Tree ensembles made at random: every mode of a node, every aggregate, post transform, missing values, double thresholds, sets, edges on the thresholds."""
import copy, itertools
import numpy as np
from onnx import TensorProto as TP, helper, numpy_helper
from case import EDGES, ml_node, model, post as post_of

FEATURES = 6
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
POSTS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
GRID = np.array([-1.5, -1, -0.5, -0.25, 0, 0.1, 0.25, 0.5, 1, 2], np.float64)  # few values, so that rows lie on thresholds


def rows(rng, n=200, edges=True):
    x = rng.choice(GRID, size=(n, FEATURES)).astype(np.float32)
    half = n // 2
    x[half:] = rng.normal(size=(n - half, FEATURES))
    if edges:
        holes = rng.random(x.shape) < 0.08
        x[holes] = rng.choice(EDGES, holes.sum())
        x[-1] = np.nan
    return x


def forest(rng, trees, depth, modes, missing, grow=0.85):
    """Nodes of a forest in preorder: dicts of columns of the old operators."""
    c = {k: [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids", "missing_value_tracks_true", "hitrates")}
    leaves = []

    def put(tree, at, level, counter):
        row = len(c["nodeids"])
        for k in c:
            c[k].append(0 if k not in ("values", "hitrates") else 1.0 if k == "hitrates" else 0.0)
        c["treeids"][row], c["nodeids"][row] = tree, at
        if level == depth or (level and rng.random() > grow):
            c["modes"][row] = "LEAF"
            leaves.append((tree, at))
            return
        c["modes"][row] = modes[rng.integers(len(modes))]
        c["featureids"][row] = int(rng.integers(FEATURES))
        c["values"][row] = float(rng.choice(GRID)) if rng.random() < 0.7 else float(np.float32(rng.normal()))
        c["missing_value_tracks_true"][row] = int(missing and rng.integers(2))
        for side in ("truenodeids", "falsenodeids"):
            counter[0] += 1
            c[side][row] = counter[0]
            put(tree, counter[0], level + 1, counter)

    for t in range(trees):
        put(t, 0, 0, [0])
    return c, leaves


def columns(c, double, missing):
    attributes = {f"nodes_{k}": v for k, v in c.items() if k != "values" and (missing or k != "missing_value_tracks_true")}
    if double:
        attributes["nodes_values_as_tensor"] = helper.make_tensor("v", TP.DOUBLE, [len(c["values"])], c["values"])
        attributes["nodes_hitrates_as_tensor"] = helper.make_tensor("h", TP.DOUBLE, [len(c["values"])], attributes.pop("nodes_hitrates"))
    else:
        attributes["nodes_values"] = c["values"]
    return attributes


def numbers(attributes, name, values, double):
    if double:
        attributes[name + "_as_tensor"] = helper.make_tensor(name, TP.DOUBLE, [len(values)], values)
    else:
        attributes[name] = values


def regressor(rng, trees=8, depth=5, modes=("BRANCH_LEQ",), targets=1, aggregate="SUM", post="NONE", missing=False, double=False, base=False, sparse=False):
    c, leaves = forest(rng, trees, depth, list(modes), missing)
    a = columns(c, double, missing)
    votes = [(t, n, k, float(np.float32(rng.normal()))) for t, n in leaves for k in range(targets) if not sparse or rng.random() < 0.6]
    a["target_treeids"], a["target_nodeids"], a["target_ids"] = ([v[i] for v in votes] for i in range(3))
    numbers(a, "target_weights", [v[3] / (trees if post in ("PROBIT", "LOGISTIC") else 1) for v in votes], double)
    if base:
        numbers(a, "base_values", [float(np.float32(x)) for x in rng.normal(size=targets)], double)
    node = ml_node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=targets, aggregate_function=aggregate, post_transform=post, **a)
    kind = TP.DOUBLE if double else TP.FLOAT
    return model([node], [("x", kind, ["N", FEATURES])], [("y", TP.FLOAT, ["N", targets])], ml=3)


def classifier(rng, classes=2, one=None, post="NONE", labels="int", trees=8, depth=5, modes=("BRANCH_LEQ",), missing=False, double=False, base=0, positive=False, sparse=False):
    """one: the only class that has votes, as in boosted models of two classes. base: how many base values."""
    c, leaves = forest(rng, trees, depth, list(modes), missing)
    a = columns(c, double, missing)
    ids = range(classes) if one is None else [one]
    votes = [(t, n, k, float(np.float32(abs(rng.normal()) if positive else rng.normal()))) for t, n in leaves for k in ids if not sparse or rng.random() < 0.6]
    a["class_treeids"], a["class_nodeids"], a["class_ids"] = ([v[i] for v in votes] for i in range(3))
    numbers(a, "class_weights", [v[3] / trees for v in votes], double)
    if base:
        numbers(a, "base_values", [float(np.float32(x)) for x in rng.normal(size=base)], double)
    if labels == "int":
        a["classlabels_int64s"] = [k * 3 - 1 for k in range(classes)]
    else:
        a["classlabels_strings"] = [f"class {k}" for k in range(classes)]
    node = ml_node("TreeEnsembleClassifier", ["x"], ["label", "scores"], post_transform=post, **a)
    return model([node], [("x", TP.DOUBLE if double else TP.FLOAT, ["N", FEATURES])],
                 [("label", TP.INT64 if labels == "int" else TP.STRING, ["N"]), ("scores", TP.FLOAT, ["N", classes])], ml=3)


def ensemble5(rng, trees=6, depth=4, kind=TP.FLOAT, targets=2, aggregate=1, post=0, members=False, missing=False):
    """TreeEnsemble of opset 5: modes are numbers, leaves stand apart, BRANCH_MEMBER asks for membership of a set."""
    dtype = {TP.FLOAT: np.float32, TP.DOUBLE: np.float64}[kind]
    n = {k: [] for k in ("featureids", "modes", "splits", "truenodeids", "trueleafs", "falsenodeids", "falseleafs", "missing_value_tracks_true")}
    grid = GRID if members != "whole" else np.arange(-3.0, 4.0)  # ONNX Runtime knows sets of whole numbers only
    sets, leaf_ids, leaf_weights, roots = [], [], [], []

    def leaf():
        leaf_ids.append(int(rng.integers(targets)))
        leaf_weights.append(float(np.float32(rng.normal())))
        return len(leaf_ids) - 1

    def put(level):
        row = len(n["modes"])
        for k in n:
            n[k].append(0)
        member = members and rng.random() < 0.5
        n["featureids"][row] = int(rng.integers(FEATURES))
        n["modes"][row] = 6 if member else int(rng.integers(6)) if members or missing else 0
        n["splits"][row] = float(rng.choice(grid))
        n["missing_value_tracks_true"][row] = int(missing and rng.integers(2))
        if member:
            n["splits"][row] = 0.0
            sets.extend(list(rng.choice(grid, size=rng.integers(1, 5), replace=False)) + [np.nan])
        for side in ("true", "false"):
            if level == depth or rng.random() < 0.15:
                n[side + "leafs"][row], n[side + "nodeids"][row] = 1, leaf()
            else:
                n[side + "nodeids"][row] = put(level + 1)
        return row

    for _ in range(trees):
        roots.append(put(1))
    a = {"nodes_" + k: v for k, v in n.items() if k not in ("modes", "splits")}
    a["nodes_modes"] = helper.make_tensor("m", TP.UINT8, [len(n["modes"])], n["modes"])
    a["nodes_splits"] = numpy_helper.from_array(np.array(n["splits"], dtype), "s")
    a["leaf_targetids"], a["leaf_weights"] = leaf_ids, numpy_helper.from_array(np.array(leaf_weights, dtype), "w")
    if sets:
        a["membership_values"] = numpy_helper.from_array(np.array(sets, dtype), "sets")
    node = ml_node("TreeEnsemble", ["x"], ["y"], tree_roots=roots, n_targets=targets, aggregate_function=aggregate, post_transform=post, **a)
    return model([node], [("x", kind, ["N", FEATURES])], [("y", kind, ["N", targets])], ml=5, opset=21)


def walk5(m, x):
    """TreeEnsemble of opset 5 as the specification reads, row by row: sums, no transform. For sets of fractions, which nobody else has."""
    a = {t.name: helper.get_attribute_value(t) for t in m.graph.node[0].attribute}
    modes, splits, weights = (numpy_helper.to_array(a[k]) for k in ("nodes_modes", "nodes_splits", "leaf_weights"))
    sets, at = {}, 0
    for node in np.flatnonzero(modes == 6):
        end = at + int(np.argmax(np.isnan(numpy_helper.to_array(a["membership_values"])[at:])))
        sets[node], at = set(numpy_helper.to_array(a["membership_values"])[at:end].tolist()), end + 1
    y = np.zeros((len(x), a["n_targets"]))
    for row, out in zip(x, y):
        for node in a["tree_roots"]:
            leaf = 0
            while not leaf:
                v, s = row[a["nodes_featureids"][node]], splits[node]
                yes = float(v) in sets[node] if modes[node] == 6 else (v <= s, v < s, v >= s, v > s, v == s, v != s)[modes[node]]
                yes = yes or (np.isnan(v) and a["nodes_missing_value_tracks_true"][node])
                leaf, node = (a["nodes_trueleafs"][node], a["nodes_truenodeids"][node]) if yes else (a["nodes_falseleafs"][node], a["nodes_falsenodeids"][node])
            out[a["leaf_targetids"][node]] += weights[node]
    return y.astype(x.dtype)


def doubles_stay(cases):
    """TreeEnsemble of double: a stump for each of two targets, and a result that has digits which no float has. NONE, SOFTMAX, LOGISTIC."""
    t = lambda name, values: helper.make_tensor(name, TP.DOUBLE, [len(values)], values)
    leaves, x = [0.1, 1 / 3, -2 / 7, 0.7], np.array([[0.0], [1.0]])
    sums = np.array([[leaves[0], leaves[2]], [leaves[1], leaves[3]]])
    e = np.exp(sums)
    for post, want in ((0, sums), (1, e / e.sum(1, keepdims=True)), (2, 1 / (1 + np.exp(-sums)))):
        node = ml_node("TreeEnsemble", ["x"], ["y"], n_targets=2, aggregate_function=1, post_transform=post, tree_roots=[0, 1], nodes_featureids=[0, 0], nodes_splits=t("s", [0.5, 0.5]),
                       nodes_modes=helper.make_tensor("m", TP.UINT8, [2], [0, 0]), nodes_truenodeids=[0, 2], nodes_falsenodeids=[1, 3], nodes_trueleafs=[1, 1], nodes_falseleafs=[1, 1],
                       leaf_targetids=[0, 0, 1, 1], leaf_weights=t("w", leaves))
        cases.add_expected(f"tree_double_post_{post}", model([node], [("x", TP.DOUBLE, ["N", 1])], [("y", TP.DOUBLE, ["N", 2])], opset=20, ml=5), [x], [want], (1e-14, 1e-15))


def generate(cases, rng):
    doubles_stay(cases)
    exact = (1e-5, 5e-6)

    def regress(name, **how):
        x = rows(rng)
        cases.add("tree_reg_" + name, regressor(rng, **how), [x.astype(np.float64) if how.get("double") else x], (1e-3, 1e-4) if how.get("post") == "PROBIT" else exact)

    for mode in MODES:
        regress("mode_" + mode[7:].lower(), modes=[mode])
        regress("mode_" + mode[7:].lower() + "_missing", modes=[mode], missing=True)
    regress("modes_mixed", modes=MODES, missing=True, trees=20)
    for aggregate, targets in itertools.product(("SUM", "AVERAGE", "MIN", "MAX"), (1, 3)):
        regress(f"{aggregate.lower()}_{targets}", aggregate=aggregate, targets=targets, base=True, missing=True)
        if targets > 1:  # of one target every leaf has a vote
            regress(f"{aggregate.lower()}_{targets}_sparse", aggregate=aggregate, targets=targets, sparse=True)
    for post in POSTS:
        regress("post_" + post.lower(), post=post, targets=1 if post == "PROBIT" else 3)
    for depth, trees in ((1, 1), (2, 300), (6, 100), (8, 60), (12, 20)):
        regress(f"shape_{trees}x{depth}", trees=trees, depth=depth, missing=True)
        regress(f"shape_{trees}x{depth}_double", trees=trees, depth=depth, double=True)
    regress("double_modes", modes=MODES, double=True, missing=True, targets=2, base=True)

    for classes, labels, post in itertools.product((2, 4), ("int", "str"), POSTS[:4]):
        for base in (0, classes):
            x, again = rows(rng), copy.deepcopy(rng)
            how = dict(classes=classes, labels=labels)
            m = classifier(rng, base=base, post=post, **how)
            if classes > 2:
                cases.add(f"tree_cls_{classes}_{labels}_{post.lower()}_base{base}", m, [x], exact)
                continue
            # Two classes with a vote each: ONNX Runtime's label is whether the second score is above 0, and its base values go astray. The greater score wins.
            raw = cases.outputs_of("", classifier(again, **how), [x])[1] + np.float32([float(v) for a in m.graph.node[0].attribute if a.name == "base_values" for v in a.floats] or [0, 0])
            names = np.array([-1, 2]) if labels == "int" else np.array(["class 0", "class 1"], object)
            cases.add_expected(f"tree_cls_2_{labels}_{post.lower()}_base{base}", m, [x], [names[(raw[:, 1] > raw[:, 0]).astype(int)], post_of(post, raw)], exact)
    for vote, labels, post in itertools.product((0, 1), ("int", "str"), POSTS):
        for base in (0, 1) if vote == 0 else (0,):  # boosted models of two classes have scores of one of them
            if vote == 0 and post == "PROBIT":
                continue  # ONNX Runtime writes one of the two scores
            m = classifier(rng, one=vote, labels=labels, post=post, base=base, positive=post == "PROBIT")
            cases.add(f"tree_cls_2_only_{vote}_{labels}_{post.lower()}_base{base}", m, [rows(rng)], (1e-3, 1e-4) if post == "PROBIT" else exact)
    for name, how in (("positive", dict(one=1, positive=True)), ("modes", dict(modes=MODES, missing=True, classes=3)), ("double", dict(double=True, missing=True, classes=3)),
                      ("sparse", dict(classes=5, sparse=True)), ("deep", dict(trees=40, depth=9, one=0, post="LOGISTIC", missing=True))):
        x = rows(rng)
        cases.add("tree_cls_" + name, classifier(rng, **how), [x.astype(np.float64) if how.get("double") else x], exact)

    for kind, word in ((TP.FLOAT, "float"), (TP.DOUBLE, "double")):
        x = rows(rng).astype(np.float32 if kind == TP.FLOAT else np.float64)
        for aggregate, post in ((0, 0), (1, 0), (2, 0), (3, 0), (1, 3)):
            cases.add(f"tree5_{word}_aggregate{aggregate}_post{post}", ensemble5(rng, kind=kind, aggregate=aggregate, post=post, missing=True), [x], exact)
        for post, transform in ((1, "SOFTMAX"), (2, "LOGISTIC")):  # ONNX Runtime takes the one for the other
            again = copy.deepcopy(rng)
            raw = cases.outputs_of("", ensemble5(rng, kind=kind), [x])[0]
            cases.add_expected(f"tree5_{word}_{transform.lower()}", ensemble5(again, kind=kind, post=post), [x], [post_of(transform, raw).astype(x.dtype)], exact)
        whole = rng.integers(-4, 5, x.shape).astype(x.dtype)
        whole[::9, 1] = np.nan
        for missing, trees in ((False, 6), (True, 20)):
            cases.add(f"tree5_{word}_members_whole_{trees}", ensemble5(rng, kind=kind, members="whole", missing=missing, trees=trees), [whole], exact)
            m = ensemble5(rng, kind=kind, members=True, missing=missing, trees=trees)
            cases.add_expected(f"tree5_{word}_members_{trees}", m, [x], [walk5(m, x)], exact)
        cases.add(f"tree5_{word}_leq", ensemble5(rng, kind=kind, trees=60, depth=6, targets=1), [x], exact)
