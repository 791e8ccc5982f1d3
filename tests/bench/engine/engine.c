/* engine.c - penstock's engine and the libraries models come from, side by side in one process on one clock; run by tests/bench/engine/run.
 *
 *     bench_engine --machine                     what this core can do: a line of JSON
 *     bench_engine ROWS N DIMS VALUES BATCHES SECONDS REPEATS (SIDE LIB FILE)…
 *
 * ROWS: a file of N rows of float32; DIMS: of one row, as 1x28x28; VALUES: numbers a row's result has. The first side is the one that the others
 * are compared with. First a process of its own for each side: load time and resident memory. Then the results of all rows are compared with the first
 * peer's. Then, for each batch size, the sides take turns REPEATS times for SECONDS each; the best turn of each counts, and, for a computer
 * that others use, the median of what the first side took over what this one took in the same round. CPU time of the process: other
 * programs on the computer are not counted, threads of a library are. Output: lines of JSON. */
#include "tests/bench/engine/bench.h"
#include "tests/bench/peak.h"

#include "engine/penstock_engine.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIDES_MAX = 8, FIRST_BATCH = 512, REPEATS_MAX = 99 };

typedef struct runner {
    const bench_side *side;
    const char *lib, *file;
    void *s;
} runner;

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static long resident_kb(void)
{
    long total, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &total, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static double number(const bench_out *o, int64_t i)
{
    return o->wide ? ((const double *)o->data)[i] : (double)((const float *)o->data)[i];
}

static const bench_side *side_named(const char *name)
{
    static const bench_side *const all[] = {&bench_penstock, &bench_native,  &bench_ort,    &bench_xgboost,
                                            &bench_lightgbm, &bench_tl2cgen, &bench_lleaves};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i]->name, name))
            return all[i];
    fprintf(stderr, "bench_engine: no side %s\n", name);
    exit(2);
}

/* In a child: nothing of the other sides is in its memory. Loaded twice: the second time the library is there already. */
static bool weigh(const runner *r, const bench_job *job, int batch)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        char why[BENCH_WHY] = "";
        bench_out out;
        float *x = calloc((size_t)(batch * job->cols), sizeof *x);
        memset(x, 0x3c, (size_t)(batch * job->cols) * sizeof *x);
        long before = resident_kb();
        void *s = r->side->open(r->lib, r->file, job, why);
        bool ok = s && r->side->prepare(s, x, batch, batch) && r->side->run(s, x, 0, batch, &out);
        long kb = resident_kb() - before;
        if (!ok) {
            printf("{\"side\": \"%s\", \"left_out\": \"", r->side->name);
            for (const char *c = why; *c; c++)
                putchar(*c == '"' || *c == '\\' || *c < ' ' ? '\'' : *c);
            printf("\"}\n");
        } else {
            r->side->close(s);
            double best = 1e18;
            for (int i = 0; i < 3; i++) {
                double t = cpu_ns();
                s = r->side->open(r->lib, r->file, job, why);
                t = cpu_ns() - t;
                best = t < best ? t : best;
                r->side->close(s);
            }
            printf("{\"side\": \"%s\", \"load_ms\": %.3f, \"memory_kb\": %ld}\n", r->side->name, best / 1e6, kb);
        }
        fflush(stdout);
        _exit(!ok);
    }
    int st = 1;
    waitpid(pid, &st, 0);
    return st == 0;
}

/* The side's results on the first rows, in the order of the rows. */
static double *results(const runner *r, const float *x, int64_t rows, const bench_job *job)
{
    int batch = rows < 64 ? (int)rows : 64;
    double *y = malloc((size_t)(rows * job->values) * sizeof *y);
    if (!r->side->prepare(r->s, x, rows, batch))
        return NULL;
    for (int64_t at = 0; at + batch <= rows; at += batch) {
        bench_out o;
        if (!r->side->run(r->s, x, at, batch, &o) || o.stride < job->values)
            return NULL;
        for (int64_t i = 0; i < batch * job->values; i++)
            y[at * job->values + i] = number(&o, i / job->values * o.stride + o.stride - job->values + i % job->values);
    }
    return y;
}

static bool compare(const runner *all, int n, const float *x, int64_t rows, const bench_job *job)
{
    double *want = NULL;
    rows -= rows % (rows < 64 ? rows : 64);
    for (int i = n > 1 ? 1 : 0, k = 0; k < n; k++, i = (i + 1) % n) { /* the first peer decides; ours is compared last */
        double *y = results(&all[i], x, rows, job), worst = 0;
        if (!y) {
            fprintf(stderr, "bench_engine: %s gives no results\n", all[i].side->name);
            return false;
        }
        for (int64_t v = 0; want && v < rows * job->values; v++) {
            double d = fabs(y[v] - want[v]);
            worst = !(d <= worst) ? d : worst;
        }
        if (want) {
            printf("{\"side\": \"%s\", \"compared_rows\": %lld, \"with\": \"%s\", \"max_abs_difference\": %.3g}\n", all[i].side->name,
                   (long long)rows, all[n > 1].side->name, worst);
            free(y);
        } else {
            want = y;
        }
    }
    free(want);
    return true;
}

