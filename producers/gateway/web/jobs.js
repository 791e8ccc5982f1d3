/* jobs.js - the list: one page of it at a time, as the server pages; what happens meanwhile changes rows in place. Filters stand in the address. */
import {h, fill, name, time, badge, soon, toast} from "./dom.js";
import {get, takes, part} from "./api.js";
import {listen} from "./stream.js";
import {short, ago, duration, iso} from "./text.js";

export const STATES = ["QUEUED", "PENDING", "DOWNLOADING", "PROCESSING", "STORING", "COMPLETED", "FAILED", "HALTED", "TERMINATED", "REJECTED"];
export const RUNNING = new Set(["PENDING", "DOWNLOADING", "PROCESSING", "STORING"]);
export const ENDED = new Set(["COMPLETED", "FAILED", "TERMINATED", "REJECTED"]);
const PAGE = 100, LOOKED_THROUGH = 20; // pages that a search asks for at a time
const HEADS = ["compare", "state", "name", "user", "why", "since"];

/* Who did it, where it was somebody; why, without what every failed command begins with. */
export function why(j) {
    const reason = String(j.reason || "").replace(/^\S+: the command exited with status \d+: /, "");
    const by = j.held_by ? `held by ${j.held_by}` : j.stop_by && j.stop_action && j.stop_action !== "NONE" ? `${String(j.stop_action).toLowerCase()} by ${j.stop_by}` : "";
    return [by, reason].filter(Boolean).join(": ");
}

function fits(j, want) {
    if (want.state && j.state !== want.state) return false;
    if (want.user && j.user !== want.user) return false;
    if (want.queue && j.queue !== want.queue) return false;
    const q = want.q?.toLowerCase();
    return !q || [j.name, j.training_id, j.reason, j.description, j.framework].some(t => String(t || "").toLowerCase().includes(q));
}

