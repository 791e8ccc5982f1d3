/* registry_routes.c - one table from method and path to the core's operation, so that the server has one handler and the core never sees HTTP.
 * Subjects may hold an encoded slash, as Java class names of some serializers do. */
#include "deploy/registry/registry_routes.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct row {
    const char *method, *pattern;
    rcore_op op;
    const char *doc;
} row;

static const row rows[] = {
    {"GET", "/subjects", PST_ROP_SUBJECTS, "Subjects."},
    {"POST", "/subjects/{subject}", PST_ROP_LOOKUP, "Is this schema registered under the subject?"},
    {"DELETE", "/subjects/{subject}", PST_ROP_DELETE_SUBJECT, "Deletes a subject."},
    {"GET", "/subjects/{subject}/metadata", PST_ROP_METADATA, "Version, id and schema."},
    {"GET", "/subjects/{subject}/versions", PST_ROP_VERSIONS, "Versions of a subject."},
    {"POST", "/subjects/{subject}/versions", PST_ROP_REGISTER, "Registers a schema; its id."},
    {"GET", "/subjects/{subject}/versions/{version}", PST_ROP_VERSION, "One version; `latest` is the newest."},
    {"DELETE", "/subjects/{subject}/versions/{version}", PST_ROP_DELETE_VERSION, "Deletes a version."},
    {"GET", "/subjects/{subject}/versions/{version}/schema", PST_ROP_VERSION_TEXT, "Its schema alone."},
    {"GET", "/subjects/{subject}/versions/{version}/referencedby", PST_ROP_REFERENCED, "Ids of schemas that refer to it."},
    {"GET", "/schemas", PST_ROP_SCHEMAS, "All schemas."},
    {"GET", "/schemas/types", PST_ROP_TYPES, "`[\"AVRO\"]`."},
    {"GET", "/schemas/ids/{id}", PST_ROP_ID, "The schema of an id."},
    {"GET", "/schemas/ids/{id}/schema", PST_ROP_ID_TEXT, "Its text alone."},
    {"GET", "/schemas/ids/{id}/subjects", PST_ROP_ID_SUBJECTS, "Subjects that use the id."},
    {"GET", "/schemas/ids/{id}/versions", PST_ROP_ID_VERSIONS, "Subject and version pairs of the id."},
    {"GET", "/schemas/guids/{id}", PST_ROP_GUID, "The schema of a guid."},
    {"POST", "/compatibility/subjects/{subject}/versions", PST_ROP_COMPATIBLE, "Would this schema be compatible?"},
    {"POST", "/compatibility/subjects/{subject}/versions/{version}", PST_ROP_COMPATIBLE, "Would this schema be compatible?"},
    {"GET", "/config", PST_ROP_CONFIG_GET, "Compatibility level."},
    {"PUT", "/config", PST_ROP_CONFIG_PUT, "Sets it."},
    {"DELETE", "/config", PST_ROP_CONFIG_DELETE, "Back to the default."},
    {"GET", "/config/{subject}", PST_ROP_CONFIG_GET, "Compatibility level."},
    {"PUT", "/config/{subject}", PST_ROP_CONFIG_PUT, "Sets it."},
    {"DELETE", "/config/{subject}", PST_ROP_CONFIG_DELETE, "Back to the default."},
    {"GET", "/mode", PST_ROP_MODE_GET, "Mode."},
    {"PUT", "/mode", PST_ROP_MODE_PUT, "Sets it."},
    {"DELETE", "/mode", PST_ROP_MODE_DELETE, "Back to the default."},
    {"GET", "/mode/{subject}", PST_ROP_MODE_GET, "Mode."},
    {"PUT", "/mode/{subject}", PST_ROP_MODE_PUT, "Sets it."},
    {"DELETE", "/mode/{subject}", PST_ROP_MODE_DELETE, "Back to the default."},
    {"GET", "/contexts", PST_ROP_CONTEXTS, "Contexts: the default one."},
};
#define N_ROWS (sizeof rows / sizeof *rows)

