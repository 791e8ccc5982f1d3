/* attention.c - Attention (opset 23, 24) and RotaryEmbedding. By matrix products, 64 query
 * rows at a time; the twin, and whoever wants the scores, by loops in double, one row at a time.
 * Grouped queries: query head h reads key head h / (query heads / key heads). */
#include "engine/ops/kernels.h"

#include "engine/cpu/gemm.h"
#include "engine/fuse_tile.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A (B, heads, S, D) view of a 4-D tensor or of (B, S, heads·D). */
typedef struct heads {
    const float *data;
    int64_t b, h, s, d;
    int64_t sb, sh, ss;
} heads;

static int heads_of(eng_op_ctx *c, int i, int64_t n_heads, heads *ret)
{
    const pst_tensor *t = eng_in(c, i);
    if (t->dtype != PST_F32)
        return eng_op_type(c, t->dtype);
    *ret = (heads){.data = t->data, .b = t->dims[0]};
    if (t->rank == 4) {
        ret->h = t->dims[1];
        ret->s = t->dims[2];
        ret->d = t->dims[3];
        ret->ss = ret->d;
        ret->sh = ret->s * ret->d;
    } else if (t->rank == 3 && n_heads > 0 && t->dims[2] % n_heads == 0) {
        ret->h = n_heads;
        ret->s = t->dims[1];
        ret->d = t->dims[2] / n_heads;
        ret->ss = t->dims[2];
        ret->sh = ret->d;
    } else {
        return eng_op_fail(c, PST_EINVAL, "input %d must be (B, heads, S, D) or (B, S, heads*D)", i);
    }
    ret->sb = ret->h * ret->s * ret->d;
    return 0;
}

/* past (B, h, P, D) and now → present (B, h, P + S, D) at out[i]; without a wanted output it is scratch. */
static int present(eng_op_ctx *c, int past_at, int out_at, const heads *now, heads *ret)
{
    const pst_tensor *past = eng_in(c, past_at);
    int64_t p = 0;
    if (past) {
        if (past->rank != 4 || past->dtype != PST_F32 || past->dims[0] != now->b || past->dims[1] != now->h || past->dims[3] != now->d)
            return eng_op_fail(c, PST_EINVAL, "input %d does not fit the new keys and values", past_at);
        p = past->dims[2];
    }
    int64_t dims[4] = {now->b, now->h, p + now->s, now->d}, n = eng_dims_count(dims, 4);
    if (n < 0 || (uint64_t)n > c->plan->m->limits.tensor_bytes_max / 4)
        return eng_op_fail(c, PST_ELIMIT, "too large");
    float *o = c->n_out > out_at ? eng_out(c, out_at, PST_F32, 4, dims) : eng_op_scratch(c, (size_t)n * sizeof *o);
    if (!o)
        return PST_ELIMIT;
    *ret = (heads){.data = o, .b = now->b, .h = now->h, .s = p + now->s, .d = now->d, .ss = now->d};
    ret->sh = ret->s * ret->d;
    ret->sb = ret->h * ret->sh;
    for (int64_t b = 0; b < now->b; b++)
        for (int64_t h = 0; h < now->h; h++) {
            float *to = o + b * ret->sb + h * ret->sh;
            if (p)
                memcpy(to, (const float *)past->data + (b * now->h + h) * p * now->d, (size_t)(p * now->d) * sizeof *o);
            for (int64_t s = 0; s < now->s; s++)
                memcpy(to + (p + s) * now->d, now->data + b * now->sb + h * now->sh + s * now->ss, (size_t)now->d * sizeof *o);
        }
    return 0;
}

typedef struct mask {
    const pst_tensor *t;
    int64_t strides[4], width; /* columns beyond width are masked */
    bool causal;
    int64_t past;
    const int64_t *lengths;
} mask;

static double bias_of(const mask *m, int64_t b, int64_t h, int64_t i, int64_t j)
{
    double v = 0;
    if (m->causal && j > i + m->past)
        return -INFINITY;
    if (m->lengths && j >= m->lengths[b])
        return -INFINITY;
    if (m->t) {
        if (j >= m->width)
            return -INFINITY;
        int64_t at = b * m->strides[0] + h * m->strides[1] + i * m->strides[2] + j * m->strides[3];
        v = m->t->dtype == PST_BOOL ? (((const uint8_t *)m->t->data)[at] ? 0 : -INFINITY) : (double)((const float *)m->t->data)[at];
    }
    return v;
}

