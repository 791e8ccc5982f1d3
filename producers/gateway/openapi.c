/* openapi.c - the description of the HTTP interface, written from the rows of the route tables rather than by hand: a hand-written one and the
 * server would drift apart unseen. What every route shares is added here: the answers of the guard (wrong token, wrong type of body, too much of
 * it) and the form of problems. Refusals of a request before its path is looked at (foreign Host, head too large) are every operation's `default`. */
#include "producers/gateway/openapi.h"

#include "producers/gateway/caller.h"
#include "producers/gateway/routes.h"
#include "schemas/avro.h"
#include "schemas/type.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const gw_schema shared[] = {{"Problem", GW_JSON({
                                        "type" : "object",
                                        "description" : "RFC 9457. `code` is a stable word.",
                                        "required" : [ "type", "title", "status" ],
                                        "properties" : {
                                            "type" : {"type" : "string"},
                                            "title" : {"type" : "string"},
                                            "status" : {"type" : "integer"},
                                            "code" : {"type" : "string"},
                                            "detail" : {"type" : "string"},
                                            "violations" : {"type" : "array", "items" : {"type" : "object"}}
                                        }
                                    })},
                                   {0}};

static const gw_schema *find(const gw_schema *list, const char *name)
{
    for (; list && list->name; list++)
        if (!strcmp(list->name, name))
            return list;
    return NULL;
}

static const char *text_of(const gw_noun *noun, const char *name)
{
    const gw_schema *s = find(noun->schemas, name);
    if (!s)
        s = find(shared, name);
    return s ? s->text : NULL;
}

static void define(json_t *doc, const gw_noun *noun, const char *name);

/* Puts what a schema refers to among the components. */
static void define_all(json_t *doc, const gw_noun *noun, json_t *schema)
{
    const char *key;
    json_t *v;
    size_t i;
    json_object_foreach(schema, key, v)
    {
        if (!strcmp(key, "$ref"))
            define(doc, noun, strrchr(json_string_value(v), '/') + 1);
        define_all(doc, noun, v);
    }
    json_array_foreach(schema, i, v) define_all(doc, noun, v);
}

/* The noun's own schemas come before shared ones, and those before events. */
static void define(json_t *doc, const gw_noun *noun, const char *name)
{
    json_t *all = json_object_get(json_object_get(doc, "components"), "schemas");
    if (json_object_get(all, name))
        return;
    const char *text = text_of(noun, name);
    const pst_type *event = text ? NULL : pst_type_find(name);
    PST_ASSERT(text || event);
    json_t *schema = text ? json_loads(text, 0, NULL) : gw_event_schema(event->schema);
    PST_ASSERT(schema);
    json_object_set_new(all, name, schema); /* before what it refers to, which may be itself */
    define_all(doc, noun, schema);
}

/* A schema of a row: JSON as it stands, or a name. */
static json_t *schema(json_t *doc, const gw_noun *noun, const char *given)
{
    json_t *j = *given == '{' ? json_loads(given, 0, NULL) : json_pack("{s:o}", "$ref", json_sprintf("#/components/schemas/%s", given));
    PST_ASSERT(j);
    define_all(doc, noun, j);
    return j;
}

static json_t *content(json_t *doc, const gw_noun *noun, const char *type, const char *given)
{
    return json_pack("{s:{s:o}}", type, "schema", schema(doc, noun, given));
}

static json_t *parameters(json_t *doc, const gw_noun *noun, const gw_route *r)
{
    json_t *list = json_array();
    for (const gw_param *p = r->params; p && p->name; p++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:s, s:o}", "name", p->name, "in", p->in, "required", !strcmp(p->in, "path"),
                                              "description", p->doc, "schema", schema(doc, noun, p->schema)));
    return list;
}

static void add_answer(json_t *doc, const gw_noun *noun, json_t *to, const gw_answer *a)
{
    char status[16] = "default";
    if (a->status)
        snprintf(status, sizeof status, "%d", a->status);
    json_t *one = json_pack("{s:s}", "description", a->doc);
    if (a->type)
        json_object_set_new(one, "content", content(doc, noun, a->type, a->schema));
    PST_ASSERT(!json_object_get(to, status));
    json_object_set_new(to, status, one);
}

/* What is refused before a handler, in the form that the path has for it. */
static void add_refusal(json_t *doc, const gw_noun *noun, const gw_route *r, json_t *to, gw_answer a)
{
    static const gw_answer ffdl = {0, NULL, GW_FFDL_ERROR}, oip = {0, NULL, GW_OIP_ERROR},
                           mlflow = {0, NULL, "application/json", "MlflowError"};
    if (r->http.flags & GW_FFDL) {
        a.type = ffdl.type;
        a.schema = ffdl.schema;
    } else if (r->http.flags & GW_OIP) {
        a.type = oip.type;
        a.schema = oip.schema;
    } else if (r->http.flags & GW_MLFLOW) {
        a.type = mlflow.type;
        a.schema = mlflow.schema;
    }
    add_answer(doc, noun, to, &a);
}

