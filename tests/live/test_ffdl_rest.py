"""FfDL's REST interface as FfDL's own client uses it, on a real Kafka: a chunked multipart upload, logs and evaluations by websocket and plain, pages, downloads,
halt, delete; and what is refused: other users, hostile uploads, clients that go away, read slowly or speak no proper websocket. Ctrl-C ends it all."""
import base64, hashlib, http.client, io, re, struct, urllib.parse, zipfile
from kit import *

WORDS = ("oak", "ash", "elm")
TICKS = [f"tick {i}.{k} {w}" for i in range(1, 9) for k, w in enumerate(WORDS, 1)]
LEARN = """n=0; until [ -e "$DATA_DIR/go" ] || [ $n -ge 900 ]; do n=$((n+1)); sleep 0.2; done
mkdir -p "$JOB_STATE_DIR/logs" "$RESULT_DIR/notes"
for i in 1 2 3 4 5 6 7 8; do
  k=0; for w in $(cat lib/words.txt); do k=$((k+1)); echo "tick $i.$k $w"; done
  printf '{"meta":{"time":%s000},"grouplabel":"train","etimes":{"iteration":{"type":2,"value":%d}},"values":{"loss":{"type":3,"value":"0.%02d"}}}\\n' "$(date +%s)" $i $i >> "$JOB_STATE_DIR/logs/evaluation-metrics.txt"
  sleep 0.2
done
echo fine > "$RESULT_DIR/notes/n.txt"
ln -s /etc/passwd "$RESULT_DIR/link"
head -c 700000 /dev/urandom > "$RESULT_DIR/weights.bin"
"""


def zipped(files, **kw):
    b = io.BytesIO()
    with zipfile.ZipFile(b, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():
            z.writestr(name, data)
    return b.getvalue()


def basic(user, word=None):
    return "Basic " + base64.b64encode(f"{user}:{word or p.token}".encode()).decode()


def ask(method, path, user="fia", auth=True, body=None, headers={}, timeout=60):
    """One request as FfDL's client sends it: (status, headers, body)."""
    u = urllib.parse.urlsplit(p.gateway)
    h = {"User-Agent": "Go-http-client/1.1", "X-Watson-Userinfo": f"bluemix-instance-id={user}", **({"Authorization": basic(user)} if auth else {}), **headers}
    c = http.client.HTTPConnection(u.hostname, u.port, timeout=timeout * PATIENCE)
    try:
        c.request(method, path, body, h, encode_chunked=not isinstance(body, (bytes, str, type(None))))
        r = c.getresponse()
        return r.status, {k.lower(): v for k, v in r.getheaders()}, r.read()
    finally:
        c.close()


def multipart(parts, boundary="b0undary"):
    return b"".join(f'--{boundary}\r\nContent-Disposition: form-data; name="{n}"; filename="{n}.x"\r\nContent-Type: application/octet-stream\r\n\r\n'.encode() + d + b"\r\n" for n, d in parts) + f"--{boundary}--\r\n".encode()


def post(text, code, user="fia", more=(), **kw):
    whole = multipart([*([("manifest", text.encode())] if text is not None else []), *([("model_definition", code)] if code is not None else []), *more])
    cuts = iter([whole[i:i + 999] for i in range(0, len(whole), 999)] if len(whole) < 1 << 20 else [whole[i:i + 65536] for i in range(0, len(whole), 65536)])
    return ask("POST", "/v1/models?version=2017-02-13", user, body=cuts, headers={"Content-Type": "multipart/form-data; boundary=b0undary", "Transfer-Encoding": "chunked"}, **kw)


def ffdl_manifest(name, command="sh learn.sh", stores=None):
    one = "data_stores:\n" + (stores or store("s"))
    return manifest(name, command, extra=one + "evaluation_metrics: {type: emetrics_file}\n")


def store(id):
    return f"  - id: {id}\n    type: mount_volume\n    training_data: {{container: in}}\n    training_results: {{container: out}}\n    connection: {{type: host_mount, name: hm, path: {p.dir}/mount, password: sesame-4711}}\n"


def error(answer, status, said=""):
    got, headers, body = answer
    check(got == status, f"answered {got}, not {status}: {body[:300]}")
    e = json.loads(body)
    check(e["code"] == status and isinstance(e["error"], str) and said in e["description"], f"no error object of FfDL's with “{said}”: {e}")
    check(headers["content-type"] == "application/json" and headers["access-control-allow-origin"] == "*", f"{status}: {headers}")


def shown(id, user="fia"):
    status, _, body = ask("GET", f"/v1/models/{id}?version=2017-02-13", user)
    check(status == 200, f"show {id}: {status} {body[:200]}")
    return json.loads(body)


def state(id):
    return shown(id)["training"]["training_status"]["status"]


class Socket:
    """RFC 6455 by hand, so that it can also be done badly."""

    def __init__(self, path, user="fia", headers=()):
        u = urllib.parse.urlsplit(p.gateway)
        self.s = socket.create_connection((u.hostname, u.port), 30 * PATIENCE)
        self.s.settimeout(90 * PATIENCE)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path}?version=2017-03-17 HTTP/1.1", f"Host: {u.netloc}", "Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13",
                 "Sec-WebSocket-Protocol: ws", "Origin: http://localhost/", f"X-Watson-Userinfo: bluemix-instance-id={user}", f"Authorization: {basic(user)}", *headers]
        self.s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self.f = self.s.makefile("rb")
        self.status = int(self.f.readline().split()[1])
        self.headers = {}
        while (line := self.f.readline().strip()):
            k, _, v = line.decode().partition(": ")
            self.headers[k.lower()] = v
        if self.status == 101:
            wanted = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            check(self.headers["sec-websocket-accept"] == wanted and self.headers.get("sec-websocket-protocol") == "ws", f"the handshake: {self.headers}")

    def say(self, opcode, data=b"", mask=True):
        key = os.urandom(4)
        self.s.sendall(bytes([0x80 | opcode, (0x80 if mask else 0) | len(data)]) + (key + bytes(b ^ key[i % 4] for i, b in enumerate(data)) if mask else data))

    def frame(self):
        a, b = self.f.read(2)
        n = b & 127
        n = struct.unpack(">H", self.f.read(2))[0] if n == 126 else struct.unpack(">Q", self.f.read(8))[0] if n == 127 else n
        check(a & 0x80 and not b & 0x80, "a frame in pieces, or masked by the server")
        return a & 15, self.f.read(n)

    def texts(self):
        """All text frames, and the code of the close frame."""
        got = []
        while True:
            op, data = self.frame()
            if op == 9:
                self.say(10, data)
            elif op == 8:
                self.say(8, data)
                check(self.f.read() == b"", "something came behind the close frame")
                return got, struct.unpack(">H", data[:2])[0]
            elif op == 1:
                got.append(data.decode())


