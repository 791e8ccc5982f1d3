/* test_serve.c - models that answer requests, without a network: what is read and refused of a body, the same numbers alone and together, who waits for
 * whom, what is closed for whom. Models are made in memory; a source of the test's own stands where the topic does. */
#include "common/base/clock.h"
#include "inference/serve/serve.h"
#include "tests/unit/engine_models.h"

#include <stdatomic.h>

/* ---- a source of models, and answers that are waited for ---- */

enum { MODELS = 8 };

typedef struct world {
    pst_buf files[MODELS]; /* by version: model "m" */
    const char *broken;    /* said by find */
    atomic_int fetched;
    atomic_bool unknown, stuck; /* find waits as long as it may; fetch waits until it is let go */
    pst_metrics *metrics;
    serve_pool *pool;
} world;

static int find(void *arg, const char *name, const char *alias, int version, int64_t until_us, serve_found *ret, pst_err *err)
{
    world *w = arg;
    while (w->unknown && pst_mono_us() < until_us)
        pst_sleep_ms(1);
    if (w->unknown)
        return pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "test", 0, "not known yet");
    if (w->broken)
        return pst_err_set(err, PST_EAGAIN, PST_CLASS_RETRY, "test", 0, "%s", w->broken);
    if (alias)
        version = strcmp(alias, "champion") ? MODELS : 1;
    if (strcmp(name, "m") || version >= MODELS || !w->files[version ? version : 1].len)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "test", 0, "there is no model %s", name);
    *ret = (serve_found){.name = "m", .digest = "d", .version = version ? version : 1, .uri = pst_strdup("u")};
    return 0;
}

static int fetch(void *arg, const serve_found *f, size_t bytes_max, pst_buf *ret, pst_err *err)
{
    world *w = arg;
    const pst_buf *file = &w->files[f->version];
    w->fetched++;
    while (w->stuck)
        pst_sleep_ms(1);
    if (file->len > bytes_max)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "test", 0, "too large");
    pst_buf_add(ret, file->data, file->len);
    return 0;
}

static json_t *versions(void *arg, const char *name)
{
    return json_pack("[s]", "1");
}

static world *world_new(size_t bytes_max, int ms_max)
{
    world *w = pst_alloc(sizeof *w);
    w->metrics = pst_metrics_new();
    const serve_source source = {find, fetch, versions, w};
    pst_err err = {0};
    if (serve_pool_new(&(pst_serving_conf){.metrics = w->metrics, .bytes_max = bytes_max, .ms_max = ms_max}, &source, &w->pool, &err) < 0)
        fail_msg("%s", err.text);
    return w;
}

static void world_free(world *w)
{
    serve_pool_free(w->pool);
    pst_metrics_free(w->metrics);
    for (int i = 0; i < MODELS; i++)
        pst_buf_done(&w->files[i]);
    free(w);
}

typedef struct asked {
    pst_serving_answer a;
    atomic_bool done;
} asked;

static void answered(void *arg, pst_serving_answer *answer)
{
    asked *q = arg;
    q->a = *answer;
    q->done = true;
}

static pst_buf copy(const char *text)
{
    pst_buf b = {0};
    pst_buf_adds(&b, text);
    return b;
}

static void ask(world *w, asked *q, pst_serving_what what, const char *model, const char *body)
{
    *q = (asked){0};
    const pst_serving_ask one = {.what = what, .model = model, .body = body ? copy(body) : (pst_buf){0}, .json_len = PST_SERVING_ALL_JSON};
    if (!serve_pool_ask(w->pool, &one, answered, q, &q->a))
        q->done = true;
}

static void wait_for(asked *q)
{
    for (int i = 0; !q->done; i++) {
        assert_true(i < 60000);
        pst_sleep_ms(1);
    }
}

static void done(asked *q)
{
    pst_buf_done(&q->a.body);
}

static void says(world *w, const char *model, const char *body, int status, const char *text)
{
    asked q;
    ask(w, &q, PST_SERVING_INFER, model, body);
    wait_for(&q);
    if (q.a.status != status || !strstr(q.a.body.data, text))
        fail_msg("%.200s: %d %.300s; wanted %d %s", body, q.a.status, q.a.body.data, status, text);
    done(&q);
}

/* ---- bodies ---- */

static int read_text(const char *text, const char *raw, size_t raw_len, oip_request **ret, pst_err *err)
{
    pst_buf b = {0};
    size_t len = strlen(text);
    pst_buf_add(&b, text, len);
    pst_buf_add(&b, raw ? raw : "", raw_len);
    char *own = malloc(b.len ? b.len : 1); /* to its size, so that ASan sees a byte too far */
    memcpy(own, b.data, b.len);
    int rc = oip_read((pst_slice){own, b.len}, raw ? len : SIZE_MAX, ret, err);
    free(own);
    pst_buf_done(&b);
    return rc;
}

