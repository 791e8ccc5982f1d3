/* models_publish.c - registering artefacts, moving aliases, deleting: thin calls that publish ModelEvents.
 *
 * The topic has one partition, so its order decides between writers: a version number belongs to whoever's registration comes first. A
 * writer publishes its guess, reads back, and tries the next number if it lost; losers' events are ignored by every view alike. */
#include "common/platform/models.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "engine/penstock_engine.h"
#include "common/bus/bus.h"
#include "common/objects/objects.h"
#include "common/platform/client.h"
#include "schemas/avro.h"
#include "schemas/events.h"

#include <stdlib.h>
#include <string.h>

enum { PUBLISH_TIMEOUT_MS = 30000, RACES_MAX = 20, RACE_PAUSE_MS = 50 };

static void take_signature(const pst_value_info *infos, size_t n, pst_tensor_signature **ret, size_t *ret_n)
{
    pst_tensor_signature *s = pst_alloc((n + 1) * sizeof(*s));
    for (size_t i = 0; i < n; i++) {
        s[i].name = pst_strdup(infos[i].name);
        s[i].dtype = pst_strdup(pst_dtype_name(infos[i].dtype));
        size_t rank = infos[i].rank > 0 ? (size_t)infos[i].rank : 0;
        s[i].shape = rank ? pst_alloc(rank * sizeof(*s[i].shape)) : NULL;
        s[i].n_shape = rank;
        for (size_t d = 0; d < rank; d++)
            s[i].shape[d] = infos[i].dims[d];
    }
    *ret = s;
    *ret_n = n;
}

/* The fields named by the mapping that a model carries in its own metadata. */
static void take_features(const pst_model *model, pst_model_event *e)
{
    const char *text = pst_model_meta(model, "penstock.features");
    json_t *list = NULL;
    if (!text || pst_json_parse(text, strlen(text), "penstock.features", &list, NULL) < 0)
        return;
    size_t n = json_array_size(list);
    e->features = pst_alloc((n + 1) * sizeof(*e->features));
    for (size_t i = 0; i < n; i++) {
        json_t *f = json_array_get(list, i);
        const char *field = json_is_string(f) ? json_string_value(f) : pst_json_str(f, "field", NULL);
        if (field)
            e->features[e->n_features++] = pst_strdup(field);
    }
    json_decref(list);
}

/* Looks at the artefact: a file that is no model is refused; one with operators beyond the engine is registered without a signature, since
 * other programs may well use it. */
static int inspect(const pst_model_draft *d, pst_model_event *e, pst_err *err)
{
    pst_model *model = NULL;
    pst_err why = {0};
    int rc = pst_model_load_file(d->path, NULL, &model, &why);
    if (rc == PST_EUNSUPPORTED) {
        if (!e->reason)
            e->reason = pst_sprintf("not scored by penstock's engine: %s", why.text);
        return 0;
    }
    if (rc < 0) {
        if (err && !err->code)
            *err = why;
        return rc;
    }
    const pst_model_info *info = pst_model_info_get(model);
    free(e->format);
    e->format = pst_strdup(info->format);
    take_signature(info->inputs, info->n_inputs, &e->inputs, &e->n_inputs);
    take_signature(info->outputs, info->n_outputs, &e->outputs, &e->n_outputs);
    take_features(model, e);
    const char *remark = pst_model_meta(model, "native.remark");
    if (remark) {
        char *both = pst_sprintf("%s%s%s", e->reason ? e->reason : "", e->reason ? "; " : "", remark);
        free(e->reason);
        e->reason = both;
    }
    pst_model_unref(model);
    return 0;
}

static void take_extra(const pst_model_event *x, pst_model_event *e)
{
    pst_model_event copy;
    pst_event_copy(&pst_model_event_type, x, &copy);
    if (copy.n_features) {
        for (size_t i = 0; i < e->n_features; i++)
            free(e->features[i]);
        free(e->features);
        e->features = copy.features;
        e->n_features = copy.n_features;
        copy.features = NULL;
        copy.n_features = 0;
    }
    e->trained_on = copy.trained_on;
    e->n_trained_on = copy.n_trained_on;
    copy.trained_on = NULL;
    copy.n_trained_on = 0;
    e->metrics = copy.metrics;
    e->n_metrics = copy.n_metrics;
    copy.metrics = NULL;
    copy.n_metrics = 0;
    pst_event_clear(&pst_model_event_type, &copy);
}

static bool text_equal(const char *a, const char *b)
{
    return !strcmp(a ? a : "", b ? b : "");
}

typedef struct twin {
    const pst_model_event *of;
    pst_model_event found;
    bool yes;
} twin;

