/* test_jwt.c - signed tokens: right ones of both algorithms and both kinds of key, and what somebody sends who would like to be let in. Keys and signatures
 * are made by OpenSSL here, which the code under test asks for a verdict only. */
#include "common/base/jwt.h"
#include "tests/unit/sign_jwt.h"
#include "tests/unit/test.h"

#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOW = 1800000000 };
static EVP_PKEY *rsa, *small, *ec, *curve, *other;
static pst_jwks *keys;
static char *rsa_pem;

static pst_jwks *set_of(json_t *take_keys)
{
    pst_err err = {0};
    pst_jwks *set = NULL;
    json_t *j = json_pack("{s:o}", "keys", take_keys);
    char *text = pst_json_text(j);
    json_decref(j);
    if (pst_jwks_parse(text, strlen(text), &set, &err) < 0)
        set = NULL;
    free(text);
    return set;
}

static int begin(void **state)
{
    rsa = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
    small = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)1024);
    ec = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    other = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    curve = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-384");
    assert_true(rsa && small && ec && curve && other);
    rsa_pem = pem_of(rsa);
    keys = set_of(json_pack("[o, o]", jwk_of(rsa, "r"), jwk_of(ec, "e")));
    assert_non_null(keys);
    return 0;
}

static int finish(void **state)
{
    EVP_PKEY *all[] = {rsa, small, ec, curve, other};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        EVP_PKEY_free(all[i]);
    pst_jwks_free(keys);
    free(rsa_pem);
    return 0;
}

static const char good[] = "{\"sub\":\"ann\",\"exp\":1800000600}";

static int check_with(const pst_jwks *set, const char *token, const char *issuer, const char *audience, char why[512])
{
    json_t *claims = NULL;
    pst_err err = {0};
    int rc = pst_jwt_check(set, token, &(pst_jwt_rules){.now_s = NOW, .issuer = issuer, .audience = audience}, &claims, &err);
    snprintf(why, 512, "%s", err.text);
    if (!rc)
        assert_string_equal(pst_json_str(claims, "sub", ""), "ann");
    else
        assert_null(claims);
    json_decref(claims);
    return rc;
}

static void says(EVP_PKEY *k, const char *header, const char *claims, int code, const char *word)
{
    char why[512], *token = token_of(k, header, claims);
    int rc = check_with(keys, token, NULL, NULL, why);
    if (rc != code || (word && !strstr(why, word)))
        fail_msg("%s %s: %d \"%s\"", header, claims, rc, why);
    free(token);
}

static void test_right_tokens_of_both_kinds(void **state)
{
    says(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\"}", good, 0, NULL);
    says(ec, "{\"alg\":\"ES256\",\"kid\":\"e\",\"typ\":\"JWT\"}", good, 0, NULL);
    says(ec, "{\"alg\":\"ES256\"}", good, 0, NULL); /* names no key: all of its algorithm are tried */
    for (int i = 0; i < 300; i++) {                 /* numbers that begin with zeros, or with a set bit */
        char claims[80];
        snprintf(claims, sizeof claims, "{\"sub\":\"ann\",\"exp\":1800000600,\"n\":%d}", i);
        says(ec, "{\"alg\":\"ES256\",\"kid\":\"e\"}", claims, 0, NULL);
    }
}

static void test_a_public_key_alone_is_a_set(void **state)
{
    pst_err err = {0};
    pst_jwks *one = NULL;
    char why[512], *token = token_of(rsa, "{\"alg\":\"RS256\"}", good), *named = token_of(rsa, "{\"alg\":\"RS256\",\"kid\":\"any\"}", good);
    char *forms[4] = {rsa_pem, pst_strdup(rsa_pem), pst_strdup(strchr(rsa_pem, '\n')), NULL};
    *strstr(forms[2], "-----END") = 0;
    for (char *c = forms[1]; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pst_jwks_of_key(forms[i], &one, &err), 0);
        assert_int_equal(check_with(one, token, NULL, NULL, why), 0);
        assert_int_equal(check_with(one, named, NULL, NULL, why), 0); /* it has no name of its own */
        pst_jwks_free(one);
    }
    char *weak = pem_of(small), *elsewhere = pem_of(curve);
    static const char *const none[] = {"", "-----BEGIN PUBLIC KEY-----", "AAAA", "not a key", "ssh-rsa AAAA"};
    assert_int_equal(pst_jwks_of_key(weak, &one, &err), PST_EPARSE);
    assert_int_equal(pst_jwks_of_key(elsewhere, &one, &err), PST_EPARSE);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(pst_jwks_of_key(none[i], &one, &err), PST_EPARSE);
    free(weak);
    free(elsewhere);
    free(forms[1]);
    free(forms[2]);
    free(token);
    free(named);
}

