/* key_url.h - a provider's keys (JWKS) at an address: fetched at the start, again when the answer's max-age is over (1 minute to 1 day; 10 minutes where it says none),
 * and when a token names a key that is not among them, then at most twice a minute, since anybody can send such a token. What cannot be fetched or read changes nothing: the
 * keys of before stay, it is said once, and tried again after 10 seconds, 20, … 5 minutes.
 *
 *     gw_key_url_open(&(gw_key_url_conf){.url = "https://id.example/jwks"}, &u, &err);
 *     if ((keys = gw_key_url_take(u)) != NULL) …        // other keys than before
 *     gw_key_url_ask(u);                                // a key was wanted that is not there
 *
 * A thread of its own fetches: nobody waits for it. Sources: RFC 7517, RFC 9111 (max-age). @thread any */
#ifndef PST_PRODUCERS_GATEWAY_KEY_URL_H
#define PST_PRODUCERS_GATEWAY_KEY_URL_H

#include "common/base/jwt.h"

typedef struct gw_key_url gw_key_url;

typedef struct gw_key_url_conf {
    const char *url;
    const char *ca_file; /* PEM; NULL = the system's */
    int again_ms;        /* least time between two that tokens ask for; 0 = 30 s. For tests */
} gw_key_url_conf;

bool gw_key_url_is(const char *text); /* an address, and no file */
/* Begins to fetch. FATAL: the address is not https, nor http to this computer, or holds a credential; there is no libcurl. */
int gw_key_url_open(const gw_key_url_conf *conf, gw_key_url **ret_url, pst_err *err);
void gw_key_url_close(gw_key_url *u); /* at once; NULL-safe */
/* The keys, where others than before have come; the caller's. NULL: none have. */
pst_jwks *gw_key_url_take(gw_key_url *u);
void gw_key_url_ask(gw_key_url *u);

#endif
