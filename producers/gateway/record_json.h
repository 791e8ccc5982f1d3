/* record_json.h - a record of any topic as JSON for a page or a script: where it stands, its headers, and key and value as what they are known to be. */
#ifndef PST_PRODUCERS_GATEWAY_RECORD_JSON_H
#define PST_PRODUCERS_GATEWAY_RECORD_JSON_H

#include "common/base/json.h"
#include "common/bus/bus.h"
#include "common/platform/client.h"

/* {"topic", "partition", "offset", "timestamp" (ms, null = none), "key", "headers", "value"}, a new reference; key and value are {"format": "avro", "json",
 * "text", "bytes" or "null", "bytes", "schema_id", "data" or "hex", "cut", "why"}. Sealed texts are "***". @thread any */
json_t *gw_record_json(pst_client *c, const pst_record *r, pst_header_room *room);

#endif
