/* deploy_digest.h - by what a DEPLOY is recognised: the Trainer keeps the digest in jobs.state, in the transaction of the command; an LCM
 * follows no DEPLOY whose digest stands in no state. A fixed list of fields, so that programs of different age agree. @thread any. */
#ifndef PST_SCHEMAS_DEPLOY_DIGEST_H
#define PST_SCHEMAS_DEPLOY_DIGEST_H

#include "schemas/events.h"

/* SHA-256 over id, generation, site, node, nonce and spec; hex. */
void pst_deploy_digest(const pst_job_command *c, char ret_hex[65]);
/* SHA-256 of a nonce; hex. */
void pst_nonce_digest(const char *nonce, char ret_hex[65]);

#endif
