"""8-bit models of onnxruntime.quantization beside ONNX Runtime: one thread each, in one process by turns, CPU time.

    PENSTOCK_BUILD=DIR $(tests/live/venv-models) tests/bench/engine/int8.py [WORD]        models whose name contains WORD; prints a table
"""
import json, logging, os, sys, tempfile
os.environ["OMP_NUM_THREADS"] = "1"
from pathlib import Path
import numpy as np
import bench, models

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "live/oracle"))
import nets, optimised

logging.disable(logging.WARNING)


def image_net(rng, size=28, wide=64):
    """Six convolutions of 3 × 3 with sums around pairs of them, a pool over all, a layer."""
    from onnx import TensorProto as TP, helper
    w, N, x = nets.Weights(rng), helper.make_node, "c0"
    nodes = [N("Conv", ["x", w(wide, 3, 3, 3), w(wide)], ["f"], pads=[1] * 4), N("Relu", ["f"], ["c0"])]
    for i in range(3):
        nodes += [N("Conv", [x, w(wide, wide, 3, 3), w(wide)], [f"a{i}"], pads=[1] * 4), N("Relu", [f"a{i}"], [f"b{i}"]), N("Conv", [f"b{i}", w(wide, wide, 3, 3), w(wide)], [f"d{i}"], pads=[1] * 4),
                  N("Add", [f"d{i}", x], [f"e{i}"]), N("Relu", [f"e{i}"], [f"c{i + 1}"])]
        x = f"c{i + 1}"
    nodes += [N("GlobalAveragePool", [x], ["p"]), N("Flatten", ["p"], ["g"]), N("Gemm", ["g", w(10, wide), w(10)], ["y"], transB=1)]
    return optimised.model(nodes, [("x", TP.FLOAT, ["N", 3, size, size])], [("y", TP.FLOAT, ["N", 10])], w.all)


def main(word):
    rng = np.random.default_rng(3)
    made = [("MLP 256-512-512-10", nets.mlp(rng, [256, 512, 512, 10]), (256,), 10, (1, 8, 64, 512)), ("residual net 3×28×28, 64 filters", image_net(rng), (3, 28, 28), 10, (1, 8)),
            ("encoder, 2 layers, d 128, 64 steps", nets.encoder(rng), (64, 16), 1, (1, 8, 64))]
    print("| model | batch | penstock | ONNX Runtime | penstock / ONNX Runtime |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, m, dims, values, batches in made:
            feeds = [dict(x=rng.normal(size=(16, *dims)).astype(np.float32))]
            for how, q in optimised.quantised(m, feeds, folder, ["MatMul", "Gemm", "Conv", "Add"]):
                what = f"{name}, {how}"
                if how in ("dynamic_u8", "qdq_columns") or word not in what:
                    continue
                path = os.path.join(folder, "timed.onnx")
                Path(path).write_bytes(q.SerializeToString())
                sides = bench.measure(models.Model(what, path, dims=dims, values=values, rows=1024, batches=batches), 0.3, 5, None)
                for b in map(str, batches):
                    ours, theirs = (sides[s]["ns"][b] / 1000 for s in ("penstock", "ONNX Runtime"))
                    print(f"| {what} | {b} | {ours:,.1f} | {theirs:,.1f} | {ours / theirs:.2f} |", flush=True)


if __name__ == "__main__":
    bench.TOLERANCE = 0.2  # steps of the quantised results, where they are rounded the other way
    main(sys.argv[1] if len(sys.argv) > 1 else "")
