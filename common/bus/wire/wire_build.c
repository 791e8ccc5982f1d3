/* wire_build.c - RecordBatch v2 built in place: records are appended as they go out, and the 61 bytes before them are filled in when it is closed.
 *
 * A record begins with its length, and a value with its own, both of as many bytes as the number takes. Of what is added all at once they are known. Of a
 * value that is written in place they are not: then as many bytes are left free as the last record took, which of scores is right nearly always, and else the
 * record is moved by the difference. */
#include "common/base/hash.h"
#include "common/bus/wire/wire_batch.h"

#include "common/base/err.h"

#include <stdlib.h>

enum { VARINT_MAX = 5, VARLONG_MAX = 10 };
enum { BIT_TRANSACTIONAL = 16 };

static inline uint64_t zigzag(int64_t v)
{
    return (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
}

static inline size_t varint_size(int64_t v)
{
    uint64_t z = zigzag(v) | 1;
    return (size_t)(70 - __builtin_clzll(z)) / 7;
}

static inline uint8_t *put_varint(uint8_t *to, int64_t v)
{
    uint64_t z = zigzag(v);
    for (; z > 127; z >>= 7)
        *to++ = (uint8_t)(z | 128);
    *to++ = (uint8_t)z;
    return to;
}

static inline uint8_t *put_run(uint8_t *to, const void *data, size_t len)
{
    to = put_varint(to, data ? (int64_t)len : -1);
    if (data && len)
        memcpy(to, data, len);
    return to + (data ? len : 0);
}

static inline size_t run_size(const void *data, size_t len)
{
    return data ? varint_size((int64_t)len) + len : 1;
}

static size_t headers_size(const pst_out *out)
{
    size_t n = varint_size((int64_t)out->n_headers);
    for (size_t i = 0; i < out->n_headers; i++)
        n += run_size(out->headers[i].name, strlen(out->headers[i].name)) + run_size(out->headers[i].value, out->headers[i].len);
    return n;
}

static uint8_t *put_headers(uint8_t *to, const pst_out *out)
{
    to = put_varint(to, (int64_t)out->n_headers);
    for (size_t i = 0; i < out->n_headers; i++) {
        to = put_run(to, out->headers[i].name, strlen(out->headers[i].name));
        to = put_run(to, out->headers[i].value, out->headers[i].len);
    }
    return to;
}

size_t wire_build_cost(const pst_out *out)
{
    return 1 + VARINT_MAX * 4 + VARLONG_MAX + out->key_len + out->value_len + headers_size(out);
}

void wire_build_begin(wire_build *b)
{
    pst_buf_clear(&b->bytes);
    b->n = 0;
    b->reserved = 0;
    b->base_time = b->max_time = 0;
    pst_buf_reserve(&b->bytes, b->usual > WIRE_BATCH_HEAD ? b->usual : WIRE_BATCH_HEAD);
    memset(b->bytes.data, 0, WIRE_BATCH_HEAD);
    b->bytes.len = WIRE_BATCH_HEAD;
}

/* The time of the record that comes next; the first one's is the batch's. */
static int64_t time_delta(wire_build *b, const pst_out *out)
{
    PST_ASSERT(out->timestamp_ms && b->bytes.len >= WIRE_BATCH_HEAD && b->n < INT32_MAX);
    if (!b->n)
        b->base_time = out->timestamp_ms;
    return (int64_t)((uint64_t)out->timestamp_ms - (uint64_t)b->base_time);
}

static void count(wire_build *b, const pst_out *out)
{
    if (!b->n || out->timestamp_ms > b->max_time)
        b->max_time = out->timestamp_ms;
    b->n++;
}

static uint8_t *end_of(wire_build *b)
{
    return (uint8_t *)b->bytes.data + b->bytes.len;
}

void wire_build_add(wire_build *b, const pst_out *out)
{
    wire_build_unreserve(b);
    int64_t delta = time_delta(b, out);
    size_t size = 1 + varint_size(delta) + varint_size(b->n) + run_size(out->key, out->key_len) + run_size(out->value, out->value_len) +
                  headers_size(out);
    PST_ASSERT(size <= INT32_MAX);
    pst_buf_reserve(&b->bytes, VARINT_MAX + size);
    uint8_t *to = put_varint(end_of(b), (int64_t)size);
    const uint8_t *body = to;
    *to++ = 0; /* attributes */
    to = put_varint(to, delta);
    to = put_varint(to, b->n);
    to = put_run(to, out->key, out->key_len);
    to = put_run(to, out->value, out->value_len);
    to = put_headers(to, out);
    PST_ASSERT(to == body + size);
    b->bytes.len = (size_t)(to - (uint8_t *)b->bytes.data);
    *to = 0;
    count(b, out);
}

pst_buf *wire_build_reserve(wire_build *b, const pst_out *head)
{
    wire_build_unreserve(b);
    int64_t delta = time_delta(b, head);
    b->head = *head;
    b->reserved = b->bytes.len;
    b->length_room = b->length_room ? b->length_room : 1;
    b->value_room = b->value_room ? b->value_room : 1;
    pst_buf_reserve(&b->bytes, 1 + VARINT_MAX * 4 + VARLONG_MAX + head->key_len);
    uint8_t *to = end_of(b) + b->length_room;
    *to++ = 0;
    to = put_varint(to, delta);
    to = put_varint(to, b->n);
    to = put_run(to, head->key, head->key_len);
    b->value_length_at = (size_t)(to - (uint8_t *)b->bytes.data);
    b->bytes.len = b->value_length_at + b->value_room;
    *end_of(b) = 0;
    return &b->bytes;
}

void wire_build_commit(wire_build *b)
{
    PST_ASSERT(b->reserved);
    size_t value_at = b->value_length_at + b->value_room;
    PST_ASSERT(b->bytes.len >= value_at);
    size_t len = b->bytes.len - value_at, before = b->value_length_at - b->reserved - b->length_room;
    size_t headers = headers_size(&b->head), value_room = varint_size((int64_t)len);
    size_t size = before + value_room + len + headers;
    PST_ASSERT(size <= INT32_MAX);
    size_t length_room = varint_size((int64_t)size);
    pst_buf_reserve(&b->bytes, VARINT_MAX * 2 + headers);
    uint8_t *data = (uint8_t *)b->bytes.data, *from = data + b->reserved;
    uint8_t *body = from + length_room, *value = body + before + value_room;
    if (length_room > b->length_room) /* the body would run over the value's first bytes: that goes out of its way before */
        memmove(value, data + value_at, len);
    if (length_room != b->length_room)
        memmove(body, from + b->length_room, before);
    if (length_room <= b->length_room && value != data + value_at)
        memmove(value, data + value_at, len);
    put_varint(from, (int64_t)size);
    put_varint(body + before, (int64_t)len);
    uint8_t *to = put_headers(value + len, &b->head);
    b->bytes.len = (size_t)(to - data);
    *to = 0;
    b->length_room = (uint8_t)length_room;
    b->value_room = (uint8_t)value_room;
    b->reserved = 0;
    count(b, &b->head);
}

void wire_build_unreserve(wire_build *b)
{
    if (!b->reserved)
        return;
    b->bytes.len = b->reserved;
    b->bytes.data[b->bytes.len] = 0;
    b->reserved = 0;
}

static void put_be(uint8_t *to, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)(v >> 8 * (n - 1 - i));
}

