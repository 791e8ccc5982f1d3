/* sim_seed.h - the one seed of a simulation: random numbers that are the same each time, and a failure that names it. */
#ifndef PST_TESTS_SIM_SEED_H
#define PST_TESTS_SIM_SEED_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef SIM_NAME
#define SIM_NAME "sim_trainer"
#endif

static uint64_t seed_now, rng_state;
static bool verbose;

static uint64_t rng(void) /* splitmix64 */
{
    uint64_t z = rng_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static int below(int n)
{
    return (int)(rng() % (uint64_t)n);
}
static bool chance(int percent)
{
    return below(100) < percent;
}

static void broken(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
static void broken(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "seed %llu: ", (unsigned long long)seed_now);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\nagain: " SIM_NAME " 1 %llu -v\n", (unsigned long long)seed_now);
    va_end(ap);
    exit(1);
}

#endif
