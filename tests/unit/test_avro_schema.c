/* test_avro_schema.c - schema texts: what is accepted, what is refused and why, canonical form, fingerprints, limits. */
#include "avro_kit.h"

#include "schemas/events.h"

static void test_schema_valid_texts(void **state)
{
    static const char *const texts[] = {
        "'null'",
        "'string'",
        "{'type':'int'}",
        "{'type':{'type':'string'}}",
        "{'type':'long','logicalType':'timestamp-micros'}",
        "{'type':'bytes','logicalType':'decimal','precision':9,'scale':2}",
        "{'type':'string','logicalType':'uuid'}",
        "{'type':'array','items':{'type':'map','values':['null','double']}}",
        "{'type':'fixed','name':'a.b.F','size':0}",
        "{'type':'enum','name':'E','symbols':['A','B'],'default':'B'}",
        "{'type':'record','name':'Empty','fields':[]}",
        "{'type':'error','name':'Oops','fields':[]}",
        "{'type':'record','name':'List','fields':[{'name':'next','type':['null','List'],'default':null}]}",
        /* names: namespace inherited, alias used for nothing here, a type of the null namespace from inside another */
        "{'type':'record','name':'x.R','fields':[{'name':'a','type':{'type':'enum','name':'E','symbols':['A']}},{'name':'b','type':'E'},"
        "{'name':'c','type':'x.E'}]}",
        "{'type':'record','name':'R','namespace':'','fields':[{'name':'a','type':{'type':'record','name':'q.S','fields':[{'name':'r','type'"
        ":['null','R']}]}}]}",
        /* defaults of every kind; a union's default may fit another branch than the first */
        REC(FD("n", "'null'", "null") "," FD("b", "'boolean'", "true") "," FD("i", "'int'", "-5") "," FD(
            "l", "'long'", "9007199254740993") "," FD("f", "'float'",
                                                      "1") "," FD("d", "'double'",
                                                                  "'NaN'") "," FD("y", "'bytes'",
                                                                                  "'\\u0000\\u00ff'") "," FD("s", "'string'", "'x'")),
        REC(FD("u", "['null','string']", "'x'") "," FD("e", "{'type':'enum','name':'E','symbols':['A']}", "'A'") "," FD(
            "x", "{'type':'fixed','name':'X','size':2}",
            "'\\u00ff\\u0001'") "," FD("a", "{'type':'array','items':'int'}",
                                       "[1,2]") "," FD("m", "{'type':'map','values':'E'}",
                                                       "{'k':'A'}") "," FD("r",
                                                                           "{'type':'record','name':'In','fields':[{'name':'q','type':'int'"
                                                                           ",'default':1}]}",
                                                                           "{}")),
        "{'type':'record','name':'R','doc':'d','fields':[{'name':'a','type':'int','order':'ignore','aliases':['b'],'anything':1}],'aliases'"
        ":['Old','n.Older']}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        pst_schema_free(schema(texts[i]));
}

static void test_schema_refused_texts_say_why(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "not JSON"},
        {"{'type':'record'", "not JSON"},
        {"7", "a type is a word"},
        {"'nope'", "not known"},
        {"{'type':'nope'}", "not known"},
        {"{}", "\"type\" is missing"},
        {"{'type':'array'}", "needs \"items\""},
        {"{'type':'map'}", "needs \"values\""},
        {"{'type':'record','name':'R'}", "needs \"fields\""},
        {"{'type':'record','fields':[]}", "\"name\" is missing"},
        {"{'type':'record','name':'1R','fields':[]}", "is not a name"},
        {"{'type':'record','name':'R.','fields':[]}", "is not a name"},
        {"{'type':'record','name':'R','namespace':'a..b','fields':[]}", "namespace"},
        {"{'type':'record','name':'string','fields':[]}", "primitive"},
        {REC("7"), "must be an object"},
        {REC("{'name':'a'}"), "R.a: \"type\" is missing"},
        {REC("{'type':'int'}"), "\"name\" is missing"},
        {REC(F("a.b", "'int'")), "is not a name"},
        {REC(F("a", "'int'") "," F("a", "'long'")), "two fields a"},
        {REC("{'name':'a','type':'int','order':'up'}"), "order"},
        {REC("{'name':'a','type':'int','aliases':'b'}"), "aliases"},
        {REC(F("a", "{'type':'record','name':'R','fields':[]}")), "defined twice"},
        {REC(F("a", "'Later'") "," F("b", "{'type':'fixed','name':'Later','size':1}")), "defined before"},
        {"['null','null']", "null twice"},
        {"['null',['int']]", "no other union"},
        {"[]", "at least one"},
        {"[{'type':'array','items':'int'},{'type':'array','items':'string'}]", "array twice"},
        {"{'type':'fixed','name':'F','size':-2}", "from 0"},
        {"{'type':'fixed','name':'F','size':1.5}", "from 0"},
        {"{'type':'fixed','name':'F','size':99999999999}", "more than"},
        {"{'type':'fixed','name':'F'}", "size"},
        {"{'type':'enum','name':'E','symbols':'A'}", "an array"},
        {"{'type':'enum','name':'E','symbols':['A','A']}", "twice"},
        {"{'type':'enum','name':'E','symbols':['A-']}", "not a name"},
        {"{'type':'enum','name':'E','symbols':['A'],'default':'B'}", "not one of its symbols"},
        {REC(FD("a", "'int'", "'x'")), "R.a: the default does not fit"},
        {REC(FD("a", "'int'", "2147483648")), "does not fit"},
        {REC(FD("a", "['null','string']", "5")), "does not fit"},
        {REC(FD("a", "'bytes'", "'\\u0100'")), "does not fit"},
        {REC(FD("a", "{'type':'fixed','name':'F','size':2}", "'abc'")), "does not fit"},
        {REC(FD("a", "{'type':'enum','name':'E','symbols':['A'],'default':'A'}", "'B'")), "does not fit"},
        {REC(FD("a", "{'type':'record','name':'In','fields':[{'name':'q','type':'int'}]}", "{}")), "does not fit"},
        {"{'type':'int','type':'int'}", "not JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_schema *s = NULL;
        pst_err err = {0};
        char *q = quotes(cases[i].text);
        int rc = pst_schema_parse(q, strlen(q), &s, &err);
        if (rc == 0)
            fail_msg("accepted: %s", q);
        assert_int_equal(rc, err.code);
        assert_int_equal(err.cls, PST_CLASS_DATA);
        if (!strstr(err.text, cases[i].why))
            fail_msg("%s: \"%s\" does not say \"%s\"", q, err.text, cases[i].why);
        free(q);
    }
}

