/* Texts cut into tokens: com.microsoft.Tokenizer against what ONNX Runtime 1.31 gave for the same, expressions it must refuse, and those that
 * would take other engines for ever. tests/live/oracle/text.py compares with ONNX Runtime itself, on many more. */
#include "tests/unit/engine_kit.h"

#include "engine/heap.h"

typedef struct how {
    const char *expression; /* NULL: separators, up to NULL */
    const char *separators[5];
    int mark, least;
} how;

static pst_onnx_builder *tokenizer(const how *h)
{
    pst_onnx_builder *b = pst_onnx_new("text", 17, 8);
    size_t n = 0;
    while (n < 5 && h->separators[n])
        n++;
    pst_onnx_input(b, "x", PST_STR, 1, (int64_t[]){-1}, NULL);
    kit_node(b, "Tokenizer x > y");
    pst_onnx_domain(b, "com.microsoft", 1);
    if (h->expression)
        pst_onnx_attr_str(b, "tokenexp", h->expression);
    else
        pst_onnx_attr_strs(b, "separators", h->separators, n);
    pst_onnx_attr_int(b, "mark", h->mark);
    pst_onnx_attr_int(b, "mincharnum", h->least);
    pst_onnx_attr_str(b, "pad_value", "#");
    pst_onnx_output(b, "y", PST_STR, 2, (int64_t[]){-1, -1}, NULL);
    return b;
}

static pst_tensor texts(const char *const *x, int64_t n)
{
    return (pst_tensor){.dtype = PST_STR, .rank = 1, .dims = {n}, .data = (void *)(uintptr_t)x};
}

/* Rows in one text: tokens end with '|', rows with '/'. */
static void flat(const pst_tensor *t, char *ret, size_t room)
{
    *ret = 0;
    for (int64_t i = 0; i < t->dims[0]; i++) {
        for (int64_t k = 0; k < t->dims[1]; k++)
            snprintf(ret + strlen(ret), room - strlen(ret), "%s|", ((const char *const *)t->data)[i * t->dims[1] + k]);
        snprintf(ret + strlen(ret), room - strlen(ret), "/");
    }
}

static void gives(const how *h, const char *const *x, int64_t n, const char *want)
{
    pst_model *m = kit_load(tokenizer(h), NULL);
    pst_plan *p = kit_plan(m, NULL, false);
    pst_tensor in = texts(x, n), out;
    pst_err err = {0};
    char got[2000];
    if (pst_plan_run(p, &in, 1, &out, 1, &err) < 0)
        fail_msg("%s: %s", h->expression ? h->expression : h->separators[0], err.text);
    flat(&out, got, sizeof got);
    assert_string_equal(got, want);
    pst_plan_free(p);
    pst_model_unref(m);
}

#define TEXTS(...) (const char *const[]){__VA_ARGS__}, (int64_t)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void test_words(void **state)
{
    const how words = {.expression = "[a-zA-Z0-9_]+", .least = 1}, marked = {.expression = "[a-zA-Z0-9_]+", .mark = 1, .least = 2};
    gives(&words, TEXTS("a bb ccc", "", "x", "\xc3\xa9\xc3\xa9 \xc3\x9f bb"), "a|bb|ccc|/#|#|#|/x|#|#|/bb|#|#|/");
    gives(&marked, TEXTS("a bb ccc", "", "x"), "\x02|bb|ccc|\x03|/\x02|\x03|#|#|/\x02|\x03|#|#|/");
    gives(&words, TEXTS("", "!"), "//"); /* no token anywhere: no column */
    gives(&marked, TEXTS("", "!"), "//");
}

static void test_separators(void **state)
{
    gives(&(how){.separators = {" ", ";", ", "}, .least = 1}, TEXTS("a b;c, d"), "a|b|c,|d|/");
    gives(&(how){.separators = {", ", " ", ";"}, .least = 1}, TEXTS("a b;c, d"), "a|b|c|d|/");
    gives(&(how){.separators = {"[0-9]+"}, .least = 1}, TEXTS("a1b22c", "1"), "a|b|c|/#|#|#|/");
    gives(&(how){.separators = {""}, .least = 1}, TEXTS("ab\xc3\xa9", ""), "a|b|\xc3\xa9|/#|#|#|/");
    gives(&(how){.separators = {"a", "ab"}, .least = 1}, TEXTS("aababb"), "b|bb|/");
    gives(&(how){.separators = {"x*"}, .least = 1}, TEXTS("abc"), "/");
}

