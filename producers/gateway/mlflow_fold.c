/* mlflow_fold.c - records into what MLflow's clients ask for. Each fact replaces the one before it that says the same of the same thing, so it does not matter
 * whether the topic was compacted, nor in which order different facts come: a tag that is read before its run's creation is the run's all the same.
 * A platform's job is a run under its training id; the jobs of one name are the runs of the experiment that has this name.
 * All of it is under the view's lock. */
#include "producers/gateway/mlflow.h"

#include "common/base/hash.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- things ---------------------------------------------------------------------------------------------------------------- */

static void experiment_free(void *arg)
{
    gw_experiment *e = arg;
    free(e->id);
    free(e->name);
    json_decref(e->tags);
    free(e);
}

static void run_free(void *arg)
{
    gw_run *r = arg;
    free(r->id);
    free(r->experiment_id);
    free(r->user);
    json_decref(r->tags);
    json_decref(r->params);
    json_decref(r->metrics);
    json_decref(r->sent);
    free(r);
}

static void artifact_free(void *arg)
{
    gw_artifact *a = arg;
    free(a->uri);
    free(a->sha256);
    free(a);
}

static void note_free(void *arg)
{
    gw_model_note *n = arg;
    free(n->description);
    free(n->source);
    json_decref(n->tags);
    free(n);
}

static gw_experiment *experiment_of(gw_tracking *t, const char *id)
{
    gw_experiment *e = pst_map_get(&t->experiments, id);
    if (!e) {
        e = pst_alloc(sizeof *e);
        *e = (gw_experiment){.id = pst_strdup(id), .name = pst_strdup(id), .tags = json_object()};
        pst_map_put(&t->experiments, id, e);
    }
    return e;
}

static gw_run *run_of(gw_tracking *t, const char *id)
{
    gw_run *r = pst_map_get(&t->runs, id);
    if (!r) {
        r = pst_alloc(sizeof *r);
        *r = (gw_run){.id = pst_strdup(id),
                      .experiment_id = pst_strdup(GW_MLFLOW_DEFAULT),
                      .user = pst_strdup(""),
                      .status = "RUNNING",
                      .tags = json_object(),
                      .params = json_object(),
                      .metrics = json_object(),
                      .sent = json_object()};
        pst_map_put(&t->runs, id, r);
    }
    return r;
}

static gw_model_note *note_of(gw_tracking *t, const char *subject)
{
    gw_model_note *n = pst_map_get(&t->notes, subject);
    if (!n) {
        n = pst_alloc(sizeof *n);
        *n = (gw_model_note){.description = pst_strdup(""), .source = pst_strdup(""), .tags = json_object()};
        pst_map_put(&t->notes, subject, n);
    }
    return n;
}

gw_tracking *gw_tracking_new(void)
{
    gw_tracking *t = pst_alloc(sizeof *t);
    t->models = pst_models_new();
    gw_experiment *e = experiment_of(t, GW_MLFLOW_DEFAULT);
    free(e->name);
    e->name = pst_strdup("Default");
    e->created = true;
    return t;
}

void gw_tracking_free(gw_tracking *t)
{
    if (!t)
        return;
    pst_map_done(&t->experiments, experiment_free);
    pst_map_done(&t->runs, run_free);
    pst_map_done(&t->artifacts, artifact_free);
    pst_map_done(&t->notes, note_free);
    pst_map_done(&t->model_times, free);
    pst_models_free(t->models);
    free(t);
}

/* ---- facts ----------------------------------------------------------------------------------------------------------------- */

/* A text of a record that is no UTF-8 (somebody else wrote it) is left out: no answer could carry it. */
static void set_text(char **at, const char *text)
{
    json_t *valid = text ? json_string(text) : NULL;
    free(*at);
    *at = pst_strdup(valid ? text : "");
    json_decref(valid);
}

static void set_pair(json_t *map, const char *key, const char *value)
{
    json_t *text = json_string(value);
    if (text)
        json_object_set_new(map, key, text);
}

