/* gemm.h - dense float32 matrix product, row-major, with the best instruction set of this CPU.
 *
 *     pst_sgemm(false, true, m, n, k, 1, x, k, w, k, 0, y, n);       // y (m,n) = x (m,k) · wᵀ, w stored (n,k)
 *
 * c (m,n) = alpha · op(a) · op(b) + beta · c, op(a) (m,k), op(b) (k,n); ld… is the row stride of the matrix as stored. beta 0 does
 * not read c. Method: packed panels and a register tile after Goto and van de Geijn, "Anatomy of High-Performance Matrix
 * Multiplication" (2008). @thread any; each thread keeps its packing buffers (about 1.7 MiB) until it ends. */
#ifndef PST_ENGINE_CPU_GEMM_H
#define PST_ENGINE_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>

struct eng_cpu_kernels;

void pst_sgemm(bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta, float *c,
               int ldc);
/* The same with the kernels of one instruction set. */
void eng_sgemm_isa(const struct eng_cpu_kernels *kernels, bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda,
                   const float *b, int ldb, float beta, float *c, int ldc);
/* A right-hand matrix packed once, for products with many left ones. data: the caller's room of eng_packed_floats() floats, 64-byte
 * aligned. b (k,n), or (n,k) with tb. */
typedef struct eng_packed {
    const struct eng_cpu_kernels *kernels;
    int n, k;
    ptrdiff_t stride; /* floats from one panel of columns to the next */
    const float *data;
} eng_packed;
/* Columns from which on the left side may be packed: products of fewer are cut into tiles in another way, and their last digits may differ. */
enum { ENG_PACKS_LEFT_FROM = 128 };
size_t eng_packed_floats(const struct eng_cpu_kernels *kernels, int n, int k);
void eng_sgemm_pack(const struct eng_cpu_kernels *kernels, bool tb, int n, int k, const float *b, int ldb, float *room, eng_packed *ret);
/* n rows of length k, ld_from apart → (k,n), rows ld_to apart: what panels are made of. */
void eng_pack_turned(int n, int k, const float *from, size_t ld_from, float *to, size_t ld_to);
/* A left-hand matrix a (m,k) in the order the kernels' conv reads it: m · k floats. */
void eng_sgemm_pack_left(const struct eng_cpu_kernels *kernels, int m, int k, const float *a, int lda, float *to);
/* c (m,n) = alpha · a (m,k) · b + beta · c */
void eng_sgemm_packed(const eng_packed *b, int m, float alpha, const float *a, int lda, float beta, float *c, int ldc);
/* This thread's packing buffers, which a first product else takes: false when memory ran out. */
bool eng_sgemm_room(void);
/* The readable twin: three loops, double accumulation. */
void eng_sgemm_ref(bool ta, bool tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                   float *c, int ldc);

#endif
