/* oip.c - the Open Inference Protocol v2: paths and headers to questions, answers back. What an answer takes (reading a body, opening a model, computing)
 * is done by whoever serves models (common/platform/serving.h), on threads of its own: a handler here only asks, and answers are posted to the loop. */
#include "producers/gateway/gateway.h"
#include "producers/gateway/oip.h"
#include "producers/gateway/routes.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BODY_MAX = 64 << 20 };

static void fail(pst_http_req *req, int status, const char *text)
{
    pst_buf b = {0};
    pst_buf_adds(&b, "{\"error\":");
    pst_json_quote(&b, text, strlen(text));
    pst_buf_adds(&b, "}");
    pst_http_reply(req, status, "application/json", b.data, b.len);
    pst_buf_done(&b);
}

bool gw_oip_problem(pst_http_req *req, int status, const char *detail)
{
    const char *path = pst_http_path(req);
    if (!path || strncmp(path, "/v2", 3) != 0 || (path[3] && path[3] != '/'))
        return false;
    fail(req, status, detail ? detail : pst_http_status_text(status));
    return true;
}

static void server(void *arg, pst_http_req *req)
{
    pst_http_reply_json(req, 200,
                        json_pack("{s:s, s:s, s:[s]}", "name", "penstock", "version", PST_VERSION, "extensions", "binary_tensor_data"));
}

static void live(void *arg, pst_http_req *req)
{
    pst_http_reply_json(req, 200, json_pack("{s:b}", "live", 1));
}

static bool has_serving(const gw_state *g, pst_http_req *req)
{
    if (!g->serving)
        fail(req, 503, "this gateway serves no models");
    return g->serving != NULL;
}

static void ready(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    char why[480] = "";
    if (!has_serving(g, req))
        return;
    if (g->serve->ready(g->serving, why, sizeof why)) {
        pst_http_reply_json(req, 200, json_pack("{s:b}", "ready", 1));
        return;
    }
    pst_http_add_header(req, "Retry-After", "1");
    fail(req, 503, why);
}

/* ---- questions ------------------------------------------------------------------------------------------------------------- */

typedef struct question {
    gw_state *g;
    pst_http_req *req;
    pst_serving_answer answer;
} question;

static void send_answer(pst_http_req *req, pst_serving_answer *take)
{
    char text[24];
    if (take->retry_after_s) {
        snprintf(text, sizeof text, "%d", take->retry_after_s);
        pst_http_add_header(req, "Retry-After", text);
    }
    if (take->binary) {
        snprintf(text, sizeof text, "%zu", take->json_len);
        pst_http_add_header(req, "Inference-Header-Content-Length", text);
    }
    pst_http_reply(req, take->status, take->binary ? "application/octet-stream" : "application/json", take->body.data, take->body.len);
    pst_buf_done(&take->body);
}

static void posted(void *arg)
{
    question *q = arg;
    q->g->questions--;
    send_answer(q->req, &q->answer);
    free(q);
}

static void answered(void *arg, pst_serving_answer *answer)
{
    question *q = arg;
    q->answer = *answer;
    if (pst_loop_is_current(q->g->loop)) /* the gateway ends, and closes what serves */
        posted(q);
    else
        gw_post(q->g, posted, q, NULL);
}

/* A number above 0, in digits alone. */
static bool number(const char *text, size_t most, size_t *ret)
{
    char *end = NULL;
    if (!*text || strspn(text, "0123456789") != strlen(text))
        return false;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno || n > most)
        return false;
    *ret = (size_t)n;
    return true;
}

static void ask(gw_state *g, pst_http_req *req, pst_serving_ask what)
{
    const char *version = pst_http_param(req, "version");
    size_t n = 0;
    if (!has_serving(g, req))
        return;
    if (version && (!number(version, INT_MAX, &n) || !n)) {
        fail(req, 400, "a version is a number from 1 on");
        return;
    }
    what.model = pst_http_param(req, "model");
    what.version = (int)n;
    question *q = pst_alloc(sizeof *q);
    *q = (question){.g = g, .req = req};
    pst_serving_answer now = {0};
    pst_http_take_body(req, &what.body); /* what serves has bounds of its own: a slow model shall not take the room of submissions */
    g->questions++;
    if (g->serve->ask(g->serving, &what, answered, q, &now))
        return;
    g->questions--;
    free(q);
    send_answer(req, &now);
}

