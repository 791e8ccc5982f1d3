/* app.js - the page is a view of the topics: one event stream fills a model, the model is painted. Nothing is polled but a job's earlier records,
 * once, when it is chosen. */
"use strict";

// The cookie is for this path alone; `/` finds its way here by what this origin, port and all, remembers.
if (/^\/page-[0-9a-f]+\/$/.test(location.pathname)) localStorage.setItem("penstock", location.pathname);

const $ = id => document.getElementById(id);
const LOG_LINES = 1000;
const HEARD_MS = 25000; // a scorer that was not heard for longer is gone
const RUNNING = new Set(["PENDING", "DOWNLOADING", "PROCESSING", "STORING"]);

const jobs = new Map();      // id → state document
const pipelines = new Map(); // name → {box, facts, charts, last}
let chosen = null;           // {id, group, charts, seen}

function ago(us) {
    const s = Math.max(0, Date.now() / 1000 - us / 1e6);
    return s < 60 ? Math.floor(s) + " s" : s < 3600 ? Math.floor(s / 60) + " min" : s < 86400 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " d";
}

function number(v, digits = 3) {
    return v === undefined || v === null || !Number.isFinite(v) ? "–" : v >= 1000 ? Math.round(v).toLocaleString("en") : String(+v.toPrecision(digits));
}

function el(tag, text, cls) {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    if (cls) e.className = cls;
    return e;
}

/* ---- jobs ---- */

let jobsAsked = false;
function paintJobsSoon() {
    if (jobsAsked) return;
    jobsAsked = true;
    setTimeout(() => { jobsAsked = false; paintJobs(); }, 100);
}

function paintJobs() {
    const list = [...jobs.values()].sort((a, b) => b.submitted_at - a.submitted_at).slice(0, 200);
    $("jobs").hidden = !list.length;
    $("jobs-none").hidden = !!list.length;
    $("t-running").textContent = String(list.filter(j => RUNNING.has(j.state)).length);
    const body = $("jobs").tBodies[0], rows = [];
    for (const j of list) {
        const tr = el("tr");
        tr.dataset.id = j.training_id;
        tr.tabIndex = 0;
        tr.title = j.training_id;
        if (chosen && chosen.id === j.training_id) tr.className = "chosen";
        const state = el("td");
        state.append(el("span", j.state, "state " + j.state));
        const made = j.model ? ` → ${j.model.name}:${j.model.version}` : "";
        const why = el("td");
        // its first lines; all of it stands in the job's box. What every failed command begins with would fill them.
        why.append(el("span", (j.reason || "").replace(/^\S+: the command exited with status \d+: /, ""), "why"));
        tr.append(state, el("td", j.name + made), why, el("td", ago(j.since || j.updated_at)));
        rows.push(tr);
    }
    const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.id : null;
    body.replaceChildren(...rows);
    if (focused) { const tr = rows.find(r => r.dataset.id === focused); if (tr) tr.focus(); }
    if (chosen) paintFacts();
    if (!chosen && list.length) choose(list[0].training_id);
}

function paintFacts() {
    const j = jobs.get(chosen.id);
    if (!j) return;
    $("job-h").textContent = "Job " + j.name;
    const facts = [["span", j.state, "state " + j.state], ["span", ` ${j.reason || ""} `], ["code", j.training_id], ["span", ` by ${j.user}, generation ${j.generation}, ${j.learners} learner${j.learners === 1 ? "" : "s"}`]];
    if (j.model) facts.push(["span", `, made model ${j.model.name}:${j.model.version} `], ["code", "sha256:" + j.model.digest.slice(0, 12) + "…"]);
    $("job-facts").replaceChildren(...facts.map(f => el(...f)));
}

