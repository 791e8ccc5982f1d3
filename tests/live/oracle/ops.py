"""One model for each use of the other ML operators, of text and of labels: values chosen at random and at the edges."""
import itertools
import numpy as np
from onnx import TensorProto as TP, helper, numpy_helper
from case import EDGES, ml_node, model, post as post_of

F = 6
POSTS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
WORDS = ["Oslo", "Bern", "", "Rome", "Zürich", "ROME", " Rome", "東京", "x" * 300]
KINDS = {"float": (TP.FLOAT, np.float32), "double": (TP.DOUBLE, np.float64), "int64": (TP.INT64, np.int64), "int32": (TP.INT32, np.int32)}


def table(rng, n=120, kind="float", edges=True):
    x = rng.normal(size=(n, F)) * 3
    if kind.startswith("int"):
        return x.astype(KINDS[kind][1])
    x = x.astype(np.float32)
    if edges:
        x[-12:, 1] = EDGES
    return x.astype(KINDS[kind][1])


def weights(rng, n, scale=0.5):
    return [float(np.float32(v)) for v in rng.normal(size=n) * scale]


def one(op, x, kind_in, outs, ml=1, **attributes):
    node = ml_node(op, ["x"], [o[0] for o in outs], **attributes)
    return model([node], [("x", kind_in, ["N"] + list(x.shape[1:]))], outs, ml=ml)


def by_words(cases, name, m, bare, x, post, astray):
    """ONNX Runtime leaves the post transform out where a regressor has one target: then its bare score is transformed here."""
    if not astray or post == "NONE":
        cases.add(name, m, [x])
    else:
        cases.add_expected(name, m, [x], [post_of(post, cases.outputs_of(name, bare, [x])[0])])


def linear(cases, rng):
    for post, targets, icept in itertools.product(POSTS, (1, 3), (True, False)):
        if post == "PROBIT":
            continue  # wants scores inside (0, 1): below
        x = table(rng, edges=False)
        a = dict(coefficients=weights(rng, F * targets), targets=targets, post_transform=post)
        if icept:
            a["intercepts"] = weights(rng, targets)
        name, m = f"linear_reg_{post.lower()}_{targets}{'' if icept else '_bare'}", one("LinearRegressor", x, TP.FLOAT, [("y", TP.FLOAT, ["N", targets])], **a)
        by_words(cases, name, m, one("LinearRegressor", x, TP.FLOAT, [("y", TP.FLOAT, ["N", targets])], **{**a, "post_transform": "NONE"}), x, post, targets == 1)
    for kind in KINDS:
        x = table(rng, kind=kind, edges=kind == "float")
        a, out = dict(coefficients=weights(rng, F), intercepts=[0.5], targets=1), [("y", TP.FLOAT, ["N", 1])]
        want = cases.outputs_of("", one("LinearRegressor", x, TP.FLOAT, out, **a), [x.astype(np.float32)])  # ONNX Runtime has it for float32 alone
        cases.add_expected(f"linear_reg_from_{kind}", one("LinearRegressor", x, KINDS[kind][0], out, **a), [x], want)
    for post, classes, multi, labels in itertools.product(POSTS[:4], (1, 2, 4), (0, 1), ("int", "str")):
        x = table(rng, edges=False)
        scores = 1 if classes == 1 else classes
        a = dict(coefficients=weights(rng, F * scores), intercepts=weights(rng, scores), multi_class=multi, post_transform=post)
        names = 2 if classes == 1 else classes
        a.update(dict(classlabels_ints=[7, -3, 0, 9][:names]) if labels == "int" else dict(classlabels_strings=WORDS[:names]))
        outs = [("label", TP.INT64 if labels == "int" else TP.STRING, ["N"]), ("scores", TP.FLOAT, ["N", names])]
        cases.add(f"linear_cls_{post.lower()}_{classes}_{multi}_{labels}", one("LinearClassifier", x, TP.FLOAT, outs, **a), [x])
    for kind in ("double", "int64", "int32"):
        x = table(rng, kind=kind, edges=False)
        cases.add(f"linear_cls_from_{kind}", one("LinearClassifier", x, KINDS[kind][0], [("label", TP.INT64, ["N"]), ("scores", TP.FLOAT, ["N", 3])], coefficients=weights(rng, 3 * F),
                                                 intercepts=weights(rng, 3), classlabels_ints=[1, 2, 3], post_transform="SOFTMAX"), [x])


