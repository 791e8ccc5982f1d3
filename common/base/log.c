/* log.c - log lines. They are built in a local buffer and leave in one write(2), so threads and processes do not mix them. The job that a line is
 * about stands beside the call, not in it: most lines come from below, from code that knows of no jobs. */
#include "common/base/log.h"

#include "common/base/clock.h"
#include "common/base/log_file.h"
#include "common/base/term.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Whom `-v bus,lcm` can name: every component that a line of the program has. */
static const char *const components[] = {"bus",    "client",      "engine",   "gateway", "kafka", "lcm",   "learner",
                                         "models", "onnxruntime", "registry", "rundir",  "score", "serve", "source",
                                         "store",  "supervisor",  "trainer",  "up",      "view",  "submit"};
enum { N_COMPONENTS = sizeof components / sizeof *components, JOB_MAX = 128 };

static _Atomic int max_level = PST_LOG_INFO;
static _Atomic uint32_t debugged; /* a bit a component */
static _Thread_local const char *job;
static char process_job[JOB_MAX]; /* set before there are threads */

void pst_log_set_level(pst_log_level max)
{
    max_level = (int)max;
}

pst_log_level pst_log_get_level(void)
{
    return (pst_log_level)max_level;
}

static int component_at(const char *name, size_t len)
{
    for (int i = 0; i < N_COMPONENTS; i++)
        if (strlen(components[i]) == len && !memcmp(components[i], name, len))
            return i;
    return -1;
}

static int unknown_component(const char *name, size_t len, pst_err *err)
{
    pst_buf all = {0};
    for (int i = 0; i < N_COMPONENTS; i++)
        pst_buf_printf(&all, "%s%s", i ? ", " : "", components[i]);
    int rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "\"%.*s\" has no debug lines; there are: all, %s",
                         (int)(len < 40 ? len : 40), name, all.data);
    pst_buf_done(&all);
    return rc;
}

int pst_log_set_debug(const char *list, pst_err *err)
{
    uint32_t bits = 0;
    _Static_assert(N_COMPONENTS < 32, "a bit each");
    for (const char *p = list ? list : ""; *p;) {
        size_t len = strcspn(p, ",");
        int i = component_at(p, len);
        if (len == 3 && !memcmp(p, "all", 3))
            bits = UINT32_MAX;
        else if (i < 0)
            return unknown_component(p, len, err);
        else
            bits |= 1u << i;
        p += len + (p[len] == ',');
    }
    debugged = bits;
    return 0;
}

static bool is_enabled(pst_log_level level, const char *component)
{
    if ((int)level <= max_level)
        return true;
    uint32_t bits = level == PST_LOG_DEBUG ? debugged : 0;
    if (!bits || bits == UINT32_MAX)
        return bits;
    int i = component_at(component, strlen(component));
    return i >= 0 && (bits & 1u << i);
}

const char *pst_log_job(const char *training_id)
{
    const char *before = job;
    job = training_id;
    return before;
}

void pst_log_job_always(const char *training_id)
{
    snprintf(process_job, sizeof process_job, "%s", training_id);
}

/* What the line gets at its end. */
static const char *job_of(const char *fmt)
{
    const char *of = job && *job ? job : process_job;
    return *of && !strstr(fmt, "training_id=") ? of : NULL;
}

static bool colour(void)
{
    static atomic_int on = -1; /* any thread may be the first; all find the same */
    if (on < 0)
        on = isatty(2) && !getenv("NO_COLOR");
    return on;
}

/* "2026-01-31T12:00:00", without a zero behind it; made once a second and thread, however many lines that has. Returns its length. */
static size_t write_second(char *to, time_t sec)
{
    static _Thread_local time_t made;
    static _Thread_local char text[24];
    static _Thread_local size_t len;
    if (sec != made || !len) {
        struct tm tm;
        gmtime_r(&sec, &tm);
        len = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
        made = sec;
    }
    memcpy(to, text, len);
    return len;
}

