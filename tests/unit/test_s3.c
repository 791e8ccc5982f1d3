/* test_s3.c - the client of buckets against a server that misbehaves: what is tried again, where a body goes on, what is refused, what is never shown; and
 * the reader of its answers. That signatures are right is proven by a server that checks them (tests/live/test_stores.py). */
#include "common/objects/s3.h"
#include "common/objects/s3_xml.h"

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
/* On the server's thread, from which cmocka cannot jump back. */
#define MUST(c) ((c) ? (void)0 : (fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #c), abort()))

static bool never(void *arg)
{
    return false;
}

static pst_s3 *client(const s3_server *server, int patience_ms)
{
    pst_s3 *s = NULL;
    pst_err err = {0};
    assert_int_equal(pst_s3_open(&(pst_s3_conf){.url = server->url,
                                                .user = "UserKey",
                                                .password = SECRET,
                                                .bucket = "My_bucket",
                                                .patience_ms = patience_ms,
                                                .stopped = never},
                                 &s, &err),
                     0);
    return s;
}

static char big[100000];

/* Key "x": 503, then half of the body, then the rest. */
static void shaky(s3_server *s, int n, const char *method, const char *target, const char *headers, const pst_buf *body, pst_buf *out)
{
    MUST(strstr(target, "/My_bucket/x"));
    MUST(strstr(headers, "AWS4-HMAC-SHA256 Credential=UserKey/"));
    MUST(!strstr(headers, SECRET));
    if (n == 1) {
        s3_say(out, "503", "", "", 0, -1);
    } else if (n == 2) {
        MUST(!strstr(headers, "Range:"));
        s3_say(out, "200", "ETag: \"e1\"\r\n", big, 40000, sizeof big);
    } else {
        MUST(strstr(headers, "Range: bytes=40000-"));
        MUST(strstr(headers, "If-Match: \"e1\""));
        char range[80];
        snprintf(range, sizeof range, "ETag: \"e1\"\r\nContent-Range: bytes 40000-%zu/%zu\r\n", sizeof big - 1, sizeof big);
        s3_say(out, "206", range, big + 40000, sizeof big - 40000, -1);
    }
}

/* Takes no range: begins anew, and breaks off once more. */
static void from_the_start(s3_server *s, int n, const char *method, const char *target, const char *headers, const pst_buf *body,
                           pst_buf *out)
{
    s3_say(out, "200", "ETag: \"e1\"\r\n", big, n < 3 ? 30000 : sizeof big, sizeof big);
}

static void other_part(s3_server *s, int n, const char *method, const char *target, const char *headers, const pst_buf *body, pst_buf *out)
{
    s3_say(out,
           n == 1   ? "200"
           : n == 2 ? "206"
                    : "200",
           n == 2 ? "Content-Range: bytes 7-99999/100000\r\n" : "", big, n == 1 ? 30000 : sizeof big, sizeof big);
}

static void test_s3_a_body_that_breaks_off_goes_on(void **state)
{
    s3_answer *const answers[] = {shaky, from_the_start, other_part};
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)('a' + i % 23 + i / 9999);
    for (int i = 0; i < 3; i++) {
        s3_server server;
        pst_err err = {0};
        int64_t got = 0;
        char *back = malloc(sizeof big + 1);
        FILE *f = tmpfile();
        s3_server_start(&server, answers[i], NULL);
        pst_s3 *s = client(&server, 5000);
        assert_int_equal(pst_s3_get(s, "x", fileno(f), sizeof big, &got, &err), 0);
        assert_int_equal(got, sizeof big);
        assert_int_equal(pread(fileno(f), back, sizeof big + 1, 0), sizeof big);
        assert_memory_equal(back, big, sizeof big);
        assert_int_equal(server.requests, 3);
        pst_s3_close(s);
        s3_server_stop(&server);
        fclose(f);
        free(back);
    }
}

