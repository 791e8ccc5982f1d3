/* test_supervisor_box.c - what a learner is kept in: which files, devices and processes are out of its reach, which limits end it, and that
 * nothing of it survives, at each level of isolation that this computer gives. */
#include "common/base/clock.h"
#include "common/base/confine.h"
#include "common/base/fs.h"
#include "common/base/proc.h"
#include "common/base/stop.h"
#include "supervisor_world.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* What the platform keeps beside a learner's folders, and the supervisor's own process, are nothing to it; its folders are. */
static void test_run_learner_is_kept_from_the_platforms_files_and_processes(void **state)
{
    world *w = *state;
    unsigned can = pst_confine_probe();
    char *secret = pst_fs_join(w->dir, "token"), *outside = pst_sprintf("%s.out", w->dir);
    assert_int_equal(pst_fs_write_atomic(secret, "canary", 6, 0600, NULL), 0);
    pst_proc_private();
    char *command = pst_sprintf(
        "cat %s 2>/dev/null && echo read-secret; echo x > $PENSTOCK_RUN_DIR/stop.json && echo wrote-stop; cat $PENSTOCK_RUN_DIR/spec.json "
        "2>/dev/null && echo read-spec; cat /proc/$PPID/environ >/dev/null 2>&1 && echo read-parent; kill -0 $PPID 2>/dev/null && echo "
        "may-signal; grep NoNewPrivs /proc/self/status; for d in $CHECKPOINT_DIR $RESULT_DIR $MODEL_DIR $LOG_DIR $JOB_STATE_DIR; do echo x "
        "> "
        "$d/probe || echo lost $d; done; echo y > %s && echo outside; sleep 30 & kill $! && echo own-signal; exit 0",
        secret, outside);
    world_run(w, command, NULL, NULL);
    assert_int_equal(world_end(w)->exit_code, 0);
    assert_null(world_line(w, "lost"));
    assert_non_null(world_line(w, "outside")); /* the operator's own folders are what local jobs are made of */
    assert_non_null(world_line(w, "own-signal"));
    if (can & PST_CAN_NO_NEW_PRIVS)
        assert_non_null(world_line(w, "NoNewPrivs:\t1"));
    if (can & PST_CAN_MOUNTS) {
        assert_null(world_line(w, "read-secret"));
        assert_null(world_line(w, "wrote-stop"));
        assert_null(world_line(w, "read-spec"));
    }
    if (can & (PST_CAN_LANDLOCK | PST_CAN_NO_NEW_PRIVS))
        assert_null(world_line(w, "read-parent"));
    if (can & PST_CAN_SCOPE_SIGNALS)
        assert_null(world_line(w, "may-signal"));
    unlink(outside);
    free(command);
    free(outside);
    free(secret);
    prctl(PR_SET_DUMPABLE, 1);
}

/* Links in a learner's folders do not make the supervisor, which sees everything, read or write for it. */
static void test_run_links_do_not_lend_the_supervisors_sight(void **state)
{
    world *w = *state;
    char *secret = pst_fs_join(w->dir, "token.txt"), *written = pst_fs_join(w->dir, "planted.txt");
    char *got = pst_fs_join(w->dir, "jobs/training-unit/results/learner-1/token.txt");
    assert_int_equal(pst_fs_write_atomic(secret, "canary", 6, 0600, NULL), 0);
    char *command = pst_sprintf("mv $LOG_DIR/learner-1 $LOG_DIR/old; ln -s %s $LOG_DIR/learner-1; echo x > $LOG_DIR/planted.txt; %s",
                                w->dir, "[ \"$LINK_RESULTS\" ] && ln -s $OUT $RESULT_DIR/learner-1; exit 0");
    world_run(w, command, NULL, NULL);
    assert_false(pst_fs_exists(got));
    char *old = pst_fs_join(w->run_dir, "exit.json"), *told = pst_fs_join(w->run_dir, "published");
    char *results = pst_fs_join(w->dir, "jobs/training-unit/results/learner-1"),
         *extra = pst_sprintf("penstock: {env: {LINK_RESULTS: 1, OUT: %s}}\n", w->dir);
    unlink(old);
    unlink(told);
    assert_int_equal(pst_fs_remove_tree(results, NULL), 0);
    world_run(w, command, extra, NULL);
    assert_false(pst_fs_exists(written));
    assert_non_null(world_line(w, "the logs are not kept with the results"));
    free(extra);
    free(results);
    free(old);
    free(told);
    free(command);
    free(got);
    free(written);
    free(secret);
}

