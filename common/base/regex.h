/* regex.h - regular expressions as Python's `re` has them ((?P<name>…), look-ahead, lazy repeats), by libpcre2, opened at first use. For patterns and
 * texts of strangers: steps and memory of a match are bounded, so a pattern that would search for ever says PST_ELIMIT.
 * @thread any; one object one thread at a time. */
#ifndef PST_BASE_REGEX_H
#define PST_BASE_REGEX_H

#include "common/base/err.h"

#include <stdbool.h>

#define PST_REGEX_BYTES_MAX (16 << 10) /* of a pattern */

typedef struct pst_regex pst_regex;

/* The match begins where the text does; a dot takes newlines, ^ and $ stand at every line. PST_EINVAL/DATA with what is wrong and where. */
int pst_regex_new(const char *pattern, pst_regex **ret_regex, pst_err *err);
void pst_regex_free(pst_regex *x);
bool pst_regex_has(const pst_regex *x, const char *group);

typedef enum { PST_REGEX_NO, PST_REGEX_MORE, PST_REGEX_YES } pst_regex_verdict;
/* MORE: no match, but text that goes on might give one. text: UTF-8; other bytes never match. PST_ELIMIT: too many steps. */
int pst_regex_match(pst_regex *x, const char *text, size_t len, pst_regex_verdict *ret_verdict);
/* Of the last YES: where the match ends; what a named group took (borrowed from the text; false: it took no part). */
size_t pst_regex_end(const pst_regex *x);
bool pst_regex_group(const pst_regex *x, const char *text, const char *group, const char **ret_at, size_t *ret_len);

#endif
