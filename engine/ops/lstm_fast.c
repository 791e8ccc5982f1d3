/* lstm_fast.c - LSTM cells without peepholes and other rarities. A slice of the batch walks all steps before the next one starts, so that
 * its states stay in L1; input and state lie side by side, so that a step is one product, and the columns of its weights are ordered so
 * that a register tile ends with all four gates of some units, whose cells follow at once (the lstm_step kernel). One or two rows would
 * spend their time on reading the input's weights at every step: they take the input side of many steps as one product before.
 * Rows whose sequence has ended are computed and not stored. */
#include "engine/ops/rnn.h"

#include "engine/cpu/isa.h"

#include <string.h>

enum { FEW_ROWS = 2, SLICE_FLOATS = 4 << 10, PART_FLOATS = 1 << 16 };

static int64_t whole_vectors(const eng_cpu_kernels *kn, int64_t hidden)
{
    return (hidden + kn->lanes - 1) / kn->lanes * kn->lanes;
}

size_t eng_lstm_floats(const eng_cpu_kernels *kn, int64_t hidden, int64_t in)
{
    return 4 * (size_t)whole_vectors(kn, hidden) * (size_t)(in + hidden);
}

/* What the kernels want a gate multiplied by, i o f c: both are exact. */
static float sign_of(int gate)
{
    return gate == 3 ? 2 : -1;
}

void eng_lstm_pack(const eng_cpu_kernels *kn, int64_t hidden, int64_t in, const float *w, const float *r, float *room, eng_rnn_packed *ret)
{
    int64_t units = whole_vectors(kn, hidden), k = in + hidden;
    int per_panel = kn->nr / kn->lanes;
    eng_packed wide = {.kernels = kn, .n = (int)(4 * units), .k = (int)in, .stride = (ptrdiff_t)k * kn->nr, .data = room};
    memset(room, 0, eng_lstm_floats(kn, hidden, in) * sizeof *room);
    for (int64_t v = 0; v < 4 * units / kn->lanes; v++) { /* a vector of columns: some units of one gate */
        int gate = (int)(v % 4);
        int64_t first = v / 4 * kn->lanes, row = gate * hidden + first;
        int n = hidden - first < kn->lanes ? (int)(hidden - first) : kn->lanes;
        float *to = room + v / per_panel * wide.stride + v % per_panel * kn->lanes;
        eng_pack_turned(n, (int)in, w + row * in, (size_t)in, to, (size_t)kn->nr);
        eng_pack_turned(n, (int)hidden, r + row * hidden, (size_t)hidden, to + in * kn->nr, (size_t)kn->nr);
        for (int64_t p = 0; p < k; p++)
            for (int i = 0; i < n; i++)
                to[p * kn->nr + i] *= sign_of(gate);
    }
    *ret = (eng_rnn_packed){.w = wide, .r = wide};
    ret->r.k = (int)hidden;
    ret->r.data = room + in * kn->nr;
}

/* Rows of the batch on their way in one direction. xh (rows, lead + units) twice: this step's and the next one's; the state stands behind
 * the input, or, when the input side is a product of its own (gates: so many steps of it), alone. */
typedef struct walk {
    const eng_rnn *s;
    const eng_cpu_kernels *kn;
    const eng_rnn_packed *w;
    int64_t dir, begin, rows, units, lead, ld, part;
    bool back;
    float *bias, *x, *gates, *c, *keep, *xh[2];
} walk;

/* The place of a row's step in x's order, or -1 when its sequence has ended. */
static int64_t place_of(const walk *k, int64_t b, int64_t step, int64_t *ret_t)
{
    int64_t len = eng_rnn_length(k->s, b), t = k->back ? len - 1 - step : step;
    *ret_t = t;
    if (step >= len)
        return -1;
    return k->s->batch_first ? b * k->s->seq + t : t * k->s->batch + b;
}

