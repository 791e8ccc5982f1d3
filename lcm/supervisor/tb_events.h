/* tb_events.h - TensorBoard's event files: TFRecord framing (length, masked CRC-32C, data, masked CRC-32C) around Event messages of protobuf. Scalars only:
 * simple_value, and tensors of one number (TensorFlow 2). Fed with bytes as they come; the bytes are a learner's and may be anything.
 * @thread one owner. */
#ifndef PST_LCM_SUPERVISOR_TB_EVENTS_H
#define PST_LCM_SUPERVISOR_TB_EVENTS_H

#include "common/base/buf.h"

#include <stdbool.h>
#include <stdint.h>

#define PST_TB_RECORD_MAX (1 << 20) /* bytes of a record that is looked into; images and histograms may be larger and are passed over */
#define PST_TB_TAG_MAX    256       /* bytes of a tag; longer ones are left out */

/* time_us: 0 = the event has none. tag: bytes, not yet known to be UTF-8. */
typedef void (*sup_tb_scalar)(void *arg, int64_t time_us, int64_t step, const char *tag, size_t tag_len, double value);

typedef struct sup_tb {
    sup_tb_scalar scalar;
    void *arg;
    pst_buf part;    /* the unfinished record: header, data, checksum */
    uint64_t skip;   /* bytes of a record too large that are still to come */
    bool lost;       /* a length's checksum is wrong: where records begin is not known any more, nothing more is read */
    int64_t damaged; /* records whose data's checksum is wrong; the next one is read */
    int64_t large;   /* records passed over for their size */
} sup_tb;

void sup_tb_feed(sup_tb *t, const char *data, size_t len);
bool sup_tb_inside(const sup_tb *t); /* it ends in the middle of a record */
void sup_tb_reset(sup_tb *t);        /* a file begins; frees */

#endif
