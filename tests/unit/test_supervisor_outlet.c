/* test_supervisor_outlet.c - the supervisor's way out against a sink that fails, stalls and forgets: order, numbers without gaps, the spool. */
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/log.h"
#include "lcm/supervisor/outlet.h"
#include "lcm/supervisor/spool.h"
#include "schemas/avro_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a sink that keeps what it acknowledged ------------------------------------------------------------------------------------ */

typedef struct kept {
    int kind;
    size_t len;
    char *body;
} kept;

typedef struct fake {
    pthread_mutex_t lock;
    kept *at; /* acknowledged, in the order of sending */
    size_t n, cap;
    struct {
        void *token;
        kept k;
    } flight[PST_OUTLET_ITEMS_MAX + 16];
    atomic_size_t n_flight;
    atomic_bool down;          /* send says RETRY */
    atomic_bool silent;        /* takes, but never acknowledges */
    atomic_int fail_each;      /* every n-th pump fails what is in flight */
    atomic_bool forgets;       /* keeps what it takes, and never acknowledges it */
    atomic_bool asked_in_vain; /* last says RETRY */
    unsigned pumps, resets;
} fake;

static int fake_send(void *arg, pst_outlet_kind kind, const char *key, const void *body, size_t len, void *token, pst_err *err)
{
    fake *f = arg;
    if (f->down)
        return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "fake", 0, "down");
    assert_true(f->n_flight < PST_OUTLET_ITEMS_MAX + 16);
    f->flight[f->n_flight].token = token;
    f->flight[f->n_flight++].k = (kept){.kind = kind, .len = len, .body = memcpy(pst_alloc(len + 1), body, len)};
    return 0;
}

static void keep(fake *f, kept k)
{
    pthread_mutex_lock(&f->lock);
    if (f->n == f->cap)
        f->at = pst_realloc(f->at, (f->cap = 2 * f->cap + 64) * sizeof *f->at);
    f->at[f->n++] = k;
    pthread_mutex_unlock(&f->lock);
}

static void fake_pump(void *arg, int timeout_ms, sup_outlet_done done, void *done_arg)
{
    fake *f = arg;
    if (f->forgets) {
        for (size_t i = 0; i < f->n_flight; i++)
            keep(f, f->flight[i].k);
        f->n_flight = 0;
        pst_sleep_ms(timeout_ms > 5 ? 5 : timeout_ms);
        return;
    }
    if (f->silent || f->down) {
        pst_sleep_ms(timeout_ms > 5 ? 5 : timeout_ms);
        return;
    }
    bool fail = f->fail_each && ++f->pumps % (unsigned)f->fail_each == 0;
    size_t n = f->n_flight, good = fail ? n / 2 : n; /* a failing broker took the first half */
    f->n_flight = 0;                                 /* before the last is told: whoever waits for that counts from here */
    for (size_t i = 0; i < n; i++) {
        if (i < good) {
            keep(f, f->flight[i].k);
        } else {
            free(f->flight[i].k.body);
        }
        done(done_arg, f->flight[i].token, i < good ? 0 : PST_ETIMEDOUT);
    }
}

/* As the topic would be read: the number is the Avro long behind the run's names. */
static int fake_last(void *arg, pst_outlet_kind kind, const char *key, int generation, const char *process, int64_t since_ms,
                     int64_t *ret_rindex, pst_err *err)
{
    fake *f = arg;
    if (f->asked_in_vain)
        return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "fake", 0, "cannot tell");
    assert_true(since_ms > 1500000000000);
    pst_buf names = {0};
    pst_avro_put_bytes(&names, key, strlen(key));
    pst_avro_put_long(&names, generation);
    pst_avro_put_bytes(&names, process, strlen(process));
    int64_t last = -1, number;
    for (size_t i = 0; i < f->n; i++) {
        if (f->at[i].kind != (int)kind || memcmp(f->at[i].body, names.data, names.len))
            continue;
        const uint8_t *body = (const uint8_t *)f->at[i].body;
        av_in in = {.p = body + names.len, .end = body + f->at[i].len};
        assert_int_equal(av_in_long(&in, &number), 0);
        last = number > last ? number : last;
    }
    pst_buf_done(&names);
    *ret_rindex = last;
    return 0;
}

static void fake_reset(void *arg)
{
    fake *f = arg;
    f->resets++;
    for (size_t i = 0; i < f->n_flight; i++)
        free(f->flight[i].k.body);
    f->n_flight = 0;
}

typedef struct place {
    char dir[64];
    fake *f;
    sup_outlet_conf conf;
} place;

