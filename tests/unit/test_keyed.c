/* test_keyed.c - windows over a key's records against a plain recomputation from all of them; rounds that are taken back, keys that are forgotten and states
 * that are read again from their changelog against a state that nothing ever happened to. */
#include "inference/state/keyed.h"

#include "common/base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SERIES = 2, MOST = 64 };

static const pst_window windows[] = {
    {0, PST_WINDOW_COUNT, .last = 5, .self = true},
    {0, PST_WINDOW_MEAN, .last = 7, .self = true},
    {0, PST_WINDOW_DEVIATION, .last = 20, .self = true},
    {0, PST_WINDOW_MIN, .ms = 5000, .self = true},
    {0, PST_WINDOW_MAX, .ms = 900},
    {0, PST_WINDOW_SUM, .ms = 3000, .self = true},
    {0, PST_WINDOW_RATE, .ms = 2000, .self = true},
    {0, PST_WINDOW_LAG, .last = 3},
    {0, PST_WINDOW_SINCE, .last = 0},
    {1, PST_WINDOW_MEAN, .last = 4},
    {1, PST_WINDOW_COUNT, .ms = 10000, .self = true},
    {1, PST_WINDOW_LAG, .last = 1},
    {0, PST_WINDOW_DEVIATION, .ms = 4000},
};
enum { WINDOWS = sizeof windows / sizeof *windows };

static pst_keyed_plan plan_of(size_t keys_max, int64_t idle_ms)
{
    pst_keyed_plan p = {.windows = windows,
                        .n_windows = WINDOWS,
                        .n_series = SERIES,
                        .keys_max = keys_max,
                        .bytes_max = 1 << 20,
                        .idle_ms = idle_ms,
                        .fingerprint = 7};
    for (size_t i = 0; i < SERIES; i++)
        p.series[i].most = MOST;
    for (size_t i = 0; i < WINDOWS; i++)
        pst_series_keeps_add(&p.series[windows[i].series], &windows[i]);
    return p;
}

static uint64_t seed = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

typedef struct event {
    char key[8];
    int64_t ms;
    double x[SERIES];
} event;

static event some_event(int64_t *now, uint64_t keys)
{
    event e;
    *now += (int64_t)draw(400);
    snprintf(e.key, sizeof e.key, "k%d", (int)draw(keys));
    e.ms = draw(10) ? *now : *now - (int64_t)draw(3000); /* late ones, too */
    for (size_t i = 0; i < SERIES; i++)
        e.x[i] = draw(8) ? 1e6 + (double)draw(1000) / 7 : draw(2) ? NAN : INFINITY;
    return e;
}

static pst_slice key_of(const event *e)
{
    return (pst_slice){e->key, strlen(e->key)};
}

/* ---- the plain recomputation ----------------------------------------------------------------------------------------------- */

static double plain(const event *all, size_t n, const pst_window *w)
{
    const event *of = &all[n];
    int64_t ms[4000], now = of->ms;
    double x[4000];
    size_t have = 0, from = 0, to;
    int64_t time = INT64_MIN;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(all[i].key, of->key) != 0)
            continue;
        time = all[i].ms > time ? all[i].ms : time;
        if (!isfinite(all[i].x[w->series]))
            continue;
        ms[have] = time;
        x[have++] = all[i].x[w->series];
    }
    now = time > now ? time : now;
    if (w->of == PST_WINDOW_LAG)
        return have >= w->last ? x[have - w->last] : NAN;
    if (w->of == PST_WINDOW_SINCE)
        return have ? (double)(now - ms[have - 1]) / 1000 : NAN;
    to = have;
    if (w->self && isfinite(of->x[w->series])) {
        ms[to] = now;
        x[to++] = of->x[w->series];
    }
    if (w->last)
        from = to > w->last ? to - w->last : 0;
    else
        while (from < to && ms[from] <= now - w->ms)
            from++;
    size_t count = to - from;
    double sum = 0, squares = 0, least = INFINITY, largest = -INFINITY;
    for (size_t i = from; i < to; i++) {
        sum += x[i];
        least = x[i] < least ? x[i] : least;
        largest = x[i] > largest ? x[i] : largest;
    }
    for (size_t i = from; i < to; i++) {
        double d = x[i] - sum / (double)count;
        squares += d * d;
    }
    switch (w->of) {
    case PST_WINDOW_COUNT: return (double)count;
    case PST_WINDOW_RATE: return (double)count / ((double)w->ms / 1000);
    case PST_WINDOW_SUM: return sum;
    case PST_WINDOW_MEAN: return count ? sum / (double)count : NAN;
    case PST_WINDOW_DEVIATION: return count ? sqrt(squares / (double)count) : NAN;
    case PST_WINDOW_MIN: return count ? least : NAN;
    default: return count ? largest : NAN;
    }
}

