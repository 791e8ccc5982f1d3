"""Who may: token, cookie, Host, Origin, types of bodies; modes of files; secrets in argv, addresses and the profile. What is answered is as described."""
import base64, http.client, re, stat, urllib.parse
from kit import *

YAML, WORD = "application/yaml", f"Geheim{random.randrange(10**9):09d}"


def ask(url, path, method="GET", headers={}, body=None, host=None, head=False):
    """Status and body; Host and all other fields as given, nothing added."""
    u = urllib.parse.urlsplit(url)
    c = http.client.HTTPConnection(u.hostname, u.port, timeout=15 * PATIENCE)
    try:
        c.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        c.putheader("Host", u.netloc if host is None else host)
        for k, v in headers.items():
            c.putheader(k, v)
        data = body.encode() if isinstance(body, str) else body
        if data is not None:
            c.putheader("Content-Length", str(len(data)))
        c.endheaders(data)
        r = c.getresponse()
        return r.status, b"" if head else r.read(), dict(r.getheaders())
    finally:
        c.close()


def requests_seen():
    return len(p.read(PREFIX + "jobs.requests"))


def refused_pages():
    """With the right token: what a page of another origin, a form or a re-bound name would send publishes nothing."""
    me, body, before = {"Authorization": "Bearer " + p.token}, manifest("foreign", "touch /tmp/foreign"), requests_seen()
    port = urllib.parse.urlsplit(p.gateway).port
    rows = [({"Content-Type": YAML, "Origin": "http://evil.example"}, 403), ({"Content-Type": YAML, "Origin": "null"}, 403),
            ({"Content-Type": YAML, "Origin": f"http://localhost:{port}"}, 403), ({"Content-Type": YAML, "Sec-Fetch-Site": "cross-site"}, 403),
            ({"Content-Type": YAML, "Sec-Fetch-Site": "same-site"}, 403), ({"Content-Type": "text/plain"}, 415), ({}, 415),
            ({"Content-Type": "application/x-www-form-urlencoded"}, 415), ({"Content-Type": "multipart/form-data; boundary=x", "Origin": "http://evil.example"}, 403)]
    for headers, wanted in rows:
        status, text, _ = ask(p.gateway, "/v1/jobs", "POST", {**me, **headers}, body)
        check(status == wanted, f"POST /v1/jobs with {headers}: {status} {text[:100]}, not {wanted}")
        status, _, _ = ask(p.gateway, "/v1/jobs/training-x/terminate", "POST", {**me, **headers}, "x=y")
        check(status == wanted, f"POST …/terminate with {headers}: {status}, not {wanted}")
    bad = ("127.evil.example", "127.0.0.1.nip.io", "evil.example", "localhost.evil.example", "evil.localhost", "0x7f.1", "2130706433", "127.1", "[::ffff:127.0.0.1]",
           "localhost.", "127.0.0.1.", "a@localhost", "0.0.0.0", "")
    for url, path, headers in ((p.gateway, "/v1/jobs", me), (p.registry, "/subjects", {})):
        for host in [h + s for h in bad for s in ("", f":{port}")]:
            status, _, _ = ask(url, path, headers=headers, host=host)
            check(status in (400, 421), f"{url} answers {status} to Host: {host}")
        for host in ("localhost", "127.0.0.1", f"LOCALHOST:{port}", "[::1]:1", "127.9.9.9"):
            check(ask(url, path, headers=headers, host=host)[0] == 200, f"{url} does not answer to Host: {host}")
    check(requests_seen() == before, "something that was refused stands on jobs.requests")


