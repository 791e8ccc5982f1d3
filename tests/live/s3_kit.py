"""An S3 server that checks signatures (s3proxy, fetched by Maven), a client of it that shares no code with ours, and a door before it that can fail."""
import datetime, hashlib, hmac, http.client, http.server, re, subprocess, threading, time, urllib.parse
from kit import *

KEY, SECRET = "AKIDEXAMPLE", "sEcReT+key/with=odd:chars"


class S3:
    def __init__(self, folder):
        r = subprocess.run([ROOT / "tests/live/s3/fetch"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if r.returncode == 77:
            skip(r.stdout.strip())
        check(r.returncode == 0, f"tests/live/s3/fetch exited {r.returncode}: {r.stdout}{r.stderr}")
        self.port = free_ports(1)
        properties = Path(folder) / "s3.properties"
        properties.write_text(f"s3proxy.endpoint=http://127.0.0.1:{self.port}\ns3proxy.authorization=aws-v2-or-v4\ns3proxy.identity={KEY}\n"
                              f"s3proxy.credential={SECRET}\njclouds.provider=transient-nio2\n")
        self.process = subprocess.Popen(["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", r.stdout.strip() + "/*", "org.gaul.s3proxy.Main",
                                         "--properties", properties], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def answers():
            try:
                return self.call("GET", "/")[0] == 200
            except OSError:
                return False
        until(answers, 60, "s3proxy answers")

    def end(self):
        self.process.kill()
        self.process.wait()

    def call(self, method, path, query="", body=b"", headers=None):
        """One signed request (AWS signature version 4, written from its description)."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        host, digest = f"127.0.0.1:{self.port}", hashlib.sha256(body).hexdigest()
        path = urllib.parse.quote(path, safe="/-._~")
        sent = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now, **(headers or {})}
        names = ";".join(sorted(sent))
        canonical = "\n".join([method, path, query, *(f"{k}:{sent[k]}" for k in sorted(sent)), "", names, digest])
        scope = f"{now[:8]}/us-east-1/s3/aws4_request"
        key = ("AWS4" + SECRET).encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n" + hashlib.sha256(canonical.encode()).hexdigest()
        signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        sent["Authorization"] = f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={names}, Signature={signature}"
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        c.request(method, path + ("?" + query if query else ""), body, sent)
        r = c.getresponse()
        answer = r.status, r.read(), dict(r.getheaders())
        c.close()
        return answer

    def make(self, bucket):
        status, body, _ = self.call("PUT", f"/{bucket}")
        check(status == 200, f"making bucket {bucket}: {status} {body[:200]}")

    def put(self, bucket, key, body):
        status, answer, _ = self.call("PUT", f"/{bucket}/{key}", body=body)
        check(status == 200, f"PUT {bucket}/{key}: {status} {answer[:200]}")

    def get(self, bucket, key):
        status, body, _ = self.call("GET", f"/{bucket}/{key}")
        return body if status == 200 else None

    def keys(self, bucket, prefix=""):
        status, body, _ = self.call("GET", f"/{bucket}", f"list-type=2&max-keys=1000&prefix={urllib.parse.quote(prefix, safe='')}")
        check(status == 200, f"list of {bucket}: {status} {body[:200]}")
        import html
        return [html.unescape(k) for k in re.findall(r"<Key>(.*?)</Key>", body.decode())]


class Door(http.server.ThreadingHTTPServer):
    """Passes requests on to an S3 server, unless fails(method, path, n) of the n-th request says "503", "cut" (the answer breaks off) or "away"."""
    daemon_threads = True

    def __init__(self, s3):
        self.s3, self.fails, self.count, self.seen, self.delay = s3, lambda *_: None, 0, [], 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            def log_message(self, *_): pass

            def do(self):
                door = self.server
                door.count += 1
                n = door.count
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                door.seen.append((self.command, self.path, str(self.headers)))
                how = door.fails(self.command, self.path, n)
                time.sleep(door.delay)
                if how == "away":
                    self.close_connection = True
                    return self.connection.close()
                if how == "503":
                    self.send_response(503)
                    self.send_header("Content-Length", "0")
                    return self.end_headers()
                c = http.client.HTTPConnection("127.0.0.1", door.s3.port, timeout=60)
                c.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for k, v in self.headers.items():
                    c.putheader(k, v)
                c.endheaders(body)
                r = c.getresponse()
                data = r.read()
                self.send_response(r.status)
                for k, v in r.getheaders():
                    if k.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                        self.send_header(k, v)
                self.send_header("Content-Length", r.getheader("Content-Length") if self.command == "HEAD" else str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data[:len(data) // 2] if how == "cut" else data)
                if how == "cut":
                    self.wfile.flush()
                    self.close_connection = True
                    self.connection.close()
                c.close()
            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do
        super().__init__(("127.0.0.1", 0), Handler)
        self.port = self.server_port
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):  # a peer that ended
        pass
