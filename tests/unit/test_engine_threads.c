/* One model, a plan per thread: every thread gets the results that one thread alone gets. Under ThreadSanitizer this is the proof of
 * what engine/README.md says about threads. */
#include "tests/unit/engine_models.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { THREADS = 4, ROUNDS = 25, BATCHES = 7 };

typedef struct work {
    const kit_model *k;
    pst_model *m; /* a reference of its own */
    const pst_buf *file;
    pst_buf want[BATCHES + 1];
    int wrong;
} work;

/* Runs every batch once and keeps or compares the results. */
static int batches(pst_plan *p, const kit_model *k, pst_buf *want, bool compare)
{
    int wrong = 0;
    pst_buf got = {0};
    for (int n = 1; n <= BATCHES; n++) {
        pst_tensor in = kit_input(k, n), out;
        pst_err err = {0};
        wrong += pst_plan_run(p, &in, 1, &out, 1, &err) < 0;
        if (!wrong)
            kit_result(&out, compare ? &got : &want[n]);
        if (compare && !wrong)
            wrong += got.len != want[n].len || memcmp(got.data, want[n].data, got.len) != 0;
        free(in.data);
    }
    pst_buf_done(&got);
    return wrong;
}

static void *worker(void *arg)
{
    work *w = arg;
    for (int r = 0; r < ROUNDS && !w->wrong; r++) {
        pst_plan *p = NULL;
        pst_model *fresh = NULL;
        w->wrong += pst_plan_new(w->m, NULL, &p, NULL) < 0;
        for (int again = 0; again < 4 && !w->wrong; again++)
            w->wrong += batches(p, w->k, w->want, true);
        pst_plan_free(p);
        w->wrong += r % 8 == 0 && pst_model_load(w->file->data, w->file->len, NULL, NULL, &fresh, NULL) < 0;
        pst_model_unref(fresh);
    }
    pst_model_unref(w->m);
    return NULL;
}

static void test_threads_share_a_model_and_agree(void **state)
{
    for (size_t k = 0; k < KIT_MODELS; k++) {
        pst_buf file = {0};
        pst_err err = {0};
        pst_model *m = NULL;
        pst_plan *p = NULL;
        work w[THREADS] = {0};
        pthread_t id[THREADS];
        kit_models[k].build(&file);
        if (pst_model_load(file.data, file.len, NULL, NULL, &m, &err) < 0 || pst_plan_new(m, NULL, &p, &err) < 0)
            fail_msg("%s: %s", kit_models[k].name, err.text);
        for (int t = 0; t < THREADS; t++) {
            w[t] = (work){.k = &kit_models[k], .m = pst_model_ref(m), .file = &file};
            assert_int_equal(batches(p, w[t].k, w[t].want, false), 0);
        }
        pst_plan_free(p);
        pst_model_unref(m); /* the threads hold it now */
        for (int t = 0; t < THREADS; t++)
            assert_int_equal(pthread_create(&id[t], NULL, worker, &w[t]), 0);
        for (int t = 0; t < THREADS; t++) {
            pthread_join(id[t], NULL);
            if (w[t].wrong)
                fail_msg("%s: thread %d has other results", kit_models[k].name, t);
            for (int n = 0; n <= BATCHES; n++)
                pst_buf_done(&w[t].want[n]);
        }
        pst_buf_done(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads_share_a_model_and_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