static void test_algorithms_are_the_keys_to_choose(void **state)
{
    says(rsa, "{\"alg\":\"none\",\"kid\":\"r\"}", good, PST_EAUTH, "RS256 or ES256");
    says(rsa, "{\"alg\":\"None\"}", good, PST_EAUTH, "RS256 or ES256");
    says(rsa, "{\"alg\":\"PS256\",\"kid\":\"r\"}", good, PST_EAUTH, "RS256 or ES256");
    says(rsa, "{\"alg\":\"ES256\",\"kid\":\"r\"}", good, PST_EAUTH, "signature");
    says(ec, "{\"alg\":\"RS256\",\"kid\":\"e\"}", good, PST_EAUTH, "signature");
    says(rsa, "{\"kid\":\"r\"}", good, PST_EAUTH, "RS256 or ES256");
    says(rsa, "{\"alg\":\"RS256\",\"kid\":\"r\",\"crit\":[\"b64\"],\"b64\":false}", good, PST_EAUTH, "crit");
    /* The public key as an HMAC's secret. */
    char why[512], *h = url64("{\"alg\":\"HS256\",\"kid\":\"r\"}", 25), *c = url64(good, strlen(good)), *text = pst_sprintf("%s.%s", h, c);
    uint8_t mac[32];
    unsigned n = 0;
    HMAC(EVP_sha256(), rsa_pem, (int)strlen(rsa_pem), (const uint8_t *)text, strlen(text), mac, &n);
    char *s = url64(mac, n), *token = pst_sprintf("%s.%s", text, s), *bare = pst_sprintf("%s.", text);
    assert_int_equal(check_with(keys, token, NULL, NULL, why), PST_EAUTH);
    assert_int_equal(check_with(keys, bare, NULL, NULL, why), PST_EAUTH);
    free(bare);
    free(token);
    free(s);
    free(text);
    free(c);
    free(h);
}

static void test_keys_of_others_are_not_ours(void **state)
{
    says(other, "{\"alg\":\"ES256\",\"kid\":\"e\"}", good, PST_EAUTH, "signature");
    says(other, "{\"alg\":\"ES256\"}", good, PST_EAUTH, "signature");
    says(other, "{\"alg\":\"ES256\",\"kid\":\"new\"}", good, PST_ENOTFOUND, "signature");
    assert_null(set_of(json_pack("[o]", jwk_of(small, "s"))));
    json_t *enc = jwk_of(ec, "e"), *hs = jwk_of(rsa, "r"), *off = jwk_of(ec, "e"), *not_p256 = jwk_of(ec, "e");
    json_object_set_new(enc, "use", json_string("enc"));
    json_object_set_new(hs, "alg", json_string("RS512"));
    json_object_set(off, "y", json_object_get(off, "x")); /* a point that is not on the curve */
    json_object_set_new(not_p256, "crv", json_string("P-384"));
    assert_null(set_of(json_pack("[o, o, o, o, {s:s, s:s}, n, i, {}]", enc, hs, off, not_p256, "kty", "oct", "k", "c2VjcmV0", 3)));
    assert_null(set_of(json_array()));
    pst_err err = {0};
    pst_jwks *none = NULL;
    assert_int_equal(pst_jwks_parse("{", 1, &none, &err), PST_EPARSE);
    assert_int_equal(pst_jwks_parse("[]", 2, &none, &err), PST_EPARSE);
}

