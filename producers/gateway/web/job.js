/* job.js - one job: what it is and why, who did what, its curves, its log, its results, and the events behind all of it with the command that shows them. */
import {h, fill, name, time, badge, facts, command, toast, ask, soon} from "./dom.js";
import {get, post, call, patient, serves, part} from "./api.js";
import {listen} from "./stream.js";
import {short, plain, bytes, number, duration, moment} from "./text.js";
import {RUNNING, ENDED, why} from "./jobs.js";
import {Curves} from "./curves.js";
import {Log} from "./log.js";

const RECORDS = 2000;

/* What may be asked of a job in its state. */
const ACTIONS = [
    {verb: "halt", when: j => RUNNING.has(j.state) || j.state === "QUEUED", says: "Ends it with its grace time; it may be resumed."},
    {verb: "resume", when: j => j.state === "HALTED" || j.state === "FAILED", says: "Goes on as a new generation."},
    {verb: "hold", when: j => j.state === "QUEUED" && !j.held_by, says: "Does not start until it is released."},
    {verb: "release", when: j => !!j.held_by, says: "May start again."},
    {verb: "terminate", when: j => !ENDED.has(j.state), sure: "It ends for good and cannot be resumed.", says: "Ends it for good."},
    {verb: "delete", when: j => ENDED.has(j.state) || j.state === "HALTED", sure: "It leaves the list, and its record with it.", says: "Removes it.", method: "DELETE"}];

