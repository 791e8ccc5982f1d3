/* fetch.c - the one adapter of libcurl. It brings thirty libraries with it, so it is opened by the first who asks for a fetch: most processes never do.
 * Bodies go through small functions of the caller in place of buffers of ours, so that a file of any size takes no memory; one that is sent is read
 * by position, since libcurl may have to send it again on another connection. */
#include "common/http/fetch.h"

#include "common/base/stop.h"
#include "common/http/curl_lib.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECT_MS = 3000, HEADER_MAX = 8192 };

struct pst_fetch {
    CURL *curl;
    const pst_fetch_request *now; /* while it runs */
    int64_t given;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int hex(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

char *pst_fetch_unescape(const char *text, size_t len)
{
    pst_buf out = {0};
    pst_buf_adds(&out, "");
    for (size_t i = 0; i < len; i++) {
        bool coded = text[i] == '%' && i + 2 < len && isxdigit((unsigned char)text[i + 1]) && isxdigit((unsigned char)text[i + 2]);
        pst_buf_addc(&out, coded ? (char)(hex(text[i + 1]) << 4 | hex(text[i + 2])) : text[i]);
        i += coded ? 2 : 0;
    }
    return pst_buf_steal(&out);
}

char *pst_fetch_escape(const char *text, const char *keep)
{
    pst_buf out = {0};
    pst_buf_adds(&out, "");
    for (; *text; text++) {
        if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~", *text) || strchr(keep, *text))
            pst_buf_addc(&out, *text);
        else
            pst_buf_printf(&out, "%%%02X", (unsigned char)*text);
    }
    return pst_buf_steal(&out);
}

int pst_fetch_open(pst_fetch **ret_fetch, pst_err *err)
{
    int rc = curl_lib_open(err);
    if (rc < 0)
        return rc;
    pthread_once(&once, init_curl);
    CURL *curl = curl_easy_init();
    if (!curl)
        return pst_err_set(err, PST_ENOMEM, PST_CLASS_FATAL, "http", 0, "libcurl could not be started");
    pst_fetch *f = pst_alloc(sizeof *f);
    f->curl = curl;
    *ret_fetch = f;
    return 0;
}

void pst_fetch_close(pst_fetch *f)
{
    if (!f)
        return;
    curl_easy_cleanup(f->curl);
    free(f);
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    const pst_fetch_request *r = ((pst_fetch *)arg)->now;
    return r->take && !r->take(r->arg, data, size * n) ? 0 : size * n;
}

/* "Name: value\r\n", and the status as ":status"; a header too long for anything we ask for is passed over. */
static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
    const pst_fetch_request *r = ((pst_fetch *)arg)->now;
    size_t len = size * n;
    if (len > 12 && len < HEADER_MAX && !memcmp(data, "HTTP/", 5) && memchr(data, ' ', len)) {
        char *line = pst_strndup(data, len), *status = pst_strndup(strchr(line, ' ') + 1, 3);
        r->header(r->arg, ":status", status);
        free(status);
        free(line);
        return len;
    }
    const char *colon = len < HEADER_MAX ? memchr(data, ':', len) : NULL;
    if (!colon)
        return len;
    const char *from = colon + 1, *end = data + len;
    while (from < end && isspace((unsigned char)*from))
        from++;
    while (end > from && isspace((unsigned char)end[-1]))
        end--;
    char *name = pst_strndup(data, (size_t)(colon - data)), *value = pst_strndup(from, (size_t)(end - from));
    r->header(r->arg, name, value);
    free(name);
    free(value);
    return len;
}

static size_t on_give(char *to, size_t size, size_t n, void *arg)
{
    pst_fetch *f = arg;
    int64_t left = (int64_t)f->now->body_len - f->given;
    size_t most = (int64_t)(size * n) < left ? size * n : (size_t)left;
    size_t got = most ? f->now->give(f->now->arg, f->given, to, most) : 0;
    if (most && !got)
        return CURL_READFUNC_ABORT;
    f->given += (int64_t)got;
    return got;
}

static int on_seek(void *arg, curl_off_t offset, int origin)
{
    ((pst_fetch *)arg)->given = offset;
    return origin == SEEK_SET ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_CANTSEEK;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const pst_fetch_request *r = ((pst_fetch *)arg)->now;
    return (r->stopped ? r->stopped(r->arg) : pst_stop_forced()) ? 1 : 0;
}

static void set_body(pst_fetch *f, const pst_fetch_request *r)
{
    CURL *c = f->curl;
    if (r->give) {
        curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(c, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->body_len);
        curl_easy_setopt(c, CURLOPT_READFUNCTION, on_give);
        curl_easy_setopt(c, CURLOPT_READDATA, f);
        curl_easy_setopt(c, CURLOPT_SEEKFUNCTION, on_seek);
        curl_easy_setopt(c, CURLOPT_SEEKDATA, f);
    } else if (r->body) {
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body_len);
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, r->body);
    }
    if (!strcmp(r->method, "HEAD"))
        curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
    else
        curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, r->method);
}

