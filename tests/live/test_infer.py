"""The Open Inference Protocol at the gateway on a real Kafka, by Triton's own client: registered models of three libraries as JSON and as raw tensors, the numbers
of `score dry-run`, an alias that moves while requests run, many at once, and what is refused: no token, wrong shapes, bytes that end too soon, clients that go away."""
import http.client, re, urllib.parse
from concurrent.futures import ThreadPoolExecutor

from kit import *

sys.path.append(subprocess.run([ROOT / "tests/live/venv-infer"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
import tritonclient.http as triton

GOLDEN = ROOT / "tests/golden/native"
rng = np.random.default_rng(7)


def line(path, slope):
    """y = slope · (x0 + x1 + x2), z = x as INT64: two outputs, one line each."""
    w = numpy_helper.from_array(np.full((3, 1), slope, np.float32), "w")
    g = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Cast", ["x"], ["z"], to=TensorProto.INT64)], "line",
                          [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
                          [helper.make_tensor_value_info("z", TensorProto.INT64, ["N", 3]), helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])], [w])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def register(p, path, name, alias="champion"):
    p.cli("models", "register", path, "--name", name, "--alias", alias)


def client(p, **kw):
    u = urllib.parse.urlsplit(p.gateway)
    return triton.InferenceServerClient(u.netloc, network_timeout=60, connection_timeout=60, **kw)


def infer(c, p, model, x, name="x", kind="FP32", binary=False, outputs=None, **kw):
    i = triton.InferInput(name, list(x.shape), kind)
    i.set_data_from_numpy(x, binary_data=binary)
    return c.infer(model, [i], outputs=outputs and [triton.InferRequestedOutput(o, binary_data=binary) for o in outputs], headers=auth(p), **kw)


def auth(p):
    return {"Authorization": f"Bearer {p.token}"}


def ask(p, method, path, body=None, headers=(), token=True):
    u = urllib.parse.urlsplit(p.gateway)
    c = http.client.HTTPConnection(u.hostname, u.port, timeout=60 * PATIENCE)
    try:
        c.request(method, path, body, {**(auth(p) if token else {}), **dict(headers)})
        r = c.getresponse()
        return r.status, dict(r.getheaders()), r.read()
    finally:
        c.close()


def test_the_client_finds_its_way(p, c):
    check(c.is_server_live(headers=auth(p)), "the server lives")
    until(lambda: c.is_server_ready(headers=auth(p)), 30, "the server is ready")
    check(c.get_server_metadata(headers=auth(p))["extensions"] == ["binary_tensor_data"], "the server's extensions")
    m = c.get_model_metadata("line", headers=auth(p))
    check((m["name"], m["versions"], m["platform"]) == ("line", ["1", "2"], "onnx_onnxv1"), f"the model: {m}")
    check(m["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}], f"its inputs: {m}")
    check(c.is_model_ready("line@champion", headers=auth(p)) and c.is_model_ready("line", "1", headers=auth(p)), "it is ready")
    for name, version in (("line", "3"), ("line@none", ""), ("lines", "")):
        check(not c.is_model_ready(name, version, headers=auth(p)), f"{name} {version} is not there")
    x = rng.normal(size=(5, 3)).astype(np.float32)
    for binary in (False, True):
        for model, version, want in (("line", "", 2), ("line@champion", "", 1), ("line", "1", 1), ("line", "2", 2)):
            r = infer(c, p, model, x, binary=binary, model_version=version, request_id="q 1", outputs=["y"])
            check(np.allclose(r.as_numpy("y")[:, 0], want * x.sum(1), atol=1e-5), f"{model} {version}: {r.as_numpy('y')}")
            check(r.get_response()["id"] == "q 1" and r.get_response()["model_version"] == str(want) and r.as_numpy("z") is None, f"{r.get_response()}")
    r = infer(c, p, "line", x)
    check((r.as_numpy("z") == x.astype(np.int64)).all(), "all outputs, where none is named")


def test_the_numbers_are_those_of_a_dry_run(p, c):
    for name, golden, kind in (("xgb", "xgb-2.1.4-binary.json", "FP32"), ("lgb", "lgb-4.7.0-binary.txt", "FP64"), ("line", None, "FP32")):
        m = c.get_model_metadata(name, "1", headers=auth(p))
        check(m["inputs"][0]["datatype"] == kind, f"{name}: {m}")
        width, into = m["inputs"][0]["shape"][1], m["inputs"][0]["name"]
        x = rng.normal(size=(64, width)).astype(np.float32).astype(np.float64 if kind == "FP64" else np.float32)
        rows, out, pipe = p.dir / f"{name}.jsonl", p.dir / f"{name}.out", p.dir / f"{name}.yml"
        rows.write_text("".join(json.dumps({f"f{i}": float(v) for i, v in enumerate(row)}) + "\n" for row in x))
        pipe.write_text(f"name: {name}\nmodel: {{file: {p.dir / 'one.onnx' if golden is None else GOLDEN / golden}}}\nfeatures: [{', '.join(f'{{field: f{i}}}' for i in range(width))}]\nscore: {{type: raw}}\n")
        p.cli("score", "dry-run", "-c", pipe, "--in", rows, "--out", out)
        want = np.array([json.loads(line)["score"] for line in out.read_text().splitlines()])
        for binary in (False, True):
            r = infer(c, p, name, x, into, kind, binary, model_version="1")
            got = r.as_numpy(m["outputs"][-1]["name"]).reshape(len(x), -1)
            check((got.astype(want.dtype) == want).all(), f"{name}, binary {binary}: {got[:2]} is not {want[:2]}")


def test_an_alias_moves_under_load(p, c):
    x, stop, seen, bad = np.array([[1, 2, 3]], np.float32), threading.Event(), set(), []

    def one():
        mine = client(p)
        while not stop.is_set():
            try:
                r = infer(mine, p, "line@champion", x, outputs=["y"])
                got = (r.get_response()["model_version"], float(r.as_numpy("y")[0, 0]))
                seen.add(got)
            except Exception as e:  # noqa: BLE001 - none may fail, whatever it is
                bad.append(str(e))
                return
        mine.close()
    threads = [threading.Thread(target=one) for _ in range(4)]
    for t in threads:
        t.start()
    for version in ("2", "1", "2"):
        seen.clear()
        p.cli("models", "alias", "line", "champion", version)
        until(lambda: bad or any(v == version for v, _ in seen), 30, f"version {version} answers")
    stop.set()
    for t in threads:
        t.join()
    check(not bad and seen <= {("1", 6.0), ("2", 12.0)}, f"each answer is of one version: {seen} {bad[:1]}")


def metric(p, name):
    text = ask(p, "GET", "/metrics")[2].decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def test_many_at_once(p, c):
    x = rng.normal(size=(200, 8)).astype(np.float32)
    m = c.get_model_metadata("xgb", headers=auth(p))
    x = rng.normal(size=(200, m["inputs"][0]["shape"][1])).astype(np.float32)
    want = infer(c, p, "xgb", x, m["inputs"][0]["name"]).as_numpy(m["outputs"][-1]["name"]).reshape(200, -1)
    body = [json.dumps({"inputs": [{"name": m["inputs"][0]["name"], "shape": [1, x.shape[1]], "datatype": "FP32", "data": x[i].tolist()}]}) for i in range(200)]
    before = metric(p, "penstock_serving_requests_total{model=\"xgb\",result=\"ok\"")
    with ThreadPoolExecutor(50) as pool:
        for _ in range(3):
            got = list(pool.map(lambda i: ask(p, "POST", "/v2/models/xgb/infer", body[i], {"Content-Type": "application/json"}), range(200)))
            check(all(s == 200 for s, _, _ in got), f"{[g for g in got if g[0] != 200][:1]}")
            for i, (_, _, text) in enumerate(got):
                one = np.array(json.loads(text)["outputs"][-1]["data"], np.float32)
                check((one == want[i]).all(), f"request {i}: {one} is not {want[i]}")
    check(metric(p, "penstock_serving_requests_total{model=\"xgb\",result=\"ok\"") == before + 600, "each is counted")
    check(metric(p, "penstock_serving_rows_total{model=\"xgb\"") >= 800, "rows are counted")


def test_refusals(p, c):
    tensor = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}
    good = json.dumps({"inputs": [tensor]})
    kind = {"Content-Type": "application/json"}
    check(ask(p, "POST", "/v2/models/line/infer", good, kind)[0] == 200, "what is refused below is nearly this")

    def refused(status, word, body=good, headers=kind, path="/v2/models/line/infer", **kw):
        s, h, text = ask(p, "POST", path, body, headers, **kw)
        check(s == status and word in json.loads(text)["error"] and h["Content-Type"] == "application/json", f"{status} {word}: {s} {h} {text[:300]}")
    refused(401, "token", token=False)
    refused(403, "origin", headers={**kind, "Origin": "http://evil.example"})
    refused(415, "type", headers={"Content-Type": "application/x-www-form-urlencoded"})
    refused(415, "compressed", headers={**kind, "Content-Encoding": "gzip"})
    refused(404, "no model nine", path="/v2/models/nine/infer")
    refused(404, "no version 9", path="/v2/models/line/versions/9/infer")
    refused(404, "no alias", path="/v2/models/line@nobody/infer")
    refused(404, "no model", path="/v2/models/..%2e%2e/infer")
    refused(400, "version", path="/v2/models/line/versions/one/infer")
    refused(400, "version", path="/v2/models/line/versions/99999999999999999999/infer")
    refused(400, "alias", path="/v2/models/line@champion/versions/1/infer")
    refused(400, "inputs", body="{}")
    refused(400, "the request", body=good.replace("1, 2, 3]}", "NaN, 2, 3]}"))
    refused(400, "shape [1, 2]", body=json.dumps({"inputs": [{**tensor, "shape": [1, 2], "data": [1, 2]}]}))
    refused(400, "dimension 0", body=json.dumps({"inputs": [{**tensor, "shape": [-1, 3]}]}))
    refused(413, "more elements", body=json.dumps({"inputs": [{**tensor, "shape": [2**62, 3]}]}))
    refused(400, "output q", body=json.dumps({"inputs": [tensor], "outputs": [{"name": "q"}]}))
    raw = json.dumps({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}]}).encode()
    refused(400, "11 bytes are left", body=raw + b"x" * 11, headers={"Inference-Header-Content-Length": str(len(raw))})
    refused(400, "body has", body=raw, headers={"Inference-Header-Content-Length": str(len(raw) + 1)})
    refused(400, "number of bytes", body=raw, headers={"Inference-Header-Content-Length": "-1"})
    s, h, text = ask(p, "POST", "/v2/models/line/infer", raw[:-1] + b', "parameters": {"binary_data_output": true}}' + np.array([1, 2, 3], "<f4").tobytes(),
                     {"Inference-Header-Content-Length": str(len(raw) + 44)})
    check(s == 200 and h["Content-Type"] == "application/octet-stream" and np.frombuffer(text[-4:], "<f4")[0] == 12, f"{s} {h} {text}")
    s, h, text = ask(p, "GET", "/v2/nothing")
    check(s == 404 and "error" in json.loads(text), f"a path that is not there: {s} {text}")


