/* test_avro_rows.c - rows of floats, of numbers that may be null, and of array items, which are decoded at once: beside the walker that makes JSON of any value
 * one field at a time, on random records, each of them also cut off everywhere and changed everywhere. And numbers of any length, written and read. */
#include "avro_kit.h"

#include <math.h>

enum { FIELDS = 11, ITEMS = 5, SLOTS = FIELDS - 1 + ITEMS, RECORDS = 300 };

/* Rows of two to four, broken by a field that nobody wants, by another order of the branches, by another width. */
static const char *const types[FIELDS] = {
    "'float'",          "'float'",           "'float'",           "['null','float']",  "['null','float']",
    "['float','null']", "['null','double']", "['null','double']", "['double','null']", "{'type':'array','items':'float'}",
    "'float'"};

static pst_schema *rows_schema(void)
{
    pst_buf text = {0};
    pst_buf_adds(&text, "{'type':'record','name':'R','fields':[{'name':'id','type':'long'}");
    for (int i = 0; i < FIELDS; i++)
        pst_buf_printf(&text, ",%s{'name':'f%d','type':%s}", i == 5 ? "{'name':'between','type':['null','int']}," : "", i, types[i]);
    pst_buf_adds(&text, "]}");
    pst_schema *s = schema(text.data);
    pst_buf_done(&text);
    return s;
}

static pst_columns *rows_columns(const pst_schema *s)
{
    static char names[FIELDS][4];
    pst_want wants[FIELDS];
    pst_columns *c = NULL;
    pst_err err = {0};
    for (int i = 0; i < FIELDS; i++) {
        snprintf(names[i], sizeof names[i], "f%d", i);
        wants[i] = (pst_want){names[i], PST_WANT_NUMBER, i == FIELDS - 2 ? ITEMS : 1};
    }
    if (pst_columns_new(s, wants, FIELDS, &c, &err) < 0)
        fail_msg("%s", err.text);
    return c;
}

static void put_number(pst_buf *b, bool wide, int v)
{
    if (wide)
        pst_avro_put_double(b, v / 4.0);
    else
        pst_avro_put_float(b, (float)v / 4);
}

static void put_record(pst_buf *b, unsigned *seed)
{
    pst_avro_put_long(b, rand_r(seed) - (1 << 20));
    for (int i = 0; i < FIELDS; i++) {
        const char *t = types[i];
        bool wide = strstr(t, "double"), null_first = t[1] == '\'' && t[2] == 'n';
        if (i == 5)
            pst_avro_put_long(b, 0);
        if (t[0] == '{') {
            pst_avro_put_long(b, 2);
            put_number(b, false, rand_r(seed) % 1000);
            put_number(b, false, rand_r(seed) % 1000);
            pst_avro_put_long(b, ITEMS - 2);
            for (int k = 2; k < ITEMS; k++)
                put_number(b, false, rand_r(seed) % 1000);
            pst_avro_put_long(b, 0);
            continue;
        }
        bool null = t[0] == '[' && rand_r(seed) % 3 == 0;
        if (t[0] == '[')
            pst_avro_put_long(b, null == null_first ? 0 : 1);
        if (!null)
            put_number(b, wide, rand_r(seed) % 1000);
    }
}

static double number_of(const json_t *v)
{
    return json_is_object(v) ? json_number_value(json_object_iter_value(json_object_iter((json_t *)v))) : json_number_value(v);
}

static void same_as_json(const json_t *j, const double *numbers, const uint8_t *missing)
{
    for (int i = 0; i < FIELDS; i++) {
        char name[8];
        snprintf(name, sizeof name, "f%d", i);
        const json_t *v = json_object_get(j, name);
        const double *at = numbers + i + (i > FIELDS - 2 ? ITEMS - 1 : 0);
        assert_int_equal(missing[i], json_is_null(v));
        if (json_is_array(v))
            for (size_t k = 0; k < ITEMS; k++)
                assert_true(at[k] == json_number_value(json_array_get(v, k)));
        else if (!json_is_null(v))
            assert_true(at[0] == number_of(v));
    }
}

/* Both take the bytes, or neither does. What they make of numbers that were changed is no JSON. */
static bool taken_alike(const pst_schema *s, const pst_columns *c, const void *data, size_t len)
{
    double numbers[SLOTS];
    uint8_t missing[FIELDS];
    json_t *j = NULL;
    int rows = pst_columns_run(c, data, len, numbers, missing, NULL, NULL), walker = pst_avro_to_json(s, data, len, &j, NULL);
    bool items = json_array_size(json_object_get(j, "f9")) == ITEMS; /* the walker takes any number of them */
    json_decref(j);
    if ((rows == 0) != (walker == 0 && items))
        fail_msg("rows %d, walker %d, %zu bytes", rows, walker, len);
    return rows == 0;
}

