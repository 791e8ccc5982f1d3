/* store_sqlite.c - sqlite:PATH: one file beside the platform's other state, WAL, one writer (the view) and any number of readers.
 *
 * The file is a view and may be deleted by anyone at any time: before every transaction and read the path is compared with the file that is
 * open (device and inode). A file that is gone or damaged is created again, and pst_store_rebuilt() tells the writer to read the topics again.
 * synchronous=NORMAL: after a power cut the last transactions may be missing, positions and documents alike, and are read again. */
#include "common/store/store_internal.h"

#include "common/base/clock.h"
#include "common/base/fs.h"
#include "common/store/sqlite_lib.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCHEMA_VERSION 1
#define BUSY_MS        5000

static const char schema_sql[] =
    "CREATE TABLE docs(collection TEXT NOT NULL, id TEXT NOT NULL, seq INTEGER NOT NULL, deleted INTEGER NOT NULL,"
    " state TEXT NOT NULL, user TEXT NOT NULL, submitted_at INTEGER NOT NULL, doc TEXT NOT NULL, PRIMARY KEY(collection, id));"
    "CREATE INDEX docs_by_time ON docs(collection, submitted_at DESC, id);"
    "CREATE INDEX docs_by_state ON docs(collection, state, submitted_at DESC, id);"
    "CREATE TABLE positions(topic TEXT NOT NULL, partition INTEGER NOT NULL, next INTEGER NOT NULL, PRIMARY KEY(topic, partition));"
    "PRAGMA user_version = 1;";

typedef enum { SQL_PUT, SQL_GET, SQL_LIST, SQL_EACH, SQL_POSITION_SET, SQL_POSITION_GET, SQL_COUNT } statement;

static const char *const statement_sql[SQL_COUNT] = {
    [SQL_PUT] = ("INSERT INTO docs VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT(collection, id) DO UPDATE SET seq = excluded.seq,"
                 " deleted = excluded.deleted, state = excluded.state, user = excluded.user, submitted_at = excluded.submitted_at,"
                 " doc = excluded.doc WHERE excluded.seq > docs.seq"),
    [SQL_GET] = "SELECT doc FROM docs WHERE collection = ?1 AND id = ?2 AND NOT deleted",
    [SQL_LIST] = ("SELECT doc FROM docs WHERE collection = ?1 AND NOT deleted AND (?2 IS NULL OR state = ?2) AND (?3 IS NULL OR user = ?3)"
                  " AND (?4 IS NULL OR submitted_at < ?5 OR (submitted_at = ?5 AND id > ?4)) ORDER BY submitted_at DESC, id LIMIT ?6"),
    [SQL_EACH] = "SELECT id, seq, doc FROM docs WHERE collection = ?1 AND NOT deleted ORDER BY id",
    [SQL_POSITION_SET] = "INSERT INTO positions VALUES(?1, ?2, ?3) ON CONFLICT(topic, partition) DO UPDATE SET next = excluded.next",
    [SQL_POSITION_GET] = "SELECT next FROM positions WHERE topic = ?1 AND partition = ?2",
};

typedef struct lite {
    pst_store base;
    char *path;
    bool read_only;
    sqlite3 *db;
    sqlite3_stmt *statements[SQL_COUNT];
    dev_t device;
    ino_t inode;
} lite;

static void remove_with(const char *path, const char *suffix)
{
    char *name = pst_sprintf("%s%s", path, suffix);
    unlink(name);
    free(name);
}

static void close_db(lite *l)
{
    for (int i = 0; i < SQL_COUNT; i++) {
        sqlite3_finalize(l->statements[i]);
        l->statements[i] = NULL;
    }
    sqlite3_close(l->db);
    l->db = NULL;
}

static bool is_damage(int code)
{
    code &= 0xff;
    return code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
}

static int open_db(lite *l, pst_err *err);

/* A damaged file is kept beside the new one for whoever wants to look. */
static int set_aside(lite *l, const char *why, pst_err *err)
{
    char *reason = pst_strdup(why); /* SQLite's own text dies with the handle */
    char *aside = pst_sprintf("%s.damaged-%lld", l->path, (long long)(pst_now_us() / 1000000));
    close_db(l);
    rename(l->path, aside);
    remove_with(l->path, "-wal");
    remove_with(l->path, "-shm");
    pst_err again = {0};
    int rc = open_db(l, &again);
    if (rc == 0)
        l->base.rebuilt = true;
    rc = pst_err_set(err, PST_EIO, PST_CLASS_RETRY, "sqlite", 0, "%s cannot be used (%s); it was put aside as %s and a new one %s", l->path,
                     reason, aside, rc == 0 ? "is filled from the topics" : "could not be made");
    free(reason);
    free(aside);
    return rc;
}

