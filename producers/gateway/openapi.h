/* openapi.h - one OpenAPI 3.1 description of all routes of the gateway, made of their rows (routes.h). */
#ifndef PST_PRODUCERS_GATEWAY_OPENAPI_H
#define PST_PRODUCERS_GATEWAY_OPENAPI_H

#include "common/base/json.h"

/* A new reference. Paths stand in the order of the tables, tags are nouns; `x-who-may` says of each operation what `security` cannot. */
json_t *pst_gateway_openapi(void);

/* openapi_event.c: JSON Schema of a record's Avro schema, as codec and API write it. */
json_t *gw_event_schema(const char *avro);

#endif
