/* test_base_proc.c - processes by (pid, start time), spawning, marks, being told to stop. */
#include "common/base/cgroup.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/handover.h"
#include "common/base/lock.h"
#include "common/base/proc.h"
#include "common/base/proc_tree.h"
#include "common/base/stop.h"

#include <errno.h>
#include <pthread.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/test.h"

enum { WAIT_MS = 60000 }; /* a net: nothing is concluded from its end but that what was awaited never came */

extern char **environ;

static pid_t start(const char *script, const char *const *env, bool group)
{
    const char *argv[] = {"/bin/sh", "-c", script, NULL};
    pid_t pid = 0;
    pst_err e = {0};
    pst_spawn how = {.argv = argv, .env = env, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .new_group = group};
    assert_int_equal(pst_proc_spawn(&how, &pid, &e), 0);
    return pid;
}

static void test_locks_have_one_owner_and_can_be_looked_at(void **state)
{
    const pst_lock_kind kinds[] = {PST_LOCK_PLAIN, PST_LOCK_VISIBLE};
    char path[] = "/tmp/penstock-unit-XXXXXX";
    int made = mkstemp(path);
    for (size_t i = 0; i < 2; i++) {
        int one = open(path, O_RDWR), two = open(path, O_RDWR);
        assert_false(pst_lock_is_taken(two));
        assert_int_equal(pst_lock_try(one, kinds[i]), 0);
        assert_int_equal(pst_lock_try(one, kinds[i]), 0);
        assert_int_equal(pst_lock_try(two, kinds[i]), PST_EEXIST);
        assert_int_equal(pst_lock_is_taken(two), kinds[i] == PST_LOCK_VISIBLE);
        close(one);
        assert_int_equal(pst_lock_try(two, kinds[i]), 0);
        close(two);
        assert_int_equal(pst_lock_try(two, kinds[i]), PST_EIO);
        assert_int_equal(errno, EBADF);
    }
    close(made);
    unlink(path);
}

typedef struct waiter {
    const char *path;
    int rc;
    atomic_bool over;
} waiter;

static void *wait_for_lock(void *arg)
{
    waiter *w = arg;
    w->rc = pst_lock_wait(w->path, PST_LOCK_VISIBLE, "test", "reason=test", NULL);
    atomic_store(&w->over, true);
    return NULL;
}

