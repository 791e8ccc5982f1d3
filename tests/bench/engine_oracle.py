"""Folders in the layout of ONNX's node tests, made from models that scikit-learn, XGBoost and LightGBM train here.

    python engine_oracle.py OUT && penstock models test OUT

The expected outputs are ONNX Runtime's; for tree models the library's own prediction is compared with them as well.
Needs: onnx onnxruntime numpy scikit-learn skl2onnx xgboost lightgbm onnxmltools.
"""
import os, sys, warnings
import numpy as np
import onnx, onnxruntime as ort
from onnx import numpy_helper, helper, TensorProto as TP
from skl2onnx import to_onnx, convert_sklearn
from skl2onnx.common.data_types import FloatTensorType, StringTensorType, Int64TensorType, DoubleTensorType
from sklearn import datasets, linear_model, svm, preprocessing, pipeline, compose, impute, neural_network, ensemble, tree, naive_bayes, neighbors, cluster, decomposition, feature_selection
warnings.filterwarnings("ignore")
out = sys.argv[1]
rng = np.random.default_rng(7)
own = {}


def write(name, model, inputs, tolerance=None):
    d = os.path.join(out, name)
    os.makedirs(os.path.join(d, "test_data_set_0"), exist_ok=True)
    onnx.save(model, os.path.join(d, "model.onnx"))
    opts = ort.SessionOptions()
    opts.log_severity_level = 3
    s = ort.InferenceSession(model.SerializeToString(), opts, providers=["CPUExecutionProvider"])
    feeds = {i.name: x for i, x in zip(s.get_inputs(), inputs)}
    outs = s.run(None, feeds)
    for i, x in enumerate(inputs):
        t = numpy_helper.from_array(x)
        open(f"{d}/test_data_set_0/input_{i}.pb", "wb").write(t.SerializeToString())
    for i, y in enumerate(outs):
        if isinstance(y, list) and y and isinstance(y[0], dict):
            y = np.array([list(r.values()) for r in y], np.float32)
        y = np.asarray(y)
        if y.dtype.kind in "US":
            y = y.astype(object)
        open(f"{d}/test_data_set_0/output_{i}.pb", "wb").write(numpy_helper.from_array(y).SerializeToString())
    open(f"{d}/data.json", "w").write('{"rtol": %g, "atol": %g}' % (tolerance or (1e-4, 1e-5)))
    return outs


X, y = datasets.make_classification(600, 12, n_informative=8, random_state=1)
X = X.astype(np.float32)
X3, y3 = datasets.make_classification(600, 12, n_informative=8, n_classes=4, random_state=2)
X3 = X3.astype(np.float32)
yr = (X @ rng.normal(size=12) + rng.normal(size=600) * .1).astype(np.float32)
T = X[:200]
ys = np.where(y == 1, "fraud", "fine")


def skl(name, m, Xt=T, tolerance=None, **kw):
    try:
        o = to_onnx(m, Xt[:1], **kw)
    except Exception as e:
        print("no converter:", name, str(e)[:100])
        return
    try:
        write(name, o, [Xt], tolerance)
    except Exception as e:
        print("not run:", name, str(e)[:160])


