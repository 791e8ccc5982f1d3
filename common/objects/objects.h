/* objects.h - the object store: model artefacts, submitted code, results; immutable blobs under a key, content-addressed where it matters. In a folder
 * (file:DIR: atomic by temporary name, fsync, rename), or below a prefix of a bucket of an S3 server, whose name is in the path of each request.
 *
 *     s3://BUCKET/PREFIX      PENSTOCK_OBJECTS_ENDPOINT     or AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL   https://host
 *                             PENSTOCK_OBJECTS_REGION          AWS_REGION, AWS_DEFAULT_REGION          [us-east-1]
 *                             PENSTOCK_OBJECTS_ACCESS_KEY      AWS_ACCESS_KEY_ID
 *                             PENSTOCK_OBJECTS_SECRET_KEY      AWS_SECRET_ACCESS_KEY
 *                             PENSTOCK_OBJECTS_SESSION_TOKEN   AWS_SESSION_TOKEN                       [none]
 *                             PENSTOCK_OBJECTS_CA              AWS_CA_BUNDLE                           [the system's]
 *
 * Reads are bounded. A bucket that is away, refuses or is not there is RETRY once its patience is over: nothing that was to be stored is at fault. @thread any. */
#ifndef PST_OBJECTS_H
#define PST_OBJECTS_H

#include "common/base/buf.h"
#include "common/base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pst_objects pst_objects;

int pst_objects_open(const char *url, pst_objects **ret_objects, pst_err *err);
void pst_objects_close(pst_objects *o);
/* How long a bucket may stay away in one call [30 s; 0 = one attempt]; a request to stop ends it. Before it is used by several threads. */
void pst_objects_patience(pst_objects *o, int ms);
/* Is the store there, and may we use it? The error has the cure. */
int pst_objects_check(pst_objects *o, pst_err *err);
/* The same of one that is not open, in one attempt, for a start or the doctor. A folder is made by whoever uses it first, and only a bucket is asked. */
int pst_objects_probe(const char *url, pst_err *err);
/* key: relative path, letters digits . _ - /, no "..". ret_uri: absolute URI ("file:/…/key", "s3://…/key"), free(); may be NULL. */
int pst_objects_put(pst_objects *o, const char *key, const void *data, size_t len, char **ret_uri, pst_err *err);
int pst_objects_put_file(pst_objects *o, const char *key, const char *path, char ret_sha256[65], int64_t *ret_bytes, char **ret_uri,
                         pst_err *err);
/* uri as returned by put (any store of ours), or a plain key. sha256: NULL = not checked; mismatch is PST_EPARSE/DATA. */
int pst_objects_get(pst_objects *o, const char *uri, const char *sha256, size_t bytes_max, pst_buf *ret_data, pst_err *err);
int pst_objects_get_file(pst_objects *o, const char *uri, const char *sha256, const char *to_path, pst_err *err);
int pst_objects_delete(pst_objects *o, const char *uri, pst_err *err);

/* Age. What nobody needs is removed by the one who knows; a writer and a sweeper in two processes agree by a lock of the store, so that an object
 * that is put again (or touched) is either removed before that, and there again, or not removed. */
/* As if it had been put again just now. PST_ENOTFOUND, class DATA: it is not there. */
int pst_objects_touch(pst_objects *o, const char *uri, pst_err *err);
/* Tells of every object directly below a folder ("code") its key and when it was put (microseconds, by the clock of the store). */
int pst_objects_each(pst_objects *o, const char *folder, void (*fn)(void *arg, const char *key, int64_t put_us), void *arg, pst_err *err);
/* Removes it unless it was put after before_us. */
int pst_objects_expire(pst_objects *o, const char *key, int64_t before_us, bool *ret_removed, pst_err *err);
/* Removes what writers that were killed left half written before then. */
void pst_objects_expire_drafts(pst_objects *o, int64_t before_us);

/* Archives of users (zip, tar, tar.gz by libarchive) are hostile: unpacks beneath dir only (openat2), no links out, no devices,
 * limits on entries (20,000), bytes (4 GiB) and depth (32). Each file may be run. */
int pst_archive_unpack(const void *data, size_t len, const char *dir, pst_err *err);
/* Zips a folder (or copies a file that is an archive already) for submission: sorted names, regular files only, `.git` left out. */
int pst_archive_pack(const char *path, size_t bytes_max, pst_buf *ret_zip, char ret_media_type[32], pst_err *err);
/* The same of an open folder (which is closed) into an open file; of its files four times bytes_max are read at most. Somebody may write to the folder
 * meanwhile: what is gone or has become something else is left out. stops (NULL = never): asked now and then, true ends it with PST_EAGAIN. */
int pst_archive_pack_folder(int dirfd, int to, size_t bytes_max, bool (*stops)(void *arg), void *arg, pst_err *err);
/* Before a zip is taken: what unpacking would refuse of its directory (names, links, counts, sizes as told), nothing written, nothing inflated. */
int pst_archive_check(const void *data, size_t len, pst_err *err);

#endif
