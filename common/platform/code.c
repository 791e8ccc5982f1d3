/* code.c - where a job's code goes. A key made of its digest: the same code submitted twice is one object, and whoever reads it can check it. */
#include "common/platform/code.h"

#include "common/base/hash.h"
#include "common/objects/objects.h"

#include <stdlib.h>
#include <string.h>

enum { INLINE_MAX = 700 * 1024 }; /* with its manifest below the 1 MB that brokers take by default */

int pst_code_attach(const char *objects, pst_slice archive, const char *media_type, bool dry_run, pst_job_code *ret_code, pst_err *err)
{
    char sha[65];
    pst_sha256_hex(archive.data, archive.len, sha);
    *ret_code = (pst_job_code){.media_type = pst_strdup(media_type), .sha256 = pst_strdup(sha)};
    if (archive.len <= INLINE_MAX) {
        pst_buf copy = {0};
        pst_buf_add(&copy, archive.data, archive.len);
        ret_code->content.len = copy.len;
        ret_code->content.data = pst_buf_steal(&copy);
        return 0;
    }
    pst_objects *o = NULL;
    char *key = pst_sprintf("code/%s", sha);
    int rc = 0;
    if (dry_run)
        ret_code->uri = pst_sprintf("%s/%s", objects, key);
    else {
        rc = pst_objects_open(objects, &o, err);
        if (!rc)
            rc = pst_objects_put(o, key, archive.data, archive.len, &ret_code->uri, err);
        pst_objects_close(o);
    }
    free(key);
    return rc;
}

void pst_code_done(pst_job_code *code)
{
    free(code->media_type);
    free(code->uri);
    free(code->sha256);
    free(code->content.data);
    *code = (pst_job_code){0};
}