/* Same artefact out of the same training and generation: the same version, however often it is registered. */
static void find_twin(void *arg, const pst_model_event *v, const char *aliases)
{
    twin *t = arg;
    if (t->yes || strcmp(v->digest, t->of->digest) != 0 || !text_equal(v->training_id, t->of->training_id) ||
        (v->has_generation ? v->generation : 0) != (t->of->has_generation ? t->of->generation : 0))
        return;
    pst_event_copy(&pst_model_event_type, v, &t->found);
    t->yes = true;
}

static int publish(pst_client *c, const pst_model_event *e, int64_t *ret_offset, pst_err *err)
{
    return pst_client_publish(c, PST_TOPIC_MODELS, &pst_model_event_type, e->name, e, PUBLISH_TIMEOUT_MS, NULL, ret_offset, err);
}

/* A topic that the broker would create by itself might have several partitions, and then no order between writers. */
static int ensure_topic(pst_client *c, pst_err *err)
{
    pst_topic_info info = {0};
    pst_err e = {0};
    int rc = pst_admin_topic(c->bus, pst_client_topic(c, PST_TOPIC_MODELS), &info, 15000, &e);
    pst_topic_info_done(&info);
    if (rc == PST_ENOTFOUND)
        return pst_client_create_topics(c, err);
    if (rc < 0 && err && !err->code)
        *err = e;
    return rc;
}

/* Publishes e under the next free number until it is the one that counts. e becomes the version as registered. */
static int claim_version(pst_client *c, pst_model_event *e, pst_err *err)
{
    int made = ensure_topic(c, err);
    if (made < 0)
        return made;
    for (int race = 0; race < RACES_MAX; race++) {
        pst_models *view = pst_models_new();
        int rc = pst_models_load(view, c, err);
        twin t = {.of = e};
        if (rc == 0) {
            pst_models_each(view, e->name, find_twin, &t);
            e->version = pst_models_next_version(view, e->name);
        }
        pst_models_free(view);
        if (rc < 0)
            return rc;
        if (t.yes) {
            pst_event_clear(&pst_model_event_type, e);
            *e = t.found;
            return 0;
        }
        e->time = pst_now_us();
        if ((rc = publish(c, e, NULL, err)) < 0)
            return rc;
        view = pst_models_new();
        rc = pst_models_load(view, c, err);
        const pst_model_event *winner = rc == 0 ? pst_models_resolve(view, e->name, NULL, e->version) : NULL;
        bool ours = winner && winner->time == e->time && !strcmp(winner->digest, e->digest) && !strcmp(winner->actor, e->actor);
        pst_models_free(view);
        if (rc < 0 || ours)
            return rc;
        pst_sleep_ms(RACE_PAUSE_MS *
                     (1 + (int)((unsigned)(e->time ^ race * 2654435761u) % (unsigned)(race + 1)))); /* not in step with the others */
    }
    /* No outage: whoever tried again without end would fill the topic with registrations that do not count. */
    return pst_err_set(err, PST_EAGAIN, PST_CLASS_DATA, "models", 0, "model %s: others took the version number first, %d times in a row",
                       e->name, RACES_MAX);
}

int pst_models_register(pst_client *c, pst_objects *o, const pst_model_draft *d, pst_model_event *ret_event, pst_err *err)
{
    if (!d->name || !pst_model_name_ok(d->name))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "models", 0,
                           "\"%.80s\" is no model name: letters, digits, dot, dash and underscore, at most 200", d->name ? d->name : "");
    if (d->alias && !pst_model_name_ok(d->alias))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "models", 0, "\"%.80s\" is no alias: letters, digits, dot, dash and underscore",
                           d->alias);
    pst_model_event e = {.type = PST_MODEL_EVENT_TYPE_VERSION_REGISTERED};
    char *key = NULL;
    pst_buf data = {0};
    char sha[65];
    e.name = pst_strdup(d->name);
    e.format = pst_strdup(d->format ? d->format : "onnx");
    e.digest = pst_strdup("");
    e.uri = pst_strdup("");
    e.actor = pst_strdup(d->actor ? d->actor : "");
    e.reason = pst_strdup(d->reason);
    e.training_id = pst_strdup(d->training_id);
    e.has_generation = d->generation > 0;
    e.generation = d->generation;
    int rc = strcmp(e.format, "onnx") ? 0 : inspect(d, &e, err);
    if (rc < 0)
        goto out;
    if (d->extra)
        take_extra(d->extra, &e);
    /* Read once: the bytes that are hashed are the bytes that are stored, whatever happens to the file meanwhile. */
    rc = pst_fs_read(d->path, (size_t)512 << 20, &data, err);
    if (rc < 0)
        goto out;
    pst_sha256_hex(data.data ? data.data : "", data.len, sha);
    free(e.digest);
    e.digest = pst_strdup(sha);
    e.bytes = (int64_t)data.len;
    key = pst_sprintf("models/%s/%s.%s", d->name, sha, e.format);
    free(e.uri);
    e.uri = NULL;
    /* In this order: a version that others see has its artefact, an alias its version. */
    rc = pst_objects_put(o, key, data.data ? data.data : "", data.len, &e.uri, err);
    if (rc == 0 && d->publishes)
        rc = d->publishes(d->publishes_arg, err);
    if (rc >= 0)
        rc = claim_version(c, &e, err);
    if (rc >= 0 && d->alias)
        rc = pst_models_set_alias(c, d->name, d->alias, e.version, d->actor, d->reason, NULL, err);
