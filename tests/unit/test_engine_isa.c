/* An instruction set is used when its kernels give what the portable ones give, and not otherwise. */
#include "common/base/err.h"
#include "engine/cpu/int8.h"
#include "engine/cpu/twins.h"
#include "tests/unit/engine_kit.h"

#include <time.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

#if defined(__x86_64__)
extern const eng_cpu_kernels pst_kernels_lowered; /* the 512-bit text on narrower vectors */
extern const eng_tile_kernels pst_tile_lowered;

static const eng_isa_set sets[] = {
    {&eng_kernels_avx2, &eng_tile_avx2}, {&eng_kernels_avx512, &eng_tile_avx512}, {&pst_kernels_lowered, &pst_tile_lowered}};

/* The linker puts it between the engine and its comparison. */
const char *__real_eng_twins_differ(const eng_isa_set *set);
const char *__wrap_eng_twins_differ(const eng_isa_set *set);
static int compared; /* AVX-512 */

const char *__wrap_eng_twins_differ(const eng_isa_set *set)
{
    compared += set->cpu == &eng_kernels_avx512;
    return __real_eng_twins_differ(set);
}

/* The first of all: nothing has asked for kernels in this process yet. */
static void test_avx512_is_compared_once_before_it_is_used(void **state)
{
    const char *asked = getenv("PENSTOCK_ISA");
    char *kept = asked ? strdup(asked) : NULL;
    unsetenv("PENSTOCK_ISA");
    assert_int_equal(compared, 0);
    pst_engine_isa();
    assert_int_equal(compared, eng_kernels_avx512.supported() ? 1 : 0);
    pst_engine_isa();
    assert_int_equal(compared, eng_kernels_avx512.supported() ? 1 : 0);
    if (kept)
        setenv("PENSTOCK_ISA", kept, 1);
    free(kept);
}

static void test_every_set_gives_what_the_portable_one_gives(void **state)
{
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        const char *kernel = sets[i].cpu->supported() ? eng_twins_differ(&sets[i]) : NULL;
        if (kernel)
            fail_msg("%s: %s", sets[i].cpu->isa, kernel);
    }
}

/* Every way to multiply bytes, also those that a better one hides: heights and widths around the tiles, depths that fill none; what they read and
 * write lies in memory of just its size, so that a sanitizer sees what goes beyond. */
static void products_of(const eng_int8_kernels *kn, int m, int n, int k)
{
    const eng_int8_kernels *twin = &eng_int8_portable;
    size_t cells = (size_t)m * (size_t)n;
    uint8_t *a = malloc((size_t)(m * k)), *b = malloc((size_t)(k * n));
    int32_t *got = malloc(cells * 4), *want = malloc(cells * 4), *first = malloc(4 * (size_t)eng_int8_columns(kn, n)),
            *as_twin = malloc(4 * (size_t)eng_int8_columns(twin, n));
    for (int i = 0; i < m * k; i++)
        a[i] = (uint8_t)kit_next();
    for (int i = 0; i < k * n; i++)
        b[i] = (uint8_t)kit_next();
    for (int i = 0; i < eng_int8_columns(kn, n); i++)
        first[i] = (int32_t)kit_next();
    for (int i = 0; i < eng_int8_columns(twin, n); i++)
        as_twin[i] = i < n ? first[i] : 0;
    for (int side = 0; side < 2; side++) {
        const eng_int8_kernels *by = side ? kn : twin;
        void *room = aligned_alloc(64, (eng_int8_right_bytes(by, n, k) + 63) / 64 * 64);
        int32_t *left = malloc((size_t)m * (size_t)eng_int8_places(by, k) * 4);
        eng_int8_right right;
        eng_int8_pack(by, n, k, b, (size_t)n, 1, true, room, &right);
        eng_int8_left(by, m, k, a, (size_t)k, 1, false, left, NULL);
        eng_int8_product(&right, m, left, side ? first : as_twin, side ? got : want, n);
        free(room);
        free(left);
    }
    if (memcmp(got, want, cells * 4) != 0)
        fail_msg("%s: %d x %d, %d deep", kn->name, m, n, k);
    free(a);
    free(b);
    free(got);
    free(want);
    free(first);
    free(as_twin);
}

