/* sign_jwt.h - keys as a JWKS and as PEM, and signed tokens, by OpenSSL's hand: what the tests hold the code against. */
#ifndef PST_TESTS_UNIT_SIGN_JWT_H
#define PST_TESTS_UNIT_SIGN_JWT_H

#include "common/base/hash.h"
#include "common/base/json.h"
#include "tests/unit/test.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include <string.h>

static inline char *url64(const void *data, size_t len)
{
    char *text = pst_base64(data, len);
    for (char *c = text; *c; c++)
        *c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
    text[strcspn(text, "=")] = 0;
    return text;
}

static inline char *number_of(const EVP_PKEY *k, const char *name, int len)
{
    BIGNUM *n = NULL;
    uint8_t room[1024];
    assert_int_equal(EVP_PKEY_get_bn_param(k, name, &n), 1);
    int size = len ? BN_bn2binpad(n, room, len) : BN_bn2bin(n, room);
    BN_free(n);
    return url64(room, (size_t)size);
}

static inline json_t *jwk_of(const EVP_PKEY *k, const char *kid)
{
    json_t *j;
    if (EVP_PKEY_get_base_id(k) == EVP_PKEY_RSA) {
        char *n = number_of(k, OSSL_PKEY_PARAM_RSA_N, 0), *e = number_of(k, OSSL_PKEY_PARAM_RSA_E, 0);
        j = json_pack("{s:s, s:s, s:s}", "kty", "RSA", "n", n, "e", e);
        free(n);
        free(e);
    } else {
        char *x = number_of(k, OSSL_PKEY_PARAM_EC_PUB_X, 32), *y = number_of(k, OSSL_PKEY_PARAM_EC_PUB_Y, 32);
        j = json_pack("{s:s, s:s, s:s, s:s}", "kty", "EC", "crv", "P-256", "x", x, "y", y);
        free(x);
        free(y);
    }
    if (kid)
        json_object_set_new(j, "kid", json_string(kid));
    return j;
}

static inline char *pem_of(EVP_PKEY *k)
{
    BIO *b = BIO_new(BIO_s_mem());
    char *data;
    assert_int_equal(PEM_write_bio_PUBKEY(b, k), 1);
    long n = BIO_get_mem_data(b, &data);
    char *text = pst_strndup(data, (size_t)n);
    BIO_free(b);
    return text;
}

/* The signature as JWS has it: ES256's two numbers side by side. */
static inline char *signature_of(EVP_PKEY *k, const char *text)
{
    uint8_t der[1024], pair[64];
    size_t n = sizeof der;
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    assert_int_equal(EVP_DigestSignInit(c, NULL, EVP_sha256(), NULL, k), 1);
    assert_int_equal(EVP_DigestSign(c, der, &n, (const uint8_t *)text, strlen(text)), 1);
    EVP_MD_CTX_free(c);
    if (EVP_PKEY_get_base_id(k) == EVP_PKEY_RSA)
        return url64(der, n);
    const unsigned char *p = der;
    ECDSA_SIG *s = d2i_ECDSA_SIG(NULL, &p, (long)n);
    BN_bn2binpad(ECDSA_SIG_get0_r(s), pair, 32);
    BN_bn2binpad(ECDSA_SIG_get0_s(s), pair + 32, 32);
    ECDSA_SIG_free(s);
    return url64(pair, 64);
}

static inline char *token_of(EVP_PKEY *k, const char *header, const char *claims)
{
    char *h = url64(header, strlen(header)), *c = url64(claims, strlen(claims)), *text = pst_sprintf("%s.%s", h, c);
    char *s = signature_of(k, text), *token = pst_sprintf("%s.%s", text, s);
    free(s);
    free(text);
    free(c);
    free(h);
    return token;
}

#endif
