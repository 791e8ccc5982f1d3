/* store_mongo.c - mongodb://HOST/DATABASE: one MongoDB collection per collection of ours, documents
 *
 *     {_id: id, seq: int64, deleted: bool, state, user, submitted_at: int64, doc: {…}}
 *
 * so that people can query them. Only what every server speaks is used: single-document writes, no transactions, no pipeline updates, no
 * change streams, which compatible servers lack or do differently. The guard is the filter {_id, seq: {$lt: n}} of an upsert: where an equal or newer document is
 * there the filter misses, the insert meets the same _id, and error 11000 means "known already". Positions are written after the documents
 * of their batch are acknowledged, so a crash in between applies that batch once more, which the guard makes harmless.
 * Keys with '.', '$' or '%' are stored percent-encoded, since servers differ on them. */
#include "common/store/store_internal.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/store/mongo_lib.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DUPLICATE_KEY = 11000, DEPTH_MAX = 60, DEFAULT_WAIT_MS = 3000 };

typedef struct position {
    char *key;
    int64_t next;
} position;

typedef struct mongo {
    pst_store base;
    mongoc_client_t *client;
    char *database;
    char *hosts; /* for errors: without credentials */
    bool read_only;
    bool marked; /* we have seen or written the marker document: should it vanish, the database was dropped */
    position *pending;
    size_t n_pending;
} mongo;

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Libraries do not print; errors come back as values, and what else it has to say is for those who look closely. */
static void on_log(mongoc_log_level_t level, const char *domain, const char *message, void *arg)
{
    pst_log(PST_LOG_DEBUG, "store", "event=mongo domain=%s text=\"%s\"", domain, message);
}

/* The library counts its operations in shared memory for a tool of its own, and takes it away at exit: a process that is killed leaves it for
 * ever. Nobody watches these counters, so the name goes at once; the memory goes with the process. */
static void init(void)
{
    char counters[32];
    mongoc_log_set_handler(on_log, NULL); /* before mongoc_init(), which speaks, too */
    mongoc_init();
    snprintf(counters, sizeof counters, "/mongoc-%u", (unsigned)getpid());
    shm_unlink(counters);
}

static int fail(const mongo *m, const char *doing, const bson_error_t *e, pst_err *err)
{
    bool auth = e->domain == MONGOC_ERROR_CLIENT && e->code == MONGOC_ERROR_CLIENT_AUTHENTICATE;
    auth = auth || e->code == 13 || e->code == 18; /* Unauthorized, AuthenticationFailed */
    int code = auth ? PST_EAUTH : PST_EUNREACH;
    return pst_err_set(err, code, auth ? PST_CLASS_FATAL : PST_CLASS_RETRY, "mongo", (int)e->code, "cannot %s database %s at %s: %s", doing,
                       m->database, m->hosts, e->message);
}

static mongoc_collection_t *collection_of(mongo *m, const char *name)
{
    return mongoc_client_get_collection(m->client, m->database, name);
}

/* ---- JSON ↔ BSON ------------------------------------------------------------------------------------------------------------- */

static void encode_key(const char *key, pst_buf *out)
{
    pst_buf_clear(out);
    if (!*key)
        pst_buf_addc(out, '%'); /* a name that is empty is one percent sign */
    for (; *key; key++) {
        if (*key == '.' || *key == '$' || *key == '%')
            pst_buf_printf(out, "%%%02X", (unsigned char)*key);
        else
            pst_buf_addc(out, *key);
    }
}

static void decode_key(const char *key, pst_buf *out)
{
    pst_buf_clear(out);
    pst_buf_adds(out, "");
    if (!strcmp(key, "%"))
        return;
    for (; *key; key++) {
        if (!strncmp(key, "%2E", 3) || !strncmp(key, "%24", 3) || !strncmp(key, "%25", 3)) {
            char c = '%';
            if (key[2] == 'E')
                c = '.';
            else if (key[2] == '4')
                c = '$';
            pst_buf_addc(out, c);
            key += 2;
        } else {
            pst_buf_addc(out, *key);
        }
    }
}

