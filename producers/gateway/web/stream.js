/* stream.js - one event stream for the page. The browser connects again by itself and says with Last-Event-ID where it was; where the gateway cannot
 * go on there (`reset`, `gap`) or has left something out (`missed`), views ask anew for what they show. */

const KINDS = ["state", "event", "metric", "log", "model", "pipeline", "worker"];
const TOPICS = ["jobs.state", "jobs.events", "metrics", "logs", "models", "pipelines", "workers"];
const listeners = new Set(); // {kinds, take, again}
let broken = false, away = null, opened = false;

/* take(kind, record, position) for each record of these kinds; again() when some may be missing. Returns how to stop. */
export function listen(kinds, take, again) {
    const l = {kinds: new Set(kinds), take, again};
    listeners.add(l);
    return () => listeners.delete(l);
}

function place(id) { // topic/partition/offset;where all partitions were
    const m = /^([^;]*)\/(\d+)\/(\d+)(;|$)/.exec(id || "");
    return m ? {topic: m[1], partition: +m[2], offset: +m[3]} : null;
}

/* One that cannot take a record does not keep it from the others. */
function guarded(fn) {
    try { fn(); } catch (e) { console.warn("a view could not take what came", e); }
}

function hand(kind, event) {
    let record;
    try { record = JSON.parse(event.data); } catch { return; }
    if (record !== null && typeof record !== "object") return; // null: a tombstone
    for (const l of [...listeners]) if (l.kinds.has(kind)) guarded(() => l.take(kind, record, place(event.lastEventId)));
}

function again() {
    for (const l of [...listeners]) if (l.again) guarded(l.again);
}

export function connect(say) {
    const stream = new EventSource("events/stream?topics=" + TOPICS.join(","));
    const tell = () => {
        if (broken) say("lost", stream.readyState === EventSource.CLOSED ? "ended; reload the page" : "connection lost, trying again …");
        else if (away) say("away", "Kafka is away: what is shown may be old");
        else say("live", "live");
    };
    stream.onopen = () => {
        if (broken && opened) again();
        broken = false;
        opened = true;
        tell();
    };
    stream.onerror = () => { broken = true; tell(); };
    for (const kind of KINDS) stream.addEventListener(kind, e => hand(kind, e));
    stream.addEventListener("missed", again);
    stream.addEventListener("gap", again);
    stream.addEventListener("kafka", e => { const was = away; let d; try { d = JSON.parse(e.data); } catch { return; } away = d.reached ? null : d; tell(); if (was && !away) again(); });
    addEventListener("pagehide", () => stream.close());
}
