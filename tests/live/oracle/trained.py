"""What scikit-learn, XGBoost and LightGBM train, through skl2onnx and onnxmltools: about a hundred estimators and pipelines of mixed columns."""
import warnings
import numpy as np
import onnx
import lightgbm as lgb
import xgboost as xgb
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType as Floats
from skl2onnx import convert_sklearn, to_onnx
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType
from sklearn import (calibration, cluster, compose, cross_decomposition, datasets, decomposition, discriminant_analysis, ensemble, feature_extraction, feature_selection, gaussian_process, impute,
                     isotonic, kernel_approximation, linear_model, mixture, multiclass, multioutput, naive_bayes, neighbors, neural_network, pipeline, preprocessing, random_projection, svm, tree)

warnings.filterwarnings("ignore")
LOOSE = (2e-3, 1e-4)  # kernels, distances and powers: ONNX Runtime itself is that far from the double precision of the library
P = pipeline.make_pipeline


_make_attribute = onnx.helper.make_attribute


def make_attribute(key, value, *rest, **more):
    """skl2onnx gives NumPy's unsigned numbers of histogram boosting, which onnx refuses."""
    if isinstance(value, list) and any(isinstance(v, np.unsignedinteger) for v in value):
        value = [int(v) for v in value]
    return _make_attribute(key, value, *rest, **more)


onnx.helper.make_attribute = make_attribute


def any_locale(m):
    """StringNormalizer asks for en_US, which a bare computer does not have."""
    for node in m.graph.node:
        if node.op_type == "StringNormalizer":
            kept = [a for a in node.attribute if a.name != "locale"]
            del node.attribute[:]
            node.attribute.extend(kept + [_make_attribute("locale", "C")])
    return m


def own_prediction(m, x):
    """(which output, what the library says of it)"""
    if hasattr(m, "predict_proba"):
        return 1, np.asarray(m.predict_proba(x), np.float32)
    if hasattr(m, "transform") and not hasattr(m, "predict"):
        return 0, np.asarray(m.transform(x), np.float32)
    if getattr(m, "_estimator_type", "") == "regressor" or m.__class__.__name__.endswith(("Regressor", "Regression", "Regr", "SVR", "Ridge", "Lasso")):
        y = np.asarray(m.predict(x), np.float32)
        return 0, y.reshape(len(x), -1)
    return None, None


class Trained:
    def __init__(self, cases):
        self.cases, self.library = cases, []  # library: (name, greatest difference of ONNX Runtime to the library)

    def beside_library(self, name, onnx_model, inputs, outputs, which, want, tolerance):
        """Where the converter keeps the library's numbers, we must give them too."""
        if which is None or outputs is None or which >= len(outputs) or isinstance(outputs[which], list) or outputs[which].shape != want.shape or outputs[which].dtype.kind != "f":
            return
        near = np.allclose(outputs[which], want, rtol=tolerance[0], atol=tolerance[1])
        self.library.append((name, float(np.abs(outputs[which] - want).max()), near))
        if near:
            own = [None] * len(outputs)
            own[which] = want.astype(outputs[which].dtype)
            self.cases.add_own(name, onnx_model, inputs, own, tolerance)

    def skl(self, name, m, x, tolerance=(1e-4, 1e-5), **how):
        try:
            converted = to_onnx(m, x[:1], target_opset={"": 18, "ai.onnx.ml": 3}, **how)
        except Exception as e:
            self.cases.no_converter.append((name, str(e).split("\n")[0][:120]))
            return
        outputs = self.cases.add("skl_" + name, converted, [x], tolerance)
        try:
            which, want = own_prediction(m, x)
        except AttributeError:
            return  # a predict_proba that this setting does not have
        self.beside_library("skl_" + name, converted, [x], outputs, which, want, LOOSE if tolerance == LOOSE else (1e-3, 1e-4))


def tables(rng):
    t = {}
    x, y = datasets.make_classification(500, 12, n_informative=8, n_redundant=0, random_state=1)
    x4, y4 = datasets.make_classification(500, 12, n_informative=8, n_redundant=0, n_classes=4, random_state=2)
    t["x"], t["y"], t["x4"], t["y4"] = x.astype(np.float32), y, x4.astype(np.float32), y4
    t["yr"] = (t["x"] @ rng.normal(size=12) + rng.normal(size=500) * .1).astype(np.float32)
    t["ys"] = np.where(y == 1, "fraud", "fine")
    holes = t["x"].copy()
    holes[rng.random(holes.shape) < .1] = np.nan
    t["holes"] = holes
    return t


