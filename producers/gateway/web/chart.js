/* chart.js - line charts on canvas. Those of one group share crosshair, range and settings, so that curves can be read together. A silence is a gap in
 * the line, not a slope. For those who do not see the canvas each chart has its values as a table, and the arrow keys move the crosshair. */
import {h, fill} from "./dom.js";
import {number, clock} from "./text.js";

const POINTS_MAX = 20000; // of one series: beyond, every second one of the older half goes
const SERIES_MAX = 24, TABLE_MAX = 50;
const LEFT = 52, RIGHT = 10, TOP = 8, BOTTOM = 22;
const DASHES = [[], [6, 3], [2, 3], [9, 3, 2, 3]];
const INKS = 6;

/* The colours change with the scheme. */
const groups = new Set();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const g of groups) g.paint(); });

export class ChartGroup {
    /* x: "number" or "time" (s since 1970); gap_s: a longer silence is one; zero: it is always in sight */
    constructor({x = "number", gap_s = Infinity, zero = false} = {}) {
        Object.assign(this, {charts: [], at: null, zoom: null, smooth: 0, log: false, x, gap_s, zero, relative: false});
        this.asked = false;
        groups.add(this);
    }
    hover(x) { this.at = x; this.paint(); }
    set(what) { Object.assign(this, what); this.paint(); }
    paint() {
        if (this.asked) return;
        this.asked = true;
        requestAnimationFrame(() => { this.asked = false; for (const c of this.charts) c.paint(); });
    }
    /* From where to where all charts of the group reach. */
    reach() {
        let x0 = Infinity, x1 = -Infinity;
        for (const c of this.charts)
            for (const s of c.series.values()) {
                x0 = Math.min(x0, s[0][0]);
                x1 = Math.max(x1, s[s.length - 1][0]);
            }
        return [x0, x1];
    }
    end() { groups.delete(this); for (const c of this.charts) c.watch.disconnect(); this.charts = []; }
}

/* 1, 2 or 5 times a power of ten; at most n steps. */
function steps(from, to, n) {
    const raw = (to - from) / n, power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find(f => f * power >= raw) * power;
    const out = [];
    for (let i = Math.ceil(from / step); i * step <= to + step * 1e-9 && out.length < 50; i++) out.push(i * step);
    return out;
}
function clockSteps(from, to, n) {
    const step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400].find(s => (to - from) / s <= n) || 86400 * Math.ceil((to - from) / n / 86400);
    const out = [];
    for (let x = Math.ceil(from / step) * step; x <= to; x += step) out.push(x);
    return out;
}
function label(v) {
    const a = Math.abs(v);
    if (a >= 1e9) return +(v / 1e9).toPrecision(4) + "G";
    if (a >= 1e6) return +(v / 1e6).toPrecision(4) + "M";
    if (a >= 1e4) return +(v / 1e3).toPrecision(4) + "k";
    return a !== 0 && a < 1e-3 ? v.toExponential(1) : String(+v.toPrecision(4));
}

function nearest(s, x) {
    let a = 0, b = s.length - 1;
    while (b - a > 1) { const m = (a + b) >> 1; if (s[m][0] < x) a = m; else b = m; }
    return Math.abs(s[a][0] - x) <= Math.abs(s[b][0] - x) ? s[a] : s[b];
}

/* Exponential mean, freed of its start (as in Adam). */
function smoothed(s, weight) {
    let mean = 0, norm = 0;
    return s.map(([x, y]) => {
        mean = mean * weight + y * (1 - weight);
        norm = norm * weight + 1 - weight;
        return [x, mean / norm];
    });
}

export class Chart {
    constructor(parent, title, group, unit = "") {
        Object.assign(this, {title, group, unit, series: new Map(), left_out: 0, first: Infinity});
        this.canvas = h("canvas", {tabIndex: 0, role: "img", "aria-label": title});
        this.legend = h("ul.legend");
        this.values = h("details", {ontoggle: () => this.fillTable()}, h("summary", null, "values"), h("div.scroll", {tabIndex: 0, role: "region", "aria-label": "values of " + title}));
        this.box = h("figure.chart", null, h("figcaption", null, title), this.canvas, this.legend, this.values);
        parent.append(this.box);
        group.charts.push(this);
        this.watch = new ResizeObserver(() => this.paint());
        this.watch.observe(this.canvas);
        this.listen();
    }

