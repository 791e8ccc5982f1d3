/* wire_batch.c - RecordBatch v2 read in place. The head is checked as a whole before anything in it is believed; then records are walked once, and
 * the views that come of it are all there is: no object a record.
 *
 * Names of headers end with a NUL for whoever reads them, which the batch has no room for, except that a name's length stands before it and is of no use
 * once it is known. So while a record is walked, its headers are written over themselves: name, NUL, length of the value, value. That is never longer than what
 * was there. What lies in a block is therefore read once; a second look at the same records goes by their views, not by the batch. */
#include "common/base/hash.h"
#include "common/bus/wire/wire_batch.h"

#include "common/base/err.h"

#include <inttypes.h>

/* Places in a head, from its beginning. */
enum { AT_LENGTH = 8, AT_MAGIC = 16, AT_CRC = 17, AT_ATTRIBUTES = 21 };
enum { LENGTH_ENDS = 12 }; /* the length counts what is behind it */
enum { RECORD_LEAST = 7 }; /* length, attributes, two deltas, no key, no value, no headers: a byte each */
enum { HEADER_LEAST = 2 }; /* an empty name, a null value */
enum { BIT_APPEND_TIME = 8, BIT_TRANSACTIONAL = 16, BIT_CONTROL = 32 };

const char *const wire_codec_names[] = {"none", "gzip", "snappy", "lz4", "zstd", NULL};

static int broken_batch(const wire_batch_head *h, pst_err *err, const char *what)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "kafka", 0, "the batch at offset %" PRId64 " is broken: %s", h->base_offset, what);
}

/* What a head says must be possible. NULL = it is. */
static const char *impossible(const wire_batch_head *h, int16_t attributes, int32_t last_delta, int32_t n)
{
    if (h->base_offset < 0)
        return "its offset is negative";
    if (last_delta < 0 || h->base_offset > INT64_MAX - 1 - last_delta)
        return "its last offset cannot be";
    if ((attributes & 7) > WIRE_ZSTD)
        return "it is compressed by a codec that nobody has defined";
    if (n < 0 || n > (int64_t)last_delta + 1)
        return "it counts more records than it has offsets";
    if (h->codec == WIRE_NONE && (size_t)n > h->records_len / RECORD_LEAST)
        return "it counts more records than fit into it";
    return NULL;
}

int wire_batch_next(wire_in *in, bool check_crc, wire_batch_head *ret, pst_err *err)
{
    size_t left = wire_in_left(in);
    wire_in at = wire_in_of(in->at, left, false);
    wire_batch_head h = {0};
    if (left < LENGTH_ENDS)
        return 0;
    h.base_offset = wire_get_i64(&at);
    int32_t length = wire_get_i32(&at);
    ret->base_offset = h.base_offset;
    if (left > AT_MAGIC && in->at[AT_MAGIC] != 2) {
        if (in->at[AT_MAGIC] < 2)
            return broken_batch(
                &h, err, "it is of a format before Kafka 0.11 (magic 0 or 1), which is not read; rewrite the topic, or use bus: rdkafka");
        return broken_batch(&h, err, "its magic is not 2");
    }
    if (length < WIRE_BATCH_HEAD - LENGTH_ENDS)
        return broken_batch(&h, err, "its length is less than that of a head");
    if (length > WIRE_BATCH_MAX)
        return broken_batch(&h, err, "its length is over the limit of 100 MiB");
    if ((size_t)length > left - LENGTH_ENDS)
        return 0;
    const uint8_t *from = in->at;
    h.leader_epoch = wire_get_i32(&at);
    wire_get_i8(&at); /* magic */
    uint32_t crc = (uint32_t)wire_get_i32(&at);
    int16_t attributes = wire_get_i16(&at);
    int32_t last_delta = wire_get_i32(&at);
    h.base_time = wire_get_i64(&at);
    h.max_time = wire_get_i64(&at);
    h.producer_id = wire_get_i64(&at);
    h.producer_epoch = wire_get_i16(&at);
    h.base_sequence = wire_get_i32(&at);
    int32_t n = wire_get_i32(&at);
    PST_ASSERT(!at.bad && at.at == from + WIRE_BATCH_HEAD);
    h.records = at.at;
    h.records_len = (size_t)length + LENGTH_ENDS - WIRE_BATCH_HEAD;
    h.codec = (wire_codec)(attributes & 7);
    if (check_crc && crc != pst_crc32c(0, from + AT_ATTRIBUTES, (size_t)length + LENGTH_ENDS - AT_ATTRIBUTES))
        return broken_batch(&h, err, "its CRC-32C is not that of its bytes");
    const char *why = impossible(&h, attributes, last_delta, n);
    if (why)
        return broken_batch(&h, err, why);
    h.last_offset = h.base_offset + last_delta;
    h.append_time = attributes & BIT_APPEND_TIME;
    h.transactional = attributes & BIT_TRANSACTIONAL;
    h.control = attributes & BIT_CONTROL;
    h.n = (uint32_t)n;
    in->at += (size_t)length + LENGTH_ENDS;
    *ret = h;
    return 1;
}

