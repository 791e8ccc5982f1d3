/* test_cuda_trees.c - the tree kernel, run by the emulation (engine/cuda/emu.hpp), beside the plain walk of the CPU: equal bit for bit, at sizes
 * that fill no block, in every order of threads. And the emulation itself: it finds what it is there to find. */
#include "engine/cuda/trees_pack.h"
#include "engine/heap.h"
#include "engine/ops/tree_fast.h"
#include "engine/plan.h"
#include "tests/unit/cuda_emu_kit.h"
#include "tests/unit/engine_kit.h"

enum { NODES_MAX = 60000, SET_WORDS = 3 };

/* A forest as any reader might have made it. */
typedef struct made {
    eng_forest f;
    eng_tree_node nodes[NODES_MAX];
    eng_tree_leaf leaves[NODES_MAX];
    eng_tree_weight weights[3 * NODES_MAX];
    int32_t roots[3000];
    uint32_t bits[3 * NODES_MAX];
    float start[8];
    int32_t n_bits;
} made;

/* What forests are made of. */
typedef struct kind {
    int trees, depth, features, targets, thresholds;
    bool wide, start, average, sets, zero_missing, odd_tree, many; /* many: leaves of no, one or two weights */
} kind;

static double threshold(const kind *k)
{
    static const double rare[] = {INFINITY, -0.0, 0.0, 1e-36, -1e-40, 3e38};
    double t = kit_next() % 20 ? (double)(kit_next() % (uint32_t)k->thresholds) / 16 - 4 : rare[kit_next() % 6];
    return k->wide && kit_next() % 2 ? t + 1e-13 : t;
}

static int32_t new_leaf(made *m, const kind *k)
{
    eng_forest *f = &m->f;
    int n = k->many ? (int)(kit_next() % 3) : 1;
    f->leaves[f->n_leaves] = (eng_tree_leaf){.at = (int32_t)f->n_weights, .n = n};
    for (int i = 0; i < n; i++)
        f->weights[f->n_weights++] = (eng_tree_weight){.target = (int32_t)(kit_next() % (uint32_t)k->targets),
                                                       .value = (double)kit_float() * (k->wide ? 1.0 / 3 : 1)};
    return ~f->n_leaves++;
}

static int32_t grow(made *m, const kind *k, int depth)
{
    eng_forest *f = &m->f;
    if (!depth || kit_next() % 9 == 0)
        return new_leaf(m, k);
    int32_t at = f->n_nodes++;
    eng_tree_node *n = &f->nodes[at];
    *n = (eng_tree_node){.split = threshold(k),
                         .feature = (int32_t)(kit_next() % (uint32_t)k->features),
                         .mode = (uint8_t)(kit_next() % 4),
                         .missing_yes = kit_next() % 2,
                         .zero_missing = k->zero_missing && kit_next() % 3 == 0};
    if (k->sets && kit_next() % 4 == 0) {
        n->mode = ENG_TREE_BITS;
        n->zero_missing = false;
        n->split = n->feature % 2 ? -1 : 0;
        n->set_at = m->n_bits;
        n->set_n = 1 + (int32_t)(kit_next() % SET_WORDS);
        for (int32_t i = 0; i < n->set_n; i++)
            f->bits[m->n_bits++] = kit_next();
    }
    int32_t yes = grow(m, k, depth - 1), no = grow(m, k, depth - 1);
    f->nodes[at].yes = yes;
    f->nodes[at].no = no;
    return at;
}

static made *make(const kind *k)
{
    made *m = calloc(1, sizeof *m);
    eng_forest *f = &m->f;
    *f = (eng_forest){.nodes = m->nodes,
                      .leaves = m->leaves,
                      .weights = m->weights,
                      .roots = m->roots,
                      .bits = m->bits,
                      .n_targets = k->targets,
                      .aggregate = k->average ? ENG_AGG_AVERAGE : ENG_AGG_SUM,
                      .wide = k->wide,
                      .start = k->start ? m->start : NULL};
    for (int i = 0; i < k->targets; i++)
        m->start[i] = kit_float();
    for (; f->n_trees < k->trees; f->n_trees++)
        f->roots[f->n_trees] = f->n_trees == 2 ? new_leaf(m, k) : grow(m, k, k->odd_tree && f->n_trees == 1 ? 12 : k->depth);
    eng_forest_settle(f);
    return m;
}

static double number(const kind *k)
{
    uint32_t c = kit_next() % 40;
    if (c < 5)
        return c == 0 ? (double)INFINITY : c == 1 ? -(double)INFINITY : c == 2 ? 0 : (double)NAN;
    return c < 20 ? threshold(k) : c < 30 ? (double)(kit_next() % 120) : (double)kit_float() * 3;
}

