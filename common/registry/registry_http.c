/* registry_http.c - requests to one of several registries, the one that answered last first. Answers are untrusted as well: at most 8 MiB, no redirects, http and https only.
 * libcurl brings thirty libraries with it, so it is opened by the first request: a process whose schema ids are known already never does. */
#include "common/registry/registry_http.h"

#include "common/base/clock.h"
#include "common/base/stop.h"
#include "common/registry/curl_lib.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_MAX (8u << 20)
#define URLS_MAX   16
#define ROUNDS     2
#define PAUSE_MS   200

typedef struct address {
    char *base; /* "http://host:8081", no trailing slash, no credentials */
    char *user, *password;
} address;

struct registry_http {
    pthread_mutex_t lock;
    CURL *curl; /* NULL until the first request; its headers with it */
    struct curl_slist *headers;
    address at[URLS_MAX];
    size_t n, preferred; /* the one that answered last */
    char *user, *password, *ca_file;
    int timeout_ms;
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

/* %XX in a user's name or password; anything else stands for itself (RFC 3986, 2.1). */
static char *unescape(const char *text, size_t len)
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

/* All but the unreserved characters of RFC 3986, 2.3: what stands for a subject is one part of a path. */
char *registry_http_escape(const char *text)
{
    pst_buf out = {0};
    pst_buf_adds(&out, "");
    for (; *text; text++) {
        if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~", *text))
            pst_buf_addc(&out, *text);
        else
            pst_buf_printf(&out, "%%%02X", (unsigned char)*text);
    }
    return pst_buf_steal(&out);
}

/* "http://user:password@host:8081/base/" → address */
static int parse_address(const char *text, size_t len, address *ret, pst_err *err)
{
    char *url = pst_strndup(text, len);
    while (len && url[len - 1] == '/')
        url[--len] = 0;
    bool tls = !strncmp(url, "https://", 8);
    if (!tls && strncmp(url, "http://", 7)) {
        int rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "registry", 0,
                             "'%.100s' is no registry address; expected http://host:port or https://host:port", url);
        free(url);
        return rc;
    }
    char *host = url + (tls ? 8 : 7);
    size_t authority = strcspn(host, "/");
    char *at = memrchr(host, '@', authority);
    if (at) {
        char *colon = memchr(host, ':', (size_t)(at - host));
        char *end = colon ? colon : at;
        ret->user = unescape(host, (size_t)(end - host));
        ret->password = colon ? unescape(colon + 1, (size_t)(at - colon - 1)) : pst_strdup("");
        memmove(host, at + 1, strlen(at + 1) + 1);
    }
    if (!*host || *host == '/' || *host == ':') {
        int rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "registry", 0, "the registry address '%.100s' names no host", url);
        free(url);
        return rc;
    }
    ret->base = url;
    return PST_OK;
}

/* Addresses are parsed at once, so that a wrong one is an error at the start; nothing is connected to. On failure all that was parsed is freed:
 * h->n counts an address before it is known to be good. */
int registry_http_new(const pst_registry_conf *conf, registry_http **ret, pst_err *err)
{
    registry_http *h = pst_alloc(sizeof *h);
    pthread_mutex_init(&h->lock, NULL);
    int rc = PST_OK;
    for (const char *p = conf->url ? conf->url : ""; *p;) {
        p += strspn(p, ", ");
        size_t len = strcspn(p, ", ");
        if (!len)
            break;
        if (h->n == URLS_MAX) {
            rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "registry", 0, "more than %d registry addresses", URLS_MAX);
            goto out;
        }
        rc = parse_address(p, len, &h->at[h->n], err);
        h->n++;
        if (rc < 0)
            goto out;
        p += len;
    }
    if (!h->n) {
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "registry", 0, "no registry address was given (--registry, PENSTOCK_REGISTRY)");
        goto out;
    }
    h->user = pst_strdup(conf->user);
    h->password = pst_strdup(conf->password);
    h->ca_file = pst_strdup(conf->ca_file);
    h->timeout_ms = conf->timeout_ms > 0 ? conf->timeout_ms : 5000;
    PST_ASSERT(h->n <= URLS_MAX && h->preferred < h->n);
    *ret = h;
    h = NULL;
