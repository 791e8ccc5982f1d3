/* pipeline.c - the pipeline file: YAML → pst_pipeline. The keys, their limits and defaults are rows of pipeline_keys.c; an unknown key is an
 * error that names file, line and the nearest known key, since a silently ignored `treshold` would cost somebody a night. Values are read
 * through small getters that know where they are, so that every refusal says file:line, section and key. */
#include "inference/pipeline/pipeline.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "inference/pipeline/pipeline_feature.h"
#include "inference/pipeline/pipeline_keys.h"
#include "inference/pipeline/pipeline_published.h"
#include "inference/pipeline/pipeline_reader.h"
#include "inference/pipeline/pipeline_window.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* ---- sections -------------------------------------------------------------------------------------------------------------- */

/* A word, a time, or the older way to write a time: start: timestamp, and the time under a key of that name. */
static int read_start(pipeline_reader *r, const json_t *o, pst_pipeline *p)
{
    const char *key = "start";
    char *start = NULL;
    int64_t us = 0;
    int rc = pipeline_reader_str(r, o, "input", key, &start);
    if (rc < 0)
        return rc;
    if (start && !strcmp(start, "timestamp")) {
        key = "timestamp";
        free(start);
        start = NULL;
        if ((rc = pipeline_reader_str(r, o, "input", key, &start)) < 0)
            return rc;
    } else if (!start || !strcmp(start, "earliest")) {
        free(start);
        return 0;
    } else if (!strcmp(start, "latest")) {
        p->start = PST_START_LATEST;
        free(start);
        return 0;
    }
    if (!start || pst_time_parse(start, &us) < 0)
        rc = pipeline_reader_fail(r, pst_yaml_key_line(&r->y, o, "start"),
                                  "input.%s: expected earliest, latest, or a time (2026-11-21T01:00:00Z, or seconds since 1970)", key);
    p->start = PST_START_TIMESTAMP;
    p->start_ms = us / 1000;
    free(start);
    return rc;
}

static int read_input(pipeline_reader *r, const json_t *root, pst_pipeline *p)
{
    json_t *o;
    int rc, format = PST_INPUT_AVRO;
    if ((rc = pipeline_reader_section(r, root, "input", &o)) < 0)
        return rc;
    if ((rc = pipeline_reader_check_keys(r, o, "input")) < 0 ||
        (rc = pipeline_reader_texts(r, o, "input", "topics", &p->topics, &p->n_topics)) < 0 ||
        (rc = pipeline_reader_str(r, o, "input", "group", &p->group)) < 0 ||
        (rc = pipeline_reader_word(r, o, "input", "format", &format)) < 0)
        return rc;
    for (size_t i = 0; i < p->n_topics; i++)
        for (size_t k = 0; k < i; k++)
            if (!strcmp(p->topics[i], p->topics[k]))
                return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, o, "topics"), "input.topics: \"%.80s\" is there twice",
                                            p->topics[i]);
    p->format = (pst_input_format)format;
    return read_start(r, o, p);
}

static int read_choice(pipeline_reader *r, const json_t *o, const char *where, pst_model_choice *m)
{
    int64_t version = 0;
    int rc;
    if ((rc = pipeline_reader_str(r, o, where, "name", &m->name)) < 0 || (rc = pipeline_reader_str(r, o, where, "alias", &m->alias)) < 0 ||
        (rc = pipeline_reader_str(r, o, where, "file", &m->file)) < 0 || (rc = pipeline_reader_whole(r, o, where, "version", &version)) < 0)
        return rc;
    m->version = (int)version;
    if (m->alias && m->version)
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, o, "version"), "%s: give alias or version, not both", where);
    return 0;
}