static bool add_value(bson_t *to, const char *key, const json_t *v, int depth);

static bool add_members(bson_t *to, const json_t *v, int depth)
{
    bool ok = depth < DEPTH_MAX;
    if (json_is_array(v)) {
        char index[24];
        for (size_t i = 0; ok && i < json_array_size(v); i++) {
            snprintf(index, sizeof index, "%zu", i);
            ok = add_value(to, index, json_array_get(v, i), depth + 1);
        }
        return ok;
    }
    pst_buf name = {0};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)v, key, value)
    {
        encode_key(key, &name);
        ok = ok && add_value(to, name.data, value, depth + 1);
    }
    pst_buf_done(&name);
    return ok;
}

static bool add_value(bson_t *to, const char *key, const json_t *v, int depth)
{
    bson_t child;
    bool ok;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        BSON_APPEND_DOCUMENT_BEGIN(to, key, &child);
        ok = add_members(&child, v, depth);
        return bson_append_document_end(to, &child) && ok;
    case JSON_ARRAY:
        BSON_APPEND_ARRAY_BEGIN(to, key, &child);
        ok = add_members(&child, v, depth);
        return bson_append_array_end(to, &child) && ok;
    case JSON_STRING: return bson_append_utf8(to, key, -1, json_string_value(v), (int)json_string_length(v));
    case JSON_INTEGER: return BSON_APPEND_INT64(to, key, json_integer_value(v));
    case JSON_REAL: return BSON_APPEND_DOUBLE(to, key, json_real_value(v));
    case JSON_TRUE: return BSON_APPEND_BOOL(to, key, true);
    case JSON_FALSE: return BSON_APPEND_BOOL(to, key, false);
    default: return BSON_APPEND_NULL(to, key);
    }
}

static json_t *value_of(bson_iter_t *it, int depth);

static json_t *members_of(bson_iter_t *it, bool array, int depth)
{
    json_t *j = array ? json_array() : json_object();
    pst_buf name = {0};
    while (depth < DEPTH_MAX && bson_iter_next(it)) {
        if (array) {
            json_array_append_new(j, value_of(it, depth + 1));
            continue;
        }
        decode_key(bson_iter_key(it), &name);
        json_object_set_new(j, name.data, value_of(it, depth + 1));
    }
    pst_buf_done(&name);
    return j;
}

static json_t *value_of(bson_iter_t *it, int depth)
{
    bson_iter_t child;
    uint32_t len;
    const char *text;
    switch (bson_iter_type(it)) {
    case BSON_TYPE_DOCUMENT: return bson_iter_recurse(it, &child) ? members_of(&child, false, depth) : json_object();
    case BSON_TYPE_ARRAY: return bson_iter_recurse(it, &child) ? members_of(&child, true, depth) : json_array();
    case BSON_TYPE_UTF8: text = bson_iter_utf8(it, &len); return json_stringn(text, len);
    case BSON_TYPE_INT32:
    case BSON_TYPE_INT64: return json_integer(bson_iter_as_int64(it));
    case BSON_TYPE_DOUBLE: return json_real(bson_iter_double(it));
    case BSON_TYPE_BOOL: return json_boolean(bson_iter_bool(it));
    default: return json_null();
    }
}

static json_t *doc_of(const bson_t *found)
{
    bson_iter_t it, child;
    if (bson_iter_init_find(&it, found, "doc") && BSON_ITER_HOLDS_DOCUMENT(&it) && bson_iter_recurse(&it, &child))
        return members_of(&child, false, 0);
    return json_object();
}

/* ---- writing ----------------------------------------------------------------------------------------------------------------- */

