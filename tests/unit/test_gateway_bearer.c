/* test_gateway_bearer.c - who comes in by a signed token at the gateway: a user by the key of his line, somebody of a provider by its keys; which roles he has
 * then; and what somebody sends who would like to be somebody else. Whether a signature is right is test_jwt.c's. */
#include "producers/gateway/bearer.h"
#include "tests/unit/sign_jwt.h"
#include "tests/unit/test.h"

#include "common/base/fs.h"
#include "common/base/password.h"

#include <openssl/hmac.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOW = 1800000000 };
static char dir[] = "/tmp/penstock-bearer-XXXXXX", users_path[64], keys_path[64];
static EVP_PKEY *mine, *old, *new; /* of the user ci; of the provider */
static char *hash, *my_pem;

static void put(const char *path, const char *text, mode_t mode)
{
    unlink(path);
    assert_int_equal(pst_fs_write_atomic(path, text, strlen(text), mode, NULL), 0);
    assert_int_equal(chmod(path, mode), 0);
}

/* A set with what other providers have in theirs, and what is broken: the good key counts. */
static void put_keys(const EVP_PKEY *k, const char *kid, mode_t mode)
{
    json_t *j = json_pack("{s:[{s:s, s:s, s:s}, {s:s, s:s, s:s, s:s}, {}, n, s, o]}", "keys", "kty", "RSA", "n", "!!!", "e", "AQAB", "kty",
                          "EC", "crv", "P-256", "x", "AA", "y", "AA", "nonsense", jwk_of(k, kid));
    char *text = pst_json_text(j);
    put(keys_path, text, mode);
    free(text);
    json_decref(j);
}

