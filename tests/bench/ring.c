/* bench_ring RANK WORLD PORT FLOATS TIMES: one rank of a ring on 127.0.0.1 (rank k listens at PORT + k) that sums a vector so many times. Rank 0 prints microseconds of
 * the median and the best sum, and its CPU microseconds a sum, as JSON. tests/bench/ring.py starts the ranks, and others' beside them. */
#include "common/base/clock.h"
#include "trainer/learner/ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WORLD_MAX = 16, WARM = 3 };

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: bench_ring RANK WORLD PORT FLOATS TIMES\n");
        return 2;
    }
    learn_place at[WORLD_MAX] = {0};
    pst_err err = {0};
    int world = atoi(argv[2]), times = atoi(argv[5]);
    size_t n = (size_t)atoll(argv[4]);
    if (world < 2 || world > WORLD_MAX || times < 1) {
        fprintf(stderr, "bench_ring: 2 to %d ranks, and at least one sum\n", WORLD_MAX);
        return 2;
    }
    for (int i = 0; i < world; i++) {
        snprintf(at[i].address, sizeof at[i].address, "127.0.0.1");
        at[i].port = atoi(argv[3]) + i;
    }
    learn_ring_opts o = {.rank = atoi(argv[1]),
                         .world = world,
                         .at = at,
                         .training_id = "bench",
                         .generation = 1,
                         .secret = "bench",
                         .timeout_us = 60000000};
    learn_ring *r = NULL;
    float *x = calloc(n + 1, sizeof *x);
    int64_t *took = calloc((size_t)times, sizeof *took);
    int rc = learn_ring_join(&o, &r, &err);
    clock_t cpu = 0;
    for (int i = -WARM; !rc && i < times; i++) {
        if (!i)
            cpu = clock();
        int64_t began = pst_mono_us();
        rc = learn_ring_sum(r, x, n, &err);
        if (i >= 0)
            took[i] = pst_mono_us() - began;
    }
    if (rc < 0)
        fprintf(stderr, "bench_ring: %s\n", err.text);
    qsort(took, (size_t)times, sizeof *took, by_size);
    if (!rc && !o.rank)
        printf("{\"median_us\": %lld, \"best_us\": %lld, \"cpu_us\": %lld}\n", (long long)took[times / 2], (long long)took[0],
               (long long)((double)(clock() - cpu) * 1e6 / CLOCKS_PER_SEC / times));
    learn_ring_leave(r);
    free(took);
    free(x);
    return rc ? 1 : 0;
}
