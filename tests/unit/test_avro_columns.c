/* test_avro_columns.c - user records into numbers, texts and raw spans: paths, nulls, arrays, skipping, errors, hostile bytes. */
#include "avro_kit.h"

#include <math.h>

#define HOST_SCHEMA                                                                                                                     \
    "{'type':'record','name':'Host','namespace':'u','fields':["                                                                         \
    "{'name':'host','type':'string'},"                                                                                                  \
    "{'name':'cpu','type':{'type':'record','name':'Cpu','fields':[{'name':'user','type':'double'},{'name':'system','type':'double'},"   \
    "{'name':'load','type':['null','float']}]}},"                                                                                       \
    "{'name':'n','type':'int'},{'name':'big','type':'long'},{'name':'on','type':'boolean'},"                                            \
    "{'name':'disk','type':['null',{'type':'record','name':'Disk','fields':[{'name':'reads','type':'double'},{'name':'label','type':['" \
    "string','null']}]}]},"                                                                                                             \
    "{'name':'v','type':{'type':'array','items':'float'}},"                                                                             \
    "{'name':'kind','type':{'type':'enum','name':'Kind','symbols':['VM','METAL']}},"                                                    \
    "{'name':'id','type':{'type':'fixed','name':'Id','size':4}},"                                                                       \
    "{'name':'tags','type':{'type':'map','values':'string'}}]}"
#define HOST_VALUE                                                                                                                         \
    "{'host':'h1','cpu':{'user':0.5,'system':0.25,'load':2},'n':-7,'big':1099511627776,'on':true,'disk':{'reads':9,'label':'sda'},'v':[1," \
    "2,3],"                                                                                                                                \
    "'kind':'METAL','id':'abcd','tags':{'a':'b'}}"

typedef struct {
    double numbers[16];
    uint8_t missing[16];
    pst_slice texts[16];
} row;

static pst_columns *columns(const pst_schema *s, const pst_want *wants, size_t n)
{
    pst_columns *c = NULL;
    pst_err err = {0};
    if (pst_columns_new(s, wants, n, &c, &err) < 0)
        fail_msg("%s", err.text);
    return c;
}

static void fill(const char *writer, const char *value, const pst_want *wants, size_t n, row *r, pst_columns **ret_c, pst_buf *ret_bytes)
{
    pst_schema *s = schema(writer);
    pst_err err = {0};
    *ret_bytes = bytes_of(s, value);
    *ret_c = columns(s, wants, n);
    pst_schema_free(s); /* the plan stands alone */
    memset(r, 0x77, sizeof *r);
    if (pst_columns_run(*ret_c, ret_bytes->data, ret_bytes->len, r->numbers, r->missing, r->texts, &err) < 0)
        fail_msg("%s", err.text);
}

static void assert_text(pst_slice s, const char *want)
{
    if (s.len != strlen(want) || memcmp(s.data, want, s.len))
        fail_msg("got %.*s, want %s", (int)s.len, (const char *)s.data, want);
}

static void test_columns_everything(void **state)
{
    static const pst_want wants[] = {
        {"cpu.user", PST_WANT_NUMBER, 1}, {"cpu.system", PST_WANT_NUMBER, 1}, {"cpu.load", PST_WANT_NUMBER, 1},   {"n", PST_WANT_NUMBER, 1},
        {"big", PST_WANT_NUMBER, 1},      {"on", PST_WANT_NUMBER, 1},         {"disk.reads", PST_WANT_NUMBER, 1}, {"v", PST_WANT_NUMBER, 3},
        {"host", PST_WANT_TEXT, 0},       {"disk.label", PST_WANT_TEXT, 0},   {"kind", PST_WANT_TEXT, 0},         {"id", PST_WANT_TEXT, 0}};
    static const double want[] = {0.5, 0.25, 2, -7, 1099511627776.0, 1, 9, 1, 2, 3};
    row r;
    pst_columns *c;
    pst_buf b;
    fill(HOST_SCHEMA, HOST_VALUE, wants, 12, &r, &c, &b);
    for (size_t i = 0; i < 10; i++)
        assert_true(r.numbers[i] == want[i]);
    for (size_t i = 0; i < 12; i++) {
        assert_int_equal(r.missing[i], 0);
        assert_false(pst_columns_absent(c, i));
    }
    assert_text(r.texts[8], "h1");
    assert_text(r.texts[9], "sda");
    assert_text(r.texts[10], "METAL");
    assert_text(r.texts[11], "abcd");
    char *ops = pst_columns_explain(c);
    assert_non_null(strstr(ops, "COL_DOUBLES  a=0 b=0 c=0 n=2")); /* neighbours melt */
    free(ops);
    pst_columns_free(c);
    pst_buf_done(&b);
}

