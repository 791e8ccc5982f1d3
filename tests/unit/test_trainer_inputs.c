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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inputs_are_taken_by_time_across_partitions),
        cmocka_unit_test(test_inputs_of_one_partition_keep_their_order),
    };
    return cmocka_run_group_tests_name("trainer_inputs", tests, NULL, NULL);
}
