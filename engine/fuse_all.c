/* fuse_all.c - the fusions in their order, and what is known of values before each: who reads and makes them, and their types where
 * those are sure. Convolutions go first, because an activation behind them is better there than in a group; elementwise groups take
 * what is left. pst_plan_opts.no_fusion leaves all of it out. */
#include "engine/last.h"

#include "engine/heap.h"

#include <string.h>

static void count_reader(void *arg, int id)
{
    ((int *)arg)[id]++;
}

static void find_readers(eng_fuser *f)
{
    int n_values = f->p->m->n_values;
    memset(f->readers, 0, (size_t)n_values * sizeof *f->readers);
    for (int i = 0; i < n_values; i++)
        f->maker[i] = f->origin[i] = -1;
    for (size_t i = 0; i < f->n; i++) {
        const eng_node *n = f->nodes[i].node;
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] >= 0)
                f->origin[n->out[k]] = (int)i;
        if (f->nodes[i].dead)
            continue;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0)
                f->reader[n->in[k]] = (int)i;
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] >= 0)
                f->maker[n->out[k]] = (int)i;
        eng_visit_uses(n, count_reader, f->readers);
        for (int k = 0; k < n->n_attrs; k++)
            if (n->attrs[k].graph) /* read from inside a graph: never a link of a chain */
                eng_visit_uses(n, count_reader, f->readers);
    }
    for (int i = 0; i < f->graph->n_out; i++)
        f->readers[f->graph->out[i]] += 2;
}

/* The type of a node's first result where it follows from the types of its inputs alone; 0 = not known. */
static int result_type(const eng_fuser *f, const eng_node *n)
{
    switch (n->op->type) {
    case ENG_TYPE_SAME: return n->n_in && n->in[0] >= 0 ? f->types[n->in[0]] : 0;
    case ENG_TYPE_BOOL: return PST_BOOL;
    case ENG_TYPE_I64: return PST_I64;
    case ENG_TYPE_F32: return PST_F32;
    case ENG_TYPE_TO: return (int)eng_attr_int(n, "to", 0);
    default: return 0;
    }
}

static void find_types(eng_fuser *f)
{
    const pst_model *m = f->p->m;
    for (int i = 0; i < m->n_values; i++)
        if (f->p->folded[i] && f->p->vals[i].kind == ENG_VAL_TENSOR)
            f->types[i] = (uint8_t)f->p->vals[i].t.dtype;
    for (int i = 0; f->graph == &m->graph && i < f->graph->n_in; i++)
        if (m->in_kinds[i] == ENG_KIND_TENSOR)
            f->types[f->graph->in[i]] = (uint8_t)m->info.inputs[i].dtype; /* every run checks it */
    for (size_t i = 0; i < f->n; i++) {
        const eng_node *n = f->nodes[i].node;
        if (!f->nodes[i].dead && n->n_out && n->out[0] >= 0)
            f->types[n->out[0]] = (uint8_t)result_type(f, n);
    }
}

/* A Cast to the type a value has already, in front of a reader of this graph, is only a second name. */
static void drop_casts(eng_fuser *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const eng_node *n = f->nodes[i].node;
        if (f->nodes[i].dead || !eng_fuse_is(n, "Cast") || n->in[0] < 0 || !f->types[n->in[0]] ||
            f->types[n->in[0]] != eng_attr_int(n, "to", 0) || f->readers[n->out[0]] != 1)
            continue;
        size_t at = (size_t)f->reader[n->out[0]];
        eng_node *copy = eng_zone_alloc(&f->p->zone, sizeof *copy);
        *copy = *f->nodes[at].node;
        copy->in = eng_zone_alloc(&f->p->zone, (size_t)copy->n_in * sizeof(int));
        for (int k = 0; k < copy->n_in; k++) {
            int id = f->nodes[at].node->in[k];
            copy->in[k] = id == n->out[0] ? n->in[0] : id;
        }
        f->nodes[at].node = copy;
        f->nodes[i].dead = true;
    }
}

void eng_fuse_all(pst_plan *p, const eng_graph *g, eng_node_ref *nodes, size_t n)
{
    static void (*const passes[])(eng_fuser *) = {drop_casts,    eng_fuse_spelled, eng_fuse_int8, eng_fuse_qdq,  eng_fuse_conv,
                                                  eng_fuse_last, eng_fuse_norm,    eng_fuse_mlp,  eng_fuse_elts, eng_fuse_drop_wide};
    size_t n_values = (size_t)p->m->n_values + 1;
    eng_fuser f = {.p = p,
                   .graph = g,
                   .nodes = nodes,
                   .n = n,
                   .readers = eng_heap_array(n_values, sizeof *f.readers),
                   .reader = eng_heap_array(n_values, sizeof *f.reader),
                   .maker = eng_heap_array(n_values, sizeof *f.maker),
                   .origin = eng_heap_array(n_values, sizeof *f.origin),
                   .types = eng_heap_alloc(n_values)};
    find_types(&f);
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        find_readers(&f);
        passes[i](&f);
    }
    eng_heap_free(f.readers);
    eng_heap_free(f.reader);
    eng_heap_free(f.maker);
    eng_heap_free(f.origin);
    eng_heap_free(f.types);
}
