/* verifier.c - one thread and a short queue. One thread, because a second would only let somebody who guesses take a second core; short, because
 * whoever waits longer than a few seconds asks again anyway. One address fills only a part of it, so that who guesses does not keep others out. The same question asked by several requests at once (a page that opens) is computed
 * once: before a hash is computed the memory is asked again. */
#include "producers/gateway/verifier.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/password.h"
#include "common/base/thread.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From loopback come all users of this computer, and all whom a proxy lets through. */
enum { WAITING_MAX = 64, PER_PEER_MAX = 4, LOOPBACK_MAX = WAITING_MAX / 2, KNOWN_MAX = 1024, KEY = 32, RETRY_US = 5000 };
#define KNOWN_US (10 * 60 * 1000000LL)

typedef struct question {
    gw_verifier *v;
    char *hash, *password;
    char peer[INET6_ADDRSTRLEN];
    gw_verified fn;
    void *arg;
    bool right;
    struct question *next;
} question;

typedef struct known {
    uint8_t digest[32];
    int64_t until_us;
} known;

struct gw_verifier {
    pst_loop *loop;
    pthread_t thread;
    uint8_t key[KEY];
    question *open[WAITING_MAX]; /* asked and not answered; loop's thread */
    size_t n_open;
    bool ending; /* likewise */
    pthread_mutex_t lock;
    pthread_cond_t more;
    question *first, **last; /* with the lock, as all below */
    question *done;          /* computed and not posted, the loop's queue having been full to the end */
    bool stop;
    known known[KNOWN_MAX];
    size_t n_known; /* ever */
};

static void digest_of(const gw_verifier *v, const char *hash, const char *password, uint8_t ret[32])
{
    pst_sha256 *h = pst_sha256_new();
    pst_sha256_add(h, v->key, sizeof v->key);
    pst_sha256_add(h, hash, strlen(hash) + 1);
    pst_sha256_add(h, password, strlen(password));
    pst_sha256_end(h, ret);
}

/* With the lock. Remembered on from each use, so that who works here is not asked in the middle of it, when others fill the queue. */
static bool recall(gw_verifier *v, const uint8_t digest[32])
{
    int64_t now = pst_mono_us();
    for (size_t i = 0; i < KNOWN_MAX && i < v->n_known; i++)
        if (v->known[i].until_us > now && !memcmp(v->known[i].digest, digest, 32)) {
            v->known[i].until_us = now + KNOWN_US;
            return true;
        }
    return false;
}

bool gw_verifier_knows(gw_verifier *v, const char *hash, const char *password)
{
    uint8_t digest[32];
    digest_of(v, hash, password, digest);
    pthread_mutex_lock(&v->lock);
    bool yes = recall(v, digest);
    pthread_mutex_unlock(&v->lock);
    return yes;
}

static void question_free(question *q)
{
    explicit_bzero(q->password, strlen(q->password));
    free(q->password);
    free(q->hash);
    free(q);
}

/* @thread loop */
static void answer(void *arg)
{
    question *q = arg;
    gw_verifier *v = q->v;
    size_t i = 0;
    while (i < v->n_open && v->open[i] != q)
        i++;
    PST_ASSERT(i < v->n_open);
    v->open[i] = v->open[--v->n_open];
    q->fn(q->arg, q->right);
    question_free(q);
}

static void compute(gw_verifier *v, question *q)
{
    uint8_t digest[32];
    digest_of(v, q->hash, q->password, digest);
    pthread_mutex_lock(&v->lock);
    q->right = recall(v, digest);
    pthread_mutex_unlock(&v->lock);
    if (q->right)
        return;
    q->right = pst_password_is(q->hash, q->password);
    if (!q->right)
        return;
    pthread_mutex_lock(&v->lock);
    known *k = &v->known[v->n_known++ % KNOWN_MAX];
    memcpy(k->digest, digest, sizeof k->digest);
    k->until_us = pst_mono_us() + KNOWN_US;
    pthread_mutex_unlock(&v->lock);
}

/* 65,536 may wait in the loop's queue: it is tried again until there is room, or the end. */
static void hand_over(gw_verifier *v, question *q)
{
    while (pst_loop_post(v->loop, answer, q) < 0) {
        pthread_mutex_lock(&v->lock);
        bool stop = v->stop;
        if (stop) {
            q->next = v->done;
            v->done = q;
        }
        pthread_mutex_unlock(&v->lock);
        if (stop)
            return;
        usleep(RETRY_US);
    }
}

