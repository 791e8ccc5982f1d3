/* password.c - crypt(3) through libcrypt, opened at first use: of all verbs only the gateway under --users and `penstock user hash` need it. The
 * work space of a call (32 KiB, and what the method takes) is the caller's own, so that threads do not wait for each other, and is wiped. */
#include "common/base/password.h"

#include "common/base/buf.h"
#include "common/base/crypt_lib.h"
#include "common/base/hash.h"

#include <stdlib.h>
#include <string.h>

int pst_password_hash(const char *password, char **ret_hash, pst_err *err)
{
    size_t n = strlen(password);
    char setting[CRYPT_GENSALT_OUTPUT_SIZE], random[32];
    if (!n || n > PST_PASSWORD_MAX)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "password", 0, "a password has 1 to %d bytes, this one has %zu",
                           PST_PASSWORD_MAX, n);
    int rc = crypt_lib_open(err);
    if (rc < 0)
        return rc;
    pst_random(random, sizeof random);
    if (!crypt_gensalt_rn(NULL, 0, random, sizeof random, setting, sizeof setting))
        return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_FATAL, "password", 0, "this system's crypt(3) has no method to hash with");
    struct crypt_data *room = pst_alloc(sizeof *room);
    const char *hash = crypt_rn(password, setting, room, sizeof *room);
    rc = hash ? 0 : pst_err_set(err, PST_ENOMEM, PST_CLASS_RETRY, "password", 0, "crypt(3) could not hash the password: is there memory?");
    if (hash)
        *ret_hash = pst_strdup(hash);
    explicit_bzero(room, sizeof *room);
    free(room);
    return rc;
}

int pst_password_hash_check(const char *hash, pst_err *err)
{
    int rc = crypt_lib_open(err);
    if (rc < 0)
        return rc;
    int what = *hash == '$' ? crypt_checksalt(hash) : CRYPT_SALT_INVALID;
    if (what == CRYPT_SALT_INVALID || what == CRYPT_SALT_METHOD_DISABLED)
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "password", 0,
                           "no hash that this system's crypt(3) knows; make one with `penstock user hash`");
    return 0;
}

bool pst_password_is(const char *hash, const char *password)
{
    if (*hash != '$' || strlen(password) > PST_PASSWORD_MAX || crypt_lib_open(NULL) < 0)
        return false;
    struct crypt_data *room = pst_alloc(sizeof *room);
    const char *made = crypt_rn(password, hash, room, sizeof *room);
    bool right = made && pst_secret_equal(made, hash);
    explicit_bzero(room, sizeof *room);
    free(room);
    return right;
}
