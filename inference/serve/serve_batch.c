/* serve_batch.c - one run for several requests, rows behind each other. Whether a model takes a row by itself cannot be told from its file (a free first
 * dimension may be time, or be averaged over), so the first runs are made both ways and compared, on inputs that differ; a model that fails this once
 * is never asked again. A shared run that ends with an error is done again request by request: one client's numbers must not
 * be another's error. */
#include "inference/serve/serve.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDING  1e-4              /* as for devices (engine/cuda/prove.c) */
#define TELLING   1e-2              /* numbers of two requests that differ by less prove nothing: a mean of both would be either of them */
#define KEEP_MOST ((size_t)4 << 20) /* bytes of inputs and outputs: a plan that had more is not kept, since models do not count for it */

/* ---- answers --------------------------------------------------------------------------------------------------------------- */

void serve_answer_error(int status, int retry_after_s, pst_serving_answer *ret, const char *fmt, ...)
{
    va_list ap;
    pst_buf text = {0};
    *ret = (pst_serving_answer){.status = status, .retry_after_s = retry_after_s};
    va_start(ap, fmt);
    pst_buf_vprintf(&text, fmt, ap);
    va_end(ap);
    pst_buf_adds(&ret->body, "{\"error\":");
    pst_json_quote(&ret->body, text.data, text.len);
    pst_buf_adds(&ret->body, "}");
    pst_buf_done(&text);
}

void serve_answer_err(const pst_err *err, pst_serving_answer *ret)
{
    int status = 500;
    switch (err->code) {
    case PST_EINVAL:
    case PST_EPARSE: status = 400; break;
    case PST_ENOTFOUND: status = 404; break;
    case PST_ELIMIT: status = strcmp(err->origin, "request") && strcmp(err->origin, "answer") ? 422 : 413; break;
    case PST_EUNSUPPORTED: status = 422; break;
    case PST_ETIMEDOUT: status = 504; break;
    case PST_ENOMEM:
    case PST_ESTOPPED: status = 503; break;
    default: break;
    }
    if (err->cls == PST_CLASS_RETRY && status != 504)
        status = 503;
    serve_answer_error(status, status == 503 ? 2 : 0, ret, "%s", err->text);
}

static void answer_err(const serve_run *run, serve_job *job, const pst_err *err)
{
    pst_serving_answer a;
    serve_answer_err(err, &a);
    run->answer(run->arg, job, &a);
}

/* from, rows: as oip_result's. */
static void answer_rows(const serve_run *run, serve_job *job, const pst_tensor *out, int64_t from, int64_t rows)
{
    const serve_model *m = run->model;
    pst_serving_answer a = {.status = 200};
    pst_err err = {0};
    const oip_result result = {m->found.name, m->found.version, m->info, out, from, rows};
    if (oip_write(job->request, &result, &a.body, &a.json_len, &a.binary, &err) < 0)
        answer_err(run, job, &err);
    else
        run->answer(run->arg, job, &a);
}

/* ---- runs ------------------------------------------------------------------------------------------------------------------ */

static int plan_of(const serve_run *run, pst_run_limits limits, pst_plan **ret, pst_err *err)
{
    pst_plan **p = &run->model->plans[run->worker];
    int rc = *p ? pst_plan_limit(*p, &limits, err)
                : pst_plan_new(run->model->m, &(pst_plan_opts){.run = &limits, .rows_most = SERVE_ROWS_MAX}, p, err);
    *ret = *p;
    return rc;
}

static size_t tensors_bytes(const pst_tensor *t, size_t n)
{
    size_t all = 0;
    for (size_t i = 0; i < n; i++) {
        size_t one = pst_dtype_size(t[i].dtype);
        for (int d = 0; d < t[i].rank; d++)
            one *= (size_t)t[i].dims[d];
        all += one;
    }
    return all;
}

