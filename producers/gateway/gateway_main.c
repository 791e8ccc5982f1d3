/* gateway_main.c - `penstock gateway`: config, wire, loop, drain. One thread serves all connections, because a request costs less than handing it
 * over would; what takes long (reading topics) has threads of its own that post their results to the loop. The drain ends streams with a comment and
 * gives open requests time to be answered; a second signal ends the loop at once. */
#include "producers/gateway/gateway.h"
#include "producers/gateway/audit.h"
#include "producers/gateway/caller.h"
#include "producers/gateway/gateway_verb.h"
#include "producers/gateway/openapi.h"
#include "producers/gateway/owners.h"
#include "producers/gateway/routes.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/secret.h"
#include "common/base/stop.h"
#include "common/platform/verb.h"
#include "schemas/metric_list.h"
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

typedef struct gateway_opts {
    int64_t port, models_mib, infer_seconds, user_rate, user_burst;
    const char *listen, *tls_cert, *tls_key, *auth, *users, *jwks, *jwks_ca, *issuer, *audience, *jwt_role;
    pst_opt_list hosts;
} gateway_opts;
static const pst_opt gateway_table[] = {
    {"port", 0, PST_OPT_INT, offsetof(gateway_opts, port), "P 0..65535", "8080", "0 = any free one"},
    {"listen", 0, PST_OPT_STR, offsetof(gateway_opts, listen), "ADDRESS", "127.0.0.1",
     "an address, or * for all; with --tls-cert then, or behind a proxy with TLS, and its name given with --host"},
    {"tls-cert", 0, PST_OPT_STR, offsetof(gateway_opts, tls_cert), "FILE", NULL,
     "serve https (TLS 1.2 and 1.3): the certificate, with its chain, in PEM; read again when it changes"},
    {"tls-key", 0, PST_OPT_STR, offsetof(gateway_opts, tls_key), "FILE", NULL,
     "its key, in PEM, without a password; nobody but its owner may read the file (root's: a group, too)"},
    {"auth", 0, PST_OPT_STR, offsetof(gateway_opts, auth), "HOW", "token",
     "token: every request but /health shows <state-dir>/token, made where there is none; none: nobody is asked, on loopback only"},
    {"users", 0, PST_OPT_STR, offsetof(gateway_opts, users), "FILE", NULL,
     "who may, and what, in place of the token: lines name:hash:role[,role], hashes of `penstock user hash`, roles viewer, user, operator; "
     "read again when "
     "it changes"},
    {"jwks", 0, PST_OPT_STR, offsetof(gateway_opts, jwks), "FILE|URL", NULL,
     "keys (JWKS) of an identity provider whose signed tokens (JWT, RS256 or ES256) let in, in place of the token; a file is read again "
     "when it "
     "changes, an address (https; http on this computer) is asked again when its max-age is over, and for a key that is not known"},
    {"jwks-ca", 0, PST_OPT_STR, offsetof(gateway_opts, jwks_ca), "FILE", NULL, "who vouches for that address, in PEM [the system's]"},
    {"jwt-issuer", 0, PST_OPT_STR, offsetof(gateway_opts, issuer), "ISS", NULL, "the issuer (iss) that such a token must name"},
    {"jwt-audience", 0, PST_OPT_STR, offsetof(gateway_opts, audience), "AUD", NULL, "the audience (aud) that it must be for"},
    {"jwt-role", 0, PST_OPT_STR, offsetof(gateway_opts, jwt_role), "ROLE", "user",
     "the role of a token that has no roles (claims roles, role; groups with none of ours) and whose subject is in no line of --users; "
     "none: it "
     "is refused"},
    {"user-rate", 0, PST_OPT_INT, offsetof(gateway_opts, user_rate), "N 0..1000000", "200",
     "requests a second that one user may send under --users and --jwks; beyond: 429 with Retry-After; 0 = any number"},
    {"user-burst", 0, PST_OPT_INT, offsetof(gateway_opts, user_burst), "N 1..1000000", "1000",
     "how many of them may come at once after a pause"},
    {"models-mib", 0, PST_OPT_INT, offsetof(gateway_opts, models_mib), "MIB 16..1048576", "1024",
     "memory for models that answer requests (/v2); those asked for longest ago are closed for others"},
    {"infer-seconds", 0, PST_OPT_INT, offsetof(gateway_opts, infer_seconds), "S 1..3600", "30",
     "an inference request is answered within this time, or refused (504)"},
    {"host", 0, PST_OPT_LIST, offsetof(gateway_opts, hosts), "NAME", NULL, "accept this name in the Host header too; repeat for more"},
};
const pst_usage pst_gateway_usage = {"gateway",
                                     "",
                                     "Serve the page, the HTTP API and server-sent events.",
                                     "A thin front of the topics: what it takes it publishes, what it shows it has read. /health "
                                     "/metrics /v1/jobs /events/stream, registered models at /v2, and the page at /.",
                                     "penstock gateway --port 8080\n"
                                     "A=\"Authorization: Bearer $(cat ~/.local/state/penstock/token)\"\n"
                                     "curl -N -H \"$A\" http://127.0.0.1:8080/events/stream?topics=jobs.events\n"
                                     "curl -H \"$A\" -H Content-Type:application/yaml --data-binary @manifest.yml "
                                     "http://127.0.0.1:8080/v1/jobs",
                                     gateway_table,
                                     sizeof gateway_table / sizeof *gateway_table,
                                     false};

