#!/usr/bin/env python3
"""The same requests to `penstock registry` and to Apicurio Registry (its Confluent-compatible interface): status and error_code must agree.
Messages are not compared: they differ between servers and versions. Apicurio comes from Maven Central (142 MB) and is fetched only when
PENSTOCK_TEST_DOWNLOADS=1 is set or it is in the local repository already."""
import json, os, shutil, subprocess, sys, tarfile, urllib.error, urllib.parse, urllib.request
from pathlib import Path
sys.path.insert(0, str(Path(__file__).resolve().parent))
from kit import Platform, check, free_ports, skip, until

VERSION = "2.6.13.Final"  # the last that runs on Java 17
NAME = f"apicurio-registry-app-{VERSION}"
ARCHIVE = Path.home() / f".m2/repository/io/apicurio/apicurio-registry-app/{VERSION}/{NAME}-all.tar.gz"
V1 = '{"type":"record","name":"T","fields":[{"name":"a","type":"int"}]}'
V2 = '{"type":"record","name":"T","fields":[{"name":"a","type":"long"},{"name":"b","type":"string","default":"x"}]}'
BAD = '{"type":"record","name":"T","fields":[{"name":"a","type":"string"}]}'
S = lambda text: {"schema": text}

# (method, path, body); ID1 and ID2 stand for the ids that each server gave to V1 and V2
REQUESTS = [
    ("PUT", "/config", {"compatibility": "BACKWARD"}),  # Apicurio's default is NONE
    ("GET", "/config", None),
    ("GET", "/subjects", None),
    ("GET", "/subjects/no/versions", None),
    ("GET", "/subjects/no/versions/latest", None),
    ("DELETE", "/subjects/no", None),
    ("GET", "/schemas/ids/999999", None),
    ("POST", "/subjects/t-value/versions", S(V1)),
    ("POST", "/subjects/t-value/versions", S(V1)),
    ("GET", "/subjects/t-value/versions", None),
    ("GET", "/subjects/t-value/versions/1", None),
    ("GET", "/subjects/t-value/versions/latest", None),
    ("GET", "/subjects/t-value/versions/latest/schema", None),
    ("GET", "/subjects/t-value/versions/7", None),
    ("GET", "/schemas/ids/ID1", None),
    ("GET", "/schemas/ids/ID1/versions", None),
    ("POST", "/subjects/t-value", S(V1)),
    ("POST", "/subjects/t-value", S(V2)),
    ("POST", "/subjects/no", S(V1)),
    ("POST", "/compatibility/subjects/t-value/versions/latest", S(V2)),
    ("POST", "/compatibility/subjects/t-value/versions/latest", S(BAD)),
    ("POST", "/subjects/t-value/versions", S(BAD)),
    ("POST", "/subjects/t-value/versions", S('{"type":"nonsense"}')),
    ("POST", "/subjects/t-value/versions", S(V2)),
    ("GET", "/subjects/t-value/versions", None),
    ("GET", "/schemas/ids/ID2", None),
    ("PUT", "/config/t-value", {"compatibility": "FULL"}),
    ("GET", "/config/t-value", None),
    ("PUT", "/config/t-value", {"compatibility": "NONE"}),
    ("PUT", "/config", {"compatibility": "NONE"}),  # Apicurio takes a subject's NONE for "as the global level says"; Confluent's means none
    ("POST", "/subjects/t-value/versions", S(BAD)),
    ("GET", "/subjects/t-value/versions", None),
    ("DELETE", "/subjects/t-value", None),
    ("GET", "/subjects/t-value/versions", None),
    ("GET", "/subjects", None),
    ("DELETE", "/subjects/t-value?permanent=true", None),
    # In a subject of its own: Apicurio calls a subject with one deleted version soft-deleted (40404) and lists its versions all the same.
    ("POST", "/subjects/two-value/versions", S(V1)),
    ("POST", "/subjects/two-value/versions", S(V2)),
    ("DELETE", "/subjects/two-value/versions/2", None),
    ("GET", "/subjects/two-value/versions/2", None),
    ("GET", "/subjects/two-value/versions", None),
    ("DELETE", "/subjects/two-value/versions/9", None),
    ("POST", "/subjects/fresh-value/versions", S('"int"')),
    ("GET", "/subjects/fresh-value/versions", None),
]


