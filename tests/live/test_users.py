"""Users of the gateway: made as a person makes them, each with a view of its own, on every way in (own API, FfDL's, event stream, page), all of it under TLS; what is published is theirs; no secret shows anywhere."""
import base64, datetime, http.client, http.server, ipaddress, ssl, stat, urllib.parse
from kit import *
from cryptography import x509
from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

YAML = "application/yaml"
WORDS = {name: f"Geheim-{name}-{random.randrange(10**9):09d}" for name in ("ann", "bob", "vera", "olga")}
ROLES = {"ann": "user", "bob": "user", "vera": "viewer", "olga": "operator"}


def basic(name, word=None):
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{word or WORDS[name]}".encode()).decode()}


def ask(name, path, method="GET", body=None, headers={}, word=None):
    """Status, body, header fields; name None: without a credential."""
    u = urllib.parse.urlsplit(p.gateway)
    c = http.client.HTTPSConnection(u.hostname, u.port, timeout=30 * PATIENCE, context=trust())
    try:
        c.request(method, path, body, {**(basic(name, word) if name else {}), **({"Content-Type": YAML} if body else {}), **headers})
        r = c.getresponse()
        said = r.read().decode(errors="replace")
        shown.append(said + str(r.getheaders()))
        return r.status, said, dict(r.getheaders())
    finally:
        c.close()


def trust():
    return ssl.create_default_context(cafile=cert)


def dial(timeout):
    u = urllib.parse.urlsplit(p.gateway)
    return trust().wrap_socket(socket.create_connection((u.hostname, u.port), timeout=timeout), server_hostname=u.hostname), u


def make_pair():
    """A certificate for this computer, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "penstock")]), datetime.datetime.now(datetime.timezone.utc)
    made = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False).sign(key, hashes.SHA256()))
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    cert_key.touch(0o600)
    cert_key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return made.serial_number


def tls():
    """https alone, the addresses say so, and a pair that was renewed is taken without a restart."""
    u = urllib.parse.urlsplit(p.gateway)
    check(u.scheme == "https", f"the address is {p.gateway}")
    with socket.create_connection((u.hostname, u.port), timeout=20 * PATIENCE) as s:
        s.sendall(f"GET /v1/me HTTP/1.1\r\nHost: {u.netloc}\r\n\r\n".encode())
        said = s.recv(4096)
    check(said.startswith(b"HTTP/1.1 400 ") and b"this port speaks TLS" in said, f"plain HTTP is told {said[:300]}")
    serial = make_pair()

    def renewed():
        with contextlib.suppress(ssl.SSLError):  # the client trusts the new one already
            with dial(20 * PATIENCE)[0] as s:
                return x509.load_der_x509_certificate(s.getpeercert(True)).serial_number == serial
    until(renewed, 10, "the renewed certificate is served")


def hash_of(word):
    r = subprocess.run([BIN, "user", "hash"], input=word + "\n", text=True, capture_output=True, timeout=30 * PATIENCE)
    check(r.returncode == 0 and r.stdout.startswith("$") and r.stdout.count("\n") == 1 and word not in r.stdout + r.stderr, f"user hash: {r}")
    return r.stdout.strip()


def hashing():
    one, two = hash_of("a word of ours"), hash_of("a word of ours")
    check(one != two, "two hashes of one password are the same: there is no salt")
    for args, text in ((["hash", "on-the-command-line"], ""), ([], ""), (["nonsense"], "x\n"), (["hash"], ""), (["hash"], "\n"), (["hash"], "x" * 400 + "\n")):
        r = subprocess.run([BIN, "user", *args], input=text, text=True, capture_output=True, timeout=30 * PATIENCE)
        check(r.returncode in (1, 2) and not r.stdout, f"penstock user {args} with {text[:9]!r}: {r}")


def submit(name, job, path="/v1/jobs", **more):
    status, said, _ = ask(name, path, "POST", manifest(job, "echo said by " + job), **more)
    check(status == 202, f"{name} submits: {status} {said[:200]}")
    return json.loads(said)["training_id"]


def stream(name, ids, seconds=4):
    """Training ids of what a stream shows of jobs, from the ring's beginning."""
    s, u = dial(5)
    with s:
        lines = "".join(f"{k}: {v}\r\n" for k, v in basic(name).items())
        s.sendall(f"GET /events/stream?kinds=event,state,log,metric HTTP/1.1\r\nHost: {u.netloc}\r\n{lines}\r\n".encode())
        text, end = b"", time.monotonic() + seconds
        while time.monotonic() < end:
            s.settimeout(max(0.1, end - time.monotonic()))
            try:
                part = s.recv(65536)
            except TimeoutError:
                break
            if not part:
                break
            text += part
    shown.append(text.decode(errors="replace"))
    check(b" 200 " in text[:20], f"the stream for {name}: {text[:100]}")
    return {i for i in ids if i.encode() in text}