/* One guarded upsert. *ret_applied false: error 11000, an equal or newer one is there. */
static int upsert(mongo *m, const char *collection, const bson_t *filter, const bson_t *update, bool *ret_applied, pst_err *err)
{
    mongoc_collection_t *c = collection_of(m, collection);
    bson_t *opts = BCON_NEW("upsert", BCON_BOOL(true));
    int rc = 0;
    *ret_applied = false;
    /* Two writers that both found nothing may both insert, and the newer one may lose: a second try finds what the other has inserted. */
    for (int i = 0; i < 2 && !rc && !*ret_applied; i++) {
        bson_error_t e;
        if (mongoc_collection_update_one(c, filter, update, opts, NULL, &e))
            *ret_applied = true;
        else if (e.code != DUPLICATE_KEY)
            rc = fail(m, "write to", &e, err);
    }
    bson_destroy(opts);
    mongoc_collection_destroy(c);
    return rc;
}

static int write_doc(mongo *m, const char *collection, const char *id, int64_t seq, const json_t *doc, bool *ret_applied, pst_err *err)
{
    store_keys k = store_keys_of(doc);
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(id), "seq", "{", "$lt", BCON_INT64(seq), "}");
    bson_t update, set, content;
    bson_init(&update);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_INT64(&set, "seq", seq);
    BSON_APPEND_BOOL(&set, "deleted", !doc);
    BSON_APPEND_UTF8(&set, "state", k.state);
    BSON_APPEND_UTF8(&set, "user", k.user);
    BSON_APPEND_INT64(&set, "submitted_at", k.submitted_at);
    BSON_APPEND_DOCUMENT_BEGIN(&set, "doc", &content);
    bool ok = !doc || add_members(&content, doc, 0);
    bson_append_document_end(&set, &content);
    bson_append_document_end(&update, &set);
    int rc = 0;
    if (!ok)
        rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "mongo", 0, "%s/%s is nested deeper than %d", collection, id, DEPTH_MAX);
    else if (update.len > PST_STORE_DOC_MAX) /* not every server enforces its own 16 MiB */
        rc = pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "mongo", 0, "%s/%s is larger than %d bytes", collection, id, PST_STORE_DOC_MAX);
    else
        rc = upsert(m, collection, filter, &update, ret_applied, err);
    bson_destroy(&update);
    bson_destroy(filter);
    return rc;
}

static int put(pst_store *s, const char *collection, const char *id, int64_t seq, const json_t *doc, bool *ret_applied, pst_err *err)
{
    return write_doc((mongo *)s, collection, id, seq, doc, ret_applied, err);
}

static int remove_doc(pst_store *s, const char *collection, const char *id, int64_t seq, pst_err *err)
{
    bool applied;
    return write_doc((mongo *)s, collection, id, seq, NULL, &applied, err);
}

/* ---- reading ----------------------------------------------------------------------------------------------------------------- */

/* The first match, or NULL (with rc 0). */
static int find_one(mongo *m, const char *collection, const bson_t *filter, bson_t **ret_found, pst_err *err)
{
    mongoc_collection_t *c = collection_of(m, collection);
    bson_t *opts = BCON_NEW("limit", BCON_INT64(1));
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(c, filter, opts, NULL);
    const bson_t *found = NULL;
    bson_error_t e;
    int rc = 0;
    *ret_found = mongoc_cursor_next(cursor, &found) ? bson_copy(found) : NULL;
    if (!*ret_found && mongoc_cursor_error(cursor, &e))
        rc = fail(m, "read from", &e, err);
    mongoc_cursor_destroy(cursor);
    bson_destroy(opts);
    mongoc_collection_destroy(c);
    return rc;
}

static int get(pst_store *s, const char *collection, const char *id, json_t **ret_doc, pst_err *err)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(id), "deleted", BCON_BOOL(false)), *found = NULL;
    int rc = find_one((mongo *)s, collection, filter, &found, err);
    if (!rc && !found)
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "mongo", 0, "%s has no %s", collection, id);
    else if (!rc)
        *ret_doc = doc_of(found);
    bson_destroy(found);
    bson_destroy(filter);
    return rc;
}