static int read_model(pipeline_reader *r, const json_t *root, pst_pipeline *p)
{
    json_t *o;
    int rc;
    if ((rc = pipeline_reader_section(r, root, "model", &o)) < 0)
        return rc;
    if (!o)
        return pipeline_reader_fail(r, 1, "model is missing; write model: {name: NAME, alias: champion} or model: {file: model.onnx}");
    int line = pst_yaml_key_line(&r->y, root, "model");
    if ((rc = pipeline_reader_check_keys(r, o, "model")) < 0 || (rc = read_choice(r, o, "model", &p->model)) < 0)
        return rc;
    pst_model_choice *m = &p->model;
    if (!m->name && !m->file)
        return pipeline_reader_fail(r, line, "model: give name (with alias or version) or file");
    if (m->file && (m->alias || m->version))
        return pipeline_reader_fail(r, line, "model: a file has neither alias nor version");
    if (m->file && p->published)
        return pipeline_reader_fail(
            r, pst_yaml_key_line(&r->y, o, "file"),
            "model.file: \"%.100s\" is a file of one host, which a published pipeline may not read; register it (penstock "
            "models register %.100s --name NAME) and write model: {name: NAME}, or run the pipeline by hand (penstock "
            "score run)",
            m->file, m->file);
    if (m->file && m->file[0] != '/') { /* beside the pipeline file first, so that a folder can be moved as a whole */
        const char *slash = strrchr(r->y.file, '/');
        if (slash) {
            char *beside = pst_sprintf("%.*s/%s", (int)(slash - r->y.file), r->y.file, m->file);
            if (pst_fs_exists(beside) || !pst_fs_exists(m->file)) {
                free(m->file);
                m->file = beside;
                beside = NULL;
            }
            free(beside);
        }
    }
    return 0;
}

static int read_features(pipeline_reader *r, const json_t *root, pst_pipeline *p)
{
    json_t *list = json_object_get(root, "features");
    if (!list || json_is_null(list))
        return 0;
    int line = pst_yaml_key_line(&r->y, root, "features");
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n == 0)
        return pipeline_reader_fail(r, line, "features: expected a list of {field: name, …}; leave it out to use the model's own mapping");
    if (n > PST_PIPELINE_FEATURES_MAX)
        return pipeline_reader_fail(r, line, "features: %zu features are more than the limit of %d", n, PST_PIPELINE_FEATURES_MAX);
    p->has_features = true;
    p->features = pst_alloc(n * sizeof(*p->features));
    for (size_t i = 0; i < n; i++) {
        json_t *o = json_array_get(list, i);
        int at = pst_yaml_line(&r->y, o);
        p->n_features = i + 1;
        int rc = pipeline_feature_read(r, o, at ? at : line, &p->features[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int read_output(pipeline_reader *r, const json_t *root, pst_pipeline *p)
{
    json_t *o;
    int rc, format = 0;
    if ((rc = pipeline_reader_section(r, root, "output", &o)) < 0)
        return rc;
    if ((rc = pipeline_reader_check_keys(r, o, "output")) < 0 ||
        (rc = pipeline_reader_str(r, o, "output", "topic", &p->output_topic)) < 0 ||
        (rc = pipeline_reader_word(r, o, "output", "format", &format)) < 0 ||
        (rc = pipeline_reader_texts(r, o, "output", "passthrough", &p->passthrough, &p->n_passthrough)) < 0)
        return rc;
    p->slim = format == 1;
    if (p->slim && p->n_passthrough)
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, o, "passthrough"),
                                    "output: slim holds the score alone; passthrough needs format: full");
    for (size_t i = 0; i < p->n_passthrough; i++)
        for (size_t k = 0; k < i; k++)
            if (!strcmp(p->passthrough[i], p->passthrough[k]))
                return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, o, "passthrough"), "output.passthrough: \"%.80s\" is there twice",
                                            p->passthrough[i]);
    return 0;
}

static int read_score(pipeline_reader *r, const json_t *root, pst_pipeline *p)
{
    json_t *o;
    int rc, type = 0, non_finite = 0;
    double threshold = NAN;
    if ((rc = pipeline_reader_section(r, root, "score", &o)) < 0)
        return rc;
    if ((rc = pipeline_reader_check_keys(r, o, "score")) < 0 || (rc = pipeline_reader_word(r, o, "score", "type", &type)) < 0 ||
        (rc = pipeline_reader_num(r, o, "score", "threshold", &threshold)) < 0 ||
        (rc = pipeline_reader_word(r, o, "score", "non_finite", &non_finite)) < 0)
        return rc;
    p->non_finite_dead = non_finite == 1;
    p->score_type = (pst_score_type)type;
    p->has_threshold = !isnan(threshold);
    p->threshold = p->has_threshold ? threshold : 0;
    return 0;
}