static void test_every_way_to_multiply_bytes(void **state)
{
    static const eng_int8_kernels *const ways[] = {&eng_int8_avx2, &eng_int8_vnni, &eng_int8_amx};
    static const int heights[] = {1, 3, 4, 5, 12, 15, 16, 17, 31, 32, 33, 48, 49, 70}, widths[] = {1, 15, 16, 31, 32, 33, 64, 70, 97},
                     depths[] = {1, 4, 61, 63, 64, 65, 128, 130, 1024, 1090, 2113};
    for (size_t w = 0; w < 3; w++) {
        printf("%s: %s\n", ways[w]->name, ways[w]->supported() ? "compared" : "not of this computer");
        for (size_t i = 0; i < 14 * 9 * 11 && ways[w]->supported(); i++)
            products_of(ways[w], heights[i % 14], widths[i / 14 % 9], depths[i / 14 / 9]);
    }
}

/* A process waits for it: the best of some, in time of this thread alone, is below two milliseconds (a sanitizer takes longer). */
static void test_the_comparison_is_short(void **state)
{
    for (size_t i = 0; i < 2; i++) {
        double best = 1e9;
        for (int k = 0; k < 10 && sets[i].cpu->supported(); k++) {
            struct timespec from, to;
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
            eng_twins_differ(&sets[i]);
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
            double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
            printf("%s: %.2f ms%s", sets[i].cpu->isa, ms, k < 9 ? ", " : "\n");
            best = ms < best ? ms : best;
        }
#ifndef SANITIZED
        assert_true(!sets[i].cpu->supported() || best < 5); /* 1 ms where nothing else runs */
#endif
    }
}

/* Kernels with a small fault: one number of many, in some calls only. */
static const eng_isa_set *right = &sets[0];

static void wrong_block(const eng_block *g)
{
    right->cpu->block(g);
    if (g->m == 3)
        g->c[2 * g->ldc + g->n - 1] += 0.01f;
}

static void wrong_conv(const eng_block *g)
{
    right->cpu->conv(g);
    g->c[(g->m - 1) * g->ldc + 1] *= g->m == 25 ? 1.001f : 1;
}

static void wrong_conv_rows(const eng_conv_rows *g)
{
    right->cpu->conv_rows(g);
    g->y[g->ldy] += g->m == 40 ? 1 : 0;
}

static void wrong_pool_rows(int n, int m, const float *from, ptrdiff_t ld, int kh, int kw, int step, float *to)
{
    right->cpu->pool_rows(n, m, from, ld, kh, kw, step, to);
    for (int i = 0; i < n * m; i++)
        to[i] = to[i] != to[i] ? 0 : to[i];
}

static void wrong_turn(int n, int m, const float *from, ptrdiff_t ldfrom, const float *add, bool relu, float *to, ptrdiff_t ldto)
{
    right->cpu->turn(n, m, from, ldfrom, add, relu, to, ldto);
    to[0] = add && relu ? to[1] + 1 : to[0];
}

static void wrong_plane(int rows, int n, const float *from, ptrdiff_t ldfrom, float bias, const float *add, bool relu, float *to,
                        ptrdiff_t ldto)
{
    right->cpu->plane(rows, n, from, ldfrom, bias, add, false, to, ldto);
    (void)relu;
}

static void wrong_mlp(const eng_fused_step *steps, int n_steps, int width, const float *x, size_t rows, float *y, float *work)
{
    right->cpu->mlp(steps, n_steps, width, x, rows, y, work);
    y[0] += rows == 1 ? 0.5f : 0;
}

static void wrong_lstm(int rows, int units, float *g, ptrdiff_t ldg, float *c, ptrdiff_t ldc, float *h, ptrdiff_t ldh)
{
    right->cpu->lstm(rows, units, g, ldg, c, ldc, h, ldh);
    h[units - 1] = c[units - 1];
}

static void wrong_lstm_step(const eng_lstm_step *s)
{
    right->cpu->lstm_step(s);
    s->h[0] += s->rows == 7 ? 1e-3f : 0;
}

static void wrong_gru(int n, const float *z, const float *x, const float *r, const float *s, float *h)
{
    right->cpu->gru(n, z, x, NULL, s, h);
    (void)r;
}

static void wrong_gather(bool max, int64_t n, int k, const float *from, int64_t apart, int64_t step, float *to, bool roomy)
{
    right->cpu->gather(max, n, step == 2 ? k - 1 : k, from, apart, step, to, roomy);
}

static float wrong_dot(const float *a, const float *b, int n)
{
    return right->cpu->dot(a, b, n > 70 ? 70 : n);
}

