/* login.c - the login of the page under --users, which a foreign page cannot send, its Origin being refused before this (http_guard.h); and /v1/me: who
 * am I, for the page and for whoever wonders. */
#include "producers/gateway/gateway.h"
#include "producers/gateway/login.h"

#include "producers/gateway/caller.h"
#include "producers/gateway/routes.h"

#include <stdlib.h>
#include <string.h>

/* ---- routes ---- */

static void login(void *arg, pst_http_req *req)
{
    const gw_state *g = arg;
    char *name = gw_form_field(pst_http_body(req), "name"), *password = gw_form_field(pst_http_body(req), "password");
    gw_who_login(g->who, req, name, password);
    if (password)
        explicit_bzero(password, strlen(password));
    free(password);
    free(name);
}

static void logout(void *arg, pst_http_req *req)
{
    const gw_state *g = arg;
    gw_who_logout(g->who, req);
}

static void me(void *arg, pst_http_req *req)
{
    static const char *const words[] = {"viewer", "user", "operator"};
    const gw_caller *c = gw_caller_of(req);
    json_t *roles = json_array();
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (c->roles & gw_role_parse(words[i], strlen(words[i])))
            json_array_append_new(roles, json_string(words[i]));
    pst_http_add_header(req, "Cache-Control", "no-store");
    pst_http_reply_json(req, 200, json_pack("{s:s?, s:o}", "user", gw_caller_name(req), "roles", roles));
}

static const gw_schema schemas[] = {
    {"Me", GW_JSON({
         "type" : "object",
         "required" : [ "user", "roles" ],
         "properties" : {
             "user" : {"type" : [ "string", "null" ], "description" : "null where nobody is told apart: the one token"},
             "roles" : {"type" : "array", "items" : {"enum" : [ "viewer", "user", "operator" ]}}
         }
     })},
    {0}};
static const gw_content form[] = {{"application/x-www-form-urlencoded", GW_JSON({
                                       "type" : "object",
                                       "required" : [ "name", "password" ],
                                       "properties" : {"name" : {"type" : "string"}, "password" : {"type" : "string"}}
                                   })},
                                  {0}};
static const gw_answer to_login[] = {{303, "on to the page's place of this user, with a cookie for it", NULL, NULL},
                                     {401, "no user has this name and password: the form again", "text/html", GW_JSON({"type" : "string"})},
                                     {404, "there are no users here: the one token opens the page", GW_PROBLEM},
                                     {503, "too many passwords are being looked at", GW_PROBLEM},
                                     {0}},
                       to_logout[] = {{204, "the cookie is taken back", NULL, NULL},
                                      {500, "it is, but a start of the gateway forgets that: it could not be written down", GW_PROBLEM},
                                      {0}},
                       to_me[] = {{200, "the caller", "application/json", "Me"}, {0}};

static const gw_route routes[] = {
    {{"POST", "/login", login, 4096, GW_EVERYBODY | PST_HTTP_FORM, "The page's login under `--users`. Of the page's own form alone."},
     "login",
     NULL,
     form,
     to_login},
    {{"POST", "/logout", logout, 0, GW_ALL, "Takes the page's cookie back."}, "logout", NULL, NULL, to_logout},
    {{"GET", "/v1/me", me, 0, GW_ALL, "Who asks, and what he may."}, "whoAmI", NULL, NULL, to_me},
};

const gw_noun gw_login_noun = {"login", "Who enters the page, and as whom.", routes, sizeof routes / sizeof *routes, schemas};
