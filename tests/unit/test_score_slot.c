/* test_score_slot.c - slots: never shared by two that live, the same again after a restart. */
#include "inference/run/score_slot.h"
#include "tests/unit/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];

static int make_dir(void **state)
{
    snprintf(dir, sizeof(dir), "/tmp/pst-slot-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

static void test_slots_are_not_shared_and_come_back(void **state)
{
    score_slot a, b, c;
    pst_err err = {0};
    assert_int_equal(score_slot_take(dir, "p", -1, 0, &a, &err), 0);
    assert_int_equal(score_slot_take(dir, "p", -1, 0, &b, &err), 0);
    assert_int_equal(a.number, 0);
    assert_int_equal(b.number, 1);
    assert_string_not_equal(a.id, b.id);
    char first[200];
    memcpy(first, a.id, sizeof(first));
    score_slot_release(&a);
    assert_int_equal(score_slot_take(dir, "p", -1, 0, &c, &err), 0);
    assert_string_equal(c.id, first);
    score_slot_release(&c);
    score_slot_release(&b);
    assert_int_equal(score_slot_take(dir, "other", -1, 0, &c, &err), 0);
    assert_string_not_equal(c.id, first);
    score_slot_release(&c);
}

static void test_slots_of_killed_workers_are_free(void **state)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        score_slot s;
        pst_err err = {0};
        char ok = score_slot_take(dir, "killed", -1, 0, &s, &err) == 0 && s.number == 0;
        _exit(write(ready[1], &ok, 1) == 1 ? pause() : 1);
    }
    char ok = 0;
    score_slot s;
    pst_err err = {0};
    assert_int_equal(read(ready[0], &ok, 1), 1);
    assert_true(ok);
    assert_int_equal(score_slot_take(dir, "killed", -1, 0, &s, &err), 0);
    assert_int_equal(s.number, 1);
    score_slot_release(&s);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(score_slot_take(dir, "killed", -1, 0, &s, &err), 0);
    assert_int_equal(s.number, 0);
    score_slot_release(&s);
    close(ready[0]);
    close(ready[1]);
}

static void test_slots_that_are_given_are_taken_as_they_are(void **state)
{
    score_slot a, b;
    pst_err err = {0};
    assert_int_equal(score_slot_take("/nowhere/at/all", "p", 7, 0, &a, &err), 0);
    assert_string_equal(a.id, "p.7");
    assert_int_equal(a.fd, -1);
    assert_int_equal(score_slot_take("/proc/nowhere", "p", -1, 0, &a, &err), 0); /* cannot be written: ids of their own */
    assert_int_equal(score_slot_take("/proc/nowhere", "p", -1, 0, &b, &err), 0);
    assert_string_not_equal(a.id, b.id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots_are_not_shared_and_come_back),
        cmocka_unit_test(test_slots_of_killed_workers_are_free),
        cmocka_unit_test(test_slots_that_are_given_are_taken_as_they_are),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
