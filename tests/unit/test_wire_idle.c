/* test_wire_idle.c - a consumer of our own client that has nobody to ask waits; it does not go round and round. */
#include "common/bus/bus.h"
#include "tests/unit/test.h"

#include <sys/resource.h>
#include <time.h>

static int64_t cpu_ms(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000 + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1000;
}

static void idle(const pst_consumer_opts *opts)
{
    pst_err err = {0};
    pst_bus_conf *conf = pst_bus_conf_new("127.0.0.1:1", "idle");
    pst_consumer *c = NULL;
    if (pst_bus_conf_client(conf, "wire", &err) < 0 || pst_consumer_new(conf, opts, &c, &err) < 0)
        fail_msg("%s", err.text);
    int64_t before = cpu_ms();
    for (int i = 0; i < 15; i++) {
        pst_batch b;
        pst_consumer_poll(c, &(pst_poll){.records_max = 10, .timeout_ms = 100}, &b, &err);
        assert_int_equal(b.n, 0);
    }
    int64_t used = cpu_ms() - before;
    if (used > 500) /* of 1,500: going round takes nearly all of it */
        fail_msg("%lld ms of CPU for waiting", (long long)used);
    pst_consumer_free(c);
    pst_bus_conf_free(conf);
}

static void test_of_a_group(void **state)
{
    idle(&(pst_consumer_opts){.group = "g", .topics = (const char *const[]){"t"}, .n_topics = 1});
}

static void test_of_a_partition(void **state)
{
    idle(&(pst_consumer_opts){.ranges = (const pst_range[]){{"t", 0, PST_OFFSET_BEGINNING, -1}}, .n_ranges = 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_of_a_group), cmocka_unit_test(test_of_a_partition)};
    return cmocka_run_group_tests_name("wire_idle", tests, NULL, NULL);
}