static void put_head(uint8_t *to, size_t len, const wire_build *b, const wire_seal *seal, wire_codec codec)
{
    put_be(to, 0, 8); /* the broker gives the offsets */
    put_be(to + 8, len - 12, 4);
    put_be(to + 12, UINT32_MAX, 4); /* leader epoch: the broker's */
    to[16] = 2;
    put_be(to + 21, (unsigned)codec | (seal->transactional ? BIT_TRANSACTIONAL : 0), 2);
    put_be(to + 23, b->n - 1, 4);
    put_be(to + 27, (uint64_t)b->base_time, 8);
    put_be(to + 35, (uint64_t)b->max_time, 8);
    put_be(to + 43, (uint64_t)seal->producer_id, 8);
    put_be(to + 51, (uint16_t)seal->producer_epoch, 2);
    put_be(to + 53, (uint32_t)seal->base_sequence, 4);
    put_be(to + 57, b->n, 4);
    put_be(to + 17, pst_crc32c(0, to + 21, len - 21), 4);
}

int wire_build_close(wire_build *b, const wire_seal *seal, wire_block **ret, pst_err *err)
{
    PST_ASSERT(b->n);
    wire_build_unreserve(b);
    size_t records = b->bytes.len - WIRE_BATCH_HEAD;
    PST_ASSERT(b->bytes.len <= INT32_MAX);
    pst_buf packed = {0}, *use = &b->bytes;
    wire_codec codec = seal->codec;
    if (codec != WIRE_NONE) {
        pst_buf_reserve(&packed, WIRE_BATCH_HEAD);
        packed.len = WIRE_BATCH_HEAD;
        int rc = wire_pack(codec, seal->level, b->bytes.data + WIRE_BATCH_HEAD, records, &packed, err);
        if (rc < 0) {
            pst_buf_done(&packed);
            return rc;
        }
        if (packed.len < b->bytes.len)
            use = &packed;
        else
            codec = WIRE_NONE;
    }
    put_head((uint8_t *)use->data, use->len, b, seal, codec);
    b->usual = b->bytes.len + b->bytes.len / 8;
    size_t len = use->len, cap = use->cap;
    *ret = wire_block_take((uint8_t *)pst_buf_steal(use), len, cap);
    if (use != &packed)
        pst_buf_done(&packed);
    pst_buf_clear(&b->bytes);
    b->n = 0;
    return 0;
}

void wire_build_done(wire_build *b)
{
    pst_buf_done(&b->bytes);
    *b = (wire_build){0};
}
