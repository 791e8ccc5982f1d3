/* cuda_backend.c - devices as a backend: models of which one step, a tree ensemble or a network of dense layers, is a device's (cover.c), and all others
 * are nodes that the host computes in passing.
 *
 *     submit   the host's steps before that one, rows to the device, kernels, results back: queued        (lane.c)
 *     wait     the step asks for what the device has (plan.h, device) and does the rest as always, and so do the steps behind it
 *
 * The plan is the CPU's in all but what that step is given, so that the CPU takes over between two runs, or in one, by no longer asking. Sums of trees
 * are equal bit for bit; a network's results are within what net.h states. Nobody gets a device unasked: the backend is "cuda", "cuda:N", or "auto", which takes
 * it where the estimate and then a measured run say that it is quicker. Before a plan is used its device is held against the CPU (prove.c). */
#include "engine/cuda/cuda_backend.h"

#include "common/base/clock.h"
#include "engine/cuda/cover.h"
#include "engine/cuda/prove.h"
#include "engine/estimate.h"
#include "engine/made_up.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 3, KERNEL_BYTES = 200 };
enum {
    ROWS_MOST = 4096,
    ROWS_LITTLE = 256,
    MEASURE_NS = 20000000
}; /* auto: the largest run that is looked at, and what it may cost the CPU */

typedef struct on_device {
    eng_cuda_lane lane;
    eng_cuda_task task;
    bool ready;         /* the lane was proven; else it is to be made anew, on another device */
    size_t at;          /* step of the task */
    int64_t rows_least; /* runs of fewer rows are quicker on the CPU; 0 = the device has all */
    uint8_t *has;       /* trees, by target: some leaf has a weight for it */
    char *kernel;       /* what explain says, KERNEL_BYTES */
} on_device;

/* ---- which models ---- */

static bool asked_for(const pst_plan *p)
{
    return p->device_may || (p->opts.backend && !strncmp(p->opts.backend, "cuda", 4));
}

/* N of cuda:N, -1 = any. */
static int number_of(const pst_plan *p)
{
    const char *colon = p->opts.backend ? strchr(p->opts.backend, ':') : NULL;
    return colon ? atoi(colon + 1) : -1;
}

/* By the file alone: whether there is a device is prepare's to ask, so that nobody opens a driver for a model that the CPU is quicker with. */
static int supports(const pst_plan *p, pst_err *err)
{
    if (!asked_for(p))
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "cuda", 0, "no device was asked for");
    return eng_cuda_covers_file(p->m, err);
}

/* Rows over PCI Express and back, and 20 µs a call for queueing and waiting: published figures of others (a launch 4 to 6 µs, pinned copies 12 GB/s on
 * version 3; products at a quarter of the 19.5 TFLOP/s that an A100 has in float32). What stands beside trees the host computes, what stands in a network
 * its kernels. None of ours is measured; what prepare measures decides. */
static int cost(const pst_plan *p, int64_t rows, double *ret_ns, pst_err *err)
{
    const double call_ns = 20000, byte_ns = 1.0 / 12, visit_ns = 0.005, dense_ns = 1.0 / 5000, host_ns = 0.2;
    eng_work w;
    int rc = eng_estimate(p, rows, &w, err);
    if (rc == 0)
        *ret_ns =
            call_ns + (w.in + w.out) * byte_ns + w.visits * visit_ns + w.dense * dense_ns + w.other * (w.visits > 0 ? host_ns : visit_ns);
    return rc;
}

/* ---- runs ---- */

typedef struct running {
    pst_plan *p;
    const eng_val *in;
    size_t n_out;
} running;

/* Input that the operator refuses, or no rows at all, is left to it. */
static int give_rows(pst_plan *p, const eng_val *v, pst_err *err)
{
    on_device *d = p->of_backend;
    const eng_cuda_task *t = &d->lane.task;
    const pst_tensor *x = v && v->kind == ENG_VAL_TENSOR ? &v->t : NULL;
    p->device.of = NULL;
    if (!x || !eng_cuda_rows_in(x))
        return 0;
    int rc = eng_cuda_judge_type(t, &p->progs[0].steps[d->at], x, err);
    if (rc < 0) {
        err->cls = PST_CLASS_RETRY; /* known by now only: no reason to end a stream, which waits for another model or another word */
        return rc;
    }
    if (!eng_cuda_rows_fit(t, x) || eng_cuda_rows_in(x) < d->rows_least)
        return 0;
    p->device.of = t->of;
    d->lane.watch = &p->watch;
    return eng_cuda_lane_begin(&d->lane, x->data, eng_cuda_rows_in(x), eng_cuda_cols_in(x), err);
}

