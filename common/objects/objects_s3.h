/* objects_s3.h - the object store in a bucket: what objects.h promises, behind s3://bucket/prefix. Inside common/objects only. @thread any. */
#ifndef PST_OBJECTS_OBJECTS_S3_H
#define PST_OBJECTS_OBJECTS_S3_H

#include "common/base/buf.h"
#include "common/base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct objects_s3 objects_s3;

/* url: s3://bucket or s3://bucket/prefix; server and credentials from the environment (objects.h). Nothing is connected to. */
int objects_s3_open(const char *url, objects_s3 **ret_bucket, pst_err *err);
void objects_s3_close(objects_s3 *b);
void objects_s3_patience(objects_s3 *b, int ms);
int objects_s3_check(objects_s3 *b, pst_err *err);
const char *objects_s3_root(const objects_s3 *b); /* "s3://bucket/prefix" */
/* Keys have been checked; they are within the prefix. */
int objects_s3_put(objects_s3 *b, const char *key, int fd, pst_err *err);
int objects_s3_get(objects_s3 *b, const char *key, int fd, int64_t bytes_max, pst_err *err);
int objects_s3_delete(objects_s3 *b, const char *key, pst_err *err);
int objects_s3_touch(objects_s3 *b, const char *key, pst_err *err);
int objects_s3_each(objects_s3 *b, const char *folder, void (*fn)(void *arg, const char *key, int64_t put_us), void *arg, pst_err *err);
int objects_s3_expire(objects_s3 *b, const char *key, int64_t before_us, bool *ret_removed, pst_err *err);

#endif
