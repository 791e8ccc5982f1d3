/* control.c - If, Loop, Scan, sequences and optionals. A nested graph reads outer values directly; its inputs are set per call. */
#include "engine/ops/kernels.h"

#include <string.h>

static const eng_graph *graph_of(const eng_op_ctx *c, const char *name)
{
    const eng_attr *a = eng_attr_find(c->node, name);
    return a && a->type == ENG_ATTR_GRAPH ? a->graph : NULL;
}

/* n values that are not set, for the time of this kernel; NULL after an error. */
static eng_val *values(eng_op_ctx *c, int n)
{
    eng_val *v = eng_op_scratch(c, (size_t)(n + 1) * sizeof *v);
    if (v)
        memset(v, 0, (size_t)(n + 1) * sizeof *v);
    return v;
}

int eng_op_if(eng_op_ctx *c)
{
    double cond;
    int rc = eng_in_scalar(c, 0, &cond);
    if (rc < 0)
        return rc;
    const eng_graph *g = graph_of(c, cond != 0 ? "then_branch" : "else_branch");
    if (!g || g->n_out < c->n_out)
        return eng_op_fail(c, PST_EINVAL, "a branch is missing or has too few outputs");
    eng_val *out = values(c, c->n_out);
    if (!out)
        return PST_ELIMIT;
    rc = eng_run_graph(c, g, NULL, 0, out, c->n_out);
    for (int i = 0; i < c->n_out; i++) {
        if (rc == 0)
            eng_out_share(c, i, &out[i]);
        eng_val_clear(c->plan, &out[i]);
    }
    return rc;
}

/* Tensors of one shape, collected step by step and then joined. */
typedef struct collector {
    eng_val *items; /* in blk, which counts as memory of the run */
    eng_blk *blk;
    int64_t n, cap;
} collector;

static int collect(eng_op_ctx *c, collector *k, const eng_val *v)
{
    if (k->n == k->cap) {
        int64_t cap = k->cap ? 2 * k->cap : 16;
        eng_blk *b = eng_blk_new(c->plan, (size_t)cap * sizeof *k->items, c->err);
        if (!b)
            return PST_ELIMIT;
        memset(b->data, 0, (size_t)cap * sizeof *k->items);
        if (k->n)
            memcpy(b->data, k->items, (size_t)k->n * sizeof *k->items);
        eng_blk_unref(c->plan, k->blk);
        k->blk = b;
        k->items = (eng_val *)b->data;
        k->cap = cap;
    }
    eng_val_set(c->plan, &k->items[k->n++], v);
    return 0;
}

static void collector_done(eng_op_ctx *c, collector *k)
{
    for (int64_t i = 0; i < k->n; i++)
        eng_val_clear(c->plan, &k->items[i]);
    eng_blk_unref(c->plan, k->blk);
}

static collector *collectors(eng_op_ctx *c, int n)
{
    collector *k = eng_op_scratch(c, (size_t)(n + 1) * sizeof *k);
    if (k)
        memset(k, 0, (size_t)(n + 1) * sizeof *k);
    return k;
}

/* Stacks along a new axis at `axis`; reversed when the scan asks for it. */
static int stack(eng_op_ctx *c, int out, const collector *k, int64_t axis_attr, bool reversed)
{
    if (!k->n) {
        int64_t none = 0;
        return eng_out(c, out, PST_F32, 1, &none) ? 0 : PST_ELIMIT;
    }
    const pst_tensor *t = &k->items[0].t;
    int axis, rc;
    for (int64_t i = 0; i < k->n; i++) {
        const pst_tensor *o = &k->items[i].t;
        bool same = k->items[i].kind == ENG_VAL_TENSOR && o->dtype == t->dtype && o->rank == t->rank;
        for (int q = 0; same && q < t->rank; q++)
            same = o->dims[q] == t->dims[q];
        if (!same)
            return eng_op_fail(c, PST_EINVAL, "steps give results of different shapes");
    }
    if (t->rank + 1 > PST_MAX_RANK)
        return eng_op_fail(c, PST_ELIMIT, "more than %d dimensions", PST_MAX_RANK);
    if ((rc = eng_op_axis(c, axis_attr, t->rank + 1, &axis)) < 0)
        return rc;
    int64_t dims[PST_MAX_RANK], outer = 1;
    size_t inner = pst_dtype_size(t->dtype);
    for (int q = 0; q <= t->rank; q++)
        dims[q] = q == axis ? k->n : t->dims[q - (q > axis)];
    for (int q = 0; q < t->rank; q++) {
        if (q < axis)
            outer *= t->dims[q];
        else
            inner *= (size_t)t->dims[q];
    }
    char *o = eng_out(c, out, t->dtype, t->rank + 1, dims);
    if (!o)
        return PST_ELIMIT;
    for (int64_t p = 0; p < outer; p++)
        for (int64_t i = 0; i < k->n; i++) {
            const eng_val *v = &k->items[reversed ? k->n - 1 - i : i];
            memcpy(o, (const char *)v->t.data + (size_t)p * inner, inner);
            o += inner;
        }
    return 0;
}

