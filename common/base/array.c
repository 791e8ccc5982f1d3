/* array.c - growth by doubling; a factor nearer to one would save memory that nothing here is short of, and cost more moves. */
#include "common/base/array.h"

#include "common/base/buf.h"
#include "common/base/err.h"

#include <stdint.h>

enum { FIRST = 4 };

void *pst_array_room(void *at, size_t n, size_t *cap, size_t size)
{
    PST_ASSERT(n <= *cap && size);
    if (n < *cap)
        return at;
    size_t room = n ? 2 * n : FIRST;
    PST_ASSERT(room <= SIZE_MAX / size);
    *cap = room;
    return pst_realloc(at, room * size);
}

void *pst_array_one_more(void *at, size_t n, size_t size)
{
    PST_ASSERT(size && n < SIZE_MAX / size);
    return pst_realloc(at, (n + 1) * size);
}