static void refuses(const char *text, const char *raw, size_t raw_len, const char *why)
{
    oip_request *r = NULL;
    pst_err err = {0};
    if (read_text(text, raw, raw_len, &r, &err) == 0 || !strstr(err.text, why) || err.cls != PST_CLASS_DATA)
        fail_msg("%.200s: %s; wanted %s", text, err.text, why);
}

#define IN(rest) "{\"inputs\":[{\"name\":\"x\"," rest "}]}"

static void test_serve_bodies_that_are_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "the request"},
        {"[]", "object"},
        {"{}", "inputs"},
        {"{\"inputs\":{}}", "inputs"},
        {"{\"inputs\":[3]}", "no name"},
        {"{\"inputs\":[],\"outputs\":3}", "outputs"},
        {"{\"id\":3,\"inputs\":[]}", "id"},
        {"{\"inputs\":[{\"name\":\"x\"}]}", "input x has no datatype"},
        {IN("\"datatype\":\"FP31\",\"shape\":[1],\"data\":[1]"), "input x: there is no datatype FP31"},
        {IN("\"datatype\":\"FP32\",\"data\":[1]"), "input x has no list `shape`"},
        {IN("\"datatype\":\"FP32\",\"shape\":[-1],\"data\":[1]"), "dimension 0"},
        {IN("\"datatype\":\"FP32\",\"shape\":[1.5],\"data\":[1]"), "dimension 0"},
        {IN("\"datatype\":\"FP32\",\"shape\":[4611686018427387904],\"data\":[1]"), "more elements"},
        {IN("\"datatype\":\"FP32\",\"shape\":[65536,65536,65536,65536,65536],\"data\":[1]"), "more elements"},
        {IN("\"datatype\":\"FP64\",\"shape\":[2147483647,0,2147483647],\"data\":[1]"), "input x"},
        {IN("\"datatype\":\"FP32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data\":[1]"), "9 dimensions"},
        {IN("\"datatype\":\"FP32\",\"shape\":[3],\"data\":[1,2]"), "asks for 3 elements, its data has 2"},
        {IN("\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[[1,2],[3]]"), "a list of 1 at depth 2"},
        {IN("\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[[1,2],[3,4],[5,6]]"), "a list of 3 at depth 1"},
        {IN("\"datatype\":\"FP32\",\"shape\":[2],\"data\":[[1],[2]]"), "depth 2"},
        {IN("\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[[1,2],3]"), "neither flat nor nested"},
        {IN("\"datatype\":\"FP64\",\"shape\":[67108864],\"data\":[[]]"), "67108864 elements; as JSON"},
        {IN("\"datatype\":\"FP32\",\"shape\":[1],\"data\":[NaN]"), "the request"},
        {IN("\"datatype\":\"FP32\",\"shape\":[1],\"data\":[1e39]"), "beyond FP32"},
        {IN("\"datatype\":\"FP64\",\"shape\":[1],\"data\":[1e999]"), "the request"},
        {IN("\"datatype\":\"FP32\",\"shape\":[1],\"data\":[\"1\"]"), "element 0 is no number"},
        {IN("\"datatype\":\"INT8\",\"shape\":[1],\"data\":[128]"), "outside of INT8"},
        {IN("\"datatype\":\"UINT32\",\"shape\":[1],\"data\":[-1]"), "outside of UINT32"},
        {IN("\"datatype\":\"INT64\",\"shape\":[1],\"data\":[1.0]"), "no whole number"},
        {IN("\"datatype\":\"BOOL\",\"shape\":[1],\"data\":[1]"), "neither true nor false"},
        {IN("\"datatype\":\"BYTES\",\"shape\":[1],\"data\":[1]"), "no text"},
        {IN("\"datatype\":\"FP16\",\"shape\":[1],\"data\":[1]"), "no form in JSON"},
        {IN("\"datatype\":\"FP32\",\"shape\":[1]"), "no list `data`"},
        {IN("\"datatype\":\"FP32\",\"shape\":[1],\"parameters\":{\"binary_data_size\":4}"), "Inference-Header-Content-Length"},
        {IN("\"datatype\":\"FP32\",\"shape\":[1],\"parameters\":{\"shared_memory_region\":\"r\"}"), "shared memory"},
        {"{\"parameters\":{\"timeout\":\"soon\"},\"inputs\":[]}", "timeout"},
        {"{\"inputs\":[],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"classification\":2}}]}", "classification"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuses(cases[i].text, NULL, 0, cases[i].why);
    pst_buf deep = {0}, many = {0};
    for (int i = 0; i < 100000; i++)
        pst_buf_addc(&deep, '[');
    refuses(deep.data, NULL, 0, "the request");
    pst_buf_adds(&many, "{\"inputs\":[0");
    for (int i = 0; i < 1000001; i++)
        pst_buf_adds(&many, ",0");
    refuses(many.data, NULL, 0, "binary_data_size");
    pst_buf_done(&deep);
    pst_buf_done(&many);
}

