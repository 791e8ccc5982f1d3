/* Records → rows: CSV files of every kind, hostile ones too; missing values, classes, statistics, the split; fields of schemas. */
#include "common/base/csv.h"
#include "common/base/fs.h"
#include "common/base/json.h"
#include "trainer/learner/sources.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];

static int make_dir(void **state)
{
    strcpy(dir, "/tmp/learner-data-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
    return pst_fs_remove_tree(dir, NULL);
}

static void put(const char *name, const char *text, size_t len)
{
    char *path = pst_fs_join(dir, name);
    pst_err err = {0};
    assert_int_equal(pst_fs_write_atomic(path, text, len, 0644, &err), 0);
    free(path);
}

static bool never(void *arg)
{
    return false;
}

static void silent(void *arg, const char *fmt, ...)
{
}

static const learn_source_hooks hooks = {NULL, never, silent};

static void settings(const char *yaml, pst_learn_settings *s)
{
    pst_yaml y;
    pst_complaints wrong = {0};
    assert_int_equal(pst_yaml_parse(yaml, strlen(yaml), "test", &y, NULL), 0);
    if (pst_learn_settings_parse(y.root, "learner", s, &wrong) < 0)
        fail_msg("%s: %s", wrong.at[0].field, wrong.at[0].text);
    pst_yaml_done(&y);
}

/* ---- CSV ---- */

static void test_csv_quotes_delimiters_line_ends(void **state)
{
    static const char text[] = "\xef\xbb\xbf"
                               "a;\"b;\"\"x\"\"\";c\r\n1;\"two\r\nlines; and\";3\r\n\r\n4;;6\r7;8";
    FILE *f = fmemopen((void *)text, sizeof text - 1, "r");
    pst_csv *c;
    pst_err err = {0};
    assert_int_equal(pst_csv_open(f, "t.csv", &c, &err), 0);
    assert_int_equal(pst_csv_columns(c), 3);
    assert_string_equal(pst_csv_name(c, 1), "b;\"x\"");
    assert_int_equal(pst_csv_find(c, "c"), 2);
    assert_int_equal(pst_csv_next(c, &err), 1);
    assert_string_equal(pst_csv_field(c, 1), "two\r\nlines; and");
    assert_int_equal(pst_csv_line(c), 2);
    assert_int_equal(pst_csv_next(c, &err), 1);
    assert_string_equal(pst_csv_field(c, 0), "4");
    assert_string_equal(pst_csv_field(c, 1), "");
    assert_int_equal(pst_csv_next(c, &err), 1);
    assert_int_equal(pst_csv_fields(c), 2);
    assert_string_equal(pst_csv_field(c, 1), "8");
    assert_null(pst_csv_field(c, 2));
    assert_int_equal(pst_csv_next(c, &err), 0);
    pst_csv_close(c);
}

static void expect_csv_error(const char *text, size_t len, const char *part)
{
    FILE *f = tmpfile();
    pst_csv *c;
    pst_err err = {0};
    assert_int_equal(fwrite(text, 1, len, f), len);
    rewind(f);
    int rc = pst_csv_open(f, "bad.csv", &c, &err), open = rc == 0;
    while (rc >= 0 && (rc = pst_csv_next(c, &err)) == 1)
        ;
    if (rc >= 0 || !strstr(err.text, part))
        fail_msg("wanted \"%s\", got %d \"%s\"", part, rc, err.text);
    if (open)
        pst_csv_close(c);
}

static void test_csv_hostile_files_are_refused(void **state)
{
    expect_csv_error("", 0, "is empty");
    expect_csv_error("\xef\xbb\xbf", 3, "is empty");
    expect_csv_error("a,b\n1,\"2\n3", 10, "never closed");
    expect_csv_error("a,b\n1,\0"
                     "2\n",
                     8, "NUL");
    expect_csv_error("a,b\n1,\"\0"
                     "2\"\n",
                     10, "NUL");
    expect_csv_error("a\0,b\n", 5, "NUL");
    expect_csv_error("a,a\n1,2\n", 8, "same name");
    size_t big = 3 << 20;
    char *text = malloc(big);
    memset(text, ',', big);
    text[0] = 'a';
    expect_csv_error(text, big, "more than 1 MiB");
    memcpy(text, "a,b\n\"", 5);
    memset(text + 5, 'x', big - 5);
    expect_csv_error(text, big, "more than 1 MiB");
    memcpy(text, "a,b\n", 4);
    memset(text + 4, ',', big - 4);
    text[4 + 20000] = '\n';
    expect_csv_error(text, 20010, "10,000 columns");
    free(text);
}

static void test_csv_numbers(void **state)
{
    double v;
    assert_int_equal(pst_csv_number(" -1.5e3 ", &v), 0);
    assert_true(v == -1500);
    assert_int_equal(pst_csv_number("true", &v), 0);
    assert_true(v == 1);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(pst_csv_number((const char *[]){"", "  ", "NaN", "na", "NULL"}[i], &v), 1);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(pst_csv_number((const char *[]){"0x10", "inf", "1,5", "1 2", "abc", "1e999"}[i], &v), -1);
}

static int read_csv(const char *yaml, pst_learn_settings *s, learn_data *d, pst_err *err)
{
    settings(yaml, s);
    learn_data_init(d, s, 1 << 20);
    return learn_data_read_csv(d, s, dir, s->data, 0, &hooks, err);
}

static void test_csv_rows_scaled_and_counted(void **state)
{
    static const char text[] = "time,a,b,kind\n1,1,10,x\n2,2,,y\n3,three,30,x\n4,4,40,z\n5,5\n6,6,60,\n";
    put("a.csv", text, sizeof text - 1);
    pst_learn_settings s;
    learn_data d;
    pst_err err = {0};
    assert_int_equal(read_csv("{features: [{field: a, scale: 2, offset: 1}, b], target: kind, classes: [x, y]}", &s, &d, &err), 0);
    assert_int_equal(d.rows, 2);    /* x and y */
    assert_int_equal(d.bad, 2);     /* "three", and the short line */
    assert_int_equal(d.dropped, 1); /* no class */
    assert_int_equal(d.outside, 1); /* class z */
    learn_ready ready;
    assert_int_equal(learn_prepare(&d, NULL, &ready, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "1 records have a target kind that is none of the 2 classes: \"z\" (1)"));
    assert_non_null(strstr(err.text, "other_classes: leave_out"));
    pst_err_clear(&err);
    assert_non_null(strstr(d.why_bad, "a.csv:4"));
    assert_true(d.x[0] == 3 && d.x[1] == 10 && d.x[2] == 5 && isnan(d.x[3]));
    assert_true(d.y[0] == 0 && d.y[1] == 1);
    learn_data_done(&d);
    pst_learn_settings_done(&s);
    assert_int_equal(read_csv("{features: [b], target: kind, classes: [x, y], other_classes: leave_out}", &s, &d, &err), 0);
    assert_int_equal(d.outside, 0);
    assert_int_equal(d.dropped, 2);
    assert_non_null(strstr(d.why_dropped, "\"z\""));
    learn_data_done(&d);
    pst_learn_settings_done(&s);
}

static void test_csv_features_left_out_are_found(void **state)
{
    static const char text[] = "time,a,name,b,updated_at\n1,1,x,NA,9\n2,2,y,5,9\n3,4,z,5,9\n";
    put("a.csv", text, sizeof text - 1);
    pst_learn_settings s;
    learn_data d;
    pst_err err = {0};
    assert_int_equal(read_csv("{data: a.csv}", &s, &d, &err), 0);
    assert_int_equal(s.n_features, 2);
    assert_string_equal(s.features[0].field, "a");
    assert_string_equal(s.features[1].field, "b");
    assert_int_equal(d.rows, 3);
    learn_data_done(&d);
    pst_learn_settings_done(&s);
}

static void test_csv_wrong_places_are_refused(void **state)
{
    static const char text[] = "alpha,b\n1,2\n";
    put("a.csv", text, sizeof text - 1);
    static const struct {
        const char *yaml, *part;
    } cases[] = {{"{data: ../../etc/passwd}", "leads out of"},
                 {"{data: /etc/passwd}", "leads out of"},
                 {"{data: absent.csv}", "absent.csv"},
                 {"{features: [alphq]}", "did you mean alpha?"},
                 {"{target: c}", "no column c"},
                 {"{features: [{field: b, slots: 2}]}", "one number a record"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_learn_settings s;
        learn_data d;
        pst_err err = {0};
        int rc = read_csv(cases[i].yaml, &s, &d, &err);
        if (rc >= 0 || !strstr(err.text, cases[i].part))
            fail_msg("%s: %d \"%s\"", cases[i].yaml, rc, err.text);
        learn_data_done(&d);
        pst_learn_settings_done(&s);
    }
}

/* ---- rows ---- */

static void add(learn_data *d, double a, double b)
{
    assert_int_equal(learn_data_add(d, (double[]){a, b}, (uint8_t[]){isnan(a), isnan(b)}, NULL, NULL), 0);
}

static void test_prepared_rows_are_standardised(void **state)
{
    pst_learn_settings s;
    learn_data d;
    learn_ready r;
    pst_err err = {0};
    settings("{features: [a, {field: b, scale: 0.5, noise: 6}], validation: 0.25, seed: 4}", &s);
    learn_data_init(&d, &s, 1 << 20);
    for (int i = 0; i < 40; i++)
        add(&d, i == 7 ? NAN : 100 + i, 5);
    assert_int_equal(learn_prepare(&d, NULL, &r, &err), 0);
    assert_int_equal(r.train, 30);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < r.train; i++) {
        sum += (double)r.z[2 * i];
        squares += (double)r.z[2 * i] * (double)r.z[2 * i];
        assert_true(r.z[2 * i + 1] == 0); /* a constant column: no division by zero */
    }
    assert_true(fabs(sum / 30) < 1e-5 && fabs(squares / 30 - 1) < 0.05);
    assert_true(r.stats.std[1] == 3 && r.stats.mean[1] == 2.5f); /* noise: 6 of the field, halved like it */
    assert_true(r.stats.min[0] >= 100 && r.stats.max[0] <= 139);
    learn_ready_done(&r);
    learn_data_done(&d);
    pst_learn_settings_done(&s);
}

static void test_split_depends_on_seed_alone(void **state)
{
    uint32_t crc[3];
    float first[3][20];
    for (int run = 0; run < 3; run++) {
        pst_learn_settings s;
        learn_data d;
        learn_ready r;
        settings(run == 2 ? "{features: [a, b], seed: 5}" : "{features: [a, b], seed: 4}", &s);
        learn_data_init(&d, &s, 1 << 20);
        for (int i = 0; i < 10; i++)
            add(&d, i, i * i);
        assert_int_equal(learn_prepare(&d, NULL, &r, NULL), 0);
        crc[run] = r.crc;
        memcpy(first[run], r.z, sizeof first[run]);
        learn_ready_done(&r);
        learn_data_done(&d);
        pst_learn_settings_done(&s);
    }
    assert_true(crc[0] == crc[1] && crc[0] == crc[2]); /* the records, whatever the seed */
    assert_memory_equal(first[0], first[1], sizeof first[0]);
    assert_memory_not_equal(first[0], first[2], sizeof first[0]);
}

static void test_too_few_and_too_many_records(void **state)
{
    pst_learn_settings s;
    learn_data d;
    learn_ready r;
    pst_err err = {0};
    settings("{features: [a, b]}", &s);
    learn_data_init(&d, &s, 4096);
    add(&d, 1, 2);
    learn_data_bad(&d, "line %d is bad", 7);
    assert_int_equal(learn_prepare(&d, NULL, &r, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "line 7 is bad"));
    int rc = 0;
    pst_err_clear(&err);
    for (int i = 0; i < 1000 && !rc; i++)
        rc = learn_data_add(&d, (double[]){1, 2}, (uint8_t[]){0, 0}, NULL, &err);
    assert_int_equal(rc, PST_ELIMIT);
    assert_non_null(strstr(err.text, "memory"));
    learn_data_done(&d);
    pst_learn_settings_done(&s);
}

/* A name misspelt in the manifest: a column of nothing must not become a model that looks good. */
static void test_a_feature_that_no_record_has_is_refused(void **state)
{
    for (int run = 0; run < 2; run++) {
        pst_learn_settings s;
        learn_data d;
        learn_ready r;
        pst_err err = {0};
        settings(run ? "{features: [a, {field: itms, missing: value, value: 1}]}" : "{features: [a, itms]}", &s);
        learn_data_init(&d, &s, 1 << 20);
        learn_data_add_range(&d, "orders", 0, 0, 10);
        for (int i = 0; i < 10; i++)
            add(&d, i, NAN);
        assert_int_equal(learn_prepare(&d, NULL, &r, &err), PST_EINVAL);
        assert_non_null(strstr(err.text, "none of the 10 records has the feature itms"));
        assert_non_null(strstr(err.text, "penstock cat -t orders"));
        learn_data_done(&d);
        pst_learn_settings_done(&s);
    }
}

/* The reason comes first: tables and state topics cut long texts. */
static void test_nothing_to_train_on_says_why_first(void **state)
{
    pst_learn_settings s;
    learn_data d;
    learn_ready r;
    pst_err err = {0};
    settings("{features: [a, {field: b, missing: reject}]}", &s);
    learn_data_init(&d, &s, 1 << 20);
    learn_data_bad(&d, "line %d is bad", 7);
    assert_int_equal(learn_data_add(&d, (double[]){1, NAN}, (uint8_t[]){0, 1}, NULL, NULL), 1);
    assert_int_equal(learn_prepare(&d, NULL, &r, &err), PST_EINVAL);
    assert_string_equal(err.text, "none of the 2 records can be trained on: line 7 is bad; b is missing (missing: reject)");
    learn_data_done(&d);
    pst_learn_settings_done(&s);
}

static void test_missing_policies(void **state)
{
    pst_learn_settings s;
    learn_data d;
    settings("{features: [{field: a, missing: value, value: 9, scale: 10}, {field: b, missing: reject}]}", &s);
    learn_data_init(&d, &s, 1 << 20);
    assert_int_equal(learn_data_add(&d, (double[]){1, 2}, (uint8_t[]){1, 0}, NULL, NULL), 0);
    assert_true(d.x[0] == 90 && d.x[1] == 2);
    assert_int_equal(learn_data_add(&d, (double[]){1, 2}, (uint8_t[]){0, 1}, NULL, NULL), 1);
    assert_int_equal(learn_data_add(&d, (double[]){1e300, 2}, (uint8_t[]){0, 0}, NULL, NULL), 1); /* beyond float32 */
    assert_int_equal(d.dropped, 2);
    assert_int_equal(d.rows, 1);
    learn_data_done(&d);
    pst_learn_settings_done(&s);
}

static void test_rows_of_several_ranges_are_ordered(void **state)
{
    pst_learn_settings s;
    learn_data d;
    settings("{features: [a, b]}", &s);
    learn_data_init(&d, &s, 1 << 20);
    for (int p = 0; p < 3; p++)
        learn_data_add_range(&d, "t", p, 0, 3);
    static const uint32_t order[] = {2, 0, 1, 1, 0, 2};
    for (size_t i = 0; i < 6; i++) {
        d.part_now = order[i];
        add(&d, order[i], (double)i);
    }
    learn_data_sort(&d);
    static const float want[] = {0, 1, 0, 4, 1, 2, 1, 3, 2, 0, 2, 5};
    assert_memory_equal(d.x, want, sizeof want);
    learn_data_done(&d);
    pst_learn_settings_done(&s);
}

/* ---- fields ---- */

static void expect_fields(size_t n, char **fields, const char *want)
{
    pst_buf b = {0};
    for (size_t i = 0; i < n; i++) {
        pst_buf_printf(&b, "%s%s", i ? " " : "", fields[i]);
        free(fields[i]);
    }
    free(fields);
    assert_string_equal(b.data ? b.data : "", want);
    pst_buf_done(&b);
}

static void test_fields_of_schema(void **state)
{
    static const char schema[] =
        "{\"type\":\"record\",\"name\":\"R\",\"namespace\":\"x\",\"fields\":["
        "{\"name\":\"host\",\"type\":\"string\"},{\"name\":\"when\",\"type\":{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}},"
        "{\"name\":\"cpu\",\"type\":{\"type\":\"record\",\"name\":\"Cpu\",\"fields\":[{\"name\":\"user\",\"type\":\"double\"},"
        "{\"name\":\"next\",\"type\":[\"null\",\"R\"]}]}},{\"name\":\"other\",\"type\":[\"null\",\"x.Cpu\"]},"
        "{\"name\":\"n\",\"type\":[\"null\",\"int\"]},{\"name\":\"on\",\"type\":\"boolean\"},{\"name\":\"wide\",\"type\":[\"int\","
        "\"string\"]},"
        "{\"name\":\"list\",\"type\":{\"type\":\"array\",\"items\":\"double\"}},{\"name\":\"timestamp\",\"type\":\"long\"},"
        "{\"name\":\"e\",\"type\":{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"A\"]}}]}";
    char **fields;
    size_t n = learn_fields_of_schema(schema, &fields);
    expect_fields(n, fields, "cpu.user other.user n on");
    n = learn_fields_of_schema("\"double\"", &fields);
    expect_fields(n, fields, "");
    n = learn_fields_of_schema("{not json", &fields);
    expect_fields(n, fields, "");
}

static void test_fields_of_json(void **state)
{
    static const char text[] =
        "{\"a\":1,\"b\":{\"c\":2.5,\"d\":\"x\",\"time\":3},\"e\":[1],\"f\":true,\"g\":null,\"created_at\":5,\"dotted.key\":6}";
    json_t *j = NULL;
    char **fields;
    assert_int_equal(pst_json_parse(text, strlen(text), "t", &j, NULL), 0);
    size_t n = learn_fields_of_json(j, &fields);
    expect_fields(n, fields, "a b.c f dotted.key");
    assert_true(json_integer_value(learn_json_at(j, "dotted.key")) == 6);
    assert_true(json_real_value(learn_json_at(j, "b.c")) == 2.5);
    assert_null(learn_json_at(j, "b.c.d"));
    assert_null(learn_json_at(j, "x.y"));
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_csv_quotes_delimiters_line_ends),
        cmocka_unit_test(test_csv_hostile_files_are_refused),
        cmocka_unit_test(test_csv_numbers),
        cmocka_unit_test_setup_teardown(test_csv_rows_scaled_and_counted, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_csv_features_left_out_are_found, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_csv_wrong_places_are_refused, make_dir, drop_dir),
        cmocka_unit_test(test_prepared_rows_are_standardised),
        cmocka_unit_test(test_split_depends_on_seed_alone),
        cmocka_unit_test(test_too_few_and_too_many_records),
        cmocka_unit_test(test_a_feature_that_no_record_has_is_refused),
        cmocka_unit_test(test_nothing_to_train_on_says_why_first),
        cmocka_unit_test(test_missing_policies),
        cmocka_unit_test(test_rows_of_several_ranges_are_ordered),
        cmocka_unit_test(test_fields_of_schema),
        cmocka_unit_test(test_fields_of_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