static bool truth(const eng_val *v)
{
    return v->kind == ENG_VAL_TENSOR && v->t.dtype == PST_BOOL && eng_count(&v->t) == 1 && *(const uint8_t *)v->t.data;
}

/* A fresh scalar each time: a body may hand it on as a result. */
static int scalar(eng_op_ctx *c, pst_dtype t, const void *value, eng_val *ret)
{
    eng_blk *b = eng_blk_new(c->plan, 64, c->err);
    if (!b)
        return PST_ELIMIT;
    memcpy(b->data, value, pst_dtype_size(t));
    eng_val_clear(c->plan, ret);
    *ret = (eng_val){.kind = ENG_VAL_TENSOR, .t = {.dtype = t, .data = b->data}, .blk = b};
    return 0;
}

/* The body: (round, go, carried...) -> (go, carried..., scanned...). Carried values are shared from round to round, not copied; all that
 * was made is cleared at the one end, also when a round fails. Each round ticks, so that an endless loop meets the limits of the run. */
int eng_op_loop(eng_op_ctx *c)
{
    const eng_graph *g = graph_of(c, "body");
    int carried = c->n_in - 2, scans = c->n_out - carried, rc = 0;
    double trips = 9e18;
    if (!g || carried < 0 || scans < 0 || g->n_in != carried + 2 || g->n_out != 1 + carried + scans)
        return eng_op_fail(c, PST_EINVAL, "its body does not fit its inputs and outputs");
    if (eng_in(c, 0) && (rc = eng_in_scalar(c, 0, &trips)) < 0)
        return rc;
    eng_val *in = values(c, carried + 2), *out = values(c, g->n_out);
    collector *k = collectors(c, scans);
    if (!in || !out || !k)
        return PST_ELIMIT;
    int64_t iter = 0;
    uint8_t go = !c->in[1] || c->in[1]->kind == ENG_VAL_NONE || truth(c->in[1]);
    for (int i = 0; i < carried; i++)
        if (c->in[i + 2])
            eng_val_set(c->plan, &in[i + 2], c->in[i + 2]);
    for (; go && (double)iter < trips && rc == 0; iter++) {
        rc = scalar(c, PST_I64, &iter, &in[0]);
        rc = rc < 0 ? rc : scalar(c, PST_BOOL, &go, &in[1]);
        if (rc < 0)
            break;
        rc = eng_run_graph(c, g, in, carried + 2, out, g->n_out);
        if (rc < 0)
            break;
        go = truth(&out[0]);
        for (int i = 0; i < carried; i++)
            eng_val_set(c->plan, &in[i + 2], &out[1 + i]);
        for (int i = 0; i < scans && rc == 0; i++)
            rc = collect(c, &k[i], &out[1 + carried + i]);
        rc = rc < 0 ? rc : eng_op_tick(c);
    }
    for (int i = 0; i < carried && rc == 0; i++)
        eng_out_share(c, i, &in[i + 2]);
    for (int i = 0; i < scans && rc == 0; i++)
        rc = stack(c, carried + i, &k[i], 0, false);
    for (int i = 0; i < carried + 2; i++)
        eng_val_clear(c->plan, &in[i]);
    for (int i = 0; i < g->n_out; i++)
        eng_val_clear(c->plan, &out[i]);
    for (int i = 0; i < scans; i++)
        collector_done(c, &k[i]);
    return rc;
}

/* Element `at` along `axis`, as a copy in scratch. */
static int slice_at(eng_op_ctx *c, const pst_tensor *x, int axis, int64_t at, eng_val *ret)
{
    size_t inner = pst_dtype_size(x->dtype);
    int64_t outer = 1;
    *ret = (eng_val){.kind = ENG_VAL_TENSOR, .t = {.dtype = x->dtype, .rank = x->rank - 1}};
    for (int q = 0, r = 0; q < x->rank; q++) {
        if (q != axis)
            ret->t.dims[r++] = x->dims[q];
        if (q < axis)
            outer *= x->dims[q];
        else if (q > axis)
            inner *= (size_t)x->dims[q];
    }
    eng_blk *b = eng_blk_new(c->plan, (size_t)outer * inner + 64, c->err);
    if (!b)
        return PST_ELIMIT;
    ret->blk = b;
    ret->t.data = b->data;
    for (int64_t p = 0; p < outer; p++)
        memcpy((char *)b->data + (size_t)p * inner, (const char *)x->data + (size_t)(p * x->dims[axis] + at) * inner, inner);
    return 0;
}