def support_vectors(cases, rng):
    kernels = {"LINEAR": [0.0, 0.0, 0.0], "POLY": [0.1, 0.5, 3.0], "RBF": [0.05, 0.0, 0.0], "SIGMOID": [0.05, 0.1, 0.0]}
    x = table(rng, edges=False)
    for (kernel, params), one_class, post in itertools.product(kernels.items(), (0, 1), ("NONE", "LOGISTIC")):
        n = 9
        a = dict(kernel_type=kernel, kernel_params=params, n_supports=n, support_vectors=weights(rng, n * F), coefficients=weights(rng, n), rho=[0.3], one_class=one_class, post_transform=post)
        out = [("y", TP.FLOAT, ["N", 1])]
        by_words(cases, f"svm_reg_{kernel.lower()}_{one_class}_{post.lower()}", one("SVMRegressor", x, TP.FLOAT, out, **a), one("SVMRegressor", x, TP.FLOAT, out, **{**a, "post_transform": "NONE"}), x, post, True)
    cases.add("svm_reg_no_vectors", one("SVMRegressor", x, TP.FLOAT, [("y", TP.FLOAT, ["N", 1])], kernel_type="LINEAR", kernel_params=[0.0] * 3, n_supports=0, coefficients=weights(rng, F), rho=[0.2]), [x])
    for (kernel, params), classes, proba, labels in itertools.product(kernels.items(), (2, 3), (False, True), ("int", "str")):
        per = [4, 3, 5][:classes]
        pairs = classes * (classes - 1) // 2
        a = dict(kernel_type=kernel, kernel_params=params, vectors_per_class=per, support_vectors=weights(rng, sum(per) * F), coefficients=weights(rng, sum(per) * (classes - 1)), rho=weights(rng, pairs))
        if proba:
            a.update(prob_a=[-1.1, -0.7, -1.4][:pairs], prob_b=[0.1, -0.2, 0.05][:pairs])
        a.update(dict(classlabels_ints=[4, 1, 8][:classes]) if labels == "int" else dict(classlabels_strings=WORDS[:classes]))
        width = classes if proba or classes == 2 else pairs
        outs = [("label", TP.INT64 if labels == "int" else TP.STRING, ["N"]), ("scores", TP.FLOAT, ["N", width])]
        cases.add(f"svm_cls_{kernel.lower()}_{classes}_{'proba' if proba else 'votes'}_{labels}", one("SVMClassifier", x, TP.FLOAT, outs, **a), [x], (2e-4, 2e-5))
    for post, classes in itertools.product(POSTS[:4], (2, 3)):
        a = dict(kernel_type="LINEAR", kernel_params=[0.0] * 3, coefficients=weights(rng, F * classes), rho=weights(rng, 1), classlabels_ints=list(range(classes)), post_transform=post)
        m = one("SVMClassifier", x, TP.FLOAT, [("label", TP.INT64, ["N"]), ("scores", TP.FLOAT, ["N", classes])], **a)
        if classes == 2:  # ONNX Runtime says the second class wherever a score is above 0
            outputs = cases.outputs_of("", m, [x])
            cases.add_expected(f"svm_cls_no_vectors_2_{post.lower()}", m, [x], [outputs[1].argmax(1), outputs[1]])
        else:
            cases.add(f"svm_cls_no_vectors_3_{post.lower()}", m, [x])


