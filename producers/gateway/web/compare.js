/* compare.js - runs side by side: what differs between them, and their curves over each other. Which ones stands in the address. */
import {h, fill, name, badge, toast, table} from "./dom.js";
import {get, patient, part} from "./api.js";
import {listen} from "./stream.js";
import {short, bytes, number, duration} from "./text.js";
import {Curves} from "./curves.js";

const RUNS_MAX = 12, RECORDS = 2000;

/* A manifest's keys with their path, as its indentation has them: enough to tell two manifests apart, whatever else YAML can do. */
export function settings(yaml) {
    const out = new Map(), path = [];
    for (const line of String(yaml || "").split("\n").slice(0, 2000)) {
        const m = /^(\s*)(- )?([A-Za-z0-9_.-]+):(?:\s+(.*))?$/.exec(line);
        if (!m) continue;
        const depth = m[1].length + (m[2] ? 2 : 0);
        while (path.length && path[path.length - 1].depth >= depth) path.pop();
        path.push({depth, key: m[3]});
        const value = (m[4] || "").replace(/\s+#.*$/, "");
        if (value) out.set(path.map(p => p.key).join("."), value);
    }
    return out;
}

function traits(j) {
    const t = new Map([["user", j.user], ["queue", j.queue], ["framework", j.framework], ["code", j.code?.sha256?.slice(0, 12)], ["ran for", j.started_at ? duration(((j.ended_at || Date.now() * 1000) - j.started_at) / 1e6) : ""],
        ["wants", `${j.learners} × ${number(j.cpus)} CPU, ${bytes(j.memory_bytes)}, ${j.gpus} GPU`], ["model", j.model ? `${j.model.name}:${j.model.version}` : ""]]);
    for (const [k, v] of settings(j.manifest)) if (k !== "name") t.set(k, v);
    return t;
}

export function open(root, args, query) {
    const ids = [...new Set((query.get("ids") || "").split(",").filter(Boolean))].slice(0, RUNS_MAX);
    const runs = new Map(), curves = new Curves({id: "compare-charts"}), differs = h("div"), last = new Map();
    let ended = false;
    fill(root, h("p", null, h("a", {href: "#/jobs"}, "← all jobs")), h("h1", null, `Compare ${ids.length} runs`), h("section", {"aria-label": "What differs"}, h("h2", null, "What differs"), differs), h("section", {"aria-label": "Curves"}, h("h2", null, "Curves"), curves.box));
    if (ids.length < 2) fill(differs, h("p.hint", null, "Tick two jobs or more in the ", h("a", {href: "#/jobs"}, "list"), " and choose compare."));

    /* Two runs of one name are told apart by the end of their ids. */
    function label(j) {
        const same = [...runs.values()].filter(o => o.name === j.name).length > 1;
        return j.name.slice(0, 40) + (same ? " " + j.training_id.slice(-4) : "");
    }
    function paint() {
        const all = ids.map(id => runs.get(id)).filter(Boolean), of = all.map(traits), keys = [...new Set(of.flatMap(t => [...t.keys()]))];
        const unlike = keys.filter(k => new Set(of.map(t => t.get(k) ?? "")).size > 1);
        const metrics = [...new Set([...last.values()].flatMap(m => [...m.keys()]))].sort().slice(0, 40);
        // Long values are shown from shortly before where they begin to differ.
        const excerpt = (k, i) => {
            const text = of[i].get(k) ?? "–", others = of.map(t => t.get(k) ?? "–");
            let at = 0;
            while (at < text.length && others.every(o => o[at] === text[at])) at++;
            return short(text.length > 120 && at > 40 ? "… " + text.slice(at - 30) : text, 120);
        };
        const lines = [["state", j => badge(j.state)], ...unlike.map(k => [k, (j, i) => excerpt(k, i)]), ...metrics.map(m => ["last " + m.slice(0, 60), j => number(last.get(j.training_id)?.get(m))])];
        fill(differs, table("What differs between the runs", ["", ...all.map(j => h("a", {href: "#/jobs/" + part(j.training_id)}, name(label(j), 60)))], lines.map(([k, cell]) => h("tr", null, h("th", {scope: "row"}, k), all.map((j, i) => h("td", null, cell(j, i))))), {cls: "list across"}),
            keys.length > unlike.length && h("p.hint", null, `${keys.length - unlike.length} settings are the same in all of them.`));
    }
    function take(m) {
        const j = runs.get(m.training_id);
        if (!j) return;
        curves.take(m, label(j));
        if (m.group === "system") return;
        if (!last.has(m.training_id)) last.set(m.training_id, new Map());
        for (const [k, v] of Object.entries(m.values)) last.get(m.training_id).set(k, v);
    }
    async function load() {
        for (const got of await Promise.all(ids.map(id => get("v1/jobs/" + part(id)).catch(e => { toast(`${id}: ${e.message}`, true); return null; })))) if (got) runs.set(got.training_id, got);
        if (ended || ids.length < 2) return;
        paint();
        for (const id of runs.keys()) {
            try {
                for (const r of (await patient(`v1/jobs/${part(id)}/metrics?limit=${RECORDS}`)).records) if (!r.skipped) take(r);
            } catch (e) { toast(`metrics of ${id}: ${e.message}`, true); }
            if (ended) return;
            paint();
        }
    }
    const stop = listen(["metric", "state"], (kind, d) => {
        if (!d || !runs.has(d.training_id)) return;
        if (kind === "metric") take(d);
        else { runs.set(d.training_id, {...runs.get(d.training_id), ...d}); paint(); }
    }, load);
    load();
    return () => { ended = true; stop(); curves.end(); };
}
