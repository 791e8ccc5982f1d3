/* sha256.c - SHA-256 (FIPS 180-4) without a library: the readable form, and one with the instructions that most x86 CPUs since 2019 have for it.
 * Our own and not OpenSSL's: a process that needs a digest of a few bytes, as each supervisor does before its learner starts, would pay a
 * millisecond or two for loading and setting up a crypto library; and a sum takes nothing from the heap, so that nothing here can fail. As fast
 * as OpenSSL's where the CPU has the instructions (1.3 GB/s); half as fast on the others (0.2 GB/s), which is the price. */
#include "common/base/buf.h"
#include "common/base/hash.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

typedef void (*blocks_fn)(uint32_t h[8], const uint8_t *p, size_t n_blocks);

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t ror(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void blocks_plain(uint32_t h[8], const uint8_t *p, size_t n_blocks)
{
    for (; n_blocks; n_blocks--, p += 64) {
        uint32_t w[64], v[8];
        for (int t = 0; t < 16; t++)
            w[t] = big_endian(p + 4 * t);
        for (int t = 16; t < 64; t++) {
            uint32_t a = w[t - 15], b = w[t - 2];
            w[t] = w[t - 16] + w[t - 7] + (ror(a, 7) ^ ror(a, 18) ^ a >> 3) + (ror(b, 17) ^ ror(b, 19) ^ b >> 10);
        }
        memcpy(v, h, sizeof v);
        for (int t = 0; t < 64; t += 8)
            for (int r = 8; r > 0; r--) { /* instead of moving a to h along, their places turn: a is at r, b behind it */
                uint32_t a = v[r & 7], b = v[(r + 1) & 7], c = v[(r + 2) & 7], *d = &v[(r + 3) & 7];
                uint32_t e = v[(r + 4) & 7], f = v[(r + 5) & 7], g = v[(r + 6) & 7], *last = &v[(r + 7) & 7];
                uint32_t one = *last + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) + ((e & f) ^ (~e & g)) + k[t + 8 - r] + w[t + 8 - r];
                *d += one;
                *last = one + (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
            }
        for (int i = 0; i < 8; i++)
            h[i] += v[i];
    }
}

#if defined(__x86_64__)
/* Two registers hold the state as (a, b, e, f) and (c, d, g, h); an instruction does two rounds. */
__attribute__((target("sha,ssse3,sse4.1"))) static void blocks_sha(uint32_t h[8], const uint8_t *p, size_t n_blocks)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i abef = _mm_set_epi32((int)h[0], (int)h[1], (int)h[4], (int)h[5]);
    __m128i cdgh = _mm_set_epi32((int)h[2], (int)h[3], (int)h[6], (int)h[7]);
    for (; n_blocks; n_blocks--, p += 64) {
        __m128i w[4], abef0 = abef, cdgh0 = cdgh;
        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i)), swap);
        for (int i = 0; i < 16; i++) {
            __m128i *at = &w[i & 3], m = _mm_add_epi32(*at, _mm_loadu_si128((const __m128i *)(const void *)(k + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, m);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(m, 0x0e));
            __m128i w3 = w[(i + 3) & 3],
                    sum = _mm_add_epi32(_mm_sha256msg1_epu32(*at, w[(i + 1) & 3]), _mm_alignr_epi8(w3, w[(i + 2) & 3], 4));
            *at = _mm_sha256msg2_epu32(sum, w3); /* the four words that are used 16 rounds from here */
        }
        abef = _mm_add_epi32(abef, abef0);
        cdgh = _mm_add_epi32(cdgh, cdgh0);
    }
    uint32_t x[4], y[4];
    _mm_storeu_si128((__m128i *)(void *)x, abef);
    _mm_storeu_si128((__m128i *)(void *)y, cdgh);
    for (int i = 0; i < 2; i++) {
        h[i] = x[3 - i];
        h[4 + i] = x[1 - i];
        h[2 + i] = y[3 - i];
        h[6 + i] = y[1 - i];
    }
}

