/* test_store_killed.c - a process with a MongoDB store that is killed leaves no shared memory behind. No server is asked: opening to read
 * contacts none. */
#include "tests/unit/test.h"

#include "common/store/store.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_store_killed_leaves_no_shared_memory(void **state)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (!pid) {
        pst_store *s = NULL;
        pst_err err = {0};
        char answer = pst_store_open("mongodb://127.0.0.1:1/penstock", true, &s, &err) == 0 ? 'y'
                      : err.code == PST_EUNSUPPORTED                                        ? 's'
                                                                                            : 'n';
        if (write(ready[1], &answer, 1) == 1)
            pause();
        _exit(1);
    }
    char answer = 'n', path[64];
    snprintf(path, sizeof path, "/dev/shm/mongoc-%u", (unsigned)pid);
    ssize_t n = read(ready[0], &answer, 1);
    bool there = access(path, F_OK) == 0;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    bool left = access(path, F_OK) == 0;
    unlink(path);
    if (n == 1 && answer == 's') {
        printf("skipped: this build has no MongoDB, or libmongoc is missing (apt install libmongoc-dev)\n");
        exit(77);
    }
    assert_int_equal(n, 1);
    assert_int_equal(answer, 'y');
    assert_false(there);
    assert_false(left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_store_killed_leaves_no_shared_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
