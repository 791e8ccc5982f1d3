/* manifest.h - FfDL's manifest.yml and our additions under `penstock:` (keys: manifest_keys.h): one parser for submit, Trainer, LCM and supervisor.
 * All violations are found, not only the first. @thread any. */
#ifndef PST_SCHEMAS_MANIFEST_H
#define PST_SCHEMAS_MANIFEST_H

#include "common/base/isolation.h"
#include "common/base/yaml.h"
#include "schemas/gpu_types.h"

typedef struct
    pst_complaint { /* field: dotted path as in the manifest ("framework.command"); text: what is wrong and what would be right */
    char *field, *text;
    int line;
} pst_complaint;
typedef struct pst_complaints {
    pst_complaint *at;
    size_t n;
} pst_complaints;
void pst_complain(pst_complaints *c, const char *field, int line, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void pst_complaints_done(pst_complaints *c);
char *pst_complaints_text(const pst_complaints *c); /* "field: text; field: text"; free() */

/* A manifest travels in a command and a state record, together well below 1 MB. */
#define PST_MANIFEST_BYTES_MAX (256 << 10)
/* Processes of one role; one number for manifest, Trainer and LCM, or a job would be admitted by one and fail at another. */
#define PST_JOB_PROCESSES_MAX 256

typedef struct pst_data_store {
    int line;             /* of `type` in the manifest */
    char *id, *type;      /* type as written: mount, host_mount, mount_volume, mount_cos, s3_datastore, topic, files … */
    char *input, *output; /* training_data.container, training_results.container; NULL */
    json_t *connection;   /* owned object; secrets never leave the manifest's reader */
    bool s3;              /* a bucket of an S3 server: input, output name it; connection auth_url, user_name, password, region */
    char *topic;          /* type topic: name, and the range */
    int64_t from, to;     /* offsets per partition; from -2 = beginning, to -1 = the end at start */
    int64_t records_max;  /* 0 = all */
} pst_data_store;

/* Processes that are alike: one command, one size, one environment. What the role leaves out is filled in from the job when the manifest has been read. */
typedef struct pst_role {
    char *name;     /* worker, chief, ps, evaluator, or a name of the job's own */
    int count, min; /* min: kept, nothing goes by it yet */
    char *command;  /* NULL: the framework needs none */
    double cpus;    /* of each process, like those below */
    int64_t memory_bytes;
    int gpus;
    json_t *env; /* the job's with the role's own over it; NULL = none */
    int line;    /* of its key; 0 = made from `learners` */
} pst_role;

/* A new generation comes only after such an end. */
typedef enum { PST_RETRY_EXIT = 1, PST_RETRY_SIGNAL, PST_RETRY_LOST, PST_RETRY_OOM } pst_retry_kind;
typedef struct pst_retry_rule {
    pst_retry_kind kind;
    int number; /* EXIT, SIGNAL */
} pst_retry_rule;

/* penstock.checkpoint */
typedef struct pst_checkpoint_rule {
    bool asked;               /* checkpoints are committed, verified and removed by this rule */
    int keep_last, keep_best; /* 0 = all; 0 = none beside them */
    char *metric;             /* keep_best: by this number, NULL without it */
    bool max;                 /* the larger the better */
} pst_checkpoint_rule;

typedef struct pst_manifest {
    char *name, *description, *version, *user;
    double cpus;
    int gpus;
    char *gpu_type;
    pst_gpu_preference gpu_preference;
    int learners; /* ranked processes: those of all roles but ps and evaluator */
    int64_t memory_bytes;
    int64_t storage_bytes;
    char *framework, *framework_version, *command;
    pst_data_store *stores;
    size_t n_stores;
    json_t *evaluation_metrics; /* as written, or NULL */
    /* penstock: */
    char *queue;
    int queue_line;
    int priority;
    char **after; /* ids of jobs that are to be COMPLETED before */
    size_t n_after;
    int after_line;
    char *array;         /* penstock.array, valid; NULL = it is no array */
    int tasks;           /* of the array */
    bool hold;           /* it waits until somebody releases it */
    int64_t deadline_us; /* 0 = none; from the start of PROCESSING */
    int retries;
    pst_retry_rule *retry_on; /* penstock.retries.on; none = after every failure of the job's own */
    size_t n_retry_on;
    pst_checkpoint_rule checkpoint;
    int64_t system_us;              /* between points of the group system; 0 = none */
    int64_t grace_us;               /* halt and terminate; default 10 s */
    json_t *env;                    /* object of strings, or NULL */
    char *model_name, *model_alias; /* penstock.model */
    char *model_file;               /* penstock.model.file: path inside $RESULT_DIR/model; NULL = the usual names */
    json_t *settings;               /* of the framework: the mapping under penstock that its row names, or NULL */
    char *site;
    char *node;      /* the only one of the site; NULL = any */
    pst_role *roles; /* in the order of ranks: chief, worker, own names by name; then ps, evaluator. Never empty once read */
    size_t n_roles;
    bool roles_given;                 /* penstock.roles has a ranked role: processes are "<role>-<i>"; else workers are "learner-<i>" */
    const struct pst_framework *runs; /* the row of framework.name (schemas/frameworks.h); NULL: the manifest was not read so far */
    bool native;                      /* it has a verb: the platform's own program runs, with its credentials */
    pst_isolation isolation;          /* PST_ISOLATION_DEFAULT: what the host gives, and the operator asks for */
    int isolation_line;
    json_t *raw; /* the whole tree */
} pst_manifest;

/* Returns 0 with errors->n == 0 when valid; PST_EINVAL/DATA with every violation in errors, unknown keys under `penstock:` among them.
 * warnings: fields not supported (each named), unknown keys of FfDL's part. ret_manifest must be cleared by pst_manifest_done in every case. The `memory` grammar is FfDL's: "<number> <unit>". */
int pst_manifest_parse(const char *yaml, size_t len, pst_manifest *ret_manifest, pst_complaints *errors, pst_complaints *warnings);
void pst_manifest_done(pst_manifest *m);
/* What is right in itself, but cannot be had on this platform: data stores that nothing here can read. For the
 * Trainer and for dry runs; appends to errors and returns FfDL's code of the first of them ("C103"), NULL = nothing is missing. */
const char *pst_manifest_check_served(const pst_manifest *m, pst_complaints *errors);

/* ---- roles (manifest_roles.c) */
bool pst_process_is_of(const char *process, const char *role); /* "ps-1" is of "ps", "ps-gpu-1" is not */
bool pst_process_is_ranked(const char *process);               /* the same by the name of a process: all but ps-… and evaluator-… */
/* Does it train, and count in RANK and WORLD_SIZE? Parameter servers and evaluators do not: they serve those that do, and end when these are done. */
bool pst_role_is_ranked(const char *role);
int pst_manifest_processes(const pst_manifest *m); /* of all roles */
/* What its processes are called by, before the number. Borrowed. */
const char *pst_manifest_prefix(const pst_manifest *m, const pst_role *role);
/* The i-th process from 0, role by role: its name ("worker-2", "learner-2", "ps-1") and its role. */
const pst_role *pst_manifest_process(const pst_manifest *m, int i, char ret_name[32]);
/* The role of a process by its name, and its index from 0; NULL = the manifest has no such process. */
const pst_role *pst_manifest_role(const pst_manifest *m, const char *process, int *ret_index);

#endif
