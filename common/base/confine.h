/* confine.h - takes from the calling process what a job's command has no use for: privileges, the sight of folders, other processes.
 *
 * All of it is best prepared before a fork and done after it by calls that are safe there:
 *
 *     pst_confine c;
 *     pst_confine_plan(pst_confine_probe(), &spec, &c);    // parent: opens, counts, chooses
 *     child: e = pst_confine_enter(&c)                     // 0 or an errno, and c.step says at what
 *     pst_confine_done(&c);
 *
 * @thread any; enter: in a child after fork. */
#ifndef PST_BASE_CONFINE_H
#define PST_BASE_CONFINE_H

#include "common/base/confine_dev.h"
#include "common/base/confine_root.h"
#include "common/base/err.h"
#include "common/base/isolation.h"

#include <sys/types.h>

enum {                            /* what a host lets us do */
       PST_CAN_NO_NEW_PRIVS = 1,  /* no program gains rights by being started (setuid and file capabilities mean nothing) */
       PST_CAN_LANDLOCK = 2,      /* no look into, no tracing of processes outside */
       PST_CAN_SCOPE_SIGNALS = 4, /* no signal to processes outside (Landlock ABI 6) */
       PST_CAN_MOUNTS = 8,        /* folders of its own: as root, or in a user namespace */
       PST_CAN_DEVICES = 32,      /* a /dev of its own: see confine_dev.h */
       PST_CAN_ROOT = 64,         /* a root folder of its own, with /job: see confine_root.h */
       PST_CAN_HOSTS = 128,       /* an /etc/hosts of its own */
       PST_CAN_SANDBOX = 16       /* all of it, and processes, a user (as root) and temporary folders of its own, nothing else writable */
};

#define PST_CONFINE_USERS  1900000000u /* the first of a hundred thousand uids for sandboxes, far above those of people and services */
#define PST_CONFINE_PATHS  24
#define PST_CONFINE_HIDDEN 8
#define PST_CONFINE_MASKED 48
#define PST_CONFINE_FIXED  4
#define PST_CONFINE_OPEN   8

typedef struct pst_confine_spec {
    const char *hide[PST_CONFINE_HIDDEN]; /* folders that are hidden */
    const char *keep[PST_CONFINE_PATHS];  /* folders, below those or elsewhere, that stay as they are */
    const char *mask[PST_CONFINE_MASKED]; /* files, sockets and folders that look empty; not there: nothing to do */
    const char *fix[PST_CONFINE_FIXED]; /* files and folders that nothing can change; only without a sandbox, where that is all but keep */
    const char *open[PST_CONFINE_OPEN]; /* if any: nothing but these and keep can be changed; only without a sandbox */
    int n_hide;
    int n_keep;
    int n_mask;
    int n_fix;
    int n_open;
    const char *job;        /* what is at /job; NULL = nothing */
    const char *hosts;      /* the file that is seen as /etc/hosts; NULL = the host's */
    uid_t user;             /* sandbox, as root: whose the command is; 0 = ours */
    int grace_ms;           /* sandbox: for what outlives the command */
    int64_t file_bytes_max; /* RLIMIT_FSIZE; 0 = none */
    int64_t processes_max;  /* RLIMIT_NPROC, over all that the user runs; 0 = none */
} pst_confine_spec;

typedef struct pst_confine {
    unsigned can;
    uid_t uid;
    gid_t gid;
    pst_confine_spec spec; /* with strings of its own */
    pst_confine_devices devices;
    pst_confine_root root;
    const char *step;
} pst_confine;

/* Tried once a process in a child that ends at once; cheap afterwards. */
unsigned pst_confine_probe(void);
/* An operator's floor by its word. PST_EINVAL: no such level; PST_EUNSUPPORTED: this host cannot give it, so that every job would fail. */
int pst_confine_floor(const char *word, pst_isolation *ret, pst_err *err);
/* The words for doctor and logs: "no_new_privs, landlock, …". */
void pst_confine_words(unsigned can, char *ret, size_t size);
/* In a sandbox what enters comes back as another process: see confine_pids.h. */
void pst_confine_plan(unsigned can, const pst_confine_spec *spec, pst_confine *ret);
int pst_confine_enter(pst_confine *c);
void pst_confine_done(pst_confine *c);

#endif
