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
        with urllib.request.urlopen(req, timeout=60 * PATIENCE) as r:
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


# A page of another address in the same browser, which holds the gateway's cookie: what it may try without asking, and what it has to ask for.
ATTACK = """<!doctype html><title>foreign</title><body><script>
const gateway = %(gateway)s, registry = %(registry)s, job = %(job)s, yaml = %(yaml)s;
const done = {}, note = (k, v) => { done[k] = v; };
function wants(name, url, how) {
    note(name, "…");
    fetch(url, {credentials: "include", ...how}).then(r => r.text().then(t => note(name, r.type === "opaque" ? "sent blindly" : "read " + r.status + " " + t.slice(0, 40))), e => note(name, "refused"));
}
const post = type => ({method: "POST", body: yaml, headers: type ? {"Content-Type": type} : {}});
for (const host of [gateway, gateway.replace("127.0.0.1", "localhost")]) {
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""])
        wants(host + " blind " + type, host + "/v1/jobs", {mode: "no-cors", ...post(type)});
    for (const type of ["application/yaml", "application/json"])
        wants(host + " asked " + type, host + "/v1/jobs", post(type));
    wants(host + " read", host + "/v1/jobs", {});
    wants(host + " read blind", host + "/v1/jobs", {mode: "no-cors"});
    wants(host + " delete", host + "/v1/jobs/" + job, {method: "DELETE"});
    wants(host + " terminate", host + "/v1/jobs/" + job + "/terminate", {method: "POST", mode: "no-cors"});
    navigator.sendBeacon(host + "/v1/jobs", yaml);
    for (const enctype of ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded"])
        for (const path of ["/v1/jobs", "/v1/jobs/" + job + "/terminate", "/v1/jobs/" + job + "/halt"]) {
            const frame = document.createElement("iframe"), form = document.createElement("form"), field = document.createElement("input");
            frame.name = enctype + path + host;
            Object.assign(form, {method: "POST", action: host + path, enctype, target: frame.name});
            Object.assign(field, {name: "name: x", value: yaml});
            form.append(field);
            document.body.append(frame, form);
            form.submit();
        }
    for (const path of ["/v1/jobs/" + job + "/terminate", "/v1/jobs", "/"]) {
        const img = new Image();
        img.onload = () => note(host + " img " + path, "shown");
        img.src = host + path;
    }
    const stream = new EventSource(host + "/events/stream", {withCredentials: true});
    note(host + " stream", "…");
    stream.onopen = () => note(host + " stream", "open");
    stream.onerror = () => { if (done[host + " stream"] !== "open") note(host + " stream", "refused"); };
}
for (const host of [registry, registry.replace("127.0.0.1", "localhost")]) {
    for (const type of ["text/plain", ""])
        wants(host + " schema " + type, host + "/subjects/foreign-value/versions", {method: "POST", mode: "no-cors", body: '{"schema": "\\"string\\""}', headers: type ? {"Content-Type": type} : {}});
    wants(host + " schema asked", host + "/subjects/foreign-value/versions", {method: "POST", body: '{"schema": "\\"string\\""}', headers: {"Content-Type": "application/vnd.schemaregistry.v1+json"}});
    wants(host + " delete", host + "/subjects/" + %(subject)s, {method: "DELETE"});
    wants(host + " read", host + "/subjects", {});
}
</script></body>"""


def foreign_pages(p, browser, running):
    """Served from another port, under both names of this computer: nothing is published, ended, registered, deleted or read."""
    import http.server, threading
    sub = PREFIX + "logs-value"
    html = (ATTACK % {"gateway": json.dumps(p.gateway), "registry": json.dumps(p.registry), "job": json.dumps(running), "yaml": json.dumps(manifest("foreign", f"touch {p.dir}/foreign")), "subject": json.dumps(sub)}).encode()

    shown = []

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            shown.append(self.headers.get("Cookie"))
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(html)))
            self.end_headers()
            self.wfile.write(html)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    before = len(p.read(PREFIX + "jobs.requests"))
    try:
        for host in ("127.0.0.1", "localhost"):
            browser.open(p.page)  # its cookie is there and fresh
            browser.open(f"http://{host}:{server.server_address[1]}/")
            until(lambda: browser.run("return Object.values(done).length > 20 && !Object.values(done).includes('…')"), 30, lambda: f"the foreign page waits: {browser.run('return done')}")
            time.sleep(2)  # forms and images come to their end
            done = browser.run("return done")
            got = {k: v for k, v in done.items() if v not in ("refused", "sent blindly")}
            check(not got, f"a page of {host} got through with {got}")
    finally:
        server.shutdown()
    check(len(shown) >= 2 and not any(shown), f"a server on another port is shown the page's cookie: {shown}")
    check(len(p.read(PREFIX + "jobs.requests")) == before, "a foreign page published a request")
    check(not (p.dir / "foreign").exists() and p.show(running)["state"] == "PROCESSING", f"a foreign page ran or ended a job: {p.show(running)['state']}")
    with urllib.request.urlopen(p.registry + "/subjects", timeout=10) as r:
        subjects = json.loads(r.read())
    check("foreign-value" not in subjects and sub in subjects, f"a foreign page changed the registry: {subjects}")
    browser.errors()  # its own complaints are no errors of ours
    browser.open(p.gateway + "/")  # without the token: this browser has been here
    until(lambda: browser.text("#link") == "live", 20, "the page does not work after that")


