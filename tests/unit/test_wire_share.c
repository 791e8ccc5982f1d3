/* test_wire_share.c - how the leader of a classic group shares partitions out: everybody's each, even, sticky, and nothing from broken bytes. */
#include "common/bus/wire/wire_share.h"
#include "common/base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static wire_str str(const char *text)
{
    return (wire_str){text, strlen(text)};
}

static void subscribe(wire_member *m, const char *id, const char *const *topics, size_t n)
{
    m->id = str(id);
    m->generation = -1;
    m->topics = pst_alloc(n * sizeof *m->topics);
    for (size_t i = 0; i < n; i++)
        m->topics[i] = str(topics[i]);
    m->n_topics = n;
}

static bool has(const wire_member *m, const char *topic, int32_t partition)
{
    for (size_t i = 0; i < m->n_share; i++)
        if (m->share[i].partition == partition && wire_str_is(m->share[i].topic, topic))
            return true;
    return false;
}

static int owners(const wire_member *members, size_t n, const char *topic, int32_t partition)
{
    int owners = 0;
    for (size_t i = 0; i < n; i++)
        owners += has(&members[i], topic, partition);
    return owners;
}

/* What was given becomes what is owned, as after a rebalance. */
static void keep(wire_member *m, int32_t generation)
{
    free(m->owned);
    m->owned = m->share;
    m->n_owned = m->n_share;
    m->generation = generation;
    m->share = NULL;
    m->n_share = m->share_cap = 0;
}

static void done(wire_member *members, size_t n)
{
    for (size_t i = 0; i < n; i++)
        wire_member_done(&members[i]);
}

static void test_share_range_gives_neighbours_in_order_of_ids(void **state)
{
    static const char *const both[] = {"a", "b"};
    wire_member m[3] = {0};
    subscribe(&m[0], "z", both, 2);
    subscribe(&m[1], "x", both, 2);
    subscribe(&m[2], "y", both, 1); /* of "a" alone */
    const wire_counted topics[] = {{str("a"), 7}, {str("b"), 3}, {str("gone"), 0}};
    wire_share_range(m, 3, topics, 3);
    for (int32_t p = 0; p < 7; p++)
        assert_int_equal(owners(m, 3, "a", p), 1);
    for (int32_t p = 0; p < 3; p++)
        assert_int_equal(owners(m, 3, "b", p), 1);
    assert_true(has(&m[1], "a", 0) && has(&m[1], "a", 2) && has(&m[2], "a", 3) && has(&m[0], "a", 6)); /* x: 0 1 2, y: 3 4, z: 5 6 */
    assert_true(has(&m[1], "b", 0) && has(&m[1], "b", 1) && has(&m[0], "b", 2));
    done(m, 3);
}

/* A static member that comes back under a new id has the place of its name. */
static void test_share_range_goes_by_the_name_that_stays(void **state)
{
    static const char *const one[] = {"a"};
    wire_member m[2] = {0};
    subscribe(&m[0], "id-1", one, 1);
    subscribe(&m[1], "id-2", one, 1);
    m[0].instance = str("second");
    m[1].instance = str("first");
    wire_share_range(m, 2, &(wire_counted){str("a"), 2}, 1);
    assert_true(has(&m[1], "a", 0) && has(&m[0], "a", 1));
    done(m, 2);
}

static void test_share_sticky_moves_no_more_than_it_must_and_in_two_steps(void **state)
{
    static const char *const one[] = {"a"};
    wire_member m[3] = {0};
    subscribe(&m[0], "x", one, 1);
    subscribe(&m[1], "y", one, 1);
    const wire_counted topic = {str("a"), 9};
    wire_share_sticky(m, 2, &topic, 1);
    assert_int_equal(m[0].n_share + m[1].n_share, 9);
    keep(&m[0], 1), keep(&m[1], 1);
    subscribe(&m[2], "w", one, 1); /* one comes */
    wire_share_sticky(m, 3, &topic, 1);
    assert_int_equal(m[0].n_share, 3);
    assert_int_equal(m[1].n_share, 3);
    assert_int_equal(m[2].n_share, 0); /* they have not given back yet */
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < m[i].n_share; k++) {
            bool had = false;
            for (size_t j = 0; j < m[i].n_owned; j++)
                had = had || m[i].owned[j].partition == m[i].share[k].partition;
            assert_true(had);
        }
    keep(&m[0], 2), keep(&m[1], 2), keep(&m[2], 2);
    wire_share_sticky(m, 3, &topic, 1);
    assert_int_equal(m[2].n_share, 3);
    for (int32_t p = 0; p < 9; p++)
        assert_int_equal(owners(m, 3, "a", p), 1);
    done(m, 3);
}

