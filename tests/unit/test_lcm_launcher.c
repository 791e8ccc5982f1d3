/* test_lcm_launcher.c - what every launcher promises (lcm/launcher.h), held against the local one with real processes: this program, copied
 * beside itself under the name of the supervisor's, is also what it starts. */
#include "lcm/launchers.h"

#include "common/base/array.h"
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/proc.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- as the supervisor: holds the lock, says who it is, ends well when it is asked to ------------------------------------------ */

static volatile sig_atomic_t asked;

static void on_term(int sig)
{
    asked = 1;
}

static int supervise(const char *dir)
{
    int lock;
    signal(SIGTERM, on_term);
    if (pst_rundir_lock(dir, &lock, NULL) < 0)
        return 1;
    char *starts = pst_fs_join(dir, "starts");
    int fd = open(starts, O_WRONLY | O_CREAT | O_APPEND, 0600);
    free(starts);
    if (fd < 0 || write(fd, "x", 1) != 1)
        return 1;
    pst_rundir_owner_write(dir, &(pst_rundir_owner){.pid = getpid(), .start_time = pst_proc_start_time(getpid())}, NULL);
    while (!asked)
        pst_sleep_ms(5);
    pst_rundir_exit_write(dir, &(pst_rundir_exit){.has_signal = true, .signal = SIGTERM, .stop_reason = pst_rundir_stop_reason_read(dir)},
                          NULL);
    pst_rundir_published_mark(dir, NULL);
    return 0;
}

/* ---- the launcher and what it told --------------------------------------------------------------------------------------------- */

typedef struct world {
    char dir[64];
    const pst_launcher_ops *ops;
    void *launcher;
    pst_launcher_news *news;
    size_t n, cap;
} world;

static char home[] = "/tmp/penstock-launcher-XXXXXX";
static const pst_process_id A = {"training-a", 1, "learner-1"};
static const pst_lcm_devices NO_DEVICES = {0};

static void on_news(void *arg, const pst_launcher_news *news)
{
    world *w = arg;
    w->news = pst_array_room(w->news, w->n, &w->cap, sizeof *w->news);
    w->news[w->n++] = *news;
}

static size_t poll_once(world *w)
{
    w->n = 0;
    w->ops->poll(w->launcher, on_news, w);
    return w->n;
}

static void open_launcher(world *w)
{
    static const char *const none[] = {NULL};
    pst_err err = {0};
    w->ops = lcm_launcher_find("local");
    assert_non_null(w->ops);
    if (w->ops->open(&(pst_launcher_conf){.state_dir = w->dir, .environ = none}, &w->launcher, &err) < 0)
        fail_msg("%s", err.text);
}

static int setup(void **state)
{
    static int n;
    world *w = calloc(1, sizeof *w);
    snprintf(w->dir, sizeof w->dir, "%s/state-%d", home, ++n);
    open_launcher(w);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;
    w->ops->close(w->launcher);
    free(w->news);
    free(w);
    return 0;
}

static void intend(world *w)
{
    char *dir = pst_rundir_gen_dir(w->dir, A.training_id, A.generation);
    pst_rundir_spec spec = {.training_id = (char *)A.training_id,
                            .generation = A.generation,
                            .site = (char *)"local",
                            .state_dir = w->dir,
                            .manifest = (char *)"x",
                            .learners = 1};
    assert_int_equal(pst_fs_mkdirs(dir, 0700, NULL), 0);
    assert_int_equal(pst_rundir_intent_write(dir, &spec, NULL), 0);
    free(dir);
}

/* Created, and it has said who it is. */
static pst_rundir_owner create(world *w)
{
    char *dir = pst_rundir_dir(w->dir, &A);
    pst_rundir_owner o = {0};
    w->ops->create(w->launcher, &A, &NO_DEVICES);
    for (int i = 0; i < 2000 && pst_rundir_owner_read(dir, &o, NULL) < 0; i++)
        pst_sleep_ms(5);
    assert_true(pst_proc_alive(o.pid, o.start_time));
    free(dir);
    return o;
}