export function open(root, args, query) {
    const want = {state: query.get("state") || "", user: query.get("user") || "", queue: query.get("queue") || "", q: query.get("q") || ""};
    const jobs = new Map(), rows = new Map(), chosen = new Set();
    let after = query.get("after") || "", older = "", ended = false, busy = false;

    const filter = (label, key, input) => h("label", null, label, Object.assign(input, {name: key, value: want[key]}));
    const form = h("form.filters", {role: "search", onsubmit: e => { e.preventDefault(); go(); }},
        filter("search", "q", h("input", {type: "search", placeholder: "name, id or reason", id: "search"})),
        filter("state", "state", h("select", {onchange: () => go()}, h("option", {value: ""}, "any"), STATES.map(s => h("option", {value: s}, s)))),
        filter("user", "user", h("input", {size: 10, autocomplete: "off"})),
        takes("/v1/jobs", "queue") && filter("queue", "queue", h("input", {size: 10, autocomplete: "off"})),
        h("button", {type: "submit"}, "find"),
        Object.values(want).some(Boolean) && h("a", {href: "#/jobs"}, "all jobs"));
    const compare = h("button", {type: "button", disabled: true, onclick: () => { location.hash = "#/compare?ids=" + [...chosen].map(part).join(","); }}, "compare");
    const body = h("tbody");
    const list = h("table", {id: "jobs", hidden: true}, h("caption.sr", null, "Jobs, newest first"), h("thead", null, h("tr", null, HEADS.map(t => h("th", {scope: "col"}, t === "compare" ? h("span.sr", null, t) : t)))), body);
    const none = h("p.hint", {id: "jobs-none", hidden: true}), said = h("p.hint", {role: "status"});
    const more = h("a.button", {hidden: true}, "older jobs"), newest = h("a.button", {hidden: !after}, "newest jobs");
    fill(root, h("div.head", null, h("h1", null, "Jobs"), compare, h("a.button.main", {href: "#/submit"}, "submit a job")), form, said, none, list, h("p.pager", null, newest, " ", more));
    newest.href = address("");

    function address(from) {
        const q = new URLSearchParams(Object.entries({...want, after: from}).filter(([, v]) => v));
        return "#/jobs" + (q.size ? "?" + q : "");
    }
    function go() {
        for (const k of Object.keys(want)) if (form.elements[k]) want[k] = form.elements[k].value.trim();
        const to = address("");
        if (to === location.hash) load(); else location.hash = to;
    }

    function paintRow(j) {
        let tr = rows.get(j.training_id);
        const fresh = !tr;
        if (fresh) {
            const tick = h("input", {type: "checkbox", "aria-label": "compare " + short(j.name, 60), onchange: () => { if (tick.checked) chosen.add(j.training_id); else chosen.delete(j.training_id); compare.disabled = chosen.size < 2; compare.textContent = chosen.size ? `compare ${chosen.size}` : "compare"; }});
            tr = h("tr", {"data-id": j.training_id}, h("td.tick", null, tick), HEADS.slice(1).map(t => h("td", {cls: "at-" + t})));
            rows.set(j.training_id, tr);
        }
        const text = JSON.stringify([j.state, j.name, j.user, j.reason, j.held_by, j.stop_by, j.stop_action, j.since, j.model]);
        if (tr.said === text) { tr.cells[5].firstElementChild?.update?.(); return fresh && tr; }
        tr.said = text;
        const full = why(j), since = h("span", {title: iso(j.since || j.updated_at)});
        since.update = () => { const t = ENDED.has(j.state) || !j.started_at ? ago(j.since || j.updated_at) : duration(Date.now() / 1000 - j.started_at / 1e6); if (since.textContent !== t) since.textContent = t; };
        since.update();
        fill(tr.cells[1], badge(j.state));
        fill(tr.cells[2], h("a", {href: "#/jobs/" + part(j.training_id)}, name(j.name, 80)), j.model && h("span.dim", null, " → ", name(`${j.model.name}:${j.model.version}`, 60)));
        fill(tr.cells[3], name(j.user, 40));
        fill(tr.cells[4], h("span.why", {title: short(full, 1000)}, short(full, 300)));
        fill(tr.cells[5], since);
        return fresh && tr;
    }

    /* Rows keep their place; a new job comes on top, of the newest page only. */
    function place(j) {
        const tr = paintRow(j);
        if (!tr) return;
        const before = [...jobs.values()].filter(o => o !== j && rows.has(o.training_id) && o.submitted_at < j.submitted_at).sort((a, b) => b.submitted_at - a.submitted_at)[0];
        body.insertBefore(tr, before ? rows.get(before.training_id) : null);
    }
    function drop(id) {
        rows.get(id)?.remove();
        rows.delete(id);
        jobs.delete(id);
        chosen.delete(id);
    }
    function paint() {
        list.hidden = !jobs.size;
        none.hidden = !!jobs.size || busy;
        if (Object.values(want).some(Boolean)) fill(none, "No job is like that.");
        else fill(none, "No jobs yet. ", h("code", null, "penstock submit manifest.yml ."), " publishes one, and it appears here; or ", h("a", {href: "#/submit"}, "submit one from this page"), ".");
        more.hidden = !older;
        more.href = address(older);
    }

    function ask(from, byName) {
        const q = new URLSearchParams({limit: PAGE});
        for (const k of ["state", "user", "queue"]) if (want[k]) q.set(k, want[k]);
        if (byName) q.set("name", byName);
        if (from) q.set("page_token", from);
        return get("v1/jobs?" + q);
    }
    /* The server knows names; where none is like that, ids and reasons are looked through here. */
    async function find() {
        const found = [];
        if (want.q && want.q.length <= 60) {
            const d = await ask(after, "*" + want.q.replace(/[[\]\\*?]/g, "\\$&").replace(/[a-z]/gi, c => `[${c.toLowerCase()}${c.toUpperCase()}]`) + "*");
            if (d.jobs.length) return [d.jobs, d.next_page_token];
        }
        let from = after, pages = 0;
        do {
            const d = await ask(from);
            found.push(...d.jobs.filter(j => fits(j, want)));
            from = d.next_page_token;
            if (++pages > 1 && !ended) said.textContent = `looked through ${pages * PAGE} jobs, ${found.length} found`;
        } while (from && want.q && found.length < PAGE && pages < LOOKED_THROUGH && !ended);
        return [found, from];
    }
    async function load() {
        if (busy) return;
        busy = true;
        try {
            const [found, from] = await find();
            if (ended) return;
            const keep = new Set(found.map(j => j.training_id));
            for (const id of [...rows.keys()]) if (!keep.has(id)) drop(id);
            for (const j of found) { jobs.set(j.training_id, j); place(j); }
            older = from || "";
            if (!from || !want.q) said.textContent = "";
        } catch (e) {
            said.textContent = "The list cannot be read: " + e.message;
        } finally {
            busy = false;
            if (!ended) paint();
        }
    }

    const waiting = new Map(), takeAll = soon(() => {
        for (const j of waiting.values()) {
            const known = jobs.has(j.training_id), old = jobs.get(j.training_id);
            if (old && old.seq > j.seq) continue;
            if (!fits(j, want)) { if (known) drop(j.training_id); continue; }
            if (!known && (after || rows.size >= 2 * PAGE || tooOld(j))) continue;
            jobs.set(j.training_id, j);
            place(j);
        }
        waiting.clear();
        if (!ended) paint();
    }, 200);
    /* What stands on a later page is not pulled onto this one. */
    function tooOld(j) {
        return older && j.submitted_at < Math.min(...[...jobs.values()].map(o => o.submitted_at));
    }
    const stop = listen(["state", "event"], (kind, d) => {
        if (!d) return;
        if (kind === "state") { waiting.set(d.training_id, d); takeAll(); }
        else if (d.type === "DELETED") { drop(d.training_id); paint(); }
    }, soon(load, 500));
    const timer = setInterval(() => { for (const tr of rows.values()) tr.cells[5].firstElementChild?.update?.(); }, 1000);
    load();
    return () => { ended = true; stop(); clearInterval(timer); };
}
