/* who.c - token, basic auth and cookie, weighed before every handler. Cookies do not know ports: every server of this computer that the browser visits is shown those of this host, and a program
 * that kept one could send it back without a browser. But they know paths. So the page lives at a place that nobody can guess, made of the token
 * (/page-…/), the cookie is for paths below it alone, and no other server is ever asked for such a path. What `/` shows without a token knows the
 * place from the browser's storage, which does know ports. No page elsewhere gets anything done by either (http_guard.h: Origin, Sec-Fetch-Site).
 * The cookie is not the token but a digest of it. Under --users each user has a place and a cookie of his own (session.h), so that one user's server on
 * another port of a shared computer is not shown another one's.
 *
 * A password is looked at by another thread (verifier.h): the filter keeps the request meanwhile. A name that does not exist takes as long as one that does. */
#include "producers/gateway/who.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "producers/gateway/caller.h"
#include "producers/gateway/ffdl.h"
#include "producers/gateway/logged_out.h"
#include "producers/gateway/login.h"
#include "producers/gateway/mlflow.h"
#include "producers/gateway/oip.h"
#include "producers/gateway/rate.h"
#include "producers/gateway/routes.h"
#include "producers/gateway/session.h"
#include "producers/gateway/verifier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { COOKIE_AGE_S = 30 * 86400, SESSION_S = 12 * 3600, LOOK_US = 1000000, GRANTS_MAX = 256, GRANT_US = 60 * 1000000 };

/* Digests, so that each is of one size whatever a client calls itself. The oldest is the next to be overwritten. */
typedef struct grant {
    char digest[65];
    int64_t until_us;
} grant;

struct gw_who {
    char *token, *cookie, *place; /* NULL: everybody may */
    char cookie_name[40];
    const char *kept; /* how a browser is to keep it; with TLS never to be sent without */
    grant grants[GRANTS_MAX];
    size_t n_grants;   /* ever given */
    gw_users *users;   /* NULL: tokens alone, or as below */
    gw_bearer *bearer; /* NULL: the one token, or nobody is asked */
    gw_verifier *verifier;
    gw_session_key session_key;
    pst_timer *look; /* at the users' file */
    gw_logged_out *logged_out;
    unsigned keys; /* counts the provider's sets of keys */
    gw_rate *rate; /* NULL: no limit */
    pst_http *http;
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
    gw_logged_out_open(NULL, &w->logged_out, NULL); /* cannot fail: nothing is read */
    if (token) {
        w->token = pst_strdup(token);
        w->cookie = derive("cookie of the page", token);
        char *place = derive("place of the page", token);
        w->place = pst_sprintf("page-%.32s", place);
        free(place);
    }
    return w;
}

int gw_who_remember(gw_who *w, const char *path, pst_err *err)
{
    gw_logged_out *kept = NULL;
    int rc = gw_logged_out_open(path, &kept, err);
    if (rc < 0)
        return rc;
    gw_logged_out_free(w->logged_out);
    w->logged_out = kept;
    return 0;
}

void gw_who_stop(gw_who *w)
{
    if (w)
        gw_verifier_stop(w->verifier);
}

void gw_who_free(gw_who *w)
{
    if (!w)
        return;
    gw_verifier_free(w->verifier); /* before the users, of whom its answers are */
    gw_users_free(w->users);
    gw_bearer_free(w->bearer);
    gw_rate_free(w->rate);
    gw_logged_out_free(w->logged_out);
    pst_timer_free(w->look);
    explicit_bzero(&w->session_key, sizeof w->session_key);
    free(w->token);
    free(w->cookie);
    free(w->place);
    free(w);
}

/* ---- what a stream rests on: looked at every second, because nobody asks it again ---- */

/* What a user's line says, as a digest: who is not in the file has one as well. */
static void bound_of(const gw_who *w, const char *name, char ret_hex[65])
{
    const gw_user *u = gw_users_find(w->users, name);
    char *text = u ? pst_sprintf("%u %s", u->roles, u->secret) : pst_strdup("nobody");
    pst_sha256_hex(text, strlen(text), ret_hex);
    explicit_bzero(text, strlen(text));
    free(text);
}