static void drained(void *arg)
{
    pst_loop_stop(arg);
}

static void on_stop(void *arg)
{
    gw_state *g = arg;
    pst_http_drain(g->http, drained, g->loop);
}

static int make_token(const char *state_dir, char **ret_token, pst_err *err)
{
    const char *wanted = getenv("PENSTOCK_TOKEN");
    int rc = pst_fs_mkdirs(state_dir, 0700, err);
    return rc ? rc : pst_token_make(state_dir, wanted && *wanted ? wanted : NULL, ret_token, err);
}

static int use_users(gw_state *g, const gateway_opts *o, pst_err *err)
{
    gw_users *users = NULL;
    gw_bearer *bearer = NULL;
    if (!o->jwks && (o->issuer || o->audience))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "--jwt-issuer and --jwt-audience are about tokens of --jwks FILE: give that, or leave them out");
    if (o->jwks_ca && !(o->jwks && strstr(o->jwks, "://")))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "--jwks-ca is about an address: give --jwks URL, or leave it out");
    if (o->jwks && !o->audience)
        pst_log(
            PST_LOG_WARN, "gateway",
            "event=any_audience reason=\"--jwks without --jwt-audience: tokens that the provider made for other services let in, too\"");
    unsigned role = gw_role_parse(o->jwt_role, strlen(o->jwt_role));
    if (!role && strcmp(o->jwt_role, "none") != 0)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--jwt-role %s: there is viewer, user, operator, and none",
                           o->jwt_role);
    int rc = o->users ? gw_users_open(o->users, &users, err) : 0;
    if (!rc)
        rc = gw_bearer_new(
            &(gw_bearer_conf){.path = o->jwks, .ca_file = o->jwks_ca, .issuer = o->issuer, .audience = o->audience, .roles = role}, &bearer,
            err);
    if (rc < 0)
        gw_users_free(users);
    else
        rc = gw_who_use_users(g->who, g->loop, users, bearer, err);
    char *kept = pst_fs_join(pst_setting_full(&g->client->settings->state_dir), "logged-out.json");
    if (!rc)
        rc = gw_who_remember(g->who, kept, err);
    free(kept);
    gw_who_limit(g->who, (int)o->user_rate, (int)o->user_burst);
    return rc;
}

/* Who is asked for what; on the server that listens already, before its first request. */
static int let_in(gw_state *g, const gateway_opts *o, pst_err *err)
{
    bool asks = !strcmp(o->auth, "token");
    char *token = NULL;
    int rc = 0;
    if (!asks && strcmp(o->auth, "none"))
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--auth %s: there is token, and none", o->auth);
    else if (!asks && (o->users || o->jwks || o->issuer || o->audience))
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                         "--auth none asks nobody, --users and --jwks ask everybody: leave one of them out");
    else if (!asks && !pst_http_is_loopback(g->http))
        rc =
            pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                        "--auth none with --listen %s would let everybody on the network run programs here; leave --auth out, or listen on "
                        "127.0.0.1",
                        o->listen);
    else if (asks && !pst_http_is_loopback(g->http) && !pst_http_is_tls(g->http))
        pst_log(PST_LOG_WARN, "gateway",
                "event=no_tls listen=%s reason=\"passwords and tokens can be read on their way here: give --tls-cert and --tls-key, or let "
                "nobody but a proxy with TLS reach this port\"",
                o->listen);
    if (!rc && asks)
        rc = make_token(g->client->settings->state_dir.value, &token, err);
    if (!rc) {
        g->who = gw_who_new(token);
        if (o->users || o->jwks || o->issuer || o->audience)
            rc = use_users(g, o, err);
    }
    if (!rc)
        gw_who_guard(g->who, g->http);
    free(token);
    return rc;
}

/* The description of all routes is the same for every request, so it is written once. */
static char *describe(void)
{
    json_t *j = pst_gateway_openapi();
    char *text = pst_json_text(j);
    json_decref(j);
    return text;
}

enum { LOOK_AGAIN_US = 250000 };

static void look_again(void *arg)
{
    gw_hub_again(arg);
}

static const char *owner_of(void *arg, const char *training_id)
{
    return gw_owners_of(arg, training_id);
}

