/* int8.h - products of 8-bit matrices with exact 32-bit sums, and what surrounds them: rounding to bytes and back.
 *
 *     eng_int8_pack(kn, &right, room, …);          // the right side once
 *     eng_int8_left(kn, …, left);                  // rows of the left side
 *     eng_int8_product(&right, m, left, first, c, ldc);
 *
 * The left side is computed as uint8, the right one as int8: bytes of the other kind are moved by 128, and so are their zero points
 * (eng_int8_shift_left, _right). A 32-bit place holds four bytes of k where the CPU multiplies such (VNNI), else two as int16: no partial sum is ever
 * cut. Sums beyond 32 bits wrap. @thread any; pure functions. */
#ifndef PST_ENGINE_CPU_INT8_H
#define PST_ENGINE_CPU_INT8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* c (m, n) = first + a · b, or c += a · b where first is NULL. a: rows of places, lda places apart; b: panels of nr columns, bps places
 * apart, each (places, nr); first: a number a column, up to whole panels. */
typedef struct eng_int8_block {
    int m, n, places;
    const int32_t *a, *b, *first;
    ptrdiff_t lda, bps, ldc;
    int32_t *c;
} eng_int8_block;

typedef struct eng_int8_kernels {
    const char *name;
    int depth, mr, nr; /* bytes of k in a place; the register tile */
    bool (*supported)(void);
    void (*block)(const eng_int8_block *g);
    /* y[i] = c[i] · scale[i·step] + bias[i]; bias NULL = none */
    void (*floats)(int64_t n, const int32_t *c, const float *scale, int step, const float *bias, float *y);
    /* y[i] = c[i] · scale[i·step], to the nearest even integer, + zero, cut to lo … lo + 255 */
    void (*requantise)(int64_t n, const int32_t *c, const float *scale, int step, int zero, int lo, uint8_t *y);
    /* y[i] = x[i] / scale likewise; NaN is the lowest */
    void (*quantise)(int64_t n, const float *x, float scale, int zero, int lo, uint8_t *y);
    void (*dequantise)(int64_t n, const uint8_t *x, bool is_signed, float scale, int zero, float *y);
    /* to[j·ld_to + i] = from[i·ld_from + j] ^ flip, i < rows, j < cols */
    void (*turn)(int64_t rows, int64_t cols, const uint8_t *from, int64_t ld_from, uint8_t flip, uint8_t *to, int64_t ld_to);
    /* sum[i] += (x[i] - zero) · w[i] */
    void (*add_products)(int64_t n, const uint8_t *x, int zero, const int16_t *w, int32_t *sum);
    /* The least and the greatest, and those given; NaN is passed over. */
    void (*range)(int64_t n, const float *x, float *lo, float *hi);
} eng_int8_kernels;

extern const eng_int8_kernels eng_int8_portable, eng_int8_avx2, eng_int8_vnni, eng_int8_amx;

/* For kernels of isa: the best of this CPU that is no wider. */
const eng_int8_kernels *eng_int8_pick(const char *isa);

static inline int eng_int8_places(const eng_int8_kernels *kn, int k)
{
    return (k + kn->depth - 1) / kn->depth;
}

static inline int eng_int8_columns(const eng_int8_kernels *kn, int n)
{
    return (n + kn->nr - 1) / kn->nr * kn->nr;
}

/* A right side (k, n) in panels, and the sum of each column as int8, up to whole panels. */
typedef struct eng_int8_right {
    const eng_int8_kernels *kernels;
    int n, k;
    const int32_t *panels, *sums;
} eng_int8_right;

static inline int eng_int8_shift_left(bool is_signed)
{
    return is_signed ? 128 : 0;
}

static inline int eng_int8_shift_right(bool is_signed)
{
    return is_signed ? 0 : -128;
}

/* Room for it, 64-byte aligned. */
size_t eng_int8_right_bytes(const eng_int8_kernels *kn, int n, int k);
/* b[p·rs + j·cs], p < k, j < n. */
void eng_int8_pack(const eng_int8_kernels *kn, int n, int k, const uint8_t *b, size_t rs, size_t cs, bool is_signed, void *room,
                   eng_int8_right *ret);
/* Rows a[i·rs + p·cs] → m rows of places; sums: of each row as uint8, NULL = not wanted. */
void eng_int8_left(const eng_int8_kernels *kn, int m, int k, const uint8_t *a, size_t rs, size_t cs, bool is_signed, int32_t *to,
                   int32_t *sums);
/* c (m, n), rows ldc apart. first: up to whole panels. */
void eng_int8_product(const eng_int8_right *b, int m, const int32_t *left, const int32_t *first, int32_t *c, ptrdiff_t ldc);

#endif
