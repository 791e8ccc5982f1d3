/* wire_block.h - a counted run of bytes: what was received and is read in place, and what is sent as it was built.
 *
 * An answer is received into a block; records that are handed out point into it, so it lives until the last of them is released. A batch is built in
 * a block, and stays there until it is acknowledged, so that it can be sent again byte for byte. One thread at a time: counts are not atomic. */
#ifndef PST_WIRE_BLOCK_H
#define PST_WIRE_BLOCK_H

#include <stddef.h>
#include <stdint.h>

typedef struct wire_block {
    uint32_t uses;
    size_t len, cap;
    size_t *counted; /* its bytes are in here; NULL = in nobody's */
    uint8_t *data;
} wire_block;

wire_block *wire_block_new(size_t cap);                             /* one use */
wire_block *wire_block_take(uint8_t *data, size_t len, size_t cap); /* memory of malloc() moves in; one use */
wire_block *wire_block_use(wire_block *b);
void wire_block_count(wire_block *b, size_t *in); /* adds its bytes there, until it is freed: *in outlives it */
void wire_block_drop(wire_block *b);              /* NULL-safe; the last one frees */

#endif
