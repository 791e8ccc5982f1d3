/* test_gateway_key_url.c - a provider's keys at an address: a server of ours that answers as it is told to, as providers do and as nobody should. */
#include "producers/gateway/bearer.h"
#include "producers/gateway/key_url.h"
#include "tests/unit/sign_jwt.h"
#include "tests/unit/test.h"

#include "common/base/clock.h"
#include "common/loop/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NET_MS = 60000 };

static pst_http_thread *server;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int status;           /* of the answer, with the lock, as the next two */
static char *body, *caching; /* Cache-Control; NULL = none */
static atomic_int hits;
static EVP_PKEY *one, *two;
static char url[80];

static void answer(void *arg, pst_http_req *req)
{
    pthread_mutex_lock(&lock);
    if (caching)
        pst_http_set_header(req, "Cache-Control", caching);
    if (status == 302)
        pst_http_add_header(req, "Location", "/elsewhere");
    pst_http_reply(req, status, "application/json", body, strlen(body));
    pthread_mutex_unlock(&lock);
    hits++;
}

static const pst_http_route routes[] = {{"GET", "/keys", answer, 0, 0, NULL}};

static void say(int code, const char *cache, char *take)
{
    pthread_mutex_lock(&lock);
    free(body);
    free(caching);
    status = code;
    body = take;
    caching = pst_strdup(cache);
    pthread_mutex_unlock(&lock);
}

static char *keys_of(EVP_PKEY *a, const char *kid_a, EVP_PKEY *b, const char *kid_b)
{
    json_t *list = json_array();
    json_array_append_new(list, jwk_of(a, kid_a));
    if (b)
        json_array_append_new(list, jwk_of(b, kid_b));
    json_t *j = json_pack("{s:o}", "keys", list);
    char *text = pst_json_text(j);
    json_decref(j);
    return text;
}

static int begin(void **state)
{
    pst_err err = {0};
    one = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    two = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    assert_true(one && two);
    say(200, NULL, keys_of(one, "one", NULL, NULL));
    assert_int_equal(pst_http_thread_start(&(pst_http_conf){.name = "test"}, routes, 1, NULL, &server, &err), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/keys", pst_http_thread_port(server));
    return 0;
}

static int finish(void **state)
{
    pst_http_thread_stop(server);
    EVP_PKEY_free(one);
    EVP_PKEY_free(two);
    free(body);
    free(caching);
    return 0;
}

static gw_key_url *open_url(int again_ms)
{
    pst_err err = {0};
    gw_key_url *u = NULL;
    hits = 0;
    if (gw_key_url_open(&(gw_key_url_conf){.url = url, .again_ms = again_ms}, &u, &err) < 0)
        fail_msg("%s", err.text);
    return u;
}

static void await(int n)
{
    for (int i = 0; i < NET_MS && hits < n; i++)
        pst_sleep_ms(1);
    assert_true(hits >= n);
}

static pst_jwks *await_keys(gw_key_url *u)
{
    pst_jwks *keys = NULL;
    for (int i = 0; i < NET_MS && !keys; i++) {
        keys = gw_key_url_take(u);
        pst_sleep_ms(1);
    }
    assert_non_null(keys);
    return keys;
}

static bool knows(const pst_jwks *keys, EVP_PKEY *k, const char *kid)
{
    char *header = pst_sprintf("{\"alg\":\"ES256\",\"kid\":\"%s\"}", kid), *token = token_of(k, header, "{\"sub\":\"a\",\"exp\":2000}");
    json_t *claims = NULL;
    pst_err err = {0};
    int rc = pst_jwt_check(keys, token, &(pst_jwt_rules){.now_s = 1000}, &claims, &err);
    json_decref(claims);
    free(token);
    free(header);
    return rc == 0;
}

/* ---- cases ----------------------------------------------------------------------------------------------------------------- */

static void test_keys_come_once_and_again_when_they_are_others(void **state)
{
    say(200, "public, max-age=99999999999999999999", keys_of(one, "one", NULL, NULL));
    gw_key_url *u = open_url(50);
    pst_jwks *keys = await_keys(u);
    assert_true(knows(keys, one, "one"));
    assert_false(knows(keys, two, "two"));
    pst_jwks_free(keys);
    gw_key_url_ask(u);
    await(2);
    pst_sleep_ms(50);
    assert_null(gw_key_url_take(u)); /* the same bytes are no other keys */
    say(200, NULL, keys_of(one, "one", two, "two"));
    gw_key_url_ask(u);
    keys = await_keys(u);
    assert_true(knows(keys, one, "one") && knows(keys, two, "two"));
    pst_jwks_free(keys);
    gw_key_url_close(u);
}

static void test_who_asks_without_end_is_heard_now_and_then(void **state)
{
    say(200, NULL, keys_of(one, "one", NULL, NULL));
    gw_key_url *u = open_url(300);
    int64_t from = pst_mono_us();
    await(1);
    for (int i = 0; i < 1000; i++) {
        gw_key_url_ask(u);
        pst_sleep_ms(1);
    }
    int64_t most = (pst_mono_us() - from) / 300000 + 1;
    assert_true(hits >= 2 && hits <= most);
    gw_key_url_close(u);
    hits = 0;
    u = open_url(0); /* as it is in service: not within half a minute */
    await(1);
    for (int i = 0; i < 300; i++) {
        gw_key_url_ask(u);
        pst_sleep_ms(1);
    }
    assert_int_equal(hits, 1);
    gw_key_url_close(u);
}

static void test_what_is_no_answer_changes_nothing(void **state)
{
    say(200, "no-store", keys_of(one, "one", NULL, NULL));
    gw_key_url *u = open_url(20);
    pst_jwks_free(await_keys(u));
    char *large = pst_alloc((2 << 20) + 1);
    memset(large, ' ', 2 << 20);
    const struct {
        int status;
        char *text;
    } bad[] = {{500, pst_strdup("{}")},           {302, pst_strdup("{}")},   {404, keys_of(two, "two", NULL, NULL)},
               {200, pst_strdup("<html>")},       {200, pst_strdup("")},     {200, pst_strdup("{\"keys\":[]}")},
               {200, pst_strdup("{\"keys\":7}")}, {200, pst_strdup("[[[[")}, {200, large}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int before = hits;
        say(bad[i].status, NULL, bad[i].text);
        gw_key_url_ask(u);
        await(before + 1);
    }
    pst_sleep_ms(100);
    assert_null(gw_key_url_take(u));
    say(200, NULL, keys_of(two, "two", NULL, NULL));
    gw_key_url_ask(u);
    pst_jwks *keys = await_keys(u);
    assert_true(knows(keys, two, "two") && !knows(keys, one, "one")); /* a key that was taken back is out */
    pst_jwks_free(keys);
    gw_key_url_close(u);
}

/* A server that takes the connection and says nothing holds nobody up, and an end is not waited for. */
static void test_a_silent_server(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    pst_err err = {0};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, len), 0);
    assert_int_equal(listen(fd, 5), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    char *silent = pst_sprintf("http://127.0.0.1:%d/keys", ntohs(a.sin_port));
    gw_key_url *u = NULL;
    assert_int_equal(gw_key_url_open(&(gw_key_url_conf){.url = silent}, &u, &err), 0);
    int came = accept(fd, NULL, NULL);
    int64_t from = pst_mono_us();
    gw_key_url_ask(u);
    assert_null(gw_key_url_take(u));
    gw_key_url_close(u);
    assert_true(pst_mono_us() - from < 4500000); /* and not at the end of its time-out of 5 s */
    close(came);
    close(fd);
    free(silent);
}

