/* score_replay.c - recorded scores computed again. The record of who scored what is read once; then each batch is cut where a version changes, and every piece runs
 * through a core that has just the models of its offsets. */
#include "inference/offline/score_replay.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/stop.h"
#include "common/platform/verb.h"
#include "common/platform/models.h"
#include "inference/run/score_load.h"
#include "inference/run/score_report.h"
#include "inference/offline/score_offline.h"
#include "common/platform/client.h"
#include "common/platform/codec.h"
#include "schemas/events.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* From this offset on this version. Sorted by partition, offset and the order of events. */
typedef struct change {
    pst_variant variant;
    char *topic;
    int32_t partition;
    int64_t offset;
    size_t order;
    int version;    /* 0: no canary from here on */
    double percent; /* of the canary; < 0 = as the file says */
    bool own;       /* said by a scorer of this very pipeline */
} change;

typedef struct pair {
    int versions[2]; /* primary, canary; 0 = none */
    double percent;  /* of the canary */
    pst_score_core *core;
} pair;

typedef struct replay {
    const pst_settings *settings;
    pst_pipeline *p;
    pst_client *client;
    change *changes;
    size_t n_changes, order;
    pair *pairs;
    size_t n_pairs;
    pst_range *ranges;
    size_t n_ranges;
    pst_windowed *windowed; /* NULL = the pipeline has none */
    FILE *out;
    uint64_t records, bad;
    pst_err err;
} replay;

/* ---- what was recorded ----------------------------------------------------------------------------------------------------- */

static const pst_model_choice *choice(const pst_pipeline *p, pst_variant v)
{
    return v == PST_VARIANT_PRIMARY || !p->has_canary ? &p->model : &p->canary;
}

static double told(const pst_model_event *e, const char *name, double without)
{
    for (size_t i = 0; i < e->n_metrics; i++)
        if (!strcmp(e->metrics[i].key, name))
            return e->metrics[i].value;
    return without;
}

/* Older scorers did not say of which variant they spoke, as movers do not: then the alias decides. */
static bool speaks_of(const replay *r, pst_variant v, const pst_model_event *e, bool own)
{
    const pst_model_choice *c = choice(r->p, v);
    bool canary = own && told(e, SCORE_REPORT_CANARY, 0), none = own && told(e, SCORE_REPORT_NO_CANARY, 0);
    if (!c->name || strcmp(c->name, e->name) != 0 || (own && told(e, SCORE_REPORT_SHADOW, 0)))
        return false;
    if (v == PST_VARIANT_CANARY && (canary || none))
        return true;
    return !canary && (v == PST_VARIANT_PRIMARY || r->p->has_canary) && !c->version &&
           !strcmp(c->alias ? c->alias : "latest", e->alias ? e->alias : "");
}

static void take(replay *r, pst_variant v, const pst_model_event *e)
{
    bool own = e->pipeline && !strcmp(e->pipeline, r->p->name);
    if (!speaks_of(r, v, e, own))
        return;
    bool none = own && v == PST_VARIANT_CANARY && told(e, SCORE_REPORT_NO_CANARY, 0);
    for (size_t i = 0; i < e->n_effective; i++) {
        const pst_effective_from *x = &e->effective[i];
        r->changes = pst_array_one_more(r->changes, r->n_changes, sizeof(*r->changes));
        r->changes[r->n_changes++] = (change){.variant = v,
                                              .topic = pst_strdup(x->topic),
                                              .partition = x->partition,
                                              .offset = x->offset,
                                              .order = r->order,
                                              .version = none ? 0 : e->version,
                                              .percent = own ? told(e, SCORE_REPORT_PERCENT, -1) : -1,
                                              .own = own};
    }
}

static int read_event(void *arg, const char *key, const pst_record *rec, pst_err *err)
{
    replay *r = arg;
    pst_model_event e;
    pst_err bad = {0};
    r->order++;
    if (!rec->value)
        return 0;
    int rc = pst_codec_decode(r->client->codec, &pst_model_event_type, rec->value, rec->value_len, rec->timestamp_ms, &e, &bad);
    if (rc < 0 && bad.cls == PST_CLASS_DATA)
        return 0;
    if (rc < 0)
        return pst_err_set(err, bad.code, bad.cls, bad.origin, bad.native, "%s", bad.text);
    if (e.type == PST_MODEL_EVENT_TYPE_ALIAS_SET) {
        take(r, PST_VARIANT_PRIMARY, &e);
        take(r, PST_VARIANT_CANARY, &e);
    }
    pst_event_clear(&pst_model_event_type, &e);
    return 0;
}

