/* rnn_fast.c - the usual RNN and GRU cells (LSTM: lstm_fast.c): the input side of all steps as one product, the recurrent side as one
 * small product per step with weights packed once, gates by vector activations. Cells with peepholes, clipping, coupled gates or other
 * activations are left to rnn.c. Sequences of different lengths: rows whose end has come are computed and not stored. */
#include "engine/ops/rnn.h"

#include "engine/cpu/isa.h"
#include "engine/plan.h"
#include "engine/share.h"

#include <string.h>

enum { WIDTH_MAX = 1 << 20 };

bool eng_rnn_usual(const eng_rnn *s)
{
    static const int want[5][3] = {
        {0}, {ENG_RNN_TANH}, {0}, {ENG_RNN_SIGMOID, ENG_RNN_TANH}, {ENG_RNN_SIGMOID, ENG_RNN_TANH, ENG_RNN_TANH}};
    int per = s->gates == 1 ? 1 : s->gates - 1;
    for (int i = 0; i < per * (int)s->dirs; i++)
        if (s->acts[i].kind != want[s->gates][i % per] && !(s->gates == 1 && s->acts[i].kind <= ENG_RNN_SIGMOID))
            return false;
    return !(s->clip > 0) && !s->peep && !s->input_forget && s->hidden > 0 && s->in > 0 && s->batch > 0 &&
           s->gates * s->hidden <= WIDTH_MAX && s->in <= WIDTH_MAX;
}

/* Rows of r that the first product takes: without linear_before_reset a GRU's last gate waits for the reset gate. */
static int64_t first_rows(int gates, bool linear_before_reset, int64_t hidden)
{
    return gates == 3 && !linear_before_reset ? 2 * hidden : gates * hidden;
}

static size_t floats_of(const eng_cpu_kernels *kn, int gates, int64_t first, int64_t hidden, int64_t in)
{
    if (gates == 4)
        return eng_lstm_floats(kn, hidden, in);
    return eng_packed_floats(kn, (int)(gates * hidden), (int)in) + eng_packed_floats(kn, (int)first, (int)hidden) +
           eng_packed_floats(kn, (int)hidden, (int)hidden);
}

static void pack(const eng_cpu_kernels *kn, int gates, int64_t first, int64_t hidden, int64_t in, const float *w, const float *r,
                 float *room, eng_rnn_packed *ret)
{
    if (gates == 4) {
        eng_lstm_pack(kn, hidden, in, w, r, room, ret);
        return;
    }
    int n = (int)hidden, all = (int)(gates * hidden);
    eng_sgemm_pack(kn, true, all, (int)in, w, (int)in, room, &ret->w);
    room += eng_packed_floats(kn, all, (int)in);
    eng_sgemm_pack(kn, true, (int)first, n, r, n, room, &ret->r);
    room += eng_packed_floats(kn, (int)first, n);
    if (first < all)
        eng_sgemm_pack(kn, true, n, n, r + first * hidden, n, room, &ret->last);
}

static int pack_all(eng_op_ctx *c, void *made)
{
    eng_rnn_state *s = made;
    const pst_tensor *w = eng_in(c, 1), *r = eng_in(c, 2);
    int64_t dirs = w->dims[0], all = w->dims[1], in = w->dims[2], hidden = r->dims[2];
    int gates = (int)(all / hidden);
    int64_t first = first_rows(gates, eng_attr_int(c->node, "linear_before_reset", 0), hidden);
    s->kernels = eng_kernels_pick(c->plan->isa);
    for (int64_t d = 0; d < dirs; d++) {
        float *room = eng_op_keep(c, floats_of(s->kernels, gates, first, hidden, in) * sizeof *room);
        const float *wd = (const float *)w->data + d * all * in, *rd = (const float *)r->data + d * all * hidden;
        pack(s->kernels, gates, first, hidden, in, wd, rd, room, &s->dir[d]);
        s->dir[d].of_w = wd;
        s->dir[d].of_r = rd;
    }
    return 0;
}

static int without_weights(eng_op_ctx *c)
{
    eng_rnn_state *s = eng_op_keep(c, sizeof *s);
    s->kernels = eng_kernels_pick(c->plan->isa);
    *c->state = s;
    return 0;
}

int eng_rnn_fast_prepare(eng_op_ctx *c, int gates)
{
    const pst_tensor *w = eng_in(c, 1), *r = eng_in(c, 2);
    if (c->plan->opts.no_fusion || !w || !r || w->dtype != PST_F32 || r->dtype != PST_F32 || w->rank != 3 || r->rank != 3)
        return without_weights(c);
    int64_t dirs = w->dims[0], all = w->dims[1], in = w->dims[2], hidden = r->dims[2];
    if (dirs < 1 || dirs > 2 || all != gates * hidden || r->dims[0] != dirs || r->dims[1] != all || in < 1 || hidden < 1 ||
        all > WIDTH_MAX || in > WIDTH_MAX)
        return without_weights(c);
    bool before = eng_attr_int(c->node, "linear_before_reset", 0);
    const eng_share_key key = {.what = "recurrent cells", .of = w->data, .by = r->data, .variant = (hidden << 4 | gates) << 1 | before};
    return eng_op_share(c, &key, eng_of_model(c, 1) && eng_of_model(c, 2), sizeof(eng_rnn_state), pack_all, c->state);
}

