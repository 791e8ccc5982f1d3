/* pipeline.js - what is to run, beside what runs: a pipeline's file and who published it, the scores that it gives as they come out, its dead letters with
 * their bytes and how they are put back; and the form that publishes a file, which says first what would change. */
import {h, fill, name, time, facts, command, table, row, toast, ask} from "./dom.js";
import {get, call, part, serves} from "./api.js";
import {short, plain, number} from "./text.js";
import {Chart, ChartGroup} from "./chart.js";
import {body} from "./topics.js";

const SCORES_MS = 3000, SCORES = 100, SCORES_AFTER = 3, GAP_S = 30, CURVES_MAX = 6, LETTERS = 20, SPREAD = 2000, BARS = 24;

/* The numbers of a record, by name; one level of what it holds. A list of one is its number. What only tells when is no curve. */
function numbers(data) {
    const out = [];
    const look = (at, v, deep) => {
        if (Array.isArray(v) && v.length === 1) v = v[0];
        if (/(^|[._])(at|time|timestamp)$/i.test(at)) return;
        if (typeof v === "number") out.push([at, v]);
        else if (v && typeof v === "object" && deep < 2) for (const [k, x] of Object.entries(v).slice(0, 20)) look(at ? `${at}.${k}` : k, x, deep + 1);
    };
    look("", data, 0);
    const scores = out.filter(([k]) => /score|pred|prob|output|anomal/i.test(k));
    return (scores.length ? scores : out).slice(0, CURVES_MAX);
}

/* How often which values come: bars over the newest of them, for those who do not see them in words. */
class Spread {
    constructor(parent, title) {
        this.title = title;
        this.values = [];
        this.bars = h("div.bars", {role: "img"});
        this.ends = h("div.ends");
        parent.append(h("figure.chart", null, h("figcaption", null, title + ", how often"), this.bars, this.ends));
    }
    add(v) {
        if (!Number.isFinite(v)) return;
        this.values.push(v);
        if (this.values.length > SPREAD) this.values.splice(0, SPREAD / 10);
    }
    paint() {
        if (!this.values.length) return;
        const s = [...this.values].sort((a, b) => a - b), low = s[0], high = s[s.length - 1], width = (high - low) / BARS || 1, counts = new Array(BARS).fill(0);
        for (const v of s) counts[Math.min(BARS - 1, Math.floor((v - low) / width))]++;
        const most = Math.max(...counts), at = q => number(s[Math.min(s.length - 1, Math.floor(q * s.length))]);
        fill(this.bars, counts.map((n, i) => { const bar = h("div", {title: `${number(low + i * width)} to ${number(low + (i + 1) * width)}: ${n}`}); bar.style.height = n ? Math.max(2, 100 * n / most) + "%" : "0"; return bar; }));
        this.bars.setAttribute("aria-label", `${this.title} of the newest ${s.length} records: from ${number(low)} to ${number(high)}, half of them below ${at(0.5)}, nine tenths below ${at(0.9)}`);
        fill(this.ends, h("div", null, h("span", null, number(low)), h("span", null, number(high))), h("div.dim", null, h("span", null, `newest ${number(s.length)}: half below `, h("b", null, at(0.5)), ", nine tenths below ", h("b", null, at(0.9)))));
    }
}

class Scores {
    constructor(topic) {
        this.topic = topic;
        this.seen = new Set();
        this.grid = h("div.charts");
        this.said = h("p.hint", {role: "status"}, "reading …");
        this.group = new ChartGroup({x: "time", gap_s: GAP_S});
        this.charts = new Map();
        this.next = new Map(); // of each partition: the offset behind the last one that was read
        this.box = h("section", {"aria-label": "scores"}, h("h2", null, "Scores over time ", h("a.dim", {href: "#/topics/" + part(topic)}, name(topic, 80))), this.said, this.grid);
        this.ended = false;
        this.again();
    }
    async again() {
        let wait = SCORES_MS;
        try {
            const d = await get(`v1/topics/${part(this.topic)}/records?limit=${SCORES}`);
            if (this.ended) return;
            for (const r of d.records) this.take(r);
            this.spread?.paint();
            this.said.textContent = this.seen.size ? "" : "Nothing has come out yet.";
        } catch (e) {
            this.said.textContent = e.message;
            wait *= SCORES_AFTER;
        }
        if (!this.ended) this.timer = setTimeout(() => this.again(), wait);
    }
    take(r) {
        const key = `${r.partition}/${r.offset}`;
        if (this.seen.has(key)) return;
        this.seen.add(key);
        const missed = this.next.has(r.partition) && r.offset > this.next.get(r.partition); // more came than are looked at: no line over what was not seen
        this.next.set(r.partition, r.offset + 1);
        numbers(r.value?.data).forEach(([field, v], i) => {
            const title = (field || "value").slice(0, 80);
            if (!this.charts.has(title)) {
                if (this.charts.size >= CURVES_MAX) return;
                this.charts.set(title, new Chart(this.grid, title, this.group));
                if (!i && !this.spread) this.spread = new Spread(this.grid, title);
            }
            if (missed) this.charts.get(title).add(title, r.timestamp / 1000 - 1e-4, NaN);
            this.charts.get(title).add(title, r.timestamp / 1000, v);
            if (!i) this.spread.add(v);
        });
    }
    end() { this.ended = true; clearTimeout(this.timer); this.group.end(); }
}

