"""The store is deleted while everything runs: it is rebuilt from the topics and equal to them; nothing exits."""
import sys, os, json, signal, sqlite3, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../live"))
from kit import *

with Platform() as p:
    ids = [p.submit(manifest(f"job-{i}", "true" if i % 2 else "exit 1")) for i in range(6)]
    for tid in ids:
        p.wait_state(tid, *ENDED)
    pids = {s["name"]: s["pid"] for s in p.status()["services"]}
    view = lambda: {j["training_id"]: (j["state"], j["seq"], j["name"]) for j in json.loads(p.http("/v1/jobs?limit=1000")[1]).get("jobs", [])}
    before = until(lambda: (lambda v: v if len(v) == 6 else None)(view()), 10, lambda: f"the view holds six jobs; it has {view()}")
    for f in (p.dir / "state").glob("store.db*"):
        f.unlink()
    later = p.submit(manifest("later", "true"))
    p.wait_state(later, "COMPLETED")

    def rebuilt():
        now = view()
        return now if before.items() <= now.items() and later in now else None
    until(rebuilt, 30, lambda: f"the rebuilt view equals the old one and has the new job; it is {view()}")
    check({s["name"]: s["pid"] for s in p.status()["services"]} == pids, "a service was restarted")
    # what it was filled from is not in it any more: emptied, which is said, and filled anew; an hour like any other says nothing
    log = p.dir / "state/log/trainer.log"
    check("event=store_emptied" not in log.read_text(), "a store is emptied although nothing is wrong with it")
    with sqlite3.connect(p.dir / "state/store.db", timeout=30) as db:
        check(db.execute("DELETE FROM positions WHERE topic LIKE 'cluster %'").rowcount == 1, "one origin")
    os.kill(pids["trainer"], signal.SIGKILL)
    until(lambda: " WARN view event=store_emptied " in log.read_text(), 60, "it is not said that the store was emptied")
    until(rebuilt, 60, lambda: f"the view after it was emptied: {view()}")
print("ok: store deleted while running, rebuilt; emptied, and said")
