/* s3.c - requests to an S3 server over common/http. Every body that is sent is named by its SHA-256, which the signature covers, so that what arrives
 * is what was meant; what is put carries the digest of its whole as well, so that it is known again, and checked when it is fetched. A file that
 * breaks off goes on from where it was, under If-Match: of two versions no mixture is made. Files are never held in memory. */
#include "common/objects/s3.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/base/hash.h"
#include "common/base/retry.h"
#include "common/base/stop.h"
#include "common/http/fetch.h"
#include "common/objects/s3_xml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_MAX   (8u << 20)
#define PARTS_MAX    10000
#define RESTARTS_MAX 4
enum { PAUSE_MS = 200, STALL_S = 30, SMALL_MS = 60000, CHECK_MS = 8000, NAME_BYTES = 255, DEPTH_MAX = 64 };

struct pst_s3 {
    pst_fetch *fetch; /* NULL until the first request */
    char *base;       /* what stands before a key, without a slash at its end: "http://host:1/bucket" */
    char *host;       /* "http://host:1", for people */
    char *bucket, *user, *password, *sign, *ca_file;
    char *session; /* "x-amz-security-token: …", or NULL */
    pst_s3_conf conf;
};

typedef struct call {
    pst_s3 *s;
    const char *method, *key, *query; /* key NULL: the bucket itself */
    const char *digest;               /* of what is sent */
    const char *keeps;                /* "x-amz-meta-sha256: …", or NULL */
    const char *source;               /* "x-amz-copy-source: …", or NULL */
    const void *body;
    size_t body_len;
    int from_fd; /* a file's part is sent: from there */
    int64_t from;
    bool short_read;
    int to_fd; /* the answer goes into this file, at `at`; -1 = into `answer` */
    int64_t at, most;
    pst_sha256 *sum;
    int restarts;
    int write_errno;
    bool too_long;
    int timeout_ms;
    /* the answer */
    long status;
    pst_buf answer;
    char etag[160], kept[80];
    int64_t length;
} call;

/* ---- addresses and names ----------------------------------------------------------------------------------------------------------- */

static const char *host_of(const char *url)
{
    const char *at = strstr(url, "://");
    return at ? at + 3 : url;
}

static bool is_bucket(const char *name)
{
    size_t n = name ? strlen(name) : 0;
    return n && n <= NAME_BYTES && strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == n && *name != '.';
}

