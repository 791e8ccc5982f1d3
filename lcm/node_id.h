/* node_id.h - who this LCM is: a node, with an id that stays as long as its state folder does.
 *
 *     <state-dir>/sites/<site>/lock        one LCM a state folder and site; the next one waits
 *     <state-dir>/sites/<site>/node.json   id, how often it was started (its epoch), whether it takes new jobs
 *
 * Two LCMs of a site in two folders, or on two computers, are two nodes: each has its own group, transactional id and processes.
 * @thread one. */
#ifndef PST_LCM_NODE_ID_H
#define PST_LCM_NODE_ID_H

#include "common/base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { LCM_NODE_NAME_MAX = 60 }; /* of one that a person chooses */

typedef struct lcm_node_id {
    char *dir; /* <state-dir>/sites/<site> */
    char name[64];
    int64_t epoch;
    bool draining;
} lcm_node_id;

/* Waits until no other LCM runs the site from this state folder; the lock goes with the process. PST_ESTOPPED. */
int lcm_node_id_lock(const char *state_dir, const char *site, pst_err *err);
/* Reads or makes it and counts the start. name: NULL = as it is, else made from the host's name. Another name than the one that is there:
 * PST_EINVAL, since what runs here runs under that one. Call with the site's lock held. */
int lcm_node_id_open(const char *state_dir, const char *site, const char *name, lcm_node_id *ret_id, pst_err *err);
int lcm_node_id_drain(lcm_node_id *id, bool draining, pst_err *err); /* durable */
void lcm_node_id_done(lcm_node_id *id);

#endif
