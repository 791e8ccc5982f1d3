/* keyed_bytes.c - one key in the changelog:
 *
 *     version 1 · fingerprint 8 · offset 8 · time 8 · for each series { count (varint), then for each value { time before the key's (varint), x 8 } } · CRC-32C 4
 *
 * little endian. Times are told as distances from the one behind them, newest first, so most take a byte or three; values keep all of their bits, since what
 * is read again must give the same windows. The topic is written by us alone, and still nothing of it is believed: a stranger's record, or half of one,
 * would be a wrong score for as long as the key lives. */
#include "inference/state/keyed_priv.h"

#include "common/base/hash.h"

#include <math.h>
#include <string.h>

enum { VERSION = 1, HEAD_BYTES = 25, CRC_BYTES = 4 };

static void put_u64(pst_buf *out, uint64_t v)
{
    uint8_t b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (uint8_t)(v >> (8 * i));
    pst_buf_add(out, b, sizeof(b));
}

static void put_varint(pst_buf *out, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        pst_buf_addc(out, (char)(v | 0x80));
    pst_buf_addc(out, (char)v);
}

static void put_series(const pst_series *s, int64_t newest_ms, pst_buf *out)
{
    int64_t before = newest_ms;
    put_varint(out, s->n);
    for (uint32_t i = s->n; i-- > 0;) {
        pst_series_value v = pst_series_at(s, i);
        uint64_t bits;
        PST_ASSERT(v.ms <= before);
        put_varint(out, (uint64_t)(before - v.ms));
        memcpy(&bits, &v.x, sizeof(bits));
        put_u64(out, bits);
        before = v.ms;
    }
}

void keyed_put(const pst_keyed_plan *plan, const keyed_entry *e, pst_buf *out)
{
    size_t from = out->len;
    pst_buf_addc(out, VERSION);
    put_u64(out, plan->fingerprint);
    put_u64(out, (uint64_t)e->offset);
    put_u64(out, (uint64_t)e->newest_ms);
    for (size_t i = 0; i < plan->n_series; i++)
        put_series(&e->series[i], e->newest_ms, out);
    uint32_t crc = pst_crc32c(0, out->data + from, out->len - from);
    uint8_t b[CRC_BYTES];
    for (int i = 0; i < CRC_BYTES; i++)
        b[i] = (uint8_t)(crc >> (8 * i));
    pst_buf_add(out, b, sizeof(b));
}

/* ---- back ------------------------------------------------------------------------------------------------------------------ */

typedef struct reader {
    const uint8_t *at, *end;
} reader;

static uint64_t get_le(const uint8_t *b, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++)
        v |= (uint64_t)b[i] << (8 * i);
    return v;
}

static bool get_varint(reader *r, uint64_t *ret)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 63 && r->at < r->end; shift += 7) {
        uint8_t b = *r->at++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *ret = v;
            return true;
        }
    }
    return false;
}

static bool get_series(reader *r, uint32_t most, int64_t newest_ms, pst_series *s)
{
    uint64_t n, back;
    int64_t ms = newest_ms;
    if (!get_varint(r, &n) || n > most || n > (size_t)(r->end - r->at) / 9)
        return false;
    for (uint64_t i = 0; i < n; i++) {
        double x;
        if (!get_varint(r, &back) || back > INT64_MAX || (int64_t)back > ms + 1 || r->end - r->at < 8)
            return false;
        uint64_t bits = get_le(r->at, 8);
        r->at += 8;
        memcpy(&x, &bits, sizeof(x));
        ms -= (int64_t)back;
        if (!isfinite(x))
            return false;
        pst_series_push_oldest(s, (pst_series_value){ms, x});
    }
    return true;
}

static int broken(const char *what, pst_err *err)
{
    return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "state", 0, "is no record of a pipeline's state: %s", what);
}

int keyed_get(const pst_keyed_plan *plan, pst_slice value, keyed_entry *e, pst_err *err)
{
    const uint8_t *b = value.data;
    if (value.len < HEAD_BYTES + CRC_BYTES || value.len > PST_KEYED_RECORD_MAX)
        return broken("its length", err);
    size_t body = value.len - CRC_BYTES;
    if (pst_crc32c(0, b, body) != get_le(b + body, CRC_BYTES))
        return broken("its checksum", err);
    if (b[0] != VERSION)
        return pst_err_set(err, PST_EINCOMPAT, PST_CLASS_DATA, "state", 0, "is of version %u, this penstock reads version %d", b[0],
                           VERSION);
    if (get_le(b + 1, 8) != plan->fingerprint)
        return pst_err_set(err, PST_EINCOMPAT, PST_CLASS_DATA, "state", 0,
                           "is of other windows than the pipeline's: windows, fields, key or limits were changed");
    e->offset = (int64_t)get_le(b + 9, 8);
    e->newest_ms = (int64_t)get_le(b + 17, 8);
    if (e->offset < 0 || e->newest_ms < -1 || e->newest_ms > PST_KEYED_TIME_MAX)
        return broken("its offset or time", err);
    reader r = {b + HEAD_BYTES, b + body};
    for (size_t i = 0; i < plan->n_series; i++)
        if (!get_series(&r, plan->series[i].most, e->newest_ms, &e->series[i]))
            return broken("its values", err);
    return r.at == r.end ? 0 : broken("bytes behind its values", err);
}