static int check_conf(const pst_s3_conf *c, pst_err *err)
{
    const char *url = c->url ? c->url : "", *region = c->region ? c->region : "";
    bool known = !strncmp(url, "http://", 7) || !strncmp(url, "https://", 8);
    const char *host = host_of(url);
    size_t n = strcspn(host, "/");
    if (!known || !n || *host == ':' || strpbrk(host, "@?# \t\r\n\\") || (host[n] && host[n + strspn(host + n, "/")]))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "s3", 0,
                           "connection.auth_url must be http://host:port or https://host, without a user, a path or a query");
    if (!is_bucket(c->bucket))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "s3", 0,
                           "a container names a bucket: letters, digits, dots, underscores and dashes, found \"%.60s\"",
                           c->bucket ? c->bucket : "");
    if (strlen(region) > 60 || strspn(region, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-") != strlen(region))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "s3", 0, "connection.region must be letters, digits and dashes");
    if (!c->user || !*c->user || !c->password || !*c->password || strpbrk(c->user, ":\r\n") || strpbrk(c->password, "\r\n"))
        return pst_err_set(err, PST_EAUTH, PST_CLASS_DATA, "s3", 0,
                           "connection.user_name and connection.password must be given: the access key and its secret");
    if (c->session && strpbrk(c->session, "\r\n"))
        return pst_err_set(err, PST_EAUTH, PST_CLASS_DATA, "s3", 0, "the session token has a line end in it");
    return 0;
}

int pst_s3_open(const pst_s3_conf *conf, pst_s3 **ret_s3, pst_err *err)
{
    int rc = check_conf(conf, err);
    if (rc < 0)
        return rc;
    pst_s3 *s = pst_alloc(sizeof *s);
    s->conf = *conf;
    s->host = pst_strndup(conf->url, (size_t)(host_of(conf->url) - conf->url) + strcspn(host_of(conf->url), "/"));
    s->bucket = pst_strdup(conf->bucket);
    size_t n = strlen(s->bucket);
    bool in_host = !strncasecmp(host_of(s->host), s->bucket, n) && host_of(s->host)[n] == '.';
    s->base = in_host ? pst_strdup(s->host) : pst_sprintf("%s/%s", s->host, s->bucket);
    s->user = pst_strdup(conf->user);
    s->password = pst_strdup(conf->password);
    s->ca_file = pst_strdup(conf->ca_file);
    s->session = conf->session ? pst_sprintf("x-amz-security-token: %s", conf->session) : NULL;
    s->sign = pst_sprintf("aws:amz:%s:s3", conf->region && *conf->region ? conf->region : "us-east-1");
    *ret_s3 = s;
    return 0;
}

void pst_s3_close(pst_s3 *s)
{
    if (!s)
        return;
    pst_fetch_close(s->fetch);
    if (s->password)
        explicit_bzero(s->password, strlen(s->password));
    if (s->session)
        explicit_bzero(s->session, strlen(s->session));
    char *all[] = {s->base, s->host, s->bucket, s->user, s->password, s->sign, s->ca_file, s->session};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(s);
}

bool pst_s3_allowed(const char *list, const char *url)
{
    const char *host = host_of(url ? url : "");
    size_t with_port = strcspn(host, "/"), alone = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/");
    if (!list || !*list)
        return true;
    for (const char *p = list; *p;) {
        p += strspn(p, ", ");
        size_t n = strcspn(p, ", ");
        bool below = n > 2 && p[0] == '*' && p[1] == '.';
        if (below && alone > n - 1 && !strncasecmp(host + alone - (n - 1), p + 1, n - 1))
            return true;
        if (n && ((n == alone && !strncasecmp(p, host, n)) || (n == with_port && !strncasecmp(p, host, n))))
            return true;
        p += n;
    }
    return false;
}

const char *pst_s3_key_problem(const char *key)
{
    size_t depth = 0, len = strlen(key);
    if (!len || len > PST_S3_KEY_BYTES)
        return "it is empty, or longer than 1,024 bytes";
    if (*key == '/')
        return "it begins with /";
    for (const char *p = key; *p;) {
        size_t n = strcspn(p, "/");
        if (!n || (n == 1 && *p == '.') || (n == 2 && !strncmp(p, "..", 2)))
            return "a part of it is empty, . or ..";
        if (n > NAME_BYTES || ++depth > DEPTH_MAX)
            return "a part of it is longer than 255 bytes, or it has more than 64";
        p += n + (p[n] == '/');
    }
    return NULL;
}

/* ---- one request --------------------------------------------------------------------------------------------------------------------- */

static void start_again(call *c)
{
    uint8_t unused[32];
    c->at = 0;
    if (c->sum)
        pst_sha256_end(c->sum, unused);
    c->sum = pst_sha256_new();
    if (ftruncate(c->to_fd, 0) < 0)
        c->write_errno = errno;
}

static void on_header(void *arg, const char *name, const char *value)
{
    call *c = arg;
    if (!strcmp(name, ":status")) {
        c->status = strtol(value, NULL, 10);
        c->length = -1;
        *c->kept = 0;
        if (c->to_fd >= 0 && c->status == 200 && c->at) { /* it does not give parts */
            c->restarts++;
            start_again(c);
        }
    } else if (!strcasecmp(name, "etag") && c->status < 300) {
        snprintf(c->etag, sizeof c->etag, "%s", strpbrk(value, "\r\n") ? "" : value);
    } else if (!strcasecmp(name, "x-amz-meta-sha256")) {
        snprintf(c->kept, sizeof c->kept, "%s", value);
    } else if (!strcasecmp(name, "content-length")) {
        c->length = strtoll(value, NULL, 10);
    } else if (!strcasecmp(name, "content-range") && c->status == 206) {
        const char *digits = value + strcspn(value, "0123456789");
        if (strtoll(digits, NULL, 10) != c->at)
            c->status = 599; /* another part than was asked for: as a server that failed */
    }
}

static bool on_body(void *arg, const void *data, size_t len)
{
    call *c = arg;
    if (c->to_fd < 0 || (c->status != 200 && c->status != 206)) {
        if (c->answer.len + len > ANSWER_MAX)
            return false;
        pst_buf_add(&c->answer, data, len);
        return true;
    }
    c->too_long = c->at + (int64_t)len > c->most;
    for (size_t done = 0; !c->too_long && !c->write_errno && done < len;) {
        ssize_t n = pwrite(c->to_fd, (const char *)data + done, len - done, c->at + (int64_t)done);
        if (n < 0 && errno != EINTR)
            c->write_errno = errno;
        done += n > 0 ? (size_t)n : 0;
    }
    if (c->too_long || c->write_errno)
        return false;
    pst_sha256_add(c->sum, data, len);
    c->at += (int64_t)len;
    if (c->s->conf.moved)
        c->s->conf.moved(c->s->conf.arg, (int64_t)len);
    return true;
}

static size_t on_give(void *arg, int64_t from, void *to, size_t len)
{
    call *c = arg;
    ssize_t n = pread(c->from_fd, to, len, c->from + from);
    c->short_read = c->short_read || n <= 0;
    return n > 0 ? (size_t)n : 0;
}

static bool stops(void *arg)
{
    const pst_s3 *s = arg;
    return pst_stop_forced() || (s->conf.stopped && s->conf.stopped(s->conf.arg));
}

static bool call_stops(void *arg)
{
    return stops(((call *)arg)->s);
}

/* What the server says goes into events that everybody reads: plain letters only, and nothing in which our own credentials come back. */
static char *said(const call *c, const char *name)
{
    char *text = s3_xml_value(c->answer.data ? c->answer.data : "", c->answer.len, name);
    if (strstr(text, c->s->password) || strstr(text, c->s->user))
        *text = 0;
    for (char *p = text; *p; p++)
        *p = *p >= ' ' && *p < 127 ? *p : '?';
    if (strlen(text) > 160)
        text[160] = 0;
    return text;
}

static int refused(const call *c, pst_err *err)
{
    char *code = said(c, "Code"), *message = said(c, "Message");
    const pst_s3 *s = c->s;
    long status = c->status;
    int rc = PST_EINVAL;
    pst_err_class cls = PST_CLASS_DATA;
    const char *hint = "";
    if (status == 401 || status == 403) {
        rc = PST_EAUTH;
        hint = "; are connection.user_name and connection.password right, and may they use this bucket?";
    } else if (status == 404) {
        rc = PST_ENOTFOUND;
    } else if (status == 408 || status == 429 || (status >= 500 && status != 501)) {
        rc = PST_EUNREACH;
        cls = PST_CLASS_RETRY;
    } else if (!strcmp(code, "XAmzContentSHA256Mismatch") || !strcmp(code, "BadDigest") || !strcmp(code, "IncompleteBody")) {
        rc = PST_EAGAIN; /* the file changed while it was read */
    } else if (!strcmp(code, "RequestTimeout") || !strcmp(code, "SlowDown")) {
        rc = PST_EUNREACH;
        cls = PST_CLASS_RETRY;
    } else if (status >= 300 && status < 400) {
        hint = "; redirects are not followed: connection.auth_url must name the bucket's own server";
    } else if (status == 412) {
        hint = "; it changed while it was read";
    }
    rc = pst_err_set(err, rc, cls, "s3", (int)status, "the object store at %s answers %ld for %s %s%s%.200s%s%s%s%s%s%s", s->host, status,
                     c->method, s->bucket, c->key ? "/" : "", c->key ? c->key : "", *code ? ": " : "", code, *message ? " (" : "", message,
                     *message ? ")" : "", hint);
    free(code);
    free(message);
    return rc;
}

static int not_answered(const call *c, const pst_fetch_answer *how, pst_err *err)
{
    const char *host = c->s->host;
    if (c->write_errno)
        return pst_err_sys(err, c->write_errno, "cannot write what the object store sends");
    if (c->too_long)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "s3", 0, "%.200s is longer than it was in the list, or than there is room for",
                           c->key);
    if (c->short_read)
        return pst_err_set(err, PST_EAGAIN, PST_CLASS_DATA, "s3", 0, "the file changed while it was sent");
    switch (how->end) {
    case PST_FETCH_STOPPED: return pst_err_set(err, PST_ESTOPPED, PST_CLASS_RETRY, "s3", 0, "told to stop while asking %s", host);
    case PST_FETCH_REFUSED:
        return pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "s3", 0, "%s answered with more than %u MiB", host, ANSWER_MAX >> 20);
    case PST_FETCH_NOT_TRUSTED:
        return pst_err_set(err, PST_EAUTH, PST_CLASS_DATA, "s3", how->native, "the certificate of %s is not trusted: %s", host, how->why);
    default: break;
    }
    return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "s3", how->native, "the object store at %s does not answer: %s", host, how->why);
}

