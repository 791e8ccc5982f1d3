/* com.microsoft.DynamicQuantizeLSTM: kernels beside the plain walk at odd sizes, and what does not fit refused before it is read. tests/live/oracle/contrib.py compares with
 * ONNX Runtime. */
#include "tests/unit/engine_kit.h"

#include "engine/cpu/isa.h"

enum { X, W, R, B, LENGTHS, H0, C0, P, SW, ZW, SR, ZR, N_IN };

typedef struct layer {
    int64_t t, batch, width, hidden, dirs;
    pst_dtype type;
    bool columns, lengths, states, peepholes;
    const char *direction;
} layer;

/* The node's inputs, all of them given by the caller but those of which `fixed` is true: W and R, by nodes that are folded. */
static pst_model *lstm(const layer *k, const float *w, const float *r)
{
    pst_onnx_builder *b = pst_onnx_new("lstm", 17, 8);
    int64_t any[3] = {-1, -1, -1}, g = 4 * k->hidden;
    pst_onnx_input(b, "x", PST_F32, 3, any, NULL);
    if (w) {
        pst_onnx_floats(b, "wf", 3, (int64_t[]){k->dirs, k->width, g}, w);
        pst_onnx_floats(b, "rf", 3, (int64_t[]){k->dirs, k->hidden, g}, r);
        kit_node(b, "Cast wf > w");
        pst_onnx_attr_int(b, "to", k->type);
        kit_node(b, "Cast rf > r");
        pst_onnx_attr_int(b, "to", k->type);
    } else {
        pst_onnx_input(b, "w", k->type, 3, any, NULL);
        pst_onnx_input(b, "r", k->type, 3, any, NULL);
    }
    pst_onnx_input(b, "b", PST_F32, 2, any, NULL);
    if (k->lengths)
        pst_onnx_input(b, "lengths", PST_I32, 1, any, NULL);
    if (k->states) {
        pst_onnx_input(b, "h0", PST_F32, 3, any, NULL);
        pst_onnx_input(b, "c0", PST_F32, 3, any, NULL);
    }
    if (k->peepholes)
        pst_onnx_input(b, "p", PST_F32, 2, any, NULL);
    pst_onnx_input(b, "sw", PST_F32, k->columns ? 2 : 1, any, NULL);
    pst_onnx_input(b, "zw", k->type, k->columns ? 2 : 1, any, NULL);
    pst_onnx_input(b, "sr", PST_F32, k->columns ? 2 : 1, any, NULL);
    pst_onnx_input(b, "zr", k->type, k->columns ? 2 : 1, any, NULL);
    char line[200];
    snprintf(line, sizeof line, "DynamicQuantizeLSTM x w r b %s %s %s %s sw zw sr zr > y yh yc", k->lengths ? "lengths" : "-",
             k->states ? "h0" : "-", k->states ? "c0" : "-", k->peepholes ? "p" : "-");
    kit_node(b, line);
    pst_onnx_domain(b, "com.microsoft", 1);
    pst_onnx_attr_int(b, "hidden_size", k->hidden);
    pst_onnx_attr_str(b, "direction", k->direction);
    pst_onnx_output(b, "y", PST_F32, 4, (int64_t[]){-1, -1, -1, -1}, NULL);
    pst_onnx_output(b, "yh", PST_F32, 3, any, NULL);
    pst_onnx_output(b, "yc", PST_F32, 3, any, NULL);
    return kit_load(b, NULL);
}

/* Values of the inputs, in the order of the node; those of a layer that it has not are NULL. */
typedef struct feeds {
    pst_tensor in[N_IN];
} feeds;

