/* objects_s3.c - the object store in a bucket; see objects.h. Keys are the same as in a folder, below the prefix of the URL. What a bucket
 * lacks is locks: an object that is put or touched again is written anew (copied onto itself), which sets its age,
 * and who removes by age looks at that age in the request before. Between those two requests nobody is kept out: the age that is asked for (days) is
 * what makes it safe, as on file systems without locks.
 *
 * Credentials are read from the environment alone. An address with them would stand in events, since objects are named by their addresses there. */
#include "common/objects/objects_s3.h"

#include "common/base/stop.h"
#include "common/objects/s3.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE_MS = 30000, PUT_TRIES = 3 };

struct objects_s3 {
    pst_s3 *s3;
    pthread_mutex_t lock; /* of s3: one request at a time */
    char *root;           /* "s3://bucket/prefix" */
    char *prefix;         /* "prefix/", or "" */
    char *host;
};

/* The first of these variables that says something; NULL: none does. */
static const char *first_of(const char *ours, const char *theirs, const char *older)
{
    const char *const names[] = {ours, theirs, older};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = names[i] ? getenv(names[i]) : NULL;
        if (value && *value)
            return value;
    }
    return NULL;
}

static int needs(const char *url, const char *what, const char *ours, const char *theirs, pst_err *err)
{
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                       "the object store %s needs %s: set %s (or %s) in the environment of this process", url, what, ours, theirs);
}

/* What the conf borrows is the environment's. */
static int read_environment(const char *url, pst_s3_conf *c, pst_err *err)
{
    c->url = first_of("PENSTOCK_OBJECTS_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
    c->region = first_of("PENSTOCK_OBJECTS_REGION", "AWS_REGION", "AWS_DEFAULT_REGION");
    c->user = first_of("PENSTOCK_OBJECTS_ACCESS_KEY", "AWS_ACCESS_KEY_ID", NULL);
    c->password = first_of("PENSTOCK_OBJECTS_SECRET_KEY", "AWS_SECRET_ACCESS_KEY", NULL);
    c->session = first_of("PENSTOCK_OBJECTS_SESSION_TOKEN", "AWS_SESSION_TOKEN", NULL);
    c->ca_file = first_of("PENSTOCK_OBJECTS_CA", "AWS_CA_BUNDLE", NULL);
    if (!c->url)
        return needs(url, "the address of its server, as https://host", "PENSTOCK_OBJECTS_ENDPOINT", "AWS_ENDPOINT_URL", err);
    if (!c->user)
        return needs(url, "an access key", "PENSTOCK_OBJECTS_ACCESS_KEY", "AWS_ACCESS_KEY_ID", err);
    if (!c->password)
        return needs(url, "the secret of its access key", "PENSTOCK_OBJECTS_SECRET_KEY", "AWS_SECRET_ACCESS_KEY", err);
    return 0;
}

/* s3.c speaks of the fields of a manifest's data store; here the same are variables. */
static int as_setting(int rc, const char *url, pst_err *err)
{
    if (rc < 0 && err)
        pst_err_set(
            err, rc, PST_CLASS_FATAL, "config", 0,
            "the object store %s cannot be used: PENSTOCK_OBJECTS_ENDPOINT must be http://host:port or https://host without user, path or "
            "query, the bucket letters, digits, dots, underscores and dashes, the region letters, digits and dashes, and the access key "
            "without a colon",
            url);
    return rc;
}

static bool is_prefix(const char *p)
{
    return !*p || (!pst_s3_key_problem(p) && !strpbrk(p, "?#@ %\\"));
}

static bool asked_to_stop(void *arg)
{
    return pst_stop_requested();
}

int objects_s3_open(const char *url, objects_s3 **ret_bucket, pst_err *err)
{
    const char *name = url + strlen("s3://");
    size_t n = strncmp(url, "s3://", 5) ? 0 : strcspn(name, "/");
    const char *prefix = n ? name + n + (name[n] == '/') : "";
    size_t len = strlen(prefix);
    while (len && prefix[len - 1] == '/')
        len--;
    char *folder = pst_strndup(prefix, len), *bucket = n ? pst_strndup(name, n) : NULL;
    pst_s3_conf conf = {.bucket = bucket, .patience_ms = PATIENCE_MS, .stopped = asked_to_stop};
    pst_s3 *s3 = NULL;
    int rc = 0;
    if (!bucket || !is_prefix(folder))
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0, "object store '%.200s' is not of the form s3://BUCKET/PREFIX", url);
    if (!rc)
        rc = read_environment(url, &conf, err);
    if (!rc)
        rc = as_setting(pst_s3_open(&conf, &s3, err), url, err);
    if (!rc) {
        objects_s3 *b = pst_alloc(sizeof *b);
        b->s3 = s3;
        b->root = pst_sprintf("s3://%s%s%s", bucket, len ? "/" : "", folder);
        b->prefix = pst_sprintf("%s%s", folder, len ? "/" : "");
        b->host = pst_strdup(conf.url);
        pthread_mutex_init(&b->lock, NULL);
        *ret_bucket = b;
    }
    free(folder);
    free(bucket);
    return rc;
}