def linear(t):
    x, y, x4, y4, yr, L = t["x"], t["y"], t["x4"], t["y4"], t["yr"], linear_model
    count = np.abs(yr).round()
    return [
        ("logistic", L.LogisticRegression().fit(x, y)), ("logistic_text", L.LogisticRegression().fit(x, t["ys"])), ("logistic_multi", L.LogisticRegression().fit(x4, y4)),
        ("logistic_cv", L.LogisticRegressionCV(Cs=3, cv=2, max_iter=50).fit(x, y)), ("sgd_log", L.SGDClassifier(loss="log_loss", random_state=0).fit(x, y)),
        ("sgd_hinge", L.SGDClassifier(random_state=0).fit(x4, y4)), ("sgd_huber", L.SGDClassifier(loss="modified_huber", random_state=0).fit(x4, y4)), ("sgd_oneclass", L.SGDOneClassSVM(random_state=0).fit(x)),
        ("perceptron", L.Perceptron().fit(x, y)), ("ridge_cls", L.RidgeClassifier().fit(x4, y4)), ("ridge_cls_cv", L.RidgeClassifierCV().fit(x, y)),
        ("linear", L.LinearRegression().fit(x, yr)), ("linear_two", L.LinearRegression().fit(x, np.c_[yr, yr * 2])), ("ridge", L.Ridge().fit(x, yr)), ("ridge_cv", L.RidgeCV().fit(x, yr)),
        ("lasso", L.Lasso(alpha=.01).fit(x, yr)), ("lasso_lars", L.LassoLars(alpha=.01).fit(x, yr)), ("lars", L.Lars().fit(x, yr)), ("elastic", L.ElasticNet(alpha=.01).fit(x, yr)),
        ("bayes_ridge", L.BayesianRidge().fit(x, yr)), ("ard", L.ARDRegression().fit(x, yr)), ("huber", L.HuberRegressor(max_iter=300).fit(x, yr)), ("theil", L.TheilSenRegressor(random_state=0, max_subpopulation=100).fit(x[:60], yr[:60])),
        ("ransac", L.RANSACRegressor(random_state=0).fit(x, yr)), ("omp", L.OrthogonalMatchingPursuit().fit(x, yr)), ("quantile_reg", L.QuantileRegressor(alpha=.01).fit(x[:100], yr[:100])),
        ("poisson", L.PoissonRegressor().fit(x, count)), ("gamma", L.GammaRegressor().fit(x, count + 1)), ("tweedie", L.TweedieRegressor(power=1.5, max_iter=300).fit(x, count)),
        ("sgd_reg", L.SGDRegressor(random_state=0).fit(x, yr)), ("linear_svc", svm.LinearSVC().fit(x, y)),
        ("linear_svc_multi", svm.LinearSVC().fit(x4, y4)), ("linear_svr", svm.LinearSVR().fit(x, yr)), ("lda", discriminant_analysis.LinearDiscriminantAnalysis().fit(x4, y4)),
        ("qda", discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=.1).fit(x4, y4)), ("pls", cross_decomposition.PLSRegression(3).fit(x, yr)),
    ]


