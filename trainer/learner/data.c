/* data.c - rows are collected as they come, sorted by where they came from, and only then split and standardised: what a run learns does not
 * depend on how fast which partition was read. Statistics are of the training part alone, in two passes of doubles. */
#include "trainer/learner/data.h"

#include "common/base/array.h"
#include "common/base/hash.h"
#include "trainer/learner/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_ROWS = 256, STREAM_SPLIT = 1 };

/* A column that moves by less than this share of its own size is all rounding noise: dividing by so small a deviation would blow it up. */
static const double deviation_floor = 1e-4;

void learn_data_init(learn_data *d, const pst_learn_settings *s, size_t bytes_max)
{
    *d = (learn_data){.settings = s, .bytes_max = bytes_max};
    learn_data_set_columns(d);
}

static void free_words(learn_data *d)
{
    for (int i = 0; i < d->n_words; i++)
        learn_words_free(d->words[i]);
    free(d->words);
    d->words = NULL;
    d->n_words = 0;
}

void learn_data_done(learn_data *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n_ranges; i++)
        free(d->ranges[i].topic);
    free(d->ranges);
    free(d->x);
    free(d->y);
    free(d->part);
    free_words(d);
    free(d->present);
    *d = (learn_data){0};
}

void learn_data_set_columns(learn_data *d)
{
    d->columns = pst_learn_columns(d->settings);
    free(d->present);
    d->present = pst_alloc((size_t)d->settings->n_features + 1);
    free_words(d);
    d->n_words = d->settings->n_features;
    d->words = pst_alloc(((size_t)d->n_words + 1) * sizeof *d->words);
    for (int i = 0; i < d->n_words; i++)
        d->words[i] = learn_words_new(&d->settings->features[i]);
}

void learn_data_add_range(learn_data *d, const char *topic, int32_t partition, int64_t from, int64_t to)
{
    d->ranges = pst_array_one_more(d->ranges, d->n_ranges, sizeof *d->ranges);
    d->ranges[d->n_ranges++] = (learn_data_range){pst_strdup(topic), partition, from, to, 0};
}

void learn_data_take_ranges(learn_data *d, learn_data_range *ranges, size_t n)
{
    for (size_t i = 0; i < d->n_ranges; i++)
        free(d->ranges[i].topic);
    free(d->ranges);
    d->ranges = ranges;
    d->n_ranges = n;
}

void learn_data_bad(learn_data *d, const char *fmt, ...)
{
    if (d->bad++)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->why_bad, sizeof d->why_bad, fmt, ap);
    va_end(ap);
}

static int drop(learn_data *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int drop(learn_data *d, const char *fmt, ...)
{
    if (!d->dropped++) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(d->why_dropped, sizeof d->why_dropped, fmt, ap);
        va_end(ap);
    }
    return 1;
}

static bool same_text(pst_slice t, const char *name)
{
    return t.len == strlen(name) && !memcmp(t.data, name, t.len);
}

/* The class a target names; -1 = none. Numbers and booleans match names by their text. */
static int class_of(const pst_learn_settings *s, const learn_target *t)
{
    char number[40];
    if (!s->classes)
        return t->number >= 0 && t->number < s->n_classes && t->number == floor(t->number) ? (int)t->number : -1;
    pst_slice text = t->text;
    if (!text.data) {
        snprintf(number, sizeof number, "%.15g", t->number);
        text = (pst_slice){number, strlen(number)};
    }
    for (int i = 0; i < s->n_classes; i++)
        if (same_text(text, s->classes[i]) ||
            (!t->text.data && ((t->number == 1 && !strcmp(s->classes[i], "true")) || (t->number == 0 && !strcmp(s->classes[i], "false")))))
            return i;
    return -1;
}

/* A word that is none of the classes. Left out in silence it would make a wrong list of classes look like a perfect model. */
static int outside(learn_data *d, const learn_target *t)
{
    char word[sizeof d->others[0].word];
    if (t->text.data)
        snprintf(word, sizeof word, "%.*s", (int)(t->text.len < sizeof word ? t->text.len : sizeof word - 1), (const char *)t->text.data);
    else
        snprintf(word, sizeof word, "%.15g", t->number);
    d->outside++;
    size_t i = 0;
    while (i < d->n_others && strcmp(d->others[i].word, word) != 0)
        i++;
    if (i == sizeof d->others / sizeof d->others[0])
        return 1;
    if (i == d->n_others)
        memcpy(d->others[d->n_others++].word, word, sizeof word);
    d->others[i].n++;
    return 1;
}

