/* Forests: the vector form and the short walk give exactly what the plain walk gives, on every instruction set of this machine. */
#include "engine/cpu/isa.h"
#include "tests/unit/engine_kit.h"

enum { FEATURES = 9, NODES_MAX = 200000 };

/* How thresholds lie and where: WIDE are powers, near zero of both signs and up to infinity; ONE is one feature for all, each a new number. */
typedef enum { EVEN, WIDE, ONE } spread;
/* ALL: every tree gives both targets; PARITY: a tree the one of its parity; SECOND: only target 1. */
typedef enum { PARITY, ALL, SECOND } targets_of;

static spread thresholds_lie;
static bool missing_to_no;

typedef struct forest {
    int64_t tree[NODES_MAX], node[NODES_MAX], feature[NODES_MAX], yes[NODES_MAX], no[NODES_MAX], track[NODES_MAX];
    float value[NODES_MAX], weight[NODES_MAX];
    const char *mode[NODES_MAX];
    int64_t w_tree[NODES_MAX], w_node[NODES_MAX], w_id[NODES_MAX];
    size_t n, n_w;
} forest;

static uint32_t seed = 99;

static uint32_t rnd(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static float threshold(uint32_t kinds)
{
    static const float rare[] = {INFINITY, -INFINITY, -0.0f, 0.0f, 1e-40f, -1e-40f, 3e38f, -3e38f};
    static uint32_t next;
    if (thresholds_lie == ONE)
        return (float)(next++ % kinds) * 0.125f;
    if (thresholds_lie == WIDE)
        return rnd(12) ? ldexpf((float)rnd(kinds) - (float)kinds / 2, (int)rnd(40) - 20) : rare[rnd(8)];
    return (float)rnd(kinds) / 16.0f - 4;
}

static int64_t grow(forest *f, int64_t tree, int64_t *next, int depth, const char *const *modes, int n_modes, int thresholds,
                    targets_of targets)
{
    size_t at = f->n++;
    int64_t id = (*next)++;
    f->tree[at] = tree;
    f->node[at] = id;
    f->track[at] = missing_to_no ? 0 : rnd(2);
    if (!depth || (depth < 4 && !rnd(6))) {
        f->mode[at] = "LEAF";
        for (int k = 0; k < (targets == ALL ? 2 : 1); k++) {
            f->w_tree[f->n_w] = tree;
            f->w_node[f->n_w] = id;
            f->w_id[f->n_w] = targets == PARITY ? tree % 2 : targets == SECOND ? 1 : k;
            f->weight[f->n_w++] = (float)rnd(100000) / 1000.0f - 50;
        }
        return id;
    }
    f->mode[at] = modes[rnd((uint32_t)n_modes)];
    f->feature[at] = thresholds_lie == ONE ? 4 : rnd(FEATURES);
    f->value[at] = threshold((uint32_t)thresholds);
    f->yes[at] = grow(f, tree, next, depth - 1, modes, n_modes, thresholds, targets);
    f->no[at] = grow(f, tree, next, depth - 1, modes, n_modes, thresholds, targets);
    return id;
}

static pst_model *model(forest *f, bool average)
{
    pst_onnx_builder *o = pst_onnx_new("trees", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, FEATURES}, "N");
    pst_onnx_node(o, "TreeEnsembleRegressor", (const char *[]){"x"}, 1, (const char *[]){"y"}, 1);
    pst_onnx_domain(o, "ai.onnx.ml", 3);
    pst_onnx_attr_ints(o, "nodes_treeids", f->tree, f->n);
    pst_onnx_attr_ints(o, "nodes_nodeids", f->node, f->n);
    pst_onnx_attr_ints(o, "nodes_featureids", f->feature, f->n);
    pst_onnx_attr_ints(o, "nodes_truenodeids", f->yes, f->n);
    pst_onnx_attr_ints(o, "nodes_falsenodeids", f->no, f->n);
    pst_onnx_attr_ints(o, "nodes_missing_value_tracks_true", f->track, f->n);
    pst_onnx_attr_floats(o, "nodes_values", f->value, f->n);
    pst_onnx_attr_strs(o, "nodes_modes", f->mode, f->n);
    pst_onnx_attr_ints(o, "target_treeids", f->w_tree, f->n_w);
    pst_onnx_attr_ints(o, "target_nodeids", f->w_node, f->n_w);
    pst_onnx_attr_ints(o, "target_ids", f->w_id, f->n_w);
    pst_onnx_attr_floats(o, "target_weights", f->weight, f->n_w);
    pst_onnx_attr_int(o, "n_targets", 2);
    pst_onnx_attr_str(o, "aggregate_function", average ? "AVERAGE" : "SUM");
    pst_onnx_attr_floats(o, "base_values", (float[]){0.5f, -1}, 2);
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, 2}, "N");
    return kit_load(o, NULL);
}

