/* test_avro_compat.c - pst_schema_can_read: the table of Avro's schema resolution, its reasons with paths, recursion, hostile pairs. */
#include "avro_kit.h"

#define FX(name, size)          "{'type':'fixed','name':'" name "','size':" #size "}"
#define EN(name, symbols)       "{'type':'enum','name':'" name "','symbols':[" symbols "]}"
#define END(name, symbols, def) "{'type':'enum','name':'" name "','symbols':[" symbols "],'default':'" def "'}"
#define LIST(of)                "{'type':'array','items':" of "}"
#define MAP(of)                 "{'type':'map','values':" of "}"

typedef struct {
    const char *reader, *writer;
    const char *why; /* NULL = readable; else part of the reasons */
} row;

static const row rows[] = {
    /* primitives and promotions */
    {"'null'", "'null'", NULL},
    {"'int'", "'int'", NULL},
    {"'long'", "'int'", NULL},
    {"'float'", "'int'", NULL},
    {"'double'", "'int'", NULL},
    {"'float'", "'long'", NULL},
    {"'double'", "'long'", NULL},
    {"'double'", "'float'", NULL},
    {"'string'", "'bytes'", NULL},
    {"'bytes'", "'string'", NULL},
    {"'int'", "'long'", "the reader wants int, the writer has long"},
    {"'long'", "'float'", "wants long"},
    {"'float'", "'double'", "wants float"},
    {"'int'", "'boolean'", "wants int"},
    {"'boolean'", "'int'", "wants boolean"},
    {"'string'", "'int'", "wants string"},
    {"'bytes'", FX("F", 2), "wants bytes"},
    {"'null'", "'int'", "wants null"},
    {"{'type':'long','logicalType':'timestamp-micros'}", "'int'", NULL},
    /* fixed, enum */
    {FX("F", 2), FX("F", 2), NULL},
    {FX("a.F", 2), FX("b.F", 2), NULL}, /* unqualified names */
    {FX("F", 2), FX("F", 3), "2 bytes for the reader, 3 for the writer"},
    {FX("F", 2), FX("G", 2), "named F, the writer's G"},
    {"{'type':'fixed','name':'F','size':2,'aliases':['G']}", FX("G", 2), NULL},
    {EN("E", "'A','B'"), EN("E", "'B'"), NULL},
    {EN("E", "'A'"), EN("E", "'A','B'"), "symbol B is missing"},
    {END("E", "'A'", "A"), EN("E", "'A','B'"), NULL},
    {EN("E", "'A'"), EN("G", "'A'"), "named E"},
    {EN("E", "'A'"), "'string'", "wants E"},
    /* arrays, maps */
    {LIST("'long'"), LIST("'int'"), NULL},
    {LIST("'int'"), LIST("'long'"), "[]: the reader wants int"},
    {MAP("'double'"), MAP("'float'"), NULL},
    {MAP("'int'"), MAP("'string'"), "{}: the reader wants int"},
    {LIST("'int'"), MAP("'int'"), "wants array, the writer has map"},
    /* unions */
    {"['null','int']", "'int'", NULL},
    {"['null','int']", "'null'", NULL},
    {"['null','long']", "'int'", NULL},
    {"['null','int']", "'long'", "no branch of the reader's union takes the writer's long"},
    {"'int'", "['int']", NULL},
    {"'int'", "['null','int']", "wants int, the writer has null"},
    {"['int','null']", "['null','int']", NULL},
    {"['null','string']", "['null','int','string']", "the writer's int"},
    {"['null','int','string']", "['null','string']", NULL},
    /* records */
    {REC(F("a", "'int'")), REC(F("a", "'int'")), NULL},
    {REC(""), REC(F("a", "'int'")), NULL}, /* the reader drops a field */
    {REC(F("a", "'int'") "," FD("b", "'int'", "1")), REC(F("a", "'int'")), NULL},
    {REC(F("a", "'int'") "," FD("b", "['null','int']", "null")), REC(F("a", "'int'")), NULL},
    {REC(F("a", "'int'") "," F("b", "'int'")), REC(F("a", "'int'")), "b: the reader's field has no default"},
    {REC(F("a", "'int'")), REC(F("a", "'string'")), "a: the reader wants int, the writer has string"},
    {REC("{'name':'a','type':'int','aliases':['x']}"), REC(F("x", "'int'")), NULL},
    {REC("{'name':'a','type':'int','aliases':['y','x']}"), REC(F("x", "'int'")), NULL},
    {REC(F("a", "'int'")), REC(F("x", "'int'")), "a: the reader's field has no default"},
    {REC(F("a", "'int'")), "{'type':'record','name':'n.R','fields':[{'name':'a','type':'int'}]}", NULL},
    {REC(""), "{'type':'record','name':'Q','fields':[]}", "record is named R, the writer's Q"},
    {"{'type':'record','name':'R','aliases':['Q'],'fields':[]}", "{'type':'record','name':'Q','fields':[]}", NULL},
    {"{'type':'record','name':'R','aliases':['n.Q'],'fields':[]}", "{'type':'record','name':'n.Q','fields':[]}", NULL},
    {REC(F("a", LIST("{'type':'record','name':'S','fields':[{'name':'q','type':'int'}]}"))),
     REC(F("a", LIST("{'type':'record','name':'S','fields':[{'name':'p','type':'int'}]}"))), "a[].q: the reader's field has no default"},
    {REC(F("a", "['null',{'type':'record','name':'S','fields':[{'name':'q','type':'int'}]}]")),
     REC(F("a", "['null',{'type':'record','name':'S','fields':[{'name':'q','type':'string'}]}]")),
     "a.q: the reader wants int, the writer has string"},
    /* recursion */
    {REC(F("v", "'long'") "," F("next", "['null','R']")), REC(F("v", "'int'") "," F("next", "['null','R']")), NULL},
    {REC(F("v", "'int'") "," F("next", "['null','R']")), REC(F("v", "'long'") "," F("next", "['null','R']")), "v: the reader wants int"},
    {REC(F("next", "['null','R']") "," F("v", "'int'")), REC(F("next", "['null','R']") "," F("v", "'long'")), "v: the reader wants int"},
};

