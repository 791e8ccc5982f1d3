/* pipeline.h - one scoring pipeline as its file says it (keys: pipeline_keys.h): parsed, checked, nothing resolved yet.
 *
 *     pst_pipeline *p;
 *     if (pst_pipeline_load("pipeline.yml", &p, &err) < 0) …     // "pipeline.yml:7: unknown key "topcis" in input; did you mean "topics"?"
 *     pst_pipeline_free(p);
 *
 * Every string may hold ${NAME} or ${NAME:-default}, taken from the environment after the YAML was parsed, so that a value can never
 * change the structure of the file; "$${" stands for "${". A pipeline is immutable after the load: @thread any. */
#ifndef PST_INFERENCE_PIPELINE_PIPELINE_H
#define PST_INFERENCE_PIPELINE_PIPELINE_H

#include "common/bus/bus.h"

#include <jansson.h>

#define PST_PIPELINE_BYTES_MAX    (1u << 20)
#define PST_PIPELINE_FEATURES_MAX 100000
#define PST_FEATURE_SLOTS_MAX     1000000
#define PST_PIPELINE_WINDOWS_MAX  256
#define PST_PIPELINE_SERIES_MAX   64     /* fields with windows */
#define PST_PIPELINE_STATE_BYTES  900000 /* the most that a key may come to in the changelog */

typedef enum { PST_MISSING_REJECT = 0, PST_MISSING_VALUE, PST_MISSING_NAN, PST_MISSING_MEAN, PST_MISSING_ZEROS } pst_missing;
typedef enum { PST_UNKNOWN_MISSING = 0, PST_UNKNOWN_REJECT, PST_UNKNOWN_ZEROS, PST_UNKNOWN_OTHER } pst_unknown_word;
typedef enum { PST_SCORE_AUTO = 0, PST_SCORE_RAW, PST_SCORE_RECONSTRUCTION, PST_SCORE_CLASS } pst_score_type;
typedef enum { PST_INPUT_AVRO = 0, PST_INPUT_JSON } pst_input_format;
typedef enum { PST_NULL_PASS = 0, PST_NULL_SKIP, PST_NULL_DEAD_LETTER } pst_null_policy;

typedef struct pst_vocabulary_entry {
    char *text;
    double number;
} pst_vocabulary_entry;

/* Instead of the record's own value: what the values of its key come to, over the last so many, or the last so many seconds. */
typedef struct pst_feature_window {
    bool there, self;
    int of; /* a word of pipeline_window_words; inference/state/windows.h has what each means */
    uint32_t last;
    int64_t ms;
    uint32_t index, series; /* among the pipeline's windows; among the fields that have some */
} pst_feature_window;

/* One field of a record → one slot of the model's input (an array, or one-hot words: several). x · scale + offset, then clip. */
typedef struct pst_feature {
    char *field; /* dotted path */
    char *input; /* name of the model input it belongs to; NULL = the only one, or the one named like the field */
    double scale, offset;
    pst_missing missing;
    double value;     /* PST_MISSING_VALUE: stands for x, so it is scaled like x; NaN = only a text was given */
    char *value_text; /* PST_MISSING_VALUE, for inputs of strings; NULL = none */
    bool has_clip;
    double clip_lo, clip_hi;
    bool has_vocabulary;      /* the field holds words: text, whole numbers, booleans */
    bool one_hot;             /* each word fills a slot of its own: its number, counted from the feature's first; -1 = none, all are 0 */
    bool has_null;            /* one_hot: fill_slot is the slot of null */
    int32_t fill_slot;        /* one_hot with PST_MISSING_VALUE: the slot that a missing value fills */
    pst_unknown_word unknown; /* words that are not there; OTHER: the feature's last slot */
    bool codes;               /* categories: codes: the field holds the model's codes, not their names */
    bool categories;          /* set when a model is bound: the words are the names of the model's categories */
    bool numbers_pass;        /* the same: names are texts, so a number is a code already */
    pst_vocabulary_entry *vocabulary;
    size_t n_vocabulary;
    uint32_t slots; /* 0 = found out: 1, or what the model's width leaves for the one array */
    double *means;  /* in the field's units; one per slot or one for all; NULL = unknown */
    size_t n_means;
    pst_feature_window window;
    bool text; /* set when a model is bound: it fills an input of strings, with the field's text as it is */
    int line;  /* in the file; 0 = from the model */
} pst_feature;

