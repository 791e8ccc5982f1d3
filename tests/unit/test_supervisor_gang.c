/* test_supervisor_gang.c - a process among those of its generation: ports that nobody else gets, the wait for the others, what the learner is told of
 * them, names that resolve, mpirun. The list that the Trainer and the LCM would bring is written by the tests. */
#include "common/base/confine.h"
#include "common/base/fs.h"
#include "common/base/stop.h"
#include "lcm/supervisor/mpi.h"
#include "lcm/supervisor/ports.h"
#include "supervisor_world.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- ports ----------------------------------------------------------------------------------------------------------------------- */

static bool can_bind(const char *address, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(inet_pton(AF_INET, address, &at.sin_addr), 1);
    bool ok = bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
    return ok;
}

/* What another supervisor would try. */
static bool can_claim(int port)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "penstock/port/%d", port);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    bool ok = bind(fd, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0;
    close(fd);
    return ok;
}

static void test_ports_of_many_are_all_different(void **state)
{
    enum { MANY = 64 };
    sup_ports p[MANY];
    static bool seen[65536];
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(sup_ports_reserve(NULL, &p[i], NULL), 0);
        for (int k = 0; k < SUP_PORTS; k++) {
            assert_in_range(p[i].port[k], 20000, 65535);
            assert_false(seen[p[i].port[k]]);
            seen[p[i].port[k]] = true;
        }
        for (int k = 0; k < i; k++)
            assert_string_not_equal(p[i].address, p[k].address);
        assert_true(can_bind(p[i].address, 2222));
    }
    for (int i = 0; i < MANY; i++)
        sup_ports_done(&p[i]);
}

static void test_ports_are_kept_from_others_until_the_end(void **state)
{
    sup_ports p;
    assert_int_equal(sup_ports_reserve(NULL, &p, NULL), 0);
    for (int k = 0; k < SUP_PORTS; k++) {
        assert_false(can_bind("127.0.0.1", p.port[k]));
        assert_false(can_bind(p.address, p.port[k]));
    }
    sup_ports_release(&p);
    for (int k = 0; k < SUP_PORTS; k++) {
        assert_true(can_bind(p.address, p.port[k])); /* the command may have it, */
        assert_false(can_claim(p.port[k]));          /* and no other supervisor */
    }
    sup_ports_done(&p);
    for (int k = 0; k < SUP_PORTS; k++)
        assert_true(can_claim(p.port[k]));
}

static void test_ports_go_with_a_killed_process(void **state)
{
    int port[2], got = 0;
    assert_int_equal(pipe(port), 0);
    pid_t pid = fork();
    if (pid == 0) {
        sup_ports p;
        if (sup_ports_reserve(NULL, &p, NULL) == 0 && write(port[1], p.port, sizeof p.port[0]) > 0)
            pause();
        _exit(1);
    }
    assert_int_equal(read(port[0], &got, sizeof got), sizeof got);
    assert_false(can_claim(got));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_true(can_claim(got));
    assert_true(can_bind("127.0.0.1", got));
    close(port[0]);
    close(port[1]);
}

/* ---- what is written of the members ---------------------------------------------------------------------------------------------- */

static const pst_member four[] = {{"chief-1", "chief", 0, 1, 0, 0, 2, "a", "127.1.2.3", 61001, 61002, 61003, 1},
                                  {"worker-2", "worker", 1, 2, 2, 0, 1, "b", "fd00::7", 61011, 61012, 61013, 4},
                                  {"worker-1", "worker", 0, 2, 1, 1, 2, "a", "127.1.2.4", 61021, 61022, 61023, 2},
                                  {"ps-1", "ps", 0, 1, -1, -1, 0, "a", "127.1.2.5", 61031, 61032, 61033, 1}};

static void check_text(char *text, const char *wanted)
{
    assert_string_equal(text, wanted);
    free(text);
}

static void test_gang_texts_are_those_of_the_frameworks(void **state)
{
    pst_members m = {(pst_member *)four, 4};
    check_text(sup_gang_tf_config(&m, &four[1]),
               "{\"cluster\":{\"chief\":[\"127.1.2.3:61001\"],\"worker\":[\"127.1.2.4:61021\",\"[fd00::7]:61011\"],"
               "\"ps\":[\"127.1.2.5:61031\"]},\"task\":{\"type\":\"worker\",\"index\":1}}");
    check_text(sup_gang_hostfile_text(&m, &four[0]), "localhost slots=3\nfd00::7 slots=4\n");
    check_text(sup_gang_hostfile_text(&m, &four[1]), "127.1.2.3 slots=3\nlocalhost slots=4\n");
    check_text(sup_gang_hosts_text(&m, "learner-x", "127.0.0.1 localhost"), "127.0.0.1 localhost\n# the learners of this job, by penstock\n"
                                                                            "127.1.2.3 learner-x-0.learner-x learner-x-0\n"
                                                                            "127.1.2.4 learner-x-1.learner-x learner-x-1\n"
                                                                            "fd00::7 learner-x-2.learner-x learner-x-2\n");
    assert_int_equal(sup_gang_world(&m), 3);
}

