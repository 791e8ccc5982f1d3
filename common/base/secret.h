/* secret.h - what must not be seen: passwords in addresses, values of secret properties, words in the list of processes; and the gateway's token.
 * @thread any. */
#ifndef PST_BASE_SECRET_H
#define PST_BASE_SECRET_H

#include "common/base/err.h"

/* "http://user:password@host:1,…" without user and password, as it may be shown; free(). */
char *pst_url_public(const char *url);
/* Is the value of this property (librdkafka's, Java's, ours) a secret? */
bool pst_secret_key(const char *key);
/* Overwrites a text of argv, so that /proc/<pid>/cmdline no longer shows it. Whoever still needs it has copied it before. */
void pst_secret_hide(const char *text);
/* The same for what stands in an address between its "://" and its "@", and behind the "=" of a secret property. */
void pst_secret_hide_url(const char *url);
void pst_secret_hide_property(const char *key_value);

/* The token of a state folder: `<state-dir>/token`, mode 0600, one line. */
char *pst_token_path(const char *state_dir);
/* PST_ENOTFOUND where there is none; PST_EAUTH where others could have read or written it. free(). */
int pst_token_read(const char *path, char **ret_token, pst_err *err);
/* The token that is there; else wanted (NULL = 43 random characters) becomes it. With wanted another one is replaced. */
int pst_token_make(const char *state_dir, const char *wanted, char **ret_token, pst_err *err);

#endif