/* One request, signed by libcurl over the headers as they stand here: all that S3 is to check must be among them. A body that goes on (Range) asks for the same
 * object by its etag, or two halves of different ones would be joined. */
static int attempt(call *c, pst_err *err)
{
    pst_s3 *s = c->s;
    pst_fetch_answer how;
    char range[64], digest[100], match[200];
    const char *headers[10];
    size_t n = 0;
    int rc = s->fetch ? 0 : pst_fetch_open(&s->fetch, err);
    if (rc < 0)
        return rc;
    char *key = c->key ? pst_fetch_escape(c->key, "/") : NULL;
    char *url = pst_sprintf("%s%s%s%s%s", s->base, key || strcmp(s->base, s->host) == 0 ? "/" : "", key ? key : "", c->query ? "?" : "",
                            c->query ? c->query : "");
    snprintf(digest, sizeof digest, "x-amz-content-sha256: %s", c->digest);
    headers[n++] = digest;
    headers[n++] = "Expect:";
    if (c->keeps)
        headers[n++] = c->keeps;
    if (s->session)
        headers[n++] = s->session;
    if (c->source) {
        headers[n++] = c->source;
        headers[n++] = "x-amz-metadata-directive: REPLACE"; /* else a copy onto itself is refused */
    }
    if (c->body || c->from_fd >= 0)
        headers[n++] = "Content-Type: application/octet-stream";
    if (c->to_fd >= 0 && c->at) {
        snprintf(range, sizeof range, "Range: bytes=%lld-", (long long)c->at);
        snprintf(match, sizeof match, "If-Match: %s", c->etag);
        headers[n++] = range;
        if (*c->etag)
            headers[n++] = match;
    }
    pst_buf_clear(&c->answer);
    c->status = 0;
    c->short_read = false;
    pst_fetch_do(s->fetch,
                 &(pst_fetch_request){.method = c->method,
                                      .url = url,
                                      .headers = headers,
                                      .n_headers = n,
                                      .body = c->body,
                                      .body_len = c->body_len,
                                      .give = c->from_fd >= 0 ? on_give : NULL,
                                      .take = on_body,
                                      .header = on_header,
                                      .stopped = call_stops,
                                      .arg = c,
                                      .user = s->user,
                                      .password = s->password,
                                      .sign = s->sign,
                                      .ca_file = s->ca_file,
                                      .timeout_ms = c->timeout_ms,
                                      .stall_s = STALL_S},
                 &how);
    free(url);
    free(key);
    if (how.end != PST_FETCH_ANSWERED)
        return not_answered(c, &how, err);
    return c->status >= 200 && c->status < 300 ? 0 : refused(c, err);
}

