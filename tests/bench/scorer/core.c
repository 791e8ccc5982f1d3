/* core.c - ns per record through the scorer's core alone: Avro in, decode plan, features, autoencoder 10-32-8-32-10, reconstruction error, Score
 * out; no Kafka. 50,000 distinct records, CPU time of the thread.
 *
 *     bench_scorer_core [batch] [full|slim] [words]    prints: batch, format, ns per record, records per second and core
 *
 * words: five of the ten slots are filled by one text of five words, one-hot. */
#include "common/base/clock.h"
#include "engine/onnx_export.h"
#include "inference/core/score_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WIDTH = 10, DISTINCT = 50000, ROUNDS = 20, WORDS = 5 };
static const char *const words[WORDS] = {"turbine", "pump", "fan", "compressor", "valve"};

static pst_schema *schema;

static double frand(unsigned *seed)
{
    return (double)rand_r(seed) / RAND_MAX - 0.5;
}

static pst_model *autoencoder(void)
{
    static const int64_t sizes[] = {WIDTH, 32, 8, 32, WIDTH};
    pst_onnx_builder *b = pst_onnx_new("autoencoder", 17, 8);
    unsigned seed = 1;
    char in[16] = "x", out[16], w[16], bias[16];
    pst_onnx_input(b, "x", PST_F32, 2, (int64_t[]){-1, WIDTH}, "N");
    for (int l = 0; l < 4; l++) {
        float weights[32 * 32], zeros[32] = {0};
        for (int64_t i = 0; i < sizes[l] * sizes[l + 1]; i++)
            weights[i] = (float)frand(&seed);
        snprintf(w, sizeof(w), "w%d", l);
        snprintf(bias, sizeof(bias), "b%d", l);
        snprintf(out, sizeof(out), l == 3 ? "y" : "g%d", l);
        pst_onnx_floats(b, w, 2, (int64_t[]){sizes[l], sizes[l + 1]}, weights);
        pst_onnx_floats(b, bias, 1, (int64_t[]){sizes[l + 1]}, zeros);
        pst_onnx_node(b, "Gemm", (const char *[]){in, w, bias}, 3, (const char *[]){out}, 1);
        if (l < 3) {
            snprintf(in, sizeof(in), "h%d", l);
            pst_onnx_node(b, "Relu", (const char *[]){out}, 1, (const char *[]){in}, 1);
        }
    }
    pst_onnx_output(b, "y", PST_F32, 2, (int64_t[]){-1, WIDTH}, "N");
    pst_buf bytes = {0};
    pst_model *m = NULL;
    pst_onnx_write(b, &bytes);
    pst_onnx_free(b);
    PST_ASSERT(pst_model_load(bytes.data, bytes.len, NULL, NULL, &m, NULL) == 0);
    pst_buf_done(&bytes);
    return m;
}

static void make_schema(pst_pipeline **ret_pipeline, size_t batch, const char *format, int numbers)
{
    pst_buf s = {0}, p = {0};
    pst_buf_adds(
        &s, "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"id\",\"type\":\"long\"},{\"name\":\"host\",\"type\":\"string\"}");
    pst_buf_printf(&p,
                   "name: p\nmodel: {name: m}\nscore: {type: reconstruction_error}\nbatching: {count: %zu}\noutput: {topic: o, format: "
                   "%s}\nfeatures:\n",
                   batch, format);
    for (int i = 0; i < numbers; i++) {
        pst_buf_printf(&s, ",{\"name\":\"f%d\",\"type\":%s}", i, i < 2 ? "[\"null\",\"double\"]" : "\"double\"");
        pst_buf_printf(&p, "  - {field: f%d, scale: 0.5, offset: 0.1, missing: value, value: 0.25}\n", i);
    }
    if (numbers < WIDTH) {
        pst_buf_adds(&s, ",{\"name\":\"kind\",\"type\":\"string\"}");
        pst_buf_adds(&p, "  - {field: kind, missing: zeros, one_hot: [");
        for (int i = 0; i < WORDS; i++)
            pst_buf_printf(&p, "%s%s", i ? ", " : "", words[i]);
        pst_buf_adds(&p, "]}\n");
    }
    pst_buf_adds(&s, "]}");
    PST_ASSERT(pst_schema_parse(s.data, s.len, &schema, NULL) == 0);
    PST_ASSERT(pst_pipeline_parse(p.data, p.len, "bench.yml", ret_pipeline, NULL) == 0);
    pst_buf_done(&s);
    pst_buf_done(&p);
}

