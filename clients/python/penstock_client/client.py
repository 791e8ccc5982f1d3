"""The gateway's own API, as docs/reference/http.md has it. What is asked again after a broken connection has the same request id, so that a job is never submitted twice."""
import base64, io, json, os, time, urllib.error, urllib.parse, urllib.request, uuid, zipfile
from pathlib import Path

ENDED = ("COMPLETED", "FAILED", "HALTED", "TERMINATED", "REJECTED")
TRIES, PAUSE_S = 5, 0.5


class PenstockError(Exception):
    """An answer that is a refusal; status and code are the gateway's."""

    def __init__(self, text, status=None, code=None, violations=()):
        super().__init__(text)
        self.status, self.code, self.violations = status, code, list(violations)


class Rejected(PenstockError):
    """The manifest cannot run; violations has every reason."""


def _state_dir():
    named = os.environ.get("PENSTOCK_STATE_DIR")
    return Path(named) if named else Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "penstock"


def _profile():
    try:
        return json.loads((_state_dir() / "profile.json").read_text())
    except (OSError, ValueError):
        return {}


def _token():
    try:
        return os.environ.get("PENSTOCK_TOKEN") or (_state_dir() / "token").read_text().strip()
    except OSError:
        return None


def _zip(folder):
    """The files of a folder with their modes; what is hidden stays where it is."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
                z.write(path, path.relative_to(folder))
    return out.getvalue()


class Client:
    """gateway: http://HOST:PORT [PENSTOCK_GATEWAY, the profile of `penstock up`, http://localhost:8080]; token: [PENSTOCK_TOKEN, the profile's]."""

    def __init__(self, gateway=None, token=None, timeout=30):
        self.gateway = (gateway or os.environ.get("PENSTOCK_GATEWAY") or _profile().get("gateway") or "http://localhost:8080").rstrip("/")
        self.token, self.timeout = token or _token(), timeout

    def __repr__(self):
        return f"Client({self.gateway!r})"  # a token is for nobody's log

    def _request(self, method, path, body=None, headers=(), timeout=None):
        mine = {"Accept": "application/json", **({"Authorization": "Bearer " + self.token} if self.token else {}), **dict(headers)}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            mine["Content-Type"] = "application/json"
        return urllib.request.urlopen(urllib.request.Request(self.gateway + path, data, mine, method=method), timeout=timeout or self.timeout)

    @staticmethod
    def _refusal(e, method, path):
        text = e.read()
        try:
            said = json.loads(text)
        except ValueError:
            said = {"detail": text.decode(errors="replace")[:300]}
        words = said.get("detail") or said.get("title") or e.reason
        violations = said.get("violations") or ()
        kind = Rejected if e.code == 400 and violations else PenstockError
        return kind(f"{method} {path}: {e.code} {words}" + "".join(f"\n  {v}" for v in violations), e.code, said.get("code"), violations)

    def _ask(self, method, path, body=None, headers=()):
        """An answer of JSON. 429, 502 to 504 and connections that break are asked again: every request of ours may be sent twice."""
        for turn in range(TRIES):
            try:
                with self._request(method, path, body, headers) as r:
                    text = r.read()
                    return json.loads(text) if text else None
            except urllib.error.HTTPError as e:
                if e.code not in (429, 502, 503, 504) or turn == TRIES - 1:
                    raise self._refusal(e, method, path) from None
            except OSError as e:
                if turn == TRIES - 1:
                    raise PenstockError(f"{self.gateway} does not answer: {e}; `penstock up` starts it, PENSTOCK_GATEWAY says where it is") from None
            time.sleep(PAUSE_S * 2**turn)

    def _job(self, job, verb=""):
        return "/v1/jobs/" + urllib.parse.quote(job, safe="") + verb

    def submit(self, manifest, code=None, request_id=None, user=None):
        """Publishes a manifest (YAML text); the training id. code: a folder, or the path of a zip archive, which travels inside the event:
        small enough for a Kafka record, 1 MB by default. The same request_id is the same job."""
        body = {"manifest": manifest, "request_id": request_id or uuid.uuid4().hex}
        if user:
            body["user"] = user
        if code is not None:
            archive = _zip(code) if Path(code).is_dir() else Path(code).read_bytes()
            body["code"] = {"media_type": "application/zip", "content": base64.b64encode(archive).decode()}
        return self._ask("POST", "/v1/jobs", body)["training_id"]

    def job(self, job):
        """Its state, as of JobState."""
        return self._ask("GET", self._job(job))

    def jobs(self, **query):
        """All, newest first; state=, user=, queue=, name= choose."""
        token = None
        while True:
            words = {**query, **({"page_token": token} if token else {})}
            page = self._ask("GET", "/v1/jobs" + ("?" + urllib.parse.urlencode(words) if words else ""))
            yield from page["jobs"]
            token = page.get("next_page_token")
            if not token:
                return

    def wait(self, job, timeout=None, pause=0.5):
        """Until it has ended; its state. TimeoutError. A job that is not known yet, because its request was published a moment ago, is waited for."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                state = self.job(job)
                if state["state"] in ENDED:
                    return state
            except PenstockError as e:
                if e.status != 404:
                    raise
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"{job} has not ended within {timeout} s")
            time.sleep(pause)

    def _command(self, job, verb, method="POST"):
        return self._ask(method, self._job(job, verb), headers={"Idempotency-Key": uuid.uuid4().hex})

    def halt(self, job):
        return self._command(job, "/halt")

    def resume(self, job):
        return self._command(job, "/resume")

    def terminate(self, job):
        return self._command(job, "/terminate")

    def delete(self, job):
        return self._command(job, "", "DELETE")

    def why(self, job):
        return self._ask("GET", self._job(job, "/why"))

    def events(self, job, limit=1000):
        return self._ask("GET", self._job(job, f"/events?limit={limit}"))["records"]

    def logs(self, job, limit=1000):
        """The last lines, as of LogLine, oldest first."""
        return self._ask("GET", self._job(job, f"/logs?limit={limit}"))["records"]

    def metrics(self, job, limit=1000):
        """The last evaluations as rows: time, step, epoch, process, group, generation, and a column a value."""
        rows = []
        for point in self._ask("GET", self._job(job, f"/metrics?limit={limit}"))["records"]:
            if "values" in point:
                where = {k: point.get(k) for k in ("time", "step", "epoch", "process", "group", "generation")}
                rows.append({**where, **{k: float(v) for k, v in point["values"].items()}})
        return rows

    def follow(self, job, pause=0.5):
        """Log lines from the first one until the job has ended, each once: rindex counts them by generation and process. Where a job is quicker than 5,000 lines a look, a
        record with `gap` tells how many are missing; `penstock logs -f` has all of them."""
        seen = {}
        while True:
            ended = False
            try:
                ended = self.job(job)["state"] in ENDED  # asked before the lines: what came before the end is read after it
                lines = self.logs(job, 5000)
            except PenstockError as e:
                if e.status != 404:
                    raise
                lines = []
            for line in lines:
                place = line.get("generation"), line.get("process")
                if "rindex" in line and line["rindex"] > seen.get(place, -1):
                    missing = line["rindex"] - seen.get(place, -1) - 1
                    if missing:
                        yield {**line, "rindex": line["rindex"] - missing, "text": "", "gap": {"lines": missing, "bytes": 0, "why": "the job was quicker than its reader"}}
                    seen[place] = line["rindex"]
                    yield line
            if ended:
                return
            time.sleep(pause)
