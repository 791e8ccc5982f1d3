/* app.js - which view stands at which address, the bar above it, and the stream that fills all of them. One module a view; each fills the element that
 * it is given and returns how it ends. An address is #/view/name?filters, so every view can be linked, gone back from and opened twice. */
import {h, fill, toast} from "./dom.js";
import {discover, get, call, serves} from "./api.js";
import {connect, listen} from "./stream.js";
import {number, plain, short} from "./text.js";
import * as scorers from "./scorers.js";
import * as jobs from "./jobs.js";
import * as job from "./job.js";
import * as compare from "./compare.js";
import * as pipelines from "./pipelines.js";
import * as pipeline from "./pipeline.js";
import * as submit from "./submit.js";
import * as models from "./models.js";
import * as topics from "./topics.js";
import * as nodes from "./nodes.js";
import * as queues from "./queues.js";

// The cookie is for this path alone; `/` finds its way here by what this origin, port and all, remembers.
if (/^\/page-[0-9a-f]+\/$/.test(location.pathname)) localStorage.setItem("penstock", location.pathname);

const SAY_MS = 10000; // a screen reader hears what changed at most this often
const $ = id => document.getElementById(id);
const VIEWS = [
    {at: "jobs", title: "Jobs", of: args => args.length ? job : jobs},
    {at: "compare", of: () => compare},
    {at: "submit", of: () => submit},
    {at: "pipelines", title: "Pipelines", of: () => pipelines},
    {at: "apply", needs: "/v1/pipelines", of: () => pipeline},
    {at: "models", title: "Models", needs: "/v1/registry/models", of: () => models},
    {at: "topics", title: "Topics", needs: "/v1/topics", of: () => topics},
    {at: "queues", title: "Queues", needs: "/v1/queues", of: () => queues},
    {at: "nodes", title: "Nodes", needs: "/v1/nodes", of: () => nodes}];

let close = null;
function route() {
    const [path, search] = location.hash.replace(/^#\/?/, "").split("?");
    let args;
    try { args = path.split("/").map(decodeURIComponent); } catch { args = [""]; }
    const view = VIEWS.find(v => v.at === (args[0] || "jobs") && (!v.needs || serves(v.needs)));
    if (close) close();
    close = null;
    const root = $("view");
    root.replaceChildren();
    for (const a of $("nav").querySelectorAll("a")) if (view && a.hash === "#/" + view.at) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
    document.title = `${view?.title || "penstock"} · penstock`;
    if (view) close = view.of(args.slice(1)).open(root, args.slice(1), new URLSearchParams(search || ""));
    else fill(root, h("h1", null, "Nothing is here"), h("p", null, h("a", {href: "#/jobs"}, "all jobs")));
}

function link(cls, text) {
    $("link").className = "link " + cls;
    if ($("link").textContent !== text) $("link").textContent = text;
}

/* ---- the bar ---- */

const running = new Set();
function tiles() {
    let rate = 0, lag = 0, p50 = 0, p99 = 0, n = 0;
    for (const p of scorers.pipelines.values()) {
        if (!p.last || scorers.silent(p)) continue;
        n++;
        rate += p.last.records_per_s || 0;
        lag += Math.max(0, p.last.lag || 0);
        p50 = Math.max(p50, p.last.latency_p50_ms || 0);
        p99 = Math.max(p99, p.last.latency_p99_ms || 0);
    }
    $("t-running").textContent = String(running.size);
    $("t-rate").textContent = n ? number(rate, 3) : "–";
    $("t-lag").textContent = n ? number(lag, 3) : "–";
    $("t-p50").textContent = p50 ? number(p50, 3) + " ms" : "–"; // nothing was scored: no latency
    $("t-p99").textContent = p99 ? number(p99, 3) + " ms" : "–";
}
async function countRunning() {
    for (const state of jobs.RUNNING) {
        const d = await get(`v1/jobs?state=${state}&limit=1000`).catch(() => null);
        for (const j of d?.jobs || []) running.add(j.training_id);
    }
    tiles();
}

const news = [];
let lastSaid = 0;
function say() {
    if (!news.length || Date.now() - lastSaid < SAY_MS) return;
    $("says").textContent = news.length > 3 ? `${news.length} jobs have changed their state` : news.join("; ");
    news.length = 0;
    lastSaid = Date.now();
}

listen(["state", "event"], (kind, d) => {
    if (!d) return;
    if (kind === "event") { if (d.type === "DELETED") running.delete(d.training_id); return; }
    if (jobs.RUNNING.has(d.state)) running.add(d.training_id); else running.delete(d.training_id);
    if (Date.now() * 1000 - d.updated_at < 5e6) news.push(plain(`job ${d.name} is ${d.state}`).slice(0, 120));
});

/* ---- who is here, where the gateway knows people ---- */

async function whoIsHere() {
    const me = await get("v1/me").catch(() => null);
    if (!me?.user) return;
    const leave = h("button.small", {type: "button", id: "logout", title: "Ends all of your sessions, on other computers too.", onclick: async () => {
        leave.disabled = true;
        try {
            await call("POST", "logout");
        } catch (e) {
            leave.disabled = false;
            if (e.status !== 401) { toast("Still logged in: " + e.message, true); return; }
        }
        localStorage.removeItem("penstock");
        location.replace("/");
    }}, "log out");
    fill($("me"), h("span", {title: "may as: " + me.roles.join(", ")}, h("span.sr", null, "logged in as "), h("bdi", null, short(me.user, 40)), " ", h("span.dim", null, me.roles.join(", "))), leave);
    $("me").hidden = false;
    addEventListener("let-out", () => { link("lost", "your session has ended; reload the page to log in"); });
}

scorers.start();
setInterval(() => { tiles(); say(); }, 1000);
discover().catch(() => link("lost", "the gateway cannot be reached; trying again …")).finally(() => {
    fill($("nav"), VIEWS.filter(v => v.title && (!v.needs || serves(v.needs))).map(v => h("a", {href: "#/" + v.at}, v.title)));
    addEventListener("hashchange", () => { route(); $("view").focus({preventScroll: true}); scrollTo(0, 0); });
    route();
    whoIsHere();
    countRunning();
    connect(link);
});
