/* Any bytes as a TensorBoard event file, in pieces of any size: scalars or nothing, never a crash; what is read does not hang on where the pieces end. */
#include "common/base/hash.h"
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

static void little(pst_buf *b, uint64_t v, int n)
{
    for (; n; n--, v >>= 8)
        pst_buf_addc(b, (char)v);
}

static void crc(pst_buf *b, const char *data, size_t len)
{
    uint32_t c = pst_crc32c(0, data, len);
    little(b, (uint32_t)((c >> 15 | c << 17) + 0xa282ead8u), 4);
}

/* The same bytes as the event of a sound record: what lies behind the checksums is reached by no luck. */
static void as_event(const char *data, size_t len)
{
    pst_buf b = {0};
    sum s = {0};
    sup_tb t = {.scalar = add, .arg = &s};
    little(&b, len, 8);
    crc(&b, b.data, 8);
    pst_buf_add(&b, data, len);
    crc(&b, data, len);
    sup_tb_feed(&t, b.data, b.len);
    if (t.lost || t.damaged || (len <= PST_TB_RECORD_MAX && sup_tb_inside(&t)))
        abort();
    sup_tb_reset(&t);
    pst_buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (!len)
        return 0;
    as_event((const char *)data, len);
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
