/* fuse_spelled.c - activations that a file spells out become the operator that they are, so that what follows sees one node:
 *
 *     x · Sigmoid(x)                                          Swish (SiLU: EfficientNet and most detectors)
 *     Clip(x + 3, 0, 6) / 6                                   HardSigmoid(1/6, 1/2)
 *     x · HardSigmoid(x; 1/6, 1/2),  x · Clip(x + 3, 0, 6) / 6   HardSwish
 *
 * Results differ by rounding only. What lies between must have no other reader. */
#include "engine/plan.h"

#include <math.h>
#include <string.h>

/* The one maker of a value that nobody else reads, if it is this operator. */
static const eng_node *made_by(const eng_fuser *f, int id, const char *op_type, size_t *ret_at)
{
    const eng_node *n = eng_fuse_maker(f, id, ret_at);
    return n && eng_fuse_is(n, op_type) && n->out[0] == id && f->readers[id] == 1 ? n : NULL;
}

/* The operand of a node of two that is not the constant `value`; -1: neither is that constant. */
static int beside(const eng_fuser *f, const eng_node *n, double value, bool first_only)
{
    double v;
    for (int i = first_only ? 1 : 0; i < 2 && n->n_in == 2; i++)
        if (n->in[i] >= 0 && eng_fuse_scalar(f, n->in[i], &v) && fabs(v - value) <= 1e-7 * value && n->in[!i] >= 0 &&
            eng_fuse_folded(f, n->in[i])->rank == 0)
            return n->in[!i];
    return -1;
}

/* Clip(x + 3, 0, 6), which makes `id`: x, and where its nodes stand; -1: it is something else. */
static int relu6_of(const eng_fuser *f, int id, size_t *at)
{
    float from, to;
    const eng_node *clip = made_by(f, id, "Clip", &at[0]);
    if (!clip || !eng_fuse_bounds(f, clip, &from, &to) || from != 0 || to != 6)
        return -1;
    const eng_node *add = made_by(f, clip->in[0], "Add", &at[1]);
    return add ? beside(f, add, 3, false) : -1;
}

/* n is x / 6 or x · 1/6: x; -1 otherwise. */
static int sixth_of(const eng_fuser *f, const eng_node *n)
{
    return eng_fuse_is(n, "Div") ? beside(f, n, 6, true) : eng_fuse_is(n, "Mul") ? beside(f, n, 1.0 / 6, false) : -1;
}

static void respell(eng_fuser *f, const size_t *parts, int n, const char *op_type, int in, int out)
{
    static const eng_attr hard[] = {{.name = "alpha", .type = ENG_ATTR_FLOAT, .f = 1.0f / 6},
                                    {.name = "beta", .type = ENG_ATTR_FLOAT, .f = 0.5f}};
    enum { OPSET = 24 }; /* the first that has them all */
    const eng_op *op = eng_op_find("", op_type, OPSET);
    PST_ASSERT(op);
    eng_node *to = eng_fuse_replace(f, parts, n, op, NULL, &in, 1, out, "spelled out");
    to->domain = "";
    to->opset = OPSET;
    if (!strcmp(op_type, "HardSigmoid")) {
        to->attrs = eng_zone_alloc(&f->p->zone, sizeof hard);
        memcpy(to->attrs, hard, sizeof hard);
        to->n_attrs = 2;
    }
}

/* Two readers of x, the product and what it is multiplied by. */
static void try_product(eng_fuser *f, size_t at)
{
    const eng_node *mul = f->nodes[at].node;
    for (int i = 0; i < 2; i++) {
        int x = mul->in[i], gate = mul->in[!i];
        size_t parts[4] = {at};
        const eng_node *n = x >= 0 && gate >= 0 ? made_by(f, gate, "Sigmoid", &parts[1]) : NULL;
        if (n && n->in[0] == x) {
            respell(f, parts, 2, "Swish", x, mul->out[0]);
            return;
        }
        n = x >= 0 && gate >= 0 ? made_by(f, gate, "HardSigmoid", &parts[1]) : NULL;
        if (n && n->in[0] == x && fabsf(eng_attr_float(n, "alpha", 0.2f) - 1.0f / 6) < 1e-6f && eng_attr_float(n, "beta", 0.5f) == 0.5f) {
            respell(f, parts, 2, "HardSwish", x, mul->out[0]);
            return;
        }
    }
}

/* x · Clip(x + 3, 0, 6) and then a sixth of it, or a sixth of the Clip alone. */
static void try_sixth(eng_fuser *f, size_t at)
{
    const eng_node *n = f->nodes[at].node;
    int whole = sixth_of(f, n);
    size_t parts[4] = {at};
    if (whole < 0)
        return;
    int x = relu6_of(f, whole, &parts[1]);
    if (x >= 0) {
        respell(f, parts, 3, "HardSigmoid", x, n->out[0]);
        return;
    }
    const eng_node *mul = made_by(f, whole, "Mul", &parts[1]);
    for (int i = 0; mul && mul->n_in == 2 && i < 2; i++)
        if (mul->in[i] >= 0 && mul->in[!i] >= 0 && relu6_of(f, mul->in[!i], &parts[2]) == mul->in[i]) {
            respell(f, parts, 4, "HardSwish", mul->in[i], n->out[0]);
            return;
        }
}

void eng_fuse_spelled(eng_fuser *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (!f->nodes[i].dead && f->nodes[i].node->n_in == 2)
            try_sixth(f, i);
    for (size_t i = 0; i < f->n; i++)
        if (!f->nodes[i].dead && eng_fuse_is(f->nodes[i].node, "Mul") && f->nodes[i].node->n_in == 2)
            try_product(f, i);
}
