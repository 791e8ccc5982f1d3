/* learn_settings.h - what `penstock.learner` in a manifest says to the built-in learner: parsed, checked, all violations at once.
 *
 *     learner:
 *       model: autoencoder          # or mlp, with target: and, for classes, classes:
 *       features: [cpu.user, {field: memory.used, scale: 1, offset: 0, missing: mean}]     # omitted: every number of the records
 *       hidden: [8, 4, 8]           # widths of the hidden layers
 *       epochs: 30
 *
 * Immutable after parsing: @thread any. */
#ifndef PST_SCHEMAS_LEARN_SETTINGS_H
#define PST_SCHEMAS_LEARN_SETTINGS_H

#include "schemas/manifest.h"

typedef enum {
    PST_ACTIVATION_RELU = 0,
    PST_ACTIVATION_TANH,
    PST_ACTIVATION_SIGMOID,
    PST_ACTIVATION_ELU,       /* alpha 1 */
    PST_ACTIVATION_LEAKY_RELU /* slope 0.01 */
} pst_activation;
typedef enum { PST_LOSS_MSE = 0, PST_LOSS_CROSS_ENTROPY } pst_loss;

#define PST_LEARN_COLUMNS_MAX 10000 /* slots of all features */
#define PST_LEARN_WIDTH_MAX   8192  /* of a hidden layer */
#define PST_LEARN_HIDDEN_MAX  16
#define PST_LEARN_CLASSES_MAX 1000
#define PST_LEARN_BATCH_MAX   65536
#define PST_LEARN_WORDS_MAX   1000 /* of a feature, a slot each */

/* What stands for a value that a record does not have. */
typedef enum { PST_LEARN_MISSING_MEAN = 0, PST_LEARN_MISSING_VALUE, PST_LEARN_MISSING_REJECT, PST_LEARN_MISSING_ZEROS } pst_learn_missing;
/* What a word comes to that is none of its feature's: no slot, a slot of its own behind the words, or the record is left out. */
typedef enum { PST_LEARN_UNKNOWN_ZEROS = 0, PST_LEARN_UNKNOWN_OTHER, PST_LEARN_UNKNOWN_REJECT } pst_learn_unknown;

typedef struct pst_learn_feature {
    char *field;          /* dotted path, or a column of a CSV file */
    double scale, offset; /* the model sees x · scale + offset */
    pst_learn_missing missing;
    double value;     /* stands for x */
    double noise;     /* differences up to this size (of x) mean nothing: its deviation is never taken to be less */
    int slots;        /* an array of numbers fills several; of words: 1 until they are settled, then one each (learner/words.h) */
    bool one_hot;     /* of words */
    bool learn_words; /* which words is learnt from the records */
    int words_max;    /* where they are learnt: how many, the most frequent ones */
    char **words;     /* n_words 0: not learnt yet */
    int n_words;
    pst_learn_unknown unknown;
} pst_learn_feature;

typedef struct pst_learn_settings {
    bool autoencoder;
    pst_learn_feature *features; /* n_features 0: every number of the first record */
    int n_features;
    char *target;
    int n_classes;         /* 0 = regression */
    char **classes;        /* names; NULL: the target is a number from 0 to n_classes − 1 */
    bool leave_out_others; /* records of other classes are left out; else they are an error */
    pst_loss loss;
    int hidden[PST_LEARN_HIDDEN_MAX], n_hidden;
    pst_activation activation;
    int64_t epochs;
    int batch;
    double learning_rate, weight_decay, validation;
    uint64_t seed;
    int64_t patience;         /* epochs without a better validation loss until it stops; 0 = never */
    int64_t checkpoint_every; /* epochs */
    int64_t staleness;        /* with parameter servers: minibatches that a learner may be ahead of the slowest; 0 = none */
    int peer_timeout;         /* seconds that another rank may be silent */
    char *data;               /* CSV file or folder below DATA_DIR; NULL = DATA_DIR itself */
} pst_learn_settings;

/* settings: the mapping, NULL = all defaults. Complaints name keys from `path` on ("penstock.learner.hidden"). 0, or PST_EINVAL with
 * complaints; ret_settings must be cleared in every case. */
int pst_learn_settings_parse(const json_t *settings, const char *path, pst_learn_settings *ret_settings, pst_complaints *errors);
/* The settings of a native job, under penstock.learner or as YAML in framework.command; both is a complaint. */
int pst_learn_settings_of(const pst_manifest *m, pst_learn_settings *ret_settings, pst_complaints *errors);
void pst_learn_settings_done(pst_learn_settings *s);
/* Takes these fields as the features, with no scaling and missing: mean. For features that were omitted. */
void pst_learn_settings_take_fields(pst_learn_settings *s, const char *const *fields, int n);
int pst_learn_columns(const pst_learn_settings *s);           /* slots of all features */
char *pst_learn_settings_digest(const pst_learn_settings *s); /* of all that shapes the training (not the features): hex; free() */

/* Takes these as the words of a feature whose words are learnt, of an earlier generation, say. */
void pst_learn_feature_take_words(pst_learn_feature *f, const char *const *words, int n);

const char *pst_learn_missing_name(pst_learn_missing m);
const char *pst_learn_unknown_name(pst_learn_unknown u);
const char *pst_activation_name(pst_activation a); /* "relu" … */

#endif