static int64_t count(const pst_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

static void fill(pst_tensor *t, float scale, float offset)
{
    int64_t n = count(t);
    t->data = calloc((size_t)n + 1, pst_dtype_size(t->dtype));
    for (int64_t i = 0; i < n; i++) {
        float v = kit_float() * scale + offset;
        if (t->dtype == PST_F32)
            ((float *)t->data)[i] = v;
        else if (t->dtype == PST_I32)
            ((int32_t *)t->data)[i] = (int32_t)v;
        else
            ((uint8_t *)t->data)[i] = (uint8_t)kit_next();
    }
}

static feeds feeds_of(const layer *k)
{
    int64_t g = 4 * k->hidden, d = k->dirs;
    feeds f = {0};
    f.in[X] = (pst_tensor){.dtype = PST_F32, .rank = 3, .dims = {k->t, k->batch, k->width}};
    f.in[W] = (pst_tensor){.dtype = k->type, .rank = 3, .dims = {d, k->width, g}};
    f.in[R] = (pst_tensor){.dtype = k->type, .rank = 3, .dims = {d, k->hidden, g}};
    f.in[B] = (pst_tensor){.dtype = PST_F32, .rank = 2, .dims = {d, 2 * g}};
    f.in[LENGTHS] = (pst_tensor){.dtype = PST_I32, .rank = 1, .dims = {k->batch}};
    f.in[H0] = f.in[C0] = (pst_tensor){.dtype = PST_F32, .rank = 3, .dims = {d, k->batch, k->hidden}};
    f.in[P] = (pst_tensor){.dtype = PST_F32, .rank = 2, .dims = {d, 3 * k->hidden}};
    f.in[SW] = f.in[SR] = (pst_tensor){.dtype = PST_F32, .rank = k->columns ? 2 : 1, .dims = {d, g}};
    f.in[ZW] = f.in[ZR] = (pst_tensor){.dtype = k->type, .rank = k->columns ? 2 : 1, .dims = {d, g}};
    for (int i = 0; i < N_IN; i++) {
        bool has = (i != LENGTHS || k->lengths) && ((i != H0 && i != C0) || k->states) && (i != P || k->peepholes);
        if (has && (i == SW || i == SR))
            fill(&f.in[i], 0.001f, 0.004f);
        else if (has && i == LENGTHS)
            fill(&f.in[i], (float)k->t, (float)k->t / 2); /* below 0 and beyond the end, too */
        else if (has)
            fill(&f.in[i], 0.5f, 0);
    }
    return f;
}

static void feeds_free(feeds *f)
{
    for (int i = 0; i < N_IN; i++)
        free((void *)(uintptr_t)f->in[i].data);
}

/* What the plan takes: those that are given, without W and R where they are constants. */
static size_t given(const feeds *f, bool fixed, pst_tensor *ret)
{
    size_t n = 0;
    for (int i = 0; i < N_IN; i++)
        if (f->in[i].data && !(fixed && (i == W || i == R)))
            ret[n++] = f->in[i];
    return n;
}

static float *widened(const pst_tensor *t)
{
    int64_t n = count(t);
    float *v = malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = t->dtype == PST_U8 ? ((const uint8_t *)t->data)[i] : ((const int8_t *)t->data)[i];
    return v;
}

static const layer layers[] = {
    {1, 1, 1, 1, 1, PST_U8, false, false, false, false, "forward"},
    {5, 3, 7, 5, 1, PST_I8, true, true, false, false, "reverse"},
    {4, 2, 33, 17, 2, PST_U8, false, true, true, false, "bidirectional"},
    {6, 9, 20, 31, 1, PST_I8, false, false, true, true, "forward"},
    {3, 101, 9, 3, 2, PST_I8, true, true, true, true, "bidirectional"},
    {2, 4, 130, 65, 1, PST_U8, true, false, false, false, "reverse"},
    {0, 3, 5, 6, 1, PST_I8, false, false, true, false, "forward"},
    {3, 0, 5, 6, 2, PST_I8, false, true, false, false, "bidirectional"},
};

/* Gates differ in the last digits, so that now and then a state takes the next byte: that is one step of its scale. */
static void test_kernels_give_what_the_walk_gives(void **state)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    for (size_t i = 0; i < 2 * sizeof layers / sizeof *layers; i++) {
        const layer *k = &layers[i / 2];
        bool fixed = i % 2;
        feeds f = feeds_of(k);
        float *w = fixed ? widened(&f.in[W]) : NULL, *r = fixed ? widened(&f.in[R]) : NULL;
        pst_model *m = lstm(k, w, r);
        pst_plan *plain = kit_plan(m, NULL, true);
        pst_tensor in[N_IN];
        size_t n = given(&f, fixed, in);
        for (int isa = 0; isa < 3; isa++) {
            pst_plan *p = NULL;
            if (pst_plan_new(m, &(pst_plan_opts){.isa = isas[isa]}, &p, NULL) < 0)
                continue; /* not of this CPU */
            kit_same(p, plain, in, n, 3, 4e-3f, isas[isa]);
            kit_same(p, plain, in, n, 3, 4e-3f, isas[isa]);
            pst_plan_free(p);
        }
        pst_plan_free(plain);
        pst_model_unref(m);
        free(w);
        free(r);
        feeds_free(&f);
    }
}