/* Two claim the same: who was given it last has it; of one generation neither is believed, and one of them gets it. */
static void test_share_sticky_believes_the_later_claim(void **state)
{
    static const char *const one[] = {"a"};
    wire_member m[2] = {0};
    subscribe(&m[0], "x", one, 1);
    subscribe(&m[1], "y", one, 1);
    for (int i = 0; i < 2; i++) {
        m[i].owned = pst_alloc(2 * sizeof *m[i].owned);
        m[i].owned[0] = (wire_tp){str("a"), 0};
        m[i].owned[1] = (wire_tp){str("nowhere"), 5};
        m[i].n_owned = 2;
        m[i].generation = 3 + i;
    }
    wire_share_sticky(m, 2, &(wire_counted){str("a"), 2}, 1);
    assert_true(has(&m[1], "a", 0) && has(&m[0], "a", 1));
    for (int i = 0; i < 2; i++) {
        free(m[i].share);
        m[i].share = NULL;
        m[i].n_share = m[i].share_cap = 0;
        m[i].generation = 7;
    }
    wire_share_sticky(m, 2, &(wire_counted){str("a"), 2}, 1);
    assert_int_equal(owners(m, 2, "a", 0), 1);
    assert_int_equal(owners(m, 2, "a", 1), 1);
    done(m, 2);
}

/* Different subscriptions: nobody gets what it does not read, and it ends. */
static void test_share_sticky_keeps_to_subscriptions(void **state)
{
    static const char *const ab[] = {"a", "b"}, *const b[] = {"b"};
    wire_member m[2] = {0};
    subscribe(&m[0], "x", ab, 2);
    subscribe(&m[1], "y", b, 1);
    const wire_counted topics[] = {{str("a"), 8}, {str("b"), 4}};
    wire_share_sticky(m, 2, topics, 2);
    assert_int_equal(m[0].n_share, 8);
    assert_int_equal(m[1].n_share, 4);
    for (size_t i = 0; i < m[1].n_share; i++)
        assert_true(wire_str_is(m[1].share[i].topic, "b"));
    done(m, 2);
}

static void count(void *arg, wire_str topic, int32_t partition)
{
    ++*(int *)arg;
}

static void test_share_bytes_are_read_as_written_and_broken_ones_refused(void **state)
{
    static const char *const topics[] = {"orders", "payments"};
    const wire_tp owned[] = {{str("orders"), 4}, {str("orders"), 2}, {str("payments"), 0}};
    pst_buf b = {0};
    wire_member m = {0};
    wire_subscription_put(&b, topics, 2, owned, 3, 17);
    assert_int_equal(wire_member_read(&m, (const uint8_t *)b.data, b.len), 0);
    assert_int_equal(m.n_topics, 2);
    assert_true(wire_str_is(m.topics[1], "payments"));
    assert_int_equal(m.n_owned, 3);
    assert_int_equal(m.owned[1].partition, 2);
    assert_int_equal(m.generation, 17);
    wire_member_done(&m);
    for (size_t n = 0; n < b.len; n++) { /* every truncation, in memory of that very size */
        uint8_t *cut = malloc(n + !n);
        memcpy(cut, b.data, n);
        wire_member part = {0};
        assert_int_equal(wire_member_read(&part, cut, n), PST_EINVAL);
        assert_int_equal(part.n_topics + part.n_owned, 0);
        wire_member_done(&part);
        free(cut);
    }
    pst_buf_clear(&b);
    int n = 0;
    wire_assignment_put(&b, owned, 3);
    assert_int_equal(wire_assignment_read((const uint8_t *)b.data, b.len, count, &n), 0);
    assert_int_equal(n, 3);
    for (size_t len = 1; len + 4 < b.len; len++) /* the user data behind it is not ours */
        assert_int_equal(wire_assignment_read((const uint8_t *)b.data, len, count, &n), PST_EINVAL);
    assert_int_equal(wire_assignment_read(NULL, 0, count, &n), 0); /* nothing was given */
    static const uint8_t lie[] = {0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 1, 'a', 0x7f, 0xff, 0xff, 0xff};
    assert_int_equal(wire_assignment_read(lie, sizeof lie, count, &n), PST_EINVAL);
    pst_buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share_range_gives_neighbours_in_order_of_ids),
        cmocka_unit_test(test_share_range_goes_by_the_name_that_stays),
        cmocka_unit_test(test_share_sticky_moves_no_more_than_it_must_and_in_two_steps),
        cmocka_unit_test(test_share_sticky_believes_the_later_claim),
        cmocka_unit_test(test_share_sticky_keeps_to_subscriptions),
        cmocka_unit_test(test_share_bytes_are_read_as_written_and_broken_ones_refused),
    };
    return cmocka_run_group_tests_name("wire_share", tests, NULL, NULL);
}