/* Tried again as the header says. Bytes that came are a sign of life; those of a server that always begins anew are not. */
static int run(call *c, pst_err *err)
{
    int64_t alive_us = pst_mono_us(), at = c->at;
    int rc, pause_ms = PAUSE_MS;
    for (;;) {
        pst_err e = {0};
        rc = stops(c->s) ? pst_err_set(&e, PST_ESTOPPED, PST_CLASS_RETRY, "s3", 0, "told to stop") : attempt(c, &e);
        if (c->at > at && c->restarts < RESTARTS_MAX) {
            alive_us = pst_mono_us();
            pause_ms = PAUSE_MS;
        }
        at = c->at;
        bool again = rc < 0 && rc != PST_ESTOPPED && e.cls == PST_CLASS_RETRY && !c->write_errno;
        if (!again || pst_mono_us() - alive_us + (int64_t)pause_ms * 1000 > (int64_t)c->s->conf.patience_ms * 1000) {
            if (rc < 0 && err && !err->code)
                *err = e;
            return rc;
        }
        pst_retry_pause(pause_ms, stops, c->s);
        pause_ms = pause_ms * 2 < PST_S3_PAUSE_MAX_MS ? pause_ms * 2 : PST_S3_PAUSE_MAX_MS;
    }
}

static const char no_body[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

static call call_of(pst_s3 *s, const char *method, const char *key)
{
    return (call){.s = s, .method = method, .key = key, .digest = no_body, .from_fd = -1, .to_fd = -1, .timeout_ms = SMALL_MS};
}

/* ---- lists ----------------------------------------------------------------------------------------------------------------------------- */

static int list_page(pst_s3 *s, const char *prefix, const char *from, int keys, int timeout_ms, pst_s3_list *list, char **ret_next,
                     pst_err *err)
{
    char *prefix_ = pst_fetch_escape(prefix, ""), *from_ = from ? pst_fetch_escape(from, "") : NULL;
    char *query = pst_sprintf("%s%s%sencoding-type=url&list-type=2&max-keys=%d&prefix=%s", from_ ? "continuation-token=" : "",
                              from_ ? from_ : "", from_ ? "&" : "", keys, prefix_); /* in the order of their names, as they are signed */
    call c = call_of(s, "GET", NULL);
    size_t before = list->n;
    c.query = query;
    c.timeout_ms = timeout_ms;
    int rc = run(&c, err);
    if (!rc)
        rc = s3_xml_list(c.answer.data ? c.answer.data : "", c.answer.len, list, ret_next, err);
    for (size_t i = before; i < list->n && !rc; i++) /* callers go on behind the prefix: a shorter key would lead them out of it */
        if (strncmp(list->at[i].key, prefix, strlen(prefix)) != 0)
            rc = pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "s3", 0,
                             "%s lists a key that does not begin with the prefix asked for, %.200s", s->host, prefix);
    pst_buf_done(&c.answer);
    free(query);
    free(from_);
    free(prefix_);
    return rc;
}