static int fail(lite *l, const char *doing, pst_err *err)
{
    int code = sqlite3_extended_errcode(l->db);
    if (is_damage(code) && !l->read_only)
        return set_aside(l, sqlite3_errmsg(l->db), err);
    bool busy = (code & 0xff) == SQLITE_BUSY || (code & 0xff) == SQLITE_LOCKED;
    return pst_err_set(err, busy ? PST_EUNREACH : PST_EIO, PST_CLASS_RETRY, "sqlite", code, "%s %s: %s", doing, l->path,
                       sqlite3_errmsg(l->db));
}

/* Makes the tables of a new file. A file with another version is one of another release: it is a view, so it is created again and filled from the topics. */
static int prepare_schema(lite *l, pst_err *err)
{
    sqlite3_stmt *q = NULL;
    int version = -1, code = sqlite3_prepare_v2(l->db, "PRAGMA user_version", -1, &q, NULL);
    if (code == SQLITE_OK && sqlite3_step(q) == SQLITE_ROW)
        version = sqlite3_column_int(q, 0);
    sqlite3_finalize(q);
    if (version == SCHEMA_VERSION)
        return 0;
    if (version < 0)
        return fail(l, "cannot read", err);
    if (l->read_only)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_RETRY, "sqlite", 0, "%s is not ready yet: the Trainer makes it", l->path);
    if (version != 0)
        return set_aside(l, "made by another version", err);
    if (sqlite3_exec(l->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(l->db, schema_sql, NULL, NULL, NULL) != SQLITE_OK || sqlite3_exec(l->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        return fail(l, "cannot make tables in", err);
    return 0;
}

static int open_db(lite *l, pst_err *err)
{
    struct stat st;
    bool there = stat(l->path, &st) == 0;
    if (!there && l->read_only)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_RETRY, "sqlite", 0, "%s does not exist yet: the Trainer makes it", l->path);
    if (!there) { /* what belonged to a deleted file must not be read into the new one */
        remove_with(l->path, "-wal");
        remove_with(l->path, "-shm");
    }
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (l->read_only ? 0 : SQLITE_OPEN_CREATE);
    if (sqlite3_open_v2(l->path, &l->db, flags, NULL) != SQLITE_OK) {
        int rc = pst_err_set(err, PST_EIO, PST_CLASS_RETRY, "sqlite", sqlite3_extended_errcode(l->db), "cannot open %s: %s", l->path,
                             sqlite3_errmsg(l->db));
        close_db(l);
        return rc;
    }
    sqlite3_busy_timeout(l->db, BUSY_MS);
    const char *settings = l->read_only ? "PRAGMA query_only = ON" : "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL";
    int rc = 0;
    if (sqlite3_exec(l->db, settings, NULL, NULL, NULL) != SQLITE_OK)
        rc = fail(l, "cannot set up", err);
    if (!rc)
        rc = prepare_schema(l, err);
    if (!rc && stat(l->path, &st) < 0)
        rc = pst_err_sys(err, errno, "cannot see %s after opening it", l->path);
    if (rc < 0) {
        if (!l->base.rebuilt) /* set_aside has opened another */
            close_db(l);
        return rc;
    }
    l->device = st.st_dev;
    l->inode = st.st_ino;
    return 0;
}

/* Is the open file still the one at the path? Called before every transaction and every read outside one. */
static int check_file(lite *l, pst_err *err)
{
    struct stat st;
    if (l->base.in_transaction)
        return 0;
    bool same = l->db && stat(l->path, &st) == 0 && st.st_dev == l->device && st.st_ino == l->inode;
    if (same)
        return 0;
    close_db(l);
    int rc = open_db(l, err);
    if (rc == 0)
        l->base.rebuilt = true;
    return rc;
}

/* A prepared statement of the file at the path, reset and without bindings. done() when it was stepped. */
static int use(lite *l, statement which, sqlite3_stmt **ret_stmt, pst_err *err)
{
    int rc = check_file(l, err);
    if (rc < 0)
        return rc;
    if (!l->statements[which] && sqlite3_prepare_v2(l->db, statement_sql[which], -1, &l->statements[which], NULL) != SQLITE_OK)
        return fail(l, "cannot use", err);
    sqlite3_reset(l->statements[which]);
    sqlite3_clear_bindings(l->statements[which]);
    *ret_stmt = l->statements[which];
    return 0;
}

/* The next row: 1, 0 = no more, < 0 = failed (fail() may have closed the file, and the statement with it). */
static int step(lite *l, sqlite3_stmt *q, const char *doing, pst_err *err)
{
    int code = sqlite3_step(q);
    if (code == SQLITE_ROW)
        return 1;
    return code == SQLITE_DONE ? 0 : fail(l, doing, err);
}

/* Ends a read, so that it holds no lock. */
static void done(lite *l, statement which)
{
    if (l->db && l->statements[which])
        sqlite3_reset(l->statements[which]);
}

static void bind(sqlite3_stmt *q, int at, const char *text)
{
    if (text)
        sqlite3_bind_text(q, at, text, -1, SQLITE_STATIC);
}

static int write_doc(lite *l, const char *collection, const char *id, int64_t seq, const json_t *doc, bool *ret_applied, pst_err *err)
{
    sqlite3_stmt *q = NULL;
    int rc = use(l, SQL_PUT, &q, err);
    if (rc < 0)
        return rc;
    store_keys k = store_keys_of(doc);
    char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    if (text && strlen(text) > PST_STORE_DOC_MAX) {
        free(text);
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "sqlite", 0, "%s/%s is larger than %d bytes", collection, id,
                           PST_STORE_DOC_MAX);
    }
    bind(q, 1, collection);
    bind(q, 2, id);
    sqlite3_bind_int64(q, 3, seq);
    sqlite3_bind_int(q, 4, doc ? 0 : 1);
    bind(q, 5, k.state);
    bind(q, 6, k.user);
    sqlite3_bind_int64(q, 7, k.submitted_at);
    bind(q, 8, text ? text : "");
    rc = step(l, q, "cannot write to", err);
    PST_ASSERT(rc <= 0); /* an upsert has no rows: a result would be another statement's */
    if (!rc && ret_applied)
        *ret_applied = sqlite3_changes(l->db) > 0;
    done(l, SQL_PUT);
    free(text);
    return rc;
}

