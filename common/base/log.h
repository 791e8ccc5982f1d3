/* log.h - one line per thing that happened, on stderr: `time level component event= key=value…`.
 *
 *     pst_log(PST_LOG_INFO, "trainer", "event=admitted training_id=%s queue=%s", id, queue);
 *
 * Libraries log at debug only; programs log each condition once. Values with spaces are quoted by the caller ("\"%s\"").
 * Colour only on a terminal and without NO_COLOR. @thread any (one write per line). */
#ifndef PST_BASE_LOG_H
#define PST_BASE_LOG_H

#include "common/base/err.h"

typedef enum { PST_LOG_ERROR = 0, PST_LOG_WARN, PST_LOG_INFO, PST_LOG_DEBUG } pst_log_level;

void pst_log_set_level(pst_log_level max);
pst_log_level pst_log_get_level(void);
void pst_log(pst_log_level level, const char *component, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same error again and again (an outage) is logged at most once per 10 s and component. */
void pst_log_err(const char *component, const pst_err *err);
/* For verbs: "penstock <verb>: text" on stderr, without time; what a person at a terminal reads. */
void pst_say_err(const char *verb, const pst_err *err);

#endif