int pst_s3_check(pst_s3 *s, pst_err *err)
{
    pst_s3_list list = {0};
    char *next = NULL;
    int rc = list_page(s, "", NULL, 1, CHECK_MS, &list, &next, err);
    pst_s3_list_done(&list);
    free(next);
    return rc;
}

int pst_s3_list_keys(pst_s3 *s, const char *prefix, size_t keys_max, pst_s3_list *list, pst_err *err)
{
    char *from = NULL, *next = NULL;
    int rc;
    if (!keys_max)
        keys_max = PST_S3_KEYS_MAX;
    do {
        size_t before = list->n;
        next = NULL;
        rc = list_page(s, prefix, from, 1000, SMALL_MS, list, &next, err);
        if (!rc && list->n > keys_max)
            rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "s3", 0, "the bucket %s has more than %zu keys; name one with fewer",
                             s->bucket, keys_max);
        if (!rc && next && (list->n == before || (from && !strcmp(from, next)))) /* it would never end */
            rc = pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "s3", 0, "the list of %s goes on without coming further", s->bucket);
        free(from);
        from = next;
    } while (!rc && from);
    free(from);
    return rc;
}

void pst_s3_list_done(pst_s3_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->at[i].key);
    free(list->at);
    memset(list, 0, sizeof *list);
}