/* One gate that lets all in, one unit: what comes out is known. x = 1 is the byte 255 of the scale 1/255; 100·0.01 = 1. */
static void test_one_unit_by_hand(void **state)
{
    const layer k = {1, 1, 1, 1, 1, PST_I8, false, false, false, false, "forward"};
    feeds f = feeds_of(&k);
    *(float *)f.in[X].data = 1;
    memcpy(f.in[W].data, (int8_t[]){100, 0, -100, 50}, 4); /* i o f c */
    memset(f.in[B].data, 0, 8 * sizeof(float));
    *(float *)f.in[SW].data = 0.01f;
    *(int8_t *)f.in[ZW].data = 0;
    pst_model *m = lstm(&k, NULL, NULL);
    pst_tensor in[N_IN], out[3];
    size_t n = given(&f, false, in);
    for (int plain = 0; plain < 2; plain++) {
        pst_plan *p = kit_plan(m, NULL, plain);
        assert_int_equal(pst_plan_run(p, in, n, out, 3, NULL), 0);
        float c = tanhf(0.5f) / (1 + expf(-1.0f)), h = tanhf(c) / 2;
        assert_true(kit_close(*(float *)out[0].data, h, 1e-6f));
        assert_true(kit_close(*(float *)out[1].data, h, 1e-6f));
        assert_true(kit_close(*(float *)out[2].data, c, 1e-6f));
        pst_plan_free(p);
    }
    pst_model_unref(m);
    feeds_free(&f);
}

typedef struct misfit {
    int input, rank; /* rank 0: that of the layer */
    int64_t dims[3];
    const char *want;
} misfit;

static void test_what_does_not_fit_is_refused(void **state)
{
    static const misfit bad[] = {{X, 3, {3, 2, 6}, "do not fit the input"},
                                 {W, 3, {1, 7, 19}, "do not fit the input"},
                                 {R, 3, {1, 4, 20}, "do not fit the input"},
                                 {R, 3, {2, 5, 20}, "do not fit the input"},
                                 {B, 2, {1, 39}, "do not fit the input"},
                                 {H0, 3, {1, 2, 4}, "do not fit the input"},
                                 {P, 2, {1, 14}, "do not fit the input"},
                                 {SW, 1, {2}, "W has 2 scales"},
                                 {ZR, 1, {19}, "19 zero points"},
                                 {SR, 1, {0}, "R has 0 scales"},
                                 {R, 3, {1, 0, 0}, "do not fit the input"},
                                 {LENGTHS, 1, {1}, "do not fit the input"}};
    const layer k = {3, 2, 7, 5, 1, PST_U8, false, true, true, true, "forward"};
    pst_model *m = lstm(&k, NULL, NULL);
    for (int plain = 0; plain < 2; plain++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            pst_plan *p = kit_plan(m, NULL, plain);
            feeds f = feeds_of(&k);
            pst_tensor in[N_IN], out[3];
            pst_tensor *t = &f.in[bad[i].input];
            t->rank = bad[i].rank;
            memcpy(t->dims, bad[i].dims, sizeof bad[i].dims);
            size_t n = given(&f, false, in);
            pst_err err = {0};
            if (pst_plan_run(p, in, n, out, 3, &err) != PST_EINVAL || !strstr(err.text, bad[i].want))
                fail_msg("%zu: %s", i, err.text);
            pst_plan_free(p);
            feeds_free(&f);
        }
    pst_model_unref(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_give_what_the_walk_gives),
        cmocka_unit_test(test_one_unit_by_hand),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
