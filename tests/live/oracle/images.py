"""Image nets as PyTorch's exporter writes them, batch normalisation folded: MobileNetV2 (ReLU6 as Clip), MobileNetV3-large (HardSwish, HardSigmoid in squeeze and excitation), EfficientNet-B0 (SiLU as x · Sigmoid(x)), ResNet-18. Random weights.

For images below 96 pixels the first two halvings are left out, as one does for CIFAR; `width` scales the channels, `most` bounds how often a block repeats (for tests)."""
import math
import numpy as np
from onnx import TensorProto as TP, helper
from case import model
from nets import Weights

N = helper.make_node


class Net:
    def __init__(self, rng, size, width):
        self.w, self.nodes, self.n, self.small, self.width, self.size = Weights(rng), [], 0, size < 96, width, size
        self.rng = rng

    def channels(self, c):
        return max(8, int(c * self.width + 4) // 8 * 8) if self.width != 1 else c

    def op(self, kind, *inputs, **attrs):
        self.n += 1
        self.nodes.append(N(kind, list(inputs), [f"v{self.n}"], **attrs))
        return f"v{self.n}"

    def conv(self, x, cin, cout, k=1, stride=1, groups=1, gain=2.0):
        fan = cin // groups * k * k
        weights = [self.w(cout, cin // groups, k, k, scale=math.sqrt(gain / fan)), self.w(cout, scale=0.1)]
        return self.op("Conv", x, *weights, kernel_shape=[k, k], strides=[stride, stride], pads=[k // 2] * 4, group=groups, dilations=[1, 1])

    def act(self, x, kind):
        if kind == "relu6":
            return self.op("Clip", x, self.w.put(np.float32(0)), self.w.put(np.float32(6)))
        if kind == "silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        return x if kind is None else self.op({"relu": "Relu", "hardswish": "HardSwish"}[kind], x)

    def squeeze(self, x, c, mid, inner, gate):
        s = self.op("GlobalAveragePool", x)
        s = self.act(self.conv(s, c, mid), inner)
        s = self.conv(s, mid, c)
        return self.op("Mul", x, self.op("HardSigmoid", s, alpha=1 / 6) if gate == "hardsigmoid" else self.op("Sigmoid", s))

    def inverted(self, x, cin, mid, cout, k, stride, act, squeeze=None):
        y = x if mid == cin else self.act(self.conv(x, cin, mid), act)
        y = self.act(self.conv(y, mid, mid, k, stride, groups=mid), act)
        y = squeeze(y, mid) if squeeze else y
        y = self.conv(y, mid, cout, gain=1.0)
        return self.op("Add", y, x) if stride == 1 and cin == cout else y

    def end(self, x, c, classes=1000, hidden=None, act=None):
        x = self.op("Flatten", self.op("GlobalAveragePool", x), axis=1)
        if hidden:
            x = self.act(self.op("Gemm", x, self.w(hidden, c), self.w(hidden), transB=1), act)
            c = hidden
        self.nodes.append(N("Gemm", [x, self.w(classes, c), self.w(classes)], ["y"], transB=1))
        return model(self.nodes, [("x", TP.FLOAT, ["N", 3, self.size, self.size])], [("y", TP.FLOAT, ["N", classes])], self.w.all)


def mobilenet_v2(rng, size, width=1.0, most=9):
    g = Net(rng, size, width)
    c = g.channels(32)
    x = g.act(g.conv("x", 3, c, 3, 1 if g.small else 2), "relu6")
    for t, out, n, s in ((1, 16, 1, 1), (6, 24, 2, 1 if g.small else 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(min(n, most)):
            o = g.channels(out)
            x, c = g.inverted(x, c, c * t, o, 3, s if i == 0 else 1, "relu6"), o
    last = g.channels(1280)
    return g.end(g.act(g.conv(x, c, last), "relu6"), last)


def mobilenet_v3(rng, size, width=1.0, most=99):
    g = Net(rng, size, width)
    c = g.channels(16)
    x = g.act(g.conv("x", 3, c, 3, 1 if g.small else 2), "hardswish")
    rows = [(3, 16, 16, 0, "relu", 1), (3, 64, 24, 0, "relu", 1 if g.small else 2), (3, 72, 24, 0, "relu", 1), (5, 72, 40, 1, "relu", 2), (5, 120, 40, 1, "relu", 1), (5, 120, 40, 1, "relu", 1),
            (3, 240, 80, 0, "hardswish", 2), (3, 200, 80, 0, "hardswish", 1), (3, 184, 80, 0, "hardswish", 1), (3, 184, 80, 0, "hardswish", 1), (3, 480, 112, 1, "hardswish", 1),
            (3, 672, 112, 1, "hardswish", 1), (5, 672, 160, 1, "hardswish", 2), (5, 960, 160, 1, "hardswish", 1), (5, 960, 160, 1, "hardswish", 1)]
    for k, mid, out, se, act, s in rows[:most]:
        mid, out = g.channels(mid), g.channels(out)
        x, c = g.inverted(x, c, mid, out, k, s, act, (lambda y, m: g.squeeze(y, m, max(8, m // 4), "relu", "hardsigmoid")) if se else None), out
    last = g.channels(960)
    return g.end(g.act(g.conv(x, c, last), "hardswish"), last, hidden=g.channels(1280), act="hardswish")


def efficientnet_b0(rng, size, width=1.0, most=9):
    g = Net(rng, size, width)
    c = g.channels(32)
    x = g.act(g.conv("x", 3, c, 3, 1 if g.small else 2), "silu")
    for t, out, n, s, k in ((1, 16, 1, 1, 3), (6, 24, 2, 1 if g.small else 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)):
        for i in range(min(n, most)):
            o, cin = g.channels(out), c
            x, c = g.inverted(x, c, c * t, o, k, s if i == 0 else 1, "silu", lambda y, m, cin=cin: g.squeeze(y, m, max(4, cin // 4), "silu", "sigmoid")), o
    last = g.channels(1280)
    return g.end(g.act(g.conv(x, c, last), "silu"), last)


def resnet18(rng, size, width=1.0, most=9):
    g = Net(rng, size, width)
    c = g.channels(64)
    x = g.act(g.conv("x", 3, c, 3 if g.small else 7, 1 if g.small else 2), "relu")
    if not g.small:
        x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for out, s in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for i in range(min(2, most)):
            o, stride = g.channels(out), s if i == 0 else 1
            y = g.conv(g.act(g.conv(x, c, o, 3, stride), "relu"), o, o, 3, gain=1.0)
            side = x if stride == 1 and c == o else g.conv(x, c, o, 1, stride, gain=1.0)
            x, c = g.act(g.op("Add", y, side), "relu"), o
    return g.end(x, c)


ALL = {"MobileNetV2": mobilenet_v2, "MobileNetV3-large": mobilenet_v3, "EfficientNet-B0": efficientnet_b0, "ResNet-18": resnet18}


def odd(rng, kind, size=13):
    """Three convolutions and, between them, what files have besides: each kind is one way to leave the usual path."""
    g = Net(rng, size, 1)
    w, k, c = g.w, kind, 20
    spelled = lambda x: g.op("Clip", g.op("Add", x, w.put(np.float32(3))), w.put(np.float32(0)), w.put(np.float32(6)))
    channels = lambda *shape: w((1), scale=1) if not shape else w.put((rng.normal(size=shape) * 0.5 + 1).astype(np.float32))
    a = g.act(g.conv("x", 3, c, 3), "relu")
    outputs, more = [], []
    if k == "dilated":
        b = g.op("Conv", a, w(24, c, 3, 3), w(24), kernel_shape=[3, 3], dilations=[2, 3], pads=[2, 3, 2, 3])
    elif k == "lopsided":
        b = g.op("Conv", a, w(24, c, 1, 5), kernel_shape=[1, 5], strides=[2, 3], pads=[0, 3, 0, 1])
    elif k == "same_upper":
        b = g.op("Conv", a, w(24, c, 4, 3), w(24), kernel_shape=[4, 3], strides=[2, 2], auto_pad="SAME_UPPER")
    elif k == "depth_dilated":
        b = g.conv(g.op("Conv", a, w(c, 1, 3, 5), w(c), kernel_shape=[3, 5], dilations=[2, 2], strides=[2, 1], pads=[1, 4, 3, 2], group=c), c, 24)
    elif k == "grouped":
        b = g.op("Conv", a, w(24, c // 4, 3, 3), w(24), kernel_shape=[3, 3], pads=[1] * 4, group=4)
    elif k == "max_ceil":
        b = g.conv(g.op("MaxPool", a, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1), c, 24)
    elif k == "mean_pad":
        b = g.conv(g.op("AveragePool", a, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1, ceil_mode=1), c, 24)
    elif k == "mean":
        b = g.conv(g.op("AveragePool", a, kernel_shape=[2, 3], pads=[0, 1, 1, 1]), c, 24)
    elif k == "norm":
        n = g.op("BatchNormalization", g.op("MaxPool", a, kernel_shape=[2, 2]), channels(c), channels(c), channels(c), w.positive(c))
        b = g.conv(n, c, 24)
    elif k == "channels":
        b = g.conv(g.op("Add", g.op("Mul", g.op("MaxPool", a, kernel_shape=[2, 2]), channels(1, c, 1, 1)), channels(c, 1, 1)), c, 24)
    elif k == "numbers":
        b = g.conv(g.op("Add", w.put(np.float32(0.25)), g.op("Mul", g.op("MaxPool", a, kernel_shape=[2, 2]), w.put(np.float32([[[[1.5]]]])))), c, 24)
    elif k == "gate_first":
        b = g.conv(g.op("Mul", g.op("Sigmoid", g.conv(g.op("ReduceMean", a, axes=[2, 3]), c, c)), a), c, 24)
    elif k == "squared":
        b = g.conv(g.op("Mul", a, a), c, 24)
    elif k == "hardswish_product":
        b = g.conv(g.op("Div", g.op("Mul", a, spelled(a)), w.put(np.float32(6))), c, 24)
    elif k == "hardswish_gate":
        b = g.conv(g.op("Mul", g.op("Div", spelled(a), w.put(np.float32(6))), a), c, 24)
    elif k == "hardsigmoid":
        b = g.conv(g.op("Mul", spelled(a), w.put(np.float32(1 / 6))), c, 24)
    elif k == "other_acts":
        b = g.conv(g.op("Elu", g.op("LeakyRelu", g.op("MaxPool", g.op("Tanh", g.conv(a, c, c)), kernel_shape=[2, 2]), alpha=0.2), alpha=0.7), c, 24)
    elif k == "softplus":  # nothing that goes along: the part is cut in two
        b = g.conv(g.op("Softplus", g.conv(g.conv(g.conv(a, c, c, 3), c, 8), 8, c)), c, 24)
    elif k == "two_results":
        outputs, b = [g.op("Relu", g.conv(a, c, 7, 3))], g.conv(a, c, 24, 3)
    elif k == "two_inputs":
        more, b = [("z", TP.FLOAT, ["N", 17, size, size])], g.op("Add", g.conv(a, c, 24), g.conv("z", 17, 24))
    elif k == "residual_outside":
        more, b = [("z", TP.FLOAT, ["N", 24, size, size])], g.op("Add", g.conv(a, c, 24), "z")
    elif k == "broadcast":
        more, b = [("z", TP.FLOAT, ["N", 24, 1, size])], g.conv(g.op("Mul", g.conv(a, c, 24), g.op("Relu", g.conv("z", 24, 24))), 24, 24)
    y = g.conv(g.act(g.conv(b, 24, 33, 3), "silu"), 33, 9)
    outputs = [y] + outputs
    return model(g.nodes, [("x", TP.FLOAT, ["N", 3, size, size])] + more, [(o, TP.FLOAT, None) for o in outputs], w.all), more


ODD = ["dilated", "lopsided", "same_upper", "depth_dilated", "grouped", "max_ceil", "mean_pad", "mean", "norm", "channels", "numbers", "gate_first", "squared", "hardswish_product", "hardswish_gate", "hardsigmoid",
       "other_acts", "softplus", "two_results", "two_inputs", "residual_outside", "broadcast"]


def generate(cases, rng):
    for name, make in ALL.items():
        for size, width, most, rows in ((32, 0.25, 9, 3), (33, 0.5, 1, 1), (29, 1.0, 1, 5), (101, 0.25, 1, 2)):
            cases.add(f"image_{name.lower()}_{size}_{width:g}_{rows}", make(rng, size, width, most), [rng.normal(size=(rows, 3, size, size)).astype(np.float32)], (1e-3, 1e-3))
    for kind in ODD:
        for size, rows in ((13, 3), (16, 1)):
            m, more = odd(rng, kind, size)
            feeds = [rng.normal(size=(rows, 3, size, size)).astype(np.float32)] + [rng.normal(size=(rows, *dims[1:])).astype(np.float32) for _, _, dims in more]
            cases.add(f"image_{kind}_{size}", m, feeds, (1e-3, 1e-4))
