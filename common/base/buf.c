/* buf.c - growth by doubling, so that adding a byte at a time costs a constant each; the NUL behind the bytes is kept at every step,
 * not written on demand, so that data may be handed out at any moment. */
#include "common/base/buf.h"

#include "common/base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pst_buf_done(pst_buf *b)
{
    if (!b)
        return;
    free(b->data);
    memset(b, 0, sizeof *b);
}

void pst_buf_clear(pst_buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = 0;
}

void pst_buf_reserve(pst_buf *b, size_t more)
{
    PST_ASSERT(more < SIZE_MAX / 4 && b->len < SIZE_MAX / 4);
    size_t need = b->len + more + 1;
    if (need <= b->cap)
        return;
    PST_ASSERT(b->data ? b->len < b->cap : !b->len && !b->cap); /* the NUL is inside; a stolen buffer owns nothing */
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need)
        cap *= 2;
    b->data = pst_realloc(b->data, cap);
    b->cap = cap;
    b->data[b->len] = 0;
}

void pst_buf_add(pst_buf *b, const void *data, size_t len)
{
    pst_buf_reserve(b, len);
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
}

void pst_buf_adds(pst_buf *b, const char *text)
{
    pst_buf_add(b, text, strlen(text));
}

void pst_buf_addc(pst_buf *b, char c)
{
    pst_buf_add(b, &c, 1);
}

void pst_buf_vprintf(pst_buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    PST_ASSERT(n >= 0);
    pst_buf_reserve(b, (size_t)n);
    int written = vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
    PST_ASSERT(written == n); /* the arguments are the caller's alone: none grew between the two passes */
    b->len += (size_t)n;
    va_end(again);
}

void pst_buf_printf(pst_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    pst_buf_vprintf(b, fmt, ap);
    va_end(ap);
}

char *pst_buf_steal(pst_buf *b)
{
    pst_buf_reserve(b, 0);
    char *text = b->data;
    memset(b, 0, sizeof *b);
    return text;
}

void *pst_alloc(size_t n)
{
    void *p = calloc(1, n ? n : 1);
    PST_ASSERT(p);
    return p;
}

void *pst_realloc(void *p, size_t n)
{
    void *q = realloc(p, n ? n : 1);
    PST_ASSERT(q);
    return q;
}

char *pst_strndup(const char *s, size_t n)
{
    PST_ASSERT(n < SIZE_MAX && (s || !n));
    char *d = pst_alloc(n + 1);
    if (n)
        memcpy(d, s, n);
    return d;
}

char *pst_strdup(const char *s)
{
    return s ? pst_strndup(s, strlen(s)) : NULL;
}

char *pst_sprintf(const char *fmt, ...)
{
    pst_buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    pst_buf_vprintf(&b, fmt, ap);
    va_end(ap);
    return pst_buf_steal(&b);
}
