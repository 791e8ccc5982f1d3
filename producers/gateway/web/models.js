/* models.js - registered models: versions, aliases and what they mean, where each came from, what it reads and gives. An alias is moved here; scorers
 * that follow it swap without a pause. */
import {h, fill, name, time, facts, command, table, row, toast, ask, soon} from "./dom.js";
import {get, call, part, serves} from "./api.js";
import {listen} from "./stream.js";
import {short, bytes, number} from "./text.js";

const PATH = "v1/registry/models";

export function open(root, args) {
    return args[0] ? one(root, args[0]) : list(root);
}

function list(root) {
    const box = h("div"), said = h("p.hint", {role: "status"});
    let ended = false;
    fill(root, h("h1", null, "Models"), said, box);
    async function load() {
        try {
            const models = [];
            for (let token = ""; models.length < 2000;) {
                const d = await get(`${PATH}?limit=500` + (token ? "&page_token=" + part(token) : ""));
                models.push(...d.models);
                token = d.next_page_token;
                if (!token) break;
            }
            if (ended) return;
            said.textContent = "";
            const heads = ["model", "aliases", "newest", "versions", "registered", "made by"];
            if (!models.length) { fill(box, h("p.hint", null, "No models yet. ", h("code", null, "penstock models register model.onnx --name NAME"), " registers one; a job with a model in its manifest does, too.")); return; }
            fill(box, h("section", {"aria-label": "models"}, table("Registered models", heads, models.map(m => row(heads, [h("a", {href: "#/models/" + part(m.name)}, name(m.name, 80)), aliases(m.aliases), "version " + m.latest.version, String(m.versions), time(m.latest.time), origin(m.latest)]))))); 
        } catch (e) { said.textContent = "The models cannot be read: " + e.message; }
    }
    const stop = listen(["model"], soon(load, 1000), soon(load, 500));
    load();
    return () => { ended = true; stop(); };
}

const aliases = all => Object.entries(all).sort().map(([a, v]) => h("span.tag", null, name(a, 60), ` → ${v}`));
const origin = v => v.training_id ? h("a", {href: "#/jobs/" + part(v.training_id)}, "job ", name(v.training_id.slice(-8))) : name(v.actor, 60);
const tensors = list => (list || []).map(t => h("div", null, name(t.name, 60), " ", h("code", null, `${t.dtype}[${(t.shape || []).map(n => n < 0 ? "?" : n).join(", ")}]`)));

function one(root, model) {
    const box = h("div"), said = h("p.hint", {role: "status"}), at = `${PATH}/${part(model)}`;
    let ended = false;
    fill(root, h("p", null, h("a", {href: "#/models"}, "← all models")), h("h1", null, name(model, 120)), said, box);

    function version(v) {
        const trained = (v.trained_on || []).map(t => h("div", null, h("code", null, `${short(t.topic, 80)}/${t.partition}`), ` ${number(t.from)} to ${number(t.to)}`));
        return h("section", {"aria-label": "version " + v.version, "data-version": v.version}, h("h2", null, `Version ${v.version} `, (v.aliases || []).map(a => h("span.tag", null, name(a, 60)))),
            facts([["registered", time(v.time)], ["made by", origin(v)], ["format", name(v.format, 40)], ["size", bytes(v.bytes)], ["digest", h("code", {title: v.digest}, "sha256:" + short(v.digest).slice(0, 16) + "…")],
                ["reads", tensors(v.inputs)], ["gives", tensors(v.outputs)], ["features", v.features?.length ? short(v.features.join(", "), 400) : null],
                ["metrics", Object.keys(v.metrics || {}).length ? Object.entries(v.metrics).slice(0, 20).map(([k, x]) => h("div", null, name(k, 60), " ", h("b", null, number(x)))) : null], ["trained on", trained.length ? trained : null], ["reason", v.reason && short(v.reason, 300)]]),
            serves("/v1/registry/models/{model}/versions/{version}/download") && h("p", null, h("a", {href: `${at}/versions/${v.version}/download`, download: `${model}-${v.version}.${(v.format || "bin").replace(/\W/g, "")}`}, "download")));
    }
    /* The form stays as it is while what it is about changes around it. */
    const which = h("input", {size: 12, autocomplete: "off", required: true, placeholder: "champion"}), to = h("select"), why = h("input", {size: 24, autocomplete: "off"}), now = h("p");
    const move = h("form.filters", {onsubmit: async e => {
        e.preventDefault();
        try {
            if (!await ask(`Let ${short(which.value, 60)} of ${short(model, 60)} mean version ${to.value}? Scorers that follow it take it at once.`, "move it")) return;
            await call("PUT", `${at}/aliases/${part(which.value.trim())}`, JSON.stringify({version: +to.value, reason: why.value || null}), "application/json");
            toast(`${which.value} means version ${to.value} now.`);
            load();
        } catch (problem) { toast(problem.message, true); }
    }}, h("label", null, "alias ", which), h("label", null, "means version ", to), h("label", null, "because ", why), h("button", {type: "submit"}, "move"));
    const versions = h("div");
    fill(box, h("section", {"aria-label": "aliases"}, h("h2", null, "Aliases"), now, serves("/v1/registry/models/{model}/aliases/{alias}", "put") && move, command(`penstock models show ${/^[\w.-]+$/.test(model) ? model : "NAME"}`)), versions);

    async function load() {
        try {
            const d = await get(at);
            if (ended) return;
            said.textContent = "";
            const all = d.versions.slice().sort((a, b) => b.version - a.version), chosen = to.value;
            fill(now, Object.keys(d.aliases).length ? aliases(d.aliases) : h("span.dim", null, "None yet."));
            fill(to, all.map(v => h("option", {value: v.version}, String(v.version))));
            if (chosen) to.value = chosen;
            fill(versions, all.slice(0, 100).map(version), all.length > 100 && h("p.hint", null, `${all.length - 100} older versions are not shown.`));
        } catch (e) { said.textContent = e.message; if (e.status === 404) box.hidden = true; }
    }
    const stop = listen(["model"], soon(load, 1000), soon(load, 500));
    load();
    return () => { ended = true; stop(); };
}
