/* members.h - who belongs to a generation, and where each of them is: <state-dir>/jobs/<tid>/gen-<g>/members.json. It is there before any command
 * of a gang starts; a supervisor makes the learner's environment of it (lcm/supervisor/gang.h).
 *
 *     the supervisor's ports ─REACHABLE─▶ Trainer ─jobs.state─▶ LCM ─pst_members_write()─▶ members.json ─pst_members_read()─▶ every supervisor
 *
 * What is read, and what is written, has been checked: names that may stand in a path, addresses that are numeric, ports that exist, ranks without a
 * hole and none twice. Processes of one generation may write the file twice; it is replaced as a whole. @thread any */
#ifndef PST_OBJECTS_MEMBERS_H
#define PST_OBJECTS_MEMBERS_H

#include "common/base/err.h"

#include <stddef.h>

#define PST_MEMBERS_MAX 4096
/* In an LCM's heartbeat: */
#define PST_ADDRESS_DETAIL  "address"  /* by which processes on other nodes reach those on it; numeric */
#define PST_COMPUTER_DETAIL "computer" /* nodes with the same one reach each other by its loopback */
#define PST_YIELDS_DETAIL   "yields"   /* "yes": it knows pre-emption */

typedef struct pst_member {
    char process[32]; /* "worker-1", "learner-2" */
    char role[24];    /* "worker", "ps", "chief", "evaluator", a name */
    int index, count; /* within its role, index from 0 */
    int rank;         /* over all but ps and evaluator, in the order chief, worker, others by name; -1 = none */
    int local_rank;   /* among the ranked ones on its host; -1 where rank is */
    int local_size;   /* how many those are; 0 where rank is -1 */
    char host[256];   /* host name of its node; over several nodes the node's own name */
    char address[64]; /* by which the others reach it: numeric */
    int port;         /* its own service port, TF_CONFIG's */
    int master_port;  /* MASTER_PORT when it is rank 0 */
    int other_port;   /* PENSTOCK_PORT: instead of 2222, one a process */
    int slots;        /* of the host file: 1, or its GPUs */
} pst_member;

typedef struct pst_members {
    pst_member *at;
    size_t n;
} pst_members;

int pst_members_write(const char *gen_dir, const pst_members *m, pst_err *err);
/* PST_ENOTFOUND: not yet. PST_EPARSE: not a list that may be used; the error says why. */
int pst_members_read(const char *gen_dir, pst_members *ret_members, pst_err *err);
void pst_members_done(pst_members *m);
const pst_member *pst_members_find(const pst_members *m, const char *process); /* NULL = not among them */

#endif
