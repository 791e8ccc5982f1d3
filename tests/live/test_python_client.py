"""penstock-client, as pip installs it from its own wheel: what a learner logs with it are MetricPoints, and a program submits, follows, reads and ends jobs by the gateway."""
from kit import *

# Stand-ins with the frameworks' names: what matters here is what our callbacks make of their calls.
FRAMEWORKS = {"keras/__init__.py": "from . import callbacks\n", "keras/callbacks.py": "class Callback: pass\n", "transformers.py": "class TrainerCallback: pass\n",
              "lightning/__init__.py": "", "lightning/pytorch/__init__.py": "", "lightning/pytorch/callbacks.py": "class Callback: pass\n"}
LEARNER = """
import sys
from types import SimpleNamespace as N
from penstock_client import log
from penstock_client.callbacks import keras, lightning, transformers
class Tensor:
    def __init__(self, *v): self.v = v
    def item(self):
        if len(self.v) > 1: raise RuntimeError("several elements")
        return self.v[0]
print("an ordinary line")
for i in range(3): log(loss=1 / 2**i, step=i)
log({"top-5": Tensor(0.75)}, group="test", step=3, epoch=1.5)
log(loss=float("nan"), step=4)
keras().on_epoch_end(0, {"loss": 0.5, "val_loss": 0.25})
lightning().on_train_epoch_end(N(is_global_zero=True, callback_metrics={"acc": Tensor(0.5), "val_acc": Tensor(1.0), "grid": Tensor(1, 2)}, global_step=70, current_epoch=6), None)
transformers().on_log(None, N(is_world_process_zero=True, global_step=80, epoch=0.8), None, logs={"loss": 0.1, "eval_loss": 0.2, "epoch": 0.8})
for bad in (dict(), dict(loss="many"), dict(time=3)):
    try: log(**bad)
    except (TypeError, ValueError) as e: print("refused:", e, file=sys.stderr)
    else: sys.exit(3)
"""


def install(p):
    wheel, site = p.dir / "wheel", p.dir / "site"
    r = subprocess.run([sys.executable, "-m", "pip", "-q", "wheel", "--disable-pip-version-check", "--no-deps", "-w", wheel, shutil.copytree(ROOT / "clients/python", p.dir / "source")], capture_output=True, text=True)
    if r.returncode and "setuptools" in r.stderr:
        skip(f"PyPI does not give setuptools, which builds the wheel: {r.stderr[-200:]}")
    check(r.returncode == 0, f"pip wheel: {r.stderr[-500:]}")
    file, = wheel.glob("penstock_client-0.1.0-py3-none-any.whl")
    subprocess.run([sys.executable, "-m", "pip", "-q", "install", "--disable-pip-version-check", "--no-deps", "--target", site, file], check=True)
    for name, text in FRAMEWORKS.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    sys.path.insert(0, str(site))
    return site


def learner(p, c, site):
    code = p.dir / "code"
    code.mkdir()
    (code / "learn.py").write_text(LEARNER)
    (code / ".hidden").write_text("x" * 2_000_000)
    job = c.submit(manifest("client", f"ls -a | grep -c hidden; PYTHONPATH={site} {sys.executable} learn.py"), code=code)
    lines = [line["text"] for line in c.follow(job)]
    check(c.job(job)["state"] == "COMPLETED", f"{c.job(job)}: {lines}")
    check("an ordinary line" in lines and "0" in lines and len([t for t in lines if t.startswith("refused:")]) == 3, f"lines: {lines}")
    rows = [r for r in c.metrics(job) if r["group"] != "system"]

    def of(group, *names):
        return [tuple(r.get(n) for n in names) for r in rows if r["group"] == group and all(n in r for n in names)]
    check(of("train", "step", "loss")[:3] == [(0, 1.0), (1, 0.5), (2, 0.25)], f"{rows}")
    check(of("test", "step", "epoch", "top-5") == [(3, 1.5, 0.75)], f"{rows}")
    check([r["loss"] != r["loss"] for r in rows if r["step"] == 4] == [True], f"NaN: {rows}")
    check(of("train", "step", "loss")[-2:] == [(1, 0.5), (80, 0.1)] and of("validation", "step", "loss") == [(1, 0.25), (80, 0.2)], f"keras, transformers: {rows}")
    check(of("train", "step", "epoch", "acc") == [(70, 7, 0.5)] and of("validation", "step", "acc") == [(70, 1.0)] and not any("grid" in r for r in rows), f"lightning: {rows}")
    print(f"a learner: {len(rows)} evaluations")


def submitter(p, c):
    from penstock_client import Client, PenstockError, Rejected
    text = manifest("sleeper", "echo hello; sleep 600")
    job = c.submit(text, request_id="one")
    check(c.submit(text, request_id="one") == job, "the same request is another job")
    until(lambda: any(j["training_id"] == job for j in c.jobs(name="sleep*")), 30, "it is in the list")
    until(lambda: c.job(job)["state"] == "PROCESSING", 60, "it runs")
    check(c.why(job) and any(e["type"] == "ADMITTED" for e in c.events(job)), "why and events")
    try:
        c.wait(job, timeout=0.2)
        check(False, "a job that sleeps has ended")
    except TimeoutError:
        pass
    c.halt(job)
    check(c.wait(job, timeout=60 * PATIENCE)["state"] == "HALTED", "halt")
    c.resume(job)
    until(lambda: c.job(job)["state"] == "PROCESSING", 60, "it runs again")
    c.terminate(job)
    check(c.wait(job, timeout=60 * PATIENCE)["state"] == "TERMINATED", "terminate")
    c.delete(job)
    for what, kind, told in ((lambda: c.submit("name: x\nlearners: 0\n"), Rejected, "learners"), (lambda: c.job("training-none"), PenstockError, "404"),
                             (lambda: Client(p.gateway, "wrong").job(job), PenstockError, "401")):
        try:
            what()
            check(False, f"not refused: {told}")
        except kind as e:
            check(told in str(e), f"{told}: {e}")
    check(p.token not in repr(c), "a token in repr()")
    print("a submitter: request ids, halt, resume, terminate, refusals")


with Platform() as p:
    site = install(p)
    os.environ["PENSTOCK_STATE_DIR"] = p.env["PENSTOCK_STATE_DIR"]
    for name in ("PENSTOCK_GATEWAY", "PENSTOCK_TOKEN"):
        os.environ.pop(name, None)
    from penstock_client import Client
    client = Client()
    check(client.gateway == p.gateway and str(site) in sys.modules["penstock_client"].__file__, f"{client} of {sys.modules['penstock_client'].__file__}")
    learner(p, client, site)
    submitter(p, client)
print("ok: python client")
