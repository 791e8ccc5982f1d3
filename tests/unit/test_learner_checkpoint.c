/* Checkpoints: whole or not at all; a run that was stopped and resumed gives the same bits as one that was not. */
#include "trainer/learner/checkpoint.h"

#include "common/base/fs.h"
#include "common/base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct world {
    pst_learn_settings s;
    learn_data d;
    learn_ready r;
    learn_training *t;
    long calls, stop_at; /* stopped() says yes at this call */
} world;

static void settings(const char *yaml, pst_learn_settings *s)
{
    pst_yaml y;
    pst_complaints wrong = {0};
    assert_int_equal(pst_yaml_parse(yaml, strlen(yaml), "test", &y, NULL), 0);
    if (pst_learn_settings_parse(y.root, "learner", s, &wrong) < 0)
        fail_msg("%s: %s", wrong.at[0].field, wrong.at[0].text);
    pst_yaml_done(&y);
}

static void open_world(world *w, const char *yaml)
{
    *w = (world){.stop_at = -1};
    settings(yaml, &w->s);
    learn_data_init(&w->d, &w->s, 1 << 20);
    learn_rng r;
    learn_rng_seed(&r, 1, 1);
    for (int i = 0; i < 103; i++) {
        double a = learn_rng_normal(&r), b = learn_rng_normal(&r);
        assert_int_equal(learn_data_add(&w->d, (double[]){a, b, a * b, a - b}, (uint8_t[4]){0}, &(learn_target){.number = a + b > 0}, NULL),
                         0);
    }
    learn_data_add_range(&w->d, "telemetry", 3, 100, 203);
    assert_int_equal(learn_prepare(&w->d, NULL, &w->r, NULL), 0);
    w->t = learn_training_new(&w->s, &w->r, NULL);
}

static void close_world(world *w)
{
    learn_training_free(w->t);
    learn_ready_done(&w->r);
    learn_data_done(&w->d);
    pst_learn_settings_done(&w->s);
}

static bool stopped(void *arg)
{
    world *w = arg;
    return w->calls++ == w->stop_at;
}

static int run(world *w)
{
    pst_err err = {0};
    int rc = learn_training_run(w->t, &(learn_training_hooks){.arg = w, .stopped = stopped}, &err);
    if (rc < 0 && rc != PST_ESTOPPED)
        fail_msg("%s", err.text);
    return rc;
}

static void same_training(const world *a, const world *b)
{
    size_t bytes = learn_net_parameters(a->t->net) * sizeof(float);
    assert_memory_equal(learn_net_values(a->t->net), learn_net_values(b->t->net), bytes);
    assert_memory_equal(learn_net_moments(a->t->net, 1), learn_net_moments(b->t->net, 1), bytes);
    assert_memory_equal(learn_net_moments(a->t->net, 2), learn_net_moments(b->t->net, 2), bytes);
    assert_int_equal(learn_net_steps(a->t->net), learn_net_steps(b->t->net));
    const learn_progress *p = &a->t->progress, *q = &b->t->progress;
    assert_true(p->epoch == q->epoch && p->best_epoch == q->best_epoch && p->finished == q->finished);
    assert_memory_equal(&p->train_loss, &q->train_loss, sizeof p->train_loss);
    assert_memory_equal(&p->validation_loss, &q->validation_loss, sizeof p->train_loss);
    assert_memory_equal(&p->train_accuracy, &q->train_accuracy, sizeof p->train_accuracy);
}

