"""The page where the gateway knows people, in headless Chromium: a login and its end, who is here; a job by upload of manifest and code; a pipeline applied after a look at what would change; its dead
letters put back; queues with what waits in them; and records whose times are no times, which break nothing."""
import sys, os, io, zipfile
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from browser import *

FORM = "form[action='/login']"
PIPE = ("name: fraud\ninput: {topics: [orders], format: avro}\nmodel: {name: spam, version: 1}\nfeatures: [{field: a}, {field: b}]\noutput: {topic: orders.scores}\nscore: {type: raw}\n"
        "errors: {tolerance: all, dead_letter: {topic: orders.dlq}}\n")
QUEUES = "name: small\nweight: 2\nquota: {cpus: 4, memory: 1GiB, gpus: 0}\nmax_running_per_user: 1\n---\nname: wide\npreempts: true\n"


def log_in(browser, name, password):
    until(lambda: browser.run(f"return !!document.querySelector({json.dumps(FORM)})"), 20, lambda: f"no login: {browser.text('body')[:200]}")
    browser.type("input[name=name]", name)
    browser.type("input[name=password]", password)
    browser.click(FORM + " button")


def logs_in(p, browser):
    browser.open(p.gateway + "/")
    log_in(browser, "olga", "wrong")
    until(lambda: "No user has this name" in browser.text("[role=alert]"), 20, lambda: f"a wrong password: {browser.text('body')[:300]}")
    browser.shot("login.png")
    accessible(browser, "the login")
    log_in(browser, "olga", WORD)
    until(lambda: browser.text("#link") == "live", 20, lambda: f"after the login: {browser.text('body')[:300]}")
    until(lambda: "olga" in browser.text("#me") and "operator" in browser.text("#me"), 20, lambda: f"who is here: {browser.text('#me')}")


def uploads(p, browser):
    """A manifest and its code, both from files."""
    (p.dir / "job.yml").write_text(manifest("by-upload", "sh greet.sh"))
    with zipfile.ZipFile(p.dir / "code.zip", "w") as z:
        z.writestr("greet.sh", "echo hello from the archive\n")
    browser.at("#/submit")
    until(lambda: browser.run("return document.querySelectorAll('form.submit input[type=file]').length") == 2, 20, "no field for a manifest and one for code")
    browser.type("input[type=file][accept*=yml]", p.dir / "job.yml")
    until(lambda: "by-upload" in browser.run("return document.getElementById('manifest').value"), 20, "the file's text is not shown")
    browser.type("input[type=file][accept='.zip']", p.dir / "code.zip")
    browser.click("form.submit button.main")
    until(lambda: "COMPLETED" in browser.text(".why-line") or "COMPLETED" in browser.text("#view .state"), 60, lambda: f"uploaded: {browser.text('#view')[:300]} {browser.text('#toast')} {browser.text('#wrong')}")
    until(lambda: "hello from the archive" in browser.text("#log"), 20, lambda: f"log: {browser.text('#log')}")
    made = browser.run("return location.hash").rpartition("/")[2]
    check(p.show(made)["user"] == "olga", "the job is not hers")


def applies(p, browser):
    """A wrong file is answered with its line; what would change is said before it does."""
    text = lambda t: browser.run(f"document.getElementById('pipeline-file').value = {json.dumps(t)}")
    press = lambda word: browser.run(f"[...document.querySelectorAll('form.submit button')].find(b => b.textContent === {json.dumps(word)}).click()")
    browser.at("#/apply")
    until(lambda: browser.run("return !!document.getElementById('pipeline-file')"), 20, "nothing to apply with")
    text(PIPE.replace("score:", "scoer:"))
    press("what would change")
    until(lambda: "scoer" in browser.text("#wrong"), 20, lambda: f"a wrong pipeline file: {browser.text('#wrong')}")
    (p.dir / "fraud.yml").write_text(PIPE)
    browser.type("form.submit input[type=file]", p.dir / "fraud.yml")
    until(lambda: browser.run("return document.getElementById('pipeline-file').value") == PIPE, 20, "the file's text is not shown")
    press("what would change")
    until(lambda: "A new pipeline" in browser.text("#view"), 20, lambda: f"what would change: {browser.text('#view')[-400:]}")
    check(p.read(PREFIX + "pipelines") == [], "a look published the pipeline")
    press("apply")
    until(lambda: browser.run("return location.hash") == "#/pipelines/fraud", 30, lambda: f"apply: {browser.text('#wrong')} {browser.text('#toast')}")
    until(lambda: "What is to run" in browser.text("#view") and "olga" in browser.text("#view"), 20, lambda: f"the pipeline: {browser.text('#view')[:300]}")
    browser.at("#/apply/fraud")
    until(lambda: "orders.scores" in browser.run("return document.getElementById('pipeline-file')?.value || ''"), 20, "the file that is published is not shown")
    text(PIPE + "batching: {count: 64}\n")
    press("what would change")
    until(lambda: "What changes" in browser.text("#view h2") and "batching" in browser.text("#view table"), 20, lambda: f"the difference: {browser.text('#view')[-400:]}")
    browser.shot("apply.png")


