/* registry_main.c - `penstock registry`: a schema registry for development and small sites, kept in a topic as Confluent's is: config, wire, loop,
 * drain. It opens no client as other verbs do, since a client's first question would go to the registry. */
#include "common/base/fs.h"
#include "common/base/log.h"
#include "common/base/opt.h"
#include "common/base/secret.h"
#include "common/platform/client.h"
#include "common/platform/verb.h"
#include "deploy/registry/registry_server.h"
#include "verbs.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct registry_opts {
    int64_t port;
    const char *listen, *topic, *password;
    pst_opt_list hosts;
    bool force;
} registry_opts;

static const pst_opt opts[] = {
    {"port", 0, PST_OPT_INT, offsetof(registry_opts, port), "N 0..65535", "8081", "port to listen on; 0 = any free one, printed on stdout"},
    {"listen", 0, PST_OPT_STR, offsetof(registry_opts, listen), "ADDRESS", "127.0.0.1",
     "address to listen on; others than loopback need --password"},
    {"host", 0, PST_OPT_LIST, offsetof(registry_opts, hosts), "NAME", NULL, "accept this name in the Host header too; repeat for more"},
    {"password", 0, PST_OPT_STR, offsetof(registry_opts, password), "@FILE", NULL,
     "ask every client for basic auth with the password in that file (or the text itself); -X basic.auth.user.info asks for a user, too"},
    {"topic", 0, PST_OPT_STR, offsetof(registry_opts, topic), "T", "_schemas", "compacted topic with one partition that holds everything"},
    {"force", 0, PST_OPT_BOOL, offsetof(registry_opts, force), NULL, NULL,
     "take the topic over from another registry that is at work on it"},
};

static const pst_usage usage = {
    .verb = "registry",
    .args = "",
    .summary = "Run a schema registry (Confluent-compatible REST, Avro).",
    .text = "Schemas live in a compacted Kafka topic in the format that Confluent's registry uses, and survive restarts. One registry "
            "writes a\n"
            "topic at a time. Meant for development and small sites; with --registry URL every other verb uses any registry you have.",
    .examples = "penstock registry\npenstock registry --port 0 -b broker:9092\ncurl localhost:8081/subjects",
    .opts = opts,
    .n_opts = sizeof opts / sizeof *opts,
};

typedef struct service {
    pst_loop *loop;
    pst_bus_conf *bus;
    char *password, *token_path;
    rserver *server;
    pst_dump *dump;
} service;

static void on_drained(void *arg)
{
    pst_loop_stop(((service *)arg)->loop);
}

static void on_stop(void *arg)
{
    service *s = arg;
    pst_log(PST_LOG_INFO, "registry", "event=draining");
    rserver_drain(s->server, on_drained, s);
}

static void on_fatal(void *arg)
{
    pst_loop_stop(((service *)arg)->loop);
}

/* @FILE, or the text itself, which is hidden from the list of processes at once. */
static int read_password(const char *given, char **ret_password, pst_err *err)
{
    if (!given)
        return PST_OK;
    if (*given != '@') {
        *ret_password = pst_strdup(given);
        pst_secret_hide(given);
        return PST_OK;
    }
    pst_buf b = {0};
    int rc = pst_fs_read(given + 1, 4096, &b, err);
    if (rc == PST_OK) {
        b.len = strcspn(b.data ? b.data : "", "\r\n");
        *ret_password = pst_strndup(b.data ? b.data : "", b.len);
    }
    pst_buf_done(&b);
    if (rc == PST_OK && !**ret_password)
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--password %s: the file holds no password", given);
    return rc;
}

static int wire(service *s, const registry_opts *o, const pst_settings *settings, pst_err *err)
{
    const char *names[34] = {0};
    for (size_t i = 0; i < o->hosts.n && i < 32; i++)
        names[i] = o->hosts.items[i];
    s->token_path = pst_token_path(settings->state_dir.value);
    int rc = read_password(o->password, &s->password, err);
    if (rc == PST_OK)
        rc = pst_client_bus_conf(settings, "penstock-registry", &s->bus, err);
    if (rc == PST_OK)
        rc = pst_loop_new(&s->loop, err);
    rserver_conf conf = {.bus = s->bus,
                         .topic = o->topic,
                         .embedded = settings->embedded,
                         .force = o->force,
                         .listen = o->listen,
                         .port = (int)o->port,
                         .hosts = names,
                         .user = s->password && !settings->registry_user ? "" : settings->registry_user,
                         .password = s->password ? s->password : settings->registry_password,
                         .token_path = s->token_path};
    if (rc == PST_OK)
        rc = rserver_new(s->loop, &conf, on_fatal, s, &s->server, err);
    if (rc == PST_OK)
        rc = pst_dump_new("registry", rserver_dump, s->server, &s->dump, err);
    return rc;
}

/* Until it is told to stop and all is answered, or cannot go on. */
static int loop(service *s, pst_err *err)
{
    rserver_set_dump(s->server, s->dump);
    pst_loop_on_stop(s->loop, on_stop, s);
    pst_loop_run(s->loop);
    const pst_err *failure = rserver_failure(s->server);
    if (failure)
        return pst_err_set(err, failure->code, failure->cls, failure->origin, failure->native, "%s", failure->text);
    pst_log(PST_LOG_INFO, "registry", "event=stopped");
    return PST_OK;
}

static void take_apart(service *s)
{
    rserver_free(s->server);
    pst_loop_free(s->loop);
    pst_dump_free(s->dump);
    pst_bus_conf_free(s->bus);
    free(s->password);
    free(s->token_path);
}

static int run(int argc, char **argv)
{
    registry_opts o = {0};
    service s = {0};
    pst_verb_run v;
    int status = pst_verb_parse(&v, &usage, argc, argv, &o, 0, 0);
    if (status >= 0)
        return status;
    int rc = wire(&s, &o, &v.settings, &v.err);
    if (rc == PST_OK) {
        pst_log(PST_LOG_INFO, "registry", "event=listening url=%s topic=%s bootstrap=%s", rserver_url(s.server), o.topic,
                v.settings.bootstrap.value);
        printf("%s\n", rserver_url(s.server));
        fflush(stdout);
        rc = loop(&s, &v.err);
    }
    take_apart(&s);
    free(o.hosts.items);
    return pst_verb_end(&v, rc);
}

const pst_verb pst_registry_verb = {"registry", "a schema registry for development (Confluent's REST)", "services", run,
                                    PST_USAGES(&usage)};
