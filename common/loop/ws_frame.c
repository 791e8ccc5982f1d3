/* ws_frame.c - RFC 6455 sections 4.2.2 and 5. A state machine over bytes as they come: heads are gathered in 14 bytes, payloads are never gathered but
 * for control frames, so a client decides about no memory here. SHA-1 is the handshake's (no secret rests on it), and nobody else's: it stays in
 * this file. */
#include "common/loop/ws_frame.h"

#include "common/base/err.h"
#include "common/base/hash.h"

#include <stdlib.h>
#include <string.h>

/* ---- the handshake's digest ------------------------------------------------------------------------------------------------ */

static uint32_t rol(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

static void sha1_block(uint32_t h[5], const unsigned char *p)
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = rol(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        static const uint32_t k[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
        uint32_t f = b ^ c ^ d;
        if (i < 20)
            f = (b & c) | (~b & d);
        else if (i >= 40 && i < 60)
            f = (b & c) | (b & d) | (c & d);
        uint32_t t = rol(a, 5) + f + e + k[i / 20] + w[i];
        e = d;
        d = c;
        c = rol(b, 30);
        b = a;
        a = t;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

/* FIPS 180-4; len is at most 119, the key and the protocol's constant: two blocks. */
static void sha1(const unsigned char *data, size_t len, unsigned char ret[20])
{
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    unsigned char padded[128] = {0};
    PST_ASSERT(len <= 119);
    size_t total = len < 56 ? 64 : 128;
    memcpy(padded, data, len);
    padded[len] = 0x80;
    padded[total - 2] = (unsigned char)(len * 8 >> 8);
    padded[total - 1] = (unsigned char)(len * 8);
    for (size_t at = 0; at < total; at += 64)
        sha1_block(h, padded + at);
    for (int i = 0; i < 20; i++)
        ret[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
}

bool http_ws_accept(const char *key, char ret_accept[WS_ACCEPT_ROOM])
{
    static const char constant[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    unsigned char text[64], digest[20];
    size_t n = 0;
    char *bytes = strlen(key) == 24 ? pst_base64_decode(key, &n) : NULL;
    bool valid = bytes && n == 16;
    free(bytes);
    if (!valid)
        return false;
    memcpy(text, key, 24);
    memcpy(text + 24, constant, sizeof constant - 1);
    sha1(text, 24 + sizeof constant - 1, digest);
    char *accept = pst_base64(digest, sizeof digest);
    PST_ASSERT(strlen(accept) == WS_ACCEPT_ROOM - 1);
    memcpy(ret_accept, accept, WS_ACCEPT_ROOM);
    free(accept);
    return true;
}

/* ---- frames ---------------------------------------------------------------------------------------------------------------- */

size_t http_ws_head(unsigned char ret_head[WS_HEAD_MAX], int opcode, uint64_t len)
{
    ret_head[0] = (unsigned char)(0x80 | opcode);
    int bytes = 0;
    if (len < 126)
        ret_head[1] = (unsigned char)len;
    else if (len < 65536) {
        ret_head[1] = 126;
        bytes = 2;
    } else {
        ret_head[1] = 127;
        bytes = 8;
    }
    for (int i = 0; i < bytes; i++)
        ret_head[2 + i] = (unsigned char)(len >> (8 * (bytes - 1 - i)));
    return 2 + (size_t)bytes;
}

static bool is_control(const http_ws_reader *r)
{
    return r->head[0] & 8;
}

static size_t length_bytes(const http_ws_reader *r)
{
    unsigned n = r->head[1] & 0x7f;
    if (n == 127)
        return 8;
    return n == 126 ? 2 : 0;
}

/* The first two bytes say what kind of a frame it is, and what it may be. */
static int weigh(const http_ws_reader *r)
{
    int opcode = r->head[0] & 15;
    bool fin = r->head[0] & 0x80, known = opcode <= WS_BINARY || (opcode >= WS_CLOSE && opcode <= WS_PONG);
    if ((r->head[0] & 0x70) || !known || !(r->head[1] & 0x80))
        return -WS_PROTOCOL;
    if (is_control(r))
        return fin && (r->head[1] & 0x7f) <= WS_CONTROL_MAX ? 0 : -WS_PROTOCOL;
    return (opcode == WS_CONTINUATION) == r->in_message ? 0 : -WS_PROTOCOL;
}

/* The whole head is there. */
static int begin_payload(http_ws_reader *r)
{
    size_t n = length_bytes(r);
    uint64_t len = n ? 0 : r->head[1] & 0x7f;
    for (size_t i = 0; i < n; i++)
        len = len << 8 | r->head[2 + i];
    if ((n == 2 && len < 126) || (n == 8 && (len < 65536 || len >> 63)))
        return -WS_PROTOCOL;
    if (!is_control(r)) {
        if (len > WS_MESSAGE_MAX || r->message + len > WS_MESSAGE_MAX)
            return -WS_TOO_BIG;
        r->message += len;
        r->in_message = !(r->head[0] & 0x80);
    }
    r->left = len;
    r->at = 0;
    r->control_len = 0;
    r->in_payload = true;
    return 0;
}

static bool end_frame(http_ws_reader *r, http_ws_control fn, void *arg)
{
    bool go = !is_control(r) || fn(arg, r->head[0] & 15, r->control, r->control_len);
    if (!is_control(r) && !r->in_message)
        r->message = 0;
    r->in_payload = false;
    r->head_len = 0;
    return go;
}

int http_ws_feed(http_ws_reader *r, const unsigned char *data, size_t len, http_ws_control fn, void *arg)
{
    for (size_t i = 0; i < len || (r->in_payload && !r->left);) {
        if (!r->in_payload) {
            PST_ASSERT(r->head_len < sizeof r->head);
            r->head[r->head_len++] = data[i++];
            int rc = r->head_len == 2 ? weigh(r) : 0;
            if (!rc && r->head_len >= 2 && r->head_len == 2 + length_bytes(r) + 4)
                rc = begin_payload(r);
            if (rc < 0)
                return rc;
            continue;
        }
        if (r->left && is_control(r)) {
            PST_ASSERT(r->control_len < sizeof r->control);
            r->control[r->control_len++] = data[i] ^ r->head[r->head_len - 4 + r->at % 4];
            i++;
            r->at++;
            r->left--;
        } else if (r->left) {
            uint64_t n = len - i < r->left ? len - i : r->left;
            i += n;
            r->left -= n;
        }
        if (!r->left && !end_frame(r, fn, arg))
            return 0;
    }
    return 0;
}

int http_ws_close_code(const unsigned char *payload, size_t len)
{
    if (!len)
        return WS_NO_CODE;
    int code = len >= 2 ? payload[0] << 8 | payload[1] : 0;
    bool told = (code >= 1000 && code <= 1014 && code != 1004 && code != WS_NO_CODE && code != 1006) || (code >= 3000 && code <= 4999);
    return told ? code : WS_PROTOCOL;
}
