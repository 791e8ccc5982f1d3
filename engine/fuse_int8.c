/* fuse_int8.c - products of bytes whose sums become float32, as dynamic quantisation writes them:
 *
 *     q, s, z = DynamicQuantizeLinear(x); y = Cast(MatMulInteger(q, W, z, wz)) · (s · ws) [+ bias]
 *
 * become one product that scales each row of sums while it is in the cache. What it assumes is seen in the graph: s is one number because
 * its maker gives no other, the rest are constants of W's columns. */
#include "engine/plan.h"

#include <string.h>

typedef struct found {
    const eng_node *product;
    size_t parts[8];
    int n, out, scale, weight_scale, bias;
} found;

/* One number, or one for each column. */
static bool per_column(const eng_fuser *f, int id, int64_t n, bool or_one)
{
    const pst_tensor *t = eng_fuse_konst(f, id);
    return t && t->rank <= 1 && ((or_one && eng_count(t) == 1) || eng_count(t) == n);
}

/* y = a · b with a scale made by DynamicQuantizeLinear and a constant one: in either order. */
static bool take_scales(const eng_fuser *f, int id, const eng_node *quantised, int64_t n, found *r)
{
    size_t at;
    const eng_node *mul = eng_fuse_maker(f, id, &at);
    if (!mul || !eng_fuse_is(mul, "Mul") || mul->n_in != 2 || mul->opset < 7)
        return false;
    for (int i = 0; i < 2; i++)
        if (mul->in[i] == quantised->out[1] && per_column(f, mul->in[!i], n, true)) {
            r->scale = mul->in[i];
            r->weight_scale = mul->in[!i];
            if (f->readers[id] == 1) /* others may read the product of scales: then it stays, and it is made twice */
                r->parts[r->n++] = at;
            return true;
        }
    return false;
}

/* W (k, n) and its zero points, constants. */
static int64_t columns_of(const eng_fuser *f, const eng_node *product)
{
    const pst_tensor *w = product->n_in > 1 ? eng_fuse_folded(f, product->in[1]) : NULL;
    const pst_tensor *z = product->n_in > 3 ? eng_fuse_folded(f, product->in[3]) : NULL;
    if (!w || w->rank != 2 || (product->n_in > 3 && product->in[3] >= 0 && (!z || (eng_count(z) != 1 && eng_count(z) != w->dims[1]))))
        return -1;
    return w->dims[1];
}

/* From the multiplication by the scales backwards. */
static bool find(const eng_fuser *f, size_t at, int side, found *r)
{
    const eng_node *mul = f->nodes[at].node, *cast, *product, *quantised;
    size_t i_cast, i_product, i_quantised;
    *r = (found){.parts = {at}, .n = 1, .out = mul->out[0], .bias = -1};
    cast = eng_fuse_maker(f, mul->in[side], &i_cast);
    if (!cast || !eng_fuse_is(cast, "Cast") || eng_attr_int(cast, "to", 0) != PST_F32 || f->readers[mul->in[side]] != 1)
        return false;
    product = eng_fuse_maker(f, cast->in[0], &i_product);
    if (!product || !eng_fuse_is(product, "MatMulInteger") || f->readers[cast->in[0]] != 1 || product->n_in < 3)
        return false;
    quantised = eng_fuse_maker(f, product->in[0], &i_quantised);
    if (!quantised || *quantised->domain || quantised->n_out != 3 || strcmp(quantised->op_type, "DynamicQuantizeLinear") != 0 ||
        product->in[0] != quantised->out[0] || product->in[2] != quantised->out[2])
        return false;
    int64_t n = columns_of(f, product);
    r->product = product;
    r->parts[r->n++] = i_cast;
    r->parts[r->n++] = i_product;
    return n > 0 && take_scales(f, mul->in[!side], quantised, n, r);
}

/* A constant for each column that is added, and nobody else reads the sum before. */
static void take_bias(const eng_fuser *f, int64_t n, found *r)
{
    if (f->readers[r->out] != 1)
        return;
    size_t at = (size_t)f->reader[r->out];
    const eng_node *add = f->nodes[at].node;
    if (f->nodes[at].dead || !eng_fuse_is(add, "Add") || add->n_in != 2 || add->opset < 7)
        return;
    int other = add->in[0] == r->out ? add->in[1] : add->in[0];
    if (!per_column(f, other, n, false))
        return;
    r->bias = other;
    r->out = add->out[0];
    r->parts[r->n++] = at;
}

static void sort(size_t *parts, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && parts[k - 1] > parts[k]; k--) {
            size_t t = parts[k];
            parts[k] = parts[k - 1];
            parts[k - 1] = t;
        }
}

void eng_fuse_int8(eng_fuser *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const eng_node *mul = f->nodes[i].node;
        found r;
        if (f->nodes[i].dead || !eng_fuse_is(mul, "Mul") || mul->n_in != 2 || mul->opset < 7 || (!find(f, i, 0, &r) && !find(f, i, 1, &r)))
            continue;
        take_bias(f, columns_of(f, r.product), &r);
        sort(r.parts, r.n);
        const eng_node *p = r.product;
        int in[7] = {p->in[0], p->in[1], r.scale, r.weight_scale, p->in[2], p->n_in > 3 ? p->in[3] : -1, r.bias};
        eng_fuse_replace(f, r.parts, r.n, eng_op_find("com.microsoft", "MatMulIntegerToFloat", 1), NULL, in, 7, r.out,
                         "one product of bytes, scaled");
    }
}
