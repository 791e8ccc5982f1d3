/* keyed.c - keys in a hash table and in a list by use; a log of what was done since the last settle, which is undone from its end. An undone step leaves the
 * list as it was, too: which key is forgotten next must not depend on rounds that have not happened. What a step pushed out of a series lies in `spill`, since
 * it is one value a record, not a copy of the key. */
#include "inference/state/keyed_priv.h"

#include "common/base/array.h"
#include "common/base/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRY_BYTES = 160, FIRST_BUCKETS = 256 };

typedef enum { STEP_NEW, STEP_ADD, STEP_GONE } step_kind;

typedef struct step {
    step_kind kind;
    bool was_dirty;
    keyed_entry *e, *behind; /* behind: which was the next older by use */
    int64_t record;          /* the offset of the record that did it */
    int64_t newest_ms, offset, last;
    size_t spill;
    uint64_t forgotten, idle, cut;
} step;

/* For each series of a STEP_ADD or STEP_NEW: was a value added, and how many went; then those, oldest first. */
typedef struct spilled {
    uint32_t n;
    bool added;
} spilled;

struct pst_keyed {
    const pst_keyed_plan *plan;
    uint64_t seed;
    keyed_entry **buckets;
    size_t n_buckets;
    keyed_entry *newest, *oldest; /* by use */
    int64_t last;                 /* offset that entered last */
    step *steps;
    size_t n_steps, cap_steps;
    pst_buf spill, value;
    keyed_entry *cursor; /* of pst_keyed_change */
    size_t cursor_at, gone_at;
    pst_keyed_counts counts;
};

/* ---- table and list -------------------------------------------------------------------------------------------------------- */

/* Keys are strangers' bytes: the seed keeps them from all lying in one bucket. */
static uint64_t hash_of(const pst_keyed *k, pst_slice key)
{
    const uint8_t *b = key.data;
    uint64_t h = k->seed;
    for (size_t i = 0; i < key.len; i++)
        h = (h ^ b[i]) * 0x100000001b3u;
    return h ^ (h >> 29);
}

static keyed_entry *find(const pst_keyed *k, pst_slice key, uint64_t hash)
{
    for (keyed_entry *e = k->buckets[hash & (k->n_buckets - 1)]; e; e = e->chain)
        if (e->hash == hash && e->key_len == key.len && !memcmp(e->key, key.data, key.len))
            return e;
    return NULL;
}

static void grow(pst_keyed *k)
{
    size_t n = 2 * k->n_buckets;
    keyed_entry **buckets = pst_alloc(n * sizeof(keyed_entry *));
    for (size_t i = 0; i < k->n_buckets; i++)
        for (keyed_entry *e = k->buckets[i], *next; e; e = next) {
            next = e->chain;
            e->chain = buckets[e->hash & (n - 1)];
            buckets[e->hash & (n - 1)] = e;
        }
    free(k->buckets);
    k->buckets = buckets;
    k->n_buckets = n;
}

static size_t bytes_of(const pst_keyed *k, const keyed_entry *e)
{
    size_t n = 0;
    for (size_t i = 0; i < k->plan->n_series; i++)
        n += e->series[i].n;
    return ENTRY_BYTES + e->key_len + n * sizeof(pst_series_value);
}

static void list_out(pst_keyed *k, keyed_entry *e)
{
    *(e->newer ? &e->newer->older : &k->newest) = e->older;
    *(e->older ? &e->older->newer : &k->oldest) = e->newer;
}

/* In front of that one; NULL: it becomes the oldest. */
static void list_in(pst_keyed *k, keyed_entry *e, keyed_entry *behind)
{
    e->older = behind;
    e->newer = behind ? behind->newer : k->oldest;
    *(e->newer ? &e->newer->older : &k->newest) = e;
    *(behind ? &behind->newer : &k->oldest) = e;
}

static void put_in(pst_keyed *k, keyed_entry *e, keyed_entry *behind)
{
    if (k->counts.keys >= k->n_buckets)
        grow(k);
    keyed_entry **at = &k->buckets[e->hash & (k->n_buckets - 1)];
    e->chain = *at;
    *at = e;
    list_in(k, e, behind);
    k->counts.keys++;
    k->counts.bytes += bytes_of(k, e);
}

static void take_out(pst_keyed *k, keyed_entry *e)
{
    keyed_entry **at = &k->buckets[e->hash & (k->n_buckets - 1)];
    while (*at != e)
        at = &(*at)->chain;
    *at = e->chain;
    list_out(k, e);
    k->counts.keys--;
    k->counts.bytes -= bytes_of(k, e);
}

static keyed_entry *entry_new(const pst_keyed *k, pst_slice key, uint64_t hash)
{
    keyed_entry *e = pst_alloc(sizeof(*e) + k->plan->n_series * sizeof(pst_series));
    e->hash = hash;
    e->newest_ms = e->offset = -1;
    e->key_len = (uint32_t)key.len;
    e->key = pst_alloc(key.len + 1);
    if (key.len)
        memcpy(e->key, key.data, key.len);
    return e;
}