/* ---- runs ------------------------------------------------------------------------------------------------------------------------ */

#define MANIFEST "name: unit\nversion: \"1\"\ncpus: 0.1\nmemory: 64MiB\nframework:\n  name: %s\n  version: \"1\"\n  command: '%s'\n%s"

static void open_run(world *w, const char *framework, const char *command, const char *extra, sup_run *ret)
{
    pst_err err = {0};
    w->spec.manifest = pst_sprintf(MANIFEST, framework, command, extra);
    if (pst_rundir_spec_write(w->run_dir, &w->spec, &err) < 0 || sup_run_open(w->run_dir, ret, &err) < 0)
        fail_msg("%s", err.text);
    ret->outlet = world_outlet(w);
    ret->objects = w->objects;
}

static void close_run(world *w, sup_run *r)
{
    sup_gang_close(&r->gang);
    sup_outlet_close(r->outlet);
    sup_run_close(r);
    free(w->spec.manifest);
    w->spec.manifest = NULL;
}

static const char *detail(const pst_process_report *p, const char *name)
{
    for (size_t i = 0; i < p->n_details; i++)
        if (!strcmp(p->details[i].key, name))
            return p->details[i].value;
    return "";
}

/* As the Trainer would answer: this process, by what it reported, is `process`; the others are made up. */
static void bring_members(world *w, const pst_process_report *p, int n, int self)
{
    pst_member *at = pst_alloc((size_t)n * sizeof *at);
    for (int i = 0; i < n; i++) {
        at[i] = (pst_member){"", "worker", i, n, i, i, n, "", "", 50001, 50002, 50003, 1};
        snprintf(at[i].process, sizeof at[i].process, "learner-%d", i + 1);
        snprintf(at[i].host, sizeof at[i].host, "%s", detail(p, "host"));
        snprintf(at[i].address, sizeof at[i].address, "127.9.8.%d", i + 1);
    }
    snprintf(at[self].address, sizeof at[self].address, "%s", detail(p, "address"));
    at[self].port = atoi(detail(p, "port"));
    at[self].master_port = atoi(detail(p, "master_port"));
    at[self].other_port = atoi(detail(p, "other_port"));
    char *gen = pst_rundir_gen_dir(w->dir, "training-unit", 1);
    pst_err err = {0};
    if (pst_members_write(gen, &(pst_members){at, (size_t)n}, &err) < 0)
        fail_msg("%s", err.text);
    free(gen);
    free(at);
}

/* The process reports itself, the list comes, and its command knows the others. */
static void test_gang_process_reports_itself_and_is_told_of_the_others(void **state)
{
    world *w = *state;
    sup_run r;
    pst_err err = {0};
    open_run(w, "custom", "true", "learners: 3\npenstock: {env: {RANK: \"9\", OWN: \"yes\", PENSTOCK_ROLE: x}}\n", &r);
    assert_int_equal(sup_gang_open(&r, &err), 0);
    assert_int_equal(sup_outlet_flush(r.outlet, NULL, NULL), 0);
    assert_int_equal(w->n_reports, 1);
    assert_int_equal(w->reports[0].type, PST_REPORT_TYPE_REACHABLE);
    bring_members(w, &w->reports[0], 3, 0);
    if (sup_gang_meet(&r, &err) < 0)
        fail_msg("%s", err.text);
    char **env = sup_run_environ(&r);
    char master[80];
    snprintf(master, sizeof master, "MASTER_PORT=%s", detail(&w->reports[0], "master_port"));
    const char *const wanted[] = {"RANK=0",
                                  "WORLD_SIZE=3",
                                  "LOCAL_RANK=0",
                                  "LOCAL_WORLD_SIZE=3",
                                  "PENSTOCK_ROLE=worker",
                                  "PENSTOCK_ROLE_INDEX=0",
                                  "PENSTOCK_ROLE_COUNT=3",
                                  "PET_NNODES=3",
                                  "PET_NODE_RANK=0",
                                  "OWN=yes",
                                  "NUM_LEARNERS=3",
                                  "LEARNER_ID=1",
                                  master};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        bool found = false;
        for (char **v = env; *v; v++)
            found |= !strcmp(*v, wanted[i]);
        if (!found)
            fail_msg("%s is not there", wanted[i]);
    }
    sup_run_environ_free(env);
    close_run(w, &r);
}

