/* wire_block.c - counted bytes. Not zeroed: what is received lies in it as far as len says, and no further. */
#include "common/bus/wire/wire_block.h"
#include "common/base/buf.h"
#include "common/base/err.h"

#include <stdlib.h>

wire_block *wire_block_new(size_t cap)
{
    wire_block *b = pst_alloc(sizeof *b);
    b->uses = 1;
    b->cap = cap;
    b->data = malloc(cap ? cap : 1);
    PST_ASSERT(b->data);
    return b;
}

wire_block *wire_block_use(wire_block *b)
{
    PST_ASSERT(b->uses);
    b->uses++;
    return b;
}

void wire_block_drop(wire_block *b)
{
    if (!b)
        return;
    PST_ASSERT(b->uses);
    if (--b->uses)
        return;
    free(b->data);
    free(b);
}