/* Scan from opset 9: states first, then scanned inputs, every one along its own axis and direction. */
int eng_op_scan(eng_op_ctx *c)
{
    const eng_graph *g = graph_of(c, "body");
    int64_t m = eng_attr_int(c->node, "num_scan_inputs", 0), len = -1;
    int states = c->n_in - (int)m, scans = c->n_out - states, rc = 0, axis;
    size_t n_ax, n_dir, n_oax, n_odir;
    const int64_t *ax = eng_attr_ints(c->node, "scan_input_axes", &n_ax), *dir = eng_attr_ints(c->node, "scan_input_directions", &n_dir),
                  *oax = eng_attr_ints(c->node, "scan_output_axes", &n_oax),
                  *odir = eng_attr_ints(c->node, "scan_output_directions", &n_odir);
    if (!g || m < 1 || m > c->n_in || scans < 0 || g->n_in != c->n_in || g->n_out != c->n_out)
        return eng_op_fail(c, PST_EINVAL, "its body does not fit its inputs and outputs");
    if ((rc = eng_op_need(c, c->n_in)) < 0)
        return rc;
    for (int i = 0; i < m; i++) {
        const pst_tensor *x = eng_in(c, states + i);
        if ((rc = eng_op_axis(c, ax && (size_t)i < n_ax ? ax[i] : 0, x->rank, &axis)) < 0)
            return rc;
        if (len >= 0 && x->dims[axis] != len)
            return eng_op_fail(c, PST_EINVAL, "scanned inputs differ in length");
        len = x->dims[axis];
    }
    eng_val *in = values(c, c->n_in), *out = values(c, g->n_out);
    collector *k = collectors(c, scans);
    if (!in || !out || !k)
        return PST_ELIMIT;
    for (int i = 0; i < states; i++)
        eng_val_set(c->plan, &in[i], c->in[i]);
    for (int64_t t = 0; t < len && rc == 0; t++) {
        for (int i = 0; i < m && rc == 0; i++) {
            const pst_tensor *x = eng_in(c, states + i);
            eng_op_axis(c, ax && (size_t)i < n_ax ? ax[i] : 0, x->rank, &axis);
            eng_val_clear(c->plan, &in[states + i]);
            rc = slice_at(c, x, axis, dir && (size_t)i < n_dir && dir[i] ? len - 1 - t : t, &in[states + i]);
        }
        if (rc == 0)
            rc = eng_run_graph(c, g, in, c->n_in, out, g->n_out);
        for (int i = 0; i < states && rc == 0; i++)
            eng_val_set(c->plan, &in[i], &out[i]);
        for (int i = 0; i < scans && rc == 0; i++)
            rc = collect(c, &k[i], &out[states + i]);
        rc = rc < 0 ? rc : eng_op_tick(c);
    }
    for (int i = 0; i < states && rc == 0; i++)
        eng_out_share(c, i, &in[i]);
    for (int i = 0; i < scans && rc == 0; i++)
        rc = stack(c, states + i, &k[i], oax && (size_t)i < n_oax ? oax[i] : 0, odir && (size_t)i < n_odir && odir[i]);
    for (int i = 0; i < c->n_in; i++)
        eng_val_clear(c->plan, &in[i]);
    for (int i = 0; i < g->n_out; i++)
        eng_val_clear(c->plan, &out[i]);
    for (int i = 0; i < scans; i++)
        collector_done(c, &k[i]);
    return rc;
}

/* ---- sequences ---- */

static eng_seq *seq_in(eng_op_ctx *c, int i)
{
    if (i < c->n_in && c->in[i] && c->in[i]->kind == ENG_VAL_SEQ)
        return c->in[i]->seq;
    eng_op_fail(c, PST_EINVAL, "input %d must be a sequence", i);
    return NULL;
}

int eng_op_sequence_empty(eng_op_ctx *c)
{
    return eng_out_seq(c, 0, 0) ? 0 : PST_ELIMIT;
}

int eng_op_sequence_construct(eng_op_ctx *c)
{
    int rc = eng_op_need(c, c->n_in ? c->n_in : 1);
    eng_seq *s = rc < 0 ? NULL : eng_out_seq(c, 0, c->n_in);
    for (int i = 0; s && i < c->n_in; i++)
        eng_val_set(c->plan, &s->items[i], c->in[i]);
    if (rc < 0)
        return rc;
    return s ? 0 : PST_ELIMIT;
}

