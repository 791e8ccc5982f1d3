/* store.h - the document database, a view of the topics: guarded, idempotent upserts by sequence, and reads for the gateway.
 * Three back ends behind one interface and one conformance suite: sqlite:PATH (default), mongodb://…/database, memory:.
 *
 *     pst_store_put(s, "jobs", id, seq, json, &applied, &err);    // applied = false: an equal or newer seq is there already
 *
 * Only the view writer writes. Documents are JSON objects; the ones of collection "jobs" are queried by "state" and "user".
 * Errors: database away or locked → PST_EUNREACH/RETRY; file vanished or damaged → PST_EIO/RETRY after it was created again (see rebuilt).
 * @thread one at a time per pst_store (open one per thread).  */
#ifndef PST_STORE_H
#define PST_STORE_H

#include "common/base/err.h"

#include <jansson.h>

typedef struct pst_store pst_store;

/* sqlite: opens WAL, makes the file and its folder; read_only: PST_ENOTFOUND/RETRY while it does not exist. */
int pst_store_open(const char *url, bool read_only, pst_store **ret_store, pst_err *err);
void pst_store_close(pst_store *s);
const char *pst_store_kind(const pst_store *s); /* "sqlite", "mongodb", "memory" */
/* Guarded upsert: applied only where no document of that id has seq ≥ the given one. */
int pst_store_put(pst_store *s, const char *collection, const char *id, int64_t seq, const json_t *doc, bool *ret_applied, pst_err *err);
/* Guarded delete: leaves a tombstone with that seq, so that an older put does not bring it back. */
int pst_store_delete(pst_store *s, const char *collection, const char *id, int64_t seq, pst_err *err);
int pst_store_get(pst_store *s, const char *collection, const char *id, json_t **ret_doc, pst_err *err); /* PST_ENOTFOUND/DATA */

typedef struct pst_store_query {
    const char *state, *user; /* NULL = any; compared with the document's fields */
    const char *after;        /* id after which to go on: the last answer's; NULL = first page. It need not be there any more */
    int64_t after_time;       /* and its "submitted_at" */
    size_t limit;             /* 0 = 100, at most 1,000 */
} pst_store_query;
/* Newest first by "submitted_at", then id. ret_docs: a JSON array. */
int pst_store_list(pst_store *s, const char *collection, const pst_store_query *q, json_t **ret_docs, pst_err *err);
/* Positions of the view writer (next offset to read per topic-partition), in the same transaction as the puts since pst_store_begin. */
int pst_store_begin(pst_store *s, pst_err *err);
int pst_store_commit(pst_store *s, pst_err *err);
void pst_store_rollback(pst_store *s);
int pst_store_position_set(pst_store *s, const char *topic, int32_t partition, int64_t next, pst_err *err);
int pst_store_position_get(pst_store *s, const char *topic, int32_t partition, int64_t *ret_next, pst_err *err); /* PST_ENOTFOUND = none */
/* Empties everything, positions too: the topics are those of another cluster than before. Not inside a transaction. */
int pst_store_wipe(pst_store *s, pst_err *err);
/* True once after the database was found gone or damaged and created again while open: the writer must go back to the
 * positions that the new one holds (none: the start). */
bool pst_store_rebuilt(pst_store *s);
/* Everything as one canonical text (sorted), for the test "replayed view equals live view". free() it. */
char *pst_store_dump(pst_store *s, const char *collection, pst_err *err);

#endif
