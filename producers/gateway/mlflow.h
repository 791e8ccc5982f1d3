/* mlflow.h - what the files of MLflow's interface (/api/2.0/mlflow, /api/2.0/mlflow-artifacts) share. Its client works unchanged against these paths.
 *
 *     a request ─► facts (TrackingRecord) and points (MetricPoint) ─ producer ─► tracking, metrics ── acknowledged ─┐
 *     the view's thread ◄── tracking, jobs.state, models, metrics                                                    │
 *          └─ folds them under a lock ── has it come as far as the facts of the request? ──► the request is answered ◄┘
 *
 *     mlflow_view.c         the thread, the fold, look-ups: experiments, runs, artefacts, models
 *     mlflow_write.c        facts out, and the answer once the view has them: who wrote something reads it from then on
 *     mlflow_filter.c       filter and order_by of searches
 *     mlflow_experiments.c mlflow_runs.c mlflow_log.c mlflow_search.c mlflow_history.c mlflow_models.c mlflow_artifacts.c   the paths
 *     mlflow_wire.c         errors, parameters
 *
 * Nothing is kept but in topics and the object store: the view is made anew by each start. It begins with the first request, so that a gateway that
 * nobody asks for MLflow reads nothing for it. @thread loop, unless said otherwise. */
#ifndef PST_PRODUCERS_GATEWAY_MLFLOW_H
#define PST_PRODUCERS_GATEWAY_MLFLOW_H

#include "common/base/map.h"
#include "common/platform/models.h"
#include "producers/gateway/gateway.h"
#include "producers/gateway/routes.h"

/* MLflow's limits, and ours where it has none. */
enum {
    GW_MLFLOW_BODY_MAX = 1 << 20,
    GW_MLFLOW_BATCH_MAX = 1000,       /* metrics, parameters and tags of one log-batch, all together */
    GW_MLFLOW_BATCH_PARAMS_MAX = 100, /* and so many tags */
    GW_MLFLOW_KEY_MAX = 250,
    GW_MLFLOW_PARAM_MAX = 6000,
    GW_MLFLOW_TAG_MAX = 8000,
    GW_MLFLOW_NAME_MAX = 500,
    GW_MLFLOW_KEYS_MAX = 2000, /* of a run: parameters, tags, metrics, so many of each */
    GW_MLFLOW_PATH_MAX = 1000,
    GW_MLFLOW_LISTED_MAX = 10000, /* files and folders of a folder */
    GW_MLFLOW_ARTIFACT_MAX = 128 << 20
};
#define GW_MLFLOW_ROOT      "/api/2.0/mlflow"
#define GW_MLFLOW_ARTIFACTS "/api/2.0/mlflow-artifacts"
#define GW_MLFLOW_DEFAULT   "0" /* the experiment that is always there */
#define GW_MLFLOW_ERROR     "application/json", "MlflowError"

/* ---- mlflow_wire.c --------------------------------------------------------------------------------------------------------- */

