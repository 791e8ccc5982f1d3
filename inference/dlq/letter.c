/* letter.c - reads the headers of a dead letter. One pass over the headers with a table of names, so that Connect's and Streams' words meet in one
 * place, and nothing of them is trusted: numbers are parsed whole or not at all, names are held against what Kafka lets a topic be called. */
#include "inference/dlq/letter.h"

#include <stdlib.h>
#include <string.h>

#define CONNECT "__connect.errors."
#define STREAMS "__streams.errors."

typedef enum {
    WORD_TOPIC,
    WORD_PARTITION,
    WORD_OFFSET,
    WORD_COMPONENT,
    WORD_STAGE,
    WORD_CLASS,
    WORD_MESSAGE,
    WORD_REASON,
    WORD_REPLAYS,
    WORD_TIME,
    WORDS
} word;

static const struct {
    const char *name;
    word word;
} names[] = {
    {CONNECT "topic", WORD_TOPIC},
    {CONNECT "partition", WORD_PARTITION},
    {CONNECT "offset", WORD_OFFSET},
    {CONNECT "connector.name", WORD_COMPONENT},
    {CONNECT "stage", WORD_STAGE},
    {CONNECT "exception.class.name", WORD_CLASS},
    {CONNECT "exception.message", WORD_MESSAGE},
    {STREAMS "topic", WORD_TOPIC},
    {STREAMS "partition", WORD_PARTITION},
    {STREAMS "offset", WORD_OFFSET},
    {STREAMS "exception", WORD_CLASS},
    {STREAMS "message", WORD_MESSAGE},
    {"x-dlq-reason", WORD_REASON},
    {DLQ_HEADER_REPLAYS, WORD_REPLAYS},
    {"x-dlq-timestamp", WORD_TIME},
};

bool dlq_header_is_error(const char *name)
{
    return !strncmp(name, CONNECT, strlen(CONNECT)) || !strncmp(name, STREAMS, strlen(STREAMS)) || !strcmp(name, "x-dlq-reason") ||
           !strcmp(name, "x-dlq-timestamp") || !strcmp(name, "x-dlq-component") || !strcmp(name, DLQ_HEADER_REPLAYS) ||
           !strcmp(name, DLQ_HEADER_FROM);
}

bool dlq_topic_name(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n <= DLQ_TOPIC_MAX && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/* Decimal digits and nothing else, up to max; -1 = it is no such number. */
static int64_t number(pst_slice text, int64_t max)
{
    const char *at = text.data;
    int64_t n = 0;
    if (!text.len || text.len > 18)
        return -1;
    for (size_t i = 0; i < text.len; i++) {
        if (at[i] < '0' || at[i] > '9')
            return -1;
        n = n * 10 + (at[i] - '0');
    }
    return n <= max ? n : -1;
}

static void take_source(dlq_letter *l, pst_slice name)
{
    if (!name.len || name.len > DLQ_TOPIC_MAX || memchr(name.data, 0, name.len))
        return;
    memcpy(l->source, name.data, name.len);
    l->source[name.len] = 0;
    l->dead = dlq_topic_name(l->source);
    if (!l->dead)
        l->source[0] = 0;
}

void dlq_letter_read(const pst_record *r, pst_header_room *room, dlq_letter *ret)
{
    pst_slice found[WORDS] = {0};
    size_t n = pst_record_headers_all(r, room, 0);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (!strcmp(room->at[i].name, names[k].name))
                found[names[k].word] = (pst_slice){room->at[i].value, room->at[i].value ? room->at[i].len : 0};
    }
    *ret = (dlq_letter){.record = r, .component = found[WORD_COMPONENT], .stage = found[WORD_STAGE], .message = found[WORD_MESSAGE]};
    take_source(ret, found[WORD_TOPIC]);
    ret->error_class = found[WORD_CLASS];
    ret->reason = found[WORD_REASON].len ? found[WORD_REASON] : found[WORD_CLASS];
    ret->source_partition = (int32_t)number(found[WORD_PARTITION], INT32_MAX);
    ret->source_offset = number(found[WORD_OFFSET], INT64_MAX);
    int64_t replays = number(found[WORD_REPLAYS], 1000000000);
    ret->replays = replays > 0 ? replays : 0;
    int64_t own = number(found[WORD_TIME], INT64_MAX);
    ret->timestamp_ms = own > 0 ? own : r->timestamp_ms;
}

/* ---- filters ---------------------------------------------------------------------------------------------------------------- */

static bool same(pst_slice a, const char *b)
{
    return a.len == strlen(b) && (!a.len || !memcmp(a.data, b, a.len));
}

bool dlq_filter_takes(const dlq_filter *f, const dlq_letter *l)
{
    int64_t at = l->timestamp_ms;
    if (f->reason && !same(l->reason, f->reason) && !same(l->error_class, f->reason))
        return false;
    if (f->stage && !same(l->stage, f->stage))
        return false;
    if (f->source && strcmp(l->source, f->source) != 0)
        return false;
    return (!f->since_ms || at >= f->since_ms) && (!f->until_ms || at < f->until_ms);
}

int dlq_filter_partition(dlq_filter *f, const char *text, pst_err *err)
{
    size_t digits = strspn(text, "0123456789");
    const char *colon = text + digits, *first = colon + 1;
    int64_t partition = number((pst_slice){text, digits}, INT32_MAX), from = 0, to = INT64_MAX;
    bool ok = partition >= 0 && (!*colon || *colon == ':');
    if (ok && *colon) {
        size_t n = strspn(first, "0123456789");
        const char *dash = first + n;
        to = from = number((pst_slice){first, n}, INT64_MAX);
        ok = from >= 0 && (!*dash || *dash == '-');
        if (ok && *dash)
            to = number((pst_slice){dash + 1, strlen(dash + 1)}, INT64_MAX);
        ok = ok && to >= from;
    }
    if (!ok)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                           "%.80s is no part of a topic: wanted PARTITION, PARTITION:OFFSET or PARTITION:FIRST-LAST", text);
    f->partition = (int32_t)partition;
    f->from = from;
    f->to = to;
    return 0;
}
