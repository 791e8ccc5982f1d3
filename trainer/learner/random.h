/* random.h - the learner's random numbers: the same seed and stream give the same numbers on every computer.
 *
 *     learn_rng r;
 *     learn_rng_seed(&r, seed, epoch);        // a stream of its own for each epoch: nothing to store in a checkpoint
 *     learn_rng_shuffle(&r, order, n);
 *
 * Source: xoshiro256** of Blackman and Vigna, "Scrambled linear pseudorandom number generators" (2018), seeded by SplitMix64.
 * @thread any, one owner. */
#ifndef PST_LEARNER_RANDOM_H
#define PST_LEARNER_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct learn_rng {
    uint64_t s[4];
} learn_rng;

void learn_rng_seed(learn_rng *r, uint64_t seed, uint64_t stream);
uint64_t learn_rng_next(learn_rng *r);
double learn_rng_unit(learn_rng *r);                          /* [0, 1), 53 bits */
double learn_rng_normal(learn_rng *r);                        /* mean 0, deviation 1 (Box and Muller) */
uint64_t learn_rng_below(learn_rng *r, uint64_t n);           /* 0 … n − 1, unbiased; n > 0 */
void learn_rng_shuffle(learn_rng *r, uint32_t *at, size_t n); /* Fisher and Yates */

#endif
