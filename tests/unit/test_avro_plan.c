/* test_avro_plan.c - decode plans into structs: every shape, the resolution matrix, hostile bytes. The target is a record of the test's own
 * (avro_kinds.avsc), generated like the events. */
#include "avro_kit.h"

#include "kinds/events.h"

#include <math.h>

#define T(type_json) "{'type':'record','name':'Kinds','fields':[{'name':" type_json "}]}"

static pst_decode_plan *plan(const pst_schema *w)
{
    pst_decode_plan *p = NULL;
    pst_err err = {0};
    if (pst_decode_plan_new(w, &pst_kinds_type, &p, &err) < 0)
        fail_msg("%s: %s", pst_schema_text(w), err.text);
    return p;
}

/* Writer schema and value → one field of the struct as JSON. */
static json_t *through(const char *writer, const char *value, const char *field)
{
    pst_schema *w = schema(writer);
    pst_buf b = bytes_of(w, value);
    pst_decode_plan *p = plan(w);
    pst_kinds k;
    pst_err err = {0};
    void *data = exact(b.data, b.len);
    if (pst_decode_run(p, data, b.len, &k, &err) < 0)
        fail_msg("%s %s: %s", writer, value, err.text);
    json_t *all = pst_event_to_json(&pst_kinds_type, &k), *one = json_incref(json_object_get(all, field));
    json_decref(all);
    pst_event_clear(&pst_kinds_type, &k);
    pst_decode_plan_free(p);
    free(data);
    pst_buf_done(&b);
    pst_schema_free(w);
    return one;
}

static void check(const char *writer, const char *value, const char *field, const char *want)
{
    json_t *j = through(writer, value, field);
    assert_json(j, want);
    json_decref(j);
}

/* The data cannot be taken, but the plan can be made: code of the run, and what its story says. */
static void check_run_fails(const char *writer, const char *value, int code, const char *says)
{
    pst_schema *w = schema(writer);
    pst_buf b = bytes_of(w, value);
    pst_decode_plan *p = plan(w);
    pst_kinds k;
    pst_err err = {0};
    assert_int_equal(pst_decode_run(p, b.data, b.len, &k, &err), code);
    assert_int_equal(err.cls, PST_CLASS_DATA);
    if (!strstr(err.text, says))
        fail_msg("\"%s\" does not say \"%s\"", err.text, says);
    pst_kinds zero = {0};
    assert_memory_equal(&k, &zero, sizeof k); /* empty after an error */
    pst_decode_plan_free(p);
    pst_buf_done(&b);
    pst_schema_free(w);
}

static void check_no_plan(const char *writer, const char *says)
{
    pst_schema *w = schema(writer);
    pst_decode_plan *p = NULL;
    pst_err err = {0};
    assert_int_equal(pst_decode_plan_new(w, &pst_kinds_type, &p, &err), PST_EINCOMPAT);
    assert_null(p);
    if (!strstr(err.text, says))
        fail_msg("\"%s\" does not say \"%s\"", err.text, says);
    pst_schema_free(w);
}

