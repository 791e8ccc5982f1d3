/* rnn.c - RNN, GRU, LSTM: one step function per cell, the walk over time, directions and lengths shared.
 * float32. This is the readable twin and serves unusual cells; the usual ones go to rnn_fast.c. */
#include "engine/ops/rnn.h"

#include "engine/ops/kernels.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef eng_rnn_act act;
typedef eng_rnn rnn;

/* The first three are eng_rnn_act_kind. */
static const char *const act_names[] = {"Relu",       "Tanh",        "Sigmoid", "Affine",   "LeakyRelu", "ThresholdedRelu",
                                        "ScaledTanh", "HardSigmoid", "Elu",     "Softsign", "Softplus"};

static float apply(const act *a, float x)
{
    switch (a->kind) {
    case 0: return x < 0 ? 0 : x;
    case 1: return tanhf(x);
    case 2: return 1 / (1 + expf(-x));
    case 3: return a->alpha * x + a->beta;
    case 4: return x < 0 ? a->alpha * x : x;
    case 5: return x > a->alpha ? x : 0;
    case 6: return a->alpha * tanhf(a->beta * x);
    case 7: return fmaxf(0, fminf(1, a->alpha * x + a->beta));
    case 8: return x < 0 ? a->alpha * expm1f(x) : x;
    case 9: return x / (1 + fabsf(x));
    default: return log1pf(expf(x));
    }
}

static int read_acts(eng_op_ctx *c, rnn *s)
{
    static const int usual[5][3] = {{0}, {1}, {0}, {2, 1}, {2, 1, 1}};
    static const float alphas[] = {0, 0, 0, 1, 0.01f, 1, 1, 0.2f, 1, 0, 0}, betas[] = {0, 0, 0, 0, 0, 0, 1, 0.5f, 0, 0, 0};
    size_t n, na, nb;
    const char *const *names = eng_attr_strings(c->node, "activations", &n);
    const float *al = eng_attr_floats(c->node, "activation_alpha", &na), *be = eng_attr_floats(c->node, "activation_beta", &nb);
    int per = s->gates == 1 ? 1 : s->gates - 1, total = per * (int)s->dirs;
    size_t ia = 0, ib = 0;
    for (int i = 0; i < total; i++) {
        int kind = usual[s->gates][i % per];
        if (names && (size_t)i < n) {
            kind = -1;
            for (int k = 0; k < 11; k++)
                kind = strcasecmp(names[i], act_names[k]) ? kind : k;
            if (kind < 0)
                return eng_op_fail(c, PST_EUNSUPPORTED, "activation %s is not covered", names[i]);
        }
        s->acts[i] = (act){kind, alphas[kind], betas[kind]};
        bool has_alpha = (kind >= 3 && kind <= 8), has_beta = kind == 3 || kind == 6 || kind == 7;
        if (has_alpha && ia < na)
            s->acts[i].alpha = al[ia++];
        if (has_beta && ib < nb)
            s->acts[i].beta = be[ib++];
    }
    return 0;
}

static bool shape_is(const pst_tensor *t, int rank, int64_t a, int64_t b, int64_t d)
{
    return !t || (t->dtype == PST_F32 && t->rank == rank && t->dims[0] == a && t->dims[1] == b && (rank < 3 || t->dims[2] == d));
}

/* W and R as ONNX has them, (dirs, gates·hidden, in) and (dirs, gates·hidden, hidden), or bytes and the other way round. */
static bool weights_fit(const rnn *s, const pst_tensor *w, const pst_tensor *r, bool bytes)
{
    int64_t g = s->gates * s->hidden;
    if (bytes)
        return w->dims[0] == s->dirs && w->dims[1] == s->in && w->dims[2] == g && r->dims[0] == s->dirs && r->dims[1] == s->hidden &&
               r->dims[2] == g;
    return shape_is(w, 3, s->dirs, g, s->in) && shape_is(r, 3, s->dirs, g, s->hidden);
}

