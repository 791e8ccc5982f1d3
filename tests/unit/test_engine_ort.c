/* ONNX Runtime behind the engine's face: when it is asked, what is said, and the same results as the engine's own (which makes it an
 * oracle in the same process). The library is found by PENSTOCK_ONNXRUNTIME, or in the Python environments that tests/live/venv makes. */
#include "engine/backend_test.h"
#include "tests/unit/engine_models.h"

#include "common/base/fs.h"

#include <glob.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/test.h"

static char library[4096]; /* "" = none */
static atomic_bool ahead;

/* In place of the C library's: ahead, the wall clock stands an hour before that of the kernel, as if it had been set back right after it was read. */
int clock_gettime(clockid_t id, struct timespec *ret)
{
    int rc = (int)syscall(SYS_clock_gettime, id, ret);
    if (rc == 0 && id == CLOCK_REALTIME && ahead)
        ret->tv_sec += 3600;
    return rc;
}

static void find_library(void)
{
    const char *own = getenv("PENSTOCK_ONNXRUNTIME"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own && *own && strcmp(own, "off") != 0) {
        snprintf(library, sizeof library, "%s", own);
        return;
    }
    char *pattern = pst_sprintf("%s%s/penstock/test-venv*/lib/python3*/site-packages/onnxruntime/capi",
                                cache  ? cache
                                : home ? home
                                       : "",
                                cache ? "" : "/.cache");
    glob_t g = {0};
    if (glob(pattern, 0, NULL, &g) == 0)
        snprintf(library, sizeof library, "%s", g.gl_pathv[0]);
    globfree(&g);
    free(pattern);
}

/* x → com.microsoft.Trilu → y: no operator of ours (that of ONNX is). */
static void foreign(pst_buf *ret)
{
    pst_onnx_builder *o = pst_onnx_new("foreign", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, 3}, "N");
    pst_onnx_node(o, "Trilu", KIT_S("x"), KIT_S("y"));
    pst_onnx_domain(o, "com.microsoft", 1);
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, 3}, "N");
    kit_finish(o, ret);
}

/* What it gives of rows of three: the diagonal and what stands above it. */
static float above(const float *x, int64_t i)
{
    return i % 3 >= i / 3 ? x[i] : 0;
}

static void refused(const char *where, uint64_t backends, const char *says)
{
    pst_buf b = {0};
    pst_err err = {0};
    pst_model *m = NULL;
    pst_model_limits limits = {.backends = backends};
    if (where)
        setenv("PENSTOCK_ONNXRUNTIME", where, 1);
    foreign(&b);
    assert_int_equal(pst_model_load(b.data, b.len, NULL, &limits, &m, &err), PST_EUNSUPPORTED);
    if (!strstr(err.text, says) || !strstr(err.text, "com.microsoft.Trilu-1"))
        fail_msg("wanted '%s' and the operator, got '%s'", says, err.text);
    pst_buf_done(&b);
}

/* First of all: the library is opened once in a process. */
static void test_ort_absent_is_an_error_with_the_operators_and_the_cure(void **state)
{
    refused("/nonexistent/libonnxruntime.so", PST_BACKENDS_ANY, "set PENSTOCK_ONNXRUNTIME to its libonnxruntime.so");
    refused("/", PST_BACKENDS_ANY, "install it");
    refused("off", PST_BACKENDS_ANY, "switched off");
    refused(NULL, PST_BACKENDS_OWN, "no other backend is allowed");
}

static void use(void)
{
    if (!*library) {
        print_message("skipped: no ONNX Runtime. Cure: tests/live/venv, or PENSTOCK_ONNXRUNTIME=/path/to/libonnxruntime.so\n");
        skip();
    }
    setenv("PENSTOCK_ONNXRUNTIME", library, 1);
}

static pst_model *load(pst_buf *b)
{
    pst_model *m = kit_load_bytes(b, NULL, NULL);
    pst_buf_done(b);
    return m;
}

static pst_plan *plan(pst_model *m, const char *backend)
{
    pst_err err = {0};
    pst_plan *p = NULL;
    pst_plan_opts opts = {.backend = backend};
    if (pst_plan_new(m, &opts, &p, &err) < 0)
        fail_msg("%s", err.text);
    return p;
}

