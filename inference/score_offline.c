/* score_offline.c - see the header. A dry run is the core itself over a file, so that what it says is what the stream will do. */
#include "inference/score_offline.h"

#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "common/client/client.h"
#include "inference/ocf.h"
#include "inference/score_core.h"
#include "inference/score_load.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 2000 << 20 };

typedef struct dry {
    pst_pipeline *p;
    pst_core *core;
    pst_ocf *ocf; /* NULL = JSON lines */
    pst_buf file;
    size_t at; /* JSON: read so far */
    const char *name;
    FILE *out;
    uint64_t records, bad;
    pst_err err;
} dry;

static int host_schema(void *arg, int32_t id, const pst_schema **ret_schema, pst_err *err)
{
    *ret_schema = pst_ocf_schema(((dry *)arg)->ocf);
    return 0;
}

static int host_output_id(void *arg, const char *schema_text, bool shadow, int32_t *ret_id, pst_err *err)
{
    *ret_id = 0;
    return 0;
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_string(isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity");
}

static void write_fate(dry *d, const pst_fate *f)
{
    json_t *line = json_object();
    if (f->kind == PST_FATE_SCORED) {
        const double *scores;
        const char *label;
        const uint8_t *missing;
        size_t n = pst_core_score(d->core, f, false, &scores, &label), n_features;
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(list, number(scores[i]));
        json_object_set_new(line, "score", list);
        json_object_set_new(line, "label", label ? json_string(label) : json_null());
        list = json_array();
        const pst_feature *features = pst_core_missing(d->core, f, &missing, &n_features);
        for (size_t i = 0; i < n_features; i++)
            if (missing[i])
                json_array_append_new(list, json_string(features[i].field));
        json_object_set_new(line, "missing", list);
    } else {
        bool bad = f->kind == PST_FATE_BAD;
        json_object_set_new(line, "error", json_string(bad ? pst_core_message(d->core, f) : "null value"));
        json_object_set_new(line, "reason", json_string(bad ? f->reason : "null-value"));
        json_object_set_new(line, "stage", json_string(bad ? f->stage : "DECODE"));
        d->bad++;
    }
    pst_json_print(d->out, line);
    json_decref(line);
}

/* The next record of the file: 1, 0 at the end, < 0 broken. */
static int next(dry *d, pst_slice *ret)
{
    if (d->ocf)
        return pst_ocf_next(d->ocf, ret, &d->err);
    while (d->at < d->file.len) {
        const char *line = d->file.data + d->at, *end = memchr(line, '\n', d->file.len - d->at);
        size_t n = end ? (size_t)(end - line) : d->file.len - d->at;
        d->at += n + 1;
        while (n && (line[n - 1] == '\r' || line[n - 1] == ' '))
            n--;
        if (!n)
            continue;
        *ret = (pst_slice){line, n};
        return 1;
    }
    return 0;
}

static int score_file(dry *d)
{
    pst_record *records = pst_alloc(d->p->batch_count * sizeof(*records));
    pst_fate *fates = pst_alloc(d->p->batch_count * sizeof(*fates));
    pst_buf bodies = {0}; /* a container's block may be replaced by the next one in the middle of a batch */
    size_t *at = pst_alloc(d->p->batch_count * sizeof(*at));
    int rc = 1;
    while (rc > 0 && !pst_stop_requested()) {
        size_t n = 0, usable = 0;
        pst_buf_clear(&bodies);
        for (pst_slice s; n < d->p->batch_count && bodies.len < d->p->batch_bytes && (rc = next(d, &s)) > 0; n++) {
            at[n] = bodies.len;
            pst_buf_add(&bodies, s.data, s.len);
            records[n] = (pst_record){.topic = d->name, .offset = (int64_t)(d->records + n), .timestamp_ms = -1, .value_len = s.len};
        }
        for (size_t i = 0; i < n; i++)
            records[i].value = bodies.data ? bodies.data + at[i] : "";
        int ran = n ? pst_core_run(d->core, records, n, fates, &usable, &d->err) : 0;
        if (ran < 0) {
            rc = ran;
            break;
        }
        for (size_t i = 0; i < usable; i++)
            write_fate(d, &fates[i]);
        d->records += usable;
    }
    free(records);
    free(fates);
    free(at);
    pst_buf_done(&bodies);
    return rc;
}

static int finish(dry *d, int rc, const char *out)
{
    if (d->out && (fflush(d->out) || ferror(d->out)) && rc >= 0)
        rc = pst_err_sys(&d->err, errno, "cannot write %s", out);
    if (d->out && d->out != stdout)
        fclose(d->out);
    if (rc < 0)
        pst_say_err("score dry-run", &d->err);
    else
        fprintf(stderr, "%llu records, %llu of them not scored\n", (unsigned long long)d->records, (unsigned long long)d->bad);
    int status = rc < 0 ? pst_err_exit(&d->err) : d->bad ? 3 : 0;
    pst_core_free(d->core);
    pst_ocf_free(d->ocf);
    pst_buf_done(&d->file);
    return status;
}

int pst_score_dry_run(const pst_settings *settings, pst_pipeline *p, const char *in, const char *out)
{
    dry d = {.p = p, .name = in};
    pst_binding *b = NULL;
    int rc = pst_fs_read(in, FILE_BYTES_MAX, &d.file, &d.err);
    if (rc == 0) {
        bool avro = pst_ocf_is(d.file.data ? d.file.data : "", d.file.len);
        p->format = avro ? PST_INPUT_AVRO : PST_INPUT_JSON;
        if (avro)
            rc = pst_ocf_open(d.file.data, d.file.len, in, &d.ocf, &d.err);
    }
    p->has_canary = p->has_shadow = false;
    if (rc == 0)
        rc = pst_score_load_model(settings, p, &b, &d.err);
    if (rc == 0) {
        pst_core_host host = {.arg = &d, .schema = host_schema, .output_id = host_output_id, .unframed = true};
        d.core = pst_core_new(p, &host);
        pst_core_offer(d.core, PST_VARIANT_PRIMARY, b, NULL, 0);
        d.out = !out || !strcmp(out, "-") ? stdout : fopen(out, "w");
        rc = d.out ? score_file(&d) : pst_err_sys(&d.err, errno, "cannot write %s", out);
    }
    return finish(&d, rc, out);
}

/* ---- check, explain -------------------------------------------------------------------------------------------------------- */

static int check_kafka(const pst_client *c, const pst_pipeline *p, pst_err *err)
{
    pst_bus_conf *conf = pst_bus_conf_copy(c->bus);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->n_kafka; i++)
        rc = pst_bus_conf_set(conf, p->kafka[i].key, p->kafka[i].value, p->kafka[i].origin, err);
    pst_bus_conf_free(conf);
    return rc == PST_EAGAIN
               ? pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "kafka: properties of the registry belong into -F, not here")
               : rc;
}

