/* exec.c - running a plan: buffers, values and the step loop; see plan.h and ops/ops.h. */
#include "engine/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX   UINT64_C(200000000)
#define NESTING_MAX 64

/* ---- pool ---- */

static int class_of(size_t bytes, size_t *ret_cap)
{
    int c = 8; /* 256 bytes is the smallest */
    while (((size_t)1 << c) < bytes)
        c++;
    /* quarter steps above a page keep the waste below a fifth on average */
    *ret_cap = (size_t)1 << c;
    return c;
}

pst_blk *pst_blk_new(pst_plan *p, size_t bytes, pst_err *err)
{
    size_t cap;
    if (bytes > p->pool.bytes_max) {
        pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0,
                    "the model needs a value of %zu bytes; at most %zu are allowed (arena_bytes_max)", bytes, p->pool.bytes_max);
        return NULL;
    }
    int c = class_of(bytes, &cap);
    pst_blk *b = p->pool.free[c];
    if (b) {
        p->pool.free[c] = b->next;
    } else {
        if (p->pool.bytes + cap > p->pool.bytes_max) { /* drop what is cached, then give up */
            for (int i = 0; i < 48; i++)
                for (pst_blk *f = p->pool.free[i], *next; f; f = next) {
                    next = f->next;
                    p->pool.bytes -= f->cap;
                    free(f);
                    p->pool.free[i] = next;
                }
            if (p->pool.bytes + cap > p->pool.bytes_max) {
                pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "the model's values need more than %zu bytes (arena_bytes_max)",
                            p->pool.bytes_max);
                return NULL;
            }
        }
        b = aligned_alloc(64, sizeof *b + cap);
        if (!b) {
            pst_err_set(err, PST_ENOMEM, PST_CLASS_RETRY, "onnx", 0, "no memory for a value of %zu bytes", bytes);
            return NULL;
        }
        b->cap = cap;
        p->pool.bytes += cap;
    }
    b->refs = 1;
    b->next = NULL;
    return b;
}

void pst_blk_unref(pst_plan *p, pst_blk *b)
{
    if (!b || --b->refs > 0)
        return;
    size_t cap;
    int c = class_of(b->cap, &cap);
    b->next = p->pool.free[c];
    p->pool.free[c] = b;
}

/* ---- values ---- */

void pst_val_clear(pst_plan *p, pst_val *v)
{
    if (v->kind == PST_VAL_NONE)
        return;
    pst_blk_unref(p, v->blk);
    if (v->seq && --v->seq->refs == 0) {
        for (int64_t i = 0; i < v->seq->n; i++)
            pst_val_clear(p, &v->seq->items[i]);
        free(v->seq->items);
        free(v->seq);
    }
    v->kind = PST_VAL_NONE;
    v->blk = NULL;
    v->seq = NULL;
}

void pst_val_set(pst_plan *p, pst_val *dst, const pst_val *src)
{
    if (dst == src)
        return;
    pst_val copy = *src;
    if (copy.kind == PST_VAL_NONE) {
        copy.blk = NULL;
        copy.seq = NULL;
    }
    if (copy.blk)
        copy.blk->refs++;
    if (copy.seq)
        copy.seq->refs++;
    pst_val_clear(p, dst);
    *dst = copy;
}

/* ---- what kernels call ---- */

int pst_op_fail(pst_op_ctx *c, int code, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pst_err_set(c->err, code, PST_CLASS_DATA, "onnx", 0, "%s%s%s: %s", c->node->op_type, *c->node->name ? " " : "", c->node->name,
                       text);
}

int pst_op_type(pst_op_ctx *c, int dtype)
{
    return pst_op_fail(c, PST_EUNSUPPORTED, "type %s is not covered here", pst_dtype_name((pst_dtype)dtype));
}

int pst_need(pst_op_ctx *c, int n)
{
    for (int i = 0; i < n; i++)
        if (!pst_in(c, i))
            return pst_op_fail(c, PST_EINVAL, "input %d is missing", i);
    return 0;
}

