/* list.c - dead letters counted in one pass. What is counted apart is the user's choice (--by); a row keeps its newest letter's place and message.
 * Rows are few or told to be too many: a topic of millions takes no more memory than its kinds of errors. */
#include "inference/dlq/ask.h"
#include "inference/dlq/ledger.h"
#include "inference/dlq/scan.h"

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 1000, TEXT_MAX = 120, MESSAGE_MAX = 300 };

static const char *const words[] = {"source", "partition", "stage", "reason", "class", "component", "day", "hour"};
enum { BY_SOURCE, BY_PARTITION, BY_STAGE, BY_REASON, BY_CLASS, BY_COMPONENT, BY_DAY, BY_HOUR, N_BY };

typedef struct row {
    char *texts[N_BY]; /* NULL = not counted apart */
    int64_t count, replayed, first_ms, last_ms;
    int32_t partition; /* of the newest, in the topic of dead letters */
    int64_t offset;
    char *message;
} row;

typedef struct list {
    const pst_dlq_ask *ask;
    const char *topic;
    const dlq_filter *filter;
    bool by[N_BY];
    dlq_ledger *ledger; /* NULL = not known what was replayed */
    pst_map rows;
    row others; /* beyond ROWS_MAX */
    int64_t records, dead;
    pst_header_room room;
    pst_buf key, text;
} list;

static int parse_by(list *l, const char *text, pst_err *err)
{
    while (*text) {
        size_t n = strcspn(text, ","), i = 0;
        while (i < N_BY && (strlen(words[i]) != n || memcmp(words[i], text, n) != 0))
            i++;
        if (i == N_BY)
            return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                               "--by %.*s: wanted source, partition, stage, reason, class, component, day or hour, with commas between",
                               (int)(n < 80 ? n : 80), text);
        l->by[i] = true;
        text += n + (text[n] == ',');
    }
    return 0;
}

static void row_free(void *p)
{
    row *w = p;
    for (int i = 0; i < N_BY; i++)
        free(w->texts[i]);
    free(w->message);
    free(w);
}

/* What a letter is in one respect, as a text of one line. */
static void respect(list *l, const dlq_letter *d, int i)
{
    char when[32];
    int64_t ms = d->timestamp_ms;
    pst_buf_clear(&l->text);
    switch (i) {
    case BY_SOURCE: pst_buf_adds(&l->text, d->source); break;
    case BY_PARTITION:
        if (d->source_partition >= 0)
            pst_buf_printf(&l->text, "%d", d->source_partition);
        else
            pst_buf_adds(&l->text, "-");
        break;
    case BY_STAGE: dlq_ask_quote(&l->text, d->stage, TEXT_MAX); break;
    case BY_REASON: dlq_ask_quote(&l->text, d->reason, TEXT_MAX); break;
    case BY_CLASS: dlq_ask_quote(&l->text, d->error_class, TEXT_MAX); break;
    case BY_COMPONENT: dlq_ask_quote(&l->text, d->component, TEXT_MAX); break;
    default: pst_buf_printf(&l->text, "%.*s", i == BY_DAY ? 10 : 13, ms >= 0 ? pst_time_text(ms * 1000, when) : "-");
    }
}

static row *row_of(list *l, const dlq_letter *d)
{
    pst_buf_clear(&l->key);
    for (int i = 0; i < N_BY; i++) {
        if (!l->by[i])
            continue;
        respect(l, d, i);
        pst_buf_printf(&l->key, "%s\n", l->text.data);
    }
    const char *key = l->key.len ? l->key.data : "all";
    row *w = pst_map_get(&l->rows, key);
    if (w)
        return w;
    if (l->rows.live == ROWS_MAX)
        return &l->others;
    w = pst_alloc(sizeof *w);
    for (int i = 0; i < N_BY; i++) {
        if (!l->by[i])
            continue;
        respect(l, d, i);
        w->texts[i] = pst_strdup(l->text.data);
    }
    pst_map_put(&l->rows, key, w);
    return w;
}