static void set_credentials(CURL *c, const pst_fetch_request *r)
{
    if (!r->user)
        return;
    if (r->sign)
        curl_easy_setopt(c, CURLOPT_AWS_SIGV4, r->sign);
    else
        curl_easy_setopt(c, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
    curl_easy_setopt(c, CURLOPT_USERNAME, r->user);
    curl_easy_setopt(c, CURLOPT_PASSWORD, r->password ? r->password : "");
}

static void prepare(pst_fetch *f, const pst_fetch_request *r, struct curl_slist *headers, char *why)
{
    CURL *c = f->curl;
    curl_easy_reset(c); /* keeps the connection */
    curl_easy_setopt(c, CURLOPT_URL, r->url);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(c, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_PATH_AS_IS, 1L); /* a key may have .. in it; what is asked for is what is signed */
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "penstock/" PST_VERSION);
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)r->timeout_ms);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)(r->timeout_ms && r->timeout_ms < CONNECT_MS ? r->timeout_ms : CONNECT_MS));
    if (r->stall_s) {
        curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)r->stall_s);
    }
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, f);
    if (r->header) {
        curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
        curl_easy_setopt(c, CURLOPT_HEADERDATA, f);
    }
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, f);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    set_body(f, r);
    set_credentials(c, r);
    if (r->ca_file)
        curl_easy_setopt(c, CURLOPT_CAINFO, r->ca_file);
    if (r->cert_file) {
        curl_easy_setopt(c, CURLOPT_SSLCERT, r->cert_file);
        curl_easy_setopt(c, CURLOPT_SSLKEY, r->key_file);
    }
}

static pst_fetch_end end_of(CURLcode code)
{
    switch (code) {
    case CURLE_OK: return PST_FETCH_ANSWERED;
    case CURLE_ABORTED_BY_CALLBACK: return PST_FETCH_STOPPED;
    case CURLE_WRITE_ERROR: return PST_FETCH_REFUSED;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE: return PST_FETCH_NOT_TRUSTED;
    default: return PST_FETCH_AWAY;
    }
}

void pst_fetch_do(pst_fetch *f, const pst_fetch_request *r, pst_fetch_answer *ret_answer)
{
    char why[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    PST_ASSERT(r->method && r->url && !f->now);
    for (size_t i = 0; i < r->n_headers; i++)
        headers = curl_slist_append(headers, r->headers[i]);
    f->now = r;
    f->given = 0;
    prepare(f, r, headers, why);
    CURLcode code = curl_easy_perform(f->curl);
    *ret_answer = (pst_fetch_answer){.end = end_of(code), .native = (int)code};
    curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &ret_answer->status);
    if (code != CURLE_OK)
        snprintf(ret_answer->why, sizeof ret_answer->why, "%s", *why ? why : curl_easy_strerror(code));
    f->now = NULL;
    curl_slist_free_all(headers);
}
