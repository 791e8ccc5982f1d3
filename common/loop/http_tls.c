/* http_tls.c - TLS by OpenSSL, through libevent's bufferevents for it. Both are opened when a server is given a certificate (library.h), so that the many processes that
 * have none do not carry them. A certificate lives for weeks, a gateway for months: the pair is looked at every second and read whole, and a context that has been made
 * of both takes the place of the one before; a renewal that writes one file after the other is refused in between (they do not fit) and taken when it is whole.
 * What is not checked of a certificate: for whom it is, and who made it. That is its clients' to ask; that it has ended is said, because nobody would see why clients leave. */
#include "common/loop/http_tls.h"

#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/loop/loop_priv.h"
#include "common/loop/evssl_lib.h"
#include "common/loop/ssl_lib.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOK_US = 1000000, SOON_DAYS = 14 };

struct http_tls {
    struct event_base *base;
    char *name, *cert, *key, *why; /* why: said of the files as they are */
    SSL_CTX *ctx;
    struct stat seen[2]; /* of what ctx was made of */
    pst_timer *look;
};

bool http_tls_is_hello(unsigned char first)
{
    return first == 0x16; /* RFC 8446, 5.1: ContentType handshake */
}

/* ---- the files ---- */

static const char *reason(void)
{
    unsigned long code = ERR_get_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return text ? text : "no reason given";
}

static int refuse(pst_err *err, const char *path, const char *why)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "tls", 0, "%s: %s", path, why);
}

/* A key is its owner's alone; of root's a group may read it, as Debian's ssl-cert does. */
static int check_key(const char *path, const struct stat *st, pst_err *err)
{
    unsigned open_to = st->st_uid == 0 ? 027 : 077;
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return refuse(err, path, "the key belongs to another user; it is to be this account's or root's");
    if (st->st_mode & open_to)
        return refuse(err, path, "the key can be read or written by others; chmod 600 it");
    return 0;
}

static int look_at(const char *path, const char *option, struct stat *ret_st, pst_err *err)
{
    if (stat(path, ret_st) < 0)
        return pst_err_sys(err, errno, "%s %s cannot be read", option, path);
    if (!S_ISREG(ret_st->st_mode))
        return refuse(err, path, "this is no file");
    if (ret_st->st_mode & 022)
        return refuse(err, path, "others may write this file; chmod go-w it");
    return 0;
}

/* A key that wants a password is refused below: nobody is there to be asked. */
static int no_password(char *buf, int size, int rwflag, void *arg)
{
    return 0;
}

static int pick_http(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in, unsigned in_len, void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *picked = NULL;
    if (SSL_select_next_proto(&picked, out_len, ours, sizeof ours - 1, in, in_len) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK; /* as if it had not asked: it speaks what it likes, and learns */
    *out = picked;
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *context(void)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx)
        return NULL;
    SSL_CTX_ctrl(ctx, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, NULL);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_ctrl(ctx, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL); /* sessions are the clients' to keep (tickets) */
    SSL_CTX_ctrl(ctx, SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS, NULL);          /* hundreds of pages are quiet most of the time */
    SSL_CTX_set_alpn_select_cb(ctx, pick_http, NULL);
    SSL_CTX_set_default_passwd_cb(ctx, no_password);
    if (SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1) { /* of TLS 1.2; those of 1.3 are all right */
        SSL_CTX_free(ctx);
        return NULL;
    }
    return ctx;
}

/* A certificate that has ended, or soon will, is served and said. */
static void say_end(const http_tls *t, const SSL_CTX *ctx)
{
    const X509 *x = SSL_CTX_get0_certificate(ctx);
    int days = 0, seconds = 0;
    if (!x || !ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(x)) || days >= SOON_DAYS)
        return;
    if (days < 0 || seconds < 0)
        pst_log(PST_LOG_WARN, t->name, "event=certificate_ended file=%s days=%d", t->cert, -days);
    else
        pst_log(PST_LOG_WARN, t->name, "event=certificate_ends_soon file=%s days=%d", t->cert, days);
}

