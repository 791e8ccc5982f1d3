/* jwt.c - tokens and keys are taken apart here; libcrypto is asked one question, whether a signature is a key's. Keys of either source become a
 * SubjectPublicKeyInfo in DER, which is how libcrypto takes a key by one call, and ES256's two numbers become the DER that it wants: both are a few
 * lines, and stable, where the library's builders of keys are neither. */
#include "common/base/jwt.h"

#include "common/base/crypto_lib.h"
#include "common/base/hash.h"

#include <stdlib.h>
#include <string.h>

enum { KEYS_MAX = 64, RSA_BITS_MIN = 2048, RSA_BITS_MAX = 8192, HALF = 32, NUMBER_MAX = 1024 };

typedef enum { RS256, ES256 } algorithm;
static const char *const algorithm_names[] = {"RS256", "ES256"};

typedef struct key {
    algorithm algorithm;
    char *kid; /* NULL: it has none */
    EVP_PKEY *public;
} key;

struct pst_jwks {
    key at[KEYS_MAX];
    size_t n;
};

static int refuse(pst_err *err, const char *why)
{
    return pst_err_set(err, PST_EAUTH, PST_CLASS_DATA, "jwt", 0, "%s", why);
}

/* ---- base64url and DER ----------------------------------------------------------------------------------------------------- */

/* RFC 7515, 2: without padding. NULL: it is none; free() */
static uint8_t *decode(const char *text, size_t len, size_t *ret_len)
{
    if (!len || len % 4 == 1)
        return NULL;
    char *plain = pst_alloc(len + 4);
    for (size_t i = 0; i < len; i++) {
        plain[i] = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
        if (text[i] == '+' || text[i] == '/' || text[i] == '=') {
            free(plain);
            return NULL;
        }
    }
    for (size_t i = len; i % 4; i++)
        plain[i] = '=';
    uint8_t *out = pst_base64_decode(plain, ret_len);
    free(plain);
    return out;
}

/* Tag, length, value (X.690, 8.1). */
static void der_add(pst_buf *to, uint8_t tag, const void *value, size_t len)
{
    pst_buf_addc(to, (char)tag);
    if (len < 128)
        pst_buf_addc(to, (char)len);
    else if (len < 256) {
        pst_buf_addc(to, (char)0x81);
        pst_buf_addc(to, (char)len);
    } else {
        PST_ASSERT(len < 65536);
        pst_buf_addc(to, (char)0x82);
        pst_buf_addc(to, (char)(len >> 8));
        pst_buf_addc(to, (char)len);
    }
    pst_buf_add(to, value, len);
}

/* A number that is not negative: no zeros before it but the one that keeps its first bit from being a sign. */
static void der_number(pst_buf *to, const uint8_t *value, size_t len)
{
    pst_buf n = {0};
    while (len > 1 && !*value) {
        value++;
        len--;
    }
    if (*value & 0x80)
        pst_buf_addc(&n, 0);
    pst_buf_add(&n, value, len);
    der_add(to, 0x02, n.data, n.len);
    pst_buf_done(&n);
}

/* ---- keys ------------------------------------------------------------------------------------------------------------------ */

/* SEQUENCE { SEQUENCE { id-ecPublicKey, prime256v1 }, BIT STRING { 04 x y } } up to x */
static const uint8_t p256_head[] = {0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06,
                                    0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04};
/* SEQUENCE { rsaEncryption, NULL } */
static const uint8_t rsa_algorithm[] = {0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00};

/* Takes a key by its SubjectPublicKeyInfo; false: it is none that is used here. libcrypto judges whether the point is on the curve. */
static bool add_key(pst_jwks *keys, const uint8_t *der, size_t len, const char *kid)
{
    const unsigned char *p = der;
    EVP_PKEY *public = keys->n < KEYS_MAX ? d2i_PUBKEY(NULL, &p, (long)len) : NULL;
    bool ec = len == sizeof p256_head + 2 * HALF && !memcmp(der, p256_head, sizeof p256_head);
    int kind = public ? EVP_PKEY_get_base_id(public) : 0, bits = public ? EVP_PKEY_get_bits(public) : 0;
    bool rsa = kind == EVP_PKEY_RSA && bits >= RSA_BITS_MIN && bits <= RSA_BITS_MAX;
    if (!public || p != der + len || (!rsa && !(ec && kind == EVP_PKEY_EC))) {
        EVP_PKEY_free(public);
        ERR_clear_error();
        return false;
    }
    keys->at[keys->n++] = (key){.algorithm = rsa ? RS256 : ES256, .kid = kid ? pst_strdup(kid) : NULL, .public = public};
    return true;
}

