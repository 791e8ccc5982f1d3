/* bus_txn_class.c - what an error of a transactional call means. Pure, so that the table measured against brokers is its own test.
 *
 * The flags are the client's. Tests in this order: refused, fatal, abortable, retriable; neither of them is treated as fatal.
 * A dead producer is never a reason to end the service: it is recycled and the transaction's fate is looked up (bus_txn.c). */
#include "common/bus/bus_internal.h"

txn_class txn_classify(bool fatal, bool abortable, bool retriable, int code)
{
    if (!code)
        return TXN_OK;
    switch (code) {
    case BUS_ERR__AUTHENTICATION:
    case BUS_ERR_SASL_AUTHENTICATION_FAILED:
    case BUS_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
    case BUS_ERR_CLUSTER_AUTHORIZATION_FAILED:
    case BUS_ERR_INVALID_TRANSACTION_TIMEOUT:
    case BUS_ERR__UNSUPPORTED_FEATURE:
    case BUS_ERR_UNSUPPORTED_VERSION: return TXN_REFUSED; /* no new producer changes that */
    default: break;
    }
    if (fatal) {
        switch (code) {
        case BUS_ERR__FENCED:
        case BUS_ERR_PRODUCER_FENCED:
        case BUS_ERR_INVALID_PRODUCER_EPOCH: return TXN_FENCED;
        default: return TXN_RECYCLE;
        }
    }
    if (abortable)
        return TXN_ABORT;
    if (retriable)
        return TXN_RETRY;
    return TXN_RECYCLE;
}

const char *txn_class_name(txn_class c)
{
    static const char *const names[] = {"ok", "retry", "abort", "fenced", "recycle", "refused"};
    return names[c];
}

/* A broker says "fenced" for three things: somebody else initialised the same transactional.id; the coordinator timed the transaction out; and
 * races of its own after outages (librdkafka issue 3928). The last two happen to a producer that is alone in the world. So one fencing proves
 * nothing; a second one soon after, without such a cause and with our offsets moved on by somebody else, does. Two instances that share a
 * group without touching the same partitions are told by sheer number. */
bool txn_fence_add(txn_fence *f, int64_t now_us, bool innocent, bool moved)
{
    if (innocent) {
        *f = (txn_fence){0};
        return false;
    }
    if (!f->count || now_us - f->first_us > TXN_FENCE_WINDOW_US)
        *f = (txn_fence){.first_us = now_us};
    f->count++;
    f->moved |= moved;
    return (f->count >= 2 && f->moved) || f->count >= TXN_FENCE_MAX;
}