def refused_by_registry():
    body, json_type = json.dumps({"schema": '"string"'}), {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    for headers, wanted in (({**json_type, "Origin": "http://evil.example"}, 403), ({"Content-Type": "text/plain"}, 415), ({}, 415), ({**json_type, "Sec-Fetch-Site": "cross-site"}, 403)):
        check(ask(p.registry, "/subjects/who-value/versions", "POST", headers, body)[0] == wanted, f"the registry takes a schema with {headers}")
    check(ask(p.registry, "/subjects/who-value/versions")[0] == 404, "a refused schema is there")
    subject = PREFIX + "logs-value"
    check(ask(p.registry, f"/subjects/{subject}", "DELETE", {"Origin": "http://evil.example"})[0] == 403, "a foreign page deletes a subject")
    check(ask(p.registry, f"/subjects/{subject}/versions")[0] == 200, "a refused deletion is done")
    check(ask(p.registry, "/subjects/who-value/versions", "POST", json_type, body)[0] == 200, "a plain client may no longer register")


def token_asked():
    open_ = [f"{m} {path}" for m, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/"), ("GET", "/web/app.js"), ("GET", "/events/stream"), ("GET", "/nowhere"), ("OPTIONS", "/v1/jobs"),
                                           ("DELETE", "/v1/jobs/x"), ("HEAD", "/v1/jobs")) if ask(p.gateway, path, m, head=True)[0] != 401]
    check(not open_, f"without a token, not 401: {open_}")
    for path in ("/health", "/metrics"):
        check(ask(p.gateway, path)[0] == 200, f"{path} asks for a token")
    basic = lambda word: "Basic " + base64.b64encode(word.encode()).decode()
    for value, wanted in (("Bearer " + p.token, 200), ("bearer  " + p.token, 200), (basic("any:" + p.token), 200), (basic(":" + p.token), 200), ("Bearer " + "x" * 43, 401), ("Bearer", 401),
                          ("Bearer ", 401), (basic(p.token), 401), (basic(f"{p.token}:x"), 401), ("Basic x", 401), (p.token, 401), (f"Bearer {p.token[:-1]}", 401)):
        check(ask(p.gateway, "/v1/jobs", headers={"Authorization": value})[0] == wanted, f"Authorization: {value.replace(p.token, 'TOKEN')} is not answered {wanted}")
    check(ask(p.gateway, f"/v1/jobs?token={p.token}")[0] == 401, "a token in the address opens more than the page")
    check(ask(p.gateway, "/?token=" + "x" * 43)[0] == 401, "a wrong token in the page's address lets in")
    status, _, headers = ask(p.gateway, f"/?token={p.token}")
    cookie = headers.get("Set-Cookie", "")
    place = headers.get("Location", "")
    check(status == 303 and re.fullmatch("/page-[0-9a-f]{32}/", place) and "HttpOnly" in cookie and "SameSite=Strict" in cookie and p.token not in cookie + place, f"GET /?token=: {status} {headers}")
    check(f"; Path={place};" in cookie, f"the cookie is shown to servers on other ports, it is for {cookie}")
    check(ask(p.gateway, place, headers={"Accept": "text/html"})[0] == 401 and ask(p.gateway, place + "v1/jobs")[0] == 401, "the place lets in without the cookie")
    mine = {"Cookie": "other=1; " + cookie.partition(";")[0]}
    check(b"<html" in ask(p.gateway, "/", headers=mine)[1] and ask(p.gateway, "/v1/jobs", headers=mine)[0] == 200, "the cookie does not let in")
    check(b"<html" in ask(p.gateway, place, headers=mine)[1] and ask(p.gateway, place + "v1/jobs", headers=mine)[0] == 200 and ask(p.gateway, place + "web/app.js", headers=mine)[0] == 200, "nothing at the page's place")
    check(ask(p.gateway, "/events/stream", headers=mine, head=True)[0] == 200, "the cookie does not open the stream")
    check(ask(p.gateway, "/v1/jobs", headers={**mine, "Authorization": "Bearer wrong"})[0] == 401, "a cookie makes a wrong token good")
    secret = cookie.partition(";")[0].partition("=")[2]
    check(ask(p.gateway, "/v1/jobs", headers={"Authorization": "Bearer " + secret})[0] == 401, "the cookie's value is taken for a token")
    status, text, _ = ask(p.gateway, "/v1/jobs", "POST", {"Authorization": basic("carla:" + p.token), "Content-Type": YAML, "Origin": p.gateway, "Sec-Fetch-Site": "same-origin"}, manifest("own", "true"))
    check(status == 202, f"the page's own submission: {status} {text[:200]}")
    job = json.loads(text)["training_id"]
    check(p.wait_state(job, "COMPLETED")["user"] == "carla", "basic auth's user is not the job's")
    return job


