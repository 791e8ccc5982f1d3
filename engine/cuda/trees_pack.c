/* trees_pack.c - a forest as the bytes that a device gets; see trees.h for the form.
 *
 * Splits, ranks and columns are those of the CPU's vector form (tree_fast.c, tree_ranks.c), made once more here because that form keeps them
 * only as programs for vectors. It goes twice over the same parts: once to count, then, with the image at hand, to fill. */
#include "engine/cuda/trees_pack.h"

#include "engine/heap.h"
#include "engine/ops/tree_fast.h"

#include <math.h>
#include <string.h>

enum { ALIGN = 16, LEAF_RANK = 255 };

typedef struct packer {
    const eng_forest *f;
    eng_forest_fast q; /* features and columns */
    eng_fast_split *splits;
    eng_cuda_forest *head;
    unsigned char *image; /* NULL while counting */
    int32_t *queue;       /* of the tree at hand: its nodes (~leaf) level by level */
} packer;

static int unsupported(pst_err *err, const char *why)
{
    return pst_err_set(err, PST_EUNSUPPORTED, PST_CLASS_DATA, "cuda", 0, "trees on a device: %s", why);
}

/* Room for n things at the image's end; in the second round it is there. */
static void *part(packer *p, eng_cuda_part *to, uint64_t n, size_t size)
{
    *to = (eng_cuda_part){.at = p->head->bytes, .n = n};
    p->head->bytes += (n * size + ALIGN - 1) / ALIGN * ALIGN;
    return p->image ? p->image + to->at : NULL;
}

/* ---- trees ---- */

/* The tree's nodes in p->queue; returns how many places it takes, *ret_depth: the steps to its deepest leaf. */
static uint32_t order_tree(const packer *p, int32_t root, uint32_t *ret_depth)
{
    uint32_t n = 0, level_ends = 1;
    *ret_depth = 0;
    p->queue[n++] = root;
    for (uint32_t i = 0; i < n; i++) {
        if (i == level_ends) {
            level_ends = n;
            ++*ret_depth;
        }
        if (p->queue[i] < 0)
            continue;
        const eng_fast_split *s = &p->splits[p->queue[i]];
        p->queue[n++] = s->yes;
        p->queue[n++] = s->no;
    }
    return n;
}

/* Places of the tree in p->queue; children come in the order in which order_tree put them. */
static void fill_places(const packer *p, uint32_t n, eng_cuda_place *to)
{
    uint32_t next = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (p->queue[i] < 0) {
            to[i] = (eng_cuda_place){.rank = LEAF_RANK, .first = i};
            continue;
        }
        const eng_fast_split *s = &p->splits[p->queue[i]];
        to[i] = (eng_cuda_place){.column = (uint16_t)s->column, .rank = (uint8_t)s->rank, .first = next};
        next += 2;
    }
}

static void fill_leaves(const packer *p, uint32_t n, double *values, uint32_t *leaf_of)
{
    for (uint32_t i = 0; i < n; i++) {
        int32_t leaf = p->queue[i] < 0 ? ~p->queue[i] : 0;
        if (values)
            values[i] = p->queue[i] < 0 ? p->f->weights[p->f->leaves[leaf].at].value : 0;
        else
            leaf_of[i] = (uint32_t)leaf;
    }
}

static bool one_value_a_leaf(const eng_forest *f)
{
    for (int32_t i = 0; i < f->n_leaves; i++)
        if (f->leaves[i].n != 1)
            return false;
    return f->n_targets == 1;
}

/* Puts a tree into the last chunk, or into a new one; chunks == NULL: they are only counted. */
static void add_to_chunk(eng_cuda_chunk *chunks, uint32_t *n_chunks, eng_cuda_chunk *last, uint32_t tree, uint32_t at, uint32_t n)
{
    if (*n_chunks == 0 || last->n + n > ENG_CUDA_CHUNK_PLACES) {
        *last = (eng_cuda_chunk){.tree = tree, .at = at};
        ++*n_chunks;
    }
    last->n_trees++;
    last->n += n;
    if (chunks)
        chunks[*n_chunks - 1] = *last;
}