static int mask_of(eng_op_ctx *c, const heads *q, const heads *k, mask *m)
{
    const pst_tensor *t = eng_in(c, 3), *len = eng_in(c, 6);
    m->causal = eng_attr_int(c->node, "is_causal", 0);
    m->past = eng_in(c, 4) && eng_in(c, 4)->rank == 4 ? eng_in(c, 4)->dims[2] : 0;
    if (len) {
        if (len->dtype != PST_I64 || eng_count(len) != q->b)
            return eng_op_fail(c, PST_EINVAL, "nonpad_kv_seqlen must have one length per batch row");
        m->lengths = len->data;
    }
    if (!t)
        return 0;
    m->t = t;
    int64_t want[4] = {q->b, q->h, q->s, k->s};
    bool ok = t->rank >= 1 && t->rank <= 4 && (t->dtype == PST_BOOL || t->dtype == PST_F32);
    m->width = ok ? t->dims[t->rank - 1] : 0;
    ok = ok && m->width <= k->s;
    for (int i = 0; i < t->rank - 1 && ok; i++)
        ok = t->dims[i] == 1 || t->dims[i] == want[4 - t->rank + i];
    if (!ok)
        return eng_op_fail(c, PST_EINVAL, "attn_mask does not fit (B, heads, %lld, %lld)", (long long)q->s, (long long)k->s);
    eng_broadcast_strides(t, 4, m->strides);
    if (m->width == 1 && k->s != 1) {
        m->strides[3] = 0; /* one column broadcasts only when it is meant for one: it is padded instead */
    }
    return 0;
}

/* Bias and masks of one row of scores, -infinity where a key is not seen. Returns true when no key is seen. */
static bool mask_row(const mask *m, int64_t b, int64_t h, int64_t i, int64_t n, float *row)
{
    int64_t seen = n;
    if (m->causal && i + m->past + 1 < seen)
        seen = i + m->past + 1;
    if (m->lengths && m->lengths[b] < seen)
        seen = m->lengths[b];
    if (m->t && m->width < seen)
        seen = m->width;
    seen = seen < 0 ? 0 : seen;
    bool none = true;
    for (int64_t j = 0, at = m->t ? b * m->strides[0] + h * m->strides[1] + i * m->strides[2] : 0; j < seen; j++) {
        if (m->t && m->t->dtype == PST_BOOL)
            row[j] = ((const uint8_t *)m->t->data)[at + j * m->strides[3]] ? row[j] : -INFINITY;
        else if (m->t)
            row[j] += ((const float *)m->t->data)[at + j * m->strides[3]];
        none &= row[j] == -INFINITY;
    }
    for (int64_t j = seen; j < n; j++)
        row[j] = -INFINITY;
    return none;
}

enum { ATTEND_ROWS = 64 };

/* What all parts of an attention read; p: scores of so many rows for each worker. */
typedef struct attending {
    const eng_cpu_kernels *kn;
    const eng_tile_kernels *tile;
    const heads *q, *k, *v;
    const mask *m;
    float scale, cap, *p, *y;
    bool flat;
    int64_t blocks, ldy, p_floats;
} attending;

/* Some query rows of one head. */
static void attend_rows(void *arg, int64_t part, int worker)
{
    const attending *a = arg;
    const heads *q = a->q, *k = a->k, *v = a->v;
    const mask *m = a->m;
    int64_t i = part % a->blocks * ATTEND_ROWS, h = part / a->blocks % q->h, b = part / a->blocks / q->h, per = q->h / k->h;
    int some = (int)(q->s - i < ATTEND_ROWS ? q->s - i : ATTEND_ROWS), n = (int)k->s;
    float *p = a->p + worker * a->p_floats, cap = a->cap;
    const float *kd = k->data + b * k->sb + h / per * k->sh, *vd = v->data + b * v->sb + h / per * v->sh;
    eng_sgemm_isa(a->kn, false, true, some, n, (int)q->d, a->scale, q->data + b * q->sb + h * q->sh + i * q->ss, (int)q->ss, kd, (int)k->ss,
                  0, p, n);
    for (int r = 0; r < some; r++) {
        float *row = p + (int64_t)r * n;
        for (int64_t j = 0; j < n && cap > 0; j++)
            row[j] = row[j] / cap;
        if (cap > 0)
            a->kn->act(ENG_ACT_TANH, 0, 0, row, row, (size_t)n);
        for (int64_t j = 0; j < n && cap > 0; j++)
            row[j] *= cap;
        if ((m->t || m->causal || m->lengths) && mask_row(m, b, h, i + r, n, row))
            memset(row, 0, (size_t)n * sizeof *row); /* a row with everything masked gives zeros */
        else
            a->tile->softmax(row, row, n);
    }
    eng_sgemm_isa(a->kn, false, false, some, (int)v->d, n, 1, p, n, vd, (int)v->ss, 0,
                  a->flat ? a->y + (b * q->s + i) * a->ldy + h * v->d : a->y + ((b * q->h + h) * q->s + i) * a->ldy, (int)a->ldy);
}

