/* task.c - the two kinds of work that devices are given. An image is the model's, so its key must follow from the model: a forest lies in it; a network is
 * told by the steps that it stands for, which are the same in all plans of a model with the same kernels and the same fusion. */
#include "engine/cuda/task.h"

#include "engine/cuda/trees_pack.h"

/* ---- forests ---- */

static int pack_trees(pst_plan *p, const eng_cuda_task *t, eng_cuda_head *ret, unsigned char **ret_image, pst_err *err)
{
    return eng_cuda_trees_pack(t->of, &ret->forest, ret_image, err);
}

static size_t trees_bytes(const eng_cuda_head *h)
{
    return h->forest.bytes;
}

static size_t trees_between(const eng_cuda_head *h)
{
    return 0;
}

static int launch_trees(const eng_cuda_plugin *g, const eng_cuda_call *c)
{
    return g->trees(&c->head->forest, c->image, c->x, c->rows, c->cols, c->out, c->stream);
}

static const eng_cuda_kind trees = {.shared_as = "forest on a device",
                                    .launching = "launching the kernel of trees",
                                    .pack = pack_trees,
                                    .bytes = trees_bytes,
                                    .between = trees_between,
                                    .launch = launch_trees};

eng_cuda_task eng_cuda_task_of_trees(const eng_forest *f)
{
    return (eng_cuda_task){.kind = &trees,
                           .of = f,
                           .cols = f->n_features,
                           .number = f->wide ? sizeof(double) : sizeof(float),
                           .out = (size_t)f->n_targets * sizeof(double),
                           .owner = f};
}

/* ---- networks ---- */

/* Lowered anew, so that no plan keeps a second copy of its weights on the host for the day when its device is lost. */
static int pack_net(pst_plan *p, const eng_cuda_task *t, eng_cuda_head *ret, unsigned char **ret_image, pst_err *err)
{
    const eng_cuda_net_step *n = t->of;
    eng_cuda_net_part *part = eng_heap_alloc(sizeof *part);
    int rc = eng_cuda_net_step_lower(p, n, part, err);
    if (rc == 0)
        rc = eng_cuda_net_pack(&part->draft, ENG_CUDA_NET_EITHER, &ret->net, ret_image, err);
    PST_ASSERT(rc < 0 || (ret->net.n_in == n->n_in && ret->net.n_out == n->n_out));
    eng_cuda_net_part_done(part);
    eng_heap_free(part);
    return rc;
}

static size_t net_bytes(const eng_cuda_head *h)
{
    return h->net.bytes;
}

static size_t net_between(const eng_cuda_head *h)
{
    return h->net.rows ? 0 : h->net.n_between * sizeof(float);
}

static int launch_net(const eng_cuda_plugin *g, const eng_cuda_call *c)
{
    return g->net(&c->head->net, c->image, c->x, c->rows, c->between, c->out, c->stream);
}

static const eng_cuda_kind net = {.shared_as = "network on a device",
                                  .launching = "launching the kernels of a network",
                                  .pack = pack_net,
                                  .bytes = net_bytes,
                                  .between = net_between,
                                  .launch = launch_net};

eng_cuda_task eng_cuda_task_of_net(const pst_plan *p, const eng_cuda_net_step *n, size_t at)
{
    return (eng_cuda_task){.kind = &net,
                           .of = n,
                           .cols = n->n_in,
                           .number = sizeof(float),
                           .out = n->n_out * sizeof(float),
                           .owner = &p->m->graph,
                           .variant = (int64_t)at << 32 | (int64_t)n->inside.n_steps << 1 | p->opts.no_fusion};
}

bool eng_cuda_task_is_net(const eng_cuda_task *t)
{
    return t->kind == &net;
}
