/* http_parse.c - one pass over bytes that are in memory already; lines are cut in place, nothing is copied. Every refusal carries the status
 * that the client is to get and its reason. Fields that decide about framing are taken once and in one spelling only. */
#include "common/loop/http_parse.h"

#include "common/base/err.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static bool is_token(unsigned char c)
{
    return isalnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static int refuse(int status, const char **ret_why, const char *why)
{
    *ret_why = why;
    return -status;
}

long http_head_find(const char *data, size_t len, size_t limit, size_t *scanned, const char **ret_why)
{
    for (size_t i = *scanned; i < len; i++) {
        if (i >= limit)
            return refuse(431, ret_why, "the request's head is too large");
        unsigned char c = (unsigned char)data[i];
        if (c == '\n') {
            if (i == 0 || data[i - 1] != '\r')
                return refuse(400, ret_why, "a line ends with a bare LF");
            if (i >= 3 && data[i - 2] == '\n')
                return (long)i + 1;
        } else if (i > 0 && data[i - 1] == '\r') {
            return refuse(400, ret_why, "a bare CR in the head");
        } else if (c == 0) {
            return refuse(400, ret_why, "a NUL in the head");
        }
    }
    *scanned = len;
    return 0;
}

/* Cuts the line at *p (ending in CRLF) and moves *p behind it. */
static char *take_line(char **p, char *end)
{
    char *line = *p;
    char *cr = memchr(line, '\r', (size_t)(end - line));
    if (!cr || cr + 1 >= end || cr[1] != '\n')
        return NULL;
    *cr = 0;
    *p = cr + 2;
    return line;
}

static int parse_request_line(char *line, http_head *h, const char **ret_why)
{
    char *p = line;
    h->method = p;
    while (is_token((unsigned char)*p))
        p++;
    if (p == h->method || p - h->method > 20 || *p != ' ')
        return refuse(400, ret_why, "the request line has no proper method");
    *p++ = 0;
    h->target = p;
    while ((unsigned char)*p > 0x20 && (unsigned char)*p < 0x7f)
        p++;
    if (*p != ' ')
        return refuse(400, ret_why, "the request target holds a character that is not allowed");
    if (p - h->target > PST_HTTP_TARGET_MAX)
        return refuse(414, ret_why, "the request target is longer than 8192 bytes");
    *p++ = 0;
    if (strncmp(p, "HTTP/", 5) != 0)
        return refuse(400, ret_why, "the request line does not end with HTTP/1.1");
    if (!strcmp(p, "HTTP/1.1"))
        h->minor = 1;
    else if (strcmp(p, "HTTP/1.0"))
        return refuse(505, ret_why, "this server speaks HTTP/1.1 and HTTP/1.0");
    bool star = !strcmp(h->target, "*") && !strcmp(h->method, "OPTIONS");
    if (h->target[0] != '/' && !star)
        return refuse(400, ret_why, "the request target must be a path");
    return 0;
}

static int parse_field(char *line, http_field *ret, const char **ret_why)
{
    if (*line == ' ' || *line == '\t')
        return refuse(400, ret_why, "a folded header line");
    char *p = line;
    while (is_token((unsigned char)*p))
        p++;
    if (p == line || *p != ':')
        return refuse(400, ret_why, "a header name holds a character that is not allowed");
    *p++ = 0;
    while (*p == ' ' || *p == '\t')
        p++;
    char *end = p + strlen(p);
    while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *end = 0;
    for (const char *q = p; *q; q++)
        if (((unsigned char)*q < 0x20 && *q != '\t') || *q == 0x7f)
            return refuse(400, ret_why, "a header value holds a control character");
    *ret = (http_field){line, p};
    return 0;
}

static int parse_length(const char *v, http_head *h, const char **ret_why)
{
    size_t n = strlen(v);
    if (n == 0 || strspn(v, "0123456789") != n)
        return refuse(400, ret_why, "Content-Length is not a number");
    if (n > 18)
        return refuse(413, ret_why, "Content-Length is beyond all limits");
    h->length = 0;
    for (; *v; v++)
        h->length = h->length * 10 + (uint64_t)(*v - '0');
    h->has_length = true;
    return 0;
}

bool http_list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; *p;) {
        p += strspn(p, " \t,");
        size_t len = strcspn(p, ",");
        size_t cut = len;
        while (cut && (p[cut - 1] == ' ' || p[cut - 1] == '\t'))
            cut--;
        if (cut == n && !strncasecmp(p, word, n))
            return true;
        p += len;
    }
    return false;
}

