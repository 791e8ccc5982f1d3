/* Kafka's primitive types: known bytes both ways, every truncation, lengths that lie. */
#include "common/bus/wire/wire_bytes.h"
#include "tests/unit/test.h"

#include <stdlib.h>

static const uint8_t id[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static void put_all(pst_buf *b, bool flexible)
{
    wire_out o = {.to = b, .flexible = flexible};
    wire_put_i8(&o, -2);
    wire_put_i16(&o, -300);
    wire_put_i32(&o, 0x01020304);
    wire_put_i64(&o, INT64_MIN + 5);
    wire_put_bool(&o, true);
    wire_put_uvarint(&o, UINT32_MAX);
    wire_put_varint(&o, INT32_MIN);
    wire_put_varlong(&o, INT64_MIN);
    wire_put_varlong(&o, INT64_MAX);
    wire_put_str(&o, "topic");
    wire_put_str(&o, "");
    wire_put_str(&o, NULL);
    wire_put_blob(&o, "ab\0c", 4);
    wire_put_blob(&o, NULL, 0);
    wire_put_count(&o, 2);
    wire_put_i32(&o, 7);
    wire_put_i32(&o, 8);
    wire_put_uuid(&o, id);
    wire_put_tags(&o);
}

/* Reads what put_all() wrote; whether the whole of it was right. */
static bool get_all(wire_in *in)
{
    bool right = wire_get_i8(in) == -2;
    right &= wire_get_i16(in) == -300;
    right &= wire_get_i32(in) == 0x01020304;
    right &= wire_get_i64(in) == INT64_MIN + 5;
    right &= wire_get_bool(in);
    right &= wire_get_uvarint(in) == UINT32_MAX;
    right &= wire_get_varint(in) == INT32_MIN;
    right &= wire_get_varlong(in) == INT64_MIN;
    right &= wire_get_varlong(in) == INT64_MAX;
    right &= wire_str_is(wire_get_str(in), "topic");
    wire_str empty = wire_get_str(in), null = wire_get_str(in);
    right &= empty.at && !empty.len && !null.at;
    wire_str blob = wire_get_blob(in);
    right &= blob.len == 4 && blob.at && !memcmp(blob.at, "ab\0c", 4);
    right &= !wire_get_blob(in).at;
    bool no_array;
    right &= wire_get_count(in, 4, &no_array) == 2 && !no_array;
    right &= wire_get_i32(in) == 7 && wire_get_i32(in) == 8;
    uint8_t back[16];
    wire_get_uuid(in, back);
    right &= !memcmp(back, id, 16);
    wire_get_tags(in);
    return right;
}

static void test_wire_bytes_come_back(void **state)
{
    for (int flexible = 0; flexible < 2; flexible++) {
        pst_buf b = {0};
        put_all(&b, flexible);
        wire_in in = wire_in_of(b.data, b.len, flexible);
        assert_true(get_all(&in));
        assert_true(wire_in_done(&in));
        pst_buf_done(&b);
    }
}

/* A copy of its own size, so that a sanitizer sees a byte too far. */
static void test_wire_bytes_every_truncation_is_told(void **state)
{
    for (int flexible = 0; flexible < 2; flexible++) {
        pst_buf b = {0};
        put_all(&b, flexible);
        for (size_t n = 0; n < b.len; n++) {
            uint8_t *cut = malloc(n ? n : 1);
            memcpy(cut, b.data, n);
            wire_in in = wire_in_of(cut, n, flexible);
            get_all(&in);
            assert_true(in.bad);
            assert_false(wire_in_done(&in));
            assert_int_equal(wire_in_left(&in), 0);
            assert_int_equal(wire_get_i64(&in), 0);
            free(cut);
        }
        pst_buf_done(&b);
    }
}

static wire_in of_text(const char *bytes, size_t n, bool flexible)
{
    return wire_in_of(bytes, n, flexible);
}

static void test_wire_bytes_layout_is_the_protocols(void **state)
{
    pst_buf b = {0};
    wire_out o = {.to = &b, .flexible = true};
    wire_put_varint(&o, -1); /* zigzag: 1 */
    wire_put_varint(&o, 150);
    wire_put_uvarint(&o, 300);
    wire_put_str(&o, "a"); /* length + 1 */
    wire_put_count(&o, 0);
    wire_put_i16(&o, 0x0102);
    assert_int_equal(b.len, 10);
    assert_memory_equal(b.data,
                        "\x01\xac\x02\xac\x02\x02"
                        "a\x01\x01\x02",
                        10);
    pst_buf_clear(&b);
    o.flexible = false;
    wire_put_str(&o, "a");
    wire_put_blob(&o, "b", 1);
    wire_put_count(&o, 3);
    wire_put_str(&o, NULL);
    wire_put_tags(&o);
    assert_int_equal(b.len, 3 + 5 + 4 + 2);
    assert_memory_equal(b.data, "\0\1a\0\0\0\1b\0\0\0\3\xff\xff", 14);
    pst_buf_done(&b);
}

static void test_wire_bytes_lengths_that_lie_read_as_nothing(void **state)
{
    wire_in in = of_text("\x7f\xff"
                         "abc",
                         5, false); /* a string of 32767 */
    assert_null(wire_get_str(&in).at);
    assert_true(in.bad);
    in = of_text("\xff\xfe"
                 "abc",
                 5, false); /* of -2 */
    assert_null(wire_get_str(&in).at);
    assert_true(in.bad);
    in = of_text("\x7f\xff\xff\xff"
                 "abcd",
                 8, false); /* an array of 2^31 - 1 */
    assert_int_equal(wire_get_count(&in, 1, NULL), 0);
    assert_true(in.bad);
    in = of_text("\xff\xff\xff\xff\x0f"
                 "abcd",
                 9, true); /* 2^32 - 2 */
    assert_int_equal(wire_get_count(&in, 1, NULL), 0);
    assert_true(in.bad);
    in = of_text("\0\0\0\2"
                 "abcd",
                 8, false); /* two of four bytes do not fit into four */
    assert_int_equal(wire_get_count(&in, 4, NULL), 0);
    assert_true(in.bad);
    bool null;
    in = of_text("\xff\xff\xff\xff", 4, false);
    assert_int_equal(wire_get_count(&in, 1, &null), 0);
    assert_true(null && !in.bad);
    in = of_text("\xff\xff\xff\xff\x1f", 5, true); /* a varint of 33 bits */
    wire_get_uvarint(&in);
    assert_true(in.bad);
    in = of_text("\x80\x80\x80\x80\x80\x00", 6, true); /* one that does not end in five bytes */
    wire_get_uvarint(&in);
    assert_true(in.bad);
    in = of_text("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02", 10, true); /* 65 bits */
    wire_get_varlong(&in);
    assert_true(in.bad);
    in = of_text("\xff\xff\xff\xff\x0f", 5, true); /* 2^32 - 1 tagged fields */
    wire_get_tags(&in);
    assert_true(in.bad);
    in = of_text("\x02\x00\x02xy\x05\x01z", 8, true); /* two unknown ones are skipped */
    wire_get_tags(&in);
    assert_true(wire_in_done(&in));
    in = of_text("\1\2", 2, false); /* left over */
    wire_get_i8(&in);
    assert_false(wire_in_done(&in));
    assert_false(in.bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire_bytes_come_back),
        cmocka_unit_test(test_wire_bytes_every_truncation_is_told),
        cmocka_unit_test(test_wire_bytes_layout_is_the_protocols),
        cmocka_unit_test(test_wire_bytes_lengths_that_lie_read_as_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