static uint8_t *number_of(const json_t *jwk, const char *name, size_t *ret_len)
{
    const char *text = pst_json_str(jwk, name, "");
    uint8_t *out = strlen(text) <= NUMBER_MAX * 2 ? decode(text, strlen(text), ret_len) : NULL;
    if (out && (!*ret_len || *ret_len > NUMBER_MAX)) {
        free(out);
        return NULL;
    }
    return out;
}

static bool add_rsa(pst_jwks *keys, const json_t *jwk, const char *kid)
{
    size_t n_len = 0, e_len = 0;
    uint8_t *n = number_of(jwk, "n", &n_len), *e = number_of(jwk, "e", &e_len);
    pst_buf numbers = {0}, bits = {0}, body = {0}, der = {0};
    bool ok = n && e;
    if (ok) {
        der_number(&numbers, n, n_len);
        der_number(&numbers, e, e_len);
        pst_buf_addc(&bits, 0); /* no unused bits */
        der_add(&bits, 0x30, numbers.data, numbers.len);
        pst_buf_add(&body, rsa_algorithm, sizeof rsa_algorithm);
        der_add(&body, 0x03, bits.data, bits.len);
        der_add(&der, 0x30, body.data, body.len);
        ok = add_key(keys, (const uint8_t *)der.data, der.len, kid);
    }
    pst_buf_done(&numbers);
    pst_buf_done(&bits);
    pst_buf_done(&body);
    pst_buf_done(&der);
    free(n);
    free(e);
    return ok;
}

static bool add_ec(pst_jwks *keys, const json_t *jwk, const char *kid)
{
    size_t x_len = 0, y_len = 0;
    uint8_t *x = number_of(jwk, "x", &x_len), *y = number_of(jwk, "y", &y_len), der[sizeof p256_head + 2 * HALF];
    bool ok = x && y && x_len == HALF && y_len == HALF && !strcmp(pst_json_str(jwk, "crv", ""), "P-256");
    if (ok) {
        memcpy(der, p256_head, sizeof p256_head);
        memcpy(der + sizeof p256_head, x, HALF);
        memcpy(der + sizeof p256_head + HALF, y, HALF);
        ok = add_key(keys, der, sizeof der, kid);
    }
    free(x);
    free(y);
    return ok;
}

static void add_jwk(pst_jwks *keys, const json_t *jwk)
{
    const char *kty = pst_json_str(jwk, "kty", ""), *kid = pst_json_str(jwk, "kid", NULL);
    bool rsa = !strcmp(kty, "RSA"), ec = !strcmp(kty, "EC");
    const char *own = algorithm_names[rsa ? RS256 : ES256];
    if ((!rsa && !ec) || strcmp(pst_json_str(jwk, "use", "sig"), "sig") != 0 || strcmp(pst_json_str(jwk, "alg", own), own) != 0)
        return;
    if (rsa)
        add_rsa(keys, jwk, kid);
    else
        add_ec(keys, jwk, kid);
}

int pst_jwks_parse(const char *text, size_t len, pst_jwks **ret_keys, pst_err *err)
{
    json_t *j = NULL, *jwk;
    size_t i;
    int rc = crypto_lib_open(err);
    if (!rc)
        rc = pst_json_parse(text, len, "the JWKS", &j, err);
    if (rc < 0)
        return rc;
    pst_jwks *keys = pst_alloc(sizeof *keys);
    json_array_foreach(json_object_get(j, "keys"), i, jwk) add_jwk(keys, jwk);
    json_decref(j);
    if (!keys->n) {
        pst_jwks_free(keys);
        return pst_err_set(
            err, PST_EPARSE, PST_CLASS_DATA, "jwt", 0,
            "the JWKS has no key that can be used: `keys` with RSA of %d bits or more, or EC P-256, for signatures by RS256 or ES256",
            RSA_BITS_MIN);
    }
    *ret_keys = keys;
    return 0;
}

