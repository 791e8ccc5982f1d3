/* test_http_tls.c - the HTTP server under TLS: a client of OpenSSL's own, certificates made here, and who does not keep to it. */
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/stop.h"
#include "common/loop/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { NET_MS = 60000, LARGE = 8 << 20 };

static char dir[] = "/tmp/penstock-tls-XXXXXX";
static char cert_path[64], key_path[64];
static pst_loop *loop;
static pst_http *http;
static pthread_t thread;
static atomic_int handled, closed, dropped, kept_done;
static pst_http_stream *stream;
static pst_timer *timer;
static pst_http_req *kept;

/* ---- certificates ---------------------------------------------------------------------------------------------------------- */

static void write_cert(const char *path, EVP_PKEY *key, long serial)
{
    X509 *x = X509_new();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), serial);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 30L * 86400);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    X509_set_pubkey(x, key);
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    FILE *f = fopen(path, "w");
    assert_int_equal(PEM_write_X509(f, x), 1);
    fclose(f);
    X509_free(x);
}

static void write_key(const char *path, EVP_PKEY *key, const char *password)
{
    FILE *f = fopen(path, "w");
    assert_int_equal(fchmod(fileno(f), 0600), 0);
    assert_int_equal(PEM_write_PrivateKey(f, key, password ? EVP_aes_256_cbc() : NULL, NULL, 0, NULL, (void *)(uintptr_t)password), 1);
    fclose(f);
}

static void make_pair(long serial)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    write_key(key_path, key, NULL);
    write_cert(cert_path, key, serial);
    EVP_PKEY_free(key);
}

/* ---- the server ------------------------------------------------------------------------------------------------------------ */

static void hello(void *arg, pst_http_req *r)
{
    handled++;
    pst_http_reply_text(r, 200, "hello %zu", pst_http_body(r).len);
}

static void large(void *arg, pst_http_req *r)
{
    char *data = calloc(1, LARGE);
    pst_http_reply(r, 200, "application/octet-stream", data, LARGE);
    free(data);
}

static void on_close(void *arg)
{
    stream = NULL;
    closed++;
}

static void flood(void *arg)
{
    char line[1000];
    memset(line, 'f', sizeof line);
    while (stream && pst_http_sse_send(stream, NULL, NULL, line, sizeof line) == 0)
        ;
    dropped++;
}

static void events(void *arg, pst_http_req *r)
{
    bool floods = pst_http_query(r, "flood");
    stream = pst_http_sse_open(r, on_close, NULL);
    if (stream && floods)
        timer = pst_timer_new(loop, 20000, 0, flood, NULL);
    else if (stream)
        pst_http_sse_send(stream, "1", "greeting", "there", 5);
}

static void keep(void *arg, pst_http_req *r)
{
    kept = r;
    handled++;
}

static void reply_kept(void *arg)
{
    pst_http_reply_text(kept, 200, "late");
    kept = NULL;
    kept_done++;
}

static const pst_http_route routes[] = {{"GET", "/hello", hello, 0, 0, NULL},
                                        {"POST", "/hello", hello, 0, 0, NULL},
                                        {"GET", "/large", large, 0, 0, NULL},
                                        {"GET", "/events", events, 0, 0, NULL},
                                        {"GET", "/keep", keep, 0, 0, NULL}};
static const char *const hosts[] = {"box.example", NULL};

static void *run(void *arg)
{
    pst_loop_run(loop);
    return NULL;
}

static pst_http_conf conf_of(const char *listen)
{
    return (pst_http_conf){.listen = listen,
                           .tls_cert = cert_path,
                           .tls_key = key_path,
                           .hosts = hosts,
                           .header_timeout_ms = 700,
                           .write_timeout_ms = 700,
                           .stream_backlog_max = 200000,
                           .connections_per_peer_max = 8};
}

static int start(const char *listen)
{
    pst_err err = {0};
    pst_http_conf conf = conf_of(listen);
    handled = closed = dropped = kept_done = 0;
    make_pair(1);
    assert_int_equal(pst_loop_new(&loop, &err), 0);
    if (pst_http_new(loop, &conf, &http, &err) < 0)
        fail_msg("%s", err.text);
    pst_http_add_routes(http, routes, sizeof routes / sizeof *routes, NULL);
    return pthread_create(&thread, NULL, run, NULL);
}