/* The fields that decide where the request ends and to whom it goes may appear once only. */
static int weigh_field(const http_field *f, http_head *h, const char **ret_why)
{
    if (!strcasecmp(f->name, "Content-Length")) {
        if (h->has_length)
            return refuse(400, ret_why, "Content-Length is given twice");
        return parse_length(f->value, h, ret_why);
    }
    if (!strcasecmp(f->name, "Transfer-Encoding")) {
        if (h->chunked)
            return refuse(400, ret_why, "Transfer-Encoding is given twice");
        if (h->minor == 0)
            return refuse(400, ret_why, "Transfer-Encoding in HTTP/1.0");
        if (strcasecmp(f->value, "chunked"))
            return refuse(501, ret_why, "the only transfer coding understood here is chunked");
        h->chunked = true;
    } else if (!strcasecmp(f->name, "Host")) {
        if (h->host)
            return refuse(400, ret_why, "Host is given twice");
        h->host = f->value;
    } else if (!strcasecmp(f->name, "Connection")) {
        h->close |= http_list_has(f->value, "close");
        h->keep_alive |= http_list_has(f->value, "keep-alive");
    } else if (!strcasecmp(f->name, "Expect")) {
        if (strcasecmp(f->value, "100-continue"))
            return refuse(417, ret_why, "the only expectation understood here is 100-continue");
        h->expect_continue = h->minor == 1;
    }
    return 0;
}

int http_head_parse(char *head, size_t len, http_head *ret_head, const char **ret_why)
{
    http_head *h = ret_head;
    memset(h, 0, sizeof *h);
    char *p = head, *end = head + len;
    char *line = take_line(&p, end);
    int rc = line ? parse_request_line(line, h, ret_why) : refuse(400, ret_why, "no request line");
    if (rc < 0)
        return rc;
    for (;;) {
        line = take_line(&p, end);
        if (!line)
            return refuse(400, ret_why, "the head does not end with an empty line");
        if (!*line)
            break;
        if (h->n_fields == PST_HTTP_FIELDS_MAX)
            return refuse(431, ret_why, "more than 64 header fields");
        rc = parse_field(line, &h->fields[h->n_fields], ret_why);
        if (rc == 0)
            rc = weigh_field(&h->fields[h->n_fields], h, ret_why);
        if (rc < 0)
            return rc;
        h->n_fields++;
    }
    if (h->chunked && h->has_length)
        return refuse(400, ret_why, "Content-Length together with Transfer-Encoding");
    if (!h->host && h->minor == 1)
        return refuse(400, ret_why, "no Host");
    return 0;
}

const char *http_head_field(const http_head *h, const char *name)
{
    for (size_t i = 0; i < h->n_fields; i++)
        if (!strcasecmp(h->fields[i].name, name))
            return h->fields[i].value;
    return NULL;
}

bool http_host_parse(const char *host, char ret_name[256])
{
    size_t n = 0;
    const char *p = host;
    const char *allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    bool bracket = *p == '[';
    if (bracket) {
        p++;
        allowed = "0123456789abcdefABCDEF:.";
    }
    for (; *p && strchr(allowed, *p); p++) {
        if (n == 255)
            return false;
        ret_name[n++] = (char)tolower((unsigned char)*p);
    }
    ret_name[n] = 0;
    if (n == 0 || (bracket && *p++ != ']'))
        return false;
    if (!*p)
        return true;
    if (*p++ != ':')
        return false;
    size_t digits = strspn(p, "0123456789");
    return digits <= 5 && p[digits] == 0;
}

