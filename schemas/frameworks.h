/* frameworks.h - what framework.name of a manifest means: one table, a row for each that is run in a way of its own. @thread any. */
#ifndef PST_SCHEMAS_FRAMEWORKS_H
#define PST_SCHEMAS_FRAMEWORKS_H

#include "schemas/manifest.h"

typedef struct pst_framework {
    const char *name; /* NULL, the last row: every other name */
    const char
        *verb; /* of our own program that runs it and gets the platform's settings; NULL: the command of the manifest, which gets none */
    const char *settings; /* its key under `penstock`; NULL = none */
    bool needs_version, needs_command;
    bool by_mpirun;                                               /* the first learner runs the command of all, under mpirun */
    bool reads_topics;                                            /* itself: a range of a topic is not copied into DATA_DIR */
    void (*check)(const pst_manifest *m, pst_complaints *errors); /* settings with which it can never run; NULL = nothing to check */
} pst_framework;

const pst_framework *pst_framework_of(const char *name); /* never NULL */
const pst_framework *pst_framework_at(size_t i);         /* NULL behind the last */

#endif
