/* test_psi.c - bins and the population stability index against numpy's figures (searchsorted, and sum((a-e)*log(a/e)) with shares of 0 as 0.0001). */
#include "inference/state/psi.h"
#include "tests/unit/test.h"

#include <math.h>

static const double tenths[10] = {.1, .1, .1, .1, .1, .1, .1, .1, .1, .1};

static void is(double psi, double want)
{
    if (!(fabs(psi - want) < 1e-12))
        fail_msg("%.17g is not %.17g", psi, want);
}

static void test_psi_is_numpys(void **state)
{
    is(pst_psi(tenths, (const uint64_t[]){100, 100, 100, 100, 100, 100, 100, 100, 100, 100}, 10), 0);
    is(pst_psi(tenths, (const uint64_t[]){0, 0, 50, 100, 150, 200, 200, 150, 100, 50}, 10), 1.628660169719431);
    is(pst_psi((const double[]){.25, .25, .5}, (const uint64_t[]){10, 0, 990}, 3), 3.062476749987513);
    is(pst_psi((const double[]){.2, .3, .5}, (const uint64_t[]){7, 11, 13}, 3), 0.02652299468545635);
    is(pst_psi(tenths, (const uint64_t[10]){0}, 10), 0); /* nothing seen */
    is(pst_psi((const double[]){1}, (const uint64_t[]){5}, 1), 0);
}

static void test_psi_bins_are_numpys(void **state)
{
    static const double edges[] = {-1, 0, 0.5, 2}, x[] = {-5, -1, -0.5, 0, 0.25, 0.5, 2, 3};
    static const size_t want[] = {0, 0, 1, 1, 2, 2, 3, 4};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        assert_int_equal(pst_psi_bin(edges, 4, x[i]), want[i]);
    assert_int_equal(pst_psi_bin(NULL, 0, 7), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_psi_is_numpys), cmocka_unit_test(test_psi_bins_are_numpys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
