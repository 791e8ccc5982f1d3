/* test_hash.c - digests and base64 against OpenSSL, which shares no code with ours: every length around the blocks, both forms, any way to cut. */
#include "common/base/hash.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/test.h"

enum { LEN = 1000 };

static void fill(uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        data[i] = (uint8_t)((unsigned)i * 2654435761u >> 13);
}

static void oracle(const void *data, size_t len, char ret_hex[65])
{
    uint8_t digest[32];
    unsigned n = 0;
    assert_int_equal(EVP_Digest(data, len, digest, &n, EVP_sha256(), NULL), 1);
    assert_int_equal(n, 32);
    pst_hex(digest, 32, ret_hex);
}

static void test_hash_digest_of_every_length_is_sha256(void **state)
{
    uint8_t data[LEN];
    char ours[65], plain[65], want[65];
    fill(data, sizeof data);
    for (size_t n = 0; n <= LEN; n++) {
        oracle(data, n, want);
        pst_sha256_hex(data, n, ours);
        pst_sha256_hex_plain(data, n, plain);
        assert_string_equal(ours, want);
        assert_string_equal(plain, want);
    }
}

/* Two cuts at every place near the blocks' ends: what waits in the running digest, and what is read where it lies. */
static void test_hash_digest_is_the_same_however_it_is_cut(void **state)
{
    uint8_t data[LEN], digest[32];
    char hex[65], want[65];
    fill(data, sizeof data);
    oracle(data, LEN, want);
    for (size_t first = 0; first <= 200; first++)
        for (size_t second = 0; second <= 200; second += 7) {
            pst_sha256 *h = pst_sha256_new();
            pst_sha256_add(h, data, first);
            pst_sha256_add(h, data + first, second);
            pst_sha256_add(h, data + first + second, LEN - first - second);
            pst_sha256_end(h, digest);
            pst_hex(digest, 32, hex);
            assert_string_equal(hex, want);
        }
}

static void test_hash_base64_is_the_standards(void **state)
{
    uint8_t data[LEN];
    fill(data, sizeof data);
    for (size_t n = 0; n <= 200; n++) {
        unsigned char want[300];
        EVP_EncodeBlock(want, data + n, (int)n);
        char *text = pst_base64(data + n, n);
        assert_string_equal(text, n ? (char *)want : "");
        size_t len = SIZE_MAX;
        uint8_t *back = pst_base64_decode(text, &len);
        assert_non_null(back);
        assert_int_equal(len, n);
        assert_memory_equal(back, data + n, n);
        free(back);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash_digest_of_every_length_is_sha256),
        cmocka_unit_test(test_hash_digest_is_the_same_however_it_is_cut),
        cmocka_unit_test(test_hash_base64_is_the_standards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