static void run(pst_plan *p, const pst_tensor *in, pst_tensor *out, size_t n_out)
{
    pst_err err = {0};
    if (pst_plan_run(p, in, 1, out, n_out, &err) < 0)
        fail_msg("%s", err.text);
}

static void test_ort_serves_what_the_engine_does_not(void **state)
{
    use();
    pst_buf b = {0};
    foreign(&b);
    pst_model *m = load(&b);
    const pst_model_info *info = pst_model_info_get(m);
    assert_int_equal(info->n_inputs, 1);
    assert_string_equal(info->outputs[0].name, "y");
    assert_int_equal(info->n_nodes, 1);
    pst_plan *p = plan(m, NULL), *none = NULL;
    float x[] = {-2, -1, -0.5f, 0, 0.5f, 3};
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {2, 3}, .data = x}, out[1];
    for (int again = 0; again < 3; again++) {
        run(p, &in, out, 1);
        assert_int_equal(out[0].rank, 2);
        assert_int_equal(out[0].dims[0], 2);
        for (int i = 0; i < 6; i++)
            assert_true(((float *)out[0].data)[i] == above(x, i));
    }
    char *text = pst_plan_explain(p);
    assert_non_null(strstr(text, "served by ONNX Runtime 1."));
    assert_non_null(strstr(text, "com.microsoft.Trilu-1"));
    free(text);
    pst_err err = {0};
    in.dims[1] = 4; /* what the engine checks, it checks here too */
    assert_int_equal(pst_plan_run(p, &in, 1, out, 1, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "the model wants (N, 3)"));
    err = (pst_err){0};
    assert_int_equal(pst_plan_new(m, &(pst_plan_opts){.backend = "engine"}, &none, &err), PST_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "com.microsoft.Trilu-1"));
    err = (pst_err){0};
    assert_int_equal(pst_plan_new(m, &(pst_plan_opts){.backend = "tea"}, &none, &err), PST_EINVAL);
    pst_model_unref(m); /* the plan holds it */
    in.dims[1] = 3;
    run(p, &in, out, 1);
    pst_plan_free(p);
}

/* ONNX Runtime refuses what is no model of its operators either, and says why. */
static void test_ort_refuses_in_its_own_words(void **state)
{
    use();
    pst_onnx_builder *o = pst_onnx_new("nonsense", 17, 8);
    pst_buf b = {0};
    pst_onnx_input(o, "x", PST_F32, 1, (int64_t[]){-1}, "N");
    pst_onnx_node(o, "NoSuchThing", KIT_S("x"), KIT_S("y"));
    pst_onnx_output(o, "y", PST_F32, 1, (int64_t[]){-1}, "N");
    kit_finish(o, &b);
    pst_model *m = NULL;
    pst_err err = {0};
    assert_int_equal(pst_model_load(b.data, b.len, NULL, NULL, &m, &err), PST_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "it refuses the model"));
    assert_non_null(strstr(err.text, "NoSuchThing"));
    pst_buf_done(&b);
}

static void compare(const char *name, const pst_tensor *got, const pst_tensor *want)
{
    if (got->dtype != want->dtype || got->rank != want->rank)
        fail_msg("%s: type %d rank %d, ONNX Runtime %d %d", name, got->dtype, got->rank, want->dtype, want->rank);
    size_t n = 1;
    for (int i = 0; i < got->rank; i++) {
        assert_int_equal(got->dims[i], want->dims[i]);
        n *= (size_t)got->dims[i];
    }
    for (size_t i = 0; i < n; i++) {
        if (got->dtype == PST_STR) {
            assert_string_equal(((char **)got->data)[i], ((char **)want->data)[i]);
        } else if (got->dtype == PST_F32) {
            float a = ((float *)got->data)[i], w = ((float *)want->data)[i];
            if (fabsf(a - w) > 1e-5f * (1 + fabsf(w)))
                fail_msg("%s: element %zu is %.9g, ONNX Runtime %.9g", name, i, (double)a, (double)w);
        } else {
            assert_memory_equal((char *)got->data + i * pst_dtype_size(got->dtype), (char *)want->data + i * pst_dtype_size(got->dtype),
                                pst_dtype_size(got->dtype));
        }
    }
}