static int begin(void **state)
{
    pst_err err = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(users_path, sizeof users_path, "%s/users", dir);
    snprintf(keys_path, sizeof keys_path, "%s/keys", dir);
    mine = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
    old = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    new = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    assert_true(mine && old && new);
    assert_int_equal(pst_password_hash("right", &hash, &err), 0);
    my_pem = pem_of(mine);
    char *line = pst_strdup(my_pem);
    for (char *c = line; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    char *text = pst_sprintf("ci:%s:user\nolga:%s:operator\nvera:*:viewer\n", line, hash);
    put(users_path, text, 0600);
    put_keys(old, "old", 0644);
    free(text);
    free(line);
    return 0;
}

static int finish(void **state)
{
    EVP_PKEY_free(mine);
    EVP_PKEY_free(old);
    EVP_PKEY_free(new);
    free(hash);
    free(my_pem);
    return pst_fs_remove_tree(dir, NULL);
}

typedef struct gate {
    gw_users *users;
    gw_bearer *bearer;
} gate;

static gate open_gate(bool users, gw_bearer_conf conf)
{
    gate t = {0};
    pst_err err = {0};
    if (users)
        assert_int_equal(gw_users_open(users_path, &t.users, &err), 0);
    assert_int_equal(gw_bearer_new(&conf, &t.bearer, &err), 0);
    return t;
}

static void close_gate(gate *t)
{
    gw_users_free(t->users);
    gw_bearer_free(t->bearer);
}

static int weigh(const gate *t, const char *token, gw_caller *c, char why[512])
{
    pst_err err = {0};
    memset(c, 0, sizeof *c);
    int rc = gw_bearer_weigh(t->bearer, t->users, token, NOW, c, &err);
    snprintf(why, 512, "%s", err.text);
    return rc;
}

static void comes_in(const gate *t, EVP_PKEY *k, const char *header, const char *claims, const char *name, unsigned roles)
{
    char why[512], *token = token_of(k, header, claims);
    gw_caller c;
    if (weigh(t, token, &c, why) != 0 || strcmp(c.name, name) != 0 || c.roles != roles || c.granted)
        fail_msg("%s: %s, in as %s with %u", claims, why, c.name, c.roles);
    free(token);
}

static void stays_out(const gate *t, EVP_PKEY *k, const char *header, const char *claims, const char *word)
{
    char why[512], *token = token_of(k, header, claims);
    gw_caller c;
    if (weigh(t, token, &c, why) != PST_EAUTH || !strstr(why, word))
        fail_msg("%s: in as %s with %u, or \"%s\" does not say \"%s\"", claims, c.name, c.roles, why, word);
    free(token);
}

static const char rs[] = "{\"alg\":\"RS256\"}", es[] = "{\"alg\":\"ES256\",\"kid\":\"old\"}",
                  es_new[] = "{\"alg\":\"ES256\",\"kid\":\"new\"}";
#define OF(sub)         "{\"exp\":1800000600,\"sub\":\"" sub "\"}"
#define WITH(sub, more) "{\"exp\":1800000600,\"sub\":\"" sub "\"," more "}"

static void test_a_user_comes_in_by_the_key_of_his_line_alone(void **state)
{
    gate t = open_gate(true, (gw_bearer_conf){.path = keys_path, .roles = GW_ROLE_USER});
    comes_in(&t, mine, rs, OF("ci"), "ci", GW_ROLE_USER);
    comes_in(&t, mine, rs, WITH("ci", "\"roles\":[\"operator\"]"), "ci", GW_ROLE_USER); /* what he may is the line's to say */
    stays_out(&t, mine, rs, OF("bob"), "none of the keys");
    stays_out(&t, mine, rs, OF("olga"), "none of the keys");
    stays_out(&t, mine, rs, OF("vera"), "none of the keys");
    stays_out(&t, old, es, OF("ci"), "none of the keys"); /* the provider cannot be him */
    stays_out(&t, mine, rs, "{\"sub\":\"ci\"}", "(exp)");
    stays_out(&t, mine, rs, "{\"sub\":\"ci\",\"exp\":1799999939}", "has ended");
    stays_out(&t, mine, rs, "{\"sub\":\"ci\",\"exp\":1800000600,\"nbf\":1800000061}", "(nbf)");
    comes_in(&t, mine, rs, "{\"sub\":\"ci\",\"exp\":1799999950,\"nbf\":1800000050}", "ci", GW_ROLE_USER); /* clocks differ */
    close_gate(&t);
    t = open_gate(true, (gw_bearer_conf){.roles = GW_ROLE_USER}); /* no provider */
    comes_in(&t, mine, rs, OF("ci"), "ci", GW_ROLE_USER);
    stays_out(&t, old, es, OF("eve"), "none of the keys");
    close_gate(&t);
}

static void test_a_password_is_not_gone_round_by_the_provider(void **state)
{
    gate t = open_gate(true, (gw_bearer_conf){.path = keys_path, .roles = GW_ROLE_USER});
    stays_out(&t, old, es, OF("olga"), "has a password here");
    comes_in(&t, old, es, WITH("vera", "\"roles\":\"operator\""), "vera", GW_ROLE_VIEWER); /* a line without either says the roles */
    close_gate(&t);
}

/* One who has no key is told the same of everybody. */
static void test_which_names_there_are_is_not_told(void **state)
{
    static const char *const claims[] = {OF("nobody"), OF("ci"), OF("olga"), OF("vera")};
    static const char *const headers[] = {"{\"alg\":\"ES256\"}", "{\"alg\":\"ES256\",\"kid\":\"x\"}", "{\"alg\":\"none\"}",
                                          "{\"alg\":\"ES256\",\"crit\":[]}"};
    for (int provider = 0; provider < 2; provider++) {
        gate t = open_gate(true, (gw_bearer_conf){.path = provider ? keys_path : NULL, .roles = GW_ROLE_USER});
        for (size_t h = 0; h < sizeof headers / sizeof *headers; h++) {
            char first[512], why[512];
            gw_caller c;
            for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
                char *token = token_of(new, headers[h], claims[i]);
                assert_int_equal(weigh(&t, token, &c, i ? why : first), PST_EAUTH);
                if (i)
                    assert_string_equal(why, first);
                free(token);
            }
        }
        close_gate(&t);
    }
}