static bool stays(void *arg, const void *data)
{
    const gw_who *w = arg;
    const gw_caller *c = data;
    char bound[65];
    if (!c || !*c->name)
        return true; /* the one token */
    if (c->until_s && pst_now_us() / 1000000 >= c->until_s)
        return false;
    if (!strcmp(c->via, "session") && gw_logged_out_is(w->logged_out, c->name, c->until_s))
        return false;
    bound_of(w, c->name, bound);
    return !strcmp(bound, c->bound) && (strcmp(c->via, "token") || c->keys == w->keys);
}

static void look(void *arg)
{
    gw_who *w = arg;
    pst_err err = {0};
    int users = w->users ? gw_users_again(w->users, &err) : 0;
    if (users < 0)
        pst_log(PST_LOG_WARN, "gateway", "event=users_kept reason=\"%s; the users of before stay\"", err.text);
    pst_err_clear(&err);
    int keys = gw_bearer_again(w->bearer, &err);
    if (keys < 0)
        pst_log(PST_LOG_WARN, "gateway", "event=keys_kept reason=\"%s; the keys of before stay\"", err.text);
    w->keys += keys > 0;
    if (users > 0 || keys > 0)
        pst_log(PST_LOG_INFO, "gateway", "event=users_read");
    if (w->http)
        pst_http_end_streams(w->http, stays, w, "who this was shown to is no longer let in as before; log in again");
}

void gw_who_limit(gw_who *w, int per_second, int burst)
{
    gw_rate_free(w->rate);
    w->rate = per_second > 0 ? gw_rate_new(per_second, burst) : NULL;
}

int gw_who_use_users(gw_who *w, pst_loop *loop, gw_users *take_users, gw_bearer *take_bearer, pst_err *err)
{
    PST_ASSERT(w->token && !w->bearer && take_bearer);
    w->bearer = take_bearer;
    gw_session_key_make(w->token, &w->session_key);
    w->users = take_users;
    w->look = pst_timer_new(loop, LOOK_US, LOOK_US, look, w);
    return gw_verifier_new(loop, &w->verifier, err);
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
    char *cookie = pst_sprintf("%s=%s; Path=%s; Max-Age=%d; %s", w->cookie_name, w->cookie, place, COOKIE_AGE_S, w->kept);
    pst_http_add_header(req, "Set-Cookie", cookie);
    pst_http_add_header(req, "Location", place);
    pst_http_add_header(req, "Referrer-Policy", "no-referrer");
    pst_http_reply(req, 303, NULL, NULL, 0);
    free(cookie);
    free(place);
    return true;
}

/* A script of a page asks: challenged for a password the browser would put up a window of its own over the page, and keep the answer until somebody fills it in. */
static bool is_of_page(const pst_http_req *req)
{
    return pst_http_place(req) || pst_http_header(req, "Sec-Fetch-Site");
}

static void ask(pst_http_req *req)
{
    static const char page[] =
        "<!doctype html><meta charset=utf-8><title>penstock</title><p>This page asks for a token. Open the address that "
        "<code>penstock status</code> prints: it ends with <code>/?token=…</code> and is needed once for this browser."
        "<script>const place = localStorage.getItem(\"penstock\");"
        "if (location.pathname === place) localStorage.removeItem(\"penstock\");" /* its token is no longer ours */
        "else if (/^\\/page-[0-9a-f]+\\/$/.test(place)) location.replace(place + location.hash);</script>\n";
    const char *accept = pst_http_header(req, "Accept");
    /* A browser that is challenged for a page would ask for user and password before it shows this text. */
    bool browser = accept && strstr(accept, "text/html");
    pst_http_add_header(req, "WWW-Authenticate",
                        browser || is_of_page(req) ? "Bearer realm=\"penstock\"" : "Bearer realm=\"penstock\", Basic realm=\"penstock\"");
    pst_http_add_header(req, "Referrer-Policy", "no-referrer");
    pst_http_add_header(req, "Cache-Control", "no-store");
    if (browser)
        pst_http_reply(req, 401, "text/html; charset=utf-8", page, sizeof page - 1);
    else
        pst_http_problem(req, 401, "token-wanted", NULL,
                         "send the token of <state-dir>/token as Authorization: Bearer TOKEN, or as basic auth's password");
}

/* ---- users ----------------------------------------------------------------------------------------------------------------- */

