/* sources.h - where the learner's records come from: ranges of Kafka topics (Avro or JSON values), CSV files.
 * Both fill in the settings' features when they were left out: every number of the first record except its times and the target.
 * @thread any, one owner. */
#ifndef PST_LEARNER_SOURCES_H
#define PST_LEARNER_SOURCES_H

#include "common/platform/client.h"
#include "trainer/learner/data.h"

typedef struct learn_source_hooks {
    void *arg;
    bool (*stopped)(void *arg);
    void (*say)(void *arg, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* one line for people */
} learn_source_hooks;

/* data_dir: DATA_DIR; path: a file or folder below it, NULL = data_dir itself. All *.csv files of a folder, by name. records_max 0 = all.
 * PST_ESTOPPED when told to stop. */
int learn_data_read_csv(learn_data *d, pst_learn_settings *s, const char *data_dir, const char *path, int64_t records_max,
                        const learn_source_hooks *hooks, pst_err *err);

/* Reads every data store of type topic to the end of its range, waiting through outages. resume: ranges of an earlier generation, read as
 * they are; NULL = resolved now (and d->ranges says what came of it). */
int learn_data_read_topics(learn_data *d, pst_learn_settings *s, pst_client *client, const pst_data_store *stores, size_t n_stores,
                           const learn_data_range *resume, size_t n_resume, const learn_source_hooks *hooks, pst_err *err);

/* Where these ranges begin and end by now, into d->ranges and nothing else; a store's limit of records as shorter ranges. */
int learn_data_find_topics(learn_data *d, pst_client *client, const pst_data_store *stores, size_t n_stores,
                           const learn_source_hooks *hooks, pst_err *err);

/* Does this name say that the number is a time? Such a number grows for ever: no model that has learned it knows tomorrow. */
bool learn_field_is_time(const char *name);

/* fields.c: numeric leaves of an Avro schema or of one JSON record, as dotted paths; free() each and the array. */
size_t learn_fields_of_schema(const char *schema_text, char ***ret_fields);
size_t learn_fields_of_json(const json_t *record, char ***ret_fields);
/* Takes them as the settings' features, without the target. PST_EINVAL/DATA when none is left. where: for the message. */
int learn_fields_take(pst_learn_settings *s, char **fields, size_t n, const char *where, pst_err *err);
/* The value at a dotted path; a top-level key that contains the dots itself wins. NULL = absent. */
const json_t *learn_json_at(const json_t *record, const char *path);

#endif
