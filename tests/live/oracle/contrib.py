"""Operators of ONNX Runtime's own (com.microsoft), which its optimiser and converters write: each beside ONNX Runtime itself."""
import itertools
import numpy as np
import onnxruntime as ort
from onnx import TensorProto as TP, helper, numpy_helper
import case
from case import model

TYPES = {np.dtype(np.float32): TP.FLOAT, np.dtype(np.float64): TP.DOUBLE, np.dtype(np.uint8): TP.UINT8, np.dtype(np.int8): TP.INT8, np.dtype(np.int32): TP.INT32, np.dtype(np.int64): TP.INT64, np.dtype(object): TP.STRING}


def contrib(op, inputs, outputs, fixed=(), domain="com.microsoft", **attributes):
    """One node; inputs: name → array, "" left out is written as None; fixed: names that are initializers; outputs: (name, type)."""
    inputs = {k: v if v is None else np.asarray(v) for k, v in inputs.items()}
    node = helper.make_node(op, ["" if v is None else k for k, v in inputs.items()], [o[0] for o in outputs], domain=domain, **attributes)
    given = [(k, v) for k, v in inputs.items() if v is not None]
    m = model([node], [(k, TYPES[v.dtype], [None] * v.ndim) for k, v in given if k not in fixed], [(*o, None) for o in outputs if o[0]], [numpy_helper.from_array(v, k) for k, v in given if k in fixed])
    m.opset_import.extend([helper.make_opsetid("com.microsoft", 1)])
    return m, [v for k, v in given if k not in fixed]


def put(cases, name, op, inputs, outputs, fixed=(), tolerance=(1e-4, 1e-5), **attributes):
    m, feeds = contrib(op, inputs, outputs, fixed, **attributes)
    return cases.add("ms_" + name, m, feeds, tolerance)


def distances(cases, rng):
    for (m, n, k), t, metric in itertools.product(((1, 1, 1), (7, 5, 3), (20, 33, 40)), (np.float32, np.float64), ("euclidean", "sqeuclidean")):
        a, b = rng.normal(size=(m, k)).astype(t), rng.normal(size=(n, k)).astype(t)
        put(cases, f"cdist_{m}_{np.dtype(t).name}_{metric}", "CDist", dict(a=a, b=b), [("y", TYPES[np.dtype(t)])], metric=metric)


F = [("y", TP.FLOAT)]