static int set_up(void **state)
{
    return start("127.0.0.1");
}

static int tear_down(void **state)
{
    pst_loop_stop(loop);
    pthread_join(thread, NULL);
    pst_http_free(http);
    pst_timer_free(timer);
    timer = NULL;
    if (kept)
        reply_kept(NULL);
    pst_loop_free(loop);
    return 0;
}

/* ---- the client ------------------------------------------------------------------------------------------------------------ */

typedef struct client {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
} client;

static int dial(void)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)pst_http_port(http)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static bool meet(client *c, int version)
{
    *c = (client){.ctx = SSL_CTX_new(TLS_client_method()), .fd = dial()};
    SSL_CTX_set_security_level(c->ctx, 0); /* what is refused is refused by the server */
    if (version) {
        SSL_CTX_set_min_proto_version(c->ctx, version);
        SSL_CTX_set_max_proto_version(c->ctx, version);
    }
    SSL_CTX_set_alpn_protos(c->ctx, (const unsigned char *)"\x02h2\x08http/1.1", 12);
    c->ssl = SSL_new(c->ctx);
    SSL_set_fd(c->ssl, c->fd);
    return SSL_connect(c->ssl) == 1;
}

static void part(client *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->ctx);
    close(c->fd);
}

static void say(client *c, const char *text)
{
    assert_int_equal(SSL_write(c->ssl, text, (int)strlen(text)), (int)strlen(text));
}

/* All that comes until the other side says that it was all; ret_whole: it did. */
static size_t hear(client *c, pst_buf *b, bool *ret_whole)
{
    char piece[16384];
    int n;
    while ((n = SSL_read(c->ssl, piece, sizeof piece)) > 0)
        pst_buf_add(b, piece, (size_t)n);
    *ret_whole = SSL_get_error(c->ssl, n) == SSL_ERROR_ZERO_RETURN;
    return b->len;
}

static char *talk(const char *request, int version)
{
    client c;
    pst_buf b = {0};
    bool whole;
    assert_true(meet(&c, version));
    say(&c, request);
    hear(&c, &b, &whole);
    assert_true(whole);
    part(&c);
    return pst_buf_steal(&b);
}

static bool closes(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};
    char rest[256];
    while (poll(&p, 1, NET_MS) > 0)
        if (recv(fd, rest, sizeof rest, 0) <= 0)
            return true;
    return false;
}

static void await(atomic_int *what, int n)
{
    for (int i = 0; i < NET_MS && *what < n; i++)
        pst_sleep_ms(1);
    assert_int_equal(*what, n);
}

static uint64_t counts[5];
static atomic_int counted;

static void count(void *arg)
{
    pst_http_counts(http, counts);
    counted++;
}

static void await_nobody(void)
{
    for (int64_t until = pst_mono_us() + NET_MS * 1000LL; pst_mono_us() < until; pst_sleep_ms(1)) {
        int before = counted;
        assert_int_equal(pst_loop_post(loop, count, NULL), 0);
        await(&counted, before + 1);
        if (!counts[2] && !counts[3])
            return;
    }
    fail_msg("%d connections, %d streams are left", (int)counts[2], (int)counts[3]);
}

#define LAST "Host: localhost\r\nConnection: close\r\n\r\n"

/* ---- cases ----------------------------------------------------------------------------------------------------------------- */

static void test_http_tls_serves_1_2_and_1_3(void **state)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (size_t i = 0; i < 2; i++) {
        char *got = talk(
            "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /hello HTTP/1.1\r\nContent-Length: 5\r\nContent-Type: a/b\r\n" LAST "12345",
            versions[i]);
        assert_non_null(strstr(got, "hello 0"));
        assert_non_null(strstr(got, "hello 5"));
        assert_null(strstr(got, "Strict-Transport-Security")); /* of localhost, and of a server on loopback */
        free(got);
    }
    assert_true(pst_http_is_tls(http));
    assert_true(!strncmp(pst_http_url(http), "https://127.0.0.1:", 18));
}