static int refuse_outside(const learn_data *d, pst_err *err)
{
    const pst_learn_settings *s = d->settings;
    char list[440] = "";
    size_t at = 0;
    int64_t listed = 0;
    for (size_t i = 0; i < d->n_others && at + 80 < sizeof list; i++, listed = listed + d->others[i - 1].n)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s\"%s\" (%lld)", i ? ", " : "", d->others[i].word, (long long)d->others[i].n);
    return pst_err_set(
        err, PST_EINVAL, PST_CLASS_DATA, "learner", 0,
        "%lld records have a target %s that is none of the %d classes: %s%s; add them to classes, or leave such records out by "
        "other_classes: leave_out",
        (long long)d->outside, s->target, s->n_classes, list, listed < d->outside ? ", …" : "");
}

static int target_of(learn_data *d, const learn_target *t, float *ret)
{
    const pst_learn_settings *s = d->settings;
    if (!t->text.data && !isfinite(t->number))
        return drop(d, "the target %s is missing", s->target);
    if (!s->n_classes) {
        *ret = (float)t->number;
        return isfinite(*ret) ? 0 : drop(d, "the target %s is %g, which float32 does not hold", s->target, t->number);
    }
    int class = class_of(s, t);
    if (class < 0 && !s->leave_out_others)
        return outside(d, t);
    if (class < 0 && t->text.data)
        return drop(d, "%s is \"%.*s\", which is none of the classes", s->target, (int)(t->text.len < 40 ? t->text.len : 40),
                    (const char *)t->text.data);
    if (class < 0)
        return drop(d, "%s is %g, which is none of the %d classes", s->target, t->number, s->n_classes);
    *ret = (float)class;
    return 0;
}

static int grow(learn_data *d, pst_err *err)
{
    if (d->rows < d->cap)
        return 0;
    size_t cap = d->cap ? d->cap * 2 : 256, row = ((size_t)d->columns + 1) * sizeof(float);
    if (cap > d->bytes_max / row)
        cap = d->bytes_max / row;
    if (cap <= d->rows)
        return pst_err_set(
            err, PST_ELIMIT, PST_CLASS_DATA, "learner", 0,
            "more than %zu records of %d numbers do not fit into the %zu MiB that this job may use; raise `memory` in the manifest, or "
            "narrow the range (from, to, records of the data store)",
            d->rows, d->columns, d->bytes_max >> 20);
    d->x = pst_realloc(d->x, cap * (size_t)d->columns * sizeof(float));
    if (d->settings->target)
        d->y = pst_realloc(d->y, cap * sizeof(float));
    d->part = pst_realloc(d->part, cap * sizeof *d->part);
    d->cap = cap;
    return 0;
}

/* Written where the next row will stand, and counted at the end alone: a record that is dropped half way leaves nothing behind. */
int learn_data_add(learn_data *d, const double *numbers, const uint8_t *missing, const learn_target *target, pst_err *err)
{
    const pst_learn_settings *s = d->settings;
    PST_ASSERT(d->columns > 0);
    int rc = grow(d, err);
    if (rc < 0)
        return rc;
    PST_ASSERT(d->rows < d->cap);
    float y = 0, *x = d->x + d->rows * (size_t)d->columns;
    if (s->target && target_of(d, target, &y))
        return 1;
    for (int i = 0; i < s->n_features; i++) {
        const pst_learn_feature *f = &s->features[i];
        if (d->words[i]) {
            d->present[i] |= !missing[i];
            if (missing[i] && f->missing == PST_LEARN_MISSING_REJECT)
                return drop(d, "%s is missing (missing: reject)", f->field);
            if (!missing[i] && *numbers < 0 && f->unknown == PST_LEARN_UNKNOWN_REJECT)
                return drop(d, "%s is none of the words of its one_hot (unknown: reject)", f->field);
            *x++ = missing[i] ? (float)LEARN_WORD_MISSING : (float)*numbers;
            numbers++;
            continue;
        }
        for (int k = 0; k < f->slots; k++, numbers++, x++) {
            bool absent = missing[i] || isnan(*numbers);
            d->present[i] |= !absent;
            if (absent && f->missing == PST_LEARN_MISSING_REJECT)
                return drop(d, "%s is missing (missing: reject)", f->field);
            double v = absent ? f->value : *numbers;
            *x = absent && f->missing == PST_LEARN_MISSING_MEAN ? NAN : (float)(v * f->scale + f->offset);
            if (isinf(*x))
                return drop(d, "%s is %g, which is beyond float32 after scale and offset", f->field, v);
        }
    }
    if (s->target)
        d->y[d->rows] = y;
    d->part[d->rows++] = d->part_now;
    return 0;
}