/* What had this offset, by the pipeline's own word where there is one; NULL = nobody has said. */
static const change *change_at(const replay *r, pst_variant v, const pst_record *rec)
{
    const change *best = NULL;
    for (size_t i = 0; i < r->n_changes; i++) {
        const change *x = &r->changes[i];
        if (x->variant != v || x->partition != rec->partition || x->offset > rec->offset || strcmp(x->topic, rec->topic) != 0)
            continue;
        bool later = best && (x->offset > best->offset || (x->offset == best->offset && x->order >= best->order));
        if (!best || x->own > best->own || (x->own == best->own && later))
            best = x;
    }
    return best;
}

static void who_had(const replay *r, const pst_record *rec, pair *ret)
{
    const pst_pipeline *p = r->p;
    const change *primary = p->model.version ? NULL : change_at(r, PST_VARIANT_PRIMARY, rec),
                 *canary = change_at(r, PST_VARIANT_CANARY, rec);
    memset(ret, 0, sizeof *ret);
    ret->versions[0] = p->model.version ? p->model.version : primary ? primary->version : 0;
    ret->versions[1] = canary ? canary->version : p->has_canary ? p->canary.version : 0;
    if (ret->versions[1])
        ret->percent = canary && canary->percent >= 0 ? canary->percent : p->has_canary ? p->canary_percent : 0;
}

static bool same_pair(const pair *a, const pair *b)
{
    return a->versions[0] == b->versions[0] && a->versions[1] == b->versions[1] && a->percent == b->percent;
}

/* ---- models ---------------------------------------------------------------------------------------------------------------- */

static int offer(replay *r, pst_score_core *core, pst_variant v, int version)
{
    const pst_model_choice *c = choice(r->p, v);
    pst_model_choice exact = {.name = c->name, .version = version, .file = c->file};
    pst_binding *b = NULL;
    int rc = pst_score_load_choice(r->settings, r->p, &exact, &b, &r->err);
    if (rc == 0)
        pst_score_core_offer(core, v, b, NULL, 0);
    return rc;
}

static int core_of(replay *r, const pair *of, pst_score_core **ret)
{
    for (size_t i = 0; i < r->n_pairs; i++)
        if (same_pair(&r->pairs[i], of)) {
            *ret = r->pairs[i].core;
            return 0;
        }
    pst_score_core *core = pst_score_core_new(r->p, &(pst_score_core_opts){.scores_only = true, .windowed = r->windowed});
    int rc = offer(r, core, PST_VARIANT_PRIMARY, of->versions[0]);
    pst_score_core_canary(core, of->percent);
    if (rc == 0 && of->versions[1])
        rc = offer(r, core, PST_VARIANT_CANARY, of->versions[1]);
    if (rc < 0) {
        pst_score_core_free(core);
        return rc;
    }
    r->pairs = pst_array_one_more(r->pairs, r->n_pairs, sizeof(*r->pairs));
    r->pairs[r->n_pairs++] = (pair){{of->versions[0], of->versions[1]}, of->percent, core};
    *ret = core;
    return 0;
}

/* ---- records --------------------------------------------------------------------------------------------------------------- */

static void print(replay *r, const pst_record *rec, const pst_fate *f, json_t *take)
{
    json_object_set_new(take, "source",
                        json_pack("{s:s, s:i, s:I, s:I}", "topic", rec->topic, "partition", (int)rec->partition, "offset",
                                  (json_int_t)rec->offset, "timestamp", (json_int_t)rec->timestamp_ms));
    if (f && f->by) {
        static const char *const variants[] = {"PRIMARY", "CANARY", "SHADOW"};
        const pst_binding *b = pst_score_core_lane_binding(f->by);
        PST_ASSERT((size_t)pst_score_core_lane_variant(f->by) < sizeof variants / sizeof *variants);
        json_t *model =
            json_pack("{s:s, s:i, s:s}", "name", pst_binding_name(b), "version", pst_binding_version(b), "digest", pst_binding_digest(b));
        if (f->kind == PST_FATE_SCORED) {
            char backend[PST_BACKEND_BYTES];
            pst_binding_backend(b, f->row, backend);
            json_object_set_new(model, "backend", json_string(backend));
        }
        json_object_set_new(take, "model", model);
        json_object_set_new(take, "variant", json_string(variants[pst_score_core_lane_variant(f->by)]));
    }
    pst_json_print(r->out, take);
    json_decref(take);
    r->records++;
}

