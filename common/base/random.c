/* random.c - random bytes from the kernel. Apart from the digests of hash.c, so that the engine's library, whose log wants a few of them, does not
 * need OpenSSL with them. */
#include "common/base/err.h"
#include "common/base/hash.h"

#include <sys/random.h>

void pst_random(void *ret, size_t len)
{
    uint8_t *p = ret;
    while (len) {
        ssize_t n = getrandom(p, len, 0);
        PST_ASSERT(n > 0);
        p += n;
        len -= (size_t)n;
    }
}