static void model(void *arg, pst_http_req *req)
{
    ask(arg, req, (pst_serving_ask){.what = PST_SERVING_METADATA});
}

static void model_ready(void *arg, pst_http_req *req)
{
    ask(arg, req, (pst_serving_ask){.what = PST_SERVING_READY});
}

static void infer(void *arg, pst_http_req *req)
{
    const char *len = gw_header(req, "Inference-Header-Content-Length"), *coding = gw_header(req, "Content-Encoding");
    pst_serving_ask what = {.what = PST_SERVING_INFER, .json_len = PST_SERVING_ALL_JSON};
    if (coding && strcasecmp(coding, "identity") != 0)
        fail(req, 415, "compressed bodies are not taken here; send it as it is");
    else if (len && !number(len, SIZE_MAX - 1, &what.json_len))
        fail(req, 400, "Inference-Header-Content-Length is the number of bytes of the JSON");
    else
        ask(arg, req, what);
}

/* ---- rows ------------------------------------------------------------------------------------------------------------------ */

#define MODEL                                                                                                                       \
    {                                                                                                                               \
        "model", "path", GW_JSON({"type" : "string"}), "a registered model's NAME: its highest version; or NAME@ALIAS: the alias's" \
    }
#define VERSION                                                                      \
    {                                                                                \
        "version", "path", GW_JSON({"type" : "integer", "minimum" : 1}), "a version" \
    }
#define INFER_HEADERS                                                                          \
    {"Inference-Header-Content-Length", "header", GW_JSON({"type" : "integer"}),               \
     "where the JSON ends and raw tensors begin (Triton's binary tensor data extension)"},     \
    {                                                                                          \
        "Content-Encoding", "header", GW_JSON({"const" : "identity"}), "nothing else is taken" \
    }
#define NO_MODEL                                                                               \
    {404, "no such model, version or alias", GW_OIP_ERROR},                                    \
        {422, "the version is there, but cannot be served; the error says why", GW_OIP_ERROR}, \
    {                                                                                          \
        503, "not now: `Retry-After` says when to ask again", GW_OIP_ERROR                     \
    }
#define BAD_PATH                                                                    \
    {                                                                               \
        400, "a version that is no number, or a version and an alias", GW_OIP_ERROR \
    }
static const gw_schema schemas[] = {
    {"OipError", GW_JSON({"type" : "object", "required" : ["error"], "properties" : {"error" : {"type" : "string"}}})},
    {"OipTensor", GW_JSON({
         "type" : "object",
         "required" : [ "name", "datatype", "shape" ],
         "properties" : {
             "name" : {"type" : "string"},
             "datatype" : {
                 "enum" : [
                     "FP32", "FP64", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "BOOL", "BYTES", "FP16",
                     "BF16"
                 ]
             },
             "shape" : {"type" : "array", "items" : {"type" : "integer"}},
             "data" : {"type" : "array", "description" : "flat in row-major order, or nested as the shape"},
             "parameters" : {"type" : "object", "description" : "binary_data_size: so many raw bytes behind the JSON are its data"}
         }
     })},
    {"OipRequest", GW_JSON({
         "type" : "object",
         "required" : ["inputs"],
         "properties" : {
             "id" : {"type" : "string"},
             "inputs" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/OipTensor"}},
             "outputs" : {
                 "type" : "array",
                 "description" : "those that are wanted; parameters: binary_data",
                 "items" : {
                     "type" : "object",
                     "required" : ["name"],
                     "properties" : {"name" : {"type" : "string"}, "parameters" : {"type" : "object"}}
                 }
             },
             "parameters" : {
                 "type" : "object",
                 "description" : "binary_data_output: all outputs as raw bytes; timeout: microseconds; others are let pass"
             }
         }
     })},
    {"OipAnswer", GW_JSON({
         "type" : "object",
         "required" : [ "model_name", "model_version", "outputs" ],
         "properties" : {
             "model_name" : {"type" : "string"},
             "model_version" : {"type" : "string"},
             "id" : {"type" : "string"},
             "outputs" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/OipTensor"}}
         }
     })},
    {"OipModel", GW_JSON({
         "type" : "object",
         "required" : [ "name", "versions", "platform", "inputs", "outputs" ],
         "properties" : {
             "name" : {"type" : "string"},
             "versions" : {"type" : "array", "items" : {"type" : "string"}},
             "platform" : {"type" : "string"},
             "inputs" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/OipTensor"}},
             "outputs" : {"type" : "array", "items" : {"$ref" : "#/components/schemas/OipTensor"}}
         }
     })},
    {0}};
