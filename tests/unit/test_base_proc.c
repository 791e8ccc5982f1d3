/* test_base_proc.c - processes by (pid, start time), spawning, marks, being told to stop. */
#include "common/base/clock.h"
#include "common/base/proc.h"
#include "common/base/stop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/test.h"

static pid_t start(const char *script, const char *const *env, bool group)
{
    const char *argv[] = {"/bin/sh", "-c", script, NULL};
    pid_t pid = 0;
    pst_err e = {0};
    pst_spawn how = {.argv = argv, .env = env, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .new_group = group};
    assert_int_equal(pst_proc_spawn(&how, &pid, &e), 0);
    return pid;
}

static void test_alive_means_that_very_process(void **state)
{
    pid_t pid = start("sleep 30", NULL, true);
    int64_t born = pst_proc_start_time(pid);
    assert_true(born > 0);
    assert_true(pst_proc_alive(pid, born));
    assert_false(pst_proc_alive(pid, born + 1));
    assert_false(pst_proc_alive(pid, 0));
    kill(-pid, SIGKILL);
    while (pst_proc_start_time(pid)) /* a zombie is gone */
        pst_sleep_ms(1);
    assert_false(pst_proc_alive(pid, born));
    waitpid(pid, NULL, 0);
}

static void test_group_and_mark_find_descendants(void **state)
{
    const char *env[] = {"PENSTOCK_RUN=unit/1/learner-1", "PATH=/usr/bin:/bin", NULL};
    pid_t pid = start("setsid sleep 31 & sleep 32 & sleep 33", env, true);
    for (int i = 0; i < 200 && pst_proc_kill_marked("PENSTOCK_RUN=unit/1/learner-1", 0) < 4; i++)
        pst_sleep_ms(10);
    assert_int_equal(pst_proc_kill_marked("PENSTOCK_RUN=unit/1/learner-1", 0), 4);
    assert_int_equal(pst_proc_kill_marked("PENSTOCK_RUN=unit/1/learner", 0), 0);
    assert_int_equal(pst_proc_group_count(pid), 3); /* one has left the group */
    kill(-pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (int i = 0; i < 200 && pst_proc_group_count(pid); i++)
        pst_sleep_ms(10);
    assert_int_equal(pst_proc_group_count(pid), 0);
    assert_int_equal(pst_proc_kill_marked("PENSTOCK_RUN=unit/1/learner-1", SIGKILL), 1);
}

static void test_spawn_says_why_not(void **state)
{
    const char *argv[] = {"/no/such/program", NULL};
    pid_t pid = 0;
    pst_err e = {0};
    assert_int_equal(pst_proc_spawn(&(pst_spawn){.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1}, &pid, &e), PST_ENOTFOUND);
    assert_non_null(strstr(e.text, "/no/such/program"));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie is left */
}

static void test_stop_counts(void **state)
{
    pst_stop_install();
    assert_false(pst_stop_requested());
    raise(SIGTERM);
    assert_true(pst_stop_requested());
    assert_false(pst_stop_hurry());
    raise(SIGINT);
    assert_true(pst_stop_hurry());
    assert_int_equal(pst_stop_signal(), SIGINT);
    pst_stop_reset();
    assert_false(pst_stop_requested());
}

static void test_stop_is_heard_though_a_parent_blocked_it(void **state)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGINT);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    pst_stop_reset();
    pst_stop_install();
    raise(SIGTERM);
    assert_true(pst_stop_requested());
    pst_stop_reset();
}

static void *wait_for_stop(void *arg)
{
    while (!pst_stop_requested())
        pst_sleep_ms(1);
    *(int *)arg = pst_stop_signal();
    return NULL;
}

/* Another thread than the one that took the signal sees it; ThreadSanitizer watches. */
static void test_stop_is_seen_by_other_threads(void **state)
{
    int seen = 0;
    pthread_t thread;
    pst_stop_install();
    pst_stop_reset();
    assert_int_equal(pthread_create(&thread, NULL, wait_for_stop, &seen), 0);
    pst_sleep_ms(20);
    errno = EDOM;
    raise(SIGTERM);
    assert_int_equal(errno, EDOM); /* a handler leaves no trace in what it interrupts */
    pthread_join(thread, NULL);
    assert_int_equal(seen, SIGTERM);
    char bytes[8];
    assert_int_equal(read(pst_stop_fd(), bytes, sizeof bytes), 8);
    pst_stop_reset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alive_means_that_very_process),
        cmocka_unit_test(test_group_and_mark_find_descendants),
        cmocka_unit_test(test_spawn_says_why_not),
        cmocka_unit_test(test_stop_counts),
        cmocka_unit_test(test_stop_is_heard_though_a_parent_blocked_it),
        cmocka_unit_test(test_stop_is_seen_by_other_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