/* rows of numbers as a run gets them: exactly as large, so that AddressSanitizer sees what lies beyond. free() it. */
static void *rows_of(const kind *k, int rows, int cols)
{
    size_t n = (size_t)rows * (size_t)cols;
    void *x = malloc(n * (k->wide ? sizeof(double) : sizeof(float)));
    for (size_t i = 0; i < n; i++)
        if (k->wide)
            ((double *)x)[i] = number(k);
        else
            ((float *)x)[i] = (float)number(k);
    return x;
}

typedef struct packed {
    eng_cuda_forest head;
    unsigned char *image;
} packed;

/* The image in memory of its own size. */
static packed pack(eng_forest *f, eng_op_ctx *c)
{
    packed p;
    pst_err err = {0};
    unsigned char *image = NULL;
    eng_forest_fast_new(c, f);
    assert_non_null(f->fast);
    if (eng_cuda_trees_pack(f, &p.head, &image, &err) < 0)
        fail_msg("%s", err.text);
    p.image = malloc(p.head.bytes);
    memcpy(p.image, image, p.head.bytes);
    eng_heap_free(image);
    return p;
}

static void compare(const kind *k, const eng_forest *f, const packed *p, int rows, int cols)
{
    size_t n = (size_t)rows * (size_t)k->targets;
    double *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    void *x = rows_of(k, rows, cols);
    if (k->wide)
        eng_forest_eval_d(f, x, rows, cols, want, NULL);
    else
        eng_forest_eval_f(f, x, rows, cols, want, NULL);
    for (int order = 0; order < EMU_KIT_ORDERS; order++) {
        uint64_t before = emu_kit_switches();
        memset(got, 0xee, n * sizeof *got);
        emu_kit_order(order);
        if (eng_cuda_trees_run(&p->head, p->image, x, rows, cols, got, NULL) != 0)
            fail_msg("%d rows: %s", rows, emu_kit_fault());
        assert_true(emu_kit_switches() > before);
        for (size_t i = 0; i < n; i++)
            if (memcmp(&got[i], &want[i], sizeof *got) != 0)
                fail_msg("%d rows, order %d: row %zu target %zu is %.17g for %.17g", rows, order, i / (size_t)k->targets,
                         i % (size_t)k->targets, got[i], want[i]);
    }
    free(x);
    free(want);
    free(got);
}

static void run(const kind *k)
{
    static const int sizes[] = {1, 31, 33, 255, 257, 600};
    eng_zone zone = {0};
    pst_plan plan = {0};
    eng_op_ctx c = {.keep = &zone, .plan = &plan};
    made *m = make(k);
    packed p = pack(&m->f, &c);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        compare(k, &m->f, &p, sizes[i], k->features + (int)i % 3);
    free(p.image);
    eng_zone_done(&zone);
    free(m);
}

static void test_forests_of_every_kind(void **state)
{
    run(&(kind){.trees = 40, .depth = 6, .features = 9, .targets = 1, .thresholds = 128});
    run(&(kind){.trees = 30, .depth = 5, .features = 7, .targets = 1, .thresholds = 128, .start = true});
    run(&(kind){.trees = 21, .depth = 6, .features = 9, .targets = 3, .thresholds = 128, .average = true});
    run(&(kind){.trees = 21, .depth = 5, .features = 9, .targets = 3, .thresholds = 128, .start = true, .many = true});
    run(&(kind){.trees = 33, .depth = 6, .features = 9, .targets = 1, .thresholds = 128, .wide = true, .average = true});
    run(&(kind){.trees = 33, .depth = 6, .features = 9, .targets = 2, .thresholds = 60, .wide = true, .zero_missing = true, .sets = true});
    run(&(kind){.trees = 25, .depth = 5, .features = 9, .targets = 1, .thresholds = 60, .zero_missing = true, .sets = true});
    run(&(kind){.trees = 1, .depth = 1, .features = 1, .targets = 1, .thresholds = 3});
}

/* More thresholds than a byte tells apart, and more columns than 256 rows' ranks leave room for. */
static void test_many_columns(void **state)
{
    run(&(kind){.trees = 120, .depth = 7, .features = 3, .targets = 1, .thresholds = 60000});
    run(&(kind){.trees = 120, .depth = 6, .features = 90, .targets = 1, .thresholds = 128});
    run(&(kind){.trees = 150, .depth = 6, .features = 350, .targets = 1, .thresholds = 128});
}