static void test_run_memory_limit_is_kept_and_named(void **state)
{
    world *w = *state;
    world_run(w, "head -c 400000000 /dev/zero | tail", NULL, NULL); /* memory: 64MiB */
    const pst_process_report *x = world_end(w);
    assert_true(x->has_signal || x->exit_code);
    assert_string_equal(x->reason_code, "C201");
    if (!strstr(x->reason, "memory limit of 64.0 MiB"))
        fail_msg("%s", x->reason);
}

static void test_run_storage_limit_is_kept_and_named(void **state)
{
    world *w = *state;
    static const char *const commands[] = {"head -c 40000000 /dev/zero > $RESULT_DIR/big; exit $?",
                                           "for i in 1 2 3 4 5 6 7 8; do head -c 2000000 /dev/zero > $RESULT_DIR/$i; done; sleep 30"};
    for (size_t i = 0; i < 2; i++) {
        world_run(w, commands[i], "storage: 10MiB\n", NULL);
        const pst_process_report *x = world_end(w);
        assert_true(x->has_signal || x->exit_code);
        if (!strstr(x->reason, "10.0 MiB of the manifest's storage"))
            fail_msg("%s", x->reason);
        char *old = pst_fs_join(w->run_dir, "exit.json"), *told = pst_fs_join(w->run_dir, "published");
        unlink(old);
        unlink(told);
        free(old);
        free(told);
    }
}

static void test_run_fork_bomb_is_ended_soon_and_named(void **state)
{
    world *w = *state;
    int64_t begin = pst_mono_us();
    world_run(w, "f() { f | f & }; f; sleep 1000", "memory: 2GiB\ncpus: 0.5\n", NULL);
    assert_true(pst_mono_us() - begin < 500000000); /* seconds, but on a loaded machine */
    assert_non_null(strstr(world_end(w)->reason, "limit of 4096 processes"));
}

/* What root might read and write by its user id alone is not there for a job: disks, devices elsewhere, the system's folders. */
static void test_run_devices_and_the_system_are_out_of_reach(void **state)
{
    world *w = *state;
    unsigned can = pst_confine_probe();
    if (!(can & PST_CAN_MOUNTS))
        return;
    char *node = pst_sprintf("%s.node", w->dir);
    bool made = mknod(node, S_IFBLK | 0666, makedev(7, 0)) == 0; /* loop0, which need not have a file */
    char *command =
        pst_sprintf("for f in /dev/* /dev/*/*; do [ -b $f ] && echo block $f; done; ls -l %s && head -c 1 < %s && echo opened; "
                    "for f in kmsg mem sda vda tty0 loop-control watchdog; do [ -e /dev/$f ] && echo there $f; done; "
                    "echo x > /dev/null && echo null; head -c 4 /dev/urandom | wc -c; echo err > /dev/stderr; echo out > /dev/stdout; "
                    "touch /dev/shm/pst-probe && rm /dev/shm/pst-probe && echo shm; "
                    "for d in /usr /etc /opt /home /root /srv /var/lib /var/log /run; do touch $d/pst-probe && echo wrote-$d; done; "
                    "touch /var/tmp/pst-probe && rm /var/tmp/pst-probe && echo temporary; ls -d /dev/pts/* | head -3; "
                    "echo x > /job/probe; [ -s $JOB_STATE_DIR/probe ] && echo job; touch /pst-probe && echo wrote-root; [ -d /proc/self ] "
                    "&& echo proc; pwd; exit 0",
                    node, node);
    for (int sandbox = 0; sandbox < 2; sandbox++) {
        if (sandbox && !(can & PST_CAN_SANDBOX))
            break;
        world_run(w, command, sandbox ? "penstock: {isolation: sandbox}\n" : NULL, NULL);
        assert_null(world_line(w, "opened"));
        if (world_line(w, "wrote-"))
            fail_msg("%s: %s", sandbox ? "sandbox" : "user", world_line(w, "wrote-"));
        assert_non_null(world_line(w, "temporary"));
        assert_non_null(world_line(w, "null"));
        assert_non_null(world_line(w, "4"));
        assert_non_null(world_line(w, "out"));
        assert_non_null(world_line(w, "shm"));
        assert_non_null(world_line(w, "proc"));
        if (can & PST_CAN_DEVICES) {
            assert_null(world_line(w, "block"));
            assert_null(world_line(w, "there"));
        }
        if (can & PST_CAN_ROOT)
            assert_non_null(world_line(w, "job"));
        world_again(w);
    }
    if (made)
        unlink(node);
    free(command);
    free(node);
}