static void count(list *l, const dlq_letter *d)
{
    const pst_record *r = d->record;
    row *w = row_of(l, d);
    bool newest = !w->count || r->timestamp_ms >= w->last_ms;
    if (!w->count++ || r->timestamp_ms < w->first_ms)
        w->first_ms = r->timestamp_ms;
    w->replayed += l->ledger && dlq_ledger_has(l->ledger, r->partition, r->offset);
    if (!newest)
        return;
    w->last_ms = r->timestamp_ms;
    w->partition = r->partition;
    w->offset = r->offset;
    pst_buf_clear(&l->text);
    dlq_ask_quote(&l->text, d->message, MESSAGE_MAX);
    free(w->message);
    w->message = pst_strdup(l->text.data);
}

static int take_batch(void *arg, const pst_record *records, size_t n, pst_err *err)
{
    list *l = arg;
    for (size_t i = 0; i < n; i++) {
        dlq_letter d;
        pst_err e = {0};
        dlq_letter_read(&records[i], &l->room, &d);
        l->records++;
        if (l->ledger && dlq_ledger_check(l->ledger, &records[i], &e) < 0)
            l->ledger = dlq_ask_distrust(l->ledger, &e);
        if (!d.dead)
            continue;
        l->dead++;
        if (dlq_filter_takes(l->filter, &d))
            count(l, &d);
    }
    return 0;
}

/* ---- out -------------------------------------------------------------------------------------------------------------------- */

static int by_count(const void *a, const void *b)
{
    const row *x = *(row *const *)a, *y = *(row *const *)b;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    for (int i = 0; i < N_BY; i++) {
        int c = x->texts[i] && y->texts[i] ? strcmp(x->texts[i], y->texts[i]) : 0;
        if (c)
            return c;
    }
    return 0;
}

static void print_json(const list *l, const row *w, bool others)
{
    char first[32], last[32];
    json_t *j = json_pack("{s:s, s:I}", "topic", l->topic, "count", (json_int_t)w->count);
    for (int i = 0; i < N_BY; i++)
        if (w->texts[i])
            json_object_set_new(j, words[i],
                                i == BY_PARTITION && *w->texts[i] != '-' ? json_integer(atoll(w->texts[i])) : json_string(w->texts[i]));
    if (others)
        json_object_set_new(j, "others", json_true());
    json_object_set_new(j, "replayed", l->ledger ? json_integer(w->replayed) : json_null());
    json_object_set_new(j, "first", w->first_ms >= 0 ? json_string(pst_time_text(w->first_ms * 1000, first)) : json_null());
    json_object_set_new(j, "last", w->last_ms >= 0 ? json_string(pst_time_text(w->last_ms * 1000, last)) : json_null());
    json_object_set_new(
        j, "newest", json_pack("{s:i, s:I, s:s}", "partition", (int)w->partition, "offset", (json_int_t)w->offset, "message", w->message));
    dlq_ask_row(l->ask, j);
}

static void print_row(const list *l, const row *w, bool others)
{
    char first[32], last[32], place[40];
    printf("%8lld ", (long long)w->count);
    if (l->ledger)
        printf("%8lld  ", (long long)w->replayed);
    else
        printf("%8s  ", "unknown");
    for (int i = 0; i < N_BY; i++)
        if (l->by[i])
            printf("%-*s ", i == BY_SOURCE || i == BY_REASON || i >= BY_CLASS ? 20 : 9, others ? "(others)" : w->texts[i]);
    snprintf(place, sizeof place, "%d:%lld", w->partition, (long long)w->offset);
    printf("%.19s  %.19s  %-10s %s\n", w->first_ms >= 0 ? pst_time_text(w->first_ms * 1000, first) : "-",
           w->last_ms >= 0 ? pst_time_text(w->last_ms * 1000, last) : "-", place, w->message);
}