void learn_data_sort(learn_data *d)
{
    size_t k = (size_t)d->columns, *at = pst_alloc((d->n_ranges + 1) * sizeof *at);
    if (d->n_ranges < 2 || !d->rows) {
        free(at);
        return;
    }
    for (size_t i = 0; i < d->rows; i++)
        at[d->part[i] + 1]++;
    for (size_t p = 0; p < d->n_ranges; p++)
        at[p + 1] += at[p];
    float *x = pst_alloc(d->rows * k * sizeof *x), *y = d->y ? pst_alloc(d->rows * sizeof *y) : NULL;
    for (size_t i = 0; i < d->rows; i++) {
        size_t to = at[d->part[i]]++;
        memcpy(x + to * k, d->x + i * k, k * sizeof *x);
        if (y)
            y[to] = d->y[i];
    }
    free(at);
    free(d->x);
    free(d->y);
    d->x = x;
    d->y = y;
    d->cap = d->rows;
    free(d->part); /* nobody asks any more */
    d->part = NULL;
}

/* ---- preparation --------------------------------------------------------------------------------------------------------------- */

void learn_statistics_done(learn_statistics *s)
{
    free(s->mean);
    free(s->std);
    free(s->min);
    free(s->max);
    *s = (learn_statistics){0};
}

static float *copy_floats(const float *from, size_t n)
{
    float *to = pst_alloc((n + 1) * sizeof *to);
    if (n)
        memcpy(to, from, n * sizeof *to);
    return to;
}

void learn_statistics_copy(const learn_statistics *s, learn_statistics *ret_copy)
{
    learn_statistics c = *s;
    size_t n = (size_t)s->columns;
    c.mean = copy_floats(s->mean, n);
    c.std = copy_floats(s->std, n);
    c.min = copy_floats(s->min, n);
    c.max = copy_floats(s->max, n);
    *ret_copy = c;
}

void learn_ready_done(learn_ready *r)
{
    if (!r)
        return;
    if (r->target != r->z)
        free(r->target);
    free(r->z);
    free(r->sample);
    learn_statistics_done(&r->stats);
    *r = (learn_ready){0};
}

typedef struct column { /* what one pass over a column's numbers gives */
    double sum, seen, min, max;
} column;

/* Of all ranks, in their order, so that it is the same wherever and whenever it is added up. */
static int pool_columns(const learn_data *d, column *c, size_t k, pst_err *err)
{
    const pst_buf *all;
    if (!d->pool)
        return 0;
    int rc = learn_pool_gather(d->pool, c, k * sizeof *c, true, &all, err);
    memset(c, 0, k * sizeof *c);
    for (int rank = 0; !rc && rank < d->pool->world; rank++)
        for (size_t j = 0; j < k; j++) {
            column one;
            memcpy(&one, all[rank].data + j * sizeof one, sizeof one);
            if (!(one.seen > 0))
                continue;
            c[j].min = !(c[j].seen > 0) || one.min < c[j].min ? one.min : c[j].min;
            c[j].max = !(c[j].seen > 0) || one.max > c[j].max ? one.max : c[j].max;
            c[j].sum += one.sum;
            c[j].seen += one.seen;
        }
    return rc;
}

/* Mean, deviation and range of each of the k columns over the n picked rows; two passes in double. Values that are NaN do not count. */
static int measure(const learn_data *d, const float *x, size_t k, const uint32_t *picks, size_t n, float *mean, float *std, float *min,
                   float *max, pst_err *err)
{
    column *c = pst_alloc((k + 1) * sizeof *c);
    double *squares = pst_alloc((k + 1) * sizeof *squares);
    for (size_t j = 0; j < k; j++)
        for (size_t i = 0; i < n; i++) {
            double v = (double)x[picks[i] * k + j];
            if (isnan(v))
                continue;
            c[j].sum += v;
            c[j].min = !(c[j].seen > 0) || v < c[j].min ? v : c[j].min;
            c[j].max = !(c[j].seen > 0) || v > c[j].max ? v : c[j].max;
            c[j].seen++;
        }
    int rc = pool_columns(d, c, k, err);
    for (size_t j = 0; !rc && j < k; j++) {
        double m = c[j].seen > 0 ? c[j].sum / c[j].seen : 0;
        for (size_t i = 0; i < n; i++) {
            double v = (double)x[picks[i] * k + j];
            squares[j] += isnan(v) ? 0 : (v - m) * (v - m);
        }
    }
    if (!rc && d->pool)
        rc = learn_pool_sum(d->pool, squares, k, err);
    for (size_t j = 0; !rc && j < k; j++) {
        double m = c[j].seen > 0 ? c[j].sum / c[j].seen : 0;
        double deviation = c[j].seen > 0 ? sqrt(squares[j] / c[j].seen) : 0, least = deviation_floor * fabs(m);
        bool constant = c[j].min == c[j].max;
        mean[j] = (float)m;
        min[j] = (float)c[j].min;
        max[j] = (float)c[j].max;
        std[j] = (float)(constant ? fmax(1, least) : fmax(deviation, least)); /* a constant column keeps its own unit */
        if (!(std[j] > 0))
            std[j] = 1;
    }
    free(c);
    free(squares);
    return rc;
}

