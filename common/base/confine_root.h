/* confine_root.h - the part of confine.c that gives a job a root folder of its own, with all that is in the computer's and /job, which scripts of
 * FfDL call by that name. @thread plan: any; enter: a child after fork. */
#ifndef PST_BASE_CONFINE_ROOT_H
#define PST_BASE_CONFINE_ROOT_H

#include <stdbool.h>

#define PST_CONFINE_ENTRIES 96

typedef struct pst_confine_root {
    char *name[PST_CONFINE_ENTRIES]; /* "/usr" */
    char *link[PST_CONFINE_ENTRIES]; /* where it points; NULL: it is no link */
    bool folder[PST_CONFINE_ENTRIES];
    int n;
    char *job; /* the folder that is to be at /job; NULL: the root stays as it is */
} pst_confine_root;

/* job NULL: none is wanted. */
void pst_confine_root_plan(const char *job, pst_confine_root *ret);
void pst_confine_root_done(pst_confine_root *r);
/* In a mount namespace of its own, when everything else is in its place. 0 or an errno. */
int pst_confine_root_enter(const pst_confine_root *r);

#endif