/* One direction's buffers. xg (part·B, gates·hidden) in the order of x: the input side of so many steps as L2 holds, or of all when rows
 * have lengths of their own or the batch comes first, hg (B, gates·hidden), h and reset (B, hidden). */
typedef struct walk {
    const eng_rnn *s;
    const eng_cpu_kernels *kn;
    const eng_rnn_packed *w;
    int64_t part;
    const float *bias; /* (gates·hidden), added when a step takes its gates */
    const float *rb;   /* recurrent bias of what is not in xg: a GRU's last gate; NULL = none */
    float *xg, *hg, *h, *reset, *hidden;
} walk;

static eng_act act_of(int kind)
{
    return kind == ENG_RNN_RELU ? ENG_ACT_RELU : kind == ENG_RNN_TANH ? ENG_ACT_TANH : ENG_ACT_SIGMOID;
}

/* hg: the gates' input side of this step for all rows, hidden: the rows' states, both replaced. */
static void cells(const walk *k, int64_t dir)
{
    const eng_rnn *s = k->s;
    int n = (int)s->hidden, b_n = (int)s->batch, g = s->gates * n;
    if (s->gates == 1) {
        eng_sgemm_packed(&k->w->r, b_n, 1, k->h, n, 1, k->hg, g);
        k->kn->act(act_of(s->acts[dir].kind), 0, 0, k->hg, k->h, (size_t)b_n * (size_t)n);
        return;
    }
    if (s->linear_before_reset) { /* the last gate's recurrent side stays apart from its input side */
        eng_sgemm_packed(&k->w->r, b_n, 1, k->h, n, 0, k->hidden, g);
        for (int b = 0; b < b_n; b++) {
            float *x = k->hg + b * g, *r = k->hidden + b * g;
            k->kn->plane(1, 2 * n, r, 0, 0, x, false, x, 0);
            if (k->rb)
                k->kn->plane(1, n, r + 2 * n, 0, 0, k->rb, false, r + 2 * n, 0);
            k->kn->act(ENG_ACT_SIGMOID, 0, 0, x, x, (size_t)(2 * n));
            k->kn->gru(n, x, x + 2 * n, x + n, r + 2 * n, k->h + b * n);
        }
        return;
    }
    eng_sgemm_packed(&k->w->r, b_n, 1, k->h, n, 1, k->hg, g);
    for (int b = 0; b < b_n; b++) {
        float *x = k->hg + b * g, *reset = k->reset + b * n;
        k->kn->act(ENG_ACT_SIGMOID, 0, 0, x, x, (size_t)(2 * n));
        for (int i = 0; i < n; i++)
            reset[i] = x[n + i] * k->h[b * n + i];
    }
    eng_sgemm_packed(&k->w->last, b_n, 1, k->reset, n, 1, k->hg + 2 * n, g);
    for (int b = 0; b < b_n; b++) {
        float *x = k->hg + b * g;
        k->kn->gru(n, x, x + 2 * n, NULL, NULL, k->h + b * n);
    }
}

/* The input side of the steps whose part begins with this one. */
static void begin_part(const walk *k, int64_t step, bool back)
{
    const eng_rnn *s = k->s;
    int64_t n = s->seq - step < k->part ? s->seq - step : k->part, from = back ? s->seq - step - n : step;
    const float *x = k->part < s->seq ? s->x + from * s->batch * s->in : s->x;
    eng_sgemm_packed(&k->w->w, (int)((k->part < s->seq ? n : s->seq) * s->batch), 1, x, (int)s->in, 0, k->xg, (int)(s->gates * s->hidden));
}