/* A list in which this process is somebody else is not believed: its learner would tell the others a port that is not its own. */
static void test_gang_list_that_is_not_of_this_process_is_refused(void **state)
{
    world *w = *state;
    sup_run r;
    pst_err err = {0};
    open_run(w, "custom", "true", "learners: 3\n", &r);
    assert_int_equal(sup_gang_open(&r, &err), 0);
    assert_int_equal(sup_outlet_flush(r.outlet, NULL, NULL), 0);
    bring_members(w, &w->reports[0], 3, 1); /* its address, under the second's name */
    assert_int_equal(sup_gang_meet(&r, &err), PST_ESTATE);
    assert_non_null(strstr(err.text, "another address"));
    close_run(w, &r);
}

static void test_gang_wait_hears_a_stop(void **state)
{
    world *w = *state;
    pthread_t t;
    pst_stop_install();
    pthread_create(&t, NULL, world_stop_soon, NULL);
    world_run(w, "echo never", "learners: 2\n", NULL);
    pthread_join(t, NULL);
    assert_null(world_line(w, "never"));
    assert_string_equal(world_end(w)->reason, "stopped before the command was started");
}

static void test_gang_wait_hears_a_halt(void **state)
{
    world *w = *state;
    assert_int_equal(pst_rundir_stop_reason_write(w->run_dir, PST_STOP_REASON_HALT, NULL), 0);
    world_run(w, "echo never", "learners: 2\n", NULL);
    assert_null(world_line(w, "never"));
    assert_string_equal(detail(world_end(w), "stop_reason"), "halt");
}

/* FfDL's names are found by whatever asks the C library, where the host lets a learner have an /etc/hosts of its own; the host's is as it was. */
static void test_gang_names_resolve(void **state)
{
    world *w = *state;
    static const char *const level[] = {"none", "user", "sandbox"};
    unsigned can = pst_confine_probe();
    for (int i = 0; i < 3; i++) {
        bool gives = can & PST_CAN_HOSTS && (i != 2 || can & PST_CAN_SANDBOX) && (i != 0 || geteuid() == 0);
        char *extra = pst_sprintf("penstock: {isolation: %s}\n", level[i]);
        if (i == 2 && !(can & PST_CAN_SANDBOX)) {
            free(extra);
            continue;
        }
        world_run(
            w,
            "p=$LEARNER_NAME_PREFIX; echo resolved $(getent ahostsv4 $p-0.$p | head -1); getent hosts $p-0 >/dev/null && echo short; "
            "grep -c $p-0 $PENSTOCK_HOSTS; getent hosts localhost >/dev/null && echo localhost; echo $MASTER_ADDR; cat $PENSTOCK_HOSTFILE; "
            "echo x 2>/dev/null >> /etc/hosts && echo wrote",
            extra, NULL);
        if (gives && (!world_line(w, "resolved 127.") || !world_line(w, "short")))
            fail_msg("%s: the name does not resolve", level[i]);
        assert_non_null(world_line(w, "localhost slots=1"));
        assert_non_null(world_line(w, "localhost"));
        assert_non_null(world_line(w, "1"));
        if (gives)
            assert_null(world_line(w, "wrote"));
        free(extra);
        world_again(w);
    }
    pst_buf hosts = {0};
    assert_int_equal(pst_fs_read("/etc/hosts", 1 << 20, &hosts, NULL), 0);
    assert_null(strstr(hosts.data, "learner-unit-0"));
    pst_buf_done(&hosts);
}

/* ---- mpirun ---------------------------------------------------------------------------------------------------------------------- */

/* What mpirun does, as far as a command can tell: two ranks, one after the other. */
static void fake_mpirun(world *w)
{
    static const char script[] = "#!/bin/sh\necho \"args $*\"\nwhile [ \"$1\" != --hostfile ]; do shift; done; shift 2\n"
                                 "for i in 0 1; do OMPI_COMM_WORLD_RANK=$i OMPI_COMM_WORLD_SIZE=2 \"$@\" || exit; done\n";
    char *file = pst_fs_join(w->dir, "mpirun");
    assert_int_equal(pst_fs_write_atomic(file, script, sizeof script - 1, 0755, NULL), 0);
    assert_int_equal(chmod(file, 0755), 0);
    free(file);
}

