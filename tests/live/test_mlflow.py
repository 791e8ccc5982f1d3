"""MLflow's own client against the gateway on a real Kafka: a run with parameters, metrics, tags and files, searched and read back; a gateway that is killed in
between; two clients at once; a platform job as a run; a model registered from a run's file, its alias moved, seen by penstock and fetched by that alias; and
what is refused, in MLflow's error object."""
import base64, http.client, math, urllib.parse, uuid
from concurrent.futures import ThreadPoolExecutor

from kit import *

sys.path.insert(0, subprocess.run([ROOT / "tests/live/venv-mlflow"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
os.environ.update({"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "5", "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
                   "MLFLOW_DISABLE_AGENT_SKILLS": "true", "GIT_PYTHON_REFRESH": "quiet"})
import mlflow
from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

GOLDEN = ROOT / "tests/golden/native"


def ask(p, method, path, body=None, token=True, kind="application/json"):
    u = urllib.parse.urlsplit(p.gateway)
    c = http.client.HTTPConnection(u.hostname, u.port, timeout=60 * PATIENCE)
    headers = {"Content-Type": kind} if body is not None else {}
    try:
        c.request(method, path, json.dumps(body) if isinstance(body, dict) else body, {**headers, **({"Authorization": "Bearer " + p.token} if token else {})})
        r = c.getresponse()
        return r.status, r.read()
    finally:
        c.close()


def api(p, method, path, body=None):
    status, text = ask(p, method, "/api/2.0/mlflow/" + path, body)
    return status, json.loads(text)


def refused(word, fn, *args, **kw):
    try:
        fn(*args, **kw)
    except MlflowException as e:
        check(e.error_code == word, f"{fn.__name__}{args}: {e.error_code} is not {word}: {e}")
        return
    check(False, f"{fn.__name__}{args} was not refused")


def test_a_run_is_logged_and_read_back(p, c):
    mlflow.set_experiment("fraud")
    note = p.dir / "note.txt"
    note.write_text("Größe\n" * 1000)
    with mlflow.start_run(run_name="first", tags={"owner": "ada"}) as run:
        mlflow.log_params({"lr": 0.1, "layers": "3"})
        for step in range(20):
            mlflow.log_metric("loss", 1 / (step + 1), step=step)
        mlflow.log_metrics({"auc": 0.5, "odd": math.nan, "val/f1": math.inf}, step=3)
        mlflow.set_tag("phase", "one")
        mlflow.log_artifact(str(note), "notes/a b")
        mlflow.log_dict({"x": 1}, "conf.json")
    rid = run.info.run_id
    r = c.get_run(rid)
    check(r.info.status == "FINISHED" and r.info.run_name == "first" and r.info.end_time, f"its end: {r.info}")
    check(r.data.params == {"lr": "0.1", "layers": "3"} and r.data.tags["owner"] == "ada" and r.data.tags["phase"] == "one", f"its data: {r.data}")
    check(r.data.metrics["loss"] == 0.05 and r.data.metrics["auc"] == 0.5 and math.isnan(r.data.metrics["odd"]) and r.data.metrics["val/f1"] == math.inf, f"its metrics: {r.data.metrics}")
    history = c.get_metric_history(rid, "loss")
    check([(m.step, m.value) for m in history] == [(s, 1 / (s + 1)) for s in range(20)], f"its history: {history}")
    check(c.get_metric_history(rid, "none") == [], "a metric that was never logged")
    check([(f.path, f.is_dir) for f in c.list_artifacts(rid)] == [("conf.json", False), ("notes", True)], f"its files: {c.list_artifacts(rid)}")
    check([(f.path, f.file_size) for f in c.list_artifacts(rid, "notes/a b")] == [("notes/a b/note.txt", note.stat().st_size)], f"{c.list_artifacts(rid, 'notes/a b')}")
    got = Path(c.download_artifacts(rid, "notes", str(p.dir)))
    check((got / "a b/note.txt").read_bytes() == note.read_bytes(), "the file comes back")
    check(mlflow.artifacts.load_dict(f"runs:/{rid}/conf.json") == {"x": 1}, "so does the other")
    points = [e for e in p.events("metrics") if e["training_id"] == rid]
    check(sum("loss" in e["values"] for e in points) == 20 and [e["rindex"] for e in sorted(points, key=lambda e: e["rindex"])] == list(range(21)), f"its points on the topic: {points}")
    return rid


def test_searches(p, c, rid):
    e = c.create_experiment("sweep", tags={"team": "x"})
    ids = {}
    for i in range(5):
        run = c.create_run(e, run_name=f"r{i}", tags={"parity": "odd" if i % 2 else "even", "a b": str(i)})
        ids[i] = run.info.run_id
        c.log_batch(run.info.run_id, [Metric("acc", i / 10, 1, 0), Metric("acc", i, 2, 5)], [Param("batch size", str(2 ** i))], [RunTag("n", str(i))])
        c.set_terminated(run.info.run_id, "FAILED" if i == 4 else "FINISHED")

    def search(text="", order=(), view=ViewType.ACTIVE_ONLY, most=100, token=None):
        found = c.search_runs([e], text, view, most, list(order), token)
        return [next(i for i in ids if ids[i] == r.info.run_id) for r in found], found.token
    check(search(order=["metrics.acc DESC"])[0] == [4, 3, 2, 1, 0], f"{search(order=['metrics.acc DESC'])}")
    check(search("metrics.acc > 1 and tags.parity = 'even'", ["metrics.acc ASC"])[0] == [2, 4], f"{search('metrics.acc > 1')}")
    check(search("params.\"batch size\" IN ('1', '8')", ["params.`batch size` DESC"])[0] == [3, 0], "quoted names and lists")
    check(search("attributes.status = 'FAILED'")[0] == [4] and search("tags.n LIKE '%' AND run_name ILIKE 'R1'")[0] == [1], "attributes and LIKE")
    check(sorted(search("tags.`a b` != '2' and attributes.start_time > 0")[0]) == [0, 1, 3, 4], "inequality")
    first, token = search(order=["metrics.acc"], most=2)
    second, token = search(order=["metrics.acc"], most=2, token=token)
    third, token = search(order=["metrics.acc"], most=2, token=token)
    check((first, second, third, token) == ([0, 1], [2, 3], [4], None), f"pages: {first} {second} {third} {token}")
    c.delete_run(ids[0])
    check(0 not in search()[0] and search(view=ViewType.DELETED_ONLY)[0] == [0], "a deleted run is not shown")
    refused("INVALID_PARAMETER_VALUE", c.log_metric, ids[0], "acc", 1)
    c.restore_run(ids[0])
    check(0 in search()[0], "and is again")
    for bad in ("metrics.acc > 'x'", "metrics.acc >", "params.a = 3", "nothing = 'x'", "tags.a = 'x' OR tags.b = 'y'", "tags.a = 'x", "; drop table", "metrics.acc LIKE 'x'"):
        refused("INVALID_PARAMETER_VALUE", c.search_runs, [e], bad)
    names = [x.name for x in c.search_experiments(filter_string="name LIKE 'sw%' and tags.team = 'x'")]
    check(names == ["sweep"], f"experiments by filter: {names}")
    check(c.get_experiment_by_name("sweep").experiment_id == e and c.get_experiment("0").name == "Default", "experiments by name and id")
    refused("RESOURCE_ALREADY_EXISTS", c.create_experiment, "sweep")
    c.rename_experiment(e, "swept")
    c.delete_experiment(e)
    check(c.get_experiment(e).lifecycle_stage == "deleted" and c.get_experiment(e).name == "swept", "renamed and deleted")
    refused("INVALID_PARAMETER_VALUE", c.create_run, e)


def test_killed_in_between(p, c, rid):
    """What was acknowledged is there afterwards; a batch that was not is sent again by the client."""
    run = c.create_run("0")
    stop, acknowledged, failed = threading.Event(), [], []

    def log():
        i = 0
        while not stop.is_set() and i < 5000:
            try:
                c.log_batch(run.info.run_id, [Metric("m", i, 1000 + i, i)], [Param(f"p{i}", "v")] if i < 1000 else [])
                acknowledged.append(i)
            except MlflowException as e:
                failed.append(str(e))
            i += 1
    t = threading.Thread(target=log)
    t.start()
    until(lambda: len(acknowledged) > 30, 60, "points are logged")
    pid = p.pids("gateway")[0]
    os.kill(pid, signal.SIGKILL)
    n = len(acknowledged)
    until(lambda: len(acknowledged) > n + 30, 120, lambda: f"logging goes on after the gateway was killed: {failed[-1:]}")
    stop.set()
    t.join()
    steps = [m.step for m in c.get_metric_history(run.info.run_id, "m")]
    check(sorted(set(steps)) == sorted(steps) and set(acknowledged) <= set(steps), f"lost: {sorted(set(acknowledged) - set(steps))}, twice: {len(steps) - len(set(steps))}")
    back = c.get_run(run.info.run_id)
    check(set(back.data.params) >= {f"p{i}" for i in acknowledged if i < 1000} and back.data.metrics["m"] == max(acknowledged), "parameters and the newest point are there")
    old = c.get_run(rid)
    check(old.info.status == "FINISHED" and old.data.params["lr"] == "0.1" and len(c.get_metric_history(rid, "loss")) == 20, "so is the run from before")


def test_two_clients_at_once(p, c, rid):
    clients = [MlflowClient() for _ in range(2)]
    run = clients[0].create_run("0").info.run_id

    def log(i):
        c = clients[i % 2]
        c.log_metric(run, f"k{i % 4}", i, timestamp=i, step=i)
        c.set_tag(run, f"t{i}", str(i))
        return c.get_run(run).data.tags.get(f"t{i}") == str(i)
    with ThreadPoolExecutor(8) as pool:
        check(all(pool.map(log, range(80))), "each client reads at once what it wrote")
    seen = clients[1].get_run(run).data
    check(seen.metrics == {f"k{k}": 76 + k for k in range(4)} and sum(t.startswith("t") for t in seen.tags) == 80, f"both are there: {seen.metrics}")
    names = [f"same-{uuid.uuid4()}"] * 8

    def create(name):
        try:
            return clients[0].create_experiment(name)
        except MlflowException as e:
            return e.error_code
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(create, names))
    check(len({m for m in made if m != "RESOURCE_ALREADY_EXISTS"}) == 1, f"one name is one experiment: {made}")


def test_jobs_are_runs(p, c, rid):
    tid = p.submit(manifest("my-training", "for i in 1 2 3; do echo \"{\\\"loss\\\": 0.$i, \\\"step\\\": $i}\" >> $JOB_STATE_DIR/none; done; echo hi"))
    p.wait_state(tid, "COMPLETED")
    until(lambda: c.get_run(tid).info.status == "FINISHED", 30, "the job is a finished run")
    r = c.get_run(tid)
    e = c.get_experiment_by_name("my-training")
    check(r.info.experiment_id == e.experiment_id and r.data.tags["penstock.state"] == "COMPLETED" and r.data.params["framework"] == "custom", f"the job as a run: {r}")
    check([x.info.run_id for x in c.search_runs([e.experiment_id], "tags.`penstock.queue` = 'default'")] == [tid], "it is found")
    point = {"training_id": tid, "generation": 1, "process": "learner-1", "rindex": 0, "time": 5000000, "group": "validation", "step": 7, "epoch": None, "values": {"loss": 0.25}}
    schema = next(m for m in p.read(PREFIX + "metrics") if m.value()[:1] == b"\0")
    producer = p.producer()
    producer.produce(PREFIX + "metrics", p.encode(struct.unpack(">I", schema.value()[1:5])[0], point), tid)
    check(producer.flush(30) == 0, "a point of the job is published")
    until(lambda: c.get_run(tid).data.metrics.get("validation/loss") == 0.25, 30, lambda: f"its metric: {c.get_run(tid).data.metrics}")
    check([(m.step, m.value) for m in c.get_metric_history(tid, "validation/loss")] == [(7, 0.25)], "and its history")
    c.set_tag(tid, "mine", "yes")
    check(c.get_run(tid).data.tags["mine"] == "yes", "a job's run is tagged")
    refused("INVALID_PARAMETER_VALUE", c.set_terminated, tid, "KILLED")


def test_models(p, c, rid):
    c.log_artifact(rid, str(GOLDEN / "xgb-2.1.4-binary.json"), "model")
    c.log_artifact(rid, str(GOLDEN / "lgb-4.7.0-binary.txt"), "other")
    c.create_registered_model("fraud", tags={"a": "b"}, description="catches it")
    refused("RESOURCE_ALREADY_EXISTS", c.create_registered_model, "fraud")
    source = c.get_run(rid).info.artifact_uri + "/model"
    one = c.create_model_version("fraud", source, rid, tags={"stage": "x"}, description="the first")
    check((one.version, one.run_id, one.source, one.status) in (("1", rid, source, "READY"), (1, rid, source, "READY")), f"the version: {one}")
    two = c.create_model_version("fraud", f"runs:/{rid}/other/lgb-4.7.0-binary.txt", rid)
    check(int(two.version) == 2, f"the second: {two}")
    c.set_registered_model_alias("fraud", "champion", "1")
    check(int(c.get_model_version_by_alias("fraud", "champion").version) == 1, "the alias")
    c.set_registered_model_alias("fraud", "champion", "2")
    m = c.get_registered_model("fraud")
    check({k: int(v) for k, v in m.aliases.items()} == {"champion": 2} and m.tags["a"] == "b" and m.description == "catches it", f"the model: {m}")
    listed = p.cli("models", "list", "--json").stdout
    check("champion" in listed and rid in listed, f"penstock sees the versions, their run and the alias: {listed}")
    moves = [e for e in p.events("models") if e["type"] == "ALIAS_SET" and e["alias"] == "champion"]
    check([e["version"] for e in moves] == [1, 2], f"each move is an event: {moves}")
    got = Path(mlflow.artifacts.download_artifacts("models:/fraud@champion", dst_path=str(p.dir / "got")))
    files = [f for f in ([got] if got.is_file() else got.rglob("*")) if f.is_file() and f.name != "registered_model_meta"]
    check([f.read_bytes() for f in files] == [(GOLDEN / "lgb-4.7.0-binary.txt").read_bytes()], f"fetched by the alias: {files}")
    p.cli("models", "register", GOLDEN / "xgb-2.1.4-binary.json", "--name", "ours", "--alias", "live")
    until(lambda: any(x.name == "ours" for x in c.search_registered_models()), 30, "a version that penstock registered is seen")
    check([int(v.version) for v in c.search_model_versions("name = 'ours'")] == [1] and [v.name for v in c.search_model_versions(f"run_id = '{rid}' and name = 'fraud'")] == ["fraud", "fraud"], "versions by filter")
    got = Path(mlflow.artifacts.download_artifacts("models:/ours/1", dst_path=str(p.dir / "ours")))
    files = [f for f in ([got] if got.is_file() else got.rglob("*")) if f.is_file() and f.name != "registered_model_meta"]
    check([f.read_bytes() for f in files] == [(GOLDEN / "xgb-2.1.4-binary.json").read_bytes()], f"and fetched: {files}")
    check(api(p, "POST", "model-versions/transition-stage", {"name": "fraud", "version": "1", "stage": "Production"})[1]["model_version"]["current_stage"] == "Production", "a stage is an alias")
    refused("INVALID_STATE", c.delete_model_version, "fraud", "1")
    c.delete_registered_model_alias("fraud", "production")
    c.delete_model_version("fraud", "1")
    refused("RESOURCE_DOES_NOT_EXIST", c.get_model_version, "fraud", "1")
    refused("INVALID_PARAMETER_VALUE", c.get_model_version_by_alias, "fraud", "production")
    for bad in ("file:///etc/passwd", "/etc/passwd", f"runs:/{rid}/notes", "mlflow-artifacts:/../../etc/passwd", "s3://b/k", "models:/nobody/1"):
        refused("INVALID_PARAMETER_VALUE", c.create_model_version, "fraud", bad, rid)
    status, answer = api(p, "POST", "registered-models/create", {"name": "a/../b"})
    check((status, answer["error_code"]) == (400, "INVALID_PARAMETER_VALUE"), f"a name that is a path: {status} {answer}")


def test_stages(p, c, rid):
    c.create_registered_model("staged")
    for _ in range(3):
        c.create_model_version("staged", f"runs:/{rid}/other/lgb-4.7.0-binary.txt", c.create_run("0").info.run_id)

    def latest(*stages):
        status, answer = api(p, "POST", "registered-models/get-latest-versions", {"name": "staged", **({"stages": list(stages)} if stages else {})})
        check(status == 200, f"{stages}: {answer}")
        return [int(v["version"]) for v in answer["model_versions"]]
    c.set_registered_model_alias("staged", "production", "1")
    c.set_registered_model_alias("staged", "staging", "3")
    check((latest("Production"), latest("Staging"), latest("None"), latest("Archived"), latest("production", "Production", "None"), latest()) == ([1], [3], [2], [], [1, 2], [3]), "versions by stage")
    with ThreadPoolExecutor(4) as pool:
        moved = list(pool.map(lambda i: api(p, "POST", "registered-models/alias", {"name": "staged", "alias": "turn", "version": str(i % 3 + 1)}), range(40)))
    check(all(status == 200 for status, _ in moved), f"an alias that four clients move at once: {[m for m in moved if m[0] != 200][:3]}")
    status, answer = api(p, "POST", "registered-models/get-latest-versions", {"name": "staged", "stages": ["Shelf"]})
    check((status, answer["error_code"]) == (400, "INVALID_PARAMETER_VALUE"), f"a stage that there is not: {status} {answer}")


def test_a_run_has_so_many_keys(p, c, rid):
    run = c.create_run("0").info.run_id

    def log(kind, first, n):
        entry = {"metrics": {"value": 1, "timestamp": 1}}.get(kind, {"value": "v"})
        return api(p, "POST", "runs/log-batch", {"run_id": run, kind: [{"key": f"k{i}", **entry} for i in range(first, first + n)]})
    check((log("metrics", 0, 1000)[0], log("metrics", 1000, 999)[0]) == (200, 200), "1,999 metrics")
    status, answer = log("metrics", 1998, 3)
    check((status, answer.get("error_code")) == (400, "INVALID_PARAMETER_VALUE"), f"2,001 metrics: {status} {answer}")
    check((log("metrics", 1999, 1)[0], log("metrics", 0, 1000)[0]) == (200, 200), "the last one, and those again")
    status, answer = api(p, "POST", "runs/log-metric", {"run_id": run, "key": "more", "value": 1, "timestamp": 1})
    check((status, answer.get("error_code")) == (400, "INVALID_PARAMETER_VALUE"), f"one more: {status} {answer}")
    check(len(c.get_run(run).data.metrics) == 2000, "and all that were acknowledged are there")


def test_one_fact_is_the_newest_point(p, c, rid):
    run = c.create_run("0").info.run_id
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda i: api(p, "POST", "runs/log-metric", {"run_id": run, "key": "m", "value": i, "timestamp": 1, "step": i}), range(199, -1, -1)))
    facts = [e for e in p.events("tracking") if e["subject"] == "run:" + run and e["kind"] == "METRIC"]
    check(facts[-1]["step"] == 199 and c.get_run(run).data.metrics == {"m": 199}, f"the last fact says the newest point: {[e['step'] for e in facts[-5:]]}")