def ticks(text):
    return [line for line in text.splitlines() if line.startswith("tick ")]


def in_background(f):
    box = {}

    def run():
        try:
            box["got"] = f()
        except BaseException as e:
            box["error"] = e
    box["thread"] = threading.Thread(target=run, daemon=True)
    box["thread"].start()
    return box


def result(box):
    box["thread"].join(120 * PATIENCE)
    check("got" in box, f"no answer: {box.get('error', 'still waiting')}")
    return box["got"]


def whole_run():
    code = zipped({"lib/": b"", "lib/words.txt": " ".join(WORDS) + "\n", "learn.sh": LEARN, "ballast.bin": os.urandom(1500000)})  # beyond what an event may hold
    status, headers, body = post(ffdl_manifest("whole"), code)
    id = headers.get("location", "").removeprefix("/v1/models/")
    check(status == 201 and json.loads(body) == {"model_id": id, "location": f"/v1/models/{id}"}, f"POST: {status} {headers} {body}")
    m = shown(id)
    check(m["name"] == "whole" and m["training"]["input_data"] == ["s-input"] and m["training"]["output_data"] == ["s-output"] and "sesame" not in json.dumps(m), f"show: {m}")
    check(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \+0000 UTC", m["training"]["training_status"]["submitted"]), f"submitted: {m['training']['training_status']}")
    until(lambda: state(id) == "PROCESSING", 60, "it runs")
    follows = [in_background(lambda kind=kind: Socket(f"/v1/models/{id}/{kind}").texts()) for kind in ("logs", "metrics")]
    plain = in_background(lambda: ask("GET", f"/v1/models/{id}/logs?follow=true", timeout=200))
    gone = Socket(f"/v1/models/{id}/logs")  # goes away without a word
    gone.s.close()
    bad = Socket(f"/v1/models/{id}/logs")
    bad.say(1, b"no mask", mask=False)
    code_of_close = bad.texts()[1]
    check(code_of_close == 1002, f"a frame without a mask: closed with {code_of_close}")
    pinged = Socket(f"/v1/models/{id}/metrics")
    pinged.say(9, b"there?")
    until(lambda: pinged.frame() == (10, b"there?"), 10, "a pong")
    pinged.s.close()
    foreign(id)
    (p.dir / "mount/in/go").touch()
    until(lambda: state(id) == "COMPLETED", 90, "it has completed")
    lines, end = result(follows[0])
    check(end == 1000 and ticks("".join(lines)) == TICKS, f"websocket logs: {end} {ticks(''.join(lines))[:5]}")
    frames, end = result(follows[1])
    points = [json.loads(f) for f in frames]
    check(end == 1000 and all({"type", "timestamp", "iteration", "Values"} == set(f) for f in points), f"websocket metrics: {end} {frames[:2]}")
    check([(f["iteration"], f["Values"]["loss"]) for f in points if "loss" in f["Values"]] == [(i, i / 100) for i in range(1, 9)], f"metrics: {points}")
    status, _, body = result(plain)
    check(status == 200 and ticks(body.decode()) == TICKS, f"followed plain logs: {status} {body[-200:]}")
    check(ticks(ask("GET", f"/v1/models/{id}/logs?follow=false")[2].decode()) == TICKS, "plain logs")
    status, _, body = ask("GET", f"/v1/models/{id}/metrics?follow=false&version=2017-06-07")
    check(status == 200 and [json.loads(line) for line in body.decode().splitlines()] == points, "plain metrics are not those of the websocket")
    check(Socket(f"/v1/models/{id}/logs").texts()[1] == 1000, "a websocket on a job that has ended")
    status, headers, body = ask("GET", f"/v1/models/{id}/definition")
    check(status == 200 and body == code, f"definition: {status}, {len(body)} bytes of {len(code)}")
    status, _, body = ask("GET", f"/v1/models/{id}/trained_model")
    z = zipfile.ZipFile(io.BytesIO(body))
    names = z.namelist()
    check(status == 200 and z.read("notes/n.txt") == b"fine\n" and z.read("weights.bin") == (p.dir / f"mount/out/{id}/weights.bin").read_bytes(), f"trained_model: {names}")
    check("link" not in names, "a link of the learner's is followed")
    return id


def foreign(id):
    """Another user's job, and one that is not there, by every operation."""
    j = {"Content-Type": "application/json"}
    for who, model, status in (("eve", id, 401), ("fia", "training-none", 404)):
        for method, path in (("GET", ""), ("DELETE", ""), ("PATCH", ""), ("GET", "/definition"), ("GET", "/trained_model"), ("GET", "/logs"), ("GET", "/metrics")):
            error(ask(method, f"/v1/models/{model}{path}", who, body=b'{"status":"halt"}' if method == "PATCH" else None, headers=j if method == "PATCH" else {}), status)
        for kind in ("loglines", "emetrics"):
            error(ask("GET", f"/v1/logs/{model}/{kind}", who), status)
        check(Socket(f"/v1/models/{model}/logs", who).status == status, f"a websocket of {model} for {who}")
    check(state(id) == "PROCESSING", "a stranger has changed something")
    check(json.loads(ask("GET", "/v1/models", "eve")[2]) == {"models": []}, "eve has no jobs and is shown some")


def without_credential(id):
    """Logs are shown without a credential to the address and user that were let in for this job within the last minute, and to nobody else."""
    none = {"headers": {}, "auth": False}
    shown(id)
    check(ticks(ask("GET", f"/v1/models/{id}/logs?follow=false", auth=False)[2].decode()) == TICKS, "FfDL's client gets no logs after it has looked at the job")
    for user, headers, path in (("eve", {}, "/logs"), ("fia", {"Origin": "http://evil.example"}, "/logs"), ("fia", {"Sec-Fetch-Site": "cross-site"}, "/logs"), ("fia", {"Authorization": basic("fia", "wrong")}, "/logs"),
                                ("fia", {}, ""), ("fia", {}, "/definition"), ("fia", {}, "/trained_model")):
        error(ask("GET", f"/v1/models/{id}{path}", user, auth=False, headers=headers), 401)
    error(ask("GET", "/v1/models/training-none/logs", auth=False), 401)
    error(ask("DELETE", f"/v1/models/{id}", auth=False), 401)
    error(ask("GET", f"/v1/logs/{id}/loglines", auth=False), 401)


def page(id, kind, **q):
    status, _, body = ask("GET", f"/v1/logs/{id}/{kind}?{urllib.parse.urlencode({**q, 'searchType': 'TERM', 'version': '2017-10-01'})}")
    check(status == 200, f"{kind} {q}: {status} {body[:200]}")
    return json.loads(body)["models"]


def pages(id):
    for kind in ("loglines", "emetrics"):
        whole = page(id, kind, pagesize=500)
        n, times = len(whole), [m["meta"]["time"] for m in whole]
        number = lambda ms: [m["meta"]["rindex"] for m in ms]
        check(number(whole) == list(range(1, n + 1)) and all(a < b for a, b in zip(times, times[1:])), f"{kind}: {[m['meta'] for m in whole][:5]}")
        check(all(type(t) is int for t in times) and 0 <= time.time() * 1000 - times[-1] < 600000, f"{kind}: times {times[-1]}")
        for q, wanted in (({}, range(1, min(n, 10) + 1)), ({"pos": 5, "pagesize": 3}, range(5, 8)), ({"pos": -1, "pagesize": 4}, range(n - 3, n + 1)), ({"pos": -4, "pagesize": 2}, range(n - 4, n - 2)),
                          ({"pos": -n, "pagesize": 3}, range(1, 2)), ({"pos": -n - 1, "pagesize": 3}, range(0)), ({"pos": n + 1}, range(0)), ({"pos": -2147483647}, range(0)), ({"pagesize": 0}, range(1, 11)),
                          ({"since_time": times[4], "pos": 2, "pagesize": 3}, range(5, 8)), ({"since_time": times[-1] + 1}, range(0))):
            got = number(page(id, kind, **q))
            check(got == [i for i in wanted if i <= n], f"{kind} {q}: {got}")
        date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(times[0] / 1000 - 5))
        check(number(page(id, kind, since_time=date, pagesize=2)) == [1, 2], f"{kind} since {date}")
        for q, said in (({"pos": "x"}, "pos"), ({"pagesize": -1}, "pagesize"), ({"pagesize": "1e3"}, "pagesize"), ({"since_time": "soon"}, "since_time")):
            error(ask("GET", f"/v1/logs/{id}/{kind}?{urllib.parse.urlencode(q)}"), 400, said)
        rounds = [in_background(lambda: page(id, kind, pos=-1)) for _ in range(20)]  # more at once than are read at once
        check(all(number(result(r)) == number(page(id, kind, pos=-1)) for r in rounds[:3]) and all(len(result(r)) == min(n, 10) for r in rounds), f"{kind}: twenty readers at once")
    lines = page(id, "loglines", pagesize=500)
    check(ticks("\n".join(m["line"] for m in lines)) == TICKS and {m["meta"]["user_id"] for m in lines} == {"fia"} and {m["meta"]["training_id"] for m in lines} == {id}, f"loglines: {lines[:2]}")
    losses = [m for m in page(id, "emetrics", pagesize=500) if "loss" in m["values"]]
    check(losses[2]["values"]["loss"] == {"type": "FLOAT", "value": "0.03"} and losses[2]["etimes"] == {"iteration": {"type": "INT", "value": "3"}} and losses[2]["grouplabel"] == "train", f"emetrics: {losses[2]}")