static void same(double a, double b, const char *what, size_t at, size_t window)
{
    if (memcmp(&a, &b, sizeof a) != 0 && !(isnan(a) && isnan(b)))
        fail_msg("%s: record %zu, window %zu (%s): %.17g and %.17g", what, at, window, pst_window_of_name(windows[window].of), a, b);
}

static void test_windows_are_those_of_a_plain_recomputation(void **state)
{
    (void)state;
    enum { N = 3000 };
    pst_keyed_plan p = plan_of(1000, 0);
    pst_keyed *k = pst_keyed_new(&p);
    event *all = pst_alloc(N * sizeof *all);
    int64_t now = 1000;
    double got[WINDOWS];
    for (size_t i = 0; i < N; i++) {
        all[i] = some_event(&now, 7);
        pst_keyed_read(k, key_of(&all[i]), all[i].ms, all[i].x, got);
        for (size_t w = 0; w < WINDOWS; w++)
            same(got[w], plain(all, i, &windows[w]), "plain", i, w);
        pst_keyed_enter(k, key_of(&all[i]), all[i].ms, (int64_t)i, all[i].x);
        if (i % 50 == 0)
            pst_keyed_settle(k);
    }
    assert_int_equal(pst_keyed_count(k).keys, 7);
    assert_int_equal(pst_keyed_count(k).cut, 0);
    pst_keyed_free(k);
    free(all);
}

/* Its own records say how long a key was silent. Seen: one record whose clock is years ahead, and of all other keys nothing was left, then nor ever after. */
static void test_a_key_is_idle_by_its_own_time(void **state)
{
    (void)state;
    pst_keyed_plan p = plan_of(1000, 1800);
    pst_keyed *k = pst_keyed_new(&p);
    const double x[SERIES] = {1, 1};
    const pst_slice slow = {"slow", 4}, ahead = {"ahead", 5};
    double got[WINDOWS];
    int64_t offset = 0;
    pst_keyed_enter(k, slow, 1000, offset++, x);
    pst_keyed_enter(k, ahead, PST_KEYED_TIME_MAX, offset++, x);
    for (int64_t i = 1; i < 5; i++) {
        pst_keyed_enter(k, slow, 1000 + i, offset++, x);
        pst_keyed_enter(k, ahead, PST_KEYED_TIME_MAX, offset++, x);
        pst_keyed_settle(k);
    }
    pst_keyed_read(k, slow, 1005, x, got);
    for (size_t w = 0; w < WINDOWS; w++)
        if (windows[w].of == PST_WINDOW_LAG)
            assert_true(got[w] == 1);
    assert_int_equal(pst_keyed_count(k).keys, 2);
    assert_int_equal(pst_keyed_count(k).idle, 0);
    pst_keyed_enter(k, slow, 1004 + 1801, offset++, x);
    assert_int_equal(pst_keyed_count(k).idle, 1);
    pst_keyed_free(k);
}

/* ---- rounds, restores ------------------------------------------------------------------------------------------------------ */

/* A compacted topic: of each key the last record, in the order of these. */
typedef struct changelog {
    struct {
        char key[8];
        char *value; /* NULL = gone */
        size_t len;
    } at[20000];
    size_t n;
} changelog;

