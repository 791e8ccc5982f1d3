/* binding_run.c - rows into the model's memory, runs, scores and labels out.
 *
 * Rows are kept in the model's own element type, one matrix per input, so that a run hands the plan its memory without a copy. A model whose
 * batch dimension is fixed (exported without a free one) is run in chunks of that size, the last one padded with zeros. One that draws random numbers is run a record at a time, always in the same place: it draws
 * the same in each run, so that a record's score does not depend on its batch, and a replay gives it again. */
#include "inference/core/binding_priv.h"

#include "engine/device_of.h"
#include "inference/core/model_run.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ------------------------------------------------------------------------------------------------------------------ */

/* Whole numbers: rounded towards zero and kept inside the type's range, NaN becomes 0. */
static double within(double x, double lo, double hi)
{
    if (isnan(x))
        return 0;
    double least = x > lo ? x : lo;
    return least > hi ? hi : least;
}

#define BEYOND_FLOAT 0x1.ffffffp127 /* from here on a double becomes an infinite float */

/* Is this finite number outside of what the type holds? */
static bool beyond(pst_dtype t, double x)
{
    switch (t) {
    case PST_F32: return fabs(x) >= BEYOND_FLOAT && fabs(x) <= DBL_MAX;
    case PST_I8: return x < -128 || x > 127;
    case PST_U8: return x < 0 || x > 255;
    case PST_I16: return x < -32768 || x > 32767;
    case PST_U16: return x < 0 || x > 65535;
    case PST_I32: return x < -2147483648.0 || x > 2147483647.0;
    case PST_U32: return x < 0 || x > 4294967295.0;
    case PST_I64: return x < -9223372036854775808.0 || x >= 9223372036854775808.0;
    case PST_U64: return x < 0 || x >= 18446744073709551616.0;
    default: return false;
    }
}

/* True: something is beyond. */
static bool store(pst_dtype t, void *to, const double *x, size_t n)
{
    unsigned odd = 0;
    switch (t) {
#define STORE(TAG, type, lo, hi)                           \
    case TAG: {                                            \
        type *d = to;                                      \
        for (size_t i = 0; i < n; i++) {                   \
            d[i] = (type)within(x[i], lo, hi);             \
            odd |= (unsigned)(x[i] < (lo) || x[i] > (hi)); \
        }                                                  \
        break;                                             \
    }
    case PST_F32: {
        float *d = to;
        for (size_t i = 0; i < n; i++) {
            d[i] = (float)x[i];
            odd |= (unsigned)(fabs(x[i]) >= BEYOND_FLOAT);
        }
        break;
    }
    case PST_F64:
        memcpy(to, x, n * sizeof(double));
        break;
        STORE(PST_I8, int8_t, -128, 127)
        STORE(PST_U8, uint8_t, 0, 255)
        STORE(PST_I16, int16_t, -32768, 32767)
        STORE(PST_U16, uint16_t, 0, 65535)
        STORE(PST_I32, int32_t, -2147483648.0, 2147483647.0)
        STORE(PST_U32, uint32_t, 0, 4294967295.0)
        STORE(PST_I64, int64_t, -9223372036854775808.0, 9223372036854774784.0)
        STORE(PST_U64, uint64_t, 0, 18446744073709549568.0)
#undef STORE
    case PST_BOOL: {
        uint8_t *d = to;
        for (size_t i = 0; i < n; i++)
            d[i] = x[i] != 0;
        break;
    }
    case PST_STR: break; /* pst_binding_put_text */
    default: PST_ASSERT(false);
    }
    return odd;
}

void score_binding_alloc_rows(const pst_binding *b, score_binding_input *in)
{
    in->rows = pst_alloc(b->rows_max * in->width * in->elem + 64);
    if (in->info->dtype == PST_STR)
        in->texts = pst_alloc((b->rows_max * in->width + 1) * sizeof(*in->texts));
}

int pst_binding_set_width(pst_binding *b, size_t width, pst_err *err)
{
    if (b->width && b->width != width)
        return score_binding_refuse(err, b, "its input has %zu slots, these records fill %zu", b->width, width);
    if (b->width || !width)
        return 0;
    score_binding_input *in = &b->inputs[0];
    if (b->rows_max * width * in->elem > ((size_t)1 << 30))
        return score_binding_refuse(err, b, "%zu records of %zu slots are more than 1 GiB a batch; set batching.count lower", b->rows_max,
                                    width);
    in->width = width;
    score_binding_alloc_rows(b, in);
    b->padded = b->fixed_rows ? pst_alloc(b->fixed_rows * width * in->elem + 64) : NULL;
    b->width = width;
    return 0;
}