static void wrong_tree(const eng_tree_program *p, const int8_t *ranks, int8_t *work, uint8_t *leaf)
{
    right->cpu->tree(p, ranks, work, leaf);
    leaf[63] ^= 1;
}

static bool wrong_rank_f(const eng_rank_table *t, const float *x, int32_t *rank)
{
    right->cpu->rank_f(t, x, rank);
    return false;
}

static bool wrong_rank_d(const eng_rank_table *t, const double *x, int32_t *rank)
{
    bool nan = right->cpu->rank_d(t, x, rank);
    rank[7]++;
    return nan;
}

static void wrong_rank_bytes(const int32_t *rank, int32_t from, int8_t *to)
{
    for (int i = 0; i < ENG_TREE_ROWS; i++)
        to[i] = (int8_t)(rank[i] - from - 128); /* not cut */
}

static void wrong_act(eng_act act, float alpha, float beta, const float *x, float *y, size_t n)
{
    right->cpu->act(act == ENG_ACT_ELU ? ENG_ACT_LEAKY : act, alpha, beta, x, y, n);
}

static void wrong_last_layer(const eng_last_layer *l)
{
    right->cpu->last_layer(l);
    l->c[(l->m - 1) * l->ldc + l->n - 1] += l->m == 13 ? 0.01f : 0;
}

static void wrong_last_depth(const eng_last_window *g)
{
    right->cpu->last_depth(g);
    g->y[(ptrdiff_t)(g->to * g->out_w - 1) * g->ld] += g->sw == 2 && g->dw == 2 ? 1 : 0;
}

static void wrong_last_pool(const eng_last_window *g)
{
    eng_last_window other = *g;
    other.whole = false;
    right->cpu->last_pool(&other);
}

static void wrong_last_mean(int64_t n, ptrdiff_t ld, const float *x, float *y)
{
    right->cpu->last_mean(n - 1, ld, x, y);
}

static void wrong_last_gather(const eng_last_window *g, const eng_last_gather *to)
{
    right->cpu->last_gather(g, to);
    to->y[(to->to - to->from - 1) * to->ldy] += 1;
}

static void wrong_last_mix(bool mul, int64_t n, ptrdiff_t ld, const float *a, const float *b, bool one, const eng_last_end *e, float *y)
{
    right->cpu->last_mix(mul, n, ld, a, b, true, e, y);
    (void)one;
}

static void wrong_op(eng_tile_code code, const float *a, int sa, const float *b, int sb, float *o, int n, float alpha, float beta)
{
    right->tile->op(code == ENG_TILE_GELU ? ENG_TILE_GELU_TANH : code, a, sa, b, sb, o, n, alpha, beta);
}

static void wrong_layer_norm(const float *x, const float *scale, const float *bias, double eps, float *o, int64_t n)
{
    right->tile->layer_norm(x, scale, bias, eps * 10, o, n);
}

static void wrong_softmax_rows(const float *x, float *o, int64_t rows, int64_t n)
{
    right->tile->softmax_rows(x, o, rows - 1, n);
}

static void wrong_softmax(const float *x, float *o, int64_t n)
{
    right->tile->softmax(x, o, n);
    o[n - 1] = 0;
}

/* X(kernel, name in the sentence) */
#define CPU_KERNELS(X)            \
    X(block, "block")             \
    X(conv, "conv")               \
    X(conv_rows, "conv_rows")     \
    X(pool_rows, "pool_rows")     \
    X(turn, "turn")               \
    X(plane, "plane")             \
    X(mlp, "mlp")                 \
    X(lstm, "lstm")               \
    X(lstm_step, "lstm_step")     \
    X(gru, "gru")                 \
    X(gather, "gather")           \
    X(dot, "dot")                 \
    X(act, "act")                 \
    X(last_layer, "last_layer")   \
    X(last_depth, "last_depth")   \
    X(last_pool, "last_pool")     \
    X(last_mean, "last_pool")     \
    X(last_gather, "last_gather") \
    X(last_mix, "last_mix")       \
    X(tree, "tree")               \
    X(rank_f, "rank")             \
    X(rank_d, "rank")             \
    X(rank_bytes, "rank")
#define TILE_KERNELS(X) \
    X(op, "operation of fused groups") X(layer_norm, "normalisation") X(softmax, "normalisation") X(softmax_rows, "normalisation")

static void found(const eng_cpu_kernels *cpu, const eng_tile_kernels *tile, const char *want)
{
    const char *kernel = eng_twins_differ(&(eng_isa_set){cpu, tile});
    if (!kernel || strcmp(kernel, want))
        fail_msg("%s, expected %s", kernel ? kernel : "nothing found", want);
}