/* Nothing says who scored it, so that no score of it would be the one that was written. */
static void print_unknown(replay *r, const pst_record *rec)
{
    json_t *line = json_object();
    json_object_set_new(line, "error", json_string("no recorded effective offset says which version scored this record"));
    json_object_set_new(line, "reason", json_string("unknown-version"));
    json_object_set_new(line, "stage", json_string("INFER"));
    print(r, rec, NULL, line);
    r->bad++;
}

/* Takes a record, with the schema that it is written in. < 0: that cannot be had now. */
static int take_record(replay *r, pst_score_core *core, const pst_record *rec)
{
    int32_t id;
    const pst_schema *schema = NULL;
    pst_err e = {0};
    if (pst_score_core_take(core, rec, &id) == PST_NEEDS_NOTHING)
        return 0;
    int rc = pst_codec_schema(r->client->codec, id, &schema, &e);
    if (rc < 0 && e.cls != PST_CLASS_DATA) {
        r->err = e;
        return rc;
    }
    if (rc < 0) {
        pst_score_core_refuse(core, rec, "DECODE", "unknown-schema", e.text);
        return 0;
    }
    pst_score_core_schema(core, id, schema);
    PST_ASSERT(pst_score_core_take(core, rec, &id) == PST_NEEDS_NOTHING);
    return 0;
}

/* Scores the records before one whose schema cannot be had, and then says so. */
static int score_records(replay *r, pst_score_core *core, const pst_record *records, size_t n)
{
    int waits = 0;
    size_t taken = 0;
    pst_score_core_begin(core, 0);
    for (size_t i = 0; waits == 0 && i < n; i++)
        waits = take_record(r, core, &records[i]);
    pst_err e = {0};
    int rc = pst_score_core_run(core, &e);
    const pst_fate *fates = pst_score_core_fates(core, &taken);
    for (size_t i = 0; rc == 0 && i < taken; i++) {
        print(r, fates[i].record, &fates[i], pst_score_line(core, &fates[i]));
        r->bad += fates[i].kind == PST_FATE_BAD;
    }
    if (rc < 0)
        r->err = e;
    return rc < 0 ? rc : waits;
}

static int score_run(replay *r, const pst_record *records, size_t n, const pair *of)
{
    pst_score_core *core = NULL;
    if (!of->versions[0] && !r->p->model.file && r->windowed)
        return pst_err_set(
            &r->err, PST_ESTATE, PST_CLASS_DATA, "score", 0,
            "%s[%d]@%lld: no recorded effective offset says which version scored this record, so it is not known whether windows have "
            "it; nothing behind it can be made again",
            records->topic, records->partition, (long long)records->offset);
    if (!of->versions[0] && !r->p->model.file) {
        for (size_t i = 0; i < n; i++)
            print_unknown(r, &records[i]);
        return 0;
    }
    int rc = core_of(r, of, &core);
    return rc == 0 ? score_records(r, core, records, n) : rc;
}

static int score_batch(replay *r, const pst_batch *b)
{
    int rc = 0;
    for (size_t from = 0, to; rc == 0 && from < b->n; from = to) {
        const pst_record *first = &b->records[from];
        pair now, next;
        who_had(r, first, &now);
        for (to = from + 1; to < b->n; to++) {
            who_had(r, &b->records[to], &next);
            if (!same_pair(&now, &next))
                break;
        }
        rc = score_run(r, first, to - from, &now);
    }
    return rc;
}

static int score_all(replay *r)
{
    pst_consumer *c = NULL;
    pst_consumer_opts o = {.ranges = r->ranges, .n_ranges = r->n_ranges, .report_eof = true, .inflight_bytes_max = r->p->inflight_bytes};
    int rc = r->n_ranges ? pst_consumer_new(r->client->bus, &o, &c, &r->err) : 0;
    pst_poll how = {.records_max = r->p->batch_count, .bytes_max = r->p->batch_bytes, .timeout_ms = 1000};
    for (bool end = !r->n_ranges; rc == 0 && !end && !pst_stop_requested();) {
        pst_batch b = {0};
        pst_err e = {0};
        rc = pst_consumer_poll(c, &how, &b, &e);
        if (rc < 0 || (e.code && !b.n))
            r->err = e;
        if (rc == 0)
            rc = score_batch(r, &b);
        end = b.eof;
    }
    pst_consumer_free(c);
    return rc == 0 && pst_stop_requested() ? pst_err_set(&r->err, PST_ESTOPPED, PST_CLASS_RETRY, "score", 0, "told to stop") : rc;
}

/* ---- what is asked for ----------------------------------------------------------------------------------------------------- */