/* Often on a threshold. */
static float number(void)
{
    uint32_t k = rnd(40);
    if (k < 4)
        return k == 0 ? INFINITY : k == 1 ? -INFINITY : NAN;
    if (thresholds_lie == ONE)
        return (float)rnd(80000) * 0.125f;
    return thresholds_lie == WIDE ? threshold(1000) : (float)rnd(400) / 32.0f - 6;
}

static void compare(pst_model *m)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    static const int batches[] = {1, 2, 7, 19, 20, 63, 64, 65, 200};
    pst_err err = {0};
    pst_plan *ref = NULL;
    pst_plan_opts plain = {.no_fusion = true};
    assert_int_equal(pst_plan_new(m, &plain, &ref, &err), 0);
    const uint32_t drawn = seed; /* each instruction set gets the same numbers, and what is made later does not depend on them */
    for (size_t i = 0; i < 3; i++) {
        pst_plan *p = NULL;
        pst_plan_opts opts = {.isa = isas[i]};
        if (!eng_kernels_pick(isas[i]))
            continue;
        seed = drawn;
        assert_int_equal(pst_plan_new(m, &opts, &p, &err), 0);
        for (size_t k = 0; k < sizeof batches / sizeof *batches; k++) {
            int rows = batches[k];
            float *x = malloc((size_t)(rows * FEATURES) * sizeof *x);
            for (int q = 0; q < rows * FEATURES; q++)
                x[q] = number();
            pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {rows, FEATURES}, .data = x}, want, got;
            assert_int_equal(pst_plan_run(ref, &in, 1, &want, 1, &err), 0);
            assert_int_equal(pst_plan_run(p, &in, 1, &got, 1, &err), 0);
            assert_memory_equal(got.data, want.data, (size_t)rows * 2 * sizeof(float));
            free(x);
        }
        pst_plan_free(p);
    }
    pst_plan_free(ref);
    pst_model_unref(m);
}

static void run(const char *const *modes, int n_modes, int trees, int depth, int thresholds, targets_of targets, bool average)
{
    forest *f = calloc(1, sizeof *f);
    for (int t = 0; t < trees; t++) {
        int64_t next = 0;
        grow(f, t, &next, t == 3 ? 0 : depth, modes, n_modes, thresholds, targets);
    }
    compare(model(f, average));
    free(f);
}

