/* workers.c - threads of one plan. One lock and two conditions: a round begins when the number of the round changes, parts are taken by a counter, and the caller, which takes parts
 * too, waits until the last one is done. Parts last tens of microseconds at least, so that a lock a part costs nothing, and ThreadSanitizer sees all of it. */
#include "engine/workers.h"

#include "common/base/thread.h"
#include "engine/cpu/gemm.h"
#include "engine/heap.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct eng_worker {
    struct eng_workers *all;
    int id;
    pthread_t thread;
} eng_worker;

struct eng_workers {
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    int n, started, failed; /* n: with the caller; started: threads that have said whether they have their room */
    bool over;
    uint64_t round;
    int64_t parts, next, done;
    eng_part_fn compute;
    void *arg;
    eng_worker worker[ENG_WORKERS_MAX]; /* [0] is the caller */
};

static int test_allows;

/* ---- what the process may use ---- */

static bool read_text(const char *path, char *ret, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);
    if (fd >= 0)
        close(fd);
    ret[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* CPUs of one group, rounded up; 0 = no limit. Version 2: "200000 100000" or "max 100000"; version 1: a file each, -1 is none. */
static int quota_of(const char *dir)
{
    char path[700], text[64];
    double quota = 0, period = 0;
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (read_text(path, text, sizeof text)) {
        char *end;
        quota = strtod(text, &end);
        period = strtod(end, NULL);
    } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
        quota = read_text(path, text, sizeof text) ? strtod(text, NULL) : 0;
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
        period = read_text(path, text, sizeof text) ? strtod(text, NULL) : 0;
    }
    return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

/* The least of a group and those above it. */
static int quota_up(const char *mount, const char *own)
{
    char dir[600];
    int least = 0, n = snprintf(dir, sizeof dir, "%s%s", mount, own);
    size_t top = strlen(mount);
    if (n < 0 || (size_t)n >= sizeof dir)
        return 0;
    for (;;) {
        int cpus = quota_of(dir);
        least = cpus && (!least || cpus < least) ? cpus : least;
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < top)
            return least;
        *slash = 0;
    }
}

static int quota(void)
{
    static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"};
    char text[4096], *save = NULL;
    int least = 0;
    if (!read_text("/proc/self/cgroup", text, sizeof text))
        return 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path || strstr(path, "/.."))
            continue;
        *path++ = 0;
        bool v2 = !list[1], v1 = !strcmp(list + 1, "cpu") || !strncmp(list + 1, "cpu,", 4) || strstr(list + 1, ",cpu,") != NULL;
        for (size_t i = 0; i < sizeof mounts / sizeof *mounts && (v1 || v2); i++) {
            int cpus = quota_up(mounts[i], strcmp(path, "/") != 0 ? path : "");
            least = cpus && (!least || cpus < least) ? cpus : least;
        }
    }
    return least;
}

int eng_workers_allowed(void)
{
    cpu_set_t set;
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    if (__atomic_load_n(&test_allows, __ATOMIC_RELAXED))
        return __atomic_load_n(&test_allows, __ATOMIC_RELAXED);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
    int most = quota();
    n = most && most < n ? most : n;
    return n < 1 ? 1 : n > ENG_WORKERS_MAX ? ENG_WORKERS_MAX : (int)n;
}

void eng_workers_test_allow(int n)
{
    __atomic_store_n(&test_allows, n, __ATOMIC_RELAXED);
}

/* ---- rounds ---- */

/* Takes parts until there are none left. Called and left with the lock held. */
static void take_parts(eng_workers *w, int worker)
{
    while (w->next < w->parts) {
        int64_t part = w->next++;
        eng_part_fn compute = w->compute;
        void *arg = w->arg;
        pthread_mutex_unlock(&w->lock);
        compute(arg, part, worker);
        pthread_mutex_lock(&w->lock);
        if (++w->done == w->parts)
            pthread_cond_signal(&w->end);
    }
}

static void *work(void *arg)
{
    eng_worker *me = arg;
    eng_workers *w = me->all;
    bool roomy = eng_sgemm_room();
    pthread_mutex_lock(&w->lock);
    w->started++;
    w->failed += !roomy;
    pthread_cond_signal(&w->end);
    for (uint64_t seen = 0; !w->over;) {
        if (w->round == seen) {
            pthread_cond_wait(&w->begin, &w->lock);
            continue;
        }
        seen = w->round;
        take_parts(w, me->id);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

void eng_workers_run(eng_workers *w, int64_t parts, eng_part_fn compute, void *arg)
{
    if (!w || parts < 2) {
        for (int64_t i = 0; i < parts; i++)
            compute(arg, i, 0);
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->compute = compute;
    w->arg = arg;
    w->parts = parts;
    w->next = w->done = 0;
    w->round++;
    if (parts > 2)
        pthread_cond_broadcast(&w->begin);
    else
        pthread_cond_signal(&w->begin); /* one other is enough */
    take_parts(w, 0);
    while (w->done < w->parts)
        pthread_cond_wait(&w->end, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

int eng_workers_count(const eng_workers *w)
{
    return w ? w->n : 1;
}

bool eng_workers_worth(const eng_workers *w, double products)
{
    enum { LEAST = 4 << 20 }; /* about 0.1 ms of one core */
    return w && (products >= LEAST || __atomic_load_n(&test_allows, __ATOMIC_RELAXED));
}

/* ---- life ---- */

void eng_workers_free(eng_workers *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_cond_broadcast(&w->begin);
    pthread_mutex_unlock(&w->lock);
    for (int i = 1; i < w->n; i++)
        pthread_join(w->worker[i].thread, NULL);
    pthread_cond_destroy(&w->begin);
    pthread_cond_destroy(&w->end);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* Signals belong to the caller's threads: workers get none, but for a fault of their own, which the process's handler must hear of. */
static int start(eng_workers *w, int threads)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    sigset_t all, before;
    int rc = 0;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (w->n = 1; w->n < threads && rc == 0; w->n += rc == 0) {
        eng_worker *one = &w->worker[w->n];
        *one = (eng_worker){.all = w, .id = w->n};
        rc = pst_thread_start(&one->thread, "plan-worker", work, one);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int eng_workers_new(int threads, eng_workers **ret, pst_err *err)
{
    PST_ASSERT(threads > 1 && threads <= ENG_WORKERS_MAX);
    eng_workers *w = eng_heap_raw(sizeof *w);
    if (!w)
        return eng_heap_none(sizeof *w, err);
    pthread_mutex_init(&w->lock, NULL);
    pst_cond_init(&w->begin);
    pst_cond_init(&w->end);
    int rc = start(w, threads);
    pthread_mutex_lock(&w->lock);
    while (w->started < w->n - 1)
        pthread_cond_wait(&w->end, &w->lock);
    bool roomy = !w->failed;
    pthread_mutex_unlock(&w->lock);
    if (rc == 0 && roomy) {
        *ret = w;
        return 0;
    }
    eng_workers_free(w);
    if (rc == 0)
        return eng_heap_none(sizeof *w, err);
    return pst_err_set(err, PST_EIO, PST_CLASS_RETRY, "sys", rc, "threads of a plan: %s; ask for fewer, or raise the limit of threads",
                       strerror(rc));
}