/* A number is an offset; anything else a time. */
static int bound(replay *r, const char *name, const char *text, const char *topic, int32_t partition, int64_t *ret)
{
    char *end;
    long long offset = strtoll(text, &end, 10);
    int64_t us;
    if (end != text && !*end && offset >= 0) {
        *ret = offset;
        return 0;
    }
    if (pst_time_parse(text, &us) < 0)
        return pst_err_set(&r->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "--%s %.80s is neither an offset nor a time such as 2026-01-31T12:00:00Z", name, text);
    return pst_admin_offset_at(r->client->bus, topic, partition, us / 1000, ret, &r->err);
}

static int add_topic(replay *r, const char *topic, const char *from, const char *to)
{
    pst_topic_info info = {0};
    int rc = pst_admin_topic(r->client->bus, topic, &info, 10000, &r->err);
    for (int i = 0; rc == 0 && i < info.partitions; i++) {
        pst_range x = {.topic = topic, .partition = i};
        if ((rc = bound(r, "from", from, topic, i, &x.from)) < 0 || (rc = bound(r, "to", to, topic, i, &x.to)) < 0)
            break;
        if (x.from > x.to) {
            rc = pst_err_set(&r->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--from %.60s lies behind --to %.60s", from, to);
            break;
        }
        if (r->windowed && (x.from > 0 || info.low[i] > 0)) {
            rc = pst_err_set(&r->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                             "%s[%d]: windows are made of all records from the first, and %s %lld: other windows would give other scores%s",
                             topic, i, info.low[i] > 0 ? "the topic begins at offset" : "--from is offset",
                             (long long)(info.low[i] > 0 ? info.low[i] : x.from), info.low[i] > 0 ? "" : "; use --from 0");
            break;
        }
        x.from = x.from < info.low[i] ? info.low[i] : x.from;
        x.to = x.to > info.high[i] ? info.high[i] : x.to;
        if (x.from >= x.to)
            continue;
        r->ranges = pst_array_one_more(r->ranges, r->n_ranges, sizeof(*r->ranges));
        r->ranges[r->n_ranges++] = x;
    }
    pst_topic_info_done(&info);
    return rc;
}

static int prepare(replay *r, const char *from, const char *to)
{
    if (!from || !to)
        return pst_err_set(&r->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "from where to where? --from OFFSET|TIME --to OFFSET|TIME");
    if (r->p->state.there && r->p->start != PST_START_EARLIEST)
        return pst_err_set(
            &r->err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
            "%s:%d: state: the pipeline began at input.start, so that its windows lack what was before, and a replay does not know from "
            "where; only pipelines that start at the earliest record can be replayed",
            r->p->file, r->p->line.state);
    r->windowed = pst_windowed_new(r->p);
    r->p->has_shadow = false; /* what the output topic holds is asked for */
    int rc = pst_client_open(r->settings, "penstock-score-replay", &r->client, &r->err);
    for (size_t i = 0; rc == 0 && i < r->p->n_topics; i++)
        rc = add_topic(r, r->p->topics[i], from, to);
    if (rc == 0 && r->p->model.name)
        rc = pst_client_scan(r->client, PST_TOPIC_MODELS, NULL, read_event, r, &r->err);
    return rc;
}

int pst_score_replay(const pst_settings *settings, pst_pipeline *p, const char *from, const char *to, const char *out)
{
    replay r = {.settings = settings, .p = p};
    int rc = prepare(&r, from, to);
    if (rc == 0) {
        r.out = !out || !strcmp(out, "-") ? stdout : fopen(out, "w");
        rc = r.out ? score_all(&r) : pst_err_sys(&r.err, errno, "cannot write %s", out);
    }
    if (r.out && (fflush(r.out) || ferror(r.out)) && rc >= 0)
        rc = pst_err_sys(&r.err, errno, "cannot write %s", out);
    if (r.out && r.out != stdout)
        fclose(r.out);
    int status = r.bad ? 3 : 0;
    if (rc < 0)
        status = pst_verb_say("score replay", r.settings, &r.err);
    if (rc >= 0)
        fprintf(stderr, "%llu records, %llu of them not scored\n", (unsigned long long)r.records, (unsigned long long)r.bad);
    for (size_t i = 0; i < r.n_pairs; i++)
        pst_score_core_free(r.pairs[i].core);
    pst_windowed_free(r.windowed);
    for (size_t i = 0; i < r.n_changes; i++)
        free(r.changes[i].topic);
    free(r.pairs);
    free(r.changes);
    free(r.ranges);
    pst_client_close(r.client);
    return status;
}
