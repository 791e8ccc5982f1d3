/* fuse_elt.c - groups of float32 elementwise nodes become one node that walks its result once, tile by tile. What DequantizeLinear makes of
 * bytes is made tile by tile, too, and so are the bytes that QuantizeLinear makes of the result: those numbers are never stored as floats.
 *
 * A group grows from its last node backwards: a node joins when all its readers are in the group, so one value leaves it and none of
 * the values in between is ever stored. At run time the group is a short program over registers of one tile (2 KiB), which stay in
 * the first-level cache; inputs of the result's shape are read in place, single numbers are operands, anything else that broadcasts
 * is spread into a tile first. Every instruction is computed at the result's shape; where that would be much more work than the
 * nodes' own shapes (a long function of a vector, added to a large matrix), and where an input is not float32 or shapes do not
 * broadcast, the nodes run one by one. */
#include "engine/plan.h"

#include "engine/cpu/int8.h"
#include "engine/fuse_tile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NODES_MAX = 48, INPUTS_MAX = 12 };

typedef struct elt_ins {
    eng_tile_code code;
    int a, b, out; /* slots: inputs first, then registers; b -1 = one operand */
    float alpha, beta;
} elt_ins;

/* A value of bytes outside of the group. */
typedef struct elt_bytes {
    pst_dtype type; /* PST_U8, PST_I8; PST_F32 = it is none */
    float scale;
    int zero;
} elt_bytes;

typedef struct elt_program {
    elt_ins *ins;
    int n_ins, n_in, n_regs;
    elt_bytes in[INPUTS_MAX], out;
    bool bytes; /* any input is: then there is no other way to run it, and none is needed, since all else is float32 for sure */
} elt_program;

static const int costs[] = {
#define X(NAME, COST) COST,
    ENG_TILE_BINARY(X) ENG_TILE_UNARY(X)
#undef X
};

/* ---- which nodes ---- */

/* Powers that have a loop of their own. The exponent is still an input when it is a float32: its rank may shape the result. */
static void power(const eng_fuser *f, const eng_node *n, elt_ins *ins)
{
    double e;
    if (eng_fuse_scalar(f, n->in[1], &e) && (e == 2 || e == 3)) {
        ins->code = e == 2 ? ENG_TILE_SQUARE : ENG_TILE_CUBE;
        if (!eng_fuse_konst(f, n->in[1]) && f->p->vals[n->in[1]].t.rank == 0)
            ins->b = -1;
    }
}

static bool known_other(const eng_fuser *f, int id)
{
    return f->types[id] && f->types[id] != PST_F32;
}

/* What a node does, with value ids as operands; false if it is no node for a group. */
static bool classify(const eng_fuser *f, const eng_node *n, elt_ins *ins)
{
    if (!eng_fuse_is(n, n->op_type) || n->n_in < 1 || n->in[0] < 0 || known_other(f, n->in[0]))
        return false;
    const eng_op_as_tile *t = n->op->tile;
    if (!t)
        return false;
    *ins = (elt_ins){.code = t->code, .a = n->in[0], .b = -1};
    if (t->code == ENG_TILE_CLIP)
        return eng_fuse_bounds(f, n, &ins->alpha, &ins->beta);
    if (t->code == ENG_TILE_GELU) {
        ins->code = !strcmp(eng_attr_str(n, "approximate", "none"), "tanh") ? ENG_TILE_GELU_TANH : ENG_TILE_GELU;
        return true;
    }
    if (t->code >= ENG_TILE_BINARY_CODES) {
        ins->alpha = t->attrs > 0 ? eng_attr_float(n, "alpha", t->alpha) : 0;
        ins->beta = t->attrs > 1 ? eng_attr_float(n, "beta", t->beta) : 0;
        return n->n_in == 1;
    }
    if (n->n_in != 2 || n->opset < 8 || n->in[1] < 0)
        return false;
    ins->b = n->in[1];
    if (ins->code == ENG_TILE_POW)
        power(f, n, ins);
    return ins->b < 0 || !known_other(f, ins->b);
}

/* ---- running ---- */

typedef enum { EXT_FULL, EXT_ONE, EXT_SPREAD } ext_kind;
typedef struct elt_ext {
    int rank;
    int64_t dims[PST_MAX_RANK]; /* as seen last */
    ext_kind kind;
    int n;                                    /* SPREAD: the result's dimensions, merged, innermost first, */
    int64_t d[PST_MAX_RANK], s[PST_MAX_RANK]; /* and the step of this input along each */
} elt_ext;