def test_clients_that_go_away_hurt_nobody(p, c):
    u = urllib.parse.urlsplit(p.gateway)
    x = rng.normal(size=(2000, 3)).tolist()
    body = json.dumps({"inputs": [{"name": "x", "shape": [2000, 3], "datatype": "FP32", "data": x}]}).encode()
    head = f"POST /v2/models/line/infer HTTP/1.1\r\nHost: {u.netloc}\r\nAuthorization: Bearer {p.token}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for n in (len(head) - 5, len(head) + 100, len(head) + len(body)):
        for _ in range(20):
            with socket.create_connection((u.hostname, u.port)) as s:
                s.sendall((head + body)[:n])
    slow = [socket.create_connection((u.hostname, u.port)) for _ in range(20)]
    for s in slow:
        s.sendall((head + body)[:len(head) + 50])
    r = infer(c, p, "line", np.array([[1, 1, 1]], np.float32), outputs=["y"])
    check(r.as_numpy("y")[0, 0] == 6, "others are served meanwhile")
    for s in slow:
        s.close()
    state = lambda: json.loads(ask(p, "GET", "/state")[2])
    until(lambda: state()["serving"]["requests"] == 0 and state()["questions"] == 0, 30, lambda: f"nothing is left of them: {state()}")


if __name__ == "__main__":
    with Platform() as p:
        line(p.dir / "one.onnx", 1), line(p.dir / "two.onnx", 2)
        register(p, p.dir / "one.onnx", "line"), register(p, p.dir / "two.onnx", "line", "latest-one")
        register(p, GOLDEN / "xgb-2.1.4-binary.json", "xgb"), register(p, GOLDEN / "lgb-4.7.0-binary.txt", "lgb")
        c = client(p)
        for test in (test_the_client_finds_its_way, test_the_numbers_are_those_of_a_dry_run, test_an_alias_moves_under_load, test_many_at_once, test_refusals,
                     test_clients_that_go_away_hurt_nobody):
            test(p, c)
            print("ok", test.__name__, flush=True)