/* ---- files ------------------------------------------------------------------------------------------------------------------------------- */

int pst_s3_get(pst_s3 *s, const char *key, int fd, int64_t bytes_max, int64_t *ret_bytes, pst_err *err)
{
    call c = call_of(s, "GET", key);
    uint8_t digest[32];
    char hex[65];
    c.to_fd = fd;
    c.most = bytes_max;
    c.timeout_ms = 0;
    c.sum = pst_sha256_new();
    int rc = run(&c, err);
    pst_sha256_end(c.sum, digest);
    pst_hex(digest, 32, hex);
    if (!rc && strlen(c.kept) == 64 && strcasecmp(c.kept, hex) != 0)
        rc = pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "s3", 0, "%.200s is not what was put there: its SHA-256 is %s, and should be %s",
                         key, hex, c.kept);
    if (!rc && ret_bytes)
        *ret_bytes = c.at;
    pst_buf_done(&c.answer);
    return rc;
}

/* The digest of len bytes from an offset on, which also go into whole (NULL: into none); PST_EAGAIN: there are fewer. */
static int digest_of(pst_s3 *s, int fd, int64_t from, int64_t len, pst_sha256 *whole, char ret_hex[65], pst_err *err)
{
    enum { BYTES = 1 << 20 };
    char *buf = pst_alloc(BYTES);
    pst_sha256 *sum = pst_sha256_new();
    uint8_t digest[32];
    int rc = 0;
    while (!rc && len > 0) {
        ssize_t n = pread(fd, buf, len < BYTES ? (size_t)len : BYTES, from);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = pst_err_sys(err, errno, "cannot read a file to be stored");
        else if (!n)
            rc = pst_err_set(err, PST_EAGAIN, PST_CLASS_DATA, "s3", 0, "the file became shorter while it was read");
        else if (stops(s))
            rc = pst_err_set(err, PST_ESTOPPED, PST_CLASS_RETRY, "s3", 0, "told to stop");
        else
            pst_sha256_add(sum, buf, (size_t)n);
        if (!rc && whole)
            pst_sha256_add(whole, buf, (size_t)n);
        from += n > 0 ? n : 0;
        len -= n > 0 ? n : 0;
    }
    pst_sha256_end(sum, digest);
    pst_hex(digest, 32, ret_hex);
    free(buf);
    return rc;
}

static int simple(pst_s3 *s, const char *method, const char *key, const char *query, const char *keeps, const char *body, char **ret_answer,
                  pst_err *err)
{
    call c = call_of(s, method, key);
    char hex[65];
    c.query = query;
    c.keeps = keeps;
    c.body = body;
    c.body_len = body ? strlen(body) : 0;
    if (body) {
        pst_sha256_hex(body, c.body_len, hex);
        c.digest = hex;
    }
    int rc = run(&c, err);
    if (!rc && ret_answer)
        *ret_answer = pst_strndup(c.answer.data ? c.answer.data : "", c.answer.len);
    pst_buf_done(&c.answer);
    return rc;
}

static int changed_meanwhile(pst_err *err)
{
    return pst_err_set(err, PST_EAGAIN, PST_CLASS_DATA, "s3", 0, "the file changed while it was sent");
}

/* part of what is sent: its query and digests. */
typedef struct range {
    const char *query, *keeps;
    int fd;
    int64_t from, len;
    const char *digest; /* that it must have; NULL = any */
    pst_sha256 *whole;  /* which it goes into; NULL = none */
} range;

/* The server holds what arrives against the digest of this request; that this is the one which the whole was announced with is held here: a file
 * that changed between two looks at it would stand under another's digest. */