typedef struct elt_state {
    eng_step *parts;
    const eng_tile_kernels *kernels;
    const eng_int8_kernels *bytes;
    bool known, as_parts;
    int rank;
    int64_t dims[PST_MAX_RANK];
    elt_ext ext[INPUTS_MAX];
} elt_state;

/* dims of a broadcast with b; false if they do not fit. */
static bool widen(int *rank, int64_t *dims, int b_rank, const int64_t *b)
{
    int r = *rank > b_rank ? *rank : b_rank;
    int64_t to[PST_MAX_RANK];
    for (int i = 0; i < r; i++) {
        int ia = i - (r - *rank), ib = i - (r - b_rank);
        int64_t da = ia >= 0 ? dims[ia] : 1, db = ib >= 0 ? b[ib] : 1;
        if (da != db && da != 1 && db != 1)
            return false;
        to[i] = da == 1 ? db : da;
    }
    *rank = r;
    memcpy(dims, to, (size_t)r * sizeof *to);
    return true;
}

static void place(const elt_state *s, elt_ext *e)
{
    int64_t st[PST_MAX_RANK];
    pst_tensor t = {.rank = e->rank};
    memcpy(t.dims, e->dims, sizeof t.dims);
    int64_t count = eng_count(&t);
    e->kind = count == eng_dims_count(s->dims, s->rank) ? EXT_FULL : count == 1 ? EXT_ONE : EXT_SPREAD;
    eng_broadcast_strides(&t, s->rank, st);
    e->n = 0;
    for (int i = s->rank - 1; i >= 0; i--) {
        if (s->dims[i] == 1)
            continue;
        if (e->n && st[i] == e->s[e->n - 1] * e->d[e->n - 1]) {
            e->d[e->n - 1] *= s->dims[i];
            continue;
        }
        e->d[e->n] = s->dims[i];
        e->s[e->n++] = st[i];
    }
}

/* The result's shape, each input's way to it, and whether the group pays. */
static void analyse(const elt_program *g, elt_state *s)
{
    int ranks[INPUTS_MAX + NODES_MAX];
    int64_t dims[INPUTS_MAX + NODES_MAX][PST_MAX_RANK];
    double own = 0, whole = 0;
    s->known = s->as_parts = true;
    for (int i = 0; i < g->n_in; i++) {
        ranks[i] = s->ext[i].rank;
        memcpy(dims[i], s->ext[i].dims, sizeof dims[i]);
    }
    s->rank = 0;
    for (int i = 0; i < g->n_ins; i++) {
        const elt_ins *k = &g->ins[i];
        int r = ranks[k->a];
        int64_t d[PST_MAX_RANK];
        memcpy(d, dims[k->a], sizeof d);
        if (k->b >= 0 && !widen(&r, d, ranks[k->b], dims[k->b]))
            return;
        ranks[k->out] = r;
        memcpy(dims[k->out], d, sizeof d);
        int64_t n = eng_dims_count(d, r);
        if (n < 0 || !widen(&s->rank, s->dims, r, d))
            return;
        own += (double)n * costs[k->code];
        whole += costs[k->code];
    }
    int64_t n = eng_dims_count(s->dims, s->rank);
    if (n < 0 || (!g->bytes && whole * (double)n > 2 * own + 10000))
        return;
    for (int i = 0; i < g->n_in; i++)
        place(s, &s->ext[i]);
    s->as_parts = false;
}

/* n numbers of a broadcast input from place `start` of the result on. */
static void spread(const elt_ext *e, const float *src, int64_t start, int n, float *to)
{
    int64_t at[PST_MAX_RANK], from = 0;
    for (int k = 0; k < e->n; k++) {
        at[k] = start % e->d[k];
        start /= e->d[k];
        from += at[k] * e->s[k];
    }
    while (n > 0) {
        int64_t left = e->d[0] - at[0];
        int run = left < n ? (int)left : n;
        if (e->s[0] == 1)
            memcpy(to, src + from, (size_t)run * sizeof *to);
        else
            for (int i = 0; i < run; i++)
                to[i] = src[from + i * e->s[0]];
        to += run;
        n -= run;
        at[0] += run;
        from += run * e->s[0];
        for (int k = 0; k + 1 < e->n && at[k] == e->d[k]; k++) {
            at[k] = 0;
            from += e->s[k + 1] - e->d[k] * e->s[k];
            at[k + 1]++;
        }
    }
}

