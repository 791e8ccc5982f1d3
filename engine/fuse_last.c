/* fuse_last.c - parts of a graph that go through with the channels last: convolutions and what lies between them.
 *
 * Why a part as one node and not a layout for each value: images are turned where the part begins and ends and nowhere else, buffers are
 * planned for the part as a whole, a few images go through together while they are in the cache, and a kernel sees the layout it is
 * best at. A part grows node by node in the graph's order; it ends at the longest beginning of which one value alone is read outside.
 * Convolutions are taken as fuse_conv.c has left them: factors in the weights, residual and activation behind.
 *
 * It pays where convolutions follow one another: with fewer than MIN_CONVS the turning costs more than it gives, and a small net of few
 * filters has its own kernels (ops/conv_lanes.c). */
#include "engine/last.h"

#include "engine/fuse_conv.h"

#include <stdio.h>
#include <string.h>

enum { STEPS_MAX = 1024, INPUTS_MAX = ENG_LAST_INPUTS, MIN_CONVS = 3, LANES_MAX = 16, WINDOW_MAX = 64 };

typedef struct part {
    eng_fuser *f;
    int *slot;  /* by value id: 1 = in the part, 2 = so, but its channels lie close together; 0 = not; its number once the part is closed */
    int *reads; /* by value id: by nodes of the part */
    int64_t *channels; /* by value id, of those inside */
    size_t at[STEPS_MAX];
    int n;
    eng_last_step steps[STEPS_MAX]; /* a and b are value ids until the part is closed */
    int n_steps, ends[STEPS_MAX];   /* ends[i]: steps of the first i + 1 nodes */
    int in[INPUTS_MAX], n_in;
    int n_convs;
} part;

static eng_last_step *add_step(part *p, eng_last_kind kind, const eng_node *n, int a, int b, int64_t channels, int made)
{
    eng_last_step *s = &p->steps[p->n_steps++];
    *s = (eng_last_step){.kind = kind, .node = n, .a = a, .b = b, .channels = channels, .made = made};
    return s;
}

static bool inside(const part *p, int id)
{
    return id >= 0 && p->slot[id] == 1;
}

/* A value from outside: an image of so many channels. */
static bool goes_in(const part *p, int id)
{
    const eng_fuser *f = p->f;
    return id >= 0 && !f->p->folded[id] && p->n_in < INPUTS_MAX && (!f->types[id] || f->types[id] == PST_F32);
}

static bool windows_fit(const eng_node *n)
{
    static const char *const names[] = {"strides", "dilations", "kernel_shape", "pads"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t many;
        const int64_t *v = eng_attr_ints(n, names[i], &many);
        for (size_t k = 0; v && k < many; k++)
            if (v[k] < 0 || v[k] > WINDOW_MAX)
                return false;
    }
    return true;
}

static bool take_conv(part *p, const eng_node *n)
{
    const eng_fused_conv *fused = eng_fused_conv_of(n);
    const eng_node *conv = fused ? fused->conv : n;
    if (!fused && !eng_fuse_is(n, "Conv"))
        return false;
    const eng_fuser *f = p->f;
    const pst_tensor *w = conv->n_in > 1 ? eng_fuse_konst(f, conv->in[1]) : NULL, *bias = NULL;
    bool has_bias = conv->n_in > 2 && conv->in[2] >= 0;
    if (!w || w->rank != 4 || eng_count(w) < 1 || eng_count(w) > 1 << 28 || w->dims[2] > WINDOW_MAX || w->dims[3] > WINDOW_MAX ||
        !windows_fit(conv))
        return false;
    if (!fused && has_bias && (!(bias = eng_fuse_konst(f, conv->in[2])) || eng_count(bias) != w->dims[0]))
        return false;
    int64_t m = w->dims[0], groups = eng_attr_int(conv, "group", 1), c = w->dims[1] * groups;
    bool depth = groups > 1 && groups == m && w->dims[1] == 1;
    int x = n->in[0], add = fused && fused->has_add ? n->in[2] : -1, made = n->out[0];
    if ((groups != 1 && !depth) || (add >= 0 && (!inside(p, add) || p->channels[add] != m)))
        return false;
    if (!p->slot[x]) {
        if (depth || !goes_in(p, x))
            return false;
        p->in[p->n_in++] = x;
        p->slot[x] = c < LANES_MAX ? 2 : 1;
        p->channels[x] = c;
    }
    if (p->channels[x] != c || (depth && !inside(p, x)))
        return false;
    eng_last_step *s = add_step(p, depth ? ENG_LAST_DEPTH : ENG_LAST_LAYER, conv, x, add, m, made);
    s->w = fused ? &fused->weights.t : w;
    s->bias = fused ? fused->has_bias ? &fused->bias.t : NULL : bias;
    s->of_model = (fused && fused->own_weights) || !f->p->vals[conv->in[1]].blk;
    s->act = fused ? fused->act : (eng_fused_act){.act = ENG_ACT_NONE};
    if (fused && fused->pool) {
        if (!windows_fit(fused->pool))
            return false;
        add_step(p, ENG_LAST_POOL, fused->pool, -1, -1, m, made); /* a: the step before it */
    }
    p->n_convs++;
    p->channels[made] = m;
    return true;
}