static void test_schema_writer_passes_over_bad_defaults(void **state)
{
    char *q = quotes(REC(FD("a", "'int'", "'x'") "," FD("b", "'int'", "3")));
    pst_schema *s = NULL;
    pst_err err = {0};
    assert_int_equal(pst_schema_parse_writer(q, strlen(q), &s, &err), 0);
    pst_schema_free(s);
    free(q);
}

static void check_canonical(const char *text, const char *want)
{
    pst_schema *s = schema(text);
    pst_buf b = {0};
    char *q = quotes(want);
    pst_schema_canonical(s, &b);
    assert_string_equal(b.data, q);
    free(q);
    pst_buf_done(&b);
    pst_schema_free(s);
}

static void test_schema_canonical_form(void **state)
{
    check_canonical("{'type':'int'}", "'int'");
    check_canonical("{'type':{'type':'string','doc':'x'}}", "'string'");
    check_canonical("[ 'null' , {'type':'array', 'items':'long','default':[]} ]", "['null',{'type':'array','items':'long'}]");
    check_canonical("{'size':12,'type':'fixed','namespace':'a.b','name':'F','aliases':['G']}", "{'name':'a.b.F','type':'fixed','size':12}");
    check_canonical("{'symbols':['A','B'],'default':'A','name':'E','type':'enum','doc':'d'}",
                    "{'name':'E','type':'enum','symbols':['A','B']}");
    check_canonical("{'type':'record','name':'n.R','doc':'d','fields':[{'default':1,'type':'int','name':'a','doc':'x'},{'name':'b','type':["
                    "'null','R']}]}",
                    "{'name':'n.R','type':'record','fields':[{'name':'a','type':'int'},{'name':'b','type':['null','n.R']}]}");
    check_canonical("{'type':'long','logicalType':'timestamp-micros'}", "'long'");
}

