/* test_dump.c - what a service holds: asked by another thread, by a signal, and of a service that does not come by. */
#include "common/base/dump.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/unit/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct service {
    pst_dump *dump;
    atomic_bool stop, stuck;
    int rounds; /* the owner's thread's alone: no lock, no atomic */
} service;

static void fill(void *arg, json_t *to)
{
    json_object_set_new(to, "rounds", json_integer(((service *)arg)->rounds));
}

static void *serve(void *arg)
{
    service *s = arg;
    while (!s->stop) {
        if (!s->stuck) {
            s->rounds++;
            pst_dump_serve(s->dump);
        }
        pst_sleep_ms(1);
    }
    return NULL;
}

static void begin(service *s, pthread_t *thread)
{
    pst_err err = {0};
    assert_int_equal(pst_dump_new("test", fill, s, &s->dump, &err), 0);
    assert_int_equal(pthread_create(thread, NULL, serve, s), 0);
}

static void end(service *s, pthread_t thread)
{
    s->stop = true;
    pthread_join(thread, NULL);
    pst_dump_free(s->dump);
}

static void *ask(void *arg)
{
    return pst_dump_ask(((service *)arg)->dump, 10000);
}

static void test_dump_is_made_by_the_owner_for_every_thread_that_asks(void **state)
{
    service s = {0};
    pthread_t owner, askers[8];
    begin(&s, &owner);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&askers[i], NULL, ask, &s), 0);
    for (size_t i = 0; i < 8; i++) {
        void *got;
        pthread_join(askers[i], &got);
        assert_non_null(got);
        assert_string_equal(pst_json_str(got, "component", ""), "test");
        assert_int_equal(pst_json_int(got, "pid", 0), getpid());
        assert_true(pst_json_int(got, "rounds", 0) > 0);
        json_decref(got);
    }
    end(&s, owner);
}

static void test_dump_is_newer_than_the_question(void **state)
{
    service s = {0};
    pthread_t owner;
    begin(&s, &owner);
    for (int64_t last = 0, i = 0; i < 50; i++) {
        json_t *j = pst_dump_ask(s.dump, 10000);
        assert_non_null(j);
        assert_true(pst_json_int(j, "rounds", 0) > last || i == 0);
        last = pst_json_int(j, "rounds", 0);
        json_decref(j);
    }
    end(&s, owner);
}

static void test_dump_of_a_stuck_service_is_none(void **state)
{
    service s = {.stuck = true};
    pthread_t owner;
    begin(&s, &owner);
    int64_t from = pst_mono_us();
    assert_null(pst_dump_ask(s.dump, 100));
    assert_true(pst_mono_us() - from >= 100000);
    s.stuck = false;
    json_t *j = pst_dump_ask(s.dump, 10000); /* and it is served again, once it comes round */
    assert_non_null(j);
    json_decref(j);
    end(&s, owner);
}

static void test_dump_that_ends_leaves_nobody_waiting(void **state)
{
    service s = {.stuck = true};
    pthread_t owner, asker;
    void *got;
    begin(&s, &owner);
    assert_int_equal(pthread_create(&asker, NULL, ask, &s), 0);
    pst_sleep_ms(50);
    end(&s, owner);
    pthread_join(asker, &got);
    assert_null(got);
}

/* stderr goes to a file while the service runs. */
static void test_signal_puts_the_dump_into_the_log(void **state)
{
    service s = {0};
    pthread_t owner;
    char path[] = "/tmp/pst-dump-XXXXXX", text[8192] = "";
    int fd = mkstemp(path), kept = dup(2);
    assert_true(fd >= 0 && kept >= 0);
    dup2(fd, 2);
    begin(&s, &owner);
    for (int i = 0; i < 3; i++) {
        kill(getpid(), SIGUSR1);
        pst_sleep_ms(100);
    }
    end(&s, owner);
    raise(SIGUSR1); /* late: a service that is gone is not ended by it; the next dump of this process answers it */
    dup2(kept, 2);
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    close(fd);
    close(kept);
    unlink(path);
    assert_true(n > 0);
    size_t lines = 0;
    for (const char *p = text; (p = strstr(p, "event=state at=/ json={")); p++) {
        json_t *j = json_loads(strchr(p, '{'), JSON_DISABLE_EOF_CHECK, NULL);
        assert_string_equal(pst_json_str(j, "component", ""), "test");
        json_decref(j);
        lines++;
    }
    assert_int_equal(lines, 3);
}

static void fill_rounds(void *arg, json_t *to)
{
    ((service *)arg)->rounds++;
}

static void fill_much(void *arg, json_t *to)
{
    json_t *list = json_array();
    for (int i = 0; i < 100; i++)
        json_array_append_new(list, json_sprintf("entry number %d of a list that no line of a log takes", i));
    json_object_set_new(to, "list", list);
}

static void test_long_dump_is_logged_in_parts(void **state)
{
    pst_err err = {0};
    pst_dump *d;
    char path[] = "/tmp/pst-dump-XXXXXX", text[65536] = "";
    int fd = mkstemp(path), kept = dup(2);
    assert_true(fd >= 0 && kept >= 0);
    dup2(fd, 2);
    assert_int_equal(pst_dump_new("test", fill_much, NULL, &d, &err), 0);
    raise(SIGUSR1);
    pst_dump_serve(d);
    pst_dump_free(d);
    dup2(kept, 2);
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    close(fd);
    close(kept);
    unlink(path);
    assert_true(n > 0);
    assert_non_null(strstr(text, "event=state at=/component json=\"test\""));
    assert_non_null(strstr(text, "event=state at=/list/0 json=\"entry number 0 "));
    assert_non_null(strstr(text, "event=state at=/list/99 json=\"entry number 99 "));
}

static void test_signal_before_there_is_a_dump_is_remembered(void **state)
{
    service s = {0};
    pst_err err = {0};
    pst_dump_install();
    raise(SIGUSR1); /* does not end us */
    assert_int_equal(pst_dump_new("test", fill_rounds, &s, &s.dump, &err), 0);
    pst_dump_serve(s.dump);
    assert_int_equal(s.rounds, 1);
    pst_dump_serve(s.dump);
    assert_int_equal(s.rounds, 1);
    pst_dump_free(s.dump);
}

static void test_nobody_asked_costs_nothing(void **state)
{
    service s = {0};
    pst_err err = {0};
    assert_int_equal(pst_dump_new("test", fill_rounds, &s, &s.dump, &err), 0);
    struct timespec used;
    for (int i = 0; i < 100000; i++)
        pst_dump_serve(s.dump);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used); /* generous: sanitizers are slow */
    assert_true(used.tv_sec < 2);
    assert_int_equal(s.rounds, 0);
    pst_dump_serve(NULL);
    pst_dump_free(s.dump);
    pst_dump_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dump_is_made_by_the_owner_for_every_thread_that_asks),
        cmocka_unit_test(test_dump_is_newer_than_the_question),
        cmocka_unit_test(test_dump_of_a_stuck_service_is_none),
        cmocka_unit_test(test_dump_that_ends_leaves_nobody_waiting),
        cmocka_unit_test(test_signal_puts_the_dump_into_the_log),
        cmocka_unit_test(test_long_dump_is_logged_in_parts),
        cmocka_unit_test(test_signal_before_there_is_a_dump_is_remembered),
        cmocka_unit_test(test_nobody_asked_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