function choose(id) {
    chosen = {id, group: new ChartGroup(), charts: new Map(), seen: new Set()};
    $("job-box").hidden = false;
    $("job-charts").replaceChildren();
    $("log").replaceChildren();
    paintFacts();
    paintJobsSoon();
    const now = chosen;
    for (const [what, take] of [["metrics", takeMetric], ["logs", takeLog]])
        fetch(`v1/jobs/${encodeURIComponent(id)}/${what}?limit=1000`).then(r => r.ok ? r.json() : {records: []}).then(d => {
            if (chosen === now) for (const record of d.records) take(record);
        }).catch(() => {});
}

function takeMetric(m) {
    const key = `m${m.generation}/${m.process}/${m.rindex}/${m.group}`;
    if (chosen.seen.has(key)) return;
    chosen.seen.add(key);
    const x = m.epoch !== null ? m.epoch : m.step !== null ? m.step : m.time / 1e6;
    const on = m.group === "system" ? "system " : "";
    for (const [name, y] of Object.entries(m.values)) {
        const title = on + name;
        let chart = chosen.charts.get(title);
        if (!chart) {
            if (chosen.charts.size >= 12) continue;
            const group = on ? (chosen.system = chosen.system || new ChartGroup()) : chosen.group;
            chosen.charts.set(title, chart = new Chart($("job-charts"), title, group));
        }
        chart.add(m.group + (m.process === "learner-1" ? "" : " " + m.process) + (m.generation > 1 ? " #" + m.generation : ""), on ? m.time / 1e6 : x, y);
    }
}

function takeLog(l) {
    const key = `l${l.generation}/${l.process}/${l.rindex}`;
    if (chosen.seen.has(key)) return;
    chosen.seen.add(key);
    const log = $("log"), line = el("div", undefined, l.stream);
    const j = jobs.get(chosen.id);
    if (j && (j.learners > 1 || l.generation > 1)) line.append(el("span", `[${l.generation}/${l.process}] `, "who"));
    line.append(l.gap ? `… ${l.gap.lines} lines left out: ${l.gap.why}` : l.text);
    log.append(line);
    while (log.childElementCount > LOG_LINES) log.firstElementChild.remove();
    if ($("tail").checked) log.scrollTop = log.scrollHeight;
}

/* ---- pipelines ---- */

function pipeline(name) {
    let p = pipelines.get(name);
    if (!p) {
        const box = el("div", undefined, "pipe"), facts = el("p"), says = el("ul", undefined, "says"), charts = el("div", undefined, "charts"), group = new ChartGroup();
        box.append(facts, says, charts);
        $("pipes").append(box);
        $("pipes-none").hidden = true;
        p = {facts, says, workers: new Map(), group, charts: {
            rate: new Chart(charts, "records per second", group), lag: new Chart(charts, "lag, records", group), latency: new Chart(charts, "latency", group, " ms")}};
        pipelines.set(name, p);
    }
    return p;
}

function takeScorer(m) {
    const name = m.training_id.slice("pipeline:".length), p = pipeline(name);
    const v = m.values, t = m.time / 1e6;
    p.last = v;
    p.at = m.time;
    p.charts.rate.add("rate", t, v.records_per_s);
    if (v.lag >= 0) p.charts.lag.add("lag", t, v.lag);
    p.charts.latency.add("p50", t, v.latency_p50_ms);
    p.charts.latency.add("p99", t, v.latency_p99_ms);
    p.facts.replaceChildren(el("b", name), el("span", `  ${number(v.scored_total)} scored, ${number(v.dead_letters_total)} dead letters` + (v.paused ? ", paused by dead letters" : v.waiting ? ", waiting" : "") + (v.model_version ? `, model version ${v.model_version}` : "")));
    paintTiles();
}

/* A scorer's heartbeat: what it waits for, and the model that it would not take. Its own words, shown as text. */
function takeWorker(w) {
    const d = w.details || {};
    if (w.kind !== "scorer" || !d.pipeline) return;
    if (w.state === "stopped" && !pipelines.has(d.pipeline)) return;
    const p = pipeline(d.pipeline);
    if (!p.facts.firstChild) p.facts.append(el("b", d.pipeline));
    if (w.state === "stopped") p.workers.delete(w.worker_id);
    else p.workers.set(w.worker_id, {at: w.time, waits: d.waits_for ? (d.waits_for === "paused" ? "paused: " : `waiting for ${d.waits_for}: `) + (d.why || "") : "", refused: d.model_refused ? "model " + d.model_refused : ""});
    paintSays(p);
}

