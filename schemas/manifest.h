/* manifest.h - FfDL's manifest.yml and our additions under `penstock:` (keys: manifest_keys.h): one parser for submit, Trainer, LCM and supervisor.
 * All violations are found, not only the first. @thread any. */
#ifndef PST_SCHEMAS_MANIFEST_H
#define PST_SCHEMAS_MANIFEST_H

#include "common/base/isolation.h"
#include "common/base/yaml.h"

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
    char *topic;          /* type topic: name, and the range */
    int64_t from, to;     /* offsets per partition; from -2 = beginning, to -1 = the end at start */
    int64_t records_max;  /* 0 = all */
} pst_data_store;

typedef struct pst_manifest {
    char *name, *description, *version, *user;
    double cpus;
    int gpus;
    char *gpu_type;
    int learners;
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
    int64_t deadline_us; /* 0 = none; from the start of PROCESSING */
    int retries;
    int64_t grace_us;               /* halt and terminate; default 10 s */
    json_t *env;                    /* object of strings, or NULL */
    char *model_name, *model_alias; /* penstock.model */
    char *model_file;               /* penstock.model.file: path inside $RESULT_DIR/model; NULL = the usual names */
    json_t *settings;               /* of the framework: the mapping under penstock that its row names, or NULL */
    char *site;
    int parameter_servers;            /* penstock.roles.ps; 0 */
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
/* What is right in itself, but cannot be had on this platform: data stores that nothing here can read, queues that do not exist. For the
 * Trainer and for dry runs; appends to errors and returns FfDL's code of the first of them ("C103"), NULL = nothing is missing. */
const char *pst_manifest_check_served(const pst_manifest *m, pst_complaints *errors);

/* GPUs of one process of a job that asks for `gpus`: a learner gets them, a parameter server none. The one rule by which the Trainer
 * charges and an LCM gives. process: learner-1, ps-1, … */
int pst_process_gpus(const char *process, int gpus);

#endif
