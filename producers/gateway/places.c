/* places.c - places of streams as ids and back. What comes back was sent by anybody: it is bounded, and taken only where every part of it is right. */
#include "producers/gateway/places.h"

#include "common/base/array.h"
#include "common/base/buf.h"

#include <stdlib.h>
#include <string.h>

enum { OFFSET_DIGITS_MAX = 18, PARTITION_DIGITS_MAX = 6 };

static int compare(const gw_place *p, const char *topic, int32_t partition)
{
    int c = strcmp(p->topic, topic);
    return c ? c : (p->partition > partition) - (p->partition < partition);
}

/* The first one that is not before it. */
static size_t lower(const gw_places *v, const char *topic, int32_t partition)
{
    size_t lo = 0, hi = v->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (compare(&v->all[mid], topic, partition) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

gw_place *gw_places_find(const gw_places *v, const char *topic, int32_t partition)
{
    size_t i = lower(v, topic, partition);
    return i < v->n && !compare(&v->all[i], topic, partition) ? &v->all[i] : NULL;
}

gw_place *gw_places_put(gw_places *v, const char *topic, int32_t partition)
{
    size_t i = lower(v, topic, partition);
    if (i < v->n && !compare(&v->all[i], topic, partition))
        return &v->all[i];
    v->all = pst_array_room(v->all, v->n, &v->room, sizeof *v->all);
    memmove(v->all + i + 1, v->all + i, (v->n - i) * sizeof *v->all);
    v->n++;
    v->all[i] = (gw_place){.topic = pst_strdup(topic), .partition = partition};
    return &v->all[i];
}

void gw_places_done(gw_places *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->all[i].topic);
    free(v->all);
    *v = (gw_places){0};
}

/* Digits only, and no more of them than fit. */
static bool number(const char **at, int digits_max, int64_t *ret)
{
    int n = 0;
    for (*ret = 0; **at >= '0' && **at <= '9'; (*at)++) {
        if (++n > digits_max)
            return false;
        *ret = *ret * 10 + (**at - '0');
    }
    return n > 0;
}

bool gw_places_record(const char *text, char **ret_topic, int32_t *ret_partition, int64_t *ret_offset)
{
    const char *at = text + strcspn(text, "/;");
    int64_t partition;
    size_t len = (size_t)(at - text);
    if (!len || *at++ != '/' || !number(&at, PARTITION_DIGITS_MAX, &partition) || *at++ != '/' ||
        !number(&at, OFFSET_DIGITS_MAX, ret_offset) || (*at && *at != ';'))
        return false;
    *ret_partition = (int32_t)partition;
    *ret_topic = pst_strndup(text, len);
    return true;
}

char *gw_places_id(const gw_places *v, const char *record)
{
    pst_buf b = {0};
    pst_buf_add(&b, record, strcspn(record, ";"));
    for (size_t i = 0; i < v->n && b.len <= PST_PLACES_TEXT_MAX; i++) {
        const gw_place *p = &v->all[i];
        if (!i || strcmp(p->topic, p[-1].topic) != 0)
            pst_buf_printf(&b, ";%s", p->topic);
        pst_buf_printf(&b, "/%d:%lld", p->partition, (long long)p->next);
    }
    if (b.len <= PST_PLACES_TEXT_MAX)
        return b.data;
    pst_buf_done(&b);
    return pst_strndup(record, strcspn(record, ";"));
}

static bool parse_topic(const char **at, gw_places *v)
{
    size_t len = strcspn(*at, "/;:");
    char *topic = pst_strndup(*at, len);
    bool ok = len > 0 && (*at)[len] == '/';
    *at += len;
    while (ok && **at == '/') {
        int64_t partition, next;
        ++*at;
        ok = number(at, PARTITION_DIGITS_MAX, &partition) && *(*at)++ == ':' && number(at, OFFSET_DIGITS_MAX, &next) &&
             v->n < PST_PLACES_MAX && !gw_places_find(v, topic, (int32_t)partition);
        if (ok)
            gw_places_put(v, topic, (int32_t)partition)->next = next;
    }
    free(topic);
    return ok && (!**at || **at == ';');
}

bool gw_places_parse(const char *id, gw_places *ret)
{
    char *topic = NULL;
    int32_t partition;
    int64_t offset;
    *ret = (gw_places){0};
    bool ok = strnlen(id, PST_PLACES_TEXT_MAX + 1) <= PST_PLACES_TEXT_MAX && gw_places_record(id, &topic, &partition, &offset);
    free(topic);
    const char *at = ok ? id + strcspn(id, ";") : "";
    while (ok && *at == ';') {
        at++;
        ok = parse_topic(&at, ret);
    }
    if (!ok || !ret->n)
        gw_places_done(ret);
    return ret->n > 0;
}