static void log_changes(changelog *log, pst_keyed *k)
{
    pst_slice key, value;
    for (size_t i = 0; pst_keyed_change(k, i, &key, &value); i++) {
        for (size_t j = 0; j < log->n; j++)
            if (strlen(log->at[j].key) == key.len && !memcmp(log->at[j].key, key.data, key.len)) {
                free(log->at[j].value);
                memmove(&log->at[j], &log->at[j + 1], (--log->n - j) * sizeof log->at[0]);
                break;
            }
        snprintf(log->at[log->n].key, 8, "%.*s", (int)key.len, (const char *)key.data);
        log->at[log->n].value = value.data ? memcpy(pst_alloc(value.len), value.data, value.len) : NULL;
        log->at[log->n++].len = value.len;
    }
}

static pst_keyed *restored(const pst_keyed_plan *p, const changelog *log)
{
    pst_keyed *k = pst_keyed_new(p);
    pst_err err = {0};
    for (size_t i = 0; i < log->n; i++)
        if (pst_keyed_restore(k, (pst_slice){log->at[i].key, strlen(log->at[i].key)}, (pst_slice){log->at[i].value, log->at[i].len}, &err) <
            0)
            fail_msg("%s", err.text);
    return k;
}

/* Rounds of random length, of which some are taken back, as a whole or from some record on, and are played again; and now and then the state is thrown
 * away and read again. Few keys fit, and some go idle. Everything must be as if nothing had happened. */
static void test_rounds_that_did_not_happen_and_restores_leave_no_trace(void **state)
{
    (void)state;
    enum { N = 20000 };
    pst_keyed_plan p = plan_of(6, 1800);
    pst_keyed *calm = pst_keyed_new(&p), *shaken = pst_keyed_new(&p);
    changelog *log = pst_alloc(sizeof *log);
    event *all = pst_alloc(N * sizeof *all);
    int64_t now = 1000;
    double a[WINDOWS], b[WINDOWS];
    size_t undone = 0, restores = 0;
    for (size_t i = 0; i < N; i++)
        all[i] = some_event(&now, 12);
    for (size_t at = 0, calm_at = 0, settled = 0; at < N;) {
        pst_keyed_read(shaken, key_of(&all[at]), all[at].ms, all[at].x, b);
        for (; calm_at < at; calm_at++)
            pst_keyed_enter(calm, key_of(&all[calm_at]), all[calm_at].ms, (int64_t)calm_at, all[calm_at].x);
        if (calm_at == at) { /* it has not seen this one yet */
            pst_keyed_read(calm, key_of(&all[at]), all[at].ms, all[at].x, a);
            for (size_t w = 0; w < WINDOWS; w++)
                same(a[w], b[w], "shaken", at, w);
        }
        pst_keyed_enter(shaken, key_of(&all[at]), all[at].ms, (int64_t)at, all[at].x);
        at++;
        if (draw(40) == 0) { /* this round, or the end of it, did not happen */
            size_t back = settled + draw(at - settled + 1);
            pst_keyed_undo(shaken, (int64_t)back);
            undone += at - back;
            at = back;
            assert_true(pst_keyed_offset(shaken) < (int64_t)at);
        }
        if (draw(30) == 0) {
            log_changes(log, shaken);
            pst_keyed_settle(shaken);
            settled = at;
            if (draw(5) == 0) {
                pst_keyed_free(shaken);
                shaken = restored(&p, log);
                restores++;
            }
        }
    }
    pst_keyed_enter(calm, key_of(&all[N - 1]), all[N - 1].ms, N - 1, all[N - 1].x);
    assert_true(undone > 1000 && restores > 50);
    assert_true(pst_keyed_count(calm).forgotten > 100 && pst_keyed_count(calm).idle > 10);
    assert_int_equal(pst_keyed_count(calm).keys, pst_keyed_count(shaken).keys);
    assert_int_equal(pst_keyed_count(calm).bytes, pst_keyed_count(shaken).bytes);
    for (size_t i = 0; i < log->n; i++)
        free(log->at[i].value);
    free(log);
    free(all);
    pst_keyed_free(calm);
    pst_keyed_free(shaken);
}

