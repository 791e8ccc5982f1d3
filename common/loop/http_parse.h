/* http_parse.h - bounded, strict parsing of HTTP/1.1 request heads, chunked bodies and paths; no I/O, no libevent, fuzzable.
 * Strict where RFC 9112 lets a recipient be lenient: two parsers that disagree about where a request ends are how requests are smuggled.
 * @thread any. */
#ifndef PST_LOOP_HTTP_PARSE_H
#define PST_LOOP_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PST_HTTP_FIELDS_MAX   64
#define PST_HTTP_TARGET_MAX   8192
#define PST_HTTP_SEGMENTS_MAX 32
#define PST_HTTP_QUERIES_MAX  64

typedef struct http_field {
    char *name, *value;
} http_field;

typedef struct http_head {
    char *method, *target; /* in place: all texts point into the head's bytes */
    int minor;             /* HTTP/1.minor */
    http_field fields[PST_HTTP_FIELDS_MAX];
    size_t n_fields;
    const char *host; /* NULL only in HTTP/1.0 */
    bool chunked, has_length, expect_continue, close, keep_alive;
    uint64_t length;
} http_head;

/* Is there a whole head in data? > 0: its length with the empty line; 0: not yet; < 0: minus the status to answer, why says what for.
 * *scanned (start with 0) remembers how far it looked, so that slow arrival costs linear time. */
long http_head_find(const char *data, size_t len, size_t limit, size_t *scanned, const char **ret_why);
/* Tokenises head (writable, head[len] == 0) in place. 0, or minus the status. */
int http_head_parse(char *head, size_t len, http_head *ret_head, const char **ret_why);
const char *http_head_field(const http_head *h, const char *name);
/* Is Host acceptable in form; ret_name (≥ 256 bytes) gets the host in lower case without port and brackets. */
bool http_host_parse(const char *host, char ret_name[256]);

/* Splits an origin-form target: decoded segments and query pairs, all in `room` (at least strlen(target) + 2 bytes, may not overlap). */
typedef struct http_parts {
    char *segments[PST_HTTP_SEGMENTS_MAX];
    bool encoded_slash[PST_HTTP_SEGMENTS_MAX];
    size_t n_segments; /* "/" has none; one trailing slash is ignored */
    http_field queries[PST_HTTP_QUERIES_MAX];
    size_t n_queries;
} http_parts;
int http_path_parse(const char *target, char *room, http_parts *ret_path, const char **ret_why);

/* Chunked bodies, fed piece by piece. */
typedef struct http_chunks {
    int state;
    uint64_t left; /* of the chunk at hand */
    unsigned digits, skipped;
    uint64_t total;
} http_chunks;
/* Consumes from data; calls add for body bytes. Returns bytes consumed (≤ len); *ret_done once the last chunk and trailers are over;
 * < 0: minus the status. Bodies over limit: -413. */
long http_chunks_feed(http_chunks *c, const char *data, size_t len, uint64_t limit, void (*add)(void *arg, const char *data, size_t len),
                      void *arg, bool *ret_done, const char **ret_why);

/* Is word one of a comma-separated list, whatever its case (Connection, Transfer-Encoding, Sec-WebSocket-Protocol)? */
bool http_list_has(const char *list, const char *word);

#endif
