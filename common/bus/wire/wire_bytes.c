/* wire_bytes.c - Kafka's primitive types. What cannot be read sets `bad` and moves the end to where the reading stands, so that every later read fails
 * by the one comparison that it makes anyway. Lengths are compared as unsigned numbers against what is left, never added to a pointer first. */
#include "common/bus/wire/wire_bytes.h"

#include "common/base/err.h"

/* ---- reading ------------------------------------------------------------------------------------------------------------------ */

wire_in wire_in_of(const void *data, size_t len, bool flexible)
{
    const uint8_t *at = data ? data : (const uint8_t *)"";
    return (wire_in){.at = at, .end = at + (data ? len : 0), .flexible = flexible};
}

static uint64_t broken(wire_in *in)
{
    in->bad = true;
    in->end = in->at;
    return 0;
}

const uint8_t *wire_get_bytes(wire_in *in, size_t n)
{
    if (in->bad || n > (size_t)(in->end - in->at)) {
        broken(in);
        return NULL;
    }
    const uint8_t *p = in->at;
    in->at += n;
    return p;
}

static uint64_t get_be(wire_in *in, size_t n)
{
    const uint8_t *p = wire_get_bytes(in, n);
    if (!p)
        return 0;
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v = v << 8 | p[i];
    return v;
}

int8_t wire_get_i8(wire_in *in)
{
    return (int8_t)get_be(in, 1);
}

int16_t wire_get_i16(wire_in *in)
{
    return (int16_t)get_be(in, 2);
}

int32_t wire_get_i32(wire_in *in)
{
    return (int32_t)get_be(in, 4);
}

int64_t wire_get_i64(wire_in *in)
{
    return (int64_t)get_be(in, 8);
}

bool wire_get_bool(wire_in *in)
{
    return wire_get_i8(in) != 0;
}

/* Seven bits a byte, low ones first; bits beyond `bits` are a lie, and so is a longer one. */
static uint64_t get_varint(wire_in *in, unsigned bits)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < bits; shift += 7) {
        const uint8_t *p = wire_get_bytes(in, 1);
        if (!p)
            return 0;
        uint64_t seven = *p & 127;
        if (bits - shift < 7 && seven >> (bits - shift))
            return broken(in);
        v |= seven << shift;
        if (*p < 128)
            return v;
    }
    return broken(in);
}

uint32_t wire_get_uvarint(wire_in *in)
{
    return (uint32_t)get_varint(in, 32);
}

int32_t wire_get_varint(wire_in *in)
{
    uint32_t v = (uint32_t)get_varint(in, 32);
    return (int32_t)(v >> 1 ^ (0u - (v & 1)));
}

int64_t wire_get_varlong(wire_in *in)
{
    uint64_t v = get_varint(in, 64);
    return (int64_t)(v >> 1 ^ (0u - (v & 1)));
}

/* A length that was read, -1 = null. */
static wire_str get_run(wire_in *in, int64_t len)
{
    if (in->bad || len == -1)
        return (wire_str){0};
    if (len < 0) {
        broken(in);
        return (wire_str){0};
    }
    const uint8_t *p = wire_get_bytes(in, (size_t)len);
    return (wire_str){.at = (const char *)p, .len = p ? (size_t)len : 0};
}

wire_str wire_get_str(wire_in *in)
{
    return get_run(in, in->flexible ? (int64_t)wire_get_uvarint(in) - 1 : wire_get_i16(in));
}

wire_str wire_get_blob(wire_in *in)
{
    return get_run(in, in->flexible ? (int64_t)wire_get_uvarint(in) - 1 : wire_get_i32(in));
}

size_t wire_get_count(wire_in *in, size_t least, bool *ret_null)
{
    PST_ASSERT(least);
    int64_t n = in->flexible ? (int64_t)wire_get_uvarint(in) - 1 : wire_get_i32(in);
    if (ret_null)
        *ret_null = !in->bad && n == -1;
    if (in->bad || n == -1)
        return 0;
    if (n < -1 || (uint64_t)n > wire_in_left(in) / least)
        return broken(in);
    return (size_t)n;
}