/* Counted by reason; one is looked into by choosing it; all are put back where they came from once that was asked. */
function letters(pipeline, topics) {
    const at = `v1/pipelines/${part(pipeline)}/dead-letters`, counted = h("div"), newest = h("div"), said = h("p.hint", {role: "status"});
    const can = serves("/v1/pipelines/{pipeline}/dead-letters/replay", "post");
    const replay = h("button.danger", {type: "button", hidden: true, onclick: async () => {
        replay.disabled = true;
        try {
            const would = await call("POST", at + "/replay?dry_run=true"), words = would.topics.map(t => `${t.topic}: ${Object.entries(t).filter(([, v]) => typeof v === "number").map(([k, v]) => `${v} ${k.replace(/_/g, " ")}`).join(", ")}`).join("; ");
            if (await ask(`Put dead letters back where they came from? ${short(words, 400)}`, "put them back")) {
                const done = await call("POST", at + "/replay");
                toast("Put back. " + done.topics.map(t => `${t.topic}: ${Object.entries(t).filter(([, v]) => typeof v === "number").map(([k, v]) => `${v} ${k.replace(/_/g, " ")}`).join(", ")}`).join("; "));
                load();
            }
        } catch (e) { toast(e.message, true); } finally { replay.disabled = false; }
    }}, "put them back …");
    async function load() {
        said.textContent = "counting …";
        try {
            const d = await get(at + "?by=stage,reason"), heads = ["how many", "put back", "why", "newest"];
            const all = d.kinds.reduce((n, k) => n + k.count, 0);
            said.textContent = all ? "" : "There are none.";
            replay.hidden = !can || !all;
            fill(counted, all > 0 && table("Dead letters by reason", heads, d.kinds.slice(0, 100).map(k => row(heads, [number(k.count), k.replayed === null || k.replayed === undefined ? "–" : number(k.replayed), [k.stage, k.reason, k.class].filter(Boolean).map(t => h("div", null, name(t, 300))), h("span.why", null, short(k.newest?.error ?? k.newest?.message ?? "", 300))]))));
        } catch (e) { said.textContent = e.status === 404 ? "There are none: " + e.message : e.message; }
        fill(newest);
        for (const topic of topics.slice(0, 5)) {
            const d = await get(`v1/topics/${part(topic)}/records?limit=${LETTERS}`).catch(() => null), heads = ["time", "place", "why", "bytes"];
            if (d?.records.length) newest.append(h("details", null, h("summary", null, `the newest of ${plain(topic).slice(0, 120)}, with their bytes`), command(`penstock dlq show -t ${/^[\w.-]+$/.test(topic) ? topic : "TOPIC"}`), table("Newest dead letters", heads, d.records.slice().reverse().map(r => row(heads, [time(r.timestamp * 1000), h("code", null, `${r.partition}/${r.offset}`), (r.headers || []).filter(x => /error|reason|exception|stage/i.test(x.name)).slice(0, 6).map(x => h("div", {title: plain(x.name)}, short(x.value ?? x.hex ?? "", 300))), body(r.value)])))));
        }
    }
    load();
    return h("section", {"aria-label": "dead letters"}, h("h2", null, "Dead letters"), said, counted, newest, h("div.row", null, replay, h("button", {type: "button", onclick: load}, "count again")));
}