static void ask_user(gw_who *w, pst_http_req *req, const char *why)
{
    const char *accept = pst_http_header(req, "Accept");
    if (accept && strstr(accept, "text/html")) {
        gw_login_form(req, 401, NULL);
        return;
    }
    pst_http_add_header(req, "WWW-Authenticate",
                        w->users && !is_of_page(req) ? "Basic realm=\"penstock\", charset=\"UTF-8\", Bearer realm=\"penstock\""
                                                     : "Bearer realm=\"penstock\"");
    pst_http_add_header(req, "Cache-Control", "no-store");
    pst_http_problem(req, 401, "credentials-wanted", NULL, why);
}

/* Which roles a row lets in; an operator may everything. Without a row (404, 405, OPTIONS) whoever is known learns so. */
static bool role_fits(pst_http_req *req, const gw_caller *c)
{
    const pst_http_route *route = pst_http_route_of(req);
    unsigned wanted = route ? gw_route_roles(route->flags) : GW_ROLES_ALL;
    if (c->roles & wanted)
        return true;
    char *have = gw_roles_text(c->roles), *want = gw_roles_text(wanted);
    char *text = pst_sprintf("%s is %s here, and this wants one of: %s", c->name, have, want);
    pst_http_problem(req, 403, "role-wanted", NULL, text);
    free(text);
    free(want);
    free(have);
    return false;
}

static bool rate_fits(gw_who *w, pst_http_req *req, const gw_caller *c)
{
    char text[24];
    int wait_s = gw_rate_take(w->rate, c->name, pst_mono_us());
    if (!wait_s)
        return true;
    snprintf(text, sizeof text, "%d", wait_s);
    pst_http_add_header(req, "Retry-After", text);
    pst_http_problem(req, 429, "too-many-requests", NULL,
                     "this user sends more requests a second than one may here (penstock gateway --user-rate); go on after Retry-After");
    return false;
}

static bool enter(gw_who *w, pst_http_req *req, gw_caller *c)
{
    bound_of(w, c->name, c->bound);
    c->keys = w->keys;
    gw_caller_set(req, c);
    return rate_fits(w, req, c) && role_fits(req, c);
}

static gw_caller caller_of(const gw_user *u, const char *via, int64_t until_s)
{
    gw_caller c = {.roles = u->roles, .via = via, .until_s = until_s};
    snprintf(c.name, sizeof c.name, "%s", u->name);
    return c;
}

static bool enter_as(gw_who *w, pst_http_req *req, const gw_user *u, const char *via, int64_t until_s)
{
    gw_caller c = caller_of(u, via, until_s);
    c.granted = !strcmp(via, "granted");
    return enter(w, req, &c);
}

/* A request, or a login, whose password is being looked at. */
typedef struct waiting {
    gw_who *w;
    pst_http_req *req;
    bool login;
    char name[GW_NAME_MAX + 1];
} waiting;

static const char not_right[] = "no user has this name and password; send both as basic authentication";

static char *place_of(const gw_who *w, const char *name)
{
    char *digits = gw_session_place(&w->session_key, name), *place = pst_sprintf("page-%s", digits);
    free(digits);
    return place;
}

static void set_session(gw_who *w, pst_http_req *req, const gw_user *u)
{
    int64_t until_s = gw_logged_out_until(w->logged_out, u->name, pst_now_us() / 1000000, SESSION_S);
    gw_caller c = caller_of(u, "password", until_s);
    gw_caller_set(req, &c);
    char *place = place_of(w, u->name), *value = gw_session_make(&w->session_key, u->name, u->secret, until_s),
         *path = pst_sprintf("/%s/", place);
    char *cookie = pst_sprintf("%s=%s; Path=%s; Max-Age=%d; %s", w->cookie_name, value, path, SESSION_S, w->kept);
    pst_http_add_header(req, "Set-Cookie", cookie);
    pst_http_add_header(req, "Location", path);
    pst_http_add_header(req, "Referrer-Policy", "no-referrer");
    pst_http_add_header(req, "Cache-Control", "no-store");
    pst_http_reply(req, 303, NULL, NULL, 0);
    explicit_bzero(cookie, strlen(cookie));
    free(cookie);
    free(path);
    free(value);
    free(place);
}