static int position(eng_op_ctx *c, int i, int64_t n, int64_t def, int64_t *ret)
{
    *ret = def;
    if (!eng_in(c, i))
        return 0;
    if (eng_in_ints(c, i, ret, 1) != 1)
        return PST_EINVAL;
    *ret += *ret < 0 ? n : 0;
    return *ret < 0 || *ret > n ? eng_op_fail(c, PST_EINVAL, "a position is outside the sequence of %lld", (long long)n) : 0;
}

int eng_op_sequence_insert(eng_op_ctx *c)
{
    eng_seq *s = seq_in(c, 0);
    int64_t at;
    if (!s || !eng_in(c, 1) || position(c, 2, s->n, s->n, &at) < 0)
        return eng_op_fail(c, PST_EINVAL, "a sequence and a tensor are needed");
    eng_seq *o = eng_out_seq(c, 0, s->n + 1);
    for (int64_t i = 0; o && i <= s->n; i++)
        eng_val_set(c->plan, &o->items[i], i == at ? c->in[1] : &s->items[i - (i > at)]);
    return o ? 0 : PST_ELIMIT;
}

int eng_op_sequence_erase(eng_op_ctx *c)
{
    eng_seq *s = seq_in(c, 0);
    int64_t at;
    if (!s || position(c, 1, s->n, s->n - 1, &at) < 0 || at < 0 || at >= s->n)
        return eng_op_fail(c, PST_EINVAL, "nothing to erase there");
    eng_seq *o = eng_out_seq(c, 0, s->n - 1);
    for (int64_t i = 0; o && i < s->n - 1; i++)
        eng_val_set(c->plan, &o->items[i], &s->items[i + (i >= at)]);
    return o ? 0 : PST_ELIMIT;
}

int eng_op_sequence_at(eng_op_ctx *c)
{
    eng_seq *s = seq_in(c, 0);
    int64_t at;
    if (!s || position(c, 1, s->n, 0, &at) < 0 || at >= s->n)
        return eng_op_fail(c, PST_EINVAL, "no such position");
    eng_out_share(c, 0, &s->items[at]);
    return 0;
}

int eng_op_sequence_length(eng_op_ctx *c)
{
    eng_seq *s = seq_in(c, 0);
    int64_t *o = s ? eng_out(c, 0, PST_I64, 0, NULL) : NULL;
    if (!o)
        return PST_EINVAL;
    *o = s->n;
    return 0;
}

/* A list gives the size of every piece, a scalar that of all but the last; without either, pieces are single slices, and only then
 * keepdims=0 takes the axis away. */
int eng_op_split_to_sequence(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 1), axis;
    if (rc < 0)
        return rc;
    const pst_tensor x = *eng_in(c, 0), *sp = eng_in(c, 1);
    if ((rc = eng_op_axis(c, eng_attr_int(c->node, "axis", 0), x.rank, &axis)) < 0)
        return rc;
    int64_t d = x.dims[axis], each = 1, n, at = 0, *sizes = NULL;
    bool drop = !sp && !eng_attr_int(c->node, "keepdims", 1);
    if (sp && sp->rank == 0) {
        if (eng_in_ints(c, 1, &each, 1) != 1 || each < 1)
            return eng_op_fail(c, PST_EINVAL, "bad split");
    } else if (sp) {
        n = eng_count(sp);
        sizes = eng_op_scratch(c, (size_t)n * 8 + 8);
        if (!sizes || n > d + 1000 || eng_in_ints(c, 1, sizes, (int)n) < 0)
            return eng_op_fail(c, PST_EINVAL, "bad split");
    }
    n = sizes ? eng_count(sp) : (d + each - 1) / each;
    size_t inner = pst_dtype_size(x.dtype);
    int64_t outer = 1;
    for (int q = 0; q < x.rank; q++) {
        if (q < axis)
            outer *= x.dims[q];
        else if (q > axis)
            inner *= (size_t)x.dims[q];
    }
    eng_seq *s = eng_out_seq(c, 0, n);
    for (int64_t i = 0; s && i < n; i++) {
        int64_t left = d - at, len = each < left ? each : left;
        if (sizes)
            len = sizes[i];
        if (len < 0 || len > d - at)
            return eng_op_fail(c, PST_EINVAL, "sizes do not add up");
        eng_blk *b = eng_blk_new(c->plan, (size_t)(outer * len) * inner + 64, c->err);
        if (!b)
            return PST_ELIMIT;
        eng_val *v = &s->items[i];
        *v = (eng_val){.kind = ENG_VAL_TENSOR, .t = x, .blk = b};
        v->t.data = b->data;
        v->t.dims[axis] = len;
        if (drop) {
            memmove(v->t.dims + axis, v->t.dims + axis + 1, (size_t)(x.rank - axis - 1) * sizeof *v->t.dims);
            v->t.rank--;
        }
        for (int64_t p = 0; p < outer; p++)
            memcpy((char *)b->data + (size_t)(p * len) * inner, (const char *)x.data + (size_t)(p * d + at) * inner, (size_t)len * inner);
        at += len;
    }
    return s ? 0 : PST_ELIMIT;
}