int wire_records_begin(const wire_batch_head *head, wire_block *of, wire_records *ret, pst_err *err)
{
    *ret = (wire_records){.head = *head, .left = head->n, .last = head->base_offset - 1};
    if (head->codec == WIRE_NONE) {
        PST_ASSERT(head->records >= of->data && head->records + head->records_len <= of->data + of->len);
        ret->block = wire_block_use(of);
        ret->in = wire_in_of(head->records, head->records_len, false);
        return 0;
    }
    int rc = wire_unpack(head->codec, head->records, head->records_len, WIRE_BATCH_MAX, &ret->block, err);
    if (rc < 0) {
        if (rc == PST_EINVAL)
            pst_err_prefix(err, "the batch at offset %" PRId64, head->base_offset);
        return rc;
    }
    ret->in = wire_in_of(ret->block->data, ret->block->len, false);
    if (head->n > ret->block->len / RECORD_LEAST) {
        wire_records_done(ret);
        return broken_batch(head, err, "it counts more records than its unpacked bytes hold");
    }
    return 0;
}

/* ---- records: the hot path, with varints of its own that the compiler sees ---------------------------------------------------------- */

static bool long_varint(const uint8_t **at, const uint8_t *end, unsigned bits, uint64_t *ret)
{
    const uint8_t *p = *at;
    uint64_t v = 0;
    for (unsigned shift = 0; shift < bits && p < end; shift += 7) {
        uint64_t seven = *p & 127;
        if (bits - shift < 7 && seven >> (bits - shift))
            return false;
        v |= seven << shift;
        if (*p++ < 128) {
            *at = p;
            *ret = v;
            return true;
        }
    }
    return false;
}

static inline bool get_zigzag(const uint8_t **at, const uint8_t *end, unsigned bits, int64_t *ret)
{
    uint64_t v;
    if (*at < end && **at < 128)
        v = *(*at)++;
    else if (!long_varint(at, end, bits, &v))
        return false;
    *ret = (int64_t)(v >> 1 ^ (0 - (v & 1)));
    return true;
}

/* A length and so many bytes; -1 = null. */
static inline bool get_run(const uint8_t **at, const uint8_t *end, const void **ret, size_t *ret_len)
{
    int64_t len;
    if (!get_zigzag(at, end, 32, &len) || len < -1 || len > end - *at)
        return false;
    *ret = len < 0 ? NULL : *at;
    *ret_len = len < 0 ? 0 : (size_t)len;
    *at += *ret_len;
    return true;
}

static uint8_t *put_zigzag(uint8_t *to, int32_t value)
{
    uint32_t v = (uint32_t)value << 1 ^ (uint32_t)(value >> 31);
    for (; v > 127; v >>= 7)
        *to++ = (uint8_t)(v | 128);
    *to++ = (uint8_t)v;
    return to;
}

/* Checks n headers that end at `end`, and writes them as wire_record_headers() reads them (the opening). A name ends at a NUL in it, as it does for whoever
 * reads names as C text; the rest follows closer then. */
