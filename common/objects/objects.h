/* objects.h - the object store: model artefacts, submitted code, results; immutable blobs under a key, content-addressed where it matters.
 * file:DIR now (S3 comes behind the same calls). Writes are atomic (temporary name, fsync, rename); reads are bounded. @thread any. */
#ifndef PST_OBJECTS_H
#define PST_OBJECTS_H

#include "common/base/buf.h"
#include "common/base/err.h"

typedef struct pst_objects pst_objects;

int pst_objects_open(const char *url, pst_objects **ret_objects, pst_err *err);
void pst_objects_close(pst_objects *o);
/* key: relative path, letters digits . _ - /, no "..". ret_uri: absolute URI ("file:/…/key"), free(); may be NULL. */
int pst_objects_put(pst_objects *o, const char *key, const void *data, size_t len, char **ret_uri, pst_err *err);
int pst_objects_put_file(pst_objects *o, const char *key, const char *path, char ret_sha256[65], int64_t *ret_bytes, char **ret_uri,
                         pst_err *err);
/* uri as returned by put (any store of ours), or a plain key. sha256: NULL = not checked; mismatch is PST_EPARSE/DATA. */
int pst_objects_get(pst_objects *o, const char *uri, const char *sha256, size_t bytes_max, pst_buf *ret_data, pst_err *err);
int pst_objects_get_file(pst_objects *o, const char *uri, const char *sha256, const char *to_path, pst_err *err);
int pst_objects_delete(pst_objects *o, const char *uri, pst_err *err);

/* Archives of users (zip, tar, tar.gz by libarchive) are hostile: unpacks beneath dir only (openat2), no links out, no devices,
 * limits on entries (20,000), bytes (4 GiB) and depth (32). */
int pst_archive_unpack(const void *data, size_t len, const char *dir, pst_err *err);
/* Zips a folder (or copies a file that is an archive already) for submission: sorted names, regular files only, `.git` left out. */
int pst_archive_pack(const char *path, size_t bytes_max, pst_buf *ret_zip, char ret_media_type[32], pst_err *err);

#endif
