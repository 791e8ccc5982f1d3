/* Any bytes as a checkpoint, with the checksum put right so that what lies behind it is reached: decoded or refused; what is decoded is
 * encoded again to the same bytes' worth. */
#include "common/base/hash.h"
#include "trainer/learner/checkpoint.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    learn_checkpoint c;
    uint8_t *bytes = malloc(len + 1);
    memcpy(bytes, data, len);
    if (len >= 4) {
        uint32_t crc = pst_crc32c(0, bytes, len - 4);
        memcpy(bytes + len - 4, &crc, 4);
    }
    if (learn_checkpoint_decode(bytes, len, &c, NULL) == 0) {
        pst_buf b = {0};
        learn_checkpoint again;
        learn_checkpoint_encode(&c, &b);
        if (learn_checkpoint_decode(b.data, b.len, &again, NULL) < 0 || again.n_params != c.n_params || again.n_fields != c.n_fields)
            abort();
        learn_checkpoint_done(&again);
        learn_checkpoint_done(&c);
        pst_buf_done(&b);
    }
    free(bytes);
    return 0;
}
