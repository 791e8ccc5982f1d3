/* stream.c - /events/stream: a request becomes a client of the hub, which has the events; what may be asked for stands in the row. */
#include "producers/gateway/gateway.h"

#include "producers/gateway/caller.h"
#include "producers/gateway/routes.h"

static void stream(void *arg, pst_http_req *req)
{
    const gw_state *g = arg;
    gw_hub_attach(g->hub, req, gw_query(req, "kinds"), gw_query(req, "key"), gw_caller_sees_all(req) ? NULL : gw_caller_of(req)->name);
}

static const gw_param params[] = {
    {"kinds", "query", GW_JSON({"type" : "string"}), "event, log, metric, state, model, pipeline, worker, with commas between; else all"},
    {"key", "query", GW_JSON({"type" : "string"}), "a training id, or the name of a model or pipeline; else all"},
    {"Last-Event-ID", "header", GW_JSON({"type" : "string"}), "the last event that the client has"},
    {"last_event_id", "query", GW_JSON({"type" : "string"}), "the same, for clients that cannot set a header"},
    {0}};
static const gw_answer answers[] = {
    {200, "events without end", "text/event-stream", GW_JSON({"type" : "string"})}, {503, "500 streams are open already", GW_PROBLEM}, {0}};

static const gw_route routes[] = {
    {{"GET", "/events/stream", stream, 0, GW_ALL,
      "Server-sent events as they come. Query: `kinds` (event, log, metric, state, model, pipeline, worker), `key`. `id:` holds offsets; "
      "`Last-Event-ID` goes on exactly there. `kafka` says when the broker is away and when it is back."},
     "streamEvents",
     params,
     NULL,
     answers},
};

const gw_noun gw_stream_noun = {"stream", "What happens, as it happens.", routes, sizeof routes / sizeof *routes, NULL};
