/* registry_http.h - one bounded JSON request to a registry, over several addresses, with the retries that are safe. Inside the client only.
 * @thread any; one request at a time per pst_rhttp (lock inside). */
#ifndef PST_REGISTRY_REGISTRY_HTTP_H
#define PST_REGISTRY_REGISTRY_HTTP_H

#include "common/base/json.h"
#include "common/registry/registry.h"

typedef struct pst_rhttp pst_rhttp;

int pst_rhttp_new(const pst_registry_conf *conf, pst_rhttp **ret, pst_err *err);
void pst_rhttp_free(pst_rhttp *h);
const char *pst_rhttp_url(const pst_rhttp *h); /* the first address, without credentials */
char *pst_rhttp_escape(const char *text);      /* percent-encoded; free() */
/* body NULL = none. 2xx: 0 and the parsed answer (caller's reference). Else the errors of registry.h; err->native is the registry's
 * error_code (40401 …) or the status. Connect failures, time-outs, 429 and 5xx are tried again on every address, twice; nothing else is. */
int pst_rhttp_call(pst_rhttp *h, const char *method, const char *path, const char *body, json_t **ret_json, pst_err *err);

#endif