static const char *status_of(const char *word)
{
    static const char *const all[] = {"RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i], word))
            return all[i];
    return "RUNNING";
}

static void take_experiment(gw_tracking *t, const char *id, pst_tracking_kind kind, const char *name, const pst_tracking_record *e,
                            int64_t record_ms)
{
    gw_experiment *x = experiment_of(t, id);
    if (!e) {
        if (kind == PST_TRACKING_KIND_TAG)
            json_object_del(x->tags, name);
        return;
    }
    x->updated_ms = e->time ? e->time / 1000 : record_ms;
    switch (kind) {
    case PST_TRACKING_KIND_CREATED:
        x->created = true;
        x->created_ms = x->updated_ms;
        set_text(&x->name, e->value);
        break;
    case PST_TRACKING_KIND_NAME: set_text(&x->name, e->value); break;
    case PST_TRACKING_KIND_LIFECYCLE: x->deleted = !strcmp(e->value, "deleted"); break;
    case PST_TRACKING_KIND_TAG: set_pair(x->tags, name, e->value); break;
    default: break;
    }
}

bool gw_tracking_newer(int64_t step_a, int64_t ms_a, double a, int64_t step_b, int64_t ms_b, double b)
{
    if (step_a != step_b)
        return step_a > step_b;
    if (ms_a != ms_b)
        return ms_a > ms_b;
    return isnan(b) ? !isnan(a) : a > b;
}

double gw_tracking_number(const json_t *metric)
{
    const json_t *v = json_object_get(metric, "value");
    const char *word = json_string_value(v);
    if (!word)
        return json_number_value(v);
    if (!strcmp(word, "NaN"))
        return NAN;
    return *word == '-' ? -INFINITY : INFINITY;
}

static bool is_newer_than(const json_t *old, int64_t step, int64_t ms, double value)
{
    return gw_tracking_newer(step, ms, value, pst_json_int(old, "step", 0), pst_json_int(old, "timestamp", 0), gw_tracking_number(old));
}

static bool is_older_than(const json_t *other, int64_t step, int64_t ms, double value)
{
    return gw_tracking_newer(pst_json_int(other, "step", 0), pst_json_int(other, "timestamp", 0), gw_tracking_number(other), step, ms,
                             value);
}

static void set_metric(json_t *map, const char *key, double value, int64_t ms, int64_t step)
{
    json_t *m =
        json_pack("{s:s, s:o, s:I, s:I}", "key", key, "value", pst_json_real(value), "timestamp", (json_int_t)ms, "step", (json_int_t)step);
    if (m)
        json_object_set_new(map, key, m);
}

/* However many there are: a fact was acknowledged. */
static void take_metric(gw_run *r, const char *key, double value, int64_t ms, int64_t step)
{
    const json_t *old = json_object_get(r->metrics, key), *sent = json_object_get(r->sent, key);
    if (sent && !is_older_than(sent, step, ms, value))
        json_object_del(r->sent, key);
    if (!old || is_newer_than(old, step, ms, value))
        set_metric(r->metrics, key, value, ms, step);
}

/* The topic keeps the last fact of a metric, so the last must say the newest point: who comes with an older one while the newest is not read back writes
 * the newest again. Should the first not have arrived, it is written by this all the same: its sender was told to send it again. */
bool gw_tracking_claim(gw_run *r, const char *key, int64_t *step, int64_t *ms, double *value)
{
    const json_t *old = json_object_get(r->metrics, key), *sent = json_object_get(r->sent, key);
    if (old && !is_newer_than(old, *step, *ms, *value))
        return false;
    if (sent && is_older_than(sent, *step, *ms, *value)) {
        *step = pst_json_int(sent, "step", 0);
        *ms = pst_json_int(sent, "timestamp", 0);
        *value = gw_tracking_number(sent);
    } else
        set_metric(r->sent, key, *value, *ms, *step);
    return true;
}

bool gw_tracking_knows(const gw_run *r, const char *key)
{
    return json_object_get(r->metrics, key) || json_object_get(r->sent, key);
}

size_t gw_tracking_metrics(const gw_run *r)
{
    size_t n = json_object_size(r->metrics);
    const char *key;
    json_t *value;
    json_object_foreach(r->sent, key, value) n += !json_object_get(r->metrics, key);
    return n;
}

static void take_run(gw_tracking *t, const char *id, pst_tracking_kind kind, const char *name, const pst_tracking_record *e,
                     int64_t record_ms)
{
    gw_run *r = run_of(t, id);
    if (!e) {
        if (kind == PST_TRACKING_KIND_TAG)
            json_object_del(r->tags, name);
        return;
    }
    switch (kind) {
    case PST_TRACKING_KIND_CREATED:
        r->created = true;
        set_text(&r->experiment_id, e->experiment_id);
        set_text(&r->user, e->value);
        r->start_ms = e->timestamp;
        r->since_us = (record_ms - 60000) * 1000;
        break;
    case PST_TRACKING_KIND_STATUS:
        if (r->job)
            break;
        r->status = status_of(e->value);
        r->end_ms = e->timestamp;
        break;
    case PST_TRACKING_KIND_LIFECYCLE: r->deleted = !strcmp(e->value, "deleted"); break;
    case PST_TRACKING_KIND_TAG: set_pair(r->tags, name, e->value); break;
    case PST_TRACKING_KIND_PARAM: set_pair(r->params, name, e->value); break;
    case PST_TRACKING_KIND_METRIC:
        take_metric(r, name, e->number, e->timestamp, e->step);
        if (e->points > r->points && e->points < INT64_C(1) << 53) /* somebody else may write there: a count can be counted on */
            r->points = e->points;
        break;
    default: break;
    }
}

static void take_note(gw_tracking *t, const char *subject, pst_tracking_kind kind, const char *name, const pst_tracking_record *e,
                      int64_t record_ms)
{
    gw_model_note *n = note_of(t, subject);
    if (!e) {
        if (kind == PST_TRACKING_KIND_TAG)
            json_object_del(n->tags, name);
        else if (kind == PST_TRACKING_KIND_CREATED)
            n->created = false;
        return;
    }
    n->updated_ms = e->time ? e->time / 1000 : record_ms;
    if (kind == PST_TRACKING_KIND_CREATED) {
        n->created = true;
        n->created_ms = n->updated_ms;
        set_text(&n->source, e->value);
    } else if (kind == PST_TRACKING_KIND_DESCRIPTION)
        set_text(&n->description, e->value);
    else if (kind == PST_TRACKING_KIND_TAG)
        set_pair(n->tags, name, e->value);
}

static void take_artifact(gw_tracking *t, const char *path, const pst_tracking_record *e)
{
    gw_artifact *old = NULL, *a = NULL;
    if (!e)
        old = pst_map_take(&t->artifacts, path);
    else {
        a = pst_alloc(sizeof *a);
        *a = (gw_artifact){pst_strdup(e->value), pst_strdup(e->sha256), e->bytes};
        old = pst_map_put(&t->artifacts, path, a);
    }
    if (old)
        artifact_free(old);
}

static pst_tracking_kind kind_of(const char *word, size_t n)
{
    for (int k = PST_TRACKING_KIND_CREATED; k <= PST_TRACKING_KIND_ARTIFACT; k++) {
        const char *text = pst_tracking_kind_text((pst_tracking_kind)k);
        if (strlen(text) == n && !strncmp(text, word, n))
            return (pst_tracking_kind)k;
    }
    return PST_TRACKING_KIND_UNKNOWN;
}

/* The key says what a fact is about, tombstones' too: subject/KIND/name. */
void gw_tracking_fact(gw_tracking *t, const char *key, const pst_tracking_record *e, int64_t record_ms)
{
    const char *slash = strchr(key, '/'), *second = slash ? strchr(slash + 1, '/') : NULL;
    if (!second)
        return;
    char *subject = pst_strndup(key, (size_t)(slash - key));
    pst_tracking_kind kind = kind_of(slash + 1, (size_t)(second - slash - 1));
    const char *name = second + 1;
    if (!strcmp(subject, "artifacts") && kind == PST_TRACKING_KIND_ARTIFACT)
        take_artifact(t, name, e);
    else if (!strncmp(subject, "experiment:", 11))
        take_experiment(t, subject + 11, kind, name, e, record_ms);
    else if (!strncmp(subject, "run:", 4))
        take_run(t, subject + 4, kind, name, e, record_ms);
    else if (!strncmp(subject, "model:", 6) || !strncmp(subject, "version:", 8))
        take_note(t, subject, kind, name, e, record_ms);
    free(subject);
}

/* ---- jobs, their metrics, models ------------------------------------------------------------------------------------------- */

static void digest_id(const char *name, int turn, char ret_id[24])
{
    uint8_t sum[32];
    uint64_t n = 0;
    char *text = turn ? pst_sprintf("%s\n%d", name, turn) : pst_strdup(name);
    pst_sha256_sum(text, strlen(text), sum);
    free(text);
    for (int i = 0; i < 8; i++)
        n = n << 8 | sum[i];
    snprintf(ret_id, 24, "%" PRIu64, UINT64_C(100000000000000000) + n % UINT64_C(900000000000000000));
}

void gw_tracking_experiment_id(gw_tracking *t, const char *name, char ret_id[24])
{
    int turn = 0;
    const gw_experiment *e;
    do {
        digest_id(name, turn++, ret_id);
        e = pst_map_get(&t->experiments, ret_id);
    } while (e && (e->created || e->jobs) && strcmp(e->name, name) != 0);
}

static const char *status_of_state(pst_job_public_state s)
{
    switch (s) {
    case PST_JOB_PUBLIC_STATE_QUEUED:
    case PST_JOB_PUBLIC_STATE_PENDING: return "SCHEDULED";
    case PST_JOB_PUBLIC_STATE_COMPLETED: return "FINISHED";
    case PST_JOB_PUBLIC_STATE_FAILED:
    case PST_JOB_PUBLIC_STATE_REJECTED: return "FAILED";
    case PST_JOB_PUBLIC_STATE_HALTED:
    case PST_JOB_PUBLIC_STATE_TERMINATED: return "KILLED";
    default: return "RUNNING";
    }
}

static void set_number(json_t *map, const char *key, double n)
{
    char text[32];
    snprintf(text, sizeof text, "%.15g", n);
    set_pair(map, key, text);
}

static void tell_job(gw_run *r, const pst_job_state *s)
{
    r->status = status_of_state(s->state);
    set_text(&r->user, s->user);
    r->start_ms = (s->has_started_at ? s->started_at : s->submitted_at) / 1000;
    r->end_ms = s->has_ended_at ? s->ended_at / 1000 : 0;
    r->since_us = s->submitted_at - 60 * 1000000LL;
    set_pair(r->tags, "mlflow.runName", s->name);
    set_pair(r->tags, "mlflow.user", s->user);
    set_pair(r->tags, "mlflow.source.type", "JOB");
    set_pair(r->tags, "mlflow.source.name", s->training_id);
    set_pair(r->tags, "penstock.training_id", s->training_id);
    set_pair(r->tags, "penstock.state", pst_job_public_state_text(s->state));
    set_pair(r->tags, "penstock.reason", s->reason ? s->reason : "");
    set_pair(r->tags, "penstock.queue", s->queue);
    if (s->model) {
        set_pair(r->tags, "penstock.model", s->model->name);
        set_number(r->tags, "penstock.model_version", s->model->version);
    }
    set_pair(r->params, "framework", s->framework);
    set_number(r->params, "learners", s->learners);
    set_number(r->params, "cpus", s->cpus);
    set_number(r->params, "gpus", s->gpus);
    set_number(r->params, "memory_bytes", (double)s->memory_bytes);
    set_number(r->params, "priority", s->priority);
}

void gw_tracking_job(gw_tracking *t, const char *training_id, const pst_job_state *s)
{
    if (s && s->state == PST_JOB_PUBLIC_STATE_UNKNOWN)
        return; /* requests that wait for their submission: no job yet */
    gw_run *r = s ? run_of(t, training_id) : pst_map_get(&t->runs, training_id);
    if (!r)
        return;
    if (s && !r->job) {
        char id[24];
        digest_id(s->name, 0, id);
        gw_experiment *e = experiment_of(t, id);
        if (!e->created && !e->jobs) {
            set_text(&e->name, s->name);
            e->created_ms = e->updated_ms = s->submitted_at / 1000;
        }
        e->jobs++;
        set_text(&r->experiment_id, id);
    }
    if (!s && r->job) {
        gw_experiment *e = pst_map_get(&t->experiments, r->experiment_id);
        if (e && e->jobs)
            e->jobs--;
    }
    r->job = s != NULL;
    if (s)
        tell_job(r, s);
}

const char *gw_tracking_metric(const pst_metric_point *p, const char *key, char *room, size_t size)
{
    if (!strcmp(p->process, "mlflow") || !strcmp(p->group, "train") || !*p->group)
        return key;
    snprintf(room, size, "%s/%s", p->group, key);
    return room;
}

/* Those of MLflow's clients come as facts, too, which are kept for ever. */
void gw_tracking_point(gw_tracking *t, const pst_metric_point *p)
{
    gw_run *r = pst_map_get(&t->runs, p->training_id);
    char room[600];
    if (!r || !r->job || !strcmp(p->process, "mlflow"))
        return;
    for (size_t i = 0; i < p->n_values; i++) {
        const char *key = gw_tracking_metric(p, p->values[i].key, room, sizeof room);
        if (json_object_get(r->metrics, key) || json_object_size(r->metrics) < GW_MLFLOW_KEYS_MAX)
            take_metric(r, key, p->values[i].value, p->time / 1000, p->has_step ? p->step : 0);
    }
}

/* A version's artefact is a file below models/NAME/NUMBER, so that clients fetch what others registered, too. */
static void take_version_file(gw_tracking *t, const pst_model_event *e)
{
    const char *end = !strncmp(e->format, "xgboost-ubj", 11) ? "ubj"
                      : strstr(e->format, "json")            ? "json"
                      : strstr(e->format, "text")            ? "txt"
                                                             : "onnx";
    char *path = pst_sprintf("models/%s/%d/model.%s", e->name, e->version, end);
    pst_tracking_record file = {.value = e->uri, .sha256 = e->digest, .bytes = e->bytes};
    take_artifact(t, path, &file);
    free(path);
}

static void drop_version_file(gw_tracking *t, const pst_model_event *e)
{
    static const char *const ends[] = {"ubj", "json", "txt", "onnx"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char *path = pst_sprintf("models/%s/%d/model.%s", e->name, e->version, ends[i]);
        take_artifact(t, path, NULL);
        free(path);
    }
}

void gw_tracking_model(gw_tracking *t, const pst_model_event *e)
{
    int64_t *at = pst_map_get(&t->model_times, e->name);
    if (!pst_models_apply(t->models, e))
        return;
    if (!at)
        pst_map_put(&t->model_times, e->name, at = pst_alloc(sizeof *at));
    *at = e->time;
    if (e->type == PST_MODEL_EVENT_TYPE_VERSION_REGISTERED)
        take_version_file(t, e);
    else if (e->type == PST_MODEL_EVENT_TYPE_VERSION_DELETED)
        drop_version_file(t, e);
}

/* ---- look-ups -------------------------------------------------------------------------------------------------------------- */

gw_experiment *gw_tracking_experiment(gw_tracking *t, const char *id)
{
    gw_experiment *e = pst_map_get(&t->experiments, id);
    return e && (e->created || e->jobs) ? e : NULL;
}

gw_experiment *gw_tracking_experiment_named(gw_tracking *t, const char *name)
{
    for (size_t i = 0; i < t->experiments.n; i++) {
        gw_experiment *e = t->experiments.at[i].key ? t->experiments.at[i].value : NULL;
        if (e && (e->created || e->jobs) && !strcmp(e->name, name))
            return e;
    }
    return NULL;
}

gw_run *gw_tracking_run(gw_tracking *t, const char *id)
{
    gw_run *r = pst_map_get(&t->runs, id);
    return r && (r->created || r->job) ? r : NULL;
}

gw_model_note *gw_tracking_note(gw_tracking *t, const char *subject)
{
    return pst_map_get(&t->notes, subject);
}
