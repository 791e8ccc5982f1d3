/* score_drift.c - the drift of what the primary is given, by windows of so many records. A record of a round that is thrown away comes again and is counted
 * again: a window is a sample, and no round is held up for it. */
#include "inference/run/score_priv.h"

#include "common/base/log.h"
#include "inference/core/drift.h"

#include <stdio.h>
#include <string.h>

enum { WORST = 3 };

void scorer_drift_end(scorer *s)
{
    pst_drift_free(s->drift);
    s->drift = NULL;
}

/* Another version has other statistics, or none. */
static void take_model(scorer *s, const pst_binding *b)
{
    scorer_drift_end(s);
    s->drift_of = b;
    s->drift_version = pst_binding_version(b);
    s->drift = pst_drift_new(b);
    score_stats_drift(s->stats, NULL, 0, s->drift ? "" : "no training statistics in the model");
    if (!s->drift)
        pst_log(PST_LOG_WARN, "score", "event=no_training_statistics pipeline=%s model=%s version=%d", s->p->name, pst_binding_name(b),
                pst_binding_version(b));
}

/* The three that are farthest off, in a line. */
static void tell_worst(const score_drift_value *at, size_t n, char *to, size_t size)
{
    bool told[PST_DRIFT_COLUMNS_MAX + 1] = {0};
    *to = 0;
    for (int k = 0; k < WORST; k++) {
        size_t worst = n, len = strlen(to);
        for (size_t i = 0; i < n; i++)
            if (!told[i] && (worst == n || at[i].psi > at[worst].psi))
                worst = i;
        if (worst == n)
            return;
        told[worst] = true;
        snprintf(to + len, size - len, "%s%.80s %.3f", len ? ", " : "", at[worst].name, at[worst].psi);
    }
}

static void window_is_full(scorer *s)
{
    score_drift_value at[PST_DRIFT_COLUMNS_MAX + 1];
    char worst[400];
    size_t n = pst_drift_columns(s->drift), beyond = 0;
    PST_ASSERT(n <= sizeof at / sizeof *at);
    for (size_t i = 0; i < n; i++) {
        at[i] = (score_drift_value){pst_drift_name(s->drift, i), pst_drift_psi(s->drift, i)};
        beyond += at[i].psi > s->p->drift_psi;
    }
    tell_worst(at, n, worst, sizeof worst);
    score_stats_drift(s->stats, at, n, worst);
    if (beyond)
        pst_log_limited(PST_LOG_WARN, "score", "drift", "event=drift pipeline=%s version=%d records=%llu beyond=%zu limit=%g worst=\"%s\"",
                        s->p->name, pst_binding_version(s->drift_of), (unsigned long long)pst_drift_records(s->drift), beyond,
                        s->p->drift_psi, worst);
    pst_drift_clear(s->drift);
}

void scorer_drift_had(scorer *s, const pst_fate *f)
{
    if (!s->p->drift_over || f->kind != PST_FATE_SCORED || pst_score_core_lane_variant(f->by) != PST_VARIANT_PRIMARY)
        return;
    const pst_binding *b = pst_score_core_lane_binding(f->by);
    if (b != pst_score_core_binding(s->core, PST_VARIANT_PRIMARY)) /* one that is being replaced */
        return;
    if (b != s->drift_of || pst_binding_version(b) != s->drift_version)
        take_model(s, b);
    if (!s->drift)
        return;
    pst_drift_row(s->drift, b, f->row);
    if (pst_drift_records(s->drift) >= (uint64_t)s->p->drift_over)
        window_is_full(s);
}
