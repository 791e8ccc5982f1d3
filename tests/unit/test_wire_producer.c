/* Our producer on a cluster in memory (wire_fake_net.c): what it writes is what it was given, once and in order, whatever the network does. */
#include "wire_fake_net.h"

#include "common/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- a producer, as the shared part holds it ------------------------------------------------------------------------------------------- */

typedef struct told {
    size_t ok, failed, unsent;
    int code; /* of the last failure */
    uint64_t last_nth;
    int32_t unsent_numbers[4096];
} told;

static struct {
    int batch_bytes, linger_ms, message_timeout_ms, queue_records, codec;
} want;

int wire_conf_read(const pst_bus_conf *conf, bus_prop_scope kind, const bus_kv *defaults, const bus_kv *forced, wire_conf **ret,
                   pst_err *err)
{
    wire_conf *c = pst_alloc(sizeof *c);
    for (; forced && forced->key; forced++)
        if (!strcmp(forced->key, "transactional.id"))
            c->transactional_id = pst_strdup(forced->value);
    c->transaction_timeout_ms = 60000;
    c->message_timeout_ms = want.message_timeout_ms;
    c->message_max_bytes = 1000000;
    c->batch_bytes = want.batch_bytes ? want.batch_bytes : 600;
    c->batch_records = 10000;
    c->queue_max_records = want.queue_records ? want.queue_records : 100000;
    c->queue_max_kbytes = 10000;
    c->linger_ms = want.linger_ms;
    c->partitioner = WIRE_MURMUR2_RANDOM;
    c->socket_timeout_ms = 5000;
    c->request_timeout_ms = 5000;
    c->metadata_propagation = 300;
    c->retry_backoff_ms = 0;
    c->codec = want.codec;
    c->level = -1;
    *ret = c;
    return 0;
}

void wire_conf_free(wire_conf *c)
{
    if (c)
        free(c->transactional_id);
    free(c);
}

static void on_delivered(void *owner, const bus_delivered *d)
{
    told *t = owner;
    if (!d->code) {
        t->ok++;
        return;
    }
    t->failed++;
    t->code = d->code;
    if (d->unsent) {
        assert_true(t->unsent < 4096);
        memcpy(&t->unsent_numbers[t->unsent++], d->unsent->value, 4);
        t->last_nth = d->nth;
    }
}

static void on_fault(void *owner, int code, const char *reason)
{
}

static const bus_producer_ops *const ops = &wire_producer_ops;

static bus_handle *open_as(const char *id, told *t)
{
    const bus_producer_needs needs = {.transactional_id = id, .transaction_timeout_ms = 60000, .message_timeout_ms = 60000, .linger_ms = 0};
    const bus_listener to = {.owner = t, .delivered = on_delivered, .fault = on_fault};
    bus_handle *h = NULL;
    pst_err err = {0};
    assert_int_equal(ops->open(NULL, &needs, &to, &h, &err), 0);
    return h;
}

static int serve(bus_handle *h, int timeout_ms)
{
    return wire_handle_of(h)->life->serve(wire_handle_of(h), timeout_ms);
}

static int fatal(bus_handle *h)
{
    char text[300];
    return wire_handle_of(h)->life->fatal(wire_handle_of(h), text, sizeof text);
}

static void close_it(bus_handle *h)
{
    ops->settle(h);
    wire_handle_of(h)->life->free(wire_handle_of(h));
}

/* Number `i` for a partition; every third with a key, every seventh with headers. */
static int send_one(bus_handle *h, const char *topic, int32_t partition, int32_t i)
{
    static const pst_header headers[] = {{"a", "1", 1}, {"b", NULL, 0}};
    pst_out o = {.topic = topic, .partition = partition, .value = &i, .value_len = sizeof i};
    if (i % 3 == 0) {
        o.key = "key";
        o.key_len = 3;
    }
    if (i % 7 == 0) {
        o.headers = headers;
        o.n_headers = 2;
    }
    size_t sent;
    int code = ops->send(h, &o, 1, &sent);
    assert_int_equal(sent, code ? 0 : 1);
    return code;
}

