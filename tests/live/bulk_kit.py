"""A server of the bulk API that OpenSearch and Elasticsearch share, with faults: it keeps documents by index and id, says of each item what a real one would, and
can refuse, lose answers, be slow or be no such server at all. Answers are those that were seen of OpenSearch 2.19."""
import base64, collections, http.server, json, ssl, threading, time


class BulkServer:
    def __init__(self, tls=None, credentials=None, bytes_max=None):
        self.docs, self.templates, self.requests, self.writes = {}, {}, 0, collections.Counter()
        self.faults = []      # of the next bulk requests: "503", "429", "cut", "late", "page", "some", "block"
        self.bad = lambda doc: None  # a reason why a document never fits
        self.refuses_whole = False
        self.lock, self.seen_auth, self.sizes, bulk = threading.Lock(), set(), [], self
        want = credentials and "Basic " + base64.b64encode(credentials.encode()).decode()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, body, kind="application/json"):
                text = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                bulk.seen_auth.add(self.headers.get("Authorization"))
                if want and self.headers.get("Authorization") != want:
                    return self.answer(401, {"error": "security_exception", "status": 401})
                if self.path.startswith("/_index_template/"):
                    name = self.path.rpartition("/")[2]
                    if self.command == "PUT":
                        bulk.templates.setdefault(name, []).append(json.loads(body))
                        return self.answer(200, {"acknowledged": True})
                    there = name in bulk.templates
                    return self.answer(200 if there else 404, {"index_templates": []} if there else {"status": 404})
                if self.path != "/_bulk" or self.command != "POST":
                    return self.answer(405, {"error": "Incorrect HTTP method", "status": 405})
                self.bulk(body)
            do_GET = do_PUT = do_POST = do

            def bulk(self, body):
                with bulk.lock:
                    bulk.requests += 1
                    bulk.sizes.append(len(body))
                    fault = bulk.faults.pop(0) if bulk.faults else None
                if bytes_max and len(body) > bytes_max:
                    return self.answer(413, {"error": "too large"})
                if bulk.refuses_whole:
                    return self.answer(400, {"error": {"type": "illegal_argument_exception", "reason": "no"}, "status": 400})
                if fault in ("503", "429"):
                    return self.answer(int(fault), {"error": {"type": "es_rejected_execution_exception"}, "status": int(fault)})
                if fault == "page":
                    return self.answer(200, b"<html>please log in</html>", "text/html")
                if not body.endswith(b"\n") or self.headers["Content-Type"] != "application/x-ndjson":
                    return self.answer(400, {"error": "The bulk request must be terminated by a newline [\\n]", "status": 400})
                lines, items = body.decode().splitlines(), []
                for i in range(0, len(lines), 2):
                    (op, where), = json.loads(lines[i]).items()
                    assert op == "index", op
                    items.append({op: {"_index": where["_index"], "_id": where["_id"], **bulk.store(where, json.loads(lines[i + 1]), fault, i // 2)}})
                if fault == "cut":  # stored, and nobody hears of it
                    self.close_connection = True
                    return self.connection.shutdown(2)
                if fault == "late":
                    time.sleep(2.5)
                with_errors = any("error" in item["index"] for item in items)
                self.answer(200, {"took": 1, "errors": with_errors, "items": items})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def store(self, where, doc, fault, i):
        if fault == "some" and i % 3 == 0:
            return {"status": 429, "error": {"type": "es_rejected_execution_exception", "reason": "rejected execution"}}
        if fault == "block":
            return {"status": 403, "error": {"type": "cluster_block_exception", "reason": "index blocked by: [FORBIDDEN/12/index read-only]"}}
        why = self.bad(doc)
        if why:
            return {"status": 400, "error": {"type": "mapper_parsing_exception", "reason": "failed to parse field", "caused_by": {"reason": why}}}
        key = where["_index"], where["_id"]
        with self.lock:
            there = key in self.docs
            self.docs[key] = doc
            self.writes[key] += 1
        return {"status": 200 if there else 201, "result": "updated" if there else "created"}

    def close(self):
        self.server.shutdown()
        self.server.server_close()
