/* wire_bytes.h - Kafka's primitive types, read with bounds and written to a buffer. Big-endian; "compact" lengths are varints of length + 1, as all
 * flexible versions have them (KIP-482).
 *
 * Reading never fails in the middle: past the end or after a length that cannot be, everything reads as zero, `bad` stays set, and whoever read a
 * whole message looks at it once, at the end (wire_in_done). So a broker that lies in a length harms nothing. Counts of arrays are checked against
 * the bytes that are left before anything is allocated for them. What strings point to lives as long as the bytes that were given.
 * @thread any, no state. Sources: Kafka's protocol guide; KIP-482. */
#ifndef PST_WIRE_BYTES_H
#define PST_WIRE_BYTES_H

#include "common/base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* ---- reading ------------------------------------------------------------------------------------------------------------------ */

typedef struct wire_in {
    const uint8_t *at, *end;
    bool flexible; /* of the message's version: compact lengths, tagged fields */
    bool bad;      /* something could not be read; all later reads give zero */
} wire_in;

typedef struct wire_str { /* borrowed; at NULL = null */
    const char *at;
    size_t len;
} wire_str;

wire_in wire_in_of(const void *data, size_t len, bool flexible);
static inline size_t wire_in_left(const wire_in *in)
{
    return in->bad ? 0 : (size_t)(in->end - in->at);
}
const uint8_t *wire_get_bytes(wire_in *in, size_t n); /* NULL = not so many are left; bad then */
int8_t wire_get_i8(wire_in *in);
int16_t wire_get_i16(wire_in *in);
int32_t wire_get_i32(wire_in *in);
int64_t wire_get_i64(wire_in *in);
bool wire_get_bool(wire_in *in);
uint32_t wire_get_uvarint(wire_in *in);
int32_t wire_get_varint(wire_in *in);  /* zigzag, as in records */
int64_t wire_get_varlong(wire_in *in); /* likewise */
/* By the message's version plain or compact; null and empty are told apart by `at`. */
wire_str wire_get_str(wire_in *in);
wire_str wire_get_blob(wire_in *in); /* BYTES, RECORDS */
/* Elements of an array, each of at least `least` bytes (≥ 1); null counts as 0 and sets *ret_null (may be NULL). */
size_t wire_get_count(wire_in *in, size_t least, bool *ret_null);
void wire_get_uuid(wire_in *in, uint8_t ret[16]);
void wire_get_tags(wire_in *in); /* skips tagged fields of a flexible version; nothing in others */
/* All was read, and nothing is left over. What is left over is no fault of a newer broker's: it is one of ours, so it is told (false). */
bool wire_in_done(const wire_in *in);
bool wire_str_is(wire_str s, const char *text);
char *wire_str_dup(wire_str s); /* free(); NULL of null. A NUL inside is kept: callers of names refuse it */

/* ---- writing ------------------------------------------------------------------------------------------------------------------- */

typedef struct wire_out {
    pst_buf *to;
    bool flexible;
} wire_out;

void wire_put_bytes(wire_out *o, const void *data, size_t n);
void wire_put_i8(wire_out *o, int8_t v);
void wire_put_i16(wire_out *o, int16_t v);
void wire_put_i32(wire_out *o, int32_t v);
void wire_put_i64(wire_out *o, int64_t v);
void wire_put_bool(wire_out *o, bool v);
void wire_put_uvarint(wire_out *o, uint32_t v);
void wire_put_varint(wire_out *o, int32_t v);
void wire_put_varlong(wire_out *o, int64_t v);
void wire_put_str(wire_out *o, const char *text);            /* NULL = null */
void wire_put_blob(wire_out *o, const void *data, size_t n); /* NULL = null */
void wire_put_blob_head(wire_out *o, size_t n);              /* the length alone: n bytes follow (wire_call_splice) */
void wire_put_count(wire_out *o, size_t n);
void wire_put_uuid(wire_out *o, const uint8_t id[16]);
void wire_put_tags(wire_out *o); /* an empty list of tagged fields in a flexible version; nothing in others */

#endif
