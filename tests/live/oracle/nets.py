"""Small nets written as the exporters of PyTorch, TensorFlow and Keras write them: autoencoders, LeNet, LSTM, GRU, an encoder. Random weights."""
import math
import numpy as np
from onnx import TensorProto as TP, helper, numpy_helper
from case import model

N = helper.make_node


class Weights:
    """Initializers with names, made as they are used."""

    def __init__(self, rng):
        self.rng, self.all = rng, []

    def put(self, value, name=None):
        name = name or f"w{len(self.all)}"
        self.all.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def __call__(self, *shape, scale=None):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 16
        return self.put((self.rng.normal(size=shape) * (scale or 1 / math.sqrt(fan))).astype(np.float32))

    def positive(self, n):
        return self.put((np.abs(self.rng.normal(size=n)) + 0.5).astype(np.float32))


def mlp(rng, widths, act="Relu"):
    w, nodes, x = Weights(rng), [], "x"
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        last = i == len(widths) - 2
        nodes.append(N("Gemm", [x, w(b, a), w(b)], ["y" if last else f"h{i}"], transB=1))
        if not last:
            nodes.append(N(act, [f"h{i}"], [f"a{i}"]))
        x = f"a{i}"
    return model(nodes, [("x", TP.FLOAT, ["N", widths[0]])], [("y", TP.FLOAT, ["N", widths[-1]])], w.all)


