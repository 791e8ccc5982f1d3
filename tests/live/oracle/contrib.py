"""Operators of ONNX Runtime's own (com.microsoft), which its optimiser and converters write: each beside ONNX Runtime itself."""
import itertools
import numpy as np
from onnx import TensorProto as TP, helper, numpy_helper
from case import model

TYPES = {np.dtype(np.float32): TP.FLOAT, np.dtype(np.float64): TP.DOUBLE, np.dtype(np.uint8): TP.UINT8, np.dtype(np.int8): TP.INT8, np.dtype(np.int32): TP.INT32, np.dtype(np.int64): TP.INT64, np.dtype(object): TP.STRING}


def contrib(op, inputs, outputs, fixed=(), **attributes):
    """One node; inputs: name → array, "" left out is written as None; fixed: names that are initializers; outputs: (name, type)."""
    node = helper.make_node(op, ["" if v is None else k for k, v in inputs.items()], [o[0] for o in outputs], domain="com.microsoft", **attributes)
    given = [(k, v) for k, v in inputs.items() if v is not None]
    m = model([node], [(k, TYPES[v.dtype], [None] * v.ndim) for k, v in given if k not in fixed], [(*o, None) for o in outputs], [numpy_helper.from_array(v, k) for k, v in given if k in fixed])
    m.opset_import.extend([helper.make_opsetid("com.microsoft", 1)])
    return m, [v for k, v in given if k not in fixed]


def put(cases, name, op, inputs, outputs, fixed=(), tolerance=(1e-4, 1e-5), **attributes):
    m, feeds = contrib(op, inputs, outputs, fixed, **attributes)
    return cases.add("ms_" + name, m, feeds, tolerance)


def distances(cases, rng):
    for (m, n, k), t, metric in itertools.product(((1, 1, 1), (7, 5, 3), (20, 33, 40)), (np.float32, np.float64), ("euclidean", "sqeuclidean")):
        a, b = rng.normal(size=(m, k)).astype(t), rng.normal(size=(n, k)).astype(t)
        put(cases, f"cdist_{m}_{np.dtype(t).name}_{metric}", "CDist", dict(a=a, b=b), [("y", TYPES[np.dtype(t)])], metric=metric)


def generate(cases, rng):
    for part in (distances,):
        part(cases, rng)
