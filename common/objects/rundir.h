/* rundir.h - the folders and small files through which LCM, supervisor and learner agree on a run; they survive all three.
 *
 *     <state-dir>/jobs/<training_id>/checkpoints/            CHECKPOINT_DIR, outlives a generation
 *                                    results/                RESULT_DIR, shared by the job's learners
 *                                    gen-<g>/intent.json     written and fsynced before anything starts
 *                                            members.json    who belongs to it, and where each is (common/objects/members.h)
 *                                            job/            JOB_DIR, JOB_STATE_DIR, shared by the generation's learners (logs/ below it)
 *                                            <process>/      the run dir of one process:
 *        lock             flock of its one supervisor           spec.json        what to run
 *        supervisor.json  pid, start time, boot, learner        stop.json        why it is being stopped (written before the signal)
 *        code/ data/      what the learner gets                 spool-*          output waiting for the broker
 *        cgroup           control groups of the learner         reachable.json   its address and ports, for the others on its host
 *        gang/            hosts, hostfile: what the learner may read of the others
 *        exit.json        how it ended (fsynced before it is reported)  published    that EXITED was acknowledged
 *        registering      its command is done, by itself and with 0, and its model may stand on the topic: from here on only forward
 *
 *     <state-dir>/nonces/<training_id>.<g>                    the generation's nonce; beside the job's folders, which a learner may read
 *
 * Every name that comes from an event passes pst_rundir_name_ok() before it becomes part of a path. Files are written atomically.
 * @thread any; each file has one writer. */
#ifndef PST_OBJECTS_RUNDIR_H
#define PST_OBJECTS_RUNDIR_H

#include "common/base/cgroup.h"
#include "common/base/err.h"
#include "common/base/isolation.h"
#include "common/objects/process_sets.h"

#include <jansson.h>
#include <sys/types.h>

/* Letters, digits, . _ -, not starting with a dot, at most 100 bytes. */
bool pst_rundir_name_ok(const char *name);

/* Names one process of a job, everywhere: on disk, in the LCM's decisions, at its launcher. It holds copies, so that it can be kept in a list
 * and passed on without asking who owns what. */
typedef struct pst_process_id {
    char training_id[104];
    int generation;
    char process[32]; /* "learner-2"; "" = the generation as a whole */
} pst_process_id;

pst_process_id pst_process_id_of(const char *training_id, int generation, const char *process); /* process NULL = "" */
bool pst_process_id_same(const pst_process_id *a, const pst_process_id *b);

char *pst_rundir_job_dir(const char *state_dir, const char *training_id);                 /* …/jobs/<tid>; free() */
char *pst_rundir_gen_dir(const char *state_dir, const char *training_id, int generation); /* …/gen-<g> */
char *pst_rundir_dir(const char *state_dir, const pst_process_id *id);                    /* …/<process>: the run dir */

/* spec.json: everything the supervisor and the built-in learner need. Strings are owned. */
typedef struct pst_rundir_spec {
    char *training_id;
    int generation;
    char *process;                                  /* "learner-2" */
    int learner_id;                                 /* rank + 1; 0 for those without one */
    char *site, *node, *state_dir;                  /* node: the LCM's; "" = of before nodes had ids */
    char *name, *user;                              /* of the job */
    char *manifest;                                 /* YAML text */
    char *code_uri, *code_sha256, *code_media_type; /* NULL: no code */
    int learners;                                   /* those with a rank */
    pst_process_set sets[PST_PROCESS_SETS_MAX];
    size_t n_sets;
    double cpus;
    int gpus;
    char *gpu_ids;     /* "0,1": the devices given to it; "" = none */
    char *traceparent; /* what it is a part of (common/platform/trace.h); NULL = nothing that is known */
    int64_t memory_bytes;
    int grace_ms;
    char *stores;        /* the S3 servers that the node's operator allows (pst_s3_allowed); NULL: any */
    char *address;       /* of a gang over several nodes: by which the others reach this one; NULL: all of it is here */
    pst_isolation floor; /* the weakest isolation that the node's operator allows; DEFAULT: any */
} pst_rundir_spec;