static void test_http_tls_refuses_older(void **state)
{
    client c;
    assert_false(meet(&c, TLS1_1_VERSION));
    part(&c);
    assert_true(meet(&c, 0));
    assert_int_equal(SSL_version(c.ssl), TLS1_3_VERSION);
    const unsigned char *protocol;
    unsigned len;
    SSL_get0_alpn_selected(c.ssl, &protocol, &len);
    assert_int_equal(len, 8);
    assert_memory_equal(protocol, "http/1.1", 8);
    part(&c);
    await_nobody();
}

static void test_http_tls_large_answer(void **state)
{
    char *got = talk("GET /large HTTP/1.1\r\n" LAST, 0);
    assert_non_null(strstr(got, "Content-Length: 8388608"));
    free(got);
    client c;
    pst_buf b = {0};
    bool whole;
    assert_true(meet(&c, 0));
    say(&c, "GET /large HTTP/1.1\r\n" LAST);
    assert_true(hear(&c, &b, &whole) > LARGE && whole);
    pst_buf_done(&b);
    part(&c);
}

static void test_http_tls_plain_http_is_told(void **state)
{
    int fd = dial();
    const char *request = "GET /hello HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n";
    char got[2048];
    size_t n = 0;
    assert_int_equal(send(fd, request, strlen(request), 0), (ssize_t)strlen(request));
    for (ssize_t k; n < sizeof got - 1 && (k = recv(fd, got + n, sizeof got - 1 - n, 0)) > 0;)
        n += (size_t)k;
    got[n] = 0;
    assert_true(!strncmp(got, "HTTP/1.1 400 ", 13));
    assert_non_null(strstr(got, "this port speaks TLS: ask for https://"));
    assert_int_equal(handled, 0);
    close(fd);
    fd = dial(); /* what is neither */
    assert_int_equal(send(fd, "\x03\x01nonsense\r\n\r\n", 14, 0), 14);
    assert_true(closes(fd));
    close(fd);
    await_nobody();
}

/* Each gets as long as a head, from the moment it came, however lively it trickles in. */
static void test_http_tls_slow_handshakes_end(void **state)
{
    int silent = dial(), begun = dial(), trickle = dial();
    send(begun, "\x16\x03\x01\x02", 4, 0);
    for (int i = 0; i < NET_MS / 20; i++) {
        struct pollfd p = {trickle, POLLIN, 0};
        if (send(trickle,
                 i == 1   ? "\x03"
                 : i == 2 ? "\x01"
                 : i == 3 ? "\x02"
                 : i == 4 ? "\x00"
                 : i == 5 ? "\x01"
                          : "\x16",
                 1, MSG_NOSIGNAL) < 0 ||
            (poll(&p, 1, 20) > 0 && closes(trickle)))
            break;
    }
    assert_true(closes(silent));
    assert_true(closes(begun));
    close(silent);
    close(begun);
    close(trickle);
    await_nobody();
    char *got = talk("GET /hello HTTP/1.1\r\n" LAST, 0);
    assert_non_null(strstr(got, "hello 0"));
    free(got);
}

static long serial_seen(void)
{
    client c;
    assert_true(meet(&c, 0));
    X509 *x = SSL_get1_peer_certificate(c.ssl);
    long serial = ASN1_INTEGER_get(X509_get_serialNumber(x));
    X509_free(x);
    part(&c);
    return serial;
}

static void test_http_tls_takes_a_renewed_pair(void **state)
{
    assert_int_equal(serial_seen(), 1);
    FILE *f = fopen(cert_path, "w"); /* broken: the one of before serves on */
    fputs("-----BEGIN CERTIFICATE-----\nhalf of", f);
    fclose(f);
    pst_sleep_ms(1300);
    assert_int_equal(serial_seen(), 1);
    make_pair(2);
    for (int i = 0; i < NET_MS / 50 && serial_seen() != 2; i++)
        pst_sleep_ms(50);
    assert_int_equal(serial_seen(), 2);
}

static void refused(const char *words)
{
    pst_loop *l;
    pst_http *h;
    pst_err err = {0};
    pst_http_conf conf = conf_of("127.0.0.1");
    assert_int_equal(pst_loop_new(&l, &err), 0);
    assert_true(pst_http_new(l, &conf, &h, &err) < 0);
    if (!strstr(err.text, words) || err.cls != PST_CLASS_FATAL)
        fail_msg("wanted \"%s\", got \"%s\"", words, err.text);
    pst_loop_free(l);
}