    listen() {
        const c = this.canvas, g = this.group;
        let from = null;
        c.addEventListener("pointerdown", e => { if (e.pointerType !== "touch") { from = this.toX(e.offsetX); c.setPointerCapture(e.pointerId); } });
        c.addEventListener("pointermove", e => { const x = this.toX(e.offsetX); if (x !== null) g.hover(x); this.drag = from !== null ? [from, x] : null; });
        c.addEventListener("pointerup", () => {
            if (this.drag && Math.abs(this.toPx(this.drag[0]) - this.toPx(this.drag[1])) > 8) g.zoom = this.drag.slice().sort((a, b) => a - b);
            this.drag = from = null;
            g.paint();
        });
        c.addEventListener("pointerleave", () => { if (from === null) g.hover(null); });
        c.addEventListener("dblclick", () => g.set({zoom: null}));
        c.addEventListener("keydown", e => this.key(e));
        c.addEventListener("blur", () => g.hover(null));
    }

    key(e) {
        const r = this.range(), g = this.group;
        if (!r) return;
        const x = g.at ?? r.x1, by = (r.x1 - r.x0) / (e.shiftKey ? 10 : 50);
        if (e.key === "ArrowLeft") g.hover(Math.max(r.x0, x - by));
        else if (e.key === "ArrowRight") g.hover(Math.min(r.x1, x + by));
        else if (e.key === "Home") g.hover(r.x0);
        else if (e.key === "End") g.hover(r.x1);
        else if (e.key === "+") g.set({zoom: [x - (x - r.x0) / 2, x + (r.x1 - x) / 2]});
        else if (e.key === "-" || e.key === "Escape") g.set({zoom: null});
        else return;
        e.preventDefault();
    }

    /* x ascending in the series whatever the order of coming. Not finite: a gap. */
    add(name, x, y) {
        if (!Number.isFinite(x)) return;
        let s = this.series.get(name);
        if (!s) {
            if (this.series.size >= SERIES_MAX) { this.left_out++; return; }
            this.series.set(name, s = []);
        }
        const v = Number.isFinite(y) ? y : NaN;
        if (s.length && x < s[s.length - 1][0]) {
            let i = s.length;
            while (i && s[i - 1][0] > x) i--;
            s.splice(i, 0, [x, v]);
        } else s.push([x, v]);
        if (x < this.first) this.first = x;
        if (s.length > POINTS_MAX) this.series.set(name, s.filter((_, i) => i >= POINTS_MAX / 2 || i % 2 === 0));
        this.group.paint();
    }

    range() {
        const zoom = this.group.zoom;
        let [x0, x1] = zoom || this.group.reach(), y0 = Infinity, y1 = -Infinity;
        for (const s of this.series.values())
            for (const [x, y] of s) {
                if (zoom && (x < zoom[0] || x > zoom[1])) continue;
                if (this.group.log && y <= 0) continue;
                if (y < y0) y0 = y;
                if (y > y1) y1 = y;
            }
        if (x0 === Infinity || y0 === Infinity) return null;
        if (x1 === x0) x1 = x0 + 1;
        if (!this.group.log && y0 > 0 && (this.group.zero || y0 < 0.6 * y1)) y0 = 0; // zero is shown unless that hides the course
        if (y1 === y0) { const by = Math.abs(y0) * 0.1 || 1; y1 += by; if (y0 !== 0 && !this.group.log) y0 -= by; }
        return {x0, x1, y0, y1};
    }

    toX(px) {
        const r = this.range(), w = this.canvas.clientWidth - LEFT - RIGHT;
        return r && w > 20 ? r.x0 + Math.min(Math.max(px - LEFT, 0), w) / w * (r.x1 - r.x0) : null;
    }
    toPx(x) {
        const r = this.range(), w = this.canvas.clientWidth - LEFT - RIGHT;
        return r ? LEFT + (x - r.x0) / (r.x1 - r.x0) * w : 0;
    }

    xText(x) {
        const g = this.group;
        if (g.x !== "time") return label(x);
        return g.relative ? number(x - this.first, 3) + " s" : clock(x * 1e6);
    }

