/* Features that are words: which are taken, that neither order nor rank changes it, what becomes of others, and what a file says of them. */
#include "trainer/learner/words.h"

#include "common/base/fs.h"
#include "common/base/yaml.h"
#include "trainer/learner/sources.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];

static int make_dir(void **state)
{
    strcpy(dir, "/tmp/learner-words-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
    return pst_fs_remove_tree(dir, NULL);
}

static bool never(void *arg)
{
    return false;
}

static void silent(void *arg, const char *fmt, ...)
{
}

static const learn_source_hooks hooks = {NULL, never, silent};

static void settings(const char *yaml, pst_learn_settings *s)
{
    pst_yaml y;
    pst_complaints wrong = {0};
    assert_int_equal(pst_yaml_parse(yaml, strlen(yaml), "test", &y, NULL), 0);
    if (pst_learn_settings_parse(y.root, "learner", s, &wrong) < 0)
        fail_msg("%s: %s", wrong.at[0].field, wrong.at[0].text);
    pst_yaml_done(&y);
}

static void put(const char *text)
{
    char *path = pst_fs_join(dir, "t.csv");
    assert_int_equal(pst_fs_write_atomic(path, text, strlen(text), 0644, NULL), 0);
    free(path);
}

/* Reads t.csv and settles its words; d and s are the caller's to end. */
static void read_csv(const char *learner, const char *text, pst_learn_settings *s, learn_data *d)
{
    pst_err err = {0};
    settings(learner, s);
    put(text);
    learn_data_init(d, s, 1 << 20);
    if (learn_data_read_csv(d, s, dir, NULL, 0, &hooks, &err) < 0 || learn_words_settle(d, s, &err) < 0)
        fail_msg("%s", err.text);
}

static void done(pst_learn_settings *s, learn_data *d)
{
    learn_data_done(d);
    pst_learn_settings_done(s);
}

static void assert_words(const pst_learn_feature *f, int n, ...)
{
    va_list ap;
    va_start(ap, n);
    assert_int_equal(f->n_words, n);
    for (int i = 0; i < n; i++)
        assert_string_equal(f->words[i], va_arg(ap, const char *));
    va_end(ap);
}

#define ROW(d, r) ((d).x + (r) * (size_t)(d).columns)

static void assert_row(const learn_data *d, size_t r, const float *want)
{
    for (int i = 0; i < d->columns; i++)
        if (ROW(*d, r)[i] != want[i])
            fail_msg("row %zu, column %d: %g, not %g", r, i, (double)ROW(*d, r)[i], (double)want[i]);
}

static void test_learnt_words_stand_in_the_order_of_their_bytes(void **state)
{
    pst_learn_settings s;
    learn_data d;
    read_csv("{features: [a, {field: kind, one_hot: learn}, b]}", "a,kind,b\n1,udp,2\n3,tcp,4\n5,,6\n7,icmp,8\n9,tcp,10\n", &s, &d);
    assert_words(&s.features[1], 3, "icmp", "tcp", "udp");
    assert_int_equal(d.columns, 5);
    assert_int_equal(pst_learn_columns(&s), 5);
    assert_int_equal(d.rows, 5);
    assert_row(&d, 0, (float[]){1, 0, 0, 1, 2});
    assert_row(&d, 1, (float[]){3, 0, 1, 0, 4});
    assert_row(&d, 2, (float[]){5, 0, 0, 0, 6}); /* missing: zeros */
    assert_row(&d, 3, (float[]){7, 1, 0, 0, 8});
    done(&s, &d);
}

/* What is read first, and in which file, must not be seen in the model. */
static void test_order_of_reading_changes_nothing(void **state)
{
    static const char *const texts[] = {"kind\nb\na\nc\na\nb\nd\n", "kind\nd\nb\nc\nb\na\na\n"};
    for (int i = 0; i < 2; i++) {
        pst_learn_settings s;
        learn_data d;
        read_csv("{features: [{field: kind, one_hot: learn, words_max: 3, unknown: other}]}", texts[i], &s, &d);
        assert_words(&s.features[0], 3, "a", "b", "c"); /* c and d are as frequent: c comes first */
        assert_int_equal(d.columns, 4);
        done(&s, &d);
    }
}

static void test_seldom_words_are_unknown(void **state)
{
    pst_learn_settings s;
    learn_data d;
    read_csv("{features: [{field: kind, one_hot: learn, words_max: 1, unknown: other}]}", "kind\nrare\noften\noften\n", &s, &d);
    assert_words(&s.features[0], 1, "often");
    assert_row(&d, 0, (float[]){0, 1});
    assert_row(&d, 1, (float[]){1, 0});
    done(&s, &d);
    read_csv("{features: [{field: kind, one_hot: learn, words_max: 1}]}", "kind\nrare\noften\noften\n", &s, &d);
    assert_row(&d, 0, (float[]){0});
    assert_row(&d, 1, (float[]){1});
    done(&s, &d);
}

static void test_listed_words_keep_their_order_and_reject_others(void **state)
{
    pst_learn_settings s;
    learn_data d;
    read_csv("{features: [{field: kind, one_hot: [udp, 7, true], unknown: reject, missing: reject}]}",
             "kind\nudp\n7\ntrue\ntcp\n\"\"\n07\n", &s, &d);
    assert_int_equal(d.rows, 3);
    assert_int_equal(d.dropped, 3); /* tcp, nothing, 07 */
    assert_non_null(strstr(d.why_dropped, "kind is none of the words"));
    assert_row(&d, 0, (float[]){1, 0, 0});
    assert_row(&d, 1, (float[]){0, 1, 0});
    assert_row(&d, 2, (float[]){0, 0, 1});
    done(&s, &d);
}

static void test_numbers_are_words_as_they_are_usually_written(void **state)
{
    char buf[40];
    static const struct {
        double x;
        const char *text;
    } cases[] = {{7, "7"}, {-0.0, "0"}, {1.5, "1.5"}, {0.1, "0.1"}, {1e20, "1e+20"}, {1 / 3.0, "0.3333333333333333"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pst_slice t = learn_words_text(cases[i].x, buf);
        assert_int_equal(t.len, strlen(cases[i].text));
        assert_memory_equal(t.data, cases[i].text, t.len);
    }
}

static void test_words_that_no_model_can_hold_are_unknown(void **state)
{
    pst_learn_feature f = {.field = (char *)"kind", .one_hot = true, .learn_words = true, .words_max = 8};
    learn_words *w = learn_words_new(&f);
    char long_word[LEARN_WORD_BYTES_MAX + 1];
    double n;
    memset(long_word, 'x', sizeof long_word);
    const pst_slice odd[] = {{"a\0b", 3}, {"\xff\xfe", 2}, {long_word, sizeof long_word}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_int_equal(learn_words_number(w, odd[i], &n, NULL), 0);
        assert_true(n == LEARN_WORD_UNKNOWN);
    }
    assert_int_equal(learn_words_number(w, (pst_slice){long_word, LEARN_WORD_BYTES_MAX}, &n, NULL), 0);
    assert_true(n == 0);
    assert_int_equal(learn_words_number(w, (pst_slice){"", 0}, &n, NULL), 0); /* an empty text is a word */
    assert_true(n == 1);
    learn_words_free(w);
}

static void test_names_of_things_are_refused(void **state)
{
    pst_learn_feature f = {.field = (char *)"session", .one_hot = true, .learn_words = true, .words_max = 8};
    learn_words *w = learn_words_new(&f);
    pst_err err = {0};
    char word[32];
    double n;
    int rc = 0;
    for (int i = 0; i <= LEARN_WORDS_DISTINCT_MAX && !rc; i++) {
        snprintf(word, sizeof word, "s%d", i);
        rc = learn_words_number(w, (pst_slice){word, strlen(word)}, &n, &err);
    }
    assert_int_equal(rc, PST_ELIMIT);
    assert_non_null(strstr(err.text, "session has more than 65536 different words"));
    assert_int_equal(learn_words_number(w, (pst_slice){"s1", 2}, &n, NULL), 0); /* those that are known stay so */
    assert_true(n == 1);
    learn_words_free(w);
}

static void test_rows_that_words_make_too_wide_are_refused(void **state)
{
    pst_learn_settings s;
    learn_data d;
    pst_err err = {0};
    pst_buf text = {0};
    pst_buf_adds(&text, "kind\n");
    for (int i = 0; i < 600; i++)
        pst_buf_printf(&text, "w%d\n", i);
    settings("{features: [{field: kind, one_hot: learn, words_max: 600}]}", &s);
    put(text.data);
    learn_data_init(&d, &s, 64 << 10);
    assert_int_equal(learn_data_read_csv(&d, &s, dir, NULL, 0, &hooks, &err), 0);
    assert_int_equal(learn_words_settle(&d, &s, &err), PST_ELIMIT);
    assert_non_null(strstr(err.text, "lower words_max"));
    done(&s, &d);
    pst_buf_done(&text);
}

static void test_no_word_at_all_is_refused(void **state)
{
    pst_learn_settings s;
    learn_data d;
    pst_err err = {0};
    settings("{features: [a, {field: kind, one_hot: learn}]}", &s);
    put("a,kind\n1,\n2,\n");
    learn_data_init(&d, &s, 1 << 20);
    assert_int_equal(learn_data_read_csv(&d, &s, dir, NULL, 0, &hooks, &err), 0);
    assert_int_equal(learn_words_settle(&d, &s, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "none of the records has a word for the feature kind"));
    done(&s, &d);
}

static void test_a_list_that_fits_no_record_is_refused(void **state)
{
    pst_learn_settings s;
    learn_data d;
    pst_err err = {0};
    settings("{features: [{field: kind, one_hot: [TCP, UDP]}]}", &s);
    put("kind\ntcp\nudp\n");
    learn_data_init(&d, &s, 1 << 20);
    assert_int_equal(learn_data_read_csv(&d, &s, dir, NULL, 0, &hooks, &err), 0);
    assert_int_equal(learn_words_settle(&d, &s, &err), PST_EINVAL);
    assert_non_null(strstr(err.text, "none of the records has any of the words listed as one_hot of kind; the first has \"tcp\""));
    done(&s, &d);
    read_csv("{features: [{field: kind, one_hot: [tcp, UDP]}]}", "kind\ntcp\nudp\n", &s, &d); /* one of them is enough */
    assert_int_equal(learn_words_seen(d.words[0]), 1);
    done(&s, &d);
    read_csv("{features: [{field: kind, one_hot: learn, words_max: 2}]}", "kind\na\nb\nc\n", &s, &d);
    assert_int_equal(learn_words_seen(d.words[0]), 3);
    done(&s, &d);
}

/* A word keeps 0 and 1: standardised by its deviation a seldom one would be worth a hundred others. */
static void test_words_are_not_standardised(void **state)
{
    pst_learn_settings s;
    learn_data d;
    learn_ready r;
    pst_err err = {0};
    read_csv("{features: [a, {field: kind, one_hot: learn}], validation: 0}", "a,kind\n1,x\n2,x\n3,x\n4,y\n", &s, &d);
    if (learn_prepare(&d, NULL, &r, &err) < 0)
        fail_msg("%s", err.text);
    for (int j = 1; j < 3; j++) {
        assert_true(r.stats.mean[j] == 0 && r.stats.std[j] == 1);
        for (size_t i = 0; i < r.rows; i++)
            assert_true(r.z[i * 3 + (size_t)j] == 0 || r.z[i * 3 + (size_t)j] == 1);
    }
    learn_ready_done(&r);
    done(&s, &d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_learnt_words_stand_in_the_order_of_their_bytes, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_order_of_reading_changes_nothing, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_seldom_words_are_unknown, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_listed_words_keep_their_order_and_reject_others, make_dir, drop_dir),
        cmocka_unit_test(test_numbers_are_words_as_they_are_usually_written),
        cmocka_unit_test(test_words_that_no_model_can_hold_are_unknown),
        cmocka_unit_test(test_names_of_things_are_refused),
        cmocka_unit_test_setup_teardown(test_rows_that_words_make_too_wide_are_refused, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_no_word_at_all_is_refused, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_a_list_that_fits_no_record_is_refused, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_words_are_not_standardised, make_dir, drop_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
