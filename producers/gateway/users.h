/* users.h - the file of users (`penstock gateway --users FILE`), one a line:
 *
 *     # who : how the password is known : what he may
 *     ann:$y$j9T$…:user
 *     bob:$y$j9T$…:viewer,user
 *     olga:$y$j9T$…:operator
 *     ci:MFkwEwYHKoZIzj0CAQYI…:user   a public key: known by tokens (JWT) that its other half has signed, with `sub` ci and an end
 *     old:*:user                      nothing lets in by this line alone; of a token of --jwks it says the roles
 *
 * Hashes are those of crypt(3), as `penstock user hash` prints them. A file that others could have written, a line that is none, a name that is there
 * twice: the whole file is refused, with the line. @thread loop */
#ifndef PST_PRODUCERS_GATEWAY_USERS_H
#define PST_PRODUCERS_GATEWAY_USERS_H

#include "common/base/jwt.h"

#include <sys/stat.h>

typedef struct gw_user {
    char *name, *secret; /* secret: the hash, the key, or "*" */
    pst_jwks *keys;      /* of one with a key; else NULL */
    unsigned roles;      /* caller.h */
} gw_user;
typedef struct gw_users gw_users;

/* Reads it; path is copied. */
/* What says who may is nobody's to write but the gateway's account and root: a regular file, and its folder. st: of path. */
int gw_users_check_writers(const char *path, const struct stat *st, pst_err *err);
int gw_users_open(const char *path, gw_users **ret_users, pst_err *err);
void gw_users_free(gw_users *u); /* NULL-safe */
/* Looks at the file again. 1: it is another one now, and was taken; 0: it is as before; < 0: it is another one and was refused, and the users are those
 * of before (said once for each such file and reason, then 0; what is not the file's own fault is tried again each time). Pointers of gw_users_find end with 1. */
int gw_users_again(gw_users *u, pst_err *err);
const gw_user *gw_users_find(const gw_users *u, const char *name); /* NULL: there is none, or u is NULL */
/* A hash of the file, for who is not in it: what an answer takes shall not tell which names there are. NULL: it has none. */
const char *gw_users_decoy(const gw_users *u);

#endif