def fits(doc, schema, value):
    """What of a value is not as its JSON Schema says: types, required keys, enumerations; None when all is."""
    if "$ref" in schema:
        return fits(doc, doc["components"]["schemas"][schema["$ref"].rpartition("/")[2]], value)
    if "anyOf" in schema:
        wrong = [fits(doc, s, value) for s in schema["anyOf"]]
        return None if None in wrong else wrong[0]
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    name, wanted = names[type(value)], schema.get("type", [])
    wanted = [wanted] if isinstance(wanted, str) else wanted
    if wanted and name not in wanted and not (name == "integer" and "number" in wanted):
        return f"{value!r} is no {wanted}"
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return f"{value!r} is none of {schema}"
    if isinstance(value, list):
        return next((w for w in (fits(doc, schema.get("items", {}), v) for v in value) if w), None)
    if isinstance(value, dict):
        missing = [k for k in schema.get("required", []) if k not in value]
        rest = schema.get("additionalProperties", {})
        return f"without {missing}" if missing else next((f"{k}: {w}" for k, w in ((k, fits(doc, schema.get("properties", {}).get(k, rest), v)) for k, v in value.items()) if w), None)


def as_described(job):
    """Every operation of /openapi.json is asked with the token, for a job that is there and one that is not: status, type and body are described."""
    me = {"Authorization": "Bearer " + p.token}
    status, text, _ = ask(p.gateway, "/openapi.json", headers=me)
    check(status == 200 and ask(p.gateway, "/openapi.json")[0] == 401, f"/openapi.json: {status}")
    doc = json.loads(text)
    check(doc == json.loads((ROOT / "docs/reference/openapi.json").read_text()), "what is served is not what docs/reference has")
    seen = set()
    every = [(path, method, op) for path, operations in doc["paths"].items() for method, op in operations.items()]
    for path, method, op in sorted(every, key=lambda o: o[1] != "get"):  # what is to be read first, before a DELETE
        for one in sorted({path.replace("{id}", job), path.replace("{id}", "training-none")}):
            if "text/event-stream" in op["responses"].get("200", {}).get("content", {}):
                continue
            headers, body = dict(me), None
            if "requestBody" in op:
                headers["Content-Type"], body = "application/json", json.dumps({"manifest": manifest("described", "true")})
            status, text, head = ask(p.gateway, one, method.upper(), headers, body)
            answer = op["responses"].get(str(status))
            check(answer, f"{method} {one} is answered {status}, described are {list(op['responses'])}")
            if not text and "content" not in answer:
                continue
            kind = head.get("Content-Type", "").partition(";")[0]
            check(kind in answer["content"], f"{method} {one}: {status} of type {kind}, described is {list(answer['content'])}")
            wrong = fits(doc, answer["content"][kind]["schema"], json.loads(text) if "json" in kind else text.decode(errors="replace"))
            check(not wrong, f"{method} {one}: {status}, {wrong}")
            seen.add((op["operationId"], status))
    check({("showJob", 200), ("showJob", 404), ("readEvents", 200), ("readLogs", 404), ("submitJob", 202), ("haltJob", 202), ("showModel", 200), ("health", 200)} <= seen, f"seen: {sorted(seen)}")