static void run_first(world *w, const char *path, const char *command)
{
    sup_run r;
    pst_err err = {0};
    char *before = pst_strdup(getenv("PATH"));
    open_run(w, "horovod", command, "learners: 2\npenstock: {isolation: none}\n", &r);
    assert_int_equal(sup_gang_open(&r, &err), 0);
    assert_int_equal(sup_outlet_flush(r.outlet, NULL, NULL), 0);
    bring_members(w, &w->reports[0], 2, 0);
    setenv("PATH", path, 1);
    sup_gang_meet(&r, &err);
    sup_learner_end end = {0};
    int rc = sup_learner_run(&r, NULL, &end, &err);
    setenv("PATH", before, 1);
    assert_int_equal(sup_outlet_flush(r.outlet, NULL, NULL), 0);
    if (rc < 0)
        assert_non_null(strstr(err.text, "apt install openmpi-bin"));
    close_run(w, &r);
    free(before);
}

static void test_mpi_first_learner_runs_the_command_of_all(void **state)
{
    world *w = *state;
    fake_mpirun(w);
    char *path = pst_sprintf("%s:/usr/bin:/bin", w->dir);
    run_first(w, path, "echo rank $RANK of $WORLD_SIZE at $RESULT_DIR");
    assert_non_null(world_line(w, "args --allow-run-as-root --bind-to none -np 2 --hostfile "));
    assert_non_null(world_line(w, "rank 0 of 2 at /"));
    assert_non_null(world_line(w, "rank 1 of 2 at /"));
    free(path);
}

static void test_mpi_without_mpirun_is_an_error_with_its_cure(void **state)
{
    world *w = *state;
    run_first(w, w->dir, "echo never");
    assert_null(world_line(w, "never"));
}

/* The second learner runs nothing, and ends as the first. */
static void check_second(world *w, const char *first_reason, int status)
{
    sup_run r;
    pst_err err = {0};
    char *first = pst_strdup(w->run_dir);
    free(w->run_dir);
    w->run_dir = pst_rundir_dir(w->dir, &(pst_process_id){"training-unit", 1, "learner-2"});
    w->spec.process = (char *)"learner-2";
    assert_int_equal(pst_fs_mkdirs(w->run_dir, 0700, NULL), 0);
    pst_rundir_exit x = {.has_exit_code = true, .exit_code = status};
    snprintf(x.reason, sizeof x.reason, "%s", first_reason);
    assert_int_equal(pst_rundir_exit_write(first, &x, NULL), 0);
    assert_int_equal(pst_rundir_published_mark(first, NULL), 0);
    open_run(w, "pytorchmpi", "echo never", "learners: 2\n", &r);
    assert_int_equal(sup_gang_open(&r, &err), 0);
    assert_int_equal(sup_outlet_flush(r.outlet, NULL, NULL), 0);
    bring_members(w, &w->reports[0], 2, 1);
    assert_int_equal(sup_gang_meet(&r, &err), 0);
    pst_rundir_exit end;
    assert_true(sup_mpi_waits(&r));
    sup_mpi_wait(&r, &end);
    assert_true(end.has_exit_code);
    assert_int_equal(end.exit_code, status);
    if (status)
        assert_non_null(strstr(end.reason, first_reason));
    close_run(w, &r);
    free(first);
}

static void test_mpi_other_learner_ends_with_the_first(void **state)
{
    check_second(*state, "", 0);
}

static void test_mpi_other_learner_fails_with_the_first(void **state)
{
    check_second(*state, "the command exited with status 3", 3);
}

#define RUN(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ports_of_many_are_all_different),
        cmocka_unit_test(test_ports_are_kept_from_others_until_the_end),
        cmocka_unit_test(test_ports_go_with_a_killed_process),
        cmocka_unit_test(test_gang_texts_are_those_of_the_frameworks),
        RUN(test_gang_process_reports_itself_and_is_told_of_the_others),
        RUN(test_gang_list_that_is_not_of_this_process_is_refused),
        RUN(test_gang_wait_hears_a_stop),
        RUN(test_gang_wait_hears_a_halt),
        RUN(test_gang_names_resolve),
        RUN(test_mpi_first_learner_runs_the_command_of_all),
        RUN(test_mpi_without_mpirun_is_an_error_with_its_cure),
        RUN(test_mpi_other_learner_ends_with_the_first),
        RUN(test_mpi_other_learner_fails_with_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