static int sums(pst_plan *p, const pst_tensor *x, double *ret_sums, uint8_t *ret_has, pst_err *err)
{
    on_device *d = p->of_backend;
    const eng_forest *f = d->lane.task.of;
    size_t nt = (size_t)f->n_targets;
    for (int64_t r = 0; ret_has && r < eng_cuda_rows_in(x); r++)
        memcpy(ret_has + (size_t)r * nt, d->has, nt);
    return eng_cuda_lane_end(&d->lane, x->data, eng_cuda_rows_in(x), eng_cuda_cols_in(x), ret_sums, err);
}

static int results(pst_plan *p, const pst_tensor *x, float *ret, pst_err *err)
{
    on_device *d = p->of_backend;
    return eng_cuda_lane_end(&d->lane, x->data, x->dims[0], x->dims[1], ret, err);
}

static int make_lane(pst_plan *p, eng_cuda_context *on, pst_err *err);

/* Whoever asked for any device gets another one for one that is lost, from the next run on. */
static int move_on(pst_plan *p, pst_err *err)
{
    on_device *d = p->of_backend;
    eng_cuda_context *on;
    if (d->ready && !(eng_cuda_is_lost(d->lane.on) && number_of(p) < 0))
        return 0;
    int rc = eng_cuda_context_open(number_of(p), &on, err);
    return rc == 0 ? make_lane(p, on, err) : rc;
}

static int submit_body(void *arg, pst_err *err)
{
    const running *r = arg;
    pst_plan *p = r->p;
    const on_device *d = p->of_backend;
    eng_watch_begin(&p->watch);
    int rc = p->device_may ? 0 : move_on(p, err); /* under auto the CPU takes over */
    eng_cpu_begin(p, r->in);                      /* what moving on has proven leaves no values behind */
    if (rc == 0)
        rc = eng_prog_run_part(p, &p->progs[0], 0, d->at, err);
    return rc == 0 ? give_rows(p, p->progs[0].steps[d->at].in[0], err) : rc;
}

static int wait_body(void *arg, pst_err *err)
{
    const running *r = arg;
    pst_plan *p = r->p;
    const on_device *d = p->of_backend;
    int rc = eng_prog_run_part(p, &p->progs[0], d->at, p->progs[0].n_steps, err);
    return rc == 0 ? eng_cpu_own_results(p, r->n_out, err) : rc;
}

/* Where the CPU may take over, what a device cannot do is not the end. */
static int unless_cpu(pst_plan *p, int rc, pst_err *err)
{
    if (rc == 0 || !p->device_may || strcmp(err->origin, "cuda") != 0)
        return rc;
    p->device_left = err->code;
    return err->code = PST_EUNSUPPORTED;
}

static int submit(pst_plan *p, const eng_val *in, size_t n_in, size_t n_out, pst_err *err)
{
    running r = {.p = p, .in = in};
    return unless_cpu(p, eng_cpu_within(p, submit_body, &r, err), err);
}

static int wait(pst_plan *p, const eng_val **ret_out, size_t n_out, pst_err *err)
{
    running r = {.p = p, .n_out = n_out};
    int rc = eng_cpu_within(p, wait_body, &r, err);
    return rc == 0 ? eng_cpu_backend.wait(p, ret_out, n_out, err) : unless_cpu(p, rc, err);
}

/* ---- making a plan ---- */

static void mark_targets(on_device *d, const eng_forest *f)
{
    d->has = eng_heap_alloc((size_t)f->n_targets);
    for (int32_t i = 0; i < f->n_leaves; i++)
        for (int32_t k = 0; k < f->leaves[i].n; k++)
            d->has[f->weights[f->leaves[i].at + k].target] = 1;
}

/* For explain. */
static void say_kernel(on_device *d)
{
    const eng_cuda_head *h = &d->lane.image->head;
    const char *name = d->lane.on->name;
    if (!eng_cuda_task_is_net(&d->task)) {
        snprintf(d->kernel, KERNEL_BYTES, "%d trees on %.100s, %d rows a block", h->forest.n_trees, name, h->forest.rows);
        return;
    }
    const eng_cuda_net_step *n = d->task.of;
    int len = snprintf(d->kernel, KERNEL_BYTES, "%u dense layer%s on %.100s, ", n->n_layers, n->n_layers == 1 ? "" : "s", name);
    if (h->net.rows)
        snprintf(d->kernel + len, KERNEL_BYTES - (size_t)len, "one kernel, %u rows a block", h->net.rows);
    else
        snprintf(d->kernel + len, KERNEL_BYTES - (size_t)len, "%u kernels", h->net.n_ops);
}

