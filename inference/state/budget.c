/* budget.c - two windows that end by count: the canary's own records, and those of the primary that its version scored beside it. They fill at different
 * speeds, so each is judged and begun anew by itself. Counts and not times: a replay of the same records comes to the same judgement. */
#include "inference/state/budget.h"

#include <stdio.h>

void pst_budget_add(pst_budget *b, const pst_cost *c)
{
    b->seen.records += c->records;
    b->seen.failed += c->failed;
    b->seen.compared += c->compared;
    b->seen.differed += c->differed;
    b->seen.us += c->us;
}

static bool beyond(uint64_t part, uint64_t of, double share)
{
    return share >= 0 && (double)part > share * (double)of;
}

bool pst_budget_exceeded(const pst_budget *b, char *ret_why, size_t size)
{
    const pst_cost *s = &b->seen;
    if (!b->over)
        return false;
    if (s->records >= b->over && beyond(s->failed, s->records, b->errors)) {
        snprintf(ret_why, size, "errors: the model failed on %llu of %llu records, more than %g%%", (unsigned long long)s->failed,
                 (unsigned long long)s->records, b->errors * 100);
        return true;
    }
    if (s->compared >= b->over && beyond(s->differed, s->compared, b->disagreement)) {
        snprintf(ret_why, size, "disagreement: %llu of %llu records were scored otherwise than by the primary, more than %g%%",
                 (unsigned long long)s->differed, (unsigned long long)s->compared, b->disagreement * 100);
        return true;
    }
    if (s->records >= b->over && b->latency_us && (double)s->us > (double)b->latency_us * (double)s->records) {
        snprintf(ret_why, size, "latency: computing took %.1f us a record over %llu records, more than %lld us",
                 (double)s->us / (double)s->records, (unsigned long long)s->records, (long long)b->latency_us);
        return true;
    }
    return false;
}

void pst_budget_turn(pst_budget *b)
{
    pst_cost *s = &b->seen;
    if (s->records >= b->over) {
        s->records = s->failed = 0;
        s->us = 0;
    }
    if (s->compared >= b->over)
        s->compared = s->differed = 0;
}
