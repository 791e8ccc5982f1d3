/* score_kit.h - small models made in memory, pipelines from text, records from JSON: for the scorer's tests. */
#ifndef PST_TESTS_SCORE_KIT_H
#define PST_TESTS_SCORE_KIT_H

#include "inference/core/score_core.h"
#include "tests/unit/engine_kit.h"

static pst_pipeline *kit_pipeline(const char *text)
{
    pst_pipeline *p = NULL;
    pst_err err = {0};
    if (pst_pipeline_parse(text, strlen(text), "test.yml", &p, &err) < 0)
        fail_msg("%s", err.text);
    return p;
}

/* y (N,k) = x (N,n) · w (n,k); meta: key, value, …, NULL. */
static pst_model *kit_linear(int64_t n, int64_t k, const float *w, const char *const *meta)
{
    pst_onnx_builder *b = pst_onnx_new("linear", 17, 8);
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, n}, "N");
    pst_onnx_floats(b, "w", 2, (int64_t[]){n, k}, w);
    pst_onnx_node(b, "MatMul", (const char *[]){"x", "w"}, 2, (const char *[]){"y"}, 1);
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, k}, "N");
    for (size_t i = 0; meta && meta[i]; i += 2)
        pst_onnx_meta(b, meta[i], meta[i + 1]);
    return kit_load(b, NULL);
}

static pst_binding *kit_bind(const pst_pipeline *p, pst_model *take, int version)
{
    pst_binding *b = NULL;
    pst_err err = {0};
    if (pst_binding_new(p, take, "line", version, p->batch_count, &b, &err) < 0)
        fail_msg("%s", err.text);
    pst_model_unref(take);
    return b;
}

static pst_schema *kit_schema(const char *text)
{
    pst_schema *s = NULL;
    pst_err err = {0};
    if (pst_schema_parse(text, strlen(text), &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

/* A framed record value from JSON text. */
static void kit_value(const pst_schema *s, int32_t id, const char *json, pst_buf *ret)
{
    pst_err err = {0};
    json_t *j = json_loads(json, 0, NULL);
    assert_non_null(j);
    pst_frame_put(ret, id);
    if (pst_avro_from_json(s, j, ret, &err) < 0)
        fail_msg("%s: %s", json, err.text);
    json_decref(j);
}

#endif
