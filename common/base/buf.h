/* buf.h - a growable run of bytes, always followed by a NUL so that text can be read in place.
 *
 *     pst_buf b = {0};
 *     pst_buf_printf(&b, "id=%d", 7);
 *     write(fd, b.data, b.len);
 *     pst_buf_done(&b);
 *
 * Growth failure aborts (PST_ASSERT): a process without memory is restarted, not limped along; callers that take
 * untrusted sizes check them against a named limit first. @thread any, one owner. */
#ifndef PST_BASE_BUF_H
#define PST_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pst_buf {
    char *data; /* NULL or NUL-terminated at data[len] */
    size_t len, cap;
} pst_buf;

/* Borrowed bytes; never outlives what it points into. */
typedef struct pst_slice {
    const void *data;
    size_t len;
} pst_slice;

void pst_buf_done(pst_buf *b);                 /* frees, zeroes; NULL-safe */
void pst_buf_clear(pst_buf *b);                /* len = 0, keeps memory */
void pst_buf_reserve(pst_buf *b, size_t more); /* room for more bytes and the NUL */
void pst_buf_add(pst_buf *b, const void *data, size_t len);
void pst_buf_adds(pst_buf *b, const char *text);
void pst_buf_addc(pst_buf *b, char c);
void pst_buf_printf(pst_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void pst_buf_vprintf(pst_buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
char *pst_buf_steal(pst_buf *b); /* the text moves out ("" if empty); free() it */

/* malloc family that aborts instead of returning NULL. */
void *pst_alloc(size_t n); /* zeroed */
void *pst_realloc(void *p, size_t n);
char *pst_strdup(const char *s); /* NULL gives NULL */
char *pst_strndup(const char *s, size_t n);
char *pst_sprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
