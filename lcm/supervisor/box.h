/* box.h - what one learner is kept in: how much of the isolation that was asked for this computer gives, its control groups, its limits, and
 * the word for what ended it. @thread main. */
#ifndef PST_LCM_SUPERVISOR_BOX_H
#define PST_LCM_SUPERVISOR_BOX_H

#include "common/base/cgroup.h"
#include "common/base/confine.h"
#include "lcm/supervisor/run.h"

#define PST_BOX_PROCESSES_MAX 4096 /* threads count */

typedef struct sup_box {
    pst_isolation level;
    uid_t user; /* of a sandbox, where we are root */
    pst_cgroup group;
    pst_confine confine;
    int64_t memory_bytes, storage_bytes; /* limits; 0 = none */
    const char *storage_dirs[6];         /* what counts as its storage; borrowed of the run */
    bool watch_memory, watch_processes;  /* no group keeps the limit, so the supervisor looks */
    int64_t next_look_us, next_storage_us;
    int64_t refused; /* processes that the group refused until the last look */
    int refusals;    /* looks that found more of them */
    char hit[300];   /* "" or the sentence: which limit ended it */
} sup_box;

/* PST_EUNSUPPORTED class FATAL: the manifest asks for what this host does not give; the text says what is missing. */
int sup_box_open(const sup_run *r, sup_box *ret_box, pst_err *err);
/* For pst_spawn.enter: in the child. */
int sup_box_enter(void *box);
/* Looks at the limits that no kernel keeps for us. True once: one is exceeded, hit says which, everything in it must be ended. */
bool sup_box_over(sup_box *b, int64_t now_us);
/* SIGKILL to all that is in it. */
void sup_box_kill(sup_box *b);
/* After its end, with the status of wait(2): did a limit end it? Fills hit. */
void sup_box_judge(sup_box *b, int status);
void sup_box_close(sup_box *b);

#endif
