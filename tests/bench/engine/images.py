"""Image nets beside ONNX Runtime: one thread each, in one process by turns, CPU time.

    PENSTOCK_BUILD=DIR $(tests/live/venv-models) tests/bench/engine/images.py [WORD]        nets whose name contains WORD; prints a table

The last column is the mark: the median of the rounds' ratios, at or under 1 being wanted."""
import os, sys, tempfile
os.environ["OMP_NUM_THREADS"] = "1"
from pathlib import Path
import numpy as np
import onnx
import bench, models

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "live/oracle"))
import images


def main(word):
    print("| net | image | batch | penstock, ms | ONNX Runtime, ms | penstock / ONNX Runtime |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, make in images.ALL.items():
            for size in (32, 64, 96, 160, 224):
                what = f"{name} {size}"
                if word not in what:
                    continue
                path = os.path.join(folder, "net.onnx")
                onnx.save(make(np.random.default_rng(7), size), path)
                batches = (1, 8) if size <= 64 else (1,)
                m = models.Model(what, path, dims=(3, size, size), values=1000, rows=8, batches=batches)
                sides = bench.measure(m, float(os.environ.get("SECONDS_A_TURN", "0.3")), 7, None)
                for b in map(str, batches):
                    ours, theirs = (sides[s]["ns"][b] / 1e6 for s in ("penstock", "ONNX Runtime"))
                    print(f"| {name} | {size}² | {b} | {ours:,.2f} | {theirs:,.2f} | {sides['ONNX Runtime']['first_to_this'][b]:.2f} |", flush=True)


if __name__ == "__main__":
    bench.TOLERANCE = 2e-3
    main(sys.argv[1] if len(sys.argv) > 1 else "")
