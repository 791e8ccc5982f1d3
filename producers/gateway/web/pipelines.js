/* pipelines.js - scoring pipelines: state with its reason, rate, lag and latency as they come. A stretch in which nobody measured is a gap. */
import {h, fill, name, badge, facts, soon} from "./dom.js";
import {get, part, serves} from "./api.js";
import {number, duration} from "./text.js";
import {Chart, ChartGroup} from "./chart.js";
import * as scorers from "./scorers.js";
import {desired} from "./pipeline.js";

const GAP_S = 15;

/* Charts and facts of one pipeline, into box. */
class Pipe {
    constructor(p, parent, alone) {
        this.p = p;
        this.alone = alone; // the only one of the view: all that there is of it
        this.head = h("h2");
        this.facts = h("div");
        this.says = h("ul.says", {"aria-label": "what its scorers say"});
        this.grid = h("div.charts");
        this.group = new ChartGroup({x: "time", gap_s: GAP_S, zero: true});
        this.rate = new Chart(this.grid, "records per second", this.group);
        this.lag = new Chart(this.grid, "lag, records", this.group);
        this.latency = new Chart(this.grid, "latency", this.group, " ms");
        if (alone) {
            this.behind = new Chart(this.grid, "behind", this.group, " s");
            this.scores = new Chart(this.grid, "scores: a tenth, half, nine tenths are below", this.group);
        }
        parent.append(h("section.pipe", {"data-name": p.name, "aria-label": "pipeline " + p.name}, this.head, this.facts, this.says, this.grid));
        for (const s of p.samples) this.take(s);
        this.paint();
    }
    take(s) {
        const v = s.values, who = this.p.workers.size > 1 ? " " + s.process : "";
        this.rate.add("rate" + who, s.t, v.records_per_s);
        if (v.lag >= 0) this.lag.add("lag" + who, s.t, v.lag);
        this.latency.add("p50" + who, s.t, v.latency_p50_ms);
        this.latency.add("p99" + who, s.t, v.latency_p99_ms);
        if (!this.alone) return;
        if (v.lag_seconds >= 0) this.behind.add("behind" + who, s.t, v.lag_seconds);
        for (const q of ["p90", "p50", "p10"]) if (q === "p50" || this.p.workers.size < 2) this.scores.add(q + who, s.t, v["score_" + q]);
    }
    paint() {
        const v = this.p.last || {}, [state, why] = scorers.state(this.p), lines = scorers.says(this.p);
        const said = JSON.stringify([v, state, why, lines]);
        if (said === this.said) return;
        this.said = said;
        fill(this.head, this.alone ? "What runs" : h("a", {href: "#/pipelines/" + part(this.p.name)}, name(this.p.name, 80)), " ", badge(state), why && !lines.length && h("span.dim", null, " " + why));
        fill(this.facts, facts([["records per second", number(v.records_per_s)], ["lag", v.lag >= 0 ? number(v.lag) + " records" : "not known"], ["behind", v.lag_seconds >= 0 ? duration(v.lag_seconds) : null], ["latency p50 / p99", v.latency_p50_ms >= 0 ? `${number(v.latency_p50_ms, 3)} / ${number(v.latency_p99_ms, 3)} ms` : null],
            ["scored", number(v.scored_total)], ["above the threshold", v.above_threshold_total > 0 ? number(v.above_threshold_total) : null], ["dead letters", number(v.dead_letters_total)], ["model version", v.model_version ? String(v.model_version) : null], ["scorers", String(this.p.workers.size || "–")]]));
        fill(this.says, lines.map(l => h("li", null, name(l, 500))));
    }
    end() { this.group.end(); }
}

export function open(root, args) {
    const only = args[0], pipes = new Map(), box = h("div", {id: "pipes"}), none = h("p.hint", {id: "pipes-none"}, "No pipeline has reported yet. ", h("code", null, "penstock pipelines apply pipeline.yml"), " starts one.");
    const wanted = h("div"), apply = serves("/v1/pipelines", "post") && h("a.button.main", {href: "#/apply"}, "apply a pipeline");
    fill(root, only ? h("p", null, h("a", {href: "#/pipelines"}, "← all pipelines")) : "", h("div.head", null, h("h1", null, only ? name(only, 80) : "Scoring pipelines"), !only && apply), none, box, wanted);
    if (only) fill(none, "Nothing has been heard of this pipeline yet.");
    function show(p) {
        if (only && p.name !== only) return null;
        if (!pipes.has(p.name)) { pipes.set(p.name, new Pipe(p, box, p.name === only)); none.hidden = true; }
        return pipes.get(p.name);
    }
    for (const p of [...scorers.pipelines.values()].sort((a, b) => a.name.localeCompare(b.name))) show(p);
    const paint = soon(() => pipes.forEach(p => p.paint()), 300);
    const stop = scorers.watch((p, sample) => {
        const known = pipes.has(p.name), pipe = show(p);
        if (pipe && known && sample) pipe.take(sample);
        paint();
    });
    const timer = setInterval(paint, 2000);
    const ended = only && serves("/v1/pipelines/{pipeline}") ? desired(wanted, only) : () => {};
    if (!only && serves("/v1/pipelines")) // those that nobody has reported of stand here, too
        get("v1/pipelines").then(d => { for (const p of d.pipelines) show(scorers.known(p.name)); }, () => {});
    return () => { ended(); stop(); clearInterval(timer); pipes.forEach(p => p.end()); };
}
