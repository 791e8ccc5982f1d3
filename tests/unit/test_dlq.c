/* test_dlq.c - what a dead letter's headers say, hostile ones too; filters; the ledger of what was put back. */
#include "common/bus/bus_client.h"
#include "inference/dlq/ledger.h"
#include "inference/dlq/letter.h"
#include "tests/unit/test.h"

#include <string.h>

#define H(name, text)                \
    {                                \
        name, text, sizeof(text) - 1 \
    }

static const pst_header *given;
static size_t n_given;

static size_t give(const pst_record *r, pst_header *ret, size_t max)
{
    for (size_t i = 0; i < n_given && i < max; i++)
        ret[i] = given[i];
    return n_given;
}

static const bus_consumer_ops calls = {.headers = give};
static const bus_client client = {.consumer = &calls};

static dlq_letter read_letter(const pst_header *headers, size_t n)
{
    static pst_record r;
    static pst_header_room room;
    dlq_letter l;
    r = (pst_record){.topic = "in.dlq", .partition = 1, .offset = 5, .timestamp_ms = 1000, .has_headers = true, .client = &client};
    given = headers;
    n_given = n;
    dlq_letter_read(&r, &room, &l);
    pst_header_room_done(&room);
    room = (pst_header_room){0};
    return l;
}
#define READ(...) read_letter((const pst_header[]){__VA_ARGS__}, sizeof((const pst_header[]){__VA_ARGS__}) / sizeof(pst_header))

static void assert_text(pst_slice s, const char *text)
{
    assert_int_equal(s.len, strlen(text));
    if (s.len)
        assert_memory_equal(s.data, text, s.len);
}

static void test_dlq_letter_of_connect_and_of_streams(void **state)
{
    dlq_letter l = READ(H("__connect.errors.topic", "in"), H("__connect.errors.partition", "3"), H("__connect.errors.offset", "42"),
                        H("__connect.errors.exception.class.name", "org.E"), H("x-dlq-replays", "2"));
    assert_true(l.dead);
    assert_string_equal(l.source, "in");
    assert_int_equal(l.source_partition, 3);
    assert_int_equal(l.source_offset, 42);
    assert_int_equal(l.replays, 2);
    assert_text(l.reason, "org.E");
    l = READ(H("__streams.errors.topic", "s"), H("__streams.errors.partition", "0"), H("__streams.errors.message", "m"));
    assert_true(l.dead);
    assert_string_equal(l.source, "s");
    assert_int_equal(l.source_partition, 0);
    assert_text(l.message, "m");
    assert_int_equal(l.timestamp_ms, 1000);
    l = READ(H("__connect.errors.topic", "in"), H("x-dlq-timestamp", "77")); /* the letter has the time of its writing */
    assert_int_equal(l.timestamp_ms, 77);
    l = READ(H("__connect.errors.topic", "in"), H("x-dlq-timestamp", "-5"));
    assert_int_equal(l.timestamp_ms, 1000);
}

static void test_dlq_letter_hostile_headers(void **state)
{
    char lang[400];
    memset(lang, 'n', sizeof lang);
    assert_false(read_letter(NULL, 0).dead);
    assert_false(READ(H("__connect.errors.topic", "")).dead);
    assert_false(READ(H("__connect.errors.topic", "in\0put")).dead);
    assert_false(READ(H("__connect.errors.topic", "../in")).dead);
    assert_false(READ(H("__connect.errors.topic", "..")).dead);
    assert_false(READ({"__connect.errors.topic", NULL, 5}).dead);
    assert_false(READ({"__connect.errors.topic", lang, sizeof lang}).dead);
    assert_true(READ({"__connect.errors.topic", lang, 249}).dead);
    static const char *const bad[] = {"-1", "", "1x", "0x1", "99999999999999999999", "4294967296", " 1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dlq_letter l = READ(H("__connect.errors.topic", "in"), {"__connect.errors.partition", bad[i], strlen(bad[i])},
                            {"x-dlq-replays", bad[i], strlen(bad[i])});
        assert_int_equal(l.source_partition, -1);
        assert_true(l.replays == 0);
    }
    assert_string_equal(READ(H("__connect.errors.topic", "first"), H("__connect.errors.topic", "last")).source, "last");
}