static void entry_free(const pst_keyed *k, keyed_entry *e)
{
    for (size_t i = 0; i < k->plan->n_series; i++)
        pst_series_done(&e->series[i]);
    free(e->key);
    free(e);
}

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

pst_keyed *pst_keyed_new(const pst_keyed_plan *plan)
{
    pst_keyed *k = pst_alloc(sizeof(*k));
    PST_ASSERT(plan->n_series <= PST_KEYED_SERIES_MAX && plan->keys_max && plan->bytes_max);
    k->plan = plan;
    pst_random(&k->seed, sizeof(k->seed));
    k->n_buckets = FIRST_BUCKETS;
    k->buckets = pst_alloc(k->n_buckets * sizeof(keyed_entry *));
    k->last = -1;
    return k;
}

void pst_keyed_free(pst_keyed *k)
{
    if (!k)
        return;
    pst_keyed_settle(k);
    for (keyed_entry *e = k->newest, *next; e; e = next) {
        next = e->older;
        entry_free(k, e);
    }
    free(k->buckets);
    free(k->steps);
    pst_buf_done(&k->spill);
    pst_buf_done(&k->value);
    free(k);
}

/* ---- a record -------------------------------------------------------------------------------------------------------------- */

static bool is_idle(const pst_keyed *k, const keyed_entry *e, int64_t now_ms)
{
    return k->plan->idle_ms && e->newest_ms >= 0 && now_ms - e->newest_ms > k->plan->idle_ms;
}

static int64_t time_of(const keyed_entry *e, int64_t time_ms)
{
    if (e && e->newest_ms > time_ms)
        return e->newest_ms;
    return time_ms < 0 ? -1 : time_ms;
}

void pst_keyed_read(pst_keyed *k, pst_slice key, int64_t time_ms, const double *x, double *ret_values)
{
    static const pst_series none = {0};
    const keyed_entry *e = find(k, key, hash_of(k, key));
    if (e && is_idle(k, e, time_ms))
        e = NULL;
    int64_t now = time_of(e, time_ms);
    for (size_t i = 0; i < k->plan->n_windows; i++) {
        const pst_window *w = &k->plan->windows[i];
        ret_values[i] = pst_window_read(w, e ? &e->series[w->series] : &none, now, isfinite(x[w->series]) ? x[w->series] : NAN);
    }
}

static void log_step(pst_keyed *k, step_kind kind, keyed_entry *e, int64_t record)
{
    k->steps = pst_array_room(k->steps, k->n_steps, &k->cap_steps, sizeof(*k->steps));
    k->steps[k->n_steps++] = (step){.kind = kind,
                                    .was_dirty = e->dirty,
                                    .e = e,
                                    .behind = e->older,
                                    .record = record,
                                    .newest_ms = e->newest_ms,
                                    .offset = e->offset,
                                    .last = k->last,
                                    .spill = k->spill.len,
                                    .forgotten = k->counts.forgotten,
                                    .idle = k->counts.idle,
                                    .cut = k->counts.cut};
}

static void drop(pst_keyed *k, keyed_entry *e, int64_t record)
{
    log_step(k, STEP_GONE, e, record);
    take_out(k, e);
}

static void add_value(pst_keyed *k, keyed_entry *e, size_t i, int64_t now_ms, double x)
{
    spilled out = {.added = isfinite(x)};
    size_t at = k->spill.len;
    bool cut;
    pst_buf_add(&k->spill, &out, sizeof(out));
    if (!out.added)
        return;
    pst_series_push(&e->series[i], now_ms, x);
    while (pst_series_spare(&e->series[i], &k->plan->series[i], &cut)) {
        pst_series_value v = pst_series_drop_oldest(&e->series[i]);
        pst_buf_add(&k->spill, &v, sizeof(v));
        k->counts.cut += cut;
        out.n++;
    }
    memcpy(k->spill.data + at, &out, sizeof(out));
}

/* Only where there is none: keys are silent by their own times, and by another's, whose clock may be years ahead, none may be taken for it. Which are gone for
 * their silence, and would have begun anew, is a word for the counts. */
static void make_room(pst_keyed *k, const keyed_entry *but, int64_t record)
{
    while (k->oldest != but && (k->counts.keys > k->plan->keys_max || k->counts.bytes > k->plan->bytes_max)) {
        bool idle = is_idle(k, k->oldest, but->newest_ms);
        drop(k, k->oldest, record);
        *(idle ? &k->counts.idle : &k->counts.forgotten) += 1;
    }
}

void pst_keyed_enter(pst_keyed *k, pst_slice key, int64_t time_ms, int64_t offset, const double *x)
{
    uint64_t hash = hash_of(k, key);
    keyed_entry *e = find(k, key, hash);
    PST_ASSERT(offset > k->last && key.len <= PST_KEYED_KEY_MAX && time_ms <= PST_KEYED_TIME_MAX);
    if (e && is_idle(k, e, time_ms)) {
        drop(k, e, offset);
        k->counts.idle++;
        e = NULL;
    }
    bool fresh = !e;
    if (fresh) {
        e = entry_new(k, key, hash);
        put_in(k, e, k->newest);
    }
    log_step(k, fresh ? STEP_NEW : STEP_ADD, e, offset);
    list_out(k, e);
    list_in(k, e, k->newest);
    k->counts.bytes -= bytes_of(k, e);
    e->newest_ms = time_of(e, time_ms);
    e->offset = k->last = offset;
    e->dirty = true;
    for (size_t i = 0; i < k->plan->n_series; i++)
        add_value(k, e, i, e->newest_ms, x[i]);
    k->counts.bytes += bytes_of(k, e);
    make_room(k, e, offset);
}

