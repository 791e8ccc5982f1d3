/* ws_frame.h - the websocket protocol below its server (http_ws.c): the key's answer, heads of frames, the reader of what a client sends. Pure.
 *
 *     http_ws_reader r = {0};
 *     int rc = http_ws_feed(&r, bytes, n, on_control, stream);     // 0, or -(close code)
 *
 * What clients say is not used by anybody here, so data frames are counted and thrown away; control frames are handed out. Refused as RFC 6455 asks:
 * frames without a mask, reserved bits and opcodes, lengths that are not the shortest, control frames in pieces or beyond 125 bytes, pieces of
 * no message (1002), messages beyond 64 KiB (1009). @thread any. */
#ifndef PST_LOOP_WS_FRAME_H
#define PST_LOOP_WS_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WS_CONTINUATION = 0, WS_TEXT = 1, WS_BINARY = 2, WS_CLOSE = 8, WS_PING = 9, WS_PONG = 10 };
enum { WS_NORMAL = 1000, WS_AWAY = 1001, WS_PROTOCOL = 1002, WS_NO_CODE = 1005, WS_POLICY = 1008, WS_TOO_BIG = 1009, WS_INTERNAL = 1011 };
enum { WS_HEAD_MAX = 10, WS_CONTROL_MAX = 125, WS_MESSAGE_MAX = 64 << 10, WS_ACCEPT_ROOM = 29 };

/* Sec-WebSocket-Accept of a Sec-WebSocket-Key; false: the key is not 16 bytes in base64. */
bool http_ws_accept(const char *key, char ret_accept[WS_ACCEPT_ROOM]);
/* The head of a whole frame as servers send it (no mask); returns its length. */
size_t http_ws_head(unsigned char ret_head[WS_HEAD_MAX], int opcode, uint64_t len);

typedef struct http_ws_reader {
    unsigned char head[14], control[WS_CONTROL_MAX];
    size_t head_len, control_len;
    uint64_t left, at, message; /* of the frame's payload; of the message so far */
    bool in_payload, in_message;
} http_ws_reader;

/* payload is unmasked, borrowed. Not called any more after a close frame. Returns whether reading goes on. */
typedef bool (*http_ws_control)(void *arg, int opcode, const unsigned char *payload, size_t len);
int http_ws_feed(http_ws_reader *r, const unsigned char *data, size_t len, http_ws_control fn, void *arg);
/* The code of a close frame's payload: WS_NO_CODE without one, WS_PROTOCOL for one that may not be sent. */
int http_ws_close_code(const unsigned char *payload, size_t len);

#endif
