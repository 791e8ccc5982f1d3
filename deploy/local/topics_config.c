/* topics_config.c - the verbs `topics` (the platform's topics, what is in them, who may use them) and `config` (each setting and where it came from). */
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/platform/verb.h"
#include "deploy/local/acls.h"
#include "deploy/local/local.h"
#include "common/bus/bus.h"
#include "common/platform/client.h"
#include "schemas/topics.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct topics_opts {
    int64_t partitions, replication;
    bool commands;
    const char *component, *principal;
    pst_opt_list pipelines;
} topics_opts;

static const pst_opt topics_options[] = {
    {"partitions", 0, PST_OPT_INT, offsetof(topics_opts, partitions), "N 1..100000", NULL,
     "create NAME: this many; left out: the broker's default"},
    {"replication", 0, PST_OPT_INT, offsetof(topics_opts, replication), "N 1..1000", NULL,
     "create NAME: this many copies; left out: the broker's default"},
    {"commands", 0, PST_OPT_BOOL, offsetof(topics_opts, commands), NULL, NULL,
     "acls: as kafka-acls.sh commands; $BOOTSTRAP and $ADMIN are yours to set"},
    {"for", 0, PST_OPT_STR, offsetof(topics_opts, component), "COMPONENT", NULL, "acls: of this component only"},
    {"principal", 0, PST_OPT_STR, offsetof(topics_opts, principal), "P", "User:penstock-%s",
     "acls: who gets them; %s is the component's name"},
    {"pipeline", 0, PST_OPT_LIST, offsetof(topics_opts, pipelines), "FILE", NULL,
     "acls: the scorer's rights on this pipeline's topics, too; repeatable"}};

static const pst_usage topics_usage = {
    "topics",
    "list | create [NAME] | acls",
    "List the platform's topics with their sizes, create those missing or one of your own, print the ACLs that the platform needs.",
    "create without a name makes the platform's topics and registers every schema, if the registry answers. Retention and compaction come "
    "from\n"
    "schemas/topics.def, and so do the ACLs: the least rights of each component on a cluster with an authorizer. acls asks no broker.",
    "penstock topics list\npenstock topics create -b broker:9092 -F client.properties\npenstock topics create turbines --partitions 12\n"
    "penstock topics acls\npenstock topics acls --commands --for scorer --pipeline pipeline.yml",
    topics_options,
    sizeof topics_options / sizeof *topics_options,
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
    for (int t = 0; t < PST_TOPIC_COUNT; t++) {
        const pst_topic_def *d = pst_topic_get((pst_topic)t);
        pst_topic_info info = {0};
        pst_err e = {0};
        int rc = pst_admin_topic(c->bus, c->topics[t], &info, 10000, &e);
        if (rc < 0 && rc != PST_ENOTFOUND) {
            *err = e;
            return rc;
        }
        if (!json && t == 0)
            printf("%-28s %10s %12s  %-16s %s\n", "TOPIC", "PARTITIONS", "RECORDS", "CLEANUP", "HOLDS");
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

/* A topic of the user's own. One that is there already is left as it is; asked for with other partitions it is an error, not silence. */
static int topics_create_one(pst_client *c, const char *name, const topics_opts *o, pst_err *err)
{
    pst_topic_info info = {0};
    pst_err e = {0};
    int rc = pst_admin_topic(c->bus, name, &info, 10000, &e);
    bool there = rc == 0;
    int have = info.partitions;
    pst_topic_info_done(&info);
    if (rc < 0 && rc != PST_ENOTFOUND) {
        *err = e;
        return rc;
    }
    if (there && o->partitions && o->partitions != have)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "topic %s is there already, with %d partitions, not %lld", name,
                           have, (long long)o->partitions);
    pst_topic_spec spec = {
        .name = name, .partitions = o->partitions ? (int)o->partitions : -1, .replication = o->replication ? (int)o->replication : -1};
    rc = there ? 0 : pst_admin_create_topics(c->bus, &spec, 1, 30000, err);
    if (rc < 0)
        return rc;
    if (!c->settings->quiet)
        fprintf(stderr, "%s %s\n", name, there ? "is there already" : "created");
    return 0;
}

static int topics_create_all(pst_client *c, pst_err *err)
{
    int rc = pst_client_create_topics(c, err);
    if (!rc)
        rc = pst_client_register_schemas(c, err);
    if (!rc && !c->settings->quiet)
        fprintf(stderr, "%d topics are there, their schemas registered at %s\n", PST_TOPIC_COUNT, c->settings->registry.value);
    return rc;
}

static int check_topics_words(const topics_opts *o, char **args, int n, pst_err *err)
{
    const char *what = n ? args[0] : "list";
    bool create = !strcmp(what, "create"), acls = !strcmp(what, "acls");
    if ((!create && !acls && strcmp(what, "list")) || n > (create ? 2 : 1))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "wanted `penstock topics list`, `topics create [NAME]` or `topics acls`");
    if ((o->partitions || o->replication) && !(create && n == 2))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "--partitions and --replication go with `topics create NAME`: the platform's own topics have theirs");
    if (!acls && (o->commands || o->component || o->pipelines.n))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--commands, --for and --pipeline go with `topics acls`");
    return 0;
}