static void test_plan_same_schema_round_trip(void **state)
{
    static const char *const value =
        "{'yes':false,'i':-2147483648,'l':9223372036854775807,'f':-0.25,'d':1e300,'s':'','y':'base64:AP8=','e':'RED','strict':'OFF','in':{'"
        "a':1,'b':'x'},"
        "'n_yes':true,'n_i':0,'n_l':null,'n_f':1.5,'n_d':'NaN','n_s':null,'n_y':'','n_e':'GREEN','n_in':{'a':-1,'b':null},'a_yes':[true,"
        "false],"
        "'a_i':[1,-1],'a_l':[],'a_f':[0.5],'a_d':[2.5,'-Infinity'],'a_s':['','b'],'a_y':['a','base64:gA=='],'a_e':['BLUE','RED'],"
        "'a_in':[{'a':1,'b':null},{'a':2,'b':'q'}],'m_s':{'k':'v','':'e'},'m_d':{'x':0.5},'when':1700000000000000}";
    pst_schema *s = NULL;
    pst_err err = {0};
    const char *text = pst_type_schema(&pst_kinds_type);
    assert_int_equal(pst_schema_parse(text, strlen(text), &s, &err), 0);
    pst_buf b = bytes_of(s, value), again = {0};
    pst_decode_plan *p = plan(s);
    pst_kinds k, copy;
    assert_int_equal(pst_decode_run(p, b.data, b.len, &k, &err), 0);
    assert_false(k.has_n_l);
    assert_true(k.has_n_i && k.has_n_yes && k.n_yes && isnan(k.n_d));
    assert_true(k.n_y.data && k.n_y.len == 0);
    assert_true(k.y.len == 2 && !memcmp(k.y.data, "\0\xff", 2));
    assert_int_equal(k.n_a_in, 2);
    assert_string_equal(k.a_in[1].b, "q");
    assert_string_equal(pst_str_map_get(k.m_s, k.n_m_s, "k"), "v");
    pst_event_encode(&pst_kinds_type, &k, &again);
    assert_int_equal(again.len, b.len);
    assert_memory_equal(again.data, b.data, b.len);
    pst_event_copy(&pst_kinds_type, &k, &copy);
    assert_true(pst_event_equal(&pst_kinds_type, &k, &copy));
    copy.a_in[1].b[0] = 'z';
    assert_false(pst_event_equal(&pst_kinds_type, &k, &copy));
    char *ops = pst_decode_plan_explain(p);
    assert_non_null(strstr(ops, "Kinds.n_s"));
    free(ops);
    pst_event_clear(&pst_kinds_type, &k);
    pst_event_clear(&pst_kinds_type, &copy);
    pst_decode_plan_free(p);
    pst_buf_done(&b);
    pst_buf_done(&again);
    pst_schema_free(s);
}

