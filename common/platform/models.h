/* models.h - model versions and aliases, as the topic penstock.models tells them; registering artefacts. The topic is the truth: the first
 * VERSION_REGISTERED of (name, version) wins, an alias is what the last ALIAS_SET said. Anybody may write there, so a registration counts
 * only if its number is the next one (1, 2, 3 …) and its digest is one: no event can use up the numbers, or bring an artefact that nobody can check.
 *
 *     pst_models *m = pst_models_new();
 *     pst_models_load(m, client, &err);                                 // reads the topic to its end
 *     const pst_model_event *v = pst_models_resolve(m, "telemetry-ae", "champion", 0);
 *
 * Model metadata keys (ONNX metadata_props) by which a model tells the scorer about itself; the built-in learner writes them:
 *     penstock.features      JSON list in slot order, the keys of a pipeline file's features: field, scale, offset, missing, value, mean, slots, one_hot, …
 *     penstock.categories    JSON object: by slot of the (only) input, the list of its categories' names; the place in it is the code that the model
 *                            knows. The engine makes it of what XGBoost's and LightGBM's files say
 *     penstock.score         score type: raw, reconstruction_error, class
 *     penstock.error_output  name of the output that holds the reconstruction error of each record already, (N,1), in the model's own
 *                            standardised space: a scorer of type reconstruction_error takes it in place of comparing input and output
 *     penstock.threshold     number: scores above it are unusual (99.5th percentile of the training error)
 *     penstock.labels        JSON list of the classes' names, in the order of the probabilities (last output)
 *     penstock.statistics    JSON list {"field", "mean", "std", "min", "max", "edges", "shares"} of the training data, after scale and offset, by slot: the
 *                            bins are (edge i-1, edge i], of nine edges at most, and shares of them one more; bins of the first 200 slots only
 *     penstock.score_statistics  JSON object {"edges", "shares"} of the first number of the scores of the training data
 *     penstock.trained_on    JSON list {"topic", "partition", "from", "to"}
 *     penstock.metrics       JSON object name → number
 *     penstock.training_id, penstock.generation
 *
 * Pure view + thin calls. @thread one owner. */
#ifndef PST_COMMON_PLATFORM_MODELS_H
#define PST_COMMON_PLATFORM_MODELS_H

#include "common/platform/client.h"
#include "common/objects/objects.h"
#include "schemas/events.h"

typedef struct pst_models pst_models;

pst_models *pst_models_new(void);
void pst_models_free(pst_models *m);
/* Why a VERSION_REGISTERED does not count at this place of the topic, a sentence; NULL = it does, or is another event, or lost its number. */
const char *pst_models_refuses(const pst_models *m, const pst_model_event *e);
/* Applies one event (copied). Returns 1 if it changed the view, 0 if it lost (duplicate version) or said nothing new. */
int pst_models_apply(pst_models *m, const pst_model_event *e);
int pst_models_load(pst_models *m, pst_client *c, pst_err *err);
/* version > 0: that one; else alias (NULL or "latest": the highest version). Borrowed VERSION_REGISTERED event until the next apply; NULL = none. */
const pst_model_event *pst_models_resolve(const pst_models *m, const char *name, const char *alias, int version);
/* The ALIAS_SET event an alias rests on (for its effective offsets); NULL = none. */
const pst_model_event *pst_models_alias(const pst_models *m, const char *name, const char *alias);
/* The ALIAS_SET event `back` moves ago: 0 = the one above, 1 = the one before …; NULL when there was none (8 are kept). A scorer that is
 * behind the effective offsets of the last move scores with the version of the move before. */
const pst_model_event *pst_models_alias_back(const pst_models *m, const char *name, const char *alias, size_t back);
/* Calls fn for each version that is there, names sorted, versions ascending; aliases: comma-separated text. */
void pst_models_each(const pst_models *m, const char *name, void (*fn)(void *arg, const pst_model_event *v, const char *aliases),
                     void *arg);
int pst_models_next_version(const pst_models *m, const char *name); /* highest that counted + 1; INT_MAX: there is none left */

typedef struct pst_model_draft {
    const char *name;
    const char *path;        /* the artefact */
    const char *format;      /* "onnx", or NULL: the engine looks; what it finds (also "xgboost-json", …) is registered */
    const char *training_id; /* NULL */
    int generation;          /* 0 = none */
    const char *alias;       /* set to the new version when not NULL */
    const char *actor, *reason;
    const pst_model_event *extra; /* features, trained_on, metrics are taken from it; NULL */
    /* Called once the artefact is stored, before anything is published; an error of its ends it there. NULL */
    int (*publishes)(void *arg, pst_err *err);
    void *publishes_arg;
} pst_model_draft;
/* Validates by loading it with the engine (inputs, outputs, digest), stores the artefact (models/<name>/<sha256>.<format>), publishes
 * VERSION_REGISTERED and, if asked, ALIAS_SET; reads back and takes the next version if another writer was first. The same digest of the
 * same training and generation registered twice is one version. ret_event: as registered; clear it. */
int pst_models_register(pst_client *c, pst_objects *o, const pst_model_draft *d, pst_model_event *ret_event, pst_err *err);
/* PST_ENOTFOUND if there is no such version. ret_offset, here and below: of the event on `models`; may be NULL. */
int pst_models_set_alias(pst_client *c, const char *name, const char *alias, int version, const char *actor, const char *reason,
                         int64_t *ret_offset, pst_err *err);
/* The same, counting from these input offsets on, so that a replay gives the same scores. */
int pst_models_set_alias_from(pst_client *c, const char *name, const char *alias, int version, const pst_effective_from *effective,
                              size_t n, const char *actor, const char *reason, int64_t *ret_offset, pst_err *err);
/* version 0: the alias. A version that an alias names is refused with PST_ESTATE. */
int pst_models_delete(pst_client *c, const char *name, int version, const char *alias, const char *actor, int64_t *ret_offset,
                      pst_err *err);
/* Hex SHA-256: 64 digits. */
bool pst_model_digest_ok(const char *digest);
/* Letters, digits, dot, dash, underscore; 1 to 200 of them. */
bool pst_model_name_ok(const char *name);

#endif