void wire_get_uuid(wire_in *in, uint8_t ret[16])
{
    const uint8_t *p = wire_get_bytes(in, 16);
    if (p)
        memcpy(ret, p, 16);
    else
        memset(ret, 0, 16);
}

void wire_get_tags(wire_in *in)
{
    if (!in->flexible)
        return;
    for (uint32_t n = wire_get_uvarint(in); n && !in->bad; n--) {
        wire_get_uvarint(in); /* which; none is known to us */
        wire_get_bytes(in, wire_get_uvarint(in));
    }
}

bool wire_in_done(const wire_in *in)
{
    return !in->bad && in->at == in->end;
}

bool wire_str_is(wire_str s, const char *text)
{
    return s.at && s.len == strlen(text) && !memcmp(s.at, text, s.len);
}

char *wire_str_dup(wire_str s)
{
    return s.at ? pst_strndup(s.at, s.len) : NULL;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------------- */

void wire_put_bytes(wire_out *o, const void *data, size_t n)
{
    pst_buf_add(o->to, data, n);
}

static void put_be(wire_out *o, uint64_t v, size_t n)
{
    uint8_t b[8];
    for (size_t i = 0; i < n; i++)
        b[i] = (uint8_t)(v >> 8 * (n - 1 - i));
    pst_buf_add(o->to, b, n);
}

void wire_put_i8(wire_out *o, int8_t v)
{
    put_be(o, (uint8_t)v, 1);
}

void wire_put_i16(wire_out *o, int16_t v)
{
    put_be(o, (uint16_t)v, 2);
}

void wire_put_i32(wire_out *o, int32_t v)
{
    put_be(o, (uint32_t)v, 4);
}

void wire_put_i64(wire_out *o, int64_t v)
{
    put_be(o, (uint64_t)v, 8);
}

void wire_put_bool(wire_out *o, bool v)
{
    put_be(o, v, 1);
}

static void put_varint(wire_out *o, uint64_t v)
{
    uint8_t b[10];
    size_t n = 0;
    for (; v > 127; v >>= 7)
        b[n++] = (uint8_t)(v | 128);
    b[n++] = (uint8_t)v;
    pst_buf_add(o->to, b, n);
}

void wire_put_uvarint(wire_out *o, uint32_t v)
{
    put_varint(o, v);
}

void wire_put_varint(wire_out *o, int32_t v)
{
    put_varint(o, (uint32_t)v << 1 ^ (uint32_t)(v >> 31));
}

void wire_put_varlong(wire_out *o, int64_t v)
{
    put_varint(o, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

/* Whoever sends a name longer than the protocol has room for has not checked it: a defect of ours. */
void wire_put_str(wire_out *o, const char *text)
{
    size_t n = text ? strlen(text) : 0;
    PST_ASSERT(n <= INT16_MAX);
    if (o->flexible)
        put_varint(o, text ? n + 1 : 0);
    else
        wire_put_i16(o, text ? (int16_t)n : -1);
    wire_put_bytes(o, text, n);
}

void wire_put_blob_head(wire_out *o, size_t n)
{
    PST_ASSERT(n < INT32_MAX);
    if (o->flexible)
        put_varint(o, n + 1);
    else
        wire_put_i32(o, (int32_t)n);
}

void wire_put_blob(wire_out *o, const void *data, size_t n)
{
    if (data) {
        wire_put_blob_head(o, n);
        wire_put_bytes(o, data, n);
    } else if (o->flexible) {
        put_varint(o, 0);
    } else {
        wire_put_i32(o, -1);
    }
}

void wire_put_count(wire_out *o, size_t n)
{
    wire_put_blob_head(o, n); /* counts and lengths of bytes are written alike */
}

void wire_put_uuid(wire_out *o, const uint8_t id[16])
{
    wire_put_bytes(o, id, 16);
}

void wire_put_tags(wire_out *o)
{
    if (o->flexible)
        put_varint(o, 0);
}
