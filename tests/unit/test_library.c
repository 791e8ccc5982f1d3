/* test_library.c - shared libraries opened at first use: what is there works, what is not is refused with the cure, and can come later. */
#include "tests/unit/test.h"

#include "common/base/library.h"

#include <string.h>

static double (*cosine)(double);
static void (*nothing)(void);

static void test_library_calls_what_it_opened(void **state)
{
    const pst_library_call calls[] = {{"cos", &cosine}};
    pst_library m = {"libm.so.6", "a test", "libc6", calls, 1, NULL, NULL};
    pst_err err = {0};
    assert_int_equal(pst_library_open(&m, &err), 0);
    assert_true(cosine(0) == 1);
    void *first = m.handle;
    assert_int_equal(pst_library_open(&m, &err), 0);
    assert_ptr_equal(m.handle, first);
}

static void test_library_that_is_missing_is_an_error_with_a_cure(void **state)
{
    const pst_library_call calls[] = {{"cos", &cosine}};
    pst_library none = {"libpenstock-no-such-library.so.9", "a store in a test", "libnosuch9", calls, 1, NULL, NULL};
    pst_err err = {0};
    assert_int_equal(pst_library_open(&none, &err), PST_EUNSUPPORTED);
    assert_int_equal(err.cls, PST_CLASS_FATAL);
    assert_non_null(strstr(err.text, "a store in a test needs libpenstock-no-such-library.so.9"));
    assert_non_null(strstr(err.text, "Debian's package libnosuch9"));
    none.file = "libm.so.6"; /* installed meanwhile */
    assert_int_equal(pst_library_open(&none, NULL), 0);
}

static void test_library_without_a_function_stays_closed(void **state)
{
    const pst_library_call calls[] = {{"cos", &cosine}, {"pst_no_such_function", &nothing}};
    pst_library m = {"libm.so.6", "a test", "libc6", calls, 2, NULL, NULL};
    pst_err err = {0};
    assert_int_equal(pst_library_open(&m, &err), PST_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "pst_no_such_function"));
    assert_null(m.handle);
    assert_null(nothing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_library_calls_what_it_opened),
        cmocka_unit_test(test_library_that_is_missing_is_an_error_with_a_cure),
        cmocka_unit_test(test_library_without_a_function_stays_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