/* On this device, in the place of whatever there was. */
static int make_lane(pst_plan *p, eng_cuda_context *on, pst_err *err)
{
    on_device *d = p->of_backend;
    eng_cuda_lane *l = &d->lane;
    d->ready = false;
    eng_cuda_lane_done(l);
    l->task = d->task;
    l->on = on;
    l->watch = &p->watch;
    int rc = eng_cuda_enter(on, err);
    if (rc == 0)
        rc = eng_cuda_lane_streams(l, err);
    if (rc == 0)
        rc = eng_cuda_image_of(p, l, err);
    if (rc == 0)
        rc = eng_cuda_lane_buffers(l, err);
    if (rc == 0)
        rc = eng_cuda_prove(p, l, err);
    if (rc < 0)
        return rc;
    d->ready = true;
    say_kernel(d);
    snprintf(p->computes, sizeof p->computes, "cuda:%d", on->number);
    return 0;
}

typedef struct making {
    pst_plan *p;
    eng_cuda_context *on;
    eng_cuda_task task;
    size_t at;
} making;

static int find(void *arg, pst_err *err)
{
    making *k = arg;
    return eng_cuda_find_task(k->p, &k->task, &k->at, err);
}

/* What is made is the plan's to give back from the first line on, since an allocation that fails unwinds past everything here. */
static int put_on_device(void *arg, pst_err *err)
{
    const making *k = arg;
    pst_plan *p = k->p;
    eng_step *s = &p->progs[0].steps[k->at];
    on_device *d = eng_heap_alloc(sizeof *d);
    eng_plan_own(p, &d->lane, eng_cuda_lane_done);
    d->task = k->task;
    d->at = k->at;
    if (!eng_cuda_task_is_net(&k->task))
        mark_targets(d, k->task.of);
    d->kernel = eng_zone_alloc(&p->zone, KERNEL_BYTES);
    p->of_backend = d;
    int rc = make_lane(p, k->on, err);
    if (rc < 0)
        return rc;
    s->kernel = d->kernel;
    s->note = NULL;
    p->device.sums = sums;
    p->device.results = results;
    return 0;
}

/* ---- runs on made-up rows ---- */

typedef struct made_up {
    pst_tensor *in;
    eng_val *vals;
} made_up;

/* rows: of an input whose number of rows is free. */
static int make_up(const pst_plan *p, int64_t rows, made_up *ret, pst_err *err)
{
    const pst_model *m = p->m;
    ret->in = eng_heap_array(m->info.n_inputs + 1, sizeof *ret->in);
    ret->vals = eng_heap_array(m->info.n_inputs + 1, sizeof *ret->vals);
    int rc = eng_made_up_inputs(m, rows, 1, ret->in, err);
    for (size_t i = 0; i < m->info.n_inputs; i++)
        ret->vals[i] = (eng_val){.kind = ENG_VAL_TENSOR, .t = ret->in[i]};
    return rc;
}

static void unmake(pst_plan *p, made_up *m)
{
    eng_prog_clear(p, &p->progs[0]);
    for (size_t i = 0; i < p->m->info.n_inputs; i++)
        eng_heap_free(m->in[i].data);
    eng_heap_free(m->vals);
    eng_heap_free(m->in);
}

/* The type of what a step makes follows from the types of the inputs: a run of one row up to the task's shows what it is going to get. Where none
 * can be made up, or the model refuses it, the first batch will tell. */
static int look_at_types(void *arg, pst_err *err)
{
    const making *k = arg;
    pst_plan *p = k->p;
    const eng_prog *g = &p->progs[0];
    made_up m;
    int rc = 0;
    if (make_up(p, 1, &m, &(pst_err){0}) == 0) {
        eng_cpu_begin(p, m.vals);
        if (eng_prog_run_part(p, g, 0, k->at, &(pst_err){0}) == 0) {
            const eng_val *v = g->steps[k->at].in[0];
            rc = v && v->kind == ENG_VAL_TENSOR ? eng_cuda_judge_type(&k->task, &g->steps[k->at], &v->t, err) : 0;
        }
    }
    unmake(p, &m);
    return rc;
}

/* ---- auto: measured ---- */

/* The quickest of a few runs. */
static int time_runs(pst_plan *p, const eng_backend *b, const eng_val *in, double *ret_ns, pst_err *err)
{
    int rc = 0;
    *ret_ns = INFINITY;
    p->device.of = NULL;
    for (int i = 0; i < TRIES && rc == 0; i++) {
        int64_t from = pst_mono_ns();
        rc = b->submit(p, in, p->m->info.n_inputs, p->m->info.n_outputs, err);
        if (rc == 0)
            rc = b->wait(p, p->io_out, p->m->info.n_outputs, err);
        *ret_ns = fmin(*ret_ns, (double)(pst_mono_ns() - from));
    }
    return rc;
}

