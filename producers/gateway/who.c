/* who.c - token, basic auth and cookie, weighed before every handler. Cookies do not know ports: every server of this computer that the browser visits is shown those of this host, and a program
 * that kept one could send it back without a browser. But they know paths. So the page lives at a place that nobody can guess, made of the token
 * (/page-…/), the cookie is for paths below it alone, and no other server is ever asked for such a path. What `/` shows without a token knows the
 * place from the browser's storage, which does know ports. No page elsewhere gets anything done by either (http_guard.h: Origin, Sec-Fetch-Site).
 * The cookie is not the token but a digest of it. */
#include "producers/gateway/who.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "producers/gateway/ffdl.h"
#include "producers/gateway/oip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COOKIE_AGE_S = 30 * 86400, GRANTS_MAX = 256, GRANT_US = 60 * 1000000 };

/* Digests, so that each is of one size whatever a client calls itself. The oldest is the next to be overwritten. */
typedef struct grant {
    char digest[65];
    int64_t until_us;
} grant;

struct gw_who {
    char *token, *cookie, *place; /* NULL: everybody may */
    char cookie_name[40];
    grant grants[GRANTS_MAX];
    size_t n_grants; /* ever given */
};

static char *derive(const char *what, const char *token)
{
    char hex[65], *text = pst_sprintf("penstock: %s: %s", what, token);
    pst_sha256_hex(text, strlen(text), hex);
    free(text);
    return pst_strdup(hex);
}

gw_who *gw_who_new(const char *token)
{
    gw_who *w = pst_alloc(sizeof *w);
    if (token) {
        w->token = pst_strdup(token);
        w->cookie = derive("cookie of the page", token);
        char *place = derive("place of the page", token);
        w->place = pst_sprintf("page-%.32s", place);
        free(place);
    }
    return w;
}

void gw_who_free(gw_who *w)
{
    if (!w)
        return;
    free(w->token);
    free(w->cookie);
    free(w->place);
    free(w);
}

char *gw_who_name(const pst_http_req *req)
{
    char *user = NULL, *password = NULL;
    if (pst_http_basic(req, &user, &password) < 0)
        return NULL;
    free(password);
    if (*user)
        return user;
    free(user);
    return NULL;
}

static void grant_digest(const char *peer, const char *user, const char *training_id, char ret[65])
{
    char *text = pst_sprintf("%zu %s %zu %s %s", strlen(peer), peer, strlen(user), user, training_id);
    pst_sha256_hex(text, strlen(text), ret);
    free(text);
}

void gw_who_grant(gw_who *w, const char *peer, const char *user, const char *training_id)
{
    char digest[65];
    if (!*peer)
        return;
    grant_digest(peer, user, training_id, digest);
    size_t at = 0, known = w->n_grants < GRANTS_MAX ? w->n_grants : GRANTS_MAX;
    while (at < known && strcmp(w->grants[at].digest, digest))
        at++;
    if (at == known)
        at = w->n_grants++ % GRANTS_MAX;
    w->grants[at].until_us = pst_mono_us() + GRANT_US;
    memcpy(w->grants[at].digest, digest, sizeof digest);
}

/* A page says Origin or Sec-Fetch-Site of itself; without a credential nothing is shown to one. */
static bool is_granted(const gw_who *w, const pst_http_req *req)
{
    char digest[65], *user = gw_ffdl_userinfo(req);
    const char *id = pst_http_param(req, "id");
    bool yes = false;
    if (user && id && !pst_http_header(req, "Origin") && !pst_http_header(req, "Sec-Fetch-Site") && !pst_http_header(req, "Cookie")) {
        grant_digest(pst_http_peer(req), user, id, digest);
        for (size_t i = 0; i < GRANTS_MAX && i < w->n_grants; i++)
            yes |= !strcmp(w->grants[i].digest, digest) && w->grants[i].until_us > pst_mono_us();
    }
    free(user);
    return yes;
}

static bool has_cookie(const gw_who *w, const pst_http_req *req)
{
    char *value = pst_http_cookie(req, w->cookie_name);
    bool yes = pst_secret_equal(value, w->cookie);
    free(value);
    return yes;
}