def trees(t):
    x, y, x4, y4, yr, E, T = t["x"], t["y"], t["x4"], t["y4"], t["yr"], ensemble, tree
    small = dict(n_estimators=12, random_state=0)
    return [
        ("tree_cls", T.DecisionTreeClassifier(max_depth=6, random_state=0).fit(x, y)), ("tree_reg", T.DecisionTreeRegressor(max_depth=7, random_state=0).fit(x, yr)),
        ("extra_tree", T.ExtraTreeClassifier(max_depth=6, random_state=0).fit(x4, y4)), ("extra_tree_reg", T.ExtraTreeRegressor(max_depth=6, random_state=0).fit(x, np.c_[yr, -yr])),
        ("forest", E.RandomForestClassifier(max_depth=8, **small).fit(x4, y4)), ("forest_text", E.RandomForestClassifier(**small).fit(x, t["ys"])), ("forest_reg", E.RandomForestRegressor(max_depth=8, **small).fit(x, yr)),
        ("extra_trees", E.ExtraTreesClassifier(max_depth=9, **small).fit(x, y)), ("extra_trees_reg", E.ExtraTreesRegressor(max_depth=9, **small).fit(x, yr)),
        ("boosting", E.GradientBoostingClassifier(**small).fit(x, y)), ("boosting_multi", E.GradientBoostingClassifier(**small).fit(x4, y4)), ("boosting_reg", E.GradientBoostingRegressor(**small).fit(x, yr)),
        ("boosting_huber", E.GradientBoostingRegressor(loss="huber", **small).fit(x, yr)),
        ("hist", E.HistGradientBoostingClassifier(max_iter=15, random_state=0).fit(t["holes"], y)), ("hist_multi", E.HistGradientBoostingClassifier(max_iter=8, random_state=0).fit(x4, y4)),
        ("hist_reg", E.HistGradientBoostingRegressor(max_iter=15, random_state=0).fit(t["holes"], yr)),
        ("ada", E.AdaBoostClassifier(n_estimators=6, random_state=0).fit(x, y)), ("ada_reg", E.AdaBoostRegressor(n_estimators=6, random_state=0).fit(x, yr)),
        ("bagging", E.BaggingClassifier(n_estimators=5, random_state=0).fit(x, y)), ("bagging_reg", E.BaggingRegressor(n_estimators=5, random_state=0).fit(x, yr)),
        ("isolation", E.IsolationForest(**small).fit(x)),
        ("voting_soft", E.VotingClassifier([("a", linear_model.LogisticRegression()), ("b", T.DecisionTreeClassifier(max_depth=3))], voting="soft", flatten_transform=False).fit(x, y)),
        ("voting_hard", E.VotingClassifier([("a", linear_model.LogisticRegression()), ("b", T.DecisionTreeClassifier(max_depth=3)), ("c", naive_bayes.GaussianNB())], flatten_transform=False).fit(x, y)),
        ("voting_reg", E.VotingRegressor([("a", linear_model.Ridge()), ("b", T.DecisionTreeRegressor(max_depth=3))]).fit(x, yr)),
        ("stacking", E.StackingClassifier([("a", linear_model.LogisticRegression()), ("b", T.DecisionTreeClassifier(max_depth=3))], cv=2).fit(x, y)),
        ("stacking_reg", E.StackingRegressor([("a", linear_model.Ridge()), ("b", T.DecisionTreeRegressor(max_depth=3))], cv=2).fit(x, yr)),
        ("calibrated", calibration.CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=2).fit(x, y)), ("calibrated_iso", calibration.CalibratedClassifierCV(naive_bayes.GaussianNB(), method="isotonic", cv=2).fit(x, y)),
        ("one_vs_rest", multiclass.OneVsRestClassifier(linear_model.LogisticRegression()).fit(x4, y4)), ("one_vs_one", multiclass.OneVsOneClassifier(linear_model.LogisticRegression()).fit(x4, y4)),
        ("multi_cls", multioutput.MultiOutputClassifier(linear_model.LogisticRegression()).fit(x, np.c_[y, 1 - y])), ("multi_reg", multioutput.MultiOutputRegressor(linear_model.Ridge()).fit(x, np.c_[yr, -yr])),
    ]


