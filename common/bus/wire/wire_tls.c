/* wire_tls.c - OpenSSL over a socket that does not block; the two calls on it are ours, since OpenSSL's own raise SIGPIPE where the broker has gone. The name that a broker's
 * certificate must be of is checked inside the handshake (X509_VERIFY_PARAM), so that no byte of ours goes to a stranger; a refusal has the word
 * "verif" in it, by which the bus knows that waiting does not help. Partial writes are allowed, and may come from another place next time: pieces are
 * queued in blocks that do not move, but the first may be all that is sent. */
#include "common/bus/wire/wire_tls.h"
#include "common/bus/wire/wire_ssl_lib.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct wire_tls_ctx {
    SSL_CTX *ssl;
    bool verify_peer, verify_host;
};

struct wire_tls {
    SSL *ssl;
    bool verify, broken;
    char why[240];
};

/* ---- certificates ---------------------------------------------------------------------------------------------------------------------- */

static int refuse(pst_err *err, const char *property, const char *what, const char *why)
{
    char text[160];
    unsigned long code = ERR_peek_last_error();
    if (!why && code) {
        ERR_error_string_n(code, text, sizeof text);
        why = ERR_reason_error_string(code);
        why = why ? why : text;
    }
    ERR_clear_error();
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "%s: %.200s%s%s", property, what, why ? ": " : "", why ? why : "");
}

/* "\n" in two characters is a line's end: PEM in a properties file stands in one line. */
static BIO *bio_of(const char *pem)
{
    char *text = pst_strdup(pem), *to = text;
    for (const char *p = text; *p;) {
        bool newline = p[0] == '\\' && p[1] == 'n';
        *to++ = newline ? '\n' : *p;
        p += newline ? 2 : 1;
    }
    *to = 0;
    BIO *bio = BIO_new(BIO_s_mem());
    if (bio)
        BIO_write(bio, text, (int)strlen(text));
    explicit_bzero(text, strlen(text));
    free(text);
    return bio;
}

static int no_password(char *to, int size, int writing, void *password)
{
    size_t n = password ? strlen(password) : 0;
    if (!n || n > (size_t)size)
        return 0; /* never ask a terminal */
    memcpy(to, password, n);
    return (int)n;
}

/* All certificates of a PEM text; how many. */
static int trust_pem(SSL_CTX *ssl, const char *pem)
{
    BIO *bio = bio_of(pem);
    int n = 0;
    for (X509 *x; bio && (x = PEM_read_bio_X509(bio, NULL, no_password, NULL)); X509_free(x))
        n += X509_STORE_add_cert(SSL_CTX_get_cert_store(ssl), x) == 1;
    BIO_free(bio);
    ERR_clear_error(); /* the end of the text is an error, too */
    return n;
}

static int trust(SSL_CTX *ssl, const wire_conf *c, pst_err *err)
{
    struct stat st;
    if (c->ca_pem)
        return trust_pem(ssl, c->ca_pem) ? 0 : refuse(err, "ssl.ca.pem", "holds no certificate", "-----BEGIN CERTIFICATE----- is expected");
    if (!c->ca_location || !strcmp(c->ca_location, "probe"))
        return SSL_CTX_set_default_verify_paths(ssl) == 1
                   ? 0
                   : refuse(err, "ssl.ca.location", "the system's certificates cannot be read", NULL);
    if (stat(c->ca_location, &st) < 0)
        return refuse(err, "ssl.ca.location", c->ca_location, strerror(errno));
    bool folder = S_ISDIR(st.st_mode);
    if (SSL_CTX_load_verify_locations(ssl, folder ? NULL : c->ca_location, folder ? c->ca_location : NULL) != 1)
        return refuse(err, "ssl.ca.location", c->ca_location, NULL);
    return 0;
}

static int trust_less(SSL_CTX *ssl, const wire_conf *c, pst_err *err)
{
    if (!c->crl_location)
        return 0;
    if (SSL_CTX_load_verify_locations(ssl, c->crl_location, NULL) != 1)
        return refuse(err, "ssl.crl.location", c->crl_location, NULL);
    X509_STORE_set_flags(SSL_CTX_get_cert_store(ssl), X509_V_FLAG_CRL_CHECK);
    return 0;
}

