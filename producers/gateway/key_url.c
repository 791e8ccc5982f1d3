/* key_url.c - one thread that sleeps until a time, or until somebody asks. The keys pass to the loop through one place that holds the newest, so that neither waits for the
 * other. Only an answer with other bytes than the last counts as other keys: streams of those who came by a token end when the keys change, and most answers are the same. */
#include "producers/gateway/key_url.h"

#include "common/base/address.h"
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/http/fetch.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    ANSWER_MAX = 1 << 20,
    TIMEOUT_MS = 5000,
    AGE_S = 600,
    AGE_MIN_S = 60,
    AGE_MAX_S = 86400,
    RETRY_MIN_S = 10,
    RETRY_MAX_S = 300,
    AGAIN_MS = 30000
};

struct gw_key_url {
    char *url, *ca_file;
    int again_ms;
    pthread_t thread;
    _Atomic bool stop;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;
    bool asked;
    pst_jwks *fresh;
    /* The thread's own. */
    pst_fetch *fetch;
    char seen[65], *why; /* digest of the answer that was taken; what was said of the last failure */
    int retry_s;
    pst_buf body;
    int64_t age_s; /* of the answer at hand; -1: it says none */
};

bool gw_key_url_is(const char *text)
{
    return text && strstr(text, "://");
}

/* ---- one fetch; on the thread ---------------------------------------------------------------------------------------------- */

static bool take_body(void *arg, const void *data, size_t len)
{
    gw_key_url *u = arg;
    if (u->body.len + len > ANSWER_MAX)
        return false;
    pst_buf_add(&u->body, data, len);
    return true;
}

/* RFC 9111, 5.2.2: a list of words; max-age="60" is taken, too. */
static void take_header(void *arg, const char *name, const char *value)
{
    gw_key_url *u = arg;
    if (strcasecmp(name, "Cache-Control") != 0)
        return;
    if (strcasestr(value, "no-store") || strcasestr(value, "no-cache"))
        u->age_s = 0;
    const char *age = strcasestr(value, "max-age=");
    if (age && u->age_s < 0) {
        age += 8 + (age[8] == '"');
        u->age_s = strspn(age, "0123456789") ? strtoll(age, NULL, 10) : 0; /* a number that is too large stays the largest */
    }
}

static bool stopped(void *arg)
{
    return ((gw_key_url *)arg)->stop;
}

static int fetch(gw_key_url *u, pst_jwks **ret_keys, pst_err *err)
{
    pst_fetch_answer a;
    static const char *const accept[] = {"Accept: application/jwk-set+json, application/json"};
    pst_buf_clear(&u->body);
    u->age_s = -1;
    pst_fetch_do(u->fetch,
                 &(pst_fetch_request){.method = "GET",
                                      .url = u->url,
                                      .headers = accept,
                                      .n_headers = 1,
                                      .take = take_body,
                                      .header = take_header,
                                      .stopped = stopped,
                                      .arg = u,
                                      .ca_file = u->ca_file,
                                      .timeout_ms = TIMEOUT_MS},
                 &a);
    if (a.end == PST_FETCH_REFUSED)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_RETRY, "jwks", 0, "%s answers with more than 1 MiB", u->url);
    if (a.end != PST_FETCH_ANSWERED)
        return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "jwks", a.native, "%s cannot be fetched: %s%s", u->url, a.why,
                           a.end == PST_FETCH_NOT_TRUSTED ? "; name its CA with --jwks-ca" : "");
    if (a.status != 200)
        return pst_err_set(err, PST_EUNREACH, PST_CLASS_RETRY, "jwks", (int)a.status,
                           "%s answers %ld, and not 200 (a redirect is not followed: give the address that it leads to)", u->url, a.status);
    return pst_jwks_parse(u->body.data ? u->body.data : "", u->body.len, ret_keys, err);
}

static void give(gw_key_url *u, pst_jwks *take)
{
    pthread_mutex_lock(&u->lock);
    pst_jwks *before = u->fresh;
    u->fresh = take;
    pthread_mutex_unlock(&u->lock);
    pst_jwks_free(before);
}

/* Returns in how many seconds the next one is due. */
static int64_t look(gw_key_url *u)
{
    pst_jwks *keys = NULL;
    pst_err err = {0};
    char digest[65];
    if (fetch(u, &keys, &err) < 0) {
        if (!u->stop && (!u->why || strcmp(u->why, err.text) != 0))
            pst_log(PST_LOG_WARN, "gateway", "event=keys_kept url=%s reason=\"%s; %s\"", u->url, err.text,
                    *u->seen ? "the keys of before stay" : "there are none yet, and no token of the provider lets in");
        free(u->why);
        u->why = pst_strdup(err.text);
        u->retry_s = u->retry_s ? u->retry_s * 2 : RETRY_MIN_S;
        u->retry_s = u->retry_s > RETRY_MAX_S ? RETRY_MAX_S : u->retry_s;
        return u->retry_s;
    }
    pst_sha256_hex(u->body.data, u->body.len, digest);
    bool same = !strcmp(digest, u->seen);
    if (!same || u->why)
        pst_log(PST_LOG_INFO, "gateway", "event=keys_fetched url=%s", u->url);
    free(u->why);
    u->why = NULL;
    u->retry_s = 0;
    memcpy(u->seen, digest, sizeof digest);
    if (same)
        pst_jwks_free(keys);
    else
        give(u, keys);
    int64_t age_s = u->age_s < 0 ? AGE_S : u->age_s;
    return age_s < AGE_MIN_S ? AGE_MIN_S : age_s > AGE_MAX_S ? AGE_MAX_S : age_s;
}

