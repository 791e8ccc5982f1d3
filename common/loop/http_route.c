/* http_route.c - finding the handler of a path, and the view that handlers have of a request. */
#include "common/loop/http_priv.h"

#include "common/base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static char *rest_of(const http_parts *path, size_t from)
{
    pst_buf b = {0};
    for (size_t i = from; i < path->n_segments; i++) {
        if (i > from)
            pst_buf_addc(&b, '/');
        pst_buf_adds(&b, path->segments[i]);
    }
    return pst_buf_steal(&b);
}

/* Matches one pattern; on success the params are in r. Their names point at the brace in the pattern, which outlives the server. */
static bool match(const char *pattern, pst_http_req *r, bool *ret_slash)
{
    const http_parts *path = &r->path;
    size_t i = 0;
    r->n_params = 0;
    *ret_slash = false;
    for (const char *p = pattern; *p == '/' && p[1];) {
        p++;
        size_t len = strcspn(p, "/");
        if (p[0] == '{' && len > 2 && p[len - 2] == '*') {
            free(r->rest);
            r->rest = rest_of(path, i);
            r->params[r->n_params++] = (http_field){(char *)(uintptr_t)p, r->rest};
            return true;
        }
        if (i >= path->n_segments)
            return false;
        if (p[0] == '{') {
            PST_ASSERT(r->n_params < 7);
            if (!path->segments[i][0])
                return false;
            *ret_slash |= path->encoded_slash[i];
            r->params[r->n_params++] = (http_field){(char *)(uintptr_t)p, path->segments[i]};
        } else if (strlen(path->segments[i]) != len || memcmp(path->segments[i], p, len)) {
            return false;
        }
        i++;
        p += len;
    }
    return i == path->n_segments;
}

static void allow_add(char allow[128], const char *method)
{
    size_t n = strlen(allow);
    if (!strstr(allow, method) && n + strlen(method) + 3 < 128)
        snprintf(allow + n, 128 - n, "%s%s", n ? ", " : "", method);
}

int http_route_find(pst_http *s, pst_http_req *r, char allow[128], const char **ret_why)
{
    const char *method = r->head_only ? "GET" : r->head.method;
    int answer = 404;
    *allow = 0;
    for (size_t i = 0; i < s->n_routes; i++) {
        const pst_http_route *route = s->routes[i].route;
        bool slash, any = !strcmp(route->method, "*");
        if (!match(route->pattern, r, &slash))
            continue;
        if (slash && !(route->flags & PST_HTTP_SLASH)) {
            *ret_why = "the path holds an encoded slash";
            answer = 400;
            continue;
        }
        /* A route for HEAD itself is not foreseen: HEAD is GET without the body. */
        if (any || !strcmp(route->method, method)) {
            r->route = route;
            r->route_arg = s->routes[i].arg;
            return ROUTE_FOUND;
        }
        allow_add(allow, route->method);
        if (!strcmp(route->method, "GET"))
            allow_add(allow, "HEAD");
        answer = 405;
    }
    if (answer == 405)
        allow_add(allow, "OPTIONS");
    r->n_params = 0;
    return answer;
}

pst_http_req *http_req_new(conn *c)
{
    pst_http_req *r = pst_alloc(sizeof *r);
    r->conn = c;
    r->server = c->server;
    r->head.minor = 1;
    memcpy(r->remote, c->remote, sizeof r->remote);
    r->next = c->server->reqs;
    if (r->next)
        r->next->prev = r;
    c->server->reqs = r;
    c->req = r;
    return r;
}

void http_req_free(pst_http_req *r)
{
    if (!r)
        return;
    PST_ASSERT(!r->conn || r->conn->req != r);
    if (r->server) {
        PST_ASSERT(r->server->bodies_bytes >= r->counted);
        r->server->bodies_bytes -= r->counted;
        if (r->prev)
            r->prev->next = r->next;
        else
            r->server->reqs = r->next;
        if (r->next)
            r->next->prev = r->prev;
    }
    free(r->raw);
    free(r->target);
    free(r->room);
    free(r->path_text);
    free(r->rest);
    pst_buf_done(&r->body);
    for (size_t i = 0; i < r->n_headers; i++) {
        free(r->headers[i].name);
        free(r->headers[i].value);
    }
    free(r->headers);
    if (r->data && r->free_data)
        r->free_data(r->data);
    free(r);
}

/* ---- the view -------------------------------------------------------------------------------------------------------------- */

const char *pst_http_method(const pst_http_req *r)
{
    return r->head.method;
}

const char *pst_http_path(const pst_http_req *r)
{
    return r->path_text;
}