/* The rest of the latest deadline among them. */
static int compute(const serve_run *run, serve_job *const *jobs, size_t n, const pst_tensor *in, pst_tensor *out, pst_err *err)
{
    serve_model *m = run->model;
    int64_t begin = pst_mono_us(), until = 0;
    for (size_t i = 0; i < n; i++)
        if (jobs[i]->deadline_us > until)
            until = jobs[i]->deadline_us;
    if (until <= begin)
        return pst_err_set(err, PST_ETIMEDOUT, PST_CLASS_DATA, "serve", 0, "the request's time was over before model %s could run",
                           m->found.name);
    pst_run_limits limits = {.ms_max = (uint64_t)(until - begin) / 1000 + 1, .stop = run->stop, .stop_arg = run->stop_arg};
    pst_plan *p = NULL;
    int rc = plan_of(run, limits, &p, err);
    if (rc == 0)
        rc = pst_plan_run(p, in, m->info->n_inputs, out, m->info->n_outputs, err);
    if (rc < 0 || tensors_bytes(in, m->info->n_inputs) + tensors_bytes(out, m->info->n_outputs) > KEEP_MOST)
        m->grown[run->worker] = true; /* a run that failed may have taken what it could */
    pst_metric_observe(m->meters->compute, (double)(pst_mono_us() - begin) / 1e6);
    pst_metric_add(m->meters->runs, 1);
    return rc;
}

static pst_tensor *outputs_new(const serve_model *m)
{
    return pst_alloc((m->info->n_outputs + 1) * sizeof(pst_tensor));
}

static int64_t rows_of(const serve_job *job)
{
    return job->inputs[0].dims[0];
}

static void count_rows(const serve_model *m, serve_job *const *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        pst_metric_add(m->meters->rows, m->info->n_inputs && jobs[i]->inputs[0].rank ? (double)rows_of(jobs[i]) : 1);
}

static void run_alone(const serve_run *run, serve_job *job)
{
    pst_err err = {0};
    pst_tensor *out = outputs_new(run->model);
    count_rows(run->model, &job, 1);
    if (compute(run, &job, 1, job->inputs, out, &err) < 0)
        answer_err(run, job, &err);
    else
        answer_rows(run, job, out, 0, 0);
    free(out);
}

static size_t row_bytes(const pst_tensor *t)
{
    size_t n = pst_dtype_size(t->dtype);
    for (int d = 1; d < t->rank; d++)
        n *= (size_t)t->dims[d];
    return n;
}

/* Inputs of all jobs behind each other; texts are pointers and stay where they are. */
static int compute_together(const serve_run *run, serve_job *const *jobs, size_t n, pst_tensor *out, pst_err *err)
{
    const serve_model *m = run->model;
    pst_tensor *in = pst_alloc(m->info->n_inputs * sizeof *in);
    int64_t rows = 0;
    for (size_t i = 0; i < n; i++)
        rows += rows_of(jobs[i]);
    for (size_t k = 0; k < m->info->n_inputs; k++) {
        size_t row = row_bytes(&jobs[0]->inputs[k]), at = 0;
        in[k] = jobs[0]->inputs[k];
        in[k].dims[0] = rows;
        in[k].data = pst_alloc(row * (size_t)rows + 1);
        for (size_t i = 0; i < n; i++) {
            size_t len = row * (size_t)rows_of(jobs[i]);
            memcpy((char *)in[k].data + at, jobs[i]->inputs[k].data, len);
            at += len;
        }
    }
    int rc = compute(run, jobs, n, in, out, err);
    for (size_t k = 0; rc == 0 && k < m->info->n_outputs; k++)
        if (out[k].rank < 1 || out[k].dims[0] != rows)
            rc = pst_err_set(err, PST_EINCOMPAT, PST_CLASS_DATA, "serve", 0, "output %s does not have a row for each row",
                             m->info->outputs[k].name);
    for (size_t k = 0; k < m->info->n_inputs; k++)
        free(in[k].data);
    free(in);
    return rc;
}

/* ---- trials ---------------------------------------------------------------------------------------------------------------- */

/* What several runs gave: numbers by pieces (one output of one request each), and all else as bytes. */
typedef struct taken {
    pst_buf numbers, pieces, bytes; /* double, size_t, char */
} taken;

static void taken_done(taken *t)
{
    pst_buf_done(&t->numbers);
    pst_buf_done(&t->pieces);
    pst_buf_done(&t->bytes);
}

static void add_numbers(taken *to, const pst_tensor *t, size_t first, size_t n)
{
    for (size_t i = first; i < first + n; i++) {
        double x = t->dtype == PST_F32 ? (double)((const float *)t->data)[i] : ((const double *)t->data)[i];
        pst_buf_add(&to->numbers, &x, sizeof x);
    }
    pst_buf_add(&to->pieces, &n, sizeof n);
}