static int put_range(pst_s3 *s, const char *key, const range *r, char ret_etag[160], pst_err *err)
{
    char hex[65];
    int rc = digest_of(s, r->fd, r->from, r->len, r->whole, hex, err);
    if (!rc && r->digest && strcmp(hex, r->digest) != 0)
        rc = changed_meanwhile(err);
    if (rc < 0)
        return rc;
    call c = call_of(s, "PUT", key);
    c.query = r->query;
    c.keeps = r->keeps;
    c.digest = hex;
    c.from_fd = r->fd;
    c.from = r->from;
    c.body_len = (size_t)r->len;
    c.timeout_ms = 0;
    rc = run(&c, err);
    if (!rc && s->conf.moved)
        s->conf.moved(s->conf.arg, r->len);
    if (!rc && ret_etag)
        memcpy(ret_etag, c.etag, sizeof c.etag);
    pst_buf_done(&c.answer);
    return rc;
}

static void xml_text(pst_buf *out, const char *text)
{
    for (; *text; text++)
        if (*text == '&' || *text == '<' || *text == '>')
            pst_buf_printf(out, "&#%d;", *text);
        else
            pst_buf_addc(out, *text);
}

/* The same bytes are there: a second attempt, or another process of the job, has put them. */
static int is_there(pst_s3 *s, const char *key, const char *digest, int64_t size, bool *ret_there, pst_err *err)
{
    call c = call_of(s, "HEAD", key);
    pst_err e = {0};
    int rc = run(&c, &e);
    *ret_there = !rc && c.length == size && !strcasecmp(c.kept, digest);
    pst_buf_done(&c.answer);
    if (rc == PST_ENOTFOUND || rc == PST_EAUTH) /* without leave to list, what is not there is forbidden: the PUT will say */
        return 0;
    if (rc < 0 && err && !err->code)
        *err = e;
    return rc;
}

/* Completion may fail inside a 200: the answer's element says so. Neither a body that says nothing nor an upload that is gone at the second attempt
 * tells whether the object was made: then the object itself is asked. */
static int complete(pst_s3 *s, const char *key, const char *query, const char *body, const char *digest, int64_t size, pst_err *err)
{
    char *answer = NULL;
    pst_err e = {0};
    bool there = false;
    int rc = simple(s, "POST", key, query, NULL, body, &answer, &e);
    char *code = s3_xml_value(answer ? answer : "", answer ? strlen(answer) : 0, "Code");
    char *etag = s3_xml_value(answer ? answer : "", answer ? strlen(answer) : 0, "ETag");
    if (!rc && *code)
        rc = pst_err_set(&e, PST_EUNREACH, PST_CLASS_RETRY, "s3", 0, "%s could not put the parts of %.200s together: %.60s", s->host, key,
                         code);
    else if (rc == PST_ENOTFOUND || (!rc && !*etag)) {
        pst_err_clear(&e);
        rc = is_there(s, key, digest, size, &there, &e);
        if (!rc && !there)
            rc = pst_err_set(&e, PST_EUNREACH, PST_CLASS_RETRY, "s3", 0, "%s put the parts of %.200s together, and does not have it",
                             s->host, key);
    }
    free(etag);
    free(code);
    free(answer);
    if (rc < 0 && err && !err->code)
        *err = e;
    return rc;
}

static void add_part(pst_buf *all, int64_t n, const char *etag)
{
    pst_buf_printf(all, "<Part><PartNumber>%lld</PartNumber><ETag>", (long long)n);
    xml_text(all, etag);
    pst_buf_adds(all, "</ETag></Part>");
}

/* All parts, and the list of them that completes the upload. */
static int send_parts(pst_s3 *s, const char *key, const char *id, const char *digest, int fd, int64_t size, pst_buf *all, pst_err *err)
{
    char etag[160], hex[65];
    uint8_t sum[32];
    int rc = 0;
    int64_t part = PST_S3_PART_BYTES;
    while ((size + part - 1) / part > PARTS_MAX)
        part *= 2;
    pst_sha256 *whole = pst_sha256_new();
    pst_buf_adds(all, "<CompleteMultipartUpload>");
    for (int64_t from = 0, n = 1; !rc && from < size; from += part, n++) {
        char *query = pst_sprintf("partNumber=%lld&uploadId=%s", (long long)n, id);
        int64_t len = size - from < part ? size - from : part;
        rc = put_range(s, key, &(range){.query = query, .fd = fd, .from = from, .len = len, .whole = whole}, etag, err);
        if (!rc)
            add_part(all, n, etag);
        free(query);
    }
    pst_buf_adds(all, "</CompleteMultipartUpload>");
    pst_sha256_end(whole, sum);
    pst_hex(sum, sizeof sum, hex);
    return rc < 0 || !strcmp(hex, digest) ? rc : changed_meanwhile(err);
}