static int put(pst_store *s, const char *collection, const char *id, int64_t seq, const json_t *doc, bool *ret_applied, pst_err *err)
{
    return write_doc((lite *)s, collection, id, seq, doc, ret_applied, err);
}

static int remove_doc(pst_store *s, const char *collection, const char *id, int64_t seq, pst_err *err)
{
    return write_doc((lite *)s, collection, id, seq, NULL, NULL, err);
}

static int parse_doc(const lite *l, sqlite3_stmt *q, int column, json_t **ret_doc, pst_err *err)
{
    json_error_t e;
    json_t *doc = json_loads((const char *)sqlite3_column_text(q, column), JSON_REJECT_DUPLICATES, &e);
    if (!doc)
        return pst_err_set(err, PST_EIO, PST_CLASS_RETRY, "sqlite", 0, "%s holds a document that is not JSON: %s", l->path, e.text);
    *ret_doc = doc;
    return 0;
}

static int get(pst_store *s, const char *collection, const char *id, json_t **ret_doc, pst_err *err)
{
    lite *l = (lite *)s;
    sqlite3_stmt *q = NULL;
    int rc = use(l, SQL_GET, &q, err);
    if (rc < 0)
        return rc;
    bind(q, 1, collection);
    bind(q, 2, id);
    rc = step(l, q, "cannot read", err);
    if (rc > 0)
        rc = parse_doc(l, q, 0, ret_doc, err);
    else if (!rc)
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "sqlite", 0, "%s has no %s", collection, id);
    done(l, SQL_GET);
    return rc;
}

/* Pages by (submitted_at, id) of the last document seen, as in store_mongo.c. The statement is reset on every way, or it would hold a read lock. */
static int list(pst_store *s, const char *collection, const pst_store_query *query, json_t **ret_docs, pst_err *err)
{
    lite *l = (lite *)s;
    sqlite3_stmt *q = NULL;
    int rc = use(l, SQL_LIST, &q, err);
    if (rc < 0)
        return rc;
    bind(q, 1, collection);
    bind(q, 2, query->state);
    bind(q, 3, query->user);
    bind(q, 4, query->after);
    sqlite3_bind_int64(q, 5, query->after_time);
    sqlite3_bind_int64(q, 6, (int64_t)query->limit);
    json_t *docs = json_array(), *doc = NULL;
    for (;;) {
        rc = step(l, q, "cannot read", err);
        if (rc <= 0)
            break;
        rc = parse_doc(l, q, 0, &doc, err);
        if (rc < 0)
            break;
        json_array_append_new(docs, doc);
    }
    done(l, SQL_LIST);
    if (rc < 0)
        json_decref(docs);
    else
        *ret_docs = docs;
    return rc;
}