const char *pst_http_target(const pst_http_req *r)
{
    return r->target;
}

const char *pst_http_pattern(const pst_http_req *r)
{
    return r->route ? r->route->pattern : "";
}

const pst_http_route *pst_http_route_of(const pst_http_req *r)
{
    return r->route;
}

const char *pst_http_param(const pst_http_req *r, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < r->n_params; i++) {
        const char *p = r->params[i].name + 1; /* in the pattern, behind the brace */
        if (!strncmp(p, name, n) && (p[n] == '}' || p[n] == '*'))
            return r->params[i].value;
    }
    return NULL;
}

const char *pst_http_query(const pst_http_req *r, const char *name)
{
    for (size_t i = 0; i < r->path.n_queries; i++)
        if (!strcmp(r->path.queries[i].name, name))
            return r->path.queries[i].value;
    return NULL;
}

bool pst_http_query_bool(const pst_http_req *r, const char *name)
{
    const char *v = pst_http_query(r, name);
    return v && (!*v || !strcasecmp(v, "true") || !strcmp(v, "1") || !strcasecmp(v, "yes"));
}

int64_t pst_http_query_int(const pst_http_req *r, const char *name, int64_t def)
{
    const char *v = pst_http_query(r, name);
    if (!v || !*v || strlen(v) > 19 || strspn(v, "-0123456789") != strlen(v))
        return def;
    char *end;
    long long n = strtoll(v, &end, 10);
    return *end ? def : (int64_t)n;
}

size_t pst_http_query_count(const pst_http_req *r)
{
    return r->path.n_queries;
}

const char *pst_http_query_at(const pst_http_req *r, size_t i, const char **ret_name)
{
    if (i >= r->path.n_queries)
        return NULL;
    if (ret_name)
        *ret_name = r->path.queries[i].name;
    return r->path.queries[i].value;
}

const char *pst_http_header(const pst_http_req *r, const char *name)
{
    return http_head_field(&r->head, name);
}

void pst_http_take_body(pst_http_req *r, pst_buf *ret_body)
{
    *ret_body = r->body;
    r->body = (pst_buf){0};
    if (r->server) {
        PST_ASSERT(r->server->bodies_bytes >= r->counted);
        r->server->bodies_bytes -= r->counted;
    }
    r->counted = 0;
}

pst_slice pst_http_body(const pst_http_req *r)
{
    return (pst_slice){r->body.data ? r->body.data : "", r->body.len};
}

const char *pst_http_remote(const pst_http_req *r)
{
    return r->remote;
}

const char *pst_http_peer(const pst_http_req *r)
{
    return r->conn ? r->conn->peer : "";
}

bool pst_http_is_local(const pst_http_req *r)
{
    return r->conn && r->conn->peer_loopback;
}

char *pst_http_cookie(const pst_http_req *r, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < r->head.n_fields; i++) {
        if (strcasecmp(r->head.fields[i].name, "Cookie"))
            continue;
        for (const char *p = r->head.fields[i].value; *p;) {
            p += strspn(p, "; \t");
            size_t len = strcspn(p, ";");
            if (len > n && !strncmp(p, name, n) && p[n] == '=')
                return pst_strndup(p + n + 1, len - n - 1);
            p += len;
        }
    }
    return NULL;
}

const char *pst_http_place(const pst_http_req *r)
{
    return r->place;
}

bool pst_http_gone(const pst_http_req *r)
{
    return !r->conn;
}

void pst_http_set_data(pst_http_req *r, void *data, void (*free_data)(void *data))
{
    if (r->data && r->free_data)
        r->free_data(r->data);
    r->data = data;
    r->free_data = free_data;
}

void *pst_http_data(const pst_http_req *r)
{
    return r->data;
}

int pst_http_basic(const pst_http_req *r, char **ret_user, char **ret_password)
{
    const char *v = pst_http_header(r, "Authorization");
    if (!v || strncasecmp(v, "Basic ", 6))
        return PST_ENOTFOUND;
    v += 6 + strspn(v + 6, " ");
    size_t len = 0;
    char *text = pst_base64_decode(v, &len);
    char *colon = text ? memchr(text, ':', len) : NULL;
    if (!colon || memchr(text, 0, len)) {
        free(text);
        return PST_EPARSE;
    }
    *ret_user = pst_strndup(text, (size_t)(colon - text));
    *ret_password = pst_strndup(colon + 1, len - (size_t)(colon + 1 - text));
    free(text);
    return PST_OK;
}

const char *pst_http_last_event_id(const pst_http_req *r)
{
    const char *v = pst_http_header(r, "Last-Event-ID");
    return v && *v ? v : pst_http_query(r, "last_event_id");
}