static void test_roles_of_a_providers_token(void **state)
{
    gate t = open_gate(false, (gw_bearer_conf){.path = keys_path, .roles = GW_ROLE_USER});
    comes_in(&t, old, es, OF("ann@example.org"), "ann@example.org", GW_ROLE_USER);
    comes_in(&t, old, es, WITH("a", "\"role\":\"viewer\""), "a", GW_ROLE_VIEWER);
    comes_in(&t, old, es, WITH("a", "\"roles\":[\"viewer\",\"user\"]"), "a", GW_ROLE_VIEWER | GW_ROLE_USER);
    comes_in(&t, old, es, WITH("a", "\"roles\":\"viewer user\""), "a", GW_ROLE_VIEWER | GW_ROLE_USER);
    comes_in(&t, old, es, WITH("a", "\"roles\":[\"guest\",7,null,\"operator\"]"), "a", GW_ROLE_OPERATOR);
    comes_in(&t, old, es, WITH("a", "\"groups\":[\"staff\",\"operator\"]"), "a", GW_ROLE_OPERATOR);
    comes_in(&t, old, es, WITH("a", "\"groups\":[\"staff\"]"), "a", GW_ROLE_USER); /* groups are others', too */
    static const char *const foreign[] = {
        "\"roles\":[\"guest\"]", "\"role\":\"Operator\"", "\"role\":\"operators\"", "\"roles\":[]",           "\"roles\":{}",
        "\"roles\":1",           "\"role\":null",         "\"roles\":\"\"",         "\"role\":\"op erator\"", "\"roles\":[[\"operator\"]]"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        char *claims = pst_sprintf("{\"exp\":1800000600,\"sub\":\"a\",%s}", foreign[i]);
        stays_out(&t, old, es, claims, "no role of ours");
        free(claims);
    }
    close_gate(&t);
    t = open_gate(true, (gw_bearer_conf){.path = keys_path}); /* --jwt-role none */
    stays_out(&t, old, es, OF("ann"), "no role of ours");
    stays_out(&t, old, es, WITH("ann", "\"groups\":[\"staff\"]"), "no role of ours");
    comes_in(&t, old, es, WITH("ann", "\"role\":\"user\""), "ann", GW_ROLE_USER);
    comes_in(&t, old, es, OF("vera"), "vera", GW_ROLE_VIEWER);
    close_gate(&t);
}

static void test_issuer_and_audience_are_the_providers(void **state)
{
    gate t = open_gate(true, (gw_bearer_conf){.path = keys_path, .issuer = "https://id", .audience = "penstock", .roles = GW_ROLE_USER});
    comes_in(&t, old, es, WITH("a", "\"iss\":\"https://id\",\"aud\":[\"x\",\"penstock\"]"), "a", GW_ROLE_USER);
    stays_out(&t, old, es, WITH("a", "\"iss\":\"https://id\",\"aud\":\"x\""), "(aud)");
    stays_out(&t, old, es, WITH("a", "\"iss\":\"https://id\""), "(aud)");
    stays_out(&t, old, es, WITH("a", "\"iss\":\"https://other\",\"aud\":\"penstock\""), "(iss)");
    stays_out(&t, old, es, WITH("a", "\"iss\":[\"https://id\"],\"aud\":\"penstock\""), "(iss)");
    comes_in(&t, mine, rs, OF("ci"), "ci", GW_ROLE_USER); /* his own tokens name neither */
    close_gate(&t);
}