static int read_batching(pipeline_reader *r, const json_t *root, pst_pipeline *p)
{
    json_t *o;
    int rc;
    int64_t count = 0, bytes = 0, age = 0;
    if ((rc = pipeline_reader_section(r, root, "batching", &o)) < 0)
        return rc;
    if ((rc = pipeline_reader_check_keys(r, o, "batching")) < 0 || (rc = pipeline_reader_whole(r, o, "batching", "count", &count)) < 0 ||
        (rc = pipeline_reader_unit(r, o, "batching", "bytes", &bytes)) < 0 ||
        (rc = pipeline_reader_unit(r, o, "batching", "age", &age)) < 0)
        return rc;
    p->batch_count = (size_t)count;
    p->batch_bytes = (size_t)bytes;
    p->batch_age_us = age;
    return 0;
}

static int read_errors(pipeline_reader *r, const json_t *root, pst_pipeline *p)
{
    json_t *o, *d;
    int rc, tolerance = 0, null_policy = 0;
    if ((rc = pipeline_reader_section(r, root, "errors", &o)) < 0)
        return rc;
    if ((rc = pipeline_reader_check_keys(r, o, "errors")) < 0 || (rc = pipeline_reader_word(r, o, "errors", "tolerance", &tolerance)) < 0 ||
        (rc = pipeline_reader_word(r, o, "errors", "null", &null_policy)) < 0 ||
        (rc = pipeline_reader_whole(r, o, "errors", "pause_after", &p->pause_after)) < 0 ||
        (rc = pipeline_reader_section(r, o, "dead_letter", &d)) < 0)
        return rc;
    p->tolerance_none = tolerance == 1;
    p->on_null = (pst_null_policy)null_policy;
    if (d && ((rc = pipeline_reader_check_keys(r, d, "errors.dead_letter")) < 0 ||
              (rc = pipeline_reader_str(r, d, "errors.dead_letter", "topic", &p->dlq_topic)) < 0))
        return rc;
    return 0;
}

/* "1%"; absent leaves *ret. */
static int read_share(pipeline_reader *r, const json_t *o, const char *key, double *ret)
{
    char *text = NULL, *end = NULL;
    int rc = pipeline_reader_str(r, o, "rollout.canary.budget", key, &text);
    if (rc < 0 || !text)
        return rc;
    double x = strtod(text, &end);
    if (end == text || strcmp(end, "%") != 0 || !(x >= 0 && x < 100))
        rc = pipeline_reader_fail(r, pst_yaml_key_line(&r->y, o, key),
                                  "rollout.canary.budget.%s: \"%.40s\" is no share below 100%%; write 1%%", key, text);
    *ret = x / 100;
    free(text);
    return rc;
}

static int read_budget(pipeline_reader *r, const json_t *c, pst_pipeline *p)
{
    json_t *o;
    int rc;
    struct pst_pipeline_budget *b = &p->budget;
    b->errors = b->disagreement = -1;
    if ((rc = pipeline_reader_section(r, c, "budget", &o)) < 0 || !o)
        return rc;
    if ((rc = pipeline_reader_check_keys(r, o, "rollout.canary.budget")) < 0 || (rc = read_share(r, o, "errors", &b->errors)) < 0 ||
        (rc = read_share(r, o, "disagreement", &b->disagreement)) < 0 ||
        (rc = pipeline_reader_unit(r, o, "rollout.canary.budget", "latency", &b->latency_us)) < 0 ||
        (rc = pipeline_reader_whole(r, o, "rollout.canary.budget", "over", &b->over)) < 0)
        return rc;
    if (b->errors < 0 && b->disagreement < 0 && !b->latency_us)
        return pipeline_reader_fail(r, pst_yaml_line(&r->y, o), "rollout.canary.budget: give errors, disagreement or latency");
    return 0;
}

static bool same_choice(const pst_model_choice *a, const pst_model_choice *b)
{
    return a->version == b->version && (a->alias && b->alias ? !strcmp(a->alias, b->alias) : a->alias == b->alias);
}

