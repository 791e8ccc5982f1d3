/* avro_read.c - the slow halves of the cursor: what the inline readers call when a number is long, a block begins or something is wrong. Apart,
 * so that the hot paths stay small; errors are worded here only. */
#include "schemas/avro_read.h"

#include <stdio.h>

int av_in_init(av_in *in, const void *bytes, size_t len, pst_err *err)
{
    static const uint8_t none[1];
    const uint8_t *p = bytes ? bytes : none;
    *in = (av_in){.p = p, .begin = p, .end = p + len, .items = PST_AVRO_ITEMS_MAX, .steps = 4 * PST_AVRO_ITEMS_MAX, .err = err};
    if (len > PST_AVRO_BYTES_MAX)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "avro", 0, "%zu bytes are more than %u for one record", len,
                           PST_AVRO_BYTES_MAX);
    return 0;
}

int av_in_fail(av_in *in, int code, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pst_err_set(in->err, code, PST_CLASS_DATA, "avro", 0, "%s (byte %zu of %zu)", text, (size_t)(in->p - in->begin),
                       (size_t)(in->end - in->begin));
}

/* A number of up to eight bytes without a branch on its length: its sevens move together, by pairs, fours and eights. */
static bool varint_of_eight(av_in *in, int64_t *ret)
{
    uint64_t z;
    memcpy(&z, in->p, sizeof z);
    uint64_t ends = ~z & 0x8080808080808080;
    if (!ends)
        return false;
    z &= ends ^ (ends - 1); /* what lies behind its last byte is another's */
    z &= 0x7f7f7f7f7f7f7f7f;
    z = (z & 0x007f007f007f007f) | (z & 0x7f007f007f007f00) >> 1;
    z = (z & 0x00003fff00003fff) | (z & 0x3fff00003fff0000) >> 2;
    z = (z & 0x000000000fffffff) | (z & 0x0fffffff00000000) >> 4;
    in->p += (unsigned)__builtin_ctzll(ends) / 8 + 1;
    *ret = (int64_t)(z >> 1) ^ -(int64_t)(z & 1);
    return true;
}

int av_in_varint_slow(av_in *in, int64_t *ret)
{
    uint64_t z = 0;
    const uint8_t *p = in->p;
    if (in->end - p >= 8 && varint_of_eight(in, ret))
        return 0;
    if (in->end - p >= 10) { /* room for any number: no look at the end for each byte */
        unsigned shift = 0;
        while (*p >= 0x80 && shift < 63) {
            z |= (uint64_t)(*p++ & 0x7f) << shift;
            shift += 7;
        }
        if (*p > 1 && shift == 63)
            goto too_long;
        z |= (uint64_t)*p++ << shift;
        in->p = p;
        *ret = (int64_t)(z >> 1) ^ -(int64_t)(z & 1);
        return 0;
    }
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (p == in->end)
            return av_in_fail(in, PST_EPARSE, "the data ends inside a number");
        uint8_t b = *p++;
        if (shift == 63 && b > 1)
            break;
        z |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            in->p = p;
            *ret = (int64_t)(z >> 1) ^ -(int64_t)(z & 1);
            return 0;
        }
    }
too_long:
    return av_in_fail(in, PST_EPARSE, "a number has more than 64 bits");
}

void av_in_short(av_in *in, size_t n)
{
    av_in_fail(in, PST_EPARSE, "%zu bytes are wanted, %zu are left", n, (size_t)(in->end - in->p));
}

void av_in_bad_length(av_in *in, int64_t len)
{
    av_in_fail(in, PST_EPARSE, "a length of %lld, but %zu bytes are left", (long long)len, (size_t)(in->end - in->p));
}

void av_in_bad_int(av_in *in, int64_t v)
{
    av_in_fail(in, PST_EPARSE, "%lld is no int of 32 bits", (long long)v);
}

void av_in_bad_index(av_in *in, int64_t v, size_t n, const char *what)
{
    av_in_fail(in, PST_EPARSE, "%s %lld of %zu", what, (long long)v, n);
}

int av_in_bool(av_in *in, bool *ret)
{
    if (in->p == in->end)
        return av_in_fail(in, PST_EPARSE, "the data ends where a boolean should be");
    if (*in->p > 1)
        return av_in_fail(in, PST_EPARSE, "byte 0x%02x is no boolean", *in->p);
    *ret = *in->p++;
    return 0;
}

/* Reads a block's head. ret_size: its byte size, or -1 where the writer did not give it. */
static int block_head(av_in *in, int64_t *ret_count, int64_t *ret_size)
{
    int64_t count, size = -1;
    int rc = av_in_long(in, &count);
    if (rc < 0)
        return rc;
    if (count < 0) {
        if (count == INT64_MIN)
            return av_in_fail(in, PST_EPARSE, "a block of 2^63 items");
        count = -count;
        if ((rc = av_in_long(in, &size)) < 0)
            return rc;
        if (size < 0 || size > in->end - in->p)
            return av_in_fail(in, PST_EPARSE, "a block of %lld bytes, but %zu are left", (long long)size, (size_t)(in->end - in->p));
    }
    if ((uint64_t)count > in->items)
        return av_in_fail(in, PST_ELIMIT, "more than %d array items and map entries in one record", PST_AVRO_ITEMS_MAX);
    PST_ASSERT(count >= 0 && in->p <= in->end);
    in->items -= (size_t)count; /* one budget for the whole record: blocks in blocks cannot multiply */
    *ret_count = count;
    *ret_size = size;
    return 0;
}

int av_in_block(av_in *in, int64_t *ret_count)
{
    int64_t size;
    return block_head(in, ret_count, &size);
}

int av_in_block_skip(av_in *in, int64_t *ret_count)
{
    int64_t size = 0;
    int rc = block_head(in, ret_count, &size);
    if (!rc && size >= 0 && *ret_count) {
        PST_ASSERT(size <= in->end - in->p); /* its head was read within the data, and its size held against the rest */
        in->p += size;
        *ret_count = -1;
    }
    return rc;
}