static bool rewrite_headers(uint8_t *from, const uint8_t *end, int64_t n)
{
    uint8_t *to = from;
    const uint8_t *at = from;
    for (; n; n--) {
        const void *name, *value;
        size_t name_len, value_len;
        if (!get_run(&at, end, &name, &name_len) || !name || !get_run(&at, end, &value, &value_len))
            return false;
        name_len = strnlen(name, name_len);
        memmove(to, name, name_len);
        to += name_len;
        *to++ = 0;
        to = put_zigzag(to, value ? (int32_t)value_len : -1);
        if (value_len)
            memmove(to, value, value_len);
        to += value_len;
        PST_ASSERT(to <= at);
    }
    return at == end;
}

/* One record; false = it is broken. */
static inline bool get_record(wire_records *r, pst_record *ret)
{
    const wire_batch_head *h = &r->head;
    const uint8_t *at = r->in.at;
    int64_t len, time_delta, offset_delta, n_headers;
    if (!get_zigzag(&at, r->in.end, 32, &len) || len < RECORD_LEAST - 1 || len > r->in.end - at)
        return false;
    const uint8_t *end = at + len;
    at++; /* attributes: none are defined */
    if (!get_zigzag(&at, end, 64, &time_delta) || !get_zigzag(&at, end, 32, &offset_delta))
        return false;
    /* one comparison each way: offsets rise, and none is behind the last that the head names */
    if (offset_delta < 0 || offset_delta > h->last_offset - h->base_offset || h->base_offset + offset_delta <= r->last)
        return false;
    if (!get_run(&at, end, &ret->key, &ret->key_len) || !get_run(&at, end, &ret->value, &ret->value_len))
        return false;
    uint8_t *headers = r->block->data + (at - r->block->data);
    if (!get_zigzag(&at, end, 32, &n_headers) || n_headers < 0 || n_headers > (end - at) / HEADER_LEAST)
        return false;
    if (n_headers ? !rewrite_headers(r->block->data + (at - r->block->data), end, n_headers) : at != end)
        return false;
    ret->has_headers = n_headers;
    ret->native = headers;
    ret->offset = h->base_offset + offset_delta;
    ret->timestamp_ms = h->append_time ? h->max_time : (int64_t)((uint64_t)h->base_time + (uint64_t)time_delta);
    r->last = ret->offset;
    r->in.at = end;
    return true;
}

int wire_records_next(wire_records *r, pst_record *room, size_t max, pst_err *err)
{
    if (r->in.bad)
        return broken_batch(&r->head, err, "a record in it could not be read");
    size_t n = 0;
    for (; n < max && r->left; n++, r->left--)
        if (!get_record(r, &room[n])) {
            r->in.bad = true;
            break;
        }
    if (n)
        return (int)n;
    if (r->in.bad)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "kafka", 0,
                           "the batch at offset %" PRId64 " is broken: what follows offset %" PRId64 " in it is no record",
                           r->head.base_offset, r->last);
    if (!r->left && r->in.at != r->in.end) {
        r->in.bad = true;
        return broken_batch(&r->head, err, "bytes are left over behind its last record");
    }
    return 0;
}

void wire_records_done(wire_records *r)
{
    wire_block_drop(r->block);
    r->block = NULL;
}

size_t wire_record_headers(const pst_record *r, pst_header *ret, size_t max)
{
    if (!r->has_headers)
        return 0;
    const uint8_t *at = r->native, *no_end = at + 10; /* they were checked: of a number only its own bytes are looked at */
    int64_t n = 0;
    get_zigzag(&at, no_end, 32, &n);
    for (size_t i = 0; i < (size_t)n && i < max; i++) {
        int64_t len = -1;
        ret[i].name = (const char *)at;
        at += strlen((const char *)at) + 1;
        get_zigzag(&at, at + 10, 32, &len);
        ret[i].value = len < 0 ? NULL : at;
        ret[i].len = len < 0 ? 0 : (size_t)len;
        at += ret[i].len;
    }
    return (size_t)n;
}

int wire_control_type(const pst_record *r)
{
    wire_in in = wire_in_of(r->key, r->key_len, false);
    int16_t version = wire_get_i16(&in), type = wire_get_i16(&in);
    return in.bad || version < 0 ? -1 : type;
}