static bool take_pool(part *p, const eng_node *n)
{
    bool max = eng_fuse_is(n, "MaxPool"), mean = eng_fuse_is(n, "AveragePool");
    size_t many;
    const int64_t *axes = eng_attr_ints(n, "axes", &many);
    bool whole = eng_fuse_is(n, "GlobalAveragePool");
    if (eng_fuse_is(n, "ReduceMean") && eng_attr_int(n, "keepdims", 1)) {
        const pst_tensor *t = n->n_in == 2 ? eng_fuse_folded(p->f, n->in[1]) : NULL;
        if (t && t->dtype == PST_I64) {
            axes = t->data;
            many = (size_t)eng_count(t);
        }
        whole = axes && many == 2 && ((axes[0] == 2 && axes[1] == 3) || (axes[0] == -2 && axes[1] == -1));
    }
    if ((!max && !mean && !whole) || n->n_in < 1 || !inside(p, n->in[0]) ||
        (!whole && (!windows_fit(n) || !eng_attr_find(n, "kernel_shape"))))
        return false;
    p->channels[n->out[0]] = p->channels[n->in[0]];
    add_step(p, whole ? ENG_LAST_MEAN : ENG_LAST_POOL, n, n->in[0], -1, p->channels[n->in[0]], n->out[0]);
    return true;
}

static bool take_act(part *p, const eng_node *n)
{
    eng_fused_act act;
    if (n->n_in < 1 || !inside(p, n->in[0]) || !eng_fuse_act(p->f, n, &act))
        return false;
    p->channels[n->out[0]] = p->channels[n->in[0]];
    add_step(p, ENG_LAST_ACT, n, n->in[0], -1, p->channels[n->in[0]], n->out[0])->act = act;
    return true;
}

/* One number, or one for each channel of an image. */
static bool of_channels(const pst_tensor *t, int64_t channels)
{
    if (eng_count(t) == 1)
        return t->rank <= 4;
    int axis = t->rank - 3;
    return (axis == 0 || axis == 1) && t->dims[axis] == channels && eng_count(t) == channels;
}

static bool take_pair(part *p, const eng_node *n)
{
    bool add = eng_fuse_is(n, "Add"), mul = eng_fuse_is(n, "Mul");
    if ((!add && !mul) || n->n_in != 2 || n->opset < 7)
        return false;
    int a = n->in[0], b = n->in[1];
    if (!inside(p, a)) {
        a = n->in[1];
        b = n->in[0];
    }
    if (!inside(p, a))
        return false;
    int64_t channels = p->channels[a];
    const pst_tensor *k = eng_fuse_konst(p->f, b);
    if (inside(p, b) ? p->channels[b] != channels : !k || !of_channels(k, channels))
        return false;
    eng_last_step *s = add_step(p, add ? ENG_LAST_ADD : ENG_LAST_MUL, n, a, k ? -1 : b, channels, n->out[0]);
    s->w = k;
    s->of_model = k && !p->f->p->vals[b].blk;
    p->channels[n->out[0]] = channels;
    return true;
}

static void count_reads(const part *p, const eng_node *n, int by)
{
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] >= 0)
            p->reads[n->in[k]] += by;
}