static void test_plan_defaults_fill_what_the_writer_lacks(void **state)
{
    static const struct {
        const char *field, *want;
    } cases[] = {{"yes", "true"},    {"i", "-7"},          {"l", "5000000000"}, {"f", "0.5"},       {"d", "2.5"},
                 {"s", "'Grüße'"},   {"y", "''"},          {"e", "'GREEN'"},    {"strict", "'ON'"}, {"n_l", "99"},
                 {"n_s", "'there'"}, {"n_in", "null"},     {"n_yes", "null"},   {"a_s", "[]"},      {"in", "{'a':11,'b':null}"},
                 {"a_l", "[1,2,3]"}, {"m_d", "{'k':1.5}"}, {"m_s", "{}"},       {"n_y", "null"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check("{'type':'record','name':'Kinds','fields':[]}", "{}", cases[i].field, cases[i].want);
}

static void test_plan_promotions(void **state)
{
    check(T("'l','type':'int'"), "{'l':-3}", "l", "-3");
    check(T("'f','type':'int'"), "{'f':3}", "f", "3.0");
    check(T("'f','type':'long'"), "{'f':4}", "f", "4.0");
    check(T("'d','type':'int'"), "{'d':5}", "d", "5.0");
    check(T("'d','type':'long'"), "{'d':6}", "d", "6.0");
    check(T("'d','type':'float'"), "{'d':0.25}", "d", "0.25");
    check(T("'s','type':'bytes'"), "{'s':'abc'}", "s", "'abc'");
    check(T("'y','type':'string'"), "{'y':'abc'}", "y", "'YWJj'");
    check(T("'n_d','type':'int'"), "{'n_d':7}", "n_d", "7.0");
    check(T("'a_d','type':{'type':'array','items':'int'}"), "{'a_d':[1,2]}", "a_d", "[1.0,2.0]");
    check(T("'m_d','type':{'type':'map','values':'long'}"), "{'m_d':{'k':1}}", "m_d", "{'k':1.0}");
    check_no_plan(T("'i','type':'long'"), "i: the reader wants int, the writer has long");
    check_no_plan(T("'l','type':'double'"), "l: the reader wants long");
    check_no_plan(T("'f','type':'double'"), "f");
    check_no_plan(T("'i','type':'boolean'"), "i");
    check_no_plan(T("'s','type':'int'"), "s: the reader wants string, the writer has int");
    check_no_plan(T("'a_i','type':{'type':'array','items':'string'}"), "a_i[]");
    check_no_plan(T("'a_i','type':{'type':'map','values':'int'}"), "a_i");
}

static void test_plan_logical_types_are_their_base_types(void **state)
{
    check(T("'l','type':{'type':'int','logicalType':'date'}"), "{'l':20000}", "l", "20000");
    check(T("'y','type':{'type':'bytes','logicalType':'decimal','precision':4}"), "{'y':'a'}", "y", "'YQ=='");
    check(T("'s','type':{'type':'string','logicalType':'uuid'}"), "{'s':'u'}", "s", "'u'");
}

static void test_plan_unions(void **state)
{
    check(T("'n_i','type':['null','int']"), "{'n_i':5}", "n_i", "5");
    check(T("'n_i','type':['null','int']"), "{'n_i':null}", "n_i", "null");
    check(T("'n_i','type':['int','null']"), "{'n_i':5}", "n_i", "5");
    check(T("'n_i','type':'int'"), "{'n_i':5}", "n_i", "5");
    check(T("'n_i','type':'null'"), "{'n_i':null}", "n_i", "null");
    check(T("'i','type':['string','int']"), "{'i':5}", "i", "5");
    check(T("'n_d','type':['null','string','float','int']"), "{'n_d':5}", "n_d", "5.0");
    check(T("'n_s','type':['null','bytes']"), "{'n_s':'x'}", "n_s", "'x'");
    check(T("'n_e','type':['null',{'type':'enum','name':'x.Colour','symbols':['BLUE','PINK']}]"), "{'n_e':'PINK'}", "n_e", "'BLUE'");
    check(T("'n_in','type':['null','string',{'type':'record','name':'Inner','fields':[{'name':'b','type':'string'}]}]"),
          "{'n_in':{'b':'w'}}", "n_in", "{'a':4,'b':'w'}");
    check("['null',{'type':'record','name':'Kinds','fields':[]}]", "{}", "i", "-7");
    check(T("'a_i','type':{'type':'array','items':['null','int']}"), "{'a_i':[1,2]}", "a_i", "[1,2]");
    /* branches that cannot be taken fail only when met */
    check_run_fails(T("'i','type':['string','int']"), "{'i':'x'}", PST_EINCOMPAT, "Kinds.i: the writer's string cannot be read as int");
    check_run_fails(T("'n_i','type':['null','int','string']"), "{'n_i':'x'}", PST_EINCOMPAT, "Kinds.n_i");
    check_run_fails(T("'a_i','type':{'type':'array','items':['null','int']}"), "{'a_i':[null]}", PST_EINCOMPAT, "Kinds.a_i");
    check_run_fails("['null',{'type':'record','name':'Kinds','fields':[]}]", "null", PST_EINCOMPAT, "null cannot be read");
    check_no_plan(T("'i','type':['string','boolean']"), "i");
    check_no_plan(T("'n_i','type':'string'"), "n_i: no branch");
}

static void test_plan_enums(void **state)
{
    check(T("'e','type':{'type':'enum','name':'Colour','symbols':['BLUE','PINK','RED']}"), "{'e':'RED'}", "e", "'RED'");
    check(T("'e','type':{'type':'enum','name':'Colour','symbols':['BLUE','PINK','RED']}"), "{'e':'PINK'}", "e",
          "'BLUE'"); /* the reader's default */
    check(T("'strict','type':{'type':'enum','name':'Strict','symbols':['OFF','ON','MAYBE']}"), "{'strict':'OFF'}", "strict", "'OFF'");
    check_run_fails(T("'strict','type':{'type':'enum','name':'Strict','symbols':['OFF','ON','MAYBE']}"), "{'strict':'MAYBE'}",
                    PST_EINCOMPAT, "Kinds.strict");
    check_no_plan(T("'e','type':{'type':'enum','name':'Other','symbols':['RED']}"), "named");
    check_no_plan(T("'e','type':'string'"), "e");
}

static void test_plan_names_and_aliases(void **state)
{
    check(T("'old_d','type':'double'"), "{'old_d':8.5}", "d", "8.5");
    check(T("'older_d','type':'int'"), "{'older_d':8}", "d", "8.0");
    check("{'type':'record','name':'OldKinds','fields':[{'name':'i','type':'int'}]}", "{'i':3}", "i", "3");
    check("{'type':'record','name':'elsewhere.Kinds','fields':[{'name':'i','type':'int'}]}", "{'i':3}", "i", "3");
    /* the field's own name wins over an alias */
    check("{'type':'record','name':'Kinds','fields':[{'name':'old_d','type':'double'},{'name':'d','type':'double'}]}", "{'old_d':1,'d':2}",
          "d", "2.0");
    check_no_plan("{'type':'record','name':'Other','fields':[]}", "named");
    check_no_plan("'string'", "wants");
}

static void test_plan_skips_everything_else(void **state)
{
    static const char *const writer =
        "{'type':'record','name':'Kinds','fields':["
        "{'name':'x1','type':{'type':'array','items':{'type':'record','name':'P','fields':[{'name':'a','type':'double'},{'name':'b','type':"
        "'float'}]}}},"
        "{'name':'x2','type':{'type':'map','values':['null','string',{'type':'array','items':'long'}]}},"
        "{'name':'x3','type':{'type':'record','name':'Tree','fields':[{'name':'v','type':'int'},{'name':'kids','type':{'type':'array','"
        "items':'Tree'}},"
        "{'name':'next','type':['null','Tree']}]}},"
        "{'name':'x4','type':{'type':'fixed','name':'Fx','size':3}},{'name':'x5','type':{'type':'enum','name':'En','symbols':['A','B']}},"
        "{'name':'x6','type':'boolean'},{'name':'x7','type':'null'},{'name':'x8','type':'bytes'},{'name':'i','type':'int'},"
        "{'name':'x9','type':{'type':'map','values':'double'}}]}";
    check(writer,
          "{'x1':[{'a':1,'b':2},{'a':3,'b':4}],'x2':{'p':null,'q':'text','r':[1,2,3]},'x3':{'v':1,'kids':[{'v':2,'kids':[],'next':{'v':3,'"
          "kids':[],"
          "'next':null}}],'next':null},'x4':'abc','x5':'B','x6':true,'x7':null,'x8':'bytes','i':42,'x9':{'a':1}}",
          "i", "42");
}

static int run_bytes(const char *writer, const char *hex_text, pst_err *err)
{
    pst_schema *w = schema(writer);
    pst_decode_plan *p = plan(w);
    pst_kinds k;
    pst_buf b = hex(hex_text);
    void *data = exact(b.data, b.len);
    int rc = pst_decode_run(p, data, b.len, &k, err);
    pst_event_clear(&pst_kinds_type, &k);
    free(data);
    pst_buf_done(&b);
    pst_decode_plan_free(p);
    pst_schema_free(w);
    return rc;
}

static void check_bytes(const char *writer, const char *hex_text, int code, const char *says)
{
    pst_err err = {0};
    int rc = run_bytes(writer, hex_text, &err);
    if (rc != code || (says && !strstr(err.text, says)))
        fail_msg("%s on %s: %d \"%s\"", hex_text, writer, rc, err.text);
}

#define ARR(of) T("'a_l','type':{'type':'array','items':'" of "'}")

static void test_plan_blocks(void **state)
{
    check_bytes(ARR("long"), "00", 0, NULL);
    check_bytes(ARR("long"), "04 02 04 00", 0, NULL);
    check_bytes(ARR("long"), "02 02 02 04 00", 0, NULL);                                             /* two blocks */
    check_bytes(ARR("long"), "03 04 02 04 00", 0, NULL);                                             /* -2 items in 2 bytes */
    check_bytes(T("'x','type':{'type':'array','items':'string'}"), "03 08 02 61 02 62 00", 0, NULL); /* skipped by size */
    check_bytes(T("'x','type':{'type':'array','items':'string'}"), "04 02 61 02 62 00", 0, NULL);
    check_bytes(T("'x','type':{'type':'map','values':'double'}"), "02 02 61 0000000000000000 00", 0, NULL);
    check_bytes(ARR("long"), "04 02 00", PST_EPARSE, "Kinds.a_l");
    check_bytes(ARR("long"), "03 ffff0f 02 04 00", PST_EPARSE, "block of");
    check_bytes(ARR("long"), "03 01 02 04 00", PST_EPARSE, "block of");
    check_bytes(ARR("long"), "ffffffffffffffffff01 00", PST_EPARSE, "2^63");
}

static void test_plan_hostile_bytes(void **state)
{
    check_bytes(T("'i','type':'int'"), "", PST_EPARSE, "Kinds.i: the data ends");
    check_bytes(T("'i','type':'int'"), "80", PST_EPARSE, "ends inside");
    check_bytes(T("'i','type':'int'"), "8080808010", PST_EPARSE, "no int");
    check_bytes(T("'l','type':'long'"), "ffffffffffffffffff01", 0, NULL);
    check_bytes(T("'l','type':'long'"), "ffffffffffffffffff02", PST_EPARSE, "64 bits");
    check_bytes(T("'l','type':'long'"), "ffffffffffffffffffffffffff01", PST_EPARSE, "64 bits");
    check_bytes(T("'i','type':'int'"), "02 00", PST_EPARSE, "1 bytes too many");
    check_bytes(T("'d','type':'double'"), "00000000000000", PST_EPARSE, "8 bytes are wanted, 7 are left");
    check_bytes(T("'yes','type':'boolean'"), "02", PST_EPARSE, "no boolean");
    check_bytes(T("'s','type':'string'"), "08 616263", PST_EPARSE, "length of 4");
    check_bytes(T("'s','type':'string'"), "01", PST_EPARSE, "length of -1");
    check_bytes(T("'s','type':'string'"), "feffffffffffffffff01", PST_EPARSE, "length of"); /* 2^63 - 1 */
    check_bytes(T("'s','type':'string'"), "80808080808080808001", PST_EPARSE, "length of"); /* 2^62 */
    check_bytes(T("'e','type':{'type':'enum','name':'Colour','symbols':['RED','BLUE']}"), "c601", PST_EPARSE, "symbol 99 of 2");
    check_bytes(T("'e','type':{'type':'enum','name':'Colour','symbols':['RED','BLUE']}"), "01", PST_EPARSE, "symbol -1");
    check_bytes(T("'n_i','type':['null','int']"), "04", PST_EPARSE, "branch 2 of 2");
    check_bytes(T("'n_i','type':['null','int']"), "01", PST_EPARSE, "branch -1");
    /* bombs: 30 million nulls in 5 bytes, empty records, arrays of empty arrays counted together */
    check_bytes(T("'x','type':{'type':'array','items':'null'}"), "80c3ce1c 00", PST_ELIMIT, "1000000");
    check_bytes(T("'x','type':{'type':'array','items':'null'}"), "02 00", 0, NULL);
    check_bytes(T("'x','type':{'type':'array','items':'null'}"), "feffffffffffffffff01 00", PST_ELIMIT, "1000000");
    check_bytes(T("'x','type':{'type':'array','items':'null'}"), "8080808080808001 00", PST_ELIMIT, "1000000");
    check_bytes("{'type':'record','name':'Kinds','fields':[{'name':'a_in','type':{'type':'array','items':{'type':'record','name':'Inner','"
                "fields':[]}}}]}",
                "80897a 00", PST_ELIMIT, NULL); /* 10^6 structs out of 4 bytes: stopped by the memory limit at the latest */
}

static void test_plan_recursive_writer_is_bounded(void **state)
{
    static const char *const writer =
        "{'type':'record','name':'Kinds','fields':[{'name':'x','type':{'type':'record','name':'List','fields':["
        "{'name':'next','type':['null','List']}]}},{'name':'i','type':'int'}]}";
    pst_schema *w = schema(writer);
    pst_decode_plan *p = plan(w);
    pst_kinds k;
    pst_err err = {0};
    pst_buf b = {0};
    for (int i = 0; i < 40; i++)
        pst_buf_addc(&b, 2);
    pst_buf_add(&b, "\0\x0c", 2);
    assert_int_equal(pst_decode_run(p, b.data, b.len, &k, &err), 0); /* 40 deep */
    assert_int_equal(k.i, 6);
    pst_event_clear(&pst_kinds_type, &k);
    pst_buf_clear(&b);
    for (int i = 0; i < 200000; i++)
        pst_buf_addc(&b, 2);
    assert_int_equal(pst_decode_run(p, b.data, b.len, &k, &err), PST_ELIMIT);
    assert_non_null(strstr(err.text, "nested deeper"));
    pst_decode_plan_free(p);
    pst_schema_free(w);
    /* a record that holds itself directly has no data at all */
    w = schema(
        "{'type':'record','name':'Kinds','fields':[{'name':'x','type':{'type':'record','name':'Self','fields':[{'name':'a','type':'Self'},"
        "{'name':'b','type':'Self'}]}}]}");
    p = plan(w);
    err = (pst_err){0};
    assert_int_equal(pst_decode_run(p, b.data, b.len, &k, &err), PST_ELIMIT);
    pst_decode_plan_free(p);
    pst_schema_free(w);
    pst_buf_done(&b);
}

/* A recursive writer's record in the place of a record that is not: only the levels that the target has are kept. */
static void test_plan_deep_alternatives_stay_small(void **state)
{
    pst_buf b = {0};
    pst_buf_adds(&b, "{'type':'record','name':'Kinds','fields':[{'name':'x','type':[");
    for (int i = 0; i < 200; i++) {
        pst_buf_printf(&b, "%s{'type':'record','name':'n%d.Inner','fields':[{'name':'a','type':'int'},{'name':'u','type':['null'",
                       i ? "," : "", i);
        for (int k = 0; k < i; k++)
            pst_buf_printf(&b, ",'n%d.Inner'", k);
        pst_buf_adds(&b, "]}]}");
    }
    pst_buf_adds(&b, "]},{'name':'n_in','type':['null'");
    for (int k = 0; k < 200; k++)
        pst_buf_printf(&b, ",'n%d.Inner'", k);
    pst_buf_adds(&b, "]}]}");
    pst_schema *w = schema(b.data);
    pst_decode_plan *p = plan(w);
    pst_decode_plan_free(p);
    pst_schema_free(w);
    pst_buf_done(&b);
}

/* Every prefix of a good record is bad, and every single-byte change either decodes or is refused: never more (run under ASan). */
static void test_plan_truncated_and_changed(void **state)
{
    pst_schema *s = NULL;
    const char *text = pst_type_schema(&pst_kinds_type);
    assert_int_equal(pst_schema_parse(text, strlen(text), &s, NULL), 0);
    pst_buf b =
        bytes_of(s, "{'s':'hello','y':'x','in':{'a':1,'b':'bb'},'n_in':{'a':3},'a_s':['one','two'],'a_in':[{'a':1},{'a':2,'b':'z'}],"
                    "'m_s':{'k':'v'},'m_d':{'k':2},'a_y':['a'],'n_y':'q'}");
    pst_decode_plan *p = plan(s);
    pst_kinds k;
    for (size_t len = 0; len < b.len; len++) {
        void *data = exact(b.data, len);
        assert_true(pst_decode_run(p, data, len, &k, NULL) < 0);
        free(data);
    }
    for (size_t i = 0; i < b.len; i++)
        for (int v = 0; v < 256; v++) {
            uint8_t *data = exact(b.data, b.len);
            data[i] = (uint8_t)v;
            if (pst_decode_run(p, data, b.len, &k, NULL) == 0) {
                pst_buf again = {0};
                pst_event_encode(&pst_kinds_type, &k, &again);
                pst_buf_done(&again);
            }
            pst_event_clear(&pst_kinds_type, &k);
            free(data);
        }
    pst_decode_plan_free(p);
    pst_buf_done(&b);
    pst_schema_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_same_schema_round_trip),
        cmocka_unit_test(test_plan_defaults_fill_what_the_writer_lacks),
        cmocka_unit_test(test_plan_promotions),
        cmocka_unit_test(test_plan_logical_types_are_their_base_types),
        cmocka_unit_test(test_plan_unions),
        cmocka_unit_test(test_plan_enums),
        cmocka_unit_test(test_plan_names_and_aliases),
        cmocka_unit_test(test_plan_skips_everything_else),
        cmocka_unit_test(test_plan_blocks),
        cmocka_unit_test(test_plan_hostile_bytes),
        cmocka_unit_test(test_plan_recursive_writer_is_bounded),
        cmocka_unit_test(test_plan_deep_alternatives_stay_small),
        cmocka_unit_test(test_plan_truncated_and_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