static int take_statistics(const learn_data *d, const uint32_t *order, size_t train, learn_statistics *s, pst_err *err)
{
    size_t k = (size_t)d->columns;
    float **arrays[] = {&s->mean, &s->std, &s->min, &s->max}, least, most;
    s->columns = d->columns;
    for (size_t i = 0; i < 4; i++)
        *arrays[i] = pst_alloc((k + 1) * sizeof(float));
    int rc = measure(d, d->x, k, order, train, s->mean, s->std, s->min, s->max, err);
    if (rc < 0)
        return rc;
    for (int i = 0, j = 0; i < d->settings->n_features; i++) { /* what the user says is noise is no signal, however quiet it was */
        const pst_learn_feature *f = &d->settings->features[i];
        for (int slot = 0; slot < f->slots; slot++, j++)
            if (f->one_hot) { /* a word stays 0 or 1: a seldom one is not to outweigh all others by its small deviation */
                s->mean[j] = 0;
                s->std[j] = 1;
            } else if (f->noise > 0 && (s->min[j] == s->max[j] || (double)s->std[j] < f->noise * fabs(f->scale)))
                s->std[j] = (float)fmax(f->noise * fabs(f->scale), deviation_floor * fabs((double)s->mean[j]));
    }
    s->target_mean = 0;
    s->target_std = 1;
    if (d->settings->target && !d->settings->n_classes)
        rc = measure(d, d->y, 1, order, train, &s->target_mean, &s->target_std, &least, &most, err);
    return rc;
}

/* A rank whose records lack a field takes part all the same when others have it. */
static int pool_present(learn_data *d, pst_err *err)
{
    const pst_buf *all;
    size_t n = (size_t)d->settings->n_features;
    uint8_t *here = pst_alloc(n + 1);
    for (size_t i = 0; i < n; i++)
        here[i] = d->present[i];
    int rc = learn_pool_gather(d->pool, here, n, true, &all, err);
    for (int rank = 0; !rc && rank < d->pool->world; rank++)
        for (size_t i = 0; i < n; i++)
            d->present[i] |= all[rank].data[i] != 0;
    free(here);
    return rc;
}

/* What every rank must know of the others: how many records each trains on; and the number that stands for all data. */
static int pool_counts(const learn_data *d, learn_ready *r, pst_err *err)
{
    const pst_buf *all;
    struct {
        uint64_t rows, train, crc;
    } one = {r->rows, r->train, r->crc};
    r->all_rows = r->rows;
    r->all_train = r->train;
    if (!d->pool)
        return 0;
    int rc = learn_pool_gather(d->pool, &one, sizeof one, true, &all, err);
    r->all_rows = r->all_train = 0;
    r->crc = 0;
    for (int rank = 0; !rc && rank < d->pool->world; rank++) {
        memcpy(&one, all[rank].data, sizeof one);
        d->pool->train[rank] = one.train;
        r->all_rows += one.rows;
        r->all_train += one.train;
        r->crc = pst_crc32c(r->crc, &one.crc, sizeof one.crc);
    }
    return rc;
}

/* A field that no record has is a name misspelt more often than a sensor that was never on: trained with nothing in its place, the model would look
 * good and know less than was asked for. */
static int refuse_absent(const learn_data *d, pst_err *err)
{
    for (int i = 0; i < d->settings->n_features; i++)
        if (!d->present[i])
            return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "learner", 0,
                               "none of the %zu records has the feature %s; is its name right? `penstock cat -t %s -o beginning -c 1` "
                               "shows a record; leave it out if none is to have it",
                               d->rows, d->settings->features[i].field, d->n_ranges ? d->ranges[0].topic : "TOPIC");
    return 0;
}

