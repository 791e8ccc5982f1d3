/* registry_http.h - one bounded JSON request to a registry, over several addresses, with the retries that are safe. Inside the client only.
 * @thread any; one request at a time per registry_http (lock inside). */
#ifndef PST_REGISTRY_REGISTRY_HTTP_H
#define PST_REGISTRY_REGISTRY_HTTP_H

#include "common/base/json.h"
#include "common/registry/registry.h"

typedef struct registry_http registry_http;

int registry_http_new(const pst_registry_conf *conf, registry_http **ret, pst_err *err);
void registry_http_free(registry_http *h);
const char *registry_http_url(const registry_http *h); /* the first address, without credentials */
/* body NULL = none. 2xx: 0 and the parsed answer (caller's reference). Else the errors of registry.h; err->native is the registry's
 * error_code (40401 …) or the status. Connect failures, time-outs, 429 and 5xx are tried again on every address, twice; nothing else is. */
int registry_http_call(registry_http *h, const char *method, const char *path, const char *body, json_t **ret_json, pst_err *err);

#endif