static void print_heading(const list *l)
{
    static const char *const upper[N_BY] = {"SOURCE", "PARTITION", "STAGE", "REASON", "CLASS", "COMPONENT", "DAY", "HOUR"};
    printf("%8s %8s  ", "COUNT", "REPLAYED");
    for (int i = 0; i < N_BY; i++)
        if (l->by[i])
            printf("%-*s ", i == BY_SOURCE || i == BY_REASON || i >= BY_CLASS ? 20 : 9, upper[i]);
    printf("%-19s  %-19s  %-10s %s\n", "FIRST", "LAST", "NEWEST", "ITS ERROR");
}

static void print(const pst_verb_run *v, const list *l)
{
    row **sorted = pst_alloc((l->rows.live + 1) * sizeof *sorted);
    size_t n = 0;
    for (size_t i = 0; i < l->rows.n; i++)
        if (l->rows.at[i].key)
            sorted[n++] = l->rows.at[i].value;
    qsort(sorted, n, sizeof *sorted, by_count);
    if (n && !v->settings.json)
        print_heading(l);
    for (size_t i = 0; i < n + (l->others.count > 0); i++) {
        const row *w = i < n ? sorted[i] : &l->others;
        if (v->settings.json)
            print_json(l, w, i == n);
        else
            print_row(l, w, i == n);
    }
    free(sorted);
    fflush(stdout);
    if (v->settings.quiet)
        return;
    if (!n)
        fprintf(stderr, "no dead letters%s in %s\n", l->dead ? " such as asked for" : "", l->topic);
    if (l->dead && l->dead < l->records)
        fprintf(stderr, "%lld more records of %s are no dead letters (no header __connect.errors.topic)\n",
                (long long)(l->records - l->dead), l->topic);
}

static int list_topic(pst_verb_run *v, const pst_dlq_ask *ask, const dlq_filter *f, const char *topic, bool *ret_there, pst_err *err)
{
    list l = {.ask = ask, .topic = topic, .filter = f};
    pst_topic_info info = {0};
    pst_err e = {0};
    int rc = parse_by(&l, ask->by, err);
    if (!rc)
        rc = dlq_ask_topic(v, topic, &info, err);
    *ret_there = info.name != NULL;
    l.ledger = rc ? NULL : dlq_ledger_new(topic);
    if (!rc && (dlq_ledger_read(l.ledger, v->client, false, &e) < 0 || dlq_ledger_check_ends(l.ledger, &info, &e) < 0))
        l.ledger = dlq_ask_distrust(l.ledger, &e);
    if (!rc)
        rc = dlq_scan(v->client, topic, &info, f, take_batch, &l, err);
    if (!rc && l.records && !l.dead)
        rc = dlq_ask_none(topic, l.records, err);
    else if (!rc)
        print(v, &l);
    pst_map_done(&l.rows, row_free);
    free(l.others.message);
    dlq_ledger_free(l.ledger);
    pst_header_room_done(&l.room);
    pst_buf_done(&l.key);
    pst_buf_done(&l.text);
    pst_topic_info_done(&info);
    return rc;
}

int pst_dlq_list(pst_verb_run *v, const pst_dlq_ask *ask, pst_err *err)
{
    dlq_filter f;
    int rc = dlq_ask_filter(ask, &f, err);
    for (size_t i = 0; !rc && i < ask->n_topics; i++) {
        if (ask->n_topics > 1 && !v->settings.json)
            printf("%s%s:\n", i ? "\n" : "", ask->topics[i]);
        pst_err e = {0};
        bool there = false;
        rc = list_topic(v, ask, &f, ask->topics[i], &there, &e);
        if (rc == PST_ENOTFOUND && ask->pipeline && !there && !strcmp(e.origin, "kafka")) { /* it is made with its first letter */
            if (!v->settings.quiet)
                fprintf(stderr, "%s is not there yet: no dead letters\n", ask->topics[i]);
            rc = 0;
        } else if (rc < 0)
            *err = e;
    }
    return rc;
}