def puts_back(p, browser, sid):
    """Dead letters are counted by why, shown with their bytes, and put back once that was asked."""
    q = p.producer()
    for i, reason in enumerate(("bad-input", "bad-input", "schema")):
        q.produce("orders.dlq", p.encode(sid, {"a": 1.0, "b": float(i)}), key=f"k{i}", headers=[("__connect.errors." + k, v) for k, v in (("topic", "orders"), ("partition", "0"), ("offset", str(i)),
                  ("stage", "MAP"), ("exception.class.name", reason), ("exception.message", "<b>no</b>"))] + [("x-dlq-reason", reason)])
    check(q.flush(30) == 0, "written")
    before = len(p.read("orders"))
    browser.at("#/pipelines/fraud")
    letters = "section[aria-label='dead letters']"
    until(lambda: "bad-input" in browser.text(letters + " table") and "schema" in browser.text(letters + " table") and "<b>no</b>" in browser.text(letters), 30, lambda: f"dead letters: {browser.text(letters)}")
    check(browser.run(f"return document.querySelectorAll({json.dumps(letters + ' td b')}).length") == 0, "a message is taken for HTML")
    browser.shot("letters.png")
    browser.run(f"[...document.querySelectorAll({json.dumps(letters + ' button')})].find(b => b.textContent.startsWith('put them back')).click()")
    until(lambda: "3" in browser.text("dialog"), 20, lambda: f"it does not ask: {browser.text('dialog')} {browser.text('#toast')}")
    check(len(p.read("orders")) == before, "asking put letters back")
    browser.click("dialog button[value=yes]")
    until(lambda: "Put back" in browser.text("#toast"), 30, lambda: f"replay: {browser.text('#toast')}")
    until(lambda: len(p.read("orders")) == before + 3, 30, "three letters are back where they came from")


def waits(p, browser):
    (p.dir / "queues.yml").write_text(QUEUES)
    p.cli("queues", "apply", p.dir / "queues.yml")
    first = p.submit(manifest("runs-there", "sleep 300", extra="penstock: {queue: small}\n"))
    p.wait_state(first, "PROCESSING")
    second = p.submit(manifest("waits-there", "true", extra="penstock: {queue: small}\n"))
    p.wait_state(second, "QUEUED")
    browser.at("#/queues")
    row = lambda name: browser.run(f"return [...document.querySelectorAll('#view tbody tr')].find(r => r.cells[0].textContent === {json.dumps(name)})?.innerText || ''")
    until(lambda: "of 4" in row("small") and "of 1 GiB" in row("small") and "no limit" in row("wide") and "yes" in row("wide") and row("default"), 20, lambda: f"queues: {browser.text('#view')}")
    browser.shot("queues.png")
    browser.run("[...document.querySelectorAll('#view td a')].find(a => a.textContent === 'small').click()")
    until(lambda: browser.run("return location.hash") == "#/queues/small" and "waits-there" in browser.text("#view") and "runs-there" in browser.text("#view"), 20, lambda: f"one queue: {browser.text('#view')}")
    browser.shot("queue.png")
    accessible(browser, "#/queues/small")
    browser.dark(True)
    browser.phone(True)
    for view, name in (("#/queues", "narrow-queues.png"), ("#/queues/small", "narrow-queue.png"), ("#/pipelines/fraud", "narrow-letters.png"), ("#/jobs", "narrow-users.png")):
        browser.at(view)
        time.sleep(2)
        check(browser.run("return document.documentElement.scrollWidth") <= 390, f"{view} is wider than a phone: {browser.run('return document.documentElement.scrollWidth')}")
        browser.shot(name)
    browser.phone(False)
    browser.dark(False)
    browser.at("#/queues/nowhere")
    until(lambda: "cannot be read" in browser.text("#view [role=status]"), 20, "a queue that there is not is not said to be unknown")
    return first


