/* test_score_note.c - what is known after a process died while it computed: by which records, and of which signal; and nothing where it was killed. */
#include "inference/run/score_note.h"
#include "tests/unit/test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/penstock-note-XXXXXX";

enum end { FAULT, ABORT, KILLED, SENT, IDLE, ELSEWHERE };

static void die(enum end how)
{
    switch (how) {
    case FAULT: *(volatile char *)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) = 1; break;
    case ABORT: abort();
    case KILLED: kill(getpid(), SIGKILL); break;
    case SENT: kill(getpid(), SIGSEGV); break;
    case IDLE:
    case ELSEWHERE: abort();
    }
}

/* A scorer that computes so many records, this one the last, and dies. */
static void life(uint64_t records, int64_t offset, enum end how)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        const int cmocka_has[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
        for (size_t i = 0; i < sizeof cmocka_has / sizeof *cmocka_has; i++)
            signal(cmocka_has[i], SIG_DFL);
        score_crash c;
        pst_record r = {.topic = "in", .partition = 3, .offset = offset};
        score_note *n = score_note_open(dir, "p", 0, &c);
        if (!n)
            _exit(7);
        score_note_begins(n, 0, records, &r);
        score_note_computes(how != ELSEWHERE);
        if (how == IDLE)
            score_note_ends(n);
        die(how);
        _exit(8);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) ||
                (WEXITSTATUS(status) != 7 && WEXITSTATUS(status) != 8 && WEXITSTATUS(status) != 0)); /* a sanitizer exits */
}

static bool is_culprit(const score_note *n, int64_t offset)
{
    pst_record r = {.topic = "in", .partition = 3, .offset = offset}, other = {.topic = "in", .partition = 4, .offset = offset};
    assert_null(score_note_culprit(n, &other));
    return score_note_culprit(n, &r) != NULL;
}

static void test_note_tells_of_a_crash_and_finds_the_culprit(void **state)
{
    score_crash c;
    life(40, 139, FAULT);
    score_note *n = score_note_open(dir, "p", 0, &c);
    assert_int_equal(c.signal, SIGSEGV);
    assert_int_equal(c.records, 40);
    assert_int_equal(c.offset, 139);
    assert_string_equal(c.topic, "in");
    assert_true(score_note_careful(n));
    assert_false(is_culprit(n, 139));
    score_note_close(n);

    life(1, 120, ABORT);
    life(1, 125, FAULT);
    n = score_note_open(dir, "p", 0, &c);
    assert_int_equal(c.signal, SIGSEGV);
    assert_true(is_culprit(n, 120));
    assert_true(is_culprit(n, 125));
    assert_false(is_culprit(n, 121));
    score_note_passed(n, "in", 4, 1000);
    score_note_passed(n, "in", 3, 121);
    assert_false(is_culprit(n, 120));
    assert_true(is_culprit(n, 125));
    score_note_passed(n, "in", 3, 126);
    pst_record r = {.topic = "in"};
    for (int i = 0; i < 100000 && score_note_careful(n); i++) {
        score_note_begins(n, 0, 1, &r);
        score_note_ends(n);
    }
    assert_false(score_note_careful(n));
    score_note_close(n);
    n = score_note_open(dir, "p", 0, &c);
    assert_int_equal(c.signal, 0);
    score_note_close(n);
}

static void test_note_says_nothing_where_no_record_is_to_blame(void **state)
{
    const enum end ends[] = {KILLED, SENT, IDLE, ELSEWHERE};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        score_crash c;
        life(1, 50, ends[i]);
        score_note *n = score_note_open(dir, "p", 0, &c);
        assert_non_null(n);
        assert_int_equal(c.signal, 0);
        assert_false(score_note_careful(n));
        assert_false(is_culprit(n, 50));
        score_note_close(n);
    }
}

/* Another record has come to stand where the culprit stood: it is not to blame. */
static void test_note_knows_the_record_and_not_its_place_alone(void **state)
{
    score_crash c;
    life(1, 60, ABORT);
    score_note *n = score_note_open(dir, "p", 0, &c);
    pst_record same = {.topic = "in", .partition = 3, .offset = 60}, other = same, later = same;
    other.value = (const uint8_t *)"x";
    other.value_len = 1;
    later.timestamp_ms = 5;
    assert_non_null(score_note_culprit(n, &same));
    assert_null(score_note_culprit(n, &other));
    assert_null(score_note_culprit(n, &later));
    score_note_passed(n, "in", 3, 61);
    score_note_begins(n, 0, 1, &same);
    score_note_ends(n);
    score_note_close(n);
}

/* A model that dies at each record: none is to blame, until another model comes. */
static void test_note_gives_up_on_a_model_and_not_on_its_records(void **state)
{
    score_crash c;
    score_note *n = score_note_open(dir, "p", 0, &c);
    score_note_model(n, 0, "digest-1");
    score_note_close(n);
    for (int64_t at = 70; at < 73; at++)
        life(1, at, FAULT);
    n = score_note_open(dir, "p", 0, &c);
    score_note_model(n, 0, "digest-1");
    assert_true(score_note_is_hopeless(n));
    assert_false(is_culprit(n, 72));
    assert_true(is_culprit(n, 70));
    score_note_model(n, 0, "digest-2");
    assert_false(score_note_is_hopeless(n));
    assert_false(is_culprit(n, 70));
    assert_false(score_note_careful(n));
    score_note_close(n);
}

/* Where a disk is full nothing can be noted, and nothing dies of it. */
static void test_note_of_a_full_disk(void **state)
{
    pid_t pid = fork();
    if (!pid) {
        score_crash c;
        struct rlimit none = {0, 0};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &none);
        _exit(score_note_open(dir, "full", 0, &c) ? 1 : 0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_note_belongs_to_one_process(void **state)
{
    score_crash c;
    score_note *n = score_note_open(dir, "p", 0, &c);
    assert_non_null(n);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    score_note_close(n);
    pid_t pid = fork();
    if (!pid) { /* another holds it */
        char byte = score_note_open(dir, "p", 0, &c) != NULL;
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(0);
    }
    char byte = 0;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    assert_null(score_note_open(dir, "p", 0, &c));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ready[0]);
    close(ready[1]);
    n = score_note_open(dir, "p", 0, &c);
    assert_non_null(n);
    score_note_close(n);
    assert_null(score_note_open("/proc/nowhere", "p", 0, &c)); /* no folder: no note, and no harm */
    assert_false(score_note_careful(NULL));
    score_note_begins(NULL, 0, 1, &(pst_record){.topic = "in"});
    score_note_ends(NULL);
    score_note_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_note_tells_of_a_crash_and_finds_the_culprit),
        cmocka_unit_test(test_note_says_nothing_where_no_record_is_to_blame),
        cmocka_unit_test(test_note_knows_the_record_and_not_its_place_alone),
        cmocka_unit_test(test_note_gives_up_on_a_model_and_not_on_its_records),
        cmocka_unit_test(test_note_of_a_full_disk),
        cmocka_unit_test(test_note_belongs_to_one_process),
    };
    if (!mkdtemp(dir))
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    char *rm = pst_sprintf("rm -rf '%s'", dir);
    rc |= system(rm);
    free(rm);
    return rc;
}
