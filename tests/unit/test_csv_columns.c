/* Columns of CSV files → fields of records: names, what a schema wants, decimal commas; headers that do not fit are refused with all their names. */
#include "common/base/json.h"
#include "producers/sources/csv_columns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int open_columns(const char *text, const source_columns_want *want, pst_csv **csv, source_columns **columns, pst_err *err)
{
    FILE *f = fmemopen((void *)text, strlen(text), "r");
    assert_non_null(f);
    assert_int_equal(pst_csv_open(f, "o.csv", csv, err), 0);
    return source_columns_new(*csv, "o.csv", want, columns, err);
}

/* The first row as the text of its record. */
static void row_is(const char *text, const source_columns_want *want, const char *expected)
{
    pst_csv *csv = NULL;
    source_columns *columns = NULL;
    pst_err err = {0};
    if (open_columns(text, want, &csv, &columns, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(pst_csv_next(csv, &err), 1);
    json_t *o = source_columns_record(columns, csv);
    char *got = pst_json_text(o);
    assert_string_equal(got, expected);
    free(got);
    json_decref(o);
    source_columns_free(columns);
    pst_csv_close(csv);
}

static void refused(const char *text, const source_columns_want *want, const char *const parts[])
{
    pst_csv *csv = NULL;
    source_columns *columns = NULL;
    pst_err err = {0};
    assert_int_equal(open_columns(text, want, &csv, &columns, &err), PST_EINVAL);
    for (size_t i = 0; parts[i]; i++)
        if (!strstr(err.text, parts[i]))
            fail_msg("\"%s\" lacks \"%s\"", err.text, parts[i]);
    pst_csv_close(csv);
}

#define REFUSED(text, want, ...) refused(text, want, (const char *const[]){__VA_ARGS__, NULL})

static void test_without_a_schema_texts_say_what_they_are(void **state)
{
    row_is("a;b;c;d;e\n1;2.5;x;;true\n", &(source_columns_want){0}, "{\"a\":1,\"b\":2.5,\"c\":\"x\",\"d\":null,\"e\":true}");
}

static void test_plain_names(void **state)
{
    const source_columns_want want = {.plain_names = true, .key = "express"};
    row_is("Order ID,Basket Value (EUR),Express?, 2nd.part,\"\xc3\x9c\"\n1,2,3,4,5\n", &want,
           "{\"order_id\":1,\"basket_value_eur\":2,\"express\":3,\"_2nd_part\":4,\"_\":5}");
    REFUSED("a b,A-B\n1,2\n", &(source_columns_want){.plain_names = true}, "--plain-names makes a_b of two columns");
}

static void test_decimal_commas(void **state)
{
    static const struct {
        const char *text, *is;
    } cases[] = {{"43,30", "43.3"},
                 {"-0,5", "-0.5"},
                 {"1.234,5", "1234.5"},
                 {"1.234.567", "1234567"},
                 {"12", "12"},
                 {"3.14", "\"3.14\""},
                 {"1.2345,6", "\"1.2345,6\""},
                 {"1,2,3", "\"1,2,3\""},
                 {"1234.567", "\"1234.567\""},
                 {",5", "\",5\""},
                 {"NA", "\"NA\""}};
    static const char *const commas[] = {"v"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = pst_sprintf("v,w\n\"%s\",\"1,5\"\n", cases[i].text), *is = pst_sprintf("{\"v\":%s,\"w\":\"1,5\"}", cases[i].is);
        row_is(text, &(source_columns_want){.decimal_commas = commas, .n_decimal_commas = 1}, is);
        free(text);
        free(is);
    }
    static const char *const absent[] = {"valeu"};
    const source_columns_want misspelt = {.decimal_commas = absent, .n_decimal_commas = 1};
    REFUSED("value,w\n1,2\n", &misspelt, "no column valeu", "--decimal-comma", "did you mean value?");
}

static const char schema[] = "{\"type\":\"record\",\"name\":\"Order\",\"fields\":["
                             "{\"name\":\"id\",\"type\":\"string\"},"
                             "{\"name\":\"at\",\"type\":{\"type\":\"long\",\"logicalType\":\"timestamp-millis\"}},"
                             "{\"name\":\"us\",\"type\":[\"null\",{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}]},"
                             "{\"name\":\"day\",\"type\":{\"type\":\"int\",\"logicalType\":\"date\"}},"
                             "{\"name\":\"express\",\"type\":\"boolean\"},"
                             "{\"name\":\"note\",\"type\":[\"null\",\"string\"],\"default\":null}]}";

static void test_a_schema_says_how_texts_are_read(void **state)
{
    const source_columns_want want = {.schema = schema, .schema_name = "Order", .key = "id"};
    row_is("id,at,us,day,express\n007,2026-03-01 08:00:35,2026-03-01T08:00:35.5+01:00,2026-03-01,yes\n", &want,
           "{\"id\":\"007\",\"at\":1772352035000,\"us\":1772348435500000,\"day\":20513,\"express\":true}");
    row_is("id,at,us,day,express,note\n7,1772352035000,,1969-12-31,FALSE,12\n", &want,
           "{\"id\":\"7\",\"at\":1772352035000,\"us\":null,\"day\":-1,\"express\":false,\"note\":\"12\"}");
    row_is("id,at,us,day,express\n7,soon,,20513,perhaps\n", &want,
           "{\"id\":\"7\",\"at\":\"soon\",\"us\":null,\"day\":20513,\"express\":\"perhaps\"}"); /* the schema refuses these two by name */
}

static void test_a_header_that_does_not_fit_is_refused_once(void **state)
{
    const source_columns_want want = {.schema = schema, .schema_name = "Order"};
    REFUSED("ID,At,us,day,express,more\n1,2,3,4,5,6\n", &want, "o.csv:1:", "schema Order", "no field `ID`, `At`, `more`",
            "no column `id`, `at`", "--plain-names");
    REFUSED("id,at,us,day\n1,2,3,4\n", &want, "there is no column `express`", "rename or remove");
    REFUSED("a,b\n1,2\n", &(source_columns_want){.key = "c"}, "no column c, which --key names");
    char *wide = pst_sprintf(
        "%s", "id,at,us,day,express,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb,"
              "ccccccccccccccccccccccccccccccccccccccccccccccccccc,d,e,f\n");
    REFUSED(wide, &want, "`cccc", ", …", "rename or remove");
    free(wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_schema_texts_say_what_they_are),
        cmocka_unit_test(test_plain_names),
        cmocka_unit_test(test_decimal_commas),
        cmocka_unit_test(test_a_schema_says_how_texts_are_read),
        cmocka_unit_test(test_a_header_that_does_not_fit_is_refused_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
