/* test_cuda_net.c - the kernels of dense networks, run by the emulation (engine/cuda/emu.hpp), beside a plain walk over the same program, row by row,
 * in double where the kernels have libm in float. Near and far, alone and among other rows, in every order of threads a row's result has the
 * same bits; and single numbers through each stage differ from the plain walk's by no more than net.h states. */
#include "engine/cuda/net_pack.h"
#include "engine/heap.h"
#include "tests/unit/cuda_emu_kit.h"
#include "tests/unit/engine_kit.h"

enum { WIDTH_MAX = 800, ROWS_MOST = 600 };

/* ---- drafts ---- */

static eng_cuda_net_draft *begin_draft(uint32_t n_in)
{
    eng_cuda_net_draft *d = calloc(1, sizeof *d);
    d->n_in = n_in;
    d->slots[d->n_slots++] = (eng_cuda_net_slot){.place = ENG_CUDA_NET_IN, .width = n_in};
    return d;
}

static void end_draft(eng_cuda_net_draft *d)
{
    eng_heap_free(d->numbers);
    free(d);
}

static uint32_t slot_for(eng_cuda_net_draft *d, uint32_t width, bool is_result)
{
    d->slots[d->n_slots] =
        (eng_cuda_net_slot){.place = is_result ? ENG_CUDA_NET_OUT : ENG_CUDA_NET_BETWEEN, .at = is_result ? d->n_out : 0, .width = width};
    d->n_out += is_result ? width : 0;
    return d->n_slots++;
}

static eng_cuda_net_op *add_op(eng_cuda_net_draft *d, eng_cuda_net_kind kind, uint32_t from, uint32_t width, bool is_result)
{
    eng_cuda_net_op *o = &d->ops[d->n_ops++];
    *o = (eng_cuda_net_op){
        .kind = kind, .from = from, .n_in = d->slots[from].width, .n_out = width, .stage = d->n_stages, .map = ENG_CUDA_NET_CODES};
    o->to = slot_for(d, width, is_result);
    return o;
}

static void add_stage(eng_cuda_net_draft *d, eng_cuda_net_stage s)
{
    d->stages[d->n_stages++] = s;
    d->ops[d->n_ops - 1].n_stages++;
}

/* Random numbers of the model, times scale, plus shift. */
static uint64_t numbers(eng_cuda_net_draft *d, size_t n, float scale, float shift)
{
    uint64_t at;
    float *to = eng_cuda_net_numbers(d, n, &at);
    for (size_t i = 0; i < n; i++)
        to[i] = kit_float() * scale + shift;
    return at;
}

static void with_vector(eng_cuda_net_draft *d, uint32_t code, uint32_t width, float scale, float shift)
{
    add_stage(d, (eng_cuda_net_stage){
                     .code = code, .operand = ENG_CUDA_NET_NUMBER, .at = numbers(d, width, scale, shift), .step = width > 1, .alpha = NAN});
}

static void with_slot(eng_cuda_net_draft *d, uint32_t code, uint32_t slot)
{
    add_stage(d, (eng_cuda_net_stage){.code = code, .operand = ENG_CUDA_NET_VECTOR, .at = slot, .step = d->slots[slot].width > 1});
}

static void with_code(eng_cuda_net_draft *d, uint32_t code, float alpha, float beta)
{
    add_stage(d, (eng_cuda_net_stage){.code = code, .alpha = alpha, .beta = beta});
}

static uint32_t add_dense(eng_cuda_net_draft *d, uint32_t from, uint32_t width, bool is_result)
{
    uint32_t n_in = d->slots[from].width;
    eng_cuda_net_op *o = add_op(d, ENG_CUDA_NET_DENSE, from, width, is_result);
    o->weights = numbers(d, (size_t)n_in * width, 1 / sqrtf((float)n_in), 0);
    with_vector(d, ENG_TILE_ADD, width, 0.1f, 0);
    return o->to;
}

/* ---- the plain walk ---- */

