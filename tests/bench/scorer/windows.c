/* windows.c - ns per record for three windows (mean of the last 20 values, deviation of the last 20, count of an hour) over one field: read, entered, settled
 * every 10,000 records, and the changelog's records of them made; CPU time of the thread, best of five.
 *
 *     bench_scorer_windows [keys]     prints: keys, ns per record, ns per record with the changelog, bytes a record of it */
#include "common/base/buf.h"
#include "inference/state/keyed.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RECORDS = 2000000, ROUND = 10000, TURNS = 5 };

static const pst_window windows[] = {{0, PST_WINDOW_MEAN, .last = 20, .self = true},
                                     {0, PST_WINDOW_DEVIATION, .last = 20, .self = true},
                                     {0, PST_WINDOW_COUNT, .ms = 3600000, .self = true}};

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static size_t tell(pst_keyed *k, size_t *bytes)
{
    pst_slice key, value;
    size_t n = 0;
    for (; pst_keyed_change(k, n, &key, &value); n++)
        *bytes += value.len;
    return n;
}

/* Each record a second after the one before: an hour holds 3,600 / keys values of a key, besides the last 20. */
static double run(unsigned keys, bool changelog, double *ret_bytes)
{
    pst_keyed_plan plan = {
        .windows = windows, .n_windows = 3, .n_series = 1, .keys_max = 10000000, .bytes_max = (size_t)1 << 40, .fingerprint = 1};
    plan.series[0] = (pst_series_keeps){.last = 20, .ms = 3600000, .most = 1000};
    pst_keyed *k = pst_keyed_new(&plan);
    size_t bytes = 0, told = 0;
    unsigned seed = 1;
    double got[3], begun = cpu_ns(), sum = 0;
    for (int64_t i = 0; i < RECORDS; i++) {
        char text[16];
        unsigned key = (unsigned)rand_r(&seed) % keys;
        double x = (double)key;
        size_t n = 0;
        do
            text[n++] = (char)('0' + key % 10);
        while ((key /= 10) > 0);
        pst_keyed_read(k, (pst_slice){text, n}, i * 1000, &x, got);
        pst_keyed_enter(k, (pst_slice){text, n}, i * 1000, i, &x);
        sum += got[0];
        if (i % ROUND != ROUND - 1)
            continue;
        told += changelog ? tell(k, &bytes) : 0;
        pst_keyed_settle(k);
    }
    double ns = (cpu_ns() - begun) / RECORDS;
    *ret_bytes = told ? (double)bytes / (double)told : sum * 0;
    pst_keyed_free(k);
    return ns;
}

int main(int argc, char **argv)
{
    unsigned keys = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 100000;
    double best[2] = {1e18, 1e18}, bytes = 0;
    for (int t = 0; t < TURNS; t++)
        for (int c = 0; c < 2; c++) {
            double ns = run(keys ? keys : 1, c, &bytes);
            best[c] = ns < best[c] ? ns : best[c];
        }
    printf("%u keys  %.0f ns/record  %.0f with the changelog, %.0f bytes a record of it\n", keys, best[0], best[1], bytes);
    return 0;
}
