/* expected.h - what the Trainer says lives on this site, read from jobs.state when the LCM starts, for two questions:
 *
 *   Should this command still be followed? Offsets can be lost (a group that was idle for long); then old DEPLOYs come again. A command from
 *   before the start is followed only if the Trainer's state still asks for it.
 *   What should live here and does not? Its run directories are gone: it is reported lost, so that no job waits for ever.
 *
 * The Trainer writes a state and the commands that follow from it in one transaction: whoever sees the command sees the state. @thread one. */
#ifndef PST_LCM_EXPECTED_H
#define PST_LCM_EXPECTED_H

#include "common/client/client.h"

typedef struct pst_lcm_expected pst_lcm_expected;

int pst_lcm_expected_read(pst_client *client, const char *site, pst_lcm_expected **ret_expected, pst_err *err); /* RETRY: broker away */
void pst_lcm_expected_free(pst_lcm_expected *e);
/* known_generation: what the LCM itself knows of the job (0 = nothing). polled_us: monotonic, when the record had come; reads the topic again
 * where its knowledge is older than that. */
bool pst_lcm_expected_allows(pst_lcm_expected *e, const pst_record *record, int64_t polled_us, const pst_job_command *c,
                             int known_generation);
/* Every job that should live on this site as of the start. */
void pst_lcm_expected_each(const pst_lcm_expected *e, void (*fn)(void *arg, const char *training_id, int generation), void *arg);

#endif
