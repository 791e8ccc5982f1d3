/* s3.h - buckets of an S3 server: list, read, write, with the retries that are safe. Requests are signed (AWS signature 4) and name the bucket in their
 * path, unless the host carries it already. A secret goes nowhere but into the signature: no error, log or address has it, nor the name of its user.
 *
 * Tried again, with pauses that double up to PST_S3_PAUSE_MAX_MS: no connection, a body that breaks off (it goes on from there), 5xx, 429. Errors:
 *   RETRY  the server stayed away for all of patience_ms, in which nothing moved; PST_ESTOPPED where stopped() said so
 *   DATA   it refuses: PST_EAUTH (wrong user or password, not allowed), PST_ENOTFOUND (no such bucket or key), PST_EPARSE (no S3 server, or bytes
 *          that are not what its digest says), PST_EINVAL (all else)
 * @thread one at a time per client. */
#ifndef PST_OBJECTS_S3_H
#define PST_OBJECTS_S3_H

#include "common/base/err.h"

#define PST_S3_PART_BYTES   (16ll << 20) /* what is larger goes over in parts */
#define PST_S3_PAUSE_MAX_MS 8000
#define PST_S3_KEYS_MAX     200000 /* in one list */
#define PST_S3_KEY_BYTES    1024

typedef struct pst_s3 pst_s3;

typedef struct pst_s3_conf {
    const char *url; /* http://host:port or https://host; no user, no query */
    const char *user, *password;
    const char *region; /* NULL, "" = us-east-1 */
    const char *bucket;
    const char *session;                     /* of credentials for a while; NULL = none */
    const char *ca_file;                     /* NULL = the system's */
    int patience_ms;                         /* how long it may stay away; 0 = one attempt */
    bool (*stopped)(void *arg);              /* NULL: never, but for a second signal */
    void (*moved)(void *arg, int64_t bytes); /* so many more went over; NULL */
    void *arg;
} pst_s3_conf;

typedef struct pst_s3_object {
    char *key;
    int64_t bytes;
    int64_t modified_us; /* by the server's clock; 0 = it does not say */
} pst_s3_object;
typedef struct pst_s3_list {
    pst_s3_object *at;
    size_t n, cap;
} pst_s3_list;

/* Nothing is connected to. DATA: an address or a bucket's name that cannot be. */
int pst_s3_open(const pst_s3_conf *conf, pst_s3 **ret_s3, pst_err *err);
void pst_s3_close(pst_s3 *s);
/* Does the address name a server that the list allows? list: hosts, comma-separated, each with or without a port; "*.x" = below x; NULL, "" = any. */
bool pst_s3_allowed(const char *list, const char *url);
/* Is the bucket there, and may we read it? One signed request for one key of it. */
int pst_s3_check(pst_s3 *s, pst_err *err);
/* Appends the keys that begin with prefix, in the server's order. PST_ELIMIT/DATA beyond keys_max (0 = PST_S3_KEYS_MAX). */
int pst_s3_list_keys(pst_s3 *s, const char *prefix, size_t keys_max, pst_s3_list *list, pst_err *err);
void pst_s3_list_done(pst_s3_list *list);
/* The whole object into an open, empty file. What was put by pst_s3_put is held against its digest. PST_ELIMIT/DATA: longer than bytes_max. */
int pst_s3_get(pst_s3 *s, const char *key, int fd, int64_t bytes_max, int64_t *ret_bytes, pst_err *err);
/* The file's bytes from its beginning; in parts where they are many. There already with the same digest: *ret_sent is false. PST_EAGAIN/RETRY: the
 * file changed meanwhile. */
int pst_s3_put(pst_s3 *s, const char *key, int fd, bool *ret_sent, pst_err *err);
int pst_s3_delete(pst_s3 *s, const char *key, pst_err *err);
/* As if it had been put just now: the server copies it onto itself. PST_ENOTFOUND: it is not there. */
int pst_s3_touch(pst_s3 *s, const char *key, pst_err *err);
/* From the next request on. */
void pst_s3_patience(pst_s3 *s, int ms);

/* A key as a path below a folder: NULL if it can be, else why not: it would leave the folder, or is no path of files. */
const char *pst_s3_key_problem(const char *key);

#endif
