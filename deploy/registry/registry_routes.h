/* registry_routes.h - paths of the registry's REST interface (Confluent's, as its clients and serializers use it) ↔ requests of the core. */
#ifndef PST_DEPLOY_REGISTRY_REGISTRY_ROUTES_H
#define PST_DEPLOY_REGISTRY_REGISTRY_ROUTES_H

#include "common/loop/http.h"
#include "deploy/registry/registry_core.h"

#define PST_REGISTRY_MEDIA_TYPE "application/vnd.schemaregistry.v1+json"

/* The tables, for references; the handler of the first is that of registry_add_routes, or NULL. */
const pst_http_routes *pst_registry_routes(pst_http_handler handler);
extern const pst_http_routes pst_registry_about_routes, pst_registry_own_routes; /* of the server alone; /health and /metrics */
/* All paths that concern schemas go to handler; the few that tell of the server alone are answered in here. */
void registry_add_routes(pst_http *s, pst_http_handler handler, void *arg);
/* The core's view of a request that came to handler; borrowed texts, valid until the reply. */
void registry_request(const pst_http_req *req, rcore_request *ret_request);

#endif
