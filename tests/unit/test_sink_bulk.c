/* test_sink_bulk.c - the lines of a bulk request, and the verdict on each of its items: stored, not now, never. Answers are OpenSearch 2.19's. */
#include "consumers/sink/sink_bulk.h"

#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const pst_record records[] = {{.topic = "t", .partition = 0, .offset = 1},
                                     {.topic = "t", .partition = 2, .offset = 34567890123},
                                     {.topic = "T.x", .partition = 1, .offset = 0}};

static void fill(sink_bulk *b)
{
    for (size_t i = 0; i < 3; i++) {
        json_t *doc = json_pack("{s:i, s:s}", "i", (int)i, "text", "two\nlines \"here\"");
        sink_bulk_add(b, "an-index", &records[i], doc);
        json_decref(doc);
    }
}

static void test_a_request_is_two_lines_a_document(void **state)
{
    sink_bulk b = {0};
    fill(&b);
    pst_slice all = sink_bulk_body(&b, 0, 3), second = sink_bulk_body(&b, 1, 2);
    const char *want =
        "{\"index\":{\"_index\":\"an-index\",\"_id\":\"t-2-34567890123\"}}\n{\"i\":1,\"text\":\"two\\nlines \\\"here\\\"\"}\n";
    assert_int_equal(second.len, strlen(want));
    assert_memory_equal(second.data, want, second.len);
    size_t lines = 0;
    for (size_t i = 0; i < all.len; i++)
        lines += ((const char *)all.data)[i] == '\n';
    assert_int_equal(lines, 6);
    assert_int_equal(((const char *)all.data)[all.len - 1], '\n');
    sink_bulk_done(&b);
}