P = pipeline.make_pipeline
L = [
    ("logreg_bin", linear_model.LogisticRegression().fit(X, y)), ("logreg_str", linear_model.LogisticRegression().fit(X, ys)),
    ("logreg_multi", linear_model.LogisticRegression().fit(X3, y3)),
    ("scaler_logreg", P(preprocessing.StandardScaler(), linear_model.LogisticRegression()).fit(X, y)),
    ("minmax_ridge", P(preprocessing.MinMaxScaler(), linear_model.Ridge()).fit(X, yr)),
    ("maxabs_lasso", P(preprocessing.MaxAbsScaler(), linear_model.Lasso(alpha=.01)).fit(X, yr)),
    ("robust_en", P(preprocessing.RobustScaler(), linear_model.ElasticNet(alpha=.01)).fit(X, yr)),
    ("norm_l2_sgd", P(preprocessing.Normalizer(), linear_model.SGDClassifier(loss="log_loss", random_state=0)).fit(X, y)),
    ("norm_l1", P(preprocessing.Normalizer("l1"), linear_model.LinearRegression()).fit(X, yr)),
    ("norm_max", P(preprocessing.Normalizer("max"), linear_model.LinearRegression()).fit(X, yr)),
    ("binarizer", P(preprocessing.Binarizer(threshold=.2), linear_model.LinearRegression()).fit(X, yr)),
    ("poly", P(preprocessing.PolynomialFeatures(2), linear_model.LinearRegression()).fit(X[:, :4], yr)),
    ("perceptron", linear_model.Perceptron().fit(X, y)), ("ridge_cls", linear_model.RidgeClassifier().fit(X3, y3)),
    ("multi_out", linear_model.LinearRegression().fit(X, np.c_[yr, yr * 2])),
    ("mlp_cls", neural_network.MLPClassifier(hidden_layer_sizes=(20, 10), max_iter=60, random_state=0).fit(X, y)),
    ("mlp_cls3", neural_network.MLPClassifier(hidden_layer_sizes=(20, 10), activation="tanh", max_iter=60, random_state=0).fit(X3, y3)),
    ("mlp_reg", neural_network.MLPRegressor(hidden_layer_sizes=(16, 8, 16), activation="logistic", max_iter=60, random_state=0).fit(X, yr)),
    ("mlp_ae", P(preprocessing.StandardScaler(), neural_network.MLPRegressor(hidden_layer_sizes=(8, 4, 8), max_iter=60, random_state=0)).fit(X, X)),
    ("dt_cls", tree.DecisionTreeClassifier(max_depth=6, random_state=0).fit(X, y)), ("dt_reg", tree.DecisionTreeRegressor(max_depth=7, random_state=0).fit(X, yr)),
    ("rf_cls", ensemble.RandomForestClassifier(30, max_depth=8, random_state=0).fit(X3, y3)), ("rf_str", ensemble.RandomForestClassifier(20, random_state=0).fit(X, ys)),
    ("rf_reg", ensemble.RandomForestRegressor(30, max_depth=8, random_state=0).fit(X, yr)), ("et_cls", ensemble.ExtraTreesClassifier(30, max_depth=9, random_state=0).fit(X, y)),
    ("gb_cls", ensemble.GradientBoostingClassifier(n_estimators=40, random_state=0).fit(X, y)), ("gb_cls3", ensemble.GradientBoostingClassifier(n_estimators=20, random_state=0).fit(X3, y3)),
    ("gb_reg", ensemble.GradientBoostingRegressor(n_estimators=40, random_state=0).fit(X, yr)),
    ("hgb_cls", ensemble.HistGradientBoostingClassifier(max_iter=30, random_state=0).fit(X, y)), ("hgb_reg", ensemble.HistGradientBoostingRegressor(max_iter=30, random_state=0).fit(X, yr)),
    ("ada", ensemble.AdaBoostClassifier(n_estimators=10, random_state=0).fit(X, y)), ("bagging", ensemble.BaggingClassifier(n_estimators=8, random_state=0).fit(X, y)),
    ("iforest", ensemble.IsolationForest(n_estimators=30, random_state=0).fit(X)),
    ("svc_rbf", svm.SVC(probability=True, random_state=0).fit(X[:200], y[:200])), ("svc_multi", svm.SVC(probability=True, random_state=0).fit(X3[:200], y3[:200])),
    ("svc_poly_noproba", svm.SVC(kernel="poly", random_state=0).fit(X[:200], y[:200])), ("svc_multi_noproba", svm.SVC(random_state=0).fit(X3[:200], y3[:200])),
    ("svr_rbf", svm.SVR().fit(X[:200], yr[:200])), ("svr_linear", svm.SVR(kernel="linear").fit(X[:200], yr[:200])), ("nusvr_sig", svm.NuSVR(kernel="sigmoid").fit(X[:200], yr[:200])),
    ("ocsvm", svm.OneClassSVM().fit(X[:200])), ("linearsvc", svm.LinearSVC().fit(X, y)), ("linearsvr", svm.LinearSVR().fit(X, yr)),
    ("gnb", naive_bayes.GaussianNB().fit(X, y)), ("bnb", naive_bayes.BernoulliNB().fit(X, y)), ("kmeans", cluster.KMeans(5, random_state=0).fit(X)),
    ("pca", decomposition.PCA(4).fit(X)), ("svd", decomposition.TruncatedSVD(4, random_state=0).fit(X)), ("knn", neighbors.KNeighborsClassifier(5).fit(X, y)),
    ("knn_reg", neighbors.KNeighborsRegressor(5).fit(X, yr)), ("kbins", preprocessing.KBinsDiscretizer(5, encode="ordinal").fit(X)),
    ("quantile", preprocessing.QuantileTransformer(n_quantiles=20).fit(X)), ("power", preprocessing.PowerTransformer().fit(X)),
    ("selectk", P(feature_selection.SelectKBest(k=4), linear_model.LogisticRegression()).fit(X, y)),
    ("voting", ensemble.VotingClassifier([("a", linear_model.LogisticRegression()), ("b", tree.DecisionTreeClassifier(max_depth=3))], voting="soft").fit(X, y)),
    ("stacking", ensemble.StackingRegressor([("a", linear_model.Ridge()), ("b", tree.DecisionTreeRegressor(max_depth=3))]).fit(X, yr)),
]
for n, m in L:
    skl("skl_" + n, m, T[:, :4] if n == "poly" else T, (2e-3, 1e-4) if n.startswith(("svc", "svr", "knn", "kmeans", "power")) else None)
    if n in ("logreg_bin", "rf_cls", "gb_cls"):
        skl("skl_" + n + "_nozip", m, options={"zipmap": False})
