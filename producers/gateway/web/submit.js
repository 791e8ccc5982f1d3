/* submit.js - a job from a manifest, typed or from a file, with its code as an archive. What is wrong with it is said with its lines. */
import {h, fill, name, toast} from "./dom.js";
import {post, call, serves, accepts, part} from "./api.js";
import {plain} from "./text.js";

const EXAMPLE = `name: hello
description: a first job
version: "1"
gpus: 0
cpus: 0.5
memory: 256 MiB
learners: 1
framework:
  name: custom
  version: "1"
  command: "for i in 1 2 3; do echo step $i; sleep 1; done"
`;

export function open(root) {
    const text = h("textarea", {id: "manifest", rows: 18, spellcheck: false, value: EXAMPLE, "aria-describedby": "wrong"});
    const wrong = h("p.wrong", {id: "wrong", role: "alert", hidden: true});
    /* The same request sent twice, as by an impatient second press, is one job; anything else is another request. */
    let key;
    const renew = () => { key = crypto.randomUUID?.() || String(Math.random()).slice(2); };
    renew();
    const file = h("input", {type: "file", accept: ".yml,.yaml,.json", onchange: async () => { if (file.files[0]) text.value = await file.files[0].text(); renew(); }});
    const code = h("input", {type: "file", accept: ".zip", onchange: renew});
    const upload = accepts("/v1/jobs", "multipart/form-data") ? "own" : serves("/v1/models", "post") ? "ffdl" : "";
    const go = h("button.main", {type: "submit"}, "submit");
    text.addEventListener("input", renew);

    async function send(e) {
        e.preventDefault();
        wrong.hidden = true;
        go.disabled = true;
        try {
            const archive = code.files?.[0];
            let d;
            if (archive && upload) {
                const form = new FormData();
                form.append("manifest", new Blob([text.value], {type: "application/yaml"}), "manifest.yml");
                form.append(upload === "own" ? "code" : "model_definition", archive, archive.name);
                d = await call("POST", upload === "own" ? "v1/jobs" : "v1/models?version=2017-02-13", form, undefined, upload === "own" ? {"Idempotency-Key": key} : undefined);
            } else
                d = await call("POST", "v1/jobs", text.value, "application/yaml", {"Idempotency-Key": key});
            const id = d.training_id || d.model_id;
            toast(d.topic ? `Submitted: ${d.topic}/${d.partition}/${d.offset}` : "Submitted");
            await seen(id);
            location.hash = "#/jobs/" + part(id);
        } catch (problem) {
            wrong.textContent = plain(problem.message);
            wrong.hidden = false;
        } finally {
            go.disabled = false;
        }
    }
    /* The Trainer answers within moments; the job's page has something to show then. */
    async function seen(id) {
        for (let i = 0; i < 20; i++) {
            try { await call("GET", "v1/jobs/" + part(id)); return; } catch (e) { if (e.status !== 404) return; }
            await new Promise(done => setTimeout(done, 250));
        }
    }
    fill(root, h("p", null, h("a", {href: "#/jobs"}, "← all jobs")), h("h1", null, "Submit a job"),
        h("form.submit", {onsubmit: send}, h("label", {htmlFor: "manifest"}, "Manifest"), text, wrong,
            h("div.row", null, h("label", null, "from a file ", file), upload && h("label", null, "code, a zip archive ", code)), h("div.row", null, go)));
    return () => {};
}