    paint() {
        const ratio = window.devicePixelRatio || 1, w = this.canvas.clientWidth, height = this.canvas.clientHeight, r = this.range();
        if (!w) return;
        this.canvas.width = w * ratio;
        this.canvas.height = height * ratio;
        if (!r) { this.say([]); return; }
        const g = this.canvas.getContext("2d"), style = getComputedStyle(this.canvas), log = this.group.log;
        const f = log ? Math.log10 : v => v, lo = f(r.y0), hi = f(r.y1) === lo ? lo + 1 : f(r.y1);
        const px = x => LEFT + (x - r.x0) / (r.x1 - r.x0) * (w - LEFT - RIGHT);
        const py = y => TOP + (1 - (f(y) - lo) / (hi - lo)) * (height - TOP - BOTTOM);
        g.scale(ratio, ratio);
        this.axes(g, style, r, px, py, w, height, lo, hi);
        const said = [];
        let i = 0;
        g.save();
        g.beginPath();
        g.rect(LEFT - 2, 0, w - LEFT - RIGHT + 4, height - BOTTOM + 2);
        g.clip();
        for (const [name, s] of this.series) {
            const ink = style.getPropertyValue("--c" + i % INKS);
            g.strokeStyle = g.fillStyle = ink;
            g.lineJoin = "round";
            g.setLineDash(DASHES[Math.floor(i / INKS) % DASHES.length]);
            if (this.group.smooth) {
                g.globalAlpha = 0.25;
                this.line(g, s, px, py, r);
                g.globalAlpha = 1;
            }
            const drawn = this.group.smooth ? smoothed(s.filter(p => !Number.isNaN(p[1])), this.group.smooth) : s;
            this.line(g, drawn, px, py, r);
            const at = this.group.at === null ? drawn[drawn.length - 1] : drawn.length ? nearest(drawn, this.group.at) : null;
            if (at) said.push([name, at[1], i]);
            if (at && this.group.at !== null) { g.beginPath(); g.arc(px(at[0]), py(at[1]), 3, 0, 7); g.fill(); }
            i++;
        }
        this.cross(g, style, r, px, height);
        g.restore();
        this.say(said);
    }

    axes(g, style, r, px, py, w, height, lo, hi) {
        g.font = "11px system-ui, sans-serif";
        g.lineWidth = 1;
        g.textBaseline = "middle";
        g.textAlign = "right";
        const ys = this.group.log && hi - lo >= 1 ? steps(Math.ceil(lo), hi, 4).filter(Number.isInteger).map(p => 10 ** p) : steps(r.y0, r.y1, Math.max(2, Math.floor(height / 36))).filter(y => y > 0 || !this.group.log);
        for (const y of ys) {
            g.strokeStyle = style.getPropertyValue("--line");
            g.beginPath(); g.moveTo(LEFT, py(y)); g.lineTo(w - RIGHT, py(y)); g.stroke();
            g.fillStyle = style.getPropertyValue("--dim");
            g.fillText(label(y), LEFT - 6, py(y));
        }
        g.textBaseline = "top";
        g.textAlign = "center";
        const n = Math.max(1, Math.floor((w - LEFT - RIGHT) / 80));
        const time = this.group.x === "time" && !this.group.relative;
        const first = this.group.relative ? this.first : 0;
        const xs = time ? clockSteps(r.x0, r.x1, n) : steps(r.x0 - first, r.x1 - first, n).map(x => x + first);
        for (const x of xs) {
            g.beginPath(); g.moveTo(px(x), height - BOTTOM); g.lineTo(px(x), height - BOTTOM + 4); g.stroke();
            const text = this.xText(x), half = g.measureText(text).width / 2;
            g.fillText(text, Math.min(Math.max(px(x), LEFT - 8 + half), w - half), height - BOTTOM + 6);
        }
    }

