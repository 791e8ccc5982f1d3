/* log.js - log lines as they come: searchable, followed or paused, their escape sequences harmless. A line of 100 kB shows its beginning. */
import {h, soon} from "./dom.js";
import {pieces, clock} from "./text.js";

const LINES_MAX = 5000, LINE_MAX = 4000;

/* What was asked for comes after what streams in meanwhile: lines stand as they were written, not as they came. */
const before = (a, b) => a.time !== b.time ? a.time < b.time : a.generation !== b.generation ? a.generation < b.generation : a.process === b.process && a.rindex < b.rindex;

export class Log {
    constructor(id) {
        this.lines = [];
        this.seen = new Set();
        this.names = new Set();
        this.search = h("input", {type: "search", placeholder: "search in the log", "aria-label": "search in the log", oninput: () => this.again()});
        this.stream = h("select", {"aria-label": "which stream", onchange: () => this.again()}, [["", "all"], ["STDOUT", "stdout"], ["STDERR", "stderr"], ["SYSTEM", "platform"]].map(([v, t]) => h("option", {value: v}, t)));
        this.process = h("select", {"aria-label": "which process", hidden: true, onchange: () => this.again()}, h("option", {value: ""}, "every process"));
        this.tail = h("input", {type: "checkbox", id: id + "-tail", checked: true, onchange: () => this.scroll()});
        this.times = h("input", {type: "checkbox", onchange: () => this.pre.classList.toggle("timed", this.times.checked)});
        this.count = h("span.dim", {role: "status"});
        this.pre = h("pre", {id, tabIndex: 0, role: "log", "aria-live": "off", "aria-label": "log lines", onscroll: () => { if (this.pre.scrollTop + this.pre.clientHeight < this.pre.scrollHeight - 30 && !this.moving) this.tail.checked = false; }});
        this.box = h("div", null, h("div.filters", null, this.search, this.stream, this.process, h("label", null, this.tail, " follow"), h("label", null, this.times, " times"), this.count), this.pre);
        this.waiting = [];
        this.anew = soon(() => this.again(), 50);
    }

    take(l) {
        if (!l || typeof l !== "object") return;
        if (typeof l.text !== "string") l = {...l, text: l.text === null || l.text === undefined ? "" : String(l.text)};
        const key = `${l.generation}/${l.process}/${l.rindex}`;
        if (this.seen.has(key)) return;
        this.seen.add(key);
        const late = this.lines.length && before(l, this.lines[this.lines.length - 1]);
        if (late) {
            let i = this.lines.length;
            while (i && before(l, this.lines[i - 1])) i--;
            this.lines.splice(i, 0, l);
        } else this.lines.push(l);
        const who = `${l.generation}/${l.process}`;
        if (!this.names.has(who)) {
            this.names.add(who);
            this.process.append(h("option", {value: who}, who));
            if (this.names.size === 2) { this.process.hidden = false; this.again(); }
        }
        if (this.lines.length > LINES_MAX) { const gone = this.lines.shift(); this.seen.delete(`${gone.generation}/${gone.process}/${gone.rindex}`); }
        if (late) this.anew();
        else if (this.waiting.push(l) === 1) requestAnimationFrame(() => this.paint());
    }

    fits(l) {
        if (this.stream.value && l.stream !== this.stream.value) return false;
        if (this.process.value && `${l.generation}/${l.process}` !== this.process.value) return false;
        return !this.search.value || l.text.toLowerCase().includes(this.search.value.toLowerCase());
    }

    again() {
        this.pre.replaceChildren();
        this.waiting = this.lines.slice();
        this.paint();
    }

    paint() {
        const some = this.waiting.filter(l => this.fits(l)).slice(-LINES_MAX).map(l => this.line(l));
        this.waiting = [];
        this.pre.append(...some);
        while (this.pre.childElementCount > LINES_MAX) this.pre.firstElementChild.remove();
        const all = this.lines.length, shown = this.pre.childElementCount;
        this.count.textContent = shown === all ? `${all} lines` : `${shown} of ${all} lines`;
        this.scroll();
    }
    scroll() {
        if (!this.tail.checked) return;
        this.moving = true;
        this.pre.scrollTop = this.pre.scrollHeight;
        requestAnimationFrame(() => { this.moving = false; });
    }

    line(l) {
        const e = h("div", {cls: "line " + l.stream}, h("span.when", null, clock(l.time) + " "), this.names.size > 1 && h("span.who", null, `[${l.generation}/${l.process}] `));
        if (l.gap && typeof l.gap === "object") { e.append(`… ${l.gap.lines} lines left out: ${l.gap.why}`); return e; }
        const long = l.text.length > LINE_MAX;
        this.words(e, long ? l.text.slice(0, LINE_MAX) : l.text);
        if (long) {
            const rest = h("button.small", {type: "button", onclick: () => { rest.remove(); this.words(e, l.text.slice(LINE_MAX)); }}, `show ${(l.text.length - LINE_MAX).toLocaleString("en")} more characters`);
            e.append(" ", rest);
        }
        return e;
    }

    words(e, text) {
        const wanted = this.search.value.toLowerCase();
        for (const p of pieces(text)) {
            const span = p.cls ? h("span", {cls: p.cls}) : e;
            let from = 0, at = wanted ? p.text.toLowerCase().indexOf(wanted) : -1;
            while (at >= 0) {
                span.append(p.text.slice(from, at), h("mark", null, p.text.slice(at, at + wanted.length)));
                from = at + wanted.length;
                at = p.text.toLowerCase().indexOf(wanted, from);
            }
            span.append(p.text.slice(from));
            if (span !== e) e.append(span);
        }
    }
}
