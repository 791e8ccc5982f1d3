"""Files as ONNX Runtime's own tools write them: small nets optimised by it (graph level extended) and quantised by onnxruntime.quantization, dynamically and statically, in both formats. What comes out of ONNX Runtime is what the engine must give."""
import os, tempfile
import numpy as np
import onnx, onnxruntime as ort
from onnx import TensorProto as TP, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
import nets
from case import model
from contrib import SATURATES

N = helper.make_node


def optimised(m, folder):
    """The model as ONNX Runtime writes it after its own optimisations."""
    o = ort.SessionOptions()
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    o.optimized_model_filepath = os.path.join(folder, "optimised.onnx")
    o.log_severity_level = 4
    ort.InferenceSession(m.SerializeToString(), o, providers=["CPUExecutionProvider"])
    return onnx.load(o.optimized_model_filepath)


class Rows(CalibrationDataReader):
    def __init__(self, feeds):
        self.feeds = iter(feeds)

    def get_next(self):
        return next(self.feeds, None)


def quantised(m, feeds, folder, only):
    """(name, model) of each way to quantise it; only: the operators that static ways take, None = all."""
    at, to = os.path.join(folder, "in.onnx"), os.path.join(folder, "out.onnx")
    onnx.save(m, at)
    quantize_dynamic(at, to, weight_type=QuantType.QInt8, reduce_range=SATURATES)
    yield "dynamic", onnx.load(to)
    quantize_dynamic(at, to, weight_type=QuantType.QUInt8, per_channel=True)
    yield "dynamic_u8", onnx.load(to)
    for name, how, columns in (("qdq", QuantFormat.QDQ, False), ("qdq_columns", QuantFormat.QDQ, True), ("qoperator", QuantFormat.QOperator, False)):
        quantize_static(at, to, Rows(feeds), quant_format=how, op_types_to_quantize=only, per_channel=columns, weight_type=QuantType.QInt8, activation_type=QuantType.QUInt8, reduce_range=SATURATES)
        yield name, onnx.load(to)


def bert(rng, layers=2, d=64, heads=4, vocabulary=50, longest=24):
    """Token, position and segment embeddings, a mask, then layers of attention and feed-forward, as PyTorch's exporter writes them."""
    w, h = nets.Weights(rng), d // heads
    zero, one, root, half, far = (w.put(np.float32(v)) for v in (0, 1.0, 2 ** 0.5, 0.5, -10000.0))
    scale, nodes = w.put(np.float32(h ** 0.5)), []
    nodes += [N("Gather", [w(vocabulary, d), "ids"], ["words"]), N("Gather", [w(2, d), "kinds"], ["segments"]), N("Shape", ["ids"], ["shape"]), N("Gather", ["shape", w.put(np.array(1))], ["length"], axis=0),
              N("Unsqueeze", ["length", w.put(np.array([0]))], ["lengths"]), N("Slice", [w.put(np.arange(longest)[None]), w.put(np.array([0])), "lengths", w.put(np.array([1]))], ["places"]),
              N("Gather", [w(longest, d), "places"], ["positions"]), N("Add", ["words", "positions"], ["e0"]), N("Add", ["e0", "segments"], ["e1"]), N("LayerNormalization", ["e1", w.positive(d), w(d)], ["l0"], axis=-1, epsilon=1e-12),
              N("Unsqueeze", ["mask", w.put(np.array([1]))], ["m1"]), N("Unsqueeze", ["m1", w.put(np.array([2]))], ["m2"]), N("Cast", ["m2"], ["m3"], to=TP.FLOAT), N("Sub", [one, "m3"], ["m4"]), N("Mul", ["m4", far], ["seen"])]
    split, join = w.put(np.array([0, 0, heads, h])), w.put(np.array([0, 0, d]))
    for i in range(layers):
        p, x = f"b{i}", f"l{i}"
        for part in "qkv":
            nodes += [N("MatMul", [x, w(d, d)], [p + part + "0"]), N("Add", [w(d), p + part + "0"], [p + part + "1"]), N("Reshape", [p + part + "1", split], [p + part + "2"]),
                      N("Transpose", [p + part + "2"], [p + part], perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3])]
        nodes += [N("MatMul", [p + "q", p + "k"], [p + "s"]), N("Div", [p + "s", scale], [p + "sd"]), N("Add", [p + "sd", "seen"], [p + "sm"]), N("Softmax", [p + "sm"], [p + "a"], axis=-1), N("MatMul", [p + "a", p + "v"], [p + "o"]),
                  N("Transpose", [p + "o"], [p + "ot"], perm=[0, 2, 1, 3]), N("Reshape", [p + "ot", join], [p + "oj"]), N("MatMul", [p + "oj", w(d, d)], [p + "om"]), N("Add", [w(d), p + "om"], [p + "ob"]), N("Add", [p + "ob", x], [p + "r"]),
                  N("LayerNormalization", [p + "r", w.positive(d), w(d)], [p + "n"], axis=-1, epsilon=1e-12), N("MatMul", [p + "n", w(d, 2 * d)], [p + "f0"]), N("Add", [w(2 * d), p + "f0"], [p + "f1"]), N("Div", [p + "f1", root], [p + "g0"]), N("Erf", [p + "g0"], [p + "g1"]),
                  N("Add", [p + "g1", one], [p + "g2"]), N("Mul", [p + "f1", p + "g2"], [p + "g3"]), N("Mul", [p + "g3", half], [p + "g"]), N("MatMul", [p + "g", w(2 * d, d)], [p + "f2"]), N("Add", [w(d), p + "f2"], [p + "f3"]),
                  N("Add", [p + "f3", p + "n"], [p + "r2"]), N("LayerNormalization", [p + "r2", w.positive(d), w(d)], [f"l{i + 1}"], axis=-1, epsilon=1e-12)]
    nodes += [N("Gather", [f"l{layers}", w.put(np.array(0))], ["first"], axis=1), N("Gemm", ["first", w(3, d), w(3)], ["y"], transB=1)]
    return model(nodes, [(n, TP.INT64, ["N", "S"]) for n in ("ids", "mask", "kinds")], [("y", TP.FLOAT, ["N", 3])], w.all)


