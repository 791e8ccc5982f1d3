/* topics.js - the topics of the cluster, and the newest records of one, decoded, each with the command that shows it. */
import {h, fill, name, time, facts, command, table, row, toast} from "./dom.js";
import {get, part} from "./api.js";
import {short, plain, bytes, number} from "./text.js";

const SHOWN_MAX = 20000;

export function open(root, args) {
    return args[0] ? one(root, args[0]) : list(root);
}

function list(root) {
    const box = h("div"), said = h("p.hint", {role: "status"}), only = h("input", {type: "search", placeholder: "name", oninput: () => paint()});
    let topics = [], ended = false;
    fill(root, h("h1", null, "Topics"), h("div.filters", null, h("label", null, "only ", only)), said, box);
    function paint() {
        const heads = ["topic", "kind", "partitions", "what"], some = topics.filter(t => t.name.toLowerCase().includes(only.value.toLowerCase()));
        said.textContent = some.length ? "" : "No topic is called that.";
        fill(box, some.length > 0 && h("section", {"aria-label": "topics"}, table("Topics", heads, some.slice(0, 1000).map(t => row(heads, [h("a", {href: "#/topics/" + part(t.name)}, name(t.name, 120)), t.kind, String(t.partitions), [t.event && h("code", null, short(t.event, 80)), " ", short(t.doc || "", 200)]])))));
    }
    get("v1/topics").then(d => { if (ended) return; topics = d.topics; paint(); }, e => { said.textContent = "The topics cannot be read: " + e.message; });
    return () => { ended = true; };
}

/* What is in a record: its data as text that can be read, or its bytes. */
export function body(b) {
    if (!b || b.format === "null") return h("span.dim", null, "null");
    let text = b.data === undefined ? b.hex ?? "" : typeof b.data === "string" ? b.data : JSON.stringify(b.data).length <= 100 ? JSON.stringify(b.data) : JSON.stringify(b.data, null, 1);
    const long = text.length > SHOWN_MAX;
    if (long) text = text.slice(0, SHOWN_MAX);
    return [h("pre.value", null, plain(text), (long || b.cut) && " …"), b.why && h("span.dim", null, short(b.why, 300))];
}

function one(root, topic) {
    const about = h("div"), records = h("div"), said = h("p.hint", {role: "status"}), cat = h("div"), at = "v1/topics/" + part(topic);
    const many = h("select", {"aria-label": "how many", onchange: () => load()}, [20, 50, 100].map(n => h("option", {value: n}, `newest ${n}`))), which = h("select", {"aria-label": "partition", onchange: () => load()}, h("option", {value: ""}, "every partition"));
    const search = h("input", {type: "search", placeholder: "search in them", "aria-label": "search in the records", oninput: () => paint()});
    let got = [], ended = false;
    fill(root, h("p", null, h("a", {href: "#/topics"}, "← all topics")), h("h1", null, name(topic, 160)), about,
        h("section", {"aria-label": "records"}, h("h2", null, "Newest records"), h("div.filters", null, many, which, search, h("button", {type: "button", onclick: () => load()}, "read again")), cat, said, records));
    if (/^[\w.-]+$/.test(topic)) fill(cat, command(`penstock cat -t ${topic} -o -5 -e`));
    function paint() {
        const heads = ["time", "place", "key", "value"], q = search.value.toLowerCase();
        const some = got.filter(r => !q || JSON.stringify([r.key, r.value]).toLowerCase().includes(q));
        if (!got.length) { fill(records, h("p.hint", null, "There are no records.")); return; }
        fill(records, table("Newest records", heads, some.map(r => row(heads, [time(r.timestamp * 1000), h("button.small", {type: "button", title: "Show the command", onclick: () => fill(cat, command(`penstock cat -t ${topic} -p ${r.partition} -o ${r.offset} -c 1`))}, `${r.partition}/${r.offset}`),
            body(r.key), [body(r.value), r.headers?.length ? h("details", null, h("summary", null, r.headers.length === 1 ? "one header" : `${r.headers.length} headers`), h("ul.plain", null, r.headers.slice(0, 50).map(x => h("li", null, h("code", null, short(x.name, 80)), " ", short(x.value ?? x.hex ?? "null", 500))))) : ""]])), {cls: "list records"}));
        said.textContent = q ? `${some.length} of ${got.length} records` : "";
    }
    async function load() {
        said.textContent = "reading …";
        try {
            const d = await get(`${at}/records?limit=${many.value}` + (which.value ? "&partition=" + which.value : ""));
            if (ended) return;
            got = d.records.slice().sort((a, b) => (b.timestamp || 0) - (a.timestamp || 0) || b.offset - a.offset);
            said.textContent = "";
            paint();
            if (d.cut) said.textContent = "What was too much for one answer is left out.";
        } catch (e) { said.textContent = e.message; }
    }
    get(at).then(d => {
        if (ended) return;
        fill(which, h("option", {value: ""}, "every partition"), d.partitions.slice(0, 500).map(p => h("option", {value: p.partition}, `partition ${p.partition}`)));
        const groups = d.groups || [], heads = ["group", "lag"];
        fill(about, h("section", {"aria-label": "about"}, facts([["kind", d.kind], ["what", d.doc && short(d.doc, 300)], ["event", d.event && h("code", null, short(d.event, 80))], ["partitions", String(d.partitions.length)], ["offsets", number(d.offsets)]]),
            h("details", null, h("summary", null, "ends of its partitions"), h("ul.plain", null, d.partitions.slice(0, 500).map(p => h("li", null, `${p.partition}: ${number(p.low)} to ${number(p.high)}`)))),
            groups.length ? table("Consumer groups", heads, groups.map(g => row(heads, [name(g.group, 120), number(g.lag)]))) : h("p.hint", null, d.groups_not_read ? short(d.groups_not_read, 300) : "No consumer group has read it.")));
    }, e => toast(e.message, true));
    load();
    return () => { ended = true; };
}