typedef struct pst_model_choice {
    char *name, *alias; /* alias NULL with version > 0 */
    int version;        /* > 0: pinned */
    char *file;         /* instead of name: a path */
} pst_model_choice;

typedef struct pst_pipeline {
    char *file, *name;
    char *text;     /* as read */
    bool published; /* read under the rules of pipeline_published.h */
    struct pst_pipeline_lines {
        int input, model, features, output, errors, rollout, device, state;
    } line; /* of the sections in the file, for refusals that come later; 0 = not there */

    char **topics;
    size_t n_topics;
    char *group; /* NULL: derived from the name by the scorer */
    pst_start start;
    int64_t start_ms;
    pst_input_format format;

    pst_model_choice model;

    bool has_features;
    pst_feature *features;
    size_t n_features;

    char *output_topic; /* NULL only where nothing is published (dry-run) */
    bool slim;
    char **passthrough;
    size_t n_passthrough;

    pst_score_type score_type;
    bool has_threshold;
    double threshold;
    bool non_finite_dead; /* a score that is NaN or infinite, or a number beyond the model's type, is a dead letter */

    size_t batch_count, batch_bytes;
    int64_t batch_age_us;
    bool exactly_once;
    const char *bus; /* a word of pst_bus_conf_client() */

    struct pst_pipeline_state {
        bool there;
        char *key, *time; /* fields; NULL = the record's key, its timestamp */
        char *topic;
        size_t keys_max, bytes_max, values_max;
        int64_t idle_ms;
        size_t n_windows, n_series;
    } state;

    bool tolerance_none;
    char *dlq_topic; /* NULL: <input>.dlq */
    pst_null_policy on_null;
    int64_t pause_after; /* dead letters in a row; 0 = never */

    bool has_canary;
    pst_model_choice canary;
    double canary_percent;
    struct pst_pipeline_budget { /* of the canary: beyond it the scorer lets it rest. Shares; < 0 = no limit */
        double errors, disagreement;
        int64_t latency_us; /* mean of a record's computing; 0 = no limit */
        int64_t over;       /* judged over at least so many records; 0 = there is no budget */
    } budget;
    bool has_shadow;
    pst_model_choice shadow;
    char *shadow_topic;
    bool has_tolerance; /* numbers of shadow and primary that lie no farther apart are equal */
    double tolerance;

    double drift_psi;   /* a feature beyond it is told */
    int64_t drift_over; /* records of a window; 0 = nobody asks */

    size_t inflight_bytes, model_bytes, arena_bytes; /* limits */
    char *device;                                    /* "auto", "cpu", "cuda", "cuda:0" */
    int64_t threads;                                 /* of one run of the model */

    struct pst_pipeline_property {
        char *key, *value, *origin; /* origin: "pipeline.yml:21" */
    } * kafka;
    size_t n_kafka;
} pst_pipeline;

/* PST_EINVAL (FATAL class: a configuration error, exit status 2) with file:line. file names the text in messages; a relative model file is
 * looked for beside it. */
int pst_pipeline_parse(const char *text, size_t len, const char *file, pst_pipeline **ret_pipeline, pst_err *err);
int pst_pipeline_load(const char *path, pst_pipeline **ret_pipeline, pst_err *err); /* "-" = stdin */
/* The same for a pipeline that was, or is about to be, published: what pipeline_published.h does not allow is refused by its line. */
int pst_pipeline_parse_published(const char *text, size_t len, const char *file, pst_pipeline **ret_pipeline, pst_err *err);
int pst_pipeline_load_published(const char *path, pst_pipeline **ret_pipeline, pst_err *err);
void pst_pipeline_free(pst_pipeline *p);

/* One feature from a JSON object of a model's own mapping (metadata "penstock.features"). PST_EINVAL/DATA. */
int pst_feature_from_json(const json_t *obj, pst_feature *ret_feature, pst_err *err);
void pst_feature_done(pst_feature *f);
void pst_feature_copy(const pst_feature *f, pst_feature *ret_copy);

const char *pst_score_type_name(pst_score_type t); /* "raw", … */
bool pst_score_type_parse(const char *text, pst_score_type *ret_type);
const char *pst_missing_name(pst_missing m);
const char *pst_unknown_word_name(pst_unknown_word u);

#endif