Xm = X.copy()
Xm[rng.random(Xm.shape) < .1] = np.nan
skl("skl_imputer", P(impute.SimpleImputer(strategy="mean"), linear_model.LogisticRegression()).fit(Xm, y), Xm[:200])
skl("skl_hgb_nan", ensemble.HistGradientBoostingClassifier(max_iter=30, random_state=0).fit(Xm, y), Xm[:200])
# strings and integers beside numbers
import pandas as pd
df = pd.DataFrame({"city": rng.choice(["Oslo", "Bern", "Rome"], 300), "kind": rng.integers(0, 4, 300), "amount": rng.normal(size=300).astype(np.float32)})
ct = compose.ColumnTransformer([("c", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["city", "kind"]), ("n", preprocessing.StandardScaler(), ["amount"])])
pl = P(ct, linear_model.LogisticRegression()).fit(df, y[:300])
o = convert_sklearn(pl, "mixed", [("city", StringTensorType([None, 1])), ("kind", Int64TensorType([None, 1])), ("amount", FloatTensorType([None, 1]))])
write("skl_mixed_columns", o, [np.append(df.city.values[:50], "Paris").astype(object).reshape(-1, 1), np.append(df.kind.values[:50], 9).astype(np.int64).reshape(-1, 1), np.append(df.amount.values[:50], 0).astype(np.float32).reshape(-1, 1)])
oe = P(compose.ColumnTransformer([("c", preprocessing.OrdinalEncoder(), ["city"])]), tree.DecisionTreeClassifier()).fit(df, y[:300])
o = convert_sklearn(oe, "ordinal", [("city", StringTensorType([None, 1])), ("kind", Int64TensorType([None, 1])), ("amount", FloatTensorType([None, 1]))])
write("skl_ordinal", o, [df.city.values[:50].astype(object).reshape(-1, 1)] + ([df.kind.values[:50].astype(np.int64).reshape(-1, 1), df.amount.values[:50].reshape(-1, 1)] if len(o.graph.input) > 1 else []))

# boosted trees of the libraries themselves
import xgboost as xgb, lightgbm as lgb
from onnxmltools import convert_xgboost, convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType as F
for name, m, data, lab in [("bin", xgb.XGBClassifier(n_estimators=60, max_depth=6), Xm, y), ("multi", xgb.XGBClassifier(n_estimators=20, max_depth=5), X3, y3), ("reg", xgb.XGBRegressor(n_estimators=60, max_depth=6), Xm, yr),
                           ("poisson", xgb.XGBRegressor(n_estimators=20, objective="count:poisson"), X, np.abs(yr).round()), ("rf", xgb.XGBRFClassifier(n_estimators=20), X, y), ("deep", xgb.XGBRegressor(n_estimators=30, max_depth=12), X, yr)]:
    try:
        m.fit(data, lab)
        outs = write("xgb_" + name, convert_xgboost(m, initial_types=[("x", F([None, 12]))]), [data[:200]])
        want = m.predict_proba(data[:200]) if hasattr(m, "predict_proba") else m.predict(data[:200])
        got = outs[-1] if not isinstance(outs[-1], list) else np.array([list(r.values()) for r in outs[-1]])
        print("xgb", name, "ORT vs library", float(np.abs(np.asarray(got).reshape(want.shape) - want).max()))
    except Exception as e:
        print("not run: xgb", name, str(e)[:160])
for name, m, data, lab in [("bin", lgb.LGBMClassifier(n_estimators=60, verbose=-1), Xm, y), ("multi", lgb.LGBMClassifier(n_estimators=20, verbose=-1), X3, y3), ("reg", lgb.LGBMRegressor(n_estimators=60, verbose=-1), X, yr),
                           ("cat", lgb.LGBMRegressor(n_estimators=30, verbose=-1), np.c_[rng.integers(0, 12, 600), X[:, 1:]].astype(np.float32), yr)]:
    try:
        m.fit(data, lab, categorical_feature=[0]) if name == "cat" else m.fit(data, lab)
        outs = write("lgb_" + name, convert_lightgbm(m, initial_types=[("x", F([None, 12]))]), [data[:200]])
        want = m.predict_proba(data[:200]) if hasattr(m, "predict_proba") else m.predict(data[:200])
        got = outs[-1] if not isinstance(outs[-1], list) else np.array([list(r.values()) for r in outs[-1]])
        print("lgb", name, "ORT vs library", float(np.abs(np.asarray(got).reshape(want.shape) - want).max()))
    except Exception as e:
        print("not run: lgb", name, str(e)[:160])

