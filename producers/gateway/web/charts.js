/* charts.js - small line charts on canvas; those of one group share their crosshair, so that curves can be read together.
 * A chart keeps at most POINTS points: beyond that every second one of the older half is dropped. */
"use strict";

const POINTS = 2000;
const PALETTE = ["#0a9ec9", "#e08a1e", "#7a5cd6", "#2fa36b", "#d6456b", "#8a8f98"];

class ChartGroup {
    constructor() { this.charts = []; this.x = null; }
    hover(x) { this.x = x; for (const c of this.charts) c.paint(); }
}

class Chart {
    constructor(parent, title, group, unit = "") {
        this.title = title; this.group = group; this.unit = unit;
        this.series = new Map(); // name → [[x, y], …], x ascending
        this.box = document.createElement("div");
        this.box.className = "chart";
        const head = document.createElement("header");
        this.name = document.createElement("span");
        this.name.textContent = title;
        this.value = document.createElement("b");
        head.append(this.name, this.value);
        this.canvas = document.createElement("canvas");
        this.canvas.setAttribute("role", "img");
        this.box.append(head, this.canvas);
        parent.append(this.box);
        group.charts.push(this);
        this.canvas.addEventListener("pointermove", e => { const x = this.toX(e.offsetX); if (x !== null) group.hover(x); });
        this.canvas.addEventListener("pointerleave", () => group.hover(null));
        this.asked = false;
        new ResizeObserver(() => this.paint()).observe(this.canvas);
    }

    add(name, x, y) {
        if (!Number.isFinite(y)) return;
        let s = this.series.get(name);
        if (!s) this.series.set(name, s = []);
        if (s.length && x < s[s.length - 1][0]) { // late: put it where it belongs
            let i = s.length;
            while (i && s[i - 1][0] > x) i--;
            s.splice(i, 0, [x, y]);
        } else s.push([x, y]);
        if (s.length > POINTS) this.series.set(name, s.filter((_, i) => i >= POINTS / 2 || i % 2 === 0));
        if (!this.asked) { this.asked = true; requestAnimationFrame(() => { this.asked = false; this.paint(); }); }
    }

    range() {
        let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
        for (const s of this.series.values())
            for (const [x, y] of s) { if (x < x0) x0 = x; if (x > x1) x1 = x; if (y < y0) y0 = y; if (y > y1) y1 = y; }
        if (x0 === Infinity) return null;
        if (x1 === x0) x1 = x0 + 1;
        if (y0 > 0 && y0 < 0.6 * y1) y0 = 0; // show zero unless that hides the course
        if (y1 === y0) y1 = y0 + (Math.abs(y0) || 1);
        return {x0, x1, y0, y1};
    }

    toX(px) {
        const r = this.range(), w = this.canvas.clientWidth;
        return r && w > 50 ? r.x0 + (Math.min(Math.max(px, 44), w - 6) - 44) / (w - 50) * (r.x1 - r.x0) : null;
    }

    static text(v) {
        if (v === 0) return "0";
        const a = Math.abs(v);
        return a >= 1e6 ? (v / 1e6).toPrecision(3) + "M" : a >= 1e4 ? (v / 1e3).toPrecision(3) + "k" : a >= 1e-3 ? String(+v.toPrecision(4)) : v.toExponential(2);
    }

    paint() {
        const ratio = window.devicePixelRatio || 1, w = this.canvas.clientWidth, h = this.canvas.clientHeight, r = this.range();
        if (!w || !r) return;
        this.canvas.width = w * ratio;
        this.canvas.height = h * ratio;
        const g = this.canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
        const ink = style.getPropertyValue("--dim"), line = style.getPropertyValue("--line");
        const px = x => 44 + (x - r.x0) / (r.x1 - r.x0) * (w - 50), py = y => 6 + (1 - (y - r.y0) / (r.y1 - r.y0)) * (h - 14);
        g.scale(ratio, ratio);
        g.font = "10px system-ui, sans-serif";
        g.textAlign = "right";
        g.textBaseline = "middle";
        for (let i = 0; i <= 2; i++) {
            const y = r.y0 + (r.y1 - r.y0) * i / 2;
            g.strokeStyle = line; g.lineWidth = 1;
            g.beginPath(); g.moveTo(44, py(y)); g.lineTo(w - 6, py(y)); g.stroke();
            g.fillStyle = ink; g.fillText(Chart.text(y), 40, py(y));
        }
        let i = 0;
        const said = [];
        for (const [name, s] of this.series) {
            const colour = PALETTE[i++ % PALETTE.length];
            g.strokeStyle = colour; g.lineWidth = 1.6; g.lineJoin = "round";
            g.beginPath();
            s.forEach(([x, y], k) => k ? g.lineTo(px(x), py(y)) : g.moveTo(px(x), py(y)));
            g.stroke();
            if (s.length === 1) { g.fillStyle = colour; g.beginPath(); g.arc(px(s[0][0]), py(s[0][1]), 2.5, 0, 7); g.fill(); }
            const at = this.group.x === null ? s[s.length - 1] : this.nearest(s, this.group.x);
            said.push((this.series.size > 1 ? name + " " : "") + Chart.text(at[1]) + this.unit);
            if (this.group.x !== null) { g.fillStyle = colour; g.beginPath(); g.arc(px(at[0]), py(at[1]), 3, 0, 7); g.fill(); }
        }
        if (this.group.x !== null && this.group.x >= r.x0 && this.group.x <= r.x1) {
            g.strokeStyle = ink; g.lineWidth = 0.6;
            g.beginPath(); g.moveTo(px(this.group.x), 4); g.lineTo(px(this.group.x), h - 4); g.stroke();
        }
        this.value.textContent = said.join("  ");
        this.canvas.setAttribute("aria-label", this.title + ": " + said.join(", "));
    }

    nearest(s, x) {
        let a = 0, b = s.length - 1;
        while (b - a > 1) { const m = (a + b) >> 1; if (s[m][0] < x) a = m; else b = m; }
        return Math.abs(s[a][0] - x) < Math.abs(s[b][0] - x) ? s[a] : s[b];
    }
}
