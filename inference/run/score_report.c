/* score_report.c - one entry a variant and partition says which version had it last; a record that another version has makes a line of the round's
 * report. Nothing is read back from the topic: a worker tells of a partition anew when it gets it. */
#include "inference/run/score_report.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/platform/codec.h"
#include "schemas/events.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    pst_variant variant;
    char *topic;
    int32_t partition;
    int version; /* 0 = in no event yet */
} entry;

struct score_reports {
    const pst_pipeline *p;
    entry **entries;
    size_t n_entries;
    entry *recent[3]; /* per variant: records come in runs of one partition */
    score_report_line *lines;
    size_t n_lines, cap_lines;
    bool sent;
};

static const pst_model_choice *choice(const pst_pipeline *p, pst_variant v)
{
    const pst_model_choice *const choices[] = {&p->model, p->has_canary ? &p->canary : NULL, p->has_shadow ? &p->shadow : NULL};
    const pst_model_choice *c = choices[v];
    return c && c->name && !c->version ? c : NULL;
}

score_reports *score_reports_new(const pst_pipeline *p)
{
    score_reports *r = pst_alloc(sizeof(*r));
    r->p = p;
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
    free(r);
}

bool score_reports_wanted(const score_reports *r)
{
    return choice(r->p, PST_VARIANT_PRIMARY) || choice(r->p, PST_VARIANT_CANARY) || choice(r->p, PST_VARIANT_SHADOW);
}

static bool is(const entry *e, pst_variant v, const pst_record *rec)
{
    return e->variant == v && e->partition == rec->partition && !strcmp(e->topic, rec->topic);
}

static entry *find(score_reports *r, pst_variant v, const pst_record *rec)
{
    if (r->recent[v] && is(r->recent[v], v, rec))
        return r->recent[v];
    for (size_t i = 0; i < r->n_entries; i++)
        if (is(r->entries[i], v, rec)) {
            r->recent[v] = r->entries[i];
            return r->recent[v];
        }
    entry *e = pst_alloc(sizeof(*e));
    *e = (entry){.variant = v, .topic = pst_strdup(rec->topic), .partition = rec->partition};
    r->entries = pst_array_one_more(r->entries, r->n_entries, sizeof(entry *));
    r->entries[r->n_entries++] = e;
    r->recent[v] = e;
    return e;
}

/* Nothing is said but what was scored here: where a change was meant to count is its mover's word. */
static void note(score_reports *r, const pst_lane *l, const pst_record *rec)
{
    pst_variant v = pst_score_core_lane_variant(l);
    if (!choice(r->p, v))
        return;
    entry *e = find(r, v, rec);
    int version = pst_binding_version(pst_score_core_lane_binding(l));
    if (e->version == version)
        return;
    e->version = version;
    r->lines = pst_array_room(r->lines, r->n_lines, &r->cap_lines, sizeof *r->lines);
    r->lines[r->n_lines++] = (score_report_line){e->variant, e->topic, e->partition, rec->offset, version, false};
}

const score_report_line *score_reports_lines(const score_reports *r, size_t *ret_n)
{
    *ret_n = r->n_lines;
    return r->lines;
}

void score_reports_record(score_reports *r, const pst_fate *f)
{
    if (f->by)
        note(r, f->by, f->record);
    if (f->shadow)
        note(r, f->shadow, f->record);
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
    pst_model_event e = {.name = m->name,
                         .version = l->version,
                         .type = PST_MODEL_EVENT_TYPE_ALIAS_SET,
                         .alias = m->alias ? m->alias : (char *)"latest",
                         .digest = (char *)"",
                         .uri = (char *)"",
                         .format = (char *)"onnx",
                         .actor = (char *)actor,
                         .reason = (char *)"scored with this version from these offsets on",
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
        r->entries[i]->version = 0;
}
