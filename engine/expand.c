/* expand.c - the nodes that a node of a composed operator becomes. Which operators they are is said in ops/op_table.def (OP_MADE_OF), what they
 * become in ops/contrib.c, contrib_quant.c and contrib_attention.c. The loader finds the operators of the nodes, all in one opset: what the file imports is not asked for. */
#include "engine/expand.h"

#include <string.h>

int eng_expand_in(const eng_expand *x, int i)
{
    return i < x->of->n_in ? x->of->in[i] : -1;
}

int eng_expand_out(const eng_expand *x, int i)
{
    return i < x->of->n_out ? x->of->out[i] : -1;
}

void eng_expand_nodes(eng_expand *x, const char *op, int n_out, int *out, int n_in, const int *in, int n_attrs, const eng_attr *attrs)
{
    eng_zone *z = &x->m->zone;
    eng_node n = {.name = x->of->name, .op_type = op, .n_in = n_in, .n_out = n_out, .n_attrs = n_attrs};
    n.in = eng_zone_alloc(z, (size_t)(n_in + n_out + 1) * sizeof(int));
    n.out = n.in + n_in;
    n.attrs = eng_zone_alloc(z, (size_t)(n_attrs + 1) * sizeof *n.attrs);
    memcpy(n.in, in, (size_t)n_in * sizeof(int));
    if (n_attrs)
        memcpy(n.attrs, attrs, (size_t)n_attrs * sizeof *n.attrs);
    for (int i = 0; i < n_out; i++)
        n.out[i] = out[i] = out[i] == ENG_EXPAND_NEW ? x->value(x->arg, x->of->name, NULL) : out[i];
    if (x->rc == 0)
        x->rc = x->push(x->arg, &n);
}

int eng_expand_node(eng_expand *x, const char *op, int out, int n_in, const int *in, int n_attrs, const eng_attr *attrs)
{
    eng_expand_nodes(x, op, 1, &out, n_in, in, n_attrs, attrs);
    return out;
}

static int konst(eng_expand *x, pst_dtype dtype, int rank, int n, size_t bytes, const void *data)
{
    pst_tensor *t = eng_zone_alloc(&x->m->zone, sizeof *t);
    *t = (pst_tensor){.dtype = dtype, .rank = rank, .dims = {n}, .data = eng_zone_alloc(&x->m->zone, bytes)};
    memcpy(t->data, data, bytes);
    return x->value(x->arg, x->of->name, t);
}

int eng_expand_float(eng_expand *x, float v)
{
    return konst(x, PST_F32, 0, 0, sizeof v, &v);
}

int eng_expand_ints(eng_expand *x, int n, const int64_t *v)
{
    return konst(x, PST_I64, 1, n, (size_t)n * sizeof *v, v);
}