static void test_lock_is_waited_for_until_it_is_free_or_we_are_stopped(void **state)
{
    char path[] = "/tmp/penstock-unit-XXXXXX";
    int made = mkstemp(path), other = open(path, O_RDWR);
    for (int stopped = 1; stopped >= 0; stopped--) {
        waiter w = {.path = path};
        pthread_t t;
        assert_int_equal(pst_lock_try(made, PST_LOCK_VISIBLE), 0);
        pthread_create(&t, NULL, wait_for_lock, &w);
        pst_sleep_ms(50);
        assert_false(atomic_load(&w.over));
        if (stopped)
            pst_stop_request();
        else
            close(made);
        pthread_join(t, NULL);
        assert_int_equal(w.rc, stopped ? PST_ESTOPPED : 0);
        pst_stop_reset();
    }
    assert_int_equal(pst_lock_try(other, PST_LOCK_VISIBLE), PST_EEXIST); /* ours from now on */
    close(other);
    unlink(path);
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
    char mark[96], shorter[64]; /* looked for on the whole computer: this test may run twice on it */
    snprintf(shorter, sizeof shorter, "PENSTOCK_RUN=unit-%d/1/learner", (int)getpid());
    snprintf(mark, sizeof mark, "%s-1", shorter);
    const char *env[] = {mark, "PATH=/usr/bin:/bin", NULL};
    pid_t pid = start("setsid sleep 31 & sleep 32 & sleep 33", env, true);
    /* All are there once three are in the group and one is out of it: the shell's child has the mark before it is `setsid`. */
    for (int i = 0; i < WAIT_MS && (pst_proc_kill_marked(mark, 0, 0) < 4 || pst_proc_group_count(pid) != 3); i++)
        pst_sleep_ms(1);
    assert_int_equal(pst_proc_kill_marked(mark, 0, 0), 4);
    assert_int_equal(pst_proc_kill_marked(shorter, 0, 0), 0);
    assert_int_equal(pst_proc_kill_marked(mark, pst_proc_start_time(pid) + 1000, 0), 0); /* older than the run */
    assert_int_equal(pst_proc_group_count(pid), 3);
    kill(-pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (int i = 0; i < WAIT_MS && pst_proc_group_count(pid); i++)
        pst_sleep_ms(1);
    assert_int_equal(pst_proc_group_count(pid), 0);
    assert_int_equal(pst_proc_kill_marked(mark, 0, SIGKILL), 1);
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
    assert_false(pst_stop_forced());
    raise(SIGINT);
    assert_true(pst_stop_forced());
    assert_int_equal(pst_stop_signal(), SIGINT);
    pst_stop_reset();
    assert_false(pst_stop_requested());
    pst_stop_defer(true); /* the first waits, the second does not */
    raise(SIGTERM);
    assert_false(pst_stop_requested());
    raise(SIGTERM);
    assert_true(pst_stop_requested());
    pst_stop_reset();
    raise(SIGTERM);
    assert_false(pst_stop_requested());
    pst_stop_defer(false);
    assert_true(pst_stop_requested());
    pst_stop_reset();
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

/* What is handed over is in no environment and no argument that /proc shows, and its program sees it all the same. */
static void test_handover_is_seen_by_its_program_alone(void **state)
{
    const char *given[] = {"PENSTOCK_X_SASL_PASSWORD=geheim", "PATH=/nowhere", "LONELY=1", "=bad", "worse", NULL};
    const char *env[] = {PST_HANDOVER_MARK, "PATH=/usr/bin:/bin", NULL};
    pst_err e = {0};
    int in = -1;
    assert_int_equal(pst_handover_new(given, &in, &e), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        dup2(in, 0);
        environ = (char **)env;
        pst_handover_take();
        bool good = !strcmp(getenv("PENSTOCK_X_SASL_PASSWORD"), "geheim") && !strcmp(getenv("PATH"), "/usr/bin:/bin") &&
                    !strcmp(getenv("LONELY"), "1") && !getenv("PENSTOCK_HANDOVER");
        char c;
        _exit(good && read(0, &c, 1) == 0 ? 0 : 1);
    }
    close(in);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* A neighbour of the same user cannot look into a private process; what it starts is as open as ever. */
static void test_private_process_is_closed_to_its_own_user(void **state)
{
    int told[2];
    assert_int_equal(pipe(told), 0);
    pid_t pid = fork();
    if (!pid) {
        if (getuid() == 0 && setresuid(65533, 65533, 65533) < 0)
            _exit(1);
        prctl(PR_SET_DUMPABLE, 1);
        pst_proc_private();
        pid_t parent = getpid(), child = fork();
        if (!child) {
            char path[64];
            snprintf(path, sizeof path, "/proc/%d/environ", (int)parent);
            char c = 0;
            int fd = open(path, O_RDONLY);
            c = fd >= 0 && read(fd, &c, 1) >= 0 ? 'o' : 'c';
            _exit(write(told[1], &c, 1) == 1 ? 0 : 1);
        }
        waitpid(child, NULL, 0);
        _exit(0);
    }
    char c = 0;
    assert_int_equal(read(told[0], &c, 1), 1);
    assert_int_equal(c, 'c');
    waitpid(pid, NULL, 0);
    close(told[0]);
    close(told[1]);
}

static int join(void *group)
{
    return pst_cgroup_join(group);
}

/* A bomb meets its limit, is told apart, and is gone when it is said to be gone; nobody else's group is touched. */
static void test_control_group_holds_a_fork_bomb(void **state)
{
    pst_cgroup g, back;
    char name[64];
    snprintf(name, sizeof name, "penstock-unit-%d", (int)getpid());
    pst_cgroup_make(name, &g);
    if ((g.have & (PST_CGROUP_PROCESSES | PST_CGROUP_KILL)) != (PST_CGROUP_PROCESSES | PST_CGROUP_KILL)) {
        pst_cgroup_close(&g);
        pst_cgroup_remove(&g);
        skip();
    }
    pst_cgroup_limit(&g, &(pst_cgroup_limits){.processes = 24});
    assert_true(g.enforced & PST_CGROUP_PROCESSES);
    const char *argv[] = {"/bin/sh", "-c", "while :; do (setsid env -i sleep 100 &) ; done 2>/dev/null", NULL};
    pid_t pid = 0;
    pst_spawn how = {.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .new_session = true, .enter = join, .enter_arg = &g};
    assert_int_equal(pst_proc_spawn(&how, &pid, NULL), 0);
    for (int i = 0; i < WAIT_MS && !(pst_cgroup_hits(&g) & PST_CGROUP_PROCESSES); i++)
        pst_sleep_ms(1);
    assert_true(pst_cgroup_hits(&g) & PST_CGROUP_PROCESSES);
    char *text = pst_cgroup_text(&g);
    pst_cgroup_from_text(text, "penstock-another", &back); /* of another name: none of ours */
    assert_int_equal(back.n, 0);
    pst_cgroup_from_text(text, name, &back);
    assert_int_equal(back.n, g.n);
    free(text);
    int left = 1;
    for (int i = 0; i < WAIT_MS && (left = pst_cgroup_kill(&back)) > 0; i++) {
        waitpid(pid, NULL, WNOHANG);
        pst_sleep_ms(1);
    }
    assert_int_equal(left, 0);
    pst_cgroup_close(&g);
    pst_cgroup_remove(&g);
    assert_int_equal(access(g.path[0], F_OK), -1);
}

static void test_control_groups_are_never_taken_from_a_folder_that_only_looks_like_one(void **state)
{
    char dir[] = "/tmp/pst-group-XXXXXX", path[64], name[128];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/penstock-fake", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(name, sizeof name, "%s/cgroup.procs", path);
    int fd = open(name, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0 && write(fd, "1\n", 2) == 2);
    close(fd);
    pst_cgroup g;
    pst_cgroup_from_text(path, "penstock-fake", &g);
    assert_int_equal(g.n, 0);
    unlink(name);
    rmdir(path);
    rmdir(dir);
}

/* A process that lives in its children only, never long enough to be killed by its number: it is stopped first. */
static void test_tree_kill_catches_what_moves_from_child_to_child(void **state)
{
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid)
        for (;;) {
            pid_t next = fork();
            if (next)
                _exit(0);
        }
    pst_sleep_ms(50);
    bool gone = false;
    for (int i = 0; i < 2000 && !gone; i++) {
        pst_tree_kill(getpid());
        pid_t reaped;
        while ((reaped = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        gone = reaped < 0 && errno == ECHILD;
    }
    assert_true(gone);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static void test_cgroup_of_nobody_is_removed(void **state)
{
    pst_cgroup g;
    char name[64]; /* groups are the computer's: this test may run twice on it */
    snprintf(name, sizeof name, "penstock-unit-stale-%d", (int)getpid());
    pst_cgroup_make(name, &g);
    pst_cgroup_close(&g);
    assert_int_equal(pst_cgroup_remove_stale(name, 3600), 0);
    assert_int_equal(pst_cgroup_remove_stale(name, -10), g.n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_locks_have_one_owner_and_can_be_looked_at),
        cmocka_unit_test(test_lock_is_waited_for_until_it_is_free_or_we_are_stopped),
        cmocka_unit_test(test_alive_means_that_very_process),
        cmocka_unit_test(test_group_and_mark_find_descendants),
        cmocka_unit_test(test_spawn_says_why_not),
        cmocka_unit_test(test_control_group_holds_a_fork_bomb),
        cmocka_unit_test(test_control_groups_are_never_taken_from_a_folder_that_only_looks_like_one),
        cmocka_unit_test(test_tree_kill_catches_what_moves_from_child_to_child),
        cmocka_unit_test(test_handover_is_seen_by_its_program_alone),
        cmocka_unit_test(test_private_process_is_closed_to_its_own_user),
        cmocka_unit_test(test_stop_counts),
        cmocka_unit_test(test_stop_is_heard_though_a_parent_blocked_it),
        cmocka_unit_test(test_stop_is_seen_by_other_threads),
        cmocka_unit_test(test_cgroup_of_nobody_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
