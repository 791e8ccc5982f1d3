/* nodes.js - the computers that jobs run on, and what is free on each. Asked again now and then: they are few. */
import {h, fill, name, time, badge, table, row, toast, ask} from "./dom.js";
import {get, call, part, serves} from "./api.js";
import {bytes, number, ago, short} from "./text.js";

const EVERY_MS = 5000;

/* How much of it is taken, as a bar and in words. */
function taken(free, all, text) {
    if (!all) return "–";
    const used = Math.max(0, all - (free ?? all));
    return h("div.use", null, h("meter", {min: 0, max: all, value: used, "aria-label": "in use"}), h("span", null, `${text(used)} of ${text(all)}`));
}

export function open(root) {
    const box = h("div"), said = h("p.hint", {role: "status"});
    let ended = false, shown = "";
    fill(root, h("h1", null, "Nodes"), said, box);
    async function act(node, verb, sure) {
        if (sure && !await ask(`${verb} ${short(node, 80)}? ${sure}`, verb)) return;
        try {
            await call("POST", `v1/nodes/${part(node)}/${verb}`);
            toast(`${verb} ${node}: done`);
            load();
        } catch (e) { toast(`${verb} ${node}: ${e.message}`, true); }
    }
    async function load() {
        try {
            const d = await get("v1/nodes"), heads = ["node", "state", "site", "CPUs", "memory", "GPUs", "processes", "heard", ""];
            if (ended) return;
            said.textContent = "";
            if (!d.nodes.length) { fill(box, h("p.hint", null, "No node has reported. ", h("code", null, "penstock lcm"), " makes a computer one.")); return; }
            const now = JSON.stringify(d.nodes.map(n => ({...n, seen_at: Math.floor(n.seen_at / 1e7)})));
            if (now === shown || box.contains(document.activeElement) && document.activeElement.tagName === "BUTTON") return; // nothing is taken from under a finger
            shown = now;
            const may = (verb, states, n) => states.includes(n.state) && serves(`/v1/nodes/{node}/${verb}`, "post");
            fill(box, h("section", {"aria-label": "nodes"}, table("Nodes", heads, d.nodes.map(n => row(heads, [name(n.node, 80), badge(n.state), name(n.site, 60), taken(n.free?.cpus, n.cpus, v => number(v, 3)), taken(n.free?.memory_bytes, n.memory_bytes, bytes), taken(n.free?.gpus, n.gpus, String), String(n.processes), `${ago(n.seen_at)} ago`,
                h("div.actions", null, may("drain", ["ready", "silent"], n) && h("button.small", {type: "button", title: "It takes no new jobs.", onclick: () => act(n.node, "drain")}, "drain"), may("resume", ["draining"], n) && h("button.small", {type: "button", onclick: () => act(n.node, "resume")}, "resume"),
                    may("lost", ["silent"], n) && h("button.small.danger", {type: "button", onclick: () => act(n.node, "lost", "Your word that it will not come back with its processes: its jobs go on elsewhere.")}, "lost"))])))));
        } catch (e) { said.textContent = "The nodes cannot be read: " + e.message; }
    }
    load();
    const timer = setInterval(load, EVERY_MS);
    return () => { ended = true; clearInterval(timer); };
}
