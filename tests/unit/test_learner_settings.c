/* penstock.learner: what is right is taken, what is wrong is named, all of it at once. */
#include "schemas/learn_settings.h"

#include "common/base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int parse(const char *yaml, pst_learn_settings *s, char **ret_text)
{
    pst_yaml y;
    pst_err err = {0};
    pst_complaints wrong = {0};
    assert_int_equal(pst_yaml_parse(yaml, strlen(yaml), "test", &y, &err), 0);
    int rc = pst_learn_settings_parse(y.root, "penstock.learner", s, &wrong);
    assert_int_equal(rc<0, wrong.n> 0);
    *ret_text = pst_complaints_text(&wrong);
    pst_complaints_done(&wrong);
    pst_yaml_done(&y);
    return rc;
}

static void expect_good(const char *yaml, pst_learn_settings *s)
{
    char *text;
    if (parse(yaml, s, &text) < 0)
        fail_msg("%s: %s", yaml, text);
    free(text);
}

static void expect_bad(const char *yaml, const char *part)
{
    pst_learn_settings s;
    char *text;
    int rc = parse(yaml, &s, &text);
    if (rc == 0 || !strstr(text, part))
        fail_msg("%s: wanted \"%s\", got \"%s\"", yaml, part, text);
    free(text);
    pst_learn_settings_done(&s);
}

static void test_settings_all_keys(void **state)
{
    pst_learn_settings s;
    expect_good(
        "{model: mlp, features: [a.b, {field: c, scale: 2, offset: -1, missing: value, value: 3}, {field: d, slots: 4, missing: reject}],"
        " target: kind, classes: [red, green, 7], hidden: [5, 6], activation: elu, epochs: 3, batch: 9, learning_rate: 0.5,"
        " weight_decay: 0.25, validation: 0.4, seed: 12, patience: 2, checkpoint_every: 5, data: a/b.csv}",
        &s);
    assert_false(s.autoencoder);
    assert_int_equal(s.n_features, 3);
    assert_string_equal(s.features[0].field, "a.b");
    assert_int_equal(s.features[0].missing, PST_LEARN_MISSING_MEAN);
    assert_true(s.features[1].scale == 2 && s.features[1].offset == -1 && s.features[1].value == 3);
    assert_int_equal(s.features[1].missing, PST_LEARN_MISSING_VALUE);
    assert_int_equal(s.features[2].missing, PST_LEARN_MISSING_REJECT);
    assert_int_equal(pst_learn_columns(&s), 6);
    assert_int_equal(s.n_classes, 3);
    assert_string_equal(s.classes[2], "7");
    assert_int_equal(s.loss, PST_LOSS_CROSS_ENTROPY);
    assert_int_equal(s.n_hidden, 2);
    assert_int_equal(s.activation, PST_ACTIVATION_ELU);
    assert_true(s.epochs == 3 && s.batch == 9 && s.learning_rate == 0.5 && s.weight_decay == 0.25 && s.validation == 0.4);
    assert_true(s.seed == 12 && s.patience == 2 && s.checkpoint_every == 5);
    assert_string_equal(s.data, "a/b.csv");
    pst_learn_settings_done(&s);
}

static void test_settings_defaults(void **state)
{
    pst_learn_settings s;
    expect_good("{}", &s);
    assert_true(s.autoencoder && s.n_features == 0 && s.n_hidden == 3 && s.epochs == 20 && s.loss == PST_LOSS_MSE);
    pst_learn_settings_done(&s);
    expect_good("{target: y}", &s); /* a target says that it is no autoencoder */
    assert_true(!s.autoencoder && s.n_classes == 0 && s.loss == PST_LOSS_MSE);
    pst_learn_settings_done(&s);
}