static void trees(packer *p, uint64_t n_places, uint32_t n_chunks)
{
    const eng_forest *f = p->f;
    eng_cuda_forest *h = p->head;
    bool one = one_value_a_leaf(f);
    eng_cuda_place *places = part(p, &h->places, n_places, sizeof *places);
    eng_cuda_tree *list = part(p, &h->trees, (uint64_t)f->n_trees, sizeof *list);
    eng_cuda_chunk *chunks = part(p, &h->chunks, n_chunks, sizeof *chunks), last = {0};
    double *values = part(p, &h->values, one ? n_places : 0, sizeof *values);
    uint32_t *leaf_of = part(p, &h->leaf_of, one ? 0 : n_places, sizeof *leaf_of), at = 0, done = 0;
    for (int32_t t = 0; p->image && t < f->n_trees; t++) {
        uint32_t depth, n = order_tree(p, f->roots[t], &depth);
        list[t] = (eng_cuda_tree){.at = at, .depth = depth};
        fill_places(p, n, places + at);
        fill_leaves(p, n, one ? values + at : NULL, one ? NULL : leaf_of + at);
        add_to_chunk(chunks, &done, &last, (uint32_t)t, at, n);
        at += n;
    }
}

static void weights(packer *p)
{
    const eng_forest *f = p->f;
    bool one = one_value_a_leaf(f);
    eng_cuda_leaf *leaves = part(p, &p->head->leaves, one ? 0 : (uint64_t)f->n_leaves, sizeof *leaves);
    eng_cuda_weight *list = part(p, &p->head->weights, one ? 0 : (uint64_t)f->n_weights, sizeof *list);
    float *start = part(p, &p->head->start, f->start ? (uint64_t)f->n_targets : 0, sizeof *start);
    for (int32_t i = 0; p->image && !one && i < f->n_leaves; i++)
        leaves[i] = (eng_cuda_leaf){.at = (uint32_t)f->leaves[i].at, .n = (uint32_t)f->leaves[i].n};
    for (int64_t i = 0; p->image && !one && i < f->n_weights; i++)
        list[i] = (eng_cuda_weight){.value = f->weights[i].value, .target = f->weights[i].target};
    if (p->image && f->start)
        memcpy(start, f->start, (size_t)f->n_targets * sizeof *start);
}

/* ---- ranks ---- */

/* Finite ones. Infinities stand behind them, and do in the image, too: one that is a threshold is there without being counted. */
static uint32_t n_thresholds(const eng_fast_feature *ft)
{
    const eng_rank_table *t = &ft->table;
    uint32_t n = 0;
    while (t->tf ? t->tf[n] < INFINITY : t->td && t->td[n] < (double)INFINITY)
        n++;
    return n;
}

static uint32_t steps_for(uint32_t n)
{
    uint32_t steps = 0;
    while (((uint64_t)1 << steps) - 1 < n)
        steps++;
    return steps;
}

static void fill_thresholds(const eng_fast_feature *ft, uint32_t n, uint32_t steps, void *to, bool wide)
{
    for (uint32_t i = 0; i < ((uint32_t)1 << steps) - 1; i++)
        if (wide)
            ((double *)to)[i] = i < n ? ft->table.td[i] : (double)INFINITY;
        else
            ((float *)to)[i] = i < n ? ft->table.tf[i] : INFINITY;
}

/* The columns of ranks as the CPU has them (tree_ranks.c). Thresholds are filled up to 2^steps - 1 with infinity, so that the kernel's search takes the
 * same steps for every row. Without an image only their room is taken up. */
static void ranks(packer *p, uint64_t numbers, uint64_t words)
{
    const eng_forest_fast *q = &p->q;
    eng_cuda_forest *h = p->head;
    size_t size = p->f->wide ? sizeof(double) : sizeof(float);
    eng_cuda_feature *features = part(p, &h->features, (uint64_t)q->n_features, sizeof *features);
    eng_cuda_column *columns = part(p, &h->columns, (uint64_t)q->n_columns, sizeof *columns);
    uint32_t *sets = part(p, &h->sets, words, sizeof *sets), at = 0, word = 0;
    unsigned char *thresholds = part(p, &h->thresholds, numbers, size);
    for (int32_t i = 0; p->image && i < q->n_features; i++) {
        const eng_fast_feature *ft = &q->features[i];
        uint32_t n = n_thresholds(ft), steps = steps_for(n);
        features[i] = (eng_cuda_feature){.feature = ft->feature,
                                         .column = (uint32_t)ft->column,
                                         .n_columns = (uint32_t)ft->n_columns,
                                         .thresholds = at,
                                         .steps = steps,
                                         .set_bits = ft->set_bits,
                                         .half_open = ft->half_open};
        fill_thresholds(ft, n, steps, thresholds + at * size, p->f->wide);
        at += ((uint32_t)1 << steps) - 1;
        for (int32_t k = ft->column; k < ft->column + ft->n_columns; k++) {
            const eng_fast_column *c = &q->columns[k];
            columns[k] = (eng_cuda_column){
                .from = c->from, .set = c->set ? word : ENG_CUDA_NO_SET, .missing_yes = c->missing_yes, .zero_missing = c->zero_missing};
            size_t set_words = c->set ? (size_t)ft->set_bits / 32 + 1 : 0;
            if (set_words)
                memcpy(sets + word, c->set, set_words * sizeof *sets);
            word += (uint32_t)set_words;
        }
    }
}