/* The longest beginning from which one value comes out (it is read by others, or by nobody); 0 = none that has enough convolutions. */
static int whole_part(const part *p, int *ret_out)
{
    const eng_fuser *f = p->f;
    int n = p->n, convs = p->n_convs;
    for (int i = 0; i < n; i++)
        count_reads(p, f->nodes[p->at[i]].node, 1);
    for (; n > 0 && convs >= MIN_CONVS; n--) {
        int many = 0;
        for (int i = n; i-- > 0 && many < 2;) { /* the last ones first: they are the likely ones */
            int id = f->nodes[p->at[i]].node->out[0];
            if (p->reads[id] != f->readers[id]) {
                many++;
                *ret_out = id;
            }
        }
        if (many == 1)
            break;
        count_reads(p, f->nodes[p->at[n - 1]].node, -1);
        for (int i = n > 1 ? p->ends[n - 2] : 0; i < p->ends[n - 1]; i++)
            convs -= p->steps[i].kind == ENG_LAST_LAYER || p->steps[i].kind == ENG_LAST_DEPTH;
    }
    return convs >= MIN_CONVS ? n : 0;
}

/* Value ids become numbers of the part's values. */
static void number(part *p, int n_steps)
{
    for (int i = 0; i < p->n_in; i++)
        p->slot[p->in[i]] = i;
    for (int i = 0; i < n_steps; i++) {
        eng_last_step *s = &p->steps[i];
        s->a = s->a < 0 ? p->n_in + i - 1 : p->slot[s->a];
        s->b = s->b < 0 ? -1 : p->slot[s->b];
        p->slot[s->made] = p->n_in + i;
    }
}

static void close_part(part *p)
{
    int out = -1, n = whole_part(p, &out);
    if (!n)
        return;
    int n_steps = p->ends[n - 1];
    number(p, n_steps);
    eng_zone *z = &p->f->p->zone;
    eng_last_part *to = eng_zone_alloc(z, sizeof *to);
    *to = (eng_last_part){.n_steps = n_steps, .n_in = p->n_in, .out = p->slot[out], .flops = eng_zone_alloc(z, sizeof *to->flops)};
    to->steps = eng_zone_alloc(z, (size_t)n_steps * sizeof *to->steps);
    memcpy(to->steps, p->steps, (size_t)n_steps * sizeof *to->steps);
    char text[64];
    snprintf(text, sizeof text, "%d nodes with the channels last", n);
    eng_fuse_replace(p->f, p->at, n, &eng_last_op, to, p->in, p->n_in, out, text);
}

static bool take(part *p, const eng_node *n)
{
    return take_conv(p, n) || take_pool(p, n) || take_act(p, n) || take_pair(p, n);
}

/* One part, from the first convolution at or behind `from` on; where it began, or the end. */
static size_t one_part(part *p, size_t from)
{
    eng_fuser *f = p->f;
    size_t first = f->n;
    memset(p->slot, 0, (size_t)f->p->m->n_values * sizeof *p->slot);
    memset(p->reads, 0, (size_t)f->p->m->n_values * sizeof *p->reads);
    p->n = p->n_steps = p->n_in = p->n_convs = 0;
    for (size_t i = from; i < f->n && p->n < STEPS_MAX / 2; i++) {
        const eng_node *n = f->nodes[i].node;
        int steps = p->n_steps, inputs = p->n_in, convs = p->n_convs;
        if (f->nodes[i].dead || n->op == &eng_last_op)
            continue;
        if (!take(p, n)) {
            p->n_steps = steps;
            p->n_convs = convs;
            for (; p->n_in > inputs; p->n_in--)
                p->slot[p->in[p->n_in - 1]] = 0;
            continue;
        }
        first = first == f->n ? i : first;
        p->slot[n->out[0]] = 1;
        p->at[p->n] = i;
        p->ends[p->n++] = p->n_steps;
    }
    if (p->n)
        close_part(p);
    return first;
}

void eng_fuse_last(eng_fuser *f)
{
    size_t n_values = (size_t)f->p->m->n_values + 1;
    part *p = eng_heap_alloc(sizeof *p);
    p->f = f;
    p->slot = eng_heap_array(n_values, sizeof *p->slot);
    p->reads = eng_heap_array(n_values, sizeof *p->reads);
    p->channels = eng_heap_array(n_values, sizeof *p->channels);
    for (size_t i = 0; i < f->n; i++)
        i = one_part(p, i);
    eng_heap_free(p->channels);
    eng_heap_free(p->reads);
    eng_heap_free(p->slot);
    eng_heap_free(p);
}
