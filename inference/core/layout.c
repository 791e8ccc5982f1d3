/* layout.c - fields → slots. The common case (all numbers there, no words) is three straight loops over the row that compilers vectorise;
 * everything else is done per feature. */
#include "inference/core/layout.h"

#include "common/base/term.h"
#include "inference/core/words.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_SHOWN 60 /* bytes of a word that is not known */

struct score_layout {
    const pst_feature *features;
    size_t n, width;
    uint32_t *slots;
    size_t *start;
    double *scale, *offset, *lo, *hi; /* per slot */
    double *fill;                     /* per slot: x of a missing value */
    bool clips, words;
    score_words **vocabularies; /* per feature; NULL = none */
};

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
    if (known > PST_FEATURE_SLOTS_MAX)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "features", 0, "the features fill %zu slots, more than the limit of %d", known,
                           PST_FEATURE_SLOTS_MAX);
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
            case PST_MISSING_VALUE: l->fill[at] = f->one_hot ? f->fill_slot == (int32_t)s : f->value; break;
            case PST_MISSING_ZEROS: l->fill[at] = 0; break;
            case PST_MISSING_MEAN: l->fill[at] = mean_of(f, s); break;
            default: l->fill[at] = NAN;
            }
        }
        l->clips |= f->has_clip;
        l->words |= f->has_vocabulary || f->text;
        if (f->has_vocabulary)
            l->vocabularies[i] = score_words_new(f->vocabulary, f->n_vocabulary);
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
        score_words_free(l->vocabularies[i]);
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

static int reject(const score_layout *l, size_t i, const char *why, pst_err *err)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "features", 0, "field %s %s and its missing policy is reject", l->features[i].field,
                       why);
}

/* What a record holds and the words do not: shown as far as it can be, since it is a stranger's text. */
static int reject_word(const score_layout *l, size_t i, pst_slice text, double x, pst_err *err)
{
    pst_buf shown = {0};
    if (text.data)
        pst_term_quote(&shown, text.data, text.len, WORD_SHOWN);
    else
        pst_buf_printf(&shown, "%.17g", x);
    int rc =
        pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "features", 0, "field %s holds \"%s\", which is none of its %zu words, and its %s",
                    l->features[i].field, shown.len ? shown.data : "", l->features[i].n_vocabulary,
                    l->features[i].unknown == PST_UNKNOWN_REJECT ? "unknown policy is reject" : "missing policy is reject");
    pst_buf_done(&shown);
    return rc;
}

static void fill(const score_layout *l, size_t i, double *x)
{
    memcpy(x, l->fill + l->start[i], l->slots[i] * sizeof(double));
}

/* One slot is 1, the others are 0; -1: all are 0. */
static void put_one(const score_layout *l, size_t i, double number, double *x)
{
    memset(x, 0, l->slots[i] * sizeof(double));
    if (number >= 0)
        x[(size_t)number] = 1;
}

/* A word that is not there, by the feature's policy. *missing: 1 = nothing in the row stands for it. */
static int put_unknown(const score_layout *l, size_t i, pst_slice text, double given, double *x, uint8_t *missing, pst_err *err)
{
    const pst_feature *f = &l->features[i];
    *missing = f->unknown != PST_UNKNOWN_OTHER;
    switch (f->unknown) {
    case PST_UNKNOWN_REJECT: return reject_word(l, i, text, given, err);
    case PST_UNKNOWN_OTHER: put_one(l, i, (double)(l->slots[i] - 1), x); return 0;
    case PST_UNKNOWN_ZEROS: put_one(l, i, -1, x); return 0;
    default:
        if (f->missing == PST_MISSING_REJECT)
            return reject_word(l, i, text, given, err);
        fill(l, i, x);
        return 0;
    }
}

/* The word of a record → its number, or its slot. x: the field's number where it is no text. */
static int put_word(const score_layout *l, size_t i, pst_slice text, double *x, uint8_t *missing, pst_err *err)
{
    const pst_feature *f = &l->features[i];
    const score_words *w = l->vocabularies[i];
    double given = *x, number;
    if (!text.data && f->numbers_pass)
        return 0;
    if (text.data ? !score_words_text(w, text, &number) : !score_words_number(w, given, &number))
        return put_unknown(l, i, text, given, x, missing, err);
    if (f->one_hot)
        put_one(l, i, number, x);
    else
        *x = number;
    return 0;
}

/* The slow way, one feature after the other; numbers are in ret_row already. */
static int mend(const score_layout *l, uint8_t *missing, const pst_slice *texts, double *ret_row, const char **ret_reason, pst_err *err)
{
    int rc;
    *ret_reason = "bad-input";
    for (size_t i = 0; i < l->n; i++) {
        const pst_feature *f = &l->features[i];
        double *x = ret_row + l->start[i];
        bool nan = !missing[i] && f->has_vocabulary && !texts[i].data && isnan(*x); /* where a word should be */
        if (missing[i] || nan) {
            if (f->missing == PST_MISSING_REJECT) {
                *ret_reason = nan ? PST_REASON_NON_FINITE : *ret_reason;
                return reject(l, i, nan ? "is NaN" : "is null or absent", err);
            }
            missing[i] = 1;
            fill(l, i, x);
            continue;
        }
        if (f->has_vocabulary) {
            if ((rc = put_word(l, i, texts[i], x, &missing[i], err)) < 0)
                return rc;
            if (missing[i] || f->one_hot)
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
