"""What the live tests share: a real Kafka and a platform in a folder of their own, and clients (confluent-kafka, fastavro) that share no code with us.

    with Platform() as p:
        tid = p.submit(manifest("name", "echo hi"))
        p.wait_state(tid, "COMPLETED")
"""
import contextlib, http.server, io, json, os, random, shutil, signal, socket, struct, subprocess, sys, tempfile, threading, time, urllib.error, urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build")) / "penstock"
KAFKA = ROOT / "deploy/kafka/kafka"
PREFIX = "penstock."
ENDED = ("COMPLETED", "FAILED", "HALTED", "TERMINATED")
# Deadlines are nets for what hangs: a test that passes never waits for one. What is written at them is ample for a quiet machine; one that is busy or
# slow gets this many times as much. Nothing may be concluded from a deadline of `until` that was met but that the thing came.
PATIENCE = 5


def check(condition, message):
    """One line that says what fell short, and exit status 1."""
    if not condition:
        print(f"FAILED: {message}", flush=True)
        sys.exit(1)


def skip(reason):
    print(f"skipped: {reason}", flush=True)
    sys.exit(77)


def until(condition, timeout, what, step=0.1):
    """The first true value of condition(); fails with what() or what when the time is over (PATIENCE)."""
    timeout *= PATIENCE
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        check(time.monotonic() < end, f"not within {timeout} s: {what() if callable(what) else what}")
        time.sleep(step)


def free_ports(n=12):
    """The first of n free ports in a row, below the range that outgoing connections use. Tests that run side by side have a range each (tests/run):
    between the look and the use another one may look."""
    low, high = map(int, os.environ.get("PENSTOCK_TEST_PORTS", "20000-31000").split("-"))
    while True:
        first = random.randrange(low, high - n)
        try:
            for port in range(first, first + n):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def manifest(name, command, learners=1, extra=""):
    return (f"name: {name}\ndescription: a test\nversion: '1'\ngpus: 0\ncpus: 0.1\nmemory: 64 MiB\nlearners: {learners}\n"
            f"framework: {{name: custom, version: '1', command: {json.dumps(command)}}}\n{extra}")


class Child(subprocess.Popen):
    """A process whose wait(seconds) is a deadline like the others."""

    def wait(self, timeout=None):
        return super().wait(timeout and timeout * PATIENCE)


