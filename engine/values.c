/* values.c - a plan's memory: buffers, values, texts, and what kernels ask for; see plan.h and ops/ops.h.
 *
 * Why a pool of size classes and not one arena with offsets planned ahead: a plan serves any batch, loops, sequences and results
 * whose size depends on the data, so offsets would have to be planned anew per shape, and views and in-place results would need a
 * second mechanism. Counted buffers in classes a quarter of a power of two apart do all of it. What
 * they reserve beyond the values alive at the peak was measured at batch 64: nothing for an MLP, 2 % for an LSTM, 17 % for a small
 * CNN, 50 % for an encoder, whose values have many sizes; `penstock models explain` prints both figures. The most recently freed
 * buffer is served first: it is still in the cache. */
#include "engine/plan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- pool ---- */

enum { HEADER = (sizeof(eng_blk) + 63) / 64 * 64 }; /* the host's payload follows its header, 64-byte aligned */

/* Class 0 holds 256 bytes; from there four classes per doubling. */
static int class_of(size_t bytes, size_t *ret_cap)
{
    if (bytes <= 256) {
        *ret_cap = 256;
        return 0;
    }
    int e = 63 - __builtin_clzll((unsigned long long)(bytes - 1));
    size_t base = (size_t)1 << e, step = base / 4, q = (bytes - 1 - base) / step;
    *ret_cap = base + (q + 1) * step;
    int at = 1 + (e - 8) * 4 + (int)q;
    PST_ASSERT(at < ENG_POOL_CLASSES && *ret_cap >= bytes);
    return at;
}

static void blk_free(eng_pool *pool, eng_blk *b)
{
    PST_ASSERT(pool->bytes >= b->cap);
    pool->bytes -= b->cap;
    if (b->all_next)
        b->all_next->all_prev = b->all_prev;
    if (b->all_prev)
        b->all_prev->all_next = b->all_next;
    else
        pool->all = b->all_next;
    eng_heap_free(b);
}

void eng_pool_drop(eng_pool *pool)
{
    for (int i = 0; i < ENG_POOL_CLASSES; i++)
        for (eng_blk *f = pool->free[i], *next; f; f = next) {
            next = f->next;
            blk_free(pool, f);
            pool->free[i] = next;
        }
}

void eng_plan_reset(pst_plan *p)
{
    for (int i = 0; i < p->m->n_values; i++)
        if (!p->folded[i])
            p->vals[i] = (eng_val){.kind = ENG_VAL_NONE};
    for (size_t g = 0; g < p->n_progs; g++)
        for (size_t i = 0; i < p->progs[g].n_steps; i++)
            for (int k = 0; k < p->progs[g].steps[i].n_out; k++)
                p->progs[g].steps[i].dummy[k] = (eng_val){.kind = ENG_VAL_NONE};
    p->scratch = NULL;
    memset(p->pool.free, 0, sizeof p->pool.free);
    p->pool.live = 0;
    for (eng_blk *b = p->pool.all, *next; b; b = next) {
        next = b->all_next;
        if (!b->pinned)
            blk_free(&p->pool, b);
        else
            p->pool.live += b->cap;
    }
}

/* Room for cap more bytes from the heap, giving up what is cached if need be. */
static bool pool_room(eng_pool *pool, size_t cap)
{
    if (cap > pool->bytes_max)
        return false;
    if (pool->bytes + cap > pool->bytes_max)
        eng_pool_drop(pool);
    return pool->bytes + cap <= pool->bytes_max;
}

eng_blk *eng_blk_new(pst_plan *p, size_t bytes, pst_err *err)
{
    eng_pool *pool = &p->pool;
    size_t cap;
    if (bytes > pool->bytes_max) {
        pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0,
                    "the model needs a value of %zu bytes; at most %zu are allowed (arena_bytes_max)", bytes, pool->bytes_max);
        return NULL;
    }
    int c = class_of(bytes, &cap), at = c;
    while (at < c + 4 && at < ENG_POOL_CLASSES - 1 && !pool->free[at]) /* one up to twice as large will do: batches differ in size */
        at++;
    eng_blk *b = pool->free[at];
    if (b) {
        PST_ASSERT(b->refs == 0 && b->cap >= bytes); /* a buffer in use on the free list would be two values at once */
        pool->free[at] = b->next;
    } else {
        if (!pool_room(pool, cap)) {
            pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "onnx", 0, "the model's values need more than %zu bytes (arena_bytes_max)",
                        pool->bytes_max);
            return NULL;
        }
        b = eng_heap_alloc64(HEADER + cap); /* unwinds: folding would take a NULL for a node that cannot be folded */
        *b = (eng_blk){.cap = cap, .place = ENG_PLACE_HOST, .data = (unsigned char *)b + HEADER, .all_next = pool->all};
        if (pool->all)
            pool->all->all_prev = b;
        pool->all = b;
        pool->bytes += cap;
    }
    b->refs = 1;
    b->next = NULL;
    pool->live += b->cap;
    if (pool->live > pool->peak)
        pool->peak = pool->live;
    return b;
}

