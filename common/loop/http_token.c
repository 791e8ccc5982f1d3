/* http_token.c - who may, for routes of services that have no filter of their own: the state folder's token, as the gateway asks for it. It is read at
 * each such request, which is rare, so that a service need not be restarted when the token is made or changed after it. */
#include "common/base/hash.h"
#include "common/base/secret.h"
#include "common/loop/http.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool pst_http_shows_token(const pst_http_req *r, const char *token)
{
    const char *v = pst_http_header(r, "Authorization");
    if (v && !strncasecmp(v, "Bearer ", 7))
        return pst_secret_equal(v + 7 + strspn(v + 7, " "), token);
    char *user = NULL, *password = NULL;
    bool yes = pst_http_basic(r, &user, &password) == 0 && pst_secret_equal(password, token);
    free(user);
    free(password);
    return yes;
}

bool pst_http_asks_token(pst_http_req *r, const char *token_path)
{
    char *token = NULL;
    pst_err err = {0};
    int rc = pst_token_read(token_path, &token, &err);
    bool may = !rc && pst_http_shows_token(r, token);
    free(token);
    if (may)
        return true;
    if (rc)
        pst_http_problem(
            r, 403, "no-token", NULL,
            "the state folder has no token that could be shown (penstock gateway makes one); kill -USR1 writes the state to the log");
    else {
        pst_http_add_header(r, "WWW-Authenticate", "Bearer realm=\"penstock\", Basic realm=\"penstock\"");
        pst_http_problem(r, 401, "token-wanted", NULL, "send the token of <state-dir>/token as Authorization: Bearer TOKEN");
    }
    return false;
}

void pst_http_dump(const pst_http *s, json_t *to)
{
    uint64_t n[5];
    pst_http_counts(s, n);
    json_object_set_new(to, "http",
                        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "url", pst_http_url(s), "requests", (json_int_t)n[0], "refused",
                                  (json_int_t)n[1], "connections", (json_int_t)n[2], "streams", (json_int_t)n[3], "streams_dropped",
                                  (json_int_t)n[4]));
}

void pst_http_reply_dump(pst_http_req *r, json_t *take)
{
    pst_http_add_header(r, "Cache-Control", "no-store");
    if (take)
        pst_http_reply_json(r, 200, take);
    else
        pst_http_problem(r, 503, "stuck", NULL,
                         "the service's loop did not come round; what it waits for stands in its log, or in its threads' stacks");
}
