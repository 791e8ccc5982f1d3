/* log.h - one line per thing that happened, on stderr: `time level component event= key=value…`.
 *
 *     const char *before = pst_log_job(r->training_id);        // until it is put back, this thread's lines are about that job
 *     pst_log(PST_LOG_INFO, "trainer", "event=admitted queue=%s", queue);     // … event=admitted queue=default training_id=training-…
 *     pst_log_job(before);
 *
 * Libraries log at debug only; programs log each condition once. Values with spaces are quoted by the caller ("\"%s\"").
 * Colour only on a terminal and without NO_COLOR. @thread any (one write per line). */
#ifndef PST_BASE_LOG_H
#define PST_BASE_LOG_H

#include "common/base/err.h"

typedef enum { PST_LOG_ERROR = 0, PST_LOG_WARN, PST_LOG_INFO, PST_LOG_DEBUG } pst_log_level;

void pst_log_set_level(pst_log_level max);
pst_log_level pst_log_get_level(void);
/* Debug by component: "bus,lcm" are those whose debug lines are said besides the level's; "all" = everybody's, NULL or "" = nobody's. A name that no
 * line has: PST_EINVAL with the list of them, and nothing is changed. */
int pst_log_set_debug(const char *components, pst_err *err);
/* Which job this thread's lines are about from here on (borrowed; NULL = none): a line whose format does not name a training_id gets it at its end.
 * Returns what it was, to be put back. */
const char *pst_log_job(const char *training_id);
/* The same for all threads of a process that is about one job, for good (copied). */
void pst_log_job_always(const char *training_id);
void pst_log(pst_log_level level, const char *component, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* For what others can cause as often as they like (a bad record, a refused command): the first PST_LOG_KIND_MAX lines of a kind in a minute are
 * logged, then one says that more follow, and at the minute's end (or at exit) how many there were. kind: the line's event. */
enum { PST_LOG_KIND_MAX = 10, PST_LOG_KIND_US = 60 * 1000000 };
void pst_log_limited(pst_log_level level, const char *component, const char *kind, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The rule behind it, with time as data. */
typedef struct pst_log_quota {
    int64_t since_us; /* of the minute; 0 = none yet */
    uint64_t seen;    /* in it */
} pst_log_quota;
/* One more at now_us: is it said? ret_more: how many of the minute before were not, when this call begins a new one. */
bool pst_log_quota_take(pst_log_quota *q, int64_t now_us, uint64_t *ret_more);
/* The same error again and again (an outage) is logged at most once per 10 s and component; errors of data are limited by kind, as above. */
void pst_log_err(const char *component, const pst_err *err);
/* For verbs: "penstock <verb>: text" on stderr, without time; what a person at a terminal reads. */
void pst_say_err(const char *verb, const pst_err *err);

#endif