out:
    registry_http_free(h);
    return rc;
}

void registry_http_free(registry_http *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->n; i++) {
        free(h->at[i].base);
        free(h->at[i].user);
        free(h->at[i].password);
    }
    if (h->curl) {
        curl_easy_cleanup(h->curl);
        curl_slist_free_all(h->headers);
    }
    pthread_mutex_destroy(&h->lock);
    free(h->user);
    free(h->password);
    free(h->ca_file);
    free(h);
}

const char *registry_http_url(const registry_http *h)
{
    return h->at[0].base;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    pst_buf *b = arg;
    if (b->len + n > ANSWER_MAX)
        return 0;
    pst_buf_add(b, data, n);
    return n;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    return pst_stop_forced() ? 1 : 0;
}

static void prepare(registry_http *h, const address *a, const char *method, const char *url, const char *body, pst_buf *answer, char *why)
{
    CURL *c = h->curl;
    curl_easy_reset(c); /* keeps the connection */
    curl_easy_setopt(c, CURLOPT_URL, url);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(c, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, h->headers);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "penstock/" PST_VERSION);
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)h->timeout_ms);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)(h->timeout_ms < 3000 ? h->timeout_ms : 3000));
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, answer);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, method);
    if (body) {
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, body);
    }
    const char *user = h->user, *password = h->password;
    if (a->user) { /* an address's own go to that address alone, both of them */
        user = a->user;
        password = a->password;
    }
    if (user) {
        curl_easy_setopt(c, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        curl_easy_setopt(c, CURLOPT_USERNAME, user);
        curl_easy_setopt(c, CURLOPT_PASSWORD, password ? password : "");
    }
    if (h->ca_file)
        curl_easy_setopt(c, CURLOPT_CAINFO, h->ca_file);
}

static int transport_error(CURLcode code, const char *base, const char *why, pst_err *err)
{
    PST_ASSERT(code != CURLE_OK);
    const char *text = *why ? why : curl_easy_strerror(code);
    switch (code) {
    case CURLE_ABORTED_BY_CALLBACK:
        return pst_err_set(err, PST_ESTOPPED, PST_CLASS_RETRY, "registry", 0, "told to stop while asking the registry at %s", base);
    case CURLE_WRITE_ERROR:
        return pst_err_set(err, PST_EPARSE, PST_CLASS_RETRY, "registry", 0, "the registry at %s answered with more than %u MiB", base,
                           ANSWER_MAX >> 20);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return pst_err_set(err, PST_EAUTH, PST_CLASS_FATAL, "registry", 0,
                           "the certificate of the registry at %s is not trusted: %s; give its CA (PEM)", base, text);
    default: break;
    }
    return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "registry", (int)code, "the schema registry at %s does not answer: %s", base,
                       text);
}

/* A status outside 2xx, by the rules of registry.h: the status decides, the error_code in the body only goes into native. But a 404 without one is
 * no registry's: a proxy whose back end is away, or a page. Taken for an answer it would turn sound records into unreadable ones. */
static int status_error(long status, const pst_buf *answer, const char *base, const char *what, pst_err *err)
{
    PST_ASSERT(status < 200 || status > 299);
    static const struct {
        long status;
        int code;
        pst_err_class cls;
    } rows[] = {{404, PST_ENOTFOUND, PST_CLASS_DATA}, {409, PST_EINCOMPAT, PST_CLASS_DATA}, {401, PST_EAUTH, PST_CLASS_FATAL},
                {403, PST_EAUTH, PST_CLASS_FATAL},    {429, PST_EUNREACH, PST_CLASS_RETRY}, {413, PST_ELIMIT, PST_CLASS_DATA}};
    int code = status >= 500 ? PST_EUNREACH : PST_EINVAL;
    pst_err_class cls = status >= 500 ? PST_CLASS_RETRY : PST_CLASS_DATA;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].status == status) {
            code = rows[i].code;
            cls = rows[i].cls;
        }
    json_t *j = answer->len ? json_loadb(answer->data, answer->len, 0, NULL) : NULL;
    int native = (int)pst_json_int(j, "error_code", status);
    if (status == 404 && !json_is_integer(json_object_get(j, "error_code"))) {
        json_decref(j);
        return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "registry", 404,
                           "%s: %s answered 404, but not as a schema registry does (is it one, and its path right?)", what, base);
    }
    const char *message = pst_json_str(j, "message", "");
    pst_err_set(err, code, cls, "registry", native, "%s: the registry at %s answered %ld%s%.300s", what, base, status, *message ? ": " : "",
                message);
    json_decref(j);
    return code;
}