static void flush_all(bus_handle *h)
{
    for (int i = 0; i < 100 && wire_producer_of(h)->records; i++)
        ops->flush(h, 200);
    assert_int_equal(wire_producer_of(h)->records, 0);
    assert_int_equal(wire_producer_of(h)->bytes, 0);
}

/* Records with these numbers lie in the partition, in this order, each once. */
static void assert_log(int t, int p, int32_t first, int32_t step, size_t n)
{
    const fake_log *log = &fake.logs[t][p];
    assert_int_equal(log->n, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(log->at[i].number, first + (int32_t)i * step);
        assert_int_equal(log->at[i].headers, log->at[i].number % 7 ? 0 : 2);
        assert_string_equal(log->at[i].key, log->at[i].number % 3 ? "" : "key");
    }
}

static int setup(void **state)
{
    memset(&want, 0, sizeof want);
    fake_reset(1);
    return 0;
}

static int teardown(void **state)
{
    fake_done();
    return 0;
}

/* ---- keys ----------------------------------------------------------------------------------------------------------------------------------- */

/* The numbers are those of Kafka's UtilsTest. */
static void keys_go_where_java_sends_them(void **state)
{
    static const struct {
        const char *key;
        int32_t hash;
    } cases[] = {{"21", -973932308},
                 {"foobar", -790332482},
                 {"a-little-bit-long-string", -985981536},
                 {"a-little-bit-longer-string", -1486304829},
                 {"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
                 {"abc", 479470107}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal((int32_t)wire_murmur2(cases[i].key, strlen(cases[i].key)), cases[i].hash);
    assert_int_equal(wire_partition_of(WIRE_MURMUR2_RANDOM, NULL, 0, 7), -1);
    assert_int_equal(wire_partition_of(WIRE_MURMUR2_RANDOM, "", 0, 7), wire_partition_of(WIRE_MURMUR2, NULL, 0, 7));
    assert_int_equal(wire_partition_of(WIRE_CONSISTENT, "123456789", 9, 1000), (int)(0xcbf43926U % 1000));
    assert_int_equal(wire_partition_of(WIRE_CONSISTENT_RANDOM, "", 0, 7), -1);
}

/* ---- records ---------------------------------------------------------------------------------------------------------------------------------- */

static void records_come_once_and_in_order(void **state)
{
    told t = {0};
    bus_handle *h = open_as(NULL, &t);
    for (int i = 0; i < 2000; i++)
        assert_int_equal(send_one(h, i & 1 ? "two" : "one", i % 4, i), 0);
    flush_all(h);
    assert_int_equal(t.ok, 2000);
    for (int p = 0; p < 4; p++)
        assert_log(p & 1, p, p, 4, 500);
    assert_true(fake.batch_max > 5);
    close_it(h);
}

/* Fifty networks, none of which loses, doubles or swaps a record. */
static void no_network_loses_or_doubles_a_record(void **state)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        fake_reset(seed);
        fake.chances = (fake_chances){.lose = 60, .mute = 60, .late = 500, .refuse = 100, .move = 20};
        told t = {0};
        bus_handle *h = open_as(NULL, &t);
        for (int i = 0; i < 1200; i++) {
            assert_int_equal(send_one(h, i & 1 ? "two" : "one", i % 4, i), 0);
            if (i % 50 == 0)
                serve(h, 1);
        }
        flush_all(h);
        assert_int_equal(t.ok, 1200);
        assert_int_equal(fatal(h), 0);
        for (int p = 0; p < 4; p++)
            assert_log(p & 1, p, p, 4, 300);
        close_it(h);
    }
}

static void a_topic_that_comes_late_gets_its_records_in_order(void **state)
{
    told t = {0};
    fake.known_topics = 0;
    bus_handle *h = open_as(NULL, &t);
    for (int i = 0; i < 100; i++)
        assert_int_equal(send_one(h, "one", i == 50 ? 77 : 2, i), 0);
    serve(h, 20);
    assert_int_equal(t.ok + t.failed, 0);
    fake.known_topics = 1;
    flush_all(h);
    assert_int_equal(t.ok, 99);
    assert_int_equal(t.code, BUS_ERR__UNKNOWN_PARTITION); /* 77 */
    assert_int_equal(fake.logs[0][2].n, 99);
    for (size_t i = 1; i < 99; i++)
        assert_true(fake.logs[0][2].at[i].number > fake.logs[0][2].at[i - 1].number);
    assert_int_equal(send_one(h, "one", 77, 5), BUS_ERR__UNKNOWN_PARTITION);
    close_it(h);
}