def ask(base, method, path, body):
    req = urllib.request.Request(base + path, json.dumps(body).encode() if body is not None else None, {"Content-Type": "application/vnd.schemaregistry.v1+json"},
                                 method=method)
    try:
        with urllib.request.urlopen(req, timeout=20) as r:
            status, raw = r.status, r.read()
    except urllib.error.HTTPError as e:
        status, raw = e.code, e.read()
    try:
        answer = json.loads(raw)
    except ValueError:
        answer = None
    return status, answer.get("error_code") if isinstance(answer, dict) else None, answer


def shape(answer):
    """What must agree in a good answer: versions, verdicts, levels — not ids, which are each server's own."""
    if isinstance(answer, dict):
        return {k: answer[k] for k in ("version", "subject", "is_compatible", "compatibility", "compatibilityLevel") if k in answer}
    return sorted(answer) if isinstance(answer, list) and all(isinstance(a, (int, str)) for a in answer) else None


def run(base):
    ids, out = {}, []
    for method, path, body in REQUESTS:
        status, code, answer = ask(base, method, path.replace("ID1", str(ids.get(V1))).replace("ID2", str(ids.get(V2))), body)
        if status == 200 and method == "POST" and path.endswith("/versions"):
            ids.setdefault(body["schema"], answer["id"])
        out.append((status, code if status >= 400 else None, shape(answer) if status == 200 else None))
    return out


if not shutil.which("java") or not shutil.which("mvn"):
    skip("Apicurio needs Java and Maven: apt install openjdk-17-jre-headless maven")
if not ARCHIVE.exists():
    if os.environ.get("PENSTOCK_TEST_DOWNLOADS") != "1":
        skip("Apicurio (142 MB from Maven Central) is not here: PENSTOCK_TEST_DOWNLOADS=1 fetches it")
    r = subprocess.run(["mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get", "-Dtransitive=false",
                        f"-Dartifact=io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"], stdin=subprocess.DEVNULL)
    if r.returncode or not ARCHIVE.exists():
        skip("Maven Central does not give Apicurio now")

with Platform(up=False) as p:
    with tarfile.open(ARCHIVE) as t:
        t.extractall(p.dir / "apicurio", filter="data") if hasattr(tarfile, "data_filter") else t.extractall(p.dir / "apicurio")
    jar = next((p.dir / "apicurio").rglob(f"{NAME}-runner.jar"))
    ours, theirs = free_ports(1), free_ports(1)
    with open(p.dir / "apicurio.log", "w") as log:
        p.children.append(subprocess.Popen(["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1",
                                            f"-Dquarkus.http.port={theirs}", "-jar", jar], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=p.dir))
    p.spawn("registry", "--port", ours, log="registry.log")
    ours, theirs = f"http://127.0.0.1:{ours}", f"http://127.0.0.1:{theirs}/apis/ccompat/v7"

    def answers(base):
        try:
            return ask(base, "GET", "/subjects", None)[0] == 200
        except OSError:
            return False
    until(lambda: answers(ours), 90, "our registry answers")
    until(lambda: answers(theirs), 180, "Apicurio answers")
    differ = 0
    for (method, path, body), a, b in zip(REQUESTS, run(ours), run(theirs)):
        if a != b:
            differ += 1
            print(f"{method} {path} {json.dumps(body)}: ours {a}, Apicurio {b}", flush=True)
    check(not differ, f"{differ} of {len(REQUESTS)} answers differ from Apicurio's")
print(f"{len(REQUESTS)} requests answered as by Apicurio {VERSION}")