static int setup(void **state)
{
    pst_log_set_level(PST_LOG_ERROR);
    place *p = pst_alloc(sizeof *p);
    strcpy(p->dir, "/tmp/pst-outlet-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->f = pst_alloc(sizeof *p->f);
    pthread_mutex_init(&p->f->lock, NULL);
    p->conf = (sup_outlet_conf){.run_dir = p->dir,
                                .training_id = "training-x",
                                .process = "learner-1",
                                .generation = 2,
                                .reporter = "supervisor:h",
                                .host = "h",
                                .sink = {.arg = p->f, .send = fake_send, .pump = fake_pump, .reset = fake_reset, .last = fake_last}};
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    place *p = *state;
    fake_reset(p->f);
    for (size_t i = 0; i < p->f->n; i++)
        free(p->f->at[i].body);
    free(p->f->at);
    free(p->f);
    pst_fs_remove_tree(p->dir, NULL);
    free(p);
    return 0;
}

static sup_outlet *open_outlet(place *p)
{
    sup_outlet *o = NULL;
    pst_err err = {0};
    if (sup_outlet_open(&p->conf, &o, &err) < 0)
        fail_msg("%s", err.text);
    return o;
}

static void say(sup_outlet *o, int n)
{
    char text[200];
    int len = snprintf(text, sizeof text, "line %d %0*d", n, n % 100, n);
    sup_outlet_log(o, PST_LOG_STREAM_STDOUT, n, text, (size_t)len);
}

/* The record that say(n) must have become under this number: byte for byte, so the layout of prefix, number and rest holds. */
static bool is_said(const kept *k, int n, int64_t rindex)
{
    char text[200];
    snprintf(text, sizeof text, "line %d %0*d", n, n % 100, n);
    pst_log_line line = {.training_id = (char *)"training-x",
                         .generation = 2,
                         .process = (char *)"learner-1",
                         .rindex = rindex,
                         .time = n,
                         .stream = PST_LOG_STREAM_STDOUT,
                         .text = text};
    pst_buf b = {0};
    pst_event_encode(&pst_log_line_type, &line, &b);
    bool same = k->kind == PST_OUTLET_LOG && k->len == b.len && !memcmp(k->body, b.data, b.len);
    pst_buf_done(&b);
    return same;
}

static bool waited_long(void *arg)
{
    return pst_mono_us() - *(int64_t *)arg > 60000000;
}

static void flush(sup_outlet *o)
{
    int64_t since = pst_mono_us();
    assert_int_equal(sup_outlet_flush(o, waited_long, &since), 0);
}

static bool at_once(void *arg)
{
    return true;
}

/* ---- tests -------------------------------------------------------------------------------------------------------------------- */

static void test_outlet_lines_and_points_are_numbered_apart_and_in_order(void **state)
{
    place *p = *state;
    sup_outlet *o = open_outlet(p);
    for (int i = 0; i < 1000; i++) {
        say(o, i);
        if (i % 10 == 0) {
            pst_metric_point m = {.time = i, .has_step = true, .step = i};
            pst_dbl_map_set(&m.values, &m.n_values, "loss", i * 0.5);
            sup_outlet_metric(o, &m);
            pst_event_clear(&pst_metric_point_type, &m);
        }
    }
    flush(o);
    sup_outlet_close(o);
    assert_int_equal(p->f->n, 1100);
    int line = 0, point = 0;
    for (size_t i = 0; i < p->f->n; i++) {
        if (p->f->at[i].kind == PST_OUTLET_LOG) {
            assert_true(is_said(&p->f->at[i], line, line));
            line++;
            continue;
        }
        pst_metric_point m = {.training_id = (char *)"training-x",
                              .generation = 2,
                              .process = (char *)"learner-1",
                              .rindex = point,
                              .time = point * 10,
                              .group = (char *)"train",
                              .has_step = true,
                              .step = point * 10};
        pst_dbl_pair v = {.key = (char *)"loss", .value = point * 5.0};
        m.values = &v;
        m.n_values = 1;
        pst_buf b = {0};
        pst_event_encode(&pst_metric_point_type, &m, &b);
        assert_int_equal(p->f->at[i].len, b.len);
        assert_memory_equal(p->f->at[i].body, b.data, b.len);
        pst_buf_done(&b);
        point++;
    }
    assert_int_equal(line, 1000);
    assert_int_equal(point, 100);
}

/* Every acknowledged sequence, repetitions taken out, is 0, 1, 2 … with the right text each. */
static void check_sequence(const place *p, int from, int to)
{
    int next = from;
    for (size_t i = 0; i < p->f->n; i++) {
        if (next < to && is_said(&p->f->at[i], next, next)) {
            next++;
            continue;
        }
        bool repeated = false;
        for (int back = next - 1; !repeated && back >= from && back > next - 6000; back--)
            repeated = is_said(&p->f->at[i], back, back);
        if (!repeated)
            fail_msg("record %zu is neither line %d nor a repetition", i, next);
    }
    assert_int_equal(next, to);
}

static void test_outlet_outage_goes_through_the_spool_in_order(void **state)
{
    place *p = *state;
    p->conf.memory_bytes_max = 10000;
    p->f->down = true;
    sup_outlet *o = open_outlet(p);
    int64_t start = pst_mono_us();
    for (int i = 0; i < 20000; i++)
        say(o, i);
    assert_true(pst_mono_us() - start < 60000000); /* the learner is not held up by an outage */
    sup_outlet_counts counts;
    sup_outlet_count(o, &counts);
    assert_int_equal(counts.acked, 0);
    assert_true(counts.spool_bytes > 1000000);
    p->f->down = false;
    for (int i = 20000; i < 25000; i++)
        say(o, i);
    flush(o);
    sup_outlet_count(o, &counts);
    assert_int_equal(counts.spool_bytes, 0);
    assert_int_equal(counts.dropped, 0);
    sup_outlet_close(o);
    assert_int_equal(p->f->n, 25000);
    check_sequence(p, 0, 25000);
}

static void test_outlet_failed_deliveries_are_repeated_under_the_same_number(void **state)
{
    place *p = *state;
    p->conf.memory_bytes_max = 3000;
    p->f->fail_each = 3;
    sup_outlet *o = open_outlet(p);
    for (int i = 0; i < 3000; i++) {
        say(o, i);
        if (i % 300 == 299)
            pst_sleep_ms(100);
    }
    flush(o);
    sup_outlet_close(o);
    assert_true(p->f->resets > 0);
    check_sequence(p, 0, 3000);
}

static void test_outlet_rest_is_left_to_the_next_supervisor(void **state)
{
    place *p = *state;
    p->conf.memory_bytes_max = 20000;
    p->f->silent = true; /* takes records, then the broker hangs */
    sup_outlet *o = open_outlet(p);
    for (int i = 0; i < 9000; i++)
        say(o, i);
    pst_sleep_ms(300);
    assert_int_equal(sup_outlet_flush(o, at_once, NULL), PST_ESTOPPED);
    sup_outlet_close(o);
    fake_reset(p->f);
    assert_int_equal(p->f->n, 0);
    p->f->silent = false;
    o = open_outlet(p);
    for (int i = 9000; i < 9100; i++)
        say(o, i);
    flush(o);
    sup_outlet_close(o);
    check_sequence(p, 0, 9100);
}

static void wait_kept(place *p, size_t n)
{
    for (int64_t since = pst_mono_us(); waited_long(&since) == false;) {
        pthread_mutex_lock(&p->f->lock);
        size_t have = p->f->n;
        pthread_mutex_unlock(&p->f->lock);
        if (have >= n)
            return;
        pst_sleep_ms(5);
    }
    fail_msg("the sink did not take %zu records", n);
}

/* The broker stored what was sent and went away before it said so; the next supervisor must not tell it again, nor leave a number out. */
static void test_outlet_what_was_stored_unacknowledged_is_not_told_twice(void **state)
{
    place *p = *state;
    sup_outlet *o = open_outlet(p);
    for (int i = 0; i < 50; i++)
        say(o, i);
    flush(o);
    p->f->forgets = true;
    for (int i = 50; i < 120; i++)
        say(o, i);
    wait_kept(p, 120);
    p->f->forgets = false;
    p->f->down = true;
    for (int i = 120; i < 150; i++) /* and these reach nobody */
        say(o, i);
    sup_outlet_close(o);
    p->f->asked_in_vain = true;
    o = open_outlet(p); /* this one learns nothing and is ended, too */
    pst_sleep_ms(50);
    sup_outlet_close(o);
    p->f->asked_in_vain = false;
    p->f->down = false;
    o = open_outlet(p);
    for (int i = 150; i < 160; i++)
        say(o, i);
    flush(o);
    sup_outlet_close(o);
    assert_int_equal(p->f->n, 160);
    for (int i = 0; i < 160; i++)
        assert_true(is_said(&p->f->at[i], i, i));
}

/* After a kill -9 the numbers go on where the topic's end; what was lost in flight is told as a gap. */
static void test_outlet_numbers_go_on_after_a_kill(void **state)
{
    place *p = *state;
    char *kept_state = pst_fs_join(p->dir, "outlet.state");
    sup_outlet *o = open_outlet(p);
    for (int i = 0; i < 20; i++)
        say(o, i);
    flush(o);
    p->f->silent = true;
    for (int i = 20; i < 25; i++)
        say(o, i);
    for (int64_t since = pst_mono_us(); p->f->n_flight < 5 && !waited_long(&since);)
        pst_sleep_ms(5);
    pst_buf b = {0};
    pst_err err = {0};
    assert_int_equal(pst_fs_read(kept_state, 4096, &b, &err), 0); /* as a kill at this moment leaves it */
    sup_outlet_close(o);
    pst_fs_remove_tree(p->dir, NULL);
    assert_int_equal(pst_fs_mkdirs(p->dir, 0700, &err), 0);
    assert_int_equal(pst_fs_write_atomic(kept_state, b.data, b.len, 0600, &err), 0);
    fake_reset(p->f);
    p->f->silent = false;
    o = open_outlet(p);
    say(o, 30);
    flush(o);
    sup_outlet_close(o);
    assert_int_equal(p->f->n, 22); /* 0 to 19, the gap, 30 */
    int64_t last = -1;
    assert_int_equal(fake_last(p->f, PST_OUTLET_LOG, "training-x", 2, "learner-1", INT64_MAX, &last, &err), 0);
    assert_int_equal(last, 21);
    bool told = false, gap = false;
    for (size_t i = 0; i < p->f->n; i++) {
        told |= is_said(&p->f->at[i], 30, 20) || is_said(&p->f->at[i], 30, 21);
        gap |= memmem(p->f->at[i].body, p->f->at[i].len, "[5 lines", 8) != NULL;
    }
    assert_true(told && gap);
    pst_buf_done(&b);
    free(kept_state);
}

static void test_outlet_full_spool_drops_the_oldest_and_says_so(void **state)
{
    place *p = *state;
    p->conf.memory_bytes_max = 10000;
    p->conf.spool_bytes_max = 3 * (int64_t)PST_OUTLET_SEGMENT_MAX;
    p->f->down = true;
    sup_outlet *o = open_outlet(p);
    int n = 300000;
    for (int i = 0; i < n; i++)
        say(o, i);
    sup_outlet_counts counts;
    sup_outlet_count(o, &counts);
    assert_true(counts.spool_bytes <= 3 * (int64_t)PST_OUTLET_SEGMENT_MAX);
    p->f->down = false;
    flush(o);
    sup_outlet_count(o, &counts);
    sup_outlet_close(o);
    assert_true(counts.dropped > 0);
    /* Numbers run on without a gap; one record says how many lines are missing. */
    int64_t lost = 0;
    int said = 0;
    for (size_t i = 0; i < p->f->n; i++) {
        if (is_said(&p->f->at[i], said, (int64_t)i)) {
            said++;
            continue;
        }
        const char *text = memmem(p->f->at[i].body, p->f->at[i].len, "lines (", 7) ? memchr(p->f->at[i].body, '[', p->f->at[i].len) : NULL;
        if (!text)
            fail_msg("record %zu is not line %d and no gap", i, said);
        long long lines = atoll(text + 1);
        lost += lines;
        said += (int)lines;
    }
    assert_int_equal(said, n);
    assert_int_equal(lost, counts.dropped);
}

static void test_outlet_reports_overtake_lines_and_keep_their_order(void **state)
{
    place *p = *state;
    p->f->down = true;
    sup_outlet *o = open_outlet(p);
    for (int i = 0; i < 50; i++)
        say(o, i);
    sup_outlet_report(o, &(pst_process_report){.type = PST_REPORT_TYPE_STARTED, .time = 1});
    sup_outlet_report(o, &(pst_process_report){.type = PST_REPORT_TYPE_RUNNING, .time = 2});
    pst_sleep_ms(50);
    p->f->down = false;
    flush(o);
    sup_outlet_close(o);
    assert_int_equal(p->f->n, 52);
    pst_process_report r = {.training_id = (char *)"training-x",
                            .generation = 2,
                            .process = (char *)"learner-1",
                            .type = PST_REPORT_TYPE_STARTED,
                            .time = 1,
                            .reporter = (char *)"supervisor:h",
                            .host = (char *)"h"};
    size_t first = 0;
    while (p->f->at[first].kind != PST_OUTLET_REPORT)
        first++;
    assert_true(first <= 1); /* at most the line that was tried when they came */
    pst_buf b = {0};
    pst_event_encode(&pst_process_report_type, &r, &b);
    assert_int_equal(p->f->at[first].len, b.len);
    assert_memory_equal(p->f->at[first].body, b.data, b.len);
    pst_buf_done(&b);
    assert_int_equal(p->f->at[first + 1].kind, PST_OUTLET_REPORT);
}

/* A learner that is being started is not disturbed: the sink is left alone, what is said meanwhile is kept, and comes in order. */
static void test_outlet_begins_when_the_learner_runs(void **state)
{
    place *p = *state;
    p->conf.begin_ms = 3600000;
    sup_outlet *o = open_outlet(p);
    sup_outlet_report(o, &(pst_process_report){.type = PST_REPORT_TYPE_STARTED, .time = 1});
    for (int i = 0; i < 20; i++)
        say(o, i);
    pst_sleep_ms(50);
    assert_int_equal(p->f->n + p->f->n_flight, 0);
    sup_outlet_begin(o);
    flush(o);
    assert_int_equal(p->f->n, 21);
    assert_int_equal(p->f->at[0].kind, PST_OUTLET_REPORT);
    for (int i = 0; i < 20; i++)
        assert_true(is_said(&p->f->at[i + 1], i, i));
    sup_outlet_close(o);
}

static void test_outlet_begins_by_itself_when_flushed_and_in_time(void **state)
{
    place *p = *state;
    p->conf.begin_ms = 3600000;
    sup_outlet *o = open_outlet(p);
    say(o, 0);
    flush(o);
    sup_outlet_close(o);
    assert_int_equal(p->f->n, 1);
    p->conf.begin_ms = 20;
    o = open_outlet(p);
    say(o, 1);
    sup_outlet_counts counts = {0};
    for (int64_t until = pst_mono_us() + 60000000; counts.acked < 1 && pst_mono_us() < until; pst_sleep_ms(5))
        sup_outlet_count(o, &counts);
    assert_int_equal(counts.acked, 1);
    sup_outlet_close(o);
}

static void count_items(void *arg, int kind, const void *data, size_t len)
{
    ++*(int *)arg;
}

static void test_spool_torn_tail_and_junk_files_are_ignored(void **state)
{
    place *p = *state;
    sup_spool *s = NULL;
    assert_int_equal(sup_spool_open(p->dir, 1 << 20, &s, NULL), 0);
    assert_true(sup_spool_empty(s));
    for (int i = 0; i < 10; i++)
        assert_int_equal(sup_spool_append(s, PST_OUTLET_LOG, true, "hello", 5, NULL), 0);
    sup_spool_close(s);
    char *path = pst_fs_join(p->dir, "spool-0001000000"), *junk = pst_fs_join(p->dir, "spool-junk");
    pst_buf b = {0};
    assert_int_equal(pst_fs_read(path, 1 << 20, &b, NULL), 0);
    assert_int_equal(pst_fs_write_atomic(path, b.data, b.len - 3, 0600, NULL), 0);
    assert_int_equal(pst_fs_write_atomic(junk, "x", 1, 0600, NULL), 0);
    pst_buf_done(&b);
    assert_int_equal(sup_spool_open(p->dir, 1 << 20, &s, NULL), 0);
    int n = 0;
    uint64_t number;
    sup_spool_lost lost;
    assert_int_equal(sup_spool_take(s, 2, count_items, &n, &number, &lost, NULL), 0);
    assert_int_equal(n, 7);
    sup_spool_release(s, number);
    assert_true(sup_spool_empty(s));
    assert_false(pst_fs_exists(path));
    sup_spool_close(s);
    free(path);
    free(junk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_outlet_lines_and_points_are_numbered_apart_and_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outlet_outage_goes_through_the_spool_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outlet_failed_deliveries_are_repeated_under_the_same_number, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outlet_rest_is_left_to_the_next_supervisor, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outlet_what_was_stored_unacknowledged_is_not_told_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outlet_numbers_go_on_after_a_kill, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outlet_full_spool_drops_the_oldest_and_says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outlet_reports_overtake_lines_and_keep_their_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outlet_begins_when_the_learner_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outlet_begins_by_itself_when_flushed_and_in_time, setup, teardown),
        cmocka_unit_test_setup_teardown(test_spool_torn_tail_and_junk_files_are_ignored, setup, teardown),
    };
    setvbuf(stdout, NULL, _IONBF, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
