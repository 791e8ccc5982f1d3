/* Any bytes as what a stranger sends to the ring's port, and as messages of a rank: taken or refused; with the checksums put right, so that what lies behind
 * them is reached. What is taken is put again as the same bytes. */
#include "common/base/hash.h"
#include "trainer/learner/ring_wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void seal(uint8_t *bytes, size_t at)
{
    uint32_t crc = pst_crc32c(0, bytes, at);
    memcpy(bytes + at, &crc, sizeof crc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t bytes[LEARN_HELLO_BYTES] = {0}, again[LEARN_HELLO_BYTES];
    learn_hello h;
    learn_welcome w;
    learn_frame f;
    learn_run run;
    memcpy(bytes, data, len < sizeof bytes ? len : sizeof bytes);
    learn_run_make(&run, "training-t", 1, 2, "secret");
    seal(bytes, LEARN_HELLO_BYTES - 4);
    if (learn_hello_get(bytes, &h)) {
        learn_hello_put(&h, again);
        if (memcmp(bytes, again, LEARN_HELLO_BYTES) != 0 ||
            (learn_hello_judge(&run, &h, 1, 0) == LEARN_WELCOME && (h.from != 1 || h.to != 0)))
            abort();
    }
    seal(bytes, LEARN_WELCOME_BYTES - 4);
    if (learn_welcome_get(bytes, &w)) {
        learn_welcome_put(&w, again);
        if (memcmp(bytes, again, LEARN_WELCOME_BYTES) != 0)
            abort();
    }
    seal(bytes, LEARN_FRAME_HEAD - 4);
    uint64_t session, sequence;
    memcpy(&session, bytes + 8, sizeof session);
    memcpy(&sequence, bytes + 24, sizeof sequence);
    if (learn_frame_get(bytes, 1, session, sequence, &f, NULL) == 0) {
        learn_frame_put(&f, again);
        if (memcmp(bytes, again, LEARN_FRAME_HEAD) != 0 || f.generation != 1 || f.length > LEARN_FRAME_MAX)
            abort();
    }
    return 0;
}