static void walk_steps(const walk *k, int64_t d, bool back, float *y, float *keep)
{
    const eng_rnn *s = k->s;
    int64_t n = s->hidden, T = s->seq, B = s->batch;
    int g = (int)(s->gates * n);
    for (int64_t step = 0; step < T; step++) {
        int64_t in_part = step % k->part, left = T - (step - in_part), size = left < k->part ? left : k->part;
        bool ended = false;
        if (!in_part)
            begin_part(k, step, back);
        for (int64_t b = 0; b < B; b++) {
            int64_t len = eng_rnn_length(s, b), t = back ? len - 1 - step : step;
            int64_t row = t;
            if (k->part < T) /* the buffer holds one part of the steps, in their order of time */
                row = back ? size - 1 - in_part : in_part;
            ended |= step >= len;
            row = s->batch_first ? b * T + t : row * B + b;
            if (step < len)
                k->kn->plane(1, g, k->xg + row * g, 0, 0, k->bias, false, k->hg + b * g, 0);
            else
                memset(k->hg + b * g, 0, (size_t)g * sizeof(float));
        }
        if (ended) /* their state is the result: the step must not change it */
            memcpy(keep, k->h, (size_t)(B * n) * sizeof(float));
        cells(k, d);
        for (int64_t b = 0; b < B; b++) {
            int64_t len = eng_rnn_length(s, b), t = back ? len - 1 - step : step;
            if (step < len) {
                memcpy(y + (s->batch_first ? (b * T + t) * s->dirs + d : (t * s->dirs + d) * B + b) * n, k->h + b * n,
                       (size_t)n * sizeof *y);
                continue;
            }
            memcpy(k->h + b * n, keep + b * n, (size_t)n * sizeof(float));
        }
    }
}

/* The biases that may be added before the walk: all of the input side, and of the recurrent side what no reset gate multiplies. */
static void fill_biases(const eng_rnn *s, int64_t d, float *bias)
{
    bool reset_multiplies = s->gates == 3 && s->linear_before_reset;
    int64_t g = s->gates * s->hidden, both = reset_multiplies ? 2 * s->hidden : g;
    const float *wb = s->b ? s->b + d * 2 * g : NULL;
    for (int64_t i = 0; i < g; i++) {
        bias[i] = wb ? wb[i] : 0;
        if (wb && i < both)
            bias[i] += wb[g + i];
    }
}

/* Returns 1 for an unusual cell, which is left to rnn.c. Weights that are not those packed with the plan (they are computed in the run) are
 * packed for this run. Where rows have lengths of their own, or come batch first, all steps are one part. */
int eng_rnn_fast(eng_op_ctx *c, const eng_rnn *s, float *y, float *yh, float *yc)
{
    if (!eng_rnn_usual(s))
        return 1;
    if (s->gates == 4)
        return eng_lstm_fast(c, s, y, yh, yc);
    const eng_rnn_state *st = *c->state;
    const eng_cpu_kernels *kn = st->kernels;
    int64_t n = s->hidden, g = s->gates * n, T = s->seq, B = s->batch, first = first_rows(s->gates, s->linear_before_reset, n);
    enum { PART_FLOATS = 1 << 16 };
    walk k = {.s = s, .kn = kn, .part = PART_FLOATS / (B * g)};
    bool whole = s->lengths || s->batch_first; /* steps of one batch do not lie together: all are taken at once */
    if (k.part < 1)
        k.part = 1;
    if (whole || k.part > T)
        k.part = T;
    PST_ASSERT(k.part <= T && (k.part > 0 || !T));
    float *bias = eng_op_scratch(c, (size_t)g * 4), *keep = eng_op_scratch(c, (size_t)(B * n) * 4),
          *room = eng_op_scratch(c, floats_of(kn, s->gates, first, n, s->in) * 4);
    k.bias = bias;
    k.xg = eng_op_scratch(c, (size_t)(k.part * B * g) * 4);
    k.hg = eng_op_scratch(c, (size_t)(B * g) * 4);
    k.hidden = eng_op_scratch(c, (size_t)(B * g) * 4);
    k.h = eng_op_scratch(c, (size_t)(B * n) * 4);
    k.reset = eng_op_scratch(c, (size_t)(B * n) * 4);
    if (!bias || !keep || !room || !k.xg || !k.hg || !k.hidden || !k.h || !k.reset)
        return PST_ELIMIT;
    for (int64_t d = 0; d < s->dirs; d++) {
        const float *wd = s->w + d * g * s->in, *rd = s->r + d * g * n;
        eng_rnn_packed own;
        k.w = &st->dir[d];
        if (k.w->of_w != wd || k.w->of_r != rd) {
            pack(kn, s->gates, first, n, s->in, wd, rd, room, &own);
            k.w = &own;
        }
        k.rb = s->gates == 3 && s->linear_before_reset && s->b ? s->b + d * 2 * g + g + 2 * n : NULL;
        fill_biases(s, d, bias);
        for (int64_t b = 0; b < B; b++) {
            int64_t at = (s->batch_first ? b * s->dirs + d : d * B + b) * n;
            for (int64_t i = 0; i < n; i++)
                k.h[b * n + i] = s->h0 ? s->h0[at + i] : 0;
        }
        walk_steps(&k, d, d == 1 || s->reverse, y, keep);
        for (int64_t b = 0; b < B; b++) {
            int64_t at = (s->batch_first ? b * s->dirs + d : d * B + b) * n;
            if (yh)
                memcpy(yh + at, k.h + b * n, (size_t)n * sizeof *yh);
        }
    }
    c->kernel = "packed gates";
    return 0;
}
