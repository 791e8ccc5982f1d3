/* page.c - the page's files (producers/gateway/web), put into the binary by the build: nothing is read from disk at run time, so an installation
 * cannot serve a page that is older or newer than its API, and no path of a request ever names a file. What the page may do is said with each of them:
 * scripts and styles of this gateway alone, no markup from text, no form, no frame around it. */
#include "producers/gateway/page.h"

#include "producers/gateway/routes.h"

#include <string.h>

static const gw_page_file *file_named(const char *name)
{
    for (const gw_page_file *f = gw_page_files; f->name; f++)
        if (!strcmp(f->name, name))
            return f;
    return NULL;
}

static const char *type_of(const char *name)
{
    const char *end = strrchr(name, '.');
    if (end && !strcmp(end, ".js"))
        return "text/javascript; charset=utf-8";
    return end && !strcmp(end, ".css") ? "text/css; charset=utf-8" : "text/html; charset=utf-8";
}

static void serve(pst_http_req *req, const gw_page_file *f)
{
    pst_http_add_header(
        req, "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'");
    pst_http_add_header(req, "X-Content-Type-Options", "nosniff");
    pst_http_add_header(req, "Referrer-Policy", "no-referrer");
    pst_http_add_header(req, "Cache-Control", "no-cache");
    pst_http_reply(req, 200, type_of(f->name), f->data, *f->len);
}

static void index_html(void *arg, pst_http_req *req)
{
    serve(req, file_named("index.html"));
}

static void style(void *arg, pst_http_req *req)
{
    serve(req, file_named("style.css"));
}

static void script(void *arg, pst_http_req *req)
{
    const gw_page_file *f = file_named(pst_http_param(req, "file"));
    if (f)
        serve(req, f);
    else
        pst_http_problem(req, 404, "unknown-file", NULL, "the page has no script of this name");
}

static const gw_param of_index[] = {{"token", "query", GW_JSON({"type" : "string"}), "the token, once: the answer sets the page's cookie"},
                                    {0}},
                      of_script[] = {{"file", "path", GW_JSON({"type" : "string"}), "its name, as app.js"}, {0}};
static const gw_answer to_index[] = {{200, "the page", "text/html", GW_JSON({"type" : "string"})},
                                     {303, "the token was right: on to the page's own place", NULL, NULL},
                                     {0}},
                       to_style[] = {{200, "the style", "text/css", GW_JSON({"type" : "string"})}, {0}},
                       to_script[] = {{200, "the script", "text/javascript", GW_JSON({"type" : "string"})},
                                      {404, "the page has no such script", GW_PROBLEM},
                                      {0}};

static const gw_route routes[] = {
    {{"GET", "/", index_html, 0, GW_ALL, "The page. `/?token=…` lets a browser in once."}, "page", of_index, NULL, to_index},
    {{"GET", "/web/style.css", style, 0, GW_ALL, "Its style."}, "pageStyle", NULL, NULL, to_style},
    {{"GET", "/web/{file}", script, 0, GW_ALL, "One of its scripts."}, "pageScript", of_script, NULL, to_script},
};

const gw_noun gw_page_noun = {"page", "The page in the browser.", routes, sizeof routes / sizeof *routes, NULL};
