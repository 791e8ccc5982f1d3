/* lstm_bytes.c - ONNX Runtime's DynamicQuantizeLSTM: weights of bytes, and inputs and states that become bytes on the way: the inputs of all steps by one scale, the
 * states of all rows by one scale a step, as ONNX Runtime does it. Sums are exact. The columns of the weights stand in the order of the lstm kernel, whose signs are in
 * their scales, so that gates come out ready for it; cells with peepholes and other rarities are put back in ONNX's order for the plain cell of rnn.c. Plans without
 * fusion take loops and the plain cell: the readable twin. */
#include "engine/cpu/isa.h"
#include "engine/ops/kernels.h"
#include "engine/plan.h"
#include "engine/ops/quant_matmul.h"
#include "engine/ops/rnn.h"
#include "engine/share.h"

#include <math.h>
#include <string.h>

enum { GATES = 4, IN_W = 1, IN_R = 2, WIDTH_MAX = 1 << 20 };

/* ---- the order of columns ---- */

/* Vectors of units, i o f c in turn; lanes 1: i o f c of each unit. */
static int gate_of(int lanes, int64_t column)
{
    return (int)(column / lanes % GATES);
}

static int64_t unit_of(int lanes, int64_t column)
{
    return column / (GATES * lanes) * lanes + column % lanes;
}

/* What the lstm kernel wants a gate multiplied by: both are exact. */
static float sign_of(int gate)
{
    return gate == 3 ? 2 : -1;
}

static int64_t whole_vectors(int lanes, int64_t hidden)
{
    return (hidden + lanes - 1) / lanes * lanes;
}

/* ---- weights ---- */

typedef struct packed {
    eng_int8_right side[2]; /* of each direction */
    const void *of;
} packed;

typedef struct packed_pair {
    const packed *w, *r; /* NULL = no constant: packed in each run */
} packed_pair;

static bool is_byte(const pst_tensor *t)
{
    return t->dtype == PST_U8 || t->dtype == PST_I8;
}

/* b (k, 4·hidden) with its columns in order; turned: room of 4·units·k bytes for them, columns first. */
static void pack_side(const eng_int8_kernels *kn, int lanes, int64_t hidden, int64_t k, const uint8_t *b, bool is_signed, uint8_t *turned,
                      void *room, eng_int8_right *ret)
{
    int64_t n = GATES * whole_vectors(lanes, hidden);
    memset(turned, 0, (size_t)(n * k));
    for (int64_t j = 0; j < n; j++) {
        int64_t from = gate_of(lanes, j) * hidden + unit_of(lanes, j);
        for (int64_t p = 0; p < k && unit_of(lanes, j) < hidden; p++)
            turned[j * k + p] = b[p * GATES * hidden + from];
    }
    eng_int8_pack(kn, (int)n, (int)k, turned, 1, (size_t)k, is_signed, room, ret);
}

static const eng_int8_kernels *bytes_of(const eng_op_ctx *c)
{
    return eng_int8_pick(eng_kernels_pick(c->plan->isa)->isa);
}

static int pack_all(eng_op_ctx *c, const pst_tensor *t, packed *ret)
{
    const eng_int8_kernels *kn = bytes_of(c);
    int lanes = eng_kernels_pick(c->plan->isa)->lanes;
    int64_t k = t->dims[1], hidden = t->dims[2] / GATES, n = GATES * whole_vectors(lanes, hidden);
    eng_zone work = {.chunk = 4096};
    uint8_t *turned = eng_zone_alloc(&work, (size_t)(n * k));
    for (int64_t d = 0; d < t->dims[0]; d++)
        pack_side(kn, lanes, hidden, k, (const uint8_t *)t->data + d * k * GATES * hidden, t->dtype == PST_I8, turned,
                  eng_op_keep(c, eng_int8_right_bytes(kn, (int)n, (int)k)), &ret->side[d]);
    eng_zone_done(&work);
    ret->of = t->data;
    return 0;
}