static void a_topic_that_is_not_there_is_said(void **state)
{
    told t = {0};
    fake.known_topics = 1;
    bus_handle *h = open_as(NULL, &t);
    assert_int_equal(send_one(h, "two", -1, 1), 0);
    assert_int_equal(send_one(h, "one", -1, 2), 0);
    flush_all(h);
    assert_int_equal(t.ok, 1);
    assert_int_equal(t.failed, 1);
    assert_int_equal(t.code, BUS_ERR__UNKNOWN_TOPIC);
    close_it(h);
}

static void nothing_is_there_and_its_time_is_over(void **state)
{
    told t = {0};
    want.message_timeout_ms = 300;
    fake.down = true;
    bus_handle *h = open_as(NULL, &t);
    assert_int_equal(send_one(h, "two", -1, 1), 0);
    flush_all(h);
    assert_int_equal(t.code, BUS_ERR__MSG_TIMED_OUT);
    close_it(h);
}

static void a_full_queue_says_so_and_has_room_again(void **state)
{
    told t = {0};
    want.queue_records = 10;
    bus_handle *h = open_as(NULL, &t);
    for (int i = 0; i < 10; i++)
        assert_int_equal(send_one(h, "one", 0, i), 0);
    assert_int_equal(send_one(h, "one", 0, 10), BUS_ERR__QUEUE_FULL);
    serve(h, 50);
    flush_all(h);
    assert_int_equal(send_one(h, "one", 0, 10), 0);
    flush_all(h);
    assert_log(0, 0, 0, 1, 11);
    close_it(h);
}

/* A refused batch leaves a gap in the numbers of those that were on their way behind it: they come all the same, once and in order. */
static void a_refused_batch_costs_only_its_own_records(void **state)
{
    static const int codes[] = {BUS_ERR_MSG_SIZE_TOO_LARGE, BUS_ERR_INVALID_RECORD, BUS_ERR_TOPIC_AUTHORIZATION_FAILED};
    for (size_t c = 0; c < sizeof codes / sizeof *codes; c++) {
        fake_reset(c + 1);
        told t = {0};
        bus_handle *h = open_as(NULL, &t);
        fake.next_code = codes[c];
        fake.next_from = 1;
        for (int i = 0; i < 400; i++)
            assert_int_equal(send_one(h, "one", 1, i), 0);
        flush_all(h);
        assert_int_equal(t.code, codes[c]);
        assert_true(t.failed > 0 && t.failed < 100);
        assert_int_equal(t.ok + t.failed, 400);
        assert_int_equal(fake.logs[0][1].n, t.ok);
        for (size_t i = 1; i < t.ok; i++)
            assert_true(fake.logs[0][1].at[i].number > fake.logs[0][1].at[i - 1].number);
        assert_int_equal(fake.inits, 2); /* the second id */
        assert_int_equal(fatal(h), 0);
        close_it(h);
    }
}

/* Brokers that have forgotten us. */
static void numbers_that_a_broker_forgot_begin_anew(void **state)
{
    told t = {0};
    bus_handle *h = open_as(NULL, &t);
    fake.next_code = BUS_ERR_UNKNOWN_PRODUCER_ID;
    fake.next_from = 2;
    for (int i = 0; i < 400; i++)
        assert_int_equal(send_one(h, "one", 1, i), 0);
    flush_all(h);
    assert_int_equal(t.ok, 400);
    assert_log(0, 1, 0, 1, 400);
    close_it(h);
}