static size_t starts(const world *w)
{
    char *dir = pst_rundir_dir(w->dir, &A), *path = pst_fs_join(dir, "starts");
    pst_buf b = {0};
    pst_fs_read(path, 100, &b, NULL);
    size_t n = b.len;
    pst_buf_done(&b);
    free(path);
    free(dir);
    return n;
}

static const pst_launcher_news *wait_for(world *w, pst_launcher_news_type type, bool ask_again)
{
    for (int i = 0; i < 2000; i++) {
        if (poll_once(w)) {
            assert_int_equal(w->n, 1);
            assert_true(pst_process_id_same(&w->news[0].process, &A));
            if (w->news[0].type == type)
                return &w->news[0];
        }
        if (ask_again)
            w->ops->delete (w->launcher, &A, true);
        pst_sleep_ms(5);
    }
    fail_msg("the launcher did not tell %d", type);
    return NULL;
}

/* ---- the promises ---------------------------------------------------------------------------------------------------------------- */

static void test_launcher_table_knows_those_that_there_are(void **state)
{
    assert_ptr_equal(lcm_launcher_find("local"), &pst_launcher_local);
    assert_null(lcm_launcher_find("elsewhere"));
    assert_null(lcm_launcher_find(""));
    char *names = lcm_launcher_names();
    for (char *save, *name = strtok_r(names, ", ", &save); name; name = strtok_r(NULL, ", ", &save))
        assert_string_equal(lcm_launcher_find(name)->name, name);
    free(names);
}

static void test_launcher_answers_by_poll_only_and_once(void **state)
{
    world *w = *state;
    w->ops->adopt(w->launcher, &A);
    assert_int_equal(w->n, 0);
    assert_int_equal(poll_once(w), 1);
    assert_int_equal(w->news[0].type, PST_LAUNCHER_FOUND);
    assert_int_equal(w->news[0].seen, PST_LCM_SEEN_ABSENT);
    assert_int_equal(poll_once(w), 0);
    w->ops->create(w->launcher, &A, &NO_DEVICES); /* nothing says what it is */
    assert_int_equal(w->n, 0);
    assert_int_equal(poll_once(w), 1);
    assert_int_equal(w->news[0].type, PST_LAUNCHER_NOT_CREATED);
    assert_non_null(strstr(w->news[0].why, "intent.json"));
    assert_int_equal(poll_once(w), 0);
}

static void test_launcher_creates_no_second_one_and_sees_the_end(void **state)
{
    world *w = *state;
    intend(w);
    create(w);
    w->ops->create(w->launcher, &A, &NO_DEVICES);
    assert_int_equal(poll_once(w), 0);
    w->ops->stop(w->launcher, &A);
    const pst_launcher_news *news = wait_for(w, PST_LAUNCHER_CHANGED, false);
    assert_int_equal(news->seen, PST_LCM_SEEN_ENDED);
    assert_int_equal(news->exit.signal, SIGTERM);
    assert_true(news->published);
    assert_int_equal(starts(w), 1);
}

static void test_launcher_finds_what_an_earlier_one_created(void **state)
{
    world *w = *state;
    intend(w);
    pst_rundir_owner o = create(w);
    w->ops->close(w->launcher);
    open_launcher(w);
    assert_true(pst_proc_alive(o.pid, o.start_time)); /* it goes on without */
    w->ops->adopt(w->launcher, &A);
    assert_int_equal(wait_for(w, PST_LAUNCHER_FOUND, false)->seen, PST_LCM_SEEN_ALIVE);
    w->ops->adopt(w->launcher, &A); /* again: answered again, and still watched once */
    assert_int_equal(wait_for(w, PST_LAUNCHER_FOUND, false)->seen, PST_LCM_SEEN_ALIVE);
    kill(o.pid, SIGKILL);
    assert_int_equal(wait_for(w, PST_LAUNCHER_CHANGED, false)->seen, PST_LCM_SEEN_VANISHED);
    assert_int_equal(poll_once(w), 0);
    assert_int_equal(starts(w), 1);
}