def views(a, b):
    for name, sees in (("ann", {a}), ("bob", {b}), ("vera", {a, b}), ("olga", {a, b})):
        jobs = {j["training_id"] for j in json.loads(ask(name, "/v1/jobs")[1])["jobs"]}
        check(jobs == sees, f"/v1/jobs shows {name} {jobs}, not {sees}")
        models = {m["model_id"] for m in json.loads(ask(name, "/v1/models")[1])["models"]}
        check(models == sees, f"FfDL's list shows {name} {models}, not {sees}")
        check(stream(name, (a, b)) == sees, f"the stream does not show {name} {sees}")
        for job in (a, b):
            for path in ("", "/events", "/logs", "/metrics", "/why"):
                status, said, _ = ask(name, f"/v1/jobs/{job}{path}")
                check(status == (200 if job in sees else 404), f"GET /v1/jobs/…{path} by {name}: {status} {said[:200]}")
            for path in (f"/v1/models/{job}", f"/v1/logs/{job}/loglines", f"/v1/models/{job}/definition"):
                status, said, _ = ask(name, path)
                check((status == 401) == (job not in sees), f"GET {path} by {name}: {status} {said[:200]}")
    check(json.loads(ask("ann", "/v1/jobs?user=bob")[1])["jobs"] == [], "?user= shows ann what is bob's")
    check(ask("ann", "/v1/jobs/training-" + "x" * 24)[1].replace("x" * 24, "") == ask("ann", f"/v1/jobs/{b}")[1].replace(b[9:], ""), "what is not shown is told from what is not there")
    check(ask(None, f"/v1/models/{b}/logs", headers={"X-Watson-Userinfo": "bluemix-instance-id=bob"})[0] in (200, 401), "FfDL's logs")
    check(ask(None, f"/v1/models/{a}/logs", headers={"X-Watson-Userinfo": "bluemix-instance-id=bob"})[0] == 401, "ann's log lines are shown to whom bob's were")


def touching(a, b):
    before = len(p.read(PREFIX + "jobs.requests"))
    for name, job, wanted in (("ann", b, 404), ("vera", a, 403), ("vera", b, 403)):
        for path, method in ((f"/v1/jobs/{job}/halt", "POST"), (f"/v1/jobs/{job}/hold", "POST"), (f"/v1/jobs/{job}", "DELETE")):
            check(ask(name, path, method)[0] == wanted, f"{method} {path} by {name} is not {wanted}")
    check(ask("ann", f"/v1/models/{b}", "DELETE")[0] == 401 and ask("vera", f"/v1/models/{b}", "DELETE")[0] == 403, "FfDL's DELETE of another one's job")
    check(ask("vera", "/v1/jobs", "POST", manifest("v", "true"))[0] == 403, "a viewer submits")
    for name in (None, "eve"):
        check(ask(name, "/v1/jobs", "POST", manifest("v", "true"), word="x")[0] == 401, f"{name} submits")
    check(len(p.read(PREFIX + "jobs.requests")) == before, "something that was refused stands on jobs.requests")
    status, said, _ = ask("olga", f"/v1/models/{b}?dry_run=1", "DELETE")  # a word that FfDL's row does not know hides nothing from the audit
    check(status in (200, 202), f"an operator deletes: {status} {said}")
    until(lambda: b not in ask("olga", "/v1/jobs")[1], 30, "what an operator deletes goes")
    event = next(e for e in p.events("jobs.events") if e["type"] == "DELETED" and e["training_id"] == b)
    check(event["actor"] == "user:olga", f"the deletion was not hers: {event}")


