/* dom.js - elements without markup: everything that is shown goes through text nodes and properties, so nothing that came from a topic is ever parsed. */
import {plain, moment, iso} from "./text.js";

/* h("a.wide", {href, onclick}, child, …): children are nodes, texts, lists, or nothing. */
export function h(what, props, ...children) {
    const [tag, ...classes] = what.split(".");
    const e = document.createElement(tag);
    if (classes.length) e.className = classes.join(" ");
    for (const [k, v] of Object.entries(props || {})) {
        if (v === undefined || v === null || v === false) continue;
        if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
        else if (k === "cls") e.className += " " + v;
        else if (k in e && k !== "list" && k !== "role" && k !== "form") e[k] = v;
        else e.setAttribute(k, v === true ? "" : v);
    }
    put(e, children);
    return e;
}
function put(e, children) {
    for (const c of children.flat(Infinity)) if (c !== undefined && c !== null && c !== false && c !== "") e.append(c);
}
export function fill(e, ...children) {
    e.replaceChildren();
    put(e, children);
    return e;
}

/* Foreign words stand by themselves: their direction does not reach what is beside them. */
export const name = (text, max = 120) => {
    const t = plain(text);
    return h("bdi", {title: t.length > max ? t.slice(0, 1000) : ""}, t.length > max ? t.slice(0, max) + "…" : t);
};
export const time = us => us ? h("time", {dateTime: iso(us), title: iso(us)}, moment(us)) : "–";
export const badge = state => h("span.state", {cls: typeof state === "string" && /^[A-Za-z_]{1,20}$/.test(state) ? state.toUpperCase() : ""}, name(state, 24));

/* A command that reproduces what is shown. */
export function command(line) {
    const copy = h("button.copy", {type: "button", title: "Copy", "aria-label": "Copy the command", onclick: () => {
        navigator.clipboard?.writeText(line).then(() => { copy.textContent = "copied"; setTimeout(() => { copy.textContent = "copy"; }, 1500); }, () => toast("The browser does not let the page copy."));
    }}, "copy");
    return h("span.command", null, h("code", null, line), copy);
}

export function facts(list) {
    return h("dl.facts", null, list.filter(f => f && f[1] !== undefined && f[1] !== null && f[1] !== "").map(([k, v]) => h("div", null, h("dt", null, k), h("dd", null, v))));
}

export function table(caption, heads, rows, props) {
    return h("div.scroll", {tabIndex: 0, role: "region", "aria-label": caption}, h("table", {cls: "list", ...props}, h("caption.sr", null, caption), h("thead", null, h("tr", null, heads.map(t => h("th", {scope: "col"}, t)))), h("tbody", null, rows)));
}
export const row = (heads, cells, props) => h("tr", props, cells.map((c, i) => h("td", {"data-head": heads[i] || null}, c)));

/* One line at the bottom for what an action came to; read aloud. */
let toastEnds = 0;
export function toast(text, bad) {
    const e = document.getElementById("toast");
    e.textContent = plain(text).slice(0, 600);
    e.className = bad ? "bad" : "";
    e.hidden = false;
    clearTimeout(toastEnds);
    toastEnds = setTimeout(() => { e.hidden = true; }, bad ? 15000 : 6000);
}

/* Asks before something that cannot be taken back. */
export function ask(question, yes) {
    return new Promise(done => {
        const d = h("dialog", {"aria-labelledby": "ask-text", onclose: () => { d.remove(); done(d.returnValue === "yes"); }},
            h("p", {id: "ask-text"}, question),
            h("form.row", {method: "dialog"}, h("button.danger", {value: "yes"}, yes), h("button", {value: "no", autofocus: true}, "No, leave it")));
        document.body.append(d);
        d.showModal();
    });
}

/* At most once per frame and delay, however often it is asked for. */
export function soon(fn, ms = 100) {
    let asked = false;
    return () => {
        if (asked) return;
        asked = true;
        setTimeout(() => { asked = false; fn(); }, ms);
    };
}
