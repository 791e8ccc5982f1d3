/* routes.h - a route and all that is known of it, in one row: path, handler, who may, parameters, bodies, answers. From these rows the server gets
 * its routes, /openapi.json its description and docs/reference/http.md its table, so none of them can differ from the others.
 *
 * A noun (jobs, its records, the page, …) has a table of rows beside its handlers. A further route is a row and its handler; a further noun is
 * also an entry in the list of nouns in nouns.c and its file in CMakeLists.txt. @thread loop */
#ifndef PST_PRODUCERS_GATEWAY_ROUTES_H
#define PST_PRODUCERS_GATEWAY_ROUTES_H

#include "common/loop/http.h"

/* Who may (pst_http_route.flags); neither of the first three: who shows the token (who.h), or under --users who has one of the roles. Which those are
 * stands in every row: GW_VIEWER, GW_USER, GW_ALL for both; an operator may use every route, and one without a role none but he. That a user is shown
 * its own jobs alone is the handler's part (caller.h). */
enum {
    GW_EVERYBODY = PST_HTTP_USER_FLAG,
    GW_LOOPBACK = PST_HTTP_USER_FLAG << 1, /* who comes from this computer, and who shows the token */
    GW_GRANTED = PST_HTTP_USER_FLAG << 2,  /* who shows the token, and who did for this {id} within the last minute (who.h) */
    GW_FFDL = PST_HTTP_USER_FLAG << 3,     /* not who, but how: refusals are FfDL's error object */
    GW_OIP = PST_HTTP_USER_FLAG << 4,      /* the same with the Open Inference Protocol's */
    GW_VIEWER = PST_HTTP_USER_FLAG << 5,
    GW_USER = PST_HTTP_USER_FLAG << 6,
    GW_ALL = GW_VIEWER | GW_USER,
    GW_MLFLOW = PST_HTTP_USER_FLAG << 8 /* the same with MLflow's */
};

/* Schemas are JSON Schema as text, or the name of an event (`JobState`), or of a schema of the noun. */
#define GW_JSON(...)  #__VA_ARGS__
#define GW_PROBLEM    "application/problem+json", "Problem"
#define GW_FFDL_ERROR "application/json", "FfdlError"
#define GW_OIP_ERROR  "application/json", "OipError"
#define GW_ID                                                             \
    {                                                                     \
        "id", "path", GW_JSON({"type" : "string"}), "a job's training id" \
    }

typedef struct gw_param {
    const char *name, *in /* path, query, header */, *schema, *doc;
} gw_param;
typedef struct gw_content {
    const char *type, *schema;
} gw_content;
typedef struct gw_answer {
    int status;
    const char *doc;
    const char *type, *schema; /* NULL = no body */
} gw_answer;
typedef struct gw_schema {
    const char *name, *text;
} gw_schema;

/* Lists end with an entry of zeros; NULL = none. http comes first: what the server says of a request's route is the row. */
typedef struct gw_route {
    pst_http_route http;
    const char *name; /* the operation's, for generated clients */
    const gw_param *params;
    const gw_content *bodies;
    const gw_answer *answers;
} gw_route;

typedef struct gw_noun {
    const char *name, *doc;
    const gw_route *routes;
    size_t n;
    const gw_schema *schemas;
} gw_noun;

/* nouns.c */
extern const gw_noun gw_jobs_noun, gw_records_noun, gw_stream_noun, gw_ffdl_noun, gw_ffdl_logs_noun, gw_ffdl_pages_noun, gw_ffdl_files_noun,
    gw_service_noun, gw_page_noun, gw_oip_noun, gw_why_noun;
extern const gw_noun gw_registry_noun, gw_pipelines_noun, gw_topics_noun, gw_nodes_noun, gw_queues_noun, gw_login_noun;
extern const gw_noun gw_mlflow_experiments_noun, gw_mlflow_runs_noun, gw_mlflow_log_noun, gw_mlflow_artifacts_noun, gw_mlflow_models_noun;
extern const gw_noun *const gw_nouns[]; /* ends with NULL */

void gw_routes_add(pst_http *http, void *arg);

/* routes.c */
/* The roles of a row, as bits of caller.h. */
unsigned gw_route_roles(unsigned flags);
/* A parameter of the request, which its row must name. NULL where it was not sent. */
const char *gw_query(const pst_http_req *req, const char *name);
const char *gw_header(const pst_http_req *req, const char *name);
/* The query parameter `limit`: 1 to max, def where it is absent or something else. */
size_t gw_limit(const pst_http_req *req, size_t def, size_t max);
/* check.c: before every handler. Is the row one of the own API, whose requests are held against their row? */
bool gw_is_own(const gw_route *r);
bool gw_check(void *arg, pst_http_req *req);
/* 400 with all that is wrong with it ({"field", "detail"}); takes the list and req. */
void gw_refuse(pst_http_req *req, const char *code, const char *detail, json_t *violations);
/* Of rows: whose parameter is it? NULL: of nobody's. in NULL = any. */
const gw_param *gw_param_find(const gw_route *r, const char *in, const char *name);

#endif