void *pst_out(pst_op_ctx *c, int i, pst_dtype dtype, int rank, const int64_t *dims)
{
    size_t size = pst_dtype_size(dtype);
    if (i >= c->n_out || rank < 0 || rank > PST_MAX_RANK || !size) {
        pst_op_fail(c, PST_EINVAL, "output %d cannot be made (%d outputs, rank %d, %s)", i, c->n_out, rank, pst_dtype_name(dtype));
        return NULL;
    }
    int64_t n = pst_dims_count(dims, rank);
    size_t max = c->plan->m->limits.tensor_bytes_max;
    if (n < 0 || (uint64_t)n > max / size) {
        pst_op_fail(c, PST_ELIMIT, "output %d would be larger than %zu bytes (tensor_bytes_max)", i, max);
        return NULL;
    }
    pst_blk *b = pst_blk_new(c->plan, (size_t)n * size + 64, c->err);
    if (!b)
        return NULL;
    pst_val *v = c->out[i];
    pst_val_clear(c->plan, v);
    v->kind = PST_VAL_TENSOR;
    v->blk = b;
    v->t = (pst_tensor){.dtype = dtype, .rank = rank, .data = b->data};
    for (int k = 0; k < rank; k++)
        v->t.dims[k] = dims[k];
    return b->data;
}

void *pst_out_typed(pst_op_ctx *c, int i, pst_dtype dtype, const pst_tensor *shape)
{
    return pst_out(c, i, dtype, shape->rank, shape->dims);
}

void *pst_out_like(pst_op_ctx *c, int i, const pst_tensor *shape)
{
    return pst_out(c, i, shape->dtype, shape->rank, shape->dims);
}

void pst_out_share(pst_op_ctx *c, int i, const pst_val *v)
{
    pst_val_set(c->plan, c->out[i], v);
}

int pst_out_view(pst_op_ctx *c, int i, int j, int rank, const int64_t *dims)
{
    const pst_tensor *x = pst_in(c, j);
    if (rank > PST_MAX_RANK || pst_dims_count(dims, rank) != pst_count(x))
        return pst_op_fail(c, PST_EINVAL, "the new shape does not hold the %" PRId64 " elements there are", pst_count(x));
    int64_t copy[PST_MAX_RANK];
    for (int k = 0; k < rank; k++)
        copy[k] = dims[k];
    pst_out_share(c, i, c->in[j]);
    c->out[i]->t.rank = rank;
    for (int k = 0; k < rank; k++)
        c->out[i]->t.dims[k] = copy[k];
    return 0;
}

void *pst_scratch(pst_op_ctx *c, size_t bytes)
{
    pst_blk *b = pst_blk_new(c->plan, bytes + 64, c->err);
    if (!b)
        return NULL;
    b->next = c->plan->scratch;
    c->plan->scratch = b;
    return b->data;
}

void *pst_keep(pst_op_ctx *c, size_t bytes)
{
    return pst_zone_alloc(&c->plan->zone, bytes);
}

typedef struct pst_text_chunk {
    struct pst_text_chunk *next;
    size_t used, cap;
    char data[];
} pst_text_chunk;

char *pst_text(pst_op_ctx *c, const char *s, size_t len)
{
    pst_plan *p = c->plan;
    pst_text_chunk *t = p->text_at;
    while (t && t->cap - t->used < len + 1) {
        t = t->next;
        if (t)
            t->used = 0;
    }
    if (!t) {
        size_t cap = len + 1 > 65536 ? len + 1 : 65536;
        t = pst_alloc(sizeof *t + cap);
        t->cap = cap;
        if (p->text_at) {
            t->next = p->text_at->next;
            p->text_at->next = t;
        } else {
            p->texts = t;
        }
    }
    p->text_at = t;
    char *d = t->data + t->used;
    if (len)
        memcpy(d, s, len);
    d[len] = 0;
    t->used += len + 1;
    p->text_bytes += len + 1;
    return d;
}

void pst_plan_texts_reset(pst_plan *p)
{
    p->text_at = p->texts;
    p->text_bytes = 0;
    if (p->texts)
        p->texts->used = 0;
}

int pst_in_ints(pst_op_ctx *c, int i, int64_t *ret, int max)
{
    const pst_tensor *t = pst_in(c, i);
    int64_t n = t ? pst_count(t) : -1;
    if (!t || n > max || pst_convert(PST_I64, ret, t->dtype, t->data, n, true) < 0) {
        pst_op_fail(c, PST_EINVAL, "input %d must be a list of at most %d integers", i, max);
        return -1;
    }
    return (int)n;
}