def residual(rng):
    """Convolutions with Relu and a sum, a pool over all, a layer."""
    w = nets.Weights(rng)
    nodes = [N("Conv", ["x", w(16, 3, 3, 3), w(16)], ["c1"], pads=[1] * 4), N("Relu", ["c1"], ["r1"]), N("Conv", ["r1", w(16, 16, 3, 3), w(16)], ["c2"], pads=[1] * 4), N("Relu", ["c2"], ["r2"]),
             N("Conv", ["r2", w(16, 16, 3, 3), w(16)], ["c3"], pads=[1] * 4), N("Add", ["c3", "r1"], ["s"]), N("Relu", ["s"], ["r3"]), N("Conv", ["r3", w(16, 1, 3, 3), w(16)], ["c4"], pads=[1] * 4, group=16), N("LeakyRelu", ["c4"], ["r4"], alpha=0.1),
             N("GlobalAveragePool", ["r4"], ["p"]), N("Flatten", ["p"], ["f"]), N("Gemm", ["f", w(10, 16), w(10)], ["g"], transB=1), N("Sigmoid", ["g"], ["y"])]
    return model(nodes, [("x", TP.FLOAT, ["N", 3, 13, 11])], [("y", TP.FLOAT, ["N", 10])], w.all)


def tokens(rng, n, s):
    lengths = rng.integers(1, s + 1, n)
    return dict(ids=rng.integers(0, 50, (n, s)), mask=(np.arange(s)[None] < lengths[:, None]).astype(np.int64), kinds=rng.integers(0, 2, (n, s)))


def generate(cases, rng):
    f32 = lambda *shape: rng.normal(size=shape).astype(np.float32)
    parts = [("mlp", nets.mlp(rng, [30, 64, 33, 5]), [dict(x=f32(n, 30)) for n in (16, 1, 7)]), ("residual", residual(rng), [dict(x=f32(n, 3, 13, 11)) for n in (4, 1, 3)]),
             ("bert", bert(rng), [tokens(rng, n, s) for n, s in ((8, 20), (1, 1), (3, 17))])]
    with tempfile.TemporaryDirectory() as folder:
        for name, m, feeds in parts:
            for k, f in enumerate(feeds):
                cases.add(f"opt_{name}_{k}", optimised(m, folder), list(f.values()))
            for how, q in quantised(m, feeds[:1], folder, ["MatMul", "Gemm"] if name == "bert" else None):
                for k, f in enumerate(feeds):
                    cases.add(f"quant_{name}_{how}_{k}", q, list(f.values()), (0.02, 0.02))
                    cases.add(f"optquant_{name}_{how}_{k}", optimised(q, folder), list(f.values()), (0.02, 0.02))