static const gw_param of_model[] = {MODEL, {0}}, of_version[] = {MODEL, VERSION, {0}}, of_infer[] = {MODEL, INFER_HEADERS, {0}},
                      of_version_infer[] = {MODEL, VERSION, INFER_HEADERS, {0}};
static const gw_content infer_body[] = {
    {"application/json", "OipRequest"},
    {"application/octet-stream", GW_JSON({"type" : "string", "description" : "the JSON, then raw tensors"})},
    {0}};
static const gw_answer to_server[] = {{200, "name, version and extensions", "application/json", GW_JSON({"type" : "object"})}, {0}},
                       to_live[] = {{200, "it is", "application/json", GW_JSON({"type" : "object"})}, {0}},
                       to_ready[] = {{200, "it is", "application/json", GW_JSON({"type" : "object"})},
                                     {503, "the registered models are not known yet", GW_OIP_ERROR},
                                     {0}},
                       to_model[] = {{200, "the model", "application/json", "OipModel"}, BAD_PATH, NO_MODEL, {0}},
                       to_model_ready[] = {{200, "it can answer", "application/json", GW_JSON({"type" : "object"})},
                                           BAD_PATH,
                                           NO_MODEL,
                                           {0}},
                       to_infer[] = {{200,
                                      "the outputs; application/octet-stream with raw tensors behind the JSON where they were asked for",
                                      "application/json", "OipAnswer"},
                                     {400, "a request that is not as the model wants it; the error names the tensor", GW_OIP_ERROR},
                                     NO_MODEL,
                                     {429, "so many wait for this model as may: `Retry-After`", GW_OIP_ERROR},
                                     {500, "the artefact could not be read, or the model failed", GW_OIP_ERROR},
                                     {504, "its time was over", GW_OIP_ERROR},
                                     {0}};

static const gw_route routes[] = {
    {{"GET", "/v2", server, 0, GW_OIP | GW_ALL, "The Open Inference Protocol's server: name, version, extensions."},
     "oipServer",
     NULL,
     NULL,
     to_server},
    {{"GET", "/v2/health/live", live, 0, GW_OIP | GW_ALL, "Does it serve?"}, "oipLive", NULL, NULL, to_live},
    {{"GET", "/v2/health/ready", ready, 0, GW_OIP | GW_ALL, "Are the registered models known?"}, "oipReady", NULL, NULL, to_ready},
    {{"GET", "/v2/models/{model}", model, 0, GW_OIP | GW_ALL, "Versions, platform, inputs and outputs of a registered model."},
     "oipModel",
     of_model,
     NULL,
     to_model},
    {{"GET", "/v2/models/{model}/ready", model_ready, 0, GW_OIP | GW_ALL, "Opens it, where it is not, and says whether it can answer."},
     "oipModelReady",
     of_model,
     NULL,
     to_model_ready},
    {{"GET", "/v2/models/{model}/versions/{version}", model, 0, GW_OIP | GW_ALL, "The same of one version."},
     "oipVersion",
     of_version,
     NULL,
     to_model},
    {{"GET", "/v2/models/{model}/versions/{version}/ready", model_ready, 0, GW_OIP | GW_ALL, "The same of one version."},
     "oipVersionReady",
     of_version,
     NULL,
     to_model_ready},
    {{"POST", "/v2/models/{model}/infer", infer, BODY_MAX, GW_OIP | PST_HTTP_BYTES | GW_USER,
      "Outputs for inputs, as JSON or raw tensors; 64 MiB at most. The same engine as the stream path. Requests that come together share a "
      "run."},
     "oipInfer",
     of_infer,
     infer_body,
     to_infer},
    {{"POST", "/v2/models/{model}/versions/{version}/infer", infer, BODY_MAX, GW_OIP | PST_HTTP_BYTES | GW_USER,
      "The same of one version."},
     "oipVersionInfer",
     of_version_infer,
     infer_body,
     to_infer},
};

const gw_noun gw_oip_noun = {"inference", "Open Inference Protocol v2: registered models answer requests.", routes,
                             sizeof routes / sizeof *routes, schemas};
