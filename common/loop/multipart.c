/* multipart.c - one pass from delimiter to delimiter. The whole body is there (the server's limit holds it), so a delimiter is looked for by memmem and
 * no state is kept between pieces. File names are not read: nothing here is ever stored under a name that a client chose. */
#include "common/loop/multipart.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { BOUNDARY_MAX = 70, HEAD_MAX = 4096 }; /* RFC 2046: 70 characters */

static int malformed(pst_err *err, const char *why)
{
    return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "http", 0, "the multipart body is malformed: %s", why);
}

/* The value of name in `form-data; name="x"; …` as it stands between its quotes; false where there is none, or one that does not fit. */
static bool param(const char *p, const char *end, const char *name, char *ret, size_t room)
{
    size_t n = strlen(name);
    while (p < end) {
        const char *semicolon = memchr(p, ';', (size_t)(end - p));
        if (!semicolon)
            return false;
        p = semicolon + 1;
        while (p < end && (*p == ' ' || *p == '\t'))
            p++;
        bool found = (size_t)(end - p) > n && !strncasecmp(p, name, n) && p[n] == '=';
        const char *eq = memchr(p, '=', (size_t)(end - p));
        if (!eq)
            return false;
        const char *from = eq + 1, *to;
        if (from < end && *from == '"') {
            for (to = ++from; to < end && *to != '"'; to++)
                if (*to == '\\' && to + 1 < end)
                    to++;
            if (to >= end)
                return false; /* the quote is not closed */
        } else {
            for (to = from; to < end && *to != ';' && *to != ' ' && *to != '\t'; to++)
                ;
        }
        if (found) {
            size_t len = (size_t)(to - from);
            if (!len || len >= room)
                return false;
            memcpy(ret, from, len);
            ret[len] = 0;
            return true;
        }
        p = to;
    }
    return false;
}

static bool is_boundary(const char *s)
{
    for (const char *p = s; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("'()+_,-./:=? ", *p))
            return false;
    return s[strlen(s) - 1] != ' ';
}

/* Where the delimiter begins, at or after p; *ret_after is behind its line, *ret_last says that it is the closing one. NULL: there is none. A line that
 * only begins like it is data. */
static const char *find(const char *p, const char *end, const char *delimiter, size_t n, const char **ret_after, bool *ret_last)
{
    while ((p = memmem(p, (size_t)(end - p), delimiter, n))) {
        const char *q = p + n;
        if (end - q >= 2 && q[0] == '-' && q[1] == '-') {
            *ret_last = true;
            *ret_after = q + 2;
            return p;
        }
        while (q < end && (*q == ' ' || *q == '\t')) /* padding that transports may add */
            q++;
        if (end - q >= 2 && q[0] == '\r' && q[1] == '\n') {
            *ret_last = false;
            *ret_after = q + 2;
            return p;
        }
        p++;
    }
    return NULL;
}

/* The part's head [p, end), lines that end with CRLF. */
static int read_head(const char *p, const char *end, pst_part *ret, pst_err *err)
{
    static const char field[] = "Content-Disposition:";
    bool named = false;
    while (p < end) {
        const char *stop = memmem(p, (size_t)(end - p), "\r\n", 2);
        PST_ASSERT(stop);
        for (const char *q = p; q < stop; q++)
            if ((unsigned char)*q < 0x20 && *q != '\t')
                return malformed(err, "a control character in a part's head");
        if ((size_t)(stop - p) > sizeof field - 1 && !strncasecmp(p, field, sizeof field - 1)) {
            if (named)
                return malformed(err, "a part has two Content-Disposition");
            if (!param(p, stop, "name", ret->name, sizeof ret->name))
                return malformed(err, "a part has no name, or one longer than 63 bytes");
            named = true;
        }
        p = stop + 2;
    }
    return named ? 0 : malformed(err, "a part has no Content-Disposition");
}

/* A part that begins at p with its head; its data end where delimiter begins. */
static int read_part(const char *p, const char *end, pst_part *ret, pst_err *err)
{
    size_t window = (size_t)(end - p) < HEAD_MAX ? (size_t)(end - p) : HEAD_MAX;
    const char *blank = memmem(p, window, "\r\n\r\n", 4);
    if (!blank)
        return malformed(err, "a part's head does not end, or is longer than 4,096 bytes");
    *ret = (pst_part){.data = {blank + 4, (size_t)(end - blank - 4)}};
    return read_head(p, blank + 2, ret, err);
}

int pst_multipart_parse(const char *content_type, pst_slice body, pst_part *parts, size_t max, size_t *ret_n, pst_err *err)
{
    char boundary[BOUNDARY_MAX + 1], delimiter[BOUNDARY_MAX + 5] = "\r\n--";
    const char *type = content_type ? content_type : "";
    if (strncasecmp(type, "multipart/form-data", 19) || !param(type, type + strlen(type), "boundary", boundary, sizeof boundary) ||
        !is_boundary(boundary))
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "http", 0,
                           "the body must be multipart/form-data with a boundary of at most %d characters", BOUNDARY_MAX);
    memcpy(delimiter + 4, boundary, strlen(boundary) + 1);
    size_t n = 0, len = strlen(delimiter);
    const char *begin = body.data, *end = begin + body.len, *p = NULL;
    bool last = false;
    /* The first delimiter may stand at the very beginning, without a line's end before it. */
    const char *first = find(begin, end, delimiter + 2, len - 2, &p, &last);
    if (!first || (first != begin && (first - begin < 2 || memcmp(first - 2, "\r\n", 2))))
        return malformed(err, "its boundary is not there");
    while (!last) {
        const char *after, *stop = find(p, end, delimiter, len, &after, &last);
        if (!stop)
            return malformed(err, "it ends before its last boundary");
        if (n == max)
            return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "http", 0, "the multipart body has more than %zu parts", max);
        int rc = read_part(p, stop, &parts[n], err);
        if (rc < 0)
            return rc;
        if (pst_part_find(parts, n, parts[n].name)) /* which of two was meant cannot be known */
            return malformed(err, "two parts have the same name");
        n++;
        p = after;
    }
    *ret_n = n;
    return 0;
}

const pst_part *pst_part_find(const pst_part *parts, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(parts[i].name, name))
            return &parts[i];
    return NULL;
}