def at_once():
    """Who submitted a job acts on it before the store shows it, and nobody else does."""
    for i in range(3):
        job = submit("ann", f"at-once-{i}")
        check(ask("bob", f"/v1/jobs/{job}/hold", "POST")[0] == 404, "bob is told of ann's new job")
        status, said, _ = ask("ann", f"/v1/jobs/{job}/terminate", "POST")
        check(status == 202, f"ann's own new job: {status} {said}")


def pipelines():
    """A pipeline is its author's and the operators'."""
    import onnx
    from onnx import TensorProto as T, helper as h
    graph = h.make_graph([h.make_node("Identity", ["x"], ["y"])], "g", [h.make_tensor_value_info("x", T.FLOAT, ["N", 2])], [h.make_tensor_value_info("y", T.FLOAT, ["N", 2])])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), p.dir / "m.onnx")
    p.cli("models", "register", p.dir / "m.onnx", "--name", "spam")
    p.create("orders", 1)
    p.register("orders-value", {"type": "record", "name": "O", "fields": [{"name": "a", "type": "double"}, {"name": "b", "type": "double"}]})
    text = ("name: fraud\ninput: {topics: [orders], format: avro}\nmodel: {name: spam, version: 1}\nfeatures: [{field: a}, {field: b}]\n"
            "output: {topic: orders.scores}\nscore: {type: raw}\n")
    for name, query, wanted in (("ann", "", 200), ("ann", "", 200), ("bob", "?dry_run=true", 200), ("bob", "", 403), ("olga", "", 200), ("ann", "", 403)):
        status, said, _ = ask(name, "/v1/pipelines" + query, "POST", text)
        check(status == wanted, f"{name} applies a pipeline{query}: {status} {said[:300]}, not {wanted}")


def page():
    html = {"Accept": "text/html"}
    status, said, headers = ask(None, "/", headers=html)
    check(status == 401 and "<form" in said and "script-src 'sha256-" in headers["Content-Security-Policy"], f"no login: {status} {headers}")
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": p.gateway, **html}
    check(ask(None, "/login", "POST", "name=ann&password=wrong", form)[0] == 401, "a wrong password opens the page")
    status, _, headers = ask(None, "/login", "POST", urllib.parse.urlencode({"name": "ann", "password": WORDS["ann"]}), form)
    check(status == 303 and "HttpOnly; Secure; SameSite=Strict" in headers["Set-Cookie"], f"login: {status} {headers}")
    kept.append(headers["Set-Cookie"].partition(";")[0].partition("=")[2])
    kept.append(headers["Location"].strip("/"))
    mine, place = {"Cookie": headers["Set-Cookie"].partition(";")[0]}, headers["Location"]
    shown.pop()  # the cookie is told there, to whom it belongs
    check("<html" in ask(None, place, headers={**mine, **html})[1] and json.loads(ask(None, place + "v1/me", headers=mine)[1]) == {"user": "ann", "roles": ["user"]}, "the session is not ann's")
    check(json.loads(ask(None, place + "v1/jobs", headers=mine)[1])["jobs"] != [], "the session shows nothing")
    check(ask(None, place + "v1/jobs", "POST", manifest("csrf", "true"), {**mine, "Origin": "http://evil.example"})[0] == 403, "another page acts in ann's name")
    return place, mine


def url64(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def number(n):
    return url64(n.to_bytes((n.bit_length() + 7) // 8, "big"))


def jwk(key, kid):
    n = key.public_key().public_numbers()
    if isinstance(key, rsa.RSAPrivateKey):
        return {"kty": "RSA", "kid": kid, "use": "sig", "alg": "RS256", "n": number(n.n), "e": number(n.e)}
    return {"kty": "EC", "kid": kid, "crv": "P-256", "x": url64(n.x.to_bytes(32, "big")), "y": url64(n.y.to_bytes(32, "big"))}


def line_of(key):
    return base64.b64encode(key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)).decode()


def token(key, kid=None, alg=None, **claims):
    """Signed by key; bytes: by HMAC, as one who has the public key alone would."""
    alg = alg or ("RS256" if isinstance(key, rsa.RSAPrivateKey) else "HS256" if isinstance(key, bytes) else "ES256")
    claims = {"exp": time.time() + 300, "aud": "penstock", **claims}
    text = url64(json.dumps({"alg": alg, **({"kid": kid} if kid else {})}).encode()) + "." + url64(json.dumps({k: v for k, v in claims.items() if v is not None}).encode())
    if isinstance(key, bytes):
        h = hmac.HMAC(key, hashes.SHA256())
        h.update(text.encode())
        signature = h.finalize()
    elif isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    else:
        signature = b"".join(n.to_bytes(32, "big") for n in utils.decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256()))))
    return text + "." + url64(signature)


