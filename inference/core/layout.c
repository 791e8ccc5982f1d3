/* layout.c - fields → slots. The common case (all numbers there, no words) is three straight loops over the row that compilers vectorise;
 * everything else is done per feature. */
#include "inference/core/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct word {
    const char *text;
    size_t len;
    double number;
} word;

struct score_layout {
    const pst_feature *features;
    size_t n, width;
    uint32_t *slots;
    size_t *start;
    double *scale, *offset, *lo, *hi; /* per slot */
    double *fill;                     /* per slot: x of a missing value */
    bool clips, words;
    word **vocabularies; /* per feature: sorted by (length, bytes), for bisection; NULL = none */
};

static int by_word(const void *a, const void *b)
{
    const word *x = a, *y = b;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return memcmp(x->text, y->text, x->len);
}

/* Gives every feature its number of slots. */
static int share_slots(score_layout *l, const bool *arrays, size_t width, pst_err *err)
{
    size_t known = 0, open = 0, open_at = 0;
    for (size_t i = 0; i < l->n; i++) {
        l->slots[i] = l->features[i].slots;
        if (!l->slots[i] && arrays && arrays[i] && !l->features[i].has_vocabulary && !l->features[i].text) {
            open++;
            open_at = i;
            continue;
        }
        if (!l->slots[i])
            l->slots[i] = 1;
        known += l->slots[i];
    }
    if (open > 1 || (open == 1 && !width))
        return pst_err_set(
            err, PST_EINVAL, PST_CLASS_DATA, "features", 0,
            "field %s is an array; its length does not follow from the model%s: give it as slots: N in the pipeline's features",
            l->features[open_at].field, open > 1 ? " as there are more arrays" : "");
    if (open == 1 && width > known)
        l->slots[open_at] = (uint32_t)(width - known);
    if (!open && !width)
        width = known;
    if (open ? width <= known : width != known)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "features", 0, "the features fill %zu slots%s, the model's input has %zu",
                           known, open ? " and an array" : "", width);
    l->width = width;
    return 0;
}

/* One mean stands for all slots; of several each has its own. */
static double mean_of(const pst_feature *f, uint32_t slot)
{
    if (f->n_means == 1)
        return f->means[0];
    return slot < f->n_means ? f->means[slot] : NAN;
}

static void fill_slots(score_layout *l)
{
    size_t at = 0;
    for (size_t i = 0; i < l->n; i++) {
        const pst_feature *f = &l->features[i];
        l->start[i] = at;
        for (uint32_t s = 0; s < l->slots[i]; s++, at++) {
            l->scale[at] = f->scale;
            l->offset[at] = f->offset;
            l->lo[at] = f->has_clip ? f->clip_lo : -HUGE_VAL;
            l->hi[at] = f->has_clip ? f->clip_hi : HUGE_VAL;
            switch (f->missing) {
            case PST_MISSING_VALUE: l->fill[at] = f->value; break;
            case PST_MISSING_MEAN: l->fill[at] = mean_of(f, s); break;
            default: l->fill[at] = NAN;
            }
        }
        l->clips |= f->has_clip;
        l->words |= f->has_vocabulary || f->text;
        if (!f->has_vocabulary)
            continue;
        word *w = pst_alloc((f->n_vocabulary + 1) * sizeof(*w));
        for (size_t k = 0; k < f->n_vocabulary; k++)
            w[k] = (word){f->vocabulary[k].text, strlen(f->vocabulary[k].text), f->vocabulary[k].number};
        qsort(w, f->n_vocabulary, sizeof(*w), by_word);
        l->vocabularies[i] = w;
    }
}