/* The canary's records are not the primary's: only what it says as the shadow can be laid beside it. */
static int check_budget(pipeline_reader *r, const json_t *c, const pst_pipeline *p)
{
    if (!p->has_canary || p->budget.disagreement < 0 || (p->has_shadow && same_choice(&p->canary, &p->shadow)))
        return 0;
    return pipeline_reader_fail(
        r, pst_yaml_key_line(&r->y, c, "budget"),
        "rollout.canary.budget.disagreement: is seen only where the same version scores the primary's records, too; add "
        "rollout.shadow with the canary's alias or version, or leave it out");
}

static int read_canary(pipeline_reader *r, const json_t *c, pst_pipeline *p)
{
    int rc;
    p->has_canary = true;
    p->canary_percent = NAN;
    if ((rc = pipeline_reader_check_keys(r, c, "rollout.canary")) < 0 || (rc = read_choice(r, c, "rollout.canary", &p->canary)) < 0 ||
        (rc = pipeline_reader_num(r, c, "rollout.canary", "percent", &p->canary_percent)) < 0)
        return rc;
    if (isnan(p->canary_percent) || (!p->canary.alias && !p->canary.version))
        return pipeline_reader_fail(r, pst_yaml_line(&r->y, c), "rollout.canary: give percent, and alias or version");
    p->canary.name = pst_strdup(p->model.name);
    return read_budget(r, c, p);
}

static int read_shadow(pipeline_reader *r, const json_t *s, pst_pipeline *p)
{
    int rc;
    p->has_shadow = true;
    p->tolerance = NAN;
    if ((rc = pipeline_reader_check_keys(r, s, "rollout.shadow")) < 0 || (rc = read_choice(r, s, "rollout.shadow", &p->shadow)) < 0 ||
        (rc = pipeline_reader_str(r, s, "rollout.shadow", "topic", &p->shadow_topic)) < 0 ||
        (rc = pipeline_reader_num(r, s, "rollout.shadow", "tolerance", &p->tolerance)) < 0)
        return rc;
    p->has_tolerance = !isnan(p->tolerance);
    if (!p->shadow_topic || (!p->shadow.alias && !p->shadow.version))
        return pipeline_reader_fail(r, pst_yaml_line(&r->y, s), "rollout.shadow: give topic, and alias or version");
    p->shadow.name = pst_strdup(p->model.name);
    return 0;
}

static int read_rollout(pipeline_reader *r, const json_t *root, pst_pipeline *p)
{
    json_t *o, *c, *s;
    int rc;
    if ((rc = pipeline_reader_section(r, root, "rollout", &o)) < 0 || !o)
        return rc;
    if ((rc = pipeline_reader_check_keys(r, o, "rollout")) < 0 || (rc = pipeline_reader_section(r, o, "canary", &c)) < 0 ||
        (rc = pipeline_reader_section(r, o, "shadow", &s)) < 0)
        return rc;
    if ((c || s) && !p->model.name)
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, root, "rollout"), "rollout: needs a model by name, not by file");
    if (c && (rc = read_canary(r, c, p)) < 0)
        return rc;
    if (s && (rc = read_shadow(r, s, p)) < 0)
        return rc;
    return check_budget(r, c, p);
}

static int read_drift(pipeline_reader *r, const json_t *root, pst_pipeline *p)
{
    json_t *o;
    int rc;
    if ((rc = pipeline_reader_section(r, root, "drift", &o)) < 0 || !o)
        return rc;
    if ((rc = pipeline_reader_check_keys(r, o, "drift")) < 0 || (rc = pipeline_reader_num(r, o, "drift", "psi", &p->drift_psi)) < 0)
        return rc;
    return pipeline_reader_whole(r, o, "drift", "over", &p->drift_over);
}

/* All that a published pipeline may not set, in one refusal, by the line of the first. */
static int check_tuning(pipeline_reader *r, const json_t *kafka)
{
    char names[240] = "";
    size_t at = 0;
    int line = 0;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)kafka, key, v)
    {
        if (pipeline_published_property(key))
            continue;
        line = line ? line : pst_yaml_key_line(&r->y, kafka, key);
        if (at + 8 < sizeof(names))
            at += (size_t)snprintf(names + at, sizeof(names) - at, "%skafka.%.80s", at ? ", " : "", key);
    }
    return at ? pipeline_reader_fail(
                    r, line,
                    "%s: not in a published pipeline, which takes tuning only (fetch.*, linger.ms, session.timeout.ms, …); "
                    "set it for the scorers' host (up -X or -F), or run the file by hand",
                    names)
              : 0;
}