/* Stops at every call in turn, carries everything through the bytes of a checkpoint, goes on in a new process's shoes. */
static void check_resume(const char *yaml)
{
    world whole;
    open_world(&whole, yaml);
    assert_int_equal(run(&whole), 0);
    for (long stop = 0; stop < whole.calls; stop += 1 + whole.calls / 23) {
        world one, two;
        learn_checkpoint c, back;
        pst_buf bytes = {0};
        pst_err err = {0};
        open_world(&one, yaml);
        one.stop_at = stop;
        assert_int_equal(run(&one), PST_ESTOPPED);
        learn_checkpoint_take(one.t, &one.d, "training-x", 2, &c);
        learn_checkpoint_encode(&c, &bytes);
        if (learn_checkpoint_decode(bytes.data, bytes.len, &back, &err) < 0)
            fail_msg("%s", err.text);
        open_world(&two, yaml);
        assert_int_equal(learn_checkpoint_restore(&back, two.t, &err), 0);
        assert_int_equal(run(&two), 0);
        same_training(&whole, &two);
        assert_int_equal(back.n_ranges, 1);
        assert_string_equal(back.ranges[0].topic, "telemetry");
        assert_true(back.ranges[0].partition == 3 && back.ranges[0].from == 100 && back.ranges[0].to == 203);
        assert_true(back.data_crc == two.r.crc && back.generation == 2);
        learn_checkpoint_done(&c);
        learn_checkpoint_done(&back);
        pst_buf_done(&bytes);
        close_world(&one);
        close_world(&two);
    }
    close_world(&whole);
}

static void test_resume_equals_uninterrupted(void **state)
{
    check_resume("{features: [a, b, c, d], hidden: [3], epochs: 4, batch: 10, seed: 9}");
    check_resume("{features: [a, b, c, d], target: y, classes: 2, hidden: [5, 5], epochs: 4, batch: 16, validation: 0, weight_decay: 0.1}");
    check_resume(
        "{features: [a, b, c, d], target: y, hidden: [8], epochs: 60, batch: 16, validation: 0.3, learning_rate: 0.05, patience: 3}");
}

static void test_patience_keeps_the_best_epoch(void **state)
{
    world w;
    open_world(
        &w, "{features: [a, b, c, d], target: y, hidden: [32], epochs: 300, batch: 8, validation: 0.5, learning_rate: 0.03, patience: 5}");
    assert_int_equal(run(&w), 0);
    const learn_progress *p = &w.t->progress;
    assert_true(p->finished && p->epoch < 300 && p->epoch == p->best_epoch + 5);
    assert_true(p->validation_loss == p->best_loss); /* the model is that of the best epoch */
    close_world(&w);
}

static void test_training_that_runs_away_says_what_to_do(void **state)
{
    world w;
    pst_err err = {0};
    open_world(&w, "{features: [a, b, c, d], target: y, hidden: [], epochs: 5, batch: 8}");
    for (size_t i = 0; i < w.r.rows * 4; i++)
        w.r.z[i] = 3e38f;
    int rc = learn_training_run(w.t, &(learn_training_hooks){0}, &err);
    assert_int_equal(rc, PST_EINVAL);
    assert_non_null(strstr(err.text, "Lower learning_rate"));
    close_world(&w);
}

/* ---- files ---- */

static char dir[64];

