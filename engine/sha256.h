/* sha256.h - the digest of a model's file. Not installed. Our own and not OpenSSL's, so that the library needs no crypto library for one
 * function, and so that nothing here can fail for want of memory. Source: FIPS 180-4. @thread any */
#ifndef PST_ENGINE_SHA256_H
#define PST_ENGINE_SHA256_H

#include <stdbool.h>
#include <stddef.h>

/* Lower-case hex and a NUL. */
void eng_sha256(const void *data, size_t len, char ret_hex[65]);
/* For tests: the readable form alone. */
void eng_sha256_plain(const void *data, size_t len, char ret_hex[65]);

#endif