static void *run(void *arg)
{
    gw_verifier *v = arg;
    pthread_mutex_lock(&v->lock);
    while (!v->stop) {
        question *q = v->first;
        if (!q) {
            pthread_cond_wait(&v->more, &v->lock);
            continue;
        }
        v->first = q->next;
        if (!v->first)
            v->last = &v->first;
        pthread_mutex_unlock(&v->lock);
        compute(v, q);
        hand_over(v, q);
        pthread_mutex_lock(&v->lock);
    }
    pthread_mutex_unlock(&v->lock);
    return NULL;
}

int gw_verifier_new(pst_loop *loop, gw_verifier **ret_verifier, pst_err *err)
{
    gw_verifier *v = pst_alloc(sizeof *v);
    v->loop = loop;
    v->last = &v->first;
    pst_random(v->key, sizeof v->key);
    pthread_mutex_init(&v->lock, NULL);
    pst_cond_init(&v->more);
    int failed = pst_thread_start(&v->thread, "gateway-crypt", run, v);
    if (failed) {
        free(v);
        return pst_err_sys(err, failed, "cannot start the thread that looks at passwords");
    }
    *ret_verifier = v;
    return 0;
}

static void answer_all(question *q)
{
    while (q) {
        question *next = q->next;
        q->right = false;
        answer(q);
        q = next;
    }
}

void gw_verifier_stop(gw_verifier *v)
{
    if (!v || v->ending)
        return;
    v->ending = true;
    pthread_mutex_lock(&v->lock);
    v->stop = true;
    pthread_cond_signal(&v->more);
    pthread_mutex_unlock(&v->lock);
    pthread_join(v->thread, NULL);
    answer_all(v->first);
    answer_all(v->done);
    v->first = v->done = NULL;
    for (int i = 0; i < 200 && v->n_open; i++) /* those that were posted */
        pst_loop_run_for(v->loop, 5);
}

void gw_verifier_free(gw_verifier *v)
{
    if (!v)
        return;
    gw_verifier_stop(v);
    pthread_mutex_destroy(&v->lock);
    pthread_cond_destroy(&v->more);
    explicit_bzero(v, sizeof *v);
    free(v);
}

/* Who has one address of IPv6 has those of its /64, too. */
static void peer_of(const char *address, char ret[INET6_ADDRSTRLEN])
{
    struct in6_addr a;
    snprintf(ret, INET6_ADDRSTRLEN, "%s", address);
    if (inet_pton(AF_INET6, address, &a) != 1 || IN6_IS_ADDR_V4MAPPED(&a) || IN6_IS_ADDR_LOOPBACK(&a))
        return;
    memset(a.s6_addr + 8, 0, 8);
    inet_ntop(AF_INET6, &a, ret, INET6_ADDRSTRLEN);
}

/* May this address ask one more? What somebody asks already costs no second hash and is not counted. */
static bool has_room(const gw_verifier *v, const question *q)
{
    bool loopback = !strncmp(q->peer, "127.", 4) || !strcmp(q->peer, "::1");
    size_t n = 0;
    for (size_t i = 0; i < v->n_open; i++) {
        const question *o = v->open[i];
        if (!strcmp(o->hash, q->hash) && !strcmp(o->password, q->password))
            return v->n_open < WAITING_MAX;
        n += !strcmp(o->peer, q->peer);
    }
    return v->n_open < WAITING_MAX && n < (loopback ? LOOPBACK_MAX : PER_PEER_MAX);
}

bool gw_verifier_ask(gw_verifier *v, const char *peer, const char *hash, const char *password, gw_verified fn, void *arg)
{
    if (v->ending)
        return false;
    question *q = pst_alloc(sizeof *q);
    *q = (question){.v = v, .hash = pst_strdup(hash), .password = pst_strdup(password), .fn = fn, .arg = arg};
    peer_of(peer, q->peer);
    if (!has_room(v, q)) {
        question_free(q);
        return false;
    }
    v->open[v->n_open++] = q;
    pthread_mutex_lock(&v->lock);
    *v->last = q;
    v->last = &q->next;
    pthread_cond_signal(&v->more);
    pthread_mutex_unlock(&v->lock);
    return true;
}