/* Numbers of input i for n places from start on: where they lie, or in its tile of the work area. */
static const float *input_tile(const elt_program *g, const elt_state *s, int i, const void *in, int64_t start, int n, float *tile)
{
    const elt_ext *e = &s->ext[i];
    const elt_bytes *b = &g->in[i];
    if (b->type != PST_F32 && e->kind == EXT_FULL) {
        s->bytes->dequantise(n, (const uint8_t *)in + start, b->type == PST_I8, b->scale, b->zero, tile);
        return tile;
    }
    if (e->kind != EXT_SPREAD)
        return (const float *)in + (e->kind == EXT_FULL ? start : 0);
    spread(e, in, start, n, tile);
    return tile;
}

static void run_tiles(const elt_program *g, const elt_state *s, const void *const *in, void *out, int64_t count, float *work)
{
    float *regs = work + (size_t)g->n_in * ENG_TILE, *last = regs + (size_t)g->n_regs * ENG_TILE;
    const elt_bytes *b = &g->out;
    for (int64_t start = 0; start < count; start += ENG_TILE) {
        int n = count - start < ENG_TILE ? (int)(count - start) : ENG_TILE;
        const float *at[INPUTS_MAX];
        for (int i = 0; i < g->n_in; i++)
            at[i] = input_tile(g, s, i, in[i], start, n, work + (size_t)i * ENG_TILE);
        for (int i = 0; i < g->n_ins; i++) {
            const elt_ins *k = &g->ins[i];
            const float *a = k->a < g->n_in ? at[k->a] : regs + (size_t)(k->a - g->n_in) * ENG_TILE, *other = a;
            int sa = k->a >= g->n_in || s->ext[k->a].kind != EXT_ONE, sb = sa;
            if (k->b >= 0) {
                other = k->b < g->n_in ? at[k->b] : regs + (size_t)(k->b - g->n_in) * ENG_TILE;
                sb = k->b >= g->n_in || s->ext[k->b].kind != EXT_ONE;
            }
            float *o = i < g->n_ins - 1 ? regs + (size_t)(k->out - g->n_in) * ENG_TILE : b->type == PST_F32 ? (float *)out + start : last;
            s->kernels->op(k->code, a, sa, other, sb, o, n, k->alpha, k->beta);
        }
        if (b->type != PST_F32)
            s->bytes->quantise(n, last, b->scale, b->zero, b->type == PST_I8 ? -128 : 0, (uint8_t *)out + start);
    }
}

static int prepare_elts(eng_op_ctx *c)
{
    elt_state *s = eng_op_keep(c, sizeof *s);
    *c->state = s;
    s->kernels = eng_tile_pick(c->plan->isa);
    s->bytes = eng_int8_pick(eng_kernels_pick(c->plan->isa)->isa);
    c->kernel = "elementwise tiles";
    return 0;
}

/* Bytes that are spread, or that are one number, are made floats as a whole beforehand: they are few. */
static int widen_small(eng_op_ctx *c, const elt_program *g, const elt_state *s, const void **in)
{
    for (int i = 0; i < g->n_in; i++) {
        const elt_bytes *b = &g->in[i];
        if (b->type == PST_F32 || s->ext[i].kind == EXT_FULL)
            continue;
        int64_t n = eng_count(eng_in(c, i));
        float *to = eng_op_scratch(c, (size_t)n * sizeof *to);
        if (!to)
            return PST_ELIMIT;
        s->bytes->dequantise(n, in[i], b->type == PST_I8, b->scale, b->zero, to);
        in[i] = to;
    }
    return 0;
}

static int by_parts(eng_op_ctx *c, const elt_program *g, elt_state *s, const char *why)
{
    if (g->bytes)
        return eng_op_fail(c, PST_EINVAL, "%s", why);
    c->note = why;
    return eng_parts_run(c, &s->parts);
}

