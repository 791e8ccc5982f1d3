"""Compiles a boosted model to a shared object: compile.py tl2cgen|lleaves MODEL OUT.so (run by bench.py, with the Python that has them)."""
import subprocess, sys
from pathlib import Path

how, model, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
if how == "tl2cgen":
    import tl2cgen, treelite
    tl2cgen.export_lib(treelite.frontend.load_xgboost_model(model), toolchain="gcc", libpath=str(out), params={"parallel_comp": 32})
    print(f"tl2cgen {tl2cgen.__version__}")
else:
    import lleaves
    m = lleaves.Model(model_file=model)
    m.compile(cache=str(out.with_suffix(".o")))
    subprocess.run(["cc", "-shared", "-o", out, out.with_suffix(".o"), "-lm"], check=True)
    print("lleaves 1.3.0")