int eng_op_concat_from_sequence(eng_op_ctx *c)
{
    eng_seq *s = seq_in(c, 0);
    if (!s || !s->n)
        return eng_op_fail(c, PST_EINVAL, "a sequence with something in it is needed");
    collector k = {.items = s->items, .n = s->n};
    for (int64_t i = 0; i < s->n; i++)
        if (s->items[i].kind != ENG_VAL_TENSOR)
            return eng_op_fail(c, PST_EINVAL, "a sequence of tensors is needed");
    if (eng_attr_int(c->node, "new_axis", 0))
        return stack(c, 0, &k, eng_attr_int(c->node, "axis", 0), false);
    /* the same as Concat of the items */
    eng_val **in = eng_op_scratch(c, (size_t)s->n * sizeof *in);
    if (!in)
        return PST_ELIMIT;
    for (int64_t i = 0; i < s->n; i++)
        in[i] = &s->items[i];
    eng_op_ctx sub = *c;
    sub.in = in;
    sub.n_in = (int)s->n;
    return eng_op_concat(&sub);
}

/* The body runs once per item; other sequences are walked along, tensors are given whole. */
int eng_op_sequence_map(eng_op_ctx *c)
{
    const eng_graph *g = graph_of(c, "body");
    eng_seq *first = seq_in(c, 0);
    if (!first || !g || g->n_in != c->n_in || g->n_out != c->n_out)
        return eng_op_fail(c, PST_EINVAL, "its body does not fit its inputs and outputs");
    eng_val *in = values(c, c->n_in), *out = values(c, c->n_out);
    eng_seq **made = eng_op_scratch(c, (size_t)(c->n_out + 1) * sizeof *made);
    int rc = in && out && made ? 0 : PST_ELIMIT;
    if (rc < 0)
        return rc;
    for (int i = 0; i < c->n_out && rc == 0; i++)
        rc = (made[i] = eng_out_seq(c, i, first->n)) ? 0 : PST_ELIMIT;
    for (int64_t t = 0; t < first->n && rc == 0; t++) {
        for (int i = 0; i < c->n_in; i++) {
            const eng_val *v = c->in[i];
            if (v && v->kind == ENG_VAL_SEQ && v->seq->n != first->n) {
                rc = eng_op_fail(c, PST_EINVAL, "sequences differ in length");
                break;
            }
            if (v)
                eng_val_set(c->plan, &in[i], v->kind == ENG_VAL_SEQ ? &v->seq->items[t] : v);
        }
        if (rc == 0)
            rc = eng_run_graph(c, g, in, c->n_in, out, c->n_out);
        for (int i = 0; i < c->n_out && rc == 0; i++)
            eng_val_set(c->plan, &made[i]->items[t], &out[i]);
        rc = rc < 0 ? rc : eng_op_tick(c);
    }
    for (int i = 0; i < c->n_in; i++)
        eng_val_clear(c->plan, &in[i]);
    for (int i = 0; i < c->n_out; i++)
        eng_val_clear(c->plan, &out[i]);
    return rc;
}

/* ---- optionals: an empty one is a value that is not set ---- */

int eng_op_optional(eng_op_ctx *c)
{
    if (c->n_in && c->in[0])
        eng_out_share(c, 0, c->in[0]);
    return 0;
}

int eng_op_optional_has(eng_op_ctx *c)
{
    uint8_t has = c->n_in && c->in[0] && c->in[0]->kind != ENG_VAL_NONE, *o = eng_out(c, 0, PST_BOOL, 0, NULL);
    if (!o)
        return PST_ELIMIT;
    *o = has;
    return 0;
}

int eng_op_optional_get(eng_op_ctx *c)
{
    if (!c->n_in || !c->in[0] || c->in[0]->kind == ENG_VAL_NONE)
        return eng_op_fail(c, PST_EINVAL, "the optional is empty");
    eng_out_share(c, 0, c->in[0]);
    return 0;
}
