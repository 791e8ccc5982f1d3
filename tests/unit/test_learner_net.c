/* The arithmetic of the learner: gradients against finite differences, known problems learned, the same bits for the same seed. */
#include "trainer/learner/net.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void fill(learn_rng *r, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)learn_rng_normal(r);
}

/* Central differences of the loss by every parameter beside what backward says. Relu and its kin have a kink where a difference is
 * meaningless, so a few parameters may be off there; the smooth ones may not. */
static void check_gradient(pst_activation act, pst_loss loss, int may_differ)
{
    enum { ROWS = 7 };
    const int widths[] = {5, 6, 4, 3};
    learn_net *n = learn_net_new(widths, 4, act, loss, ROWS);
    learn_rng r;
    float x[ROWS * 5], t[ROWS * 3];
    learn_rng_seed(&r, 11, (uint64_t)act);
    learn_net_init(n, &r);
    fill(&r, x, ROWS * 5);
    fill(&r, t, ROWS * 3);
    for (int i = 0; loss == PST_LOSS_CROSS_ENTROPY && i < ROWS; i++)
        t[i] = (float)(i % 3);
    learn_net_backward(n, x, t, ROWS, NULL);
    size_t p = learn_net_parameters(n);
    float *g = malloc(p * sizeof *g), *v = learn_net_values(n);
    memcpy(g, learn_net_gradient(n), p * sizeof *g);
    int off = 0;
    for (size_t i = 0; i < p; i++) {
        const float h = 4e-3f;
        float keep = v[i];
        v[i] = keep + h;
        double up = learn_net_loss(n, x, t, ROWS, NULL, NULL), width = (double)v[i];
        v[i] = keep - h;
        double down = learn_net_loss(n, x, t, ROWS, NULL, NULL);
        width -= (double)v[i];
        v[i] = keep;
        double want = (up - down) / width;
        off += fabs(want - (double)g[i]) > 2e-3 * fmax(1, fabs(want));
    }
    if (off > may_differ)
        fail_msg("activation %d, loss %d: %d of %zu gradients are wrong", (int)act, (int)loss, off, p);
    free(g);
    learn_net_free(n);
}

static void test_gradient_equals_finite_differences(void **state)
{
    for (int loss = 0; loss < 2; loss++) {
        check_gradient(PST_ACTIVATION_TANH, (pst_loss)loss, 0);
        check_gradient(PST_ACTIVATION_SIGMOID, (pst_loss)loss, 0);
        check_gradient(PST_ACTIVATION_ELU, (pst_loss)loss, 2);
        check_gradient(PST_ACTIVATION_RELU, (pst_loss)loss, 5);
        check_gradient(PST_ACTIVATION_LEAKY_RELU, (pst_loss)loss, 5);
    }
}

static void test_xor_is_learned(void **state)
{
    const float x[] = {0, 0, 0, 1, 1, 0, 1, 1}, t[] = {0, 1, 1, 0};
    learn_net *n = learn_net_new((int[]){2, 8, 2}, 3, PST_ACTIVATION_TANH, PST_LOSS_CROSS_ENTROPY, 4);
    learn_rng r;
    learn_rng_seed(&r, 3, 0);
    learn_net_init(n, &r);
    double loss = 0;
    int right = 0;
    for (int i = 0; i < 500; i++)
        loss = learn_net_step(n, x, t, 4, &(learn_adam){.rate = 0.02}, &right);
    assert_true(loss < 0.02);
    assert_int_equal(right, 4);
    const float *y = learn_net_forward(n, x, 4);
    for (int i = 0; i < 4; i++) {
        assert_true(fabsf(y[2 * i] + y[2 * i + 1] - 1) < 1e-5f); /* probabilities */
        assert_int_equal(y[2 * i + 1] > 0.5f, (int)t[i]);
    }
    learn_net_free(n);
}

