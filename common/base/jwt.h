/* jwt.h - signed tokens (JSON Web Tokens) held against keys that are known: RS256 and ES256, nothing else.
 *
 *     pst_jwks *keys = NULL;
 *     rc = pst_jwks_parse(text, len, &keys, &err);                                     // a JWKS, or pst_jwks_of_key: one public key
 *     rc = pst_jwt_check(keys, token, &(pst_jwt_rules){.now_s = now, .issuer = "https://id.example"}, &claims, &err);
 *
 * Which algorithm a key is for is the key's to say: a token's `alg` must be that one, so that neither `none` nor a public key taken for an HMAC's secret
 * lets anybody in. Sources: RFC 7515, 7517, 7518, 7519, 8725. @thread any; a set is read by any number at once. */
#ifndef PST_BASE_JWT_H
#define PST_BASE_JWT_H

#include "common/base/json.h"

enum { PST_JWT_MAX = 8192, PST_JWT_SKEW_S = 60 };

typedef struct pst_jwks pst_jwks;

typedef struct pst_jwt_rules {
    int64_t now_s;                 /* since 1970; clocks may differ by PST_JWT_SKEW_S */
    const char *issuer, *audience; /* what `iss` must be, and what `aud` must be or hold; NULL: not looked at */
} pst_jwt_rules;

/* Keys of other kinds, uses and algorithms are left out. PST_EPARSE: it is no JWKS, or none of its keys can be used. */
int pst_jwks_parse(const char *text, size_t len, pst_jwks **ret_keys, pst_err *err);
/* One public key: PEM, also in one line, or its base64 alone. */
int pst_jwks_of_key(const char *text, pst_jwks **ret_keys, pst_err *err);
void pst_jwks_free(pst_jwks *keys); /* NULL-safe */
size_t pst_jwks_count(const pst_jwks *keys);
/* Whom the token is about by its own word, which nothing proves: to find the key that might. free(), or NULL. */
char *pst_jwt_subject(const char *token);
/* 0: claims are the token's (json_decref). PST_ENOTFOUND: it names a key (`kid`) that is not among these; else PST_EAUTH with the reason, in which nothing of the
 * token stands. keys NULL: none. */
int pst_jwt_check(const pst_jwks *keys, const char *token, const pst_jwt_rules *rules, json_t **ret_claims, pst_err *err);

#endif
