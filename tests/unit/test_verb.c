/* The frame of a verb: how many arguments it takes, and what is said of one too few or too many. A usage without arguments has "" or NULL. */
#include "common/platform/verb.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static int parse(const char *args, int args_min, int args_max, const char *word)
{
    const pst_usage usage = {"hello", args, "Say hello.", NULL, "penstock hello", NULL, 0, false};
    char verb[] = "hello", text[16], *argv[] = {verb, word ? text : NULL, NULL};
    snprintf(text, sizeof text, "%s", word ? word : "");
    pst_verb_run v;
    int status = pst_verb_parse(&v, &usage, word ? 2 : 1, argv, NULL, args_min, args_max);
    return status < 0 ? pst_verb_end(&v, 0) : status;
}

static void test_verb_takes_as_many_arguments_as_it_says(void **state)
{
    static const char *const none[] = {NULL, ""};
    setenv("PENSTOCK_STATE_DIR", "/tmp/penstock-test-verb", 1);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(parse(none[i], 0, 0, NULL), 0);
        assert_int_equal(parse(none[i], 0, 0, "you"), 2);
    }
    assert_int_equal(parse("NAME", 1, 1, NULL), 2);
    assert_int_equal(parse("NAME", 1, 1, ""), 2);
    assert_int_equal(parse("NAME", 1, 1, "you"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_verb_takes_as_many_arguments_as_it_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