# networks as exporters of PyTorch and Keras write them
def init(a, name):
    return numpy_helper.from_array(np.asarray(a), name)


def graph(name, nodes, ins, outs, inits, opset=17):
    return helper.make_model(helper.make_graph(nodes, name, ins, outs, inits), opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


N = helper.make_node
w = lambda *s: rng.normal(size=s).astype(np.float32) * .3
vi = helper.make_tensor_value_info
x = rng.normal(size=(37, 30)).astype(np.float32)
m = graph("torch_ae", [N("Gemm", ["x", "w0", "b0"], ["h0"], transB=1), N("Relu", ["h0"], ["r0"]), N("Gemm", ["r0", "w1", "b1"], ["z"], transB=1), N("LeakyRelu", ["z"], ["r1"], alpha=.2),
          N("Gemm", ["r1", "w2", "b2"], ["xhat"], transB=1), N("Sub", ["x", "xhat"], ["d"]), N("Mul", ["d", "d"], ["d2"]), N("ReduceMean", ["d2"], ["score"], axes=[1], keepdims=0)],
          [vi("x", TP.FLOAT, ["N", 30])], [vi("xhat", TP.FLOAT, ["N", 30]), vi("score", TP.FLOAT, ["N"]), vi("z", TP.FLOAT, ["N", 4])],
          [init(w(16, 30), "w0"), init(w(16), "b0"), init(w(4, 16), "w1"), init(w(4), "b1"), init(w(30, 4), "w2"), init(w(30), "b2")])
write("net_torch_ae", m, [x])
m = graph("keras", [N("Constant", [], ["mean"], value=init(w(30), "c")), N("Sub", ["x", "mean"], ["x1"]), N("MatMul", ["x1", "k0"], ["h0"]), N("Add", ["h0", "b0"], ["h1"]), N("Elu", ["h1"], ["h2"]),
          N("BatchNormalization", ["h2", "s", "t", "m", "v"], ["h3"]), N("Dropout", ["h3"], ["h4"]), N("MatMul", ["h4", "k1"], ["h5"]), N("Add", ["b1", "h5"], ["h6"]), N("Softmax", ["h6"], ["p"]),
          N("ArgMax", ["p"], ["label"], axis=1, keepdims=0), N("Shape", ["x"], ["sh"]), N("Gather", ["sh", "zero"], ["n"])],
          [vi("x", TP.FLOAT, [None, 30])], [vi("p", TP.FLOAT, [None, 5]), vi("label", TP.INT64, [None]), vi("n", TP.INT64, [])],
          [init(w(30, 24), "k0"), init(w(24), "b0"), init(w(24, 5), "k1"), init(w(5), "b1"), init(np.abs(w(24)) + 1, "s"), init(w(24), "t"), init(w(24), "m"), init(np.abs(w(24)) + .5, "v"), init(np.int64(0), "zero")])
write("net_keras", m, [x])
m = graph("scalar", [N("Flatten", ["x"], ["f"]), N("MatMul", ["f", "w"], ["h"]), N("Tanh", ["h"], ["t"]), N("ReduceSum", ["t"], ["s"], keepdims=0), N("Reshape", ["t", "shape"], ["r"])],
          [vi("x", TP.FLOAT, ["B", "T", 3])], [vi("s", TP.FLOAT, []), vi("r", TP.FLOAT, ["B", 2, 4])], [init(w(30, 8), "w"), init(np.array([0, 2, -1]), "shape")], 13)
write("net_scalar_3d", m, [rng.normal(size=(6, 10, 3)).astype(np.float32)])
m = graph("vae", [N("Gemm", ["x", "w", "b"], ["h"]), N("Sigmoid", ["h"], ["a"]), N("Split", ["a"], ["mu", "lv"], axis=1), N("Exp", ["lv"], ["e"]), N("Add", ["mu", "e"], ["y"]), N("Concat", ["mu", "y"], ["c"], axis=-1)],
          [vi("x", TP.FLOAT, ["N", 30])], [vi("y", TP.FLOAT, ["N", 4]), vi("c", TP.FLOAT, ["N", 8])], [init(w(30, 8), "w"), init(w(8), "b")], 13)
write("net_vae", m, [x])
m = graph("matmul3d", [N("MatMul", ["x", "w"], ["h"]), N("Add", ["h", "b"], ["h1"]), N("Relu", ["h1"], ["h2"]), N("MatMul", ["h2", "w2"], ["y"])], [vi("x", TP.FLOAT, ["N", "T", 30])], [vi("y", TP.FLOAT, ["N", "T", 2])],
          [init(w(30, 8), "w"), init(w(8), "b"), init(w(8, 2), "w2")], 13)
write("net_matmul_3d", m, [rng.normal(size=(3, 5, 30)).astype(np.float32)])
print(len(os.listdir(out)), "folders in", out)
