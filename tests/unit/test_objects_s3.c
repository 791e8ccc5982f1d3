/* test_objects_s3.c - the object store in a bucket, against a server of a few lines that keeps what it is given: the same promises as a folder's, what is said when the
 * store is wrong, and whose credentials go where. That signatures are right is proven by tests/live/test_stores.py. */
#include "common/objects/objects.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "s3_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SECRET "sesame-sesame"
enum { KEPT_MAX = 8 };

typedef struct kept {
    char target[200], digest[80], modified[40];
    pst_buf body;
} kept;

typedef struct bucket {
    s3_server server;
    kept at[KEPT_MAX];
    int puts, copies;
    const char *fails; /* status of every answer, with this code */
    const char *code;
    bool token_seen;
} bucket;

static kept *find(bucket *b, const char *target, bool make)
{
    char path[200];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(target, "?"), target);
    for (int i = 0; i < KEPT_MAX; i++)
        if (!strcmp(b->at[i].target, path) || (make && !*b->at[i].target)) {
            snprintf(b->at[i].target, sizeof b->at[i].target, "%s", path);
            return &b->at[i];
        }
    return NULL;
}

static void list(bucket *b, const char *target, pst_buf *out)
{
    pst_buf xml = {0};
    const char *asked = strstr(target, "prefix=") + 7;
    pst_buf_adds(&xml, "<ListBucketResult>");
    for (int i = 0; i < KEPT_MAX; i++) {
        char key[200], coded[400];
        snprintf(key, sizeof key, "%s", *b->at[i].target ? b->at[i].target + strlen("/bkt/") : "");
        size_t n = 0;
        for (const char *c = key; *c; c++)
            n += (size_t)snprintf(coded + n, sizeof coded - n, *c == '/' ? "%%2F" : "%c", *c);
        if (*key && !strncmp(coded, asked, strlen(asked)))
            pst_buf_printf(&xml, "<Contents><Key>%s</Key><LastModified>%s</LastModified><Size>%zu</Size></Contents>", key,
                           b->at[i].modified, b->at[i].body.len);
    }
    pst_buf_adds(&xml, "</ListBucketResult>");
    s3_say(out, "200", "", xml.data, xml.len, -1);
    pst_buf_done(&xml);
}

static void keep(bucket *b, const char *target, const char *headers, const pst_buf *body)
{
    kept *k = find(b, target, true);
    const char *digest = strcasestr(headers, "x-amz-meta-sha256: ");
    snprintf(k->digest, 65, "%s", digest ? digest + strlen("x-amz-meta-sha256: ") : "");
    pst_time_text(pst_now_us(), k->modified);
    if (strcasestr(headers, "x-amz-copy-source: /bkt/")) {
        b->copies++;
        return;
    }
    b->puts++;
    pst_buf_clear(&k->body);
    pst_buf_add(&k->body, body->data, body->len);
}

static void answer(s3_server *s, int n, const char *method, const char *target, const char *headers, const pst_buf *body, pst_buf *out)
{
    bucket *b = s->arg;
    char head[160], error[100];
    kept *k = find(b, target, false);
    b->token_seen |= strcasestr(headers, "x-amz-security-token: tok-1") != NULL;
    if (b->fails) {
        snprintf(error, sizeof error, "<Error><Code>%s</Code></Error>", b->code);
        s3_say(out, b->fails, "", error, strlen(error), -1);
    } else if (strstr(target, "list-type=2")) {
        list(b, target, out);
    } else if (!strcmp(method, "PUT")) {
        keep(b, target, headers, body);
        s3_say(out, "200", "ETag: \"e\"\r\n", "", 0, -1);
    } else if (!k) {
        s3_say(out, "404", "", "<Error><Code>NoSuchKey</Code></Error>", strcmp(method, "HEAD") ? 36 : 0, -1);
    } else if (!strcmp(method, "DELETE")) {
        pst_buf_done(&k->body);
        memset(k, 0, sizeof *k);
        s3_say(out, "204", "", "", 0, -1);
    } else {
        snprintf(head, sizeof head, "ETag: \"e\"\r\nx-amz-meta-sha256: %s\r\n", k->digest);
        bool only = !strcmp(method, "HEAD");
        s3_say(out, "200", head, only || !k->body.data ? "" : k->body.data, only ? 0 : k->body.len, (long)k->body.len);
    }
}