def test_a_page_ends_where_it_is_large(p, c, rid):
    e = c.create_experiment("large")
    ids = [c.create_run(e).info.run_id for _ in range(16)]
    for i in ids:
        check(api(p, "POST", "runs/log-batch", {"run_id": i, "params": [{"key": f"p{k}", "value": "v" * 6000} for k in range(100)]})[0] == 200, "a large run")
    pages, token = [], None
    while token or not pages:
        status, answer = api(p, "POST", "runs/search", {"experiment_ids": [e], "max_results": 1000, **({"page_token": token} if token else {})})
        pages.append([r["info"]["run_id"] for r in answer["runs"]])
        token = answer.get("next_page_token")
    check(len(pages) == 2 and sorted(sum(pages, [])) == sorted(ids), f"two pages, together all of them: {[len(x) for x in pages]}")


def test_refusals(p, c, rid):
    def is_refused(status, word, *args):
        got, text = ask(p, *args)
        check(got == status and json.loads(text)["error_code"] == word and json.loads(text)["message"], f"{args[:2]}: {got} {text[:200]}")
    root = "/api/2.0/mlflow/"
    is_refused(401, "UNAUTHENTICATED", "GET", root + "experiments/get?experiment_id=0", None, False)
    is_refused(404, "ENDPOINT_NOT_FOUND", "GET", root + "traces/list")
    is_refused(404, "RESOURCE_DOES_NOT_EXIST", "GET", root + "runs/get?run_id=nobody")
    is_refused(404, "RESOURCE_DOES_NOT_EXIST", "GET", root + "experiments/get-by-name?experiment_name=nobody")
    is_refused(400, "INVALID_PARAMETER_VALUE", "POST", root + "runs/log-batch", "{")
    is_refused(400, "INVALID_PARAMETER_VALUE", "POST", root + "runs/log-batch", "[]")
    u = urllib.parse.urlsplit(p.gateway)
    h = http.client.HTTPConnection(u.hostname, u.port, timeout=60 * PATIENCE)
    h.request("POST", root + "runs/create", json.dumps({"experiment_id": "0"}), {"Content-Type": "application/json", "Authorization": "Basic " + base64.b64encode(b"\xff\xfe:" + p.token.encode()).decode()})
    r = h.getresponse()
    check(r.status == 400 and json.loads(r.read())["error_code"] == "INVALID_PARAMETER_VALUE", f"a user's name that is no UTF-8: {r.status}")
    h.close()
    refused("INVALID_PARAMETER_VALUE", c.log_param, rid, "lr", "other")
    c.log_param(rid, "lr", "0.1")
    batch = {"run_id": rid, "metrics": [{"key": f"k{i}", "value": 1, "timestamp": 1} for i in range(1001)]}
    for extra in (batch, {"run_id": rid, "params": [{"key": f"k{i}", "value": "v"} for i in range(101)]}, {"run_id": rid, "tags": [{"key": f"k{i}", "value": "v"} for i in range(101)]},
                  {"run_id": rid, "metrics": [{"key": "k", "value": "much", "timestamp": 1}]}, {"run_id": rid, "metrics": [{"key": "k", "value": 1, "timestamp": "soon"}]},
                  {"run_id": rid, "params": [{"key": "k" * 251, "value": "v"}]}, {"run_id": rid, "params": [{"key": "k", "value": "v" * 6001}]},
                  {"run_id": rid, "tags": [{"key": "good", "value": "v"}, {"key": "../up", "value": "v"}]}, {"run_id": rid, "params": [{"key": "twice", "value": "1"}, {"key": "twice", "value": "2"}]}):
        is_refused(400, "INVALID_PARAMETER_VALUE", "POST", root + "runs/log-batch", extra)
    for path, wrong in (("runs/create", {"experiment_id": 5}), ("runs/create", {"tags": "x"}), ("runs/create", {"start_time": "soon"}), ("runs/search", {"experiment_ids": "0"}), ("runs/search", {"experiment_ids": ["0"], "max_results": 0}),
                        ("runs/log-batch", {"run_id": rid, "metrics": {"k": 1}}), ("runs/log-parameter", {"run_id": rid, "key": "k", "value": 5}), ("runs/set-tag", {"run_id": rid, "key": "k", "value": []})):
        is_refused(400, "INVALID_PARAMETER_VALUE", "POST", root + path, wrong)
    check(not {"k", "good", "twice"} & (set(c.get_run(rid).data.params) | set(c.get_run(rid).data.tags)), "of a batch that is refused nothing is kept")
    is_refused(413, "RESOURCE_LIMIT_EXCEEDED", "POST", root + "runs/log-batch", json.dumps({"run_id": rid, "x": "x" * (1 << 20)}))
    files = "/api/2.0/mlflow-artifacts/artifacts/"
    for path in ("../../etc/passwd", "a/../b", "a/%2e%2e/b", "a/%252e%252e/b", "a%5c..%5cb", "a//b", "a/%00", "/etc/passwd", "a/./b", "%2fetc%2fpasswd", "models/fraud/2/model.txt", "x" * 1001):
        for method in ("PUT", "DELETE"):
            status, text = ask(p, method, files + path, b"x" if method == "PUT" else None, True, "text/plain")
            check(status in (400, 403, 404, 415) and (status == 400 or b"error_code" in text), f"{method} {path}: {status} {text[:200]}")
    for path in ("../../etc/passwd", "%2e%2e", "a/%2e%2e"):
        check(ask(p, "GET", files + path)[0] in (400, 404) and ask(p, "GET", files[:-1] + "?path=" + path)[0] in (400, 404), f"reading {path}")
    check(ask(p, "PUT", files + "0/x/artifacts/f", b"a=b", True, "application/x-www-form-urlencoded")[0] == 415, "a form is no file")
    check(ask(p, "PUT", files + "0/x/artifacts/empty", b"", True, "text/plain")[0] == 200 and ask(p, "GET", files + "0/x/artifacts/empty") == (200, b""), "an empty file")


with Platform(without="scorers") as p:
    os.environ.update({"MLFLOW_TRACKING_TOKEN": p.token, "MLFLOW_TRACKING_URI": p.gateway, "MLFLOW_REGISTRY_URI": p.gateway})
    mlflow.set_tracking_uri(p.gateway)
    c = MlflowClient()
    rid = test_a_run_is_logged_and_read_back(p, c)
    for test in (test_searches, test_two_clients_at_once, test_jobs_are_runs, test_models, test_stages, test_a_run_has_so_many_keys, test_one_fact_is_the_newest_point, test_a_page_ends_where_it_is_large, test_refusals, test_killed_in_between):
        test(p, c, rid)
        print("ok", test.__name__, flush=True)
