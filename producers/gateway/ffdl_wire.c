/* ffdl_wire.c - what every answer and request on FfDL's paths has in common: its error object, CORS, the header that names the user. Apart from what knows
 * jobs (ffdl_words.c), since who may enter at all (who.c) asks it before any job is looked at. */
#include "producers/gateway/ffdl.h"

#include "common/base/json.h"

#include <string.h>
#include <strings.h>

bool gw_ffdl_is_path(const char *path)
{
    static const char *const roots[] = {"/v1/models", "/v1/logs"};
    for (size_t i = 0; path && i < sizeof roots / sizeof *roots; i++) {
        size_t n = strlen(roots[i]);
        if (!strncmp(path, roots[i], n) && (!path[n] || path[n] == '/'))
            return true;
    }
    return false;
}

void gw_ffdl_fail(pst_http_req *req, int status, const char *description)
{
    const char *error = pst_http_status_text(status);
    if (status == 400)
        error = "Bad request";
    else if (status == 404)
        error = "Not found";
    else if (status == 500)
        error = "Internal server error";
    pst_buf b = {0};
    pst_buf_printf(&b, "{\"code\":%d,\"error\":\"%s\",\"description\":", status, error);
    pst_json_quote(&b, description ? description : "", description ? strlen(description) : 0);
    pst_buf_addc(&b, '}');
    pst_http_reply(req, status, "application/json", b.data, b.len);
    pst_buf_done(&b);
}

bool gw_ffdl_problem(void *arg, pst_http_req *req, int status, const char *detail)
{
    if (!gw_ffdl_is_path(pst_http_path(req)))
        return false;
    pst_http_set_header(req, "Access-Control-Allow-Origin", "*"); /* refused before any filter, maybe */
    gw_ffdl_fail(req, status, detail);
    return true;
}

/* Every origin may read, as FfDL's answers say: what is read asks for a credential, which a browser adds of itself to none of these paths (under
 * `--auth none` nothing asks, and foreign pages are refused before this: who.c). What changes anything is refused to foreign pages before this (http_guard.h), whatever a preflight was told. */
bool gw_ffdl_preflight(pst_http_req *req)
{
    if (!gw_ffdl_is_path(pst_http_path(req)))
        return false;
    pst_http_set_header(req, "Access-Control-Allow-Origin", "*");
    if (strcmp(pst_http_method(req), "OPTIONS") || !pst_http_header(req, "Access-Control-Request-Method"))
        return false;
    pst_http_add_header(req, "Access-Control-Allow-Methods", "PUT, GET, POST, DELETE, PATCH, OPTIONS");
    pst_http_add_header(req, "Access-Control-Allow-Headers",
                        "origin, x-requested-with, content-type, authorization, x-watson-userinfo, x-watson-authorization-token");
    pst_http_add_header(req, "Access-Control-Max-Age", "86400");
    pst_http_reply(req, 200, NULL, NULL, 0);
    return true;
}

/* A browser's Origin has no path, not even a slash (RFC 6454, 6.2); that of FfDL's client at a handshake is `http://localhost/`. */
bool gw_ffdl_is_foreign_page(const pst_http_req *req)
{
    const char *origin = pst_http_header(req, "Origin"), *site = pst_http_header(req, "Sec-Fetch-Site"),
               *host = pst_http_header(req, "Host");
    size_t n = origin ? strlen(origin) : 0;
    if (site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0)
        return true;
    if (!n || origin[n - 1] == '/')
        return false;
    const char *rest = !strncasecmp(origin, "http://", 7) ? origin + 7 : !strncasecmp(origin, "https://", 8) ? origin + 8 : "";
    return !host || strcasecmp(rest, host) != 0;
}

char *gw_ffdl_userinfo(const pst_http_req *req)
{
    static const char key[] = "bluemix-instance-id=";
    const char *p = pst_http_header(req, "X-Watson-Userinfo");
    while (p && *p) {
        p += strspn(p, "; \t");
        size_t n = strcspn(p, ";");
        if (n > sizeof key - 1 && !strncasecmp(p, key, sizeof key - 1))
            return pst_strndup(p + sizeof key - 1, n - (sizeof key - 1));
        p += n;
    }
    return NULL;
}