def lenet(rng):
    """1×28×28: conv 8 of 3×3, pool, conv 16 of 3×3, pool, 784 → 10."""
    w = Weights(rng)
    nodes = [N("Conv", ["x", w(8, 1, 3, 3), w(8)], ["c1"], kernel_shape=[3, 3], pads=[1] * 4), N("Relu", ["c1"], ["r1"]), N("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
             N("Conv", ["p1", w(16, 8, 3, 3), w(16)], ["c2"], kernel_shape=[3, 3], pads=[1] * 4), N("Relu", ["c2"], ["r2"]), N("MaxPool", ["r2"], ["p2"], kernel_shape=[2, 2], strides=[2, 2]),
             N("Flatten", ["p2"], ["f"]), N("Gemm", ["f", w(10, 784), w(10)], ["y"], transB=1)]
    return model(nodes, [("x", TP.FLOAT, ["N", 1, 28, 28])], [("y", TP.FLOAT, ["N", 10])], w.all)


def recurrent(rng, op="LSTM", steps=32, features=16, hidden=64, out=1, direction="forward"):
    """(N, steps, features) → the last hidden state → out."""
    w, gates, d = Weights(rng), {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 2 if direction == "bidirectional" else 1
    more = dict(linear_before_reset=1) if op == "GRU" else {}
    inputs = ["t", w.put((rng.normal(size=(d, gates * hidden, features)) / math.sqrt(hidden)).astype(np.float32)),
              w.put((rng.normal(size=(d, gates * hidden, hidden)) / math.sqrt(hidden)).astype(np.float32)), w(d, 2 * gates * hidden, scale=0.1)]
    nodes = [N("Transpose", ["x"], ["t"], perm=[1, 0, 2]), N(op, inputs, ["", "h"], hidden_size=hidden, direction=direction, **more), N("Transpose", ["h"], ["ht"], perm=[1, 0, 2]),
             N("Reshape", ["ht", w.put(np.array([-1, d * hidden]))], ["hl"]), N("Gemm", ["hl", w(out, d * hidden), w(out)], ["y"], transB=1)]
    return model(nodes, [("x", TP.FLOAT, ["N", steps, features])], [("y", TP.FLOAT, ["N", out])], w.all)


def layer_norm(w, nodes, x, y, d, primitive):
    """As opset 17 has it, or as older exporters spell it out."""
    scale, bias = w.positive(d), w(d)
    if not primitive:
        nodes.append(N("LayerNormalization", [x, scale, bias], [y], axis=-1, epsilon=1e-5))
        return
    eps, two = w.put(np.float32(1e-5)), w.put(np.float32(2))
    nodes += [N("ReduceMean", [x], [y + "m"], axes=[-1]), N("Sub", [x, y + "m"], [y + "c"]), N("Pow", [y + "c", two], [y + "p"]), N("ReduceMean", [y + "p"], [y + "v"], axes=[-1]),
              N("Add", [y + "v", eps], [y + "e"]), N("Sqrt", [y + "e"], [y + "s"]), N("Div", [y + "c", y + "s"], [y + "n"]), N("Mul", [y + "n", scale], [y + "k"]), N("Add", [y + "k", bias], [y])]


def encoder(rng, layers=2, d=128, heads=4, steps=64, features=16, out=1, primitive=True):
    """(N, steps, features) → linear → `layers` of attention and feed-forward with GELU → mean → out. Written with the operators that exporters use."""
    w, h = Weights(rng), d // heads
    nodes = [N("MatMul", ["x", w(features, d, scale=0.2)], ["e0"]), N("Add", ["e0", w(1, steps, d, scale=0.1)], ["l0"])]
    split, join = w.put(np.array([0, steps, heads, h])), w.put(np.array([0, steps, d]))
    root, half, one, scale = (w.put(np.float32(v)) for v in (math.sqrt(2), 0.5, 1.0, math.sqrt(h)))
    for i in range(layers):
        p, x = f"b{i}", f"l{i}"
        for part in "qkv":
            nodes += [N("MatMul", [x, w(d, d)], [p + part + "0"]), N("Add", [p + part + "0", w(d)], [p + part + "1"]), N("Reshape", [p + part + "1", split], [p + part + "2"]),
                      N("Transpose", [p + part + "2"], [p + part], perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3])]
        nodes += [N("MatMul", [p + "q", p + "k"], [p + "s"]), N("Div", [p + "s", scale], [p + "sd"]), N("Softmax", [p + "sd"], [p + "a"], axis=-1), N("MatMul", [p + "a", p + "v"], [p + "o"]),
                  N("Transpose", [p + "o"], [p + "ot"], perm=[0, 2, 1, 3]), N("Reshape", [p + "ot", join], [p + "oj"]), N("MatMul", [p + "oj", w(d, d)], [p + "om"]),
                  N("Add", [w(d), p + "om"], [p + "ob"]), N("Add", [p + "ob", x], [p + "r"])]
        layer_norm(w, nodes, p + "r", p + "n", d, primitive)
        nodes += [N("MatMul", [p + "n", w(d, 4 * d)], [p + "f0"]), N("Add", [p + "f0", w(4 * d)], [p + "f1"]), N("Div", [p + "f1", root], [p + "g0"]), N("Erf", [p + "g0"], [p + "g1"]),
                  N("Add", [p + "g1", one], [p + "g2"]), N("Mul", [p + "f1", p + "g2"], [p + "g3"]), N("Mul", [p + "g3", half], [p + "g"]), N("MatMul", [p + "g", w(4 * d, d)], [p + "f2"]),
                  N("Add", [p + "f2", w(d)], [p + "f3"]), N("Add", [p + "f3", p + "n"], [p + "r2"])]
        layer_norm(w, nodes, p + "r2", f"l{i + 1}", d, primitive)
    nodes += [N("ReduceMean", [f"l{layers}"], ["m"], axes=[1], keepdims=0), N("Gemm", ["m", w(out, d), w(out)], ["y"], transB=1)]
    return model(nodes, [("x", TP.FLOAT, ["N", steps, features])], [("y", TP.FLOAT, ["N", out])], w.all)


def resnet_block(rng):
    """A residual block and a separable one with folded and unfolded batch normalisation, global pooling, a head."""
    w = Weights(rng)

    def bn(x, y, c):
        return N("BatchNormalization", [x, w.positive(c), w(c), w(c), w.positive(c)], [y])
    nodes = [N("Conv", ["x", w(12, 3, 5, 5)], ["c0"], kernel_shape=[5, 5], strides=[2, 2], pads=[2] * 4), bn("c0", "n0", 12), N("Relu", ["n0"], ["r0"]),
             N("Conv", ["r0", w(12, 12, 3, 3)], ["c1"], pads=[1] * 4), bn("c1", "n1", 12), N("Add", ["n1", "r0"], ["s"]), N("Relu", ["s"], ["r1"]),
             N("Conv", ["r1", w(12, 1, 3, 3)], ["c2"], group=12, pads=[1] * 4), N("HardSwish", ["c2"], ["h"]), N("Conv", ["h", w(20, 12, 1, 1), w(20)], ["c3"]), N("Clip", ["c3", w.put(np.float32(0)), w.put(np.float32(6))], ["k"]),
             N("AveragePool", ["k"], ["ap"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, count_include_pad=1), N("GlobalAveragePool", ["ap"], ["g"]), N("Flatten", ["g"], ["f"]),
             N("Gemm", ["f", w(5, 20), w(5)], ["z"], transB=1), N("Softmax", ["z"], ["y"], axis=1)]
    return model(nodes, [("x", TP.FLOAT, ["N", 3, 24, 24])], [("y", TP.FLOAT, ["N", 5])], w.all)


def assorted(cases, rng):
    x = rng.normal(size=(37, 30)).astype(np.float32)
    w = Weights(rng)
    cases.add("net_torch_autoencoder", model([N("Gemm", ["x", w(16, 30), w(16)], ["h0"], transB=1), N("Relu", ["h0"], ["r0"]), N("Gemm", ["r0", w(4, 16), w(4)], ["z"], transB=1),
        N("LeakyRelu", ["z"], ["r1"], alpha=.2), N("Gemm", ["r1", w(30, 4), w(30)], ["xhat"], transB=1), N("Sub", ["x", "xhat"], ["d"]), N("Mul", ["d", "d"], ["d2"]),
        N("ReduceMean", ["d2"], ["score"], axes=[1], keepdims=0)], [("x", TP.FLOAT, ["N", 30])], [("xhat", TP.FLOAT, ["N", 30]), ("score", TP.FLOAT, ["N"]), ("z", TP.FLOAT, ["N", 4])], w.all), [x])
    w = Weights(rng)
    cases.add("net_keras", model([N("Constant", [], ["mean"], value=numpy_helper.from_array(rng.normal(size=30).astype(np.float32), "c")), N("Sub", ["x", "mean"], ["x1"]),
        N("MatMul", ["x1", w(30, 24)], ["h0"]), N("Add", ["h0", w(24)], ["h1"]), N("Elu", ["h1"], ["h2"]), N("BatchNormalization", ["h2", w.positive(24), w(24), w(24), w.positive(24)], ["h3"]),
        N("Dropout", ["h3"], ["h4"]), N("MatMul", ["h4", w(24, 5)], ["h5"]), N("Add", [w(5), "h5"], ["h6"]), N("Softmax", ["h6"], ["p"]), N("ArgMax", ["p"], ["label"], axis=1, keepdims=0),
        N("Shape", ["x"], ["sh"]), N("Gather", ["sh", w.put(np.int64(0))], ["n"])], [("x", TP.FLOAT, [None, 30])], [("p", TP.FLOAT, [None, 5]), ("label", TP.INT64, [None]), ("n", TP.INT64, [])], w.all), [x])
    w = Weights(rng)
    cases.add("net_scalar_3d", model([N("Flatten", ["x"], ["f"]), N("MatMul", ["f", w(30, 8)], ["h"]), N("Tanh", ["h"], ["t"]), N("ReduceSum", ["t"], ["s"], keepdims=0),
        N("Reshape", ["t", w.put(np.array([0, 2, -1]))], ["r"])], [("x", TP.FLOAT, ["B", "T", 3])], [("s", TP.FLOAT, []), ("r", TP.FLOAT, ["B", 2, 4])], w.all, opset=13), [rng.normal(size=(6, 10, 3)).astype(np.float32)])
    w = Weights(rng)
    cases.add("net_vae", model([N("Gemm", ["x", w(30, 8), w(8)], ["h"]), N("Sigmoid", ["h"], ["a"]), N("Split", ["a"], ["mu", "lv"], axis=1), N("Exp", ["lv"], ["e"]), N("Add", ["mu", "e"], ["y"]),
        N("Concat", ["mu", "y"], ["c"], axis=-1)], [("x", TP.FLOAT, ["N", 30])], [("y", TP.FLOAT, ["N", 4]), ("c", TP.FLOAT, ["N", 8])], w.all, opset=13), [x])
    w = Weights(rng)
    cases.add("net_embedding", model([N("Gather", [w(50, 12), "ids"], ["e"]), N("ReduceMean", ["e"], ["m"], axes=[1], keepdims=0), N("Concat", ["m", "x"], ["c"], axis=1),
        N("Gemm", ["c", w(8, 42), w(8)], ["h"], transB=1), N("Relu", ["h"], ["r"]), N("Gemm", ["r", w(1, 8), w(1)], ["z"], transB=1), N("Sigmoid", ["z"], ["y"])],
        [("ids", TP.INT64, ["N", 7]), ("x", TP.FLOAT, ["N", 30])], [("y", TP.FLOAT, ["N", 1])], w.all), [rng.integers(-50, 50, size=(37, 7)), x])


def generate(cases, rng):
    assorted(cases, rng)
    for widths, act in (((30, 64, 32, 64, 30), "Relu"), ((784, 32, 32, 32, 32, 10), "Relu"), ((7, 5, 3), "Tanh"), ((33, 17, 9, 1), "Sigmoid"), ((1, 100, 1), "Elu")):
        for rows in (1, 3, 13, 200):
            cases.add(f"net_mlp_{'_'.join(map(str, widths))}_{act.lower()}_{rows}", mlp(rng, widths, act), [rng.normal(size=(rows, widths[0])).astype(np.float32)])
    for rows in (1, 5, 33):
        cases.add(f"net_lenet_{rows}", lenet(rng), [rng.normal(size=(rows, 1, 28, 28)).astype(np.float32)])
        cases.add(f"net_residual_{rows}", resnet_block(rng), [rng.normal(size=(rows, 3, 24, 24)).astype(np.float32)])
    for op in ("LSTM", "GRU", "RNN"):
        for direction in ("forward", "reverse", "bidirectional"):
            cases.add(f"net_{op.lower()}_{direction}", recurrent(rng, op, 12, 9, 20, 3, direction), [rng.normal(size=(11, 12, 9)).astype(np.float32)])
    cases.add("net_lstm_32x16_64", recurrent(rng), [rng.normal(size=(17, 32, 16)).astype(np.float32)])
    cases.add("net_gru_1_row", recurrent(rng, "GRU"), [rng.normal(size=(1, 32, 16)).astype(np.float32)])
    for primitive in (False, True):
        for rows in (1, 6):
            cases.add(f"net_encoder_{'primitive' if primitive else 'layernorm'}_{rows}", encoder(rng, d=32, heads=4, steps=10, primitive=primitive), [rng.normal(size=(rows, 10, 16)).astype(np.float32)])
    cases.add("net_encoder_128", encoder(rng), [rng.normal(size=(3, 64, 16)).astype(np.float32)])