static void test_columns_missing(void **state)
{
    static const pst_want wants[] = {{"cpu.load", PST_WANT_NUMBER, 1}, {"disk.reads", PST_WANT_NUMBER, 1}, {"disk.label", PST_WANT_TEXT, 0},
                                     {"nowhere", PST_WANT_NUMBER, 1},  {"cpu.nowhere", PST_WANT_TEXT, 0},  {"disk.label", PST_WANT_RAW, 0},
                                     {"n", PST_WANT_NUMBER, 1}};
    row r;
    pst_columns *c;
    pst_buf b;
    fill(HOST_SCHEMA,
         "{'host':'h','cpu':{'user':1,'system':1,'load':null},'n':3,'big':0,'on':false,'disk':null,'v':[],'kind':'VM','id':'abcd','tags':{}"
         "}",
         wants, 7, &r, &c, &b);
    static const uint8_t missing[] = {1, 1, 1, 1, 1, 1, 0};
    assert_memory_equal(r.missing, missing, sizeof missing);
    assert_true(r.numbers[3] == 3); /* the slots: cpu.load, disk.reads, nowhere, n */
    row untouched;
    memset(&untouched, 0x77, sizeof untouched);
    assert_memory_equal(r.numbers, untouched.numbers, 3 * sizeof(double));
    assert_null(r.texts[2].data);
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(pst_columns_absent(c, i), i == 3 || i == 4);
    pst_columns_free(c);
    pst_buf_done(&b);
}

