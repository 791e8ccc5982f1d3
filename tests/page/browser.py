"""Chromium for the tests of the page: by the WebDriver protocol, with what axe-core finds. Without one the test that asks for it is skipped."""
import json, os, shutil, subprocess, sys, urllib.request
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

    def at(self, view):
        self.run(f"location.hash = {json.dumps(view)}")

    def cdp(self, command, **params):
        return self.call("POST", self.session + "/goog/cdp/execute", {"cmd": command, "params": params})

    def phone(self, on):
        if on:
            self.cdp("Emulation.setDeviceMetricsOverride", width=390, height=1500, deviceScaleFactor=1, mobile=False)
        else:
            self.cdp("Emulation.clearDeviceMetricsOverride")

    def dark(self, on):
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}])

    def find(self, selector):
        return next(iter(self.call("POST", self.session + "/element", {"using": "css selector", "value": selector}).values()))

    def type(self, selector, text):
        """As fingers do; for a file's field: its path."""
        self.call("POST", f"{self.session}/element/{self.find(selector)}/value", {"text": str(text)})

    def click(self, selector):
        self.call("POST", f"{self.session}/element/{self.find(selector)}/click", {})

    def press(self, key):
        self.call("POST", self.session + "/actions", {"actions": [{"type": "key", "id": "keys", "actions": [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]}]})

    def errors(self):
        return [e["message"] for e in self.call("POST", self.session + "/se/log", {"type": "browser"}) if e["level"] == "SEVERE"]

    def close(self):
        self.try_call("DELETE", self.session)
        self.process.terminate()
        self.process.wait(20)


def accessible(browser, view):
    """Nothing that axe-core calls serious or critical, in either colour scheme."""
    axe = Path(subprocess.run([ROOT / "tests/page/axe", sys.executable], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()).read_text()
    for dark in (False, True):
        browser.dark(dark)
        browser.run("document.activeElement.blur()")
        browser.run(axe + "; window.axe = axe; window.found = null; axe.run(document, {resultTypes: ['violations']}).then(r => { window.found = r.violations.map(v => [v.impact, v.id, v.nodes.slice(0, 3).map(n => n.html.slice(0, 160) + ' ' + n.failureSummary.slice(0, 200))]) }, e => { window.found = [['critical', String(e), []]] })")
        found = until(lambda: (lambda f: f is not None and [f])(browser.run("return window.found")), 30, "axe does not end")[0]
        bad = [f for f in found if f[0] in ("serious", "critical")]
        check(not bad, f"{view}{' in the dark' if dark else ''}: {bad}")
    browser.dark(False)
