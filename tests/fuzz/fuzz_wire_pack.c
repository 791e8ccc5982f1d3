/* Any bytes as what each codec unpacks (the first byte chooses): refused, or no larger than the bound; and what is packed is unpacked to the same. */
#include "common/bus/wire/wire_batch.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    enum { MAX = 1 << 20 };
    if (len < 2)
        return 0;
    wire_codec codec = (wire_codec)(data[0] % WIRE_ZSTD + 1);
    wire_block *out = NULL;
    pst_err err = {0};
    int rc = wire_unpack(codec, data + 1, len - 1, MAX, &out, &err);
    if (rc == 0 && out->len > MAX)
        abort();
    if (rc < 0 && (out || !err.text[0]))
        abort();
    wire_block_drop(out);
    pst_buf packed = {0};
    if (wire_pack(codec, -1, data, len, &packed, &err) < 0 || wire_unpack(codec, packed.data, packed.len, MAX, &out, &err) < 0)
        abort();
    if (out->len != len || memcmp(out->data, data, len))
        abort();
    wire_block_drop(out);
    pst_buf_done(&packed);
    return 0;
}
