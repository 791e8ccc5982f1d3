/* password.h - passwords as crypt(3) hashes them: the hash names its own method and cost ("$y$…" is yescrypt), so that a file of users made by another
 * tool is as good as one of ours. The one adapter of libcrypt.
 *
 *     if (pst_password_hash(typed, &hash, &err) == 0) puts(hash);
 *     bool right = pst_password_is(hash, typed);
 *
 * Both take tens of milliseconds of a core and megabytes of memory, which is what they are for: never on a loop's thread. @thread any */
#ifndef PST_BASE_PASSWORD_H
#define PST_BASE_PASSWORD_H

#include "common/base/err.h"

enum { PST_PASSWORD_MAX = 256 };

/* By the method that this system holds best. PST_EINVAL for one that is empty or too long; free() the hash. */
int pst_password_hash(const char *password, char **ret_hash, pst_err *err);
/* Can passwords be held against this hash here? Only methods with a name ("$…$"): a text of 13 letters is an old DES hash to crypt(3), and more
 * often a password that somebody wrote down as it is. */
int pst_password_hash_check(const char *hash, pst_err *err);
/* Compared in constant time; false for a hash that is none. */
bool pst_password_is(const char *hash, const char *password);

#endif
