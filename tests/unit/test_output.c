/* test_output.c - the bytes of a Score beside an encoder that puts one field after the other by the book: numbers of every length, heads that change with
 * the topic, labels, missing fields, thresholds; into a buffer that already has something. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "inference/core/output.h"

#include <stdlib.h>
#include <string.h>

static void put_text(pst_buf *b, const char *s)
{
    pst_avro_put_bytes(b, s, strlen(s));
}

static void by_the_book(const pst_score_parts *s, bool slim, pst_buf *b)
{
    if (s->n_scores)
        pst_avro_put_long(b, (int64_t)s->n_scores);
    for (size_t i = 0; i < s->n_scores; i++)
        pst_avro_put_double(b, s->scores[i]);
    pst_avro_put_long(b, 0);
    if (slim)
        return;
    pst_avro_put_long(b, s->label ? 1 : 0);
    if (s->label)
        put_text(b, s->label);
    pst_buf_add(b, s->model.data, s->model.len);
    put_text(b, s->backend);
    put_text(b, s->topic);
    pst_avro_put_long(b, s->partition);
    pst_avro_put_long(b, s->offset);
    pst_avro_put_long(b, s->timestamp_ms * 1000);
    pst_avro_put_long(b, s->variant);
    pst_avro_put_long(b, s->scored_at_us);
    int64_t n = 0;
    for (size_t i = 0; s->missing && i < s->n_features; i++)
        n += s->missing[i];
    if (n)
        pst_avro_put_long(b, n);
    for (size_t i = 0; s->missing && i < s->n_features; i++)
        if (s->missing[i])
            put_text(b, s->features[i].field);
    pst_avro_put_long(b, 0);
    pst_avro_put_long(b, s->threshold ? 1 : 0);
    if (s->threshold)
        pst_avro_put_double(b, *s->threshold);
}

static void compare(const char *format)
{
    static const char *const topics[] = {"t", "another topic of a longer name", "t2"}, *const backends[] = {"cpu", "cuda"},
                             *const labels[] = {NULL, "", "a label"};
    static const double scores[70] = {1.5, -2, 1e300}, threshold = 0.25;
    static const pst_feature features[3] = {{.field = (char *)"a"}, {.field = (char *)"bb"}, {.field = (char *)"ccc"}};
    static const uint8_t some[3] = {1, 0, 1}, none[3] = {0};
    static const uint8_t *const missings[] = {NULL, some, none};
    char *text = pst_sprintf("name: p\nmodel: {name: m}\noutput: {topic: o, format: %s}\nfeatures: [a]\n", format);
    pst_pipeline *p = NULL;
    assert_int_equal(pst_pipeline_parse(text, strlen(text), "test.yml", &p, NULL), 0);
    pst_output *o = NULL;
    pst_output_head head = {0};
    assert_int_equal(pst_output_new(p, NULL, &o, NULL), 0);
    unsigned seed = 5;
    for (int i = 0; i < 4000; i++) {
        char *topic = pst_strdup(topics[rand_r(&seed) % 3]); /* the name may lie where another lay before */
        int64_t wild = (int64_t)rand_r(&seed) << 31 ^ rand_r(&seed);
        pst_score_parts s = {.scores = scores,
                             .n_scores = (size_t[]){0, 1, 3, 70}[rand_r(&seed) % 4],
                             .label = labels[rand_r(&seed) % 3],
                             .model = {"\x02m\x06", 3},
                             .head = &head,
                             .backend = backends[rand_r(&seed) % 2],
                             .topic = topic,
                             .partition = rand_r(&seed) >> rand_r(&seed) % 31,
                             .offset = wild >> rand_r(&seed) % 62,
                             .timestamp_ms = wild / 1000 >> rand_r(&seed) % 52,
                             .variant = (pst_variant)(rand_r(&seed) % 3),
                             .scored_at_us = wild >> rand_r(&seed) % 62,
                             .features = features,
                             .missing = missings[rand_r(&seed) % 3],
                             .n_features = 3,
                             .threshold = rand_r(&seed) % 2 ? &threshold : NULL};
        pst_buf want = {0}, have = {0};
        pst_buf_adds(&want, "before");
        pst_buf_adds(&have, "before");
        by_the_book(&s, p->slim, &want);
        pst_output_put(o, &s, &have);
        assert_int_equal(have.len, want.len);
        assert_memory_equal(have.data, want.data, want.len);
        pst_buf_done(&want);
        pst_buf_done(&have);
        free(topic);
    }
    pst_output_head_done(&head);
    pst_output_free(o);
    pst_pipeline_free(p);
    free(text);
}

static void test_output_full_is_by_the_book(void **state)
{
    compare("full");
}

static void test_output_slim_is_by_the_book(void **state)
{
    compare("slim");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output_full_is_by_the_book),
        cmocka_unit_test(test_output_slim_is_by_the_book),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
