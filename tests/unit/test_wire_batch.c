/* Record batches: what is built is read again, by every codec; every truncation, every changed byte, counts and offsets that lie. */
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/bus/wire/wire_batch.h"
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROOM = 64 };

/* Bytes of their own size, so that a sanitizer sees a byte too far. */
static wire_block *block_of(const void *data, size_t len)
{
    wire_block *b = wire_block_new(len ? len : 1);
    if (len)
        memcpy(b->data, data, len);
    b->len = len;
    return b;
}

static const wire_seal plain = {.producer_id = -1, .producer_epoch = -1, .base_sequence = -1};

/* What a record of the tests is, by its number alone. */
typedef struct sample {
    char key[20], value[4000];
    pst_header headers[3];
    pst_out out;
} sample;

static void sample_of(sample *s, size_t i)
{
    static const size_t lengths[] = {0, 1, 5, 62, 63, 64, 65, 126, 127, 128, 129, 300, 3999};
    size_t len = lengths[i % (sizeof lengths / sizeof *lengths)];
    snprintf(s->key, sizeof s->key, "key-%zu", i);
    for (size_t k = 0; k < len; k++)
        s->value[k] = (char)(i * 31 + k / 3);
    s->headers[0] = (pst_header){"name", "v", 1};
    s->headers[1] = (pst_header){"", NULL, 0};
    s->headers[2] = (pst_header){"a name of more than sixty-three bytes, so that its length takes two bytes in the batch", "", 0};
    s->out = (pst_out){.key = i % 3 ? s->key : NULL,
                       .key_len = i % 3 ? strlen(s->key) : 0,
                       .value = i % 7 == 6 ? NULL : s->value,
                       .value_len = i % 7 == 6 ? 0 : len,
                       .timestamp_ms = 1700000000000 + (int64_t)(i * 977 % 100000) - 50000,
                       .headers = s->headers,
                       .n_headers = i % 4};
}

static void assert_is_sample(const pst_record *r, size_t i, int64_t offset)
{
    static sample s;
    sample_of(&s, i);
    assert_int_equal(r->offset, offset);
    assert_int_equal(r->timestamp_ms, s.out.timestamp_ms);
    assert_int_equal(r->key_len, s.out.key_len);
    assert_int_equal(!r->key, !s.out.key);
    if (r->key)
        assert_memory_equal(r->key, s.out.key, s.out.key_len);
    assert_int_equal(!r->value, !s.out.value);
    assert_int_equal(r->value_len, s.out.value_len);
    if (r->value)
        assert_memory_equal(r->value, s.out.value, s.out.value_len);
    assert_int_equal(r->has_headers, s.out.n_headers > 0);
    for (int again = 0; again < 2; again++) {
        pst_header h[3];
        assert_int_equal(wire_record_headers(r, h, 3), s.out.n_headers);
        for (size_t k = 0; k < s.out.n_headers; k++) {
            assert_string_equal(h[k].name, s.headers[k].name);
            assert_int_equal(!h[k].value, !s.headers[k].value);
            assert_int_equal(h[k].len, s.headers[k].len);
            if (h[k].len)
                assert_memory_equal(h[k].value, s.headers[k].value, h[k].len);
        }
    }
}

static wire_block *batch_of(size_t n, const wire_seal *seal, bool reserve)
{
    static sample s;
    wire_build b = {0};
    wire_build_begin(&b);
    for (size_t i = 0; i < n; i++) {
        sample_of(&s, i);
        size_t before = b.bytes.len;
        if (reserve && s.out.value) {
            pst_buf *to = wire_build_reserve(&b, &s.out); /* forgotten by the next one */
            pst_buf_adds(to, "something else");
            to = wire_build_reserve(&b, &s.out);
            pst_buf_add(to, s.out.value, s.out.value_len);
            wire_build_commit(&b);
        } else {
            wire_build_add(&b, &s.out);
        }
        assert_true(b.bytes.len - before <= wire_build_cost(&s.out));
    }
    wire_block *ret = NULL;
    pst_err err = {0};
    assert_int_equal(wire_build_close(&b, seal, &ret, &err), 0);
    wire_build_done(&b);
    return ret;
}

