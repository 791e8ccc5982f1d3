/* test_trainer_inputs.c - the order in which a batch of several partitions is taken. */
#include "trainer/shell.h"
#include "common/bus/bus.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void order_is(const pst_record *records, size_t n, const char *want)
{
    size_t order[32];
    char text[64];
    pst_batch b = {.records = records, .n = n};
    trainer_input_order(&b, order);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)('a' + (int)order[i]);
    text[n] = '\0';
    assert_string_equal(text, want);
}

static void test_inputs_are_taken_by_time_across_partitions(void **state)
{
    /* A halt (partition 1, read first) was published after its submission (partition 0). */
    const pst_record r[] = {{.topic = "q", .partition = 1, .timestamp_ms = 20},
                            {.topic = "q", .partition = 0, .timestamp_ms = 10},
                            {.topic = "q", .partition = 0, .timestamp_ms = 30},
                            {.topic = "p", .partition = 0, .timestamp_ms = 15}};
    order_is(r, 4, "bdac");
    order_is(r, 0, "");
}

static void test_inputs_of_one_partition_keep_their_order(void **state)
{
    /* A client's clock went back: time decides between partitions only. */
    const pst_record r[] = {{.topic = "q", .partition = 0, .timestamp_ms = 50},
                            {.topic = "q", .partition = 0, .timestamp_ms = 10},
                            {.topic = "q", .partition = 0, .timestamp_ms = 40},
                            {.topic = "q", .partition = 1, .timestamp_ms = 45}};
    order_is(r, 4, "abcd");
}

/* A full round, of partitions read one after the other: nothing is lost, time goes up, each partition's order is kept. */
static void test_inputs_of_a_full_round(void **state)
{
    enum { N = 4096, PARTS = 7 };
    static pst_record r[N];
    static size_t order[N];
    static bool seen[N];
    size_t last[PARTS] = {0};
    for (size_t i = 0; i < N; i++)
        r[i] = (pst_record){.topic = "q", .partition = (int)(i * PARTS / N), .timestamp_ms = (int64_t)(i % (N / PARTS)) / 3};
    trainer_input_order(&(pst_batch){.records = r, .n = N}, order);
    for (size_t i = 0; i < N; i++) {
        const pst_record *at = &r[order[i]];
        assert_true(order[i] < N && !seen[order[i]]);
        seen[order[i]] = true;
        assert_true(order[i] + 1 > last[at->partition]);
        last[at->partition] = order[i] + 1;
        assert_true(i == 0 || r[order[i - 1]].timestamp_ms <= at->timestamp_ms || r[order[i - 1]].partition == at->partition);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inputs_are_taken_by_time_across_partitions),
        cmocka_unit_test(test_inputs_of_one_partition_keep_their_order),
        cmocka_unit_test(test_inputs_of_a_full_round),
    };
    return cmocka_run_group_tests_name("trainer_inputs", tests, NULL, NULL);
}
