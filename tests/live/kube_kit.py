"""A server of the Kubernetes API's semantics, as far as our launcher goes, and a kubelet whose pods are real processes. Nothing of it is ours: it is written
after the API's documentation (API concepts: resource versions, watch, bookmarks, 410; optimistic preconditions; deletion with grace; owner references).

    with Cluster(port, folder) as k:
        … penstock lcm --launcher kubernetes --kubeconfig k.kubeconfig …
        k.quota = 1            # pods in the namespace: one more is refused with 403
        k.cut(); k.compact(); k.away(3); k.schedulable = False

Mounts are done by name: a path below the mountPath of an emptyDir or a secret, in a command or an environment, becomes the folder's on this computer; the
claim is mounted where it is anyway, at the path of the state folder."""
import base64, contextlib, datetime, http.server, json, os, re, shutil, signal, socket, subprocess, threading, time, urllib.parse, uuid
from pathlib import Path

TOKEN = "a-token-of-the-test"


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Refused(Exception):
    def __init__(self, code, reason, message):
        self.code, self.status = code, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}


class Cluster:
    counting = 0  # so many secrets are refused, since a quota is being counted
    stumble = False  # the next watch ends with an error that is no 410

    def __init__(self, port, folder, bin_dir, namespace="jobs"):
        self.port, self.dir, self.bin, self.namespace = port, Path(folder), Path(bin_dir), namespace
        self.dir.mkdir(parents=True, exist_ok=True)
        self.lock = threading.Condition(threading.RLock())
        self.objects = {"pods": {}, "secrets": {}, "nodes": {}}
        self.version, self.log, self.compacted = 100, [], 0
        self.quota, self.schedulable, self.image_error, self.invalid, self.before_create = None, True, None, None, None
        self.created, self.calls, self.verbs = [], [], set()
        self.watches, self.cut_count, self.stopping, self.answer_late_s = set(), 0, False, 0
        self.running = {}  # name → Popen
        self.next_ip = 1
        self.objects["nodes"]["real0"] = {"metadata": {"name": "real0", "labels": {"nvidia.com/gpu.product": "nvidia-h100"}},
                                          "spec": {}, "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "2"},
                                                                 "conditions": [{"type": "Ready", "status": "True"}]}}
        (self.dir / "token").write_text(TOKEN + "\n")
        self.kubeconfig = self.dir / "kubeconfig"
        self.kubeconfig.write_text(
            f"apiVersion: v1\nkind: Config\ncurrent-context: test\ncontexts:\n- name: test\n  context: {{cluster: c, user: u, namespace: {namespace}}}\n"
            f"clusters:\n- name: c\n  cluster: {{server: 'http://127.0.0.1:{port}'}}\nusers:\n- name: u\n  user: {{tokenFile: token}}\n")
        self.server = None

    def __enter__(self):
        self.listen()
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.hang_up()
        for p in list(self.running.values()):
            with contextlib.suppress(OSError):
                os.killpg(p.pid, signal.SIGKILL)

    # --- faults ---
    def listen(self):
        cluster = self

        class Handler(_Handler):
            pass
        Handler.cluster = cluster

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads, allow_reuse_address = True, True

            def handle_error(self, *_):
                pass

            def process_request(self, request, address):
                cluster.watches.add(request)
                super().process_request(request, address)
        self.server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def hang_up(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
        self.cut()

    def cut(self):
        """Every connection ends, in the middle of what it says."""
        for s in list(self.watches):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
        self.watches.clear()
        self.cut_count += 1

    def away(self, seconds):
        self.hang_up()
        time.sleep(seconds)
        self.listen()

    def compact(self):
        with self.lock:
            self.compacted, self.log = self.version, []

    # --- objects ---
    def changed(self, kind, type_, obj):
        with self.lock:
            self.version += 1
            obj["metadata"]["resourceVersion"] = str(self.version)
            self.log.append((self.version, kind, type_, json.loads(json.dumps(obj))))
            self.lock.notify_all()

    def create(self, kind, obj):
        with self.lock:
            name = obj["metadata"]["name"]
            assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?", name), name
            if kind == "pods" and len(name) > 63:
                raise Refused(422, "Invalid", f'Pod "{name}" is invalid: name too long')
            if kind == "secrets" and self.counting:
                self.counting -= 1
                raise Refused(409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "compute": the object has been modified')
            if kind == "pods" and self.before_create:
                self.before_create(name)
            if name in self.objects[kind]:
                raise Refused(409, "AlreadyExists", f'{kind} "{name}" already exists')
            if kind == "pods" and self.invalid:
                raise Refused(422, "Invalid", f'Pod "{name}" is invalid: {self.invalid}')
            if kind == "pods" and self.quota is not None and len(self.objects["pods"]) >= self.quota:
                raise Refused(403, "Forbidden", f'pods "{name}" is forbidden: exceeded quota: compute, requested: pods=1, used: pods={len(self.objects["pods"])}, limited: pods={self.quota}')
            obj["metadata"].update(uid=str(uuid.uuid4()), creationTimestamp=now(), namespace=self.namespace)
            self.objects[kind][name] = obj
            if kind == "pods":
                obj["status"] = {"phase": "Pending", "conditions": []}
                self.created.append(name)
            self.changed(kind, "ADDED", obj)
            if kind == "pods":
                threading.Thread(target=self.kubelet, args=(obj,), daemon=True).start()
            return obj

    def remove(self, kind, name, uid=None):
        with self.lock:
            obj = self.objects[kind].get(name)
            if not obj or (uid and obj["metadata"]["uid"] != uid):
                return
            del self.objects[kind][name]
            self.changed(kind, "DELETED", obj)
            for n, s in list(self.objects["secrets"].items()):  # the garbage collector
                if any(o["uid"] == obj["metadata"]["uid"] for o in s["metadata"].get("ownerReferences", [])):
                    del self.objects["secrets"][n]

    def delete(self, kind, name, options):
        with self.lock:
            obj = self.objects[kind].get(name)
            if not obj:
                raise Refused(404, "NotFound", f'{kind} "{name}" not found')
            uid = options.get("preconditions", {}).get("uid")
            if uid and uid != obj["metadata"]["uid"]:
                raise Refused(409, "Conflict", f"the UID in the precondition ({uid}) does not match the UID in record ({obj['metadata']['uid']})")
            grace = options.get("gracePeriodSeconds", obj["spec"].get("terminationGracePeriodSeconds", 30)) if kind == "pods" else 0
            if kind != "pods" or obj["status"]["phase"] in ("Succeeded", "Failed") or grace == 0 or name not in self.running:
                if grace == 0 and kind == "pods" and obj["status"]["phase"] == "Running":
                    raise AssertionError("a running pod was deleted without grace")
                self.remove(kind, name)
                return obj
            old = obj["metadata"].get("deletionGracePeriodSeconds")
            if old is None or grace < old:
                obj["metadata"].update(deletionTimestamp=obj["metadata"].get("deletionTimestamp", now()), deletionGracePeriodSeconds=grace)
                self.changed(kind, "MODIFIED", obj)
                p = self.running[name]
                if old is None:
                    with contextlib.suppress(OSError):
                        p.send_signal(signal.SIGTERM)  # as a kubelet does: to the container's first process
                threading.Timer(grace, lambda: self.kill(p)).start()
            return obj

    @staticmethod
    def kill(p):
        """The end of a container: nothing below its first process stays."""
        below = [p.pid]
        for pid in below:
            with contextlib.suppress(OSError):
                below += [int(c) for t in Path(f"/proc/{pid}/task").iterdir() for c in (t / "children").read_text().split()]
        if p.poll() is None:
            for pid in below:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    # --- the kubelet ---
    def set_status(self, pod, **status):
        with self.lock:
            if self.objects["pods"].get(pod["metadata"]["name"]) is pod:
                pod["status"].update(status)
                self.changed("pods", "MODIFIED", pod)

    def is_there(self, pod):
        return not self.stopping and self.objects["pods"].get(pod["metadata"]["name"]) is pod

    def volumes(self, pod):
        """mountPath → folder here, for what is not the claim; None while its secret is missing."""
        where, base = {}, self.dir / "pods" / pod["metadata"]["uid"]
        for v in pod["spec"]["volumes"]:
            d = base / v["name"]
            d.mkdir(parents=True, exist_ok=True)
            if "secret" in v:
                s = self.objects["secrets"].get(v["secret"]["secretName"])
                if not s:
                    return None
                for key, value in s["data"].items():
                    (d / key).write_bytes(base64.b64decode(value))
            if "persistentVolumeClaim" not in v:
                where[v["name"]] = str(d)
        return where

    def run(self, pod, container, where, ip):
        mounts = sorted(((m["mountPath"], where[m["name"]]) for m in container["volumeMounts"] if m["name"] in where), reverse=True)

        def here(text):
            for path, folder in mounts:
                text = re.sub(re.escape(path) + r"(?=/|$)", folder, text)
            return text
        env = {"PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin"}
        for e in container.get("env", []):
            env[e["name"]] = ip if "valueFrom" in e else here(e["value"])
        command = [here(re.sub(r"\$\(([A-Z_]+)\)", lambda m: env[m[1]], c)) for c in container["command"]]
        with open(self.dir / f"{pod['metadata']['name']}-{container['name']}.log", "ab") as log:
            return subprocess.Popen(command, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def kubelet(self, pod):
        name = pod["metadata"]["name"]
        while not self.schedulable and self.is_there(pod):
            message = "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint {rack: cold}."
            if not pod["status"]["conditions"]:
                self.set_status(pod, conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}])
            time.sleep(0.05)
        self.set_status(pod, conditions=[{"type": "PodScheduled", "status": "True"}])
        while self.image_error and self.is_there(pod):
            waiting = {"reason": "ImagePullBackOff", "message": self.image_error}
            self.set_status(pod, containerStatuses=[{"name": "learner", "image": pod["spec"]["containers"][0]["image"], "state": {"waiting": waiting}}])
            time.sleep(0.2)
        where = None
        while where is None and self.is_there(pod):
            where = self.volumes(pod)
            time.sleep(0.02)
        if not self.is_there(pod):
            return
        with self.lock:
            ip, self.next_ip = f"127.9.0.{self.next_ip}", self.next_ip + 1
        for c in pod["spec"].get("initContainers", []):
            rc = self.run(pod, c, where, ip).wait()
            if rc:
                self.set_status(pod, phase="Failed", initContainerStatuses=[{"name": c["name"], "state": {"terminated": {"exitCode": rc, "reason": "Error"}}}])
                return
        with self.lock:
            if not self.is_there(pod):
                return
            p = self.running[name] = self.run(pod, pod["spec"]["containers"][0], where, ip)
        self.set_status(pod, phase="Running", podIP=ip)
        rc = p.wait()
        self.kill(p)
        t = {"exitCode": rc if rc >= 0 else 128 - rc, "reason": "Completed" if rc == 0 else "Error"}
        with self.lock:
            del self.running[name]
            self.set_status(pod, phase="Failed" if rc else "Succeeded", containerStatuses=[{"name": "learner", "state": {"terminated": t}}])
            if "deletionTimestamp" in pod["metadata"]:
                self.remove("pods", name, pod["metadata"]["uid"])
        shutil.rmtree(self.dir / "pods" / pod["metadata"]["uid"], ignore_errors=True)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, cluster = "HTTP/1.1", None

    def log_message(self, *_):
        pass

    def reply(self, code, obj):
        text = json.dumps(obj).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do(self):
        k, url = self.cluster, urllib.parse.urlsplit(self.path)
        q = dict(urllib.parse.parse_qsl(url.query))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        m = re.fullmatch(rf"/api/v1/(?:namespaces/{k.namespace}/(pods|secrets)|(nodes))(?:/([^/]+))?", url.path)
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refused(401, "Unauthorized", "Unauthorized")
            if not m:
                raise Refused(404, "NotFound", "the server could not find the requested resource")
            kind, name = m[1] or m[2], m[3]
            verb = {"POST": "create", "DELETE": "delete"}.get(self.command, "get" if name else "watch" if "watch" in q else "list")
            k.verbs.add((verb, kind)), k.calls.append((verb, kind, name))
            if verb == "create":
                made = json.loads(json.dumps(k.create(kind, json.loads(body))))
                time.sleep(k.answer_late_s)  # the watch is quicker, and what is answered out of date
                return self.reply(201, made)
            if verb == "delete":
                return self.reply(200, k.delete(kind, name, json.loads(body or b"{}")))
            if verb == "get":
                with k.lock:
                    if name not in k.objects[kind]:
                        raise Refused(404, "NotFound", f'{kind} "{name}" not found')
                    return self.reply(200, k.objects[kind][name])
            wanted = dict(p.split("=") for p in q.get("labelSelector", "").split(",") if p)

            def fits(o):
                return all(o["metadata"].get("labels", {}).get(key) == v for key, v in wanted.items())
            if verb == "list":
                with k.lock:
                    items = [o for _, o in sorted(k.objects[kind].items()) if fits(o)]
                    at, limit = int(q.get("continue", 0)), min(int(q.get("limit", 500)), 2)  # pages so small that every list has some
                    more = {"continue": str(at + limit)} if at + limit < len(items) else {}
                    return self.reply(200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": str(k.version), **more}, "items": items[at:at + limit]})
            self.watch(k, kind, fits, q)
        except Refused as r:
            self.reply(r.code, r.status)

    def chunk(self, event):
        text = json.dumps(event).encode() + b"\n"
        for part in (text[:len(text) // 2], text[len(text) // 2:]):  # an event in two pieces
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.flush()

    def watch(self, k, kind, fits, q):
        at, begun, cuts = int(q["resourceVersion"]), time.monotonic(), k.cut_count
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        said = time.monotonic()
        while not k.stopping and k.cut_count == cuts and time.monotonic() - begun < int(q.get("timeoutSeconds", 300)):
            with k.lock:
                if k.stumble:
                    k.stumble = False
                    self.chunk({"type": "ERROR", "object": Refused(500, "InternalError", "an event cannot be decoded").status})
                    break
                if at < k.compacted:
                    self.chunk({"type": "ERROR", "object": Refused(410, "Expired", f"too old resource version: {at} ({k.compacted})").status})
                    break
                events = [(v, t, o) for v, kd, t, o in k.log if v > at and kd == kind and fits(o)]
                last = k.version
                if not events:
                    k.lock.wait(0.1)
            for v, t, o in events:
                self.chunk({"type": t, "object": o})
            if events or time.monotonic() - said > 1:
                at, said = max(last if not events else events[-1][0], at), time.monotonic()
                if not events and q.get("allowWatchBookmarks") == "true":
                    self.chunk({"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": str(at)}}})
        with contextlib.suppress(OSError):
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    do_GET = do_POST = do_DELETE = do
