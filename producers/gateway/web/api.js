/* api.js - the gateway's own interface. What is refused comes as an RFC 9457 problem and is thrown as an Error with its words. Which paths there are
 * is read once from /openapi.json: what this gateway does not serve is not shown. */

let paths = {};

export async function call(method, path, body, type, more) {
    const headers = {...more};
    if (body !== undefined && type) headers["Content-Type"] = type;
    let r;
    try {
        r = await fetch(path, {method, body, headers});
    } catch {
        throw new Error("the gateway cannot be reached");
    }
    const text = await r.text();
    let doc = null;
    try { doc = JSON.parse(text); } catch { /* not JSON: its text is said below */ }
    if (r.ok) return doc ?? text;
    const lines = (doc?.violations || []).map(v => `${v.line ? "line " + v.line + ": " : ""}${v.field ? v.field + ": " : ""}${v.detail}`);
    const e = new Error([doc?.detail || doc?.title || doc?.error || `the gateway answered ${r.status}`, ...lines].join("\n"));
    e.status = r.status;
    e.doc = doc;
    if (r.status === 401) dispatchEvent(new Event("let-out"));
    throw e;
}
export const get = path => call("GET", path);
export const post = (path, body, type) => call("POST", path, body, type);

/* A few readers work at once; the others ask again as long as the answer is "busy". */
export async function patient(path) {
    for (let i = 0; ; i++)
        try {
            return await get(path);
        } catch (e) {
            if (e.status !== 503 || i === 10) throw e;
            await new Promise(done => setTimeout(done, 300 + 300 * i));
        }
}

export async function discover() {
    paths = (await get("openapi.json")).paths || {};
}
export const serves = (path, method = "get") => !!paths[path]?.[method];
export const takes = (path, param, method = "get") => !!paths[path]?.[method]?.parameters?.some(p => p.name === param);
export const accepts = (path, type) => !!paths[path]?.post?.requestBody?.content?.[type];
export const part = encodeURIComponent;