static void test_addresses_that_are_not_taken(void **state)
{
    static const struct {
        const char *url, *word;
    } rows[] = {{"http://id.example/keys", "only https"},
                {"http://192.0.2.1/keys", "only https"},
                {"http://localhost.example/keys", "only https"},
                {"http://127.0.0.1.example/", "only https"},
                {"http://127.1/keys", "only https"},
                {"http://[::2]/keys", "only https"},
                {"ftp://127.0.0.1/keys", "neither"},
                {"file:///etc/passwd", "neither"},
                {"https://ann:secret@id.example/k", "holds"},
                {"http://127.0.0.1@id.example/k", "holds"},
                {"https:///keys", "names no host"},
                {"https://id.example/a b", "character"},
                {"https://id.example/\r\nHost: evil", "character"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_err err = {0};
        gw_key_url *u = NULL;
        assert_true(gw_key_url_is(rows[i].url));
        if (gw_key_url_open(&(gw_key_url_conf){.url = rows[i].url}, &u, &err) >= 0 || !strstr(err.text, rows[i].word) ||
            strstr(err.text, "secret"))
            fail_msg("%s: %s", rows[i].url, err.text);
    }
    assert_false(gw_key_url_is("/etc/keys.json"));
    assert_false(gw_key_url_is(NULL));
}

static void test_tokens_by_keys_of_an_address(void **state)
{
    pst_err err = {0};
    gw_bearer *b = NULL;
    gw_caller c = {0};
    say(200, NULL, keys_of(one, "one", NULL, NULL));
    assert_int_equal(gw_bearer_new(&(gw_bearer_conf){.path = url, .roles = GW_ROLE_USER}, &b, &err), 0);
    char *good = token_of(one, "{\"alg\":\"ES256\",\"kid\":\"one\"}", "{\"sub\":\"dora\",\"exp\":2000}"),
         *unknown = token_of(two, "{\"alg\":\"ES256\",\"kid\":\"two\"}", "{\"sub\":\"dora\",\"exp\":2000}");
    int rc = PST_EAUTH;
    for (int i = 0; i < NET_MS && rc; i++) {
        err = (pst_err){0};
        rc = gw_bearer_weigh(b, NULL, good, 1000, &c, &err);
        pst_sleep_ms(1);
    }
    assert_int_equal(rc, 0);
    assert_string_equal(c.name, "dora");
    assert_string_equal(c.via, "token");
    assert_int_equal(c.until_s, 2000 + PST_JWT_SKEW_S);
    assert_int_equal(gw_bearer_again(b, &err), 1); /* streams by other keys are to be looked at */
    assert_int_equal(gw_bearer_again(b, &err), 0);
    err = (pst_err){0};
    assert_int_equal(gw_bearer_weigh(b, NULL, unknown, 1000, &c, &err), PST_EAUTH);
    free(unknown);
    free(good);
    gw_bearer_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_come_once_and_again_when_they_are_others),
        cmocka_unit_test(test_who_asks_without_end_is_heard_now_and_then),
        cmocka_unit_test(test_what_is_no_answer_changes_nothing),
        cmocka_unit_test(test_a_silent_server),
        cmocka_unit_test(test_addresses_that_are_not_taken),
        cmocka_unit_test(test_tokens_by_keys_of_an_address),
    };
    return cmocka_run_group_tests(tests, begin, finish);
}