static void test_compat_table(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_schema *r = schema(rows[i].reader), *w = schema(rows[i].writer);
        pst_buf why = {0};
        int yes = pst_schema_can_read(r, w, &why);
        assert_int_equal(yes, pst_schema_can_read(r, w, NULL));
        if (yes != !rows[i].why || (rows[i].why && !strstr(why.data ? why.data : "", rows[i].why)) || (yes && why.len))
            fail_msg("reader %s, writer %s: %d \"%s\"", rows[i].reader, rows[i].writer, yes, why.data ? why.data : "");
        pst_buf_done(&why);
        pst_schema_free(r);
        pst_schema_free(w);
    }
}

static void test_compat_all_reasons_one_a_line(void **state)
{
    pst_schema *r = schema(REC(F("a", "'int'") "," F("b", "'string'") "," F("c", LIST("'int'"))));
    pst_schema *w = schema(REC(F("a", "'string'") "," F("c", LIST("'null'"))));
    pst_buf why = {0};
    assert_int_equal(pst_schema_can_read(r, w, &why), 0);
    assert_string_equal(why.data, "a: the reader wants int, the writer has string\n"
                                  "b: the reader's field has no default and the writer does not have it\n"
                                  "c[]: the reader wants int, the writer has null");
    pst_buf_done(&why);
    pst_schema_free(r);
    pst_schema_free(w);
}

