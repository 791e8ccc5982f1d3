/* random.c - xoshiro256** and what is made of it. Numbers below n are drawn by rejection and orders by Fisher-Yates: a remainder would
 * prefer small numbers, and rand() differs from library to library. */
#include "trainer/learner/random.h"

#include <math.h>

static uint64_t split_mix(uint64_t *x)
{
    uint64_t z = (*x += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void learn_rng_seed(learn_rng *r, uint64_t seed, uint64_t stream)
{
    uint64_t x = seed;
    x = split_mix(&x) ^ (stream * 0xd1342543de82ef95u);
    for (int i = 0; i < 4; i++)
        r->s[i] = split_mix(&x);
}

static uint64_t rotate(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

uint64_t learn_rng_next(learn_rng *r)
{
    uint64_t *s = r->s, out = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return out;
}

double learn_rng_unit(learn_rng *r)
{
    return (double)(learn_rng_next(r) >> 11) * 0x1p-53;
}

double learn_rng_normal(learn_rng *r)
{
    double u = 1 - learn_rng_unit(r), v = learn_rng_unit(r); /* u > 0: its logarithm is finite */
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

uint64_t learn_rng_below(learn_rng *r, uint64_t n)
{
    uint64_t reject = (0 - n) % n, x; /* the lowest 2^64 mod n values would come once too often */
    do
        x = learn_rng_next(r);
    while (x < reject);
    return x % n;
}

void learn_rng_shuffle(learn_rng *r, uint32_t *at, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t k = (size_t)learn_rng_below(r, i);
        uint32_t t = at[i - 1];
        at[i - 1] = at[k];
        at[k] = t;
    }
}