/* Why there is nothing to train on, the first record that was left out first: what shows the message may cut it. */
static int refuse_all(const learn_data *d, pst_err *err)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "learner", 0, "none of the %lld records can be trained on: %s%s%s",
                       (long long)(d->bad + d->dropped), d->why_bad, d->bad && d->dropped ? "; " : "", d->why_dropped);
}

static int count_parts(const learn_data *d, size_t *ret_train, pst_err *err)
{
    double share = d->settings->validation;
    if (d->outside)
        return refuse_outside(d, err);
    if (!d->rows && (d->bad || d->dropped))
        return refuse_all(d, err);
    size_t held = (size_t)(share * (double)d->rows + 0.5);
    if (share > 0 && held == 0)
        held = 1;
    if (d->rows < 2 || held >= d->rows) {
        char whose[80] = "";
        if (d->pool)
            snprintf(whose, sizeof whose, " as the share of rank %d of %d", d->pool->rank, d->pool->world);
        return pst_err_set(
            err, PST_EINVAL, PST_CLASS_DATA, "learner", 0,
            "%zu records are too few to train on%s (%lld could not be read%s%s, %lld were dropped%s%s); at least 2 are needed%s", d->rows,
            whose, (long long)d->bad, d->bad ? ": " : "", d->why_bad, (long long)d->dropped, d->dropped ? ": " : "", d->why_dropped,
            d->pool ? ", or fewer learners" : "");
    }
    if (d->rows > UINT32_MAX)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "learner", 0, "%zu records are more than the limit of %u", d->rows, UINT32_MAX);
    *ret_train = d->rows - held;
    return 0;
}

int learn_prepare(learn_data *d, const learn_statistics *stats, learn_ready *ret_ready, pst_err *err)
{
    size_t train = 0, k = (size_t)d->columns;
    int rc = count_parts(d, &train, err);
    if (!rc && d->pool)
        rc = pool_present(d, err);
    if (!rc && !stats) /* a generation that goes on has been through this */
        rc = refuse_absent(d, err);
    if (rc < 0)
        return rc;
    learn_ready r = {.rows = d->rows, .train = train, .columns = d->columns};
    r.crc = pst_crc32c(0, d->x, d->rows * k * sizeof(float));
    if (d->y)
        r.crc = pst_crc32c(r.crc, d->y, d->rows * sizeof(float));

    rc = pool_counts(d, &r, err);
    if (rc < 0)
        return rc;
    uint32_t *order = pst_alloc(d->rows * sizeof *order);
    for (size_t i = 0; i < d->rows; i++)
        order[i] = (uint32_t)i;
    learn_rng rng;
    learn_rng_seed(&rng, d->settings->seed, STREAM_SPLIT);
    learn_rng_shuffle(&rng, order, d->rows);
    if (stats)
        learn_statistics_copy(stats, &r.stats);
    else
        rc = take_statistics(d, order, train, &r.stats, err);
    if (rc < 0) {
        learn_statistics_done(&r.stats);
        free(order);
        return rc;
    }

    r.sample_rows = d->rows < SAMPLE_ROWS ? d->rows : SAMPLE_ROWS;
    r.sample = pst_alloc(r.sample_rows * k * sizeof(float));
    r.z = pst_alloc(d->rows * k * sizeof(float));
    for (size_t i = 0; i < d->rows; i++) {
        float *x = d->x + order[i] * k, *z = r.z + i * k;
        for (size_t j = 0; j < k; j++) {
            float v = isnan(x[j]) ? r.stats.mean[j] : x[j];
            z[j] = (v - r.stats.mean[j]) / r.stats.std[j]; /* as the exported graph does it: Sub, Div */
            if (i < r.sample_rows)
                r.sample[i * k + j] = v;
        }
    }
    r.target_width = d->settings->target ? 1 : d->columns;
    r.target = r.z;
    if (d->settings->target) {
        r.target = pst_alloc(d->rows * sizeof(float));
        for (size_t i = 0; i < d->rows; i++)
            r.target[i] = (d->y[order[i]] - r.stats.target_mean) / r.stats.target_std;
    }
    free(order);
    free(d->x);
    free(d->y);
    free(d->part);
    d->x = d->y = NULL;
    d->part = NULL;
    d->cap = 0;
    *ret_ready = r;
    return 0;
}
