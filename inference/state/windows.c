/* windows.c - rings of values, and windows over them. A window's length is found from the newest value backwards, its numbers are then taken oldest first
 * in plain double arithmetic, so that anyone can compute them again in a few lines and get the same bits. The price is that of the window's length a
 * record, which is why lengths have limits. */
#include "inference/state/windows.h"

#include "common/base/buf.h"
#include "common/base/err.h"

#include <math.h>
#include <stdlib.h>

enum { LEAST_ROOM = 4 };

void pst_series_done(pst_series *s)
{
    free(s->at);
    *s = (pst_series){0};
}

static uint32_t place(const pst_series *s, uint32_t i)
{
    return (s->head + i) & (s->cap - 1);
}

pst_series_value pst_series_at(const pst_series *s, uint32_t i)
{
    PST_ASSERT(i < s->n);
    return s->at[place(s, i)];
}

static void move(pst_series *s, uint32_t cap)
{
    pst_series_value *at = pst_alloc(cap * sizeof(*at));
    for (uint32_t i = 0; i < s->n; i++)
        at[i] = s->at[place(s, i)];
    free(s->at);
    s->at = at;
    s->cap = cap;
    s->head = 0;
}

static void make_room(pst_series *s)
{
    if (s->n == s->cap)
        move(s, s->cap ? 2 * s->cap : LEAST_ROOM);
}

void pst_series_push(pst_series *s, int64_t now_ms, double x)
{
    make_room(s);
    s->n++;
    s->at[place(s, s->n - 1)] = (pst_series_value){now_ms, x};
}

void pst_series_push_oldest(pst_series *s, pst_series_value v)
{
    make_room(s);
    s->head = (s->head + s->cap - 1) & (s->cap - 1);
    s->n++;
    s->at[s->head] = v;
}

pst_series_value pst_series_drop_oldest(pst_series *s)
{
    pst_series_value v = pst_series_at(s, 0);
    s->head = place(s, 1);
    s->n--;
    if (s->cap > LEAST_ROOM && s->n <= s->cap / 4) /* a burst is over */
        move(s, s->cap / 2);
    return v;
}

void pst_series_drop_newest(pst_series *s)
{
    PST_ASSERT(s->n);
    s->n--;
}

bool pst_series_spare(const pst_series *s, const pst_series_keeps *keeps, bool *ret_cut)
{
    *ret_cut = false;
    if (!s->n)
        return false;
    int64_t now = pst_series_at(s, s->n - 1).ms;
    bool wanted = s->n <= keeps->last || (keeps->ms && pst_series_at(s, 0).ms > now - keeps->ms);
    *ret_cut = wanted && s->n > keeps->most;
    return !wanted || *ret_cut;
}

/* Of the values before the record, the first that the window has. */
static uint32_t first_of(const pst_window *w, const pst_series *s, int64_t now_ms, uint32_t own)
{
    uint32_t first = s->n;
    if (w->last)
        return s->n - (s->n < w->last - own ? s->n : w->last - own);
    while (first > 0 && pst_series_at(s, first - 1).ms > now_ms - w->ms)
        first--;
    return first;
}

static double mean_of(const pst_series *s, uint32_t first, double x, uint32_t n, bool own)
{
    double sum = 0;
    for (uint32_t i = first; i < s->n; i++)
        sum += s->at[place(s, i)].x;
    return own ? (sum + x) / n : sum / n;
}

static double sum_of(const pst_series *s, uint32_t first, double x, bool own)
{
    double sum = 0;
    for (uint32_t i = first; i < s->n; i++)
        sum += s->at[place(s, i)].x;
    return own ? sum + x : sum;
}

/* In two passes: the difference of two large sums would have no digits left where the values are large and alike. */
static double deviation_of(const pst_series *s, uint32_t first, double x, uint32_t n, bool own)
{
    double mean = mean_of(s, first, x, n, own), sum = 0;
    for (uint32_t i = first; i < s->n; i++) {
        double d = s->at[place(s, i)].x - mean;
        sum += d * d;
    }
    double d = own ? x - mean : 0;
    return sqrt((sum + d * d) / n);
}

static double extreme_of(const pst_series *s, uint32_t first, double x, bool own, bool largest)
{
    double best = own ? x : s->at[place(s, first)].x;
    for (uint32_t i = first; i < s->n; i++) {
        double v = s->at[place(s, i)].x;
        if (largest ? v > best : v < best)
            best = v;
    }
    return best;
}

double pst_window_read(const pst_window *w, const pst_series *s, int64_t now_ms, double x)
{
    if (w->of == PST_WINDOW_LAG)
        return s->n >= w->last ? pst_series_at(s, s->n - w->last).x : NAN;
    if (w->of == PST_WINDOW_SINCE)
        return s->n ? (double)(now_ms - pst_series_at(s, s->n - 1).ms) / 1000 : NAN;
    bool own = w->self && !isnan(x);
    uint32_t first = first_of(w, s, now_ms, own), n = s->n - first + own;
    if (w->of == PST_WINDOW_COUNT)
        return n;
    if (w->of == PST_WINDOW_RATE)
        return n / ((double)w->ms / 1000);
    if (w->of == PST_WINDOW_SUM)
        return sum_of(s, first, x, own);
    if (!n)
        return NAN;
    switch (w->of) {
    case PST_WINDOW_MEAN: return mean_of(s, first, x, n, own);
    case PST_WINDOW_DEVIATION: return deviation_of(s, first, x, n, own);
    case PST_WINDOW_MIN: return extreme_of(s, first, x, own, false);
    case PST_WINDOW_MAX: return extreme_of(s, first, x, own, true);
    default: PST_ASSERT(!"a window of nothing"); return NAN;
    }
}

void pst_series_keeps_add(pst_series_keeps *keeps, const pst_window *w)
{
    uint32_t last = w->of == PST_WINDOW_SINCE ? 1 : w->last;
    if (last > keeps->last)
        keeps->last = last;
    if (w->ms > keeps->ms)
        keeps->ms = w->ms;
}

const char *pst_window_of_name(pst_window_of of)
{
    static const char *const names[] = {"count", "mean", "deviation", "min", "max", "sum", "rate", "lag", "since"};
    PST_ASSERT((unsigned)of < PST_WINDOW_OFS);
    return names[of];
}