static void add_after(const pst_store_query *q, bson_t *filter)
{
    BCON_APPEND(filter, "$or", "[", "{", "submitted_at", "{", "$lt", BCON_INT64(q->after_time), "}", "}", "{", "submitted_at",
                BCON_INT64(q->after_time), "_id", "{", "$gt", BCON_UTF8(q->after), "}", "}", "]");
}

/* Pages by (submitted_at, _id) of the last document seen, not by a count to skip: what is written meanwhile moves nothing into or out of a page. */
static int list(pst_store *s, const char *collection, const pst_store_query *q, json_t **ret_docs, pst_err *err)
{
    mongo *m = (mongo *)s;
    bson_t *filter = BCON_NEW("deleted", BCON_BOOL(false));
    if (q->state)
        BSON_APPEND_UTF8(filter, "state", q->state);
    if (q->user)
        BSON_APPEND_UTF8(filter, "user", q->user);
    int rc = 0;
    if (q->after)
        add_after(q, filter);
    mongoc_collection_t *c = collection_of(m, collection);
    bson_t *opts = BCON_NEW("sort", "{", "submitted_at", BCON_INT32(-1), "_id", BCON_INT32(1), "}", "limit", BCON_INT64((int64_t)q->limit));
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(c, filter, opts, NULL);
    json_t *docs = json_array();
    const bson_t *found;
    bson_error_t e;
    while (mongoc_cursor_next(cursor, &found))
        json_array_append_new(docs, doc_of(found));
    if (mongoc_cursor_error(cursor, &e)) {
        rc = fail(m, "read from", &e, err);
        json_decref(docs);
    } else {
        *ret_docs = docs;
    }
    mongoc_cursor_destroy(cursor);
    bson_destroy(opts);
    mongoc_collection_destroy(c);
    bson_destroy(filter);
    return rc;
}

static int each(pst_store *s, const char *collection, void (*fn)(void *, const char *, int64_t, const json_t *), void *arg, pst_err *err)
{
    mongo *m = (mongo *)s;
    mongoc_collection_t *c = collection_of(m, collection);
    bson_t *filter = BCON_NEW("deleted", BCON_BOOL(false)), *opts = BCON_NEW("sort", "{", "_id", BCON_INT32(1), "}");
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(c, filter, opts, NULL);
    const bson_t *found;
    bson_error_t e;
    bson_iter_t id, seq;
    while (mongoc_cursor_next(cursor, &found)) {
        json_t *doc = doc_of(found);
        if (bson_iter_init_find(&id, found, "_id") && BSON_ITER_HOLDS_UTF8(&id) && bson_iter_init_find(&seq, found, "seq"))
            fn(arg, bson_iter_utf8(&id, NULL), bson_iter_as_int64(&seq), doc);
        json_decref(doc);
    }
    int rc = mongoc_cursor_error(cursor, &e) ? fail(m, "read from", &e, err) : 0;
    mongoc_cursor_destroy(cursor);
    bson_destroy(filter);
    bson_destroy(opts);
    mongoc_collection_destroy(c);
    return rc;
}

/* ---- positions, and whether the database is still the one we filled ------------------------------------------------------------ */

static int set_number(mongo *m, const char *id, int64_t value, pst_err *err)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(id)), *update = BCON_NEW("$set", "{", "next", BCON_INT64(value), "}");
    bool applied;
    int rc = upsert(m, "positions", filter, update, &applied, err);
    bson_destroy(filter);
    bson_destroy(update);
    return rc;
}

static int get_number(mongo *m, const char *id, int64_t *ret_value, pst_err *err)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(id)), *found = NULL;
    bson_iter_t it;
    int rc = find_one(m, "positions", filter, &found, err);
    if (!rc && found && bson_iter_init_find(&it, found, "next"))
        *ret_value = bson_iter_as_int64(&it);
    else if (!rc)
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "mongo", 0, "no position %s", id);
    bson_destroy(found);
    bson_destroy(filter);
    return rc;
}