static void test_rows_are_what_the_walker_says(void **state)
{
    pst_schema *s = rows_schema();
    pst_columns *c = rows_columns(s);
    unsigned seed = 7;
    size_t taken = 0;
    for (int n = 0; n < RECORDS; n++) {
        pst_buf b = {0};
        put_record(&b, &seed);
        double numbers[SLOTS];
        uint8_t missing[FIELDS];
        json_t *j = NULL;
        void *data = exact(b.data, b.len);
        pst_err err = {0};
        if (pst_columns_run(c, data, b.len, numbers, missing, NULL, &err) < 0 || pst_avro_to_json(s, data, b.len, &j, &err) < 0)
            fail_msg("record %d: %s", n, err.text);
        same_as_json(j, numbers, missing);
        json_decref(j);
        free(data);
        for (size_t len = 0; len < b.len; len++) {
            data = exact(b.data, len);
            assert_false(taken_alike(s, c, data, len));
            free(data);
        }
        for (size_t i = 0; i < b.len; i++) {
            uint8_t *changed = exact(b.data, b.len);
            changed[i] ^= (uint8_t)(1 + rand_r(&seed) % 255);
            taken += taken_alike(s, c, changed, b.len);
            free(changed);
        }
        pst_buf_done(&b);
    }
    assert_true(taken > RECORDS); /* many changes are just other numbers */
    pst_columns_free(c);
    pst_schema_free(s);
}

/* One row does the work of several fields, and the error names the one that is bad. */
static void test_rows_name_the_field_that_is_bad(void **state)
{
    pst_schema *s = schema(REC(F("a", "'float'") "," F("b", "'float'") "," F("c", "['null','double']") "," F("d", "['null','double']")));
    static const pst_want wants[] = {
        {"a", PST_WANT_NUMBER, 1}, {"b", PST_WANT_NUMBER, 1}, {"c", PST_WANT_NUMBER, 1}, {"d", PST_WANT_NUMBER, 1}};
    static const struct {
        const char *bytes, *says;
    } cases[] = {{"0000803f 0000", "b: 4 bytes are wanted, 2 are left"},
                 {"0000803f 0000803f 02 000000000000f03f 04", "d: branch 2 of 2"},
                 {"0000803f 0000803f 00 02 0000", "d: 8 bytes are wanted, 2 are left"},
                 {"0000803f 0000803f 00", "d: the data ends inside a number"},
                 {"0000803f 0000803f 00 00 00", "1 bytes too many"}};
    pst_columns *c = NULL;
    assert_int_equal(pst_columns_new(s, wants, 4, &c, NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_buf b = hex(cases[i].bytes);
        double numbers[4];
        uint8_t missing[4];
        pst_err err = {0};
        assert_true(pst_columns_run(c, b.data, b.len, numbers, missing, NULL, &err) < 0);
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s", err.text);
        pst_buf_done(&b);
    }
    /* A branch may be written in more bytes than it needs. */
    pst_buf b = hex("0000803f 0000803f 8200 000000000000f03f 8000");
    double numbers[4];
    uint8_t missing[4];
    assert_int_equal(pst_columns_run(c, b.data, b.len, numbers, missing, NULL, NULL), 0);
    assert_true(numbers[2] == 1 && !missing[2] && missing[3]);
    pst_buf_done(&b);
    pst_columns_free(c);
    pst_schema_free(s);
}

/* As the specification describes it: zigzag, then seven bits at a time. */
static size_t by_the_book(uint8_t *to, int64_t v)
{
    uint64_t z = v < 0 ? ~(uint64_t)v * 2 + 1 : (uint64_t)v * 2;
    size_t n = 0;
    for (; z >= 128; z /= 128)
        to[n++] = (uint8_t)(z % 128 + 128);
    to[n++] = (uint8_t)z;
    return n;
}

static void test_longs_of_every_length(void **state)
{
    pst_schema *s = schema(REC(F("n", "'long'") "," F("rest", "'bytes'")));
    static const pst_want wants[] = {{"n", PST_WANT_NUMBER, 1}};
    pst_columns *c = NULL;
    unsigned seed = 3;
    assert_int_equal(pst_columns_new(s, wants, 1, &c, NULL), 0);
    for (int bits = 0; bits <= 63; bits++)
        for (int k = 0; k < 200; k++) {
            uint64_t wild = (uint64_t)rand_r(&seed) << 42 ^ (uint64_t)rand_r(&seed) << 21 ^ (uint64_t)rand_r(&seed);
            int64_t v = (int64_t)((k < 2 ? UINT64_MAX : wild) >> (63 - bits) >> 1);
            v = k % 2 ? -v - 1 : v;
            uint8_t want[16];
            size_t n = by_the_book(want, v);
            pst_buf b = {0};
            pst_avro_put_long(&b, v);
            assert_int_equal(b.len, n);
            assert_memory_equal(b.data, want, n);
            for (int rest = 0; rest < 12; rest++) { /* read with and without room for eight bytes */
                pst_buf whole = {0};
                double number;
                uint8_t missing;
                pst_buf_add(&whole, b.data, b.len);
                pst_avro_put_bytes(&whole, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", (size_t)rest);
                void *data = exact(whole.data, whole.len);
                assert_int_equal(pst_columns_run(c, data, whole.len, &number, &missing, NULL, NULL), 0);
                assert_true(number == (double)v && !missing);
                free(data);
                pst_buf_done(&whole);
            }
            pst_buf_done(&b);
        }
    pst_columns_free(c);
    pst_schema_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_what_the_walker_says),
        cmocka_unit_test(test_rows_name_the_field_that_is_bad),
        cmocka_unit_test(test_longs_of_every_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
