/* heap.h - the engine's memory: every allocation has an owner, and running out of it unwinds to the public call. Not installed.
 *
 * A public call that allocates (load, plan, run) does its work inside eng_heap_run. What is allocated there belongs to the owner
 * that the call named - the model or the plan - and is freed one by one with eng_heap_free or all at once with the owner. When an
 * allocation fails, control goes back to eng_heap_run, which returns PST_ENOMEM with a sentence; the call then releases its
 * owner, so nothing leaks whatever was half built. Why not a check at every place: there are some hundred of them, most in
 * kernels that have no way to say it, and each would be a path of its own that only a failure ever walks. Here there is one.
 *
 *     static int build(void *arg, pst_err *err)              // anywhere below: eng_heap_alloc never returns NULL
 *     {
 *         thing *t = arg;
 *         t->table = eng_heap_array(n, sizeof *t->table);
 *         …
 *     }
 *     thing *t = eng_heap_raw(sizeof *t);                    // the owner itself: plain memory, may be NULL, free() it
 *     int rc = t ? eng_heap_run(&t->heap, build, t, err) : eng_heap_none(sizeof *t, err);
 *     if (rc < 0) { eng_heap_release(&t->heap); free(t); }
 *
 * Rules below a eng_heap_run:
 *   - hold nothing else across an allocation: no descriptor, lock, FILE, library object or malloc'ed memory. Take those outside
 *     and hand them in, or allocate first, or ask with eng_heap_try and clean up yourself.
 *   - pst_alloc, pst_buf_…, pst_map_…, strdup abort or leak on failure: use what is here, the zone, names.h.
 *   - what eng_heap_… gave is freed with eng_heap_free, never with free(), and the other way round.
 *   - only the thread that entered allocates.
 * Outside of one (tests that call kernels directly) allocations belong to nobody and a failure aborts, as pst_alloc does.
 *
 * Threads: an owner belongs to one thread at a time. */
#ifndef PST_ENGINE_HEAP_H
#define PST_ENGINE_HEAP_H

#include "common/base/err.h"

struct eng_heap_node;

/* An owner; all zeros is empty. It must not move while it owns something. */
typedef struct eng_heap {
    struct eng_heap_node *first;
} eng_heap;

/* Runs body(arg, err) with owner as the owner of what is allocated. Returns what body returns, or PST_ENOMEM (class RETRY) when
 * an allocation failed: then release owner. Calls nest; the innermost counts. */
int eng_heap_run(eng_heap *owner, int (*body)(void *arg, pst_err *err), void *arg, pst_err *err);
/* Frees everything that owner owns. */
void eng_heap_release(eng_heap *owner);

/* Never NULL. Zeroed, aligned for any scalar. 0 bytes give a valid pointer. */
void *eng_heap_alloc(size_t bytes);
void *eng_heap_array(size_t n, size_t size); /* n · size bytes, the product checked */
/* Never NULL. Not zeroed. */
void *eng_heap_bytes(size_t bytes);
void *eng_heap_alloc64(size_t bytes); /* 64-byte aligned; not for eng_heap_realloc */
void *eng_heap_realloc(void *p, size_t bytes);
/* Room for `more` behind the first n of an array that grows: the one place here that decides by how much. *cap is set when it is there. */
void *eng_heap_room(void *at, size_t n, size_t more, size_t *cap, size_t size);
char *eng_heap_strndup(const char *s, size_t len);
/* Like eng_heap_bytes and eng_heap_alloc64, but NULL on failure: for places that hold something else. Say it with eng_heap_none. */
void *eng_heap_try(size_t bytes);
void *eng_heap_try64(size_t bytes);
void eng_heap_free(void *p);   /* NULL-safe */
void eng_heap_disown(void *p); /* its owner forgets it: eng_heap_free it, from any thread. By the owner's thread */

/* Text that grows; data belongs to the owner. */
typedef struct eng_heap_text {
    char *data; /* NULL or NUL-terminated */
    size_t len, cap;
} eng_heap_text;
void eng_heap_printf(eng_heap_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Plain memory that belongs to nobody: NULL on failure, free() it. For owners themselves and what outlives every owner. */
void *eng_heap_raw(size_t bytes);   /* zeroed */
void *eng_heap_raw64(size_t bytes); /* not zeroed, 64-byte aligned */
/* Writes the sentence and returns PST_ENOMEM. */
int eng_heap_none(size_t bytes, pst_err *err);
/* Unwinds as a failed allocation does: for those who got a NULL from eng_heap_raw below a eng_heap_run. */
_Noreturn void eng_heap_fail(size_t bytes);

/* For tests, of the calling thread: the n-th allocation from now on fails (1 = the next), all later ones too if `on`; 0 = none.
 * Returns how many allocations were asked for since the last call. What aborts on failure is not counted. */
uint64_t eng_heap_test_fail(uint64_t n, bool on);

#endif
