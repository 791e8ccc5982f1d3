/* lines.c - cuts bytes into lines of valid UTF-8, because Avro strings and JSON are that and learners write anything. What is no UTF-8 becomes
 * U+FFFD. By hand, for a stream: a character or a line may come in two reads. */
#include "lcm/supervisor/lines.h"

#include <string.h>

/* Length of the valid UTF-8 sequence at p, 0 if there is none (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF). */
static size_t sequence(const unsigned char *p, size_t left)
{
    size_t n = 0;
    if (*p < 0x80)
        n = 1;
    else if (*p >= 0xc2 && *p <= 0xdf)
        n = 2;
    else if (*p >= 0xe0 && *p <= 0xef)
        n = 3;
    else if (*p >= 0xf0 && *p <= 0xf4)
        n = 4;
    if (!n || n > left || !*p)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

void sup_utf8_add(pst_buf *out, const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + len, *good = p;
    while (p < end) {
        size_t n = sequence(p, (size_t)(end - p));
        if (n) {
            p += n;
            continue;
        }
        pst_buf_add(out, good, (size_t)(p - good));
        pst_buf_adds(out, "\xef\xbf\xbd");
        good = ++p;
    }
    pst_buf_add(out, good, (size_t)(end - good));
}

static void emit(sup_lines *l, const char *data, size_t len, bool more)
{
    if (!more && len && data[len - 1] == '\r')
        len--;
    const char *over = len ? memrchr(data, '\r', len) : NULL;
    if (over) {
        len -= (size_t)(over + 1 - data);
        data = over + 1;
    }
    pst_buf out = {0};
    if (l->continued)
        pst_buf_adds(&out, "[continued] ");
    sup_utf8_add(&out, data, len);
    if (more)
        pst_buf_adds(&out, " [continues]");
    l->continued = more;
    l->line(l->arg, out.data ? out.data : "", out.len);
    pst_buf_done(&out);
}

/* A piece ends between characters, not inside one. */
static size_t cut_before_character(const char *data, size_t len)
{
    for (size_t back = 0; back < 4 && back < len; back++)
        if (((unsigned char)data[len - back] & 0xc0) != 0x80)
            return len - back;
    return len;
}

void sup_lines_feed(sup_lines *l, const char *data, size_t len)
{
    while (len) {
        const char *newline = memchr(data, '\n', len);
        size_t n = newline ? (size_t)(newline - data) : len;
        size_t room = PST_LINE_MAX + 4 - l->part.len;
        if (newline && !l->part.len && n <= PST_LINE_MAX) { /* the usual case: a whole line, nothing copied */
            emit(l, data, n, false);
            data += n + 1;
            len -= n + 1;
            continue;
        }
        size_t take = n < room ? n : room;
        pst_buf_add(&l->part, data, take);
        data += take;
        len -= take;
        while (l->part.len > PST_LINE_MAX) {
            size_t cut = cut_before_character(l->part.data, PST_LINE_MAX);
            emit(l, l->part.data, cut, true);
            memmove(l->part.data, l->part.data + cut, l->part.len - cut);
            l->part.len -= cut;
        }
        if (newline && take == n) {
            emit(l, l->part.data ? l->part.data : "", l->part.len, false);
            pst_buf_clear(&l->part);
            data++;
            len--;
        }
    }
}

void sup_lines_end(sup_lines *l)
{
    if (l->part.len || l->continued)
        emit(l, l->part.data ? l->part.data : "", l->part.len, false);
    pst_buf_done(&l->part);
}