static void assert_batch_is(wire_block *block, size_t n, const wire_seal *seal)
{
    pst_err err = {0};
    wire_in in = wire_in_of(block->data, block->len, false);
    wire_batch_head h;
    assert_int_equal(wire_batch_next(&in, true, &h, &err), 1);
    assert_int_equal(wire_in_left(&in), 0);
    assert_int_equal(h.base_offset, 0);
    assert_int_equal(h.last_offset, n - 1);
    assert_int_equal(h.n, n);
    assert_int_equal(h.producer_id, seal->producer_id);
    assert_int_equal(h.producer_epoch, seal->producer_epoch);
    assert_int_equal(h.base_sequence, seal->base_sequence);
    assert_int_equal(h.transactional, seal->transactional);
    assert_false(h.control);
    wire_records r;
    assert_int_equal(wire_records_begin(&h, block, &r, &err), 0);
    pst_record room[ROOM];
    size_t seen = 0;
    for (int got; (got = wire_records_next(&r, room, seen % 5 + 1, &err)) != 0; seen += (size_t)got) {
        assert_true(got > 0);
        for (int k = 0; k < got; k++)
            assert_is_sample(&room[k], seen + (size_t)k, (int64_t)seen + k);
    }
    assert_int_equal(seen, n);
    wire_records_done(&r);
}

static void test_wire_batch_what_is_built_is_read(void **state)
{
    const wire_seal seals[] = {plain, {.producer_id = 1 << 20, .producer_epoch = 7, .base_sequence = INT32_MAX, .transactional = true}};
    const size_t sizes[] = {1, 2, 13, 64, 65, 500, 9000};
    for (size_t s = 0; s < 2; s++)
        for (wire_codec codec = WIRE_NONE; codec <= WIRE_ZSTD; codec++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                wire_seal seal = seals[s];
                seal.codec = codec;
                seal.level = -1;
                wire_block *block = batch_of(sizes[i], &seal, false);
                assert_batch_is(block, sizes[i], &seal);
                wire_block_drop(block);
            }
}

static void test_wire_batch_value_written_in_place_gives_the_same_bytes(void **state)
{
    wire_block *a = batch_of(5000, &plain, false), *b = batch_of(5000, &plain, true);
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->data, b->data, a->len);
    wire_block_drop(a);
    wire_block_drop(b);
}

/* Lengths of key and value that make the record's own length take more bytes or fewer than the one before, in every order. */
static void test_wire_batch_room_for_lengths_changes_both_ways(void **state)
{
    static char bytes[20000];
    memset(bytes, 'x', sizeof bytes);
    const size_t sizes[] = {0, 1, 50, 63, 64, 8100, 8191, 8192, 16000};
    enum { N = sizeof sizes / sizeof *sizes };
    wire_build one = {0}, two = {0};
    wire_build_begin(&one);
    wire_build_begin(&two);
    for (size_t i = 0; i < N * N * N * N; i++) {
        pst_out out = {.timestamp_ms = 1, .key = bytes, .key_len = sizes[i % N], .value = bytes + 1, .value_len = sizes[i / N % N]};
        if (i % 64 == 0) {
            assert_int_equal(one.bytes.len, two.bytes.len);
            assert_memory_equal(one.bytes.data, two.bytes.data, one.bytes.len);
            wire_build_begin(&one);
            wire_build_begin(&two);
        }
        out.key_len = sizes[i * 7 / 3 % N];
        bytes[out.value_len] = (char)i;
        wire_build_add(&one, &out);
        pst_buf_add(wire_build_reserve(&two, &out), out.value, out.value_len);
        wire_build_commit(&two);
    }
    wire_build_done(&one);
    wire_build_done(&two);
}

/* Reads all that is there; whether all of it was right. Nothing may be touched outside the bytes. */
static bool read_all(const void *data, size_t len, bool crc)
{
    wire_block *block = block_of(data, len);
    wire_in in = wire_in_of(block->data, len, false);
    wire_batch_head h;
    pst_err err = {0};
    int rc;
    bool right = true;
    while (right && (rc = wire_batch_next(&in, crc, &h, &err)) != 0) {
        wire_records r;
        right = rc > 0 && wire_records_begin(&h, block, &r, &err) == 0;
        if (!right)
            break;
        pst_record room[ROOM];
        int64_t last = h.base_offset - 1;
        uint32_t n = 0;
        while ((rc = wire_records_next(&r, room, ROOM, &err)) > 0)
            for (int k = 0; k < rc; k++, n++) {
                assert_true(room[k].offset > last && room[k].offset <= h.last_offset);
                last = room[k].offset;
                pst_header headers[4];
                size_t n_headers = wire_record_headers(&room[k], headers, 4);
                for (size_t i = 0; i < n_headers && i < 4; i++)
                    assert_true(strlen(headers[i].name) + headers[i].len < WIRE_BATCH_MAX);
            }
        right = rc == 0 && n == h.n;
        wire_records_done(&r);
    }
    assert_true(right || err.text[0]);
    right &= !wire_in_left(&in);
    wire_block_drop(block);
    return right;
}