def bearer(value, path="/v1/me", method="GET", body=None):
    status, said, headers = ask(None, path, method, body, {"Authorization": "Bearer " + value})
    check(value not in said + str(headers), "a token is told back")
    return status, said


def enters(value, name, *roles):
    status, said = bearer(value)
    check(status == 200 and json.loads(said) == {"user": name, "roles": list(roles)}, f"the token of {name} with {roles}: {status} {said}")


def stays_out(value, word):
    status, said = bearer(value)
    check(status == 401 and word in said, f"not 401 with {word!r}: {status} {said[:300]}")


def tokens(a):
    mine = token(robot, sub="ci", aud=None)
    enters(mine, "ci", "user")
    status, said = bearer(mine, "/v1/jobs", "POST", manifest("robots", "echo by a robot"))
    check(status == 202, f"a job by a token: {status} {said}")
    job = json.loads(said)["training_id"]
    until(lambda: bearer(mine, f"/v1/jobs/{job}")[0] == 200, 30, "ci sees its job")
    check(bearer(mine, f"/v1/jobs/{a}")[0] == 404 and bearer(mine, f"/v1/jobs/{a}", "DELETE")[0] == 404, "ci sees ann's job")
    check(p.wait_state(job, "COMPLETED")["user"] == "ci", "the job is not ci's")
    enters(token(idp, "one", sub="dora@example.org"), "dora@example.org", "viewer")
    enters(token(idp, "one", sub="dora", roles=["staff", "operator"], aud=["x", "penstock"]), "dora", "operator")
    check(bearer(token(idp, "one", sub="dora"), "/v1/jobs", "POST", manifest("d", "true"))[0] == 403, "a viewer by token submits")
    check(bearer(token(idp, "one", sub="dora", role="operator"), f"/v1/jobs/{a}")[0] == 200, "an operator by token does not see all")
    for value, word in ((token(idp, "one", sub="dora", roles=["guest"]), "no role of ours"), (token(idp, "one", sub="dora", aud="x"), "(aud)"), (token(idp, "one", sub="dora", exp=time.time() - 90), "(exp)"),
                        (token(idp, "one", sub="dora", exp=None), "(exp)"), (token(idp, "one", sub="dora", nbf=time.time() + 300), "(nbf)"), (token(idp, "one", sub="olga"), "password"), (token(idp, "one", sub="ci"), "none of the keys"),
                        (token(idp, "two", sub="dora"), "none of the keys"), (token(later, "one", sub="dora"), "none of the keys"), (token(robot, sub="ann"), "none of the keys"), (token(idp, "one", sub="a b"), "subject"),
                        (token(base64.b64decode(line_of(robot)), sub="ci"), "RS256 or ES256"), (token(robot, alg="none", sub="ci"), "RS256 or ES256"), (mine.rpartition(".")[0] + ".", "token"), (p.token, "token"), ("!.!.!", "token")):
        stays_out(value, word)
    s, u = dial(20 * PATIENCE)
    with s, contextlib.suppress(ConnectionError):  # a header of 1 MB
        s.sendall(f"GET /v1/me HTTP/1.1\r\nHost: {u.netloc}\r\nAuthorization: Bearer {'A' * 2**20}\r\n\r\n".encode())
        check(b" 200 " not in s.recv(100), "a token of 1 MB opens")
    provider.write_text("{")
    time.sleep(2.5)
    enters(token(idp, "one", sub="dora"), "dora", "viewer")
    provider.write_text(json.dumps({"keys": [{"kty": "RSA", "n": "?"}, jwk(later, "two")]}))
    until(lambda: bearer(token(later, "two", sub="dora"))[0] == 200, 10, "a provider's new key")
    stays_out(token(idp, "one", sub="dora"), "none of the keys")
    enters(mine, "ci", "user")


