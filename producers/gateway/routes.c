/* routes.c - what handlers need of their rows. They read parameters by gw_query and gw_header, which require a row that names them: what a
 * request may say is thereby described, and nobody adds a parameter that no reference knows. */
#include "producers/gateway/routes.h"

#include "producers/gateway/caller.h"

#include <string.h>
#include <strings.h>

unsigned gw_route_roles(unsigned flags)
{
    return GW_ROLE_OPERATOR | ((flags & GW_VIEWER) ? GW_ROLE_VIEWER : 0) | ((flags & GW_USER) ? GW_ROLE_USER : 0);
}

const gw_param *gw_param_find(const gw_route *r, const char *in, const char *name)
{
    for (const gw_param *p = r->params; p && p->name; p++)
        if ((!in || !strcmp(p->in, in)) && !(strcmp(p->in, "header") ? strcmp : strcasecmp)(p->name, name))
            return p;
    return NULL;
}

/* Only rows of our tables are added to the gateway's server, and http is a row's first member. */
static const gw_route *row_of(const pst_http_req *req)
{
    return (const gw_route *)(const void *)pst_http_route_of(req);
}

const char *gw_query(const pst_http_req *req, const char *name)
{
    PST_ASSERT(gw_param_find(row_of(req), "query", name));
    return pst_http_query(req, name);
}

const char *gw_header(const pst_http_req *req, const char *name)
{
    PST_ASSERT(gw_param_find(row_of(req), "header", name));
    return pst_http_header(req, name);
}

size_t gw_limit(const pst_http_req *req, size_t def, size_t max)
{
    PST_ASSERT(gw_param_find(row_of(req), "query", "limit") && def <= max);
    int64_t n = pst_http_query_int(req, "limit", 0);
    return n > 0 && (uint64_t)n <= max ? (size_t)n : def;
}