def bad_uploads():
    before = len(p.read(PREFIX + "jobs.requests"))
    good, code = ffdl_manifest("bad"), zipped({"a.sh": "true\n"})
    slip = zipped({"../../slip.sh": "true\n"})
    bomb = zipped({"bomb": bytes(200 << 20)})
    for what, answer, said in (
            ("two data stores", post(ffdl_manifest("bad", stores=store("a") + store("b")), code), "takes one"), ("no framework", post(good.split("framework:")[0], code), "framework"), ("no YAML", post("name: [open\n\tx", code), ""),
            ("an empty manifest", post("", code), ""), ("no manifest", post(None, code), "manifest"), ("no code", post(good, None), "model_definition"), ("empty code", post(good, b""), "model_definition"),
            ("no zip", post(good, b"#!/bin/sh\ntrue\n"), "no zip"), ("a zip that is cut", post(good, code[:-30]), "damaged"), ("a name that leaves", post(good, slip), ".."), ("a bomb", post(good, bomb), "200 times"),
            ("two manifests", post(good, code, more=[("manifest", b"name: other\n")]), "same name"), ("nine parts", post(good, code, more=[(f"p{i}", b"") for i in range(9)]), "more than 8"),
            ("no boundary", ask("POST", "/v1/models", body=b"x", headers={"Content-Type": "multipart/form-data"}), "boundary"), ("a NUL", post("name: \0", code), "NUL")):
        check(answer[0] == 400, f"{what}: {answer}")
        error(answer, 400, said)
    for kind in ("application/json", "application/x-www-form-urlencoded", "text/plain"):
        error(ask("POST", "/v1/models", body=b"{}", headers={"Content-Type": kind}), 415, "multipart")
    error(ask("POST", "/v1/models", headers={"Content-Type": "multipart/form-data; boundary=x", "Content-Length": str(1 << 30)}), 413)
    error(ask("POST", "/v1/models", body=multipart([("manifest", good.encode())]), headers={"Content-Type": "multipart/form-data; boundary=b0undary", "Origin": "http://evil.example"}), 403)
    error(post(good, code, auth=False), 401)
    u = urllib.parse.urlsplit(p.gateway)
    with socket.create_connection((u.hostname, u.port)) as s:  # goes away in the middle of it
        s.sendall(f"POST /v1/models HTTP/1.1\r\nHost: {u.netloc}\r\nAuthorization: {basic('fia')}\r\nContent-Type: multipart/form-data; boundary=b0undary\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n".encode() + bytes(500))
    check(len(p.read(PREFIX + "jobs.requests")) == before, "a refused submission was published")
    status, _, body = post(good.replace("gpus: 0", "gpus: 64"), code)  # what only the Trainer knows
    check(status == 400 and "64 GPUs" in json.loads(body)["description"], f"more GPUs than there are: {status} {body}")


