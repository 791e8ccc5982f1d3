/* bins.h - how the training records spread over one column: edges at their tenths, and the share of them in each bin, against which a scorer
 * lays what it sees (inference/state/psi.h). Pure. @thread any */
#ifndef PST_LEARNER_BINS_H
#define PST_LEARNER_BINS_H

#include <stddef.h>

enum { LEARN_BINS = 10, LEARN_BINS_COLUMNS_MAX = 200, LEARN_BINS_ROWS_MAX = 100000 };

typedef struct learn_bins {
    double edges[LEARN_BINS - 1]; /* ascending, each between two values that were there */
    double shares[LEARN_BINS];    /* of the bins (edge i-1, edge i]; n_edges + 1 of them */
    size_t n_edges;               /* fewer than nine where a value takes more than a tenth; 0: all are alike */
} learn_bins;

/* x: n > 0 finite numbers; they are sorted. */
void learn_bins_of(float *x, size_t n, learn_bins *ret_bins);

#endif