int pst_in_scalar(pst_op_ctx *c, int i, double *ret)
{
    const pst_tensor *t = pst_in(c, i);
    if (!t || pst_count(t) != 1 || pst_convert(PST_F64, ret, t->dtype, t->data, 1, true) < 0)
        return pst_op_fail(c, PST_EINVAL, "input %d must be one number", i);
    return 0;
}

int pst_axis(pst_op_ctx *c, int64_t axis, int rank, int *ret)
{
    if (axis < -rank || axis >= rank)
        return pst_op_fail(c, PST_EINVAL, "axis %" PRId64 " is outside a tensor of rank %d", axis, rank);
    *ret = (int)(axis < 0 ? axis + rank : axis);
    return 0;
}

void pst_strides(const int64_t *dims, int rank, int64_t *ret)
{
    int64_t s = 1;
    for (int i = rank - 1; i >= 0; i--) {
        ret[i] = s;
        s *= dims[i];
    }
}

int pst_broadcast(pst_op_ctx *c, const pst_tensor *a, const pst_tensor *b, int *rank, int64_t *dims)
{
    int r = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < r; i++) {
        int ia = i - (r - a->rank), ib = i - (r - b->rank);
        int64_t da = ia >= 0 ? a->dims[ia] : 1, db = ib >= 0 ? b->dims[ib] : 1;
        if (da != db && da != 1 && db != 1)
            return pst_op_fail(c, PST_EINVAL, "shapes do not broadcast: dimension %d is %" PRId64 " here and %" PRId64 " there", i, da, db);
        dims[i] = da == 1 ? db : da;
    }
    *rank = r;
    return 0;
}

void pst_broadcast_strides(const pst_tensor *t, int rank, int64_t *ret)
{
    int64_t s = 1;
    for (int i = rank - 1; i >= 0; i--) {
        int k = i - (rank - t->rank);
        ret[i] = k >= 0 && t->dims[k] != 1 ? s : 0;
        if (k >= 0)
            s *= t->dims[k];
    }
}

pst_seq *pst_out_seq(pst_op_ctx *c, int i, int64_t n)
{
    if (n < 0 || n > 1000000) {
        pst_op_fail(c, PST_ELIMIT, "a sequence of %" PRId64 " items; at most 1000000 are allowed", n);
        return NULL;
    }
    pst_seq *s = pst_alloc(sizeof *s);
    s->refs = 1;
    s->n = n;
    s->items = pst_alloc((size_t)(n ? n : 1) * sizeof *s->items);
    pst_val_clear(c->plan, c->out[i]);
    c->out[i]->kind = PST_VAL_SEQ;
    c->out[i]->seq = s;
    c->out[i]->blk = NULL;
    return s;
}

/* ---- running ---- */

static void free_scratch(pst_plan *p, pst_blk *until)
{
    while (p->scratch != until) {
        pst_blk *b = p->scratch;
        p->scratch = b->next;
        pst_blk_unref(p, b);
    }
}

/* Half types compute in float32: inputs are widened into values that live for the step, float32 results rounded to the half type. */
static int run_half(pst_plan *p, const pst_step *s, pst_op_ctx *c)
{
    pst_dtype half = (pst_dtype)0;
    for (int i = 0; i < s->n_in && !half; i++)
        if (s->in[i] && s->in[i]->kind == PST_VAL_TENSOR && (s->in[i]->t.dtype == PST_F16 || s->in[i]->t.dtype == PST_BF16))
            half = s->in[i]->t.dtype;
    if (!half)
        return s->run(c);
    pst_val *wide = pst_scratch(c, (size_t)s->n_in * (sizeof *wide + sizeof(pst_val *)));
    if (!wide)
        return PST_ELIMIT;
    pst_val **in = (pst_val **)(wide + s->n_in);
    for (int i = 0; i < s->n_in; i++) {
        in[i] = s->in[i];
        if (!in[i] || in[i]->kind != PST_VAL_TENSOR || (in[i]->t.dtype != PST_F16 && in[i]->t.dtype != PST_BF16))
            continue;
        int64_t n = pst_count(&in[i]->t);
        wide[i] = (pst_val){.kind = PST_VAL_TENSOR, .t = in[i]->t};
        wide[i].t.dtype = PST_F32;
        wide[i].t.data = pst_scratch(c, (size_t)n * 4);
        if (!wide[i].t.data)
            return PST_ELIMIT;
        pst_convert(PST_F32, wide[i].t.data, in[i]->t.dtype, in[i]->t.data, n, true);
        in[i] = &wide[i];
    }
    c->in = in;
    int rc = s->run(c);
    for (int i = 0; i < s->n_out && rc == 0; i++) {
        pst_val *o = s->out[i];
        if (o->kind != PST_VAL_TENSOR || o->t.dtype != PST_F32)
            continue;
        int64_t n = pst_count(&o->t);
        pst_blk *b = pst_blk_new(p, (size_t)n * 2 + 64, c->err);
        if (!b)
            return PST_ELIMIT;
        pst_convert(half, b->data, PST_F32, o->t.data, n, true);
        pst_blk_unref(p, o->blk);
        o->blk = b;
        o->t.data = b->data;
        o->t.dtype = half;
    }
    return rc;
}