def bad_times(p, browser, job):
    """Records with times beyond the calendar, and a record that is none: what stands beside them is shown, and what comes later too."""
    browser.at("#/jobs")
    until(lambda: "runs-there" in browser.text("#jobs tbody"), 20, "no list")
    raw = next(m for m in p.read(PREFIX + "jobs.state") if m.key() == job.encode())
    sid, state = struct.unpack(">I", raw.value()[1:5])[0], p.decode(raw.value())
    far = 2**63 - 1
    q = p.producer()
    for name, seq in (("far-away", 1), ("as-always", 2)):
        us = far if seq == 1 else int(time.time() * 1e6)
        q.produce(PREFIX + "jobs.state", p.encode(sid, {**state, "training_id": f"training-made-up-{seq}", "name": name, "state": "COMPLETED", "submitted_at": us, "started_at": us, "ended_at": us, **({"since": us} if "since" in state else {}), **({"updated_at": us} if "updated_at" in state else {})}), key=f"training-made-up-{seq}")
    q.produce(PREFIX + "models", json.dumps({"name": "aged", "version": 1, "type": "VERSION_REGISTERED", "digest": "0" * 64, "uri": "file:/nowhere", "format": "onnx", "bytes": 1, "time": far}), key="aged")
    check(q.flush(30) == 0, "published")
    until(lambda: "as-always" in browser.text("#jobs tbody"), 30, lambda: f"a record with an impossible time ends the list: {browser.text('#jobs tbody')}")
    check("far-away" in browser.text("#jobs tbody"), "the record with the impossible time is not shown")
    browser.at("#/models/aged")
    until(lambda: "Version 1" in browser.text("#view") and str(far)[:9] in browser.text("#view"), 30, lambda: f"a model of an impossible time: {browser.text('#view')}")


def leaves(p, browser):
    place = browser.run("return location.pathname")
    check(place.startswith("/page-"), f"the page is at {place}")
    browser.at("#/jobs")
    browser.click("#logout")
    until(lambda: browser.run(f"return !!document.querySelector({json.dumps(FORM)})"), 20, lambda: f"after the logout: {browser.text('body')[:300]}")
    browser.open(p.gateway + place)
    until(lambda: browser.run(f"return !!document.querySelector({json.dumps(FORM)})"), 20, "the page's place opens without a login")
    log_in(browser, "ann", WORD)
    until(lambda: "ann" in browser.text("#me") and browser.text("#link") == "live", 20, lambda: f"ann: {browser.text('body')[:300]}")
    until(lambda: "No jobs yet" in browser.text("#jobs-none"), 20, lambda: f"ann sees {browser.text('#jobs tbody')}")
    users.write_text("\n".join(l for l in users.read_text().splitlines() if not l.startswith("ann:")) + "\n")
    until(lambda: "ended" in browser.text("#link"), 30, lambda: f"a user that is removed is told {browser.text('#link')}")
    browser.shot("ended.png")


WORD = "a password of this test"
with Platform(up=False) as p:
    hashed = subprocess.run([BIN, "user", "hash"], input=WORD + "\n", text=True, capture_output=True, check=True).stdout.strip()
    users = p.dir / "users"
    users.write_text(f"olga:{hashed}:operator\nann:{hashed}:user\n")
    users.chmod(0o600)
    p.up_args += ["--users", str(users)]
    p.up()
    import onnx
    from onnx import TensorProto as T, helper as h
    graph = h.make_graph([h.make_node("Identity", ["x"], ["y"])], "g", [h.make_tensor_value_info("x", T.FLOAT, ["N", 2])], [h.make_tensor_value_info("y", T.FLOAT, ["N", 2])])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), p.dir / "m.onnx")
    p.cli("models", "register", p.dir / "m.onnx", "--name", "spam")
    p.create("orders", 1)
    p.create("orders.dlq", 1)
    sid = p.register("orders-value", {"type": "record", "name": "O", "fields": [{"name": "a", "type": "double"}, {"name": "b", "type": "double"}]})
    browser = Browser(p.dir / "chromium")
    p.children.append(browser.process)
    logs_in(p, browser)
    uploads(p, browser)
    applies(p, browser)
    puts_back(p, browser, sid)
    bad_times(p, browser, waits(p, browser))
    errors = browser.errors()
    leaves(p, browser)
    errors = [e for e in errors if not any(w in e for w in ("401 (Unauthorized)", "400 (Bad Request)", "404 (Not Found)", "422", "ERR_INCOMPLETE_CHUNKED"))]
    check(not errors, f"script errors: {errors[:3]}")
    browser.close()
print(f"ok: pictures in {SHOTS}")
