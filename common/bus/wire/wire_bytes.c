/* wire_bytes.c - Kafka's primitive types. A read that cannot be leaves the cursor at the end and `bad` set, so that whatever follows gives zero too; writers only append. */
#include "common/bus/wire/wire_bytes.h"

wire_in wire_in_of(const void *data, size_t len, bool flexible)
{
    return (wire_in){data, (const uint8_t *)data + len, flexible, false};
}

const uint8_t *wire_get_bytes(wire_in *in, size_t n)
{
    if (in->bad || n > (size_t)(in->end - in->at)) {
        in->bad = true;
        return NULL;
    }
    const uint8_t *at = in->at;
    in->at += n;
    return at;
}

static uint64_t get(wire_in *in, size_t n)
{
    const uint8_t *p = wire_get_bytes(in, n);
    uint64_t v = 0;
    for (size_t i = 0; p && i < n; i++)
        v = v << 8 | p[i];
    return v;
}

int8_t wire_get_i8(wire_in *in)
{
    return (int8_t)get(in, 1);
}

int16_t wire_get_i16(wire_in *in)
{
    return (int16_t)get(in, 2);
}

int32_t wire_get_i32(wire_in *in)
{
    return (int32_t)get(in, 4);
}

int64_t wire_get_i64(wire_in *in)
{
    return (int64_t)get(in, 8);
}

bool wire_get_bool(wire_in *in)
{
    return get(in, 1) != 0;
}

static uint64_t varint(wire_in *in, int bits)
{
    uint64_t v = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        uint64_t b = get(in, 1);
        if (in->bad)
            return 0;
        if (shift + 7 > bits && b >> (bits - shift)) /* more than the type holds, or it goes on */
            break;
        v |= (b & 0x7f) << shift;
        if (!(b & 0x80))
            return v;
    }
    in->bad = true;
    return 0;
}

uint32_t wire_get_uvarint(wire_in *in)
{
    return (uint32_t)varint(in, 32);
}

int32_t wire_get_varint(wire_in *in)
{
    uint32_t v = (uint32_t)varint(in, 32);
    return (int32_t)(v >> 1 ^ -(v & 1));
}

int64_t wire_get_varlong(wire_in *in)
{
    uint64_t v = varint(in, 64);
    return (int64_t)(v >> 1 ^ -(v & 1));
}

static wire_str take(wire_in *in, int64_t len)
{
    if (len == -1 || in->bad)
        return (wire_str){0};
    if (len < 0) {
        in->bad = true;
        return (wire_str){0};
    }
    const uint8_t *at = wire_get_bytes(in, (size_t)len);
    return (wire_str){(const char *)at, at ? (size_t)len : 0};
}

wire_str wire_get_str(wire_in *in)
{
    return take(in, in->flexible ? (int64_t)wire_get_uvarint(in) - 1 : wire_get_i16(in));
}

wire_str wire_get_blob(wire_in *in)
{
    return take(in, in->flexible ? (int64_t)wire_get_uvarint(in) - 1 : wire_get_i32(in));
}

size_t wire_get_count(wire_in *in, size_t least, bool *ret_null)
{
    int64_t n = in->flexible ? (int64_t)wire_get_uvarint(in) - 1 : wire_get_i32(in);
    bool null = !in->bad && n == -1;
    if (ret_null)
        *ret_null = null;
    if (null || in->bad)
        return 0;
    if (n < 0 || (uint64_t)n > wire_in_left(in) / least) {
        in->bad = true;
        return 0;
    }
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
    uint32_t n = in->flexible ? wire_get_uvarint(in) : 0;
    for (uint32_t i = 0; i < n && !in->bad; i++) {
        wire_get_uvarint(in);
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
    if (!s.at)
        return NULL;
    char *copy = pst_alloc(s.len + 1);
    memcpy(copy, s.at, s.len);
    return copy;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------------- */

void wire_put_bytes(wire_out *o, const void *data, size_t n)
{
    pst_buf_add(o->to, data, n);
}

static void put(wire_out *o, uint64_t v, size_t n)
{
    uint8_t b[8];
    for (size_t i = 0; i < n; i++)
        b[i] = (uint8_t)(v >> (8 * (n - 1 - i)));
    pst_buf_add(o->to, b, n);
}

void wire_put_i8(wire_out *o, int8_t v)
{
    put(o, (uint8_t)v, 1);
}

void wire_put_i16(wire_out *o, int16_t v)
{
    put(o, (uint16_t)v, 2);
}

void wire_put_i32(wire_out *o, int32_t v)
{
    put(o, (uint32_t)v, 4);
}

void wire_put_i64(wire_out *o, int64_t v)
{
    put(o, (uint64_t)v, 8);
}

void wire_put_bool(wire_out *o, bool v)
{
    put(o, v, 1);
}

static void put_varint(wire_out *o, uint64_t v)
{
    uint8_t b[10];
    size_t n = 0;
    for (; v > 0x7f; v >>= 7)
        b[n++] = (uint8_t)(v | 0x80);
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

void wire_put_str(wire_out *o, const char *text)
{
    size_t n = text ? strlen(text) : 0;
    if (o->flexible)
        wire_put_uvarint(o, text ? (uint32_t)n + 1 : 0);
    else
        wire_put_i16(o, text ? (int16_t)n : -1);
    wire_put_bytes(o, text, n);
}

void wire_put_blob_head(wire_out *o, size_t n)
{
    if (o->flexible)
        wire_put_uvarint(o, (uint32_t)n + 1);
    else
        wire_put_i32(o, (int32_t)n);
}

void wire_put_blob(wire_out *o, const void *data, size_t n)
{
    if (data)
        wire_put_blob_head(o, n);
    else if (o->flexible)
        wire_put_uvarint(o, 0);
    else
        wire_put_i32(o, -1);
    if (data)
        wire_put_bytes(o, data, n);
}

void wire_put_count(wire_out *o, size_t n)
{
    wire_put_blob_head(o, n);
}

void wire_put_uuid(wire_out *o, const uint8_t id[16])
{
    wire_put_bytes(o, id, 16);
}

void wire_put_tags(wire_out *o)
{
    if (o->flexible)
        wire_put_uvarint(o, 0);
}