static void test_subjects_that_are_no_users_name(void **state)
{
    gate t = open_gate(false, (gw_bearer_conf){.path = keys_path, .roles = GW_ROLE_OPERATOR});
    char *longest = pst_alloc(GW_NAME_MAX + 2);
    memset(longest, 'a', GW_NAME_MAX + 1);
    char *claims = pst_sprintf("{\"exp\":1800000600,\"sub\":\"%s\"}", longest);
    stays_out(&t, old, es, claims, "with a subject");
    free(claims);
    longest[GW_NAME_MAX] = 0;
    claims = pst_sprintf("{\"exp\":1800000600,\"sub\":\"%s\"}", longest);
    comes_in(&t, old, es, claims, longest, GW_ROLE_OPERATOR);
    free(claims);
    free(longest);
    static const char *const none[] = {OF(""),
                                       OF("a b"),
                                       OF("a/b"),
                                       OF("../x"),
                                       OF("a\\u0000b"),
                                       OF("a\\nb"),
                                       OF("a:b"),
                                       OF("\\u00e4"),
                                       "{\"exp\":1800000600}",
                                       "{\"exp\":1800000600,\"sub\":7}",
                                       "{\"exp\":1800000600,\"sub\":[\"ann\"]}",
                                       "[\"ann\"]",
                                       "7",
                                       "",
                                       "{"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        stays_out(&t, old, es, none[i], "with a subject");
    close_gate(&t);
}

static void test_what_is_no_token_and_a_public_key_as_a_secret(void **state)
{
    gate t = open_gate(true, (gw_bearer_conf){.path = keys_path, .roles = GW_ROLE_OPERATOR});
    char why[512], *huge = pst_alloc((1 << 20) + 1);
    gw_caller c;
    memset(huge, 'A', 1 << 20);
    huge[1000] = huge[2000] = '.';
    assert_int_equal(weigh(&t, huge, &c, why), PST_EAUTH);
    static const char *const none[] = {"", ".", "..", "a.b.c", "!!!.???.***", "e30.e30.e30", "====.====.====", "\xff\xfe.\x80.\x81"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(weigh(&t, none[i], &c, why), PST_EAUTH);
    char *h = url64("{\"alg\":\"HS256\"}", 15), *body = url64(OF("ci"), strlen(OF("ci"))), *text = pst_sprintf("%s.%s", h, body);
    uint8_t mac[32];
    unsigned n = 0;
    HMAC(EVP_sha256(), my_pem, (int)strlen(my_pem), (const uint8_t *)text, strlen(text), mac, &n);
    char *s = url64(mac, n), *token = pst_sprintf("%s.%s", text, s);
    assert_int_equal(weigh(&t, token, &c, why), PST_EAUTH);
    free(token);
    free(s);
    free(text);
    free(body);
    free(h);
    free(huge);
    close_gate(&t);
}

static void test_new_keys_come_in_and_broken_ones_change_nothing(void **state)
{
    pst_err err = {0};
    gate t = open_gate(false, (gw_bearer_conf){.path = keys_path, .roles = GW_ROLE_USER});
    stays_out(&t, new, es_new, OF("a"), "none of the keys");
    assert_int_equal(gw_bearer_again(t.bearer, &err), 0);
    static const char *const broken[] = {"", "{", "{\"keys\":[]}", "{\"keys\":7}", "[]"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        put(keys_path, broken[i], 0644);
        assert_true(gw_bearer_again(t.bearer, &err) < 0);
        pst_err_clear(&err);
        assert_int_equal(gw_bearer_again(t.bearer, &err), 0); /* said once */
    }
    put_keys(new, "new", 0666); /* anybody could have put his own there */
    assert_true(gw_bearer_again(t.bearer, &err) < 0);
    pst_err_clear(&err);
    unlink(keys_path);
    assert_true(gw_bearer_again(t.bearer, &err) < 0);
    pst_err_clear(&err);
    assert_int_equal(gw_bearer_again(t.bearer, &err), 0);
    comes_in(&t, old, es, OF("a"), "a", GW_ROLE_USER);
    stays_out(&t, new, es_new, OF("a"), "none of the keys");
    assert_int_equal(chmod(dir, 0777), 0); /* what is not the file's own fault may pass with the file as it is */
    put_keys(new, "new", 0644);
    pst_err_clear(&err);
    assert_true(gw_bearer_again(t.bearer, &err) < 0);
    pst_err_clear(&err);
    assert_int_equal(gw_bearer_again(t.bearer, &err), 0);
    assert_int_equal(chmod(dir, 0700), 0);
    pst_err_clear(&err);
    assert_int_equal(gw_bearer_again(t.bearer, &err), 1);
    comes_in(&t, new, es_new, OF("a"), "a", GW_ROLE_USER);
    stays_out(&t, old, es, OF("a"), "none of the keys");
    close_gate(&t);
    gw_bearer *none = NULL;
    put(keys_path, "{\"keys\":[{\"kty\":\"oct\",\"k\":\"c2VjcmV0\"}]}", 0644);
    assert_true(gw_bearer_new(&(gw_bearer_conf){.path = keys_path}, &none, &err) < 0);
    assert_non_null(strstr(err.text, "no key that can be used"));
    pst_err_clear(&err);
    assert_true(gw_bearer_new(&(gw_bearer_conf){.path = dir}, &none, &err) < 0);
    put_keys(old, "old", 0644);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_user_comes_in_by_the_key_of_his_line_alone),
        cmocka_unit_test(test_a_password_is_not_gone_round_by_the_provider),
        cmocka_unit_test(test_which_names_there_are_is_not_told),
        cmocka_unit_test(test_roles_of_a_providers_token),
        cmocka_unit_test(test_issuer_and_audience_are_the_providers),
        cmocka_unit_test(test_subjects_that_are_no_users_name),
        cmocka_unit_test(test_what_is_no_token_and_a_public_key_as_a_secret),
        cmocka_unit_test(test_new_keys_come_in_and_broken_ones_change_nothing),
    };
    return cmocka_run_group_tests(tests, begin, finish);
}