int pst_step_run(pst_plan *p, const pst_step *s, pst_err *err)
{
    if (!p->steps_left--) {
        p->steps_left = 0;
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "the model ran %" PRIu64 " nodes in one evaluation without an end",
                           STEPS_MAX);
    }
    pst_op_ctx c = {.node = s->node,
                    .plan = p,
                    .in = s->in,
                    .n_in = s->n_in,
                    .out = s->out,
                    .wanted = s->wanted,
                    .n_out = s->n_out,
                    .state = (void **)&((pst_step *)s)->state,
                    .err = err};
    pst_blk *mark = p->scratch;
    int rc = s->half ? run_half(p, s, &c) : s->run(&c);
    free_scratch(p, mark);
    if (rc == 0 && p->text_bytes > p->pool.bytes_max)
        rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "the model makes more than %zu bytes of text (arena_bytes_max)",
                         p->pool.bytes_max);
    return rc;
}

int pst_prog_run(pst_plan *p, const pst_prog *g, pst_err *err)
{
    if (p->depth >= NESTING_MAX)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "graphs run nested deeper than %d", NESTING_MAX);
    p->depth++;
    int rc = 0;
    for (size_t i = 0; i < g->n_steps && rc == 0; i++) {
        const pst_step *s = &g->steps[i];
        rc = pst_step_run(p, s, err);
        for (int k = 0; k < s->n_kill; k++)
            pst_val_clear(p, &p->vals[s->kill[k]]);
        for (int k = 0; k < s->n_out; k++)
            pst_val_clear(p, &s->dummy[k]);
    }
    p->depth--;
    return rc;
}

void pst_prog_clear(pst_plan *p, const pst_prog *g)
{
    for (int i = 0; i < g->n_locals; i++)
        if (!p->folded[g->locals[i]])
            pst_val_clear(p, &p->vals[g->locals[i]]);
}

int pst_run_graph(pst_op_ctx *c, const pst_graph *g, pst_val *in, int n_in, pst_val *out, int n_out)
{
    pst_plan *p = c->plan;
    const pst_prog *prog = NULL;
    for (size_t i = 0; i < p->n_progs; i++)
        if (p->progs[i].graph == g)
            prog = &p->progs[i];
    if (!prog || n_in > g->n_in || n_out > g->n_out)
        return pst_op_fail(c, PST_EINVAL, "its graph has %d inputs and %d outputs; %d and %d are needed", g ? g->n_in : 0, g ? g->n_out : 0,
                           n_in, n_out);
    for (int i = 0; i < n_in; i++)
        pst_val_set(p, &p->vals[g->in[i]], &in[i]);
    int rc = pst_prog_run(p, prog, c->err);
    for (int i = 0; i < n_out && rc == 0; i++)
        pst_val_set(p, &out[i], &p->vals[g->out[i]]);
    pst_prog_clear(p, prog);
    return rc;
}

/* ---- the public run ---- */