static void test_columns_raw_spans_with_their_schema(void **state)
{
    static const pst_want wants[] = {{"cpu", PST_WANT_RAW, 0},   {"cpu.user", PST_WANT_NUMBER, 1}, {"disk", PST_WANT_RAW, 0},
                                     {"tags", PST_WANT_RAW, 0},  {"disk.label", PST_WANT_RAW, 0},  {"host", PST_WANT_RAW, 0},
                                     {"host", PST_WANT_TEXT, 0}, {"host", PST_WANT_TEXT, 0}};
    row r;
    pst_columns *c;
    pst_buf b;
    fill(HOST_SCHEMA, HOST_VALUE, wants, 8, &r, &c, &b);
    static const struct {
        size_t want;
        const char *json;
    } cases[] = {
        {0, "{'user':0.5,'system':0.25,'load':2.0}"}, {2, "{'reads':9.0,'label':'sda'}"}, {3, "{'a':'b'}"}, {4, "'sda'"}, {5, "'h1'"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_schema *s = NULL;
        pst_err err = {0};
        json_t *j = NULL;
        const char *text = pst_columns_schema(c, cases[i].want);
        pst_slice raw = r.texts[cases[i].want];
        if (pst_schema_parse(text, strlen(text), &s, &err) < 0 || pst_avro_to_json(s, raw.data, raw.len, &j, &err) < 0)
            fail_msg("%s: %s", text, err.text);
        assert_json(j, cases[i].json);
        json_decref(j);
        pst_schema_free(s);
    }
    assert_true(r.numbers[0] == 0.5);
    assert_text(r.texts[6], "h1");
    assert_text(r.texts[7], "h1");
    assert_non_null(strstr(pst_columns_schema(c, 0), "\"namespace\":\"u\""));
    assert_null(pst_columns_schema(c, 1));
    pst_columns_free(c);
    pst_buf_done(&b);
}

/* A nullable field whose value is null is passed through as it is encoded. */
static void test_columns_raw_null_is_a_value(void **state)
{
    static const pst_want wants[] = {{"disk", PST_WANT_RAW, 0}};
    row r;
    pst_columns *c;
    pst_buf b;
    fill(REC(F("disk", "['null','string']")), "{'disk':null}", wants, 1, &r, &c, &b);
    assert_int_equal(r.missing[0], 0);
    assert_int_equal(r.texts[0].len, 1);
    pst_columns_free(c);
    pst_buf_done(&b);
}

static void test_columns_unions_of_several_records(void **state)
{
    static const char *const writer =
        "['null',{'type':'record','name':'A','fields':[{'name':'x','type':'int'},{'name':'only','type':'string'}]},"
        "{'type':'record','name':'B','fields':[{'name':'y','type':'int'},{'name':'x','type':['null','int','double','float']}]}]";
    static const pst_want wants[] = {{"x", PST_WANT_NUMBER, 1}, {"only", PST_WANT_TEXT, 0}};
    pst_schema *s = schema(writer);
    pst_columns *c = columns(s, wants, 2);
    row r;
    static const struct {
        const char *hex;
        double x;
        bool x_missing, only_missing;
    } cases[] = {{"00", 0, true, true},
                 {"02 06 02 71", 3, false, false},
                 {"04 02 02 0a", 5, false, true},
                 {"04 02 00", 0, true, true},
                 {"04 02 06 0000003f", 0.5, false, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_buf b = hex(cases[i].hex);
        pst_err err = {0};
        if (pst_columns_run(c, b.data, b.len, r.numbers, r.missing, r.texts, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(r.missing[0], cases[i].x_missing);
        assert_int_equal(r.missing[1], cases[i].only_missing);
        assert_true(cases[i].x_missing || r.numbers[0] == cases[i].x);
        pst_buf_done(&b);
    }
    pst_columns_free(c);
    pst_schema_free(s);
}

static void test_columns_renamed_field_is_found_by_its_alias(void **state)
{
    static const pst_want wants[] = {{"old.user", PST_WANT_NUMBER, 1}};
    row r;
    pst_columns *c;
    pst_buf b;
    fill("{'type':'record','name':'R','fields':[{'name':'new','aliases':['old'],'type':{'type':'record','name':'S','fields':[{'name':'user'"
         ",'type':'int'}]}}]}",
         "{'new':{'user':4}}", wants, 1, &r, &c, &b);
    assert_true(r.numbers[0] == 4);
    pst_columns_free(c);
    pst_buf_done(&b);
}

static void test_columns_refused_types_say_path_and_types(void **state)
{
    static const struct {
        pst_want want;
        const char *says;
    } cases[] = {{{"cpu", PST_WANT_NUMBER, 1}, "field cpu: a number is wanted, but its type is {\"type\":\"record\""},
                 {{"host", PST_WANT_NUMBER, 1}, "field host: a number is wanted, but its type is \"string\""},
                 {{"n", PST_WANT_NUMBER, 3}, "in several slots"},
                 {{"n", PST_WANT_TEXT, 0}, "field n: text is wanted"},
                 {{"tags", PST_WANT_TEXT, 0}, "field tags: text is wanted"},
                 {{"tags", PST_WANT_NUMBER, 1}, "field tags: a number is wanted"},
                 {{"host.x", PST_WANT_NUMBER, 1}, "field host.x: host is string, which has no fields"},
                 {{"disk.label", PST_WANT_NUMBER, 1}, "field disk.label"},
                 {{"n", PST_WANT_NUMBER, 0}, "slots"}};
    pst_schema *s = schema(HOST_SCHEMA);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_columns *c = NULL;
        pst_err err = {0};
        int rc = pst_columns_new(s, &cases[i].want, 1, &c, &err);
        if (rc >= 0 || !strstr(err.text, cases[i].says))
            fail_msg("%s: %d \"%s\"", cases[i].want.path, rc, err.text);
        assert_int_equal(rc, cases[i].want.slots || cases[i].want.kind ? PST_EINCOMPAT : PST_EINVAL);
    }
    pst_schema_free(s);
    s = schema("'string'");
    pst_columns *c = NULL;
    pst_err err = {0};
    assert_int_equal(pst_columns_new(s, &cases[0].want, 1, &c, &err), PST_EINCOMPAT);
    pst_schema_free(s);
}

static void check_run(const char *writer, const pst_want *want, const char *hex_text, int code, const char *says)
{
    pst_schema *s = schema(writer);
    pst_columns *c = columns(s, want, 1);
    pst_buf b = hex(hex_text);
    void *data = exact(b.data, b.len);
    row r;
    pst_err err = {0};
    int rc = pst_columns_run(c, data, b.len, r.numbers, r.missing, r.texts, &err);
    if (rc != code || (says && !strstr(err.text, says)))
        fail_msg("%s on %s: %d \"%s\"", hex_text, writer, rc, err.text);
    free(data);
    pst_buf_done(&b);
    pst_columns_free(c);
    pst_schema_free(s);
}

static void test_columns_bad_records(void **state)
{
    static const pst_want a3 = {"v", PST_WANT_NUMBER, 3}, a = {"a", PST_WANT_NUMBER, 1}, t = {"a", PST_WANT_TEXT, 0};
    static const char *const array = REC(F("v", "{'type':'array','items':'int'}"));
    check_run(array, &a3, "06 02 04 06 00", 0, NULL);
    check_run(array, &a3, "02 02 04 04 06 00", 0, NULL);
    check_run(array, &a3, "05 06 02 04 06 00", 0, NULL);
    check_run(array, &a3, "04 02 04 00", PST_EINVAL, "v: the array has 2 numbers, 3 are wanted");
    check_run(array, &a3, "00", PST_EINVAL, "has 0 numbers");
    check_run(array, &a3, "08 02 04 06 08 00", PST_EINVAL, "more than the 3");
    check_run(array, &a3, "feffffffffffffffff01", PST_ELIMIT, NULL);
    check_run(REC(F("a", "'int'") "," F("b", "'string'")), &a, "02 04 61", PST_EPARSE, "R.b"); /* cut behind what is wanted */
    check_run(REC(F("a", "'int'") "," F("b", "'string'")), &a, "02 02 61", 0, NULL);
    check_run(REC(F("a", "'int'")), &a, "02 00", PST_EPARSE, "too many");
    check_run(REC(F("a", "'int'")), &a, "", PST_EPARSE, "R.a");
    check_run(REC(F("a", "['null','string','int']")), &a, "02 02 61", PST_EINCOMPAT,
              "R.a: a number is wanted here, this record has string");
    check_run(REC(F("a", "{'type':'enum','name':'E','symbols':['A','B']}")), &t, "c601", PST_EPARSE, "symbol 99 of 2");
    check_run(REC(F("a", "{'type':'array','items':['null','int']}")), &a, "02 02 04 00", 0, NULL);
    check_run(REC(F("x", "{'type':'array','items':'null'}") "," F("a", "'int'")), &a, "80c3ce1c 00 02", PST_ELIMIT, "1000000");
}

static void test_columns_null_inside_an_array_is_nan_in_its_slot(void **state)
{
    static const pst_want want = {"v", PST_WANT_NUMBER, 2};
    row r;
    pst_columns *c;
    pst_buf b;
    fill(REC(F("v", "{'type':'array','items':['null','double']}")), "{'v':[1,null]}", &want, 1, &r, &c, &b);
    assert_int_equal(r.missing[0], 0);
    assert_true(r.numbers[0] == 1);
    assert_true(isnan(r.numbers[1]));
    pst_columns_free(c);
    pst_buf_done(&b);
}

static void test_columns_decimals_are_numbers(void **state)
{
    static const char writer[] =
        "{'type':'record','name':'D','fields':["
        "{'name':'b','type':{'type':'bytes','logicalType':'decimal','precision':30,'scale':2}},"
        "{'name':'f','type':['null',{'type':'fixed','name':'F','size':5,'logicalType':'decimal','precision':9,'scale':3}]},"
        "{'name':'a','type':{'type':'array','items':{'type':'bytes','logicalType':'decimal','precision':4}}},"
        "{'name':'odd','type':{'type':'bytes','logicalType':'decimal','precision':2,'scale':5}}]}";
    static const pst_want wants[] = {{"b", PST_WANT_NUMBER, 1}, {"f", PST_WANT_NUMBER, 1}, {"a", PST_WANT_NUMBER, 2}};
    static const struct {
        const char bytes[48];
        size_t len;
        double b, f, a0, a1;
    } cases[] = {
        {"\4\4\xd2\2\xff\xff\xff\xfb\x2e\4\2\7\4\xff\0\0\0", 17, 12.34, -1.234, 7, -256}, /* 1234; -1234; 7, -256 */
        {"\0\2\0\0\0\0\0\4\0\2\x80\0\0", 13, 0, 0, 0, -128},                              /* no bytes at all: 0 */
        {"\x12\xff\0\0\0\0\0\0\0\0\2\x7f\xff\xff\xff\xff\4\0\0\0\0", 21, -184467440737095516.16, 549755813.887, 0, 0},
    };
    pst_schema *s = schema(writer);
    pst_columns *c = columns(s, wants, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        row r;
        pst_err err = {0};
        if (pst_columns_run(c, cases[i].bytes, cases[i].len, r.numbers, r.missing, r.texts, &err) < 0)
            fail_msg("case %zu: %s", i, err.text);
        const double want[] = {cases[i].b, cases[i].f, cases[i].a0, cases[i].a1};
        for (size_t k = 0; k < 4; k++)
            if (r.numbers[k] != want[k])
                fail_msg("case %zu number %zu: %.17g, not %.17g", i, k, r.numbers[k], want[k]);
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(r.missing[k], 0);
    }
    pst_columns_free(c);
    pst_err err = {0}; /* a scale beyond the precision is no decimal, says the specification */
    assert_int_equal(pst_columns_new(s, &(pst_want){"odd", PST_WANT_NUMBER, 1}, 1, &c, &err), PST_EINCOMPAT);
    pst_schema_free(s);
}

static void test_columns_keys_of_maps(void **state)
{
    static const char writer[] =
        "{'type':'record','name':'M','fields':[{'name':'m','type':['null',{'type':'map','values':['null','double','int']}]},"
        "{'name':'t','type':{'type':'map','values':'string'}},"
        "{'name':'r','type':{'type':'map','values':{'type':'record','name':'R','fields':[{'name':'x','type':'double'},{'name':'s','type':'"
        "string'}]}}},"
        "{'name':'mm','type':{'type':'map','values':{'type':'map','values':'long'}}}]}";
    static const char value[] = "{'m':{'other':5,'a':1.5,'b.c':7,'n':null},'t':{'rack':'r7','':'empty'},"
                                "'r':{'k':{'x':2.5,'s':'in'},'l':{'x':9,'s':'out'}},'mm':{'p':{'q':11,'z':1}}}";
    static const pst_want wants[] = {{"m.a", PST_WANT_NUMBER, 1},    {"m.b.c", PST_WANT_NUMBER, 1}, {"m.n", PST_WANT_NUMBER, 1},
                                     {"m.no", PST_WANT_NUMBER, 1},   {"r.k.x", PST_WANT_NUMBER, 1}, {"r.l.x", PST_WANT_NUMBER, 1},
                                     {"mm.p.q", PST_WANT_NUMBER, 1}, {"m.a", PST_WANT_NUMBER, 1},   {"t.rack", PST_WANT_TEXT, 0},
                                     {"r.k.s", PST_WANT_TEXT, 0},    {"t.none", PST_WANT_TEXT, 0},  {"r.k", PST_WANT_RAW, 0},
                                     {"t.rack", PST_WANT_RAW, 0}};
    static const double want[] = {1.5, 7, 0, 0, 2.5, 9, 11, 1.5};
    static const uint8_t missing[] = {0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0};
    row r;
    pst_columns *c;
    pst_buf b;
    fill(writer, value, wants, 13, &r, &c, &b);
    for (size_t i = 0; i < 13; i++)
        if (r.missing[i] != missing[i])
            fail_msg("want %zu (%s): missing %d", i, wants[i].path, r.missing[i]);
    for (size_t i = 0; i < 8; i++)
        if (!missing[i])
            assert_true(r.numbers[i] == want[i]);
    assert_text(r.texts[8], "r7");
    assert_text(r.texts[9], "in");
    assert_int_equal(r.texts[11].len, 8 + 1 + 2);
    assert_int_equal(r.texts[12].len, 1 + 2);
    char *text = pst_columns_explain(c);
    assert_non_null(strstr(text, "rack at "));
    free(text);
    pst_columns_free(c);
    pst_buf_done(&b);
    pst_schema *s = schema(writer);
    pst_err err = {0};
    assert_int_equal(pst_columns_new(s, &(pst_want){"t.rack", PST_WANT_NUMBER, 1}, 1, &c, &err), PST_EINCOMPAT);
    assert_non_null(strstr(err.text, "a number is wanted"));
    err = (pst_err){0};
    assert_int_equal(pst_columns_new(s, &(pst_want){"t", PST_WANT_NUMBER, 1}, 1, &c, &err), PST_EINCOMPAT);
    pst_schema_free(s);
}

static void test_columns_truncated_and_changed(void **state)
{
    static const pst_want wants[] = {{"cpu.user", PST_WANT_NUMBER, 1}, {"disk.label", PST_WANT_TEXT, 0}, {"v", PST_WANT_NUMBER, 3},
                                     {"cpu", PST_WANT_RAW, 0},         {"kind", PST_WANT_TEXT, 0},       {"tags", PST_WANT_RAW, 0}};
    pst_schema *s = schema(HOST_SCHEMA);
    pst_columns *c = columns(s, wants, 6);
    pst_buf b = bytes_of(s, HOST_VALUE);
    row r;
    for (size_t len = 0; len < b.len; len++) {
        void *data = exact(b.data, len);
        assert_true(pst_columns_run(c, data, len, r.numbers, r.missing, r.texts, NULL) < 0);
        free(data);
    }
    for (size_t i = 0; i < b.len; i++)
        for (int v = 0; v < 256; v++) {
            uint8_t *data = exact(b.data, b.len);
            data[i] = (uint8_t)v;
            if (pst_columns_run(c, data, b.len, r.numbers, r.missing, r.texts, NULL) == 0)
                for (size_t k = 0; k < 6; k++) {
                    const uint8_t *p = r.texts[k].data;
                    bool symbol = wants[k].path[0] == 'k'; /* lies in the plan, the others in the record */
                    assert_true(!p || symbol || (p >= data && p + r.texts[k].len <= data + b.len));
                }
            free(data);
        }
    pst_columns_free(c);
    pst_buf_done(&b);
    pst_schema_free(s);
}

/* 1000 features of 1000 fields, in another order: compiles at once and fills all. */
static void test_columns_many(void **state)
{
    enum { N = 1000 };
    pst_buf text = {0}, data = {0};
    static pst_want wants[N];
    static double numbers[N];
    static uint8_t missing[N];
    pst_buf_adds(&text, "{\"type\":\"record\",\"name\":\"Wide\",\"fields\":[");
    for (int i = 0; i < N; i++) {
        pst_buf_printf(&text, "%s{\"name\":\"f%d\",\"type\":\"%s\"}", i ? "," : "", i, i % 3 ? "double" : "long");
        if (i % 3)
            pst_avro_put_double(&data, i);
        else
            pst_avro_put_long(&data, i);
        wants[i] = (pst_want){pst_sprintf("f%d", (i * 7) % N), PST_WANT_NUMBER, 1};
    }
    pst_buf_adds(&text, "]}");
    pst_schema *s = schema(text.data);
    pst_columns *c = columns(s, wants, N);
    assert_int_equal(pst_columns_run(c, data.data, data.len, numbers, missing, NULL, NULL), 0);
    for (int i = 0; i < N; i++) {
        assert_true(numbers[i] == (i * 7) % N && !missing[i]);
        free((char *)(uintptr_t)wants[i].path);
    }
    pst_columns_free(c);
    pst_schema_free(s);
    pst_buf_done(&text);
    pst_buf_done(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns_everything),
        cmocka_unit_test(test_columns_missing),
        cmocka_unit_test(test_columns_raw_spans_with_their_schema),
        cmocka_unit_test(test_columns_raw_null_is_a_value),
        cmocka_unit_test(test_columns_unions_of_several_records),
        cmocka_unit_test(test_columns_renamed_field_is_found_by_its_alias),
        cmocka_unit_test(test_columns_refused_types_say_path_and_types),
        cmocka_unit_test(test_columns_bad_records),
        cmocka_unit_test(test_columns_null_inside_an_array_is_nan_in_its_slot),
        cmocka_unit_test(test_columns_decimals_are_numbers),
        cmocka_unit_test(test_columns_keys_of_maps),
        cmocka_unit_test(test_columns_truncated_and_changed),
        cmocka_unit_test(test_columns_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
