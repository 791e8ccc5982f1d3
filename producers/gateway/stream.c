/* stream.c - /events/stream: a request becomes a client of the hub, which has the events; what may be asked for stands in the row. */
#include "producers/gateway/gateway.h"

#include "producers/gateway/caller.h"
#include "producers/gateway/routes.h"

#include "common/base/json.h"

#include <stdlib.h>
#include <string.h>

static const char *kind_of(const char *topic, size_t len)
{
    const char *name, *kind;
    for (size_t i = 0; (kind = gw_feed_kind(i, &name)) != NULL; i++)
        if (strlen(name) == len && !strncmp(name, topic, len))
            return kind;
    return NULL;
}

/* It goes into JSON: whatever is no plain letter there stands as "?". */
static char *unknown_topic(const char *topic, size_t len)
{
    pst_buf b = {0};
    pst_buf_adds(&b, "there is no topic \"");
    for (size_t i = 0; i < len && i < 100; i++)
        pst_buf_addc(&b, topic[i] < ' ' || topic[i] > '~' ? '?' : topic[i]);
    pst_buf_adds(&b, "\" here; there are");
    const char *name;
    for (size_t i = 0; gw_feed_kind(i, &name); i++)
        pst_buf_printf(&b, "%s%s", i ? ", " : " ", name);
    pst_buf_adds(&b, ", with commas between and without the prefix");
    return b.data;
}

char *gw_stream_kinds(const char *topics, char **ret_why)
{
    pst_buf b = {0};
    for (const char *at = topics;; at++) {
        size_t len = strcspn(at, ",");
        const char *kind = kind_of(at, len);
        if (!kind) {
            pst_buf_done(&b);
            *ret_why = unknown_topic(at, len);
            return NULL;
        }
        pst_buf_printf(&b, "%s%s", b.len ? "," : "", kind);
        at += len;
        if (!*at)
            return b.data;
    }
}

static void refuse(pst_http_req *req, const char *why)
{
    gw_refuse(req, "invalid-parameter", why, json_pack("[{s:s, s:s, s:s}]", "field", "topics", "in", "query", "detail", why));
}

static void stream(void *arg, pst_http_req *req)
{
    const gw_state *g = arg;
    const char *topics = gw_query(req, "topics"), *kinds = gw_query(req, "kinds");
    char *of_topics = NULL, *why = NULL;
    if (topics && kinds)
        why = pst_strdup("topics and kinds say the same in two ways: send one of them");
    else if (topics)
        of_topics = gw_stream_kinds(topics, &why);
    if (why)
        refuse(req, why);
    else
        gw_hub_attach(g->hub, req, topics ? of_topics : kinds, gw_query(req, "key"),
                      gw_caller_sees_all(req) ? NULL : gw_caller_of(req)->name);
    free(of_topics);
    free(why);
}

static const gw_param params[] = {
    {"topics", "query", GW_JSON({"type" : "string"}),
     "topics without the prefix: jobs.events, logs, metrics, jobs.state, models, pipelines, workers, with commas between; else all"},
    {"kinds", "query", GW_JSON({"type" : "string"}),
     "the same by the events' names: event, log, metric, state, model, pipeline, worker; not together with topics"},
    {"key", "query", GW_JSON({"type" : "string"}), "a training id, or the name of a model or pipeline; else all"},
    {"Last-Event-ID", "header", GW_JSON({"type" : "string"}), "the last event that the client has"},
    {"last_event_id", "query", GW_JSON({"type" : "string"}), "the same, for clients that cannot set a header"},
    {0}};
static const gw_answer answers[] = {{200, "events without end", "text/event-stream", GW_JSON({"type" : "string"})},
                                    {400, "a topic that there is not", GW_PROBLEM},
                                    {503, "500 streams are open already", GW_PROBLEM},
                                    {0}};

static const gw_route routes[] = {
    {{"GET", "/events/stream", stream, 0, GW_ALL,
      "Server-sent events as they come. Query: `topics` (jobs.events, logs, metrics, jobs.state, models, pipelines, workers), `key`. `id:` "
      "holds offsets; "
      "`Last-Event-ID` goes on exactly there, at any gateway; `gap` says what this one has not any more. `kafka` says when the broker is "
      "away and when it is back."},
     "streamEvents",
     params,
     NULL,
     answers},
};

const gw_noun gw_stream_noun = {"stream", "What happens, as it happens.", routes, sizeof routes / sizeof *routes, NULL};
