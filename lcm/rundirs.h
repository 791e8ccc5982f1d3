/* rundirs.h - what an LCM remembers of what it decided, in the run directories of its state folder (common/objects/rundir.h): intents, why
 * something is to end, ends that no supervisor could write down. Written before the act and whatever the launcher, so that a crash between the
 * two is only a reason to do it again. @thread one. */
#ifndef PST_LCM_RUNDIRS_H
#define PST_LCM_RUNDIRS_H

#include "common/objects/members.h"
#include "common/objects/rundir.h"

/* The generation that a folder of a job is of: "gen-3" → 3; 0 = it is something else. */
int lcm_rundirs_generation(const char *folder);

typedef void (*lcm_rundirs_fn)(void *arg, const pst_rundir_spec *intent, const char *nonce);
/* Every generation that was intended for this site. fn borrows. */
int lcm_rundirs_scan(const char *state_dir, const char *site, lcm_rundirs_fn fn, void *arg, pst_err *err);

/* Durable when it returns. nonce "" = none is known. */
int lcm_rundirs_intend(const char *state_dir, const pst_rundir_spec *intent, const char *nonce, pst_err *err);
/* Who belongs to it; a list that is there stays. */
int lcm_rundirs_members(const char *state_dir, const char *training_id, int generation, const pst_members *members, pst_err *err);
/* Why it is to end. ret_first: nothing was written before, so that its supervisor has not been asked yet. */
int lcm_rundirs_stop(const char *state_dir, const pst_process_id *id, pst_rundir_stop_reason stop_reason, bool *ret_first, pst_err *err);
/* For one that has no supervisor to do it: how it ended, and that nothing of it is left to publish. */
int lcm_rundirs_mark_ended(const char *state_dir, const pst_process_id *id, const pst_rundir_exit *x, pst_err *err);
/* Everything of a job. */
int lcm_rundirs_remove(const char *state_dir, const char *training_id, pst_err *err);

#endif
