/* checkpoints.h - checkpoints of a learner that are committed, kept and found again (penstock.checkpoint). A checkpoint is one entry of $CHECKPOINT_DIR, a file
 * or a folder; it is one once its manifest is there:
 *
 *     $CHECKPOINT_DIR/step-100/…               written by the learner, which then prints {"penstock":"checkpoint","file":"step-100","step":100}
 *     $CHECKPOINT_DIR/.penstock/PROCESS/step-100.json   {"name", "process", "number", "time", "values", "files": [{"path", "bytes", "sha256"}]}, written by
 *                                              the supervisor of that process
 *
 * The processes of a gang on one node share the folder. Each counts, keeps and removes its own; an entry that two committed is removed with the last manifest.
 * number: in the order of commits, from 1; what is newest is told by it, time is for people.
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
int sup_checkpoint_commit(const char *dir, const char *process, const char *name, const pst_dbl_pair *values, size_t n_values,
                          int64_t time_us, int64_t *ret_bytes, pst_err *err);
/* Removes what the rule does not keep; what was never committed stays. Returns how many. */
size_t sup_checkpoints_retain(const char *dir, const char *process, const pst_checkpoint_rule *rule);
typedef void sup_checkpoint_broken(void *arg, const char *name, const char *why);
/* The path of the newest that is what its manifest says (free()), NULL = none: of the process; where it has never committed, of the one process that has. Those
 * proven not to be get the name NAME.broken, are no checkpoints any more, and are told. Fails where it cannot be told (no descriptors, a disk that fails). */
int sup_checkpoint_newest(const char *dir, const char *process, sup_checkpoint_broken *broken, void *arg, char **ret_path, pst_err *err);

/* ---- beside a learner: a thread does it, so that output is read on meanwhile */
sup_checkpoints *sup_checkpoints_new(const char *dir, const char *process, const pst_checkpoint_rule *rule);
/* What the learner announced; moves in. False: it names no file, or one that may not be; err says it. */
bool sup_checkpoints_take(sup_checkpoints *c, pst_process_report *take, pst_err *err);
void sup_checkpoints_point(sup_checkpoints *c, const pst_metric_point *p); /* remembers the metric of keep_best */
/* One that is done: 1 committed, *ret_report moves out; -1 could not be, err says why; 0 none at the moment. wait: until it is, or nothing is under way. */
int sup_checkpoints_done(sup_checkpoints *c, bool wait, pst_process_report *ret_report, pst_err *err);
void sup_checkpoints_free(sup_checkpoints *c); /* NULL-safe; what is under way is brought to its end */

#endif
