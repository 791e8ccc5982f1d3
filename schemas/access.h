/* access.h - what each component of the platform must be allowed to do on a cluster that asks: the least that it works with, from topics.def.
 *
 *     pst_access_each(PST_COMPONENT_TRAINER, "penstock.", print_grant, NULL);
 *
 * Kafka's words: a grant lets a principal do one operation on one resource (topic, group, transactional-id); a prefixed one on all whose name
 * begins so. Read and Write imply Describe. User data (a pipeline's topics, a learner's training topics) are no topics of ours: their grants
 * come from the pipeline file (deploy/local/acls.c).
 * @thread any. */
#ifndef PST_SCHEMAS_ACCESS_H
#define PST_SCHEMAS_ACCESS_H

#include "schemas/topics.h"

typedef enum {
    PST_COMPONENT_UP,       /* `penstock up`, `penstock topics create`: makes the topics, follows the pipelines */
    PST_COMPONENT_REGISTRY, /* the built-in schema registry; none of it with a registry of your own */
    PST_COMPONENT_TRAINER,
    PST_COMPONENT_LCM, /* and the supervisors that it starts: they write with its credentials */
    PST_COMPONENT_GATEWAY,
    PST_COMPONENT_SCORER,
    PST_COMPONENT_USER,    /* people and programs that submit jobs, register models, apply pipelines */
    PST_COMPONENT_VIEWER,  /* who only looks */
    PST_COMPONENT_AUDITOR, /* who looks at what users did */
    PST_COMPONENT_COUNT
} pst_component;

typedef struct pst_grant {
    const char *resource; /* "topic", "group", "transactional-id" */
    const char *name;
    bool prefixed;
    const char *operation; /* "Read", "Write", "Create", … */
} pst_grant;

const char *pst_component_name(pst_component c); /* "trainer", as in topics.def */
const char *pst_component_doc(pst_component c);
/* Calls fn for each grant that the component needs on the platform's own resources; the grant is borrowed. */
void pst_access_each(pst_component c, const char *prefix, void (*fn)(void *arg, const pst_grant *g), void *arg);

#endif