static void test_wire_batch_every_truncation_is_told(void **state)
{
    for (wire_codec codec = WIRE_NONE; codec <= WIRE_ZSTD; codec++) {
        wire_seal seal = plain;
        seal.codec = codec;
        wire_block *block = batch_of(12, &seal, false);
        assert_true(read_all(block->data, block->len, true));
        for (size_t n = 0; n < block->len; n++) {
            wire_in in = wire_in_of(block->data, n, false);
            wire_batch_head h;
            assert_int_equal(wire_batch_next(&in, true, &h, NULL), 0);
            assert_int_equal(wire_in_left(&in), n); /* what was cut is not taken */
        }
        /* the head says that less is there, and the sum is not looked at: the records are cut */
        for (size_t n = WIRE_BATCH_HEAD; n < block->len; n++) {
            uint8_t *cut = malloc(n);
            memcpy(cut, block->data, n);
            for (int k = 0; k < 4; k++)
                cut[8 + k] = (uint8_t)((n - 12) >> 8 * (3 - k));
            assert_false(read_all(cut, n, false));
            assert_false(read_all(cut, n, true));
            free(cut);
        }
        wire_block_drop(block);
    }
}

static void test_wire_batch_every_changed_byte_is_told_or_harmless(void **state)
{
    for (wire_codec codec = WIRE_NONE; codec <= WIRE_ZSTD; codec++) {
        wire_seal seal = plain;
        seal.codec = codec;
        wire_block *block = batch_of(9, &seal, false);
        for (size_t at = 0; at < block->len; at++)
            for (unsigned bit = 0; bit < 8; bit++) {
                block->data[at] ^= (uint8_t)(1 << bit);
                bool right = read_all(block->data, block->len, true);
                /* the broker's own: offset and leader epoch, outside the sum */
                assert_true(!right || at < 8 || (at >= 12 && at < 16));
                read_all(block->data, block->len, false);
                block->data[at] ^= (uint8_t)(1 << bit);
            }
        wire_block_drop(block);
    }
}

/* A batch of bytes as they stand, the head true to its length and sum. */
static size_t raw_batch(uint8_t *to, int32_t last_delta, int32_t n, const char *records, size_t len)
{
    wire_build b = {0};
    wire_block *block;
    wire_build_begin(&b);
    wire_build_add(&b, &(pst_out){.timestamp_ms = 1000});
    assert_int_equal(wire_build_close(&b, &plain, &block, NULL), 0);
    memcpy(to, block->data, WIRE_BATCH_HEAD);
    memcpy(to + WIRE_BATCH_HEAD, records, len);
    size_t all = WIRE_BATCH_HEAD + len;
    for (int k = 0; k < 4; k++) {
        to[8 + k] = (uint8_t)((all - 12) >> 8 * (3 - k));
        to[23 + k] = (uint8_t)((uint32_t)last_delta >> 8 * (3 - k));
        to[57 + k] = (uint8_t)((uint32_t)n >> 8 * (3 - k));
    }
    uint32_t crc = pst_crc32c(0, to + 21, all - 21);
    for (int k = 0; k < 4; k++)
        to[17 + k] = (uint8_t)(crc >> 8 * (3 - k));
    wire_block_drop(block);
    wire_build_done(&b);
    return all;
}

#define RAW(right, last_delta, n, records)                                                \
    do {                                                                                  \
        uint8_t bytes[400];                                                               \
        size_t len = raw_batch(bytes, (last_delta), (n), (records), sizeof(records) - 1); \
        assert_int_equal(read_all(bytes, len, true), (right));                            \
    } while (0)

