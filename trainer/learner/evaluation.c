/* evaluation.c - areas by ranks: one sort a class, then the ranks of its rows are added up, ties sharing theirs. */
#include "trainer/learner/evaluation.h"

#include "common/base/buf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    float score;
    uint32_t is; /* of the class */
} row;

static int by_score(const void *a, const void *b)
{
    float x = ((const row *)a)->score, y = ((const row *)b)->score;
    return x < y ? -1 : x > y;
}

/* NaN: all rows are of the class, or none is. */
static double area(const learn_scored *s, int class, row *rows)
{
    double with = 0, ranks = 0;
    for (size_t i = 0; i < s->n; i++) {
        rows[i] = (row){s->scores[i * (size_t)s->classes + (size_t) class], (int)s->truth[i] == class};
        with += rows[i].is;
        if (isnan(rows[i].score))
            return NAN;
    }
    double without = (double)s->n - with;
    if (with == 0 || without == 0)
        return NAN;
    qsort(rows, s->n, sizeof *rows, by_score);
    for (size_t at = 0, end; at < s->n; at = end) {
        double own = 0;
        for (end = at; end < s->n && rows[end].score == rows[at].score; end++)
            own += rows[end].is;
        ranks += own * ((double)(at + 1) + (double)end) / 2;
    }
    return (ranks - with * (with + 1) / 2) / (with * without);
}

double learn_auc(const learn_scored *s)
{
    row *rows = pst_alloc((s->n + 1) * sizeof *rows);
    double sum = 0;
    int counted = 0;
    for (int c = s->classes == 2 ? 1 : 0; c < s->classes; c++) {
        double one = area(s, c, rows);
        if (isnan(one))
            continue;
        sum += one;
        counted++;
    }
    free(rows);
    return counted ? sum / counted : NAN;
}

void learn_confusion(const learn_scored *s, int64_t *ret)
{
    size_t k = (size_t)s->classes;
    memset(ret, 0, k * k * sizeof *ret);
    for (size_t i = 0; i < s->n; i++) {
        size_t taken = 0, class = (size_t)s->truth[i];
        for (size_t j = 1; j < k; j++)
            taken = s->scores[i * k + j] > s->scores[i * k + taken] ? j : taken;
        if (class < k)
            ret[class * k + taken]++;
    }
}
