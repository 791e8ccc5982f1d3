/* spool.h - the files in a run dir where records wait for the broker: numbered segments of length-prefixed items, written at the end,
 * read at the front a segment at a time, bounded as a whole.
 *
 * item: u32 bytes, u8 kind, u8[3] zero, the bytes. A torn tail (the machine went down) is ignored. @thread the owner's lock. */
#ifndef PST_LCM_SUPERVISOR_SPOOL_H
#define PST_LCM_SUPERVISOR_SPOOL_H

#include "common/base/buf.h"
#include "common/base/err.h"

typedef struct sup_spool_lost { /* what was dropped at the front */
    int64_t lines, bytes, metrics;
} sup_spool_lost;

typedef struct sup_spool sup_spool;

int sup_spool_open(const char *dir, int64_t bytes_max, sup_spool **ret_spool, pst_err *err); /* takes up what is there */
void sup_spool_close(sup_spool *s);
/* is_line: counted as a line when it must be dropped, else as a metric. Drops the oldest segments that are not being read when full. */
int sup_spool_append(sup_spool *s, int kind, bool is_line, const void *data, size_t len, pst_err *err);
/* The same in front of everything (once, at the end): items that had been taken out before. */
int sup_spool_prepend(sup_spool *s, const void *items, size_t len, pst_err *err);
void sup_spool_item(pst_buf *out, int kind, const void *data, size_t len); /* one item as bytes, for prepend */
bool sup_spool_empty(const sup_spool *s); /* nothing left to take (a segment that was taken and not released does not count) */
int64_t sup_spool_bytes(const sup_spool *s);
/* The oldest segment: fn is called per item; skip: that many are passed over. ret_lost: dropped before it. */
int sup_spool_take(sup_spool *s, size_t skip, void (*fn)(void *arg, int kind, const void *data, size_t len), void *arg,
                   uint64_t *ret_number, sup_spool_lost *ret_lost, pst_err *err);
/* The segment that was taken is acknowledged as a whole: removed. */
void sup_spool_release(sup_spool *s, uint64_t number);
uint64_t sup_spool_first(const sup_spool *s); /* number of the oldest segment; 0 = none */

#endif