int pst_jwks_of_key(const char *text, pst_jwks **ret_keys, pst_err *err)
{
    static const char begin[] = "-----BEGIN PUBLIC KEY-----", end[] = "-----END PUBLIC KEY-----";
    int rc = crypto_lib_open(err);
    if (rc < 0)
        return rc;
    const char *from = strstr(text, begin), *to = strstr(text, end);
    from = from ? from + sizeof begin - 1 : text;
    size_t len = to && to > from ? (size_t)(to - from) : strlen(from), n = 0, der_len = 0;
    char *plain = pst_alloc(len + 1);
    for (size_t i = 0; i < len; i++)
        if (from[i] == '\\' && i + 1 < len && from[i + 1] == 'n') /* a PEM in one line, as JSON and environments have it */
            i++;
        else if (!strchr(" \t\r\n", from[i]))
            plain[n++] = from[i];
    plain[n] = 0;
    uint8_t *der = pst_base64_decode(plain, &der_len);
    pst_jwks *keys = pst_alloc(sizeof *keys);
    bool ok = der && add_key(keys, der, der_len, NULL);
    free(der);
    free(plain);
    if (!ok) {
        pst_jwks_free(keys);
        return pst_err_set(
            err, PST_EPARSE, PST_CLASS_DATA, "jwt", 0,
            "no public key that can be used: RSA of %d bits or more, or EC P-256, as `openssl pkey -pubout` prints it, in one line",
            RSA_BITS_MIN);
    }
    *ret_keys = keys;
    return 0;
}

void pst_jwks_free(pst_jwks *keys)
{
    for (size_t i = 0; keys && i < keys->n; i++) {
        EVP_PKEY_free(keys->at[i].public);
        free(keys->at[i].kid);
    }
    free(keys);
}

size_t pst_jwks_count(const pst_jwks *keys)
{
    return keys->n;
}

/* ---- tokens ---------------------------------------------------------------------------------------------------------------- */

typedef struct parts {
    const char *text; /* "HEAD.CLAIMS.SIGNATURE" */
    size_t head, signed_len;
    json_t *header, *claims;
    uint8_t *signature;
    size_t signature_len;
} parts;

static json_t *object_of(const char *text, size_t len)
{
    size_t n = 0;
    json_t *j = NULL;
    uint8_t *plain = decode(text, len, &n);
    if (plain && pst_json_parse((const char *)plain, n, "the token", &j, NULL) < 0)
        j = NULL;
    free(plain);
    if (!json_is_object(j)) {
        json_decref(j);
        return NULL;
    }
    return j;
}

static void parts_done(parts *p)
{
    json_decref(p->header);
    json_decref(p->claims);
    free(p->signature);
}

static bool take_apart(const char *token, parts *ret)
{
    size_t len = strlen(token);
    const char *one = strchr(token, '.'), *two = one ? strchr(one + 1, '.') : NULL;
    *ret = (parts){.text = token};
    if (len > PST_JWT_MAX || !two || strchr(two + 1, '.'))
        return false;
    ret->head = (size_t)(one - token);
    ret->signed_len = (size_t)(two - token);
    ret->header = object_of(token, ret->head);
    ret->claims = ret->header ? object_of(one + 1, (size_t)(two - one - 1)) : NULL;
    ret->signature = ret->claims ? decode(two + 1, strlen(two + 1), &ret->signature_len) : NULL;
    return ret->signature != NULL;
}