static int own_certificate(SSL_CTX *ssl, const wire_conf *c, pst_err *err)
{
    if (c->certificate_location && SSL_CTX_use_certificate_chain_file(ssl, c->certificate_location) != 1)
        return refuse(err, "ssl.certificate.location", c->certificate_location, NULL);
    if (!c->certificate_pem)
        return 0;
    BIO *bio = bio_of(c->certificate_pem);
    X509 *x = bio ? PEM_read_bio_X509(bio, NULL, no_password, NULL) : NULL;
    bool ok = x && SSL_CTX_use_certificate(ssl, x) == 1;
    X509_free(x);
    while (ok && (x = PEM_read_bio_X509(bio, NULL, no_password, NULL))) {
        if (SSL_CTX_add0_chain_cert(ssl, x) != 1) { /* taken where it worked */
            X509_free(x);
            ok = false;
        }
    }
    BIO_free(bio);
    if (!ok)
        return refuse(err, "ssl.certificate.pem", "holds no certificate that can be used", NULL);
    ERR_clear_error();
    return 0;
}

static int own_key(SSL_CTX *ssl, const wire_conf *c, pst_err *err)
{
    SSL_CTX_set_default_passwd_cb(ssl, no_password);
    SSL_CTX_set_default_passwd_cb_userdata(ssl, c->key_password);
    if (c->key_location && SSL_CTX_use_PrivateKey_file(ssl, c->key_location, SSL_FILETYPE_PEM) != 1)
        return refuse(err, "ssl.key.location", c->key_location, NULL);
    if (c->key_pem) {
        BIO *bio = bio_of(c->key_pem);
        EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_password, c->key_password) : NULL;
        bool ok = key && SSL_CTX_use_PrivateKey(ssl, key) == 1;
        EVP_PKEY_free(key);
        BIO_free(bio);
        if (!ok)
            return refuse(err, "ssl.key.pem", "holds no key that can be used (ssl.key.password?)", "");
    }
    if ((c->key_location || c->key_pem) && SSL_CTX_check_private_key(ssl) != 1)
        return refuse(err, "ssl.key.location", "the key is not that of ssl.certificate.location", NULL);
    return 0;
}

static int own_store(SSL_CTX *ssl, const wire_conf *c, pst_err *err)
{
    EVP_PKEY *key = NULL;
    X509 *x = NULL;
    STACK_OF(X509) *more = NULL;
    if (!c->keystore_location)
        return 0;
    BIO *bio = BIO_new_file(c->keystore_location, "rb");
    PKCS12 *p12 = bio ? d2i_PKCS12_bio(bio, NULL) : NULL;
    bool ok = p12 && PKCS12_parse(p12, c->keystore_password ? c->keystore_password : "", &key, &x, &more) == 1 && x && key &&
              SSL_CTX_use_cert_and_key(ssl, x, key, more, 1) == 1;
    PKCS12_free(p12);
    BIO_free(bio);
    EVP_PKEY_free(key);
    X509_free(x);
    while (more && OPENSSL_sk_num((const OPENSSL_STACK *)more) > 0)
        X509_free((X509 *)OPENSSL_sk_pop((OPENSSL_STACK *)more));
    OPENSSL_sk_free((OPENSSL_STACK *)more);
    return ok ? 0 : refuse(err, "ssl.keystore.location", c->keystore_location, NULL);
}

/* Names of TLS 1.3's suites and of older ones stand in one property, and OpenSSL takes each sort elsewhere: where there are some of 1.2 and the others were
 * taken, all of 1.2 would still be allowed. Of a sort that is not named nothing is: whoever names those of 1.3 alone has no 1.2. Those of 1.2 alone leave
 * 1.3 as it is, as librdkafka does. */
static bool limit_suites(SSL_CTX *ssl, const char *names)
{
    pst_buf old = {0}, new = {0};
    for (const char *at = names; *at;) {
        size_t len = strcspn(at, ":, ");
        pst_buf *to = !strncmp(at, "TLS_", 4) ? &new : &old;
        if (len && to->len)
            pst_buf_add(to, ":", 1);
        pst_buf_add(to, at, len);
        at += len + (at[len] != 0);
    }
    bool ok = old.len || new.len;
    if (new.len)
        ok = SSL_CTX_set_ciphersuites(ssl, new.data) == 1;
    if (ok && old.len)
        ok = SSL_CTX_set_cipher_list(ssl, old.data) == 1;
    else if (ok)
        SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION);
    pst_buf_done(&old);
    pst_buf_done(&new);
    return ok;
}

