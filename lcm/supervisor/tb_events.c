/* tb_events.c - a reader of the few fields that are needed, by hand: generated code would make objects of images and histograms only to throw them away. The
 * format: tensorflow/core/lib/io/record_writer, core/util/event.proto, core/framework/summary.proto and tensor.proto. */
#include "lcm/supervisor/tb_events.h"

#include "common/base/hash.h"

#include <math.h>
#include <string.h>

enum { HEADER = 12, FOOTER = 4 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_SUMMARY = 5, SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_TENSOR = 8 };
enum { TENSOR_DTYPE = 1, TENSOR_CONTENT = 4, TENSOR_FLOAT = 5, TENSOR_DOUBLE = 6, TENSOR_INT = 7, TENSOR_INT64 = 10 };
enum { DT_FLOAT = 1, DT_DOUBLE = 2, DT_INT32 = 3, DT_UINT8 = 4, DT_INT16 = 5, DT_INT8 = 6, DT_INT64 = 9 };

/* ---- protobuf ------------------------------------------------------------------------------------------------------------------- */

typedef struct field {
    unsigned number, wire;
    uint64_t value; /* varint, fixed */
    const char *data;
    size_t len; /* of WIRE_BYTES */
} field;

static uint64_t little(const char *p, size_t n)
{
    uint64_t v = 0;
    while (n--)
        v = v << 8 | (unsigned char)p[n];
    return v;
}

static bool varint(const char **p, const char *end, uint64_t *ret)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64 && *p < end; shift += 7) {
        unsigned char c = (unsigned char)*(*p)++;
        v |= (uint64_t)(c & 0x7f) << shift;
        if (!(c & 0x80)) {
            *ret = v;
            return true;
        }
    }
    return false;
}

/* The next field of a message; false: at its end, or it is no message. */
static bool next(const char **p, const char *end, field *ret)
{
    uint64_t key, len;
    if (*p >= end || !varint(p, end, &key) || key >> 3 == 0 || key >> 3 > 536870911)
        return false;
    *ret = (field){.number = (unsigned)(key >> 3), .wire = (unsigned)(key & 7)};
    size_t fixed = ret->wire == WIRE_64 ? 8 : 4;
    switch (ret->wire) {
    case WIRE_VARINT: return varint(p, end, &ret->value);
    case WIRE_64:
    case WIRE_32:
        if ((size_t)(end - *p) < fixed)
            return false;
        ret->value = little(*p, fixed);
        *p += fixed;
        return true;
    case WIRE_BYTES:
        if (!varint(p, end, &len) || len > (uint64_t)(end - *p))
            return false;
        ret->data = *p;
        ret->len = (size_t)len;
        *p += len;
        return true;
    default: return false; /* groups were never used here */
    }
}

static double float_of(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float f;
    memcpy(&f, &low, sizeof f);
    return (double)f;
}