static void test_wire_batch_lies_are_told(void **state)
{
    RAW(true, 0, 1, "\x0c\0\0\0\1\1\0");    /* no key, no value */
    RAW(true, 9, 1, "\x0c\0\0\x12\1\1\0");  /* the last of ten, others compacted away */
    RAW(true, 9, 0, "");                    /* all of them */
    RAW(false, 9, 1, "\x0c\0\0\x14\1\1\0"); /* behind the last offset */
    RAW(false, 9, 1, "\x0c\0\0\1\1\1\0");   /* before the first */
    RAW(false, 9, 2,
        "\x0c\0\0\2\1\1\0"
        "\x0c\0\0\2\1\1\0"); /* twice the same */
    RAW(false, 9, 2,
        "\x0c\0\0\2\1\1\0"
        "\x0c\0\0\0\1\1\0"); /* falling */
    RAW(false, 0, 1,
        "\x0c\0\0\0\1\1\0"
        "\x0c\0\0\2\1\1\0");              /* more than it counts */
    RAW(false, 9, 2, "\x0c\0\0\0\1\1\0"); /* fewer */
    RAW(false, 9, -1, "\x0c\0\0\0\1\1\0");
    RAW(false, -1, 0, "");
    RAW(false, INT32_MAX, INT32_MAX, "\x0c\0\0\0\1\1\0"); /* two thousand million */
    RAW(false, 9, 11, "\x0c\0\0\0\1\1\0\x0c\0\0\0\1\1\0");
    RAW(false, 0, 1, "\x0e\0\0\0\1\1\0");         /* the record ends behind the batch */
    RAW(false, 0, 1, "\x0e\0\0\0\1\1\0\0");       /* and before its length */
    RAW(false, 0, 1, "\x0c\0\0\0\3\1\0");         /* a key of -2 */
    RAW(false, 0, 1, "\x0c\0\0\0\1\xff\0");       /* a number without an end */
    RAW(false, 0, 1, "\x0c\0\0\0\1\2\0");         /* the value eats the headers */
    RAW(false, 0, 1, "\x0c\0\0\0\1\1\1");         /* -1 headers */
    RAW(false, 0, 1, "\x0c\0\0\0\1\1\2");         /* one that is not there */
    RAW(true, 0, 1, "\x10\0\0\0\1\1\2\0\1");      /* an empty name, a null value */
    RAW(false, 0, 1, "\x10\0\0\0\1\1\2\1\1");     /* a null name */
    RAW(false, 0, 1, "\x10\0\0\0\1\1\xfe\x7f\0"); /* more headers than bytes */
    RAW(false, 0, 1, "\x01\0\0\0\1\1\0");         /* a record of -1 bytes */
    uint8_t old[80] = {0};
    old[11] = 60;
    for (uint8_t magic = 0; magic < 5; magic++) {
        old[16] = magic;
        wire_in in = wire_in_of(old, sizeof old, false);
        wire_batch_head h;
        pst_err err = {0};
        assert_int_equal(wire_batch_next(&in, false, &h, &err), magic == 2 ? 1 : PST_EINVAL);
        assert_true(magic == 2 || strstr(err.text, "magic"));
    }
    old[16] = 2;
    old[22] = 5; /* a fifth codec */
    assert_false(read_all(old, sizeof old, false));
    old[8] = 0x7f; /* 2 GB */
    assert_false(read_all(old, sizeof old, false));
    memset(old + 8, 0xff, 4);
    assert_false(read_all(old, sizeof old, false));
    memset(old + 8, 0, 4);
    assert_false(read_all(old, sizeof old, false)); /* nothing, for ever */
}

/* A NUL in a name ends it, as it does for who reads names as text, and what follows is still found. */
static void test_wire_batch_nul_in_a_headers_name_ends_it(void **state)
{
    uint8_t bytes[200];
    size_t len = raw_batch(bytes, 0, 1,
                           "\x26\0\0\0\1\1\4\x06"
                           "a\0b\2x\4cd\6yzt",
                           20);
    wire_block *block = block_of(bytes, len);
    wire_in in = wire_in_of(block->data, len, false);
    wire_batch_head h;
    wire_records r;
    pst_record record;
    pst_header headers[2];
    assert_int_equal(wire_batch_next(&in, true, &h, NULL), 1);
    assert_int_equal(wire_records_begin(&h, block, &r, NULL), 0);
    assert_int_equal(wire_records_next(&r, &record, 1, NULL), 1);
    assert_int_equal(wire_record_headers(&record, headers, 2), 2);
    assert_string_equal(headers[0].name, "a");
    assert_int_equal(headers[0].len, 1);
    assert_memory_equal(headers[0].value, "x", 1);
    assert_string_equal(headers[1].name, "cd");
    assert_int_equal(headers[1].len, 3);
    assert_memory_equal(headers[1].value, "yzt", 3);
    assert_int_equal(wire_record_headers(&record, NULL, 0), 2);
    assert_int_equal(wire_records_next(&r, &record, 1, NULL), 0);
    wire_records_done(&r);
    wire_block_drop(block);
}

