/* isolation.h - how far a job's processes are kept from this computer: `penstock.isolation` of a manifest. @thread any. */
#ifndef PST_BASE_ISOLATION_H
#define PST_BASE_ISOLATION_H

typedef enum {
    PST_ISOLATION_DEFAULT = 0, /* the manifest says nothing */
    PST_ISOLATION_NONE,        /* contained (nothing of it survives its end), not limited */
    PST_ISOLATION_USER,        /* limits enforced, no privileges, no sight of the platform's own files and processes */
    PST_ISOLATION_SANDBOX      /* and processes, a user and temporary folders of its own; writes its own folders alone */
} pst_isolation;

#define PST_ISOLATION_DETAIL "isolation" /* in an LCM's heartbeat: the weakest that its operator allows */

int pst_isolation_parse(const char *word, pst_isolation *ret); /* "none", "user", "sandbox"; else PST_EPARSE */
const char *pst_isolation_name(pst_isolation i);

#endif
