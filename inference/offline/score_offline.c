/* score_offline.c - `score` without Kafka: dry runs and checks. A dry run is the core itself over a file, so that what it says is what the stream will do. */
#include "inference/offline/score_offline.h"

#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "common/platform/verb.h"
#include "inference/offline/score_input.h"
#include "inference/run/pipeline_check.h"
#include "inference/core/score_core.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct dry {
    pst_pipeline *p;
    pst_score_core *core;
    score_input in;
    FILE *out;
    uint64_t records, bad;
    pst_err err;
} dry;

json_t *pst_score_line(const pst_score_core *core, const pst_fate *f)
{
    json_t *line = json_object();
    if (f->kind == PST_FATE_SCORED) {
        const double *scores;
        const char *label;
        const uint8_t *missing;
        size_t n = pst_score_core_score(f, false, &scores, &label), n_features;
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(list, pst_json_real(scores[i]));
        json_object_set_new(line, "score", list);
        json_object_set_new(line, "label", label ? json_string(label) : json_null());
        list = json_array();
        const pst_feature *features = pst_score_core_missing(f, &missing, &n_features);
        for (size_t i = 0; i < n_features; i++)
            if (missing[i])
                json_array_append_new(list, json_string(features[i].field));
        json_object_set_new(line, "missing", list);
    } else {
        bool bad = f->kind == PST_FATE_BAD;
        json_object_set_new(line, "error", json_string(bad ? pst_score_core_message(core, f) : "null value"));
        json_object_set_new(line, "reason", json_string(bad ? f->reason : "null-value"));
        json_object_set_new(line, "stage", json_string(bad ? f->stage : "DECODE"));
    }
    return line;
}

static void write_fate(dry *d, const pst_fate *f)
{
    json_t *line = pst_score_line(d->core, f);
    d->bad += f->kind != PST_FATE_SCORED;
    pst_json_print(d->out, line);
    json_decref(line);
}

static int score_records(dry *d, const pst_record *records, size_t n)
{
    int32_t id;
    size_t taken = 0;
    pst_score_core_begin(d->core, 0);
    for (size_t i = 0; i < n; i++)
        PST_ASSERT(pst_score_core_take(d->core, &records[i], &id) ==
                   PST_NEEDS_NOTHING); /* the file's schema is known, and nothing is encoded */
    int rc = pst_score_core_run(d->core, &d->err);
    const pst_fate *fates = pst_score_core_fates(d->core, &taken);
    for (size_t i = 0; rc == 0 && i < taken; i++)
        write_fate(d, &fates[i]);
    d->records += rc == 0 ? taken : 0;
    return rc;
}

static int score_file(dry *d)
{
    pst_record *records = pst_alloc(d->p->batch_count * sizeof(*records));
    pst_buf bodies = {0}; /* a container's block may be replaced by the next one in the middle of a batch */
    size_t *at = pst_alloc(d->p->batch_count * sizeof(*at));
    int rc = 1;
    while (rc > 0 && !pst_stop_requested()) {
        size_t n = 0;
        pst_buf_clear(&bodies);
        for (pst_slice s; n < d->p->batch_count && bodies.len < d->p->batch_bytes && (rc = score_input_next(&d->in, &s, &d->err)) > 0;
             n++) {
            at[n] = bodies.len;
            pst_buf_add(&bodies, s.data, s.len);
            records[n] = (pst_record){.topic = d->in.name, .offset = (int64_t)(d->records + n), .timestamp_ms = -1, .value_len = s.len};
        }
        for (size_t i = 0; i < n; i++)
            records[i].value = bodies.data ? bodies.data + at[i] : "";
        int ran = score_records(d, records, n);
        if (ran < 0)
            rc = ran;
    }
    free(records);
    free(at);
    pst_buf_done(&bodies);
    return rc;
}

static int finish(const pst_settings *settings, dry *d, int rc, const char *out)
{
    if (d->out && (fflush(d->out) || ferror(d->out)) && rc >= 0)
        rc = pst_err_sys(&d->err, errno, "cannot write %s", out);
    if (d->out && d->out != stdout)
        fclose(d->out);
    int status = d->bad ? 3 : 0;
    if (rc < 0)
        status = pst_verb_say("score dry-run", settings, &d->err);
    if (rc >= 0)
        fprintf(stderr, "%llu records, %llu of them not scored\n", (unsigned long long)d->records, (unsigned long long)d->bad);
    pst_score_core_free(d->core);
    score_input_done(&d->in);
    return status;
}

/* A file's records have neither a Kafka key nor a timestamp. */
static int check_state(const pst_pipeline *p, pst_err *err)
{
    bool seconds = false;
    for (size_t i = 0; p->state.there && i < p->n_features; i++)
        seconds |= p->features[i].window.there && !p->features[i].window.last;
    const char *lacks = p->state.there && !p->state.key ? "key" : seconds && !p->state.time ? "time" : NULL;
    return lacks
               ? pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                             "%s:%d: state: records of a file have no %s; name a field of theirs: state: {%s: FIELD}, or use score replay",
                             p->file, p->line.state, !strcmp(lacks, "key") ? "Kafka key" : "timestamp", lacks)
               : 0;
}

int pst_score_dry_run(const pst_settings *settings, pst_pipeline *p, const char *in, const char *out)
{
    dry d = {.p = p};
    pst_binding *b = NULL;
    pst_check_opts o = {.report = settings->quiet ? NULL : stderr, .may_be_alone = p->model.file != NULL};
    int rc = pst_pipeline_check(settings, p, &o, &b, &d.err);
    if (rc == 0)
        rc = score_input_open(&d.in, in, &d.err);
    p->format = d.in.ocf ? PST_INPUT_AVRO : PST_INPUT_JSON;
    p->has_canary = p->has_shadow = false;
    if (rc == 0)
        rc = check_state(p, &d.err);
    if (rc < 0)
        pst_binding_free(b);
    if (rc == 0) {
        d.core = pst_score_core_new(p, &(pst_score_core_opts){.unframed = true, .scores_only = true});
        if (d.in.ocf)
            pst_score_core_schema(d.core, 0, score_ocf_schema(d.in.ocf));
        pst_score_core_offer(d.core, PST_VARIANT_PRIMARY, b, NULL, 0);
        d.out = !out || !strcmp(out, "-") ? stdout : fopen(out, "w");
        rc = d.out ? score_file(&d) : pst_err_sys(&d.err, errno, "cannot write %s", out);
    }
    return finish(settings, &d, rc, out);
}

/* ---- check, explain -------------------------------------------------------------------------------------------------------- */

int pst_score_check(const pst_settings *settings, const pst_pipeline *p, bool verbose)
{
    pst_err err = {0};
    pst_check_opts o = {.report = stdout, .verbose = verbose};
    int rc = pst_pipeline_check(settings, p, &o, NULL, &err);
    if (rc < 0)
        return pst_verb_say(verbose ? "score explain" : "score check", settings, &err);
    printf("ok\n");
    return 0;
}
