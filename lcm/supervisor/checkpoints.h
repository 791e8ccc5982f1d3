/* checkpoints.h - checkpoints of a learner that are committed, kept and found again (penstock.checkpoint). A checkpoint is one entry of $CHECKPOINT_DIR, a file
 * or a folder; it is one once its manifest is there:
 *
 *     $CHECKPOINT_DIR/step-100/…               written by the learner, which then prints {"penstock":"checkpoint","file":"step-100","step":100}
 *     $CHECKPOINT_DIR/.penstock/step-100.json   {"name", "time", "values", "files": [{"path", "bytes", "sha256"}]}, written by the supervisor
 *
 * All calls that touch the folder are safe against a learner that exchanges files for links meanwhile. */
#ifndef PST_LCM_SUPERVISOR_CHECKPOINTS_H
#define PST_LCM_SUPERVISOR_CHECKPOINTS_H

#include "common/base/err.h"
#include "schemas/events.h"
#include "schemas/manifest.h"

typedef struct sup_checkpoints sup_checkpoints;

/* ---- one by one, in the caller's thread */
/* Everything of the entry goes to the disk and is digested, then its manifest is put there as a whole. values: what ranks it; borrowed. */
int sup_checkpoint_commit(const char *dir, const char *name, const pst_dbl_pair *values, size_t n_values, int64_t time_us,
                          int64_t *ret_bytes, pst_err *err);
/* Removes what the rule does not keep; what was never committed stays. Returns how many. */
size_t sup_checkpoints_retain(const char *dir, const pst_checkpoint_rule *rule);
/* The path of the newest that is what its manifest says (free()), NULL = none. Those that are not get the name NAME.broken, are no checkpoints any more,
 * and are told. */
char *sup_checkpoint_newest(const char *dir, void (*broken)(void *arg, const char *name, const char *why), void *arg);

/* ---- beside a learner: a thread does it, so that output is read on meanwhile */
sup_checkpoints *sup_checkpoints_new(const char *dir, const pst_checkpoint_rule *rule);
/* What the learner announced; moves in. False: it names no file, or one that may not be; err says it. */
bool sup_checkpoints_take(sup_checkpoints *c, pst_process_report *take, pst_err *err);
void sup_checkpoints_point(sup_checkpoints *c, const pst_metric_point *p); /* remembers the metric of keep_best */
/* One that is done: 1 committed, *ret_report moves out; -1 could not be, err says why; 0 none at the moment. wait: until it is, or nothing is under way. */
int sup_checkpoints_done(sup_checkpoints *c, bool wait, pst_process_report *ret_report, pst_err *err);
void sup_checkpoints_free(sup_checkpoints *c); /* NULL-safe; what is under way is brought to its end */

#endif