/* Scores and results of one head by matrix products, some query rows at a time; all in float32. */
static int attend(eng_op_ctx *c, const heads *q, const heads *k, const heads *v, const mask *m, float scale, float cap, float *y, bool flat)
{
    int64_t rows = q->s < ATTEND_ROWS ? q->s : ATTEND_ROWS, ldy = flat ? q->h * v->d : v->d,
            blocks = (q->s + ATTEND_ROWS - 1) / ATTEND_ROWS;
    if (k->s > INT_MAX / ATTEND_ROWS || q->ss > INT_MAX || k->ss > INT_MAX || v->ss > INT_MAX || ldy > INT_MAX || !k->s)
        return 1;
    double products = (double)(q->b * q->h * q->s) * (double)k->s * (double)(q->d + v->d);
    attending a = {.kn = eng_kernels_pick(c->plan->isa),
                   .tile = eng_tile_pick(c->plan->isa),
                   .q = q,
                   .k = k,
                   .v = v,
                   .m = m,
                   .scale = scale,
                   .cap = cap,
                   .y = y,
                   .flat = flat,
                   .blocks = blocks,
                   .ldy = ldy,
                   .p_floats = (rows * k->s + 15) / 16 * 16};
    a.p = eng_op_scratch(c, (size_t)(eng_op_workers(c, products) * a.p_floats) * sizeof *a.p);
    if (!a.p)
        return PST_ELIMIT;
    int rc = eng_op_parts(c, q->b * q->h * blocks, products, attend_rows, &a);
    if (rc < 0)
        return rc;
    c->kernel = "attention by products";
    return 0;
}

int eng_op_attention(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 3);
    if (rc < 0)
        return rc;
    heads q, nk, nv, k, v;
    mask m = {0};
    int64_t qh = eng_attr_int(c->node, "q_num_heads", 0), kh = eng_attr_int(c->node, "kv_num_heads", 0),
            mode = eng_attr_int(c->node, "qk_matmul_output_mode", 0);
    if ((rc = heads_of(c, 0, qh, &q)) < 0 || (rc = heads_of(c, 1, kh, &nk)) < 0 || (rc = heads_of(c, 2, kh, &nv)) < 0)
        return rc;
    if (nk.b != q.b || nv.b != q.b || nk.d != q.d || nk.s != nv.s || nk.h != nv.h || !nk.h || q.h % nk.h)
        return eng_op_fail(c, PST_EINVAL, "queries, keys and values do not fit each other");
    if ((rc = present(c, 4, 1, &nk, &k)) < 0 || (rc = present(c, 5, 2, &nv, &v)) < 0 || (rc = mask_of(c, &q, &k, &m)) < 0)
        return rc;
    if (k.s != v.s)
        return eng_op_fail(c, PST_EINVAL, "past keys and values differ in length");
    double scale = (double)eng_attr_float(c->node, "scale", 0), cap = (double)eng_attr_float(c->node, "softcap", 0);
    if (!eng_attr_find(c->node, "scale"))
        scale = q.d ? 1 / sqrt((double)q.d) : 1;
    bool flat = eng_in(c, 0)->rank == 3;
    int64_t dims4[4] = {q.b, q.h, q.s, v.d}, dims3[3] = {q.b, q.s, q.h * v.d}, per = q.h / k.h;
    float *y = flat ? eng_out(c, 0, PST_F32, 3, dims3) : eng_out(c, 0, PST_F32, 4, dims4);
    float *qk = c->n_out > 3 ? eng_out(c, 3, PST_F32, 4, (int64_t[]){q.b, q.h, q.s, k.s}) : NULL;
    bool fast = y && c->n_out <= 3 && !c->plan->opts.no_fusion;
    rc = fast ? attend(c, &q, &k, &v, &m, (float)scale, (float)cap, y, flat) : 1;
    if (rc <= 0) /* done, or failed; 1: not by that way */
        return rc;
    double *row = eng_op_scratch(c, (size_t)k.s * 8 + 8), *sum = eng_op_scratch(c, (size_t)v.d * 8 + 8);
    if (!y || (c->n_out > 3 && !qk) || !row || !sum)
        return PST_ELIMIT;
    for (int64_t b = 0; b < q.b; b++)
        for (int64_t h = 0; h < q.h; h++)
            for (int64_t i = 0; i < q.s; i++) {
                const float *qi = q.data + b * q.sb + h * q.sh + i * q.ss;
                float *raw = qk ? qk + ((b * q.h + h) * q.s + i) * k.s : NULL;
                double top = -INFINITY, total = 0;
                for (int64_t j = 0; j < k.s; j++) {
                    const float *kj = k.data + b * k.sb + h / per * k.sh + j * k.ss;
                    double s = 0;
                    for (int64_t d = 0; d < q.d; d++)
                        s += (double)qi[d] * (double)kj[d];
                    s *= scale;
                    s = cap > 0 ? cap * tanh(s / cap) : s;
                    if (raw && mode < 2)
                        raw[j] = (float)s;
                    s += bias_of(&m, b, h, i, j);
                    if (raw && mode == 2)
                        raw[j] = (float)s;
                    row[j] = s;
                    top = s > top ? s : top;
                }
                for (int64_t j = 0; j < k.s; j++) {
                    row[j] = exp(row[j] - top);
                    total += row[j];
                }
                memset(sum, 0, (size_t)v.d * 8);
                for (int64_t j = 0; j < k.s; j++) {
                    const float *vj = v.data + b * v.sb + h / per * v.sh + j * v.ss;
                    double w = isinf(top) ? 0 : row[j] / total; /* a row with everything masked gives zeros */
                    if (raw && mode == 3)
                        raw[j] = (float)w;
                    for (int64_t d = 0; d < v.d; d++)
                        sum[d] += w * (double)vj[d];
                }
                float *to = flat ? y + (b * q.s + i) * q.h * v.d + h * v.d : y + ((b * q.h + h) * q.s + i) * v.d;
                for (int64_t d = 0; d < v.d; d++)
                    to[d] = (float)sum[d];
            }
    return 0;
}