static void test_regression_is_learned(void **state)
{
    enum { ROWS = 256 };
    learn_net *n = learn_net_new((int[]){2, 24, 24, 1}, 4, PST_ACTIVATION_RELU, PST_LOSS_MSE, ROWS);
    float x[ROWS * 2], t[ROWS];
    learn_rng r;
    learn_rng_seed(&r, 5, 0);
    learn_net_init(n, &r);
    fill(&r, x, ROWS * 2);
    for (int i = 0; i < ROWS; i++)
        t[i] = x[2 * i] * x[2 * i + 1] + 0.5f * x[2 * i];
    double first = learn_net_loss(n, x, t, ROWS, NULL, NULL), last = 0;
    for (int i = 0; i < 1500; i++)
        last = learn_net_step(n, x, t, ROWS, &(learn_adam){.rate = 0.005}, NULL);
    assert_true(first > 0.3);
    assert_true(last < 0.01);
    learn_net_free(n);
}

static void test_same_seed_same_bits(void **state)
{
    float out[2][3];
    for (int run = 0; run < 2; run++) {
        learn_net *n = learn_net_new((int[]){4, 7, 3}, 3, PST_ACTIVATION_ELU, PST_LOSS_MSE, 9);
        float x[9 * 4], t[9 * 3];
        learn_rng r;
        learn_rng_seed(&r, 77, 1);
        learn_net_init(n, &r);
        for (int i = 0; i < 50; i++) {
            fill(&r, x, 9 * 4);
            fill(&r, t, 9 * 3);
            learn_net_step(n, x, t, 9, &(learn_adam){.rate = 0.01, .weight_decay = 0.01}, NULL);
        }
        memcpy(out[run], learn_net_forward(n, x, 1), sizeof out[run]);
        learn_net_free(n);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
}

static void test_weight_decay_shrinks_weights_not_biases(void **state)
{
    learn_net *n = learn_net_new((int[]){1, 1}, 2, PST_ACTIVATION_RELU, PST_LOSS_MSE, 1);
    learn_net_values(n)[0] = 2;
    learn_net_values(n)[1] = 3;
    const float x = 0, t = 3; /* the prediction is right and x is 0: no gradient at all */
    learn_net_step(n, &x, &t, 1, &(learn_adam){.rate = 0.1, .weight_decay = 0.5}, NULL);
    assert_true(fabsf(learn_net_values(n)[0] - 1.9f) < 1e-6f);
    assert_true(fabsf(learn_net_values(n)[1] - 3) < 1e-6f);
    learn_net_free(n);
}

static void test_loss_that_is_no_number_leaves_parameters(void **state)
{
    learn_net *n = learn_net_new((int[]){1, 1}, 2, PST_ACTIVATION_RELU, PST_LOSS_MSE, 1);
    learn_net_values(n)[0] = 2;
    const float x = INFINITY, t = 0;
    assert_false(isfinite(learn_net_step(n, &x, &t, 1, &(learn_adam){.rate = 0.1}, NULL)));
    assert_true(learn_net_values(n)[0] == 2);
    assert_int_equal(learn_net_steps(n), 0);
    learn_net_free(n);
}

static void test_rng_is_even_and_shuffles_all(void **state)
{
    learn_rng r;
    double sum = 0, squares = 0;
    uint32_t at[100], seen[100] = {0};
    learn_rng_seed(&r, 1, 2);
    for (int i = 0; i < 20000; i++) {
        double x = learn_rng_normal(&r);
        sum += x;
        squares += x * x;
    }
    assert_true(fabs(sum / 20000) < 0.03 && fabs(squares / 20000 - 1) < 0.05);
    for (uint32_t i = 0; i < 100; i++)
        at[i] = i;
    learn_rng_shuffle(&r, at, 100);
    int moved = 0;
    for (uint32_t i = 0; i < 100; i++) {
        seen[at[i]]++;
        moved += at[i] != i;
    }
    for (int i = 0; i < 100; i++)
        assert_int_equal(seen[i], 1);
    assert_true(moved > 80);
    for (int i = 0; i < 1000; i++)
        assert_true(learn_rng_below(&r, 7) < 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient_equals_finite_differences),
        cmocka_unit_test(test_xor_is_learned),
        cmocka_unit_test(test_regression_is_learned),
        cmocka_unit_test(test_same_seed_same_bits),
        cmocka_unit_test(test_weight_decay_shrinks_weights_not_biases),
        cmocka_unit_test(test_loss_that_is_no_number_leaves_parameters),
        cmocka_unit_test(test_rng_is_even_and_shuffles_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
