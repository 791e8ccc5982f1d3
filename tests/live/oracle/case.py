"""Folders in the layout of ONNX's node tests: a model, its inputs, and what its output must be by ONNX Runtime and, beside it, by the library that trained it."""
import json, os, sys
import numpy as np
import onnx, onnxruntime as ort
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38, 1e-10, 16777217.0, -1.0], np.float32)


def plain(value, order):
    """Outputs as arrays. A list of maps class → probability is the tensor it was made from; order: the classes of the model's ZipMap."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return np.array([[row[k] for k in order or row] for row in value], np.float32)
    if isinstance(value, list):
        return [np.asarray(v) for v in value]
    value = np.asarray(value)
    return value.astype(object) if value.dtype.kind in "US" else value


def zipmap_order(model):
    for node in model.graph.node:
        if node.op_type == "ZipMap":
            for a in node.attribute:
                return [v.decode() if isinstance(v, bytes) else v for v in helper.get_attribute_value(a)]
    return None


def post(name, scores):
    """What the specification says of post_transform, over the last axis."""
    s = np.asarray(scores, np.float64)
    if name == "LOGISTIC":
        return (1 / (1 + np.exp(-s))).astype(np.float32)
    if name.startswith("SOFTMAX"):
        used = np.ones_like(s) if name == "SOFTMAX" else (s != 0)
        e = np.exp(s - s.max(-1, keepdims=True)) * used
        return (e / np.maximum(e.sum(-1, keepdims=True), 1e-300)).astype(np.float32)
    return s.astype(np.float32)


def session(model):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


class Cases:
    """Collects folders under `root`. by_reference: models that ONNX Runtime refuses, so that ONNX's reference evaluator decides; no_oracle: both refuse."""

    def __init__(self, root):
        self.root, self.names, self.by_reference, self.no_oracle, self.no_converter = root, [], [], [], []

    def _folder(self, name, model, inputs, outputs, tolerance):
        at = os.path.join(self.root, name)
        data = os.path.join(at, "test_data_set_0")
        os.makedirs(data)  # fails on a name used twice
        with open(os.path.join(at, "model.onnx"), "wb") as f:
            f.write(model.SerializeToString())
        for what, values in (("input", inputs), ("output", outputs)):
            for i, value in enumerate(values):
                if value is not None:
                    with open(os.path.join(data, f"{what}_{i}.pb"), "wb") as f:
                        proto = numpy_helper.from_list(value) if isinstance(value, list) else numpy_helper.from_array(value)
                        f.write(proto.SerializeToString())
        with open(os.path.join(at, "data.json"), "w") as f:
            json.dump({"rtol": tolerance[0], "atol": tolerance[1]}, f)
        self.names.append(name)

    def add(self, name, model, inputs, tolerance=(1e-4, 1e-5)):
        """One folder with ONNX Runtime's outputs, or those of the reference evaluator where it refuses the model. Returns them, or None."""
        outputs = self.outputs_of(name, model, inputs)
        if outputs is not None:
            self._folder(name, model, inputs, outputs, tolerance)
        return outputs

    def outputs_of(self, name, model, inputs):
        try:
            s = session(model)
            return [plain(o, zipmap_order(model)) for o in s.run(None, {i.name: x for i, x in zip(s.get_inputs(), inputs)})]
        except Exception as e:  # ONNX Runtime raises a dozen types of its own
            why = " ".join(str(e).split())
        try:
            given = {i.name: x for i, x in zip(model.graph.input, inputs)}
            outputs = [plain(o, zipmap_order(model)) for o in ReferenceEvaluator(model).run(None, given)]
        except Exception:
            self.no_oracle.append((name, why[-150:]))
            return None
        self.by_reference.append((name, why[-150:]))
        return outputs

    def add_expected(self, name, model, inputs, outputs, tolerance=(1e-4, 1e-5)):
        """One folder whose outputs were worked out here: where ONNX Runtime is known to stray from the specification."""
        self._folder(name, model, inputs, outputs, tolerance)

    def add_own(self, name, model, inputs, outputs, tolerance):
        """A second folder: the same model must give what its library predicts. outputs: None where the library says nothing."""
        self._folder(name + "@library", model, inputs, outputs, tolerance)


def model(nodes, inputs, outputs, initializers=(), opset=17, ml=None):
    """A model of nodes; inputs and outputs: (name, element type, shape)."""
    info = [[helper.make_tensor_value_info(*v) for v in side] for side in (inputs, outputs)]
    graph = helper.make_graph(list(nodes), "g", info[0], info[1], list(initializers))
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid("ai.onnx.ml", ml)] if ml else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10 if opset > 20 else 8)


def ml_node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, domain="ai.onnx.ml", **attributes)