static int run_elts(eng_op_ctx *c)
{
    const elt_program *g = c->node->fused;
    elt_state *s = *c->state;
    const void *in[INPUTS_MAX];
    bool same = s->known;
    for (int i = 0; i < g->n_in; i++) {
        const pst_tensor *t = eng_in(c, i);
        elt_ext *e = &s->ext[i];
        if (!t || t->dtype != g->in[i].type)
            return by_parts(c, g, s, g->bytes ? "an operand is not of the type that the others have" : "not float32: node by node");
        in[i] = t->data;
        if (!same || e->rank != t->rank || memcmp(e->dims, t->dims, (size_t)t->rank * sizeof *t->dims) != 0) {
            same = false;
            e->rank = t->rank;
            memcpy(e->dims, t->dims, sizeof e->dims);
        }
    }
    if (!same)
        analyse(g, s);
    if (s->as_parts)
        return by_parts(c, g, s, g->bytes ? "shapes do not broadcast" : "shapes differ too much: node by node");
    if (widen_small(c, g, s, in) < 0)
        return PST_ELIMIT;
    float *work = eng_op_scratch(c, (size_t)(g->n_in + g->n_regs + 1) * ENG_TILE * sizeof *work);
    void *o = NULL;
    if (!work)
        return PST_ELIMIT;
    for (int i = 0; i < g->n_in && !o; i++) /* tile by tile it is read before it is written */
        if (s->ext[i].kind == EXT_FULL && s->ext[i].rank == s->rank && c->dies && c->dies[i] && g->in[i].type == g->out.type)
            o = eng_out_over(c, 0, i);
    if (!o)
        o = eng_out(c, 0, g->out.type, s->rank, s->dims);
    if (!o)
        return PST_ELIMIT;
    run_tiles(g, s, in, o, eng_dims_count(s->dims, s->rank), work);
    return 0;
}

static const eng_op fused_op = {
    .domain = "+", .name = "Elementwise", .min_opset = 1, .cost = ENG_COST_PARTS, .run = run_elts, .prepare = prepare_elts};

/* ---- grouping ---- */

typedef struct group {
    size_t at[NODES_MAX]; /* node indices, ascending once sorted */
    elt_ins ins[NODES_MAX];
    int n;
} group;

static int reads_of(const group *g, int id)
{
    int n = 0;
    for (int i = 0; i < g->n; i++)
        n += (g->ins[i].a == id) + (g->ins[i].b == id);
    return n;
}

static bool is_in(const group *g, size_t at)
{
    for (int i = 0; i < g->n; i++)
        if (g->at[i] == at)
            return true;
    return false;
}

/* Takes in makers of operands whose every reader is in the group, until none is left. */
static void grow(const eng_fuser *f, group *g)
{
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < g->n; i++)
            for (int side = 0; side < 2; side++) {
                int id = side ? g->ins[i].b : g->ins[i].a;
                size_t at;
                elt_ins ins;
                const eng_node *n = eng_fuse_maker(f, id, &at);
                if (!n || g->n == NODES_MAX || n->out[0] != id || is_in(g, at) || f->readers[id] != reads_of(g, id) ||
                    !classify(f, n, &ins))
                    continue;
                g->at[g->n] = at;
                g->ins[g->n++] = ins;
                more = true;
            }
    }
    for (int i = 1; i < g->n; i++) /* into the order of the graph */
        for (int k = i; k > 0 && g->at[k - 1] > g->at[k]; k--) {
            size_t at = g->at[k];
            elt_ins ins = g->ins[k];
            g->at[k] = g->at[k - 1];
            g->ins[k] = g->ins[k - 1];
            g->at[k - 1] = at;
            g->ins[k - 1] = ins;
        }
}