size_t pst_binding_put(pst_binding *b, size_t r, const double *x)
{
    PST_ASSERT(r < b->rows_max && b->width > 0);
    size_t first = b->width;
    for (size_t k = 0; k < b->n_inputs; k++) {
        score_binding_input *in = &b->inputs[k];
        bool odd = store(in->info->dtype, in->rows + r * in->width * in->elem, x + in->at, in->width);
        for (size_t i = 0; odd && i < in->width && first == b->width; i++)
            if (beyond(in->info->dtype, x[in->at + i]))
                first = in->at + i;
    }
    return first;
}

int pst_binding_put_text(pst_binding *b, size_t r, size_t slot, pst_slice text, pst_err *err)
{
    size_t k = 0;
    while (k + 1 < b->n_inputs && slot >= b->inputs[k].at + b->inputs[k].width)
        k++;
    score_binding_input *in = &b->inputs[k];
    PST_ASSERT(r < b->rows_max && in->texts && slot >= in->at && slot < in->at + in->width);
    if (text.len > PST_FEATURE_TEXT_MAX)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "features", 0, "the text for input %s has %zu bytes, the limit is %u",
                           in->info->name, text.len, PST_FEATURE_TEXT_MAX);
    size_t at = r * in->width + (slot - in->at);
    score_text_slot *to = &in->texts[at];
    if (to->cap <= text.len) {
        to->cap = (text.len + 32) & ~(size_t)31;
        to->text = pst_realloc(to->text, to->cap);
    }
    if (text.len)
        memcpy(to->text, text.data, text.len);
    to->text[text.len] = 0;
    ((const char **)(void *)in->rows)[at] = to->text;
    return 0;
}

/* ---- running --------------------------------------------------------------------------------------------------------------- */

/* Element i of a tensor as double. */
static void load(const pst_tensor *t, size_t from, size_t n, double *ret)
{
#define LOAD(TAG, type)                               \
    case TAG: {                                       \
        const type *s = (const type *)t->data + from; \
        for (size_t i = 0; i < n; i++)                \
            ret[i] = (double)s[i];                    \
        break;                                        \
    }
    switch (t->dtype) {
        LOAD(PST_F32, float)
        LOAD(PST_F64, double)
        LOAD(PST_I8, int8_t)
        LOAD(PST_U8, uint8_t)
        LOAD(PST_BOOL, uint8_t)
        LOAD(PST_I16, int16_t)
        LOAD(PST_U16, uint16_t)
        LOAD(PST_I32, int32_t)
        LOAD(PST_U32, uint32_t)
        LOAD(PST_I64, int64_t)
        LOAD(PST_U64, uint64_t)
    default:
        for (size_t i = 0; i < n; i++)
            ret[i] = NAN;
    }
#undef LOAD
}

static size_t count(const pst_tensor *t)
{
    size_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= (size_t)t->dims[d];
    return n;
}

static int per_row(const pst_binding *b, size_t out, size_t rows, size_t *ret, pst_err *err)
{
    const pst_tensor *t = &b->tout[out];
    size_t n = count(t);
    if (n % rows || n == 0)
        return score_binding_refuse(err, b, "output %s has %zu elements for %zu records; the model does not score records one by one",
                                    b->info->outputs[out].name, n, rows);
    *ret = n / rows;
    return 0;
}

static int widen(pst_binding *b, size_t k, pst_err *err)
{
    if (k == b->out_width)
        return 0;
    if (b->out_width) /* rows of earlier runs of this batch would change their meaning */
        return score_binding_refuse(err, b, "it gave %zu scores a record and now gives %zu", b->out_width, k);
    if (k * b->rows_max > ((size_t)1 << 27))
        return score_binding_refuse(err, b, "%zu scores a record are more than a batch of %zu records may hold; set batching.count lower",
                                    k, b->rows_max);
    b->scores = pst_alloc(b->rows_max * k * sizeof(double));
    b->out_width = k;
    return 0;
}