def preparation(cases, rng):
    for kind in KINDS:
        x = table(rng, kind=kind)
        f = KINDS[kind][0]
        out = [("y", TP.FLOAT, ["N", F])]
        cases.add(f"scaler_{kind}", one("Scaler", x, f, out, offset=weights(rng, F), scale=weights(rng, F)), [x])
        cases.add(f"scaler_{kind}_single", one("Scaler", x, f, out, offset=[1.5], scale=[-0.25]), [x])
        for norm in ("MAX", "L1", "L2"):
            z = table(rng, kind=kind, edges=False)
            z[3] = 0
            cases.add(f"normalizer_{norm.lower()}_{kind}", one("Normalizer", z, f, out, norm=norm), [z])
        cases.add(f"feature_extractor_{kind}", model([ml_node("ArrayFeatureExtractor", ["x", "at"], ["y"])], [("x", f, ["N", F])], [("y", f, ["N", 4])],
                                                     [numpy_helper.from_array(np.array([5, 0, 0, 2]), "at")], ml=1), [x])
    names = rng.choice(np.array(WORDS, object), size=(40, F))
    cases.add("feature_extractor_text", model([ml_node("ArrayFeatureExtractor", ["x", "at"], ["y"])], [("x", TP.STRING, ["N", F])], [("y", TP.STRING, ["N", 2])],
                                              [numpy_helper.from_array(np.array([1, 4]), "at")], ml=1), [names])
    x = table(rng)
    for threshold in (0.0, float(x[3, 1]), -2.5):
        cases.add(f"binarizer_{threshold:.2f}", one("Binarizer", x, TP.FLOAT, [("y", TP.FLOAT, ["N", F])], threshold=threshold), [x])
    for gone, some in ((float("nan"), F), (float("nan"), 1), (0.0, F), (-1.0, 1)):
        cases.add(f"imputer_float_{gone}_{some}", one("Imputer", x, TP.FLOAT, [("y", TP.FLOAT, ["N", F])], imputed_value_floats=weights(rng, some), replaced_value_float=gone), [x])
    z = table(rng, kind="int64")
    for some in (1, F):
        cases.add(f"imputer_int_{some}", one("Imputer", z, TP.INT64, [("y", TP.INT64, ["N", F])], imputed_value_int64s=[9, 8, 7, 6, 5, 4][:some], replaced_value_int64=-1), [z])
    parts = [table(rng), table(rng, kind="float")[:, :1], table(rng)[:, :2]]
    ins = [(f"x{i}", TP.FLOAT, ["N", p.shape[1]]) for i, p in enumerate(parts)]
    cases.add("feature_vectorizer", model([ml_node("FeatureVectorizer", [i[0] for i in ins], ["y"], inputdimensions=[F, 1, 2])], ins, [("y", TP.FLOAT, ["N", F + 3])], ml=1), parts)
    for kind in ("float", "double", "int64", "int32"):
        f, t = KINDS[kind]
        v = rng.integers(-1, 6, size=(50, 1)).astype(t)
        for shape in ((50, 1), (50,), (25, 2)):
            w = v.reshape(shape)
            cases.add(f"one_hot_{kind}_{'x'.join(map(str, shape))}", one("OneHotEncoder", w, f, [("y", TP.FLOAT, ["N"] + list(shape[1:]) + [4])], cats_int64s=[3, 0, 1, 5], zeros=1), [w])
    cases.add("one_hot_text", one("OneHotEncoder", names, TP.STRING, [("y", TP.FLOAT, ["N", F, 5])], cats_strings=WORDS[:5], zeros=1), [names])
    known = rng.integers(0, 3, size=(20, 2))
    cases.add("one_hot_all_known", one("OneHotEncoder", known, TP.INT64, [("y", TP.FLOAT, ["N", 2, 3])], cats_int64s=[0, 1, 2], zeros=0), [known])


