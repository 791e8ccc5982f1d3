/* drift.c - reads what the learner wrote (trainer/learner/export.c) and counts. Metadata is a stranger's text: a column whose bins make no sense is left
 * out, and a number that is not finite is in no bin: what is missing is counted elsewhere. */
#include "inference/core/drift.h"

#include "common/base/array.h"
#include "common/base/json.h"
#include "inference/core/binding_priv.h"
#include "inference/state/psi.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EDGES_MAX = 64, SCORE = -1 };

typedef struct column {
    char *name;
    int slot; /* SCORE: the first number of the score */
    size_t n_edges;
    double edges[EDGES_MAX], shares[EDGES_MAX + 1];
    uint64_t seen[EDGES_MAX + 1];
} column;

struct pst_drift {
    column *columns;
    size_t n;
    uint64_t records;
};

static bool take_bins(const json_t *o, column *c)
{
    const json_t *edges = json_object_get(o, "edges"), *shares = json_object_get(o, "shares");
    size_t n = json_array_size(edges);
    double sum = 0;
    if (n > EDGES_MAX || json_array_size(shares) != n + 1)
        return false;
    for (size_t i = 0; i <= n; i++) {
        c->shares[i] = json_number_value(json_array_get(shares, i));
        c->edges[i < n ? i : 0] = i < n ? json_number_value(json_array_get(edges, i)) : c->edges[0];
        if (!(c->shares[i] >= 0) || (i && i < n && !(c->edges[i] > c->edges[i - 1])))
            return false;
        sum += c->shares[i];
    }
    c->n_edges = n;
    return fabs(sum - 1) < 1e-3;
}

static void add(pst_drift *d, const json_t *o, char *name, int slot)
{
    column c = {.name = name, .slot = slot};
    if (!take_bins(o, &c)) {
        free(name);
        return;
    }
    d->columns = pst_array_one_more(d->columns, d->n, sizeof *d->columns);
    d->columns[d->n++] = c;
}

static json_t *meta(const pst_binding *b, const char *key)
{
    const char *text = pst_model_meta(b->model, key);
    json_t *j = NULL;
    if (text)
        pst_json_parse(text, strlen(text), key, &j, NULL);
    return j;
}

/* A field's slots follow one another. */
static char *name_of(const json_t *list, size_t i)
{
    const char *field = pst_json_str(json_array_get(list, i), "field", "");
    size_t first = i;
    while (first && !strcmp(pst_json_str(json_array_get(list, first - 1), "field", ""), field))
        first--;
    bool several = first < i || (i + 1 < json_array_size(list) && !strcmp(pst_json_str(json_array_get(list, i + 1), "field", ""), field));
    return several ? pst_sprintf("%s[%zu]", field, i - first) : pst_strdup(field);
}

static bool has_columns(const pst_binding *b)
{
    return b->n_inputs == 1 && (b->inputs[0].info->dtype == PST_F32 || b->inputs[0].info->dtype == PST_F64);
}

pst_drift *pst_drift_new(const pst_binding *b)
{
    pst_drift *d = pst_alloc(sizeof *d);
    json_t *list = meta(b, "penstock.statistics"), *score = meta(b, "penstock.score_statistics");
    size_t n = has_columns(b) && json_is_array(list) ? json_array_size(list) : 0;
    for (size_t i = 0; i < n && i < PST_DRIFT_COLUMNS_MAX; i++)
        add(d, json_array_get(list, i), name_of(list, i), (int)i);
    if (score)
        add(d, score, pst_strdup("(score)"), SCORE);
    json_decref(list);
    json_decref(score);
    if (d->n)
        return d;
    pst_drift_free(d);
    return NULL;
}

void pst_drift_free(pst_drift *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n; i++)
        free(d->columns[i].name);
    free(d->columns);
    free(d);
}

static double value_at(const pst_binding *b, size_t row, int slot)
{
    const score_binding_input *in = &b->inputs[0];
    if (slot == SCORE) {
        const double *scores;
        const char *label;
        return pst_binding_score(b, row, &scores, &label) ? scores[0] : NAN;
    }
    if ((size_t)slot >= in->width)
        return NAN;
    const char *at = in->rows + (row * in->width + (size_t)slot) * in->elem;
    return in->info->dtype == PST_F32 ? (double)*(const float *)at : *(const double *)at;
}

void pst_drift_row(pst_drift *d, const pst_binding *b, size_t row)
{
    for (size_t i = 0; i < d->n; i++) {
        column *c = &d->columns[i];
        double x = value_at(b, row, c->slot);
        if (isfinite(x))
            c->seen[pst_psi_bin(c->edges, c->n_edges, x)]++;
    }
    d->records++;
}

void pst_drift_clear(pst_drift *d)
{
    for (size_t i = 0; i < d->n; i++)
        memset(d->columns[i].seen, 0, sizeof d->columns[i].seen);
    d->records = 0;
}

uint64_t pst_drift_records(const pst_drift *d)
{
    return d->records;
}

size_t pst_drift_columns(const pst_drift *d)
{
    return d->n;
}

const char *pst_drift_name(const pst_drift *d, size_t i)
{
    return d->columns[i].name;
}

double pst_drift_psi(const pst_drift *d, size_t i)
{
    return pst_psi(d->columns[i].shares, d->columns[i].seen, d->columns[i].n_edges + 1);
}