static int check_most(pipeline_reader *r, const json_t *kafka, const struct pst_pipeline_property *k)
{
    int64_t most = pipeline_published_most(k->key);
    return most && strtod(k->value, NULL) > (double)most
               ? pipeline_reader_fail(r, pst_yaml_key_line(&r->y, kafka, k->key),
                                      "kafka.%s: %s is more than the %lld that a published pipeline may take of its host's memory", k->key,
                                      k->value, (long long)most)
               : 0;
}

/* Properties of librdkafka as they are, each with its line; of a published pipeline only those that cannot reach beyond it. */
static int read_kafka(pipeline_reader *r, const json_t *root, pst_pipeline *p)
{
    json_t *o;
    int rc = pipeline_reader_section(r, root, "kafka", &o);
    if (rc < 0 || !o)
        return rc;
    rc = p->published ? check_tuning(r, o) : 0;
    if (rc < 0)
        return rc;
    p->kafka = pst_alloc((json_object_size(o) + 1) * sizeof(*p->kafka));
    const char *key;
    json_t *v;
    json_object_foreach(o, key, v)
    {
        char text[64] = "";
        const char *value = text;
        if (json_is_string(v))
            value = json_string_value(v);
        else if (json_is_integer(v))
            snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(v));
        else if (json_is_real(v))
            snprintf(text, sizeof(text), "%.15g", json_real_value(v));
        else if (json_is_boolean(v))
            snprintf(text, sizeof(text), "%s", json_is_true(v) ? "true" : "false");
        else
            return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, o, key), "kafka.%.80s: expected one value", key);
        p->kafka[p->n_kafka++] = (struct pst_pipeline_property){pst_strdup(key), pst_strdup(value),
                                                                pst_sprintf("%s:%d", r->y.file, pst_yaml_key_line(&r->y, o, key))};
        rc = p->published ? check_most(r, o, &p->kafka[p->n_kafka - 1]) : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* A published pipeline runs in the memory of whoever runs its scorers: there the limits have limits. */
static int read_limits(pipeline_reader *r, const json_t *o, pst_pipeline *p)
{
    const struct {
        const char *key, *most;
        int64_t published_max;
        size_t *ret;
    } limits[] = {{"inflight_bytes", "1 GiB", PST_PUBLISHED_INFLIGHT_MAX, &p->inflight_bytes},
                  {"model_bytes", "512 MiB", PST_PUBLISHED_MODEL_MAX, &p->model_bytes},
                  {"arena_bytes", "1 GiB", PST_PUBLISHED_ARENA_MAX, &p->arena_bytes}};
    int rc = pipeline_reader_check_keys(r, o, "limits");
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits) && rc == 0; i++) {
        int64_t bytes = 0;
        rc = pipeline_reader_unit(r, o, "limits", limits[i].key, &bytes);
        if (rc == 0 && p->published && bytes > limits[i].published_max)
            rc = pipeline_reader_fail(r, pst_yaml_key_line(&r->y, o, limits[i].key), "limits.%s: at most %s in a published pipeline",
                                      limits[i].key, limits[i].most);
        *limits[i].ret = (size_t)bytes;
    }
    return rc;
}

static int read_rest(pipeline_reader *r, const json_t *root, pst_pipeline *p)
{
    json_t *o;
    int rc, guarantee = 0, bus = 0;
    if ((rc = pipeline_reader_str(r, root, "pipeline", "name", &p->name)) < 0 ||
        (rc = pipeline_reader_word(r, root, "pipeline", "guarantee", &guarantee)) < 0 ||
        (rc = pipeline_reader_word(r, root, "pipeline", "bus", &bus)) < 0 ||
        (rc = pipeline_reader_str(r, root, "pipeline", "device", &p->device)) < 0 ||
        (rc = pipeline_reader_whole(r, root, "pipeline", "threads", &p->threads)) < 0 ||
        (rc = pipeline_reader_section(r, root, "limits", &o)) < 0)
        return rc;
    if ((rc = read_limits(r, o, p)) < 0)
        return rc;
    p->exactly_once = guarantee == 1;
    p->bus = pipeline_bus_words[bus];
    char *end = NULL;
    if (strcmp(p->device, "auto") != 0 && strcmp(p->device, "cpu") != 0 && strcmp(p->device, "cuda") != 0 &&
        (strncmp(p->device, "cuda:", 5) != 0 || strtoul(p->device + 5, &end, 10) > 1023 || end == p->device + 5 || *end))
        return pipeline_reader_fail(r, p->line.device, "device: \"%.40s\" is none of auto | cpu | cuda | cuda:N", p->device);
    return 0;
}

