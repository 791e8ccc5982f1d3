/* caller.h - who sends a request, as the filter found it (who.h), and what he may see and touch. For handlers:
 *
 *     const char *name = gw_caller_name(req);              // NULL: nobody is told apart (the one token, --auth none)
 *     if (!gw_caller_sees(req, owner)) …                   // answer as if there were no such job: 404
 *     if (!gw_caller_touches(req, owner)) …                // he may look, and no more: 403
 *
 * Roles of users (--users, --jwks). A viewer sees all and changes nothing; a user sees and touches its own jobs; an operator sees and touches all.
 * Which roles may use a route at all stands in the route's row (routes.h). A request that the filter has not let in sees nothing. @thread loop */
#ifndef PST_PRODUCERS_GATEWAY_CALLER_H
#define PST_PRODUCERS_GATEWAY_CALLER_H

#include "common/loop/http.h"
#include "schemas/events.h"

enum { GW_ROLE_VIEWER = 1, GW_ROLE_USER = 2, GW_ROLE_OPERATOR = 4, GW_ROLES_ALL = 7, GW_NAME_MAX = 64 };

typedef struct gw_caller {
    char name[GW_NAME_MAX + 1]; /* "" = nobody is told apart */
    unsigned roles;
    bool granted; /* let in for this {id} a moment ago: sees that job */
    /* What his streams and the audit rest on. */
    const char *via;                /* how he is known: "password", "session", "token", "granted"; NULL = not at all */
    int64_t until_s;                /* his session or token ends then; 0 = neither */
    char bound[65];                 /* a digest of his line in the users file, */
    unsigned keys;                  /* and which of the provider's sets of keys it was */
    char *request_id, *training_id; /* of what was published for the request */
} gw_caller;

/* Letters, digits and . _ @ + - ; begins with a letter or digit. */
bool gw_name_is_valid(const char *name, size_t len);
/* The bit of "viewer", "user", "operator"; 0 for anything else. */
unsigned gw_role_parse(const char *word, size_t len);
/* "viewer, user"; free() */
char *gw_roles_text(unsigned roles);

void gw_caller_set(pst_http_req *req, const gw_caller *caller); /* copied, but for the two ids */
/* That was published for this request: for the audit. Either may be NULL. */
void gw_caller_note(pst_http_req *req, const char *request_id, const char *training_id);
const gw_caller *gw_caller_of(const pst_http_req *req); /* never NULL */
const char *gw_caller_name(const pst_http_req *req);
bool gw_caller_is_operator(const pst_http_req *req); /* by his role; who shows the one token is none by name */
bool gw_caller_sees_all(const pst_http_req *req);
bool gw_caller_sees(const pst_http_req *req, const char *owner); /* owner may be NULL */
bool gw_caller_touches(const pst_http_req *req, const char *owner);
/* What a request of this caller says of who asks, in place of anything that the client says: the user, which is set to his name, and the mark that
 * the Trainer obeys as an operator's. Nothing is changed where nobody is told apart. */
void gw_caller_sign(const pst_http_req *req, pst_job_request *r);

#endif
