/* mlflow_wire.c - what every request and answer of MLflow's interface has in common: its error object, whose word decides the status as MLflow's own
 * server has it, bodies, numbers that protobuf's JSON writes as text, pages. A page's token is the number of entries before it: MLflow's own does the same,
 * and clients only hand it back. */
#include "producers/gateway/mlflow.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *word;
    int status;
} words[] = {{"INVALID_PARAMETER_VALUE", 400}, {"RESOURCE_ALREADY_EXISTS", 400}, {"UNAUTHENTICATED", 401}, {"PERMISSION_DENIED", 403},
             {"RESOURCE_DOES_NOT_EXIST", 404}, {"ENDPOINT_NOT_FOUND", 404},      {"INVALID_STATE", 400},   {"TEMPORARILY_UNAVAILABLE", 503},
             {"REQUEST_LIMIT_EXCEEDED", 429},  {"INTERNAL_ERROR", 500},          {"NOT_IMPLEMENTED", 501}, {"BAD_REQUEST", 400},
             {"RESOURCE_LIMIT_EXCEEDED", 413}};

static void send_error(pst_http_req *req, int status, const char *word, const char *message)
{
    pst_buf b = {0};
    pst_buf_printf(&b, "{\"error_code\":\"%s\",\"message\":", word);
    pst_json_quote(&b, message, strlen(message));
    pst_buf_addc(&b, '}');
    if (status == 503 || status == 429)
        pst_http_add_header(req, "Retry-After", "1");
    pst_http_reply(req, status, "application/json", b.data, b.len);
    pst_buf_done(&b);
}

void gw_mlflow_fail(pst_http_req *req, const char *error_code, const char *fmt, ...)
{
    pst_buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    pst_buf_vprintf(&text, fmt, ap);
    va_end(ap);
    int status = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i].word, error_code))
            status = words[i].status;
    PST_ASSERT(status);
    send_error(req, status, error_code, text.data ? text.data : "");
    pst_buf_done(&text);
}

void gw_mlflow_fail_err(pst_http_req *req, const pst_err *err)
{
    const char *word = "INTERNAL_ERROR";
    if (err->code == PST_ENOTFOUND)
        word = "RESOURCE_DOES_NOT_EXIST";
    else if (err->code == PST_EEXIST)
        word = "RESOURCE_ALREADY_EXISTS";
    else if (err->cls == PST_CLASS_RETRY)
        word = "TEMPORARILY_UNAVAILABLE";
    else if (err->cls == PST_CLASS_DATA || err->code == PST_EINVAL || err->code == PST_EPARSE)
        word = "INVALID_PARAMETER_VALUE";
    gw_mlflow_fail(req, word, "%s", err->text);
}

/* What is refused before a handler: no token, a body that is too large, a path that is none. */
bool gw_mlflow_problem(pst_http_req *req, int status, const char *detail)
{
    const char *path = pst_http_path(req), *word = "BAD_REQUEST";
    if (!path || strncmp(path, GW_MLFLOW_ROOT, strlen(GW_MLFLOW_ROOT)) != 0)
        return false;
    if (status == 404 || status == 405)
        word = "ENDPOINT_NOT_FOUND";
    if (status == 405)
        detail = "this path does not take this method";
    else if (status == 404)
        detail = "penstock serves no such path of MLflow's interface; /openapi.json has those that there are";
    for (size_t i = 0; i < sizeof words / sizeof *words && !strcmp(word, "BAD_REQUEST"); i++)
        if (words[i].status == status && status != 400)
            word = words[i].word;
    send_error(req, status, word, detail ? detail : pst_http_status_text(status));
    return true;
}

void gw_mlflow_reply(pst_http_req *req, json_t *take)
{
    pst_http_reply_json(req, 200, take);
}

/* What has another type than MLflow's member of that name would else count as absent, and a default would be taken for it in silence. */
static bool types_ok(pst_http_req *req, const json_t *body)
{
    static const char *const texts[] = {"experiment_id", "name",        "new_name", "run_id", "run_uuid",  "run_name",
                                        "user_id",       "key",         "status",   "filter", "view_type", "run_view_type",
                                        "page_token",    "description", "source",   "alias",  "stage"};
    static const char *const lists[] = {"tags", "metrics", "params", "experiment_ids", "order_by", "stages"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const json_t *v = json_object_get(body, texts[i]);
        if (v && !json_is_null(v) && !json_is_string(v)) {
            gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Invalid value for parameter '%s': it is a text", texts[i]);
            return false;
        }
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const json_t *v = json_object_get(body, lists[i]);
        if (v && !json_is_null(v) && !json_is_array(v)) {
            gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Invalid value for parameter '%s': it is a list", lists[i]);
            return false;
        }
    }
    return true;
}