def labels(cases, rng):
    names = rng.choice(np.array(WORDS, object), size=(40, 2))
    ints = rng.integers(-2, 8, size=(40, 2))
    floats = rng.choice(np.array([0.5, -1.0, np.nan, 2.25, 0.0, -0.0, np.inf], np.float32), size=(40, 2))
    sides = {"strings": (TP.STRING, names, WORDS[:5]), "int64s": (TP.INT64, ints, [0, 1, 2, 5, -2]), "floats": (TP.FLOAT, floats, [0.5, float("nan"), 2.25, 0.0, 7.0])}
    defaults = {"strings": dict(default_string="nowhere"), "int64s": dict(default_int64=-99), "floats": dict(default_float=-0.5)}
    for (a, (kind, x, keys)), (b, (to, _, values)) in itertools.product(sides.items(), sides.items()):
        for given in (True, False):
            known = [k if k == k else -3.0 for k in keys]  # before version 4 nothing is said of NaN as a key
            how = {"keys_" + a: known, "values_" + b: values, **(defaults[b] if given else {})}
            cases.add(f"label_encoder_{a}_{b}{'' if given else '_bare'}", one("LabelEncoder", x, kind, [("y", to, ["N", 2])], ml=2, **how), [x])
    cases.add("label_encoder_1_text", one("LabelEncoder", names, TP.STRING, [("y", TP.INT64, ["N", 2])], classes_strings=WORDS[:4], default_int64=-7), [names])
    cases.add("label_encoder_1_int", one("LabelEncoder", ints, TP.INT64, [("y", TP.STRING, ["N", 2])], classes_strings=WORDS[:4], default_string="?"), [ints])
    for a, b in (("DOUBLE", "INT64"), ("INT64", "DOUBLE"), ("INT64", "INT32"), ("STRING", "INT16"), ("STRING", "DOUBLE"), ("FLOAT", "STRING")):
        keys = {"DOUBLE": np.array([0.1, 2.25, -1.0]), "INT64": np.array([0, 2, 5]), "STRING": np.array(WORDS[:3], object), "FLOAT": np.array([0.5, np.nan, 2.25], np.float32)}[a]
        values = {"INT64": np.array([3, 2, 1]), "DOUBLE": np.array([0.1, 0.2, 0.3]), "INT32": np.array([3, 2, 1], np.int32), "INT16": np.array([3, 2, 1], np.int16), "STRING": np.array(["a", "b", "c"], object)}[b]
        x = rng.choice(np.append(keys, keys[:1]), size=(30, 1)) if a != "STRING" else names[:, :1]
        default = np.array(["d"], object) if b == "STRING" else np.array([9], values.dtype)
        cases.add(f"label_encoder_4_{a.lower()}_{b.lower()}", one("LabelEncoder", x, getattr(TP, a), [("y", getattr(TP, b), ["N", 1])], ml=4, keys_tensor=numpy_helper.from_array(keys),
                                                                  values_tensor=numpy_helper.from_array(values), default_tensor=numpy_helper.from_array(default)), [x])
    cases.add("category_mapper_text", one("CategoryMapper", names, TP.STRING, [("y", TP.INT64, ["N", 2])], cats_strings=WORDS[:4], cats_int64s=[5, 6, 7, 8], default_int64=-1), [names])
    cases.add("category_mapper_int", one("CategoryMapper", ints, TP.INT64, [("y", TP.STRING, ["N", 2])], cats_strings=WORDS[:4], cats_int64s=[0, 2, 5, 7], default_string="?"), [ints])
    p = np.abs(table(rng, edges=False))[:, :3]
    for word, how, kind in (("int", dict(classlabels_int64s=[4, 2, 9]), TP.INT64), ("text", dict(classlabels_strings=["c", "a", "b"]), TP.STRING)):
        node = ml_node("ZipMap", ["x"], ["z"], **how)
        out = helper.make_value_info("z", helper.make_sequence_type_proto(helper.make_map_type_proto(kind, helper.make_tensor_type_proto(TP.FLOAT, []))))
        graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TP.FLOAT, ["N", 3])], [out])
        cases.add("zipmap_" + word, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)], ir_version=8), [p])


def text(cases, rng):
    pool = np.array(["a", "b", "c", "d", "Ab", "c d"], object)
    x = rng.choice(pool, size=(30, 9))
    grams = ["a", "b", "c", "a", "b", "b", "c", "c", "d", "a", "b", "c"]  # 3 of one, 3 of two, 1 of three
    how = dict(pool_strings=grams, ngram_counts=[0, 3, 9], ngram_indexes=[0, 1, 2, 3, 4, 5, 6])
    for mode, skip, (low, high) in itertools.product(("TF", "IDF", "TFIDF"), (0, 2), ((1, 1), (1, 2), (2, 3), (3, 3))):
        node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], mode=mode, max_skip_count=skip, min_gram_length=low, max_gram_length=high, weights=weights(rng, 7), **how)
        cases.add(f"tfidf_{mode.lower()}_{skip}_{low}{high}", model([node], [("x", TP.STRING, ["N", 9])], [("y", TP.FLOAT, ["N", 7])]), [x])
    z = rng.integers(0, 6, size=(30, 9))
    for kind, flat in itertools.product(("int64", "int32"), (False, True)):
        node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], mode="TF", max_skip_count=1, min_gram_length=1, max_gram_length=2, pool_int64s=[2, 3, 5, 4, 5, 0, 1, 3, 3],
                                ngram_counts=[0, 3], ngram_indexes=[5, 0, 1, 2, 3, 4])
        v = (z[0] if flat else z).astype(KINDS[kind][1])
        cases.add(f"tfidf_{kind}{'_flat' if flat else ''}", model([node], [("x", KINDS[kind][0], ["N"] if flat else ["N", 9])], [("y", TP.FLOAT, [6] if flat else ["N", 6])]), [v])
    words = np.array(["The", "quick", "FOX", "of", "OF", "a b", ""], object)
    for change, sensitive in itertools.product(("NONE", "LOWER", "UPPER"), (0, 1)):
        node = helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action=change, is_case_sensitive=sensitive, stopwords=["of", "fox"], locale="C")
        cases.add(f"string_normalizer_{change.lower()}_{sensitive}", model([node], [("x", TP.STRING, ["N"])], [("y", TP.STRING, ["M"])]), [words])


def generate(cases, rng):
    linear(cases, rng)
    support_vectors(cases, rng)
    preparation(cases, rng)
    labels(cases, rng)
    text(cases, rng)