static void test_launcher_is_certain_before_it_says_gone(void **state)
{
    world *w = *state;
    intend(w);
    pst_rundir_owner o = create(w);
    w->ops->delete (w->launcher, &A, false);
    assert_int_equal(w->n, 0);
    for (size_t i = 0; i < poll_once(w); i++) /* it was alive a moment ago: that is no certainty, whatever was sent to it */
        assert_int_not_equal(w->news[i].type, PST_LAUNCHER_GONE);
    wait_for(w, PST_LAUNCHER_GONE, true);
    assert_false(pst_proc_alive(o.pid, o.start_time));
}

/* Two LCM ticks may lie between its end and the moment in which it is to be ended by force: what it said of its end stands. */
static void test_launcher_tells_an_end_of_its_own_rather_than_gone(void **state)
{
    world *w = *state;
    intend(w);
    pst_rundir_owner o = create(w);
    w->ops->stop(w->launcher, &A);
    for (int i = 0; i < 2000 && pst_proc_alive(o.pid, o.start_time); i++)
        pst_sleep_ms(5);
    w->ops->delete (w->launcher, &A, false);
    for (size_t told = 0; told < 2; told += w->n) { /* the answer, and what the watch saw */
        poll_once(w);
        for (size_t i = 0; i < w->n; i++) {
            assert_int_equal(w->news[i].type, PST_LAUNCHER_CHANGED);
            assert_int_equal(w->news[i].seen, PST_LCM_SEEN_ENDED);
        }
    }
}

/* Its model may stand on the topic: whoever is killed now, the rest is taken up again. */
static void test_launcher_tells_that_only_a_registration_is_left(void **state)
{
    world *w = *state;
    intend(w);
    pst_rundir_owner o = create(w);
    char *dir = pst_rundir_dir(w->dir, &A);
    assert_int_equal(pst_rundir_registering_mark(dir, NULL), 0);
    w->ops->delete (w->launcher, &A, false);
    const pst_launcher_news *news = wait_for(w, PST_LAUNCHER_CHANGED, false);
    assert_int_equal(news->seen, PST_LCM_SEEN_FLUSHING);
    kill(o.pid, SIGKILL);
    news = wait_for(w, PST_LAUNCHER_CHANGED, false);
    assert_int_equal(news->seen, PST_LCM_SEEN_ENDED);
    assert_false(news->published);
    free(dir);
}

/* A place where this program has the supervisor's as its neighbour. */
static void move_home(char **argv)
{
    char *self = pst_proc_self();
    pst_buf b = {0};
    assert_non_null(mkdtemp(home));
    char *test = pst_fs_join(home, "test"), *supervisor = pst_fs_join(home, "penstock-supervise");
    if (pst_fs_read(self, 1 << 30, &b, NULL) < 0 || pst_fs_write_atomic(test, b.data, b.len, 0700, NULL) < 0 || link(test, supervisor) < 0)
        exit(1);
    setenv("PENSTOCK_TEST_HOME", home, 1);
    execv(test, argv);
    exit(1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launcher_table_knows_those_that_there_are),
        cmocka_unit_test_setup_teardown(test_launcher_answers_by_poll_only_and_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_launcher_creates_no_second_one_and_sees_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_launcher_finds_what_an_earlier_one_created, setup, teardown),
        cmocka_unit_test_setup_teardown(test_launcher_is_certain_before_it_says_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_launcher_tells_an_end_of_its_own_rather_than_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_launcher_tells_that_only_a_registration_is_left, setup, teardown),
    };
    if (argc == 4 && !strcmp(argv[1], "supervise"))
        return supervise(argv[3]);
    const char *there = getenv("PENSTOCK_TEST_HOME");
    if (!there)
        move_home(argv);
    snprintf(home, sizeof home, "%s", there);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    pst_fs_remove_tree(home, NULL);
    return failed;
}
