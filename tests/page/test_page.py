"""The live page in headless Chromium: a job with its curves and log, a scoring pipeline with rate, lag and latency; no script errors; screenshots for people."""
import sys, os, json, subprocess, shutil, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../live"))
from kit import *

chromium, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
if not chromium or not driver:
    skip("no Chromium with its driver (apt install chromium chromium-driver)")
SHOTS = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build")) / "screenshots"
SHOTS.mkdir(parents=True, exist_ok=True)


class Browser:
    """Chromium by the WebDriver protocol."""

    def __init__(self, folder):
        self.port = free_ports(1)
        self.process = subprocess.Popen([driver, f"--port={self.port}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
                 "--disable-dev-shm-usage", f"--user-data-dir={folder}", "--hide-scrollbars"]
        until(lambda: self.try_call("GET", "/status"), 20, "chromedriver does not answer")
        self.session = "/session/" + self.call("POST", "/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"binary": chromium, "args": flags}, "goog:loggingPrefs": {"browser": "ALL"}}}})["sessionId"]

    def try_call(self, *a):
        try:
            return self.call(*a)
        except OSError:
            return None

    def call(self, method, path, body=None):
        req = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode() if body is not None else None, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(req, timeout=60) as r:
            return json.loads(r.read())["value"]

    def open(self, url, width=1280, height=900):
        self.call("POST", self.session + "/window/rect", {"width": width, "height": height})
        self.call("POST", self.session + "/url", {"url": url})

    def run(self, script):
        return self.call("POST", self.session + "/execute/sync", {"script": script, "args": []})

    def text(self, selector):
        return self.run(f"return [...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent).join(' | ')")

    def shot(self, name):
        import base64
        (SHOTS / name).write_bytes(base64.b64decode(self.call("GET", self.session + "/screenshot")))

    def errors(self):
        return [e["message"] for e in self.call("POST", self.session + "/se/log", {"type": "browser"}) if e["level"] == "SEVERE"]

    def close(self):
        self.try_call("DELETE", self.session)
        self.process.terminate()
        self.process.wait(20)


with Platform() as p:
    browser = Browser(p.dir / "chromium")
    p.children.append(browser.process)
    browser.open(p.gateway + "/")
    check("token" in browser.text("body") and not browser.text("#link"), f"without the token the page shows {browser.text('body')[:200]}")
    browser.open(p.page)
    check(browser.run("return location.href") == p.gateway + "/", f"the token stays in the address: {browser.run('return location.href')}")
    until(lambda: browser.text("#link") == "live", 20, lambda: f"the page is {browser.text('#link')}")
    check("No jobs yet" in browser.text("#jobs-none"), "the empty page does not say what to do")
    browser.shot("empty.png")
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
    # The page that was open all the while has followed; nothing was reloaded.
    until(lambda: all(w in browser.text("#jobs tbody") for w in ("curves", "fails", "still-running", "PROCESSING", "COMPLETED", "FAILED")), 20, lambda: f"the open page shows {browser.text('#jobs tbody')}")
    until(lambda: browser.text(".pipe p").startswith("sums"), 20, "the pipeline is not shown")
    until(lambda: browser.text("#t-rate") not in ("–", "0"), 20, lambda: f"the stream's rate is {browser.text('#t-rate')}")
    browser.open(p.gateway + "/")
    until(lambda: "curves" in browser.text("#jobs tbody"), 20, "a new page does not show the jobs")
    browser.run(f"document.querySelector('tr[data-id={done}]').click()")
    until(lambda: "loss" in browser.text("#job-charts") and "accuracy" in browser.text("#job-charts"), 20, lambda: f"charts: {browser.text('#job-charts')}")
    until(lambda: "line 40 & <b>not bold</b>" in browser.text("#log"), 20, lambda: f"log: {browser.text('#log')[-200:]}")
    check(browser.run("return document.querySelectorAll('#log b').length") == 0, "log text is taken for HTML")
    check(browser.run("return document.querySelectorAll('#job-charts canvas').length") >= 2, "no curves")
    time.sleep(3)
    browser.shot("live.png")
    browser.open(p.gateway + "/", 420, 1500)
    time.sleep(2)
    browser.shot("narrow.png")
    # The gateway goes away and comes back: the page says so and finds its way by itself.
    os.kill(p.pids("gateway")[0], signal.SIGKILL)
    until(lambda: browser.text("#link") != "live", 20, "a lost connection is not shown")
    until(lambda: browser.text("#link") == "live", 40, lambda: f"after the gateway's restart: {browser.text('#link')}")
    errors = [e for e in browser.errors() if "ERR_CONNECTION" not in e and "ERR_INCOMPLETE_CHUNKED" not in e and "ERR_EMPTY_RESPONSE" not in e and "401 (Unauthorized)" not in e]
    check(not errors, f"script errors: {errors[:3]}")
    browser.close()
print(f"ok: pictures in {SHOTS}")
