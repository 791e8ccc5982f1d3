/* topics_config.c - the verbs `topics` (the platform's topics and what is in them) and `config` (each setting and where it came from). */
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/client/client.h"
#include "deploy/local/local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const pst_usage topics_usage = {
    "topics",
    "list|create",
    "List the platform's topics with their sizes, or create those missing.",
    "create also registers every schema, if the registry answers. Retention and compaction come from schemas/topics.def.",
    "penstock topics list\npenstock topics create -b broker:9092 -F client.properties",
    NULL,
    0,
    false};

static int64_t records(const pst_topic_info *t)
{
    int64_t sum = 0;
    for (int p = 0; p < t->partitions; p++)
        sum += t->high[p] - t->low[p];
    return sum;
}

static int topics_list(pst_client *c, pst_err *err)
{
    bool json = c->settings->json;
    if (!json)
        printf("%-28s %10s %12s  %-16s %s\n", "TOPIC", "PARTITIONS", "RECORDS", "CLEANUP", "HOLDS");
    for (int t = 0; t < PST_TOPIC_COUNT; t++) {
        const pst_topic_def *d = pst_topic_get((pst_topic)t);
        pst_topic_info info = {0};
        pst_err e = {0};
        int rc = pst_admin_topic(c->bus, c->topics[t], &info, 10000, &e);
        if (rc < 0 && rc != PST_ENOTFOUND) {
            *err = e;
            return rc;
        }
        if (json) {
            json_t *o = json_pack("{s:s, s:b, s:i, s:I, s:s, s:s, s:s}", "topic", c->topics[t], "exists", !rc, "partitions",
                                  rc ? 0 : info.partitions, "records", (json_int_t)(rc ? 0 : records(&info)), "cleanup", d->cleanup,
                                  "schema", d->type_name, "doc", d->doc);
            pst_json_print(stdout, o);
            json_decref(o);
        } else if (rc)
            printf("%-28s %10s %12s  %-16s %s\n", c->topics[t], "missing", "-", d->cleanup, d->doc);
        else
            printf("%-28s %10d %12lld  %-16s %s\n", c->topics[t], info.partitions, (long long)records(&info), d->cleanup, d->doc);
        pst_topic_info_done(&info);
    }
    return 0;
}

static int topics_run(int argc, char **argv)
{
    pst_settings s = {0};
    pst_err err = {0};
    char **args = NULL;
    pst_client *c = NULL;
    int n = 0, none = 0, rc = pst_opt_parse(&topics_usage, argc, argv, &none, &s, &args, &n, &err);
    if (rc == 1)
        return 0;
    const char *what = !rc && n ? args[0] : "list";
    if (!rc && (n > 1 || (strcmp(what, "list") && strcmp(what, "create"))))
        rc = pst_err_set(&err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "wanted `penstock topics list` or `penstock topics create`");
    if (!rc)
        rc = pst_client_open(&s, "penstock-topics", &c, &err);
    if (!rc && !strcmp(what, "list"))
        rc = topics_list(c, &err);
    else if (!rc) {
        rc = pst_client_create_topics(c, &err);
        if (!rc)
            rc = pst_client_register_schemas(c, &err);
        if (!rc && !s.quiet)
            fprintf(stderr, "%d topics are there, their schemas registered at %s\n", PST_TOPIC_COUNT, s.registry.value);
    }
    if (rc < 0)
        pst_say_err("topics", &err);
    pst_client_close(c);
    free(args);
    pst_settings_done(&s);
    return rc < 0 ? pst_err_exit(&err) : 0;
}

/* ---- config ---- */

static const pst_usage config_usage = {
    "config",
    "explain|properties",
    "Show each setting, its value and where it came from; or every Kafka property there is.",
    "Precedence: flag, -X, environment, -F file, profile, default. Secrets are masked.",
    "penstock config explain\npenstock config explain -F client.properties -X linger.ms=5\npenstock config properties",
    NULL,
    0,
    false};

static void explain_one(void *json, const char *name, const char *value, const char *origin)
{
    if (json)
        json_object_set_new(json, name, json_pack("{s:s, s:s}", "value", value, "origin", origin));
    else
        printf("%-26s %-44s %s\n", name, value, origin);
}

static int explain(const pst_settings *s, pst_err *err)
{
    pst_bus_conf *bus = NULL;
    int rc = pst_client_bus_conf(s, "penstock", &bus, err);
    if (rc < 0)
        return rc;
    json_t *json = s->json ? json_object() : NULL;
    const struct {
        const char *name;
        const pst_setting *v;
    } rows[] = {{"bootstrap-server", &s->bootstrap},
                {"registry", &s->registry},
                {"gateway", &s->gateway},
                {"state-dir", &s->state_dir},
                {"store", &s->store},
                {"objects", &s->objects},
                {"prefix", &s->prefix}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        explain_one(json, rows[i].name, rows[i].v->value, rows[i].v->origin);
    if (s->registry.secret)
        explain_one(json, "registry credentials", "********", s->registry.origin);
    if (s->store.secret)
        explain_one(json, "store credentials", "********", s->store.origin);
    explain_one(json, "token", s->token ? "********" : "(none)",
                getenv("PENSTOCK_TOKEN") ? "environment PENSTOCK_TOKEN" : "the state folder");
    if (s->registry_user)
        explain_one(json, "registry user", s->registry_user, "basic.auth.user.info");
    pst_bus_conf_each(bus, explain_one, json);
    if (json) {
        pst_json_print(stdout, json);
        json_decref(json);
    }
    pst_bus_conf_free(bus);
    return 0;
}

static int config_run(int argc, char **argv)
{
    pst_settings s = {0};
    pst_err err = {0};
    char **args = NULL;
    int n = 0, none = 0, rc = pst_opt_parse(&config_usage, argc, argv, &none, &s, &args, &n, &err);
    if (rc == 1)
        return 0;
    const char *what = !rc && n ? args[0] : "explain";
    if (!rc && !strcmp(what, "explain"))
        rc = explain(&s, &err);
    else if (!rc && !strcmp(what, "properties"))
        pst_bus_list_properties(stdout);
    else if (!rc)
        rc =
            pst_err_set(&err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "wanted `penstock config explain` or `penstock config properties`");
    if (rc < 0)
        pst_say_err("config", &err);
    free(args);
    pst_settings_done(&s);
    return rc < 0 ? pst_err_exit(&err) : 0;
}

const pst_verb pst_topics_verb = {"topics", "list or create the platform's topics", "streams", topics_run};
const pst_verb pst_config_verb = {"config", "each setting and where it came from", "this computer", config_run};
