/* ledger.c - runs of offsets, sorted, each with its end; entries of the topic in and out of JSON. Reading goes on where it ended the last time, so that a replay whose
 * producer had to be made anew (somebody else may have run meanwhile) pays for what came since and no more. */
#include "inference/dlq/ledger.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/settings.h"
#include "common/base/stop.h"
#include "inference/dlq/scan.h"

#include <stdlib.h>
#include <string.h>

enum { RUNS_AN_ENTRY = 100000, CREATE_MS = 30000, LOOK_MS = 10000, GONE_MS = 3000, TOPIC_NAME_MAX = 249 };
#define SUFFIX     ".replays"
#define OFFSET_MAX (INT64_C(1) << 62)

typedef struct run {
    int32_t partition;
    int64_t from, to; /* to exclusive */
} run;

typedef struct check {
    int32_t partition;
    int64_t offset;
    uint32_t crc;
} check;

struct dlq_ledger {
    char *topic, *dead_letters;
    run *runs;
    size_t n_runs, cap_runs;
    check *checks;
    size_t n_checks, cap_checks;
    int64_t next; /* offset in the ledger's one partition */
    check *round; /* what is being put back */
    size_t n_round, cap_round, told;
};

dlq_ledger *dlq_ledger_new(const char *dead_letters)
{
    dlq_ledger *l = pst_alloc(sizeof *l);
    l->dead_letters = pst_strdup(dead_letters);
    l->topic = pst_sprintf("%s" SUFFIX, dead_letters);
    return l;
}

void dlq_ledger_free(dlq_ledger *l)
{
    if (!l)
        return;
    free(l->topic);
    free(l->dead_letters);
    free(l->runs);
    free(l->checks);
    free(l->round);
    free(l);
}

const char *dlq_ledger_topic(const dlq_ledger *l)
{
    return l->topic;
}

bool dlq_ledger_is(const char *topic)
{
    size_t n = strlen(topic), suffix = sizeof SUFFIX - 1;
    return n > suffix && !strcmp(topic + n - suffix, SUFFIX);
}

int dlq_ledger_beside(const char *topic, const pst_client *c, bool *ret_beside, pst_err *err)
{
    pst_topic_info info = {0};
    pst_err e = {0};
    char *name = pst_sprintf("%s" SUFFIX, topic);
    int rc = strlen(name) <= TOPIC_NAME_MAX ? pst_admin_topic(c->bus, name, &info, LOOK_MS, &e) : PST_ENOTFOUND;
    free(name);
    pst_topic_info_done(&info);
    *ret_beside = rc == 0;
    if (rc == 0 || rc == PST_ENOTFOUND || rc == PST_EAUTH)
        return 0;
    *err = e;
    return rc;
}

static int by_place(int32_t ap, int64_t ao, int32_t bp, int64_t bo)
{
    if (ap != bp)
        return ap < bp ? -1 : 1;
    return (ao > bo) - (ao < bo);
}

static int by_run(const void *a, const void *b)
{
    const run *x = a, *y = b;
    return by_place(x->partition, x->from, y->partition, y->from);
}

static int by_check(const void *a, const void *b)
{
    const check *x = a, *y = b;
    return by_place(x->partition, x->offset, y->partition, y->offset);
}

static uint32_t sum_of(const pst_record *r)
{
    uint32_t crc = pst_crc32c(0, &r->timestamp_ms, sizeof r->timestamp_ms);
    if (r->key)
        crc = pst_crc32c(crc, r->key, r->key_len);
    return r->value ? pst_crc32c(crc, r->value, r->value_len) : crc;
}

/* ---- in --------------------------------------------------------------------------------------------------------------------- */

static int bad_entry(pst_err *err, const char *why)
{
    return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "config", 0, "no entry of a replay: %s", why);
}

static int add_runs(dlq_ledger *l, int32_t partition, const json_t *runs, pst_err *err)
{
    size_t i;
    const json_t *pair;
    json_array_foreach(runs, i, pair)
    {
        const json_t *first = json_array_get(pair, 0), *many = json_array_get(pair, 1);
        int64_t from = json_integer_value(first), count = json_integer_value(many);
        if (!json_is_integer(first) || !json_is_integer(many) || from < 0 || count <= 0 || from > OFFSET_MAX || count > OFFSET_MAX)
            return bad_entry(err, "a run is not [offset, count]");
        l->runs = pst_array_room(l->runs, l->n_runs, &l->cap_runs, sizeof *l->runs);
        l->runs[l->n_runs++] = (run){partition, from, from + count};
    }
    return 0;
}

