/* psi.h - the population stability index: how far the shares of what was seen lie from those of the training data, over the same bins. Below 0.1 nothing
 * to speak of, above 0.2 or 0.25 another population, as is said of it.
 *
 *     bins[pst_psi_bin(edges, n_edges, x)]++;
 *     double psi = pst_psi(shares, bins, n_edges + 1);
 *
 * Pure. @thread any */
#ifndef PST_INFERENCE_STATE_PSI_H
#define PST_INFERENCE_STATE_PSI_H

#include <stddef.h>
#include <stdint.h>

/* Bin i is (edge i-1, edge i], the first and the last one are open: the number of edges below x. x is a number. */
size_t pst_psi_bin(const double *edges, size_t n_edges, double x);
/* Sum over the bins of (seen - share) · ln(seen / share); a share of nothing counts as 0.0001, so that an empty bin is far and not infinitely far.
 * Nothing seen: 0. */
double pst_psi(const double *shares, const uint64_t *seen, size_t n);

#endif