with Platform() as p:
    browser = Browser(p.dir / "chromium")
    p.children.append(browser.process)
    browser.open(p.gateway + "/")
    check("token" in browser.text("body") and not browser.text("#link"), f"without the token the page shows {browser.text('body')[:200]}")
    browser.open(p.page)
    at = browser.run("return location.href")
    check(at.startswith(p.gateway + "/page-") and p.token not in at, f"the token stays in the address: {at}")
    until(lambda: browser.text("#link") == "live", 20, lambda: f"the page is {browser.text('#link')}")
    until(lambda: "No jobs yet" in browser.text("#jobs-none"), 20, "the empty page does not say what to do")
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
    until(lambda: "boom" in browser.text("#jobs tbody"), 20, lambda: f"the table does not tell what went wrong: {browser.text('#jobs tbody')}")
    check("exited with status" not in browser.text("#jobs tbody"), f"the table does not begin with what went wrong: {browser.text('#jobs tbody')}")
    until(lambda: "curves" in browser.text("#jobs tbody"), 20, "a new page does not show the jobs")
    browser.run(f"document.querySelector('tr[data-id={done}]').click()")
    until(lambda: "loss" in browser.text("#job-charts") and "accuracy" in browser.text("#job-charts"), 20, lambda: f"charts: {browser.text('#job-charts')}")
    until(lambda: "line 40 & <b>not bold</b>" in browser.text("#log"), 20, lambda: f"log: {browser.text('#log')[-200:]}")
    check(browser.run("return document.querySelectorAll('#log b').length") == 0, "log text is taken for HTML")
    check(browser.run("return document.querySelectorAll('#job-charts canvas').length") >= 2, "no curves")
    time.sleep(3)
    browser.shot("live.png")
    browser.open(p.gateway + "/", 420, 1500)
    widths = until(lambda: browser.run("return [...document.querySelectorAll('#jobs .why')].map(e => e.clientWidth)"), 30, "on a phone no jobs are shown")
    time.sleep(2)
    check(widths and min(widths) > 250, f"on a phone the reasons of jobs are {widths} wide")
    browser.shot("narrow.png")
    # What keeps a pipeline waiting, and a model that it does not take, stand on the page and in `penstock status` in the scorer's own words.
    g.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((7, 1), dtype=np.float32), "w"))
    g.input[0].CopyFrom(helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", 7]))
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), p.dir / "m7.onnx")
    p.cli("models", "register", p.dir / "m7.onnx", "--name", "sum", "--alias", "champion")
    first = p.read(PREFIX + "pipelines")[-1].value()  # published by hand: `apply` would not let a pipeline wait for a model that nobody has registered
    spec = p.decode(first)
    spec |= {"name": "late", "spec": spec["spec"].replace("sums", "late").replace("name: sum,", "name: no-such-model,").replace('"name":"sum"', '"name":"no-such-model"')}
    producer = p.producer()
    producer.produce(PREFIX + "pipelines", p.encode(struct.unpack(">I", first[1:5])[0], spec), key="late")
    check(producer.flush(30) == 0, "published")
    until(lambda: "model sum version 2 is not used" in browser.text(".says") and "waiting for model" in browser.text(".says"), 30, lambda: f"the page says {browser.text('#pipes')}")
    shows = lambda: (lambda t: t if "sum version 2 is not used" in t and "no-such-model" in t else None)(p.cli("status").stdout)
    until(shows, 30, lambda: f"status shows {p.cli('status').stdout}")
    status = {s["name"]: s for s in json.loads(p.cli("status", "--json").stdout)["services"]}
    check("version 2" in status["score:sums"]["model_refused"] and status["score:late"]["waits_for"] == "model", f"status --json: {status}")
    browser.shot("waiting.png")
    browser.open(p.gateway + "/")
    until(lambda: "model sum version 2 is not used" in browser.text(".says") and "waiting for model" in browser.text(".says"), 30, lambda: f"a page that was opened later says {browser.text('#pipes')}")
    p.cli("models", "alias", "sum", "champion", 1)
    until(lambda: "version 2 is not used" not in browser.text(".says"), 30, "a refusal stays on the page")
    until(lambda: "version 2 is not used" not in p.cli("status").stdout, 30, "a refusal stays in status")
    errors = browser.errors()
    foreign_pages(p, browser, running)
    browser.open(p.gateway + "/")
    until(lambda: browser.text("#link") == "live", 20, "the page is not live")
    # The gateway goes away and comes back: the page says so and finds its way by itself.
    os.kill(p.pids("gateway")[0], signal.SIGKILL)
    until(lambda: browser.text("#link") != "live", 20, "a lost connection is not shown")
    until(lambda: browser.text("#link") == "live", 40, lambda: f"after the gateway's restart: {browser.text('#link')}")
    errors = [e for e in errors + browser.errors() if "ERR_CONNECTION" not in e and "ERR_INCOMPLETE_CHUNKED" not in e and "ERR_EMPTY_RESPONSE" not in e and "401 (Unauthorized)" not in e]
    check(not errors, f"script errors: {errors[:3]}")
    browser.close()
print(f"ok: pictures in {SHOTS}")
