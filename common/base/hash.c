/* hash.c - what is short and has fixed answers (base32, base64, FNV-1a, murmur2), with the vectors of its standards in the test; SHA-256 is
 * sha256.c's, CRC-32C crc32c.c's. Ids come from the kernel's random numbers. */
#include "common/base/hash.h"

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pst_base32(const uint8_t *data, size_t len, char *ret_text)
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";
    uint32_t acc = 0;
    int bits = 0;
    for (size_t i = 0; i < len; i++) {
        acc = acc << 8 | data[i];
        bits += 8;
        while (bits >= 5) {
            *ret_text++ = alphabet[acc >> (bits - 5) & 31];
            bits -= 5;
        }
        acc &= (1u << bits) - 1;
    }
    if (bits)
        *ret_text++ = alphabet[acc << (5 - bits) & 31];
    *ret_text = 0;
}

static const char base64_chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *pst_base64(const void *data, size_t len)
{
    PST_ASSERT(len <= SIZE_MAX / 2);
    const uint8_t *p = data;
    char *out = pst_alloc((len + 2) / 3 * 4 + 1), *to = out;
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t bits = (uint32_t)p[i] << 16 | (n > 1 ? (uint32_t)p[i + 1] << 8 : 0) | (n > 2 ? p[i + 2] : 0);
        for (size_t k = 0; k < 4; k++)
            *to++ = k <= n ? base64_chars[bits >> (18 - 6 * k) & 63] : '=';
    }
    *to = 0;
    return out;
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Strict: whole groups of four, nothing but the alphabet, '=' at the end only. */
void *pst_base64_decode(const char *text, size_t *ret_len)
{
    size_t n = strlen(text), pad = 0;
    if (n % 4)
        return NULL;
    while (pad < 2 && pad < n && text[n - 1 - pad] == '=')
        pad++;
    uint8_t *out = pst_alloc(n / 4 * 3 + 1), *to = out;
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        int value = i < n - pad ? base64_value(text[i]) : 0;
        if (value < 0) {
            free(out);
            return NULL;
        }
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 == 3) {
            for (int k = 16; k >= 0; k -= 8)
                *to++ = (uint8_t)(bits >> k);
            bits = 0;
        }
    }
    *ret_len = n / 4 * 3 - pad;
    return out;
}

uint64_t pst_fnv1a(const void *data, size_t len)
{
    const uint8_t *p = data;
    uint64_t h = 1469598103934665603ull;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 1099511628211ull;
    return h;
}

uint32_t pst_murmur2(const void *data, size_t len)
{
    const uint8_t *p = data;
    const uint32_t m = 0x5bd1e995;
    uint32_t h = 0x9747b28cu ^ (uint32_t)len;
    for (; len >= 4; len -= 4, p += 4) {
        uint32_t k = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        k *= m;
        k ^= k >> 24;
        k *= m;
        h = h * m ^ k;
    }
    if (len >= 3)
        h ^= (uint32_t)p[2] << 16;
    if (len >= 2)
        h ^= (uint32_t)p[1] << 8;
    if (len >= 1)
        h = (h ^ p[0]) * m;
    h ^= h >> 13;
    h *= m;
    return h ^ h >> 15;
}

void pst_uuid7(char ret_text[37])
{
    uint8_t b[16];
    pst_random(b, sizeof b);
    uint64_t ms = (uint64_t)(pst_now_us() / 1000);
    for (int i = 0; i < 6; i++)
        b[i] = (uint8_t)(ms >> (40 - 8 * i));
    b[6] = (uint8_t)(0x70 | (b[6] & 15));
    b[8] = (uint8_t)(0x80 | (b[8] & 63));
    char hex[33];
    pst_hex(b, 16, hex);
    snprintf(ret_text, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
}

bool pst_secret_equal(const char *a, const char *b)
{
    uint8_t x[32], y[32], diff = 0;
    if (!a || !b)
        return false;
    pst_sha256_sum(a, strlen(a), x);
    pst_sha256_sum(b, strlen(b), y);
    for (int i = 0; i < 32; i++)
        diff |= x[i] ^ y[i];
    return diff == 0;
}
