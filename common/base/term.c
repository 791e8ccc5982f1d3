/* term.c - stdout and stderr are replaced by streams of ours, so that no verb can forget: a filter at each of two hundred printf calls
 * would miss the next one. Our own colours carry a number drawn at start behind their ESC, which nobody else can write; the filter takes it out
 * again and turns every other ESC into text. */
#include "common/base/term.h"

#include "common/base/fs.h"
#include "common/base/hash.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MARK_LEN = 16, PENDING_MAX = 32, SGR_MAX = 40 };

typedef struct watched {
    int fd;
    bool tty;
    char pending[PENDING_MAX]; /* the beginning of a character, or of a colour of ours, whose rest has not come yet */
    size_t n_pending;
} watched;

static watched streams[2];
static char mark[1 + MARK_LEN + 1]; /* ESC and the number; empty = nothing is watched */
static char tints[SGR_MAX][MARK_LEN + 8];

/* Length of the UTF-8 character at p: 0 = none (RFC 3629: no overlong forms, no surrogates), -1 = its rest is missing. */
static int character(const unsigned char *p, size_t len, uint32_t *ret_code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int n = 0;
    if (p[0] < 0x80)
        n = 1;
    else if (p[0] >= 0xc2 && p[0] < 0xe0)
        n = 2;
    else if ((p[0] & 0xf0) == 0xe0)
        n = 3;
    else if (p[0] >= 0xf0 && p[0] < 0xf5)
        n = 4;
    uint32_t code = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if ((size_t)i >= len)
            return -1;
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3f);
    }
    if (!n || code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    *ret_code = code;
    return n;
}

static bool steers(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069) || (c >= 0xe0000 && c < 0xe0080) || c == 0xfeff;
}

/* One character as a person sees it; n as character() told, which is no more than 0 for a byte that begins none. Returns the bytes used. */
static size_t show_one(pst_buf *to, const unsigned char *p, int n, uint32_t c)
{
    if (n <= 0)
        pst_buf_printf(to, "\\x%02x", *p);
    else if (!steers(c))
        pst_buf_add(to, (const char *)p, (size_t)n);
    else if (c < 0x80)
        pst_buf_printf(to, "^%c", (char)(c ^ 0x40));
    else
        pst_buf_printf(to, "<U+%04X>", c);
    return n > 0 ? (size_t)n : 1;
}

/* How much of it is plain ASCII: most of every line, taken as a whole. */
static size_t plain(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && text[n] >= 0x20 && text[n] < 0x7f)
        n++;
    return n;
}

/* Handles what it can of the text; returns the bytes used: less than len when the last character is not whole (and more may come). */
static size_t show(pst_buf *to, const char *text, size_t len, bool more)
{
    size_t i = 0;
    while (i < len) {
        const unsigned char *p = (const unsigned char *)text + i;
        uint32_t c = 0;
        size_t left = len - i, whole = strlen(mark), run = plain(text + i, left);
        if (run) {
            pst_buf_add(to, text + i, run);
            i += run;
            continue;
        }
        if (*mark && *p == 0x1b && !memcmp(p, mark, left < whole ? left : whole)) {
            if (left < whole && more)
                return i;
            if (left >= whole) {
                pst_buf_addc(to, 0x1b);
                i += whole;
                continue;
            }
        }
        int n = character(p, left, &c);
        if (n < 0 && more)
            return i;
        if (n > 0 && (c == '\n' || c == '\t')) {
            pst_buf_addc(to, (char)c);
            i++;
        } else {
            i += show_one(to, p, n, c);
        }
    }
    return i;
}

void pst_term_show(pst_buf *to, const char *text, size_t len)
{
    show(to, text, len, false);
}

void pst_term_quote(pst_buf *to, const char *text, size_t len, size_t most)
{
    for (size_t i = 0, begun = to->len; i < len;) {
        const unsigned char *p = (const unsigned char *)text + i;
        size_t was = to->len;
        uint32_t c = 0;
        if (*p == '"') {
            pst_buf_adds(to, "\\\"");
            i++;
        } else {
            int n = character(p, len - i, &c);
            i += show_one(to, p, n, c);
        }
        if (to->len - begun > most) {
            to->len = was;
            pst_buf_adds(to, "…");
            return;
        }
    }
}

/* A pipe beside a terminal: bytes stay as they are, but for the mark in our colours. */
static size_t pass(pst_buf *to, const char *text, size_t len)
{
    size_t whole = strlen(mark);
    for (size_t i = 0; i < len;) {
        const char *esc = memchr(text + i, 0x1b, len - i);
        size_t n = esc ? (size_t)(esc - text) - i : len - i;
        pst_buf_add(to, text + i, n);
        i += n;
        if (!esc)
            break;
        size_t left = len - i;
        if (left < whole && !memcmp(esc, mark, left))
            return i;
        pst_buf_addc(to, 0x1b);
        i += left >= whole && !memcmp(esc, mark, whole) ? whole : 1;
    }
    return len;
}

static ssize_t on_write(void *arg, const char *data, size_t len)
{
    watched *w = arg;
    pst_buf in = {0}, out = {0};
    pst_buf_add(&in, w->pending, w->n_pending);
    pst_buf_add(&in, data, len);
    size_t used = w->tty ? show(&out, in.data, in.len, true) : pass(&out, in.data, in.len);
    w->n_pending = in.len - used;
    PST_ASSERT(w->n_pending < PENDING_MAX);
    memcpy(w->pending, in.data + used, w->n_pending);
    int rc = out.len ? pst_fs_write_all(w->fd, out.data, out.len) : 0;
    pst_buf_done(&in);
    pst_buf_done(&out);
    return rc < 0 ? 0 : (ssize_t)len; /* 0: the stream is in error (fopencookie(3)) */
}

static void flush_pending(void)
{
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        watched *w = &streams[i];
        pst_buf out = {0};
        if (w->tty)
            show(&out, w->pending, w->n_pending, false);
        else
            pst_buf_add(&out, w->pending, w->n_pending);
        if (out.len)
            pst_fs_write_all(w->fd, out.data, out.len);
        w->n_pending = 0;
        pst_buf_done(&out);
    }
}

static FILE *watch(int fd, int buffering)
{
    watched *w = &streams[fd - 1];
    *w = (watched){.fd = fd, .tty = isatty(fd)};
    FILE *f = fopencookie(w, "w", (cookie_io_functions_t){.write = on_write});
    PST_ASSERT(f);
    setvbuf(f, NULL, buffering, BUFSIZ);
    return f;
}

void pst_term_init(void)
{
    if (!isatty(1) && !isatty(2))
        return;
    uint8_t number[MARK_LEN / 2];
    pst_random(number, sizeof number);
    mark[0] = 0x1b;
    for (size_t i = 0; i < sizeof number; i++)
        snprintf(mark + 1 + 2 * i, 3, "%02x", number[i]);
    stdout = watch(1, isatty(1) ? _IOLBF : _IOFBF);
    stderr = watch(2, _IONBF);
    atexit(flush_pending);
}

const char *pst_tint(int sgr)
{
    PST_ASSERT(sgr >= 0 && sgr < SGR_MAX);
    snprintf(tints[sgr], sizeof tints[sgr], "%s[%dm", *mark ? mark : "\033", sgr);
    return tints[sgr];
}