def halt_and_delete():
    j = {"Content-Type": "application/json"}
    id = post(ffdl_manifest("long", "sh -c 'sleep 711'"), zipped({"a": "1"}))[1]["location"].removeprefix("/v1/models/")
    until(lambda: state(id) == "PROCESSING", 60, "it runs")
    listed = json.loads(ask("GET", "/v1/models?version=2017-02-13")[2])["models"]
    check(listed[0]["model_id"] == id and len(listed) == 2 and all(m["location"] == "/v1/models/" + m["model_id"] for m in listed), f"list: {listed}")
    for body, said in ((b'{"status":"pause"}', "halt"), (b"{}", "halt"), (b"[]", "halt"), (b"nonsense", "body")):
        error(ask("PATCH", f"/v1/models/{id}", body=body, headers=j), 400, said)
    follower = in_background(lambda: Socket(f"/v1/models/{id}/logs").texts())
    status, _, body = ask("PATCH", f"/v1/models/{id}", body=b'{"status":"halt"}\n', headers=j)
    check(status == 202 and json.loads(body) == {"model_id": id}, f"halt: {status} {body}")
    until(lambda: state(id) == "HALTED", 60, "it is halted")
    check(not p.processes("sleep 711"), "shown as HALTED, and its command runs")
    check(result(follower)[1] == 1000, "the follower of a halted job is not let go")
    check(ask("PATCH", f"/v1/models/{id}", body=b'{"status":"halt"}\n', headers=j)[0] == 202, "halted twice")
    status, _, body = ask("DELETE", f"/v1/models/{id}")
    check(status == 200 and json.loads(body) == {"model_id": id}, f"delete: {status} {body}")
    error(ask("GET", f"/v1/models/{id}"), 404)
    check(id not in ask("GET", "/v1/models")[2].decode(), "a deleted job is listed")
    error(ask("DELETE", f"/v1/models/{id}"), 404)


