/* test_bus_leave.c - a static member that ends in the middle of a rebalance leaves the group all the same: its partitions go to the others at once, not
 * after its session. A broker reads no further request of a connection before it has answered the last one, and a JoinGroup is answered when all
 * members have come: what is sent behind it is not heard for so long. */
#include "bus_live.h"
#include "common/base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <cmocka.h>

#define PARTITIONS 3
#define SESSION_MS 100000 /* who waits for it is told from who is slow */
#define BUSY_MS    9000   /* one member does not poll for so long: longer than librdkafka waits for the answer to its LeaveGroup */
#define IN_TIME_US (50 * 1000000LL)

static pst_consumer *static_member(const char *group, const char *from, const char *id)
{
    pst_consumer *c;
    pst_err err = {0};
    char session[16];
    snprintf(session, sizeof session, "%d", SESSION_MS);
    pst_bus_conf *own = pst_bus_conf_copy(conf);
    ok(pst_bus_conf_set(own, "session.timeout.ms", session, "test", &err), &err, "session");
    ok(pst_consumer_new(own, &(pst_consumer_opts){.group = group, .topics = &from, .n_topics = 1, .instance_id = id}, &c, &err), &err,
       "consumer");
    pst_bus_conf_free(own);
    return c;
}

static size_t serve(pst_consumer *const *members, size_t n)
{
    size_t parts = 0;
    for (size_t i = 0; i < n; i++) {
        pst_batch b;
        pst_err err = {0};
        ok(pst_consumer_poll(members[i], &(pst_poll){.timeout_ms = 50}, &b, &err), &err, "poll");
        parts += pst_consumer_assignment(members[i], NULL, 0);
    }
    return parts;
}

/* Until these members have all partitions, and each has been given its share. */
static void settle(pst_consumer *const *members, size_t n, int64_t within_us, const char *what)
{
    for (int64_t until = pst_mono_us() + within_us;;) {
        bool placed = serve(members, n) == PARTITIONS;
        for (size_t i = 0; i < n; i++)
            placed &= pst_consumer_joined(members[i]);
        if (placed)
            return;
        if (pst_mono_us() > until)
            fail_msg("%s: not all %d partitions are with the %zu members after %.0f s", what, PARTITIONS, n, within_us / 1e6);
    }
}

static void *end(void *c)
{
    pst_consumer_leave(c);
    pst_consumer_free(c);
    return NULL;
}

static void test_leave_while_the_group_waits_for_another(void **state)
{
    const char *group = name("leave"), *from = topic("leave-in", PARTITIONS);
    pst_consumer *busy = static_member(group, from, "busy"), *ends = static_member(group, from, "ends");
    settle((pst_consumer *[]){busy, ends}, 2, NET_US, "two members");
    pst_consumer *comes = static_member(group, from, "comes");
    for (int64_t until = pst_mono_us() + NET_US; pst_consumer_joined(ends);) { /* it gives up its share to join anew */
        serve((pst_consumer *[]){ends, comes}, 2);
        assert_true(pst_mono_us() < until);
    }
    pst_sleep_ms(500); /* its request is under way */
    pthread_t ending;
    assert_int_equal(pthread_create(&ending, NULL, end, ends), 0);
    for (int64_t until = pst_mono_us() + BUSY_MS * 1000LL; pst_mono_us() < until;)
        serve(&comes, 1);
    settle((pst_consumer *[]){busy, comes}, 2, IN_TIME_US, "one has left");
    pthread_join(ending, NULL);
    pst_consumer_leave(busy);
    pst_consumer_free(busy);
    settle(&comes, 1, IN_TIME_US, "two have left");
    pst_consumer_leave(comes);
    pst_consumer_free(comes);
}

/* The same for one whose first request has not been answered, so that it does not know its member id yet. */
static void test_leave_before_the_first_place_is_given(void **state)
{
    const char *group = name("early"), *from = topic("early-in", PARTITIONS);
    pst_consumer *busy = static_member(group, from, "busy");
    settle(&busy, 1, NET_US, "one member");
    pst_consumer *ends = static_member(group, from, "ends");
    for (int64_t until = pst_mono_us() + 3000000; pst_mono_us() < until;)
        serve(&ends, 1);
    assert_false(pst_consumer_joined(ends)); /* the group waits for the other */
    pthread_t ending;
    assert_int_equal(pthread_create(&ending, NULL, end, ends), 0);
    pst_sleep_ms(BUSY_MS);
    uint64_t before = pst_consumer_epoch(busy);
    for (int64_t until = pst_mono_us() + NET_US; pst_consumer_epoch(busy) == before;) { /* it hears of the other */
        serve(&busy, 1);
        assert_true(pst_mono_us() < until);
    }
    settle(&busy, 1, IN_TIME_US, "the other has left");
    pthread_join(ending, NULL);
    pst_consumer_leave(busy);
    pst_consumer_free(busy);
}

/* With nobody to leave, nobody waits. */
static void test_leave_what_was_never_reached(void **state)
{
    pst_bus_conf *nowhere = pst_bus_conf_new("127.0.0.1:1", "test");
    pst_consumer *c;
    pst_batch b;
    pst_err err = {0};
    const char *from = "nothing";
    ok(pst_consumer_new(nowhere, &(pst_consumer_opts){.group = "nobody", .topics = &from, .n_topics = 1, .instance_id = "one"}, &c, &err),
       &err, "consumer");
    for (int64_t until = pst_mono_us() + 3000000; pst_mono_us() < until;)
        ok(pst_consumer_poll(c, &(pst_poll){.timeout_ms = 100}, &b, &err), &err, "poll");
    int64_t begin = pst_mono_us();
    end(c);
    printf("  left after %.1f s\n", (pst_mono_us() - begin) / 1e6);
    assert_true(pst_mono_us() - begin < 8000000);
    pst_bus_conf_free(nowhere);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leave_while_the_group_waits_for_another),
        cmocka_unit_test(test_leave_before_the_first_place_is_given),
        cmocka_unit_test(test_leave_what_was_never_reached),
    };
    return bus_live_main("bus_leave", tests, sizeof tests / sizeof *tests);
}