static void test_times_issuer_and_audience(void **state)
{
    static const char rs[] = "{\"alg\":\"RS256\",\"kid\":\"r\"}";
    says(rsa, rs, "{\"sub\":\"ann\",\"exp\":1799999941}", 0, NULL); /* clocks may differ by a minute */
    says(rsa, rs, "{\"sub\":\"ann\",\"exp\":1799999940}", PST_EAUTH, "has ended");
    says(rsa, rs, "{\"sub\":\"ann\"}", PST_EAUTH, "exp");
    says(rsa, rs, "{\"sub\":\"ann\",\"exp\":\"1800000600\"}", PST_EAUTH, "exp");
    says(rsa, rs, "{\"sub\":\"ann\",\"exp\":1800000600.5,\"nbf\":1800000060}", 0, NULL);
    says(rsa, rs, "{\"sub\":\"ann\",\"exp\":1800000600,\"nbf\":1800000061}", PST_EAUTH, "nbf");
    says(rsa, rs, "{\"sub\":\"ann\",\"exp\":1800000600,\"nbf\":\"0\"}", PST_EAUTH, "nbf");
    says(rsa, rs, "{\"sub\":\"ann\",\"exp\":1800000600,\"exp\":1}", PST_EAUTH, "no token"); /* twice: who knows which is meant */
    static const struct {
        const char *more;
        bool right;
    } rows[] = {{"\"iss\":\"https://id\",\"aud\":\"penstock\"", true},
                {"\"iss\":\"https://id\",\"aud\":[\"x\",\"penstock\"]", true},
                {"\"iss\":\"https://id/\",\"aud\":\"penstock\"", false},
                {"\"iss\":\"https://id\",\"aud\":\"penstock2\"", false},
                {"\"iss\":\"https://id\",\"aud\":[]", false},
                {"\"iss\":\"https://id\",\"aud\":[1,null]", false},
                {"\"aud\":\"penstock\"", false},
                {"\"iss\":\"https://id\"", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[512], *claims = pst_sprintf("{\"sub\":\"ann\",\"exp\":1800000600,%s}", rows[i].more), *token = token_of(rsa, rs, claims);
        if ((check_with(keys, token, "https://id", "penstock", why) == 0) != rows[i].right)
            fail_msg("%s: %s", claims, why);
        assert_int_equal(check_with(keys, token, NULL, NULL, why), 0);
        free(token);
        free(claims);
    }
}

static void test_what_is_no_token(void **state)
{
    char why[512], *token = token_of(ec, "{\"alg\":\"ES256\",\"kid\":\"e\"}", good);
    static const char *const none[] = {"", ".", "..", "...", "a.b.c", "e30.e30.", "e30.e30.e30", "a.b.c.d", "=.=.=", "e30=.e30=.AA=="};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(check_with(keys, none[i], NULL, NULL, why), PST_EAUTH);
    for (size_t i = 0; token[i]; i++) { /* none of its bytes may be another; the last one of a part may have bits that mean nothing */
        char *bad = pst_strdup(token);
        bad[i] = bad[i] == 'A' ? 'Q' : 'A';
        bool last = !token[i + 1] || token[i + 1] == '.';
        if (check_with(keys, bad, NULL, NULL, why) == 0 && !last)
            fail_msg("taken with byte %zu changed", i);
        bad[i] = 0;
        assert_true(check_with(keys, bad, NULL, NULL, why) < 0);
        free(bad);
    }
    char *large = pst_alloc(PST_JWT_MAX + 100);
    memset(large, 'A', PST_JWT_MAX + 99);
    assert_int_equal(check_with(keys, large, NULL, NULL, why), PST_EAUTH);
    free(large);
    free(token);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_tokens_of_both_kinds),        cmocka_unit_test(test_a_public_key_alone_is_a_set),
        cmocka_unit_test(test_algorithms_are_the_keys_to_choose), cmocka_unit_test(test_keys_of_others_are_not_ours),
        cmocka_unit_test(test_times_issuer_and_audience),         cmocka_unit_test(test_what_is_no_token),
    };
    return cmocka_run_group_tests(tests, begin, finish);
}