static void settle(gw_who *w, pst_http_req *req, const gw_user *u, bool login)
{
    if (login && u)
        set_session(w, req, u);
    else if (login)
        gw_login_form(req, 401, "No user has this name and password.");
    else if (!u)
        ask_user(w, req, not_right);
    else if (enter_as(w, req, u, "password", 0))
        pst_http_resume(req);
}

/* The file may have changed meanwhile: who is not in it any more was right in vain. */
static void verified(void *arg, bool right)
{
    waiting *x = arg;
    if (!right && *x->name) { /* the audit names who was meant; he is let in nowhere by that */
        gw_caller c = {.via = "password"};
        snprintf(c.name, sizeof c.name, "%s", x->name);
        gw_caller_set(x->req, &c);
    }
    if (!right)
        pst_log_limited(PST_LOG_WARN, "gateway", "wrong_password", "event=wrong_password address=%s", pst_http_peer(x->req));
    settle(x->w, x->req, right ? gw_users_find(x->w->users, x->name) : NULL, x->login);
    free(x);
}

/* The user whose password is known to be right; NULL: req is kept, or was answered. */
static const gw_user *weigh(gw_who *w, pst_http_req *req, const char *name, const char *password, bool login)
{
    const gw_user *u = gw_users_find(w->users, name);
    bool has_hash = u && *u->secret == '$';
    const char *hash = has_hash ? u->secret : gw_users_decoy(w->users);
    if (has_hash && gw_verifier_knows(w->verifier, hash, password))
        return u;
    waiting *x = pst_alloc(sizeof *x);
    *x = (waiting){.w = w, .req = req, .login = login};
    if (has_hash)
        snprintf(x->name, sizeof x->name, "%s", name); /* else "", which is nobody's name: also where the decoy's password is given */
    if (hash && gw_verifier_ask(w->verifier, pst_http_peer(req), hash, password, verified, x))
        return NULL;
    free(x);
    if (!hash)
        settle(w, req, NULL, login);
    else {
        pst_http_add_header(req, "Retry-After", "2");
        pst_http_problem(req, 503, "busy", NULL, "too many passwords are being looked at; ask again in a moment");
    }
    return NULL;
}

static bool enter_by_basic(gw_who *w, pst_http_req *req)
{
    char *name = NULL, *password = NULL;
    const gw_user *u = NULL;
    if (pst_http_basic(req, &name, &password) < 0)
        ask_user(w, req,
                 "send name and password of a user as basic authentication, or a signed token as Bearer; the token of the state folder "
                 "opens nothing here");
    else
        u = weigh(w, req, name, password, false);
    if (password)
        explicit_bzero(password, strlen(password));
    free(password);
    free(name);
    return u && enter_as(w, req, u, "password", 0);
}

static bool enter_by_token(gw_who *w, pst_http_req *req, const char *token)
{
    gw_caller c;
    pst_err err = {0};
    if (gw_bearer_weigh(w->bearer, w->users, token, pst_now_us() / 1000000, &c, &err) < 0) {
        pst_log_limited(PST_LOG_WARN, "gateway", "wrong_token", "event=wrong_token address=%s reason=\"%s\"", pst_http_peer(req), err.text);
        ask_user(w, req, err.text);
        return false;
    }
    return enter(w, req, &c);
}

/* The user of the cookie; NULL: there is none, or it is not good. A cookie is good at its user's place alone, where browsers keep it. */
static const gw_user *user_of_cookie(const gw_who *w, const pst_http_req *req, int64_t *ret_until_s)
{
    char *value = pst_http_cookie(req, w->cookie_name), *name = gw_session_name(value);
    const gw_user *u = name ? gw_users_find(w->users, name) : NULL;
    if (u && !gw_session_is(&w->session_key, value, u->secret, pst_now_us() / 1000000))
        u = NULL;
    *ret_until_s = u ? gw_session_until(value) : 0;
    if (u && gw_logged_out_is(w->logged_out, u->name, *ret_until_s))
        u = NULL;
    char *place = u ? place_of(w, u->name) : NULL;
    if (place && !pst_secret_equal(pst_http_place(req), place))
        u = NULL;
    free(place);
    free(name);
    free(value);
    return u;
}

static const gw_user *user_of_grant(const gw_who *w, const pst_http_req *req)
{
    char *name = is_granted(w, req) ? gw_ffdl_userinfo(req) : NULL;
    const gw_user *u = name ? gw_users_find(w->users, name) : NULL;
    free(name);
    return u;
}

