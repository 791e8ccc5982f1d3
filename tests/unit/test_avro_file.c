/* test_avro_file.c - container files written by avro-c for us, read back by our own reader and by avro-c's: the same records, and the schema's own
 * text, logical types and all. */
#include "tests/unit/test.h"

#include "common/base/buf.h"
#include "common/base/fs.h"
#include "inference/offline/ocf.h"
#include "schemas/avro_file.h"
#include "schemas/events.h"

#include <avro.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/pst-avro-file-XXXXXX";

static void encode_line(int i, size_t text_len, pst_buf *ret)
{
    pst_log_line line = {.training_id = (char *)"training-a", .process = (char *)"learner-1", .rindex = i, .time = 1700000000000000 + i};
    line.text = pst_alloc(text_len + 1);
    memset(line.text, 'a' + i % 26, text_len);
    pst_event_encode(&pst_log_line_type, &line, ret);
    free(line.text);
}

static void write_lines(int n, size_t text_len)
{
    pst_err err = {0};
    pst_avro_file *f = NULL;
    pst_buf body = {0};
    assert_int_equal(pst_avro_file_new(path, pst_type_schema(&pst_log_line_type), &f, &err), 0);
    for (int i = 0; i < n; i++) {
        pst_buf_clear(&body);
        encode_line(i, text_len, &body);
        assert_int_equal(pst_avro_file_add(f, body.data, body.len, &err), 0);
    }
    assert_int_equal(pst_avro_file_end(f, &err), 0);
    pst_buf_done(&body);
}

static void read_lines(int n, size_t text_len)
{
    pst_err err = {0};
    pst_buf bytes = {0}, want = {0};
    pst_slice body;
    score_ocf *f = NULL;
    assert_int_equal(pst_fs_read(path, 1u << 30, &bytes, &err), 0);
    assert_int_equal(score_ocf_open(bytes.data, bytes.len, path, &f, &err), 0);
    assert_string_equal(pst_schema_text(score_ocf_schema(f)), pst_type_schema(&pst_log_line_type));
    assert_non_null(strstr(pst_schema_text(score_ocf_schema(f)), "timestamp-micros"));
    for (int i = 0; i < n; i++) {
        assert_int_equal(score_ocf_next(f, &body, &err), 1);
        pst_buf_clear(&want);
        encode_line(i, text_len, &want);
        assert_int_equal(body.len, want.len);
        assert_memory_equal(body.data, want.data, want.len);
    }
    assert_int_equal(score_ocf_next(f, &body, &err), 0);
    score_ocf_free(f);
    pst_buf_done(&bytes);
    pst_buf_done(&want);
}

static void read_by_avro_c(int n)
{
    avro_file_reader_t reader;
    avro_value_t value;
    assert_int_equal(avro_file_reader(path, &reader), 0);
    avro_schema_t schema = avro_file_reader_get_writer_schema(reader);
    avro_value_iface_t *class = avro_generic_class_from_schema(schema);
    assert_int_equal(avro_generic_value_new(class, &value), 0);
    for (int i = 0; i < n; i++) {
        avro_value_t field;
        int64_t rindex = -1;
        assert_int_equal(avro_file_reader_read_value(reader, &value), 0);
        assert_int_equal(avro_value_get_by_name(&value, "rindex", &field, NULL), 0);
        assert_int_equal(avro_value_get_long(&field, &rindex), 0);
        assert_int_equal(rindex, i);
    }
    assert_int_not_equal(avro_file_reader_read_value(reader, &value), 0);
    avro_value_decref(&value);
    avro_value_iface_decref(class);
    avro_schema_decref(schema);
    avro_file_reader_close(reader);
}

static void test_avro_file_reads_back_as_written(void **state)
{
    const struct {
        int n;
        size_t text;
    } cases[] = {{0, 0}, {1, 10}, {20000, 100}, {7, 900000}, {2, 15u << 20}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_lines(cases[i].n, cases[i].text);
        read_lines(cases[i].n, cases[i].text);
        read_by_avro_c(cases[i].n);
    }
}

static void test_avro_file_that_cannot_be_written_says_so(void **state)
{
    pst_avro_file *f = NULL;
    pst_err err = {0};
    assert_true(pst_avro_file_new("/nonexistent/x.avro", pst_type_schema(&pst_log_line_type), &f, &err) < 0);
    assert_non_null(strstr(err.text, "/nonexistent/x.avro"));
    pst_err_clear(&err);
    assert_true(pst_avro_file_new("/dev/full", pst_type_schema(&pst_log_line_type), &f, &err) < 0);
    assert_non_null(strstr(err.text, "/dev/full"));
    assert_null(f);
}

static void test_avro_file_refuses_what_no_reader_takes(void **state)
{
    pst_avro_file *f = NULL;
    pst_err err = {0};
    char *large = pst_alloc(PST_AVRO_BYTES_MAX + 1);
    assert_int_equal(pst_avro_file_new(path, pst_type_schema(&pst_log_line_type), &f, &err), 0);
    assert_int_equal(pst_avro_file_add(f, large, PST_AVRO_BYTES_MAX + 1, &err), PST_ELIMIT);
    assert_int_equal(pst_avro_file_end(f, NULL), 0);
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_avro_file_reads_back_as_written),
        cmocka_unit_test(test_avro_file_that_cannot_be_written_says_so),
        cmocka_unit_test(test_avro_file_refuses_what_no_reader_takes),
    };
    int fd = mkstemp(path);
    if (fd >= 0)
        close(fd);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return rc;
}
