/* hash.h - digests and their texts: SHA-256, lower-case base32, base64, CRC32C, FNV-1a, random ids. @thread any. */
#ifndef PST_BASE_HASH_H
#define PST_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pst_sha256 pst_sha256; /* a running digest */

pst_sha256 *pst_sha256_new(void);
void pst_sha256_add(pst_sha256 *h, const void *data, size_t len);
void pst_sha256_end(pst_sha256 *h, uint8_t ret_digest[32]); /* frees h */
void pst_sha256_sum(const void *data, size_t len, uint8_t ret_digest[32]);
void pst_sha256_hex(const void *data, size_t len, char ret_hex[65]);       /* takes nothing from the heap, as the sum */
void pst_sha256_hex_plain(const void *data, size_t len, char ret_hex[65]); /* for tests: the readable form alone */
void pst_hex(const uint8_t *data, size_t len, char *ret_text);             /* 2 len + 1 bytes */
void pst_base32(const uint8_t *data, size_t len, char *ret_text);          /* RFC 4648 lower case, no padding; (8 len + 4) / 5 + 1 bytes */
char *pst_base64(const void *data, size_t len);                            /* free() it */
void *pst_base64_decode(const char *text, size_t *ret_len);                /* NULL if not base64; free() it */
uint32_t pst_crc32c(uint32_t crc, const void *data, size_t len);           /* Castagnoli; start with 0 */
uint32_t pst_crc32c_plain(uint32_t crc, const void *data, size_t len);     /* for tests: by the table alone */
uint64_t pst_fnv1a(const void *data, size_t len);
/* Kafka's murmur2 of the Java client (positive int modulo partitions chooses the partition). */
uint32_t pst_murmur2(const void *data, size_t len);
/* Are the texts the same? Digests are compared: neither length nor place of the first difference shows in the time taken. NULL is no text. */
bool pst_secret_equal(const char *a, const char *b);
void pst_random(void *ret, size_t len); /* getrandom(2) */
void pst_uuid7(char ret_text[37]);      /* sortable; RFC 9562 */

#endif