def state_told():
    """GET /state for those who may, SIGUSR1 for those who may signal; neither tells the password that the settings hold."""
    me = {"Authorization": "Bearer " + p.token}
    for name in ("trainer", "lcm"):
        pid = next(s["pid"] for s in json.loads(p.cli("status", "--json").stdout)["services"] if s["name"] == name)
        os.kill(pid, signal.SIGUSR1)
        log = next(f for f in (p.dir / "state/log").iterdir() if f.name.startswith(name))
        until(lambda: f" {name} event=state at=/" in log.read_text(), 10, f"{name}: SIGUSR1 leaves nothing in {log}")
        check(alive(pid) and WORD not in log.read_text(), f"{name} is gone after SIGUSR1, or a secret stands in its log")
    # A scorer that waits for its model is looked into while it waits.
    port = free_ports(1)
    (p.dir / "waits.yml").write_text(f"name: waits\ninput: {{topics: [{PREFIX}none]}}\nmodel: {{name: none, alias: champion}}\noutput: {{topic: none.scores}}\n")
    w = p.spawn("score", "run", "-c", p.dir / "waits.yml", "--metrics-listen", port, log="waits.log")
    url = f"http://127.0.0.1:{port}"
    until(lambda: "event=metrics" in (p.dir / "waits.log").read_text(), 20, "the scorer does not listen")
    check(ask(url, "/state")[0] == 401, "the scorer's /state asks for no token")
    state = until(lambda: (lambda r: json.loads(r[1]) if r[0] == 200 else None)(ask(url, "/state", headers=me)), 20, "the scorer does not tell its state")
    check(state["component"] == "score" and state["pipeline"] == "waits" and not state["ready"], f"the scorer's state: {state}")
    w.terminate()
    w.wait(20)
    for url, component in ((p.gateway, "gateway"), (p.registry, "registry")):
        check(ask(url, "/state")[0] == 401, f"{component}: /state asks for no token")
        check(ask(url, "/state", headers={"Authorization": "Bearer x"})[0] == 401, f"{component}: /state takes a wrong token")
        status, text, _ = ask(url, "/state", headers=me)
        state = json.loads(text)
        check(status == 200 and state["component"] == component and state["http"]["requests"] > 0 and WORD not in text.decode() and p.token not in text.decode(), f"{component}: /state: {status} {text[:300]}")
        log = next(f for f in (p.dir / "state/log").iterdir() if f.name.startswith(component))
        os.kill(state["pid"], signal.SIGUSR1)
        lines = until(lambda: [l for l in log.read_text().splitlines() if "event=state at=/" in l], 10, f"{component}: SIGUSR1 leaves nothing in {log}")
        check(WORD not in "".join(lines), f"{component}: a secret stands in the dump")
        check(ask(url, "/health")[0] == 200, f"{component} is gone after SIGUSR1")
    check(json.loads(ask(p.registry, "/state", headers=me)[1])["subjects"] > 0, "the registry's state knows no subject")


def alone(*args, path="/v1/jobs", headers=None):
    """A gateway of its own: its exit status, or None while it serves."""
    port = free_ports(1)
    w = p.spawn("gateway", "--port", port, *args, log="alone.log")
    try:
        deadline = time.monotonic() + 15 * PATIENCE
        while time.monotonic() < deadline and w.poll() is None:
            try:
                return None, ask(f"http://127.0.0.1:{port}", path, headers=headers or {})[0]
            except OSError:
                time.sleep(0.1)
        return w.poll(), 0
    finally:
        w.terminate()
        w.wait(20)