#define RAW(type, shape, size) IN("\"datatype\":\"" type "\",\"shape\":" shape ",\"parameters\":{\"binary_data_size\":" size "}")

static void test_serve_raw_tensors_that_are_refused(void **state)
{
    refuses(RAW("FP32", "[2]", "8"), "1234567", 7, "binary_data_size is 8, but 7 bytes are left");
    refuses(RAW("FP32", "[2]", "4"), "12345678", 8, "asks for 8 bytes of FP32, binary_data_size says 4");
    refuses(RAW("FP32", "[1]", "4"), "12345678", 8, "4 bytes of the body belong to no input");
    refuses(RAW("FP32", "[1]", "-4"), "1234", 4, "no number of bytes");
    refuses(RAW("FP32", "[1]", "18446744073709551616"), "1234", 4, "the request");
    refuses(RAW("FP32", "[1]", "9223372036854775807"), "1234", 4, "bytes are left");
    refuses(RAW("BOOL", "[1]", "1"), "\2", 1, "neither 0 nor 1");
    refuses(RAW("BYTES", "[1]", "8"), "\5\0\0\0abcd", 8, "says 5 bytes");
    refuses(RAW("BYTES", "[1]", "8"), "\377\377\377\377abcd", 8, "says 4294967295 bytes");
    refuses(RAW("BYTES", "[2]", "8"), "\4\0\0\0abcd", 8, "element 1");
    refuses(RAW("BYTES", "[1]", "8"), "\3\0\0\0abcd", 8, "1 bytes are left");
    refuses(RAW("BYTES", "[1]", "8"), "\4\0\0\0a\0cd", 8, "zero byte");
    refuses(RAW("BYTES", "[60000000]", "8"), "\4\0\0\0abcd", 8, "cannot hold");
    refuses(IN("\"datatype\":\"FP32\",\"shape\":[1],\"data\":[1],\"parameters\":{\"binary_data_size\":4}"), "1234", 4, "both");
    oip_request *r = NULL;
    pst_err err = {0};
    assert_true(oip_read((pst_slice){"{}", 2}, 3, &r, &err) < 0);
    assert_non_null(strstr(err.text, "Content-Length is 3, but the body has 2"));
}

