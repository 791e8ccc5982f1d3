/* lines.h - a stream of bytes from a learner → lines fit for an event: valid UTF-8, bounded, no NUL.
 *
 * A line longer than PST_LINE_MAX comes in pieces, each marked; of a line that a progress bar overwrote with carriage returns only what
 * stands there in the end is kept, as on a terminal. @thread one owner. */
#ifndef PST_LCM_SUPERVISOR_LINES_H
#define PST_LCM_SUPERVISOR_LINES_H

#include "common/base/buf.h"

#include <stdbool.h>

#define PST_LINE_MAX 65536 /* bytes of one piece, before invalid bytes grow to U+FFFD */

typedef struct sup_lines {
    pst_buf part;   /* the unfinished line */
    bool continued; /* earlier pieces of it went out */
    void (*line)(void *arg, const char *text, size_t len);
    void *arg;
} sup_lines;

void sup_lines_feed(sup_lines *l, const char *data, size_t len);
void sup_lines_end(sup_lines *l); /* the last line without a newline; frees */

/* Appends text as valid UTF-8: bad bytes and NUL become U+FFFD. */
void sup_utf8_add(pst_buf *out, const char *text, size_t len);

#endif