static double two_plain(uint32_t code, float x, float b, float alpha)
{
    switch (code) {
    case ENG_TILE_ADD: return (double)(x + b);
    case ENG_TILE_SUB: return (double)(x - b);
    case ENG_TILE_MUL: return (double)(x * b);
    case ENG_TILE_DIV: return (double)(x / b);
    case ENG_TILE_MIN: return (double)(isnan(x) ? x : isnan(b) ? b : fminf(x, b));
    case ENG_TILE_MAX: return (double)(isnan(x) ? x : isnan(b) ? b : fmaxf(x, b));
    case ENG_TILE_PRELU: return (double)(x < 0 ? x * b : x);
    case ENG_TILE_POW: return pow((double)x, (double)b);
    case ENG_CUDA_NET_FROM: return (double)(b - x);
    case ENG_CUDA_NET_UNDER: return (double)(b / x);
    case ENG_CUDA_NET_IMPUTE: return (double)((isnan(alpha) ? isnan(x) : x == alpha) ? b : x);
    }
    fail_msg("no code %u of two", code);
    return 0;
}

static double softplus_plain(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double bounded(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

static double one_plain(uint32_t code, float v, float a, float b)
{
    double x = (double)v, alpha = (double)a, beta = (double)b;
    switch (code) {
    case ENG_TILE_SQRT: return sqrt(x);
    case ENG_TILE_EXP: return exp(x);
    case ENG_TILE_LOG: return log(x);
    case ENG_TILE_ERF: return erf(x);
    case ENG_TILE_RECIPROCAL: return 1 / x;
    case ENG_TILE_FLOOR: return floor(x);
    case ENG_TILE_CEIL: return ceil(x);
    case ENG_TILE_ROUND: return rint(x);
    case ENG_TILE_NEG: return -x;
    case ENG_TILE_ABS: return fabs(x);
    case ENG_TILE_RELU: return x < 0 ? 0 : x;
    case ENG_TILE_LEAKY: return x < 0 ? alpha * x : x;
    case ENG_TILE_ELU: return x < 0 ? alpha * expm1(x) : x;
    case ENG_TILE_SIGMOID: return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
    case ENG_TILE_TANH: return tanh(x);
    case ENG_TILE_HARDSIGMOID: return bounded((double)(a * v + b), 0, 1);
    case ENG_TILE_HARDSWISH: return x * bounded((double)(v / 6 + 0.5f), 0, 1);
    case ENG_TILE_SOFTSIGN: return x / (1 + fabs(x));
    case ENG_TILE_SOFTPLUS: return softplus_plain(x);
    case ENG_TILE_SWISH: return x * one_plain(ENG_TILE_SIGMOID, a * v, 0, 0);
    case ENG_TILE_GELU: return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case ENG_TILE_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ENG_TILE_CLIP: return bounded(x, alpha, beta);
    case ENG_TILE_SQUARE: return x * x;
    case ENG_TILE_CUBE: return (double)(v * v * v);
    case ENG_CUDA_NET_SELU: return x > 0 ? beta * x : beta * alpha * expm1(x);
    case ENG_CUDA_NET_CELU: return x > 0 ? x : x < 0 ? alpha * expm1(x / alpha) : x;
    case ENG_CUDA_NET_MISH: return x * tanh(softplus_plain(x));
    case ENG_CUDA_NET_THRESHOLD: return x > alpha ? x : 0;
    case ENG_CUDA_NET_SIGN: return (x > 0) - (x < 0);
    case ENG_CUDA_NET_CODES: return x;
    }
    fail_msg("no code %u of one", code);
    return 0;
}

typedef float row_slots[ENG_CUDA_NET_SLOTS][WIDTH_MAX];

static void put_plain(const eng_cuda_net_draft *d, const eng_cuda_net_op *o, row_slots s, uint32_t j, double sum)
{
    float v = (float)sum;
    for (uint32_t i = o->stage; i < o->stage + o->n_stages; i++) {
        const eng_cuda_net_stage *t = &d->stages[i];
        if (t->operand == ENG_CUDA_NET_ALONE)
            v = (float)one_plain(t->code, v, t->alpha, t->beta);
        else
            v = (float)two_plain(t->code, v, t->operand == ENG_CUDA_NET_NUMBER ? d->numbers[t->at + t->step * j] : s[t->at][t->step * j],
                                 t->alpha);
    }
    s[o->to][j] = v;
}

static double reduced_plain(const eng_cuda_net_op *o, const float *x)
{
    bool largest = o->kind == ENG_CUDA_NET_MAX, least = o->kind == ENG_CUDA_NET_MIN;
    double y = largest ? -(double)INFINITY : least ? (double)INFINITY : 0;
    for (uint32_t k = 0; k < o->n_in; k++) {
        double v = one_plain(o->map, x[k], 0, 0);
        y = largest ? (isnan(v) || v > y ? v : y) : least ? (isnan(v) || v < y ? v : y) : y + v;
    }
    return o->kind == ENG_CUDA_NET_MEAN ? y / o->n_in : y;
}

static void over_row_plain(const eng_cuda_net_draft *d, const eng_cuda_net_op *o, row_slots s)
{
    const float *x = s[o->from];
    double sum = 0, most = -(double)INFINITY, mean = 0, squares = 0;
    for (uint32_t k = 0; k < o->n_in; k++)
        most = (double)x[k] > most ? (double)x[k] : most;
    for (uint32_t k = 0; k < o->n_in; k++) {
        sum += exp((double)x[k] - most);
        mean += o->kind == ENG_CUDA_NET_NORM ? (double)x[k] / o->n_in : 0;
    }
    for (uint32_t k = 0; k < o->n_in; k++)
        squares += ((double)x[k] - mean) * ((double)x[k] - mean) / o->n_in;
    for (uint32_t j = 0; j < o->n_out; j++)
        put_plain(d, o, s, j,
                  o->kind == ENG_CUDA_NET_SOFTMAX      ? exp((double)x[j] - most) / sum
                  : o->kind == ENG_CUDA_NET_LOGSOFTMAX ? (double)x[j] - most - log(sum)
                                                       : ((double)x[j] - mean) / sqrt(squares + o->epsilon));
}

static void operate_plain(const eng_cuda_net_draft *d, const eng_cuda_net_op *o, row_slots s)
{
    const float *x = s[o->from];
    if (o->kind >= ENG_CUDA_NET_SOFTMAX) {
        over_row_plain(d, o, s);
    } else if (o->kind >= ENG_CUDA_NET_SUM) {
        put_plain(d, o, s, 0, reduced_plain(o, x));
    } else {
        for (uint32_t j = 0; j < o->n_out; j++) {
            double sum = o->kind == ENG_CUDA_NET_EACH ? (double)x[o->n_in == 1 ? 0 : j] : 0;
            for (uint32_t k = 0; o->kind == ENG_CUDA_NET_DENSE && k < o->n_in; k++)
                sum += (double)x[k] * (double)d->numbers[o->weights + (size_t)k * o->n_out + j];
            put_plain(d, o, s, j, sum);
        }
    }
}

/* out (rows, n_out) */
static void walk_plain(const eng_cuda_net_draft *d, const float *x, int rows, float *out)
{
    static row_slots s;
    for (int r = 0; r < rows; r++) {
        memcpy(s[0], x + (size_t)r * d->n_in, d->n_in * sizeof *x);
        for (uint32_t i = 0; i < d->n_ops; i++)
            operate_plain(d, &d->ops[i], s);
        for (uint32_t i = 0; i < d->n_slots; i++)
            if (d->slots[i].place == ENG_CUDA_NET_OUT)
                memcpy(out + (size_t)r * d->n_out + d->slots[i].at, s[i], d->slots[i].width * sizeof *out);
    }
}

/* ---- runs ---- */

typedef struct packed {
    eng_cuda_net head;
    unsigned char *image;
} packed;

/* In memory of its own size, as of everything a run gets: AddressSanitizer sees what lies beyond. */
static packed pack(const eng_cuda_net_draft *d, eng_cuda_net_way way)
{
    packed p;
    pst_err err = {0};
    unsigned char *image = NULL;
    eng_cuda_net_draft *own = malloc(sizeof *own);
    *own = *d;
    if (eng_cuda_net_pack(own, way, &p.head, &image, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(p.head.rows == 0, way == ENG_CUDA_NET_FAR);
    p.image = malloc(p.head.bytes);
    memcpy(p.image, image, p.head.bytes);
    eng_heap_free(image);
    free(own);
    return p;
}

/* Rows [from, from + rows) of x. free() it. */
static float *run_net(const packed *p, const float *x, int from, int rows, int order)
{
    size_t n = (size_t)rows * p->head.n_out, n_in = (size_t)rows * p->head.n_in;
    float *out = malloc(n * sizeof *out), *in = malloc(n_in * sizeof *in), *between = NULL;
    memcpy(in, x + (size_t)from * p->head.n_in, n_in * sizeof *in);
    memset(out, 0xee, n * sizeof *out);
    if (!p->head.rows) {
        between = malloc((size_t)rows * p->head.n_between * sizeof *between + 1);
        memset(between, 0xee, (size_t)rows * p->head.n_between * sizeof *between);
    }
    emu_kit_order(order);
    if (eng_cuda_net_run(&p->head, p->image, in, rows, between, out, NULL) != 0)
        fail_msg("%d rows: %s", rows, emu_kit_fault());
    assert_memory_equal(in, x + (size_t)from * p->head.n_in, n_in * sizeof *in);
    free(in);
    free(between);
    return out;
}

static void same_bits(const float *got, const float *want, size_t n, const char *what, int rows, int order)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0 && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s, %d rows, order %d: number %zu is %.9g for %.9g", what, rows, order, i, (double)got[i], (double)want[i]);
}

/* All sizes in all orders, near and far, against one run of all rows; and that against the plain walk. */
static void compare_way(const packed *p, const char *what, const float *x, const float *all)
{
    static const int sizes[] = {1, 7, 33, 65, ROWS_MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int order = 0; order < EMU_KIT_ORDERS; order++) {
            int from = sizes[i] == ROWS_MOST ? 0 : 3;
            uint64_t before = emu_kit_switches();
            float *got = run_net(p, x, from, sizes[i], order);
            assert_true(emu_kit_switches() > before);
            same_bits(got, all + (size_t)from * p->head.n_out, (size_t)sizes[i] * p->head.n_out, what, sizes[i], order);
            free(got);
            if (sizes[i] > 65)
                order++; /* in two orders: most of the time is theirs */
        }
}

static float *rows_of(const eng_cuda_net_draft *d, int rows, bool gaps)
{
    size_t n = (size_t)rows * d->n_in;
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = gaps && kit_next() % 9 == 0 ? NAN : kit_float() * 2;
    return x;
}

static void close_to_plain(const eng_cuda_net_draft *d, const float *x, const float *got, int rows, const char *what)
{
    size_t n = (size_t)rows * d->n_out;
    float *want = malloc(n * sizeof *want);
    walk_plain(d, x, rows, want);
    for (size_t i = 0; i < n; i++)
        if (!kit_close(got[i], want[i], 2e-5f))
            fail_msg("%s: row %zu column %zu is %.9g for %.9g", what, i / d->n_out, i % d->n_out, (double)got[i], (double)want[i]);
    free(want);
}

/* Takes d. far_only: too large for near. */
static void compare(eng_cuda_net_draft *d, const char *what, bool gaps, bool far_only)
{
    float *x = rows_of(d, ROWS_MOST, gaps);
    packed far = pack(d, ENG_CUDA_NET_FAR);
    float *all = run_net(&far, x, 0, ROWS_MOST, 0);
    close_to_plain(d, x, all, ROWS_MOST, what);
    compare_way(&far, what, x, all);
    free(far.image);
    if (!far_only) {
        packed near = pack(d, ENG_CUDA_NET_NEAR);
        compare_way(&near, what, x, all);
        free(near.image);
    }
    free(all);
    free(x);
    end_draft(d);
}

/* ---- networks ---- */

/* Missing values filled in, then scaled. */
static uint32_t scaled(eng_cuda_net_draft *d, bool gaps)
{
    uint32_t to = add_op(d, ENG_CUDA_NET_EACH, 0, d->n_in, false)->to;
    if (gaps)
        with_vector(d, ENG_CUDA_NET_IMPUTE, d->n_in, 1, 0);
    with_vector(d, ENG_TILE_SUB, d->n_in, 1, 0);
    with_vector(d, ENG_TILE_DIV, d->n_in, 0.2f, 1.5f);
    return to;
}

static eng_cuda_net_draft *classifier(uint32_t features, uint32_t hidden, uint32_t classes)
{
    eng_cuda_net_draft *d = begin_draft(features);
    uint32_t at = scaled(d, true);
    at = add_dense(d, at, hidden, false);
    with_code(d, ENG_TILE_RELU, 0, 0);
    at = add_dense(d, at, hidden / 2 + 1, false);
    with_code(d, ENG_TILE_TANH, 0, 0);
    at = add_dense(d, at, classes, false);
    add_op(d, ENG_CUDA_NET_SOFTMAX, at, classes, true);
    return d;
}

/* The error alone, or the reconstruction too: two results, the first of which is read again. */
static eng_cuda_net_draft *autoencoder(bool both, uint32_t map)
{
    static const uint32_t widths[] = {16, 8, 16};
    eng_cuda_net_draft *d = begin_draft(30);
    uint32_t x = scaled(d, false), at = x;
    for (int i = 0; i < 3; i++) {
        at = add_dense(d, at, widths[i], false);
        with_code(d, i % 2 ? ENG_TILE_SIGMOID : ENG_TILE_RELU, 0, 0);
    }
    at = add_dense(d, at, 30, both);
    if (both)
        at = add_op(d, ENG_CUDA_NET_EACH, at, 30, false)->to;
    with_slot(d, ENG_CUDA_NET_FROM, x);
    add_op(d, ENG_CUDA_NET_MEAN, at, 1, true)->map = map;
    with_code(d, ENG_TILE_SQRT, 0, 0);
    return d;
}

static void test_networks(void **state)
{
    compare(classifier(5, 7, 3), "a small classifier", true, false);
    compare(classifier(64, 64, 2), "a classifier as wide as a tile", true, false);
    compare(classifier(65, 129, 33), "a classifier a little wider", true, false);
    compare(classifier(1, 1, 1), "one of everything", true, false);
    compare(autoencoder(false, ENG_TILE_SQUARE), "an autoencoder", false, false);
    compare(autoencoder(true, ENG_TILE_ABS), "an autoencoder with its reconstruction", false, false);
}

/* Residuals, norms, numbers for whole rows, vectors of one. */
static void test_rows_together(void **state)
{
    static const eng_cuda_net_kind kinds[] = {ENG_CUDA_NET_NORM, ENG_CUDA_NET_RMS, ENG_CUDA_NET_LOGSOFTMAX};
    static const eng_cuda_net_kind reductions[] = {ENG_CUDA_NET_SUM, ENG_CUDA_NET_MEAN, ENG_CUDA_NET_MAX, ENG_CUDA_NET_MIN};
    for (int i = 0; i < 4; i++) {
        eng_cuda_net_draft *d = begin_draft(19 + 30 * (uint32_t)i);
        uint32_t x = scaled(d, false), h = add_dense(d, x, 40, false);
        with_code(d, ENG_TILE_GELU, 0, 0);
        add_op(d, kinds[i % 3], h, 40, false)->epsilon = 1e-5;
        with_vector(d, ENG_TILE_MUL, 40, 0.2f, 1);
        with_vector(d, ENG_TILE_ADD, 40, 0.2f, 0);
        uint32_t n = d->n_slots - 1, sum = add_dense(d, n, 40, false);
        with_slot(d, ENG_TILE_ADD, h);
        eng_cuda_net_op *o = add_op(d, reductions[i], sum, 1, true);
        o->map = i % 2 ? ENG_TILE_ABS : ENG_CUDA_NET_CODES;
        uint32_t one = o->to;
        add_op(d, ENG_CUDA_NET_EACH, sum, 40, true);
        with_slot(d, ENG_TILE_SUB, one);
        add_op(d, ENG_CUDA_NET_EACH, one, 6, true);
        with_vector(d, ENG_TILE_MUL, 6, 1, 0);
        with_vector(d, ENG_TILE_ADD, 1, 1, 0);
        compare(d, "rows together", false, false);
    }
}

/* Between them there is room for 8 rows, 16, 32; numbers that fit beside them and that do not; and what fits no block. */
static void test_what_fits_near(void **state)
{
    static const struct {
        uint32_t features, hidden, rows, keeps;
    } nets[] = {{20, 40, 32, 1}, {200, 150, 32, 0}, {300, 160, 16, 0}, {700, 80, 8, 0}, {300, 20, 32, 0}};
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        eng_cuda_net_draft *d = classifier(nets[i].features, nets[i].hidden, 4);
        packed p = pack(d, ENG_CUDA_NET_NEAR);
        if (p.head.rows != nets[i].rows || p.head.keeps != nets[i].keeps)
            fail_msg("%u features: %u rows, %u", nets[i].features, p.head.rows, p.head.keeps);
        free(p.image);
        float *x = rows_of(d, 40, true);
        packed far = pack(d, ENG_CUDA_NET_FAR);
        p = pack(d, ENG_CUDA_NET_EITHER);
        float *a = run_net(&far, x, 0, 40, 0), *b = run_net(&p, x, 0, 40, 2);
        same_bits(b, a, 40 * far.head.n_out, "near and far", 40, 0);
        close_to_plain(d, x, a, 40, "what fits");
        free(a);
        free(b);
        free(x);
        free(p.image);
        free(far.image);
        end_draft(d);
    }
    eng_cuda_net_draft *d = begin_draft(300);
    uint32_t at = add_op(d, ENG_CUDA_NET_EACH, 0, 300, false)->to;
    for (int i = 0; i < 5; i++)
        at = add_dense(d, at, 300, i == 4);
    eng_cuda_net head;
    unsigned char *image = NULL;
    pst_err err = {0};
    eng_cuda_net_draft *own = malloc(sizeof *own);
    *own = *d;
    assert_int_equal(eng_cuda_net_pack(own, ENG_CUDA_NET_NEAR, &head, &image, &err), PST_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "does not fit"));
    free(own);
    packed far = pack(d, ENG_CUDA_NET_FAR);
    assert_int_equal(far.head.n_ops, 5); /* the copy of the row is left out */
    free(far.image);
    end_draft(d);
}

/* ---- single numbers ---- */

static float unit_of(float x)
{
    float a = fabsf(x);
    return a > 1e-37f ? nextafterf(a, INFINITY) - a : 1.5e-45f;
}

/* What net.h states, in units in the last place of the result or of the terms that it is a difference of. */
static void stage_is_close(const eng_cuda_net_stage *s, float x, float b, float got)
{
    bool two = s->operand != ENG_CUDA_NET_ALONE;
    float want = (float)(two ? two_plain(s->code, x, b, s->alpha) : one_plain(s->code, x, s->alpha, s->beta)),
          units = two && s->code == ENG_TILE_POW ? 16 : 4;
    float term = s->code == ENG_TILE_GELU || s->code == ENG_TILE_GELU_TANH ? x : want,
          least = fabsf(x) * 1.5e-45f; /* e^x below all floats */
    bool exact =
        two ? s->code != ENG_TILE_POW
            : s->code == ENG_TILE_SQRT || (s->code >= ENG_TILE_RECIPROCAL && s->code <= ENG_TILE_LEAKY) || s->code == ENG_TILE_CLIP;
    if (got == want || (isnan(want) && isnan(got)))
        return;
    bool ok = exact || isinf(want) || isinf(got) ? got == want : fabsf(got - want) <= units * fmaxf(unit_of(want), unit_of(term)) + least;
    if (!ok)
        fail_msg("code %u of %.9g, %.9g: %.9g for %.9g", s->code, (double)x, (double)b, (double)got, (double)want);
}

static void test_each_stage(void **state)
{
    static const float rare[] = {0,      -0.0f, 1,   -1,  INFINITY, -INFINITY, NAN, 1e-30f, -1e-30f, 3e38f,
                                 -3e38f, 88,    -88, 104, -104,     20,        -20, 0.5f,   -0.5f,   2.5f};
    enum { N = 200, RARE = sizeof rare / sizeof *rare };
    for (uint32_t code = 0; code < ENG_CUDA_NET_CODES; code++) {
        bool two = code < ENG_TILE_BINARY_CODES || (code >= ENG_CUDA_NET_FROM && code <= ENG_CUDA_NET_IMPUTE);
        eng_cuda_net_draft *d = begin_draft(N);
        add_op(d, ENG_CUDA_NET_EACH, 0, N, true);
        float alpha = code == ENG_TILE_CLIP ? -0.7f : code == ENG_CUDA_NET_SELU ? 1.6732632f : code == ENG_CUDA_NET_IMPUTE ? 2.5f : 0.3f;
        add_stage(d, (eng_cuda_net_stage){.code = code,
                                          .operand = two ? ENG_CUDA_NET_NUMBER : ENG_CUDA_NET_ALONE,
                                          .at = numbers(d, N, 2, 0),
                                          .step = 1,
                                          .alpha = alpha,
                                          .beta = 1.05f});
        for (int i = 0; i < N && two; i++)
            d->numbers[i] = i % 3 ? d->numbers[i] : rare[(unsigned)i * 7 % RARE];
        float *x = rows_of(d, 2, false);
        for (int i = 0; i < 2 * N; i++)
            x[i] = i % 2 ? x[i] * 4 : rare[(unsigned)i / 2 % RARE];
        packed p = pack(d, ENG_CUDA_NET_NEAR);
        float *got = run_net(&p, x, 0, 2, 1);
        for (int i = 0; i < 2 * N; i++)
            stage_is_close(&d->stages[0], x[i], d->numbers[i % N], got[i]);
        free(got);
        free(x);
        free(p.image);
        end_draft(d);
    }
}

/* NaN in a row is seen by what runs over the row, and by no other row. */
static void test_nan_stays_in_its_row(void **state)
{
    static const eng_cuda_net_kind kinds[] = {ENG_CUDA_NET_SUM,     ENG_CUDA_NET_MEAN,       ENG_CUDA_NET_MAX,  ENG_CUDA_NET_MIN,
                                              ENG_CUDA_NET_SOFTMAX, ENG_CUDA_NET_LOGSOFTMAX, ENG_CUDA_NET_NORM, ENG_CUDA_NET_RMS};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        eng_cuda_net_draft *d = begin_draft(70);
        uint32_t at = add_op(d, ENG_CUDA_NET_EACH, 0, 70, false)->to;
        add_op(d, kinds[i], at, kinds[i] < ENG_CUDA_NET_SOFTMAX ? 1 : 70, true)->epsilon = 1e-5;
        float *x = rows_of(d, 20, false);
        x[7 * 70 + 3 + i * 8] = NAN;
        packed p = pack(d, i % 2 ? ENG_CUDA_NET_NEAR : ENG_CUDA_NET_FAR);
        float *got = run_net(&p, x, 0, 20, 2);
        for (uint32_t k = 0; k < 20 * d->n_out; k++)
            assert_int_equal(isnan(got[k]), k / d->n_out == 7);
        free(got);
        free(x);
        free(p.image);
        end_draft(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_stage),           cmocka_unit_test(test_networks),
        cmocka_unit_test(test_rows_together),        cmocka_unit_test(test_what_fits_near),
        cmocka_unit_test(test_nan_stays_in_its_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
