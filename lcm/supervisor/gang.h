/* gang.h - one process among those of its generation: how it becomes reachable, how it gets to know the others, what it tells its learner of them.
 *
 *     sup_gang_open()    reserves an address and ports, reports REACHABLE ─▶ Trainer ─jobs.state─▶ LCM ─▶ <gen dir>/members.json
 *                        └─▶ reachable.json in its run dir ─▶ where all are on one host: the process of rank 0 ──┘
 *     …code and data are fetched meanwhile…
 *     sup_gang_meet()    waits for members.json; a stop is heard. Then the files below are written
 *     sup_gang_ready()   the command is about to start: the ports are its own now
 *     sup_gang_close()
 *
 * A process that is alone in its generation is its own list, and waits for nobody. Files, in the run dir's `gang/`, which the learner may read:
 *     hosts      the host's /etc/hosts and the members' names after it; over /etc/hosts where the learner has mounts of its own (box.c)
 *     hostfile   PENSTOCK_HOSTFILE: Open MPI's form
 * @thread main. */
#ifndef PST_LCM_SUPERVISOR_GANG_H
#define PST_LCM_SUPERVISOR_GANG_H

#include "common/base/buf.h"
#include "common/objects/members.h"
#include "lcm/supervisor/ports.h"

struct sup_run;

typedef struct sup_gang {
    sup_ports ports;
    bool open;
    pst_members members;    /* empty until they have met */
    const pst_member *self; /* among them; NULL until then */
    char *dir, *hosts, *hostfile;
} sup_gang;

int sup_gang_open(struct sup_run *r, pst_err *err);
/* PST_ESTOPPED when asked to stop meanwhile. */
int sup_gang_meet(struct sup_run *r, pst_err *err);
void sup_gang_ready(struct sup_run *r);
void sup_gang_close(sup_gang *g);

/* ---- its parts */
int sup_gang_note(const struct sup_run *r, const char *host,
                  pst_err *err); /* by what this process is reached, for the one of rank 0 on this host */
int sup_gang_gather(const struct sup_run *r, const char *gen_dir,
                    pst_err *err); /* members.json of all notes; PST_EAGAIN: not all have one */
/* The rank-0 member; NULL = the generation has none. */
const pst_member *sup_gang_master(const pst_members *m);
int sup_gang_world(const pst_members *m); /* how many have a rank */
/* What a framework reads of the members. prefix: FfDL's LEARNER_NAME_PREFIX; member k of it is the one with rank k. free() */
char *sup_gang_tf_config(const pst_members *m, const pst_member *self);
char *sup_gang_hostfile_text(const pst_members *m, const pst_member *self);
char *sup_gang_hosts_text(const pst_members *m, const char *prefix, const char *host_text);

#endif