static void refusing(s3_server *s, int n, const char *method, const char *target, const char *headers, const pst_buf *body, pst_buf *out)
{
    static const char xml[] =
        "<?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code><Message>you said UserKey:" SECRET "</Message></Error>";
    const char *kind = s->arg;
    if (!strcmp(kind, "403"))
        s3_say(out, "403", "", xml, strlen(xml), -1);
    else if (!strcmp(kind, "301"))
        s3_say(out, "301", "Location: http://127.0.0.1:1/elsewhere\r\n", "", 0, -1);
    else if (!strcmp(kind, "page"))
        s3_say(out, "200", "", "<html><p>hello</html>", 21, -1);
    else if (!strcmp(kind, "404"))
        s3_say(out, "404", "", "<Error><Code>NoSuchBucket</Code><Message>caf\303\251 \001</Message></Error>", 63, -1);
    else if (!strcmp(kind, "500"))
        s3_say(out, "500", "", "", 0, -1);
    else if (!strcmp(kind, "endless"))
        s3_say_list(out, (const char *[]){"a"}, 1, 1, "again");
    else if (!strcmp(kind, "cut"))
        s3_say_list(out, (const char *[]){"a"}, 1, 1, "");
}

static void test_s3_refusals_say_why_and_show_no_secret(void **state)
{
    static const struct {
        const char *kind;
        int code;
        pst_err_class cls;
        const char *word;
    } rows[] = {{"403", PST_EAUTH, PST_CLASS_DATA, "SignatureDoesNotMatch"},
                {"301", PST_EINVAL, PST_CLASS_DATA, "redirect"},
                {"page", PST_EPARSE, PST_CLASS_DATA, "S3"},
                {"404", PST_ENOTFOUND, PST_CLASS_DATA, "NoSuchBucket"},
                {"500", PST_EUNREACH, PST_CLASS_RETRY, "500"},
                {"endless", PST_EPARSE, PST_CLASS_DATA, "without coming further"},
                {"cut", PST_EPARSE, PST_CLASS_DATA, "where it goes on"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        s3_server server;
        pst_err err = {0};
        pst_s3_list list = {0};
        s3_server_start(&server, refusing, (void *)(uintptr_t)rows[i].kind);
        pst_s3 *s = client(&server, 500);
        assert_int_equal(pst_s3_list_keys(s, "", 0, &list, &err), rows[i].code);
        assert_int_equal(err.cls, rows[i].cls);
        assert_non_null(strstr(err.text, rows[i].word));
        assert_null(strstr(err.text, SECRET));
        assert_null(strstr(err.text, "UserKey"));
        for (const char *c = err.text; *c; c++)
            assert_true(*c >= ' ' && *c < 127);
        pst_s3_list_done(&list);
        pst_s3_close(s);
        s3_server_stop(&server);
    }
}

static void pages(s3_server *s, int n, const char *method, const char *target, const char *headers, const pst_buf *body, pst_buf *out)
{
    static char names[1000][16];
    const char *keys[1000];
    char next[8], wanted[40];
    snprintf(wanted, sizeof wanted, "continuation-token=p%%2B%d&", n - 1);
    MUST((strstr(target, wanted) != NULL) == (n > 1));
    MUST(strstr(target, "encoding-type=url&list-type=2&max-keys=1000&prefix=a%2Fb"));
    for (int i = 0; i < 1000; i++) {
        snprintf(names[i], sizeof names[i], "a/bk%05d", (n - 1) * 1000 + i);
        keys[i] = names[i];
    }
    snprintf(next, sizeof next, "p+%d", n);
    s3_say_list(out, keys, 1000, 5, n < 10 ? next : NULL);
}

static void no_prefix(s3_server *s, int n, const char *method, const char *target, const char *headers, const pst_buf *body, pst_buf *out)
{
    s3_say_list(out, (const char *[]){"a/b/1", s->arg}, 2, 5, NULL);
}

/* Callers read a key from behind its prefix on: one that is shorter would lead them out of it. */
static void test_s3_a_key_without_the_prefix_is_refused(void **state)
{
    static const char *const keys[] = {"x", "a/c/1", "a%2Fc", "a/b"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        s3_server server;
        pst_err err = {0};
        pst_s3_list list = {0};
        s3_server_start(&server, no_prefix, (void *)keys[i]);
        pst_s3 *s = client(&server, 0);
        assert_int_equal(pst_s3_list_keys(s, "a/b/", 0, &list, &err), PST_EPARSE);
        assert_non_null(strstr(err.text, "a/b/"));
        pst_s3_list_done(&list);
        pst_s3_close(s);
        s3_server_stop(&server);
    }
}

static void test_s3_ten_thousand_keys_come_in_pages(void **state)
{
    s3_server server;
    pst_err err = {0};
    pst_s3_list list = {0};
    s3_server_start(&server, pages, NULL);
    pst_s3 *s = client(&server, 0);
    assert_int_equal(pst_s3_list_keys(s, "a/b", 0, &list, &err), 0);
    assert_int_equal(list.n, 10000);
    assert_string_equal(list.at[9999].key, "a/bk09999");
    pst_s3_list_done(&list);
    server.requests = 0;
    assert_int_equal(pst_s3_list_keys(s, "a/b", 1500, &list, &err), PST_ELIMIT);
    pst_s3_list_done(&list);
    pst_s3_close(s);
    s3_server_stop(&server);
}

static int64_t asked_us;
static bool soon(void *arg)
{
    return pst_mono_us() > asked_us + 100000;
}

static void hangs(s3_server *s, int n, const char *method, const char *target, const char *headers, const pst_buf *body, pst_buf *out)
{
}

static void away(s3_server *s, int n, const char *method, const char *target, const char *headers, const pst_buf *body, pst_buf *out)
{
    s3_say(out, "503", "", "", 0, -1);
}

static void test_s3_a_stop_is_heard_within_a_second(void **state)
{
    s3_answer *const answers[] = {hangs, away};
    for (int i = 0; i < 2; i++) {
        s3_server server;
        pst_err err = {0};
        pst_s3 *s = NULL;
        s3_server_start(&server, answers[i], NULL);
        assert_int_equal(
            pst_s3_open(
                &(pst_s3_conf){.url = server.url, .user = "u", .password = "p", .bucket = "bucket", .patience_ms = 600000, .stopped = soon},
                &s, &err),
            0);
        asked_us = pst_mono_us();
        assert_int_equal(pst_s3_check(s, &err), PST_ESTOPPED);
        assert_true(pst_mono_us() - asked_us < 5000000); /* a second, on a machine that is not busy */
        pst_s3_close(s);
        s3_server_stop(&server);
    }
}

/* Keeps one object; says its digest as S3 does; the first PUT fails. */
typedef struct kept {
    char sum[80];
    size_t len;
    int puts;
    bool lies;
} kept;

static void keeps(s3_server *s, int n, const char *method, const char *target, const char *headers, const pst_buf *body, pst_buf *out)
{
    kept *k = s->arg;
    char meta[120], hex[65];
    snprintf(meta, sizeof meta, "x-amz-meta-sha256: %s\r\nETag: \"e\"\r\n", k->sum);
    if (!strcmp(method, "HEAD")) {
        s3_say(out, *k->sum ? "200" : "404", meta, "", 0, (long)k->len);
    } else if (!strcmp(method, "PUT") && ++k->puts == 1) {
        s3_say(out, "500", "", "", 0, -1);
    } else if (!strcmp(method, "PUT")) {
        pst_sha256_hex(body->data, body->len, hex);
        const char *said = strstr(headers, "x-amz-content-sha256: "), *note = strstr(headers, "x-amz-meta-sha256: ");
        MUST(said && !strncmp(said + 22, hex, 64));
        MUST(note && !strncmp(note + 19, hex, 64));
        memcpy(k->sum, hex, 65);
        k->len = body->len;
        s3_say(out, "200", "", "", 0, -1);
    } else {
        s3_say(out, "200", meta, k->lies ? "somethinG" : "something", 9, -1);
    }
}

static void test_s3_what_is_put_is_known_again_and_checked(void **state)
{
    s3_server server;
    pst_err err = {0};
    kept k = {0};
    bool sent = false;
    int64_t got;
    FILE *f = tmpfile(), *to = tmpfile();
    assert_int_equal(write(fileno(f), "something", 9), 9);
    s3_server_start(&server, keeps, &k);
    pst_s3 *s = client(&server, 5000);
    assert_int_equal(pst_s3_put(s, "k", fileno(f), &sent, &err), 0);
    assert_true(sent);
    assert_int_equal(k.puts, 2);
    assert_int_equal(pst_s3_put(s, "k", fileno(f), &sent, &err), 0);
    assert_false(sent);
    assert_int_equal(k.puts, 2);
    assert_int_equal(pst_s3_get(s, "k", fileno(to), 9, &got, &err), 0);
    k.lies = true;
    assert_int_equal(ftruncate(fileno(to), 0), 0);
    assert_int_equal(pst_s3_get(s, "k", fileno(to), 9, &got, &err), PST_EPARSE);
    err = (pst_err){0};
    assert_int_equal(pst_s3_get(s, "k", fileno(to), 8, &got, &err), PST_ELIMIT); /* longer than the list said */
    pst_s3_close(s);
    s3_server_stop(&server);
    fclose(f);
    fclose(to);
}

static void test_s3_full_disk_is_said(void **state)
{
    s3_server server;
    pst_err err = {0};
    kept k = {.sum = ""};
    FILE *full = fopen("/dev/full", "r+");
    if (!full)
        skip();
    s3_server_start(&server, keeps, &k);
    pst_s3 *s = client(&server, 60000);
    int64_t begin = pst_mono_us(), got;
    assert_true(pst_s3_get(s, "k", fileno(full), 9, &got, &err) < 0);
    assert_non_null(strstr(err.text, "space"));
    assert_true(pst_mono_us() - begin < 30000000); /* not tried again: it would be as full */
    pst_s3_close(s);
    s3_server_stop(&server);
    fclose(full);
}

static void test_s3_addresses_and_buckets_that_cannot_be(void **state)
{
    static const struct {
        const char *url, *bucket, *region, *user;
        int code;
    } rows[] = {{"http://h:1", "Tf_Data.x-1", "eu-west-1", "u", 0},
                {"https://h/", "b", "", "u", 0},
                {"ftp://h", "b", "", "u", PST_EINVAL},
                {"file:///etc/passwd", "b", "", "u", PST_EINVAL},
                {"http://u:p@h", "b", "", "u", PST_EINVAL},
                {"http://h/path", "b", "", "u", PST_EINVAL},
                {"http://h?x", "b", "", "u", PST_EINVAL},
                {"http://", "b", "", "u", PST_EINVAL},
                {"http://h\r\nX: y", "b", "", "u", PST_EINVAL},
                {NULL, "b", "", "u", PST_EINVAL},
                {"http://h", "a/b", "", "u", PST_EINVAL},
                {"http://h", "..", "", "u", PST_EINVAL},
                {"http://h", "b", "r:s3", "u", PST_EINVAL},
                {"http://h", "b", "", "", PST_EAUTH},
                {"http://h", "b", "", "u\r\nX: y", PST_EAUTH}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_s3 *s = NULL;
        pst_err err = {0};
        assert_int_equal(
            pst_s3_open(
                &(pst_s3_conf){
                    .url = rows[i].url, .bucket = rows[i].bucket, .region = rows[i].region, .user = rows[i].user, .password = SECRET},
                &s, &err),
            rows[i].code);
        assert_null(strstr(err.text, SECRET));
        pst_s3_close(s);
    }
    assert_true(pst_s3_allowed(NULL, "http://any") && pst_s3_allowed("", "http://any"));
    assert_true(pst_s3_allowed("a, S3.example:9000,*.my.org", "https://s3.example:9000/"));
    assert_true(pst_s3_allowed("a,*.my.org", "https://x.y.My.org:1"));
    assert_true(pst_s3_allowed("a", "http://a:99"));
    static const char *const others[] = {
        "http://b", "http://s3.example:9001", "http://my.org", "http://xmy.org", "http://a.evil", "http://aa", ""};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(pst_s3_allowed("a, S3.example:9000,*.my.org", others[i]));
}

static void test_s3_keys_that_are_no_files_are_named(void **state)
{
    static const char *const bad[] = {"", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/.", ".."};
    static const char *const good[] = {"a", "a/b", "..a", "a..", "with blank", "a+b=c%41", "\303\251", "folder/"};
    char longer[1100];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_non_null(pst_s3_key_problem(longer));
    longer[300] = 0;
    assert_non_null(pst_s3_key_problem(longer));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_non_null(pst_s3_key_problem(bad[i]));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_null(pst_s3_key_problem(good[i]));
}

typedef struct parting {
    int fd;
    const char *completes; /* what the answer to completion is */
    const char *status;
    bool changes, there;
    int heads, completions, aborts;
    char digest[80];
} parting;

/* A server of uploads in parts. */
static void parts(s3_server *s, int n, const char *method, const char *target, const char *headers, const pst_buf *body, pst_buf *out)
{
    parting *p = s->arg;
    const char *told = strcasestr(headers, "x-amz-meta-sha256: ");
    if (told)
        snprintf(p->digest, 65, "%s", told + strlen("x-amz-meta-sha256: "));
    if (!strcmp(method, "HEAD") && ++p->heads && p->there && p->completions) {
        char all[160];
        snprintf(all, sizeof all, "x-amz-meta-sha256: %s\r\n", p->digest);
        s3_say(out, "200", all, "", 0, PST_S3_PART_BYTES + 5);
    } else if (!strcmp(method, "HEAD")) {
        s3_say(out, "404", "", "", 0, -1);
    } else if (strstr(target, "uploads=")) {
        static const char begun[] = "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>";
        if (p->changes)
            MUST(pwrite(p->fd, "changed", 7, 100) == 7);
        s3_say(out, "200", "", begun, strlen(begun), -1);
    } else if (!strcmp(method, "PUT")) {
        s3_say(out, "200", "ETag: \"p\"\r\n", "", 0, -1);
    } else if (!strcmp(method, "POST")) {
        p->completions++;
        s3_say(out, p->status, "", p->completes, strlen(p->completes), -1);
    } else {
        p->aborts++;
        s3_say(out, "204", "", "", 0, -1);
    }
}

static void test_s3_an_upload_in_parts_counts_when_the_object_is_there(void **state)
{
    static const char done[] = "<CompleteMultipartUploadResult><ETag>x-2</ETag></CompleteMultipartUploadResult>";
    static const struct {
        const char *status, *completes;
        bool changes, there;
        int rc, aborts;
    } rows[] = {{"200", done, false, false, 0, 0},
                {"200", "", false, true, 0, 0},             /* says nothing, and did it */
                {"200", "", false, false, PST_EUNREACH, 1}, /* says nothing, and did nothing */
                {"404", "", false, true, 0, 0},             /* the first answer was lost */
                {"200", "<Error><Code>InternalError</Code></Error>", false, true, PST_EUNREACH, 1},
                {"200", done, true, true, PST_EAGAIN, 1}}; /* changed between its digest and its parts */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        FILE *f = tmpfile();
        parting p = {
            .fd = fileno(f), .status = rows[i].status, .completes = rows[i].completes, .changes = rows[i].changes, .there = rows[i].there};
        s3_server server;
        pst_err err = {0};
        bool sent = false;
        assert_int_equal(ftruncate(p.fd, PST_S3_PART_BYTES + 5), 0);
        s3_server_start(&server, parts, &p);
        pst_s3 *s = client(&server, 0);
        assert_int_equal(pst_s3_put(s, "x", p.fd, &sent, &err), rows[i].rc);
        assert_int_equal(p.aborts, rows[i].aborts);
        assert_int_equal(p.completions, rows[i].changes ? 0 : 1);
        assert_int_equal(sent, !rows[i].rc);
        pst_s3_close(s);
        s3_server_stop(&server);
        fclose(f);
    }
}

#define LIST(inner) "<?xml version='1.0'?><ListBucketResult>" inner "</ListBucketResult>"
#define OBJECT(key) "<Contents><Key>" key "</Key><Size>1</Size></Contents>"

static void test_s3_lists_are_read_as_they_are_written(void **state)
{
    static const struct {
        const char *xml, *key; /* NULL: refused */
    } rows[] = {{LIST(OBJECT("a&amp;&lt;&#x41;&#233;")), "a&<A\303\251"},
                {LIST("<EncodingType>url</EncodingType>" OBJECT("a+b%2Bc%2F%C3%A9")), "a b+c/\303\251"},
                {LIST(OBJECT("a+b%41") "<EncodingType>url</EncodingType>"), "a bA"},
                {LIST(OBJECT("a+b%41")), "a+b%41"},
                {"<s3:ListBucketResult xmlns:s3='x>y'><!-- x --><s3:Contents><s3:Size>1</s3:Size><s3:Key>k</s3:Key><new "
                 "a=\"/>\"/></s3:Contents></s3:ListBucketResult>",
                 "k"},
                {LIST("<EncodingType>url</EncodingType>" OBJECT("a%00b")), NULL},
                {LIST(OBJECT("a&#0;b")), NULL},
                {LIST(OBJECT("&xxe;")), NULL},
                {"<!DOCTYPE x [<!ENTITY y 'z'>]>" LIST(OBJECT("a")), NULL},
                {LIST("<Contents><Key>a</Key></Contents>"), NULL},
                {LIST("<Contents><Key>a</Key><Size>-1</Size></Contents>"), NULL},
                {LIST("<Contents><Key>a</Key><Size>9223372036854775808</Size></Contents>"), NULL},
                {LIST("<Contents><Size>1</Size></Contents>"), NULL},
                {"<ListBucketResult>" OBJECT("a"), NULL},
                {LIST("<a></b>"), NULL},
                {"<Error><Code>x</Code></Error>", NULL},
                {"", NULL},
                {"text", NULL},
                {"<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>", NULL},
                {LIST("<IsTruncated>true</IsTruncated>"), NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pst_s3_list list = {0};
        pst_err err = {0};
        char *next = NULL;
        int rc = s3_xml_list(rows[i].xml, strlen(rows[i].xml), &list, &next, &err);
        assert_int_equal(rc, rows[i].key ? 0 : PST_EPARSE);
        if (rows[i].key) {
            assert_int_equal(list.n, 1);
            assert_string_equal(list.at[0].key, rows[i].key);
        }
        pst_s3_list_done(&list);
        free(next);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_s3_a_body_that_breaks_off_goes_on),
                                       cmocka_unit_test(test_s3_an_upload_in_parts_counts_when_the_object_is_there),
                                       cmocka_unit_test(test_s3_refusals_say_why_and_show_no_secret),
                                       cmocka_unit_test(test_s3_a_key_without_the_prefix_is_refused),
                                       cmocka_unit_test(test_s3_ten_thousand_keys_come_in_pages),
                                       cmocka_unit_test(test_s3_a_stop_is_heard_within_a_second),
                                       cmocka_unit_test(test_s3_what_is_put_is_known_again_and_checked),
                                       cmocka_unit_test(test_s3_full_disk_is_said),
                                       cmocka_unit_test(test_s3_addresses_and_buckets_that_cannot_be),
                                       cmocka_unit_test(test_s3_keys_that_are_no_files_are_named),
                                       cmocka_unit_test(test_s3_lists_are_read_as_they_are_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
