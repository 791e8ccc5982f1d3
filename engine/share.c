/* share.c - what the plans of a model share: a small table on the model, keyed by addresses; each entry lies in the zone of what it stands for. */
#include "engine/share.h"

#include "engine/plan.h"

#include <string.h>

enum { FIRST_CHUNK = 1024 }; /* most things are larger and get a chunk of their size */

struct eng_shared {
    struct eng_shared *next;
    eng_share_key key;
    const eng_cpu_kernels *kernels;
    eng_zone zone; /* it lies in it itself */
    void *made;
};

static void let_go(const eng_shared *s)
{
    eng_zone zone = s->zone;
    if (s->key.release)
        s->key.release(s->made);
    eng_zone_done(&zone);
}

static eng_shared **bucket(pst_model *m, const eng_share_key *k)
{
    uintptr_t h = (uintptr_t)k->of / 64 + (uintptr_t)k->by / 64 + (uintptr_t)k->variant;
    return &m->shared[(h ^ h >> 6 ^ h >> 12) % ENG_SHARED_BUCKETS];
}

static const eng_shared *find(eng_shared *const *in, const eng_cpu_kernels *kernels, const eng_share_key *k)
{
    for (const eng_shared *s = *in; s; s = s->next)
        if (s->key.of == k->of && s->key.by == k->by && s->key.variant == k->variant && s->kernels == kernels &&
            !strcmp(s->key.what, k->what))
            return s;
    return NULL;
}

/* s becomes the model's, or, when another plan was first, goes. */
static const eng_shared *give(pst_plan *p, eng_shared *s)
{
    pst_model *m = p->m;
    pthread_mutex_lock(&m->share_lock);
    eng_shared **in = bucket(m, &s->key);
    const eng_shared *there = find(in, s->kernels, &s->key);
    if (!there) {
        eng_zone_disown(&s->zone);
        s->next = *in;
        *in = s;
    }
    pthread_mutex_unlock(&m->share_lock);
    if (!there)
        return s;
    let_go(s);
    return there;
}

int eng_share(pst_plan *p, const eng_share_key *key, size_t size, eng_share_make make, void *arg, const void **ret)
{
    PST_ASSERT(key->what && (key->of || key->by || key->variant)); /* a key of nothing would stand for everything */
    const eng_cpu_kernels *kernels = eng_kernels_pick(p->isa);
    pthread_mutex_lock(&p->m->share_lock);
    const eng_shared *there = find(bucket(p->m, key), kernels, key);
    pthread_mutex_unlock(&p->m->share_lock);
    if (!there) {
        eng_zone zone = {.chunk = FIRST_CHUNK};
        eng_shared *s = eng_zone_alloc(&zone, sizeof *s);
        void *made = eng_zone_alloc(&zone, size);
        int rc = make(arg, &zone, made);
        if (rc < 0) {
            eng_zone_done(&zone);
            return rc;
        }
        *s = (eng_shared){.key = *key, .kernels = kernels, .zone = zone, .made = made};
        there = give(p, s);
    }
    p->shared_bytes += eng_zone_bytes(&there->zone);
    *ret = there->made;
    return 0;
}

typedef struct for_kernel {
    eng_op_ctx *c;
    int (*make)(eng_op_ctx *c, void *made);
} for_kernel;

static int make_for_kernel(void *arg, eng_zone *zone, void *made)
{
    const for_kernel *f = arg;
    eng_zone *before = f->c->keep;
    f->c->keep = zone;
    int rc = f->make(f->c, made);
    f->c->keep = before;
    return rc;
}

int eng_op_share(eng_op_ctx *c, const eng_share_key *key, bool of_model, size_t size, int (*make)(eng_op_ctx *c, void *made), void *ret)
{
    if (of_model)
        return eng_share(c->plan, key, size, make_for_kernel, &(for_kernel){c, make}, ret);
    void *made = eng_zone_alloc(c->keep ? c->keep : &c->plan->zone, size);
    *(const void **)ret = made;
    return make(c, made);
}

void eng_share_free(pst_model *m)
{
    for (size_t i = 0; i < ENG_SHARED_BUCKETS; i++)
        for (eng_shared *s = m->shared[i], *next; s; s = next) {
            next = s->next;
            let_go(s);
        }
    pthread_mutex_destroy(&m->share_lock);
}

size_t eng_share_bytes(pst_model *m)
{
    size_t bytes = 0;
    pthread_mutex_lock(&m->share_lock);
    for (size_t i = 0; i < ENG_SHARED_BUCKETS; i++)
        for (const eng_shared *s = m->shared[i]; s; s = s->next)
            bytes += eng_zone_bytes(&s->zone);
    pthread_mutex_unlock(&m->share_lock);
    return bytes;
}