/* Until it is due, or was asked for and may be again; false: it ends. */
static bool wait_until(gw_key_url *u, int64_t due_us, int64_t last_us)
{
    int64_t may_us = last_us + (int64_t)u->again_ms * 1000;
    pthread_mutex_lock(&u->lock);
    for (;;) {
        int64_t until_us = u->asked && may_us < due_us ? may_us : due_us;
        if (u->stop || pst_mono_us() >= until_us)
            break;
        struct timespec until = pst_mono_at(until_us);
        pthread_cond_timedwait(&u->wake, &u->lock, &until);
    }
    u->asked = false;
    pthread_mutex_unlock(&u->lock);
    return !u->stop;
}

static void *run(void *arg)
{
    gw_key_url *u = arg;
    int64_t last_us, due_s;
    do {
        last_us = pst_mono_us();
        due_s = look(u);
    } while (wait_until(u, pst_mono_us() + due_s * 1000000, last_us));
    return NULL;
}

/* ---- its users' side ------------------------------------------------------------------------------------------------------- */

/* In the clear to this computer alone: whoever could change the answer on its way could let himself in. */
static const char *wrong_with(const char *url)
{
    bool plain = !strncmp(url, "http://", 7);
    if (!plain && strncmp(url, "https://", 8) != 0)
        return "is neither https:// nor http://";
    const char *host = url + (plain ? 7 : 8);
    size_t authority = strcspn(host, "/?#");
    if (memchr(host, '@', authority))
        return "holds a name or password; keys are public, leave it out";
    if (strpbrk(url, " \t\r\n\"\\"))
        return "has a character that no address has";
    bool bracketed = *host == '[';
    char *name = bracketed ? pst_strndup(host + 1, strcspn(host + 1, "]")) : pst_strndup(host, strcspn(host, ":/?#"));
    bool here = (pst_address_is_numeric(name) && pst_address_is_loopback(name)) || !strcasecmp(name, "localhost"), none = !*name;
    free(name);
    if (none)
        return "names no host";
    return plain && !here ? "is http, and beyond this computer only https is taken: whoever changes the answer on its way lets himself in"
                          : NULL;
}

int gw_key_url_open(const gw_key_url_conf *conf, gw_key_url **ret_url, pst_err *err)
{
    const char *wrong = wrong_with(conf->url);
    if (wrong)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "--jwks %.300s %s",
                           memchr(conf->url, '@', strlen(conf->url)) ? "" : conf->url, wrong);
    gw_key_url *u = pst_alloc(sizeof *u);
    int rc = pst_fetch_open(&u->fetch, err);
    if (rc < 0) {
        free(u);
        return rc;
    }
    u->url = pst_strdup(conf->url);
    u->ca_file = pst_strdup(conf->ca_file);
    u->again_ms = conf->again_ms ? conf->again_ms : AGAIN_MS;
    pthread_mutex_init(&u->lock, NULL);
    pst_cond_init(&u->wake);
    int failed = pst_thread_start(&u->thread, "keys", run, u);
    if (!failed) {
        *ret_url = u;
        return 0;
    }
    u->stop = true;
    rc = pst_err_sys(err, failed, "no thread for --jwks");
    pst_fetch_close(u->fetch);
    free(u->url);
    free(u->ca_file);
    free(u);
    return rc;
}

void gw_key_url_close(gw_key_url *u)
{
    if (!u)
        return;
    pthread_mutex_lock(&u->lock);
    u->stop = true;
    pthread_cond_signal(&u->wake);
    pthread_mutex_unlock(&u->lock);
    pthread_join(u->thread, NULL); /* a fetch hears it within a second */
    pst_fetch_close(u->fetch);
    pst_jwks_free(u->fresh);
    pthread_mutex_destroy(&u->lock);
    pthread_cond_destroy(&u->wake);
    pst_buf_done(&u->body);
    free(u->why);
    free(u->url);
    free(u->ca_file);
    free(u);
}

pst_jwks *gw_key_url_take(gw_key_url *u)
{
    pthread_mutex_lock(&u->lock);
    pst_jwks *keys = u->fresh;
    u->fresh = NULL;
    pthread_mutex_unlock(&u->lock);
    return keys;
}

void gw_key_url_ask(gw_key_url *u)
{
    pthread_mutex_lock(&u->lock);
    u->asked = true;
    pthread_cond_signal(&u->wake);
    pthread_mutex_unlock(&u->lock);
}