static void note_lines(const pipeline_reader *r, const json_t *root, struct pst_pipeline_lines *l)
{
    const struct {
        const char *key;
        int *into;
    } rows[] = {{"input", &l->input},   {"model", &l->model},     {"features", &l->features}, {"output", &l->output},
                {"errors", &l->errors}, {"rollout", &l->rollout}, {"device", &l->device},     {"state", &l->state}};
    for (size_t i = 0; i < N(rows); i++)
        if (json_object_get(root, rows[i].key))
            *rows[i].into = pst_yaml_key_line(&r->y, root, rows[i].key);
}

/* What no section can see alone. */
static int check_whole(pipeline_reader *r, const json_t *root, pst_pipeline *p)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (!p->name)
        return pipeline_reader_fail(r, 1, "name is missing; every pipeline has one, such as name: turbine-anomalies");
    if (strspn(p->name, letters) != strlen(p->name) || strlen(p->name) > 200)
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, root, "name"),
                                    "name: letters, digits, dot, dash and underscore only, at most 200");
    if (p->published && (p->name[0] == '.' || strlen(p->name) > PST_PUBLISHED_NAME_MAX)) /* it names a file and a service there */
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, root, "name"),
                                    "name: of a published pipeline begins with no dot and has at most %d letters", PST_PUBLISHED_NAME_MAX);
    for (size_t i = 0; i < p->n_topics; i++) {
        const char *t = p->topics[i];
        if (p->output_topic && !strcmp(t, p->output_topic))
            return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, root, "output"),
                                        "output.topic: \"%s\" is also an input; the pipeline would feed itself", t);
        if (p->dlq_topic && !strcmp(t, p->dlq_topic))
            return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, root, "errors"),
                                        "errors.dead_letter.topic: \"%s\" is also an input; bad records would go in circles", t);
        if (p->shadow_topic && !strcmp(t, p->shadow_topic))
            return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, root, "rollout"), "rollout.shadow.topic: \"%s\" is also an input", t);
    }
    if (p->output_topic && p->dlq_topic && !strcmp(p->output_topic, p->dlq_topic))
        return pipeline_reader_fail(r, pst_yaml_key_line(&r->y, root, "errors"),
                                    "errors.dead_letter.topic: is the output topic too; scores and bad records must not mix");
    return pipeline_state_check(r, root, p);
}

/* Each section is read by itself; what concerns two of them is checked when all are there (check_whole). */
static int parse(const char *text, size_t len, const char *file, bool published, pst_pipeline **ret_pipeline, pst_err *err)
{
    pipeline_reader r = {.err = err, .keys = &pst_pipeline_keys, .may_see = published ? pipeline_published_variable : NULL};
    pst_pipeline *p = NULL;
    if (len > PST_PIPELINE_BYTES_MAX)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s: %zu bytes are more than the limit of %u for a pipeline file",
                           file, len, PST_PIPELINE_BYTES_MAX);
    int rc = pst_yaml_parse(text, len, file, &r.y, err);
    if (rc < 0) {
        if (err)
            err->code = PST_EINVAL, err->cls = PST_CLASS_FATAL;
        return PST_EINVAL;
    }
    json_t *root = r.y.root;
    p = pst_alloc(sizeof(*p));
    p->file = pst_strdup(file);
    p->text = pst_strndup(text, len);
    p->published = published;
    if (!json_is_object(root)) {
        rc = pipeline_reader_fail(&r, 1, "expected a mapping of name, input, model, output, …");
        goto out;
    }
    note_lines(&r, root, &p->line);
    if ((rc = pipeline_reader_expand(&r, root)) < 0 || (rc = pipeline_reader_check_keys(&r, root, "pipeline")) < 0 ||
        (rc = read_rest(&r, root, p)) < 0 || (rc = read_input(&r, root, p)) < 0 || (rc = read_model(&r, root, p)) < 0 ||
        (rc = read_features(&r, root, p)) < 0 || (rc = pipeline_state_read(&r, root, p)) < 0 || (rc = read_output(&r, root, p)) < 0 ||
        (rc = read_score(&r, root, p)) < 0 || (rc = read_batching(&r, root, p)) < 0 || (rc = read_errors(&r, root, p)) < 0 ||
        (rc = read_rollout(&r, root, p)) < 0 || (rc = read_drift(&r, root, p)) < 0 || (rc = read_kafka(&r, root, p)) < 0)
        goto out;
    rc = check_whole(&r, root, p);
