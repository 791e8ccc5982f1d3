/* avro_write.c - the primitives of Avro's binary encoding, writing side, and Confluent's framing. */
#include "schemas/avro.h"
#include "schemas/avro_long.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats and doubles are copied as they lie in memory");

/* Seven bits a byte, all bytes at once: the halves of 56 bits are moved apart, then the halves of these, then theirs. Offsets and times have four to eight bytes, and
 * a loop's length would be guessed wrong. */
char *pst_avro_write_long(char *to, int64_t v)
{
    uint64_t z = ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
    if (z < 0x80) {
        *to = (char)z;
        return to + 1;
    }
    if (z >> 56) {
        for (; z > 0x7f; z >>= 7)
            *to++ = (char)(z | 0x80);
        *to++ = (char)z;
        return to;
    }
    unsigned n = (63 - (unsigned)__builtin_clzll(z)) / 7 + 1;
    z = (z & 0x000000000fffffff) | (z & 0x00fffffff0000000) << 4;
    z = (z & 0x00003fff00003fff) | (z & 0x0fffc0000fffc000) << 2;
    z = (z & 0x007f007f007f007f) | (z & 0x3f803f803f803f80) << 1;
    z |= 0x8080808080808080 & ((1ULL << 8 * (n - 1)) - 1);
    memcpy(to, &z, sizeof z);
    return to + n;
}

void pst_avro_put_long(pst_buf *out, int64_t v)
{
    char tmp[PST_AVRO_LONG_ROOM];
    pst_buf_add(out, tmp, (size_t)(pst_avro_write_long(tmp, v) - tmp));
}

void pst_avro_put_double(pst_buf *out, double v)
{
    pst_buf_add(out, &v, sizeof v);
}

void pst_avro_put_float(pst_buf *out, float v)
{
    pst_buf_add(out, &v, sizeof v);
}

void pst_avro_put_bytes(pst_buf *out, const void *data, size_t len)
{
    pst_avro_put_long(out, (int64_t)len);
    pst_buf_add(out, data, len);
}

void pst_frame_put(pst_buf *out, int32_t schema_id)
{
    uint32_t id = (uint32_t)schema_id;
    char head[5] = {0, (char)(id >> 24), (char)(id >> 16), (char)(id >> 8), (char)id};
    pst_buf_add(out, head, sizeof head);
}

int pst_frame_get(const void *value, size_t len, int32_t *ret_id, pst_slice *ret_body, pst_err *err)
{
    const uint8_t *p = value;
    if (!p || !len)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "avro", 0,
                           "bad envelope: the value is empty; it should begin with byte 0 and a 4-byte schema id");
    if (p[0])
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "avro", 0,
                           "bad envelope: the value begins with byte 0x%02x; Confluent framing begins with byte 0 and a 4-byte schema id%s",
                           p[0], p[0] == '{' ? " (this looks like JSON text)" : "");
    if (len < PST_FRAME_BYTES)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "avro", 0,
                           "bad envelope: %zu bytes are too few for byte 0 and a 4-byte schema id", len);
    *ret_id = (int32_t)((uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4]);
    *ret_body = (pst_slice){p + PST_FRAME_BYTES, len - PST_FRAME_BYTES};
    return 0;
}