static void test_run_isolation_that_cannot_be_had_is_an_error(void **state)
{
    world *w = *state;
    if (pst_confine_probe() & PST_CAN_SANDBOX)
        return;
    world_run(w, "echo never", "penstock: {isolation: sandbox}\n", NULL);
    assert_null(world_line(w, "never"));
    assert_non_null(strstr(world_end(w)->reason, "penstock.isolation: sandbox"));
    assert_string_equal(world_end(w)->reason_code, "S101");
}

/* Its own processes, user and folders, nothing else writable; its end and its output come through as ever. */
static void test_run_sandbox_has_processes_users_and_folders_of_its_own(void **state)
{
    world *w = *state;
    if (!(pst_confine_probe() & PST_CAN_SANDBOX))
        return;
    char *outside = pst_sprintf("%s.out", w->dir), *bystander = pst_sprintf("%s.seen", w->dir);
    assert_int_equal(pst_fs_write_atomic(bystander, "x", 1, 0644, NULL), 0);
    w->spec.grace_ms = 300;
    char *command = pst_sprintf(
        "echo pid $$; echo user $(id -u); ls /proc | grep -c '^[0-9]'; for d in $CHECKPOINT_DIR $RESULT_DIR $MODEL_DIR $LOG_DIR "
        "$JOB_STATE_DIR "
        "/tmp; do echo x > $d/probe || echo lost $d; done; echo y > %s; cat %s && echo sees-tmp; touch /usr/probe && echo wrote-usr; "
        "(setsid env -i $(command -v sleep) 300 &); echo m > $CHECKPOINT_DIR/mine; kill -9 1; exit 5",
        outside, bystander);
    int64_t begin = pst_mono_us();
    world_run(w, command, "penstock: {isolation: sandbox}\n", NULL);
    assert_int_equal(world_end(w)->exit_code, 5);
    assert_true(pst_mono_us() - begin < 200000000);
    assert_non_null(world_line(w, "pid 2"));
    assert_null(world_line(w, "user 0"));
    assert_null(world_line(w, "lost"));
    assert_null(world_line(w, "sees-tmp"));
    assert_null(world_line(w, "wrote-usr"));
    assert_false(pst_fs_exists(outside));
    char *mine = pst_fs_join(w->dir, "jobs/training-unit/checkpoints/mine");
    assert_true(pst_fs_exists(mine));
    unlink(bystander);
    free(mine);
    free(command);
    free(bystander);
    free(outside);
}

static void test_run_sandbox_ends_by_signal_and_on_halt(void **state)
{
    world *w = *state;
    if (!(pst_confine_probe() & PST_CAN_SANDBOX))
        return;
    world_run(w, "kill -SEGV $$", "penstock: {isolation: sandbox}\n", NULL);
    assert_true(world_end(w)->has_signal && world_end(w)->signal == SIGSEGV);
    char *old = pst_fs_join(w->run_dir, "exit.json"), *told = pst_fs_join(w->run_dir, "published");
    unlink(old);
    unlink(told);
    free(old);
    free(told);
    pthread_t t;
    w->spec.grace_ms = 20000;
    pst_stop_install();
    pthread_create(&t, NULL, world_stop_soon, NULL);
    world_run(w, "trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done", "penstock: {isolation: sandbox}\n", NULL);
    pthread_join(t, NULL);
    assert_non_null(world_line(w, "bye"));
    assert_int_equal(world_end(w)->exit_code, 3);
}

/* The operator's word is a floor: more may be asked for, less is refused and said where, and who asks for nothing gets it. */
static void test_run_operators_floor_is_kept(void **state)
{
    world *w = *state;
    unsigned can = pst_confine_probe();
    if (!(can & PST_CAN_NO_NEW_PRIVS))
        return;
    w->spec.floor = PST_ISOLATION_USER;
    world_run(w, "echo never", "penstock:\n  isolation: none\n", NULL);
    assert_null(world_line(w, "never"));
    assert_string_equal(world_end(w)->reason_code, "S101");
    if (!strstr(world_end(w)->reason, "of the manifest): none is weaker than the operator of this node allows, which is user"))
        fail_msg("%s", world_end(w)->reason);
    world_again(w);
    if (!(can & PST_CAN_SANDBOX))
        return;
    w->spec.floor = PST_ISOLATION_SANDBOX;
    world_run(w, "echo pids $(ls /proc | grep -c '^[0-9]')", NULL, NULL);
    assert_int_equal(world_end(w)->exit_code, 0);
    assert_true(atoi(world_line(w, "pids") + 5) < 10);
}

