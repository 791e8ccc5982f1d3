/* topics.h - names of the platform's topics, from topics.def. */
#ifndef PST_SCHEMAS_TOPICS_H
#define PST_SCHEMAS_TOPICS_H

#include "schemas/avro.h"

typedef enum {
#define PST_TOPIC(ID, suffix, type, partitions, cleanup, retention_ms, writers, readers, doc) PST_TOPIC_##ID,
#include "schemas/topics.def"
#undef PST_TOPIC
    PST_TOPIC_COUNT
} pst_topic;

typedef struct pst_topic_def {
    const char *suffix;    /* "jobs.requests" */
    const char *type_name; /* "JobRequest" */
    int partitions;
    const char *cleanup;           /* cleanup.policy */
    int64_t retention_ms;          /* -1 = for ever */
    const char *writers, *readers; /* components of access.h, with blanks between */
    const char *doc;
} pst_topic_def;

const pst_topic_def *pst_topic_get(pst_topic t);
char *pst_topic_name(const char *prefix, pst_topic t); /* "penstock.jobs.requests"; free() it */

#endif
