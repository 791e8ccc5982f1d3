"""penstock's engine beside ONNX Runtime, one thread each, in one run: python engine_bench.py BUILD_DIR/tests/bench_engine

Models: GBDT 100x6, 500x8, 1000x10 trained by XGBoost, the autoencoder 30-64-32-64-30 and Crayfish's FFNN 784-32-32-32-32-10.
CPU time of the calling thread on both sides. 50,000 distinct rows; outputs are compared before anything is timed. ONNX Runtime is called from Python: add about 1 us per call
to its disfavour at batch 1 (measured with an Identity model and subtracted from its figure)."""
import os, subprocess, sys, tempfile, time
import numpy as np
import onnx, onnxruntime as ort
from onnx import helper as h, numpy_helper, TensorProto as TP

bench = sys.argv[1]
rng = np.random.default_rng(3)
tmp = tempfile.mkdtemp()


def mlp(name, widths, act):
    nodes, inits, x = [], [], "x"
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        inits += [numpy_helper.from_array((rng.normal(size=(b, a)) / np.sqrt(a)).astype(np.float32), f"w{i}"), numpy_helper.from_array(rng.normal(size=b).astype(np.float32), f"b{i}")]
        last = i == len(widths) - 2
        nodes.append(h.make_node("Gemm", [x, f"w{i}", f"b{i}"], ["y" if last else f"h{i}"], transB=1))
        if not last:
            nodes.append(h.make_node(act, [f"h{i}"], [f"a{i}"]))
        x = f"a{i}"
    g = h.make_graph(nodes, name, [h.make_tensor_value_info("x", TP.FLOAT, ["N", widths[0]])], [h.make_tensor_value_info("y", TP.FLOAT, ["N", widths[-1]])], inits)
    return h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=8)


def gbdt(trees, depth):
    import xgboost as xgb
    from onnxmltools import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType
    n = 60000
    x = rng.normal(size=(n, 30)).astype(np.float32)
    z = x @ rng.normal(size=30) * .3 + np.sin(x[:, 0] * 2) + x[:, 1] * x[:, 2] + rng.normal(size=n) * .5
    y = (z > np.quantile(z, .97)).astype(int)
    m = xgb.XGBClassifier(n_estimators=trees, max_depth=depth, tree_method="hist", min_child_weight=0.01, reg_lambda=0, learning_rate=.1, n_jobs=2).fit(x, y)
    return convert_xgboost(m, initial_types=[("x", FloatTensorType([None, 30]))])


def session(model):
    o = ort.SessionOptions()
    o.intra_op_num_threads = o.inter_op_num_threads = 1
    o.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), o, providers=["CPUExecutionProvider"])


def best(f, seconds=.4):
    r = 1e9
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        t = time.thread_time()
        f()
        r = min(r, time.thread_time() - t)
    return r


idm = h.make_model(h.make_graph([h.make_node("Identity", ["x"], ["y"])], "i", [h.make_tensor_value_info("x", TP.FLOAT, ["N", 1])], [h.make_tensor_value_info("y", TP.FLOAT, ["N", 1])]),
                   opset_imports=[h.make_opsetid("", 17)], ir_version=8)
ids = session(idm)
one = np.zeros((1, 1), np.float32)
overhead = best(lambda: ids.run(None, {"x": one})) - 2e-6  # a Run of one node costs ONNX Runtime about 2 us from C
print(f"| model | batch | penstock ns/row | ONNX Runtime {ort.__version__} ns/row | ratio | max abs difference |\n|---|---|---|---|---|---|")
big = os.environ.get("BIG")
models = [("autoencoder 30-64-32-64-30", mlp("ae", [30, 64, 32, 64, 30], "Relu")), ("FFNN 784-32-32-32-32-10", mlp("ff", [784, 32, 32, 32, 32, 10], "Relu")), ("GBDT 100x6", gbdt(100, 6))]
if big:
    models += [("GBDT 500x8", gbdt(500, 8)), ("GBDT 1000x10", gbdt(1000, 10))]
for name, model in models:
    path = os.path.join(tmp, "m.onnx")
    onnx.save(model, path)
    s = session(model)
    cols = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    x = rng.normal(size=(50000, cols)).astype(np.float32)
    out = s.get_outputs()[-1].name
    sub = x[:2000]
    want = s.run([out], {s.get_inputs()[0].name: sub})[0]
    if isinstance(want, list):
        want = np.array([list(r.values()) for r in want], np.float32)
    got = np.frombuffer(subprocess.run([bench, path, "dump", "2000"], input=sub.tobytes(), capture_output=True, check=True).stdout, np.float32).reshape(want.shape)
    diff = float(np.abs(got - want).max())
    ours = dict((int(a), float(b)) for a, b in (l.split() for l in subprocess.run([bench, path], capture_output=True, check=True, text=True).stdout.splitlines()))
    outs = [o.name for o in s.get_outputs()] if "GBDT" not in name else [s.get_outputs()[-1].name]
    for b, ns in ours.items():
        at = 0

        def call():
            global at
            at = at + b if at + 2 * b <= len(x) else 0
            s.run(outs, {s.get_inputs()[0].name: x[at:at + b]})
        n = max(1, 4096 // b)
        t = best(lambda: [call() for _ in range(n)]) / n - max(0, overhead)
        print(f"| {name} | {b} | {ns:.0f} | {t / b * 1e9:.0f} | {t / b * 1e9 / ns:.1f} | {diff:.1e} |", flush=True)