static int topics_acls(const pst_settings *s, const topics_opts *o, pst_err *err)
{
    return local_acls_print(&(local_acls_opts){.prefix = s->prefix.value,
                                               .component = o->component,
                                               .principal = o->principal,
                                               .files = o->pipelines.items,
                                               .n_files = o->pipelines.n,
                                               .commands = o->commands,
                                               .json = s->json},
                            err);
}

static int topics_run(int argc, char **argv)
{
    topics_opts o = {0};
    pst_verb_run v;
    int status = pst_verb_parse(&v, &topics_usage, argc, argv, &o, 0, -1);
    if (status >= 0) {
        free(o.pipelines.items);
        return status;
    }
    int rc = check_topics_words(&o, v.args, v.n_args, &v.err);
    const char *what = v.n_args ? v.args[0] : "list";
    bool acls = !strcmp(what, "acls"); /* printed from the table: no broker is asked */
    if (!rc && acls)
        rc = topics_acls(&v.settings, &o, &v.err);
    else if (!rc)
        rc = pst_client_open(&v.settings, "penstock-topics", &v.client, &v.err);
    if (!rc && !strcmp(what, "list"))
        rc = topics_list(v.client, &v.err);
    else if (!rc && !acls && v.n_args == 2)
        rc = topics_create_one(v.client, v.args[1], &o, &v.err);
    else if (!rc && !acls)
        rc = topics_create_all(v.client, &v.err);
    free(o.pipelines.items);
    return pst_verb_end(&v, rc);
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

/* The settings as every service would see them, each with where it came from; secrets are masked in both forms. */
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
    explain_one(json, "debug", *s->debug.value ? s->debug.value : "(none)", s->debug.origin);
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
    pst_verb_run v;
    int none = 0, rc = 0, status = pst_verb_parse(&v, &config_usage, argc, argv, &none, 0, 1);
    if (status >= 0)
        return status;
    const char *what = v.n_args ? v.args[0] : "explain";
    if (!strcmp(what, "explain"))
        rc = explain(&v.settings, &v.err);
    else if (!strcmp(what, "properties"))
        rc = pst_bus_list_properties(stdout, &v.err);
    else
        rc = pst_err_set(&v.err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                         "wanted `penstock config explain` or `penstock config properties`");
    return pst_verb_end(&v, rc);
}

const pst_verb pst_topics_verb = {"topics", "list or create the platform's topics", "streams", topics_run, PST_USAGES(&topics_usage)};
const pst_verb pst_config_verb = {"config", "each setting and where it came from", "this computer", config_run, PST_USAGES(&config_usage)};
