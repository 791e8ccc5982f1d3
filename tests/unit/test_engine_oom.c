/* Memory runs out at the N-th allocation, for every N, while a model is loaded, a plan made and a batch run: PST_ENOMEM with a
 * sentence each time, nothing leaked (AddressSanitizer looks), and the same call succeeds afterwards with the same numbers. */
#include "tests/unit/engine_models.h"

#include "common/base/log.h"
#include "engine/backend_test.h"
#include "engine/heap.h"

#include <dirent.h>
#include <unistd.h>

static uint64_t failures; /* met in all */

/* Whether the n-th allocation was reached; if so the call must have said so. */
static bool met(uint64_t n, int rc, const pst_err *err, const char *what)
{
    if (eng_heap_test_fail(0, false) < n) {
        if (rc < 0)
            fail_msg("%s: %s", what, err->text);
        return false;
    }
    failures++;
    if (rc != PST_ENOMEM || err->code != PST_ENOMEM || err->cls != PST_CLASS_RETRY || !strstr(err->text, "out of memory"))
        fail_msg("%s, allocation %llu: %d, \"%s\"", what, (unsigned long long)n, rc, err->text);
    return true;
}

static void load_fails(const pst_buf *file, const char *path, const char *name, bool on)
{
    for (uint64_t n = 1, hit = 1; hit; n++) {
        pst_err err = {0};
        pst_model *m = NULL;
        eng_heap_test_fail(n, on);
        int rc = path ? pst_model_load_file(path, NULL, &m, &err) : pst_model_load(file->data, file->len, NULL, NULL, &m, &err);
        hit = met(n, rc, &err, name);
        assert_true(hit ? m == NULL : m != NULL);
        pst_model_unref(m);
    }
}

/* A model anew for each: what plans of one share is there for the second. */
static void plan_fails(const pst_buf *file, const pst_plan_opts *opts, const char *name, bool on)
{
    for (uint64_t n = 1, hit = 1; hit; n++) {
        pst_err err = {0};
        pst_plan *p = NULL;
        pst_model *m = kit_load_bytes(file, NULL, NULL);
        eng_heap_test_fail(n, on);
        int rc = pst_plan_new(m, opts, &p, &err);
        hit = met(n, rc, &err, name);
        assert_true(hit ? p == NULL : p != NULL);
        pst_plan_free(p);
        pst_model_unref(m);
    }
}

static void explain_fails(pst_model *m, const kit_model *k, bool on)
{
    for (uint64_t n = 1, hit = 1; hit; n++) {
        pst_err err = {0};
        char *text = NULL;
        eng_heap_test_fail(n, on);
        int rc = pst_model_explain(m, NULL, NULL, &text, &err);
        hit = eng_heap_test_fail(0, false) >= n;
        failures += hit;
        if (hit ? rc == 0 && on : rc < 0 || !text) /* a failure that passes may end in a text without shapes */
            fail_msg("%s, allocation %llu: %d, \"%s\"", k->name, (unsigned long long)n, rc, err.text);
        free(text);
    }
}

static int run(pst_plan *p, const kit_model *k, int64_t rows, pst_buf *ret, pst_err *err)
{
    pst_tensor in = kit_input(k, rows), out;
    int rc = pst_plan_run(p, &in, 1, &out, 1, err);
    if (rc == 0)
        kit_result(&out, ret);
    free(in.data);
    return rc;
}

/* One plan lives through all failures: of small and of larger batches, in the run and in the building again. */
static void run_fails(pst_model *m, const pst_plan_opts *opts, const kit_model *k, bool on)
{
    pst_buf want = {0}, got = {0};
    pst_err err = {0};
    pst_plan *p = NULL;
    assert_int_equal(pst_plan_new(m, opts, &p, &err), 0);
    if (run(p, k, 5, &want, &err) < 0)
        fail_msg("%s: %s", k->name, err.text);
    pst_plan_free(p);
    p = NULL;
    assert_int_equal(pst_plan_new(m, opts, &p, &err), 0);
    for (uint64_t n = 1, hit = 1; hit; n++) {
        if (n % 2)
            assert_int_equal(run(p, k, 1, &got, &err), 0); /* a smaller batch before, every other time */
        eng_heap_test_fail(n, on);
        pst_err why = {0};
        int rc = run(p, k, 5, &got, &why);
        hit = met(n, rc, &why, k->name);
        for (uint64_t q = 1; hit && q < 200; q += 1 + q / 3) { /* and again, while the next run builds the plan */
            pst_err again = {0};
            eng_heap_test_fail(q, on);
            rc = run(p, k, 5, &got, &again);
            if (!met(q, rc, &again, k->name))
                break;
        }
        char *text = pst_plan_explain(p);
        assert_non_null(text);
        free(text);
        assert_int_equal(run(p, k, 5, &got, &err), 0);
        assert_int_equal(got.len, want.len);
        assert_memory_equal(got.data, want.data, want.len);
    }
    for (uint64_t n = 1, hit = 1; hit; n++) {
        eng_heap_test_fail(n, on);
        char *text = pst_plan_explain(p);
        hit = eng_heap_test_fail(0, false) >= n;
        assert_true(hit == !text);
        free(text);
    }
    pst_plan_free(p);
    pst_buf_done(&want);
    pst_buf_done(&got);
}