static void check_fingerprint(const char *text, uint64_t want)
{
    pst_schema *s = schema(text);
    assert_true(pst_schema_fingerprint(s) == want);
    pst_schema_free(s);
}

/* Vectors of Avro's own schema-tests.txt (share/test/data), there as signed numbers. */
static void test_schema_fingerprints(void **state)
{
    check_fingerprint("'null'", 7195948357588979594ull);
    check_fingerprint("{'type':'boolean'}", (uint64_t)-6970731678124411036ll);
    check_fingerprint("'int'", 8247732601305521295ull);
    check_fingerprint("'long'", (uint64_t)-3434872931120570953ll);
    check_fingerprint("'float'", 5583340709985441680ull);
    check_fingerprint("'double'", (uint64_t)-8181574048448539266ll);
    check_fingerprint("'bytes'", 5746618253357095269ull);
    check_fingerprint("'string'", (uint64_t)-8142146995180207161ll);
}

static void test_schema_names_and_text(void **state)
{
    pst_schema *s = schema("{'type':'record','name':'R','namespace':'a.b','fields':[]}");
    assert_string_equal(pst_schema_name(s), "a.b.R");
    assert_non_null(strstr(pst_schema_text(s), "\"namespace\""));
    pst_schema_free(s);
    s = schema("['null','int']");
    assert_string_equal(pst_schema_name(s), "union");
    pst_schema_free(s);
    pst_err err = {0};
    const char *text = pst_type_schema(&pst_job_request_type);
    assert_int_equal(pst_schema_parse(text, strlen(text), &s, &err), 0);
    assert_string_equal(pst_schema_name(s), "penstock.JobRequest");
    pst_schema_free(s);
    assert_ptr_equal(pst_type_find("ProducedModel"), &pst_produced_model_type);
    assert_null(pst_type_find("Nobody"));
    /* inner types are self-contained too */
    text = pst_type_schema(&pst_produced_model_type);
    assert_int_equal(pst_schema_parse(text, strlen(text), &s, &err), 0);
    assert_string_equal(pst_schema_name(s), "penstock.ProducedModel");
    pst_schema_free(s);
}

static int parse_repeated(const char *head, const char *middle, const char *tail, size_t times)
{
    pst_buf b = {0};
    pst_schema *s = NULL;
    pst_err err = {0};
    for (size_t i = 0; i < times; i++)
        pst_buf_adds(&b, head);
    pst_buf_adds(&b, middle);
    for (size_t i = 0; i < times; i++)
        pst_buf_adds(&b, tail);
    for (char *p = b.data; *p; p++)
        if (*p == '\'')
            *p = '"';
    int rc = pst_schema_parse(b.data, b.len, &s, &err);
    pst_buf_done(&b);
    pst_schema_free(s);
    return rc;
}

