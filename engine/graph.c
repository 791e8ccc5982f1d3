/* graph.c - reading a loaded model: attributes of nodes, what nested graphs read, what callers may ask of it, and its end. */
#include "engine/graph.h"

#include "engine/ort/ort.h"
#include "engine/share.h"

#include <stdlib.h>
#include <string.h>

int64_t eng_dims_count(const int64_t *dims, int rank)
{
    int64_t n = 1;
    bool zero = false;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0)
            return -1;
        if (!dims[i])
            zero = true;
        else if (__builtin_mul_overflow(n, dims[i], &n))
            return -1; /* also when another dimension is 0: nothing sane looks like that */
    }
    return zero ? 0 : n;
}

const eng_attr *eng_attr_find(const eng_node *n, const char *name)
{
    for (int i = 0; i < n->n_attrs; i++)
        if (!strcmp(n->attrs[i].name, name))
            return &n->attrs[i];
    return NULL;
}

int64_t eng_attr_int(const eng_node *n, const char *name, int64_t def)
{
    const eng_attr *a = eng_attr_find(n, name);
    return a && (a->type == ENG_ATTR_INT || a->type == ENG_ATTR_TYPE) ? a->i : def;
}

float eng_attr_float(const eng_node *n, const char *name, float def)
{
    const eng_attr *a = eng_attr_find(n, name);
    return a && a->type == ENG_ATTR_FLOAT ? a->f : def;
}

const char *eng_attr_str(const eng_node *n, const char *name, const char *def)
{
    const eng_attr *a = eng_attr_find(n, name);
    return a && a->type == ENG_ATTR_STRING ? a->s : def;
}

const int64_t *eng_attr_ints(const eng_node *n, const char *name, size_t *ret_n)
{
    const eng_attr *a = eng_attr_find(n, name);
    bool ok = a && a->type == ENG_ATTR_INTS;
    *ret_n = ok ? a->n : 0;
    return ok ? a->ints : NULL;
}

const float *eng_attr_floats(const eng_node *n, const char *name, size_t *ret_n)
{
    const eng_attr *a = eng_attr_find(n, name);
    bool ok = a && a->type == ENG_ATTR_FLOATS;
    *ret_n = ok ? a->n : 0;
    return ok ? a->floats : NULL;
}

const char *const *eng_attr_strings(const eng_node *n, const char *name, size_t *ret_n)
{
    const eng_attr *a = eng_attr_find(n, name);
    bool ok = a && a->type == ENG_ATTR_STRINGS;
    *ret_n = ok ? a->n : 0;
    return ok ? a->strings : NULL;
}

/* Value ids read by graphs nested in a node, their own locals included (harmless). */
void eng_visit_graph(const eng_graph *g, void (*use)(void *arg, int id), void *arg)
{
    for (size_t i = 0; i < g->n_nodes; i++)
        eng_visit_uses(&g->nodes[i], use, arg);
    for (int i = 0; i < g->n_out; i++)
        use(arg, g->out[i]);
}

void eng_visit_uses(const eng_node *n, void (*use)(void *arg, int id), void *arg)
{
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] >= 0)
            use(arg, n->in[k]);
    for (int k = 0; k < n->n_attrs; k++)
        if (n->attrs[k].graph)
            eng_visit_graph(n->attrs[k].graph, use, arg);
}

pst_model *pst_model_ref(pst_model *m)
{
    int refs = __atomic_add_fetch(&m->refs, 1, __ATOMIC_RELAXED);
    PST_ASSERT(refs > 1); /* who has none cannot give another */
    return m;
}

void pst_model_unref(pst_model *m)
{
    if (!m)
        return;
    int refs = __atomic_sub_fetch(&m->refs, 1, __ATOMIC_ACQ_REL);
    PST_ASSERT(refs >= 0);
    if (refs > 0)
        return;
    eng_ort_close(m->ort);
    eng_share_free(m);
    eng_heap_release(&m->heap); /* the zone and the unpacked file among it */
    free(m);
}

const pst_model_info *pst_model_info_get(const pst_model *m)
{
    return &m->info;
}

const char *pst_model_meta(const pst_model *m, const char *key)
{
    for (size_t i = 0; i < m->info.n_meta; i++)
        if (!strcmp(m->info.meta_keys[i], key))
            return m->info.meta_values[i];
    return NULL;
}