static void test_every_allocation_may_fail(void **state)
{
    for (size_t k = 0; k < KIT_MODELS; k++)
        for (int mode = 0; mode < 4; mode++) {
            bool on = mode & 1;
            pst_plan_opts opts = {.no_fusion = mode & 2};
            pst_buf file = {0};
            uint64_t before = failures;
            kit_models[k].build(&file);
            load_fails(&file, NULL, kit_models[k].name, on);
            pst_model *m = kit_load_bytes(&file, NULL, NULL);
            plan_fails(&file, &opts, kit_models[k].name, on);
            run_fails(m, &opts, &kit_models[k], on);
            if (mode < 2)
                explain_fails(m, &kit_models[k], on);
            pst_model_unref(m);
            pst_buf_done(&file);
            assert_true(failures - before > 30); /* else nothing was tried */
        }
}

static void test_reading_the_file_may_fail(void **state)
{
    char path[] = "/tmp/pst_engine_oom_XXXXXX";
    pst_buf file = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    kit_mlp(&file);
    assert_int_equal(write(fd, file.data, file.len), (ssize_t)file.len);
    close(fd);
    load_fails(NULL, path, "file", false);
    load_fails(NULL, path, "file", true);
    unlink(path);
    pst_buf_done(&file);
}

static void test_reserved_words_must_be_zero(void **state)
{
    pst_err err = {0};
    pst_buf file = {0};
    pst_model *m = NULL;
    pst_plan *p = NULL;
    pst_model_limits limits = {.reserved = {0, 7}};
    pst_plan_opts opts = {.reserved = {1}};
    kit_mlp(&file);
    assert_int_equal(pst_model_load(file.data, file.len, NULL, &limits, &m, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "pst_model_limits: reserved word 1"));
    m = kit_load_bytes(&file, NULL, NULL);
    err = (pst_err){0};
    assert_int_equal(pst_plan_new(m, &opts, &p, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "pst_plan_opts: reserved word 0"));
    pst_model_unref(m);
    pst_buf_done(&file);
}

/* The ONNX node tests, where they are: every operator's kernel runs out of memory at each of its allocations. */
static void test_operators_run_out_of_memory(void **state)
{
    const char *root = getenv("PENSTOCK_ONNX_NODE_TESTS"), *every = getenv("PENSTOCK_OOM_EVERY");
    DIR *d = root && *root ? opendir(root) : NULL;
    int step = every ? atoi(every) : 12, at = 0, ran = 0, theirs = 0;
    if (!d) {
        printf("skipped: no ONNX node tests. Cure: see test_engine_nodes\n");
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        char dir[600];
        if (strncmp(e->d_name, "test_", 5))
            continue;
        uint32_t h = 0; /* the folder's order is the file system's: choose by name */
        for (const char *s = e->d_name; *s; s++)
            h = h * 31 + (uint8_t)*s;
        if (step > 1 && h % (uint32_t)step)
            continue;
        at++;
        snprintf(dir, sizeof dir, "%s/%s", root, e->d_name);
        eng_heap_test_fail(0, false);
        unsigned how = 0;
        if (pst_node_test(dir, how, NULL) != PST_NODE_TEST_PASS) { /* what the engine does not cover: ONNX Runtime, where there is one */
            how = PST_NODE_TEST_ONNXRUNTIME;
            eng_heap_test_fail(0, false);
            if (pst_node_test(dir, how, NULL) != PST_NODE_TEST_SERVED)
                continue;
            theirs++;
        }
        uint64_t asked = eng_heap_test_fail(0, false);
        ran++;
        for (uint64_t n = 1; n <= asked; n++) {
            pst_err err = {0};
            eng_heap_test_fail(n, n % 2);
            pst_node_test_result r = pst_node_test(dir, how, &err);
            bool hit = eng_heap_test_fail(0, false) >= n;
            failures += hit;
            if (hit ? r != PST_NODE_TEST_FAIL || err.code != PST_ENOMEM : r != (how ? PST_NODE_TEST_SERVED : PST_NODE_TEST_PASS))
                fail_msg("%s, allocation %llu of %llu: result %d, \"%s\"", e->d_name, (unsigned long long)n, (unsigned long long)asked, r,
                         err.text);
        }
    }
    closedir(d);
    printf("%d of %d folders (%d of them by ONNX Runtime), %llu failures met\n", ran, at, theirs, (unsigned long long)failures);
    assert_true(ran > 0);
}

int main(void)
{
    pst_log_set_level(PST_LOG_WARN); /* a line for every model that ONNX Runtime serves would be too many */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_reading_the_file_may_fail),
        cmocka_unit_test(test_reserved_words_must_be_zero),
        cmocka_unit_test(test_operators_run_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
