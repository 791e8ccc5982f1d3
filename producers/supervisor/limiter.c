/* limiter.c - see limiter.h. */
#include "producers/supervisor/limiter.h"

#include <string.h>

void pst_limiter_init(pst_limiter *l, double lines_per_s, double bytes_per_s, int64_t now_us)
{
    memset(l, 0, sizeof *l);
    l->lines_per_s = l->lines = lines_per_s;
    l->bytes_per_s = l->bytes = bytes_per_s;
    l->last_us = now_us;
}

static void refill(pst_limiter *l, int64_t now_us)
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
static bool has_room(const pst_limiter *l, size_t len)
{
    double share = l->dropped_lines ? 0.1 : 0;
    double need = (double)len > l->bytes_per_s ? l->bytes_per_s : (double)len;
    return l->lines >= 1 + share * l->lines_per_s && l->bytes >= need && l->bytes >= share * l->bytes_per_s;
}

bool pst_limiter_take(pst_limiter *l, size_t len, int64_t now_us)
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

bool pst_limiter_gap(pst_limiter *l, int64_t now_us, bool force, int64_t *ret_lines, int64_t *ret_bytes)
{
    refill(l, now_us);
    if (!l->dropped_lines || (!force && !has_room(l, 0)))
        return false;
    *ret_lines = l->dropped_lines;
    *ret_bytes = l->dropped_bytes;
    l->dropped_lines = l->dropped_bytes = 0;
    l->lines -= 1;
    return true;
}