static void test_expressions(void **state)
{
    gives(&(how){.expression = "a|ab|abc", .least = 1}, TEXTS("abc abd"), "abc|ab|/"); /* the longest, not the first */
    gives(&(how){.expression = "abcd|c", .least = 1}, TEXTS("abcx abcd"), "c|abcd|/");
    gives(&(how){.expression = "ab|bcd", .least = 3}, TEXTS("abcd"), "bcd|/"); /* what is too short is left by one character */
    gives(&(how){.expression = "\\b\\w\\w+\\b", .least = 1}, TEXTS("ab cde f gh"), "ab|cde|gh|/");
    gives(&(how){.expression = "^a", .least = 1}, TEXTS("a b a"), "a|/");
    gives(&(how){.expression = "(?m)^.", .least = 1}, TEXTS("a\nb a"), "a|b|/");
    gives(&(how){.expression = ".*?", .least = 1}, TEXTS("a b"), "a b|/");
    gives(&(how){.expression = "(?i)k", .least = 1}, TEXTS("kK\xe2\x84\xaa"), "k|K|\xe2\x84\xaa|/");
    gives(&(how){.expression = "x{2", .least = 1}, TEXTS("x{2 xx"), "x{2|/");
    gives(&(how){.expression = "(?:ab){1,2}c?", .least = 1}, TEXTS("ababababc"), "abab|ababc|/");
    gives(&(how){.expression = "[^\\W\\d]+", .least = 1}, TEXTS("a1b_c \xc3\xa9"), "a|b_c|/");
}

static void refused(const how *h, int code, const char *says)
{
    pst_model *m = kit_load(tokenizer(h), NULL);
    pst_err err = {0};
    pst_plan *p = NULL;
    assert_int_equal(pst_plan_new(m, &(pst_plan_opts){.backend = "engine"}, &p, &err), code);
    if (!strstr(err.text, says))
        fail_msg("\"%s\" does not say \"%s\"", err.text, says);
    pst_model_unref(m);
}

/* ---- StringNormalizer ---- */

static int normalised(const char *change, const char *locale, const char *const *x, int64_t n, char *ret, size_t room)
{
    pst_onnx_builder *b = pst_onnx_new("case", 17, 8);
    pst_onnx_input(b, "x", PST_STR, 1, (int64_t[]){-1}, NULL);
    kit_node(b, "StringNormalizer x > y");
    pst_onnx_attr_str(b, "case_change_action", change);
    pst_onnx_attr_strs(b, "stopwords", (const char *const[]){"\u00dcber", "of"}, 2);
    if (locale)
        pst_onnx_attr_str(b, "locale", locale);
    pst_onnx_output(b, "y", PST_STR, 1, (int64_t[]){-1}, NULL);
    pst_model *m = kit_load(b, NULL);
    pst_plan *p = NULL;
    pst_err err = {0};
    pst_tensor in = texts(x, n), out;
    int rc = pst_plan_new(m, &(pst_plan_opts){.backend = "engine"}, &p, &err);
    rc = rc == 0 ? pst_plan_run(p, &in, 1, &out, 1, &err) : rc;
    *ret = 0;
    for (int64_t i = 0; rc == 0 && i < out.dims[0]; i++)
        snprintf(ret + strlen(ret), room - strlen(ret), "%s|", ((const char *const *)out.data)[i]);
    if (rc < 0)
        snprintf(ret, room, "%s", err.text);
    pst_plan_free(p);
    pst_model_unref(m);
    return rc;
}