static void add_rows(taken *to, const serve_model *m, const pst_tensor *out, int64_t from, int64_t rows)
{
    for (size_t k = 0; k < m->info->n_outputs; k++) {
        const pst_tensor *t = &out[k];
        size_t row = row_bytes(t), first = (size_t)from * row, len = (size_t)rows * row, size = pst_dtype_size(t->dtype);
        for (int d = 1; d < t->rank; d++) /* the same numbers in another shape are another answer */
            pst_buf_add(&to->bytes, &t->dims[d], sizeof t->dims[d]);
        if (t->dtype == PST_F32 || t->dtype == PST_F64)
            add_numbers(to, t, first / size, len / size);
        else if (t->dtype != PST_STR)
            pst_buf_add(&to->bytes, (const char *)t->data + first, len);
        for (size_t i = first / size; t->dtype == PST_STR && i < (first + len) / size; i++)
            pst_buf_add(&to->bytes, ((const char *const *)t->data)[i], strlen(((const char *const *)t->data)[i]) + 1);
    }
}

static bool equal(const pst_buf *a, const pst_buf *b)
{
    return a->len == b->len && (!a->len || !memcmp(a->data, b->data, a->len));
}

/* Up to ROUNDING of the largest number of a piece: a product of one row adds up in another order than one of many, here as in the stream path. */
static bool same_numbers(const double *a, const double *b, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(a[i]) && fabs(a[i]) > largest)
            largest = fabs(a[i]);
    for (size_t i = 0; i < n; i++) {
        bool odd = !isfinite(a[i]) || !isfinite(b[i]);
        bool same = odd ? a[i] == b[i] || (isnan(a[i]) && isnan(b[i])) : fabs(a[i] - b[i]) <= ROUNDING * largest;
        if (!same)
            return false;
    }
    return true;
}

static bool same(const taken *a, const taken *b)
{
    if (!equal(&a->bytes, &b->bytes) || !equal(&a->pieces, &b->pieces))
        return false;
    const double *x = (const void *)a->numbers.data, *y = (const void *)b->numbers.data;
    const size_t *pieces = (const void *)a->pieces.data;
    for (size_t i = 0, n = a->pieces.len / sizeof *pieces; i < n; i++) {
        if (!same_numbers(x, y, pieces[i]))
            return false;
        x += pieces[i];
        y += pieces[i];
    }
    return true;
}

/* Equal inputs prove nothing: the mean of equal rows is the row. */
static bool differ(const serve_model *m, serve_job *const *jobs, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < m->info->n_inputs; k++) {
            const pst_tensor *a = &jobs[0]->inputs[k], *b = &jobs[i]->inputs[k];
            size_t row = row_bytes(a);
            if (a->dtype != PST_STR && rows_of(jobs[0]) && memcmp(a->data, b->data, row) != 0)
                return true;
            for (size_t e = 0; a->dtype == PST_STR && e < row / sizeof(char *); e++)
                if (strcmp(((const char *const *)a->data)[e], ((const char *const *)b->data)[e]) != 0)
                    return true;
        }
    return false;
}

/* Do the requests' own numbers differ, in one output at least, by much more than rounding? Models without such outputs: their inputs do. */
static bool telling(const taken *alone, size_t n)
{
    const size_t *pieces = (const void *)alone->pieces.data;
    size_t each = alone->pieces.len / sizeof *pieces / n;
    const double *first = (const void *)alone->numbers.data, *x = first;
    bool differs = !each;
    for (size_t i = 0; i < n && !differs; i++) {
        const double *of_first = first;
        for (size_t k = 0; k < each; k++) {
            size_t len = pieces[i * each + k], least = len < pieces[k] ? len : pieces[k];
            for (size_t e = 0; e < least; e++)
                differs |= fabs(x[e] - of_first[e]) > TELLING * fmax(fabs(x[e]), fabs(of_first[e]));
            x += len;
            of_first += pieces[k];
        }
    }
    return differs;
}