static pst_record *make_records(pst_buf *bytes, int numbers)
{
    pst_record *r = pst_alloc(DISTINCT * sizeof(*r));
    size_t *at = pst_alloc(DISTINCT * sizeof(*at));
    unsigned seed = 2;
    for (int i = 0; i < DISTINCT; i++) {
        at[i] = bytes->len;
        pst_frame_put(bytes, 1);
        pst_avro_put_long(bytes, i);
        pst_avro_put_bytes(bytes, "host-12", 7);
        for (int k = 0; k < numbers; k++) {
            bool null = k < 2 && rand_r(&seed) % 100 < 3;
            if (k < 2)
                pst_buf_addc(bytes, null ? 0 : 2);
            if (!null)
                pst_avro_put_double(bytes, frand(&seed));
        }
        const char *word = i % 50 ? words[rand_r(&seed) % WORDS] : "another"; /* one in fifty is not known */
        if (numbers < WIDTH)
            pst_avro_put_bytes(bytes, word, strlen(word));
        r[i] = (pst_record){
            .topic = "telemetry", .partition = i % 4, .offset = i, .timestamp_ms = 1700000000000 + i, .value_len = bytes->len - at[i]};
    }
    for (int i = 0; i < DISTINCT; i++)
        r[i].value = bytes->data + at[i];
    free(at);
    return r;
}

static void take(pst_score_core *c, const pst_record *r)
{
    int32_t id;
    while (pst_score_core_take(c, r, &id) != PST_NEEDS_NOTHING)
        pst_score_core_output(c, id, false, 1);
}

int main(int argc, char **argv)
{
    size_t batch = argc > 1 ? strtoul(argv[1], NULL, 10) : 512;
    const char *format = argc > 2 ? argv[2] : "full";
    int numbers = argc > 3 && !strcmp(argv[3], "words") ? WIDTH - WORDS : WIDTH;
    pst_pipeline *p = NULL;
    pst_binding *b = NULL;
    pst_buf bytes = {0};
    size_t bytes_out = 0;
    pst_err err = {0};
    if (batch < 1 || batch > DISTINCT)
        return 2;
    make_schema(&p, batch, format, numbers);
    pst_record *records = make_records(&bytes, numbers);
    pst_model *m = autoencoder();
    PST_ASSERT(pst_binding_new(p, m, "m", 1, batch, &b, &err) == 0);
    pst_score_core *c = pst_score_core_new(p, NULL);
    pst_score_core_offer(c, PST_VARIANT_PRIMARY, b, NULL, 0);
    pst_score_core_schema(c, 1, schema);
    double best = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        struct timespec t0, t1;
        size_t n = 0;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t0);
        for (; n + batch <= DISTINCT; n += batch) {
            pst_score_core_begin(c, 1);
            for (size_t i = 0; i < batch; i++)
                take(c, &records[n + i]);
            PST_ASSERT(pst_score_core_run(c, &err) == 0);
            pst_score_core_finish(c, 1700000000000000);
            size_t taken;
            const pst_fate *fates = pst_score_core_fates(c, &taken);
            for (size_t i = 0; i < taken; i++)
                bytes_out += pst_score_core_value(c, &fates[i], false).len;
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t1);
        double ns = ((double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec)) / (double)n;
        best = ns < best ? ns : best;
    }
    printf("%zu %s %.0f ns %.0f records/s\n", batch, format, best, 1e9 / best);
    PST_ASSERT(bytes_out > 0);
    free(records);
    pst_score_core_free(c);
    pst_model_unref(m);
    pst_pipeline_free(p);
    pst_schema_free(schema);
    pst_buf_done(&bytes);
    return 0;
}
