/* store.c - chooses the back end, checks arguments once for all of them. The guard (an equal or newer sequence stays) is in each
 * back end's own words, since it must be atomic there; tests/unit/test_store.c holds all three to the same behaviour. */
#include "common/store/store_internal.h"

#include <stdlib.h>
#include <string.h>

int pst_store_open(const char *url, bool read_only, pst_store **ret_store, pst_err *err)
{
    if (!strncmp(url, "sqlite:", 7) && url[7])
        return store_sqlite_open(url + 7, read_only, ret_store, err);
    if (!strncmp(url, "mongodb://", 10) || !strncmp(url, "mongodb+srv://", 14))
        return store_mongo_open(url, read_only, ret_store, err);
    if (!strcmp(url, "memory:") || !strcmp(url, "memory"))
        return store_memory_open(ret_store, err);
    return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", 0,
                       "store \"%.100s\" is none of sqlite:PATH, mongodb://HOST/DATABASE, memory:", url);
}

void pst_store_close(pst_store *s)
{
    if (s)
        s->ops->close(s);
}

const char *pst_store_kind(const pst_store *s)
{
    return s->ops->kind;
}

static int check_names(const char *collection, const char *id, pst_err *err)
{
    size_t n = strlen(collection);
    if (!n || n > 64 || strspn(collection, "abcdefghijklmnopqrstuvwxyz_") != n)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "store", 0, "\"%.64s\" is no name of a collection", collection);
    if (!*id || strlen(id) > 512)
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "store", 0, "%s: an id has 1 to 512 bytes", collection);
    return 0;
}

int pst_store_put(pst_store *s, const char *collection, const char *id, int64_t seq, const json_t *doc, bool *ret_applied, pst_err *err)
{
    PST_ASSERT(ret_applied);
    int rc = check_names(collection, id, err);
    if (rc < 0)
        return rc;
    if (!json_is_object(doc))
        return pst_err_set(err, PST_EINVAL, PST_CLASS_DATA, "store", 0, "%s/%s: a document is a JSON object", collection, id);
    return s->ops->put(s, collection, id, seq, doc, ret_applied, err);
}

int pst_store_delete(pst_store *s, const char *collection, const char *id, int64_t seq, pst_err *err)
{
    int rc = check_names(collection, id, err);
    return rc < 0 ? rc : s->ops->remove(s, collection, id, seq, err);
}

int pst_store_get(pst_store *s, const char *collection, const char *id, json_t **ret_doc, pst_err *err)
{
    int rc = check_names(collection, id, err);
    return rc < 0 ? rc : s->ops->get(s, collection, id, ret_doc, err);
}

int pst_store_list(pst_store *s, const char *collection, const pst_store_query *q, json_t **ret_docs, pst_err *err)
{
    pst_store_query checked = q ? *q : (pst_store_query){0};
    int rc = check_names(collection, "-", err);
    if (rc < 0)
        return rc;
    if (!checked.limit)
        checked.limit = PST_STORE_LIMIT;
    if (checked.limit > PST_STORE_LIMIT_MAX)
        checked.limit = PST_STORE_LIMIT_MAX;
    PST_ASSERT(checked.limit && checked.limit <= PST_STORE_LIMIT_MAX); /* back ends rely on it */
    return s->ops->list(s, collection, &checked, ret_docs, err);
}

int pst_store_begin(pst_store *s, pst_err *err)
{
    PST_ASSERT(!s->in_transaction);
    int rc = s->ops->begin(s, err);
    s->in_transaction = rc == 0;
    return rc;
}

int pst_store_commit(pst_store *s, pst_err *err)
{
    PST_ASSERT(s->in_transaction);
    s->in_transaction = false;
    int rc = s->ops->commit(s, err);
    if (rc < 0)
        s->ops->rollback(s);
    return rc;
}

void pst_store_rollback(pst_store *s)
{
    if (s->in_transaction)
        s->ops->rollback(s);
    s->in_transaction = false;
}

int pst_store_position_set(pst_store *s, const char *topic, int32_t partition, int64_t next, pst_err *err)
{
    return s->ops->position_set(s, topic, partition, next, err);
}

int pst_store_position_get(pst_store *s, const char *topic, int32_t partition, int64_t *ret_next, pst_err *err)
{
    return s->ops->position_get(s, topic, partition, ret_next, err);
}

int pst_store_wipe(pst_store *s, pst_err *err)
{
    PST_ASSERT(!s->in_transaction);
    return s->ops->wipe(s, err);
}

bool pst_store_rebuilt(pst_store *s)
{
    bool was = s->rebuilt;
    s->rebuilt = false;
    return was;
}

static void add_line(void *arg, const char *id, int64_t seq, const json_t *doc)
{
    char *text = json_dumps(doc, JSON_COMPACT | JSON_SORT_KEYS);
    pst_buf_printf(arg, "%s %lld %s\n", id, (long long)seq, text);
    free(text);
}

char *pst_store_dump(pst_store *s, const char *collection, pst_err *err)
{
    pst_buf b = {0};
    if (check_names(collection, "-", err) < 0 || s->ops->each(s, collection, add_line, &b, err) < 0) {
        pst_buf_done(&b);
        return NULL;
    }
    return pst_buf_steal(&b);
}