int dlq_ledger_add(dlq_ledger *l, const void *value, size_t len, pst_err *err)
{
    json_t *j = NULL;
    pst_err e = {0};
    if (!value || pst_json_parse(value, len, "entry", &j, &e) < 0)
        return bad_entry(err, value ? e.text : "it has no value");
    const json_t *runs = json_object_get(j, "runs"), *last = json_object_get(j, "last");
    int64_t partition = pst_json_int(j, "partition", -1), offset = pst_json_int(last, "offset", -1), crc = pst_json_int(last, "crc32c", -1);
    int rc = 0;
    if (partition < 0 || partition > INT32_MAX || !json_is_array(runs) || json_array_size(runs) > RUNS_AN_ENTRY || offset < 0 || crc < 0 ||
        crc > UINT32_MAX)
        rc = bad_entry(err, "wanted partition, runs and last");
    if (!rc)
        rc = add_runs(l, (int32_t)partition, runs, err);
    if (!rc) {
        l->checks = pst_array_room(l->checks, l->n_checks, &l->cap_checks, sizeof *l->checks);
        l->checks[l->n_checks++] = (check){(int32_t)partition, offset, (uint32_t)crc};
    }
    json_decref(j);
    return rc;
}

void dlq_ledger_settle(dlq_ledger *l)
{
    size_t n = 0;
    if (!l->n_runs)
        return;
    qsort(l->runs, l->n_runs, sizeof *l->runs, by_run);
    qsort(l->checks, l->n_checks, sizeof *l->checks, by_check);
    for (size_t i = 1; i < l->n_runs; i++) {
        run *last = &l->runs[n];
        const run *next = &l->runs[i];
        if (next->partition == last->partition && next->from <= last->to)
            last->to = next->to > last->to ? next->to : last->to;
        else
            l->runs[++n] = *next;
    }
    l->n_runs = n + 1;
}

static int take_batch(void *arg, const pst_record *records, size_t n, pst_err *err)
{
    dlq_ledger *l = arg;
    for (size_t i = 0; i < n; i++) {
        pst_err e = {0};
        if (dlq_ledger_add(l, records[i].value, records[i].value_len, &e) < 0)
            return pst_err_set(
                err, PST_ESTATE, PST_CLASS_FATAL, "config", 0,
                "%s offset %lld is %s. What was replayed is not known, so nothing is; if none of it counts any more, delete that topic",
                l->topic, (long long)records[i].offset, e.text);
        l->next = records[i].offset + 1;
    }
    return 0;
}

/* A broker may be behind with the news of a topic that was made: it is asked for a while before the topic is called gone. */
static int look(const dlq_ledger *l, const pst_client *c, bool made, pst_topic_info *ret, pst_err *err)
{
    int64_t until = pst_mono_us() + (made ? GONE_MS * 1000LL : 0);
    int rc;
    do {
        pst_err_clear(err);
        rc = pst_admin_topic(c->bus, l->topic, ret, LOOK_MS, err);
    } while (rc == PST_ENOTFOUND && pst_mono_us() < until && !pst_stop_requested() && (pst_sleep_ms(100), true));
    return rc;
}

int dlq_ledger_read(dlq_ledger *l, const pst_client *c, bool made, pst_err *err)
{
    pst_topic_info info = {0};
    pst_err e = {0};
    int rc = look(l, c, made, &info, &e);
    if (rc == PST_ENOTFOUND && made)
        return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "config", 0,
                           "%s was deleted during the replay: what was put back is not known any more, so nothing more is", l->topic);
    if (rc == PST_ENOTFOUND)
        return 0;
    if (rc < 0) {
        *err = e;
        return rc;
    }
    if (info.partitions != 1) /* entries of one partition have one order */
        rc = pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "config", 0, "%s has %d partitions, not 1: it was not made by a replay",
                         l->topic, info.partitions);
    if (!rc)
        rc = dlq_scan(c, l->topic, &info, &(dlq_filter){.partition = -1, .from = l->next, .to = INT64_MAX}, take_batch, l, err);
    dlq_ledger_settle(l);
    pst_topic_info_done(&info);
    return rc;
}

