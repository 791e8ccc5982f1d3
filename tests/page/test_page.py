"""The live page in headless Chromium: a job with its curves and log, a scoring pipeline with rate, lag and latency; no script errors; screenshots for people."""
import sys, os, json, subprocess, shutil, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../live"))
from kit import *

chromium = shutil.which("chromium") or shutil.which("google-chrome")
node, npm = shutil.which("node"), shutil.which("npm")
if not chromium:
    skip("no Chromium (apt install chromium)")
SHOTS = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build")) / "screenshots"
SHOTS.mkdir(parents=True, exist_ok=True)


def browse(url, shot, size="1280,900", budget=12000):
    """Loads the page, lets it live for a while, returns the document as it then is."""
    common = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
              "--disable-dev-shm-usage", f"--user-data-dir={p.dir}/chromium", f"--window-size={size}", "--hide-scrollbars", "--enable-logging=stderr", "--v=0", f"--timeout={budget}"]
    r = subprocess.run([*common, f"--screenshot={shot}", url], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90)
    check(shot.exists(), f"no screenshot: {r.stderr[-300:]}")
    d = subprocess.run([*common, "--dump-dom", url], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90)
    errors = [l for l in (r.stderr + d.stderr).splitlines() if "CONSOLE" in l and ("Error" in l or "Refused" in l)]
    check(not errors, f"script errors: {errors[:3]}")
    return d.stdout


with Platform() as p:
    dom = browse(p.gateway + "/", SHOTS / "empty.png", budget=4000)
    check("No jobs yet" in dom and "<h1>penstock</h1>" in dom, f"the empty page: {dom[:200]}")
    code = ('for i in $(seq 1 40); do echo "{\\"penstock\\":\\"metrics\\",\\"step\\":$i,\\"loss\\":$(awk "BEGIN{print 2/$i+0.1}"),\\"accuracy\\":$(awk "BEGIN{print 1-1/($i+1)}")}"; '
            'echo "line $i & <b>not bold</b>"; sleep 0.05; done')
    done = p.submit(manifest("curves", code))
    failed = p.submit(manifest("fails", "echo boom >&2; exit 3"))
    p.wait_state(failed, "FAILED")
    p.wait_state(done, "COMPLETED")
    running = p.submit(manifest("still-running", "sleep 300"))
    p.wait_state(running, "PROCESSING")
    source = p.spawn("source", "telemetry", "--interval", "50ms", log="source.log")
    import numpy as np, onnx
    from onnx import helper, TensorProto, numpy_helper
    g = helper.make_graph([helper.make_node("MatMul", ["in", "w"], ["out"])], "g", [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", 2])],
                          [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 1])], [numpy_helper.from_array(np.ones((2, 1), dtype=np.float32), "w")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), p.dir / "m.onnx")
    p.cli("models", "register", p.dir / "m.onnx", "--name", "sum", "--alias", "champion")
    time.sleep(1)
    p.create("sums")
    (p.dir / "pipe.yml").write_text("name: sums\ninput: {topics: [telemetry], group: sums, start: latest, format: avro}\nmodel: {name: sum, alias: champion}\nfeatures: [{field: cpu.user}, {field: load1}]\n"
                                    "output: {topic: sums, format: slim}\nguarantee: at_least_once\n")
    p.cli("pipelines", "apply", p.dir / "pipe.yml")
    p.read("sums", lambda ms: len(ms) > 60, 60)
    dom = browse(p.gateway + "/", SHOTS / "live.png")
    for want in ("curves", "fails", "still-running", "PROCESSING", "COMPLETED", "FAILED", 'class="link live"'):
        check(want in dom, f"the page does not show {want}")
    check("<b>not bold</b>" not in dom, "log text is taken for HTML")
    check('class="pipe"' in dom and "records per second" in dom and "latency" in dom, "the scoring pipeline is not shown")
    rate = dom.split('id="t-rate">')[1].split("<")[0]
    check(rate not in ("–", "0"), f"the stream's rate is {rate}")
    browse(p.gateway + "/", SHOTS / "narrow.png", size="420,1400")
print(f"ok: pictures in {SHOTS}")
