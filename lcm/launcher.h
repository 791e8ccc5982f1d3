/* launcher.h - how an LCM creates, watches and deletes processes: on this computer (local/), in a cluster (kubernetes/); launchers.c is the table of them.
 *
 * A launcher is asynchronous, because the next one is: an API server answers when it likes, or not at all for a while. Requests return at once;
 * what becomes of them, and whatever else happens to a process, is told by poll(), and only there:
 *
 *     adopt  ──▶ FOUND (once for each adopt)
 *     create ──▶ nothing while all goes well, WAITS for people, or NOT_CREATED; from then on it is watched: CHANGED
 *     stop   ──▶ nothing; its end is seen by the watch
 *     delete ──▶ GONE: nothing of it lives any more, and that is certain; CHANGED where its own end is on record. Silence is not certainty: the LCM
 *                asks again on its ticks
 *
 * What must hold, so that no process ever runs twice and no generation beside its successor:
 *   - Requests may be repeated at any time, also after a crash between a request and its answer. Creating what lives creates no second one:
 *     it is watched. A name is one process for ever; a new attempt has a new generation.
 *   - A lost watch, a silent node, an answer that does not come is never told as an end.
 *   - What lives goes on when the LCM ends; adopt finds it again by its name.
 *
 * That for Kubernetes creates pods under names made of the process's, takes "exists already" for success when the notes on it are those of the same
 * generation, and answers GONE when the API server has the pod no more, or it is over. What is asked for together is created together or not at
 * all. A watch that is cut is begun again where it was, or from a list; an API server that refuses for lack of room is asked again.
 *
 * The memory of what was decided is the LCM's, in run directories below its state folder (common/objects/rundir.h): a launcher reads there
 * what it needs (the intent, why it is to stop) and writes no decision of its own. @thread one owner; nothing here blocks for longer than a file
 * operation. */
#ifndef PST_LCM_LAUNCHER_H
#define PST_LCM_LAUNCHER_H

#include "lcm/process.h"

typedef struct pst_launcher_conf {
    const char *state_dir;      /* absolute */
    const char *const *environ; /* settings for the supervisors: "PENSTOCK_…=…", NULL-terminated; borrowed */
    const char *site, *node;
    const char *objects; /* where code and models lie: "file:DIR" */
    const struct kube_opts *kubernetes;
} pst_launcher_conf;

typedef enum {
    PST_LAUNCHER_FOUND = 1,   /* seen … devices */
    PST_LAUNCHER_CHANGED,     /* seen … stop_reason; only what ends it, or what keeps it from ending, is told */
    PST_LAUNCHER_NOT_CREATED, /* why */
    PST_LAUNCHER_GONE,        /* published; why, exit.reason_code: what is known of its end */
    PST_LAUNCHER_WAITS        /* why, exit.reason_code: what keeps it from beginning. Nothing follows from it */
} pst_launcher_news_type;

typedef struct pst_launcher_news {
    pst_launcher_news_type type;
    pst_process_id process;
    pst_lcm_seen seen;
    pst_rundir_exit exit;               /* with SEEN_ENDED */
    pst_rundir_stop_reason stop_reason; /* why it was asked to end */
    bool published;                     /* no output of it waits for the broker */
    pst_lcm_devices devices;
    char why[480];
} pst_launcher_news;
typedef void (*pst_launcher_fn)(void *arg, const pst_launcher_news *news);

typedef struct pst_device {
    char id[48];   /* as the process is told: "0" */
    char type[64]; /* FfDL's gpu_type, "" = not known */
} pst_device;

typedef struct pst_inventory {
    double cpus;
    int64_t memory_bytes;
    pst_device *devices;
    int n_devices;
} pst_inventory;

typedef struct pst_launcher_ops {
    const char *name; /* lcm --launcher NAME */
    int (*open)(const pst_launcher_conf *conf, void **ret_launcher, pst_err *err);
    void (*close)(void *launcher);                     /* processes go on */
    const pst_inventory *(*inventory)(void *launcher); /* stays as it is while the launcher is open */
    void (*adopt)(void *launcher, const pst_process_id *id);
    /* As its intent says, on these devices. Of a process that has ended only the publishing of its output is taken up again. */
    void (*create)(void *launcher, const pst_process_id *id, const pst_lcm_devices *devices);
    /* Asks its supervisor to end it, for the reason that its run directory tells; one that only publishes gives that up. */
    void (*stop)(void *launcher, const pst_process_id *id);
    /* All of it, without grace. Without force a supervisor that only publishes is left alone: CHANGED, SEEN_FLUSHING. */
    void (*delete)(void *launcher, const pst_process_id *id, bool force);
    void (*poll)(void *launcher, pst_launcher_fn fn, void *arg); /* does not wait; fn may make requests */
} pst_launcher_ops;

/* The launchers there are, in one list: declared here and found by name (launchers.h) from it. */
#define PST_LAUNCHERS(ROW)     ROW(pst_launcher_local) ROW(pst_launcher_kubernetes)
#define PST_LAUNCHER_ROW(NAME) extern const pst_launcher_ops NAME;
PST_LAUNCHERS(PST_LAUNCHER_ROW)
#undef PST_LAUNCHER_ROW

#endif
