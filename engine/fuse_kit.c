/* fuse_kit.c - what all fusions share: constants, the maker of a value, replacing nodes by one, and running what was replaced. Every fused
 * node keeps the nodes it stands for: where what it assumed does not hold at run time (type, rank, broadcast), it runs them, so that
 * fusion never decides whether a model works. */
#include "engine/plan.h"

#include "engine/heap.h"

#include <math.h>
#include <string.h>

const pst_tensor *eng_fuse_folded(const eng_fuser *f, int id)
{
    const eng_val *v = id >= 0 && f->p->folded[id] ? &f->p->vals[id] : NULL;
    return v && v->kind == ENG_VAL_TENSOR ? &v->t : NULL;
}

const pst_tensor *eng_fuse_konst(const eng_fuser *f, int id)
{
    const pst_tensor *t = eng_fuse_folded(f, id);
    return t && t->dtype == PST_F32 ? t : NULL;
}

bool eng_fuse_scalar(const eng_fuser *f, int id, double *ret)
{
    const pst_tensor *t = eng_fuse_folded(f, id);
    return t && t->dtype != PST_STR && eng_count(t) == 1 && eng_convert(PST_F64, ret, t->dtype, t->data, 1, true) == 0;
}

bool eng_fuse_is(const eng_node *n, const char *op_type)
{
    if (*n->domain || n->n_out < 1 || n->out[0] < 0 || strcmp(n->op_type, op_type) != 0)
        return false;
    for (int i = 1; i < n->n_out; i++)
        if (n->out[i] >= 0)
            return false;
    return true;
}

static bool bound(const eng_node *n, int i, const pst_tensor *t, const char *attr, float def, float *ret)
{
    *ret = n->opset < 11 ? eng_attr_float(n, attr, def) : def;
    if (n->opset < 11 || i >= n->n_in || n->in[i] < 0)
        return true;
    if (!t || eng_count(t) != 1)
        return false;
    *ret = *(const float *)t->data;
    return true;
}

bool eng_clip_bounds(const eng_node *n, const pst_tensor *least, const pst_tensor *most, float *ret_from, float *ret_to)
{
    return n->opset >= 6 && bound(n, 1, least, "min", -INFINITY, ret_from) && bound(n, 2, most, "max", INFINITY, ret_to);
}

bool eng_fuse_bounds(const eng_fuser *f, const eng_node *n, float *ret_from, float *ret_to)
{
    const pst_tensor *least = n->n_in > 1 ? eng_fuse_konst(f, n->in[1]) : NULL, *most = n->n_in > 2 ? eng_fuse_konst(f, n->in[2]) : NULL;
    return eng_clip_bounds(n, least, most, ret_from, ret_to);
}

bool eng_fuse_act(const eng_fuser *f, const eng_node *n, eng_fused_act *ret)
{
    const eng_op_as_tile *t = n->op->tile;
    eng_act act = n->op->act;
    if (act == ENG_ACT_NONE || !t || !eng_fuse_is(n, n->op_type) || n->n_in < 1)
        return false;
    eng_fused_act a = {.act = act};
    if (act == ENG_ACT_CLIP ? !eng_fuse_bounds(f, n, &a.alpha, &a.beta) : n->n_in != 1)
        return false;
    if (act != ENG_ACT_CLIP) {
        a.alpha = t->attrs > 0 ? eng_attr_float(n, "alpha", t->alpha) : 0;
        a.beta = t->attrs > 1 ? eng_attr_float(n, "beta", t->beta) : 0;
    }
    *ret = a;
    return true;
}

const eng_node *eng_fuse_maker(const eng_fuser *f, int id, size_t *ret_at)
{
    if (id < 0 || f->maker[id] < 0 || f->nodes[f->maker[id]].dead)
        return NULL;
    *ret_at = (size_t)f->maker[id];
    return f->nodes[*ret_at].node;
}

eng_node *eng_fuse_replace(eng_fuser *f, const size_t *parts, int n, const eng_op *op, const void *state, const int *in, int n_in, int out,
                           const char *text)
{
    eng_zone *z = &f->p->zone;
    eng_node *fused = eng_zone_alloc(z, sizeof *fused);
    const eng_node **list = eng_zone_alloc(z, (size_t)(n + 1) * sizeof *list);
    size_t last = 0;
    for (int i = 0; i < n; i++) {
        PST_ASSERT(parts[i] < f->n && !f->nodes[parts[i]].dead); /* a part of two nodes would be computed by neither */
        list[i] = f->nodes[parts[i]].node;
        f->nodes[parts[i]].dead = true;
        last = parts[i] > last ? parts[i] : last;
    }
    *fused = (eng_node){.domain = "+",
                        .op_type = op->name,
                        .name = eng_zone_strdup(z, text, strlen(text)),
                        .op = op,
                        .n_in = n_in,
                        .n_out = 1,
                        .fused = state,
                        .parts = list,
                        .n_parts = n};
    fused->in = eng_zone_alloc(z, (size_t)(n_in + 2) * sizeof(int));
    for (int i = 0; i < n_in; i++)
        fused->in[i] = in[i];
    fused->out = fused->in + n_in;
    fused->out[0] = out;
    f->nodes[last] = (eng_node_ref){.node = fused};
    f->maker[out] = (int)last;
    return fused;
}

/* ---- parts ---- */

/* Made at the first use: most plans never need them. */
static int parts_make(eng_op_ctx *c, eng_step **ret)
{
    const eng_node *n = c->node;
    eng_step *s = eng_op_keep(c, (size_t)(n->n_parts + 1) * sizeof *s);
    for (int i = 0; i < n->n_parts; i++) {
        int rc = eng_step_make(c->plan, n->parts[i], &s[i], c->err);
        if (rc < 0)
            return rc;
    }
    *ret = s;
    return 0;
}

int eng_parts_run(eng_op_ctx *c, eng_step **parts)
{
    int rc = *parts ? 0 : parts_make(c, parts), n = rc == 0 ? c->node->n_parts : 0;
    for (int i = 0; i < n; i++) /* a run that was unwound may have left something here: eng_plan_reset has freed it */
        for (int k = 0; k < (*parts)[i].n_out; k++)
            (*parts)[i].dummy[k] = (eng_val){.kind = ENG_VAL_NONE};
    for (int i = 0; i < n && rc == 0; i++)
        rc = eng_step_run(c->plan, &(*parts)[i], c->err);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < (*parts)[i].n_out; k++)
            if ((*parts)[i].out[k] != c->out[0])
                eng_val_clear(c->plan, (*parts)[i].out[k]);
    return rc;
}