static void test_serve_bodies_become_tensors(void **state)
{
    static const char text[] = "{\"id\":\"q\",\"parameters\":{\"binary_data_output\":true,\"timeout\":5000,\"other\":[1]},\"inputs\":["
                               "{\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[[1,2.5],[-3,4]]},"
                               "{\"name\":\"b\",\"datatype\":\"INT64\",\"shape\":[1],\"data\":[-9223372036854775808]},"
                               "{\"name\":\"c\",\"datatype\":\"BYTES\",\"shape\":[2],\"data\":[\"\",\"\\u00e4\"]},"
                               "{\"name\":\"d\",\"datatype\":\"BOOL\",\"shape\":[2],\"data\":[true,false]},"
                               "{\"name\":\"e\",\"datatype\":\"BYTES\",\"shape\":[2],\"parameters\":{\"binary_data_size\":11}},"
                               "{\"name\":\"f\",\"datatype\":\"UINT16\",\"shape\":[1,1],\"parameters\":{\"binary_data_size\":2}}],"
                               "\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":false}},{\"name\":\"z\"}]}";
    oip_request *r = NULL;
    pst_err err = {0};
    if (read_text(text, "\2\0\0\0hi\1\0\0\0!\377\377", 13, &r, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(r->id, "q");
    assert_int_equal(r->timeout_us, 5000);
    assert_int_equal(r->n_inputs, 6);
    assert_true(((float *)r->inputs[0].t.data)[1] == 2.5f && ((float *)r->inputs[0].t.data)[2] == -3);
    assert_true(*(int64_t *)r->inputs[1].t.data == INT64_MIN);
    assert_string_equal(((char **)r->inputs[2].t.data)[0], "");
    assert_string_equal(((char **)r->inputs[2].t.data)[1], "\303\244");
    assert_int_equal(((uint8_t *)r->inputs[3].t.data)[0], 1);
    assert_string_equal(((char **)r->inputs[4].t.data)[0], "hi");
    assert_string_equal(((char **)r->inputs[4].t.data)[1], "!");
    assert_int_equal(*(uint16_t *)r->inputs[5].t.data, 65535);
    assert_false(r->outputs[0].binary);
    assert_true(r->outputs[1].binary);
    oip_request_free(r);
}

/* ---- answers ---- */

#define X(values) "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,8],\"data\":[" values "]}]}"

static void test_serve_a_request_that_does_not_fit_is_told_why(void **state)
{
    world *w = world_new(64 << 20, 30000);
    kit_mlp(&w->files[1]);
    pst_buf_adds(&w->files[2], "no model at all");
    says(w, "m", X("1,2,3,4,5,6,7,8"), 200, "\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[");
    says(w, "m@champion", X("1,2,3,4,5,6,7,8"), 200, "\"model_name\":\"m\",\"model_version\":\"1\"");
    says(w, "m@other", X("1"), 404, "no model");
    says(w, "m@", X("1"), 400, "no alias");
    says(w, "n", X("1"), 404, "no model n");
    says(w, "m", "{", 400, "the request");
    says(w, "m", "{\"inputs\":[]}", 400, "input x is missing");
    says(w, "m", "{\"inputs\":[{\"name\":\"q\",\"datatype\":\"FP32\",\"shape\":[1],\"data\":[1]}]}", 400, "no input q; its first is x");
    says(w, "m", "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP64\",\"shape\":[1,8],\"data\":[1,2,3,4,5,6,7,8]}]}", 400,
         "input x is FP64, the model wants FP32");
    says(w, "m", "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,7],\"data\":[1,2,3,4,5,6,7]}]}", 400,
         "input x has the shape [1, 7], the model wants [-1, 8]");
    says(w, "m", "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[8],\"data\":[1,2,3,4,5,6,7,8]}]}", 400,
         "input x has the shape [8]");
    says(w, "m",
         "{\"outputs\":[{\"name\":\"z\"}],\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,8],\"data\":[1,2,3,4,5,6,7,8]}]}",
         400, "no output z");
    says(w, "m",
         "{\"parameters\":{\"timeout\":1},\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,8],\"data\":[1,2,3,4,5,6,7,8]}]}",
         504, "time was over");
    says(w, "m",
         "{\"parameters\":{\"timeout\":9223372036854775807},\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,8],"
         "\"data\":[1,2,3,4,5,6,7,8]}]}",
         200, "outputs");
    w->broken = "the topic is away";
    says(w, "m", X("1"), 503, "the topic is away");
    w->broken = NULL;
    int before = w->fetched;
    asked q;
    const pst_serving_ask two = {.what = PST_SERVING_READY, .model = "m", .version = 2};
    for (int i = 0; i < 3; i++) {
        q = (asked){0};
        assert_true(serve_pool_ask(w->pool, &two, answered, &q, &q.a));
        wait_for(&q);
        assert_int_equal(q.a.status, 422);
        assert_non_null(strstr(q.a.body.data, "model m version 2 cannot be served"));
        done(&q);
    }
    assert_int_equal(w->fetched, before + 1); /* what is of no use is not read for everybody who asks */
    ask(w, &q, PST_SERVING_METADATA, "m", NULL);
    wait_for(&q);
    assert_non_null(strstr(q.a.body.data, "\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,8]}]"));
    done(&q);
    world_free(w);
}

/* A row less the mean of all rows of the run. */
static void mixing(pst_buf *ret)
{
    pst_onnx_builder *o = pst_onnx_new("mixing", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, 8}, "N");
    kit_node(o, "ReduceMean x > mean");
    pst_onnx_attr_ints(o, "axes", (int64_t[]){0}, 1);
    pst_onnx_node(o, "Sub", KIT_S("x", "mean"), KIT_S("y"));
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, 8}, "N");
    kit_finish(o, ret);
}

enum { MANY = 200 };

static void body_of(int i, char *to, size_t size)
{
    snprintf(to, size, X("%g,%d.5,3,1,%g,0,-2,0.25"), i / 100.0, i % 7, -i / 50.0);
}

/* Texts of numbers, equal up to rounding. */
static void same_texts(const char *a, const char *b, double tol)
{
    while (*a && *b) {
        if (!strchr("-0123456789", *a)) {
            assert_int_equal(*a++, *b++);
            continue;
        }
        char *a_end, *b_end;
        double x = strtod(a, &a_end), y = strtod(b, &b_end);
        if (fabs(x - y) > tol || a_end == a || b_end == b)
            fail_msg("%.60s is not %.60s", a, b);
        a = a_end;
        b = b_end;
    }
    assert_int_equal(*a, *b);
}

/* Each request alone, then all at once: the same numbers, whatever shared a run. */
static void same_at_once(void (*make)(pst_buf *), double tol)
{
    static asked alone[MANY], together[MANY];
    char body[300];
    world *w = world_new(64 << 20, 60000);
    make(&w->files[1]);
    for (int i = 0; i < MANY; i++) {
        body_of(i, body, sizeof body);
        ask(w, &alone[i], PST_SERVING_INFER, "m", body);
        wait_for(&alone[i]);
        assert_int_equal(alone[i].a.status, 200);
    }
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < MANY; i++) {
            body_of(i, body, sizeof body);
            ask(w, &together[i], PST_SERVING_INFER, "m", body);
        }
        for (int i = 0; i < MANY; i++) {
            wait_for(&together[i]);
            assert_int_equal(together[i].a.status, 200);
            same_texts(together[i].a.body.data, alone[i].a.body.data, tol);
            done(&together[i]);
        }
    }
    for (int i = 0; i < MANY; i++)
        done(&alone[i]);
    world_free(w);
}