static double double_of(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

/* ---- scalars -------------------------------------------------------------------------------------------------------------------- */

static size_t size_of_type(uint64_t dtype)
{
    switch (dtype) {
    case DT_FLOAT:
    case DT_INT32: return 4;
    case DT_DOUBLE:
    case DT_INT64: return 8;
    case DT_INT16: return 2;
    case DT_UINT8:
    case DT_INT8: return 1;
    default: return 0;
    }
}

static double number_of(uint64_t dtype, uint64_t bits)
{
    switch (dtype) {
    case DT_FLOAT: return float_of(bits);
    case DT_DOUBLE: return double_of(bits);
    case DT_INT32: return (int32_t)bits;
    case DT_INT16: return (int16_t)bits;
    case DT_INT8: return (int8_t)bits;
    case DT_INT64: return (double)(int64_t)bits;
    default: return (double)bits;
    }
}

/* One number of a *_val field: packed (a length, then values) or bare. How many there are, 2 for more than one. */
static int one_of(const field *f, size_t width, uint64_t *ret_bits)
{
    const char *p = f->data, *end = f->data + f->len;
    if (f->wire != WIRE_BYTES) {
        *ret_bits = f->value;
        return 1;
    }
    if (width) {
        *ret_bits = f->len == width ? little(p, width) : 0;
        return f->len == width ? 1 : 2;
    }
    return varint(&p, end, ret_bits) && p == end ? 1 : 2;
}

/* A tensor of exactly one number. Its type comes before its content in every writer, but need not. */
static bool tensor(const char *p, size_t len, double *ret)
{
    uint64_t dtype = 0, bits = 0;
    int n = 0;
    field f, content = {0};
    for (const char *end = p + len; next(&p, end, &f);) {
        if (f.number == TENSOR_DTYPE && f.wire == WIRE_VARINT)
            dtype = f.value;
        else if (f.number == TENSOR_CONTENT && f.wire == WIRE_BYTES)
            content = f;
        else if (f.number == TENSOR_FLOAT || f.number == TENSOR_DOUBLE || f.number == TENSOR_INT || f.number == TENSOR_INT64)
            n += one_of(&f, f.number == TENSOR_FLOAT ? 4 : f.number == TENSOR_DOUBLE ? 8 : 0, &bits);
    }
    size_t size = size_of_type(dtype);
    if (size && !n && content.len == size) {
        bits = little(content.data, size);
        n = 1;
    }
    *ret = n == 1 && size ? number_of(dtype, bits) : 0;
    return n == 1 && size;
}

static void value(const sup_tb *t, const field *message, int64_t time_us, int64_t step)
{
    const char *p = message->data, *end = p + message->len, *tag = NULL;
    size_t tag_len = 0;
    double v = 0;
    bool found = false;
    for (field f; next(&p, end, &f);) {
        if (f.number == VALUE_TAG && f.wire == WIRE_BYTES) {
            tag = f.data;
            tag_len = f.len;
        } else if (f.number == VALUE_SIMPLE && f.wire == WIRE_32) {
            v = float_of(f.value);
            found = true;
        } else if (f.number == VALUE_TENSOR && f.wire == WIRE_BYTES) {
            found = tensor(f.data, f.len, &v);
        }
    }
    if (found && tag_len && tag_len <= PST_TB_TAG_MAX)
        t->scalar(t->arg, time_us, step, tag, tag_len, v);
}

static void event(const sup_tb *t, const char *data, size_t len)
{
    const char *p = data, *end = data + len;
    double seconds = 0;
    int64_t step = 0;
    for (field f; next(&p, end, &f);) { /* the summary may stand before the step */
        if (f.number == EVENT_WALL_TIME && f.wire == WIRE_64)
            seconds = double_of(f.value);
        else if (f.number == EVENT_STEP && f.wire == WIRE_VARINT)
            step = (int64_t)f.value;
    }
    int64_t time_us = isfinite(seconds) && seconds > 0 && seconds < 1e11 ? (int64_t)(seconds * 1e6) : 0;
    p = data;
    for (field f; next(&p, end, &f);) {
        if (f.number != EVENT_SUMMARY || f.wire != WIRE_BYTES)
            continue;
        const char *s = f.data, *s_end = s + f.len;
        for (field one; next(&s, s_end, &one);)
            if (one.number == SUMMARY_VALUE && one.wire == WIRE_BYTES)
                value(t, &one, time_us, step);
    }
}

/* ---- records -------------------------------------------------------------------------------------------------------------------- */

/* TFRecord's mask: a checksum over bytes that hold checksums is a poor one. */
static bool checks(const char *data, size_t len, const char *stored)
{
    uint32_t crc = pst_crc32c(0, data, len);
    return (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u) == (uint32_t)little(stored, 4);
}

/* One whole record, or its length when it is too large, or the end of trust. Returns how much of part was used; 0: more is needed. */
static size_t record(sup_tb *t, const char *at, size_t have)
{
    if (have < HEADER)
        return 0;
    uint64_t len = little(at, 8);
    if (!checks(at, 8, at + 8)) {
        t->lost = true;
        return have;
    }
    if (len > PST_TB_RECORD_MAX) {
        t->large++;
        t->skip = len > UINT64_MAX - FOOTER ? UINT64_MAX : len + FOOTER;
        return HEADER;
    }
    if (have < HEADER + len + FOOTER)
        return 0;
    if (checks(at + HEADER, (size_t)len, at + HEADER + len))
        event(t, at + HEADER, (size_t)len);
    else
        t->damaged++;
    return HEADER + (size_t)len + FOOTER;
}

void sup_tb_feed(sup_tb *t, const char *data, size_t len)
{
    while (len && !t->lost) {
        size_t take = t->skip < len ? (size_t)t->skip : len;
        t->skip -= take;
        data += take;
        len -= take;
        take = len < PST_TB_RECORD_MAX ? len : PST_TB_RECORD_MAX; /* bounds what waits in part */
        if (!take)
            return;
        pst_buf_add(&t->part, data, take);
        data += take;
        len -= take;
        size_t at = 0;
        for (size_t used = 1; used && !t->lost && !t->skip; at += used)
            used = record(t, t->part.data + at, t->part.len - at);
        size_t left = t->lost ? 0 : t->part.len - at, over = t->skip < left ? (size_t)t->skip : left;
        if (t->skip) { /* what of the record too large stands here already */
            at += over;
            left -= over;
            t->skip -= over;
        }
        memmove(t->part.data, t->part.data + at, left);
        t->part.len = left;
    }
}

bool sup_tb_inside(const sup_tb *t)
{
    return !t->lost && (t->part.len || t->skip);
}

void sup_tb_reset(sup_tb *t)
{
    pst_buf_done(&t->part);
    *t = (sup_tb){.scalar = t->scalar, .arg = t->arg};
}