static void take_label(pst_binding *b, const pst_tensor *labels, size_t i, size_t row)
{
    char *to = b->labels[row];
    if (labels && labels->dtype == PST_STR) {
        snprintf(to, PST_LABEL_BYTES, "%s", ((const char *const *)labels->data)[i]);
    } else if (labels) {
        double v;
        load(labels, i, 1, &v);
        snprintf(to, PST_LABEL_BYTES, "%.0f", v);
    } else {
        const double *s = b->scores + row * b->out_width;
        size_t best = 0;
        for (size_t j = 1; j < b->out_width; j++)
            if (s[j] > s[best])
                best = j;
        if (b->out_width == 1) /* one probability: of class 1 */
            best = s[0] >= (b->has_threshold ? b->threshold : 0.5);
        const char *name = json_string_value(json_array_get(b->classes, best));
        if (name)
            snprintf(to, PST_LABEL_BYTES, "%s", name);
        else
            snprintf(to, PST_LABEL_BYTES, "%zu", best);
    }
}

/* Mean squared difference between what the model was given and what it gave back. */
static void reconstruction(pst_binding *b, const pst_tensor *out, size_t rows, size_t row)
{
    const score_binding_input *in = &b->inputs[0];
    size_t w = in->width;
    if (in->info->dtype == PST_F32 && out->dtype == PST_F32) {
        const float *x = (const float *)in->rows + row * w, *y = out->data;
        for (size_t r = 0; r < rows; r++, x += w, y += w) {
            double sum = 0;
            for (size_t i = 0; i < w; i++) {
                double d = (double)x[i] - (double)y[i];
                sum += d * d;
            }
            b->scores[row + r] = sum / (double)w;
        }
        return;
    }
    double *x = pst_binding_scratch(b, w);
    if (!b->target)
        b->target = pst_alloc(w * sizeof(double));
    pst_tensor seen = {.dtype = in->info->dtype, .data = in->rows};
    for (size_t r = 0; r < rows; r++) {
        double sum = 0;
        load(&seen, (row + r) * w, w, x);
        load(out, r * w, w, b->target);
        for (size_t i = 0; i < w; i++)
            sum += (x[i] - b->target[i]) * (x[i] - b->target[i]);
        b->scores[row + r] = sum / (double)w;
    }
}

/* rows results of the plan → scores of rows [row, row + rows). given ≥ rows: with padding. */
static int take_scores(pst_binding *b, size_t given, size_t rows, size_t row, pst_err *err)
{
    size_t last = b->info->n_outputs - 1, k = 0, l = 0;
    int rc;
    if (b->error_out >= 0) {
        if ((rc = per_row(b, (size_t)b->error_out, given, &k, err)) < 0 || (rc = widen(b, k, err)) < 0)
            return rc;
        if (k != 1)
            return score_binding_refuse(err, b, "its error output gives %zu numbers a record", k);
        load(&b->tout[b->error_out], 0, rows, b->scores + row);
        return 0;
    }
    if (b->type == PST_SCORE_RECONSTRUCTION) {
        size_t out = b->info->n_outputs;
        while (out-- > 0) {
            if ((rc = per_row(b, out, given, &k, err)) < 0)
                return rc;
            if (k == b->inputs[0].width && score_binding_is_float(b->tout[out].dtype))
                break;
        }
        if (out == SIZE_MAX) {
            score_binding_refuse(err, b,
                                 "reconstruction_error needs an output as wide as the input (%zu); there is none; use score: {type: raw}",
                                 b->inputs[0].width);
            if (err)
                err->code = PST_EINCOMPAT;
            return PST_EINCOMPAT;
        }
        if ((rc = widen(b, 1, err)) < 0)
            return rc;
        reconstruction(b, &b->tout[out], rows, row);
        return 0;
    }
    if ((rc = per_row(b, last, given, &k, err)) < 0 || (rc = widen(b, k, err)) < 0)
        return rc;
    load(&b->tout[last], 0, rows * k, b->scores + row * k);
    if (b->type != PST_SCORE_CLASS)
        return 0;
    const pst_tensor *labels = b->label_out >= 0 ? &b->tout[b->label_out] : NULL;
    rc = labels ? per_row(b, (size_t)b->label_out, given, &l, err) : 0;
    if (rc < 0)
        return rc;
    if (labels && l != 1)
        return score_binding_refuse(err, b, "its label output gives %zu labels a record", l);
    for (size_t r = 0; r < rows; r++)
        take_label(b, labels, r, row + r);
    return 0;
}