int pst_rundir_spec_write(const char *run_dir, const pst_rundir_spec *s, pst_err *err);
int pst_rundir_spec_read(const char *run_dir, pst_rundir_spec *ret_spec, pst_err *err); /* validated; clear with pst_rundir_spec_done */
void pst_rundir_spec_done(pst_rundir_spec *s);
/* intent.json of a generation: the same without process, learner_id and gpu_ids. */
int pst_rundir_intent_write(const char *gen_dir, const pst_rundir_spec *s, pst_err *err);
int pst_rundir_intent_read(const char *gen_dir, pst_rundir_spec *ret_spec, pst_err *err);

/* What proves that a report is of this generation. Never in an environment, an argument or the job's folders. "" = none. */
enum { PST_RUNDIR_NONCE_MAX = 40 };
int pst_rundir_nonce_write(const char *state_dir, const char *training_id, int generation, const char *nonce, pst_err *err);
void pst_rundir_nonce_read(const char *state_dir, const char *training_id, int generation, char ret_nonce[PST_RUNDIR_NONCE_MAX]);
void pst_rundir_nonce_remove(const char *state_dir, const char *training_id, int generation);

/* supervisor.json: who runs it. */
typedef struct pst_rundir_owner {
    pid_t pid;
    int64_t start_time; /* pst_proc_start_time() */
    pid_t learner_pid;  /* also its process group and session; 0 = not started yet */
    int64_t learner_start_time;
    pid_t keeper_pid; /* above it; 0 = none */
    int64_t keeper_start_time;
    char boot_id[40]; /* pids of an earlier boot mean nothing */
} pst_rundir_owner;

int pst_rundir_owner_write(const char *run_dir, const pst_rundir_owner *o, pst_err *err);  /* fills boot_id by itself */
int pst_rundir_owner_read(const char *run_dir, pst_rundir_owner *ret_owner, pst_err *err); /* PST_ENOTFOUND: none yet */
bool pst_rundir_owner_same_boot(const pst_rundir_owner *o);

#define PST_RUN_CGROUP_PREFIX "penstock-"
/* cgroup: the control groups of the learner's processes, one path a line. Made and noted by the supervisor (none where the host has none for
 * us); read by whoever must end what is in them: false when there is nothing to end. */
void pst_rundir_cgroup_make(const char *run_dir, pst_cgroup *ret_group);
bool pst_rundir_cgroup_read(const char *run_dir, pst_cgroup *ret_group);

/* stop.json: why a process is being ended. */
typedef enum { PST_STOP_REASON_NONE = 0, PST_STOP_REASON_HALT, PST_STOP_REASON_KILL, PST_STOP_REASON_PLATFORM_DOWN } pst_rundir_stop_reason;
const char *pst_rundir_stop_reason_name(pst_rundir_stop_reason w); /* "halt", "kill", "platform-down", "none" */
int pst_rundir_stop_reason_write(const char *run_dir, pst_rundir_stop_reason w, pst_err *err);
pst_rundir_stop_reason pst_rundir_stop_reason_read(const char *run_dir);

/* exit.json: how it ended. */
typedef struct pst_rundir_exit {
    bool has_exit_code, has_signal;
    int exit_code, signal;
    char reason_code[32]; /* "" = none */
    char reason[512];
    pst_rundir_stop_reason stop_reason;
    int64_t time_us;
    bool lost; /* the supervisor vanished; whatever was left was ended by the LCM */
} pst_rundir_exit;

int pst_rundir_exit_write(const char *run_dir, const pst_rundir_exit *x, pst_err *err);
int pst_rundir_exit_read(const char *run_dir, pst_rundir_exit *ret_exit, pst_err *err); /* PST_ENOTFOUND: has not ended */
int pst_rundir_published_mark(const char *run_dir, pst_err *err);
bool pst_rundir_published(const char *run_dir);
int pst_rundir_registering_mark(const char *run_dir, pst_err *err); /* durable */
bool pst_rundir_registering(const char *run_dir);
bool pst_rundir_has_spool(const char *run_dir);

/* The one supervisor of a run dir: 0 and a descriptor to keep open, PST_EEXIST when another holds it. Not inherited by children. */
int pst_rundir_lock(const char *run_dir, int *ret_fd, pst_err *err);
bool pst_rundir_locked(const char *run_dir); /* looks without taking it */
/* "PENSTOCK_RUN_DIR=<run dir>": the mark in the environment of every process of a run, one of its kind on a computer. free() */
char *pst_rundir_mark(const char *state_dir, const pst_process_id *id);

#endif
