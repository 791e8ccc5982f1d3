/* check.c - the description is the check: what a request of the own API says in its path and query is held against the schemas of its row before the handler
 * sees it. A parameter that nobody knows, one that is sent twice and one out of its range are refused, all of them in one answer; a misspelt filter
 * would else show everything, and a limit of -1 the default, and both would look like success. FfDL's and the Open Inference Protocol's paths are
 * left alone: their clients send what they like, and always did. */
#include "producers/gateway/routes.h"

#include "common/base/fs.h"
#include "common/base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 32 };

bool gw_is_own(const gw_route *r)
{
    return !(r->http.flags & (GW_FFDL | GW_OIP)) && !strncmp(r->http.pattern, "/v1/", 4);
}

/* ---- one value ---------------------------------------------------------------------------------------------------------- */

static char *wrong_number(const json_t *schema, const char *value)
{
    const json_t *min = json_object_get(schema, "minimum"), *max = json_object_get(schema, "maximum");
    char *end = NULL;
    errno = 0;
    long long n = strtoll(value, &end, 10);
    bool whole = *value && !*end && strspn(value, "-0123456789") == strlen(value) && !errno;
    bool in = whole && (!min || n >= json_integer_value(min)) && (!max || n <= json_integer_value(max));
    if (in)
        return NULL;
    if (min && max)
        return pst_sprintf("wanted a whole number from %lld to %lld", (long long)json_integer_value(min),
                           (long long)json_integer_value(max));
    if (min)
        return pst_sprintf("wanted a whole number, %lld or more", (long long)json_integer_value(min));
    return pst_strdup("wanted a whole number");
}

static char *wrong_word(const json_t *words, const char *value)
{
    pst_buf text = {0};
    size_t i;
    json_t *w;
    json_array_foreach(words, i, w)
    {
        if (!strcmp(json_string_value(w), value))
            break;
        pst_buf_printf(&text, "%s%s", i ? ", " : "wanted one of ", json_string_value(w));
    }
    char *why = i < json_array_size(words) ? NULL : pst_strdup(text.data);
    pst_buf_done(&text);
    return why;
}

static char *wrong_text(const json_t *schema, const char *value)
{
    int64_t least = pst_json_int(schema, "minLength", 0), most = pst_json_int(schema, "maxLength", INT64_MAX);
    int64_t n = (int64_t)strlen(value);
    if (n < least)
        return pst_strdup("is empty");
    return n > most ? pst_sprintf("is longer than %lld bytes", (long long)most) : NULL;
}

/* Why the value is not as the schema says; NULL: it is. free() */
static char *wrong(const char *schema_text, const char *value)
{
    json_t *schema = json_loads(schema_text, 0, NULL);
    PST_ASSERT(schema); /* of a row */
    const char *type = pst_json_str(schema, "type", "");
    const json_t *words = json_object_get(schema, "enum");
    char *why = NULL;
    if (words)
        why = wrong_word(words, value);
    else if (!strcmp(type, "integer"))
        why = wrong_number(schema, value);
    else if (!strcmp(type, "boolean") && strcmp(value, "true") && strcmp(value, "false"))
        why = pst_strdup("wanted true or false");
    else if (!strcmp(type, "string"))
        why = wrong_text(schema, value);
    json_decref(schema);
    return why;
}

/* ---- a request ---------------------------------------------------------------------------------------------------------- */

static void complain(json_t *list, const char *field, const char *in, const char *why)
{
    json_t *name = json_string(field);
    json_array_append_new(list, json_pack("{s:o, s:s, s:s}", "field", name ? name : json_string("?"), "in", in, "detail", why));
}

static void unknown(json_t *list, const gw_route *r, const char *name)
{
    const char *names[NAMES_MAX];
    size_t n = 0;
    for (const gw_param *p = r->params; p && p->name && n < NAMES_MAX; p++)
        if (!strcmp(p->in, "query"))
            names[n++] = p->name;
    const char *near = pst_nearest(name, names, n);
    char *why = pst_sprintf("there is no such parameter here%s%s%s", near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    complain(list, name, "query", why);
    free(why);
}

static bool came_before(const pst_http_req *req, size_t at, const char *name)
{
    for (size_t i = 0; i < at; i++) {
        const char *other = NULL;
        pst_http_query_at(req, i, &other);
        if (!strcmp(other, name))
            return true;
    }
    return false;
}

static void check_query(const gw_route *r, const pst_http_req *req, json_t *list)
{
    for (size_t i = 0; i < pst_http_query_count(req); i++) {
        const char *name = NULL, *value = pst_http_query_at(req, i, &name);
        const gw_param *p = gw_param_find(r, "query", name);
        char *why = p && *p->schema == '{' ? wrong(p->schema, value) : NULL;
        if (!p)
            unknown(list, r, name);
        else if (came_before(req, i, name))
            complain(list, name, "query", "is there twice");
        else if (why)
            complain(list, name, "query", why);
        free(why);
    }
}

static void check_path(const gw_route *r, const pst_http_req *req, json_t *list)
{
    for (const gw_param *p = r->params; p && p->name; p++) {
        const char *value = strcmp(p->in, "path") ? NULL : pst_http_param(req, p->name);
        char *why = value && *p->schema == '{' ? wrong(p->schema, value) : NULL;
        if (why)
            complain(list, p->name, "path", why);
        free(why);
    }
}

void gw_refuse(pst_http_req *req, const char *code, const char *detail, json_t *violations)
{
    json_t *problem = json_pack("{s:s, s:s, s:i, s:s, s:s, s:o}", "type", "about:blank", "title", "Bad Request", "status", 400, "code",
                                code, "detail", detail, "violations", violations);
    char *text = pst_json_text(problem);
    pst_http_reply(req, 400, "application/problem+json", text, strlen(text));
    free(text);
    json_decref(problem);
}

bool gw_check(void *arg, pst_http_req *req)
{
    const gw_route *r = (const gw_route *)(const void *)pst_http_route_of(req); /* http is a row's first member */
    if (!gw_is_own(r))
        return true;
    json_t *list = json_array();
    check_path(r, req, list);
    check_query(r, req, list);
    if (json_array_size(list)) {
        gw_refuse(req, "invalid-parameter", "the request's parameters are not as this path takes them; every violation is listed", list);
        return false;
    }
    json_decref(list);
    return true;
}