static void enter(pst_keyed *k, const char *key, int64_t ms, int64_t offset, double x)
{
    pst_keyed_enter(k, (pst_slice){key, strlen(key)}, ms, offset, (double[]){x, NAN});
}

static double count_of(pst_keyed *k, const char *key, int64_t ms)
{
    double got[WINDOWS];
    pst_keyed_read(k, (pst_slice){key, strlen(key)}, ms, (double[]){NAN, NAN}, got);
    return got[0];
}

static void test_who_was_used_longest_ago_is_forgotten(void **state)
{
    (void)state;
    pst_keyed_plan p = plan_of(2, 0);
    pst_keyed *k = pst_keyed_new(&p);
    pst_slice key, value;
    enter(k, "a", 1, 0, 1);
    enter(k, "b", 2, 1, 1);
    pst_keyed_settle(k);
    enter(k, "a", 3, 2, 1);
    enter(k, "c", 4, 3, 1);
    assert_int_equal(pst_keyed_count(k).keys, 2);
    assert_int_equal(pst_keyed_count(k).forgotten, 1);
    assert_true(count_of(k, "a", 5) == 2 && count_of(k, "b", 5) == 0 && count_of(k, "c", 5) == 1);
    assert_true(pst_keyed_change(k, 0, &key, &value)); /* and its going is told, before the others */
    assert_memory_equal(key.data, "b", 1);
    assert_null(value.data);
    assert_true(pst_keyed_change(k, 1, &key, &value) && value.data);
    assert_memory_equal(key.data, "a", 1);
    assert_true(pst_keyed_change(k, 2, &key, &value) && value.data);
    assert_false(pst_keyed_change(k, 3, &key, &value));
    pst_keyed_undo(k, 3);
    assert_true(count_of(k, "b", 5) == 1 && count_of(k, "c", 5) == 0);
    assert_int_equal(pst_keyed_count(k).forgotten, 0);
    pst_keyed_free(k);
}

static void test_a_silent_key_begins_anew(void **state)
{
    (void)state;
    pst_keyed_plan p = plan_of(10, 1000);
    pst_keyed *k = pst_keyed_new(&p);
    enter(k, "a", 0, 0, 1);
    enter(k, "a", 1000, 1, 1);
    assert_true(count_of(k, "a", 2000) == 2);
    assert_true(count_of(k, "a", 2001) == 0);
    enter(k, "a", 2001, 2, 1);
    assert_true(count_of(k, "a", 2001) == 1);
    pst_keyed_undo(k, 2);
    assert_true(count_of(k, "a", 1500) == 2);
    pst_keyed_free(k);
}

/* What a burst needed is given back when its values are gone; keys that had one would else hold many times what is counted of them. */
static void test_a_series_gives_back_the_room_of_a_burst(void **state)
{
    (void)state;
    pst_series s = {0};
    for (int i = 0; i < 1000; i++)
        pst_series_push(&s, i, i);
    for (int i = 0; i < 998; i++)
        assert_true(pst_series_drop_oldest(&s).x == i);
    assert_true(s.n == 2 && s.cap <= 8);
    for (int i = 997; i >= 0; i--)
        pst_series_push_oldest(&s, (pst_series_value){i, i});
    for (int i = 0; i < 1000; i++)
        assert_true(pst_series_at(&s, (uint32_t)i).x == i);
    pst_series_done(&s);
}

/* More values in an hour than a key may hold: the newest are kept, and it is counted. */
static void test_a_window_that_does_not_fit_is_cut_and_counted(void **state)
{
    (void)state;
    static const pst_window hour = {0, PST_WINDOW_COUNT, .ms = 3600000, .self = true};
    pst_keyed_plan p = {.windows = &hour, .n_windows = 1, .n_series = 1, .keys_max = 10, .bytes_max = 1 << 20, .fingerprint = 1};
    p.series[0] = (pst_series_keeps){.ms = 3600000, .most = 10};
    pst_keyed *k = pst_keyed_new(&p);
    double got;
    for (int i = 0; i < 25; i++)
        pst_keyed_enter(k, (pst_slice){"a", 1}, i, i, (double[]){i});
    pst_keyed_read(k, (pst_slice){"a", 1}, 30, (double[]){1}, &got);
    assert_true(got == 11);
    assert_int_equal(pst_keyed_count(k).cut, 15);
    pst_keyed_free(k);
}

