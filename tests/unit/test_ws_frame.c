/* test_ws_frame.c - the websocket protocol by the vectors of RFC 6455 and by what it forbids; every message also byte by byte. */
#include "common/loop/ws_frame.h"
#include "tests/unit/test.h"

#include <string.h>

typedef struct heard {
    int n, opcode;
    unsigned char payload[WS_CONTROL_MAX];
    size_t len;
} heard;

static bool hear(void *arg, int opcode, const unsigned char *payload, size_t len)
{
    heard *h = arg;
    h->n++;
    h->opcode = opcode;
    h->len = len;
    memcpy(h->payload, payload, len);
    return opcode != WS_CLOSE;
}

static int feed(const void *data, size_t len, size_t step, heard *h)
{
    http_ws_reader r = {0};
    memset(h, 0, sizeof *h);
    int rc = 0;
    for (size_t i = 0; i < len && !rc; i += step)
        rc = http_ws_feed(&r, (const unsigned char *)data + i, len - i < step ? len - i : step, hear, h);
    return rc;
}

#define FEED(bytes, h) feed(bytes, sizeof bytes - 1, sizeof bytes, h)

static void test_ws_frame_handshake_answers_as_the_standard_says(void **state)
{
    char accept[WS_ACCEPT_ROOM];
    assert_true(http_ws_accept("dGhlIHNhbXBsZSBub25jZQ==", accept)); /* RFC 6455 1.3 */
    assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    static const char *const bad[] = {
        "", "x", "dGhlIHNhbXBsZSBub25jZQ=", "dGhlIHNhbXBsZSBub25jZSEh", "dGhlIHNhbXBsZSBub25j****", "dGhlIHNhbXBsZSBub25jZQ==dGhl"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(http_ws_accept(bad[i], accept));
}

static void test_ws_frame_heads_take_the_shortest_length(void **state)
{
    unsigned char head[WS_HEAD_MAX];
    assert_int_equal(http_ws_head(head, WS_TEXT, 5), 2);
    assert_memory_equal(head, "\x81\x05", 2);
    assert_int_equal(http_ws_head(head, WS_PING, 0), 2);
    assert_memory_equal(head, "\x89\x00", 2);
    assert_int_equal(http_ws_head(head, WS_BINARY, 126), 4);
    assert_memory_equal(head, "\x82\x7e\x00\x7e", 4);
    assert_int_equal(http_ws_head(head, WS_TEXT, 65535), 4);
    assert_int_equal(http_ws_head(head, WS_BINARY, 65536), 10);
    assert_memory_equal(head, "\x82\x7f\0\0\0\0\0\1\0\0", 10);
}

/* RFC 6455 5.7: a masked "Hello", here as text and as a ping; then a close frame with 1000 and a reason. */
static void test_ws_frame_control_frames_are_unmasked_and_handed_out(void **state)
{
    static const char all[] = "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"
                              "\x89\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    heard h;
    for (size_t step = 1; step < sizeof all; step++) {
        assert_int_equal(feed(all, sizeof all - 1, step, &h), 0);
        assert_int_equal(h.n, 1);
        assert_int_equal(h.opcode, WS_PING);
        assert_int_equal(h.len, 5);
        assert_memory_equal(h.payload, "Hello", 5);
    }
    assert_int_equal(FEED("\x8a\x80\0\0\0\0\x88\x83\0\0\0\0\x03\xe8x\x81", &h), 0); /* what is behind a close frame is not looked at */
    assert_int_equal(h.n, 2);
    assert_int_equal(h.opcode, WS_CLOSE);
    assert_int_equal(http_ws_close_code(h.payload, h.len), WS_NORMAL);
}

static void test_ws_frame_messages_in_pieces_with_a_ping_between(void **state)
{
    heard h;
    assert_int_equal(FEED("\x01\x81\0\0\0\0a\x89\x80\0\0\0\0\x00\x81\0\0\0\0b\x80\x80\0\0\0\0\x82\x80\0\0\0\0", &h), 0);
    assert_int_equal(h.n, 1);
}

static void test_ws_frame_what_the_protocol_forbids_ends_it(void **state)
{
    heard h;
    assert_int_equal(FEED("\x81\x05Hello", &h), -WS_PROTOCOL);    /* no mask */
    assert_int_equal(FEED("\xc1\x80\0\0\0\0", &h), -WS_PROTOCOL); /* a reserved bit */
    assert_int_equal(FEED("\x83\x80\0\0\0\0", &h), -WS_PROTOCOL); /* a reserved opcode */
    assert_int_equal(FEED("\x8b\x80\0\0\0\0", &h), -WS_PROTOCOL);
    assert_int_equal(FEED("\x09\x80\0\0\0\0", &h), -WS_PROTOCOL);                 /* a ping in pieces */
    assert_int_equal(FEED("\x89\xfe\0\x7e\0\0\0\0", &h), -WS_PROTOCOL);           /* a ping of 126 bytes */
    assert_int_equal(FEED("\x80\x80\0\0\0\0", &h), -WS_PROTOCOL);                 /* goes on with no message */
    assert_int_equal(FEED("\x01\x80\0\0\0\0\x81\x80\0\0\0\0", &h), -WS_PROTOCOL); /* begins another one */
    assert_int_equal(FEED("\x81\xfe\0\x7d\0\0\0\0", &h), -WS_PROTOCOL);           /* a longer length than needed */
    assert_int_equal(FEED("\x81\xff\0\0\0\0\0\0\xff\xff\0\0\0\0", &h), -WS_PROTOCOL);
    assert_int_equal(FEED("\x81\xff\x80\0\0\0\0\0\0\0\0\0\0\0", &h), -WS_PROTOCOL); /* beyond 63 bits */
    assert_int_equal(FEED("\x81\xff\0\0\0\0\0\1\0\1\0\0\0\0", &h), -WS_TOO_BIG);
    assert_int_equal(FEED("\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", &h), -WS_TOO_BIG);
    assert_int_equal(h.n, 0);
}

static void test_ws_frame_pieces_count_together(void **state)
{
    http_ws_reader r = {0};
    heard h = {0};
    unsigned char piece[8 + 40000] = {0x01, 0xfe, 40000 >> 8, 40000 & 255};
    assert_int_equal(http_ws_feed(&r, piece, sizeof piece, hear, &h), 0);
    piece[0] = 0x00;
    assert_int_equal(http_ws_feed(&r, piece, sizeof piece, hear, &h), -WS_TOO_BIG);
    r = (http_ws_reader){0};
    for (int i = 0; i < 20; i++) { /* whole messages do not */
        piece[0] = 0x81;
        assert_int_equal(http_ws_feed(&r, piece, sizeof piece, hear, &h), 0);
    }
}

static void test_ws_frame_close_codes_that_may_be_sent(void **state)
{
    static const struct {
        const char *payload;
        size_t len;
        int code;
    } rows[] = {{"", 0, WS_NO_CODE},     {"\x03", 1, WS_PROTOCOL},     {"\x03\xe8", 2, 1000},
                {"\x03\xe9zz", 4, 1001}, {"\x03\xed", 2, WS_PROTOCOL}, {"\x03\xee", 2, WS_PROTOCOL},
                {"\x0b\xb8", 2, 3000},   {"\x13\x88", 2, WS_PROTOCOL}, {"\0\0", 2, WS_PROTOCOL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(http_ws_close_code((const unsigned char *)rows[i].payload, rows[i].len), rows[i].code);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ws_frame_handshake_answers_as_the_standard_says),
        cmocka_unit_test(test_ws_frame_heads_take_the_shortest_length),
        cmocka_unit_test(test_ws_frame_control_frames_are_unmasked_and_handed_out),
        cmocka_unit_test(test_ws_frame_messages_in_pieces_with_a_ping_between),
        cmocka_unit_test(test_ws_frame_what_the_protocol_forbids_ends_it),
        cmocka_unit_test(test_ws_frame_pieces_count_together),
        cmocka_unit_test(test_ws_frame_close_codes_that_may_be_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