def others(t):
    """Kernels, distances, nets, densities."""
    x, y, x4, y4, yr, n = t["x"], t["y"], t["x4"], t["y4"], t["yr"], 160
    net = dict(max_iter=40, random_state=0)
    loose = [
        ("svc", svm.SVC(probability=True, random_state=0).fit(x[:n], y[:n])), ("svc_multi", svm.SVC(probability=True, random_state=0).fit(x4[:n], y4[:n])), ("svc_poly", svm.SVC(kernel="poly").fit(x[:n], y[:n])),
        ("svc_votes", svm.SVC().fit(x4[:n], y4[:n])), ("nu_svc", svm.NuSVC(probability=True, random_state=0).fit(x[:n], y[:n])), ("svr", svm.SVR().fit(x[:n], yr[:n])), ("svr_linear", svm.SVR(kernel="linear").fit(x[:n], yr[:n])),
        ("nu_svr_sigmoid", svm.NuSVR(kernel="sigmoid").fit(x[:n], yr[:n])), ("one_class_svm", svm.OneClassSVM().fit(x[:n])),
        ("knn", neighbors.KNeighborsClassifier(5).fit(x[:n], y[:n])), ("knn_reg", neighbors.KNeighborsRegressor(4).fit(x[:n], yr[:n])), ("knn_distance", neighbors.KNeighborsClassifier(5, weights="distance").fit(x[:n], y[:n])),
        ("knn_manhattan", neighbors.KNeighborsRegressor(3, p=1).fit(x[:n], yr[:n])), ("nca", neighbors.NeighborhoodComponentsAnalysis(3, max_iter=10, random_state=0).fit(x[:n], y[:n])),
        ("lof", neighbors.LocalOutlierFactor(novelty=True).fit(x[:n])), ("kmeans", cluster.KMeans(5, random_state=0, n_init=1).fit(x)), ("mini_kmeans", cluster.MiniBatchKMeans(5, random_state=0, n_init=1).fit(x)),
        ("mixture", mixture.GaussianMixture(3, random_state=0).fit(x)), ("mixture_diag", mixture.GaussianMixture(3, covariance_type="diag", random_state=0).fit(x)), ("bayes_mixture", mixture.BayesianGaussianMixture(n_components=3, random_state=0).fit(x)),
        ("gp_cls", gaussian_process.GaussianProcessClassifier().fit(x[:60], y[:60])),
    ]
    exact = [
        ("mlp", neural_network.MLPClassifier(hidden_layer_sizes=(20, 10), **net).fit(x, y)), ("mlp_multi", neural_network.MLPClassifier(hidden_layer_sizes=(20, 10), activation="tanh", **net).fit(x4, y4)),
        ("mlp_reg", neural_network.MLPRegressor(hidden_layer_sizes=(16, 8, 16), activation="logistic", **net).fit(x, yr)), ("mlp_identity", neural_network.MLPRegressor(hidden_layer_sizes=(6,), activation="identity", **net).fit(x, yr)),
        ("autoencoder", P(preprocessing.StandardScaler(), neural_network.MLPRegressor(hidden_layer_sizes=(8, 4, 8), **net)).fit(x, x)),
        ("gaussian_nb", naive_bayes.GaussianNB().fit(x4, y4)), ("bernoulli_nb", naive_bayes.BernoulliNB().fit(x, y)), ("multinomial_nb", P(preprocessing.MinMaxScaler(), naive_bayes.MultinomialNB()).fit(x, y)),
        ("complement_nb", P(preprocessing.MinMaxScaler(), naive_bayes.ComplementNB()).fit(x4, y4)),
    ]
    return [(a, m, LOOSE) for a, m in loose] + [(a, m, (1e-4, 1e-5)) for a, m in exact]


