/* service.c - what the gateway says of itself: is it there, its counters, what it holds at this moment, the description of its paths. All of it is
 * answered on the loop's thread, which owns that state. */
#include "producers/gateway/gateway.h"

#include "common/base/json.h"
#include "common/base/settings.h"
#include "producers/gateway/routes.h"

#include <string.h>

/* As FfDL's, whose client asks for it after every error. What there is to say beside it stands in /state. */
static void health(void *arg, pst_http_req *req)
{
    pst_http_reply_text(req, 200, "OK");
}

static void metrics(void *arg, pst_http_req *req)
{
    gw_state *g = arg;
    pst_metric_set(g->streams, (double)gw_hub_streams(g->hub));
    pst_http_reply_metrics(req, g->metrics);
}

static void description(void *arg, pst_http_req *req)
{
    const gw_state *g = arg;
    pst_http_reply(req, 200, "application/json", g->description, strlen(g->description));
}

static const char *store_kind(const gw_state *g)
{
    if (g->view)
        return "view of its own";
    return g->store ? "open" : "not opened yet";
}

void gw_dump(void *arg, json_t *to)
{
    const gw_state *g = arg;
    const pst_settings *s = g->client->settings;
    json_object_set_new(to, "bootstrap", json_string(s->bootstrap.value));
    json_object_set_new(to, "store", json_string(store_kind(g)));
    json_object_set_new(to, "readers", json_integer(g->readers));
    json_object_set_new(to, "pours", json_integer(g->pours));
    json_object_set_new(to, "uploads", json_integer(g->uploads));
    json_object_set_new(to, "tasks", json_integer(g->tasks));
    json_object_set_new(to, "pages", json_integer(g->pages));
    gw_feed_dump(g->feed, to);
    gw_hub_dump(g->hub, to);
    json_object_set_new(to, "questions", json_integer(g->questions));
    if (g->serving)
        g->serve->dump(g->serving, to);
    gw_publisher_dump(g->publisher, to);
    pst_http_dump(g->http, to);
}

static void state(void *arg, pst_http_req *req)
{
    const gw_state *g = arg;
    pst_http_reply_dump(req, pst_dump_now(g->dump));
}

static const gw_schema schemas[] = {{"State", GW_JSON({
                                         "type" : "object",
                                         "description" : "For people; members may change with the version.",
                                         "required" : [ "component", "version", "pid", "time", "seconds" ],
                                         "properties" : {
                                             "component" : {"type" : "string"},
                                             "version" : {"type" : "string"},
                                             "pid" : {"type" : "integer"},
                                             "time" : {"type" : "integer", "description" : "microseconds since 1970"},
                                             "seconds" : {"type" : "number", "description" : "since its start"}
                                         }
                                     })},
                                    {0}};
static const gw_answer to_health[] = {{200, "it serves: `OK`", "text/plain", GW_JSON({"const" : "OK"})}, {0}},
                       to_metrics[] = {{200, "the counters", "text/plain", GW_JSON({"type" : "string"})}, {0}},
                       to_state[] = {{200, "the state", "application/json", "State"}, {503, "not to be had", GW_PROBLEM}, {0}},
                       to_description[] = {{200, "an OpenAPI 3.1 object", "application/json", GW_JSON({"type" : "object"})}, {0}};

static const gw_route routes[] = {
    {{"GET", "/health", health, 0, GW_EVERYBODY, "`OK` while it serves. Asks for no token."}, "health", NULL, NULL, to_health},
    {{"GET", "/metrics", metrics, 0, GW_LOOPBACK | GW_ALL,
      "OpenMetrics to who accepts it, else Prometheus text. From loopback it asks for no token."},
     "metrics",
     NULL,
     NULL,
     to_metrics},
    {{"GET", "/state", state, 0, 0, "What the gateway holds at this moment: queues, streams, counts. SIGUSR1 writes the same to its log."},
     "dumpState",
     NULL,
     NULL,
     to_state},
    {{"GET", "/openapi.json", description, 0, GW_ALL, "This interface as an OpenAPI 3.1 description."},
     "describe",
     NULL,
     NULL,
     to_description},
};

const gw_noun gw_service_noun = {"service", "The gateway itself.", routes, sizeof routes / sizeof *routes, schemas};
