/* learn_gang.h - who the other ranks of a job's generation are, from what the platform left in its folders. @thread any, one owner. */
#ifndef PST_LEARNER_LEARN_GANG_H
#define PST_LEARNER_LEARN_GANG_H

#include "common/objects/rundir.h"
#include "trainer/learner/ring.h"

typedef struct learn_gang {
    learn_ring_opts opts; /* world 0: none */
    learn_place *places;
    char secret[PST_RUNDIR_NONCE_MAX];
} learn_gang;

/* PST_ENOTFOUND, PST_EPARSE/FATAL: the list of members, or the secret, is not there or not right. ret may be cleared in every case. */
int learn_gang_of(const pst_rundir_spec *spec, learn_gang *ret_gang, pst_err *err);
void learn_gang_done(learn_gang *g);

#endif