def preparation(t):
    x, y, yr, S = t["x"], t["y"], t["yr"], preprocessing
    log, line = linear_model.LogisticRegression, linear_model.LinearRegression
    return [
        ("standard", P(S.StandardScaler(), log()).fit(x, y)), ("minmax", P(S.MinMaxScaler(), linear_model.Ridge()).fit(x, yr)), ("minmax_clip", S.MinMaxScaler(clip=True).fit(x[:100])), ("maxabs", S.MaxAbsScaler().fit(x)),
        ("robust", S.RobustScaler().fit(x)), ("norm_l1", S.Normalizer("l1").fit(x)), ("norm_l2", S.Normalizer().fit(x)), ("norm_max", S.Normalizer("max").fit(x)), ("binarizer", S.Binarizer(threshold=.2).fit(x)),
        ("polynomial", P(S.PolynomialFeatures(2), line()).fit(x, yr)), ("interactions", S.PolynomialFeatures(3, interaction_only=True).fit(x)), ("kbins", S.KBinsDiscretizer(5, encode="ordinal", quantile_method="averaged_inverted_cdf").fit(x)),
        ("kbins_hot", S.KBinsDiscretizer(4, encode="onehot-dense", strategy="uniform").fit(x)), ("quantiles", S.QuantileTransformer(n_quantiles=20).fit(x)), ("power", S.PowerTransformer().fit(x)),
        ("splines", S.SplineTransformer(4).fit(x)), ("function", S.FunctionTransformer().fit(x)), ("pca", decomposition.PCA(4).fit(x)), ("pca_white", decomposition.PCA(4, whiten=True).fit(x)), ("svd", decomposition.TruncatedSVD(4, random_state=0).fit(x)),
        ("kernel_pca", decomposition.KernelPCA(3, kernel="rbf", random_state=0).fit(x[:80])), ("incremental_pca", decomposition.IncrementalPCA(4).fit(x)), ("nystroem", kernel_approximation.Nystroem(n_components=20, random_state=0).fit(x)),
        ("random_gauss", random_projection.GaussianRandomProjection(5, random_state=0).fit(x)), ("select_k", P(feature_selection.SelectKBest(k=4), log()).fit(x, y)), ("variance", feature_selection.VarianceThreshold(.5).fit(x)),
        ("select_model", feature_selection.SelectFromModel(linear_model.Lasso(alpha=.05)).fit(x, yr)), ("rfe", feature_selection.RFE(line(), n_features_to_select=5).fit(x, yr)),
        ("impute_mean", P(impute.SimpleImputer(), log()).fit(t["holes"], y)), ("impute_median", impute.SimpleImputer(strategy="median").fit(t["holes"])), ("impute_knn", impute.KNNImputer(n_neighbors=3).fit(t["holes"][:80])),
        ("missing_indicator", impute.MissingIndicator(features="all").fit(t["holes"])),
        ("target", compose.TransformedTargetRegressor(linear_model.Ridge(), transformer=S.StandardScaler()).fit(x, yr)), ("union", pipeline.FeatureUnion([("a", S.StandardScaler()), ("b", decomposition.PCA(3))]).fit(x)),
    ]