static int load(const http_tls *t, struct stat ret_seen[2], SSL_CTX **ret_ctx, pst_err *err)
{
    int rc = look_at(t->cert, "--tls-cert", &ret_seen[0], err);
    if (!rc)
        rc = look_at(t->key, "--tls-key", &ret_seen[1], err);
    if (!rc)
        rc = check_key(t->key, &ret_seen[1], err);
    if (rc < 0)
        return rc;
    ERR_clear_error();
    SSL_CTX *ctx = context();
    pst_buf why = {0};
    if (!ctx)
        rc = pst_err_set(err, PST_ENOMEM, PST_CLASS_FATAL, "tls", 0, "OpenSSL made no context: %s", reason());
    else if (SSL_CTX_use_certificate_chain_file(ctx, t->cert) != 1)
        pst_buf_printf(&why, "no certificate in PEM can be read there (%s)", reason());
    else if (SSL_CTX_use_PrivateKey_file(ctx, t->key, SSL_FILETYPE_PEM) != 1)
        pst_buf_printf(&why, "no key without a password, in PEM, that fits the certificate %s can be read there (%s)", t->cert, reason());
    else if (SSL_CTX_check_private_key(ctx) != 1)
        pst_buf_printf(&why, "this is not the key of the certificate %s (%s)", t->cert, reason());
    if (why.len)
        rc = refuse(err, strstr(why.data, "no certificate") == why.data ? t->cert : t->key, why.data);
    pst_buf_done(&why);
    if (rc < 0)
        SSL_CTX_free(ctx);
    else
        *ret_ctx = ctx;
    return rc;
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_mode == b->st_mode && a->st_uid == b->st_uid;
}

static bool changed(const http_tls *t)
{
    struct stat cert, key;
    return stat(t->cert, &cert) < 0 || stat(t->key, &key) < 0 || !same(&cert, &t->seen[0]) || !same(&key, &t->seen[1]);
}

static void look(void *arg)
{
    http_tls *t = arg;
    struct stat seen[2];
    SSL_CTX *ctx = NULL;
    pst_err err = {0};
    if (!changed(t))
        return;
    if (load(t, seen, &ctx, &err) < 0) { /* tried again every second: one of two files may be on its way */
        if (!t->why || strcmp(t->why, err.text) != 0)
            pst_log(PST_LOG_WARN, t->name, "event=certificate_kept reason=\"%s; the one of before serves on\"", err.text);
        free(t->why);
        t->why = pst_strdup(err.text);
        return;
    }
    free(t->why);
    t->why = NULL;
    SSL_CTX_free(t->ctx); /* connections hold it as long as they need it */
    t->ctx = ctx;
    memcpy(t->seen, seen, sizeof seen);
    pst_log(PST_LOG_INFO, t->name, "event=certificate_read file=%s", t->cert);
    say_end(t, ctx);
}

int http_tls_new(pst_loop *l, const char *name, const char *cert, const char *key, http_tls **ret_tls, pst_err *err)
{
    if (!cert || !key)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "tls", 0, "--tls-cert and --tls-key go together: one of them is missing");
    int rc = ssl_lib_open(err);
    if (!rc)
        rc = evssl_lib_open(err);
    if (rc < 0)
        return rc;
    http_tls *t = pst_alloc(sizeof *t);
    *t = (http_tls){.base = loop_base(l), .name = pst_strdup(name), .cert = pst_strdup(cert), .key = pst_strdup(key)};
    rc = load(t, t->seen, &t->ctx, err);
    if (rc < 0) {
        http_tls_free(t);
        return rc;
    }
    say_end(t, t->ctx);
    t->look = pst_timer_new(l, LOOK_US, LOOK_US, look, t);
    *ret_tls = t;
    return 0;
}

void http_tls_free(http_tls *t)
{
    if (!t)
        return;
    pst_timer_free(t->look);
    if (t->ctx)
        SSL_CTX_free(t->ctx);
    free(t->name);
    free(t->cert);
    free(t->key);
    free(t->why);
    free(t);
}

/* ---- a connection ---- */

struct bufferevent *http_tls_accept(http_tls *t, evutil_socket_t fd)
{
    SSL *ssl = SSL_new(t->ctx);
    struct bufferevent *bev =
        ssl ? bufferevent_openssl_socket_new(t->base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE) : NULL;
    if (ssl && !bev)
        SSL_free(ssl);
    return bev;
}

void http_tls_bye(struct bufferevent *bev)
{
    SSL *ssl = bufferevent_openssl_get_ssl(bev);
    if (!ssl || !SSL_is_init_finished(ssl))
        return;
    ERR_clear_error();
    SSL_shutdown(ssl); /* one record; who does not take it is closed by the deadline all the same */
    ERR_clear_error();
}

const char *http_tls_why(struct bufferevent *bev)
{
    unsigned long code = bufferevent_get_openssl_error(bev);
    return code ? ERR_reason_error_string(code) : NULL;
}