/* Models of every kind, at several batches: trees, networks, loops, texts. */
static void test_ort_agrees_with_the_engine(void **state)
{
    use();
    int compared = 0;
    for (size_t k = 0; k < KIT_MODELS; k++) {
        pst_buf b = {0};
        pst_err err = {0};
        pst_plan *theirs = NULL;
        kit_models[k].build(&b);
        bool onnx = b.len && b.data[0] == 8;
        pst_model *m = load(&b);
        if (!onnx) { /* XGBoost's and LightGBM's own files */
            assert_int_equal(pst_plan_new(m, &(pst_plan_opts){.backend = "onnxruntime"}, &theirs, &err), PST_EUNSUPPORTED);
            assert_non_null(strstr(err.text, "reads ONNX files only"));
            pst_model_unref(m);
            continue;
        }
        int rc = pst_plan_new(m, &(pst_plan_opts){.backend = "onnxruntime"}, &theirs, &err);
        if (rc < 0 && strstr(err.text, "locale")) { /* its StringNormalizer wants the system's en_US.UTF-8 */
            print_message("skipped: %s: %s. Cure: apt install locales-all\n", kit_models[k].name, err.text);
            pst_model_unref(m);
            continue;
        }
        if (rc < 0)
            fail_msg("%s: %s", kit_models[k].name, err.text);
        pst_plan *ours = plan(m, "engine");
        size_t n_out = pst_model_info_get(m)->n_outputs;
        for (int64_t rows = 1; rows < 70; rows = rows * 3 + 1) {
            pst_tensor in = kit_input(&kit_models[k], rows), got[8], want[8];
            run(ours, &in, got, n_out);
            run(theirs, &in, want, n_out);
            for (size_t i = 0; i < n_out; i++)
                compare(kit_models[k].name, &got[i], &want[i]);
            free(in.data);
            compared++;
        }
        pst_plan_free(ours);
        pst_plan_free(theirs);
        pst_model_unref(m);
    }
    assert_true(compared >= 20);
}

/* A classifier's ZipMap: probabilities in the order of the labels, not of a map's keys. */
static void test_ort_gives_zipmaps_as_tables(void **state)
{
    use();
    pst_onnx_builder *o = pst_onnx_new("linear", 0, 8);
    const char *labels[] = {"zebra", "ant", "mouse"};
    float w[] = {1, -1, 0.5f, 2, -0.25f, 0.75f}, c[] = {0.1f, 0.2f, -0.3f};
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, 2}, "N");
    pst_onnx_node(o, "LinearClassifier", KIT_S("x"), KIT_S("label", "p"));
    pst_onnx_domain(o, "ai.onnx.ml", 1);
    pst_onnx_attr_floats(o, "coefficients", w, 6);
    pst_onnx_attr_floats(o, "intercepts", c, 3);
    pst_onnx_attr_strs(o, "classlabels_strings", labels, 3);
    pst_onnx_attr_str(o, "post_transform", "SOFTMAX");
    pst_onnx_node(o, "ZipMap", KIT_S("p"), KIT_S("maps"));
    pst_onnx_domain(o, "ai.onnx.ml", 1);
    pst_onnx_attr_strs(o, "classlabels_strings", labels, 3);
    pst_onnx_output(o, "label", PST_STR, 1, (int64_t[]){-1}, "N");
    pst_onnx_output(o, "maps", PST_F32, 2, (int64_t[]){-1, 3}, "N");
    pst_model *m = kit_load(o, NULL);
    pst_plan *ours = plan(m, "engine");
    float x[] = {1, 2, -3, 0.5f, 0, 0};
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {3, 2}, .data = x}, got[2], want[2];
    pst_plan *theirs = plan(m, "onnxruntime");
    run(ours, &in, got, 2);
    run(theirs, &in, want, 2);
    compare("label", &got[0], &want[0]);
    compare("maps", &got[1], &want[1]);
    assert_string_equal(((char **)want[0].data)[0], "ant");
    pst_plan_free(ours);
    pst_plan_free(theirs);
    pst_model_unref(m);
}