static pst_objects *opened(bucket *b)
{
    pst_objects *o = NULL;
    pst_err err = {0};
    s3_server_start(&b->server, answer, b);
    setenv("PENSTOCK_OBJECTS_ENDPOINT", b->server.url, 1);
    setenv("AWS_ACCESS_KEY_ID", "UserKey", 1);
    setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
    assert_int_equal(pst_objects_open("s3://bkt/some/where", &o, &err), 0);
    pst_objects_patience(o, 0);
    return o;
}

static void ended(bucket *b, pst_objects *o)
{
    pst_objects_close(o);
    s3_server_stop(&b->server);
    for (int i = 0; i < KEPT_MAX; i++)
        pst_buf_done(&b->at[i].body);
}

static void test_objects_s3_round_trip_by_uri_and_key(void **state)
{
    bucket b = {0};
    pst_objects *o = opened(&b);
    pst_err err = {0};
    char *uri = NULL, hex[65], to[] = "/tmp/penstock-objects-XXXXXX";
    pst_buf got = {0};
    pst_sha256_hex("hello", 5, hex);
    assert_int_equal(pst_objects_put(o, "models/m/a.onnx", "hello", 5, &uri, &err), 0);
    assert_string_equal(uri, "s3://bkt/some/where/models/m/a.onnx");
    assert_non_null(find(&b, "/bkt/some/where/models/m/a.onnx", false));
    assert_int_equal(pst_objects_get(o, uri, hex, 100, &got, &err), 0);
    assert_string_equal(got.data, "hello");
    pst_buf_done(&got);
    assert_int_equal(pst_objects_get(o, "models/m/a.onnx", NULL, 4, &got, &err), PST_ELIMIT);
    pst_err_clear(&err);
    close(mkstemp(to));
    assert_int_equal(pst_objects_get_file(o, uri, hex, to, &err), 0);
    int64_t bytes = 0;
    char again[65];
    assert_int_equal(pst_objects_put_file(o, "copy", to, again, &bytes, NULL, &err), 0);
    assert_string_equal(again, hex);
    assert_int_equal(bytes, 5);
    hex[0] ^= 1;
    assert_int_equal(pst_objects_get_file(o, uri, hex, to, &err), PST_EPARSE);
    pst_err_clear(&err);
    assert_int_equal(pst_objects_delete(o, uri, &err), 0);
    assert_int_equal(pst_objects_get(o, uri, NULL, 100, &got, &err), PST_ENOTFOUND);
    assert_int_equal(err.cls, PST_CLASS_DATA);
    pst_err_clear(&err);
    static const char *const others[] = {"file:/x/models/a", "s3://other/some/where/k", "s3://bkt/some/wherever/k",
                                         "s3://bkt/some/where/../k"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(pst_objects_get(o, others[i], NULL, 100, &got, &err), PST_EINVAL);
        pst_err_clear(&err);
    }
    unlink(to);
    free(uri);
    ended(&b, o);
}

static void count(void *arg, const char *key, int64_t put_us)
{
    assert_true(put_us > 1700000000LL * 1000000);
    assert_string_equal(key, "code/abc");
    ++*(int *)arg;
}

/* What the Trainer's sweep lives by. */
static void test_objects_s3_what_is_put_again_is_new_again(void **state)
{
    bucket b = {0};
    pst_objects *o = opened(&b);
    pst_err err = {0};
    int n = 0;
    bool removed = true;
    assert_int_equal(pst_objects_touch(o, "code/abc", &err), PST_ENOTFOUND);
    pst_err_clear(&err);
    assert_int_equal(pst_objects_put(o, "code/abc", "x", 1, NULL, &err), 0);
    assert_int_equal(pst_objects_put(o, "code/abc/below", "x", 1, NULL, &err), 0);
    assert_int_equal(pst_objects_put(o, "code/abcd/e", "x", 1, NULL, &err), 0);
    assert_int_equal(pst_objects_each(o, "code", count, &n, &err), 0);
    assert_int_equal(n, 1);
    kept *k = find(&b, "/bkt/some/where/code/abc", false);
    for (int i = 0; i < 2; i++) {
        snprintf(k->modified, sizeof k->modified, "2020-01-01T00:00:00.000Z");
        assert_int_equal(i ? pst_objects_touch(o, "code/abc", &err) : pst_objects_put(o, "code/abc", "x", 1, NULL, &err), 0);
        assert_int_equal(b.copies, i + 1);
        assert_int_equal(b.puts, 3); /* not sent again */
        assert_int_equal(pst_objects_expire(o, "code/abc", pst_now_us() - 3600 * 1000000LL, &removed, &err), 0);
        assert_false(removed);
    }
    snprintf(k->modified, sizeof k->modified, "2020-01-01T00:00:00.000Z");
    assert_int_equal(pst_objects_expire(o, "code/abc", pst_now_us() - 3600 * 1000000LL, &removed, &err), 0);
    assert_true(removed);
    pst_buf got = {0};
    assert_int_equal(pst_objects_get(o, "code/abc", NULL, 9, &got, &err), PST_ENOTFOUND);
    pst_err_clear(&err);
    ended(&b, o);
}

