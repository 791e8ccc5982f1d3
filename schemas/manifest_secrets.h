/* manifest_secrets.h - a manifest without its secrets, for records that many read (jobs.state), and back.
 *
 * Secret are: what stands under data_stores[].connection, but for kind and place of the store; every value of penstock.env and of a role's env;
 * and every value whose key says so (password, token, …). The rest of the text, comments and form included, stays byte for byte; unsealing
 * gives the very text that was submitted. @thread any. */
#ifndef PST_SCHEMAS_MANIFEST_SECRETS_H
#define PST_SCHEMAS_MANIFEST_SECRETS_H

#include "common/base/seal.h"

/* free(). context: the training id; a sealed text is of no use in another job. A text that is no YAML is sealed as a whole. */
char *pst_manifest_seal(const char *text, const pst_seal_key *key, const char *context);
/* False: nothing in it is secret, known without reading it as YAML. text: a manifest that was found good. */
bool pst_manifest_may_have_secrets(const char *text);
/* NULL when something in it was sealed with another key. */
char *pst_manifest_unseal(const char *text, const pst_seal_key *key, const char *context);

#endif
