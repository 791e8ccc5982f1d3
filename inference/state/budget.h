/* budget.h - what a canary has cost so far, against what it may: counted over at least `over` of its records, then from 0 again. A round that is not
 * committed yet is added to a copy.
 *
 *     pst_budget now = budget;
 *     pst_budget_add(&now, &cost);
 *     if (pst_budget_exceeded(&now, why, sizeof why)) …
 *     budget = now, pst_budget_turn(&budget);      // once the round is committed
 *
 * Pure. @thread any */
#ifndef PST_INFERENCE_STATE_BUDGET_H
#define PST_INFERENCE_STATE_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pst_cost {
    uint64_t records, failed, compared, differed; /* compared, differed: of the primary's records */
    int64_t us;                                   /* spent on `records` */
} pst_cost;

typedef struct pst_budget {
    double errors, disagreement; /* shares of the cost; < 0 = no limit */
    int64_t latency_us;          /* 0 = no limit */
    uint64_t over;               /* 0 = there is no budget */
    pst_cost seen;
} pst_budget;

void pst_budget_add(pst_budget *b, const pst_cost *cost);
/* A share that is just met is not exceeded. why: a sentence with the figures. */
bool pst_budget_exceeded(const pst_budget *b, char *ret_why, size_t size);
/* What was judged counts no more. */
void pst_budget_turn(pst_budget *b);

#endif
