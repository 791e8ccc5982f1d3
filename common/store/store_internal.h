/* store_internal.h - what a back end of store.h is. Private to common/store. */
#ifndef PST_STORE_INTERNAL_H
#define PST_STORE_INTERNAL_H

#include "common/base/buf.h"
#include "common/store/store.h"

enum { PST_STORE_DOC_MAX = 15 << 20, PST_STORE_LIMIT = 100, PST_STORE_LIMIT_MAX = 1000 };

typedef struct store_ops {
    const char *kind;
    int (*put)(pst_store *s, const char *collection, const char *id, int64_t seq, const json_t *doc, bool *ret_applied, pst_err *err);
    int (*remove)(pst_store *s, const char *collection, const char *id, int64_t seq, pst_err *err);
    int (*get)(pst_store *s, const char *collection, const char *id, json_t **ret_doc, pst_err *err);
    /* limit is set and within bounds */
    int (*list)(pst_store *s, const char *collection, const pst_store_query *q, json_t **ret_docs, pst_err *err);
    int (*begin)(pst_store *s, pst_err *err);
    int (*commit)(pst_store *s, pst_err *err);
    void (*rollback)(pst_store *s);
    int (*position_set)(pst_store *s, const char *topic, int32_t partition, int64_t next, pst_err *err);
    int (*position_get)(pst_store *s, const char *topic, int32_t partition, int64_t *ret_next, pst_err *err);
    int (*wipe)(pst_store *s, pst_err *err);
    /* Calls fn for every document that is not deleted, ids ascending. */
    int (*each)(pst_store *s, const char *collection, void (*fn)(void *arg, const char *id, int64_t seq, const json_t *doc), void *arg,
                pst_err *err);
    void (*close)(pst_store *s);
} store_ops;

struct pst_store { /* first member of every back end's own struct */
    const store_ops *ops;
    bool rebuilt;
    bool in_transaction;
};

int store_memory_open(pst_store **ret_store, pst_err *err);
int store_sqlite_open(const char *path, bool read_only, pst_store **ret_store, pst_err *err);
int store_mongo_open(const char *uri, bool read_only, pst_store **ret_store, pst_err *err);

/* The fields of a document that queries look at; "" and 0 where they are missing. Borrowed. */
typedef struct store_keys {
    const char *state, *user;
    int64_t submitted_at;
} store_keys;
store_keys store_keys_of(const json_t *doc);

#endif