/* The versions that score, with what part of the records each. */
function versions(serving) {
    const model = s => [serves("/v1/registry/models") && s.name ? h("a", {href: "#/models/" + part(s.name)}, name(s.name, 80)) : name(s.name || "–", 80), s.version ? ` : ${s.version}` : "", s.alias ? h("span.dim", null, ` @ ${short(s.alias, 60)}`) : ""];
    return serving?.length ? serving.map(s => h("div", null, model(s), serving.length > 1 && h("span.dim", null, s.role === "shadow" ? " · shadow, beside the others" : ` · ${s.role}, ${number(s.share)} %`))) : null;
}

/* Into box, below what its scorers say. Returns how it ends. */
export function desired(box, pipeline) {
    let scores = null, ended = false;
    get("v1/pipelines/" + part(pipeline)).then(p => {
        if (ended) return;
        const reads = (p.inputs || []).map(t => h("div", null, serves("/v1/topics") ? h("a", {href: "#/topics/" + part(t)}, name(t, 120)) : name(t, 120)));
        fill(box, h("section", {"aria-label": "what is to run"}, h("h2", null, "What is to run"), p.refused && h("p.wrong", null, short(p.refused, 1000)),
            facts([["published", time(p.time)], ["by", name(p.actor, 80)], ["reads", reads.length ? reads : null], ["writes", p.output && name(p.output, 120)], ["group", p.group && name(p.group, 120)],
                [p.serving?.length > 1 ? "versions that score" : "model", versions(p.serving)]]),
            h("details", null, h("summary", null, "its file"), h("pre.small", {tabIndex: 0, role: "region", "aria-label": "its file"}, plain(p.spec).slice(0, 50000))),
            h("p", null, serves("/v1/pipelines", "post") && h("a.button", {href: "#/apply/" + part(pipeline)}, "change it"))));
        if (p.output && serves("/v1/topics/{topic}/records")) box.append((scores = new Scores(p.output)).box);
        if (serves("/v1/pipelines/{pipeline}/dead-letters")) box.append(letters(pipeline, p.dead_letters || []));
    }, e => { if (!ended) fill(box, h("p.hint", null, e.message)); });
    return () => { ended = true; scores?.end(); };
}

/* The view that publishes a file. */
export function open(root, args) {
    const text = h("textarea", {id: "pipeline-file", rows: 20, spellcheck: false, "aria-describedby": "wrong"}), wrong = h("p.wrong", {id: "wrong", role: "alert", hidden: true}), differs = h("div");
    const file = h("input", {type: "file", accept: ".yml,.yaml", onchange: async () => { if (file.files[0]) text.value = await file.files[0].text(); }});
    async function send(dry) {
        wrong.hidden = true;
        try {
            const d = await call("POST", "v1/pipelines" + (dry ? "?dry_run=true" : ""), text.value, "application/yaml"), heads = ["key", "before", "after"];
            const words = v => v === undefined ? "–" : short(typeof v === "string" ? v : JSON.stringify(v), 300);
            fill(differs, h("section", {"aria-label": "what changes"}, h("h2", null, {create: "A new pipeline", change: "What changes", none: "Nothing changes"}[d.action] || d.action), d.difference.length > 0 && d.action === "change" && table("What changes", heads, d.difference.map(x => row(heads, [h("code", null, short(x.path, 200)), words(x.before), words(x.after)]))), d.report && h("pre.small", null, plain(d.report).slice(0, 20000))));
            if (!dry) { toast(`Published: ${d.topic}/${d.partition}/${d.offset}`); location.hash = "#/pipelines/" + part(d.name); }
        } catch (e) {
            wrong.textContent = plain(e.message);
            wrong.hidden = false;
        }
    }
    fill(root, h("p", null, h("a", {href: "#/pipelines"}, "← all pipelines")), h("h1", null, "Apply a pipeline"),
        h("form.submit", {onsubmit: e => { e.preventDefault(); send(false); }}, h("label", {htmlFor: "pipeline-file"}, "Pipeline file"), text, wrong, h("div.row", null, h("label", null, "from a file ", file)),
            h("div.row", null, h("button", {type: "button", onclick: () => send(true)}, "what would change"), h("button.main", {type: "submit"}, "apply"))), differs);
    if (args[0]) get("v1/pipelines/" + part(args[0])).then(p => { if (!text.value) text.value = p.spec; }, e => toast(e.message, true));
    return () => {};
}
