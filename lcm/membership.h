/* membership.h - a gang over several nodes, as one of them sees it: which processes are its own, and who the others are.
 *
 *     supervisors ─REACHABLE─▶ Trainer ─jobs.state, every address in it─▶ LCM of each node ─members.json─▶ supervisors ─▶ commands start
 *
 * The list is read from the job's state, which the Trainer commits in one transaction with what it concludes: an LCM that was away, or died on the
 * way, reads it again at its start, and nobody who can write commands can make one. @thread any. */
#ifndef PST_LCM_MEMBERSHIP_H
#define PST_LCM_MEMBERSHIP_H

#include "common/objects/members.h"
#include "lcm/lcm_core.h"
#include "schemas/events.h"

/* Role by role, in the order of ranks: what of the gang is this node's. None: the command does not name it. */
void lcm_membership_sets(const pst_manifest *m, const pst_deploy_spec *spec, const char *node, lcm_command *ret_command);
/* Is the generation on several nodes, this one among them? */
bool lcm_membership_concerns(const pst_job_state *s, const char *node);
/* Its members, once every one has an address; false: not yet. Clear with pst_members_done(). */
bool lcm_membership_of(const pst_job_state *s, pst_members *ret_members);

#endif