/* An evaluation that asks for more than there is fails; the process and the plan go on. */
static void test_ort_memory_has_an_end(void **state)
{
    use();
    pst_onnx_builder *o = pst_onnx_new("big", 17, 8);
    pst_onnx_input(o, "n", PST_I64, 1, (int64_t[]){1}, NULL);
    pst_onnx_node(o, "ConstantOfShape", KIT_S("n"), KIT_S("zeros"));
    pst_onnx_node(o, "ReduceSum", KIT_S("zeros"), KIT_S("s"));
    pst_onnx_output(o, "s", PST_F32, 1, (int64_t[]){1}, NULL);
    pst_model *m = kit_load(o, NULL);
    pst_plan *p = plan(m, "onnxruntime");
    int64_t n[] = {(int64_t)1 << 33};
    pst_tensor in = {.dtype = PST_I64, .rank = 1, .dims = {1}, .data = n}, out[1];
    pst_err err = {0};
    assert_int_equal(pst_plan_run(p, &in, 1, out, 1, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "the evaluation failed"));
    n[0] = 1000;
    run(p, &in, out, 1);
    assert_true(*(float *)out[0].data == 0);
    pst_plan_free(p);
    pst_model_unref(m);
}

/* Data outside of the file is read by our loader and goes to ONNX Runtime inside the model. */
static void test_ort_opens_no_file_for_a_model(void **state)
{
    use();
    char dir[] = "/tmp/penstock-ort-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char *path = pst_fs_join(dir, "w.bin");
    FILE *f = fopen(path, "wb");
    float w[] = {10, 20, 30};
    assert_int_equal(fwrite(w, sizeof *w, 3, f), 3);
    fclose(f);
    /* an initializer w (3) with its data in w.bin: TensorProto fields 1, 2, 8, 13 {location}, 14 */
    static const char external[] = "\x2a\x1c\x08\x03\x10\x01\x42\x01w\x6a\x11\x0a\x08location\x12\x05w.bin\x70\x01";
    static const char head[] = "\x08\x08\x3a";
    pst_buf g = {0}, b = {0}, plain = {0};
    pst_onnx_builder *o = pst_onnx_new("g", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 1, (int64_t[]){3}, NULL);
    pst_onnx_input(o, "w", PST_F32, 1, (int64_t[]){3}, NULL);
    pst_onnx_node(o, "Add", KIT_S("x", "w"), KIT_S("y"));
    pst_onnx_output(o, "y", PST_F32, 1, (int64_t[]){3}, NULL);
    pst_onnx_write(o, &plain);
    pst_onnx_free(o);
    /* take the graph out of the model that was built, and add the initializer */
    size_t at = 0;
    for (size_t i = 0; i + 1 < plain.len && !at; i++)
        if (plain.data[i] == 0x3a) /* graph: the first such key; names before it are ASCII and hold no colon */
            at = i;
    size_t len = (unsigned char)plain.data[at + 1], skip = 2;
    if (len & 128) {
        len = (len & 127) | (size_t)(unsigned char)plain.data[at + 2] << 7;
        skip = 3;
    }
    pst_buf_add(&g, plain.data + at + skip, len);
    pst_buf_add(&g, external, sizeof external - 1);
    pst_buf_add(&b, head, sizeof head - 1);
    pst_buf_addc(&b, (char)((g.len & 127) | 128));
    pst_buf_addc(&b, (char)(g.len >> 7));
    pst_buf_add(&b, g.data, g.len);
    pst_buf_add(&b, plain.data + at + skip + len, plain.len - at - skip - len);
    pst_model *m = kit_load_bytes(&b, dir, NULL);
    unlink(path);
    pst_plan *p = plan(m, "onnxruntime");
    float x[] = {1, 2, 3};
    pst_tensor in = {.dtype = PST_F32, .rank = 1, .dims = {3}, .data = x}, out[1];
    run(p, &in, out, 1);
    assert_true(((float *)out[0].data)[0] == 11 && ((float *)out[0].data)[2] == 33);
    pst_plan_free(p);
    pst_model_unref(m);
    pst_buf_done(&g);
    pst_buf_done(&b);
    pst_buf_done(&plain);
    free(path);
    rmdir(dir);
}

