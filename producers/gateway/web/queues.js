/* queues.js - the queues that jobs wait in: what each may have, has, and how many wait; one of them with its jobs. Asked again now and then: they are few. */
import {h, fill, name, time, badge, facts, table, row} from "./dom.js";
import {get, part} from "./api.js";
import {bytes, number, ago, short} from "./text.js";

const EVERY_MS = 5000, JOBS = 50;
const WHAT = [["CPUs", "cpus", v => number(v, 3)], ["memory", "memory", bytes], ["GPUs", "gpus", String]];

/* What its jobs have, of what they may: a bar where there is a limit. */
function share(used, quota, text) {
    const has = typeof used === "number" ? used : 0;
    if (typeof quota !== "number") return h("span", null, text(has), h("span.dim", null, ", no limit"));
    return h("div.use", null, h("meter", {min: 0, max: quota || 1, value: Math.min(has, quota || 1), "aria-label": "in use"}), h("span", null, `${text(has)} of ${text(quota)}`));
}
const perUser = q => q.max_running_per_user === null || q.max_running_per_user === undefined ? "no limit" : String(q.max_running_per_user);

function all(queues) {
    const heads = ["queue", "weight", ...WHAT.map(w => w[0]), "running", "waiting", "held", "of one user", "preempts"];
    return h("section", {"aria-label": "queues"}, table("Queues", heads, queues.map(q => row(heads, [h("a", {href: "#/queues/" + part(q.name)}, name(q.name, 80)), number(q.weight, 3), ...WHAT.map(([, key, text]) => share(q.used?.[key], q.quota?.[key], text)),
        number(q.running ?? 0), number(q.waiting ?? 0), number(q.held ?? 0), perUser(q), q.preempts ? "yes" : "no"]))));
}

function one(q, jobs) {
    const heads = ["state", "name", "user", "priority", "why", "since"];
    const list = [...jobs.waiting, ...jobs.running];
    return [h("section", {"aria-label": "the queue"}, facts([["weight", number(q.weight, 3)], ...WHAT.map(([title, key, text]) => [title, share(q.used?.[key], q.quota?.[key], text)]), ["running", number(q.running ?? 0)], ["waiting", number(q.waiting ?? 0)], ["held", number(q.held ?? 0)],
        ["jobs of one user at a time", perUser(q)], ["preempts", q.preempts ? "yes: where there is no room its jobs take that of others" : "no"], ["defined", q.time ? time(q.time) : null], ["by", q.actor && name(q.actor, 80)]])),
        h("section", {"aria-label": "its jobs"}, h("h2", null, "Waiting and running"), h("p", null, h("a", {href: "#/jobs?queue=" + part(q.name)}, "all of its jobs")), list.length ? table("Jobs", heads, list.map(j => row(heads, [badge(j.state), h("a", {href: "#/jobs/" + part(j.training_id)}, name(j.name, 80)), name(j.user, 40), number(j.priority ?? 0), h("span.why", null, short(j.reason ?? "", 300)), ago(j.since || j.submitted_at)]))) : h("p.hint", null, "No job waits or runs in it."))];
}

export function open(root, args) {
    const wanted = args[0], box = h("div"), said = h("p.hint", {role: "status"});
    let ended = false, shown = "";
    fill(root, wanted ? h("p", null, h("a", {href: "#/queues"}, "← all queues")) : null, h("h1", null, wanted ? name(wanted, 80) : "Queues"), said, box);
    async function look() {
        if (!wanted) return (await get("v1/queues")).queues;
        const at = state => get(`v1/jobs?queue=${part(wanted)}&state=${state}&limit=${JOBS}`).then(d => d.jobs);
        const [q, waiting, running] = await Promise.all([get("v1/queues/" + part(wanted)), at("QUEUED"), at("PROCESSING")]);
        return [q, {waiting, running}];
    }
    async function load() {
        try {
            const d = await look(), now = JSON.stringify(d);
            if (ended) return;
            said.textContent = "";
            if (now === shown && !wanted) return;
            shown = now;
            fill(box, wanted ? one(...d) : all(d));
        } catch (e) { if (!ended) { said.textContent = (wanted ? "The queue" : "The queues") + " cannot be read: " + e.message; if (e.status === 404) fill(box); } }
    }
    load();
    const timer = setInterval(load, EVERY_MS);
    return () => { ended = true; clearInterval(timer); };
}