def open_only_here():
    check(alone("--listen", "0.0.0.0", "--auth", "none")[0] == 2, "a gateway for everybody without a token starts")
    check("0.0.0.0" in (p.dir / "alone.log").read_text(), "the refusal does not say what was wrong")
    check(alone("--auth", "nobody")[0] == 2, "--auth nobody is taken")
    check(alone("--auth", "none") == (None, 200), "--auth none on loopback does not serve")
    # FfDL's paths let every origin read by CORS: without a token that would be every page that is open here
    for headers, status in (({"Origin": "http://evil.example"}, 403), ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Origin": "null"}, 403), ({"Origin": "http://localhost/"}, 200)):
        check(alone("--auth", "none", path="/v1/models", headers=headers) == (None, status), f"--auth none shows jobs to {headers}, or refuses FfDL's client")
    check(alone("--listen", "0.0.0.0") == (None, 401), "a gateway for everybody with a token does not ask for it")


def closed_files():
    state = p.dir / "state"
    wide = [f"{f.relative_to(state)} {stat.S_IMODE(f.lstat().st_mode):o}" for f in [state, *state.iterdir(), *(state / "log").iterdir(), *(state / "objects").rglob("*")]
            if not f.is_symlink() and f.lstat().st_mode & 0o077]
    check(not wide, f"open to others: {wide}")
    check(stat.S_IMODE(state.stat().st_mode) == 0o700 and (state / "store.db").exists() and (state / "token").exists(), "the state folder is not as it should be")


def no_secrets_shown():
    for pid, _ in p.processes():
        check(WORD not in (Path(f"/proc/{pid}/cmdline").read_bytes()).decode(errors="replace"), f"the password stands in the command line of {pid}")
    other, was = p.dir / "state-url", p.env["PENSTOCK_STATE_DIR"]
    address = urllib.parse.urlsplit(p.registry).netloc
    p.env["PENSTOCK_STATE_DIR"] = str(other)
    try:
        p.cli("up", "--detach", "--prefix", "who.", "--without", "trainer,lcm,gateway,scorers", "--registry", f"http://user:{WORD}@{address}", timeout=60)
        up = json.loads(p.cli("status", "--json").stdout)
        texts = {" ".join(a): "".join(p.cli(*a, ok=False).__dict__[k] for k in ("stdout", "stderr")) for a in (("status",), ("status", "--json"), ("config", "explain"), ("config", "explain", "--json"), ("doctor",), ("up", "--detach"))}
        texts |= {f.name: f.read_text() for f in (other / "profile.json", other / "up.json", *(other / "log").iterdir())}
        check(up["registry"] == "http://" + address, f"status names the registry {up['registry']}")
        check(stat.S_IMODE((other / "secrets.json").stat().st_mode) == 0o600 and WORD in (other / "secrets.json").read_text(), "the credentials are not where later commands find them")
        p.cli("topics", "list")
    finally:
        p.cli("down", ok=False)
        p.env["PENSTOCK_STATE_DIR"] = was
    check(not [n for n, t in texts.items() if WORD in t], f"the password stands in {[n for n, t in texts.items() if WORD in t]}")


with Platform(up_args=("-X", f"sasl.password={WORD}")) as p:
    as_described(token_asked())
    refused_pages()
    refused_by_registry()
    state_told()
    open_only_here()
    closed_files()
    no_secrets_shown()
    # A registry behind a password asks every client for it; those that have it in their settings go on working.
    (p.dir / "password").write_text(WORD + "\n")
    port = free_ports(1)
    w = p.spawn("registry", "--port", port, "--topic", "who-schemas", "--password", f"@{p.dir}/password", log="registry2.log")
    url = f"http://127.0.0.1:{port}"
    until(lambda: "listening" in (p.dir / "registry2.log").read_text(), 20, "the registry with a password does not listen")
    until(lambda: ask(url, "/health")[0] == 200, 20, "the registry with a password is not ready")
    check(ask(url, "/subjects")[0] == 401, "the registry with a password asks nobody")
    check(ask(url, "/subjects", headers={"Authorization": "Basic " + base64.b64encode(f"any:{WORD}".encode()).decode()})[0] == 200, "the registry's password is not taken")
print("ok: token, cookie, Host, Origin, types, modes, argv, addresses, description")