static void reply(pst_http_req *req, const char *text)
{
    pst_http_reply(req, 200, PST_REGISTRY_MEDIA_TYPE, text, strlen(text));
}

static void get_root(void *arg, pst_http_req *req)
{
    reply(req, "{}");
}

static void get_associations(void *arg, pst_http_req *req)
{
    reply(req, "[]"); /* asked by Confluent's JavaScript client before it falls back to the topic's name */
}

static void get_cluster(void *arg, pst_http_req *req)
{
    reply(req, "{\"scope\":{\"path\":[],\"clusters\":{\"schema-registry-cluster\":\"penstock\"}},\"id\":\"\"}");
}

static void get_build(void *arg, pst_http_req *req)
{
    reply(req, "{\"version\":\"penstock-" PST_VERSION "\",\"commitId\":\"\"}");
}

static const pst_http_route about[] = {
    {"GET", "/", get_root, 0, 0, "`{}`: it is there."},
    {"GET", "/v1/metadata/id", get_cluster, 0, 0, "Cluster id."},
    {"GET", "/v1/metadata/version", get_build, 0, 0, "Version."},
    {"GET", "/associations/resources/{namespace}/{name}", get_associations, 0, PST_HTTP_SLASH, "`[]`: no associations."}};
const pst_http_routes pst_registry_about_routes = {about, sizeof about / sizeof *about};

const pst_http_routes *pst_registry_routes(pst_http_handler handler)
{
    static pst_http_route routes[N_ROWS]; /* the same for every server of this process */
    static const pst_http_routes all = {routes, N_ROWS};
    for (size_t i = 0; i < N_ROWS; i++)
        routes[i] = (pst_http_route){rows[i].method, rows[i].pattern, handler, 0, PST_HTTP_SLASH, rows[i].doc};
    return &all;
}

void registry_add_routes(pst_http *s, pst_http_handler handler, void *arg)
{
    pst_http_add_routes(s, pst_registry_routes(handler)->at, N_ROWS, arg);
    pst_http_add_routes(s, about, sizeof about / sizeof *about, arg);
}

void registry_request(const pst_http_req *req, rcore_request *ret_request)
{
    pst_slice body = pst_http_body(req);
    const char *extras = pst_http_header(req, "Confluent-Accept-Unknown-Properties");
    const char *method = pst_http_method(req), *pattern = pst_http_pattern(req);
    rcore_request q = {.subject = pst_http_param(req, "subject"),
                       .version = pst_http_param(req, "version"),
                       .id = pst_http_param(req, "id"),
                       .query_subject = pst_http_query(req, "subject"),
                       .prefix = pst_http_query(req, "subjectPrefix"),
                       .body = body.data,
                       .body_len = body.len,
                       .deleted = pst_http_query_bool(req, "deleted"),
                       .deleted_only = pst_http_query_bool(req, "deletedOnly"),
                       .permanent = pst_http_query_bool(req, "permanent"),
                       .force = pst_http_query_bool(req, "force"),
                       .default_to_global = pst_http_query_bool(req, "defaultToGlobal"),
                       .verbose = pst_http_query_bool(req, "verbose"),
                       .latest_only = pst_http_query_bool(req, "latestOnly"),
                       .max_id = pst_http_query_bool(req, "fetchMaxId"),
                       .extras = extras && !strcasecmp(extras, "true"),
                       .offset = pst_http_query_int(req, "offset", 0),
                       .limit = pst_http_query_int(req, "limit", -1)};
    if (!strcmp(method, "HEAD"))
        method = "GET";
    bool found = false;
    for (size_t i = 0; i < N_ROWS && !found; i++) { /* the pattern of a request is the text of its row, the same in memory */
        found = rows[i].pattern == pattern && !strcmp(rows[i].method, method);
        if (found)
            q.op = rows[i].op;
    }
    PST_ASSERT(found); /* else a route without a row would be taken for the first one */
    *ret_request = q;
}
