/* collect.h - what `evaluation_metrics` of a manifest asks for, read once: kind, files, and for regex_extractor the groups with FfDL's macros
 * (%{TYPE:name}) replaced. The manifest's reader says here what is wrong with it, the supervisor goes by it. @thread any. */
#ifndef PST_SCHEMAS_COLLECT_H
#define PST_SCHEMAS_COLLECT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define PST_COLLECT_GROUPS_MAX    32
#define PST_COLLECT_VALUES_MAX    100 /* of one group */
#define PST_COLLECT_PATHS_MAX     16
#define PST_COLLECT_LOOKAHEAD     4 /* FfDL's default */
#define PST_COLLECT_LOOKAHEAD_MAX 64

typedef enum { PST_COLLECT_LINES = 0, PST_COLLECT_EMETRICS, PST_COLLECT_REGEX, PST_COLLECT_TENSORBOARD } pst_collect_kind;

/* The folders of a run that a path in `in` may begin with; one without is below $MODEL_DIR, where the command runs. */
typedef enum {
    PST_COLLECT_ROOT_LOG = 0,
    PST_COLLECT_ROOT_JOB_STATE,
    PST_COLLECT_ROOT_RESULT,
    PST_COLLECT_ROOT_CHECKPOINT,
    PST_COLLECT_ROOT_MODEL,
    PST_COLLECT_ROOT_UNKNOWN
} pst_collect_root;

typedef struct pst_collect_value {
    char *name;
    char *text;      /* a capture's name, or the value itself */
    bool is_capture; /* it was written $text */
    bool is_time;    /* of etimes: step, iteration and epoch are the point's own, others are values */
} pst_collect_value;

typedef struct pst_collect_group {
    char *label;
    char *pattern; /* macros replaced */
    char *stamp;   /* the capture that meta.time names; NULL */
    pst_collect_value *values;
    size_t n_values;
} pst_collect_group;

typedef struct pst_collect {
    pst_collect_kind kind;
    char *paths[PST_COLLECT_PATHS_MAX]; /* `in`, as written */
    size_t n_paths;
    int lookahead;
    pst_collect_group *groups;
    size_t n_groups;
} pst_collect;

/* Told of what is wrong: path below evaluation_metrics ("groups.train.regex"), the mapping that holds its last key. */
typedef void (*pst_collect_complain)(void *arg, bool is_error, const char *path, const json_t *holder, const char *key, const char *text);

/* v: the mapping, or NULL. What is wrong is told and left out; a manifest with an error does not run. complain: NULL = it was told before. */
void pst_collect_read(const json_t *v, pst_collect *ret, pst_collect_complain complain, void *arg);
/* ret_rest: what follows the folder, without a slash before it; borrowed. FfDL's /job is $JOB_STATE_DIR. */
pst_collect_root pst_collect_root_of(const char *path, const char **ret_rest);
void pst_collect_done(pst_collect *c);

#endif
