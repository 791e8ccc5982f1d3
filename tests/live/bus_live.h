/* bus_live.h - see bus_live.c. Everything here fails the running test where something goes wrong. PENSTOCK_TEST_BOOTSTRAP names the broker,
 * PENSTOCK_TEST_ONLY a test.
 *
 * Deadlines are nets for what hangs, ample for a machine that is slow and busy: a test that passes never waits for one. */
#pragma once
#include "common/bus/bus_txn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define NET_MS 120000
#define NET_US (NET_MS * 1000LL)

extern pst_bus_conf *conf;
extern const pst_poll quick; /* some records, or a fifth of a second */

const char *name(const char *base); /* fresh in each run, so that runs do not meet; valid for ever */
void ok(int rc, const pst_err *err, const char *what);
const char *topic_named(const char *t, int partitions);
const char *topic(const char *base, int partitions);
void publish_n(const char *to, int32_t partition, int from, int n);   /* the numbers from…from+n-1, as text */
pst_batch poll_some(pst_consumer *c, size_t max);                     /* lost: of any poll that it took */
int read_all(const char *from, bool uncommitted, int *seen, int max); /* to the end; counts in seen what is below max */
void assert_visible(const char *in, int n); /* so many are committed: the markers are written after the answer, so they are waited for */
pst_consumer *member(const char *group, const char *from);
pst_txn *txn(const char *id, pst_txn_mode mode, pst_consumer *c);
void copy_batch(pst_txn *t, pst_consumer *c, const pst_batch *b, const char *to); /* sends and marks */
int64_t committed(const char *group, const char *of, int32_t partition);          /* -1: nothing */
int bus_live_main(const char *group, const struct CMUnitTest *tests, size_t n);