/* A run of so many rows on either. */
static int race(pst_plan *p, int64_t rows, double *ret_here, double *ret_there, pst_err *err)
{
    made_up m;
    int rc = make_up(p, rows, &m, err);
    if (rc == 0)
        rc = time_runs(p, &eng_cpu_backend, m.vals, ret_here, err);
    if (rc == 0)
        rc = time_runs(p, &eng_cuda_backend, m.vals, ret_there, err);
    unmake(p, &m);
    return rc;
}

static int by_estimate(pst_plan *p, int64_t rows, double *ret_here, double *ret_there, pst_err *err)
{
    int rc = eng_cpu_backend.cost(p, rows, ret_here, err);
    return rc == 0 ? cost(p, rows, ret_there, err) : rc;
}

static bool any_rows(const pst_plan *p)
{
    const pst_value_info *in = p->m->info.inputs;
    return p->m->info.n_inputs && in->rank > 0 && in->dims[0] < 0;
}

int64_t eng_cuda_rows_most(const pst_plan *p)
{
    if (!any_rows(p))
        return eng_estimate_rows(p->m);
    int64_t rows = p->opts.rows_most && p->opts.rows_most < ROWS_MOST ? (int64_t)p->opts.rows_most : ROWS_MOST;
    double ns;
    while (rows > ROWS_LITTLE && eng_cpu_backend.cost(p, rows, &ns, &(pst_err){0}) == 0 && ns > MEASURE_NS)
        rows /= 2;
    return rows;
}

/* From how many rows on the device is quicker: the load decides run by run, so it is not asked for here. From the largest run down by halves, until the CPU wins.
 * Where rows cannot be made up, or the model refuses those that were, the estimate stands. */
static int measure(void *arg, pst_err *err)
{
    pst_plan *p = arg;
    on_device *d = p->of_backend;
    pst_err why = {0};
    bool any = any_rows(p);
    int64_t most = eng_cuda_rows_most(p), least = 0;
    double here = 0, there = 0, most_here = 0, most_there = 0;
    int rc = race(p, most, &most_here, &most_there, &why);
    if (rc < 0 && !strcmp(why.origin, "cuda")) {
        *err = why;
        return rc;
    }
    int (*look)(pst_plan *, int64_t, double *, double *, pst_err *) = rc == 0 ? race : by_estimate;
    const char *how = rc == 0 ? "measured" : "estimated";
    if (rc < 0 && (rc = by_estimate(p, most, &most_here, &most_there, err)) < 0)
        return rc;
    if (most_there < most_here)
        least = most;
    for (int64_t rows = most / 2; least && any && rows > 0; rows /= 2) {
        pst_err_clear(&why);
        rc = look(p, rows, &here, &there, &why);
        if (rc < 0 && !strcmp(why.origin, "cuda")) {
            *err = why;
            return rc;
        }
        if (rc < 0 || there >= here)
            break;
        least = rows;
    }
    d->rows_least = any ? least : 0;
    snprintf(p->computes_why, sizeof p->computes_why, "%s on %" PRId64 " rows: %.0f µs on %s, %.0f µs on the CPU", how, most,
             most_there / 1e3, d->lane.on->name, most_here / 1e3);
    if (!least)
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "cuda", 0, "%s", p->computes_why);
    size_t n = strlen(p->computes_why);
    if (d->rows_least > 1)
        snprintf(p->computes_why + n, sizeof p->computes_why - n,
                 "; batches of fewer than %" PRId64 " are quicker on the CPU, and go there", d->rows_least);
    return 0;
}

static int prepare(pst_plan *p, pst_err *err)
{
    making k = {.p = p};
    int rc = eng_cuda_context_open(number_of(p), &k.on, err);
    if (rc == 0)
        rc = eng_cpu_backend.prepare(p, err);
    if (rc == 0)
        rc = eng_cpu_within(p, find, &k, err);
    if (rc == 0)
        rc = eng_cpu_within(p, look_at_types, &k, err);
    if (rc == 0)
        rc = eng_cpu_within(p, put_on_device, &k, err);
    if (rc == 0 && p->device_may)
        rc = eng_heap_run(&p->heap, measure, p, err);
    return unless_cpu(p, rc, err);
}

const eng_backend eng_cuda_backend = {
    .name = "cuda", .supports = supports, .cost = cost, .prepare = prepare, .submit = submit, .wait = wait};
