/* Any bytes as what a stranger sends to the ring's port, and as messages of a rank: taken or refused; with the checksums put right, so that what lies behind
 * them is reached. What is taken is put again as the same bytes. Then as frames in order on a connection of a parameter server, and as what begins its
 * training. */
#include "common/base/hash.h"
#include "trainer/learner/link.h"
#include "trainer/learner/servers.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void seal(uint8_t *bytes, size_t at)
{
    uint32_t crc = pst_crc32c(0, bytes, at);
    memcpy(bytes + at, &crc, sizeof crc);
}

/* The bytes as [kind, bytes of payload, payload] … in frames that are right in themselves; the first payload of a message is its length. */
static void connection(const uint8_t *data, size_t len)
{
    enum { LIMIT = 1000, SENT_MAX = 60000 };
    int pair[2];
    pst_buf b = {0};
    uint8_t head[LEARN_FRAME_HEAD];
    uint64_t n = 0;
    pst_err err = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return;
    for (size_t at = 0; at + 2 <= len && b.len < SENT_MAX; n++) {
        size_t size = data[at + 1] < len - at - 2 ? data[at + 1] : len - at - 2;
        learn_frame f = {(learn_frame_kind)(data[at] % 12), 5, n, 1, (uint32_t)size, pst_crc32c(0, data + at + 2, size)};
        learn_frame_put(&f, head);
        pst_buf_add(&b, head, sizeof head);
        pst_buf_add(&b, data + at + 2, size);
        at += 2 + size;
    }
    learn_link *l = learn_link_new(&(learn_met){pair[0], 1, 5}, 1, LIMIT);
    if (b.len && write(pair[1], b.data, b.len) != (ssize_t)b.len)
        abort();
    close(pair[1]);
    int rc;
    while ((rc = learn_link_hear(l, &err)) > 0)
        if (l->message.len > LIMIT || l->message.len != l->due)
            abort();
    if (!rc)
        abort(); /* the other end is closed */
    learn_link_free(l);
    pst_buf_done(&b);
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
    learn_begin begin;
    size_t params = 0;
    if (learn_begin_check(data, len, 3, 1, &begin, &params, NULL) == 0 && (!params || begin.n_widths < 2))
        abort();
    connection(data, len);
    return 0;
}