static int choose(SSL_CTX *ssl, const wire_conf *c, pst_err *err)
{
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF); /* lengths are Kafka's own: a cut is noticed there */
    if (c->cipher_suites && !limit_suites(ssl, c->cipher_suites))
        return refuse(err, "ssl.cipher.suites", c->cipher_suites, NULL);
    if (c->curves && SSL_CTX_set1_curves_list(ssl, c->curves) != 1)
        return refuse(err, "ssl.curves.list", c->curves, NULL);
    if (c->sigalgs && SSL_CTX_set1_sigalgs_list(ssl, c->sigalgs) != 1)
        return refuse(err, "ssl.sigalgs.list", c->sigalgs, NULL);
    ERR_clear_error();
    return 0;
}

int wire_tls_ctx_new(const wire_conf *c, wire_tls_ctx **ret, pst_err *err)
{
    int rc = wire_ssl_lib_open(err);
    if (rc < 0)
        return rc;
    wire_tls_ctx *ctx = pst_alloc(sizeof *ctx);
    ctx->verify_peer = c->verify_peer;
    ctx->verify_host = c->verify_host && c->verify_peer;
    ctx->ssl = SSL_CTX_new(TLS_client_method());
    rc = ctx->ssl ? choose(ctx->ssl, c, err) : refuse(err, "TLS", "OpenSSL gives no context", NULL);
    if (rc >= 0 && ctx->verify_peer)
        rc = trust(ctx->ssl, c, err);
    if (rc >= 0)
        rc = trust_less(ctx->ssl, c, err);
    if (rc >= 0)
        rc = own_certificate(ctx->ssl, c, err);
    if (rc >= 0)
        rc = own_key(ctx->ssl, c, err);
    if (rc >= 0)
        rc = own_store(ctx->ssl, c, err);
    if (rc < 0) {
        wire_tls_ctx_free(ctx);
        return rc;
    }
    SSL_CTX_set_verify(ctx->ssl, ctx->verify_peer ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    *ret = ctx;
    return 0;
}

void wire_tls_ctx_free(wire_tls_ctx *ctx)
{
    if (!ctx)
        return;
    SSL_CTX_free(ctx->ssl);
    free(ctx);
}

/* ---- the socket ----------------------------------------------------------------------------------------------------------------------------- */

static BIO_METHOD *socket_method; /* made once, kept */
static pthread_once_t socket_once = PTHREAD_ONCE_INIT;

static int socket_of(BIO *b)
{
    return (int)(intptr_t)BIO_get_data(b);
}

static int passing(BIO *b, ssize_t n, int flag)
{
    BIO_clear_flags(b, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        BIO_set_flags(b, flag | BIO_FLAGS_SHOULD_RETRY);
    return (int)n;
}

static int socket_write(BIO *b, const char *from, int n)
{
    return passing(b, send(socket_of(b), from, (size_t)n, MSG_NOSIGNAL), BIO_FLAGS_WRITE);
}

static int socket_read(BIO *b, char *to, int n)
{
    ssize_t got = recv(socket_of(b), to, (size_t)n, 0);
    if (!got)
        BIO_set_flags(b, BIO_FLAGS_IN_EOF);
    return passing(b, got, BIO_FLAGS_READ);
}

static long socket_ctrl(BIO *b, int what, long n, void *p)
{
    if (what == BIO_CTRL_EOF)
        return BIO_test_flags(b, BIO_FLAGS_IN_EOF) != 0;
    return what == BIO_CTRL_FLUSH; /* nothing is held back here; for all else no is an answer */
}

static void make_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "penstock socket");
    if (m && BIO_meth_set_write(m, socket_write) && BIO_meth_set_read(m, socket_read) && BIO_meth_set_ctrl(m, socket_ctrl))
        socket_method = m;
}