    /* Where many points fall on one column of pixels its least and its greatest are drawn. */
    line(g, s, px, py, r) {
        g.lineWidth = 1.7;
        g.beginPath();
        let pen = false, last = null, column = null, low = 0, high = 0, alone = [];
        const flush = () => { if (column !== null && low !== high) { g.moveTo(column, py(low)); g.lineTo(column, py(high)); g.moveTo(px(last[0]), py(last[1])); } column = null; };
        for (const p of s) {
            const [x, y] = p;
            if (x < r.x0 - (r.x1 - r.x0) || x > r.x1 + (r.x1 - r.x0)) continue;
            if (Number.isNaN(y) || (this.group.log && y <= 0) || (last && x - last[0] > this.group.gap_s)) {
                flush();
                if (alone.length === 1) { const a = alone[0]; g.moveTo(px(a[0]) + 1, py(a[1])); g.arc(px(a[0]), py(a[1]), 1, 0, 7); }
                pen = false;
                alone = [];
            }
            if (Number.isNaN(y) || (this.group.log && y <= 0)) { last = null; continue; }
            const c = Math.round(px(x));
            if (pen && c === column) {
                low = Math.min(low, y);
                high = Math.max(high, y);
            } else {
                flush();
                if (pen) g.lineTo(px(x), py(y)); else g.moveTo(px(x), py(y));
                column = c;
                low = high = y;
            }
            pen = true;
            last = p;
            if (alone.length < 2) alone.push(p);
        }
        flush();
        if (alone.length === 1) { const a = alone[0]; g.moveTo(px(a[0]) + 2, py(a[1])); g.arc(px(a[0]), py(a[1]), 2, 0, 7); }
        g.stroke();
    }

    cross(g, style, r, px, height) {
        const at = this.group.at;
        g.setLineDash([]);
        if (this.drag && this.drag[1] !== null) {
            g.globalAlpha = 0.15;
            g.fillStyle = style.getPropertyValue("--accent");
            g.fillRect(px(this.drag[0]), TOP, px(this.drag[1]) - px(this.drag[0]), height - TOP - BOTTOM);
            g.globalAlpha = 1;
        }
        if (at === null || at < r.x0 || at > r.x1) return;
        g.strokeStyle = style.getPropertyValue("--dim");
        g.lineWidth = 0.8;
        g.beginPath(); g.moveTo(px(at), TOP); g.lineTo(px(at), height - BOTTOM); g.stroke();
    }

    say(said) {
        const at = this.group.at === null ? "" : " at " + this.xText(this.group.at);
        fill(this.legend, at && h("li.at", null, at), said.map(([name, y, i]) => h("li", null, h("span.ink", {cls: `ink${i % INKS} dash${Math.floor(i / INKS) % DASHES.length}`, "aria-hidden": "true"}), said.length > 1 || name !== this.title ? h("bdi", null, name + " ") : "", h("b", null, number(y) + this.unit))),
            this.left_out > 0 && h("li", null, `more than ${SERIES_MAX} curves: the others are not drawn`));
        this.canvas.setAttribute("aria-label", `${this.title}${at}: ` + (said.map(([name, y]) => `${name} ${number(y)}${this.unit}`).join(", ") || "no values yet"));
    }

    fillTable() {
        const box = this.values.lastElementChild;
        if (!this.values.open) { box.replaceChildren(); return; }
        const rows = [];
        for (const [name, s] of this.series) for (const [x, y] of s) rows.push([x, name, y]);
        rows.sort((a, b) => b[0] - a[0]);
        const csv = "x,series,value\n" + rows.slice().reverse().map(([x, n, y]) => `${x},"${n.replace(/"/g, '""').replace(/^([=+\-@])/, "'$1")}",${y}`).join("\n") + "\n";
        const url = URL.createObjectURL(new Blob([csv], {type: "text/csv"}));
        fill(box, h("p", null, h("a", {href: url, download: this.title.replace(/[^\w.-]+/g, "_").slice(0, 60) + ".csv"}, "all as CSV"), rows.length > TABLE_MAX ? ` · the last ${TABLE_MAX} of ${rows.length}` : ""),
            h("table", null, h("thead", null, h("tr", null, ["x", "curve", "value"].map(t => h("th", {scope: "col"}, t)))), h("tbody", null, rows.slice(0, TABLE_MAX).map(([x, n, y]) => h("tr", null, h("td", null, this.xText(x)), h("td", null, n), h("td", null, Number.isNaN(y) ? "not a number" : String(y)))))));
    }
}