static void test_settings_wrong_ones_are_named(void **state)
{
    expect_bad("{epohcs: 3}", "penstock.learner.epohcs: is not a known key; did you mean epochs?");
    expect_bad("{epochs: 0}", "penstock.learner.epochs: must be a whole number from 1");
    expect_bad("{epochs: ten}", "found \"ten\"");
    expect_bad("{model: autoencodr}", "did you mean autoencoder?");
    expect_bad("{hidden: []}", "penstock.learner.hidden");
    expect_bad("{features: [{field: a, one_hot: all}]}", "features[0].one_hot: must be a list of 1 to 1000 words, or learn, found \"all\"");
    expect_bad("{features: [{field: a, one_hot: []}]}", "features[0].one_hot: must be a list");
    expect_bad("{features: [{field: a, one_hot: [x, y, x]}]}", "x is there twice");
    expect_bad("{features: [{field: a, one_hot: [x, 1.5]}]}", "word 1 must be a text, a whole number or a boolean");
    expect_bad("{features: [{field: a, one_hot: learn, scale: 2}]}", "features[0].scale: is for numbers");
    expect_bad("{features: [{field: a, one_hot: learn, missing: mean}]}", "there is no mean of words");
    expect_bad("{features: [{field: a, one_hot: learn, unknown: reject}]}", "reject goes with a list of words");
    expect_bad("{features: [{field: a, one_hot: [x], words_max: 3}]}", "it needs one_hot: learn");
    expect_bad("{features: [{field: a, unknown: other}]}", "it needs one_hot");
    expect_bad("{features: [{field: a, missing: zeros}]}", "write value: 0");
    expect_bad("{features: [{field: a, one_hot: learn, words_max: 1000}, {field: b, slots: 9001}]}", "fill 10001 slots");
    expect_bad("{hidden: [8, -1]}", "penstock.learner.hidden");
    expect_bad("{hidden: [999999]}", "from 1 to 8192");
    expect_bad("{validation: 0.95}", "penstock.learner.validation");
    expect_bad("{learning_rate: 0}", "penstock.learner.learning_rate: must be a number above 0");
    expect_bad("{features: []}", "penstock.learner.features");
    expect_bad("{features: [{scale: 2}]}", "penstock.learner.features[0].field: is missing");
    expect_bad("{features: [a, b, a]}", "penstock.learner.features[2]: a is there twice");
    expect_bad("{features: [{field: a, scle: 2}]}", "did you mean scale?");
    expect_bad("{features: [{field: a, scale: 0}]}", "is 0");
    expect_bad("{features: [{field: a, missing: value}]}", "needs the number");
    expect_bad("{features: [{field: a, missing: nan}]}", "must be one of mean, value, reject");
    expect_bad("{model: mlp}", "penstock.learner.target: is missing");
    expect_bad("{model: autoencoder, target: y}", "an autoencoder has no target");
    expect_bad("{target: y, features: [x, y]}", "y is the target");
    expect_bad("{target: y, classes: 1}", "from 2");
    expect_bad("{target: y, classes: [a, a]}", "a is there twice");
    expect_bad("{target: y, loss: cross_entropy}", "needs classes");
    expect_bad("{target: y, other_classes: leave_out}", "needs classes");
    expect_bad("{target: y, classes: 2, other_classes: ignore}", "error, leave_out");
    expect_bad("{target: y, classes: 2, loss: mse}", "does not go with classes");
    expect_bad("{patience: 3, validation: 0}", "needs a validation part");
    expect_bad("[1]", "must be a mapping");
}

static void test_settings_all_wrong_ones_at_once(void **state)
{
    pst_learn_settings s;
    char *text;
    assert_true(parse("{epochs: 0, batch: 0, seed: -1, unknown: 1}", &s, &text) < 0);
    for (size_t i = 0; i < 4; i++)
        assert_non_null(strstr(text, (const char *[]){"epochs", "batch", "seed", "unknown"}[i]));
    free(text);
    pst_learn_settings_done(&s);
}

/* Submit and Trainer hear of it too: the job is refused before anything runs. */
static void test_manifest_refuses_wrong_settings(void **state)
{
    static const char *const texts[] = {
        "name: a\nframework: {name: native}\npenstock: {learner: {epohcs: 3, batch: 0}}\n",
        "name: a\nframework: {name: native, command: \"{epohcs: 3, batch: 0}\"}\n",
        "name: a\nframework: {name: native, command: \"{epochs: 3}\"}\npenstock: {learner: {epochs: 3}}\n",
    };
    static const char *const parts[] = {"penstock.learner.batch", "framework.command.batch", "keep one of them"};
    for (size_t i = 0; i < 3; i++) {
        pst_manifest m;
        pst_complaints errors = {0}, warnings = {0};
        assert_true(pst_manifest_parse(texts[i], strlen(texts[i]), &m, &errors, &warnings) < 0);
        char *text = pst_complaints_text(&errors);
        if (!strstr(text, parts[i]) || (i < 2 && !strstr(text, "did you mean epochs?")))
            fail_msg("%s", text);
        free(text);
        pst_manifest_done(&m);
        pst_complaints_done(&errors);
        pst_complaints_done(&warnings);
    }
}

static void test_settings_digest_tells_trainings_apart(void **state)
{
    pst_learn_settings a, b, c;
    expect_good("{hidden: [4], epochs: 3}", &a);
    expect_good("{hidden: [4], epochs: 9}", &b);
    expect_good("{hidden: [5], epochs: 3}", &c);
    char *da = pst_learn_settings_digest(&a), *db = pst_learn_settings_digest(&b), *dc = pst_learn_settings_digest(&c);
    assert_string_equal(da, db); /* more epochs go on from the same checkpoint */
    assert_string_not_equal(da, dc);
    free(da);
    free(db);
    free(dc);
    pst_learn_settings_done(&a);
    pst_learn_settings_done(&b);
    pst_learn_settings_done(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings_all_keys),
        cmocka_unit_test(test_settings_defaults),
        cmocka_unit_test(test_settings_wrong_ones_are_named),
        cmocka_unit_test(test_settings_all_wrong_ones_at_once),
        cmocka_unit_test(test_manifest_refuses_wrong_settings),
        cmocka_unit_test(test_settings_digest_tells_trainings_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