static bool give_socket(SSL *ssl, int fd)
{
    pthread_once(&socket_once, make_method);
    BIO *b = socket_method ? BIO_new(socket_method) : NULL;
    if (!b)
        return false;
    BIO_set_data(b, (void *)(intptr_t)fd);
    BIO_set_init(b, 1);
    SSL_set_bio(ssl, b, b);
    return true;
}

/* ---- connections -------------------------------------------------------------------------------------------------------------------------- */

static bool expect_host(SSL *ssl, const char *host, bool verify)
{
    struct in6_addr any;
    bool address = inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1;
    if (!address && SSL_set_tlsext_host_name(ssl, host) != 1)
        return false;
    if (!verify)
        return true;
    X509_VERIFY_PARAM *p = SSL_get0_param(ssl);
    X509_VERIFY_PARAM_set_hostflags(p, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return address ? X509_VERIFY_PARAM_set1_ip_asc(p, host) == 1 : X509_VERIFY_PARAM_set1_host(p, host, 0) == 1;
}

wire_tls *wire_tls_new(wire_tls_ctx *ctx, int fd, const char *host)
{
    SSL *ssl = SSL_new(ctx->ssl);
    if (!ssl || !give_socket(ssl, fd) || !expect_host(ssl, host, ctx->verify_host)) {
        SSL_free(ssl);
        ERR_clear_error();
        return NULL;
    }
    wire_tls *t = pst_alloc(sizeof *t);
    t->ssl = ssl;
    t->verify = ctx->verify_peer;
    SSL_set_connect_state(ssl);
    return t;
}

/* What an error of OpenSSL's means. Its queue is emptied: it belongs to the thread, and what is left in it would be taken for the next call's. */
static int outcome(wire_tls *t, int rc, int errnum)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    int e = SSL_get_error(t->ssl, rc);
    int result = e == SSL_ERROR_WANT_READ     ? WIRE_IO_READ
                 : e == SSL_ERROR_WANT_WRITE  ? WIRE_IO_WRITE
                 : e == SSL_ERROR_ZERO_RETURN ? WIRE_IO_END
                                              : WIRE_IO_FAULT;
    if (result == WIRE_IO_END || result == WIRE_IO_FAULT) {
        long verdict = SSL_get_verify_result(t->ssl);
        t->broken = true;
        if (t->verify && verdict != X509_V_OK && !SSL_is_init_finished(t->ssl))
            snprintf(t->why, sizeof t->why, "the broker's certificate cannot be verified: %s", X509_verify_cert_error_string(verdict));
        else if (reason)
            snprintf(t->why, sizeof t->why, "TLS: %s%s", reason,
                     strstr(reason, "wrong version number") ? " (does this listener speak TLS?)" : "");
        else if (e == SSL_ERROR_SYSCALL && errnum)
            snprintf(t->why, sizeof t->why, "TLS: %s", strerror(errnum));
        else
            snprintf(t->why, sizeof t->why, "TLS: the broker closed the connection");
    }
    ERR_clear_error();
    return result;
}

int wire_tls_hands(wire_tls *t)
{
    ERR_clear_error();
    errno = 0;
    int rc = SSL_do_handshake(t->ssl);
    return rc == 1 ? 1 : outcome(t, rc, errno);
}

static int to_int(size_t n)
{
    return n > INT_MAX ? INT_MAX : (int)n;
}

ssize_t wire_tls_read(wire_tls *t, void *to, size_t n)
{
    ERR_clear_error();
    errno = 0;
    int rc = SSL_read(t->ssl, to, to_int(n));
    return rc > 0 ? rc : outcome(t, rc, errno);
}

ssize_t wire_tls_write(wire_tls *t, const void *from, size_t n)
{
    ERR_clear_error();
    errno = 0;
    int rc = SSL_write(t->ssl, from, to_int(n));
    return rc > 0 ? rc : outcome(t, rc, errno);
}

const char *wire_tls_why(const wire_tls *t)
{
    return t->why;
}

const char *wire_tls_what(const wire_tls *t)
{
    return SSL_CIPHER_get_name(SSL_get_current_cipher(t->ssl));
}

void wire_tls_free(wire_tls *t)
{
    if (!t)
        return;
    if (!t->broken && SSL_is_init_finished(t->ssl))
        SSL_shutdown(t->ssl);
    ERR_clear_error();
    SSL_free(t->ssl);
    free(t);
}