void eng_blk_unref(pst_plan *p, eng_blk *b)
{
    if (!b)
        return;
    PST_ASSERT(b->refs > 0);
    if (--b->refs > 0)
        return;
    PST_ASSERT(p->pool.live >= b->cap);
    size_t cap;
    int c = class_of(b->cap, &cap);
    p->pool.live -= b->cap;
    b->next = p->pool.free[c];
    p->pool.free[c] = b;
}

/* ---- values ---- */

void eng_val_clear(pst_plan *p, eng_val *v)
{
    if (v->kind == ENG_VAL_NONE)
        return;
    eng_blk_unref(p, v->blk);
    PST_ASSERT(!v->seq || v->seq->refs > 0);
    if (v->seq && --v->seq->refs == 0) {
        for (int64_t i = 0; i < v->seq->n; i++)
            eng_val_clear(p, &v->seq->items[i]);
        eng_blk_unref(p, v->seq->blk);
    }
    v->kind = ENG_VAL_NONE;
    v->blk = NULL;
    v->seq = NULL;
}

void eng_val_set(pst_plan *p, eng_val *dst, const eng_val *src)
{
    if (dst == src)
        return;
    eng_val copy = *src;
    if (copy.kind == ENG_VAL_NONE) {
        copy.blk = NULL;
        copy.seq = NULL;
    }
    if (copy.blk)
        copy.blk->refs++;
    if (copy.seq)
        copy.seq->refs++;
    eng_val_clear(p, dst);
    *dst = copy;
}

/* ---- what kernels call ---- */

int eng_op_fail(eng_op_ctx *c, int code, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pst_err_set(c->err, code, PST_CLASS_DATA, "onnx", 0, "%s%s%s: %s", c->node->op_type, *c->node->name ? " " : "", c->node->name,
                       text);
}

int eng_op_tick(eng_op_ctx *c)
{
    if (c->plan->steps_left) {
        c->plan->steps_left--;
        return eng_op_pause(c);
    }
    return eng_op_fail(c, PST_ELIMIT, "the model ran %" PRIu64 " steps in one evaluation without an end (steps_max)",
                       eng_plan_steps_max(c->plan));
}

int eng_op_work(eng_op_ctx *c, double n)
{
    double steps = n / 65536;
    if (steps < (double)c->plan->steps_left) {
        c->plan->steps_left -= (uint64_t)steps;
        return 0;
    }
    return eng_op_fail(c, PST_ELIMIT, "%.3g multiplications are more than the %" PRIu64 " steps of one evaluation allow (steps_max)", n,
                       eng_plan_steps_max(c->plan));
}

int eng_op_type(eng_op_ctx *c, int dtype)
{
    return eng_op_fail(c, PST_EUNSUPPORTED, "type %s is not covered here", pst_dtype_name((pst_dtype)dtype));
}

int eng_op_need(eng_op_ctx *c, int n)
{
    for (int i = 0; i < n; i++)
        if (!eng_in(c, i))
            return eng_op_fail(c, PST_EINVAL, "input %d is missing", i);
    return 0;
}

void *eng_out(eng_op_ctx *c, int i, pst_dtype dtype, int rank, const int64_t *dims)
{
    size_t size = pst_dtype_size(dtype);
    if (i >= c->n_out || rank < 0 || rank > PST_MAX_RANK || !size) {
        eng_op_fail(c, PST_EINVAL, "output %d cannot be made (%d outputs, rank %d, %s)", i, c->n_out, rank, pst_dtype_name(dtype));
        return NULL;
    }
    int64_t n = eng_dims_count(dims, rank);
    size_t max = c->plan->out_bytes_max;
    if (n < 0 || (uint64_t)n > max / size) {
        eng_op_fail(c, PST_ELIMIT, "output %d would be larger than %zu bytes (tensor_bytes_max)", i, max);
        return NULL;
    }
    eng_blk *b = eng_blk_new(c->plan, (size_t)n * size + 64, c->err);
    if (!b)
        return NULL;
    eng_val *v = c->out[i];
    eng_val_clear(c->plan, v);
    v->kind = ENG_VAL_TENSOR;
    v->blk = b;
    v->t = (pst_tensor){.dtype = dtype, .rank = rank, .data = b->data};
    for (int k = 0; k < rank; k++)
        v->t.dims[k] = dims[k];
    return b->data;
}

