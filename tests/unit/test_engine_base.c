/* What the engine stands on: memory with owners, names. */
#include "engine/heap.h"
#include "engine/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    eng_heap inner;
    int reached;
} job;

/* Blocks of all kinds, freed in another order than they were taken in, grown in the middle of the list. */
static int mixed(void *arg, pst_err *err)
{
    unsigned char *p[64] = {0};
    for (int i = 0; i < 64; i++) {
        p[i] = i % 3 == 0 ? eng_heap_alloc((size_t)i) : i % 3 == 1 ? eng_heap_bytes((size_t)i) : eng_heap_alloc64((size_t)i);
        assert_int_equal((uintptr_t)p[i] % (i % 3 == 2 ? 64 : 16), 0);
        memset(p[i], i, (size_t)i);
    }
    for (int i = 0; i < 64; i += 3) {
        p[i] = eng_heap_realloc(p[i], (size_t)(i + 1) * 1000);
        for (int k = 0; k < i; k++)
            assert_int_equal(p[i][k], i);
    }
    for (int i = 63; i >= 0; i -= 2)
        eng_heap_free(p[i]);
    eng_heap_free(NULL);
    eng_heap_text t = {0};
    for (int i = 0; i < 500; i++)
        eng_heap_printf(&t, "%d,", i);
    assert_int_equal(t.len, 1890);
    assert_int_equal(strlen(t.data), 1890);
    ((job *)arg)->reached++;
    return 0; /* what is left goes with the owner */
}

static int too_much(void *arg, pst_err *err)
{
    pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "onnx", 0, "something else, said before");
    eng_heap_alloc(100);
    eng_heap_array(SIZE_MAX / 4, 8);
    ((job *)arg)->reached = 1000;
    return 0;
}

static int nested(void *arg, pst_err *err)
{
    job *j = arg;
    eng_heap_alloc(10);
    int rc = eng_heap_run(&j->inner, too_much, j, err);
    eng_heap_release(&j->inner);
    assert_int_equal(rc, PST_ENOMEM);
    pst_err_clear(err);
    eng_heap_alloc(10); /* the outer run goes on */
    j->reached++;
    return 7;
}

static void test_memory_belongs_to_its_owner(void **state)
{
    eng_heap h = {0};
    job j = {0};
    pst_err err = {0};
    assert_int_equal(eng_heap_run(&h, mixed, &j, &err), 0);
    eng_heap_release(&h);
    assert_null(h.first);
    assert_int_equal(eng_heap_run(&h, nested, &j, &err), 7);
    assert_int_equal(j.reached, 2);
    assert_int_equal(err.code, 0);
    assert_int_equal(eng_heap_run(&h, too_much, &j, &err), PST_ENOMEM);
    assert_int_equal(err.code, PST_ENOMEM); /* not what was said before memory ran out */
    assert_int_equal(eng_heap_run(&h, too_much, &j, NULL), PST_ENOMEM);
    eng_heap_release(&h);
    assert_int_equal(j.reached, 2);
}

typedef struct growing {
    int *at;
    size_t n, cap, grown, more;
} growing;

static int grow_arrays(void *arg, pst_err *err)
{
    growing *g = arg;
    for (; g->n < 1000; g->n++) {
        size_t was = g->cap;
        g->at = eng_heap_room(g->at, g->n, 1, &g->cap, sizeof *g->at);
        g->grown += g->cap != was;
        g->at[g->n] = (int)g->n;
    }
    g->at = eng_heap_room(g->at, g->n, g->more, &g->cap, sizeof *g->at);
    return 0;
}

/* Room that cannot be had leaves the array and its size as they were. */
static void test_arrays_of_an_owner_grow_or_stay(void **state)
{
    eng_heap h = {0};
    pst_err err = {0};
    growing g = {.more = 5000};
    assert_int_equal(eng_heap_run(&h, grow_arrays, &g, &err), 0);
    assert_int_equal(g.grown, 7); /* 16, 32 … 1024 */
    assert_int_equal(g.cap, 6000);
    const size_t none[] = {SIZE_MAX, SIZE_MAX - 500, SIZE_MAX / sizeof(int), SIZE_MAX / 8};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        g.more = none[i];
        assert_int_equal(eng_heap_run(&h, grow_arrays, &g, &err), PST_ENOMEM);
        assert_int_equal(g.cap, 6000);
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(g.at[i], i);
    eng_heap_release(&h);
}

static int many_names(void *arg, pst_err *err)
{
    enum { N = 20000 };
    char(*text)[16] = eng_heap_array(N, sizeof *text);
    eng_names n = {0};
    assert_int_equal(eng_names_get(&n, "x"), -1);
    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], "name/%d", i);
        eng_names_put(&n, text[i], i);
    }
    eng_names_put(&n, "name/7", 77); /* replaces, and keeps its place */
    assert_int_equal(n.n, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(eng_names_get(&n, text[i]), i == 7 ? 77 : i);
        assert_string_equal(n.at[i].name, text[i]);
    }
    assert_int_equal(eng_names_get(&n, "name/20000"), -1);
    assert_int_equal(eng_names_get(&n, ""), -1);
    eng_names_done(&n);
    assert_int_equal(eng_names_get(&n, "name/1"), -1);
    return 0;
}

static void test_names_find_what_was_put(void **state)
{
    eng_heap h = {0};
    assert_int_equal(eng_heap_run(&h, many_names, NULL, NULL), 0);
    eng_heap_release(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_belongs_to_its_owner),
        cmocka_unit_test(test_arrays_of_an_owner_grow_or_stay),
        cmocka_unit_test(test_names_find_what_was_put),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