static int attempt(registry_http *h, const address *a, const char *method, const char *path, const char *body, json_t **ret_json,
                   pst_err *err)
{
    PST_ASSERT(h->curl && *path == '/'); /* an address has no slash at its end */
    pst_buf answer = {0};
    char why[CURL_ERROR_SIZE] = "";
    char *url = pst_sprintf("%s%s", a->base, path);
    char *what = pst_sprintf("%s %.160s", method, path);
    prepare(h, a, method, url, body, &answer, why);
    CURLcode code = curl_easy_perform(h->curl);
    long status = 0;
    curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &status);
    int rc;
    json_error_t je;
    json_t *j = NULL;
    if (code != CURLE_OK)
        rc = transport_error(code, a->base, why, err);
    else if (status < 200 || status > 299)
        rc = status_error(status, &answer, a->base, what, err);
    else if (!(j = json_loadb(answer.data ? answer.data : "", answer.len, JSON_DECODE_ANY, &je)))
        rc = pst_err_set(err, PST_EPARSE, PST_CLASS_RETRY, "registry", (int)status,
                         "%s: the answer of %s is not JSON: %s (is it a schema registry?)", what, a->base, je.text);
    else {
        *ret_json = j;
        rc = PST_OK;
    }
    pst_buf_done(&answer);
    free(url);
    free(what);
    return rc;
}

/* Under the lock. */
static int ready(registry_http *h, pst_err *err)
{
    int rc = h->curl ? 0 : curl_lib_open(err);
    if (rc < 0 || h->curl)
        return rc;
    pthread_once(&once, init_curl);
    h->curl = curl_easy_init();
    if (!h->curl)
        return pst_err_set(err, PST_ENOMEM, PST_CLASS_FATAL, "registry", 0, "libcurl could not be started");
    h->headers = curl_slist_append(h->headers,
                                   "Accept: application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json, application/json");
    h->headers = curl_slist_append(h->headers, "Content-Type: application/vnd.schemaregistry.v1+json");
    h->headers = curl_slist_append(h->headers, "Expect:"); /* saves a round trip for schemas beyond 1 MiB */
    return 0;
}

int registry_http_call(registry_http *h, const char *method, const char *path, const char *body, json_t **ret_json, pst_err *err)
{
    pst_err last = {0};
    pthread_mutex_lock(&h->lock);
    PST_ASSERT(h->n && h->preferred < h->n);
    int rc = ready(h, &last);
    if (!rc)
        rc = PST_EUNREACH;
    for (int round = 0; round < ROUNDS && rc == PST_EUNREACH; round++) {
        if (round && pst_stop_requested())
            break;
        if (round)
            pst_sleep_ms(PAUSE_MS);
        for (size_t i = 0; i < h->n && rc == PST_EUNREACH; i++) {
            size_t k = (h->preferred + i) % h->n;
            pst_err_clear(&last);
            rc = attempt(h, &h->at[k], method, path, body, ret_json, &last);
            if (rc == PST_OK)
                h->preferred = k;
        }
    }
    pthread_mutex_unlock(&h->lock);
    PST_ASSERT(rc == PST_OK || last.code < 0); /* whoever failed has said why */
    if (rc < 0)
        pst_err_set(err, last.code, last.cls, "registry", last.native, "%s", last.text);
    return rc;
}