/* ---- paths ----------------------------------------------------------------------------------------------------------------- */

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes [p, end) to out, NUL-terminated; returns the end of the text in out or NULL on a bad escape. */
static char *decode(const char *p, const char *end, char *out, bool plus_is_space, bool *ret_slash)
{
    while (p < end) {
        char c = *p++;
        if (c == '%') {
            int hi = p < end ? hex(p[0]) : -1;
            int lo = hi >= 0 && p + 1 < end ? hex(p[1]) : -1;
            if (lo < 0)
                return NULL;
            c = (char)(hi << 4 | lo);
            p += 2;
            if (c == 0)
                return NULL;
            if (c == '/' && ret_slash)
                *ret_slash = true;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        *out++ = c;
    }
    *out = 0;
    return out;
}

static int parse_queries(const char *p, char *room, http_parts *path, const char **ret_why)
{
    while (*p) {
        size_t len = strcspn(p, "&");
        if (len == 0) {
            p++;
            continue;
        }
        if (path->n_queries == PST_HTTP_QUERIES_MAX)
            return refuse(400, ret_why, "more than 64 query parameters");
        const char *end = p + len;
        const char *eq = memchr(p, '=', len);
        http_field *q = &path->queries[path->n_queries++];
        q->name = room;
        room = decode(p, eq ? eq : end, room, true, NULL);
        if (!room)
            return refuse(400, ret_why, "a bad escape in the query");
        q->value = eq ? ++room : room;
        if (eq)
            room = decode(eq + 1, end, room, true, NULL);
        if (!room)
            return refuse(400, ret_why, "a bad escape in the query");
        room++;
        p = *end ? end + 1 : end;
    }
    return 0;
}

int http_path_parse(const char *target, char *room, http_parts *ret_path, const char **ret_why)
{
    http_parts *path = ret_path;
    memset(path, 0, sizeof *path);
    const char *p = target + 1;
    size_t total = strcspn(p, "?#");
    if (p[total] == '#')
        return refuse(400, ret_why, "a fragment in the request target");
    const char *end = p + total;
    if (memchr(p, ';', total) || memchr(p, '\\', total))
        return refuse(400, ret_why, "the path holds ';' or '\\'");
    while (p < end) {
        const char *slash = memchr(p, '/', (size_t)(end - p));
        const char *stop = slash ? slash : end;
        if (path->n_segments == PST_HTTP_SEGMENTS_MAX)
            return refuse(414, ret_why, "the path has more than 32 segments");
        size_t i = path->n_segments++;
        path->segments[i] = room;
        room = decode(p, stop, room, false, &path->encoded_slash[i]);
        if (!room)
            return refuse(400, ret_why, "a bad escape in the path");
        room++;
        const char *s = path->segments[i];
        if (!strcmp(s, ".") || !strcmp(s, "..") || strchr(s, '\\') || (path->encoded_slash[i] && strstr(s, "..")))
            return refuse(400, ret_why, "the path holds '.', '..' or '\\'");
        p = slash ? slash + 1 : end;
    }
    return *end == '?' ? parse_queries(end + 1, room, path, ret_why) : 0;
}

/* ---- chunked bodies -------------------------------------------------------------------------------------------------------- */

enum { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER_START, TRAILER, TRAILER_LF, END_LF, DONE };
#define SKIPPED_MAX 4096 /* extensions and trailers, all together: nobody needs them, attackers love them */

/* One byte outside chunk data. */
static int chunk_step(http_chunks *c, unsigned char b, uint64_t limit, const char **ret_why)
{
    switch (c->state) {
    case SIZE:
        if (hex((char)b) >= 0) {
            if (++c->digits > 15)
                return refuse(413, ret_why, "a chunk size beyond all limits");
            c->left = c->left << 4 | (unsigned)hex((char)b);
            return c->total + c->left > limit ? refuse(413, ret_why, "the body is larger than allowed here") : 0;
        }
        if (!c->digits || (b != '\r' && b != ';' && b != ' ' && b != '\t'))
            return refuse(400, ret_why, "a malformed chunk size");
        c->state = b == '\r' ? SIZE_LF : EXTENSION;
        return 0;
    case EXTENSION:
    case TRAILER:
        if (b == '\r') {
            c->state = c->state == EXTENSION ? SIZE_LF : TRAILER_LF;
            return 0;
        }
        if (b < 0x20 && b != '\t')
            return refuse(400, ret_why, "a control character in a chunk extension or trailer");
        return ++c->skipped > SKIPPED_MAX ? refuse(413, ret_why, "chunk extensions and trailers are too long") : 0;
    case TRAILER_START:
        c->state = b == '\r' ? END_LF : TRAILER;
        return b < 0x21 && b != '\r' ? refuse(400, ret_why, "a malformed trailer") : 0;
    case DATA_CR: c->state = DATA_LF; return b == '\r' ? 0 : refuse(400, ret_why, "a chunk is longer than its size says");
    }
    if (b != '\n') /* the four LF states */
        return refuse(400, ret_why, "a chunk line without LF");
    if (c->state == SIZE_LF)
        c->state = c->left ? DATA : TRAILER_START;
    else if (c->state == DATA_LF)
        c->state = SIZE;
    else
        c->state = c->state == END_LF ? DONE : TRAILER_START;
    if (c->state == SIZE)
        c->digits = 0;
    return 0;
}

long http_chunks_feed(http_chunks *c, const char *data, size_t len, uint64_t limit, void (*add)(void *arg, const char *data, size_t len),
                      void *arg, bool *ret_done, const char **ret_why)
{
    size_t i = 0;
    while (i < len && c->state != DONE) {
        if (c->state == DATA) {
            size_t n = len - i < c->left ? len - i : (size_t)c->left;
            add(arg, data + i, n);
            i += n;
            c->left -= n;
            c->total += n;
            PST_ASSERT(c->total <= limit); /* a size is refused before its data */
            if (!c->left)
                c->state = DATA_CR;
            continue;
        }
        int rc = chunk_step(c, (unsigned char)data[i++], limit, ret_why);
        if (rc < 0)
            return rc;
    }
    *ret_done = c->state == DONE;
    return (long)i;
}