static void test_wire_batch_unpacking_is_bounded(void **state)
{
    static char zeros[1 << 20];
    for (wire_codec codec = WIRE_GZIP; codec <= WIRE_ZSTD; codec++) {
        pst_buf packed = {0};
        wire_block *out = NULL;
        pst_err err = {0};
        assert_int_equal(wire_pack(codec, -1, zeros, sizeof zeros, &packed, &err), 0);
        assert_true(packed.len < sizeof zeros / 10);
        assert_int_equal(wire_unpack(codec, packed.data, packed.len, sizeof zeros + 1, &out, &err), 0);
        assert_int_equal(out->len, sizeof zeros);
        assert_memory_equal(out->data, zeros, sizeof zeros);
        wire_block_drop(out);
        assert_int_equal(wire_unpack(codec, packed.data, packed.len, sizeof zeros - 1, &out, &err), PST_EINVAL);
        assert_int_equal(wire_unpack(codec, packed.data, packed.len, 1, &out, NULL), PST_EINVAL);
        for (size_t n = 0; n < packed.len && n < 3000; n++) {
            wire_block *cut = block_of(packed.data, n);
            assert_int_equal(wire_unpack(codec, cut->data, n, 2 << 20, &out, NULL), PST_EINVAL);
            wire_block_drop(cut);
        }
        pst_buf_done(&packed);
    }
}

static void test_wire_batch_crc_is_castagnolis(void **state)
{
    assert_int_equal(pst_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(pst_crc32c(0, "", 0), 0);
    static uint8_t bytes[20000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * i * 2654435761u >> 13);
    for (size_t len = 0; len < 12000; len += len < 100 ? 1 : 97)
        for (size_t from = 0; from < 9; from++)
            assert_int_equal(pst_crc32c((uint32_t)len, bytes + from, len), pst_crc32c_plain((uint32_t)len, bytes + from, len));
    for (size_t cut = 0; cut <= 8000; cut += 61) /* in two parts */
        assert_int_equal(pst_crc32c(pst_crc32c(0, bytes, cut), bytes + cut, 8000 - cut), pst_crc32c_plain(0, bytes, 8000));
}

/* The block is taken: a use of its own keeps the records. */
static void test_wire_batch_records_keep_their_block(void **state)
{
    wire_block *block = batch_of(3, &plain, false);
    wire_in in = wire_in_of(block->data, block->len, false);
    wire_batch_head h;
    wire_records r;
    assert_int_equal(wire_batch_next(&in, true, &h, NULL), 1);
    assert_int_equal(wire_records_begin(&h, block, &r, NULL), 0);
    assert_int_equal(block->uses, 2);
    wire_block_drop(block);
    pst_record record;
    assert_int_equal(wire_records_next(&r, &record, 1, NULL), 1);
    assert_is_sample(&record, 0, 0);
    wire_records_done(&r);
}

/* ---- what a real broker had in its log: 40 records by librdkafka and by Java's producer, compressed by each codec ----------------------- */

static wire_block *golden(const char *client, const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "tests/golden/wire/%s_%s.bin", client, name);
    pst_buf b = {0};
    pst_err err = {0};
    if (pst_fs_read(path, 1 << 20, &b, &err) < 0)
        fail_msg("%s", err.text);
    wire_block *block = block_of(b.data, b.len);
    pst_buf_done(&b);
    return block;
}

static void assert_is_rdkafkas(const pst_record *r, int i)
{
    char key[20], value[100] = "";
    snprintf(key, sizeof key, "key %d", i);
    for (int k = 0; k < i % 5; k++)
        snprintf(value + strlen(value), sizeof value - strlen(value), "value %d ", i);
    assert_int_equal(r->timestamp_ms, 1700000000000 + i);
    assert_int_equal(!r->key, i % 3 == 0);
    assert_int_equal(r->key_len, i % 3 ? strlen(key) : 0);
    if (r->key)
        assert_memory_equal(r->key, key, r->key_len);
    assert_int_equal(!r->value, i % 7 == 6);
    assert_int_equal(r->value_len, r->value ? strlen(value) : 0);
    if (r->value)
        assert_memory_equal(r->value, value, r->value_len);
    static const char *const names[] = {"i", "empty", "null"};
    char number[12];
    snprintf(number, sizeof number, "%d", i);
    pst_header h[3];
    assert_int_equal(wire_record_headers(r, h, 3), i % 4);
    for (int k = 0; k < i % 4; k++)
        assert_string_equal(h[k].name, names[k]);
    if (i % 4 > 0)
        assert_true(h[0].len == strlen(number) && !memcmp(h[0].value, number, h[0].len));
    if (i % 4 > 1)
        assert_true(h[1].value && !h[1].len);
    if (i % 4 > 2)
        assert_true(!h[2].value && !h[2].len);
}

