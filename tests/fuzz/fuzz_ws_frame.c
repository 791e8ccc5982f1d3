/* fuzz_ws_frame.c - what a websocket's client sends: cut in two anywhere, the same is heard as in one piece. First byte: where it is cut. */
#include "common/loop/ws_frame.h"

#include "common/base/err.h"

#include <string.h>

typedef struct heard {
    unsigned n, sum;
} heard;

static bool hear(void *arg, int opcode, const unsigned char *payload, size_t len)
{
    heard *h = arg;
    PST_ASSERT(len <= WS_CONTROL_MAX && opcode >= WS_CLOSE && opcode <= WS_PONG);
    h->n++;
    for (size_t i = 0; i < len; i++)
        h->sum = h->sum * 31 + payload[i];
    int code = http_ws_close_code(payload, len);
    PST_ASSERT(code >= 1000 && code <= 4999);
    return opcode != WS_CLOSE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    http_ws_reader whole = {0}, halves = {0};
    heard a = {0}, b = {0};
    if (!size)
        return 0;
    size_t len = size - 1, cut = data[0] < len ? data[0] : len;
    int rc = http_ws_feed(&whole, data + 1, len, hear, &a);
    int rc2 = http_ws_feed(&halves, data + 1, cut, hear, &b);
    PST_ASSERT(rc == 0 || (rc <= -WS_NORMAL && rc >= -WS_INTERNAL));
    if (rc2 < 0)
        PST_ASSERT(rc2 == rc);
    else if (!(b.n && a.n == b.n)) /* a close frame in the first half: nobody feeds a second one */
        PST_ASSERT(http_ws_feed(&halves, data + 1 + cut, len - cut, hear, &b) == rc && a.n == b.n && a.sum == b.sum);
    return 0;
}
