/* registry_canon.h - when are two Avro schema texts the same schema? When they differ in spelling only: white space, order of attributes,
 * {"type":"int"} for "int", name with namespace for the full name. Documentation, defaults and aliases count, which is why Avro's parsing
 * canonical form will not do here: it drops defaults, and a schema that gained one would never be registered. @thread any. */
#ifndef PST_DEPLOY_REGISTRY_REGISTRY_CANON_H
#define PST_DEPLOY_REGISTRY_REGISTRY_CANON_H

#include "common/base/json.h"

/* One line of JSON, free() it; NULL when text is no JSON or nested deeper than 64. */
char *registry_canon(const char *text, size_t len);

#endif