/* Processes anywhere whose command line has the text. */
static int living(const char *text)
{
    char command[200];
    int n = -1;
    snprintf(command, sizeof command, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o 'slee[p] %s' | wc -l", text);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}

static const char *const levels[] = {"none", "user", "sandbox"};

static bool host_gives(size_t level)
{
    unsigned can = pst_confine_probe();
    return level == 0 || can & (level == 1 ? PST_CAN_NO_NEW_PRIVS : PST_CAN_SANDBOX);
}

/* Each of them in a session of its own, its parents gone, its environment empty: nothing but the kernel knows whose they were. */
static void test_run_thousands_that_left_the_session_are_ended(void **state)
{
    world *w = *state;
    for (size_t i = 0; i < 3; i++) {
        if (!host_gives(i))
            continue;
        char mark[40], *extra = pst_sprintf("memory: 4GiB\ncpus: 0.5\npenstock: {isolation: %s}\n", levels[i]);
        snprintf(mark, sizeof mark, "1000.%d%zu", (int)getpid(), i);
        char *command = pst_sprintf(
            "i=0; while [ $i -lt 3000 ]; do (setsid env -i $(command -v sleep) %s &); i=$((i+1)); done; "
            "n=0; for t in $(seq 100); do n=$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o 'slee[p] %s' | wc -l); "
            "[ $n -ge 3000 ] && break; sleep 0.2; done; echo left $n; exit 7",
            mark, mark);
        world_run(w, command, extra, NULL);
        if (world_end(w)->exit_code != 7)
            fail_msg("%s: %s", levels[i], world_end(w)->reason);
        if (!world_line(w, "left 3000"))
            fail_msg("%s: %s", levels[i], world_line(w, "left"));
        assert_int_equal(living(mark), 0);
        world_again(w);
        free(command);
        free(extra);
    }
}

/* The same without end: it comes to the limit, whatever session it is in, and that is told. */
static void test_run_bomb_of_new_sessions_is_ended_and_named(void **state)
{
    world *w = *state;
    for (size_t i = 1; i < 3; i++) {
        if (!host_gives(i))
            continue;
        char mark[40], *extra = pst_sprintf("memory: 4GiB\ncpus: 0.5\npenstock: {isolation: %s}\n", levels[i]);
        snprintf(mark, sizeof mark, "2000.%d%zu", (int)getpid(), i);
        char *command = pst_sprintf("while :; do (setsid env -i $(command -v sleep) %s &) 2>/dev/null; done", mark);
        world_run(w, command, extra, NULL);
        if (!strstr(world_end(w)->reason, "limit of 4096 processes"))
            fail_msg("%s: %s", levels[i], world_end(w)->reason);
        assert_int_equal(living(mark), 0);
        world_again(w);
        free(command);
        free(extra);
    }
}

#define RUN(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_run_learner_is_kept_from_the_platforms_files_and_processes),
        RUN(test_run_links_do_not_lend_the_supervisors_sight),
        RUN(test_run_memory_limit_is_kept_and_named),
        RUN(test_run_storage_limit_is_kept_and_named),
        RUN(test_run_fork_bomb_is_ended_soon_and_named),
        RUN(test_run_devices_and_the_system_are_out_of_reach),
        RUN(test_run_operators_floor_is_kept),
        RUN(test_run_thousands_that_left_the_session_are_ended),
        RUN(test_run_bomb_of_new_sessions_is_ended_and_named),
        RUN(test_run_isolation_that_cannot_be_had_is_an_error),
        RUN(test_run_sandbox_has_processes_users_and_folders_of_its_own),
        RUN(test_run_sandbox_ends_by_signal_and_on_halt),
    };
    setvbuf(stdout, NULL, _IONBF, 0);
    cmocka_set_test_filter(getenv("PENSTOCK_TEST")); /* the name of one */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
