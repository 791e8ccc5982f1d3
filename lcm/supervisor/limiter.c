/* limiter.c - two token buckets, lines and bytes, of one second each. A line that finds no room is dropped, not delayed: output must
 * not slow a learner down. The last of what was dropped is kept, for the end of a run says why it ended. */
#include "lcm/supervisor/limiter.h"

#include "common/base/buf.h"
#include "common/base/err.h"

#include <stdlib.h>
#include <string.h>

void sup_limiter_init(sup_limiter *l, double lines_per_s, double bytes_per_s, int64_t now_us)
{
    memset(l, 0, sizeof *l);
    l->lines_per_s = l->lines = lines_per_s;
    l->bytes_per_s = l->bytes = bytes_per_s;
    l->last_us = now_us;
}

static void refill(sup_limiter *l, int64_t now_us)
{
    double s = (double)(now_us - l->last_us) / 1e6;
    if (s <= 0)
        return;
    l->last_us = now_us;
    l->lines += s * l->lines_per_s;
    l->bytes += s * l->bytes_per_s;
    if (l->lines > l->lines_per_s)
        l->lines = l->lines_per_s;
    if (l->bytes > l->bytes_per_s)
        l->bytes = l->bytes_per_s;
}

/* While lines are being dropped, a tenth of the bucket must fill first: gaps come in runs, not line by line. */
static bool has_room(const sup_limiter *l, size_t len)
{
    double share = l->dropped_lines ? 0.1 : 0;
    double need = (double)len > l->bytes_per_s ? l->bytes_per_s : (double)len;
    return l->lines >= 1 + share * l->lines_per_s && l->bytes >= need && l->bytes >= share * l->bytes_per_s;
}

bool sup_limiter_take(sup_limiter *l, size_t len, int64_t now_us)
{
    refill(l, now_us);
    if (l->dropped_lines || !has_room(l, len)) {
        l->dropped_lines++;
        l->dropped_bytes += (int64_t)len;
        return false;
    }
    l->lines -= 1;
    l->bytes -= (double)len;
    return true;
}

static void forget_oldest(sup_limiter *l)
{
    sup_kept_line *k = &l->tail[l->tail_first];
    l->tail_bytes -= k->len;
    free(k->text);
    memset(k, 0, sizeof *k);
    l->tail_first = (l->tail_first + 1) % PST_LIMITER_TAIL;
    l->tail_n--;
}

void sup_limiter_done(sup_limiter *l)
{
    while (l->tail_n)
        forget_oldest(l);
}

void sup_limiter_keep(sup_limiter *l, int stream, int64_t time_us, const char *text, size_t len)
{
    while (l->tail_n && (l->tail_n == PST_LIMITER_TAIL || l->tail_bytes + len > PST_LIMITER_BYTES))
        forget_oldest(l);
    l->tail[(l->tail_first + l->tail_n++) % PST_LIMITER_TAIL] =
        (sup_kept_line){.text = pst_strndup(text, len), .len = len, .stream = stream, .time_us = time_us};
    l->tail_bytes += len;
}

bool sup_limiter_gap(sup_limiter *l, int64_t now_us, bool at_end, int64_t *ret_lines, int64_t *ret_bytes)
{
    refill(l, now_us);
    if (!l->dropped_lines || (!at_end && !has_room(l, 0)))
        return false;
    if (!at_end)
        sup_limiter_done(l);
    PST_ASSERT(l->tail_n <= l->dropped_lines);
    *ret_lines = l->dropped_lines - l->tail_n;
    *ret_bytes = l->dropped_bytes - (int64_t)l->tail_bytes;
    l->dropped_lines = l->dropped_bytes = 0;
    l->lines -= 1;
    return true;
}

void sup_limiter_tail(sup_limiter *l, void (*fn)(void *arg, int stream, int64_t time_us, const char *text, size_t len), void *arg)
{
    while (l->tail_n) {
        const sup_kept_line *k = &l->tail[l->tail_first];
        fn(arg, k->stream, k->time_us, k->text, k->len);
        forget_oldest(l);
    }
}

void sup_pace_init(sup_pace *p, double per_s, int64_t now_us)
{
    *p = (sup_pace){.per_s = per_s, .tokens = per_s, .last_us = now_us};
}

static void pay(sup_pace *p, int64_t now_us)
{
    if (now_us > p->last_us)
        p->tokens += (double)(now_us - p->last_us) / 1e6 * p->per_s;
    if (p->tokens > p->per_s)
        p->tokens = p->per_s;
    p->last_us = now_us;
}

void sup_pace_take(sup_pace *p, int64_t now_us)
{
    pay(p, now_us);
    p->tokens -= 1;
}

int64_t sup_pace_wait_us(sup_pace *p, int64_t now_us)
{
    pay(p, now_us);
    return p->tokens >= 0 ? 0 : (int64_t)(-p->tokens / p->per_s * 1e6) + 1;
}
