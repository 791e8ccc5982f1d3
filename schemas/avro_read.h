/* avro_read.h - the cursor over untrusted Avro bytes: every read checks what is left, every count is charged to a budget. Inside schemas/
 * only. Used by the JSON walker here and by the decode plans, which inline the hot ones. */
#ifndef PST_SCHEMAS_AVRO_READ_H
#define PST_SCHEMAS_AVRO_READ_H

#include "schemas/avro.h"

#include <string.h>

typedef struct av_in {
    const uint8_t *p, *end, *begin;
    size_t items; /* array items and map entries left */
    size_t steps; /* values left, for walkers that build something of each */
    size_t room;  /* memory left for what they build, in bytes */
    pst_err *err;
} av_in;

/* PST_ELIMIT/DATA if len is over PST_AVRO_BYTES_MAX. */
int av_in_init(av_in *in, const void *bytes, size_t len, pst_err *err);
/* Writes "text (byte 12 of 40)"; returns code. */
int av_in_fail(av_in *in, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int av_in_varint_slow(av_in *in, int64_t *ret);
/* The stories of the inlined reads below; the code is PST_EPARSE. */
void av_in_short(av_in *in, size_t n);
void av_in_bad_length(av_in *in, int64_t len);
void av_in_bad_int(av_in *in, int64_t v);
void av_in_bad_index(av_in *in, int64_t v, size_t n, const char *what);
int av_in_bool(av_in *in, bool *ret);
/* Head of the next block: its count, 0 at the end; charged to items. A negative count's byte size is read and passed over. */
int av_in_block(av_in *in, int64_t *ret_count);
/* The same for skipping: a block with a byte size is passed over whole (count 0 returned is the end; -1: go on). */
int av_in_block_skip(av_in *in, int64_t *ret_count);

static inline int av_in_long(av_in *in, int64_t *ret)
{
    if (in->p < in->end && *in->p < 0x80) { /* one byte: most of them */
        uint8_t b = *in->p++;
        *ret = (int64_t)(b >> 1) ^ -(int64_t)(b & 1);
        return 0;
    }
    return av_in_varint_slow(in, ret);
}

/* int: 32 bits, checked. */
static inline int av_in_int(av_in *in, int64_t *ret)
{
    int rc = av_in_long(in, ret);
    if (rc < 0 || (*ret >= INT32_MIN && *ret <= INT32_MAX))
        return rc;
    av_in_bad_int(in, *ret);
    return PST_EPARSE;
}

static inline int av_in_skip(av_in *in, size_t n)
{
    if (n > (size_t)(in->end - in->p)) {
        av_in_short(in, n);
        return PST_EPARSE;
    }
    in->p += n;
    return 0;
}

static inline int av_in_raw(av_in *in, void *ret, size_t n)
{
    if (n > (size_t)(in->end - in->p)) {
        av_in_short(in, n);
        return PST_EPARSE;
    }
    memcpy(ret, in->p, n);
    in->p += n;
    return 0;
}

/* string, bytes: a slice of the input. */
static inline int av_in_bytes(av_in *in, pst_slice *ret)
{
    int64_t len;
    int rc = av_in_long(in, &len);
    if (rc < 0)
        return rc;
    if (len < 0 || len > in->end - in->p) {
        av_in_bad_length(in, len);
        return PST_EPARSE;
    }
    *ret = (pst_slice){in->p, (size_t)len};
    in->p += len;
    return 0;
}

/* An index below n; what: "symbol", "branch". */
static inline int av_in_index(av_in *in, size_t n, const char *what, int64_t *ret)
{
    int rc = av_in_long(in, ret);
    if (rc < 0 || (uint64_t)*ret < n)
        return rc;
    av_in_bad_index(in, *ret, n, what);
    return PST_EPARSE;
}

#endif