void *eng_out_typed(eng_op_ctx *c, int i, pst_dtype dtype, const pst_tensor *shape)
{
    return eng_out(c, i, dtype, shape->rank, shape->dims);
}

void *eng_out_like(eng_op_ctx *c, int i, const pst_tensor *shape)
{
    return eng_out(c, i, shape->dtype, shape->rank, shape->dims);
}

void *eng_out_over(eng_op_ctx *c, int i, int j)
{
    const pst_tensor shape = *eng_in(c, j);
    eng_val *from = c->in[j], *to = c->out[i];
    if (!c->dies || !c->dies[j] || !from->blk || from->blk->refs != 1 || from == to)
        return eng_out_like(c, i, &shape);
    PST_ASSERT(from->kind == ENG_VAL_TENSOR && !from->blk->pinned); /* a constant of the plan is never written over */
    PST_ASSERT(from->blk->place == ENG_PLACE_HOST || from->blk->place == ENG_PLACE_PINNED); /* a kernel of the CPU writes there */
    eng_val taken = *from;
    *from = (eng_val){.kind = ENG_VAL_NONE};
    eng_val_clear(c->plan, to);
    *to = taken;
    return to->t.data;
}

void eng_out_share(eng_op_ctx *c, int i, const eng_val *v)
{
    if (i < c->n_out)
        eng_val_set(c->plan, c->out[i], v);
}

int eng_out_view(eng_op_ctx *c, int i, int j, int rank, const int64_t *dims)
{
    const pst_tensor *x = eng_in(c, j);
    if (rank > PST_MAX_RANK || eng_dims_count(dims, rank) != eng_count(x))
        return eng_op_fail(c, PST_EINVAL, "the new shape does not hold the %" PRId64 " elements there are", eng_count(x));
    int64_t copy[PST_MAX_RANK];
    for (int k = 0; k < rank; k++)
        copy[k] = dims[k];
    eng_out_share(c, i, c->in[j]);
    PST_ASSERT(i < c->n_out && c->out[i]->kind == ENG_VAL_TENSOR); /* of the input that it shares its memory with */
    c->out[i]->t.rank = rank;
    for (int k = 0; k < rank; k++)
        c->out[i]->t.dims[k] = copy[k];
    return 0;
}

void *eng_op_scratch(eng_op_ctx *c, size_t bytes)
{
    eng_blk *b = eng_blk_new(c->plan, bytes + 64, c->err);
    if (!b)
        return NULL;
    b->next = c->plan->scratch;
    c->plan->scratch = b;
    return b->data;
}

void *eng_op_keep(eng_op_ctx *c, size_t bytes)
{
    return eng_zone_alloc(c->keep ? c->keep : &c->plan->zone, bytes);
}

bool eng_plan_room_take(pst_plan *p, size_t bytes)
{
    PST_ASSERT(p->fused_bytes <= p->pool.bytes_max);
    if (bytes > p->pool.bytes_max - p->fused_bytes)
        return false;
    p->fused_bytes += bytes;
    return true;
}

void *eng_plan_room(pst_plan *p, size_t bytes)
{
    return eng_plan_room_take(p, bytes) ? eng_zone_alloc(&p->zone, bytes ? bytes : 1) : NULL;
}

typedef struct eng_text_chunk {
    struct eng_text_chunk *next;
    size_t used, cap;
    char data[];
} eng_text_chunk;

/* A chunk with room for len + 1 bytes behind the one in use; chunks count as memory of the pool and stay until the plan is freed. */
static eng_text_chunk *text_room(pst_plan *p, size_t len)
{
    eng_text_chunk *t = p->text_at;
    while (t && t->cap - t->used < len + 1) {
        t = t->next;
        if (t)
            t->used = 0;
    }
    if (t)
        return t;
    size_t cap = len + 1 > 65536 ? len + 1 : 65536;
    if (len >= p->pool.bytes_max || !pool_room(&p->pool, cap))
        return NULL;
    t = eng_heap_bytes(sizeof *t + cap);
    *t = (eng_text_chunk){.cap = cap};
    p->pool.bytes += cap;
    if (p->text_at) {
        t->next = p->text_at->next;
        p->text_at->next = t;
    } else {
        p->texts = t;
    }
    return t;
}