/* The newest schema of a topic against the model. No schema, or no registry, is said and no failure. */
static int check_topic(pst_client *c, pst_core *core, const char *topic, bool verbose, pst_err *err)
{
    char *subject = pst_sprintf("%s-value", topic), *text = NULL, *plan = NULL;
    pst_schema *schema = NULL;
    pst_err e = {0};
    int32_t id;
    int version, rc = pst_registry_latest(c->registry, subject, &id, &version, &text, &e);
    if (rc < 0) {
        printf("topic %s: schema not checked: %s\n", topic, e.text);
        rc = 0;
        goto out;
    }
    rc = pst_schema_parse(text, strlen(text), &schema, err);
    if (rc == 0)
        rc = pst_core_explain(core, schema, &plan, err);
    if (rc < 0) {
        pst_err_prefix(err, "topic %s, schema id %d (version %d)", topic, id, version);
        if (err->code != PST_EPARSE)
            err->code = rc = PST_EINCOMPAT;
        goto out;
    }
    printf("topic %s: schema id %d (%s, version %d) fits\n", topic, id, pst_schema_name(schema), version);
    if (verbose)
        printf("%s", plan);
out:
    pst_schema_free(schema);
    free(subject);
    free(text);
    free(plan);
    return rc;
}

int pst_score_check(const pst_settings *settings, const pst_pipeline *p, bool verbose)
{
    const char *verb = verbose ? "score explain" : "score check";
    pst_err err = {0};
    pst_client *c = NULL;
    pst_binding *b = NULL;
    pst_core *core = NULL;
    int rc = pst_client_open(settings, "penstock-score-check", &c, &err);
    if (rc == 0 && (rc = check_kafka(c, p, &err)) == 0)
        rc = pst_score_load_model(settings, p, &b, &err);
    if (rc == 0) {
        printf("pipeline %s: %s\n", p->name, p->file);
        char *text = pst_binding_explain(b);
        if (verbose)
            printf("%s", text);
        else
            printf("model %s version %d, score %s\n", pst_binding_name(b), pst_binding_version(b),
                   pst_score_type_name(pst_binding_score_type(b)));
        free(text);
        pst_core_host host = {.schema = host_schema, .output_id = host_output_id};
        core = pst_core_new(p, &host);
        pst_core_offer(core, PST_VARIANT_PRIMARY, b, NULL, 0);
        if (!p->n_topics || !p->output_topic)
            printf("%s: only dry runs are possible\n", p->n_topics ? "output.topic is missing" : "input.topics is missing");
        for (size_t i = 0; rc == 0 && p->format == PST_INPUT_AVRO && i < p->n_topics; i++)
            rc = check_topic(c, core, p->topics[i], verbose, &err);
    }
    if (rc < 0)
        pst_say_err(verb, &err);
    else
        printf("ok\n");
    pst_core_free(core);
    pst_client_close(c);
    return rc < 0 ? pst_err_exit(&err) : 0;
}
