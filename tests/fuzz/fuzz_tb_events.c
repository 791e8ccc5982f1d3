/* Any bytes as a TensorBoard event file, in pieces of any size: scalars or nothing, never a crash; what is read does not hang on where the pieces end. */
#include "lcm/supervisor/tb_events.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

typedef struct sum {
    size_t n, bytes;
} sum;

static void add(void *arg, int64_t time_us, int64_t step, const char *tag, size_t tag_len, double value)
{
    sum *s = arg;
    if (!tag_len || tag_len > PST_TB_TAG_MAX || time_us < 0)
        abort();
    for (size_t i = 0; i < tag_len; i++)
        s->bytes += (unsigned char)tag[i];
    s->n++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (!len)
        return 0;
    size_t piece = 1 + data[0];
    sum whole = {0}, pieces = {0};
    sup_tb a = {.scalar = add, .arg = &whole}, b = {.scalar = add, .arg = &pieces};
    data++;
    len--;
    sup_tb_feed(&a, (const char *)data, len);
    for (size_t at = 0; at < len; at += piece)
        sup_tb_feed(&b, (const char *)data + at, len - at < piece ? len - at : piece);
    if (whole.n != pieces.n || whole.bytes != pieces.bytes || a.lost != b.lost || a.damaged != b.damaged || a.large != b.large)
        abort();
    sup_tb_reset(&a);
    sup_tb_reset(&b);
    return 0;
}