int score_layout_new(const pst_feature *features, size_t n, const bool *arrays, size_t width, score_layout **ret_layout, pst_err *err)
{
    score_layout *l = pst_alloc(sizeof(*l));
    l->features = features;
    l->n = n;
    l->slots = pst_alloc((n + 1) * sizeof(*l->slots));
    int rc = share_slots(l, arrays, width, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (features[i].missing == PST_MISSING_MEAN && features[i].n_means != 1 && features[i].n_means != l->slots[i])
            rc = pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "features", 0, "feature %s has %zu means for %u slots", features[i].field,
                             features[i].n_means, l->slots[i]);
    if (rc < 0) {
        score_layout_free(l);
        return rc;
    }
    l->start = pst_alloc((n + 1) * sizeof(*l->start));
    l->scale = pst_alloc((l->width + 1) * sizeof(double));
    l->offset = pst_alloc((l->width + 1) * sizeof(double));
    l->lo = pst_alloc((l->width + 1) * sizeof(double));
    l->hi = pst_alloc((l->width + 1) * sizeof(double));
    l->fill = pst_alloc((l->width + 1) * sizeof(double));
    l->vocabularies = pst_alloc((n + 1) * sizeof(*l->vocabularies));
    fill_slots(l);
    *ret_layout = l;
    return 0;
}

void score_layout_free(score_layout *l)
{
    if (!l)
        return;
    for (size_t i = 0; l->vocabularies && i < l->n; i++)
        free(l->vocabularies[i]);
    free(l->vocabularies);
    free(l->slots);
    free(l->start);
    free(l->scale);
    free(l->offset);
    free(l->lo);
    free(l->hi);
    free(l->fill);
    free(l);
}

size_t score_layout_width(const score_layout *l)
{
    return l->width;
}

uint32_t score_layout_slots(const score_layout *l, size_t feature)
{
    return l->slots[feature];
}

size_t score_layout_start(const score_layout *l, size_t feature)
{
    return l->start[feature];
}

static bool look_up(const score_layout *l, size_t i, pst_slice text, double *ret)
{
    word key = {text.data ? text.data : "", text.len, 0};
    const word *w = bsearch(&key, l->vocabularies[i], l->features[i].n_vocabulary, sizeof(key), by_word);
    if (w)
        *ret = w->number;
    return w != NULL;
}

static int reject(const score_layout *l, size_t i, const char *why, pst_err *err)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "features", 0, "field %s %s and its missing policy is reject", l->features[i].field,
                       why);
}

/* The slow way, one feature after the other; numbers are in ret_row already. */
static int mend(const score_layout *l, uint8_t *missing, const pst_slice *texts, double *ret_row, const char **ret_reason, pst_err *err)
{
    *ret_reason = "bad-input";
    for (size_t i = 0; i < l->n; i++) {
        const pst_feature *f = &l->features[i];
        double *x = ret_row + l->start[i];
        const char *why = "is null or absent";
        if (!missing[i] && f->has_vocabulary && !look_up(l, i, texts[i], x)) {
            missing[i] = 1;
            why = "holds a word outside the vocabulary";
        }
        if (missing[i]) {
            if (f->missing == PST_MISSING_REJECT)
                return reject(l, i, why, err);
            memcpy(x, l->fill + l->start[i], l->slots[i] * sizeof(double));
            continue;
        }
        if (f->text)
            continue;
        for (uint32_t s = 0; s < l->slots[i]; s++) {
            if (!isnan(x[s]) || f->missing == PST_MISSING_NAN)
                continue;
            missing[i] = 1;
            if (f->missing == PST_MISSING_REJECT) {
                *ret_reason = PST_REASON_NON_FINITE;
                return reject(l, i, "is NaN", err);
            }
            x[s] = l->fill[l->start[i] + s];
        }
    }
    return 0;
}

int score_layout_row(const score_layout *l, const double *numbers, uint8_t *missing, const pst_slice *texts, double *ret_row,
                     const char **ret_reason, pst_err *err)
{
    if (numbers != ret_row)
        memcpy(ret_row, numbers, l->width * sizeof(double));
    unsigned odd = l->words;
    for (size_t i = 0; i < l->n; i++)
        odd |= missing[i];
    for (size_t s = 0; s < l->width; s++)
        odd |= (unsigned)(ret_row[s] != ret_row[s]);
    int rc = odd ? mend(l, missing, texts, ret_row, ret_reason, err) : 0;
    if (rc < 0)
        return rc;
    for (size_t s = 0; s < l->width; s++)
        ret_row[s] = ret_row[s] * l->scale[s] + l->offset[s];
    if (l->clips) {
        for (size_t s = 0; s < l->width; s++) {
            double x = ret_row[s], least = x < l->lo[s] ? l->lo[s] : x;
            ret_row[s] = least > l->hi[s] ? l->hi[s] : least; /* NaN stays NaN */
        }
    }
    return 0;
}
