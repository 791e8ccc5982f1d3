/* gateway_main.c - `penstock gateway`: config, wire, loop, drain. */
#include "producers/gateway/gateway.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "common/client/verb.h"
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

typedef struct gateway_opts {
    int64_t port;
    const char *listen;
    pst_opt_list hosts;
} gateway_opts;
static const pst_opt gateway_table[] = {
    {"port", 0, PST_OPT_INT, offsetof(gateway_opts, port), "P", "8080", "0 = any free one"},
    {"listen", 0, PST_OPT_STR, offsetof(gateway_opts, listen), "ADDRESS", "127.0.0.1",
     "an address, or * for all; put a proxy with TLS and users before it then"},
    {"host", 0, PST_OPT_LIST, offsetof(gateway_opts, hosts), "NAME", NULL, "accept this name in the Host header too; repeat for more"},
};
static const pst_usage gateway_usage = {"gateway",
                                        "",
                                        "Serve the page, the HTTP API and server-sent events.",
                                        "A thin front of the topics: what it takes it publishes, what it shows it has read. /health "
                                        "/metrics /v1/jobs /events/stream and the page at /.",
                                        "penstock gateway --port 8080\ncurl -N http://127.0.0.1:8080/events/stream?kinds=event\ncurl "
                                        "--data-binary @manifest.yml http://127.0.0.1:8080/v1/jobs",
                                        gateway_table,
                                        3,
                                        false};

static void drained(void *arg)
{
    pst_loop_stop(arg);
}

static void on_stop(void *arg)
{
    pst_gateway *g = arg;
    pst_http_drain(g->http, drained, g->loop);
}

static int wire(pst_gateway *g, const gateway_opts *o, pst_err *err)
{
    const char *names[34] = {0};
    for (size_t i = 0; i < o->hosts.n && i < 32; i++)
        names[i] = o->hosts.items[i];
    pst_http_conf conf = {.listen = o->listen, .port = (int)o->port, .name = "gateway", .hosts = o->hosts.n ? names : NULL};
    int rc = pst_loop_new(&g->loop, err);
    if (!rc)
        rc = pst_http_new(g->loop, &conf, &g->http, err);
    if (rc < 0)
        return rc;
    g->metrics = pst_metrics_new();
    g->submitted =
        pst_metric_counter(g->metrics, "penstock_gateway_requests_published_total", "Job requests acknowledged by the broker.", NULL);
    g->refused =
        pst_metric_counter(g->metrics, "penstock_gateway_requests_refused_total", "Job requests refused here, or by the broker.", NULL);
    g->streams = pst_metric_gauge(g->metrics, "penstock_gateway_streams", "Open event streams.", NULL);
    g->hub = pst_hub_new();
    pst_gateway_routes(g);
    pst_gateway_page(g);
    if (!strncmp(g->client->settings->store.value, "memory:", 7) && (rc = pst_view_start(g->client, "memory:", &g->view, err)) < 0)
        return rc;
    if ((rc = pst_publisher_new(g, &g->publisher, err)) < 0)
        return rc;
    return pst_feed_start(g, &g->feed, err);
}

static void take_apart(pst_gateway *g)
{
    pst_feed_stop(g->feed);
    for (int i = 0; g->readers > 0 && i < 500; i++) /* their answers are posted to the loop */
        pst_loop_run_for(g->loop, 20);
    pst_publisher_free(g->publisher);
    pst_http_free(g->http);
    pst_hub_free(g->hub);
    pst_view_stop(g->view);
    pst_store_close(g->store);
    pst_metrics_free(g->metrics);
    pst_loop_free(g->loop);
}

static int gateway_run(int argc, char **argv)
{
    gateway_opts o = {0};
    pst_gateway g = {0};
    pst_verb_run v;
    int status = pst_verb_begin(&v, &gateway_usage, argc, argv, &o, 0, 0);
    if (status >= 0)
        return status;
    g.client = v.client;
    int rc = o.port < 0 || o.port > 65535 ? pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--port: wanted 0 to 65535")
                                          : wire(&g, &o, &v.err);
    if (!rc) {
        pst_log(PST_LOG_INFO, "gateway", "event=listening url=%s", pst_http_url(g.http));
        pst_loop_on_stop(g.loop, on_stop, &g);
        pst_loop_run(g.loop);
        pst_log(PST_LOG_INFO, "gateway", "event=stopped");
    }
    take_apart(&g);
    free(o.hosts.items);
    return pst_verb_end(&v, rc);
}

const pst_verb pst_gateway_verb = {"gateway", "the page, the HTTP API and event streams", "services", gateway_run};
