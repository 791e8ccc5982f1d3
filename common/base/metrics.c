/* metrics.c - metrics are never removed, so pointers stay valid for the life of the set, and counting takes no lock: the set's lock is for
 * making metrics and for printing them. */
#include "common/base/metrics.h"

#include "common/base/err.h"
#include "common/base/map.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SECONDS_BUCKETS = 20, BUCKETS_MAX = PST_METRIC_SPREAD, METRICS_MAX = 1000, LABELS_MAX = 8 };

static const double spread_edges[PST_METRIC_SPREAD - 1] = {0,   0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5,
                                                           0.6, 0.7,   0.8,   0.9,   0.95, 0.99, 1,    2,   5,   10,  100, 1000};

struct pst_metric {
    pst_metric_kind kind;
    char *name, *help, *labels; /* labels: a="b",c="d" or "" */
    _Atomic double value;       /* histogram: sum */
    _Atomic uint64_t bucket[BUCKETS_MAX];
};

struct pst_metrics {
    pthread_mutex_t lock;
    pst_map by_key; /* "name{labels}" */
};

pst_metrics *pst_metrics_new(void)
{
    pst_metrics *s = pst_alloc(sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

static void metric_free(void *p)
{
    pst_metric *m = p;
    free(m->name);
    free(m->help);
    free(m->labels);
    free(m);
}

void pst_metrics_free(pst_metrics *s)
{
    if (!s)
        return;
    pst_map_done(&s->by_key, metric_free);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void add_label(pst_buf *b, const char *name, const char *value)
{
    pst_buf_printf(b, "%s%s=\"", b->len ? "," : "", name);
    for (; *value; value++)
        if (*value == '\\' || *value == '"')
            pst_buf_printf(b, "\\%c", *value);
        else if (*value == '\n')
            pst_buf_adds(b, "\\n");
        else
            pst_buf_addc(b, *value);
    pst_buf_addc(b, '"');
}

pst_metric *pst_metric_make(pst_metrics *s, pst_metric_kind k, const char *name, const char *help, const char *const *pairs)
{
    pst_buf labels = {0}, key = {0};
    for (; *pairs; pairs += 2)
        add_label(&labels, pairs[0], pairs[1]);
    pthread_mutex_lock(&s->lock);
    bool full = s->by_key.live >= METRICS_MAX;
    pst_buf_printf(&key, "%s{%s}", name, labels.len ? labels.data : "");
    pst_metric *m = pst_map_get(&s->by_key, key.data);
    if (!m && full) {
        pst_buf_clear(&labels);
        add_label(&labels, "overflow", "true");
        pst_buf_clear(&key);
        pst_buf_printf(&key, "%s{%s}", name, labels.data);
        m = pst_map_get(&s->by_key, key.data);
    }
    if (!m) {
        m = pst_alloc(sizeof *m);
        m->kind = k;
        m->name = pst_strdup(name);
        m->help = pst_strdup(help);
        m->labels = pst_buf_steal(&labels);
        pst_map_put(&s->by_key, key.data, m);
    }
    PST_ASSERT(m->kind == k); /* one name, one kind: a histogram's value is a sum, a counter's a count */
    pthread_mutex_unlock(&s->lock);
    pst_buf_done(&labels);
    pst_buf_done(&key);
    return m;
}

static pst_metric *make_by(pst_metrics *s, pst_metric_kind k, const char *name, const char *help, va_list ap)
{
    const char *pairs[2 * LABELS_MAX + 1] = {NULL};
    for (size_t n = 0; (pairs[n] = va_arg(ap, const char *)); n += 2) {
        PST_ASSERT(n + 2 < sizeof pairs / sizeof *pairs);
        pairs[n + 1] = va_arg(ap, const char *);
    }
    return pst_metric_make(s, k, name, help, pairs);
}

#define DEFINE(fn, kind)                                                    \
    pst_metric *fn(pst_metrics *s, const char *name, const char *help, ...) \
    {                                                                       \
        va_list ap;                                                         \
        va_start(ap, help);                                                 \
        pst_metric *m = make_by(s, kind, name, help, ap);                   \
        va_end(ap);                                                         \
        return m;                                                           \
    }
DEFINE(pst_metric_counter, PST_METRIC_KIND_COUNTER)
DEFINE(pst_metric_gauge, PST_METRIC_KIND_GAUGE)
DEFINE(pst_metric_histogram, PST_METRIC_KIND_HISTOGRAM)

void pst_metric_add(pst_metric *m, double v)
{
    double old = atomic_load_explicit(&m->value, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&m->value, &old, old + v))
        ;
}

void pst_metric_set(pst_metric *m, double v)
{
    m->value = v;
}

static bool has_buckets(const pst_metric *m)
{
    return m->kind == PST_METRIC_KIND_HISTOGRAM || m->kind == PST_METRIC_KIND_SPREAD;
}

/* How many have an upper bound; one more has none. */
static int edges_of(const pst_metric *m)
{
    return m->kind == PST_METRIC_KIND_SPREAD ? PST_METRIC_SPREAD - 1 : SECONDS_BUCKETS;
}

/* Upper bounds of seconds: 50 µs × 2^i, so the 20th is 26 s. */
static double bound(const pst_metric *m, int i)
{
    return m->kind == PST_METRIC_KIND_SPREAD ? spread_edges[i] : 50e-6 * (double)(1u << i);
}

void pst_metric_observe(pst_metric *m, double seconds)
{
    PST_ASSERT(m->kind == PST_METRIC_KIND_HISTOGRAM);
    int i = 0;
    while (i < SECONDS_BUCKETS && seconds > bound(m, i))
        i++;
    atomic_fetch_add_explicit(&m->bucket[i], 1, memory_order_relaxed);
    pst_metric_add(m, seconds);
}

/* Halves, without a branch on the value: it is called for each score. */
void pst_metric_spread_add(pst_metric_spread *s, double value)
{
    if (isnan(value))
        return;
    size_t low = 0, n = PST_METRIC_SPREAD - 1;
    while (n) {
        size_t half = n / 2, above = value > spread_edges[low + half];
        low = above ? low + half + 1 : low;
        n = above ? n - half - 1 : half;
    }
    s->n[low]++;
    if (isfinite(value))
        s->sum += value;
}

void pst_metric_merge(pst_metric *m, const pst_metric_spread *s)
{
    PST_ASSERT(m->kind == PST_METRIC_KIND_SPREAD);
    for (size_t i = 0; i < PST_METRIC_SPREAD; i++)
        if (s->n[i])
            atomic_fetch_add_explicit(&m->bucket[i], s->n[i], memory_order_relaxed);
    pst_metric_add(m, s->sum);
}

double pst_metric_get(const pst_metric *m)
{
    if (!has_buckets(m))
        return m->value;
    uint64_t n = 0;
    for (int i = 0; i <= edges_of(m); i++)
        n += m->bucket[i];
    return (double)n;
}

double pst_metric_quantile(const pst_metric *m, double q)
{
    double want = q * pst_metric_get(m), seen = 0;
    for (int i = 0, edges = edges_of(m); i <= edges; i++) {
        double here = (double)m->bucket[i];
        if (here > 0 && seen + here >= want) {
            double low = i ? bound(m, i - 1) : 0, high = bound(m, i < edges ? i : edges - 1);
            return low + (high - low) * (want - seen) / here;
        }
        seen += here;
    }
    return 0;
}

double pst_metric_spread_quantile(const pst_metric_spread *s, double q)
{
    pst_metric m = {.kind = PST_METRIC_KIND_SPREAD};
    for (size_t i = 0; i < PST_METRIC_SPREAD; i++)
        m.bucket[i] = s->n[i];
    return pst_metric_quantile(&m, q);
}

static void print_one(pst_buf *out, const pst_metric *m)
{
    if (!has_buckets(m) && isnan((double)m->value)) {
        pst_buf_printf(out, *m->labels ? "%s{%s} NaN\n" : "%s%s NaN\n", m->name, m->labels);
        return;
    }
    if (!has_buckets(m)) {
        pst_buf_printf(out, *m->labels ? "%s{%s} %.17g\n" : "%s%s %.17g\n", m->name, m->labels, (double)m->value);
        return;
    }
    uint64_t sum = 0;
    const char *comma = *m->labels ? "," : "";
    for (int i = 0, edges = edges_of(m); i <= edges; i++) {
        sum += m->bucket[i];
        if (i < edges)
            pst_buf_printf(out, "%s_bucket{%s%sle=\"%.9g\"} %llu\n", m->name, m->labels, comma, bound(m, i), (unsigned long long)sum);
        else
            pst_buf_printf(out, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", m->name, m->labels, comma, (unsigned long long)sum);
    }
    const char *open = *m->labels ? "{" : "", *close = *m->labels ? "}" : "";
    pst_buf_printf(out, "%s_sum%s%s%s %.9g\n", m->name, open, m->labels, close, (double)m->value);
    pst_buf_printf(out, "%s_count%s%s%s %llu\n", m->name, open, m->labels, close, (unsigned long long)sum);
}

const char *pst_metric_kind_name(pst_metric_kind kind)
{
    static const char *const names[] = {"counter", "gauge", "histogram", "histogram"};
    PST_ASSERT((size_t)kind < sizeof names / sizeof *names);
    return names[kind];
}

static bool ends_total(const char *name)
{
    size_t len = strlen(name);
    return len > 6 && !strcmp(name + len - 6, "_total");
}

/* OpenMetrics calls a counter's family by its name without _total, which all of ours have. One without it could not be told there: of unknown type. */
static void print_head(pst_buf *out, const pst_metric *m, bool open)
{
    size_t len = strlen(m->name);
    const char *kind = pst_metric_kind_name(m->kind);
    if (open && m->kind == PST_METRIC_KIND_COUNTER && ends_total(m->name))
        len -= 6;
    else if (open && m->kind == PST_METRIC_KIND_COUNTER)
        kind = "unknown";
    pst_buf_printf(out, "# HELP %.*s %s\n# TYPE %.*s %s\n", (int)len, m->name, m->help, (int)len, m->name, kind);
}

static void print_all(pst_metrics *s, pst_buf *out, bool open)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->by_key.n; i++) {
        const pst_metric *m = s->by_key.at[i].value;
        bool first = true;
        for (size_t j = 0; j < i && first; j++)
            first = strcmp(((const pst_metric *)s->by_key.at[j].value)->name, m->name) != 0;
        if (!first)
            continue;
        print_head(out, m, open);
        for (size_t j = i; j < s->by_key.n; j++)
            if (!strcmp(((const pst_metric *)s->by_key.at[j].value)->name, m->name))
                print_one(out, s->by_key.at[j].value);
    }
    pthread_mutex_unlock(&s->lock);
}

void pst_metrics_text(pst_metrics *s, pst_buf *out)
{
    print_all(s, out, false);
}

void pst_metrics_open_text(pst_metrics *s, pst_buf *out)
{
    print_all(s, out, true);
    pst_buf_adds(out, "# EOF\n");
}
