/* text.js - values as people read them, and foreign text made harmless. Names, reasons and log lines come from whoever may write to the topics: they
 * become text nodes, never markup, and what would turn the reading direction, hide or overwrite something is made visible. */

const MINUTE = 60, HOUR = 3600, DAY = 86400;

export function duration(s) {
    if (!Number.isFinite(s) || s < 0) return "–";
    if (s < 10) return s.toFixed(1) + " s";
    if (s < MINUTE) return Math.floor(s) + " s";
    if (s < HOUR) return Math.floor(s / MINUTE) + " min " + Math.floor(s % MINUTE) + " s";
    if (s < DAY) return Math.floor(s / HOUR) + " h " + Math.floor(s % HOUR / MINUTE) + " min";
    return Math.floor(s / DAY) + " d " + Math.floor(s % DAY / HOUR) + " h";
}

export function ago(us) {
    const s = Math.max(0, Date.now() / 1000 - us / 1e6);
    if (!Number.isFinite(s)) return "–";
    if (s < MINUTE) return Math.floor(s) + " s";
    if (s < HOUR) return Math.floor(s / MINUTE) + " min";
    return s < DAY ? Math.floor(s / HOUR) + " h" : Math.floor(s / DAY) + " d";
}

export function number(v, digits = 4) {
    if (typeof v !== "number" || !Number.isFinite(v)) return "–";
    const a = Math.abs(v);
    if (a === 0) return "0";
    if (a >= 1e15 || a < 1e-4) return v.toExponential(2);
    if (a >= 1000) return Math.round(v).toLocaleString("en");
    return String(+v.toPrecision(digits));
}

export function bytes(n) {
    if (typeof n !== "number" || !Number.isFinite(n)) return "–";
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let i = 0;
    while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
    return (i ? +n.toPrecision(3) : n) + " " + units[i];
}

const two = n => String(n).padStart(2, "0");
/* A record's time may be any number, and the calendar ends: what is no day there is shown as the number that it is. */
const isDay = us => typeof us === "number" && Math.abs(us) <= 8.64e18;
export const iso = us => isDay(us) ? new Date(us / 1000).toISOString() : plain(us).slice(0, 40);
export function clock(us) {
    if (!isDay(us)) return iso(us);
    const d = new Date(us / 1000);
    return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}
export function moment(us) {
    if (!us) return "–";
    if (!isDay(us)) return iso(us);
    const d = new Date(us / 1000), today = new Date();
    const date = d.toDateString() === today.toDateString() ? "" : `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} `;
    return date + clock(us);
}

/* Controls are written as terminals do (^[ is escape), what turns or hides text its code point in brackets; tabs and, in text of several lines, line ends stay. */
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udfff]/g;
export function plain(text) {
    return String(text ?? "").replace(UNSEEN, c => {
        const code = c.codePointAt(0);
        if (code < 0x20 || code === 0x7f) return "^" + String.fromCharCode(code ^ 0x40);
        return "[U+" + code.toString(16).toUpperCase().padStart(4, "0") + "]";
    });
}

/* A text of any length in bounded room: its beginning, and how much follows. */
export function short(text, max = 300) {
    const t = String(text ?? "");
    return plain(t.length > max ? t.slice(0, max) + ` … (${(t.length - max).toLocaleString("en")} more characters)` : t);
}

/* A log line in pieces {text, cls}. The terminal's colours become classes; every other escape sequence is shown, not obeyed; of a progress bar's
 * carriage returns what a terminal would show last remains. */
const COLOUR = /\u001b\[([0-9;]{0,40})m/g;
export function pieces(line) {
    const at = line.replace(/\r+$/, "").lastIndexOf("\r");
    const text = at >= 0 ? line.replace(/\r+$/, "").slice(at + 1) : line.replace(/\r+$/, "");
    const out = [];
    let from = 0, colour = "", bold = false;
    const put = to => { if (to > from) out.push({text: plain(text.slice(from, to)), cls: [colour, bold ? "bold" : ""].filter(Boolean).join(" ")}); };
    for (const m of text.matchAll(COLOUR)) {
        put(m.index);
        from = m.index + m[0].length;
        for (const code of m[1].split(";").map(Number)) {
            if (code === 0) { colour = ""; bold = false; }
            else if (code === 1) bold = true;
            else if (code === 22) bold = false;
            else if (code === 39) colour = "";
            else if (code >= 30 && code <= 37) colour = "c" + (code - 30);
            else if (code >= 90 && code <= 97) colour = "c" + (code - 90);
        }
    }
    put(text.length);
    return out;
}