void objects_s3_close(objects_s3 *b)
{
    if (!b)
        return;
    pst_s3_close(b->s3);
    pthread_mutex_destroy(&b->lock);
    free(b->root);
    free(b->prefix);
    free(b->host);
    free(b);
}

void objects_s3_patience(objects_s3 *b, int ms)
{
    pst_s3_patience(b->s3, ms);
}

const char *objects_s3_root(const objects_s3 *b)
{
    return b->root;
}

/* The object, and not its bucket: a server tells which by the code in its answer, which stands in the error's text. */
static bool is_absent(int rc, const pst_err *e)
{
    return rc == PST_ENOTFOUND && !strstr(e->text, "NoSuchBucket");
}

/* What is wrong with the store as a whole is the operator's to mend, and no fault of what was to be stored: it is kept and tried again. */
static int as_store(const objects_s3 *b, int rc, pst_err *e, pst_err *err)
{
    if (rc >= 0)
        return rc;
    const char *cure = "";
    if (rc == PST_EAUTH) {
        cure = " (PENSTOCK_OBJECTS_ACCESS_KEY and PENSTOCK_OBJECTS_SECRET_KEY, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, must be of "
               "a user who may list, read and write this bucket)";
        e->cls = PST_CLASS_RETRY;
    } else if (rc == PST_ENOTFOUND && !is_absent(rc, e)) {
        cure = " (make the bucket, or name another with --objects)";
        rc = PST_EUNREACH;
        e->cls = PST_CLASS_RETRY;
    } else if (rc == PST_EUNREACH) {
        cure = " (PENSTOCK_OBJECTS_ENDPOINT or AWS_ENDPOINT_URL says where it is)";
    } else if (rc == PST_EAGAIN) {
        e->cls = PST_CLASS_RETRY;
    }
    /* "connection.user_name …" is the manifest's word for it, and not this user's. */
    char *hint = strstr(e->text, "; are connection.");
    if (hint)
        *hint = 0;
    return pst_err_set(err, rc, e->cls, "objects", e->native, "object store %s: %s%s", b->root, e->text, cure);
}

int objects_s3_check(objects_s3 *b, pst_err *err)
{
    pst_err e = {0};
    pthread_mutex_lock(&b->lock);
    int rc = pst_s3_check(b->s3, &e);
    pthread_mutex_unlock(&b->lock);
    return as_store(b, rc, &e, err);
}

static char *full(const objects_s3 *b, const char *key)
{
    return pst_sprintf("%s%s", b->prefix, key);
}

static int absent(const objects_s3 *b, const char *key, pst_err *err)
{
    return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "objects", 0, "there is no object %s in the store %s", key, b->root);
}

