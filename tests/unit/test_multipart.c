/* test_multipart.c - bodies of forms: as Go's, curl's and Python's clients cut them, and as nobody should. */
#include "common/loop/multipart.h"
#include "tests/unit/test.h"

#include <string.h>

#define TYPE    "multipart/form-data; boundary=xx"
#define NAME(n) "Content-Disposition: form-data; name=\"" n "\"\r\n\r\n"

static pst_part parts[4];
static size_t n;

static int parse(const char *type, const char *body)
{
    pst_err err = {0};
    int rc = pst_multipart_parse(type, (pst_slice){body, strlen(body)}, parts, 4, &n, &err);
    assert_int_equal(rc, err.code);
    assert_true(rc == 0 || (err.cls == PST_CLASS_DATA && *err.text));
    return rc;
}

static void is(const char *name, const char *data)
{
    const pst_part *p = pst_part_find(parts, n, name);
    assert_non_null(p);
    assert_int_equal(p->data.len, strlen(data));
    assert_memory_equal(p->data.data, data, strlen(data));
}

static void test_multipart_parts_are_found_by_name(void **state)
{
    assert_int_equal(
        parse(TYPE, "--xx\r\nContent-Disposition: form-data; name=\"manifest\"; filename=\"manifest.yml\"\r\n"
                    "Content-Type: text/plain; charset=utf-8\r\n\r\nname: a\r\n\r\n--xx\r\n"
                    "content-disposition:form-data;filename=\"a\\\";name=\\\"x\\\"\";name=model_definition\r\n\r\nPK--xx\r\n--xx--\r\n"),
        0);
    assert_int_equal(n, 2);
    is("manifest", "name: a\r\n");
    is("model_definition", "PK--xx");
    assert_null(pst_part_find(parts, n, "x"));
    assert_int_equal(parse("Multipart/Form-Data; charset=x; boundary=\"a b'()+_,-./:=?\"",
                           "preamble\r\n--a b'()+_,-./:=?  \r\n" NAME("e") "\r\n--a b'()+_,-./:=?--"),
                     0);
    is("e", "");
    assert_int_equal(parse(TYPE, "--xx--\r\n"), 0);
    assert_int_equal(n, 0);
}

static void test_multipart_a_line_like_the_boundary_is_data(void **state)
{
    assert_int_equal(parse(TYPE, "--xx\r\n" NAME("a") "1\r\n--xxx\r\n2\r\n--x\r\n--xx--"), 0);
    is("a", "1\r\n--xxx\r\n2\r\n--x");
}

static void test_multipart_malformed_bodies_are_refused(void **state)
{
    static const char *const types[] = {
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"x",
        "text/plain; boundary=xx",
        "",
        "multipart/form-data; boundary=a\"b",
        "multipart/form-data; boundary=\"a \"",
        "multipart/form-data; boundary=01234567890123456789012345678901234567890123456789012345678901234567890"};
    static const char *const bodies[] = {"",
                                         "xx",
                                         "--xx",
                                         "--xx\r\n",
                                         "--xx\r\n\r\n\r\n--xx--",
                                         "--xx\r\n" NAME("a") "1",
                                         "--xx\r\n" NAME("a") "1\r\n--xx",
                                         "a--xx\r\n" NAME("a") "1\r\n--xx--",
                                         "--xx\r\n" NAME("a") "1\r\n--xx\r\n" NAME("a") "2\r\n--xx--",
                                         "--xx\r\n" NAME("") "1\r\n--xx--",
                                         "--xx\r\nContent-Disposition: form-data\r\n\r\n1\r\n--xx--",
                                         "--xx\r\nContent-Disposition: form-data; name=\"a\r\n\r\n1\r\n--xx--",
                                         "--xx\r\nX: y\r\n\r\n1\r\n--xx--",
                                         "--xx\r\nX: \001\r\n" NAME("a") "1\r\n--xx--",
                                         "--xx\r\nContent-Disposition: form-data; name=a\r\n" NAME("b") "1\r\n--xx--",
                                         "--xx\r\n" NAME("0123456789012345678901234567890123456789012345678901234567890123") "1\r\n--xx--"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        assert_int_equal(parse(types[i], "--xx--"), PST_EPARSE);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        if (parse(TYPE, bodies[i]) != PST_EPARSE)
            fail_msg("taken: %s", bodies[i]);
}

static void test_multipart_limits_hold(void **state)
{
    pst_buf b = {0};
    for (int i = 0; i < 5; i++)
        pst_buf_printf(&b, "--xx\r\nContent-Disposition: form-data; name=\"p%d\"\r\n\r\n\r\n", i);
    pst_buf_adds(&b, "--xx--");
    assert_int_equal(parse(TYPE, b.data), PST_ELIMIT);
    pst_buf_clear(&b);
    pst_buf_adds(&b, "--xx\r\nX: ");
    for (int i = 0; i < 5000; i++)
        pst_buf_addc(&b, 'y');
    pst_buf_adds(&b, "\r\n" NAME("a") "1\r\n--xx--");
    assert_int_equal(parse(TYPE, b.data), PST_EPARSE);
    pst_buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_multipart_parts_are_found_by_name),
        cmocka_unit_test(test_multipart_a_line_like_the_boundary_is_data),
        cmocka_unit_test(test_multipart_malformed_bodies_are_refused),
        cmocka_unit_test(test_multipart_limits_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
