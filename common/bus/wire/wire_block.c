/* wire_block.c - a counted run of bytes. The count and the bytes are two allocations, so that a batch that was built in a pst_buf becomes a block without
 * being copied; both are a batch's or an answer's, never a record's. The bytes are not zeroed: they are received or written over at once, and zeroing a
 * megabyte costs as much as its checksum. */
#include "common/bus/wire/wire_block.h"

#include "common/base/buf.h"
#include "common/base/err.h"

#include <stdlib.h>

wire_block *wire_block_new(size_t cap)
{
    uint8_t *data = malloc(cap ? cap : 1);
    PST_ASSERT(data);
    return wire_block_take(data, 0, cap);
}

wire_block *wire_block_take(uint8_t *data, size_t len, size_t cap)
{
    PST_ASSERT(data && len <= cap);
    wire_block *b = pst_alloc(sizeof *b);
    *b = (wire_block){.uses = 1, .len = len, .cap = cap, .data = data};
    return b;
}

wire_block *wire_block_use(wire_block *b)
{
    PST_ASSERT(b->uses && b->uses < UINT32_MAX);
    b->uses++;
    return b;
}

void wire_block_count(wire_block *b, size_t *in)
{
    PST_ASSERT(!b->counted);
    b->counted = in;
    *in += b->cap;
}

void wire_block_drop(wire_block *b)
{
    if (!b)
        return;
    PST_ASSERT(b->uses);
    if (--b->uses)
        return;
    if (b->counted) {
        PST_ASSERT(*b->counted >= b->cap);
        *b->counted -= b->cap;
    }
    free(b->data);
    free(b);
}