static int check_marker(mongo *m, pst_err *err)
{
    int64_t value;
    pst_err e = {0};
    int rc = get_number(m, "marker", &value, &e);
    if (rc == PST_ENOTFOUND) {
        rc = set_number(m, "marker", pst_now_us(), err);
        if (!rc && m->marked)
            m->base.rebuilt = true;
    } else if (rc < 0 && err && !err->code) {
        *err = e;
    }
    m->marked = m->marked || !rc;
    return rc;
}

static void drop_pending(mongo *m)
{
    for (size_t i = 0; i < m->n_pending; i++)
        free(m->pending[i].key);
    m->n_pending = 0;
}

static int begin(pst_store *s, pst_err *err)
{
    drop_pending((mongo *)s);
    return check_marker((mongo *)s, err);
}

static int commit(pst_store *s, pst_err *err)
{
    mongo *m = (mongo *)s;
    int rc = 0;
    for (size_t i = 0; i < m->n_pending && !rc; i++)
        rc = set_number(m, m->pending[i].key, m->pending[i].next, err);
    drop_pending(m);
    return rc;
}

static void rollback(pst_store *s)
{
    drop_pending((mongo *)s); /* documents stay: the guard makes writing them again harmless */
}

static int position_set(pst_store *s, const char *topic, int32_t partition, int64_t next, pst_err *err)
{
    mongo *m = (mongo *)s;
    char *key = pst_sprintf("%s/%d", topic, partition);
    if (!s->in_transaction) {
        int rc = set_number(m, key, next, err);
        free(key);
        return rc;
    }
    for (size_t i = 0; i < m->n_pending; i++)
        if (!strcmp(m->pending[i].key, key)) {
            m->pending[i].next = next;
            free(key);
            return 0;
        }
    m->pending = pst_array_one_more(m->pending, m->n_pending, sizeof *m->pending);
    m->pending[m->n_pending++] = (position){key, next};
    return 0;
}

static int position_get(pst_store *s, const char *topic, int32_t partition, int64_t *ret_next, pst_err *err)
{
    mongo *m = (mongo *)s;
    char *key = pst_sprintf("%s/%d", topic, partition);
    int rc = 1;
    for (size_t i = 0; i < m->n_pending; i++)
        if (!strcmp(m->pending[i].key, key)) {
            *ret_next = m->pending[i].next;
            rc = 0;
        }
    if (rc)
        rc = get_number(m, key, ret_next, err);
    free(key);
    return rc;
}

/* Documents without the marker, which stands there before the first of ours: another application has collections of these names. */
static int check_ours(mongo *m, pst_err *err)
{
    static const char *const ours[] = {"jobs", "models", "aliases"};
    bson_t all = BSON_INITIALIZER, *found = NULL;
    pst_err e = {0};
    int64_t value;
    int rc = get_number(m, "marker", &value, &e);
    if (rc < 0 && rc != PST_ENOTFOUND)
        return pst_err_set(err, e.code, e.cls, e.origin, e.native, "%s", e.text);
    for (size_t i = 0; rc == PST_ENOTFOUND && i < sizeof ours / sizeof *ours; i++) {
        int failed = find_one(m, ours[i], &all, &found, err);
        rc = failed ? failed : rc;
        if (found)
            rc = pst_err_set(
                err, PST_ESTATE, PST_CLASS_RETRY, "mongo", 0,
                "the database of the store has a collection %s that no penstock filled; it is left as it is: name a database of "
                "penstock's own (--store mongodb://HOST/NAME)",
                ours[i]);
        bson_destroy(found);
    }
    bson_destroy(&all);
    return rc == PST_ENOTFOUND ? 0 : rc;
}

/* Our collections only: the database may hold others. */
static int wipe(pst_store *s, pst_err *err)
{
    static const char *const ours[] = {"jobs", "models", "aliases", "positions"};
    mongo *m = (mongo *)s;
    bson_t all = BSON_INITIALIZER;
    int rc = check_ours(m, err);
    for (size_t i = 0; i < sizeof ours / sizeof *ours && !rc; i++) {
        bson_error_t e;
        mongoc_collection_t *c = collection_of(m, ours[i]);
        if (!mongoc_collection_delete_many(c, &all, NULL, NULL, &e))
            rc = fail(m, "empty", &e, err);
        mongoc_collection_destroy(c);
    }
    bson_destroy(&all);
    m->marked = false;
    return rc;
}

