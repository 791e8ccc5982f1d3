"""/openapi.json against the gateway that serves it: valid by openapi-spec-validator, and by schemathesis nothing that it describes is answered in another way."""
from kit import *

SECONDS = 25


def python():
    r = subprocess.run([ROOT / "tests/live/venv-api"], cwd=ROOT, text=True, capture_output=True)
    if r.returncode:
        skip(f"no openapi-spec-validator and schemathesis: {r.stderr.strip()[-200:]}")
    return Path(r.stdout.strip())


with Platform(without="scorers") as p:
    bin_ = python().parent
    status, text, _ = p.http("/openapi.json")
    (p.dir / "openapi.json").write_bytes(text)
    r = subprocess.run([bin_ / "openapi-spec-validator", p.dir / "openapi.json"], text=True, capture_output=True)
    check(status == 200 and r.returncode == 0, f"the description is not valid: {r.stdout[-2000:]}")
    check(p.http("/v1/jobs", data=manifest("one", "echo hi").encode())[0] == 202, "a job to be found")
    p.create("words", 2)
    # Requests as the description allows them, and as it does not: none may end in a 5xx, or be answered by a status, type or body that is not described.
    # What waits for its end by design (streams), and other people's interfaces, have tests of their own.
    r = subprocess.run([bin_ / "schemathesis", "run", p.dir / "openapi.json", "--url", p.gateway, "-H", f"Authorization: Bearer {p.token}", "--include-path-regex",
                        "^/(health|state|v1/(jobs|registry|pipelines|topics|nodes|queues))", "--phases", "coverage,fuzzing", "--max-examples", "2", "--max-time", str(SECONDS), "--seed", "1", "--warnings", "off",
                        "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection,unsupported_method",
                        "--request-timeout", "60"], cwd=p.dir, env={**os.environ, "NO_COLOR": "1"}, text=True, capture_output=True)
    cases = [l.strip() for l in r.stdout.splitlines() if "generated" in l]
    check(r.returncode == 0, f"{r.stdout[-6000:]}{r.stderr[-2000:]}")
    check(cases and int(cases[0].split()[0]) > 100, f"hardly anything was asked: {r.stdout[-2000:]}")
    check(not [s for s in p.status()["services"] if s["restarts"]], f"a service ended: {p.status()}")
    check(p.http("/health")[1] == b"OK", "the gateway is not well after it")
    print(cases[0])
print("ok")