def leaves():
    """A logout ends the session and its streams, of which no other page and no kept cookie makes anything more."""
    place, mine = page()
    s, u = dial(20 * PATIENCE)
    s.sendall(f"GET {place}events/stream HTTP/1.1\r\nHost: {u.netloc}\r\nCookie: {mine['Cookie']}\r\n\r\n".encode())
    check(b" 200 " in s.recv(4096)[:20], "no stream for ann's session")
    check(ask(None, place + "logout", "POST", headers={**mine, "Origin": "http://evil.example"})[0] == 403 and ask(None, place + "v1/me", headers=mine)[0] == 200, "another page logs ann out")
    check(ask(None, place + "logout", "POST", headers=mine)[0] == 204, "no logout")
    said = b""
    while part := s.recv(65536):
        said += part
    check(b"logged out" in said, f"the stream ends with {said[-200:]}")
    s.close()
    kept = [(place, mine)]
    for _ in range(3):  # within one second, mostly
        kept.append(page())
        check(ask(None, kept[-1][0] + "v1/me", headers=kept[-1][1])[0] == 200, "a login after a logout")
        check(ask(None, kept[-1][0] + "logout", "POST", headers=kept[-1][1])[0] == 204, "no logout")
    goes_on = lambda: [i for i, (at, cookie) in enumerate(kept) if ask(None, at + "v1/me", headers=cookie)[0] != 401]
    check(not goes_on(), f"cookies that were kept go on after the logout: {goes_on()}")
    old = p.pids("gateway")[0]
    os.kill(old, signal.SIGKILL)

    def again():
        try:
            return p.pids("gateway") not in ([], [old]) and ask("ann", "/v1/me")[0] == 200
        except OSError:
            return False
    until(again, 60, "the gateway is started anew")
    check(not goes_on(), f"a start of the gateway forgets logouts: {goes_on()}")


def changes(place, mine):
    """Read again; a broken file changes nothing, a removed user is out, her session and open stream too."""
    s, u = dial(20 * PATIENCE)
    s.sendall(f"GET {place}events/stream HTTP/1.1\r\nHost: {u.netloc}\r\nCookie: {mine['Cookie']}\r\n\r\n".encode())
    check(b" 200 " in s.recv(4096)[:20], "no stream for ann's session")
    good = users.read_text()
    users.write_text(good + "broken\n")
    time.sleep(2.5)
    check(ask("ann", "/v1/me")[0] == 200, "a broken file locks users out")
    users.write_text("\n".join(l for l in good.splitlines() if not l.startswith("ann:")) + "\n")
    until(lambda: ask("ann", "/v1/me")[0] == 401, 10, "a removed user is out")
    check(ask(None, place + "v1/me", headers=mine)[0] == 401, "the session of a removed user goes on")
    while s.recv(65536):
        pass
    s.close()
    check(ask("bob", "/v1/me")[0] == 200, "the others are out, too")


def audit(a, b):
    """Who wanted what, and what came of it: all that was asked above, with nothing in it that lets anybody in."""
    def found():
        seen = p.events("audit")
        return seen if any(e["user"] == "ann" and e["operation"] == "logout" for e in seen) else None
    events = until(found, 30, "the events of the audit")
    for wanted in ({"user": "ann", "operation": "submitJob", "outcome": "DONE", "status": 202, "request_id": "the-same", "training_id": a, "via": "password", "roles": "user"},
                   {"user": "bob", "operation": "submitJob", "outcome": "DONE", "training_id": b}, {"user": "vera", "operation": "submitJob", "outcome": "DENIED", "status": 403, "request_id": None},
                   {"user": "ann", "operation": "haltJob", "outcome": "FAILED", "status": 404, "target": f"/v1/jobs/{b}/halt"}, {"user": "olga", "operation": "deleteModel", "outcome": "DONE", "target": f"/v1/models/{b}"},
                   {"user": None, "outcome": "DENIED", "status": 401, "operation": "submitJob"}, {"user": "ann", "operation": "login", "outcome": "DENIED", "status": 401},
                   {"user": "ann", "operation": "login", "outcome": "DONE", "status": 303, "target": "/login"}, {"user": "ci", "operation": "submitJob", "via": "token", "outcome": "DONE"},
                   {"user": "dora", "operation": "submitJob", "outcome": "DENIED", "status": 403}, {"user": "bob", "operation": "applyPipeline", "outcome": "DENIED", "status": 403},
                   {"user": "ann", "operation": "logout", "via": "session", "target": "/logout"}):
        check(any(all(e[k] == v for k, v in wanted.items()) for e in events), f"no event of the audit says {wanted}; there are {[(e['user'], e['operation'], e['status']) for e in events]}")
    for e in events:
        check(e["method"] != "GET" or e["outcome"] == "DENIED", f"looking is recorded: {e}")
        check(e["address"] == "127.0.0.1" and "?" not in e["target"] and "page-" not in e["target"], f"{e}")
    check(ask("olga", "/v1/topics/penstock.audit/records")[0] == 403 and ask("vera", "/v1/topics/audit/records")[0] in (403, 404), "the gateway shows the audit")