def long_list(old):
    """FfDL's list has no pages: a job behind 2,500 newer ones stands in it, too. They are put into the view, which is what lists are made of."""
    import sqlite3
    db = sqlite3.connect(next((p.dir / "state").glob("*.db")), timeout=30)
    doc, user = db.execute("SELECT doc, user FROM docs WHERE collection = 'jobs' AND id = ?", (old,)).fetchone()
    newer = [json.loads(doc) | {"training_id": f"training-newer-{i:04}", "submitted_at": json.loads(doc)["submitted_at"] + 1 + i // 2} for i in range(2500)]
    with db:
        db.executemany("INSERT INTO docs VALUES('jobs', ?, 1, 0, ?, ?, ?, ?)", [(d["training_id"], d["state"], user, d["submitted_at"], json.dumps(d)) for d in newer])
    listed = [m["model_id"] for m in json.loads(ask("GET", "/v1/models?version=2017-02-13")[2])["models"]]
    with db:
        db.execute("DELETE FROM docs WHERE id LIKE 'training-newer-%'")
    db.close()
    check(old in listed and len(listed) == len(set(listed)) and {d["training_id"] for d in newer} <= set(listed), f"{len(listed)} jobs are listed, {len(set(listed))} different; the oldest {'is' if old in listed else 'is not'} there")


def slow_readers():
    """A log that is longer than what sockets hold: who reads slowly gets every line all the same, and the gateway's memory does not grow by it."""
    id = post(ffdl_manifest("loud", "true"), zipped({"a": "1"}))[1]["location"].removeprefix("/v1/models/")
    until(lambda: state(id) == "COMPLETED", 60, "it has completed")
    sid = json.loads(p.http(f"/subjects/{PREFIX}logs-value/versions/latest", p.registry)[1])["id"]
    n, text = 20000, "of a long log, " * 130
    producer = p.producer(partitioner="murmur2_random")
    for i in range(n):
        producer.produce(PREFIX + "logs", p.encode(sid, {"training_id": id, "generation": 1, "process": "learner-2", "rindex": i, "time": int(time.time() * 1e6), "stream": "STDOUT", "text": f"line {i} {text}", "gap": None}), id)
        producer.poll(0)
    producer.flush()
    pid = p.pids("gateway")[0]
    rss = lambda: int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])
    slow = [Socket(f"/v1/models/{id}/logs") for _ in range(4)]
    time.sleep(5)
    grown = rss()
    time.sleep(5)
    check(rss() < grown + 20000, f"four clients that read nothing: {grown} kB, then {rss()} kB")
    got, end = slow[0].texts()
    got = [line for line in "".join(got).splitlines() if line.startswith("line ")]
    check(end == 1000 and got == [f"line {i} {text}" for i in range(n)], f"a slow reader: {end}, {len(got)} lines")
    for s in slow[1:]:
        s.s.close()
    until(lambda: json.loads(p.http("/state")[1])["pours"] == 0, 30, "readers end when their clients go away")
    ask("DELETE", f"/v1/models/{id}")


