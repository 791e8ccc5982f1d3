/* windows.h - windows over the values of one field of one key, and what a record reads from them.
 *
 * A *series* holds the values of one field that records of a key brought, oldest first, with the key's time at each. Several windows read one series, so
 * it holds what the longest of them needs. Everything is computed anew from the values that are held, oldest first, each time: nothing is added up over
 * the life of a key, so nothing drifts, and a series that was written and read again gives the same bits.
 *
 *     double v = pst_window_read(&w, &s, now_ms, x);      // NaN: the window has nothing to say
 *     pst_series_add(&s, &keeps, now_ms, x);
 *
 * Pure: no clock, no I/O. @thread one owner. */
#ifndef PST_INFERENCE_STATE_WINDOWS_H
#define PST_INFERENCE_STATE_WINDOWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    PST_WINDOW_COUNT = 0,
    PST_WINDOW_MEAN,
    PST_WINDOW_DEVIATION, /* of the population: of one value 0 */
    PST_WINDOW_MIN,
    PST_WINDOW_MAX,
    PST_WINDOW_SUM,
    PST_WINDOW_RATE,  /* values a second, over `ms` */
    PST_WINDOW_LAG,   /* the value `last` values before the record */
    PST_WINDOW_SINCE, /* seconds from the value before the record */
    PST_WINDOW_OFS
} pst_window_of;

typedef struct pst_window {
    uint32_t series; /* which one it reads */
    pst_window_of of;
    uint32_t last; /* so many values; 0 = not by number */
    int64_t ms;    /* values younger than this at the record's time; 0 = not by time */
    bool self;     /* the record's own value is one of them */
} pst_window;

/* What the windows of a series need of it. */
typedef struct pst_series_keeps {
    uint32_t last; /* at least so many */
    int64_t ms;    /* and what is younger */
    uint32_t most; /* never more than these */
} pst_series_keeps;

typedef struct pst_series_value {
    int64_t ms;
    double x;
} pst_series_value;

typedef struct pst_series { /* a ring; {0} = empty */
    pst_series_value *at;
    uint32_t cap, head, n;
} pst_series;

void pst_series_done(pst_series *s);
pst_series_value pst_series_at(const pst_series *s, uint32_t i); /* 0 = the oldest */
/* now_ms is not before that of the value before. */
void pst_series_push(pst_series *s, int64_t now_ms, double x);
/* Is the oldest of no more use? *ret_cut: a window would still have had it. */
bool pst_series_spare(const pst_series *s, const pst_series_keeps *keeps, bool *ret_cut);
pst_series_value pst_series_drop_oldest(pst_series *s);
/* The two that take a step back. */
void pst_series_drop_newest(pst_series *s);
void pst_series_push_oldest(pst_series *s, pst_series_value v);

/* What a record at now_ms with the value x (NaN = none) reads, before it is added. NaN: nothing. */
double pst_window_read(const pst_window *w, const pst_series *s, int64_t now_ms, double x);
void pst_series_keeps_add(pst_series_keeps *keeps, const pst_window *w);
const char *pst_window_of_name(pst_window_of of);

#endif
