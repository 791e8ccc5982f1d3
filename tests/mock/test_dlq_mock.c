/* test_dlq_mock.c - the ledger of replays where it is missing, on librdkafka's in-memory cluster. */
#include "common/bus/rdkafka/embedded.h"
#include "common/bus/rdkafka/rdk.h"
#include "inference/dlq/ledger.h"
#include "tests/unit/test.h"

#include <librdkafka/rdkafka_mock.h>
#include <string.h>

/* Before the first replay there is none, and nothing was replayed. Once a replay has it, one that is gone is no leave to put all back again. */
static void test_dlq_ledger_that_is_gone(void **state)
{
    pst_embedded *broker;
    pst_err err = {0};
    assert_int_equal(pst_embedded_start(0, &broker, &err), 0);
    pst_client client = {.bus = pst_bus_conf_new(pst_embedded_bootstrap(broker), "test")};
    dlq_ledger *l = dlq_ledger_new("in.dlq");
    rd_kafka_mock_cluster_t *cluster = bus_embedded_cluster(broker);
    bool beside = true;
    assert_int_equal(rd_kafka_mock_topic_create(cluster, "in.dlq.replays", 1, 1),
                     0); /* the cluster would make it, with four partitions, when asked */
    rd_kafka_mock_topic_set_error(cluster, "in.dlq.replays", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    assert_int_equal(dlq_ledger_read(l, &client, false, &err), 0);
    assert_int_equal(dlq_ledger_read(l, &client, true, &err), PST_ESTATE);
    assert_non_null(strstr(err.text, "in.dlq.replays"));
    pst_err_clear(&err);
    assert_int_equal(dlq_ledger_beside("in.dlq", &client, &beside, &err), 0);
    assert_false(beside);
    rd_kafka_mock_topic_set_error(cluster, "in.dlq.replays", 0);
    assert_int_equal(dlq_ledger_make(l, &client, &err), 0);
    assert_int_equal(dlq_ledger_read(l, &client, true, &err), 0);
    assert_int_equal(dlq_ledger_beside("in.dlq", &client, &beside, &err), 0);
    assert_true(beside);
    dlq_ledger_free(l);
    pst_bus_conf_free(client.bus);
    pst_embedded_stop(broker);
}

static void test_dlq_ledger_by_its_name(void **state)
{
    assert_true(dlq_ledger_is("in.dlq.replays"));
    assert_false(dlq_ledger_is("in.dlq"));
    assert_false(dlq_ledger_is(".replays"));
    assert_false(dlq_ledger_is("in.replays.old"));
    assert_false(dlq_ledger_is(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dlq_ledger_by_its_name),
        cmocka_unit_test(test_dlq_ledger_that_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