static int check_input(const pst_model *m, size_t i, const pst_val *v, pst_err *err)
{
    const pst_value_info *w = &m->info.inputs[i];
    if (m->in_kinds[i] != PST_KIND_TENSOR)
        return 0;
    if (v->kind != PST_VAL_TENSOR)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "onnx", 0, "input %s must be a tensor", w->name);
    if (w->dtype && v->t.dtype != w->dtype)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "onnx", 0, "input %s is %s, the model wants %s", w->name,
                           pst_dtype_name(v->t.dtype), pst_dtype_name(w->dtype));
    bool ok =
        v->t.rank >= 0 && v->t.rank <= PST_MAX_RANK && pst_dims_count(v->t.dims, v->t.rank) >= 0 && (w->rank < 0 || v->t.rank == w->rank);
    for (int k = 0; ok && k < w->rank; k++)
        ok = w->dims[k] < 0 || w->dims[k] == v->t.dims[k];
    if (ok)
        return 0;
    char given[128] = "", want[128] = "";
    for (int k = 0, n = 0; k < v->t.rank && k < PST_MAX_RANK && n < 100; k++)
        n += snprintf(given + n, sizeof given - (size_t)n, "%s%" PRId64, k ? ", " : "", v->t.dims[k]);
    for (int k = 0, n = 0; k < w->rank && n < 100; k++)
        n += snprintf(want + n, sizeof want - (size_t)n, w->dims[k] < 0 ? "%sN" : "%s%" PRId64, k ? ", " : "", w->dims[k]);
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "onnx", 0, "input %s has shape (%s), the model wants (%s)", w->name, given, want);
}

/* Results must not alias what the caller passed in. */
static int own_result(pst_plan *p, pst_val *v, pst_err *err)
{
    if (v->kind != PST_VAL_TENSOR || v->blk)
        return 0;
    size_t bytes = (size_t)pst_count(&v->t) * pst_dtype_size(v->t.dtype);
    pst_blk *b = pst_blk_new(p, bytes + 64, err);
    if (!b)
        return PST_ELIMIT;
    if (bytes)
        memcpy(b->data, v->t.data, bytes);
    v->blk = b;
    v->t.data = b->data;
    return 0;
}

int pst_plan_run_vals(pst_plan *p, const pst_val *in, size_t n_in, const pst_val **ret_out, size_t n_out, pst_err *err)
{
    const pst_prog *g = &p->progs[0];
    const pst_model *m = p->m;
    if (n_in != m->info.n_inputs || n_out > m->info.n_outputs)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "onnx", 0, "the model has %zu inputs and %zu outputs; %zu and %zu were given",
                           m->info.n_inputs, m->info.n_outputs, n_in, n_out);
    for (size_t i = 0; i < n_in; i++) {
        int rc = check_input(m, i, &in[i], err);
        if (rc < 0)
            return rc;
    }
    pst_prog_clear(p, g);
    pst_plan_texts_reset(p);
    p->steps_left = STEPS_MAX;
    p->depth = 0;
    for (size_t i = 0; i < n_in; i++)
        pst_val_set(p, &p->vals[m->graph.in[i]], &in[i]);
    int rc = pst_prog_run(p, g, err);
    for (size_t i = 0; i < n_out && rc == 0; i++) {
        pst_val *v = &p->vals[m->graph.out[i]];
        rc = own_result(p, v, err);
        ret_out[i] = v;
    }
    return rc;
}

int pst_plan_run(pst_plan *p, const pst_tensor *in, size_t n_in, pst_tensor *ret_out, size_t n_out, pst_err *err)
{
    enum { FEW = 16 };
    pst_val few_in[FEW], *vin = n_in > FEW ? pst_alloc(n_in * sizeof *vin) : few_in;
    const pst_val *few_out[FEW], **vout = n_out > FEW ? pst_alloc(n_out * sizeof *vout) : few_out;
    for (size_t i = 0; i < n_in; i++)
        vin[i] = (pst_val){.kind = PST_VAL_TENSOR, .t = in[i]};
    int rc = pst_plan_run_vals(p, vin, n_in, vout, n_out, err);
    for (size_t i = 0; i < n_out && rc == 0; i++)
        if (vout[i]->kind != PST_VAL_TENSOR)
            rc = pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "onnx", 0, "output %s is a sequence or empty, not a tensor",
                             p->m->info.outputs[i].name);
    for (size_t i = 0; i < n_out && rc == 0; i++)
        ret_out[i] = vout[i]->t;
    if (vin != few_in)
        free(vin);
    if (vout != few_out)
        free(vout);
    return rc;
}