static bool is_signed_by(const parts *p, const key *k)
{
    pst_buf numbers = {0}, der = {0};
    const uint8_t *signature = p->signature;
    size_t len = p->signature_len;
    if (k->algorithm == ES256) {
        if (len != 2 * HALF)
            return false;
        der_number(&numbers, signature, HALF);
        der_number(&numbers, signature + HALF, HALF);
        der_add(&der, 0x30, numbers.data, numbers.len);
        signature = (const uint8_t *)der.data;
        len = der.len;
    }
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    bool yes = c && EVP_DigestVerifyInit(c, NULL, EVP_sha256(), NULL, k->public) == 1 &&
               EVP_DigestVerify(c, signature, len, (const unsigned char *)p->text, p->signed_len) == 1;
    EVP_MD_CTX_free(c);
    ERR_clear_error();
    pst_buf_done(&numbers);
    pst_buf_done(&der);
    return yes;
}

/* A key with a name is asked where the token names it; where the token names none, or the keys have no names, all of its algorithm are. */
static int check_signature(const pst_jwks *keys, const parts *p, pst_err *err)
{
    const char *alg = pst_json_str(p->header, "alg", ""), *kid = pst_json_str(p->header, "kid", NULL);
    bool known = false;
    if (json_object_get(p->header, "crit"))
        return refuse(err, "the token says that it wants to be understood in ways that are not known here (crit)");
    if (strcmp(alg, "RS256") != 0 && strcmp(alg, "ES256") != 0)
        return refuse(err, "the token is not signed by RS256 or ES256");
    for (size_t i = 0; keys && i < keys->n; i++) {
        const key *k = &keys->at[i];
        if (kid && k->kid && strcmp(kid, k->kid) != 0)
            continue;
        known = true;
        if (!strcmp(alg, algorithm_names[k->algorithm]) && is_signed_by(p, k))
            return 0;
    }
    /* One sentence for both: who has no key shall not learn by it which subjects have one here. */
    return pst_err_set(err, known ? PST_EAUTH : PST_ENOTFOUND, PST_CLASS_DATA, "jwt", 0,
                       "the token's signature is by none of the keys that are known here for its subject");
}

static bool holds(const json_t *aud, const char *wanted)
{
    size_t i;
    json_t *one;
    if (json_is_string(aud))
        return !strcmp(json_string_value(aud), wanted);
    json_array_foreach(aud, i, one) if (json_is_string(one) && !strcmp(json_string_value(one), wanted)) return true;
    return false;
}

static int check_claims(const json_t *claims, const pst_jwt_rules *rules, pst_err *err)
{
    const json_t *exp = json_object_get(claims, "exp"), *nbf = json_object_get(claims, "nbf");
    double now = (double)rules->now_s;
    if (!json_is_number(exp))
        return refuse(err, "the token says not when it ends (exp)");
    if (json_number_value(exp) + PST_JWT_SKEW_S <= now)
        return refuse(err, "the token has ended (exp)");
    if (nbf && !(json_is_number(nbf) && json_number_value(nbf) - PST_JWT_SKEW_S <= now))
        return refuse(err, "the token is not valid yet (nbf)");
    if (rules->issuer && strcmp(pst_json_str(claims, "iss", ""), rules->issuer) != 0)
        return refuse(err, "the token is from another issuer (iss)");
    if (rules->audience && !holds(json_object_get(claims, "aud"), rules->audience))
        return refuse(err, "the token is for somebody else (aud)");
    return 0;
}

char *pst_jwt_subject(const char *token)
{
    parts p;
    const char *sub = take_apart(token, &p) ? pst_json_str(p.claims, "sub", NULL) : NULL;
    char *copy = sub ? pst_strdup(sub) : NULL;
    parts_done(&p);
    return copy;
}

int pst_jwt_check(const pst_jwks *keys, const char *token, const pst_jwt_rules *rules, json_t **ret_claims, pst_err *err)
{
    parts p;
    int rc = take_apart(token, &p) ? 0 : refuse(err, "that is no token: three parts with dots between, 8 KiB at most");
    if (!rc)
        rc = check_signature(keys, &p, err);
    if (!rc)
        rc = check_claims(p.claims, rules, err);
    if (!rc)
        *ret_claims = json_incref(p.claims);
    parts_done(&p);
    return rc;
}