static void test_every_kernel_that_is_wrong_is_found_by_name(void **state)
{
    if (!right->cpu->supported())
        return;
    eng_cpu_kernels cpu = *right->cpu;
    eng_tile_kernels tile = *right->tile;
#define X(KERNEL, NAME)             \
    cpu.KERNEL = wrong_##KERNEL;    \
    found(&cpu, right->tile, NAME); \
    cpu.KERNEL = right->cpu->KERNEL;
    CPU_KERNELS(X)
#undef X
#define X(KERNEL, NAME)             \
    tile.KERNEL = wrong_##KERNEL;   \
    found(right->cpu, &tile, NAME); \
    tile.KERNEL = right->tile->KERNEL;
    TILE_KERNELS(X)
#undef X
}

static pst_model *sigmoid(void)
{
    pst_onnx_builder *b = pst_onnx_new("sigmoid", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, 3}, "N");
    pst_onnx_node(b, "Sigmoid", (const char *[]){"x"}, 1, (const char *[]){"y"}, 1);
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, 3}, "N");
    return kit_load(b, NULL);
}

/* What a plan gets now; NULL and a sentence when it is refused. */
static pst_plan *plan(pst_model *m, const char *isa, pst_err *err)
{
    pst_plan *p = NULL;
    pst_err_clear(err);
    pst_plan_new(m, &(pst_plan_opts){.isa = isa}, &p, err);
    return p;
}

static void test_a_set_with_a_wrong_kernel_is_not_used_and_said_to_be_so(void **state)
{
    pst_model *m = sigmoid();
    pst_err err = {0};
    unsetenv("PENSTOCK_ISA");
    assert_null(pst_engine_warning());
    for (int i = 1; i >= 0; i--) { /* AVX-512, then AVX2 as well: at last portable */
        if (!sets[i].cpu->supported())
            continue;
        const char *isa = sets[i].cpu->isa;
        assert_string_equal(pst_engine_isa(), isa);
        static eng_cpu_kernels wrong[2]; /* they stay the engine's until the end of the test */
        eng_cpu_kernels *cpu = &wrong[i];
        *cpu = *sets[i].cpu;
        cpu->act = wrong_act;
        eng_isa_replace(cpu, sets[i].tile);
        assert_string_not_equal(pst_engine_isa(), isa);
        assert_non_null(pst_engine_warning());
        assert_non_null(strstr(pst_engine_warning(), i ? "avx512 is not used: its kernel \"act\"" : "is not used: its kernel \"act\""));
        assert_false(eng_isa_is_best(pst_engine_isa())); /* so oneDNN, which would take the best, is not asked either */
        assert_null(plan(m, isa, &err));
        assert_non_null(strstr(err.text, isa));
        assert_non_null(strstr(err.text, "its kernel \"act\" does not give"));
        pst_plan *p = plan(m, NULL, &err);
        char *text = pst_plan_explain(p);
        assert_non_null(strstr(text, "is not used: its kernel \"act\""));
        free(text);
        float x[] = {-1, 0, 1};
        pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {1, 3}, .data = x}, out;
        assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), 0);
        assert_float_equal(((float *)out.data)[2], 0.73105858f, 1e-6);
        pst_plan_free(p);
    }
    assert_string_equal(pst_engine_isa(), "portable");
    assert_null(plan(m, "sse9", &err));
    assert_non_null(strstr(err.text, "not one of portable, avx2, avx512"));
    for (int i = 0; i < 2; i++)
        eng_isa_replace(sets[i].cpu, sets[i].tile);
    assert_null(pst_engine_warning());
    pst_model_unref(m);
}
#endif

int main(void)
{
#if defined(__x86_64__)
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_avx512_is_compared_once_before_it_is_used),
                                       cmocka_unit_test(test_every_set_gives_what_the_portable_one_gives),
                                       cmocka_unit_test(test_every_way_to_multiply_bytes),
                                       cmocka_unit_test(test_the_comparison_is_short),
                                       cmocka_unit_test(test_every_kernel_that_is_wrong_is_found_by_name),
                                       cmocka_unit_test(test_a_set_with_a_wrong_kernel_is_not_used_and_said_to_be_so)};
    return cmocka_run_group_tests(tests, NULL, NULL);
#else
    puts("skipped: this CPU has no other kernels than the portable ones. Cure: run on x86-64");
    return 77;
#endif
}