/* One turn: ns a row. The rows are gone through in order, so that no branch predictor learns them. */
static double turn(const runner *r, const float *x, int64_t rows, int batch, double ns)
{
    int64_t calls = rows / batch, at = 0, done = 0, step = 1;
    bench_out o;
    double t0 = cpu_ns(), t = t0, last;
    do {
        last = t;
        for (int64_t k = 0; k < step; k++, done++) {
            if (!r->side->run(r->s, x, at * batch, batch, &o))
                exit(1);
            at = at + 1 < calls ? at + 1 : 0;
        }
        t = cpu_ns();
        if (t - last < 5e4) /* reading the clock costs as much as a small run */
            step *= 2;
    } while (t - t0 < ns);
    return (t - t0) / (double)(done * batch);
}

static int by_size(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_size);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void measure(const runner *all, int n, const float *x, int64_t rows, int batch, double seconds, int repeats)
{
    double best[SIDES_MAX], ratio[SIDES_MAX][REPEATS_MAX];
    repeats = repeats < REPEATS_MAX ? repeats : REPEATS_MAX;
    for (int i = 0; i < n; i++) {
        best[i] = 1e18;
        if (!all[i].side->prepare(all[i].s, x, rows, batch))
            exit(1);
        turn(&all[i], x, rows, batch, seconds * 2e8); /* warm */
    }
    for (int k = 0; k < repeats; k++)
        for (int i = 0; i < n; i++) {
            double ns = turn(&all[i], x, rows, batch, seconds * 1e9);
            best[i] = ns < best[i] ? ns : best[i];
            ratio[i][k] = i ? ratio[0][k] / ns : ns;
        }
    for (int i = 0; i < n; i++)
        printf("{\"side\": \"%s\", \"batch\": %d, \"ns_per_row\": %.2f, \"first_to_this\": %.4f}\n", all[i].side->name, batch, best[i],
               i ? median(ratio[i], repeats) : 1);
    fflush(stdout);
}

/* Additions that wait for each other: one a cycle. */
static double gigahertz(void)
{
#if defined(__x86_64__)
    double best = 1e18;
    for (int k = 0; k < 20; k++) {
        uint64_t n = 0;
        double t = pst_cpu_ns();
        for (int i = 0; i < 20000; i++)
            __asm__ volatile(".rept 50\n\tadd $1, %0\n\t.endr" : "+r"(n));
        t = (pst_cpu_ns() - t) / 1e6;
        best = t < best ? t : best;
    }
    return 1 / best;
#else
    return 0;
#endif
}

static int machine(void)
{
    pst_peak p = pst_peak_measure(pst_engine_isa());
    double load = 0;
    FILE *f = fopen("/proc/loadavg", "r");
    if (f && fscanf(f, "%lf", &load) != 1)
        load = 0;
    if (f)
        fclose(f);
    printf("{\"isa\": \"%s\", \"fp32_gflops\": %.1f, \"fp32_gflops_l1\": %.1f, \"gigahertz\": %.2f, \"load_average\": %.2f, \"compiler\": "
           "\"%s\"}\n",
           pst_engine_isa(), p.registers, p.l1, gigahertz(), load, __VERSION__);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--machine"))
        return machine();
    if (argc < 11 || (argc - 8) % 3 || (argc - 8) / 3 > SIDES_MAX) {
        fprintf(stderr, "bench_engine ROWS N DIMS VALUES BATCHES SECONDS REPEATS (SIDE LIB FILE)... (tests/bench/engine/run does it)\n");
        return 2;
    }
    bench_job job = {.cols = 1, .values = atoll(argv[4])};
    int64_t rows = atoll(argv[2]);
    for (char *d = argv[3]; *d && job.rank < 4; d += *d == 'x')
        job.cols *= job.dims[job.rank++] = strtoll(d, &d, 10);
    runner all[SIDES_MAX];
    int n = 0;
    for (int i = 8; i < argc; i += 3) {
        all[n] = (runner){.side = side_named(argv[i]), .lib = argv[i + 1], .file = argv[i + 2]};
        n += weigh(&all[n], &job, rows < FIRST_BATCH ? (int)rows : FIRST_BATCH);
    }
    int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    size_t bytes = (size_t)(rows * job.cols) * sizeof(float);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || (size_t)st.st_size < bytes) {
        fprintf(stderr, "bench_engine: %s does not hold %lld rows of %lld numbers\n", argv[1], (long long)rows, (long long)job.cols);
        return 1;
    }
    const float *x = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (x == MAP_FAILED || !n)
        return 1;
    for (int i = 0; i < n; i++) {
        char why[BENCH_WHY] = "";
        all[i].s = all[i].side->open(all[i].lib, all[i].file, &job, why);
        if (!all[i].s) {
            fprintf(stderr, "bench_engine: %s: %s\n", all[i].side->name, why);
            return 1;
        }
    }
    if (!compare(all, n, x, rows, &job))
        return 1;
    for (char *b = argv[5]; *b; b += *b == ',') {
        int batch = (int)strtol(b, &b, 10);
        measure(all, n, x, rows, batch, atof(argv[6]), atoi(argv[7]));
    }
    for (int i = 0; i < n; i++)
        all[i].side->close(all[i].s);
    return 0;
}
