/* run.h - one run of one process, as the supervisor's parts share it: spec, manifest, folders, the way out. @thread main. */
#ifndef PST_LCM_SUPERVISOR_RUN_H
#define PST_LCM_SUPERVISOR_RUN_H

#include "common/platform/client.h"
#include "common/objects/objects.h"
#include "common/objects/rundir.h"
#include "lcm/supervisor/gang.h"
#include "lcm/supervisor/outlet.h"
#include "lcm/supervisor/status.h"
#include "schemas/manifest.h"
#include "common/base/settings.h"

typedef struct sup_run {
    char *dir;
    pst_rundir_spec spec;
    pst_manifest manifest;
    const pst_role *role;  /* of the manifest: whose command, environment and sizes are this process's */
    int role_index, rank;  /* from 0; rank -1 = none */
    char name_prefix[120]; /* LEARNER_NAME_PREFIX */
    sup_gang gang;         /* from sup_gang_open() to sup_gang_close(): while the command is prepared and runs */
    /* absolute folders; see rundir.h */
    char *code_dir, *data_dir, *job_state_dir, *log_dir, *own_log_dir, *checkpoint_dir, *result_dir, *result_bucket_dir;
    char *checkpoint; /* PENSTOCK_CHECKPOINT: the one to go on from; NULL = none */
    /* borrowed */
    const char *address; /* by which others reach this host, said by whoever started us; NULL = as the spec says */
    sup_status *status;  /* NULL in tests */
    sup_outlet *outlet;
    pst_objects *objects;
    pst_client *client;           /* NULL in tests: no topic data, no model registration, no built-in learner */
    const pst_settings *settings; /* NULL in tests */
    int store_patience_ms;        /* how long an object store may stay away; 0 = the defaults of stores.c. For tests */
} sup_run;

/* Reads spec.json and the manifest in it, makes the folders that need nothing from outside. */
int sup_run_open(const char *run_dir, sup_run *ret_run, pst_err *err);
void sup_run_close(sup_run *r);
/* A SYSTEM line in the job's log. */
void sup_run_say(sup_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sup_run_report(sup_run *r, pst_report_type type, const char *reason);

/* Code: fetched by uri and sha256, unpacked. Data: what the data stores name. Fails with a reason code of FfDL (docs/learner.md) in ret_code.
 * PST_ESTOPPED when asked to stop meanwhile. */
int sup_run_prepare(sup_run *r, const char **ret_code, pst_err *err);
/* The range of a topic as JSON lines in <dir>/<topic>.jsonl. */
int sup_run_topic_data(sup_run *r, const pst_data_store *s, const char *dir, pst_err *err);
/* The learner's environment: built from nothing, a short list of harmless inherited names, FfDL's variables, the manifest's.
 * NULL-terminated; free with sup_run_environ_free. */
/* Opens what may lie in JOB_DIR; there no link is followed. -1 and errno. */
int sup_run_open_shared(const sup_run *r, const char *path, int flags, mode_t mode);
char **sup_run_environ(const sup_run *r);
void sup_run_environ_free(char **env);
/* The text that sh -c gets. FfDL's examples break long commands before options ("\n  --flag"): such breaks are joined, others kept. free() */
char *sup_run_command_text(const char *command);

/* How the learner ended. */
typedef struct sup_learner_end {
    bool started;
    int status;                         /* of wait(2), of the process that was started */
    bool stopped;                       /* it was being stopped */
    pst_rundir_stop_reason stop_reason; /* why */
    bool forced;                        /* SIGKILL was needed */
    char limit[300];                    /* the limit that ended it, a sentence; "" = none */
    char last_error[200];               /* last line of stderr, for the reason */
    double cpu_seconds;
    int64_t rss_max_bytes;
} sup_learner_end;

typedef struct sup_output_limits { /* 0 = default */
    double lines_per_s, bytes_per_s;
} sup_output_limits;

/* Starts the command and returns once it and everything it started are gone; its output became events. */
int sup_learner_run(sup_run *r, const sup_output_limits *limits, sup_learner_end *ret_end, pst_err *err);

/* Log files to <result>/learner-N. */
void sup_run_keep_logs(sup_run *r);
/* Registers <result>/model/model.onnx if it is there (learner-1); reports RESULT_STORED. */
int sup_run_store_model(sup_run *r, pst_err *err);

/* The whole sequence: STARTED … EXITED; of a run whose model was being registered, the rest from there. Returns 0 once the end was published,
 * PST_ESTOPPED when it is left to the next supervisor. */
int sup_supervise(sup_run *r, const sup_output_limits *limits, pst_err *err);
/* The last part of it: exit.json is there; results go where the manifest says, everything spooled and the end are published. Told to stop:
 * PST_ESTOPPED. */
int sup_finish(sup_run *r, pst_err *err);
/* The same of a run whose manifest cannot be read: nothing but the publishing. */
int sup_publish(const char *run_dir, sup_outlet *outlet, pst_err *err);

#endif