out:
    if (rc == 0 && ret_event)
        *ret_event = e;
    else
        pst_event_clear(&pst_model_event_type, &e);
    pst_buf_done(&data);
    free(key);
    return rc;
}

/* Loads the view and finds one version, for the calls that refer to one. */
static int expect_version(pst_client *c, const char *name, int version, pst_models **ret_view, pst_err *err)
{
    pst_models *view = pst_models_new();
    int rc = pst_models_load(view, c, err);
    if (rc == 0 && !pst_models_resolve(view, name, NULL, version))
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "models", 0,
                         "there is no version %d of model %s; `penstock models list` shows what there is", version, name);
    if (rc < 0)
        pst_models_free(view);
    else
        *ret_view = view;
    return rc;
}

static int publish_short(pst_client *c, int type, const char *name, const char *alias, int version, const pst_effective_from *effective,
                         size_t n, const char *actor, const char *reason, int64_t *ret_offset, pst_err *err)
{
    pst_model_event borrowed = {.name = (char *)name,
                                .version = version,
                                .type = type,
                                .alias = (char *)alias,
                                .digest = (char *)"",
                                .uri = (char *)"",
                                .format = (char *)"onnx",
                                .actor = (char *)(actor ? actor : ""),
                                .reason = (char *)reason,
                                .time = pst_now_us(),
                                .effective = (pst_effective_from *)effective,
                                .n_effective = n};
    return publish(c, &borrowed, ret_offset, err);
}

int pst_models_set_alias_from(pst_client *c, const char *name, const char *alias, int version, const pst_effective_from *effective,
                              size_t n, const char *actor, const char *reason, int64_t *ret_offset, pst_err *err)
{
    if (!pst_model_name_ok(alias) || !strcmp(alias, "latest"))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "models", 0,
                           "\"%.80s\" is no alias: letters, digits, dot, dash and underscore; \"latest\" always means the highest version",
                           alias);
    pst_models *view = NULL;
    int rc = expect_version(c, name, version, &view, err);
    if (rc < 0)
        return rc;
    pst_models_free(view);
    return publish_short(c, PST_MODEL_EVENT_TYPE_ALIAS_SET, name, alias, version, effective, n, actor, reason, ret_offset, err);
}

int pst_models_set_alias(pst_client *c, const char *name, const char *alias, int version, const char *actor, const char *reason,
                         int64_t *ret_offset, pst_err *err)
{
    return pst_models_set_alias_from(c, name, alias, version, NULL, 0, actor, reason, ret_offset, err);
}

typedef struct named {
    int version;
    char aliases[120];
} named;

static void find_aliases(void *arg, const pst_model_event *v, const char *aliases)
{
    named *n = arg;
    if (v->version == n->version)
        snprintf(n->aliases, sizeof(n->aliases), "%s", aliases);
}

int pst_models_delete(pst_client *c, const char *name, int version, const char *alias, const char *actor, int64_t *ret_offset, pst_err *err)
{
    pst_models *view = NULL;
    int rc;
    if (version > 0) {
        if ((rc = expect_version(c, name, version, &view, err)) < 0)
            return rc;
        named n = {.version = version};
        pst_models_each(view, name, find_aliases, &n);
        pst_models_free(view);
        if (n.aliases[0])
            return pst_err_set(err, PST_ESTATE, PST_CLASS_DATA, "models", 0,
                               "version %d of model %s is what the alias %s means; move or remove the alias first", version, name,
                               n.aliases);
        return publish_short(c, PST_MODEL_EVENT_TYPE_VERSION_DELETED, name, NULL, version, NULL, 0, actor, NULL, ret_offset, err);
    }
    view = pst_models_new();
    rc = pst_models_load(view, c, err);
    const pst_model_event *set = rc == 0 ? pst_models_alias(view, name, alias) : NULL;
    int was = set ? set->version : 0;
    pst_models_free(view);
    if (rc < 0)
        return rc;
    if (!was)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "models", 0, "model %s has no alias %s", name, alias);
    return publish_short(c, PST_MODEL_EVENT_TYPE_ALIAS_DELETED, name, alias, was, NULL, 0, actor, NULL, ret_offset, err);
}