function paintSays(p) {
    const lines = new Set();
    for (const w of p.workers.values()) {
        if (Date.now() * 1000 - w.at > HEARD_MS * 1000) continue; // silent: it says nothing any more
        if (w.waits) lines.add(w.waits);
        if (w.refused) lines.add(w.refused);
    }
    const now = [...lines].sort();
    if (now.join("\n") !== p.said) p.says.replaceChildren(...now.map(l => el("li", l)));
    p.said = now.join("\n");
}

function paintTiles() {
    let rate = 0, lag = 0, p50 = 0, p99 = 0, n = 0;
    for (const p of pipelines.values()) {
        if (!p.last || Date.now() * 1000 - p.at > 15e6) continue; // silent for 15 s: not counted
        n++;
        rate += p.last.records_per_s || 0;
        lag += Math.max(0, p.last.lag || 0);
        p50 = Math.max(p50, p.last.latency_p50_ms || 0);
        p99 = Math.max(p99, p.last.latency_p99_ms || 0);
    }
    $("t-rate").textContent = n ? number(rate) : "–";
    $("t-lag").textContent = n ? number(lag) : "–";
    $("t-p50").textContent = p50 ? number(p50) + " ms" : "–"; // nothing was scored: no latency
    $("t-p99").textContent = p99 ? number(p99) + " ms" : "–";
}

/* ---- the stream ---- */

function link(cls, text) {
    $("link").className = "link " + cls;
    $("link").textContent = text;
}

function takeState(event) {
    const doc = JSON.parse(event.data);
    if (!doc) return;
    jobs.set(doc.training_id, doc);
    paintJobsSoon();
}

function connect() {
    const stream = new EventSource("events/stream?kinds=state,event,metric,log,model,pipeline,worker");
    stream.onopen = () => link("live", "live");
    stream.onerror = () => link("lost", stream.readyState === EventSource.CLOSED ? "ended; reload the page" : "connection lost, trying again …");
    stream.addEventListener("state", takeState);
    stream.addEventListener("event", e => { // a deleted job leaves the list; its state record is a tombstone without id
        const d = JSON.parse(e.data);
        if (d && d.type === "DELETED") { jobs.delete(d.training_id); paintJobsSoon(); }
    });
    stream.addEventListener("metric", e => {
        const m = JSON.parse(e.data);
        if (!m) return;
        if (m.training_id.startsWith("pipeline:")) takeScorer(m);
        else if (chosen && m.training_id === chosen.id) takeMetric(m);
    });
    stream.addEventListener("worker", e => {
        const w = JSON.parse(e.data);
        if (w) takeWorker(w);
    });
    stream.addEventListener("log", e => {
        const l = JSON.parse(e.data);
        if (l && chosen && l.training_id === chosen.id) takeLog(l);
    });
}

$("jobs").addEventListener("click", e => { const tr = e.target.closest("tr[data-id]"); if (tr) choose(tr.dataset.id); });
$("jobs").addEventListener("keydown", e => { const tr = e.target.closest("tr[data-id]"); if (tr && (e.key === "Enter" || e.key === " ")) { e.preventDefault(); choose(tr.dataset.id); } });
setInterval(() => { paintTiles(); pipelines.forEach(paintSays); if (jobs.size) paintJobsSoon(); }, 2000);
fetch("v1/jobs?limit=200").then(r => r.ok ? r.json() : {jobs: []}).then(d => {
    for (const j of d.jobs) if (!jobs.has(j.training_id)) jobs.set(j.training_id, j);
    paintJobsSoon();
}).catch(() => {}).finally(connect);
