/* registry_core.h - a schema registry without I/O: state, requests → replies and the records to write first.
 *
 *     rcore_apply(core, key, …)                     every record of the topic, in order, our own ones too
 *     rcore_handle(core, &request, &reply)          reply.n_writes == 0: answer it now
 *                                                       else write them in order, wait until they came back through apply, then answer
 *
 * Nothing changes the state but apply, so what is answered is what the topic says. One writing request at a time: ids and versions are
 * chosen from the state, so a second one must be asked (again) after the first one's records were applied. One owner, no clock. */
#ifndef PST_DEPLOY_REGISTRY_REGISTRY_CORE_H
#define PST_DEPLOY_REGISTRY_REGISTRY_CORE_H

#include "common/base/json.h"

typedef enum {
    PST_ROP_SUBJECTS,     /* GET /subjects */
    PST_ROP_VERSIONS,     /* GET /subjects/{s}/versions */
    PST_ROP_VERSION,      /* GET /subjects/{s}/versions/{v} */
    PST_ROP_VERSION_TEXT, /* GET …/schema */
    PST_ROP_REFERENCED,   /* GET …/referencedby */
    PST_ROP_METADATA,     /* GET /subjects/{s}/metadata */
    PST_ROP_REGISTER,     /* POST /subjects/{s}/versions */
    PST_ROP_LOOKUP,       /* POST /subjects/{s} */
    PST_ROP_DELETE_SUBJECT,
    PST_ROP_DELETE_VERSION,
    PST_ROP_ID, /* GET /schemas/ids/{id} */
    PST_ROP_ID_TEXT,
    PST_ROP_ID_SUBJECTS,
    PST_ROP_ID_VERSIONS,
    PST_ROP_GUID,    /* GET /schemas/guids/{guid}: we give none */
    PST_ROP_SCHEMAS, /* GET /schemas */
    PST_ROP_TYPES,
    PST_ROP_COMPATIBLE, /* POST /compatibility/subjects/{s}/versions[/{v}] */
    PST_ROP_CONFIG_GET, /* subject NULL = global */
    PST_ROP_CONFIG_PUT,
    PST_ROP_CONFIG_DELETE,
    PST_ROP_MODE_GET,
    PST_ROP_MODE_PUT,
    PST_ROP_MODE_DELETE,
    PST_ROP_CONTEXTS
} rcore_op;

typedef struct rcore_request {
    rcore_op op;
    const char *subject, *version, *id; /* decoded path parts; NULL where the path has none */
    const char *query_subject;          /* ?subject= */
    const char *prefix;                 /* ?subjectPrefix= */
    const char *body;
    size_t body_len;
    bool deleted, deleted_only, permanent, force, default_to_global, verbose, latest_only, max_id;
    bool extras;           /* Confluent-Accept-Unknown-Properties: newer fields are welcome */
    int64_t offset, limit; /* limit < 0 = all */
} rcore_request;

typedef struct rcore_write {
    char *key;
    char *value; /* NULL = tombstone */
} rcore_write;

typedef struct rcore_reply {
    int status;
    int error_code; /* 0 = none */
    json_t *body;   /* or */
    char *text;     /* a bare schema */
    rcore_write *writes;
    size_t n_writes;
} rcore_reply;

typedef struct rcore rcore;

rcore *rcore_new(void);
void rcore_free(rcore *c);
void rcore_clear(rcore *c); /* the topic was created again: it is read from its start */
int rcore_apply(rcore *c, const void *key, size_t key_len, const void *value, size_t value_len, pst_err *err);
void rcore_handle(rcore *c, const rcore_request *request, rcore_reply *ret_reply);
void rcore_reply_done(rcore_reply *r);
/* {"error_code","message"} into an empty reply. */
void rcore_reply_error(rcore_reply *r, int status, int code, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* {subjects live, versions live, schemas} for metrics and logs. */
void rcore_counts(const rcore *c, size_t ret_counts[3]);
#define PST_RKEY_NOOP "{\"keytype\":\"NOOP\",\"magic\":0}"

#endif