/* Value ids become slots; registers are given back after their last reader. False when there are too many inputs. */
static bool number(const eng_fuser *f, group *g, elt_program *prog, int *inputs)
{
    int made[NODES_MAX], last[NODES_MAX], reg[NODES_MAX];
    bool busy[NODES_MAX] = {0};
    *prog = (elt_program){.ins = g->ins, .n_ins = g->n};
    for (int i = 0; i < g->n; i++) {
        made[i] = f->nodes[g->at[i]].node->out[0];
        last[i] = i;
        for (int k = 0; k < i; k++)
            if (made[k] == g->ins[i].a || made[k] == g->ins[i].b)
                last[k] = i;
    }
    for (int pass = 0; pass < 2; pass++) /* inputs are counted first: registers are numbered behind them */
        for (int i = 0; i < g->n; i++) {
            elt_ins *ins = &g->ins[i];
            for (int side = 0; side < 2; side++) {
                int *op = side ? &ins->b : &ins->a, from = -1, k = 0;
                for (int q = 0; q < i; q++)
                    from = made[q] == *op ? q : from;
                if (*op < 0)
                    continue;
                if (from >= 0) {
                    if (pass)
                        *op = prog->n_in + reg[from];
                    continue;
                }
                while (k < prog->n_in && inputs[k] != *op)
                    k++;
                if (k == INPUTS_MAX)
                    return false;
                inputs[k] = *op;
                prog->n_in = k < prog->n_in ? prog->n_in : k + 1;
                if (pass)
                    *op = k;
            }
            if (!pass)
                continue;
            for (int k = 0; k < i; k++)
                if (last[k] == i)
                    busy[reg[k]] = false;
            for (reg[i] = 0; busy[reg[i]];)
                reg[i]++;
            busy[reg[i]] = true;
            ins->out = prog->n_in + reg[i];
            prog->n_regs = reg[i] + 1 > prog->n_regs ? reg[i] + 1 : prog->n_regs;
        }
    return true;
}

static elt_bytes bytes_of(const eng_bytes *b)
{
    return (elt_bytes){.type = b->type,
                       .scale = *(const float *)b->scale->data,
                       .zero = !b->zero            ? 0
                               : b->type == PST_U8 ? *(const uint8_t *)b->zero->data
                                                   : *(const int8_t *)b->zero->data};
}

/* Operands that DequantizeLinear makes by one scale are read as bytes. Another type than float32 beside them would be none of ONNX. */
static void read_bytes(const eng_fuser *f, elt_program *prog, int *inputs)
{
    for (int i = 0; i < prog->n_in; i++) {
        eng_bytes b;
        prog->in[i] = (elt_bytes){.type = PST_F32};
        if (eng_fuse_folded(f, inputs[i]) || !eng_fuse_wide(f, inputs[i], &b) || eng_count(b.scale) != 1)
            continue;
        prog->in[i] = bytes_of(&b);
        inputs[i] = b.id;
        prog->bytes = true;
    }
}

/* With exponents of another type the types of a group's inputs are not sure. */
static bool has_power(const group *g)
{
    for (int i = 0; i < g->n; i++)
        if (g->ins[i].code == ENG_TILE_POW || g->ins[i].code == ENG_TILE_SQUARE || g->ins[i].code == ENG_TILE_CUBE)
            return true;
    return false;
}

/* The group that ends at a node, or whose result the node makes bytes. */
static void try_group(eng_fuser *f, size_t at)
{
    group g = {.n = 1, .at = {at}};
    elt_program prog;
    eng_bytes y;
    int inputs[INPUTS_MAX], out = f->nodes[at].node->out[0];
    bool narrow = eng_fuse_narrow(f, at, &y);
    char text[64];
    if (narrow) {
        int value = f->nodes[at].node->in[0];
        if (f->readers[value] != 1 || !eng_fuse_maker(f, value, &g.at[0]))
            return;
    }
    if (!classify(f, f->nodes[g.at[0]].node, &g.ins[0]))
        return;
    grow(f, &g);
    if (!number(f, &g, &prog, inputs))
        return;
    prog.out = narrow ? bytes_of(&y) : (elt_bytes){.type = PST_F32};
    read_bytes(f, &prog, inputs);
    if ((prog.bytes && has_power(&g)) || (g.n < 2 && !prog.bytes && !narrow))
        return;
    eng_zone *z = &f->p->zone;
    elt_program *kept = eng_zone_alloc(z, sizeof *kept);
    *kept = prog;
    kept->ins = eng_zone_alloc(z, (size_t)g.n * sizeof *kept->ins);
    memcpy(kept->ins, g.ins, (size_t)g.n * sizeof *g.ins);
    snprintf(text, sizeof text, "%d nodes in one pass", g.n);
    size_t parts[NODES_MAX + 1];
    memcpy(parts, g.at, (size_t)g.n * sizeof *parts);
    if (narrow)
        parts[g.n] = at;
    eng_fuse_replace(f, parts, g.n + narrow, &fused_op, kept, inputs, prog.n_in, out, text);
}

void eng_fuse_elts(eng_fuser *f)
{
    for (size_t i = f->n; i-- > 0;) /* from the end: a group is found at its last node, as large as it gets */
        if (!f->nodes[i].dead && *f->nodes[i].node->domain == 0)
            try_group(f, i);
}
