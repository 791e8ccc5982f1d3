/* Areas under the ROC curve against counting every pair, and confusion matrices. */
#include "trainer/learner/evaluation.h"
#include "trainer/learner/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* By definition: every pair, a tie half. */
static double by_pairs(const learn_scored *s, int class)
{
    double won = 0, pairs = 0;
    for (size_t i = 0; i < s->n; i++)
        for (size_t j = 0; j < s->n; j++) {
            if ((int)s->truth[i] != class || (int)s->truth[j] == class)
                continue;
            float a = s->scores[i * (size_t)s->classes + (size_t) class], b = s->scores[j * (size_t)s->classes + (size_t) class];
            won += a > b ? 1 : a == b ? 0.5 : 0;
            pairs++;
        }
    return pairs > 0 ? won / pairs : NAN;
}

static void test_area_of_two_classes(void **state)
{
    const float truth[] = {0, 0, 1, 1}, perfect[] = {.9f, .1f, .8f, .2f, .3f, .7f, .4f, .6f},
                wrong[] = {.1f, .9f, .2f, .8f, .7f, .3f, .6f, .4f}, same[] = {.5f, .5f, .5f, .5f, .5f, .5f, .5f, .5f},
                mixed[] = {.9f, .1f, .6f, .4f, .65f, .35f, .2f, .8f}; /* as in every textbook */
    assert_true(learn_auc(&(learn_scored){perfect, truth, 4, 2}) == 1);
    assert_true(learn_auc(&(learn_scored){wrong, truth, 4, 2}) == 0);
    assert_true(learn_auc(&(learn_scored){same, truth, 4, 2}) == 0.5);
    assert_true(learn_auc(&(learn_scored){mixed, truth, 4, 2}) == 0.75);
    assert_true(isnan(learn_auc(&(learn_scored){mixed, truth, 2, 2}))); /* one class alone */
    assert_true(isnan(learn_auc(&(learn_scored){mixed, truth, 0, 2})));
    const float broken[] = {NAN, NAN, .6f, .4f, .5f, .5f, .2f, .8f};
    assert_true(isnan(learn_auc(&(learn_scored){broken, truth, 4, 2})));
}

static void test_area_against_pairs(void **state)
{
    enum { N = 300, K = 5 };
    static float scores[N * K], truth[N];
    learn_rng r;
    learn_rng_seed(&r, 3, 3);
    for (size_t i = 0; i < N; i++) {
        truth[i] = (float)(i % 4); /* the fifth class has no row: it does not count */
        for (size_t c = 0; c < K; c++)
            scores[i * K + c] = roundf((float)(8 * learn_rng_normal(&r) + (c == i % 4 ? 5 : 0))); /* many ties */
    }
    learn_scored s = {scores, truth, N, K};
    double mean = 0;
    for (int c = 0; c < 4; c++)
        mean += by_pairs(&s, c) / 4;
    assert_true(fabs(learn_auc(&s) - mean) < 1e-12 && mean > 0.55 && mean < 0.95);
}

static void test_confusion(void **state)
{
    const float truth[] = {0, 1, 2, 2, 0}, scores[] = {.5f, .3f, .2f, .1f, .8f, .1f, .9f, .05f, .05f, 0, 0, 1, .4f, .4f, .2f};
    static const int64_t wanted[] = {2, 0, 0, 0, 1, 0, 1, 0, 1}; /* of equals the first */
    int64_t counts[9];
    learn_confusion(&(learn_scored){scores, truth, 5, 3}, counts);
    assert_memory_equal(counts, wanted, sizeof wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_area_of_two_classes),
        cmocka_unit_test(test_area_against_pairs),
        cmocka_unit_test(test_confusion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