def mixed(made, t, rng):
    """Columns of text, of integers with unknown categories, of numbers with holes: as people send them."""
    n = 300
    city, kind = rng.choice(np.array(["Oslo", "Bern", "Rome"], object), n), rng.integers(0, 4, n)
    amount = t["holes"][:n, :2].astype(np.float32)
    table = np.empty((n, 4), object)
    table[:, 0], table[:, 1], table[:, 2:] = city, kind, amount
    y, yr = t["y"][:n], t["yr"][:n]
    types = [("city", StringTensorType([None, 1])), ("kind", Int64TensorType([None, 1])), ("amount", FloatTensorType([None, 2]))]
    feeds = [np.append(city[:60], ["Paris", ""]).astype(object).reshape(-1, 1), np.append(kind[:60], [9, -1]).reshape(-1, 1), np.r_[amount[:60], np.float32([[0, np.nan], [np.nan, 5]])]]
    seen = np.empty((62, 4), object)
    seen[:, :1], seen[:, 1:2], seen[:, 2:] = feeds
    s = dict(random_state=0)
    for name, last, target in (
            ("logistic", linear_model.LogisticRegression(), y), ("forest", ensemble.RandomForestClassifier(8, max_depth=6, **s), y), ("hist", ensemble.HistGradientBoostingClassifier(max_iter=8, **s), y),
            ("boosting_reg", ensemble.GradientBoostingRegressor(n_estimators=8, **s), yr), ("isolation", ensemble.IsolationForest(n_estimators=8, **s), None), ("kmeans", cluster.KMeans(n_clusters=4, n_init=1, **s), None),
            ("mlp", neural_network.MLPClassifier(hidden_layer_sizes=(8,), max_iter=30, **s), y), ("gaussian_nb", naive_bayes.GaussianNB(), y), ("knn", neighbors.KNeighborsClassifier(3), y), ("svc", svm.SVC(), y),
            ("pca", decomposition.PCA(3), None), ("ridge", linear_model.Ridge(), yr)):
        columns = compose.ColumnTransformer([("c", preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False), [0, 1]),
                                             ("n", P(impute.SimpleImputer(strategy="median"), preprocessing.StandardScaler()), [2, 3])])
        m = P(columns, last).fit(table, target)
        try:
            converted = convert_sklearn(m, name, types, target_opset={"": 18, "ai.onnx.ml": 3})
        except Exception as e:
            made.cases.no_converter.append(("mixed_" + name, str(e).split("\n")[0][:120]))
            continue
        tolerance = LOOSE if name in ("kmeans", "knn", "svc") else (1e-4, 1e-5)
        outputs = made.cases.add("mixed_" + name, converted, feeds, tolerance)
        which, want = own_prediction(m, seen)
        made.beside_library("mixed_" + name, converted, feeds, outputs, which, want, (1e-3, 1e-4))
    ordinal = P(compose.ColumnTransformer([("c", preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), [0, 1]), ("n", "passthrough", [2, 3])]), tree.DecisionTreeClassifier(max_depth=5, **s))
    table[:, 2:] = np.nan_to_num(amount)
    made.cases.add("mixed_ordinal", convert_sklearn(ordinal.fit(table, y), "ordinal", types), feeds[:2] + [np.nan_to_num(feeds[2])])
    lines = np.array(["the card was refused", "The CARD, again", "refund please", "please refund the card", "", "hello hello world", "card card card"], object)
    for name, v in (("words", feature_extraction.text.CountVectorizer()), ("tfidf", feature_extraction.text.TfidfVectorizer()), ("bigrams", feature_extraction.text.TfidfVectorizer(ngram_range=(1, 2))), ("chars", feature_extraction.text.CountVectorizer(analyzer="char", ngram_range=(1, 2)))):
        m = P(v, linear_model.LogisticRegression()).fit(lines, [1, 1, 0, 0, 0, 1, 1])
        try:
            converted = any_locale(convert_sklearn(m, name, [("x", StringTensorType([None, 1]))]))
            made.cases.add("text_" + name, converted, [lines.reshape(-1, 1)])
        except Exception as e:
            made.cases.no_converter.append(("text_" + name, str(e).split("\n")[0][:120]))
    for name, m in (("label_binarizer", preprocessing.LabelBinarizer()), ("label_encoder", preprocessing.LabelEncoder())):
        for word, values, kind_of in (("text", city, StringTensorType), ("int", kind, Int64TensorType)):
            made.cases.add(f"skl_{name}_{word}", convert_sklearn(m.fit(values), name, [("x", kind_of([None]))]), [values[:50]])


