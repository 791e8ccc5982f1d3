/* score_offline.c - `score` without Kafka: dry runs and checks. A dry run is the core itself over a file, so that what it says is what the stream will do. */
#include "inference/offline/score_offline.h"

#include "common/base/fs.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "common/base/term.h"
#include "common/platform/verb.h"
#include "inference/offline/ocf.h"
#include "inference/run/pipeline_check.h"
#include "inference/core/score_core.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 2000 << 20 };

typedef struct dry {
    pst_pipeline *p;
    pst_score_core *core;
    score_ocf *ocf; /* NULL = JSON lines */
    pst_buf file;
    size_t at; /* JSON: read so far */
    const char *name;
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

/* The next record of the file: 1, 0 at the end, < 0 broken. */
static int next(dry *d, pst_slice *ret)
{
    if (d->ocf)
        return score_ocf_next(d->ocf, ret, &d->err);
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

/* A file of another kind would give an error for each of its lines, and none would say what is wrong. One good line makes it JSON lines. */
static int check_lines(dry *d)
{
    static const struct {
        const char *begins, *what;
        size_t len;
    } kinds[] = {{"\x1f\x8b", "is compressed by gzip: unpack it first", 2},
                 {"PK\3\4", "is a ZIP archive (or a spreadsheet): unpack it, or export it, first", 4},
                 {"PAR1", "is Parquet", 4},
                 {"ARROW1", "is an Arrow file", 6},
                 {"ORC", "is ORC", 3}};
    pst_slice line;
    size_t lines = 0;
    pst_buf first = {0};
    const char *what = NULL;
    bool good = false, open = false;
    while (!good && next(d, &line) > 0) {
        const char *text = line.data;
        size_t n = line.len;
        while (n && (*text == ' ' || *text == '\t'))
            text++, n--;
        if (!lines++) {
            pst_term_quote(&first, text, n, 60);
            open = n == 1 && (*text == '{' || *text == '[');
            what = *text == '[' ? "is a JSON array, or an object over several lines: jq -c '.[]' makes an object a line of it" : NULL;
        }
        good = n > 1 && *text == '{';
    }
    d->at = 0;
    if (!lines || (good && !open)) {
        pst_buf_done(&first);
        return 0;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (d->file.len >= kinds[i].len && !memcmp(d->file.data, kinds[i].begins, kinds[i].len))
            what = kinds[i].what;
    if (!what && open)
        what = "is JSON over several lines: jq -c . makes an object a line of it";
    if (!what && strpbrk(first.data ? first.data : "", ",;\t|"))
        what = "looks like CSV: make objects of its lines (mlr --icsv --ojsonl cat FILE), or write it to a topic (penstock source file)";
    int rc = pst_err_set(&d->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                         "--in %s: a dry run reads JSON lines, an object each, or an Avro container file; this %s (it begins with \"%s\")",
                         d->name, what ? what : "is neither", first.len ? first.data : "");
    pst_buf_done(&first);
    return rc;
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
        for (pst_slice s; n < d->p->batch_count && bodies.len < d->p->batch_bytes && (rc = next(d, &s)) > 0; n++) {
            at[n] = bodies.len;
            pst_buf_add(&bodies, s.data, s.len);
            records[n] = (pst_record){.topic = d->name, .offset = (int64_t)(d->records + n), .timestamp_ms = -1, .value_len = s.len};
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
    score_ocf_free(d->ocf);
    pst_buf_done(&d->file);
    return status;
}

int pst_score_dry_run(const pst_settings *settings, pst_pipeline *p, const char *in, const char *out)
{
    dry d = {.p = p, .name = in};
    pst_binding *b = NULL;
    pst_check_opts o = {.report = settings->quiet ? NULL : stderr, .may_be_alone = p->model.file != NULL};
    int rc = pst_pipeline_check(settings, p, &o, &b, &d.err);
    if (rc == 0)
        rc = pst_fs_read(in, FILE_BYTES_MAX, &d.file, &d.err);
    if (rc == 0) {
        bool avro = score_ocf_is(d.file.data ? d.file.data : "", d.file.len);
        p->format = avro ? PST_INPUT_AVRO : PST_INPUT_JSON;
        if (avro)
            rc = score_ocf_open(d.file.data, d.file.len, in, &d.ocf, &d.err);
        else
            rc = check_lines(&d);
    }
    p->has_canary = p->has_shadow = false;
    if (rc < 0)
        pst_binding_free(b);
    if (rc == 0) {
        d.core = pst_score_core_new(p, &(pst_score_core_opts){.unframed = true, .scores_only = true});
        if (d.ocf)
            pst_score_core_schema(d.core, 0, score_ocf_schema(d.ocf));
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
