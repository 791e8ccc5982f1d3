/* wire_batch.h - RecordBatch v2 (magic 2): read in place, and built in place. Pure; no I/O.
 *
 *     fetched records ──▶ wire_batch_next ──▶ head, CRC-32C checked, decompressed into a block of its own if need be
 *                              └─▶ wire_records_next: n views at a time, nothing allocated
 *     records to send ──▶ wire_build_add / _reserve ──▶ wire_build_close (lengths, CRC, compression) ──▶ one block, ready for Produce
 *
 * Older message sets (magic 0 and 1) are refused with a sentence: brokers since 0.11 write v2, and convert on the way out only for old clients.
 * Sources: Kafka's documentation, "Record Batch"; KIP-98. */
#ifndef PST_WIRE_BATCH_H
#define PST_WIRE_BATCH_H

#include "common/bus/bus.h"
#include "common/bus/wire/wire_block.h"
#include "common/bus/wire/wire_bytes.h"

#define WIRE_BATCH_HEAD 61          /* bytes before the first record */
#define WIRE_BATCH_MAX  (100 << 20) /* of one batch, compressed or not; more is refused */

typedef enum { WIRE_NONE, WIRE_GZIP, WIRE_SNAPPY, WIRE_LZ4, WIRE_ZSTD } wire_codec;
extern const char *const wire_codec_names[]; /* as compression.type has them */

/* wire_pack.h's: decompresses / compresses; the libraries are opened by the first use. PST_EUNSUPPORTED with the cure where one is not there,
 * PST_EINVAL of bytes that are none of the codec or larger than `max` when unpacked. */
int wire_unpack(wire_codec codec, const void *data, size_t len, size_t max, wire_block **ret, pst_err *err);
int wire_pack(wire_codec codec, int level, const void *data, size_t len, pst_buf *out, pst_err *err);
int wire_pack_open(wire_codec codec, pst_err *err); /* at configuration time: is the library there? */

/* ---- reading -------------------------------------------------------------------------------------------------------------------- */

typedef struct wire_batch_head {
    int64_t base_offset, last_offset;
    int64_t base_time, max_time;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence, leader_epoch;
    wire_codec codec;
    bool append_time, transactional, control;
    uint32_t n;
    const uint8_t *records; /* as they are in the batch, perhaps compressed */
    size_t records_len;
} wire_batch_head;

/* The next batch of `in`. 1: there is one; 0: what is left is the beginning of one that was cut (Fetch cuts anywhere); PST_EINVAL: it is broken (length,
 * magic, CRC): err says what, and base_offset is filled in if it was to be read. */
int wire_batch_next(wire_in *in, bool check_crc, wire_batch_head *ret, pst_err *err);

typedef struct wire_records { /* where the reading of a batch stands */
    wire_batch_head head;
    wire_in in;
    uint32_t left;
    int64_t last;      /* offset handed out last; they rise, or the batch is broken */
    wire_block *block; /* what the views point into: the answer's, or the unpacked one */
} wire_records;

/* Begins: `of` is the block that the batch lies in (a use of it is taken), or the unpacked one. */
int wire_records_begin(const wire_batch_head *head, wire_block *of, wire_records *ret, pst_err *err);
/* Fills key, value, offset, timestamp and has_headers of up to `max` records, and `native` with the place of the record's header count; the rest is the
 * caller's. 0 = the batch is read; PST_EINVAL: broken behind the last one given. */
int wire_records_next(wire_records *r, pst_record *room, size_t max, pst_err *err);
void wire_records_done(wire_records *r);
/* Headers at a record's native place; names end with a NUL. How many there are. wire_records_next() writes them over themselves for that (wire_batch.c), so
 * the records of a block are walked once: it is not begun anew from the same bytes. */
size_t wire_record_headers(const pst_record *r, pst_header *ret, size_t max);
/* A control batch's record: 0 abort, 1 commit, others as they are. */
int wire_control_type(const pst_record *r);

/* ---- building -------------------------------------------------------------------------------------------------------------------- */

/* One batch under construction. Records lie in it as they go out, first the 61 bytes that wire_build_close() fills in. */
typedef struct wire_build {
    pst_buf bytes;
    uint32_t n;
    int64_t base_time, max_time;
    size_t usual;    /* bytes of the last batch: room for the next one */
    size_t reserved; /* where the record that wire_build_reserve() began is; 0 = none */
    pst_out head;    /* of it */
    size_t value_length_at;
    uint8_t length_room, value_room; /* bytes that are left for the lengths of it and its value: what the last one took */
} wire_build;

void wire_build_begin(wire_build *b); /* of zeros, or a closed one */
/* out->timestamp_ms must not be 0 any more. */
void wire_build_add(wire_build *b, const pst_out *out);
/* Room for a value at the end of ->bytes; its length is known when it is sent: it is then moved by the bytes that its length takes. Forgotten by a second
 * reserve, an add, or wire_build_unreserve. */
pst_buf *wire_build_reserve(wire_build *b, const pst_out *head);
void wire_build_commit(wire_build *b);
void wire_build_unreserve(wire_build *b);
/* How many bytes the record will take, at most: before it is added. */
size_t wire_build_cost(const pst_out *out);

typedef struct wire_seal {
    int64_t producer_id; /* -1 = none */
    int16_t producer_epoch;
    int32_t base_sequence;
    bool transactional;
    wire_codec codec;
    int level;
} wire_seal;

/* Ends it: head, CRC. The block is the batch as Produce carries it; b is empty afterwards, its memory kept where that was possible. A compressed batch that
 * is not smaller goes uncompressed. */
int wire_build_close(wire_build *b, const wire_seal *seal, wire_block **ret, pst_err *err);
void wire_build_done(wire_build *b);

#endif