/* A store that is wrong is the operator's to mend: RETRY, so that nobody gives up what was to be stored, with the cure and without the secret. */
static void test_objects_s3_a_store_that_is_wrong_says_the_cure(void **state)
{
    static const struct {
        const char *status, *code, *word;
    } rows[] = {{"403", "SignatureDoesNotMatch", "PENSTOCK_OBJECTS_SECRET_KEY"},
                {"404", "NoSuchBucket", "make the bucket"},
                {"503", "SlowDown", "PENSTOCK_OBJECTS_ENDPOINT"}};
    bucket b = {0};
    pst_objects *o = opened(&b);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_err err = {0};
        pst_buf got = {0};
        b.fails = rows[i].status;
        b.code = rows[i].code;
        assert_true(pst_objects_check(o, &err) < 0);
        assert_non_null(strstr(err.text, rows[i].word));
        assert_null(strstr(err.text, "connection."));
        assert_null(strstr(err.text, SECRET));
        pst_err_clear(&err);
        assert_true(pst_objects_get(o, "k", NULL, 9, &got, &err) < 0);
        assert_int_equal(err.cls, PST_CLASS_RETRY);
    }
    b.fails = NULL;
    assert_int_equal(pst_objects_check(o, NULL), 0);
    ended(&b, o);
}

static void test_objects_s3_what_it_needs_is_named(void **state)
{
    static const struct {
        const char *url, *unset, *word;
    } rows[] = {{"s3://bkt", "PENSTOCK_OBJECTS_ENDPOINT", "AWS_ENDPOINT_URL"},
                {"s3://bkt/p", "AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID"},
                {"s3://bkt/p", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY"},
                {"s3://", NULL, "s3://BUCKET/PREFIX"},
                {"s3://bkt/../x", NULL, "s3://BUCKET/PREFIX"},
                {"s3://bkt/a?b", NULL, "s3://BUCKET/PREFIX"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_objects *o = NULL;
        pst_err err = {0};
        setenv("PENSTOCK_OBJECTS_ENDPOINT", "http://127.0.0.1:1", 1);
        setenv("AWS_ACCESS_KEY_ID", "UserKey", 1);
        setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
        if (rows[i].unset)
            unsetenv(rows[i].unset);
        assert_int_equal(pst_objects_open(rows[i].url, &o, &err), PST_EINVAL);
        assert_non_null(strstr(err.text, rows[i].word));
        assert_null(strstr(err.text, SECRET));
    }
}

static void test_objects_s3_credentials_for_a_while_send_their_token(void **state)
{
    bucket b = {0};
    setenv("AWS_SESSION_TOKEN", "tok-1", 1);
    pst_objects *o = opened(&b);
    assert_int_equal(pst_objects_check(o, NULL), 0);
    assert_true(b.token_seen);
    ended(&b, o);
    unsetenv("AWS_SESSION_TOKEN");
}

int main(void)
{
    static const char *const clean[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL",   "AWS_SESSION_TOKEN",
                                        "AWS_REGION",          "AWS_DEFAULT_REGION", "AWS_CA_BUNDLE"};
    for (size_t i = 0; i < sizeof clean / sizeof *clean; i++)
        unsetenv(clean[i]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects_s3_round_trip_by_uri_and_key), cmocka_unit_test(test_objects_s3_what_is_put_again_is_new_again),
        cmocka_unit_test(test_objects_s3_a_store_that_is_wrong_says_the_cure), cmocka_unit_test(test_objects_s3_what_it_needs_is_named),
        cmocka_unit_test(test_objects_s3_credentials_for_a_while_send_their_token)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