def f32(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def activations(cases, rng):
    for d in (1, 7, 64, 515):
        x, b = f32(rng, 3, 5, d), f32(rng, d)
        put(cases, f"gelu_{d}", "Gelu", dict(x=x), F)
        put(cases, f"biasgelu_{d}", "BiasGelu", dict(x=x, b=b), F, fixed=("b",))
        put(cases, f"fastgelu_{d}", "FastGelu", dict(x=x), F)
        put(cases, f"fastgelu_bias_{d}", "FastGelu", dict(x=x, b=b), F, fixed=("b",))
        put(cases, f"quickgelu_{d}", "QuickGelu", dict(x=x), F)
        put(cases, f"quickgelu_alpha_{d}", "QuickGelu", dict(x=x), F, alpha=0.7)


def norms(cases, rng):
    for d in (1, 8, 33, 256):
        x, skip, g, b, e = f32(rng, 2, 5, d), f32(rng, 2, 5, d), f32(rng, d), f32(rng, d), f32(rng, d)
        put(cases, f"skip_{d}", "SkipLayerNormalization", dict(x=x, skip=skip, g=g, b=b), F, fixed=("g", "b"), epsilon=1e-5)
        put(cases, f"skip_bias_{d}", "SkipLayerNormalization", dict(x=x, skip=skip, g=g, b=b, e=e), F, fixed=("g", "b", "e"), epsilon=1e-5)
        put(cases, f"skip_sum_{d}", "SkipLayerNormalization", dict(x=x, skip=skip, g=g, b=None, e=e), F + [("", TP.FLOAT), ("", TP.FLOAT), ("sum", TP.FLOAT)], fixed=("g", "e"))
        put(cases, f"skip_over_{d}", "SkipLayerNormalization", dict(x=x, skip=skip[:1], g=g, b=b), F, fixed=("g", "b"))
        put(cases, f"skiprms_{d}", "SkipSimplifiedLayerNormalization", dict(x=x, skip=skip, g=g), F, fixed=("g",), epsilon=1e-5)


def products(cases, rng):
    for (m, n, k), ta, tb in itertools.product(((1, 1, 1), (5, 7, 33), (19, 70, 65)), (0, 1), (0, 1)):
        for batch in ((), (3,), (2, 3)):
            a, b = f32(rng, *batch, *((k, m) if ta else (m, k))), f32(rng, *batch, *((n, k) if tb else (k, n)))
            put(cases, f"fusedmatmul_{m}_{ta}{tb}_{len(batch)}", "FusedMatMul", dict(a=a, b=b), F, transA=ta, transB=tb, alpha=0.125)
        a, b, c = f32(rng, *((k, m) if ta else (m, k))), f32(rng, *((n, k) if tb else (k, n))), f32(rng, n)
        put(cases, f"fusedmatmul_fixed_{m}_{ta}{tb}", "FusedMatMul", dict(a=a, b=b), F, fixed=("b",), transA=ta, transB=tb, alpha=3.0)
        for act, more in (("Relu", {}), ("LeakyRelu", dict(activation_alpha=0.2)), ("Sigmoid", {}), ("Tanh", {})):
            put(cases, f"fusedgemm_{m}_{ta}{tb}_{act}", "FusedGemm", dict(a=a, b=b, c=c), F, fixed=("b", "c"), transA=ta, transB=tb, alpha=0.5, beta=2.0, activation=act, **more)


def convolutions(cases, rng):
    for c, m, k in ((1, 1, 1), (3, 8, 3), (16, 20, 3)):
        x, w, b = f32(rng, 2, c, 11, 9), f32(rng, m, c, k, k), f32(rng, m)
        z = f32(rng, 2, m, 11 if k == 3 else 11, 9)
        for act, params in (("Relu", None), ("LeakyRelu", [0.1]), ("Sigmoid", None), ("Tanh", None), ("HardSigmoid", [0.3, 0.4]), ("Clip", [-0.5, 0.7])):
            more = dict(activation_params=params) if params else {}
            put(cases, f"fusedconv_{c}_{act}", "FusedConv", dict(x=x, w=w, b=b), F, fixed=("w", "b"), activation=act, pads=[k // 2] * 4, **more)
            put(cases, f"fusedconv_sum_{c}_{act}", "FusedConv", dict(x=x, w=w, b=b, z=z), F, fixed=("w", "b"), activation=act, pads=[k // 2] * 4, **more)


def saturates():
    """Does ONNX Runtime add two products of bytes in 16 bits, as it does on x86 processors without VNNI? Its sums of uint8 × int8 are wrong there, and no model for the engine."""
    m, feeds = contrib("MatMulInteger", dict(a=np.full((1, 64), 255, np.uint8), b=np.full((64, 16), 127, np.int8)), [("y", TP.INT32)], ("b",), domain="")
    session = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    return int(session.run(None, {"a": feeds[0]})[0][0, 0]) != 64 * 255 * 127


SATURATES = saturates()
if SATURATES:
    print("ONNX Runtime's sums of bytes saturate on this processor: int8 is drawn from 7 bits (all 8 are compared where the processor has VNNI)")


def some_bytes(rng, t, *shape):
    drawn = rng.integers(np.iinfo(t).min, np.iinfo(t).max, size=shape, endpoint=True, dtype=t)
    return (drawn // 2).astype(t) if SATURATES and t == np.int8 else drawn


BYTES = (np.uint8, np.int8)
SIZES = ((1, 1, 1), (1, 130, 5), (2, 70, 66), (5, 33, 1), (13, 31, 129), (100, 40, 64), (7, 20, 1030))


def byte_products(cases, rng):
    """uint8 × uint8, uint8 × int8 and, where ONNX Runtime has it, int8 × int8; zero points for all and for each column; the right side a constant or not."""
    one = lambda t: some_bytes(rng, t)
    scale = lambda *shape: np.asarray(rng.uniform(0.001, 0.01, size=shape), np.float32)
    for (m, n, k), ta, tb in itertools.product(SIZES, BYTES, BYTES):
        a, b = some_bytes(rng, ta, m, k), some_bytes(rng, tb, k, n)
        name = f"{m}x{n}x{k}_{np.dtype(ta).name}_{np.dtype(tb).name}"
        fixed = ("b",) if k % 2 else ()
        put(cases, "integer_" + name, "MatMulInteger", dict(a=a, b=b, za=one(ta), zb=one(tb)), [("y", TP.INT32)], fixed, domain="")
        put(cases, "integer_columns_" + name, "MatMulInteger", dict(a=a, b=b, za=one(ta), zb=some_bytes(rng, tb, n)), [("y", TP.INT32)], ("b", "zb"), domain="")
        put(cases, "integer_batch_" + name, "MatMulInteger", dict(a=some_bytes(rng, ta, 3, m, k), b=some_bytes(rng, tb, 3, k, n), za=one(ta), zb=one(tb)), [("y", TP.INT32)], domain="")
        for per in ((), (n,)):
            tail = "_columns" if per else ""
            sb, zb = scale(*per), some_bytes(rng, tb, *per)
            if ta == np.uint8 or tb == np.int8:
                put(cases, f"qlinear_{name}{tail}", "QLinearMatMul", dict(a=a, sa=scale(), za=one(ta), b=b, sb=sb, zb=zb, sy=np.float32(0.02 * k ** 0.5), zy=one(ta)), [("y", TYPES[np.dtype(ta)])], ("b", "sb", "zb"), (0, 1), domain="")
                put(cases, f"qgemm_{name}{tail}", "QGemm", dict(a=a, sa=scale(), za=one(ta), b=b.T.copy(), sb=sb, zb=zb, c=rng.integers(-9999, 9999, n, dtype=np.int32), sy=np.float32(0.02 * k ** 0.5), zy=one(ta)), [("y", TYPES[np.dtype(ta)])],
                    ("b", "sb", "zb", "c"), (0, 1), transB=1, alpha=1.0)
                put(cases, f"qgemm_float_{name}{tail}", "QGemm", dict(a=a.T.copy(), sa=scale(), za=one(ta), b=b, sb=sb, zb=zb, c=rng.integers(-9999, 9999, n, dtype=np.int32)), F, ("b", "sb", "zb", "c"), transA=1, alpha=0.5)
            put(cases, f"tofloat_{name}{tail}", "MatMulIntegerToFloat", dict(a=a, b=b, sa=scale(), sb=sb, za=one(ta), zb=zb, bias=f32(rng, n)), F, ("b", "sb", "zb", "bias"))
            put(cases, f"dynamic_{name}{tail}", "DynamicQuantizeMatMul", dict(a=f32(rng, m, k), b=b, sb=sb, zb=zb, bias=f32(rng, n)), F, ("b", "sb", "zb", "bias"), (2e-3, 2e-3))


def rounding(cases, rng):
    """Ties, values beyond, NaN; one scale, and one for each channel."""
    for t in BYTES:
        edges = np.concatenate([np.arange(-300, 300) * 0.25, case.EDGES[1:], [0.125, 0.375, -0.125]]).astype(np.float32)
        z = some_bytes(rng, t)
        name = np.dtype(t).name
        put(cases, f"quantize_{name}", "QuantizeLinear", dict(x=edges, s=np.float32(0.5), z=z), [("y", TYPES[np.dtype(t)])], domain="", tolerance=(0, 0))
        x, s, zs = f32(rng, 2, 5, 7, 3) * 9, rng.uniform(0.01, 0.1, 5).astype(np.float32), some_bytes(rng, t, 5)
        put(cases, f"quantize_axis_{name}", "QuantizeLinear", dict(x=x, s=s, z=zs), [("y", TYPES[np.dtype(t)])], domain="", tolerance=(0, 0), axis=1)
        put(cases, f"dequantize_axis_{name}", "DequantizeLinear", dict(x=some_bytes(rng, t, 2, 5, 7, 3), s=s, z=zs), F, domain="", tolerance=(0, 0), axis=1)
        put(cases, f"dequantize_last_{name}", "DequantizeLinear", dict(x=some_bytes(rng, t, 3, 5), s=s, z=zs), F, domain="", tolerance=(0, 0), axis=-1)
        put(cases, f"dequantize_{name}", "DequantizeLinear", dict(x=np.arange(np.iinfo(t).min, np.iinfo(t).max + 1).astype(t), s=np.float32(0.3), z=z), F, domain="", tolerance=(0, 0))
    for n in (1, 5, 64, 1001):
        put(cases, f"dynamicquantize_{n}", "DynamicQuantizeLinear", dict(x=f32(rng, n)), [("y", TP.UINT8), ("s", TP.FLOAT), ("z", TP.UINT8)], domain="", tolerance=(1e-7, 0))


def byte_functions(cases, rng):
    """A step of the result's scale is allowed: ONNX Runtime has tables and integer sums where it may."""
    scale = lambda: np.asarray(rng.uniform(0.01, 0.05), np.float32)
    for t, d in itertools.product(BYTES, (1, 7, 64, 131)):
        name, y = f"{np.dtype(t).name}_{d}", [("y", TYPES[np.dtype(t)])]
        q = lambda *shape: some_bytes(rng, t, *shape)
        for op, b in (("QLinearAdd", q(3, d)), ("QLinearMul", q(3, d)), ("QLinearAdd", q(1)), ("QLinearMul", q(d))):
            put(cases, f"{op.lower()}_{b.ndim}{b.size}_{name}", op, dict(a=q(3, d), sa=scale(), za=q(), b=b, sb=scale(), zb=q(), sy=np.float32(0.06), zy=q()), y, (), (0, 1))
        put(cases, f"qlinearsigmoid_{name}", "QLinearSigmoid", dict(x=q(3, d), s=scale(), z=q(), sy=np.float32(1 / 256), zy=q()), y, ("s", "z", "sy", "zy"), (0, 1))
        put(cases, f"qlinearleakyrelu_{name}", "QLinearLeakyRelu", dict(x=q(3, d), s=scale(), z=q(), sy=np.float32(0.03), zy=q()), y, ("s", "z", "sy", "zy"), (0, 1), alpha=0.2)
        if d > 1:  # of one number ONNX Runtime gives 0 where 1 is cut to 255/256
            put(cases, f"qlinearsoftmax_{name}", "QLinearSoftmax", dict(x=q(3, 5, d), s=scale(), z=q(), sy=np.float32(1 / 256), zy=np.asarray(np.iinfo(t).min, t)), y, ("s", "z", "sy", "zy"), (0, 1), axis=-1, opset=13)
        put(cases, f"qlinearconcat_{name}", "QLinearConcat", dict(sy=scale(), zy=q(), a=q(3, d), sa=scale(), za=q(), b=q(3, 2), sb=scale(), zb=q()), y, ("sy", "zy", "sa", "za", "sb", "zb"), (0, 1), axis=1)
        put(cases, f"qlinearglobal_{name}", "QLinearGlobalAveragePool", dict(x=q(2, 5, 3, d), s=scale(), z=q(), sy=scale(), zy=q()), y, ("s", "z", "sy", "zy"), (0, 1), channels_last=0)
        if d > 1:
            put(cases, f"qlinearpool_{name}", "QLinearAveragePool", dict(x=q(2, 5, 4, d), s=scale(), z=q(), sy=scale(), zy=q()), y, ("s", "z", "sy", "zy"), (0, 1), kernel_shape=[2, 3], pads=[1, 1, 0, 1], strides=[1, 2], count_include_pad=1)


def byte_convolutions(cases, rng):
    scale = lambda *shape: np.asarray(rng.uniform(0.001, 0.01, size=shape), np.float32)
    for (c, m, g, k), tx, tw in itertools.product(((1, 1, 1, 1), (3, 8, 1, 3), (16, 40, 1, 1), (8, 12, 4, 3), (6, 6, 6, 3)), BYTES, BYTES):
        x, w, zx, zw = some_bytes(rng, tx, 2, c, 13, 9), some_bytes(rng, tw, m, c // g, k, k), some_bytes(rng, tx), some_bytes(rng, tw)
        name = f"{c}_{g}_{np.dtype(tx).name}_{np.dtype(tw).name}"
        how = dict(group=g, pads=[k // 2] * 4, strides=[1, 2])
        if tx == np.uint8:
            put(cases, "convinteger_" + name, "ConvInteger", dict(x=x, w=w, zx=zx, zw=zw), [("y", TP.INT32)], ("w", "zw"), domain="", **how)
        for per in ((), (m,)) if tx == np.uint8 or tw == np.int8 else ():
            put(cases, f"qlinearconv_{len(per)}_{name}", "QLinearConv", dict(x=x, sx=scale(), zx=zx, w=w, sw=scale(*per), zw=np.zeros(per, tw) if per else zw, sy=np.float32(0.02 * k), zy=some_bytes(rng, tx), b=rng.integers(-9999, 9999, m, dtype=np.int32)),
                [("y", TYPES[np.dtype(tx)])], ("sx", "zx", "w", "sw", "zw", "sy", "zy", "b"), (0, 1), domain="", **how)


def attention(cases, rng):
    """Masks of every form, causal, sizes that differ; embeddings with and without segments and mask."""
    ints = lambda v: np.asarray(v, np.int32)
    for (b, s, d, heads), causal in itertools.product(((1, 1, 4, 1), (2, 5, 12, 3), (3, 17, 64, 4)), (0, 1)):
        x, w, e = f32(rng, b, s, d), f32(rng, d, 3 * d) / np.float32(d ** 0.5), f32(rng, 3 * d)
        masks = dict(none=None, lengths=ints(rng.integers(1, s + 1, b)), ends=ints(np.concatenate([np.full(b, s), np.zeros(b)])), keys=ints(rng.integers(0, 2, (b, s))), pairs=ints(rng.integers(0, 2, (b, s, s))))
        for name, mask in masks.items():
            put(cases, f"attention_{b}_{causal}_{name}", "Attention", dict(x=x, w=w, e=e, mask=mask), F, ("w", "e"), num_heads=heads, unidirectional=causal)
        put(cases, f"attention_{b}_{causal}_sizes", "Attention", dict(x=x, w=f32(rng, d, 2 * d + 2 * d) / np.float32(d ** 0.5), e=f32(rng, 4 * d)), F, ("w", "e"), num_heads=heads, unidirectional=causal, qkv_hidden_sizes=[d, d, 2 * d], scale=0.3)
    for b, s, d in ((1, 1, 3), (2, 7, 16)):
        ids, kinds, mask = ints(rng.integers(0, 9, (b, s))), ints(rng.integers(0, 2, (b, s))), ints(rng.integers(0, 2, (b, s)))
        tables = dict(words=f32(rng, 9, d), places=f32(rng, 11, d), segments=f32(rng, 2, d), g=f32(rng, d), e=f32(rng, d))
        y = F + [("m", TP.INT32)]
        put(cases, f"embed_{b}", "EmbedLayerNormalization", dict(ids=ids, kinds=kinds, **tables, mask=mask), y + [("sum", TP.FLOAT)], tuple(tables))
        put(cases, f"embed_plain_{b}", "EmbedLayerNormalization", dict(ids=ids, kinds=None, **{**tables, "segments": None}), y, ("words", "places", "g", "e"))
        put(cases, f"embed_places_{b}", "EmbedLayerNormalization", dict(ids=ids, kinds=kinds, **tables, mask=mask, at=ints(rng.integers(0, 11, (b, s)))), y, tuple(tables))


def masks_of(rng, b, s, keys):
    """name → a mask of each form over so many keys, of which the last s are new; None = none."""
    ints = lambda v: np.asarray(v, np.int32)
    seen = rng.integers(0, 2, (b, keys))
    seen[:, 0] = 1
    pairs = rng.integers(0, 2, (b, s, keys))
    pairs[:, :, 0] = 1
    return dict(none=None, lengths=ints(rng.integers(1, keys + 1, b)), ends=ints(np.concatenate([np.full(b, keys), np.zeros(b)])), keys=ints(seen), pairs=ints(pairs))


def attention_with_past(cases, rng):
    """Keys and values of before, as an input and as a result; a bias of the scores for all or for each head and item."""
    present = [("present", TP.FLOAT)]
    for (b, s, d, heads), before, causal in itertools.product(((1, 1, 4, 1), (2, 5, 12, 3), (3, 7, 64, 4)), (0, 1, 9), (0, 1)):
        x, w, e = f32(rng, b, s, d), f32(rng, d, 3 * d) / np.float32(d ** 0.5), f32(rng, 3 * d)
        past = f32(rng, 2, b, heads, before, d // heads)
        name = f"attention_past_{b}_{before}_{causal}"
        for form, mask in masks_of(rng, b, s, before + s).items():
            put(cases, f"{name}_{form}", "Attention", dict(x=x, w=w, e=e, mask=mask, past=past), F + present, ("w", "e"), num_heads=heads, unidirectional=causal)
        for many, one in (("all", (1, 1)), ("each", (b, heads))) if not before else ():  # ONNX Runtime has no bias beside a past
            for form, mask in masks_of(rng, b, s, s).items():
                put(cases, f"attention_bias_{b}_{causal}_{many}_{form}", "Attention", dict(x=x, w=w, e=e, mask=mask, past=None, bias=f32(rng, *one, s, s)), F, ("w", "e"), num_heads=heads, unidirectional=causal, mask_filter_value=-1000.0)
    x, w, e, past = f32(rng, 2, 3, 8), f32(rng, 8, 24), f32(rng, 24), f32(rng, 2, 2, 2, 4, 4)
    put(cases, "attention_past_unseen", "Attention", dict(x=x, w=w, e=e, mask=None, past=past), F + present, ("w", "e"), num_heads=2, scale=0.7)


def byte_attention(cases, rng):
    """One scale and zero point of the weights, or one for each column; masks, past and present."""
    one = lambda t, *shape: some_bytes(rng, t, *shape)
    for (b, s, d, heads), tw, columns, causal in itertools.product(((1, 1, 4, 1), (2, 5, 12, 3), (3, 17, 64, 4)), BYTES, (0, 1), (0, 1)):
        n, name = 3 * d, f"qattention_{b}_{np.dtype(tw).name}_{columns}_{causal}"
        sw = np.asarray(rng.uniform(0.001, 0.003, n if columns else ()), np.float32)
        at = dict(x=one(np.uint8, b, s, d), w=one(tw, d, n), e=f32(rng, n), sx=np.float32(0.02), sw=sw)
        zeros = dict(zx=one(np.uint8), zw=one(tw, n) if columns else one(tw))
        for before in (None, 0, 6):
            past = None if before is None else f32(rng, 2, b, heads, before, d // heads)
            for form, mask in masks_of(rng, b, s, (before or 0) + s).items():
                if form == "none" or heads > 1:
                    out = F if before is None else F + [("present", TP.FLOAT)]
                    put(cases, f"{name}_{before}_{form}", "QAttention", dict(**at, mask=mask, **zeros, past=past), out, ("w", "e", "sx", "sw", "zx", "zw"), (1e-3, 1e-4), num_heads=heads, unidirectional=causal)
        put(cases, f"{name}_plain", "QAttention", at, F, ("w", "e", "sx", "sw"), (1e-3, 1e-4), num_heads=heads, unidirectional=causal, scale=0.3)


def byte_lstm(cases, rng):
    """Every optional input, directions, lengths (0 too), cells with peepholes, clipping, coupled gates, other activations; scales for all or for each column."""
    Y = [("y", TP.FLOAT), ("yh", TP.FLOAT), ("yc", TP.FLOAT)]
    wide = (5e-3, 5e-3)  # a state at a tie takes the next byte, and the steps after it see that
    def lstm(name, t, tw, batch, width, hidden, direction="forward", columns=False, given=(), fixed=True, outputs=Y, zero=True, **more):
        dirs, g = 2 if direction == "bidirectional" else 1, 4 * hidden
        per = (dirs, g) if columns else (dirs,)
        scale = lambda k: np.asarray(rng.uniform(0.5, 1.5, per) / (60 * k ** 0.5), np.float32)
        zeros = lambda: np.full(per, some_bytes(rng, tw) // 8, tw) if zero else np.zeros(per, tw)
        lengths = np.asarray(rng.integers(0, t + 1, batch), np.int32)
        options = dict(b=f32(rng, dirs, 2 * g) * np.float32(0.3), lengths=lengths, h=f32(rng, dirs, batch, hidden) * np.float32(0.5), c=f32(rng, dirs, batch, hidden), p=f32(rng, dirs, 3 * hidden) * np.float32(0.3))
        options = {k: v if k in given else None for k, v in options.items()}
        put(cases, f"lstm_{name}", "DynamicQuantizeLSTM", dict(x=f32(rng, t, batch, width), w=some_bytes(rng, tw, dirs, width, g), r=some_bytes(rng, tw, dirs, hidden, g), **options, sw=scale(width), zw=zeros(), sr=scale(hidden), zr=zeros()), outputs,
            ("w", "r", "b", "p", "sw", "zw", "sr", "zr") if fixed else ("sw", "zw", "sr", "zr"), wide, hidden_size=hidden, direction=direction, **more)
    directions = ("forward", "reverse", "bidirectional")
    for (t, batch, width, hidden), tw, direction in itertools.product(((1, 1, 1, 1), (4, 2, 3, 5), (7, 5, 33, 17), (3, 9, 64, 40), (12, 1, 20, 130)), BYTES, directions):
        name = f"{t}_{batch}_{width}_{hidden}_{np.dtype(tw).name}_{direction}"
        for given in ((), ("b",), ("b", "lengths"), ("b", "h", "c"), ("b", "lengths", "h", "c", "p")):
            lstm(f"{name}_{''.join(k[0] for k in given)}", t, tw, batch, width, hidden, direction, given=given)
        lstm(f"{name}_columns", t, tw, batch, width, hidden, direction, True, ("b", "lengths"), zero=False)
    for direction in directions:
        lstm(f"clip_{direction}", 6, np.int8, 3, 9, 11, direction, given=("b",), clip=0.4)
        lstm(f"coupled_{direction}", 6, np.uint8, 3, 9, 11, direction, given=("b", "lengths"), input_forget=1)
        acts = ["HardSigmoid", "Softsign", "Relu"] * (2 if direction == "bidirectional" else 1)
        lstm(f"acts_{direction}", 6, np.int8, 3, 9, 11, direction, given=("b",), activations=acts, activation_alpha=[0.3] * (len(acts) // 3), activation_beta=[0.4] * (len(acts) // 3))
        lstm(f"states_{direction}", 6, np.int8, 4, 9, 11, direction, given=("b", "lengths"), outputs=[("", TP.FLOAT)] + Y[1:])
        lstm(f"last_{direction}", 6, np.int8, 1, 9, 11, direction, given=("b",), outputs=[("", TP.FLOAT), Y[1]])
    lstm("free", 5, np.uint8, 3, 7, 10, "bidirectional", given=("b", "lengths"), fixed=False)


def generate(cases, rng):
    for part in (distances, activations, norms, products, convolutions, byte_products, byte_convolutions, byte_functions, rounding, attention, attention_with_past, byte_attention, byte_lstm):
        part(cases, rng)