def boosted(made, t):
    """The libraries of boosted trees: their own predictions decide, ONNX Runtime stands beside."""
    x, y, x4, y4, yr, holes = (t[k] for k in ("x", "y", "x4", "y4", "yr", "holes"))
    count = np.abs(yr).round()
    coded = np.c_[np.random.default_rng(5).integers(0, 12, 500), x[:, 1:]].astype(np.float32)
    X, G = xgb, dict(verbose=-1, n_jobs=1)
    for name, m, data, target, fit in (
            ("xgb_binary", X.XGBClassifier(n_estimators=40, max_depth=6, n_jobs=1), holes, y, {}), ("xgb_multi", X.XGBClassifier(n_estimators=15, max_depth=5, n_jobs=1), x4, y4, {}),
            ("xgb_reg", X.XGBRegressor(n_estimators=40, max_depth=6, n_jobs=1), holes, yr, {}), ("xgb_poisson", X.XGBRegressor(n_estimators=15, objective="count:poisson", n_jobs=1), x, count, {}),
            ("xgb_gamma", X.XGBRegressor(n_estimators=15, objective="reg:gamma", n_jobs=1), x, count + 1, {}), ("xgb_forest", X.XGBRFClassifier(n_estimators=15, n_jobs=1), x, y, {}),
            ("xgb_deep", X.XGBRegressor(n_estimators=20, max_depth=12, n_jobs=1), x, yr, {}), ("xgb_leafwise", X.XGBRegressor(n_estimators=20, grow_policy="lossguide", max_leaves=40, max_depth=0, tree_method="hist", n_jobs=1), holes, yr, {}),
            ("xgb_stump", X.XGBClassifier(n_estimators=60, max_depth=1, n_jobs=1), x, y, {}), ("xgb_rank", X.XGBRanker(n_estimators=10, n_jobs=1), x, (y4 % 3), dict(qid=np.repeat(np.arange(50), 10))),
            ("lgb_binary", lgb.LGBMClassifier(n_estimators=40, **G), holes, y, {}), ("lgb_multi", lgb.LGBMClassifier(n_estimators=12, **G), x4, y4, {}), ("lgb_reg", lgb.LGBMRegressor(n_estimators=40, **G), holes, yr, {}),
            ("lgb_categories", lgb.LGBMRegressor(n_estimators=20, **G), coded, yr, dict(categorical_feature=[0])), ("lgb_poisson", lgb.LGBMRegressor(n_estimators=15, objective="poisson", **G), x, count, {}),
            ("lgb_forest", lgb.LGBMClassifier(n_estimators=12, boosting_type="rf", bagging_freq=1, bagging_fraction=.7, **G), x, y, {}), ("lgb_dart", lgb.LGBMRegressor(n_estimators=15, boosting_type="dart", **G), x, yr, {}),
            ("lgb_zero_missing", lgb.LGBMRegressor(n_estimators=20, zero_as_missing=True, **G), np.where(np.abs(x) < .3, 0, x), yr, {}), ("lgb_rank", lgb.LGBMRanker(n_estimators=10, **G), x, y4 % 3, dict(group=[10] * 50))):
        convert = convert_xgboost if name.startswith("xgb") else convert_lightgbm
        feed = data[:200].astype(np.float32)
        try:
            m.fit(data, target, **fit)
            converted = convert(m, initial_types=[("x", Floats([None, 12]))])
        except Exception as e:
            made.cases.no_converter.append((name, str(e).split("\n")[0][:120]))
            continue
        outputs = made.cases.add(name, converted, [feed])
        proba = hasattr(m, "predict_proba")
        want = np.asarray(m.predict_proba(feed) if proba else m.predict(feed).reshape(len(feed), -1), np.float32)
        made.beside_library(name, converted, [feed], outputs, 1 if proba else 0, want, (1e-4, 1e-5))


def generate(cases, rng):
    t, made = tables(rng), Trained(cases)
    for part, feed in ((linear, t["x"][:150]), (preparation, t["x"][:150])):
        for name, m in part(t):
            made.skl(name, m, t["holes"][:150] if name.startswith(("impute", "missing")) else feed, LOOSE if name in ("power", "nystroem", "kernel_pca", "qda", "impute_knn") else (1e-4, 1e-5))
    for name, m in trees(t):
        made.skl(name, m, t["holes"][:150] if name in ("hist", "hist_reg") else t["x"][:150])
    for name, m, tolerance in others(t):
        made.skl(name, m, t["x"][:150], tolerance)
    for name, m in (("logistic_plain", linear_model.LogisticRegression().fit(t["x"], t["y"])), ("forest_plain", ensemble.RandomForestClassifier(8, random_state=0).fit(t["x4"], t["y4"]))):
        made.skl(name, m, t["x"][:150], options={"zipmap": False})
        made.skl(name + "_columns", m, t["x"][:150], options={"zipmap": "columns"})
    made.skl("logistic_raw", linear_model.LogisticRegression().fit(t["x4"], t["y4"]), t["x4"][:150], options={"zipmap": False, "raw_scores": True})
    made.skl("tree_leaves", tree.DecisionTreeClassifier(max_depth=4, random_state=0).fit(t["x"], t["y"]), t["x"][:150], options={"zipmap": False, "decision_leaf": True})
    made.skl("forest_path", ensemble.RandomForestClassifier(4, max_depth=3, random_state=0).fit(t["x"], t["y"]), t["x"][:150], options={"zipmap": False, "decision_path": True})
    made.skl("isolation_scores", ensemble.IsolationForest(n_estimators=8, random_state=0).fit(t["x"]), t["x"][:150], options={"score_samples": True})
    made.skl("logistic_double", P(preprocessing.StandardScaler(), linear_model.LogisticRegression()).fit(t["x"], t["y"]), t["x"][:150].astype(np.float64), options={"zipmap": False})
    made.skl("gp_reg_double", gaussian_process.GaussianProcessRegressor().fit(t["x"][:60], t["yr"][:60]), t["x"][:150].astype(np.float64), LOOSE)
    mixed(made, t, rng)
    boosted(made, t)
    return made