static void a_reserved_value_is_written_where_it_is_sent_from(void **state)
{
    told t = {0};
    bus_handle *h = open_as(NULL, &t);
    char big[400] = "";
    for (int i = 0; i < 300; i++) {
        pst_out head = {.topic = "one", .partition = i % 2, .key = i % 3 ? NULL : "key", .key_len = i % 3 ? 0 : 3};
        pst_buf *room = ops->reserve(h, &head);
        pst_buf_add(room, "left aside", 10);
        room = ops->reserve(h, &head); /* forgets the first */
        pst_buf_add(room, &i, sizeof i);
        pst_buf_add(room, big, (size_t)(i * 37 % 400)); /* some do not fit any more */
        assert_int_equal(ops->send_reserved(h), 0);
        if (i % 10 == 0)
            serve(h, 1);
    }
    pst_out head = {.topic = "one", .partition = 0};
    ops->reserve(h, &head); /* and never sent */
    flush_all(h);
    assert_int_equal(t.ok, 300);
    for (int p = 0; p < 2; p++) {
        assert_int_equal(fake.logs[0][p].n, 150);
        for (int i = 0; i < 150; i++)
            assert_int_equal(fake.logs[0][p].at[i].number, 2 * i + p);
    }
    close_it(h);
}

static void a_reserved_value_waits_for_its_topic(void **state)
{
    told t = {0};
    fake.known_topics = 0;
    bus_handle *h = open_as(NULL, &t);
    pst_out head = {.topic = "one", .partition = 0};
    for (int i = 1; i < 3; i++) {
        pst_buf_add(ops->reserve(h, &head), &i, sizeof i);
        assert_int_equal(ops->send_reserved(h), 0);
    }
    fake.known_topics = 1;
    flush_all(h);
    assert_int_equal(fake.logs[0][0].n, 2);
    assert_int_equal(fake.logs[0][0].at[1].number, 2);
    close_it(h);
}

/* The room lies in the batch whose sending would make the queue less full: it must not keep it back. */
static void a_reserved_value_and_a_full_queue_do_not_wait_for_each_other(void **state)
{
    told t = {0};
    want.queue_records = 3;
    bus_handle *h = open_as(NULL, &t);
    for (int i = 0; i < 50; i++) {
        pst_out head = {.topic = "one", .partition = 1};
        pst_buf_add(ops->reserve(h, &head), &i, sizeof i);
        int code, tries = 0;
        while ((code = ops->send_reserved(h)) == BUS_ERR__QUEUE_FULL && ++tries < 200)
            serve(h, 10);
        assert_int_equal(code, 0);
    }
    flush_all(h);
    assert_int_equal(t.ok, 50);
    assert_int_equal(fake.logs[0][1].n, 50);
    for (int i = 0; i < 50; i++)
        assert_int_equal(fake.logs[0][1].at[i].number, i);
    close_it(h);
}

/* What was not sent is told as it was given when the client dies, and nothing that was. */
static void what_a_dead_client_had_not_sent_is_given_back(void **state)
{
    told t = {0};
    bus_handle *h = open_as(NULL, &t);
    fake.down = true;
    for (int i = 0; i < 200; i++)
        assert_int_equal(send_one(h, "one", 1, i), 0);
    wire_producer_die(wire_producer_of(h), BUS_ERR_CLUSTER_AUTHORIZATION_FAILED, "no right");
    serve(h, 10);
    assert_int_equal(t.unsent, 200);
    assert_int_equal(t.code, BUS_ERR_CLUSTER_AUTHORIZATION_FAILED);
    for (int i = 0; i < 200; i++)
        assert_int_equal(t.unsent_numbers[i], i);
    assert_int_equal(t.last_nth, 200);
    size_t sent;
    assert_int_equal(ops->send(h, &(pst_out){.topic = "one"}, 1, &sent), BUS_ERR__FATAL);
    close_it(h);
}

static void dropping_tells_every_record(void **state)
{
    told t = {0};
    bus_handle *h = open_as(NULL, &t);
    fake.down = true;
    for (int i = 0; i < 100; i++)
        send_one(h, i % 2 ? "one" : "two", i % 4, i);
    ops->drop(h, true);
    assert_int_equal(t.failed, 100);
    assert_int_equal(t.code, BUS_ERR__PURGE_QUEUE);
    fake.down = false;
    for (int i = 0; i < 100; i++)
        send_one(h, "one", 1, i);
    flush_all(h);
    assert_log(0, 1, 0, 1, 100);
    close_it(h);
}

/* ---- transactions ------------------------------------------------------------------------------------------------------------------------------ */

static char group_name[] = "g", member_name[] = "m";
static struct bus_group membership = {.group = group_name, .member = member_name, .generation = 7};