static void test_serve_numbers_are_the_same_for_many_at_once(void **state)
{
    same_at_once(kit_mlp, 1e-5);
    same_at_once(kit_trees, 0);
    same_at_once(mixing, 0);
}

/* ---- shared runs ---- */

static void keep(void *arg, serve_job *job, pst_serving_answer *take)
{
    ((pst_serving_answer *)arg)[job->version] = *take; /* here: which request it is */
    oip_request_free(job->request);
    free(job->inputs);
    free(job);
}

enum { SHARING = 40 };

/* How many runs it took for requests that wait together, of equal inputs or of different ones. */
static serve_job *job_of(const serve_model *m, int i, pst_slice body, size_t json_len)
{
    pst_err err = {0};
    serve_job *job = pst_alloc(sizeof *job);
    job->version = i;
    job->deadline_us = pst_mono_us() + 60000000;
    job->inputs = pst_alloc(2 * sizeof(pst_tensor));
    if (oip_read(body, json_len, &job->request, &err) < 0 || oip_match(job->request, m->info, job->inputs, &err) < 0)
        fail_msg("%s", err.text);
    return job;
}

typedef enum { EQUAL, NEAR, DIFFERENT } likeness;

static int runs_of(serve_model *m, likeness how, pst_serving_answer *ret)
{
    serve_job *jobs[SHARING];
    char body[300];
    double before = pst_metric_get(m->meters->runs);
    for (int i = 0; i < SHARING; i++) {
        body_of(how == EQUAL ? 1 : i, body, sizeof body);
        if (how == NEAR)
            snprintf(body, sizeof body, X("%.7f,2,3,1,4,1,2,0.25"), 1 + i * 1e-6);
        jobs[i] = job_of(m, i, (pst_slice){body, strlen(body)}, SIZE_MAX);
    }
    serve_batch_run(&(serve_run){.model = m, .answer = keep, .arg = ret}, jobs, SHARING);
    return (int)(pst_metric_get(m->meters->runs) - before);
}

static serve_model *shelved(void (*make)(pst_buf *), world *w)
{
    static serve_meters meters;
    pst_buf file = {0};
    pst_err err = {0};
    serve_model *m = pst_alloc(sizeof *m);
    make(&file);
    m->found = (serve_found){.name = "m", .version = 1};
    pst_metric *any = pst_metric_counter(w->metrics, "c", "c", NULL), *time = pst_metric_histogram(w->metrics, "h", "h", NULL);
    meters = (serve_meters){any, any, any, pst_metric_counter(w->metrics, "runs", "r", NULL), any, time, time};
    m->meters = &meters;
    if (serve_model_load(m, &file, 64 << 20, &err) < 0)
        fail_msg("%s", err.text);
    pst_buf_done(&file);
    return m;
}

static void clear(pst_serving_answer *a)
{
    for (int i = 0; i < SHARING; i++)
        pst_buf_done(&a[i].body);
}

static void test_serve_runs_are_shared_once_rows_were_seen_to_be_by_themselves(void **state)
{
    static pst_serving_answer alone[SHARING], shared[SHARING];
    void (*makes[])(pst_buf *) = {kit_mlp, kit_trees};
    for (int k = 0; k < 2; k++) {
        world *w = world_new(64 << 20, 1000);
        serve_model *m = shelved(makes[k], w);
        assert_int_equal(runs_of(m, EQUAL, alone), SHARING); /* equal inputs tell nothing */
        assert_int_equal(m->trials, 0);
        clear(alone);
        for (int i = 0; i < SERVE_TRIALS; i++) {
            clear(alone);
            assert_int_equal(runs_of(m, DIFFERENT, alone), SHARING + 1);
        }
        assert_int_equal(runs_of(m, DIFFERENT, shared), 1);
        for (int i = 0; i < SHARING; i++) {
            assert_int_equal(shared[i].status, 200);
            same_texts(shared[i].body.data, alone[i].body.data, k ? 0 : 1e-5);
        }
        clear(alone);
        clear(shared);
        serve_model_free(m);
        world_free(w);
    }
}

static void test_serve_rows_that_depend_on_their_neighbours_never_share_a_run(void **state)
{
    static pst_serving_answer a[SHARING];
    world *w = world_new(64 << 20, 1000);
    serve_model *m = shelved(mixing, w);
    assert_true(m->batches); /* nothing in the file tells */
    assert_int_equal(runs_of(m, DIFFERENT, a), SHARING + 1);
    assert_true(m->mixing);
    for (int i = 0; i < SHARING; i++)
        assert_non_null(strstr(a[i].body.data, "\"data\":[0,0,0,0,0,0,0,0]")); /* a row less its own mean */
    clear(a);
    assert_int_equal(runs_of(m, DIFFERENT, a), SHARING);
    clear(a);
    serve_model_free(m);
    world_free(w);
}

