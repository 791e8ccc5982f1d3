/* score_canary.c - the canary's error budget: what a round costs is judged before its commit, and where it is beyond the budget, the stop goes out in that
 * very transaction. So the stop is there exactly if the records are that caused it, whoever is killed when; the other workers of the
 * pipeline follow the topic of models and hear of it there, as does who starts later. From which offset on a partition had no canary, each
 * worker says of its own records (score_report.h): for a replay the worker's word counts, not the moment of the decision. */
#include "inference/run/score_priv.h"

#include "common/base/log.h"

#include <stdio.h>
#include <string.h>

void scorer_canary_begin(scorer *s)
{
    const struct pst_pipeline_budget *b = &s->p->budget;
    s->budget = (pst_budget){.errors = b->errors,
                             .disagreement = b->disagreement,
                             .latency_us = b->latency_us,
                             .over = (uint64_t)(s->p->has_canary ? b->over : 0)};
}

static void rest(scorer *s, const char *why)
{
    const pst_binding *b = pst_score_core_binding(s->core, PST_VARIANT_CANARY);
    s->canary_stopped = true;
    snprintf(s->canary_why, sizeof s->canary_why, "%s", why);
    score_reports_stopped(s->reports, why);
    pst_score_core_canary(s->core, 0);
    pst_log(PST_LOG_ERROR, "score", "event=canary_stopped pipeline=%s model=%s version=%d why=\"%s\"", s->p->name,
            b ? pst_binding_name(b) : s->p->canary.name, b ? pst_binding_version(b) : 0, why);
    score_stats_canary_stopped(s->stats, why);
}

void scorer_canary_hear(scorer *s)
{
    char why[480];
    if (s->p->has_canary && !s->canary_stopped && score_follow_canary_stopped(s->follow, why, sizeof why))
        rest(s, why);
}

/* A version pays for itself alone: with the first record behind a move of the alias the windows begin anew, and what the one before still has counts for nobody. */
void scorer_canary_had(scorer *s, const pst_fate *f)
{
    const pst_binding *b = s->p->has_canary ? pst_score_core_binding(s->core, PST_VARIANT_CANARY) : NULL;
    int version = b ? pst_binding_version(b) : 0;
    if (version != s->budget_of) {
        s->budget_of = version;
        s->budget.seen = s->round.canary = (pst_cost){0};
    }
    score_round_compared(&s->round, f, version);
}

bool scorer_canary_judge(scorer *s)
{
    pst_budget now = s->budget;
    if (s->canary_stopped || !now.over)
        return false;
    pst_budget_add(&now, &s->round.canary);
    if (!pst_budget_exceeded(&now, s->canary_why, sizeof s->canary_why))
        return false;
    score_reports_stopped(s->reports, s->canary_why);
    for (size_t i = 0; i < s->round.n_ends; i++)
        if (s->round.ends[i].next >= 0)
            score_reports_rests_from(s->reports, s->round.ends[i].topic, s->round.ends[i].partition, s->round.ends[i].next);
    return true;
}

void scorer_canary_commit(scorer *s, bool stops, bool committed)
{
    if (!committed) {
        if (stops)
            score_reports_stopped(s->reports, NULL);
        return;
    }
    pst_budget_add(&s->budget, &s->round.canary);
    pst_budget_turn(&s->budget);
    if (stops)
        rest(s, s->canary_why);
}

bool scorer_canary_gives_up(scorer *s, const pst_err *why)
{
    char text[480];
    if (!s->budget.over || s->canary_stopped || why->code != PST_ESTATE || pst_score_core_failed(s->core) != PST_VARIANT_CANARY)
        return false;
    snprintf(text, sizeof text, "errors: %.440s", why->text);
    rest(s, text);
    return true;
}
