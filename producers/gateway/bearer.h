/* bearer.h - who comes with a signed token (Authorization: Bearer JWT): a user of the file with the key of his line, or somebody whom an identity provider knows
 * (--jwks FILE or URL), by the provider's keys. The file of keys is read again when it changes, the address asked again, which is how a provider's new keys come in. @thread loop */
#ifndef PST_PRODUCERS_GATEWAY_BEARER_H
#define PST_PRODUCERS_GATEWAY_BEARER_H

#include "producers/gateway/caller.h"
#include "producers/gateway/users.h"

typedef struct gw_bearer gw_bearer;

typedef struct gw_bearer_conf {
    const char *path;              /* of the provider's JWKS, a file or an address (key_url.h); NULL = none */
    const char *ca_file;           /* of the address's server; NULL = the system's */
    const char *issuer, *audience; /* of its tokens; NULL = any */
    unsigned roles;                /* of its tokens that name none of ours and are in no line of the users file */
} gw_bearer_conf;

int gw_bearer_new(const gw_bearer_conf *conf, gw_bearer **ret_bearer, pst_err *err);
void gw_bearer_free(gw_bearer *b); /* NULL-safe */
/* As gw_users_again. */
int gw_bearer_again(gw_bearer *b, pst_err *err);
/* users may be NULL. 0: ret_caller is who it is; PST_EAUTH with the reason. */
int gw_bearer_weigh(gw_bearer *b, const gw_users *users, const char *token, int64_t now_s, gw_caller *ret_caller, pst_err *err);

#endif
