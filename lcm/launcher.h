/* launcher.h - how an LCM starts, sees and ends processes: on this computer (launcher_local.c); others (Kubernetes) come behind the same ops.
 *
 * A process is named by (training_id, generation, process), checked names all; everything a launcher must remember it keeps where it
 * survives a crash of the LCM (run directories, see common/objects/rundir.h). Starting what runs already must never start a second copy.
 * Nothing here blocks for longer than a file operation. @thread one owner. */
#ifndef PST_LCM_LAUNCHER_H
#define PST_LCM_LAUNCHER_H

#include "common/objects/rundir.h"
#include "lcm/lcm_core.h"

typedef struct pst_launcher_conf {
    const char *state_dir; /* absolute */
    const char *site;
    const char *const *environ; /* settings for the supervisors: "PENSTOCK_…=…", NULL-terminated; borrowed */
} pst_launcher_conf;

/* What was found on disk, or was noticed since. For a gang (process NULL) spec is set; else seen and the rest. */
typedef struct pst_launcher_news {
    const char *training_id;
    int generation;
    const char *process;
    const pst_rundir_spec *spec;
    const char *nonce; /* with spec */
    pst_lcm_seen seen;
    pst_rundir_exit exit;
    bool told;
    pst_rundir_wish wish;
    uint64_t gpu_mask;
} pst_launcher_news;
typedef void (*pst_launcher_fn)(void *arg, const pst_launcher_news *news);

typedef struct pst_inventory {
    double cpus;
    int64_t memory_bytes;
    int gpus;
    char gpu_types[16][64];
    int n_gpu_types;
} pst_inventory;

typedef struct pst_launcher_ops {
    const char *name;
    int (*open)(const pst_launcher_conf *conf, void **ret_launcher, pst_err *err);
    void (*close)(void *launcher);
    void (*inventory)(void *launcher, pst_inventory *ret);
    /* After a start of the LCM: every generation with an intent, each followed by its processes. What lives is watched from now on. */
    int (*scan)(void *launcher, pst_launcher_fn fn, void *arg, pst_err *err);
    int (*intend)(void *launcher, const pst_rundir_spec *spec, const char *nonce, pst_err *err); /* durable */
    int (*start)(void *launcher, const char *training_id, int generation, const char *process, uint64_t gpu_mask, pst_err *err);
    /* Puts the wish on disk; ret_first: there was none before, so the supervisor must be told by signal(). */
    int (*wish)(void *launcher, const char *training_id, int generation, const char *process, pst_rundir_wish wish, bool *ret_first,
                pst_err *err);
    void (*signal)(void *launcher, const char *training_id, int generation, const char *process); /* SIGTERM to the supervisor */
    /* SIGKILL to all of it. 0: nothing of it lives; PST_EAGAIN: ask again; PST_ESTATE: without force, its supervisor only publishes. */
    int (*end)(void *launcher, const char *training_id, int generation, const char *process, bool force);
    int (*mark_ended)(void *launcher, const char *training_id, int generation, const char *process, const pst_rundir_exit *x, pst_err *err);
    bool (*told)(void *launcher, const char *training_id, int generation, const char *process); /* nothing is left to publish */
    int (*remove)(void *launcher, const char *training_id, pst_err *err);
    void (*poll)(void *launcher, pst_launcher_fn fn, void *arg); /* what has ended since */
} pst_launcher_ops;

extern const pst_launcher_ops pst_launcher_local;

#endif