/* A mean over 20 values stays exact however many went before: what is added up is never more than the window. */
static void test_nothing_drifts_over_millions_of_records(void **state)
{
    (void)state;
    static const pst_window w[] = {{0, PST_WINDOW_MEAN, .last = 20, .self = true}, {0, PST_WINDOW_DEVIATION, .last = 20, .self = true}};
    pst_keyed_plan p = {.windows = w, .n_windows = 2, .n_series = 1, .keys_max = 10, .bytes_max = 1 << 20, .fingerprint = 1};
    p.series[0] = (pst_series_keeps){.last = 20, .most = 100};
    pst_keyed *k = pst_keyed_new(&p);
    double got[2];
    for (int64_t i = 0; i < 2000000; i++) {
        double x = i % 1000 ? 1e15 : 1e-3; /* what a running sum would never be rid of */
        pst_keyed_enter(k, (pst_slice){"a", 1}, i, i, &x);
        if (i % 100000 == 0)
            pst_keyed_settle(k);
    }
    for (int64_t i = 0; i < 20; i++) {
        double x = 0.5;
        pst_keyed_enter(k, (pst_slice){"a", 1}, 3000000, 3000000 + i, &x);
    }
    pst_keyed_read(k, (pst_slice){"a", 1}, 3000000, (double[]){0.5}, got);
    assert_true(got[0] == 0.5 && got[1] == 0);
    pst_keyed_free(k);
}

static int refused(const pst_keyed_plan *p, const void *bytes, size_t len, const char *why)
{
    pst_keyed *k = pst_keyed_new(p);
    pst_err err = {0};
    int rc = pst_keyed_restore(k, (pst_slice){"a", 1}, (pst_slice){bytes, len}, &err);
    if (rc == 0 || !strstr(err.text, why))
        fail_msg("%s: %d %s", why, rc, err.text);
    assert_int_equal(pst_keyed_count(k).keys, 0);
    pst_keyed_free(k);
    return rc;
}

static void test_nothing_of_a_changelog_is_believed(void **state)
{
    (void)state;
    pst_keyed_plan p = plan_of(10, 0), other = p;
    pst_keyed *k = pst_keyed_new(&p);
    pst_slice key, value;
    char bytes[400];
    for (int i = 0; i < 5; i++)
        enter(k, "a", 1000 * i, i, i);
    assert_true(pst_keyed_change(k, 0, &key, &value));
    assert_true(value.len < sizeof bytes);
    for (size_t i = 0; i < value.len; i++) { /* each byte counts, and so does the length */
        memcpy(bytes, value.data, value.len);
        bytes[i] ^= 0x10;
        assert_int_equal(refused(&p, bytes, value.len, "checksum"), PST_EPARSE);
        memcpy(bytes, value.data, value.len);
        refused(&p, bytes, i, i < 29 ? "length" : "checksum");
    }
    other.fingerprint++;
    assert_int_equal(refused(&other, value.data, value.len, "other windows"), PST_EINCOMPAT);
    pst_keyed_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_are_those_of_a_plain_recomputation),
        cmocka_unit_test(test_a_key_is_idle_by_its_own_time),
        cmocka_unit_test(test_rounds_that_did_not_happen_and_restores_leave_no_trace),
        cmocka_unit_test(test_who_was_used_longest_ago_is_forgotten),
        cmocka_unit_test(test_a_silent_key_begins_anew),
        cmocka_unit_test(test_a_series_gives_back_the_room_of_a_burst),
        cmocka_unit_test(test_a_window_that_does_not_fit_is_cut_and_counted),
        cmocka_unit_test(test_nothing_drifts_over_millions_of_records),
        cmocka_unit_test(test_nothing_of_a_changelog_is_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