static void __attribute__((format(printf, 4, 0)))
vlog(pst_log_level level, const char *component, bool about_job, const char *fmt, va_list ap)
{
    static const char *const names[] = {"ERROR", "WARN", "INFO", "DEBUG"};
    static const char *const tints[] = {"\033[31m", "\033[33m", "", "\033[2m"};
    char line[2048];
    int64_t now = pst_now_us();
    size_t n = write_second(line, (time_t)(now / 1000000));
    bool tint = colour() && *tints[level];
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03dZ %s%s%s %s ", (int)(now / 1000 % 1000), tint ? tints[level] : "", names[level],
                          tint ? "\033[0m" : "", component);
    char text[1600 + JOB_MAX + 16];
    int m = vsnprintf(text, 1600, fmt, ap);
    size_t len = m < 0 ? 0 : (size_t)m;
    if (len > 1599) /* cut off by vsnprintf */
        len = 1599;
    const char *of = about_job ? job_of(fmt) : NULL;
    if (of)
        len += (size_t)snprintf(text + len, sizeof text - len, " training_id=%.*s", JOB_MAX, of);
    for (size_t i = 0; i < len; i++)
        if (text[i] == '\n')
            text[i] = ' ';
    pst_buf shown = {0}; /* reasons quote records and learners: whoever reads a log on a terminal is not to be steered by them */
    pst_term_show(&shown, text, len);
    len = shown.len < sizeof line - n - 2 ? shown.len : sizeof line - n - 2;
    memcpy(line + n, shown.data ? shown.data : "", len);
    n += len;
    pst_buf_done(&shown);
    line[n++] = '\n';
    ssize_t ignored = write(2, line, n);
    (void)ignored;
    pst_log_file_step();
}

/* ---- kinds of lines that others can cause as often as they like ---- */

enum { KINDS_MAX = 64 };

typedef struct kind {
    char component[24], name[40];
    pst_log_level level;
    pst_log_quota quota;
} kind;

static struct {
    pthread_mutex_t lock;
    kind at[KINDS_MAX];
    size_t n;
    _Atomic int64_t due_us; /* when a sum is due to be logged; INT64_MAX = none */
} kinds = {.lock = PTHREAD_MUTEX_INITIALIZER, .due_us = INT64_MAX};

static uint64_t hidden(const pst_log_quota *q)
{
    return q->seen > PST_LOG_KIND_MAX ? q->seen - PST_LOG_KIND_MAX : 0;
}

bool pst_log_quota_take(pst_log_quota *q, int64_t now_us, uint64_t *ret_more)
{
    *ret_more = 0;
    if (!q->since_us || now_us - q->since_us >= PST_LOG_KIND_US) {
        *ret_more = hidden(q);
        *q = (pst_log_quota){.since_us = now_us};
    }
    return ++q->seen <= PST_LOG_KIND_MAX;
}