class RefusingRegistry:
    """In front of the real one: while `code` is set it says that, to everything or to paths with `only`, and counts how often."""
    def __init__(self, real, only=""):
        proxy, self.code, self.refused = self, None, 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
                code = proxy.code
                if code and only in self.path:
                    proxy.refused += 1
                    text = json.dumps({"error_code": code, "message": "not you"}).encode()
                else:
                    headers = {k: v for k, v in self.headers.items() if k.lower() in ("content-type", "accept", "authorization")}
                    try:
                        with urllib.request.urlopen(urllib.request.Request(real + self.path, body, headers, method=self.command), timeout=15 * PATIENCE) as r:
                            code, text = r.status, r.read()
                    except urllib.error.HTTPError as e:
                        code, text = e.code, e.read()
                self.send_response(code)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            do_GET = do_POST = do_PUT = do_DELETE = do
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Platform:
    def __init__(self, brokers=1, up=True, without="", up_args=()):
        self.dir = Path(tempfile.mkdtemp(prefix="penstock-test-"))
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_") or k == "PENSTOCK_BUS"}  # wire, rdkafka: what `bus: auto` is
        self.env = {**clean, "PENSTOCK_STATE_DIR": str(self.dir / "state"), "NO_COLOR": "1"}
        self.children, self.schemas = [], {}
        self.ports = (free_ports(1), free_ports(1))  # the same at every `up`, as a user's are
        self.up_args = list(up_args) + (["--without", without] if without else [])
        try:
            self.kafka("start", "--brokers", str(brokers), "--port", str(free_ports()))
            self.bootstrap = json.loads(self.kafka("status", "--json"))["bootstrap"]
            self.env["PENSTOCK_BOOTSTRAP_SERVERS"] = self.bootstrap
            if up:
                self.up()
        except BaseException as e:  # what was started is ended: __exit__ does not run for a failed __init__
            self.__exit__(type(e), e, None)
            raise

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return self

    def __exit__(self, kind, *_):
        failed = kind is not None and not (kind is SystemExit and _[0].code in (0, 77))
        for w in self.children:
            if w.poll() is None:
                w.send_signal(signal.SIGCONT)
                w.terminate()
        for w in self.children:
            try:
                w.wait(10)
            except subprocess.TimeoutExpired:
                w.kill()
                w.wait()
        if BIN.exists():
            self.cli("down", ok=False, timeout=120)
        if failed:
            for log in sorted((self.dir / "state/log").glob("*.log")) + sorted(self.dir.glob("*.log")):
                print(f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-25:], sep="\n", flush=True)
        subprocess.run([KAFKA, "stop", "--dir", self.dir / "kafka"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        keep = os.environ.get("KEEP")  # set: the folder stays, with the broker's logs; "failed": only that of a test that failed
        if not keep or (keep == "failed" and not failed):
            shutil.rmtree(self.dir, ignore_errors=True)

    def kafka(self, *args):
        with tempfile.TemporaryFile("w+") as out:  # not a pipe: daemons might hold it
            r = subprocess.run([KAFKA, *args, "--dir", self.dir / "kafka"], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE if args[0] == "status" else None, timeout=300 * PATIENCE)
            out.seek(0)
            text = out.read()
        check(r.returncode == 0, f"kafka {' '.join(args)} exited {r.returncode}")
        return text

    # --- the program ---
    def cli(self, *args, ok=True, timeout=90, input=None, cwd=None):
        with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
            try:
                rc = subprocess.run([BIN, *map(str, args)], env=self.env, timeout=timeout * PATIENCE, cwd=cwd, text=True, stdout=out, stderr=err,
                                    **({"input": input} if input is not None else {"stdin": subprocess.DEVNULL})).returncode
            except subprocess.TimeoutExpired:
                rc = 124
            out.seek(0), err.seek(0)
            r = subprocess.CompletedProcess(args, rc, out.read(), err.read())
        if ok:
            check(r.returncode == 0, f"penstock {' '.join(map(str, args))} exited {r.returncode}: {(r.stderr or r.stdout)[-400:]}")
        return r

    def spawn(self, *args, log, env=None):
        with open(self.dir / log, "a") as f:
            w = Child([BIN, *map(str, args)], env=env or self.env, stdin=subprocess.DEVNULL, stdout=f, stderr=f, start_new_session=True)
        self.children.append(w)
        return w

    def up(self):
        self.cli("up", "--detach", "--registry-port", self.ports[0], "--gateway-port", self.ports[1], *self.up_args, timeout=120)
        st = self.status()
        self.registry, self.gateway = st["registry"], st["gateway"]

    def start_registry(self):
        """A registry and nothing else of the platform, for Platform(up=False); again at the same address after one that ended. Returns its process."""
        self.registry = self.env["PENSTOCK_REGISTRY"] = f"http://127.0.0.1:{self.ports[0]}"
        process = self.spawn("registry", "--port", self.ports[0], log="registry.log")

        def answers():
            try:
                return self.http("/subjects", self.registry)[0] == 200
            except OSError:
                return False
        until(answers, 60, lambda: f"the registry answers; its log says {(self.dir / 'registry.log').read_text()[-500:]}")
        return process

    def status(self):
        return json.loads(self.cli("status", "--json").stdout)

    def pids(self, name):
        return [s["pid"] for s in self.status()["services"] if s["name"].startswith(name) and s["pid"]]

    def submit(self, text, folder=None, *extra):
        path = self.dir / f"m-{random.randrange(10**9)}.yml"
        path.write_text(text)
        return self.cli("submit", path, *([folder] if folder else []), *extra).stdout.strip()

    def show(self, tid):
        r = self.cli("show", tid, "--json", ok=False)
        return json.loads(r.stdout) if r.returncode == 0 else {"state": f"exit {r.returncode}", "reason": r.stderr.strip()}

    def wait_state(self, tid, *states, timeout=60):
        last = {}

        def there():
            last.update(self.show(tid))
            return last["state"] in states and last
        return until(there, timeout, lambda: f"{tid} in {states}; it is {last.get('state')}: {last.get('reason')}")

    def processes(self, word=""):
        """Living processes of this platform (by the state folder in their environment or command line), Kafka's excepted."""
        found = []
        for d in Path("/proc").iterdir():
            try:
                where = str(self.dir / "state").encode()
                if d.name.isdigit() and alive(d.name) and int(d.name) != os.getpid() and (where in (d / "cmdline").read_bytes() or where in (d / "environ").read_bytes()):
                    command = (d / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if word in command:
                        found.append((int(d.name), command.strip()))
            except OSError:
                pass
        return found

    @staticmethod
    def everything():
        """All processes as (pid, command line)."""
        found = []
        for d in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if d.name.isdigit():
                    found.append((int(d.name), (d / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()))
        return found

    # --- HTTP ---
    @property
    def token(self):
        return (self.dir / "state/token").read_text().strip()

    @property
    def page(self):
        """The address that lets a browser in."""
        return f"{self.gateway}/?token={self.token}"

    def http(self, path, base=None, data=None, headers=None, method=None):
        """The gateway is shown the token; a body is YAML for it and JSON for others, unless headers say otherwise."""
        mine = {} if base else {"Authorization": "Bearer " + self.token}
        if data is not None:
            mine["Content-Type"] = "application/json" if base else "application/yaml"
        req = urllib.request.Request((base or self.gateway) + path, data=data, headers={**mine, **(headers or {})}, method=method)
        try:
            with urllib.request.urlopen(req, timeout=15 * PATIENCE) as r:
                return r.status, r.read(), dict(r.headers)
        except urllib.error.HTTPError as e:
            return e.code, e.read(), dict(e.headers)

    def schema(self, sid):
        import fastavro
        if sid not in self.schemas:
            status, body, _ = self.http(f"/schemas/ids/{sid}", self.registry)
            check(status == 200, f"schema id {sid}: HTTP {status}")
            self.schemas[sid] = fastavro.parse_schema(json.loads(json.loads(body)["schema"]))
        return self.schemas[sid]

    def register(self, subject, schema):
        status, body, _ = self.http(f"/subjects/{subject}/versions", self.registry, json.dumps({"schema": json.dumps(schema)}).encode(),
                                    {"Content-Type": "application/vnd.schemaregistry.v1+json"})
        check(status == 200, f"registering {subject}: HTTP {status} {body[:200]}")
        return json.loads(body)["id"]

    def encode(self, sid, value):
        import fastavro
        b = io.BytesIO(b"\0" + struct.pack(">I", sid))
        b.seek(5)
        fastavro.schemaless_writer(b, self.schema(sid), value)
        return b.getvalue()

    def decode(self, raw):
        import fastavro
        if raw is None or raw[:1] == b"{":
            return json.loads(raw) if raw else None
        check(raw[:1] == b"\0", f"no magic byte: {raw[:10]!r}")
        return fastavro.schemaless_reader(io.BytesIO(raw[5:]), self.schema(struct.unpack(">I", raw[1:5])[0]), None)

    # --- Kafka ---
    def create(self, topic, partitions=1, replication=-1, **config):
        # Kept for ever: records with timestamps of the past would be deleted by age as soon as the broker looks (30 s after its start).
        from confluent_kafka.admin import AdminClient, NewTopic
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for f in admin.create_topics([NewTopic(topic, partitions, replication, config={"retention.ms": "-1", **config})]).values():
            f.result(30 * PATIENCE)

    def set_config(self, topic, key, value):
        from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for f in admin.incremental_alter_configs([ConfigResource("TOPIC", topic, incremental_configs=[entry])]).values():
            f.result(20)

    def producer(self, **conf):
        from confluent_kafka import Producer

        class Patient(Producer):
            def flush(self, timeout=-1):
                return super().flush(timeout if timeout < 0 else timeout * PATIENCE)
        return Patient({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 2, "message.timeout.ms": 120000,
                        "enable.idempotence": True, **conf})  # what is sent again because an answer was late is no second record

    @staticmethod
    def watermarks(consumer, at, stop):
        """Asked again while a topic that was made a moment ago has no leader yet: the client does not do that by itself."""
        from confluent_kafka import KafkaError, KafkaException
        while True:
            try:
                return consumer.get_watermark_offsets(at, 30 * PATIENCE)
            except KafkaException as e:
                if e.args[0].code() not in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART) or time.monotonic() > stop:
                    raise
                time.sleep(0.1)

    def read(self, topic, done=None, timeout=60, isolation="read_committed"):
        """All records that are in a topic now, or all until done(list); fails where neither comes in time (PATIENCE)."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition, OFFSET_BEGINNING
        conf = {"bootstrap.servers": self.bootstrap, "group.id": f"test-{random.random()}", "enable.auto.commit": False, "auto.offset.reset": "earliest",
                "enable.partition.eof": True, "log_level": 2}
        c, asker = Consumer({**conf, "isolation.level": isolation}), Consumer({**conf, "isolation.level": "read_uncommitted"})
        timeout *= PATIENCE
        out, passed, stop = [], set(), time.monotonic() + timeout
        try:
            while not (parts := c.list_topics(topic, 30 * PATIENCE).topics[topic].partitions) and done and time.monotonic() < stop:
                time.sleep(0.1)  # made a moment ago, and this broker has not heard of it: nothing would be read for ever
            c.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in parts])
            # The end is where it was now: of a stream that goes on, one that moves might never be caught. It is that of all that was written: a
            # transaction's end is known to its producer before it is to its partitions, and one that was left open is ended by its time-out.
            high = {p: self.watermarks(asker, TopicPartition(topic, p), stop) for p in parts}
            passed = {p for p, (low, end) in high.items() if low == end}
            while time.monotonic() < stop:
                for m in c.consume(2000, 0.2):
                    at_end = m.error() and m.error().code() == KafkaError._PARTITION_EOF
                    if not m.error():
                        out.append(m)
                    if (at_end or not m.error()) and m.offset() + (not at_end) >= high[m.partition()][1]:
                        passed.add(m.partition())
                if done(out) if done else len(passed) == len(parts):
                    return out
            where = f"passed {sorted(passed)} of the ends {high}"
            check(False, f"{topic}: {'what was waited for' if done else 'its end'} did not come within {timeout} s; {len(out)} records, {where}")
        finally:
            asker.close()
            c.close()

    def events(self, suffix, done=None, timeout=60):
        seen = []

        def enough(ms):
            seen.extend(self.decode(m.value()) for m in ms[len(seen):])
            return done([s for s in seen if s])
        ms = self.read(PREFIX + suffix, enough if done else None, timeout)
        return [e for e in (self.decode(m.value()) for m in ms) if e]