static bus_handle *open_txn(told *t)
{
    bus_handle *h = open_as("id", t);
    bus_said said = {.retriable = true};
    for (int i = 0; i < 50 && said.retriable; i++)
        ops->init(h, 200, &said);
    assert_int_equal(said.code, 0);
    return h;
}

static bus_said said_of(void (*call)(bus_handle *, int, bus_said *), bus_handle *h)
{
    bus_said said = {.retriable = true};
    for (int i = 0; i < 100 && said.retriable; i++)
        call(h, 200, &said);
    return said;
}

static bus_said send_offsets(bus_handle *h, int64_t offset)
{
    bus_place place = {.topic = (char *)"in", .partition = 3, .offset = offset};
    bus_places list = {.at = &place, .n = 1};
    bus_said said = {.retriable = true};
    for (int i = 0; i < 100 && said.retriable; i++)
        ops->offsets(h, &list, &membership, 200, &said);
    return said;
}

static size_t with_fate(int t, int p, int fate)
{
    size_t n = 0;
    for (size_t i = 0; i < fake.logs[t][p].n; i++)
        n += fake.logs[t][p].at[i].fate == fate;
    return n;
}

static void rounds_are_committed_or_aborted(void **state)
{
    for (int level = 0; level <= 2; level += 2) {
        fake_reset(3);
        fake.level = level;
        told t = {0};
        bus_handle *h = open_txn(&t);
        assert_int_equal(send_one(h, "one", 0, 1), BUS_ERR__STATE);
        for (int round = 0; round < 20; round++) {
            bus_said said;
            ops->begin(h, &said);
            assert_int_equal(said.code, 0);
            for (int i = 0; i < 50; i++)
                assert_int_equal(send_one(h, "one", i % 2, i), 0);
            assert_int_equal(send_offsets(h, 1).code, 0);
            said = round % 2 ? said_of(ops->abort, h) : said_of(ops->commit, h);
            assert_int_equal(said.code, 0);
            assert_int_equal(ops->ends_sent(h), 1);
        }
        assert_int_equal(with_fate(0, 0, 1), 250);
        assert_int_equal(with_fate(0, 1, 1), 250);
        assert_int_equal(with_fate(0, 0, 0), 0);
        assert_int_equal(fake.offset_sum, 10);
        assert_int_equal(fake.joins > 0, level < 2);
        close_it(h);
    }
}

static void an_empty_round_asks_nobody(void **state)
{
    told t = {0};
    fake.level = 2;
    bus_handle *h = open_txn(&t);
    bus_said said;
    for (int i = 0; i < 4; i++) {
        ops->begin(h, &said);
        assert_int_equal(said.code, 0);
        said = said_of(i % 2 ? ops->abort : ops->commit, h);
        assert_int_equal(said.code, 0);
    }
    assert_int_equal(fake.ends, 0);
    close_it(h);
}

/* As bus_txn.c goes on: what is unclear is looked up behind a new producer, and played again if it did not happen. */
static void no_network_breaks_exactly_once(void **state)
{
    size_t rounds_again = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        fake_reset(seed);
        fake.level = seed % 2 ? 2 : 0;
        fake.chances = (fake_chances){.lose = 40, .mute = 40, .late = 500, .refuse = 60, .move = 10};
        told t = {0};
        bus_handle *h = open_txn(&t);
        int32_t done = 0;
        int64_t offsets = 0;
        while (done < 600) {
            bus_said said;
            ops->begin(h, &said);
            assert_int_equal(said.code, 0);
            for (int i = 0; i < 40; i++)
                send_one(h, "one", i % 4, done + i);
            said = send_offsets(h, 40);
            bool asked = !said.code;
            if (asked)
                said = said_of(ops->commit, h);
            bool renew = said.code || (ops->ends_sent(h) > 1 && fake.level < 2);
            bool committed = !said.code;
            if (renew) {
                close_it(h);
                h = open_txn(&t);
                if (asked)
                    committed = fake.offset_sum == offsets + 40;
            }
            rounds_again += !committed;
            if (committed) {
                offsets += 40;
                done += 40;
            }
        }
        assert_int_equal(fake.offset_sum, 600);
        for (int p = 0; p < 4; p++) {
            int32_t next = p;
            for (size_t i = 0; i < fake.logs[0][p].n; i++) {
                const fake_record *r = &fake.logs[0][p].at[i];
                assert_int_not_equal(r->fate, 0); /* nothing hangs */
                if (r->fate != 1)
                    continue;
                assert_int_equal(r->number, next);
                next += 4;
            }
            assert_int_equal(next, 600 + p);
        }
        close_it(h);
    }
    (void)rounds_again;
}

