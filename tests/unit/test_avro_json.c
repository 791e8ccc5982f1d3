/* test_avro_json.c - any data ↔ plain JSON, framing, the primitives. */
#include "avro_kit.h"

#include <sys/resource.h>

static void round_trip(const char *writer, const char *value, const char *want)
{
    pst_schema *s = schema(writer);
    pst_buf b = bytes_of(s, value);
    pst_err err = {0};
    json_t *j = NULL;
    if (pst_avro_to_json(s, b.data, b.len, &j, &err) < 0)
        fail_msg("%s: %s", value, err.text);
    assert_json(j, want ? want : value);
    json_decref(j);
    pst_buf_done(&b);
    pst_schema_free(s);
}

static void test_json_round_trips(void **state)
{
    round_trip("'null'", "null", NULL);
    round_trip("'boolean'", "true", NULL);
    round_trip("'int'", "-2147483648", NULL);
    round_trip("'long'", "9223372036854775807", NULL);
    round_trip("'long'", "5.0", "5");
    round_trip("'float'", "0.1", NULL); /* shown as written */
    round_trip("'double'", "1", "1.0");
    round_trip("'double'", "'NaN'", NULL);
    round_trip("'float'", "'-Infinity'", NULL);
    round_trip("'string'", "'Grüße \\u0000 \\\\'", NULL);
    round_trip("'bytes'", "'plain text'", NULL);
    round_trip("'bytes'", "'base64:AP8='", NULL);
    round_trip("'bytes'", "'base64:cGxhaW4='", "'plain'");
    round_trip("'bytes'", "'base64:YmFzZTY0Og=='", NULL); /* the text "base64:" itself */
    round_trip("{'type':'fixed','name':'F','size':2}", "'base64:AAE='", NULL);
    round_trip("{'type':'enum','name':'E','symbols':['A','B']}", "'B'", NULL);
    round_trip("{'type':'array','items':'int'}", "[1,2,3]", NULL);
    round_trip("{'type':'map','values':['null','long']}", "{'a':1,'b':null,'':3}", NULL);
    round_trip("['null','string',{'type':'array','items':'string'}]", "['x']", NULL);
    round_trip(REC(FD("a", "'int'", "7") "," FD("b", "'bytes'", "'\\u00ff'") "," FD("c", "['null','string']", "'text'")), "{}",
               "{'a':7,'b':'base64:/w==','c':'text'}");
    /* Avro's own JSON encoding of unions is understood */
    round_trip("['null','string']", "{'string':'x'}", "'x'");
    round_trip("['null',{'type':'record','name':'n.Q','fields':[{'name':'a','type':'int'}]}]", "{'n.Q':{'a':1}}", "{'a':1}");
    round_trip("['null',{'type':'map','values':'string'}]", "{'string':'x'}", NULL); /* but a map that fits is a map */
    round_trip("['string','bytes']", "'x'", NULL);
    round_trip("['int','double']", "1.5", NULL);
    round_trip("['int','long']", "3000000000", NULL);
}

static void refuse(const char *writer, const char *value, int code, const char *says)
{
    pst_schema *s = schema(writer);
    json_t *j = json(value);
    pst_buf out = {0};
    pst_err err = {0};
    pst_buf_adds(&out, "before");
    int rc = pst_avro_from_json(s, j, &out, &err);
    if (rc != code || !strstr(err.text, says))
        fail_msg("%s: %d \"%s\"", value, rc, err.text);
    assert_string_equal(out.data, "before");
    pst_buf_done(&out);
    json_decref(j);
    pst_schema_free(s);
}

