/* test_rundir.c - the files between LCM, supervisor and learner: what is written is read again; names from outside are checked. */
#include "common/base/fs.h"
#include "common/base/proc.h"
#include "common/objects/rundir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int setup(void **state)
{
    char *dir = pst_strdup("/tmp/pst-rundir-XXXXXX");
    assert_non_null(mkdtemp(dir));
    *state = dir;
    return 0;
}

static int teardown(void **state)
{
    pst_fs_remove_tree(*state, NULL);
    free(*state);
    return 0;
}

static void test_rundir_names_that_could_leave_the_folder_are_refused(void **state)
{
    static const char *const bad[] = {"", ".", "..", "../x", "a/b", "/a", ".hidden", "a b", "a\n", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(pst_rundir_name_ok(bad[i]));
    assert_false(pst_rundir_name_ok(NULL));
    assert_true(pst_rundir_name_ok("training-abc234"));
    assert_true(pst_rundir_name_ok("learner-1"));
    pst_process_id id = pst_process_id_of("training-a", 3, "ps-1"), other = pst_process_id_of("training-a", 4, "ps-1");
    char *d = pst_rundir_dir("/s", &id);
    assert_true(pst_process_id_same(&id, &id));
    assert_false(pst_process_id_same(&id, &other));
    assert_string_equal(d, "/s/jobs/training-a/gen-3/ps-1");
    free(d);
}

static void test_rundir_spec_round_trip(void **state)
{
    const char *dir = *state;
    pst_rundir_spec s = {.training_id = (char *)"training-a",
                         .generation = 2,
                         .process = (char *)"learner-1",
                         .learner_id = 1,
                         .site = (char *)"local",
                         .state_dir = (char *)"/tmp/s",
                         .name = (char *)"n\xc3\xa4me",
                         .user = (char *)"u",
                         .manifest = (char *)"name: x\n",
                         .code_uri = (char *)"file:/a/b",
                         .code_sha256 = (char *)"00",
                         .code_media_type = (char *)"application/zip",
                         .learners = 3,
                         .cpus = 0.5,
                         .gpus = 1,
                         .gpu_ids = (char *)"0",
                         .memory_bytes = 5000000000,
                         .grace_ms = 1234};
    pst_err err = {0};
    pst_rundir_spec r;
    assert_int_equal(pst_rundir_spec_read(dir, &r, &err), PST_ENOTFOUND);
    assert_int_equal(pst_rundir_spec_write(dir, &s, NULL), 0);
    assert_int_equal(pst_rundir_spec_read(dir, &r, NULL), 0);
    assert_string_equal(r.name, s.name);
    assert_string_equal(r.manifest, s.manifest);
    assert_string_equal(r.code_uri, s.code_uri);
    assert_string_equal(r.gpu_ids, "0");
    assert_int_equal(r.memory_bytes, s.memory_bytes);
    assert_int_equal(r.generation, 2);
    assert_int_equal(r.learners, 3);
    assert_true(r.cpus == 0.5);
    assert_int_equal(r.grace_ms, 1234);
    pst_rundir_spec_done(&r);
    char *path = pst_fs_join(dir, "spec.json");
    assert_int_equal(pst_fs_write_atomic(path, "{\"training_id\":\"../x\"}", 22, 0600, NULL), 0);
    assert_int_equal(pst_rundir_spec_read(dir, &r, NULL), PST_EPARSE);
    free(path);
}

static void test_process_sets_are_named_found_and_kept(void **state)
{
    static const pst_process_set sets[] = {{"chief", 1, 1, 1, 0}, {"worker", 3, 2, 1, 1}, {"ps", 1, 1, 0, -1}};
    pst_process_set r[PST_PROCESS_SETS_MAX];
    size_t n;
    int at;
    char name[32];
    json_t *j = json_pack("{s:o}", "processes", pst_process_sets_json(sets, 3));
    assert_int_equal(pst_process_sets_read(j, r, &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(pst_process_sets_count(r, n), 4);
    static const char *const names[] = {"chief-1", "worker-3", "worker-4", "ps-1"};
    for (int i = 0; i < 4; i++) {
        pst_process_sets_name(r, n, i, name);
        assert_string_equal(name, names[i]);
        assert_non_null(pst_process_sets_find(r, n, name, &at));
    }
    assert_ptr_equal(pst_process_sets_find(r, n, "worker-4", &at), &r[1]);
    assert_int_equal(at, 1);
    static const char *const none[] = {
        "worker-2", "worker-5", "worker-03", "worker", "-3", "", "chief-1x", "ps--1", "ps-99999999999999999999"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_null(pst_process_sets_find(r, n, none[i], &at));
    json_decref(j);
    j = json_pack("{s:i, s:i, s:i}", "learners", 2, "parameter_servers", 1, "gpus", 3); /* written before there were roles */
    assert_int_equal(pst_process_sets_read(j, r, &n), 0);
    pst_process_sets_name(r, n, 2, name);
    assert_string_equal(name, "ps-1");
    assert_int_equal(r[0].gpus, 3);
    assert_int_equal(r[1].gpus, 0);
    json_decref(j);
    static const char *const bad[] = {"[]",
                                      "{}",
                                      "[{}]",
                                      "[{\"prefix\":\"../x\",\"first\":1,\"count\":1}]",
                                      "[{\"prefix\":\"w\",\"first\":1,\"count\":1000000}]",
                                      "[{\"prefix\":\"w\",\"first\":-1,\"count\":1}]",
                                      "[{\"prefix\":\"a-name-that-is-longer-than-24\",\"first\":1,\"count\":1}]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        j = json_pack("{s:o}", "processes", json_loads(bad[i], 0, NULL));
        assert_int_equal(pst_process_sets_read(j, r, &n), PST_EPARSE);
        json_decref(j);
    }
}

static void test_rundir_exit_stop_owner_lock(void **state)
{
    const char *dir = *state;
    pst_rundir_exit x = {.has_signal = true,
                         .signal = 15,
                         .stop_reason = PST_STOP_REASON_HALT,
                         .time_us = 7,
                         .reason = "cut in the middle \xc3"},
                    r;
    assert_int_equal(pst_rundir_exit_read(dir, &r, NULL), PST_ENOTFOUND);
    assert_int_equal(pst_rundir_exit_write(dir, &x, NULL), 0);
    assert_int_equal(pst_rundir_exit_read(dir, &r, NULL), 0);
    assert_true(r.has_signal && !r.has_exit_code && r.signal == 15 && r.stop_reason == PST_STOP_REASON_HALT && !r.lost);
    assert_string_equal(r.reason, "cut in the middle ");
    assert_int_equal(pst_rundir_stop_reason_read(dir), PST_STOP_REASON_NONE);
    assert_int_equal(pst_rundir_stop_reason_write(dir, PST_STOP_REASON_PLATFORM_DOWN, NULL), 0);
    assert_int_equal(pst_rundir_stop_reason_read(dir), PST_STOP_REASON_PLATFORM_DOWN);
    assert_false(pst_rundir_published(dir));
    assert_int_equal(pst_rundir_published_mark(dir, NULL), 0);
    assert_true(pst_rundir_published(dir));
    pst_rundir_owner o = {.pid = getpid(), .start_time = pst_proc_start_time(getpid())}, got;
    assert_int_equal(pst_rundir_owner_write(dir, &o, NULL), 0);
    assert_int_equal(pst_rundir_owner_read(dir, &got, NULL), 0);
    assert_true(pst_rundir_owner_same_boot(&got));
    assert_true(pst_proc_alive(got.pid, got.start_time));
    int fd, other;
    assert_int_equal(pst_rundir_lock(dir, &fd, NULL), 0);
    assert_int_equal(pst_rundir_lock(dir, &other, NULL), PST_EEXIST);
    assert_true(pst_rundir_locked(dir));
    close(fd);
    assert_false(pst_rundir_locked(dir));
    assert_int_equal(pst_rundir_lock(dir, &fd, NULL), 0);
    close(fd);
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char *path = pst_sprintf("%s/%s", dir, name);
    assert_int_equal(pst_fs_write_atomic(path, text, strlen(text), 0600, NULL), 0);
    free(path);
}

/* What the version before wrote, whose supervisors live through an upgrade; what is written now goes before it. */
static void test_rundir_stop_of_the_version_before_is_read(void **state)
{
    const char *dir = *state;
    pst_rundir_exit x;
    write_text(dir, "wish.json", "{\"wish\":\"halt\"}");
    write_text(dir, "exit.json", "{\"wish\":\"kill\",\"time_us\":7,\"lost\":false,\"signal\":15}");
    assert_int_equal(pst_rundir_stop_reason_read(dir), PST_STOP_REASON_HALT);
    assert_int_equal(pst_rundir_exit_read(dir, &x, NULL), 0);
    assert_int_equal(x.stop_reason, PST_STOP_REASON_KILL);
    assert_int_equal(pst_rundir_stop_reason_write(dir, PST_STOP_REASON_KILL, NULL), 0);
    assert_int_equal(pst_rundir_stop_reason_read(dir), PST_STOP_REASON_KILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_process_sets_are_named_found_and_kept),
        cmocka_unit_test(test_rundir_names_that_could_leave_the_folder_are_refused),
        cmocka_unit_test_setup_teardown(test_rundir_spec_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rundir_exit_stop_owner_lock, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rundir_stop_of_the_version_before_is_read, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