/* Of lines in general, not of the job at hand. */
static void log_line(pst_log_level level, const char *component, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void log_line(pst_log_level level, const char *component, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vlog(level, component, false, fmt, ap);
    va_end(ap);
}

static void log_more(const kind *k, uint64_t more)
{
    if (more)
        log_line(k->level, k->component, "event=%s more=%llu note=\"so many more like it were not logged\"", k->name,
                 (unsigned long long)more);
}

/* Logs the sums of minutes that are over; all of them when now_us is INT64_MAX. @locks kinds.lock */
static void settle(int64_t now_us)
{
    int64_t due = INT64_MAX;
    for (size_t i = 0; i < kinds.n; i++) {
        kind *k = &kinds.at[i];
        int64_t end = k->quota.since_us + PST_LOG_KIND_US;
        if (!hidden(&k->quota))
            continue;
        if (now_us >= end) {
            log_more(k, hidden(&k->quota));
            k->quota = (pst_log_quota){0};
        } else if (end < due)
            due = end;
    }
    kinds.due_us = due;
}

static void settle_now(void)
{
    if (pthread_mutex_trylock(&kinds.lock))
        return; /* some thread logs while we exit */
    settle(INT64_MAX);
    pthread_mutex_unlock(&kinds.lock);
}

/* @locks kinds.lock. The table is as long as the program has such places; were it full, the last one is shared. */
static kind *find_kind(pst_log_level level, const char *component, const char *name)
{
    for (size_t i = 0; i < kinds.n; i++)
        if (!strcmp(kinds.at[i].name, name) && !strncmp(kinds.at[i].component, component, sizeof kinds.at[i].component - 1))
            return &kinds.at[i];
    if (!kinds.n)
        atexit(settle_now);
    if (kinds.n == KINDS_MAX)
        return &kinds.at[KINDS_MAX - 1];
    kind *k = &kinds.at[kinds.n++];
    k->level = level;
    snprintf(k->component, sizeof k->component, "%s", component);
    snprintf(k->name, sizeof k->name, "%s", name);
    return k;
}

void pst_log(pst_log_level level, const char *component, const char *fmt, ...)
{
    int64_t due = kinds.due_us;
    if (due != INT64_MAX && pst_mono_us() >= due) {
        pthread_mutex_lock(&kinds.lock);
        settle(pst_mono_us());
        pthread_mutex_unlock(&kinds.lock);
    }
    if (!is_enabled(level, component))
        return;
    va_list ap;
    va_start(ap, fmt);
    vlog(level, component, true, fmt, ap);
    va_end(ap);
}

void pst_log_limited(pst_log_level level, const char *component, const char *name, const char *fmt, ...)
{
    if (!is_enabled(level, component))
        return;
    uint64_t more;
    pthread_mutex_lock(&kinds.lock);
    kind *k = find_kind(level, component, name);
    int64_t now = pst_mono_us();
    bool fits = pst_log_quota_take(&k->quota, now, &more);
    if (!fits && k->quota.since_us + PST_LOG_KIND_US < kinds.due_us)
        kinds.due_us = k->quota.since_us + PST_LOG_KIND_US;
    bool first_hidden = k->quota.seen == PST_LOG_KIND_MAX + 1;
    log_more(k, more);
    pthread_mutex_unlock(&kinds.lock);
    if (first_hidden)
        log_line(level, component, "event=%s note=\"more like it follow; they are counted, not logged, for a minute\"", name);
    if (!fits)
        return;
    va_list ap;
    va_start(ap, fmt);
    vlog(level, component, true, fmt, ap);
    va_end(ap);
}

void pst_log_err(const char *component, const pst_err *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        char component[24];
        int code;
        int64_t at;
    } last[16];
    static int next;
    int64_t now = pst_mono_us();
    bool repeat = false;
    pthread_mutex_lock(&lock);
    int slot = -1;
    for (int i = 0; i < 16; i++)
        if (last[i].code == err->code && !strncmp(last[i].component, component, sizeof last[i].component - 1))
            slot = i;
    if (slot >= 0 && err->cls == PST_CLASS_RETRY && now - last[slot].at < 10 * 1000000)
        repeat = true;
    else {
        if (slot < 0)
            slot = next++ % 16;
        snprintf(last[slot].component, sizeof last[slot].component, "%s", component);
        last[slot].code = err->code;
        last[slot].at = now;
    }
    pthread_mutex_unlock(&lock);
    if (repeat)
        return;
    static const char text[] = "event=error code=%s origin=%s reason=\"%s\"";
    const char *code = pst_code_name(err->code);
    if (err->cls == PST_CLASS_DATA) { /* somebody's record: there may be as many as they like */
        char name[40];
        snprintf(name, sizeof name, "error code=%s", code);
        pst_log_limited(PST_LOG_ERROR, component, name, text, code, err->origin, err->text);
    } else
        pst_log(err->cls == PST_CLASS_RETRY ? PST_LOG_WARN : PST_LOG_ERROR, component, text, code, err->origin, err->text);
}

void pst_say_err(const char *verb, const pst_err *err)
{
    fprintf(stderr, "penstock %s: %s\n", verb, err->text);
}