/* Each pair of a head is turned by the angle of its position: neighbours (interleaved), or the same place in the first and the second half.
 * What lies behind rotary_embedding_dim passes through. Without positions the caches have a row for each element of the sequence. */
int eng_op_rotary(eng_op_ctx *c)
{
    int rc = eng_op_need(c, 3);
    if (rc < 0)
        return rc;
    heads x;
    const pst_tensor cs = *eng_in(c, 1), sn = *eng_in(c, 2), *pos = eng_in(c, 3);
    if ((rc = heads_of(c, 0, eng_attr_int(c->node, "num_heads", 0), &x)) < 0)
        return rc;
    bool inter = eng_attr_int(c->node, "interleaved", 0);
    int64_t rot = eng_attr_int(c->node, "rotary_embedding_dim", 0), half = (rot ? rot : x.d) / 2;
    rot = 2 * half;
    bool fits = rot <= x.d && rot >= 0 && cs.dtype == PST_F32 && sn.dtype == PST_F32 && eng_count(&cs) == eng_count(&sn) && cs.rank >= 2 &&
                cs.dims[cs.rank - 1] == half &&
                (pos ? pos->dtype == PST_I64 && eng_count(pos) == x.b * x.s : eng_count(&cs) == x.b * x.s * half);
    if (!fits)
        return eng_op_fail(c, PST_EINVAL, "caches or positions do not fit the input");
    int64_t rows = half ? eng_count(&cs) / half : 0;
    float *y = eng_out_like(c, 0, eng_in(c, 0));
    if (!y)
        return PST_ELIMIT;
    for (int64_t b = 0; b < x.b; b++)
        for (int64_t s = 0; s < x.s; s++) {
            int64_t p = pos ? ((const int64_t *)pos->data)[b * x.s + s] : b * x.s + s;
            if (half && (p < 0 || p >= rows))
                return eng_op_fail(c, PST_EINVAL, "a position is outside the cache");
            const float *cr = (const float *)cs.data + p * half, *sr = (const float *)sn.data + p * half;
            for (int64_t h = 0; h < x.h; h++) {
                int64_t at = b * x.sb + h * x.sh + s * x.ss;
                const float *in = x.data + at;
                for (int64_t i = 0; i < half; i++) {
                    int64_t a = inter ? 2 * i : i, z = inter ? 2 * i + 1 : i + half;
                    y[at + a] = cr[i] * in[a] - sr[i] * in[z];
                    y[at + z] = sr[i] * in[a] + cr[i] * in[z];
                }
                memcpy(y + at + rot, in + rot, (size_t)(x.d - rot) * sizeof *y);
            }
        }
    return 0;
}