/* A row and the mean of all rows of the run. */
static void leaning(pst_buf *ret)
{
    pst_onnx_builder *o = pst_onnx_new("leaning", 17, 8);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, 8}, "N");
    kit_node(o, "ReduceMean x > mean");
    pst_onnx_attr_ints(o, "axes", (int64_t[]){0}, 1);
    pst_onnx_node(o, "Add", KIT_S("x", "mean"), KIT_S("y"));
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, 8}, "N");
    kit_finish(o, ret);
}

/* Rows that hardly differ have their own mean nearly: no reason for trust. And trust is looked at again now and then. */
static void test_serve_rows_that_hardly_differ_prove_nothing(void **state)
{
    static pst_serving_answer a[SHARING];
    world *w = world_new(64 << 20, 1000);
    serve_model *m = shelved(leaning, w);
    for (int i = 0; i < SERVE_TRIALS; i++) {
        runs_of(m, NEAR, a);
        clear(a);
    }
    assert_int_equal(m->trials, 0);
    m->trials = SERVE_TRIALS;
    m->shared = SERVE_TRIAL_EVERY - 1;
    runs_of(m, DIFFERENT, a);
    assert_true(m->mixing);
    assert_non_null(strstr(a[0].body.data, "\"data\":[0,1,6,2,0,0,-4,0.5]")); /* its own row twice */
    clear(a);
    serve_model_free(m);
    world_free(w);
}