typedef struct worker {
    pst_model *m;
    int rows, bad;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    pst_plan *p = NULL;
    if (pst_plan_new(w->m, NULL, &p, NULL) < 0)
        return NULL;
    float *x = calloc((size_t)w->rows * 3, sizeof *x);
    for (int k = 0; k < 200; k++) {
        for (int i = 0; i < w->rows * 3; i++)
            x[i] = (float)(i + k);
        pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {w->rows, 3}, .data = x}, out[1];
        if (pst_plan_run(p, &in, 1, out, 1, NULL) < 0 || out[0].dims[0] != w->rows)
            w->bad++;
        for (int i = 0; i < w->rows * 3 && !w->bad; i++)
            w->bad += ((float *)out[0].data)[i] != above(x, i);
    }
    free(x);
    pst_plan_free(p);
    w->rows = 0;
    return NULL;
}

/* The runtime itself knows no limit: a loop of 2^62 rounds is ended by our bound, whatever the wall clock does, and the plan serves on. */
static void test_ort_runs_end_in_time(void **state)
{
    use();
    const int64_t trips = (int64_t)1 << 62;
    pst_onnx_builder *body = pst_onnx_new("body", 17, 8), *o = pst_onnx_new("endless", 17, 8);
    pst_onnx_input(body, "i", PST_I64, 0, NULL, NULL);
    pst_onnx_input(body, "go", PST_BOOL, 0, NULL, NULL);
    pst_onnx_input(body, "s", PST_F32, 2, (int64_t[]){-1, 3}, NULL);
    pst_onnx_node(body, "Identity", KIT_S("go"), KIT_S("on"));
    pst_onnx_node(body, "Neg", KIT_S("s"), KIT_S("t"));
    pst_onnx_output(body, "on", PST_BOOL, 0, NULL, NULL);
    pst_onnx_output(body, "t", PST_F32, 2, (int64_t[]){-1, 3}, NULL);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, 3}, NULL);
    pst_onnx_ints(o, "trips", 0, NULL, &trips);
    pst_onnx_node(o, "Loop", KIT_S("trips", "", "x"), KIT_S("y"));
    pst_onnx_attr_graph(o, "body", body);
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, 3}, NULL);
    pst_onnx_free(body);
    pst_model *m = kit_load(o, NULL);
    pst_plan *p = plan(m, "onnxruntime");
    float x[3] = {1, 2, 3};
    pst_tensor in = {.dtype = PST_F32, .rank = 2, .dims = {1, 3}, .data = x}, out;
    pst_run_limits run = {.ms_max = 300};
    for (int i = 0; i < 2; i++) {
        pst_err err = {0};
        assert_int_equal(pst_plan_limit(p, &run, &err), 0);
        ahead = i == 1;
        assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), PST_ETIMEDOUT);
        ahead = false;
        assert_non_null(strstr(err.text, "300 ms"));
    }
    pst_plan_free(p);
    pst_model_unref(m);
}

static void test_ort_plans_of_several_threads_share_a_session(void **state)
{
    use();
    pst_buf b = {0};
    foreign(&b);
    pst_model *m = load(&b);
    worker w[4];
    pthread_t t[4];
    for (int i = 0; i < 4; i++) {
        w[i] = (worker){.m = m, .rows = 5 * i + 1};
        assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(w[i].rows, 0);
        assert_int_equal(w[i].bad, 0);
    }
    pst_model_unref(m);
}

int main(void)
{
    find_library();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ort_absent_is_an_error_with_the_operators_and_the_cure),
        cmocka_unit_test(test_ort_serves_what_the_engine_does_not),
        cmocka_unit_test(test_ort_refuses_in_its_own_words),
        cmocka_unit_test(test_ort_agrees_with_the_engine),
        cmocka_unit_test(test_ort_gives_zipmaps_as_tables),
        cmocka_unit_test(test_ort_memory_has_an_end),
        cmocka_unit_test(test_ort_opens_no_file_for_a_model),
        cmocka_unit_test(test_ort_runs_end_in_time),
        cmocka_unit_test(test_ort_plans_of_several_threads_share_a_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