/* {"error_code", "message"}; the status follows from the word. Consumes req. */
void gw_mlflow_fail(pst_http_req *req, const char *error_code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void gw_mlflow_fail_err(pst_http_req *req, const pst_err *err);
/* Takes the reference. */
void gw_mlflow_reply(pst_http_req *req, json_t *take);
/* The body, an object; NULL: req is answered. */
json_t *gw_mlflow_body(pst_http_req *req);
/* A member that is a text and not empty; NULL: req is answered. */
const char *gw_mlflow_want(pst_http_req *req, const json_t *body, const char *key);
/* The same of the query. */
const char *gw_mlflow_want_query(pst_http_req *req, const char *key);
/* The member `value` of a tag or parameter: "" where there is none; NULL: it is no text, req is answered. */
const char *gw_mlflow_value(pst_http_req *req, const json_t *obj);
/* A number that may have come as text, as protobuf's JSON writes int64. False: it is neither. Absent or null: *ret is left. */
bool gw_mlflow_int(const json_t *obj, const char *key, int64_t *ret);
/* How many are asked for, and from which one on; false: req is answered. A token is the number of what came before. */
bool gw_mlflow_page(pst_http_req *req, const char *max_results, const char *token, size_t most, size_t *ret_n, size_t *ret_from);
void gw_mlflow_next_page(json_t *answer, size_t from, size_t n, size_t all);
/* Of error objects and bodies, for the tables. */
extern const gw_schema gw_mlflow_schemas[];
extern const gw_content gw_mlflow_json[];
extern const gw_answer gw_mlflow_answers[];

/* ---- mlflow_view.c --------------------------------------------------------------------------------------------------------- */

typedef struct gw_experiment {
    char *id, *name;
    bool created, deleted;
    size_t jobs; /* platform jobs of this name: they are runs of it, without anybody having created it */
    int64_t created_ms, updated_ms;
    json_t *tags; /* key → text */
} gw_experiment;

typedef struct gw_run {
    char *id, *experiment_id, *user;
    const char *status; /* "RUNNING", … static */
    bool created, job, deleted;
    int64_t start_ms, end_ms; /* 0 = none */
    int64_t since_us;         /* no record of it is older */
    int64_t points;           /* its next rindex */
    json_t *tags, *params;    /* key → text */
    json_t *metrics;          /* key → {"key", "value", "timestamp", "step"}, the newest point */
    json_t *sent;             /* the same of points whose facts are written and not read back yet */
} gw_run;

typedef struct gw_artifact {
    char *uri, *sha256;
    int64_t bytes;
} gw_artifact;

/* What MLflow's clients say of a registered model, or of one of its versions. */
typedef struct gw_model_note {
    bool created;
    int64_t created_ms, updated_ms;
    char *description, *source; /* of a version: where its client says that it comes from */
    json_t *tags;
} gw_model_note;

typedef struct gw_tracking {
    pst_map experiments, runs, artifacts /* by path */, notes /* by subject */;
    pst_models *models;
    pst_map model_times; /* name → int64_t *: when its newest event was (µs) */
} gw_tracking;

/* What is known now; locked until gw_mlflow_unlock. NULL: it is not read yet; then req is kept and handler is called with it later, or req is answered
 * with why not. Every handler begins with it. */
gw_tracking *gw_mlflow_lock(gw_state *g, pst_http_req *req, pst_http_handler handler);
/* The same where it is known already: for answers to what was written. */
gw_tracking *gw_mlflow_lock_again(gw_state *g);
void gw_mlflow_unlock(gw_state *g);
/* Has the view come beyond this offset of tracking (or models)? @thread loop */
bool gw_mlflow_has(gw_state *g, pst_topic topic, int64_t offset);
/* Calls fn on the loop's thread whenever the view has come further, while there is anybody who waits. */
void gw_mlflow_watch(gw_state *g, bool on);

/* Those that are there, NULL otherwise. */
gw_experiment *gw_tracking_experiment(gw_tracking *t, const char *id);
gw_experiment *gw_tracking_experiment_named(gw_tracking *t, const char *name);
gw_run *gw_tracking_run(gw_tracking *t, const char *id);
/* The id that a new experiment of this name gets: a digest of the name, so that two gateways make one experiment, and a job's name tells its experiment. */
void gw_tracking_experiment_id(gw_tracking *t, const char *name, char ret_id[24]);
gw_model_note *gw_tracking_note(gw_tracking *t, const char *subject); /* NULL: nothing was said of it */
/* The metric's name of a value: as it is of MLflow's points, group/key of a job's beyond the group `train`. Into room. */
const char *gw_tracking_metric(const pst_metric_point *p, const char *key, char *room, size_t size);
/* Is point a newer than b, in MLflow's order: step, time, value? */
bool gw_tracking_newer(int64_t step_a, int64_t ms_a, double a, int64_t step_b, int64_t ms_b, double b);
double gw_tracking_number(const json_t *metric); /* its value */
/* A point that is to be logged: what its metric's fact is to say, which is a newer point where one is on its way; false: the fact that there is stays. */
bool gw_tracking_claim(gw_run *r, const char *key, int64_t *step, int64_t *ms, double *value);
bool gw_tracking_knows(const gw_run *r, const char *key); /* has it this metric, or is it on its way? */
size_t gw_tracking_metrics(const gw_run *r);              /* how many there are of these */

/* mlflow_fold.c: one record into the view; under its lock. @thread the view's */
gw_tracking *gw_tracking_new(void);
void gw_tracking_free(gw_tracking *t);
void gw_tracking_fact(gw_tracking *t, const char *key, const pst_tracking_record *e, int64_t record_ms); /* e NULL: a tombstone */
void gw_tracking_job(gw_tracking *t, const char *training_id, const pst_job_state *s);                   /* s NULL: it is deleted */
void gw_tracking_point(gw_tracking *t, const pst_metric_point *p);
void gw_tracking_model(gw_tracking *t, const pst_model_event *e);

/* ---- mlflow_write.c -------------------------------------------------------------------------------------------------------- */

typedef struct gw_facts gw_facts;
/* Answers req; the view has what was written. id: as given to gw_facts_send. */
typedef void (*gw_facts_written)(gw_state *g, pst_http_req *req, const char *id);

/* Who asks, for records: basic authentication's name, or "". free(). */
char *gw_mlflow_actor(const pst_http_req *req);
gw_facts *gw_facts_new(gw_state *g, pst_http_req *req);
/* Texts are borrowed for the call; actor and time are filled in. */
void gw_facts_add(gw_facts *f, pst_tracking_record e);
void gw_facts_tag(gw_facts *f, const char *subject, const char *key, const char *value);
void gw_facts_remove(gw_facts *f, const char *subject, pst_tracking_kind kind, const char *name);
void gw_facts_point(gw_facts *f, const pst_metric_point *p);
/* Publishes all, and answers once the view has them: written NULL: {}. Takes f. */
void gw_facts_send(gw_facts *f, gw_facts_written written, const char *id);
void gw_facts_drop(gw_facts *f);
/* The answer also waits until this is true of the view, as gw_facts_send's id has it. */
void gw_facts_until(gw_facts *f, bool (*fn)(const gw_tracking *t, const char *id));
/* The answer also waits until the view has come beyond this offset of `models`; -1: none. */
void gw_facts_after(gw_facts *f, int64_t models_offset);
/* The view has come further, or time has passed: answers those whose facts it has. */
void gw_facts_wake(gw_state *g);

/* ---- what several of the paths share --------------------------------------------------------------------------------------- */

/* Handlers of rows that stand beside others: mlflow_search.c, mlflow_history.c, mlflow_model_search.c. */
void gw_mlflow_search_runs(void *arg, pst_http_req *req);
void gw_mlflow_history(void *arg, pst_http_req *req);
void gw_mlflow_search_models(void *arg, pst_http_req *req);
void gw_mlflow_search_versions(void *arg, pst_http_req *req);
/* mlflow_models.c: as MLflow has them; of a model NULL: there is none of this name. Under the lock. */
json_t *gw_mlflow_version_json(gw_tracking *t, const pst_model_event *v, const char *aliases);
json_t *gw_mlflow_model_json(gw_tracking *t, const char *name);
bool gw_mlflow_has_alias(const char *aliases, const char *alias);
/* mlflow_model_search.c: one version of each stage that is asked for, if it has one; NULL: req is answered. */
json_t *gw_mlflow_of_stages(gw_state *g, pst_http_req *req, const char *name, const json_t *stages);
/* mlflow_runs.c */
json_t *gw_mlflow_run_json(const gw_run *r);
/* The run, if it is there and not deleted (any: deleted too); NULL: req is answered, and the view is unlocked. */
gw_run *gw_mlflow_find_run(gw_state *g, pst_http_req *req, gw_tracking *t, const char *id, bool any);
/* The run that the body names, locked, and the body (decref it); NULL: req is answered, and nothing is locked. mlflow_runs.c */
gw_run *gw_mlflow_body_run(gw_state *g, pst_http_req *req, pst_http_handler handler, bool any, json_t **ret_body);
json_t *gw_mlflow_pairs(const json_t *map); /* [{"key", "value"}] */
bool gw_mlflow_tag_ok(pst_http_req *req, const char *key, const char *value);
bool gw_mlflow_key_ok(pst_http_req *req, const char *what, const char *key);
/* Tags of a body, [{"key", "value"}], as facts; false: req is answered. */
bool gw_mlflow_add_tags(gw_facts *f, pst_http_req *req, const char *subject, const json_t *tags);
/* mlflow_artifacts.c: the path in an address of an artifact (mlflow-artifacts:/PATH, runs:/ID/PATH); free(), or NULL. */
char *gw_mlflow_artifact_path(gw_tracking *t, const char *uri);
/* What lies in a folder; of: what the answer's paths are relative to. NULL: more than GW_MLFLOW_LISTED_MAX. */
json_t *gw_mlflow_list_files(const gw_tracking *t, const char *folder, const char *prefix);

bool gw_mlflow_problem(pst_http_req *req, int status, const char *detail);

#endif
