/* ffdl.h - what the files of FfDL's REST interface share. Its client works unchanged against these paths:
 *
 *     ffdl_models.c   POST, GET, PATCH, DELETE /v1/models…     published as any request; answered when the Trainer has said something
 *     ffdl_logs.c     …/{id}/logs, …/{id}/metrics              a thread reads the topic and pours it (pour.h) into chunks or a websocket
 *     ffdl_pages.c    /v1/logs/{id}/loglines, …/emetrics       pages by number, from the end, by time
 *     ffdl_files.c    …/{id}/definition, …/{id}/trained_model  a file, streamed
 *     ffdl_records.c  a record of the topics → a log line, an evaluation, in FfDL's shapes
 *     ffdl_words.c    whose job it is, the shape of a job
 *     ffdl_wire.c     errors, CORS, the user's header
 *
 * @thread loop, unless said otherwise. */
#ifndef PST_PRODUCERS_GATEWAY_FFDL_H
#define PST_PRODUCERS_GATEWAY_FFDL_H

#include "producers/gateway/gateway.h"
#include "producers/gateway/routes.h"

#define GW_FFDL_USERINFO                                                                                                         \
    {                                                                                                                            \
        "X-Watson-Userinfo", "header", GW_JSON({"type" : "string"}),                                                             \
            "`bluemix-instance-id=USER`, as FfDL's client sends it; the user is that of basic authentication where there is one" \
    }
#define GW_FFDL_VERSION                                                                                       \
    {                                                                                                         \
        "version", "query", GW_JSON({"type" : "string"}), "a date; FfDL's clients send one, any one is taken" \
    }

/* Is the path one of FfDL's? NULL: no. @thread any */
bool gw_ffdl_is_path(const char *path);
/* FfDL's error object: its client shows `error`, which follows from the status, and `description`. Consumes req. */
void gw_ffdl_fail(pst_http_req *req, int status, const char *description);
/* pst_http_set_problem: every refusal on FfDL's paths is that object. */
bool gw_ffdl_problem(void *arg, pst_http_req *req, int status, const char *detail);
/* Sent by a browser for a page that is not ours. */
bool gw_ffdl_is_foreign_page(const pst_http_req *req);
/* On FfDL's paths: gives the answer its CORS header; true: it was a preflight and is answered. */
bool gw_ffdl_preflight(pst_http_req *req);

/* The user of X-Watson-Userinfo, or NULL; free(). */
char *gw_ffdl_userinfo(const pst_http_req *req);
/* Whose jobs: the name of basic authentication; X-Watson-Userinfo where no credential is shown; NULL: the bearer of the token, who sees all. free(). */
char *gw_ffdl_user(const pst_http_req *req);
/* A job's document; NULL: err (PST_ENOTFOUND: there is none). json_decref it. */
json_t *gw_ffdl_find(gw_state *g, const char *id, pst_err *err);
/* The document of {id}, for who asks; NULL: there is none for him, and req is answered (401, 404, 500). */
json_t *gw_ffdl_job(gw_state *g, pst_http_req *req);
const char *gw_ffdl_owner(const json_t *doc);
/* FfDL's Model of a job's document. */
json_t *gw_ffdl_model(const json_t *doc);
/* FfDL's Model's counterpart of what the topics hold; the shapes of all of it, for the tables of all its files. */
extern const gw_schema gw_ffdl_schemas[];

/* ffdl_records.c: of a job's records, their numbers and times in FfDL's count. Lines come as LogLine, evaluations as MetricPoint. @thread any */
typedef struct gw_ffdl_count {
    int64_t n, last_ms; /* records so far; the time of the last one */
} gw_ffdl_count;
typedef enum { GW_FFDL_LINES, GW_FFDL_METRICS } gw_ffdl_kind;
pst_topic gw_ffdl_topic(gw_ffdl_kind kind);
/* Counts the record: its number from 1 is c->n then, its time, which no other of the job has, c->last_ms. */
void gw_ffdl_count_in(gw_ffdl_count *c, int64_t event_us, int64_t record_ms);
/* As loglines and emetrics have it. */
json_t *gw_ffdl_line(const pst_log_line *l, const char *user, const gw_ffdl_count *c);
json_t *gw_ffdl_emetric(const pst_metric_point *m, const char *user, const gw_ffdl_count *c);
/* As …/metrics has it, {type, timestamp, iteration, Values}: told in several objects where one would be longer than 8 KiB, which FfDL's client reads at once.
 * Each object's text, without a line's end, goes to fn; false ends it. */
bool gw_ffdl_metric(const pst_metric_point *m, bool (*fn)(void *arg, const char *text, size_t len), void *arg);
/* When the job was submitted, less a minute for clocks that differ: where its records begin. */
int64_t gw_ffdl_since_us(const json_t *doc);

#endif
