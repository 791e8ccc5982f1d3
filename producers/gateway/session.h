/* session.h - what a browser shows after a login: a cookie that says until when, who, and a code over both and over what the users file has of him. The
 * gateway keeps none of it: a session outlives a restart, and ends with its time, with the user's line or with its password.
 * Sources: RFC 6265 (cookies), RFC 2104 (HMAC-SHA-256). @thread any */
#ifndef PST_PRODUCERS_GATEWAY_SESSION_H
#define PST_PRODUCERS_GATEWAY_SESSION_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gw_session_key {
    uint8_t bytes[32];
} gw_session_key;

/* From a secret that outlives the process. */
void gw_session_key_make(const char *secret, gw_session_key *ret_key);
/* The cookie's value; free(). until_s: since 1970. bound: what the session ends with when it changes (the password's hash). */
char *gw_session_make(const gw_session_key *key, const char *name, const char *bound, int64_t until_s);
/* The name in a value, not believed yet; free(), or NULL. */
char *gw_session_name(const char *value);
/* Until when it says that it is good, not believed yet; 0: it is none. */
int64_t gw_session_until(const char *value);
bool gw_session_is(const gw_session_key *key, const char *value, const char *bound, int64_t now_s);
/* 32 hex digits for this name, to be guessed by nobody without the key; free(). */
char *gw_session_place(const gw_session_key *key, const char *name);

#endif