static int run_chunk(pst_binding *b, size_t from, size_t rows, pst_err *err)
{
    size_t given = b->fixed_rows ? b->fixed_rows : rows;
    char *pad = b->padded;
    for (size_t k = 0; k < b->n_inputs; k++) {
        const score_binding_input *in = &b->inputs[k];
        const pst_value_info *v = in->info;
        pst_tensor *t = &b->tin[k];
        *t = (pst_tensor){.dtype = v->dtype, .rank = v->rank < 0 ? 2 : v->rank, .data = in->rows + from * in->width * in->elem};
        t->dims[0] = (int64_t)given;
        for (int d = 1; d < t->rank; d++)
            t->dims[d] = v->rank < 0 || v->dims[d] < 0 ? (int64_t)in->width : v->dims[d];
        if (given > rows) {
            size_t bytes = rows * in->width * in->elem, all = given * in->width * in->elem;
            memcpy(pad, t->data, bytes);
            memset(pad + bytes, 0, all - bytes);
            for (size_t i = rows * in->width; in->texts && i < given * in->width; i++)
                ((const char **)(void *)pad)[i] = "";
            t->data = pad;
            pad += all;
        }
    }
    int rc = pst_plan_run(b->plan, b->tin, b->n_inputs, b->tout, b->info->n_outputs, err);
    if (rc == 0)
        memset(b->ran_on + from, pst_plan_ran_on(b->plan), rows);
    return rc < 0 ? rc : take_scores(b, given, rows, from, err);
}

int pst_binding_run(pst_binding *b, size_t from, size_t to, pst_err *err)
{
    PST_ASSERT(from <= to && to <= b->rows_max);
    size_t most = 1; /* what is drawn begins anew with each record */
    if (!b->info->draws)
        most = b->fixed_rows ? b->fixed_rows : b->rows_max;
    int rc = 0;
    while (rc == 0 && from < to) {
        size_t rows = to - from < most ? to - from : most;
        rc = run_chunk(b, from, rows, err);
        from += rows;
    }
    return rc;
}

void pst_binding_limit(pst_binding *b, int ms_max)
{
    const pst_run_limits run = score_model_run_limits(ms_max);
    pst_plan_limit(b->plan, &run, NULL);
}

int pst_binding_probe(pst_binding *b, pst_err *err)
{
    pst_err why = {0};
    bool ready = b->width && b->rows_max;
    for (size_t k = 0; k < b->n_inputs; k++)
        ready &= b->inputs[k].rows && !b->inputs[k].texts;
    if (!ready)
        return 0;
    double *zeros = pst_alloc(b->width * sizeof(*zeros));
    pst_binding_put(b, 0, zeros);
    free(zeros);
    pst_binding_limit(b, PST_MODEL_PROBE_MS);
    int rc = pst_binding_run(b, 0, 1, &why);
    pst_binding_limit(b, PST_MODEL_RUN_MS);
    if (rc == PST_EINCOMPAT) { /* whatever is in a row, this model's output does not make such a score */
        pst_err_set(err, rc, why.cls, why.origin, 0, "%s", why.text);
        return rc;
    }
    if (rc != PST_ETIMEDOUT && rc != PST_ELIMIT && rc != PST_ESTOPPED)
        return 0;
    rc = rc == PST_ETIMEDOUT ? PST_ELIMIT : rc; /* nobody waited in vain: the model is at fault */
    pst_err_set(err, rc, why.cls, why.origin, 0, "%s", why.text);
    pst_err_prefix(err, "model %s, one row of zeros", b->name);
    return rc;
}

size_t pst_binding_score(const pst_binding *b, size_t r, const double **ret_scores, const char **ret_label)
{
    *ret_scores = b->scores + r * b->out_width;
    *ret_label = b->has_labels ? b->labels[r] : NULL;
    return b->out_width;
}

void pst_binding_backend(const pst_binding *b, size_t r, char ret[PST_BACKEND_BYTES])
{
    PST_ASSERT(r < b->rows_max);
    if (b->ran_on[r] < 0)
        memcpy(ret, "cpu", sizeof "cpu");
    else
        snprintf(ret, PST_BACKEND_BYTES, "cuda:%d", b->ran_on[r]);
}
