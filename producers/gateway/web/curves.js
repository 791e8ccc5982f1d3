/* curves.js - what jobs measured, as linked charts: those of learning over steps, epochs or time, those of the computer over time. One job or several. */
import {h, fill, soon} from "./dom.js";
import {Chart, ChartGroup} from "./chart.js";

const CHARTS_MAX = 60, GAP_S = 60;

export class Curves {
    /* system: shows the points of the group "system" alone; else all others. The records stay, so that another x can be chosen. */
    constructor({system = false, id = ""} = {}) {
        this.system = system;
        this.points = [];
        this.seen = new Set();
        this.grid = h("div.charts", {id});
        this.none = h("p.hint", null, system ? "No measurements of the computer yet." : "No curves yet. A line of JSON on stdout becomes points: ", !system && h("code", null, '{"penstock":"metrics","step":1,"loss":0.5}'));
        this.left = h("p.hint");
        this.x = h("select", {onchange: () => this.again()}, [["step", "step"], ["epoch", "epoch"], ["time", "time of day"], ["relative", "seconds since the first"]].map(([v, t]) => h("option", {value: v}, t)));
        this.smooth = h("input", {type: "range", min: 0, max: 0.99, step: 0.01, value: 0, oninput: () => this.group.set({smooth: +this.smooth.value})});
        this.log = h("input", {type: "checkbox", onchange: () => this.group.set({log: this.log.checked})});
        this.only = h("input", {type: "search", size: 12, placeholder: "name", oninput: soon(() => this.again(), 200)});
        this.box = h("div", null, h("div.filters", null, !system && h("label", null, "over ", this.x), h("label", null, "smoothing ", this.smooth), h("label", null, this.log, " log scale"), h("label", null, "only ", this.only),
            h("button.small", {type: "button", title: "Drag over a chart to look closer; a double click or this goes back.", onclick: () => this.group.set({zoom: null})}, "whole range")), this.none, this.grid, this.left);
        this.found = false;
        this.start();
    }
    start() {
        this.group?.end();
        const time = this.system || this.x.value === "time" || this.x.value === "relative";
        this.group = new ChartGroup({x: time ? "time" : "number", gap_s: this.system ? GAP_S : Infinity});
        Object.assign(this.group, {smooth: +this.smooth.value, log: this.log.checked, relative: this.x.value === "relative"});
        this.charts = new Map();
        this.hidden = new Set();
        this.grid.replaceChildren();
    }
    again() {
        this.start();
        for (const p of this.points) this.draw(p.m, p.label);
    }
    end() { this.group.end(); }

    /* label: of the curve, where there are several jobs */
    take(m, label = "") {
        if (!m || typeof m.values !== "object" || !m.values || (m.group === "system") !== this.system) return;
        const key = `${m.training_id}/${m.generation}/${m.process}/${m.rindex}/${m.group}`;
        if (this.seen.has(key)) return;
        this.seen.add(key);
        if (!this.found) { // what the first point has is what the curves are drawn over
            this.found = true;
            this.none.hidden = true;
            if (typeof m.step !== "number") { this.x.value = typeof m.epoch === "number" ? "epoch" : "time"; this.start(); }
        }
        this.points.push({m, label});
        if (this.points.length > 50000) this.points.shift();
        this.draw(m, label);
    }
    draw(m, label) {
        const seconds = m.time / 1e6, over = this.system ? "time" : this.x.value;
        const x = over === "step" ? m.step ?? m.epoch : over === "epoch" ? m.epoch ?? m.step : seconds;
        if (!Number.isFinite(x)) return;
        for (const [name, y] of Object.entries(m.values)) {
            if (this.only.value && !name.toLowerCase().includes(this.only.value.toLowerCase())) continue;
            let chart = this.charts.get(name);
            if (!chart) {
                if (this.charts.size >= CHARTS_MAX) { this.hidden.add(name); this.left.textContent = `${this.hidden.size} more curves are not drawn: name one above.`; continue; }
                this.charts.set(name, chart = new Chart(this.grid, name.slice(0, 80), this.group));
            }
            const one = [label, this.system || m.group === "" ? "" : m.group, m.process === "learner-1" ? "" : m.process, m.generation > 1 ? "#" + m.generation : ""].filter(Boolean).join(" ");
            chart.add(one.slice(0, 60) || name.slice(0, 80), x, typeof y === "number" ? y : NaN);
        }
    }
}
