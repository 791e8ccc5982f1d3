/* crc32c.c - CRC-32C (Castagnoli), by a table, and by the processor's own instruction. That takes eight bytes, answers after three cycles and begins one a
 * cycle: so three runs side by side keep it busy, each over a third of a stretch, and are joined by what their state becomes behind as many zero bytes
 * (the CRC is linear, so that is one table a byte of the state, built once). The table's way is for other processors, and the oracle of the test. */
#include "common/base/hash.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

static uint32_t crc_table[256];

static void crc_table_build(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        crc_table[i] = c;
    }
}

uint32_t pst_crc32c_plain(uint32_t crc, const void *data, size_t len)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, crc_table_build);
    const uint8_t *p = data;
    crc = ~crc;
    while (len--)
        crc = crc_table[(crc ^ *p++) & 255] ^ crc >> 8;
    return ~crc;
}

#if defined(__x86_64__)

#define RUN 1024 /* bytes of each of the three: long enough that joining is nothing, short enough for a batch of 16 KiB */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_instruction;
static uint32_t behind_run[4][256]; /* byte k of a state → its part of the state behind RUN zero bytes */

static inline uint64_t load8(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

__attribute__((target("sse4.2"))) static uint32_t behind_zeros(uint32_t state)
{
    uint64_t s = state;
    for (size_t i = 0; i < RUN / 8; i++)
        s = _mm_crc32_u64(s, 0);
    return (uint32_t)s;
}

static void build(void)
{
    has_instruction = __builtin_cpu_supports("sse4.2");
    if (!has_instruction)
        return;
    for (unsigned k = 0; k < 4; k++)
        for (unsigned bit = 0; bit < 8; bit++) {
            uint32_t one = behind_zeros(UINT32_C(1) << (8 * k + bit));
            for (unsigned b = 0; b < 256; b++)
                if (b >> bit & 1)
                    behind_run[k][b] ^= one;
        }
}

static inline uint32_t skip_run(uint32_t s)
{
    return behind_run[0][s & 255] ^ behind_run[1][s >> 8 & 255] ^ behind_run[2][s >> 16 & 255] ^ behind_run[3][s >> 24];
}

__attribute__((target("sse4.2"))) static uint32_t sum(uint32_t state, const uint8_t *p, size_t len)
{
    uint64_t s = state;
    for (; len >= 3 * RUN; len -= 3 * RUN, p += 3 * RUN) {
        uint64_t second = 0, third = 0;
        for (size_t i = 0; i < RUN; i += 8) {
            s = _mm_crc32_u64(s, load8(p + i));
            second = _mm_crc32_u64(second, load8(p + RUN + i));
            third = _mm_crc32_u64(third, load8(p + 2 * RUN + i));
        }
        s = skip_run(skip_run((uint32_t)s) ^ (uint32_t)second) ^ (uint32_t)third;
    }
    for (; len >= 8; len -= 8, p += 8)
        s = _mm_crc32_u64(s, load8(p));
    uint32_t end = (uint32_t)s;
    for (; len; len--)
        end = _mm_crc32_u8(end, *p++);
    return end;
}

uint32_t pst_crc32c(uint32_t crc, const void *data, size_t len)
{
    pthread_once(&once, build);
    return has_instruction ? ~sum(~crc, data, len) : pst_crc32c_plain(crc, data, len);
}

#else

uint32_t pst_crc32c(uint32_t crc, const void *data, size_t len)
{
    return pst_crc32c_plain(crc, data, len);
}

#endif