/* The printed address: the token is exchanged for the cookie and leaves the address bar, the history and every Referer. */
static bool hand_out_cookie(gw_who *w, pst_http_req *req)
{
    const char *token = pst_http_query(req, "token");
    if (!token || strcmp(pst_http_path(req), "/") || !pst_secret_equal(token, w->token))
        return false;
    char *place = pst_sprintf("/%s/", w->place);
    char *cookie = pst_sprintf("%s=%s; Path=%s; Max-Age=%d; HttpOnly; SameSite=Strict", w->cookie_name, w->cookie, place, COOKIE_AGE_S);
    pst_http_add_header(req, "Set-Cookie", cookie);
    pst_http_add_header(req, "Location", place);
    pst_http_add_header(req, "Referrer-Policy", "no-referrer");
    pst_http_reply(req, 303, NULL, NULL, 0);
    free(cookie);
    free(place);
    return true;
}

static void ask(pst_http_req *req)
{
    static const char page[] =
        "<!doctype html><meta charset=utf-8><title>penstock</title><p>This page asks for a token. Open the address that "
        "<code>penstock status</code> prints: it ends with <code>/?token=…</code> and is needed once for this browser."
        "<script>const place = localStorage.getItem(\"penstock\");"
        "if (location.pathname === place) localStorage.removeItem(\"penstock\");" /* its token is no longer ours */
        "else if (/^\\/page-[0-9a-f]+\\/$/.test(place)) location.replace(place);</script>\n";
    const char *accept = pst_http_header(req, "Accept");
    /* A browser that is challenged for a page would ask for user and password before it shows this text. */
    bool browser = accept && strstr(accept, "text/html");
    pst_http_add_header(req, "WWW-Authenticate",
                        browser ? "Bearer realm=\"penstock\"" : "Bearer realm=\"penstock\", Basic realm=\"penstock\"");
    pst_http_add_header(req, "Referrer-Policy", "no-referrer");
    pst_http_add_header(req, "Cache-Control", "no-store");
    if (browser)
        pst_http_reply(req, 401, "text/html; charset=utf-8", page, sizeof page - 1);
    else
        pst_http_problem(req, 401, "token-wanted", NULL,
                         "send the token of <state-dir>/token as Authorization: Bearer TOKEN, or as basic auth's password");
}

static bool may_enter(void *arg, pst_http_req *req)
{
    gw_who *w = arg;
    const pst_http_route *route = pst_http_route_of(req);
    unsigned flags = route ? route->flags : 0; /* without a token nobody learns which paths there are */
    if (!w->token && gw_ffdl_is_path(pst_http_path(req)) && gw_ffdl_is_foreign_page(req)) {
        gw_ffdl_fail(req, 403, "the gateway asks for no token here (--auth none), so pages of other origins are shown nothing");
        return false;
    }
    if (gw_ffdl_preflight(req))
        return false;
    if (!w->token || (flags & GW_EVERYBODY) || ((flags & GW_LOOPBACK) && pst_http_is_local(req)))
        return true;
    if (hand_out_cookie(w, req))
        return false;
    /* Who sends credentials is weighed by them alone: a wrong token is not made good by a cookie. */
    if (pst_http_header(req, "Authorization") ? pst_http_shows_token(req, w->token) : has_cookie(w, req))
        return true;
    if ((flags & GW_GRANTED) && !pst_http_header(req, "Authorization") && is_granted(w, req))
        return true;
    ask(req);
    return false;
}

/* Two interfaces have a form of their own for what is refused. */
static bool refuse(void *arg, pst_http_req *req, int status, const char *detail)
{
    return gw_ffdl_problem(arg, req, status, detail) || gw_oip_problem(req, status, detail);
}

void gw_who_guard(gw_who *w, pst_http *http)
{
    snprintf(w->cookie_name, sizeof w->cookie_name, "penstock_%d", pst_http_port(http));
    if (w->place)
        pst_http_set_place(http, w->place);
    pst_http_set_filter(http, may_enter, w);
    pst_http_set_problem(http, refuse, NULL);
}