out:
    pst_yaml_done(&r.y);
    if (rc < 0) {
        pst_pipeline_free(p);
        return rc;
    }
    *ret_pipeline = p;
    return 0;
}

int pst_pipeline_parse(const char *text, size_t len, const char *file, pst_pipeline **ret_pipeline, pst_err *err)
{
    return parse(text, len, file, false, ret_pipeline, err);
}

int pst_pipeline_parse_published(const char *text, size_t len, const char *file, pst_pipeline **ret_pipeline, pst_err *err)
{
    return parse(text, len, file, true, ret_pipeline, err);
}

static int load(const char *path, bool published, pst_pipeline **ret_pipeline, pst_err *err)
{
    pst_buf text = {0};
    int rc = pst_fs_read(path, PST_PIPELINE_BYTES_MAX, &text, err);
    if (rc == 0)
        rc = parse(text.data ? text.data : "", text.len, strcmp(path, "-") ? path : "stdin", published, ret_pipeline, err);
    else if (err)
        err->cls = PST_CLASS_FATAL, err->code = rc = PST_EINVAL; /* a file that cannot be read is a usage error: exit status 2 */
    pst_buf_done(&text);
    return rc;
}

int pst_pipeline_load(const char *path, pst_pipeline **ret_pipeline, pst_err *err)
{
    return load(path, false, ret_pipeline, err);
}

int pst_pipeline_load_published(const char *path, pst_pipeline **ret_pipeline, pst_err *err)
{
    return load(path, true, ret_pipeline, err);
}

static void choice_done(pst_model_choice *m)
{
    free(m->name);
    free(m->alias);
    free(m->file);
}

static void texts_free(char **texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(texts[i]);
    free(texts);
}

void pst_pipeline_free(pst_pipeline *p)
{
    if (!p)
        return;
    texts_free(p->topics, p->n_topics);
    texts_free(p->passthrough, p->n_passthrough);
    for (size_t i = 0; i < p->n_features; i++)
        pst_feature_done(&p->features[i]);
    free(p->features);
    for (size_t i = 0; i < p->n_kafka; i++) {
        free(p->kafka[i].key);
        free(p->kafka[i].value);
        free(p->kafka[i].origin);
    }
    free(p->kafka);
    choice_done(&p->model);
    choice_done(&p->canary);
    choice_done(&p->shadow);
    free(p->file);
    free(p->name);
    free(p->text);
    free(p->group);
    free(p->output_topic);
    free(p->dlq_topic);
    free(p->shadow_topic);
    free(p->device);
    free(p->state.key);
    free(p->state.time);
    free(p->state.topic);
    free(p);
}

const char *pst_score_type_name(pst_score_type t)
{
    return pipeline_score_type_words[t];
}

bool pst_score_type_parse(const char *text, pst_score_type *ret_type)
{
    for (int t = PST_SCORE_AUTO; t <= PST_SCORE_CLASS; t++) {
        if (!strcmp(text, pst_score_type_name((pst_score_type)t))) {
            *ret_type = (pst_score_type)t;
            return true;
        }
    }
    return false;
}

const char *pst_missing_name(pst_missing m)
{
    return pipeline_missing_words[m];
}

const char *pst_unknown_word_name(pst_unknown_word u)
{
    return pipeline_unknown_words[u];
}
