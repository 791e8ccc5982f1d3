/* score_report.c - one entry a variant and partition says which version had it last; a record that another version has makes a line of the round's
 * report. Nothing is read back from the topic: a worker tells of a partition anew when it gets it. */
#include "inference/run/score_report.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/platform/codec.h"
#include "schemas/events.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    pst_variant variant;
    char *topic;
    int32_t partition;
    int version; /* -1 = in no event yet */
} entry;

struct score_reports {
    const pst_pipeline *p;
    entry **entries;
    size_t n_entries;
    entry *recent[3]; /* per variant: records come in runs of one partition */
    score_report_line *lines;
    size_t n_lines, cap_lines;
    bool sent;
    char spec[65], *stopped; /* why the canary rests; NULL = it does not */
};

static const pst_model_choice *choice(const pst_pipeline *p, pst_variant v)
{
    const pst_model_choice *const choices[] = {&p->model, p->has_canary ? &p->canary : NULL, p->has_shadow ? &p->shadow : NULL};
    const pst_model_choice *c = choices[v];
    bool pinned =
        c && c->version; /* the file says it; but a canary is off at times, and that there is none has the primary's event to say */
    return c && c->name && (!pinned || v == PST_VARIANT_CANARY || (v == PST_VARIANT_PRIMARY && !p->has_canary)) ? c : NULL;
}

void pst_score_report_spec(const pst_pipeline *p, char ret[65])
{
    const char *text = p->text ? p->text : "";
    pst_sha256_hex(text, strlen(text), ret);
}

bool pst_score_report_is_stop(const pst_model_event *e, const pst_pipeline *p, const char *spec)
{
    return e->type == PST_MODEL_EVENT_TYPE_ALIAS_SET && e->version == 0 && e->pipeline && !strcmp(e->pipeline, p->name) &&
           !strcmp(e->digest, spec);
}

score_reports *score_reports_new(const pst_pipeline *p)
{
    score_reports *r = pst_alloc(sizeof(*r));
    r->p = p;
    pst_score_report_spec(p, r->spec);
    return r;
}

void score_reports_free(score_reports *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n_entries; i++) {
        free(r->entries[i]->topic);
        free(r->entries[i]);
    }
    free(r->entries);
    free(r->lines);
    free(r->stopped);
    free(r);
}

bool score_reports_wanted(const score_reports *r)
{
    return choice(r->p, PST_VARIANT_PRIMARY) || choice(r->p, PST_VARIANT_CANARY) || choice(r->p, PST_VARIANT_SHADOW);
}

static bool is(const entry *e, pst_variant v, const char *topic, int32_t partition)
{
    return e->variant == v && e->partition == partition && !strcmp(e->topic, topic);
}

static entry *find(score_reports *r, pst_variant v, const char *topic, int32_t partition)
{
    if (r->recent[v] && is(r->recent[v], v, topic, partition))
        return r->recent[v];
    for (size_t i = 0; i < r->n_entries; i++)
        if (is(r->entries[i], v, topic, partition)) {
            r->recent[v] = r->entries[i];
            return r->recent[v];
        }
    entry *e = pst_alloc(sizeof(*e));
    *e = (entry){.variant = v, .topic = pst_strdup(topic), .partition = partition, .version = -1};
    r->entries = pst_array_one_more(r->entries, r->n_entries, sizeof(entry *));
    r->entries[r->n_entries++] = e;
    r->recent[v] = e;
    return e;
}

/* Nothing is said but what was scored here: where a change was meant to count is its mover's word. */
static void note(score_reports *r, pst_variant v, int version, const char *topic, int32_t partition, int64_t offset)
{
    if (!choice(r->p, v))
        return;
    entry *e = find(r, v, topic, partition);
    if (e->version == version)
        return;
    e->version = version;
    r->lines = pst_array_room(r->lines, r->n_lines, &r->cap_lines, sizeof *r->lines);
    r->lines[r->n_lines++] = (score_report_line){e->variant, e->topic, e->partition, offset, version, false};
}

const score_report_line *score_reports_lines(const score_reports *r, size_t *ret_n)
{
    *ret_n = r->n_lines;
    return r->lines;
}

static int version_of(const pst_lane *l)
{
    return pst_binding_version(pst_score_core_lane_binding(l));
}