static int make_dir(void **state)
{
    strcpy(dir, "/tmp/learner-ckpt-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
    return pst_fs_remove_tree(dir, NULL);
}

static char skipped_text[400];
static void skipped(void *arg, const char *file, const char *why)
{
    snprintf(skipped_text, sizeof skipped_text, "%s: %s", file, why);
}

static void write_one(world *w, int generation, int64_t steps)
{
    learn_checkpoint c;
    pst_err err = {0};
    learn_checkpoint_take(w->t, &w->d, "training-x", generation, &c);
    c.steps = steps;
    if (learn_checkpoint_write(dir, &c, &err) < 0)
        fail_msg("%s", err.text);
    learn_checkpoint_done(&c);
}

static void expect_last(int generation, int64_t steps)
{
    learn_checkpoint c;
    assert_int_equal(learn_checkpoint_read_last(dir, &c, skipped, NULL), 1);
    assert_int_equal(c.generation, generation);
    assert_int_equal(c.steps, steps);
    learn_checkpoint_done(&c);
}

static bool there(const char *name)
{
    char *path = pst_fs_join(dir, name);
    bool yes = pst_fs_exists(path);
    free(path);
    return yes;
}

static void test_last_three_stay_and_later_generations_are_left_alone(void **state)
{
    world w;
    open_world(&w, "{features: [a, b, c, d], hidden: [3]}");
    for (int64_t steps = 10; steps <= 50; steps += 10)
        write_one(&w, 1, steps);
    assert_false(there("learner-000001-000000000020.ckpt"));
    assert_true(there("learner-000001-000000000030.ckpt"));
    write_one(&w, 3, 5);
    write_one(&w, 2, 60); /* a zombie of generation 2 */
    assert_true(there("learner-000003-000000000005.ckpt"));
    expect_last(3, 5);
    close_world(&w);
}

static void test_damaged_checkpoint_falls_back_to_the_one_before(void **state)
{
    world w;
    pst_buf b = {0};
    open_world(&w, "{features: [a, b, c, d], hidden: [3]}");
    write_one(&w, 1, 10);
    write_one(&w, 1, 20);
    char *newest = pst_fs_join(dir, "learner-000001-000000000020.ckpt"), *half = pst_fs_join(dir, "learner-000001-000000000030.ckpt.tmp-7");
    assert_int_equal(pst_fs_read(newest, 1 << 20, &b, NULL), 0);
    b.data[b.len / 2] ^= 1;
    assert_int_equal(pst_fs_write_atomic(newest, b.data, b.len, 0644, NULL), 0);
    assert_int_equal(pst_fs_write_atomic(half, b.data, 30, 0644, NULL), 0);
    *skipped_text = '\0';
    expect_last(1, 10);
    assert_non_null(strstr(skipped_text, "000000000020.ckpt: its checksum is wrong"));
    assert_false(pst_fs_exists(half));
    assert_int_equal(truncate(newest, 100), 0);
    expect_last(1, 10);
    free(newest);
    free(half);
    pst_buf_done(&b);
    close_world(&w);
}

static void test_no_bytes_are_believed_unseen(void **state)
{
    world w;
    learn_checkpoint c, back;
    pst_buf b = {0};
    open_world(&w, "{features: [a, b, c, d], hidden: [3]}");
    learn_checkpoint_take(w.t, &w.d, "training-x", 1, &c);
    learn_checkpoint_encode(&c, &b);
    for (size_t len = 0; len < b.len; len += 7) {
        char *exact = malloc(len + 1); /* so that a sanitizer sees a read behind the end */
        memcpy(exact, b.data, len);
        pst_err err = {0};
        assert_true(learn_checkpoint_decode(exact, len, &back, &err) < 0);
        free(exact);
    }
    uint32_t crc;
    for (size_t at = 8; at < b.len - 4; at += at < 1200 ? 1 : 97) { /* a right checksum over wrong bytes must not crash either */
        char keep = b.data[at];
        b.data[at] = (char)(keep ^ 0x15);
        crc = pst_crc32c(0, b.data, b.len - 4);
        memcpy(b.data + b.len - 4, &crc, 4);
        if (learn_checkpoint_decode(b.data, b.len, &back, NULL) == 0)
            learn_checkpoint_done(&back);
        b.data[at] = keep;
    }
    learn_checkpoint_done(&c);
    pst_buf_done(&b);
    close_world(&w);
}

static void test_another_network_is_refused(void **state)
{
    world a, b;
    learn_checkpoint c;
    pst_err err = {0};
    open_world(&a, "{features: [a, b, c, d], hidden: [3]}");
    open_world(&b, "{features: [a, b, c, d], hidden: [4]}");
    learn_checkpoint_take(a.t, &a.d, NULL, 1, &c);
    assert_int_equal(learn_checkpoint_restore(&c, b.t, &err), PST_EINCOMPAT);
    learn_checkpoint_done(&c);
    close_world(&a);
    close_world(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume_equals_uninterrupted),
        cmocka_unit_test(test_patience_keeps_the_best_epoch),
        cmocka_unit_test(test_training_that_runs_away_says_what_to_do),
        cmocka_unit_test_setup_teardown(test_last_three_stay_and_later_generations_are_left_alone, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_damaged_checkpoint_falls_back_to_the_one_before, make_dir, drop_dir),
        cmocka_unit_test(test_no_bytes_are_believed_unseen),
        cmocka_unit_test(test_another_network_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