static int pack_w(eng_op_ctx *c, void *made)
{
    return pack_all(c, eng_in(c, IN_W), made);
}

static int pack_r(eng_op_ctx *c, void *made)
{
    return pack_all(c, eng_in(c, IN_R), made);
}

/* Weights of another shape are left to the run, which refuses them. */
static bool packs(const eng_op_ctx *c, const pst_tensor *t)
{
    if (!t || c->plan->opts.no_fusion || !is_byte(t) || t->rank != 3 || t->dims[0] < 1 || t->dims[0] > 2 || t->dims[1] < 1 ||
        t->dims[2] < GATES || t->dims[2] % GATES || t->dims[1] > WIDTH_MAX || t->dims[2] > WIDTH_MAX)
        return false;
    int64_t n = GATES * whole_vectors(eng_kernels_pick(c->plan->isa)->lanes, t->dims[2] / GATES);
    return eng_plan_room_take(c->plan, (size_t)t->dims[0] * eng_int8_right_bytes(bytes_of(c), (int)n, (int)t->dims[1]));
}

int eng_prepare_dynamic_quantize_lstm(eng_op_ctx *c)
{
    packed_pair *s = eng_op_keep(c, sizeof *s);
    *c->state = s;
    for (int i = IN_W; i <= IN_R; i++) {
        const pst_tensor *t = eng_in(c, i);
        if (!packs(c, t))
            continue;
        const eng_share_key key = {
            .what = "int8 cells", .of = t->data, .variant = t->dims[1] << 2 | (t->dims[0] == 2) << 1 | (t->dtype == PST_I8)};
        int rc = eng_op_share(c, &key, eng_of_model(c, i), sizeof(packed), i == IN_W ? pack_w : pack_r, i == IN_W ? &s->w : &s->r);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- one product ---- */

/* W or R of one direction, with what its product needs. */
typedef struct side {
    int64_t k, hidden, units;
    int lanes;
    const uint8_t *bytes; /* (k, 4·hidden) as in the file */
    bool is_signed, loops;
    const eng_int8_kernels *kn;
    eng_int8_mul mul;
    int32_t *zeros; /* of each column, in order, as those below */
    float *scale, *by;
    int32_t *sums; /* (mul.rows, columns) */
} side;

static int byte_at(const pst_tensor *t, int64_t i)
{
    return t->dtype == PST_U8 ? ((const uint8_t *)t->data)[i] : ((const int8_t *)t->data)[i];
}

/* One scale and one zero point for each direction, or for each column of it. */
static int check_scales(eng_op_ctx *c, const eng_rnn *s, int weights, int scale, int zero)
{
    const pst_tensor *w = eng_in(c, weights), *sc = eng_in(c, scale), *z = eng_in(c, zero);
    const char *name = weights == IN_W ? "W" : "R";
    if (!sc || !z)
        return eng_op_fail(c, PST_EINVAL, "%s has no scale or no zero point", name);
    if (!is_byte(w) || z->dtype != w->dtype || sc->dtype != PST_F32)
        return eng_op_fail(c, PST_EINVAL, "%s and its zero point must be of one type of 8 bits, its scale float32", name);
    int64_t each = s->dirs * GATES * s->hidden, n = eng_count(sc), nz = eng_count(z);
    if ((n != s->dirs && n != each) || (nz != s->dirs && nz != each))
        return eng_op_fail(c, PST_EINVAL,
                           "%s has %lld scales and %lld zero points: one for each direction or for each of its columns is needed", name,
                           (long long)n, (long long)nz);
    return 0;
}

/* The scales and zero points of direction d in the order of the columns; those of no unit are 0. */
static void fill_scales(const side *g, const eng_rnn *s, int64_t d, const pst_tensor *sc, const pst_tensor *z)
{
    int64_t n = GATES * g->units, all = GATES * g->hidden;
    bool each = eng_count(sc) != s->dirs || all == 1, each_zero = eng_count(z) != s->dirs;
    for (int64_t j = 0; j < n; j++) {
        int64_t unit = unit_of(g->lanes, j), at = d * all + gate_of(g->lanes, j) * g->hidden + unit;
        bool none = unit >= g->hidden;
        g->scale[j] = none ? 0 : sign_of(gate_of(g->lanes, j)) * ((const float *)sc->data)[each ? at : d];
        g->zeros[j] = none ? 0 : byte_at(z, each_zero ? at : d);
    }
}

/* One side of a direction's products, its weights (weights: IN_W or those of the state) turned and packed: as they were kept with the model where they are
 * the model's own, else now, in the run's scratch. All rooms are taken before the first is filled, so that a lack unwinds with nothing half made. */
static int side_make(eng_op_ctx *c, const eng_rnn *s, int64_t d, int weights, side *g)
{
    const packed_pair *kept = *c->state;
    const packed *p = !kept ? NULL : weights == IN_W ? kept->w : kept->r;
    const pst_tensor *w = eng_in(c, weights), *sc = eng_in(c, weights == IN_W ? 8 : 10), *z = eng_in(c, weights == IN_W ? 9 : 11);
    g->loops = c->plan->opts.no_fusion;
    g->lanes = g->loops ? 1 : eng_kernels_pick(c->plan->isa)->lanes;
    g->k = weights == IN_W ? s->in : s->hidden;
    g->hidden = s->hidden;
    g->units = whole_vectors(g->lanes, s->hidden);
    g->is_signed = w->dtype == PST_I8;
    g->bytes = (const uint8_t *)w->data + d * g->k * GATES * g->hidden;
    g->kn = bytes_of(c);
    int64_t n = GATES * g->units;
    g->zeros = eng_op_scratch(c, (size_t)n * sizeof *g->zeros);
    g->scale = eng_op_scratch(c, (size_t)n * sizeof *g->scale);
    g->by = eng_op_scratch(c, (size_t)n * sizeof *g->by);
    if (!g->zeros || !g->scale || !g->by)
        return PST_ELIMIT;
    fill_scales(g, s, d, sc, z);
    if (g->loops)
        return 0;
    eng_int8_right *right = eng_op_scratch(c, sizeof *right);
    bool there = p && p->of == w->data;
    uint8_t *turned = there ? NULL : eng_op_scratch(c, (size_t)(n * g->k));
    void *room = there ? NULL : eng_op_scratch(c, eng_int8_right_bytes(g->kn, (int)n, (int)g->k) + 64);
    if (!right || (!there && (!turned || !room)))
        return PST_ELIMIT;
    if (there)
        *right = p->side[d];
    else
        pack_side(g->kn, g->lanes, g->hidden, g->k, g->bytes, g->is_signed, turned, room, right);
    int rc = eng_int8_mul_make(c, right, false, g->is_signed, 0, g->zeros, n, NULL, &g->mul);
    g->sums = rc < 0 ? NULL : eng_op_scratch(c, (size_t)g->mul.rows * (size_t)n * sizeof *g->sums);
    return rc < 0 ? rc : g->sums ? 0 : PST_ELIMIT;
}

/* Bytes of numbers by one scale. */
typedef struct quantised {
    uint8_t *q;
    float scale;
    int zero;
} quantised;

/* As DynamicQuantizeLinear; numbers that are all 0 have the scale 1. */
static void quantise(const eng_int8_kernels *kn, int64_t n, const float *x, quantised *to)
{
    float lo = 0, hi = 0;
    kn->range(n, x, &lo, &hi);
    to->scale = hi > lo ? (hi - lo) / 255 : 1;
    to->zero = (int)rintf(fmaxf(0, fminf(255, -lo / to->scale)));
    kn->quantise(n, x, to->scale, to->zero, 0, to->q);
}

/* to (m, 4·units) = bias + a · b, in the order and with the signs of the columns; a (m, k), rows lda apart; bias, which is not to: ldb apart, 0 = one for all rows. */
static void product(const side *g, int64_t m, const quantised *a, int64_t lda, const float *bias, int64_t ldb, float *to)
{
    int64_t n = GATES * g->units;
    for (int64_t j = 0; j < n; j++)
        g->by[j] = a->scale * g->scale[j];
    if (!g->loops)
        eng_int8_mul_zero(&g->mul, a->zero, NULL);
    for (int64_t i = 0; i < m && !g->loops; i += g->mul.rows) {
        int some = (int)(m - i < g->mul.rows ? m - i : g->mul.rows);
        eng_int8_mul_rows(&g->mul, some, a->q + i * lda, (size_t)lda, 1, g->sums, n);
        for (int r = 0; r < some; r++)
            g->kn->floats(n, g->sums + r * n, g->by, 1, bias + (i + r) * ldb, to + (i + r) * n);
    }
    for (int64_t at = 0; at < m * n && g->loops; at++) {
        int64_t j = at % n, from = gate_of(g->lanes, j) * g->hidden + unit_of(g->lanes, j);
        uint32_t sum = 0;
        for (int64_t p = 0; p < g->k; p++) {
            uint8_t b = g->bytes[p * GATES * g->hidden + from];
            sum += (uint32_t)((a->q[at / n * lda + p] - a->zero) * ((g->is_signed ? (int)(int8_t)b : (int)b) - g->zeros[j]));
        }
        to[at] = (float)(int32_t)sum * g->by[j] + bias[at / n * ldb + j];
    }
}

/* ---- the walk over time ---- */

/* One direction. xg (seq·batch, 4·units): the input side of all gates; gates (batch, 4·units), h and c (batch, units): a step's. */
typedef struct walk {
    const eng_rnn *s;
    const eng_cpu_kernels *kn;
    int64_t d;
    bool back, usual, seen; /* usual: for the lstm kernel; seen: somebody wants the states of all steps */
    side w, r;
    quantised states;
    float *bias, *xg, *from, *gates, *h, *c, *plain;
    float *last_h, *last_c; /* (batch, hidden): of each row's last step */
} walk;

static void fill_bias(const walk *k)
{
    const eng_rnn *s = k->s;
    const float *b = s->b ? s->b + k->d * 2 * GATES * s->hidden : NULL;
    for (int64_t j = 0; j < GATES * k->w.units; j++) {
        int gate = gate_of(k->w.lanes, j);
        int64_t unit = unit_of(k->w.lanes, j), at = gate * s->hidden + unit;
        k->bias[j] = b && unit < s->hidden ? sign_of(gate) * (b[at] + b[GATES * s->hidden + at]) : 0;
    }
}

static void states_in(const walk *k)
{
    const eng_rnn *s = k->s;
    int64_t units = k->w.units;
    memset(k->h, 0, (size_t)(s->batch * units) * sizeof(float));
    memset(k->c, 0, (size_t)(s->batch * units) * sizeof(float));
    for (int64_t b = 0; b < s->batch; b++) {
        int64_t from = (k->d * s->batch + b) * s->hidden;
        size_t bytes = (size_t)s->hidden * sizeof(float);
        if (s->h0)
            memcpy(k->h + b * units, s->h0 + from, bytes);
        if (s->c0)
            memcpy(k->c + b * units, s->c0 + from, bytes);
    }
}

/* gates → h and c of all rows. */
static void cells(const walk *k)
{
    const eng_rnn *s = k->s;
    int64_t units = k->w.units, n = GATES * units, all = GATES * s->hidden;
    if (k->usual) {
        k->kn->lstm((int)s->batch, (int)units, k->gates, n, k->c, units, k->h, units);
        return;
    }
    for (int64_t b = 0; b < s->batch; b++) {
        for (int64_t j = 0; j < n; j++)
            if (unit_of(k->w.lanes, j) < s->hidden)
                k->plain[gate_of(k->w.lanes, j) * s->hidden + unit_of(k->w.lanes, j)] =
                    k->gates[b * n + j] / sign_of(gate_of(k->w.lanes, j));
        eng_rnn_cell(s, k->d, k->plain, k->plain + all, k->h + b * units, k->c + b * units, NULL);
    }
}

/* What a step has made: to y, and, at a row's last step, to what stays. A row that has ended counts in the scale of the states to come
 * as ONNX Runtime has it: as zeros where all states are wanted, else as what its cell goes on to make. */
static void deliver(const walk *k, int64_t step, float *y)
{
    const eng_rnn *s = k->s;
    size_t bytes = (size_t)s->hidden * sizeof(float);
    for (int64_t b = 0; b < s->batch; b++) {
        int64_t len = eng_rnn_length(s, b), t = k->back ? len - 1 - step : step;
        float *h = k->h + b * k->w.units;
        if (step < len)
            memcpy(y + ((t * s->dirs + k->d) * s->batch + b) * s->hidden, h, bytes);
        if (step == len - 1) {
            memcpy(k->last_h + b * s->hidden, h, bytes);
            memcpy(k->last_c + b * s->hidden, k->c + b * k->w.units, bytes);
        }
        if (step >= len && k->seen)
            memset(h, 0, bytes);
    }
}

/* The input side of a step's gates, in the order of the batch: where it stands, or, where rows walk back from ends of their own, put together. */
static const float *input_side(const walk *k, int64_t step)
{
    const eng_rnn *s = k->s;
    int64_t n = GATES * k->w.units;
    if (!k->back)
        return k->xg + step * s->batch * n;
    for (int64_t b = 0; b < s->batch; b++) {
        int64_t len = eng_rnn_length(s, b), t = step < len ? len - 1 - step : step;
        memcpy(k->from + b * n, k->xg + (t * s->batch + b) * n, (size_t)n * sizeof(float));
    }
    return k->from;
}

static int walk_steps(eng_op_ctx *c, walk *k, int64_t steps, float *y)
{
    const eng_rnn *s = k->s;
    int64_t n = GATES * k->w.units;
    for (int64_t step = 0; step < steps; step++) {
        int rc = eng_op_pause(c);
        if (rc < 0)
            return rc;
        quantise(k->r.kn, s->batch * k->r.units, k->h, &k->states);
        product(&k->r, s->batch, &k->states, k->r.units, input_side(k, step), n, k->gates);
        cells(k);
        deliver(k, step, y);
    }
    return 0;
}

static int direction(eng_op_ctx *c, walk *k, const quantised *x, int64_t steps, float *y, float *yh, float *yc)
{
    const eng_rnn *s = k->s;
    int rc = side_make(c, s, k->d, IN_W, &k->w);
    if (rc < 0 || (rc = side_make(c, s, k->d, IN_R, &k->r)) < 0)
        return rc;
    int64_t n = GATES * k->w.units, batch = s->batch, states = batch * k->w.units, all = GATES * s->hidden;
    k->back = k->d == 1 || s->reverse;
    k->states.q = eng_op_scratch(c, (size_t)states + 64);
    k->bias = eng_op_scratch(c, (size_t)n * sizeof(float));
    k->xg = eng_op_scratch(c, (size_t)(steps * batch * n) * sizeof(float));
    k->gates = eng_op_scratch(c, (size_t)(2 * batch * n) * sizeof(float));
    k->h = eng_op_scratch(c, (size_t)(2 * states) * sizeof(float));
    k->plain = eng_op_scratch(c, (size_t)(2 * all) * sizeof(float));
    k->last_h = eng_op_scratch(c, (size_t)(2 * batch * s->hidden) * sizeof(float));
    if (!k->states.q || !k->bias || !k->xg || !k->gates || !k->h || !k->plain || !k->last_h)
        return PST_ELIMIT;
    k->from = k->gates + batch * n;
    k->c = k->h + states;
    k->last_c = k->last_h + batch * s->hidden;
    memset(k->plain, 0, (size_t)(2 * all) * sizeof(float));
    memset(k->last_h, 0, (size_t)(2 * batch * s->hidden) * sizeof(float)); /* of a row without any step: as ONNX Runtime has it */
    fill_bias(k);
    states_in(k);
    product(&k->w, steps * batch, x, s->in, k->bias, 0, k->xg);
    rc = walk_steps(c, k, steps, y);
    size_t bytes = (size_t)(batch * s->hidden) * sizeof(float);
    if (rc == 0 && yh)
        memcpy(yh + k->d * batch * s->hidden, k->last_h, bytes);
    if (rc == 0 && yc)
        memcpy(yc + k->d * batch * s->hidden, k->last_c, bytes);
    return rc;
}

/* The longest sequence: what lies behind it is neither computed nor part of the inputs' scale. */
static int64_t longest(const eng_rnn *s)
{
    int64_t steps = s->lengths ? 0 : s->seq;
    for (int64_t b = 0; b < s->batch && s->lengths; b++)
        steps = eng_rnn_length(s, b) > steps ? eng_rnn_length(s, b) : steps;
    return steps;
}

static int check(eng_op_ctx *c, const eng_rnn *s)
{
    if (s->batch_first)
        return eng_op_fail(c, PST_EUNSUPPORTED, "layout 1 is not covered");
    if (s->hidden < 1 || s->in < 1 || GATES * s->hidden > WIDTH_MAX || s->in > WIDTH_MAX)
        return eng_op_fail(c, PST_EINVAL, "inputs of %lld and states of %lld numbers: 1 to %d are needed", (long long)s->in,
                           (long long)s->hidden, WIDTH_MAX / GATES);
    int rc = check_scales(c, s, IN_W, 8, 9);
    return rc < 0 ? rc : check_scales(c, s, IN_R, 10, 11);
}

/* (X, W, R, [B], [lengths], [h], [c], [P], W's scale, its zero point, R's scale, its zero point) → [Y], [Y_h], [Y_c] */
int eng_op_dynamic_quantize_lstm(eng_op_ctx *c)
{
    eng_rnn s;
    int rc = eng_rnn_read(c, GATES, true, &s);
    if (rc < 0 || (rc = check(c, &s)) < 0)
        return rc;
    int64_t n = s.hidden, steps = longest(&s), rows = steps * s.batch,
            gates = GATES * whole_vectors(eng_kernels_pick(c->plan->isa)->lanes, n);
    if ((uint64_t)(s.seq * s.batch) * (uint64_t)gates > c->plan->m->limits.tensor_bytes_max / sizeof(float))
        return eng_op_fail(c, PST_ELIMIT, "too large");
    int64_t dims[4] = {s.seq, s.dirs, s.batch, n}, last[3] = {s.dirs, s.batch, n};
    float *y = eng_out(c, 0, PST_F32, 4, dims), *yh = c->n_out > 1 ? eng_out(c, 1, PST_F32, 3, last) : NULL;
    float *yc = c->n_out > 2 ? eng_out(c, 2, PST_F32, 3, last) : NULL;
    quantised x = {.q = eng_op_scratch(c, (size_t)(rows * s.in) + 64)};
    if (!y || (c->n_out > 1 && !yh) || (c->n_out > 2 && !yc) || !x.q)
        return PST_ELIMIT;
    if (s.lengths) /* steps behind a row's end are 0 */
        memset(y, 0, (size_t)(s.seq * s.dirs * s.batch * n) * sizeof *y);
    if (c->plan->opts.no_fusion && (rc = eng_op_work(c, (double)s.dirs * (double)rows * (double)gates * (double)(s.in + n))) < 0)
        return rc;
    walk k = {.s = &s, .kn = eng_kernels_pick(c->plan->isa), .seen = eng_op_wanted(c, 0)};
    k.usual = eng_rnn_usual(&s) && !c->plan->opts.no_fusion;
    quantise(bytes_of(c), rows * s.in, s.x, &x);
    for (k.d = 0; k.d < s.dirs; k.d++) {
        eng_blk *mark = c->plan->scratch;
        if ((rc = direction(c, &k, &x, steps, y, yh, yc)) < 0)
            return rc;
        eng_scratch_free(c->plan, mark);
    }
    c->kernel = c->plan->opts.no_fusion ? "reference" : bytes_of(c)->name;
    return 0;
}
