/* store_memory.c - memory: everything in maps, for tests and for a gateway that keeps no file. A transaction keeps what it replaced, so that a
 * rollback puts it back. */
#include "common/store/store_internal.h"

#include "common/base/array.h"
#include "common/base/map.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    int64_t seq;
    json_t *doc; /* NULL = deleted */
} entry;

typedef struct undo {
    pst_map *map;
    char *key;
    entry *old; /* NULL = there was none */
} undo;

typedef struct memory {
    pst_store base;
    pst_map collections; /* name → pst_map * of entries */
    pst_map positions;   /* "topic/partition" → entry, seq = next */
    undo *undo;
    size_t n_undo, cap_undo;
} memory;

static void entry_free(void *p)
{
    entry *e = p;
    if (e)
        json_decref(e->doc);
    free(e);
}

static void collection_free(void *p)
{
    pst_map_done(p, entry_free);
    free(p);
}

static pst_map *collection_of(memory *m, const char *name)
{
    pst_map *c = pst_map_get(&m->collections, name);
    if (!c)
        pst_map_put(&m->collections, name, c = pst_alloc(sizeof *c));
    return c;
}

static void set(memory *m, pst_map *map, const char *key, int64_t seq, json_t *doc)
{
    entry *e = pst_alloc(sizeof *e);
    *e = (entry){seq, doc};
    entry *old = pst_map_put(map, key, e);
    PST_ASSERT(!old || old->seq < seq || map == &m->positions); /* the guard: documents never go back */
    if (!m->base.in_transaction) {
        entry_free(old);
        return;
    }
    m->undo = pst_array_room(m->undo, m->n_undo, &m->cap_undo, sizeof *m->undo);
    m->undo[m->n_undo++] = (undo){map, pst_strdup(key), old};
}

static int put(pst_store *s, const char *collection, const char *id, int64_t seq, const json_t *doc, bool *ret_applied, pst_err *err)
{
    memory *m = (memory *)s;
    pst_map *c = collection_of(m, collection);
    const entry *old = pst_map_get(c, id);
    *ret_applied = !old || old->seq < seq;
    if (*ret_applied)
        set(m, c, id, seq, json_deep_copy(doc));
    return 0;
}

static int remove_doc(pst_store *s, const char *collection, const char *id, int64_t seq, pst_err *err)
{
    memory *m = (memory *)s;
    pst_map *c = collection_of(m, collection);
    const entry *old = pst_map_get(c, id);
    if (!old || old->seq < seq)
        set(m, c, id, seq, NULL);
    return 0;
}

static int get(pst_store *s, const char *collection, const char *id, json_t **ret_doc, pst_err *err)
{
    const entry *e = pst_map_get(collection_of((memory *)s, collection), id);
    if (!e || !e->doc)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "store", 0, "%s has no %s", collection, id);
    *ret_doc = json_deep_copy(e->doc);
    return 0;
}

typedef struct found {
    const char *id;
    const entry *e;
    int64_t submitted_at;
} found;

static int newest_first(const void *a, const void *b)
{
    const found *x = a, *y = b;
    if (x->submitted_at != y->submitted_at)
        return x->submitted_at > y->submitted_at ? -1 : 1;
    return strcmp(x->id, y->id);
}

static int by_id(const void *a, const void *b)
{
    return strcmp(((const found *)a)->id, ((const found *)b)->id);
}

/* Every document that is there, in the given order; free() it. */
static found *sorted(const pst_map *c, int (*order)(const void *, const void *), size_t *ret_n)
{
    found *all = pst_alloc((c->live + 1) * sizeof *all);
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const entry *e = c->at[i].key ? c->at[i].value : NULL;
        if (e && e->doc)
            all[n++] = (found){c->at[i].key, e, store_keys_of(e->doc).submitted_at};
    }
    qsort(all, n, sizeof *all, order);
    *ret_n = n;
    return all;
}

static int list(pst_store *s, const char *collection, const pst_store_query *q, json_t **ret_docs, pst_err *err)
{
    size_t n, i = 0;
    found *all = sorted(collection_of((memory *)s, collection), newest_first, &n);
    found last = {.id = q->after, .submitted_at = q->after_time};
    while (q->after && i < n && newest_first(&all[i], &last) <= 0)
        i++;
    json_t *docs = json_array();
    for (; i < n && json_array_size(docs) < q->limit; i++) {
        store_keys k = store_keys_of(all[i].e->doc);
        if ((!q->state || !strcmp(q->state, k.state)) && (!q->user || !strcmp(q->user, k.user)))
            json_array_append_new(docs, json_deep_copy(all[i].e->doc));
    }
    free(all);
    *ret_docs = docs;
    return 0;
}

static int begin(pst_store *s, pst_err *err)
{
    PST_ASSERT(!((memory *)s)->n_undo); /* the last transaction has ended, one way or the other */
    return 0;
}

static int commit(pst_store *s, pst_err *err)
{
    memory *m = (memory *)s;
    for (size_t i = 0; i < m->n_undo; i++) {
        free(m->undo[i].key);
        entry_free(m->undo[i].old);
    }
    m->n_undo = 0;
    return 0;
}

static void rollback(pst_store *s)
{
    memory *m = (memory *)s;
    while (m->n_undo) {
        undo *u = &m->undo[--m->n_undo];
        entry_free(u->old ? pst_map_put(u->map, u->key, u->old) : pst_map_take(u->map, u->key));
        free(u->key);
    }
}

static int position_set(pst_store *s, const char *topic, int32_t partition, int64_t next, pst_err *err)
{
    char *key = pst_sprintf("%s/%d", topic, partition);
    set((memory *)s, &((memory *)s)->positions, key, next, NULL);
    free(key);
    return 0;
}

static int position_get(pst_store *s, const char *topic, int32_t partition, int64_t *ret_next, pst_err *err)
{
    char *key = pst_sprintf("%s/%d", topic, partition);
    const entry *e = pst_map_get(&((memory *)s)->positions, key);
    free(key);
    if (!e)
        return pst_err_set(err, PST_ENOTFOUND, PST_CLASS_DATA, "store", 0, "no position of %s partition %d", topic, partition);
    *ret_next = e->seq;
    return 0;
}

static int wipe(pst_store *s, pst_err *err)
{
    memory *m = (memory *)s;
    PST_ASSERT(!m->n_undo); /* undo points into the maps */
    pst_map_done(&m->collections, collection_free);
    pst_map_done(&m->positions, entry_free);
    return 0;
}

static int each(pst_store *s, const char *collection, void (*fn)(void *, const char *, int64_t, const json_t *), void *arg, pst_err *err)
{
    size_t n;
    found *all = sorted(collection_of((memory *)s, collection), by_id, &n);
    for (size_t i = 0; i < n; i++)
        fn(arg, all[i].id, all[i].e->seq, all[i].e->doc);
    free(all);
    return 0;
}

static void close_memory(pst_store *s)
{
    memory *m = (memory *)s;
    commit(s, NULL);
    wipe(s, NULL);
    free(m->undo);
    free(m);
}

static const store_ops memory_ops = {"memory", put,          remove_doc,   get,  list, begin,       commit,
                                     rollback, position_set, position_get, wipe, each, close_memory};

int store_memory_open(pst_store **ret_store, pst_err *err)
{
    memory *m = pst_alloc(sizeof *m);
    m->base.ops = &memory_ops;
    *ret_store = &m->base;
    return 0;
}