/* The rows' inputs of a step, 0 where there are none. */
static void fetch(const walk *k, int64_t step, float *to, int64_t ldto)
{
    size_t bytes = (size_t)k->s->in * sizeof *to;
    for (int64_t r = 0, t; r < k->rows; r++, to += ldto) {
        int64_t at = place_of(k, k->begin + r, step, &t);
        if (at < 0)
            memset(to, 0, bytes);
        else
            memcpy(to, k->s->x + at * k->s->in, bytes);
    }
}

/* The rows' states after a step to y; those that had ended before it are put back. */
static void deliver(const walk *k, int64_t step, float *y)
{
    const eng_rnn *s = k->s;
    const float *was = k->xh[step % 2] + k->lead;
    float *is = k->xh[(step + 1) % 2] + k->lead;
    size_t bytes = (size_t)s->hidden * sizeof *y;
    for (int64_t r = 0, t; r < k->rows; r++, was += k->ld, is += k->ld) {
        int64_t b = k->begin + r;
        if (place_of(k, b, step, &t) >= 0) {
            memcpy(y + (s->batch_first ? (b * s->seq + t) * s->dirs + k->dir : (t * s->dirs + k->dir) * s->batch + b) * s->hidden, is,
                   bytes);
            continue;
        }
        memcpy(is, was, bytes);
        memcpy(k->c + r * k->units, k->keep + r * k->units, bytes);
    }
}

/* The input side of the steps from this one on, as many as are kept. */
static void begin_part(const walk *k, int64_t step)
{
    int64_t left = k->s->seq - step, n = (left < k->part ? left : k->part) * k->rows, g = 4 * k->units;
    for (int64_t i = 0; i < n; i += k->rows)
        fetch(k, step + i / k->rows, k->x + i * k->s->in, k->s->in);
    for (int64_t i = 0; i < n; i++)
        memcpy(k->gates + i * g, k->bias, (size_t)g * sizeof(float));
    eng_sgemm_packed(&k->w->w, (int)n, 1, k->x, (int)k->s->in, 1, k->gates, (int)g);
}

static void walk_steps(const walk *k, float *y)
{
    const eng_rnn *s = k->s;
    for (int64_t step = 0; step < s->seq; step++) {
        float *from = k->xh[step % 2], *h = k->xh[(step + 1) % 2] + k->lead;
        if (s->lengths)
            memcpy(k->keep, k->c, (size_t)(k->rows * k->units) * sizeof(float));
        if (k->lead) {
            fetch(k, step, from, k->ld);
            k->kn->lstm_step(&(eng_lstm_step){.rows = (int)k->rows,
                                              .units = (int)k->units,
                                              .k = (int)(s->in + s->hidden),
                                              .x = from,
                                              .w = k->w->w.data,
                                              .bias = k->bias,
                                              .ldx = k->ld,
                                              .ldc = k->units,
                                              .ldh = k->ld,
                                              .c = k->c,
                                              .h = h});
        } else {
            float *gates = k->gates + step % k->part * k->rows * 4 * k->units;
            if (step % k->part == 0)
                begin_part(k, step);
            eng_sgemm_packed(&k->w->r, (int)k->rows, 1, from, (int)k->ld, 1, gates, (int)(4 * k->units));
            k->kn->lstm((int)k->rows, (int)k->units, gates, 4 * k->units, k->c, k->units, h, k->ld);
        }
        deliver(k, step, y);
    }
}

/* h0, c0 → the rows' states, or back: the states → yh, yc. */
static void states_in(const walk *k)
{
    const eng_rnn *s = k->s;
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t b = k->begin + r, at = (s->batch_first ? b * s->dirs + k->dir : k->dir * s->batch + b) * s->hidden;
        float *h = k->xh[0] + r * k->ld + k->lead, *c = k->c + r * k->units;
        for (int64_t i = 0; i < k->units; i++) {
            h[i] = s->h0 && i < s->hidden ? s->h0[at + i] : 0;
            c[i] = s->c0 && i < s->hidden ? s->c0[at + i] : 0;
        }
    }
}