/* An assumption made on the way down (A reads A') falls; what was concluded from it must fall with it. */
static void test_compat_forgets_what_rested_on_a_fallen_assumption(void **state)
{
    static const char *const writer =
        "{'type':'record','name':'Top','fields':[{'name':'one','type':{'type':'record','name':'A','fields':[{'name':'b','type':{'type':'"
        "record','name':'B',"
        "'fields':[{'name':'a','type':['null','A']}]}},{'name':'z','type':'string'}]}},{'name':'two','type':'B'}]}";
    static const char *const reader =
        "{'type':'record','name':'Top','fields':[{'name':'one','type':['null','string',{'type':'record','name':'A','fields':[{'name':'b','"
        "type':{'type':"
        "'record','name':'B','fields':[{'name':'a','type':['null','A']}]}},{'name':'z','type':'int'}]}]},{'name':'two','type':'B'}]}";
    pst_schema *r = schema(reader), *w = schema(writer);
    pst_buf why = {0};
    assert_int_equal(pst_schema_can_read(r, w, &why), 0);
    assert_non_null(strstr(why.data, "two.a"));
    pst_buf_done(&why);
    pst_schema_free(r);
    pst_schema_free(w);
}

/* Two unions of 3000 records of one short name each: 9 million pairs, with fields. It ends, and says that it gave up or why not. */
static void test_compat_hostile_breadth(void **state)
{
    pst_buf b = {0};
    pst_buf_addc(&b, '[');
    for (int i = 0; i < 3000; i++)
        pst_buf_printf(
            &b,
            "%s{\"type\":\"record\",\"name\":\"n%d.R\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"},{\"name\":\"b%d\",\"type\":\"int\"}]}",
            i ? "," : "", i, i);
    pst_buf_addc(&b, ']');
    pst_schema *w = schema(b.data);
    pst_buf_clear(&b);
    pst_buf_addc(&b, '[');
    for (int i = 0; i < 3000; i++)
        pst_buf_printf(
            &b,
            "%s{\"type\":\"record\",\"name\":\"m%d.R\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"},{\"name\":\"c%d\",\"type\":\"int\"}]}",
            i ? "," : "", i, i);
    pst_buf_addc(&b, ']');
    pst_schema *r = schema(b.data);
    pst_buf why = {0};
    assert_int_equal(pst_schema_can_read(r, w, &why), 0);
    assert_true(why.len > 0);
    pst_buf_done(&why);
    pst_buf_done(&b);
    pst_schema_free(r);
    pst_schema_free(w);
}

/* 8000 columns in the opposite order, an enum of 8000 symbols in the opposite order: honest, and compared at once. */
static void test_compat_wide(void **state)
{
    pst_buf b[2] = {{0}, {0}};
    pst_schema *s[2];
    for (int k = 0; k < 2; k++) {
        pst_buf_adds(
            &b[k],
            "{\"type\":\"record\",\"name\":\"Wide\",\"fields\":[{\"name\":\"e\",\"type\":{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[");
        for (int i = 0; i < 8000; i++)
            pst_buf_printf(&b[k], "%s\"S%d\"", i ? "," : "", k ? i : 7999 - i);
        pst_buf_adds(&b[k], "]}}");
        for (int i = 0; i < 8000; i++)
            pst_buf_printf(&b[k], ",{\"name\":\"f%d\",\"type\":\"%s\"}", k ? i : 7999 - i, k ? "double" : "int");
        pst_buf_adds(&b[k], "]}");
        s[k] = schema(b[k].data);
        pst_buf_done(&b[k]);
    }
    pst_buf why = {0};
    assert_int_equal(pst_schema_can_read(s[1], s[0], &why), 1);
    assert_int_equal(pst_schema_can_read(s[0], s[1], &why), 0);
    assert_non_null(strstr(why.data, "and 7950 more"));
    pst_buf_done(&why);
    pst_schema_free(s[0]);
    pst_schema_free(s[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compat_table),
        cmocka_unit_test(test_compat_all_reasons_one_a_line),
        cmocka_unit_test(test_compat_forgets_what_rested_on_a_fallen_assumption),
        cmocka_unit_test(test_compat_hostile_breadth),
        cmocka_unit_test(test_compat_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