static json_t *responses(json_t *doc, const gw_noun *noun, const gw_route *r)
{
    static const gw_answer unknown = {401, "no token, or a wrong one", GW_PROBLEM},
                           not_yours = {401, "no token, a wrong one, or a job of another user", GW_PROBLEM},
                           unfit = {400, "a parameter that there is not, or out of its range: `violations`", GW_PROBLEM},
                           other = {0, "refused", GW_PROBLEM}, large = {413, "the body is too large", GW_PROBLEM},
                           type = {415, "a body of another type, or of none", GW_PROBLEM};
    json_t *all = json_object();
    for (const gw_answer *a = r->answers; a->status; a++)
        add_answer(doc, noun, all, a);
    if (gw_is_own(r) && !json_object_get(all, "400"))
        add_answer(doc, noun, all, &unfit);
    if (!(r->http.flags & GW_EVERYBODY))
        add_refusal(doc, noun, r, all, r->http.flags & GW_FFDL ? not_yours : unknown);
    if (r->bodies) {
        add_refusal(doc, noun, r, all, large);
        add_refusal(doc, noun, r, all, type);
    }
    add_refusal(doc, noun, r, all, other);
    return all;
}

static void who_may(json_t *op, unsigned flags)
{
    json_t *ways = json_array();
    if (flags & (GW_EVERYBODY | GW_LOOPBACK))
        json_array_append_new(ways, json_object());
    if (!(flags & GW_EVERYBODY)) {
        json_array_append_new(ways, json_pack("{s:[]}", "bearer"));
        json_array_append_new(ways, json_pack("{s:[]}", "basic"));
    }
    const char *words = "who shows the token"; /* or, under --users, has one of the roles */
    if (flags & GW_EVERYBODY)
        words = "everybody";
    else if (flags & GW_LOOPBACK)
        words = "everybody on this computer; from elsewhere, who shows the token";
    else if (flags & GW_GRANTED)
        words = "who shows the token, and who did for this job within the last minute, from the same address and under the same name";
    json_object_set_new(op, "security", ways);
    json_object_set_new(op, "x-who-may", json_string(words));
    if (flags & GW_EVERYBODY)
        return;
    char *roles = gw_roles_text(gw_route_roles(flags));
    json_object_set_new(op, "x-roles", json_string(roles));
    free(roles);
}

static json_t *operation(json_t *doc, const gw_noun *noun, const gw_route *r)
{
    json_t *op = json_pack("{s:s, s:[s], s:s}", "operationId", r->name, "tags", noun->name, "description", r->http.doc);
    if (r->params)
        json_object_set_new(op, "parameters", parameters(doc, noun, r));
    if (r->bodies) {
        json_t *kinds = json_object();
        for (const gw_content *b = r->bodies; b->type; b++)
            json_object_set_new(kinds, b->type, json_pack("{s:o}", "schema", schema(doc, noun, b->schema)));
        json_object_set_new(op, "requestBody", json_pack("{s:b, s:o}", "required", 1, "content", kinds));
    }
    json_object_set_new(op, "responses", responses(doc, noun, r));
    who_may(op, r->http.flags);
    return op;
}

static void add_route(json_t *doc, const gw_noun *noun, const gw_route *r)
{
    char method[16] = "";
    char *pattern = pst_strdup(r->http.pattern), *rest = strstr(pattern, "*}");
    if (rest) /* {rest*}: OpenAPI knows no parameter with slashes */
        memmove(rest, rest + 1, strlen(rest));
    json_t *paths = json_object_get(doc, "paths"), *path = json_object_get(paths, pattern);
    for (size_t i = 0; r->http.method[i]; i++) {
        PST_ASSERT(i + 1 < sizeof method);
        method[i] = (char)tolower((unsigned char)r->http.method[i]);
    }
    if (!path)
        json_object_set_new(paths, pattern, path = json_object());
    PST_ASSERT(!json_object_get(path, method)); /* the second of two equal routes would never be found */
    json_object_set_new(path, method, operation(doc, noun, r));
    free(pattern);
}

json_t *pst_gateway_openapi(void)
{
    json_t *doc = json_pack(
        "{s:s, s:{s:s, s:s, s:s}, s:[], s:{}, s:{s:{}, s:{s:{s:s, s:s, s:s}, s:{s:s, s:s, s:s}}}}", "openapi", "3.1.0", "info", "title",
        "penstock gateway", "version", PST_VERSION, "description",
        "What is taken is published as an event, what is shown was read from topics. A request of a foreign page, with a foreign Host, or "
        "with a form as its body is refused.",
        "tags", "paths", "components", "schemas", "securitySchemes", "bearer", "type", "http", "scheme", "bearer", "description",
        "The token of <state-dir>/token; not under `--users`. The page uses a cookie instead, which /?token=TOKEN sets for paths below the "
        "page's own place.",
        "basic", "type", "http", "scheme", "basic", "description",
        "The token as password, any user, who then is the user of what is submitted. Under `--users` a user of the file and his password.");
    PST_ASSERT(doc);
    for (const gw_noun *const *n = gw_nouns; *n; n++) {
        json_array_append_new(json_object_get(doc, "tags"), json_pack("{s:s, s:s}", "name", (*n)->name, "description", (*n)->doc));
        for (size_t i = 0; i < (*n)->n; i++)
            add_route(doc, *n, &(*n)->routes[i]);
    }
    return doc;
}
