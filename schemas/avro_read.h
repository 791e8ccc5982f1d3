/* avro_read.h - the cursor over untrusted Avro bytes: every read checks what is left, every count is charged to a budget. Inside schemas/
 * only. Used by the JSON walker here and by the decode plans, which inline the hot ones. */
#ifndef PST_SCHEMAS_AVRO_READ_H
#define PST_SCHEMAS_AVRO_READ_H

#include "schemas/avro.h"

#include <string.h>

typedef struct pst_avro_in {
    const uint8_t *p, *end, *begin;
    size_t items; /* array items and map entries left */
    size_t steps; /* values left, for walkers that build something of each */
    size_t room;  /* memory left for what they build, in bytes */
    pst_err *err;
} pst_avro_in;

/* PST_ELIMIT/DATA if len is over PST_AVRO_BYTES_MAX. */
int pst_avro_in_init(pst_avro_in *in, const void *bytes, size_t len, pst_err *err);
/* Writes "text (byte 12 of 40)"; returns code. */
int pst_avro_in_fail(pst_avro_in *in, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int pst_avro_in_varint_slow(pst_avro_in *in, int64_t *ret);
/* The stories of the inlined reads below; the code is PST_EPARSE. */
void pst_avro_in_short(pst_avro_in *in, size_t n);
void pst_avro_in_bad_length(pst_avro_in *in, int64_t len);
void pst_avro_in_bad_int(pst_avro_in *in, int64_t v);
void pst_avro_in_bad_index(pst_avro_in *in, int64_t v, size_t n, const char *what);
int pst_avro_in_bool(pst_avro_in *in, bool *ret);
/* Head of the next block: its count, 0 at the end; charged to items. A negative count's byte size is read and passed over. */
int pst_avro_in_block(pst_avro_in *in, int64_t *ret_count);
/* The same for skipping: a block with a byte size is passed over whole (count 0 returned is the end; -1: go on). */
int pst_avro_in_block_skip(pst_avro_in *in, int64_t *ret_count);

static inline int pst_avro_in_long(pst_avro_in *in, int64_t *ret)
{
    if (in->p < in->end && *in->p < 0x80) { /* one byte: most of them */
        uint8_t b = *in->p++;
        *ret = (int64_t)(b >> 1) ^ -(int64_t)(b & 1);
        return 0;
    }
    return pst_avro_in_varint_slow(in, ret);
}

/* int: 32 bits, checked. */
static inline int pst_avro_in_int(pst_avro_in *in, int64_t *ret)
{
    int rc = pst_avro_in_long(in, ret);
    if (rc < 0 || (*ret >= INT32_MIN && *ret <= INT32_MAX))
        return rc;
    pst_avro_in_bad_int(in, *ret);
    return PST_EPARSE;
}

static inline int pst_avro_in_skip(pst_avro_in *in, size_t n)
{
    if (n > (size_t)(in->end - in->p)) {
        pst_avro_in_short(in, n);
        return PST_EPARSE;
    }
    in->p += n;
    return 0;
}

static inline int pst_avro_in_raw(pst_avro_in *in, void *ret, size_t n)
{
    if (n > (size_t)(in->end - in->p)) {
        pst_avro_in_short(in, n);
        return PST_EPARSE;
    }
    memcpy(ret, in->p, n);
    in->p += n;
    return 0;
}

/* string, bytes: a slice of the input. */
static inline int pst_avro_in_bytes(pst_avro_in *in, pst_slice *ret)
{
    int64_t len;
    int rc = pst_avro_in_long(in, &len);
    if (rc < 0)
        return rc;
    if (len < 0 || len > in->end - in->p) {
        pst_avro_in_bad_length(in, len);
        return PST_EPARSE;
    }
    *ret = (pst_slice){in->p, (size_t)len};
    in->p += len;
    return 0;
}

/* An index below n; what: "symbol", "branch". */
static inline int pst_avro_in_index(pst_avro_in *in, size_t n, const char *what, int64_t *ret)
{
    int rc = pst_avro_in_long(in, ret);
    if (rc < 0 || (uint64_t)*ret < n)
        return rc;
    pst_avro_in_bad_index(in, *ret, n, what);
    return PST_EPARSE;
}

#endif
