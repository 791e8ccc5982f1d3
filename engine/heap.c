/* heap.c - memory with owners: what fails unwinds to whoever began, and nothing leaks.
 *
 * A block that is owned has a node of 32 bytes before it that links it into its owner's list; unlinking needs no owner, so a
 * block can be freed from anywhere. The way back from a failure is a longjmp over frames of ours and of protobuf-c alone: they
 * hold nothing but owned memory (heap.h, rules). */
#include "engine/heap.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct eng_heap_node {
    struct eng_heap_node *next, **at; /* at: what points here; NULL = owned by nobody */
    void *base;                       /* what malloc gave */
    void *unused;                     /* keeps what follows aligned */
} node;

_Static_assert(sizeof(node) % _Alignof(max_align_t) == 0, "what follows a node must be aligned");

typedef struct frame {
    jmp_buf back;
    eng_heap *owner;
    struct frame *outer;
} frame;

/* One struct: one look-up of the thread's memory serves a call. */
static _Thread_local struct {
    frame *top;
    size_t wanted; /* by the allocation that failed */
    uint64_t asked, fail_at;
    bool fail_on;
} here;

uint64_t eng_heap_test_fail(uint64_t n, bool on)
{
    uint64_t asked = here.asked;
    here.asked = 0;
    here.fail_at = n;
    here.fail_on = on;
    return asked;
}

/* Asked by what can say no: below a eng_heap_run, and for plain memory. */
static bool refused(void)
{
    here.asked++;
    return here.fail_at && (here.asked == here.fail_at || (here.fail_on && here.asked > here.fail_at));
}

static void link_in(node *n, void *base)
{
    n->base = base;
    n->next = NULL;
    n->at = NULL;
    if (here.top) {
        eng_heap *h = here.top->owner;
        n->at = &h->first;
        n->next = h->first;
        if (n->next)
            n->next->at = &n->next;
        h->first = n;
    }
}

static void link_out(node *n)
{
    if (n->at)
        *n->at = n->next;
    if (n->next)
        n->next->at = n->at;
}

static void *take(size_t bytes, bool zeroed)
{
    if ((here.top && refused()) || bytes > PTRDIFF_MAX - sizeof(node))
        return NULL;
    node *n = zeroed ? calloc(1, sizeof *n + bytes) : malloc(sizeof *n + bytes);
    if (!n)
        return NULL;
    link_in(n, n);
    return n + 1;
}

void *eng_heap_try(size_t bytes)
{
    return take(bytes, false);
}

void *eng_heap_bytes(size_t bytes)
{
    void *p = take(bytes, false);
    if (!p)
        eng_heap_fail(bytes);
    return p;
}

void *eng_heap_alloc(size_t bytes)
{
    void *p = take(bytes, true);
    if (!p)
        eng_heap_fail(bytes);
    return p;
}

void *eng_heap_array(size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        eng_heap_fail(SIZE_MAX);
    return eng_heap_alloc(bytes);
}

void *eng_heap_try64(size_t bytes)
{
    size_t all = 0;
    bool wrong = __builtin_add_overflow(bytes, (size_t)127, &all);
    char *base = wrong || (here.top && refused()) ? NULL : aligned_alloc(64, all & ~(size_t)63);
    if (!base)
        return NULL;
    node *n = (node *)(base + 64) - 1;
    link_in(n, base);
    return n + 1;
}

void *eng_heap_alloc64(size_t bytes)
{
    void *p = eng_heap_try64(bytes);
    if (!p)
        eng_heap_fail(bytes);
    return p;
}

void *eng_heap_realloc(void *p, size_t bytes)
{
    if (!p)
        return eng_heap_bytes(bytes);
    node *n = (node *)p - 1;
    PST_ASSERT(n->base == n);
    node *grown = (here.top && refused()) || bytes > PTRDIFF_MAX - sizeof(node) ? NULL : realloc(n, sizeof *n + bytes);
    if (!grown)
        eng_heap_fail(bytes);
    grown->base = grown; /* it may have moved: its neighbours point to the new place */
    if (grown->at)
        *grown->at = grown;
    if (grown->next)
        grown->next->at = &grown->next;
    return grown + 1;
}

void *eng_heap_room(void *at, size_t n, size_t more, size_t *cap, size_t size)
{
    enum { FIRST = 16 };
    PST_ASSERT(n <= *cap && size);
    if (more <= *cap - n)
        return at;
    size_t room = *cap < FIRST / 2 ? FIRST : 2 * *cap;
    if (more > room - n)
        room = more > SIZE_MAX - n ? SIZE_MAX : n + more;
    if (room > PTRDIFF_MAX / size)
        eng_heap_fail(room);
    at = eng_heap_realloc(at, room * size); /* does not return without memory: then at and *cap are as they were */
    *cap = room;
    return at;
}

char *eng_heap_strndup(const char *s, size_t len)
{
    char *p = eng_heap_bytes(len + 1);
    if (len)
        memcpy(p, s, len);
    p[len] = 0;
    return p;
}

void eng_heap_free(void *p)
{
    if (!p)
        return;
    node *n = (node *)p - 1;
    link_out(n);
    free(n->base);
}

void eng_heap_disown(void *p)
{
    node *n = (node *)p - 1;
    link_out(n);
    n->next = NULL;
    n->at = NULL;
}

void eng_heap_release(eng_heap *owner)
{
    for (node *n = owner->first, *next; n; n = next) {
        next = n->next;
        free(n->base);
    }
    owner->first = NULL;
}

void eng_heap_printf(eng_heap_text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    PST_ASSERT(n >= 0);
    t->data = eng_heap_room(t->data, t->len, (size_t)n + 1, &t->cap, 1);
    va_start(ap, fmt);
    vsnprintf(t->data + t->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    t->len += (size_t)n;
}

void *eng_heap_raw(size_t bytes)
{
    return refused() ? NULL : calloc(1, bytes ? bytes : 1);
}

void *eng_heap_raw64(size_t bytes)
{
    return refused() || bytes > PTRDIFF_MAX - 64 ? NULL : aligned_alloc(64, (bytes + 63) & ~(size_t)63);
}

int eng_heap_none(size_t bytes, pst_err *err)
{
    return pst_err_set(err, PST_ENOMEM, PST_CLASS_RETRY, "onnx", 0,
                       "out of memory: %zu more bytes were needed; give the process more memory, or use smaller batches or models", bytes);
}

_Noreturn void eng_heap_fail(size_t bytes)
{
    PST_ASSERT(here.top);
    here.wanted = bytes;
    longjmp(here.top->back, 1);
}

int eng_heap_run(eng_heap *owner, int (*body)(void *arg, pst_err *err), void *arg, pst_err *err)
{
    frame f = {.owner = owner, .outer = here.top};
    bool was_clear = !err || !err->code;
    if (setjmp(f.back)) {
        here.top = f.outer;
        if (was_clear)
            pst_err_clear(err); /* what a kernel wrote before it ran out is not the story */
        return eng_heap_none(here.wanted, err);
    }
    here.top = &f;
    int rc = body(arg, err);
    here.top = f.outer;
    return rc;
}
