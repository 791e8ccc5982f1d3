/* trees.inc.h - byte-ranked trees, and the ranks they compare; part of kernels.inc.h. */

typedef int8_t vb __attribute__((vector_size(VBYTES), aligned(16), may_alias));
typedef uint8_t vub
    __attribute__((vector_size(VBYTES), aligned(16), may_alias)); /* leaves count to 255: sums of them, in bytes that wrap */

/* Which bytes go to no. */
#if VBYTES == 64 && defined(__AVX512BW__)
typedef __mmask64 vm;
#else
typedef vb vm;
#endif

INLINE vm beyond(const int8_t *x, int8_t rank)
{
#if VBYTES == 64 && defined(__AVX512BW__)
    return _mm512_cmpgt_epi8_mask(_mm512_loadu_si512(x), _mm512_set1_epi8(rank));
#else
    return *(const vb *)x > (rank - (vb){0});
#endif
}

INLINE vb tree_pick(vm gone, vb yes, vb no)
{
#if VBYTES == 64 && defined(__AVX512BW__)
    return (vb)_mm512_mask_blend_epi8(gone, (__m512i)yes, (__m512i)no);
#elif VBYTES == 32 && defined(__AVX2__)
    return (vb)_mm256_blendv_epi8((__m256i)yes, (__m256i)no, (__m256i)gone);
#else
    return (gone & no) | (~gone & yes);
#endif
}

/* The leaf, or the next one where gone. */
INLINE vb next_leaf(vm gone, vb leaf)
{
#if VBYTES == 64 && defined(__AVX512BW__)
    return (vb)_mm512_mask_add_epi8((__m512i)leaf, gone, (__m512i)leaf, _mm512_set1_epi8(1));
#else
    return (vb)((vub)leaf - (vub)gone);
#endif
}

INLINE vb leaf_after(vb leaf, uint8_t n)
{
    return (vb)((vub)leaf + n);
}

/* Split `at` of a bush and what hangs from it, by levels. x: the ranks, at the rows at hand. */
INLINE vm bush_gone(const eng_tree_bush *b, int at, const int8_t *x)
{
    return beyond(x + (size_t)b->col[at] * ENG_TREE_ROWS, b->rank[at]);
}

INLINE vb bush_1(const eng_tree_bush *b, int at, const int8_t *x, vb leaf)
{
    return next_leaf(bush_gone(b, at, x), leaf);
}

INLINE vb bush_2(const eng_tree_bush *b, int at, const int8_t *x, vb leaf)
{
    vb yes = bush_1(b, 2 * at + 1, x, leaf), no = bush_1(b, 2 * at + 2, x, leaf_after(leaf, 2));
    return tree_pick(bush_gone(b, at, x), yes, no);
}

INLINE vb bush_3(const eng_tree_bush *b, int at, const int8_t *x, vb leaf)
{
    vb yes = bush_2(b, 2 * at + 1, x, leaf), no = bush_2(b, 2 * at + 2, x, leaf_after(leaf, 4));
    return tree_pick(bush_gone(b, at, x), yes, no);
}

#define BUSHES(LEVELS)                                                          \
    for (int i = 0; i < p->n_bushes[LEVELS - 1]; i++, b++, to += ENG_TREE_ROWS) \
        UNROLLED (v, 0, ENG_TREE_ROWS / VBYTES)                                 \
            *(vb *)(to + v * VBYTES) = bush_##LEVELS(b, 0, ranks + v * VBYTES, (int8_t)b->leaf - (vb){0});

static void tree(const eng_tree_program *p, const int8_t *ranks, int8_t *work, uint8_t *leaf)
{
    int8_t *to = work + 256 * ENG_TREE_ROWS;
    const eng_tree_bush *b = p->bushes;
    BUSHES(1)
    BUSHES(2)
    BUSHES(3)
    for (const eng_tree_code *c = p->code; c < p->code + p->n; c++, to += ENG_TREE_ROWS) {
        const int8_t *x = ranks + (size_t)c->col * ENG_TREE_ROWS, *yes = work + (size_t)c->yes * ENG_TREE_ROWS,
                     *no = work + (size_t)c->no * ENG_TREE_ROWS;
        UNROLLED (v, 0, ENG_TREE_ROWS / VBYTES)
            *(vb *)(to + v * VBYTES) =
                tree_pick(beyond(x + v * VBYTES, c->rank), *(const vb *)(yes + v * VBYTES), *(const vb *)(no + v * VBYTES));
    }
    memcpy(leaf, to - ENG_TREE_ROWS, ENG_TREE_ROWS);
}
#undef BUSHES

/* Buckets of VL numbers; NaN is in the first. Every step keeps the order of numbers, so a threshold in an earlier bucket lies below them. */
INLINE vi bucket(const eng_rank_table *t, vf x)
{
    if (t->by_bits) {
        vi bits = (vi)x;
        x = __builtin_convertvector(bits ^ (bits >> 31 & INT32_MAX), vf);
    }
    vf at = (x - splat(t->from)) * splat(t->scale), last = splat((float)t->last);
    at = pick(at > splat(0), at, splat(0));
    return __builtin_convertvector(pick(at < last, at, last), vi);
}

#define RANK(NAME, T, BUCKETS)                                                  \
    static bool rank_##NAME(const eng_rank_table *t, const T *x, int32_t *rank) \
    {                                                                           \
        const T *th = t->t##NAME;                                               \
        const int32_t first = t->steps ? 1 << (t->steps - 1) : 0;               \
        int32_t at[ENG_TREE_ROWS];                                              \
        bool nan = false;                                                       \
        for (int r = 0; r < ENG_TREE_ROWS; r++)                                 \
            nan |= x[r] != x[r];                                                \
        for (int r = 0; r < ENG_TREE_ROWS; r += VL) {                           \
            vf v;                                                               \
            BUCKETS                                                             \
            *(vi *)(at + r) = bucket(t, v);                                     \
        }                                                                       \
        for (int r = 0; r < ENG_TREE_ROWS; r += 8) {                            \
            int32_t k[8];                                                       \
            UNROLLED (i, 0, 8)                                                  \
                k[i] = t->below[at[r + i]];                                     \
            for (int32_t half = first; half; half >>= 1)                        \
                UNROLLED (i, 0, 8)                                              \
                    k[i] += th[k[i] + half - 1] < x[r + i] ? half : 0;          \
            UNROLLED (i, 0, 8)                                                  \
                rank[r + i] = k[i];                                             \
        }                                                                       \
        return nan;                                                             \
    }
RANK(f, float, v = *(const vf *)(x + r);)
RANK(d, double, for (int i = 0; i < VL; i++) v[i] = (float)x[r + i];)
#undef RANK

static void rank_bytes(const int32_t *rank, int32_t from, int8_t *to)
{
    for (int r = 0; r < ENG_TREE_ROWS; r++) {
        int32_t k = rank[r] - from;
        to[r] = (int8_t)((k < 0 ? 0 : k > 255 ? 255 : k) - 128);
    }
}