static void test_json_refused_values_say_where(void **state)
{
    refuse("'int'", "2147483648", PST_EINVAL, "does not fit int");
    refuse("'int'", "1.5", PST_EINVAL, "int is wanted, this is a number with a fraction");
    refuse("'string'", "7", PST_EINVAL, "string is wanted, this is a whole number");
    refuse(REC(F("a", "'int'")), "{}", PST_EINVAL, "R: a: is missing and has no default");
    refuse(REC(F("colour", "'int'")), "{'colour':1,'color':2}", PST_EINVAL, "did you mean \"colour\"");
    refuse(REC(F("a", "{'type':'array','items':'int'}")), "{'a':[1,'x']}", PST_EINVAL, "a[1]: int is wanted, this is text");
    refuse(REC(F("a", "['null',{'type':'record','name':'Q','fields':[{'name':'b','type':'int'}]}]")), "{'a':{'b':'x'}}", PST_EINVAL,
           "a.b: int is wanted");
    refuse("['null','int']", "'x'", PST_EINVAL, "text fits no branch");
    refuse("{'type':'enum','name':'E','symbols':['ALPHA','BETA']}", "'ALFA'", PST_EINVAL, "did you mean \"ALPHA\"");
    refuse("{'type':'fixed','name':'F','size':2}", "'abc'", PST_EINVAL, "F has 2 bytes, these are 3");
    refuse("'bytes'", "'base64:***'", PST_EINVAL, "not base64");
    refuse("'null'", "0", PST_EINVAL, "null is wanted");
}

/* Defaults that contain themselves, or double at each level: stopped, not followed. */
static void test_json_endless_defaults(void **state)
{
    refuse("{'type':'record','name':'R','fields':[{'name':'a','type':'R','default':{}}]}", "{}", PST_ELIMIT, "nested deeper");
    refuse("{'type':'record','name':'R','fields':[{'name':'a','type':'R','default':{}},{'name':'b','type':'R','default':{}}]}", "{}",
           PST_ELIMIT, "nested");
    refuse("{'type':'record','name':'R','fields':[{'name':'u','type':['null','R',{'type':'record','name':'S','fields':[{'name':'u','type':["
           "'null','R','S']}]}]}]}",
           "{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':{'u':7}"
           "}}}}}}}}}}}}}}}}}}}}}}}}",
           PST_ELIMIT, "");
}

static void unreadable(const char *writer, const char *hex_text, int code, const char *says)
{
    pst_schema *s = schema(writer);
    pst_buf b = hex(hex_text);
    void *data = exact(b.data, b.len);
    json_t *j = NULL;
    pst_err err = {0};
    int rc = pst_avro_to_json(s, data, b.len, &j, &err);
    if (rc != code || !strstr(err.text, says))
        fail_msg("%s: %d \"%s\"", hex_text, rc, err.text);
    assert_null(j);
    free(data);
    pst_buf_done(&b);
    pst_schema_free(s);
}

static void test_json_hostile_bytes(void **state)
{
    unreadable("'int'", "", PST_EPARSE, "ends");
    unreadable("'int'", "02 02", PST_EPARSE, "too many");
    unreadable(REC(F("a", "{'type':'map','values':'string'}")), "02 02 61 04 62", PST_EPARSE, "R: a: a length of 2");
    unreadable("{'type':'array','items':'null'}", "80c3ce1c 00", PST_ELIMIT, "1000000");
    unreadable("{'type':'enum','name':'E','symbols':['A']}", "c601", PST_EPARSE, "symbol 99 of 1");
    unreadable("['null']", "02", PST_EPARSE, "branch 1 of 1");
    unreadable("{'type':'fixed','name':'F','size':1000000}", "00", PST_EPARSE, "1000000 bytes are wanted");
    unreadable("{'type':'array','items':{'type':'fixed','name':'F','size':0}}", "80c3ce1c 00", PST_ELIMIT, "1000000");
    /* 2^40 values in no bytes: records of records */
    pst_buf b = {0};
    for (int i = 0; i < 20; i++)
        pst_buf_printf(&b, "{'type':'record','name':'R%d','fields':[{'name':'a','type':", i);
    pst_buf_adds(&b, "'null'");
    for (int i = 19; i >= 0; i--)
        if (i == 19)
            pst_buf_adds(&b, "},{'name':'b','type':'null'},{'name':'c','type':'null'},{'name':'d','type':'null'}]}");
        else
            pst_buf_printf(&b, "},{'name':'b','type':'R%d'},{'name':'c','type':'R%d'},{'name':'d','type':'R%d'}]}", i + 1, i + 1, i + 1);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    unreadable(b.data, "", PST_ELIMIT, "memory");
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 24 << 10); /* KiB; the sanitizers' own included */
    pst_buf_done(&b);
}