static void test_dlq_filter_by_what_a_letter_says(void **state)
{
    dlq_letter l = READ(H("__connect.errors.topic", "in"), H("__connect.errors.stage", "MAP"), H("x-dlq-reason", "bad-input"),
                        H("__connect.errors.exception.class.name", "org.E"));
    static const struct {
        dlq_filter f;
        bool takes;
    } cases[] = {
        {{0}, true},
        {{.reason = "bad-input"}, true},
        {{.reason = "org.E"}, true},
        {{.reason = "bad"}, false},
        {{.stage = "MAP", .source = "in"}, true},
        {{.stage = "MAP", .source = "out"}, false},
        {{.since_ms = 1000}, true},
        {{.since_ms = 1001}, false},
        {{.until_ms = 1000}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(dlq_filter_takes(&cases[i].f, &l), cases[i].takes);
}

static void test_dlq_filter_of_a_part(void **state)
{
    static const struct {
        const char *text;
        int partition;
        int64_t from, to;
    } good[] = {{"0", 0, 0, INT64_MAX}, {"2:7", 2, 7, 7}, {"2:7-9", 2, 7, 9}};
    static const char *const bad[] = {"", "x", "-1", "0:", "0:x", "0:5-", "0:5-4", "0:5-6x", "0 ", "99999999999", "0:-3"};
    for (size_t i = 0; i < 3; i++) {
        dlq_filter f = {0};
        assert_int_equal(dlq_filter_partition(&f, good[i].text, NULL), 0);
        assert_int_equal(f.partition, good[i].partition);
        assert_true(f.from == good[i].from && f.to == good[i].to);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dlq_filter f = {0};
        assert_int_equal(dlq_filter_partition(&f, bad[i], NULL), PST_EINVAL);
    }
}

/* Round after round, in any order within one, is known again from what was written. */
static void test_dlq_ledger_there_and_back(void **state)
{
    dlq_ledger *out = dlq_ledger_new("in.dlq"), *in = dlq_ledger_new("in.dlq");
    assert_string_equal(dlq_ledger_topic(out), "in.dlq.replays");
    static const struct {
        int32_t partition;
        int64_t offset;
    } put[] = {{1, 7}, {0, 3}, {0, 4}, {1, 5}, {0, 5}, {1, 6}};
    pst_buf key = {0}, value = {0};
    dlq_ledger_begin(out);
    for (size_t i = 0; i < 6; i++)
        dlq_ledger_note(out, &(pst_record){.partition = put[i].partition, .offset = put[i].offset, .value = "v", .value_len = 1});
    int entries = 0;
    while (dlq_ledger_entry(out, "elsewhere", &key, &value)) {
        assert_string_equal(key.data, entries ? "1:5" : "0:3");
        assert_int_equal(dlq_ledger_add(in, value.data, value.len, NULL), 0);
        entries++;
    }
    assert_int_equal(entries, 2);
    dlq_ledger_settle(in);
    for (int p = 0; p < 3; p++)
        for (int o = 0; o < 10; o++)
            assert_int_equal(dlq_ledger_has(in, p, o), (p == 0 && o >= 3 && o <= 5) || (p == 1 && o >= 5 && o <= 7));
    pst_err err = {0};
    const pst_record same = {.partition = 0, .offset = 5, .value = "v", .value_len = 1},
                     other = {.partition = 0, .offset = 5, .value = "w", .value_len = 1};
    assert_int_equal(dlq_ledger_check(in, &same, &err), 0);
    assert_int_equal(dlq_ledger_check(in, &other, &err), PST_ESTATE);
    dlq_ledger_begin(out);
    assert_false(dlq_ledger_entry(out, NULL, &key, &value));
    pst_buf_done(&key);
    pst_buf_done(&value);
    dlq_ledger_free(in);
    dlq_ledger_free(out);
}

static void test_dlq_ledger_refuses_what_is_no_entry(void **state)
{
    static const char *const bad[] = {
        "",
        "x",
        "[]",
        "{}",
        "{\"partition\":0,\"runs\":[[0,1]]}",
        "{\"partition\":-1,\"runs\":[[0,1]],\"last\":{\"offset\":0,\"crc32c\":1}}",
        "{\"partition\":0,\"runs\":[[0,0]],\"last\":{\"offset\":0,\"crc32c\":1}}",
        "{\"partition\":0,\"runs\":[[-1,2]],\"last\":{\"offset\":0,\"crc32c\":1}}",
        "{\"partition\":0,\"runs\":[[9223372036854775807,2]],\"last\":{\"offset\":0,\"crc32c\":1}}",
        "{\"partition\":0,\"runs\":[[0,\"1\"]],\"last\":{\"offset\":0,\"crc32c\":1}}",
        "{\"partition\":0,\"runs\":[7],\"last\":{\"offset\":0,\"crc32c\":1}}",
        "{\"partition\":0,\"runs\":[[0,1]],\"last\":{\"offset\":0,\"crc32c\":4294967296}}",
    };
    dlq_ledger *l = dlq_ledger_new("in.dlq");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(dlq_ledger_add(l, bad[i], strlen(bad[i]), NULL), PST_EPARSE);
    assert_int_equal(dlq_ledger_add(l, NULL, 0, NULL), PST_EPARSE);
    dlq_ledger_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dlq_letter_of_connect_and_of_streams),
        cmocka_unit_test(test_dlq_letter_hostile_headers),
        cmocka_unit_test(test_dlq_filter_by_what_a_letter_says),
        cmocka_unit_test(test_dlq_filter_of_a_part),
        cmocka_unit_test(test_dlq_ledger_there_and_back),
        cmocka_unit_test(test_dlq_ledger_refuses_what_is_no_entry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