static void test_each_item_has_its_own_verdict(void **state)
{
    static const struct {
        const char *result;
        sink_bulk_verdict verdict;
        const char *reason;
    } rows[] = {
        {"{\"status\":201,\"result\":\"created\"}", SINK_BULK_DONE, ""},
        {"{\"status\":200,\"result\":\"updated\"}", SINK_BULK_DONE, ""},
        {"{\"status\":409,\"error\":{\"type\":\"version_conflict_engine_exception\",\"reason\":\"there\"}}", SINK_BULK_DONE, ""},
        {"{\"status\":400,\"error\":{\"type\":\"mapper_parsing_exception\",\"reason\":\"failed to parse field "
         "[x]\",\"caused_by\":{\"reason\":\"For input string\"}}}",
         SINK_BULK_REFUSED, "mapper_parsing_exception"},
        {"{\"status\":413,\"error\":{\"type\":\"too_large\"}}", SINK_BULK_REFUSED, "too_large"},
        {"{\"status\":400,\"error\":\"a text of old servers\"}", SINK_BULK_REFUSED, "unknown"},
        {"{\"status\":429,\"error\":{\"type\":\"es_rejected_execution_exception\"}}", SINK_BULK_AGAIN, "es_rejected_execution_exception"},
        {"{\"status\":503,\"error\":{\"type\":\"unavailable_shards_exception\"}}", SINK_BULK_AGAIN, "unavailable_shards_exception"},
        /* 4xx that are the cluster's state and no word about the document: a full disk, a closed index, a limit of shards, a right, no automatic creation */
        {"{\"status\":403,\"error\":{\"type\":\"cluster_block_exception\"}}", SINK_BULK_AGAIN, "cluster_block_exception"},
        {"{\"status\":400,\"error\":{\"type\":\"index_closed_exception\"}}", SINK_BULK_AGAIN, "index_closed_exception"},
        {"{\"status\":400,\"error\":{\"type\":\"validation_exception\"}}", SINK_BULK_AGAIN, "validation_exception"},
        {"{\"status\":403,\"error\":{\"type\":\"security_exception\"}}", SINK_BULK_AGAIN, "security_exception"},
        {"{\"status\":404,\"error\":{\"type\":\"index_not_found_exception\"}}", SINK_BULK_AGAIN, "index_not_found_exception"},
        {"{\"status\":302}", SINK_BULK_AGAIN, "unknown"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sink_bulk b = {0};
        pst_err err = {0};
        fill(&b);
        char *text =
            pst_sprintf("{\"took\":1,\"errors\":true,\"items\":[{\"index\":{\"status\":201}},{\"index\":%s},{\"index\":{\"status\":201}}]}",
                        rows[i].result);
        assert_int_equal(sink_bulk_answer(&b, 0, 3, text, strlen(text), &err), 0);
        assert_int_equal(b.items[0].verdict, SINK_BULK_DONE);
        assert_int_equal(b.items[1].verdict, rows[i].verdict);
        assert_string_equal(b.items[1].reason, rows[i].reason);
        assert_int_equal(b.items[2].verdict, SINK_BULK_DONE);
        if (i == 3)
            assert_string_equal(b.items[1].message, "failed to parse field [x]: For input string");
        free(text);
        sink_bulk_done(&b);
    }
}

static void test_what_is_left_is_sent_as_it_was(void **state)
{
    sink_bulk b = {0};
    fill(&b);
    sink_bulk_judge(&b, 0, SINK_BULK_DONE, NULL, NULL);
    sink_bulk_judge(&b, 1, SINK_BULK_AGAIN, "a", "b");
    sink_bulk_judge(&b, 2, SINK_BULK_AGAIN, "a", "b");
    pst_slice before = sink_bulk_body(&b, 1, 3);
    char *want = pst_strndup(before.data, before.len);
    sink_bulk_keep(&b, SINK_BULK_AGAIN);
    assert_int_equal(b.n, 2);
    pst_slice after = sink_bulk_body(&b, 0, 2);
    assert_int_equal(after.len, strlen(want));
    assert_memory_equal(after.data, want, after.len);
    assert_ptr_equal(b.items[0].record, &records[1]);
    sink_bulk_keep(&b, SINK_BULK_DONE);
    assert_int_equal(b.n, 0);
    free(want);
    sink_bulk_done(&b);
}

static void test_what_is_no_answer_decides_nothing(void **state)
{
    static const char *const texts[] = {
        "",
        "<html>log in</html>",
        "[]",
        "{}",
        "{\"items\":null}",
        "{\"items\":[{\"index\":{\"status\":201}}]}",
        "{\"items\":[{\"index\":{\"status\":201}},{\"index\":{\"status\":201}},{\"index\":{\"status\":\"201\"}}]}",
        "{\"items\":[{\"index\":{\"status\":201}},{\"create\":{\"status\":201}},7]}",
        "{\"items\":[1,2,3]}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        sink_bulk b = {0};
        pst_err err = {0};
        fill(&b);
        assert_int_equal(sink_bulk_answer(&b, 0, 3, texts[i], strlen(texts[i]), &err), PST_EPARSE);
        assert_int_equal(err.cls, PST_CLASS_RETRY);
        assert_int_equal(sink_bulk_count(&b, SINK_BULK_WAITING), 3);
        sink_bulk_done(&b);
    }
}

static void test_topics_become_names_of_indices(void **state)
{
    static const char *const rows[][2] = {{"penstock.logs", "penstock.logs"},
                                          {"Scores.V2", "scores.v2"},
                                          {"_schemas", "topic_schemas"},
                                          {"-x", "topic-x"},
                                          {"a:b#c d", "a_b_c_d"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *index = sink_bulk_index(rows[i][0]);
        assert_string_equal(index, rows[i][1]);
        free(index);
    }
    char longest[300];
    memset(longest, 'a', 299);
    longest[299] = 0;
    char *index = sink_bulk_index(longest);
    assert_int_equal(strlen(index), 255);
    free(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_is_two_lines_a_document), cmocka_unit_test(test_each_item_has_its_own_verdict),
        cmocka_unit_test(test_what_is_left_is_sent_as_it_was), cmocka_unit_test(test_what_is_no_answer_decides_nothing),
        cmocka_unit_test(test_topics_become_names_of_indices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
