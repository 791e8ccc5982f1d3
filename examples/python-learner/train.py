#!/usr/bin/env python3
"""A learner with Python's standard library alone: a network of one hidden layer learns which points lie inside a circle.

What a learner does for penstock:
  stdout           lines become log events; a JSON object with "penstock": "metrics" becomes a metric event
  CHECKPOINT_DIR   outlives a halt: what is saved there is found again when the job is resumed
  SIGTERM          the job is halted or terminated: save, then leave
  RESULT_DIR       model/model.onnx is registered under the name in the manifest; model/model.json says more about it
"""
import json, math, os, random, signal, struct
from pathlib import Path

EPOCHS, HIDDEN, POINTS, BATCH, RATE = int(os.environ.get("EPOCHS", "60")), 12, 300, 10, 0.3
checkpoint = Path(os.environ.get("CHECKPOINT_DIR", ".")) / "circle.json"
results = Path(os.environ.get("RESULT_DIR", "."))
stop = False


def told_to_stop(signum, frame):
    global stop
    stop = True


signal.signal(signal.SIGTERM, told_to_stop)


def write_whole(path, data):
    """First beside it, then in its place: nobody ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_bytes(data)
    os.replace(new, path)


# ---- data and network ------------------------------------------------------------------------------------------------------------

def points(seed, n):
    r = random.Random(seed)
    at = [(r.uniform(-1, 1), r.uniform(-1, 1)) for _ in range(n)]
    return [((x, y), 1.0 if x * x + y * y < 0.5 else 0.0) for x, y in at]


def new_network():
    r = random.Random(1)
    return {"w1": [[r.gauss(0, 1.5) for _ in range(2)] for _ in range(HIDDEN)], "b1": [r.gauss(0, 0.5) for _ in range(HIDDEN)],
            "w2": [r.gauss(0, 0.5) for _ in range(HIDDEN)], "b2": 0.0}


def forward(net, p):
    h = [math.tanh(w[0] * p[0] + w[1] * p[1] + b) for w, b in zip(net["w1"], net["b1"])]
    return h, 1 / (1 + math.exp(-sum(w * v for w, v in zip(net["w2"], h)) - net["b2"]))


def train_batch(net, batch):
    """One step down the gradient of the cross-entropy; returns the loss before it."""
    gw1, gb1 = [[0.0, 0.0] for _ in range(HIDDEN)], [0.0] * HIDDEN
    gw2, gb2, loss = [0.0] * HIDDEN, 0.0, 0.0
    for p, t in batch:
        h, y = forward(net, p)
        loss -= math.log(max(y if t else 1 - y, 1e-12))
        d = y - t
        gb2 += d
        for i in range(HIDDEN):
            gw2[i] += d * h[i]
            dh = d * net["w2"][i] * (1 - h[i] * h[i])
            gb1[i] += dh
            gw1[i][0] += dh * p[0]
            gw1[i][1] += dh * p[1]
    k = RATE / len(batch)
    net["b2"] -= k * gb2
    for i in range(HIDDEN):
        net["w2"][i] -= k * gw2[i]
        net["b1"][i] -= k * gb1[i]
        net["w1"][i] = [w - k * g for w, g in zip(net["w1"][i], gw1[i])]
    return loss


def evaluate(net, data):
    outputs = [(forward(net, p)[1], t) for p, t in data]
    loss = -sum(math.log(max(y if t else 1 - y, 1e-12)) for y, t in outputs) / len(data)
    return loss, sum((y > 0.5) == (t > 0.5) for y, t in outputs) / len(data)


# ---- ONNX without a package: protobuf's wire format is a few lines ---------------------------------------------------------------

def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def number(field, n):
    return varint(field << 3) + varint(n)


def blob(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def tensor(name, dims, floats):  # TensorProto: dims 1, data_type 2 (1 = float), name 8, raw_data 9
    return b"".join(number(1, d) for d in dims) + number(2, 1) + blob(8, name) + blob(9, struct.pack(f"<{len(floats)}f", *floats))


def node(op, inputs, output, *attributes):  # NodeProto: input 1, output 2, op_type 4, attribute 5
    return b"".join(blob(1, i) for i in inputs) + blob(2, output) + blob(4, op) + b"".join(blob(5, a) for a in attributes)


def whole(name, value):  # AttributeProto: name 1, i 3, type 20 (2 = INT)
    return blob(1, name) + number(3, value) + number(20, 2)


def value(name, width):  # ValueInfoProto: name 1, type 2 → tensor_type 1 → elem_type 1, shape 2 → dim 1 (value 1 or param 2)
    shape = blob(1, blob(2, "N")) + blob(1, number(1, width))
    return blob(1, name) + blob(2, blob(1, number(1, 1) + blob(2, shape)))


def onnx_model(net, metadata):
    graph = (blob(1, node("Gemm", ["input", "w1", "b1"], "sum", whole("transB", 1))) + blob(1, node("Tanh", ["sum"], "hidden"))
             + blob(1, node("Gemm", ["hidden", "w2", "b2"], "logit", whole("transB", 1))) + blob(1, node("Sigmoid", ["logit"], "inside"))
             + blob(2, "circle") + blob(5, tensor("w1", [HIDDEN, 2], [v for w in net["w1"] for v in w]))
             + blob(5, tensor("b1", [HIDDEN], net["b1"])) + blob(5, tensor("w2", [1, HIDDEN], net["w2"]))
             + blob(5, tensor("b2", [1], [net["b2"]])) + blob(11, value("input", 2)) + blob(12, value("inside", 1)))
    model = number(1, 8) + blob(2, "penstock example") + blob(7, graph) + blob(8, blob(1, "") + number(2, 17))
    return model + b"".join(blob(14, blob(1, k) + blob(2, v)) for k, v in metadata.items())


# ---- training --------------------------------------------------------------------------------------------------------------------

def metrics(**values):
    print(json.dumps({"penstock": "metrics", **values}), flush=True)


def main():
    held = points(3, 200)
    net, first = new_network(), 0
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        net, first = saved["net"], saved["epoch"]
        print(f"resuming after epoch {first}", flush=True)
    for epoch in range(first + 1, EPOCHS + 1):
        data = points(2, POINTS)
        random.Random(epoch).shuffle(data)  # an order of its own for each epoch, the same when resumed
        loss = sum(train_batch(net, data[i:i + BATCH]) for i in range(0, POINTS, BATCH)) / POINTS
        held_loss, accuracy = evaluate(net, held)
        write_whole(checkpoint, json.dumps({"epoch": epoch, "net": net}).encode())
        steps = epoch * (POINTS // BATCH)
        metrics(group="train", epoch=epoch, step=steps, loss=loss)
        metrics(group="validation", epoch=epoch, step=steps, loss=held_loss, accuracy=accuracy)
        if epoch % 10 == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, {accuracy:.0%} of the held-out points are right", flush=True)
        if stop:
            print(f"told to stop: saved after epoch {epoch}", flush=True)
            return
    held_loss, accuracy = evaluate(net, held)
    features = ["x", "y"]
    about = {"penstock.features": json.dumps([{"field": f} for f in features]), "penstock.score": "raw"}
    write_whole(results / "model/model.json",
                json.dumps({"features": features, "metrics": {"validation_loss": held_loss, "validation_accuracy": accuracy}}).encode())
    write_whole(results / "model/model.onnx", onnx_model(net, about))
    print(f"done: the model is in {results / 'model'}", flush=True)


main()