/* ---- opening ----------------------------------------------------------------------------------------------------------------- */

static void close_mongo(pst_store *s)
{
    mongo *m = (mongo *)s;
    drop_pending(m);
    free(m->pending);
    if (m->client)
        mongoc_client_destroy(m->client);
    free(m->database);
    free(m->hosts);
    free(m);
}

static int make_index(mongo *m, pst_err *err)
{
    bson_error_t e;
    bson_t *command = BCON_NEW("createIndexes", BCON_UTF8("jobs"), "indexes", "[", "{", "key", "{", "submitted_at", BCON_INT32(-1), "_id",
                               BCON_INT32(1), "}", "name", BCON_UTF8("by_time"), "}", "{", "key", "{", "state", BCON_INT32(1),
                               "submitted_at", BCON_INT32(-1), "}", "name", BCON_UTF8("by_state"), "}", "]");
    int rc =
        mongoc_client_write_command_with_opts(m->client, m->database, command, NULL, NULL, &e) ? 0 : fail(m, "make an index in", &e, err);
    bson_destroy(command);
    return rc;
}

static const store_ops mongo_ops = {"mongodb", put,          remove_doc,   get,  list, begin,      commit,
                                    rollback,  position_set, position_get, wipe, each, close_mongo};

int store_mongo_open(const char *uri, bool read_only, pst_store **ret_store, pst_err *err)
{
    int rc = mongo_lib_open(err);
    if (rc < 0)
        return rc;
    pthread_once(&once, init);
    bson_error_t e;
    mongoc_uri_t *parsed = mongoc_uri_new_with_error(uri, &e);
    if (!parsed) /* without the text: it may hold a password */
        return pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", (int)e.code, "the MongoDB address is not usable: %s", e.message);
    mongo *m = pst_alloc(sizeof *m);
    m->base.ops = &mongo_ops;
    m->read_only = read_only;
    const char *database = mongoc_uri_get_database(parsed);
    m->database = pst_strdup(database ? database : "penstock");
    pst_buf hosts = {0};
    for (const mongoc_host_list_t *h = mongoc_uri_get_hosts(parsed); h; h = h->next)
        pst_buf_printf(&hosts, "%s%s", hosts.len ? "," : "", h->host_and_port);
    m->hosts = pst_buf_steal(&hosts);
    if (!mongoc_uri_has_option(parsed, MONGOC_URI_SERVERSELECTIONTIMEOUTMS))
        mongoc_uri_set_option_as_int32(parsed, MONGOC_URI_SERVERSELECTIONTIMEOUTMS, DEFAULT_WAIT_MS);
    m->client = mongoc_client_new_from_uri_with_error(parsed, &e);
    if (m->client) {
        mongoc_client_set_error_api(m->client, MONGOC_ERROR_API_VERSION_2);
        mongoc_client_set_appname(m->client, "penstock");
        if (!mongoc_uri_has_option(parsed, MONGOC_URI_W)) {
            mongoc_write_concern_t *majority = mongoc_write_concern_new();
            mongoc_write_concern_set_wmajority(majority, 5000);
            mongoc_client_set_write_concern(m->client, majority);
            mongoc_write_concern_destroy(majority);
        }
        if (!read_only)
            rc = make_index(m, err);
    } else {
        rc = pst_err_set(err, PST_EINVAL, PST_CLASS_FATAL, "config", (int)e.code, "the MongoDB address is not usable: %s", e.message);
    }
    mongoc_uri_destroy(parsed);
    if (rc < 0) {
        close_mongo(&m->base);
        return rc;
    }
    *ret_store = &m->base;
    return 0;
}
