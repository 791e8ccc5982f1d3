/* bench.h - one side of the engine's benchmark: penstock, or a peer's C library loaded at run time from the Python package that carries it.
 *
 *     void *s = side->open(lib, file, &job, why);        // why: at least 200 bytes, filled on NULL
 *     side->prepare(s, x, rows, batch);                  // outside the clock: what a careful user would keep between calls
 *     side->run(s, x, at, batch, &out);                  // rows at to at + batch of x; out borrowed until the next run
 *
 * A side belongs to one thread. Peers get one thread and the best settings found: tensors made beforehand, fast paths for one row. */
#ifndef PST_TESTS_BENCH_ENGINE_H
#define PST_TESTS_BENCH_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bench_job {
    int64_t dims[4]; /* of one row, as the model wants it: {30}, {1, 28, 28} */
    int rank;
    int64_t cols;   /* their product: floats in a row */
    int64_t values; /* that a row's result has, and are compared; a side that gives more gives them last */
} bench_job;

/* A row's results: `stride` numbers, float32 or float64. */
typedef struct bench_out {
    const void *data;
    bool wide;
    int64_t stride;
} bench_out;

typedef struct bench_side {
    const char *name;
    void *(*open)(const char *lib, const char *file, const bench_job *job, char *why);
    bool (*prepare)(void *s, const float *x, int64_t rows, int batch);
    bool (*run)(void *s, const float *x, int64_t at, int batch, bench_out *ret);
    void (*close)(void *s);
} bench_side;

enum { BENCH_WHY = 200 };

/* dlopen, kept open for the life of the program. NULL: why says what is wrong. */
void *bench_library(const char *path, char *why);
/* One symbol; prints and exits when the library lacks it: another version than the one this was written for. */
void *bench_symbol(void *lib, const char *name);

extern const bench_side bench_penstock, bench_native, bench_ort, bench_xgboost, bench_lightgbm, bench_tl2cgen, bench_lleaves;

#endif