/* Latin, Greek, Cyrillic, letters whose other case is shorter or longer; stop words whatever their case. */
static void test_case_of_letters(void **state)
{
    static const char *const x[] = {"Stra\u00dfe", "\u00fcBER", "\u03b1\u0392\u03c3", "\u0416\u0438\u0437\u043d\u044c", "\u0131\u0250",
                                    "OF",          "\u65e5"};
    char got[600];
    assert_int_equal(normalised("UPPER", "en_US", x, 7, got, sizeof got), 0);
    assert_string_equal(got, "STRA\u00dfE|\u0391\u0392\u03a3|\u0416\u0418\u0417\u041d\u042c|I\u2c6f|\u65e5|");
    assert_int_equal(normalised("LOWER", NULL, x, 4, got, sizeof got), 0);
    assert_string_equal(got, "stra\u00dfe|\u03b1\u03b2\u03c3|\u0436\u0438\u0437\u043d\u044c|");
    assert_int_equal(normalised("LOWER", "tr_TR", x, 1, got, sizeof got), PST_EUNSUPPORTED);
    assert_non_null(strstr(got, "tr_TR"));
    static const char *const bad[] = {"\xc3", "a\xff", "\xed\xa0\x80"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(normalised("UPPER", "C", bad + i, 1, got, sizeof got), PST_EINVAL);
}

static void test_what_is_refused(void **state)
{
    static const char *const wrong[] = {"(",      ")",   "a)",  "[a",    "[z-a]",   "*",        "a**",         "a{2}{3}", "a{1001}",
                                        "a{3,2}", "\\1", "\\e", "(?u)a", "(?P<>a)", "[[:no:]]", "\\x{110000}", "a\\",     "\xff"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refused(&(how){.expression = wrong[i], .least = 1}, PST_EINVAL, "expression");
    refused(&(how){.expression = "\\p{Greek}", .least = 1}, PST_EUNSUPPORTED, "not covered");
    refused(&(how){.expression = "(?i)\xc3\xa9", .least = 1}, PST_EUNSUPPORTED, "without regard to case");
    refused(&(how){.expression = "((a{1000}){1000}){1000}", .least = 1}, PST_EUNSUPPORTED, "repetitions");
    refused(&(how){.expression = "(((){1000}){1000}){1000}", .least = 1}, PST_EUNSUPPORTED, "repetitions");
    refused(&(how){.expression = "a", .least = 0}, PST_EINVAL, "mincharnum");
    refused(&(how){.expression = ".", .least = 2}, PST_EINVAL, "mincharnum");
    char deep[500];
    memset(deep, '(', 150);
    memset(deep + 150, ')', 150);
    deep[300] = 0;
    refused(&(how){.expression = deep, .least = 1}, PST_EUNSUPPORTED, "groups");
    char *longer = malloc(20001);
    memset(longer, 'a', 20000);
    longer[20000] = 0;
    refused(&(how){.expression = longer, .least = 1}, PST_ELIMIT, "expression");
    free(longer);
}

static void test_text_that_is_no_utf8_is_refused(void **state)
{
    static const char *const bad[] = {"\x80", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x28\xa1"};
    pst_model *m = kit_load(tokenizer(&(how){.expression = "a", .least = 1}), NULL);
    pst_plan *p = kit_plan(m, NULL, false);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pst_tensor in = texts(&bad[i], 1), out;
        pst_err err = {0};
        assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), PST_EINVAL);
        assert_non_null(strstr(err.text, "UTF-8"));
    }
    pst_plan_free(p);
    pst_model_unref(m);
}

/* Engines that try one way after the other need 2^n steps for these; and what is long all the same ends at the run's bound. */
static void test_time_is_bounded(void **state)
{
    enum { N = 1 << 20 };
    char *x = malloc(N + 1);
    memset(x, 'a', N);
    x[N] = 0;
    gives(&(how){.expression = "(a|a)*b|(a*)*c", .least = 1}, (const char *const[]){x}, 1, "/");
    pst_model *m = kit_load(tokenizer(&(how){.expression = "(a?){900}(a?){900}b", .least = 1}), NULL);
    pst_plan *p = kit_plan(m, NULL, false);
    pst_err err = {0};
    pst_tensor in = texts((const char *const[]){x}, 1), out;
    assert_int_equal(pst_plan_limit(p, &(pst_run_limits){.ms_max = 50}, &err), 0);
    assert_int_equal(pst_plan_run(p, &in, 1, &out, 1, &err), PST_ETIMEDOUT);
    pst_plan_free(p);
    pst_model_unref(m);
    free(x);
}

/* The n-th allocation of plan and run fails, for every n. */
static void test_memory_that_runs_out(void **state)
{
    const how h = {.separators = {"[a-c]+", " |\\b"}, .mark = 1, .least = 1};
    char many[4000];
    for (size_t i = 0; i < sizeof many; i++)
        many[i] = i % 3 ? 'x' : ' ';
    many[sizeof many - 1] = 0;
    pst_tensor in = texts((const char *const[]){many, "one two"}, 2), out;
    for (uint64_t n = 1, hit = 1; hit; n++) {
        pst_model *m = kit_load(tokenizer(&h), NULL);
        pst_plan *p = NULL;
        pst_err err = {0};
        eng_heap_test_fail(n, true);
        int rc = pst_plan_new(m, NULL, &p, &err);
        rc = rc == 0 ? pst_plan_run(p, &in, 1, &out, 1, &err) : rc;
        hit = eng_heap_test_fail(0, false) >= n;
        assert_int_equal(rc, hit ? PST_ENOMEM : 0);
        assert_int_equal(p ? pst_plan_run(p, &in, 1, &out, 1, NULL) : 0, 0);
        pst_plan_free(p);
        pst_model_unref(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words),           cmocka_unit_test(test_separators),
                                       cmocka_unit_test(test_expressions),     cmocka_unit_test(test_case_of_letters),
                                       cmocka_unit_test(test_what_is_refused), cmocka_unit_test(test_text_that_is_no_utf8_is_refused),
                                       cmocka_unit_test(test_time_is_bounded), cmocka_unit_test(test_memory_that_runs_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
