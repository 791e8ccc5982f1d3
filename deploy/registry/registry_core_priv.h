/* registry_core_priv.h - shared by registry_core.c (reads) and registry_write.c (what changes things). */
#ifndef PST_DEPLOY_REGISTRY_REGISTRY_CORE_PRIV_H
#define PST_DEPLOY_REGISTRY_REGISTRY_CORE_PRIV_H

#include "deploy/registry/registry_core.h"
#include "deploy/registry/registry_state.h"

struct rcore {
    rstate state;
};

/* A schema out of a request's body. */
typedef struct candidate {
    json_t *body;
    const char *text; /* in body */
    pst_schema *avro;
    char *canon;
    int64_t id, version; /* -1 = not given */
} candidate;
/* false: the reply says why not. */
bool rcore_candidate(const rcore_request *q, candidate *ret, rcore_reply *r);
void rcore_candidate_done(candidate *c);
rversion *rcore_find_equal(const rsubject *s, const char *canon, bool deleted);
/* 0 = latest, > 0 = that one, < 0: the reply says that it is no version. */
int rcore_version_number(const char *text, rcore_reply *r);
/* Is c allowed next to `against` (NULL: all that the level looks at)? Reasons, as texts, are appended to messages. */
bool rcore_compatible(const rstate *s, const rsubject *subject, const rversion *against, const candidate *c, json_t *messages);
void rcore_no_subject(rcore_reply *r, const char *subject);
void rcore_no_version(rcore_reply *r, int version);
bool rcore_body(const rcore_request *q, json_t **ret_body, rcore_reply *r);

void rcore_register(rcore *c, const rcore_request *q, rcore_reply *r);
void rcore_delete_subject(rcore *c, const rcore_request *q, rcore_reply *r);
void rcore_delete_version(rcore *c, const rcore_request *q, rcore_reply *r);
void rcore_config_put(rcore *c, const rcore_request *q, rcore_reply *r);
void rcore_config_delete(rcore *c, const rcore_request *q, rcore_reply *r);
void rcore_mode_put(rcore *c, const rcore_request *q, rcore_reply *r);
void rcore_mode_delete(rcore *c, const rcore_request *q, rcore_reply *r);

#endif
