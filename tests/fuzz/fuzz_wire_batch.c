/* Any bytes as what Fetch brings: record batches, their sums looked at or not; every record that is handed out lies within the bytes, offsets rise, and
 * headers end where they say. */
#include "common/bus/wire/wire_batch.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static unsigned touched; /* so that nothing that is read is left out by the compiler */

static void touch(const void *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        touched += ((const uint8_t *)data)[i];
}

static void read_records(const wire_batch_head *h, wire_block *block)
{
    wire_records r;
    pst_record room[7];
    pst_err err = {0};
    if (wire_records_begin(h, block, &r, &err) < 0)
        return;
    int64_t last = h->base_offset - 1;
    int n;
    while ((n = wire_records_next(&r, room, 7, &err)) > 0)
        for (int i = 0; i < n; i++) {
            if (room[i].offset <= last || room[i].offset > h->last_offset)
                abort();
            last = room[i].offset;
            touch(room[i].key, room[i].key_len);
            touch(room[i].value, room[i].value_len);
            pst_header headers[5];
            size_t all = wire_record_headers(&room[i], headers, 5);
            for (size_t k = 0; k < all && k < 5; k++) {
                touch(headers[k].name, strlen(headers[k].name));
                touch(headers[k].value, headers[k].len);
            }
            touched += (unsigned)wire_control_type(&room[i]);
        }
    if (n < 0 && !err.text[0])
        abort();
    wire_records_done(&r);
}

static void read_all(const uint8_t *data, size_t len, bool crc)
{
    wire_block *block = wire_block_new(len ? len : 1);
    if (len)
        memcpy(block->data, data, len);
    block->len = len;
    wire_in in = wire_in_of(block->data, len, false);
    wire_batch_head h;
    pst_err err = {0};
    while (wire_batch_next(&in, crc, &h, &err) == 1)
        read_records(&h, block);
    wire_block_drop(block);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    read_all(data, len, true);
    read_all(data, len, false);
    return 0;
}