static blocks_fn look(void)
{
    unsigned a, b, c, d, c1;
    bool sse = __get_cpuid(1, &a, &b, &c1, &d) && (c1 & bit_SSSE3) && (c1 & bit_SSE4_1);
    return sse && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA) ? blocks_sha : blocks_plain;
}

/* Looked at once: in a virtual machine each CPUID goes to the host, and three of them take as long as a digest of 30 KiB. Two threads that look at the same time find the same. */
static blocks_fn best(void)
{
    static _Atomic(blocks_fn) found;
    blocks_fn blocks = atomic_load_explicit(&found, memory_order_relaxed);
    if (!blocks) {
        blocks = look();
        atomic_store_explicit(&found, blocks, memory_order_relaxed);
    }
    return blocks;
}
#else
static blocks_fn best(void)
{
    return blocks_plain;
}
#endif

struct pst_sha256 {
    uint32_t h[8];
    uint64_t len;
    uint8_t rest[64]; /* len % 64 bytes that make no block yet */
};

/* The first 32 bits of the fractional parts of the square roots of the first 8 primes. */
#define BEGUN                                                                                                   \
    (pst_sha256)                                                                                                \
    {                                                                                                           \
        .h = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 } \
    }

/* A block that was begun is filled up first; whole blocks are read where they lie. */
static void add(pst_sha256 *h, blocks_fn blocks, const void *data, size_t len)
{
    const uint8_t *p = data;
    size_t used = h->len % 64;
    h->len += len;
    if (used) {
        size_t n = len < 64 - used ? len : 64 - used;
        memcpy(h->rest + used, p, n);
        if (used + n < 64)
            return;
        blocks(h->h, h->rest, 1);
        p += n;
        len -= n;
    }
    if (len >= 64)
        blocks(h->h, p, len / 64);
    if (len % 64)
        memcpy(h->rest, p + len / 64 * 64, len % 64);
}

/* A bit behind the data, zeros, and at the end of a block how many bits there were. */
static void end(pst_sha256 *h, blocks_fn blocks, uint8_t ret_digest[32])
{
    uint8_t last[128] = {0};
    size_t rest = h->len % 64, n = rest < 56 ? 1 : 2;
    memcpy(last, h->rest, rest);
    last[rest] = 0x80;
    for (int i = 0; i < 8; i++)
        last[64 * n - 1 - (size_t)i] = (uint8_t)(h->len * 8 >> 8 * i);
    blocks(h->h, last, n);
    for (int i = 0; i < 32; i++)
        ret_digest[i] = (uint8_t)(h->h[i / 4] >> (24 - i % 4 * 8));
}

pst_sha256 *pst_sha256_new(void)
{
    pst_sha256 *h = pst_alloc(sizeof *h);
    *h = BEGUN;
    return h;
}

void pst_sha256_add(pst_sha256 *h, const void *data, size_t len)
{
    add(h, best(), data, len);
}

void pst_sha256_end(pst_sha256 *h, uint8_t ret_digest[32])
{
    end(h, best(), ret_digest);
    free(h);
}

static void sum(blocks_fn blocks, const void *data, size_t len, uint8_t ret_digest[32])
{
    pst_sha256 h = BEGUN;
    add(&h, blocks, data, len);
    end(&h, blocks, ret_digest);
}

void pst_sha256_sum(const void *data, size_t len, uint8_t ret_digest[32])
{
    sum(best(), data, len, ret_digest);
}

void pst_sha256_hex(const void *data, size_t len, char ret_hex[65])
{
    uint8_t d[32];
    sum(best(), data, len, d);
    pst_hex(d, 32, ret_hex);
}

void pst_sha256_hex_plain(const void *data, size_t len, char ret_hex[65])
{
    uint8_t d[32];
    sum(blocks_plain, data, len, d);
    pst_hex(d, 32, ret_hex);
}

void pst_hex(const uint8_t *data, size_t len, char *ret_text)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        ret_text[2 * i] = digits[data[i] >> 4];
        ret_text[2 * i + 1] = digits[data[i] & 15];
    }
    ret_text[2 * len] = 0;
}