static void a_round_whose_record_is_refused_is_abortable(void **state)
{
    for (int level = 0; level <= 2; level += 2) {
        fake_reset(5);
        fake.level = level;
        told t = {0};
        bus_handle *h = open_txn(&t);
        bus_said said;
        ops->begin(h, &said);
        fake.next_code = BUS_ERR_MSG_SIZE_TOO_LARGE;
        for (int i = 0; i < 100; i++)
            send_one(h, "one", 0, i);
        said = said_of(ops->commit, h);
        assert_true(said.abortable);
        assert_int_equal(said.code, BUS_ERR_MSG_SIZE_TOO_LARGE);
        assert_int_equal(send_one(h, "one", 0, 1), BUS_ERR__STATE);
        assert_int_equal(said_of(ops->abort, h).code, 0);
        assert_int_equal(t.ok + t.failed, 100);
        ops->begin(h, &said); /* the same producer goes on, with numbers that the brokers take */
        assert_int_equal(said.code, 0);
        for (int i = 0; i < 100; i++)
            send_one(h, "one", 0, i);
        assert_int_equal(said_of(ops->commit, h).code, 0);
        assert_int_equal(with_fate(0, 0, 1), 100);
        assert_int_equal(with_fate(0, 0, 0), 0);
        close_it(h);
    }
}

/* Nor is its commit asked for behind anybody's back, when the last of its records is refused. */
static void a_refused_round_is_not_committed_by_going_away(void **state)
{
    for (int level = 0; level <= 2; level += 2) {
        fake_reset(5);
        fake.level = level;
        told t = {0};
        bus_handle *h = open_txn(&t);
        bus_said said;
        ops->begin(h, &said);
        send_one(h, "one", 0, 0);
        ops->flush(h, 300);
        assert_int_equal(send_offsets(h, 40).code, 0);
        fake.next_code = BUS_ERR_MSG_SIZE_TOO_LARGE;
        send_one(h, "one", 0, 1);
        assert_true(said_of(ops->commit, h).abortable);
        serve(h, 5);
        close_it(h);
        h = open_txn(&t);
        assert_int_equal(fake.offset_sum, 0);
        assert_int_equal(with_fate(0, 0, 2), 1);
        assert_int_equal(fake.ends, 0);
        close_it(h);
    }
}

/* A record whose topic never came lies in no batch, but its round is as lost as if a broker had refused it: its offsets must not be committed. */
static void a_round_whose_topic_is_not_there_is_abortable(void **state)
{
    for (int level = 0; level <= 2; level += 2) {
        fake_reset(5);
        fake.level = level;
        fake.known_topics = 1;
        told t = {0};
        bus_handle *h = open_txn(&t);
        bus_said said;
        ops->begin(h, &said);
        assert_int_equal(send_one(h, "one", 0, 0), 0);
        assert_int_equal(send_one(h, "two", -1, 1), 0);
        assert_int_equal(send_offsets(h, 40).code, 0);
        said = said_of(ops->commit, h);
        assert_true(said.abortable);
        assert_int_equal(said.code, BUS_ERR__UNKNOWN_TOPIC);
        assert_int_equal(t.failed, 1);
        assert_int_equal(said_of(ops->abort, h).code, 0);
        assert_int_equal(fake.offset_sum, 0);
        assert_int_equal(with_fate(0, 0, 1), 0);
        close_it(h);
    }
}