static void test_schema_hostile_sizes(void **state)
{
    assert_int_equal(parse_repeated("{'type':'array','items':", "'int'", "}", 60), 0);
    assert_int_equal(parse_repeated("{'type':'array','items':", "'int'", "}", 70), PST_ELIMIT);
    assert_true(parse_repeated("{'type':'array','items':", "'int'", "}", 8000) < 0); /* 200 kB */
    assert_true(parse_repeated("{'type':", "'int'", "}", 20000) < 0);
    assert_true(parse_repeated("[", "'int'", "]", 100000) < 0);
    pst_buf b = {0};
    pst_schema *s = NULL;
    pst_err err = {0};
    pst_buf_adds(&b, "{\"type\":\"record\",\"name\":\"R\",\"fields\":[");
    for (int i = 0; i < 25000; i++)
        pst_buf_printf(&b, "%s{\"name\":\"f%d\",\"type\":\"int\"}", i ? "," : "", i);
    pst_buf_adds(&b, "]}");
    assert_int_equal(pst_schema_parse(b.data, b.len, &s, &err), PST_ELIMIT); /* more than 20000 types */
    pst_buf_clear(&b);
    for (int i = 0; i < (1 << 20); i++)
        pst_buf_addc(&b, ' ');
    pst_buf_adds(&b, "\"int\"");
    assert_int_equal(pst_schema_parse(b.data, b.len, &s, NULL), PST_ELIMIT);
    pst_buf_done(&b);
}

/* Nested unions of records whose default fits nothing: 2^30 ways to try, a budget to stop. */
static void test_schema_hostile_default(void **state)
{
    pst_buf b = {0};
    pst_schema *s = NULL;
    pst_buf_adds(&b, "{\"type\":\"record\",\"name\":\"A\",\"fields\":[{\"name\":\"x\",\"type\":[\"null\",\"A\",{\"type\":\"record\","
                     "\"name\":\"B\",\"fields\":"
                     "[{\"name\":\"x\",\"type\":[\"null\",\"A\",\"B\"]}]}],\"default\":");
    for (int i = 0; i < 30; i++)
        pst_buf_adds(&b, "{\"x\":");
    pst_buf_adds(&b, "7");
    for (int i = 0; i < 30; i++)
        pst_buf_adds(&b, "}");
    pst_buf_adds(&b, "}]}");
    assert_int_equal(pst_schema_parse(b.data, b.len, &s, NULL), PST_EPARSE);
    pst_buf_done(&b);
}

/* null|T as both orders and both spellings; what is wider, or null alone, stays. */
static void test_schema_json_but_null(void **state)
{
    static const struct {
        const char *type, *want;
    } cases[] = {{"[\"null\",\"int\"]", "\"int\""},
                 {"[\"int\",\"null\"]", "\"int\""},
                 {"[{\"type\":\"null\"},{\"type\":\"long\",\"logicalType\":\"timestamp-millis\"}]",
                  "{\"type\":\"long\",\"logicalType\":\"timestamp-millis\"}"},
                 {"[\"int\"]", "\"int\""},
                 {"[\"null\",\"int\",\"string\"]", "[\"null\",\"int\",\"string\"]"},
                 {"[\"null\"]", "[\"null\"]"},
                 {"[]", "[]"},
                 {"\"null\"", "\"null\""},
                 {"{\"type\":\"array\",\"items\":\"int\"}", "{\"type\":\"array\",\"items\":\"int\"}"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *t = json_loads(cases[i].type, JSON_DECODE_ANY, NULL), *want = json_loads(cases[i].want, JSON_DECODE_ANY, NULL);
        if (!json_equal(pst_avro_but_null(t), want))
            fail_msg("%s is not taken for %s", cases[i].type, cases[i].want);
        json_decref(t);
        json_decref(want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schema_valid_texts),
        cmocka_unit_test(test_schema_refused_texts_say_why),
        cmocka_unit_test(test_schema_writer_passes_over_bad_defaults),
        cmocka_unit_test(test_schema_canonical_form),
        cmocka_unit_test(test_schema_fingerprints),
        cmocka_unit_test(test_schema_names_and_text),
        cmocka_unit_test(test_schema_hostile_sizes),
        cmocka_unit_test(test_schema_hostile_default),
        cmocka_unit_test(test_schema_json_but_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