static void assert_is_javas(const pst_record *r, int i)
{
    char key[20], value[100];
    snprintf(key, sizeof key, "key %d", i);
    int n = snprintf(value, sizeof value, "value %d", i);
    for (int k = 0; k < i % 5; k++)
        n += snprintf(value + n, sizeof value - (size_t)n, " abcdefgh");
    assert_int_equal(r->key_len, strlen(key));
    assert_memory_equal(r->key, key, r->key_len);
    assert_int_equal(r->value_len, n);
    assert_memory_equal(r->value, value, r->value_len);
    assert_false(r->has_headers);
}

/* All records of a batch of 40; `fits` judges them. */
static void read_forty(wire_in *in, wire_block *block, wire_codec codec, bool transactional, void (*fits)(const pst_record *r, int i))
{
    wire_batch_head h;
    wire_records r;
    pst_record room[40];
    pst_err err = {0};
    if (wire_batch_next(in, true, &h, &err) != 1 || wire_records_begin(&h, block, &r, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(h.codec, codec);
    assert_int_equal(h.transactional, transactional);
    assert_int_equal(h.n, 40);
    assert_int_equal(wire_records_next(&r, room, 40, &err), 40);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(room[i].offset, h.base_offset + i);
        fits(&room[i], i);
    }
    assert_int_equal(wire_records_next(&r, room, 40, &err), 0);
    wire_records_done(&r);
}

static void test_wire_batch_of_a_real_broker_is_read(void **state)
{
    for (wire_codec codec = WIRE_NONE; codec <= WIRE_ZSTD; codec++)
        for (int java = 0; java < 2; java++) {
            wire_block *block = golden(java ? "java" : "rd", wire_codec_names[codec]);
            wire_in in = wire_in_of(block->data, block->len, false);
            read_forty(&in, block, codec, false, java ? assert_is_javas : assert_is_rdkafkas);
            assert_int_equal(wire_in_left(&in), 0);
            wire_block_drop(block);
        }
}

static int control_of(wire_in *in, wire_block *block)
{
    wire_batch_head h;
    wire_records r;
    pst_record record;
    assert_int_equal(wire_batch_next(in, true, &h, NULL), 1);
    assert_true(h.control && h.transactional && h.n == 1);
    assert_int_equal(wire_records_begin(&h, block, &r, NULL), 0);
    assert_int_equal(wire_records_next(&r, &record, 1, NULL), 1);
    int type = wire_control_type(&record);
    wire_records_done(&r);
    return type;
}

static void test_wire_batch_transactions_of_a_real_broker_end_in_their_markers(void **state)
{
    wire_block *block = golden("rd", "txn");
    wire_in in = wire_in_of(block->data, block->len, false);
    read_forty(&in, block, WIRE_LZ4, true, assert_is_rdkafkas);
    assert_int_equal(control_of(&in, block), 1); /* committed */
    read_forty(&in, block, WIRE_LZ4, true, assert_is_rdkafkas);
    assert_int_equal(control_of(&in, block), 0); /* aborted */
    assert_int_equal(wire_in_left(&in), 0);
    assert_int_equal(wire_control_type(&(pst_record){.key = "\0\0\0", .key_len = 3}), -1);
    wire_block_drop(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire_batch_what_is_built_is_read),
        cmocka_unit_test(test_wire_batch_value_written_in_place_gives_the_same_bytes),
        cmocka_unit_test(test_wire_batch_room_for_lengths_changes_both_ways),
        cmocka_unit_test(test_wire_batch_every_truncation_is_told),
        cmocka_unit_test(test_wire_batch_every_changed_byte_is_told_or_harmless),
        cmocka_unit_test(test_wire_batch_lies_are_told),
        cmocka_unit_test(test_wire_batch_nul_in_a_headers_name_ends_it),
        cmocka_unit_test(test_wire_batch_unpacking_is_bounded),
        cmocka_unit_test(test_wire_batch_crc_is_castagnolis),
        cmocka_unit_test(test_wire_batch_records_keep_their_block),
        cmocka_unit_test(test_wire_batch_of_a_real_broker_is_read),
        cmocka_unit_test(test_wire_batch_transactions_of_a_real_broker_end_in_their_markers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