/* Answers come from runs of their own; the shared run is only compared with them. */
static void run_trial(const serve_run *run, serve_job **jobs, size_t n)
{
    serve_model *m = run->model;
    pst_tensor *out = outputs_new(m);
    taken alone = {0}, together = {0};
    pst_err err = {0}, why = {0};
    int rc = compute_together(run, jobs, n, out, &err);
    int64_t from = 0;
    for (size_t i = 0; rc == 0 && i < n; from += rows_of(jobs[i++]))
        add_rows(&together, m, out, from, rows_of(jobs[i]));
    bool shaped = true, all = true;
    for (size_t i = 0; i < n; i++) {
        int one = compute(run, &jobs[i], 1, jobs[i]->inputs, out, &why);
        for (size_t k = 0; one == 0 && k < m->info->n_outputs; k++)
            shaped &= out[k].rank > 0 && out[k].dims[0] == rows_of(jobs[i]);
        if (one == 0 && shaped)
            add_rows(&alone, m, out, 0, rows_of(jobs[i]));
        all &= one == 0;
        count_rows(m, &jobs[i], 1);
        if (one < 0)
            answer_err(run, jobs[i], &why);
        else
            answer_rows(run, jobs[i], out, 0, 0);
        pst_err_clear(&why);
    }
    if (all && rc == 0 && shaped && same(&alone, &together)) {
        m->trials += telling(&alone, n);
    } else if (all && rc != PST_ETIMEDOUT && rc != PST_ESTOPPED) {
        m->mixing = true;
        pst_log(PST_LOG_INFO, "serve", "event=requests_not_batched model=%s version=%d reason=\"%s\"", m->found.name, m->found.version,
                rc < 0 ? err.text : "a row's numbers depend on the rows beside it");
    }
    taken_done(&alone);
    taken_done(&together);
    free(out);
}

/* ---- groups ---------------------------------------------------------------------------------------------------------------- */

static bool may_share(const serve_model *m, const serve_job *job)
{
    for (size_t k = 0; k < m->info->n_inputs; k++)
        if (job->inputs[k].rank < 1 || job->inputs[k].dims[0] < 1 || job->inputs[k].dims[0] != rows_of(job) || !row_bytes(&job->inputs[k]))
            return false;
    return true;
}

static bool fit_together(const serve_model *m, const serve_job *a, const serve_job *b)
{
    for (size_t k = 0; k < m->info->n_inputs; k++) {
        const pst_tensor *x = &a->inputs[k], *y = &b->inputs[k];
        if (x->rank != y->rank || memcmp(&x->dims[1], &y->dims[1], (size_t)(x->rank - 1) * sizeof x->dims[0]) != 0)
            return false;
    }
    return true;
}

static void run_group(const serve_run *run, serve_job **jobs, size_t n)
{
    serve_model *m = run->model;
    pst_err err = {0};
    if (n > 1 && m->trials < SERVE_TRIALS && differ(m, jobs, n)) {
        run_trial(run, jobs, n);
        return;
    }
    if (n > 1 && m->trials >= SERVE_TRIALS && ++m->shared % SERVE_TRIAL_EVERY == 0) {
        size_t some = n < SERVE_TRIAL_MOST ? n : SERVE_TRIAL_MOST;
        run_trial(run, jobs, some);
        jobs += some;
        n -= some;
    }
    if (n > 1 && m->trials >= SERVE_TRIALS && !m->mixing) {
        pst_tensor *out = outputs_new(m);
        int rc = compute_together(run, jobs, n, out, &err);
        int64_t from = 0;
        if (rc == 0)
            count_rows(m, jobs, n);
        for (size_t i = 0; rc == 0 && i < n; i++) {
            int64_t rows = rows_of(jobs[i]);
            answer_rows(run, jobs[i], out, from, rows);
            from += rows;
        }
        free(out);
        if (rc == 0)
            return;
    }
    for (size_t i = 0; i < n; i++)
        run_alone(run, jobs[i]);
}

void serve_batch_run(const serve_run *run, serve_job **jobs, size_t n)
{
    serve_model *m = run->model;
    serve_job *group[SERVE_BATCH_MAX];
    PST_ASSERT(n <= SERVE_BATCH_MAX);
    while (n) {
        size_t in = 1, left = 0;
        group[0] = jobs[0];
        bool shares = m->batches && !m->mixing && may_share(m, jobs[0]);
        int64_t rows = shares ? rows_of(jobs[0]) : 0;
        for (size_t i = 1; i < n; i++) {
            bool joins = shares && may_share(m, jobs[i]) && fit_together(m, jobs[0], jobs[i]) && rows + rows_of(jobs[i]) <= SERVE_ROWS_MAX;
            if (joins)
                rows += rows_of(jobs[i]);
            *(joins ? &group[in++] : &jobs[left++]) = jobs[i];
        }
        run_group(run, group, in);
        n = left;
    }
    if (m->grown[run->worker]) {
        pst_plan_free(m->plans[run->worker]);
        m->plans[run->worker] = NULL;
        m->grown[run->worker] = false;
    }
}
