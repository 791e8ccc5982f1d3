/* registry_http.c - requests to one of several registries, the one that answered last first. Answers are untrusted as well: at most 8 MiB, no redirects, http and https only.
 * The way there is opened by the first request (common/http): a process whose schema ids are known already never opens it. */
#include "common/registry/registry_http.h"

#include "common/base/clock.h"
#include "common/base/stop.h"
#include "common/http/fetch.h"

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
    pst_fetch *fetch; /* NULL until the first request */
    address at[URLS_MAX];
    size_t n, preferred; /* the one that answered last */
    char *user, *password, *ca_file;
    int timeout_ms;
};

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
        ret->user = pst_fetch_unescape(host, (size_t)(end - host));
        ret->password = colon ? pst_fetch_unescape(colon + 1, (size_t)(at - colon - 1)) : pst_strdup("");
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
    pst_fetch_close(h->fetch);
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

static bool take(void *arg, const void *data, size_t len)
{
    pst_buf *b = arg;
    if (b->len + len > ANSWER_MAX)
        return false;
    pst_buf_add(b, data, len);
    return true;
}

static int transport_error(const pst_fetch_answer *answer, const char *base, pst_err *err)
{
    switch (answer->end) {
    case PST_FETCH_STOPPED:
        return pst_err_set(err, PST_ESTOPPED, PST_CLASS_RETRY, "registry", 0, "told to stop while asking the registry at %s", base);
    case PST_FETCH_REFUSED:
        return pst_err_set(err, PST_EPARSE, PST_CLASS_RETRY, "registry", 0, "the registry at %s answered with more than %u MiB", base,
                           ANSWER_MAX >> 20);
    case PST_FETCH_NOT_TRUSTED:
        return pst_err_set(err, PST_EAUTH, PST_CLASS_FATAL, "registry", 0,
                           "the certificate of the registry at %s is not trusted: %s; give its CA (PEM)", base, answer->why);
    default: break;
    }
    return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "registry", answer->native, "the schema registry at %s does not answer: %s",
                       base, answer->why);
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
    static const char *const headers[] = {
        "Accept: application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json, application/json",
        "Content-Type: application/vnd.schemaregistry.v1+json", "Expect:"}; /* the last saves a round trip for schemas beyond 1 MiB */
    PST_ASSERT(h->fetch && *path == '/');                                   /* an address has no slash at its end */
    pst_buf answer = {0};
    pst_fetch_answer how;
    char *url = pst_sprintf("%s%s", a->base, path);
    char *what = pst_sprintf("%s %.160s", method, path);
    bool own = a->user != NULL; /* an address's own go to that address alone, both of them */
    pst_fetch_do(h->fetch,
                 &(pst_fetch_request){.method = method,
                                      .url = url,
                                      .headers = headers,
                                      .n_headers = sizeof headers / sizeof *headers,
                                      .body = body,
                                      .body_len = body ? strlen(body) : 0,
                                      .take = take,
                                      .arg = &answer,
                                      .user = own ? a->user : h->user,
                                      .password = own ? a->password : h->password,
                                      .ca_file = h->ca_file,
                                      .timeout_ms = h->timeout_ms},
                 &how);
    long status = how.status;
    int rc;
    json_error_t je;
    json_t *j = NULL;
    if (how.end != PST_FETCH_ANSWERED)
        rc = transport_error(&how, a->base, err);
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

int registry_http_call(registry_http *h, const char *method, const char *path, const char *body, json_t **ret_json, pst_err *err)
{
    pst_err last = {0};
    pthread_mutex_lock(&h->lock);
    PST_ASSERT(h->n && h->preferred < h->n);
    int rc = h->fetch ? 0 : pst_fetch_open(&h->fetch, &last);
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