def cors_and_test_stream():
    status, headers, _ = ask("OPTIONS", "/v1/models?version=1", auth=False, headers={"Origin": "http://board.example", "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "x-watson-userinfo"})
    check(status == 200 and "DELETE" in headers["access-control-allow-methods"] and "x-watson-userinfo" in headers["access-control-allow-headers"], f"preflight: {status} {headers}")
    check("access-control-allow-origin" not in ask("OPTIONS", "/v1/jobs", auth=False, headers={"Access-Control-Request-Method": "GET"})[1], "CORS on paths that are not FfDL's")
    check("access-control-allow-origin" not in ask("GET", "/v1/jobs")[1], "CORS on paths that are not FfDL's")
    check(ask("GET", "/health", auth=False)[2].strip() == b"OK", "/health is not OK")
    s = Socket("/v1/models/wstest/logs")
    said = [s.frame()[1].decode() for _ in range(2)]
    check(all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d", line) for line in said), f"wstest: {said}")
    s.say(8, struct.pack(">H", 1000))
    check(s.texts()[1] == 1000, "wstest is not closed as asked")


def ends_at_once():
    """The gateway ends while logs are followed: their clients are told, nothing is left behind."""
    id = post(ffdl_manifest("last", "sh -c 'sleep 711'"), zipped({"a": "1"}))[1]["location"].removeprefix("/v1/models/")
    until(lambda: state(id) == "PROCESSING", 60, "it runs")
    s = Socket(f"/v1/models/{id}/logs")
    plain = in_background(lambda: ask("GET", f"/v1/models/{id}/logs?follow=true"))
    time.sleep(1)
    pid = p.pids("gateway")[0]
    os.kill(pid, signal.SIGTERM)
    check(s.texts()[1] == 1001, "a websocket is not told that the gateway goes away")
    check(result(plain)[0] == 200, "a followed log")
    until(lambda: not alive(pid), 15, "the gateway ends")


with Platform() as p:
    for d in ("in", "out"):
        (p.dir / "mount" / d).mkdir(parents=True)
    one = whole_run()
    without_credential(one)
    pages(one)
    bad_uploads()
    halt_and_delete()
    cors_and_test_stream()
    long_list(one)
    slow_readers()
    ends_at_once()
    print("FfDL's eleven operations: a whole run, and their refusals")