char *eng_op_text(eng_op_ctx *c, const char *s, size_t len)
{
    pst_plan *p = c->plan;
    eng_text_chunk *t = p->text_over ? NULL : text_room(p, len);
    if (!t) { /* said when the kernel returns */
        p->text_over = true;
        return p->no_text;
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

void eng_plan_texts_reset(pst_plan *p)
{
    p->text_at = p->texts;
    p->text_bytes = 0;
    p->text_over = false;
    if (p->texts)
        p->texts->used = 0;
}

int eng_in_ints(eng_op_ctx *c, int i, int64_t *ret, int max)
{
    const pst_tensor *t = eng_in(c, i);
    int64_t n = t ? eng_count(t) : -1;
    if (!t || n > max || eng_convert(PST_I64, ret, t->dtype, t->data, n, true) < 0) {
        eng_op_fail(c, PST_EINVAL, "input %d must be a list of at most %d integers", i, max);
        return -1;
    }
    return (int)n;
}

int eng_in_scalar(eng_op_ctx *c, int i, double *ret)
{
    const pst_tensor *t = eng_in(c, i);
    if (!t || eng_count(t) != 1 || eng_convert(PST_F64, ret, t->dtype, t->data, 1, true) < 0)
        return eng_op_fail(c, PST_EINVAL, "input %d must be one number", i);
    return 0;
}

int eng_op_axis(eng_op_ctx *c, int64_t axis, int rank, int *ret)
{
    if (axis < -rank || axis >= rank)
        return eng_op_fail(c, PST_EINVAL, "axis %" PRId64 " is outside a tensor of rank %d", axis, rank);
    *ret = (int)(axis < 0 ? axis + rank : axis);
    return 0;
}

void eng_strides(const int64_t *dims, int rank, int64_t *ret)
{
    int64_t s = 1;
    for (int i = rank - 1; i >= 0; i--) {
        ret[i] = s;
        s *= dims[i];
    }
}

int eng_broadcast(eng_op_ctx *c, const pst_tensor *a, const pst_tensor *b, int *rank, int64_t *dims)
{
    int r = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < r; i++) {
        int ia = i - (r - a->rank), ib = i - (r - b->rank);
        int64_t da = ia >= 0 ? a->dims[ia] : 1, db = ib >= 0 ? b->dims[ib] : 1;
        if (da != db && da != 1 && db != 1)
            return eng_op_fail(c, PST_EINVAL, "shapes do not broadcast: dimension %d is %" PRId64 " here and %" PRId64 " there", i, da, db);
        dims[i] = da == 1 ? db : da;
    }
    *rank = r;
    return 0;
}

void eng_broadcast_strides(const pst_tensor *t, int rank, int64_t *ret)
{
    int64_t s = 1;
    for (int i = rank - 1; i >= 0; i--) {
        int k = i - (rank - t->rank);
        ret[i] = k >= 0 && t->dims[k] != 1 ? s : 0;
        if (k >= 0)
            s *= t->dims[k];
    }
}

eng_seq *eng_out_seq(eng_op_ctx *c, int i, int64_t n)
{
    if (n < 0 || n > 1000000) {
        eng_op_fail(c, PST_ELIMIT, "a sequence of %" PRId64 " items; at most 1000000 are allowed", n);
        return NULL;
    }
    size_t bytes = sizeof(eng_seq) + (size_t)n * sizeof(eng_val);
    eng_blk *b = eng_blk_new(c->plan, bytes, c->err);
    if (!b)
        return NULL;
    memset(b->data, 0, bytes);
    eng_seq *s = (eng_seq *)b->data;
    *s = (eng_seq){.refs = 1, .n = n, .items = (eng_val *)(s + 1), .blk = b};
    eng_val_clear(c->plan, c->out[i]);
    c->out[i]->kind = ENG_VAL_SEQ;
    c->out[i]->seq = s;
    c->out[i]->blk = NULL;
    return s;
}

/* ---- what libraries gave ---- */

struct eng_owned {
    struct eng_owned *next;
    void *what;
    void (*release)(void *what);
};

void eng_plan_own(pst_plan *p, void *what, void (*release)(void *what))
{
    struct eng_owned *o = eng_zone_alloc(&p->zone, sizeof *o);
    *o = (struct eng_owned){p->owned, what, release};
    p->owned = o;
}

void eng_plan_disown(pst_plan *p)
{
    for (struct eng_owned *o = p->owned; o; o = o->next)
        o->release(o->what);
    p->owned = NULL;
}

void eng_plan_empty(pst_plan *p)
{
    eng_plan_disown(p);
    eng_heap_release(&p->heap);
    pst_plan fresh = {.m = p->m,
                      .opts = p->opts,
                      .isa = p->isa,
                      .pool.bytes_max = p->pool.bytes_max,
                      .watch = p->watch,
                      .out_bytes_max = p->out_bytes_max,
                      .device_may = p->device_may};
    memcpy(fresh.computes, p->computes, sizeof fresh.computes);
    memcpy(fresh.computes_why, p->computes_why, sizeof fresh.computes_why);
    *p = fresh;
}
