/* avro_write.c - the primitives of Avro's binary encoding, writing side, and Confluent's framing. */
#include "schemas/avro.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats and doubles are copied as they lie in memory");

void pst_avro_put_long(pst_buf *out, int64_t v)
{
    uint64_t z = ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
    char tmp[10];
    size_t n = 0;
    while (z > 0x7f) {
        tmp[n++] = (char)(z | 0x80);
        z >>= 7;
    }
    tmp[n++] = (char)z;
    pst_buf_add(out, tmp, n);
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