static void test_ranked_forests_equal_the_plain_walk(void **state)
{
    static const char *const leq[] = {"BRANCH_LEQ"}, *const lt[] = {"BRANCH_LT"},
                             *const mixed[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"};
    run(leq, 1, 20, 6, 128, PARITY, false);
    run(lt, 1, 33, 7, 128, PARITY, true);
    run(mixed, 4, 17, 5, 60, PARITY, false);
    run(mixed, 4, 9, 6, 60, ALL, true);
    run(mixed, 4, 37, 6, 60, SECOND, false);
    missing_to_no = true;
    run(leq, 1, 41, 6, 128, SECOND, false);
    missing_to_no = false;
}

static void test_forests_beyond_a_byte_equal_the_plain_walk(void **state)
{
    static const char *const leq[] = {"BRANCH_LEQ"}, *const any[] = {"BRANCH_LEQ", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_GT"};
    run(leq, 1, 20, 6, 5000, PARITY, false); /* too many thresholds */
    run(leq, 1, 6, 11, 128, PARITY, false);  /* too many leaves */
    run(any, 4, 11, 6, 100, PARITY, false);  /* splits that are no ordering */
    /* Features with so many thresholds that each fills several columns, and as many splits on few of them. */
    run(leq, 1, 120, 7, 50000, PARITY, false);
    run(leq, 1, 120, 7, 400, PARITY, false);
}

/* Ranks are found by buckets of the number or of its logarithm: thresholds at the ends of float32 and around 0, numbers on them. */
static void test_thresholds_of_every_size(void **state)
{
    static const char *const leq[] = {"BRANCH_LEQ"}, *const mixed[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"};
    thresholds_lie = WIDE;
    run(leq, 1, 40, 6, 1000, PARITY, false);
    run(mixed, 4, 40, 6, 1000, SECOND, false);
    run(mixed, 4, 8, 3, 1000, ALL, false);
    thresholds_lie = EVEN;
}

static void test_more_thresholds_of_a_feature_than_sixteen_bits_count(void **state)
{
    static const char *const leq[] = {"BRANCH_LEQ"};
    thresholds_lie = ONE;
    run(leq, 1, 380, 8, 80000, SECOND, false);
    thresholds_lie = EVEN;
}

/* TreeEnsemble names roots and leaves by number: the same tree again and again, or trees that share two leaves. */
static void compare_shared(size_t trees, bool one_tree)
{
    pst_err err = {0};
    size_t nodes = one_tree ? 1 : trees;
    int64_t *lists = calloc(5 * trees, sizeof *lists), *roots = lists, *zeros = lists + trees, *yes = lists + 2 * trees,
            *no = lists + 3 * trees, *ones = lists + 4 * trees;
    float *splits = calloc(2 * trees, sizeof *splits), *modes = splits + trees;
    for (size_t i = 0; i < trees; i++) {
        roots[i] = one_tree ? 0 : (int64_t)i;
        no[i] = ones[i] = 1;
        splits[i] = 1;
    }
    pst_onnx_builder *o = pst_onnx_new("shared", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, 1}, "N");
    pst_onnx_node(o, "TreeEnsemble", (const char *[]){"x"}, 1, (const char *[]){"y"}, 1);
    pst_onnx_domain(o, "ai.onnx.ml", 5);
    pst_onnx_attr_ints(o, "nodes_featureids", zeros, nodes);
    pst_onnx_attr_ints(o, "nodes_truenodeids", yes, nodes);
    pst_onnx_attr_ints(o, "nodes_falsenodeids", no, nodes);
    pst_onnx_attr_ints(o, "nodes_trueleafs", ones, nodes);
    pst_onnx_attr_ints(o, "nodes_falseleafs", ones, nodes);
    pst_onnx_attr_ints(o, "leaf_targetids", (int64_t[]){0, 0}, 2);
    pst_onnx_attr_ints(o, "tree_roots", roots, trees);
    pst_onnx_attr_floats(o, "nodes_splits", splits, nodes);
    pst_onnx_attr_floats(o, "leaf_weights", (float[]){2, -3}, 2);
    pst_onnx_attr_floats(o, "nodes_modes", modes, nodes);
    pst_onnx_attr_int(o, "n_targets", 1);
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, 1}, "N");
    pst_model *m = kit_load(o, NULL);
    pst_plan *p = kit_plan(m, NULL, false);
    float x[64];
    for (int i = 0; i < 64; i++)
        x[i] = i % 2 ? 0.5f : 1.5f;
    for (int rows = 1; rows <= 64; rows += 63) {
        pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {rows, 1}, .data = x}, out;
        assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), 0);
        for (int i = 0; i < rows; i++)
            assert_true(((const float *)out.data)[i] == (i % 2 ? 2.0f : -3.0f) * (float)trees);
    }
    pst_plan_free(p);
    pst_model_unref(m);
    free(lists);
    free(splits);
}