def paced():
    """Of more requests than a user may send some are told to wait; nobody else is. And a provider's keys are fetched from an address, once and now and then."""
    asked = []

    class Provider(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            text = json.dumps({"keys": [jwk(idp, "one")]}).encode()
            self.send_response(200)
            self.send_header("Cache-Control", "max-age=3600")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass
    keys = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=keys.serve_forever, daemon=True).start()
    with p.spawn("gateway", "--port", p.ports[0] + 5, "--users", users, "--user-rate", 1, "--user-burst", 3, "--jwks", f"http://127.0.0.1:{keys.server_port}/keys", "--jwt-audience", "penstock", log="paced.log") as w:
        def ready():
            with contextlib.suppress(OSError):
                return urllib.request.urlopen(f"http://127.0.0.1:{p.ports[0] + 5}/health", timeout=5).status == 200
        until(ready, 30, "a second gateway answers")

        def me(name, headers=None):
            try:
                with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{p.ports[0] + 5}/v1/me", headers=headers or basic(name)), timeout=30 * PATIENCE) as r:
                    return r.status, {}
            except urllib.error.HTTPError as e:
                return e.code, e.headers
        said = [me("bob") for _ in range(12)]
        check([s for s, _ in said].count(200) >= 3 and any(s == 429 and int(h["Retry-After"]) >= 1 for s, h in said), f"twelve requests of one user: {said}")
        check(me("olga")[0] == 200, "another user pays for it")
        by = lambda value: {"Authorization": "Bearer " + value}
        until(lambda: me(None, by(token(idp, "one", sub="dora")))[0] == 200, 20, "a token by a key of the address")
        for _ in range(20):
            check(me(None, by(token(later, "two", sub="dora")))[0] == 401, "a key that the provider has not named")
        check(asked == ["/keys"], f"twenty tokens with an unknown key make {len(asked)} fetches within half a minute")
        w.terminate()
        check(w.wait(30) == 0, "the second gateway does not end cleanly")


def secrets():
    check(ask("olga", "/state")[0] == 200 and ask(None, "/metrics")[0] == 200, "/state and /metrics")
    everything = {"answers": "\n".join(shown).encode(), **{str(f): f.read_bytes() for f in (p.dir / "state").rglob("*") if f.is_file() and not f.is_symlink()}}
    everything["topics"] = b"\n".join(bytes(m.value() or b"") for t in ("jobs.requests", "jobs.events", "jobs.state", "logs", "workers", "audit", "pipelines", "models") for m in p.read(PREFIX + t))
    everything["processes"] = b""
    for pid, _ in p.everything():
        with contextlib.suppress(OSError):  # not ours, or ended
            everything["processes"] += b"".join(Path(f"/proc/{pid}/{f}").read_bytes() for f in ("cmdline", "environ"))
    hashes = [line.split(":")[1] for line in users_text.splitlines()]
    everything["metrics"] = urllib.request.urlopen(f"{p.registry}/metrics", timeout=30).read() if p.registry else b""
    for secret in [*WORDS.values(), *hashes, *kept, p.token]:
        for form in (secret, base64.b64encode(secret.encode()).decode().rstrip("=")):
            where = [k for k, v in everything.items() if form.encode() in v and not (secret == p.token and k.endswith("/token")) and not (secret.startswith("page-") and k == "answers")]
            check(not where, f"a secret shows in {where}")