static int put_parts(pst_s3 *s, const char *key, const char *digest, int fd, int64_t size, pst_err *err)
{
    char *answer = NULL, keeps[100];
    snprintf(keeps, sizeof keeps, "x-amz-meta-sha256: %s", digest);
    int rc = simple(s, "POST", key, "uploads=", keeps, "", &answer, err);
    if (rc < 0)
        return rc;
    char *id = s3_xml_value(answer, strlen(answer), "UploadId"), *id_ = pst_fetch_escape(id, "");
    char *by_id = pst_sprintf("uploadId=%s", id_);
    pst_buf all = {0};
    if (!*id)
        rc = pst_err_set(err, PST_EPARSE, PST_CLASS_DATA, "s3", 0, "%s begins an upload in parts without naming it", s->host);
    if (!rc)
        rc = send_parts(s, key, id_, digest, fd, size, &all, err);
    if (!rc)
        rc = complete(s, key, by_id, all.data, digest, size, err);
    if (rc < 0 && *id) { /* what was sent would be paid for, and seen by nobody; where it is away, its own rules have to end it */
        pst_err unused = {0};
        simple(s, "DELETE", key, by_id, NULL, NULL, NULL, &unused);
    }
    pst_buf_done(&all);
    free(by_id);
    free(id_);
    free(id);
    free(answer);
    return rc;
}

int pst_s3_put(pst_s3 *s, const char *key, int fd, bool *ret_sent, pst_err *err)
{
    struct stat st;
    char digest[65], keeps[100];
    bool there = false;
    if (fstat(fd, &st) < 0)
        return pst_err_sys(err, errno, "cannot look at a file to be stored");
    int rc = digest_of(s, fd, 0, st.st_size, NULL, digest, err);
    if (!rc)
        rc = is_there(s, key, digest, st.st_size, &there, err);
    if (rc < 0)
        return rc;
    snprintf(keeps, sizeof keeps, "x-amz-meta-sha256: %s", digest);
    if (!there)
        rc = st.st_size > PST_S3_PART_BYTES
                 ? put_parts(s, key, digest, fd, st.st_size, err)
                 : put_range(s, key, &(range){.keeps = keeps, .fd = fd, .len = st.st_size, .digest = digest}, NULL, err);
    if (!rc)
        *ret_sent = !there;
    return rc;
}

int pst_s3_delete(pst_s3 *s, const char *key, pst_err *err)
{
    return simple(s, "DELETE", key, NULL, NULL, NULL, NULL, err);
}

int pst_s3_touch(pst_s3 *s, const char *key, pst_err *err)
{
    call c = call_of(s, "HEAD", key);
    int rc = run(&c, err);
    pst_buf_done(&c.answer);
    if (rc < 0)
        return rc;
    char *path = pst_fetch_escape(key, "/"), *source = pst_sprintf("x-amz-copy-source: /%s/%s", s->bucket, path), keeps[100];
    snprintf(keeps, sizeof keeps, "x-amz-meta-sha256: %s", c.kept); /* what is replaced has to be said again */
    call copy = call_of(s, "PUT", key);
    copy.source = source;
    copy.keeps = *c.kept ? keeps : NULL;
    rc = run(&copy, err);
    char *code = rc ? NULL : said(&copy, "Code"); /* it too may fail inside a 200 */
    if (code && *code)
        rc = pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "s3", 0, "%s could not copy %.200s: %.60s", s->host, key, code);
    free(code);
    pst_buf_done(&copy.answer);
    free(source);
    free(path);
    return rc;
}

void pst_s3_patience(pst_s3 *s, int ms)
{
    s->conf.patience_ms = ms;
}