void score_reports_record(score_reports *r, const pst_fate *f, const pst_lane *otherwise)
{
    const pst_record *rec = f->record;
    if (f->by && f->by != f->canary)
        note(r, PST_VARIANT_PRIMARY, version_of(f->by), rec->topic, rec->partition, rec->offset);
    if (!f->by && otherwise)
        note(r, PST_VARIANT_PRIMARY, version_of(otherwise), rec->topic, rec->partition, rec->offset);
    if (f->by)
        note(r, PST_VARIANT_CANARY, f->canary ? version_of(f->canary) : 0, rec->topic, rec->partition, rec->offset);
    if (f->shadow)
        note(r, PST_VARIANT_SHADOW, version_of(f->shadow), rec->topic, rec->partition, rec->offset);
}

void score_reports_stopped(score_reports *r, const char *why)
{
    free(r->stopped);
    r->stopped = pst_strdup(why);
}

void score_reports_rests_from(score_reports *r, const char *topic, int32_t partition, int64_t offset)
{
    note(r, PST_VARIANT_CANARY, 0, topic, partition, offset);
}

/* What the event says beside the version. Returns how many. */
static size_t tell_kind(const score_reports *r, pst_variant v, pst_dbl_pair *to)
{
    size_t n = 0;
    if (v == PST_VARIANT_SHADOW)
        to[n++] = (pst_dbl_pair){(char *)SCORE_REPORT_SHADOW, 1};
    else if (v == PST_VARIANT_CANARY) {
        to[n++] = (pst_dbl_pair){(char *)SCORE_REPORT_CANARY, 1};
        to[n++] = (pst_dbl_pair){(char *)SCORE_REPORT_PERCENT, r->p->canary_percent};
    } else if (!r->p->has_canary)
        to[n++] = (pst_dbl_pair){(char *)SCORE_REPORT_NO_CANARY, 1};
    return n;
}

/* All lines of one variant and version in one event: offsets order them, and where two are equal, the order of events does. */
static int send_event(score_reports *r, size_t first, pst_txn *txn, pst_client *c, const char *actor, pst_err *err)
{
    const score_report_line *l = &r->lines[first];
    const pst_model_choice *m = choice(r->p, l->variant);
    pst_effective_from *from = pst_alloc((r->n_lines - first) * sizeof(*from));
    size_t n = 0;
    for (size_t i = first; i < r->n_lines; i++) {
        score_report_line *k = &r->lines[i];
        if (k->published || k->variant != l->variant || k->version != l->version)
            continue;
        from[n++] = (pst_effective_from){(char *)k->topic, k->partition, k->offset};
        k->published = true;
    }
    bool rests = l->variant == PST_VARIANT_CANARY && !l->version, stopped = rests && r->stopped;
    pst_dbl_pair kind[2];
    pst_model_event e = {.name = m->name,
                         .version = l->version,
                         .type = PST_MODEL_EVENT_TYPE_ALIAS_SET,
                         .alias = m->alias ? m->alias : (char *)"latest",
                         .digest = stopped ? r->spec : (char *)"",
                         .metrics = kind,
                         .n_metrics = tell_kind(r, l->variant, kind),
                         .uri = (char *)"",
                         .format = (char *)"onnx",
                         .actor = (char *)actor,
                         .reason = stopped ? r->stopped
                                   : rests ? (char *)"the canary had no model from these offsets on"
                                           : (char *)"scored with this version from these offsets on",
                         .time = pst_now_us(),
                         .effective = from,
                         .n_effective = n,
                         .pipeline = r->p->name};
    pst_buf *value;
    const pst_out head = {.topic = pst_client_topic(c, PST_TOPIC_MODELS), .partition = -1, .key = e.name, .key_len = strlen(e.name)};
    int rc = pst_txn_reserve(txn, &head, &value, err);
    if (rc == 0)
        rc = pst_codec_encode(c->codec, &pst_model_event_type, head.topic, &e, value, err);
    if (rc == 0)
        rc = pst_txn_send_reserved(txn, err);
    free(from);
    return rc;
}

int score_reports_send(score_reports *r, pst_txn *txn, pst_client *c, const char *actor, pst_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < r->n_lines; i++) {
        r->sent = true;
        if (!r->lines[i].published)
            rc = send_event(r, i, txn, c, actor, err);
    }
    return rc;
}

bool score_reports_sent(const score_reports *r)
{
    return r->sent;
}

void score_reports_committed(score_reports *r)
{
    r->n_lines = 0;
    r->sent = false;
}

void score_reports_forget(score_reports *r)
{
    score_reports_committed(r);
    for (size_t i = 0; i < r->n_entries; i++)
        r->entries[i]->version = -1;
}