/* Chunks: several, and a tree that fits none. */
static void test_chunks(void **state)
{
    run(&(kind){.trees = 30, .depth = 9, .features = 9, .targets = 1, .thresholds = 128});
    run(&(kind){.trees = 5, .depth = 6, .features = 9, .targets = 2, .thresholds = 128, .odd_tree = true});
    kind k = {.trees = 5, .depth = 11, .features = 4, .targets = 1, .thresholds = 90};
    run(&k);
    eng_zone zone = {0};
    pst_plan plan = {0};
    eng_op_ctx c = {.keep = &zone, .plan = &plan};
    made *m;
    do
        m = make(&k);
    while (m->f.n_nodes < 2 * ENG_CUDA_CHUNK_PLACES && (free(m), true));
    packed p = pack(&m->f, &c);
    const eng_cuda_chunk *chunks = (const eng_cuda_chunk *)(p.image + p.head.chunks.at);
    bool large = false;
    for (uint64_t i = 0; i < p.head.chunks.n; i++)
        large |= chunks[i].n > ENG_CUDA_CHUNK_PLACES && chunks[i].n_trees == 1;
    assert_true(large);
    assert_true(p.head.chunks.n > 1);
    free(p.image);
    eng_zone_done(&zone);
    free(m);
}

static void test_what_stays_on_the_cpu(void **state)
{
    eng_zone zone = {0};
    pst_plan plan = {0};
    eng_op_ctx c = {.keep = &zone, .plan = &plan};
    pst_err err = {0};
    eng_cuda_forest head;
    unsigned char *image = NULL;
    kind k = {.trees = 4, .depth = 4, .features = 4, .targets = 1, .thresholds = 50};
    made *m = make(&k);
    m->f.nodes[0].mode = ENG_TREE_EQ;
    eng_forest_fast_new(&c, &m->f);
    assert_int_equal(eng_cuda_trees_pack(&m->f, &head, &image, &err), PST_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "neither an ordering nor a set"));
    free(m);
    k = (kind){.trees = 300, .depth = 6, .features = 900, .targets = 1, .thresholds = 50};
    m = make(&k);
    eng_forest_fast_new(&c, &m->f);
    err = (pst_err){0};
    assert_int_equal(eng_cuda_trees_pack(&m->f, &head, &image, &err), PST_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "shared memory"));
    assert_null(image);
    eng_zone_done(&zone);
    free(m);
}

/* ---- the emulation ---- */

static void faults(emu_kit_kind which, const char *what)
{
    uint32_t out[128];
    for (int order = 0; order < EMU_KIT_ORDERS; order++) {
        emu_kit_order(order);
        if (emu_kit_run(which, 128, out) == 0 || !strstr(emu_kit_fault(), what))
            fail_msg("order %d: \"%s\" is not \"%s\"", order, emu_kit_fault(), what);
    }
}

static void test_the_emulation_finds_faults(void **state)
{
    faults(EMU_KIT_HALF_BARRIER, "64 of 128 threads wait at a barrier, 0 at a warp operation, 64 have ended");
    faults(EMU_KIT_BEYOND, "thread 127: place 128 of 128");
    faults(EMU_KIT_LANE_MISSING, "124 at a warp operation, 4 have ended");
    faults(EMU_KIT_NOT_IN_MASK, "not in its mask fffffffe");
    faults(EMU_KIT_MUCH_SHARED, "49153 bytes of shared memory, and 49152 are the most");
    uint32_t out[1025];
    assert_int_equal(emu_kit_run(EMU_KIT_REVERSE, 1024, out), 0);
    assert_int_not_equal(emu_kit_run(EMU_KIT_REVERSE, 1025, out), 0);
    assert_string_equal(emu_kit_fault(), "a block of 1025 threads, and 1024 are the most");
}

static void test_the_emulation_computes(void **state)
{
    uint32_t out[96];
    int wrong = 0;
    for (int order = 0; order < EMU_KIT_ORDERS; order++) {
        emu_kit_order(order);
        assert_int_equal(emu_kit_run(EMU_KIT_REVERSE, 96, out), 0);
        for (uint32_t i = 0; i < 96; i++)
            assert_int_equal(out[i], 95 - i);
        assert_int_equal(emu_kit_run(EMU_KIT_SHUFFLE, 96, out), 0);
        for (uint32_t i = 0; i < 96; i++)
            assert_int_equal(out[i], 496 + i / 32 * 1024);
        assert_int_equal(emu_kit_run(EMU_KIT_NO_BARRIER, 96, out), 0);
        for (uint32_t i = 0; i < 96; i++)
            wrong += out[i] != 95 - i;
    }
    assert_true(wrong > 96); /* a barrier that is missing shows */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_emulation_finds_faults),
        cmocka_unit_test(test_the_emulation_computes),
        cmocka_unit_test(test_forests_of_every_kind),
        cmocka_unit_test(test_many_columns),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_what_stays_on_the_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
