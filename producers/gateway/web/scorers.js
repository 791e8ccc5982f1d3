/* scorers.js - what the scorers of all pipelines say of themselves, from the stream, kept while the page is open whichever view is shown: their samples
 * and their heartbeats. */
import {listen} from "./stream.js";

const SAMPLES_MAX = 3000, HEARD_MS = 25000, SILENT_MS = 15000;
export const pipelines = new Map(); // name → {samples, last, at, workers}
const watchers = new Set();

export function watch(fn) {
    watchers.add(fn);
    return () => watchers.delete(fn);
}
export function known(name) {
    if (!pipelines.has(name)) pipelines.set(name, {name, samples: [], last: null, at: 0, workers: new Map()});
    return pipelines.get(name);
}

export const silent = p => Date.now() - p.at / 1000 > SILENT_MS;

/* What its scorers say now: what they wait for, a model that they would not take. A silent one says nothing any more. */
export function says(p) {
    const lines = new Set();
    for (const w of p.workers.values()) {
        if (Date.now() - w.time / 1000 > HEARD_MS) continue;
        const d = w.details || {};
        if (d.waits_for) lines.add((d.waits_for === "paused" ? "paused: " : `waiting for ${d.waits_for}: `) + (d.why || ""));
        if (d.model_refused) lines.add("model " + d.model_refused);
    }
    return [...lines].sort();
}

/* Its state in a word, and why. */
export function state(p) {
    const heard = [...p.workers.values()].filter(w => Date.now() - w.time / 1000 < HEARD_MS), waits = heard.map(w => w.details || {}).find(d => d.waits_for);
    if (waits) return [waits.waits_for === "paused" ? "PAUSED" : "WAITING", waits.why || ""];
    if (p.last && !silent(p)) return p.last.paused ? ["PAUSED", "too many dead letters"] : ["RUNNING", ""];
    return heard.length ? ["STARTING", "no sample yet"] : ["SILENT", p.at || p.workers.size ? "no scorer has been heard for a while" : "no scorer has been heard yet"];
}

function takeSample(m) {
    const p = known(m.training_id.slice("pipeline:".length));
    const key = m.process + "/" + m.rindex + "/" + m.time;
    if (p.samples.some(s => s.key === key)) return;
    const sample = {key, t: m.time / 1e6, process: m.process, values: m.values};
    p.samples.push(sample);
    if (p.samples.length > SAMPLES_MAX) p.samples.splice(0, SAMPLES_MAX / 10);
    if (m.time >= p.at) { p.at = m.time; p.last = m.values; }
    for (const fn of watchers) fn(p, sample);
}

export function start() {
    listen(["metric", "worker"], (kind, d) => {
        if (!d) return;
        if (kind === "metric") { if (d.training_id.startsWith("pipeline:")) takeSample(d); return; }
        const name = d.details?.pipeline;
        if (d.kind !== "scorer" || !name || (d.state === "stopped" && !pipelines.has(name))) return;
        const p = known(name);
        if (d.state === "stopped") p.workers.delete(d.worker_id); else p.workers.set(d.worker_id, d);
        for (const fn of watchers) fn(p, null);
    });
}
