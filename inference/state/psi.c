/* psi.c - arithmetic alone. The edges are searched from the left: there are ten or so, and a search by halves mispredicts more than it saves. */
#include "inference/state/psi.h"

#include <math.h>

#define LEAST 1e-4

size_t pst_psi_bin(const double *edges, size_t n_edges, double x)
{
    size_t bin = 0;
    for (size_t i = 0; i < n_edges; i++)
        bin += x > edges[i];
    return bin;
}

double pst_psi(const double *shares, const uint64_t *seen, size_t n)
{
    uint64_t all = 0;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        all += seen[i];
    for (size_t i = 0; all && i < n; i++) {
        double expected = fmax(shares[i], LEAST), actual = fmax((double)seen[i] / (double)all, LEAST);
        sum += (actual - expected) * log(actual / expected);
    }
    return sum;
}
