/* expected.h - what the Trainer says should be, followed on jobs.state, for three questions:
 *
 *   Should this command be followed? The Trainer writes a state and the commands that follow from it in one transaction: a command for which
 *   no state stands is not the Trainer's, or is long out of date (offsets can be lost: a group that was idle for long reads old ones again).
 *   What should live on this node and does not? Its run directories are gone: it is reported.
 *   What lives here and should not? Its generation was given up while this node was silent, or is to stop, and the command was lost with
 *   an LCM that died while it waited for the state: it is ended.
 *
 * The two topics become visible one after the other: a command may be here before its state. WAIT is then the answer, until
 * lcm_expected_fresh() says that the state would have come. @thread one. */
#ifndef PST_LCM_EXPECTED_H
#define PST_LCM_EXPECTED_H

#include "common/platform/client.h"
#include "common/bus/bus.h"
#include "common/objects/members.h"
#include "schemas/events.h"

typedef struct lcm_expected lcm_expected;
typedef enum { PST_LCM_FOLLOW, PST_LCM_WAIT, PST_LCM_REFUSE } pst_lcm_verdict;

/* Reads all there is. RETRY: broker away. */
int lcm_expected_open(pst_client *client, const char *node, lcm_expected **ret_expected, pst_err *err);
void lcm_expected_free(lcm_expected *e);
void lcm_expected_poll(lcm_expected *e); /* takes what has come; does not wait */
pst_lcm_verdict lcm_expected_judge(const lcm_expected *e, const pst_job_command *c);
/* Monotonic: everything that was visible to the brokers then has been taken; 0 = not known. probe: somebody wants to know; asks the brokers. */
int64_t lcm_expected_fresh(const lcm_expected *e);
void lcm_expected_probe(lcm_expected *e);
/* Was it written before the start? Then it may be out of date without anybody having forged it. */
bool lcm_expected_is_old(const lcm_expected *e, const pst_record *r);
/* The lists of members of gangs that have a part here, as they become complete. fn: true when it has one, and it is told no more; else it is told
 * again after a pause. tries: how often it was told before. */
void lcm_expected_members(lcm_expected *e,
                          bool (*fn)(void *arg, const char *training_id, int generation, const pst_members *members, int tries), void *arg);
/* Every job that should live on this node. */
void lcm_expected_each(const lcm_expected *e, void (*fn)(void *arg, const char *training_id, int generation), void *arg);
/* Does the Trainer count on this generation here? */
bool lcm_expected_wants(const lcm_expected *e, const char *training_id, int generation);
/* Is it known that this generation should not live here? */
bool lcm_expected_fences(const lcm_expected *e, const char *training_id, int generation);
/* Should this generation, which lives here rightly, be ending? *ret_halt: a HALT, which asks for less than a KILL. */
bool lcm_expected_stops(const lcm_expected *e, const char *training_id, int generation, bool *ret_halt);

#endif
