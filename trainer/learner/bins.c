/* bins.c - an edge lies half way between two neighbours that differ, not on a value: a scorer's arithmetic may end one bit beside the learner's, and a
 * column of whole numbers would change its bins by that. */
#include "trainer/learner/bins.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The next place at or behind `at` where a new value begins; n: there is none. */
static size_t new_value(const float *x, size_t n, size_t at)
{
    while (at < n && (!at || x[at] == x[at - 1]))
        at++;
    return at;
}

void learn_bins_of(float *x, size_t n, learn_bins *ret_bins)
{
    learn_bins b = {0};
    size_t from = 0;
    qsort(x, n, sizeof *x, ascending);
    for (size_t k = 1; k < LEARN_BINS; k++) {
        size_t at = new_value(x, n, k * n / LEARN_BINS);
        if (at >= n || at <= from)
            continue;
        b.shares[b.n_edges] = (double)(at - from) / (double)n;
        b.edges[b.n_edges++] = ((double)x[at - 1] + (double)x[at]) / 2;
        from = at;
    }
    b.shares[b.n_edges] = (double)(n - from) / (double)n;
    *ret_bins = b;
}
