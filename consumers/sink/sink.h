/* sink.h - what carries records out of Kafka, for the files of this folder: `penstock sink NAME` reads topics and hands each record, decoded, to one of
 * the sinks below. A sink takes records into memory and makes them durable when it settles; only then its places move on. @thread one. */
#ifndef PST_CONSUMERS_SINK_H
#define PST_CONSUMERS_SINK_H

#include "common/bus/bus.h"
#include "common/base/json.h"
#include "common/base/opt.h"
#include "common/platform/client.h"

/* The options of every sink; each sink's own follow in a struct that begins with these. */
typedef struct sink_opts {
    const char *topics; /* with commas; NULL = the sink's */
    bool exit_on_eof;
} sink_opts;
#define SINK_OPTS(TYPE, DEFAULT)                                                                                        \
    {                                                                                                                   \
        "topics",                                                                                                       \
        't',                                                                                                            \
        PST_OPT_STR,                                                                                                    \
        offsetof(TYPE, all.topics),                                                                                     \
        "T,…",                                                                                                          \
        DEFAULT,                                                                                                        \
        "what to read: the platform's topics without prefix, or any"},                                                  \
    {                                                                                                                   \
        "exit-on-eof", 'e', PST_OPT_BOOL, offsetof(TYPE, all.exit_on_eof), NULL, NULL, "end at the topics' present end" \
    }

/* One record. */
typedef struct sink_doc {
    const pst_record *record;
    json_t *value;        /* decoded; NULL: a tombstone, or undecodable */
    int32_t schema_id;    /* -1 = it is no Avro */
    const char *error;    /* why it does not decode; NULL */
    const char *platform; /* its topic without prefix where it is the platform's ("metrics"), else NULL */
} sink_doc;

typedef struct sink_ops {
    const pst_usage *usage;
    size_t opts_size;
    /* Checks the options before anything is connected. */
    int (*open)(const void *opts, pst_client *client, void **ret_sink, pst_err *err);
    /* A sink whose target keeps no places: those of this consumer group are committed once a settle was done. place and forget are NULL then. */
    const char *(*group)(const void *sink);
    /* With a group: its partitions were taken away, and what was taken and is not settled comes again. */
    void (*drop)(void *sink);
    /* The first offset of the partition that is not in the sink yet; < 0: none is known, read from its beginning; INT64_MAX: from its end. */
    int64_t (*place)(void *sink, const char *topic, int32_t partition);
    /* The topic was made anew: its place means nothing any more. */
    void (*forget)(void *sink, const char *topic, int32_t partition);
    /* DATA: this record is left out, said and counted by the caller; anything else ends the sink. */
    int (*take)(void *sink, const sink_doc *d, pst_err *err);
    bool (*full)(const void *sink); /* it must settle before it takes more */
    /* All that was taken is durable, and its places with it; asked about once a second. A sink may put it off unless it is full. final: no more follows. Not asked
     * again after one that failed. With a group: all of it, at each call; RETRY = ask again, after a while. Records that were taken are borrowed until it is done. */
    int (*settle)(void *sink, bool final, pst_err *err);
    int64_t (*refused)(const void *sink); /* records that its target refused for good; NULL = there are none */
    void (*close)(void *sink);
} sink_ops;

extern const sink_ops sink_files, sink_tensorboard, sink_prometheus, sink_opensearch;

/* The document of a record: its value with a member `@kafka` that says where it comes from; what is no object stands under `value`, bytes
 * that do not decode under `value_base64`. Owned by the caller. */
json_t *sink_document(const sink_doc *d);
/* A value of a metric point in JSON, where NaN and infinities are texts (pst_json_real). */
double sink_number(const json_t *v);
/* As part of a path: letters, digits, . _ - ; anything else, and a dot in front, becomes `_`. At most 100 bytes. */
void sink_path_word(const char *text, char ret[101]);

#endif
