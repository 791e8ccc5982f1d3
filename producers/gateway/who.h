/* who.h - who may: the filter before every handler of the gateway. What no credential allows (foreign Host, foreign page,
 * form bodies) was refused before by common/loop/http_guard.h.
 *
 *     Authorization: Bearer TOKEN · basic auth with the token as password · the cookie that GET /?token=TOKEN sets, for the page's own place alone
 *
 * /health asks nobody, /metrics nobody who comes from this computer. @thread loop */
#ifndef PST_PRODUCERS_GATEWAY_WHO_H
#define PST_PRODUCERS_GATEWAY_WHO_H

#include "common/loop/http.h"

typedef struct gw_who gw_who;

/* token NULL: nobody is asked (--auth none). */
gw_who *gw_who_new(const char *token);
void gw_who_free(gw_who *w);
/* Puts itself before all handlers of the server, which must be listening. */
void gw_who_guard(gw_who *w, pst_http *http);
/* The name that came with basic auth, or NULL; free(). */
char *gw_who_name(const pst_http_req *req);

#endif