static int begin(pst_store *s, pst_err *err)
{
    lite *l = (lite *)s;
    int rc = check_file(l, err);
    if (!rc && sqlite3_exec(l->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        rc = fail(l, "cannot begin in", err);
    return rc;
}

static int commit(pst_store *s, pst_err *err)
{
    lite *l = (lite *)s;
    if (!l->db || sqlite3_exec(l->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        return l->db ? fail(l, "cannot commit to", err)
                     : pst_err_set(err, PST_EIO, PST_CLASS_RETRY, "sqlite", 0, "%s was closed meanwhile", l->path);
    return 0;
}

static void rollback(pst_store *s)
{
    lite *l = (lite *)s;
    if (l->db && !sqlite3_get_autocommit(l->db))
        sqlite3_exec(l->db, "ROLLBACK", NULL, NULL, NULL);
}

static int position_set(pst_store *s, const char *topic, int32_t partition, int64_t next, pst_err *err)
{
    lite *l = (lite *)s;
    sqlite3_stmt *q = NULL;
    int rc = use(l, SQL_POSITION_SET, &q, err);
    if (rc < 0)
        return rc;
    bind(q, 1, topic);
    sqlite3_bind_int(q, 2, partition);
    sqlite3_bind_int64(q, 3, next);
    rc = step(l, q, "cannot write to", err);
    done(l, SQL_POSITION_SET);
    return rc;
}

static int position_get(pst_store *s, const char *topic, int32_t partition, int64_t *ret_next, pst_err *err)
{
    lite *l = (lite *)s;
    sqlite3_stmt *q = NULL;
    int rc = use(l, SQL_POSITION_GET, &q, err);
    if (rc < 0)
        return rc;
    bind(q, 1, topic);
    sqlite3_bind_int(q, 2, partition);
    rc = step(l, q, "cannot read", err);
    if (rc > 0)
        *ret_next = sqlite3_column_int64(q, 0);
    else if (!rc)
        rc = pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "sqlite", 0, "no position of %s partition %d", topic, partition);
    done(l, SQL_POSITION_GET);
    return rc > 0 ? 0 : rc;
}

static int wipe(pst_store *s, pst_err *err)
{
    lite *l = (lite *)s;
    int rc = check_file(l, err);
    if (!rc && sqlite3_exec(l->db, "BEGIN IMMEDIATE; DELETE FROM docs; DELETE FROM positions; COMMIT", NULL, NULL, NULL) != SQLITE_OK) {
        rc = fail(l, "cannot empty", err);
        rollback(s);
    }
    return rc;
}

static int each(pst_store *s, const char *collection, void (*fn)(void *, const char *, int64_t, const json_t *), void *arg, pst_err *err)
{
    lite *l = (lite *)s;
    sqlite3_stmt *q = NULL;
    int rc = use(l, SQL_EACH, &q, err);
    if (rc < 0)
        return rc;
    bind(q, 1, collection);
    json_t *doc = NULL;
    for (;;) {
        rc = step(l, q, "cannot read", err);
        if (rc <= 0)
            break;
        rc = parse_doc(l, q, 2, &doc, err);
        if (rc < 0)
            break;
        fn(arg, (const char *)sqlite3_column_text(q, 0), sqlite3_column_int64(q, 1), doc);
        json_decref(doc);
    }
    done(l, SQL_EACH);
    return rc;
}

static void close_lite(pst_store *s)
{
    lite *l = (lite *)s;
    if (l->db)
        rollback(s);
    close_db(l);
    free(l->path);
    free(l);
}

static const store_ops lite_ops = {"sqlite", put,          remove_doc,   get,  list, begin,     commit,
                                   rollback, position_set, position_get, wipe, each, close_lite};

int store_sqlite_open(const char *path, bool read_only, pst_store **ret_store, pst_err *err)
{
    int rc = sqlite_lib_open(err);
    if (rc < 0)
        return rc;
    lite *l = pst_alloc(sizeof *l);
    l->base.ops = &lite_ops;
    l->path = pst_strdup(path);
    l->read_only = read_only;
    if (!read_only) {
        char *copy = pst_strdup(path);
        rc = pst_fs_mkdirs(dirname(copy), 0700, err);
        free(copy);
    }
    if (!rc) {
        pst_err e = {0};
        rc = open_db(l, &e);
        if (rc < 0 && l->base.rebuilt) /* it was damaged; the new one is open */
            rc = 0;
        else if (rc < 0 && err && !err->code)
            *err = e;
    }
    if (rc < 0) {
        close_lite(&l->base);
        return rc;
    }
    *ret_store = &l->base;
    return 0;
}