export function open(root, args) {
    const id = args[0], at = "v1/jobs/" + part(id);
    let job = null, ended = false;
    const title = h("h1", null, "Job"), state = h("p.why-line"), because = h("pre.small", {hidden: true, tabIndex: 0, role: "region", "aria-label": "why it waits"}), actions = h("div.actions"), about = h("div"), results = h("div"), manifest = h("div");
    const curves = new Curves({id: "job-charts"}), system = new Curves({system: true, id: "system-charts"}), log = new Log("log"), more = h("p.hint");
    const events = new Map(), steps = h("ol.events", {id: "events"}), cat = h("div");
    const section = (label, ...inside) => h("section", {"aria-label": label}, h("h2", null, label), ...inside);
    fill(root, h("p", null, h("a", {href: "#/jobs"}, "← all jobs")), h("div.head", null, title, actions), state, because,
        h("div.two", null,
            h("div", null, section("Curves", curves.box), section("Log", log.box, more), section("The computer", system.box)),
            h("div", null, section("About", about), section("Results", results), section("The events behind this", h("p.hint", null, "Every change of this job is a record. ", "This line shows them where they stand:"), cat, steps), section("Manifest", manifest))));

    async function act(a) {
        if (a.sure && !await ask(`${a.verb} ${short(job.name, 80)}? ${a.sure}`, a.verb)) return;
        try {
            const d = await call(a.method || "POST", a.method ? at : `${at}/${a.verb}`);
            toast(`${a.verb}: the request is ${d.topic}/${d.partition}/${d.offset}; what comes of it appears here.`);
        } catch (e) { toast(`${a.verb}: ${e.message}`, true); }
    }

    /* Why it waits is computed when it is asked: who is ahead, what is missing where. */
    async function askWhy() {
        if (job?.state !== "QUEUED" || !serves("/v1/jobs/{id}/why")) { because.hidden = true; return; }
        const d = await get(at + "/why").catch(() => null);
        because.hidden = !d?.text;
        if (d?.text) because.textContent = plain(d.text).slice(0, 4000);
    }

    function paint() {
        const j = job;
        document.title = `${plain(j.name).slice(0, 60)} · ${j.state} · penstock`;
        fill(title, name(j.name, 120));
        fill(state, badge(j.state), " ", h("span", null, short(why(j), 2000)));
        const wanted = ACTIONS.filter(a => a.when(j) && (serves(`/v1/jobs/{id}/${a.verb}`, "post") || a.method)), now = wanted.map(a => a.verb).join();
        if (actions.said !== now) fill(actions, wanted.map(a => h("button", {type: "button", cls: a.sure ? "danger" : "", title: a.says, onclick: () => act(a)}, a.verb)));
        actions.said = now;
        const from = j.started_at, to = j.ended_at || (ENDED.has(j.state) || j.state === "HALTED" ? j.since : Date.now() * 1000);
        fill(about, facts([
            ["id", h("code", null, name(j.training_id, 80))], ["user", name(j.user, 80)], ["description", j.description && short(j.description, 500)], ["framework", j.framework && name(j.framework, 60)],
            ["submitted", time(j.submitted_at)], ["started", from ? time(from) : null], [j.ended_at ? "ended" : "in this state since", time(j.ended_at || j.since)], ["ran for", from ? duration((to - from) / 1e6) : null],
            ["queue", j.queue && name(j.queue, 60)], ["priority", j.priority ? String(j.priority) : null], ["after", j.after?.length ? j.after.map(a => h("div", null, h("a", {href: "#/jobs/" + part(a)}, name(a, 60)))) : null],
            ["generation", String(j.generation)], ["attempts", j.attempts > 1 ? String(j.attempts) : null],
            ["wants", `${j.learners} × ${number(j.cpus)} CPU, ${bytes(j.memory_bytes)}${j.gpus ? `, ${j.gpus} GPU` : ""}`], ["node", (j.node || j.site) && name([j.site, j.node].filter(Boolean).join(" / "), 80)],
            ["processes", j.processes?.length ? h("ul.plain", null, j.processes.slice(0, 64).map(p => h("li", null, name(p.name, 40), " ", p.state.toLowerCase(), p.exit_code !== null && p.exit_code !== undefined ? ` with ${p.exit_code}` : "", p.signal ? ` by signal ${p.signal}` : "", p.host ? h("span.dim", null, " on ", name(p.host, 40)) : ""))) : null]]));
        fill(results, j.model ? h("p", null, "Model ", serves("/v1/registry/models") ? h("a", {href: "#/models/" + part(j.model.name)}, name(j.model.name), ":", String(j.model.version)) : [name(j.model.name), ":", String(j.model.version)], " ", h("code", {title: j.model.digest}, "sha256:" + j.model.digest.slice(0, 16) + "…")) : "",
            j.code ? h("p", null, "Code ", h("code", {title: j.code.sha256}, short(j.code.uri, 120)), serves("/v1/models/{id}/definition") && [" ", h("a", {href: `v1/models/${part(id)}/definition`, download: `${id}-code.zip`}, "download")]) : "",
            serves("/v1/models/{id}/trained_model") && (ENDED.has(j.state) || j.state === "HALTED") ? h("p", null, h("a", {href: `v1/models/${part(id)}/trained_model`, download: `${id}-results.zip`}, "what it stored, as a zip archive")) : !j.model && h("p.hint", null, "Nothing is stored yet."));
        if (manifest.said !== j.manifest && j.manifest) fill(manifest, h("pre.small", {tabIndex: 0, role: "region", "aria-label": "manifest"}, short(j.manifest, 20000)));
        manifest.said = j.manifest;
    }

    function takeEvent(e, place) {
        const key = `${e.generation}/${e.seq}/${e.type}/${e.process || ""}`, p = place || e.position;
        if (events.has(key)) return;
        const record = p && h("button.small", {type: "button", title: `Show the command for ${p.topic}/${p.partition}/${p.offset}`, onclick: () => fill(cat, command(`penstock cat -t ${p.topic} -p ${p.partition} -o ${p.offset} -c 1`))}, `${p.partition}/${p.offset}`);
        const words = e.reason || (e.exit_code !== null ? `exit status ${e.exit_code}` : "");
        const tr = h("li", null, h("span.dim", null, time(e.time)), h("span", null, h("b", null, e.type), e.process ? [" ", name(e.process, 40)] : "", " ", badge(e.state), h("span.dim", null, " ", name(e.actor, 60)), words && h("span.why", {title: short(words, 1000)}, short(words, 300))), record);
        events.set(key, {tr, seq: e.seq, time: e.time});
        const before = [...events.values()].filter(o => o.seq > e.seq || (o.seq === e.seq && o.time > e.time)).sort((a, b) => a.seq - b.seq)[0];
        steps.insertBefore(tr, before ? before.tr : null);
        if (p && !cat.firstChild) fill(cat, command(`penstock cat -t ${p.topic} -p ${p.partition} -e -f '%k %o %s\\n' | grep ${id}`));
    }

    async function load() {
        try {
            job = await get(at);
            if (ended) return;
            paint();
            askWhy();
        } catch (e) {
            if (!job) { fill(title, e.status === 404 ? "No such job" : "Job"); fill(state, e.message); }
            if (e.status === 404) return;
        }
        for (const [what, take] of [["events", e => takeEvent(e)], ["metrics", m => { curves.take(m); system.take(m); }], ["logs", l => log.take(l)]])
            patient(`${at}/${what}?limit=${RECORDS}`).then(d => {
                if (ended) return;
                for (const r of d.records) if (!r.skipped) take(r);
                if (what === "logs" && d.total > d.records.length) fill(more, `The last ${d.records.length} of ${d.total} lines. All: `, command(`penstock logs ${id}`));
            }).catch(e => { if (!ended) toast(`${what} of this job: ${e.message}`, true); });
    }

    const stop = listen(["state", "event", "metric", "log"], (kind, d, place) => {
        if (!d || d.training_id !== id) return;
        if (kind === "metric") { curves.take(d); system.take(d); }
        else if (kind === "log") log.take(d);
        else if (kind === "state") { if (!job || d.seq >= job.seq) { job = {...job, ...d}; paint(); askWhy(); } }
        else if (d.type === "DELETED") { fill(state, badge("TERMINATED"), " deleted by ", name(d.actor)); actions.replaceChildren(); }
        else takeEvent(d, place);
    }, soon(load, 500));
    const timer = setInterval(() => { if (job && RUNNING.has(job.state)) paint(); askWhy(); }, 5000);
    load();
    return () => { ended = true; stop(); clearInterval(timer); curves.end(); system.end(); };
}