/* What a service that reads anybody's records allows is less than what honest data may need. */
static void test_json_within_bounds(void **state)
{
    pst_schema *s = schema("{'type':'array','items':" REC(F("a", "'int'")) "}");
    pst_buf b = {0};
    pst_avro_put_long(&b, 100000);
    for (int i = 0; i < 100001; i++)
        pst_buf_addc(&b, 0);
    json_t *j = NULL;
    pst_err err = {0};
    assert_int_equal(pst_avro_to_json(s, b.data, b.len, &j, &err), 0);
    assert_int_equal(json_array_size(j), 100000);
    json_decref(j);
    j = NULL;
    assert_int_equal(pst_avro_to_json_within(s, b.data, b.len, 8 << 20, &j, &err), PST_ELIMIT);
    assert_null(j);
    pst_buf_done(&b);
    pst_schema_free(s);
    s = schema("'string'"); /* a text of the largest record is no problem */
    pst_avro_put_long(&b, 950000);
    for (int i = 0; i < 950000; i++)
        pst_buf_addc(&b, '\n');
    pst_err_clear(&err);
    assert_int_equal(pst_avro_to_json_within(s, b.data, b.len, 8 << 20, &j, &err), 0);
    assert_int_equal(json_string_length(j), 950000);
    json_decref(j);
    pst_buf_done(&b);
    pst_schema_free(s);
}

static void test_json_text_that_is_not_utf8(void **state)
{
    pst_schema *s = schema("'string'");
    json_t *j = NULL;
    assert_int_equal(pst_avro_to_json(s,
                                      "\x06"
                                      "a\xff"
                                      "b",
                                      4, &j, NULL),
                     0);
    assert_string_equal(json_string_value(j), "a\xef\xbf\xbd"
                                              "b");
    json_decref(j);
    pst_schema_free(s);
}

static void test_frame(void **state)
{
    pst_buf b = {0};
    int32_t id = 0;
    pst_slice body;
    pst_err err = {0};
    pst_frame_put(&b, 0x01020304);
    pst_buf_adds(&b, "xy");
    assert_memory_equal(b.data, "\0\1\2\3\4xy", 7);
    assert_int_equal(pst_frame_get(b.data, b.len, &id, &body, &err), 0);
    assert_int_equal(id, 0x01020304);
    assert_int_equal(body.len, 2);
    assert_int_equal(pst_frame_get(b.data, 5, &id, &body, &err), 0);
    assert_int_equal(body.len, 0);
    static const struct {
        const char *data;
        size_t len;
    } bad[] = {{"\0\0\0\0", 4}, {"", 0}, {"{}", 2}, {"\1\0\0\0\1x", 6}, {NULL, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (pst_err){0};
        assert_int_equal(pst_frame_get(bad[i].data, bad[i].len, &id, &body, &err), PST_EPARSE);
        assert_int_equal(err.cls, PST_CLASS_DATA);
        assert_non_null(strstr(err.text, "bad envelope"));
    }
    pst_buf_done(&b);
}

static void test_put_long(void **state)
{
    static const struct {
        int64_t v;
        const char *hex;
    } cases[] = {{0, "00"},
                 {-1, "01"},
                 {1, "02"},
                 {-64, "7f"},
                 {64, "8001"},
                 {INT64_MAX, "feffffffffffffffff01"},
                 {INT64_MIN, "ffffffffffffffffff01"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_buf b = {0}, want = hex(cases[i].hex);
        pst_avro_put_long(&b, cases[i].v);
        assert_int_equal(b.len, want.len);
        assert_memory_equal(b.data, want.data, b.len);
        pst_buf_done(&b);
        pst_buf_done(&want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_round_trips),
        cmocka_unit_test(test_json_refused_values_say_where),
        cmocka_unit_test(test_json_endless_defaults),
        cmocka_unit_test(test_json_hostile_bytes),
        cmocka_unit_test(test_json_within_bounds),
        cmocka_unit_test(test_json_text_that_is_not_utf8),
        cmocka_unit_test(test_frame),
        cmocka_unit_test(test_put_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
