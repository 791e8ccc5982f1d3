/* random.h - the learner's random numbers: the same seed and stream give the same numbers on every computer.
 *
 *     pst_rng r;
 *     pst_rng_seed(&r, seed, epoch);        // a stream of its own for each epoch: nothing to store in a checkpoint
 *     pst_rng_shuffle(&r, order, n);
 *
 * Source: xoshiro256** of Blackman and Vigna, "Scrambled linear pseudorandom number generators" (2018), seeded by SplitMix64.
 * @thread any, one owner. */
#ifndef PST_LEARNER_RANDOM_H
#define PST_LEARNER_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct pst_rng {
    uint64_t s[4];
} pst_rng;

void pst_rng_seed(pst_rng *r, uint64_t seed, uint64_t stream);
uint64_t pst_rng_next(pst_rng *r);
double pst_rng_unit(pst_rng *r);                          /* [0, 1), 53 bits */
double pst_rng_normal(pst_rng *r);                        /* mean 0, deviation 1 (Box and Muller) */
uint64_t pst_rng_below(pst_rng *r, uint64_t n);           /* 0 … n − 1, unbiased; n > 0 */
void pst_rng_shuffle(pst_rng *r, uint32_t *at, size_t n); /* Fisher and Yates */

#endif