static bool user_may_enter(gw_who *w, pst_http_req *req, unsigned flags)
{
    const char *shown = pst_http_header(req, "Authorization");
    if (shown && !strncasecmp(shown, "Bearer ", 7))
        return enter_by_token(w, req, shown + 7 + strspn(shown + 7, " "));
    if (shown)
        return enter_by_basic(w, req);
    int64_t until_s;
    const gw_user *u = user_of_cookie(w, req, &until_s);
    if (u)
        return enter_as(w, req, u, "session", until_s);
    u = (flags & GW_GRANTED) ? user_of_grant(w, req) : NULL;
    if (u)
        return enter_as(w, req, u, "granted", 0);
    ask_user(w, req, "send name and password of a user as basic authentication, or a signed token as Authorization: Bearer JWT");
    return false;
}

void gw_who_login(gw_who *w, pst_http_req *req, const char *name, const char *password)
{
    if (!w->bearer) {
        pst_http_problem(req, 404, "no-users", NULL,
                         "there are no users here (penstock gateway --users FILE); the page is opened by /?token=TOKEN");
        return;
    }
    const gw_user *u = weigh(w, req, name ? name : "", password ? password : "", true);
    if (u)
        settle(w, req, u, true);
}

void gw_who_logout(gw_who *w, pst_http_req *req)
{
    const char *name = gw_caller_name(req);
    pst_err err = {0};
    if (name) {
        gw_logged_out_note(w->logged_out, name, pst_now_us() / 1000000, SESSION_S, &err);
        pst_http_end_streams(w->http, stays, w, "logged out");
    }
    const char *place = pst_http_place(req);
    char *cookie = pst_sprintf("%s=; Path=/%s%sMax-Age=0; %s", w->cookie_name, place ? place : "", place ? "/; " : "; ", w->kept);
    pst_http_add_header(req, "Set-Cookie", cookie);
    pst_http_add_header(req, "Clear-Site-Data", "\"storage\"");
    if (err.code)
        pst_http_problem(req, 500, "not-kept", NULL,
                         "you are logged out, but it could not be written down: a start of the gateway forgets it");
    else
        pst_http_reply(req, 204, NULL, NULL, 0);
    if (err.code)
        pst_log_err("gateway", &err);
    free(cookie);
}

/* ---- the filter ------------------------------------------------------------------------------------------------------------ */

static bool token_may_enter(gw_who *w, pst_http_req *req, unsigned flags)
{
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

static bool may_enter(void *arg, pst_http_req *req)
{
    static const gw_caller everybody = {.roles = GW_ROLES_ALL};
    gw_who *w = arg;
    const pst_http_route *route = pst_http_route_of(req);
    unsigned flags = route ? route->flags : 0; /* without a token nobody learns which paths there are */
    if (!w->token && gw_ffdl_is_path(pst_http_path(req)) && gw_ffdl_is_foreign_page(req)) {
        gw_ffdl_fail(req, 403, "the gateway asks for no token here (--auth none), so pages of other origins are shown nothing");
        return false;
    }
    if (gw_ffdl_preflight(req))
        return false;
    if ((flags & GW_EVERYBODY) || ((flags & GW_LOOPBACK) && pst_http_is_local(req)))
        return true;
    if (w->bearer)
        return user_may_enter(w, req, flags);
    if (w->token && !token_may_enter(w, req, flags))
        return false;
    gw_caller_set(req, &everybody);
    return true;
}

/* Three interfaces have a form of their own for what is refused. */
static bool refuse(void *arg, pst_http_req *req, int status, const char *detail)
{
    return gw_ffdl_problem(arg, req, status, detail) || gw_oip_problem(req, status, detail) || gw_mlflow_problem(req, status, detail);
}

void gw_who_guard(gw_who *w, pst_http *http)
{
    snprintf(w->cookie_name, sizeof w->cookie_name, "penstock_%d", pst_http_port(http));
    w->http = http;
    w->kept = pst_http_is_tls(http) ? "HttpOnly; Secure; SameSite=Strict" : "HttpOnly; SameSite=Strict";
    if (w->place)
        pst_http_set_place(http, w->bearer ? "page-*" : w->place);
    pst_http_set_filter(http, may_enter, w);
    pst_http_set_problem(http, refuse, NULL);
}