int dlq_ledger_make(dlq_ledger *l, const pst_client *c, pst_err *err)
{
    pst_topic_info info = {0};
    pst_err e = {0};
    int rc = pst_admin_topic(c->bus, l->topic, &info, LOOK_MS, &e);
    pst_topic_info_done(&info);
    if (rc != PST_ENOTFOUND) {
        if (rc < 0)
            *err = e;
        return rc;
    }
    /* Compacted, with keys of which none comes twice: kept for ever. */
    static const char *const kept[] = {"cleanup.policy", "compact", NULL};
    rc = pst_admin_create_topics(c->bus, &(pst_topic_spec){l->topic, 1, -1, kept}, 1, CREATE_MS, err);
    if (rc == PST_EAUTH)
        pst_err_prefix(err, "a replay notes what it did in %s, which is not there", l->topic);
    return rc;
}

bool dlq_ledger_has(const dlq_ledger *l, int32_t partition, int64_t offset)
{
    size_t lo = 0, hi = l->n_runs;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (by_place(l->runs[mid].partition, l->runs[mid].from, partition, offset) <= 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo && l->runs[lo - 1].partition == partition && offset < l->runs[lo - 1].to;
}

static int other_topic(const dlq_ledger *l, pst_err *err)
{
    return pst_err_set(err, PST_ESTATE, PST_CLASS_FATAL, "config", 0,
                       "%s was deleted and made anew since %s was written: its entries speak of other dead letters. Delete %s, then replay",
                       l->dead_letters, l->topic, l->topic);
}

int dlq_ledger_check(const dlq_ledger *l, const pst_record *r, pst_err *err)
{
    if (!l->n_checks)
        return 0;
    const check *known = bsearch(&(check){r->partition, r->offset, 0}, l->checks, l->n_checks, sizeof *l->checks, by_check);
    return known && known->crc != sum_of(r) ? other_topic(l, err) : 0;
}

int dlq_ledger_check_ends(const dlq_ledger *l, const pst_topic_info *info, pst_err *err)
{
    for (size_t i = 0; i < l->n_checks; i++)
        if (l->checks[i].partition >= info->partitions || l->checks[i].offset >= info->high[l->checks[i].partition])
            return other_topic(l, err);
    return 0;
}

/* ---- out -------------------------------------------------------------------------------------------------------------------- */

void dlq_ledger_begin(dlq_ledger *l)
{
    l->n_round = l->told = 0;
}

void dlq_ledger_note(dlq_ledger *l, const pst_record *r)
{
    l->round = pst_array_room(l->round, l->n_round, &l->cap_round, sizeof *l->round);
    l->round[l->n_round++] = (check){r->partition, r->offset, sum_of(r)};
}

bool dlq_ledger_entry(dlq_ledger *l, const char *to, pst_buf *ret_key, pst_buf *ret_value)
{
    if (l->told == l->n_round)
        return false;
    if (!l->told)
        qsort(l->round, l->n_round, sizeof *l->round, by_check);
    const check *first = &l->round[l->told], *last = first;
    char when[32];
    json_t *runs = json_array();
    while (l->told < l->n_round && l->round[l->told].partition == first->partition) {
        int64_t from = l->round[l->told].offset, next = from;
        for (; l->told < l->n_round && l->round[l->told].partition == first->partition && l->round[l->told].offset == next; next++)
            last = &l->round[l->told++];
        json_array_append_new(runs, json_pack("[I, I]", (json_int_t)from, (json_int_t)(next - from)));
    }
    json_t *j = json_pack("{s:i, s:o, s:{s:I, s:I}, s:s?, s:s, s:s}", "partition", (int)first->partition, "runs", runs, "last", "offset",
                          (json_int_t)last->offset, "crc32c", (json_int_t)last->crc, "to", to, "actor", pst_account_name(NULL), "time",
                          pst_time_text(pst_now_us(), when));
    pst_buf_clear(ret_key);
    pst_buf_clear(ret_value);
    pst_buf_printf(ret_key, "%d:%lld", (int)first->partition, (long long)first->offset);
    pst_json_add(ret_value, j);
    json_decref(j);
    return true;
}