/* ---- all of it ---- */

typedef struct sizes {
    uint64_t places, numbers, words;
    uint32_t chunks;
} sizes;

static sizes count(const packer *p)
{
    sizes s = {0};
    eng_cuda_chunk last = {0};
    for (int32_t t = 0; t < p->f->n_trees; t++) {
        uint32_t depth, n = order_tree(p, p->f->roots[t], &depth);
        add_to_chunk(NULL, &s.chunks, &last, (uint32_t)t, 0, n);
        s.places += n;
    }
    for (int32_t i = 0; i < p->q.n_features; i++) {
        const eng_fast_feature *ft = &p->q.features[i];
        s.numbers += ((uint64_t)1 << steps_for(n_thresholds(ft))) - 1;
        for (int32_t k = ft->column; k < ft->column + ft->n_columns; k++)
            s.words += p->q.columns[k].set ? (uint64_t)ft->set_bits / 32 + 1 : 0;
    }
    return s;
}

static void lay_out(packer *p, const sizes *s)
{
    p->head->bytes = 0;
    trees(p, s->places, s->chunks);
    weights(p);
    ranks(p, s->numbers, s->words);
}

/* Rows of a block: as many as the ranks of all columns leave room for. 0: not even a warp. */
static int32_t rows_of_block(int32_t n_columns)
{
    for (int32_t rows = ENG_CUDA_ROWS_MAX; rows >= ENG_CUDA_ROWS_MIN; rows /= 2)
        if ((int64_t)rows * n_columns <= ENG_CUDA_RANK_BYTES)
            return rows;
    return 0;
}

static int pack(packer *p, pst_err *err)
{
    const eng_forest *f = p->f;
    eng_cuda_forest *h = p->head;
    *h = (eng_cuda_forest){.n_trees = f->n_trees,
                           .n_targets = f->n_targets,
                           .n_columns = p->q.n_columns,
                           .rows = rows_of_block(p->q.n_columns),
                           .wide = f->wide,
                           .floats = f->start != NULL,
                           .average = f->aggregate == ENG_AGG_AVERAGE && f->n_trees > 0,
                           .cols_least = f->n_features};
    if (!h->rows)
        return unsupported(err, "too many columns of ranks for shared memory");
    sizes s = count(p);
    if (s.places > UINT32_MAX || s.numbers > UINT32_MAX || s.words >= ENG_CUDA_NO_SET || f->n_weights > UINT32_MAX)
        return unsupported(err, "the forest has more than 2^32 places");
    lay_out(p, &s);
    uint64_t bytes = h->bytes;
    p->image = eng_heap_alloc(bytes + 1);
    lay_out(p, &s);
    PST_ASSERT(h->bytes == bytes);
    return 0;
}

int eng_cuda_trees_pack(const eng_forest *f, eng_cuda_forest *ret, unsigned char **ret_image, pst_err *err)
{
    if (!f->fast)
        return unsupported(err, "some split is neither an ordering nor a set, what is wanted is no sum, or a tree is listed twice");
    if (f->lines)
        return unsupported(err, "leaves are linear functions");
    eng_zone zone = {0};
    eng_op_ctx c = {.keep = &zone};
    packer p = {.f = f, .head = ret};
    p.splits = eng_heap_alloc((size_t)f->n_nodes * sizeof *p.splits);
    p.queue = eng_heap_alloc((2 * (size_t)f->n_nodes + 1) * sizeof *p.queue);
    bool plain, ok = eng_fast_splits(f, p.splits, &plain) && eng_fast_columns(&c, f, &p.q, p.splits);
    int rc = ok ? pack(&p, err) : unsupported(err, "its features fill too many columns of ranks");
    eng_zone_done(&zone);
    eng_heap_free(p.queue);
    eng_heap_free(p.splits);
    if (rc == 0)
        *ret_image = p.image;
    return rc;
}