shown, kept = [], []
hashing()
folder = Path(tempfile.mkdtemp(prefix="penstock-users-"))
users, cert, cert_key = folder / "users", folder / "cert.pem", folder / "key.pem"
make_pair()
users_text = "".join(f"{n}:{hash_of(w)}:{ROLES[n]}\n" for n, w in WORDS.items())
robot, idp, later = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
users_text += f"ci:{line_of(robot)}:user\n"
provider = folder / "keys.json"
provider.write_text(json.dumps({"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, jwk(idp, "one")]}))
users.write_text(users_text)
users.chmod(0o620)
with Platform(up=False) as p:
    r = subprocess.run([BIN, "gateway", "--port", "0", "--users", users], env=p.env, capture_output=True, text=True, timeout=60 * PATIENCE)
    check(r.returncode in (1, 2, 6) and "others than its owner may write" in r.stderr, f"a users file that others may write is taken: {r}")
    r = subprocess.run([BIN, "gateway", "--port", "0", "--auth", "none", "--users", users], env=p.env, capture_output=True, text=True, timeout=60 * PATIENCE)
    check(r.returncode == 2, f"--auth none with --users: {r}")
    users.chmod(0o600)
    for more, word in ((["--jwks", "http://id.example/keys"], "only https is taken"), (["--jwks", "https://ann:word@id.example/keys"], "leave it out"), (["--users", users, "--jwks-ca", cert], "--jwks URL"), (["--users", users, "--jwt-audience", "x"], "--jwks FILE"), (["--jwks", provider, "--jwt-role", "guest"], "--jwt-role guest"), (["--jwks", folder / "none"], "cannot read")):
        r = subprocess.run([BIN, "gateway", "--port", "0", *more], env=p.env, capture_output=True, text=True, timeout=60 * PATIENCE)
        check(r.returncode in (1, 2, 6) and word in r.stderr, f"gateway {more}: {r}")
    r = p.cli("up", "--detach", "--tls-cert", cert, ok=False)
    check(r.returncode == 2 and "--tls-key" in r.stderr, f"up with half a pair: {r}")
    cert_key.chmod(0o644)
    r = subprocess.run([BIN, "gateway", "--port", "0", "--tls-cert", cert, "--tls-key", cert_key], env=p.env, capture_output=True, text=True, timeout=60 * PATIENCE)
    check(r.returncode == 2 and "chmod 600" in r.stderr, f"a key that others may read is taken: {r}")
    cert_key.chmod(0o600)
    p.up_args += ["--tls-cert", str(cert), "--tls-key", str(cert_key), "--users", str(users), "--jwks", str(provider), "--jwt-audience", "penstock", "--jwt-role", "viewer", "--user-rate", "190"]
    p.up()
    check(b"--user-rate\x00190\x00" in Path(f"/proc/{p.pids('gateway')[0]}/cmdline").read_bytes(), "the gateway is not told the pace")
    printed = p.cli("status").stdout
    check("?token=" not in printed and p.gateway in printed, f"status prints the token's address: {printed}")
    check(ask(None, "/v1/jobs")[0] == 401 and ask(None, "/v1/jobs", headers={"Authorization": "Bearer " + p.token})[0] == 401 and ask("ann", "/v1/jobs", word=p.token)[0] == 401, "the token still opens")
    tls()
    a = submit("ann", "anns", headers={"Idempotency-Key": "the-same"})
    b = submit("bob", "bobs", "/v1/jobs?user=ann", headers={"Idempotency-Key": "the-same", "X-Watson-Userinfo": "bluemix-instance-id=ann"})
    check(a != b, "one idempotency key makes two users' jobs one")
    for job, name in ((a, "ann"), (b, "bob")):
        check(p.wait_state(job, "COMPLETED")["user"] == name, f"{job} is not {name}'s")
    until(lambda: json.loads(ask("olga", f"/v1/jobs/{b}")[1] or "{}").get("state") == "COMPLETED", 30, "the view follows")
    views(a, b)
    touching(a, b)
    at_once()
    pipelines()
    tokens(a)
    leaves()
    audit(a, b)
    paced()
    changes(*page())
    check([r for r in p.events("jobs.requests") if r["user"] not in (*ROLES, "ci")] == [], "a request of somebody else stands on the topic")
    secrets()
shutil.rmtree(folder)
print("users: ok")