/* Everything is held against the shapes once, here: kernels index without checks, and their sizes stay within an int. */
int eng_rnn_read(eng_op_ctx *c, int gates, bool bytes, eng_rnn *s)
{
    int rc = eng_op_need(c, 3);
    if (rc < 0)
        return rc;
    const pst_tensor *x = eng_in(c, 0), *w = eng_in(c, 1), *r = eng_in(c, 2), *b = eng_in(c, 3), *len = eng_in(c, 4), *h0 = eng_in(c, 5),
                     *c0 = gates == 4 ? eng_in(c, 6) : NULL, *p = gates == 4 ? eng_in(c, 7) : NULL;
    *s = (rnn){.gates = gates,
               .batch_first = eng_attr_int(c->node, "layout", 0),
               .clip = eng_attr_float(c->node, "clip", 0),
               .linear_before_reset = eng_attr_int(c->node, "linear_before_reset", 0),
               .input_forget = eng_attr_int(c->node, "input_forget", 0)};
    if (x->dtype != PST_F32 || (!bytes && (w->dtype != PST_F32 || r->dtype != PST_F32)))
        return eng_op_type(c, x->dtype);
    if (x->rank != 3 || w->rank != 3 || r->rank != 3)
        return eng_op_fail(c, PST_EINVAL, "X, W and R must have three dimensions");
    const char *dir = eng_attr_str(c->node, "direction", "forward");
    s->dirs = !strcmp(dir, "bidirectional") ? 2 : 1;
    s->reverse = !strcmp(dir, "reverse");
    s->hidden = r->dims[bytes ? 1 : 2];
    s->seq = x->dims[s->batch_first];
    s->batch = x->dims[!s->batch_first];
    s->in = x->dims[2];
    if (s->hidden > INT_MAX / 4)
        return eng_op_fail(c, PST_EINVAL, "the state is too wide");
    int64_t g = gates * s->hidden, b0 = s->batch_first ? s->batch : s->dirs, b1 = s->batch_first ? s->dirs : s->batch;
    if (!weights_fit(s, w, r, bytes) || !shape_is(b, 2, s->dirs, 2 * g, 0) || !shape_is(h0, 3, b0, b1, s->hidden) ||
        !shape_is(c0, 3, b0, b1, s->hidden) || !shape_is(p, 2, s->dirs, 3 * s->hidden, 0) ||
        (len && (len->dtype != PST_I32 || eng_count(len) != s->batch)) || g > INT_MAX / 4 || s->in > INT_MAX || s->seq > INT_MAX / 4 ||
        s->batch > INT_MAX / 4 || s->seq * s->batch > INT_MAX)
        return eng_op_fail(c, PST_EINVAL, "weights, biases or states do not fit the input");
    s->x = x->data;
    s->w = bytes ? NULL : w->data;
    s->r = bytes ? NULL : r->data;
    s->b = b ? b->data : NULL;
    s->h0 = h0 ? h0->data : NULL;
    s->c0 = c0 ? c0->data : NULL;
    s->peep = p ? p->data : NULL;
    s->lengths = len ? len->data : NULL;
    return read_acts(c, s);
}

static float clipped(const rnn *s, float v)
{
    return s->clip > 0 ? fmaxf(-s->clip, fminf(s->clip, v)) : v;
}

void eng_rnn_cell(const rnn *s, int64_t dir, const float *xg, const float *hg, float *h, float *cc, const float *rh)
{
    int64_t n = s->hidden;
    const act *a = s->acts + dir * (s->gates == 1 ? 1 : s->gates - 1);
    for (int64_t i = 0; i < n; i++) {
        if (s->gates == 1) {
            h[i] = apply(a, clipped(s, xg[i] + hg[i]));
        } else if (s->gates == 3) { /* z r h */
            float z = apply(a, clipped(s, xg[i] + hg[i]));
            float hh = apply(a + 1, clipped(s, xg[2 * n + i] + rh[i]));
            h[i] = (1 - z) * hh + z * h[i];
        } else { /* i o f c; peepholes i o f */
            const float *p = s->peep ? s->peep + dir * 3 * n : NULL;
            float ig = apply(a, clipped(s, xg[i] + hg[i] + (p ? p[i] * cc[i] : 0)));
            float fg = 1 - ig; /* coupled gates: what is not let in is kept */
            if (!s->input_forget)
                fg = apply(a, clipped(s, xg[2 * n + i] + hg[2 * n + i] + (p ? p[2 * n + i] * cc[i] : 0)));
            float cg = apply(a + 1, clipped(s, xg[3 * n + i] + hg[3 * n + i]));
            cc[i] = fg * cc[i] + ig * cg;
            float og = apply(a, clipped(s, xg[n + i] + hg[n + i] + (p ? p[n + i] * cc[i] : 0)));
            h[i] = og * apply(a + 2, cc[i]);
        }
    }
}

/* The hidden gate of a GRU needs the reset gate first: r∘(Rh·h + b) or Rh·(r∘h) + b. */
static void gru_hidden(const rnn *s, int64_t dir, const float *xg, const float *hg, const float *h, const float *rb, float *reset,
                       float *rh)
{
    int64_t n = s->hidden;
    const act *a = s->acts + dir * 2;
    for (int64_t i = 0; i < n; i++)
        reset[i] = apply(a, clipped(s, xg[n + i] + hg[n + i]));
    if (s->linear_before_reset) {
        for (int64_t i = 0; i < n; i++)
            rh[i] = reset[i] * hg[2 * n + i];
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        reset[i] *= h[i];
        rh[i] = rb ? rb[2 * n + i] : 0;
    }
    const float *r = s->r + dir * 3 * n * n + 2 * n * n;
    pst_sgemm(false, true, 1, (int)n, (int)n, 1, reset, (int)n, r, (int)n, 1, rh, (int)n);
}