static void who_is_fenced_is_dead(void **state)
{
    for (int level = 0; level <= 2; level += 2)
        for (int when = 0; when < 3; when++) {
            fake_reset(6);
            fake.level = level;
            told t = {0};
            bus_handle *h = open_txn(&t);
            bus_said said;
            ops->begin(h, &said);
            if (when == 0)
                fake_fence();
            send_one(h, "one", 0, 1);
            ops->flush(h, 300);
            if (when == 1)
                fake_fence();
            said = send_offsets(h, 1);
            if (when == 2) {
                assert_int_equal(said.code, 0);
                fake_fence();
                said = said_of(ops->commit, h);
            }
            assert_true(said.fatal);
            assert_true(said.code == BUS_ERR_PRODUCER_FENCED || said.code == BUS_ERR_INVALID_PRODUCER_EPOCH);
            assert_int_equal(fatal(h), said.code);
            assert_int_equal(t.unsent, 0); /* the round is played again: nobody is to carry its records */
            close_it(h);
        }
}

static void a_stale_membership_ends_the_round_only(void **state)
{
    told t = {0};
    fake.level = 2;
    bus_handle *h = open_txn(&t);
    bus_said said;
    ops->begin(h, &said);
    membership.generation = 6;
    said = send_offsets(h, 1);
    membership.generation = 7;
    assert_true(said.abortable);
    assert_int_equal(said.code, BUS_ERR_ILLEGAL_GENERATION);
    assert_int_equal(said_of(ops->abort, h).code, 0);
    assert_int_equal(fatal(h), 0);
    close_it(h);
}

/* A call whose time is over goes on when it is made again, and what it was given is not looked at in between. */
static void a_call_that_was_late_is_taken_up_again(void **state)
{
    told t = {0};
    fake.level = 0;
    bus_handle *h = open_txn(&t);
    bus_said said;
    ops->begin(h, &said);
    fake.down = true;
    send_one(h, "one", 0, 1);
    for (int i = 0; i < 3; i++) {
        bus_place *place = pst_alloc(sizeof *place);
        *place = (bus_place){.topic = (char *)"in", .partition = 3, .offset = 5};
        bus_places list = {.at = place, .n = 1};
        ops->offsets(h, &list, &membership, 20, &said);
        assert_true(said.retriable);
        assert_int_equal(said.code, BUS_ERR__TIMED_OUT);
        free(place);
        serve(h, 1);
    }
    fake.down = false;
    serve(h, 5);
    assert_int_equal(send_offsets(h, 5).code, 0);
    fake.down = true;
    ops->commit(h, 20, &said);
    assert_true(said.retriable);
    fake.down = false;
    assert_int_equal(said_of(ops->commit, h).code, 0);
    assert_int_equal(fake.offset_sum, 5);
    assert_int_equal(with_fate(0, 0, 1), 1);
    close_it(h);
}

static void an_end_that_does_not_fit_is_fatal(void **state)
{
    told t = {0};
    fake.level = 2;
    bus_handle *h = open_txn(&t);
    bus_said said;
    ops->begin(h, &said);
    send_one(h, "one", 0, 1);
    fake.next_end_code = BUS_ERR_INVALID_TXN_STATE;
    said = said_of(ops->commit, h);
    assert_true(said.fatal);
    assert_int_equal(said.code, BUS_ERR_INVALID_TXN_STATE);
    close_it(h);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(keys_go_where_java_sends_them),
        T(records_come_once_and_in_order),
        T(no_network_loses_or_doubles_a_record),
        T(a_topic_that_comes_late_gets_its_records_in_order),
        T(a_topic_that_is_not_there_is_said),
        T(nothing_is_there_and_its_time_is_over),
        T(a_full_queue_says_so_and_has_room_again),
        T(a_refused_batch_costs_only_its_own_records),
        T(numbers_that_a_broker_forgot_begin_anew),
        T(a_reserved_value_is_written_where_it_is_sent_from),
        T(a_reserved_value_waits_for_its_topic),
        T(a_reserved_value_and_a_full_queue_do_not_wait_for_each_other),
        T(what_a_dead_client_had_not_sent_is_given_back),
        T(dropping_tells_every_record),
        T(rounds_are_committed_or_aborted),
        T(an_empty_round_asks_nobody),
        T(no_network_breaks_exactly_once),
        T(a_round_whose_record_is_refused_is_abortable),
        T(a_refused_round_is_not_committed_by_going_away),
        T(a_round_whose_topic_is_not_there_is_abortable),
        T(who_is_fenced_is_dead),
        T(a_stale_membership_ends_the_round_only),
        T(a_call_that_was_late_is_taken_up_again),
        T(an_end_that_does_not_fit_is_fatal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
