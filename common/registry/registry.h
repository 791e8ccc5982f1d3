/* registry.h - client of any Confluent-compatible schema registry (REST), over libcurl; ids are cached for ever.
 * Errors: registry away, 429, 5xx → PST_EUNREACH/RETRY; unknown id or subject → PST_ENOTFOUND/DATA (a 404 without
 * a registry's error_code is a proxy's: EUNREACH); 409 → PST_EINCOMPAT/DATA;
 * 401/403 → PST_EAUTH/FATAL; unparseable answers → PST_EPARSE/RETRY. @thread any (one lock inside). */
#ifndef PST_REGISTRY_H
#define PST_REGISTRY_H

#include "common/base/buf.h"
#include "common/base/err.h"

typedef struct pst_registry_conf {
    const char *url;             /* "http://host:8081"; several by comma are tried in order; user:password@ in it is taken as basic auth */
    const char *user, *password; /* basic auth; NULL = none */
    const char *ca_file;         /* PEM; NULL = system */
    int timeout_ms;              /* one request; 0 = 5000 */
} pst_registry_conf;

typedef struct pst_registry pst_registry;

int pst_registry_new(const pst_registry_conf *conf, pst_registry **ret_registry, pst_err *err); /* does not connect */
void pst_registry_free(pst_registry *r);
const char *pst_registry_url(const pst_registry *r);
/* Text of schema id; borrowed, lives as long as r. Negative answers are remembered for 2 s only. */
int pst_registry_schema(pst_registry *r, int32_t id, const char **ret_text, pst_err *err);
/* Registers (or finds the same schema) and returns the id; cached by (subject, text). */
int pst_registry_register(pst_registry *r, const char *subject, const char *schema_text, int32_t *ret_id, pst_err *err);
int pst_registry_lookup(pst_registry *r, const char *subject, const char *schema_text, int32_t *ret_id, pst_err *err);
int pst_registry_latest(pst_registry *r, const char *subject, int32_t *ret_id, int *ret_version, char **ret_text, pst_err *err);
int pst_registry_compatible(pst_registry *r, const char *subject, const char *schema_text, bool *ret_yes, pst_err *err);
int pst_registry_subjects(pst_registry *r, char ***ret_names, size_t *ret_n, pst_err *err); /* free() each and the array */
int pst_registry_ping(pst_registry *r, pst_err *err);

#endif