static void test_http_tls_refuses_files(void **state)
{
    make_pair(1);
    chmod(key_path, 0644);
    refused("chmod 600");
    chmod(key_path, 0666);
    refused("chmod go-w");
    EVP_PKEY *other = EVP_EC_gen("P-256");
    write_key(key_path, other, NULL);
    chmod(key_path, 0600);
    refused("fits the certificate");
    make_pair(1);
    write_key(key_path, other, "a password");
    refused("without a password");
    EVP_PKEY_free(other);
    make_pair(1);
    assert_int_equal(truncate(cert_path, 0), 0);
    refused("no certificate in PEM");
    make_pair(1);
    unlink(key_path);
    refused("--tls-key");
    pst_loop *l;
    pst_http *h;
    pst_err err = {0};
    assert_int_equal(pst_loop_new(&l, &err), 0);
    assert_true(pst_http_new(l, &(pst_http_conf){.tls_cert = cert_path}, &h, &err) < 0);
    assert_non_null(strstr(err.text, "go together"));
    pst_loop_free(l);
}

static void test_http_tls_streams(void **state)
{
    client c;
    char got[2048];
    size_t n = 0;
    assert_true(meet(&c, 0));
    say(&c, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    got[0] = 0;
    while (!strstr(got, "data: there")) {
        int k = SSL_read(c.ssl, got + n, (int)(sizeof got - 1 - n));
        assert_true(k > 0);
        n += (size_t)k;
        got[n] = 0;
    }
    part(&c); /* it leaves without a word */
    await(&closed, 1);
    await_nobody();
}

/* A client that takes nothing is dropped, whether its stream is full or its answer stuck. */
static void test_http_tls_slow_clients_are_dropped(void **state)
{
    client c, d;
    assert_true(meet(&c, 0));
    say(&c, "GET /events?flood HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await(&dropped, 1);
    assert_true(meet(&d, 0));
    say(&d, "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await_nobody();
    assert_int_equal(closed, 1);
    part(&c);
    part(&d);
}

static void test_http_tls_client_that_has_said_all(void **state)
{
    client c;
    assert_true(meet(&c, 0));
    say(&c, "GET /keep HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await(&handled, 1);
    SSL_shutdown(c.ssl);
    await_nobody();
    pst_loop_post(loop, reply_kept, NULL); /* to nobody */
    await(&kept_done, 1);
    part(&c);
}

static int set_up_wide(void **state)
{
    return start("0.0.0.0");
}

static void test_http_tls_names_are_kept_to_it(void **state)
{
    char *got = talk("GET /hello HTTP/1.1\r\nHost: box.example\r\nConnection: close\r\n\r\n", 0);
    assert_non_null(strstr(got, "Strict-Transport-Security: max-age=31536000\r\n"));
    free(got);
    got = talk("GET /hello HTTP/1.1\r\n" LAST, 0);
    assert_null(strstr(got, "Strict-Transport-Security"));
    free(got);
}

static int make_folder(void **state)
{
    pst_stop_install(); /* as every verb does: OpenSSL writes to who has left, too (SIGPIPE) */
    assert_non_null(mkdtemp(dir));
    snprintf(cert_path, sizeof cert_path, "%s/cert.pem", dir);
    snprintf(key_path, sizeof key_path, "%s/key.pem", dir);
    return 0;
}

static int remove_folder(void **state)
{
    unlink(cert_path);
    unlink(key_path);
    return rmdir(dir);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_http_tls_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(serves_1_2_and_1_3),
        T(refuses_older),
        T(large_answer),
        T(plain_http_is_told),
        T(slow_handshakes_end),
        T(takes_a_renewed_pair),
        cmocka_unit_test(test_http_tls_refuses_files),
        T(streams),
        T(slow_clients_are_dropped),
        T(client_that_has_said_all),
        cmocka_unit_test_setup_teardown(test_http_tls_names_are_kept_to_it, set_up_wide, tear_down),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
