/* who.h - who may: the filter before every handler of the gateway. What no credential allows (foreign Host, foreign page,
 * form bodies) was refused before by common/loop/http_guard.h.
 *
 *     Authorization: Bearer TOKEN · basic auth with the token as password · the cookie that GET /?token=TOKEN sets, for the page's own place alone
 *
 * Under --users and --jwks each shows who he is, and the token opens nothing: basic auth with his password · Bearer with a signed token (bearer.h) · the
 * cookie that a login sets, for a place of his own.
 * Then the roles of the route's row decide, and handlers see the caller (caller.h).
 *
 * FfDL's client shows its credential when it looks at a job, and none when it then asks for the job's logs. So who was let in for a job may read its logs
 * for a minute more from the same address under the same user's name (X-Watson-Userinfo), but not out of a page: those say where they are from.
 *
 * /health asks nobody, /metrics nobody who comes from this computer. @thread loop */
#ifndef PST_PRODUCERS_GATEWAY_WHO_H
#define PST_PRODUCERS_GATEWAY_WHO_H

#include "common/loop/http.h"
#include "producers/gateway/bearer.h"
#include "producers/gateway/users.h"

typedef struct gw_who gw_who;

/* token NULL: nobody is asked (--auth none). */
gw_who *gw_who_new(const char *token);
/* From here on users are asked, not for the token: that is what sessions rest on. Takes users, which may be NULL (tokens alone), and bearer. Before
 * gw_who_guard. */
int gw_who_use_users(gw_who *w, pst_loop *loop, gw_users *take_users, gw_bearer *take_bearer, pst_err *err);
/* Logouts are written to this file, and were, by a gateway before this one (logged_out.h). Without it they last as long as the process. */
int gw_who_remember(gw_who *w, const char *path, pst_err *err);
/* Each user may send so many requests a second, and so many at once; per_second 0: any number. After gw_who_use_users. */
void gw_who_limit(gw_who *w, int per_second, int burst);
/* Whoever was let in, and has a stream open, is out within a second when his session or token ends, when he logs out, or when his line or the provider's keys change. */
/* Answers the requests that it keeps, of which some go on to their handlers: before what these use is freed. Lets in only who needs no looking at from here
 * on. NULL-safe. */
void gw_who_stop(gw_who *w);
void gw_who_free(gw_who *w); /* before its loop */
/* Puts itself before all handlers of the server, which must be listening. */
void gw_who_guard(gw_who *w, pst_http *http);
/* That address and user were let in for that job, just now. w may be one that asks nobody. */
void gw_who_grant(gw_who *w, const char *peer, const char *user, const char *training_id);
/* The name that came with basic auth, or NULL; free(). */
char *gw_who_name(const pst_http_req *req);
/* POST /login: name and password, which may be NULL, against the users file; answers req with a session, or with the form again. */
void gw_who_login(gw_who *w, pst_http_req *req, const char *name, const char *password);
/* Ends all sessions of the caller, wherever they were begun, and their streams; after a restart of the gateway one that was kept elsewhere is good again. */
void gw_who_logout(gw_who *w, pst_http_req *req);

#endif
