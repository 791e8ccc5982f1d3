/* term.h - terminals: what comes from learners, records and other people is shown, never obeyed.
 *
 *     pst_term_init();                                   // main, once: from here on stdout and stderr are safe where they are terminals
 *     printf("%s%s%s\n", pst_tint(33), text, pst_tint(0)); // our own colours pass, those in the text do not
 *
 * On a terminal every C0 and C1 control (tab and newline excepted), DEL, bidirectional control, line separator and byte that is no UTF-8 appears as
 * text (^[, <U+202E>, \x9b). Pipes and files get the bytes as they are. @thread main for init and tint, any for the rest. */
#ifndef PST_BASE_TERM_H
#define PST_BASE_TERM_H

#include "common/base/buf.h"

void pst_term_init(void);
/* The escape sequence of a colour (SGR number: 0, 1, 2, 31 to 36), marked as ours where a terminal is watched. */
const char *pst_tint(int sgr);
/* Appends the text with its controls made visible. */
void pst_term_show(pst_buf *to, const char *text, size_t len);
/* Appends a stranger's text as part of one line of a message: letters of all languages stay, newlines and tabs are controls like the others, a quotation
 * mark is \". What is longer than `most` bytes so ends with a whole character and "…". */
void pst_term_quote(pst_buf *to, const char *text, size_t len, size_t most);

#endif