/* What is there already is not sent again, but is as new as if it had been. */
int objects_s3_put(objects_s3 *b, const char *key, int fd, pst_err *err)
{
    pst_err e = {0};
    char *name = full(b, key);
    int rc = PST_ENOTFOUND;
    pthread_mutex_lock(&b->lock);
    for (int i = 0; i < PUT_TRIES && rc == PST_ENOTFOUND; i++) {
        bool sent = false;
        pst_err_clear(&e);
        rc = pst_s3_put(b->s3, name, fd, &sent, &e);
        if (rc || sent)
            break;
        rc = pst_s3_touch(b->s3, name, &e); /* not found: it was removed between the two */
    }
    pthread_mutex_unlock(&b->lock);
    free(name);
    return as_store(b, rc, &e, err);
}

int objects_s3_get(objects_s3 *b, const char *key, int fd, int64_t bytes_max, pst_err *err)
{
    pst_err e = {0};
    char *name = full(b, key);
    pthread_mutex_lock(&b->lock);
    int rc = pst_s3_get(b->s3, name, fd, bytes_max, NULL, &e);
    pthread_mutex_unlock(&b->lock);
    free(name);
    if (is_absent(rc, &e))
        return absent(b, key, err);
    return as_store(b, rc, &e, err);
}

int objects_s3_delete(objects_s3 *b, const char *key, pst_err *err)
{
    pst_err e = {0};
    char *name = full(b, key);
    pthread_mutex_lock(&b->lock);
    int rc = pst_s3_delete(b->s3, name, &e);
    pthread_mutex_unlock(&b->lock);
    free(name);
    return is_absent(rc, &e) ? 0 : as_store(b, rc, &e, err);
}

int objects_s3_touch(objects_s3 *b, const char *key, pst_err *err)
{
    pst_err e = {0};
    char *name = full(b, key);
    pthread_mutex_lock(&b->lock);
    int rc = pst_s3_touch(b->s3, name, &e);
    pthread_mutex_unlock(&b->lock);
    free(name);
    if (is_absent(rc, &e))
        return absent(b, key, err);
    return as_store(b, rc, &e, err);
}

/* ---- age ----------------------------------------------------------------------------------------------------------------------- */

static int list(objects_s3 *b, const char *key, pst_s3_list *ret_list, pst_err *err)
{
    pst_err e = {0};
    char *name = full(b, key);
    pthread_mutex_lock(&b->lock);
    int rc = pst_s3_list_keys(b->s3, name, 0, ret_list, &e);
    pthread_mutex_unlock(&b->lock);
    free(name);
    return as_store(b, rc, &e, err);
}

int objects_s3_each(objects_s3 *b, const char *folder, void (*fn)(void *arg, const char *key, int64_t put_us), void *arg, pst_err *err)
{
    pst_s3_list all = {0};
    char *below = pst_sprintf("%s/", folder);
    size_t skip = strlen(b->prefix);
    int rc = list(b, below, &all, err);
    for (size_t i = 0; i < all.n && !rc; i++) {
        const char *key = all.at[i].key + skip;
        if (key[strlen(below)] && !strchr(key + strlen(below), '/') && all.at[i].modified_us > 0)
            fn(arg, key, all.at[i].modified_us);
    }
    pst_s3_list_done(&all);
    free(below);
    return rc;
}

int objects_s3_expire(objects_s3 *b, const char *key, int64_t before_us, bool *ret_removed, pst_err *err)
{
    pst_s3_list found = {0};
    bool old = false;
    int rc = list(b, key, &found, err);
    for (size_t i = 0; i < found.n && !rc; i++) /* a server that tells no age keeps everything */
        old |= !strcmp(found.at[i].key + strlen(b->prefix), key) && found.at[i].modified_us > 0 && found.at[i].modified_us < before_us;
    pst_s3_list_done(&found);
    if (!rc && old)
        rc = objects_s3_delete(b, key, err);
    *ret_removed = !rc && old;
    return rc;
}
