/* stores.c - one bucket after the other, all within one limit: a submission waits for the answer, and the answer of a server that is away is that. */
#include "common/platform/stores.h"

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/objects/s3.h"

#include <stdlib.h>
#include <string.h>

typedef struct asking {
    int64_t until_us;
    bool (*stopped)(void *arg);
    void *arg;
} asking;

static bool is_over(void *arg)
{
    const asking *a = arg;
    return pst_mono_us() > a->until_us || (a->stopped && a->stopped(a->arg));
}

static int ask(asking *a, const pst_data_store *s, const char *bucket, const char *allowed, int limit_ms, pst_err *err)
{
    const char *url = json_string_value(json_object_get(s->connection, "auth_url"));
    pst_s3 *s3 = NULL;
    if (!pst_s3_allowed(allowed, url))
        return pst_err_set(err, PST_EAUTH, PST_CLASS_DATA, "s3", 0,
                           "the operator of this platform does not allow the server of connection.auth_url (--stores)");
    int rc = pst_s3_open(&(pst_s3_conf){.url = url,
                                        .user = json_string_value(json_object_get(s->connection, "user_name")),
                                        .password = json_string_value(json_object_get(s->connection, "password")),
                                        .region = json_string_value(json_object_get(s->connection, "region")),
                                        .bucket = bucket,
                                        .patience_ms = limit_ms / 2,
                                        .stopped = is_over,
                                        .arg = a},
                         &s3, err);
    if (!rc)
        rc = pst_s3_check(s3, err);
    pst_s3_close(s3);
    return rc;
}

char *pst_stores_refused(const pst_manifest *m, const char *allowed, int limit_ms, bool (*stopped)(void *arg), void *arg)
{
    asking a = {.until_us = pst_mono_us() + (int64_t)limit_ms * 1000, .stopped = stopped, .arg = arg};
    for (size_t i = 0; i < m->n_stores; i++) {
        const pst_data_store *s = &m->stores[i];
        const char *const buckets[] = {s->input, s->output};
        for (int k = 0; k < 2 && s->s3; k++) {
            pst_err err = {0};
            if (!buckets[k] || !*buckets[k] || (k && buckets[0] && !strcmp(buckets[0], buckets[1])))
                continue;
            int rc = ask(&a, s, buckets[k], allowed, limit_ms, &err);
            if (rc == PST_ESTOPPED)
                return pst_sprintf("data store %.60s, bucket %.63s: its server did not answer within %d s", s->id ? s->id : "", buckets[k],
                                   limit_ms / 1000);
            if (rc < 0)
                return pst_sprintf("data store %.60s, bucket %.63s: %s", s->id ? s->id : "", buckets[k], err.text);
        }
    }
    return NULL;
}