static void states_out(const walk *k, float *yh, float *yc)
{
    const eng_rnn *s = k->s;
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t b = k->begin + r, at = (s->batch_first ? b * s->dirs + k->dir : k->dir * s->batch + b) * s->hidden;
        if (yh)
            memcpy(yh + at, k->xh[s->seq % 2] + r * k->ld + k->lead, (size_t)s->hidden * sizeof *yh);
        if (yc)
            memcpy(yc + at, k->c + r * k->units, (size_t)s->hidden * sizeof *yc);
    }
}

static void fill_bias(const walk *k)
{
    const eng_rnn *s = k->s;
    const float *b = s->b ? s->b + k->dir * 8 * s->hidden : NULL;
    int lanes = k->kn->lanes;
    for (int64_t i = 0; i < 4 * k->units; i++) {
        int gate = (int)(i / lanes % 4);
        int64_t unit = i / (4 * lanes) * lanes + i % lanes, at = gate * s->hidden + unit;
        k->bias[i] = b && unit < s->hidden ? sign_of(gate) * (b[at] + b[4 * s->hidden + at]) : 0;
    }
}

/* Sizes first: slice is how many rows walk together (their states fit L1), part how many steps take their input side as one product, which
 * is done for FEW_ROWS only; with more rows the input lies in front of the state (lead) and is part of the step. */
int eng_lstm_fast(eng_op_ctx *c, const eng_rnn *s, float *y, float *yh, float *yc)
{
    const eng_rnn_state *st = *c->state;
    walk k = {.s = s, .kn = st->kernels, .units = whole_vectors(st->kernels, s->hidden)};
    int64_t g = 4 * k.units, mr = k.kn->mr;
    k.lead = s->batch > FEW_ROWS ? s->in : 0;
    k.ld = k.lead + k.units;
    int64_t tiles = SLICE_FLOATS / (k.ld * mr), slice = mr * (tiles < 2 ? 2 : tiles > 16 ? 16 : tiles);
    slice = slice < s->batch ? slice : s->batch;
    k.part = PART_FLOATS / (s->batch * g);
    k.part = k.part > s->seq ? s->seq : k.part < 1 ? 1 : k.part;
    PST_ASSERT(slice > 0 && (k.part > 0 || !s->seq)); /* else a walk comes to no end */
    k.bias = eng_op_scratch(c, (size_t)g * 4);
    k.x = eng_op_scratch(c, k.lead ? 4 : (size_t)(k.part * s->batch * s->in) * 4);
    k.gates = eng_op_scratch(c, k.lead ? 4 : (size_t)(k.part * s->batch * g) * 4);
    k.c = eng_op_scratch(c, (size_t)(slice * k.units) * 4);
    k.keep = eng_op_scratch(c, (size_t)(slice * k.units) * 4);
    k.xh[0] = eng_op_scratch(c, (size_t)(slice * k.ld) * 4);
    k.xh[1] = eng_op_scratch(c, (size_t)(slice * k.ld) * 4);
    if (!k.bias || !k.x || !k.gates || !k.c || !k.keep || !k.xh[0] || !k.xh[1])
        return PST_ELIMIT;
    for (k.dir = 0; k.dir < s->dirs; k.dir++) {
        const float *wd = s->w + k.dir * 4 * s->hidden * s->in, *rd = s->r + k.dir * 4 * s->hidden * s->hidden;
        eng_rnn_packed own;
        k.w = &st->dir[k.dir];
        if (k.w->of_w != wd || k.w->of_r != rd) {
            float *room = eng_op_scratch(c, eng_lstm_floats(k.kn, s->hidden, s->in) * 4);
            if (!room)
                return PST_ELIMIT;
            eng_lstm_pack(k.kn, s->hidden, s->in, wd, rd, room, &own);
            k.w = &own;
        }
        k.back = k.dir == 1 || s->reverse;
        fill_bias(&k);
        for (k.begin = 0; k.begin < s->batch; k.begin += slice) {
            k.rows = s->batch - k.begin < slice ? s->batch - k.begin : slice;
            states_in(&k);
            walk_steps(&k, y);
            states_out(&k, yh, yc);
        }
    }
    c->kernel = "packed gates";
    return 0;
}
