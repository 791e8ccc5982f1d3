/* test_bus_txn_class.c - the table of error classes (each row was seen with librdkafka against the in-memory cluster or a real Kafka) and the
 * rule for fencings. */
#include "common/bus/bus_internal.h"
#include "common/bus/rdkafka/rdk.h"

#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

static void test_txn_classify_rows(void **state)
{
    const struct {
        bool fatal, abortable, retriable;
        int code;
        txn_class want;
    } rows[] = {
        {false, false, false, RD_KAFKA_RESP_ERR_NO_ERROR, TXN_OK},
        /* EndTxn, AddOffsets, AddPartitions, Produce: told that someone newer runs */
        {true, false, false, RD_KAFKA_RESP_ERR__FENCED, TXN_FENCED},
        {true, false, false, RD_KAFKA_RESP_ERR_PRODUCER_FENCED, TXN_FENCED},
        {true, false, false, RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, TXN_FENCED},
        /* dead, but nobody else is named */
        {true, false, false, RD_KAFKA_RESP_ERR_INVALID_TXN_STATE, TXN_RECYCLE},
        {true, false, false, RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, TXN_RECYCLE},
        {true, false, false, RD_KAFKA_RESP_ERR__FATAL, TXN_RECYCLE},
        /* refused */
        {true, false, false, RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TXN_REFUSED},
        {true, false, false, RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, TXN_REFUSED},
        {true, false, false, RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT, TXN_REFUSED},
        {false, false, false, RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE, TXN_REFUSED},
        /* abortable */
        {false, true, false, RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, TXN_ABORT},
        {false, true, false, RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION, TXN_ABORT},
        {false, true, false, RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID, TXN_ABORT},
        {false, true, false, RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID, TXN_ABORT},
        {false, true, false, RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS, TXN_ABORT},
        {false, true, false, RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED, TXN_ABORT},
        {false, true, false, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, TXN_ABORT},
        {false, true, false, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, TXN_ABORT},
        {false, true, false, RD_KAFKA_RESP_ERR__TIMED_OUT, TXN_ABORT}, /* a transaction older than its time-out, after an outage */
        {false, true, true, RD_KAFKA_RESP_ERR__TIMED_OUT, TXN_ABORT},  /* abortable is asked before retriable */
        /* retriable */
        {false, false, true, RD_KAFKA_RESP_ERR__TIMED_OUT, TXN_RETRY},
        {false, false, true, RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS, TXN_RETRY},
        {false, false, true, RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS, TXN_RETRY},
        /* none of the flags: as fatal */
        {false, false, false, RD_KAFKA_RESP_ERR__STATE, TXN_RECYCLE},
        {false, false, false, RD_KAFKA_RESP_ERR__INCONSISTENT, TXN_RECYCLE},
        {false, false, false, RD_KAFKA_RESP_ERR__CONFLICT, TXN_RECYCLE},
        {false, false, false, RD_KAFKA_RESP_ERR__FENCED, TXN_RECYCLE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        txn_class got = txn_classify(rows[i].fatal, rows[i].abortable, rows[i].retriable, rows[i].code);
        if (got != rows[i].want)
            fail_msg("row %zu (%s): %s, not %s", i, rd_kafka_err2name(rows[i].code), txn_class_name(got), txn_class_name(rows[i].want));
    }
}

static void test_txn_fence_once_proves_nothing(void **state)
{
    txn_fence f = {0};
    assert_false(txn_fence_add(&f, 1000, false, true));
}

static void test_txn_fence_twice_with_moved_offsets_is_somebody_else(void **state)
{
    txn_fence f = {0};
    assert_false(txn_fence_add(&f, 1000, false, false));
    assert_true(txn_fence_add(&f, 2000, false, true));
    f = (txn_fence){0};
    assert_false(txn_fence_add(&f, 1000, false, true));
    assert_true(txn_fence_add(&f, 2000, false, false));
}

static void test_txn_fence_twice_without_moved_offsets_is_not(void **state)
{
    txn_fence f = {0};
    for (int i = 0; i < TXN_FENCE_MAX - 1; i++)
        assert_false(txn_fence_add(&f, 1000 + i, false, false));
    assert_true(txn_fence_add(&f, 1100, false, false)); /* but so many are */
}

static void test_txn_fence_outage_forgives(void **state)
{
    txn_fence f = {0};
    assert_false(txn_fence_add(&f, 1000, false, true));
    assert_false(txn_fence_add(&f, 2000, true, true));
    assert_false(txn_fence_add(&f, 3000, false, true));
}

static void test_txn_fence_window_ends(void **state)
{
    txn_fence f = {0};
    assert_false(txn_fence_add(&f, 1000, false, true));
    assert_false(txn_fence_add(&f, 1001 + TXN_FENCE_WINDOW_US, false, true));
    assert_true(txn_fence_add(&f, 1002 + TXN_FENCE_WINDOW_US, false, false));
}

static void test_what_is_opened_again(void **state)
{
    const struct {
        int rc;
        pst_err_class cls;
        const char *origin;
        bool again;
    } rows[] = {
        {PST_EFENCED, PST_CLASS_FATAL, "kafka", true},
        {PST_ESTATE, PST_CLASS_FATAL, "kafka", true},
        {PST_ETIMEDOUT, PST_CLASS_FATAL, "kafka", true},
        {PST_EUNREACH, PST_CLASS_FATAL, "kafka", true},
        {PST_EAUTH, PST_CLASS_FATAL, "kafka", false},
        {PST_EINVAL, PST_CLASS_FATAL, "kafka", false},
        {PST_EUNSUPPORTED, PST_CLASS_FATAL, "kafka", false},
        {PST_ESTOPPED, PST_CLASS_RETRY, "kafka", false},
        {PST_ELIMIT, PST_CLASS_DATA, "kafka", false},
        {PST_ESTATE, PST_CLASS_FATAL, "score", false},
        {0, PST_CLASS_NONE, "", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_err e = {0};
        pst_err_set(&e, rows[i].rc, rows[i].cls, rows[i].origin, 0, "x");
        if (pst_bus_reopens(rows[i].rc, &e) != rows[i].again)
            fail_msg("row %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_opened_again),
        cmocka_unit_test(test_txn_classify_rows),
        cmocka_unit_test(test_txn_fence_once_proves_nothing),
        cmocka_unit_test(test_txn_fence_twice_with_moved_offsets_is_somebody_else),
        cmocka_unit_test(test_txn_fence_twice_without_moved_offsets_is_not),
        cmocka_unit_test(test_txn_fence_outage_forgives),
        cmocka_unit_test(test_txn_fence_window_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
