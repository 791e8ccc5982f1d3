/* test_loop.c - timers, posts from other threads, watches, stopping. */
#include "common/loop/loop.h"

#include "common/base/clock.h"
#include "common/base/stop.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct world {
    pst_loop *loop;
    pst_timer *timer;
    pst_watch *watch;
    int ticks, posts, bytes, wrong;
} world;

static void on_tick(void *arg)
{
    world *w = arg;
    if (++w->ticks == 5)
        pst_loop_stop(w->loop);
}

static void test_loop_timer_repeats(void **state)
{
    world w = {0};
    pst_err err = {0};
    assert_int_equal(pst_loop_new(&w.loop, &err), 0);
    pst_timer *t = pst_timer_new(w.loop, 0, 2000, on_tick, &w);
    int64_t from = pst_mono_us();
    pst_loop_run(w.loop);
    assert_int_equal(w.ticks, 5);
    assert_true(pst_mono_us() - from >= 8000);
    pst_timer_free(t);
    pst_loop_free(w.loop);
}

static void on_once(void *arg)
{
    world *w = arg;
    w->ticks++;
    pst_timer_free(w->timer); /* its own */
}

static void test_loop_timer_may_free_itself(void **state)
{
    world w = {0};
    pst_err err = {0};
    pst_loop_new(&w.loop, &err);
    w.timer = pst_timer_new(w.loop, 1000, 1000, on_once, &w);
    assert_true(pst_loop_run_for(w.loop, 30));
    assert_int_equal(w.ticks, 1);
    pst_loop_free(w.loop);
}

#define POSTS 20000

static void on_post(void *arg)
{
    world *w = arg;
    w->wrong += !pst_loop_is_current(w->loop);
    if (++w->posts == 2 * POSTS)
        pst_loop_stop(w->loop);
}

static void *poster(void *arg)
{
    world *w = arg;
    for (int i = 0; i < POSTS; i++)
        while (pst_loop_post(w->loop, on_post, w) < 0)
            pst_sleep_ms(1);
    return NULL;
}

static void test_loop_posts_from_threads_all_arrive(void **state)
{
    world w = {0};
    pst_err err = {0};
    pst_loop_new(&w.loop, &err);
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, poster, &w);
    pst_loop_run(w.loop);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(w.posts, 2 * POSTS);
    assert_int_equal(w.wrong, 0);
    pst_loop_free(w.loop);
}

static void test_loop_post_is_bounded(void **state)
{
    world w = {.posts = -100000000};
    pst_err err = {0};
    pst_loop_new(&w.loop, &err);
    int n = 0;
    while (n < 100000 && pst_loop_post(w.loop, on_post, &w) == 0)
        n++;
    assert_int_equal(n, 65536);
    pst_loop_free(w.loop);
}

static void on_readable(void *arg, int fd, int events)
{
    world *w = arg;
    char b[16];
    w->bytes += (int)read(fd, b, sizeof b);
    assert_int_equal(events, PST_WATCH_READ);
    pst_watch_events(w->watch, 0);
}

static void test_loop_watch_pauses(void **state)
{
    world w = {0};
    pst_err err = {0};
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pst_loop_new(&w.loop, &err);
    w.watch = pst_watch_new(w.loop, fds[0], PST_WATCH_READ, on_readable, &w);
    assert_int_equal(write(fds[1], "abc", 3), 3);
    pst_loop_run_for(w.loop, 20);
    assert_int_equal(write(fds[1], "de", 2), 2);
    pst_loop_run_for(w.loop, 20);
    assert_int_equal(w.bytes, 3);
    pst_watch_events(w.watch, PST_WATCH_READ);
    pst_loop_run_for(w.loop, 20);
    assert_int_equal(w.bytes, 5);
    pst_watch_free(w.watch);
    pst_loop_free(w.loop);
    close(fds[0]);
    close(fds[1]);
}

static void on_told(void *arg)
{
    world *w = arg;
    w->ticks++;
    pst_loop_stop(w->loop);
}

static void test_loop_stops_on_sigterm(void **state)
{
    world w = {0};
    pst_err err = {0};
    pst_stop_install();
    pst_loop_new(&w.loop, &err);
    pst_loop_on_stop(w.loop, on_told, &w);
    kill(getpid(), SIGTERM);
    pst_loop_run(w.loop);
    assert_int_equal(w.ticks, 1);
    pst_loop_free(w.loop);
    pst_stop_reset();
}

static void on_told_stubborn(void *arg)
{
    ((world *)arg)->ticks++;
    kill(getpid(), SIGTERM); /* the second one */
}

static void test_loop_second_signal_ends_a_stuck_drain(void **state)
{
    world w = {0};
    pst_err err = {0};
    pst_stop_install();
    pst_loop_new(&w.loop, &err);
    pst_loop_on_stop(w.loop, on_told_stubborn, &w);
    kill(getpid(), SIGTERM);
    pst_loop_run(w.loop);
    assert_int_equal(w.ticks, 1);
    pst_loop_free(w.loop);
    pst_stop_reset();
}

static void on_dump(void *arg, json_t *to)
{
    world *w = arg;
    w->wrong += !pst_loop_is_current(w->loop);
    w->ticks++;
    pst_loop_stop(w->loop);
}

static void test_loop_serves_dumps_between_its_steps(void **state)
{
    world w = {0};
    pst_err err = {0};
    pst_dump *d;
    pst_loop_new(&w.loop, &err);
    assert_int_equal(pst_dump_new("loop", on_dump, &w, &d, &err), 0);
    pst_loop_set_dump(w.loop, d);
    for (int i = 1; i <= 3; i++) {
        kill(getpid(), SIGUSR1);
        pst_loop_run(w.loop);
        assert_int_equal(w.ticks, i);
    }
    assert_int_equal(w.wrong, 0);
    assert_true(pst_loop_run_for(w.loop, 20)); /* nobody asks: it sleeps */
    pst_loop_set_dump(w.loop, NULL);
    pst_dump_free(d);
    pst_loop_free(w.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loop_timer_repeats),
                                       cmocka_unit_test(test_loop_timer_may_free_itself),
                                       cmocka_unit_test(test_loop_posts_from_threads_all_arrive),
                                       cmocka_unit_test(test_loop_post_is_bounded),
                                       cmocka_unit_test(test_loop_watch_pauses),
                                       cmocka_unit_test(test_loop_stops_on_sigterm),
                                       cmocka_unit_test(test_loop_second_signal_ends_a_stuck_drain),
                                       cmocka_unit_test(test_loop_serves_dumps_between_its_steps)};
    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