const char *gw_mlflow_value(pst_http_req *req, const json_t *obj)
{
    const json_t *v = json_object_get(obj, "value");
    if (!v || json_is_null(v))
        return "";
    if (!json_is_string(v))
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Invalid value for parameter 'value' of '%.60s': it is a text",
                       pst_json_str(obj, "key", ""));
    return json_string_value(v);
}

json_t *gw_mlflow_body(pst_http_req *req)
{
    pst_slice text = pst_http_body(req);
    json_t *body = NULL;
    pst_err err = {0};
    if (pst_json_parse(text.data ? text.data : "", text.len, "the body", &body, &err) < 0)
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "%s", err.text);
    else if (!json_is_object(body)) {
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "the body is no JSON object");
        json_decref(body);
        body = NULL;
    } else if (!types_ok(req, body)) {
        json_decref(body);
        body = NULL;
    }
    return body;
}

const char *gw_mlflow_want(pst_http_req *req, const json_t *body, const char *key)
{
    const char *text = pst_json_str(body, key, NULL);
    if (text && *text)
        return text;
    gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Missing value for required parameter '%s': a text that is not empty", key);
    return NULL;
}

const char *gw_mlflow_want_query(pst_http_req *req, const char *key)
{
    const char *text = gw_query(req, key);
    if (text && *text)
        return text;
    gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Missing value for required parameter '%s'", key);
    return NULL;
}

static bool whole(const char *text, int64_t *ret)
{
    char *end = NULL;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end)
        return false;
    *ret = n;
    return true;
}

bool gw_mlflow_int(const json_t *obj, const char *key, int64_t *ret)
{
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v))
        return true;
    if (json_is_integer(v)) {
        *ret = json_integer_value(v);
        return true;
    }
    if (json_is_real(v) && json_real_value(v) > -9e15 && json_real_value(v) < 9e15) {
        *ret = (int64_t)json_real_value(v);
        return true;
    }
    return json_is_string(v) && whole(json_string_value(v), ret);
}

bool gw_mlflow_page(pst_http_req *req, const char *max_results, const char *token, size_t most, size_t *ret_n, size_t *ret_from)
{
    int64_t n = (int64_t)(most < 1000 ? most : 1000), from = 0;
    if (max_results && *max_results && (!whole(max_results, &n) || n < 1 || n > (int64_t)most)) {
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Invalid value %.40s for parameter 'max_results': a number from 1 to %zu",
                       max_results, most);
        return false;
    }
    if (token && *token && (!whole(token, &from) || from < 0)) {
        gw_mlflow_fail(req, "INVALID_PARAMETER_VALUE", "Invalid page token: send the next_page_token of the answer before, or none");
        return false;
    }
    *ret_n = (size_t)n;
    *ret_from = (size_t)from;
    return true;
}

void gw_mlflow_next_page(json_t *answer, size_t from, size_t n, size_t all)
{
    if (from < all && n < all - from)
        json_object_set_new(answer, "next_page_token", json_sprintf("%zu", from + n));
}

const gw_schema gw_mlflow_schemas[] = {
    {"MlflowError", GW_JSON({
         "type" : "object",
         "required" : [ "error_code", "message" ],
         "properties" : {"error_code" : {"type" : "string", "description" : "MLflow's word for it"}, "message" : {"type" : "string"}}
     })},
    {"MlflowObject",
     GW_JSON({"type" : "object", "description" : "As MLflow's REST API has it for the path; members that are not known are let pass."})},
    {0}};
const gw_content gw_mlflow_json[] = {{"application/json", "MlflowObject"}, {0}};
const gw_answer gw_mlflow_answers[] = {{200, "as MLflow's REST API has it", "application/json", "MlflowObject"},
                                       {400, "a value that cannot be; the message names it", GW_MLFLOW_ERROR},
                                       {404, "there is no such thing", GW_MLFLOW_ERROR},
                                       {500, "the event or the object could not be stored", GW_MLFLOW_ERROR},
                                       {503, "not now: `Retry-After` says when to ask again", GW_MLFLOW_ERROR},
                                       {0}};
