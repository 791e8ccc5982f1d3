/* scoring.h - what inference knows of pipelines and dead letters, as whoever has the network side sees it: the gateway asks, inference/scoring.c answers.
 * Services never include each other, so they meet in this table, and verbs.c hands it over, as it does serving.h's.
 *
 *     rc = ops->judge(client, text, len, &verdict, &err);            // what `penstock pipelines apply` would say
 *     rc = ops->letters(client, &(pst_letters_ask){.what = PST_LETTERS_COUNT, .topic = "in.dlq"}, &rows, &err);
 *
 * @thread any; all of them ask the broker and take a moment, letters as long as the topic is. */
#ifndef PST_COMMON_PLATFORM_SCORING_H
#define PST_COMMON_PLATFORM_SCORING_H

#include "common/base/err.h"
#include "common/base/json.h"

struct pst_client;

typedef struct pst_pipeline_verdict {
    char *name;   /* as the file says; NULL where it could not be read so far */
    char *report; /* what was looked at and found, a line each */
} pst_pipeline_verdict;

typedef enum { PST_LETTERS_COUNT, PST_LETTERS_SHOW, PST_LETTERS_REPLAY } pst_letters_what;

typedef struct pst_letters_ask {
    pst_letters_what what;
    const char *pipeline, *topic; /* one of them: a published pipeline's dead letters, or this topic's */
    const char *reason, *stage, *source, *partition, *since, *until, *by, *to, *place; /* as of `penstock dlq`; NULL = not said */
    bool dry_run;
} pst_letters_ask;

typedef struct pst_scoring_ops {
    /* The pipelines that are to run, by name: the fields of PipelineSpec, and `inputs`, `output`, `group`, `model`, `canary`, `shadow`, or `refused`, why it does not run. */
    int (*pipelines)(struct pst_client *c, json_t **ret_list, pst_err *err);
    /* May it be published? As `penstock pipelines apply` decides it; nothing is published. ret_verdict is set in any case; free() its texts. */
    int (*judge)(struct pst_client *c, const char *text, size_t len, pst_pipeline_verdict *ret_verdict, pst_err *err);
    /* COUNT: an array of kinds; SHOW: the letter; REPLAY: an array, a topic each. As `penstock dlq … --json` prints them. */
    int (*letters)(struct pst_client *c, const pst_letters_ask *ask, json_t **ret_told, pst_err *err);
} pst_scoring_ops;

#endif