/* What failed leaves the rest NULL: take_apart frees what is there. */
static int wire(gw_state *g, const gateway_opts *o, pst_err *err)
{
    static const char *const types[] = {"application/json", "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", NULL};
    const char *names[34] = {0};
    for (size_t i = 0; i < o->hosts.n && i < 32; i++)
        names[i] = o->hosts.items[i];
    pst_http_conf conf = {.listen = o->listen,
                          .port = (int)o->port,
                          .tls_cert = o->tls_cert,
                          .tls_key = o->tls_key,
                          .name = "gateway",
                          .hosts = names,
                          .types = types};
    int rc = pst_loop_new(&g->loop, err);
    if (!rc)
        rc = pst_http_new(g->loop, &conf, &g->http, err);
    if (!rc)
        rc = let_in(g, o, err);
    if (rc < 0)
        return rc;
    g->metrics = pst_metrics_new();
    g->submitted = pst_metric_of(g->metrics, PST_METRIC_GATEWAY_PUBLISHED, NULL);
    g->refused = pst_metric_of(g->metrics, PST_METRIC_GATEWAY_REFUSED, NULL);
    g->streams = pst_metric_of(g->metrics, PST_METRIC_GATEWAY_STREAMS, NULL);
    g->hub = gw_hub_new();
    g->owners = gw_owners_new(g);
    gw_hub_set_owners(g->hub, owner_of, g->owners);
    g->look_again = pst_timer_new(g->loop, LOOK_AGAIN_US, LOOK_AGAIN_US, look_again, g->hub);
    g->description = describe();
    gw_routes_add(g->http, g);
    if (!strncmp(g->client->settings->store.value, "memory:", 7))
        rc = pst_view_start(g->client, "memory:", &g->view, err);
    if (rc >= 0)
        rc = gw_publisher_new(g, &g->publisher, err);
    if (rc >= 0 && (o->users || o->jwks))
        rc = gw_audit_start(g, &g->audit, err);
    if (rc >= 0)
        rc = gw_feed_start(g, &g->feed, err);
    if (rc >= 0)
        rc = pst_dump_new("gateway", gw_dump, g, &g->dump, err);
    if (rc >= 0 && g->serve)
        rc = g->serve->open(&(pst_serving_conf){.settings = g->client->settings,
                                                .metrics = g->metrics,
                                                .bytes_max = (size_t)o->models_mib << 20,
                                                .ms_max = (int)o->infer_seconds * 1000},
                            &g->serving, err);
    if (rc < 0)
        return rc;
    pst_loop_set_dump(g->loop, g->dump);
    return 0;
}

static void take_apart(gw_state *g)
{
    bool served = g->feed != NULL; /* else nothing was asked, and who is asked for what may not be settled: nobody is let in any more */
    gw_who_stop(g->who);           /* first: whose password was right meanwhile goes on to his handler, which finds all that follows */
    gw_feed_stop(g->feed);
    if (g->serve)
        g->serve->close(g->serving); /* answers what is left */
    g->serving = NULL;
    g->feed = NULL; /* requests may still come while the loop runs on for the threads: their answers are posted to it */
    for (int i = 0; served && g->readers + g->pours + g->uploads + g->pages + g->tasks + g->afters > 0 && i < 500; i++)
        pst_loop_run_for(g->loop, 20);
    if (served)
        pst_loop_run_for(g->loop, 20); /* and the last ones are taken there */
    gw_publisher_free(g->publisher);
    gw_facts_end(g);
    gw_mlflow_stop(g);
    gw_await_end(g);
    gw_who_free(g->who);
    gw_audit_free(g->audit);
    pst_http_free(g->http);
    pst_view_stop(g->view);
    pst_store_close(g->store);
    gw_owners_free(g->owners);
    pst_metrics_free(g->metrics);
    pst_timer_free(g->look_again);
    pst_loop_free(g->loop);
    pst_dump_free(g->dump);
    free(g->description);
    free(g->recent);
    gw_hub_free(g->hub); /* after the output buffers, which end with the loop: they hold pieces that the hub counts */
}

static int loop(gw_state *g)
{
    pst_log(PST_LOG_INFO, "gateway", "event=listening url=%s", pst_http_url(g->http));
    pst_loop_on_stop(g->loop, on_stop, g);
    pst_loop_run(g->loop);
    pst_log(PST_LOG_INFO, "gateway", "event=stopped");
    return PST_OK;
}

int pst_gateway_run(int argc, char **argv, const pst_serving_ops *serving, const pst_scoring_ops *scoring)
{
    gateway_opts o = {0};
    gw_state g = {.serve = serving, .scoring = scoring};
    pst_verb_run v;
    int status = pst_verb_begin(&v, &pst_gateway_usage, argc, argv, &o, 0, 0);
    if (status >= 0)
        return status;
    g.client = v.client;
    int rc = wire(&g, &o, &v.err);
    if (!rc)
        rc = loop(&g);
    take_apart(&g);
    free(o.hosts.items);
    return pst_verb_end(&v, rc);
}
