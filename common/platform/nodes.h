/* nodes.h - the computers that jobs run on, as their heartbeats and the states of jobs tell; and what an operator says of one. For `penstock nodes` and
 * the gateway.
 *
 *     json_t *nodes;
 *     rc = pst_nodes_read(client, &nodes, &err);                     // [{"node", "site", "state", "cpus", …, "free": {…}, …}]
 *     rc = pst_nodes_tell(client, &(pst_node_word){PST_JOB_ACTION_NODE_DRAIN, "gpu3", "ann", NULL}, &said, &err);
 *
 * @thread any; both read topics and take a moment. */
#ifndef PST_COMMON_PLATFORM_NODES_H
#define PST_COMMON_PLATFORM_NODES_H

#include "common/base/json.h"
#include "common/platform/client.h"

/* A new array, in the order in which nodes were first heard of: node, site, state (ready draining silent lost stopped), host, cpus, memory_bytes, gpus,
 * free {cpus, memory_bytes, gpus}, processes, seen_at, epoch. */
int pst_nodes_read(pst_client *c, json_t **ret_nodes, pst_err *err);

typedef struct pst_node_word {
    pst_job_action action;            /* NODE_DRAIN, NODE_RESUME, NODE_LOST */
    const char *node, *user, *reason; /* reason NULL = none */
    bool is_operator;                 /* the gateway has let him in as one (PST_REQUEST_ROLE) */
} pst_node_word;

typedef struct pst_node_said {
    char text[400]; /* the Trainer's sentence */
    char request_id[37];
    int32_t partition; /* of jobs.requests */
    int64_t offset;
} pst_node_said;

/* Publishes it and waits for the Trainer's answer. PST_ENOTFOUND: no such node; PST_ESTATE: refused; PST_ETIMEDOUT: published, but nobody has
 * answered within 10 s. */
int pst_nodes_tell(pst_client *c, const pst_node_word *word, pst_node_said *ret_said, pst_err *err);

#endif