static void test_serve_plans_that_grew_are_not_kept(void **state)
{
    static const char text[] = "{\"parameters\":{\"binary_data_output\":true},\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":["
                               "200000,8],\"parameters\":{\"binary_data_size\":6400000}}]}";
    static pst_serving_answer a[SHARING];
    world *w = world_new(64 << 20, 1000);
    serve_model *m = shelved(kit_mlp, w);
    runs_of(m, DIFFERENT, a);
    clear(a);
    assert_non_null(m->plans[0]);
    pst_buf body = copy(text);
    pst_buf_reserve(&body, 6400000);
    memset(body.data + body.len, 0, 6400000);
    serve_job *job = job_of(m, 0, (pst_slice){body.data, strlen(text) + 6400000}, strlen(text));
    pst_buf_done(&body);
    serve_batch_run(&(serve_run){.model = m, .answer = keep, .arg = a}, &job, 1);
    assert_int_equal(a[0].status, 200);
    clear(a);
    assert_null(m->plans[0]);
    serve_model_free(m);
    world_free(w);
}

static void test_serve_models_in_use_are_kept_and_others_closed(void **state)
{
    world *w = world_new(16 << 20, 30000);
    char body[300];
    asked q;
    for (int i = 1; i < MODELS; i++)
        kit_mlp(&w->files[i]);
    pst_buf_done(&w->files[7]);
    pst_buf_reserve(&w->files[7], 9 << 20);
    memset(w->files[7].data, 'x', w->files[7].len = 9 << 20);
    body_of(1, body, sizeof body);
    for (int i = 0; i < 60; i++) {
        const pst_serving_ask one = {
            .what = PST_SERVING_INFER, .model = "m", .version = 1 + i % 6, .body = copy(body), .json_len = SIZE_MAX};
        q = (asked){0};
        assert_true(serve_pool_ask(w->pool, &one, answered, &q, &q.a));
        wait_for(&q);
        assert_int_equal(q.a.status, 200);
        done(&q);
    }
    assert_int_equal(w->fetched, 6);
    q = (asked){0};
    assert_true(serve_pool_ask(w->pool, &(pst_serving_ask){.what = PST_SERVING_READY, .model = "m", .version = 7}, answered, &q, &q.a));
    wait_for(&q);
    assert_int_equal(q.a.status, 422);
    done(&q);
    world_free(w);
}

/* More than may wait at all: the rest is refused at once and told when to come again; all are answered once. */
static void test_serve_too_many_are_refused(void **state)
{
    enum { ALL = SERVE_JOBS_MAX + 500 };
    world *w = world_new(64 << 20, 30000);
    asked *q = calloc(ALL, sizeof *q);
    int counts[3] = {0};
    char body[300];
    kit_mlp(&w->files[1]);
    for (int i = 0; i < ALL; i++) {
        body_of(i, body, sizeof body);
        ask(w, &q[i], PST_SERVING_INFER, "m", body);
    }
    for (int i = 0; i < ALL; i++) {
        wait_for(&q[i]);
        int s = q[i].a.status;
        assert_true(s == 200 || ((s == 429 || s == 503) && q[i].a.retry_after_s > 0));
        counts[s == 200 ? 0 : s == 429 ? 1 : 2]++;
        done(&q[i]);
    }
    assert_true(counts[0] > 0);
    free(q);
    world_free(w);
}

/* A loop that ends when its time does. */
static void endless(pst_buf *ret)
{
    pst_onnx_builder *body = pst_onnx_new("body", 17, 8), *o = pst_onnx_new("endless", 17, 8);
    pst_onnx_input(body, "i", PST_I64, 0, NULL, NULL);
    pst_onnx_input(body, "go_in", PST_BOOL, 0, NULL, NULL);
    pst_onnx_input(body, "v_in", PST_F32, 2, (int64_t[]){-1, -1}, NULL);
    pst_onnx_node(body, "Identity", KIT_S("go_in"), KIT_S("go_out"));
    pst_onnx_node(body, "Neg", KIT_S("v_in"), KIT_S("v_out"));
    pst_onnx_output(body, "go_out", PST_BOOL, 0, NULL, NULL);
    pst_onnx_output(body, "v_out", PST_F32, 2, (int64_t[]){-1, -1}, NULL);
    pst_onnx_input(o, "x", PST_F32, 2, (int64_t[]){-1, -1}, NULL);
    pst_onnx_ints(o, "rounds", 0, NULL, (int64_t[]){INT64_MAX});
    pst_onnx_node(o, "Loop", KIT_S("rounds", "", "x"), KIT_S("y"));
    pst_onnx_attr_graph(o, "body", body);
    pst_onnx_output(o, "y", PST_F32, 2, (int64_t[]){-1, -1}, NULL);
    pst_onnx_free(body);
    kit_finish(o, ret);
}

/* A model without an end holds up neither others, nor the end of the time of those that wait for it, nor the end of the pool. */
static void test_serve_a_slow_model_hurts_itself_alone(void **state)
{
    static asked slow[2 * SERVE_WORKERS_MAX], q;
    char body[300], late[400];
    world *w = world_new(64 << 20, 60000);
    kit_mlp(&w->files[1]);
    endless(&w->files[2]);
    body_of(1, body, sizeof body);
    snprintf(late, sizeof late, "{\"parameters\":{\"timeout\":300000},%s", body + 1);
    pst_serving_ask one = {.what = PST_SERVING_INFER, .model = "m", .version = 2, .json_len = SIZE_MAX};
    for (int i = 0; i < 2 * SERVE_WORKERS_MAX; i++) {
        one.body = copy(body);
        assert_true(serve_pool_ask(w->pool, &one, answered, &slow[i], &slow[i].a));
    }
    pst_sleep_ms(300);
    says(w, "m", body, 200, "model_version\":\"1");
    int64_t begin = pst_mono_us();
    one.body = copy(late);
    assert_true(serve_pool_ask(w->pool, &one, answered, &q, &q.a));
    wait_for(&q);
    assert_int_equal(q.a.status, 504);
    assert_true(pst_mono_us() - begin < 20000000); /* 60 s is what the others may take */
    done(&q);
    world_free(w);
    assert_true(pst_mono_us() - begin < 40000000);
    for (int i = 0; i < 2 * SERVE_WORKERS_MAX; i++) {
        assert_true(slow[i].done && slow[i].a.status >= 422);
        done(&slow[i]);
    }
}

static long long dumped(world *w, const char *key)
{
    json_t *all = json_object();
    serve_pool_dump(w->pool, all);
    long long n = json_integer_value(json_object_get(json_object_get(all, "serving"), key));
    json_decref(all);
    return n;
}

enum { LARGE = 60 << 20 };

/* A body of LARGE raw bytes behind its JSON. */
static void ask_large(world *w, asked *q, const char *timeout)
{
    pst_serving_ask one = {.what = PST_SERVING_INFER, .model = "m"};
    pst_buf_printf(&one.body,
                   "{\"parameters\":{\"timeout\":%s},\"inputs\":[{\"name\":\"x\",\"datatype\":\"UINT8\",\"shape\":[%d],"
                   "\"parameters\":{\"binary_data_size\":%d}}]}",
                   timeout, LARGE, LARGE);
    one.json_len = one.body.len;
    pst_buf_reserve(&one.body, LARGE);
    memset(one.body.data + one.body.len, 1, LARGE);
    one.body.len += LARGE;
    *q = (asked){0};
    if (!serve_pool_ask(w->pool, &one, answered, q, &q->a))
        q->done = true;
}

/* Requests that cannot share a run do not wait behind each other while workers have nothing to do. */
static void test_serve_what_cannot_share_is_left_to_other_workers(void **state)
{
    static asked q[4];
    world *w = world_new(64 << 20, 30000);
    char body[300], row[40];
    endless(&w->files[1]);
    w->stuck = true;
    for (int i = 0; i < 4; i++) {
        snprintf(row, sizeof row, "%.*s", 2 * (8 - i) - 1, "1,2,3,4,5,6,7,8");
        snprintf(
            body, sizeof body,
            "{\"parameters\":{\"timeout\":2000000},\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,%d],\"data\":[%s]}]}",
            8 - i, row);
        ask(w, &q[i], PST_SERVING_INFER, "m", body);
    }
    for (int i = 0; dumped(w, "unread") > 0 || !w->fetched; i++, pst_sleep_ms(1))
        assert_true(i < 10000);
    pst_sleep_ms(50);
    w->stuck = false;
    long long most = 0;
    while (!q[0].done || !q[1].done || !q[2].done || !q[3].done) {
        json_t *all = json_object();
        serve_pool_dump(w->pool, all);
        const json_t *m = json_array_get(json_object_get(json_object_get(all, "serving"), "models"), 0);
        long long n = json_integer_value(json_object_get(m, "running"));
        most = n > most ? n : most;
        json_decref(all);
        pst_sleep_ms(1);
    }
    assert_true(most >= 2);
    for (int i = 0; i < 4; i++) {
        assert_true(q[i].a.status == 504 || q[i].a.status == 422); /* its time was over while it ran */
        done(&q[i]);
    }
    world_free(w);
}

/* While a model is being opened: those whose time is over hold nothing any more, and those that wait hold no more than they may. */
static void test_serve_what_waits_is_bounded_by_bytes(void **state)
{
    static asked q[6];
    world *w = world_new(64 << 20, 30000);
    kit_mlp(&w->files[1]);
    w->stuck = true;
    for (int round = 0; round < 3; round++) {
        ask_large(w, &q[0], "400000");
        ask_large(w, &q[1], "1");
        for (int i = 0; i < 2; i++) {
            wait_for(&q[i]);
            assert_int_equal(q[i].a.status, 504);
            done(&q[i]);
        }
        for (int i = 0; dumped(w, "requests") > 0 || dumped(w, "request_bytes") > 0; i++, pst_sleep_ms(1))
            assert_true(i < 10000);
    }
    int refused = 0;
    for (int i = 0; i < 6; i++) {
        ask_large(w, &q[i], "20000000");
        refused += q[i].done && q[i].a.status == 503 && strstr(q[i].a.body.data, "256 MiB");
    }
    assert_int_equal(refused, 2);
    assert_true(dumped(w, "request_bytes") <= SERVE_HELD_MAX);
    w->stuck = false;
    for (int i = 0; i < 6; i++) {
        wait_for(&q[i]);
        assert_int_equal(q[i].a.status, q[i].a.status == 503 ? 503 : 400); /* the model wants another type */
        done(&q[i]);
    }
    world_free(w);
}

/* Nobody waits longer for the registered models than from its own asking on, however many wait. */
static void test_serve_models_that_are_not_known_yet_hold_nobody_for_long(void **state)
{
    static asked q[MANY];
    world *w = world_new(64 << 20, 1000);
    w->unknown = true;
    int64_t begin = pst_mono_us();
    for (int i = 0; i < MANY; i++)
        ask(w, &q[i], PST_SERVING_INFER, "m", "{}");
    for (int i = 0; i < MANY; i++) {
        wait_for(&q[i]);
        assert_true(q[i].a.status == 503 || q[i].a.status == 504);
        done(&q[i]);
    }
    assert_true(pst_mono_us() - begin < 10000000); /* MANY seconds, by four, when each waits anew */
    world_free(w);
}

/* The pool ends while requests wait: each is answered. */
static void test_serve_the_end_answers_all(void **state)
{
    static asked q[MANY];
    world *w = world_new(64 << 20, 30000);
    char body[300];
    kit_cnn(&w->files[1]);
    kit_mlp(&w->files[2]);
    for (int i = 0; i < MANY; i++) {
        body_of(i, body, sizeof body);
        ask(w, &q[i], PST_SERVING_INFER, "m", body);
    }
    world_free(w);
    for (int i = 0; i < MANY; i++) {
        assert_true(q[i].done);
        done(&q[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_serve_bodies_that_are_refused),
        cmocka_unit_test(test_serve_raw_tensors_that_are_refused),
        cmocka_unit_test(test_serve_bodies_become_tensors),
        cmocka_unit_test(test_serve_a_request_that_does_not_fit_is_told_why),
        cmocka_unit_test(test_serve_numbers_are_the_same_for_many_at_once),
        cmocka_unit_test(test_serve_runs_are_shared_once_rows_were_seen_to_be_by_themselves),
        cmocka_unit_test(test_serve_rows_that_depend_on_their_neighbours_never_share_a_run),
        cmocka_unit_test(test_serve_rows_that_hardly_differ_prove_nothing),
        cmocka_unit_test(test_serve_plans_that_grew_are_not_kept),
        cmocka_unit_test(test_serve_models_in_use_are_kept_and_others_closed),
        cmocka_unit_test(test_serve_a_slow_model_hurts_itself_alone),
        cmocka_unit_test(test_serve_too_many_are_refused),
        cmocka_unit_test(test_serve_what_cannot_share_is_left_to_other_workers),
        cmocka_unit_test(test_serve_what_waits_is_bounded_by_bytes),
        cmocka_unit_test(test_serve_models_that_are_not_known_yet_hold_nobody_for_long),
        cmocka_unit_test(test_serve_the_end_answers_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