static void test_trees_that_share(void **state)
{
    compare_shared(5000, true);
    compare_shared(5000, false);
}

/* Why the forest is refused by a plan, fused or not. */
static void refused(forest *f, const char *why)
{
    pst_model *m = model(f, false);
    for (int plain = 0; plain < 2; plain++) {
        pst_plan *p = NULL;
        pst_err err = {0};
        pst_plan_opts opts = {.no_fusion = plain};
        if (pst_plan_new(m, &opts, &p, &err) == 0)
            fail_msg("a forest was taken that should not have been: %s", why);
        assert_int_equal(err.cls, PST_CLASS_DATA);
        if (!strstr(err.text, why))
            fail_msg("\"%s\" does not say \"%s\"", err.text, why);
    }
    pst_model_unref(m);
}

static forest *grown(int trees)
{
    static const char *const leq[] = {"BRANCH_LEQ"};
    forest *f = calloc(1, sizeof *f);
    do { /* a tree of nothing but a split and its leaves has no node 4 to spoil */
        f->n = f->n_w = 0;
        for (int t = 0; t < trees; t++) {
            int64_t next = 0;
            grow(f, t, &next, 4, leq, 1, 50, PARITY);
        }
    } while (f->n < 12 || f->tree[4] != 0 || !strcmp(f->mode[1], "LEAF"));
    return f;
}

static void test_bad_forests_are_refused(void **state)
{
    static const char *const why[] = {"has no root", "no child", "target", "used twice", "BRANCH_SIDEWAYS"};
    for (int kind = 0; kind < 5; kind++) {
        forest *f = grown(1);
        if (kind == 0)
            f->yes[1] = f->node[1]; /* a cycle */
        else if (kind == 1)
            f->no[0] = 100000;
        else if (kind == 2)
            f->w_id[0] = 7;
        else if (kind == 3)
            f->node[3] = f->node[4];
        else
            f->mode[1] = "BRANCH_SIDEWAYS";
        refused(f, kind == 0 ? "two parents" : why[kind]);
        free(f);
    }
}

/* A (tree, node) listed twice: any two places, inner nodes and leaves, also as an exact copy at the end, which names no new child. */
static void test_nodes_listed_twice_are_refused(void **state)
{
    for (int round = 0; round < 200; round++) {
        forest *f = grown(3);
        size_t a = rnd((uint32_t)f->n), b = round % 2 ? f->n : rnd((uint32_t)f->n);
        for (; b < f->n && (a == b || f->tree[a] != f->tree[b]); b = rnd((uint32_t)f->n))
            ;
        if (b == f->n) {
            f->n++;
            f->tree[b] = f->tree[a];
            f->feature[b] = f->feature[a];
            f->yes[b] = f->yes[a];
            f->no[b] = f->no[a];
            f->value[b] = f->value[a];
            f->mode[b] = f->mode[a];
        }
        f->node[b] = f->node[a];
        refused(f, "used twice");
        free(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranked_forests_equal_the_plain_walk),
        cmocka_unit_test(test_forests_beyond_a_byte_equal_the_plain_walk),
        cmocka_unit_test(test_thresholds_of_every_size),
        cmocka_unit_test(test_more_thresholds_of_a_feature_than_sixteen_bits_count),
        cmocka_unit_test(test_trees_that_share),
        cmocka_unit_test(test_bad_forests_are_refused),
        cmocka_unit_test(test_nodes_listed_twice_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