static int run_rnn(eng_op_ctx *c, int gates)
{
    rnn s;
    int rc = eng_rnn_read(c, gates, false, &s);
    if (rc < 0)
        return rc;
    int64_t n = s.hidden, g = gates * n, T = s.seq, B = s.batch;
    int64_t ydims[4] = {T, s.dirs, B, n}, ybf[4] = {B, T, s.dirs, n}, hdims[3] = {s.dirs, B, n}, hbf[3] = {B, s.dirs, n};
    float *y = eng_out(c, 0, PST_F32, 4, s.batch_first ? ybf : ydims);
    float *yh = c->n_out > 1 ? eng_out(c, 1, PST_F32, 3, s.batch_first ? hbf : hdims) : NULL;
    float *yc = c->n_out > 2 ? eng_out(c, 2, PST_F32, 3, s.batch_first ? hbf : hdims) : NULL;
    if ((uint64_t)(T * B) * (uint64_t)g > c->plan->m->limits.tensor_bytes_max / 4)
        return eng_op_fail(c, PST_ELIMIT, "too large");
    if (!y || (c->n_out > 1 && !yh) || (c->n_out > 2 && !yc))
        return PST_ELIMIT;
    if (s.lengths) /* steps behind a row's end are 0 */
        memset(y, 0, (size_t)(T * B * s.dirs * n) * sizeof *y);
    rc = c->plan->opts.no_fusion ? 1 : eng_rnn_fast(c, &s, y, yh, yc);
    if (rc <= 0) /* done, or failed; 1: not by that way */
        return rc;
    float *xg = eng_op_scratch(c, (size_t)(T * B * g) * 4), *hg = eng_op_scratch(c, (size_t)(B * g) * 4),
          *h = eng_op_scratch(c, (size_t)(B * n) * 4), *cc = eng_op_scratch(c, (size_t)(B * n) * 4),
          *tmp = eng_op_scratch(c, (size_t)(2 * n) * 4);
    if (!xg || !hg || !h || !cc || !tmp)
        return PST_ELIMIT;
    for (int64_t d = 0; d < s.dirs; d++) {
        bool back = d == 1 || s.reverse;
        const float *wb = s.b ? s.b + d * 2 * g : NULL, *rb = wb ? wb + g : NULL;
        for (int64_t i = 0; i < T * B * g; i++)
            xg[i] = wb ? wb[i % g] : 0;
        pst_sgemm(false, true, (int)(T * B), (int)g, (int)s.in, 1, s.x, (int)s.in, s.w + d * g * s.in, (int)s.in, 1, xg, (int)g);
        for (int64_t b = 0; b < B; b++) {
            int64_t st = s.batch_first ? b * s.dirs + d : d * B + b;
            for (int64_t i = 0; i < n; i++) {
                h[b * n + i] = s.h0 ? s.h0[st * n + i] : 0;
                cc[b * n + i] = s.c0 ? s.c0[st * n + i] : 0;
            }
        }
        for (int64_t step = 0; step < T; step++) {
            for (int64_t i = 0; i < B * g; i++)
                hg[i] = rb ? rb[i % g] : 0;
            pst_sgemm(false, true, (int)B, (int)g, (int)n, 1, h, (int)n, s.r + d * g * n, (int)n, 1, hg, (int)g);
            for (int64_t b = 0; b < B; b++) {
                int64_t len = s.lengths ? s.lengths[b] : T;
                len = len < 0 ? 0 : len > T ? T : len;
                if (step >= len)
                    continue;
                int64_t t = back ? len - 1 - step : step;
                const float *xr = xg + (s.batch_first ? b * T + t : t * B + b) * g;
                if (gates == 3)
                    gru_hidden(&s, d, xr, hg + b * g, h + b * n, rb, tmp, tmp + n);
                eng_rnn_cell(&s, d, xr, hg + b * g, h + b * n, cc + b * n, tmp + n);
                float *to = y + (s.batch_first ? (b * T + t) * s.dirs + d : (t * s.dirs + d) * B + b) * n;
                memcpy(to, h + b * n, (size_t)n * sizeof *to);
            }
        }
        for (int64_t b = 0; b < B; b++) {
            int64_t st = s.batch_first ? b * s.dirs + d : d * B + b;
            if (yh)
                memcpy(yh + st * n, h + b * n, (size_t)n * sizeof *yh);
            if (yc)
                memcpy(yc + st * n, cc + b * n, (size_t)n * sizeof *yc);
        }
    }
    return 0;
}

int eng_prepare_rnn(eng_op_ctx *c)
{
    return eng_rnn_fast_prepare(c, 1);
}

int eng_op_rnn(eng_op_ctx *c)
{
    return run_rnn(c, 1);
}

int eng_prepare_gru(eng_op_ctx *c)
{
    return eng_rnn_fast_prepare(c, 3);
}

int eng_op_gru(eng_op_ctx *c)
{
    return run_rnn(c, 3);
}

int eng_prepare_lstm(eng_op_ctx *c)
{
    return eng_rnn_fast_prepare(c, 4);
}

int eng_op_lstm(eng_op_ctx *c)
{
    return run_rnn(c, 4);
}