int64_t pst_keyed_offset(const pst_keyed *k)
{
    return k->last;
}

/* ---- rounds ---------------------------------------------------------------------------------------------------------------- */

static void take_back_values(pst_keyed *k, keyed_entry *e, size_t at)
{
    for (size_t i = 0; i < k->plan->n_series; i++) {
        spilled out;
        memcpy(&out, k->spill.data + at, sizeof(out));
        at += sizeof(out);
        for (uint32_t n = out.n; n-- > 0;) {
            pst_series_value v;
            memcpy(&v, k->spill.data + at + n * sizeof(v), sizeof(v));
            pst_series_push_oldest(&e->series[i], v);
        }
        at += out.n * sizeof(pst_series_value);
        if (out.added)
            pst_series_drop_newest(&e->series[i]);
    }
}

static void undo_step(pst_keyed *k, const step *s)
{
    keyed_entry *e = s->e;
    if (s->kind == STEP_GONE) {
        put_in(k, e, s->behind);
    } else {
        k->counts.bytes -= bytes_of(k, e);
        take_back_values(k, e, s->spill);
        k->counts.bytes += bytes_of(k, e);
        list_out(k, e);
        list_in(k, e, s->behind);
    }
    e->dirty = s->was_dirty;
    e->newest_ms = s->newest_ms;
    e->offset = s->offset;
    k->last = s->last;
    k->counts.forgotten = s->forgotten;
    k->counts.idle = s->idle;
    k->counts.cut = s->cut;
    pst_buf *spill = &k->spill;
    spill->len = s->spill;
    if (s->kind == STEP_NEW) {
        take_out(k, e);
        entry_free(k, e);
    }
}

void pst_keyed_undo(pst_keyed *k, int64_t from)
{
    while (k->n_steps && k->steps[k->n_steps - 1].record >= from)
        undo_step(k, &k->steps[--k->n_steps]);
}

void pst_keyed_settle(pst_keyed *k)
{
    for (size_t i = 0; i < k->n_steps; i++)
        if (k->steps[i].kind == STEP_GONE)
            entry_free(k, k->steps[i].e);
        else
            k->steps[i].e->dirty = false;
    k->n_steps = 0;
    pst_buf_clear(&k->spill);
}

/* Keys that are gone first, unless they have come again; then those that changed, the one that was used longest ago first: so their last records stand in
 * the order of their use, and a restore finds it. The changed ones are the head of the list, since a change is a use. */
bool pst_keyed_change(pst_keyed *k, size_t i, pst_slice *ret_key, pst_slice *ret_value)
{
    if (i == 0) {
        k->gone_at = 0;
        k->cursor = NULL;
        for (keyed_entry *e = k->newest; e && e->dirty; e = e->older)
            k->cursor = e;
    }
    for (; k->gone_at < k->n_steps; k->gone_at++) {
        const step *s = &k->steps[k->gone_at];
        pst_slice key = {s->e->key, s->e->key_len};
        if (s->kind != STEP_GONE || find(k, key, s->e->hash))
            continue;
        k->gone_at++;
        *ret_key = key;
        *ret_value = (pst_slice){0};
        return true;
    }
    if (!k->cursor)
        return false;
    pst_buf_clear(&k->value);
    keyed_put(k->plan, k->cursor, &k->value);
    *ret_key = (pst_slice){k->cursor->key, k->cursor->key_len};
    *ret_value = (pst_slice){k->value.data, k->value.len};
    k->cursor = k->cursor->newer;
    return true;
}

int pst_keyed_restore(pst_keyed *k, pst_slice key, pst_slice value, pst_err *err)
{
    PST_ASSERT(!k->n_steps);
    if (key.len > PST_KEYED_KEY_MAX)
        return pst_err_set(err, PST_ELIMIT, PST_CLASS_DATA, "state", 0, "a key of %zu bytes is longer than the limit of %d", key.len,
                           PST_KEYED_KEY_MAX);
    uint64_t hash = hash_of(k, key);
    keyed_entry *e = find(k, key, hash), *fresh = NULL;
    if (value.data) {
        fresh = entry_new(k, key, hash);
        int rc = keyed_get(k->plan, value, fresh, err);
        if (rc < 0) {
            entry_free(k, fresh);
            return rc;
        }
    }
    if (e) {
        take_out(k, e);
        entry_free(k, e);
    }
    if (!fresh)
        return 0;
    put_in(k, fresh, k->newest);
    if (fresh->offset > k->last)
        k->last = fresh->offset;
    return 0;
}

pst_keyed_counts pst_keyed_count(const pst_keyed *k)
{
    return k->counts;
}
