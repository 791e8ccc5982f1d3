/* random.c - random bytes from the kernel: getrandom(2) fails for no reason that could be dealt with. */
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
