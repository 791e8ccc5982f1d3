/* fuzz_http.c - request heads, paths and chunked bodies. Where bytes arrive in one piece or one by one must make no difference: a parser that
 * sees other requests then can be made to smuggle. */
#include "common/base/err.h"
#include "common/loop/http_parse.h"

#include <stdlib.h>
#include <string.h>

typedef struct seen {
    long head;
    int parsed, path, chunk_status;
    size_t body, used;
    uint64_t sum;
    bool done;
} seen;

static void add(void *arg, const char *data, size_t len)
{
    seen *s = arg;
    s->body += len;
    for (size_t i = 0; i < len; i++)
        s->sum = s->sum * 31 + (unsigned char)data[i];
}

static void parse_path(const char *target, seen *s)
{
    const char *why = NULL;
    char *room = malloc(strlen(target) + 2);
    http_parts parts;
    s->path = http_path_parse(target, room, &parts, &why);
    for (size_t i = 0; s->path == 0 && i < parts.n_segments; i++)
        PST_ASSERT(strcmp(parts.segments[i], "..") && !strchr(parts.segments[i], '\\'));
    for (size_t i = 0; s->path == 0 && i < parts.n_queries; i++)
        s->sum += strlen(parts.queries[i].name) + 3 * strlen(parts.queries[i].value);
    free(room);
}

static void feed(const char *data, size_t size, size_t step, seen *s)
{
    const char *why = NULL;
    size_t scanned = 0;
    for (size_t have = 0; have < size && s->head == 0;) {
        have = have + step < size ? have + step : size;
        s->head = http_head_find(data, have, 16384, &scanned, &why);
    }
    if (s->head <= 0)
        return;
    char *copy = malloc((size_t)s->head + 1), host[256];
    memcpy(copy, data, (size_t)s->head);
    copy[s->head] = 0;
    http_head h;
    s->parsed = http_head_parse(copy, (size_t)s->head, &h, &why);
    if (s->parsed == 0) {
        PST_ASSERT(!(h.chunked && h.has_length));
        if (h.host)
            http_host_parse(h.host, host);
        if (h.target[0] == '/')
            parse_path(h.target, s);
    }
    bool chunked = s->parsed == 0 && h.chunked;
    free(copy);
    http_chunks c = {0};
    for (size_t at = (size_t)s->head; chunked && at < size && !s->done && s->chunk_status == 0;) {
        size_t n = size - at < step ? size - at : step;
        long used = http_chunks_feed(&c, data + at, n, 1 << 16, add, s, &s->done, &why);
        if (used < 0)
            s->chunk_status = (int)used;
        else
            at += (size_t)used;
        s->used = at;
        PST_ASSERT(s->body <= 1 << 16);
    }
    if (s->chunk_status)
        s->used = s->body = s->sum = 0; /* how far a refused body got is nobody's business */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    seen whole = {0}, bytes = {0};
    feed((const char *)data, size, size ? size : 1, &whole);
    feed((const char *)data, size, 1, &bytes);
    PST_ASSERT(whole.head == bytes.head && whole.parsed == bytes.parsed && whole.path == bytes.path &&
               whole.chunk_status == bytes.chunk_status && whole.body == bytes.body && whole.used == bytes.used && whole.sum == bytes.sum &&
               whole.done == bytes.done);
    return 0;
}
